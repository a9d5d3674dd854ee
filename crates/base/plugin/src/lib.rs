//! Modules: shared objects in Rust that a process loads while it runs, and calls by Rust's own
//! conventions.
//!
//! Rust promises no layout between two compilers, nor between two versions of a crate. So a module
//! begins with a header of fixed layout: by which compiler it was built, with which version of
//! Garonne's crates, and a checksum of everything that crosses the border. A module that differs in
//! any of these is refused, and nothing in it but its initialisers has run. What an interface is,
//! and which types cross it, says the crate that owns the interface
//! (`garonne_transport::module`).
//!
//! A module stays loaded until the process ends: objects that it made may outlive whoever loaded
//! it. Both sides allocate by the C library, so either may free what the other allocated. A panic
//! must not leave a module: host and module have a standard library each, and the host's takes a
//! foreign panic for the end of the process.
//!
//! No unsafe code outside `sys.rs`.

#![deny(unsafe_code)]

mod header;
mod sys;

pub use header::{Checksum, HEADER_VERSION, Identity, ModuleHeader};
pub use sys::{LoadedModule, SharedObject, why_alone};

use std::path::{Path, PathBuf};

/// Compiler by which this crate was built, and its target.
pub const COMPILER: &str = env!("PLUGIN_COMPILER");

/// Reason why a file was not loaded as a module. Each names the file; one about versions names
/// that of the module and ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The loader cannot open the file.
    #[error("{}: cannot be loaded: {why}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The loader's message.
        why: String,
    },
    /// The file is a shared object, and no module of this interface.
    #[error("{}: is no {interface} module: it does not export {symbol}", file.display())]
    NoModule {
        /// The file.
        file: PathBuf,
        /// Name of the interface.
        interface: String,
        /// The symbol that such a module exports.
        symbol: String,
    },
    /// The symbol that the file exports is no header of a module.
    #[error("{}: is no {interface} module: what it exports as {symbol} is no header", file.display())]
    NoHeader {
        /// The file.
        file: PathBuf,
        /// Name of the interface.
        interface: String,
        /// The symbol that such a module exports.
        symbol: String,
    },
    /// The module differs from this process in something that both must have alike.
    #[error("{}: the module has {what} {theirs}, this process has {ours}: build it with the same", file.display())]
    Differs {
        /// The file.
        file: PathBuf,
        /// The property in which they differ.
        what: Difference,
        /// The module's.
        theirs: String,
        /// This process's.
        ours: String,
    },
}

/// Property in which a module differs from the process that was to load it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Version of the header's own layout.
    Header,
    /// Name of the interface.
    Interface,
    /// Compiler and target.
    Compiler,
    /// Version of Garonne's crates.
    Crates,
    /// Checksum of all that crosses the border.
    Layout,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "a header of version",
            Self::Interface => "the interface",
            Self::Compiler => "the compiler",
            Self::Crates => "the crates of version",
            Self::Layout => "the layout checksum",
        })
    }
}

/// Loads the module in a file, after which it stays loaded.
///
/// The module's initialisers run before anything can be checked: load only files that you would
/// run. A relative path without a slash is searched as the loader does.
///
/// # Errors
/// The file is no module of this interface, or was built otherwise than this process.
pub fn load(file: &Path, interface: &Identity) -> Result<LoadedModule, LoadError> {
    let module = sys::open(file, interface)?;
    interface.check(file, &module)?;
    Ok(module)
}
