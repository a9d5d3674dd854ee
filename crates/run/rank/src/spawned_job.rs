//! Starting a further job for `MPI_Comm_spawn`: `garonne run` once more, whose processes connect to
//! a port of this process when they initialise MPI.
//!
//! The further job is below this process, so it ends with the job of this process if that fails.

use garonne_links::agent_discovery::JobEnvironment;
use garonne_progress::world_connector::{
    ConnectError, ConnectFault, ConnectResult, SpawnProgram, SpawnedJob,
};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::world_connections::{ENV_PARENT, ENV_SPAWN};

struct StartedJob(Option<Child>);

impl SpawnedJob for StartedJob {
    fn has_ended(&mut self) -> bool {
        match &mut self.0 {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        }
    }
}

impl Drop for StartedJob {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        if matches!(child.try_wait(), Ok(None)) {
            // Its end is waited for, so that it leaves no zombie in a program that spawns often.
            let waiter = std::thread::Builder::new()
                .name(String::from("garonne-spawned"))
                .stack_size(64 << 10);
            drop(waiter.spawn(move || child.wait()));
        }
    }
}

/// Returns whether this is a file that may be executed.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the file of a program, as the info keys say; `None`: there is none.
fn find(program: &SpawnProgram) -> Option<PathBuf> {
    let command = Path::new(&program.command);
    let below = |dir: &Path| {
        let dir = match &program.wdir {
            Some(wdir) if dir.is_relative() => Path::new(wdir).join(dir),
            _ => dir.to_owned(),
        };
        let file = dir.join(command);
        is_program(&file).then_some(file)
    };
    if command.components().count() > 1 {
        // The program's own directory is where MPI_Comm_spawn was called, unless `wdir` has it.
        return below(Path::new("")).or_else(|| is_program(command).then(|| command.to_owned()));
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let said = program.path.clone().unwrap_or_default();
    let mut dirs = std::env::split_paths(&said).collect::<Vec<_>>();
    dirs.retain(|dir| !dir.as_os_str().is_empty());
    dirs.extend(std::env::split_paths(&search));
    dirs.push(PathBuf::new());
    dirs.iter().find_map(|dir| below(dir))
}

/// Starts a process on the cores that the launcher of this job may use, not only on those to which
/// this rank is bound.
fn on_cores_of_launcher<T>(start: impl FnOnce() -> T) -> T {
    let job = JobEnvironment::from_env().ok().flatten();
    let launcher = job.and_then(|job| job.agent.launcher());
    let launcher = launcher.and_then(|pid| rustix::process::Pid::from_raw(pid as i32));
    let wide = launcher.and_then(|pid| rustix::thread::sched_getaffinity(Some(pid)).ok());
    let own = rustix::thread::sched_getaffinity(None);
    let widened = wide.is_some_and(|cpus| rustix::thread::sched_setaffinity(None, &cpus).is_ok());
    let started = start();
    if let (true, Ok(own)) = (widened, own) {
        // It was allowed a moment ago.
        let _ = rustix::thread::sched_setaffinity(None, &own);
    }
    started
}

/// Starts a job of these programs. Its processes connect to `port`. `survives`: it survives the
/// deaths of its processes.
pub(crate) fn start(
    programs: &[SpawnProgram],
    port: &str,
    survives: bool,
) -> ConnectResult<Box<dyn SpawnedJob>> {
    let failed = |text: String| ConnectError::new(ConnectFault::Spawn, text);
    let launcher = garonne_launchers::agent_program()
        .map_err(|error| failed(format!("no launcher for more processes: {error}")))?;
    let mut command = Command::new(&launcher);
    command.arg("run");
    if survives {
        command.arg("--survive");
    }
    let mut is_first = true;
    for program in programs.iter().filter(|program| program.processes > 0) {
        let file = find(program).ok_or_else(|| {
            failed(format!(
                "there is no program {:?} to start",
                program.command
            ))
        })?;
        if !std::mem::take(&mut is_first) {
            command.arg(":");
        }
        command.args(["-n", &program.processes.to_string()]);
        if let Some(hosts) = &program.hosts {
            command.args(["-host", hosts]);
        }
        if let Some(wdir) = &program.wdir {
            command.args(["-wdir", wdir]);
        }
        command.arg("--").arg(file).args(&program.args);
    }
    for (name, _) in std::env::vars_os() {
        if garonne_links::agent_discovery::is_of_rank(&name) {
            command.env_remove(name);
        }
    }
    command.env(ENV_SPAWN, port).env_remove(ENV_PARENT);
    command.stdin(Stdio::null());
    let child = on_cores_of_launcher(|| command.spawn());
    let child = child.map_err(|error| failed(format!("cannot start {launcher:?}: {error}")))?;
    Ok(Box::new(StartedJob(Some(child))))
}
