//! Keypoints: moments at which a worker runs what moves communication, and for whom it acts.
//!
//! A context switch and a worker without work are keypoints. What runs there is registered once
//! for the process. From then on a worker enters each fiber as a waiter ([`garonne_sync::waiter`]),
//! so that a call of the library that would wait suspends its fiber.

use crate::context::Fiber;
use garonne_sync::waiter::{self, EnteredWaiter, Waiter, WaiterState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A moment at which communication moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keypoint {
    /// A worker switches between two fibers.
    Switch,
    /// A worker has nothing to run.
    Idle,
}

static HOOK: OnceLock<fn(Keypoint) -> bool> = OnceLock::new();
static ENTERS: AtomicBool = AtomicBool::new(false);

/// Has `hook` run at every keypoint, on the worker's own stack. It must be short and must not
/// block;
/// it says whether it did anything. The first one that is set stays; `false`: there was one.
pub fn set_keypoint(hook: fn(Keypoint) -> bool) -> bool {
    let is_first = HOOK.set(hook).is_ok();
    ENTERS.store(true, Ordering::Release);
    is_first
}

/// Has calls of the library that wait suspend the fiber that makes them, and not its worker.
pub fn suspend_in_library_waits() {
    ENTERS.store(true, Ordering::Release);
}

/// A fiber as a waiter of the library.
#[derive(Debug)]
struct FiberWaiter {
    state: WaiterState,
    fiber: std::sync::Weak<Fiber>,
}

impl Waiter for FiberWaiter {
    fn state(&self) -> &WaiterState {
        &self.state
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        if let Some(fiber) = self.fiber.upgrade() {
            while word.load(Ordering::SeqCst) == expected {
                fiber.park();
            }
        }
    }

    fn unpark(&self, _: &AtomicU32) {
        if let Some(fiber) = self.fiber.upgrade() {
            fiber.unpark();
        }
    }

    fn yield_now(&self) -> bool {
        let Some(fiber) = self.fiber.upgrade() else {
            return false;
        };
        if !fiber.scheduler.has_any() {
            return false;
        }
        fiber.yield_now();
        true
    }
}

/// Place of a fiber's waiter, made when it first runs while waits suspend.
#[derive(Debug, Default)]
pub(crate) struct WaiterPlace(OnceLock<Arc<FiberWaiter>>);

/// The calling worker acts for this fiber while the value lives, where waits suspend.
#[inline]
pub(crate) fn enter(fiber: &Arc<Fiber>) -> Option<EnteredWaiter> {
    if !ENTERS.load(Ordering::Relaxed) {
        return None;
    }
    let waiter = fiber.waiter.0.get_or_init(|| {
        Arc::new(FiberWaiter {
            state: WaiterState::new(),
            fiber: Arc::downgrade(fiber),
        })
    });
    Some(waiter::enter(waiter.clone()))
}

/// A worker has switched.
#[inline]
pub(crate) fn switched() {
    if let Some(hook) = HOOK.get() {
        hook(Keypoint::Switch);
    }
}

/// A worker has nothing to run. `true`: the hook did nothing, or there is none.
pub(crate) fn idle() -> bool {
    HOOK.get().is_none_or(|hook| !hook(Keypoint::Idle))
}
