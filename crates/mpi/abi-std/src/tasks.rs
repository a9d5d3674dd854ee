//! C API of tasks and events (`garonne_tasks.h`).
//!
//! Each function turns pointers into values, calls `garonne_progress`, and returns a code. A C task
//! lies in bytes of its caller. The header makes three promises, on which the unsafe blocks here
//! rest: the task does not move, it is destroyed before its bytes are freed, and functions and
//! states may be used from any thread.
//!
//! A process may have several ranks, and threads of the library belong to none. So each function
//! runs as one of the rank whose thread submitted the task, began the watch, or made the call.

use garonne_bodies::RankContext;
use garonne_progress::events::{BlockingCall, EventWatch, FutexWord, Interest, WatchAction};
use garonne_progress::tasks::{
    Error, Keypoint, LongRun, Place, RunContext, RunOutcome, Task, TaskOptions, TaskState,
    TaskWork, Tasks, Urgency, shared,
};
use garonne_topology::{CpuSet, Kind};
use std::cell::OnceCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const OK: c_int = 0;
const MISUSE: c_int = -1;
const RESOURCE: c_int = -2;
const SYSTEM: c_int = -3;

/// `garonne_at`.
#[repr(C)]
pub(crate) struct CRunInfo {
    core: c_int,
    keypoint: c_int,
}

/// A run of a C function. The first field is what the function receives; its address identifies the
/// run. `lengthy` is held until the run ends.
#[repr(C)]
struct CRun<'a> {
    info: CRunInfo,
    at: &'a RunContext,
    lengthy: OnceCell<LongRun<'a>>,
}

impl<'a> CRun<'a> {
    fn new(at: &'a RunContext) -> Self {
        Self {
            info: CRunInfo {
                core: at.core as c_int,
                keypoint: at.keypoint as c_int,
            },
            at,
            lengthy: OnceCell::new(),
        }
    }

    /// Returns the pointer that the function receives. It is valid for the whole run, because
    /// `info` is the first field.
    fn info(&self) -> *const CRunInfo {
        (&raw const *self).cast()
    }
}

/// `garonne_how`.
#[repr(C)]
pub(crate) struct CTaskOptions {
    place: c_int,
    urgency: c_int,
    cpu: c_uint,
    patience_us: c_uint,
    name: *const c_char,
}

type TaskFn = unsafe extern "C" fn(*mut c_void, *const CRunInfo) -> c_int;
type EventFn = unsafe extern "C" fn(*mut c_void, u32, *const CRunInfo) -> c_int;

/// A C function, its state, and the rank to which the thread belongs that brought both.
#[derive(Clone, Copy)]
struct CFunction<F> {
    function: F,
    state: *mut c_void,
    rank: &'static RankContext,
}

impl<F> CFunction<F> {
    fn new(function: F, state: *mut c_void) -> Self {
        Self {
            function,
            state,
            rank: RankContext::current(),
        }
    }
}

// SAFETY: the header says that functions may be called with their states from any thread, one at a
// time.
unsafe impl<F> Send for CFunction<F> {}
// SAFETY: as above.
unsafe impl<F> Sync for CFunction<F> {}

/// Work of a C task.
struct CTaskWork {
    bound: CFunction<TaskFn>,
    /// Rank to which the thread belongs that submitted the task last.
    submitter: AtomicPtr<RankContext>,
}

impl CTaskWork {
    fn new(bound: CFunction<TaskFn>) -> Self {
        Self {
            bound,
            submitter: AtomicPtr::new(std::ptr::from_ref(bound.rank).cast_mut()),
        }
    }

    /// Notes that the calling thread is about to submit the task. The queue publishes the note with
    /// the task.
    fn submitted_here(&self) {
        let rank = std::ptr::from_ref(RankContext::current());
        self.submitter.store(rank.cast_mut(), Ordering::Relaxed);
    }
}

impl TaskWork<RunContext> for CTaskWork {
    fn run(&self, at: &RunContext) -> RunOutcome {
        // SAFETY: made of a reference to a context, all of which live until the process ends.
        let submitter = unsafe { &*self.submitter.load(Ordering::Relaxed) };
        let CFunction {
            function, state, ..
        } = self.bound;
        // SAFETY: the caller of `garonne_task_init` vouches for both.
        match submitter.run(|| unsafe { function(state, CRun::new(at).info()) }) {
            1 => RunOutcome::Again,
            _ => RunOutcome::Done,
        }
    }
}

impl CFunction<EventFn> {
    fn call(&self, value: u32, at: &RunContext) -> WatchAction {
        let Self {
            function,
            state,
            rank,
        } = *self;
        // SAFETY: the caller of `garonne_on_*` vouches for both.
        match rank.run(|| unsafe { function(state, value, CRun::new(at).info()) }) {
            0 => WatchAction::Keep,
            _ => WatchAction::Stop,
        }
    }
}

/// The contents of an initialised `garonne_task`.
#[repr(C)]
struct StoredTask {
    /// Equal to [`stored_mark`]; zero once the task is destroyed.
    mark: AtomicU64,
    // Dropped first: taking it back needs nothing else.
    task: Task<CTaskWork>,
    tasks: Tasks,
}

/// Returns the first word of an initialised `garonne_task`. Made of the task's address, so that a
/// copy does not match, and of bits that memory rarely holds by chance.
fn stored_mark(task: *const CTask) -> u64 {
    task.addr() as u64 ^ 0x6761_726f_6e6e_6521
}

/// `garonne_task`.
#[repr(C)]
pub(crate) struct CTask {
    opaque: [u64; 20],
}

const _: () = assert!(
    size_of::<StoredTask>() <= size_of::<CTask>()
        && align_of::<StoredTask>() <= align_of::<CTask>()
);

/// Returns the contents of an initialised task. `None` for one that is destroyed, that was only
/// filled with zeros, or that is a copy.
///
/// # Safety
/// The pointer is null, or that of a task whose bytes were initialised and not written by others
/// since.
unsafe fn stored_task<'a>(task: *const CTask) -> Option<Pin<&'a StoredTask>> {
    let place = NonNull::new(task.cast_mut())?;
    // SAFETY: the first word of a lodger is this, and that of the bytes in which none is may be
    // read as such.
    let marked = unsafe { place.cast::<AtomicU64>().as_ref() };
    if marked.load(Ordering::Relaxed) != stored_mark(task) {
        return None;
    }
    // SAFETY: the mark says that a lodger is there, and the header that it stays where it is until
    // it is destroyed.
    Some(unsafe { Pin::new_unchecked(place.cast::<StoredTask>().as_ref()) })
}

/// The tasks of a handle.
///
/// # Safety
/// The pointer is null or came from `garonne_tasks_open` and was not closed.
unsafe fn tasks_handle<'a>(tasks: *const Tasks) -> Result<&'a Tasks, Error> {
    // SAFETY: the caller's promise.
    unsafe { tasks.as_ref() }.ok_or(Error::Misuse("a null handle of tasks"))
}

fn code(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(Error::Misuse(_)) => MISUSE,
        Err(Error::Resource(_)) => RESOURCE,
        Err(Error::System(_, errno)) => {
            // SAFETY: the thread's own errno.
            unsafe { *libc::__errno_location() = errno };
            SYSTEM
        }
    }
}

fn state_number(life: TaskState) -> c_int {
    match life {
        TaskState::New => 0,
        TaskState::Pending => 1,
        TaskState::Done | TaskState::Failed => 2,
        TaskState::Cancelled => 3,
    }
}

/// Reads a `garonne_how`.
///
/// # Safety
/// The pointer is null or that of one, whose name is null or a string.
unsafe fn task_options(how: *const CTaskOptions) -> Result<TaskOptions, Error> {
    // SAFETY: the caller's promise.
    let Some(how) = (unsafe { how.as_ref() }) else {
        return Ok(TaskOptions::at(Place::Machine));
    };
    let name = || {
        let missing = Error::Misuse("the place needs a name");
        let name = NonNull::new(how.name.cast_mut()).ok_or(missing)?;
        // SAFETY: the caller says that it is a string.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        name.to_str()
            .map_err(|_| Error::Misuse("the name of the place is not text"))
    };
    let place = match how.place {
        0 => Place::Machine,
        1 => Place::Core(how.cpu),
        2 => Place::Around(Kind::Cache(3), how.cpu),
        3 => Place::Around(Kind::Numa, how.cpu),
        4 => Place::Around(Kind::Package, how.cpu),
        5 => {
            let cpus = CpuSet::parse(name()?);
            Place::Cpus(cpus.ok_or(Error::Misuse("the name of the place is no list of CPUs"))?)
        }
        6 => Place::Device(name()?.to_owned()),
        7 => Place::NearCaller,
        8 => Place::Nearest,
        9 => Place::Caller(Kind::Core),
        10 => Place::Caller(Kind::Cache(3)),
        11 => Place::Caller(Kind::Numa),
        12 => Place::Caller(Kind::Package),
        _ => return Err(Error::Misuse("there is no such place")),
    };
    let urgency = match how.urgency {
        0 => Urgency::Idle,
        1 => Urgency::Now,
        _ => return Err(Error::Misuse("there is no such urgency")),
    };
    let patience = (how.patience_us > 0).then(|| Duration::from_micros(how.patience_us.into()));
    Ok(TaskOptions {
        place,
        urgency,
        patience,
    })
}

/// Stores a new object where C wants its address.
///
/// # Safety
/// `out` is null or writable.
unsafe fn return_new<T>(out: *mut *mut T, make: impl FnOnce() -> Result<T, Error>) -> c_int {
    if out.is_null() {
        return MISUSE;
    }
    code(make().map(|value| {
        // SAFETY: the caller's promise.
        unsafe { *out = Box::into_raw(Box::new(value)) }
    }))
}

/// Implements the function of this name in `garonne_tasks.h`; the functions below likewise.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_tasks_open(tasks: *mut *mut Tasks) -> c_int {
    // SAFETY: the header's contract.
    unsafe { return_new(tasks, shared) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_tasks_close(tasks: *mut Tasks) {
    if !tasks.is_null() {
        // SAFETY: from `garonne_tasks_open`, once.
        drop(unsafe { Box::from_raw(tasks) });
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_tasks_schedule(
    tasks: *const Tasks,
    keypoint: c_int,
) -> c_int {
    let keypoint = match keypoint {
        0 => Keypoint::Idle,
        1 => Keypoint::Wait,
        2 => Keypoint::Timer,
        3 => Keypoint::Switch,
        4 => Keypoint::Forced,
        _ => return MISUSE,
    };
    // SAFETY: the header's contract.
    match unsafe { tasks_handle(tasks) } {
        Ok(tasks) => match tasks.check() {
            Ok(()) => tasks.schedule(keypoint).settled as c_int,
            refused => code(refused),
        },
        Err(error) => code(Err(error)),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_lengthy(tasks: *const Tasks, at: *const CRunInfo) -> c_int {
    // SAFETY: the header says that it is what the run was given, which is the beginning of a `CRun`
    // that outlives this call.
    let run = unsafe { at.cast::<CRun<'_>>().as_ref() };
    // SAFETY: the header's contract; tasks are not closed before their runs are over.
    match (unsafe { tasks_handle(tasks) }, run) {
        (Ok(tasks), Some(run)) => {
            run.lengthy.get_or_init(|| tasks.lengthy(run.at));
            OK
        }
        _ => MISUSE,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn garonne_tasks_error(error: c_int) -> *const c_char {
    let text = match error {
        OK => c"no error",
        MISUSE => c"misuse: a null pointer, a place or signal that is not there, a task that is submitted or destroyed already, or tasks that were ended or belong to the parent process",
        RESOURCE => c"a bound was reached: the place's queue is full, too much is watched, or the system gives no thread",
        SYSTEM => c"the system refused; errno says why",
        _ => c"no code of garonne_tasks.h",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_task_init(
    place: *mut CTask,
    tasks: *const Tasks,
    manner: *const CTaskOptions,
    function: Option<TaskFn>,
    state: *mut c_void,
) -> c_int {
    let (Some(function), false) = (function, place.is_null()) else {
        return MISUSE;
    };
    // SAFETY: the header's contract.
    let made = unsafe { tasks_handle(tasks) }.and_then(|tasks| {
        // SAFETY: as above.
        let how = unsafe { task_options(manner) }?;
        let task = tasks.task(&how, CTaskWork::new(CFunction::new(function, state)))?;
        Ok(StoredTask {
            mark: AtomicU64::new(stored_mark(place)),
            task,
            tasks: tasks.clone(),
        })
    });
    code(made.map(|stored| {
        // SAFETY: the caller's bytes, large and aligned enough, as asserted above.
        unsafe { place.cast::<StoredTask>().write(stored) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_task_submit(task: *mut CTask) -> c_int {
    // SAFETY: the header's contract.
    let Some(stored) = (unsafe { stored_task(task) }) else {
        return MISUSE;
    };
    // SAFETY: the task is pinned as its lodger is, and nothing moves it out.
    let task = unsafe { stored.map_unchecked(|stored| &stored.task) };
    task.work().get().submitted_here();
    code(stored.tasks.submit(task))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_task_wait(task: *mut CTask) -> c_int {
    // SAFETY: the header's contract.
    match unsafe { stored_task(task) } {
        Some(stored) => state_number(stored.tasks.wait(&stored.task)),
        None => MISUSE,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_task_life(task: *const CTask) -> c_int {
    // SAFETY: the header's contract.
    match unsafe { stored_task(task) } {
        Some(stored) => state_number(stored.task.life()),
        None => MISUSE,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_task_withdraw(task: *mut CTask) -> c_int {
    // SAFETY: the header's contract.
    match unsafe { stored_task(task) } {
        // A forked child would wait for a thread that it does not have.
        Some(stored) if stored.tasks.check().is_ok() => {
            stored.task.withdraw();
            state_number(stored.task.life())
        }
        _ => MISUSE,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_task_destroy(task: *mut CTask) -> c_int {
    // SAFETY: the header's contract.
    let Some(stored) = (unsafe { stored_task(task) }).filter(|stored| stored.tasks.check().is_ok())
    else {
        return MISUSE;
    };
    // Of several that call at once one goes on.
    if stored.mark.swap(0, Ordering::Relaxed) == 0 {
        return MISUSE;
    }
    // SAFETY: a lodger is there, and its drop takes the task back before the bytes are the caller's
    // again.
    unsafe { task.cast::<StoredTask>().drop_in_place() };
    OK
}

/// Reads what all sources have in common and watches one.
///
/// # Safety
/// As the header says.
unsafe fn add_watch(
    (tasks, manner): (*const Tasks, *const CTaskOptions),
    (function, state): (Option<EventFn>, *mut c_void),
    out: *mut *mut EventWatch,
    make: impl FnOnce(&Tasks, &TaskOptions, CFunction<EventFn>) -> Result<EventWatch, Error>,
) -> c_int {
    let Some(function) = function else {
        return MISUSE;
    };
    // SAFETY: the caller's promise.
    unsafe {
        return_new(out, || {
            let bound = CFunction::new(function, state);
            make(tasks_handle(tasks)?, &task_options(manner)?, bound)
        })
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_on_descriptor(
    tasks: *const Tasks,
    fd: c_int,
    interest: c_int,
    manner: *const CTaskOptions,
    function: Option<EventFn>,
    state: *mut c_void,
    out: *mut *mut EventWatch,
) -> c_int {
    let interest = match interest {
        1 => Interest::Readable,
        2 => Interest::Writable,
        3 => Interest::Both,
        _ => return MISUSE,
    };
    if fd < 0 {
        return MISUSE;
    }
    // SAFETY: the header's contract.
    unsafe {
        add_watch(
            (tasks, manner),
            (function, state),
            out,
            |tasks, how, bound| {
                // Only duplicated, in this call; a number that is no descriptor is an error of the
                // system.
                let borrowed = BorrowedFd::borrow_raw(fd);
                tasks.on_descriptor((borrowed, interest), how, move |at| {
                    bound.call(fd as u32, at)
                })
            },
        )
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_on_alarm(
    tasks: *const Tasks,
    first_ns: u64,
    period_ns: u64,
    manner: *const CTaskOptions,
    function: Option<EventFn>,
    state: *mut c_void,
    out: *mut *mut EventWatch,
) -> c_int {
    let period = (period_ns > 0).then(|| Duration::from_nanos(period_ns));
    // SAFETY: the header's contract.
    unsafe {
        add_watch(
            (tasks, manner),
            (function, state),
            out,
            |tasks, how, bound| {
                let times = (Duration::from_nanos(first_ns), period);
                tasks.on_alarm(times, how, move |at| bound.call(0, at))
            },
        )
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_on_signal(
    tasks: *const Tasks,
    signal: c_int,
    manner: *const CTaskOptions,
    function: Option<EventFn>,
    state: *mut c_void,
    out: *mut *mut EventWatch,
) -> c_int {
    // SAFETY: the header's contract.
    unsafe {
        add_watch(
            (tasks, manner),
            (function, state),
            out,
            |tasks, how, bound| {
                tasks.on_signals(&[signal], how, move |signal, at| {
                    bound.call(signal as u32, at)
                })
            },
        )
    }
}

/// A word of C.
struct CWord(NonNull<u32>);

// SAFETY: the header says that it stays where it is until the watch ends; it is only used as an
// atomic.
unsafe impl Send for CWord {}
// SAFETY: as above.
unsafe impl Sync for CWord {}

impl FutexWord for CWord {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: as above; aligned, as `garonne_on_word` checks.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr()) }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_on_word(
    tasks: *const Tasks,
    word: *mut u32,
    expected: u32,
    manner: *const CTaskOptions,
    function: Option<EventFn>,
    state: *mut c_void,
    out: *mut *mut EventWatch,
) -> c_int {
    let Some(word) = NonNull::new(word).filter(|word| word.is_aligned()) else {
        return MISUSE;
    };
    // SAFETY: the header's contract.
    unsafe {
        add_watch(
            (tasks, manner),
            (function, state),
            out,
            |tasks, how, bound| {
                let word: Arc<dyn FutexWord> = Arc::new(CWord(word));
                tasks.on_word((word, expected), how, move |value, at| {
                    bound.call(value, at)
                })
            },
        )
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_watch_end(watch: *mut EventWatch) {
    if !watch.is_null() {
        // SAFETY: from `garonne_on_*`, once.
        drop(unsafe { Box::from_raw(watch) });
    }
}

type BlockingFn = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// The result of a blocking function, on its way to the waiting thread.
pub(crate) struct BlockingResult(*mut c_void);

// SAFETY: only handed on.
unsafe impl Send for BlockingResult {}

impl CFunction<BlockingFn> {
    fn call(self) -> BlockingResult {
        let Self {
            function,
            state,
            rank,
        } = self;
        // SAFETY: the caller of `garonne_blocking` vouches for function and argument.
        BlockingResult(rank.run(|| unsafe { function(state) }))
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_blocking(
    tasks: *const Tasks,
    function: Option<BlockingFn>,
    argument: *mut c_void,
    out: *mut *mut BlockingCall<BlockingResult>,
) -> c_int {
    let Some(function) = function else {
        return MISUSE;
    };
    let bound = CFunction::new(function, argument);
    // SAFETY: the header's contract.
    unsafe { return_new(out, || tasks_handle(tasks)?.blocking(move || bound.call())) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_call_over(
    call: *const BlockingCall<BlockingResult>,
) -> c_int {
    // SAFETY: null, or from `garonne_blocking` and not given back.
    unsafe { call.as_ref() }.map_or(MISUSE, |call| c_int::from(call.is_over()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_on_completion(
    tasks: *const Tasks,
    call: *const BlockingCall<BlockingResult>,
    manner: *const CTaskOptions,
    function: Option<EventFn>,
    state: *mut c_void,
    out: *mut *mut EventWatch,
) -> c_int {
    // SAFETY: null, or from `garonne_blocking` and not given back. The watch needs it in this call
    // only.
    let Some(call) = (unsafe { call.as_ref() }) else {
        return MISUSE;
    };
    // SAFETY: the header's contract.
    unsafe {
        add_watch(
            (tasks, manner),
            (function, state),
            out,
            |tasks, how, bound| {
                let once = move |at: &RunContext| {
                    bound.call(0, at);
                };
                tasks.on_completion(call, how, once)
            },
        )
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn garonne_call_wait(
    call: *mut BlockingCall<BlockingResult>,
    result: *mut *mut c_void,
) -> c_int {
    if call.is_null() {
        return MISUSE;
    }
    // SAFETY: from `garonne_blocking`, given back here.
    let call = unsafe { Box::from_raw(call) };
    // Nothing: it was never made, because everything ended.
    let Some(BlockingResult(value)) = call.wait() else {
        return MISUSE;
    };
    if !result.is_null() {
        // SAFETY: the header's contract.
        unsafe { *result = value };
    }
    OK
}

#[cfg(test)]
mod tests;
