//! What a program may ask about the ABI itself.

use crate::call::{Call, Result};
use crate::constants::*;
use crate::edge::Ptr;
use std::ffi::c_int;

pub(crate) fn abi_get_version(_: Call, major: Ptr<c_int>, minor: Ptr<c_int>) -> Result<()> {
    major.set(MPI_ABI_VERSION)?;
    minor.set(MPI_ABI_SUBVERSION)
}
