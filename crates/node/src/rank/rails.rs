//! Which rails carry large data between ranks of one host: `GARONNE_RAILS`.
//!
//! Pure but for the environment. Ranks ask, and the agent of a job on one host, which opens ports for them only if they are to use any.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};

/// The setting's name.
pub const ENV_RAILS: &str = "GARONNE_RAILS";

/// What there is to choose from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rails {
    /// Shared memory alone.
    #[default]
    Memory,
    /// Shared memory and TCP at once.
    Both,
}

impl Rails {
    /// As the environment says.
    ///
    /// # Errors
    /// It says something else.
    pub fn from_environment() -> Result<Self> {
        std::env::var_os(ENV_RAILS).map_or(Ok(Self::default()), |said| Self::parse(&said))
    }

    /// What somebody said.
    pub fn parse(said: &OsStr) -> Result<Self> {
        let text = said.to_string_lossy();
        let mut words: Vec<&str> = text.split(',').map(str::trim).collect();
        words.sort_unstable();
        match words[..] {
            [""] | ["shm"] => Ok(Self::Memory),
            ["shm", "tcp"] => Ok(Self::Both),
            _ => Err(Error::misuse(
                codes::G0225,
                format!("{ENV_RAILS}={said:?}; there are: shm, and shm,tcp"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_there_always_and_tcp_beside_it_if_somebody_says_so() {
        for (said, rails) in [
            ("", Some(Rails::Memory)),
            (" shm ", Some(Rails::Memory)),
            ("shm,tcp", Some(Rails::Both)),
            ("tcp, shm", Some(Rails::Both)),
            ("tcp", None),
            ("shm,tcp,tcp", None),
            ("shm,", None),
            ("memory", None),
        ] {
            assert_eq!(Rails::parse(OsStr::new(said)).ok(), rails, "{said:?}");
        }
    }
}
