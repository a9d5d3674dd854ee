//! The scheduler as a value: the machine, run queues, timers and a clock. It starts no thread.
//!
//! Workers ([`crate::runtime`]) ask it for the next fiber. A simulation ([`crate::Simulation`])
//! asks for many workers in one thread, in an order and at times that a seed decides.

use crate::Priority;
use crate::clock::Clock;
use crate::context::{ANYWHERE, Runnable, SwitchRequest};
use crate::guest::{GuestScheduler, ReadyFiber};
use crate::idle_workers::IdleWorkers;
use crate::run_queues::RunQueues;
use crate::timers::Timers;
use garonne_topology::Tree;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) tree: Tree,
    /// Core of each worker's seat.
    pub(crate) cores: Box<[usize]>,
    /// CPU of each worker's seat.
    pub(crate) cpus: Box<[u32]>,
    pub(crate) queues: RunQueues<Runnable>,
    pub(crate) idle: IdleWorkers,
    pub(crate) timers: Timers,
    /// Places fibers that are in bubbles.
    pub(crate) guest: OnceLock<Arc<dyn GuestScheduler>>,
    /// Whether a worker asks the guest first when it next asks both.
    guest_turns: Box<[AtomicBool]>,
    clock: Clock,
    alive: AtomicUsize,
}

impl Scheduler {
    /// A scheduler of workers that have these CPUs and cores.
    pub(crate) fn new(tree: Tree, workers: Vec<(u32, usize)>, clock: Clock) -> Self {
        let (cpus, cores): (Vec<u32>, Vec<usize>) = workers.into_iter().unzip();
        Self {
            queues: RunQueues::new(&tree),
            idle: IdleWorkers::new(cores.len()),
            timers: Timers::default(),
            alive: AtomicUsize::new(0),
            guest: OnceLock::new(),
            guest_turns: cores.iter().map(|_| AtomicBool::new(true)).collect(),
            cores: cores.into(),
            cpus: cpus.into(),
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

    pub(crate) fn fiber_ended(&self, guest_number: Option<u64>) {
        if let (Some(number), Some(guest)) = (guest_number, self.guest.get()) {
            guest.ended(number);
        }
        self.alive.fetch_sub(1, Ordering::AcqRel);
    }

    /// Queues a fiber that is ready: at the core that ran it last, at the caller's core if none has
    /// yet, or at its place. Wakes a worker that may run it.
    pub(crate) fn queue(&self, ready: Runnable) {
        if let (Some(number), Some(guest)) = (ready.guest_number(), self.guest.get()) {
            if ready.fiber().pins.load(Ordering::Relaxed) == 0 {
                let area = guest.ready(ReadyFiber(ready));
                self.wake_for(area);
                return;
            }
            // A pinned fiber is its core's, whatever the guest would do with it.
            guest.blocks(number);
        }
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
        let place = if pinned { area } else { place };
        self.wake_for((place != ANYWHERE).then_some(place));
    }

    /// Wakes a worker of this area if one sleeps; for `None` any worker.
    pub(crate) fn wake_for(&self, area: Option<usize>) {
        if let Some(area) = area {
            let seats = self.cores.iter().enumerate();
            let inside =
                seats.filter(|(_, core)| self.tree.path(**core).any(|outer| outer == area));
            let inside = inside.map(|(seat, _)| seat);
            // Others are not woken: they would only look in vain, and hold up those inside.
            if !self.idle.is_any_asleep(inside.clone()) || self.idle.wake_among(inside) {
                return;
            }
            // Others may have taken this look for a searcher.
        }
        self.idle.wake_one(0..self.cores.len());
    }

    /// Tells whether any fiber is ready.
    pub(crate) fn has_any(&self) -> bool {
        self.queues.has_any() || self.guest_has_ready()
    }

    #[inline]
    pub(crate) fn guest_has_ready(&self) -> bool {
        self.guest.get().is_some_and(|guest| guest.has_ready())
    }

    /// Some time has passed.
    pub(crate) fn tick(&self) {
        if let Some(guest) = self.guest.get() {
            guest.tick();
        }
    }

    /// Takes the next fiber for a worker. The guest goes first every other time.
    pub(crate) fn next(&self, worker: usize, wide: bool) -> Option<Runnable> {
        let core = self.cores[worker];
        let pop = || {
            let may_run = |ready: &Runnable| ready.fiber().may_run_on(core);
            self.queues.pop(core, wide, may_run)
        };
        let next = match self.guest.get().filter(|guest| guest.has_ready()) {
            None => pop(),
            Some(guest) => {
                let from_guest = || guest.next(worker).map(|ready| ready.0);
                let turn = &self.guest_turns[worker];
                let is_first = turn.load(Ordering::Relaxed);
                turn.store(!is_first, Ordering::Relaxed);
                if is_first {
                    from_guest().or_else(pop)
                } else {
                    pop().or_else(from_guest)
                }
            }
        }?;
        next.fiber().core.store(core, Ordering::Relaxed);
        Some(next)
    }

    /// Runs a fiber on a worker. Returns the fiber that the worker runs next, where
    /// that is plain.
    #[inline]
    pub(crate) fn run(&self, worker: usize, ready: Runnable) -> Option<Runnable> {
        let core = self.cores[worker];
        match ready.run()? {
            (ready, SwitchRequest::Bind) => {
                ready.bind();
                None
            }
            (ready, SwitchRequest::Yield) if ready.guest_number().is_some() => {
                self.queue(ready);
                None
            }
            (ready, SwitchRequest::Yield) if self.guest_has_ready() => {
                self.queue(ready);
                None
            }
            (ready, SwitchRequest::Yield) if !ready.fiber().may_run_on(core) => {
                self.queue(ready);
                None
            }
            (ready, SwitchRequest::Yield) => {
                let priority = ready.fiber().priority;
                let next = self.queues.rotate(core, priority, ready);
                self.check_place(core, next)
            }
            (ready, _) => match (ready.guest_number(), self.guest.get()) {
                (Some(number), Some(guest)) => {
                    // Before somebody may wake it.
                    guest.blocks(number);
                    if let Some(ready) = ready.settle() {
                        self.queue(ready);
                    }
                    None
                }
                _ => ready.settle(),
            },
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
