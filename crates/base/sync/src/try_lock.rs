//! A lock that is only ever tried. A thread that fails does something else, or comes back.
//!
//! While a process promises to have one thread in it ([`SingleThreaded`]), taking the lock is a
//! plain load and store. Among several threads the lock tells those who fail for what it is held,
//! and whether it is contended. The lock never sleeps, never spins, and knows no poisoning. A
//! holder that unwinds releases it and the value stays as it was left. So users keep their
//! invariants between calls that may panic.

use crate::facade::{AtomicBool, AtomicU8, AtomicU32, Cell, Ordering};

/// Number of times that it is taken, after somebody had to come back for it, until it no longer
/// counts as contended: several times what a thread does in a turn.
const CONTENDED_FOR: u32 = 64;

/// For what a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHold {
    /// By nobody.
    Free,
    /// For something that its holder wants done.
    Work,
    /// By somebody who looks for news again and again, and does little else.
    Poll,
}

impl LockHold {
    fn word(self) -> u8 {
        self as u8
    }
}

/// A value that one thread at a time may hold, by trying.
#[derive(Debug)]
pub struct TryLock<T> {
    /// For what, as [`LockHold::word`].
    held: AtomicU8,
    /// Takings until it no longer counts as contended. Written by who holds it.
    contended: AtomicU32,
    /// One thread at a time calls, as its process promised.
    single_threaded: AtomicBool,
    /// Number of times that it was taken where several threads may (modulo 2^32). Written by who
    /// holds it.
    acquisitions: AtomicU32,
    value: Cell<T>,
}

// SAFETY: the value is reached by one guard at a time, and moves between threads only through it.
unsafe impl<T: Send> Send for TryLock<T> {}
// SAFETY: as above; `&TryLock` gives access to `T` only exclusively.
unsafe impl<T: Send> Sync for TryLock<T> {}

/// Exclusive access, until dropped.
#[derive(Debug)]
pub struct TryLockGuard<'a, T>(&'a TryLock<T>);

/// The promise that calls on a lock never overlap in time, and that what orders them also orders
/// memory (one thread, or threads that hand over by their own synchronisation).
#[derive(Clone, Copy, Debug)]
pub struct SingleThreaded(());

impl SingleThreaded {
    /// Makes the promise.
    ///
    /// # Safety
    /// From now until every lock it was given to is told [`TryLock::share`], no two threads may use
    /// such a lock at once.
    pub unsafe fn promise() -> Self {
        Self(())
    }
}

impl<T> TryLock<T> {
    /// A free lock around `value`.
    pub fn new(value: T) -> Self {
        Self {
            held: AtomicU8::new(LockHold::Free.word()),
            contended: AtomicU32::new(0),
            single_threaded: AtomicBool::new(false),
            acquisitions: AtomicU32::new(0),
            value: Cell::new(value),
        }
    }

    /// From now on taking the lock costs no atomic read-modify-write.
    pub fn elide(&self, _: SingleThreaded) {
        self.single_threaded.store(true, Ordering::Relaxed);
    }

    /// Takes the promise back before more threads come. Called by the one thread, which does not
    /// hold the lock.
    pub fn share(&self) {
        self.single_threaded.store(false, Ordering::SeqCst);
    }

    /// Takes the lock if it is free and one thread promised to be alone.
    #[inline(always)]
    pub fn try_lock_unshared(&self) -> Option<TryLockGuard<'_, T>> {
        if !self.single_threaded.load(Ordering::Relaxed) || self.is_held() {
            return None;
        }
        // Nobody can come between load and store: the promise.
        self.held.store(LockHold::Work.word(), Ordering::Relaxed);
        Some(TryLockGuard(self))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<TryLockGuard<'_, T>> {
        self.try_lock_for(LockHold::Work)
    }

    /// Takes the lock if it is free, and says for what.
    #[inline]
    pub fn try_lock_for(&self, hold: LockHold) -> Option<TryLockGuard<'_, T>> {
        if self.single_threaded.load(Ordering::Relaxed) {
            // Nobody can come between load and store: the promise. Still refuses to be taken twice
            // by its own thread.
            if self.is_held() {
                return None;
            }
            self.held.store(hold.word(), Ordering::Relaxed);
            return Some(TryLockGuard(self));
        }
        // Acquire pairs with the Release of the previous holder's drop: SYNC(trylock).
        self.held
            .compare_exchange(
                LockHold::Free.word(),
                hold.word(),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        let turns = self.acquisitions.load(Ordering::Relaxed);
        self.acquisitions
            .store(turns.wrapping_add(1), Ordering::Relaxed);
        let contended = self.contended.load(Ordering::Relaxed);
        if contended > 0 {
            self.contended.store(contended - 1, Ordering::Relaxed);
        }
        Some(TryLockGuard(self))
    }

    /// Returns how often several threads took it, ever (modulo 2^32). For hints only.
    #[inline]
    pub fn acquisitions(&self) -> u32 {
        self.acquisitions.load(Ordering::Relaxed)
    }

    /// Returns whether somebody held it a moment ago. For hints only.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != LockHold::Free.word()
    }

    /// For what it was held a moment ago. For hints only.
    #[inline]
    pub fn hold(&self) -> LockHold {
        match self.held.load(Ordering::Relaxed) {
            word if word == LockHold::Free.word() => LockHold::Free,
            word if word == LockHold::Poll.word() => LockHold::Poll,
            _ => LockHold::Work,
        }
    }

    /// Returns whether somebody had to come back for it lately. For hints only.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed) > 0
    }
}

impl<T> TryLockGuard<'_, T> {
    /// Notes that the holder had to try more than once.
    pub fn note_contended(&self) {
        self.0.contended.store(CONTENDED_FOR, Ordering::Relaxed);
    }

    /// Calls `f` with the value. The way of access that loom can watch.
    #[inline]
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the guard is the only access while the lock is held, and `&mut self` makes this
        // call the only use.
        self.0.value.with_mut(|value| f(unsafe { &mut *value }))
    }
}

#[cfg(not(loom))]
impl<T> std::ops::Deref for TryLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only access while the lock is held.
        self.0.value.with_mut(|value| unsafe { &*value })
    }
}

#[cfg(not(loom))]
impl<T> std::ops::DerefMut for TryLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only access while the lock is held.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next holder sees what this one did. SYNC(trylock).
        self.0.held.store(LockHold::Free.word(), Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn holders_exclude_each_other_and_see_what_the_last_one_did() {
        loom::model(|| {
            let lock = Arc::new(TryLock::new(0u32));
            let other = lock.clone();
            let thread = loom::thread::spawn(move || {
                other
                    .try_lock()
                    .map(|mut guard| guard.with(|n| *n += 1))
                    .is_some()
            });
            let mine = lock
                .try_lock()
                .map(|mut guard| guard.with(|n| *n += 1))
                .is_some();
            let theirs = thread.join().unwrap();
            let total = lock.try_lock().unwrap().with(|n| *n);
            assert_eq!(total, u32::from(mine) + u32::from(theirs));
            assert!(mine || theirs);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_elided_lock_still_refuses_its_own_thread_and_can_be_shared_again() {
        let lock = TryLock::new(1);
        // SAFETY: only this thread knows the lock.
        lock.elide(unsafe { SingleThreaded::promise() });
        let guard = lock.try_lock().unwrap();
        assert!(lock.try_lock().is_none());
        drop(guard);
        lock.share();
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn it_tells_for_what_it_is_held_and_counts_as_contended_for_a_while() {
        let lock = TryLock::new(1);
        assert_eq!((lock.hold(), lock.is_contended()), (LockHold::Free, false));
        drop(
            lock.try_lock_for(LockHold::Poll)
                .inspect(|_| assert_eq!(lock.hold(), LockHold::Poll)),
        );
        let guard = lock.try_lock().unwrap();
        assert_eq!(lock.hold(), LockHold::Work);
        guard.note_contended();
        drop(guard);
        for _ in 0..CONTENDED_FOR {
            assert!(lock.is_contended());
            drop(lock.try_lock());
        }
        assert!(!lock.is_contended());
    }

    #[test]
    fn a_held_lock_refuses_and_a_dropped_guard_frees_it() {
        let lock = TryLock::new(1);
        let mut guard = lock.try_lock().unwrap();
        *guard += 1;
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert_eq!(*lock.try_lock().unwrap(), 2);
    }
}
