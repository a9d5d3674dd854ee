//! The arguments of the collectives that move data, and their plans.
//!
//! Filled in by the C edge and handed to [`Comm::collective`] or [`Comm::start_collective`]. `None` for a send buffer means `MPI_IN_PLACE`; what
//! is not significant on a process (a receive buffer that only the root has, say) is `None` as well.

use super::algo::{allgather, alltoall, barrier, bcast, gather, inter};
use super::blocks::Blocks;
use super::buffers::{Elements, Mixed, Uneven};
use super::choose::{Algorithm, Ask, choose};
use super::lanes::{self, Large};
use super::node::{self, Small};
use super::plan::{Plan, Side};
use super::role;
use super::sealed::Planned;
use super::tag::Kind;
use super::typed;
use crate::ROOT;
use crate::comm::Comm;
use crate::error::{Class, Result};
use crate::limits::coll as limit;
use garonne_engine::api::Origin;
use garonne_sync::user::Data;

/// Blocks for every process that messages come from: the remote group of an intercommunicator.
fn check_blocks<T>(comm: &Comm, buffer: &Option<T>, check: fn(&T, u32) -> Result<()>) -> Result<()> {
    buffer
        .as_ref()
        .map_or(Ok(()), |buffer| check(buffer, comm.peers()))
}

fn no_place(comm: &Comm, kind: Kind, in_place: bool) -> Result<()> {
    if in_place && comm.is_inter() {
        return Err(comm.error(
            Class::Buffer,
            format!("{kind}: MPI_IN_PLACE has no meaning on an intercommunicator"),
        ));
    }
    Ok(())
}

fn is_root(comm: &Comm, root: i32) -> bool {
    if comm.is_inter() {
        root == ROOT
    } else {
        root == comm.rank() as i32
    }
}

/// The buffer that only the root has must be there, and the one that the others have.
fn check_rooted(comm: &Comm, kind: Kind, root: i32, rooted: bool, mine: bool) -> Result<()> {
    comm.check_root(kind, root)?;
    let missing = match is_root(comm, root) {
        true => !rooted,
        false => !mine && root >= 0,
    };
    if missing {
        return Err(comm.error(
            Class::Buffer,
            format!("{kind}: MPI_IN_PLACE is for the root's own contribution only"),
        ));
    }
    Ok(())
}

fn ask(p: &impl Plan, bytes: u64, even: bool) -> Ask {
    Ask {
        ranks: p.size(),
        bytes,
        elements: 0,
        commutative: true,
        together: p.together(),
        even,
    }
}

/// `MPI_Barrier`.
pub struct Barrier;

impl Planned for Barrier {
    fn kind(&self) -> Kind {
        Kind::Barrier
    }

    fn check(&self, _: &Comm) -> Result<()> {
        Ok(())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        if p.across() > 0 {
            inter::barrier(p)
        } else {
            barrier::dissemination(p)
        }
    }

    fn meet(&self, comm: &Comm, origin: Origin) -> Result<bool> {
        node::meet(comm, &Small::Barrier, origin)
    }
}

/// `MPI_Bcast`.
pub struct Bcast<'a> {
    /// What the root sends and the others fill.
    pub buffer: Elements<'a>,
    /// The root, `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Planned for Bcast<'_> {
    fn kind(&self) -> Kind {
        Kind::Bcast
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        comm.check_root(Kind::Bcast, self.root)?;
        self.buffer.check(1)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        if p.across() > 0 && role(self.root) == inter::Role::Bystander {
            return Ok(());
        }
        let data = self.buffer.data();
        match u32::try_from(self.root) {
            _ if data.len == 0 => Ok(()),
            Ok(root) if p.across() == 0 => bcast_in_group(p, root, &data),
            _ => inter::bcast(p, role(self.root), &data),
        }
    }

    fn meet(&self, comm: &Comm, origin: Origin) -> Result<bool> {
        match self.buffer.bytes() {
            1..=limit::BOARD_BYTES if !comm.is_inter() => {
                node::meet(comm, &Small::Bcast(self.root as u32, self.buffer.data()), origin)
            }
            _ if comm.is_inter() => Ok(false),
            _ => lanes::meet(comm, &Large::Bcast(self.root as u32, self.buffer.data()), origin),
        }
    }
}

/// The root's data to all of the own group, by the algorithm that suits.
pub(super) fn bcast_in_group(p: &mut impl Plan, root: u32, data: &Data) -> Result<()> {
    match choose(Kind::Bcast, ask(p, data.len, true)) {
        Algorithm::Flat => bcast::flat(p, root, data),
        Algorithm::ScatterAllgather => bcast::scatter_allgather(p, root, data),
        Algorithm::Chain { segment } => bcast::chain(p, root, data, segment),
        _ => bcast::binomial(p, root, data),
    }
}

/// A call between one root and all: which way the blocks go is in the kind.
struct Rooted<'a> {
    kind: Kind,
    root: i32,
    /// This process's own block: sent in a gather, filled in a scatter.
    mine: Option<Data>,
    /// The root's blocks.
    blocks: Blocks<'a>,
    /// Packed length of each block where all are alike.
    block: Option<u64>,
}

impl Rooted<'_> {
    fn plan(&self, p: &mut impl Plan) -> Result<()> {
        let gathers = matches!(self.kind, Kind::Gather | Kind::Gatherv);
        if p.across() > 0 {
            let (role, mine) = (role(self.root), self.mine.clone().unwrap_or_else(Data::empty));
            return if gathers {
                inter::gather(p, role, &mine, &self.blocks)
            } else {
                inter::scatter(p, role, &mine, &self.blocks)
            };
        }
        let (root, mine) = (self.root as u32, self.mine.as_ref());
        let chosen = self
            .block
            .map(|block| (block, choose(self.kind, ask(p, block, true))));
        match (chosen, gathers) {
            (Some((0, _)), _) => Ok(()),
            (Some((block, Algorithm::Binomial)), true) => {
                gather::binomial_gather(p, root, block, mine, &self.blocks)
            }
            (Some((block, Algorithm::Binomial)), false) => {
                gather::binomial_scatter(p, root, block, mine, &self.blocks)
            }
            (_, true) => gather::linear_gather(p, root, mine, &self.blocks),
            (_, false) => gather::linear_scatter(p, root, mine, &self.blocks),
        }
    }
}

/// Length of one block, from whichever side this process knows.
fn block(
    p: &impl Plan,
    root: i32,
    mine: &Option<Elements<'_>>,
    blocks: &Option<Elements<'_>>,
) -> Option<u64> {
    let at_root = p.across() == 0 && root == p.me() as i32;
    let known = if at_root { blocks } else { mine };
    Some(known.as_ref().map_or(0, Elements::bytes))
}

/// `MPI_Gather`.
pub struct Gather<'a> {
    /// This process's contribution; `None`: in place at the root, or not significant.
    pub send: Option<Elements<'a>>,
    /// The root's blocks.
    pub recv: Option<Elements<'a>>,
    /// The root.
    pub root: i32,
}

impl Planned for Gather<'_> {
    fn kind(&self) -> Kind {
        Kind::Gather
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        check_rooted(
            comm,
            Kind::Gather,
            self.root,
            self.recv.is_some(),
            self.send.is_some(),
        )?;
        self.send.map_or(Ok(()), |send| send.check(1))?;
        if is_root(comm, self.root) {
            check_blocks(comm, &self.recv, Elements::check)
        } else {
            Ok(())
        }
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        let blocks = self.recv.map_or(Blocks::None, |recv| recv.blocks());
        let mine = self.send.map(|send| send.data());
        let block = block(p, self.root, &self.send, &self.recv);
        Rooted {
            kind: Kind::Gather,
            root: self.root,
            mine,
            blocks,
            block,
        }
        .plan(p)
    }

    fn meet(&self, comm: &Comm, origin: Origin) -> Result<bool> {
        let (Ok(root), false) = (u32::try_from(self.root), comm.is_inter()) else {
            return Ok(false);
        };
        let known = if root == comm.rank() { self.recv } else { self.send };
        let blocks = self.recv.map_or(Blocks::None, |recv| recv.blocks());
        let mine = self.send.map(|send| send.data());
        let block = known.map_or(0, |known| known.bytes());
        lanes::meet(comm, &Large::Gather(block, mine, blocks, Some(root)), origin)
    }
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

impl Planned for Gatherv<'_> {
    fn kind(&self) -> Kind {
        Kind::Gatherv
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        check_rooted(
            comm,
            Kind::Gatherv,
            self.root,
            self.recv.is_some(),
            self.send.is_some(),
        )?;
        self.send.map_or(Ok(()), |send| send.check(1))?;
        if is_root(comm, self.root) {
            check_blocks(comm, &self.recv, Uneven::check)
        } else {
            Ok(())
        }
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        let blocks = self.recv.map_or(Blocks::None, |recv| recv.blocks());
        let mine = self.send.map(|send| send.data());
        Rooted {
            kind: Kind::Gatherv,
            root: self.root,
            mine,
            blocks,
            block: None,
        }
        .plan(p)
    }
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

impl Planned for Scatter<'_> {
    fn kind(&self) -> Kind {
        Kind::Scatter
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        check_rooted(
            comm,
            Kind::Scatter,
            self.root,
            self.send.is_some(),
            self.recv.is_some(),
        )?;
        self.recv.map_or(Ok(()), |recv| recv.check(1))?;
        if is_root(comm, self.root) {
            check_blocks(comm, &self.send, Elements::check)
        } else {
            Ok(())
        }
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        let blocks = self.send.map_or(Blocks::None, |send| send.blocks());
        let mine = self.recv.map(|recv| recv.data());
        let block = block(p, self.root, &self.recv, &self.send);
        Rooted {
            kind: Kind::Scatter,
            root: self.root,
            mine,
            blocks,
            block,
        }
        .plan(p)
    }

    fn meet(&self, comm: &Comm, origin: Origin) -> Result<bool> {
        let (Ok(root), false) = (u32::try_from(self.root), comm.is_inter()) else {
            return Ok(false);
        };
        let known = if root == comm.rank() { self.send } else { self.recv };
        let blocks = self.send.map_or(Blocks::None, |send| send.blocks());
        let mine = self.recv.map(|recv| recv.data());
        let block = known.map_or(0, |known| known.bytes());
        lanes::meet(comm, &Large::Scatter(block, blocks, mine, root), origin)
    }
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

impl Planned for Scatterv<'_> {
    fn kind(&self) -> Kind {
        Kind::Scatterv
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        check_rooted(
            comm,
            Kind::Scatterv,
            self.root,
            self.send.is_some(),
            self.recv.is_some(),
        )?;
        self.recv.map_or(Ok(()), |recv| recv.check(1))?;
        if is_root(comm, self.root) {
            check_blocks(comm, &self.send, Uneven::check)
        } else {
            Ok(())
        }
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        let blocks = self.send.map_or(Blocks::None, |send| send.blocks());
        let mine = self.recv.map(|recv| recv.data());
        Rooted {
            kind: Kind::Scatterv,
            root: self.root,
            mine,
            blocks,
            block: None,
        }
        .plan(p)
    }
}

/// `MPI_Allgather`.
pub struct Allgather<'a> {
    /// This process's contribution; `None`: in place.
    pub send: Option<Elements<'a>>,
    /// Blocks of all ranks.
    pub recv: Elements<'a>,
}

impl Planned for Allgather<'_> {
    fn kind(&self) -> Kind {
        Kind::Allgather
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, Kind::Allgather, self.send.is_none())?;
        self.send.map_or(Ok(()), |send| send.check(1))?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        let mine = self.send.map(|send| send.data());
        plan_allgather(p, mine, &self.recv.blocks(), self.recv.bytes(), true)
    }

    fn meet(&self, comm: &Comm, origin: Origin) -> Result<bool> {
        let len = self.recv.bytes();
        if comm.is_inter() {
            return Ok(false);
        }
        let blocks = self.recv.blocks();
        if !(1..=limit::BOARD_BYTES).contains(&len) {
            let mine = self.send.map(|send| send.data());
            return lanes::meet(comm, &Large::Gather(len, mine, blocks, None), origin);
        }
        let mine = self
            .send
            .map_or_else(|| blocks.one(comm.rank()), |send| send.data());
        let get = |rank: u32, cell: &Data| {
            // In place, the own block is where it belongs already.
            if self.send.is_some() || rank != comm.rank() {
                typed::copy(cell, &blocks.one(rank));
            }
        };
        node::meet(
            comm,
            &Small::Allgather(len, &|cell| typed::copy(&mine, cell), &get),
            origin,
        )
    }
}

/// `MPI_Allgatherv`.
pub struct Allgatherv<'a> {
    /// This process's contribution; `None`: in place.
    pub send: Option<Elements<'a>>,
    /// Blocks of all ranks.
    pub recv: Uneven<'a>,
}

impl Planned for Allgatherv<'_> {
    fn kind(&self) -> Kind {
        Kind::Allgatherv
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, Kind::Allgatherv, self.send.is_none())?;
        self.send.map_or(Ok(()), |send| send.check(1))?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        let mine = self.send.map(|send| send.data());
        let blocks = self.recv.blocks();
        let total = (0..p.size()).fold(0u64, |sum, rank| sum.saturating_add(blocks.len(rank)));
        plan_allgather(p, mine, &blocks, total / u64::from(p.size()), false)
    }
}

fn plan_allgather(
    p: &mut impl Plan,
    mine: Option<Data>,
    blocks: &Blocks<'_>,
    block: u64,
    even: bool,
) -> Result<()> {
    if p.across() > 0 {
        let mine = mine.unwrap_or_else(Data::empty);
        gather::from_all(p, Side::Across, blocks)?;
        return gather::each(p, Side::Across, |p, site| {
            if mine.len > 0 {
                p.send_to(site, mine.clone()).map(drop)
            } else {
                Ok(())
            }
        });
    }
    if even && block == 0 {
        return Ok(());
    }
    allgather::own(p, mine.as_ref(), blocks)?;
    match choose(Kind::Allgather, ask(p, block, even)) {
        _ if p.size() == 1 => Ok(()),
        Algorithm::RecursiveDoubling => allgather::recursive_doubling(p, blocks),
        Algorithm::Bruck => allgather::bruck(p, blocks),
        Algorithm::NeighbourExchange => allgather::neighbour_exchange(p, blocks),
        Algorithm::Linear { .. } => allgather::linear(p, blocks),
        _ => allgather::ring(p, blocks),
    }
}

/// `MPI_Alltoall`.
pub struct Alltoall<'a> {
    /// A block for each rank; `None`: in place.
    pub send: Option<Elements<'a>>,
    /// A block from each rank.
    pub recv: Elements<'a>,
}

impl Planned for Alltoall<'_> {
    fn kind(&self) -> Kind {
        Kind::Alltoall
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, Kind::Alltoall, self.send.is_none())?;
        check_blocks(comm, &self.send, Elements::check)?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        let recv = self.recv.blocks();
        let send = self.send.map_or(recv, |send| send.blocks());
        if p.across() > 0 {
            return inter::alltoall(p, &send, &recv);
        }
        match choose(Kind::Alltoall, ask(p, self.recv.bytes(), true)) {
            _ if self.recv.bytes() == 0 => Ok(()),
            Algorithm::Bruck => alltoall::bruck(p, &send, &recv),
            _ if self.send.is_none() => alltoall::in_place(p, &recv),
            Algorithm::Linear { batch } => alltoall::linear(p, &send, &recv, batch),
            _ => alltoall::linear(p, &send, &recv, 1),
        }
    }

    fn meet(&self, comm: &Comm, origin: Origin) -> Result<bool> {
        let recv = self.recv.blocks();
        let send = self.send.map_or(recv, |send| send.blocks());
        lanes::meet(comm, &Large::Alltoall(self.recv.bytes(), send, recv), origin)
    }
}

/// `MPI_Alltoallv`.
pub struct Alltoallv<'a> {
    /// A block for each rank; `None`: in place.
    pub send: Option<Uneven<'a>>,
    /// A block from each rank.
    pub recv: Uneven<'a>,
}

impl Planned for Alltoallv<'_> {
    fn kind(&self) -> Kind {
        Kind::Alltoallv
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, Kind::Alltoallv, self.send.is_none())?;
        check_blocks(comm, &self.send, Uneven::check)?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        plan_uneven(
            p,
            Kind::Alltoallv,
            self.send.map(|send| send.blocks()),
            self.recv.blocks(),
        )
    }
}

/// `MPI_Alltoallw`.
pub struct Alltoallw<'a> {
    /// A block for each rank; `None`: in place.
    pub send: Option<Mixed<'a>>,
    /// A block from each rank.
    pub recv: Mixed<'a>,
}

impl Planned for Alltoallw<'_> {
    fn kind(&self) -> Kind {
        Kind::Alltoallw
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, Kind::Alltoallw, self.send.is_none())?;
        check_blocks(comm, &self.send, Mixed::check)?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<()> {
        plan_uneven(
            p,
            Kind::Alltoallw,
            self.send.map(|send| send.blocks()),
            self.recv.blocks(),
        )
    }
}

fn plan_uneven(p: &mut impl Plan, kind: Kind, send: Option<Blocks<'_>>, recv: Blocks<'_>) -> Result<()> {
    let Some(send) = send else {
        return alltoall::in_place(p, &recv);
    };
    if p.across() > 0 {
        return inter::alltoall(p, &send, &recv);
    }
    match choose(kind, ask(p, 0, false)) {
        Algorithm::Linear { batch } => alltoall::linear(p, &send, &recv, batch),
        _ => alltoall::linear(p, &send, &recv, 1),
    }
}
