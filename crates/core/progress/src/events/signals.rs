//! Which subscribers of this process listen to which signals. The kernel reports a signal once, to
//! whoever reads it first, and all other subscribers must hear of it, too.
//!
//! Each watch has a descriptor of its own, which wakes its task. The first task to run reads all
//! pending signals for everybody, notes them for each subscriber, and wakes their tasks, also those
//! of other [`Tasks`](crate::tasks::Tasks). So no watch depends on the thread, the place or the
//! life of another.

use crate::sys;
use crate::tasks::{AnyTask, Scheduler};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

static LISTENERS: Mutex<SignalListeners> = Mutex::new(SignalListeners {
    next: 0,
    all: BTreeMap::new(),
});

struct SignalListeners {
    next: u64,
    all: BTreeMap<u64, SignalListener>,
}

struct SignalListener {
    signals: Vec<i32>,
    /// What came and how often. A signal of the ordinary kind that comes again before it was told
    /// of counts once, as in the kernel; the others are queued there, and counted here.
    told: BTreeMap<i32, u32>,
    /// Whose task is to be poked. Weak: the task owns the ear.
    task: (Weak<Scheduler>, Weak<AnyTask>),
}

/// The list, at a moment in which no thread forks: a forked child that makes tasks of its own finds
/// it unlocked.
fn with<T>(f: impl FnOnce(&mut SignalListeners) -> T) -> T {
    sys::while_nobody_forks(|| f(&mut LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// A watch's place in the list, which is left when this is dropped.
#[derive(Debug)]
pub(super) struct SignalSubscription(u64);

impl SignalSubscription {
    /// One that hears nothing yet.
    pub(super) fn new() -> Self {
        Self(with(|listeners| {
            listeners.next += 1;
            listeners.next
        }))
    }

    /// The number by which it begins to listen.
    pub(super) fn number(&self) -> u64 {
        self.0
    }

    /// Reads what waits in a descriptor, for all, and returns what there is for this one: each
    /// signal, and how often it came. Pokes the others. `None`: it hears nothing any more.
    pub(super) fn hear(&self, fd: BorrowedFd<'_>) -> Option<BTreeMap<i32, u32>> {
        let (mine, others) = with(|listeners| {
            let mut others = BTreeMap::new();
            // Poked once more after it has left: what waits now is for the next watch.
            if !listeners.all.contains_key(&self.0) {
                return (None, others);
            }
            sys::read_signals(fd, |signal| {
                for (number, listener) in &mut listeners.all {
                    if listener.signals.contains(&signal) {
                        listener.note(signal);
                        others.insert(*number, listener.task.clone());
                    }
                }
            });
            others.remove(&self.0);
            let mine = listeners.all.get_mut(&self.0);
            (mine.map(|mine| std::mem::take(&mut mine.told)), others)
        });
        // Outside the lock: where a queue is full this thread runs it.
        for (scheduler, task) in others.into_values() {
            if let (Some(scheduler), Some(task)) = (scheduler.upgrade(), task.upgrade()) {
                super::deliver(&scheduler, &task);
            }
        }
        mine
    }

    /// Hears nothing from now on.
    pub(super) fn leave(&self) {
        with(|listeners| listeners.all.remove(&self.0));
    }
}

impl Drop for SignalSubscription {
    fn drop(&mut self) {
        self.leave();
    }
}

impl SignalListener {
    fn note(&mut self, signal: i32) {
        let times = self.told.entry(signal).or_default();
        *times = match sys::is_queued(signal) {
            true => times.saturating_add(1),
            false => 1,
        };
    }
}

/// From now on the ear of this number hears of these signals, and `task` is poked for it: to be
/// called before its descriptor is watched.
pub(super) fn subscribe(
    number: u64,
    signals: &[i32],
    scheduler: &Arc<Scheduler>,
    task: &Arc<AnyTask>,
) {
    let listener = SignalListener {
        signals: signals.to_vec(),
        told: BTreeMap::new(),
        task: (Arc::downgrade(scheduler), Arc::downgrade(task)),
    };
    with(|listeners| listeners.all.insert(number, listener));
}
