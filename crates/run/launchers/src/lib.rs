//! Ranks that another launcher started (Slurm, PRRTE, hydra, or whoever sets variables for each
//! rank): who that is, read from what it left in their environment, and how such ranks come
//! together under agents of Garonne.
//!
//! Used by the rank's side (`garonne-rank`) alone, once, where no agent of Garonne started the
//! process. A launcher that is understood offers a [`LauncherExchange`] ([`exchange`]): which rank
//! this is, and a table that all ranks write and read. [`exchange_agents`] starts an agent per host
//! and exchanges where the agents are. Ranks of launchers that are not understood are refused,
//! instead of becoming N worlds of one.

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

mod abort_via_launcher;
mod agent_start;
mod consistency;
mod detect_launcher;
mod env_exchange;
mod exchange_table;
mod fork_check;
mod key_file;
mod local_socket;
mod pmi;
mod pmix;
mod process_mapping;
mod wireup;

use std::fmt::Debug;

pub use abort_via_launcher::{abort_job, keep_exchange};
pub use agent_start::program as agent_program;
use detect_launcher::{ExchangeMethod, detect, refusal};
use env_exchange::EnvExchange;
use garonne_job::error::Result;
use pmi::PmiClient;
use pmix::PmixClient;
pub use pmix::pmix_library;
pub use wireup::{LocatedAgent, exchange_agents};

/// Number of a rank, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankAndSize {
    /// Rank of this process.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
}

/// A launcher's key-value exchange between the ranks that it started. A rank puts values, calls the
/// fence once, gets values of other ranks, and finishes.
pub trait LauncherExchange: Debug + Send {
    /// Returns the launcher's name, for messages.
    fn launcher(&self) -> &str;

    /// Returns number of this rank and of all ranks.
    fn rank_and_size(&self) -> RankAndSize;

    /// Returns the node of each rank, by any numbers; `None` if the launcher does not say.
    ///
    /// # Errors
    /// The launcher does not answer.
    fn nodes(&mut self) -> Result<Option<Vec<u32>>>;

    /// Stores a value (letters and digits) under a key that no other rank uses. Others may read it
    /// after a fence of all.
    ///
    /// # Errors
    /// The launcher does not take it.
    fn put(&mut self, key: &str, value: &str) -> Result<()>;

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// The launcher or another rank is gone.
    fn fence(&mut self) -> Result<()>;

    /// Returns the value that rank `of` has stored before the last fence.
    ///
    /// # Errors
    /// There is none, or the launcher does not answer.
    fn get(&mut self, key: &str, of: u32) -> Result<String>;

    /// Tells the exchange that all that is to be exchanged has been.
    fn wired_up(&mut self) {}

    /// Tells the launcher that the rank needs it no more, and may end as it likes.
    fn finish(&mut self);

    /// Asks the launcher to end the job with this exit code.
    fn abort(&mut self, code: i32);
}

/// Returns the exchange of the launcher of this process, if another than ours has started several
/// ranks.
///
/// # Errors
/// It is not understood, or does not answer.
pub fn exchange() -> Result<Option<Box<dyn LauncherExchange>>> {
    let var = |name: &str| std::env::var(name).ok();
    let Some(told) = detect(&var, &socket) else {
        return Ok(None);
    };
    // The variables of a rank go on to all that it starts.
    if fork_check::is_below_rank() {
        return Ok(None);
    }
    fork_check::mark_rank();
    let exchange: Box<dyn LauncherExchange> = match &told.way {
        ExchangeMethod::Inherited(number, inode) => Box::new(PmiClient::inherited(
            told.launcher,
            (*number, *inode),
            told.standing,
        )?),
        ExchangeMethod::Called(port, id) => match PmiClient::called(told.launcher, port, id)? {
            Some(exchange) => Box::new(exchange),
            None => return Ok(None),
        },
        ExchangeMethod::Pmix => match PmixClient::join(told.launcher)? {
            Some(exchange) => Box::new(exchange),
            None => return Ok(None),
        },
        ExchangeMethod::Variables(place) => {
            Box::new(EnvExchange::new(told.standing, place.clone()))
        }
        ExchangeMethod::Unknown { .. } => return Err(refusal(&told, &var, &socket)),
    };
    Ok(Some(exchange))
}

/// The inode of the socket that this process has under a number.
fn socket(number: &str) -> Option<u64> {
    let number: u32 = number.parse().ok()?;
    let link = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// Reads any bytes as what a launcher answers, in each of the ways that are spoken, and as the
/// environment that it makes: lines `NAME=VALUE`.
#[cfg(any(test, fuzzing))]
pub fn read_any_launcher(bytes: &[u8]) {
    env_exchange::read_anything(bytes);
    pmi::read_anything(bytes);
    pmix::read_anything(bytes);
    let text = String::from_utf8_lossy(bytes);
    wireup::read_anything(&text);
    let _ = (key_file::parse(&text), process_mapping::nodes(&text, 64));
    let var = |name: &str| {
        let mut values = text
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().map(str::to_owned)
    };
    let socket = |number: &str| number.parse().ok();
    let Some(told) = detect(&var, &socket) else {
        return;
    };
    let RankAndSize { rank, size } = told.standing;
    if let ExchangeMethod::Variables(place) = &told.way {
        assert!(rank < size);
        let _ = EnvExchange::new(told.standing, place.clone()).read_own();
    }
    // One that was called, and one of PMIx, hear later how many there are.
    assert!(size > 1 && (rank < size || size == u32::MAX), "{told:?}");
    assert!(refusal(&told, &var, &socket).to_string().contains(told.key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_answer_and_any_environment_is_read_or_refused(
            lines in prop::collection::vec(("(cmd|rc|value|kvsname|size|rank|PMI_FD|PMI_RANK|PMI_SIZE|RANK|WORLD_SIZE|MASTER_PORT|MASTER_ADDR| ?)", "=?", ".{0,20}"), 0..12),
        ) {
            let lines = lines.iter().map(|(name, is, value)| format!("{name}{is}{value}\n"));
            read_any_launcher(lines.collect::<String>().as_bytes());
        }
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        let dir =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/launchers");
        let inputs = std::fs::read_dir(dir).unwrap();
        let count = inputs
            .map(|input| read_any_launcher(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count > 3);
    }
}
