//! Transport modules of a rank: loads those that its environment names, and puts them around its
//! transports.
//!
//! Owned by the [`Rank`](crate::rank::Rank), and by the factory of its further shards, whose
//! transports get modules of their own. Loaded by [`TransportModules::from_environment`] before the
//! rank sends anything; [`TransportModules::around`] follows for each engine, and
//! [`TransportModules::leave`] each time the rank leaves its job.

use std::path::Path;
use std::sync::Mutex;

use garonne_engine::api::Peer;
use garonne_multi::MultiTransport;
use garonne_sync::mutex::lock;
use garonne_transport::module::{LeaveHook, ModuleContext, TransportModule};

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::settings::transport_modules;

/// Transport modules that were loaded, the innermost first.
#[derive(Default)]
pub struct TransportModules {
    modules: Vec<(TransportModule, String)>,
    at_leave: Mutex<Vec<LeaveHook>>,
}

/// Returns the error of a module that cannot be loaded, or makes no transport.
fn refused(why: &str) -> Error {
    Error::misuse(
        codes::G0233,
        format!("cannot use the transport module {why}"),
    )
}

/// Loads the transport module in a file. Runs the file's initialisers, as every loading of a
/// library does.
///
/// # Errors
/// `Misuse` that names the file and says why it is no module for this build.
pub fn load(file: &Path) -> Result<TransportModule> {
    // A name without a slash would be searched elsewhere.
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let none = |why: &str| refused(&format!("{}: {why}", whole.display()));
    // Opening anything else, a pipe, might never end.
    match whole.metadata() {
        Ok(known) if !known.is_file() => return Err(none("it is not a file")),
        Ok(_) => {}
        Err(error) => return Err(none(&error.to_string())),
    }
    TransportModule::load(&whole).map_err(|error| refused(&error.to_string()))
}

impl TransportModules {
    /// Loads the modules that the environment names.
    ///
    /// # Errors
    /// `Misuse`: the setting is not understood, or a file is no module for this build.
    pub fn from_environment() -> Result<Self> {
        let mut modules = Vec::new();
        for choice in transport_modules::from_environment()? {
            modules.push((load(&choice.file)?, choice.options));
        }
        Ok(Self {
            modules,
            at_leave: Mutex::default(),
        })
    }

    /// Puts the modules around the transport of an engine of this rank.
    ///
    /// # Errors
    /// A module makes no transport, for the reason that it gives.
    pub fn around(
        &self,
        transport: MultiTransport,
        (me, shard, world): (Peer, u32, u32),
    ) -> Result<MultiTransport> {
        if self.modules.is_empty() {
            return Ok(transport);
        }
        let mut hooks = Vec::new();
        let wrapped = transport.through_modules(|mut transport| {
            for (module, options) in &self.modules {
                transport = module.create(ModuleContext {
                    me,
                    world,
                    shard,
                    options,
                    inner: Some(transport),
                    at_leave: &mut hooks,
                })?;
            }
            Ok(transport)
        });
        lock(&self.at_leave).append(&mut hooks);
        wrapped.map_err(|why| refused(&why))
    }

    /// Calls the hooks of all modules: the rank leaves its job.
    pub fn leave(&self) {
        lock(&self.at_leave).iter_mut().for_each(|hook| hook());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_module_is_refused_with_its_name_and_the_reason() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps
            .split_whitespace()
            .find(|word| word.contains("/libc.so"))
            .unwrap();
        for (path, why) in [
            ("/no/such/module.so", "No such file"),
            ("/tmp", "not a file"),
            ("/dev/null", "not a file"),
            ("/etc/passwd", "invalid ELF header"),
            // A library that is no transport module.
            (library, "does not export garonne_transport_module"),
        ] {
            let error = load(Path::new(path)).unwrap_err();
            assert_eq!(error.code(), codes::G0233);
            let text = error.to_string();
            assert!(text.contains(path) && text.contains(why), "{text}");
            assert_eq!(text.matches(path).count(), 1, "{text}");
        }
    }
}
