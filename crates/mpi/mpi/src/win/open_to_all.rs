//! What a call may find out of a window's open epochs without taking their lock.

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

/// Whether all targets of a window, or one of them, are open to this process.
///
/// Written under the lock of the epochs after each change of them, by the process that reads it.
#[derive(Debug)]
pub(super) struct OpenToAll {
    all: AtomicU8,
    /// A target that is locked by itself; negative: none.
    one: AtomicI32,
}

impl Default for OpenToAll {
    fn default() -> Self {
        Self {
            all: AtomicU8::new(0),
            one: AtomicI32::new(-1),
        }
    }
}

impl OpenToAll {
    /// All targets may be accessed.
    const ACCESS: u8 = 1;
    /// All targets are locked.
    const LOCKS: u8 = 2;

    /// Notes whether a fence, and whether locks of all targets, have opened an epoch, and a target
    /// that is locked by itself.
    pub fn tell(&self, fenced: bool, locked: bool, one: Option<i32>) {
        let locks = if locked { Self::LOCKS } else { 0 };
        let access = if fenced || locked { Self::ACCESS } else { 0 };
        self.all.store(locks | access, Ordering::Relaxed);
        self.one.store(one.unwrap_or(-1), Ordering::Relaxed);
    }

    /// Returns whether a target, whose rank is not negative, may be accessed. `false` says nothing.
    #[inline]
    pub fn allows_access(&self, rank: i32) -> bool {
        self.all.load(Ordering::Relaxed) & Self::ACCESS != 0
            || self.one.load(Ordering::Relaxed) == rank
    }

    /// Returns whether a target, whose rank is not negative, is locked. `false` says nothing.
    #[inline]
    pub fn locks(&self, rank: i32) -> bool {
        self.has_locks() || self.one.load(Ordering::Relaxed) == rank
    }

    /// Returns whether all targets are locked. `false` says nothing.
    #[inline]
    pub fn has_locks(&self) -> bool {
        self.all.load(Ordering::Relaxed) & Self::LOCKS != 0
    }
}
