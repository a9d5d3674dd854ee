//! Several threads of a rank that wait at once, under random schedules: each in another way for
//! something of its own, and none sleeps for ever. In one shard, and in several.
//!
//! Nothing wakes these threads but what they wait for and the poller's role: a wake-up that is lost
//! hangs the test. Each seed gives every thread other moments to give way at.

mod caught;

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, ContextId, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source,
    StartOutcome, in_shard,
};
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::FastRecv;
use garonne_engine::transport::Transport;
use garonne_progress::environment::SpinBudget;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{AnyOfWaiter, Messaging, Stepper, WaitTarget, Waiting};
use garonne_progress::sharded::ShardedEngine;
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sim::random::Random;
use garonne_sim::{AsyncEnvironment, leave_sharded, leave_together, seeds};
use garonne_sync::user::{Data, Scratch};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const WORLD: u32 = 2;
const THREADS: usize = 7;
const ROUNDS: usize = 40;
const LARGE: usize = 60_000;
/// Too large for the room between ranks: nobody sends it who is not answered.
const HUGE: usize = 1_000_000;

/// Shards of the worlds that have several: threads share some, and some waits are about several.
const SHARDS: usize = 4;

type Rank = LockedEngine<LocalTransport, AsyncEnvironment>;

/// A thread's place at its rank.
#[derive(Clone, Copy)]
struct At<'a> {
    host: &'a dyn Messaging,
    /// Has the peer's threads look that wait for memory.
    ring: &'a (dyn Fn() + Sync),
    thread: usize,
    shards: usize,
}

impl At<'_> {
    /// The context of the thread's messages of this number.
    fn context(&self, number: usize) -> ContextId {
        in_shard((self.thread + number) % self.shards, 2)
    }
}

/// Action of a thread of one rank for its partner of the other, and how the partner waits.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A message, waited for by name.
    Named,
    /// A message, looked for before its receive is posted.
    Quick,
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
    /// Any of a stepper, a message, and what another thread of the rank tells when a message has
    /// come to it: until all have come.
    Mixed,
    /// A message, which is sent when the receiver has taken a large one that it does not wait for.
    Leaning,
}

const WAYS: [Way; 12] = [
    Way::Named,
    Way::Quick,
    Way::Quick,
    Way::Large,
    Way::All,
    Way::Any,
    Way::Probed,
    Way::Memory,
    Way::Stepped,
    Way::Mixed,
    Way::Mixed,
    Way::Leaning,
];

struct Receive {
    request: Cell<Option<Request>>,
    _room: Scratch,
}

fn pattern(at: At<'_>, number: usize, tag: i32) -> Pattern {
    let peer = 1 - at.host.me();
    Pattern {
        context: at.context(number),
        source: Some(Source { rank: peer, peer }),
        tag: Some(tag),
    }
}

fn recv(at: At<'_>, number: usize, tag: i32, len: usize) -> Receive {
    let room = Scratch::new(len).unwrap();
    let started = at.host.recv(RecvArgs {
        pattern: pattern(at, number, tag),
        data: Data::contiguous(room.mem(), len as u64),
        origin: CallOrigin::default(),
    });
    let request = match started.unwrap() {
        StartOutcome::Done(_) => None,
        StartOutcome::Pending(request) => Some(request),
    };
    Receive {
        request: Cell::new(request),
        _room: room,
    }
}

impl Receive {
    fn is_over(&self, host: &dyn Messaging) -> bool {
        if let Some(request) = self.request.get()
            && host.take(request).unwrap().is_some()
        {
            self.request.set(None);
        }
        self.request.get().is_none()
    }

    fn awaits(&self) -> WaitTarget {
        self.request
            .get()
            .map_or(WaitTarget::Anything, WaitTarget::Operation)
    }
}

fn send(at: At<'_>, number: usize, tag: i32, len: usize) {
    let host = at.host;
    let memory = Scratch::new(len).unwrap();
    memory.mem().with_mut(0, len, |bytes| bytes.fill(1));
    let started = host.send(SendArgs {
        context: at.context(number),
        peer: 1 - host.me(),
        source: host.me(),
        tag,
        data: Data::contiguous(memory.mem(), len as u64),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    });
    if let StartOutcome::Pending(request) = started.unwrap() {
        host.wait_for(&|| WaitTarget::Operation(request), &mut || {
            host.take(request).unwrap().is_some()
        });
    }
}

/// Ends when its message has come.
struct Steps {
    request: Request,
    over: AtomicBool,
    waiter: AnyOfWaiter,
}

impl Steps {
    fn new(request: Request) -> Arc<Self> {
        Arc::new(Self {
            request,
            over: AtomicBool::new(false),
            waiter: AnyOfWaiter::default(),
        })
    }
}

impl Stepper for Steps {
    fn step(&self, host: &dyn Messaging) -> bool {
        let over = host.take(self.request).unwrap().is_some();
        self.over.fetch_or(over, Ordering::SeqCst);
        over
    }

    fn current_waiter(&self) -> Option<&AnyOfWaiter> {
        Some(&self.waiter)
    }
}

/// Waits for any of three, each of which comes with a message, until all have come.
fn wait_for_a_mixture(at: At<'_>, tag: i32) {
    let host = at.host;
    let [stepped, named] = [2, 1].map(|number| recv(at, number, tag, 8));
    let steps = stepped.request.get().map(Steps::new);
    if let Some(steps) = &steps {
        host.attach_stepper(steps.clone());
    }
    let (come, waiter) = (AtomicBool::new(false), AnyOfWaiter::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let told = recv(at, 0, tag, 8);
            host.wait_for(&|| told.awaits(), &mut || told.is_over(host));
            come.store(true, Ordering::SeqCst);
            host.signal(WaitTarget::signal_of(&come), &waiter);
        });
        let has_stepped = || {
            steps
                .as_ref()
                .is_none_or(|steps| steps.over.load(Ordering::SeqCst))
        };
        let open = || {
            [
                !has_stepped(),
                !named.is_over(host),
                !come.load(Ordering::SeqCst),
            ]
        };
        loop {
            let before = open();
            if before == [false; 3] {
                return;
            }
            let parts = || {
                let step = steps.iter().filter(|_| before[0]).map(|steps| {
                    steps.waiter.register();
                    WaitTarget::stepper_end(&**steps)
                });
                let name = before[1].then(|| named.awaits());
                let told = before[2].then(|| {
                    waiter.register();
                    WaitTarget::signal_of(&come)
                });
                host.register_any_of(&mut step.chain(name).chain(told))
            };
            host.wait_for(&parts, &mut || open() != before);
        }
    });
}

/// Returns whether the message came at once.
fn catches(at: At<'_>, tag: i32) -> bool {
    let room = Scratch::new(8).unwrap();
    let peer = 1 - at.host.me();
    let caught = at.host.fast_recv(&FastRecv {
        context: at.context(0),
        peer,
        rank: peer,
        tag,
        mem: room.mem(),
        room: 8,
        origin: CallOrigin::default(),
    });
    if let Some(caught) = caught {
        assert_eq!((caught.len, caught.tag), (8, tag));
        room.mem().with_mut(0, 8, |bytes| assert_eq!(bytes, [1; 8]));
    }
    caught.is_some()
}

fn wait(at: At<'_>, way: Way, tag: i32, flag: &AtomicU32) {
    let host = at.host;
    match way {
        Way::Named => {
            let receive = recv(at, 0, tag, 8);
            let awaits = || match receive.awaits() {
                WaitTarget::Operation(request) => WaitTarget::Receive(request, pattern(at, 0, tag)),
                other => other,
            };
            host.wait_for(&awaits, &mut || receive.is_over(host));
        }
        Way::Quick if catches(at, tag) => {}
        Way::Quick => wait(at, Way::Named, tag, flag),
        Way::Large => {
            let receive = recv(at, 0, tag, LARGE);
            host.wait_for(&|| receive.awaits(), &mut || receive.is_over(host));
        }
        Way::All => {
            let receives = [0, 1, 2, 3].map(|number| recv(at, number, tag, 8));
            let first = || {
                receives
                    .iter()
                    .find(|receive| receive.request.get().is_some())
            };
            host.wait_for(
                &|| first().map_or(WaitTarget::Anything, Receive::awaits),
                &mut || receives.iter().all(|receive| receive.is_over(host)),
            );
        }
        Way::Any => {
            let mut receives = Vec::from([0, 1, 2, 3].map(|number| recv(at, number, tag, 8)));
            while !receives.is_empty() {
                let awaits = host.register_any_of(&mut receives.iter().map(Receive::awaits));
                host.wait_for(&|| awaits, &mut || {
                    let over = receives.iter().position(|receive| receive.is_over(host));
                    over.map(|over| receives.swap_remove(over)).is_some()
                });
            }
        }
        Way::Probed => {
            let mut pattern = pattern(at, 1, tag);
            if tag % 2 == 0 {
                pattern.source = None;
            }
            host.wait_for(&|| WaitTarget::Message(pattern), &mut || {
                host.probe(pattern).unwrap().is_some()
            });
            assert!(recv(at, 1, tag, 8).is_over(host));
        }
        Way::Memory => {
            // Each time a larger value, so that the flag serves all rounds.
            host.wait_for_memory(&mut || flag.load(Ordering::Acquire) >= tag as u32);
        }
        Way::Stepped => {
            let receive = recv(at, 2, tag, 8);
            let Some(request) = receive.request.get() else {
                return;
            };
            let steps = Steps::new(request);
            host.attach_stepper(steps.clone());
            host.wait_for(&|| WaitTarget::stepper_end(&*steps), &mut || {
                steps.over.load(Ordering::SeqCst)
            });
        }
        Way::Mixed => wait_for_a_mixture(at, tag),
        Way::Leaning => {
            // What is left open in one shard advances while the thread waits in another: its
            // partner sends that only then.
            let leaning = recv(at, 3, tag, LARGE);
            if let Some(request) = leaning.request.get() {
                host.leave_pending(request);
            }
            let receive = recv(at, 0, tag, 8);
            host.wait_for(&|| receive.awaits(), &mut || receive.is_over(host));
            host.wait_for(&|| leaning.awaits(), &mut || leaning.is_over(host));
        }
    }
}

fn serve(at: At<'_>, way: Way, tag: i32, flag: &AtomicU32) {
    match way {
        Way::Large => send(at, 0, tag, LARGE),
        Way::All | Way::Any => (0..4).for_each(|number| send(at, number, tag, 8)),
        Way::Named | Way::Quick => send(at, 0, tag, 8),
        Way::Probed => send(at, 1, tag, 8),
        Way::Stepped => send(at, 2, tag, 8),
        Way::Mixed => [1, 0, 2]
            .into_iter()
            .for_each(|number| send(at, number, tag, 8)),
        Way::Leaning => {
            send(at, 3, tag, LARGE);
            send(at, 0, tag, 8);
        }
        Way::Memory => {
            flag.store(tag as u32, Ordering::Release);
            (at.ring)();
        }
    }
}

fn engine(
    fabric: &Arc<Fabric>,
    me: u32,
    patience: SpinBudget,
) -> (Engine<LocalTransport>, AsyncEnvironment) {
    let shard = Engine::new(
        fabric.transport(me),
        me,
        WORLD,
        CreditQuotas::for_world(WORLD),
    );
    let lending = AsyncEnvironment {
        patience,
        grace: None,
        progress_spin: std::time::Duration::ZERO,
    };
    (shard, lending)
}

fn rank(fabric: &Arc<Fabric>, me: u32, patience: SpinBudget) -> Rank {
    let (shard, lending) = engine(fabric, me, patience);
    LockedEngine::new(shard, me, WORLD, lending)
}

/// A thread: it waits in some rounds and serves its partner in the others.
fn thread(at: At<'_>, seed: u64, flags: &[AtomicU32]) {
    // Both partners roll the same.
    let mut dice = Random::new(seed ^ (at.thread as u64 + 1) << 32);
    for round in 0..ROUNDS {
        let way = WAYS[dice.below(WAYS.len() as u64) as usize];
        let tag = (at.thread * ROUNDS + round + 1) as i32;
        let waits = u32::from(dice.one_in(2));
        let flag = &flags[2 * at.thread + waits as usize];
        match waits == at.host.me() {
            true => wait(at, way, tag, flag),
            false => serve(at, way, tag, flag),
        }
    }
}

/// All threads of both ranks.
fn world(seed: u64, shards: usize, patience: SpinBudget) {
    let first = Fabric::shaken(WORLD, seed);
    let more = (1..shards).map(|shard| first.beside(seed ^ shard as u64));
    let fabrics: Vec<Arc<Fabric>> = std::iter::once(first.clone()).chain(more).collect();
    let flags: Vec<AtomicU32> = (0..2 * THREADS).map(|_| AtomicU32::new(0)).collect();
    let leaving = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for me in 0..WORLD {
            let (fabrics, flags, leaving) = (&fabrics, &flags, &leaving);
            scope.spawn(move || {
                let host = Arc::new(rank(&fabrics[0], me, patience));
                if seed.is_multiple_of(3) {
                    host.enable_async_progress(None);
                }
                let ring = || host.inspect(|shard| shard.transport().wake_peer(1 - me));
                let threads = |host: &dyn Messaging| {
                    std::thread::scope(|scope| {
                        for thread in 0..THREADS {
                            let at = At {
                                host,
                                ring: &ring,
                                thread,
                                shards,
                            };
                            scope.spawn(move || self::thread(at, seed, flags));
                        }
                    });
                };
                if shards == 1 {
                    threads(&*host);
                    return leave_together(&host, leaving, WORLD);
                }
                let fabrics = fabrics.clone();
                let open = move |shard: usize| Ok(engine(&fabrics[shard], me, patience));
                let sharded = ShardedEngine::new(host.clone(), shards, Box::new(open));
                threads(&*sharded);
                leave_sharded(&sharded, leaving, WORLD);
            });
        }
    });
}

const SPINS: SpinBudget = SpinBudget {
    spins: 200,
    yields: 2,
    spinners: 2,
};
const SLEEPS: SpinBudget = SpinBudget {
    spins: 0,
    yields: 0,
    spinners: 1,
};

#[test]
fn threads_that_wait_in_every_way_are_all_woken_where_the_poller_spins() {
    seeds(12).for_each(|seed| world(seed, 1, SPINS));
}

#[test]
fn threads_that_wait_in_every_way_are_all_woken_where_the_poller_sleeps() {
    seeds(12).for_each(|seed| world(seed, 1, SLEEPS));
}

#[test]
fn threads_of_several_shards_are_all_woken_where_pollers_spin() {
    seeds(12).for_each(|seed| world(seed, SHARDS, SPINS));
}

#[test]
fn threads_of_several_shards_are_all_woken_where_pollers_sleep() {
    seeds(12).for_each(|seed| world(seed, SHARDS, SLEEPS));
}

#[test]
fn a_callback_that_waits_while_its_thread_polls_is_polled_for() {
    let fabric = Fabric::new(WORLD);
    std::thread::scope(|scope| {
        for me in 0..WORLD {
            let fabric = &fabric;
            scope.spawn(move || {
                let host = rank(fabric, me, SLEEPS);
                let at = At {
                    host: &host,
                    ring: &|| (),
                    thread: 0,
                    shards: 1,
                };
                if me == 1 {
                    return (1..3).for_each(|tag| {
                        wait(at, Way::Named, 10 * tag, &AtomicU32::new(0));
                        send(at, 0, tag, 8);
                    });
                }
                let outer = recv(at, 0, 1, 8);
                let mut asked = 0;
                host.wait_until(&mut || {
                    asked += 1;
                    if asked == 2 {
                        // The thread is the poller by now.
                        send(at, 0, 10, 8);
                        send(at, 0, 20, 8);
                        wait(at, Way::Named, 2, &AtomicU32::new(0));
                    }
                    outer.is_over(&host)
                });
            });
        }
    });
}

/// Rank 0 with several shards, one thread of which sleeps in the first before there is another;
/// `body` is another thread of it. Rank 1 does `peer`.
fn beside_a_sleeper(body: impl Fn(At<'_>) + Sync, peer: impl Fn(At<'_>) + Sync) {
    const LAST: i32 = 1000;
    let first = Fabric::new(WORLD);
    let more = (1..SHARDS).map(|shard| first.beside(shard as u64));
    let fabrics: Vec<Arc<Fabric>> = std::iter::once(first.clone()).chain(more).collect();
    let (leaving, over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for me in 0..WORLD {
            let (fabrics, leaving, over, body, peer) = (&fabrics, &leaving, &over, &body, &peer);
            scope.spawn(move || {
                let host = Arc::new(rank(&fabrics[0], me, SLEEPS));
                let inner = fabrics.clone();
                let open = move |shard: usize| Ok(engine(&inner[shard], me, SLEEPS));
                let sharded = ShardedEngine::new(host, SHARDS, Box::new(open));
                let at = At {
                    host: &*sharded,
                    ring: &|| (),
                    thread: 0,
                    shards: SHARDS,
                };
                std::thread::scope(|scope| match me {
                    0 => {
                        scope.spawn(move || wait(at, Way::Named, LAST, &AtomicU32::new(0)));
                        std::thread::sleep(SHORT);
                        scope.spawn(move || {
                            body(at);
                            over.store(true, Ordering::SeqCst);
                        });
                    }
                    _ => {
                        peer(at);
                        // Only what the other thread waits for may wake it.
                        while !over.load(Ordering::SeqCst) {
                            std::thread::sleep(SHORT / 10);
                        }
                        serve(at, Way::Named, LAST, &AtomicU32::new(0));
                    }
                });
                leave_sharded(&sharded, leaving, WORLD);
            });
        }
    });
}

const SHORT: std::time::Duration = std::time::Duration::from_millis(50);

#[test]
fn who_sleeps_already_sees_to_what_comes_anywhere_for_others() {
    let body = |at: At<'_>| {
        // In three shards, the first not among them.
        let receives = [1, 2, 3].map(|number| recv(at, number, 1, 8));
        for _ in 0..receives.len() {
            let open = receives
                .iter()
                .filter(|receive| receive.request.get().is_some());
            let open = open.count();
            at.host.wait_until(&mut || {
                let left = receives.iter().filter(|receive| !receive.is_over(at.host));
                left.count() < open
            });
        }
    };
    beside_a_sleeper(body, |at| {
        for number in [3, 1, 2] {
            std::thread::sleep(2 * SHORT);
            send(at, number, 1, 8);
        }
    });
}

#[test]
fn who_sleeps_already_sees_to_what_others_left_open_that_sit_beside_it() {
    let body = |at: At<'_>| {
        let large = recv(at, 1, 1, HUGE);
        let small = recv(at, 0, 2, 8);
        let awaits = || small.awaits();
        at.host.wait_for(&awaits, &mut || small.is_over(at.host));
        at.host
            .wait_for(&|| large.awaits(), &mut || large.is_over(at.host));
    };
    beside_a_sleeper(body, |at| {
        std::thread::sleep(2 * SHORT);
        // It ends when the other rank has taken it.
        send(at, 1, 1, HUGE);
        send(at, 0, 2, 8);
    });
}
