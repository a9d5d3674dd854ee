//! A progress thread goes when nothing is open any more, also where the program found everything
//! done and took nothing back, and another comes for what is left open afterwards. Alone in its
//! process: it counts threads.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_progress::environment::SpinBudget;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{BackgroundWork, Messaging};
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sim::{AsyncEnvironment, leave_together};
use garonne_sync::try_lock::SingleThreaded;
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LARGE: usize = 60_000;
const ROUNDS: u32 = 5;
/// Longer than anything here takes on a machine that does much else.
const GIVE_UP: Duration = Duration::from_secs(60);

type Rank = LockedEngine<LocalTransport, AsyncEnvironment>;

fn helpers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    let names = threads.filter_map(|thread| name(thread).ok());
    names
        .filter(|name| name.starts_with("garonne-hands"))
        .count()
}

fn comes(what: &str, over: impl Fn() -> bool) {
    let until = Instant::now() + GIVE_UP;
    while !over() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
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

fn send(host: &Rank, peer: u32, buffer: &Scratch) -> Option<Request> {
    let started = host.send(SendArgs {
        context: 2,
        peer,
        source: host.me(),
        tag: 0,
        data: Data::contiguous(buffer.mem(), LARGE as u64),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    });
    open(host, started.unwrap())
}

fn recv(host: &Rank, peer: u32, buffer: &Scratch) -> Option<Request> {
    let started = host.recv(RecvArgs {
        pattern: Pattern {
            context: 2,
            source: Some(Source { rank: peer, peer }),
            tag: Some(0),
        },
        data: Data::contiguous(buffer.mem(), LARGE as u64),
        origin: CallOrigin::default(),
    });
    open(host, started.unwrap())
}

#[test]
fn a_progress_thread_goes_when_nothing_is_open_though_nothing_was_taken_back_and_another_comes_for_more()
 {
    for grace in [None, Some(Duration::from_micros(50))] {
        let lending = AsyncEnvironment {
            patience: SpinBudget {
                spins: 20,
                yields: 2,
                spinners: 1,
            },
            grace,
            progress_spin: Duration::ZERO,
        };
        let (fabric, leaving, ready) = (Fabric::new(2), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (fabric, leaving, ready) = (&fabric, &leaving, &ready);
                scope.spawn(move || {
                    let shard =
                        Engine::new(fabric.transport(me), me, 2, CreditQuotas::for_world(2));
                    let host = Arc::new(LockedEngine::new(shard, me, 2, lending));
                    host.enable_async_progress(None);
                    // SAFETY: one thread of this test uses the host, and its progress thread keeps
                    // to the gate.
                    host.elide(unsafe { SingleThreaded::promise() });
                    let meet = |round: u32, step: u32| {
                        ready.fetch_add(1, Ordering::SeqCst);
                        let all = 2 * (3 * round + step);
                        comes("the other rank does not come", || {
                            ready.load(Ordering::SeqCst) >= all
                        });
                    };
                    let (out, into) = (Scratch::new(LARGE).unwrap(), Scratch::new(LARGE).unwrap());
                    for round in 0..ROUNDS {
                        let open = [recv(&host, 1 - me, &into), send(&host, 1 - me, &out)];
                        assert!(open.iter().any(Option::is_some));
                        meet(round, 1);
                        // Nobody waits; whoever is asked finds everything done.
                        for request in open.into_iter().flatten() {
                            comes("what was left open does not come about", || {
                                host.take(request).unwrap().is_some()
                            });
                        }
                        meet(round, 2);
                        comes("a helper stays with nothing to do", || helpers() == 0);
                        meet(round, 3);
                    }
                    leave_together(&host, leaving, 2);
                });
            }
        });
    }
}
