//! Functions in place of the C library's. What they do to a process there, they do to the rank
//! whose thread calls them; other threads get the C library's.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use garonne_sync::mutex::lock;

use crate::handover::RankEnd;
use crate::rank::{AtExit, Rank};
use crate::streams;
use crate::sys::{NOTHING, next_function};

/// Calls the C library's function of this name.
macro_rules! real {
    ($name:literal, fn($($kind:ty),* $(,)?) $(-> $result:ty)?, $($argument:expr),* $(,)?) => {{
        static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
        let found = next_function($name, &KNOWN);
        // SAFETY: the C library's function of this name has these arguments; what the caller says
        // of them holds for it too.
        unsafe {
            let function: unsafe extern "C" fn($($kind),*) $(-> $result)? = std::mem::transmute(found);
            function($($argument),*)
        }
    }};
}

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// What programs call with the address of `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    main: Main,
    count: c_int,
    words: *mut *mut c_char,
    init: *mut c_void,
    fini: *mut c_void,
    loader: *mut c_void,
    stack: *mut c_void,
) -> c_int {
    match Rank::current() {
        Some(rank) => {
            let (count, words) = rank.argv();
            // SAFETY: the program's own function, with what it gets in a process of its own.
            rank.exit(unsafe { main(count, words, rank.envp()) })
        }
        None => real!(
            c"__libc_start_main",
            fn(
                Main,
                c_int,
                *mut *mut c_char,
                *mut c_void,
                *mut c_void,
                *mut c_void,
                *mut c_void,
            ) -> c_int,
            main,
            count,
            words,
            init,
            fini,
            loader,
            stack
        ),
    }
}

/// Where the C library begins this executable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(_: c_int, _: *mut *mut c_char, _: *mut *mut c_char) -> c_int {
    crate::run()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn exit(code: c_int) -> ! {
    match Rank::current() {
        Some(rank) => rank.exit(code),
        None => real!(c"exit", fn(c_int) -> !, code),
    }
}

fn end_at_once(code: c_int) -> ! {
    match Rank::current() {
        Some(rank) => rank.end_now(RankEnd::Exit(code as u8)),
        None => crate::sys::end_process(code),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(code: c_int) -> ! {
    end_at_once(code)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(code: c_int) -> ! {
    end_at_once(code)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(code: c_int) -> ! {
    end_at_once(code)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_atexit(
    act: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    object: *mut c_void,
) -> c_int {
    match Rank::current() {
        Some(rank) => {
            let act: AtExit = (act, argument.expose_provenance());
            rank.add_at_exit(act);
            0
        }
        None => real!(
            c"__cxa_atexit",
            fn(unsafe extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int,
            act,
            argument,
            object
        ),
    }
}

/// Returns where a variable stands in a rank's list.
fn place_of(all: &[usize], name: &[u8]) -> Option<usize> {
    all.iter().position(|entry| {
        *entry != 0
            && entry_of(*entry)
                .strip_prefix(name)
                .is_some_and(|rest| rest.first() == Some(&b'='))
    })
}

fn entry_of(entry: usize) -> &'static [u8] {
    // SAFETY: entries are C strings, which a rank's list never gives back.
    unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(entry)) }.to_bytes()
}

/// The name that a caller gives; `None` if there is none, or no variable can have it.
unsafe fn name_at(name: *const c_char) -> Option<&'static [u8]> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the standard, a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    (!name.is_empty() && !name.contains(&b'=')).then_some(name)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    let Some(rank) = Rank::current() else {
        return real!(c"getenv", fn(*const c_char) -> *mut c_char, name);
    };
    // SAFETY: by the standard, a C string.
    let Some(name) = (unsafe { name_at(name) }) else {
        return NOTHING;
    };
    rank.with_environment(|all| {
        place_of(all, name).map_or(NOTHING, |place| {
            std::ptr::with_exposed_provenance_mut(all[place] + name.len() + 1)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn secure_getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the same argument; a shared process never has other rights than its user.
    unsafe { getenv(name) }
}

fn set(rank: &Rank, name: &[u8], entry: usize, replaces: bool) {
    rank.with_environment(|all| match place_of(all, name) {
        Some(place) if replaces => all[place] = entry,
        Some(_) => {}
        None => {
            let end = all.len() - 1;
            all.insert(end, entry);
        }
    });
}

fn invalid() -> c_int {
    // SAFETY: this thread's own variable.
    unsafe { *libc::__errno_location() = libc::EINVAL };
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setenv(
    name: *const c_char,
    value: *const c_char,
    replaces: c_int,
) -> c_int {
    let Some(rank) = Rank::current() else {
        return real!(
            c"setenv",
            fn(*const c_char, *const c_char, c_int) -> c_int,
            name,
            value,
            replaces
        );
    };
    // SAFETY: by the standard, C strings.
    let (name, value) = unsafe { (name_at(name), CStr::from_ptr(value).to_bytes()) };
    let Some(name) = name else {
        return invalid();
    };
    let entry = CString::new([name, b"=", value].concat()).unwrap_or_default();
    set(
        rank,
        name,
        entry.into_raw().expose_provenance(),
        replaces != 0,
    );
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unsetenv(name: *const c_char) -> c_int {
    let Some(rank) = Rank::current() else {
        return real!(c"unsetenv", fn(*const c_char) -> c_int, name);
    };
    // SAFETY: by the standard, a C string.
    let Some(name) = (unsafe { name_at(name) }) else {
        return invalid();
    };
    rank.with_environment(|all| {
        while let Some(place) = place_of(all, name) {
            all.remove(place);
        }
    });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn putenv(entry: *mut c_char) -> c_int {
    let Some(rank) = Rank::current() else {
        return real!(c"putenv", fn(*mut c_char) -> c_int, entry);
    };
    // SAFETY: by the standard, a C string that becomes part of the environment.
    let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
    match text.iter().position(|byte| *byte == b'=') {
        Some(end) => set(rank, &text[..end], entry.expose_provenance(), true),
        // SAFETY: the C string of before.
        None => return unsafe { unsetenv(entry) },
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearenv() -> c_int {
    match Rank::current() {
        Some(rank) => {
            rank.with_environment(|all| *all = vec![0]);
            0
        }
        None => real!(c"clearenv", fn() -> c_int,),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let place = Rank::current().and_then(|rank| rank.action(signal));
    let Some(place) = place else {
        return real!(
            c"sigaction",
            fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int,
            signal,
            new,
            old
        );
    };
    let before = place.load(Ordering::Acquire);
    // SAFETY: by the standard, valid places or null; `before` is one of those stored below, which
    // are never given back.
    unsafe {
        if let Some(old) = old.as_mut() {
            *old = before.as_ref().copied().unwrap_or(std::mem::zeroed());
        }
        if let Some(new) = new.as_ref() {
            let stored = match new.sa_sigaction {
                // No memory is asked for: a signal handler may call this.
                libc::SIG_DFL => null_mut(),
                _ => Box::into_raw(Box::new(*new)),
            };
            place.store(stored, Ordering::Release);
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    if Rank::current()
        .and_then(|rank| rank.action(signal))
        .is_none()
    {
        return real!(c"signal", fn(c_int, usize) -> usize, signal, handler);
    }
    // SAFETY: all zeroes is a valid value of these plain C structures.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    new.sa_sigaction = handler;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: valid structures.
    unsafe { sigaction(signal, &new, &mut old) };
    old.sa_sigaction
}

type Begin = extern "C" fn(*mut c_void) -> *mut c_void;

/// What a thread of a rank begins with.
struct ThreadBegin {
    rank: &'static Rank,
    begin: Begin,
    argument: *mut c_void,
}

extern "C" fn begin_thread(begin: *mut c_void) -> *mut c_void {
    // SAFETY: what `pthread_create` made for this thread alone.
    let begin = unsafe { Box::from_raw(begin.cast::<ThreadBegin>()) };
    begin.rank.adopt_thread();
    let (act, argument) = (begin.begin, begin.argument);
    drop(begin);
    act(argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    begin: Begin,
    argument: *mut c_void,
) -> c_int {
    let create = |begin: Begin, argument: *mut c_void| {
        real!(
            c"pthread_create",
            fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Begin, *mut c_void) -> c_int,
            thread,
            attributes,
            begin,
            argument
        )
    };
    let Some(rank) = Rank::current() else {
        return create(begin, argument);
    };
    let own = Box::into_raw(Box::new(ThreadBegin {
        rank,
        begin,
        argument,
    }));
    let code = create(begin_thread, own.cast());
    if code != 0 {
        // SAFETY: no thread has begun that would take it.
        drop(unsafe { Box::from_raw(own) });
    }
    code
}

thread_local! {
    /// Why this thread's last `dlopen` failed, until it is asked; and what it was told then, which
    /// stays valid until the next question.
    static LOADING_ERROR: RefCell<[Option<CString>; 2]> = const { RefCell::new([None, None]) };
}

pub(crate) fn real_dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    real!(
        c"dlopen",
        fn(*const c_char, c_int) -> *mut c_void,
        name,
        flags
    )
}

pub(crate) fn real_dlerror() -> *const c_char {
    real!(c"dlerror", fn() -> *const c_char,)
}

/// A rank gets copies of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    let Some(rank) = Rank::current() else {
        return real_dlopen(name, flags);
    };
    let text = match name.is_null() {
        true => Ok(""),
        // SAFETY: by the standard, a C string.
        false => unsafe { CStr::from_ptr(name) }.to_str(),
    };
    let Ok(text) = text else {
        let why = c"names of libraries that ranks of a process load must be UTF-8";
        return fail(why.to_owned());
    };
    // An empty name is the program, as none is.
    let asked = Some(text).filter(|text| !text.is_empty());
    match rank.modules().open(rank, asked, flags) {
        Ok(Some(handle)) => std::ptr::with_exposed_provenance_mut(handle),
        // The loader itself says what is wrong with the name, or opens what all ranks share.
        Ok(None) => real_dlopen(name, flags & !libc::RTLD_GLOBAL),
        Err(why) => fail(CString::new(format!("{text}: {why}")).unwrap_or_default()),
    }
}

fn fail(why: CString) -> *mut c_void {
    let _ = LOADING_ERROR.try_with(|texts| texts.borrow_mut()[0] = Some(why));
    null_mut()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlerror() -> *const c_char {
    let own = LOADING_ERROR.try_with(|texts| {
        let [next, told] = &mut *texts.borrow_mut();
        *told = Some(next.take()?);
        told.as_ref().map(|text| text.as_ptr())
    });
    own.ok().flatten().unwrap_or_else(real_dlerror)
}

/// Copies stay until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    match Rank::current() {
        Some(rank) if rank.modules().is_copy(rank, handle.expose_provenance()) => 0,
        _ => real!(c"dlclose", fn(*mut c_void) -> c_int, handle),
    }
}

pub(crate) fn real_setvbuf(stream: *mut libc::FILE, kind: c_int) -> c_int {
    real!(
        c"setvbuf",
        fn(*mut libc::FILE, *mut c_char, c_int, usize) -> c_int,
        stream,
        null_mut(),
        kind,
        0
    )
}

pub(crate) fn real_fflush(stream: *mut libc::FILE) -> c_int {
    real!(c"fflush", fn(*mut libc::FILE) -> c_int, stream)
}

fn is_shared(stream: *mut libc::FILE) -> bool {
    Rank::current().is_some() && streams::standard().contains(&stream)
}

/// Ranks share the standard streams, which keep nothing back whatever one of them asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setvbuf(
    stream: *mut libc::FILE,
    buffer: *mut c_char,
    kind: c_int,
    bytes: usize,
) -> c_int {
    match is_shared(stream) {
        true => 0,
        false => real!(
            c"setvbuf",
            fn(*mut libc::FILE, *mut c_char, c_int, usize) -> c_int,
            stream,
            buffer,
            kind,
            bytes
        ),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setbuf(stream: *mut libc::FILE, buffer: *mut c_char) {
    if !is_shared(stream) {
        real!(c"setbuf", fn(*mut libc::FILE, *mut c_char), stream, buffer);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setbuffer(stream: *mut libc::FILE, buffer: *mut c_char, bytes: usize) {
    if !is_shared(stream) {
        real!(
            c"setbuffer",
            fn(*mut libc::FILE, *mut c_char, usize),
            stream,
            buffer,
            bytes
        );
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setlinebuf(stream: *mut libc::FILE) {
    if !is_shared(stream) {
        real!(c"setlinebuf", fn(*mut libc::FILE), stream);
    }
}

fn opened(stream: *mut libc::FILE) -> *mut libc::FILE {
    if let Some(rank) = Rank::current().filter(|_| !stream.is_null()) {
        lock(rank.streams()).push(stream.expose_provenance());
    }
    stream
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    opened(real!(
        c"fopen",
        fn(*const c_char, *const c_char) -> *mut libc::FILE,
        path,
        mode
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    opened(real!(
        c"fopen64",
        fn(*const c_char, *const c_char) -> *mut libc::FILE,
        path,
        mode
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(number: c_int, mode: *const c_char) -> *mut libc::FILE {
    opened(real!(
        c"fdopen",
        fn(c_int, *const c_char) -> *mut libc::FILE,
        number,
        mode
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpfile() -> *mut libc::FILE {
    opened(real!(c"tmpfile", fn() -> *mut libc::FILE,))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpfile64() -> *mut libc::FILE {
    opened(real!(c"tmpfile64", fn() -> *mut libc::FILE,))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    if is_shared(stream) {
        // Other ranks go on writing to it.
        // SAFETY: closes a descriptor of this rank's own.
        return unsafe {
            libc::close(if stream == streams::standard()[0] {
                1
            } else {
                2
            })
        };
    }
    if let Some(rank) = Rank::current() {
        let at = stream.expose_provenance();
        lock(rank.streams()).retain(|known| *known != at);
    }
    real!(c"fclose", fn(*mut libc::FILE) -> c_int, stream)
}

/// Without a stream, those of the rank are meant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fflush(stream: *mut libc::FILE) -> c_int {
    match Rank::current().filter(|_| stream.is_null()) {
        Some(rank) => {
            let all = lock(rank.streams()).clone();
            let flush = |at| real_fflush(std::ptr::with_exposed_provenance_mut(at));
            all.into_iter().map(flush).fold(0, |all, one| all | one)
        }
        None => real_fflush(stream),
    }
}
