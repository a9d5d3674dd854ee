//! `garonne strategy`: what the built-in strategies decide; and of one that is a module, after
//! thousands of random questions, what is wrong with it.

use garonne_job::settings::ENV_STRATEGY;
use garonne_job::settings::strategy::StrategyChoice;
use std::path::{Path, PathBuf};

use comfy_table::{Table, presets};
use garonne_engine::schedule::builtin::BuiltinStrategy;
use serde_json::json;

use crate::module_checker::{
    CheckOutcome, CheckReport, CheckStep, FUNCTIONS, ModuleInfo, ReportedFinding, ask,
    run_in_process,
};

#[derive(Debug, clap::Args)]
pub struct StrategyArgs {
    /// The module, as GARONNE_STRATEGY names it, or the name of a built-in strategy; all of those
    /// if nothing is named
    file: Option<PathBuf>,
    /// Decides all questions: the same number asks the same again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// What the process does that the module is loaded into
    #[arg(long, hide = true)]
    inside: Option<CheckStep>,
}

pub fn run(args: &StrategyArgs) -> i32 {
    let Some(named) = &args.file else {
        return show(&BuiltinStrategy::ALL, args.json);
    };
    // The same words as of a job's launcher, and the same file.
    let file = std::path::absolute(named).unwrap_or_else(|_| named.clone());
    if let Some(what) = args.inside {
        return run_in_process(what, &file, args.seed);
    }
    match StrategyChoice::read(named.as_os_str()) {
        Ok(StrategyChoice::BuiltIn(one)) => return show(&[one], args.json),
        Err(_) if !file.exists() => {
            let names = BuiltinStrategy::ALL.map(BuiltinStrategy::name).join(", ");
            return super::fail(&format!(
                "'{}' is no strategy and no file here; built in are: {names}; of a module, name the file",
                named.display()
            ));
        }
        // A file that is here needs no slash.
        Ok(StrategyChoice::Module(_)) | Err(_) => {}
    }
    let (about, told) = match ask(CheckStep::Examine, &file, args.seed) {
        Ok(CheckOutcome::Examined(about, told)) => (about, told),
        Ok(CheckOutcome::Loaded) => (ModuleInfo::default(), CheckReport::default()),
        Ok(CheckOutcome::Refused(text)) => {
            errln!("{text}");
            return 1;
        }
        Ok(CheckOutcome::Broke(how)) => return broke(args, named, &how),
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
        false => print(args, named, &about, &told),
    }
    i32::from(!good)
}

/// Returns, for each decision of a built-in strategy, its subject and its outcome.
fn decisions(one: BuiltinStrategy) -> [(&'static str, &'static str); 3] {
    [
        ("small messages to other hosts", one.coalescing().words()),
        ("order of a full window", one.ordering().words()),
        ("large data over several networks", one.striping().words()),
    ]
}

/// Describes in a line what a built-in strategy decides.
pub fn summary(one: BuiltinStrategy) -> String {
    decisions(one)
        .map(|(about, what)| format!("{about}: {what}"))
        .join("; ")
}

/// Describes as JSON what a built-in strategy decides.
pub fn json_of(one: BuiltinStrategy) -> serde_json::Value {
    json!({
        "name": one.name(), "small_messages": one.coalescing().words(), "order": one.ordering().words(), "large_data": one.striping().words(),
    })
}

fn show(those: &[BuiltinStrategy], as_json: bool) -> i32 {
    if as_json {
        return super::print_json(&those.iter().map(|one| json_of(*one)).collect::<Vec<_>>());
    }
    let mut table = Table::new();
    let head = decisions(BuiltinStrategy::default()).map(|(about, _)| about);
    table
        .load_preset(presets::NOTHING)
        .set_header([&[ENV_STRATEGY], &head[..]].concat());
    for one in those {
        let what = decisions(*one).map(|(_, what)| what);
        table.add_row([&[one.name()], &what[..]].concat());
    }
    outln!("{}", table.trim_fmt());
    0
}

fn name_of(finding: &ReportedFinding) -> &'static str {
    FUNCTIONS.get(finding.question).unwrap_or(&"?")
}

fn broke(args: &StrategyArgs, file: &Path, how: &str) -> i32 {
    let again = again(args, file);
    match args.json {
        true => {
            super::print_json(
                &json!({ "file": file, "seed": args.seed, "good": false, "broke": how }),
            );
        }
        false => outln!("bad: {how}\n     {again}"),
    }
    1
}

fn again(args: &StrategyArgs, file: &Path) -> String {
    format!(
        "`garonne strategy {} --seed {}` does it again",
        file.display(),
        args.seed
    )
}

fn print(args: &StrategyArgs, file: &Path, about: &ModuleInfo, told: &CheckReport) {
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
        several => outln!(
            "bad: {several} properties do not hold; {}",
            again(args, file)
        ),
    }
}
