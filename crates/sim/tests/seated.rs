//! Several threads of a rank that wait at once, under random schedules: each in another way for something of its own, and none sleeps for ever.
//!
//! Nothing wakes these threads but what they wait for and the poller's role: a wake-up that is lost hangs the test. Each seed gives every thread other moments to give way at.

use garonne_engine::Quotas;
use garonne_engine::api::{Mode, Origin, Pattern, Recv, Request, Send, Source, Started};
use garonne_engine::rail::Rail;
use garonne_engine::shard::Shard;
use garonne_progress::engine_host::EngineHost;
use garonne_progress::host::{Awaits, Host, Stepper};
use garonne_progress::surroundings::Patience;
use garonne_sim::local::{Fabric, LocalRail};
use garonne_sim::random::Random;
use garonne_sim::{Lending, leave_together, seeds};
use garonne_sync::user::{Data, Scratch};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const WORLD: u32 = 2;
const THREADS: usize = 7;
const ROUNDS: usize = 40;
const LARGE: usize = 60_000;

type Rank = EngineHost<LocalRail, Lending>;

/// What a thread of one rank does for its partner of the other, and how that one waits for it.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One message, waited for by name.
    Named,
    /// A large one, which needs hands on both sides.
    Large,
    /// Some messages, all waited for, one after the other.
    All,
    /// Some messages, of which any is waited for, until all have come.
    Any,
    /// A message that is looked for before it is received.
    Probed,
    /// A flag in memory.
    Memory,
    /// A stepper of the own rank that ends with a message.
    Stepped,
}

const WAYS: [Way; 7] = [
    Way::Named,
    Way::Large,
    Way::All,
    Way::Any,
    Way::Probed,
    Way::Memory,
    Way::Stepped,
];

struct Receive {
    request: Cell<Option<Request>>,
    _room: Scratch,
}

fn pattern(host: &Rank, tag: i32) -> Pattern {
    let peer = 1 - host.me();
    Pattern {
        context: 2,
        source: Some(Source { rank: peer, peer }),
        tag: Some(tag),
    }
}

fn recv(host: &Rank, tag: i32, len: usize) -> Receive {
    let room = Scratch::new(len).unwrap();
    let started = host.recv(Recv {
        pattern: pattern(host, tag),
        data: Data::contiguous(room.mem(), len as u64),
        origin: Origin::default(),
    });
    let request = match started.unwrap() {
        Started::Done(_) => None,
        Started::Pending(request) => Some(request),
    };
    Receive {
        request: Cell::new(request),
        _room: room,
    }
}

impl Receive {
    fn is_over(&self, host: &Rank) -> bool {
        if let Some(request) = self.request.get()
            && host.take(request).unwrap().is_some()
        {
            self.request.set(None);
        }
        self.request.get().is_none()
    }

    fn awaits(&self) -> Awaits {
        self.request.get().map_or(Awaits::Anything, Awaits::Operation)
    }
}

fn send(host: &Rank, tag: i32, len: usize) {
    let memory = Scratch::new(len).unwrap();
    memory.mem().with_mut(0, len, |bytes| bytes.fill(1));
    let started = host.send(Send {
        context: 2,
        peer: 1 - host.me(),
        source: host.me(),
        tag,
        data: Data::contiguous(memory.mem(), len as u64),
        mode: Mode::Standard,
        origin: Origin::default(),
    });
    if let Started::Pending(request) = started.unwrap() {
        host.wait_for(&|| Awaits::Operation(request), &mut || {
            host.take(request).unwrap().is_some()
        });
    }
}

/// Ends when its message has come.
struct Steps {
    request: Request,
    over: AtomicBool,
}

impl Stepper for Steps {
    fn step(&self, host: &dyn Host) -> bool {
        let over = host.take(self.request).unwrap().is_some();
        self.over.fetch_or(over, Ordering::SeqCst);
        over
    }
}

fn wait(host: &Rank, way: Way, tag: i32, flag: &AtomicU32) {
    match way {
        Way::Named | Way::Large => {
            let receive = recv(host, tag, LARGE);
            host.wait_for(&|| receive.awaits(), &mut || receive.is_over(host));
        }
        Way::All => {
            let receives = [0; 4].map(|_| recv(host, tag, 8));
            let first = || receives.iter().find(|receive| receive.request.get().is_some());
            host.wait_for(&|| first().unwrap().awaits(), &mut || {
                receives.iter().all(|receive| receive.is_over(host))
            });
        }
        Way::Any => {
            let mut receives = Vec::from([0; 4].map(|_| recv(host, tag, 8)));
            while !receives.is_empty() {
                host.wait_until(&mut || {
                    let over = receives.iter().position(|receive| receive.is_over(host));
                    over.map(|over| receives.swap_remove(over)).is_some()
                });
            }
        }
        Way::Probed => {
            host.wait_until(&mut || host.probe(pattern(host, tag)).unwrap().is_some());
            assert!(recv(host, tag, 8).is_over(host));
        }
        Way::Memory => {
            // Each time a larger value, so that the flag serves all rounds.
            host.wait_for_memory(&mut || flag.load(Ordering::Acquire) >= tag as u32);
        }
        Way::Stepped => {
            let receive = recv(host, tag, 8);
            let Some(request) = receive.request.get() else {
                return;
            };
            let over = AtomicBool::new(false);
            let steps = Arc::new(Steps { request, over });
            host.attach(steps.clone());
            host.wait_until(&mut || steps.over.load(Ordering::SeqCst));
        }
    }
}

fn serve(host: &Rank, way: Way, tag: i32, flag: &AtomicU32) {
    match way {
        Way::Large => send(host, tag, LARGE),
        Way::All | Way::Any => (0..4).for_each(|_| send(host, tag, 8)),
        Way::Named | Way::Probed | Way::Stepped => send(host, tag, 8),
        Way::Memory => {
            flag.store(tag as u32, Ordering::Release);
            host.inspect(|shard| shard.rail().ring(1 - host.me()));
        }
    }
}

fn rank(fabric: &Arc<Fabric>, me: u32, patience: Patience) -> Rank {
    let shard = Shard::new(fabric.rail(me), me, WORLD, Quotas::for_world(WORLD));
    let lending = Lending {
        patience,
        grace: None,
    };
    EngineHost::new(shard, me, WORLD, lending)
}

/// All threads of both ranks; each waits in some rounds and serves its partner in the others.
fn world(seed: u64, patience: Patience) {
    let fabric = Fabric::shaken(WORLD, seed);
    let flags: Vec<AtomicU32> = (0..2 * THREADS).map(|_| AtomicU32::new(0)).collect();
    let leaving = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for me in 0..WORLD {
            let (fabric, flags, leaving) = (&fabric, &flags, &leaving);
            scope.spawn(move || {
                let host = Arc::new(rank(fabric, me, patience));
                if seed.is_multiple_of(3) {
                    host.lend_hands(None);
                }
                std::thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let host = &host;
                        scope.spawn(move || {
                            // Both partners roll the same.
                            let mut dice = Random::new(seed ^ (thread as u64 + 1) << 32);
                            for round in 0..ROUNDS {
                                let way = WAYS[dice.below(WAYS.len() as u64) as usize];
                                let tag = (thread * ROUNDS + round + 1) as i32;
                                let waits = u32::from(dice.one_in(2));
                                let flag = &flags[2 * thread + waits as usize];
                                match waits == me {
                                    true => wait(host, way, tag, flag),
                                    false => serve(host, way, tag, flag),
                                }
                            }
                        });
                    }
                });
                leave_together(&host, leaving, WORLD);
            });
        }
    });
}

#[test]
fn threads_that_wait_in_every_way_are_all_woken_where_the_poller_spins() {
    seeds(12).for_each(|seed| {
        world(
            seed,
            Patience {
                spins: 200,
                yields: 2,
            },
        );
    });
}

#[test]
fn threads_that_wait_in_every_way_are_all_woken_where_the_poller_sleeps() {
    seeds(12).for_each(|seed| world(seed, Patience { spins: 0, yields: 0 }));
}

#[test]
fn a_callback_that_waits_while_its_thread_polls_is_polled_for() {
    let fabric = Fabric::new(WORLD);
    std::thread::scope(|scope| {
        for me in 0..WORLD {
            let fabric = &fabric;
            scope.spawn(move || {
                let host = rank(fabric, me, Patience { spins: 0, yields: 0 });
                if me == 1 {
                    return (1..3).for_each(|tag| {
                        wait(&host, Way::Named, 10 * tag, &AtomicU32::new(0));
                        send(&host, tag, 8);
                    });
                }
                let outer = recv(&host, 1, 8);
                let mut asked = 0;
                host.wait_until(&mut || {
                    asked += 1;
                    if asked == 2 {
                        // The thread is the poller by now.
                        send(&host, 10, 8);
                        send(&host, 20, 8);
                        wait(&host, Way::Named, 2, &AtomicU32::new(0));
                    }
                    outer.is_over(&host)
                });
            });
        }
    });
}
