//! How this process becomes a rank: the job it was started in, or a world of its own.

use crate::call::{Fault, Result};
use crate::site;
use garonne_mpi::error::Class;
use garonne_mpi::group::Group;
use garonne_mpi::process::Config;
use garonne_node::rank::Rank;
use std::sync::{Mutex, PoisonError};

/// The rank that this process is, from the first init to the last finalize.
static RANK: Mutex<Option<Rank>> = Mutex::new(None);

/// Brings the engine up and tells what this rank is.
pub(crate) fn enter() -> Result<Config> {
    let rank = Rank::enter().map_err(|error| Fault::new(Class::Other, format!("error[{}]: {error}", error.code())))?;
    let host = rank.host.clone();
    let size = rank.client.as_ref().map_or(1, |client| client.world().size);
    *RANK.lock().unwrap_or_else(PoisonError::into_inner) = Some(rank);
    Ok(Config {
        host,
        node: Group::world(size),
        appnum: None,
        universe_size: Some(size as i32),
        processor_name: hostname(),
        env: Vec::new(),
        call_name: |call| crate::exports::NAMES.get(usize::from(call)).copied().unwrap_or("an MPI call"),
        site_name: site::describe,
    })
}

/// Takes the engine down.
pub(crate) fn leave() {
    if let Some(rank) = RANK.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // An agent that is gone takes this process with it; there is nobody else to tell.
        let _ = rank.leave();
    }
}

/// The kernel's name of this host.
fn hostname() -> String {
    let mut bytes = [0u8; 256];
    // SAFETY: the buffer is ours and its length is given; one byte is kept back, so the name always ends in zero.
    let failed = unsafe { libc::gethostname(bytes.as_mut_ptr().cast(), bytes.len() - 1) } != 0;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    if failed { "localhost".into() } else { String::from_utf8_lossy(&bytes[..end]).into_owned() }
}
