//! Text of a diagnosis: the table of ranks, whom they wait for, and the conclusion.

use comfy_table::Table;
use garonne_job::layout::RankState;
use garonne_job::node_map;
use serde_json::json;

use super::collectives::collective;
use super::deadlock::HangVerdict;
use super::rank_waits::{INTERRUPTED, RankView, number_of};
use super::{polling, unexpected_messages, wait_text};
use crate::commands::job_lookup::{self, RankSnapshot};
use garonne_job::call_names;

/// The ranks that were seen, a line each.
pub fn table(all: &[RankView]) -> Table {
    let mut table = Table::new();
    let on_hosts = all.iter().any(|shown| shown.host.is_some());
    let host = on_hosts.then_some("host");
    let header = ["rank"].into_iter().chain(host);
    let header = header.chain(["process", "state", "cpu", "cpu time", "waits for"]);
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_header(header);
    for shown in all.iter().filter(|shown| !shown.silent) {
        let rank = &shown.snapshot.rank;
        let host = on_hosts.then(|| shown.host.as_deref().unwrap_or_default().to_owned());
        let cells = [
            rank.pid.to_string(),
            doing(rank),
            rank.cpu.map_or(String::from("any"), |cpu| cpu.to_string()),
            format!("{:.1} s", rank.cpu_seconds),
            waits_and_polls(shown),
        ];
        table.add_row([rank.rank.to_string()].into_iter().chain(host).chain(cells));
    }
    table
}

/// The ranks that a verdict is about.
pub fn named(verdict: &HangVerdict) -> Vec<u32> {
    match verdict {
        HangVerdict::Cycle { ranks, .. } => ranks.clone(),
        HangVerdict::WaitsForEnded { ended, .. } => vec![*ended],
        HangVerdict::Awaited(list) => list.iter().map(|(rank, _)| *rank).collect(),
        HangVerdict::Moving => Vec::new(),
    }
}

/// A verdict in words; nothing where there is nothing to say.
pub fn verdict_text(verdict: &HangVerdict, all: &[RankView]) -> Option<String> {
    let seen = |rank: u32| &all[rank as usize];
    let call = |rank: u32| {
        format!(
            "\n  rank {rank}: {}",
            waits_and_polls(seen(rank)).replace('\n', "; ")
        )
    };
    match verdict {
        HangVerdict::Moving => None,
        HangVerdict::Cycle { ranks, others } => {
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
        HangVerdict::WaitsForEnded {
            waiter,
            ended,
            others,
        } => Some(format!(
            "verdict: rank {waiter} can never go on, since rank {ended} {}{}{}",
            awaited_rank_text(seen(*ended)),
            call(*waiter),
            more(*others)
        )),
        HangVerdict::Awaited(list) => {
            let line = |(rank, count): &(u32, usize)| {
                let waits = if *count == 1 {
                    "rank waits"
                } else {
                    "ranks wait"
                };
                format!(
                    "verdict: {count} {waits} for rank {rank}, which {}",
                    awaited_rank_text(seen(*rank))
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

/// Describes what would hold if ranks that poll did nothing else.
pub fn presumed_text(verdict: &HangVerdict, all: &[RankView]) -> Option<String> {
    let seen = |rank: u32| &all[rank as usize];
    let polls = |rank: &u32| !seen(*rank).snapshot.polls.is_empty();
    let call = |rank: u32| {
        format!(
            "\n  rank {rank}: {}",
            waits_and_polls(seen(rank)).replace('\n', "; ")
        )
    };
    let pollers = |ranks: &[u32]| {
        let those: Vec<u32> = ranks.iter().copied().filter(polls).collect();
        let those = if those.is_empty() {
            (0..all.len() as u32).filter(polls).collect()
        } else {
            those
        };
        let verb = if those.len() == 1 { "does" } else { "do" };
        format!("if {} {verb} nothing but poll,", node_map::named(&those))
    };
    match verdict {
        HangVerdict::Cycle { ranks, .. } => {
            let stuck = match ranks.as_slice() {
                [rank] => format!("rank {rank} waits for itself"),
                _ => "each of these ranks waits for the next, the last for the first, and none can go on"
                    .into(),
            };
            let calls: String = ranks.iter().map(|rank| call(*rank)).collect();
            Some(format!("{} {stuck}{calls}", pollers(ranks)))
        }
        HangVerdict::WaitsForEnded { waiter, ended, .. } => Some(format!(
            "{} rank {waiter} can never go on, since rank {ended} {}{}",
            pollers(&[*waiter]),
            awaited_rank_text(seen(*ended)),
            call(*waiter)
        )),
        HangVerdict::Awaited(_) | HangVerdict::Moving => None,
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

/// Describes what a rank does for which others wait.
fn awaited_rank_text(shown: &RankView) -> String {
    let rank = &shown.snapshot.rank;
    let on = shown
        .host
        .as_ref()
        .map_or(String::new(), |host| format!(" on {host}"));
    if shown.silent {
        return format!("is not seen: it is{on}");
    }
    let pid = rank.pid;
    match (rank.state, rank.process) {
        (RankState::Gone, _) | (RankState::Running, None | Some('Z' | 'X')) => "is gone".into(),
        (RankState::Finalized, _) => "has called MPI_Finalize".into(),
        (RankState::Absent, _) => "has not called MPI_Init".into(),
        (_, Some('T')) => format!("is stopped (kill -CONT {pid}{on} lets it go on)"),
        (_, Some('t')) => "is held by a debugger".into(),
        (_, Some(INTERRUPTED)) => "did not wait in MPI when the key came that ended it".into(),
        (_, Some(_)) if shown.snapshot.moves => {
            format!("has bytes on their way between hosts (process {pid}{on})")
        }
        (_, Some(_)) if !shown.snapshot.polls.is_empty() => {
            format!(
                "{} (process {pid}{on})",
                polling::in_words(shown).join("; ")
            )
        }
        (_, Some('R')) => format!("computes outside MPI (process {pid}{on})"),
        (_, Some('D')) => format!("waits for a file or device, outside MPI (process {pid}{on})"),
        (_, Some(_)) if rank.wait.is_none() => format!("sleeps outside MPI (process {pid}{on})"),
        _ => "waits".into(),
    }
}

fn doing(rank: &RankSnapshot) -> String {
    let process = match (rank.state, rank.process) {
        (RankState::Running | RankState::Finalized, Some('R')) => ", computing",
        (RankState::Running | RankState::Finalized, Some('S' | 'D' | 'I')) => ", asleep",
        (RankState::Running | RankState::Finalized, Some('T' | 't')) => ", stopped",
        _ => "",
    };
    format!("{}{process}", job_lookup::word(rank.state))
}

/// Describes what a rank waits for in MPI or polls for, and for how long. Several threads get a
/// line each; empty: nothing.
pub fn waits_and_polls(shown: &RankView) -> String {
    let waits = waits_for(shown);
    let waits =
        waits.map(|what| format!("{what}, for {:.1} s", shown.snapshot.waited_ns as f64 / 1e9));
    let polls = polling::in_words(shown)
        .into_iter()
        .zip(&shown.snapshot.polls);
    let polls =
        polls.map(|(text, polled)| format!("{text}, for {:.1} s", polled.for_ns as f64 / 1e9));
    waits
        .into_iter()
        .chain(polls)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Describes what a rank waits for in MPI, with the place in its program. Several threads get a
/// line each.
fn waits_for(shown: &RankView) -> Option<String> {
    let wait = shown.snapshot.rank.wait?;
    let threads = wait_text::thread_lines(shown);
    if threads.len() > 1 {
        return Some(threads.join("\n"));
    }
    let place = shown.snapshot.place.as_ref();
    let place = place.map_or(String::new(), |place| format!("   at {place}"));
    Some(format!("{}{place}", wait_text::in_words(shown, &wait)))
}

/// Describes what a rank does, in a line that stays the same while the rank does the same.
pub fn stable_line(shown: &RankView) -> String {
    let rank = &shown.snapshot.rank;
    if shown.silent {
        return "not seen".into();
    }
    let does: Vec<_> = waits_for(shown)
        .into_iter()
        .chain(polling::stable_lines(shown))
        .collect();
    match (does.as_slice(), rank.process) {
        (_, Some('T' | 't')) => format!("{}, stopped", job_lookup::word(rank.state)),
        ([], _) => job_lookup::word(rank.state).into(),
        (does, _) => does.join("; ").replace('\n', "; "),
    }
}

/// A rank as JSON.
pub fn as_json(shown: &RankView) -> serde_json::Value {
    let rank = &shown.snapshot.rank;
    let wait = rank.wait.map(|wait| {
        let comm = number_of(wait.comm);
        json!({ "call": call_names::name(wait.call), "peer": wait.peer, "tag": wait.tag, "comm": comm, "comm_name": shown.comm_name(comm), "bytes": wait.bytes,
            "since_ns": wait.since_ns, "collective": collective(&wait).map(|it| it.number()), "kind": collective(&wait).and_then(|it| it.kind()).map(|kind| kind.name()), "site": wait.site,
            "place": shown.snapshot.place, "threads": wait_text::thread_lines(shown), "beside": unexpected_messages::message_lines(shown) })
    });
    json!({ "rank": rank.rank, "host": shown.host.as_deref(), "pid": rank.pid, "state": job_lookup::word(rank.state), "cpu": rank.cpu,
        "process": rank.process, "cpu_seconds": rank.cpu_seconds, "waits_for": wait, "polls": polling::as_json(shown) })
}
