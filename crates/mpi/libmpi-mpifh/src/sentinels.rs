//! Common blocks of `mpif.h` whose addresses mean something: `MPI_BOTTOM`, `MPI_IN_PLACE` and
//! others.
//!
//! The program defines the blocks, too. The loader gives program and library one copy of each, so
//! addresses are read through the table of the loader (the GOT), never directly. Libraries that are
//! loaded by `dlopen` may have blocks of their own: [`garonne_fortran::sentinels`] searches for
//! them.

use garonne_fortran::address;
use garonne_fortran::sentinels::{Block, Sentinel, Sentinels};
use std::ffi::c_int;

/// Size of a status in `INTEGER`s.
const STATUS: usize = 6;

/// Defines common blocks.
macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the name is that of the linker")]
            pub static mut $name: $type = $value;
        )*
    };
}

blocks! {
    /// `MPI_BOTTOM`.
    mpi_fortran_bottom_: c_int = 0;
    /// `MPI_IN_PLACE`.
    mpi_fortran_in_place_: c_int = 0;
    /// `MPI_ARGV_NULL`.
    mpi_fortran_argv_null_: u8 = 0;
    /// `MPI_ARGVS_NULL`.
    mpi_fortran_argvs_null_: u8 = 0;
    /// `MPI_ERRCODES_IGNORE`.
    mpi_fortran_errcodes_ignore_: c_int = 0;
    /// `MPI_STATUS_IGNORE`.
    mpi_fortran_status_ignore_: [c_int; STATUS] = [0; STATUS];
    /// `MPI_STATUSES_IGNORE`.
    mpi_fortran_statuses_ignore_: [c_int; STATUS] = [0; STATUS];
    /// `MPI_UNWEIGHTED`.
    mpi_fortran_unweighted_: c_int = 0;
    /// `MPI_WEIGHTS_EMPTY`.
    mpi_fortran_weights_empty_: c_int = 0;
}

/// `MPI_IN_PLACE` of C.
pub(crate) const IN_PLACE: usize = 1;
/// `MPI_UNWEIGHTED` of C.
const UNWEIGHTED: usize = 2;
/// `MPI_WEIGHTS_EMPTY` of C.
const WEIGHTS_EMPTY: usize = 3;

/// C's address for what C has no variable for: statuses and error codes to ignore, the bottom, no
/// arguments.
const NULL: usize = 0;

/// Defines the description of common blocks that hold one sentinel each, and the sentinels that the
/// loader gave this library.
macro_rules! described {
    ($($block:ident = $address:ident, $names:expr;)*) => {
        /// The common blocks by their names with different options of compilers.
        static BLOCKS: [Block; 9] = [$(Block { names: &$names, parts: &[(0, $address)] },)*];

        /// Returns the sentinels that the loader gave this library: those of the program, if it has
        /// some.
        fn own() -> Vec<Sentinel> {
            vec![$((address!($block), $address),)*]
        }
    };
}

described! {
    mpi_fortran_bottom_ = NULL, [c"mpi_fortran_bottom_", c"mpi_fortran_bottom", c"mpi_fortran_bottom__", c"MPI_FORTRAN_BOTTOM"];
    mpi_fortran_in_place_ = IN_PLACE, [c"mpi_fortran_in_place_", c"mpi_fortran_in_place", c"mpi_fortran_in_place__", c"MPI_FORTRAN_IN_PLACE"];
    mpi_fortran_argv_null_ = NULL, [c"mpi_fortran_argv_null_", c"mpi_fortran_argv_null", c"mpi_fortran_argv_null__", c"MPI_FORTRAN_ARGV_NULL"];
    mpi_fortran_argvs_null_ = NULL, [c"mpi_fortran_argvs_null_", c"mpi_fortran_argvs_null", c"mpi_fortran_argvs_null__", c"MPI_FORTRAN_ARGVS_NULL"];
    mpi_fortran_errcodes_ignore_ = NULL, [c"mpi_fortran_errcodes_ignore_", c"mpi_fortran_errcodes_ignore", c"mpi_fortran_errcodes_ignore__", c"MPI_FORTRAN_ERRCODES_IGNORE"];
    mpi_fortran_status_ignore_ = NULL, [c"mpi_fortran_status_ignore_", c"mpi_fortran_status_ignore", c"mpi_fortran_status_ignore__", c"MPI_FORTRAN_STATUS_IGNORE"];
    mpi_fortran_statuses_ignore_ = NULL, [c"mpi_fortran_statuses_ignore_", c"mpi_fortran_statuses_ignore", c"mpi_fortran_statuses_ignore__", c"MPI_FORTRAN_STATUSES_IGNORE"];
    mpi_fortran_unweighted_ = UNWEIGHTED, [c"mpi_fortran_unweighted_", c"mpi_fortran_unweighted", c"mpi_fortran_unweighted__", c"MPI_FORTRAN_UNWEIGHTED"];
    mpi_fortran_weights_empty_ = WEIGHTS_EMPTY, [c"mpi_fortran_weights_empty_", c"mpi_fortran_weights_empty", c"mpi_fortran_weights_empty__", c"MPI_FORTRAN_WEIGHTS_EMPTY"];
}

/// The sentinels of this library.
pub(crate) static SENTINELS: Sentinels = Sentinels::new(&BLOCKS, own);
