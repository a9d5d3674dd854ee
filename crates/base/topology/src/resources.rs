//! Hardware resources by the names that hwloc gives them, and the instance of each that a process
//! is restricted to.
//!
//! Pure: computed of a tree of the whole machine and the CPUs that a process may run on. MPI tells
//! programs these resources, and splits communicators by them.

use crate::cpuset::CpuSet;
use crate::tree::{Area, Kind, Tree};

/// A type of hardware resource of a machine, as one process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `hwloc://NUMANode` and so on.
    pub name: String,
    /// The CPUs of the one instance that the process is restricted to; `None`: it may run on
    /// several, or on none.
    pub instance: Option<CpuSet>,
}

/// The name that hwloc has for a kind of area, if it has one.
fn name(kind: Kind) -> Option<String> {
    let name = match kind {
        Kind::Core => "Core".into(),
        Kind::Cache(level) => format!("L{level}Cache"),
        Kind::Cluster => return None,
        Kind::Die => "Die".into(),
        Kind::Numa => "NUMANode".into(),
        Kind::Package => "Package".into(),
        Kind::Machine => "Machine".into(),
    };
    Some(format!("hwloc://{name}"))
}

/// The types of resources of a machine, the largest first, for a process that may run on `allowed`.
pub fn resources(machine: &Tree, allowed: &CpuSet) -> Vec<Resource> {
    let areas = machine.areas();
    let mut kinds: Vec<Kind> = areas
        .iter()
        .flat_map(|area| area.kinds.iter().copied())
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let holds = |area: &&Area| !allowed.is_empty() && area.cpus.covers(allowed);
    let instance = |kind: Kind| {
        let mut those = areas.iter().filter(|area| area.kinds.contains(&kind));
        those.find(holds).map(|area| area.cpus.clone())
    };
    let named = kinds.into_iter().rev().filter_map(|kind| {
        Some(Resource {
            name: name(kind)?,
            instance: instance(kind),
        })
    });
    let unit = Resource {
        name: "hwloc://PU".into(),
        instance: Some(allowed.clone()).filter(|cpus| cpus.len() == 1),
    };
    named.chain([unit]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name without its scheme, and the CPUs of the instance, or a dash.
    fn of(machine: &Tree, cpus: &str) -> String {
        let told = resources(machine, &CpuSet::parse(cpus).unwrap())
            .into_iter()
            .map(|found| {
                let cpus = found.instance.map_or("-".into(), |cpus| cpus.to_string());
                format!("{} {cpus}", found.name.strip_prefix("hwloc://").unwrap())
            });
        told.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_process_is_restricted_to_what_covers_its_cpus() {
        // Two packages of two NUMA nodes of one L3 cache of four cores.
        let machine = Tree::regular(2, 2, 1, 4);
        for (cpus, wanted) in [
            (
                "0-15",
                "Machine 0-15, Package -, NUMANode -, L3Cache -, Core -, PU -",
            ),
            (
                "8-15",
                "Machine 0-15, Package 8-15, NUMANode -, L3Cache -, Core -, PU -",
            ),
            (
                "3-4",
                "Machine 0-15, Package 0-7, NUMANode -, L3Cache -, Core -, PU -",
            ),
            (
                "12-13",
                "Machine 0-15, Package 8-15, NUMANode 12-15, L3Cache 12-15, Core -, PU -",
            ),
            (
                "13",
                "Machine 0-15, Package 8-15, NUMANode 12-15, L3Cache 12-15, Core 13, PU 13",
            ),
        ] {
            assert_eq!(of(&machine, cpus), wanted, "{cpus}");
        }
    }

    #[test]
    fn hardware_threads_of_a_core_are_one_core() {
        let machine = Tree::parse("core 0,2\ncore 1,3\npackage 0-3").unwrap();
        assert_eq!(
            of(&machine, "0,2"),
            "Machine 0-3, Package 0-3, Core 0,2, PU -"
        );
        assert_eq!(
            of(&machine, "3"),
            "Machine 0-3, Package 0-3, Core 1,3, PU 3"
        );
        assert_eq!(
            of(&machine, "0-1"),
            "Machine 0-3, Package 0-3, Core -, PU -"
        );
    }

    #[test]
    fn a_process_outside_the_machine_that_is_told_is_restricted_to_nothing_of_it() {
        let machine = Tree::regular(1, 1, 1, 2);
        assert_eq!(
            of(&machine, "7"),
            "Machine -, Package -, NUMANode -, L3Cache -, Core -, PU 7"
        );
    }
}
