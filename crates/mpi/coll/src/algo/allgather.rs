//! Gathers to every rank of the own group. Each starts with the own block in its place (`own`
//! copies it there unless the call is in place).
//!
//! All ranks know all block sizes, so every algorithm but recursive doubling serves even and uneven
//! blocks alike.

use super::{gather, minus, plus};
use crate::blocks::Blocks;
use crate::plan::{GroupSide, Plan};
use crate::typed_buffer::slice;
use garonne_sync::user::Data;

/// Puts the own contribution in its place.
pub fn own<P: Plan>(p: &mut P, mine: Option<&Data>, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    match mine {
        Some(data) if data.len > 0 => p.copy(data.clone(), blocks.one(p.me())),
        _ => Ok(()),
    }
}

/// Exchanges growing runs of blocks at distances 1, 2, 4 …; `n` is a power of two and blocks are
/// even. For small and medium data.
pub fn recursive_doubling<P: Plan>(p: &mut P, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let mut have = 1;
    while have < n {
        let first = me & !(have - 1);
        let partner = me ^ have;
        let token = p.recv(partner, blocks.run(first ^ have, have))?;
        p.send(partner, blocks.run(first, have))?;
        p.wait(token)?;
        have <<= 1;
    }
    Ok(())
}

/// Bruck's algorithm: growing packed runs from ever further ranks, `ceil(log2 n)` steps for any n,
/// then one rotation. For small data.
pub fn bruck<P: Plan>(p: &mut P, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let mut starts = Vec::with_capacity(n as usize + 1);
    let mut total = 0;
    for distance in 0..n {
        starts.push(total);
        total += blocks.len(plus(me, distance, n));
    }
    starts.push(total);
    let all = Data::contiguous(p.scratch(total)?, total);
    let held = |first: u32, count: u32| {
        let (from, to) = (starts[first as usize], starts[(first + count) as usize]);
        slice(&all, from, to - from)
    };
    p.copy(blocks.one(me), held(0, 1))?;
    let mut have = 1;
    while have < n {
        let count = have.min(n - have);
        let (incoming, outgoing) = (held(have, count), held(0, count));
        let token = if incoming.len > 0 {
            Some(p.recv(plus(me, have, n), incoming)?)
        } else {
            None
        };
        if outgoing.len > 0 {
            p.send(minus(me, have, n), outgoing)?;
        }
        if let Some(token) = token {
            p.wait(token)?;
        }
        have <<= 1;
    }
    for distance in 1..n {
        p.copy(held(distance, 1), blocks.one(plus(me, distance, n)))?;
    }
    Ok(())
}

/// Blocks travel round a ring: `n - 1` steps, each between neighbours. For large data on many
/// ranks. `block` is each rank's.
pub fn ring<P: Plan>(p: &mut P, block: &dyn Fn(u32) -> Data) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let (left, right) = (minus(me, 1, n), plus(me, 1, n));
    for step in 0..n - 1 {
        let incoming = block(minus(me, step + 1, n));
        let outgoing = block(minus(me, step, n));
        let token = if incoming.len > 0 {
            Some(p.recv(left, incoming)?)
        } else {
            None
        };
        if outgoing.len > 0 {
            p.send(right, outgoing)?;
        }
        if let Some(token) = token {
            p.wait(token)?;
        }
    }
    Ok(())
}

/// Pairs of blocks go to the left and the right neighbour in turn: half the steps of the ring, for
/// even n.
pub fn neighbour_exchange<P: Plan>(p: &mut P, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let (left, right) = (minus(me, 1, n), plus(me, 1, n));
    let even = me % 2 == 0;
    let mate = if even { right } else { left };
    swap(p, mate, &[me], &[mate], blocks)?;
    let home = if even { [me, right] } else { [left, me] };
    let mut pair = home;
    for step in 1..n / 2 {
        // Even ranks turn to the left in odd steps, odd ranks to the right. The pair that arrives
        // is the next one on that side.
        let to_left = even == (step % 2 == 1);
        let away = 2 * step.div_ceil(2);
        let incoming = home.map(|rank| {
            if to_left {
                minus(rank, away, n)
            } else {
                plus(rank, away, n)
            }
        });
        swap(
            p,
            if to_left { left } else { right },
            &pair,
            &incoming,
            blocks,
        )?;
        pair = incoming;
    }
    Ok(())
}

fn swap<P: Plan>(
    p: &mut P,
    partner: u32,
    out: &[u32],
    into: &[u32],
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    for &rank in into {
        let block = blocks.one(rank);
        if block.len > 0 {
            p.recv(partner, block)?;
        }
    }
    for &rank in out {
        let block = blocks.one(rank);
        if block.len > 0 {
            p.send(partner, block)?;
        }
    }
    p.fence()
}

/// Everybody sends its block to everybody: one step, all copies side by side. For large blocks on
/// few ranks that share a memory.
pub fn linear<P: Plan>(p: &mut P, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    gather::from_all(p, GroupSide::Local, blocks)?;
    let mine = blocks.one(p.me());
    gather::each(p, GroupSide::Local, |p, site| {
        if mine.len > 0 {
            p.send_to(site, mine.clone()).map(drop)
        } else {
            Ok(())
        }
    })
}
