//! Collectives within one group, each by the algorithm that [`choose`] names.
//!
//! A call of a communicator uses these functions, and so do the steps of a hierarchical collective
//! inside nodes and between them.

use super::algo::{Reduction, allgather, allreduce, bcast, gather, reduce};
use super::blocks::Blocks;
use super::call_tag::CollectiveKind;
use super::choose::{Algorithm, ChoiceInput, choose};
use super::hierarchical;
use super::plan::{GroupSide, Plan};
use garonne_sync::user::Data;

/// The root's data to all of the own group, by the algorithm that suits.
pub fn bcast_in_group<P: Plan>(p: &mut P, root: u32, data: &Data) -> Result<(), P::Error> {
    match (
        choose(
            CollectiveKind::Bcast,
            ChoiceInput::of_data(p, data.len, true),
        ),
        p.node_map(),
    ) {
        (Algorithm::Hierarchical, Some(spread)) => hierarchical::bcast(p, &spread, root, data),
        (Algorithm::Chain { segment }, Some(spread)) => {
            hierarchical::chain(p, &spread, root, data, segment)
        }
        (Algorithm::Chain { segment }, None) => bcast::chain(p, root, data, segment),
        (Algorithm::Flat, _) => bcast::flat(p, root, data),
        (Algorithm::ScatterAllgather, _) => bcast::scatter_allgather(p, root, data),
        _ => bcast::binomial(p, root, data),
    }
}

/// Every rank's block to all, by the algorithm that suits. `mine` is `None` where the contribution
/// is in its place. `block` is the length of each block, of uneven ones the average.
pub fn plan_allgather<P: Plan>(
    p: &mut P,
    mine: Option<Data>,
    blocks: &Blocks<'_>,
    block: u64,
    even: bool,
) -> Result<(), P::Error> {
    if p.remote_size() > 0 {
        let mine = mine.unwrap_or_else(Data::empty);
        gather::from_all(p, GroupSide::Remote, blocks)?;
        return gather::each(p, GroupSide::Remote, |p, site| {
            if mine.len > 0 {
                p.send_to(site, mine.clone()).map(drop)
            } else {
                Ok(())
            }
        });
    }
    if even && block == 0 {
        return Ok(());
    }
    allgather::own(p, mine.as_ref(), blocks)?;
    match (
        choose(
            CollectiveKind::Allgather,
            ChoiceInput::of_data(p, block, even),
        ),
        p.node_map(),
    ) {
        _ if p.size() == 1 => Ok(()),
        (Algorithm::Hierarchical, Some(spread)) => hierarchical::allgather(p, &spread, blocks),
        (Algorithm::RecursiveDoubling, _) => allgather::recursive_doubling(p, blocks),
        (Algorithm::Bruck, _) => allgather::bruck(p, blocks),
        (Algorithm::NeighbourExchange, _) => allgather::neighbour_exchange(p, blocks),
        (Algorithm::Linear { .. }, _) => allgather::linear(p, blocks),
        (_, Some(spread)) => hierarchical::ring(p, &spread, blocks),
        _ => allgather::ring(p, &|rank| blocks.one(rank)),
    }
}

/// Combines what the own group has at one of its ranks, by the algorithm that suits.
pub fn reduce_in_group<P: Plan>(p: &mut P, root: u32, r: &Reduction<'_>) -> Result<(), P::Error> {
    match (
        choose(CollectiveKind::Reduce, ChoiceInput::of_reduction(p, r)),
        p.node_map(),
    ) {
        (Algorithm::Hierarchical, Some(spread)) => hierarchical::reduce(p, &spread, root, r),
        (Algorithm::Sliced, _) => reduce::sliced(p, root, r),
        _ => reduce::binomial(p, root, r),
    }
}

/// Reduces to all ranks of the own group, by the algorithm that suits.
pub fn allreduce_in_group<P: Plan>(p: &mut P, r: &Reduction<'_>) -> Result<(), P::Error> {
    match (
        choose(CollectiveKind::Allreduce, ChoiceInput::of_reduction(p, r)),
        p.node_map(),
    ) {
        (Algorithm::Hierarchical, Some(spread)) => hierarchical::allreduce(p, &spread, r),
        (Algorithm::ByNodeInSlices, Some(spread)) => {
            hierarchical::allreduce_in_slices(p, &spread, r)
        }
        (Algorithm::Sliced, _) => allreduce::sliced(p, r),
        (Algorithm::HalvingDoubling, _) => allreduce::halving_doubling(p, r),
        (Algorithm::Ring, _) => allreduce::ring(p, r),
        _ => allreduce::recursive_doubling(p, r),
    }
}
