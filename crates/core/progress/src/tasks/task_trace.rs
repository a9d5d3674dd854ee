//! Reports runs of tasks to whoever traces this process.
//!
//! There is one trace per process, as the libraries of a process share tasks. While nobody traces,
//! a run pays one load. Nothing depends on what is reported. Turns of a worker on demand are left
//! out here; the engine that they serve reports them.

use super::RunOutcome;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Hears of runs, with a clock at hand. Called by the thread that ran: it neither blocks nor runs
/// tasks.
pub trait RunWatcher: Debug + Send + Sync {
    /// Nanoseconds since a fixed point.
    fn moment(&self) -> u64;
    /// The calling thread ran a task, since that moment, and this is what it said. Of one that
    /// panicked nothing is told.
    fn ran(&self, since: u64, step: RunOutcome);
}

static LISTENS: AtomicBool = AtomicBool::new(false);
static LISTENER: RwLock<Option<Arc<dyn RunWatcher>>> = RwLock::new(None);

/// Tells `tracer` of all runs in this process that begin from now on; `None`: nobody any more.
pub fn watch_runs(watcher: Option<Arc<dyn RunWatcher>>) {
    let listens = watcher.is_some();
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = watcher;
    // Relaxed: who sees it late tells of a run more or less, and the lock orders the rest.
    LISTENS.store(listens, Ordering::Relaxed);
}

/// Runs a task.
#[inline(always)]
pub(super) fn run_traced(run: impl FnOnce() -> RunOutcome) -> RunOutcome {
    if LISTENS.load(Ordering::Relaxed) {
        return tell(run);
    }
    run()
}

#[cold]
fn tell(run: impl FnOnce() -> RunOutcome) -> RunOutcome {
    // Kept for no longer than it takes to copy it: the run may take long.
    let listener = LISTENER
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let since = listener.as_ref().map(|listener| listener.moment());
    let step = run();
    if let (Some(listener), Some(since)) = (listener, since) {
        listener.ran(since, step);
    }
    step
}
