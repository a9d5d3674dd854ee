//! Simulated jobs under all that a medium may do: damage, partitions, several ways that fail, slow
//! ranks and deaths, alone and at once. Each seed runs twice.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{CallOrigin, Error, Pattern, RecvArgs, SendArgs, SendCompletion, Source};
use garonne_engine::reliable::LOST_AFTER_NS;
use garonne_progress::messaging::Messaging;
use garonne_sim::MemoryAccess;
use garonne_sim::faults::{
    FOR_EVER, FaultCounts, Faults, Outage, OutageKind, Partition, SILENCE_NS,
};
use garonne_sim::job::{SimHost, SimJob, check};
use garonne_sim::random::Random;
use garonne_sim::seeds::run_seeds;
use garonne_sim::storm::{deaths, rift, storm};
use garonne_sim::traffic::{EXACT, LENS, finish, plan, play};
use garonne_sync::user::{Data, Scratch};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A context that no plan uses.
const UNUSED: u32 = 8;
/// Messages that are many pieces.
const LONG: [usize; 3] = [9_000, 20_000, 60_000];

fn job(seed: u64, world: u32, faults: Faults) -> SimJob {
    let mut random = Random::new(seed);
    let envelopes = [1, 2, 16, 1024][random.below(4) as usize];
    let payload = [300, 4096][random.below(2) as usize];
    SimJob {
        world,
        seed,
        faults,
        quotas: CreditQuotas { envelopes, payload },
        memory: [
            MemoryAccess::Apart,
            MemoryAccess::Asked,
            MemoryAccess::Asked,
            MemoryAccess::Reached,
        ][random.below(4) as usize],
    }
}

/// All ranks of the job play `count` messages of these lengths.
fn exchange(job: &SimJob, count: u64, lens: &[usize]) -> FaultCounts {
    let plan = plan(job.seed, job.world, count, lens);
    let outcome = check(job, |host: Arc<SimHost>| {
        play(&host, &plan, |_| false);
    });
    outcome.tally
}

#[test]
fn what_a_medium_changes_is_noticed_and_sent_again() {
    let mut total = FaultCounts::default();
    for seed in 0..12 {
        let faults = Faults {
            delay_ns: (500, 20_000),
            damage: 300,
            until_ns: FOR_EVER,
            ..Faults::none()
        };
        let tally = exchange(&job(seed, 3, faults), 30, &LENS);
        assert_eq!(tally.given_up, 0, "seed {seed}: {tally:?}");
        total.add(&tally);
    }
    // Some come when their receivers have ended.
    let refused = total.damaged * 9 / 10..=total.damaged;
    assert!(
        total.damaged > 500 && refused.contains(&total.refused),
        "{total:?}"
    );
}

#[test]
fn a_way_that_dies_stands_still_or_comes_back_in_the_middle_of_a_message_loses_and_doubles_nothing()
{
    let mut total = FaultCounts::default();
    for seed in 0..72 {
        let mut random = Random::new(seed);
        let ways = 2 + random.below(2) as u8;
        let begins_ns = random.below(400_000);
        let ends_ns = begins_ns + 20_000_000;
        let outage = |way: u8, span_ns, how| Outage {
            way,
            of: None,
            span_ns,
            how,
        };
        let outages = match seed % 3 {
            0 => vec![outage(0, begins_ns..FOR_EVER, OutageKind::Lost)],
            1 => vec![outage(1, begins_ns..ends_ns, OutageKind::Held)],
            // One after the other, so that all is on the one that failed before.
            _ => vec![
                outage(0, begins_ns..ends_ns, OutageKind::Lost),
                outage(1, ends_ns..FOR_EVER, OutageKind::Lost),
            ],
        };
        let faults = Faults {
            delay_ns: (5_000, 30_000),
            ways,
            outages,
            ..Faults::none()
        };
        let mut job = job(seed, 2, faults);
        job.memory = if seed % 2 == 0 {
            MemoryAccess::Asked
        } else {
            MemoryAccess::Apart
        };
        total.add(&exchange(&job, 12, &LONG));
    }
    let happened = [
        total.elsewhere,
        total.held,
        total.blocked,
        total.doubled,
        total.pieces,
    ];
    assert!(happened.iter().all(|count| *count > 10), "{total:?}");
    assert_eq!(total.given_up, 0);
}

#[test]
fn a_partition_that_heals_loses_nothing() {
    let mut total = FaultCounts::default();
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let begins_ns = random.below(300_000);
        // As long as a link tries, but for the last wait before it gives up.
        let most_ns = LOST_AFTER_NS - 110_000_000;
        let faults = Faults {
            delay_ns: (500, 30_000),
            partitions: vec![Partition {
                side: [0, 3].into(),
                span_ns: begins_ns..begins_ns + 1 + random.below(most_ns),
            }],
            ..Faults::none()
        };
        total.add(&exchange(&job(seed, 5, faults), 60, &LENS));
    }
    assert!(total.blocked > 100, "{total:?}");
    assert_eq!(total.given_up, 0);
}

/// The virtual time at which a rank hears that `peer` is gone: it waits for it, with a message or
/// for one.
fn loses(host: &SimHost, peer: u32, speaks: bool) -> u64 {
    let (source, origin) = (Source { rank: peer, peer }, CallOrigin::default());
    let memory = Scratch::new(8).expect("memory");
    let data = Data::contiguous(memory.mem(), 8);
    let started = if speaks {
        host.send(SendArgs {
            context: UNUSED,
            peer,
            source: host.me(),
            tag: 1,
            data,
            mode: SendCompletion::Synchronous,
            origin,
        })
    } else {
        let pattern = Pattern {
            context: UNUSED,
            source: Some(source),
            tag: Some(1),
        };
        host.recv(RecvArgs {
            pattern,
            data,
            origin,
        })
    };
    let error = match started {
        Ok(started) => finish(host, started).error.expect("nobody answers"),
        Err(error) => error,
    };
    assert!(
        matches!(error, Error::Peer { peer: lost, .. } if lost == peer),
        "{error:?}"
    );
    host.inspect(|shard| shard.transport().now_ns())
}

#[test]
fn across_a_partition_that_stays_who_speaks_gives_up_and_who_listens_is_told() {
    for seed in 0..6 {
        let faults = Faults {
            partitions: vec![Partition {
                side: [0, 1].into(),
                span_ns: 0..FOR_EVER,
            }],
            ..Faults::none()
        };
        check(&job(seed, 4, faults), |host: Arc<SimHost>| {
            let me = host.me();
            let speaks = me == 0;
            let lost_ns = loses(&host, 3 - me, speaks);
            let told_ns = if speaks { LOST_AFTER_NS } else { SILENCE_NS };
            // A virtual clock does not stand still while ranks run, but hardly moves.
            assert!(
                (told_ns..told_ns + 50_000_000).contains(&lost_ns),
                "{me}: {lost_ns} {told_ns}"
            );
            // Those of one side have each other.
            let message = plan(seed, 2, 4, &LENS);
            let base = me / 2 * 2;
            let here: Vec<_> = message
                .into_iter()
                .map(|mut message| {
                    (message.from, message.to) = (message.from + base, message.to + base);
                    message
                })
                .collect();
            play(&host, &here, |_| false);
        });
    }
}

#[test]
fn slow_ranks_hold_up_nobody_for_ever() {
    let mut total = FaultCounts::default();
    for seed in 0..12 {
        let faults = Faults {
            slow: vec![(0, 100_000 + seed * 400_000), (3, 3_000_000)],
            inbox_max: 3,
            ..Faults::none()
        };
        total.add(&exchange(&job(seed, 5, faults), 80, &LENS));
    }
    assert!(total.overrun > 20, "{total:?}");
    assert_eq!(total.given_up, 0);
}

#[test]
fn small_jobs_exchange_in_all_weathers() {
    let which = "-p garonne-sim --test fault_storms small_jobs_exchange_in_all_weathers";
    run_seeds(which, 0..24, |seed| {
        let world = 2 + (seed % 7) as u32;
        let lens = if seed % 3 == 0 { &LONG[..] } else { &LENS[..] };
        let tally = exchange(&job(seed, world, storm(seed, world)), 40, lens);
        assert_eq!(tally.given_up, 0, "{tally:?}");
    });
}

#[test]
fn hundreds_of_ranks_exchange_in_all_weathers() {
    let which = "-p garonne-sim --test fault_storms hundreds_of_ranks_exchange_in_all_weathers";
    run_seeds(which, 0..2, |seed| {
        let world = 200;
        let tally = exchange(&job(seed, world, storm(seed, world)), 1_000, &LENS);
        assert_eq!(tally.given_up, 0, "{tally:?}");
        let happened = [tally.damaged, tally.refused];
        assert!(happened.iter().all(|count| *count > 0), "{tally:?}");
    });
}

#[test]
fn of_hundreds_of_ranks_in_all_weathers_some_die_and_the_others_end_with_their_messages_or_an_error()
 {
    let which = "-p garonne-sim --test fault_storms of_hundreds_of_ranks_in_all_weathers_some_die_and_the_others_end_with_their_messages_or_an_error";
    // In the last, all who die have done their part before.
    run_seeds(which, [0, 117_671_635_648_513], |seed| {
        let world = 200;
        let mut faults = storm(seed, world);
        faults.deaths = deaths(seed, world, 4);
        let dead: BTreeSet<u32> = faults.deaths.iter().map(|(rank, _)| *rank).collect();
        // Wildcards may wait for a dead one's messages for ever, which is what the standard says.
        let mut plan = plan(seed, world, 1_000, &LENS);
        plan.iter_mut().for_each(|message| message.context = EXACT);
        let learned = AtomicU64::new(0);
        check(&job(seed, world, faults), |host: Arc<SimHost>| {
            play(&host, &plan, |peer| dead.contains(&peer));
            if dead.contains(&host.me()) {
                // Whenever it dies, it is here.
                loses(&host, host.me(), false);
            }
            for peer in &dead {
                loses(&host, *peer, false);
            }
            learned.fetch_add(1, Ordering::Relaxed);
        });
        let survivors = u64::from(world) - dead.len() as u64;
        assert_eq!(learned.into_inner(), 2 * survivors);
    });
}

#[test]
fn what_a_rift_leaves_together_goes_on_and_what_it_parts_ends_with_an_error() {
    let which = "-p garonne-sim --test fault_storms what_a_rift_leaves_together_goes_on_and_what_it_parts_ends_with_an_error";
    run_seeds(which, 0..10, |seed| {
        let world = 10 + (seed % 30) as u32;
        let mut faults = storm(seed, world);
        let rift = rift(seed, world);
        faults.partitions.push(rift.clone());
        let mut plan = plan(seed, world, 6 * u64::from(world), &LENS);
        plan.iter_mut().for_each(|message| message.context = EXACT);
        check(&job(seed, world, faults), |host: Arc<SimHost>| {
            let me = host.me();
            play(&host, &plan, |peer| rift.parts(me, peer));
        });
    });
}
