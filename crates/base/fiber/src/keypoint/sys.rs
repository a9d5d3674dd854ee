//! The seam to a library that is a shared object of its own: the runtime's side.

use super::Keypoint;
use crate::context::Fiber;
use garonne_sync::waiter_seam::{
    EnteredPlace, FiberExecutor, FiberPointer, KEYPOINT_IDLE, KEYPOINT_SWITCH, SEAM_VERSION,
    WaiterPointer, WaitingLibrary,
};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock, Weak};

static LIBRARY: OnceLock<&'static WaitingLibrary> = OnceLock::new();

static EXECUTOR: FiberExecutor = FiberExecutor {
    version: SEAM_VERSION,
    park,
    unpark,
    yield_now,
    begins_sleep,
    forget,
};

/// Connects a library that is a shared object of its own; see [`garonne_sync::waiter_seam`]. For
/// the function that a shared object with fibers exports. Null: the library is of another version,
/// or there is one already.
///
/// # Safety
/// `library` is null or points to a table that lives for ever.
pub unsafe fn attach_library(library: *const WaitingLibrary) -> *const FiberExecutor {
    // SAFETY: the caller says so.
    let library = unsafe { library.as_ref() };
    match library {
        Some(library) if library.version == SEAM_VERSION && LIBRARY.set(library).is_ok() => {
            super::enter_fibers();
            &raw const EXECUTOR
        }
        _ => std::ptr::null(),
    }
}

/// What the attached library has for a fiber.
pub(super) enum Attachment {
    Made(AttachedWaiter),
    /// The library is being connected just now.
    NotYet,
    /// No library is attached.
    None,
}

/// A fiber's waiter in the attached library.
#[derive(Debug)]
pub(super) struct AttachedWaiter {
    library: &'static WaitingLibrary,
    waiter: WaiterPointer,
}

// SAFETY: waiters of the library may be used by any thread, as the seam says.
unsafe impl Send for AttachedWaiter {}
// SAFETY: as above.
unsafe impl Sync for AttachedWaiter {}

impl Drop for AttachedWaiter {
    fn drop(&mut self) {
        // SAFETY: the library made it, and it is used no more.
        unsafe { (self.library.drop_waiter)(self.waiter) };
    }
}

/// Makes the waiter of a fiber in the attached library.
pub(super) fn attached_waiter(fiber: &Arc<Fiber>) -> Attachment {
    let Some(library) = LIBRARY.get() else {
        return Attachment::None;
    };
    let pointer = Arc::downgrade(fiber).into_raw();
    // SAFETY: the table is a library's; the pointer is its own from now on.
    let waiter = unsafe { (library.make_waiter)(pointer.cast()) };
    if waiter.is_null() {
        // SAFETY: the library did not take it.
        drop(unsafe { Weak::from_raw(pointer) });
        return Attachment::NotYet;
    }
    Attachment::Made(AttachedWaiter { library, waiter })
}

/// While this lives the calling thread acts for a fiber in the attached library. It stays on its
/// thread, and the library's place at its address.
#[derive(Debug)]
pub(crate) struct EnteredAttached<'a> {
    library: &'static WaitingLibrary,
    place: &'a mut EnteredPlace,
    stays: PhantomData<*const ()>,
}

impl AttachedWaiter {
    pub(super) fn enter<'a>(&self, place: &'a mut EnteredPlace) -> EnteredAttached<'a> {
        // SAFETY: the waiter lives, and the place is dropped with `leave` on this thread.
        unsafe { (self.library.enter)(self.waiter, place) };
        EnteredAttached {
            library: self.library,
            place,
            stays: PhantomData,
        }
    }
}

impl Drop for EnteredAttached<'_> {
    fn drop(&mut self) {
        // SAFETY: `enter` filled the place on this thread.
        unsafe { (self.library.leave)(self.place) };
    }
}

/// Runs what the attached library has for a keypoint.
#[inline]
pub(super) fn attached_keypoint(keypoint: Keypoint) -> bool {
    let Some(library) = LIBRARY.get() else {
        return false;
    };
    let which = match keypoint {
        Keypoint::Switch => KEYPOINT_SWITCH,
        Keypoint::Idle => KEYPOINT_IDLE,
    };
    // SAFETY: the table is a library's, and no fiber runs on this stack.
    unsafe { (library.keypoint)(which) != 0 }
}

/// The fiber of a pointer, while it has not been dropped.
///
/// # Safety
/// The pointer was given to the library, which has not forgotten it.
unsafe fn fiber(pointer: FiberPointer) -> Option<Arc<Fiber>> {
    // SAFETY: the caller says so; the count stays the library's.
    ManuallyDrop::new(unsafe { Weak::from_raw(pointer.cast::<Fiber>()) }).upgrade()
}

unsafe extern "C" fn park(pointer: FiberPointer) {
    // SAFETY: the seam says so.
    if let Some(fiber) = unsafe { fiber(pointer) } {
        fiber.park();
    }
}

unsafe extern "C" fn unpark(pointer: FiberPointer) {
    // SAFETY: the seam says so.
    if let Some(fiber) = unsafe { fiber(pointer) } {
        fiber.unpark();
    }
}

unsafe extern "C" fn yield_now(pointer: FiberPointer) -> u32 {
    if pointer.is_null() {
        if crate::context::with_current(|fiber| fiber.is_some()) {
            crate::yield_now();
        }
        return 0;
    }
    // SAFETY: the seam says so.
    let Some(fiber) = (unsafe { fiber(pointer) }) else {
        return 0;
    };
    if !fiber.scheduler.has_any() {
        return 0;
    }
    fiber.yield_now();
    1
}

unsafe extern "C" fn begins_sleep(_: FiberPointer) {
    super::begins_sleep();
}

unsafe extern "C" fn forget(pointer: FiberPointer) {
    // SAFETY: the count that `attached_waiter` left, once.
    drop(unsafe { Weak::from_raw(pointer.cast::<Fiber>()) });
}
