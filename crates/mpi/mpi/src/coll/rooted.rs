//! Gathers and scatters, the same call in two directions: between one root, which has a block per
//! rank, and all ranks.
//!
//! Called as [`super::calls`]. The four calls become a [`Rooted`], which knows what is different
//! about them.

use super::algo::{gather, intercomm};
use super::blocks::Blocks;
use super::buffers::{Elements, Uneven};
use super::call_signature::Statement;
use super::call_tag::Kind;
use super::calls::{ask, check_blocks};
use super::choose::{Algorithm, choose};
use super::plan::Plan;
use super::role;
use super::sealed::Planned;
use super::shm_large::{self, Large};
use super::shm_nonblocking::shm_op::{Errand, Part};
use super::shm_nonblocking::shm_op_v::{Parcels, Way};
use super::shm_sync::Table;
use crate::ROOT;
use crate::comm::Comm;
use crate::error::{Class, Result};
use crate::limits::coll as limit;
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
    pub recv: Option<Uneven<'a>>,
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
    pub send: Option<Uneven<'a>>,
    /// What this process gets; `None`: stays in place at the root, or not significant.
    pub recv: Option<Elements<'a>>,
    /// The root.
    pub root: i32,
}

/// A buffer of one block per rank.
trait PerRank<'a>: Copy {
    fn blocks(&self) -> Blocks<'a>;
    fn check(&self, ranks: u32) -> Result<()>;
    /// Packed bytes of a block where all are alike.
    fn alike(&self) -> Option<u64>;
    /// The same blocks for a round, likewise.
    fn part(&self) -> Option<Part<'a>>;
}

impl<'a> PerRank<'a> for Elements<'a> {
    fn blocks(&self) -> Blocks<'a> {
        Elements::blocks(self)
    }

    fn check(&self, ranks: u32) -> Result<()> {
        Elements::check(self, ranks)
    }

    fn alike(&self) -> Option<u64> {
        Some(self.bytes())
    }

    fn part(&self) -> Option<Part<'a>> {
        Some(Part::of(self))
    }
}

impl<'a> PerRank<'a> for Uneven<'a> {
    fn blocks(&self) -> Blocks<'a> {
        Uneven::blocks(self)
    }

    fn check(&self, ranks: u32) -> Result<()> {
        Uneven::check(self, ranks)
    }

    fn alike(&self) -> Option<u64> {
        None
    }

    fn part(&self) -> Option<Part<'a>> {
        None
    }
}

/// A call between one root and all: which way the blocks go is in the kind.
struct Rooted<'a, B> {
    kind: Kind,
    root: i32,
    /// This process's own block: sent in a gather, filled in a scatter.
    mine: Option<Elements<'a>>,
    /// The root's blocks.
    blocks: Option<B>,
}

/// Where the caller stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Post {
    Root,
    Elsewhere,
}

impl<'a, B: PerRank<'a>> Rooted<'a, B> {
    fn gathers(&self) -> bool {
        matches!(self.kind, Kind::Gather | Kind::Gatherv)
    }

    fn post(&self, comm: &Comm) -> Post {
        let root = if comm.is_inter() {
            ROOT
        } else {
            comm.rank() as i32
        };
        if self.root == root {
            Post::Root
        } else {
            Post::Elsewhere
        }
    }

    /// Packed bytes of each block, from the side that this process knows; `None` in calls whose
    /// blocks differ.
    fn block(&self, post: Post) -> Option<u64> {
        match (self.kind, post) {
            (Kind::Gatherv | Kind::Scatterv, _) => None,
            (_, Post::Root) => self.blocks.map_or(Some(0), |blocks| blocks.alike()),
            (_, Post::Elsewhere) => Some(self.mine.map_or(0, |mine| mine.bytes())),
        }
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        let kind = self.kind;
        comm.check_root(kind, self.root)?;
        let post = self.post(comm);
        let missing = match post {
            Post::Root => self.blocks.is_none(),
            Post::Elsewhere => self.mine.is_none() && self.root >= 0,
        };
        if missing {
            let text = format!("{kind}: MPI_IN_PLACE is for the root's own contribution only");
            return Err(comm.error(Class::Buffer, text));
        }
        self.mine.map_or(Ok(()), |mine| mine.check(1))?;
        if post == Post::Elsewhere {
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

    fn plan(&self, p: &mut impl Plan) -> Result<()> {
        let (blocks, mine) = (self.its_blocks(), self.mine.map(|mine| mine.data()));
        let gathers = self.gathers();
        if p.across() > 0 {
            let (role, mine) = (role(self.root), mine.unwrap_or_else(Data::empty));
            return match gathers {
                true => intercomm::gather(p, role, &mine, &blocks),
                false => intercomm::scatter(p, role, &mine, &blocks),
            };
        }
        let (root, mine) = (self.root as u32, mine.as_ref());
        let post = if root == p.me() {
            Post::Root
        } else {
            Post::Elsewhere
        };
        let chosen = self
            .block(post)
            .map(|block| (block, choose(self.kind, ask(p, block, true))));
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

    fn statement(&self, comm: &Comm) -> Statement {
        let block = self.block(self.post(comm)).unwrap_or(0);
        Statement::of(self.kind).root(self.root).bytes(block)
    }

    fn meet(&self, table: &Table<'_>) -> Result<bool> {
        let Some(block) = self.block(self.post(table.comm)) else {
            return Ok(false);
        };
        if block >= limit::SINGLE_COPY {
            return Ok(false);
        }
        let (root, mine) = (self.root as u32, self.mine.map(|mine| mine.data()));
        let large = match self.gathers() {
            true => Large::Gather(block, mine, self.its_blocks(), Some(root)),
            false => Large::Scatter(block, self.its_blocks(), mine, root),
        };
        shm_large::meet(table, &large)
    }
}

impl<'a, B: PerRank<'a>> Rooted<'a, B> {
    fn errand(&self, comm: &Comm) -> Option<Errand<'a>> {
        let root = self.root as u32;
        match self.block(self.post(comm)) {
            Some(0) => return None,
            Some(_) => {}
            None => {
                let way = match self.gathers() {
                    true => Way::Gather(root),
                    false => Way::Scatter(root),
                };
                let mine = self.mine.map(|mine| mine.data());
                let all = self.blocks.map(|blocks| blocks.blocks());
                let place = (comm.size(), comm.rank());
                return Some(Errand::Parcels(Parcels::rooted(way, place, mine, all)));
            }
        }
        // At the root only the blocks of all say how long each is; elsewhere they are not
        // significant.
        let mine = self.mine.as_ref().map(Part::of);
        let all = match self.post(comm) {
            Post::Root => self.blocks.and_then(|blocks| blocks.part()),
            Post::Elsewhere => None,
        };
        Some(match self.gathers() {
            true => Errand::Gather(root, mine, all),
            false => Errand::Scatter(root, mine, all),
        })
    }
}

/// A call as a [`Rooted`]: its own block, and the buffer of all.
macro_rules! rooted {
    ($call:ident, $mine:ident, $blocks:ident, $buffer:ident) => {
        impl<'a> $call<'a> {
            fn rooted(&self) -> Rooted<'a, $buffer<'a>> {
                Rooted {
                    kind: Kind::$call,
                    root: self.root,
                    mine: self.$mine,
                    blocks: self.$blocks,
                }
            }
        }

        impl Planned for $call<'_> {
            fn kind(&self) -> Kind {
                Kind::$call
            }

            fn check(&self, comm: &Comm) -> Result<()> {
                self.rooted().check(comm)
            }

            fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
                self.rooted().plan(p)
            }

            fn statement(&self, comm: &Comm) -> Statement {
                self.rooted().statement(comm)
            }

            fn meet(&self, table: &Table<'_>) -> Result<bool> {
                self.rooted().meet(table)
            }

            fn errand(&self, comm: &Comm) -> Option<Errand<'_>> {
                self.rooted().errand(comm)
            }
        }
    };
}

rooted!(Gather, send, recv, Elements);
rooted!(Gatherv, send, recv, Uneven);
rooted!(Scatter, recv, send, Elements);
rooted!(Scatterv, recv, send, Uneven);
