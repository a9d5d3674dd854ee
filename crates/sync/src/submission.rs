//! The submission ring: where threads that find a shard busy leave their operations for whoever holds it.
//!
//! Bounded, in-process, many producers, one consumer at a time (the shard's holder). Every slot carries a sequence, so
//! producers and consumer meet in the slot and share no counter that both write. `Full` is the producer's to handle.

use crate::facade::{AtomicUsize, Cell, Ordering};
use crate::pad::CachePadded;
use std::mem::MaybeUninit;

struct Slot<T> {
    /// `position`: free for the producer at that position. `position + 1`: filled for the consumer there.
    sequence: AtomicUsize,
    value: Cell<MaybeUninit<T>>,
}

/// A bounded queue from many threads to the holder of a lock.
pub struct Submission<T> {
    slots: Box<[Slot<T>]>,
    tail: CachePadded<AtomicUsize>,
    head: CachePadded<AtomicUsize>,
}

// SAFETY: a value is owned by the producer until its slot's sequence is released, then by the consumer.
unsafe impl<T: Send> Send for Submission<T> {}
// SAFETY: as above; no `&T` is ever shared.
unsafe impl<T: Send> Sync for Submission<T> {}

impl<T> std::fmt::Debug for Submission<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submission")
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl<T> Submission<T> {
    /// Room for `slots` values, rounded up to a power of two.
    pub fn new(slots: usize) -> Self {
        let slots = slots.max(2).next_power_of_two();
        Self {
            slots: (0..slots)
                .map(|i| Slot {
                    sequence: AtomicUsize::new(i),
                    value: Cell::new(MaybeUninit::uninit()),
                })
                .collect(),
            tail: CachePadded(AtomicUsize::new(0)),
            head: CachePadded(AtomicUsize::new(0)),
        }
    }

    /// Adds a value, or gives it back when the ring is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[tail & (self.slots.len() - 1)];
            // Acquire: the consumer has moved the old value out before we write the new one. SYNC(submission-free).
            let lag = slot.sequence.load(Ordering::Acquire).wrapping_sub(tail) as isize;
            if lag < 0 {
                return Err(value);
            }
            if lag > 0 {
                tail = self.tail.load(Ordering::Relaxed);
                continue;
            }
            match self.tail.compare_exchange_weak(
                tail,
                tail.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // SAFETY: the claim of `tail` makes this thread the slot's only user until the store below.
                    slot.value.with_mut(|cell| unsafe { (*cell).write(value) });
                    // Release: the consumer sees the value. SYNC(submission-filled).
                    slot.sequence.store(tail.wrapping_add(1), Ordering::Release);
                    return Ok(());
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Takes the oldest value. Called by one thread at a time: the holder of the lock this ring belongs to. (Two at
    /// once lose nothing and take nothing twice; they only compete.)
    pub fn pop(&self) -> Option<T> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[head & (self.slots.len() - 1)];
            // Acquire: the producer's value. SYNC(submission-filled).
            let lag = slot
                .sequence
                .load(Ordering::Acquire)
                .wrapping_sub(head.wrapping_add(1)) as isize;
            if lag < 0 {
                return None;
            }
            if lag > 0 {
                head = self.head.load(Ordering::Relaxed);
                continue;
            }
            match self.head.compare_exchange_weak(
                head,
                head.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // SAFETY: the claim of `head` makes this thread the owner of the initialised value.
                    let value = slot.value.with_mut(|cell| unsafe { (*cell).assume_init_read() });
                    // Release: the value is out before a producer writes the slot again. SYNC(submission-free).
                    slot.sequence
                        .store(head.wrapping_add(self.slots.len()), Ordering::Release);
                    return Some(value);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Whether nothing was in it a moment ago. One load in the common case.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        let slot = &self.slots[head & (self.slots.len() - 1)];
        // Acquire keeps later reads of the caller behind this look, as `pop` would. SYNC(submission-filled).
        slot.sequence.load(Ordering::Acquire) != head.wrapping_add(1)
    }
}

impl<T> Drop for Submission<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn each_pushed_value_is_popped_once() {
        loom::model(|| {
            let ring = Arc::new(Submission::new(2));
            let threads: Vec<_> = (1..=2u32)
                .map(|n| {
                    let ring = ring.clone();
                    loom::thread::spawn(move || ring.push(n).is_ok())
                })
                .collect();
            let mut seen = 0;
            if let Some(n) = ring.pop() {
                seen += n;
            }
            for thread in threads {
                assert!(thread.join().unwrap());
            }
            while let Some(n) = ring.pop() {
                seen += n;
            }
            assert_eq!(seen, 3);
        });
    }

    #[test]
    fn a_slot_is_reused_only_after_its_value_left() {
        loom::model(|| {
            let ring = Arc::new(Submission::new(2));
            assert!(ring.push(1u32).is_ok() && ring.push(2).is_ok());
            let other = ring.clone();
            let thread = loom::thread::spawn(move || other.push(3).is_ok());
            assert_eq!(ring.pop(), Some(1));
            let third = thread.join().unwrap();
            assert_eq!(ring.pop(), Some(2));
            assert_eq!(ring.pop(), third.then_some(3));
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_gives_the_value_back_and_keeps_the_order_of_the_rest() {
        let ring = Submission::new(4);
        for n in 0..4 {
            ring.push(n).unwrap();
        }
        assert_eq!(ring.push(9), Err(9));
        assert!(!ring.is_empty());
        assert_eq!(
            std::iter::from_fn(|| ring.pop()).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert!(ring.is_empty());
    }

    #[test]
    fn values_left_inside_are_dropped_with_the_ring() {
        let value = std::sync::Arc::new(());
        let ring = Submission::new(2);
        ring.push(value.clone()).unwrap();
        drop(ring);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}
