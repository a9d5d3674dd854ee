//! The `garonne` command. Under the names `mpirun` and `mpiexec` it is `garonne run`.
//!
//! One module per subcommand. `run` is dispatched before the option library is touched, since it
//! must start at once.

#![forbid(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written: see `output`"
)]

#[macro_use]
mod output;

mod commands;
mod diagnosis;
mod flight_recording;
mod job_page;
mod module_checker;
mod overwrite_check;
mod progress_bar;
mod recording;
mod run;

use std::ffi::OsString;

/// Heap of the command. Without memory the command ends with an error of Garonne's.
#[global_allocator]
static HEAP: garonne_sync::allocator::ReportingAllocator =
    garonne_sync::allocator::ReportingAllocator::new(garonne_links::out_of_memory::end);

fn main() {
    if std::env::var_os(commands::COMPLETE).is_some() {
        commands::complete();
    }
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let called = words
        .first()
        .map(std::path::Path::new)
        .and_then(|path| path.file_name()?.to_str())
        .unwrap_or("garonne")
        .to_owned();
    let as_launcher = called.starts_with("mpirun") || called.starts_with("mpiexec");
    let code = match words.get(1).and_then(|word| word.to_str()) {
        _ if as_launcher => run::run(words.split_off(1), &called),
        // Started by a launcher on another host.
        Some("agent") if words.len() == 2 => garonne_agent::remote_agent::serve(),
        // Started by a rank of another launcher's.
        Some("agent") if words[2..] == ["--adopt"] => garonne_agent::adoption::serve(),
        // Started by an agent, to look at its host's ranks.
        Some("agent") if words.len() == 5 && words[2] == "--look" => {
            diagnosis::job_snapshot::look_for_agent(
                &words[3].to_string_lossy(),
                &words[4].to_string_lossy(),
            )
        }
        // Started by the agent of a job that is ended from outside or stands still.
        Some("agent") if words.len() == 5 && words[2] == "--verdict" => {
            diagnosis::verdict_for_agent(&words[3].to_string_lossy(), &words[4].to_string_lossy())
        }
        // Started by the agent of a rank that has crashed.
        Some("agent") if words.len() == 5 && words[2] == "--crashed" => {
            diagnosis::crash::print_for_agent(
                &words[3].to_string_lossy(),
                &words[4].to_string_lossy(),
            )
        }
        Some("run") => run::run(words.split_off(2), "garonne run"),
        _ => commands::dispatch(words),
    };
    std::process::exit(code);
}
