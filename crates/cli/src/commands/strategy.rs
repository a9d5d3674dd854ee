//! `garonne strategy FILE`: loads a strategy that is a module, asks it thousands of random questions, and says what is wrong with it.

use std::path::PathBuf;

use serde_json::json;

use crate::examined::{About, Ended, FUNCTIONS, Inside, Told, ToldFinding, ask, inside};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The module, as GARONNE_STRATEGY names it
    file: PathBuf,
    /// Decides all questions: the same number asks the same again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// What the process does that the module is loaded into
    #[arg(long, hide = true)]
    inside: Option<Inside>,
}

pub fn run(args: &Args) -> i32 {
    // The same words as of a job's launcher, and the same file.
    let file = std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone());
    if let Some(what) = args.inside {
        return inside(what, &file, args.seed);
    }
    let (about, told) = match ask(Inside::Examine, &file, args.seed) {
        Ok(Ended::Examined(about, told)) => (about, told),
        Ok(Ended::Loaded) => (About::default(), Told::default()),
        Ok(Ended::Refused(text)) => {
            errln!("{text}");
            return 1;
        }
        Ok(Ended::Broke(how)) => return broke(args, &how),
        Err(error) => {
            errln!("error: cannot start a process to load the module into: {error}");
            return 1;
        }
    };
    let good = told.findings.is_empty();
    match args.json {
        true => {
            super::print_json(&json!({
                "file": file, "name": about.name, "seed": args.seed, "good": good,
                "functions": FUNCTIONS.iter().enumerate().map(|(at, name)| json!({
                    "function": name, "there": about.decides[at], "asked": told.asked[at], "left_to_built_in": told.left[at],
                })).collect::<Vec<_>>(),
                "findings": told.findings.iter().map(|finding| json!({
                    "function": name_of(finding), "case": finding.case, "property": finding.property, "how": finding.how,
                })).collect::<Vec<_>>(),
            }));
        }
        false => print(args, &about, &told),
    }
    i32::from(!good)
}

fn name_of(finding: &ToldFinding) -> &'static str {
    FUNCTIONS.get(finding.question).unwrap_or(&"?")
}

fn broke(args: &Args, how: &str) -> i32 {
    let again = again(args);
    match args.json {
        true => {
            super::print_json(&json!({ "file": args.file, "seed": args.seed, "good": false, "broke": how }));
        }
        false => outln!("bad: {how}\n     {again}"),
    }
    1
}

fn again(args: &Args) -> String {
    format!(
        "`garonne strategy {} --seed {}` does it again",
        args.file.display(),
        args.seed
    )
}

fn print(args: &Args, about: &About, told: &Told) {
    outln!("strategy '{}', seed {}", about.name, args.seed);
    for (at, name) in FUNCTIONS.iter().enumerate() {
        match about.decides[at] {
            false => outln!("{name:<9} not there: the built-in strategy decides"),
            true => outln!(
                "{name:<9} {} answers, {} of them left to the built-in strategy",
                told.asked[at],
                told.left[at]
            ),
        }
    }
    for finding in &told.findings {
        outln!(
            "{:<9} case {}: does not hold: {}: {}",
            name_of(finding),
            finding.case,
            finding.property,
            finding.how
        );
    }
    match told.findings.len() {
        0 => outln!("good: nothing wrong was found"),
        several => outln!("bad: {several} properties do not hold; {}", again(args)),
    }
}
