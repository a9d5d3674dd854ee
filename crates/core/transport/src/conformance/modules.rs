//! Where tests find the modules that cargo built for them.

use std::path::PathBuf;

/// Returns the file of the module that a crate of type `cdylib` became, for a test that depends on
/// that crate.
///
/// # Panics
/// Cargo built no such module beside this program.
pub fn built_module(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its program");
    let directory = program.parent().expect("it lies in a directory");
    let file = directory.join(format!("lib{}.so", name.replace('-', "_")));
    assert!(file.is_file(), "there is no {}", file.display());
    file
}
