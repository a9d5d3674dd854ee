//! Costs of this crate's operations, for benchmarks: all on one worker, that of the first core.
//!
//! Times are those that the worker's thread had the CPU, so that other programs do not count.

use crate::context::{STACKS, bare_switches};
use crate::limits::{STACK_DEFAULT, STACK_MIN};
use crate::{Builder, FiberHandle, Place, RawMutex, Semaphore, SpawnError, yield_now};
use garonne_topology::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A stopwatch for the time that one thread has the CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuWatch {
    thread: rustix::thread::Pid,
    begin: Duration,
}

impl CpuWatch {
    #[inline(never)]
    pub(crate) fn start() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Self {
            thread: rustix::thread::gettid(),
            begin: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        }
    }

    /// Time since the start. Zero, which is no sample, if the worker was replaced meanwhile.
    pub(crate) fn stop(self) -> Duration {
        let now = Self::start();
        match now.thread == self.thread {
            true => now.begin.saturating_sub(self.begin),
            false => Duration::ZERO,
        }
    }
}

fn builder() -> Builder {
    Builder::new().place(Place::Area(Kind::Core, 0))
}

/// Runs `body` in a fiber of the first core, and returns what it measured.
fn on_first_core(body: impl FnOnce() -> Duration + Send + 'static) -> Result<Duration, SpawnError> {
    let fiber = builder().spawn(body)?;
    Ok(fiber.join().unwrap_or_default())
}

/// Time of `count` fibers that do nothing, each joined before the next begins.
///
/// # Errors
/// There is no memory for a stack.
pub fn create_and_join(count: u32) -> Result<Duration, SpawnError> {
    on_first_core(move || {
        let watch = CpuWatch::start();
        for _ in 0..count {
            if let Ok(fiber) = builder().start(|| ()) {
                fiber.wait();
            }
        }
        watch.stop()
    })
}

/// Time of `count` fibers that are alive at once, started and then joined.
///
/// # Errors
/// There is no memory for a stack.
pub fn create_many(count: u32) -> Result<Duration, SpawnError> {
    on_first_core(move || {
        let watch = CpuWatch::start();
        let start = |_| builder().stack_size(STACK_MIN).start(|| ());
        let fibers: Vec<FiberHandle> = (0..count).filter_map(|at| start(at).ok()).collect();
        fibers.iter().for_each(FiberHandle::wait);
        watch.stop()
    })
}

/// Time of `rounds` turns of each of so many fibers that let each other run.
///
/// # Errors
/// There is no memory for a stack.
pub fn switches(fibers: u32, rounds: u32) -> Result<Duration, SpawnError> {
    let gate = Arc::new((Semaphore::new(0), Semaphore::new(0)));
    let time = Arc::new(AtomicU64::new(0));
    for at in 0..fibers {
        let (gate, time) = (gate.clone(), time.clone());
        let body = move || {
            gate.0.wait();
            // All are alive and in a ring before the first of them looks at the clock.
            yield_now();
            let watch = CpuWatch::start();
            (0..rounds).for_each(|_| yield_now());
            if at == 0 {
                time.store(watch.stop().as_nanos() as u64, Ordering::Relaxed);
            }
            gate.1.post();
        };
        builder().stack_size(STACK_MIN).start(body)?;
    }
    on_first_core(move || {
        (0..fibers).for_each(|_| {
            gate.0.post();
        });
        (0..fibers).for_each(|_| gate.1.wait());
        Duration::from_nanos(time.load(Ordering::Relaxed))
    })
}

/// Time of so many bare switches of stacks, there and back counted as two.
///
/// # Errors
/// There is no memory for a stack.
pub fn bare(count: u32) -> Result<Duration, SpawnError> {
    let stack = STACKS.take(STACK_DEFAULT)?;
    Ok(bare_switches(stack, count))
}

/// Time of so many hand-overs of a mutex between two fibers of one worker.
///
/// # Errors
/// There is no memory for a stack.
pub fn mutex_hand_overs(count: u32) -> Result<Duration, SpawnError> {
    on_first_core(move || {
        let mutex = Arc::new(RawMutex::new());
        let shared = mutex.clone();
        mutex.lock();
        let turns = move |mutex: &RawMutex| {
            for _ in 0..count / 2 {
                mutex.unlock();
                mutex.lock();
            }
        };
        let other = builder().start(move || {
            shared.lock();
            turns(&shared);
            shared.unlock();
        });
        let Ok(other) = other else {
            return Duration::ZERO;
        };
        // It runs until it waits for the mutex.
        yield_now();
        let watch = CpuWatch::start();
        turns(&mutex);
        let time = watch.stop();
        mutex.unlock();
        other.wait();
        time
    })
}
