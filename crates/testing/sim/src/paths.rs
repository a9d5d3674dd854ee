//! Which of several ways to a peer a frame takes.
//!
//! Owned by a rank's transport, one [`Paths`] per peer. What had to be sent again is held against
//! the way that it went first, and what comes by a way speaks for it; a way with too much against
//! it carries only a try now and then. Answers go the way that was heard from last. Among the
//! others the engine's strategy chooses by what each still has under way. Bounded by what is under
//! way.

use garonne_engine::schedule::stripe::{self, RailEstimate};
use std::collections::BTreeMap;

/// Repeats after which a way is left alone.
const DOUBTS_MAX: u32 = 3;
/// One frame in so many takes a random path, so that a repaired path is found.
const TRY_ONE_IN: u64 = 16;

/// State of a path.
#[derive(Clone, Copy, Debug, Default)]
struct PathState {
    /// Bytes under way.
    backlog: u64,
    /// Times that something had to be sent again since the last time that something came.
    doubts: u32,
}

/// Paths to one peer.
#[derive(Debug)]
pub(crate) struct Paths {
    ways: Vec<PathState>,
    /// By number of what is under way: the way that it went last, and bytes.
    under_way: BTreeMap<u64, (u8, u64)>,
    /// The way by which something came last.
    heard: Option<u8>,
}

impl Paths {
    pub(crate) fn new(ways: u8) -> Self {
        Self {
            ways: vec![PathState::default(); usize::from(ways.max(1))],
            under_way: BTreeMap::new(),
            heard: None,
        }
    }

    /// The way for `len` bytes that carry this number, if they do, and whether they go again, by
    /// another way than before.
    pub(crate) fn choose(
        &mut self,
        number: Option<u64>,
        len: u64,
        mut draw: impl FnMut(u64) -> u64,
    ) -> (u8, bool) {
        let before = number.and_then(|number| self.forget(number));
        if let Some(way) = before {
            self.ways[usize::from(way)].doubts += 1;
        }
        let all = self.ways.len();
        // An answer goes where something came from: nothing would be heard of it if it were lost.
        let answered = self.heard.filter(|_| number.is_none());
        let way = match answered {
            _ if all == 1 => 0,
            _ if draw(TRY_ONE_IN) == 0 => draw(all as u64) as usize,
            Some(heard) => usize::from(heard),
            None => self.best(before, len, draw(all as u64) as usize),
        };
        if let Some(number) = number {
            self.ways[way].backlog += len;
            self.under_way.insert(number, (way as u8, len));
        }
        (
            way as u8,
            before.is_some_and(|before| usize::from(before) != way),
        )
    }

    /// The best of those that nothing speaks against, or of all; not that which has just failed.
    /// Those after `first` come first, as far as they are equal.
    fn best(&self, failed: Option<u8>, len: u64, first: usize) -> usize {
        let all = self.ways.len();
        let others: Vec<usize> = (0..all)
            .map(|at| (first + at) % all)
            .filter(|at| failed.is_none_or(|way| usize::from(way) != *at))
            .collect();
        let trusted: Vec<usize> = others
            .iter()
            .copied()
            .filter(|at| self.ways[*at].doubts < DOUBTS_MAX)
            .collect();
        let among = if trusted.is_empty() { others } else { trusted };
        let ways: Vec<RailEstimate> = among
            .iter()
            .map(|at| RailEstimate {
                rate: 1.0,
                latency: 1.0,
                backlog: self.ways[*at].backlog,
            })
            .collect();
        among[stripe::first(&ways, len)]
    }

    /// Something came by this way.
    pub(crate) fn heard(&mut self, way: u8) {
        if let Some(standing) = self.ways.get_mut(usize::from(way)) {
            standing.doubts = 0;
            self.heard = Some(way);
        }
    }

    /// Forgets the frame with this number, which is not under way any more. Returns its path.
    pub(crate) fn forget(&mut self, number: u64) -> Option<u8> {
        let (way, len) = self.under_way.remove(&number)?;
        self.ways[usize::from(way)].backlog -= len;
        Some(way)
    }

    /// Nothing with a smaller number is under way any more.
    pub(crate) fn forget_before(&mut self, number: u64) {
        while let Some((&first, _)) = self.under_way.first_key_value()
            && first < number
        {
            self.forget(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_again_goes_another_way_and_what_failed_is_left_alone_until_it_is_heard_of() {
        let mut ways = Paths::new(2);
        // Never a try, and the first among equals.
        let draw = |bound: u64| u64::from(bound == TRY_ONE_IN);
        for number in 0..u64::from(DOUBTS_MAX) {
            let (first, _) = ways.choose(Some(number), 10, |bound| {
                draw(bound) * u64::from(bound == TRY_ONE_IN)
            });
            assert_eq!(first, 0, "{ways:?}");
            assert_eq!(ways.choose(Some(number), 10, draw), (1, true));
            ways.forget(number);
        }
        assert_eq!(ways.choose(Some(10), 10, draw), (1, false));
        assert_eq!(ways.choose(Some(11), 10, draw), (1, false));
        ways.heard(0);
        assert_eq!(ways.choose(None, 10, draw), (0, false));
        assert_eq!(ways.choose(Some(12), 10, draw), (0, false));
        ways.forget_before(12);
        assert_eq!(ways.ways[1].backlog, 0);
        assert_eq!(ways.ways[0].backlog, 10);
    }
}
