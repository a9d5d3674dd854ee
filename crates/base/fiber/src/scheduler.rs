//! The scheduler as a value: the machine, run queues, timers and a clock. It starts no thread.
//!
//! Workers ([`crate::runtime`]) ask it for the next fiber. A simulation ([`crate::Simulation`])
//! asks for many workers in one thread, in an order and at times that a seed decides.

use crate::Priority;
use crate::clock::Clock;
use crate::context::{ANYWHERE, Runnable, SwitchRequest};
use crate::idle_workers::IdleWorkers;
use crate::run_queues::RunQueues;
use crate::timers::Timers;
use garonne_topology::Tree;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) tree: Tree,
    /// Core of each worker's seat.
    pub(crate) cores: Box<[usize]>,
    pub(crate) queues: RunQueues<Runnable>,
    pub(crate) idle: IdleWorkers,
    pub(crate) timers: Timers,
    clock: Clock,
    alive: AtomicUsize,
}

impl Scheduler {
    pub(crate) fn new(tree: Tree, cores: Vec<usize>, clock: Clock) -> Self {
        Self {
            queues: RunQueues::new(&tree),
            idle: IdleWorkers::new(cores.len()),
            timers: Timers::default(),
            alive: AtomicUsize::new(0),
            cores: cores.into(),
            tree,
            clock,
        }
    }

    /// Time since the scheduler was made, in ns.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Moves a virtual clock on to `time`.
    pub(crate) fn advance_clock(&self, time: u64) {
        self.clock.advance(time);
    }

    /// Fibers that have not ended.
    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) fn fiber_started(&self) {
        if self.alive.fetch_add(1, Ordering::AcqRel) == 0 {
            self.timers.set_ticks(true);
        }
    }

    pub(crate) fn fiber_ended(&self) {
        self.alive.fetch_sub(1, Ordering::AcqRel);
    }

    /// Queues a fiber that is ready: at the core that ran it last, at the caller's core if none has
    /// yet, or at its place. Wakes a worker that may run it.
    pub(crate) fn queue(&self, ready: Runnable) {
        let fiber = ready.fiber();
        let (place, last) = (
            fiber.place.load(Ordering::Relaxed),
            fiber.core.load(Ordering::Relaxed),
        );
        let (pinned, priority) = (fiber.pins.load(Ordering::Relaxed) != 0, fiber.priority);
        let near = if last == ANYWHERE {
            crate::runtime::current_core(self)
        } else {
            Some(last)
        };
        let area = match near {
            Some(core) if fiber.may_run_on(core) => core,
            _ if place == ANYWHERE => self.tree.root(),
            _ => place,
        };
        self.push(area, place, pinned, priority, ready);
    }

    /// Queues a fiber at an area that is its place.
    pub(crate) fn queue_at(&self, area: usize, ready: Runnable) {
        let priority = ready.fiber().priority;
        self.push(area, area, false, priority, ready);
    }

    fn push(&self, area: usize, place: usize, pinned: bool, priority: Priority, ready: Runnable) {
        self.queues.push(area, priority, ready);
        let seats = self.cores.iter().enumerate();
        if pinned || place != ANYWHERE {
            let place = if pinned { area } else { place };
            let inside =
                seats.filter(|(_, core)| self.tree.path(**core).any(|outer| outer == place));
            if !self.idle.wake_among(inside.map(|(seat, _)| seat)) {
                // Others may have taken this look for a searcher.
                self.idle.wake_one(0..self.cores.len());
            }
        } else {
            self.idle.wake_one(seats.map(|(seat, _)| seat));
        }
    }

    /// Takes the next fiber for a worker of this core.
    pub(crate) fn next(&self, core: usize, wide: bool) -> Option<Runnable> {
        let next = self
            .queues
            .pop(core, wide, |ready| ready.fiber().may_run_on(core))?;
        next.fiber().core.store(core, Ordering::Relaxed);
        Some(next)
    }

    /// Runs a fiber on a worker of this core. Returns the fiber that the worker runs next, where
    /// that is plain.
    #[inline]
    pub(crate) fn run(&self, core: usize, ready: Runnable) -> Option<Runnable> {
        match ready.run()? {
            (ready, SwitchRequest::Yield) if !ready.fiber().may_run_on(core) => {
                self.queue(ready);
                None
            }
            (ready, SwitchRequest::Yield) => {
                let priority = ready.fiber().priority;
                let next = self.queues.rotate(core, priority, ready);
                self.check_place(core, next)
            }
            (ready, _) => ready.settle(),
        }
    }

    /// Fibers whose place was changed while they were queued go there.
    #[inline]
    fn check_place(&self, core: usize, next: Runnable) -> Option<Runnable> {
        let fiber = next.fiber();
        if fiber.core.load(Ordering::Relaxed) == core
            && fiber.place.load(Ordering::Relaxed) == ANYWHERE
        {
            return Some(next);
        }
        if !fiber.may_run_on(core) {
            self.queue(next);
            return None;
        }
        fiber.core.store(core, Ordering::Relaxed);
        Some(next)
    }
}
