//! `garonne bench`: hands over to the benchmark that is installed beside the command
//! (share/garonne/bench).
//!
//! It fetches the other MPIs' Python wheels and draws plots, so it is a Python program with its own
//! options; what it times is C. Here is only the way to it, and a clear word when it is not there.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Arguments are the benchmark's own.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// See `garonne bench --help`; parts with their own help: `overlap`, `collectives --overlap`,
    /// `threads`, `threads --runtime`, `oversubscribed`, `flows`, `ways`, `binaries`,
    /// `rma`, `io`, `spawn`, `partitioned`, `survive`, `openmp`, `posix`,
    /// `sockets`, `tasks`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Becomes the benchmark; returns only if that fails. What times the library's own parts is here,
/// and needs no Python.
pub fn run(mut args: BenchArgs) -> i32 {
    if args.words.first().is_some_and(|word| word == "tasks") {
        args.words[0] = OsString::from("garonne bench tasks");
        return super::bench_tasks::run(args.words);
    }
    let is_runtime = |word: &OsString| word == "--runtime";
    if args.words.first().is_some_and(|word| word == "threads")
        && let Some(at) = args.words.iter().position(is_runtime)
    {
        args.words.remove(at);
        args.words[0] = OsString::from("garonne bench threads --runtime");
        return super::bench_fibers::run(args.words);
    }
    let Some(script) = script() else {
        errln!(
            "error: the benchmark is not beside this command (PREFIX/share/garonne/bench); `./x install` puts it there"
        );
        return 1;
    };
    let error = Command::new("python3").arg(&script).args(args.words).exec();
    errln!("error: python3 {}: {error}", script.display());
    1
}

/// From the place of the running program, behind any link to it.
fn script() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?.canonicalize().ok()?;
    let script = own.parent()?.parent()?.join("share/garonne/bench/bench.py");
    script.is_file().then_some(script)
}
