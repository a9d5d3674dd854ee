//! A rail for which nobody calls a rank's helper, but which says by when it is to be looked at: what a program leaves open comes about all the same, also where the helper slept when that was lent.

use garonne_engine::Quotas;
use garonne_engine::api::{Mode, Origin, Pattern, Recv, Request, Send, Source, Started};
use garonne_engine::shard::Shard;
use garonne_progress::engine_host::EngineHost;
use garonne_progress::host::{Host, Stepper};
use garonne_progress::surroundings::{Patience, Surroundings};
use garonne_sim::local::{Fabric, LocalRail};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// By when the rail is to be looked at.
const LOOKS: Duration = Duration::from_millis(2);
/// Longer than anything here takes on a machine that does much else.
const GIVE_UP: Duration = Duration::from_secs(20);

/// A rank whose helper stays.
struct Stays;

impl Surroundings for Stays {
    fn patience(&self) -> Patience {
        Patience { spins: 5, yields: 1 }
    }

    fn lends_always(&self) -> bool {
        true
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("aborted with code {code}: {message}")
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

type Rank = EngineHost<LocalRail, Stays>;

/// Receives a message, as a step of something that the program left open.
struct Takes {
    memory: Scratch,
    request: Request,
    over: AtomicBool,
}

impl Stepper for Takes {
    fn step(&self, host: &dyn Host) -> bool {
        if !self.over.load(Ordering::SeqCst) && host.take(self.request).unwrap().is_some() {
            self.over.store(true, Ordering::SeqCst);
        }
        self.over.load(Ordering::SeqCst)
    }
}

fn takes(host: &Rank, tag: i32) -> Arc<Takes> {
    let memory = Scratch::new(8).unwrap();
    let started = host.recv(Recv {
        pattern: Pattern {
            context: 3,
            source: Some(Source { rank: 1, peer: 1 }),
            tag: Some(tag),
        },
        data: Data::contiguous(memory.mem(), 8),
        origin: Origin::default(),
    });
    let Started::Pending(request) = started.unwrap() else {
        panic!("nothing was sent yet")
    };
    Arc::new(Takes {
        memory,
        request,
        over: AtomicBool::new(false),
    })
}

fn send(host: &Rank, tag: i32, memory: &Scratch) {
    let send = Send {
        context: 3,
        peer: 0,
        source: 1,
        tag,
        data: Data::contiguous(memory.mem(), 8),
        mode: Mode::Standard,
        origin: Origin::default(),
    };
    assert!(matches!(host.send(send).unwrap(), Started::Done(_)));
}

#[test]
fn a_helper_that_slept_when_hands_were_lent_looks_when_the_rail_wants_that() {
    let fabric = Fabric::muted(2, LOOKS);
    let [own, other] = [0, 1].map(|me| {
        let shard = Shard::new(fabric.rail(me), me, 2, Quotas::for_world(2));
        Arc::new(Rank::new(shard, me, 2, Stays))
    });
    own.lend_hands(None);
    for tag in 0..5 {
        let left = takes(&own, tag);
        own.attach(left.clone());
        send(&other, tag, &left.memory);
        let until = Instant::now() + GIVE_UP;
        while !left.over.load(Ordering::SeqCst) {
            assert!(Instant::now() < until, "message {tag} does not come");
            std::thread::yield_now();
        }
        // The program has come back, and nothing is lent for so long that the helper sleeps.
        own.wait_until(&mut || true);
        std::thread::sleep(5 * LOOKS);
    }
    own.keep_hands();
}
