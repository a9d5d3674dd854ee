//! Ranks that ask again and again without waiting (`MPI_Test`, `MPI_Iprobe`): what they ask for,
//! and in words.
//!
//! A rank that polls may do anything else between two looks, so nothing is proven of it, and it
//! counts as one that acts. What would hold if it did nothing but poll is told beside the verdict.
//! Shown are threads that have looked between two readings of their count, or whose last call
//! asked, if they look more rarely than that.

use garonne_links::process_memory::memory_of;
use std::collections::HashMap;

use garonne_engine::observe::events::{PendingAction, PendingOperation};
use garonne_inspect::query_client::QueryClient;
use garonne_job::call_names;
use garonne_job::layout::{RankState, last_calls};
use garonne_job::snapshot::{PolledOperation, PollingThread};
use garonne_job::wait_report::{BOOK_BYTES, POLL_PLACES, PollReport, WaitReportCopy};
use garonne_mpi::coll::call_tag::CollectiveKind;
use serde_json::json;

use super::collectives::ActiveCollective;
use super::rank_waits::{CONTEXTS, RankView, monotonic_ns, number_of};
use crate::commands::job_lookup::RankSnapshot;

/// Looks of a thread that come further apart than this need not fall between two readings of its
/// count.
const RARE_NS: u64 = 25_000_000;
/// The look in vain that a thread dates the first of its polls by.
const DATED_LOOK: u64 = 4;
/// Things asked for that are named.
const NAMED: usize = 3;

/// Numbers of polls of the threads of ranks of this host, to be compared with what is read later.
#[derive(Default)]
pub struct PollBaseline(HashMap<u32, [u64; POLL_PLACES]>);

impl PollBaseline {
    pub fn of(ranks: &[RankSnapshot]) -> Self {
        let looks = |rank: &RankSnapshot| {
            let read = (rank.book != 0 && rank.pid != 0)
                .then(|| memory_of(rank.pid, rank.book, BOOK_BYTES));
            let book = read??;
            Some((rank.rank, WaitReportCopy::new(&book, &book).looks()))
        };
        Self(ranks.iter().filter_map(looks).collect())
    }

    /// Returns what threads of a rank poll for, each with the count of its polls.
    pub fn polling(
        &self,
        client: &QueryClient,
        rank: &RankSnapshot,
        book: &WaitReportCopy,
    ) -> Vec<(PollReport, u64)> {
        let goes_on = rank.state == RankState::Running
            && !matches!(rank.process, None | Some('T' | 't' | 'Z' | 'X'));
        let before = self.0.get(&rank.rank).filter(|_| goes_on);
        let Some(before) = before else {
            return Vec::new();
        };
        let polls = book.polls().into_iter().zip(book.looks()).zip(before);
        let still = polls.filter_map(|((polls, looks), before)| {
            let polls = polls?;
            let asks = looks > *before
                || is_rare(&polls, looks, monotonic_ns()) && has_asked(client, rank, &polls);
            asks.then_some((polls, looks))
        });
        still.collect()
    }
}

/// Returns whether a thread looks so rarely that its count may stand still, and has not been silent
/// for longer than that.
fn is_rare(polls: &PollReport, looks: u64, now_ns: u64) -> bool {
    let timed = polls.told_looks.saturating_sub(DATED_LOOK).max(1);
    let mean = polls.told_ns.saturating_sub(polls.since_ns) / timed;
    let more = looks.saturating_sub(polls.told_looks) + 1;
    mean > RARE_NS && now_ns.saturating_sub(polls.told_ns) <= mean.saturating_mul(2 * more)
}

/// Returns whether the last call of a thread is one of these.
fn has_asked(client: &QueryClient, rank: &RankSnapshot, polls: &PollReport) -> bool {
    let Some((shape, world_memory)) = &client.world else {
        return false;
    };
    let latest = last_calls::latest_call(world_memory, shape, rank.rank);
    let is_latest = |site: u64| latest.iter().any(|(known, _)| *known == site);
    polls.asks.iter().any(|ask| is_latest(ask.site))
}

/// Adds to what a thread polls for the places of its calls.
pub fn with_call_sites(
    (polls, looks): (PollReport, u64),
    mut place: impl FnMut(u64) -> Option<String>,
) -> PollingThread {
    let asks = polls.asks.into_iter().map(|ask| {
        let started = |operation: PendingOperation| {
            let site = Some(operation.origin.site).filter(|site| *site != ask.site);
            (operation, site)
        };
        let operations: Vec<_> = ask.operations.into_iter().map(started).collect();
        PolledOperation {
            call: ask.call.into(),
            place: place(ask.site).unwrap_or_default(),
            operations: operations
                .into_iter()
                .map(|(operation, site)| (operation, site.and_then(&mut place).unwrap_or_default()))
                .collect(),
        }
    });
    PollingThread {
        looks,
        asks: asks.collect(),
        for_ns: monotonic_ns().saturating_sub(polls.since_ns),
    }
}

/// Returns whether what a poll asks for is wanted all together, and not any of it.
pub fn wants_all(polls: &[PollingThread]) -> bool {
    let [PollingThread { asks, .. }] = polls else {
        return false;
    };
    let [ask] = asks.as_slice() else { return false };
    let name = call_names::name(ask.call).unwrap_or_default();
    !name.contains("any") && !name.contains("some")
}

/// The collective that an operation belongs to.
pub fn collective(operation: &PendingOperation) -> Option<ActiveCollective> {
    ActiveCollective::of(operation.context.into(), operation.tag.unwrap_or(-1))
}

/// Describes what the threads of a rank poll for, a line each.
pub fn in_words(shown: &RankView) -> Vec<String> {
    shown
        .snapshot
        .polls
        .iter()
        .map(|polled| of_thread(shown, polled))
        .collect()
}

/// Describes what the threads of a rank poll for, in lines that stay the same while a thread polls
/// for the same.
pub fn stable_lines(shown: &RankView) -> Vec<String> {
    let polls = shown.snapshot.polls.iter();
    let line =
        |polled: &PollingThread| format!("polls{} ({})", things(shown, polled), called(polled));
    polls.map(line).collect()
}

fn of_thread(shown: &RankView, polled: &PollingThread) -> String {
    format!(
        "polls{} ({}, {} times in vain)",
        things(shown, polled),
        called(polled),
        grouped(polled.looks)
    )
}

fn things(shown: &RankView, polled: &PollingThread) -> String {
    let operations: Vec<_> = polled.asks.iter().flat_map(|ask| &ask.operations).collect();
    let things = operations
        .iter()
        .take(NAMED)
        .map(|(operation, _)| thing(shown, operation));
    let mut things: Vec<_> = things.collect();
    things.dedup();
    if operations.len() > NAMED {
        things.push(format!("{} more", operations.len() - NAMED));
    }
    let all = wants_all(std::slice::from_ref(polled));
    match things.is_empty() {
        true => String::new(),
        false => format!(" for {}", things.join(if all { " and " } else { " or " })),
    }
}

fn called(polled: &PollingThread) -> String {
    let calls: Vec<_> = polled.asks.iter().map(call).collect();
    calls.join(", ")
}

/// A call that asks, and the first of those that started what it asks for.
fn call(ask: &PolledOperation) -> String {
    let named = |call: u32, place: &str| {
        let name = call_names::name(call).unwrap_or("a call of MPI");
        match place {
            "" => name.to_owned(),
            place => format!("{name} at {place}"),
        }
    };
    let asks = named(ask.call, &ask.place);
    match ask.operations.first() {
        Some((operation, place)) if u32::from(operation.origin.call) != ask.call => {
            format!("{asks} of {}", named(operation.origin.call.into(), place))
        }
        _ => asks,
    }
}

fn thing(shown: &RankView, operation: &PendingOperation) -> String {
    if let Some(meeting) = collective(operation) {
        let called = match meeting.kind() {
            Some(kind) if kind != CollectiveKind::Internal => kind.name(),
            _ => call_names::name(operation.origin.call.into()).unwrap_or("a collective"),
        };
        return shown.collective_words(called, &meeting);
    }
    let comm = shown.comm_name(number_of(operation.context.into()));
    let peer = operation
        .peer
        .map_or("any rank".to_owned(), |peer| format!("rank {peer}"));
    let is_programs = u64::from(operation.context) % CONTEXTS == 0;
    let tag = match (is_programs, operation.tag) {
        (false, _) => String::new(),
        (true, None) => " with any tag".to_owned(),
        (true, Some(tag)) => format!(" with tag {tag}"),
    };
    match operation.action {
        PendingAction::Send => format!(
            "the end of a send to {peer}{tag} ({} B) in {comm}",
            operation.bytes
        ),
        PendingAction::Receive | PendingAction::Probe | PendingAction::Collective => {
            format!("a message of {peer}{tag} in {comm}")
        }
    }
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

/// Describes as JSON what the threads of a rank poll for.
pub fn as_json(shown: &RankView) -> Vec<serde_json::Value> {
    let polls = shown.snapshot.polls.iter();
    let asks = |polled: &PollingThread| -> Vec<_> {
        let ask = |ask: &PolledOperation| json!({ "call": call_names::name(ask.call), "place": ask.place });
        polled.asks.iter().map(ask).collect()
    };
    polls
        .map(|polled| {
            json!({ "text": of_thread(shown, polled), "looks": polled.looks, "for_ns": polled.for_ns, "calls": asks(polled) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::snapshot::DetailedSnapshot;

    fn number(wanted: &str) -> u32 {
        (1..1000)
            .find(|number| call_names::name(*number) == Some(wanted))
            .unwrap()
    }

    fn operation(call: &str, tag: i32) -> PendingOperation {
        PendingOperation {
            context: CONTEXTS as u32,
            peer: Some(1),
            tag: Some(tag),
            origin: garonne_engine::api::CallOrigin {
                call: number(call) as u16,
                ..Default::default()
            },
            ..PendingOperation::default()
        }
    }

    fn asked(call: &str, operations: Vec<PendingOperation>) -> PolledOperation {
        PolledOperation {
            call: number(call),
            place: "x.c:12".into(),
            operations: operations
                .into_iter()
                .map(|operation| (operation, "x.c:9".into()))
                .collect(),
        }
    }

    fn words(asks: Vec<PolledOperation>) -> String {
        let mut seen = DetailedSnapshot::unavailable(0);
        seen.polls = vec![PollingThread {
            looks: 1_005_000,
            for_ns: 5,
            asks,
        }];
        let shown = RankView {
            snapshot: seen,
            host: None,
            silent: false,
        };
        in_words(&shown).remove(0)
    }

    #[test]
    fn what_a_rank_polls_for_is_told_with_its_calls() {
        let probe = asked("MPI_Iprobe", vec![operation("MPI_Iprobe", 7)]);
        assert_eq!(
            words(vec![probe]),
            "polls for a message of rank 1 with tag 7 in comm #1 (MPI_Iprobe at x.c:12, 1,005,000 times in vain)"
        );
        let receives = (0..5).map(|tag| operation("MPI_Irecv", tag)).collect();
        assert_eq!(
            words(vec![asked("MPI_Testany", receives)]),
            "polls for a message of rank 1 with tag 0 in comm #1 or a message of rank 1 with tag 1 in comm #1 or \
             a message of rank 1 with tag 2 in comm #1 or 2 more (MPI_Testany at x.c:12 of MPI_Irecv at x.c:9, \
             1,005,000 times in vain)"
        );
        let nothing = asked("MPI_Test", Vec::new());
        assert_eq!(
            words(vec![nothing]),
            "polls (MPI_Test at x.c:12, 1,005,000 times in vain)"
        );
    }

    #[test]
    fn a_thread_that_looks_rarely_still_polls_until_it_was_silent_for_long() {
        let second = 1_000_000_000;
        let polls = PollReport {
            since_ns: 100 * second,
            told_ns: 104 * second,
            told_looks: 8,
            ..PollReport::default()
        };
        assert!(is_rare(&polls, 8, 105 * second));
        assert!(is_rare(&polls, 12, 108 * second));
        assert!(!is_rare(&polls, 8, 107 * second), "it computes since");
        let quick = PollReport {
            told_ns: 100 * second + second / 100,
            ..polls
        };
        assert!(
            !is_rare(&quick, 8, 101 * second),
            "its count would have grown"
        );
    }
}
