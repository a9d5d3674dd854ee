//! Where to put ranks: pure functions from a machine, what others hold, and the user's wish, to a
//! set of CPUs per rank.

use crate::cpuset::CpuSet;
use crate::machine::Machine;
use crate::placement::NumaNodes;

/// Part of the machine to which a rank is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindTo {
    /// A core if there are enough free ones, else nothing.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// A hardware thread.
    Thread,
    /// A core.
    Core,
    /// The cores that share a last-level cache.
    Cache,
    /// A NUMA node.
    Numa,
    /// A package.
    Package,
}

/// Which parts of the machine consecutive ranks go to in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapBy {
    /// All NUMA nodes get their share of consecutive ranks, which spread out over the node's cores:
    /// memory and spare cores of all nodes are used.
    #[default]
    Scatter,
    /// The next core: neighbours in rank are neighbours in the machine.
    Core,
    /// The next last-level cache.
    Cache,
    /// The next NUMA node.
    Numa,
    /// The next package.
    Package,
}

/// Wishes of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What a rank is bound to.
    pub bind: BindTo,
    /// The order of places.
    pub map: MapBy,
    /// Cores per rank (for ranks with threads).
    pub cores_per_rank: u32,
}

impl Policy {
    /// Returns whether ranks are to be bound because somebody says so, and not only where it is of
    /// use.
    pub fn asks_for_binding(&self) -> bool {
        match self.bind {
            BindTo::None => false,
            BindTo::Auto => self.cores_per_rank > 1,
            _ => true,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            bind: BindTo::Auto,
            map: MapBy::Scatter,
            cores_per_rank: 1,
        }
    }
}

/// Processors that are available.
#[derive(Clone, Debug)]
pub struct BindingInput<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// CPUs that other jobs are bound to.
    pub taken: &'a CpuSet,
    /// Processor time in thousandths of a core.
    pub cpus_milli: u32,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingPlan {
    /// CPUs of each rank; empty if nobody is bound.
    pub sets: Vec<CpuSet>,
    /// CPUs of the free cores of each rank's NUMA node that no rank has, for its progress thread;
    /// empty if there is none.
    pub spare: Vec<CpuSet>,
    /// Why, in a few words.
    pub reason: String,
}

impl BindingPlan {
    fn unbound(reason: impl Into<String>) -> Self {
        Self {
            sets: Vec::new(),
            spare: Vec::new(),
            reason: reason.into(),
        }
    }
}

/// Decides for `ranks` ranks.
pub fn plan(available: &BindingInput<'_>, ranks: u32, policy: &Policy) -> BindingPlan {
    let per_rank = policy.cores_per_rank.max(1);
    let wanted = u64::from(ranks) * u64::from(per_rank);
    let all = available.machine.cores();
    let free: Vec<CpuSet> = all
        .iter()
        .filter(|core| !core.meets(available.taken))
        .cloned()
        .collect();
    match policy.bind {
        BindTo::None => return BindingPlan::unbound("asked for"),
        BindTo::Auto if wanted > all.len() as u64 => {
            return BindingPlan::unbound(format!("{wanted} cores wanted, {} there", all.len()));
        }
        BindTo::Auto if wanted * 1000 > u64::from(available.cpus_milli) => {
            let quota = f64::from(available.cpus_milli) / 1000.0;
            return BindingPlan::unbound(format!("{wanted} cores wanted, the quota is {quota}"));
        }
        BindTo::Auto | BindTo::Core | BindTo::Thread
            if free.is_empty() || wanted > free.len() as u64 && free.len() < all.len() =>
        {
            return BindingPlan::unbound(format!(
                "{wanted} cores wanted, {} not taken by other jobs",
                free.len()
            ));
        }
        _ => {}
    }
    let cores = in_order(available.machine, &free, policy.map);
    let scattered = match (policy.bind, policy.map) {
        (BindTo::Auto | BindTo::Core, MapBy::Scatter) => {
            scattered(available.machine, &free, ranks, per_rank as usize)
        }
        _ => None,
    };
    let sets: Vec<CpuSet> = match policy.bind {
        _ if scattered.is_some() => scattered.unwrap_or_default(),
        BindTo::Thread => threads(&cores, ranks),
        BindTo::Cache | BindTo::Numa | BindTo::Package => areas(available.machine, policy, ranks),
        _ => (0..ranks)
            .map(|rank| take(&cores, rank as usize * per_rank as usize, per_rank as usize))
            .collect(),
    };
    BindingPlan {
        spare: spare(available.machine, &free, &sets),
        sets,
        reason: String::from(if policy.bind == BindTo::Auto {
            "enough free cores"
        } else {
            "asked for"
        }),
    }
}

/// Algorithm 1 of [`crate::placement`] over the free cores, `per_rank` of them at a time. `None`:
/// there are not enough.
fn scattered(
    machine: &Machine,
    free: &[CpuSet],
    ranks: u32,
    per_rank: usize,
) -> Option<Vec<CpuSet>> {
    let nodes = machine.grouped(|pu| pu.numa).into_iter().map(|node| {
        let cores: Vec<CpuSet> = free
            .iter()
            .filter(|core| core.meets(&node))
            .cloned()
            .collect();
        let places = cores
            .chunks_exact(per_rank)
            .map(|cores| take(cores, 0, per_rank));
        places.collect::<Vec<CpuSet>>()
    });
    let nodes: Vec<Vec<CpuSet>> = nodes.filter(|places| !places.is_empty()).collect();
    let sizes: Vec<usize> = nodes.iter().map(Vec::len).collect();
    if sizes.iter().sum::<usize>() < ranks as usize {
        return None;
    }
    let shape = NumaNodes::new(&sizes)?;
    (0..ranks)
        .map(|rank| {
            let spot = shape.rank(rank, ranks)?;
            Some(nodes[spot.node][spot.core].clone())
        })
        .collect()
}

/// For each rank the cores to which Algorithm 2 may send its progress thread: all of its node that
/// are free and no rank's. Which of them is idle the kernel knows best.
fn spare(machine: &Machine, free: &[CpuSet], sets: &[CpuSet]) -> Vec<CpuSet> {
    let busy = sets.iter().fold(CpuSet::new(), |sum, set| sum.union(set));
    let left = |node: &CpuSet| {
        free.iter()
            .filter(|core| core.meets(node) && !core.meets(&busy))
            .fold(CpuSet::new(), |sum, core| sum.union(core))
    };
    let nodes = machine.grouped(|pu| pu.numa).into_iter();
    let nodes: Vec<(CpuSet, CpuSet)> = nodes.map(|node| (left(&node), node)).collect();
    let near = |set: &CpuSet| {
        let its = nodes.iter().find(|(_, node)| node.meets(set));
        its.map_or_else(CpuSet::new, |(left, _)| left.clone())
    };
    sets.iter().map(near).collect()
}

/// `count` cores from position `first`, wrapping around.
fn take(cores: &[CpuSet], first: usize, count: usize) -> CpuSet {
    (first..first + count)
        .map(|i| &cores[i % cores.len()])
        .fold(CpuSet::new(), |sum, core| sum.union(core))
}

/// Hardware threads in turn: the first of every core, then the second.
fn threads(cores: &[CpuSet], ranks: u32) -> Vec<CpuSet> {
    let depth = cores.iter().map(CpuSet::len).max().unwrap_or(0);
    let all: Vec<u32> = (0..depth)
        .flat_map(|level| cores.iter().filter_map(move |core| core.iter().nth(level)))
        .collect();
    (0..ranks as usize)
        .map(|rank| [all[rank % all.len()]].into_iter().collect())
        .collect()
}

fn parts(machine: &Machine, bind: BindTo) -> Vec<CpuSet> {
    match bind {
        BindTo::Numa => machine.grouped(|pu| pu.numa),
        BindTo::Package => machine.grouped(|pu| pu.package),
        _ => machine.grouped(|pu| pu.cache),
    }
}

/// One area per rank: in turn if ranks are mapped by areas, else filled one after the other,
/// evenly.
fn areas(machine: &Machine, policy: &Policy, ranks: u32) -> Vec<CpuSet> {
    let parts = parts(machine, policy.bind);
    let in_turn = !matches!(policy.map, MapBy::Core | MapBy::Scatter);
    (0..ranks as usize)
        .map(|rank| match in_turn {
            true => parts[rank % parts.len()].clone(),
            false => parts[rank * parts.len() / ranks as usize].clone(),
        })
        .collect()
}

/// The free cores in the order in which ranks take them.
fn in_order(machine: &Machine, free: &[CpuSet], map: MapBy) -> Vec<CpuSet> {
    let parts = match map {
        MapBy::Core | MapBy::Scatter => vec![machine.cpus()],
        MapBy::Cache => machine.grouped(|pu| pu.cache),
        MapBy::Numa => machine.grouped(|pu| pu.numa),
        MapBy::Package => machine.grouped(|pu| pu.package),
    };
    let columns: Vec<Vec<&CpuSet>> = parts
        .iter()
        .map(|part| free.iter().filter(|core| core.meets(part)).collect())
        .collect();
    let depth = columns.iter().map(Vec::len).max().unwrap_or(0);
    (0..depth)
        .flat_map(|row| {
            columns
                .iter()
                .filter_map(move |column| column.get(row).map(|core| (*core).clone()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::regular;
    use proptest::prelude::*;

    fn decide(machine: &Machine, taken: &str, ranks: u32, policy: Policy) -> BindingPlan {
        let taken = CpuSet::parse(taken).unwrap();
        let cpus_milli = machine.pus.len() as u32 * 1000;
        plan(
            &BindingInput {
                machine,
                taken: &taken,
                cpus_milli,
            },
            ranks,
            &policy,
        )
    }

    fn texts(plan: &BindingPlan) -> Vec<String> {
        plan.sets.iter().map(CpuSet::to_string).collect()
    }

    #[test]
    fn ranks_get_a_core_each_while_there_are_enough() {
        let machine = regular(2, 2, 2);
        assert_eq!(
            texts(&decide(&machine, "", 4, Policy::default())),
            ["0,4", "1,5", "2,6", "3,7"]
        );
        assert!(decide(&machine, "", 5, Policy::default()).sets.is_empty());
    }

    #[test]
    fn fewer_ranks_than_cores_spread_out_and_leave_their_helpers_cores_of_their_node() {
        let machine = regular(2, 4, 1);
        let plan = decide(&machine, "", 4, Policy::default());
        assert_eq!(texts(&plan), ["0", "2", "4", "6"]);
        let spare: Vec<String> = plan.spare.iter().map(CpuSet::to_string).collect();
        assert_eq!(spare, ["1,3", "1,3", "5,7", "5,7"]);
        // What other jobs have is neither a rank's nor spare.
        let plan = decide(&machine, "0-1,7", 3, Policy::default());
        assert_eq!(texts(&plan), ["2", "3", "4"]);
        let spare: Vec<String> = plan.spare.iter().map(CpuSet::to_string).collect();
        assert_eq!(spare, ["", "", "5-6"]);
        let two_each = Policy {
            cores_per_rank: 2,
            ..Policy::default()
        };
        assert_eq!(texts(&decide(&machine, "", 2, two_each)), ["0-1", "4-5"]);
        let packed = Policy {
            map: MapBy::Core,
            ..Policy::default()
        };
        assert_eq!(
            texts(&decide(&machine, "", 4, packed)),
            ["0", "1", "2", "3"]
        );
    }

    #[test]
    fn cores_of_other_jobs_are_left_alone() {
        let machine = regular(1, 4, 1);
        assert_eq!(
            texts(&decide(&machine, "0-1", 2, Policy::default())),
            ["2", "3"]
        );
        assert!(
            decide(&machine, "0-2", 2, Policy::default())
                .sets
                .is_empty()
        );
        let core = Policy {
            bind: BindTo::Core,
            ..Policy::default()
        };
        assert!(decide(&machine, "0-3", 1, core).sets.is_empty());
    }

    #[test]
    fn a_quota_counts_as_cores() {
        let machine = regular(1, 4, 1);
        let available = BindingInput {
            machine: &machine,
            taken: &CpuSet::new(),
            cpus_milli: 1500,
        };
        assert!(plan(&available, 2, &Policy::default()).sets.is_empty());
        assert_eq!(plan(&available, 1, &Policy::default()).sets.len(), 1);
    }

    #[test]
    fn mapping_by_numa_takes_the_nodes_in_turn() {
        let machine = regular(2, 2, 1);
        let policy = Policy {
            map: MapBy::Numa,
            ..Policy::default()
        };
        assert_eq!(
            texts(&decide(&machine, "", 4, policy)),
            ["0", "2", "1", "3"]
        );
        let policy = Policy {
            bind: BindTo::Numa,
            map: MapBy::Numa,
            ..Policy::default()
        };
        assert_eq!(
            texts(&decide(&machine, "", 3, policy)),
            ["0-1", "2-3", "0-1"]
        );
        let policy = Policy {
            bind: BindTo::Numa,
            ..Policy::default()
        };
        assert_eq!(
            texts(&decide(&machine, "", 4, policy)),
            ["0-1", "0-1", "2-3", "2-3"]
        );
    }

    #[test]
    fn an_explicit_wish_for_cores_wraps_around() {
        let policy = Policy {
            bind: BindTo::Core,
            ..Policy::default()
        };
        assert_eq!(
            texts(&decide(&regular(1, 2, 1), "", 3, policy)),
            ["0", "1", "0"]
        );
    }

    proptest! {
        #[test]
        fn no_rank_is_bound_to_what_is_taken_or_not_there(
            packages in 1u32..4, cores in 1u32..5, threads in 1u32..3, ranks in 1u32..20, per_rank in 1u32..4, taken in 0u64..1 << 16,
        ) {
            let machine = regular(packages, cores, threads);
            let taken: CpuSet = (0..16).filter(|bit| taken >> bit & 1 == 1).collect();
            for bind in [BindTo::Auto, BindTo::Core, BindTo::Thread] {
                for map in [MapBy::Scatter, MapBy::Core, MapBy::Cache, MapBy::Numa, MapBy::Package] {
                    let policy = Policy { bind, map, cores_per_rank: per_rank };
                    let available = BindingInput { machine: &machine, taken: &taken, cpus_milli: u32::MAX };
                    let plan = plan(&available, ranks, &policy);
                    prop_assert!(plan.sets.is_empty() || plan.sets.len() == ranks as usize);
                    for set in &plan.sets {
                        prop_assert!(!set.is_empty() && !set.meets(&taken));
                        prop_assert!(set.iter().all(|cpu| machine.cpus().contains(cpu)));
                    }
                    for spare in &plan.spare {
                        prop_assert!(!spare.meets(&taken) && plan.sets.iter().all(|set| !spare.meets(set)));
                    }
                    if bind == BindTo::Auto {
                        let total: usize = plan.sets.iter().map(CpuSet::len).sum();
                        let distinct = plan.sets.iter().fold(CpuSet::new(), |sum, set| sum.union(set)).len();
                        prop_assert_eq!(total, distinct, "two ranks share a CPU");
                    }
                }
            }
        }
    }
}
