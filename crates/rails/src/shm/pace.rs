//! How fast large data comes from each peer, by reading its memory and by packets: measured on what passes anyway.
//!
//! Owned by the rail; decides for the receiving side which of the two serves the next large message. The two virtual cores of
//! a pair may be near or far from each other and change that while a job runs, so both ways stay known: each is tried
//! once at first, and the one not preferred again now and then. Clock readings are taken for large transfers only.

use crate::limits::{PACE_PIECE_MIN, PACE_READ_MIN, PACE_RETRY_EVERY};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Pause between two pieces after which they belong to different transfers, as far as pace goes.
const SAME_TRANSFER: Duration = Duration::from_micros(500);

/// Pace towards one peer. Picoseconds per byte; 0: not measured.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    read: u32,
    pieces: u32,
    last_piece: Option<Instant>,
    decisions: Cell<u32>,
}

/// A way to fetch large data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Read the peer's memory.
    Read,
    /// Let the peer send packets; both cores copy at the same time.
    Packets,
}

/// What is known, for reports: nanoseconds per kilobyte, where measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// By reading.
    pub read: Option<f64>,
    /// By packets.
    pub packets: Option<f64>,
    /// What the next large message uses.
    pub preferred: Fetch,
}

fn blend(old: u32, took: Duration, bytes: u64) -> u32 {
    let now = (took.as_nanos().saturating_mul(1000) / u128::from(bytes.max(1))).clamp(1, u128::from(u32::MAX))
        as u64;
    // The first measure counts as it is, later ones an eighth: a preemption in one of them does not turn the decision.
    if old == 0 {
        now as u32
    } else {
        ((u64::from(old) * 7 + now) / 8).max(1) as u32
    }
}

impl Pace {
    /// A pace that begins with what the cost model says, in nanoseconds per kilobyte.
    pub(crate) fn seeded((read, packets): (Option<f64>, Option<f64>)) -> Self {
        let pace = |known: Option<f64>| known.map_or(0, |ns| (ns / 1.024).clamp(1.0, 1e9) as u32);
        Self {
            read: pace(read),
            pieces: pace(packets),
            ..Self::default()
        }
    }

    /// A read of `bytes` took so long.
    pub(crate) fn was_read(&mut self, took: Duration, bytes: u64) {
        if bytes >= PACE_READ_MIN {
            self.read = blend(self.read, took, bytes);
        }
    }

    /// A packet with a piece of large data was taken.
    pub(crate) fn piece(&mut self, bytes: usize) {
        if bytes < PACE_PIECE_MIN {
            return;
        }
        let now = Instant::now();
        if let Some(took) = self
            .last_piece
            .map(|last| now - last)
            .filter(|took| *took < SAME_TRANSFER)
        {
            self.pieces = blend(self.pieces, took, bytes as u64);
        }
        self.last_piece = Some(now);
    }

    /// What measurements speak for.
    pub(crate) fn preferred(&self) -> Fetch {
        match (self.read, self.pieces) {
            (0, _) => Fetch::Read,
            (_, 0) => Fetch::Packets,
            (read, pieces) if pieces < read => Fetch::Packets,
            _ => Fetch::Read,
        }
    }

    /// What the next large message should use: the preferred way, now and then the other.
    pub(crate) fn decide(&self) -> Fetch {
        let turn = self.decisions.get().wrapping_add(1);
        self.decisions.set(turn);
        match (self.preferred(), turn.is_multiple_of(PACE_RETRY_EVERY)) {
            (Fetch::Read, false) | (Fetch::Packets, true) => Fetch::Read,
            (Fetch::Packets, false) | (Fetch::Read, true) => Fetch::Packets,
        }
    }

    pub(crate) fn known(&self) -> Known {
        let per_kilobyte = |pace: u32| (pace > 0).then(|| f64::from(pace) * 1.024);
        Known {
            read: per_kilobyte(self.read),
            packets: per_kilobyte(self.pieces),
            preferred: self.preferred(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(read: u32, pieces: u32) -> Pace {
        Pace {
            read,
            pieces,
            ..Pace::default()
        }
    }

    #[test]
    fn both_ways_are_tried_before_one_is_preferred() {
        assert_eq!(pace(0, 0).decide(), Fetch::Read);
        assert_eq!(pace(80, 0).decide(), Fetch::Packets);
        assert_eq!(pace(80, 40).decide(), Fetch::Packets);
        assert_eq!(pace(80, 400).decide(), Fetch::Read);
    }

    #[test]
    fn the_way_not_preferred_is_tried_again_now_and_then() {
        let pace = pace(80, 400);
        let tried = (0..10 * PACE_RETRY_EVERY)
            .filter(|_| pace.decide() == Fetch::Packets)
            .count();
        assert_eq!(tried, 10);
    }

    #[test]
    fn one_slow_transfer_does_not_turn_a_clear_decision() {
        let mut pace = pace(80, 400);
        pace.was_read(Duration::from_micros(1000), 1 << 20);
        assert_eq!(pace.preferred(), Fetch::Read);
        for _ in 0..20 {
            pace.was_read(Duration::from_micros(1000), 1 << 20);
        }
        assert_eq!(pace.preferred(), Fetch::Packets);
    }
}
