//! The scheduler under a seed: many workers on one thread, and a virtual clock.
//!
//! The code of fibers, primitives, queues and timers is what real workers run. A seed chooses which
//! worker goes next. When no worker finds anything the clock moves on to the next timer; where
//! there
//! is none, fibers that are left wait for ever, which is an outcome.

use crate::clock::Clock;
use crate::context::Runnable;
use crate::limits::ROUNDS_IN_VAIN;
use crate::runtime;
use crate::scheduler::Scheduler;
use garonne_topology::Tree;
use std::sync::Arc;
use std::time::Duration;

/// How a simulated run came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Fibers that wait for ever.
    pub stuck: usize,
    /// Virtual time that passed.
    pub time: Duration,
    /// Switches of all workers.
    pub switches: u64,
    /// Digest of who ran where in which order: equal for equal seeds.
    pub digest: u64,
}

/// A machine whose workers take turns as a seed says.
#[derive(Debug)]
pub struct Simulation {
    scheduler: Arc<Scheduler>,
    seed: u64,
}

impl Simulation {
    /// One worker per core of `machine`.
    pub fn new(machine: Tree, seed: u64) -> Self {
        let cpu = |core: usize| machine.areas()[core].cpus.first().unwrap_or(0);
        let workers = (0..machine.cores()).map(|core| (cpu(core), core)).collect();
        let clock = Clock::Virtual(Default::default());
        Self {
            scheduler: Arc::new(Scheduler::new(machine, workers, clock)),
            seed,
        }
    }

    /// Runs `body` in a fiber, with all that it starts, until nothing is left to run. What
    /// blocks in
    /// the kernel blocks the simulation.
    pub fn run(self, body: impl FnOnce() + Send + 'static) -> Outcome {
        crate::overflow::install();
        crate::overflow::prepare_thread();
        let mut random = SplitMix(self.seed);
        let scheduler = &self.scheduler;
        let start = crate::context::STACKS.take(crate::limits::STACK_DEFAULT << 2);
        let mut outcome = Outcome {
            stuck: 0,
            time: Duration::ZERO,
            switches: 0,
            digest: 0,
        };
        let Ok(stack) = start else {
            outcome.stuck = 1;
            return outcome;
        };
        let body = Box::new(move || {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            crate::local::end_of_fiber();
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        });
        let first = Runnable::new(
            scheduler.clone(),
            stack,
            Some("first".into()),
            crate::context::ANYWHERE,
            crate::Priority::Normal,
            None,
            body,
        );
        scheduler.fiber_started();
        scheduler.queue(first);
        let cores = scheduler.cores.len() as u64;
        // What a worker took and did not run yet: others may run meanwhile.
        let mut taken: Vec<Option<Runnable>> = scheduler.cores.iter().map(|_| None).collect();
        let mut rounds_in_vain = 0;
        loop {
            let core = (random.next() % cores.max(1)) as usize;
            let wide = random.next().is_multiple_of(8);
            runtime::set_simulated_core(core);
            if wide && let Some(ready) = taken[core].take() {
                scheduler.queue(ready);
            }
            let ready = taken[core].take().or_else(|| scheduler.next(core, wide));
            if let Some(ready) = ready {
                outcome.switches += 1;
                outcome.digest = mix(outcome.digest ^ core as u64, outcome.switches);
                taken[core] = scheduler.run(core, ready);
                self.pass_time(&mut random);
                rounds_in_vain = 0;
                continue;
            }
            if taken.iter().any(Option::is_some) || scheduler.queues.has_any() {
                continue;
            }
            rounds_in_vain += 1;
            if scheduler.guest_has_ready() && rounds_in_vain < ROUNDS_IN_VAIN * cores {
                // The guest may wait for time to pass.
                scheduler.tick();
                continue;
            }
            rounds_in_vain = 0;
            match scheduler.timers.first() {
                Some(time) => {
                    scheduler.advance_clock(time);
                    scheduler.timers.expire(scheduler.now());
                }
                None => break,
            }
        }
        runtime::set_simulated_core(crate::context::ANYWHERE);
        outcome.stuck = scheduler.alive();
        outcome.time = Duration::from_nanos(scheduler.now());
        outcome
    }

    /// The clock moves a little after each turn of a fiber, so that waits end at any moment.
    fn pass_time(&self, random: &mut SplitMix) {
        let scheduler = &self.scheduler;
        if scheduler.guest.get().is_some() && random.next().is_multiple_of(16) {
            scheduler.tick();
        }
        scheduler.advance_clock(scheduler.now() + random.next() % 1000);
        scheduler.timers.expire(scheduler.now());
    }
}

/// Numbers from a seed.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, 0)
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.rotate_left(32);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
