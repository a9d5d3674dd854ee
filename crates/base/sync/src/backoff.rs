//! Back-off of a thread that cancels a task which is being run. The thread spins, yields its core,
//! and then sleeps for ever longer. The runner may be a thread that only runs on idle cores, and it
//! need not know that somebody waits.

use crate::facade::{AtomicU32, relax};

/// Looks of a canceller: as long as a short run takes.
#[cfg(not(any(loom, shuttle)))]
const LOOKS: u32 = 100;
/// After these it sleeps: the runner is another core's, or waits for this one.
#[cfg(not(any(loom, shuttle)))]
const YIELDS: u32 = 110;
/// The first sleep of a canceller in microseconds, about what a wake-up costs; each is twice the
/// one before, up to five milliseconds.
#[cfg(not(any(loom, shuttle)))]
const NAP_US: u64 = 40;
#[cfg(not(any(loom, shuttle)))]
const NAP_DOUBLINGS: u32 = 7;

/// The state of one thread's back-off: how often it has looked.
#[derive(Default)]
pub(crate) struct WaitBackoff {
    looks: u32,
}

impl WaitBackoff {
    pub(crate) fn rest(&mut self, word: &AtomicU32, seen: u32) {
        self.looks = self.looks.saturating_add(1);
        #[cfg(any(loom, shuttle))]
        {
            let _ = (word, seen);
            relax();
        }
        #[cfg(not(any(loom, shuttle)))]
        if self.looks <= LOOKS {
            relax();
        } else if self.looks <= YIELDS {
            std::thread::yield_now();
        } else {
            let nap = NAP_US << (self.looks - YIELDS).min(NAP_DOUBLINGS);
            crate::futex::wait(word, seen, Some(std::time::Duration::from_micros(nap)));
        }
    }
}
