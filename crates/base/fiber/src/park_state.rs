//! Whether a fiber runs, is parked, or has a permit to go on: the word by which no wake-up is lost.
//!
//! A fiber that parks first leaves its stack. Its worker then settles the word
//! ([`ParkState::settle`]): only from then on may another worker resume the fiber. Whoever unparks
//! the fiber before that leaves a permit, which the worker finds.

use crate::facade::{AtomicU32, Ordering};

/// The fiber runs, is queued, or is about to be parked.
const ACTIVE: u32 = 0;
/// The fiber is parked. Whoever unparks it queues it.
const PARKED: u32 = 1;
/// The fiber was unparked before it was parked.
const PERMIT: u32 = 2;

/// The word of a fiber.
#[derive(Debug)]
pub(crate) struct ParkState(AtomicU32);

impl ParkState {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(ACTIVE))
    }

    /// Takes the permit. The fiber itself calls this, and does not park if there was one.
    pub(crate) fn take_permit(&self) -> bool {
        // SYNC(fiber-permit): pairs with the permit in `unpark`.
        let taken = self
            .0
            .compare_exchange(PERMIT, ACTIVE, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Parks the fiber, which has left its stack. `false`: it had a permit, and goes on.
    pub(crate) fn settle(&self) -> bool {
        // SYNC(fiber-parked): the stack is written before; pairs with `unpark`.
        let parked = self
            .0
            .compare_exchange(ACTIVE, PARKED, Ordering::Release, Ordering::Relaxed);
        if parked.is_err() {
            // SYNC(fiber-permit)
            self.0.swap(ACTIVE, Ordering::Acquire);
        }
        parked.is_ok()
    }

    /// Ends a park, now or in advance. `true`: the caller queues the fiber.
    pub(crate) fn unpark(&self) -> bool {
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            let next = if state == PARKED { ACTIVE } else { PERMIT };
            // SYNC(fiber-parked), SYNC(fiber-permit)
            match self
                .0
                .compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return state == PARKED,
                Err(found) => state = found,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    #[derive(Default)]
    struct Shared {
        stack: AtomicU32,
        resumed: AtomicU32,
        written: AtomicU32,
    }

    impl Shared {
        /// Goes on with the fiber, which sees what its last worker left on the stack.
        fn resume(&self) {
            assert_eq!(self.stack.load(Ordering::Relaxed), 1);
            self.resumed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A worker parks a fiber while two others unpark it. The fiber goes on, on one of them only.
    #[test]
    fn a_parked_fiber_is_resumed_once() {
        loom::model(|| {
            let shared = Arc::new((ParkState::new(), Shared::default()));
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        shared.1.written.fetch_add(1, Ordering::Relaxed);
                        if shared.0.unpark() {
                            shared.1.resume();
                        }
                    })
                })
                .collect();
            shared.1.stack.store(1, Ordering::Relaxed);
            if !shared.0.settle() {
                // The permit brings what its giver wrote.
                assert!(shared.1.written.load(Ordering::Relaxed) >= 1);
                shared.1.resume();
            }
            wakers.into_iter().for_each(|waker| waker.join().unwrap());
            assert_eq!(shared.1.resumed.load(Ordering::Relaxed), 1);
        });
    }
}
