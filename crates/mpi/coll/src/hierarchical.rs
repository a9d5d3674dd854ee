//! Collectives of ranks on several nodes as steps inside nodes and steps between them, each by the
//! algorithm that suits there.
//!
//! One rank of each node is its leader: the root on the root's node, the first rank elsewhere. The
//! data of a node's ranks is brought together before it leaves the node. So a network carries about
//! one copy of the data per node, in as many rounds as the nodes need, whatever the ranks per node.

mod alltoall;
mod between_nodes;

pub use alltoall::alltoall;

use super::algo::{
    Reduction, allgather as own_blocks, allreduce, barrier as tokens, bcast as from_root, len,
    part, reduce_scatter,
};
use super::blocks::{Blocks, CountArray};
use super::in_group::{bcast_in_group, plan_allgather, reduce_in_group};
use super::node_map::NodeMap;
use super::plan::{Plan, PlanScratch};
use super::sub_plan::SubPlan;
use super::temp_buffer::NoMemory;
use super::typed_buffer::{ByteElements, TypedBuffer, slice};
use garonne_sync::user::{Data, UserMem};

/// The rank that speaks for its node where no root does, among the node's ranks.
const FIRST: u32 = 0;

/// Steps among the ranks of the own node, in their order.
fn within_node<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    step: impl FnOnce(&mut SubPlan<'_, E>) -> Result<(), E>,
) -> Result<(), E> {
    let (node, me) = spread.mine();
    if spread.size(node) == 1 {
        return Ok(());
    }
    step(&mut SubPlan {
        plan: p,
        me,
        size: spread.size(node),
        on_node: true,
        rank: &|index| spread.rank(node, index),
    })
}

/// Steps among `size` ranks of several nodes, in an order of which the own rank has place `me`.
fn across_nodes<'a, E: From<NoMemory>>(
    p: &'a mut dyn Plan<Error = E>,
    me: u32,
    size: u32,
    rank: &'a dyn Fn(u32) -> u32,
) -> SubPlan<'a, E> {
    SubPlan {
        plan: p,
        me,
        size,
        on_node: false,
        rank,
    }
}

/// The leader of each node.
#[derive(Clone, Copy)]
struct NodeLeaders<'a> {
    spread: &'a NodeMap,
    /// Node and index there of a rank that speaks for its node, whether it is the first there or
    /// not.
    root: Option<(u32, u32)>,
}

impl<'a> NodeLeaders<'a> {
    fn first(spread: &'a NodeMap) -> Self {
        Self { spread, root: None }
    }

    fn with(spread: &'a NodeMap, root: u32) -> Self {
        let root = Some(spread.place_of(root));
        Self { spread, root }
    }

    /// The index of a node's head among its ranks.
    fn index(self, node: u32) -> u32 {
        self.root
            .filter(|(at, _)| *at == node)
            .map_or(FIRST, |(_, index)| index)
    }

    /// The head of the own node, among its ranks.
    fn own(self) -> u32 {
        self.index(self.spread.mine().0)
    }

    /// Returns whether the calling process is a head.
    fn is_leader(self) -> bool {
        self.own() == self.spread.mine().1
    }

    /// Steps among the heads, in the order of nodes; nothing for the others.
    fn among_leaders<E: From<NoMemory>>(
        self,
        p: &mut dyn Plan<Error = E>,
        step: impl FnOnce(&mut SubPlan<'_, E>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.is_leader() {
            return Ok(());
        }
        let (me, nodes) = (self.spread.mine().0, self.spread.nodes());
        step(&mut across_nodes(p, me, nodes, &|node| {
            self.spread.rank(node, self.index(node))
        }))
    }
}

/// Nobody leaves before all have come.
pub fn barrier<E: From<NoMemory>>(p: &mut dyn Plan<Error = E>, spread: &NodeMap) -> Result<(), E> {
    within_node(p, spread, |p| tokens::arrive(p))?;
    NodeLeaders::first(spread).among_leaders(p, |p| tokens::dissemination(p))?;
    within_node(p, spread, |p| from_root::binomial(p, FIRST, &Data::empty()))
}

/// The root's data to the heads, and from each to its node.
pub fn bcast<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    root: u32,
    data: &Data,
) -> Result<(), E> {
    let (heads, me) = (NodeLeaders::with(spread, root), p.me());
    let top = spread.place_of(root).0;
    heads.among_leaders(p, |p| between_nodes::bcast(p, spread, top, data))?;
    // What a head hands on has to be there.
    if heads.is_leader() && me != root {
        p.fence()?;
    }
    within_node(p, spread, |p| bcast_in_group(p, heads.own(), data))
}

/// A chain through all ranks, node after node from the root's on, so that it enters and leaves each
/// node once.
pub fn chain<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    root: u32,
    data: &Data,
    segment: u64,
) -> Result<(), E> {
    let (node, index) = spread.place_of(root);
    let (first, size, ranks) = (spread.start(node), spread.size(node), spread.ranks());
    let rank = |at: u32| match at.checked_sub(size) {
        None => spread.rank(node, (index + at) % size),
        Some(beyond) => spread.rank_at((first + size + beyond) % ranks),
    };
    let me = match spread.mine() {
        (own, mine) if own == node => (mine + size - index) % size,
        (own, mine) => size + (spread.start(own) + mine + ranks - first - size) % ranks,
    };
    from_root::chain(&mut across_nodes(p, me, ranks, &rank), 0, data, segment)
}

/// Reduces each node to its leader, and the leaders to the root. An operation that does not
/// commute wants the ranks of nodes to follow each other.
pub fn reduce<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    root: u32,
    r: &Reduction<'_>,
) -> Result<(), E> {
    let (heads, me) = (NodeLeaders::with(spread, root), p.me());
    if spread.size(spread.mine().0) == 1 {
        return heads.among_leaders(p, |p| reduce_in_group(p, spread.place_of(root).0, r));
    }
    let part = match heads.is_leader() {
        true if me == root => r.output,
        true => p.scratch_for(r.shape(), r.count)?,
        false => UserMem::null(),
    };
    within_node(p, spread, |p| reduce_in_group(p, heads.own(), &r.to(part)))?;
    if heads.is_leader() {
        p.fence()?;
    }
    let of_node = Reduction { input: part, ..*r };
    heads.among_leaders(p, |p| reduce_in_group(p, spread.place_of(root).0, &of_node))
}

/// Reduces each node to its leader, reduces among the leaders, and broadcasts inside each node.
pub fn allreduce<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    r: &Reduction<'_>,
) -> Result<(), E> {
    let heads = NodeLeaders::first(spread);
    if spread.size(spread.mine().0) == 1 {
        return heads.among_leaders(p, |p| between_nodes::allreduce(p, spread, r));
    }
    let to = if heads.is_leader() {
        r.output
    } else {
        UserMem::null()
    };
    within_node(p, spread, |p| reduce_in_group(p, FIRST, &r.to(to)))?;
    // Also where the contribution lies where the result comes: it has to have left.
    p.fence()?;
    let of_node = Reduction {
        input: r.output,
        ..*r
    };
    heads.among_leaders(p, |p| between_nodes::allreduce(p, spread, &of_node))?;
    p.fence()?;
    within_node(p, spread, |p| bcast_in_group(p, FIRST, &r.whole(r.output)))
}

/// Each rank of a node reduces a slice there, then with the ranks that have the same slice
/// elsewhere, and hands it to the others of its node: all ranks of a node use its network at once.
/// All nodes have equally many ranks.
pub fn allreduce_in_slices<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    r: &Reduction<'_>,
) -> Result<(), E> {
    let (node, index) = spread.mine();
    let slice = |index: u32| part(r.count, spread.grouping().each, index);
    let mine = slice(index);
    let at = r.output().at(mine.start as i64);
    within_node(p, spread, |p| reduce_scatter::direct(p, r, &slice, at))?;
    let of_node = Reduction {
        input: at,
        output: at,
        count: len(&mine),
        ..*r
    };
    let rank = |node| spread.rank(node, index);
    let mut alike = across_nodes(p, node, spread.nodes(), &rank);
    between_nodes::allreduce(&mut alike, spread, &of_node)?;
    // The slice is complete, and in place the others' have left before they are received over.
    p.fence()?;
    within_node(p, spread, |p| allreduce::spread_slices(p, r))
}

/// Blocks travel round a ring that enters and leaves each node once. The own block is in its place
/// already.
pub fn ring<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    blocks: &Blocks<'_>,
) -> Result<(), E> {
    let (node, index) = spread.mine();
    let rank = |at| spread.rank_at(at);
    let mut ordered = across_nodes(p, spread.start(node) + index, spread.ranks(), &rank);
    own_blocks::ring(&mut ordered, &|at| blocks.one(rank(at)))
}

/// Packed blocks to the head, those of nodes to all heads, and from each to its node. The own block
/// is in its place already. For small data.
pub fn allgather<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    blocks: &Blocks<'_>,
) -> Result<(), E> {
    let (own, me) = (spread.mine(), p.me());
    let mut lens = vec![0i64; spread.nodes() as usize];
    let mut starts = lens.clone();
    let mut total = 0u64;
    for node in 0..spread.nodes() {
        starts[node as usize] = total as i64;
        for index in 0..spread.size(node) {
            total += blocks.len(spread.rank(node, index));
        }
        lens[node as usize] = total as i64 - starts[node as usize];
    }
    let packed = Data::contiguous(p.scratch(total)?, total);
    let heads = NodeLeaders::first(spread);
    if heads.is_leader() {
        let mut at = starts[own.0 as usize] as u64;
        for index in 0..spread.size(own.0) {
            let rank = spread.rank(own.0, index);
            let room = slice(&packed, at, blocks.len(rank));
            at += room.len;
            match rank == me {
                _ if room.len == 0 => {}
                true => p.copy(blocks.one(me), room)?,
                false => p.recv(rank, room).map(drop)?,
            }
        }
        p.fence()?;
    } else if blocks.len(me) > 0 {
        p.send(spread.rank(own.0, FIRST), blocks.one(me))?;
    }
    let of_nodes = Blocks::Uneven {
        typed: TypedBuffer::new(packed.mem, &ByteElements),
        counts: CountArray::Wide(&lens),
        displs: CountArray::Wide(&starts),
    };
    let average = total / u64::from(spread.nodes());
    heads.among_leaders(p, |p| plan_allgather(p, None, &of_nodes, average, false))?;
    p.fence()?;
    within_node(p, spread, |p| bcast_in_group(p, FIRST, &packed))?;
    p.fence()?;
    let mut at = 0;
    for place in 0..spread.ranks() {
        let rank = spread.rank_at(place);
        let block = slice(&packed, at, blocks.len(rank));
        at += block.len;
        if rank != me && block.len > 0 {
            p.copy(block, blocks.one(rank))?;
        }
    }
    Ok(())
}
