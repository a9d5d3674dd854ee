//! What a job hangs on, said without being asked: before its ranks end because of a signal or of
//! its time.
//!
//! The agent has its own program find that out (`garonne agent --hang_report`), as `garonne who`
//! would, and prints what that writes. The agent goes on meanwhile, since the program asks it as
//! any tool does. Owned by the first agent of a job; one program at a time, of at most
//! [`VERDICT_BYTES_MAX`], for as long as its cause allows.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::helper_process::{self, HelperProcess};
use super::stall_detector::StallDetector;
use super::{Agent, EpollToken};
use garonne_job::limits::VERDICT_BYTES_MAX;
use garonne_links::sys;

/// Why a verdict is wanted, and so what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HangReportReason {
    /// The time of the job has passed: the job ends.
    Time,
    /// A signal asked for the end. `broadcast`: those of the terminal's process group have it.
    Interrupt { signal: i32, broadcast: bool },
    /// The ranks of this host have stood still: nothing comes after it unless the verdict is
    /// proven.
    Stall,
}

impl HangReportReason {
    /// Returns the reason as an argument of the program.
    fn word(self) -> &'static str {
        match self {
            HangReportReason::Time => "time",
            HangReportReason::Interrupt { .. } => "interrupt",
            HangReportReason::Stall => "stall",
        }
    }
}

/// The program that looks.
#[derive(Debug)]
struct HangReporter {
    cause: HangReportReason,
    /// 0 when it has ended.
    pid: i32,
    pipe: OwnedFd,
    said: Vec<u8>,
    until: Instant,
}

impl Drop for HangReporter {
    fn drop(&mut self) {
        if self.pid != 0 {
            sys::kill(self.pid, libc::SIGKILL);
        }
    }
}

/// The program that finds what the job hangs on, and what follows when it has ended.
#[derive(Debug, Default)]
pub(super) struct HangReports {
    looking: Option<HangReporter>,
    pub stalls: StallDetector,
}

impl HangReports {
    /// Whether the job ends because of a signal once its verdict is there.
    pub fn is_interrupt(&self) -> bool {
        let cause = self.looking.as_ref().map(|looking| looking.cause);
        matches!(cause, Some(HangReportReason::Interrupt { .. }))
    }

    /// Whether the program looks now.
    pub fn is_looking(&self) -> bool {
        self.looking.is_some()
    }

    /// When the program has had enough time.
    pub fn due(&self) -> Option<Instant> {
        self.looking.as_ref().map(|looking| looking.until)
    }

    /// A child of the agent has ended, and its process id may be another's soon.
    pub fn reaped(&mut self, pid: i32) {
        if let Some(looking) = self.looking.as_mut().filter(|looking| looking.pid == pid) {
            looking.pid = 0;
        }
    }

    /// Nobody wants to know any more.
    pub fn stop(&mut self) {
        self.looking = None;
    }
}

impl Agent<'_> {
    /// Has the program look, in place of one that looks already. Returns whether it does: then its
    /// end comes within `spin_budget`.
    pub(super) fn begin_hang_report(
        &mut self,
        cause: HangReportReason,
        patience: Duration,
    ) -> bool {
        let begun = !self.ctx.waiting_for_agents
            && (!self.ranks.worlds().is_empty() || self.ctx.job.nodes.several());
        if self.ctx.is_child() || self.ctx.is_adopted || !begun {
            return false;
        }
        let Some(name) = self.ctx.socket_name() else {
            return false;
        };
        let words = ["agent", "--verdict", &name.0, cause.word()];
        let Some(HelperProcess { pid, pipe }) = helper_process::start(&words, self.ctx.signals)
        else {
            return false;
        };
        let looking = HangReporter {
            cause,
            pid,
            pipe,
            said: Vec::new(),
            until: Instant::now() + patience,
        };
        if self
            .ctx
            .listen(looking.pipe.as_fd(), EpollToken::HangReport)
            .is_err()
        {
            return false;
        }
        self.hang_reports.looking = Some(looking);
        true
    }

    /// The program says something, or has ended.
    pub(super) fn read_hang_report(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(looking) = &mut self.hang_reports.looking {
            match rustix::io::read(&looking.pipe, &mut buffer) {
                Ok(0) => return self.end_hang_report(true),
                Ok(n) if looking.said.len() + n <= VERDICT_BYTES_MAX => {
                    looking.said.extend_from_slice(&buffer[..n]);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return self.end_hang_report(false),
            }
        }
    }

    /// A child of the agent has ended that may be a program that looks: for a verdict, for who
    /// asked, at a crash.
    pub(super) fn hang_reporter_reaped(&mut self, pid: i32) {
        self.snapshots.reaped(pid);
        self.crash_examinations.reaped(pid);
        self.hang_reports.reaped(pid);
    }

    /// When one of these programs has had enough time.
    pub(super) fn hang_reports_due(&self) -> Option<Instant> {
        let verdicts = self
            .hang_reports
            .due()
            .into_iter()
            .chain(self.hang_reports.stalls.due());
        let others = self
            .snapshots
            .due()
            .into_iter()
            .chain(self.crash_examinations.due());
        others.chain(verdicts).min()
    }

    /// Ends programs that take longer than they may.
    pub(super) fn check_hang_reports(&mut self, now: Instant) {
        self.snapshots.check_snapshots(&mut self.ctx, now);
        self.crash_examinations.check_examinations(&self.ranks, now);
        if self.hang_reports.due().is_some_and(|due| due <= now) {
            self.end_hang_report(false);
        }
        self.check_for_stall(now);
    }

    /// Prints what the program has said, if that is `whole`, and goes on with what it was wanted
    /// for.
    pub(super) fn end_hang_report(&mut self, whole: bool) {
        let Some(looking) = self.hang_reports.looking.take() else {
            return;
        };
        let text = String::from_utf8_lossy(&looking.said).trim_end().to_owned();
        let text = Some(text.as_str()).filter(|text| whole && !text.is_empty());
        if let (Some(text), false) = (text, looking.cause == HangReportReason::Stall) {
            self.print_line(text);
        }
        match looking.cause {
            HangReportReason::Time => self.end_for_time(),
            HangReportReason::Stall => self.stall_found(text),
            HangReportReason::Interrupt { signal, broadcast } => {
                self.end_by_signal(signal, broadcast, false)
            }
        }
    }
}
