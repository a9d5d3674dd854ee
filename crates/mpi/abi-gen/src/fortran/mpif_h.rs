//! Generator of `mpif.h`, which is right in fixed and in free source form: statements begin in
//! column 7 and end before column 73.

use super::{PREDEFINED_FUNCTIONS, constants};
use crate::table::ConstantGroup;
use std::fmt::Write;

/// Returns the text of `mpif.h`.
pub fn mpif_h(groups: &[ConstantGroup]) -> String {
    let mut out = String::from(
        "\
!     mpif.h: MPI 5.0 for Fortran, as Garonne installs it.
!
!     Generated from crates/mpi/abi-gen/abi; do not edit. For new
!     programs there are the modules mpi and mpi_f08.
!
",
    );
    out.push_str(CHECKS);
    for constant in constants(groups) {
        writeln!(out, "      INTEGER {}", constant.name).unwrap();
        let line = format!(
            "      PARAMETER ({}={})",
            constant.name,
            constant.expression()
        );
        assert!(line.len() <= 72, "{line}");
        writeln!(out, "{line}").unwrap();
    }
    out.push_str(SIZES);
    out.push_str(SENTINELS);
    for name in PREDEFINED_FUNCTIONS {
        writeln!(out, "      EXTERNAL {name}").unwrap();
    }
    out.push_str(FUNCTIONS);
    out
}

/// Constants that a compiler can only compute if the kinds have sizes that the library has, and
/// which say whether `REAL` and `DOUBLE PRECISION` are twice as wide as usual. The intrinsic
/// functions are those whose names programs do not use themselves.
const CHECKS: &str = "\
!     A division by zero here means: options of the compiler such as
!     -i8 or -r16 give INTEGER or REAL a size that is not supported.
      INTEGER MPI_INTEGER_HAS_4_BYTES
      PARAMETER (MPI_INTEGER_HAS_4_BYTES=1/(64/BIT_SIZE(0)-1))
      INTEGER MPI_REAL_HAS_4_OR_8_BYTES
      PARAMETER (MPI_REAL_HAS_4_OR_8_BYTES=1/(16384/MAXEXPONENT(1.0)-1))
      INTEGER MPI_WIDE_REAL, MPI_WIDE_DOUBLE
      PARAMETER (MPI_WIDE_REAL=MAXEXPONENT(1.0)/1024)
      PARAMETER (MPI_WIDE_DOUBLE=MAXEXPONENT(1D0)/16384)
";

const SIZES: &str = "      INTEGER MPI_STATUS_SIZE, MPI_SOURCE, MPI_TAG, MPI_ERROR
      PARAMETER (MPI_STATUS_SIZE=8)
      PARAMETER (MPI_SOURCE=1, MPI_TAG=2, MPI_ERROR=3)
      INTEGER MPI_ADDRESS_KIND, MPI_COUNT_KIND, MPI_OFFSET_KIND
      INTEGER MPI_INTEGER_KIND
      PARAMETER (MPI_ADDRESS_KIND=8, MPI_COUNT_KIND=8)
      PARAMETER (MPI_OFFSET_KIND=8, MPI_INTEGER_KIND=4)
      INTEGER*8 MPI_DISPLACEMENT_CURRENT
      PARAMETER (MPI_DISPLACEMENT_CURRENT=-1)
      LOGICAL MPI_SUBARRAYS_SUPPORTED
      LOGICAL MPI_ASYNC_PROTECTS_NONBLOCKING
      PARAMETER (MPI_SUBARRAYS_SUPPORTED=.FALSE.)
      PARAMETER (MPI_ASYNC_PROTECTS_NONBLOCKING=.FALSE.)
";

/// Common blocks of the values that are known by their addresses. Names and order are those of
/// MPICH.
const SENTINELS: &str = "      INTEGER MPI_BOTTOM, MPI_IN_PLACE
      INTEGER MPI_STATUS_IGNORE(MPI_STATUS_SIZE)
      COMMON /MPIPRIV1/ MPI_BOTTOM, MPI_IN_PLACE, MPI_STATUS_IGNORE
      INTEGER MPI_STATUSES_IGNORE(MPI_STATUS_SIZE,1)
      INTEGER MPI_ERRCODES_IGNORE(1)
      COMMON /MPIPRIV2/ MPI_STATUSES_IGNORE, MPI_ERRCODES_IGNORE
      CHARACTER*1 MPI_ARGVS_NULL(1,1), MPI_ARGV_NULL(1)
      COMMON /MPIPRIVC/ MPI_ARGVS_NULL, MPI_ARGV_NULL
      INTEGER MPI_UNWEIGHTED(1)
      COMMON /MPIFCMB5/ MPI_UNWEIGHTED
      INTEGER MPI_WEIGHTS_EMPTY(1)
      COMMON /MPIFCMB9/ MPI_WEIGHTS_EMPTY
      INTEGER MPI_BUFFER_AUTOMATIC(1)
      COMMON /MPIFCMBA/ MPI_BUFFER_AUTOMATIC
      SAVE /MPIPRIV1/, /MPIPRIV2/, /MPIPRIVC/
      SAVE /MPIFCMB5/, /MPIFCMB9/, /MPIFCMBA/
";

const FUNCTIONS: &str = "      EXTERNAL MPI_WTIME, MPI_WTICK, PMPI_WTIME, PMPI_WTICK
      REAL*8 MPI_WTIME, MPI_WTICK, PMPI_WTIME, PMPI_WTICK
      EXTERNAL MPI_AINT_ADD, MPI_AINT_DIFF
      EXTERNAL PMPI_AINT_ADD, PMPI_AINT_DIFF
      INTEGER*8 MPI_AINT_ADD, MPI_AINT_DIFF
      INTEGER*8 PMPI_AINT_ADD, PMPI_AINT_DIFF
";
