//! Sleeping on the rank's doorbell, with the stages that make up for writers that use no fence, and
//! the sign of who does not sleep.

use crate::layout;
use garonne_engine::transport::WakeSource;
use garonne_sync::doorbell::{ArmTicket, Doorbell, SleepStage};
use garonne_sync::futex;
use garonne_sync::shm::Segment;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// A rank's doorbell as seen by its own threads.
#[derive(Debug)]
pub(crate) struct DoorbellWake {
    bell: Segment,
    /// The rank's own inbox.
    own: Segment,
    /// The [`SleepStage`] of the next sleep, as a number. A hint: a stale one costs a nap or a
    /// barrier.
    stage: AtomicU8,
}

impl DoorbellWake {
    pub(crate) fn new(bell: Segment, own: Segment) -> Self {
        Self {
            bell,
            own,
            stage: AtomicU8::new(0),
        }
    }

    fn stage(&self) -> SleepStage {
        match self.stage.load(Ordering::Relaxed) {
            0 => SleepStage::Nap,
            1 => SleepStage::Deep,
            _ => SleepStage::Shallow,
        }
    }

    /// Something arrived: the next sleep begins with a nap again.
    #[inline(always)]
    pub(crate) fn moved(&self) {
        self.stage.store(0, Ordering::Relaxed);
    }

    /// Returns whether the last sleep ended without an arrival: time to look after rare things.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stage() != SleepStage::Nap
    }

    /// The bell was armed anew. Before a deep sleep that needs the barrier once more, ahead of the
    /// caller's last poll.
    pub(crate) fn armed(&self) {
        if self.stage() == SleepStage::Deep && !futex::barrier_everywhere() {
            self.stage.store(2, Ordering::Relaxed);
        }
    }
}

impl WakeSource for DoorbellWake {
    fn sleep(&self, ticket: u32, limit: Option<Duration>) {
        self.sleep_among(ticket, limit, &[]);
    }

    fn bell(&self) -> Option<&AtomicU32> {
        Some(self.bell.atomic_u32(0))
    }

    fn sleep_among(&self, ticket: u32, limit: Option<Duration>, others: &[(&AtomicU32, u32)]) {
        let bell = Doorbell::new(self.bell.atomic_u32(0));
        let stage = bell.sleep_among(ArmTicket::from_ticket(ticket), self.stage(), limit, others);
        let next = match stage {
            SleepStage::Nap => 0,
            SleepStage::Deep => 1,
            SleepStage::Shallow => 2,
        };
        self.stage.store(next, Ordering::Relaxed);
    }

    fn wake(&self) {
        Doorbell::new(self.bell.atomic_u32(0)).ring_fenced();
    }

    // Relaxed: a hint, and nothing hangs on its order.
    fn start_polling(&self) {
        self.own
            .atomic_u32(layout::LOOKING)
            .store(1, Ordering::Relaxed);
    }

    fn stop_polling(&self) {
        self.own
            .atomic_u32(layout::LOOKING)
            .store(0, Ordering::Relaxed);
    }
}
