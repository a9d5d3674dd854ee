//! The set of cores at which a thread looks for work, and bitmaps that any thread sets and clears.
//!
//! A submitter reads the set to learn whether somebody will find its task. A thread that stops
//! looking leaves the set first and looks once more afterwards. So one of the two sees the other:
//! SYNC(rack-poller), see [`crate::task_slots`]. Bounded by the number of cores given at creation.

use crate::facade::{AtomicU32, AtomicU64, Ordering, total_order};
use crate::pad::CachePadded;

/// Bits that any thread sets and clears.
#[derive(Debug)]
pub struct AtomicBitmap(Box<[CachePadded<AtomicU64>]>);

impl AtomicBitmap {
    /// `len` bits, all clear.
    pub fn new(len: usize) -> Self {
        let words = (0..len.div_ceil(64)).map(|_| CachePadded(AtomicU64::new(0)));
        Self(words.collect())
    }

    /// Sets a bit; `true` if it was clear.
    pub fn set(&self, bit: usize) -> bool {
        let before = self.0[bit / 64].fetch_or(1 << (bit % 64), Ordering::SeqCst);
        total_order();
        before >> (bit % 64) & 1 == 0
    }

    /// Clears a bit; `true` if it was set, so of several one gets it.
    pub fn clear(&self, bit: usize) -> bool {
        self.0[bit / 64].fetch_and(!(1 << (bit % 64)), Ordering::SeqCst) >> (bit % 64) & 1 == 1
    }

    /// A word of the bitmap.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.0
            .get(index)
            .map_or(0, |word| word.load(Ordering::SeqCst))
    }

    /// Returns whether a bit is set that is also set in `mask`.
    #[inline]
    pub fn meets(&self, mask: &[u64]) -> bool {
        mask.iter()
            .enumerate()
            .any(|(index, mask)| *mask != 0 && self.word(index) & mask != 0)
    }
}

/// Places and how many look for work at each.
#[derive(Debug)]
pub struct IdleSet {
    bits: AtomicBitmap,
    counts: Box<[CachePadded<AtomicU32>]>,
}

impl IdleSet {
    /// With `len` places.
    pub fn new(len: usize) -> Self {
        Self {
            bits: AtomicBitmap::new(len),
            counts: (0..len).map(|_| CachePadded(AtomicU32::new(0))).collect(),
        }
    }

    /// One more looks at `place`.
    pub fn enter(&self, place: usize) {
        if self.counts[place].fetch_add(1, Ordering::SeqCst) == 0 {
            self.update_bit(place);
        }
    }

    /// One fewer. The caller looks for work once more afterwards.
    pub fn leave(&self, place: usize) {
        if self.counts[place].fetch_sub(1, Ordering::SeqCst) == 1 {
            self.update_bit(place);
        }
    }

    /// Brings the bit in line with the count. Whoever wrote the bit last has looked at the count
    /// after that, and whoever changes the count later adjusts again: so the last bit written is
    /// right.
    fn update_bit(&self, place: usize) {
        let some = || self.counts[place].load(Ordering::SeqCst) > 0;
        loop {
            let wanted = some();
            match wanted {
                true => self.bits.set(place),
                false => self.bits.clear(place),
            };
            total_order();
            if some() == wanted {
                return;
            }
        }
    }

    /// Returns whether somebody looks for work at one of the places in `mask`.
    #[inline]
    pub fn meets(&self, mask: &[u64]) -> bool {
        self.bits.meets(mask)
    }

    /// A word of the bitmap.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.bits.word(index)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn the_bit_is_right_when_all_have_come_and_gone() {
        loom::model(|| {
            let idle_set = Arc::new(IdleSet::new(1));
            idle_set.enter(0);
            let other = idle_set.clone();
            let thread = loom::thread::spawn(move || {
                other.enter(0);
                other.leave(0);
            });
            idle_set.leave(0);
            thread.join().unwrap();
            assert_eq!(idle_set.word(0), 0);
        });
    }

    #[test]
    fn the_bit_stays_while_one_is_left() {
        loom::model(|| {
            let idle_set = Arc::new(IdleSet::new(1));
            idle_set.enter(0);
            let other = idle_set.clone();
            let thread = loom::thread::spawn(move || other.enter(0));
            idle_set.leave(0);
            thread.join().unwrap();
            assert_eq!(idle_set.word(0), 1);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_by_masks_across_words() {
        let bits = AtomicBitmap::new(130);
        assert!(bits.set(129) && !bits.set(129));
        assert!(bits.meets(&[0, 0, 2]) && !bits.meets(&[u64::MAX, u64::MAX, 1]));
        assert!(bits.clear(129) && !bits.clear(129));
        assert!(!bits.meets(&[u64::MAX; 3]));
    }

    #[test]
    fn a_place_shows_while_anybody_is_there() {
        let idle_set = IdleSet::new(70);
        idle_set.enter(65);
        idle_set.enter(65);
        idle_set.leave(65);
        assert!(idle_set.meets(&[0, 2]));
        idle_set.leave(65);
        assert!(!idle_set.meets(&[0, 2]));
    }
}
