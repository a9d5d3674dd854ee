//! The table of the MPI 5 standard ABI, and the generators of all that is made from the table.
//!
//! The table is two text files in `abi/`. `functions.txt` has every C function of the standard with
//! its prototype. `constants.txt` has every constant with its value. [`functions`] and
//! [`constants`] parse the files. The generators take the parsed table and return text:
//!
//! - [`wrappers`]: Rust code of the constants, of the functions' names and of the wrappers, which
//!   have the C prototypes. The build script of `garonne-bodies` calls it.
//! - [`entry_points`]: Rust code of the exported symbols, `MPI_X` and `PMPI_X`, which jump to the
//!   wrappers. The build script of `garonne-abi-std` calls it.
//! - [`conversions`]: Rust code of the wrappers of another ABI. The build script of
//!   `garonne-abi-mpich` calls it.
//! - [`abi_library`]: which functions that library has, the table of their wrappers in the core,
//!   and the entry points that jump through the table. The build scripts of `garonne-abi-std` and
//!   `garonne-libmpi-mpich` call it.
//! - [`header`]: `mpi.h` and `docs/user/conformance.md`, which are committed. A test of
//!   `garonne-abi-std` keeps them equal to the table.
//!
//! The generators read and write no file, and the crate depends on no other crate. So more
//! libraries, for another ABI or for Fortran, can be generated from the same table.
//! [`build_script`] has what build scripts of several libraries do.

#![forbid(unsafe_code)]

pub mod abi_library;
pub mod build_script;
pub mod conversions;
pub mod entry_points;
pub mod fortran;
pub mod header;
pub mod openmpi;
pub mod parameters;
pub mod table;
pub mod wrappers;

use abi_library::{Library, OwnFunctions};
use conversions::{AbiConstants, HandleForm};
use parameters::Parameters;
use table::{ConstantGroup, Function};

/// Text of `abi/functions.txt`.
const FUNCTIONS: &str = include_str!("../abi/functions.txt");
/// Text of `abi/constants.txt`.
const CONSTANTS: &str = include_str!("../abi/constants.txt");

/// Text of `abi/mpich.txt`.
const MPICH: &str = include_str!("../abi/mpich.txt");
/// Text of `abi/mpich_functions.txt`.
const MPICH_FUNCTIONS: &str = include_str!("../abi/mpich_functions.txt");
/// Text of `abi/parameters.txt`.
const PARAMETERS: &str = include_str!("../abi/parameters.txt");

/// Template of `mpi.h`, for [`header::header`].
pub const HEADER_TEMPLATE: &str = include_str!("../abi/mpi.h.in");

/// Returns every C function of the standard, in the order of `abi/functions.txt`.
///
/// # Errors
/// The file's name, with number and text of the line that does not parse.
pub fn functions() -> Result<Vec<Function>, String> {
    table::functions(FUNCTIONS).map_err(|e| format!("abi/functions.txt: {e}"))
}

/// Returns every constant of the standard, in the order of `abi/constants.txt`.
///
/// # Errors
/// The file's name, with number and text of the line that does not parse.
pub fn constants() -> Result<Vec<ConstantGroup>, String> {
    table::constants(CONSTANTS).map_err(|e| format!("abi/constants.txt: {e}"))
}

/// Returns what parameters mean beyond their C types.
///
/// # Errors
/// The file's name, with number and text of the line that does not parse.
pub fn parameters() -> Result<Parameters, String> {
    Parameters::parse(PARAMETERS).map_err(|e| format!("abi/parameters.txt: {e}"))
}

/// Returns the constants of the MPICH family's ABI beside those of the standard one.
///
/// # Errors
/// The file's name, with the line that does not parse or the constant that is missing.
pub fn mpich() -> Result<AbiConstants, String> {
    let groups = table::constants(MPICH).map_err(|e| format!("abi/mpich.txt: {e}"))?;
    AbiConstants::new(constants()?, groups, HandleForm::Int)
        .map_err(|e| format!("abi/mpich.txt: {e}"))
}

/// Returns the library of the MPICH family's ABI, `libmpi.so.12`.
///
/// # Errors
/// The file's name, with the line that does not parse or the fact that does not fit.
pub fn mpich_library() -> Result<Library, String> {
    let own = OwnFunctions::parse(MPICH_FUNCTIONS)
        .map_err(|e| format!("abi/mpich_functions.txt: {e}"))?;
    abi_library::library(functions()?, &parameters()?, &mpich()?, &own)
        .map_err(|e| format!("abi/mpich_functions.txt: {e}"))
}

/// Returns the extensions of MPICH and Open MPI that programs may call and Garonne does not have,
/// as functions without a body, each once.
///
/// # Errors
/// The file's name, with the line that does not parse.
pub fn refused_functions() -> Result<Vec<Function>, String> {
    let mut refused: Vec<Function> = Vec::new();
    for (name, text) in [
        ("mpich_functions.txt", MPICH_FUNCTIONS),
        ("openmpi_functions.txt", OPENMPI_FUNCTIONS),
    ] {
        let own = OwnFunctions::parse(text).map_err(|e| format!("abi/{name}: {e}"))?;
        for function in own.refused() {
            if refused.iter().all(|other| other.name != function.name) {
                refused.push(function);
            }
        }
    }
    Ok(refused)
}

/// Text of `abi/openmpi.txt`.
const OPENMPI: &str = include_str!("../abi/openmpi.txt");
/// Text of `abi/openmpi_functions.txt`.
const OPENMPI_FUNCTIONS: &str = include_str!("../abi/openmpi_functions.txt");
/// Text of `abi/openmpi_fortran.txt`.
const OPENMPI_FORTRAN: &str = include_str!("../abi/openmpi_fortran.txt");

/// Returns the constants of Open MPI's ABI beside those of the standard one.
///
/// # Errors
/// The file's name, with the line that does not parse or the constant that is missing.
pub fn openmpi() -> Result<AbiConstants, String> {
    AbiConstants::new(constants()?, openmpi_groups()?, HandleForm::Pointer)
        .map_err(|e| format!("abi/openmpi.txt: {e}"))
}

/// Returns the constants of Open MPI's ABI. Values of handles are names of symbols.
///
/// # Errors
/// The file's name, with number and text of the line that does not parse.
pub fn openmpi_groups() -> Result<Vec<ConstantGroup>, String> {
    table::constants(OPENMPI).map_err(|e| format!("abi/openmpi.txt: {e}"))
}

/// Returns the integers of predefined handles in Open MPI's Fortran ABI.
///
/// # Errors
/// The file's name, with number and text of the line that does not parse.
pub fn openmpi_fortran() -> Result<Vec<ConstantGroup>, String> {
    table::constants(OPENMPI_FORTRAN).map_err(|e| format!("abi/openmpi_fortran.txt: {e}"))
}

/// Returns the library of Open MPI's ABI, `libmpi.so.40`.
///
/// # Errors
/// The file's name, with the line that does not parse or the fact that does not fit.
pub fn openmpi_library() -> Result<Library, String> {
    let own = OwnFunctions::parse(OPENMPI_FUNCTIONS)
        .map_err(|e| format!("abi/openmpi_functions.txt: {e}"))?;
    abi_library::library(functions()?, &parameters()?, &openmpi()?, &own)
        .map_err(|e| format!("abi/openmpi_functions.txt: {e}"))
}

/// Text of `abi/fortran.txt`.
const FORTRAN: &str = include_str!("../abi/fortran.txt");

/// Returns the routines of Fortran, small forms and large ones, in the order of the C functions.
///
/// # Errors
/// The file's name, with number and text of the line that does not parse.
pub fn fortran_routines() -> Result<Vec<fortran::Routine>, String> {
    let mut functions = functions()?;
    functions.retain(|function| !function.is_beyond_the_standard());
    fortran::routines(&functions, &parameters()?, FORTRAN)
}

/// Returns the interfaces by which programs reach MPI, with the functions that each has.
///
/// # Errors
/// The file's name, with the line that does not parse or the fact that does not fit.
pub fn interfaces() -> Result<Vec<header::Interface>, String> {
    let exported = |library: Library| library.entries.into_iter().map(|entry| entry.name);
    let routines = fortran_routines()?;
    let named = |has: fn(&fortran::Routine) -> bool| {
        let own = routines.iter().filter(move |routine| has(routine));
        own.map(|routine| routine.function.name.clone()).collect()
    };
    let interface = |name, functions| header::Interface { name, functions };
    Ok(vec![
        interface(
            "C",
            functions()?
                .into_iter()
                .map(|function| function.name)
                .collect(),
        ),
        interface("C, MPICH", exported(mpich_library()?).collect()),
        interface("C, Open MPI", exported(openmpi_library()?).collect()),
        interface("`mpif.h`", named(|routine| !routine.is_large)),
        interface("`mpi`", named(|routine| !routine.is_large)),
        interface("`mpi_f08`", named(fortran::Routine::is_in_f08)),
    ])
}
