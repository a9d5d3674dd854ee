//! A job that is ended from outside: by a signal, or because its time has passed. What it hangs on
//! is said before ([`super::hang_report`]).
//!
//! On a terminal ranks have process groups of their own, so that a key does not end them before
//! they were looked at: the agent passes on what the key means. The rank that reads the terminal
//! has to be in the terminal's own group.

use std::time::{Duration, Instant};

use super::Agent;
use super::hang_report::{HangReport, HangReportReason};
use super::stall_detector::{RANK_LEFT, deadlock_answer};
use garonne_job::agent_messages::AgentCommand;
use garonne_job::codes;
use garonne_job::limits::{INTERRUPT_VERDICT, TIMEOUT_VERDICT};
use garonne_job::settings::deadlock::DeadlockSetting;
use garonne_links::process_tree;
use garonne_links::sys;

/// Returns whether this process has a terminal whose keys become signals.
pub(super) fn has_terminal() -> bool {
    let flags =
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, 0.into()).is_ok()
}

/// Returns whether a signal of the terminal does not reach a process.
fn is_apart(pid: i32) -> bool {
    let group = rustix::process::Pid::from_raw(pid)
        .and_then(|pid| rustix::process::getpgid(Some(pid)).ok());
    group.is_some_and(|group| group != rustix::process::getpgrp())
}

/// Returns whether somebody could continue the launcher, a process of this group, if a key stopped
/// it: a shell of its session. The kernel does not stop the others.
fn can_be_continued(launcher: i32) -> bool {
    let of = |pid: i32| {
        let pid = rustix::process::Pid::from_raw(pid)?;
        let session = rustix::process::getsid(Some(pid)).ok()?;
        Some((session, rustix::process::getpgid(Some(pid)).ok()?))
    };
    let Some(own) = of(launcher) else {
        return false;
    };
    let ancestors = std::iter::successors(process_tree::parent_of(launcher), |pid| {
        process_tree::parent_of(*pid)
    });
    let ancestors = ancestors.take_while(|pid| *pid > 0).map_while(of);
    let mut near = ancestors.take_while(|(session, _)| *session == own.0);
    near.any(|(_, group)| group != own.1)
}

impl Agent<'_> {
    /// The time of the job has passed.
    pub(super) fn out_of_time(&mut self) {
        if self.ctx.is_ending || self.hang_reports.is_interrupt() {
            return;
        }
        let running: Vec<_> = (0..self.ranks.count())
            .filter(|&rank| self.ranks[rank].ended.is_none())
            .map(|r| r.to_string())
            .collect();
        let shown = if running.len() > 16 {
            format!("{} ranks", running.len())
        } else {
            format!("ranks {}", running.join(", "))
        };
        let after = self.ctx.job.timeout.unwrap_or_default().as_secs_f64();
        self.print_line(&format!(
            "error[{}]: the job did not end within {after} s; still running: {shown}",
            codes::G0208
        ));
        if !self.begin_hang_report(HangReportReason::Time, TIMEOUT_VERDICT) {
            self.end_for_time();
        }
    }

    fn begin_hang_report(&mut self, cause: HangReportReason, patience: Duration) -> bool {
        self.hang_reports
            .begin(&self.ctx, &self.ranks, cause, patience)
    }

    /// Prints what was found of a job that hangs, and goes on with what it was wanted for.
    pub(super) fn hang_report_ended(&mut self, report: HangReport) {
        let text = report.text.as_deref();
        if let (Some(text), false) = (text, report.cause == HangReportReason::Stall) {
            self.print_line(text);
        }
        match report.cause {
            HangReportReason::Time => self.end_for_time(),
            HangReportReason::Stall => self.stall_found(text),
            HangReportReason::Interrupt { signal, broadcast } => {
                self.end_by_signal(signal, broadcast, false)
            }
        }
    }

    /// Tells that the job stands still, if that is proven, and ends it where that is wanted.
    fn stall_found(&mut self, said: Option<&str>) {
        let Some((code, text)) = self.hang_reports.take_stall(said) else {
            return;
        };
        self.print_line(&text);
        if code == RANK_LEFT || deadlock_answer(&self.ctx) == DeadlockSetting::Abort {
            let name = match code == RANK_LEFT {
                true => codes::G0308,
                false => codes::G0307,
            };
            let line = format!("error[{name}]: the job is ended: its ranks cannot go on");
            self.fail_without_rank(code, &line);
        }
    }

    /// Ends the job because its time is over, once the hang report was printed.
    fn end_for_time(&mut self) {
        if !self.ctx.is_ending {
            self.flight_recorders.blame(None);
            self.terminate(124);
        }
    }

    /// A signal for the job. `broadcast`: those of the terminal's process group have it already.
    pub(super) fn signalled(&mut self, signal: i32, broadcast: bool) {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                self.end_requested(signal, broadcast)
            }
            _ => self.forward_signal(signal, broadcast),
        }
    }

    /// A signal that is for the ranks.
    fn forward_signal(&mut self, signal: i32, broadcast: bool) {
        // The launcher, whom the key would stop as well, goes on, and so does its job.
        if broadcast && signal == libc::SIGTSTP && !can_be_continued(self.ctx.launcher) {
            return;
        }
        self.ctx.command_all(&AgentCommand::Signal(signal));
        match signal {
            libc::SIGTSTP | libc::SIGCONT => {
                for pid in process_tree::descendants(rustix::process::getpid().as_raw_pid()) {
                    if !broadcast || is_apart(pid) {
                        sys::kill(pid, signal);
                    }
                }
            }
            _ => self.signal_ranks(signal, broadcast),
        }
    }

    /// Sends a signal to all ranks that do not have it.
    fn signal_ranks(&self, signal: i32, broadcast: bool) {
        for rank in 0..self.ranks.count() {
            if !broadcast || is_apart(self.ranks[rank].pid) {
                self.ranks.signal_rank(rank, signal);
            }
        }
    }

    fn end_requested(&mut self, signal: i32, broadcast: bool) {
        let now = Instant::now();
        // Asked twice by hand: no more patience.
        let again = self.end.note_signal(now);
        if (self.ctx.is_ending || self.hang_reports.is_interrupt()) && !again {
            return;
        }
        let cause = HangReportReason::Interrupt { signal, broadcast };
        let first = !self.ctx.is_ending && !self.hang_reports.is_interrupt();
        if first && signal == libc::SIGINT && self.begin_hang_report(cause, INTERRUPT_VERDICT) {
            return;
        }
        self.hang_reports.stop();
        self.end_by_signal(signal, broadcast, again);
    }

    /// Ends the job as a signal asked for. `at_once`: without patience.
    fn end_by_signal(&mut self, signal: i32, broadcast: bool, at_once: bool) {
        let now = Instant::now();
        let code = match self.ctx.is_ending {
            true => self.code(),
            false => 128 + signal,
        };
        self.ctx.command_all(&AgentCommand::Signal(signal));
        self.end_by(code, if at_once { now } else { now + self.end.grace() });
        self.signal_ranks(signal, broadcast);
    }
}
