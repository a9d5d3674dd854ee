//! The whole scheduler under seeds: many simulated workers, a virtual clock, and all primitives.

#![cfg(not(loom))]

use garonne_fiber::{
    Barrier, Condvar, Mutex, Outcome, Semaphore, Simulation, sleep, spawn, yield_now,
};
use garonne_topology::Tree;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("GARONNE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => seed..seed + 1,
        None => {
            0..std::env::var("GARONNE_SEEDS")
                .ok()
                .and_then(|seeds| seeds.parse().ok())
                .unwrap_or(100)
        }
    }
}

/// Runs one seed; a failure names it.
fn simulate(seed: u64, body: impl FnOnce() + Send + 'static) -> Outcome {
    struct Name(u64);
    impl Drop for Name {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("GARONNE_SEED={} does it again", self.0);
            }
        }
    }
    let _name = Name(seed);
    let machine = Tree::regular(1, 2, 2, 1 + (seed % 3) as u32);
    Simulation::new(machine, seed).run(body)
}

/// Producers, consumers with limits, a barrier, sleepers: everything comes to its end.
fn busy_world(done: Arc<AtomicUsize>) {
    let items = Arc::new((
        Mutex::new(0),
        Condvar::new(),
        Semaphore::new(2),
        Barrier::new(4),
    ));
    let producers = (0..4).map(|n| {
        let items = items.clone();
        spawn(move || {
            for round in 0..5 {
                items.2.wait();
                sleep(Duration::from_micros(n * round));
                *items.0.lock() += 1;
                items.1.notify_one();
                items.2.post();
            }
            items.3.wait();
        })
    });
    let consumers = (0..3).map(|_| {
        let (items, done) = (items.clone(), done.clone());
        spawn(move || {
            while done.load(Ordering::Relaxed) < 20 {
                let mut count = items.0.lock();
                if *count == 0 {
                    (count, _) = items.1.wait_for(count, Duration::from_micros(3));
                }
                if *count > 0 {
                    *count -= 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                drop(count);
                yield_now();
            }
        })
    });
    let fibers: Vec<_> = producers.chain(consumers).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

#[test]
fn every_order_comes_to_its_end_and_a_seed_does_it_again() {
    for seed in seeds() {
        let outcomes = [0, 1].map(|_| {
            let done = Arc::new(AtomicUsize::new(0));
            let counted = done.clone();
            let outcome = simulate(seed, move || busy_world(counted));
            assert_eq!(
                (outcome.stuck, done.load(Ordering::Relaxed)),
                (0, 20),
                "GARONNE_SEED={seed}"
            );
            outcome
        });
        assert_eq!(outcomes[0], outcomes[1], "GARONNE_SEED={seed}");
    }
}

#[test]
fn an_hour_of_sleep_takes_no_time_and_fibers_that_wait_for_ever_are_counted() {
    let outcome = simulate(7, || sleep(Duration::from_secs(3600)));
    assert!(outcome.time >= Duration::from_secs(3600) && outcome.stuck == 0);
    let outcome = simulate(7, || {
        let never = Arc::new(Semaphore::new(0));
        let other = never.clone();
        spawn(move || other.wait());
        never.wait();
    });
    assert_eq!(outcome.stuck, 2);
}
