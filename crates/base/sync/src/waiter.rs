//! Waiters: a thread, or anything else that waits in the library, such as a fiber of an executor.
//!
//! Code that waits knows whoever waits by a handle with three powers: an id, `park` and `unpark`.
//! Leadership and notes of waits belong to an id and not to a thread. A thread that enters no
//! other waiter is its own waiter ([`ThreadWaiter`]): it parks on futex words, and is known by its
//! id alone, so that it costs no indirect call. An executor that runs several waiters on one thread
//! implements [`Waiter`], and calls [`enter`] whenever the thread goes on with one of them.
//!
//! A few things belong to threads by nature and stay with them: signal masks, binding to processors
//! and scheduling classes (`garonne_progress::sys`), the wake-ups that a thread defers
//! ([`crate::deferred_wake`]), and sleeping on a doorbell in the kernel ([`crate::doorbell`]). So a
//! waiter that holds a lock or defers wake-ups is not suspended.

use crate::facade::AtomicU32;
use crate::futex;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicUsize, Ordering};

/// Number of a waiter. No two waiters of a process ever have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterId(usize);

impl WaiterId {
    /// The least number of a waiter; words that name waiters give smaller ones other meanings.
    pub const LEAST: usize = 2;
    /// Above every number of a waiter: the highest bit of a word that names waiters.
    pub const END: usize = 1 << (usize::BITS - 1);

    /// Makes an id from a number that no other waiter has.
    ///
    /// # Panics
    /// If it is not between [`WaiterId::LEAST`] and [`WaiterId::END`].
    pub const fn new(number: usize) -> Self {
        assert!(
            number >= Self::LEAST && number < Self::END,
            "these numbers are taken"
        );
        Self(number)
    }

    /// Draws an id that no other waiter of this process has.
    pub fn fresh() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(WaiterId::LEAST);
        Self::new(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> usize {
        self.0
    }
}

/// State of a waiter between its turns: its id, and a word of the layer above.
#[derive(Debug)]
pub struct WaiterState {
    id: WaiterId,
    marks: PlainU32,
}

impl WaiterState {
    /// The state of a new waiter.
    #[allow(clippy::new_without_default, reason = "it draws an id")]
    pub fn new() -> Self {
        Self {
            id: WaiterId::fresh(),
            marks: PlainU32::new(0),
        }
    }
}

/// A waiter. Its executor owns it, calls [`enter`] before it runs it, and implements its sleep.
///
/// Every method but `park` and `yield_now` may be called by any thread, also by one that holds an
/// engine's lock. So `unpark` neither waits nor calls the library, and defers system wake-ups
/// ([`crate::deferred_wake::wake_all`]).
pub trait Waiter: Debug + Send + Sync {
    /// Returns what the library keeps of this waiter.
    fn state(&self) -> &WaiterState;

    /// Returns the waiter's id.
    fn id(&self) -> WaiterId {
        self.state().id
    }

    /// Suspends the waiter, which calls this itself, while `word` is `expected`. May return early.
    /// A call of `unpark` after `word` was read ends it.
    fn park(&self, word: &AtomicU32, expected: u32);

    /// Resumes the waiter after `word` was changed. A waiter that is not suspended need not notice.
    fn unpark(&self, word: &AtomicU32);

    /// Lets other waiters of the calling thread run, on behalf of this one. `false`: none wanted
    /// to, so the thread may sleep.
    fn yield_now(&self) -> bool;

    /// The calling thread is about to sleep in the kernel, on behalf of this waiter. Others that
    /// its executor would run there need another thread meanwhile.
    fn begins_sleep(&self) {}
}

/// A thread as its own waiter: it sleeps on futex words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadWaiter(WaiterId);

impl ThreadWaiter {
    /// The thread of this id.
    pub const fn new(id: WaiterId) -> Self {
        Self(id)
    }

    /// Sleeps while `word` is `expected`. May return early.
    #[inline]
    pub fn park(self, word: &AtomicU32, expected: u32) {
        futex::wait(word, expected, None);
    }

    /// Wakes the thread that sleeps on `word`, at once or when the caller has released its lock.
    /// An associated function, because the word alone says who sleeps there.
    #[inline]
    pub fn unpark(word: &AtomicU32) {
        crate::deferred_wake::wake_all(word);
    }
}

/// Handle of a waiter. Threads are told by their id alone.
#[derive(Clone, Debug)]
pub enum WaiterHandle {
    /// A thread that waits for itself.
    Thread(ThreadWaiter),
    /// A waiter of an executor.
    Logical(Arc<dyn Waiter>),
}

impl WaiterHandle {
    /// Returns the waiter's id.
    #[inline]
    pub fn id(&self) -> WaiterId {
        match self {
            Self::Thread(thread) => thread.0,
            Self::Logical(waiter) => waiter.id(),
        }
    }

    /// Sleeps while `word` is `expected`. May return early. For the waiter itself.
    #[inline]
    pub fn park(&self, word: &AtomicU32, expected: u32) {
        match self {
            Self::Thread(thread) => thread.park(word, expected),
            Self::Logical(waiter) => waiter.park(word, expected),
        }
    }

    /// Lets other waiters of the calling thread run. `false`: none wanted to, or the waiter has the
    /// thread for itself.
    #[inline]
    pub fn yield_now(&self) -> bool {
        match self {
            Self::Thread(_) => false,
            Self::Logical(waiter) => waiter.yield_now(),
        }
    }

    /// The calling thread is about to sleep in the kernel, on behalf of this waiter.
    #[inline]
    pub fn begins_sleep(&self) {
        if let Self::Logical(waiter) = self {
            waiter.begins_sleep();
        }
    }

    /// Tells whether the waiter shares its thread with others.
    #[inline]
    pub fn is_logical(&self) -> bool {
        matches!(self, Self::Logical(_))
    }
}

impl From<WaiterId> for WaiterHandle {
    /// The thread of this id.
    fn from(id: WaiterId) -> Self {
        Self::Thread(ThreadWaiter(id))
    }
}

/// The waiter for which the calling thread acts at the moment.
struct Current {
    /// The waiter's id; 0: the thread's own, which has none yet.
    id: Cell<usize>,
    /// The waiter's marks.
    marks: Cell<u32>,
    /// The waiter was entered.
    is_logical: Cell<bool>,
}

impl Current {
    const fn unknown() -> Self {
        Self {
            id: Cell::new(0),
            marks: Cell::new(0),
            is_logical: Cell::new(false),
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
thread_local! {
    static CURRENT: Current = const { Current::unknown() };
    static ENTERED: RefCell<Option<Arc<dyn Waiter>>> = const { RefCell::new(None) };
}
#[cfg(any(loom, shuttle))]
crate::facade::thread_local! {
    static CURRENT: Current = Current::unknown();
    static ENTERED: RefCell<Option<Arc<dyn Waiter>>> = RefCell::new(None);
}

// These functions are not inlined: a waiter that went on in another thread would read the words of
// the thread that it came from.

/// Returns the id of the waiter for which the calling thread acts.
#[inline(never)]
pub fn current_id() -> WaiterId {
    CURRENT.with(|current| match current.id.get() {
        0 => {
            let id = WaiterId::fresh();
            current.id.set(id.0);
            id
        }
        number => WaiterId(number),
    })
}

/// Returns the handle of the waiter for which the calling thread acts.
#[inline(never)]
pub fn current() -> WaiterHandle {
    let entered = CURRENT.with(|current| current.is_logical.get()).then(|| {
        // A thread that ends acts for itself.
        let entered = ENTERED.try_with(|entered| entered.borrow().clone());
        entered.ok().flatten()
    });
    match entered.flatten() {
        Some(waiter) => WaiterHandle::Logical(waiter),
        None => current_id().into(),
    }
}

/// Returns the marks of the waiter for which the calling thread acts: a word that the layer above
/// keeps for each waiter, 0 in the beginning.
#[inline(never)]
pub fn marks() -> u32 {
    CURRENT.with(|current| current.marks.get())
}

/// Changes the marks of the waiter for which the calling thread acts.
#[inline(never)]
pub fn change_marks(change: impl FnOnce(u32) -> u32) {
    CURRENT.with(|current| current.marks.set(change(current.marks.get())));
}

/// The calling thread acts for `waiter` until the value that this returns is dropped.
pub fn enter(waiter: Arc<dyn Waiter>) -> EnteredWaiter {
    let state = waiter.state();
    let entered = Current {
        id: Cell::new(state.id.0),
        marks: Cell::new(state.marks.load(Ordering::Relaxed)),
        is_logical: Cell::new(true),
    };
    let outer = CURRENT.with(|current| exchange(current, &entered));
    let outer_waiter = ENTERED.with(|current| current.replace(Some(waiter)));
    EnteredWaiter {
        outer,
        outer_waiter,
        stays: PhantomData,
    }
}

/// Writes `next` into `current` and returns what was there.
fn exchange(current: &Current, next: &Current) -> Current {
    Current {
        id: Cell::new(current.id.replace(next.id.get())),
        marks: Cell::new(current.marks.replace(next.marks.get())),
        is_logical: Cell::new(current.is_logical.replace(next.is_logical.get())),
    }
}

/// While this lives the calling thread acts for a waiter that it entered. Stays on its thread.
#[must_use = "dropping it leaves the waiter"]
pub struct EnteredWaiter {
    outer: Current,
    outer_waiter: Option<Arc<dyn Waiter>>,
    stays: PhantomData<*const ()>,
}

impl Debug for EnteredWaiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnteredWaiter").finish_non_exhaustive()
    }
}

impl Drop for EnteredWaiter {
    fn drop(&mut self) {
        let entered = ENTERED.with(|current| current.replace(self.outer_waiter.take()));
        let left = CURRENT.with(|current| exchange(current, &self.outer));
        if let Some(entered) = entered {
            let marks = &entered.state().marks;
            marks.store(left.marks.get(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Named(WaiterState);

    impl Waiter for Named {
        fn state(&self) -> &WaiterState {
            &self.0
        }

        fn park(&self, _: &AtomicU32, _: u32) {}

        fn unpark(&self, _: &AtomicU32) {}

        fn yield_now(&self) -> bool {
            true
        }
    }

    #[test]
    fn each_thread_has_an_id_of_its_own_and_keeps_it() {
        let mine = current_id();
        let theirs = std::thread::spawn(|| (current_id(), current_id()))
            .join()
            .unwrap();
        assert_eq!(theirs.0, theirs.1);
        assert_ne!(mine, theirs.0);
        assert_eq!((mine, current().id()), (current_id(), mine));
        assert!(!current().is_logical() && !current().yield_now());
    }

    #[test]
    fn a_thread_acts_for_the_waiter_that_it_entered_last() {
        let waiters = [(); 2].map(|()| Arc::new(Named(WaiterState::new())));
        let ids = || waiters.each_ref().map(|waiter| waiter.id());
        let thread = current_id();
        change_marks(|_| 1);
        let first = enter(waiters[0].clone());
        assert_eq!((current_id(), marks()), (ids()[0], 0));
        change_marks(|marks| marks | 2);
        let second = enter(waiters[1].clone());
        assert!(current().id() == ids()[1] && current().yield_now() && marks() == 0);
        drop(second);
        assert_eq!((current().id(), marks()), (ids()[0], 2));
        drop(first);
        assert_eq!((current().id(), marks()), (thread, 1));
        // On another thread it finds its marks again.
        let again = waiters[0].clone();
        let theirs = std::thread::spawn(move || {
            let _entered = enter(again);
            (current_id(), marks())
        });
        assert_eq!(theirs.join().unwrap(), (ids()[0], 2));
    }

    #[test]
    #[should_panic(expected = "these numbers are taken")]
    fn words_without_a_waiter_are_no_ids() {
        WaiterId::new(1);
    }
}
