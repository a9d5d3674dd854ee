//! Messages within a host as accesses, and what follows for thresholds of protocols.
//!
//! A short message is copied into a ring of memory that both sides share, and out of it: stores to
//! lines that the receiver has read the last time, then loads of lines that the sender has written.
//! Longer ones are cut into pieces, and both copies go on at once.

use serde::{Deserialize, Serialize};

use crate::kernel::Overlap;
use crate::model::{CacheState, DistanceModel, Operation};

/// A message's time, predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferTime {
    /// Bytes of the message.
    pub bytes: u64,
    /// Nanoseconds as measured.
    pub measured_ns: f64,
    /// Nanoseconds as the model says.
    pub predicted_ns: f64,
}

/// How messages are cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceRule {
    /// Messages below this length are one piece.
    pub pieces_from: u64,
    /// Pieces of longer ones, at most, as long as none is longer than `piece_max`.
    pub pieces: u64,
    /// Shortest piece.
    pub piece_min: u64,
    /// Longest piece.
    pub piece_max: u64,
}

impl PieceRule {
    /// Length of a piece of a message.
    fn piece(self, bytes: u64) -> u64 {
        match bytes < self.pieces_from {
            true => bytes,
            false => (bytes / self.pieces.max(1))
                .max(self.piece_min)
                .min(self.piece_max)
                .clamp(1, bytes.max(1)),
        }
    }
}

/// Predicts the time from the start of a message's first copy to the end of its last one, in
/// nanoseconds. `None`: the model lacks a curve.
pub fn predict(model: &DistanceModel, rule: PieceRule, bytes: u64) -> Option<f64> {
    if bytes == 0 {
        return Some(0.0);
    }
    let piece = rule.piece(bytes);
    let pieces = bytes.div_ceil(piece);
    let own = CacheState::OwnModified;
    let rate = |operation, state| model.rate(operation, state, piece);
    let load = rate(Operation::Load, own)?;
    let overlap = Overlap::of_copy(
        load,
        rate(Operation::Store, own)?,
        rate(Operation::Copy, own)?,
    );
    let put = overlap.combine(load, rate(Operation::Store, CacheState::Shared)?) * piece as f64;
    let take = rate(Operation::Copy, CacheState::OtherModified)? * piece as f64;
    let step = put.max(take) + model.hand_off_ns;
    Some(put + take + step * (pieces - 1) as f64)
}

/// Bytes from which on a block of the own core is as far as one that is in no cache. `None`: even
/// the longest block that was measured is nearer.
pub fn past_caches_from(model: &DistanceModel) -> Option<u64> {
    let own = model.curve(Operation::Load, CacheState::OwnModified)?;
    let memory = model.curve(Operation::Load, CacheState::Invalid)?;
    let is_far = |bytes: u64| Some(own.ns(bytes)? >= FAR * memory.ns(bytes)?);
    let mut from = None;
    for point in own.points().iter().rev() {
        if !is_far(point.bytes)? {
            break;
        }
        from = Some(point.bytes);
    }
    from
}

/// Share of the time of a block in no cache from which on another block counts as far.
const FAR: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::model;

    const RULE: PieceRule = PieceRule {
        pieces_from: 8 << 10,
        pieces: 4,
        piece_min: 8 << 10,
        piece_max: 32 << 10,
    };

    #[test]
    fn a_message_of_one_piece_is_put_and_taken_one_after_the_other() {
        let model = model();
        let ns = predict(&model, RULE, 4096).unwrap();
        let put = 4096.0 / 8.0 + 4096.0 / 64.0;
        assert!((ns - (put + 4096.0 / 4.0)).abs() < 0.1 * ns, "{ns}");
        assert_eq!(predict(&model, RULE, 0), Some(0.0));
    }

    #[test]
    fn pieces_are_copied_by_both_sides_at_once() {
        let model = model();
        let (one, four) = (predict(&model, RULE, 8000), predict(&model, RULE, 32000));
        assert!(four.unwrap() < 3.5 * one.unwrap());
        let longest = predict(&model, RULE, 1 << 20).unwrap();
        assert!(
            longest > (1 << 20) as f64 / 4.0 && longest < 1.2 * (1 << 20) as f64 / 4.0,
            "{longest}"
        );
    }

    #[test]
    fn caches_end_where_own_blocks_are_as_far_as_those_in_no_cache() {
        let mut near = model();
        assert_eq!(past_caches_from(&near), Some(1 << 20));
        near.accesses
            .retain(|known| known.access.state != CacheState::Invalid);
        assert_eq!(past_caches_from(&near), None);
    }
}
