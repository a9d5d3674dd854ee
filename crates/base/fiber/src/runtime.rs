//! The process's workers: one seat per usable CPU, a thread in each, and threads to replace those
//! that are stuck in the kernel.
//!
//! A seat stands for a CPU. The thread that holds it runs fibers. Who takes a seat away from a
//! stuck thread gives it to another one; the stuck thread notices when its fiber leaves its stack,
//! queues the fiber, and waits for a seat. Started by the first fiber; never ends.

use crate::SpawnError;
use crate::clock::Clock;
use crate::context::{self, ANYWHERE, Runnable};
use crate::limits::{
    GUEST_ROUNDS, MONITOR_TICK, SEARCH_ROUNDS, TICKS_OF_SPINNING, TICKS_PER_TRIM,
    TURNS_PER_WIDE_LOOK, WORKER_THREADS_MAX,
};
use crate::scheduler::Scheduler;
use crate::seat_holder::SeatHolder;
use garonne_sync::mutex::lock;
use garonne_topology::{CpuSet, Tree};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Seat of a thread that has none.
const NO_SEAT: usize = usize::MAX;

/// A CPU and who works there.
#[derive(Debug)]
struct Seat {
    cpu: u32,
    core: usize,
    holder: SeatHolder,
    /// Kernel's id of that thread.
    tid: AtomicU32,
    /// The fiber that runs has an identity: compiled code, which may wait by spinning.
    may_spin: AtomicBool,
    /// Switches so far: a worker that has made none for two ticks may be stuck.
    switches: AtomicU64,
}

/// Threads that wait for a seat, and seats that wait for them.
#[derive(Debug, Default)]
struct SpareThreads {
    threads: u32,
    waiting: usize,
    free_seats: Vec<usize>,
}

/// The process's workers; see the module's paragraph.
#[derive(Debug)]
struct Runtime {
    scheduler: Arc<Scheduler>,
    seats: Box<[Seat]>,
    spares: Mutex<SpareThreads>,
    seat_freed: Condvar,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

thread_local! {
    /// Seat and core of a worker's thread.
    static WORKER: Cell<(usize, usize)> = const { Cell::new((NO_SEAT, ANYWHERE)) };
}

/// Seat and core of the worker that calls this.
#[inline(never)]
pub(crate) fn worker() -> (usize, usize) {
    WORKER.try_with(Cell::get).unwrap_or((NO_SEAT, ANYWHERE))
}

/// A fiber's own identity runs in this seat and on this core.
#[inline(never)]
pub(crate) fn set_worker(worker: (usize, usize)) {
    let _ = WORKER.try_with(|own| own.set(worker));
}

/// The calling thread is no worker, nor run by one.
pub(crate) fn forget_worker() {
    set_worker((NO_SEAT, ANYWHERE));
}

/// Core of the worker that calls this.
pub(crate) fn current_core(scheduler: &Scheduler) -> Option<usize> {
    let core = worker().1;
    (core < scheduler.tree.cores()).then_some(core)
}

/// A simulation's worker runs on this core until the next call.
pub(crate) fn set_simulated_core(core: usize) {
    WORKER.with(|worker| worker.set((NO_SEAT, core)));
}

/// The scheduler of the fiber that calls this, or the process's.
pub(crate) fn scheduler() -> Arc<Scheduler> {
    context::with_current(|fiber| match fiber {
        Some(fiber) => fiber.scheduler.clone(),
        None => runtime().scheduler.clone(),
    })
}

fn runtime() -> &'static Runtime {
    let mut is_new = false;
    let runtime = RUNTIME.get_or_init(|| {
        is_new = true;
        let allowed = garonne_topology::allowed();
        let tree = Tree::over(&allowed);
        let seats: Box<[Seat]> = allowed
            .iter()
            .filter_map(|cpu| Some((cpu, tree.core_of(cpu)?)))
            .map(|(cpu, core)| Seat {
                cpu,
                core,
                holder: SeatHolder::new(),
                tid: AtomicU32::new(0),
                may_spin: AtomicBool::new(false),
                switches: AtomicU64::new(0),
            })
            .collect();
        let workers = seats.iter().map(|seat| (seat.cpu, seat.core)).collect();
        Runtime {
            scheduler: Arc::new(Scheduler::new(tree, workers, Clock::Real(Instant::now()))),
            seats,
            spares: Mutex::default(),
            seat_freed: Condvar::new(),
        }
    });
    if is_new {
        crate::overflow::install();
        (0..runtime.seats.len()).for_each(|seat| runtime.hand_over(seat));
        let monitor = std::thread::Builder::new().name("garonne-monitor".into());
        // Without it timers of fibers are late until a worker idles, so that is said.
        if let Err(error) = monitor.spawn(|| runtime.watch()) {
            eprintln!("garonne: the monitor of fibers cannot be started: {error}");
        }
    }
    runtime
}

impl Runtime {
    /// Gives a seat to a thread that has none, or to a new one.
    fn hand_over(&'static self, seat: usize) {
        let mut spares = lock(&self.spares);
        spares.free_seats.push(seat);
        if spares.waiting >= spares.free_seats.len() {
            self.seat_freed.notify_one();
            return;
        }
        if spares.threads as usize >= WORKER_THREADS_MAX {
            return;
        }
        spares.threads += 1;
        let number = spares.threads;
        drop(spares);
        let thread = std::thread::Builder::new().name("garonne-worker".into());
        if thread.spawn(move || self.work(number)).is_err() {
            // The seat stays free until a thread comes back.
            lock(&self.spares).threads -= 1;
        }
    }

    /// The life of a worker's thread: one seat after another.
    fn work(&'static self, number: u32) {
        crate::overflow::prepare_thread();
        loop {
            let seat = self.wait_for_seat(number);
            self.bind(seat);
            WORKER.with(|worker| worker.set((seat, self.seats[seat].core)));
            self.serve(seat, number);
            WORKER.with(|worker| worker.set((NO_SEAT, ANYWHERE)));
        }
    }

    fn wait_for_seat(&self, number: u32) -> usize {
        let mut spares = lock(&self.spares);
        spares.waiting += 1;
        let seat = loop {
            match spares.free_seats.pop() {
                Some(seat) => break seat,
                None => {
                    spares = self
                        .seat_freed
                        .wait(spares)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        };
        spares.waiting -= 1;
        self.seats[seat].holder.take(number);
        seat
    }

    fn bind(&self, seat: usize) {
        let seat = &self.seats[seat];
        seat.tid.store(
            rustix::thread::gettid().as_raw_nonzero().get() as u32,
            Ordering::Release,
        );
        let mut cpus = rustix::thread::CpuSet::new();
        if (seat.cpu as usize) < rustix::thread::CpuSet::MAX_CPU {
            cpus.set(seat.cpu as usize);
            // A worker that may not be bound works all the same.
            let _ = rustix::thread::sched_setaffinity(None, &cpus);
        }
    }

    /// Runs fibers in a seat until it belongs to another thread.
    fn serve(&self, seat: usize, number: u32) {
        let (own, scheduler) = (&self.seats[seat], &*self.scheduler);
        let (mut next, mut turn): (Option<Runnable>, u32) = (None, 0);
        loop {
            if !own.holder.is_held_by(number) {
                if let Some(ready) = next.take() {
                    scheduler.queue(ready);
                }
                return;
            }
            turn = turn.wrapping_add(1);
            let wide = turn.is_multiple_of(TURNS_PER_WIDE_LOOK);
            if wide && let Some(ready) = next.take() {
                scheduler.queue(ready);
            }
            let ready = match next.take() {
                Some(ready) => ready,
                None => match scheduler
                    .next(seat, wide)
                    .or_else(|| self.search(seat, number))
                {
                    Some(ready) => ready,
                    None => continue,
                },
            };
            own.switches
                .store(own.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let has_identity = ready.fiber().has_identity();
            own.may_spin.store(has_identity, Ordering::Relaxed);
            next = scheduler.run(seat, ready);
            crate::keypoint::switched();
        }
    }

    /// Looks for work, and sleeps where there is none. `None`: look whether the seat is still ours.
    fn search(&self, seat: usize, number: u32) -> Option<Runnable> {
        let (own, scheduler) = (&self.seats[seat], &*self.scheduler);
        // While it searches nobody takes the seat away.
        if !own.holder.begin_search(number) {
            return None;
        }
        scheduler.idle.start_search();
        let found = self.search_rounds(seat).or_else(|| {
            scheduler.idle.announce_sleep(seat);
            match scheduler.next(seat, true) {
                Some(found) => {
                    scheduler.idle.cancel_sleep(seat);
                    Some(found)
                }
                None => {
                    scheduler.idle.sleep(seat);
                    scheduler.next(seat, true)
                }
            }
        });
        own.holder.take(number);
        if scheduler.idle.end_search() && found.is_some() && scheduler.has_any() {
            scheduler.idle.wake_one(0..self.seats.len());
        }
        found
    }

    fn search_rounds(&self, seat: usize) -> Option<Runnable> {
        let mut found = self.scheduler.next(seat, true);
        // Where there is one worker nobody else would queue anything while it searches.
        let rounds = if self.seats.len() > 1 {
            SEARCH_ROUNDS
        } else {
            1
        };
        for round in 1..rounds {
            if found.is_some() {
                break;
            }
            if crate::keypoint::idle() {
                std::thread::yield_now();
            }
            (0..16).for_each(|_| std::hint::spin_loop());
            // What a guest holds may not be for this worker: it is asked now and then.
            let asks_guest = || round % GUEST_ROUNDS == 0 && self.scheduler.guest_has_ready();
            if self.scheduler.queues.has_any() || asks_guest() {
                found = self.scheduler.next(seat, true);
            }
        }
        found
    }

    /// The monitor: ends waits whose time is over, and replaces workers that are stuck.
    fn watch(&'static self) {
        let mut seen: Vec<(u64, u32)> = vec![(0, 0); self.seats.len()];
        let (mut ticks, mut has_more_stacks) = (0u32, false);
        loop {
            self.scheduler
                .timers
                .sleep(|| self.scheduler.now(), MONITOR_TICK);
            self.scheduler.timers.expire(self.scheduler.now());
            self.scheduler.tick();
            let has_work = self.scheduler.has_any();
            for (seat, (switches, ticks)) in self.seats.iter().zip(&mut seen) {
                let now = seat.switches.load(Ordering::Relaxed);
                let is_same = now == *switches && seat.holder.runs();
                (*switches, *ticks) = (now, if is_same { *ticks + 1 } else { 0 });
            }
            if has_work {
                for (seat, (_, ticks)) in seen.iter_mut().enumerate() {
                    let own = &self.seats[seat];
                    let spins = *ticks >= TICKS_OF_SPINNING && own.may_spin.load(Ordering::Relaxed);
                    if spins || *ticks >= 2 && sleeps_in_kernel(own.tid.load(Ordering::Acquire)) {
                        *ticks = 0;
                        self.take_away(seat);
                    }
                }
                // A fiber whose place changed while somebody queued it may wait where only a worker
                // that sleeps can take it.
                self.scheduler.idle.wake_all();
            }
            if self.scheduler.guest_has_ready() {
                // A tick may have made anything ready anywhere.
                self.scheduler.idle.wake_all();
            }
            ticks = ticks.wrapping_add(1);
            if has_more_stacks || ticks.is_multiple_of(TICKS_PER_TRIM) {
                has_more_stacks = context::STACKS.trim();
            }
            if self.scheduler.alive() == 0 && context::STACKS.is_trimmed() {
                self.scheduler.timers.set_ticks(false);
                // A fiber may have started since.
                if self.scheduler.alive() != 0 {
                    self.scheduler.timers.set_ticks(true);
                }
            }
        }
    }

    /// Gives the seat of a thread that is stuck to another one.
    fn take_away(&'static self, seat: usize) {
        if self.seats[seat].holder.take_away() {
            self.hand_over(seat);
        }
    }
}

/// Asks the kernel whether a thread of this process sleeps.
fn sleeps_in_kernel(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    // The name before it may contain anything.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with(['S', 'D']))
}

/// Runs what may block in the kernel: another thread runs the other fibers of this CPU meanwhile.
/// A worker that is stuck without this is replaced too, but some ticks of the monitor later.
///
/// On a thread that runs no fiber it only calls `body`.
pub fn blocking<R>(body: impl FnOnce() -> R) -> R {
    if !leave_seat() {
        return body();
    }
    let result = body();
    // The thread has no seat any more: the fiber goes on where one is.
    crate::yield_now();
    result
}

/// Gives the seat of the worker that calls this, for a fiber, to another thread. `false`: it runs
/// no fiber.
pub(crate) fn leave_seat() -> bool {
    let (seat, _) = worker();
    let is_worker = context::with_current(|fiber| fiber.is_some());
    let Some(runtime) = RUNTIME.get().filter(|_| is_worker && seat != NO_SEAT) else {
        return false;
    };
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    if runtime.seats[seat].tid.load(Ordering::Acquire) == own {
        runtime.take_away(seat);
    }
    true
}

/// Starts the workers, if they are not there yet. Their kernel threads block the signals that the
/// caller blocks.
pub fn start_workers() {
    runtime();
}

/// Number of kernel threads that work, or wait for a seat: 0 where the system started none.
pub fn worker_threads() -> usize {
    lock(&runtime().spares).threads as usize
}

/// Time on the clock of the caller's scheduler, in ns.
pub fn now() -> u64 {
    scheduler().now()
}

/// Number of workers: the CPUs that this process may use.
pub fn workers() -> usize {
    scheduler().cores.len()
}

/// The CPUs that workers use.
pub fn worker_cpus() -> CpuSet {
    runtime().seats.iter().map(|seat| seat.cpu).collect()
}

/// Checks that fibers can be started.
pub(crate) fn ready(scheduler: &Scheduler) -> Result<(), SpawnError> {
    if scheduler.cores.is_empty() {
        Err(SpawnError::NoCpu)
    } else {
        Ok(())
    }
}
