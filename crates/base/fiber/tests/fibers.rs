//! Fibers on this machine's workers: starts and ends, primitives, waits with a limit, stuck
//! workers.

#![cfg(not(loom))]

use garonne_fiber::{
    Barrier, Builder, Condvar, FiberLocal, Key, Mutex, Once, Place, Priority, Semaphore, blocking,
    current, pin, sleep, spawn, yield_now,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

#[test]
fn fibers_return_results_and_panics() {
    let sum: usize = (0..1000)
        .map(|n| spawn(move || n))
        .map(|fiber| fiber.join().unwrap())
        .sum();
    assert_eq!(sum, 499_500);
    let panicked = spawn(|| panic!("on purpose")).join().unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"on purpose"));
    assert!(current().is_none());
    assert_eq!(spawn(|| current().is_some()).join().ok(), Some(true));
}

#[test]
fn fibers_start_fibers_and_join_them() {
    fn count(depth: usize) -> usize {
        if depth == 0 {
            return 1;
        }
        let halves = [0, 1].map(|_| spawn(move || count(depth - 1)));
        halves.into_iter().map(|half| half.join().unwrap()).sum()
    }
    assert_eq!(spawn(|| count(10)).join().unwrap(), 1024);
}

#[test]
fn a_mutex_has_one_holder_also_across_switches() {
    let shared = Arc::new(Mutex::new(0));
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            let shared = shared.clone();
            spawn(move || {
                for _ in 0..500 {
                    let mut value = shared.lock();
                    let before = *value;
                    if before % 7 == 0 {
                        yield_now();
                    }
                    *value = before + 1;
                }
            })
        })
        .collect();
    // A thread takes part.
    (0..500).for_each(|_| *shared.lock() += 1);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(*shared.lock(), 10_500);
}

#[test]
fn semaphores_and_conditions_pass_items_on() {
    let (free, filled) = (
        Arc::new(Semaphore::new(3)),
        Arc::new((Mutex::new(Vec::new()), Condvar::new())),
    );
    let producer = {
        let (free, filled) = (free.clone(), filled.clone());
        spawn(move || {
            for item in 0..1000 {
                free.wait();
                filled.0.lock().push(item);
                filled.1.notify_one();
            }
        })
    };
    let mut taken = 0;
    while taken < 1000 {
        let mut items = filled.0.lock();
        while items.is_empty() {
            items = filled.1.wait(items);
        }
        assert!(items.len() <= 3, "more than there is room for");
        for _ in items.drain(..) {
            taken += 1;
            free.post();
        }
    }
    producer.join().unwrap();
    assert_eq!(free.value(), 3);
}

#[test]
fn waits_end_with_their_limits_and_what_came_later_is_kept() {
    spawn(|| {
        let (mutex, condition, semaphore) = (Mutex::new(()), Condvar::new(), Semaphore::new(0));
        let (guard, notified) = condition.wait_for(mutex.lock(), SHORT);
        assert!(!notified);
        assert!(mutex.try_lock().is_none(), "held again after the wait");
        drop(guard);
        assert!(!semaphore.wait_for(SHORT));
        semaphore.post();
        assert!(semaphore.wait_for(LONG));
        let sleeper = spawn(|| sleep(LONG));
        assert!(!sleeper.fiber().wait_for(SHORT));
    })
    .join()
    .unwrap();
    assert!(!Semaphore::new(0).wait_for(SHORT), "a thread");
}

#[test]
fn a_barrier_lets_rounds_go_one_by_one() {
    const FIBERS: usize = 50;
    let shared = Arc::new((
        Barrier::new(FIBERS),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    ));
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let shared = shared.clone();
            spawn(move || {
                for round in 0..20 {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    if shared.0.wait() {
                        shared.2.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(shared.1.load(Ordering::Relaxed) >= (round + 1) * FIBERS);
                    shared.0.wait();
                    assert!(shared.2.load(Ordering::Relaxed) > round);
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(shared.2.load(Ordering::Relaxed), 20);
}

#[test]
fn once_is_once_and_a_panic_leaves_it_to_the_next() {
    static ONCE: Once = Once::new();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    assert!(spawn(|| ONCE.call(|| panic!("on purpose"))).join().is_err());
    let run = || {
        ONCE.call(|| {
            yield_now();
            RUNS.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    };
    let fibers: Vec<_> = (0..50).map(|_| spawn(run)).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert!(ONCE.is_done());
}

#[test]
fn keys_have_a_word_in_each_fiber_and_destructors_run_at_its_end() {
    let sum = Arc::new(AtomicUsize::new(0));
    let destroyed = sum.clone();
    let key = Key::new(Some(Arc::new(move |word| {
        destroyed.fetch_add(word, Ordering::Relaxed);
    })));
    let fibers: Vec<_> = (1..=100)
        .map(|word| {
            spawn(move || {
                assert_eq!(key.get(), 0);
                key.set(word);
                yield_now();
                assert_eq!(key.get(), word);
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!((sum.load(Ordering::Relaxed), key.get()), (5050, 0));
    assert!(key.delete() && !key.exists() && !key.delete());

    static NUMBER: FiberLocal<AtomicUsize> = FiberLocal::new(|| AtomicUsize::new(7));
    let changed = spawn(|| {
        NUMBER.get().store(8, Ordering::Relaxed);
        yield_now();
        NUMBER.get().load(Ordering::Relaxed)
    });
    assert_eq!(
        (
            changed.join().unwrap(),
            NUMBER.get().load(Ordering::Relaxed)
        ),
        (8, 7)
    );
}

#[test]
fn attributes_are_kept() {
    let fiber = Builder::new()
        .name("walker")
        .stack_size(1 << 20)
        .priority(Priority::High)
        .place("core:0".parse().unwrap())
        .spawn(|| {
            let large = std::hint::black_box([1u8; 300 << 10]);
            (
                current().unwrap().name(),
                large.iter().map(|byte| u32::from(*byte)).sum::<u32>(),
            )
        })
        .unwrap();
    assert_eq!(fiber.join().unwrap(), (Some("walker".into()), 300 << 10));
    let nowhere = "core:100000".parse::<Place>().unwrap();
    let refused = Builder::new().place(nowhere).spawn(|| ()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the machine has no place core:100000 that this process may use"
    );
    assert!(Builder::new().stack_size(usize::MAX).spawn(|| ()).is_err());
}

/// All workers are in the kernel until a further fiber ends that. Marked or not, that fiber runs.
#[test]
fn a_worker_that_is_stuck_in_the_kernel_is_replaced() {
    for marked in [true, false] {
        let stuck = garonne_fiber::workers() + 1;
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let receiver = Arc::new(std::sync::Mutex::new(receiver));
        let fibers: Vec<_> = (0..stuck)
            .map(|_| {
                let receiver = receiver.clone();
                let receive = move || receiver.lock().unwrap().recv().unwrap();
                spawn(move || if marked { blocking(receive) } else { receive() })
            })
            .collect();
        let rescuer = spawn(move || (0..stuck).for_each(|_| sender.send(()).unwrap()));
        rescuer.join().unwrap();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
}

#[test]
fn a_pinned_fiber_stays_on_its_core() {
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            spawn(|| {
                let _pin = pin();
                let tree = garonne_fiber::machine();
                let core = || tree.core_of(rustix::thread::sched_getcpu() as u32);
                let first = core();
                (0..200).for_each(|_| {
                    yield_now();
                    assert_eq!(core(), first);
                });
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

#[test]
fn fibers_move_between_run_queues() {
    let tree = garonne_fiber::machine();
    let fibers: Vec<_> = (0..100)
        .map(|n| {
            let fiber = spawn(|| (0..100).for_each(|_| yield_now()));
            fiber.fiber().move_to(n % tree.areas().len()).unwrap();
            fiber
        })
        .collect();
    assert!(fibers[0].fiber().move_to(tree.areas().len()).is_err());
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(garonne_fiber::queued(usize::MAX), 0);
}
