//! Gathers and scatters, the same call in two directions: between one root, which has a block per
//! rank, and all ranks.
//!
//! Called as [`super::calls`]. The four calls become a [`RootedCall`], which knows what is
//! different about them.

use super::buffers::{Elements, ElementsV};
use super::call_signature::CallSignature;
use super::calls::check_blocks;
use super::role;
use super::sealed::Planned;
use super::shm_large::{self, LargeOp};
use super::shm_nonblocking::shm_op::{ShmOp, StoredElements};
use super::shm_nonblocking::shm_op_v::{ExchangePattern, ShmOpV};
use super::shm_sync::ShmSync;
use crate::ROOT;
use crate::comm::Comm;
use crate::error::{Class, Result};
use crate::limits::coll as limit;
use garonne_coll::algo::{gather, intercomm};
use garonne_coll::blocks::Blocks;
use garonne_coll::call_tag::CollectiveKind;
use garonne_coll::choose::{Algorithm, ChoiceInput, choose};
use garonne_coll::plan::Plan;
use garonne_sync::user::Data;

/// `MPI_Gather`.
pub struct Gather<'a> {
    /// This process's contribution; `None`: in place at the root, or not significant.
    pub send: Option<Elements<'a>>,
    /// The root's blocks.
    pub recv: Option<Elements<'a>>,
    /// The root.
    pub root: i32,
}

/// `MPI_Gatherv`.
pub struct Gatherv<'a> {
    /// This process's contribution; `None`: in place at the root, or not significant.
    pub send: Option<Elements<'a>>,
    /// The root's blocks.
    pub recv: Option<ElementsV<'a>>,
    /// The root.
    pub root: i32,
}

/// `MPI_Scatter`.
pub struct Scatter<'a> {
    /// The root's blocks.
    pub send: Option<Elements<'a>>,
    /// What this process gets; `None`: stays in place at the root, or not significant.
    pub recv: Option<Elements<'a>>,
    /// The root.
    pub root: i32,
}

/// `MPI_Scatterv`.
pub struct Scatterv<'a> {
    /// The root's blocks.
    pub send: Option<ElementsV<'a>>,
    /// What this process gets; `None`: stays in place at the root, or not significant.
    pub recv: Option<Elements<'a>>,
    /// The root.
    pub root: i32,
}

/// A buffer of one block per rank.
trait PerRankBuffer<'a>: Copy {
    fn blocks(&self) -> Blocks<'a>;
    fn check(&self, ranks: u32) -> Result<()>;
    /// Packed bytes of a block where all are alike.
    fn alike(&self) -> Option<u64>;
    /// Blocks in the form that a nonblocking collective in shared memory keeps.
    fn part(&self) -> Option<StoredElements<'a>>;
}

impl<'a> PerRankBuffer<'a> for Elements<'a> {
    fn blocks(&self) -> Blocks<'a> {
        Elements::blocks(self)
    }

    fn check(&self, ranks: u32) -> Result<()> {
        Elements::check(self, ranks)
    }

    fn alike(&self) -> Option<u64> {
        Some(self.bytes())
    }

    fn part(&self) -> Option<StoredElements<'a>> {
        Some(StoredElements::of(self))
    }
}

impl<'a> PerRankBuffer<'a> for ElementsV<'a> {
    fn blocks(&self) -> Blocks<'a> {
        ElementsV::blocks(self)
    }

    fn check(&self, ranks: u32) -> Result<()> {
        ElementsV::check(self, ranks)
    }

    fn alike(&self) -> Option<u64> {
        None
    }

    fn part(&self) -> Option<StoredElements<'a>> {
        None
    }
}

/// A call between one root and all: which way the blocks go is in the kind.
struct RootedCall<'a, B> {
    kind: CollectiveKind,
    root: i32,
    /// This process's own block: sent in a gather, filled in a scatter.
    mine: Option<Elements<'a>>,
    /// The root's blocks.
    blocks: Option<B>,
}

/// Place where the caller stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallerRole {
    Root,
    Elsewhere,
}

impl<'a, B: PerRankBuffer<'a>> RootedCall<'a, B> {
    fn gathers(&self) -> bool {
        matches!(self.kind, CollectiveKind::Gather | CollectiveKind::Gatherv)
    }

    fn post(&self, comm: &Comm) -> CallerRole {
        let root = if comm.is_inter() {
            ROOT
        } else {
            comm.rank() as i32
        };
        if self.root == root {
            CallerRole::Root
        } else {
            CallerRole::Elsewhere
        }
    }

    /// Packed bytes of each block, from the side that this process knows; `None` in calls whose
    /// blocks differ.
    fn block(&self, post: CallerRole) -> Option<u64> {
        match (self.kind, post) {
            (CollectiveKind::Gatherv | CollectiveKind::Scatterv, _) => None,
            (_, CallerRole::Root) => self.blocks.map_or(Some(0), |blocks| blocks.alike()),
            (_, CallerRole::Elsewhere) => Some(self.mine.map_or(0, |mine| mine.bytes())),
        }
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        let kind = self.kind;
        comm.check_root(kind, self.root)?;
        let post = self.post(comm);
        let missing = match post {
            CallerRole::Root => self.blocks.is_none(),
            CallerRole::Elsewhere => self.mine.is_none() && self.root >= 0,
        };
        if missing {
            let text = format!("{kind}: MPI_IN_PLACE is for the root's own contribution only");
            return Err(comm.error(Class::Buffer, text));
        }
        self.mine.map_or(Ok(()), |mine| mine.check(1))?;
        if post == CallerRole::Elsewhere {
            return Ok(());
        }
        check_blocks(comm, &self.blocks, B::check)?;
        match (self.mine, self.block(post)) {
            (Some(mine), Some(block)) if mine.bytes() != block && !comm.is_inter() => Err(comm.error(
                Class::Count,
                format!(
                    "{kind}: the root's own block has {} B, those of all ranks have {block} B; they must be alike",
                    mine.bytes()
                ),
            )),
            _ => Ok(()),
        }
    }

    fn its_blocks(&self) -> Blocks<'a> {
        self.blocks.map_or(Blocks::None, |blocks| blocks.blocks())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        let (blocks, mine) = (self.its_blocks(), self.mine.map(|mine| mine.data()));
        let gathers = self.gathers();
        if p.remote_size() > 0 {
            let (role, mine) = (role(self.root), mine.unwrap_or_else(Data::empty));
            return match gathers {
                true => intercomm::gather(p, role, &mine, &blocks),
                false => intercomm::scatter(p, role, &mine, &blocks),
            };
        }
        let (root, mine) = (self.root as u32, mine.as_ref());
        let post = if root == p.me() {
            CallerRole::Root
        } else {
            CallerRole::Elsewhere
        };
        let chosen = self.block(post).map(|block| {
            (
                block,
                choose(self.kind, ChoiceInput::of_data(p, block, true)),
            )
        });
        match (chosen, gathers) {
            (Some((0, _)), _) => Ok(()),
            (Some((block, Algorithm::Binomial)), true) => {
                gather::binomial_gather(p, root, block, mine, &blocks)
            }
            (Some((block, Algorithm::Binomial)), false) => {
                gather::binomial_scatter(p, root, block, mine, &blocks)
            }
            (_, true) => gather::linear_gather(p, root, mine, &blocks),
            (_, false) => gather::linear_scatter(p, root, mine, &blocks),
        }
    }

    fn signature(&self, comm: &Comm) -> CallSignature {
        let block = self.block(self.post(comm)).unwrap_or(0);
        CallSignature::of(self.kind).root(self.root).bytes(block)
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let Some(block) = self.block(self.post(sync.comm)) else {
            return Ok(false);
        };
        if block >= limit::SINGLE_COPY {
            return Ok(false);
        }
        let (root, mine) = (self.root as u32, self.mine.map(|mine| mine.data()));
        let large = match self.gathers() {
            true => LargeOp::Gather(block, mine, self.its_blocks(), Some(root)),
            false => LargeOp::Scatter(block, self.its_blocks(), mine, root),
        };
        shm_large::run(sync, &large)
    }
}

impl<'a, B: PerRankBuffer<'a>> RootedCall<'a, B> {
    fn shm_op(&self, comm: &Comm) -> Option<ShmOp<'a>> {
        let root = self.root as u32;
        match self.block(self.post(comm)) {
            Some(0) => return None,
            Some(_) => {}
            None => {
                let way = match self.gathers() {
                    true => ExchangePattern::Gather(root),
                    false => ExchangePattern::Scatter(root),
                };
                let mine = self.mine.map(|mine| mine.data());
                let all = self.blocks.map(|blocks| blocks.blocks());
                let place = (comm.size(), comm.rank());
                return Some(ShmOp::Exchange(ShmOpV::rooted(way, place, mine, all)));
            }
        }
        // At the root only the blocks of all say how long each is; elsewhere they are not
        // significant.
        let mine = self.mine.as_ref().map(StoredElements::of);
        let all = match self.post(comm) {
            CallerRole::Root => self.blocks.and_then(|blocks| blocks.part()),
            CallerRole::Elsewhere => None,
        };
        Some(match self.gathers() {
            true => ShmOp::Gather(root, mine, all),
            false => ShmOp::Scatter(root, mine, all),
        })
    }
}

/// A call as a [`RootedCall`]: its own block, and the buffer of all.
macro_rules! rooted {
    ($call:ident, $mine:ident, $blocks:ident, $buffer:ident) => {
        impl<'a> $call<'a> {
            fn rooted(&self) -> RootedCall<'a, $buffer<'a>> {
                RootedCall {
                    kind: CollectiveKind::$call,
                    root: self.root,
                    mine: self.$mine,
                    blocks: self.$blocks,
                }
            }
        }

        impl Planned for $call<'_> {
            fn kind(&self) -> CollectiveKind {
                CollectiveKind::$call
            }

            fn check(&self, comm: &Comm) -> Result<()> {
                self.rooted().check(comm)
            }

            fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
                self.rooted().plan(p)
            }

            fn signature(&self, comm: &Comm) -> CallSignature {
                self.rooted().signature(comm)
            }

            fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
                self.rooted().run_in_shm(sync)
            }

            fn shm_op(&self, comm: &Comm) -> Option<ShmOp<'_>> {
                self.rooted().shm_op(comm)
            }
        }
    };
}

rooted!(Gather, send, recv, Elements);
rooted!(Gatherv, send, recv, ElementsV);
rooted!(Scatter, recv, send, Elements);
rooted!(Scatterv, recv, send, ElementsV);
