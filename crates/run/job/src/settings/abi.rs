//! The setting which MPI library programs load that were built for another MPI: `GARONNE_ABI`.

use std::ffi::OsStr;

use crate::codes;
use crate::error::{Error, Result};

/// Whether programs built for other MPIs load Garonne's library of their ABI, and which.
pub const ENV_ABI: &str = "GARONNE_ABI";

/// Values of [`ENV_ABI`].
pub const ABIS: [&str; 4] = ["auto", "off", "mpich", "openmpi"];

/// What is done for programs that were built for another MPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AbiSetting {
    /// Garonne's libraries come first, and are preloaded where that does not suffice.
    #[default]
    Auto,
    /// Programs load what they would load without a launcher.
    Off,
    /// The library of MPICH's ABI is preloaded.
    Mpich,
    /// The library of Open MPI's ABI is preloaded.
    OpenMpi,
}

/// Reads what the setting says; nothing: `auto`.
///
/// # Errors
/// It is no such word; what there is.
pub fn read(said: &OsStr) -> Result<AbiSetting> {
    match said.to_string_lossy().trim() {
        "" | "auto" => Ok(AbiSetting::Auto),
        "off" => Ok(AbiSetting::Off),
        "mpich" => Ok(AbiSetting::Mpich),
        "openmpi" => Ok(AbiSetting::OpenMpi),
        _ => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_ABI}={said:?}; there are: {}", ABIS.join(", ")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_value_is_read_and_others_are_refused() {
        let read = |said: &str| read(OsStr::new(said)).ok();
        let all = ABIS.map(|said| read(said).unwrap());
        let expected = [
            AbiSetting::Auto,
            AbiSetting::Off,
            AbiSetting::Mpich,
            AbiSetting::OpenMpi,
        ];
        assert_eq!(all, expected);
        assert_eq!(read(""), Some(AbiSetting::Auto));
        assert_eq!(read("intel"), None);
    }
}
