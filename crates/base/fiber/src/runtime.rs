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
    GUEST_ROUNDS, MONITOR_TICK, MONITOR_TICK_SHORT, PATIENCE_WITH_SLEEP, SEARCH_ROUNDS,
    TICKS_PER_TRIM, TURNS_PER_WIDE_LOOK, WORKER_THREADS_MAX,
};
use crate::scheduler::Scheduler;
use crate::seat_holder::SeatHolder;
use garonne_sync::mutex::lock;
use garonne_topology::{CpuSet, Tree};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
    /// Kernel's id of that thread; 0 from when the monitor takes the seat away.
    tid: AtomicU32,
    /// Time in ns that the fiber which runs may go without a switch while others are ready.
    patience: AtomicU64,
    /// Switches so far: a worker that has made none for some looks may be stuck.
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
                patience: AtomicU64::new(u64::MAX),
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
        bind_to(None, seat.cpu);
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
            let patience = ready.fiber().patience();
            own.patience.store(patience, Ordering::Relaxed);
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
        let begin = LastSwitch::at(self.scheduler.now());
        let mut looks = vec![begin; self.seats.len()];
        let (mut ticks, mut has_more_stacks, mut pause) = (0u32, false, MONITOR_TICK);
        loop {
            self.scheduler.timers.sleep(|| self.scheduler.now(), pause);
            let now = self.scheduler.now();
            self.scheduler.timers.expire(now);
            self.scheduler.tick();
            let has_work = self.scheduler.has_any();
            let mut is_any_still = false;
            for (seat, look) in self.seats.iter().zip(&mut looks) {
                is_any_still |= look.again(seat, now);
            }
            pause = if has_work && is_any_still {
                MONITOR_TICK_SHORT
            } else {
                MONITOR_TICK
            };
            if has_work {
                self.replace_stuck(&mut looks, now);
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

    /// Replaces workers whose fiber sleeps in the kernel or is out of patience.
    fn replace_stuck(&'static self, looks: &mut [LastSwitch], now: u64) {
        for (seat, look) in looks.iter_mut().enumerate() {
            let own = &self.seats[seat];
            let still = now.saturating_sub(look.since);
            if look.is_still
                && (still >= own.patience.load(Ordering::Relaxed)
                    || still >= PATIENCE_WITH_SLEEP
                        && sleeps_in_kernel(own.tid.load(Ordering::Acquire)))
            {
                look.since = now;
                self.take_away_from_stuck(seat);
            }
        }
    }

    /// Gives the seat of a thread to another one. The first goes on with its fiber: on any CPU
    /// from then on, as long as it has no seat.
    fn take_away_from_stuck(&'static self, seat: usize) {
        if !self.seats[seat].holder.take_away() {
            return;
        }
        let tid = self.seats[seat].tid.swap(0, Ordering::AcqRel);
        let Some(thread) = rustix::thread::Pid::from_raw(tid as i32) else {
            self.hand_over(seat);
            return;
        };
        let mut anywhere = rustix::thread::CpuSet::new();
        let cpus = self.seats.iter().map(|seat| seat.cpu as usize);
        cpus.filter(|cpu| *cpu < rustix::thread::CpuSet::MAX_CPU)
            .for_each(|cpu| anywhere.set(cpu));
        let _ = rustix::thread::sched_setaffinity(Some(thread), &anywhere);
        // The thread may have got another seat meanwhile. It says so before it binds itself.
        let has_seat = |other: &&Seat| other.tid.load(Ordering::Acquire) == tid;
        if let Some(other) = self.seats.iter().find(has_seat) {
            bind_to(Some(thread), other.cpu);
        }
        self.hand_over(seat);
    }

    /// Gives the seat of a thread that is stuck to another one.
    fn take_away(&'static self, seat: usize) {
        if self.seats[seat].holder.take_away() {
            self.hand_over(seat);
        }
    }
}

/// What the monitor knows of a seat from its last looks.
#[derive(Clone, Copy, Debug)]
struct LastSwitch {
    switches: u64,
    /// When the monitor first saw this number.
    since: u64,
    /// The seat's holder runs the fiber that it ran at the last look.
    is_still: bool,
}

impl LastSwitch {
    /// No look yet.
    fn at(now: u64) -> Self {
        Self {
            switches: 0,
            since: now,
            is_still: false,
        }
    }

    /// Looks at the seat once more. `true`: its fiber is the one of the last look.
    fn again(&mut self, seat: &Seat, now: u64) -> bool {
        let switches = seat.switches.load(Ordering::Relaxed);
        self.is_still = switches == self.switches && seat.holder.runs();
        if !self.is_still {
            (self.switches, self.since) = (switches, now);
        }
        self.is_still
    }
}

/// Binds a thread of this process to a CPU; `None`: the caller. A worker that may not be bound
/// works all the same.
fn bind_to(thread: Option<rustix::thread::Pid>, cpu: u32) {
    let mut cpus = rustix::thread::CpuSet::new();
    if (cpu as usize) < rustix::thread::CpuSet::MAX_CPU {
        cpus.set(cpu as usize);
        let _ = rustix::thread::sched_setaffinity(thread, &cpus);
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
