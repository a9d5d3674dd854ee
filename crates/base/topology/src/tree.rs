//! The machine as a tree of areas: cores, the caches that they share, NUMA nodes, dies, packages,
//! the whole.
//!
//! Built from sets of CPUs by inclusion, so it takes whatever levels a machine has, in whatever
//! order they nest; sets that are equal are one area with several kinds. Made once by whoever needs
//! it (queues of tasks mirror it), read-only afterwards, bounded by the CPUs of the machine times
//! its kinds of areas.

use std::path::Path;

use crate::cpuset::CpuSet;
use crate::machine::{allowed, cpus_of, nodes, text};

/// Kind of an area. In the order in which they usually nest, which decides only how areas are
/// described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A core, with its hardware threads.
    Core,
    /// A unified or data cache, by its level.
    Cache(u8),
    /// Cores that share a part of the fabric, or on hybrid processors a cache.
    Cluster,
    /// A die of a package.
    Die,
    /// A NUMA node.
    Numa,
    /// A package (socket).
    Package,
    /// All that may be used.
    Machine,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Core => f.write_str("core"),
            Self::Cache(level) => write!(f, "L{level}"),
            Self::Cluster => f.write_str("cluster"),
            Self::Die => f.write_str("die"),
            Self::Numa => f.write_str("numa"),
            Self::Package => f.write_str("package"),
            Self::Machine => f.write_str("machine"),
        }
    }
}

impl Kind {
    /// The other way round.
    pub fn parse(name: &str) -> Option<Self> {
        let named = [
            Self::Core,
            Self::Cluster,
            Self::Die,
            Self::Numa,
            Self::Package,
            Self::Machine,
        ];
        named
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .or_else(|| {
                let level = name.strip_prefix('L')?.parse().ok()?;
                Some(Self::Cache(level))
            })
    }
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Everything that it is: with one core per cache, an area is both.
    pub kinds: Vec<Kind>,
    /// CPUs of the area.
    pub cpus: CpuSet,
    /// The next larger area, by index; `None` for the machine.
    pub parent: Option<usize>,
}

/// See the module's paragraph. Areas are numbered: cores first, in the order of their first CPUs,
/// the machine last, and every area before its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    areas: Vec<Area>,
    cores: usize,
    /// Index of the core of each CPU, by CPU number.
    core_of: Vec<Option<u32>>,
    /// Sets of CPUs that go beyond it.
    wider: Vec<Wider>,
}

/// A set of CPUs of which the tree has a part only.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wider {
    kind: Kind,
    cpus: CpuSet,
    /// A core that the tree has of it.
    core: usize,
}

impl Tree {
    /// This machine, as far as this process may use it.
    pub fn discover() -> Self {
        Self::read(Path::new("/sys/devices/system"), &allowed())
    }

    /// Builds the tree over these CPUs of this machine, whether or not this process may use them.
    pub fn over(cpus: &CpuSet) -> Self {
        Self::read(Path::new("/sys/devices/system"), cpus)
    }

    /// The machine described below `root` (laid out as `/sys/devices/system`), restricted to
    /// `allowed`.
    pub fn read(root: &Path, allowed: &CpuSet) -> Self {
        let mut sets: Vec<(Kind, CpuSet)> = Vec::new();
        let mut add = |kind, cpus: Option<CpuSet>| sets.extend(cpus.map(|cpus| (kind, cpus)));
        for cpu in allowed.iter() {
            let dir = root.join(format!("cpu/cpu{cpu}"));
            let topology = |name: &str| {
                let dir = dir.join("topology");
                cpus_of(&dir.join(format!("{name}_list")), &dir.join(name))
            };
            add(
                Kind::Core,
                topology("core_cpus").or_else(|| topology("thread_siblings")),
            );
            add(Kind::Cluster, topology("cluster_cpus"));
            add(Kind::Die, topology("die_cpus"));
            add(
                Kind::Package,
                topology("package_cpus").or_else(|| topology("core_siblings")),
            );
            for index in 0..CACHES_MAX {
                let cache = dir.join(format!("cache/index{index}"));
                let level = text(&cache.join("level")).and_then(|level| level.parse().ok());
                let data = text(&cache.join("type")).is_none_or(|kind| kind != "Instruction");
                if let (Some(level), true) = (level, data) {
                    let cpus = cpus_of(
                        &cache.join("shared_cpu_list"),
                        &cache.join("shared_cpu_map"),
                    );
                    add(Kind::Cache(level), cpus);
                }
            }
        }
        sets.extend(nodes(root).into_iter().map(|(_, cpus)| (Kind::Numa, cpus)));
        Self::new(allowed, sets)
    }

    /// A tree of `machine` from sets of CPUs, which are cut down to it. A set that crosses another
    /// without being inside it is left out if it is the larger one. A CPU that no core has is a
    /// core by itself.
    pub fn new(machine: &CpuSet, sets: impl IntoIterator<Item = (Kind, CpuSet)>) -> Self {
        let mut machine = machine.clone();
        if machine.is_empty() {
            machine.insert(0);
        }
        let whole: Vec<(Kind, CpuSet)> = sets
            .into_iter()
            .filter(|(_, cpus)| cpus.meets(&machine))
            .collect();
        let cut = |(kind, cpus): &(Kind, CpuSet)| (*kind, cpus.intersection(&machine));
        let mut sets: Vec<(Kind, CpuSet)> = whole.iter().map(cut).collect();
        let in_cores = sets
            .iter()
            .filter(|(kind, _)| *kind == Kind::Core)
            .fold(CpuSet::new(), |sum, (_, cpus)| sum.union(cpus));
        let single = |cpu: u32| [cpu].into_iter().collect::<CpuSet>();
        sets.extend(
            machine
                .iter()
                .filter(|cpu| !in_cores.contains(*cpu))
                .map(|cpu| (Kind::Core, single(cpu))),
        );
        sets.push((Kind::Machine, machine));
        Self::index(nest(merge(sets))).beside(whole)
    }

    /// Notes which of these sets go beyond it, of which it has a part each.
    fn beside(mut self, whole: Vec<(Kind, CpuSet)>) -> Self {
        for (kind, cpus) in whole {
            let core = cpus.iter().find_map(|cpu| self.core_of(cpu));
            let Some(core) = core.filter(|_| !self.areas[self.root()].cpus.covers(&cpus)) else {
                continue;
            };
            let wider = Wider { kind, cpus, core };
            if !self.wider.contains(&wider) {
                self.wider.push(wider);
            }
        }
        self
    }

    /// Reads the form that [`Tree`] prints: a line per kind and set of CPUs, such as `L3 0-7`.
    /// Lines that begin with `#` are comments.
    pub fn parse(description: &str) -> Option<Self> {
        let lines = description.lines().map(str::trim);
        let sets = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (kind, cpus) = line.split_once(' ')?;
                Some((Kind::parse(kind)?, CpuSet::parse(cpus)?))
            })
            .collect::<Option<Vec<_>>>()?;
        let machine = sets
            .iter()
            .fold(CpuSet::new(), |sum, (_, cpus)| sum.union(cpus));
        (!machine.is_empty()).then(|| Self::new(&machine, sets))
    }

    /// A regular machine: `packages` of `nodes` NUMA nodes of `caches` L3 caches of `cores` cores,
    /// CPUs numbered in that order.
    pub fn regular(packages: u32, nodes: u32, caches: u32, cores: u32) -> Self {
        let total = packages * nodes * caches * cores;
        let each = |kind, size: u32| {
            (0..total)
                .step_by(size.max(1) as usize)
                .map(move |first| (kind, (first..first + size).collect::<CpuSet>()))
        };
        let sets = each(Kind::Core, 1)
            .chain(each(Kind::Cache(3), cores))
            .chain(each(Kind::Numa, cores * caches))
            .chain(each(Kind::Package, cores * caches * nodes));
        Self::new(&(0..total).collect(), sets)
    }

    fn index(areas: Vec<Area>) -> Self {
        let cores = areas
            .iter()
            .filter(|area| area.kinds[0] == Kind::Core)
            .count();
        let cpus = areas[areas.len() - 1].cpus.iter().max().unwrap_or(0) as usize + 1;
        let mut core_of = vec![None; cpus];
        for (index, core) in areas.iter().take(cores).enumerate() {
            core.cpus
                .iter()
                .for_each(|cpu| core_of[cpu as usize] = Some(index as u32));
        }
        Self {
            areas,
            cores,
            core_of,
            wider: Vec::new(),
        }
    }

    /// All areas; see [`Tree`] for their order.
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// Number of cores: areas below it are the cores.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The whole machine, the last area.
    pub fn root(&self) -> usize {
        self.areas.len() - 1
    }

    /// The core that has the CPU.
    pub fn core_of(&self, cpu: u32) -> Option<usize> {
        self.core_of
            .get(cpu as usize)
            .copied()
            .flatten()
            .map(|core| core as usize)
    }

    /// An area and those around it, up to the machine.
    pub fn path(&self, area: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(area), |area| self.areas[*area].parent)
    }

    /// The smallest area of this kind around a core. On a machine that does not tell, the next
    /// larger one it has.
    pub fn around(&self, core: usize, kind: Kind) -> usize {
        let is = |area: &usize| self.areas[*area].kinds.contains(&kind);
        let wider = |area: &usize| self.areas[*area].kinds.iter().any(|other| *other > kind);
        self.path(core)
            .find(is)
            .or_else(|| self.path(core).find(wider))
            .unwrap_or(self.root())
    }

    /// The smallest area of this kind around a CPU, also one that the tree does not have, where it
    /// has others of that area. `None`: it has none of them.
    pub fn around_cpu(&self, cpu: u32, kind: Kind) -> Option<usize> {
        if let Some(core) = self.core_of(cpu) {
            return Some(self.around(core, kind));
        }
        let is_told = |kind| self.areas.iter().any(|area| area.kinds.contains(&kind));
        let has = |wider: &&Wider| {
            let is_meant = wider.kind == kind || wider.kind > kind && !is_told(kind);
            is_meant && wider.cpus.contains(cpu)
        };
        let found = self.wider.iter().filter(has);
        let smallest = found.min_by_key(|wider| (wider.kind, wider.cpus.len()))?;
        Some(self.around(smallest.core, kind))
    }

    /// The smallest area around a core that other cores share: a cache where there is one. The
    /// machine if there is one core.
    pub fn shared(&self, core: usize) -> usize {
        self.areas[core].parent.unwrap_or(self.root())
    }

    /// The smallest area that has all those of `cpus` that the machine has; `None` if it has none
    /// of them.
    pub fn covering(&self, cpus: &CpuSet) -> Option<usize> {
        let core = cpus.iter().find_map(|cpu| self.core_of(cpu))?;
        let mine = cpus.intersection(&self.areas[self.root()].cpus);
        self.path(core)
            .find(|area| self.areas[*area].cpus.covers(&mine))
    }
}

/// Levels of cache that are looked for; the deepest machines have four and split the first.
const CACHES_MAX: u32 = 8;

/// One area for each distinct set, cores first and then by size.
fn merge(sets: Vec<(Kind, CpuSet)>) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for (kind, cpus) in sets {
        let at = *known.entry(cpus.clone()).or_insert_with(|| {
            areas.push(Area {
                kinds: Vec::new(),
                cpus,
                parent: None,
            });
            areas.len() - 1
        });
        if !areas[at].kinds.contains(&kind) {
            areas[at].kinds.push(kind);
        }
    }
    areas.iter_mut().for_each(|area| area.kinds.sort_unstable());
    // A cache smaller than a core (none exists) would otherwise come before it.
    areas.sort_by_key(|area| {
        (
            area.kinds[0] != Kind::Core,
            area.cpus.len(),
            area.cpus.first(),
        )
    });
    let cores = areas.partition_point(|area| area.kinds[0] == Kind::Core);
    areas[..cores].sort_by_key(|area| area.cpus.first());
    areas
}

/// Leaves out what crosses a smaller area, and links the rest.
fn nest(sorted: Vec<Area>) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for area in sorted {
        let fits = |other: &Area| area.cpus.covers(&other.cpus) || !area.cpus.meets(&other.cpus);
        if areas.iter().all(fits) {
            areas.push(area);
        }
    }
    for index in 0..areas.len() {
        let around = |other: &usize| areas[*other].cpus.covers(&areas[index].cpus);
        areas[index].parent = (index + 1..areas.len()).find(around);
    }
    areas
}

impl std::fmt::Display for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for area in &self.areas {
            for kind in &area.kinds {
                writeln!(f, "{kind} {}", area.cpus)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(tree: &Tree, cpu: u32) -> Vec<String> {
        let core = tree.core_of(cpu).unwrap();
        tree.path(core)
            .map(|area| {
                let names: Vec<_> = tree.areas()[area]
                    .kinds
                    .iter()
                    .map(Kind::to_string)
                    .collect();
                names.join("+")
            })
            .collect()
    }

    #[test]
    fn a_path_leads_from_the_core_to_the_machine() {
        let tree = Tree::regular(2, 2, 2, 4);
        assert_eq!(tree.cores(), 32);
        assert_eq!(
            kinds(&tree, 5),
            ["core", "L3", "numa", "package", "machine"]
        );
        assert_eq!(tree.areas()[tree.shared(5)].cpus.to_string(), "4-7");
        assert_eq!(
            tree.areas()[tree.around(5, Kind::Package)].cpus.to_string(),
            "0-15"
        );
    }

    #[test]
    fn levels_of_one_extent_are_one_area() {
        let tree = Tree::regular(1, 1, 1, 2);
        assert_eq!(kinds(&tree, 1), ["core", "L3+numa+package+machine"]);
        assert_eq!(tree.areas().len(), 3);
        assert_eq!(kinds(&Tree::regular(1, 1, 1, 1), 0).len(), 1);
    }

    #[test]
    fn a_kind_that_the_machine_does_not_tell_is_taken_one_wider() {
        let tree = Tree::parse("core 0\ncore 1\npackage 0-1\npackage 2-3").unwrap();
        assert_eq!(
            tree.areas()[tree.around(0, Kind::Numa)].cpus.to_string(),
            "0-1",
            "no node is told: the package"
        );
        assert_eq!(tree.cores(), 4, "CPUs without a core are cores");
    }

    #[test]
    fn an_area_around_a_cpu_that_may_not_be_used_is_known_by_those_of_it_that_may() {
        let machine = Tree::regular(2, 2, 2, 2);
        let sets = || {
            let areas = machine.areas().iter();
            areas.flat_map(|area| area.kinds.iter().map(|kind| (*kind, area.cpus.clone())))
        };
        let tree = Tree::new(&CpuSet::parse("2-4").unwrap(), sets());
        let around = |kind, cpu| {
            let area = tree.around_cpu(cpu, kind)?;
            Some(tree.areas()[area].cpus.to_string())
        };
        let cache = Kind::Cache(3);
        assert_eq!(around(cache, 3).as_deref(), Some("2-3"));
        assert_eq!(
            around(cache, 5).as_deref(),
            Some("4"),
            "it shares a cache with 4"
        );
        assert_eq!(around(cache, 0), None, "its cache is that of 0 and 1 alone");
        assert_eq!(around(Kind::Numa, 0).as_deref(), Some("2-3"));
        assert_eq!(around(Kind::Numa, 7).as_deref(), Some("4"));
        assert_eq!(around(Kind::Package, 7).as_deref(), Some("2-4"));
        assert_eq!(around(Kind::Package, 8), None, "the other package");
        assert_eq!(around(Kind::Core, 5), None);
        assert_eq!(
            around(Kind::Die, 7).as_deref(),
            Some("4"),
            "no die is told: the node"
        );
        assert_eq!(around(Kind::Package, 99), None);
    }

    #[test]
    fn the_smallest_area_that_covers_a_set_is_found() {
        let tree = Tree::regular(2, 1, 2, 2);
        let covering = |list: &str| {
            let area = tree.covering(&CpuSet::parse(list).unwrap())?;
            Some(tree.areas()[area].cpus.to_string())
        };
        assert_eq!(covering("3").as_deref(), Some("3"));
        assert_eq!(covering("2-3").as_deref(), Some("2-3"));
        assert_eq!(covering("1-2").as_deref(), Some("0-3"));
        assert_eq!(covering("3-4").as_deref(), Some("0-7"));
        assert_eq!(covering("3,99").as_deref(), Some("3"));
        assert_eq!(covering("99"), None);
        assert_eq!(covering(""), None);
    }

    #[test]
    fn a_set_that_crosses_a_smaller_one_is_left_out() {
        let tree = Tree::parse("L2 0-1\nL2 2-3\nnuma 1-3\npackage 0-3").unwrap();
        assert_eq!(kinds(&tree, 1), ["core", "L2", "package+machine"]);
    }

    #[test]
    fn what_is_no_description_is_refused_and_an_empty_machine_has_one_core() {
        for text in ["", "core", "thing 0", "L 0", "core x"] {
            assert_eq!(Tree::parse(text), None, "{text}");
        }
        assert_eq!(Tree::new(&CpuSet::new(), []).cores(), 1);
    }

    #[test]
    fn this_machine_has_a_tree_over_all_that_is_allowed() {
        let tree = Tree::discover();
        assert_eq!(tree.areas()[tree.root()].cpus, allowed());
        assert!(allowed().iter().all(|cpu| tree.core_of(cpu).is_some()));
    }
}
