//! Making and freeing datatypes.

use crate::abi::BOUND_MARKERS;
use crate::attr::{attrs, find_attrs};
use crate::c_args::{ConstPtr, CountsIn, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::datatype_refs;
use crate::group::length;
use crate::handle::*;
use crate::objects::{self, datatype, publish, unknown_handle};
use garonne_mpi::datatype::{
    ArrayOrder, Constructor, ContentsForm, DarrayDim, Datatype, Distribution,
};
use garonne_mpi::error::Class;
use std::ffi::c_int;

/// Form of the arguments, which is remembered for `MPI_Type_get_contents`.
fn form_of(call: CallId) -> ContentsForm {
    if call.name().ends_with("_c") {
        ContentsForm::Large
    } else {
        ContentsForm::Int
    }
}

/// Makes a type.
fn make(call: CallId, constructor: Constructor, out: Ptr<MPI_Datatype>) -> Result<()> {
    out.set(publish(
        objects::types(),
        Datatype::construct(constructor, form_of(call))?,
    )?)
}

fn count_of(count: MPI_Count) -> Result<usize> {
    usize::try_from(count).map_err(|_| {
        CallError::new(
            Class::Count,
            format!("count is {count}; it must not be negative"),
        )
    })
}

pub(crate) fn type_contiguous(
    call: CallId,
    count: MPI_Count,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    make(
        call,
        Constructor::Contiguous {
            count,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_vector(
    call: CallId,
    count: MPI_Count,
    blocklength: MPI_Count,
    stride: MPI_Count,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    make(
        call,
        Constructor::Vector {
            count,
            blocklength,
            stride,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_create_hvector(
    call: CallId,
    count: MPI_Count,
    blocklength: MPI_Count,
    stride: MPI_Count,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    make(
        call,
        Constructor::Hvector {
            count,
            blocklength,
            stride,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_indexed(
    call: CallId,
    count: MPI_Count,
    blocklengths: CountsIn,
    displacements: CountsIn,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let n = count_of(count)?;
    let (blocklengths, displacements) = (blocklengths.take(n)?, displacements.take(n)?);
    make(
        call,
        Constructor::Indexed {
            blocklengths,
            displacements,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_create_hindexed(
    call: CallId,
    count: MPI_Count,
    blocklengths: CountsIn,
    displacements: CountsIn,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let n = count_of(count)?;
    let (blocklengths, displacements) = (blocklengths.take(n)?, displacements.take(n)?);
    make(
        call,
        Constructor::Hindexed {
            blocklengths,
            displacements,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_create_indexed_block(
    call: CallId,
    count: MPI_Count,
    blocklength: MPI_Count,
    displacements: CountsIn,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let displacements = displacements.take(count_of(count)?)?;
    make(
        call,
        Constructor::IndexedBlock {
            blocklength,
            displacements,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_create_hindexed_block(
    call: CallId,
    count: MPI_Count,
    blocklength: MPI_Count,
    displacements: CountsIn,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let displacements = displacements.take(count_of(count)?)?;
    make(
        call,
        Constructor::HindexedBlock {
            blocklength,
            displacements,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_create_struct(
    call: CallId,
    count: MPI_Count,
    blocklengths: CountsIn,
    displacements: CountsIn,
    handles: ConstPtr<MPI_Datatype>,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let n = count_of(count)?;
    let mut parts = StructParts {
        blocklengths: blocklengths.take(n)?,
        displacements: displacements.take(n)?,
        handles: handles.take(n)?,
    };
    let [lower, upper] = parts.take_markers();
    let types = parts.handles.into_iter();
    let made = Datatype::construct(
        Constructor::Struct {
            blocklengths: parts.blocklengths,
            displacements: parts.displacements,
            types: types
                .map(|handle| datatype(handle).cloned())
                .collect::<Result<_>>()?,
        },
        form_of(call),
    )?;
    let made = match (lower, upper) {
        (None, None) => made,
        _ => made.with_markers(lower, upper, form_of(call))?,
    };
    out.set(publish(objects::types(), made)?)
}

/// Arguments of `MPI_Type_create_struct`.
struct StructParts {
    blocklengths: Vec<i64>,
    displacements: Vec<i64>,
    handles: Vec<MPI_Datatype>,
}

impl StructParts {
    /// Takes the entries of `MPI_LB` and `MPI_UB` out, which programs of other ABIs may still have.
    /// Returns the least displacement of the former and the greatest of the latter.
    fn take_markers(&mut self) -> [Option<i64>; 2] {
        let marker = |handle: &MPI_Datatype| {
            let mut words = BOUND_MARKERS.iter();
            words.find_map(|words| words.iter().position(|word| *word == handle.0))
        };
        let markers: Vec<Option<usize>> = self.handles.iter().map(marker).collect();
        if markers.iter().all(Option::is_none) {
            return [None, None];
        }
        let mut bounds: [Option<i64>; 2] = [None, None];
        for (at, marker) in markers.iter().enumerate() {
            let place = self.displacements[at];
            match marker {
                _ if self.blocklengths[at] == 0 => {}
                Some(0) => bounds[0] = Some(bounds[0].map_or(place, |least| least.min(place))),
                Some(_) => bounds[1] = Some(bounds[1].map_or(place, |most| most.max(place))),
                None => {}
            }
        }
        let keep = |at: usize| markers[at].is_none();
        self.blocklengths = kept(&self.blocklengths, keep);
        self.displacements = kept(&self.displacements, keep);
        self.handles = kept(&self.handles, keep);
        bounds
    }
}

/// Copies the elements at some places.
fn kept<T: Copy>(all: &[T], keep: impl Fn(usize) -> bool) -> Vec<T> {
    let places = all.iter().enumerate();
    places
        .filter(|(at, _)| keep(*at))
        .map(|(_, element)| *element)
        .collect()
}

fn order(order: c_int) -> Result<ArrayOrder> {
    ArrayOrder::from_abi(order).ok_or_else(|| {
        CallError::new(
            Class::Arg,
            format!("order {order} is neither MPI_ORDER_C nor MPI_ORDER_FORTRAN"),
        )
    })
}

pub(crate) fn type_create_subarray(
    call: CallId,
    ndims: c_int,
    sizes: CountsIn,
    subsizes: CountsIn,
    starts: CountsIn,
    memory_order: c_int,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let n = length(ndims, "the number of dimensions")?;
    let (sizes, subsizes, starts) = (sizes.take(n)?, subsizes.take(n)?, starts.take(n)?);
    let (order, old) = (order(memory_order)?, datatype(old)?.clone());
    make(
        call,
        Constructor::Subarray {
            sizes,
            subsizes,
            starts,
            order,
            old,
        },
        out,
    )
}

pub(crate) fn type_create_darray(
    call: CallId,
    size: c_int,
    rank: c_int,
    ndims: c_int,
    gsizes: CountsIn,
    distribs: ConstPtr<c_int>,
    dargs: ConstPtr<c_int>,
    psizes: ConstPtr<c_int>,
    memory_order: c_int,
    old: MPI_Datatype,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let dim = |i: usize| {
        let (distribution, darg) = (distribs.at(i)?, dargs.at(i)?);
        Ok(DarrayDim {
            gsize: gsizes.at(i)?,
            distribution: Distribution::from_abi(distribution).ok_or_else(|| {
                CallError::new(
                    Class::Arg,
                    format!("{distribution} is no distribution (MPI_DISTRIBUTE_*)"),
                )
            })?,
            darg: (darg != MPI_DISTRIBUTE_DFLT_DARG).then_some(darg),
            psize: psizes.at(i)?,
        })
    };
    let dims = (0..length(ndims, "the number of dimensions")?)
        .map(dim)
        .collect::<Result<_>>()?;
    let (order, old) = (order(memory_order)?, datatype(old)?.clone());
    make(
        call,
        Constructor::Darray {
            size,
            rank,
            dims,
            order,
            old,
        },
        out,
    )
}

pub(crate) fn type_create_resized(
    call: CallId,
    old: MPI_Datatype,
    lb: MPI_Count,
    extent: MPI_Count,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    make(
        call,
        Constructor::Resized {
            lb,
            extent,
            old: datatype(old)?.clone(),
        },
        out,
    )
}

pub(crate) fn type_dup(_: CallId, old: MPI_Datatype, out: Ptr<MPI_Datatype>) -> Result<()> {
    let original = datatype(old)?;
    let new = original.dup()?;
    if let Some(attrs_of_original) = find_attrs(original)? {
        attrs_of_original.copy_to(old.0, &*attrs(&new)?)?;
    }
    out.set(publish(objects::types(), new)?)
}

pub(crate) fn type_commit(_: CallId, handle: Ptr<MPI_Datatype>) -> Result<()> {
    datatype(handle.get()?)?.commit();
    Ok(())
}

/// Operations that use the type keep it alive.
pub(crate) fn type_free(_: CallId, handle: Ptr<MPI_Datatype>) -> Result<()> {
    let old = handle.get()?;
    let found = datatype(old)?;
    if found.is_predefined() {
        return Err(CallError::new(
            Class::Type,
            format!("{found} is predefined and cannot be freed"),
        ));
    }
    if let Some(attrs_of_found) = find_attrs(found)? {
        attrs_of_found.delete_all(old.0)?;
    }
    if !datatype_refs::free(old) {
        return Err(unknown_handle(
            Class::Type,
            "datatype",
            old.0,
            MPI_DATATYPE_NULL.0,
        ));
    }
    handle.set(MPI_DATATYPE_NULL)
}
