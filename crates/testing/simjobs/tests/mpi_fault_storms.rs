//! MPI jobs of hundreds of simulated ranks under all that a medium may do at once, with deaths, and
//! with partitions that stay. Each seed runs twice.

mod common;

use common::{collectives, gossip, hopeless, mpi, shift};
use garonne_engine::CreditQuotas;
use garonne_engine::api::CallOrigin;
use garonne_mpi::comm::Comm;
use garonne_mpi::error::Class;
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::SimJob;
use garonne_sim::random::Random;
use garonne_sim::seeds::run_seeds;
use garonne_sim::storm::{deaths, rift, storm};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lengths of all kinds: in one packet, in pieces, announced and fetched over all ways.
const LENS: [usize; 4] = [40, 700, 3_000, 20_000];

fn job(seed: u64, world: u32, faults: Faults) -> SimJob {
    let mut random = Random::new(seed);
    let envelopes = [1, 2, 16, 1024][random.below(4) as usize];
    SimJob {
        world,
        seed,
        faults,
        memory: [MemoryAccess::Apart, MemoryAccess::Asked][random.below(2) as usize],
        quotas: CreditQuotas {
            envelopes,
            payload: 1024,
        },
    }
}

/// Collectives at a time: fewer where each takes long.
fn count(comm: &Comm) -> u32 {
    if comm.size() > 64 { 1 } else { 3 }
}

/// Makes a communicator of these ranks of the world and synchronizes in it.
fn meet(world: &Comm, ranks: &[u32], seed: u64) {
    let ranks: Vec<i32> = ranks.iter().map(|rank| *rank as i32).collect();
    let group = world.group().incl(&ranks).expect("a group");
    let met = world
        .create_group(&group, 5, CallOrigin::default())
        .expect("a communicator")
        .expect("all are members");
    collectives(&met, seed, count(&met));
    shift(&met, 1 + seed as u32 % 7, &LENS[..3]);
}

/// Collectives and messages of both kinds, among all and among halves.
fn everything(world: &Comm, seed: u64) {
    let half = world
        .split((world.rank() % 2) as i32, 0, CallOrigin::default())
        .expect("split")
        .expect("everybody has a colour");
    collectives(&half, seed, count(&half));
    gossip(world, 3.min(world.size()));
    // Not among all: who gossips takes what comes.
    shift(&half, 1 + seed as u32 % half.size(), &LENS);
    collectives(world, seed ^ 1, count(world));
}

#[test]
fn small_jobs_come_out_right_in_all_weathers() {
    let which =
        "-p garonne-simjobs --test mpi_fault_storms small_jobs_come_out_right_in_all_weathers";
    run_seeds(which, 0..10, |seed| {
        let size = 2 + (seed % 15) as u32;
        let outcome = mpi(&job(seed, size, storm(seed, size)), |world| {
            everything(world, seed)
        });
        assert_eq!(outcome.tally.given_up, 0, "{:?}", outcome.tally);
    });
}

#[test]
fn jobs_of_hundreds_of_ranks_come_out_right_in_all_weathers() {
    let which = "-p garonne-simjobs --test mpi_fault_storms jobs_of_hundreds_of_ranks_come_out_right_in_all_weathers";
    run_seeds(which, 0..1, |seed| {
        let size = 200;
        let outcome = mpi(&job(seed, size, storm(seed, size)), |world| {
            everything(world, seed)
        });
        let tally = outcome.tally;
        assert!(tally.given_up == 0 && tally.refused > 0, "{tally:?}");
    });
}

#[test]
fn of_hundreds_of_ranks_some_die_the_others_learn_of_it_and_meet_without_them() {
    let which = "-p garonne-simjobs --test mpi_fault_storms of_hundreds_of_ranks_some_die_the_others_learn_of_it_and_meet_without_them";
    run_seeds(which, 0..1, |seed| {
        let size = 200;
        let mut faults = storm(seed, size);
        faults.deaths = deaths(seed, size, 5);
        let dead: BTreeSet<u32> = faults.deaths.iter().map(|(rank, _)| *rank).collect();
        let alive: Vec<u32> = (0..size).filter(|rank| !dead.contains(rank)).collect();
        let learned = AtomicU64::new(0);
        mpi(&job(seed, size, faults), |world| {
            if dead.contains(&world.rank()) {
                // Whenever it dies, it is here.
                hopeless(world, world.rank());
            }
            meet(world, &alive, seed);
            for source in &dead {
                assert_eq!(hopeless(world, *source), Class::ProcAborted);
            }
            learned.fetch_add(1, Ordering::Relaxed);
            meet(world, &alive, seed ^ 1);
        });
        assert_eq!(learned.into_inner(), 2 * alive.len() as u64);
    });
}

#[test]
fn each_side_of_a_rift_learns_that_the_other_is_gone_and_meets_without_it() {
    let which = "-p garonne-simjobs --test mpi_fault_storms each_side_of_a_rift_learns_that_the_other_is_gone_and_meets_without_it";
    // In the last, answers went by a way that was down until their peer was given up.
    run_seeds(which, (0..4).chain([117_671_635_648_533]), |seed| {
        let size = 10 + (seed % 60) as u32;
        let mut faults = storm(seed, size);
        let rift = rift(seed, size);
        faults.partitions.push(rift.clone());
        mpi(&job(seed, size, faults), |world| {
            let me = world.rank();
            let (there, here): (Vec<u32>, Vec<u32>) =
                (0..size).partition(|other| rift.parts(me, *other));
            meet(world, &here, seed);
            assert_eq!(
                hopeless(world, there[me as usize % there.len()]),
                Class::ProcAborted
            );
            meet(world, &here, seed ^ 1);
        });
    });
}
