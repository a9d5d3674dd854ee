//! Jobs that ranks of this host have started (`MPI_Comm_spawn`). Their launchers are below this
//! agent, which waits for them when its own ranks have ended.

use garonne_job::settings::ENV_SPAWN;
use garonne_links::process_tree;

/// Returns whether a process is the launcher of a job that a rank has started: that one alone has
/// the variable.
fn is_launcher(pid: i32) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    variables.any(|variable| {
        let value = variable.strip_prefix(ENV_SPAWN.as_bytes());
        value.is_some_and(|value| value.starts_with(b"="))
    })
}

/// Returns whether such a job is still running. Its launcher is a child of this process once the
/// rank that started it has ended.
pub(super) fn any_running() -> bool {
    process_tree::children_of(rustix::process::getpid().as_raw_pid())
        .into_iter()
        .any(|pid| process_tree::ended(pid).is_none() && is_launcher(pid))
}
