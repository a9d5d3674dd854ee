//! A collective among some of the ranks of a plan, as a step of a larger one.

use super::node_map::Spread;
use super::plan::{Plan, Side, Site, Token};
use crate::error::Result;
use garonne_sync::user::{Data, UserMem};
use std::sync::Arc;

/// A plan for `size` ranks of another plan, the calling process being the `me`-th of them. It ends
/// with the plan that it is part of.
pub(super) struct Within<'a> {
    /// The whole.
    pub plan: &'a mut dyn Plan,
    /// The calling process among those that take part.
    pub me: u32,
    /// How many take part.
    pub size: u32,
    /// They share a node.
    pub together: bool,
    /// Their ranks in the whole.
    pub rank: &'a dyn Fn(u32) -> u32,
}

impl Within<'_> {
    fn site(&self, site: Site) -> Site {
        match site.side {
            Side::Own => Site {
                rank: (self.rank)(site.rank),
                ..site
            },
            Side::Across => site,
        }
    }
}

impl Plan for Within<'_> {
    fn me(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn across(&self) -> u32 {
        0
    }

    fn together(&self) -> bool {
        self.together
    }

    fn spread(&self) -> Option<Arc<Spread>> {
        None
    }

    fn send_to(&mut self, site: Site, data: Data) -> Result<Token> {
        self.plan.send_to(self.site(site), data)
    }

    fn recv_from(&mut self, site: Site, data: Data) -> Result<Token> {
        self.plan.recv_from(self.site(site), data)
    }

    fn wait(&mut self, token: Token) -> Result<()> {
        self.plan.wait(token)
    }

    fn fence(&mut self) -> Result<()> {
        self.plan.fence()
    }

    fn copy(&mut self, src: Data, dst: Data) -> Result<()> {
        self.plan.copy(src, dst)
    }

    fn fold(
        &mut self,
        fold: &dyn super::typed_buffer::Fold,
        left: UserMem,
        into: UserMem,
        count: u64,
    ) -> Result<()> {
        self.plan.fold(fold, left, into, count)
    }

    fn scratch(&mut self, len: u64) -> Result<UserMem> {
        self.plan.scratch(len)
    }
}
