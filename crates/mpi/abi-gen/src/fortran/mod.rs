//! The Fortran interfaces, from the table of C functions and `abi/fortran.txt`.
//!
//! [`routines`] gives each C function its Fortran arguments. The generators take them:
//!
//! - [`glue`]: Rust code of `libmpifort_abi.so.1`, or of another ABI's library ([`Names`]), which
//!   converts arguments and calls C.
//! - [`mpif_h`]: the include file `mpif.h`.
//! - [`modules`]: sources of the modules `mpi` and `mpi_f08`.

pub mod glue;
pub mod modules;
pub mod mpif_h;
mod names;
mod routine;

pub use names::Names;
pub use routine::{Argument, ArgumentKind, Intent, Routine, routines};

use crate::parameters::HANDLES;
use crate::table::{ConstantGroup, ConstantValue};

/// Functions that Fortran has beside those of C: copy and delete functions of attributes, and
/// conversions of files.
pub const PREDEFINED_FUNCTIONS: [&str; 14] = [
    "MPI_COMM_DUP_FN",
    "MPI_COMM_NULL_COPY_FN",
    "MPI_COMM_NULL_DELETE_FN",
    "MPI_CONVERSION_FN_NULL",
    "MPI_CONVERSION_FN_NULL_C",
    "MPI_DUP_FN",
    "MPI_NULL_COPY_FN",
    "MPI_NULL_DELETE_FN",
    "MPI_TYPE_DUP_FN",
    "MPI_TYPE_NULL_COPY_FN",
    "MPI_TYPE_NULL_DELETE_FN",
    "MPI_WIN_DUP_FN",
    "MPI_WIN_NULL_COPY_FN",
    "MPI_WIN_NULL_DELETE_FN",
];

/// Routines that MPI 3.0 removed and programs still call.
pub const REMOVED_ROUTINES: [&str; 10] = [
    "mpi_address",
    "mpi_errhandler_create",
    "mpi_errhandler_get",
    "mpi_errhandler_set",
    "mpi_type_extent",
    "mpi_type_hindexed",
    "mpi_type_hvector",
    "mpi_type_lb",
    "mpi_type_struct",
    "mpi_type_ub",
];

/// Constants that only C has.
fn is_for_c_alone(name: &str) -> bool {
    name.starts_with("MPI_T_") || name.starts_with("MPI_F_") || name.starts_with("MPIX_")
}

/// A constant as Fortran has it.
struct FortranConstant<'a> {
    name: &'a str,
    /// The C type: a handle's, or `int`.
    ctype: &'a str,
    value: i64,
    /// The value where options of the compiler make the kind twice as wide.
    when_widened: Option<(Widened, i64)>,
}

/// A kind that options of compilers such as `-r8` make twice as wide.
#[derive(Clone, Copy)]
enum Widened {
    /// `REAL`, and `COMPLEX` with it.
    Real,
    /// `DOUBLE PRECISION`.
    Double,
}

impl FortranConstant<'_> {
    /// Returns the value as an expression, which the compiler computes: `MPI_REAL` is the datatype
    /// of the size that `REAL` has where the expression is compiled.
    fn expression(&self) -> String {
        let value = self.value;
        match self.when_widened {
            None => value.to_string(),
            Some((Widened::Real, wide)) => format!("{value}{:+}*MPI_WIDE_REAL", wide - value),
            Some((Widened::Double, wide)) => format!("{value}{:+}*MPI_WIDE_DOUBLE", wide - value),
        }
    }
}

/// Datatypes of kinds that may be widened, and what they then are. Pairs of 16 bytes each have no
/// datatype.
const WIDENED: [(&str, Widened, &str); 6] = [
    ("MPI_REAL", Widened::Real, "MPI_REAL8"),
    ("MPI_COMPLEX", Widened::Real, "MPI_COMPLEX16"),
    ("MPI_2REAL", Widened::Real, "MPI_2DOUBLE_PRECISION"),
    ("MPI_DOUBLE_PRECISION", Widened::Double, "MPI_REAL16"),
    ("MPI_DOUBLE_COMPLEX", Widened::Double, "MPI_COMPLEX32"),
    (
        "MPI_2DOUBLE_PRECISION",
        Widened::Double,
        "MPI_DATATYPE_NULL",
    ),
];

/// Returns the constants of Fortran. Lengths of strings have no room for C's final zero.
fn constants(groups: &[ConstantGroup]) -> Vec<FortranConstant<'_>> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let value_of = |wanted: &str| {
        let mut all = groups.iter().flat_map(|group| &group.entries);
        let (_, value) = all.find(|(name, _)| name == wanted)?;
        match value {
            ConstantValue::Number(text) => number(text),
            ConstantValue::Alias(_) => None,
        }
    };
    let mut found = Vec::new();
    // Special addresses are variables in Fortran.
    let is_constant = |ctype: &str| ctype == "int" || HANDLES.contains(&ctype);
    for group in groups.iter().filter(|group| is_constant(&group.ctype)) {
        for (name, value) in &group.entries {
            let value = match value {
                ConstantValue::Number(text) => number(text),
                ConstantValue::Alias(other) => value_of(other),
            };
            let Some(value) = value.filter(|_| !is_for_c_alone(name)) else {
                continue;
            };
            let is_length = name.starts_with("MPI_MAX_");
            let mut widened = WIDENED.iter().filter(|(narrow, ..)| narrow == name);
            let when_widened = widened
                .next()
                .and_then(|(_, kind, wide)| Some((*kind, value_of(wide)?)));
            found.push(FortranConstant {
                name,
                ctype: &group.ctype,
                value: value - i64::from(is_length),
                when_widened,
            });
        }
    }
    found
}

/// Template of the module of types, for [`modules::types`].
pub const TYPES_TEMPLATE: &str = include_str!("../../abi/mpi_garonne_types.f90.in");
/// Template of the module `mpi`, for [`modules::mpi`].
pub const MPI_TEMPLATE: &str = include_str!("../../abi/mpi.f90.in");
/// Template of the module `mpi_f08`, for [`modules::mpi_f08`].
pub const MPI_F08_TEMPLATE: &str = include_str!("../../abi/mpi_f08.f90.in");
