//! Threads of a rank that sleep while messages come for another: each is woken by what it waits for, and by nothing else.

use garonne_engine::Quotas;
use garonne_engine::api::{Mode, Origin, Pattern, Recv, Request, Send, Source, Started};
use garonne_engine::shard::Shard;
use garonne_progress::engine_host::EngineHost;
use garonne_progress::host::{Awaits, Host, Stepper};
use garonne_progress::surroundings::Patience;
use garonne_sim::local::{Fabric, LocalRail};
use garonne_sim::{Lending, leave_together};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const WORLD: u32 = 2;
const CONTEXT: u32 = 2;
const WAITERS: i32 = 12;
const MESSAGES: i32 = 100;
/// The messages for the thread that does not sleep for long have this tag; those for others their numbers.
const BUSY: i32 = 1000;

type Rank = EngineHost<LocalRail, Lending>;

fn rank(fabric: &Arc<Fabric>, me: u32) -> Rank {
    let shard = Shard::new(fabric.rail(me), me, WORLD, Quotas::for_world(WORLD));
    let lending = Lending {
        patience: Patience {
            spins: 0,
            yields: 0,
            awake: 1,
        },
        grace: None,
        vigil: Duration::ZERO,
    };
    EngineHost::new(shard, me, WORLD, lending)
}

fn pattern(host: &Rank, tag: i32) -> Pattern {
    let peer = 1 - host.me();
    Pattern {
        context: CONTEXT,
        source: Some(Source { rank: peer, peer }),
        tag: Some(tag),
    }
}

/// A receive under way, and the memory that it reaches.
fn post(host: &Rank, tag: i32) -> (Option<Request>, Scratch) {
    let room = Scratch::new(8).unwrap();
    let started = host.recv(Recv {
        pattern: pattern(host, tag),
        data: Data::contiguous(room.mem(), 8),
        origin: Origin::default(),
    });
    match started.unwrap() {
        Started::Done(_) => (None, room),
        Started::Pending(request) => (Some(request), room),
    }
}

fn receive(host: &Rank, tag: i32) {
    if let (Some(request), _room) = post(host, tag) {
        host.wait_for(&|| Awaits::Operation(request), &mut || {
            host.take(request).unwrap().is_some()
        });
    }
}

fn of(host: &Rank, tag: i32, memory: &Scratch) -> Send {
    Send {
        context: CONTEXT,
        peer: 1 - host.me(),
        source: host.me(),
        tag,
        data: Data::contiguous(memory.mem(), 8),
        mode: Mode::Standard,
        origin: Origin::default(),
    }
}

fn send(host: &Rank, tag: i32) {
    let memory = Scratch::new(8).unwrap();
    let started = host.send(of(host, tag, &memory));
    assert!(matches!(started.unwrap(), Started::Done(_)));
}

/// How many threads are woken while messages come for another one, of so many that wait in this way, each for what the peer sends with its tag.
fn woken_by_messages_for_another(wait: impl Fn(&Rank, i32) + Sync) -> u32 {
    let (fabric, leaving) = (Fabric::new(WORLD), AtomicU32::new(0));
    let woken = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let host = Arc::new(rank(&fabric, 1));
            for _ in 0..MESSAGES {
                receive(&host, BUSY);
                send(&host, BUSY);
            }
            receive(&host, BUSY);
            (0..WAITERS).for_each(|tag| send(&host, tag));
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
                let before = host.woken();
                for _ in 0..MESSAGES {
                    send(&host, BUSY);
                    receive(&host, BUSY);
                    // Whoever was woken sits again.
                    std::thread::sleep(Duration::from_micros(200));
                }
                woken.store(host.woken().wrapping_sub(before), Ordering::Relaxed);
                send(&host, BUSY);
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
    host.wait_for(&|| Awaits::Message(pattern), &mut || {
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
        let names = [other, one].map(|name| Some(name.unwrap()));
        let awaits = host.any_of(&mut names.into_iter());
        host.wait_for(&|| awaits, &mut || {
            host.take(names[1].unwrap()).unwrap().is_some()
        });
        host.cancel(names[0].unwrap()).unwrap();
        assert!(host.take(names[0].unwrap()).unwrap().is_some());
    });
    assert!(woken <= AT_MOST, "{woken} were woken");
}

/// Ends with its message.
struct Takes {
    request: Request,
    over: AtomicBool,
}

impl Stepper for Takes {
    fn step(&self, host: &dyn Host) -> bool {
        let over = host.take(self.request).unwrap().is_some();
        self.over.fetch_or(over, Ordering::SeqCst);
        over
    }
}

#[test]
fn a_message_for_another_wakes_nobody_who_waits_for_a_stepper() {
    let woken = woken_by_messages_for_another(wait_for_a_stepper);
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
            host.wait_for(&|| Awaits::Message(pattern), &mut || host.probe(pattern).is_err());
        }
        1 => {
            let both = [tag, WAITERS + tag].map(|tag| post(host, tag));
            let awaits = host.any_of(&mut both.iter().map(|(name, _)| *name));
            let fails = |name: &Option<Request>| {
                let status = host.take(name.unwrap()).unwrap();
                status.map(|status| assert!(status.error.is_some())).is_some()
            };
            host.wait_for(&|| awaits, &mut || fails(&both[1].0));
            assert!(fails(&both[0].0));
        }
        _ => wait_for_a_stepper(host, tag),
    }
}

fn wait_for_a_stepper(host: &Rank, tag: i32) {
    let (request, _room) = post(host, tag);
    let takes = Arc::new(Takes {
        request: request.unwrap(),
        over: AtomicBool::new(false),
    });
    host.attach(takes.clone());
    host.wait_for(&|| Awaits::end_of(&*takes), &mut || {
        takes.over.load(Ordering::SeqCst)
    });
}

#[test]
fn who_probes_for_what_its_sender_holds_back_finds_it() {
    // Twice as many as may be kept.
    let many = 2 * Quotas::for_world(WORLD).envelopes as i32;
    let (fabric, leaving) = (Fabric::new(WORLD), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let host = Arc::new(rank(&fabric, 1));
            let memory = Scratch::new(8).unwrap();
            let start = |tag| host.send(of(&host, tag, &memory)).unwrap();
            let sends: Vec<_> = (0..many)
                .map(|_| start(BUSY))
                .chain((0..WAITERS).map(start))
                .collect();
            for started in sends {
                if let Started::Pending(request) = started {
                    host.wait_for(&|| Awaits::Operation(request), &mut || {
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
                scope.spawn(|| host.wait_until(&mut || ended.load(Ordering::SeqCst) == WAITERS as u32));
                for tag in 0..WAITERS {
                    scope.spawn(move || {
                        probe(host, tag, pattern(host, tag));
                        ended.fetch_add(1, Ordering::SeqCst);
                        host.wake();
                    });
                }
            });
            (0..many).for_each(|_| receive(&host, BUSY));
            leave_together(&host, &leaving, WORLD);
        });
    });
}
