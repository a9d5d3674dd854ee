//! Replacement of the event poller under shuttle (`--cfg shuttle`): a bell, a timer and alarms,
//! whose time is over whenever the schedule says so. There are no descriptors.

use crate::facade::{AtomicU32, Ordering};
use crate::tasks::Error;
use garonne_sync::futex::{self, Wake};
use rustix::event::epoll::EventFlags;
use shuttle::rand::{Rng, thread_rng};
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(super) const FIRST_SOURCE: u64 = 16;

/// The timer's time is never over: as on a machine where whoever is called gets a core at once.
pub(crate) static TIMELESS: AtomicBool = AtomicBool::new(false);

const RUNG: u32 = 1;
const TIMER: u32 = 2;
const ALARM: u32 = 4;

/// Event for which the poller woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolledEvent {
    Bell,
    Timer,
    Alarm,
    Source(u64),
}

/// A word of bits instead of descriptors.
#[derive(Debug)]
pub(super) struct EventPoller {
    /// What has rung, and which times run.
    word: AtomicU32,
    /// 0: not set.
    guard: AtomicU32,
}

/// The guard is set, and its time is over when the schedule says so.
const GUARDS: u32 = 1;
/// The guard's time is over.
const LATE: u32 = 2;

impl EventPoller {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            word: AtomicU32::new(0),
            guard: AtomicU32::new(0),
        })
    }

    fn set(&self, bits: u32) {
        self.word.fetch_or(bits, Ordering::SeqCst);
        futex::wake(&self.word, u32::MAX);
    }

    pub(super) fn ring(&self) {
        self.set(RUNG);
    }

    pub(super) fn set_timer(&self, _: Duration) {
        if !TIMELESS.load(Ordering::Relaxed) {
            self.set(TIMER);
        }
    }

    pub(super) fn set_alarm(&self, _: Duration) {
        self.set(ALARM);
    }

    pub(super) fn set_guard(&self, after: Duration) {
        let guard = match after.is_zero() {
            true => LATE,
            false if TIMELESS.load(Ordering::Relaxed) => 0,
            false => GUARDS,
        };
        self.guard.store(guard, Ordering::SeqCst);
        futex::wake(&self.guard, u32::MAX);
    }

    pub(super) fn clear_guard(&self) {
        self.guard.store(0, Ordering::SeqCst);
    }

    pub(super) fn wait_guard(&self, limit: Duration) -> bool {
        loop {
            let guard = self.guard.load(Ordering::SeqCst);
            let over = guard == LATE || guard == GUARDS && thread_rng().gen_bool(0.1);
            if over
                && self
                    .guard
                    .compare_exchange(guard, 0, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            {
                return true;
            }
            match guard {
                0 if futex::wait(&self.guard, 0, Some(limit)) == Wake::Timeout => return false,
                0 => {}
                _ => shuttle::thread::yield_now(),
            }
        }
    }

    pub(super) fn watch(&self, _: BorrowedFd<'_>, _: u64, _: EventFlags) -> Result<(), Error> {
        Err(Error::Misuse("random schedules have no descriptors"))
    }

    pub(super) fn rearm(&self, _: BorrowedFd<'_>, _: u64, _: EventFlags) {}

    pub(super) fn forget(&self, _: BorrowedFd<'_>) {}

    pub(super) fn wait(&self, news: &mut Vec<PolledEvent>) {
        news.clear();
        loop {
            let word = self.word.load(Ordering::SeqCst);
            for (bit, what) in [
                (RUNG, PolledEvent::Bell),
                (TIMER, PolledEvent::Timer),
                (ALARM, PolledEvent::Alarm),
            ] {
                let comes = word & bit != 0 && (bit == RUNG || thread_rng().gen_bool(0.1));
                if comes && self.word.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
                    news.push(what);
                }
            }
            if !news.is_empty() {
                return;
            }
            match word & (TIMER | ALARM) {
                0 => {
                    futex::wait(&self.word, word, None);
                }
                _ => shuttle::thread::yield_now(),
            }
        }
    }
}
