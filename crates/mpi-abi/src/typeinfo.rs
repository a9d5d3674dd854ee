//! Addresses, and queries of datatypes.

use crate::call::{Call, Result};
use crate::edge::{Buf, Ptr};
use crate::handle::MPI_Aint;

pub(crate) fn get_address(_: Call, location: Buf, address: Ptr<MPI_Aint>) -> Result<()> {
    address.set(location.addr() as MPI_Aint)
}

pub(crate) fn aint_add(_: Call, base: MPI_Aint, disp: MPI_Aint) -> MPI_Aint {
    base.wrapping_add(disp)
}

pub(crate) fn aint_diff(_: Call, left: MPI_Aint, right: MPI_Aint) -> MPI_Aint {
    left.wrapping_sub(right)
}
