//! The setting whether communication advances while the program computes: `GARONNE_BACKGROUND`.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};

/// Whether communication advances also while the program computes: unless this is `0`, `off` or
/// `no`; with `always` at once, and also where a call site never computed before it waited.
pub const ENV_BACKGROUND: &str = "GARONNE_BACKGROUND";

/// Value of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncProgressSetting {
    /// Only in MPI calls.
    Off,
    /// Where a call site computed before it waited.
    WhenUseful,
    /// At once, and everywhere.
    Always,
}

/// Reads the environment.
///
/// # Errors
/// The value is none of those that there are.
pub fn async_progress_setting() -> Result<AsyncProgressSetting> {
    async_progress_setting_of(&std::env::var_os(ENV_BACKGROUND).unwrap_or_default())
}

/// Reads a value of the setting.
///
/// # Errors
/// The value is none of those that there are.
pub fn async_progress_setting_of(said: &OsStr) -> Result<AsyncProgressSetting> {
    parse_async_progress(&said.to_string_lossy()).ok_or_else(|| {
        Error::misuse(
            codes::G0225,
            format!("{ENV_BACKGROUND}={said:?}; there are: 0, 1, always"),
        )
    })
}

/// Returns the value of a word of the setting, if it is one.
pub fn parse_async_progress(said: &str) -> Option<AsyncProgressSetting> {
    match said.trim().to_ascii_lowercase().as_str() {
        "0" | "off" | "no" => Some(AsyncProgressSetting::Off),
        "always" => Some(AsyncProgressSetting::Always),
        "" | "1" | "on" | "yes" => Some(AsyncProgressSetting::WhenUseful),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_is_can_be_wished_for() {
        for (said, wanted) in [
            ("", AsyncProgressSetting::WhenUseful),
            (" 1", AsyncProgressSetting::WhenUseful),
            ("Off", AsyncProgressSetting::Off),
            ("always", AsyncProgressSetting::Always),
        ] {
            assert_eq!(parse_async_progress(said), Some(wanted), "{said}");
        }
        for said in ["2", "maybe", "alway", "true"] {
            assert_eq!(parse_async_progress(said), None, "{said}");
        }
    }
}
