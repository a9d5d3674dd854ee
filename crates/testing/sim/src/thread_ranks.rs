//! Ranks as threads of one process, for tests of the layers above the engine.
//!
//! Each rank is a thread with its own engine; `abort` and a rank's panic end the test with that
//! rank's message. At the end every engine must be idle: a request, message or held send left over
//! fails the test.

use crate::local::{Fabric, LocalTransport};
use garonne_engine::CreditQuotas;
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_progress::environment::{Environment, SpinBudget, WaitObserver};
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_progress::sharded::ShardedEngine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// When a rank counts as hanging.
const GIVE_UP: Duration = Duration::from_secs(120);

/// Locked engine of a rank that is a thread.
pub type ThreadEngine = LockedEngine<LocalTransport, ThreadEnvironment>;

/// Parameters of a world of threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadWorld {
    /// Number of ranks.
    pub world: u32,
    /// Credits between any two.
    pub quotas: CreditQuotas,
}

/// Environment of a rank that is a thread.
#[derive(Debug)]
pub struct ThreadEnvironment {
    started: Instant,
}

impl WaitObserver for ThreadEnvironment {}

impl Environment for ThreadEnvironment {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: 0,
            yields: 8,
            spinners: 1,
        }
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("the rank aborted the job with code {code}: {message}")
    }

    fn wtime(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Environment of a test's own thread: a spin budget, and async progress wherever something is left
/// open.
#[derive(Clone, Copy, Debug)]
pub struct AsyncEnvironment {
    /// Spin budget of waits.
    pub patience: SpinBudget,
    /// See [`Environment::takeover_delay`].
    pub grace: Option<Duration>,
    /// See [`Environment::progress_spin_time`].
    pub progress_spin: Duration,
}

impl WaitObserver for AsyncEnvironment {}

impl Environment for AsyncEnvironment {
    fn spin_budget(&self) -> SpinBudget {
        self.patience
    }

    fn takeover_delay(&self) -> Option<Duration> {
        self.grace
    }

    fn progress_spin_time(&self) -> Duration {
        self.progress_spin
    }

    fn preemption_threshold(&self) -> Duration {
        // Threads of a test share their cores all the time.
        Duration::MAX
    }

    fn releases_always(&self) -> bool {
        true
    }

    fn progress_thread_rest(&self) -> Duration {
        // So that progress threads go and come all the time.
        Duration::from_micros(100)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("aborted with code {code}: {message}")
    }

    fn wtime(&self) -> f64 {
        0.0
    }
}

/// Runs `program` as every rank of a world of `world` threads, with the usual credits, and waits
/// for all.
///
/// # Panics
/// When a rank panics or leaves something pending.
pub fn threads(world: u32, program: impl Fn(Arc<dyn Messaging>) + Send + Sync) {
    threads_with(
        ThreadWorld {
            world,
            quotas: CreditQuotas::for_world(world),
        },
        |rank| program(rank),
    );
}

/// Runs `program` on each rank with a choice of credits and the concrete host.
///
/// # Panics
/// When a rank panics or leaves something pending.
pub fn threads_with(setup: ThreadWorld, program: impl Fn(Arc<ThreadEngine>) + Send + Sync) {
    let fabric = Fabric::new(setup.world);
    let leaving = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..setup.world)
            .map(|me| {
                let (fabric, leaving, program) = (&fabric, &leaving, &program);
                let run = move || {
                    let shard = Engine::new(fabric.transport(me), me, setup.world, setup.quotas);
                    let rank = Arc::new(LockedEngine::new(
                        shard,
                        me,
                        setup.world,
                        ThreadEnvironment {
                            started: Instant::now(),
                        },
                    ));
                    // Counted also when the program panics, so that the others stop serving it.
                    let leave = Leaving {
                        count: leaving,
                        fabric,
                        me,
                    };
                    program(rank.clone());
                    drop(leave);
                    // Others may still need this rank's hands (credits, pieces) until all have
                    // left.
                    while leaving.load(Ordering::Acquire) < setup.world {
                        rank.progress();
                        std::thread::yield_now();
                    }
                    while rank.progress() {}
                    let waiting = rank.waiting();
                    assert!(
                        rank.inspect(|shard| shard.is_idle()),
                        "rank {me} left something pending: {waiting:?}"
                    );
                };
                std::thread::Builder::new()
                    .name(format!("rank {me}"))
                    .spawn_scoped(scope, run)
            })
            .collect();
        let joined: Vec<_> = ranks
            .into_iter()
            .map(|rank| rank.expect("a thread per rank").join())
            .collect();
        // The first failure in time is printed first; any of them fails the test.
        joined
            .into_iter()
            .for_each(|rank| rank.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

/// A rank with hands to lend has run its program: serves the others until all of them have, then
/// keeps its hands.
///
/// # Panics
/// When another rank takes longer than anything that goes on, or something is left pending.
pub fn leave_together<R: Transport + Send + 'static, S: Environment + 'static>(
    host: &LockedEngine<R, S>,
    leaving: &AtomicU32,
    world: u32,
) {
    serve_until_all_leave(host, leaving, world);
    host.stop_async_progress();
    assert!(
        host.inspect(|shard| shard.is_idle()),
        "{:?}",
        host.waiting()
    );
}

/// Leaves the job together with the other ranks, for a rank of several shards.
///
/// # Panics
/// When another rank does not leave in time.
pub fn leave_sharded<R: Transport + Send + 'static, S: Environment + 'static>(
    host: &ShardedEngine<R, S>,
    leaving: &AtomicU32,
    world: u32,
) {
    serve_until_all_leave(host, leaving, world);
    host.first().stop_async_progress();
    host.inspect(|shard| assert!(shard.is_idle(), "{:?}", shard.waiting()));
}

fn serve_until_all_leave(host: &dyn Messaging, leaving: &AtomicU32, world: u32) {
    leaving.fetch_add(1, Ordering::AcqRel);
    let until = Instant::now() + GIVE_UP;
    while leaving.load(Ordering::Acquire) < world {
        assert!(Instant::now() < until, "another rank does not leave");
        host.progress();
        std::thread::yield_now();
    }
    while host.progress() {}
}

/// Seeds for a test by random schedules: `usual` many, or as many as the variable GARONNE_SEEDS
/// says.
pub fn seeds(usual: u64) -> impl Iterator<Item = u64> {
    let many = std::env::var("GARONNE_SEEDS").ok();
    let many = many.and_then(|seeds| seeds.parse().ok()).unwrap_or(usual);
    (1..=many).map(|seed: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A rank leaves its program; by a panic it is dead for the others, so that they do not wait for
/// it.
struct Leaving<'a> {
    count: &'a AtomicU32,
    fabric: &'a Fabric,
    me: u32,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fabric.kill(self.me);
        }
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}
