//! `garonne omp run -- PROGRAM`: an OpenMP program of GCC on Garonne's threads.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::fail;

/// The variable by which the loader finds libraries first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

#[derive(Debug, clap::Subcommand)]
pub enum OmpCommand {
    /// Run a program that was built with gcc -fopenmp, with its threads as fibers: garonne omp run
    /// -- ./app
    Run {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Print the folder that holds libgomp.so.1 alone, for LD_LIBRARY_PATH
    Path,
}

pub fn run(command: &OmpCommand) -> i32 {
    let folder = match folder() {
        Ok(folder) => folder,
        Err(text) => return fail(&text),
    };
    match command {
        OmpCommand::Path => {
            outln!("{}", folder.display());
            0
        }
        OmpCommand::Run { words } => {
            let mut path = folder.into_os_string();
            if let Some(before) = std::env::var_os(LIBRARY_PATH).filter(|path| !path.is_empty()) {
                path.push(":");
                path.push(before);
            }
            let error = Command::new(&words[0])
                .args(&words[1..])
                .env(LIBRARY_PATH, path)
                .exec();
            let program = PathBuf::from(&words[0]);
            fail(&format!("{} cannot be run: {error}", program.display()))
        }
    }
}

/// The folder with the library, beside the installed command.
fn folder() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| format!("where this command is: {error}"))?;
    let prefix = exe.parent().and_then(|bin| bin.parent());
    let folder = prefix.map(|prefix| prefix.join("lib/openmp"));
    folder
        .filter(|folder| folder.join("libgomp.so.1").exists())
        .ok_or_else(|| "lib/openmp/libgomp.so.1 is not installed beside this command".into())
}
