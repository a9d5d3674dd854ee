//! Async progress by a progress thread, under random schedules: what ranks leave open comes about
//! while none of them is in the library, nothing is lost or done twice, and nobody sleeps for ever.
//! Each seed gives every thread other moments to give way at.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_engine::transport::AsyncProgress;
use garonne_progress::environment::SpinBudget;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{BackgroundWork, Messaging, Stepper, Waiting};
use garonne_progress::tasks::{Keypoint, TaskSettings, Tasks};
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sim::{AsyncEnvironment, leave_together, seeds};
use garonne_sync::progress_owner::ProgressWakeup;
use garonne_sync::try_lock::SingleThreaded;
use garonne_sync::user::{Data, Scratch};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const WORLD: u32 = 3;
const LARGE: usize = 60_000;
const ROUNDS: u32 = 6;
/// Longer than anything here takes on a machine that does much else.
const GIVE_UP: Duration = Duration::from_secs(60);

const PATIENCE: SpinBudget = SpinBudget {
    spins: 20,
    yields: 2,
    spinners: 1,
};

/// With a core to spare, with one on which the progress thread stays awake (for longer than
/// anything here takes, for a moment), and without.
const SPARE: [(Option<Duration>, Duration); 4] = [
    (None, Duration::ZERO),
    (None, Duration::from_millis(2)),
    (None, Duration::from_micros(20)),
    (Some(Duration::from_micros(50)), Duration::ZERO),
];
const WORLDS: u32 = SPARE.len() as u32;

type Rank = LockedEngine<LocalTransport, AsyncEnvironment>;

#[derive(Clone, Copy, PartialEq)]
enum Threads {
    /// Locks are elided while no hands are lent.
    One,
    Several,
}

/// Outside of the library until `over` says so.
fn comes(what: &str, over: impl Fn() -> bool) {
    let until = Instant::now() + GIVE_UP;
    while !over() {
        assert!(Instant::now() < until, "{what} does not come");
        std::thread::yield_now();
    }
}

fn buffer(seed: u32) -> Scratch {
    let buffer = Scratch::new(LARGE).unwrap();
    buffer
        .mem()
        .with_mut(0, LARGE, |bytes| bytes.fill(seed as u8 | 1));
    buffer
}

fn has_come(buffer: &Scratch, seed: u32) -> bool {
    let is_there = |at: usize| {
        let mut byte = [0];
        buffer.mem().read(at as isize, &mut byte);
        byte[0] == seed as u8 | 1
    };
    (0..LARGE).step_by(4096).all(is_there) && is_there(LARGE - 1)
}

fn send(host: &Rank, peer: u32, tag: i32, buffer: &Scratch, len: usize) -> Option<Request> {
    let started = host.send(SendArgs {
        context: 2,
        peer,
        source: host.me(),
        tag,
        data: Data::contiguous(buffer.mem(), len as u64),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    });
    open(host, started.unwrap())
}

fn recv(host: &Rank, peer: u32, tag: i32, buffer: &Scratch) -> Option<Request> {
    let started = host.recv(RecvArgs {
        pattern: Pattern {
            context: 2,
            source: Some(Source { rank: peer, peer }),
            tag: Some(tag),
        },
        data: Data::contiguous(buffer.mem(), buffer.len() as u64),
        origin: CallOrigin::default(),
    });
    open(host, started.unwrap())
}

fn open(host: &Rank, started: StartOutcome) -> Option<Request> {
    match started {
        StartOutcome::Done(_) => None,
        StartOutcome::Pending(request) => {
            host.leave_pending(request);
            Some(request)
        }
    }
}

/// In a ring of all ranks.
fn node_peers(host: &Rank) -> (u32, u32) {
    ((host.me() + WORLD - 1) % WORLD, (host.me() + 1) % WORLD)
}

/// A round in which each rank sends a large message to its right and expects one from its left, of
/// which the bytes are that round's: what is sent, where it comes, and what is open.
fn around(host: &Rank, round: u32) -> (Scratch, Scratch, [Option<Request>; 2]) {
    let (left, right) = node_peers(host);
    let (out, into) = (buffer(round), Scratch::new(LARGE).unwrap());
    into.mem().with_mut(0, LARGE, |bytes| bytes.fill(0));
    let open = [
        recv(host, left, round as i32, &into),
        send(host, right, round as i32, &out, LARGE),
    ];
    (out, into, open)
}

/// Returns whether peers would wake the progress thread of this rank.
fn is_armed(host: &Rank) -> bool {
    let words = host
        .inspect(|shard| shard.transport().progress_words(host.me()))
        .unwrap();
    ProgressWakeup::new(&words.word(0), &words.word(4)).is_armed()
}

fn wait(host: &Rank, requests: impl IntoIterator<Item = Option<Request>>) {
    for request in requests.into_iter().flatten() {
        let mut over = false;
        host.wait_until(&mut || {
            over = over || host.take(request).unwrap().is_some();
            over
        });
    }
}

/// Passes a small message around the ring `laps` times, as a stepper: the first rank begins each
/// lap.
struct Ring {
    state: Mutex<(u32, Option<Request>, Scratch)>,
    tag: i32,
    laps: u32,
    over: AtomicBool,
    /// Only this thread may step it; `None`: any.
    own: Option<ThreadId>,
}

impl Ring {
    fn new(tag: i32, laps: u32, own: Option<ThreadId>) -> Arc<Self> {
        let memory = Scratch::new(8).unwrap();
        memory.mem().with_mut(0, 8, |bytes| bytes.fill(0));
        Arc::new(Self {
            state: Mutex::new((0, None, memory)),
            tag,
            laps,
            over: AtomicBool::new(false),
            own,
        })
    }
}

impl Stepper for Ring {
    fn step(&self, host: &dyn Messaging) -> bool {
        assert!(
            self.own
                .is_none_or(|own| own == std::thread::current().id())
        );
        let mut state = self.state.try_lock().expect("no two threads step at once");
        let (me, right, left) = (
            host.me(),
            (host.me() + 1) % WORLD,
            (host.me() + WORLD - 1) % WORLD,
        );
        // Steps of one lap: the first rank sends and receives, the others receive and send.
        while state.0 < 2 * self.laps {
            let sends = state.0.is_multiple_of(2) == (me == 0);
            let (peer, memory) = (if sends { right } else { left }, state.2.mem());
            let data = Data::contiguous(memory, 8);
            let request = match state.1.take() {
                Some(request) => request,
                None => {
                    let started = if sends {
                        host.send(SendArgs {
                            context: 3,
                            peer,
                            source: me,
                            tag: self.tag,
                            data,
                            mode: SendCompletion::Standard,
                            origin: CallOrigin::default(),
                        })
                    } else {
                        let source = Some(Source { rank: peer, peer });
                        host.recv(RecvArgs {
                            pattern: Pattern {
                                context: 3,
                                source,
                                tag: Some(self.tag),
                            },
                            data,
                            origin: CallOrigin::default(),
                        })
                    };
                    match started.unwrap() {
                        StartOutcome::Done(_) => {
                            state.0 += 1;
                            continue;
                        }
                        StartOutcome::Pending(request) => request,
                    }
                }
            };
            if host.take(request).unwrap().is_none() {
                state.1 = Some(request);
                return false;
            }
            state.0 += 1;
        }
        self.over.store(true, Ordering::Release);
        true
    }

    fn runs_user_code(&self) -> bool {
        self.own.is_some()
    }
}

/// Large messages to the right and from the left, which nobody waits for before they are there, and
/// small ones beside them.
fn exchange(host: &Rank, thread: i32, done: &[AtomicU32]) {
    let (left, right) = node_peers(host);
    for round in 0..ROUNDS {
        let (tag, seed) = (thread * 1000 + round as i32, |rank: u32| {
            16 * rank + 2 * round + 1
        });
        let (out, into) = (buffer(seed(host.me())), Scratch::new(LARGE).unwrap());
        into.mem().with_mut(0, LARGE, |bytes| bytes.fill(0));
        let receiving = recv(host, left, tag, &into);
        let sending = send(host, right, tag, &out, LARGE);
        if round % 2 == 0 {
            comes("a large message", || has_come(&into, seed(left)));
        }
        // Ends also a wait with something open.
        let (few, some) = (buffer(3), Scratch::new(64).unwrap());
        let small = [
            recv(host, left, tag + 500, &some),
            send(host, right, tag + 500, &few, 16),
        ];
        wait(host, small);
        if round % 3 == 0 {
            comes("a large message beside a small one", || {
                has_come(&into, seed(left))
            });
        }
        wait(host, [receiving, sending]);
        assert!(has_come(&into, seed(left)));
        done[round as usize].fetch_add(1, Ordering::AcqRel);
    }
}

fn rings(host: &Rank) {
    for lap in 0..ROUNDS as i32 {
        let ring = Ring::new(lap, 3, None);
        host.attach_stepper(ring.clone());
        if lap % 2 == 0 {
            comes("the end of a ring", || ring.over.load(Ordering::Acquire));
        }
        // One with the program's own code, and one without, while a thread waits for both.
        let own = Ring::new(100 + lap, 2, Some(std::thread::current().id()));
        host.attach_stepper(own.clone());
        host.wait_until(&mut || {
            ring.over.load(Ordering::Acquire) && own.over.load(Ordering::Acquire)
        });
    }
}

fn world(seed: u64, threads: Threads, program: impl Fn(&Arc<Rank>) + Sync) {
    let patience = PATIENCE;
    for (grace, progress_spin) in SPARE {
        let lending = AsyncEnvironment {
            patience,
            grace,
            progress_spin,
        };
        world_of(lending, seed, threads, &program);
    }
}

fn world_of(
    lending: AsyncEnvironment,
    seed: u64,
    threads: Threads,
    program: impl Fn(&Arc<Rank>) + Sync,
) {
    let fabric = Fabric::shaken(WORLD, seed);
    let leaving = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for me in 0..WORLD {
            let (fabric, leaving, program) = (&fabric, &leaving, &program);
            scope.spawn(move || {
                let shard = Engine::new(
                    fabric.transport(me),
                    me,
                    WORLD,
                    CreditQuotas::for_world(WORLD),
                );
                let host = Arc::new(LockedEngine::new(shard, me, WORLD, lending));
                host.enable_async_progress(None);
                if threads == Threads::One {
                    // SAFETY: one thread of this test uses the host, and its progress thread keeps
                    // to the gate.
                    host.elide(unsafe { SingleThreaded::promise() });
                }
                program(&host);
                leave_together(&host, leaving, WORLD);
            });
        }
    });
}

#[test]
fn what_one_thread_leaves_open_comes_about_by_itself() {
    for seed in seeds(12) {
        let done: Vec<AtomicU32> = (0..ROUNDS).map(|_| AtomicU32::new(0)).collect();
        world(seed, Threads::One, |host| exchange(host, 0, &done));
        assert!(
            done.iter()
                .all(|done| done.load(Ordering::Acquire) == WORLDS * WORLD)
        );
    }
}

#[test]
fn what_several_threads_leave_open_comes_about_by_itself() {
    for seed in seeds(12) {
        let done: Vec<AtomicU32> = (0..ROUNDS).map(|_| AtomicU32::new(0)).collect();
        world(seed, Threads::Several, |host| {
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let done = &done;
                    scope.spawn(move || exchange(host, thread, done));
                }
            });
        });
        assert!(
            done.iter()
                .all(|done| done.load(Ordering::Acquire) == WORLDS * 3 * WORLD)
        );
    }
}

#[test]
fn steppers_go_on_by_themselves_but_for_those_with_the_programs_own_code() {
    for seed in seeds(12) {
        for threads in [Threads::One, Threads::Several] {
            world(seed, threads, |host| rings(host));
        }
    }
}

#[test]
fn what_is_reclaimed_can_be_released_again() {
    for seed in seeds(12) {
        let done: Vec<AtomicU32> = (0..ROUNDS).map(|_| AtomicU32::new(0)).collect();
        world(seed, Threads::One, |host| {
            exchange(host, 0, &done);
            host.stop_async_progress();
            exchange(host, 1, &done);
        });
    }
}

#[test]
fn a_progress_thread_that_sleeps_is_woken_when_the_engine_is_released_again() {
    let (patience, grace) = (PATIENCE, Duration::from_micros(50));
    let lending = AsyncEnvironment {
        patience,
        grace: Some(grace),
        progress_spin: Duration::ZERO,
    };
    let done = AtomicU32::new(0);
    world_of(lending, 1, Threads::One, |host| {
        for round in 0..ROUNDS {
            // Longer than it looks in vain.
            std::thread::sleep(100 * grace);
            let (_out, into, open) = around(host, round);
            comes("a large message after a rest", || has_come(&into, round));
            wait(host, open);
        }
        done.fetch_add(1, Ordering::AcqRel);
    });
    assert_eq!(done.load(Ordering::Acquire), WORLD);
}

#[test]
fn where_no_core_is_to_spare_nobody_calls_the_progress_thread_of_a_rank_that_soon_comes_back() {
    let lending = AsyncEnvironment {
        patience: PATIENCE,
        grace: Some(Duration::from_secs(3600)),
        progress_spin: Duration::ZERO,
    };
    let done = AtomicU32::new(0);
    world_of(lending, 1, Threads::One, |host| {
        for round in 0..ROUNDS {
            let (_out, into, open) = around(host, round);
            assert!(!is_armed(host), "peers would call it");
            wait(host, open);
            assert!(has_come(&into, round));
        }
        done.fetch_add(1, Ordering::AcqRel);
    });
    assert_eq!(done.load(Ordering::Acquire), WORLD);
}

#[test]
fn a_keypoint_of_the_program_advances_what_is_open_where_nobody_calls_the_progress_thread() {
    let lending = AsyncEnvironment {
        patience: PATIENCE,
        grace: Some(Duration::from_secs(3600)),
        progress_spin: Duration::ZERO,
    };
    let (tasks, done) = (Tasks::new(TaskSettings::here()).unwrap(), AtomicU32::new(0));
    world_of(lending, 1, Threads::One, |host| {
        for round in 0..ROUNDS {
            let (_out, into, open) = around(host, round);
            comes("a large message", || {
                tasks.schedule(Keypoint::Switch);
                has_come(&into, round)
            });
            wait(host, open);
        }
        done.fetch_add(1, Ordering::AcqRel);
    });
    assert_eq!(done.load(Ordering::Acquire), WORLD);
}

#[test]
fn a_progress_thread_that_is_awake_sees_what_is_released_and_nobody_calls_it() {
    let lending = AsyncEnvironment {
        patience: PATIENCE,
        grace: None,
        progress_spin: Duration::from_secs(1),
    };
    let uncalled = AtomicU32::new(0);
    world_of(lending, 1, Threads::One, |host| {
        for round in 0..ROUNDS {
            let (_out, into, open) = around(host, round);
            comes("a large message", || has_come(&into, round));
            // Armed it would be by whoever lends to one that sleeps.
            uncalled.fetch_add(u32::from(!is_armed(host)), Ordering::Relaxed);
            wait(host, open);
        }
    });
    assert!(uncalled.into_inner() >= WORLD * (ROUNDS - 2));
}
