//! Threads, their attributes, and keys.

use crate::bubbles::{CBubble, number, share};
use crate::objects::{CObject, begin, code, duration, end, value};
use garonne_fiber::limits::STACK_DEFAULT;
use garonne_fiber::{Builder, FiberHandle, FiberLocal, Key, Place, Priority};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const DETACHED: c_int = 1;

/// Attributes of a C program.
#[derive(Clone, Debug)]
struct ThreadAttributes {
    stack_size: usize,
    is_detached: bool,
    name: Option<String>,
    place: Place,
    priority: Priority,
    bubble: Option<Arc<CBubble>>,
}

impl ThreadAttributes {
    fn new() -> Self {
        Self {
            stack_size: STACK_DEFAULT,
            is_detached: false,
            name: None,
            place: Place::Machine,
            priority: Priority::Normal,
            bubble: None,
        }
    }
}

type Attributes = Mutex<ThreadAttributes>;

fn fresh_attributes() -> Attributes {
    Mutex::new(ThreadAttributes::new())
}

/// Calls `change` with attributes.
///
/// # Safety
/// `attributes` is null or points to attributes.
unsafe fn change<R>(
    attributes: *const CObject,
    change: impl FnOnce(&mut ThreadAttributes) -> R,
) -> Result<R, c_int> {
    // SAFETY: the caller says so.
    let attributes: &Attributes = unsafe { value(attributes, fresh_attributes) }?;
    Ok(change(
        &mut attributes.lock().unwrap_or_else(PoisonError::into_inner),
    ))
}

/// # Safety
/// `text` is null or a string of C.
pub(crate) unsafe fn text(text: *const c_char) -> Result<String, c_int> {
    if text.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller says so.
    Ok(unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned())
}

/// `garonne_attr_init`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_init(attributes: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe { begin(attributes, fresh_attributes()) }
}

/// `garonne_attr_destroy`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_destroy(attributes: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe { end::<Attributes>(attributes, |_| {}) }
}

/// `garonne_attr_setstacksize`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_setstacksize(
    attributes: *mut CObject,
    bytes: usize,
) -> c_int {
    if bytes > garonne_fiber::limits::STACK_MAX {
        return libc::EINVAL;
    }
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { change(attributes, |attributes| attributes.stack_size = bytes) })
}

/// `garonne_attr_getstacksize`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_getstacksize(
    attributes: *const CObject,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe {
        give(
            bytes,
            change(attributes, |attributes| attributes.stack_size),
        )
    }
}

/// Writes a result to where a C program wants it.
///
/// # Safety
/// `target` is null or valid for a write.
unsafe fn give<T>(target: *mut T, result: Result<T, c_int>) -> c_int {
    match result {
        Ok(_) if target.is_null() => libc::EINVAL,
        Ok(result) => {
            // SAFETY: the caller says so.
            unsafe { target.write(result) };
            0
        }
        Err(error) => error,
    }
}

/// `garonne_attr_setdetachstate`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_setdetachstate(
    attributes: *mut CObject,
    state: c_int,
) -> c_int {
    if !(0..=DETACHED).contains(&state) {
        return libc::EINVAL;
    }
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe {
        change(attributes, |attributes| {
            attributes.is_detached = state == DETACHED
        })
    })
}

/// `garonne_attr_getdetachstate`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_getdetachstate(
    attributes: *const CObject,
    state: *mut c_int,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe {
        give(
            state,
            change(attributes, |attributes| c_int::from(attributes.is_detached)),
        )
    }
}

/// `garonne_attr_setname`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_setname(
    attributes: *mut CObject,
    name: *const c_char,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let name = unsafe { text(name) };
    // SAFETY: as above.
    code(
        name.and_then(|name| unsafe {
            change(attributes, |attributes| attributes.name = Some(name))
        }),
    )
}

/// `garonne_attr_setplace`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_setplace(
    attributes: *mut CObject,
    place: *const c_char,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let place = unsafe { text(place) }.and_then(|place| place.parse().map_err(|()| libc::EINVAL));
    // SAFETY: as above.
    code(
        place
            .and_then(|place| unsafe { change(attributes, |attributes| attributes.place = place) }),
    )
}

/// `garonne_attr_setpriority`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_setpriority(
    attributes: *mut CObject,
    priority: c_int,
) -> c_int {
    let priority = match priority {
        0 => Priority::High,
        1 => Priority::Normal,
        2 => Priority::Low,
        _ => return libc::EINVAL,
    };
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { change(attributes, |attributes| attributes.priority = priority) })
}

/// `garonne_attr_setbubble`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_attr_setbubble(
    attributes: *mut CObject,
    bubble: *const CBubble,
) -> c_int {
    // SAFETY: the header asks for a bubble that was not destroyed, or null.
    let bubble = unsafe { share(bubble) };
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { change(attributes, |attributes| attributes.bubble = bubble) })
}

/// A thread of a C program. Its address is the program's `garonne_thread_t`.
#[derive(Debug, Default)]
pub struct CThread {
    fiber: OnceLock<FiberHandle>,
    result: AtomicUsize,
}

/// The thread that calls, as a C program knows it.
static OWN: FiberLocal<OnceLock<Arc<CThread>>> = FiberLocal::new(OnceLock::new);

/// What a thread runs.
struct StartFunction {
    function: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: usize,
}

/// `garonne_thread_create`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_thread_create(
    target: *mut *const CThread,
    attributes: *const CObject,
    function: Option<extern "C-unwind" fn(*mut c_void) -> *mut c_void>,
    argument: *mut c_void,
) -> c_int {
    let (Some(function), false) = (function, target.is_null()) else {
        return libc::EINVAL;
    };
    let wanted = if attributes.is_null() {
        Ok(ThreadAttributes::new())
    } else {
        // SAFETY: the header asks for valid or null pointers.
        unsafe { change(attributes, |attributes| attributes.clone()) }
    };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return error,
    };
    let mut builder = Builder::new()
        .stack_size(wanted.stack_size)
        .place(wanted.place)
        .priority(wanted.priority);
    if let Some(name) = &wanted.name {
        builder = builder.name(name);
    }
    let thread = Arc::new(CThread::default());
    let own = thread.clone();
    let start = StartFunction {
        function,
        argument: argument as usize,
    };
    // The program may read its handle in the new thread, as soon as that runs.
    let handle = if wanted.is_detached {
        Arc::as_ptr(&thread)
    } else {
        Arc::into_raw(thread.clone())
    };
    // SAFETY: not null, and the header asks for a valid pointer.
    unsafe { target.write(handle) };
    let body = move || run(own, start);
    let started = match &wanted.bubble {
        None => builder.start(body).map_err(|error| number(error.into())),
        Some(bubble) => bubble
            .bubble()
            .and_then(|bubble| bubble.start(builder, body).map_err(number)),
    };
    match started {
        Ok(fiber) => {
            let _ = thread.fiber.set(fiber);
            0
        }
        Err(error) => {
            if !wanted.is_detached {
                // SAFETY: the count that `into_raw` left; the program has no thread.
                drop(unsafe { Arc::from_raw(handle) });
            }
            error
        }
    }
}

/// The life of a C thread. What it holds is not on its stack, because it may exit in the middle.
fn run(thread: Arc<CThread>, start: StartFunction) {
    if let Some(fiber) = garonne_fiber::current() {
        let _ = thread.fiber.set(fiber);
    }
    let _ = OWN.get().set(thread);
    let result = (start.function)(start.argument as *mut c_void);
    own(|thread| thread.result.store(result as usize, Ordering::Release));
}

fn own<R>(body: impl FnOnce(&Arc<CThread>) -> R) -> R {
    let own = OWN.get();
    body(own.get_or_init(|| {
        let thread = CThread::default();
        if let Some(fiber) = garonne_fiber::current() {
            let _ = thread.fiber.set(fiber);
        }
        Arc::new(thread)
    }))
}

/// `garonne_thread_join`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_thread_join(
    thread: *const CThread,
    result: *mut *mut c_void,
) -> c_int {
    // SAFETY: the header asks for a thread that was neither joined nor detached.
    let Some(known) = (unsafe { thread.as_ref() }) else {
        return libc::ESRCH;
    };
    if own(Arc::as_ptr) == thread {
        return libc::EDEADLK;
    }
    let Some(fiber) = fiber_of(known) else {
        return libc::EINVAL;
    };
    fiber.wait();
    if !result.is_null() {
        // SAFETY: the header asks for valid or null pointers.
        unsafe { result.write(known.result.load(Ordering::Acquire) as *mut c_void) };
    }
    // SAFETY: the count that `garonne_thread_create` left for whoever joins.
    drop(unsafe { Arc::from_raw(thread) });
    0
}

/// The fiber of a thread; `None` for threads of the system. Its creator may not have noted it yet.
fn fiber_of(thread: &CThread) -> Option<FiberHandle> {
    for _ in 0..1000 {
        if let Some(fiber) = thread.fiber.get() {
            return Some(fiber.clone());
        }
        garonne_fiber::yield_now();
    }
    None
}

/// `garonne_thread_detach`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_thread_detach(thread: *const CThread) -> c_int {
    if thread.is_null() {
        return libc::ESRCH;
    }
    // SAFETY: the count that `garonne_thread_create` left for whoever joins or detaches.
    drop(unsafe { Arc::from_raw(thread) });
    0
}

/// `garonne_thread_self`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_thread_self() -> *const CThread {
    own(Arc::as_ptr)
}

/// `garonne_thread_equal`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_thread_equal(one: *const CThread, other: *const CThread) -> c_int {
    c_int::from(one == other)
}

/// `garonne_thread_exit`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_thread_exit(result: *mut c_void) -> ! {
    own(|thread| thread.result.store(result as usize, Ordering::Release));
    garonne_fiber::exit();
    // SAFETY: a thread of the system, which runs no fiber, ends as its C library says.
    unsafe { libc::pthread_exit(result) }
}

/// `garonne_thread_yield`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_thread_yield() -> c_int {
    garonne_fiber::yield_now();
    0
}

/// `garonne_thread_sleep`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_thread_sleep(time: *const libc::timespec) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { duration(time) }.map(garonne_fiber::sleep))
}

/// `garonne_thread_setname`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_thread_setname(
    thread: *const CThread,
    name: *const c_char,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let (thread, name) = unsafe { (thread.as_ref(), text(name)) };
    let Some(fiber) = thread.and_then(fiber_of) else {
        return libc::ESRCH;
    };
    code(name.map(|name| fiber.set_name(&name)))
}

/// `garonne_thread_workers`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_thread_workers() -> c_int {
    garonne_fiber::workers() as c_int
}

/// `garonne_thread_blocking`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_thread_blocking(
    function: Option<extern "C-unwind" fn(*mut c_void) -> *mut c_void>,
    argument: *mut c_void,
) -> *mut c_void {
    match function {
        Some(function) => garonne_fiber::blocking(|| function(argument)),
        None => std::ptr::null_mut(),
    }
}

/// `garonne_key_create`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_key_create(
    key: *mut u64,
    destructor: Option<extern "C-unwind" fn(*mut c_void)>,
) -> c_int {
    if key.is_null() {
        return libc::EINVAL;
    }
    let destructor = destructor.map(|destructor| -> Arc<dyn Fn(usize) + Send + Sync> {
        Arc::new(move |word| destructor(word as *mut c_void))
    });
    // SAFETY: not null, and the header asks for valid pointers.
    unsafe { key.write(Key::new(destructor).number()) };
    0
}

/// `garonne_key_delete`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_key_delete(key: u64) -> c_int {
    if Key::from_number(key).delete() {
        0
    } else {
        libc::EINVAL
    }
}

/// `garonne_getspecific`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_getspecific(key: u64) -> *mut c_void {
    Key::from_number(key).get() as *mut c_void
}

/// `garonne_setspecific`
#[unsafe(no_mangle)]
pub extern "C" fn garonne_setspecific(key: u64, value: *const c_void) -> c_int {
    let key = Key::from_number(key);
    if !key.exists() {
        return libc::EINVAL;
    }
    key.set(value as usize);
    0
}
