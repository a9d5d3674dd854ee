//! Long reductions whose operands are read from where they lie: each member combines one slice, and
//! copies the others' slices when all are done.
//!
//! In the first epoch all expose operands and results. Then every member reads the operands of its
//! slice and combines them where it wants the result. In the second epoch members say so, and read
//! the other slices of the result. In the third epoch they say that they have. In place, a member's
//! result lies in a slice of which nobody else reads operands.

use super::direct_read::{
    DirectTransfer, ExposedRegion, OfferRecord, ReadOffer, ReadRequest, SHOWN_BYTES,
};
use super::lane_reduce::{OperandRoom, Operands};
use super::pieces;
use crate::error::{Class, Result};
use crate::limits::coll as limit;
use garonne_coll::algo::{Reduction, part};
use garonne_sync::user::{Data, UserMem};
use std::sync::atomic::Ordering;

/// The memory that one member offers: its operands and its results.
struct MemberRegions {
    operands: OfferRecord,
    results: OfferRecord,
}

impl DirectTransfer<'_> {
    /// Combines to all. `false`: lanes must serve, and nothing was moved.
    ///
    /// # Errors
    /// `NotSame` as every meeting; what reading met, here or at another member.
    pub(super) fn reduce_directly(&self, r: &Reduction<'_>) -> Result<bool> {
        let (board, me) = (&self.attachment.segment, self.attachment.me);
        let spare = self.attachment.wide();
        let offer = |mem| match &spare {
            Some(_) => ReadOffer::Lend(r.whole(mem)),
            // The others must hear of it.
            None => ReadOffer::InPlace,
        };
        let operands = ExposedRegion::new(self.sync, 0, &offer(r.input));
        let results = ExposedRegion::new(self.sync, 1, &offer(r.output));
        let epoch = self.next_epoch();
        operands.record.write(board.cell(me, epoch));
        results
            .record
            .write(board.cell(me, epoch).offset(SHOWN_BYTES as isize));
        self.barrier(epoch)?;
        let all: Vec<MemberRegions> = (0..board.members())
            .map(|member| MemberRegions {
                operands: OfferRecord::read(board.cell(member, epoch)),
                results: OfferRecord::read(board.cell(member, epoch).offset(SHOWN_BYTES as isize)),
            })
            .collect();
        let refuses =
            |theirs: &MemberRegions| theirs.operands.is_refused() || theirs.results.is_refused();
        let Some(spare) = spare else { return Ok(false) };
        if all.iter().any(refuses) {
            return Ok(false);
        }
        // Lanes cannot serve where operands are overwritten.
        let anew = |read: Result<bool>| match read {
            Ok(false) if r.in_place() => Err(self.sync.comm.error(
                Class::Other,
                "the system refused to read another process's memory",
            )),
            read => read,
        };
        let combined = anew(self.combine_own_slice(r, &all, spare));
        let taken = match self.exchange_combined(combined)? {
            Ok(true) => anew(self.read_other_slices(r, &all)),
            // All have learned it.
            Ok(false) => return Ok(false),
            failed => failed,
        };
        // An error must not keep the others waiting.
        self.finish_reads(taken, || {})
    }

    /// Says whether the own slice is combined, and learns whether all are; `false`: lanes must
    /// serve.
    fn exchange_combined(&self, combined: Result<bool>) -> Result<Result<bool>> {
        let said = self.exchange_outcomes(&combined, || {})?;
        if let Some(member) = said.failed {
            let text = format!("rank {member} could not read what it had to combine");
            return Ok(combined.and_then(|_| Err(self.sync.comm.error(Class::Other, text))));
        }
        if matches!(combined, Ok(false)) || combined.is_ok() && said.refused {
            self.attachment
                .reading_refused
                .store(true, Ordering::Relaxed);
            return Ok(Ok(false));
        }
        Ok(combined)
    }

    /// The own slice.
    fn combine_own_slice(
        &self,
        r: &Reduction<'_>,
        all: &[MemberRegions],
        spare: UserMem,
    ) -> Result<bool> {
        let n = self.attachment.segment.members();
        let (me, size) = (self.attachment.me, r.shape().size());
        let slice = part(r.count, n, me);
        let at = slice.start * size;
        let here = r.input.offset(at as isize);
        let result = r.output.offset(at as isize);
        let mut outcome = Ok(true);
        let mut bring = |from: u32, offset: u64, into: &Data| {
            let wanted = ReadRequest {
                from,
                offset: at + offset,
                into: into.clone(),
            };
            if let (Ok(true), Some(theirs)) = (&outcome, all.get(from as usize)) {
                outcome = self.read_one(&theirs.operands, &wanted);
            }
        };
        let count = slice.end - slice.start;
        if n == 2 {
            // Predefined operations commute: what was read is combined with the own operand where
            // that lies.
            for (from, len) in pieces(count, limit::DIRECT_COMBINE as u64 / size) {
                let by = (from * size) as isize;
                let (own, result) = (here.offset(by), result.offset(by));
                let (left, into) = match r.in_place() {
                    true => (spare, result),
                    false => (own, result),
                };
                let brought = if r.in_place() { spare } else { result };
                bring(1 - me, from * size, &Data::contiguous(brought, len * size));
                r.fold.fold(left, into, len);
            }
        } else {
            let operands = Operands {
                me,
                members: 0..n,
                ends: (here, Some(result)),
            };
            let room = OperandRoom {
                mem: spare,
                each: limit::DIRECT_COMBINE,
            };
            operands.combine(r, count, room, bring, |_, _| {});
        }
        outcome
    }

    /// The slices of the others.
    fn read_other_slices(&self, r: &Reduction<'_>, all: &[MemberRegions]) -> Result<bool> {
        let size = r.shape().size();
        for from in self.attachment.others() {
            let slice = part(r.count, self.attachment.segment.members(), from);
            let offset = slice.start * size;
            let into = Data::contiguous(
                r.output.offset(offset as isize),
                (slice.end - slice.start) * size,
            );
            if let Some(theirs) = all.get(from as usize)
                && !self.read_one(&theirs.results, &ReadRequest { from, offset, into })?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
