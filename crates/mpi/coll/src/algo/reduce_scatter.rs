//! Reductions whose result is divided among the ranks of the own group.

use super::{Reduction, len, minus, plus, run};
use crate::plan::{Plan, PlanScratch, TransferId};
use crate::typed_buffer::TypedBuffer;
use garonne_sync::user::UserMem;
use std::ops::Range;

/// Every rank takes its slice from all others directly and reduces it. `slice_of` gives the
/// elements of each rank's slice, and `out` is where the own slice's result goes: it must be the
/// own slice of the input itself, or not overlap the input.
pub fn direct<P: Plan>(
    p: &mut P,
    r: &Reduction<'_>,
    slice_of: &dyn Fn(u32) -> Range<u64>,
    out: UserMem,
) -> Result<(), P::Error> {
    let mine = slice_of(p.me());
    let out = TypedBuffer::new(out, r.shape());
    if !mine.is_empty() && r.input().at(mine.start as i64) != out.mem {
        p.copy(run(&r.input(), &mine), out.data(0, len(&mine)))?;
    }
    if r.fold.commutative() {
        as_they_come(p, r, slice_of, out)
    } else {
        in_rank_order(p, r, slice_of, out)
    }
}

/// Two buffers: one is filled while the other is added.
fn as_they_come<P: Plan>(
    p: &mut P,
    r: &Reduction<'_>,
    slice_of: &dyn Fn(u32) -> Range<u64>,
    out: TypedBuffer<'_>,
) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let count = len(&slice_of(me));
    let take = count > 0 && n > 1;
    let mut buffers = [out.mem; 2];
    if take {
        for buffer in buffers.iter_mut().take(n as usize - 1) {
            *buffer = p.scratch_for(r.shape(), count)?;
        }
    }
    let receive = |p: &mut P, distance: u32| -> Result<Option<TransferId>, P::Error> {
        if !take || distance >= n {
            return Ok(None);
        }
        let buffer = TypedBuffer::new(buffers[(distance as usize + 1) % 2], r.shape());
        p.recv(minus(me, distance, n), buffer.data(0, count))
            .map(Some)
    };
    let mut coming = receive(p, 1)?;
    for distance in 1..n {
        let next = receive(p, distance + 1)?;
        let to = plus(me, distance, n);
        let theirs = run(&r.input(), &slice_of(to));
        if theirs.len > 0 {
            p.send(to, theirs)?;
        }
        if let Some(token) = coming {
            p.wait(token)?;
            p.fold(r.fold, buffers[(distance as usize + 1) % 2], out.mem, count)?;
        }
        coming = next;
    }
    Ok(())
}

/// All slices side by side, combined in rank order.
fn in_rank_order<P: Plan>(
    p: &mut P,
    r: &Reduction<'_>,
    slice_of: &dyn Fn(u32) -> Range<u64>,
    out: TypedBuffer<'_>,
) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let count = len(&slice_of(me));
    let others = if count > 0 { u64::from(n) - 1 } else { 0 };
    let room = p.scratch_like(&out, others * count)?;
    let held = |rank: u32| match rank {
        _ if rank == me => out.mem,
        _ => room.at((u64::from(if rank < me { rank } else { rank - 1 }) * count) as i64),
    };
    let mut first = None;
    for rank in (0..n).filter(|&rank| rank != me && count > 0) {
        let token = p.recv(rank, TypedBuffer::new(held(rank), r.shape()).data(0, count))?;
        first.get_or_insert(token.0);
    }
    for distance in 1..n {
        let to = plus(me, distance, n);
        let theirs = run(&r.input(), &slice_of(to));
        if theirs.len > 0 {
            p.send(to, theirs)?;
        }
    }
    let Some(first) = first else { return Ok(()) };
    for rank in 0..n {
        if rank != me {
            p.wait(TransferId(first + if rank < me { rank } else { rank - 1 }))?;
        }
        if rank > 0 {
            p.fold(r.fold, held(rank - 1), held(rank), count)?;
        }
    }
    if me != n - 1 {
        p.copy(
            TypedBuffer::new(held(n - 1), r.shape()).data(0, count),
            out.data(0, count),
        )?;
    }
    Ok(())
}
