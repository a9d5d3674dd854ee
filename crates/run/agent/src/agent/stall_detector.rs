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

use super::context::Context;
use super::ranks::Ranks;
use garonne_job::limits::{STALL_CHECK, STALL_CHECK_MAX};
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

    /// Looks, if that is due. Returns whether the job has stood still for so long that the verdict
    /// on it is wanted. `is_looking`: it is being found already.
    pub fn check(
        &mut self,
        ctx: &Context<'_>,
        ranks: &Ranks,
        is_looking: bool,
        now: Instant,
    ) -> bool {
        if ctx.is_ending || ctx.is_child() || ctx.is_adopted || is_looking {
            self.next = None;
            return false;
        }
        if self.told || self.next.is_some_and(|next| next > now) {
            return false;
        }
        let is_first = self.next.is_none();
        self.next = Some(now + self.pause.max(STALL_CHECK));
        if is_first {
            self.pause = STALL_CHECK;
            return false;
        }
        let used = used_by_sleepers(ranks);
        let before = std::mem::replace(&mut self.used, used);
        if used.is_none() || used != before {
            (self.pause, self.still) = (STALL_CHECK, 0);
            return false;
        }
        self.still += 1;
        self.still >= STILL_LOOKS && deadlock_answer(ctx) != DeadlockSetting::Off
    }

    /// Takes the verdict: the code with which `garonne who` ends, and the words, if it is proven.
    pub fn take(&mut self, said: Option<&str>) -> Option<(i32, String)> {
        let found = said.and_then(|said| {
            let (code, text) = said.split_once('\n')?;
            Some((code.parse::<i32>().ok()?, text.to_owned()))
        });
        if found.is_none() {
            self.found_nothing();
            return None;
        }
        self.told = true;
        self.next = None;
        found
    }

    /// The verdict was not proven: the next look comes later.
    pub fn found_nothing(&mut self) {
        self.pause = (self.pause * 2).min(STALL_CHECK_MAX);
        self.next = Some(Instant::now() + self.pause);
    }
}

/// Returns what comes of a job whose ranks are proven to wait for each other.
pub(super) fn deadlock_answer(ctx: &Context<'_>) -> DeadlockSetting {
    answer(&ctx.job.setting(ENV_DEADLOCK)).unwrap_or_default()
}

/// Returns the processor time that the ranks of this host have used; `None` if one runs, or has not
/// come to MPI yet.
fn used_by_sleepers(ranks: &Ranks) -> Option<u64> {
    let running = (0..ranks.count()).filter(|rank| ranks[*rank].ended.is_none());
    let mut used = 0;
    for rank in running {
        ranks[rank].member?;
        used += ticks_of_sleeper(ranks.member_pid(rank))?;
    }
    Some(used)
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
