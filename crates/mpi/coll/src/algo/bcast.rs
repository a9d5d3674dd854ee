//! Broadcasts: the root's bytes to all ranks of the own group.
//!
//! All work on ranges of the packed stream, so the root and the others may describe the same data
//! by different types.

use super::{BinomialTree, minus, plus};
use crate::plan::Plan;
use crate::typed_buffer::slice;
use garonne_sync::user::Data;

/// Every rank passes the whole on to its subtree: `ceil(log2 n)` steps, for small data.
pub fn binomial<P: Plan>(p: &mut P, root: u32, data: &Data) -> Result<(), P::Error> {
    let n = p.size();
    let place = BinomialTree::new(minus(p.me(), root, n), n);
    if let Some(parent) = place.parent() {
        let token = p.recv(plus(parent, root, n), data.clone())?;
        p.wait(token)?;
    }
    for (child, _) in place.children().rev() {
        p.send(plus(child, root, n), data.clone())?;
    }
    Ok(())
}

/// Everybody takes the whole from the root: one step, the reads of a single copy go on side by
/// side. For large data on few ranks that share a memory.
pub fn flat<P: Plan>(p: &mut P, root: u32, data: &Data) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    if me != root {
        p.recv(root, data.clone())?;
        return Ok(());
    }
    for distance in 1..n {
        p.send(plus(me, distance, n), data.clone())?;
    }
    Ok(())
}

/// Scatters equal pieces down a tree, then gathers them on a ring: every link carries the data
/// about twice, whatever n.
pub fn scatter_allgather<P: Plan>(p: &mut P, root: u32, data: &Data) -> Result<(), P::Error> {
    let n = p.size();
    let v = minus(p.me(), root, n);
    let piece = data.len.div_ceil(u64::from(n));
    let pieces = |first: u32, count: u32| {
        let from = (u64::from(first) * piece).min(data.len);
        let to = (u64::from(first + count) * piece).min(data.len);
        slice(data, from, to - from)
    };
    let place = BinomialTree::new(v, n);
    if let Some(parent) = place.parent() {
        let mine = pieces(v, place.subtree());
        if mine.len > 0 {
            let token = p.recv(plus(parent, root, n), mine)?;
            p.wait(token)?;
        }
    }
    for (child, ranks) in place.children().rev() {
        let theirs = pieces(child, ranks);
        if theirs.len > 0 {
            p.send(plus(child, root, n), theirs)?;
        }
    }
    let (left, right) = (plus(minus(v, 1, n), root, n), plus(plus(v, 1, n), root, n));
    for step in 0..n.saturating_sub(1) {
        let incoming = pieces(minus(v, step + 1, n), 1);
        let outgoing = pieces(minus(v, step, n), 1);
        // The binomial scatter left a rank its whole subtree; receiving those pieces again keeps
        // all rounds alike.
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

/// A chain from the root through all ranks, in segments of `segment` bytes: the last rank is `n`
/// segments behind the first, all links are busy meanwhile. For large data on several ranks.
pub fn chain<P: Plan>(p: &mut P, root: u32, data: &Data, segment: u64) -> Result<(), P::Error> {
    let n = p.size();
    let v = minus(p.me(), root, n);
    let segment = segment.max(1);
    let segments = data.len.div_ceil(segment);
    let nth = |index: u64| {
        slice(
            data,
            index * segment,
            segment.min(data.len - index * segment),
        )
    };
    let (left, right) = (plus(minus(v, 1, n), root, n), plus(plus(v, 1, n), root, n));
    let mut coming = if v > 0 && segments > 0 {
        Some(p.recv(left, nth(0))?)
    } else {
        None
    };
    for index in 0..segments {
        if let Some(token) = coming.take() {
            p.wait(token)?;
            if index + 1 < segments {
                coming = Some(p.recv(left, nth(index + 1))?);
            }
        }
        if v + 1 < n {
            p.send(right, nth(index))?;
        }
    }
    Ok(())
}
