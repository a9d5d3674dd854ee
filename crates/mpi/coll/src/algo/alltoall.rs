//! Exchanges of a block between every two ranks of the own group.

use super::{minus, plus};
use crate::blocks::Blocks;
use crate::plan::Plan;
use crate::typed_buffer::slice;
use garonne_sync::user::Data;

/// The own block.
fn own<P: Plan>(p: &mut P, send: &Blocks<'_>, recv: &Blocks<'_>) -> Result<(), P::Error> {
    let me = p.me();
    if recv.len(me) > 0 {
        p.copy(send.one(me), recv.one(me))
    } else {
        Ok(())
    }
}

/// All exchanges at once, `batch` ranks at a time so that their number stays bounded. With a batch
/// of 1 this is the pairwise exchange. Ranks may choose different batches.
pub fn linear<P: Plan>(
    p: &mut P,
    send: &Blocks<'_>,
    recv: &Blocks<'_>,
    batch: u32,
) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let batch = batch.max(1);
    let mut first = 1;
    while first < n {
        let last = first.saturating_add(batch).min(n);
        for distance in first..last {
            let from = minus(me, distance, n);
            if recv.len(from) > 0 {
                p.recv(from, recv.one(from))?;
            }
        }
        for distance in first..last {
            let to = plus(me, distance, n);
            if send.len(to) > 0 {
                p.send(to, send.one(to))?;
            }
        }
        if first == 1 {
            own(p, send, recv)?;
        }
        if last < n {
            p.fence()?;
        }
        first = last;
    }
    if n == 1 { own(p, send, recv) } else { Ok(()) }
}

/// Every pair of ranks swaps its blocks through one temporary block: for in-place calls, where
/// `blocks` is sent and received. In round k rank r meets rank k - r.
pub fn in_place<P: Plan>(p: &mut P, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let longest = (0..n)
        .filter(|&rank| rank != me)
        .map(|rank| blocks.len(rank))
        .max()
        .unwrap_or(0);
    if longest == 0 {
        return Ok(());
    }
    let room = Data::contiguous(p.scratch(longest)?, longest);
    for round in 0..n {
        let partner = minus(round, me, n);
        let length = blocks.len(partner);
        if partner != me && length > 0 {
            let temporary = slice(&room, 0, length);
            p.recv(partner, temporary.clone())?;
            p.send(partner, blocks.one(partner))?;
            p.fence()?;
            p.copy(temporary, blocks.one(partner))?;
        }
    }
    Ok(())
}

/// Bruck's algorithm: in step k every block whose distance has bit k set moves 2^k ranks on,
/// `ceil(log2 n)` messages of half the data. For small even blocks on many ranks. `send` and `recv`
/// may be the same memory.
pub fn bruck<P: Plan>(p: &mut P, send: &Blocks<'_>, recv: &Blocks<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let block = recv.len(me);
    let room = |p: &mut P, blocks: u32| -> Result<Data, P::Error> {
        let len = u64::from(blocks) * block;
        Ok(Data::contiguous(p.scratch(len)?, len))
    };
    let held = room(p, n)?;
    let at = |whole: &Data, index: u32| slice(whole, u64::from(index) * block, block);
    for distance in 0..n {
        p.copy(send.one(plus(me, distance, n)), at(&held, distance))?;
    }
    let (outgoing, incoming) = (room(p, n.div_ceil(2))?, room(p, n.div_ceil(2))?);
    let mut bit = 1;
    while bit < n {
        let moving = || (0..n).filter(move |distance| distance & bit != 0);
        for (index, distance) in moving().enumerate() {
            p.copy(at(&held, distance), at(&outgoing, index as u32))?;
        }
        let len = moving().count() as u64 * block;
        p.recv(minus(me, bit, n), slice(&incoming, 0, len))?;
        p.send(plus(me, bit, n), slice(&outgoing, 0, len))?;
        p.fence()?;
        for (index, distance) in moving().enumerate() {
            p.copy(at(&incoming, index as u32), at(&held, distance))?;
        }
        bit <<= 1;
    }
    for distance in 0..n {
        p.copy(at(&held, distance), recv.one(minus(me, distance, n)))?;
    }
    Ok(())
}
