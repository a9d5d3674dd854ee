//! One call of which the [`PathTuner`] of its segment chooses the path.

use super::shm_sync::{ShmSync, TimeSpan};
use crate::error::{Class, Result};
use garonne_coll::autotune::{AvailablePaths, CallClass, DataPath, PATHS, PathTuner};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One call that takes a chosen path: [`TunedCall::decide`], `begin`, the data, `end`, which
/// records the time of a timed call.
#[derive(Debug)]
pub(super) struct TunedCall {
    class: (CallClass, AvailablePaths),
    path: usize,
    timed: bool,
    begin: Option<u64>,
}

impl TunedCall {
    /// Decides for a call; every member comes to the same.
    pub fn decide(sync: &ShmSync<'_>, sort: CallClass, open: AvailablePaths) -> Self {
        let (way, timed) = lock(&sync.attachment.tuner).decide(sort, open);
        // Members that were not of one mind would wait for each other: then they differ in the
        // words that they meet with.
        sync.mix_into_word(way as u32 * 2 + u32::from(timed) + 1);
        Self {
            class: (sort, open),
            path: way,
            timed,
            begin: None,
        }
    }

    pub fn way(&self) -> DataPath {
        PATHS[self.path]
    }

    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// To be called before the call's data moves: in a timed one all meet.
    ///
    /// # Errors
    /// As [`ShmSync::barrier`].
    pub fn begin(&mut self, sync: &ShmSync<'_>) -> Result<()> {
        if self.timed {
            sync.compare_signatures()?;
            self.begin = Some(TimeSpan::now());
        }
        Ok(())
    }

    /// The call came to this outcome, which is given back. Also one who failed meets the others.
    ///
    /// # Errors
    /// The outcome's; as [`ShmSync::barrier`].
    pub fn end<T>(self, sync: &ShmSync<'_>, outcome: Result<T>) -> Result<T> {
        // Then its first meeting failed, for all.
        if matches!(&outcome, Err(error) if error.class == Class::NotSame) {
            return outcome;
        }
        let took = match self.begin {
            Some(begin) => sync.measure_span(outcome.is_ok().then(|| TimeSpan {
                begin,
                end: TimeSpan::now(),
            }))?,
            None => None,
        };
        lock(&sync.attachment.tuner).record(self.class, self.path, took);
        outcome
    }
}

fn lock(ways: &Mutex<PathTuner>) -> MutexGuard<'_, PathTuner> {
    ways.lock().unwrap_or_else(PoisonError::into_inner)
}
