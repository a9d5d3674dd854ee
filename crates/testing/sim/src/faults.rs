//! Faults of the simulated medium, and counts of those that happened.
//!
//! Values: a job has its [`Faults`], the fabric consults them at each frame's departure and
//! arrival, and counts in a [`FaultCounts`]. Times are nanoseconds of the virtual clock.

use crate::random::Random;
use garonne_engine::api::Peer;
use std::collections::BTreeSet;
use std::ops::Range;

/// Until when what is never mended lasts.
pub const FOR_EVER: u64 = u64::MAX;

/// Duration of a partition after which each side hears that the other is gone. Longer than a link
/// tries ([`garonne_engine::reliable::LOST_WITHIN_NS`]), which informs the ranks that send to the
/// other side. Ranks that only listen hear it this way.
pub const SILENCE_NS: u64 = 1_500_000_000;

/// Faults of a medium, and when they end.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Least and most time of a frame on its way; the spread reorders.
    pub delay_ns: (u64, u64),
    /// Frames lost, of a thousand.
    pub loss: u64,
    /// Frames delivered twice, of a thousand.
    pub repeat: u64,
    /// Frames changed on their way, of a thousand: bits, or cut short.
    pub damage: u64,
    /// Losses, repeats and damage end here.
    pub until_ns: u64,
    /// Ways between any two ranks; at least 1.
    pub ways: u8,
    /// Ways that do not carry, for a time.
    pub outages: Vec<Outage>,
    /// Ranks that do not reach each other, for a time.
    pub partitions: Vec<Partition>,
    /// Ranks that look for frames no more often than once in so much time.
    pub slow: Vec<(Peer, u64)>,
    /// Frames that wait at a rank; what comes when so many do is lost.
    pub inbox_max: usize,
    /// Ranks that die, and when.
    pub deaths: Vec<(Peer, u64)>,
}

/// A way that does not carry for a time.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Number of the path.
    pub way: u8,
    /// Only what this rank sends and receives there, as if its card had failed; `None`:
    /// everybody's.
    pub of: Option<Peer>,
    /// When.
    pub span_ns: Range<u64>,
    /// Fate of the frames.
    pub how: OutageKind,
}

/// Fate of frames on a broken path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageKind {
    /// Frames are lost.
    Lost,
    /// Frames arrive all at once when the outage ends; if it never ends, they are lost.
    Held,
}

/// Ranks that do not reach the others, nor these them.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The ranks of one side.
    pub side: BTreeSet<Peer>,
    /// When.
    pub span_ns: Range<u64>,
}

impl Partition {
    /// Returns whether the partition separates these two ranks.
    pub fn parts(&self, one: Peer, other: Peer) -> bool {
        self.side.contains(&one) != self.side.contains(&other)
    }
}

/// Fate of a frame on a path at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameFate {
    Free,
    Lost,
    /// Not delivered before this time.
    Until(u64),
}

impl Faults {
    /// A medium that only takes time.
    pub fn none() -> Self {
        Self {
            delay_ns: (1_000, 1_000),
            loss: 0,
            repeat: 0,
            damage: 0,
            until_ns: 0,
            ways: 1,
            outages: Vec::new(),
            partitions: Vec::new(),
            slow: Vec::new(),
            inbox_max: usize::MAX,
            deaths: Vec::new(),
        }
    }

    /// Until when these two do not reach each other, if they do not now.
    pub(crate) fn parted_until(&self, one: Peer, other: Peer, now_ns: u64) -> Option<u64> {
        let between = |partition: &&Partition| {
            partition.span_ns.contains(&now_ns) && partition.parts(one, other)
        };
        self.partitions
            .iter()
            .filter(between)
            .map(|partition| partition.span_ns.end)
            .max()
    }

    /// Returns the fate of a frame that leaves or arrives now.
    pub(crate) fn passage(&self, from: Peer, to: Peer, way: u8, now_ns: u64) -> FrameFate {
        if self.parted_until(from, to, now_ns).is_some() {
            return FrameFate::Lost;
        }
        let mut passage = FrameFate::Free;
        for outage in &self.outages {
            let concerns =
                outage.way == way && outage.of.is_none_or(|rank| rank == from || rank == to);
            if !concerns || !outage.span_ns.contains(&now_ns) {
                continue;
            }
            if outage.how == OutageKind::Lost || outage.span_ns.end == FOR_EVER {
                return FrameFate::Lost;
            }
            passage = FrameFate::Until(outage.span_ns.end);
        }
        passage
    }

    /// Returns the time that a slow rank lets pass between two polls.
    pub(crate) fn slowness_ns(&self, rank: Peer) -> Option<u64> {
        self.slow
            .iter()
            .find(|(slow, _)| *slow == rank)
            .map(|(_, pause_ns)| *pause_ns)
    }
}

/// Changes some bits of a frame, or cuts it short. It is never the same afterwards.
pub(crate) fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    if random.one_in(8) {
        return bytes.truncate(random.below(bytes.len() as u64) as usize);
    }
    let first = random.below(bytes.len() as u64 * 8);
    bytes[first as usize / 8] ^= 1 << (first % 8);
    for _ in 0..random.below(3) {
        let other = random.below(bytes.len() as u64 * 8);
        if other != first {
            bytes[other as usize / 8] ^= 1 << (other % 8);
        }
    }
}

/// Counts of the faults and reactions of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames that the medium lost by chance.
    pub lost: u64,
    /// Frames that came twice.
    pub repeated: u64,
    /// Frames changed on their way.
    pub damaged: u64,
    /// Frames that a receiver knew as changed.
    pub refused: u64,
    /// Frames lost because a partition or an outage was in their way.
    pub blocked: u64,
    /// Frames that a way held until its outage was over.
    pub held: u64,
    /// Frames lost because their receiver had too many already.
    pub overrun: u64,
    /// Frames and pieces that were sent again by another way.
    pub elsewhere: u64,
    /// Pieces of large data that arrived when they were there already.
    pub doubled: u64,
    /// Pieces of large data that arrived.
    pub pieces: u64,
    /// Peers given up because they did not answer.
    pub given_up: u64,
}

impl FaultCounts {
    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.damaged += other.damaged;
        self.refused += other.refused;
        self.blocked += other.blocked;
        self.held += other.held;
        self.overrun += other.overrun;
        self.elsewhere += other.elsewhere;
        self.doubled += other.doubled;
        self.pieces += other.pieces;
        self.given_up += other.given_up;
    }
}
