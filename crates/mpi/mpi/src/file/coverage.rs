//! Which bytes of a window are wanted or written: a bit for each.

use std::ops::Range;

const BITS: usize = 64;

/// Bytes of a window, each marked or not.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    words: Vec<u64>,
}

/// The bits from `start` on, within a word.
fn from_bit(start: usize) -> u64 {
    u64::MAX << (start % BITS)
}

impl Coverage {
    /// Forgets all marks, for a window of so many bytes.
    pub fn clear(&mut self, bytes: usize) {
        self.words.clear();
        self.words.resize(bytes.div_ceil(BITS), 0);
    }

    /// Marks bytes of the window.
    pub fn mark(&mut self, range: Range<usize>) {
        let Some(last) = range.end.checked_sub(1).filter(|_| !range.is_empty()) else {
            return;
        };
        let (head, tail) = (from_bit(range.start), u64::MAX >> (BITS - 1 - last % BITS));
        let words = &mut self.words[range.start / BITS..=last / BITS];
        match words {
            [one] => *one |= head & tail,
            [first, between @ .., last] => {
                *first |= head;
                between.fill(u64::MAX);
                *last |= tail;
            }
            [] => {}
        }
    }

    /// Returns the first byte from `at` on that is marked, or is not.
    fn find(&self, at: usize, marked: bool) -> Option<usize> {
        let flip = if marked { 0 } else { u64::MAX };
        let first = (*self.words.get(at / BITS)? ^ flip) & from_bit(at);
        if first != 0 {
            return Some(at / BITS * BITS + first.trailing_zeros() as usize);
        }
        let rest = &self.words[at / BITS + 1..];
        let more = rest.iter().position(|word| word ^ flip != 0)?;
        let word = at / BITS + 1 + more;
        Some(word * BITS + (self.words[word] ^ flip).trailing_zeros() as usize)
    }

    /// Returns the marked bytes, as ascending ranges with gaps between them.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.find(at, true)?;
            at = self.find(start, false).unwrap_or(self.words.len() * BITS);
            Some(start..at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn marked_ranges_are_those_that_the_plan_says(ranges in prop::collection::vec((0usize..400, 0usize..150), 0..12)) {
            let mut coverage = Coverage::default();
            coverage.clear(512);
            coverage.mark(0..512);
            coverage.clear(600);
            for (start, len) in &ranges {
                coverage.mark(*start..start + len);
            }
            let mut marked = [false; 600];
            for (start, len) in &ranges {
                marked[*start..start + len].fill(true);
            }
            let found: Vec<_> = coverage.ranges().collect();
            prop_assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert!(found.iter().all(|range| !range.is_empty()));
            let covered: Vec<_> = found.into_iter().flatten().collect();
            let expected: Vec<_> = (0..600).filter(|at| marked[*at]).collect();
            prop_assert_eq!(covered, expected);
        }
    }
}
