//! How this process becomes a rank: the job it was started in, or a world of its own.

use crate::call::{Fault, Result};
use garonne_mpi::error::Class;
use garonne_mpi::process::Config;

/// Brings the engine up and tells what this rank is.
pub(crate) fn enter() -> Result<Config> {
    Err(Fault::new(Class::Other, "this build has no engine to start"))
}

/// Takes the engine down.
pub(crate) fn leave() {}
