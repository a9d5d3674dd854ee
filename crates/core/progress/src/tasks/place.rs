//! Where a task may run: the submitter's choice, and the area of the machine that it maps to.

use crate::tasks::Error;
use garonne_topology::device::{self, DeviceLocality};
use garonne_topology::{CpuSet, Kind, Tree};

/// Place where a task may run. It is queued at the smallest area of the machine that covers its
/// place, and run by whoever is in that area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere on the machine.
    Machine,
    /// The core of this CPU, and nowhere else.
    Core(u32),
    /// The smallest area of this kind around a CPU: its cache, NUMA node, package. One that this
    /// process may not use is as good as another as long as the area has one that it may.
    Around(Kind, u32),
    /// Any of these CPUs.
    Cpus(CpuSet),
    /// Near a device, by its name or PCI address (`mlx5_0`, `eth0`, `0000:3b:00.0`).
    Device(String),
    /// The smallest area of this kind around whoever submits it, at each submission.
    Caller(Kind),
    /// The cores that share a cache with whoever submits it: what suits a task that polls.
    NearCaller,
    /// The nearest core that has nothing else to do at the moment of submission; if all are busy,
    /// whichever is idle first. Suits submissions of small messages, which then overlap with the
    /// submitter's computation.
    Nearest,
}

/// A place on a known machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedPlace {
    /// This area.
    Area(u32),
    /// See [`Place::Caller`].
    Caller(Kind),
    /// See [`Place::NearCaller`].
    NearCaller,
    /// See [`Place::Nearest`].
    Nearest,
}

impl Place {
    /// Finds the place on a machine.
    pub(crate) fn on(&self, tree: &Tree) -> Result<ResolvedPlace, Error> {
        let unknown = Error::Misuse("the place of a task names no CPU that this process may use");
        let core = |cpu: u32| tree.core_of(cpu).ok_or(unknown);
        let area = match self {
            Self::Machine => tree.root(),
            Self::Core(cpu) => core(*cpu)?,
            Self::Around(kind, cpu) => tree.around_cpu(*cpu, *kind).ok_or(unknown)?,
            Self::Cpus(cpus) => tree.covering(cpus).ok_or(unknown)?,
            Self::Device(name) => {
                match device::find(name).ok_or(Error::Misuse("the system has no such device"))? {
                    // Near a device of which this process may use no CPU: anywhere.
                    DeviceLocality::Cpus(cpus) => tree.covering(&cpus).unwrap_or(tree.root()),
                    DeviceLocality::Anywhere => tree.root(),
                }
            }
            Self::Caller(kind) => return Ok(ResolvedPlace::Caller(*kind)),
            Self::NearCaller => return Ok(ResolvedPlace::NearCaller),
            Self::Nearest => return Ok(ResolvedPlace::Nearest),
        };
        Ok(ResolvedPlace::Area(area as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_smallest_area_that_covers_it() {
        let tree = Tree::regular(2, 1, 2, 2);
        let cpus = |place: Place| match place.on(&tree) {
            Ok(ResolvedPlace::Area(area)) => tree.areas()[area as usize].cpus.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(cpus(Place::Machine), "0-7");
        assert_eq!(cpus(Place::Core(5)), "5");
        assert_eq!(cpus(Place::Around(Kind::Cache(3), 5)), "4-5");
        assert_eq!(cpus(Place::Around(Kind::Package, 5)), "4-7");
        assert_eq!(cpus(Place::Cpus(CpuSet::parse("1-2").unwrap())), "0-3");
        assert_eq!(
            Place::Caller(Kind::Numa).on(&tree),
            Ok(ResolvedPlace::Caller(Kind::Numa))
        );
    }

    #[test]
    fn an_area_may_be_named_by_any_of_its_cpus_but_a_core_only_by_one_that_may_be_used() {
        let numa = (Kind::Numa, CpuSet::parse("0-3").unwrap());
        let tree = Tree::new(&CpuSet::parse("1").unwrap(), [numa]);
        let core = tree.core_of(1).unwrap() as u32;
        for cpu in 0..4 {
            let found = Place::Around(Kind::Numa, cpu).on(&tree);
            assert_eq!(found, Ok(ResolvedPlace::Area(core)), "{cpu}");
        }
        for place in [Place::Core(0), Place::Around(Kind::Numa, 4)] {
            assert!(
                matches!(place.on(&tree), Err(Error::Misuse(_))),
                "{place:?}"
            );
        }
    }

    #[test]
    fn a_place_that_is_not_there_is_refused() {
        let tree = Tree::regular(1, 1, 1, 2);
        for place in [
            Place::Core(9),
            Place::Around(Kind::Numa, 9),
            Place::Cpus(CpuSet::new()),
            Place::Device(String::from("no such device")),
        ] {
            assert!(
                matches!(place.on(&tree), Err(Error::Misuse(_))),
                "{place:?}"
            );
        }
    }
}
