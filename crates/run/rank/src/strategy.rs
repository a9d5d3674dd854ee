//! Which strategy the optimisation window follows: a built-in one by its name, or a module of
//! somebody else's by its path.
//!
//! Read from the environment by every rank when it starts, and by the launcher before it starts
//! anything. A module runs in the rank's process; its answers are checked by the engine
//! ([`garonne_engine::schedule::plugin`]).

#[allow(unsafe_code)]
mod sys;

use std::path::Path;

use garonne_engine::schedule::plugin::{
    CoalesceQuery, PluginAnswer, PluginDecisions, StrategyPlugin, StripePiece, StripeQuery,
    WindowView,
};

use garonne_job::codes;
use garonne_job::error::{Error, Result};

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
