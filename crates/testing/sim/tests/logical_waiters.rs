//! Waiters that are no threads wait on a rank's locked engine: coroutines that share one thread, by
//! themselves and beside threads. Each call of the library that would wait suspends its coroutine.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_progress::environment::SpinBudget;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{Messaging, WaitTarget};
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sim::{AsyncEnvironment, leave_together};
use garonne_sync::user::{Data, Scratch};
use garonne_sync::waiter::{self, Waiter, WaiterState};
use generator::{Generator, Gn};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const WORLD: u32 = 2;
const CONTEXT: u32 = 2;
const COROUTINES: usize = 8;
const ROUNDS: usize = 50;
const STACK_WORDS: usize = 1 << 16;

type Rank = LockedEngine<LocalTransport, AsyncEnvironment>;

fn rank(fabric: &Arc<Fabric>, me: u32, spins: u32) -> Rank {
    let engine = Engine::new(
        fabric.transport(me),
        me,
        WORLD,
        CreditQuotas::for_world(WORLD),
    );
    let environment = AsyncEnvironment {
        patience: SpinBudget {
            spins,
            yields: 0,
            spinners: 1,
        },
        grace: None,
        progress_spin: Duration::ZERO,
    };
    LockedEngine::new(engine, me, WORLD, environment)
}

fn receive(host: &dyn Messaging, tag: i32) {
    let (memory, peer) = (Scratch::new(8).unwrap(), 1 - host.me());
    let started = host.recv(RecvArgs {
        pattern: Pattern {
            context: CONTEXT,
            source: Some(Source { rank: peer, peer }),
            tag: Some(tag),
        },
        data: Data::contiguous(memory.mem(), 8),
        origin: CallOrigin::default(),
    });
    if let StartOutcome::Pending(request) = started.unwrap() {
        host.wait_for(&|| WaitTarget::Operation(request), &mut || {
            host.take(request).unwrap().is_some()
        });
    }
}

fn send(host: &dyn Messaging, tag: i32) {
    let memory = Scratch::new(8).unwrap();
    let started = host.send(SendArgs {
        context: CONTEXT,
        peer: 1 - host.me(),
        source: host.me(),
        tag,
        data: Data::contiguous(memory.mem(), 8),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    });
    assert!(matches!(started.unwrap(), StartOutcome::Done(_)));
}

/// Coroutines that are ready to go on, by number.
#[derive(Debug, Default)]
struct ReadyQueue {
    ready: Mutex<VecDeque<usize>>,
    changed: Condvar,
    suspensions: AtomicU32,
}

impl ReadyQueue {
    fn push(&self, coroutine: usize) {
        let mut ready = self.ready.lock().unwrap();
        if !ready.contains(&coroutine) {
            ready.push_back(coroutine);
            self.changed.notify_one();
        }
    }

    /// Waits for the next one. The limit shows a lost wake-up as a failure instead of a hang.
    fn pop(&self) -> usize {
        let mut ready = self.ready.lock().unwrap();
        loop {
            if let Some(next) = ready.pop_front() {
                return next;
            }
            let waited = self.changed.wait_timeout(ready, Duration::from_secs(60));
            let timeout;
            (ready, timeout) = waited.unwrap();
            assert!(!timeout.timed_out(), "nobody resumes a coroutine");
        }
    }
}

/// A coroutine of the thread that runs them all.
#[derive(Debug)]
struct Coroutine {
    state: WaiterState,
    number: usize,
    queue: Arc<ReadyQueue>,
}

impl Coroutine {
    #[allow(
        deprecated,
        reason = "the waiter is suspended in a call that knows no scope"
    )]
    fn suspend(&self) {
        assert_eq!(
            waiter::current_id(),
            self.id(),
            "the waiter suspends itself"
        );
        self.queue.suspensions.fetch_add(1, Ordering::Relaxed);
        generator::yield_with(());
    }
}

impl Waiter for Coroutine {
    fn state(&self) -> &WaiterState {
        &self.state
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        while word.load(Ordering::SeqCst) == expected {
            self.suspend();
        }
    }

    fn unpark(&self, _: &AtomicU32) {
        self.queue.push(self.number);
    }

    fn yield_now(&self) -> bool {
        if self.queue.ready.lock().unwrap().is_empty() {
            return false;
        }
        self.queue.push(self.number);
        self.suspend();
        true
    }
}

/// A coroutine's waiter, and the coroutine until it has ended.
type Running<'a> = (Arc<Coroutine>, Option<Generator<'a, (), ()>>);

/// Runs `body` in each of so many coroutines, all on the calling thread. Returns how often one was
/// suspended.
fn run_coroutines(count: usize, body: impl Fn(usize) + Copy + Send) -> u32 {
    let queue = Arc::new(ReadyQueue::default());
    let mut coroutines: Vec<Running<'_>> = (0..count)
        .map(|number| {
            let waiter = Arc::new(Coroutine {
                state: WaiterState::new(),
                number,
                queue: queue.clone(),
            });
            let steps = Gn::<()>::new_opt(STACK_WORDS, move || body(number));
            queue.push(number);
            (waiter, Some(steps))
        })
        .collect();
    let mut alive = count;
    while alive > 0 {
        let (waiter, steps) = &mut coroutines[queue.pop()];
        let Some(running) = steps else {
            // Resumed when it had ended.
            continue;
        };
        let _entered = waiter::enter(waiter.clone());
        running.resume();
        if running.is_done() {
            *steps = None;
            alive -= 1;
        }
    }
    queue.suspensions.load(Ordering::Relaxed)
}

/// Coroutines on one thread, and so many threads, each receive a message in each round, which the
/// peer sends in the opposite order.
fn receive_all(threads: usize, spins: u32) -> u32 {
    let (fabric, leaving) = (Fabric::new(WORLD), AtomicU32::new(0));
    let receivers = COROUTINES + threads;
    let tag = |round: usize, receiver: usize| (round * receivers + receiver) as i32;
    let answer = |round: usize| 1_000_000 + round as i32;
    std::thread::scope(|scope| {
        let (fabric, leaving) = (&fabric, &leaving);
        scope.spawn(move || {
            let host = rank(fabric, 1, spins);
            for round in 0..ROUNDS {
                (0..receivers)
                    .rev()
                    .for_each(|receiver| send(&host, tag(round, receiver)));
                receive(&host, answer(round));
            }
            leave_together(&host, leaving, WORLD);
        });
        let host = &rank(fabric, 0, spins);
        let suspensions = std::thread::scope(|scope| {
            for thread in COROUTINES..receivers {
                scope.spawn(move || {
                    (0..ROUNDS).for_each(|round| receive(host, tag(round, thread)));
                });
            }
            run_coroutines(COROUTINES, |coroutine| {
                for round in 0..ROUNDS {
                    receive(host, tag(round, coroutine));
                    if coroutine == round % COROUTINES {
                        send(host, answer(round));
                    }
                }
            })
        });
        leave_together(host, leaving, WORLD);
        suspensions
    })
}

#[test]
fn coroutines_of_one_thread_wait_for_messages_of_their_own() {
    // A coroutine that kept the thread while it waits would leave the others where they are.
    assert!(receive_all(0, 0) as usize >= COROUTINES);
    receive_all(0, 200);
}

#[test]
fn coroutines_and_threads_wait_on_one_engine() {
    receive_all(2, 0);
    receive_all(2, 200);
}
