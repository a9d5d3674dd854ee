//! Threads of the C library on workers: what they keep, and waits at addresses that they share with
//! others.

#![cfg(not(loom))]

use garonne_fiber::{ParkOutcome, Parker, ParkingLot, PosixThread, SleepStack, now, yield_now};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(0) };
}

fn thread_here() -> PosixThread {
    PosixThread::of_caller(SleepStack::new().unwrap()).unwrap()
}

fn kernel_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Threads change between workers and their kernel threads, with everything that is theirs.
#[test]
fn a_thread_is_itself_wherever_it_runs() {
    let threads: Vec<_> = (1..=20)
        .map(|number| {
            thread::spawn(move || {
                let own = thread_here();
                let (name, home) = (thread::current().id(), kernel_thread());
                OWN.set(number);
                for round in 0..50 {
                    assert!(!own.bind(), "it is bound");
                    assert!(own.unbind() && own.is_unbound() && !own.unbind());
                    assert_ne!(kernel_thread(), home);
                    (0..round % 3).for_each(|_| yield_now());
                    assert_eq!((OWN.get(), thread::current().id()), (number, name));
                    assert!(own.bind() && !own.is_unbound());
                    assert_eq!(kernel_thread(), home);
                    assert_eq!((OWN.get(), thread::current().id()), (number, name));
                }
                number
            })
        })
        .collect();
    let numbers: Vec<_> = threads.into_iter().map(|one| one.join().unwrap()).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

/// Another thread can neither bind nor unbind it.
#[test]
fn a_thread_alone_changes_where_it_runs() {
    let own = thread_here();
    thread::scope(|scope| {
        let other = scope.spawn(|| (own.unbind(), own.bind()));
        assert_eq!(other.join().unwrap(), (false, false));
    });
    assert!(own.unbind() && own.bind());
}

/// A panic on a worker unwinds the thread's own stack.
#[test]
fn a_panic_passes_through_an_unbound_thread() {
    let ended = thread::spawn(|| {
        let own = thread_here();
        own.unbind();
        let result = std::panic::catch_unwind(|| -> () { std::panic::resume_unwind(Box::new(7)) });
        assert!(own.is_unbound());
        own.bind();
        *result.unwrap_err().downcast::<i32>().unwrap()
    });
    assert_eq!(ended.join().unwrap(), 7);
}

/// A lock of one word whose waits are elsewhere.
struct WordLock {
    word: AtomicU32,
    lot: Arc<ParkingLot>,
}

impl WordLock {
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.word) as usize
    }

    fn try_lock(&self) -> bool {
        self.word.swap(1, Ordering::SeqCst) == 0
    }

    fn lock(&self, parker: &Arc<Parker>) {
        let must_wait = || !self.try_lock();
        let place = (self.address(), 0);
        while self.lot.park(parker, place, None, false, must_wait, || {}) != ParkOutcome::Invalid {}
    }

    fn unlock(&self) {
        self.word.store(0, Ordering::SeqCst);
        self.lot.unpark_one(self.address());
    }
}

/// Threads on workers and threads of the kernel take turns at one word, and no wake-up is lost.
#[test]
fn threads_of_both_kinds_share_a_word() {
    const ROUNDS: usize = 500;
    let lot = Arc::new(ParkingLot::new());
    let word = AtomicU32::new(0);
    let shared = Arc::new((WordLock { word, lot }, AtomicUsize::new(0)));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let shared = shared.clone();
            thread::spawn(move || {
                let own = (number % 2 == 0).then(thread_here);
                let parker = Parker::new(own.as_ref());
                if let Some(own) = &own {
                    own.unbind();
                }
                for round in 0..ROUNDS {
                    shared.0.lock(&parker);
                    let before = shared.1.load(Ordering::Relaxed);
                    if round % 20 == 0 {
                        yield_now();
                    }
                    shared.1.store(before + 1, Ordering::Relaxed);
                    shared.0.unlock();
                }
                if let Some(own) = &own {
                    own.bind();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(shared.1.load(Ordering::Relaxed), 8 * ROUNDS);
}

/// Waits end by time, by an interrupt, and by a request to go on as the kernel's thread.
#[test]
fn waits_end_for_each_of_their_reasons() {
    let lot = Arc::new(ParkingLot::new());
    let begun = Arc::new(Barrier::new(2));
    let (other, at) = (lot.clone(), begun.clone());
    let (sender, receiver) = std::sync::mpsc::channel();
    let waiter = thread::spawn(move || {
        let own = thread_here();
        let parker = Parker::new(Some(&own));
        sender.send(parker.clone()).unwrap();
        own.unbind();
        let park = |tag, deadline, interrupts| {
            other.park(&parker, (64, tag), deadline, interrupts, || true, || {})
        };
        assert_eq!(park(1, Some(now() + 1000), true), ParkOutcome::TimedOut);
        assert_eq!(park(2, None, true), ParkOutcome::Interrupted);
        parker.clear_interrupt();
        own.bind();
        at.wait();
        own.unbind();
        assert_eq!(park(3, None, false), ParkOutcome::Woken);
        assert!(!own.is_unbound(), "it waited as the kernel's");
        at.wait();
    });
    let parker = receiver.recv().unwrap();
    while !lot.has_waiter(64, 2) {
        thread::yield_now();
    }
    parker.interrupt();
    begun.wait();
    while !lot.has_waiter(64, 3) {
        thread::yield_now();
    }
    parker.bind();
    assert_eq!(lot.unpark_all(64, Some(2)), 0, "nobody waits with this tag");
    // The thread may look at the request after the wake-up, so it comes before.
    while !parker.is_bound_wait() {
        thread::yield_now();
    }
    assert_eq!(lot.unpark_all(64, Some(3)), 1);
    begun.wait();
    waiter.join().unwrap();
    assert!(!lot.unpark_one(64));
}
