//! Array constructors: subarrays and distributed arrays (MPI 5.0, section 5.1.3 and 5.1.4), as
//! nested repetitions.

use super::Datatype;
use super::constructors::{ArrayOrder, DarrayDim, Distribution, repeat};
use super::typemap::Typemap;
use crate::error::{Class, Error, Result};
use std::sync::Arc;

/// One dimension of a subarray.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubarrayDim {
    size: u64,
    subsize: u64,
    start: u64,
}

/// Checks the dimensions of a subarray.
pub(super) fn subarray_dims(
    sizes: &[i64],
    subsizes: &[i64],
    starts: &[i64],
) -> Result<Vec<SubarrayDim>> {
    if sizes.is_empty() || subsizes.len() != sizes.len() || starts.len() != sizes.len() {
        let text = format!(
            "a subarray of {} dimensions with {} subsizes and {} starts",
            sizes.len(),
            subsizes.len(),
            starts.len()
        );
        return Err(Error::new(Class::Arg, text));
    }
    let one = |((&size, &subsize), &start): ((&i64, &i64), &i64)| {
        if size < 1 || subsize < 1 || subsize > size || start < 0 || start > size - subsize {
            let text =
                format!("subarray of {subsize} from {start} does not lie in a dimension of {size}");
            return Err(Error::new(Class::Arg, text));
        }
        Ok(SubarrayDim {
            size: size as u64,
            subsize: subsize as u64,
            start: start as u64,
        })
    };
    sizes.iter().zip(subsizes).zip(starts).map(one).collect()
}

/// The part of an array that `dims` selects, with the bounds of the whole array.
pub(super) fn subarray(dims: &[SubarrayDim], order: ArrayOrder, old: &Datatype) -> Result<Typemap> {
    let mut tree = Typemap::Type(old.clone());
    let mut extent = old.extent();
    for dim in fastest_first(dims, order) {
        let start = times(dim.start, extent)?;
        tree = Typemap::List(vec![(start, Arc::new(repeat(dim.subsize, extent, tree)))]);
        extent = times(dim.size, extent)?;
    }
    Ok(Typemap::Bounded {
        lb: 0,
        ub: extent,
        body: Arc::new(tree),
    })
}

/// The part of a distributed array that belongs to `rank` of `size`; `of` is the array's order and
/// element type.
pub(super) fn darray(
    size: i32,
    rank: i32,
    dims: &[DarrayDim],
    of: (ArrayOrder, &Datatype),
) -> Result<Typemap> {
    let (order, old) = of;
    let coordinates = coordinates(size, rank, dims)?;
    let placed: Vec<(DarrayDim, u64)> = dims.iter().copied().zip(coordinates).collect();
    let mut tree = Arc::new(Typemap::Type(old.clone()));
    let mut extent = old.extent();
    for (dim, coordinate) in fastest_first(&placed, order) {
        tree = Arc::new(distribute(dim, *coordinate, tree, extent)?);
        extent = times(dim.gsize as u64, extent)?;
    }
    Ok(Typemap::Bounded {
        lb: 0,
        ub: extent,
        body: tree,
    })
}

/// Dimensions from the one that is contiguous in memory outwards.
fn fastest_first<T>(dims: &[T], order: ArrayOrder) -> Box<dyn Iterator<Item = &T> + '_> {
    match order {
        ArrayOrder::C => Box::new(dims.iter().rev()),
        ArrayOrder::Fortran => Box::new(dims.iter()),
    }
}

/// Returns where `rank` is in the process grid; the grid is always in C order.
fn coordinates(size: i32, rank: i32, dims: &[DarrayDim]) -> Result<Vec<u64>> {
    let bad = |text: String| Err(Error::new(Class::Arg, text));
    if dims.is_empty() {
        return bad("a distributed array needs at least one dimension".into());
    }
    if let Some(dim) = dims.iter().find(|dim| dim.gsize < 1 || dim.psize < 1) {
        return bad(format!(
            "array dimension of {} over {} processes",
            dim.gsize, dim.psize
        ));
    }
    let grid = dims.iter().try_fold(1i64, |product, dim| {
        product.checked_mul(i64::from(dim.psize))
    });
    if grid != Some(i64::from(size)) {
        return bad(format!("the process grid does not have {size} processes"));
    }
    if rank < 0 || rank >= size {
        return bad(format!("rank {rank} is not one of {size}"));
    }
    let (mut rest, mut size) = (rank, size);
    Ok(dims
        .iter()
        .map(|dim| {
            size /= dim.psize;
            let coordinate = rest / size;
            rest %= size;
            coordinate as u64
        })
        .collect())
}

/// One dimension distributed in blocks of `darg`, dealt out in turns: the standard's `cyclic`, of
/// which the other distributions are special cases.
fn distribute(
    dim: &DarrayDim,
    coordinate: u64,
    body: Arc<Typemap>,
    extent: i64,
) -> Result<Typemap> {
    let (gsize, psize) = (dim.gsize as u64, dim.psize as u64);
    let darg = block_length(dim)?;
    let blocks = gsize.div_ceil(darg);
    let mine = blocks.saturating_sub(coordinate).div_ceil(psize);
    let rest = gsize % darg;
    let partial = rest != 0 && mine > 0 && (blocks - 1) % psize == coordinate;
    let full = mine - u64::from(partial);
    let start = times(coordinate * darg, extent)?;
    let turn = times(psize.saturating_mul(darg).min(i64::MAX as u64), extent);
    let turn = if mine > 1 { turn? } else { turn.unwrap_or(0) };
    let block = Arc::new(Typemap::Repeat {
        count: darg,
        stride: extent,
        body: body.clone(),
    });
    let mut list = vec![(
        start,
        Arc::new(Typemap::Repeat {
            count: full,
            stride: turn,
            body: block,
        }),
    )];
    if partial {
        let at = start + times(full, turn)?;
        list.push((
            at,
            Arc::new(Typemap::Repeat {
                count: rest,
                stride: extent,
                body,
            }),
        ));
    }
    Ok(Typemap::List(list))
}

/// Elements per block of one dimension.
fn block_length(dim: &DarrayDim) -> Result<u64> {
    let bad = |text: String| Err(Error::new(Class::Arg, text));
    let (gsize, psize) = (dim.gsize as u64, dim.psize as u64);
    match (dim.distribution, dim.darg) {
        (Distribution::None, _) if psize != 1 => bad(format!(
            "a dimension that is not distributed over a grid dimension of {psize}"
        )),
        (Distribution::None, _) => Ok(gsize),
        (_, Some(darg)) if darg < 1 => bad(format!("distribution argument {darg} is not positive")),
        (Distribution::Block, None) => Ok(gsize.div_ceil(psize)),
        (Distribution::Block, Some(darg)) if (darg as u64).saturating_mul(psize) < gsize => bad(
            format!("blocks of {darg} on {psize} processes do not hold {gsize} elements"),
        ),
        (Distribution::Cyclic, None) => Ok(1),
        (_, Some(darg)) => Ok(darg as u64),
    }
}

/// `count * extent`, where it fits.
fn times(count: u64, extent: i64) -> Result<i64> {
    i64::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(extent))
        .ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("an array of {count} times {extent} bytes does not fit 64 bits"),
            )
        })
}
