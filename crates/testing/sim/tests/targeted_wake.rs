//! Threads of a rank that sleep while messages come for another: each is woken by what it waits
//! for, and by nothing else.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, ContextId, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source,
    StartOutcome, in_shard,
};
use garonne_engine::engine::Engine;
use garonne_progress::environment::SpinBudget;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{
    AnyOfWaiter, BackgroundWork, Messaging, Stepper, WaitTarget, Waiting,
};
use garonne_progress::sharded::ShardedEngine;
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sim::{AsyncEnvironment, leave_sharded, leave_together};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const WORLD: u32 = 2;
const CONTEXT: u32 = 2;
const WAITERS: i32 = 12;
const MESSAGES: i32 = 100;
/// The messages for the thread that does not sleep for long have this tag; those for others their
/// numbers.
const BUSY: i32 = 1000;

type Rank = LockedEngine<LocalTransport, AsyncEnvironment>;

fn engine(fabric: &Arc<Fabric>, me: u32) -> (Engine<LocalTransport>, AsyncEnvironment) {
    let shard = Engine::new(
        fabric.transport(me),
        me,
        WORLD,
        CreditQuotas::for_world(WORLD),
    );
    let lending = AsyncEnvironment {
        patience: SpinBudget {
            spins: 0,
            yields: 0,
            spinners: 1,
        },
        grace: None,
        progress_spin: Duration::ZERO,
    };
    (shard, lending)
}

fn rank(fabric: &Arc<Fabric>, me: u32) -> Rank {
    let (shard, lending) = engine(fabric, me);
    LockedEngine::new(shard, me, WORLD, lending)
}

fn pattern(host: &dyn Messaging, tag: i32) -> Pattern {
    let peer = 1 - host.me();
    Pattern {
        context: CONTEXT,
        source: Some(Source { rank: peer, peer }),
        tag: Some(tag),
    }
}

/// A receive under way, and the memory that it reaches.
fn post(host: &dyn Messaging, tag: i32) -> (Option<Request>, Scratch) {
    post_in(host, CONTEXT, tag)
}

fn post_in(host: &dyn Messaging, context: ContextId, tag: i32) -> (Option<Request>, Scratch) {
    let room = Scratch::new(8).unwrap();
    let pattern = pattern(host, tag);
    let started = host.recv(RecvArgs {
        pattern: Pattern { context, ..pattern },
        data: Data::contiguous(room.mem(), 8),
        origin: CallOrigin::default(),
    });
    match started.unwrap() {
        StartOutcome::Done(_) => (None, room),
        StartOutcome::Pending(request) => (Some(request), room),
    }
}

fn receive(host: &dyn Messaging, tag: i32) {
    receive_in(host, CONTEXT, tag);
}

fn receive_in(host: &dyn Messaging, context: ContextId, tag: i32) {
    if let (Some(request), _room) = post_in(host, context, tag) {
        host.wait_for(&|| WaitTarget::Operation(request), &mut || {
            host.take(request).unwrap().is_some()
        });
    }
}

fn of(host: &dyn Messaging, tag: i32, memory: &Scratch) -> SendArgs {
    SendArgs {
        context: CONTEXT,
        peer: 1 - host.me(),
        source: host.me(),
        tag,
        data: Data::contiguous(memory.mem(), 8),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    }
}

fn send(host: &dyn Messaging, tag: i32) {
    send_in(host, CONTEXT, tag);
}

fn send_in(host: &dyn Messaging, context: ContextId, tag: i32) {
    let memory = Scratch::new(8).unwrap();
    let started = host.send(SendArgs {
        context,
        ..of(host, tag, &memory)
    });
    assert!(matches!(started.unwrap(), StartOutcome::Done(_)));
}

/// Returns the number of threads are woken while messages come for another one, of so many that
/// wait in this way, each for what the peer sends with its tag.
fn woken_by_messages_for_another(wait: impl Fn(&Rank, i32) + Sync) -> u32 {
    let (fabric, leaving) = (Fabric::new(WORLD), AtomicU32::new(0));
    let woken = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let host = Arc::new(rank(&fabric, 1));
            for _ in 0..MESSAGES {
                receive(&*host, BUSY);
                send(&*host, BUSY);
            }
            receive(&*host, BUSY);
            (0..WAITERS).for_each(|tag| send(&*host, tag));
            leave_together(&host, &leaving, WORLD);
        });
        scope.spawn(|| {
            let host = Arc::new(rank(&fabric, 0));
            std::thread::scope(|scope| {
                for tag in 0..WAITERS {
                    let (host, wait) = (&host, &wait);
                    scope.spawn(move || wait(host, tag));
                }
                std::thread::sleep(Duration::from_millis(50));
                let before = host.wake_count();
                for _ in 0..MESSAGES {
                    send(&*host, BUSY);
                    receive(&*host, BUSY);
                    // Whoever was woken sits again.
                    std::thread::sleep(Duration::from_micros(200));
                }
                woken.store(host.wake_count().wrapping_sub(before), Ordering::Relaxed);
                send(&*host, BUSY);
            });
            leave_together(&host, &leaving, WORLD);
        });
    });
    woken.into_inner()
}

/// The thread that receives them is woken for each at most.
const AT_MOST: u32 = MESSAGES as u32 + WAITERS as u32;

fn probe(host: &Rank, tag: i32, any: Pattern) {
    let pattern = Pattern {
        context: CONTEXT,
        ..any
    };
    host.wait_for(&|| WaitTarget::Message(pattern), &mut || {
        host.probe(pattern).unwrap().is_some()
    });
    receive(host, tag);
}

#[test]
fn a_message_that_a_receive_takes_wakes_nobody_who_probes() {
    // Even of patterns that would accept it.
    let woken = woken_by_messages_for_another(|host, tag| match tag % 3 {
        0 => probe(host, tag, pattern(host, tag)),
        1 => probe(
            host,
            tag,
            Pattern {
                source: None,
                ..pattern(host, tag)
            },
        ),
        _ => probe(
            host,
            tag,
            Pattern {
                tag: None,
                ..pattern(host, tag)
            },
        ),
    });
    assert!(woken <= AT_MOST, "{woken} were woken");
}

#[test]
fn a_message_for_another_wakes_nobody_who_waits_for_any_of_several() {
    let woken = woken_by_messages_for_another(|host, tag| {
        let (other, _room) = post(host, WAITERS + tag);
        let (one, _room) = post(host, tag);
        let names = [other, one].map(Option::unwrap);
        let awaits = host.register_any_of(&mut names.map(WaitTarget::Operation).into_iter());
        host.wait_for(&|| awaits, &mut || host.take(names[1]).unwrap().is_some());
        call_off(host, names[0]);
    });
    assert!(woken <= AT_MOST, "{woken} were woken");
}

fn call_off(host: &dyn Messaging, name: Request) {
    host.cancel(name).unwrap();
    assert!(host.take(name).unwrap().is_some());
}

/// Ends with its message.
struct Takes {
    request: Request,
    over: AtomicBool,
    waiter: AnyOfWaiter,
}

impl Takes {
    fn new(request: Request) -> Arc<Self> {
        Arc::new(Self {
            request,
            over: AtomicBool::new(false),
            waiter: AnyOfWaiter::default(),
        })
    }
}

impl Stepper for Takes {
    fn step(&self, host: &dyn Messaging) -> bool {
        let over = host.take(self.request).unwrap().is_some();
        self.over.fetch_or(over, Ordering::SeqCst);
        over
    }

    fn current_waiter(&self) -> Option<&AnyOfWaiter> {
        Some(&self.waiter)
    }
}

#[test]
fn a_message_for_another_wakes_nobody_who_waits_for_a_stepper() {
    let woken = woken_by_messages_for_another(wait_for_a_stepper);
    assert!(woken <= AT_MOST, "{woken} were woken");
}

/// Waits for any of a stepper, which ends with the message of this tag or with none that comes, and
/// a message, or the other way round.
fn wait_for_a_stepper_or_an_operation(host: &Rank, tag: i32) {
    let ((one, _room), (other, _other_room)) = (post(host, tag), post(host, WAITERS + tag));
    let (one, other) = (one.unwrap(), other.unwrap());
    let (stepped, named) = if tag % 2 == 0 {
        (one, other)
    } else {
        (other, one)
    };
    let takes = Takes::new(stepped);
    host.attach_stepper(takes.clone());
    takes.waiter.register();
    let parts = [
        WaitTarget::stepper_end(&*takes),
        WaitTarget::Operation(named),
    ];
    let awaits = host.register_any_of(&mut parts.into_iter());
    let is_over = || match tag % 2 {
        0 => takes.over.load(Ordering::SeqCst),
        _ => host.take(named).unwrap().is_some(),
    };
    host.wait_for(&|| awaits, &mut || is_over());
    host.cancel(other).unwrap();
    if tag % 2 == 0 {
        assert!(host.take(other).unwrap().is_some());
    } else {
        host.wait_until(&mut || takes.over.load(Ordering::SeqCst));
    }
}

#[test]
fn a_message_for_another_wakes_nobody_who_waits_for_a_stepper_or_an_operation() {
    let woken = woken_by_messages_for_another(wait_for_a_stepper_or_an_operation);
    assert!(woken <= AT_MOST, "{woken} were woken");
}

/// Something that another thread brings about: here one that waits for the message of this tag.
fn wait_to_be_told(host: &Rank, tag: i32, alone: bool) {
    let (come, waiter) = (AtomicBool::new(false), AnyOfWaiter::default());
    let (never, _room) = post(host, WAITERS + tag);
    let told = || WaitTarget::signal_of(&come);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            receive(host, tag);
            come.store(true, Ordering::SeqCst);
            host.signal(told(), &waiter);
        });
        let awaits = match alone {
            true => told(),
            false => {
                waiter.register();
                host.register_any_of(
                    &mut [WaitTarget::Operation(never.unwrap()), told()].into_iter(),
                )
            }
        };
        host.wait_for(&|| awaits, &mut || come.load(Ordering::SeqCst));
    });
    call_off(host, never.unwrap());
}

#[test]
fn a_message_for_another_wakes_nobody_who_is_to_be_told() {
    let woken = woken_by_messages_for_another(|host, tag| wait_to_be_told(host, tag, true));
    assert!(woken <= AT_MOST, "{woken} were woken");
}

#[test]
fn a_message_for_another_wakes_nobody_who_is_to_be_told_among_others() {
    let woken = woken_by_messages_for_another(|host, tag| wait_to_be_told(host, tag, false));
    assert!(woken <= AT_MOST, "{woken} were woken");
}

const SHARDS: usize = 4;

#[test]
fn a_message_for_another_wakes_nobody_who_waits_for_any_of_several_shards() {
    let first = Fabric::new(WORLD);
    let more = (1..SHARDS).map(|shard| first.beside(shard as u64));
    let fabrics: Vec<Arc<Fabric>> = std::iter::once(first.clone()).chain(more).collect();
    let sharded = |me| {
        let fabrics = fabrics.clone();
        let open = move |shard: usize| Ok(engine(&fabrics[shard], me));
        ShardedEngine::new(Arc::new(rank(&first, me)), SHARDS, Box::new(open))
    };
    let (leaving, woken) = (AtomicU32::new(0), AtomicU32::new(0));
    // Those that wait do so in two shards, and messages come in a third.
    let context = |shard| in_shard(shard, CONTEXT);
    let wait = |host: &dyn Messaging, tag: i32| {
        let (one, _room) = post_in(host, context(1), tag);
        let (other, _other_room) = post_in(host, context(2), tag);
        let names = [one, other].map(Option::unwrap);
        let awaits = host.register_any_of(&mut names.map(WaitTarget::Operation).into_iter());
        let at = tag as usize % 2;
        host.wait_for(&|| awaits, &mut || host.take(names[at]).unwrap().is_some());
        call_off(host, names[1 - at]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let host = sharded(1);
            for _ in 0..MESSAGES {
                receive_in(&*host, context(3), BUSY);
                send_in(&*host, context(3), BUSY);
            }
            receive_in(&*host, context(3), BUSY);
            (0..WAITERS).for_each(|tag| send_in(&*host, context(1 + tag as usize % 2), tag));
            leave_sharded(&host, &leaving, WORLD);
        });
        scope.spawn(|| {
            let host = sharded(0);
            let calls = || {
                (0..SHARDS)
                    .filter_map(|shard| host.known(shard))
                    .map(Rank::wake_count)
                    .sum::<u32>()
            };
            std::thread::scope(|scope| {
                let (host, wait) = (&host, &wait);
                (0..WAITERS).for_each(|tag| drop(scope.spawn(move || wait(&**host, tag))));
                std::thread::sleep(Duration::from_millis(50));
                let before = calls();
                for _ in 0..MESSAGES {
                    send_in(&**host, context(3), BUSY);
                    receive_in(&**host, context(3), BUSY);
                    std::thread::sleep(Duration::from_micros(200));
                }
                woken.store(calls().wrapping_sub(before), Ordering::Relaxed);
                send_in(&**host, context(3), BUSY);
            });
            leave_sharded(&host, &leaving, WORLD);
        });
    });
    let woken = woken.into_inner();
    assert!(woken <= AT_MOST, "{woken} were woken");
}

#[test]
fn who_waits_for_a_peer_that_dies_hears_of_it_however_it_waits() {
    let fabric = Fabric::new(WORLD);
    let (host, peer) = (rank(&fabric, 0), rank(&fabric, 1));
    // They have spoken with each other.
    send(&peer, BUSY);
    receive(&host, BUSY);
    let ended = AtomicU32::new(0);
    std::thread::scope(|scope| {
        // Polls all the while, so that nobody else asks who is not woken.
        scope.spawn(|| host.wait_until(&mut || ended.load(Ordering::SeqCst) == WAITERS as u32));
        std::thread::sleep(Duration::from_millis(20));
        for tag in 0..WAITERS {
            let (host, ended) = (&host, &ended);
            scope.spawn(move || {
                wait_for_the_end_of_the_peer(host, tag);
                ended.fetch_add(1, Ordering::SeqCst);
                host.wake();
            });
        }
        std::thread::sleep(Duration::from_millis(50));
        fabric.kill(1);
    });
}

fn wait_for_the_end_of_the_peer(host: &Rank, tag: i32) {
    match tag % 3 {
        0 => {
            let pattern = pattern(host, tag);
            host.wait_for(&|| WaitTarget::Message(pattern), &mut || {
                host.probe(pattern).is_err()
            });
        }
        1 => {
            let both = [tag, WAITERS + tag].map(|tag| post(host, tag));
            let awaits = host.register_any_of(
                &mut both
                    .iter()
                    .map(|(name, _)| WaitTarget::Operation(name.unwrap())),
            );
            let fails = |name: &Option<Request>| {
                let status = host.take(name.unwrap()).unwrap();
                status
                    .map(|status| assert!(status.error.is_some()))
                    .is_some()
            };
            host.wait_for(&|| awaits, &mut || fails(&both[1].0));
            assert!(fails(&both[0].0));
        }
        _ => wait_for_a_stepper(host, tag),
    }
}

fn wait_for_a_stepper(host: &Rank, tag: i32) {
    let (request, _room) = post(host, tag);
    let takes = Takes::new(request.unwrap());
    host.attach_stepper(takes.clone());
    host.wait_for(&|| WaitTarget::stepper_end(&*takes), &mut || {
        takes.over.load(Ordering::SeqCst)
    });
}

#[test]
fn who_probes_for_what_its_sender_holds_back_finds_it() {
    // Twice as many as may be kept.
    let many = 2 * CreditQuotas::for_world(WORLD).envelopes as i32;
    let (fabric, leaving) = (Fabric::new(WORLD), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let host = Arc::new(rank(&fabric, 1));
            let memory = Scratch::new(8).unwrap();
            let start = |tag| host.send(of(&*host, tag, &memory)).unwrap();
            let sends: Vec<_> = (0..many)
                .map(|_| start(BUSY))
                .chain((0..WAITERS).map(start))
                .collect();
            for started in sends {
                if let StartOutcome::Pending(request) = started {
                    host.wait_for(&|| WaitTarget::Operation(request), &mut || {
                        host.take(request).unwrap().is_some()
                    });
                }
            }
            leave_together(&host, &leaving, WORLD);
        });
        scope.spawn(|| {
            let host = Arc::new(rank(&fabric, 0));
            let ended = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let (host, ended) = (&host, &ended);
                scope.spawn(|| {
                    host.wait_until(&mut || ended.load(Ordering::SeqCst) == WAITERS as u32)
                });
                for tag in 0..WAITERS {
                    scope.spawn(move || {
                        probe(host, tag, pattern(&**host, tag));
                        ended.fetch_add(1, Ordering::SeqCst);
                        host.wake();
                    });
                }
            });
            (0..many).for_each(|_| receive(&*host, BUSY));
            leave_together(&host, &leaving, WORLD);
        });
    });
}
