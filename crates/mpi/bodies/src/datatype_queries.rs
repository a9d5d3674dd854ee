//! Addresses, and queries of datatypes.

use crate::attr::{set_type_name, type_name};
use crate::c_args::{Buf, CountOut, Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::group::length;
use crate::handle::*;
use crate::objects::{datatype, publish_type};
use crate::rank_context::RankContext;
use garonne_mpi::datatype::{Contents, Datatype, TypeClass};
use garonne_mpi::error::Class;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

pub(crate) fn get_address(_: CallId, location: Buf, address: Ptr<MPI_Aint>) -> Result<()> {
    address.set(location.addr() as MPI_Aint)
}

pub(crate) fn aint_add(_: CallId, base: MPI_Aint, disp: MPI_Aint) -> MPI_Aint {
    base.wrapping_add(disp)
}

pub(crate) fn aint_diff(_: CallId, left: MPI_Aint, right: MPI_Aint) -> MPI_Aint {
    left.wrapping_sub(right)
}

pub(crate) fn type_size(_: CallId, handle: MPI_Datatype, size: CountOut) -> Result<()> {
    size.set_or_undefined(
        i64::try_from(datatype(handle)?.size()).unwrap_or(i64::from(MPI_UNDEFINED)),
    )
}

pub(crate) fn type_get_extent(
    _: CallId,
    handle: MPI_Datatype,
    lb: CountOut,
    extent: CountOut,
) -> Result<()> {
    let found = datatype(handle)?;
    lb.set_or_undefined(found.lb())?;
    extent.set_or_undefined(found.extent())
}

pub(crate) fn type_get_true_extent(
    _: CallId,
    handle: MPI_Datatype,
    lb: CountOut,
    extent: CountOut,
) -> Result<()> {
    let found = datatype(handle)?;
    lb.set_or_undefined(found.true_lb())?;
    extent.set_or_undefined(found.true_extent())
}

pub(crate) fn type_get_name(
    _: CallId,
    handle: MPI_Datatype,
    name: StrOut,
    len: Ptr<c_int>,
) -> Result<()> {
    // The null handle has a name too (MPI 5.0, section 7.8).
    let text = if handle == MPI_DATATYPE_NULL {
        "MPI_DATATYPE_NULL".into()
    } else {
        type_name(datatype(handle)?)
    };
    let written = name.write(&text, MPI_MAX_OBJECT_NAME as usize)?;
    len.set(written as c_int)
}

pub(crate) fn type_set_name(_: CallId, handle: MPI_Datatype, name: StrIn) -> Result<()> {
    set_type_name(datatype(handle)?, &name.text()?);
    Ok(())
}

fn int_form_only(of: &Datatype) -> Result<()> {
    if of.envelope().large_counts == 0 {
        return Ok(());
    }
    Err(CallError::new(
        Class::Type,
        format!("{of} was made with large counts; call the `_c` function"),
    ))
}

pub(crate) fn type_get_envelope(
    _: CallId,
    handle: MPI_Datatype,
    integers: Ptr<c_int>,
    addresses: Ptr<c_int>,
    types: Ptr<c_int>,
    combiner: Ptr<c_int>,
) -> Result<()> {
    let found = datatype(handle)?;
    int_form_only(found)?;
    let envelope = found.envelope();
    CountOut::from(integers).set(envelope.integers as i64)?;
    CountOut::from(addresses).set(envelope.addresses as i64)?;
    CountOut::from(types).set(envelope.types as i64)?;
    combiner.set(envelope.combiner as c_int)
}

pub(crate) fn type_get_envelope_c(
    _: CallId,
    handle: MPI_Datatype,
    integers: Ptr<MPI_Count>,
    addresses: Ptr<MPI_Count>,
    large_counts: Ptr<MPI_Count>,
    types: Ptr<MPI_Count>,
    combiner: Ptr<c_int>,
) -> Result<()> {
    let envelope = datatype(handle)?.envelope();
    integers.set(envelope.integers as i64)?;
    addresses.set(envelope.addresses as i64)?;
    large_counts.set(envelope.large_counts as i64)?;
    types.set(envelope.types as i64)?;
    combiner.set(envelope.combiner as c_int)
}

fn contents_of(handle: MPI_Datatype) -> Result<Contents> {
    let found = datatype(handle)?;
    if found.code().is_some() {
        return Err(CallError::new(
            Class::Type,
            format!("{found} is a named predefined type: it has no contents"),
        ));
    }
    Ok(found.contents())
}

/// Room for `max` entries suffices for `have`.
fn check_room(what: &str, max: i64, have: usize) -> Result<()> {
    if length(max, what)? >= have {
        return Ok(());
    }
    Err(CallError::new(
        Class::Arg,
        format!("there is room for {max} {what}, but the datatype has {have}"),
    ))
}

fn return_types(types: Vec<Datatype>, out: Ptr<MPI_Datatype>) -> Result<()> {
    let handles = types
        .into_iter()
        .map(publish_type)
        .collect::<Result<Vec<_>>>()?;
    out.fill(handles)
}

pub(crate) fn type_get_contents(
    _: CallId,
    handle: MPI_Datatype,
    max_integers: c_int,
    max_addresses: c_int,
    max_types: c_int,
    integers: Ptr<c_int>,
    addresses: Ptr<MPI_Aint>,
    types: Ptr<MPI_Datatype>,
) -> Result<()> {
    let contents = contents_of(handle)?;
    int_form_only(datatype(handle)?)?;
    check_room("integers", max_integers.into(), contents.integers.len())?;
    check_room("addresses", max_addresses.into(), contents.addresses.len())?;
    check_room("datatypes", max_types.into(), contents.types.len())?;
    integers.fill(contents.integers)?;
    addresses.fill(
        contents
            .addresses
            .into_iter()
            .map(|address| address as MPI_Aint),
    )?;
    return_types(contents.types, types)
}

pub(crate) fn type_get_contents_c(
    _: CallId,
    handle: MPI_Datatype,
    max_integers: MPI_Count,
    max_addresses: MPI_Count,
    max_large_counts: MPI_Count,
    max_types: MPI_Count,
    integers: Ptr<c_int>,
    addresses: Ptr<MPI_Aint>,
    large_counts: Ptr<MPI_Count>,
    types: Ptr<MPI_Datatype>,
) -> Result<()> {
    let contents = contents_of(handle)?;
    check_room("integers", max_integers, contents.integers.len())?;
    check_room("addresses", max_addresses, contents.addresses.len())?;
    check_room(
        "large counts",
        max_large_counts,
        contents.large_counts.len(),
    )?;
    check_room("datatypes", max_types, contents.types.len())?;
    integers.fill(contents.integers)?;
    addresses.fill(
        contents
            .addresses
            .into_iter()
            .map(|address| address as MPI_Aint),
    )?;
    large_counts.fill(contents.large_counts)?;
    return_types(contents.types, types)
}

pub(crate) fn type_get_value_index(
    _: CallId,
    value: MPI_Datatype,
    index: MPI_Datatype,
    pair: Ptr<MPI_Datatype>,
) -> Result<()> {
    // Only named pairs are returned: a client that rebuilds a type from its contents has no
    // function that makes other pairs.
    let named =
        Datatype::value_index(datatype(value)?, datatype(index)?).and_then(|found| found.code());
    pair.set(named.map_or(MPI_DATATYPE_NULL, |code| MPI_Datatype(code.into())))
}

pub(crate) fn type_match_size(
    _: CallId,
    class: c_int,
    size: c_int,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    let class = TypeClass::from_abi(class).ok_or_else(|| {
        CallError::new(
            Class::Arg,
            format!("{class} is no type class (MPI_TYPECLASS_*)"),
        )
    })?;
    out.set(publish_type(Datatype::match_size(class, size)?)?)
}

pub(crate) fn type_create_f90_real(
    _: CallId,
    precision: c_int,
    range: c_int,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    out.set(f90_type_once(("real", precision, range), || {
        Datatype::f90_real(precision, range)
    })?)
}

pub(crate) fn type_create_f90_complex(
    _: CallId,
    precision: c_int,
    range: c_int,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    out.set(f90_type_once(("complex", precision, range), || {
        Datatype::f90_complex(precision, range)
    })?)
}

pub(crate) fn type_create_f90_integer(
    _: CallId,
    range: c_int,
    out: Ptr<MPI_Datatype>,
) -> Result<()> {
    out.set(f90_type_once(("integer", 0, range), || {
        Datatype::f90_integer(range)
    })?)
}

/// Fortran's class, precision and range, as a program asked for them.
type F90Kind = (&'static str, c_int, c_int);

/// Types that a rank's program got for Fortran kinds. Programs must not free them and may ask any
/// number of times, so each type is made once.
pub(crate) struct F90Types(Mutex<Vec<(F90Kind, MPI_Datatype)>>);

impl F90Types {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

fn f90_type_once(
    asked: F90Kind,
    make: impl FnOnce() -> garonne_mpi::error::Result<Datatype>,
) -> Result<MPI_Datatype> {
    let types = &RankContext::current().f90_types;
    let mut kinds = types.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, handle)) = kinds.iter().find(|(known, _)| *known == asked) {
        return Ok(*handle);
    }
    let handle = publish_type(make()?)?;
    kinds.push((asked, handle));
    Ok(handle)
}
