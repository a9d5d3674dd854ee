//! Virtual topologies: grids, graphs, distributed graphs.

use crate::c_args::{ConstPtr, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::group::length;
use crate::handle::*;
use crate::objects::{comm, info_or_null, publish_comm};
use garonne_mpi::error::Class;
use garonne_mpi::topo::{self, AdjacentRanks, DistGraph, GraphEdges};
use std::ffi::c_int;

fn flags(array: ConstPtr<c_int>, n: usize) -> Result<Vec<bool>> {
    Ok(array.take(n)?.into_iter().map(|flag| flag != 0).collect())
}

fn dimensions(ndims: c_int) -> Result<usize> {
    usize::try_from(ndims)
        .map_err(|_| CallError::new(Class::Dims, format!("the number of dimensions is {ndims}")))
}

/// Writes at most `max` of `values` to the program's array.
fn fill_up_to(out: Ptr<c_int>, max: c_int, values: impl IntoIterator<Item = c_int>) -> Result<()> {
    out.fill(
        values
            .into_iter()
            .take(length(max, "the length of an output array")?),
    )
}

pub(crate) fn topo_test(_: CallId, on: MPI_Comm, kind: Ptr<c_int>) -> Result<()> {
    kind.set(
        comm(on)?
            .topology()
            .map_or(MPI_UNDEFINED, |topology| topology.number()),
    )
}

pub(crate) fn dims_create(_: CallId, nodes: c_int, ndims: c_int, dims: Ptr<c_int>) -> Result<()> {
    let n = dimensions(ndims)?;
    if n == 0 {
        return Ok(());
    }
    let mut sides = dims.take(n)?;
    topo::dims_create(nodes, &mut sides)?;
    dims.fill(sides)
}

pub(crate) fn cart_create(
    call: CallId,
    on: MPI_Comm,
    ndims: c_int,
    dims: ConstPtr<c_int>,
    periods: ConstPtr<c_int>,
    reorder: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let (comm, n) = (comm(on)?, dimensions(ndims)?);
    out.set(publish_comm(comm.cart_create(
        &dims.take(n)?,
        &flags(periods, n)?,
        (reorder != 0, call.origin()),
    )?)?)
}

pub(crate) fn cart_map(
    _: CallId,
    on: MPI_Comm,
    ndims: c_int,
    dims: ConstPtr<c_int>,
    periods: ConstPtr<c_int>,
    rank: Ptr<c_int>,
) -> Result<()> {
    let (comm, n) = (comm(on)?, dimensions(ndims)?);
    rank.set(comm.cart_map(&dims.take(n)?, &flags(periods, n)?)?)
}

pub(crate) fn cartdim_get(_: CallId, on: MPI_Comm, ndims: Ptr<c_int>) -> Result<()> {
    ndims.set(comm(on)?.cart()?.dims.len() as c_int)
}

pub(crate) fn cart_get(
    _: CallId,
    on: MPI_Comm,
    max: c_int,
    dims: Ptr<c_int>,
    periods: Ptr<c_int>,
    coords: Ptr<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let cart = comm.cart()?;
    fill_up_to(dims, max, cart.dims.iter().copied())?;
    fill_up_to(
        periods,
        max,
        cart.periods.iter().map(|ring| c_int::from(*ring)),
    )?;
    fill_up_to(coords, max, cart.coords(comm.rank() as c_int)?)
}

pub(crate) fn cart_rank(
    _: CallId,
    on: MPI_Comm,
    coords: ConstPtr<c_int>,
    rank: Ptr<c_int>,
) -> Result<()> {
    let cart = comm(on)?.cart()?;
    rank.set(cart.rank(&coords.take(cart.dims.len())?)?)
}

pub(crate) fn cart_coords(
    _: CallId,
    on: MPI_Comm,
    rank: c_int,
    max: c_int,
    coords: Ptr<c_int>,
) -> Result<()> {
    fill_up_to(coords, max, comm(on)?.cart()?.coords(rank)?)
}

pub(crate) fn cart_shift(
    _: CallId,
    on: MPI_Comm,
    direction: c_int,
    by: c_int,
    source: Ptr<c_int>,
    dest: Ptr<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let (from, to) = comm.cart()?.shift(comm.rank(), direction, by)?;
    source.set(from)?;
    dest.set(to)
}

pub(crate) fn cart_sub(
    call: CallId,
    on: MPI_Comm,
    remain: ConstPtr<c_int>,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let comm = comm(on)?;
    let remain = flags(remain, comm.cart()?.dims.len())?;
    out.set(publish_comm(Some(comm.cart_sub(&remain, call.origin())?))?)
}

/// The two arrays that describe a graph: the last index says how many edges there are.
fn graph_arrays(
    nodes: c_int,
    index: ConstPtr<c_int>,
    edges: ConstPtr<c_int>,
) -> Result<(Vec<c_int>, Vec<c_int>)> {
    let index = index.take(length(nodes, "the number of nodes")?)?;
    let n = length(index.last().copied().unwrap_or(0), "the number of edges")?;
    Ok((index, edges.take(n)?))
}

pub(crate) fn graph_create(
    call: CallId,
    on: MPI_Comm,
    nodes: c_int,
    index: ConstPtr<c_int>,
    edges: ConstPtr<c_int>,
    reorder: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let comm = comm(on)?;
    let (index, edges) = graph_arrays(nodes, index, edges)?;
    out.set(publish_comm(comm.graph_create(
        &index,
        &edges,
        (reorder != 0, call.origin()),
    )?)?)
}

pub(crate) fn graph_map(
    _: CallId,
    on: MPI_Comm,
    nodes: c_int,
    index: ConstPtr<c_int>,
    edges: ConstPtr<c_int>,
    rank: Ptr<c_int>,
) -> Result<()> {
    let comm = comm(on)?;
    let (index, edges) = graph_arrays(nodes, index, edges)?;
    rank.set(comm.graph_map(&index, &edges)?)
}

pub(crate) fn graphdims_get(
    _: CallId,
    on: MPI_Comm,
    nodes: Ptr<c_int>,
    edges: Ptr<c_int>,
) -> Result<()> {
    let graph = comm(on)?.graph()?;
    nodes.set(graph.index.len() as c_int)?;
    edges.set(graph.edges.len() as c_int)
}

pub(crate) fn graph_get(
    _: CallId,
    on: MPI_Comm,
    max_index: c_int,
    max_edges: c_int,
    index: Ptr<c_int>,
    edges: Ptr<c_int>,
) -> Result<()> {
    let graph = comm(on)?.graph()?;
    fill_up_to(index, max_index, graph.index.iter().copied())?;
    fill_up_to(edges, max_edges, graph.edges.iter().copied())
}

pub(crate) fn graph_neighbors_count(
    _: CallId,
    on: MPI_Comm,
    rank: c_int,
    count: Ptr<c_int>,
) -> Result<()> {
    count.set(comm(on)?.graph()?.neighbors(rank)?.len() as c_int)
}

pub(crate) fn graph_neighbors(
    _: CallId,
    on: MPI_Comm,
    rank: c_int,
    max: c_int,
    neighbors: Ptr<c_int>,
) -> Result<()> {
    fill_up_to(
        neighbors,
        max,
        comm(on)?.graph()?.neighbors(rank)?.iter().copied(),
    )
}

/// The weights of `n` edges; `None` for an unweighted graph.
fn weights(array: ConstPtr<c_int>, n: usize) -> Result<Option<Vec<c_int>>> {
    match array.addr() {
        MPI_UNWEIGHTED => Ok(None),
        MPI_WEIGHTS_EMPTY => Ok(Some(Vec::new())),
        _ => array.take(n).map(Some),
    }
}

pub(crate) fn dist_graph_create_adjacent(
    call: CallId,
    on: MPI_Comm,
    indegree: c_int,
    sources: ConstPtr<c_int>,
    source_weights: ConstPtr<c_int>,
    outdegree: c_int,
    destinations: ConstPtr<c_int>,
    dest_weights: ConstPtr<c_int>,
    with: MPI_Info,
    reorder: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let comm = comm(on)?;
    info_or_null(with)?;
    let (inward, outward) = (
        length(indegree, "the indegree")?,
        length(outdegree, "the outdegree")?,
    );
    let (into, from) = (
        weights(source_weights, inward)?,
        weights(dest_weights, outward)?,
    );
    let weighted = into.is_some();
    if weighted != from.is_some() {
        return Err(CallError::new(
            Class::Arg,
            "MPI_UNWEIGHTED was given for one direction only",
        ));
    }
    let graph = DistGraph {
        sources: AdjacentRanks {
            ranks: sources.take(inward)?,
            weights: into.unwrap_or_default(),
        },
        destinations: AdjacentRanks {
            ranks: destinations.take(outward)?,
            weights: from.unwrap_or_default(),
        },
        weighted,
    };
    out.set(publish_comm(Some(
        comm.dist_graph_adjacent(graph, (reorder != 0, call.origin()))?,
    ))?)
}

pub(crate) fn dist_graph_create(
    call: CallId,
    on: MPI_Comm,
    n: c_int,
    sources: ConstPtr<c_int>,
    degrees: ConstPtr<c_int>,
    destinations: ConstPtr<c_int>,
    edge_weights: ConstPtr<c_int>,
    with: MPI_Info,
    reorder: c_int,
    out: Ptr<MPI_Comm>,
) -> Result<()> {
    let comm = comm(on)?;
    info_or_null(with)?;
    let n = length(n, "the number of source nodes")?;
    let (sources, degrees) = (sources.take(n)?, degrees.take(n)?);
    let mut total = 0;
    for degree in &degrees {
        total += length(*degree, "a degree")?;
    }
    let destinations = destinations.take(total)?;
    let weights = weights(edge_weights, total)?;
    let edges = GraphEdges {
        sources: &sources,
        degrees: &degrees,
        destinations: &destinations,
        weights: weights.as_deref(),
    };
    out.set(publish_comm(Some(
        comm.dist_graph_create(edges, (reorder != 0, call.origin()))?,
    ))?)
}

pub(crate) fn dist_graph_neighbors_count(
    _: CallId,
    on: MPI_Comm,
    indegree: Ptr<c_int>,
    outdegree: Ptr<c_int>,
    weighted: Ptr<c_int>,
) -> Result<()> {
    let graph = comm(on)?.dist_graph()?;
    indegree.set(graph.sources.ranks.len() as c_int)?;
    outdegree.set(graph.destinations.ranks.len() as c_int)?;
    weighted.set(graph.weighted.into())
}

/// Writes one direction of a distributed graph to the program's arrays. Does not touch the weights
/// of an unweighted graph.
fn write_adjacent(
    side: &AdjacentRanks,
    max: c_int,
    ranks: Ptr<c_int>,
    weights: Ptr<c_int>,
) -> Result<()> {
    fill_up_to(ranks, max, side.ranks.iter().copied())?;
    if matches!(weights.addr(), MPI_UNWEIGHTED | MPI_WEIGHTS_EMPTY) {
        return Ok(());
    }
    fill_up_to(weights, max, side.weights.iter().copied())
}

pub(crate) fn dist_graph_neighbors(
    _: CallId,
    on: MPI_Comm,
    max_in: c_int,
    sources: Ptr<c_int>,
    source_weights: Ptr<c_int>,
    max_out: c_int,
    destinations: Ptr<c_int>,
    dest_weights: Ptr<c_int>,
) -> Result<()> {
    let graph = comm(on)?.dist_graph()?;
    write_adjacent(&graph.sources, max_in, sources, source_weights)?;
    write_adjacent(&graph.destinations, max_out, destinations, dest_weights)
}
