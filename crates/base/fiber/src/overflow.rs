//! Overflows of stacks: the fiber is named, then the process ends by the signal.

mod sys;

use crate::context;

/// Has overflows reported from now on.
pub(crate) fn install() {
    sys::install();
}

/// A thread that runs fibers needs a stack for the handler.
pub(crate) fn prepare_thread() {
    sys::prepare_thread();
}

/// Reports a fault in the guard of the fiber that the calling thread runs. Called by a signal
/// handler: it allocates nothing. `false`: the fault is something else.
fn report_overflow(address: usize, write: impl Fn(&[u8])) -> bool {
    context::with_current(|fiber| {
        let Some(fiber) = fiber.filter(|fiber| context::is_in_guard(fiber.guard, address)) else {
            return false;
        };
        write(b"garonne: the stack of fiber ");
        fiber.with_name_now(|name| write(name.as_bytes()));
        write(b" overflowed; start it with a larger one (attribute: stack size)\n");
        true
    })
}
