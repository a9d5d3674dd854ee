//! Simulated jobs of random programs under faults, each seed run twice.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{CallOrigin, Pattern, RecvArgs, SendArgs, SendCompletion, Source};
use garonne_engine::schedule::plugin::{
    CheckedPlugin, DecisionCounts, DecisionKind, PluginAnswer, PluginDecisions, StrategyPlugin,
    WindowView,
};
use garonne_progress::messaging::Messaging;
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, check, run};
use garonne_sim::random::Random;
use garonne_sim::traffic::{EXACT, LENS, PlannedMessage, filled, finish, plan, play};
use garonne_sync::user::{Data, Scratch};
use std::sync::{Arc, Mutex};

fn job(seed: u64, world: u32) -> SimJob {
    let mut random = Random::new(seed);
    let quota = [1, 2, 3, 8, 1024][random.below(5) as usize];
    let payload = [64, 300, 4096][random.below(3) as usize];
    let most = 1_000 + random.below(100_000);
    let faults = Faults {
        delay_ns: (500, most),
        loss: random.below(200),
        repeat: random.below(100),
        until_ns: 2_000_000,
        ..Faults::none()
    };
    SimJob {
        world,
        seed,
        faults,
        quotas: CreditQuotas {
            envelopes: quota,
            payload,
        },
        memory: if seed.is_multiple_of(3) {
            MemoryAccess::Apart
        } else {
            MemoryAccess::Reached
        },
    }
}

#[test]
fn every_message_arrives_once_intact_and_in_order_through_delay_loss_repeats_and_reordering() {
    for seed in 0..120 {
        let world = 2 + (seed % 5) as u32;
        let plan = plan(seed, world, 60, &LENS);
        check(&job(seed, world), |host: Arc<SimHost>| {
            play(&host, &plan, |_| false);
        });
    }
}

/// Says anything at all about orders: rubbish, nothing, too little, and now and then a plan.
#[derive(Debug)]
struct Mad(Mutex<Random>);

impl StrategyPlugin for Mad {
    fn decides(&self) -> PluginDecisions {
        PluginDecisions {
            order: true,
            ..PluginDecisions::default()
        }
    }

    fn order(&self, window: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
        assert!(
            window.chunks.len() > 1 && window.envelopes > 0,
            "asked without need"
        );
        let mut random = self.0.lock().expect("no panic");
        let all = window.chunks.len();
        match random.below(6) {
            0 => PluginAnswer::Yours,
            1 => PluginAnswer::Rubbish,
            2 => PluginAnswer::Decided(Vec::new()),
            3 => PluginAnswer::Decided((0..all).rev().collect()),
            4 => PluginAnswer::Decided(
                (0..all)
                    .map(|_| random.below(all as u64 + 1) as usize)
                    .collect(),
            ),
            _ => {
                // One after the other, of any context.
                let mut left: Vec<usize> = (0..all).collect();
                let mut order = Vec::new();
                while !left.is_empty() {
                    let any = left[random.below(left.len() as u64) as usize];
                    let context = window.chunks[any].context;
                    let first = left
                        .iter()
                        .position(|at| window.chunks[*at].context == context);
                    order.push(left.remove(first.expect("it is there")));
                }
                PluginAnswer::Decided(order)
            }
        }
    }
}

#[test]
fn nothing_is_lost_damaged_or_out_of_order_however_mad_the_strategy() {
    let total = Mutex::new([0; 3]);
    for seed in 2000..2120 {
        let world = 2 + (seed % 3) as u32;
        let plan = plan(seed, world, 90, &LENS);
        check(&job(seed, world), |host: Arc<SimHost>| {
            let mad = Mad(Mutex::new(Random::new(seed ^ u64::from(host.me()) << 32)));
            let loaded = Arc::new(CheckedPlugin::new(Box::new(mad), world));
            host.inspect(|shard| shard.set_plugin(loaded.clone()));
            play(&host, &plan, |_| false);
            let counts = (0..world).map(|peer| loaded.counts(peer)[DecisionKind::Order as usize]);
            let mut total = total.lock().expect("no panic");
            for DecisionCounts {
                asked,
                accepted,
                refused,
            } in counts
            {
                for (sum, count) in total.iter_mut().zip([asked, accepted, refused]) {
                    *sum += count;
                }
            }
        });
    }
    let [asked, accepted, refused] = total.into_inner().expect("no panic");
    assert!(
        accepted > 100 && refused > 100 && asked > accepted + refused,
        "{asked} {accepted} {refused}"
    );
}

#[test]
fn survivors_end_with_an_error_or_their_message_when_a_rank_dies() {
    for seed in 1000..1080 {
        let mut job = job(seed, 4);
        let dead = (seed % 4) as u32;
        job.faults
            .deaths
            .push((dead, 10_000 + seed * 7919 % 400_000));
        // Wildcards may wait for the dead one's messages for ever, which is what the standard says:
        // exact receives only.
        let mut plan = plan(seed, 4, 60, &LENS);
        plan.iter_mut().for_each(|message| message.context = EXACT);
        check(&job, |host: Arc<SimHost>| {
            play(&host, &plan, |peer| peer == dead);
        });
    }
}

#[test]
fn a_job_of_hundreds_of_ranks_exchanges_with_its_neighbours() {
    for seed in 0..3 {
        let world = 300;
        let program = |host: Arc<SimHost>| {
            let host = &*host;
            let (me, right, left) = (
                host.me(),
                (host.me() + 1) % world,
                (host.me() + world - 1) % world,
            );
            for round in 0..2u64 {
                let message = PlannedMessage {
                    from: me,
                    to: right,
                    context: 0,
                    tag: 1,
                    len: 600,
                    number: u64::from(me) * 10 + round,
                    mode: SendCompletion::Standard,
                };
                let (out, room) = (filled(&message), Scratch::new(600).expect("memory"));
                let pattern = Pattern {
                    context: 0,
                    source: Some(Source {
                        rank: left,
                        peer: left,
                    }),
                    tag: Some(1),
                };
                let data = Data::contiguous(room.mem(), 600);
                let receive = host
                    .recv(RecvArgs {
                        pattern,
                        data,
                        origin: CallOrigin::default(),
                    })
                    .expect("posted");
                let data = Data::contiguous(out.mem(), 600);
                let send = SendArgs {
                    context: 0,
                    peer: right,
                    source: me,
                    tag: 1,
                    data,
                    mode: SendCompletion::Standard,
                    origin: CallOrigin::default(),
                };
                let send = host.send(send).expect("started");
                assert_eq!(finish(host, receive).len, 600);
                finish(host, send);
                let first = room.mem().with(0, 8, |bytes| {
                    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
                });
                assert_eq!(first, u64::from(left) * 10 + round);
            }
        };
        let mut job = job(seed, world);
        job.faults.until_ns = 300_000;
        check(&job, program);
    }
}

#[test]
fn a_program_that_waits_for_a_message_nobody_sends_is_reported_with_its_seed() {
    let outcome = run(&job(7, 2), |host: Arc<SimHost>| {
        if host.me() == 0 {
            let room = Scratch::new(8).expect("memory");
            let pattern = Pattern {
                context: 0,
                source: None,
                tag: None,
            };
            let data = Data::contiguous(room.mem(), 8);
            let receive = host
                .recv(RecvArgs {
                    pattern,
                    data,
                    origin: CallOrigin::default(),
                })
                .expect("posted");
            finish(&*host, receive);
        } else {
            // The other must not poll for ever in its stead.
            std::panic::resume_unwind(Box::new(garonne_sim::fabric::Killed));
        }
    });
    assert_eq!(
        outcome.failure.as_deref(),
        Some("seed 7: nothing can happen any more, but ranks still wait")
    );
}
