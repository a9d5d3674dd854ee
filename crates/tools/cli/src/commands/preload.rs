//! Programs that start with a library of the installation loaded before all others.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable by which the loader takes libraries before all others.
const PRELOAD: &str = "LD_PRELOAD";

/// A command that starts a program with its words and with a library before those that are
/// preloaded already.
pub fn command(path: &Path, words: &[OsString], library: &Path) -> Command {
    let mut preload = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os(PRELOAD).filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = Command::new(path);
    command
        .arg0(&words[0])
        .args(&words[1..])
        .env(PRELOAD, preload);
    command
}

/// Path of a program as the shell would find it.
pub fn find(word: &OsString) -> Option<PathBuf> {
    let path = PathBuf::from(word);
    if path.components().count() > 1 {
        return path.exists().then_some(path);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(&path))
        .find(|path| path.is_file())
}

/// A file beside the installed command.
pub fn installed(name: &str) -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| format!("where this command is: {error}"))?;
    let prefix = exe.parent().and_then(|bin| bin.parent());
    let file = prefix.map(|prefix| prefix.join(name));
    file.filter(|file| file.exists())
        .ok_or_else(|| format!("{name} is not installed beside this command"))
}
