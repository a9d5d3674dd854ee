//! Which transports carry large data between ranks of one host: `GARONNE_RAILS`.
//!
//! Pure but for the environment and the word in the board that shows what the first rank of a host
//! has read there. Ranks ask, and the agent of a job on one host, which opens ports for them only
//! if they are to use any.

use std::ffi::OsStr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::codes;
use crate::error::{Error, Result};

/// The setting's name.
pub const ENV_RAILS: &str = "GARONNE_RAILS";

/// The transports for large data between ranks of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BulkTransports {
    /// Shared memory alone.
    #[default]
    Memory,
    /// Shared memory and TCP at once.
    Both,
}

impl BulkTransports {
    /// Reads the environment.
    ///
    /// # Errors
    /// It says something else.
    pub fn from_environment() -> Result<Self> {
        std::env::var_os(ENV_RAILS).map_or(Ok(Self::default()), |said| Self::parse(&said))
    }

    /// Reads a value of the setting.
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

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "shm",
            Self::Both => "shm,tcp",
        }
    }

    /// Compares what this rank is to use with what the first of its host said, in the board;
    /// `ports`: its agent has opened one for it, as for ranks that use TCP.
    ///
    /// # Errors
    /// They differ, or the job was started for others.
    pub fn agree(self, first: &AtomicU32, rank: u32, ports: bool) -> Result<()> {
        let own = 2 * (rank + 1) + u32::from(self == Self::Both);
        // Alone: nothing else is read by it.
        let said = first
            .compare_exchange(0, own, Relaxed, Relaxed)
            .err()
            .unwrap_or(own);
        let (other, theirs) = (
            // Whoever shares the board may have written it.
            (said / 2).saturating_sub(1),
            if said % 2 == 1 {
                Self::Both
            } else {
                Self::Memory
            },
        );
        let text = match self {
            _ if theirs != self => format!(
                "{ENV_RAILS} is {} for rank {rank} and {} for rank {other}: it must be one for all ranks of a host",
                self.name(),
                theirs.name()
            ),
            Self::Both if !ports => format!(
                "{ENV_RAILS} is {} for rank {rank}, and was not where its job was started, so that no ports were opened for TCP: set it there, or by `garonne run -x {ENV_RAILS}={}`",
                self.name(),
                self.name()
            ),
            _ => return Ok(()),
        };
        Err(Error::misuse(codes::G0231, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_use_the_same_transports_or_are_told_who_differs() {
        let world_memory = AtomicU32::new(0);
        BulkTransports::Both.agree(&world_memory, 5, true).unwrap();
        BulkTransports::Both.agree(&world_memory, 0, true).unwrap();
        let error = BulkTransports::Memory
            .agree(&world_memory, 2, true)
            .unwrap_err();
        assert_eq!(error.code(), codes::G0231);
        assert!(
            error
                .to_string()
                .contains("is shm for rank 2 and shm,tcp for rank 5"),
            "{error}"
        );
        let world_memory = AtomicU32::new(0);
        BulkTransports::Memory
            .agree(&world_memory, 0, false)
            .unwrap();
        assert!(BulkTransports::Both.agree(&world_memory, 1, true).is_err());
        let error = BulkTransports::Both
            .agree(&AtomicU32::new(0), 0, false)
            .unwrap_err();
        assert!(error.to_string().contains("garonne run -x"), "{error}");
    }

    #[test]
    fn memory_is_there_always_and_tcp_beside_it_if_somebody_says_so() {
        for (said, rails) in [
            ("", Some(BulkTransports::Memory)),
            (" shm ", Some(BulkTransports::Memory)),
            ("shm,tcp", Some(BulkTransports::Both)),
            ("tcp, shm", Some(BulkTransports::Both)),
            ("tcp", None),
            ("shm,tcp,tcp", None),
            ("shm,", None),
            ("memory", None),
        ] {
            assert_eq!(
                BulkTransports::parse(OsStr::new(said)).ok(),
                rails,
                "{said:?}"
            );
        }
    }
}
