//! A rank in a shared process: its thread, its variables of the environment, and its end.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use garonne_sync::mutex::lock;

use crate::handover::{Handover, RankEnd};
use crate::libraries::{Libraries, Loadable};
use crate::modules::Modules;
use crate::sys::LoadedMap;
use crate::{limits, process, relocations, sys, thread_locals};

/// Signals that a thread gets for what it did itself. Each rank has handlers of its own for them.
pub(crate) const OWN_SIGNALS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// A function that runs when a rank ends, and its argument.
pub(crate) type AtExit = (unsafe extern "C" fn(*mut c_void), usize);

/// A rank of this process. It lives as long as the process does.
///
/// Made when its stand-in connects; [`start`] begins its thread; [`end_now`](Self::end_now) is its
/// last act.
#[derive(Debug)]
pub(crate) struct Rank {
    /// Number in the world.
    pub number: u32,
    arguments: Vec<AtomicPtr<c_char>>,
    /// Variables, with a null pointer behind the last.
    environment: Mutex<Vec<usize>>,
    /// The variable `environ` of the rank's program.
    environ: AtomicPtr<*mut c_char>,
    /// Further variables `environ`: copies that the program has.
    environ_copies: Mutex<Vec<usize>>,
    /// The program and its libraries as they are in files.
    loadable: Mutex<Option<Arc<Loadable>>>,
    /// What it loads beside others.
    modules: Modules,
    /// Functions that run at its end, the last first.
    at_exit: Mutex<Vec<AtExit>>,
    /// Streams that it has opened.
    streams: Mutex<Vec<usize>>,
    /// What it does about signals of its own, as it has asked for.
    actions: [AtomicPtr<libc::sigaction>; OWN_SIGNALS.len()],
    /// The program and its libraries, as they are loaded.
    copies: Mutex<Vec<LoadedMap>>,
    ends: AtomicBool,
    end: AtomicU32,
    is_told: AtomicBool,
}

thread_local! {
    /// The rank whose thread this is.
    static CURRENT: Cell<*const Rank> = const { Cell::new(null()) };
}

impl Rank {
    /// Makes a rank that does not run yet.
    pub fn new(handover: &Handover) -> &'static Self {
        let leak = |words: Vec<CString>| words.into_iter().map(CString::into_raw);
        let mut arguments: Vec<_> = leak(Handover::c_strings(&handover.arguments))
            .map(AtomicPtr::new)
            .collect();
        arguments.push(AtomicPtr::new(null_mut()));
        let mut environment: Vec<_> = leak(Handover::c_strings(&handover.environment))
            .map(|entry| entry.expose_provenance())
            .collect();
        environment.push(0);
        let rank = Self {
            number: handover.rank,
            arguments,
            environ: AtomicPtr::new(environment.as_mut_ptr().cast()),
            environment: Mutex::new(environment),
            environ_copies: Mutex::default(),
            loadable: Mutex::default(),
            modules: Modules::default(),
            at_exit: Mutex::default(),
            streams: Mutex::default(),
            actions: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
            copies: Mutex::default(),
            ends: AtomicBool::new(false),
            end: AtomicU32::new(0),
            is_told: AtomicBool::new(false),
        };
        Box::leak(Box::new(rank))
    }

    /// Returns the rank whose thread calls; `None` for threads of no rank, and in processes that a
    /// rank has forked.
    pub fn current() -> Option<&'static Self> {
        let rank = CURRENT.try_with(Cell::get).unwrap_or(null());
        // SAFETY: null, or a rank, which is never given back.
        unsafe { rank.as_ref() }.filter(|_| !sys::is_forked())
    }

    /// Makes the calling thread one of this rank: with thread-local variables as the program
    /// begins with.
    pub fn adopt_thread(&'static self) {
        CURRENT.set(self);
        if let Some(loadable) = lock(&self.loadable).as_ref() {
            thread_locals::begin(loadable.thread_locals.as_ref());
        }
    }

    /// Words of the command line, as `main` gets them.
    pub fn argv(&self) -> (c_int, *mut *mut c_char) {
        let count = c_int::try_from(self.arguments.len() - 1).unwrap_or(c_int::MAX);
        (count, self.arguments.as_ptr().cast_mut().cast())
    }

    /// Variables, as `main` gets them.
    pub fn envp(&self) -> *mut *mut c_char {
        self.environ.load(Ordering::Acquire)
    }

    /// Looks at the variables, or changes them.
    pub fn with_environment<T>(&self, act: impl FnOnce(&mut Vec<usize>) -> T) -> T {
        let mut all = lock(&self.environment);
        let result = act(&mut all);
        let at = all.as_mut_ptr().cast();
        self.environ.store(at, Ordering::Release);
        for copy in lock(&self.environ_copies).iter() {
            sys::store_pointer(*copy, at.cast());
        }
        result
    }

    /// Adds a function that runs when the rank ends.
    pub fn add_at_exit(&self, act: AtExit) {
        lock(&self.at_exit).push(act);
    }

    /// Streams that the rank has opened and not closed.
    pub fn streams(&self) -> &Mutex<Vec<usize>> {
        &self.streams
    }

    /// What the rank does about one of [`OWN_SIGNALS`]; null: nothing was asked for.
    pub fn action(&self, signal: c_int) -> Option<&AtomicPtr<libc::sigaction>> {
        let index = OWN_SIGNALS.iter().position(|own| *own == signal)?;
        Some(&self.actions[index])
    }

    /// Ends the rank as `exit` does. Never returns; the thread stays.
    pub fn exit(&self, code: c_int) -> ! {
        if self.ends.swap(true, Ordering::AcqRel) {
            // A function that runs at the end has called exit: the end goes on from there.
            self.end_now(RankEnd::Exit(code as u8));
        }
        loop {
            let next = lock(&self.at_exit).pop();
            let Some((act, argument)) = next else { break };
            // SAFETY: the program asked for this call at its end.
            unsafe { act(std::ptr::with_exposed_provenance_mut(argument)) };
        }
        relocations::run_destructors(self);
        let streams = std::mem::take(&mut *lock(&self.streams));
        streams.into_iter().for_each(sys::flush);
        self.end_now(RankEnd::Exit(code as u8))
    }

    /// Ends the rank at once. Never returns. May be called from a signal handler.
    pub fn end_now(&self, end: RankEnd) -> ! {
        let first =
            self.end
                .compare_exchange(0, end.to_word(), Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            process::rank_has_ended();
        }
        if let (true, RankEnd::Exit(_)) = (first.is_ok(), end) {
            sys::close_all();
        }
        sys::wait_for_the_end()
    }

    /// Returns the end of the rank, once.
    pub fn take_end(&self) -> Option<RankEnd> {
        let end = RankEnd::from_word(self.end.load(Ordering::Acquire))?;
        (!self.is_told.swap(true, Ordering::AcqRel)).then_some(end)
    }

    /// Returns whether the rank has ended.
    pub fn is_over(&self) -> bool {
        self.end.load(Ordering::Acquire) != 0
    }

    /// Notes what is loaded for the rank, beside what was loaded before. At the end of the rank the
    /// last comes first.
    pub fn add_copies(&self, copies: Vec<LoadedMap>) {
        lock(&self.copies).splice(0..0, copies);
    }

    /// The program and its libraries as they are in files, once the program is loaded.
    pub fn loadable(&self) -> Option<Arc<Loadable>> {
        lock(&self.loadable).clone()
    }

    /// Libraries that the rank has loaded copies of.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The program and its libraries, as they are loaded.
    pub fn copies(&self) -> Vec<LoadedMap> {
        lock(&self.copies).clone()
    }

    /// The variable that the rank's copies of programs and libraries know as `environ`: the
    /// program's own, if it has one.
    pub fn environ_variable(&self) -> usize {
        let own = lock(&self.environ_copies).first().copied();
        own.unwrap_or_else(|| self.environ.as_ptr().expose_provenance())
    }

    /// Adds a variable `environ` of the program's own.
    pub fn add_environ_copy(&self, at: usize) {
        lock(&self.environ_copies).push(at);
        sys::store_pointer(at, self.envp().cast());
    }
}

/// Starts the thread of a rank; returns when it has descriptors of its own.
///
/// # Errors
/// The system has no thread.
pub(crate) fn start(
    rank: &'static Rank,
    handover: Handover,
    libraries: Arc<Libraries>,
) -> Result<(), String> {
    let (begun, wait) = std::sync::mpsc::channel();
    let numbers: Vec<_> = handover.files.iter().map(AsRawFd::as_raw_fd).collect();
    let run = move || {
        let mut handover = handover;
        let done = sys::own_files_and_directory(std::mem::take(&mut handover.files), &handover);
        let _ = begun.send(done.is_ok());
        let loaded = done.and_then(|()| load(rank, &handover, &libraries));
        drop(libraries);
        match loaded {
            Ok(entry) => sys::jump(entry),
            Err(text) => {
                eprintln!("garonne: rank {}: {text}", rank.number);
                rank.end_now(RankEnd::Exit(limits::EXIT_CANNOT_START as u8))
            }
        }
    };
    std::thread::Builder::new()
        .stack_size(sys::stack_bytes())
        .spawn(run)
        .map_err(|error| format!("rank {} cannot have a thread: {error}", rank.number))?;
    if wait.recv() == Ok(true) {
        // The thread has descriptors of its own by now.
        sys::close_numbers(&numbers);
    }
    Ok(())
}

/// Loads the rank's program and its libraries; returns where the program begins.
fn load(rank: &'static Rank, handover: &Handover, libraries: &Libraries) -> Result<usize, String> {
    let loadable = libraries.of(handover)?;
    thread_locals::check(loadable.thread_locals.as_ref())?;
    *lock(&rank.loadable) = Some(loadable.clone());
    sys::give_signal_stack();
    rank.adopt_thread();
    let map = rank.modules.load_program(rank, &loadable)?;
    Ok(map.base + loadable.entry as usize)
}
