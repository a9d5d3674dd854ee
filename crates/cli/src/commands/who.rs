//! `garonne who`: what each rank of a running job does, from what the ranks publish, without their help.

use comfy_table::Table;
use garonne_node::layout::{State, Wait};
use garonne_sites::Whose;
use serde_json::json;

use super::calls;
use super::jobs::{self, Rank};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process id of the job's launcher; not needed if one job runs
    job: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> i32 {
    let visit = match jobs::choose(args.job) {
        Ok(visit) => visit,
        Err(text) => {
            eprintln!("error: {text}");
            return 1;
        }
    };
    let ranks = jobs::ranks(&visit);
    if args.json {
        let ranks: Vec<_> = ranks.iter().map(as_json).collect();
        return super::print_json(
            &json!({ "launcher": visit.launcher, "command": visit.command, "ranks": ranks }),
        );
    }
    println!(
        "job {}: {} ({} ranks)",
        visit.launcher, visit.command, visit.ranks
    );
    if ranks.is_empty() {
        println!("no rank has called MPI_Init yet");
        return 0;
    }
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header([
        "rank",
        "process",
        "state",
        "cpu",
        "cpu time",
        "waits for",
    ]);
    for rank in &ranks {
        let cpu = rank.cpu.map_or(String::from("any"), |cpu| cpu.to_string());
        let time = format!("{:.1} s", rank.cpu_seconds);
        table.add_row([
            rank.rank.to_string(),
            rank.pid.to_string(),
            doing(rank),
            cpu,
            time,
            waiting(rank),
        ]);
    }
    println!("{}", table.trim_fmt());
    let absent: Vec<_> = ranks
        .iter()
        .filter(|rank| rank.state == State::Absent)
        .map(|rank| rank.rank.to_string())
        .collect();
    if !absent.is_empty() && absent.len() < ranks.len() {
        println!(
            "\nranks {} have not called MPI_Init: collective calls of the others wait for them",
            absent.join(", ")
        );
    }
    0
}

fn doing(rank: &Rank) -> String {
    let process = match (rank.state, rank.process) {
        (State::Running | State::Finalized, Some('R')) => ", computing",
        (State::Running | State::Finalized, Some('S' | 'D' | 'I')) => ", asleep",
        (State::Running | State::Finalized, Some('T' | 't')) => ", stopped",
        _ => "",
    };
    format!("{}{process}", jobs::word(rank.state))
}

fn waiting(rank: &Rank) -> String {
    let Some(wait) = rank.wait else {
        return String::new();
    };
    let peer = if wait.peer < 0 {
        "any rank".into()
    } else {
        format!("rank {}", wait.peer)
    };
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since = (now.tv_sec as f64 + now.tv_nsec as f64 / 1e9) - wait.since_ns as f64 / 1e9;
    let what = match (calls::name(wait.call), wait.collective) {
        (None, _) => return format!("something, for {since:.1} s"),
        (Some(call), 0) => format!(
            "{call}: {peer}, tag {}, {} B, context {}",
            wait.tag, wait.bytes, wait.comm
        ),
        (Some(call), number) => format!("{call}: collective {number} of context {}", wait.comm),
    };
    format!("{what}{}, for {since:.1} s", place(rank, &wait).map_or(String::new(), |place| format!("   at {place}")))
}

/// Where in the program a rank waits, if that can be read from here.
fn place(rank: &Rank, wait: &Wait) -> Option<String> {
    (wait.site != 0 && rank.pid != 0).then(|| garonne_sites::describe(Whose::Process(rank.pid), wait.site))
}

fn as_json(rank: &Rank) -> serde_json::Value {
    let wait = rank.wait.map(|wait| {
        json!({ "call": calls::name(wait.call), "peer": wait.peer, "tag": wait.tag, "comm": wait.comm, "bytes": wait.bytes,
            "since_ns": wait.since_ns, "collective": wait.collective, "site": wait.site,
            "place": place(rank, &wait) })
    });
    json!({ "rank": rank.rank, "pid": rank.pid, "state": jobs::word(rank.state), "cpu": rank.cpu,
        "process": rank.process, "cpu_seconds": rank.cpu_seconds, "waits_for": wait })
}
