//! Whether a thread runs, looks once more before it sleeps, sleeps, or was notified.
//!
//! A thread that is about to sleep announces it, looks once more at what it waits for, and sleeps.
//! Whoever changes that thing looks at the word afterwards. So one of the two sees the other:
//! SYNC(openmp-park). A thread that has announced nothing needs no notice.

use crate::facade::{AtomicU32, Ordering, fence};

/// The thread runs.
const AWAKE: u32 = 0;
/// The thread has said that it is about to sleep, and looks once more.
const IDLE: u32 = 1;
/// The thread sleeps.
const ASLEEP: u32 = 2;
/// The thread was notified, and looks again before it sleeps.
const NOTIFIED: u32 = 3;

/// The word of a thread, which alone announces, cancels and sleeps.
#[derive(Debug)]
pub(crate) struct ParkWord(AtomicU32);

impl ParkWord {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The thread is about to sleep. It looks once more first.
    pub(crate) fn announce(&self) {
        let new = (AWAKE, IDLE, Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.0.compare_exchange(new.0, new.1, new.2, new.3);
        // SYNC(openmp-park)
        fence(Ordering::SeqCst);
    }

    /// The thread does not sleep after all, or no longer does.
    pub(crate) fn awake(&self) {
        self.0.swap(AWAKE, Ordering::SeqCst);
    }

    /// The thread sleeps from now on, until whoever notified it wakes it. `false`: somebody has
    /// notified it since it announced its sleep.
    pub(crate) fn sleeps(&self) -> bool {
        let new = (IDLE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        let done = self.0.compare_exchange(new.0, new.1, new.2, new.3);
        done.is_ok()
    }

    /// What the thread may wait for has changed. `true`: the caller wakes it.
    pub(crate) fn notify(&self) -> bool {
        // SYNC(openmp-park)
        fence(Ordering::SeqCst);
        match self.0.load(Ordering::SeqCst) {
            AWAKE | NOTIFIED => false,
            _ => self.0.swap(NOTIFIED, Ordering::SeqCst) == ASLEEP,
        }
    }

    /// Tells whether the thread sleeps, or is about to.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.0.load(Ordering::SeqCst), IDLE | ASLEEP)
    }
}

#[cfg(all(test, loom))]
pub(crate) mod tests {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};

    /// A thread's word, and the unit by which it is woken.
    pub(crate) struct Sleeper {
        word: ParkWord,
        has_unit: Mutex<bool>,
        posted: Condvar,
    }

    impl Sleeper {
        pub(crate) fn new() -> Self {
            Self {
                word: ParkWord::new(),
                has_unit: Mutex::new(false),
                posted: Condvar::new(),
            }
        }

        pub(crate) fn notify(&self) {
            if self.word.notify() {
                assert!(!std::mem::replace(
                    &mut *self.has_unit.lock().unwrap(),
                    true
                ));
                self.posted.notify_one();
            }
        }

        /// Waits as threads of teams do. A lost notice is a deadlock, which loom reports.
        pub(crate) fn wait_until(&self, is_over: impl Fn() -> bool) {
            while !is_over() {
                self.word.announce();
                if is_over() {
                    self.word.awake();
                    return;
                }
                if self.word.sleeps() {
                    let mut has_unit = self.has_unit.lock().unwrap();
                    while !*has_unit {
                        has_unit = self.posted.wait(has_unit).unwrap();
                    }
                    *has_unit = false;
                }
                self.word.awake();
            }
        }
    }

    /// Two others change what a thread waits for, one after the other; the thread waits twice.
    #[test]
    fn no_notice_is_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((Sleeper::new(), AtomicU32::new(0)));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        shared.1.fetch_add(1, Ordering::Release);
                        shared.0.notify();
                    })
                })
                .collect();
            for wanted in 1..=2 {
                let is_over = || shared.1.load(Ordering::Acquire) >= wanted;
                shared.0.wait_until(is_over);
            }
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
