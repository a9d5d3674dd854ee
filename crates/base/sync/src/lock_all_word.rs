//! One word by which members of a window on one host lock all its members at once.
//!
//! As long as no member has asked for a lock of its own exclusively, a lock of all is a count in
//! this word. The first exclusive lock ends that for good: it waits until nobody is counted, and
//! from then on who locks all takes the locks of all members, one by one. So a program that only
//! locks all pays for one word, and one that locks exclusively pays for a look at it.
//!
//! # Order of calls
//!
//! Who locks all: [`LockAllWord::enter`]; if that is `true`, [`LockAllWord::leave`] at the end; if
//! not, the locks of all members. Who locks exclusively: [`LockAllWord::close`], then, until it is
//! `true`, [`LockAllWord::is_closed`]; then the lock of the member.
//!
//! The word does not say who is counted: each says that in memory of its own. Contents are written
//! by peers; no value of them leads to a panic.

use crate::facade::{AtomicU32, Ordering};

/// Nobody is counted any more from now on.
const CLOSING: u32 = 1 << 31;

/// The word. 0: nobody is counted, and everybody may be.
#[derive(Clone, Copy, Debug)]
pub struct LockAllWord<'a>(&'a AtomicU32);

impl<'a> LockAllWord<'a> {
    /// The word in this memory.
    #[inline]
    pub fn new(word: &'a AtomicU32) -> Self {
        Self(word)
    }

    /// Counts the caller. `false`: it takes the locks of all members instead.
    #[inline]
    pub fn enter(self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen < CLOSING - 1 {
            // No exclusive lock was held before: there is nothing to acquire.
            match self
                .0
                .compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Counts the caller no more. `true`: those who wait to lock exclusively are to be woken.
    #[inline]
    pub fn leave(self) -> bool {
        // Release: what the caller did under the lock. SYNC(lock-all).
        self.0.fetch_sub(1, Ordering::Release) == CLOSING | 1
    }

    /// From now on nobody else is counted. Returns whether nobody is.
    #[inline]
    pub fn close(self) -> bool {
        // Acquire: what those did who were counted. SYNC(lock-all).
        let seen = self.0.load(Ordering::Acquire);
        seen == CLOSING || self.begin_close()
    }

    #[cold]
    fn begin_close(self) -> bool {
        // Acquire: as above. SYNC(lock-all).
        self.0.fetch_or(CLOSING, Ordering::Acquire) & !CLOSING == 0
    }

    /// Returns whether it is closed and nobody is counted.
    #[inline]
    pub fn is_closed(self) -> bool {
        // Acquire: what those did who were counted. SYNC(lock-all).
        self.0.load(Ordering::Acquire) == CLOSING
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::{Cell, Notify};
    use loom::sync::Arc;

    struct LockedValue {
        word: AtomicU32,
        value: Cell<u32>,
        /// Stands for the lock of a member.
        lock: loom::sync::Mutex<()>,
        /// Where those sleep who lock exclusively.
        sleeps: [Notify; 2],
    }

    // SAFETY: loom checks that accesses to the cell do not race.
    unsafe impl Sync for LockedValue {}
    // SAFETY: as above.
    unsafe impl Send for LockedValue {}

    fn write(shared: &LockedValue) {
        // SAFETY: loom checks that nobody else has access meanwhile.
        shared.value.with_mut(|value| unsafe { *value += 1 });
    }

    #[test]
    fn who_locks_exclusively_comes_after_all_who_are_counted() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Arc::new(LockedValue {
                word: AtomicU32::new(0),
                value: Cell::new(0),
                lock: loom::sync::Mutex::new(()),
                sleeps: [Notify::new(), Notify::new()],
            });
            let writers: Vec<_> = (0..2)
                .map(|writer: usize| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        let word = LockAllWord::new(&shared.word);
                        if !word.close() {
                            // A wake-up that is lost is a deadlock here.
                            while !word.is_closed() {
                                shared.sleeps[writer].wait();
                            }
                        }
                        let _lock = shared.lock.lock().unwrap();
                        write(&shared);
                    })
                })
                .collect();
            let word = LockAllWord::new(&shared.word);
            if word.enter() {
                write(&shared);
                if word.leave() {
                    shared.sleeps.iter().for_each(Notify::notify);
                }
            } else {
                let _lock = shared.lock.lock().unwrap();
                write(&shared);
            }
            writers.into_iter().for_each(|one| one.join().unwrap());
            assert!(word.is_closed() && !word.enter());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_exclusive_lock_ends_the_counting_for_good() {
        let memory = AtomicU32::new(0);
        let word = LockAllWord::new(&memory);
        assert!(word.enter() && word.enter());
        assert!(!word.leave());
        assert!(!word.close() && !word.enter() && !word.is_closed());
        assert!(word.leave(), "somebody waits");
        assert!(word.is_closed() && word.close() && !word.enter());
    }

    #[test]
    fn any_contents_end_every_call() {
        for value in [u32::MAX, CLOSING, CLOSING - 1, 0] {
            let memory = AtomicU32::new(value);
            let word = LockAllWord::new(&memory);
            let _ = (word.leave(), word.enter(), word.close(), word.is_closed());
        }
    }
}
