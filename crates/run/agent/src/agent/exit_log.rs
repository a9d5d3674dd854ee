//! What agents note of the ends of ranks, for a launcher that is to tell them: those of other hosts
//! tell the first.

use garonne_job::process_exit::ProcessExit;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::context::Context;
use super::ranks::{RankSlot, Ranks};
use garonne_job::agent_messages::RankExit;
use garonne_job::codes;
use garonne_job::error::Error;
use garonne_job::job::Job;
use garonne_job::outcome::{JobOutcome, RankOutcome};
use garonne_links::process_tree::signal_name;

/// Ends of ranks as they came.
///
/// Owned by the agent. [`begin`](Self::begin) comes when ranks start,
/// [`write_outcome`](Self::write_outcome) when everything that is left has been killed.
#[derive(Debug)]
pub(super) struct ExitLog {
    begun: Instant,
    /// By rank of this host: how long it ran.
    ran: HashMap<u32, Duration>,
    /// The ends of ranks of other hosts, as their agents have told them.
    elsewhere: HashMap<u32, RankExit>,
}

impl Default for ExitLog {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            ran: HashMap::new(),
            elsewhere: HashMap::new(),
        }
    }
}

impl ExitLog {
    /// The ranks start now.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// A rank of this host has ended.
    pub fn note_end(&mut self, rank: u32) {
        self.ran.insert(rank, self.begun.elapsed());
    }

    /// For how long a rank of this host has run.
    fn ran(&self, rank: u32) -> Duration {
        let known = self.ran.get(&rank).copied();
        known.unwrap_or_else(|| self.begun.elapsed())
    }

    /// Ranks of another host have ended.
    pub fn note_elsewhere(&mut self, ends: Vec<RankExit>) {
        self.elsewhere
            .extend(ends.into_iter().map(|end| (end.rank, end)));
    }
}

impl ExitLog {
    /// The ends of all ranks of this host, when everything that is left has been killed.
    pub fn ends_here(&self, ctx: &Context<'_>, ranks: &Ranks) -> Vec<RankExit> {
        let here = (0..)
            .zip(ranks.iter())
            .filter(|(_, slot)| slot.node == ctx.node);
        let end = |(rank, slot): (u32, &RankSlot)| RankExit {
            rank,
            process: slot.pid,
            // What was killed at the end was not seen to end.
            ended: slot.ended.unwrap_or(ProcessExit::Signal(libc::SIGKILL)),
            ran_ms: self.ran(rank).as_millis() as u64,
        };
        here.map(end).collect()
    }

    /// Tells how all ranks ended, when everything that is left has been killed.
    pub fn write_outcome(&self, ctx: &Context<'_>, ranks: &Ranks, error: Option<&str>) {
        let Some(sheet) = &ctx.job.sheet else {
            return;
        };
        let own = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let mut ends = self.elsewhere.clone();
        ends.extend(
            self.ends_here(ctx, ranks)
                .into_iter()
                .map(|end| (end.rank, end)),
        );
        let rank = |rank: u32| {
            let slot = &ranks[rank];
            let end = ends.get(&rank);
            let words = &ctx.job.programs[slot.program].argv;
            RankOutcome {
                rank,
                program: words
                    .first()
                    .map_or_else(String::new, |word| word.to_string_lossy().into_owned()),
                host: match ctx.job.nodes.several() {
                    true => ctx.job.nodes.name(slot.node).to_owned(),
                    false => own.clone(),
                },
                process: end.map(|end| end.process),
                exit_code: end.and_then(|end| match end.ended {
                    ProcessExit::Exit(code) => Some(code),
                    ProcessExit::Signal(_) => None,
                }),
                signal: end.and_then(|end| match end.ended {
                    ProcessExit::Signal(signal) => Some(signal_name(signal)),
                    ProcessExit::Exit(_) => None,
                }),
                seconds: end.map(|end| end.ran_ms as f64 / 1e3),
            }
        };
        sheet.write(&JobOutcome {
            ranks: (0..ranks.count()).map(rank).collect(),
            error: error.map(str::to_owned),
        });
    }
}

/// Tells that no rank has started, and returns the exit code.
pub(super) fn failed_to_start(job: &Job, error: &Error) -> i32 {
    if let Some(sheet) = &job.sheet {
        sheet.write(&JobOutcome {
            ranks: Vec::new(),
            error: Some(error.to_string()),
        });
    }
    start_error_code(error)
}

/// Exit code of a job that could not start, after the habit of shells.
pub(super) fn start_error_code(error: &Error) -> i32 {
    match error {
        Error::System { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            126
        }
        error if error.code() == codes::G0210 => 127,
        error if error.code() == codes::G0211 => 2,
        _ => 1,
    }
}
