//! Sleeping on words where loom takes the machine's place (`--cfg loom`): what [`futex`](self)
//! does, among the threads of one model.
//!
//! As in the kernel a lock orders who lies down and who wakes: either the sleeper sees what was
//! written before the call, or the call finds the sleeper. Limits are taken for none, since they
//! are there for lost calls: so a lost one ends the model with all threads blocked.

use crate::facade::{AtomicU32, Mutex, Ordering};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Why a wait came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Woken, or the word had changed already: look again.
    Maybe,
    /// The time was over. Never here.
    Timeout,
}

struct Sleeper {
    address: usize,
    thread: loom::thread::Thread,
    /// Not one of loom's: it changes under the lock, and only says what the end of `park` means.
    woken: Arc<AtomicBool>,
}

loom::lazy_static! {
    /// Who sleeps where, in the order in which they came.
    static ref SLEEPERS: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
}

/// Sleeps while `word` is `expected`, until woken.
pub fn wait(word: &AtomicU32, expected: u32, _: Option<Duration>) -> Wake {
    let woken = Arc::new(AtomicBool::new(false));
    {
        // The kernel compares and enrols as one.
        let mut sleepers = SLEEPERS.lock().unwrap();
        if word.load(Ordering::SeqCst) != expected {
            return Wake::Maybe;
        }
        sleepers.push(Sleeper {
            address: std::ptr::from_ref(word) as usize,
            thread: loom::thread::current(),
            woken: woken.clone(),
        });
    }
    while !woken.load(Ordering::Relaxed) {
        loom::thread::park();
    }
    Wake::Maybe
}

/// Wakes up to `count` sleepers on `word`; returns how many there were.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    wake_at(std::ptr::from_ref(word).cast(), count)
}

/// Wakes sleepers on a word that may be gone by now.
pub(crate) fn wake_at(address: *const u32, count: u32) -> usize {
    let mut woken = 0;
    SLEEPERS.lock().unwrap().retain(|sleeper| {
        let wakes = sleeper.address == address as usize && woken < count as usize;
        if wakes {
            woken += 1;
            sleeper.woken.store(true, Ordering::Relaxed);
            sleeper.thread.unpark();
        }
        !wakes
    });
    woken
}

/// Returns how many sleep on `word`.
#[cfg(test)]
pub(crate) fn sleepers(word: &AtomicU32) -> usize {
    let address = std::ptr::from_ref(word) as usize;
    let sleepers = SLEEPERS.lock().unwrap();
    sleepers
        .iter()
        .filter(|sleeper| sleeper.address == address)
        .count()
}
