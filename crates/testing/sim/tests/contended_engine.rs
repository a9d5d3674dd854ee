//! An engine that is taken whenever somebody wants it: the last look before sleep is one all the
//! same, and what others do in a thread's place wakes who waits for it. Another thread holds the
//! engine nearly all the time, and never looks at the transport itself.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_progress::environment::SpinBudget;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{BackgroundWork, Messaging, Stepper, Waiting};
use garonne_sim::AsyncEnvironment;
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sync::user::{Data, Scratch};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WORLD: u32 = 2;
const ROUNDS: i32 = 30;
/// Threads that hold the engine in turns: one always waits for it.
const HOLDERS: u32 = 3;
/// Times that each holds it.
const HOLDS: u32 = 20;
const HOLD: Duration = Duration::from_micros(300);
/// Messages to itself.
const MANY: i32 = 3000;
/// Longer than anything here takes on a machine that does much else.
const GIVE_UP: Duration = Duration::from_secs(60);

const RELEASING: AsyncEnvironment = AsyncEnvironment {
    patience: SpinBudget {
        spins: 5,
        yields: 1,
        spinners: 1,
    },
    grace: None,
    progress_spin: Duration::ZERO,
};

type Rank = LockedEngine<LocalTransport, AsyncEnvironment>;

fn ranks() -> [Arc<Rank>; 2] {
    let fabric = Fabric::new(WORLD);
    [0, 1].map(|me| {
        let shard = Engine::new(
            fabric.transport(me),
            me,
            WORLD,
            CreditQuotas::for_world(WORLD),
        );
        Arc::new(LockedEngine::new(shard, me, WORLD, RELEASING))
    })
}

fn message(host: &Rank, peer: u32, tag: i32, memory: &Scratch) -> StartOutcome {
    let send = SendArgs {
        context: 3,
        peer,
        source: host.me(),
        tag,
        data: Data::contiguous(memory.mem(), 8),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    };
    host.send(send).unwrap()
}

fn receive(host: &dyn Messaging, peer: u32, tag: i32, memory: &Scratch) -> StartOutcome {
    let recv = RecvArgs {
        pattern: Pattern {
            context: 3,
            source: Some(Source { rank: peer, peer }),
            tag: Some(tag),
        },
        data: Data::contiguous(memory.mem(), 8),
        origin: CallOrigin::default(),
    };
    host.recv(recv).unwrap()
}

/// Over when a message from the first rank has come.
struct Expects {
    request: Mutex<Option<Request>>,
    memory: Scratch,
    tag: i32,
    over: AtomicBool,
}

impl Expects {
    fn new(tag: i32) -> Arc<Self> {
        Arc::new(Self {
            request: Mutex::default(),
            memory: Scratch::new(8).unwrap(),
            tag,
            over: AtomicBool::new(false),
        })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Stepper for Expects {
    fn step(&self, host: &dyn Messaging) -> bool {
        let mut request = self
            .request
            .try_lock()
            .expect("no two threads step at once");
        let over = match *request {
            Some(request) => host.take(request).unwrap().is_some(),
            None => match receive(host, 0, self.tag, &self.memory) {
                StartOutcome::Done(_) => true,
                StartOutcome::Pending(pending) => {
                    *request = Some(pending);
                    false
                }
            },
        };
        if over {
            self.over.store(true, Ordering::Release);
        }
        over
    }
}

/// Holds the engine nearly all the time while `then` runs, and for a while afterwards.
fn held(host: &Rank, then: impl FnOnce()) {
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..HOLDERS {
            scope.spawn(|| {
                for _ in 0..HOLDS {
                    host.inspect(|_| {
                        begun.fetch_add(1, Ordering::AcqRel);
                        std::thread::sleep(HOLD);
                    });
                }
            });
        }
        while begun.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        then();
    });
}

#[test]
fn a_progress_thread_that_finds_the_engine_taken_does_not_sleep_before_it_has_looked() {
    let [sender, rank] = ranks();
    rank.enable_async_progress(None);
    let memory = Scratch::new(8).unwrap();
    for tag in 0..ROUNDS {
        let expects = Expects::new(tag);
        rank.attach_stepper(expects.clone());
        // The program goes on without a look at the transport.
        held(&rank, || {
            assert!(matches!(
                message(&sender, 1, tag, &memory),
                StartOutcome::Done(_)
            ));
        });
        let until = Instant::now() + GIVE_UP;
        while !expects.is_over() {
            assert!(Instant::now() < until, "the helper sleeps over what came");
            std::thread::yield_now();
        }
    }
    rank.stop_async_progress();
}

#[test]
fn a_waiter_that_finds_the_engine_taken_does_not_sleep_before_it_has_looked() {
    let [sender, rank] = ranks();
    let memory = Scratch::new(8).unwrap();
    for tag in 0..ROUNDS {
        let expects = Expects::new(tag);
        rank.attach_awaited_stepper(expects.clone());
        held(&rank, || {
            assert!(matches!(
                message(&sender, 1, tag, &memory),
                StartOutcome::Done(_)
            ));
            rank.wait_until(&mut || expects.is_over());
        });
    }
}

#[test]
fn what_a_thread_does_in_the_place_of_another_wakes_who_waits_for_it() {
    let [_other, rank] = ranks();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let memory = Scratch::new(8).unwrap();
            for tag in 0..MANY {
                // In its place it is whoever asks that sends.
                if let StartOutcome::Pending(request) = message(&rank, 1, tag, &memory) {
                    rank.wait_until(&mut || rank.take(request).unwrap().is_some());
                }
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                rank.completions(0);
            }
        });
        let memory = Scratch::new(8).unwrap();
        for tag in 0..MANY {
            if let StartOutcome::Pending(request) = receive(&*rank, 1, tag, &memory) {
                rank.wait_until(&mut || rank.take(request).unwrap().is_some());
            }
        }
        over.store(true, Ordering::Release);
    });
}
