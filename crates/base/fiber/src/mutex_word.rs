//! The word of a mutex: whether somebody holds it, and whether others wait in its queue.
//!
//! Taking a free mutex and releasing one for which nobody waits change the word alone. All else
//! happens under the lock of the queue: a waiter marks the word and joins, and whoever releases the
//! mutex takes the first waiter out, who holds it from then on.

use crate::facade::{AtomicU32, Ordering};

/// Nobody holds it.
const FREE: u32 = 0;
/// Somebody holds it, and nobody waits.
const HELD: u32 = 1;
/// Somebody holds it, and others wait.
const CONTENDED: u32 = 2;

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct MutexWord(AtomicU32);

impl MutexWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes it if nobody holds it, or says that somebody waits. Under the queue's lock: an unlock
    /// comes before, or finds the waiter.
    pub(crate) fn take_or_mark(&self) -> bool {
        self.0.swap(CONTENDED, Ordering::Acquire) == FREE
    }

    /// Releases it if nobody waits. `false`: the queue must be asked.
    #[inline]
    pub(crate) fn try_unlock(&self) -> bool {
        self.0
            .compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases it: the queue was empty, under its lock.
    pub(crate) fn free(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    /// Hands it to a waiter, under the queue's lock; nobody else waits unless `others`.
    pub(crate) fn hand_over(&self, others: bool) {
        if !others {
            self.0.store(HELD, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use std::collections::VecDeque;

    struct Model {
        word: MutexWord,
        queue: Mutex<VecDeque<Arc<AtomicU32>>>,
        value: AtomicU32,
    }

    /// What `RawMutex` and its queue do, with a waiter that looks at its word until it is woken.
    fn add_one(model: &Model) {
        if !model.word.try_lock() {
            let signal = Arc::new(AtomicU32::new(0));
            let waits = {
                let mut queue = model.queue.lock().unwrap();
                let taken = model.word.take_or_mark();
                if !taken {
                    queue.push_back(signal.clone());
                }
                !taken
            };
            while waits && signal.load(Ordering::Acquire) == 0 {
                loom::thread::yield_now();
            }
        }
        // Two holders at once would lose a step, or not see each other's.
        let value = model.value.load(Ordering::Relaxed);
        model.value.store(value + 1, Ordering::Relaxed);
        if !model.word.try_unlock() {
            let next = {
                let mut queue = model.queue.lock().unwrap();
                let next = queue.pop_front();
                match &next {
                    Some(_) => model.word.hand_over(!queue.is_empty()),
                    None => model.word.free(),
                }
                next
            };
            if let Some(next) = next {
                next.store(1, Ordering::Release);
            }
        }
    }

    /// Two threads take the mutex twice each; loom reports two holders at once, and waiters that
    /// nobody wakes.
    #[test]
    fn a_mutex_has_one_holder_and_forgets_no_waiter() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let model = Arc::new(Model {
                word: MutexWord::new(),
                queue: Mutex::new(VecDeque::new()),
                value: AtomicU32::new(0),
            });
            let others: Vec<_> = (0..1)
                .map(|_| {
                    let model = model.clone();
                    loom::thread::spawn(move || (0..2).for_each(|_| add_one(&model)))
                })
                .collect();
            (0..2).for_each(|_| add_one(&model));
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(model.value.load(Ordering::Relaxed), 4);
            assert!(model.word.try_lock());
        });
    }
}
