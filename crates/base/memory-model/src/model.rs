//! Measured accesses of a machine: a curve for each operation, state of the block's lines, and
//! distance of the core that has them.

use serde::{Deserialize, Serialize};

use crate::curve::CostCurve;

/// What is done with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// All lines are read.
    Load,
    /// All lines are written.
    Store,
    /// All lines are read and written.
    Update,
    /// All lines are read, and written to a block of the own core. The state is that of the source.
    Copy,
}

/// Where the lines of a block are before an access, and in which state of the protocol that keeps
/// caches coherent (MESI).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Written by the own core.
    OwnModified,
    /// Read by the own core and by no other.
    OwnExclusive,
    /// Read by both cores.
    Shared,
    /// Written by the other core.
    OtherModified,
    /// Read by the other core and by no other.
    OtherExclusive,
    /// In no cache.
    Invalid,
}

impl CacheState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::OwnModified,
        Self::OwnExclusive,
        Self::Shared,
        Self::OtherModified,
        Self::OtherExclusive,
        Self::Invalid,
    ];

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::OwnModified => "modified",
            Self::OwnExclusive => "exclusive",
            Self::Shared => "shared",
            Self::OtherModified => "modified, other core",
            Self::OtherExclusive => "exclusive, other core",
            Self::Invalid => "invalid",
        }
    }
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Load, Self::Store, Self::Update, Self::Copy];

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Update => "update",
            Self::Copy => "copy",
        }
    }
}

/// An access to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Access {
    /// What is done.
    pub operation: Operation,
    /// State of the block's lines before.
    pub state: CacheState,
}

impl Access {
    /// Makes an access.
    pub const fn new(operation: Operation, state: CacheState) -> Self {
        Self { operation, state }
    }
}

/// Times of one kind of access.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredAccess {
    /// The access.
    #[serde(flatten)]
    pub access: Access,
    /// Times by bytes of the block.
    pub curve: CostCurve,
}

/// Accesses between two cores of one distance, and what was predicted from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistanceModel {
    /// The smallest part of the machine that has both cores: "L3", "package", "machine".
    pub distance: String,
    /// CPUs that measured: the one that accesses, and the other.
    pub cpus: [u32; 2],
    /// One way of a cache line between the two, in nanoseconds.
    pub hand_off_ns: f64,
    /// Curves.
    pub accesses: Vec<MeasuredAccess>,
}

impl DistanceModel {
    /// The curve of an access.
    pub fn curve(&self, operation: Operation, state: CacheState) -> Option<&CostCurve> {
        let access = Access::new(operation, state);
        let found = self.accesses.iter().find(|known| known.access == access);
        found.map(|known| &known.curve)
    }

    /// Nanoseconds per byte of an access to a block within a working set of so many bytes.
    pub fn rate(&self, operation: Operation, state: CacheState, working_set: u64) -> Option<f64> {
        self.curve(operation, state)?.ns_per_byte(working_set)
    }
}
