//! Starting and ending, versions, timers, memory, profiling control.

use crate::c_args::{Buf, Ptr, StrIn, StrOut};
use crate::call::{CallError, CallId, Result};
use crate::comm_contexts;
use crate::constants::*;
use crate::handle::*;
use crate::init_state::{self, Phase};
use crate::objects::{self, infos, publish, publish_comm};
use crate::rank_context::RankContext;
use crate::{call_site, fibers, optional_checks, this_rank};
use garonne_mpi::error::Class;
use garonne_mpi::info::Info;
use garonne_mpi::process::{HwInstance, HwResource, Process, ThreadLevel};
use garonne_topology::{CpuSet, Tree};
use std::ffi::{c_char, c_int};
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Lock of a rank, held while its first user brings the library up or its last one takes it down.
pub(crate) struct Lifecycle(Mutex<()>);

impl Lifecycle {
    /// Not held.
    pub const fn new() -> Self {
        Self(Mutex::new(()))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns this rank. Joins the job if this is the first use, by the world model or by a session.
pub(crate) fn acquire_process(level: ThreadLevel) -> Result<Arc<Process>> {
    let _life = RankContext::current().lifecycle.lock();
    if let Some(process) = init_state::find_process() {
        return Ok(process);
    }
    fibers::attach();
    let process = Process::new(this_rank::join_job(level)?);
    init_state::set_process(Some(process.clone()));
    Ok(process)
}

/// Takes this rank out of its job if nothing uses the library any more.
pub(crate) fn release_if_unused() -> Result<()> {
    let _life = RankContext::current().lifecycle.lock();
    if init_state::find_process().is_none_or(|process| process.users() > 0) {
        return Ok(());
    }
    drop(init_state::set_process(None));
    this_rank::leave_job()
}

pub(crate) fn init(call: CallId, _argc: Ptr<c_int>, _argv: Ptr<Ptr<StrIn>>) -> Result<()> {
    init_world(call, MPI_THREAD_SINGLE).map(drop)
}

pub(crate) fn init_thread(
    call: CallId,
    _argc: Ptr<c_int>,
    _argv: Ptr<Ptr<StrIn>>,
    required: c_int,
    provided: Ptr<c_int>,
) -> Result<()> {
    provided.set(init_world(call, required)?)
}

fn init_world(call: CallId, required: c_int) -> Result<c_int> {
    match init_state::phase() {
        Phase::Before => {}
        Phase::Running => {
            return Err(CallError::new(
                Class::Other,
                format!(
                    "error[G0108]: {} was called a second time\n  help: call MPI_Init or MPI_Init_thread once; MPI_Initialized says whether it was called",
                    call.name()
                ),
            ));
        }
        Phase::Finalized => {
            return Err(CallError::new(
                Class::Other,
                "MPI cannot be initialised again after MPI_Finalize",
            ));
        }
    }
    let required = ThreadLevel::try_from(required)?;
    let process = acquire_process(required)?;
    let level = process.init(required)?;
    this_rank::set_thread_level(level);
    let provided = level as c_int;
    init_state::set_main_thread(provided);
    objects::set_world(process.world().zip(process.self_comm()));
    init_state::set_phase(Phase::Running);
    process.connect_parent(call.origin())?;
    publish_comm(process.parent())?;
    Ok(provided)
}

pub(crate) fn finalize(call: CallId) -> Result<()> {
    if init_state::is_forked_child() {
        // What there was to finalize is its parent's.
        return Ok(());
    }
    match init_state::phase() {
        Phase::Before => {
            return Err(CallError::new(
                Class::Other,
                "MPI_Finalize was called before MPI_Init",
            ));
        }
        Phase::Running => {}
        Phase::Finalized => {
            return Err(CallError::new(
                Class::Other,
                "MPI_Finalize was called a second time",
            ));
        }
    }
    let process = init_state::process()?;
    if optional_checks::messages_enabled() {
        process.begin_finalize()?;
        match process.unreceived(call.origin(), &comm_contexts::owner) {
            Ok(Some(report)) => end_for_unreceived(&process, &report),
            Ok(None) => {}
            Err(error) => write_stderr(&format!(
                "warning: rank {} cannot tell whether all messages were received: {error}",
                process.host.me()
            )),
        }
    }
    process.finalize()?;
    init_state::set_phase(Phase::Finalized);
    objects::set_world(None);
    comm_contexts::forget_freed();
    release_if_unused()
}

/// Ends the job because of messages that nobody received, whatever the error handler. The user
/// asked for this check, and few programs look at the result of `MPI_Finalize`.
pub(crate) fn end_for_unreceived(process: &Process, report: &str) -> ! {
    end_job(Some(process), Class::Other as c_int, report)
}

pub(crate) fn initialized(_: CallId, flag: Ptr<c_int>) -> Result<()> {
    flag.set((init_state::phase() != Phase::Before).into())
}

pub(crate) fn finalized(_: CallId, flag: Ptr<c_int>) -> Result<()> {
    // So that handlers which programs run at exit leave MPI alone in a forked child.
    flag.set((init_state::is_forked_child() || init_state::phase() == Phase::Finalized).into())
}

pub(crate) fn query_thread(_: CallId, provided: Ptr<c_int>) -> Result<()> {
    init_state::process()?;
    provided.set(init_state::provided())
}

pub(crate) fn is_thread_main(_: CallId, flag: Ptr<c_int>) -> Result<()> {
    init_state::process()?;
    flag.set(init_state::is_main_thread().into())
}

/// Ends the whole job, whatever the communicator: what the standard recommends for the world's.
pub(crate) fn abort(call: CallId, on: MPI_Comm, code: c_int) -> Result<()> {
    let place = call_site::describe(call.origin().site);
    let label =
        objects::find_comm(on).map_or(String::from("an invalid communicator"), |comm| comm.label());
    let process = init_state::find_process();
    let rank = process.as_ref().map_or(String::new(), |process| {
        format!("rank {} ", process.host.me())
    });
    let status = if code & 0xff == 0 {
        "; an aborted job ends with 1"
    } else {
        ""
    };
    let message = format!("{rank}called MPI_Abort({label}, {code})   at {place}{status}");
    end_job(process.as_deref(), code, &message)
}

/// Says something to who started the program, in one piece.
pub(crate) fn write_stderr(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Ends the job, or this process if there is none, with these last words.
pub(crate) fn end_job(process: Option<&Process>, code: c_int, message: &str) -> ! {
    // SAFETY: writes out what the program printed so far; takes no argument of ours.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // A forked child ends alone: the job is its parent's.
    if let Some(process) = process.filter(|_| !init_state::is_forked_child()) {
        process.abort(code, message);
    }
    let _ = writeln!(std::io::stderr(), "{message}");
    let status = if code & 0xff == 0 { 1 } else { code };
    if !init_state::is_forked_child() {
        garonne_rank::client::abort_job(status);
    }
    // SAFETY: ends the process; exit handlers of a program in an unknown state do not run.
    unsafe { libc::_exit(status) }
}

pub(crate) fn get_version(_: CallId, version: Ptr<c_int>, subversion: Ptr<c_int>) -> Result<()> {
    version.set(MPI_VERSION)?;
    subversion.set(MPI_SUBVERSION)
}

pub(crate) fn get_library_version(_: CallId, text: StrOut, len: Ptr<c_int>) -> Result<()> {
    let version = concat!("Garonne ", env!("CARGO_PKG_VERSION"));
    let written = text.write(version, MPI_MAX_LIBRARY_VERSION_STRING as usize)?;
    len.set(written as c_int)
}

/// The name of this host.
pub(crate) fn processor_name() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the call writes at most `len` bytes to the array.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast::<c_char>(), name.len()) } != 0;
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    if failed {
        "localhost".into()
    } else {
        String::from_utf8_lossy(&name[..len]).into_owned()
    }
}

pub(crate) fn get_processor_name(_: CallId, name: StrOut, len: Ptr<c_int>) -> Result<()> {
    let process = init_state::process()?;
    let written = name.write(
        &process.config.processor_name,
        MPI_MAX_PROCESSOR_NAME as usize,
    )?;
    len.set(written as c_int)
}

/// Every type of hardware resource, with whether this process is restricted to one instance of it
/// now. Needs no initialised library: what the machine is does not depend on it.
pub(crate) fn get_hw_resource_info(_: CallId, out: Ptr<MPI_Info>) -> Result<()> {
    let pairs = resources()
        .into_iter()
        .map(|found| (found.name, found.instance.is_some().to_string()));
    out.set(publish(infos(), Info::from_pairs(pairs))?)
}

/// The types of hardware resources of this machine, with the instances that this process is
/// restricted to now.
pub(crate) fn resources() -> Vec<HwResource> {
    static MACHINE: LazyLock<Tree> = LazyLock::new(|| Tree::over(&garonne_topology::online()));
    let found = garonne_topology::resources(&MACHINE, &garonne_topology::allowed_to_program());
    let instance = |cpus: CpuSet| {
        Some(HwInstance {
            first: cpus.first()?,
            cpus: cpus.len() as u32,
        })
    };
    let resources = found.into_iter().map(|found| HwResource {
        name: found.name,
        instance: found.instance.and_then(instance),
    });
    resources.collect()
}

/// The machine's monotonic clock, which all ranks of a node share.
pub(crate) fn wtime(_: CallId) -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills in the place it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// The clock counts nanoseconds.
pub(crate) fn wtick(_: CallId) -> f64 {
    1e-9
}

/// Alignment of `MPI_Alloc_mem` unless the info asks for more: a cache line, which every basic type
/// is content with.
const ALLOC_ALIGN: usize = 64;

pub(crate) fn alloc_mem(_: CallId, size: MPI_Aint, hints: MPI_Info, base: Buf) -> Result<()> {
    let base = base.given()?;
    let size = usize::try_from(size).map_err(|_| {
        CallError::new(
            Class::Arg,
            format!("the size is {size}; it must not be negative"),
        )
    })?;
    let wanted = objects::info_or_null(hints)?.lookup("mpi_minimum_memory_alignment");
    let align = wanted
        .and_then(|text| text.parse::<usize>().ok())
        .filter(|align| align.is_power_of_two());
    let align = align.unwrap_or(ALLOC_ALIGN).max(ALLOC_ALIGN);
    let mut place = std::ptr::null_mut();
    // SAFETY: fills in the place; the alignment is a power of two and a multiple of a pointer's
    // size.
    if unsafe { libc::posix_memalign(&mut place, align, size.max(1)) } != 0 {
        return Err(CallError::new(
            Class::NoMem,
            format!("there is no memory for {size} bytes"),
        ));
    }
    base.store(place.expose_provenance())
}

pub(crate) fn free_mem(_: CallId, base: Buf) -> Result<()> {
    // SAFETY: the standard demands an address from `MPI_Alloc_mem`, which came from the C
    // allocator.
    unsafe { libc::free(base.raw()) };
    Ok(())
}

/// Does nothing: profiling tools replace this function.
pub(crate) fn pcontrol(_: CallId, _level: c_int) -> Result<()> {
    Ok(())
}
