//! What a job hangs on, said without being asked: before its ranks end because of a signal or of
//! its time.
//!
//! The agent has its own program find that out (`garonne agent --verdict`), as `garonne who`
//! would, and prints what that writes. The agent goes on meanwhile, since the program asks it as
//! any tool does. Owned by the first agent of a job; one program at a time, of at most
//! [`VERDICT_BYTES_MAX`], for as long as its cause allows.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::EpollToken;
use super::context::Context;
use super::helper_process::{self, HelperProcess};
use super::ranks::Ranks;
use super::stall_detector::StallDetector;
use garonne_job::limits::{TIMEOUT_VERDICT, VERDICT_BYTES_MAX};
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

/// Findings of the program that examines a job.
#[derive(Debug)]
pub(super) struct HangReport {
    /// Why it was wanted.
    pub cause: HangReportReason,
    /// Words to print; `None` if the program was ended, or said nothing.
    pub text: Option<String>,
}

/// The program that finds what the job hangs on, and the search for jobs that stand still.
///
/// Owned by the agent. [`begin`](Self::begin) starts the program, what it writes is read as the
/// epoll tells ([`read`](Self::read)), and [`check`](Self::check) and
/// [`check_for_stall`](Self::check_for_stall) are called when [`due`](Self::due) says so. The agent
/// carries out what follows from a report.
#[derive(Debug, Default)]
pub(super) struct HangReports {
    looking: Option<HangReporter>,
    stalls: StallDetector,
}

impl HangReports {
    /// Has the program look, in place of one that looks already. Returns whether it does: then its
    /// end comes within `spin_budget`.
    pub fn begin(
        &mut self,
        ctx: &Context<'_>,
        ranks: &Ranks,
        cause: HangReportReason,
        patience: Duration,
    ) -> bool {
        let begun =
            !ctx.waiting_for_agents && (!ranks.worlds().is_empty() || ctx.job.nodes.several());
        if ctx.is_child() || ctx.is_adopted || !begun {
            return false;
        }
        let Some(name) = ctx.socket_name() else {
            return false;
        };
        let words = ["agent", "--verdict", &name.0, cause.word()];
        let Some(HelperProcess { pid, pipe }) = helper_process::start(&words, ctx.signals) else {
            return false;
        };
        let looking = HangReporter {
            cause,
            pid,
            pipe,
            said: Vec::new(),
            until: Instant::now() + patience,
        };
        if ctx
            .listen(looking.pipe.as_fd(), EpollToken::HangReport)
            .is_err()
        {
            return false;
        }
        self.looking = Some(looking);
        true
    }

    /// Reads what the program says. Returns its report once it has ended.
    pub fn read(&mut self) -> Option<HangReport> {
        let mut buffer = [0; 4096];
        loop {
            let looking = self.looking.as_mut()?;
            match rustix::io::read(&looking.pipe, &mut buffer) {
                Ok(0) => return self.end(true),
                Ok(n) if looking.said.len() + n <= VERDICT_BYTES_MAX => {
                    looking.said.extend_from_slice(&buffer[..n]);
                }
                Err(rustix::io::Errno::AGAIN) => return None,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return self.end(false),
            }
        }
    }

    /// Ends the program if it runs, and returns its report, which is `whole` or does not count.
    pub fn end(&mut self, whole: bool) -> Option<HangReport> {
        let looking = self.looking.take()?;
        let text = String::from_utf8_lossy(&looking.said).trim_end().to_owned();
        Some(HangReport {
            cause: looking.cause,
            text: Some(text).filter(|text| whole && !text.is_empty()),
        })
    }

    /// Ends the program if it takes longer than it may.
    pub fn check(&mut self, now: Instant) -> Option<HangReport> {
        let is_over = self.looking.as_ref()?.until <= now;
        is_over.then(|| self.end(false))?
    }

    /// Looks whether the job stands still, if that is due, and has the program look then.
    pub fn check_for_stall(&mut self, ctx: &Context<'_>, ranks: &Ranks, now: Instant) {
        if self.stalls.check(ctx, ranks, self.looking.is_some(), now)
            && !self.begin(ctx, ranks, HangReportReason::Stall, TIMEOUT_VERDICT)
        {
            self.stalls.found_nothing();
        }
    }

    /// Takes the report on a job that stood still. Returns the code with which `garonne who` ends,
    /// and the words to print, if that is proven.
    pub fn take_stall(&mut self, said: Option<&str>) -> Option<(i32, String)> {
        self.stalls.take(said)
    }

    /// Returns whether the job ends because of a signal once its verdict is there.
    pub fn is_interrupt(&self) -> bool {
        let cause = self.looking.as_ref().map(|looking| looking.cause);
        matches!(cause, Some(HangReportReason::Interrupt { .. }))
    }

    /// Returns when the program has had enough time, or when to look at the ranks.
    pub fn due(&self) -> Option<Instant> {
        let looking = self.looking.as_ref().map(|looking| looking.until);
        looking.into_iter().chain(self.stalls.due()).min()
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
