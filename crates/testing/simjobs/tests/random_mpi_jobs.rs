//! Collectives, communicators and point-to-point of whole simulated jobs under delay, reordering,
//! loss and repeats; each seed runs twice and must take the same course.

mod common;

use common::{collectives, gossip, mpi};
use garonne_engine::CreditQuotas;
use garonne_sim::faults::Faults;
use garonne_sim::job::SimJob;
use garonne_sim::random::Random;

fn job(seed: u64, world: u32) -> SimJob {
    let mut random = Random::new(seed);
    let faults = Faults {
        delay_ns: (500, 2_000 + random.below(60_000)),
        loss: random.below(100),
        repeat: random.below(50),
        until_ns: 1_000_000,
        ..Faults::none()
    };
    let envelopes = [1, 2, 16, 1024][random.below(4) as usize];
    SimJob {
        world,
        seed,
        faults,
        memory: garonne_sim::MemoryAccess::Apart,
        quotas: CreditQuotas {
            envelopes,
            payload: 1024,
        },
    }
}

#[test]
fn collectives_of_small_jobs_come_out_right_from_every_seed() {
    for seed in 0..100 {
        mpi(&job(seed, 1 + (seed % 9) as u32), |world| {
            collectives(world, seed, 3)
        });
    }
}

#[test]
fn jobs_of_hundreds_of_ranks_split_reduce_and_gossip() {
    for (seed, world) in [(1000, 128), (1001, 200), (1002, 256)] {
        mpi(&job(seed, world), |world| {
            let half = world
                .split(
                    (world.rank() % 2) as i32,
                    0,
                    garonne_engine::api::CallOrigin::default(),
                )
                .expect("split")
                .expect("everybody has a colour");
            collectives(&half, seed, 3);
            gossip(world, 3);
        });
    }
}
