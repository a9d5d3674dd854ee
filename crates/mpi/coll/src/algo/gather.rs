//! Gathers and scatters between one rank and all of the own group.

use super::{BinomialTree, minus, plus};
use crate::blocks::Blocks;
use crate::plan::{GroupSide, Plan, PlanPeer};
use crate::typed_buffer::slice;
use garonne_sync::user::Data;

/// Everybody sends to the root. For large blocks, and whenever only the root knows the sizes.
/// `mine` is `None` where the contribution is in place already; `blocks` counts at the root.
pub fn linear_gather<P: Plan>(
    p: &mut P,
    root: u32,
    mine: Option<&Data>,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    if p.me() != root {
        return match mine {
            Some(data) if data.len > 0 => p.send(root, data.clone()).map(drop),
            _ => Ok(()),
        };
    }
    from_all(p, GroupSide::Local, blocks)?;
    if let Some(data) = mine {
        p.copy(data.clone(), blocks.one(root))?;
    }
    Ok(())
}

/// Receives one block from each process of a group but itself.
pub fn from_all<P: Plan>(p: &mut P, side: GroupSide, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    each(p, side, |p, site| {
        let block = blocks.one(site.rank);
        if block.len > 0 {
            p.recv_from(site, block).map(drop)
        } else {
            Ok(())
        }
    })
}

/// Sends one block to each process of a group but itself.
pub fn to_all<P: Plan>(p: &mut P, side: GroupSide, blocks: &Blocks<'_>) -> Result<(), P::Error> {
    each(p, side, |p, site| {
        let block = blocks.one(site.rank);
        if block.len > 0 {
            p.send_to(site, block).map(drop)
        } else {
            Ok(())
        }
    })
}

/// Every process of a group but the calling one, beginning after it.
pub fn each<P: Plan>(
    p: &mut P,
    side: GroupSide,
    mut f: impl FnMut(&mut P, PlanPeer) -> Result<(), P::Error>,
) -> Result<(), P::Error> {
    let me = p.me();
    match side {
        GroupSide::Local => {
            let n = p.size();
            (1..n).try_for_each(|distance| {
                f(
                    p,
                    PlanPeer {
                        side,
                        rank: plus(me, distance, n),
                    },
                )
            })
        }
        GroupSide::Remote => {
            let n = p.remote_size();
            (0..n).try_for_each(|distance| {
                f(
                    p,
                    PlanPeer {
                        side,
                        rank: plus(me % n, distance, n),
                    },
                )
            })
        }
    }
}

/// The root sends to everybody: the reverse of [`linear_gather`].
pub fn linear_scatter<P: Plan>(
    p: &mut P,
    root: u32,
    mine: Option<&Data>,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    if p.me() != root {
        return match mine {
            Some(data) if data.len > 0 => p.recv(root, data.clone()).map(drop),
            _ => Ok(()),
        };
    }
    to_all(p, GroupSide::Local, blocks)?;
    if let Some(data) = mine {
        p.copy(blocks.one(root), data.clone())?;
    }
    Ok(())
}

/// Up a tree with growing packed runs: `ceil(log2 n)` steps, for small blocks. `block` is the
/// packed length of each.
pub fn binomial_gather<P: Plan>(
    p: &mut P,
    root: u32,
    block: u64,
    mine: Option<&Data>,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    let n = p.size();
    let v = minus(p.me(), root, n);
    let place = BinomialTree::new(v, n);
    if v == 0 {
        return gather_at_root(p, root, block, mine, blocks);
    }
    let Some((parent, mine)) = place.parent().zip(mine) else {
        return Ok(());
    };
    let parent = plus(parent, root, n);
    if place.subtree() == 1 {
        return p.send(parent, mine.clone()).map(drop);
    }
    let whole = Data::contiguous(
        p.scratch(u64::from(place.subtree()) * block)?,
        u64::from(place.subtree()) * block,
    );
    for (child, ranks) in place.children() {
        p.recv(
            plus(child, root, n),
            slice(
                &whole,
                u64::from(child - v) * block,
                u64::from(ranks) * block,
            ),
        )?;
    }
    p.copy(mine.clone(), slice(&whole, 0, block))?;
    p.fence()?;
    p.send(parent, whole).map(drop)
}

fn gather_at_root<P: Plan>(
    p: &mut P,
    root: u32,
    block: u64,
    mine: Option<&Data>,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    let n = p.size();
    let mut wrapped = None;
    for (child, ranks) in BinomialTree::new(0, n).children() {
        let first = plus(child, root, n);
        let data = if first + ranks <= n {
            blocks.run(first, ranks)
        } else {
            // The subtree that goes round the end of the ranks lies in two places of the result.
            let data = Data::contiguous(
                p.scratch(u64::from(ranks) * block)?,
                u64::from(ranks) * block,
            );
            wrapped = Some((data.clone(), first, ranks));
            data
        };
        p.recv(first, data)?;
    }
    if let Some(data) = mine {
        p.copy(data.clone(), blocks.one(root))?;
    }
    if let Some((data, first, ranks)) = wrapped {
        p.fence()?;
        let before = n - first;
        p.copy(
            slice(&data, 0, u64::from(before) * block),
            blocks.run(first, before),
        )?;
        p.copy(
            slice(
                &data,
                u64::from(before) * block,
                u64::from(ranks - before) * block,
            ),
            blocks.run(0, ranks - before),
        )?;
    }
    Ok(())
}

/// Down a tree with shrinking packed runs: the reverse of [`binomial_gather`].
pub fn binomial_scatter<P: Plan>(
    p: &mut P,
    root: u32,
    block: u64,
    mine: Option<&Data>,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    let n = p.size();
    let v = minus(p.me(), root, n);
    let place = BinomialTree::new(v, n);
    if v == 0 {
        return scatter_at_root(p, root, block, mine, blocks);
    }
    let Some((parent, mine)) = place.parent().zip(mine) else {
        return Ok(());
    };
    let parent = plus(parent, root, n);
    if place.subtree() == 1 {
        return p.recv(parent, mine.clone()).map(drop);
    }
    let whole = Data::contiguous(
        p.scratch(u64::from(place.subtree()) * block)?,
        u64::from(place.subtree()) * block,
    );
    p.recv(parent, whole.clone())?;
    p.fence()?;
    for (child, ranks) in place.children().rev() {
        p.send(
            plus(child, root, n),
            slice(
                &whole,
                u64::from(child - v) * block,
                u64::from(ranks) * block,
            ),
        )?;
    }
    p.copy(slice(&whole, 0, block), mine.clone())
}

fn scatter_at_root<P: Plan>(
    p: &mut P,
    root: u32,
    block: u64,
    mine: Option<&Data>,
    blocks: &Blocks<'_>,
) -> Result<(), P::Error> {
    let n = p.size();
    for (child, ranks) in BinomialTree::new(0, n).children().rev() {
        let first = plus(child, root, n);
        let data = if first + ranks <= n {
            blocks.run(first, ranks)
        } else {
            let data = Data::contiguous(
                p.scratch(u64::from(ranks) * block)?,
                u64::from(ranks) * block,
            );
            let before = n - first;
            p.copy(
                blocks.run(first, before),
                slice(&data, 0, u64::from(before) * block),
            )?;
            p.copy(
                blocks.run(0, ranks - before),
                slice(
                    &data,
                    u64::from(before) * block,
                    u64::from(ranks - before) * block,
                ),
            )?;
            data
        };
        p.send(first, data)?;
    }
    match mine {
        Some(data) => p.copy(blocks.one(root), data.clone()),
        None => Ok(()),
    }
}
