//! Simulated jobs of random programs under faults, each seed run twice.

use garonne_engine::Quotas;
use garonne_engine::api::{Error, Mode, Origin, Pattern, Recv, Request, Send, Source, Started, Status};
use garonne_engine::strategy::loaded::{Answer, Counts, Decides, Loaded, Question, Strategy, Window};
use garonne_progress::host::Host;
use garonne_sim::Memory;
use garonne_sim::fabric::Faults;
use garonne_sim::job::{Job, SimHost, check, run};
use garonne_sim::random::Random;
use garonne_sync::user::{Data, Scratch};
use std::sync::{Arc, Mutex};

/// How the receives of a context name their messages. One way per context: then every message can be received.
const CONTEXTS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

#[derive(Clone, Copy, Debug)]
struct Planned {
    from: u32,
    to: u32,
    context: usize,
    tag: i32,
    len: usize,
    number: u64,
    mode: Mode,
}

/// The messages of a job: the same on every rank.
fn plan(seed: u64, world: u32, count: u64) -> Vec<Planned> {
    let mut random = Random::new(seed ^ 0x5eed);
    (0..count)
        .map(|number| Planned {
            from: random.below(u64::from(world)) as u32,
            to: random.below(u64::from(world)) as u32,
            context: random.below(4) as usize,
            tag: random.below(3) as i32,
            len: [0, 8, 32, 33, 200, 256, 257, 1500, 9000][random.below(9) as usize],
            number,
            mode: if random.one_in(4) {
                Mode::Synchronous
            } else {
                Mode::Standard
            },
        })
        .collect()
}

/// Every message starts with its number as far as it fits and goes on in a pattern of it.
fn byte(number: u64, at: usize) -> u8 {
    if at < 8 {
        number.to_le_bytes()[at]
    } else {
        (number as u8).wrapping_mul(37).wrapping_add(at as u8)
    }
}

fn finish(host: &dyn Host, started: Started) -> Status {
    match started {
        Started::Done(status) => status,
        Started::Pending(request) => wait(host, request),
    }
}

fn wait(host: &dyn Host, request: Request) -> Status {
    let mut status = None;
    host.wait_until(&mut || {
        status = host.take(request).expect("the request is ours");
        status.is_some()
    });
    status.expect("the wait ended")
}

/// Plays one rank of the plan and checks what it receives. `dead` ranks' messages may end in an error.
fn play(host: &SimHost, plan: &[Planned], dead: &[u32]) {
    let me = host.me();
    let mut random = Random::new(u64::from(me) ^ plan.len() as u64);
    let outgoing: Vec<&Planned> = plan.iter().filter(|message| message.from == me).collect();
    let incoming: Vec<&Planned> = plan.iter().filter(|message| message.to == me).collect();
    let buffers: Vec<Scratch> = outgoing.iter().map(|message| filled(message)).collect();
    let rooms: Vec<Scratch> = incoming
        .iter()
        .map(|_| Scratch::new(9000).expect("memory"))
        .collect();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    let (mut next_out, mut next_in) = (0, 0);
    while next_out < outgoing.len() || next_in < incoming.len() {
        let send = next_out < outgoing.len() && (next_in == incoming.len() || random.one_in(2));
        if send {
            let message = outgoing[next_out];
            let data = Data::contiguous(buffers[next_out].mem(), message.len as u64);
            let started = host.send(Send {
                context: message.context as u32 * 2,
                peer: message.to,
                source: me,
                tag: message.tag,
                data,
                mode: message.mode,
                origin: Origin::default(),
            });
            sends.push((message, started));
            next_out += 1;
        } else {
            let message = incoming[next_in];
            let (by_source, by_tag) = CONTEXTS[message.context];
            let pattern = Pattern {
                context: message.context as u32 * 2,
                source: by_source.then_some(Source {
                    rank: message.from,
                    peer: message.from,
                }),
                tag: by_tag.then_some(message.tag),
            };
            let data = Data::contiguous(rooms[next_in].mem(), 9000);
            let started = host.recv(Recv {
                pattern,
                data,
                origin: Origin::default(),
            });
            if let Ok(Started::Pending(name)) = started {
                host.announce(name);
            }
            receives.push((pattern, next_in, started));
            next_in += 1;
        }
        if random.one_in(8) {
            host.progress();
        }
    }
    let mut seen = vec![false; plan.len()];
    let mut last = std::collections::HashMap::new();
    for (pattern, room, started) in receives {
        let status = match started {
            Ok(started) => finish(host, started),
            Err(Error::Peer { peer, .. }) if dead.contains(&peer) => continue,
            Err(other) => panic!("a receive was refused: {other:?}"),
        };
        if let Some(error) = status.error {
            assert!(
                matches!(error, Error::Peer { peer, .. } if dead.contains(&peer)),
                "unexpected: {error:?}"
            );
            continue;
        }
        check_message(plan, me, &pattern, &status, &rooms[room], &mut seen, &mut last);
    }
    for (message, started) in sends {
        match started {
            Ok(started) => {
                let status = finish(host, started);
                assert!(
                    status.error.is_none() || dead.contains(&message.to),
                    "{message:?}: {status:?}"
                );
            }
            Err(error) => assert!(dead.contains(&message.to), "{message:?}: {error:?}"),
        }
    }
    if dead.is_empty() {
        let missing = incoming
            .iter()
            .find(|message| message.len >= 8 && !seen[message.number as usize]);
        assert!(missing.is_none(), "never received: {missing:?}");
    }
}

fn filled(message: &Planned) -> Scratch {
    let buffer = Scratch::new(message.len).expect("memory");
    let bytes: Vec<u8> = (0..message.len).map(|at| byte(message.number, at)).collect();
    buffer.mem().write(0, &bytes);
    buffer
}

type Last = std::collections::HashMap<(Pattern, u32), u64>;

/// Exactly once, intact, as sent, and in the order of sends among those that one pattern takes from one sender.
fn check_message(
    plan: &[Planned],
    me: u32,
    pattern: &Pattern,
    status: &Status,
    room: &Scratch,
    seen: &mut [bool],
    last: &mut Last,
) {
    if status.len < 8 {
        return;
    }
    let mut bytes = vec![0; status.len as usize];
    room.mem().read(0, &mut bytes);
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let message = plan.get(number as usize).expect("a message of the plan");
    assert_eq!(
        (message.to, message.from, message.tag, message.len as u64),
        (me, status.source, status.tag, status.len)
    );
    assert_eq!(message.context as u32 * 2, pattern.context);
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, value)| *value == byte(number, at)),
        "message {number} was damaged"
    );
    assert!(
        !std::mem::replace(&mut seen[number as usize], true),
        "message {number} arrived twice"
    );
    if let Some(before) = last.insert((*pattern, status.source), number) {
        assert!(before < number, "message {number} overtook {before}");
    }
}

fn job(seed: u64, world: u32) -> Job {
    let mut random = Random::new(seed);
    let quota = [1, 2, 3, 8, 1024][random.below(5) as usize];
    let payload = [64, 300, 4096][random.below(3) as usize];
    let most = 1_000 + random.below(100_000);
    let faults = Faults {
        delay_ns: (500, most),
        loss: random.below(200),
        repeat: random.below(100),
        until_ns: 2_000_000,
        deaths: Vec::new(),
    };
    Job {
        world,
        seed,
        faults,
        quotas: Quotas {
            envelopes: quota,
            payload,
        },
        memory: if seed.is_multiple_of(3) {
            Memory::Apart
        } else {
            Memory::Reached
        },
    }
}

#[test]
fn every_message_arrives_once_intact_and_in_order_through_delay_loss_repeats_and_reordering() {
    for seed in 0..120 {
        let world = 2 + (seed % 5) as u32;
        let plan = plan(seed, world, 60);
        check(&job(seed, world), |host: Arc<SimHost>| play(&host, &plan, &[]));
    }
}

/// Says anything at all about orders: rubbish, nothing, too little, and now and then a plan.
#[derive(Debug)]
struct Mad(Mutex<Random>);

impl Strategy for Mad {
    fn decides(&self) -> Decides {
        Decides {
            order: true,
            ..Decides::default()
        }
    }

    fn order(&self, window: &Window<'_>) -> Answer<Vec<usize>> {
        assert!(
            window.chunks.len() > 1 && window.envelopes > 0,
            "asked without need"
        );
        let mut random = self.0.lock().expect("no panic");
        let all = window.chunks.len();
        match random.below(6) {
            0 => Answer::Yours,
            1 => Answer::Rubbish,
            2 => Answer::Decided(Vec::new()),
            3 => Answer::Decided((0..all).rev().collect()),
            4 => Answer::Decided((0..all).map(|_| random.below(all as u64 + 1) as usize).collect()),
            _ => {
                // One after the other, of any context.
                let mut left: Vec<usize> = (0..all).collect();
                let mut order = Vec::new();
                while !left.is_empty() {
                    let any = left[random.below(left.len() as u64) as usize];
                    let context = window.chunks[any].context;
                    let first = left.iter().position(|at| window.chunks[*at].context == context);
                    order.push(left.remove(first.expect("it is there")));
                }
                Answer::Decided(order)
            }
        }
    }
}

#[test]
fn nothing_is_lost_damaged_or_out_of_order_however_mad_the_strategy() {
    let total = Mutex::new([0; 3]);
    for seed in 2000..2120 {
        let world = 2 + (seed % 3) as u32;
        let plan = plan(seed, world, 90);
        check(&job(seed, world), |host: Arc<SimHost>| {
            let mad = Mad(Mutex::new(Random::new(seed ^ u64::from(host.me()) << 32)));
            let loaded = Arc::new(Loaded::new(Box::new(mad), world));
            host.inspect(|shard| shard.consult(loaded.clone()));
            play(&host, &plan, &[]);
            let counts = (0..world).map(|peer| loaded.counts(peer)[Question::Order as usize]);
            let mut total = total.lock().expect("no panic");
            for Counts {
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
        job.faults.deaths.push((dead, 10_000 + seed * 7919 % 400_000));
        // Wildcards may wait for the dead one's messages for ever, which is what the standard says: exact receives only.
        let mut plan = plan(seed, 4, 60);
        plan.iter_mut().for_each(|message| message.context = 0);
        check(&job, |host: Arc<SimHost>| play(&host, &plan, &[dead]));
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
                let message = Planned {
                    from: me,
                    to: right,
                    context: 0,
                    tag: 1,
                    len: 600,
                    number: u64::from(me) * 10 + round,
                    mode: Mode::Standard,
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
                    .recv(Recv {
                        pattern,
                        data,
                        origin: Origin::default(),
                    })
                    .expect("posted");
                let data = Data::contiguous(out.mem(), 600);
                let send = Send {
                    context: 0,
                    peer: right,
                    source: me,
                    tag: 1,
                    data,
                    mode: Mode::Standard,
                    origin: Origin::default(),
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
                .recv(Recv {
                    pattern,
                    data,
                    origin: Origin::default(),
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
