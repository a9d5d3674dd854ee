//! `garonne threads run -- PROGRAM`: a program of POSIX threads with its threads as fibers.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use garonne_loader::program::Program;

use super::{fail, preload};

/// Asks the library for a report at the program's end.
const REPORT: &str = "GARONNE_THREADS_REPORT";

const LIBRARY: &str = "lib/threads/libgaronne_pthread.so.1";

/// What tells gdb of fibers.
const GDB_SCRIPT: &str = "share/garonne/threads_gdb.py";

#[derive(Debug, clap::Subcommand)]
pub enum ThreadsCommand {
    /// Run a program with its POSIX threads as fibers: garonne threads run -- pigz file
    Run {
        /// At its end say which threads ran as fibers, and which stayed the kernel's and why
        #[arg(long)]
        report: bool,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Print the path of the library, for LD_PRELOAD
    Path,
    /// Start gdb with the stacks of threads that run as fibers: garonne threads gdb -- -p 1234
    Gdb {
        /// What gdb is told
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

pub fn run(command: &ThreadsCommand) -> i32 {
    let name = match command {
        ThreadsCommand::Gdb { .. } => GDB_SCRIPT,
        _ => LIBRARY,
    };
    let file = match preload::installed(name) {
        Ok(file) => file,
        Err(text) => return fail(&text),
    };
    match command {
        ThreadsCommand::Path => {
            outln!("{}", file.display());
            0
        }
        ThreadsCommand::Run { report, words } => start(&file, *report, words),
        ThreadsCommand::Gdb { words } => debug(&file, words),
    }
}

fn debug(script: &Path, words: &[OsString]) -> i32 {
    let mut source = OsString::from("source ");
    source.push(script);
    let error = Command::new("gdb")
        .arg("-iex")
        .arg(source)
        .args(words)
        .exec();
    fail(&format!("gdb cannot be run: {error}"))
}

fn start(library: &Path, report: bool, words: &[OsString]) -> i32 {
    let path = match preload::find(&words[0]) {
        Some(path) => path,
        None => {
            return fail(&format!(
                "{} is not found",
                PathBuf::from(&words[0]).display()
            ));
        }
    };
    if let Err(text) = check(&path) {
        return fail(&text);
    }
    let mut command = preload::command(&path, words, library);
    match report {
        true => command.env(REPORT, "1"),
        false => command.env_remove(REPORT),
    };
    let error = command.exec();
    fail(&format!("{} cannot be run: {error}", path.display()))
}

/// Refuses programs into which the loader puts no library: their threads would stay the kernel's
/// without a word.
fn check(path: &Path) -> Result<(), String> {
    let lookup = |name: &str| preload::find(&OsString::from(name));
    let program = Program::read(path, lookup).map_err(|error| error.to_string())?;
    let name = program.path.display();
    if program.is_static() {
        return Err(format!(
            "{name} is linked statically (as Go's programs are): no library can take its threads. \
             Run it by itself"
        ));
    }
    if program.is_secure {
        return Err(format!(
            "{name} runs with other rights than yours (set-user-ID), so the loader gives it no \
             library. Run it by itself"
        ));
    }
    let loader = program.file.interpreter.unwrap_or_default();
    if loader.contains("musl") {
        return Err(format!(
            "{name} uses the C library musl, whose threads this library does not know. Run it by \
             itself"
        ));
    }
    if !program.file.architecture.is_64_bit {
        return Err(format!(
            "{name} is a 32-bit program, and the library is not. Run it by itself"
        ));
    }
    Ok(())
}
