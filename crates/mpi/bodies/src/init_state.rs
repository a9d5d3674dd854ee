//! Initialisation state of a rank: the phase of the world model, the rank itself, the thread level.
//! Also whether the process is a forked child.

use crate::call::{CallError, Result};
use crate::rank_context::RankContext;
use garonne_mpi::error::Class;
use garonne_mpi::info::Info;
use garonne_mpi::process::Process;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};

/// The world model's phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Phase {
    /// `MPI_Init` was not called.
    Before = 0,
    /// Between init and finalize.
    Running = 1,
    /// After `MPI_Finalize`.
    Finalized = 2,
}

/// Place where a rank is between init and finalize.
pub(crate) struct InitState {
    /// Phase of the world model.
    phase: AtomicU8,
    /// Thread level promised.
    provided: AtomicI32,
    /// The rank while the world model or a session is active.
    process: RwLock<Option<Arc<Process>>>,
    /// The thread that initialised MPI, by the system's number; 0: none yet.
    main_thread: AtomicI32,
    /// `MPI_INFO_ENV`.
    info_env: OnceLock<Info>,
}

impl InitState {
    /// State before the first call.
    pub const fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Before as u8),
            provided: AtomicI32::new(0),
            process: RwLock::new(None),
            main_thread: AtomicI32::new(0),
            info_env: OnceLock::new(),
        }
    }
}

fn state() -> &'static InitState {
    &RankContext::current().init
}

/// True in a process that a rank forked. Such a process owns no rank.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was forked by a rank. A plain load.
#[inline(always)]
pub(crate) fn is_forked_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    crate::gpu_buffers::recheck();
    crate::trace_calls::in_child();
    crate::last_call::in_child();
}

/// Installs the handler that marks forked children.
pub(crate) fn watch_forks() {
    static WATCHING: Once = Once::new();
    // SAFETY: the handler stores to two words; this library is never unloaded. Without memory for
    // it, forked children are not recognised, as before.
    WATCHING.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// The phase of the world model.
pub(crate) fn phase() -> Phase {
    match state().phase.load(Ordering::Acquire) {
        0 => Phase::Before,
        1 => Phase::Running,
        _ => Phase::Finalized,
    }
}

/// Enters a phase.
pub(crate) fn set_phase(phase: Phase) {
    state().phase.store(phase as u8, Ordering::Release);
}

/// Returns this rank.
///
/// # Errors
/// Fails unless the world model or a session is active.
pub(crate) fn process() -> Result<Arc<Process>> {
    find_process().ok_or_else(|| {
        CallError::new(
            Class::Other,
            not_running_reason().unwrap_or("MPI is not initialised"),
        )
    })
}

/// Returns this rank, if the world model or a session is active.
pub(crate) fn find_process() -> Option<Arc<Process>> {
    let process = &state().process;
    process
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Says which rank this process is; `None` when it leaves the job.
pub(crate) fn set_process(process: Option<Arc<Process>>) -> Option<Arc<Process>> {
    let mut known = state()
        .process
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut known, process)
}

/// Remembers the calling thread as the main one and the thread level that it was promised.
pub(crate) fn set_main_thread(provided: i32) {
    // Relaxed: a thread that asks has come after MPI_Init by the program's own order.
    let state = state();
    state.main_thread.store(thread_id(), Ordering::Relaxed);
    state.provided.store(provided, Ordering::Relaxed);
}

/// Returns whether the calling thread initialised MPI.
pub(crate) fn is_main_thread() -> bool {
    state().main_thread.load(Ordering::Relaxed) == thread_id()
}

/// The system's number of the calling thread. The standard library's would leave memory behind that
/// checkers report as lost.
fn thread_id() -> i32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// The thread level promised.
pub(crate) fn provided() -> i32 {
    state().provided.load(Ordering::Relaxed)
}

/// Returns the reason why predefined objects do not exist now, or `None` if they exist.
pub(crate) fn not_running_reason() -> Option<&'static str> {
    match phase() {
        Phase::Before => Some("MPI was not initialised: call MPI_Init first"),
        Phase::Running => None,
        Phase::Finalized => Some("MPI was finalized already"),
    }
}

/// `MPI_INFO_ENV`.
pub(crate) fn info_env() -> &'static Info {
    let env = &state().info_env;
    env.get_or_init(|| Info::from_pairs(env_pairs()))
}

/// Returns the keys and values of `MPI_INFO_ENV`, as far as they are known here.
pub(crate) fn env_pairs() -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut add = |key: &str, value: String| {
        if !value.is_empty() && value.len() < crate::constants::MPI_MAX_INFO_VAL as usize {
            pairs.push((key.to_string(), value));
        }
    };
    let mut args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    add("command", args.next().unwrap_or_default());
    add("argv", args.collect::<Vec<_>>().join(" "));
    add(
        "wdir",
        std::env::current_dir()
            .map(|dir| dir.display().to_string())
            .unwrap_or_default(),
    );
    let ranks =
        garonne_links::agent_discovery::ProgramPosition::from_env().map_or(1, |place| place.ranks);
    add("maxprocs", ranks.to_string());
    add("arch", std::env::consts::ARCH.into());
    add("host", crate::env::processor_name());
    add("thread_level", thread_level_name(provided()).into());
    pairs
}

fn thread_level_name(level: i32) -> &'static str {
    use crate::constants::*;
    match level {
        MPI_THREAD_FUNNELED => "MPI_THREAD_FUNNELED",
        MPI_THREAD_SERIALIZED => "MPI_THREAD_SERIALIZED",
        MPI_THREAD_MULTIPLE => "MPI_THREAD_MULTIPLE",
        _ => "MPI_THREAD_SINGLE",
    }
}
