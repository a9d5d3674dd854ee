//! Jobs that stand still: whether all ranks of this host sleep and use no processor, asked now and
//! then by the first agent. Where that is so the agent has the verdict on the job found
//! ([`super::hang_report`]), which is printed if it is proven.
//!
//! A look reads one file of `/proc` for each rank of this host, and ranks do nothing for it. Looks
//! come less and less often while nothing is found.

use garonne_job::settings::ENV_DEADLOCK;
use garonne_job::settings::deadlock::DeadlockSetting;
use garonne_job::settings::deadlock::answer;
use std::time::{Duration, Instant};

use super::Agent;
use super::hang_report::HangReportReason;
use garonne_job::codes;
use garonne_job::limits::{STALL_LOOK, STALL_LOOK_MAX, TIMEOUT_VERDICT};
use garonne_links::process_tree;

/// When to look next, and what the last look saw.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    /// `None`: no look yet, or no more.
    next: Option<Instant>,
    pause: Duration,
    /// Processor time of the ranks of this host, in the system's ticks.
    used: Option<u64>,
    /// Looks in a row that saw all of them asleep and no time used since the one before.
    still: u32,
    told: bool,
}

impl StallDetector {
    /// When the next look is due.
    pub fn due(&self) -> Option<Instant> {
        self.next
    }

    /// The verdict was not proven: the next look comes later.
    pub fn found_nothing(&mut self) {
        self.pause = (self.pause * 2).min(STALL_LOOK_MAX);
        self.next = Some(Instant::now() + self.pause);
    }
}

impl Agent<'_> {
    /// Looks, if that is due.
    pub(super) fn check_for_stall(&mut self, now: Instant) {
        if self.shutdown.is_some()
            || self.ctx.is_child()
            || self.ctx.is_adopted
            || self.hang_reports.is_looking()
        {
            self.hang_reports.stalls.next = None;
            return;
        }
        let stalls = &mut self.hang_reports.stalls;
        if stalls.told || stalls.next.is_some_and(|next| next > now) {
            return;
        }
        let is_first = stalls.next.is_none();
        stalls.next = Some(now + stalls.pause.max(STALL_LOOK));
        if is_first {
            stalls.pause = STALL_LOOK;
            return;
        }
        let used = self.used_by_sleepers();
        let before = std::mem::replace(&mut self.hang_reports.stalls.used, used);
        let stalls = &mut self.hang_reports.stalls;
        if used.is_none() || used != before {
            (stalls.pause, stalls.still) = (STALL_LOOK, 0);
            return;
        }
        stalls.still += 1;
        if stalls.still >= STILL_LOOKS
            && self.deadlock_answer() != DeadlockSetting::Off
            && !self.begin_hang_report(HangReportReason::Stall, TIMEOUT_VERDICT)
        {
            self.hang_reports.stalls.found_nothing();
        }
    }

    /// Handles the result of the check: the code with which `garonne who` ends, and the text, if it
    /// is proven.
    pub(super) fn stall_found(&mut self, said: Option<&str>) {
        let found = said.and_then(|said| {
            let (code, text) = said.split_once('\n')?;
            Some((code.parse::<i32>().ok()?, text))
        });
        let Some((code, text)) = found else {
            return self.hang_reports.stalls.found_nothing();
        };
        self.hang_reports.stalls.told = true;
        self.hang_reports.stalls.next = None;
        self.print_line(text);
        if code == RANK_LEFT || self.deadlock_answer() == DeadlockSetting::Abort {
            let name = if code == RANK_LEFT {
                codes::G0308
            } else {
                codes::G0307
            };
            self.fail_without_rank(
                code,
                &format!("error[{name}]: the job is ended: its ranks cannot go on"),
            );
        }
    }

    fn deadlock_answer(&self) -> DeadlockSetting {
        answer(&self.ctx.job.setting(ENV_DEADLOCK)).unwrap_or_default()
    }

    /// The processor time that the ranks of this host have used; `None` if one runs, or has not
    /// come to MPI yet.
    fn used_by_sleepers(&self) -> Option<u64> {
        let running = (0..self.ranks.count()).filter(|rank| self.ranks[*rank].ended.is_none());
        let mut used = 0;
        for rank in running {
            self.ranks[rank].member?;
            used += ticks_of_sleeper(self.ranks.member_pid(rank))?;
        }
        Some(used)
    }
}

/// Looks that have to see the same before the verdict is found: 10 s.
const STILL_LOOKS: u32 = 2;

/// With which code `garonne who` ends where a rank waits for one that has left.
pub const RANK_LEFT: i32 = 12;

/// The processor time of a process, if it sleeps.
fn ticks_of_sleeper(pid: i32) -> Option<u64> {
    let (state, ticks) = process_tree::use_of(pid)?;
    (state == 'S').then_some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sleeps_until_it_is_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while ticks_of_sleeper(child.id() as i32).is_none() {
            assert!(Instant::now() < until, "it does not sleep");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ticks_of_sleeper(child.id() as i32).is_none());
    }
}
