//! A transport for which nobody calls a rank's progress thread, but which says by when it is to be
//! looked at: what a program leaves open comes about all the same, also where the progress thread
//! slept when that was lent.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_progress::environment::{Environment, ProgressThreadEvent, SpinBudget, WaitObserver};
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{BackgroundWork, Messaging, Stepper, Waiting};
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// By when the transport is to be looked at.
const LOOKS: Duration = Duration::from_millis(2);
/// Longer than anything here takes on a machine that does much else.
const GIVE_UP: Duration = Duration::from_secs(20);

/// A rank whose progress thread stays.
#[derive(Clone)]
struct Stays;

impl WaitObserver for Stays {}

impl Environment for Stays {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: 5,
            yields: 1,
            spinners: 1,
        }
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

/// A rank with no core to spare: its progress thread looks by itself now and then. Counts how often
/// it has been at work.
#[derive(Clone, Default)]
struct Crowded(Arc<AtomicU32>);

impl WaitObserver for Crowded {
    fn note_progress_thread(&self, what: ProgressThreadEvent) {
        if matches!(what, ProgressThreadEvent::Leaves) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Environment for Crowded {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: 5,
            yields: 1,
            spinners: 1,
        }
    }

    fn takeover_delay(&self) -> Option<Duration> {
        Some(LOOKS)
    }

    /// The clock that measures how long the program stays away is as coarse as these times, so this
    /// rank may learn that async progress does not pay.
    fn releases_always(&self) -> bool {
        true
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        Stays.abort(code, message)
    }

    fn wtime(&self) -> f64 {
        0.0
    }
}

type Rank<S> = LockedEngine<LocalTransport, S>;

/// Two ranks, the first with a progress thread.
fn ranks<S: Environment + Clone + 'static>(
    fabric: &Arc<Fabric>,
    surroundings: &S,
) -> [Arc<Rank<S>>; 2] {
    let ranks = [0, 1].map(|me| {
        let shard = Engine::new(fabric.transport(me), me, 2, CreditQuotas::for_world(2));
        Arc::new(Rank::new(shard, me, 2, surroundings.clone()))
    });
    ranks[0].enable_async_progress(None);
    ranks
}

/// Outside of the library until `over` says so.
fn comes(what: &str, over: impl Fn() -> bool) {
    let until = Instant::now() + GIVE_UP;
    while !over() {
        assert!(Instant::now() < until, "{what} does not come");
        std::thread::yield_now();
    }
}

/// Receives a message, as a step of something that the program left open.
struct Takes {
    memory: Scratch,
    request: Request,
    over: AtomicBool,
}

impl Stepper for Takes {
    fn step(&self, host: &dyn Messaging) -> bool {
        if !self.over.load(Ordering::SeqCst) && host.take(self.request).unwrap().is_some() {
            self.over.store(true, Ordering::SeqCst);
        }
        self.over.load(Ordering::SeqCst)
    }
}

fn takes(host: &dyn Messaging, tag: i32) -> Arc<Takes> {
    let memory = Scratch::new(8).unwrap();
    let started = host.recv(RecvArgs {
        pattern: Pattern {
            context: 3,
            source: Some(Source { rank: 1, peer: 1 }),
            tag: Some(tag),
        },
        data: Data::contiguous(memory.mem(), 8),
        origin: CallOrigin::default(),
    });
    let StartOutcome::Pending(request) = started.unwrap() else {
        panic!("nothing was sent yet")
    };
    Arc::new(Takes {
        memory,
        request,
        over: AtomicBool::new(false),
    })
}

fn send(host: &dyn Messaging, tag: i32, memory: &Scratch) {
    let send = SendArgs {
        context: 3,
        peer: 0,
        source: 1,
        tag,
        data: Data::contiguous(memory.mem(), 8),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    };
    assert!(matches!(host.send(send).unwrap(), StartOutcome::Done(_)));
}

#[test]
fn a_progress_thread_that_slept_when_the_engine_was_released_looks_when_the_transport_wants_that() {
    let fabric = Fabric::muted(2, LOOKS);
    let [own, other] = ranks(&fabric, &Stays);
    for tag in 0..5 {
        let left = takes(&*own, tag);
        own.attach_stepper(left.clone());
        send(&*other, tag, &left.memory);
        comes(&format!("message {tag}"), || {
            left.over.load(Ordering::SeqCst)
        });
        // The program has come back, and nothing is lent for so long that the progress thread
        // sleeps.
        own.wait_until(&mut || true);
        std::thread::sleep(5 * LOOKS);
    }
    own.stop_async_progress();
}

#[test]
fn a_progress_thread_that_looks_by_itself_goes_on_although_the_transport_would_not_be_looked_at_for_long()
 {
    let fabric = Fabric::muted(2, Duration::from_secs(3600));
    let surroundings = Crowded::default();
    let [own, other] = ranks(&fabric, &surroundings);
    for tag in 0..5 {
        // The progress thread finds nothing to do, and sleeps until the transport wants to be
        // looked at.
        let before = surroundings.0.load(Ordering::SeqCst);
        let waited_for = takes(&*own, 10 + tag);
        own.attach_stepper(waited_for.clone());
        comes("the helper", || {
            surroundings.0.load(Ordering::SeqCst) > before
        });
        send(&*other, 10 + tag, &waited_for.memory);
        own.wait_until(&mut || waited_for.over.load(Ordering::SeqCst));
        // What is lent after that is looked after as ever.
        let left = takes(&*own, tag);
        send(&*other, tag, &left.memory);
        own.attach_stepper(left.clone());
        comes(&format!("message {tag}"), || {
            left.over.load(Ordering::SeqCst)
        });
        own.wait_until(&mut || true);
    }
    own.stop_async_progress();
}
