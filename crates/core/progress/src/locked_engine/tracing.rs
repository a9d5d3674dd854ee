//! Tracing: having the engine report its operations to a tracer.
//!
//! Part of `locked_engine`. While a tracer is set, the lock is a real one and small messages have
//! no send channels. So every operation takes the general path, where it can be reported. The fast
//! paths check for neither and pay nothing. A thread of the program that is in MPI sets the tracer.

use super::{LockedEngine, lock};
use crate::environment::Environment;
use garonne_engine::observe::tracer::OperationTracer;
use garonne_engine::transport::Transport;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Tracer of an engine, if there is one.
#[derive(Debug, Default)]
pub(super) struct TraceSwitch {
    on: AtomicBool,
    watcher: Mutex<Option<Arc<dyn OperationTracer>>>,
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// Tells `tracer` from now on what happens; `None`: nobody any more.
    pub fn watch(&self, watcher: Option<Arc<dyn OperationTracer>>) {
        let on = watcher.is_some();
        if on {
            // Before the lock is a real one, so that nobody elides it again.
            self.trace_switch.on.store(true, Ordering::SeqCst);
            self.lock_engine().allow_slot_batches(false);
            self.lock.share();
        }
        *lock(&self.trace_switch.watcher) = watcher.clone();
        self.lock_engine().set_tracer(watcher);
        if !on {
            self.trace_switch.on.store(false, Ordering::SeqCst);
            let alone =
                !self.lock.is_shared() && self.async_progress.ownership.owner.is_held_by_program();
            if alone && let Some(promise) = *lock(&self.async_progress.promise) {
                self.lock.elide(promise);
                self.lock_engine().allow_slot_batches(true);
            }
        }
    }

    /// Returns whether somebody watches.
    #[inline]
    pub(super) fn is_traced(&self) -> bool {
        self.trace_switch.on.load(Ordering::Relaxed)
    }

    /// Returns who watches.
    #[inline]
    pub(super) fn current_tracer(&self) -> Option<Arc<dyn OperationTracer>> {
        if !self.is_traced() {
            return None;
        }
        lock(&self.trace_switch.watcher).clone()
    }
}
