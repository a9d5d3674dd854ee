//! Steps between the leaders of nodes, by switches where these are known: what groups of nodes
//! bring is brought together before it leaves the group, so that each link between switches carries
//! the data once in each direction.

use garonne_sync::user::Data;

use crate::algo::Reduction;
use crate::in_group::{allreduce_in_group, bcast_in_group, reduce_in_group};
use crate::limits::CHAIN_BYTES;
use crate::node_map::NodeMap;
use crate::plan::{Plan, PlanScratch};
use crate::sub_plan::SubPlan;
use crate::switch_tree::SwitchTree;
use crate::temp_buffer::NoMemory;

/// Place of a group's leader among the nodes of the group.
const FIRST: u32 = 0;

/// The own group in a tree whose root is the group of some node.
struct OwnGroup {
    /// Nodes of the group, its leader first.
    nodes: Vec<u32>,
    /// The own place among them.
    me: u32,
    /// Leader of the group towards the root.
    towards: Option<u32>,
    /// Leaders of the other groups beside.
    others: Vec<u32>,
}

impl OwnGroup {
    /// The group of node `me`, where `root` is a node of the tree's root and leads its group.
    fn of(tree: &SwitchTree, me: u32, root: u32) -> Self {
        let leader = |group: u32| match group == tree.group(root) {
            true => root,
            false => tree.nodes(group)[FIRST as usize],
        };
        let group = tree.group(me);
        let mut nodes = tree.nodes(group);
        let first = leader(group);
        nodes.sort_by_key(|node| *node != first);
        let place = nodes.iter().position(|node| *node == me);
        let (towards, others) = tree.beside(group, tree.group(root));
        Self {
            me: place.unwrap_or(0) as u32,
            nodes,
            towards: towards.map(leader),
            others: others.into_iter().map(leader).collect(),
        }
    }

    fn is_leader(&self) -> bool {
        self.me == FIRST
    }

    /// Steps among the nodes of the group.
    fn within<E: From<NoMemory>>(
        &self,
        p: &mut dyn Plan<Error = E>,
        step: impl FnOnce(&mut SubPlan<'_, E>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.nodes.len() == 1 {
            return Ok(());
        }
        step(&mut SubPlan {
            plan: p,
            me: self.me,
            size: self.nodes.len() as u32,
            on_node: false,
            rank: &|place| self.nodes[place as usize],
        })
    }

    /// What has come from the root goes to the groups beside and to the own one.
    fn hand_on<E: From<NoMemory>>(
        &self,
        p: &mut dyn Plan<Error = E>,
        data: &Data,
    ) -> Result<(), E> {
        if self.is_leader() {
            if let Some(towards) = self.towards {
                p.recv(towards, data.clone())?;
                p.fence()?;
            }
            for other in &self.others {
                p.send(*other, data.clone())?;
            }
        }
        self.within(p, |p| bcast_in_group(p, FIRST, data))
    }
}

/// The root node's data to all nodes; a rank of `p` is a node.
pub fn bcast<E: From<NoMemory>>(
    p: &mut SubPlan<'_, E>,
    spread: &NodeMap,
    root: u32,
    data: &Data,
) -> Result<(), E> {
    match spread.switches() {
        Some(tree) => OwnGroup::of(tree, p.me, root).hand_on(p, data),
        None => bcast_in_group(p, root, data),
    }
}

/// Reduces to all nodes; a rank of `p` is a node. Longer data go as if all switches were one: up
/// and down a tree they would wait for each other.
pub fn allreduce<E: From<NoMemory>>(
    p: &mut SubPlan<'_, E>,
    spread: &NodeMap,
    r: &Reduction<'_>,
) -> Result<(), E> {
    let bytes = r.shape().size().saturating_mul(r.count);
    let tree = spread
        .switches()
        .filter(|_| r.fold.commutative() && bytes <= CHAIN_BYTES);
    let Some(tree) = tree else {
        return allreduce_in_group(p, r);
    };
    let root = tree.nodes(tree.root())[FIRST as usize];
    let own = OwnGroup::of(tree, p.me, root);
    if own.nodes.len() > 1 {
        let to = match own.is_leader() {
            true => r.output,
            false => garonne_sync::user::UserMem::null(),
        };
        own.within(p, |p| reduce_in_group(p, FIRST, &r.to(to)))?;
    } else if !r.in_place() {
        p.copy(r.whole(r.input), r.whole(r.output))?;
    }
    // Contributions have left before results are received in their place.
    p.fence()?;
    if own.is_leader() {
        for other in &own.others {
            let part = p.scratch_for(r.shape(), r.count)?;
            let token = p.recv(*other, r.whole(part))?;
            p.wait(token)?;
            p.fold(r.fold, part, r.output, r.count)?;
        }
        if let Some(towards) = own.towards {
            p.send(towards, r.whole(r.output))?;
            p.fence()?;
        }
    }
    own.hand_on(p, &r.whole(r.output))
}
