//! Reads what ranks of this host have used and sent, and what they do at the moment, for tables
//! that are drawn again and again.
//!
//! Cheaper than a look of `garonne who`, which reads what each rank waits for in detail, and where.
//! A rank is read twice a moment apart: what it waits for both times it waits for, and where its
//! counters differ it moves.

use garonne_links::process_memory::memory_of;
use std::time::Duration;

use garonne_inspect::query_client::QueryClient;
use garonne_inspect::sent_counters;
use garonne_job::layout::{RankState, WaitInfo, last_calls};
use garonne_job::snapshot::{CollectivesEntered, DetailedSnapshot};
use garonne_job::wait_report::{BOOK_BYTES, WaitReportCopy};

use super::collectives;
use super::polling::PollBaseline;
use crate::commands::job_lookup::{self, RankSnapshot};

/// Between the two readings, and before the first, since a query wakes ranks that have not said yet
/// what they wait for.
const MOMENT: Duration = Duration::from_millis(50);

/// Reads what ranks have used and sent.
pub fn usage(client: &QueryClient) -> Vec<DetailedSnapshot> {
    let seen = |rank: RankSnapshot| DetailedSnapshot {
        rank: RankSnapshot { wait: None, ..rank },
        ..DetailedSnapshot::unavailable(0)
    };
    job_lookup::ranks(client).into_iter().map(seen).collect()
}

/// Reads what ranks have used and sent, and what they wait for. A rank that polls has a wait in the
/// call by which it polls, since no time.
pub fn with_waits(client: &QueryClient) -> Vec<DetailedSnapshot> {
    std::thread::sleep(MOMENT);
    let before = read(client);
    let polled = PollBaseline::of(&job_lookup::ranks(client));
    std::thread::sleep(MOMENT);
    let both = before.into_iter().zip(read(client));
    both.map(|(was, now)| {
        let mut rank = now.rank;
        rank.wait = rank.wait.filter(|wait| was.rank.wait == Some(*wait));
        let moves = rank.wait.is_none() && was.marks != now.marks;
        let poll = || {
            let polls = polled.polling(client, &rank, now.book.as_ref()?);
            let ask = polls.first()?.0.asks.first()?;
            Some(WaitInfo {
                call: ask.call.into(),
                peer: -1,
                site: ask.site,
                ..WaitInfo::default()
            })
        };
        rank.wait = rank.wait.or_else(poll);
        DetailedSnapshot {
            waited_ns: rank.wait.map_or(0, |wait| waited_ns(&wait)),
            moves,
            rank,
            ..DetailedSnapshot::unavailable(0)
        }
    })
    .collect()
}

fn waited_ns(wait: &WaitInfo) -> u64 {
    match wait.since_ns {
        0 => 0,
        since => super::rank_waits::monotonic_ns().saturating_sub(since),
    }
}

/// Counters that change whenever a rank gets on in MPI.
#[derive(PartialEq)]
struct ProgressMarks {
    sent: u64,
    received: u64,
    calls: Vec<(u64, Option<u16>)>,
    collectives: Vec<CollectivesEntered>,
}

/// One reading of a rank.
struct UsageSample {
    rank: RankSnapshot,
    marks: ProgressMarks,
    book: Option<WaitReportCopy>,
}

fn read(client: &QueryClient) -> Vec<UsageSample> {
    let Some((shape, world_memory)) = &client.world else {
        return Vec::new();
    };
    let reading = |rank: RankSnapshot| {
        let runs = rank.state == RankState::Running && rank.pid != 0 && rank.book != 0;
        let book = runs.then(|| memory_of(rank.pid, rank.book, BOOK_BYTES));
        let book = book.flatten().map(|book| WaitReportCopy::new(&book, &book));
        let entered_so_far = |book| collectives::entered(rank.pid, book);
        let marks = ProgressMarks {
            sent: rank.sent_messages,
            received: sent_counters::of(world_memory, shape, rank.rank).received,
            calls: last_calls::latest_call(world_memory, shape, rank.rank),
            collectives: book.as_ref().map_or_else(Vec::new, entered_so_far),
        };
        UsageSample { rank, marks, book }
    };
    job_lookup::ranks(client).into_iter().map(reading).collect()
}

/// Returns whether a call only asks whether something is over or there.
pub fn asks(name: &str) -> bool {
    name.starts_with("MPI_Test") && name != "MPI_Test_cancelled"
        || ["MPI_Iprobe", "MPI_Improbe", "MPI_Request_get_status"]
            .iter()
            .any(|call| name.starts_with(call))
}
