//! Waits with an end: who is to look at the clock, and when.
//!
//! Added and removed by waiters, expired by the monitor, or by the loop of a simulation. Bounded by
//! the fibers that wait.

use crate::wait_queue::WaitHandle;
use garonne_sync::mutex::lock;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Name of a timer: its time, and a number.
pub(crate) type TimerKey = (u64, u64);

#[derive(Debug, Default)]
struct TimerTable {
    next: u64,
    waiting: BTreeMap<TimerKey, WaitHandle>,
    /// The monitor has something to look at other than timers.
    ticks: bool,
}

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    table: Mutex<TimerTable>,
    changed: Condvar,
}

impl Timers {
    /// Unparks `waiter` when the clock shows `deadline`.
    pub(crate) fn add(&self, deadline: u64, waiter: WaitHandle) -> TimerKey {
        let mut table = lock(&self.table);
        table.next += 1;
        let key = (deadline, table.next);
        let is_first = table
            .waiting
            .first_key_value()
            .is_none_or(|(first, _)| key < *first);
        table.waiting.insert(key, waiter);
        if is_first {
            self.changed.notify_one();
        }
        key
    }

    pub(crate) fn remove(&self, key: TimerKey) {
        lock(&self.table).waiting.remove(&key);
    }

    /// Time of the first timer.
    pub(crate) fn first(&self) -> Option<u64> {
        lock(&self.table)
            .waiting
            .first_key_value()
            .map(|(key, _)| key.0)
    }

    /// Unparks everybody whose time has come.
    pub(crate) fn expire(&self, now: u64) {
        loop {
            let mut table = lock(&self.table);
            let due = table
                .waiting
                .first_entry()
                .filter(|first| first.key().0 <= now);
            let Some(due) = due.map(|due| due.remove()) else {
                return;
            };
            drop(table);
            due.unpark();
        }
    }

    /// Has the monitor look at workers too, or not.
    pub(crate) fn set_ticks(&self, ticks: bool) {
        lock(&self.table).ticks = ticks;
        self.changed.notify_one();
    }

    /// Sleeps until the first timer's time, or for a tick where there are ticks.
    pub(crate) fn sleep(&self, now: impl Fn() -> u64, tick: Duration) {
        let table = lock(&self.table);
        let first = table.waiting.first_key_value().map(|(key, _)| key.0);
        let until_first = first.map(|first| Duration::from_nanos(first.saturating_sub(now())));
        let limit = match (until_first, table.ticks) {
            (Some(time), true) => Some(time.min(tick)),
            (None, true) => Some(tick),
            (limit, false) => limit,
        };
        match limit {
            Some(Duration::ZERO) => {}
            Some(limit) => drop(
                self.changed
                    .wait_timeout(table, limit)
                    .unwrap_or_else(PoisonError::into_inner),
            ),
            None => drop(
                self.changed
                    .wait(table)
                    .unwrap_or_else(PoisonError::into_inner),
            ),
        }
    }
}
