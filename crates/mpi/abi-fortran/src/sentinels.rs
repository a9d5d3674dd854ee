//! Variables that are known by their addresses: `MPI_BOTTOM`, `MPI_IN_PLACE` and others.
//!
//! `mpif.h` has them in common blocks, under the names and in the order of MPICH's. The modules
//! have them as variables with a name of the linker. The loader gives program and library one copy
//! of each, so addresses are read through the table of the loader (the GOT), never directly: the
//! copy is that of the program.
//!
//! Libraries that are loaded by `dlopen` may have common blocks of their own:
//! [`garonne_fortran::sentinels`] searches for them.

use garonne_fortran::address;
use garonne_fortran::sentinels::{Block, Sentinel, Sentinels};
use std::ffi::c_int;

/// Size of a status in `INTEGER`s.
const STATUS: usize = 8;

/// Defines variables that Fortran programs refer to.
macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the name is that of the linker")]
            pub static mut $name: $type = $value;
        )*
    };
}

variables! {
    /// `mpif.h`: bottom, in place, status to ignore.
    mpipriv1_: [c_int; 2 + STATUS] = [0; 2 + STATUS];
    /// `mpif.h`: statuses to ignore, error codes to ignore.
    mpipriv2_: [c_int; STATUS + 1] = [0; STATUS + 1];
    /// `mpif.h`: no arguments for many commands, no arguments for one.
    mpiprivc_: [u8; 2] = [0; 2];
    /// `mpif.h`: no weights.
    mpifcmb5_: [c_int; 1] = [0];
    /// `mpif.h`: weights that are empty.
    mpifcmb9_: [c_int; 1] = [0];
    /// `mpif.h`: a buffer that the library makes.
    mpifcmba_: [c_int; 1] = [0];
    /// `mpipriv1_` by another name.
    mpipriv1: [c_int; 2 + STATUS] = [0; 2 + STATUS];
    /// `mpipriv1_` by another name.
    MPIPRIV1: [c_int; 2 + STATUS] = [0; 2 + STATUS];
    /// `mpipriv2_` by another name.
    mpipriv2: [c_int; STATUS + 1] = [0; STATUS + 1];
    /// `mpipriv2_` by another name.
    MPIPRIV2: [c_int; STATUS + 1] = [0; STATUS + 1];
    /// `mpiprivc_` by another name.
    mpiprivc: [u8; 2] = [0; 2];
    /// `mpiprivc_` by another name.
    MPIPRIVC: [u8; 2] = [0; 2];
    /// `mpifcmb5_` by another name.
    mpifcmb5: [c_int; 1] = [0];
    /// `mpifcmb5_` by another name.
    MPIFCMB5: [c_int; 1] = [0];
    /// `mpifcmb9_` by another name.
    mpifcmb9: [c_int; 1] = [0];
    /// `mpifcmb9_` by another name.
    MPIFCMB9: [c_int; 1] = [0];
    /// `mpifcmba_` by another name.
    mpifcmba: [c_int; 1] = [0];
    /// `mpifcmba_` by another name.
    MPIFCMBA: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_bottom: c_int = 0;
    /// Modules.
    garonne_fortran_in_place: c_int = 0;
    /// Modules.
    garonne_fortran_buffer_automatic: c_int = 0;
    /// Modules.
    garonne_fortran_errcodes_ignore: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_unweighted: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_weights_empty: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_argv_null: [u8; 1] = [0];
    /// Modules.
    garonne_fortran_argvs_null: [u8; 1] = [0];
    /// Module `mpi`.
    garonne_fortran_status_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi`.
    garonne_fortran_statuses_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi_f08`.
    garonne_fortran_f08_status_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi_f08`.
    garonne_fortran_f08_statuses_ignore: [c_int; STATUS] = [0; STATUS];
}

/// Bytes of an `INTEGER`.
const INTEGER: usize = size_of::<c_int>();

/// C's address for what C has no variable for: statuses and error codes to ignore, the bottom, no
/// arguments.
const NULL: usize = 0;
/// `MPI_IN_PLACE` of C.
pub(crate) const IN_PLACE: usize = 1;
/// `MPI_BUFFER_AUTOMATIC` of C.
const BUFFER_AUTOMATIC: usize = 2;
/// `MPI_UNWEIGHTED` of C.
const UNWEIGHTED: usize = 10;
/// `MPI_WEIGHTS_EMPTY` of C.
const WEIGHTS_EMPTY: usize = 11;

/// The common blocks of `mpif.h` by their names with different options of compilers.
static BLOCKS: [Block; 6] = [
    Block {
        names: &[c"mpipriv1_", c"mpipriv1", c"MPIPRIV1"],
        parts: &[(0, NULL), (INTEGER, IN_PLACE), (2 * INTEGER, NULL)],
    },
    Block {
        names: &[c"mpipriv2_", c"mpipriv2", c"MPIPRIV2"],
        parts: &[(0, NULL), (STATUS * INTEGER, NULL)],
    },
    Block {
        names: &[c"mpiprivc_", c"mpiprivc", c"MPIPRIVC"],
        parts: &[(0, NULL), (1, NULL)],
    },
    Block {
        names: &[c"mpifcmb5_", c"mpifcmb5", c"MPIFCMB5"],
        parts: &[(0, UNWEIGHTED)],
    },
    Block {
        names: &[c"mpifcmb9_", c"mpifcmb9", c"MPIFCMB9"],
        parts: &[(0, WEIGHTS_EMPTY)],
    },
    Block {
        names: &[c"mpifcmba_", c"mpifcmba", c"MPIFCMBA"],
        parts: &[(0, BUFFER_AUTOMATIC)],
    },
];

/// The sentinels of this library.
pub(crate) static SENTINELS: Sentinels = Sentinels::new(&BLOCKS, own);

/// Returns the sentinels that the loader gave this library: those of the modules, of which there is
/// one for all objects, and common blocks of the program.
fn own() -> Vec<Sentinel> {
    let mut own = variables().to_vec();
    let blocks = [
        address!(mpipriv1_),
        address!(mpipriv2_),
        address!(mpiprivc_),
        address!(mpifcmb5_),
        address!(mpifcmb9_),
        address!(mpifcmba_),
    ];
    for (block, Block { parts, .. }) in blocks.into_iter().zip(&BLOCKS) {
        own.extend(parts.iter().map(|(offset, what)| (block + offset, *what)));
    }
    own
}

/// Returns the variables of the modules, of which there is one for all objects.
fn variables() -> [Sentinel; 12] {
    [
        (address!(garonne_fortran_bottom), NULL),
        (address!(garonne_fortran_in_place), IN_PLACE),
        (address!(garonne_fortran_buffer_automatic), BUFFER_AUTOMATIC),
        (address!(garonne_fortran_errcodes_ignore), NULL),
        (address!(garonne_fortran_unweighted), UNWEIGHTED),
        (address!(garonne_fortran_weights_empty), WEIGHTS_EMPTY),
        (address!(garonne_fortran_argv_null), NULL),
        (address!(garonne_fortran_argvs_null), NULL),
        (address!(garonne_fortran_status_ignore), NULL),
        (address!(garonne_fortran_statuses_ignore), NULL),
        (address!(garonne_fortran_f08_status_ignore), NULL),
        (address!(garonne_fortran_f08_statuses_ignore), NULL),
    ]
}
