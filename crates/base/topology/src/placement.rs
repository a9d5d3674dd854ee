//! Where ranks and their workers run when a machine has more cores than ranks: Algorithms 1 and 2
//! of Taboada's report (Inria RT-481, §3), as pure functions in whole numbers.
//!
//! Ranks are shared out over the NUMA nodes and scattered within each; a rank's worker gets a spare
//! core of the same node, the next free one after its rank, and shares the rank's core when its
//! node has none to spare. The report knows nodes of equal size only; here a node takes its share
//! of the ranks by its cores, which for equal nodes is the report's formula to the letter. It
//! divides fractions; here both sides are multiplied out first, because rounded fractions put some
//! workers on a busy core or into another node. Numbers stay below 2^64: a position times a count
//! of cores, each at most `CPUS_MAX`, and ranks of 32 bits.

use crate::cpuset::CpuSet;
use crate::tree::{Kind, Tree};

/// A core, by its node and its place in the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CorePosition {
    /// Which of the nodes.
    pub node: usize,
    /// Which of the node's cores.
    pub core: usize,
}

/// Place where a rank's worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerPosition {
    /// On a core of the rank's node that no rank has.
    Spare(CorePosition),
    /// On the rank's own core: its node has no core to spare.
    Shared(CorePosition),
}

impl WorkerPosition {
    /// The core, whoever else is on it.
    pub fn spot(self) -> CorePosition {
        match self {
            Self::Spare(spot) | Self::Shared(spot) => spot,
        }
    }
}

/// Cores per NUMA node, nodes without cores left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNodes {
    cores: Vec<usize>,
}

impl NumaNodes {
    /// Nodes with these numbers of cores. `None` if there is no core.
    pub fn new(cores: &[usize]) -> Option<Self> {
        let cores: Vec<usize> = cores.iter().copied().filter(|count| *count > 0).collect();
        (!cores.is_empty()).then_some(Self { cores })
    }

    fn total(&self) -> u64 {
        self.cores.iter().sum::<usize>() as u64
    }

    /// First core of `node` when cores are counted through all nodes.
    fn first(&self, node: usize) -> u64 {
        self.cores[..node].iter().sum::<usize>() as u64
    }

    /// The first rank of `node`: the least whose share of the cores begins there or later. Ranks of
    /// a node are those from its first to the next node's first.
    fn first_rank(&self, node: usize, ranks: u32) -> u64 {
        (self.first(node) * u64::from(ranks)).div_ceil(self.total())
    }

    fn ranks_in(&self, node: usize, ranks: u32) -> u64 {
        self.first_rank(node + 1, ranks) - self.first_rank(node, ranks)
    }

    /// Algorithm 1: where rank `rank` of `ranks` runs. `None`: there is no such rank.
    pub fn rank(&self, rank: u32, ranks: u32) -> Option<CorePosition> {
        if rank >= ranks {
            return None;
        }
        // The node holds the core that the rank would get if all cores were one row; with N nodes
        // of equal size this is ⌊rank·N / ranks⌋.
        let global = u64::from(rank) * self.total() / u64::from(ranks);
        let node = (0..self.cores.len())
            .rev()
            .find(|node| self.first(*node) <= global)?;
        let local = u64::from(rank) - self.first_rank(node, ranks);
        let core = local * self.cores[node] as u64 / self.ranks_in(node, ranks);
        Some(CorePosition {
            node,
            core: core as usize,
        })
    }

    /// Algorithm 2: where the worker of rank `rank` of `ranks` runs. `None`: there is no such rank.
    pub fn worker(&self, rank: u32, ranks: u32) -> Option<WorkerPosition> {
        let own = self.rank(rank, ranks)?;
        let cores = self.cores[own.node] as u64;
        let busy = self.ranks_in(own.node, ranks);
        if busy >= cores {
            return Some(WorkerPosition::Shared(own));
        }
        // Free cores lie `cores / free` apart: the one after position p is the (⌊p / spacing⌋ +
        // 1)th, at ⌈that · spacing⌉ - 1.
        let free = cores - busy;
        let nth = own.core as u64 * free / cores + 1;
        let core = (nth * cores).div_ceil(free) - 1;
        Some(WorkerPosition::Spare(CorePosition {
            node: own.node,
            core: core as usize,
        }))
    }
}

/// A rank and its worker on a real machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlacement {
    /// CPUs of the rank's core.
    pub rank: CpuSet,
    /// CPUs of the worker's core.
    pub worker: CpuSet,
    /// True if the worker's core is one that no rank has.
    pub spare: bool,
}

/// Places `ranks` ranks and their workers on the cores of a machine.
pub fn place(tree: &Tree, ranks: u32) -> Vec<RankPlacement> {
    let areas = tree.areas();
    let cores = &areas[..tree.cores()];
    let mut nodes: Vec<&CpuSet> = areas
        .iter()
        .filter(|area| area.kinds.contains(&Kind::Numa))
        .map(|area| &area.cpus)
        .collect();
    // A machine without nodes is one; so is what a machine tells of them only in part.
    if nodes.iter().map(|cpus| cpus.len()).sum::<usize>() != areas[tree.root()].cpus.len() {
        nodes = vec![&areas[tree.root()].cpus];
    }
    nodes.sort_by_key(|cpus| cpus.first());
    let nodes: Vec<Vec<&CpuSet>> = nodes
        .iter()
        .map(|node| {
            let inside = cores.iter().filter(|core| node.covers(&core.cpus));
            inside.map(|core| &core.cpus).collect()
        })
        .collect();
    let Some(shape) = NumaNodes::new(&nodes.iter().map(Vec::len).collect::<Vec<_>>()) else {
        return Vec::new();
    };
    let at = |spot: CorePosition| nodes[spot.node][spot.core].clone();
    (0..ranks)
        .filter_map(|rank| {
            let worker = shape.worker(rank, ranks)?;
            Some(RankPlacement {
                rank: at(shape.rank(rank, ranks)?),
                worker: at(worker.spot()),
                spare: matches!(worker, WorkerPosition::Spare(_)),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Cores of ranks and workers, counted through the machine.
    fn rows(cores: &[usize], ranks: u32) -> (Vec<usize>, Vec<usize>) {
        let nodes = NumaNodes::new(cores).unwrap();
        let flat = |spot: CorePosition| nodes.first(spot.node) as usize + spot.core;
        (
            (0..ranks)
                .map(|rank| flat(nodes.rank(rank, ranks).unwrap()))
                .collect(),
            (0..ranks)
                .map(|rank| flat(nodes.worker(rank, ranks).unwrap().spot()))
                .collect(),
        )
    }

    /// Figures 1b and 2b of the report: a machine of 8 cores in 2 nodes, with 1 to 8 ranks.
    #[test]
    fn eight_cores_in_two_nodes_are_filled_as_in_the_figures_of_the_report() {
        let figure: [(&[usize], &[usize]); 8] = [
            (&[0], &[1]),
            (&[0, 4], &[1, 5]),
            (&[0, 2, 4], &[1, 3, 5]),
            (&[0, 2, 4, 6], &[1, 3, 5, 7]),
            (&[0, 1, 2, 4, 6], &[3, 3, 3, 5, 7]),
            (&[0, 1, 2, 4, 5, 6], &[3, 3, 3, 7, 7, 7]),
            (&[0, 1, 2, 3, 4, 5, 6], &[0, 1, 2, 3, 7, 7, 7]),
            (&[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ];
        for (ranks, (own, workers)) in (1..).zip(figure) {
            assert_eq!(
                rows(&[4, 4], ranks),
                (own.to_vec(), workers.to_vec()),
                "{ranks} ranks"
            );
        }
    }

    /// The report's formulas as printed, with fractions kept as pairs of whole numbers.
    fn as_printed(rank: i128, ranks: i128, nodes: i128, per_node: i128) -> (i128, i128) {
        let ceil = |a: i128, b: i128| -(-a).div_euclid(b);
        let node = rank * nodes / ranks;
        let local = rank - ceil(node * ranks, nodes);
        let in_node = ceil((node + 1) * ranks, nodes) - ceil(node * ranks, nodes);
        let position = local * per_node / in_node + node * per_node;
        if in_node >= per_node {
            return (position, position);
        }
        let (spacing, unit) = (per_node, per_node - in_node);
        (
            position,
            ceil((position * unit / spacing + 1) * spacing, unit) - 1,
        )
    }

    proptest! {
        #[test]
        fn equal_nodes_follow_the_formulas_of_the_report(nodes in 1usize..9, per_node in 1usize..49, ranks in 1u32..500) {
            let printed: Vec<_> = (0..i128::from(ranks))
                .map(|rank| as_printed(rank, ranks.into(), nodes as i128, per_node as i128))
                .collect();
            let (own, workers) = rows(&vec![per_node; nodes], ranks);
            let ours: Vec<_> = own.iter().zip(&workers).map(|(a, b)| (*a as i128, *b as i128)).collect();
            prop_assert_eq!(ours, printed);
        }

        #[test]
        fn workers_stay_in_their_node_and_off_every_rank_while_a_core_is_free(
            cores in proptest::collection::vec(1usize..20, 1..9), ranks in 1u32..200,
        ) {
            let nodes = NumaNodes::new(&cores).unwrap();
            let taken: BTreeSet<CorePosition> = (0..ranks).filter_map(|rank| nodes.rank(rank, ranks)).collect();
            let total: usize = cores.iter().sum();
            if ranks as usize <= total {
                prop_assert_eq!(taken.len(), ranks as usize, "two ranks share a core though there are enough");
            }
            for rank in 0..ranks {
                let own = nodes.rank(rank, ranks).unwrap();
                prop_assert!(own.core < cores[own.node]);
                let free = (0..cores[own.node]).filter(|core| !taken.contains(&CorePosition { node: own.node, core: *core })).count();
                match nodes.worker(rank, ranks).unwrap() {
                    WorkerPosition::Spare(spot) => {
                        prop_assert!(spot.node == own.node && spot.core < cores[own.node] && !taken.contains(&spot));
                    }
                    WorkerPosition::Shared(spot) => prop_assert!(spot == own && free == 0),
                }
            }
        }

        #[test]
        fn ranks_are_shared_out_by_cores(cores in proptest::collection::vec(1usize..20, 1..9), ranks in 1u32..200) {
            let nodes = NumaNodes::new(&cores).unwrap();
            let total: usize = cores.iter().sum();
            for (node, count) in cores.iter().enumerate() {
                let share = nodes.ranks_in(node, ranks) as f64 - f64::from(ranks) * *count as f64 / total as f64;
                prop_assert!(share.abs() < 1.0, "node {} is {} ranks off its share", node, share);
            }
        }
    }

    #[test]
    fn with_doubles_some_workers_would_stand_on_a_busy_core() {
        // What the exact arithmetic is for: the same formula in doubles, tried on every machine of
        // up to 64 cores a node.
        let off = (2u64..=64)
            .flat_map(|cores| (1..cores).map(move |busy| (cores, busy)))
            .filter(|&(cores, busy)| {
                let taken: BTreeSet<u64> = (0..busy).map(|rank| rank * cores / busy).collect();
                let spacing = cores as f64 / (cores - busy) as f64;
                taken.iter().any(|&position| {
                    let core =
                        (((position as f64 / spacing).floor() + 1.0) * spacing).ceil() as u64 - 1;
                    taken.contains(&core) || core >= cores
                })
            })
            .count();
        assert!(off > 0);
    }

    #[test]
    fn cores_of_a_machine_are_found_by_node_and_hardware_threads_stay_together() {
        let tree =
            Tree::parse("core 0,4\ncore 1,5\ncore 2,6\ncore 3,7\nnuma 0-1,4-5\nnuma 2-3,6-7")
                .unwrap();
        let texts: Vec<_> = place(&tree, 2)
            .iter()
            .map(|pair| (pair.rank.to_string(), pair.worker.to_string(), pair.spare))
            .collect();
        assert_eq!(
            texts,
            [
                ("0,4".into(), "1,5".into(), true),
                ("2,6".into(), "3,7".into(), true)
            ]
        );
        assert!(!place(&Tree::regular(1, 1, 1, 2), 2)[0].spare);
    }

    #[test]
    fn a_node_without_cores_takes_no_rank() {
        assert_eq!(NumaNodes::new(&[0, 4, 0, 4]), NumaNodes::new(&[4, 4]));
        assert_eq!(NumaNodes::new(&[0]), None);
        assert_eq!(NumaNodes::new(&[4]).unwrap().rank(3, 3), None);
    }
}
