//! The loop of a worker: looks for work, and sleeps when there is none.
//!
//! There is one thread per home. It polls for as long as a poll costs less than being woken. Then
//! it leaves the idle set, looks once more, and sleeps until it is woken. While tasks wait that
//! only ever ask to be run again, it naps in between, for longer and longer.

use crate::facade::Ordering;
use crate::limits::{WORKER_SLEEP_FIRST, WORKER_SLEEP_MAX};
use crate::sys;
use crate::tasks::scheduler::{Poller, Scheduler};
use crate::tasks::{Keypoint, RunContext, WorkerClass};
use garonne_sync::task_slots::RunTally;
use std::sync::Arc;
use std::time::Duration;

/// The life of a worker. Returns when all are to leave.
pub(crate) fn work(scheduler: &Arc<Scheduler>, home: usize) {
    let place = &scheduler.pool.homes[home];
    // Where the kernel refuses, it runs anywhere, and polls for the core that it is on.
    let bound = sys::bind(&place.cpus).is_ok();
    let core = if bound {
        place.core
    } else {
        scheduler.current_core()
    };
    let mut naps = NapBackoff::default();
    let mut looks = scheduler.spins();
    while !scheduler.stopping() {
        poll(scheduler, core, looks, &mut naps);
        let seen = scheduler.pool.begin_sleep(home);
        let at = RunContext {
            core: scheduler.current_core(),
            keypoint: Keypoint::Idle,
            polls: false,
        };
        let last = scheduler.walk(&at, scheduler.next_round());
        scheduler.count(at.core, last.settled);
        if last.settled > 0 || scheduler.stopping() {
            scheduler.pool.awake(home);
            naps.over();
            continue;
        }
        let called = scheduler.pool.sleep(home, seen, naps.next(last));
        // After a nap one look is enough.
        looks = if called { scheduler.spins() } else { 1 };
        if called {
            naps.over();
        }
    }
}

/// Polls until `looks` walks in a row settle nothing.
fn poll(scheduler: &Arc<Scheduler>, core: usize, looks: u32, naps: &mut NapBackoff) {
    let idler = u32::from(scheduler.pool.class() == WorkerClass::Idle);
    scheduler
        .idle_class_pollers
        .fetch_add(idler, Ordering::Relaxed);
    let mut poller = Poller::new(scheduler, core, Keypoint::Idle).quiet();
    let mut idle = 0;
    while idle < looks && !scheduler.stopping() {
        if poller.turn().settled > 0 {
            idle = 0;
            naps.over();
        } else {
            idle += 1;
            std::hint::spin_loop();
        }
    }
    drop(poller);
    scheduler
        .idle_class_pollers
        .fetch_sub(idler, Ordering::Relaxed);
}

/// Time of one sleep while tasks repeat without success.
#[derive(Clone, Debug, Default)]
pub(crate) struct NapBackoff {
    last: Option<Duration>,
}

impl NapBackoff {
    /// The next sleep after a fruitless walk; `None`: nothing repeats, until called.
    pub(crate) fn next(&mut self, tally: RunTally) -> Option<Duration> {
        if tally.rerun == 0 {
            self.over();
            return None;
        }
        let most = match tally.patience_us {
            0 => WORKER_SLEEP_MAX,
            us => Duration::from_micros(us.into()),
        };
        let nap = self
            .last
            .map_or(WORKER_SLEEP_FIRST, |last| last * 2)
            .min(most);
        self.last = Some(nap);
        Some(nap)
    }

    /// Something happened.
    pub(crate) fn over(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_up_to_the_patience_of_what_waits_and_begin_anew_after_news() {
        let mut naps = NapBackoff::default();
        let fruitless = |patience_us| RunTally {
            settled: 0,
            rerun: 2,
            patience_us,
        };
        assert_eq!(naps.next(fruitless(0)), Some(WORKER_SLEEP_FIRST));
        assert_eq!(naps.next(fruitless(0)), Some(WORKER_SLEEP_FIRST * 2));
        assert_eq!(naps.next(fruitless(7)), Some(Duration::from_micros(7)));
        naps.over();
        assert_eq!(naps.next(fruitless(0)), Some(WORKER_SLEEP_FIRST));
        let naps_now = (0..30).filter_map(|_| naps.next(fruitless(0))).last();
        assert_eq!(naps_now, Some(WORKER_SLEEP_MAX));
        assert_eq!(naps.next(RunTally::default()), None);
    }
}
