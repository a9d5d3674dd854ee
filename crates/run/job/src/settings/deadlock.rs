//! The setting what becomes of a job whose ranks wait for each other for ever:
//! `GARONNE_DEADLOCK`.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};

/// Variable that says what becomes of a job whose ranks are proven to wait for each other for ever.
pub const ENV_DEADLOCK: &str = "GARONNE_DEADLOCK";

/// Value of [`ENV_DEADLOCK`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlockSetting {
    /// The verdict is printed once; ranks that wait for one that has left end with their job.
    #[default]
    Report,
    /// The job is ended, too.
    Abort,
    /// Nobody looks.
    Off,
}

/// Returns whether the setting may say this.
///
/// # Errors
/// It may not; what there is.
pub fn check(said: &OsStr) -> Result<()> {
    answer(said).map(drop)
}

/// Reads a value of the setting.
///
/// # Errors
/// The value is none of those that there are.
pub fn answer(said: &OsStr) -> Result<DeadlockSetting> {
    match said.to_string_lossy().trim() {
        "" | "report" => Ok(DeadlockSetting::Report),
        "abort" => Ok(DeadlockSetting::Abort),
        "off" | "0" | "no" => Ok(DeadlockSetting::Off),
        _ => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_DEADLOCK}={said:?}; there are: report, abort, off"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_has_three_words_and_names_them() {
        assert_eq!(answer("".as_ref()).unwrap(), DeadlockSetting::Report);
        assert_eq!(answer("abort".as_ref()).unwrap(), DeadlockSetting::Abort);
        assert_eq!(answer(" off ".as_ref()).unwrap(), DeadlockSetting::Off);
        let error = check("aborts".as_ref()).unwrap_err().to_string();
        assert!(error.contains("report, abort, off"), "{error}");
    }
}
