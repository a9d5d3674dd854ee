//! Bubble schedulers that are loaded as modules: shared objects in Rust.
//!
//! A module is a crate of type `cdylib` that calls [`bubble_scheduler_module!`] with a function of
//! type [`CreateScheduler`]. A process gets a scheduler of it by [`by_name`], which takes names of
//! stock schedulers, too. Border: [`BubbleScheduler`] and the types of its methods, by Rust's own
//! conventions. So a module is refused unless compiler, crates and their sources are alike
//! (`garonne_plugin`).
//!
//! A module's panics are caught inside it: its standard library is not that of the process. What a
//! module answers is checked by the framework as any scheduler's moves are.

mod guarded;
mod sys;

use std::path::Path;

use garonne_bubbles::{BubbleScheduler, Event, Move, UnknownScheduler, View};
use garonne_plugin::{Checksum, Identity, LoadError, load};

#[doc(hidden)]
pub use garonne_plugin::ModuleHeader;
#[doc(hidden)]
pub use guarded::guarded;

/// Identity of the interface of schedulers' modules in this build. Modules carry it.
pub const IDENTITY: Identity = Identity::new(
    "bubble scheduler",
    c"garonne_bubble_scheduler_module",
    env!("CARGO_PKG_VERSION"),
    LAYOUT,
);

/// Checksum of the sources that declare the border, and of the layouts of its types.
const LAYOUT: Checksum = Checksum::new(number(env!("BUBBLE_SOURCES")))
    .layout_of::<Box<dyn BubbleScheduler>>()
    .layout_of::<Event>()
    .layout_of::<Vec<Move>>()
    .layout_of::<View>();

/// Returns the number that a decimal text says.
const fn number(text: &str) -> u64 {
    let (bytes, mut number, mut at) = (text.as_bytes(), 0u64, 0);
    while at < bytes.len() {
        number = number
            .wrapping_mul(10)
            .wrapping_add((bytes[at] - b'0') as u64);
        at += 1;
    }
    number
}

/// Entry of a module: makes a scheduler.
pub type CreateScheduler = fn() -> Box<dyn BubbleScheduler>;

/// Reason why there is no such scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerError {
    /// The word is neither a stock scheduler's name nor a path.
    #[error("{0}; a module is named by its file, with a slash")]
    Unknown(UnknownScheduler),
    /// The file is no module of a scheduler, or was built otherwise.
    #[error(transparent)]
    Module(LoadError),
}

/// Makes the stock scheduler of a name, or, if the word has a slash, that of a module.
///
/// # Errors
/// There is none: the error lists the names, or says what is wrong with the file.
pub fn by_name(name: &str) -> Result<Box<dyn BubbleScheduler>, SchedulerError> {
    if !name.contains('/') {
        return garonne_bubbles::by_name(name).map_err(SchedulerError::Unknown);
    }
    let module = load(Path::new(name), &IDENTITY).map_err(SchedulerError::Module)?;
    Ok(sys::entry(&module)())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_a_slash_are_names_and_others_files() {
        assert_eq!(by_name("spread").unwrap().name(), "spread");
        let why = by_name("sometimes").err().unwrap().to_string();
        assert!(
            why.contains("spread, steal") && why.contains("slash"),
            "{why}"
        );
        for file in ["/no/such/module.so", "/dev/null", "./"] {
            let why = by_name(file).err().unwrap();
            assert!(matches!(why, SchedulerError::Module(_)), "{why}");
        }
        // A shared object that is no module of ours.
        let libc = "/lib/x86_64-linux-gnu/libc.so.6";
        if Path::new(libc).exists() {
            let why = by_name(libc).err().unwrap().to_string();
            assert!(why.contains("is no bubble scheduler module"), "{why}");
        }
    }
}
