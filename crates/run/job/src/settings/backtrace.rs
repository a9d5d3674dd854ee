//! The setting whether a rank that a signal ends is examined before: `GARONNE_BACKTRACE`.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};

/// Whether a crashed rank is examined before it ends.
pub const ENV_BACKTRACE: &str = "GARONNE_BACKTRACE";

/// Returns whether [`ENV_BACKTRACE`] asks for it.
///
/// # Errors
/// It may not say that.
pub fn is_wanted(said: &OsStr) -> Result<bool> {
    match said.to_string_lossy().trim() {
        "" | "1" | "on" | "yes" => Ok(true),
        "0" | "off" | "no" => Ok(false),
        _ => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_BACKTRACE}={said:?}; there are: 0, 1"),
        )),
    }
}
