//! What a nonblocking collective does in its slot: what a member writes, who waits for whom, and
//! what each member takes.
//!
//! Each call makes a [`ShmOp`] from the program's arguments
//! ([`Planned::shm_op`](crate::coll::sealed::Planned::shm_op)). A copy is kept only where the call
//! returns before it is over. This module copies and combines; it knows no communicator.

use super::super::buffers::{Elements, ElementsV};
use super::super::call_signature::CallSignature;
use super::super::reductions::TypedOp;
use super::super::shm_large::{self, OperandRoom, Operands};
use super::shm_op_v::{LengthMismatch, ShmOpV};
use crate::datatype::Datatype;
use crate::limits::coll as limit;
use crate::op::Op;
use garonne_coll::algo::Reduction;
use garonne_coll::algo::scan::ScanKind;
use garonne_coll::autotune::CopyKind;
use garonne_coll::blocks::{Blocks, CountArray};
use garonne_coll::typed_buffer::{self, TypedBuffer};
use garonne_sync::copy::StoreKind;
use garonne_sync::nbc_slots::{ROUNDS, WIDE_SETS};
use garonne_sync::shm_barrier::CELL_BYTES;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Elements as a call describes them, in a form that may be kept.
#[derive(Clone)]
pub struct StoredElements<'a> {
    mem: UserMem,
    count: u64,
    datatype: Cow<'a, Datatype>,
}

impl<'a> StoredElements<'a> {
    pub fn of(elements: &Elements<'a>) -> Self {
        Self {
            mem: elements.mem,
            count: elements.count,
            datatype: Cow::Borrowed(elements.datatype),
        }
    }

    fn keep(self) -> StoredElements<'static> {
        StoredElements {
            mem: self.mem,
            count: self.count,
            datatype: Cow::Owned(self.datatype.into_owned()),
        }
    }

    fn typed(&self) -> TypedBuffer<'_> {
        TypedBuffer::new(self.mem, &*self.datatype)
    }

    fn data(&self) -> Data {
        self.typed().data(0, self.count)
    }

    /// Bytes of data, without gaps.
    pub fn bytes(&self) -> u64 {
        self.datatype.size().saturating_mul(self.count)
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks::Even {
            typed: self.typed(),
            count: self.count,
        }
    }
}

/// Destination of elements: a block with a length and a place of its own for every rank.
#[derive(Clone)]
pub struct StoredElementsV<'a> {
    mem: UserMem,
    counts: Cow<'a, [i64]>,
    displs: Cow<'a, [i64]>,
    datatype: Cow<'a, Datatype>,
    /// Bytes of the longest.
    longest: u64,
}

impl<'a> StoredElementsV<'a> {
    pub fn of(uneven: &ElementsV<'a>, ranks: u32) -> Self {
        let numbers = |numbers: &CountArray<'a>| match *numbers {
            CountArray::Wide(values) => Cow::Borrowed(values),
            other => (0..ranks).map(|rank| other.get(rank)).collect(),
        };
        let blocks = uneven.blocks();
        Self {
            mem: uneven.mem,
            counts: numbers(&uneven.counts),
            displs: numbers(&uneven.displs),
            datatype: Cow::Borrowed(uneven.datatype),
            longest: (0..ranks).map(|rank| blocks.len(rank)).max().unwrap_or(0),
        }
    }

    /// Bytes of the longest.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    fn keep(self) -> StoredElementsV<'static> {
        StoredElementsV {
            mem: self.mem,
            counts: Cow::Owned(self.counts.into_owned()),
            displs: Cow::Owned(self.displs.into_owned()),
            datatype: Cow::Owned(self.datatype.into_owned()),
            longest: self.longest,
        }
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks::Uneven {
            typed: TypedBuffer::new(self.mem, &*self.datatype),
            counts: CountArray::Wide(&self.counts),
            displs: CountArray::Wide(&self.displs),
        }
    }
}

/// Blocks of all ranks that an allgather fills.
#[derive(Clone)]
pub enum GatherBuffer<'a> {
    Even(StoredElements<'a>),
    Uneven(StoredElementsV<'a>),
}

impl GatherBuffer<'_> {
    pub(in crate::coll) fn blocks(&self) -> Blocks<'_> {
        match self {
            GatherBuffer::Even(part) => part.blocks(),
            GatherBuffer::Uneven(ragged) => ragged.blocks(),
        }
    }
}

/// An operation and what it works on.
#[derive(Clone)]
pub struct StoredReduction<'a> {
    pub op: Cow<'a, Op>,
    pub datatype: Cow<'a, Datatype>,
    /// Contribution and, where there is one, result.
    pub input: UserMem,
    pub output: UserMem,
    /// Elements of a contribution.
    pub count: u64,
}

impl StoredReduction<'_> {
    fn keep(self) -> StoredReduction<'static> {
        StoredReduction {
            op: Cow::Owned(self.op.into_owned()),
            datatype: Cow::Owned(self.datatype.into_owned()),
            ..self
        }
    }

    fn with<T>(&self, f: impl FnOnce(&Reduction<'_>) -> T) -> T {
        let fold = TypedOp::new(&self.op, &self.datatype);
        f(&fold.reduction(Some(self.input), self.output, self.count))
    }

    /// Bytes of a contribution, without gaps.
    pub fn bytes(&self) -> u64 {
        self.datatype.size().saturating_mul(self.count)
    }

    /// Bytes that elements at an address occupy, gaps included.
    fn len(&self) -> u64 {
        match typed_buffer::span(&*self.datatype, self.count) {
            (low, _) if low < 0 => u64::MAX,
            (low, len) => low as u64 + len,
        }
    }
}

/// Alignment of what is combined: enough for any C type.
const ALIGN: u64 = 64;

/// The ranks that get the result of a reduction.
#[derive(Clone, Copy)]
pub enum ReduceTarget {
    All,
    One(u32),
    /// Each a slice: this member's begins at this element, and has so many.
    Slice(u64, u64),
}

/// A nonblocking collective as an operation on a slot. Calls are: `put` before arriving; `combine`
/// at the last to arrive; `take` when all have arrived.
#[derive(Clone)]
pub enum ShmOp<'a> {
    /// The data goes by messages.
    CompareOnly,
    Barrier,
    Bcast(u32, StoredElements<'a>),
    Reduce(StoredReduction<'a>, ReduceTarget),
    Scan(StoredReduction<'a>, ScanKind),
    /// Without a contribution it lies in the result already.
    Allgather(Option<StoredElements<'a>>, GatherBuffer<'a>),
    Alltoall(Option<StoredElements<'a>>, StoredElements<'a>),
    /// Own block (the root may have none) and, at the root, those of all.
    Gather(u32, Option<StoredElements<'a>>, Option<StoredElements<'a>>),
    Scatter(u32, Option<StoredElements<'a>>, Option<StoredElements<'a>>),
    /// Uneven blocks.
    Exchange(ShmOpV),
}

/// Which members of a collective wait for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// All wait for all.
    AllOnAll,
    /// All wait for one member, which waits for nobody.
    AllOnOne(u32),
    /// One member waits for all; the others wait for nobody.
    OneOnAll(u32),
    /// Nobody waits for anybody.
    None,
}

/// Carries out what reads so many bytes that were put down so.
type TimedCopy<'a> = dyn Fn(StoreKind, u64, &mut dyn FnMut()) + 'a;

/// A slot as one of its members uses it.
pub struct SlotView<'a> {
    pub me: u32,
    pub members: u32,
    /// Bytes that a member can put down.
    pub room: u64,
    /// Cell of a member, and the length of a cell.
    pub cell: &'a dyn Fn(u32) -> UserMem,
    pub cell_len: u64,
    /// Wide cell of a member, for more than its small cell holds, and its length; 0: there is none.
    pub wide: &'a dyn Fn(u32) -> UserMem,
    pub wide_len: usize,
    /// Result that the last to arrive combines; `None`: each member combines for itself.
    pub result: Option<UserMem>,
    /// For combining.
    pub combine_buffer: &'a CombineBuffer,
    /// Time that contributions are put down, and how those of a member (`None`: the result) were.
    pub(in crate::coll) copy: CopyKind,
    pub stores: &'a dyn Fn(Option<u32>) -> StoreKind,
    /// Notes how long it takes as well.
    pub timed: &'a TimedCopy<'a>,
}

impl SlotView<'_> {
    /// Copies from the cell of `from`, or the result.
    pub fn copy_in(&self, from: Option<u32>, src: &Data, into: &Data) {
        let mut copy = || typed_buffer::copy(src, into);
        match from == Some(self.me) || into.len < limit::SLOT_STORES_FROM {
            true => copy(),
            false => (self.timed)((self.stores)(from), into.len, &mut copy),
        }
    }
}

/// A member's own room for two contributions, made at first use: shared memory is only copied.
#[derive(Default)]
pub struct CombineBuffer(Mutex<Option<Scratch>>);

impl CombineBuffer {
    /// Calls `f` with `len` bytes, always as many, unless there is no memory: without a few
    /// kilobytes nothing goes on in this process.
    fn with(&self, len: u64, f: impl FnOnce(UserMem)) {
        let mut scratch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.is_none() {
            *scratch = Scratch::new(len as usize);
        }
        if let Some(scratch) = &*scratch {
            f(scratch.mem());
        }
    }
}

impl ShmOp<'_> {
    /// Converts the operation into the form that outlives the call.
    pub fn keep(self) -> ShmOp<'static> {
        match self {
            ShmOp::CompareOnly => ShmOp::CompareOnly,
            ShmOp::Barrier => ShmOp::Barrier,
            ShmOp::Bcast(root, part) => ShmOp::Bcast(root, part.keep()),
            ShmOp::Reduce(combined, to) => ShmOp::Reduce(combined.keep(), to),
            ShmOp::Scan(combined, own) => ShmOp::Scan(combined.keep(), own),
            ShmOp::Allgather(send, filled) => ShmOp::Allgather(
                send.map(StoredElements::keep),
                match filled {
                    GatherBuffer::Even(part) => GatherBuffer::Even(part.keep()),
                    GatherBuffer::Uneven(ragged) => GatherBuffer::Uneven(ragged.keep()),
                },
            ),
            ShmOp::Alltoall(send, recv) => {
                ShmOp::Alltoall(send.map(StoredElements::keep), recv.keep())
            }
            ShmOp::Gather(root, mine, all) => ShmOp::Gather(
                root,
                mine.map(StoredElements::keep),
                all.map(StoredElements::keep),
            ),
            ShmOp::Scatter(root, mine, all) => ShmOp::Scatter(
                root,
                mine.map(StoredElements::keep),
                all.map(StoredElements::keep),
            ),
            ShmOp::Exchange(exchange) => ShmOp::Exchange(exchange),
        }
    }

    /// Returns whether slots with wide cells of this length have room for the operation.
    pub fn fits(&self, members: u32, wide_len: usize) -> bool {
        let wide = wide_len.max(CELL_BYTES) as u64;
        let room = wide
            .min(limit::SLOT_BYTES_MAX)
            .min(limit::SLOT_BYTES_ALL / u64::from(members.max(1)));
        match self {
            ShmOp::Exchange(exchange) => exchange.fits(members, wide_len),
            // Each reads only what it gets.
            ShmOp::Alltoall(_, recv) => {
                recv.bytes() <= limit::SLOT_BYTES_MAX && self.cell_bytes(members) <= wide
            }
            // Nobody else can combine these while their ranks compute, and at a gate one of them
            // would do it for all.
            other if other.runs_user_code() => {
                other.cell_bytes(members) <= limit::SLOT_SHORT.min(room)
            }
            other => other.cell_bytes(members) <= room,
        }
    }

    /// Bytes of a cell that all of `members` must have room for; the same on all of them.
    pub fn cell_bytes(&self, members: u32) -> u64 {
        let blocks = |mine: &Option<StoredElements<'_>>, all: &Option<StoredElements<'_>>| {
            let block = mine.as_ref().or(all.as_ref());
            block.map_or(0, StoredElements::bytes)
        };
        match self {
            ShmOp::CompareOnly | ShmOp::Barrier | ShmOp::Exchange(_) => 0,
            ShmOp::Bcast(_, part) | ShmOp::Allgather(_, GatherBuffer::Even(part)) => part.bytes(),
            ShmOp::Allgather(_, GatherBuffer::Uneven(ragged)) => ragged.longest,
            ShmOp::Reduce(combined, _) | ShmOp::Scan(combined, _) => combined.len(),
            // Its own block a member gives to itself.
            ShmOp::Alltoall(_, recv) => recv
                .bytes()
                .saturating_mul(members.saturating_sub(1).into()),
            ShmOp::Gather(_, mine, all) => blocks(mine, all),
            ShmOp::Scatter(_, mine, all) => blocks(mine, all).saturating_mul(members.into()),
        }
    }

    /// Returns after how many calls the cells that the operation needs are reused. All members get
    /// equal results.
    pub fn slot_distance(&self, members: u32) -> u32 {
        // How long the blocks of parcels are not all know.
        let is_wide =
            matches!(self, ShmOp::Exchange(_)) || self.cell_bytes(members) > CELL_BYTES as u64;
        if is_wide { WIDE_SETS } else { ROUNDS }
    }

    /// Returns whether this member puts down nothing in wide cells, whatever others do.
    pub fn uses_small_cells(&self, members: u32) -> bool {
        match self {
            ShmOp::Exchange(exchange) => exchange.uses_small_cells(),
            other => other.slot_distance(members) == ROUNDS,
        }
    }

    /// Returns whether what is left of it for a member that computes is worth hands: all members
    /// say the same, but where only some know how long blocks are.
    pub fn wants_async_progress(&self, members: u32) -> bool {
        match self {
            ShmOp::Exchange(exchange) => exchange.wants_async_progress(),
            other => other.cell_bytes(members) > limit::SLOT_SHORT,
        }
    }

    /// Bytes that this member puts down, if they are worth choosing how.
    pub fn bytes_put(&self, me: u32, members: u32) -> Option<u64> {
        let len = match (self, self.dependency()) {
            (ShmOp::Exchange(exchange), _) => exchange.bytes_given(me),
            (_, Dependency::AllOnOne(root)) if root != me => 0,
            _ => self.cell_bytes(members),
        };
        (len >= limit::SLOT_STORES_FROM).then_some(len)
    }

    pub fn dependency(&self) -> Dependency {
        match *self {
            ShmOp::CompareOnly => Dependency::None,
            ShmOp::Barrier | ShmOp::Scan(..) | ShmOp::Allgather(..) | ShmOp::Alltoall(..) => {
                Dependency::AllOnAll
            }
            ShmOp::Reduce(_, ReduceTarget::All | ReduceTarget::Slice(..)) => Dependency::AllOnAll,
            ShmOp::Bcast(root, _) | ShmOp::Scatter(root, ..) => Dependency::AllOnOne(root),
            ShmOp::Reduce(_, ReduceTarget::One(root)) | ShmOp::Gather(root, ..) => {
                Dependency::OneOnAll(root)
            }
            ShmOp::Exchange(ref exchange) => exchange.dependency(),
        }
    }

    /// Returns the signature of the member's call. For an allgather it counts the length that the
    /// member really brings.
    pub fn signature(&self, signature: CallSignature, me: u32, members: u32) -> CallSignature {
        let ShmOp::Allgather(Some(send), GatherBuffer::Uneven(ragged)) = self else {
            return signature;
        };
        let blocks = ragged.blocks();
        let total = (0..members).map(|rank| match rank == me {
            true => send.bytes(),
            false => blocks.len(rank),
        });
        signature.bytes(total.fold(0, u64::saturating_add))
    }

    /// Returns whether it runs code of the program's.
    pub fn runs_user_code(&self) -> bool {
        match self {
            ShmOp::Reduce(combined, _) | ShmOp::Scan(combined, _) => combined.op.is_user(),
            _ => false,
        }
    }

    /// Puts down what the member brings.
    pub fn put(&self, view: &SlotView<'_>) {
        let (me, members) = (view.me, view.members);
        // What a mistaken program brings may be longer than what all said.
        let put = |data: &Data| {
            let cell = Data::contiguous((view.cell)(me), data.len.min(view.cell_len));
            typed_buffer::copy_by(view.copy, data, &cell);
        };
        match self {
            ShmOp::CompareOnly | ShmOp::Barrier => {}
            ShmOp::Exchange(exchange) => exchange.put(view),
            ShmOp::Bcast(root, part) if *root == me => put(&part.data()),
            ShmOp::Reduce(combined, _) | ShmOp::Scan(combined, _) => {
                combined.with(|r| {
                    typed_buffer::copy_by(view.copy, &r.whole(r.input), &r.whole((view.cell)(me)))
                });
            }
            ShmOp::Allgather(Some(send), _) => put(&send.data()),
            ShmOp::Allgather(None, filled) => put(&filled.blocks().one(me)),
            ShmOp::Alltoall(send, recv) => {
                let blocks = send.as_ref().unwrap_or(recv).blocks();
                let mut at = 0;
                for data in [blocks.run(0, me), blocks.run(me + 1, members - me - 1)] {
                    let place = (view.cell)(me).offset(at as isize);
                    let len = data.len.min(view.cell_len - at);
                    typed_buffer::copy_by(view.copy, &data, &Data::contiguous(place, len));
                    at += len;
                }
            }
            ShmOp::Gather(_, Some(mine), _) => put(&mine.data()),
            ShmOp::Scatter(root, _, Some(all)) if *root == me => put(&all.blocks().run(0, members)),
            ShmOp::Bcast(..) | ShmOp::Gather(..) | ShmOp::Scatter(..) => {}
        }
    }

    /// Copies the data that stays with the member. Called after arriving, while others may be on
    /// their way.
    pub fn keep_own(&self, view: &SlotView<'_>) {
        let me = view.me;
        match self {
            ShmOp::Allgather(Some(send), filled) => {
                typed_buffer::copy(&send.data(), &filled.blocks().one(me))
            }
            ShmOp::Alltoall(Some(send), recv) => {
                typed_buffer::copy(&send.blocks().one(me), &recv.blocks().one(me));
            }
            ShmOp::Exchange(exchange) => exchange.keep_own(view),
            _ => {}
        }
    }

    /// Combines for all, at the last to arrive.
    pub fn combine(&self, view: &SlotView<'_>) {
        if let (ShmOp::Reduce(combined, _), Some(result)) = (self, view.result) {
            combined.with(|r| {
                let operands = (0..view.members, None);
                combine(r, combined.len(), view, operands, |from, sum| {
                    typed_buffer::copy_by(
                        view.copy,
                        &r.some(sum, &from),
                        &r.some(r.at(result, &from), &from),
                    );
                });
            });
        }
    }

    /// Takes what the member came for; what it finds that it has no room for.
    pub fn take(&self, view: &SlotView<'_>) -> Option<LengthMismatch> {
        if let ShmOp::Exchange(exchange) = self {
            return exchange.take(view);
        }
        self.take_whole(view);
        None
    }

    fn take_whole(&self, view: &SlotView<'_>) {
        let me = view.me;
        let get = |from: u32, at: u64, into: &Data| {
            let cell = (view.cell)(from).offset(at as isize);
            view.copy_in(Some(from), &Data::contiguous(cell, into.len), into);
        };
        match self {
            ShmOp::CompareOnly | ShmOp::Barrier | ShmOp::Exchange(_) => {}
            ShmOp::Bcast(root, part) if *root != me => get(*root, 0, &part.data()),
            ShmOp::Reduce(_, ReduceTarget::One(root)) if *root != me => {}
            ShmOp::Reduce(combined, to) => combined.with(|r| {
                let wanted = match to {
                    ReduceTarget::Slice(first, count) => *first..first + count,
                    ReduceTarget::All | ReduceTarget::One(_) => 0..r.count,
                };
                // Those elements of a part of the sum that are wanted.
                let get_of = |part: Range<u64>, sum: UserMem, copy: &dyn Fn(&Data, &Data)| {
                    let both = part.start.max(wanted.start)..part.end.min(wanted.end);
                    if !both.is_empty() {
                        let here = both.start - wanted.start..both.end - wanted.start;
                        let there = both.start - part.start..both.end - part.start;
                        copy(
                            &r.some(r.at(sum, &there), &there),
                            &r.some(r.at(r.output, &here), &here),
                        );
                    }
                };
                let get = |part: Range<u64>, sum: UserMem| get_of(part, sum, &typed_buffer::copy);
                let direct = (!matches!(to, ReduceTarget::Slice(..))).then_some(r.output);
                match view.result {
                    Some(result) => get_of(0..r.count, result, &|from, into| {
                        view.copy_in(None, from, into)
                    }),
                    None => combine(r, combined.len(), view, (0..view.members, direct), get),
                }
            }),
            ShmOp::Scan(combined, own) => combined.with(|r| {
                let operands = match own {
                    ScanKind::Inclusive => 0..me + 1,
                    ScanKind::Exclusive => 0..me,
                };
                combine(
                    r,
                    combined.len(),
                    view,
                    (operands, Some(r.output)),
                    |from, sum| {
                        typed_buffer::copy(
                            &r.some(sum, &from),
                            &r.some(r.at(r.output, &from), &from),
                        );
                    },
                );
            }),
            ShmOp::Allgather(_, filled) => {
                let blocks = filled.blocks();
                for rank in (0..view.members).filter(|&rank| rank != me) {
                    get(rank, 0, &blocks.one(rank));
                }
            }
            ShmOp::Alltoall(_, recv) => {
                let blocks = recv.blocks();
                for rank in (0..view.members).filter(|&rank| rank != me) {
                    let place = if me < rank { me } else { me - 1 };
                    get(rank, recv.bytes() * u64::from(place), &blocks.one(rank));
                }
            }
            ShmOp::Gather(root, mine, Some(all)) if *root == me => {
                let blocks = all.blocks();
                for rank in (0..view.members).filter(|&rank| mine.is_some() || rank != me) {
                    get(rank, 0, &blocks.one(rank));
                }
            }
            ShmOp::Scatter(root, Some(mine), all) => match all {
                Some(all) if *root == me => typed_buffer::copy(&all.blocks().one(me), &mine.data()),
                _ => get(*root, mine.bytes() * u64::from(me), &mine.data()),
            },
            ShmOp::Bcast(..) | ShmOp::Gather(..) | ShmOp::Scatter(..) => {}
        }
    }
}

/// Combines what these members put down in the order of ranks, if there are any, each of `len`
/// bytes. It is copied out first: peers may write it at any time. `get` is given the sum part by
/// part, each with its elements, unless all of it lies at the second of `operands` already.
fn combine(
    r: &Reduction<'_>,
    len: u64,
    view: &SlotView<'_>,
    (mut members, direct): (Range<u32>, Option<UserMem>),
    get: impl Fn(Range<u64>, UserMem),
) {
    let size = r.shape().size();
    if len > CELL_BYTES as u64 && shm_large::is_plain(r) && size <= limit::COMBINE_BYTES as u64 {
        // A little at a time: operands and sum stay in a first-level cache.
        let operands = Operands {
            me: view.me,
            members,
            ends: (r.input, direct),
        };
        let bring = |member, at: u64, into: &Data| {
            let there = (view.cell)(member).offset(at as isize);
            view.copy_in(Some(member), &Data::contiguous(there, into.len), into);
        };
        return view
            .combine_buffer
            .with(2 * (view.room + ALIGN), |private| {
                let room = OperandRoom {
                    mem: private,
                    each: limit::COMBINE_BYTES
                        .min(view.room as usize / ALIGN as usize * ALIGN as usize),
                };
                operands.combine(r, r.count, room, bring, |at, some| {
                    if direct.is_none() {
                        let first = at as u64 / size;
                        get(first..first + some.len / size, some.mem);
                    }
                });
            });
    }
    view.combine_buffer
        .with(2 * (view.room + ALIGN), |private| {
            let (mut sum, mut next) = (
                private,
                private.offset(len.next_multiple_of(ALIGN) as isize),
            );
            let Some(first) = members.next() else { return };
            typed_buffer::copy(&r.whole((view.cell)(first)), &r.whole(sum));
            for member in members {
                typed_buffer::copy(&r.whole((view.cell)(member)), &r.whole(next));
                r.fold.fold(sum, next, r.count);
                (sum, next) = (next, sum);
            }
            get(0..r.count, sum);
        });
}
