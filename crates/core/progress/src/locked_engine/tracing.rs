//! Watching: having the engine tell what happens, for a trace.
//!
//! Part of `locked_engine`. While somebody watches, the lock is a real one and small messages have
//! no tracks, so that every operation takes the general way, where it can be told of; the shortest
//! ways ask for neither and pay nothing. Switched by a thread of the program that is in MPI.

use super::{LockedEngine, lock};
use crate::environment::Environment;
use garonne_engine::observe::tracer::OperationTracer;
use garonne_engine::transport::Transport;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Who watches.
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
            self.enter().allow_runs(false);
            self.shard.share();
        }
        *lock(&self.trace_switch.watcher) = watcher.clone();
        self.enter().watch(watcher);
        if !on {
            self.trace_switch.on.store(false, Ordering::SeqCst);
            let alone = !self.shared.load(Ordering::Relaxed)
                && self.async_progress.ownership.owner.is_kept();
            if alone && let Some(promise) = *lock(&self.async_progress.promise) {
                self.shard.elide(promise);
                self.enter().allow_runs(true);
            }
        }
    }

    /// Whether somebody watches.
    #[inline]
    pub(super) fn is_traced(&self) -> bool {
        self.trace_switch.on.load(Ordering::Relaxed)
    }

    /// Who watches.
    #[inline]
    pub(super) fn current_tracer(&self) -> Option<Arc<dyn OperationTracer>> {
        if !self.is_traced() {
            return None;
        }
        lock(&self.trace_switch.watcher).clone()
    }
}
