//! The arguments of the collectives that move data between all ranks, and their plans; those of one
//! root are in [`super::rooted`].
//!
//! Filled in by the C edge and handed to [`Comm::collective`] or [`Comm::start_collective`]. `None`
//! for a send buffer means `MPI_IN_PLACE`; what is not significant on a process (a receive buffer
//! that only the root has, say) is `None` as well.

use super::buffers::{Elements, ElementsV, ElementsW};
use super::call_signature::CallSignature;
use super::role;
use super::sealed::Planned;
use super::shm_large::{self, LargeOp};
use super::shm_nonblocking::shm_op::{GatherBuffer, ShmOp, StoredElements, StoredElementsV};
use super::shm_nonblocking::shm_op_v::ShmOpV;
use super::shm_small::{self, SmallOp};
use super::shm_sync::ShmSync;
use crate::comm::Comm;
use crate::error::{Class, Result};
use crate::limits::coll as limit;
use garonne_coll::algo::{alltoall, barrier, intercomm};
use garonne_coll::blocks::Blocks;
use garonne_coll::call_tag::CollectiveKind;
use garonne_coll::choose::{Algorithm, ChoiceInput, choose};
use garonne_coll::hierarchical;
use garonne_coll::in_group::{bcast_in_group, plan_allgather};
use garonne_coll::plan::Plan;
use garonne_coll::typed_buffer;
use garonne_sync::user::Data;

/// Blocks for every process that messages come from: the remote group of an intercommunicator.
pub(super) fn check_blocks<T>(
    comm: &Comm,
    buffer: &Option<T>,
    check: fn(&T, u32) -> Result<()>,
) -> Result<()> {
    buffer
        .as_ref()
        .map_or(Ok(()), |buffer| check(buffer, comm.peers()))
}

fn no_place(comm: &Comm, kind: CollectiveKind, in_place: bool) -> Result<()> {
    if in_place && comm.is_inter() {
        return Err(comm.error(
            Class::Buffer,
            format!("{kind}: MPI_IN_PLACE has no meaning on an intercommunicator"),
        ));
    }
    Ok(())
}

/// Refuses a call whose process gives and takes blocks of different lengths: all blocks of such a
/// call are alike.
fn check_alike(
    comm: &Comm,
    kind: CollectiveKind,
    send: &Option<Elements<'_>>,
    recv: &Elements<'_>,
) -> Result<()> {
    match send.map(|send| (send.bytes(), recv.bytes())) {
        Some((sent, taken)) if sent != taken && !comm.is_inter() => Err(comm.error(
            Class::Count,
            format!(
                "{kind}: blocks of {sent} B are sent and blocks of {taken} B received; they must be alike"
            ),
        )),
        _ => Ok(()),
    }
}

/// `MPI_Barrier`.
pub struct Barrier;

impl Planned for Barrier {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Barrier
    }

    fn check(&self, _: &Comm) -> Result<()> {
        Ok(())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        if p.remote_size() > 0 {
            return intercomm::barrier(p);
        }
        match (
            choose(CollectiveKind::Barrier, ChoiceInput::of_data(p, 0, true)),
            p.node_map(),
        ) {
            (Algorithm::Hierarchical, Some(spread)) => hierarchical::barrier(p, &spread),
            _ => barrier::dissemination(p),
        }
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        shm_small::run(sync, &SmallOp::Barrier)
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        Some(ShmOp::Barrier)
    }
}

/// `MPI_Bcast`.
pub struct Bcast<'a> {
    /// Buffer that the root sends and the others fill.
    pub buffer: Elements<'a>,
    /// The root, `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Planned for Bcast<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Bcast
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        comm.check_root(CollectiveKind::Bcast, self.root)?;
        self.buffer.check(1)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        if p.remote_size() > 0 && role(self.root) == intercomm::RootRole::Bystander {
            return Ok(());
        }
        let data = self.buffer.data();
        match u32::try_from(self.root) {
            _ if data.len == 0 => Ok(()),
            Ok(root) if p.remote_size() == 0 => bcast_in_group(p, root, &data),
            _ => intercomm::bcast(p, role(self.root), &data),
        }
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        CallSignature::of(CollectiveKind::Bcast)
            .bytes(self.buffer.bytes())
            .root(self.root)
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let (root, data) = (self.root as u32, self.buffer.data());
        match self.buffer.bytes() {
            0 => Ok(false),
            1..=limit::SHM_SMALL_BYTES => shm_small::run(sync, &SmallOp::Bcast(root, data)),
            _ => shm_large::run(sync, &LargeOp::Bcast(root, data)),
        }
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        let part = StoredElements::of(&self.buffer);
        (self.buffer.bytes() > 0).then_some(ShmOp::Bcast(self.root as u32, part))
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
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Allgather
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, CollectiveKind::Allgather, self.send.is_none())?;
        check_alike(comm, CollectiveKind::Allgather, &self.send, &self.recv)?;
        self.send.map_or(Ok(()), |send| send.check(1))?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        let mine = self.send.map(|send| send.data());
        plan_allgather(p, mine, &self.recv.blocks(), self.recv.bytes(), true)
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        CallSignature::of(CollectiveKind::Allgather).bytes(self.recv.bytes())
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let (me, len, blocks) = (sync.comm.rank(), self.recv.bytes(), self.recv.blocks());
        if !(1..=limit::SHM_SMALL_BYTES).contains(&len) {
            let mine = self.send.map(|send| send.data());
            return shm_large::run(sync, &LargeOp::Gather(len, mine, blocks, None));
        }
        let mine = self.send.map_or_else(|| blocks.one(me), |send| send.data());
        let get = |rank: u32, cell: &Data| {
            // In place, the own block is where it belongs already.
            if self.send.is_some() || rank != me {
                typed_buffer::copy(cell, &blocks.one(rank));
            }
        };
        let put = |cell: &Data| typed_buffer::copy(&mine, cell);
        shm_small::run(sync, &SmallOp::Allgather(len, &put, &get))
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        let send = self.send.as_ref().map(StoredElements::of);
        let filled = GatherBuffer::Even(StoredElements::of(&self.recv));
        (self.recv.bytes() > 0).then_some(ShmOp::Allgather(send, filled))
    }
}

/// `MPI_Allgatherv`.
pub struct Allgatherv<'a> {
    /// This process's contribution; `None`: in place.
    pub send: Option<Elements<'a>>,
    /// Blocks of all ranks.
    pub recv: ElementsV<'a>,
}

impl Planned for Allgatherv<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Allgatherv
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, CollectiveKind::Allgatherv, self.send.is_none())?;
        self.send.map_or(Ok(()), |send| send.check(1))?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        let mine = self.send.map(|send| send.data());
        let blocks = self.recv.blocks();
        let total = (0..p.size()).fold(0u64, |sum, rank| sum.saturating_add(blocks.len(rank)));
        plan_allgather(p, mine, &blocks, total / u64::from(p.size()), false)
    }

    fn signature(&self, comm: &Comm) -> CallSignature {
        let blocks = self.recv.blocks();
        let total = (0..comm.size()).fold(0u64, |sum, rank| sum.saturating_add(blocks.len(rank)));
        CallSignature::of(CollectiveKind::Allgatherv).bytes(total)
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let mine = self.send.map(|send| send.data());
        shm_large::run(sync, &LargeOp::Allgatherv(mine, self.recv.blocks()))
    }

    fn shm_op(&self, comm: &Comm) -> Option<ShmOp<'_>> {
        let send = self.send.as_ref().map(StoredElements::of);
        let ragged = StoredElementsV::of(&self.recv, comm.size());
        (ragged.longest() > 0).then_some(ShmOp::Allgather(send, GatherBuffer::Uneven(ragged)))
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
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Alltoall
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        no_place(comm, CollectiveKind::Alltoall, self.send.is_none())?;
        check_alike(comm, CollectiveKind::Alltoall, &self.send, &self.recv)?;
        check_blocks(comm, &self.send, Elements::check)?;
        self.recv.check(comm.peers())
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        let recv = self.recv.blocks();
        let send = self.send.map_or(recv, |send| send.blocks());
        if p.remote_size() > 0 {
            return intercomm::alltoall(p, &send, &recv);
        }
        match (
            choose(
                CollectiveKind::Alltoall,
                ChoiceInput::of_data(p, self.recv.bytes(), true),
            ),
            p.node_map(),
        ) {
            _ if self.recv.bytes() == 0 => Ok(()),
            (Algorithm::Hierarchical, Some(spread)) => {
                hierarchical::alltoall(p, &spread, &send, &recv)
            }
            (Algorithm::Bruck, _) => alltoall::bruck(p, &send, &recv),
            _ if self.send.is_none() => alltoall::in_place(p, &recv),
            (Algorithm::Linear { batch }, _) => alltoall::linear(p, &send, &recv, batch),
            _ => alltoall::linear(p, &send, &recv, 1),
        }
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        CallSignature::of(CollectiveKind::Alltoall).bytes(self.recv.bytes())
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let recv = self.recv.blocks();
        let send = self.send.map_or(recv, |send| send.blocks());
        shm_large::run(sync, &LargeOp::Alltoall(self.recv.bytes(), send, recv))
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        let send = self.send.as_ref().map(StoredElements::of);
        (self.recv.bytes() > 0).then(|| ShmOp::Alltoall(send, StoredElements::of(&self.recv)))
    }
}

/// `MPI_Alltoallv`.
pub struct Alltoallv<'a> {
    /// A block for each rank; `None`: in place.
    pub send: Option<ElementsV<'a>>,
    /// A block from each rank.
    pub recv: ElementsV<'a>,
}

/// `MPI_Alltoallw`.
pub struct Alltoallw<'a> {
    /// A block for each rank; `None`: in place.
    pub send: Option<ElementsW<'a>>,
    /// A block from each rank.
    pub recv: ElementsW<'a>,
}

/// Implements an exchange of blocks whose lengths only sender and receiver know.
macro_rules! alltoall_of_blocks {
    ($call:ident, $buffer:ident) => {
        impl Planned for $call<'_> {
            fn kind(&self) -> CollectiveKind {
                CollectiveKind::$call
            }

            fn check(&self, comm: &Comm) -> Result<()> {
                no_place(comm, CollectiveKind::$call, self.send.is_none())?;
                check_blocks(comm, &self.send, $buffer::check)?;
                self.recv.check(comm.peers())
            }

            fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
                plan_uneven(
                    p,
                    CollectiveKind::$call,
                    self.send.as_ref().map(|send| send.blocks()),
                    self.recv.blocks(),
                )
            }

            fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
                let recv = self.recv.blocks();
                let send = self.send.as_ref().map_or(recv, |send| send.blocks());
                shm_large::run(sync, &LargeOp::Uneven(CollectiveKind::$call, send, recv))
            }

            fn shm_op(&self, comm: &Comm) -> Option<ShmOp<'_>> {
                let send = self.send.as_ref().map(|send| send.blocks());
                Some(ShmOp::Exchange(ShmOpV::exchange(
                    comm.size(),
                    comm.rank(),
                    send,
                    &self.recv.blocks(),
                )))
            }
        }
    };
}

alltoall_of_blocks!(Alltoallv, ElementsV);
alltoall_of_blocks!(Alltoallw, ElementsW);

fn plan_uneven<P: Plan>(
    p: &mut P,
    kind: CollectiveKind,
    send: Option<Blocks<'_>>,
    recv: Blocks<'_>,
) -> Result<(), P::Error> {
    let Some(send) = send else {
        return alltoall::in_place(p, &recv);
    };
    if p.remote_size() > 0 {
        return intercomm::alltoall(p, &send, &recv);
    }
    match choose(kind, ChoiceInput::of_data(p, 0, false)) {
        Algorithm::Linear { batch } => alltoall::linear(p, &send, &recv, batch),
        _ => alltoall::linear(p, &send, &recv, 1),
    }
}
