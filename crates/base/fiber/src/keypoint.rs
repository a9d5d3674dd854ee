//! Keypoints: moments at which a worker runs what moves communication, and for whom it acts.
//!
//! A context switch and a worker without work are keypoints. What runs there is registered once
//! for the process. From then on a worker enters each fiber as a waiter ([`garonne_sync::waiter`]),
//! so that a call of the library that would wait suspends its fiber.

mod sys;

use crate::context::Fiber;
use garonne_sync::waiter::{self, EnteredWaiter, Waiter, WaiterState};
use garonne_sync::waiter_seam::EnteredPlace;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
pub use sys::attach_library;
use sys::{AttachedWaiter, Attachment, EnteredAttached};

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

    fn begins_sleep(&self) {
        begins_sleep();
    }
}

/// The fiber that calls this is about to sleep in the kernel: another thread takes its worker's
/// seat, unless it is the only fiber.
fn begins_sleep() {
    let is_alone =
        crate::context::with_current(|fiber| fiber.is_none_or(|fiber| fiber.scheduler.alive() < 2));
    if !is_alone {
        crate::context::on_worker_stack(crate::runtime::leave_seat);
    }
}

/// A fiber as a waiter of whichever library waits.
#[derive(Debug)]
enum AnyWaiter {
    /// A waiter of this program's own copy of the library.
    Own(Arc<FiberWaiter>),
    /// A waiter of a library that is a shared object of its own.
    Attached(AttachedWaiter),
}

/// Place of a fiber's waiter, made when it first runs while waits suspend.
#[derive(Debug, Default)]
pub(crate) struct WaiterPlace(OnceLock<AnyWaiter>);

/// While this lives the calling worker acts for a fiber.
#[derive(Debug)]
#[allow(dead_code, reason = "they end the act when they are dropped")]
pub(crate) enum Entered<'a> {
    Own(EnteredWaiter),
    Attached(EnteredAttached<'a>),
}

/// The calling worker acts for this fiber while the value lives, where waits suspend. `place` is
/// for what an attached library keeps meanwhile.
#[inline]
pub(crate) fn enter<'a>(fiber: &Arc<Fiber>, place: &'a mut EnteredPlace) -> Option<Entered<'a>> {
    if !ENTERS.load(Ordering::Acquire) {
        return None;
    }
    enter_known(fiber, place)
}

fn enter_known<'a>(fiber: &Arc<Fiber>, place: &'a mut EnteredPlace) -> Option<Entered<'a>> {
    let known = &fiber.waiter.0;
    let waiter = match known.get() {
        Some(waiter) => waiter,
        None => {
            let fresh = match sys::attached_waiter(fiber) {
                Attachment::Made(waiter) => AnyWaiter::Attached(waiter),
                Attachment::NotYet => return None,
                Attachment::None => AnyWaiter::Own(Arc::new(FiberWaiter {
                    state: WaiterState::new(),
                    fiber: Arc::downgrade(fiber),
                })),
            };
            known.get_or_init(|| fresh)
        }
    };
    Some(match waiter {
        AnyWaiter::Own(waiter) => Entered::Own(waiter::enter(waiter.clone())),
        AnyWaiter::Attached(waiter) => Entered::Attached(waiter.enter(place)),
    })
}

/// A library is attached from now on.
fn enter_fibers() {
    ENTERS.store(true, Ordering::Release);
}

/// A worker has switched.
#[inline]
pub(crate) fn switched() {
    if ENTERS.load(Ordering::Relaxed) {
        at(Keypoint::Switch);
    }
}

/// A worker has nothing to run. `true`: the hook did nothing, or there is none.
pub(crate) fn idle() -> bool {
    !at(Keypoint::Idle)
}

fn at(keypoint: Keypoint) -> bool {
    let own = HOOK.get().is_some_and(|hook| hook(keypoint));
    own | sys::attached_keypoint(keypoint)
}
