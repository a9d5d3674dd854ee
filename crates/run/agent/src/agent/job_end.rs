//! How far the end of a job has come, and what is known of its cause.

use std::time::{Duration, Instant};

use garonne_job::job::Job;
use garonne_job::limits::DRAIN_WAIT;

use super::failure_cause::PendingFailure;

/// Stage of a job that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShutdownStage {
    /// The ranks may end by themselves until then.
    Patience(Instant),
    /// Everything still alive is killed then.
    Kill(Instant),
    /// All ranks have ended; what they left may end by itself until then.
    Leftovers(Instant),
}

/// End of the job: its time, its first failure, its exit code and its stage.
///
/// Owned by the agent. Before the end, a rank may become suspect ([`suspect`](Self::suspect)), and
/// a failure may be held back ([`hold_failure`](Self::hold_failure)). [`begin`](Self::begin) begins
/// the end, and moves it to another stage.
#[derive(Debug)]
pub(super) struct JobEnd {
    /// Exit code and stage, once the job ends.
    begun: Option<(i32, ShutdownStage)>,
    /// The rank behind a wrapper that died first, from then until it is known how: other failures
    /// do not count any more.
    suspect: Option<u32>,
    /// The first failure, while it is not known whether a host is gone that may be its cause.
    held: Option<PendingFailure>,
    /// The first agent says that all ranks have ended.
    finish_ordered: bool,
    /// When the time of the job has passed.
    deadline: Option<Instant>,
    /// When a signal last asked for the end.
    last_signal: Option<Instant>,
    /// Time between asking ranks to end and ending them.
    grace: Duration,
}

impl JobEnd {
    /// Makes the end of a job that has just begun.
    pub fn new(job: &Job) -> Self {
        Self {
            begun: None,
            suspect: None,
            held: None,
            finish_ordered: false,
            deadline: job.timeout.map(|timeout| Instant::now() + timeout),
            last_signal: None,
            grace: garonne_job::settings::kill_after::of(job),
        }
    }

    /// Begins the end of the job, or replaces exit code and stage.
    pub fn begin(&mut self, code: i32, stage: ShutdownStage) {
        self.deadline = None;
        self.begun = Some((code, stage));
    }

    /// Notes that the first agent says that all ranks have ended.
    pub fn order_finish(&mut self) {
        self.finish_ordered = true;
    }

    /// Returns whether the first agent has said so.
    pub fn is_finish_ordered(&self) -> bool {
        self.finish_ordered
    }

    /// Returns the exit code of the job; 0 before it ends.
    pub fn code(&self) -> i32 {
        self.begun.map_or(0, |(code, _)| code)
    }

    /// Replaces the exit code of a job that ends.
    pub fn set_code(&mut self, code: i32) {
        if let Some(begun) = &mut self.begun {
            begun.0 = code;
        }
    }

    /// Returns the stage of a job that ends.
    pub fn stage(&self) -> Option<ShutdownStage> {
        self.begun.map(|(_, stage)| stage)
    }

    /// Returns when the stage is over.
    pub fn stage_due(&self) -> Option<Instant> {
        self.stage().map(|stage| match stage {
            ShutdownStage::Patience(due)
            | ShutdownStage::Kill(due)
            | ShutdownStage::Leftovers(due) => due,
        })
    }

    /// Notes that a rank is the first to fail, whoever fails before it is known how.
    pub fn suspect(&mut self, rank: u32) {
        self.suspect.get_or_insert(rank);
    }

    /// Returns whether another rank than this one is the first to fail.
    pub fn suspects_other(&self, rank: Option<u32>) -> bool {
        self.suspect.is_some_and(|suspect| Some(suspect) != rank)
    }

    /// Holds a failure back, unless one is held already.
    pub fn hold_failure(&mut self, failure: PendingFailure) {
        self.held.get_or_insert(failure);
    }

    /// Takes the failure that was held back.
    pub fn take_failure(&mut self) -> Option<PendingFailure> {
        self.held.take()
    }

    /// Returns whether a failure is held back.
    pub fn holds_failure(&self) -> bool {
        self.held.is_some()
    }

    /// Returns when the time of the job has passed.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns whether the time of the job has passed since this was last asked.
    pub fn take_deadline(&mut self, now: Instant) -> bool {
        self.deadline.take_if(|due| *due <= now).is_some()
    }

    /// Notes a signal that asks for the end. Returns whether one has asked before: twice by hand,
    /// since the same signal may also arrive twice at once.
    pub fn note_signal(&mut self, now: Instant) -> bool {
        let last = self.last_signal.replace(now);
        last.is_some_and(|last| now.duration_since(last) > DRAIN_WAIT / 2)
    }

    /// Returns the time between asking ranks to end and ending them.
    pub fn grace(&self) -> Duration {
        self.grace
    }
}
