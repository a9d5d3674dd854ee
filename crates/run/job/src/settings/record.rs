//! The setting whether ranks record their last events: `GARONNE_RECORD`.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};

/// Whether ranks record their last events for readers after their death.
pub const ENV_RECORD: &str = "GARONNE_RECORD";

/// Values of [`ENV_RECORD`].
pub const RECORD: [&str; 2] = ["on", "off"];

/// Returns whether a rank records, by what the setting says.
///
/// # Errors
/// It may not say this; what there is.
pub fn is_wanted(said: &OsStr) -> Result<bool> {
    match said.to_string_lossy().trim() {
        "" | "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_RECORD}={said:?}; there are: {}", RECORD.join(", ")),
        )),
    }
}
