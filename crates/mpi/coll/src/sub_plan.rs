//! A plan for a collective among some of the ranks of another plan, as a step of a larger
//! collective.

use super::node_map::NodeMap;
use super::plan::{GroupSide, Plan, PlanPeer, TransferId};
use super::temp_buffer::NoMemory;
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;

/// A plan for `size` ranks of another plan, the calling process being the `me`-th of them. It ends
/// with the plan that it is part of.
pub struct SubPlan<'a, E> {
    /// The whole.
    pub plan: &'a mut dyn Plan<Error = E>,
    /// The calling process among those that take part.
    pub me: u32,
    /// How many take part.
    pub size: u32,
    /// True if those that take part share a node.
    pub on_node: bool,
    /// Maps a rank of this plan to its rank in the whole plan.
    pub rank: &'a dyn Fn(u32) -> u32,
}

impl<E> SubPlan<'_, E> {
    fn site(&self, site: PlanPeer) -> PlanPeer {
        match site.side {
            GroupSide::Local => PlanPeer {
                rank: (self.rank)(site.rank),
                ..site
            },
            GroupSide::Remote => site,
        }
    }
}

impl<E: From<NoMemory>> Plan for SubPlan<'_, E> {
    type Error = E;

    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn remote_size(&self) -> u32 {
        0
    }

    fn is_on_node(&self) -> bool {
        self.on_node
    }

    fn node_map(&self) -> Option<Arc<NodeMap>> {
        None
    }

    fn send_to(&mut self, site: PlanPeer, data: Data) -> Result<TransferId, E> {
        self.plan.send_to(self.site(site), data)
    }

    fn recv_from(&mut self, site: PlanPeer, data: Data) -> Result<TransferId, E> {
        self.plan.recv_from(self.site(site), data)
    }

    fn wait(&mut self, token: TransferId) -> Result<(), E> {
        self.plan.wait(token)
    }

    fn fence(&mut self) -> Result<(), E> {
        self.plan.fence()
    }

    fn copy(&mut self, src: Data, dst: Data) -> Result<(), E> {
        self.plan.copy(src, dst)
    }

    fn fold(
        &mut self,
        fold: &dyn super::typed_buffer::ReduceOp,
        left: UserMem,
        into: UserMem,
        count: u64,
    ) -> Result<(), E> {
        self.plan.fold(fold, left, into, count)
    }

    fn scratch(&mut self, len: u64) -> Result<UserMem, E> {
        self.plan.scratch(len)
    }
}
