//! What a call may find out of a window's open epochs without taking their lock.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether all targets of a window are open to this process.
///
/// Written under the lock of the epochs after each change of them, by the process that reads it.
#[derive(Debug, Default)]
pub(super) struct OpenToAll(AtomicU8);

impl OpenToAll {
    /// All targets may be accessed.
    const ACCESS: u8 = 1;
    /// All targets are locked.
    const LOCKS: u8 = 2;

    /// Notes whether a fence, and whether locks of all targets, have opened an epoch.
    pub fn tell(&self, fenced: bool, locked: bool) {
        let locks = if locked { Self::LOCKS } else { 0 };
        let access = if fenced || locked { Self::ACCESS } else { 0 };
        self.0.store(locks | access, Ordering::Relaxed);
    }

    /// Returns whether all targets may be accessed. `false` says nothing.
    #[inline]
    pub fn allows_access(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Self::ACCESS != 0
    }

    /// Returns whether all targets are locked. `false` says nothing.
    #[inline]
    pub fn has_locks(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Self::LOCKS != 0
    }
}
