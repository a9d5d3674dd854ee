//! The flag of a progress thread that spins on its ownership word instead of sleeping.
//!
//! The progress thread sets and clears the flag; a thread that releases ownership reads it. The
//! order between the flag and the ownership word is what matters: SYNC(hands-vigil).

use crate::facade::{AtomicBool, Ordering, fence};

/// Flag: a progress thread that does nothing is awake and looks at its word, so that nobody has
/// to be asked to call it for what is lent now.
#[derive(Debug)]
pub struct ProgressSpin(AtomicBool);

impl ProgressSpin {
    /// A flag of a progress thread that does not spin.
    #[allow(
        clippy::new_without_default,
        reason = "loom's atomics are made at run time"
    )]
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Returns whether it was a moment ago.
    #[inline]
    pub fn is_spinning(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The progress thread looks from now on. For the progress thread alone.
    pub fn begin(&self) {
        if !self.is_spinning() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the spin, before one last look at the ownership word and at open operations. For the
    /// progress thread alone, or for a thread that knows that it is gone.
    pub fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
        // Before that look: SYNC(hands-vigil).
        fence(Ordering::SeqCst);
    }

    /// After ownership was released: whether the progress thread sees that without being called.
    pub fn will_see_release(&self) -> bool {
        // The lending before the look: SYNC(hands-vigil).
        fence(Ordering::SeqCst);
        self.is_spinning()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::progress_owner::ProgressOwner;
    use loom::sync::Arc;

    /// Ownership is released at the moment at which a progress thread that was awake goes to sleep.
    #[test]
    fn a_progress_thread_that_ends_its_spin_sees_what_is_released_or_the_releasing_thread_knows_that_it_has_to_be_called()
     {
        loom::model(|| {
            let shared = Arc::new((ProgressOwner::new(), ProgressSpin::new()));
            shared.1.begin();
            let helper = shared.clone();
            let thread = loom::thread::spawn(move || {
                helper.1.end();
                helper.0.enter().is_some()
            });
            shared.0.release();
            let relied = shared.1.will_see_release();
            let entered = thread.join().unwrap();
            assert!(entered || !relied, "what is lent would be left lying");
        });
    }

    /// Ownership is released while the progress thread is inside: its last look sees what was left
    /// open before.
    #[test]
    fn a_progress_thread_that_ends_its_spin_inside_sees_what_was_left_open_or_the_releasing_thread_knows()
     {
        loom::model(|| {
            let shared = Arc::new((
                ProgressOwner::new(),
                ProgressSpin::new(),
                AtomicBool::new(false),
            ));
            shared.1.begin();
            shared.0.release();
            let helper = shared.clone();
            let thread = loom::thread::spawn(move || {
                let inside = helper.0.enter();
                helper.1.end();
                let seen = helper.2.load(Ordering::Relaxed);
                drop(inside);
                seen
            });
            shared.2.store(true, Ordering::Relaxed);
            shared.0.release();
            let relied = shared.1.will_see_release();
            let seen = thread.join().unwrap();
            assert!(seen || !relied, "what is open would be left lying");
        });
    }
}
