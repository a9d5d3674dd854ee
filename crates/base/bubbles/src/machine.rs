//! The machine as schedulers see it: places that have run queues, and processors.

use garonne_topology::{Kind, Tree};
use serde::{Deserialize, Serialize};

/// Number of a place: an area of the topology's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlaceId(pub u32);

/// Number of a processor: a CPU that runs threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessorId(pub u32);

/// An area of the machine, which has a run queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Kinds of area that it is, in words: `L3 numa package`.
    pub label: String,
    /// The next larger one; `None` for the machine.
    pub parent: Option<PlaceId>,
    /// The next smaller ones.
    pub children: Vec<PlaceId>,
    /// Processors in it.
    pub processors: Vec<ProcessorId>,
}

/// Places and processors of a machine. Made once and read-only afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    places: Vec<Place>,
    kinds: Vec<Vec<Kind>>,
    /// Core of each processor.
    leaves: Vec<PlaceId>,
    /// CPU number of each processor.
    cpus: Vec<u32>,
}

impl Machine {
    /// A machine that has a place for each area of the tree and a processor for each CPU.
    pub fn new(tree: &Tree) -> Self {
        let areas = tree.areas();
        let cpus: Vec<u32> = areas[tree.root()].cpus.iter().collect();
        let place = |index: usize| {
            let area = &areas[index];
            let names: Vec<String> = area.kinds.iter().map(Kind::to_string).collect();
            let inside = |other: &usize| areas[*other].parent == Some(index);
            Place {
                label: names.join(" "),
                parent: area.parent.map(|parent| PlaceId(parent as u32)),
                children: sorted_by_cpu(tree, (0..areas.len()).filter(inside)),
                processors: (0..cpus.len())
                    .filter(|at| area.cpus.contains(cpus[*at]))
                    .map(|at| ProcessorId(at as u32))
                    .collect(),
            }
        };
        let leaf = |cpu: &u32| PlaceId(tree.core_of(*cpu).unwrap_or(tree.root()) as u32);
        Self {
            places: (0..areas.len()).map(place).collect(),
            kinds: areas.iter().map(|area| area.kinds.clone()).collect(),
            leaves: cpus.iter().map(leaf).collect(),
            cpus,
        }
    }

    /// Returns the place; `None` if the machine has none of this number.
    pub fn place(&self, place: PlaceId) -> Option<&Place> {
        self.places.get(place.0 as usize)
    }

    /// All places by number, the whole machine last.
    pub fn places(&self) -> impl Iterator<Item = PlaceId> + use<> {
        (0..self.places.len() as u32).map(PlaceId)
    }

    /// All processors by number.
    pub fn processors(&self) -> impl Iterator<Item = ProcessorId> + use<> {
        (0..self.leaves.len() as u32).map(ProcessorId)
    }

    /// The whole machine.
    pub fn root(&self) -> PlaceId {
        PlaceId(self.places.len() as u32 - 1)
    }

    /// CPU number of a processor.
    pub fn cpu(&self, processor: ProcessorId) -> u32 {
        self.cpus[processor.0 as usize]
    }

    /// The core of a processor.
    pub fn leaf(&self, processor: ProcessorId) -> PlaceId {
        self.leaves[processor.0 as usize]
    }

    /// Processors of a place.
    pub fn processors_of(&self, place: PlaceId) -> &[ProcessorId] {
        &self.places[place.0 as usize].processors
    }

    /// The next smaller places.
    pub fn children(&self, place: PlaceId) -> &[PlaceId] {
        &self.places[place.0 as usize].children
    }

    /// A place and those around it, up to the machine.
    pub fn path(&self, place: PlaceId) -> impl Iterator<Item = PlaceId> + '_ {
        std::iter::successors(Some(place), |place| self.places[place.0 as usize].parent)
    }

    /// Returns whether a place is another one or lies in it.
    pub fn is_within(&self, inner: PlaceId, outer: PlaceId) -> bool {
        self.path(inner).any(|place| place == outer)
    }

    /// Places that lie in a place, with itself.
    pub fn within(&self, outer: PlaceId) -> impl Iterator<Item = PlaceId> + '_ {
        self.places()
            .filter(move |place| self.is_within(*place, outer))
    }

    /// The NUMA node around a place; the machine where there are none.
    pub fn node(&self, place: PlaceId) -> PlaceId {
        self.enclosing(place, |kind| kind == Kind::Numa)
            .unwrap_or(self.root())
    }

    /// All NUMA nodes; the machine if it has none.
    pub fn nodes(&self) -> Vec<PlaceId> {
        self.each_of(|place| self.node(place))
    }

    /// The area around a place that shares its last level of cache. Where a machine does not tell
    /// of caches that cores share, the next larger area than a core.
    pub fn cache(&self, place: PlaceId) -> PlaceId {
        let is_shared = |place: &PlaceId| self.processors_of(*place).len() > 1;
        let is_cache = |place: &PlaceId| {
            let kinds = &self.kinds[place.0 as usize];
            kinds.iter().any(|kind| matches!(kind, Kind::Cache(_)))
        };
        let shared = |place: &PlaceId| is_shared(place) && is_cache(place);
        self.path(place)
            .filter(shared)
            .last()
            .or_else(|| self.path(place).find(is_shared))
            .unwrap_or(self.root())
    }

    /// All areas that share a last level of cache.
    pub fn caches(&self) -> Vec<PlaceId> {
        self.each_of(|place| self.cache(place))
    }

    /// The smallest place that has both.
    pub fn common(&self, one: PlaceId, other: PlaceId) -> PlaceId {
        self.path(one)
            .find(|place| self.is_within(other, *place))
            .unwrap_or(self.root())
    }

    /// Returns whether two places are in one package.
    pub fn same_package(&self, one: PlaceId, other: PlaceId) -> bool {
        let package = |place| self.enclosing(place, |kind| kind == Kind::Package);
        package(one).is_some() && package(one) == package(other)
    }

    fn enclosing(&self, place: PlaceId, is: impl Fn(Kind) -> bool) -> Option<PlaceId> {
        self.path(place)
            .find(|place| self.kinds[place.0 as usize].iter().any(|kind| is(*kind)))
    }

    /// What `of` says of the leaves, each once, in the order of processors.
    fn each_of(&self, of: impl Fn(PlaceId) -> PlaceId) -> Vec<PlaceId> {
        let mut found: Vec<PlaceId> = Vec::new();
        for place in self.leaves.iter().map(|leaf| of(*leaf)) {
            if !found.contains(&place) {
                found.push(place);
            }
        }
        found
    }
}

/// Areas in the order of their first CPUs.
fn sorted_by_cpu(tree: &Tree, areas: impl Iterator<Item = usize>) -> Vec<PlaceId> {
    let mut areas: Vec<usize> = areas.collect();
    areas.sort_by_key(|area| tree.areas()[*area].cpus.first());
    areas.into_iter().map(|area| PlaceId(area as u32)).collect()
}
