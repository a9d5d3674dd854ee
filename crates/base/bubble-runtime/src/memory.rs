//! Memory that goes to threads, and threads that go to memory, where that pays by measured costs.
//!
//! What is decided is [`garonne_bubbles::plan_migration`]; this asks the kernel where pages are and
//! moves them. On a machine of one node nothing is measured, and nothing moves.

use crate::limits::{PAGE, PAGES_PER_CALL};
use crate::{BubbleError, sys};
use garonne_bubbles::{MayMove, MemoryCosts, MemoryUse, plan_migration};
use garonne_fiber::Place;
use garonne_topology::CpuSet;
use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

/// What was done with memory that a thread uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// NUMA node on which the thread goes on.
    pub node: usize,
    /// Bytes of pages that moved there.
    pub moved: u64,
    /// Bytes of pages that nobody has touched: they will be where they are first touched.
    pub untouched: u64,
}

/// Nodes, and pages that are on them: the kernel's, or made up.
trait NodeMemory {
    /// Node of the caller's CPU.
    fn node_of_caller(&self) -> usize;
    /// Number of nodes.
    fn nodes(&self) -> usize;
    /// What passes and moves cost.
    fn costs(&self) -> MemoryCosts;
    /// Node of each page; `None`: nobody has touched it.
    fn nodes_of(&self, pages: &[usize]) -> io::Result<Vec<Option<u32>>>;
    /// Moves pages to a node. Returns how many are there afterwards.
    fn move_to(&self, pages: &[usize], node: usize) -> io::Result<usize>;
}

/// Says that the caller goes through this memory so many times from now on. Pages move to it, or it
/// goes to them, where that takes less time than far accesses would. `may_move` says which of the
/// two may be. Only a fiber outside of bubbles goes anywhere: others stay where their scheduler, or
/// the kernel, has them.
///
/// # Errors
/// The memory is not the process's, or the kernel moves nothing.
pub fn attach_memory(
    address: usize,
    bytes: usize,
    passes: u64,
    may_move: MayMove,
) -> Result<Attached, BubbleError> {
    let may_go = garonne_fiber::current().is_some() && garonne_fiber::guest_number().is_none();
    let may_move = match (may_move, may_go) {
        (MayMove::Both, false) => MayMove::Pages,
        (may_move, _) => may_move,
    };
    let kernel = Kernel;
    let own = kernel.node_of_caller();
    let done = attach_on(&kernel, address, bytes, passes, may_move)?;
    if done.node != own && may_go {
        go_to(done.node)?;
    }
    Ok(Attached {
        node: kernel.node_of_caller(),
        ..done
    })
}

fn attach_on(
    memory: &impl NodeMemory,
    address: usize,
    bytes: usize,
    passes: u64,
    may_move: MayMove,
) -> Result<Attached, BubbleError> {
    let own = memory.node_of_caller();
    let first = address & !(PAGE - 1);
    let count = match bytes {
        0 => 0,
        bytes => (address - first).saturating_add(bytes).div_ceil(PAGE),
    };
    let pages: Vec<usize> = (0..count)
        .map(|page| first.saturating_add(page * PAGE))
        .collect();
    let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut done = Attached {
        node: own,
        ..Attached::default()
    };
    for part in pages.chunks(PAGES_PER_CALL) {
        let nodes = memory.nodes_of(part).map_err(BubbleError::Memory)?;
        for (page, node) in part.iter().zip(nodes) {
            match node {
                Some(node) => by_node.entry(node as usize).or_default().push(*page),
                None => done.untouched += PAGE as u64,
            }
        }
    }
    if memory.nodes() < 2 {
        return Ok(done);
    }
    let areas: Vec<(usize, Vec<usize>)> = by_node.into_iter().collect();
    let uses: Vec<MemoryUse> = areas
        .iter()
        .map(|(node, pages)| MemoryUse {
            bytes: (pages.len() * PAGE) as u64,
            node: Some(*node),
            passes,
        })
        .collect();
    let plan = plan_migration(&memory.costs(), own, &uses, may_move);
    done.node = plan.node;
    for at in plan.moved {
        for part in areas[at].1.chunks(PAGES_PER_CALL) {
            let moved = memory.move_to(part, plan.node);
            done.moved += (moved.map_err(BubbleError::Memory)? * PAGE) as u64;
        }
    }
    Ok(done)
}

/// The calling fiber goes on at a node, and stays there.
fn go_to(node: usize) -> Result<(), BubbleError> {
    if let (Some(fiber), Some(cpus)) = (garonne_fiber::current(), cpus_of(node)) {
        fiber.set_place(&Place::Cpus(cpus))?;
        garonne_fiber::yield_now();
    }
    Ok(())
}

/// CPUs of a node that this process may use.
fn cpus_of(node: usize) -> Option<CpuSet> {
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    let cpus = CpuSet::parse(list.ok()?.trim())?.intersection(&garonne_topology::allowed());
    (!cpus.is_empty()).then_some(cpus)
}

/// This machine.
struct Kernel;

impl NodeMemory for Kernel {
    fn node_of_caller(&self) -> usize {
        sys::node_of_caller()
    }

    fn nodes(&self) -> usize {
        static NODES: OnceLock<usize> = OnceLock::new();
        *NODES.get_or_init(|| {
            let online = std::fs::read_to_string("/sys/devices/system/node/online");
            let online = online.ok().and_then(|list| CpuSet::parse(list.trim()));
            online.map_or(1, |nodes| {
                nodes.iter().max().map_or(1, |last| last as usize + 1)
            })
        })
    }

    fn costs(&self) -> MemoryCosts {
        static COSTS: OnceLock<MemoryCosts> = OnceLock::new();
        COSTS
            .get_or_init(|| crate::memory_costs::measure(self.nodes(), cpus_of))
            .clone()
    }

    fn nodes_of(&self, pages: &[usize]) -> io::Result<Vec<Option<u32>>> {
        sys::ask_nodes(pages)
    }

    fn move_to(&self, pages: &[usize], node: usize) -> io::Result<usize> {
        sys::move_pages(pages, node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Two nodes; pages by address, as the tests put them there.
    struct TwoNodes(RefCell<BTreeMap<usize, u32>>, usize);

    impl TwoNodes {
        /// The first so many pages from `BASE` on node 1, four more on node 0.
        fn with_far(pages: usize) -> Self {
            let far = (0..pages).map(|page| (BASE + page * PAGE, 1));
            let near = (pages..pages + 4).map(|page| (BASE + page * PAGE, 0));
            Self(RefCell::new(far.chain(near).collect()), 2)
        }
    }

    const BASE: usize = 16 << 20;

    impl NodeMemory for TwoNodes {
        fn node_of_caller(&self) -> usize {
            0
        }

        fn nodes(&self) -> usize {
            self.1
        }

        fn costs(&self) -> MemoryCosts {
            MemoryCosts {
                move_kib: 300.0,
                move_call: 5_000.0,
                thread_move: 100_000.0,
                ..MemoryCosts::regular(2, 90.0, 120.0)
            }
        }

        fn nodes_of(&self, pages: &[usize]) -> io::Result<Vec<Option<u32>>> {
            let known = self.0.borrow();
            Ok(pages.iter().map(|page| known.get(page).copied()).collect())
        }

        fn move_to(&self, pages: &[usize], node: usize) -> io::Result<usize> {
            let mut known = self.0.borrow_mut();
            let moved = pages.iter().map(|page| known.insert(*page, node as u32));
            Ok(moved.flatten().count())
        }
    }

    #[test]
    fn pages_go_to_a_thread_that_uses_them_often() {
        let memory = TwoNodes::with_far(3000);
        let bytes = 3010 * PAGE;
        let seldom = attach_on(&memory, BASE + 5, bytes - 5, 2, MayMove::Pages).unwrap();
        assert_eq!((seldom.node, seldom.moved), (0, 0));
        assert_eq!(seldom.untouched, 6 * PAGE as u64);
        let often = attach_on(&memory, BASE, bytes, 100, MayMove::Pages).unwrap();
        assert_eq!((often.node, often.moved), (0, 3000 * PAGE as u64));
        let again = attach_on(&memory, BASE, bytes, 100, MayMove::Both).unwrap();
        assert_eq!((again.node, again.moved), (0, 0));
    }

    #[test]
    fn a_thread_goes_to_pages_where_that_costs_less() {
        let memory = TwoNodes::with_far(3000);
        let done = attach_on(&memory, BASE, 3004 * PAGE, 5, MayMove::Both).unwrap();
        assert_eq!((done.node, done.moved), (1, 0));
        let alone = TwoNodes(RefCell::default(), 1);
        let nothing = attach_on(&alone, BASE, PAGE, 1000, MayMove::Both).unwrap();
        assert_eq!((nothing.node, nothing.untouched), (0, PAGE as u64));
    }

    /// This machine, whatever nodes it has: nothing is lost, and what is nobody's is refused.
    #[test]
    fn memory_of_this_process_keeps_its_values() {
        let values: Vec<u32> = (0..1 << 18).collect();
        let (address, bytes) = (values.as_ptr() as usize, values.len() * 4);
        let done = attach_memory(address, bytes, 1_000_000, MayMove::Both).unwrap();
        assert!(
            done.node < Kernel.nodes() && done.untouched == 0,
            "{done:?}"
        );
        assert!(
            values
                .iter()
                .enumerate()
                .all(|(at, value)| at as u32 == *value)
        );
        let pages = [address & !(PAGE - 1)];
        let own = Kernel.node_of_caller();
        assert_eq!(Kernel.move_to(&pages, own).unwrap(), 1);
        assert_eq!(Kernel.nodes_of(&pages).unwrap(), [Some(own as u32)]);
        assert!(Kernel.move_to(&pages, 1000).is_err());
        let done = attach_memory(address, 0, 1, MayMove::Pages).unwrap();
        assert_eq!((done.moved, done.untouched), (0, 0));
    }
}
