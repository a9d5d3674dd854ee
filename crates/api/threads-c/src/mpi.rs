//! The function by which an MPI library in the same process finds the fibers.

use garonne_sync::waiter_seam::{FiberExecutor, WaitingLibrary};

/// `garonne_fibers_attach_library`: `garonne_sync::waiter_seam` describes it.
///
/// # Safety
/// `library` is null or points to a table that lives for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_fibers_attach_library(
    library: *const WaitingLibrary,
) -> *const FiberExecutor {
    // SAFETY: the caller says so.
    unsafe { garonne_fiber::attach_library(library) }
}
