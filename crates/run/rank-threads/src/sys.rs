//! System calls and the dynamic loader's interface, for the shared process and its ranks.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::handover::{Handover, RankEnd};
use crate::image::{Constants, PAGE};
use crate::limits;
use crate::rank::{OWN_SIGNALS, Rank};

/// Process of the ranks: a child that a rank forks is another one.
static SHARED_PROCESS: AtomicI32 = AtomicI32::new(0);

/// Number under which the next library is loaded.
static NEXT_LIBRARY: AtomicU32 = AtomicU32::new(limits::LIBRARY_NUMBER_MIN);

/// A program or library where the loader has put it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedMap {
    /// What its addresses count from.
    pub base: usize,
    /// Address of its dynamic section.
    pub dynamic: usize,
    /// Number under which it was loaded.
    pub number: u32,
    /// The loader's record of it.
    pub record: usize,
}

/// The part of the loader's record that is public (`link.h`).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: AtomicPtr<c_char>,
    dynamic: usize,
    next: *mut LinkMap,
}

/// Prepares this process for its ranks: their signals, room for descriptors, streams that keep
/// nothing back, since all ranks share them.
pub(crate) fn begin() {
    SHARED_PROCESS.store(rustix::process::getpid().as_raw_pid(), Ordering::Release);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    for stream in crate::streams::standard() {
        crate::streams::keep_nothing_back(stream);
    }
    // Looking the function up would forget the error that it is asked for.
    real_dlerror();
    for signal in OWN_SIGNALS {
        // SAFETY: all zeroes is a valid value of this plain C structure: an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: a valid structure; the handler may run at any time.
        unsafe { libc::sigaction(signal, &action, null_mut()) };
    }
}

/// Does about a signal what the rank asked for whose thread got it. Without a wish the rank ends.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let rank = Rank::current();
    let action = rank.and_then(|rank| rank.action(signal));
    let action = action.map_or(null_mut(), |action| action.load(Ordering::Acquire));
    // SAFETY: null, or an action that the rank has set, which is never given back.
    let handler = unsafe { action.as_ref() }.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    match (handler, rank) {
        (libc::SIG_IGN, _) => {}
        (libc::SIG_DFL, Some(rank)) => rank.end_now(RankEnd::Signal(signal as u8)),
        (libc::SIG_DFL, None) => {
            // SAFETY: all zeroes is a valid value of this plain C structure: SIG_DFL.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: a valid structure; without a handler the signal that comes again ends the
            // process.
            unsafe {
                libc::sigaction(signal, &default, null_mut());
                libc::raise(signal);
            }
        }
        (handler, _) => {
            let handler = std::ptr::with_exposed_provenance::<c_void>(handler);
            // SAFETY: the rank has set this function as a handler, of three arguments or of one;
            // one of one ignores the others.
            unsafe {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
    }
}

/// Returns whether this is a process that a rank has forked.
pub(crate) fn is_forked() -> bool {
    SHARED_PROCESS.load(Ordering::Relaxed) != rustix::process::getpid().as_raw_pid()
}

/// Takes over a descriptor that this process was started with.
pub(crate) fn own_descriptor(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: asks about a number.
    if number < 3 || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return None;
    }
    // SAFETY: the descriptor is open, was left for this process, and is taken once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Duplicates a descriptor by its number; `None` if it is not open.
pub(crate) fn duplicate(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: asks for a new descriptor.
    let new = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: the descriptor is new.
    (new >= 0).then(|| unsafe { OwnedFd::from_raw_fd(new) })
}

/// CPUs on which the calling thread may run.
pub(crate) fn own_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    all.filter(|cpu| set.is_set(*cpu)).collect()
}

/// Ends this process by a signal, without leaving a core file of it.
pub(crate) fn end_by_signal(signal: c_int) -> ! {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: all zeroes is a valid value of these plain C structures: SIG_DFL and an empty mask.
    let (default, mut set): (libc::sigaction, libc::sigset_t) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: valid structures.
    unsafe {
        libc::sigaction(signal, &default, null_mut());
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, null_mut());
        libc::kill(libc::getpid(), signal);
    }
    end_process(128 + signal)
}

/// Ends this process at once, with all its ranks.
pub(crate) fn end_process(code: c_int) -> ! {
    // SAFETY: does not return; nothing of this process is looked at afterwards.
    unsafe { libc::syscall(libc::SYS_exit_group, code) };
    wait_for_the_end()
}

/// Waits until something else ends the process.
pub(crate) fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Bytes of the stack that a process's first thread would have.
pub(crate) fn stack_bytes() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack);
    let limit = limit.current.and_then(|bytes| usize::try_from(bytes).ok());
    limit.unwrap_or(limits::STACK_BYTES_UNLIMITED)
}

/// Gives the calling thread descriptors, a working directory, a mask of new files and CPUs of its
/// own.
pub(crate) fn own_files_and_directory(files: Vec<OwnedFd>, of: &Handover) -> Result<(), String> {
    let failed = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    // SAFETY: the calling thread alone is changed.
    if unsafe { libc::unshare(libc::CLONE_FILES | libc::CLONE_FS) } != 0 {
        return Err(failed("no descriptors of a rank's own"));
    }
    // What was received is this thread's alone: the other threads have a table of their own.
    let numbers: Vec<RawFd> = files.into_iter().map(IntoRawFd::into_raw_fd).collect();
    let [input, output, errors, directory, agent] = numbers[..] else {
        return Err("a rank's descriptors are not there".into());
    };
    // SAFETY: numbers of open descriptors; the places are this thread's alone.
    unsafe {
        if libc::fchdir(directory) != 0 {
            return Err(failed("the working directory"));
        }
        libc::umask(of.umask as libc::mode_t);
        for (from, to) in [(input, 0), (output, 1), (errors, 2)] {
            if libc::dup2(from, to) < 0 {
                return Err(failed("standard streams"));
            }
        }
        let mut keep = 2;
        if of.agent_number > 2 && libc::dup3(agent, of.agent_number, 0) >= 0
            || agent == of.agent_number
        {
            keep = of.agent_number;
            libc::syscall(libc::SYS_close_range, 3, keep as u32 - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, keep as u32 + 1, u32::MAX, 0);
    }
    let mut set = rustix::thread::CpuSet::new();
    of.cpus.iter().for_each(|cpu| set.set(*cpu));
    if !of.cpus.is_empty() {
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    Ok(())
}

/// Gives the calling thread a stack for signal handlers, for as long as the process lives.
pub(crate) fn give_signal_stack() {
    let room = vec![0u8; limits::SIGNAL_STACK_BYTES].leak();
    let stack = libc::stack_t {
        ss_sp: room.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: room.len(),
    };
    // SAFETY: the memory is as large as it says, and is never given back.
    unsafe { libc::sigaltstack(&stack, null_mut()) };
}

/// Takes numbers for so many libraries, which no other library of this process gets: the loader
/// knows libraries by these names.
pub(crate) fn library_numbers(count: u32) -> Result<u32, String> {
    let first = NEXT_LIBRARY.fetch_add(count, Ordering::Relaxed);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if limit.is_some_and(|limit| u64::from(first + count) > limit) || first + count > 9999 {
        return Err(format!(
            "no room for the copies of {} libraries (ulimit -Hn is {}); put fewer ranks into a process",
            first + count - limits::LIBRARY_NUMBER_MIN,
            limit.unwrap_or(u64::MAX)
        ));
    }
    Ok(first)
}

/// Gives a descriptor a number.
pub(crate) fn move_to(file: OwnedFd, number: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: the number is above those of programs, and in this thread's own table.
    let moved = unsafe { libc::dup3(file.as_raw_fd(), number as c_int, libc::O_CLOEXEC) };
    match moved {
        // SAFETY: the descriptor is new.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(moved) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Loads the copy of this number, with all that it needs; returns the loader's handle, too.
pub(crate) fn open_copy(number: u32, flags: c_int) -> Result<(usize, LoadedMap), String> {
    // Found by the variable LD_LIBRARY_PATH of this process, and by this name from then on.
    let name = CString::new(number.to_string()).unwrap_or_default();
    let handle = real_dlopen(name.as_ptr(), flags);
    if handle.is_null() {
        let text = real_dlerror();
        let why = match text.is_null() {
            true => String::new(),
            // SAFETY: the loader's text is a C string.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        };
        return Err(why);
    }
    let mut record: *mut LinkMap = null_mut();
    // SAFETY: the handle is open; the loader writes the address of its record, which stays.
    let known = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut record).cast()) };
    match known == 0 && !record.is_null() {
        true => Ok((handle.expose_provenance(), map_of(record, number))),
        false => Err("the loader does not say where it has put it".into()),
    }
}

fn map_of(record: *mut LinkMap, number: u32) -> LoadedMap {
    // SAFETY: a record of the loader's; the part that is read does not change.
    let (base, dynamic) = unsafe { ((*record).base, (*record).dynamic) };
    LoadedMap {
        base,
        dynamic,
        number,
        record: record.expose_provenance(),
    }
}

/// Returns the program and those of its libraries that were loaded under the numbers behind its
/// own.
pub(crate) fn loaded_copies(program: LoadedMap, first: u32, count: u32) -> Vec<LoadedMap> {
    let mut copies = vec![program];
    let mut record = std::ptr::with_exposed_provenance_mut::<LinkMap>(program.record);
    // SAFETY: records of objects that are never unloaded. New ones are put behind the last.
    unsafe {
        while !(*record).next.is_null() {
            record = (*record).next;
            let name = (*record).name.load(Ordering::Acquire);
            let name = name.as_ref().map(|name| CStr::from_ptr(name).to_bytes());
            let number = name.and_then(|name| name.rsplit(|byte| *byte == b'/').next());
            let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
            if let Some(number) =
                number.filter(|number| (first + 1..first + count).contains(number))
            {
                copies.push(map_of(record, number));
            }
        }
    }
    copies
}

/// Has tools see a copy under the name of its file.
pub(crate) fn set_name(copy: &LoadedMap, name: CString) {
    let record = std::ptr::with_exposed_provenance_mut::<LinkMap>(copy.record);
    // SAFETY: a record of an object that is never unloaded; the new name stays, too.
    unsafe { (*record).name.store(name.into_raw(), Ordering::Release) };
}

/// Reads a word of what the loader has put into memory.
pub(crate) fn load_word(at: usize) -> u64 {
    // SAFETY: callers follow the tables of a loaded object.
    unsafe { std::ptr::with_exposed_provenance::<u64>(at).read_unaligned() }
}

/// Reads a name of a loaded object's symbols.
pub(crate) fn text_at(at: usize) -> &'static [u8] {
    // SAFETY: callers follow the tables of a loaded object, which is never unloaded.
    unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(at)) }.to_bytes()
}

/// Stores a pointer into a variable of a rank's program.
pub(crate) fn store_pointer(at: usize, pointer: *mut c_void) {
    // SAFETY: a variable of a loaded object, which programs read as a word.
    unsafe {
        AtomicPtr::from_ptr(std::ptr::with_exposed_provenance_mut(at))
            .store(pointer, Ordering::Release)
    };
}

/// Stores an address where the loader has stored one, which is constant by now.
pub(crate) fn store_pointer_in_constants(at: usize, pointer: usize) {
    // SAFETY: asks for a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(at & !(page - 1));
    // SAFETY: the page is one of a loaded object's tables of addresses; it stays readable. Left
    // writable: which of these pages the loader had made constant is not known.
    unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) };
    store_pointer(at, std::ptr::with_exposed_provenance_mut(pointer));
}

/// Maps pages of the original file in place of those of a copy that are the same, so that all ranks
/// share them, and tools see whose they are. Pages that cannot be mapped stay the copy's.
pub(crate) fn share_constants(
    copy: &LoadedMap,
    path: &Path,
    parts: &[Constants],
    copied: &OwnedFd,
) {
    // SAFETY: asks for a constant.
    if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize != PAGE {
        return;
    }
    let Ok(original) = std::fs::File::open(path) else {
        return;
    };
    for part in parts {
        let rights = match part.is_code {
            true => libc::PROT_READ | libc::PROT_EXEC,
            false => libc::PROT_READ,
        };
        let at = std::ptr::with_exposed_provenance_mut::<c_void>(copy.base + part.address);
        let (start, bytes) = (part.file.start as libc::off_t, part.file.len());
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        // SAFETY: the loader has mapped these pages of the copy here, for as long as the process
        // lives; the bytes that take their place are the same.
        let mapped = unsafe { libc::mmap(at, bytes, rights, flags, original.as_raw_fd(), start) };
        if mapped != libc::MAP_FAILED {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // Pages that a writable part begins in are still needed.
            let whole = bytes & !(PAGE - 1);
            // SAFETY: nothing maps this part of the copy any more.
            unsafe { libc::fallocate(copied.as_raw_fd(), hole, start, whole as libc::off_t) };
        }
    }
}

/// A file's bytes as they were when it was mapped, to be changed here alone. Pages that are not
/// changed are the system's, and cost this process nothing.
#[derive(Debug)]
pub(crate) struct FileMap {
    at: *mut u8,
    len: usize,
}

impl FileMap {
    /// Maps a file.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let file = std::fs::File::open(path)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if len == 0 {
            let at = std::ptr::NonNull::dangling().as_ptr();
            return Ok(Self { at, len });
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: asks for a new mapping of this file, which nobody else knows.
        let at = unsafe {
            libc::mmap(
                null_mut(),
                len,
                rights,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        match at {
            libc::MAP_FAILED => Err(std::io::Error::last_os_error()),
            at => Ok(Self { at: at.cast(), len }),
        }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping of this value, which nothing borrows any more.
            unsafe { libc::munmap(self.at.cast(), self.len) };
        }
    }
}

impl AsRef<[u8]> for FileMap {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping has so many bytes. Whoever cuts or writes a program's file while it
        // is loaded ends or confuses what runs it, here as with the system's own loader.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl AsMut<[u8]> for FileMap {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the pages are this process's own once they are written.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

/// Enters a program at its first instruction, which calls `__libc_start_main` in the end.
pub(crate) fn jump(entry: usize) -> ! {
    // SAFETY: the first instruction finds an empty list of arguments on the stack, and the thread
    // never returns to what is above.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "and rsp, -16",
            "push 0",
            "push 0",
            "push 0",
            "push 0",
            "xor edx, edx",
            "xor ebp, ebp",
            "jmp {entry}",
            entry = in(reg) entry,
            options(noreturn)
        )
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "stp xzr, xzr, [sp, #-16]!",
            "stp xzr, xzr, [sp, #-16]!",
            "mov x0, xzr",
            "br {entry}",
            entry = in(reg) entry,
            options(noreturn)
        )
    }
}

/// Closes descriptors of this process that have gone over to a rank.
pub(crate) fn close_numbers(numbers: &[RawFd]) {
    for number in numbers {
        // SAFETY: received for a rank that has a copy of its own, and used by nothing else here.
        unsafe { libc::close(*number) };
    }
}

/// Closes all descriptors of the calling rank.
pub(crate) fn close_all() {
    // SAFETY: the rank's threads share this table with nobody, and its program has ended.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0) };
}

/// Writes out what a stream of the C library keeps.
pub(crate) fn flush(stream: usize) {
    crate::streams::flush(stream);
}

/// Looks up a function of the C library behind this executable's own.
pub(crate) fn next_function(name: &CStr, known: &AtomicPtr<c_void>) -> *const c_void {
    let found = known.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    known.store(found, Ordering::Relaxed);
    found
}

/// Calls the loader's function, which this executable has, too.
fn real_dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(not(test))]
    return crate::of_rank::real_dlopen(name, flags);
    #[cfg(test)]
    // SAFETY: a C string.
    return unsafe { libc::dlopen(name, flags) };
}

fn real_dlerror() -> *const c_char {
    #[cfg(not(test))]
    return crate::of_rank::real_dlerror();
    #[cfg(test)]
    // SAFETY: returns a text of this thread, or null.
    return unsafe { libc::dlerror() };
}

/// Null, for functions that return no variable.
pub(crate) const NOTHING: *mut c_char = null::<c_char>().cast_mut();
