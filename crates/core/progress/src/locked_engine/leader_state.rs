//! What is known of the leader of a rank's waiters, beside who it is.
//!
//! Part of `locked_engine`. Leader and followers write these words when one of them parks, leads or
//! leaves, and never while a small message is sent or received by a rank's only thread.

use super::multi_wait::NO_PATTERN;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Facts about the leader. The locked engine owns it; whoever leads writes it.
#[derive(Debug)]
pub(super) struct LeaderState {
    /// The leader sleeps or is about to: what other threads do must wake it.
    sleeps: AtomicBool,
    /// A thread that the leader woke got the leader's core, when that was last asked.
    core_contended: AtomicBool,
    /// Number of parks when a thread last received as the only one that waits.
    parked_before: AtomicU32,
    /// Times that a thread relieved a leader parked on the doorbell (modulo 2^32).
    reliefs: AtomicU32,
    /// Word of the pattern of the blocking receive in which the present or last leader is;
    /// [`NO_PATTERN`]: it was another wait.
    pattern: AtomicU64,
}

impl LeaderState {
    pub(super) fn new() -> Self {
        Self {
            sleeps: AtomicBool::new(false),
            core_contended: AtomicBool::new(false),
            parked_before: AtomicU32::new(0),
            reliefs: AtomicU32::new(0),
            pattern: AtomicU64::new(NO_PATTERN),
        }
    }

    /// Tells whether the leader sleeps or is about to. The caller has counted an event before.
    #[inline]
    pub(super) fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::SeqCst)
    }

    /// The leader is about to sleep, and looks at the event count afterwards; or it is awake.
    #[inline]
    pub(super) fn set_sleeps(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
    }

    /// Tells whether a thread that the leader woke got the leader's core lately.
    #[inline]
    pub(super) fn is_core_contended(&self) -> bool {
        self.core_contended.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_core_contended(&self, contended: bool) {
        self.core_contended.store(contended, Ordering::Relaxed);
    }

    /// Tells whether nobody has parked since this was last asked; `parked`: how often one has.
    #[inline]
    pub(super) fn has_nobody_parked_since(&self, parked: u32) -> bool {
        let same = self.parked_before.load(Ordering::Relaxed) == parked;
        if !same {
            self.parked_before.store(parked, Ordering::Relaxed);
        }
        same
    }

    /// Counts a thread that relieved a leader parked on the doorbell.
    #[inline]
    pub(super) fn count_relief(&self) {
        self.reliefs.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often that happened (modulo 2^32).
    #[inline]
    pub(super) fn reliefs(&self) -> u32 {
        self.reliefs.load(Ordering::Relaxed)
    }

    /// Notes the pattern of the receive in which the leader is blocked, or [`NO_PATTERN`].
    #[inline]
    pub(super) fn set_pattern(&self, pattern: u64) {
        self.pattern.store(pattern, Ordering::Relaxed);
    }

    /// Tells whether the leader is blocked in a receive, of the pattern for which `is_own` answers
    /// true.
    #[inline]
    pub(super) fn is_blocked_in_receive(&self, is_own: impl FnOnce(u64) -> bool) -> bool {
        let pattern = self.pattern.load(Ordering::Relaxed);
        pattern != NO_PATTERN && is_own(pattern)
    }
}
