//! Barriers: no rank passes before all have come.

use super::{BinomialTree, minus, plus};
use crate::plan::Plan;
use garonne_sync::user::Data;

/// Dissemination: in round k every rank tells the one 2^k further; `ceil(log2 n)` rounds for any n.
pub fn dissemination<P: Plan>(p: &mut P) -> Result<(), P::Error> {
    let (me, n) = (p.me(), p.size());
    let mut distance = 1;
    while distance < n {
        p.recv(minus(me, distance, n), Data::empty())?;
        p.send(plus(me, distance, n), Data::empty())?;
        p.fence()?;
        distance <<= 1;
    }
    Ok(())
}

/// Up a tree: rank 0 is through when all have come.
pub fn arrive<P: Plan>(p: &mut P) -> Result<(), P::Error> {
    let place = BinomialTree::new(p.me(), p.size());
    for (child, _) in place.children() {
        p.recv(child, Data::empty())?;
    }
    p.fence()?;
    match place.parent() {
        Some(parent) => p.send(parent, Data::empty()).map(drop),
        None => Ok(()),
    }
}
