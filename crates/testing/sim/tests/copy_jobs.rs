//! Copies that are under way when the operation that they are for ends: whatever ends it, its
//! memory is nobody's before the last copy has landed.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, ContextId, Error, Pattern, Peer, RecvArgs, Request, SendArgs, SendCompletion,
    Source, StartOutcome,
};
use garonne_engine::observe::tracer::{OperationTracer, TracedOperation};
use garonne_engine::protocol::offload::CopyJob;
use garonne_progress::messaging::{FastMessaging, Messaging, Waiting};
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, run};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const LEN: usize = 4000;
const MESSAGES: i32 = 6;
/// Turns after which a survivor gives up waiting for the death of the other: far more than any seed
/// needs.
const TURNS: u32 = 100_000;

fn source(peer: u32) -> Pattern {
    Pattern {
        context: 0,
        source: Some(Source { rank: peer, peer }),
        tag: None,
    }
}

/// Sends and receives between two ranks, announced or not.
fn exchange(host: &SimHost, buffers: &[Scratch]) -> Vec<Request> {
    let peer = 1 - host.me();
    let mut open = Vec::new();
    for (at, buffer) in buffers.iter().enumerate() {
        let (tag, data) = (at as i32 / 2, Data::contiguous(buffer.mem(), LEN as u64));
        let origin = CallOrigin::default();
        let started = if at % 2 == 0 {
            let pattern = Pattern {
                tag: Some(tag),
                ..source(peer)
            };
            host.recv(RecvArgs {
                pattern,
                data,
                origin,
            })
        } else {
            host.send(SendArgs {
                context: 0,
                peer,
                source: host.me(),
                tag,
                data,
                mode: SendCompletion::Standard,
                origin,
            })
        };
        match started {
            Ok(StartOutcome::Pending(request)) => {
                if at % 4 == 0 {
                    host.offer_early_rtr(request);
                }
                open.push(request);
            }
            Ok(StartOutcome::Done(_)) | Err(Error::Peer { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    open
}

/// Takes out every copy there is and carries none until the other's death is heard. How many were
/// under way then.
fn survive(host: &SimHost) -> u32 {
    let buffers: Vec<Scratch> = (0..2 * MESSAGES)
        .map(|_| Scratch::new(LEN).expect("memory"))
        .collect();
    let open = exchange(host, &buffers);
    let mut flights: Vec<CopyJob> = Vec::new();
    for _ in 0..TURNS {
        host.inspect(|shard| {
            shard.progress_briefly();
            flights.extend(shard.take_copy_job());
            shard.transport().rest();
        });
        if host.inspect(|shard| shard.probe(source(1))).is_err() {
            break;
        }
    }
    let under_way = flights.len() as u32;
    while let Some(mut flight) = flights.pop() {
        let name = flight.operation();
        assert_eq!(
            host.peek(name).expect("its name is good"),
            None,
            "its memory is still used"
        );
        flight.run();
        assert_eq!(
            host.peek(name).expect("its name is good"),
            None,
            "nor did it land"
        );
        host.inspect(|shard| shard.finish_copy_job(flight));
    }
    for request in open {
        finish(host, Some(request));
    }
    under_way
}

/// Two ranks that read each other's memory, and nothing goes wrong.
fn sound(seed: u64) -> SimJob {
    SimJob {
        world: 2,
        seed,
        faults: Faults::none(),
        quotas: CreditQuotas::for_world(2),
        memory: MemoryAccess::Reached,
    }
}

#[test]
fn what_a_death_ends_is_complete_after_its_last_copy() {
    let under_way = AtomicU32::new(0);
    for seed in 0..60 {
        let job = SimJob {
            world: 2,
            seed,
            faults: Faults {
                deaths: vec![(1, 3_000 + seed * 400)],
                ..Faults::none()
            },
            quotas: CreditQuotas::for_world(2),
            memory: MemoryAccess::Reached,
        };
        let outcome = run(&job, |host: Arc<SimHost>| {
            if host.me() == 0 {
                under_way.fetch_add(survive(&host), Ordering::Relaxed);
            } else {
                let buffers: Vec<Scratch> = (0..2 * MESSAGES)
                    .map(|_| Scratch::new(LEN).expect("memory"))
                    .collect();
                exchange(&host, &buffers);
                // Until it dies.
                host.wait_until(&mut || false);
            }
        });
        assert_eq!(outcome.failure, None);
    }
    let under_way = under_way.into_inner();
    assert!(under_way > 30, "only {under_way} copies were under way");
}

/// Counts the bytes that are moved, for all ranks.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl OperationTracer for Counter {
    fn now(&self) -> u64 {
        0
    }
    fn started(&self, _operation: &TracedOperation) {}
    fn over(&self, _operation: &TracedOperation) {}
    fn moved(&self, _name: u64, _peer: Option<Peer>, bytes: u64, _since: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
    fn collective(&self, _context: ContextId, _tag: i32) {}
}

#[test]
fn who_watches_hears_of_copies_that_are_made_without_the_engine() {
    for seed in 0..20 {
        let counter = Arc::new(Counter::default());
        let job = sound(seed);
        let outcome = run(&job, |host: Arc<SimHost>| {
            host.watch(Some(counter.clone()));
            let buffers: Vec<Scratch> = (0..2 * MESSAGES)
                .map(|_| Scratch::new(LEN).expect("memory"))
                .collect();
            for request in exchange(&host, &buffers) {
                finish(&host, Some(request));
            }
            host.watch(None);
        });
        assert_eq!(outcome.failure, None);
        // Each byte of the messages of both ranks, once at least: parts by packets are moved on
        // both sides.
        let all = 2 * MESSAGES as u64 * LEN as u64;
        let moved = counter.0.load(Ordering::Relaxed);
        assert!(
            moved >= all,
            "of {all} bytes {moved} were told of, seed {seed}"
        );
    }
}

fn receive(host: &SimHost, tag: i32, buffer: &Scratch) -> Option<Request> {
    let started = host.recv(RecvArgs {
        pattern: Pattern {
            tag: Some(tag),
            ..source(1 - host.me())
        },
        data: Data::contiguous(buffer.mem(), LEN as u64),
        origin: CallOrigin::default(),
    });
    match started.expect("there is room for it") {
        StartOutcome::Pending(request) => Some(request),
        StartOutcome::Done(_) => None,
    }
}

fn send(host: &SimHost, tag: i32, buffer: &Scratch, len: u64) {
    let started = host.send(SendArgs {
        context: 0,
        peer: 1 - host.me(),
        source: host.me(),
        tag,
        data: Data::contiguous(buffer.mem(), len),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    });
    if let StartOutcome::Pending(request) = started.expect("there is room for it") {
        finish(host, Some(request));
    }
}

fn finish(host: &SimHost, request: Option<Request>) {
    let Some(request) = request else { return };
    let mut over = false;
    host.wait_until(&mut || {
        over = over || host.take(request).expect("ours").is_some();
        over
    });
}

/// A long message is fetched by copies without the engine, and nobody looks for the next one when
/// the last has landed. A receive takes its slot, offers its memory, and gets a short message.
/// Where that was taken for one that is fetched, when its memory was about to be taken back, it
/// asked for packets that nobody sent, and never ended.
#[test]
fn a_receive_is_not_fetched_because_another_had_its_slot() {
    const ROUNDS: i32 = 8;
    const RESTS: u32 = 200;
    for seed in 0..60 {
        let job = sound(seed);
        let outcome = run(&job, |host: Arc<SimHost>| {
            let [long, short, go] = [(); 3].map(|()| Scratch::new(LEN).expect("memory"));
            for round in 0..ROUNDS {
                let tag = 3 * round;
                if host.me() == 0 {
                    send(&host, tag, &long, LEN as u64);
                    finish(&host, receive(&host, tag + 1, &go));
                    send(&host, tag + 2, &short, 10);
                    continue;
                }
                if let Some(request) = receive(&host, tag, &long) {
                    while host.peek(request).expect("its name is good").is_none() {
                        let flight = host.inspect(|shard| {
                            shard.progress_briefly();
                            shard.transport().rest();
                            shard.take_copy_job()
                        });
                        if let Some(mut flight) = flight {
                            // Its sender has done its part, and said so, when this one lands.
                            for _ in 0..RESTS {
                                host.inspect(|shard| {
                                    shard.progress_briefly();
                                    shard.transport().rest();
                                });
                            }
                            flight.run();
                            host.inspect(|shard| shard.finish_copy_job(flight));
                        }
                    }
                    finish(&host, Some(request));
                }
                let fetching = host.inspect(|shard| shard.transfers_in_progress());
                assert_eq!(fetching, 0, "it is over, and nothing else was sent");
                let request = receive(&host, tag + 2, &short);
                request
                    .iter()
                    .for_each(|request| host.offer_early_rtr(*request));
                send(&host, tag + 1, &go, 1);
                // The short message is there when this rank looks next.
                for _ in 0..RESTS {
                    host.inspect(|shard| shard.transport().rest());
                }
                finish(&host, request);
            }
        });
        assert_eq!(outcome.failure, None, "seed {seed}");
    }
}

/// Whether a lender moves waiting data itself depends on their amount.
#[test]
fn a_look_counts_what_is_to_be_written_to_a_receive_announced_ahead() {
    let counted = AtomicU64::new(0);
    for seed in 0..20 {
        let job = sound(seed);
        let outcome = run(&job, |host: Arc<SimHost>| {
            let buffer = Scratch::new(LEN).expect("memory");
            let (long, ready) = (1, 2);
            if host.me() == 0 {
                let open = receive(&host, long, &buffer);
                host.offer_early_rtr(open.expect("nothing was sent yet"));
                send(&host, ready, &Scratch::new(LEN).expect("memory"), 8);
                return finish(&host, open);
            }
            let word = Scratch::new(LEN).expect("memory");
            let told = receive(&host, ready, &word);
            finish(&host, told);
            let started = host.send(SendArgs {
                context: 0,
                peer: 0,
                source: 1,
                tag: long,
                data: Data::contiguous(buffer.mem(), LEN as u64),
                mode: SendCompletion::Standard,
                origin: CallOrigin::default(),
            });
            if let StartOutcome::Pending(request) = started.expect("there is room for it") {
                counted.fetch_add(
                    host.inspect(|shard| shard.poll_only().bytes),
                    Ordering::Relaxed,
                );
                finish(&host, Some(request));
            }
        });
        assert_eq!(outcome.failure, None);
    }
    assert!(counted.into_inner() >= LEN as u64);
}
