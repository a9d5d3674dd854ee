//! How a rank's progress thread is woken: the words that peers ring, the thread that listens, the
//! core on which it runs, and the transport that rings on behalf of peers that cannot.
//!
//! Part of `locked_engine`. `async_progress` says when the thread is needed.

use super::async_progress::{OFF, RUNNING};
use super::{LockedEngine, lock};
use crate::environment::{Environment, ProgressThreadEvent};
use crate::sys;
use crate::tasks::{self, Tasks};
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_sync::shm::SharedWord;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The words by which a progress thread is called: see `garonne_sync::progress_owner`.
#[derive(Clone, Debug)]
pub(super) struct WakeupWords {
    pub(super) word: SharedWord,
    pub(super) all: SharedWord,
}

impl WakeupWords {
    pub(super) fn call(&self) -> ProgressWakeup<'_> {
        ProgressWakeup::new(&self.word, &self.all)
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// The words to be called by, with somebody who hears the call.
    pub(super) fn wakeup_words(&self) -> Option<&WakeupWords> {
        match self.async_progress.phase.load(Ordering::Acquire) {
            OFF => return None,
            RUNNING if !self.async_progress.ownership.owner.is_deserted() => {}
            _ => {
                let mut tasks = lock(&self.async_progress.tasks);
                if tasks.is_none() || self.async_progress.ownership.owner.is_deserted() {
                    // Before there is one that could retire.
                    self.async_progress.ownership.owner.note_progress_thread();
                    if let Err(error) = self.start_worker(&mut tasks) {
                        self.async_progress.phase.store(OFF, Ordering::Release);
                        self.surroundings
                            .note_progress_thread(ProgressThreadEvent::Refused(error));
                        return None;
                    }
                    self.surroundings
                        .note_progress_thread(ProgressThreadEvent::Started);
                }
                self.async_progress.phase.store(RUNNING, Ordering::Release);
            }
        }
        self.async_progress.wakeup_words.get()
    }

    /// Starts the progress thread. The system may refuse it, with this error number.
    fn start_worker(&self, tasks: &mut Option<Tasks>) -> Result<(), i32> {
        let maker = self.async_progress.worker_maker.get().ok_or(0)?;
        let hired = match tasks {
            Some(tasks) => tasks.hire(),
            None => maker().and_then(|made| tasks.insert(made).hire()),
        };
        hired.map_err(|error| match error {
            tasks::Error::System(_, errno) => errno,
            _ => 0,
        })
    }

    /// From now on peers call. `arm_transport_wakeup` comes after this.
    pub(super) fn arm_wakeup(&self, call: ProgressWakeup<'_>, what: WakeupScope) {
        // Before: who sees the words armed and this still set knows that the transport was asked
        // since.
        self.async_progress
            .transport_armed
            .store(false, Ordering::SeqCst);
        call.arm(what);
    }

    /// Has the transport call the progress thread for what comes from where nobody can call it, if
    /// anything open needs that and it does not do so already. When the progress thread is to look
    /// even if it is not called.
    pub(super) fn arm_transport_wakeup(
        &self,
        shard: &mut Engine<R>,
        what: WakeupScope,
    ) -> Option<Duration> {
        let needed = what == WakeupScope::Everything
            || self
                .async_progress
                .needs_transport_wakeup
                .load(Ordering::SeqCst);
        if !needed || self.async_progress.transport_armed.load(Ordering::SeqCst) {
            return None;
        }
        let limit = shard.transport().arm_progress();
        self.async_progress
            .transport_armed
            .store(true, Ordering::SeqCst);
        limit
    }

    /// The progress thread leaves the program's processor, where there are others for it: the
    /// kernel puts a thread that wakes back to where it was if it finds no idle processor near, and
    /// the program would stand still meanwhile.
    pub(super) fn leave_program_core(&self) {
        let cpu = sys::cpu();
        let cores = self.async_progress.cores.get();
        if cpu == self.async_progress.program_cpu.load(Ordering::Relaxed)
            && let Some(others) = cores.and_then(|cores| cores.without(cpu))
        {
            // Where that is refused it stays.
            let _ = sys::bind(&others);
        }
    }

    /// Whether whoever polls takes its time from the program: the transport hears of it under the
    /// lock under which it is said here.
    pub(super) fn set_patient(&self, patient: bool) {
        let mut shard = self.lock_engine();
        if self
            .async_progress
            .transport_patient
            .swap(patient, Ordering::SeqCst)
            != patient
        {
            shard.transport().poll_in_background(patient);
        }
    }
}
