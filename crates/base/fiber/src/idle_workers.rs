//! Workers without work: who searches, who sleeps, and whom somebody wakes that queued a fiber.
//!
//! A worker without work searches all run queues for a while, then announces its sleep, looks once
//! more, and sleeps. Whoever queues a fiber afterwards looks for a searcher; where there is none it
//! wakes one sleeper, which searches from then on. A searcher that found work and was the last one
//! wakes another if more is queued. So one of the two sees the other: SYNC(fiber-idle).

use crate::facade::{AtomicU32, Ordering, fence};

/// A worker's word: it runs fibers or searches.
const AWAKE: u32 = 0;
/// A worker's word: it sleeps or is about to.
const ASLEEP: u32 = 1;

/// See the module's paragraph. Workers are numbered by seat.
#[derive(Debug)]
pub(crate) struct IdleWorkers {
    words: Box<[AtomicU32]>,
    asleep: AtomicU32,
    searching: AtomicU32,
}

impl IdleWorkers {
    pub(crate) fn new(seats: usize) -> Self {
        Self {
            words: (0..seats).map(|_| AtomicU32::new(AWAKE)).collect(),
            asleep: AtomicU32::new(0),
            searching: AtomicU32::new(0),
        }
    }

    /// The worker has no work and searches.
    pub(crate) fn start_search(&self) {
        self.searching.fetch_add(1, Ordering::SeqCst);
    }

    /// The worker found work. `true`: it was the last searcher, so it looks whether more is queued.
    pub(crate) fn end_search(&self) -> bool {
        let last = self.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        fence(Ordering::SeqCst);
        last
    }

    /// The searcher is about to sleep, and looks once more at all queues afterwards.
    pub(crate) fn announce_sleep(&self, seat: usize) {
        self.words[seat].store(ASLEEP, Ordering::SeqCst);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        self.searching.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until somebody wakes the worker. It searches from then on.
    pub(crate) fn sleep(&self, seat: usize) {
        while self.words[seat].load(Ordering::Acquire) == ASLEEP {
            #[cfg(not(loom))]
            garonne_sync::futex::wait(&self.words[seat], ASLEEP, None);
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// The worker does not sleep after all. It searches from then on.
    pub(crate) fn cancel_sleep(&self, seat: usize) {
        self.searching.fetch_add(1, Ordering::SeqCst);
        if !self.claim(seat) {
            // Whoever woke the worker has counted it.
            self.searching.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Ends a worker's sleep, for a caller that has counted it as a searcher. One caller does.
    fn claim(&self, seat: usize) -> bool {
        let word = &self.words[seat];
        let claimed = word.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed);
        if claimed.is_ok() {
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
        claimed.is_ok()
    }

    /// Wakes one of these workers, unless a worker searches already. For whoever queued a fiber.
    pub(crate) fn wake_one(&self, seats: impl Iterator<Item = usize> + Clone) {
        loop {
            fence(Ordering::SeqCst);
            let has_searcher = self.searching.load(Ordering::SeqCst) != 0;
            if has_searcher || self.asleep.load(Ordering::SeqCst) == 0 {
                return;
            }
            if self.wake_among(seats.clone()) {
                return;
            }
            // Others may have relied on the searcher that this caller seemed to wake.
            crate::facade::relax();
        }
    }

    /// Wakes all workers.
    pub(crate) fn wake_all(&self) {
        if self.asleep.load(Ordering::SeqCst) != 0 {
            while self.wake_among(0..self.words.len()) {}
        }
    }

    /// Tells whether one of these workers sleeps, or is about to. For whoever queued a fiber that
    /// only they may run: those who are awake look at their queues before they sleep.
    pub(crate) fn is_any_asleep(&self, mut seats: impl Iterator<Item = usize>) -> bool {
        // SYNC(fiber-idle)
        fence(Ordering::SeqCst);
        seats.any(|seat| self.words[seat].load(Ordering::SeqCst) == ASLEEP)
    }

    /// Wakes one of these workers, whoever searches: for a fiber that only they may run. The
    /// sleeper counts as a searcher before it can go on, so that the count never falls too low.
    pub(crate) fn wake_among(&self, mut seats: impl Iterator<Item = usize>) -> bool {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.searching.fetch_add(1, Ordering::SeqCst);
        let Some(seat) = seats.find(|seat| self.claim(*seat)) else {
            self.searching.fetch_sub(1, Ordering::SeqCst);
            return false;
        };
        #[cfg(not(loom))]
        garonne_sync::futex::wake(&self.words[seat], 1);
        let _ = seat;
        true
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    /// Two submitters queue one item each; a worker that runs out of work takes both, however
    /// submissions fall into its way to sleep. A lost wake-up is a deadlock that loom reports.
    #[test]
    fn a_worker_that_goes_to_sleep_misses_nothing() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((IdleWorkers::new(1), AtomicU32::new(0)));
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        shared.1.fetch_add(1, Ordering::SeqCst);
                        shared.0.wake_one(0..1);
                    })
                })
                .collect();
            let (idle, queue) = (&shared.0, &shared.1);
            let mut taken = 0;
            while taken < 2 {
                idle.start_search();
                loop {
                    if queue.load(Ordering::SeqCst) != 0 {
                        break;
                    }
                    idle.announce_sleep(0);
                    if queue.load(Ordering::SeqCst) != 0 {
                        idle.cancel_sleep(0);
                        continue;
                    }
                    idle.sleep(0);
                }
                idle.end_search();
                taken += queue.swap(0, Ordering::SeqCst);
            }
            submitters
                .into_iter()
                .for_each(|submitter| submitter.join().unwrap());
            assert_eq!(idle.searching.load(Ordering::SeqCst), 0);
        });
    }
}
