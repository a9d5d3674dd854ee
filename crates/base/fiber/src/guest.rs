//! Fibers that another scheduler places, such as one of bubbles.
//!
//! A guest scheduler owns the right to run its fibers while they are ready. Workers take turns
//! between their run queues and the guest, and tell it when a fiber blocks or ends. There is one
//! guest for each machine on which fibers run: the process's workers, or a simulation.

use crate::context::{Fiber, Runnable};
use crate::scheduler::Scheduler;
use crate::spawn::FiberHandle;
use garonne_topology::Tree;
use std::any::Any;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Number of a fiber that no guest places.
pub(crate) const NO_GUEST: u64 = u64::MAX;

/// A fiber that is ready, and the right to run it. Dropped, the fiber never runs again.
#[derive(Debug)]
#[must_use = "a fiber that is dropped never runs"]
pub struct ReadyFiber(pub(crate) Runnable);

impl ReadyFiber {
    /// The fiber.
    pub fn handle(&self) -> FiberHandle {
        FiberHandle(self.0.fiber().clone())
    }

    /// Number by which the guest knows the fiber.
    pub fn number(&self) -> u64 {
        self.0.fiber().guest_number.load(Ordering::Relaxed)
    }

    /// Gives the fiber to the guest, under this number.
    pub fn set_number(&self, number: u64) {
        let fiber = self.0.fiber();
        fiber.guest_number.store(number, Ordering::Relaxed);
    }

    /// Ends a fiber that never ran. What its function holds is dropped here.
    pub fn discard(self) {
        self.0.discard();
    }

    /// Queues a fiber that no guest places.
    pub fn start(self) {
        let scheduler = self.0.fiber().scheduler.clone();
        scheduler.queue(self.0);
    }
}

/// Holds its fibers while they are ready, and chooses which of them a worker runs next.
///
/// Workers call it from any thread, and also under locks of those that wake fibers. So no method
/// waits, or calls anything of this crate but [`ReadyFiber`] and [`GuestHost`].
pub trait GuestScheduler: Any + Debug + Send + Sync {
    /// Takes a fiber that is ready: it was woken, or let others run. Returns the area whose workers
    /// may run it, by its number in the machine's tree; `None`: any worker.
    fn ready(&self, fiber: ReadyFiber) -> Option<usize>;

    /// Gives a worker the fiber that it runs next.
    fn next(&self, worker: usize) -> Option<ReadyFiber>;

    /// Tells whether it holds any fiber.
    fn has_ready(&self) -> bool;

    /// The fiber of this number waits from now on, or runs where the guest has no say. It may have
    /// been told before.
    fn blocks(&self, number: u64);

    /// The fiber of this number has ended.
    fn ended(&self, number: u64);

    /// Some time has passed.
    fn tick(&self);
}

/// What a guest knows of the workers that it serves.
#[derive(Clone, Debug)]
pub struct GuestHost(Weak<Scheduler>);

impl GuestHost {
    /// The machine whose areas have run queues.
    pub fn machine(&self) -> Tree {
        let scheduler = self.0.upgrade();
        scheduler.map_or_else(|| Tree::regular(1, 1, 1, 1), |it| it.tree.clone())
    }

    /// CPU of each worker.
    pub fn worker_cpus(&self) -> Vec<u32> {
        let scheduler = self.0.upgrade();
        scheduler.map_or_else(Vec::new, |scheduler| scheduler.cpus.to_vec())
    }

    /// Time on the workers' clock, in ns.
    pub fn now(&self) -> u64 {
        self.0.upgrade().map_or(0, |scheduler| scheduler.now())
    }

    /// Wakes a worker that may run what is new in this area; `None`: any worker. Never under a lock
    /// that the guest's methods take.
    pub fn wake(&self, area: Option<usize>) {
        if let Some(scheduler) = self.0.upgrade() {
            scheduler.wake_for(area);
        }
    }
}

/// The guest of the machine on which the caller's fibers run. `make` makes it if there is none.
pub fn guest(make: impl FnOnce(GuestHost) -> Arc<dyn GuestScheduler>) -> Arc<dyn GuestScheduler> {
    let scheduler = crate::runtime::scheduler();
    let host = || GuestHost(Arc::downgrade(&scheduler));
    scheduler.guest.get_or_init(|| make(host())).clone()
}

/// Number by which the guest knows the fiber that calls this; `None`: it does not.
pub fn guest_number() -> Option<u64> {
    let number = crate::context::with_current(|fiber: Option<&Fiber>| {
        fiber.map(|fiber| fiber.guest_number.load(Ordering::Relaxed))
    });
    number.filter(|number| *number != NO_GUEST)
}

/// Makes the fiber that calls this a guest's under this number. It returns when the guest lets it
/// run. `false`: the caller runs no fiber, or one that a guest places already.
pub fn enter_guest(number: u64) -> bool {
    let enters = crate::context::with_current(|fiber: Option<&Fiber>| {
        let word = &fiber?.guest_number;
        let new = (NO_GUEST, number, Ordering::Relaxed, Ordering::Relaxed);
        word.compare_exchange(new.0, new.1, new.2, new.3).ok()
    });
    if enters.is_some() {
        crate::yield_now();
    }
    enters.is_some()
}

/// Takes the fiber that calls this back from the guest that places it, which is told that the
/// fiber has ended. It goes on where it is. `false`: no guest places it.
pub fn leave_guest() -> bool {
    let left = crate::context::with_current(|fiber: Option<&Fiber>| {
        let number = fiber?.guest_number.swap(NO_GUEST, Ordering::Relaxed);
        (number != NO_GUEST).then_some(number)
    });
    let guest = crate::runtime::scheduler().guest.get().cloned();
    match (left, guest) {
        (Some(number), Some(guest)) => {
            // What a scheduler needs of a stack is not a fiber's to know.
            crate::on_worker_stack(|| guest.ended(number));
            true
        }
        _ => false,
    }
}
