//! What a look at a job found, in words: the table of its ranks, whom they wait for, and what that comes to.

use std::collections::HashMap;

use comfy_table::Table;
use garonne_node::layout::{State, Wait};
use serde_json::json;

use super::standing::{CONTEXTS, Shown, collective};
use super::verdict::Verdict;
use crate::commands::jobs::{self, Rank};
use garonne_node::calls;

/// The ranks that were seen, a line each.
pub fn table(all: &[Shown]) -> Table {
    let mut table = Table::new();
    let on_hosts = all.iter().any(|shown| shown.host.is_some());
    let host = on_hosts.then_some("host");
    let header = ["rank"].into_iter().chain(host);
    let header = header.chain(["process", "state", "cpu", "cpu time", "waits for"]);
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_header(header);
    for shown in all.iter().filter(|shown| !shown.silent) {
        let rank = &shown.seen.rank;
        let host = on_hosts.then(|| shown.host.as_deref().unwrap_or_default().to_owned());
        let cells = [
            rank.pid.to_string(),
            doing(rank),
            rank.cpu.map_or(String::from("any"), |cpu| cpu.to_string()),
            format!("{:.1} s", rank.cpu_seconds),
            waiting(shown),
        ];
        table.add_row([rank.rank.to_string()].into_iter().chain(host).chain(cells));
    }
    table
}

/// The ranks that a verdict is about.
pub fn named(verdict: &Verdict) -> Vec<u32> {
    match verdict {
        Verdict::Cycle { ranks, .. } => ranks.clone(),
        Verdict::Missing { ended, .. } => vec![*ended],
        Verdict::Awaited(list) => list.iter().map(|(rank, _)| *rank).collect(),
        Verdict::Moving => Vec::new(),
    }
}

/// A verdict in words; nothing where there is nothing to say.
pub fn tell(verdict: &Verdict, all: &[Shown]) -> Option<String> {
    let seen = |rank: u32| &all[rank as usize];
    let call = |rank: u32| format!("\n  rank {rank}: {}", waiting(seen(rank)));
    match verdict {
        Verdict::Moving => None,
        Verdict::Cycle { ranks, others } => {
            let head = match ranks.as_slice() {
                [rank] => format!("verdict: deadlock: rank {rank} waits for itself"),
                _ => "verdict: deadlock: each of these ranks waits for the next, the last for the first, and none can go on".into(),
            };
            let calls: String = ranks.iter().map(|rank| call(*rank)).collect();
            let threads = if ranks.iter().any(|rank| seen(*rank).has_threads()) {
                "\n  unless another of their threads acts: they asked for MPI_THREAD_MULTIPLE"
            } else {
                ""
            };
            Some(format!("{head}{calls}{}{threads}", more(*others)))
        }
        Verdict::Missing {
            waiter,
            ended,
            others,
        } => Some(format!(
            "verdict: rank {waiter} can never go on, since rank {ended} {}{}{}",
            lot(seen(*ended)),
            call(*waiter),
            more(*others)
        )),
        Verdict::Awaited(list) => {
            let line = |(rank, count): &(u32, usize)| {
                let waits = if *count == 1 { "rank waits" } else { "ranks wait" };
                format!(
                    "verdict: {count} {waits} for rank {rank}, which {}",
                    lot(seen(*rank))
                )
            };
            let lines: Vec<_> = list.iter().take(AWAITED_NAMED).map(line).collect();
            let rest = list.len().saturating_sub(AWAITED_NAMED);
            let rest = if rest > 0 {
                format!("\n  and so for {rest} more")
            } else {
                String::new()
            };
            Some(format!("{}{rest}", lines.join("\n")))
        }
    }
}

/// Ranks that others wait for, of which a line is printed: beyond these the table says it better.
const AWAITED_NAMED: usize = 4;

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => "\n  another rank can never go on either".into(),
        _ => format!("\n  {others} other ranks can never go on either"),
    }
}

/// What a rank that others wait for does.
fn lot(shown: &Shown) -> String {
    let rank = &shown.seen.rank;
    let on = shown
        .host
        .as_ref()
        .map_or(String::new(), |host| format!(" on {host}"));
    if shown.silent {
        return format!("is not seen: it is{on}");
    }
    let pid = rank.pid;
    match (rank.state, rank.process) {
        (State::Gone, _) | (State::Running, None | Some('Z' | 'X')) => "is gone".into(),
        (State::Finalized, _) => "has called MPI_Finalize".into(),
        (State::Absent, _) => "has not called MPI_Init".into(),
        (_, Some('T')) => format!("is stopped (kill -CONT {pid}{on} lets it go on)"),
        (_, Some('t')) => "is held by a debugger".into(),
        (_, Some(_)) if shown.seen.moves => {
            format!("has bytes on their way between hosts (process {pid}{on})")
        }
        (_, Some('R')) => format!("computes outside MPI, or asks with MPI_Test (process {pid}{on})"),
        (_, Some('D')) => format!("waits for a file or device, outside MPI (process {pid}{on})"),
        (_, Some(_)) if rank.wait.is_none() => format!("sleeps outside MPI (process {pid}{on})"),
        _ => "waits".into(),
    }
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

/// What a rank waits for in MPI; empty: nothing.
pub fn waiting(shown: &Shown) -> String {
    let Some(wait) = shown.seen.rank.wait else {
        return String::new();
    };
    let peer = if wait.peer < 0 {
        "any rank".into()
    } else {
        format!("rank {}", wait.peer)
    };
    let since = shown.seen.waited_ns as f64 / 1e9;
    let comm = shown.comm_name(wait.comm / CONTEXTS);
    let what = match (calls::name(wait.call), collective(&wait)) {
        (None, None) => return format!("something, for {since:.1} s"),
        (name, Some(in_it)) => {
            let from = if wait.peer < 0 {
                String::new()
            } else {
                format!(", {peer}")
            };
            let call = name.unwrap_or(in_it.call.kind.name());
            format!("{call}: collective {} of {comm}{from}", in_it.call.number)
        }
        (Some(call), None) => {
            let tag = if wait.tag < 0 {
                "any tag".into()
            } else {
                format!("tag {}", wait.tag)
            };
            let bytes = if wait.bytes > 0 {
                format!(", {} B", wait.bytes)
            } else {
                String::new()
            };
            format!("{call}: {peer}, {tag}{bytes}, {comm}")
        }
    };
    format!(
        "{what}{}, for {since:.1} s",
        shown
            .seen
            .place
            .as_ref()
            .map_or(String::new(), |place| format!("   at {place}"))
    )
}

/// Pairs of ranks of which one waits for the other, which is in another collective of the same communicator: both are its
/// members, since the first names the second, so neither can ever return. The first of them, in words.
pub fn mismatch(all: &[Shown]) -> Option<String> {
    let ranks = all.iter().map(|shown| &shown.seen.rank);
    let waits: Vec<_> = ranks.filter_map(|rank| Some((rank.rank, rank.wait?))).collect();
    let (rank, peer) = contradiction(&waits)?;
    let of = |rank: u32| {
        all.get(rank as usize)
            .and_then(|shown| Some((shown, collective(shown.seen.rank.wait.as_ref()?)?)))
    };
    let ((seen, own), (_, theirs)) = (of(rank)?, of(peer)?);
    Some(format!(
        "mismatch: the ranks of {} called different collectives: rank {rank} is in {} #{number}, rank {peer} in {} #{number}",
        seen.comm_name(own.comm),
        own.call.kind,
        theirs.call.kind,
        number = own.call.number,
    ))
}

fn contradiction(waits: &[(u32, Wait)]) -> Option<(u32, u32)> {
    let by_rank: HashMap<u32, &Wait> = waits.iter().map(|(rank, wait)| (*rank, wait)).collect();
    waits.iter().find_map(|(rank, wait)| {
        let own = collective(wait)?;
        let peer = u32::try_from(wait.peer).ok()?;
        let other = by_rank.get(&peer)?;
        let theirs = collective(other)?;
        let differs = theirs.comm == own.comm
            && theirs.call.number == own.call.number
            && theirs.call.series == own.call.series
            && theirs.call.kind != own.call.kind;
        differs.then_some((*rank, peer))
    })
}

/// A rank as JSON.
pub fn as_json(shown: &Shown) -> serde_json::Value {
    let rank = &shown.seen.rank;
    let wait = rank.wait.map(|wait| {
        let comm = wait.comm / CONTEXTS;
        json!({ "call": calls::name(wait.call), "peer": wait.peer, "tag": wait.tag, "comm": comm, "comm_name": shown.comm_name(comm), "bytes": wait.bytes,
            "since_ns": wait.since_ns, "collective": collective(&wait).map(|it| it.call.number), "kind": collective(&wait).map(|it| it.call.kind.name()), "site": wait.site,
            "place": shown.seen.place })
    });
    json!({ "rank": rank.rank, "host": shown.host.as_deref(), "pid": rank.pid, "state": jobs::word(rank.state), "cpu": rank.cpu,
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
        let found = contradiction(&[(0, wait(1, tag(12, 2))), (1, wait(0, tag(12, 1)))]);
        assert_eq!(found, Some((0, 1)));
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
        assert_eq!(contradiction(&late), None);
        let others = [(0, wait(1, tag(12, 2), 9)), (1, wait(0, tag(12, 1), 17))];
        assert_eq!(contradiction(&others), None);
        let messages = [(0, wait(1, tag(12, 2), 8)), (1, wait(0, tag(12, 1), 8))];
        assert_eq!(contradiction(&messages), None);
        let anybody = [(0, wait(-1, tag(12, 2), 9)), (1, wait(-1, tag(12, 1), 9))];
        assert_eq!(contradiction(&anybody), None);
    }
}
