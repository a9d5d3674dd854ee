//! Groups.

use crate::c_args::{ConstPtr, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::handle::MPI_Group;
use crate::init_state;
use crate::objects::{self, GroupEntry, group, groups, publish};
use garonne_mpi::error::Class;
use garonne_mpi::group::{Comparison, Group, RankRange};
use garonne_mpi::session::Session;
use std::ffi::c_int;

/// `MPI_IDENT` and its kind.
pub(crate) fn comparison(result: Comparison) -> c_int {
    match result {
        Comparison::Ident => MPI_IDENT,
        Comparison::Congruent => MPI_CONGRUENT,
        Comparison::Similar => MPI_SIMILAR,
        Comparison::Unequal => MPI_UNEQUAL,
    }
}

/// The number of elements that a count argument names.
pub(crate) fn length(n: impl Into<i64>, what: &str) -> Result<usize> {
    let n = n.into();
    usize::try_from(n).map_err(|_| {
        CallError::new(
            Class::Arg,
            format!("{what} is {n}; it must not be negative"),
        )
    })
}

/// Returns a handle for a new group; `MPI_GROUP_EMPTY` for an empty one.
pub(crate) fn publish_group(
    new: Group,
    session: Option<Session>,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let handle = if new.size() == 0 {
        MPI_GROUP_EMPTY
    } else {
        publish(groups(), GroupEntry::new(new, session))?
    };
    out.set(handle)
}

pub(crate) fn group_size(_: CallId, handle: MPI_Group, size: Ptr<c_int>) -> Result<()> {
    size.set(group(handle)?.size() as c_int)
}

pub(crate) fn group_rank(_: CallId, handle: MPI_Group, rank: Ptr<c_int>) -> Result<()> {
    let me = init_state::process()?.host.me();
    rank.set(
        group(handle)?
            .rank_of(me)
            .map_or(MPI_UNDEFINED, |rank| rank as c_int),
    )
}

pub(crate) fn group_compare(
    _: CallId,
    a: MPI_Group,
    b: MPI_Group,
    result: Ptr<c_int>,
) -> Result<()> {
    result.set(comparison(group(a)?.compare(group(b)?)))
}

pub(crate) fn group_translate_ranks(
    _: CallId,
    from: MPI_Group,
    n: c_int,
    ranks: ConstPtr<c_int>,
    to: MPI_Group,
    out: Ptr<c_int>,
) -> Result<()> {
    let ranks = ranks.take(length(n, "the number of ranks")?)?;
    out.fill(group(from)?.translate(&ranks, group(to)?)?)
}

pub(crate) fn group_union(
    _: CallId,
    a: MPI_Group,
    b: MPI_Group,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let (a, b) = (group(a)?, group(b)?);
    publish_group(
        a.union(b),
        a.session.clone().or_else(|| b.session.clone()),
        out,
    )
}

pub(crate) fn group_intersection(
    _: CallId,
    a: MPI_Group,
    b: MPI_Group,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let (a, b) = (group(a)?, group(b)?);
    publish_group(
        a.intersection(b),
        a.session.clone().or_else(|| b.session.clone()),
        out,
    )
}

pub(crate) fn group_difference(
    _: CallId,
    a: MPI_Group,
    b: MPI_Group,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let (a, b) = (group(a)?, group(b)?);
    publish_group(
        a.difference(b),
        a.session.clone().or_else(|| b.session.clone()),
        out,
    )
}

pub(crate) fn group_incl(
    _: CallId,
    of: MPI_Group,
    n: c_int,
    ranks: ConstPtr<c_int>,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let ranks = ranks.take(length(n, "the number of ranks")?)?;
    let of = group(of)?;
    publish_group(of.incl(&ranks)?, of.session.clone(), out)
}

pub(crate) fn group_excl(
    _: CallId,
    of: MPI_Group,
    n: c_int,
    ranks: ConstPtr<c_int>,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let ranks = ranks.take(length(n, "the number of ranks")?)?;
    let of = group(of)?;
    publish_group(of.excl(&ranks)?, of.session.clone(), out)
}

fn ranges(n: c_int, triples: Ptr<[c_int; 3]>) -> Result<Vec<RankRange>> {
    let triples = match length(n, "the number of ranges")? {
        0 => Vec::new(),
        n => triples.take(n)?,
    };
    Ok(triples
        .into_iter()
        .map(|[first, last, stride]| RankRange {
            first,
            last,
            stride,
        })
        .collect())
}

pub(crate) fn group_range_incl(
    _: CallId,
    of: MPI_Group,
    n: c_int,
    triples: Ptr<[c_int; 3]>,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let of = group(of)?;
    publish_group(
        of.range_incl(&ranges(n, triples)?)?,
        of.session.clone(),
        out,
    )
}

pub(crate) fn group_range_excl(
    _: CallId,
    of: MPI_Group,
    n: c_int,
    triples: Ptr<[c_int; 3]>,
    out: Ptr<MPI_Group>,
) -> Result<()> {
    let of = group(of)?;
    publish_group(
        of.range_excl(&ranges(n, triples)?)?,
        of.session.clone(),
        out,
    )
}

pub(crate) fn group_free(_: CallId, handle: Ptr<MPI_Group>) -> Result<()> {
    let old = handle.get()?;
    if old != MPI_GROUP_EMPTY && groups().remove(old).is_none() {
        return Err(objects::unknown_handle(
            Class::Group,
            "group",
            old.0,
            MPI_GROUP_NULL.0,
        ));
    }
    handle.set(MPI_GROUP_NULL)
}
