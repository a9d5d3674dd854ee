//! Predicates that waiting threads register with the leader: each tells whether memory that other
//! processes write has changed as its owner expects.
//!
//! The leader cannot know of such memory by itself, and a parked thread cannot look at it. So a
//! waiting thread registers its predicate here while it is parked. The leader polls all predicates
//! whenever it checks its own condition. A predicate that returned true is not polled again.
//! Predicates are called one at a time; they take no lock and never block. Bounded by the threads
//! that wait.

use crate::facade::{AtomicU32, Mutex, MutexGuard, Ordering, total_order};
use std::sync::PoisonError;

/// Condition that a waiter has the leader evaluate.
type Predicate<'a> = dyn FnMut() -> bool + Send + 'a;

struct PredicateEntry {
    id: u32,
    predicate: *mut Predicate<'static>,
    is_true: bool,
}

// SAFETY: the look is `Send`, and is taken by one thread at a time.
unsafe impl Send for PredicateEntry {}

impl PredicateEntry {
    fn poll(&mut self) -> bool {
        // SAFETY: who lent it is in `lend` until the entry is gone, does not touch it there, and
        // entries are reached under their lock only.
        self.is_true = self.is_true || unsafe { (*self.predicate)() };
        self.is_true
    }
}

/// The registered predicates of a rank. The locked engine owns them. A waiting thread calls
/// [`PolledPredicates::register`]; the leader calls [`PolledPredicates::poll_all`].
pub struct PolledPredicates {
    /// How many there are.
    count: AtomicU32,
    next: AtomicU32,
    entries: Mutex<Vec<PredicateEntry>>,
}

impl Default for PolledPredicates {
    fn default() -> Self {
        Self {
            count: AtomicU32::new(0),
            next: AtomicU32::new(0),
            entries: Mutex::new(Vec::new()),
        }
    }
}

impl std::fmt::Debug for PolledPredicates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "PolledPredicates({})",
            self.count.load(Ordering::Relaxed)
        )
    }
}

/// A look that was lent, in the hands of who lent it.
#[derive(Debug)]
pub struct RegisteredPredicate<'a> {
    predicates: &'a PolledPredicates,
    id: u32,
}

impl PolledPredicates {
    fn lock(&self) -> MutexGuard<'_, Vec<PredicateEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `body` while `predicate` is registered.
    pub fn register<T>(
        &self,
        predicate: &mut Predicate<'_>,
        body: impl FnOnce(&RegisteredPredicate<'_>) -> T,
    ) -> T {
        let predicate: *mut Predicate<'_> = predicate;
        let registered = RegisteredPredicate {
            predicates: self,
            id: self.next.fetch_add(1, Ordering::Relaxed),
        };
        self.lock().push(PredicateEntry {
            id: registered.id,
            // SAFETY: only the lifetime changes, and the entry is gone before this function is
            // left: `RegisteredPredicate` takes it out, and `body` only borrows that.
            predicate: unsafe {
                std::mem::transmute::<*mut Predicate<'_>, *mut Predicate<'static>>(predicate)
            },
            is_true: false,
        });
        // Before the lender looks for itself: SYNC(looks-lent).
        self.count.fetch_add(1, Ordering::SeqCst);
        total_order();
        body(&registered)
    }

    /// Returns whether none is lent. Who sleeps until others write asks after it has said that it
    /// sleeps: whoever lent its look since has looked itself, SYNC(looks-lent).
    #[inline]
    pub fn is_empty(&self) -> bool {
        total_order();
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Takes all looks; `each` hears which have just said yes.
    pub fn poll_all(&self, mut each: impl FnMut(u32)) {
        for entry in self.lock().iter_mut() {
            if !entry.is_true && entry.poll() {
                each(entry.id);
            }
        }
    }
}

impl RegisteredPredicate<'_> {
    /// The id of the predicate, unique among registered ones.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns whether it says or said yes.
    pub fn poll(&self) -> bool {
        let mut entries = self.predicates.lock();
        let own = entries.iter_mut().find(|entry| entry.id == self.id);
        own.is_some_and(PredicateEntry::poll)
    }
}

impl Drop for RegisteredPredicate<'_> {
    fn drop(&mut self) {
        self.predicates.lock().retain(|entry| entry.id != self.id);
        self.predicates.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_look_says_yes_once_and_whoever_released_it_hears_of_it() {
        let (looks, flag) = (PolledPredicates::default(), AtomicBool::new(false));
        let mut asked = 0;
        let mut look = || {
            asked += 1;
            flag.load(Ordering::Acquire)
        };
        assert!(looks.is_empty());
        looks.register(&mut look, |registered| {
            let mut said = Vec::new();
            looks.poll_all(|id| said.push(id));
            assert!(!registered.poll() && said.is_empty() && !looks.is_empty());
            flag.store(true, Ordering::Release);
            looks.poll_all(|id| said.push(id));
            flag.store(false, Ordering::Release);
            looks.poll_all(|id| said.push(id));
            assert!(registered.poll());
            assert_eq!(said, [registered.id()]);
        });
        assert!(looks.is_empty());
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_panic_takes_the_look_back() {
        let looks = PolledPredicates::default();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            looks.register(&mut || false, |_| panic!("on purpose"));
        }));
        assert!(caught.is_err() && looks.is_empty() && looks.lock().is_empty());
    }

    #[test]
    fn another_thread_takes_the_look_of_one_that_waits() {
        let (looks, flag) = (PolledPredicates::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut turns = 0;
                looks.register(&mut || flag.load(Ordering::Acquire), |registered| {
                    while !registered.poll() {
                        turns += 1;
                        std::thread::yield_now();
                    }
                });
                turns
            });
            flag.store(true, Ordering::Release);
            while !waiter.is_finished() {
                looks.poll_all(|_| {});
            }
            waiter.join().unwrap();
        });
    }
}
