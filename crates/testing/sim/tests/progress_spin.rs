//! A progress thread that stays awake is in nobody's way: it takes no turns for as long as another
//! thread of its rank waits, which does the work, and ends one for a program that forks.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
    in_shard,
};
use garonne_engine::engine::Engine;
use garonne_progress::environment::{Environment, ProgressThreadEvent, SpinBudget, WaitObserver};
use garonne_progress::limits::FORK_WAITS;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{Messaging, WaitTarget};
use garonne_progress::sharded::ShardedEngine;
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sim::{leave_sharded, leave_together};
use garonne_sync::user::{Data, Scratch};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const WORLD: u32 = 2;
const LARGE: usize = 60_000;
/// Duration of a wait: thousands of turns of a progress thread.
const WAITS: Duration = Duration::from_millis(50);
/// Turns of the progress thread meanwhile at most: one that has begun, and one that finds the other
/// thread there.
const TURNS: u32 = 2;
/// Longer than anything here takes on a machine that does much else.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Environment in which a progress thread stays awake for so long, and its turns are counted.
struct Idle(Duration, Arc<AtomicU32>);

impl WaitObserver for Idle {
    fn note_progress_thread(&self, news: ProgressThreadEvent) {
        self.1.fetch_add(
            u32::from(news == ProgressThreadEvent::Called),
            Ordering::SeqCst,
        );
    }
}

impl Environment for Idle {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: 20,
            yields: 2,
            spinners: 1,
        }
    }

    fn progress_spin_time(&self) -> Duration {
        self.0
    }

    fn preemption_threshold(&self) -> Duration {
        // Threads of a test share their cores all the time.
        Duration::MAX
    }

    fn releases_always(&self) -> bool {
        true
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("aborted with code {code}: {message}")
    }

    fn wtime(&self) -> f64 {
        0.0
    }
}

fn open(host: &dyn Messaging, started: StartOutcome) -> Option<Request> {
    match started {
        StartOutcome::Done(_) => None,
        StartOutcome::Pending(request) => {
            host.leave_pending(request);
            Some(request)
        }
    }
}

fn send(host: &dyn Messaging, (shard, tag): (usize, i32), memory: &Scratch) -> Option<Request> {
    let started = host.send(SendArgs {
        context: in_shard(shard, 2),
        peer: 0,
        source: host.me(),
        tag,
        data: Data::contiguous(memory.mem(), memory.len() as u64),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    });
    open(host, started.unwrap())
}

fn recv(host: &dyn Messaging, (shard, tag): (usize, i32), memory: &Scratch) -> Option<Request> {
    let started = host.recv(RecvArgs {
        pattern: Pattern {
            context: in_shard(shard, 2),
            source: Some(Source { rank: 1, peer: 1 }),
            tag: Some(tag),
        },
        data: Data::contiguous(memory.mem(), memory.len() as u64),
        origin: CallOrigin::default(),
    });
    open(host, started.unwrap())
}

fn wait(host: &dyn Messaging, request: Option<Request>) {
    if let Some(request) = request {
        host.wait_for(&|| WaitTarget::Operation(request), &mut || {
            host.take(request).unwrap().is_some()
        });
    }
}

/// A rank whose progress thread stays awake to the end, and that one's turns.
fn rank_of(
    fabric: &Arc<Fabric>,
    me: u32,
) -> (Arc<LockedEngine<LocalTransport, Idle>>, Arc<AtomicU32>) {
    let turns = Arc::new(AtomicU32::new(0));
    let shard = Engine::new(
        fabric.transport(me),
        me,
        WORLD,
        CreditQuotas::for_world(WORLD),
    );
    let host = Arc::new(LockedEngine::new(
        shard,
        me,
        WORLD,
        Idle(GIVE_UP, turns.clone()),
    ));
    (host, turns)
}

/// Until the progress thread of these turns has begun.
fn begins(turns: &AtomicU32) {
    let until = Instant::now() + GIVE_UP;
    while turns.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "the helper does not begin");
        std::thread::yield_now();
    }
}

#[test]
fn a_progress_thread_that_is_awake_takes_no_turns_while_another_thread_waits() {
    let (fabric, leaving, waits) = (
        Fabric::new(WORLD),
        AtomicU32::new(0),
        AtomicBool::new(false),
    );
    std::thread::scope(|scope| {
        let (sender, _) = rank_of(&fabric, 1);
        scope.spawn(|| {
            let sender = sender;
            let (large, small) = (Scratch::new(LARGE).unwrap(), Scratch::new(8).unwrap());
            while !waits.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            std::thread::sleep(WAITS);
            let sending = [
                send(&*sender, (0, 1), &small),
                send(&*sender, (0, 0), &large),
            ];
            sending
                .into_iter()
                .for_each(|request| wait(&*sender, request));
            leave_together(&sender, &leaving, WORLD);
        });
        let (host, turns) = rank_of(&fabric, 0);
        host.enable_async_progress(None);
        let (large, small) = (Scratch::new(LARGE).unwrap(), Scratch::new(8).unwrap());
        let expected = recv(&*host, (0, 0), &large);
        begins(&turns);
        let before = turns.load(Ordering::SeqCst);
        let awaited = recv(&*host, (0, 1), &small);
        waits.store(true, Ordering::Release);
        wait(&*host, awaited);
        let taken = turns.load(Ordering::SeqCst) - before;
        wait(&*host, expected);
        leave_together(&host, &leaving, WORLD);
        assert!(taken <= TURNS, "{taken} turns");
    });
}

#[test]
fn a_program_that_forks_does_not_wait_for_a_progress_thread_that_is_awake() {
    let (fabric, leaving, forked) = (
        Fabric::new(WORLD),
        AtomicU32::new(0),
        AtomicBool::new(false),
    );
    std::thread::scope(|scope| {
        let (sender, _) = rank_of(&fabric, 1);
        scope.spawn(|| {
            let sender = sender;
            let large = Scratch::new(LARGE).unwrap();
            while !forked.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let sending = send(&*sender, (0, 0), &large);
            wait(&*sender, sending);
            leave_together(&sender, &leaving, WORLD);
        });
        let (host, turns) = rank_of(&fabric, 0);
        host.enable_async_progress(None);
        let large = Scratch::new(LARGE).unwrap();
        let expected = recv(&*host, (0, 0), &large);
        // Where a user is to be changed the standard library forks.
        let user = std::fs::metadata("/proc/self").unwrap().uid();
        begins(&turns);
        let times = (0..5).map(|_| {
            // It has begun another turn by then.
            std::thread::sleep(Duration::from_millis(5));
            let begun = Instant::now();
            let status = Command::new("true").uid(user).status();
            assert!(status.unwrap().success());
            begun.elapsed()
        });
        let least = times.min().unwrap();
        forked.store(true, Ordering::Release);
        wait(&*host, expected);
        leave_together(&host, &leaving, WORLD);
        assert!(least < FORK_WAITS, "{least:?}");
    });
}

/// A thread that sleeps in one shard sees to another meanwhile, where it left something open, and
/// goes away.
#[test]
fn what_is_open_in_a_shard_comes_about_after_a_thread_has_slept_in_another() {
    const SHARDS: usize = 2;
    let first = Fabric::new(WORLD);
    let fabrics = [first.clone(), first.beside(0)];
    let (leaving, waits, goes) = (
        AtomicU32::new(0),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let rank = |me, progress_spin| {
        let engine = move |fabric: &Arc<Fabric>| {
            let shard = Engine::new(
                fabric.transport(me),
                me,
                WORLD,
                CreditQuotas::for_world(WORLD),
            );
            (shard, Idle(progress_spin, Arc::default()))
        };
        let (shard, surroundings) = engine(&fabrics[0]);
        let host = Arc::new(LockedEngine::new(shard, me, WORLD, surroundings));
        let fabrics = fabrics.clone();
        let more = move |shard: usize| Ok(engine(&fabrics[shard]));
        ShardedEngine::new(host, SHARDS, Box::new(more))
    };
    for progress_spin in [Duration::ZERO, WAITS / 3] {
        waits.store(false, Ordering::Release);
        goes.store(false, Ordering::Release);
        leaving.store(0, Ordering::Release);
        std::thread::scope(|scope| {
            let sender = rank(1, progress_spin);
            scope.spawn(|| {
                let sender = sender;
                let (large, small) = (Scratch::new(LARGE).unwrap(), Scratch::new(8).unwrap());
                large.mem().with_mut(0, LARGE, |bytes| bytes.fill(1));
                std::thread::sleep(WAITS / 5);
                let first = send(&*sender, (0, 1), &small);
                wait(&*sender, first);
                until(&waits);
                std::thread::sleep(WAITS);
                let awaited = send(&*sender, (1, 1), &small);
                wait(&*sender, awaited);
                until(&goes);
                let sending = send(&*sender, (0, 0), &large);
                wait(&*sender, sending);
                leave_sharded(&sender, &leaving, WORLD);
            });
            let host = rank(0, progress_spin);
            host.first().enable_async_progress(None);
            let (large, small) = (Scratch::new(LARGE).unwrap(), Scratch::new(8).unwrap());
            let expected = recv(&*host, (0, 0), &large);
            std::thread::sleep(WAITS / 10);
            // When this wait is over the progress thread is awake, and nobody is asked to call it.
            let first = recv(&*host, (0, 1), &small);
            wait(&*host, first);
            let awaited = recv(&*host, (1, 1), &small);
            waits.store(true, Ordering::Release);
            wait(&*host, awaited);
            goes.store(true, Ordering::Release);
            let (begun, mut byte) = (Instant::now(), [0]);
            while byte == [0] {
                assert!(begun.elapsed() < GIVE_UP, "what is open does not come");
                std::thread::yield_now();
                large.mem().read(LARGE as isize - 1, &mut byte);
            }
            wait(&*host, expected);
            leave_sharded(&host, &leaving, WORLD);
        });
    }
}
