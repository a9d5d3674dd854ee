//! A predicate that a waiter registers, the leader takes, and the waiter withdraws, in every order.

use super::*;
use crate::facade::{Cell, Notify};
use loom::sync::Arc;

/// Memory that another process writes, a bell for whoever said that it sleeps, and the slot of the
/// one that lent its look.
struct Model {
    looks: PolledPredicates,
    written: AtomicU32,
    armed: AtomicU32,
    over: AtomicU32,
    bell: Notify,
    slot: Notify,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            looks: PolledPredicates::default(),
            written: AtomicU32::new(0),
            armed: AtomicU32::new(0),
            over: AtomicU32::new(0),
            bell: Notify::new(),
            slot: Notify::new(),
        })
    }

    /// Writes, and rings for whoever may not have seen it.
    fn write(&self) {
        self.written.store(1, Ordering::SeqCst);
        total_order();
        if self.armed.load(Ordering::SeqCst) == 1 {
            self.bell.notify();
        }
    }

    fn wait(&self) {
        let mut look = || self.written.load(Ordering::Acquire) == 1;
        self.looks.register(&mut look, |lent| {
            while !lent.poll() {
                self.slot.wait();
            }
        });
        self.over.store(1, Ordering::SeqCst);
        self.bell.notify();
    }

    /// Polls for the one that waits until that one is there no more.
    fn poll(&self) {
        while self.over.load(Ordering::SeqCst) == 0 {
            self.armed.store(1, Ordering::SeqCst);
            if !self.looks.is_empty() {
                self.looks.poll_all(|_| self.slot.notify());
            }
            self.bell.wait();
        }
    }
}

#[test]
fn who_released_its_look_hears_of_what_is_written() {
    // Three threads that wait for each other: three switches where none is due find what was tried.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(|| {
        let model = Model::new();
        let threads = [Model::wait, Model::write].map(|does| {
            let model = model.clone();
            loom::thread::spawn(move || does(&model))
        });
        model.poll();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// What a look reaches. loom checks that no two accesses meet.
struct Own(Cell<u32>);

// SAFETY: that is what the model is about.
unsafe impl Sync for Own {}

impl Own {
    fn access(&self) -> u32 {
        self.0.with_mut(|times| {
            // SAFETY: as above.
            unsafe {
                *times += 1;
                *times
            }
        })
    }
}

/// What a look reaches is its lender's again when `lend` returns.
#[test]
fn nobody_looks_after_it_was_taken_back() {
    loom::model(|| {
        let looks = Arc::new(PolledPredicates::default());
        let taker = {
            let looks = looks.clone();
            loom::thread::spawn(move || looks.poll_all(|_| {}))
        };
        let own = Own(Cell::new(0));
        looks.register(&mut || own.access() > 1, |_| {});
        // Nobody reaches it any more.
        own.access();
        taker.join().unwrap();
    });
}
