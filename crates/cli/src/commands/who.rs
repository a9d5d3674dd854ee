//! `garonne who`: what each rank of a running job does, from what the ranks publish, without their help.

use clap_complete::engine::ArgValueCandidates;
use comfy_table::Table;
use garonne_mpi::coll::tag::Call;
use garonne_node::layout::{State, Wait};
use garonne_sites::Whose;
use serde_json::json;

use super::calls;
use super::jobs::{self, Rank};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process id of the job's launcher; not needed if one job runs
    #[arg(add = ArgValueCandidates::new(jobs::candidates))]
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
        let list: Vec<_> = ranks.iter().map(as_json).collect();
        return super::print_json(
            &json!({ "launcher": visit.launcher, "command": visit.command, "ranks": list, "mismatch": mismatch(&waits(&ranks)) }),
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
    if let Some(text) = mismatch(&waits(&ranks)) {
        println!("\n{text}");
    }
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

fn waits(ranks: &[Rank]) -> Vec<(u32, Wait)> {
    ranks
        .iter()
        .filter_map(|rank| Some((rank.rank, rank.wait?)))
        .collect()
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
    let what = match (calls::name(wait.call), collective(&wait)) {
        (None, None) => return format!("something, for {since:.1} s"),
        (name, Some(in_it)) => {
            let from = if wait.peer < 0 {
                String::new()
            } else {
                format!(", {peer}")
            };
            let call = name.unwrap_or(in_it.call.kind.name());
            format!(
                "{call}: collective {} of comm #{}{from}",
                in_it.call.number, in_it.comm
            )
        }
        (Some(call), None) => {
            let tag = if wait.tag < 0 {
                "any tag".into()
            } else {
                format!("tag {}", wait.tag)
            };
            format!(
                "{call}: {peer}, {tag}, {} B, comm #{}",
                wait.bytes,
                wait.comm / CONTEXTS
            )
        }
    };
    format!(
        "{what}{}, for {since:.1} s",
        place(rank, &wait).map_or(String::new(), |place| format!("   at {place}"))
    )
}

const CONTEXTS: u64 = garonne_mpi::limits::CONTEXTS_PER_COMM as u64;

/// A collective that a rank is in, and the communicator's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InCollective {
    comm: u64,
    call: Call,
}

/// The collective that a wait belongs to: its messages have the second context of their communicator.
fn collective(wait: &Wait) -> Option<InCollective> {
    let call = Call::from_tag(wait.tag).filter(|_| wait.comm % CONTEXTS == 1)?;
    Some(InCollective {
        comm: wait.comm / CONTEXTS,
        call,
    })
}

/// Pairs of ranks of which one waits for the other, which is in another collective of the same communicator: both are its
/// members, since the first names the second, so neither can ever return. The first of them, in words.
fn mismatch(waits: &[(u32, Wait)]) -> Option<String> {
    waits.iter().find_map(|(rank, wait)| {
        let own = collective(wait)?;
        let peer = u32::try_from(wait.peer).ok()?;
        let (_, other) = waits.iter().find(|(rank, _)| *rank == peer)?;
        let theirs = collective(other)?;
        let differs = theirs.comm == own.comm && theirs.call.number == own.call.number && theirs.call.series == own.call.series && theirs.call.kind != own.call.kind;
        differs.then(|| {
            format!(
                "mismatch: the ranks of comm #{} called different collectives: rank {rank} is in {} #{number}, rank {peer} in {} #{number}",
                own.comm,
                own.call.kind,
                theirs.call.kind,
                number = own.call.number,
            )
        })
    })
}

/// Where in the program a rank waits, if that can be read from here.
fn place(rank: &Rank, wait: &Wait) -> Option<String> {
    (wait.site != 0 && rank.pid != 0).then(|| garonne_sites::describe(Whose::Process(rank.pid), wait.site))
}

fn as_json(rank: &Rank) -> serde_json::Value {
    let wait = rank.wait.map(|wait| {
        json!({ "call": calls::name(wait.call), "peer": wait.peer, "tag": wait.tag, "comm": wait.comm / CONTEXTS, "bytes": wait.bytes,
            "since_ns": wait.since_ns, "collective": collective(&wait).map(|it| it.call.number), "kind": collective(&wait).map(|it| it.call.kind.name()), "site": wait.site,
            "place": place(rank, &wait) })
    });
    json!({ "rank": rank.rank, "pid": rank.pid, "state": jobs::word(rank.state), "cpu": rank.cpu,
        "process": rank.process, "cpu_seconds": rank.cpu_seconds, "waits_for": wait })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tag as the library makes them for blocking calls: number, series, kind (1 barrier, 2 broadcast), inside one group or not.
    fn tag(number: i32, kind: i32) -> i32 {
        number << 8 | kind << 1
    }

    #[test]
    fn ranks_in_different_collectives_of_one_number_are_named() {
        let wait = |peer, tag| Wait {
            call: 1,
            peer,
            tag,
            comm: 8 + 1,
            since_ns: 1,
            ..Wait::default()
        };
        let said = mismatch(&[(0, wait(1, tag(12, 2))), (1, wait(0, tag(12, 1)))]).unwrap();
        assert!(
            said.ends_with("rank 0 is in MPI_Bcast #12, rank 1 in MPI_Barrier #12"),
            "{said}"
        );
    }

    #[test]
    fn late_ranks_and_other_communicators_are_no_mismatch() {
        let wait = |peer, tag, comm| Wait {
            call: 1,
            peer,
            tag,
            comm,
            since_ns: 1,
            ..Wait::default()
        };
        let late = [(0, wait(1, tag(12, 2), 9)), (1, wait(0, tag(11, 1), 9))];
        assert_eq!(mismatch(&late), None);
        let others = [(0, wait(1, tag(12, 2), 9)), (1, wait(0, tag(12, 1), 17))];
        assert_eq!(mismatch(&others), None);
        let messages = [(0, wait(1, tag(12, 2), 8)), (1, wait(0, tag(12, 1), 8))];
        assert_eq!(mismatch(&messages), None);
        let anybody = [(0, wait(-1, tag(12, 2), 9)), (1, wait(-1, tag(12, 1), 9))];
        assert_eq!(mismatch(&anybody), None);
    }
}
