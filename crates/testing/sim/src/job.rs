//! Simulated jobs: the same program as every rank, one running at a time, from a seed.
//!
//! A rank is a thread with a small stack that runs only while it holds the fabric's baton. A run
//! fails, naming its seed, when a rank panics, when nothing can happen any more while somebody
//! waits, or when a surviving engine is not empty at the end.

use crate::fabric::{Killed, SimFabric};
use crate::faults::{FaultCounts, Faults};
use crate::transport::{MemoryAccess, SimTransport};
use garonne_engine::CreditQuotas;
use garonne_engine::api::Peer;
use garonne_engine::engine::Engine;
use garonne_progress::environment::{Environment, SpinBudget, WaitObserver, YieldOutcome};
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{Messaging, Waiting};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Stack of a rank: hundreds fit in little memory.
const STACK_BYTES: usize = 512 << 10;

/// Parameters of a simulated job.
#[derive(Clone, Debug)]
pub struct SimJob {
    /// Number of ranks.
    pub world: u32,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Faults of the medium.
    pub faults: Faults,
    /// Credits between any two ranks.
    pub quotas: CreditQuotas,
    /// Access of ranks to each other's memory.
    pub memory: MemoryAccess,
}

/// Locked engine of a simulated rank.
pub type SimHost = LockedEngine<SimTransport, SimEnvironment>;

/// Environment of a simulated rank.
#[derive(Debug)]
pub struct SimEnvironment {
    fabric: Arc<SimFabric>,
    me: u32,
}

impl WaitObserver for SimEnvironment {}

impl Environment for SimEnvironment {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: 0,
            yields: 1,
            spinners: 1,
        }
    }

    fn yield_core(&self) -> YieldOutcome {
        self.fabric.pause(self.me);
        YieldOutcome::Taken
    }

    fn retry_interval(&self) -> Option<Duration> {
        Some(Duration::from_micros(50))
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!(
            "rank {} aborted the job with code {code}: {message}",
            self.me
        )
    }

    fn wtime(&self) -> f64 {
        self.fabric.now_ns() as f64 * 1e-9
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutcome {
    /// Hash of every choice, every event of the medium and every event of every surviving engine.
    pub hash: u64,
    /// Why it failed, with its seed.
    pub failure: Option<String>,
    /// Messages that senders began to write to receives announced ahead.
    pub written: u64,
    /// Writes of which the receiver filled a part.
    pub joined: u64,
    /// Faults that happened, and what ranks saw of them.
    pub tally: FaultCounts,
}

/// Runs `program` as every rank of a simulated job.
pub fn run(job: &SimJob, program: impl Fn(Arc<SimHost>) + Send + Sync) -> JobOutcome {
    let present: Vec<Peer> = (0..job.world).collect();
    run_some(job, &present, program)
}

/// Runs only some ranks of a job, in ascending order. The others never do anything, and nobody may
/// count on them. Serves jobs larger than a machine can have threads.
pub fn run_some(
    job: &SimJob,
    present: &[Peer],
    program: impl Fn(Arc<SimHost>) + Send + Sync,
) -> JobOutcome {
    let fabric = Arc::new(SimFabric::new(
        job.world,
        present,
        job.seed,
        job.faults.clone(),
    ));
    std::thread::scope(|scope| {
        for &me in present {
            let (shared, program) = (fabric.clone(), &program);
            let rank = move || rank(job, &shared, me, program);
            let spawned = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, rank);
            if let Err(error) = spawned {
                fabric.end(me, Some(format!("rank {me} could not start: {error}")));
            }
        }
        fabric.start();
    });
    let failure = fabric
        .failure()
        .map(|why| format!("seed {}: {why}", job.seed));
    JobOutcome {
        hash: fabric.hash(),
        failure,
        written: fabric.regions(|regions| regions.written),
        joined: fabric.regions(|regions| regions.joined),
        tally: fabric.tally(),
    }
}

/// Runs every seed twice: it must succeed, and both runs must be the same, which is returned.
///
/// # Panics
/// With the seed that failed.
pub fn check(job: &SimJob, program: impl Fn(Arc<SimHost>) + Send + Sync) -> JobOutcome {
    let first = run(job, &program);
    if let Some(failure) = first.failure {
        panic!("{failure}");
    }
    let second = run(job, &program);
    assert_eq!(first, second, "seed {}: two runs differ", job.seed);
    second
}

fn rank(job: &SimJob, fabric: &Arc<SimFabric>, me: u32, program: &(impl Fn(Arc<SimHost>) + Sync)) {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        fabric.begin(me);
        let shard = Engine::new(
            SimTransport::new(fabric.clone(), me, job.memory),
            me,
            job.world,
            job.quotas,
        );
        let host = Arc::new(LockedEngine::new(
            shard,
            me,
            job.world,
            SimEnvironment {
                fabric: fabric.clone(),
                me,
            },
        ));
        program(host.clone());
        linger(fabric, &host);
        let waiting = host.waiting();
        host.inspect(|shard| {
            assert!(
                shard.is_idle(),
                "rank {me} left something pending: {waiting:?}"
            );
            for (number, event) in shard.events().iter() {
                fabric.witness(
                    number
                        ^ event.len << 8
                        ^ u64::from(event.peer) << 32
                        ^ (event.tag as u64) << 40
                        ^ (event.kind as u64) << 56,
                );
            }
        });
    }));
    let failed = match ended {
        Ok(()) => None,
        Err(panic) if panic.is::<Killed>() => None,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Some(format!(
                "rank {me}: {}",
                text.unwrap_or_else(|| "a panic without a text".into())
            ))
        }
    };
    fabric.end(me, failed);
}

/// Serves others (acknowledgements, credits) until every surviving rank's program has ended and
/// nobody waits for an acknowledgement.
fn linger(fabric: &SimFabric, host: &SimHost) {
    fabric.leave(host.me());
    loop {
        let word = fabric.word(host.me());
        while host.progress() {}
        let settled = host.inspect(|shard| shard.transport().is_settled()) && !host.has_work();
        if fabric.settles(host.me(), settled) {
            return;
        }
        if host.has_work() {
            fabric.pause(host.me());
        } else {
            fabric.sleep(host.me(), word);
        }
    }
}
