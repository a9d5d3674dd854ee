//! Functions that query the ABI (`MPI_Abi_get_*`) and set the sizes and logical values of Fortran's
//! types (`MPI_Abi_set_fortran_*`).

use crate::c_args::{Buf, Ptr};
use crate::call::{CallError, CallId, Result};
use crate::constants::*;
use crate::handle::*;
use crate::objects::{info, infos, publish};
use garonne_mpi::datatype::{
    FortranBooleans, FortranSizes, codes, configure_booleans, configure_fortran, fortran_sizes,
    is_predefined_with, known_fortran_booleans,
};
use garonne_mpi::error::Class;
use garonne_mpi::info::Info;
use std::ffi::c_int;

pub(crate) fn abi_get_version(_: CallId, major: Ptr<c_int>, minor: Ptr<c_int>) -> Result<()> {
    major.set(MPI_ABI_VERSION)?;
    minor.set(MPI_ABI_SUBVERSION)
}

pub(crate) fn abi_get_info(_: CallId, out: Ptr<MPI_Info>) -> Result<()> {
    let sizes = [
        ("mpi_aint_size", size_of::<MPI_Aint>()),
        ("mpi_count_size", size_of::<MPI_Count>()),
        ("mpi_offset_size", size_of::<MPI_Offset>()),
    ];
    let pairs = sizes.map(|(key, size)| (key, size.to_string()));
    out.set(publish(infos(), Info::from_pairs(pairs))?)
}

/// Types of Fortran with a size in their name: the info key for each, and its code.
const SIZED: [(&str, u16); 14] = [
    ("mpi_logical1_supported", codes::LOGICAL1),
    ("mpi_logical2_supported", codes::LOGICAL2),
    ("mpi_logical4_supported", codes::LOGICAL4),
    ("mpi_logical8_supported", codes::LOGICAL8),
    ("mpi_logical16_supported", codes::LOGICAL16),
    ("mpi_integer1_supported", codes::INTEGER1),
    ("mpi_integer2_supported", codes::INTEGER2),
    ("mpi_integer4_supported", codes::INTEGER4),
    ("mpi_integer8_supported", codes::INTEGER8),
    ("mpi_integer16_supported", codes::INTEGER16),
    ("mpi_real2_supported", codes::REAL2),
    ("mpi_real4_supported", codes::REAL4),
    ("mpi_real8_supported", codes::REAL8),
    ("mpi_real16_supported", codes::REAL16),
];
const SIZED_COMPLEX: [(&str, u16); 5] = [
    ("mpi_complex4_supported", codes::COMPLEX4),
    ("mpi_complex8_supported", codes::COMPLEX8),
    ("mpi_complex16_supported", codes::COMPLEX16),
    ("mpi_complex32_supported", codes::COMPLEX32),
    ("mpi_double_complex_supported", codes::DOUBLE_COMPLEX),
];

/// The sizes in use, or those that will be unless the program sets others before it uses Fortran's
/// types.
pub(crate) fn abi_get_fortran_info(_: CallId, out: Ptr<MPI_Info>) -> Result<()> {
    let sizes = fortran_sizes();
    let mut pairs = vec![
        ("mpi_logical_size", sizes.logical.to_string()),
        ("mpi_integer_size", sizes.integer.to_string()),
        ("mpi_real_size", sizes.real.to_string()),
        (
            "mpi_double_precision_size",
            sizes.double_precision.to_string(),
        ),
    ];
    for (key, code) in SIZED.into_iter().chain(SIZED_COMPLEX) {
        pairs.push((key, is_predefined_with(sizes, code).to_string()));
    }
    out.set(publish(infos(), Info::from_pairs(pairs))?)
}

pub(crate) fn abi_set_fortran_info(_: CallId, with: MPI_Info) -> Result<()> {
    let info = info(with)?;
    let size = |key: &str, default: u8| match info.lookup(key) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| {
            CallError::new(Class::Arg, format!("{key} is {text:?}, no size in bytes"))
        }),
    };
    let usual = FortranSizes::default();
    let sizes = FortranSizes {
        logical: size("mpi_logical_size", usual.logical)?,
        integer: size("mpi_integer_size", usual.integer)?,
        real: size("mpi_real_size", usual.real)?,
        double_precision: size("mpi_double_precision_size", usual.double_precision)?,
    };
    Ok(configure_fortran(sizes)?)
}

/// Bytes of a `LOGICAL` that is not wider than our own integers; a wider one is extended by its
/// sign.
fn logical(size: c_int) -> Result<usize> {
    match size {
        1 | 2 | 4 | 8 | 16 => Ok(size as usize),
        _ => Err(CallError::new(
            Class::Arg,
            format!("no LOGICAL has {size} bytes"),
        )),
    }
}

fn read_logical(size: usize, at: Buf) -> Result<i64> {
    let mut bytes = at.typed::<u8>().take(size)?;
    let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) {
        0xff
    } else {
        0
    };
    bytes.resize(8, fill);
    Ok(i64::from_le_bytes(std::array::from_fn(|i| bytes[i])))
}

fn write_logical(size: usize, at: Buf, value: i64) -> Result<()> {
    at.typed::<u8>()
        .fill(i128::from(value).to_le_bytes().into_iter().take(size))
}

pub(crate) fn abi_set_fortran_booleans(_: CallId, size: c_int, yes: Buf, no: Buf) -> Result<()> {
    let size = logical(size)?;
    let (yes, no) = (read_logical(size, yes)?, read_logical(size, no)?);
    Ok(configure_booleans(FortranBooleans { no, yes })?)
}

pub(crate) fn abi_get_fortran_booleans(
    _: CallId,
    size: c_int,
    yes: Buf,
    no: Buf,
    is_set: Ptr<c_int>,
) -> Result<()> {
    let size = logical(size)?;
    // Those that will be in use unless the program sets others.
    let usual = FortranBooleans { no: 0, yes: 1 };
    let known = known_fortran_booleans();
    let values = known.unwrap_or(usual);
    write_logical(size, yes, values.yes)?;
    write_logical(size, no, values.no)?;
    is_set.set(known.is_some().into())
}
