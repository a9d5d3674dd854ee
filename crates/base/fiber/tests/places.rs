//! Fibers whose place changes while they wait, run and are queued.

use garonne_fiber::{Builder, Place, Semaphore, worker_cpus};
use std::sync::Arc;

/// Each round wakes the fiber and tells it another CPU at once, so that it may be queued where it
/// may no longer run. A fiber that nobody takes out of a queue is a hang.
#[test]
fn a_fiber_that_moves_while_it_is_queued_goes_on() {
    let cpus: Vec<u32> = worker_cpus().iter().collect();
    let (ask, answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let rounds = 400;
    let (own_ask, own_answer) = (ask.clone(), answer.clone());
    let fiber = Builder::new()
        .start(move || {
            for _ in 0..rounds {
                own_ask.wait();
                own_answer.post();
            }
        })
        .unwrap();
    for round in 0..rounds {
        let mut set = garonne_topology::CpuSet::new();
        set.insert(cpus[round % cpus.len()]);
        ask.post();
        fiber.set_place(&Place::Cpus(set)).unwrap();
        answer.wait();
    }
    fiber.wait();
}
