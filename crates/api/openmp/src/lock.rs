//! Locks in words of the program: OpenMP's locks, named critical regions.

use crate::parker;
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Takes the lock if nobody holds it.
pub fn try_lock(word: &AtomicU32) -> bool {
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Takes the lock. A fiber that waits for it is suspended.
pub fn lock(word: &AtomicU32) {
    if try_lock(word) {
        return;
    }
    while word.swap(CONTENDED, Ordering::Acquire) != FREE {
        let address = std::ptr::from_ref(word) as usize;
        parker::wait_at(address, || word.load(Ordering::SeqCst) == CONTENDED);
    }
}

/// Releases the lock.
pub fn unlock(word: &AtomicU32) {
    if word.swap(FREE, Ordering::SeqCst) == CONTENDED {
        parker::wake_at(std::ptr::from_ref(word) as usize, 1);
    }
}
