//! What is said of connections between hosts: `GARONNE_ENCRYPT`, `GARONNE_OFI`.
//!
//! Ranks ask for what their environment says; the launcher looks beforehand whether that can be understood, since each rank would say so.

use std::ffi::OsStr;

use garonne_rails::tcp::Fabrics;

use super::rails::{ENV_RAILS, Rails};
use crate::codes;
use crate::error::{Error, Result};

/// Whether what ranks of different hosts say to each other is encrypted: the same for all ranks of a job.
pub const ENV_ENCRYPT: &str = "GARONNE_ENCRYPT";

/// Which networks of libfabric large data may use between hosts.
pub const ENV_OFI: &str = "GARONNE_OFI";

/// Settings of rails of which [`check`] knows what they may say; ranks of one host read the first alone.
pub const OF_RAILS: [&str; 3] = [ENV_RAILS, ENV_ENCRYPT, ENV_OFI];

/// Whether one of [`OF_RAILS`] may say this.
///
/// # Errors
/// It may not; what there is.
pub fn check(name: &str, said: &OsStr) -> Result<()> {
    match name {
        ENV_RAILS => Rails::parse(said).map(drop),
        ENV_ENCRYPT => is_sealed(said).map(drop),
        ENV_OFI => fabrics_of(said).map(drop),
        _ => Ok(()),
    }
}

pub(super) fn sealed() -> Result<bool> {
    is_sealed(&std::env::var_os(ENV_ENCRYPT).unwrap_or_default())
}

fn is_sealed(said: &OsStr) -> Result<bool> {
    match said.to_string_lossy().trim() {
        "1" | "on" | "yes" => Ok(true),
        "" | "0" | "off" | "no" => Ok(false),
        said => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_ENCRYPT}={said:?}; there are: 0, 1"),
        )),
    }
}

pub(super) fn fabrics() -> Result<Fabrics> {
    fabrics_of(&std::env::var_os(ENV_OFI).unwrap_or_default())
}

fn fabrics_of(said: &OsStr) -> Result<Fabrics> {
    let is_name = |said: &str| {
        said.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-;".contains(&byte))
    };
    match said.to_string_lossy().trim() {
        "auto" => Ok(Fabrics::Fast),
        // Nobody has tried it on a network that is faster than TCP, and what the library does there ends the rank if it goes wrong.
        "" | "0" | "off" | "no" => Ok(Fabrics::Off),
        said if is_name(said) => Ok(Fabrics::Of(said.to_owned())),
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
            ("GARONNE_JOB", "?"),
        ] {
            assert!(check(name, said.as_ref()).is_ok(), "{name}={said}");
        }
        for (name, said) in [(ENV_ENCRYPT, "maybe"), (ENV_OFI, "a b"), (ENV_RAILS, "ib")] {
            let error = check(name, said.as_ref()).unwrap_err().to_string();
            assert!(
                error.contains("G0225") && error.contains(name) && error.contains("there are"),
                "{error}"
            );
        }
    }
}
