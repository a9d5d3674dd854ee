//! Which strategy the optimisation window follows: a built-in one by its name, or a module of
//! somebody else's by its path.
//!
//! Read from the environment by every rank when it starts, and by the launcher before it starts
//! anything. A module runs in the rank's process; its answers are checked by the engine
//! ([`garonne_engine::schedule::plugin`]).

#[allow(unsafe_code)]
mod sys;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use garonne_engine::schedule::builtin::BuiltinStrategy;
use garonne_engine::schedule::plugin::{
    CoalesceQuery, PluginAnswer, PluginDecisions, StrategyPlugin, StripePiece, StripeQuery,
    WindowView,
};

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
    pub(crate) fn from_environment() -> Result<Self> {
        match std::env::var_os(ENV_STRATEGY) {
            Some(said) => Self::read(&said),
            None => Ok(Self::BuiltIn(BuiltinStrategy::default())),
        }
    }
}

/// The strategy that a rank follows, in a word of its rank block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActiveStrategy {
    /// A built-in one.
    BuiltIn(BuiltinStrategy),
    /// A module; where the counts of its answers lie in the rank's own memory. What it does not
    /// decide, the default does.
    Module(u64),
}

impl ActiveStrategy {
    /// Nothing lies below this address in any process.
    const LOWEST: u64 = 4096;

    pub(crate) fn word(self) -> u64 {
        match self {
            Self::BuiltIn(one) => one.code(),
            Self::Module(address) => address,
        }
    }

    pub(crate) fn from_word(word: u64) -> Option<Self> {
        match word {
            Self::LOWEST.. => Some(Self::Module(word)),
            code => BuiltinStrategy::from_code(code).map(Self::BuiltIn),
        }
    }

    /// The built-in strategy that decides what no module does.
    pub fn built_in(self) -> BuiltinStrategy {
        match self {
            Self::BuiltIn(one) => one,
            Self::Module(_) => BuiltinStrategy::default(),
        }
    }

    /// Returns the address of the counts of a module's answers in the rank's own memory; 0: there
    /// is none.
    pub fn answers(self) -> u64 {
        match self {
            Self::BuiltIn(_) => 0,
            Self::Module(address) => address,
        }
    }
}

/// A strategy of somebody else's, loaded into this process for as long as it lives.
#[derive(Debug)]
pub struct StrategyModule {
    functions: sys::ModuleFunctions,
    name: String,
}

impl StrategyModule {
    /// Loads the module in a file. Runs the file's initialisers, as every loading of a library
    /// does.
    ///
    /// # Errors
    /// `Misuse` that names the file and says why it is no module for this library.
    pub fn open(path: &Path) -> Result<Self> {
        let refused = |why: &str| {
            Error::misuse(
                codes::G0230,
                format!("cannot load the strategy '{}': {why}", path.display()),
            )
        };
        // Opening anything else, a pipe, might never end.
        match path.metadata() {
            Ok(known) if !known.is_file() => return Err(refused("it is not a file")),
            Ok(_) => {}
            Err(error) => return Err(refused(&error.to_string())),
        }
        let (functions, name) = sys::load(path).map_err(|why| refused(&why))?;
        let name = name.or_else(|| Some(path.file_stem()?.to_string_lossy().into_owned()));
        Ok(Self {
            functions,
            name: name.unwrap_or_default(),
        })
    }

    /// Returns the name that the module gives itself, else its file's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl StrategyPlugin for StrategyModule {
    fn decides(&self) -> PluginDecisions {
        self.functions.decides()
    }

    fn may_wait(&self, message: &CoalesceQuery) -> PluginAnswer<bool> {
        self.functions.may_wait(message)
    }

    fn order(&self, window: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
        self.functions.order(window)
    }

    fn piece(&self, flow: &StripeQuery<'_>) -> PluginAnswer<Option<StripePiece>> {
        self.functions.piece(flow)
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

    #[test]
    fn what_is_followed_is_read_from_its_word() {
        let all = BuiltinStrategy::ALL
            .map(ActiveStrategy::BuiltIn)
            .into_iter();
        for followed in all.chain([
            ActiveStrategy::Module(4096),
            ActiveStrategy::Module(u64::MAX),
        ]) {
            assert_eq!(ActiveStrategy::from_word(followed.word()), Some(followed));
        }
        assert_eq!(
            (
                ActiveStrategy::from_word(0),
                ActiveStrategy::from_word(4095)
            ),
            (None, None)
        );
    }

    #[test]
    fn a_file_that_is_no_module_is_refused_with_its_name_and_the_reason() {
        let refused = |path: &str, why: &str| {
            let error = StrategyModule::open(Path::new(path)).unwrap_err();
            assert_eq!(error.code(), codes::G0230);
            let text = error.to_string();
            assert!(text.contains(path) && text.contains(why), "{text}");
            assert_eq!(text.matches(path).count(), 1, "{text}");
        };
        refused("/no/such/module.so", "No such file");
        refused("/tmp", "not a file");
        refused("/dev/null", "not a file");
        refused("/etc/passwd", "invalid ELF header");
        // A library that is no strategy.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps
            .split_whitespace()
            .find(|word| word.contains("/libc.so"))
            .unwrap();
        refused(library, "does not export garonne_strategy_v1");
    }
}
