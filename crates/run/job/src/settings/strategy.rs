//! The setting of the strategy that the window follows: `GARONNE_STRATEGY`.
//!
//! Read by every rank when it starts, and by the launcher before it starts anything.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use garonne_engine::schedule::builtin::BuiltinStrategy;

use crate::codes;
use crate::error::{Error, Result};

/// When and in which order messages leave, and how large data are split: one of
/// [`BuiltinStrategy::ALL`], by name; or the path of a module that decides, which has a slash.
pub const ENV_STRATEGY: &str = "GARONNE_STRATEGY";

/// Value of the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// A built-in strategy.
    BuiltIn(BuiltinStrategy),
    /// The module in this file; what it does not decide, the default does.
    Module(PathBuf),
}

impl StrategyChoice {
    /// Reads a value of the setting.
    ///
    /// # Errors
    /// `Misuse` for a name that there is not.
    pub fn read(said: &OsStr) -> Result<Self> {
        let trimmed = said.as_bytes().trim_ascii();
        if trimmed.contains(&b'/') {
            return Ok(Self::Module(PathBuf::from(OsStr::from_bytes(trimmed))));
        }
        let named = std::str::from_utf8(trimmed)
            .ok()
            .and_then(BuiltinStrategy::named);
        named.map(Self::BuiltIn).ok_or_else(|| {
            let names = BuiltinStrategy::ALL.map(BuiltinStrategy::name).join(", ");
            Error::misuse(
                codes::G0225,
                format!("{ENV_STRATEGY}={said:?}; there are: {names}, or the path of a module, with a slash"),
            )
        })
    }

    /// Reads the environment.
    pub fn from_environment() -> Result<Self> {
        match std::env::var_os(ENV_STRATEGY) {
            Some(said) => Self::read(&said),
            None => Ok(Self::BuiltIn(BuiltinStrategy::default())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_slash_is_a_module_and_any_other_a_name() {
        for one in BuiltinStrategy::ALL {
            let said = format!(" {} ", one.name());
            assert_eq!(
                StrategyChoice::read(OsStr::new(&said)).unwrap(),
                StrategyChoice::BuiltIn(one)
            );
        }
        for path in ["/opt/lib.so", "./lib.so", "adaptive/", "a b/c.so"] {
            assert_eq!(
                StrategyChoice::read(OsStr::new(path)).unwrap(),
                StrategyChoice::Module(path.into())
            );
        }
        for other in ["", "sometimes", "lib.so"] {
            let error = StrategyChoice::read(OsStr::new(other)).unwrap_err();
            assert_eq!(error.code(), codes::G0225);
            assert!(
                error
                    .to_string()
                    .contains("immediate, aggregate, hold, adaptive, or the path of a module"),
                "{error}"
            );
        }
    }
}
