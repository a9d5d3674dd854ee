//! Short blocking collectives in the cells of a communicator's segment.
//!
//! [`run`] takes the [`ShmSync`] of the call. Returns `false` where the data does not fit a cell.
//! At a counter barrier the last to arrive combines reductions for all. At a flag barrier each
//! member combines for itself, in the same order. The root of a broadcast waits for nobody and its
//! readers for the root alone; all other calls pass a barrier of all.

use super::comm_segment::BarrierKind;
use super::shm_large::{OperandRoom, Operands, is_plain};
use super::shm_sync::ShmSync;
use crate::error::Result;
use crate::limits::coll as limit;
use garonne_coll::algo::Reduction;
use garonne_coll::algo::scan::ScanKind;
use garonne_coll::typed_buffer;
use garonne_sync::shm_barrier::CELL_BYTES;
use garonne_sync::user::{Data, UserMem};
use std::ops::Range;

/// A short collective, as cells carry it out.
pub(super) enum SmallOp<'a> {
    /// Only meet.
    Barrier,
    /// The bytes of this rank to all.
    Bcast(u32, Data),
    /// The bytes of every rank to all, given by their length: `put` puts the own ones down, `get`
    /// takes those of a rank.
    Allgather(u64, &'a dyn Fn(&Data), &'a dyn Fn(u32, &Data)),
    /// Everybody's elements combined, to all or to one rank.
    Reduce(&'a Reduction<'a>, Option<u32>),
    /// The elements of all lower ranks combined, with or without the own ones.
    Scan(&'a Reduction<'a>, ScanKind),
}

impl SmallOp<'_> {
    fn bytes(&self) -> u64 {
        match self {
            SmallOp::Barrier => 0,
            SmallOp::Bcast(_, data) => data.len,
            SmallOp::Allgather(len, ..) => *len,
            SmallOp::Reduce(r, _) | SmallOp::Scan(r, _) => {
                let (low, len) = typed_buffer::span(r.shape(), r.count);
                if low < 0 { u64::MAX } else { low as u64 + len }
            }
        }
    }
}

/// Carries out a small collective; `false`: it does not fit.
pub(super) fn run(sync: &ShmSync<'_>, small: &SmallOp<'_>) -> Result<bool> {
    if small.bytes() > CELL_BYTES as u64 {
        return Ok(false);
    }
    let (place, epoch) = (sync.attachment, sync.next_epoch());
    let (board, me) = (&place.segment, place.me);
    match small {
        SmallOp::Barrier => sync.barrier(epoch, || {})?,
        SmallOp::Bcast(root, data) => {
            let cell = Data::contiguous(board.cell(*root, epoch), data.len);
            if *root == me {
                typed_buffer::copy(data, &cell);
                sync.signal(epoch)?;
            } else {
                sync.wait_for(epoch, *root)?;
                typed_buffer::copy(&cell, data);
            }
        }
        SmallOp::Allgather(len, put, get) => {
            let cell = |member: u32| Data::contiguous(board.cell(member, epoch), *len);
            put(&cell(me));
            sync.barrier(epoch, || {})?;
            (0..board.members()).for_each(|member| get(member, &cell(member)));
        }
        SmallOp::Reduce(r, root) => {
            let takes = root.is_none_or(|root| root == me);
            typed_buffer::copy(&r.whole(r.input), &r.whole(board.cell(me, epoch)));
            let all = 0..board.members();
            sync.barrier(epoch, || {
                combine(sync, r, all.clone(), (epoch, board.result(epoch)))
            })?;
            match place.barrier {
                _ if !takes => {}
                BarrierKind::Counter => {
                    typed_buffer::copy(&r.whole(board.result(epoch)), &r.whole(r.output))
                }
                BarrierKind::Flags if is_plain(r) => combine_plain(sync, r, epoch),
                BarrierKind::Flags => combine(sync, r, all, (epoch, r.output)),
            }
        }
        SmallOp::Scan(r, own) => {
            typed_buffer::copy(&r.whole(r.input), &r.whole(board.cell(me, epoch)));
            sync.barrier(epoch, || {})?;
            let operands = match own {
                ScanKind::Inclusive => 0..me + 1,
                ScanKind::Exclusive => 0..me,
            };
            combine(sync, r, operands, (epoch, r.output));
        }
    }
    Ok(true)
}

/// Combines all cells to where the result goes, the own operand where it is.
fn combine_plain(sync: &ShmSync<'_>, r: &Reduction<'_>, epoch: u32) {
    let (place, board) = (sync.attachment, &sync.attachment.segment);
    let operands = Operands {
        me: place.me,
        members: 0..board.members(),
        ends: (r.input, Some(r.output)),
    };
    let bring = |member, _, into: &Data| {
        typed_buffer::copy(&Data::contiguous(board.cell(member, epoch), into.len), into);
    };
    // One piece: a cell is shorter than the room.
    let room = OperandRoom {
        mem: place.combine_room.mem(),
        each: limit::COMBINE_BYTES,
    };
    operands.combine(r, r.count, room, bring, |_, _| {});
}

/// Combines the cells of these members in the order of ranks, if there are any. They are copied out
/// first: peers may write them at any time.
fn combine(
    sync: &ShmSync<'_>,
    r: &Reduction<'_>,
    mut members: Range<u32>,
    (epoch, into): (u32, UserMem),
) {
    let board = &sync.attachment.segment;
    let mut sum = sync.attachment.combine_room.mem();
    let mut next = sum.offset(CELL_BYTES as isize);
    let Some(first) = members.next() else { return };
    typed_buffer::copy(&r.whole(board.cell(first, epoch)), &r.whole(sum));
    for member in members {
        typed_buffer::copy(&r.whole(board.cell(member, epoch)), &r.whole(next));
        r.fold.fold(sum, next, r.count);
        (sum, next) = (next, sum);
    }
    typed_buffer::copy(&r.whole(sum), &r.whole(into));
}
