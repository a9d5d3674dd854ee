//! Calls that combine what lanes bring.

use super::{LINE, LaneTransfer, pieces};
use crate::error::Result;
use crate::limits::coll as limit;
use garonne_coll::algo::scan::ScanKind;
use garonne_coll::algo::{self, Reduction, part};
use garonne_coll::temp_buffer::TempBuffer;
use garonne_coll::typed_buffer;
use garonne_sync::user::{Data, UserMem};
use std::ops::Range;

impl LaneTransfer<'_> {
    /// Two members: each puts everything down and combines all of it where it wants the result.
    pub(super) fn exchange(&self, r: &Reduction<'_>, root: Option<u32>) -> Result<()> {
        let (me, size) = (self.attachment.me, r.shape().size());
        let takes = root.is_none_or(|root| root == me);
        let piece = self.piece(self.lane_len(), r.count * size);
        let most = piece.max(self.lane_len().min(limit::COMBINE_PIECE_MIN)) / size;
        for (at, count) in pieces(r.count, most) {
            let epoch = self.next_epoch();
            let here = r.input.offset((at * size) as isize);
            if root != Some(me) {
                let there = self.in_lane(me, epoch, 0, count * size);
                self.put(&Data::contiguous(here, count * size), &there);
            }
            self.barrier(epoch)?;
            if takes {
                let theirs = self.in_lane(1 - me, epoch, 0, count * size);
                let result = r.output.offset((at * size) as isize);
                self.combine_two(r, count, (here, result), &|at, into| {
                    typed_buffer::copy(&typed_buffer::slice(&theirs, at, into.len), into);
                });
            }
        }
        Ok(())
    }

    /// Combines `count` elements at `here` with those of the other of two members, a little at a
    /// time. Predefined operations commute, so what `bring` puts somewhere, given by its offset in
    /// bytes, is combined with the own operand where that lies.
    fn combine_two(
        &self,
        r: &Reduction<'_>,
        count: u64,
        (here, result): (UserMem, UserMem),
        bring: &dyn Fn(u64, &Data),
    ) {
        let size = r.shape().size();
        for (from, len) in pieces(count, limit::COMBINE_BYTES as u64 / size) {
            let (at, some) = (from * size, |mem| Data::contiguous(mem, len * size));
            let result = result.offset(at as isize);
            let (brought, left) = match r.in_place() {
                true => (
                    self.attachment.combine_room.mem(),
                    self.attachment.combine_room.mem(),
                ),
                false => (result, here.offset(at as isize)),
            };
            bring(at, &some(brought));
            r.fold.fold(left, result, len);
        }
    }

    /// In meeting k contributions to piece k are put down, each member combines its slice of piece
    /// k - 1, and afterwards takes the other slices of that.
    pub(super) fn reduce(&self, r: &Reduction<'_>, root: Option<u32>) -> Result<()> {
        let (me, n) = (self.attachment.me, self.members());
        let takes = root.is_none_or(|root| root == me);
        let slots = slots(self.attachment.segment.lane_len(), n, r.shape().size());
        let all = pieces(r.count, slots.each * u64::from(n)).map(Some);
        let mut before = None;
        for piece in all.chain([None]) {
            let epoch = self.next_epoch();
            if let Some(piece) = piece {
                self.put_slices(r, &slots, piece, epoch);
            }
            if let Some(last) = before {
                self.combine_slice(r, &slots, last, (epoch, root));
            }
            self.barrier(epoch)?;
            if let (Some((at, count)), true) = (before, takes) {
                for member in self.attachment.others() {
                    let range = part(count, n, member);
                    let there = self.results(&slots, member, epoch);
                    let here = slots.at(r.output, at + range.start);
                    self.take(&slots.data(there, &range), &slots.data(here, &range));
                }
            }
            before = piece;
        }
        Ok(())
    }

    fn results(&self, slots: &LaneLayout, member: u32, epoch: u32) -> UserMem {
        let there = self.attachment.segment.lane(member, epoch);
        there.offset(slots.results as isize)
    }

    /// Puts down what the others combine of a piece.
    fn put_slices(
        &self,
        r: &Reduction<'_>,
        slots: &LaneLayout,
        (at, count): (u64, u64),
        epoch: u32,
    ) {
        let lane = self.attachment.segment.lane(self.attachment.me, epoch);
        for to in self.attachment.others() {
            let range = part(count, self.members(), to);
            let (here, there) = (
                slots.at(r.input, at + range.start),
                slots.at(lane, range.start),
            );
            self.put(&slots.data(here, &range), &slots.data(there, &range));
        }
    }

    /// Combines the own slice of the piece that was put down in the last meeting, and puts it down
    /// for those who want it.
    fn combine_slice(
        &self,
        r: &Reduction<'_>,
        slots: &LaneLayout,
        (at, count): (u64, u64),
        (epoch, root): (u32, Option<u32>),
    ) {
        let me = self.attachment.me;
        let slice = part(count, self.members(), me);
        let published = self.results(slots, me, epoch);
        let here = slots.at(r.input, at + slice.start);
        let lane = |member| {
            let lane = self.attachment.segment.lane(member, epoch.wrapping_sub(1));
            slots.at(lane, slice.start)
        };
        let takes = root.is_none_or(|root| root == me);
        let result = takes.then(|| slots.at(r.output, at + slice.start));
        let all = 0..self.members();
        self.combine(
            r,
            all,
            slice.end - slice.start,
            (here, result),
            &lane,
            |from, some| {
                if root != Some(me) {
                    let there = Data::contiguous(published.offset(from), some.len);
                    self.put(some, &there);
                }
            },
        );
    }

    /// Each member puts down what the others combine of their slices of a piece, and combines its
    /// own.
    pub(super) fn reduce_scatter(
        &self,
        r: &Reduction<'_>,
        slice: &dyn Fn(u32) -> Range<u64>,
    ) -> Result<()> {
        let (me, n) = (self.attachment.me, self.members());
        let slots = slots(self.attachment.segment.lane_len(), n, r.shape().size());
        let own = slice(me);
        // In place, the result goes where contributions of later pieces still are.
        let aside = match r.in_place() {
            true => Some(TempBuffer::new(algo::len(&own) * slots.size)?),
            false => None,
        };
        let output = aside.as_ref().map_or(r.output, TempBuffer::mem);
        let longest = (0..n)
            .map(|member| algo::len(&slice(member)))
            .max()
            .unwrap_or(0);
        for (at, most) in pieces(longest, slots.each) {
            let epoch = self.next_epoch();
            let count = |range: &Range<u64>| algo::len(range).saturating_sub(at).min(most);
            let slot = |member: u32, of: u32| {
                slots.at(
                    self.attachment.segment.lane(member, epoch),
                    u64::from(of) * slots.each,
                )
            };
            for to in self.attachment.others() {
                let range = slice(to);
                let here = slots.at(r.input, range.start + at);
                let data = |mem| Data::contiguous(mem, count(&range) * slots.size);
                self.put(&data(here), &data(slot(me, to)));
            }
            self.barrier(epoch)?;
            let here = slots.at(r.input, own.start + at);
            let result = Some(slots.at(output, at));
            let lane = |member| slot(member, me);
            self.combine(r, 0..n, count(&own), (here, result), &lane, |_, _| {});
        }
        if let Some(aside) = &aside {
            let data = |mem| Data::contiguous(mem, algo::len(&own) * slots.size);
            typed_buffer::copy(&data(aside.mem()), &data(r.output));
        }
        Ok(())
    }

    /// Each member puts everything down, and combines what those before it put.
    pub(super) fn scan(&self, r: &Reduction<'_>, own: ScanKind) -> Result<()> {
        let (me, size) = (self.attachment.me, r.shape().size());
        let operands = match own {
            ScanKind::Inclusive => 0..me + 1,
            ScanKind::Exclusive => 0..me,
        };
        for (at, count) in pieces(r.count, self.lane_len() / size) {
            let epoch = self.next_epoch();
            let at = (at * size) as isize;
            let here = r.input.offset(at);
            let data = |mem| Data::contiguous(mem, count * size);
            self.put(&data(here), &data(self.attachment.segment.lane(me, epoch)));
            self.barrier(epoch)?;
            let lane = |member| self.attachment.segment.lane(member, epoch);
            let result = Some(r.output.offset(at));
            self.combine(r, operands.clone(), count, (here, result), &lane, |_, _| {});
        }
        Ok(())
    }

    /// Combines `count` elements of these members in the order of ranks: the own ones at `here`,
    /// the others' in lanes, the result where it is wanted if it is. What is in lanes is copied out
    /// first: peers may write there at any time. `then` gets every part of the result with its
    /// offset.
    fn combine(
        &self,
        r: &Reduction<'_>,
        members: Range<u32>,
        count: u64,
        ends: (UserMem, Option<UserMem>),
        lane: &dyn Fn(u32) -> UserMem,
        then: impl Fn(isize, &Data),
    ) {
        let bring = |member: u32, at: u64, into: &Data| {
            typed_buffer::copy(
                &Data::contiguous(lane(member).offset(at as isize), into.len),
                into,
            );
        };
        let room = OperandRoom {
            mem: self.attachment.combine_room.mem(),
            each: limit::COMBINE_BYTES,
        };
        let operands = Operands {
            me: self.attachment.me,
            members,
            ends,
        };
        operands.combine(r, count, room, bring, then);
    }
}

/// Room for two operands that are combined.
pub(in crate::coll) struct OperandRoom {
    pub mem: UserMem,
    /// Bytes of each.
    pub each: usize,
}

/// The operands of a reduction, in the order of ranks.
pub(in crate::coll) struct Operands {
    pub me: u32,
    pub members: Range<u32>,
    /// Place where the own operand is, and where the result goes if it is wanted.
    pub ends: (UserMem, Option<UserMem>),
}

impl Operands {
    /// Combines `count` elements, a little at a time. `bring` puts part of another's operand
    /// somewhere, given by its offset in bytes; `then` gets every part of the result.
    pub(in crate::coll) fn combine(
        &self,
        r: &Reduction<'_>,
        count: u64,
        room: OperandRoom,
        mut bring: impl FnMut(u32, u64, &Data),
        then: impl Fn(isize, &Data),
    ) {
        let (me, size, (here, result)) = (self.me, r.shape().size(), self.ends);
        let private = |index: u32| room.mem.offset((index % 2) as isize * room.each as isize);
        for (from, len) in pieces(count, room.each as u64 / size) {
            let at = (from * size) as isize;
            let some = |mem: UserMem| Data::contiguous(mem, len * size);
            let mut sum: Option<UserMem> = None;
            for member in self.members.clone() {
                let into = match result {
                    Some(result) if member + 1 == self.members.end => result.offset(at),
                    // The own operand is read where it is, unless the result comes to lie there.
                    _ if sum.is_none() && member == me && result != Some(here) => here.offset(at),
                    _ => private(member),
                };
                match member == me {
                    true => typed_buffer::copy(&some(here.offset(at)), &some(into)),
                    false => bring(member, from * size, &some(into)),
                }
                if let Some(sum) = sum {
                    r.fold.fold(sum, into, len);
                }
                sum = Some(into);
            }
            if let Some(sum) = sum {
                then(at, &some(sum));
            }
        }
    }
}

/// Way in which a lane is divided for a reduction: contributions first, then the results of the own
/// slice.
pub(super) struct LaneLayout {
    /// Elements of a slice.
    pub(super) each: u64,
    /// Bytes of an element.
    size: u64,
    /// Place where results begin.
    results: u64,
}

impl LaneLayout {
    fn at(&self, mem: UserMem, element: u64) -> UserMem {
        mem.offset((element * self.size) as isize)
    }

    fn data(&self, mem: UserMem, range: &Range<u64>) -> Data {
        Data::contiguous(mem, (range.end - range.start) * self.size)
    }
}

pub(super) fn slots(lane: usize, members: u32, size: u64) -> LaneLayout {
    let slice = lane / (members as usize + 1) / LINE * LINE;
    let fits = size > 0 && size <= limit::COMBINE_BYTES as u64;
    LaneLayout {
        each: if fits { slice as u64 / size } else { 0 },
        size,
        results: slice as u64 * u64::from(members),
    }
}
