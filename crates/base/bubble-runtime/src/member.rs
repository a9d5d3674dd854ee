//! A fiber that is a thread of a bubble for a while.

use crate::runtime::BubbleRuntime;
use garonne_bubbles::ThreadId;
use std::sync::Arc;

/// A thread of a bubble, and the right to be it, which [`Bubble::expect`](crate::Bubble::expect)
/// gives. A fiber that outlives bubbles is the thread from [`Member::enter`] until it drops the
/// value, as it must: nobody else can. Dropped before, the thread ends without having run.
#[derive(Debug)]
#[must_use = "dropping it ends the thread"]
pub struct Member {
    runtime: Arc<BubbleRuntime>,
    thread: ThreadId,
    has_entered: bool,
}

impl Member {
    pub(crate) fn new(runtime: Arc<BubbleRuntime>, thread: ThreadId) -> Self {
        Self {
            runtime,
            thread,
            has_entered: false,
        }
    }

    /// Number of the thread in recordings.
    pub fn number(&self) -> u32 {
        self.thread.0
    }

    /// The fiber that calls this is the thread from now on. Returns when the bubble's scheduler
    /// lets it run. `false`: the caller runs no fiber, or is in a bubble; it goes on as it was.
    pub fn enter(&mut self) -> bool {
        self.has_entered |= garonne_fiber::enter_guest(u64::from(self.thread.0));
        self.has_entered
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let is_caller = garonne_fiber::guest_number() == Some(u64::from(self.thread.0));
        if self.has_entered && is_caller {
            garonne_fiber::leave_guest();
        } else if !self.has_entered {
            let thread = self.thread;
            let ends = self.runtime.change(|state| state.end(thread));
            ends.iter().for_each(|end| end.set());
        }
    }
}
