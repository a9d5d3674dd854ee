//! A stepper that starts costs nothing to those that are open: counted in steps, with many open at
//! a time.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_progress::environment::{Environment, SpinBudget, WaitObserver};
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{BackgroundWork, Messaging, Stepper, Waiting};
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Open at a time.
const MANY: u32 = 1000;

struct Quiet;

impl WaitObserver for Quiet {}

impl Environment for Quiet {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: 5,
            yields: 1,
            spinners: 1,
        }
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("aborted with code {code}: {message}")
    }

    fn wtime(&self) -> f64 {
        0.0
    }
}

type Rank = LockedEngine<LocalTransport, Quiet>;

fn alone() -> Arc<Rank> {
    let fabric = Fabric::shaken(1, 1);
    let shard = Engine::new(fabric.transport(0), 0, 1, CreditQuotas::for_world(1));
    Arc::new(Rank::new(shard, 0, 1, Quiet))
}

fn recv(host: &dyn Messaging, tag: i32, memory: &Scratch) -> Request {
    let started = host.recv(RecvArgs {
        pattern: Pattern {
            context: 3,
            source: Some(Source { rank: 0, peer: 0 }),
            tag: Some(tag),
        },
        data: Data::contiguous(memory.mem(), 8),
        origin: CallOrigin::default(),
    });
    match started.unwrap() {
        StartOutcome::Pending(request) => request,
        StartOutcome::Done(_) => panic!("nothing was sent yet"),
    }
}

fn send(host: &dyn Messaging, tag: i32, memory: &Scratch) {
    let started = host.send(SendArgs {
        context: 3,
        peer: 0,
        source: 0,
        tag,
        data: Data::contiguous(memory.mem(), 8),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    });
    assert!(
        matches!(started.unwrap(), StartOutcome::Done(_)),
        "it is short"
    );
}

/// Receives a message of its rank's own, and counts its steps.
struct Takes {
    _memory: Scratch,
    request: Request,
    steps: Arc<AtomicU32>,
    over: AtomicBool,
}

impl Takes {
    fn new(host: &dyn Messaging, tag: i32, steps: &Arc<AtomicU32>) -> Arc<Self> {
        let memory = Scratch::new(8).unwrap();
        Arc::new(Self {
            request: recv(host, tag, &memory),
            _memory: memory,
            steps: steps.clone(),
            over: AtomicBool::new(false),
        })
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Stepper for Takes {
    fn step(&self, host: &dyn Messaging) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let over = host.take(self.request).unwrap().is_some();
        self.over.store(over, Ordering::Release);
        over
    }
}

/// Sends what others wait for with its first step, which attaches nothing else, and is over.
struct Gives {
    tag: i32,
    memory: Scratch,
}

impl Stepper for Gives {
    fn step(&self, host: &dyn Messaging) -> bool {
        send(host, self.tag, &self.memory);
        true
    }
}

/// Stepper that attaches another stepper in its first step.
struct Begets(Arc<Takes>);

impl Stepper for Begets {
    fn step(&self, host: &dyn Messaging) -> bool {
        host.attach_stepper(self.0.clone());
        true
    }
}

#[test]
fn to_start_one_steps_that_one_however_many_are_open() {
    let (host, steps) = (alone(), Arc::new(AtomicU32::new(0)));
    let open: Vec<_> = (0..MANY)
        .map(|tag| {
            let takes = Takes::new(&*host, tag as i32, &steps);
            host.attach_stepper(takes.clone());
            takes
        })
        .collect();
    assert_eq!(
        steps.load(Ordering::Relaxed),
        MANY,
        "each was stepped as it was attached"
    );
    // And looks that bring nothing step none.
    for _ in 0..100 {
        host.progress();
    }
    assert_eq!(steps.load(Ordering::Relaxed), MANY);

    let memory = Scratch::new(8).unwrap();
    (0..MANY).for_each(|tag| send(&*host, tag as i32, &memory));
    host.wait_until(&mut || open.iter().all(|takes| takes.is_over()));
    assert!(steps.load(Ordering::Relaxed) <= 3 * MANY, "{steps:?}");
}

#[test]
fn what_a_first_step_brings_about_for_others_they_hear_of() {
    let (host, steps) = (alone(), Arc::new(AtomicU32::new(0)));
    let memory = || Scratch::new(8).unwrap();
    for tag in 0..20 {
        let takes = Takes::new(&*host, tag, &steps);
        host.attach_stepper(takes.clone());
        assert!(!takes.is_over());
        host.attach_stepper(Arc::new(Gives {
            tag,
            memory: memory(),
        }));
        host.wait_until(&mut || takes.is_over());
    }
}

#[test]
fn what_a_first_step_attaches_is_stepped_too() {
    let (host, steps) = (alone(), Arc::new(AtomicU32::new(0)));
    let memory = Scratch::new(8).unwrap();
    let takes = Takes::new(&*host, 1, &steps);
    host.attach_stepper(Arc::new(Begets(takes.clone())));
    assert!(steps.load(Ordering::Relaxed) > 0);
    send(&*host, 1, &memory);
    host.wait_until(&mut || takes.is_over());
}
