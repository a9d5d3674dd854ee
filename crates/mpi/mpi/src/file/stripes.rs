//! Parts of a file as stripes: blocks of one length at one distance. Regular views of any size are
//! a few of them, which is what processes tell each other.

use super::view::FileRun;
use std::ops::Range;

/// Stripes of one access that are kept. Accesses of more are not described, and each process
/// carries out its own.
const STRIPES_MAX: usize = 1 << 18;

/// Blocks of equal length at equal distances in the file, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripe {
    /// First byte.
    pub offset: u64,
    /// Bytes of a block; not 0.
    pub len: u64,
    /// From the beginning of a block to that of the next; 0 where there is one only.
    pub stride: u64,
    /// Blocks; not 0.
    pub count: u64,
}

impl Stripe {
    /// Words of a stripe that is sent.
    pub const WORDS: usize = 4;

    /// One block.
    pub fn block(offset: u64, len: u64) -> Self {
        Self {
            offset,
            len,
            stride: 0,
            count: 1,
        }
    }

    /// Returns the bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.len * self.count
    }

    /// Returns the end of the last block.
    pub fn end(&self) -> u64 {
        self.offset + (self.count - 1) * self.stride + self.len
    }

    /// Returns the blocks.
    pub fn blocks(&self) -> impl Iterator<Item = Range<u64>> {
        let Self {
            offset,
            len,
            stride,
            count,
        } = *self;
        (0..count).map(move |index| {
            let at = offset + index * stride;
            at..at + len
        })
    }

    /// Takes a run over as the next block, if it is one.
    fn takes(&mut self, run: FileRun) -> bool {
        if run.len != self.len {
            return false;
        }
        if self.count == 1 {
            self.stride = run.offset - self.offset;
        }
        let is_next = run.offset == self.offset + self.count * self.stride;
        self.count += u64::from(is_next);
        is_next
    }

    /// Returns the stripe as words.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.offset, self.len, self.stride, self.count]
    }

    /// The stripe of words that another process sent; `None` if they describe none within `range`.
    pub fn from_words(words: [u64; Self::WORDS], range: &Range<u64>) -> Option<Self> {
        let [offset, len, stride, count] = words;
        let last = count.checked_sub(1)?.checked_mul(stride)?;
        let end = offset.checked_add(last)?.checked_add(len)?;
        let apart = count == 1 || stride >= len;
        let sound = len > 0 && apart && range.start <= offset && end <= range.end;
        sound.then_some(Self {
            offset,
            len,
            stride,
            count,
        })
    }
}

/// Returns the stripes of runs, or `None` if these overlap, descend, or are too irregular.
pub(super) fn stripes_of(runs: impl IntoIterator<Item = FileRun>) -> Option<Vec<Stripe>> {
    let mut stripes: Vec<Stripe> = Vec::new();
    let mut end = 0;
    for run in runs {
        if run.offset < end || stripes.len() > STRIPES_MAX {
            return None;
        }
        end = run.offset + run.len;
        let continues = stripes.last_mut().is_some_and(|last| last.takes(run));
        if !continues && run.len > 0 {
            stripes.push(Stripe::block(run.offset, run.len));
        }
    }
    Some(stripes)
}

/// A place in stripes, which moves forward.
#[derive(Clone, Debug)]
pub(super) struct StripeCursor<'a> {
    /// The stripes that are not passed yet.
    rest: &'a [Stripe],
    /// Blocks of the first one that are passed.
    block: u64,
    /// Bytes of the next block that are passed.
    skip: u64,
    /// Bytes that are passed in all.
    position: u64,
}

impl<'a> StripeCursor<'a> {
    pub fn new(stripes: &'a [Stripe]) -> Self {
        Self {
            rest: stripes,
            block: 0,
            skip: 0,
            position: 0,
        }
    }

    /// Returns where the next byte is in the stream of data.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns where the next byte is in the file.
    pub fn next_offset(&self) -> Option<u64> {
        let first = self.rest.first()?;
        Some(first.offset + self.block * first.stride + self.skip)
    }

    /// Passes what lies before `end`, and shows it.
    pub fn pass(&mut self, end: u64, mut each: impl FnMut(Stripe)) {
        while let Some(first) = self.rest.first() {
            let at = first.offset + self.block * first.stride + self.skip;
            if at >= end {
                return;
            }
            let passed = if self.skip > 0 || at + first.len > end {
                let len = (first.len - self.skip).min(end - at);
                self.skip += len;
                if self.skip == first.len {
                    (self.block, self.skip) = (self.block + 1, 0);
                }
                Stripe::block(at, len)
            } else {
                let left = first.count - self.block;
                let fitting = (end - at - first.len)
                    .checked_div(first.stride)
                    .map_or(1, |whole| whole + 1);
                let count = left.min(fitting);
                self.block += count;
                let stride = if count == 1 { 0 } else { first.stride };
                Stripe {
                    offset: at,
                    len: first.len,
                    stride,
                    count,
                }
            };
            self.position += passed.bytes();
            each(passed);
            if self.block == first.count {
                (self.rest, self.block) = (&self.rest[1..], 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of<'a>(stripes: impl IntoIterator<Item = &'a Stripe>) -> Vec<u64> {
        let blocks = stripes.into_iter().flat_map(Stripe::blocks);
        blocks.flatten().collect()
    }

    proptest! {
        #[test]
        fn stripes_have_the_bytes_of_their_runs_wherever_they_are_cut(
            steps in prop::collection::vec((0u64..4, 1u64..4, 1usize..6), 0..12),
            cuts in prop::collection::vec(0u64..200, 0..8),
        ) {
            let (mut runs, mut at) = (Vec::new(), 0);
            for (gap, len, times) in steps {
                for _ in 0..times {
                    runs.push(FileRun { offset: at + gap, len });
                    at += gap + len;
                }
            }
            let stripes = stripes_of(runs.iter().copied()).unwrap();
            let expected: Vec<u64> = runs.iter().flat_map(|run| run.offset..run.offset + run.len).collect();
            prop_assert_eq!(bytes_of(&stripes), expected.clone());
            let mut cuts = cuts;
            cuts.sort_unstable();
            cuts.push(u64::MAX);
            let mut cursor = StripeCursor::new(&stripes);
            let mut found = Vec::new();
            for end in cuts {
                cursor.pass(end, |stripe| found.push(stripe));
                prop_assert_eq!(cursor.position(), expected.iter().filter(|at| **at < end).count() as u64);
                prop_assert_eq!(cursor.next_offset(), expected.iter().copied().find(|at| *at >= end));
            }
            prop_assert_eq!(bytes_of(&found), expected);
            for stripe in found {
                let sent = Stripe::from_words(stripe.to_words(), &(0..stripe.end()));
                prop_assert_eq!(sent, Some(stripe));
            }
        }

        #[test]
        fn words_of_others_give_stripes_within_the_range_only(words: [u64; 4], start: u64, end: u64) {
            if let Some(stripe) = Stripe::from_words(words, &(start..end)) {
                prop_assert!(start <= stripe.offset && stripe.end() <= end);
            }
        }
    }

    #[test]
    fn runs_that_overlap_or_descend_are_no_stripes() {
        let run = |offset| FileRun { offset, len: 4 };
        assert!(stripes_of([run(0), run(2)]).is_none());
        assert!(stripes_of([run(8), run(0)]).is_none());
        assert_eq!(stripes_of([]), Some(Vec::new()));
    }
}
