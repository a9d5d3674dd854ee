//! Bubbles of fibers under seeds and on this machine's workers.

use garonne_bubble_runtime::{
    Access, AffinityKind, Bubble, BubbleBuilder, BubbleError, Member, NAMES, activity, scheduler,
    set_scheduler, set_work_left,
};
use garonne_fiber::{
    Barrier, Builder, Mutex, Place, Semaphore, Simulation, pin, sleep, spawn, yield_now,
};
use garonne_topology::Tree;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    match number("GARONNE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GARONNE_SEEDS").unwrap_or(30),
    }
}

/// Nested bubbles whose fibers wait for each other in all ways, start more, and are pinned now and
/// then. Counts what was done.
fn nested_world(done: &Arc<AtomicUsize>) {
    let outer = BubbleBuilder::new().name("outer").build(None).unwrap();
    let kinds = [AffinityKind::Group, AffinityKind::Share, AffinityKind::Gang];
    let inner: Vec<Bubble> = kinds
        .into_iter()
        .map(|kind| {
            let builder = BubbleBuilder::new().affinity(kind).priority(kind as i32);
            builder.build(Some(&outer)).unwrap()
        })
        .collect();
    for bubble in &inner {
        let barrier = Arc::new(Barrier::new(4));
        let shared = Arc::new(Mutex::new(0));
        for n in 0..4u64 {
            let (barrier, shared, done) = (barrier.clone(), shared.clone(), done.clone());
            let body = move || {
                set_work_left(1000 * n);
                for round in 0..4 {
                    *shared.lock() += 1;
                    match round {
                        0 => yield_now(),
                        1 => sleep(Duration::from_micros(n)),
                        2 => {
                            let _pin = pin();
                            yield_now();
                        }
                        _ => {}
                    }
                    barrier.wait();
                }
                done.fetch_add(1, Ordering::Relaxed);
            };
            bubble.start(Builder::new(), body).unwrap();
        }
    }
    outer.submit().unwrap();
    // A fiber in a bubble makes a bubble of its own around itself, and one inside.
    let counted = done.clone();
    let starter = outer.spawn(Builder::new(), move || {
        let own = Bubble::new(None).unwrap();
        let fibers = (0..3).map(|_| {
            let done = counted.clone();
            let body = move || {
                yield_now();
                done.fetch_add(1, Ordering::Relaxed);
            };
            own.start(Builder::new(), body).unwrap()
        });
        let fibers: Vec<_> = fibers.collect();
        own.join().unwrap();
        assert!(fibers.iter().all(|fiber| fiber.is_finished()));
    });
    starter.unwrap().join().unwrap();
    inner.iter().for_each(|bubble| bubble.join().unwrap());
    outer.join().unwrap();
    let statistics = outer.statistics();
    assert_eq!((statistics.threads, statistics.ended), (0, 13));
    let refused = outer.start(Builder::new(), || ());
    assert!(matches!(refused, Err(BubbleError::Framework(_))));
}

const DONE: usize = 15;

#[test]
fn every_scheduler_brings_every_order_to_its_end() {
    for seed in seeds() {
        for name in NAMES {
            let outcomes = [0, 1].map(|_| {
                let done = Arc::new(AtomicUsize::new(0));
                let counted = done.clone();
                let machine = Tree::regular(1 + (seed % 2) as u32, 2, 1, 2);
                let outcome = Simulation::new(machine, seed).run(move || {
                    set_scheduler(name).unwrap();
                    nested_world(&counted);
                });
                assert_eq!(
                    (outcome.stuck, done.load(Ordering::Relaxed)),
                    (0, DONE),
                    "{name}: GARONNE_SEED={seed}"
                );
                outcome
            });
            assert_eq!(outcomes[0], outcomes[1], "{name}: GARONNE_SEED={seed}");
        }
    }
}

/// One fiber in no bubble swaps schedulers while others run under them.
#[test]
fn schedulers_are_swapped_while_fibers_run() {
    for seed in seeds() {
        let done = Arc::new(AtomicUsize::new(0));
        let counted = done.clone();
        let outcome = Simulation::new(Tree::regular(1, 2, 1, 2), seed).run(move || {
            let fibers = counted.clone();
            let world = spawn(move || nested_world(&fibers));
            let mut names = NAMES.iter().cycle().skip(seed as usize % NAMES.len());
            while counted.load(Ordering::Relaxed) < DONE {
                set_scheduler(names.next().unwrap()).unwrap();
                sleep(Duration::from_nanos(300));
            }
            world.join().unwrap();
        });
        assert_eq!(outcome.stuck, 0, "GARONNE_SEED={seed}");
    }
}

/// Fibers that outlive bubbles are threads of one after the other, as those of OpenMP's teams are.
/// Some come late, some wait inside, and one thread of each bubble is nobody's.
fn serving_world(done: &Arc<AtomicUsize>) {
    const SERVING: usize = 3;
    const ROUNDS: usize = 4;
    let anywhere = Place::Machine;
    let docks: Vec<_> = (0..SERVING)
        .map(|_| Arc::new((Semaphore::new(0), Mutex::new(None::<Option<Member>>))))
        .collect();
    let (ended, left) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(0)));
    let serving: Vec<_> = docks
        .iter()
        .map(|dock| {
            let (dock, ended, done) = (dock.clone(), ended.clone(), done.clone());
            let left = left.clone();
            spawn(move || {
                loop {
                    dock.0.wait();
                    let Some(Some(mut member)) = dock.1.lock().take() else {
                        break;
                    };
                    yield_now();
                    assert!(member.enter());
                    assert!(!garonne_fiber::enter_guest(7), "it is in a bubble");
                    yield_now();
                    sleep(Duration::from_micros(1));
                    done.fetch_add(1, Ordering::Relaxed);
                    ended.post();
                    drop(member);
                    *left.lock() += 1;
                    yield_now();
                }
            })
        })
        .collect();
    for round in 0..ROUNDS {
        let outer = Bubble::new(None).unwrap();
        let bubble = BubbleBuilder::new().build(Some(&outer)).unwrap();
        // Half of the rounds members come before the bubble around is submitted.
        if round % 2 == 0 {
            outer.submit().unwrap();
        }
        let threads = (0..=SERVING).map(|_| ("serving", &anywhere));
        let mut members = bubble.expect(threads).unwrap();
        drop(members.pop());
        for (dock, member) in docks.iter().zip(members) {
            *dock.1.lock() = Some(Some(member));
            dock.0.post();
        }
        yield_now();
        outer.submit().unwrap();
        (0..SERVING).for_each(|_| ended.wait());
        bubble.join().unwrap();
        let statistics = bubble.statistics();
        assert_eq!((statistics.threads, statistics.ended), (0, SERVING + 1));
        outer.join().unwrap();
        assert!(matches!(
            bubble.expect([("late", &anywhere)]),
            Err(BubbleError::Framework(_))
        ));
    }
    for dock in &docks {
        *dock.1.lock() = Some(None);
        dock.0.post();
    }
    serving.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(*left.lock(), SERVING * ROUNDS);
}

const SERVED: usize = 12;

#[test]
fn fibers_enter_one_bubble_after_the_other() {
    for seed in seeds() {
        for name in NAMES {
            let done = Arc::new(AtomicUsize::new(0));
            let counted = done.clone();
            let machine = Tree::regular(1 + (seed % 2) as u32, 2, 1, 2);
            let outcome = Simulation::new(machine, seed).run(move || {
                set_scheduler(name).unwrap();
                serving_world(&counted);
            });
            let found = (outcome.stuck, done.load(Ordering::Relaxed));
            assert_eq!(found, (0, SERVED), "{name}: GARONNE_SEED={seed}");
        }
    }
}

/// One test, because the process has one scheduler.
#[test]
fn bubbles_run_on_real_workers() {
    for name in NAMES.iter().cycle().take(3 * NAMES.len()) {
        set_scheduler(name).unwrap();
        assert_eq!(scheduler().unwrap(), *name);
        let done = Arc::new(AtomicUsize::new(0));
        // A thread of the system makes the bubbles, and then a fiber does.
        nested_world(&done);
        let counted = done.clone();
        spawn(move || nested_world(&counted)).join().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 2 * DONE);
        let counted = done.clone();
        spawn(move || serving_world(&counted)).join().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 2 * DONE + SERVED);
    }
    assert!(set_scheduler("sometimes").is_err() && set_scheduler("/dev/null").is_err());

    // More fibers than workers are stuck in the kernel, inside a bubble.
    let bubble = Bubble::new(None).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    let stuck = garonne_fiber::workers() + 1;
    for _ in 0..stuck {
        let receiver = receiver.clone();
        let receive = move || receiver.lock().unwrap().recv().unwrap();
        bubble.start(Builder::new(), receive).unwrap();
    }
    let rescue = move || (0..stuck).for_each(|_| sender.send(()).unwrap());
    bubble.submit().unwrap();
    bubble.start(Builder::new(), rescue).unwrap();
    bubble.join().unwrap();

    // Statistics, memory, places, and a wait of a fiber for the bubble that it is in.
    let page = vec![1u8; 1 << 16];
    let place = "core:0".parse().unwrap();
    let bubble = BubbleBuilder::new().place(place).build(None).unwrap();
    let memory = page.as_ptr() as usize;
    bubble
        .attach_memory(memory, page.len(), Access::ReadWrite)
        .unwrap();
    let bytes = bubble.statistics();
    let known: u64 = bytes.bytes.values().sum::<u64>() + bytes.untouched;
    assert_eq!(known, 1 << 16);
    let bubble = Arc::new(bubble);
    let inside = bubble.clone();
    let joined = bubble.spawn(Builder::new(), move || inside.join());
    bubble.submit().unwrap();
    let joined = joined.unwrap().join().unwrap();
    assert!(matches!(joined, Err(BubbleError::InsideItself)));
    bubble.join().unwrap();
    let nowhere = BubbleBuilder::new()
        .place("core:9999".parse().unwrap())
        .build(None);
    assert!(nowhere.is_err());
    Bubble::new(None).unwrap().join().unwrap();
    assert_eq!(activity().unwrap().fault, None);
}
