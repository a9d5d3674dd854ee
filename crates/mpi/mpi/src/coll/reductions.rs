//! The arguments of the collectives that combine data, and their plans.
//!
//! As in [`super::calls`]: `None` for a contribution means `MPI_IN_PLACE`, `None` for a result that
//! it is not significant here.

use super::call_signature::CallSignature;
use super::datatype_layout::check_count;
use super::role;
use super::sealed::Planned;
use super::shm_large::{self, LargeOp};
use super::shm_nonblocking::shm_op::{ReduceTarget, ShmOp, StoredReduction};
use super::shm_small::{self, SmallOp};
use super::shm_sync::ShmSync;
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use crate::op::Op;
use garonne_coll::algo::{Reduction, intercomm, reduce_scatter};
use garonne_coll::blocks::CountArray;
use garonne_coll::call_tag::CollectiveKind;
use garonne_coll::choose::{Algorithm, ChoiceInput, choose};
use garonne_coll::in_group::{allreduce_in_group, reduce_in_group};
use garonne_coll::plan::{Plan, PlanScratch};
use garonne_coll::typed_buffer::{ElementLayout, ReduceOp};
use garonne_sync::user::UserMem;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// An operation on a datatype that it was checked to be defined on.
#[derive(Debug)]
pub(super) struct TypedOp<'a> {
    op: &'a Op,
    datatype: &'a Datatype,
}

impl<'a> TypedOp<'a> {
    pub(super) fn new(op: &'a Op, datatype: &'a Datatype) -> Self {
        Self { op, datatype }
    }

    /// `count` elements at `send` combined to `recv`; without `send` they are at `recv`, in place.
    pub(super) fn reduction(
        &self,
        send: Option<UserMem>,
        recv: UserMem,
        count: u64,
    ) -> Reduction<'_> {
        Reduction {
            fold: self,
            input: send.unwrap_or(recv),
            output: recv,
            count,
        }
    }
}

/// An operation on a datatype, owned by a schedule.
#[derive(Debug)]
struct OwnedTypedOp {
    op: Op,
    datatype: Datatype,
}

macro_rules! fold {
    ($type:ty) => {
        impl ReduceOp for $type {
            fn fold(&self, left: UserMem, into: UserMem, count: u64) {
                // Only an operation that is not defined on the datatype fails, and calls refuse
                // that first.
                let _ = self.op.apply(left, into, count, &self.datatype);
            }

            fn commutative(&self) -> bool {
                self.op.is_commutative()
            }

            fn user(&self) -> bool {
                self.op.is_user()
            }

            fn shape(&self) -> &dyn ElementLayout {
                shape(&self.datatype)
            }

            fn keep(&self) -> Arc<dyn ReduceOp> {
                Arc::new(OwnedTypedOp {
                    op: self.op.clone(),
                    datatype: self.datatype.clone(),
                })
            }
        }
    };
}

fn shape(datatype: &Datatype) -> &dyn ElementLayout {
    datatype
}

fold!(TypedOp<'_>);
fold!(OwnedTypedOp);

fn check_op(kind: CollectiveKind, op: &Op, datatype: &Datatype) -> Result<()> {
    if !op.is_for_reductions() {
        return Err(Error::new(
            Class::Op,
            format!("{kind}: {} is for one-sided calls only", op.name()),
        ));
    }
    op.check(datatype)
}

/// Refuses a reduction that its communicator, count or operation does not allow.
pub(super) fn check(
    comm: &Comm,
    kind: CollectiveKind,
    op: (&Op, &Datatype),
    count: u64,
    in_place: bool,
) -> Result<()> {
    if in_place && comm.is_inter() {
        return Err(comm.error(
            Class::Buffer,
            format!("{kind}: MPI_IN_PLACE has no meaning on an intercommunicator"),
        ));
    }
    check_op(kind, op.0, op.1)?;
    check_count(op.1, count)
}

/// Returns whether a segment may serve: a predefined datatype, equal on all ranks, and something
/// to combine. An operation of the program's is applied to whole contributions only, so lanes leave
/// it to messages.
pub(super) fn suits_segment(r: &Reduction<'_>, datatype: &Datatype) -> bool {
    r.count > 0 && datatype.size() > 0 && datatype.code().is_some()
}

/// Reduces in the segment, through its cells or its lanes.
fn reduce_in_segment(
    sync: &ShmSync<'_>,
    r: &Reduction<'_>,
    datatype: &Datatype,
    root: Option<u32>,
) -> Result<bool> {
    Ok(suits_segment(r, datatype)
        && (shm_small::run(sync, &SmallOp::Reduce(r, root))?
            || shm_large::run(sync, &LargeOp::Reduce(r, root))?))
}

/// Returns the operands of a reduction in a slot, if it may use one.
pub(super) fn for_rounds<'a>(
    (op, datatype): (&'a Op, &'a Datatype),
    (send, recv): (Option<UserMem>, UserMem),
    count: u64,
) -> Option<StoredReduction<'a>> {
    let fold = TypedOp::new(op, datatype);
    suits_segment(&fold.reduction(send, recv, count), datatype).then(|| StoredReduction {
        op: Cow::Borrowed(op),
        datatype: Cow::Borrowed(datatype),
        input: send.unwrap_or(recv),
        output: recv,
        count,
    })
}

/// Returns the signature of a reduction of `count` elements.
pub(super) fn said(
    kind: CollectiveKind,
    (op, datatype): (&Op, &Datatype),
    count: u64,
) -> CallSignature {
    CallSignature::of(kind)
        .bytes(datatype.size().saturating_mul(count))
        .combining(op, datatype)
}

/// `MPI_Reduce`.
pub struct Reduce<'a> {
    /// This process's contribution; `None`: in place at the root, or not significant.
    pub send: Option<UserMem>,
    /// The result, at the root.
    pub recv: Option<UserMem>,
    /// Elements.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
    /// The operation.
    pub op: &'a Op,
    /// The root, `MPI_ROOT` or `MPI_PROC_NULL`.
    pub root: i32,
}

impl Planned for Reduce<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Reduce
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        comm.check_root(CollectiveKind::Reduce, self.root)?;
        // Nothing but the root is significant there, not even the datatype.
        if self.root == crate::PROC_NULL {
            return Ok(());
        }
        check(
            comm,
            CollectiveKind::Reduce,
            (self.op, self.datatype),
            self.count,
            false,
        )?;
        let at_root = if comm.is_inter() {
            self.root == crate::ROOT
        } else {
            self.root == comm.rank() as i32
        };
        let missing = if at_root {
            self.recv.is_none()
        } else {
            self.send.is_none() && self.root >= 0
        };
        match missing && self.count > 0 {
            true => Err(comm.error(
                Class::Buffer,
                "MPI_Reduce: MPI_IN_PLACE is for the root's own contribution only",
            )),
            false => Ok(()),
        }
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        if self.count == 0 {
            return Ok(());
        }
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(
            self.send,
            self.recv.unwrap_or_else(UserMem::null),
            self.count,
        );
        if p.remote_size() > 0 {
            return intercomm::reduce(p, role(self.root), &r);
        }
        // A result address that a process without result passed by chance must not look like an
        // in-place call.
        let root = self.root as u32;
        let r = if p.me() == root {
            r
        } else {
            r.to(UserMem::null())
        };
        reduce_in_group(p, root, &r)
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(
            self.send,
            self.recv.unwrap_or_else(UserMem::null),
            self.count,
        );
        reduce_in_segment(sync, &r, self.datatype, u32::try_from(self.root).ok())
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        let recv = self.recv.unwrap_or_else(UserMem::null);
        let combined = for_rounds((self.op, self.datatype), (self.send, recv), self.count)?;
        Some(ShmOp::Reduce(combined, ReduceTarget::One(self.root as u32)))
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        said(CollectiveKind::Reduce, (self.op, self.datatype), self.count).root(self.root)
    }
}

/// `MPI_Allreduce`.
pub struct Allreduce<'a> {
    /// This process's contribution; `None`: in place.
    pub send: Option<UserMem>,
    /// The result.
    pub recv: UserMem,
    /// Elements.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
    /// The operation.
    pub op: &'a Op,
}

impl Planned for Allreduce<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::Allreduce
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        check(
            comm,
            CollectiveKind::Allreduce,
            (self.op, self.datatype),
            self.count,
            self.send.is_none(),
        )
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        if self.count == 0 {
            return Ok(());
        }
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, self.count);
        if p.remote_size() > 0 {
            intercomm::allreduce(p, &r)
        } else {
            allreduce_in_group(p, &r)
        }
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, self.count);
        reduce_in_segment(sync, &r, self.datatype, None)
    }

    fn shm_op(&self, _: &Comm) -> Option<ShmOp<'_>> {
        let combined = for_rounds((self.op, self.datatype), (self.send, self.recv), self.count)?;
        Some(ShmOp::Reduce(combined, ReduceTarget::All))
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        said(
            CollectiveKind::Allreduce,
            (self.op, self.datatype),
            self.count,
        )
    }
}

/// `MPI_Reduce_scatter`.
pub struct ReduceScatter<'a> {
    /// This process's contribution; `None`: in place, taken from `recv`.
    pub send: Option<UserMem>,
    /// This process's slice of the result.
    pub recv: UserMem,
    /// Elements of each rank's slice.
    pub counts: CountArray<'a>,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
    /// The operation.
    pub op: &'a Op,
}

/// `MPI_Reduce_scatter_block`.
pub struct ReduceScatterBlock<'a> {
    /// This process's contribution; `None`: in place, taken from `recv`.
    pub send: Option<UserMem>,
    /// This process's slice of the result.
    pub recv: UserMem,
    /// Elements of every rank's slice.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
    /// The operation.
    pub op: &'a Op,
}

impl<'a> ReduceScatterBlock<'a> {
    fn general(&self) -> ReduceScatter<'a> {
        let Self {
            send,
            recv,
            datatype,
            op,
            ..
        } = *self;
        ReduceScatter {
            send,
            recv,
            counts: CountArray::All(self.count as i64),
            datatype,
            op,
        }
    }
}

impl ReduceScatter<'_> {
    fn total(&self, ranks: u32) -> Result<u64> {
        let total = (0..ranks).try_fold(0u64, |sum, rank| {
            sum.checked_add(u64::try_from(self.counts.get(rank)).ok()?)
        });
        total.ok_or_else(|| {
            Error::new(
                Class::Count,
                "a count is negative, or their sum exceeds 64 bits",
            )
        })
    }

    fn check_as(&self, comm: &Comm, kind: CollectiveKind) -> Result<()> {
        if self
            .counts
            .len()
            .is_some_and(|len| len < comm.size() as usize)
        {
            return Err(comm.error(Class::Arg, format!("{kind}: fewer counts than ranks")));
        }
        check(
            comm,
            kind,
            (self.op, self.datatype),
            self.total(comm.size())?,
            self.send.is_none(),
        )
    }

    fn plan_as<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        let (me, n) = (p.me(), p.size());
        // Counted without failing: `check` came first.
        let count = self.total(n).unwrap_or(0);
        if count == 0 {
            return Ok(());
        }
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, count);
        let counts = |rank: u32| self.counts.get(rank).max(0) as u64;
        if p.remote_size() > 0 {
            return intercomm::reduce_scatter(p, &r, &counts);
        }
        if let Algorithm::Sliced = choose(
            CollectiveKind::ReduceScatter,
            ChoiceInput::of_reduction(p, &r),
        ) {
            return self.plan_sliced(p, &r);
        }
        let all = p.scratch_like(&r.output(), count)?;
        allreduce_in_group(p, &r.to(all.mem))?;
        p.fence()?;
        let before: u64 = (0..me).map(counts).sum();
        p.copy(
            all.data(before as i64, counts(me)),
            r.output().data(0, counts(me)),
        )
    }

    /// Returns where the slice of each rank ends; all of them fit 64 bits.
    fn ends(&self, ranks: u32) -> Vec<u64> {
        let mut end = 0u64;
        (0..ranks)
            .map(|rank| {
                end = end.saturating_add(self.counts.get(rank).max(0) as u64);
                end
            })
            .collect()
    }

    fn meet_as(&self, sync: &ShmSync<'_>) -> Result<bool> {
        let ends = self.ends(sync.comm.size());
        let fold = TypedOp::new(self.op, self.datatype);
        let r = fold.reduction(self.send, self.recv, ends.last().copied().unwrap_or(0));
        let slice = |rank| slice_of(&ends, rank);
        Ok(suits_segment(&r, self.datatype)
            && shm_large::run(sync, &LargeOp::ReduceScatter(&r, &slice))?)
    }

    fn plan_sliced<P: Plan>(&self, p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
        let me = p.me();
        let ends = self.ends(p.size());
        let slice = |rank| slice_of(&ends, rank);
        if !r.in_place() {
            return reduce_scatter::direct(p, r, &slice, r.output);
        }
        // The result goes to the start of the buffer, from which others may still be reading their
        // slices.
        let count = garonne_coll::algo::len(&slice(me));
        let mine = p.scratch_like(&r.output(), count)?;
        reduce_scatter::direct(p, r, &slice, mine.mem)?;
        p.fence()?;
        p.copy(mine.data(0, count), r.output().data(0, count))
    }
}

/// The elements of a rank's slice, by the ends of all slices.
fn slice_of(ends: &[u64], rank: u32) -> Range<u64> {
    let end = |rank: u32| ends.get(rank as usize).copied().unwrap_or(0);
    rank.checked_sub(1).map_or(0, end)..end(rank)
}

impl Planned for ReduceScatter<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::ReduceScatter
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        self.check_as(comm, CollectiveKind::ReduceScatter)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        self.plan_as(p)
    }

    fn signature(&self, comm: &Comm) -> CallSignature {
        // Counted without failing: `check` came first.
        let total = self.total(comm.size()).unwrap_or(u64::MAX);
        said(
            CollectiveKind::ReduceScatter,
            (self.op, self.datatype),
            total,
        )
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        self.meet_as(sync)
    }

    fn shm_op(&self, comm: &Comm) -> Option<ShmOp<'_>> {
        let ends = self.ends(comm.size());
        let (mine, total) = (slice_of(&ends, comm.rank()), *ends.last()?);
        let combined = for_rounds((self.op, self.datatype), (self.send, self.recv), total)?;
        Some(ShmOp::Reduce(
            combined,
            ReduceTarget::Slice(mine.start, garonne_coll::algo::len(&mine)),
        ))
    }
}

impl Planned for ReduceScatterBlock<'_> {
    fn kind(&self) -> CollectiveKind {
        CollectiveKind::ReduceScatterBlock
    }

    fn check(&self, comm: &Comm) -> Result<()> {
        self.general()
            .check_as(comm, CollectiveKind::ReduceScatterBlock)
    }

    fn plan<P: Plan>(&self, p: &mut P) -> Result<(), P::Error> {
        self.general().plan_as(p)
    }

    fn signature(&self, _: &Comm) -> CallSignature {
        said(
            CollectiveKind::ReduceScatterBlock,
            (self.op, self.datatype),
            self.count,
        )
    }

    fn run_in_shm(&self, sync: &ShmSync<'_>) -> Result<bool> {
        self.general().meet_as(sync)
    }

    fn shm_op(&self, comm: &Comm) -> Option<ShmOp<'_>> {
        let count = self.count.checked_mul(comm.size().into())?;
        let combined = for_rounds((self.op, self.datatype), (self.send, self.recv), count)?;
        let first = self.count * u64::from(comm.rank());
        Some(ShmOp::Reduce(
            combined,
            ReduceTarget::Slice(first, self.count),
        ))
    }
}

/// `MPI_Reduce_local`: `inout = input op inout`.
///
/// # Errors
/// `Op` or `Count` for what the operation or the address space does not allow.
pub fn reduce_local(
    input: UserMem,
    inout: UserMem,
    count: u64,
    datatype: &Datatype,
    op: &Op,
) -> Result<()> {
    if !op.is_for_reductions() {
        return Err(Error::new(
            Class::Op,
            format!(
                "MPI_Reduce_local: {} is for one-sided calls only",
                op.name()
            ),
        ));
    }
    op.check(datatype)?;
    check_count(datatype, count)?;
    if count > 0 {
        op.apply(input, inout, count, datatype)
    } else {
        Ok(())
    }
}
