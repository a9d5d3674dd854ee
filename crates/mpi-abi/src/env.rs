//! Versions, timers, profiling control.

use crate::call::{Call, Result};
use crate::constants::*;
use crate::edge::{Ptr, StrOut};
use std::ffi::c_int;
use std::time::Instant;

pub(crate) fn get_version(_: Call, version: Ptr<c_int>, subversion: Ptr<c_int>) -> Result<()> {
    version.set(MPI_VERSION)?;
    subversion.set(MPI_SUBVERSION)
}

pub(crate) fn get_library_version(_: Call, text: StrOut, len: Ptr<c_int>) -> Result<()> {
    let version = concat!("Garonne ", env!("CARGO_PKG_VERSION"));
    let written = text.write(version, MPI_MAX_LIBRARY_VERSION_STRING as usize)?;
    len.set(written as c_int)
}

/// Seconds since the first call; usable before `MPI_Init` and after `MPI_Finalize`.
pub(crate) fn wtime(_: Call) -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// The clock counts nanoseconds.
pub(crate) fn wtick(_: Call) -> f64 {
    1e-9
}

/// Nothing to control: profiling tools replace this function.
pub(crate) fn pcontrol(_: Call, _level: c_int) -> Result<()> {
    Ok(())
}
