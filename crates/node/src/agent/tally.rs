//! What the first agent notes of the ends of ranks, for a launcher that is to tell them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Agent;
use crate::codes;
use crate::error::Error;
use crate::job::Job;
use crate::outcome::{Outcome, RankOutcome};
use crate::processes::{Ended, signal_name};

/// Ends as they came.
#[derive(Debug)]
pub(super) struct Tally {
    begun: Instant,
    /// By rank of this host: how long it ran.
    ran: HashMap<u32, Duration>,
    /// The line of the first failure.
    error: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            ran: HashMap::new(),
            error: None,
        }
    }
}

impl Tally {
    /// The ranks start now.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// A rank of this host has ended.
    pub fn note_end(&mut self, rank: u32) {
        self.ran.insert(rank, self.begun.elapsed());
    }

    /// A line of the agent's own: the first that has a code says why the job ends.
    pub fn note_line(&mut self, line: &str) {
        if self.error.is_none() && line.starts_with("error[") {
            self.error = Some(line.to_owned());
        }
    }
}

impl Agent<'_> {
    /// Tells how all ranks ended, when everything that is left has been killed.
    pub(super) fn tell_outcome(&self) {
        let Some(sheet) = &self.job.sheet else { return };
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let rank = |rank: u32| {
            let slot = &self.slots[rank as usize];
            let is_here = slot.node == self.node;
            // What this agent has killed at the end was not seen to end.
            let ended = match slot.ended {
                Some(ended) if is_here || self.code() == 0 => Some(ended),
                None if is_here => Some(Ended::Signal(libc::SIGKILL)),
                _ => None,
            };
            let words = &self.job.programs[slot.program].argv;
            RankOutcome {
                rank,
                program: words
                    .first()
                    .map_or_else(String::new, |word| word.to_string_lossy().into_owned()),
                host: match self.job.nodes.several() {
                    true => self.job.nodes.name(slot.node).to_owned(),
                    false => own.clone(),
                },
                process: is_here.then_some(slot.pid),
                exit_code: match ended {
                    Some(Ended::Exit(code)) => Some(code),
                    _ => None,
                },
                signal: match ended {
                    Some(Ended::Signal(signal)) => Some(signal_name(signal)),
                    _ => None,
                },
                seconds: self.tally.ran.get(&rank).map(Duration::as_secs_f64),
            }
        };
        sheet.write(&Outcome {
            ranks: (0..self.slots.len() as u32).map(rank).collect(),
            error: self.tally.error.clone(),
        });
    }
}

/// Tells that no rank has started, and returns the exit code.
pub(super) fn failed_to_start(job: &Job, error: &Error) -> i32 {
    if let Some(sheet) = &job.sheet {
        sheet.write(&Outcome {
            ranks: Vec::new(),
            error: Some(error.to_string()),
        });
    }
    start_error_code(error)
}

/// Exit code of a job that could not start, after the habit of shells.
pub(super) fn start_error_code(error: &Error) -> i32 {
    match error {
        Error::System { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => 126,
        error if error.code() == codes::G0210 => 127,
        error if error.code() == codes::G0211 => 2,
        _ => 1,
    }
}
