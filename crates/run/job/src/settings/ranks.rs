//! What is said of connections between hosts: `GARONNE_ENCRYPT`, `GARONNE_OFI`; and what may be
//! said of those and other settings of ranks.
//!
//! Ranks ask for what their environment says; the launcher looks beforehand whether that can be
//! understood, since each rank would say so.

use std::ffi::OsStr;

use garonne_tcp::OfiSetting;

use super::abi::{self, ENV_ABI};
use super::async_progress::{ENV_BACKGROUND, async_progress_setting_of};
use super::backtrace::{self, ENV_BACKTRACE};
use super::bulk_transports::{BulkTransports, ENV_RAILS};
use super::deadlock::{self, ENV_DEADLOCK};
use super::ethernet::{self, ENV_ETHERNET};
use super::kill_after::{self, ENV_KILL_AFTER};
use super::record::{self, ENV_RECORD};
use super::shards::{ENV_SHARDS, wished_by};
use super::survive::{self, ENV_SURVIVE};
use super::transport_modules::{self, ENV_TRANSPORT_MODULES};
use crate::codes;
use crate::error::{Error, Result};

/// Checks that cost something and are made where this names them, separated by commas: `types`.
pub const ENV_CHECK: &str = "GARONNE_CHECK";

/// The checks that there are.
pub const CHECKS: [&str; 3] = ["types", "errors", "messages"];

/// Whether what ranks of different hosts say to each other is encrypted: the same for all ranks of
/// a job.
pub const ENV_ENCRYPT: &str = "GARONNE_ENCRYPT";

/// Variable that names the networks of libfabric for large data between hosts.
pub const ENV_OFI: &str = "GARONNE_OFI";

/// The error handler that communicators have at first, by the option of `mpiexec` of that name.
pub const ENV_INITIAL_ERRHANDLER: &str = "GARONNE_INITIAL_ERRHANDLER";

/// The standard's names of what may be the initial error handler.
pub const INITIAL_ERRHANDLERS: [&str; 3] = [
    "mpi_errors_are_fatal",
    "mpi_errors_abort",
    "mpi_errors_return",
];

/// The initial error handler, as its place among [`INITIAL_ERRHANDLERS`]; the first if nothing is
/// said. The standard compares these names without regard to case.
///
/// # Errors
/// It is none of them.
pub fn initial_errhandler(said: &OsStr) -> Result<usize> {
    if said.is_empty() {
        return Ok(0);
    }
    let known = INITIAL_ERRHANDLERS.iter();
    let found = known
        .enumerate()
        .find(|(_, name)| said.eq_ignore_ascii_case(name));
    found.map(|(at, _)| at).ok_or_else(|| {
        let all = INITIAL_ERRHANDLERS.join(", ");
        Error::misuse(
            codes::G0225,
            format!("{ENV_INITIAL_ERRHANDLER}={said:?}; there are: {all}"),
        )
    })
}

/// Settings of which [`check`] knows what they may say, as ranks and agent of a job on one host
/// read them,
const OF_ONE_HOST: [&str; 12] = [
    ENV_ABI,
    ENV_RAILS,
    ENV_BACKGROUND,
    ENV_CHECK,
    ENV_INITIAL_ERRHANDLER,
    ENV_SHARDS,
    ENV_KILL_AFTER,
    ENV_DEADLOCK,
    ENV_SURVIVE,
    ENV_BACKTRACE,
    ENV_RECORD,
    ENV_TRANSPORT_MODULES,
];
/// and on several also these.
const OF_SEVERAL_HOSTS: [&str; 3] = [ENV_ENCRYPT, ENV_OFI, ENV_ETHERNET];

/// The settings that the ranks of a job read, on one host or on `several`, of which [`check`] knows
/// what they may say.
pub fn read_by_ranks(several: bool) -> impl Iterator<Item = &'static str> {
    let more = OF_SEVERAL_HOSTS.into_iter().filter(move |_| several);
    OF_ONE_HOST.into_iter().chain(more)
}

/// Returns whether one of these settings may say this.
///
/// # Errors
/// It may not; what there is.
pub fn check(name: &str, said: &OsStr) -> Result<()> {
    match name {
        ENV_ABI => abi::read(said).map(drop),
        ENV_RAILS => BulkTransports::parse(said).map(drop),
        ENV_ENCRYPT => seals(said).map(drop),
        ENV_OFI => fabrics_of(said).map(drop),
        ENV_ETHERNET => ethernet::read(said).map(drop),
        ENV_BACKGROUND => async_progress_setting_of(said).map(drop),
        ENV_RECORD => record::is_wanted(said).map(drop),
        ENV_SHARDS => wished_by(said).map(drop),
        ENV_CHECK => checks_of(said),
        ENV_INITIAL_ERRHANDLER => initial_errhandler(said).map(drop),
        ENV_KILL_AFTER => kill_after::read(said).map(drop),
        ENV_DEADLOCK => deadlock::check(said),
        ENV_SURVIVE => survive::read(said).map(drop),
        ENV_BACKTRACE => backtrace::is_wanted(said).map(drop),
        ENV_TRANSPORT_MODULES => transport_modules::read(said).map(drop),
        _ => Ok(()),
    }
}

fn checks_of(said: &OsStr) -> Result<()> {
    let text = said.to_string_lossy();
    let mut words = text.split(',').map(str::trim);
    match words.all(|word| word.is_empty() || CHECKS.contains(&word)) {
        true => Ok(()),
        false => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_CHECK}={said:?}; there are: {}", CHECKS.join(", ")),
        )),
    }
}

/// Reads the environment: whether connections between hosts are encrypted.
///
/// # Errors
/// The value says neither yes nor no.
pub fn sealed() -> Result<bool> {
    seals(&std::env::var_os(ENV_ENCRYPT).unwrap_or_default())
}

/// Reads what [`ENV_ENCRYPT`] says.
///
/// # Errors
/// It says neither yes nor no.
pub fn seals(said: &OsStr) -> Result<bool> {
    match said.to_string_lossy().trim() {
        "1" | "on" | "yes" => Ok(true),
        "" | "0" | "off" | "no" => Ok(false),
        said => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_ENCRYPT}={said:?}; there are: 0, 1"),
        )),
    }
}

/// Reads the environment: which networks of libfabric large data may use.
///
/// # Errors
/// The value is no word of the setting.
pub fn fabrics() -> Result<OfiSetting> {
    fabrics_of(&std::env::var_os(ENV_OFI).unwrap_or_default())
}

fn fabrics_of(said: &OsStr) -> Result<OfiSetting> {
    let is_name = |said: &str| {
        said.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-;".contains(&byte))
    };
    match said.to_string_lossy().trim() {
        "auto" => Ok(OfiSetting::Fast),
        // Nobody has tried it on a network that is faster than TCP, and what the library does there
        // ends the rank if it goes wrong.
        "" | "0" | "off" | "no" => Ok(OfiSetting::Off),
        said if is_name(said) => Ok(OfiSetting::Of(said.to_owned())),
        said => Err(Error::misuse(
            codes::G0225,
            format!(
                "{ENV_OFI}={said:?}; there are: auto, off, and names of libfabric's providers, such as verbs or tcp"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_setting_may_not_say_is_refused_with_what_there_is() {
        for (name, said) in [
            (ENV_ENCRYPT, "1"),
            (ENV_ENCRYPT, ""),
            (ENV_OFI, "tcp"),
            (ENV_RAILS, "shm,tcp"),
            (ENV_CHECK, "types, errors"),
            (ENV_INITIAL_ERRHANDLER, "MPI_ERRORS_RETURN"),
            (ENV_BACKGROUND, "always"),
            (ENV_SHARDS, "4"),
            (ENV_BACKTRACE, "0"),
            (ENV_ABI, "openmpi"),
            ("GARONNE_JOB", "?"),
        ] {
            assert!(check(name, said.as_ref()).is_ok(), "{name}={said}");
        }
        for (name, said) in [
            (ENV_ENCRYPT, "maybe"),
            (ENV_OFI, "a b"),
            (ENV_RAILS, "ib"),
            (ENV_BACKTRACE, "maybe"),
            (ENV_ABI, "intel"),
            (ENV_CHECK, "typs"),
            (ENV_INITIAL_ERRHANDLER, "mpi_errors"),
            (ENV_BACKGROUND, "maybe"),
            (ENV_SHARDS, "x"),
        ] {
            let error = check(name, said.as_ref()).unwrap_err().to_string();
            assert!(
                error.contains("G0225") && error.contains(name) && error.contains("there are"),
                "{error}"
            );
        }
    }
}
