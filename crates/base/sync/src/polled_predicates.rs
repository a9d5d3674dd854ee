//! Looks that a thread lends to the one that polls for it: how to see whether what it waits for
//! lies in memory that others write.
//!
//! The poller cannot know of such memory by itself, and who sleeps cannot look. So who waits leaves
//! its look here while it sleeps, and the poller takes it whenever it would ask for itself. A look
//! that said yes is not taken again. Looks exclude each other, take no lock and wait for nothing.
//! Bounded by the threads that wait.

use crate::facade::{AtomicU32, Mutex, MutexGuard, Ordering, total_order};
use std::sync::PoisonError;

/// What sees whether something has come.
type Predicate<'a> = dyn FnMut() -> bool + Send + 'a;

struct PredicateEntry {
    id: u32,
    look: *mut Predicate<'static>,
    came: bool,
}

// SAFETY: the look is `Send`, and is taken by one thread at a time.
unsafe impl Send for PredicateEntry {}

impl PredicateEntry {
    fn take(&mut self) -> bool {
        // SAFETY: who lent it is in `lend` until the entry is gone, does not touch it there, and
        // entries are reached under their lock only.
        self.came = self.came || unsafe { (*self.look)() };
        self.came
    }
}

/// See the module's paragraph.
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
    looks: &'a PolledPredicates,
    id: u32,
}

impl PolledPredicates {
    fn lock(&self) -> MutexGuard<'_, Vec<PredicateEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `body` while `look` is lent.
    pub fn lend<T>(
        &self,
        look: &mut Predicate<'_>,
        body: impl FnOnce(&RegisteredPredicate<'_>) -> T,
    ) -> T {
        let look: *mut Predicate<'_> = look;
        let lent = RegisteredPredicate {
            looks: self,
            id: self.next.fetch_add(1, Ordering::Relaxed),
        };
        self.lock().push(PredicateEntry {
            id: lent.id,
            // SAFETY: only the lifetime changes, and the entry is gone before this function is
            // left: `RegisteredPredicate` takes it out, and `body` only borrows that.
            look: unsafe {
                std::mem::transmute::<*mut Predicate<'_>, *mut Predicate<'static>>(look)
            },
            came: false,
        });
        // Before the lender looks for itself: SYNC(looks-lent).
        self.count.fetch_add(1, Ordering::SeqCst);
        total_order();
        body(&lent)
    }

    /// Whether none is lent. Who sleeps until others write asks after it has said that it sleeps:
    /// whoever lent its look since has looked itself, SYNC(looks-lent).
    #[inline]
    pub fn is_empty(&self) -> bool {
        total_order();
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Takes all looks; `each` hears which have just said yes.
    pub fn take(&self, mut each: impl FnMut(u32)) {
        for entry in self.lock().iter_mut() {
            if !entry.came && entry.take() {
                each(entry.id);
            }
        }
    }
}

impl RegisteredPredicate<'_> {
    /// Its name; no other that is lent has it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether it says or said yes.
    pub fn came(&self) -> bool {
        let mut entries = self.looks.lock();
        let own = entries.iter_mut().find(|entry| entry.id == self.id);
        own.is_some_and(PredicateEntry::take)
    }
}

impl Drop for RegisteredPredicate<'_> {
    fn drop(&mut self) {
        self.looks.lock().retain(|entry| entry.id != self.id);
        self.looks.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_look_says_yes_once_and_whoever_lent_it_hears_of_it() {
        let (looks, flag) = (PolledPredicates::default(), AtomicBool::new(false));
        let mut asked = 0;
        let mut look = || {
            asked += 1;
            flag.load(Ordering::Acquire)
        };
        assert!(looks.is_empty());
        looks.lend(&mut look, |lent| {
            let mut said = Vec::new();
            looks.take(|id| said.push(id));
            assert!(!lent.came() && said.is_empty() && !looks.is_empty());
            flag.store(true, Ordering::Release);
            looks.take(|id| said.push(id));
            flag.store(false, Ordering::Release);
            looks.take(|id| said.push(id));
            assert!(lent.came());
            assert_eq!(said, [lent.id()]);
        });
        assert!(looks.is_empty());
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_panic_takes_the_look_back() {
        let looks = PolledPredicates::default();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            looks.lend(&mut || false, |_| panic!("on purpose"));
        }));
        assert!(caught.is_err() && looks.is_empty() && looks.lock().is_empty());
    }

    #[test]
    fn another_thread_takes_the_look_of_one_that_waits() {
        let (looks, flag) = (PolledPredicates::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut turns = 0;
                looks.lend(&mut || flag.load(Ordering::Acquire), |lent| {
                    while !lent.came() {
                        turns += 1;
                        std::thread::yield_now();
                    }
                });
                turns
            });
            flag.store(true, Ordering::Release);
            while !waiter.is_finished() {
                looks.take(|_| {});
            }
            waiter.join().unwrap();
        });
    }
}
