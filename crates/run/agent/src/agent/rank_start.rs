//! Starting the ranks: environment, program lookup, pipes.

use garonne_job::agent_socket_name::AgentSocketName;
use garonne_job::settings::ENV_SINGLETONS;
use garonne_job::settings::bulk_transports::BulkTransports;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::pipe::PipeFlags;
use rustix::process::Resource;

use super::executable;
use super::rank_libraries::{LibraryChoice, RankLibraries, StartedProgram};
use super::{interrupt, spawn};
use crate::binding_order::ENV_ORDER;
use crate::rank_slots::ENV_SLOTS;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::{Job, Program, StderrMode};
use garonne_job::limits;
use garonne_job::registration_secret::RegistrationSecret;
use garonne_job::settings::{ENV_PARENT, ENV_RANK_PROGRAM, ENV_RANKS_PER_PROCESS, ENV_SPAWN};
use garonne_links::agent_discovery::{self, JobEnvironment, ProgramPosition};
use garonne_links::process_tree;
use garonne_links::sys;

/// Name of the command that runs several ranks in a process.
pub(super) const RANK_THREADS: &str = "garonne-rank-threads";

/// Arguments and environment that the starts of all ranks have in common.
pub(super) struct RankStarter<'a> {
    pub job: &'a Job,
    admission: RegistrationSecret,
    pub name: &'a AgentSocketName,
    /// The socket that ranks inherit.
    pub shared: &'a OwnedFd,
    pub signals: &'a sys::SignalFd,
    libraries: RankLibraries,
    null: OwnedFd,
    nofile: Option<(u64, u64)>,
    number: i32,
    /// Keys of a terminal are for the launcher alone, which looks at the ranks before it passes
    /// them on.
    has_terminal: bool,
}

/// A rank that runs, and the agent's ends of its output.
pub(super) struct StartedRank {
    pub pid: i32,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// A program made ready to execute.
pub(super) struct PreparedProgram {
    path: CString,
    argv: Vec<CString>,
    dir: Option<CString>,
    env: Vec<(OsString, OsString)>,
    kind: executable::FileKind,
    libraries: LibraryChoice,
}

impl<'a> RankStarter<'a> {
    pub fn new(
        job: &'a Job,
        admission: &RegistrationSecret,
        name: &'a AgentSocketName,
        shared: &'a OwnedFd,
        signals: &'a sys::SignalFd,
    ) -> Result<Self> {
        let null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            0.into(),
        )
        .map_err(|error| Error::system(codes::G0210, "cannot open /dev/null", error))?;
        let nofile = raise_nofile();
        let room = nofile.map_or_else(
            || rustix::process::getrlimit(Resource::Nofile).current,
            |(soft, _)| Some(soft),
        );
        let room = i32::try_from(room.unwrap_or(u64::MAX)).unwrap_or(i32::MAX);
        let number = limits::CONTROL_FD_MIN.min(room - 1).max(3);
        Ok(Self {
            job,
            admission: admission.clone(),
            name,
            shared,
            signals,
            libraries: RankLibraries::of_this_command(),
            null,
            nofile,
            number,
            has_terminal: interrupt::has_terminal(),
        })
    }

    /// Looks the program at a place of the command line up and builds what its ranks share.
    pub fn prepare(&self, index: usize, program: &Program) -> Result<PreparedProgram> {
        if let Some(fault) = &self.job.fault {
            return Err(Error::misuse(codes::G0211, fault));
        }
        let word = program
            .argv
            .first()
            .ok_or_else(|| Error::misuse(codes::G0211, "no program to run"))?;
        let mut env: Vec<(OsString, OsString)> = match &self.job.env {
            // What means this host only is as it is here.
            Some(env) => std::env::vars_os()
                .filter(|(name, _)| is_of_one_host(name))
                .chain(env.iter().cloned())
                .collect(),
            None => std::env::vars_os().collect(),
        };
        for (name, value) in &program.env {
            env.retain(|(known, _)| known != name);
            env.extend(value.clone().map(|value| (name.clone(), value)));
        }
        let search = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.as_os_str());
        let path = executable::find(word, search, program.dir.as_deref())?;
        let file = program.dir.as_deref().unwrap_or(Path::new("")).join(&path);
        let kind = executable::kind(&file, search)
            .map_err(|why| executable::cannot(word, program.dir.as_deref(), &why))?;
        let argv = program
            .argv
            .iter()
            .map(|word| c_string(word))
            .collect::<Result<_>>()?;
        let dir = program
            .dir
            .as_deref()
            .map(|dir| c_string(dir.as_os_str()))
            .transpose()?;
        if let Some(dir) = &program.dir {
            // What shells and other launchers do on `cd`: programs that print their directory
            // expect it.
            env.retain(|(name, _)| name != "PWD");
            env.push((
                "PWD".into(),
                std::path::absolute(dir)
                    .unwrap_or_else(|_| dir.clone())
                    .into(),
            ));
        }
        let own = JobEnvironment::vars(&self.admission, self.name, self.shared, self.number)?;
        env.retain(|(name, _)| !own.iter().any(|(known, _)| name == known.as_str()));
        env.extend(
            own.into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        env.retain(|(name, _)| name != ENV_PARENT);
        for (name, _) in env.iter_mut().filter(|(name, _)| name == ENV_SPAWN) {
            *name = ENV_PARENT.into();
        }
        let place = ProgramPosition {
            index: i32::try_from(index).unwrap_or(i32::MAX),
            ranks: program.ranks,
        };
        let of_one = [
            agent_discovery::ENV_PROGRAM,
            agent_discovery::ENV_HELPERS,
            ENV_SLOTS,
            ENV_ORDER,
        ];
        env.retain(|(name, _)| !of_one.iter().any(|known| name == known));
        env.push((
            agent_discovery::ENV_PROGRAM.into(),
            place.to_string().into(),
        ));
        let started = StartedProgram {
            file: &file,
            dir: program.dir.as_deref(),
            may_be_alone: self.job.size() < 2 || allows_worlds_of_one(&env),
        };
        let libraries = self.libraries.choose(&started, &mut env)?;
        let (path, kind) = match shared_process(&file, &mut env)? {
            Some(command) => (command, executable::FileKind::Program),
            None => (path, kind),
        };
        Ok(PreparedProgram {
            path: c_string(path.as_os_str())?,
            argv,
            dir,
            env,
            kind,
            libraries,
        })
    }

    fn place_of(&self, rank: u32) -> RankPosition {
        let size = self.job.size();
        let (here, all_here) = match self.job.nodes.several() {
            false => (rank, size),
            true => {
                let ranks = self.job.ranks_of(self.job.nodes.of(rank));
                let here = ranks.iter().position(|known| *known == rank).unwrap_or(0);
                (here as u32, ranks.len() as u32)
            }
        };
        let helpers = self.job.placement.helpers.get(rank as usize);
        RankPosition {
            rank,
            size,
            here,
            all_here,
            helpers: helpers.cloned().unwrap_or_default(),
        }
    }

    /// Starts `rank`. `input`: what it reads as standard input, if that is neither nothing nor this
    /// process's own.
    pub fn start(
        &self,
        rank: u32,
        ready: &PreparedProgram,
        input: Option<OwnedFd>,
    ) -> Result<StartedRank> {
        let (stdout, stdout_theirs) = pipe()?;
        let (stderr, stderr_theirs) = pipe()?;
        // Both streams through one pipe keep their order; the other pipe ends at once.
        let errors = match self.job.streams {
            StderrMode::Apart => &stderr_theirs,
            StderrMode::Merged => &stdout_theirs,
        };
        let envp = environment(ready, &self.place_of(rank))?;
        let mask = self
            .job
            .placement
            .masks
            .get(rank as usize)
            .map_or(&[][..], |mask| mask);
        let exec = spawn::ExecRequest {
            path: &ready.path,
            by_shell: ready.kind == executable::FileKind::Text,
            argv: &ready.argv,
            envp: &envp,
            dir: ready.dir.as_ref(),
            stdin: match &input {
                Some(input) => Some(input.as_fd()),
                None => (!self.job.stdin.is_read_by(rank)).then_some(self.null.as_fd()),
            },
            stdout: stdout_theirs.as_fd(),
            stderr: errors.as_fd(),
            pass: Some((self.shared.as_fd(), self.number)),
            // Who is in another group than the terminal's cannot read from it.
            own_group: self.has_terminal && !self.job.stdin.is_read_by(rank),
            cpus: mask,
            nofile: self.nofile,
            signals: self.signals,
        };
        let program = ready.path.to_string_lossy();
        let pid = spawn::spawn(&exec).map_err(|error| match error {
            spawn::SpawnError::Fork(error) => {
                process_tree::too_many(&format!("cannot start a process for rank {rank}"), &error)
            }
            spawn::SpawnError::Chdir(error) => {
                let dir = ready
                    .dir
                    .as_ref()
                    .map(|dir| dir.to_string_lossy())
                    .unwrap_or_default();
                Error::system(
                    codes::G0210,
                    format!("cannot change to the directory '{dir}'"),
                    error,
                )
            }
            spawn::SpawnError::Exec(error) => {
                let what = match executable::why_not(&ready.file(), &error) {
                    Some(why) => format!("cannot execute '{program}': {why}"),
                    None => format!("cannot execute '{program}'"),
                };
                Error::system(codes::G0210, what, error)
            }
        })?;
        Ok(StartedRank {
            pid,
            stdout,
            stderr,
        })
    }
}

/// Lifts the soft limit of open files to the hard one; returns what ranks shall have instead.
pub(super) fn raise_nofile() -> Option<(u64, u64)> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current?, limit.maximum?);
    let raised = rustix::process::Rlimit {
        current: Some(hard),
        maximum: Some(hard),
    };
    (soft < hard && rustix::process::setrlimit(Resource::Nofile, raised).is_ok())
        .then_some((soft, hard))
}

/// Returns how many descriptors this process may have.
pub(super) fn open_files_limit() -> u64 {
    rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

/// A pipe whose reading end does not block.
fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let failed = |error| {
        Error::system(
            codes::G0302,
            "cannot make a pipe for a rank's output",
            error,
        )
    };
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK).map_err(failed)?;
    Ok((read, write))
}

fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|_| Error::misuse(codes::G0211, format!("{text:?} contains a zero byte")))
}

/// Variables that say something of one host or login and would be wrong on another.
pub(super) const OF_ONE_HOST: [&str; 8] = [
    "HOSTNAME",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "DBUS_SESSION_BUS_ADDRESS",
];

fn is_of_one_host(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| OF_ONE_HOST.contains(&name))
}

/// Settings of the library: what they say holds for all ranks of a job, wherever its hosts come
/// from.
const SETTINGS: [&str; 12] = [
    garonne_job::settings::ENV_ABI,
    garonne_job::settings::ENV_KILL_AFTER,
    garonne_job::settings::ENV_BACKGROUND,
    garonne_job::settings::ENV_CHECK,
    garonne_job::settings::ENV_INITIAL_ERRHANDLER,
    garonne_job::settings::ENV_STRATEGY,
    garonne_job::settings::ENV_ENCRYPT,
    garonne_job::settings::ENV_ETHERNET,
    garonne_job::settings::ENV_OFI,
    garonne_job::settings::ENV_RAILS,
    garonne_job::settings::ENV_SHARDS,
    garonne_job::settings::ENV_TRANSPORT_MODULES,
];

/// Returns the variables that a host which joins receives: those that all ranks must agree about.
/// The rest is as it is there.
pub(super) fn environment_for_guests() -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| SETTINGS.iter().any(|known| name == known))
        .collect()
}

/// The environment of ranks on this host, which has joined: ours, with the settings that came with
/// the job.
pub(crate) fn environment_of_guest(
    settings: Vec<(OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let own = std::env::vars_os()
        .filter(|(name, _)| !is_of_one_host(name) && !SETTINGS.iter().any(|known| name == known));
    own.chain(settings).collect()
}

impl PreparedProgram {
    /// The file that is executed, as this process finds it.
    pub(super) fn file(&self) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(self.path.to_bytes()));
        match &self.dir {
            Some(dir) => Path::new(OsStr::from_bytes(dir.to_bytes())).join(path),
            None => path.to_owned(),
        }
    }

    /// Returns whether its ranks may be worlds of one, of whichever MPI.
    pub(super) fn may_be_of_any_mpi(&self) -> bool {
        allows_worlds_of_one(&self.env)
    }

    /// Which MPI library its ranks load.
    pub(super) fn libraries(&self) -> LibraryChoice {
        self.libraries
    }

    /// Returns whether its ranks use TCP beside shared memory.
    pub(super) fn uses_both_rails(&self) -> bool {
        let said = self
            .env
            .iter()
            .find(|(name, _)| name == garonne_job::settings::ENV_RAILS);
        said.is_some_and(|(_, said)| {
            matches!(BulkTransports::parse(said), Ok(BulkTransports::Both))
        })
    }
}

/// Returns the command that is started in place of `program`, if a process carries several ranks,
/// and tells it the program.
///
/// # Errors
/// The command is not installed, or the setting is no number.
fn shared_process(program: &Path, env: &mut Vec<(OsString, OsString)>) -> Result<Option<PathBuf>> {
    env.retain(|(name, _)| name != ENV_RANK_PROGRAM);
    let wish = env.iter().find(|(name, _)| name == ENV_RANKS_PER_PROCESS);
    let Some(wish) = wish.map(|(_, wish)| wish.to_string_lossy().into_owned()) else {
        return Ok(None);
    };
    match wish.parse::<u32>() {
        Ok(1) => return Ok(None),
        Ok(_) => {}
        Err(_) => {
            let text = format!("{ENV_RANKS_PER_PROCESS} is {wish:?}; say a number of ranks, or 0");
            return Err(Error::misuse(codes::G0211, text));
        }
    }
    let prefix = std::env::current_exe().ok();
    let prefix = prefix.as_deref().and_then(|exe| exe.parent()?.parent());
    let command = prefix.map(|prefix| prefix.join("lib/threads").join(RANK_THREADS));
    let command = command.filter(|command| command.exists()).ok_or_else(|| {
        let text = "lib/threads/garonne-rank-threads, which runs several ranks in a process, is not installed beside this command";
        Error::misuse(codes::G0210, text)
    })?;
    let program = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
    env.push((ENV_RANK_PROGRAM.into(), program.into()));
    Ok(Some(command))
}

fn allows_worlds_of_one(env: &[(OsString, OsString)]) -> bool {
    let said = env.iter().find(|(name, _)| name == ENV_SINGLETONS);
    said.is_some_and(|(_, said)| said == "1")
}

/// Number of a rank in the job and on its node, and how many there are.
struct RankPosition {
    rank: u32,
    size: u32,
    here: u32,
    all_here: u32,
    /// CPUs of the rank's progress thread; empty: those of the rank.
    helpers: String,
}

/// The environment of one rank: the shared part, then its place, also under the names that scripts
/// written for other launchers read.
fn environment(ready: &PreparedProgram, place: &RankPosition) -> Result<Vec<CString>> {
    let (rank, size) = (place.rank.to_string(), place.size.to_string());
    let (here, all_here) = (place.here.to_string(), place.all_here.to_string());
    let helpers =
        (!place.helpers.is_empty()).then_some((agent_discovery::ENV_HELPERS, &place.helpers));
    let place = [
        (agent_discovery::ENV_RANK, &rank),
        (agent_discovery::ENV_SIZE, &size),
        ("OMPI_COMM_WORLD_RANK", &rank),
        ("OMPI_COMM_WORLD_SIZE", &size),
        ("OMPI_COMM_WORLD_LOCAL_RANK", &here),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", &all_here),
        ("OMPI_COMM_WORLD_NODE_RANK", &here),
        ("PMI_RANK", &rank),
        ("PMI_SIZE", &size),
        ("MPI_LOCALRANKID", &here),
        ("MPI_LOCALNRANKS", &all_here),
        ("MV2_COMM_WORLD_LOCAL_RANK", &here),
        ("MV2_COMM_WORLD_LOCAL_SIZE", &all_here),
    ];
    let shared = ready
        .env
        .iter()
        .filter(|(name, _)| !place.iter().any(|(known, _)| name == known));
    let shared = shared.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let place = place
        .iter()
        .chain(&helpers)
        .map(|(name, value)| format!("{name}={value}").into_bytes());
    shared
        .chain(place)
        .map(|entry| c_string(&OsString::from_vec(entry)))
        .collect()
}
