//! The function by which an MPI library in the same process finds the threads of teams.

use garonne_sync::waiter_seam::{FiberExecutor, WaitingLibrary};

/// `garonne_fibers_attach_library`: `garonne_sync::waiter_seam` describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_fibers_attach_library(
    library: *const WaitingLibrary,
) -> *const FiberExecutor {
    // SAFETY: the library passes a table that lives for ever.
    unsafe { garonne_fiber::attach_library(library) }
}
