//! Calls that must not wait give way to others where cores are short, and only there.

use super::*;
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::testing::{self, TestBytes};
use garonne_engine::api::CallOrigin;
use garonne_engine::observe::events::PendingReport;
use garonne_progress::environment::{Environment, SpinBudget, WaitObserver, YieldOutcome};
use garonne_progress::messaging::WaitTarget;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Counts how often a rank that looks so many times before it gives way did so.
struct CountingEnvironment {
    spins: u32,
    given: Arc<AtomicU32>,
    /// Time that it goes on with that.
    on: Arc<Mutex<Duration>>,
    /// Number of times that it told that it waits for long, and whether it still says so.
    told: Arc<(AtomicU32, AtomicBool)>,
}

impl WaitObserver for CountingEnvironment {
    fn note_long_wait(&self, waiting: Option<&PendingReport>) {
        self.told
            .0
            .fetch_add(u32::from(waiting.is_some()), Ordering::Relaxed);
        self.told.1.store(waiting.is_some(), Ordering::Relaxed);
    }
}

impl Environment for CountingEnvironment {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: self.spins,
            yields: 0,
            spinners: 1,
        }
    }

    fn yield_core(&self) -> YieldOutcome {
        self.given.fetch_add(1, Ordering::Relaxed);
        YieldOutcome::Taken
    }

    fn extended_yield(&self) -> Duration {
        *self.on.lock().unwrap()
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("the rank aborted the job with code {code}: {message}")
    }

    fn wtime(&self) -> f64 {
        0.0
    }
}

/// Runs `program` as the only rank. It gets a way to ask how often it gave way since it asked last.
fn alone(spins: u32, program: impl FnOnce(&Comm, &dyn Fn() -> u32)) {
    let given = Arc::new(AtomicU32::new(0));
    let place = CountingEnvironment {
        spins,
        given: given.clone(),
        on: Arc::default(),
        told: Arc::default(),
    };
    run(place, |world| {
        program(world, &|| given.swap(0, Ordering::Relaxed))
    });
}

fn run(place: CountingEnvironment, program: impl FnOnce(&Comm)) {
    let given = place.given.clone();
    testing::alone(place, |world| {
        given.store(0, Ordering::Relaxed);
        program(world);
    });
}

fn receive(world: &Comm, into: &TestBytes) -> Request {
    let args = RecvArgs {
        data: into.data(),
        source: 0,
        tag: 1,
        origin: CallOrigin::default(),
    };
    world.irecv(args).unwrap()
}

fn call_off(request: &Request) {
    request.cancel().unwrap();
    assert!(wait(request).unwrap().cancelled);
}

/// Every call that looks and must not wait, each of them fruitless.
const LOOKS: [fn(&Comm, &Request); 10] = [
    |_, request| assert!(test(request).is_none()),
    |_, request| assert!(!test_all(&[None, Some(request)], &mut |_, _| {})),
    |_, request| assert!(matches!(test_any(&[Some(request)]), TestAny::NotYet)),
    |_, request| assert_eq!(test_some(&[Some(request)], &mut |_, _| {}), Some(0)),
    |_, request| assert!(get_status(request).is_none()),
    |_, request| assert!(!get_status_all(&[Some(request)], &mut |_, _| {})),
    |_, request| assert!(matches!(get_status_any(&[Some(request)]), TestAny::NotYet)),
    |_, request| assert_eq!(get_status_some(&[Some(request)], &mut |_, _| {}), Some(0)),
    |world, _| assert!(world.iprobe(0, 2).unwrap().is_none()),
    |world, _| assert!(world.improbe(0, 2).unwrap().is_none()),
];

#[test]
fn every_fruitless_look_gives_way_once_when_ranks_exceed_cores() {
    alone(0, |world, given| {
        let into = TestBytes::new(4);
        let request = receive(world, &into);
        given();
        for (which, look) in LOOKS.iter().enumerate() {
            for _ in 0..5 {
                look(world, &request);
                assert_eq!(given(), 1, "call {which} of the list");
            }
        }
        call_off(&request);
    });
}

#[test]
fn looks_that_find_something_do_not_give_way() {
    alone(0, |world, given| {
        for _ in 0..5 {
            let request = Request::done(world.process(), Status::EMPTY);
            assert!(test(&request).is_some());
            let request = Request::done(world.process(), Status::EMPTY);
            assert!(test_all(&[Some(&request), None], &mut |_, _| {}));
            assert!(matches!(test_any(&[None]), TestAny::Nothing));
            assert_eq!(test_some(&[None], &mut |_, _| {}), None);
        }
        assert_eq!(given(), 0);
    });
}

#[test]
fn with_a_core_for_every_rank_only_the_looks_of_many_threads_give_way_and_seldom() {
    const SPINS: u32 = 100;
    alone(SPINS, |world, given| {
        let into = TestBytes::new(4);
        let request = receive(world, &into);
        given();
        let mut left = SPINS;
        for look in LOOKS.iter().cycle().take(SPINS as usize - 1) {
            look(world, &request);
            left -= 1;
        }
        assert_eq!((left, given()), (1, 0));
        LOOKS[0](world, &request);
        assert_eq!(given(), 1);
        call_off(&request);
    });
}

/// A wait for a message of this rank's own, which another thread sends when it gave way so often,
/// or after some time. How often it did.
fn given_in_a_wait(world: &Comm, given: &AtomicU32, often: u32, at_last: Duration) -> u32 {
    let (here, there) = (TestBytes::new(4), TestBytes::new(4));
    let request = receive(world, &here);
    given.store(0, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while given.load(Ordering::Relaxed) < often && begun.elapsed() < at_last {
                std::thread::sleep(Duration::from_millis(1));
            }
            let args = SendArgs {
                data: there.data(),
                dest: 0,
                tag: 1,
                mode: SendMode::Standard,
                origin: CallOrigin::default(),
            };
            world.send(args).unwrap();
        });
        wait(&request).unwrap();
    });
    given.load(Ordering::Relaxed)
}

#[test]
fn a_waiter_among_more_ranks_than_cores_goes_on_giving_way_unless_that_came_to_nothing() {
    const OFTEN: u32 = 200;
    let (given, on) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(Mutex::new(Duration::MAX)),
    );
    let place = CountingEnvironment {
        spins: 0,
        given: given.clone(),
        on: on.clone(),
        told: Arc::default(),
    };
    let set = |to| *on.lock().unwrap() = to;
    let (soon, late) = (Duration::from_millis(5), Duration::from_secs(20));
    run(place, |world| {
        assert!(given_in_a_wait(world, &given, OFTEN, late) >= OFTEN);
        set(Duration::ZERO);
        assert!(given_in_a_wait(world, &given, OFTEN, soon) < OFTEN);
        // Whether it is the turn of a wait that tries again is by chance.
        let fails_and_stops = |_| {
            set(Duration::from_nanos(1));
            assert!((0..3).all(|_| given_in_a_wait(world, &given, OFTEN, soon) < OFTEN));
            set(Duration::MAX);
            given_in_a_wait(world, &given, OFTEN, 20 * soon) < OFTEN
        };
        assert!((0..20).any(fails_and_stops), "it failed the last times");
        assert!(
            (0..300).any(|_| given_in_a_wait(world, &given, OFTEN, soon) >= OFTEN),
            "it may pay again"
        );
    });
}

#[test]
fn a_wait_that_was_told_is_taken_back_whenever_it_ends() {
    let told = Arc::<(AtomicU32, AtomicBool)>::default();
    let place = CountingEnvironment {
        spins: 0,
        given: Arc::default(),
        on: Arc::default(),
        told: told.clone(),
    };
    run(place, |world| {
        let host = &world.process().host;
        let (over, mut late) = (AtomicBool::new(false), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    host.wake();
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            // A wait asks before it tells, before it sleeps and after: it ends at each of these.
            for looks in 1..60 {
                let mut left = looks;
                host.wait_for(&|| WaitTarget::Anything, &mut || {
                    left -= 1;
                    left == 0
                });
                if told.1.load(Ordering::Relaxed) {
                    late.push(looks);
                }
            }
            over.store(true, Ordering::Release);
        });
        assert_eq!(late, Vec::<u32>::new(), "still told after so many looks");
    });
    assert!(told.0.load(Ordering::Relaxed) > 0);
}
