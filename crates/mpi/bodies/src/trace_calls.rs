//! Tracing of the program's MPI calls, and the refusal of calls in forked children.
//!
//! Every wrapper reads one word ([`needs_check`]). Normally the word is in the node's shared
//! segment and is zero while nobody traces. While this rank is traced, or in a forked child, the
//! wrapper reads a word of this process that is one. Only then does the wrapper ask
//! [`wrapper_action`]. A traced wrapper calls itself once more between the two records. So tracing
//! costs other calls nothing, and the body sees the same arguments.

use crate::call::CallId;
use crate::init_state::is_forked_child;
use crate::rank_context::RankContext;
use crate::this_rank;
use garonne_engine::api::{CallOrigin, TypeDigest};
use garonne_engine::observe::tracer::OperationTracer;
use garonne_progress::tasks::watch_runs;
use garonne_rank::trace_recorder::{TraceRecorder, TraceRequest};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

static TRACE_OFF: AtomicU32 = AtomicU32::new(0);
static ALWAYS_CHECK: AtomicU32 = AtomicU32::new(1);

/// Tracing of one rank's calls.
pub(crate) struct CallTracing {
    /// The word that wrappers read.
    checked_word: AtomicPtr<AtomicU32>,
    tracer: OnceLock<Arc<TraceRecorder>>,
}

impl CallTracing {
    /// Nobody traces.
    pub const fn new() -> Self {
        Self {
            checked_word: AtomicPtr::new((&raw const TRACE_OFF).cast_mut()),
            tracer: OnceLock::new(),
        }
    }

    fn check_word(&self, word: &AtomicU32) {
        self.checked_word
            .store(std::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
    }
}

#[inline(always)]
fn tracing() -> &'static CallTracing {
    &RankContext::current().tracing
}

thread_local! {
    /// The wrapper that was just recorded is about to call itself.
    static RECORDED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the call may be traced or in a forked child. Two plain loads.
#[inline(always)]
pub(crate) fn needs_check() -> bool {
    // SAFETY: one of the two words above, or the one in the shared segment, which the tracer keeps
    // mapped for ever.
    unsafe { (*tracing().checked_word.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0 }
}

/// The action of a wrapper before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrapperAction {
    /// Run the body.
    Proceed,
    /// Refuse the call, because this process is a forked child.
    RefuseForked,
    /// Call itself once more, and then [`record_exit`].
    Trace,
}

/// Starts to follow the trace request word of this rank's job.
pub(crate) fn start(tracer: &Arc<TraceRecorder>) {
    let tracing = tracing();
    let known = tracing.tracer.get_or_init(|| tracer.clone());
    tracing.check_word(if known.is_on() {
        &ALWAYS_CHECK
    } else {
        known.word()
    });
}

/// Makes all wrappers of the current rank refuse their calls from now on: this process is a forked
/// child.
pub(crate) fn in_child() {
    tracing().check_word(&ALWAYS_CHECK);
}

/// Decides what the wrapper of `call` does before its body.
#[cold]
#[inline(never)]
pub(crate) fn wrapper_action(call: CallId) -> WrapperAction {
    if is_forked_child() {
        return WrapperAction::RefuseForked;
    }
    if RECORDED.take() {
        return WrapperAction::Proceed;
    }
    let tracing = tracing();
    let Some(tracer) = tracing
        .tracer
        .get()
        .filter(|_| this_rank::engine().is_some())
    else {
        return WrapperAction::Proceed;
    };
    let now = tracer.now();
    let wanted = tracer.wanted(now) == TraceRequest::Yes;
    if wanted != tracer.is_on() {
        tracer.switch(wanted, || {
            this_rank::set_watcher(if wanted { Some(tracer.clone()) } else { None });
            watch_runs(if wanted { Some(tracer.clone()) } else { None });
            tracing.check_word(if wanted { &ALWAYS_CHECK } else { tracer.word() });
        });
    }
    if !tracer.is_on() {
        return WrapperAction::Proceed;
    }
    let origin = CallOrigin {
        call: call.0,
        datatype: 0,
        digest: TypeDigest::NONE,
        site: crate::entry::call_site(),
    };
    tracer.enter(origin, now);
    RECORDED.set(true);
    WrapperAction::Trace
}

/// Records the end of a call that throws instead of returning, if the call was recorded.
pub(crate) fn record_exit_by_exception(call: CallId) {
    if needs_check() {
        record_exit(call);
    }
}

/// Records the end of a recorded call.
#[cold]
#[inline(never)]
pub(crate) fn record_exit(call: CallId) {
    if let Some(tracer) = tracing().tracer.get() {
        tracer.leave(call.0);
    }
}
