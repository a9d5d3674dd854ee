//! How this process becomes a rank: of the job it was started in, or of a world of its own.

use crate::call::{Call, Fault, Result};
use crate::{env, site, state};
use garonne_mpi::error::Class;
use garonne_mpi::process::Config;
use garonne_node::rank::Rank;
use std::sync::{Mutex, PoisonError};

static RANK: Mutex<Option<Rank>> = Mutex::new(None);

fn of_node(error: garonne_node::Error) -> Fault {
    let class = match error {
        garonne_node::Error::Resource { .. } => Class::NoMem,
        _ => Class::Other,
    };
    Fault::new(class, error.to_string())
}

/// Brings the engine up and tells what this rank is.
pub(crate) fn enter() -> Result<Config> {
    let rank = Rank::enter().map_err(of_node)?;
    let host = rank.host.clone();
    *RANK.lock().unwrap_or_else(PoisonError::into_inner) = Some(rank);
    Ok(Config {
        processor_name: env::processor_name(),
        env: state::env_pairs(),
        call_name: |call| Call(call).name(),
        site_name: site::describe,
        ..Config::plain(host)
    })
}

/// Takes the engine down and tells the agent that this process may end as it likes.
pub(crate) fn leave() -> Result<()> {
    let rank = RANK.lock().unwrap_or_else(PoisonError::into_inner).take();
    rank.map_or(Ok(()), |rank| rank.leave().map_err(of_node))
}
