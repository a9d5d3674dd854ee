//! The setting how many shards a rank of several threads has: `GARONNE_SHARDS`.

use garonne_engine::api::SHARDS_MAX;
use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};

/// How many shards a rank has whose threads may all be in MPI at once, at most; 1: all its threads
/// share one.
pub const ENV_SHARDS: &str = "GARONNE_SHARDS";

/// Reads the environment.
///
/// # Errors
/// The value is no number of shards.
pub fn wished() -> Result<usize> {
    std::env::var_os(ENV_SHARDS).map_or(Ok(SHARDS_MAX), |said| wished_by(&said))
}

/// Returns how many this says.
pub fn wished_by(said: &OsStr) -> Result<usize> {
    wish(&said.to_string_lossy()).ok_or_else(|| {
        Error::misuse(
            codes::G0225,
            format!("{ENV_SHARDS}={said:?}; there are: 1 to {SHARDS_MAX}"),
        )
    })
}

/// Returns the value of a word of the setting, if it is one.
fn wish(said: &str) -> Option<usize> {
    let number = said.trim();
    let count = if number.is_empty() {
        SHARDS_MAX
    } else {
        number.parse().ok()?
    };
    (1..=SHARDS_MAX).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_as_many_shards_as_there_are_can_be_wished_for() {
        for (said, wanted) in [
            ("", Some(16)),
            (" 1", Some(1)),
            ("16", Some(16)),
            ("0", None),
            ("17", None),
            ("all", None),
        ] {
            assert_eq!(wish(said), wanted, "{said:?}");
        }
    }
}
