//! Which algorithm serves a collective: a pure function of what all its processes know alike.
//!
//! Used by the calls and by `garonne why`, which prints the same decisions. Only facts that are
//! equal on every process may enter (ranks, packed bytes, whether the operation commutes, how ranks
//! are spread over nodes), since all must decide alike. The thresholds are in `limits.rs`.

use super::algo::Reduction;
use super::call_tag::CollectiveKind;
use super::node_map::NodeGrouping;
use super::plan::Plan;
use crate::limits as limit;
use std::fmt;

/// The facts that a choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoiceInput {
    /// Processes that take part.
    pub ranks: u32,
    /// Packed bytes: of the whole data of a broadcast or reduction, of one rank's block of gathers
    /// and all-to-alls (for uneven blocks of the average one), of all that is reduced before a
    /// reduce-scatter.
    pub bytes: u64,
    /// Elements of a reduction; 0 elsewhere.
    pub elements: u64,
    /// True if the reduction's operands may be exchanged.
    pub commutative: bool,
    /// True if all processes share one node's memory.
    pub together: bool,
    /// Way in which they are spread over nodes; `None` where it makes no difference.
    pub spread: Option<NodeGrouping>,
    /// True if all blocks have the same length.
    pub even: bool,
}

impl ChoiceInput {
    /// The facts of a call that moves data, with so many bytes as [`ChoiceInput::bytes`] says.
    pub fn of_data(p: &impl Plan, bytes: u64, even: bool) -> Self {
        Self {
            ranks: p.size(),
            bytes,
            elements: 0,
            commutative: true,
            together: p.is_on_node(),
            spread: p.node_map().map(|spread| spread.grouping()),
            even,
        }
    }

    /// The facts of a reduction.
    pub fn of_reduction(p: &impl Plan, r: &Reduction<'_>) -> Self {
        Self {
            elements: r.count,
            commutative: r.fold.commutative(),
            ..Self::of_data(p, r.shape().size().saturating_mul(r.count), true)
        }
    }
}

/// Way in which a collective is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Tokens to ranks at distances 1, 2, 4 ….
    Dissemination,
    /// A binomial tree.
    Binomial,
    /// One process exchanges with all others directly.
    Flat,
    /// A tree scatters pieces, a ring gathers them.
    ScatterAllgather,
    /// A chain in segments of so many bytes.
    Chain {
        /// Bytes of a segment.
        segment: u64,
    },
    /// Whole vectors between ranks at distances 1, 2, 4 ….
    RecursiveDoubling,
    /// Halved vectors one way, doubled runs back (Rabenseifner).
    HalvingDoubling,
    /// Pieces round a ring.
    Ring,
    /// Each rank works on one slice, which it takes from all others directly.
    Sliced,
    /// Packed runs to ever further ranks, then a rotation.
    Bruck,
    /// Pairs of blocks to both neighbours in turn.
    NeighbourExchange,
    /// Inside each node, between nodes, and inside each again: little crosses the network, and that
    /// once.
    Hierarchical,
    /// Hierarchical, with a slice of the data for each rank of a node: all of them talk to other
    /// nodes at once.
    ByNodeInSlices,
    /// Every pair of ranks directly, so many partners at a time.
    Linear {
        /// Partners at a time.
        batch: u32,
    },
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::Dissemination => f.write_str("dissemination"),
            Algorithm::Binomial => f.write_str("binomial tree"),
            Algorithm::Flat => f.write_str("flat"),
            Algorithm::ScatterAllgather => f.write_str("scatter and ring allgather"),
            Algorithm::Chain { segment } => write!(f, "chain in segments of {segment} B"),
            Algorithm::RecursiveDoubling => f.write_str("recursive doubling"),
            Algorithm::HalvingDoubling => f.write_str("recursive halving and doubling"),
            Algorithm::Ring => f.write_str("ring"),
            Algorithm::Sliced => f.write_str("one slice per rank, taken directly"),
            Algorithm::Bruck => f.write_str("Bruck"),
            Algorithm::NeighbourExchange => f.write_str("neighbour exchange"),
            Algorithm::Hierarchical => f.write_str("inside nodes, between them, inside them"),
            Algorithm::ByNodeInSlices => {
                f.write_str("inside nodes, between them in a slice per rank, inside them")
            }
            Algorithm::Linear { batch } => write!(f, "linear, {batch} partners at a time"),
        }
    }
}

/// The algorithm for a collective of this kind within one group.
pub fn choose(kind: CollectiveKind, mut ask: ChoiceInput) -> Algorithm {
    // Nodes of one rank each that share switches: only these algorithms know of switches.
    if !matches!(kind, CollectiveKind::Bcast | CollectiveKind::Allreduce) {
        ask.spread = ask.spread.filter(|spread| spread.each != 1);
    }
    match kind {
        CollectiveKind::Barrier if ask.spread.is_some() => Algorithm::Hierarchical,
        CollectiveKind::Internal | CollectiveKind::Barrier => Algorithm::Dissemination,
        CollectiveKind::Bcast => bcast(ask),
        CollectiveKind::Gather | CollectiveKind::Scatter => rooted(ask),
        CollectiveKind::Gatherv | CollectiveKind::Scatterv => Algorithm::Flat,
        CollectiveKind::Allgather | CollectiveKind::Allgatherv => allgather(ask),
        CollectiveKind::Alltoall => alltoall(ask),
        CollectiveKind::Alltoallv | CollectiveKind::Alltoallw => Algorithm::Linear {
            batch: limit::ALLTOALL_PARTNERS,
        },
        CollectiveKind::Reduce => reduce(ask),
        CollectiveKind::Allreduce => allreduce(ask),
        CollectiveKind::ReduceScatter | CollectiveKind::ReduceScatterBlock => reduce_scatter(ask),
        CollectiveKind::Scan | CollectiveKind::Exscan => scan(ask),
        CollectiveKind::NeighborAllgather
        | CollectiveKind::NeighborAllgatherv
        | CollectiveKind::NeighborAlltoall
        | CollectiveKind::NeighborAlltoallv
        | CollectiveKind::NeighborAlltoallw => Algorithm::Flat,
        constructor => {
            debug_assert!(constructor.is_constructor());
            Algorithm::Flat
        }
    }
}

/// Returns whether direct exchanges between all pairs are worth it: single copies side by side in
/// one memory.
fn few_together(ask: ChoiceInput) -> bool {
    ask.together && ask.ranks <= limit::DIRECT_RANKS
}

/// A segment of a chain: so long that a pipeline of any data keeps to a bounded number of segments.
fn segment(bytes: u64) -> u64 {
    limit::CHAIN_SEGMENT.max(bytes.div_ceil(limit::CHAIN_SEGMENTS))
}

fn bcast(ask: ChoiceInput) -> Algorithm {
    match ask {
        _ if ask.ranks <= 2 => Algorithm::Flat,
        _ if ask.spread.is_some() && ask.bytes <= limit::CHAIN_BYTES => Algorithm::Hierarchical,
        _ if ask.bytes <= limit::TREE_BYTES => Algorithm::Binomial,
        _ if few_together(ask) => Algorithm::Flat,
        _ if ask.bytes <= limit::CHAIN_BYTES => Algorithm::ScatterAllgather,
        _ => Algorithm::Chain {
            segment: segment(ask.bytes),
        },
    }
}

fn rooted(ask: ChoiceInput) -> Algorithm {
    if ask.ranks > 2 && ask.bytes <= limit::GATHER_TREE_BLOCK {
        Algorithm::Binomial
    } else {
        Algorithm::Flat
    }
}

fn allgather(ask: ChoiceInput) -> Algorithm {
    let total = ask.bytes.saturating_mul(u64::from(ask.ranks));
    match ask {
        _ if ask.ranks <= 2 => Algorithm::Linear { batch: 1 },
        _ if total <= limit::TREE_BYTES && ask.spread.is_some() => Algorithm::Hierarchical,
        _ if total <= limit::TREE_BYTES && ask.even && ask.ranks.is_power_of_two() => {
            Algorithm::RecursiveDoubling
        }
        _ if total <= limit::TREE_BYTES => Algorithm::Bruck,
        _ if few_together(ask) => Algorithm::Linear {
            batch: ask.ranks - 1,
        },
        // In the order of nodes, which neighbours by rank are not.
        _ if ask.spread.is_some_and(|spread| !spread.runs) => Algorithm::Ring,
        _ if ask.ranks.is_multiple_of(2) && total <= limit::CHAIN_BYTES => {
            Algorithm::NeighbourExchange
        }
        _ => Algorithm::Ring,
    }
}

fn alltoall(ask: ChoiceInput) -> Algorithm {
    match ask {
        _ if ask.spread.is_some() && ask.bytes <= limit::HIERARCHICAL_BLOCK => {
            Algorithm::Hierarchical
        }
        _ if ask.ranks >= limit::BRUCK_RANKS && ask.bytes <= limit::BRUCK_BLOCK => Algorithm::Bruck,
        _ if ask.bytes <= limit::ALLTOALL_BLOCK => Algorithm::Linear {
            batch: limit::ALLTOALL_PARTNERS,
        },
        _ => Algorithm::Linear {
            batch: limit::ALLTOALL_LARGE_PARTNERS,
        },
    }
}

/// Returns whether operands may be combined node by node: in any order, or because that is the
/// order of ranks.
fn by_node(ask: ChoiceInput) -> Option<NodeGrouping> {
    ask.spread.filter(|spread| ask.commutative || spread.runs)
}

fn reduce(ask: ChoiceInput) -> Algorithm {
    let few = ask.ranks <= limit::SLICED_RANKS;
    match ask {
        _ if by_node(ask).is_some() => Algorithm::Hierarchical,
        _ if ask.ranks <= 2
            || ask.bytes <= limit::REDUCE_TREE_BYTES
            || ask.elements < u64::from(ask.ranks) =>
        {
            Algorithm::Binomial
        }
        _ if few => Algorithm::Sliced,
        _ => Algorithm::Binomial,
    }
}

fn allreduce(ask: ChoiceInput) -> Algorithm {
    match (by_node(ask), ask) {
        (Some(spread), _) => allreduce_by_node(spread, ask),
        (None, ask) => allreduce_alike(ask),
    }
}

fn allreduce_by_node(spread: NodeGrouping, ask: ChoiceInput) -> Algorithm {
    let each = u64::from(spread.each);
    let sliced = (2..=u64::from(limit::SLICED_RANKS)).contains(&each)
        && ask.elements >= u64::from(ask.ranks);
    match sliced && ask.bytes / each.max(1) > limit::REDUCE_TREE_BYTES {
        true => Algorithm::ByNodeInSlices,
        false => Algorithm::Hierarchical,
    }
}

fn allreduce_alike(ask: ChoiceInput) -> Algorithm {
    match ask {
        _ if ask.bytes <= limit::REDUCE_TREE_BYTES || ask.elements < u64::from(ask.ranks) => {
            Algorithm::RecursiveDoubling
        }
        _ if !ask.commutative && ask.ranks > limit::SLICED_RANKS => Algorithm::RecursiveDoubling,
        _ if !ask.commutative || few_together(ask) => Algorithm::Sliced,
        _ if ask.bytes <= limit::CHAIN_BYTES => Algorithm::HalvingDoubling,
        _ => Algorithm::Ring,
    }
}

fn reduce_scatter(ask: ChoiceInput) -> Algorithm {
    let few = ask.ranks <= limit::SLICED_RANKS || ask.commutative;
    if few && (ask.bytes > limit::REDUCE_TREE_BYTES || ask.ranks == 2) {
        Algorithm::Sliced
    } else {
        Algorithm::RecursiveDoubling
    }
}

fn scan(ask: ChoiceInput) -> Algorithm {
    if ask.ranks > 2 && ask.bytes <= limit::TREE_BYTES {
        Algorithm::RecursiveDoubling
    } else {
        Algorithm::Chain {
            segment: segment(ask.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(ranks: u32, bytes: u64) -> ChoiceInput {
        ChoiceInput {
            ranks,
            bytes,
            elements: bytes / 8,
            commutative: true,
            together: true,
            spread: None,
            even: true,
        }
    }

    #[test]
    fn an_operation_that_does_not_commute_gets_an_algorithm_that_keeps_the_order() {
        for ranks in [2, 3, 8, 100, 5000] {
            for bytes in [8, 1 << 12, 1 << 20, 1 << 30] {
                let chosen = choose(
                    CollectiveKind::Allreduce,
                    ChoiceInput {
                        commutative: false,
                        ..ask(ranks, bytes)
                    },
                );
                assert!(
                    matches!(chosen, Algorithm::RecursiveDoubling | Algorithm::Sliced),
                    "{ranks} {bytes}: {chosen}"
                );
            }
        }
    }

    #[test]
    fn recursive_doubling_of_blocks_is_chosen_only_where_it_works() {
        for ranks in 1..200 {
            for even in [true, false] {
                let chosen = choose(
                    CollectiveKind::Allgather,
                    ChoiceInput {
                        even,
                        ..ask(ranks, 8)
                    },
                );
                let works = even && ranks.is_power_of_two();
                assert!(
                    works || chosen != Algorithm::RecursiveDoubling,
                    "{ranks} {even}: {chosen}"
                );
            }
        }
    }

    #[test]
    fn a_chain_has_a_bounded_number_of_segments() {
        for bytes in [1, 1 << 20, 1 << 40] {
            assert!(u64::div_ceil(bytes, segment(bytes)) <= limit::CHAIN_SEGMENTS);
        }
    }
}
