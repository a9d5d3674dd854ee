//! `garonne explain`: the long story of an error code.

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use garonne_job::codes::{self, ErrorCode};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The code, as in `error[G0107]`; without it, all codes are listed
    #[arg(add = ArgValueCandidates::new(candidates))]
    code: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All codes with their titles, for shells.
fn candidates() -> Vec<CompletionCandidate> {
    let codes = codes::CODES.iter();
    codes
        .map(|code| CompletionCandidate::new(code.id).help(Some(code.title.into())))
        .collect()
}

pub fn run(args: &ExplainArgs) -> i32 {
    match &args.code {
        None if args.json => {
            super::print_json(&codes::CODES.iter().map(as_json).collect::<Vec<_>>())
        }
        None => {
            codes::CODES
                .iter()
                .for_each(|code| outln!("{}  {}", code.id, code.title));
            0
        }
        Some(name) => match codes::find(name) {
            Some(code) if args.json => super::print_json(&as_json(code)),
            Some(code) => {
                outln!("{}: {}\n", code.id, code.title);
                outln!(
                    "what happened  {}\nwhere          {}\nwhat to do     {}",
                    code.what,
                    code.whence,
                    code.todo
                );
                0
            }
            None => {
                errln!("error: there is no code '{name}'; `garonne explain` lists all");
                1
            }
        },
    }
}

fn as_json(code: &ErrorCode) -> serde_json::Value {
    json!({ "id": code.id, "title": code.title, "what": code.what, "where": code.whence, "todo": code.todo })
}
