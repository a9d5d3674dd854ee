//! Requests to the event thread: run a queue at once, start a worker, let the timer look. The event
//! thread may sleep, or not exist yet.
//!
//! Any thread may post a request, a signal handler among them: no lock is taken and nothing
//! allocated. Whoever starts threads, and the event thread itself, reads the requests when they are
//! done with their current work: SYNC(wishes-starting), see `scheduler`. Bounded by areas and
//! workers.

use crate::facade::{AtomicBool, Ordering};
use garonne_sync::idle_set::AtomicBitmap;

/// Requests to the event thread, as bitmaps. The scheduler owns them.
#[derive(Debug)]
pub(crate) struct EventRequests {
    urgent: AtomicBitmap,
    areas: usize,
    starts: AtomicBitmap,
    homes: usize,
    timer: AtomicBool,
}

fn any(bits: &AtomicBitmap, len: usize) -> bool {
    (0..len.div_ceil(64)).any(|word| bits.word(word) != 0)
}

/// Calls `f` for each bit that it clears, as long as that answers `true`.
fn take(bits: &AtomicBitmap, len: usize, mut f: impl FnMut(usize) -> bool) -> bool {
    (0..len).all(|bit| {
        let taken = bits.word(bit / 64) >> (bit % 64) & 1 == 1 && bits.clear(bit);
        !taken || f(bit)
    })
}

impl EventRequests {
    /// For this many queues, and homes of workers.
    pub(crate) fn new(areas: usize, homes: usize) -> Self {
        Self {
            urgent: AtomicBitmap::new(areas),
            areas,
            starts: AtomicBitmap::new(homes),
            homes,
            timer: AtomicBool::new(false),
        }
    }

    /// A queue is to be run at once, whatever computes.
    pub(crate) fn run(&self, area: usize) {
        self.urgent.set(area);
    }

    /// The worker of a home is to be started. `false`: somebody wished for that already.
    pub(crate) fn start(&self, home: usize) -> bool {
        self.starts.set(home)
    }

    /// The timer is to look after what waits.
    pub(crate) fn time(&self) {
        self.timer.store(true, Ordering::SeqCst);
    }

    /// Returns whether something is wished for that only the event thread does.
    pub(crate) fn needs_event_thread(&self) -> bool {
        self.timer.load(Ordering::SeqCst) || any(&self.urgent, self.areas)
    }

    /// Returns whether a worker is to be started.
    pub(crate) fn needs_worker_start(&self) -> bool {
        any(&self.starts, self.homes)
    }

    /// Until `f` answers `false`, which is returned then.
    pub(crate) fn take_urgent(&self, f: impl FnMut(usize) -> bool) -> bool {
        take(&self.urgent, self.areas, f)
    }

    pub(crate) fn take_starts(&self, mut f: impl FnMut(usize)) {
        take(&self.starts, self.homes, |home| {
            f(home);
            true
        });
    }

    pub(crate) fn take_timer(&self) -> bool {
        self.timer.load(Ordering::SeqCst) && self.timer.swap(false, Ordering::SeqCst)
    }
}
