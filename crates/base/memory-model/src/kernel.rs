//! Kernels as accesses to blocks, and their times predicted from measured accesses.
//!
//! A core does reads and writes at once where caches are near, and nearly one after the other where
//! lines come from far. The measured copy, beside a load and a store measured alone, tells how much
//! of both is at once for a working set of that size. Goglin 2014 (Figure 4.5c) chooses between sum
//! and maximum by hand; here a power between them is computed.

use serde::{Deserialize, Serialize};

use crate::loops::ROW;
use crate::model::{CacheState, DistanceModel, Operation};

/// A loop that is bound by memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// b = a.
    Copy,
    /// a = b + s c.
    Triad,
    /// y = y + s x.
    Daxpy,
    /// A number and its four neighbours, from one grid into another.
    Stencil,
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Self; 4] = [Self::Copy, Self::Triad, Self::Daxpy, Self::Stencil];

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Triad => "triad",
            Self::Daxpy => "daxpy",
            Self::Stencil => "stencil",
        }
    }

    /// Arrays that the kernel touches.
    pub fn arrays(self) -> u64 {
        match self {
            Self::Copy | Self::Daxpy | Self::Stencil => 2,
            Self::Triad => 3,
        }
    }

    /// Bytes of each array that a pass touches.
    pub fn pass_bytes(self, bytes: u64) -> u64 {
        let row = 8 * ROW as u64;
        match self {
            // The first and the last row have no neighbours beyond.
            Self::Stencil => (bytes / row).saturating_sub(2) * row,
            _ => bytes,
        }
    }

    /// Predicts nanoseconds of a pass over arrays of `bytes` each, of which the first that is read
    /// is in the state `source` and all others are the own core's. `None`: the model lacks a curve.
    pub fn predict(self, model: &DistanceModel, bytes: u64, source: CacheState) -> Option<f64> {
        let own = CacheState::OwnModified;
        let working_set = bytes * self.arrays();
        let rate = |operation| model.rate(operation, own, working_set);
        let (load, store) = (rate(Operation::Load)?, rate(Operation::Store)?);
        // Curves of lines that another core has are by the block's own size: the lines leave that
        // core, and how much the own caches hold is no matter.
        let (first, copy) = match source {
            CacheState::OwnModified => (load, model.rate(Operation::Copy, own, working_set / 2)?),
            _ => (
                model.rate(Operation::Load, source, bytes)?,
                model.rate(Operation::Copy, source, bytes)?,
            ),
        };
        let overlap = Overlap::of_copy(first, store, copy);
        let per_byte = match self {
            Self::Copy => overlap.combine(first, store),
            Self::Triad => overlap.combine(first + load, store),
            Self::Daxpy => {
                let write = overlap.without(rate(Operation::Update)?, load);
                overlap.combine(first + load, write)
            }
            Self::Stencil => {
                // A number's neighbours come from the first-level cache.
                let near = model.rate(Operation::Load, own, 8 * ROW as u64)?;
                overlap.combine(first + 4.0 * near, store)
            }
        };
        Some(per_byte * self.pass_bytes(bytes) as f64)
    }
}

/// How much of reads and writes a machine does at once: times t and u of which each is measured
/// alone take (t^p + u^p)^(1/p) together. 1 is one after the other, and infinity is at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Overlap {
    power: f64,
    /// What both take beyond their sum, as a factor.
    more: f64,
}

/// The largest power: 1.09 of the longer one where both are equal.
const POWER_MAX: f64 = 8.0;

/// The largest factor.
const MORE_MAX: f64 = 1.5;

impl Overlap {
    /// The overlap of a load and a store that together are a copy.
    pub(crate) fn of_copy(load: f64, store: f64, copy: f64) -> Self {
        let at = |power: f64| Self { power, more: 1.0 };
        if copy >= load + store {
            let more = (copy / (load + store)).min(MORE_MAX);
            return Self { power: 1.0, more };
        }
        if copy <= at(POWER_MAX).combine(load, store) {
            return at(POWER_MAX);
        }
        let (mut least, mut most) = (1.0, POWER_MAX);
        for _ in 0..40 {
            let middle = (least + most) / 2.0;
            match at(middle).combine(load, store) > copy {
                true => least = middle,
                false => most = middle,
            }
        }
        at(least)
    }

    pub(crate) fn combine(self, reads: f64, writes: f64) -> f64 {
        let sum = reads.powf(self.power) + writes.powf(self.power);
        self.more * sum.powf(1.0 / self.power)
    }

    /// What is left of the time of both without that of one of them.
    fn without(self, both: f64, reads: f64) -> f64 {
        let left = both.powf(self.power) - reads.powf(self.power);
        left.max(0.0).powf(1.0 / self.power)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::curve::{CostCurve, CostPoint};
    use crate::model::{Access, MeasuredAccess};

    /// A machine with one cache of a megabyte: bytes per nanosecond of each access within it, and
    /// beyond.
    pub(crate) fn model() -> DistanceModel {
        let rates = |operation, state: CacheState| match (operation, state) {
            (
                Operation::Load,
                CacheState::OwnModified | CacheState::OwnExclusive | CacheState::Shared,
            ) => [64.0, 4.0],
            (Operation::Load, CacheState::Invalid) => [4.0, 4.0],
            (Operation::Load, _) => [8.0, 4.0],
            (Operation::Store, CacheState::OwnModified | CacheState::OwnExclusive) => [32.0, 2.0],
            (Operation::Store, _) => [8.0, 2.0],
            (Operation::Update, _) => [32.0, 2.0],
            // At once within the cache, one after the other beyond.
            (
                Operation::Copy,
                CacheState::OwnModified | CacheState::OwnExclusive | CacheState::Shared,
            ) => [32.0, 4.0 / 3.0],
            (Operation::Copy, _) => [4.0, 4.0 / 3.0],
        };
        let mut accesses = Vec::new();
        for operation in Operation::ALL {
            for state in CacheState::ALL {
                let points = (10..25).map(|log| {
                    let bytes = 1u64 << log;
                    let rate = rates(operation, state)[usize::from(bytes >= 1 << 20)];
                    CostPoint {
                        bytes,
                        ns: bytes as f64 / rate,
                    }
                });
                let curve = CostCurve::new(points.collect()).unwrap();
                accesses.push(MeasuredAccess {
                    access: Access::new(operation, state),
                    curve,
                });
            }
        }
        DistanceModel {
            distance: "L3".into(),
            cpus: [0, 1],
            hand_off_ns: 60.0,
            accesses,
        }
    }

    fn rate(kernel: Kernel, bytes: u64, source: CacheState) -> f64 {
        kernel.pass_bytes(bytes) as f64 / kernel.predict(&model(), bytes, source).unwrap()
    }

    #[test]
    fn reads_and_writes_are_at_once_where_the_copy_is() {
        let own = CacheState::OwnModified;
        let near = 16 << 10;
        assert!((rate(Kernel::Copy, near, own) / 32.0 - 1.0).abs() < 0.05);
        assert!((rate(Kernel::Triad, near, own) / 32.0 - 1.0).abs() < 0.15);
    }

    #[test]
    fn reads_and_writes_are_added_where_the_copy_takes_their_sum() {
        let own = CacheState::OwnModified;
        let far = 8 << 20;
        assert!((rate(Kernel::Copy, far, own) - 4.0 / 3.0).abs() < 0.01);
        assert!((rate(Kernel::Triad, far, own) - 1.0).abs() < 0.01);
        // The update has read its line: one more load.
        assert!((rate(Kernel::Daxpy, far, own) - 4.0 / 3.0).abs() < 0.01);
    }

    #[test]
    fn lines_of_another_core_are_dearer_than_own_ones() {
        for kernel in Kernel::ALL {
            let (own, other) = (CacheState::OwnModified, CacheState::OtherModified);
            assert!(
                rate(kernel, 32 << 10, other) < rate(kernel, 32 << 10, own),
                "{kernel:?}"
            );
        }
    }

    #[test]
    fn overlaps_are_found_again_in_what_they_combine() {
        for (load, store, copy) in [
            (1.0, 2.0, 2.2),
            (1.0, 1.0, 1.9),
            (3.0, 1.0, 3.5),
            (1.0, 1.0, 2.0),
        ] {
            let found = Overlap::of_copy(load, store, copy).combine(load, store);
            assert!(
                (found - copy).abs() < 0.01,
                "{load} {store} {copy}: {found}"
            );
        }
        assert!(Overlap::of_copy(1.0, 1.0, 9.0).combine(1.0, 1.0) <= 2.0 * MORE_MAX);
        assert!((Overlap::of_copy(1.0, 2.0, 0.5).combine(1.0, 2.0) - 2.0).abs() < 0.1);
    }
}
