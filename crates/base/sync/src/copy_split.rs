//! The division of a copy between two processes: one word that both advance from opposite ends.
//!
//! The owner of a region owns the word, which lies where both processes can reach it. The owner
//! takes units from the front, the peer from the back, each by compare-and-swap. So no unit is
//! given twice, and neither side waits for the other. An owner that offered its data and wants it
//! back withdraws. That succeeds exactly if the peer has taken nothing; from then on the peer gets
//! nothing. Bounded: one word. The word only divides the work. Leases and packets order the data,
//! hence all accesses are relaxed.

use crate::facade::{AtomicU64, Ordering};

/// What the owner's half says once all is withdrawn: more than any data has.
const WITHDRAWN: u64 = u32::MAX as u64;

/// Largest number of units that can be divided.
pub const UNITS_MAX: u32 = u32::MAX / 2;

/// The word: units taken by the owner (low half) and by the peer (high half).
#[derive(Clone, Copy, Debug)]
pub struct CopySplit<'a>(&'a AtomicU64);

/// The word says what cannot be: the other side changed it against the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptSplit;

/// Size of the parts that are taken: a quarter of what is left, or half of it as long as the other
/// side took nothing. So whoever comes late finds most of the rest still to be taken, and a side
/// that is alone has it in few parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPolicy {
    /// Units at least, as far as there are so many.
    pub least: u16,
    /// Units at most.
    pub most: u16,
    /// Units at most as long as the other side took nothing.
    pub alone: u16,
}

impl ChunkPolicy {
    /// Always so many.
    pub fn fixed(units: u16) -> Self {
        Self {
            least: units,
            most: units,
            alone: units,
        }
    }

    /// Encodes the policy as a word of shared memory. `FORMAT`: 16 bits each, `most` lowest, then
    /// `least`, then `alone`.
    pub fn to_word(self) -> u64 {
        u64::from(self.most) | u64::from(self.least) << 16 | u64::from(self.alone) << 32
    }

    /// Whatever stands in a word, each number brought between 1 and `bound`.
    pub fn from_word(word: u64, bound: u16) -> Self {
        let number = |at: u32| ((word >> at) as u16).clamp(1, bound.max(1));
        Self {
            least: number(16),
            most: number(0),
            alone: number(32),
        }
    }

    /// Units to take when `left` are left and the other side took `others`.
    fn of(self, left: u32, others: u32) -> u32 {
        let (share, most) = match others {
            0 => (left / 2, self.alone),
            _ => (left / 4, self.most),
        };
        share.min(most.into()).max(self.least.into()).min(left)
    }
}

/// Units that the peer took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerChunk {
    /// The first of them.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Nothing is left.
    pub last: bool,
}

impl<'a> CopySplit<'a> {
    /// The division in this word, which is 0 at first.
    pub fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Nobody has taken anything. Called by the owner before its peer hears of the data.
    pub fn clear(self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The owner, which took `ours` of `all` units before, takes a portion more: how many. 0:
    /// nothing is left.
    ///
    /// # Errors
    /// When the word cannot be true.
    pub fn take_front(
        self,
        ours: u32,
        all: u32,
        portion: ChunkPolicy,
    ) -> Result<u32, CorruptSplit> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (front, back) = (seen as u32, (seen >> 32) as u32);
            if front != ours || back > all.saturating_sub(ours) {
                return Err(CorruptSplit);
            }
            let take = portion.of(all - ours - back, back);
            if take == 0 {
                return Ok(0);
            }
            match self.0.compare_exchange(
                seen,
                seen + u64::from(take),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(take),
                Err(now) => seen = now,
            }
        }
    }

    /// The peer takes a portion of `all` units. `None`: nothing is left, or it was withdrawn.
    pub fn take_back(self, all: u32, portion: ChunkPolicy) -> Option<PeerChunk> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (front, back) = (seen as u32, (seen >> 32) as u32);
            let left = all.checked_sub(back)?.checked_sub(front)?;
            let count = portion.of(left, front);
            if count == 0 {
                return None;
            }
            match self.0.compare_exchange(
                seen,
                seen + (u64::from(count) << 32),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Some(PeerChunk {
                        first: all - back - count,
                        count,
                        last: count == left,
                    });
                }
                Err(now) => seen = now,
            }
        }
    }

    /// The owner wants all of it back. `true`: the peer has taken nothing and never will; `false`:
    /// it has.
    pub fn withdraw(self) -> bool {
        match self
            .0
            .compare_exchange(0, WITHDRAWN, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => true,
            Err(seen) => seen == WITHDRAWN,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_withdrawn_gives_nothing_and_what_was_taken_is_not_withdrawn() {
        let word = AtomicU64::new(0);
        let division = CopySplit::new(&word);
        assert!(division.withdraw() && division.withdraw());
        for all in [0, 1, 7, UNITS_MAX] {
            assert_eq!(division.take_back(all, ChunkPolicy::fixed(1)), None);
        }
        division.clear();
        let taken = PeerChunk {
            first: 5,
            count: 2,
            last: false,
        };
        assert_eq!(division.take_back(7, ChunkPolicy::fixed(2)), Some(taken));
        assert!(!division.withdraw());
        assert_eq!(division.take_front(0, 7, ChunkPolicy::fixed(100)), Ok(5));
        assert_eq!(
            (
                division.take_front(5, 7, ChunkPolicy::fixed(1)),
                division.take_back(7, ChunkPolicy::fixed(1))
            ),
            (Ok(0), None)
        );
    }

    #[test]
    fn a_portion_is_half_or_a_quarter_of_what_is_left_within_its_bounds() {
        let word = AtomicU64::new(0);
        let division = CopySplit::new(&word);
        let portion = ChunkPolicy {
            least: 8,
            most: 50,
            alone: 120,
        };
        assert_eq!(ChunkPolicy::from_word(portion.to_word(), 256), portion);
        let mut counts = Vec::new();
        for _ in 0..3 {
            counts.extend(division.take_back(300, portion).map(|back| back.count));
        }
        counts.extend(division.take_front(0, 300, portion));
        while let Some(back) = division.take_back(300, portion) {
            counts.push(back.count);
        }
        assert_eq!(counts[..5], [120, 90, 45, 11, 8]);
        assert_eq!(counts.iter().sum::<u32>(), 300);
        // Bounds that contradict each other, as a peer may write them.
        let wild = ChunkPolicy::from_word(0xffff_0000, 256);
        assert_eq!((wild.least, wild.most, wild.alone), (256, 1, 1));
        division.clear();
        assert_eq!(division.take_front(0, 7, wild), Ok(7));
    }

    #[test]
    fn a_word_that_cannot_be_true_is_noticed() {
        for wrong in [1, 8 << 32, u64::MAX, 1 << 63] {
            let word = AtomicU64::new(wrong);
            assert_eq!(
                CopySplit::new(&word).take_front(0, 7, ChunkPolicy::fixed(1)),
                Err(CorruptSplit),
                "{wrong:x}"
            );
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::Cell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    struct Model {
        word: AtomicU64,
        cells: [Cell<u32>; 2],
        /// The peer's packet: what it took is filled.
        told: AtomicBool,
    }

    fn model() -> Arc<Model> {
        Arc::new(Model {
            word: AtomicU64::new(0),
            cells: [Cell::new(0), Cell::new(0)],
            told: AtomicBool::new(false),
        })
    }

    fn fill(model: &Model, unit: u32, who: u32) {
        // SAFETY: loom checks that nobody else accesses the cell meanwhile.
        model.cells[unit as usize].with_mut(|cell| unsafe {
            assert_eq!(*cell, 0, "a unit was filled twice");
            *cell = who;
        });
    }

    /// The peer fills what it gets, and says so.
    fn peer(model: &Model) {
        while let Some(back) = CopySplit::new(&model.word).take_back(2, ChunkPolicy::fixed(1)) {
            fill(model, back.first, 2);
        }
        model
            .told
            .store(true, loom::sync::atomic::Ordering::Release);
    }

    #[test]
    fn announced_data_is_filled_by_the_peer_or_withdrawn_and_never_both() {
        loom::model(|| {
            let shared = model();
            let other = shared.clone();
            let thread = loom::thread::spawn(move || peer(&other));
            if CopySplit::new(&shared.word).withdraw() {
                // Its own again at once, without waiting for the peer.
                fill(&shared, 0, 1);
                fill(&shared, 1, 1);
            } else {
                while !shared.told.load(loom::sync::atomic::Ordering::Acquire) {
                    loom::thread::yield_now();
                }
                for cell in &shared.cells {
                    // SAFETY: the peer said that it is done.
                    cell.with(|cell| assert_eq!(unsafe { *cell }, 2));
                }
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn every_unit_is_filled_by_one_side() {
        loom::model(|| {
            let shared = model();
            let other = shared.clone();
            let thread = loom::thread::spawn(move || peer(&other));
            let mut ours = 0;
            while let Ok(1) =
                CopySplit::new(&shared.word).take_front(ours, 2, ChunkPolicy::fixed(1))
            {
                fill(&shared, ours, 1);
                ours += 1;
            }
            thread.join().unwrap();
            for cell in &shared.cells {
                // SAFETY: both are done.
                cell.with(|cell| assert_ne!(unsafe { *cell }, 0));
            }
        });
    }
}
