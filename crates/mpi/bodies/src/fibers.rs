//! Programs with fibers: a call that waits suspends the fiber that makes it, and a context switch
//! is a keypoint for tasks.

use garonne_progress::tasks::{Keypoint, at_keypoint};
use garonne_sync::waiter_seam::{self, KEYPOINT_IDLE};
use std::ffi::CStr;

/// Shared objects that may run fibers.
const RUNTIMES: [&CStr; 2] = [c"libgaronne_threads.so.1", c"libgomp.so.1"];

/// Connects the library to the thread runtime of this process, if there is one.
pub(crate) fn attach() {
    waiter_seam::attach(&RUNTIMES, |keypoint| {
        at_keypoint(match keypoint {
            KEYPOINT_IDLE => Keypoint::Idle,
            _ => Keypoint::Switch,
        })
    });
}
