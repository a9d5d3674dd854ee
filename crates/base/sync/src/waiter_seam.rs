//! The seam between a library that waits and a thread runtime, where each is a shared object of its
//! own and has its own copy of this crate.
//!
//! The runtime exports a function of type [`AttachLibrary`] under the name [`ATTACH_SYMBOL`]. The
//! library looks for it when it begins, and passes a [`WaitingLibrary`]: how to act for a fiber,
//! and what to run at a context switch. It gets a [`FiberExecutor`]: how to suspend and resume one.
//! Both tables have C layout and a version; they live for ever.

use crate::waiter::{self, EnteredWaiter, Waiter, WaiterState};
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

/// Version of the tables. Both sides refuse another one.
pub const SEAM_VERSION: u32 = 1;

/// Name of the function that a thread runtime exports.
pub const ATTACH_SYMBOL: &CStr = c"garonne_fibers_attach_library";

/// A fiber as its runtime knows it.
pub type FiberPointer = *const c_void;

/// A waiter as its library knows it.
pub type WaiterPointer = *const c_void;

/// Memory of the runtime for what a library keeps while a worker acts for a fiber.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct EnteredPlace(MaybeUninit<[u64; 8]>);

impl EnteredPlace {
    /// Memory in which nothing is kept.
    pub const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
}

impl Default for EnteredPlace {
    fn default() -> Self {
        Self::new()
    }
}

/// A moment at which a runtime lets a library do something: a worker switches between fibers.
pub const KEYPOINT_SWITCH: u32 = 0;
/// A moment at which a runtime lets a library do something: a worker has nothing to run.
pub const KEYPOINT_IDLE: u32 = 1;

/// What a runtime calls in a library.
#[repr(C)]
#[derive(Debug)]
pub struct WaitingLibrary {
    /// [`SEAM_VERSION`].
    pub version: u32,
    /// Makes the waiter of a fiber, which owns the pointer until it calls `forget`.
    pub make_waiter: unsafe extern "C" fn(FiberPointer) -> WaiterPointer,
    /// The fiber has ended.
    pub drop_waiter: unsafe extern "C" fn(WaiterPointer),
    /// The calling thread acts for the waiter from now on.
    pub enter: unsafe extern "C" fn(WaiterPointer, *mut EnteredPlace),
    /// The calling thread acts for whom it acted before. Called once for each `enter`, by that
    /// thread.
    pub leave: unsafe extern "C" fn(*mut EnteredPlace),
    /// A keypoint. Returns 1 if anything was done.
    pub keypoint: unsafe extern "C" fn(u32) -> u32,
}

/// What a library calls in a runtime.
#[repr(C)]
#[derive(Debug)]
pub struct FiberExecutor {
    /// [`SEAM_VERSION`].
    pub version: u32,
    /// Suspends the fiber, which calls this, until `unpark`. May return early.
    pub park: unsafe extern "C" fn(FiberPointer),
    /// Resumes the fiber, or lets its next `park` return at once.
    pub unpark: unsafe extern "C" fn(FiberPointer),
    /// Lets other fibers run, on behalf of this one, which calls this; null: of whichever calls. 0:
    /// none wanted to.
    pub yield_now: unsafe extern "C" fn(FiberPointer) -> u32,
    /// The fiber, which calls this, is about to sleep in the kernel.
    pub begins_sleep: unsafe extern "C" fn(FiberPointer),
    /// The library has no use for the pointer any more.
    pub forget: unsafe extern "C" fn(FiberPointer),
}

/// Connects a library to the runtime that exports this. Null: the version is another one, or a
/// library is connected already.
pub type AttachLibrary = unsafe extern "C" fn(*const WaitingLibrary) -> *const FiberExecutor;

/// A fiber of another shared object's runtime as a waiter.
#[derive(Debug)]
struct SeamWaiter {
    state: WaiterState,
    fiber: FiberPointer,
    executor: &'static FiberExecutor,
}

// SAFETY: the executor's functions may be called by any thread, as the seam says; those that a
// fiber calls itself are called by that.
unsafe impl Send for SeamWaiter {}
// SAFETY: as above.
unsafe impl Sync for SeamWaiter {}

impl Waiter for SeamWaiter {
    fn state(&self) -> &WaiterState {
        &self.state
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        use std::sync::atomic::Ordering;
        if word.load(Ordering::SeqCst) == expected {
            // SAFETY: the pointer is the runtime's, and was not forgotten.
            unsafe { (self.executor.park)(self.fiber) };
        }
    }

    fn unpark(&self, _: &AtomicU32) {
        // SAFETY: as above.
        unsafe { (self.executor.unpark)(self.fiber) };
    }

    fn yield_now(&self) -> bool {
        // SAFETY: as above.
        unsafe { (self.executor.yield_now)(self.fiber) != 0 }
    }

    fn begins_sleep(&self) {
        // SAFETY: as above.
        unsafe { (self.executor.begins_sleep)(self.fiber) };
    }
}

impl Drop for SeamWaiter {
    fn drop(&mut self) {
        // SAFETY: nobody else has the pointer.
        unsafe { (self.executor.forget)(self.fiber) };
    }
}

/// What the library does at a keypoint: `false`: nothing was to do.
pub type KeypointHook = fn(keypoint: u32) -> bool;

static EXECUTOR: OnceLock<&'static FiberExecutor> = OnceLock::new();
static HOOK: OnceLock<KeypointHook> = OnceLock::new();

static LIBRARY: WaitingLibrary = WaitingLibrary {
    version: SEAM_VERSION,
    make_waiter,
    drop_waiter,
    enter,
    leave,
    keypoint,
};

/// Connects this library to a runtime that is loaded in one of these shared objects. `false`: none
/// is, or none of its version. The first connection stays.
pub fn attach(objects: &[&CStr], hook: KeypointHook) -> bool {
    if EXECUTOR.get().is_some() {
        return true;
    }
    HOOK.get_or_init(|| hook);
    objects.iter().any(|object| {
        // SAFETY: looks at what is loaded only. The reference that a hit counts is kept, so the
        // function stays.
        let symbol = unsafe {
            let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
            let handle = libc::dlopen(object.as_ptr(), flags);
            if handle.is_null() {
                return false;
            }
            libc::dlsym(handle, ATTACH_SYMBOL.as_ptr())
        };
        if symbol.is_null() {
            return false;
        }
        // SAFETY: the name belongs to Garonne, whose runtimes export it with this type.
        let executor = unsafe {
            let attach = std::mem::transmute::<*mut c_void, AttachLibrary>(symbol);
            attach(&LIBRARY).as_ref()
        };
        // The runtime enters fibers from now on; it calls none of the functions before.
        let is_new = executor.is_some_and(|executor| {
            executor.version == SEAM_VERSION && EXECUTOR.set(executor).is_ok()
        });
        if let (true, Some(executor)) = (is_new, executor) {
            // A fiber that calls this is entered when it goes on.
            // SAFETY: no fiber stands for the one that calls.
            unsafe { (executor.yield_now)(std::ptr::null()) };
        }
        is_new
    })
}

unsafe extern "C" fn make_waiter(fiber: FiberPointer) -> WaiterPointer {
    let Some(executor) = EXECUTOR.get() else {
        // The connection is being made just now.
        return std::ptr::null();
    };
    let waiter: Arc<SeamWaiter> = Arc::new(SeamWaiter {
        state: WaiterState::new(),
        fiber,
        executor,
    });
    Arc::into_raw(waiter).cast()
}

unsafe extern "C" fn drop_waiter(waiter: WaiterPointer) {
    // SAFETY: the pointer that `make_waiter` returned, once.
    drop(unsafe { Arc::from_raw(waiter.cast::<SeamWaiter>()) });
}

const _: () = assert!(
    size_of::<EnteredWaiter>() <= size_of::<EnteredPlace>()
        && align_of::<EnteredWaiter>() <= align_of::<EnteredPlace>()
);

unsafe extern "C" fn enter(waiter: WaiterPointer, place: *mut EnteredPlace) {
    // SAFETY: the pointer that `make_waiter` returned, which was not dropped.
    let waiter = unsafe {
        Arc::increment_strong_count(waiter.cast::<SeamWaiter>());
        Arc::from_raw(waiter.cast::<SeamWaiter>())
    };
    // SAFETY: the runtime's memory, which is large enough (asserted above).
    unsafe { place.cast::<EnteredWaiter>().write(waiter::enter(waiter)) };
}

unsafe extern "C" fn leave(place: *mut EnteredPlace) {
    // SAFETY: `enter` wrote it, on this thread, and it is read once.
    drop(unsafe { place.cast::<EnteredWaiter>().read() });
}

unsafe extern "C" fn keypoint(which: u32) -> u32 {
    HOOK.get().is_some_and(|hook| hook(which)).into()
}
