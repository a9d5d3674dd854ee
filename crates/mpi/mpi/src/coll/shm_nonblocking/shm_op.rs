//! What a nonblocking collective has to do in a round: what a member puts down, who waits for whom,
//! and what it takes.
//!
//! Made by the calls ([`Planned::shm_op`](crate::coll::sealed::Planned::errand)) from the program's
//! arguments, kept only where the call returns before it is over. Pure but for copying; knows no
//! communicator.

use super::super::algo::Reduction;
use super::super::algo::scan::Own;
use super::super::autotune::Stroke;
use super::super::blocks::{Blocks, Numbers};
use super::super::buffers::{Elements, Uneven};
use super::super::call_signature::Statement;
use super::super::reductions::OpOn;
use super::super::shm_large::{self, Operands, Room};
use super::super::typed_buffer::{self, Typed};
use super::shm_op_v::{Misfit, Parcels};
use crate::datatype::Datatype;
use crate::limits::coll as limit;
use crate::op::Op;
use garonne_sync::copy::StoreKind;
use garonne_sync::nbc_slots::{ROUNDS, WIDE_SETS};
use garonne_sync::shm_barrier::CELL_BYTES;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Elements as a call describes them, in a form that may be kept.
#[derive(Clone)]
pub struct Part<'a> {
    mem: UserMem,
    count: u64,
    datatype: Cow<'a, Datatype>,
}

impl<'a> Part<'a> {
    pub fn of(elements: &Elements<'a>) -> Self {
        Self {
            mem: elements.mem,
            count: elements.count,
            datatype: Cow::Borrowed(elements.datatype),
        }
    }

    fn keep(self) -> Part<'static> {
        Part {
            mem: self.mem,
            count: self.count,
            datatype: Cow::Owned(self.datatype.into_owned()),
        }
    }

    fn typed(&self) -> Typed<'_> {
        Typed::new(self.mem, &*self.datatype)
    }

    fn data(&self) -> Data {
        self.typed().data(0, self.count)
    }

    /// Of data, without gaps.
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

/// A block of its own length and place for every rank, likewise.
#[derive(Clone)]
pub struct Ragged<'a> {
    mem: UserMem,
    counts: Cow<'a, [i64]>,
    displs: Cow<'a, [i64]>,
    datatype: Cow<'a, Datatype>,
    /// Bytes of the longest.
    longest: u64,
}

impl<'a> Ragged<'a> {
    pub fn of(uneven: &Uneven<'a>, ranks: u32) -> Self {
        let numbers = |numbers: &Numbers<'a>| match *numbers {
            Numbers::Wide(values) => Cow::Borrowed(values),
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

    fn keep(self) -> Ragged<'static> {
        Ragged {
            mem: self.mem,
            counts: Cow::Owned(self.counts.into_owned()),
            displs: Cow::Owned(self.displs.into_owned()),
            datatype: Cow::Owned(self.datatype.into_owned()),
            longest: self.longest,
        }
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks::Uneven {
            typed: Typed::new(self.mem, &*self.datatype),
            counts: Numbers::Wide(&self.counts),
            displs: Numbers::Wide(&self.displs),
        }
    }
}

/// Blocks of all ranks that an allgather fills.
#[derive(Clone)]
pub enum Filled<'a> {
    Even(Part<'a>),
    Ragged(Ragged<'a>),
}

impl Filled<'_> {
    pub(in crate::coll) fn blocks(&self) -> Blocks<'_> {
        match self {
            Filled::Even(part) => part.blocks(),
            Filled::Ragged(ragged) => ragged.blocks(),
        }
    }
}

/// An operation and what it works on.
#[derive(Clone)]
pub struct Combined<'a> {
    pub op: Cow<'a, Op>,
    pub datatype: Cow<'a, Datatype>,
    /// Contribution and, where there is one, result.
    pub input: UserMem,
    pub output: UserMem,
    /// Elements of a contribution.
    pub count: u64,
}

impl Combined<'_> {
    fn keep(self) -> Combined<'static> {
        Combined {
            op: Cow::Owned(self.op.into_owned()),
            datatype: Cow::Owned(self.datatype.into_owned()),
            ..self
        }
    }

    fn with<T>(&self, f: impl FnOnce(&Reduction<'_>) -> T) -> T {
        let fold = OpOn::new(&self.op, &self.datatype);
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

/// Who gets what was combined.
#[derive(Clone, Copy)]
pub enum To {
    All,
    One(u32),
    /// Each a slice: this member's begins at this element, and has so many.
    Slice(u64, u64),
}

/// See the module's paragraph.
#[derive(Clone)]
pub enum Errand<'a> {
    /// The data goes by messages.
    Show,
    Barrier,
    Bcast(u32, Part<'a>),
    Reduce(Combined<'a>, To),
    Scan(Combined<'a>, Own),
    /// Without a contribution it lies in the result already.
    Allgather(Option<Part<'a>>, Filled<'a>),
    Alltoall(Option<Part<'a>>, Part<'a>),
    /// Own block (the root may have none) and, at the root, those of all.
    Gather(u32, Option<Part<'a>>, Option<Part<'a>>),
    Scatter(u32, Option<Part<'a>>, Option<Part<'a>>),
    /// Uneven blocks.
    Parcels(Parcels),
}

/// Which way data goes in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// All wait for all.
    Among,
    /// All wait for this one, which waits for nobody.
    From(u32),
    /// This one waits for all, who wait for nobody.
    To(u32),
    /// Nobody waits for anybody.
    Alone,
}

/// Carries out what reads so many bytes that were put down so.
type Timed<'a> = dyn Fn(StoreKind, u64, &mut dyn FnMut()) + 'a;

/// A round as one of its members sees it.
pub struct View<'a> {
    pub me: u32,
    pub members: u32,
    /// Bytes that a member can put down.
    pub room: u64,
    /// What a member put down, and how long the place for it is.
    pub cell: &'a dyn Fn(u32) -> UserMem,
    pub cell_len: u64,
    /// Its wide cell, where it needs more than its small one, and the length of that; 0: there is
    /// none.
    pub wide: &'a dyn Fn(u32) -> UserMem,
    pub wide_len: usize,
    /// What the last combined; `None`: each combines for itself.
    pub result: Option<UserMem>,
    /// For combining.
    pub private: &'a Private,
    /// How long contributions are put down, and how those of a member (`None`: the result) were.
    pub(in crate::coll) stroke: Stroke,
    pub stores: &'a dyn Fn(Option<u32>) -> StoreKind,
    /// Notes how long it takes as well.
    pub timed: &'a Timed<'a>,
}

impl View<'_> {
    /// Copies from the cell of `from`, or the result.
    pub fn bring(&self, from: Option<u32>, src: &Data, into: &Data) {
        let mut copy = || typed_buffer::copy(src, into);
        match from == Some(self.me) || into.len < limit::ROUND_STORES_FROM {
            true => copy(),
            false => (self.timed)((self.stores)(from), into.len, &mut copy),
        }
    }
}

/// A member's own room for two contributions, made at first use: shared memory is only copied.
#[derive(Default)]
pub struct Private(Mutex<Option<Scratch>>);

impl Private {
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

impl Errand<'_> {
    /// As it is kept after the call has returned.
    pub fn keep(self) -> Errand<'static> {
        match self {
            Errand::Show => Errand::Show,
            Errand::Barrier => Errand::Barrier,
            Errand::Bcast(root, part) => Errand::Bcast(root, part.keep()),
            Errand::Reduce(combined, to) => Errand::Reduce(combined.keep(), to),
            Errand::Scan(combined, own) => Errand::Scan(combined.keep(), own),
            Errand::Allgather(send, filled) => Errand::Allgather(
                send.map(Part::keep),
                match filled {
                    Filled::Even(part) => Filled::Even(part.keep()),
                    Filled::Ragged(ragged) => Filled::Ragged(ragged.keep()),
                },
            ),
            Errand::Alltoall(send, recv) => Errand::Alltoall(send.map(Part::keep), recv.keep()),
            Errand::Gather(root, mine, all) => {
                Errand::Gather(root, mine.map(Part::keep), all.map(Part::keep))
            }
            Errand::Scatter(root, mine, all) => {
                Errand::Scatter(root, mine.map(Part::keep), all.map(Part::keep))
            }
            Errand::Parcels(parcels) => Errand::Parcels(parcels),
        }
    }

    /// Whether the rounds with these wide cells have room for it.
    pub fn fits(&self, members: u32, wide_len: usize) -> bool {
        let wide = wide_len.max(CELL_BYTES) as u64;
        let room = wide
            .min(limit::ROUND_MAX)
            .min(limit::ROUND_ALL / u64::from(members.max(1)));
        match self {
            Errand::Parcels(parcels) => parcels.fit(members, wide_len),
            // Each reads only what it gets.
            Errand::Alltoall(_, recv) => {
                recv.bytes() <= limit::ROUND_MAX && self.len(members) <= wide
            }
            // Nobody else can combine these while their ranks compute, and at a gate one of them
            // would do it for all.
            other if other.runs_user_code() => other.len(members) <= limit::ROUND_SHORT.min(room),
            other => other.len(members) <= room,
        }
    }

    /// Bytes of a cell that all of `members` must have room for; the same on all of them.
    pub fn len(&self, members: u32) -> u64 {
        let blocks = |mine: &Option<Part<'_>>, all: &Option<Part<'_>>| {
            let block = mine.as_ref().or(all.as_ref());
            block.map_or(0, Part::bytes)
        };
        match self {
            Errand::Show | Errand::Barrier | Errand::Parcels(_) => 0,
            Errand::Bcast(_, part) | Errand::Allgather(_, Filled::Even(part)) => part.bytes(),
            Errand::Allgather(_, Filled::Ragged(ragged)) => ragged.longest,
            Errand::Reduce(combined, _) | Errand::Scan(combined, _) => combined.len(),
            // Its own block a member gives to itself.
            Errand::Alltoall(_, recv) => recv
                .bytes()
                .saturating_mul(members.saturating_sub(1).into()),
            Errand::Gather(_, mine, all) => blocks(mine, all),
            Errand::Scatter(_, mine, all) => blocks(mine, all).saturating_mul(members.into()),
        }
    }

    /// After how many numbers the cells that it needs in a communicator's rounds come back; the
    /// same for all members.
    pub fn comes_after(&self, members: u32) -> u32 {
        // How long the blocks of parcels are not all know.
        let is_wide = matches!(self, Errand::Parcels(_)) || self.len(members) > CELL_BYTES as u64;
        if is_wide { WIDE_SETS } else { ROUNDS }
    }

    /// Whether this member puts down nothing in wide cells, whatever others do.
    pub fn is_small(&self, members: u32) -> bool {
        match self {
            Errand::Parcels(parcels) => parcels.are_small(),
            other => other.comes_after(members) == ROUNDS,
        }
    }

    /// Whether what is left of it for a member that computes is worth hands: all members say the
    /// same, but where only some know how long blocks are.
    pub fn needs_hands(&self, members: u32) -> bool {
        match self {
            Errand::Parcels(parcels) => parcels.is_long(),
            other => other.len(members) > limit::ROUND_SHORT,
        }
    }

    /// Bytes that this member puts down, if they are worth choosing how.
    pub fn puts(&self, me: u32, members: u32) -> Option<u64> {
        let len = match (self, self.course()) {
            (Errand::Parcels(parcels), _) => parcels.gives(me),
            (_, Course::From(root)) if root != me => 0,
            _ => self.len(members),
        };
        (len >= limit::ROUND_STORES_FROM).then_some(len)
    }

    pub fn course(&self) -> Course {
        match *self {
            Errand::Show => Course::Alone,
            Errand::Barrier | Errand::Scan(..) | Errand::Allgather(..) | Errand::Alltoall(..) => {
                Course::Among
            }
            Errand::Reduce(_, To::All | To::Slice(..)) => Course::Among,
            Errand::Bcast(root, _) | Errand::Scatter(root, ..) => Course::From(root),
            Errand::Reduce(_, To::One(root)) | Errand::Gather(root, ..) => Course::To(root),
            Errand::Parcels(ref parcels) => parcels.course(),
        }
    }

    /// What the member says: the call's own statement, unless it brings another length to an
    /// allgather than its counts say.
    pub fn said(&self, said: Statement, me: u32, members: u32) -> Statement {
        let Errand::Allgather(Some(send), Filled::Ragged(ragged)) = self else {
            return said;
        };
        let blocks = ragged.blocks();
        let total = (0..members).map(|rank| match rank == me {
            true => send.bytes(),
            false => blocks.len(rank),
        });
        said.bytes(total.fold(0, u64::saturating_add))
    }

    /// Whether it runs code of the program's.
    pub fn runs_user_code(&self) -> bool {
        match self {
            Errand::Reduce(combined, _) | Errand::Scan(combined, _) => combined.op.is_user(),
            _ => false,
        }
    }

    /// Puts down what the member brings.
    pub fn put(&self, view: &View<'_>) {
        let (me, members) = (view.me, view.members);
        // What a mistaken program brings may be longer than what all said.
        let put = |data: &Data| {
            let cell = Data::contiguous((view.cell)(me), data.len.min(view.cell_len));
            typed_buffer::copy_by(view.stroke, data, &cell);
        };
        match self {
            Errand::Show | Errand::Barrier => {}
            Errand::Parcels(parcels) => parcels.put(view),
            Errand::Bcast(root, part) if *root == me => put(&part.data()),
            Errand::Reduce(combined, _) | Errand::Scan(combined, _) => {
                combined.with(|r| {
                    typed_buffer::copy_by(view.stroke, &r.whole(r.input), &r.whole((view.cell)(me)))
                });
            }
            Errand::Allgather(Some(send), _) => put(&send.data()),
            Errand::Allgather(None, filled) => put(&filled.blocks().one(me)),
            Errand::Alltoall(send, recv) => {
                let blocks = send.as_ref().unwrap_or(recv).blocks();
                let mut at = 0;
                for data in [blocks.run(0, me), blocks.run(me + 1, members - me - 1)] {
                    let place = (view.cell)(me).offset(at as isize);
                    let len = data.len.min(view.cell_len - at);
                    typed_buffer::copy_by(view.stroke, &data, &Data::contiguous(place, len));
                    at += len;
                }
            }
            Errand::Gather(_, Some(mine), _) => put(&mine.data()),
            Errand::Scatter(root, _, Some(all)) if *root == me => {
                put(&all.blocks().run(0, members))
            }
            Errand::Bcast(..) | Errand::Gather(..) | Errand::Scatter(..) => {}
        }
    }

    /// What concerns nobody else: done when the member has come, while others may be on their way.
    pub fn keep_own(&self, view: &View<'_>) {
        let me = view.me;
        match self {
            Errand::Allgather(Some(send), filled) => {
                typed_buffer::copy(&send.data(), &filled.blocks().one(me))
            }
            Errand::Alltoall(Some(send), recv) => {
                typed_buffer::copy(&send.blocks().one(me), &recv.blocks().one(me));
            }
            Errand::Parcels(parcels) => parcels.keep_own(view),
            _ => {}
        }
    }

    /// What the last to arrive does for all.
    pub fn combine(&self, view: &View<'_>) {
        if let (Errand::Reduce(combined, _), Some(result)) = (self, view.result) {
            combined.with(|r| {
                let operands = (0..view.members, None);
                combine(r, combined.len(), view, operands, |from, sum| {
                    typed_buffer::copy_by(
                        view.stroke,
                        &r.some(sum, &from),
                        &r.some(r.at(result, &from), &from),
                    );
                });
            });
        }
    }

    /// Takes what the member came for; what it finds that it has no room for.
    pub fn take(&self, view: &View<'_>) -> Option<Misfit> {
        if let Errand::Parcels(parcels) = self {
            return parcels.take(view);
        }
        self.take_whole(view);
        None
    }

    fn take_whole(&self, view: &View<'_>) {
        let me = view.me;
        let get = |from: u32, at: u64, into: &Data| {
            let cell = (view.cell)(from).offset(at as isize);
            view.bring(Some(from), &Data::contiguous(cell, into.len), into);
        };
        match self {
            Errand::Show | Errand::Barrier | Errand::Parcels(_) => {}
            Errand::Bcast(root, part) if *root != me => get(*root, 0, &part.data()),
            Errand::Reduce(_, To::One(root)) if *root != me => {}
            Errand::Reduce(combined, to) => combined.with(|r| {
                let wanted = match to {
                    To::Slice(first, count) => *first..first + count,
                    To::All | To::One(_) => 0..r.count,
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
                let direct = (!matches!(to, To::Slice(..))).then_some(r.output);
                match view.result {
                    Some(result) => get_of(0..r.count, result, &|from, into| {
                        view.bring(None, from, into)
                    }),
                    None => combine(r, combined.len(), view, (0..view.members, direct), get),
                }
            }),
            Errand::Scan(combined, own) => combined.with(|r| {
                let operands = match own {
                    Own::Included => 0..me + 1,
                    Own::Excluded => 0..me,
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
            Errand::Allgather(_, filled) => {
                let blocks = filled.blocks();
                for rank in (0..view.members).filter(|&rank| rank != me) {
                    get(rank, 0, &blocks.one(rank));
                }
            }
            Errand::Alltoall(_, recv) => {
                let blocks = recv.blocks();
                for rank in (0..view.members).filter(|&rank| rank != me) {
                    let place = if me < rank { me } else { me - 1 };
                    get(rank, recv.bytes() * u64::from(place), &blocks.one(rank));
                }
            }
            Errand::Gather(root, mine, Some(all)) if *root == me => {
                let blocks = all.blocks();
                for rank in (0..view.members).filter(|&rank| mine.is_some() || rank != me) {
                    get(rank, 0, &blocks.one(rank));
                }
            }
            Errand::Scatter(root, Some(mine), all) => match all {
                Some(all) if *root == me => typed_buffer::copy(&all.blocks().one(me), &mine.data()),
                _ => get(*root, mine.bytes() * u64::from(me), &mine.data()),
            },
            Errand::Bcast(..) | Errand::Gather(..) | Errand::Scatter(..) => {}
        }
    }
}

/// Combines what these members put down in the order of ranks, if there are any, each of `len`
/// bytes. It is copied out first: peers may write it at any time. `get` is given the sum part by
/// part, each with its elements, unless all of it lies at the second of `operands` already.
fn combine(
    r: &Reduction<'_>,
    len: u64,
    view: &View<'_>,
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
            view.bring(Some(member), &Data::contiguous(there, into.len), into);
        };
        return view.private.with(2 * (view.room + ALIGN), |private| {
            let room = Room {
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
    view.private.with(2 * (view.room + ALIGN), |private| {
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
