//! Wake-ups put off, in every order of a waker's steps and a sleeper's: none is lost, and none
//! comes before its waker has let go.

use super::*;
use crate::doorbell::Doorbell;
use crate::facade::{AtomicBool, Cell, Ordering};
use crate::try_lock::TryLock;
use loom::sync::Arc;

/// Sleeps until `word` is another than 0.
fn sleep(word: &AtomicU32) {
    while word.load(Ordering::Acquire) == 0 {
        futex::wait(word, 0, None);
    }
}

/// Writes `word` and owes its sleepers a call.
fn write(word: &AtomicU32) {
    word.store(1, Ordering::Release);
    wake_all(word);
}

/// What a holder of a lock leaves for one that sleeps on its bell is polled before it sleeps, or
/// the bell is rung when the holder has let go: then it is there, whether the sleeper was woken or
/// saw that the word had changed.
#[test]
fn a_ring_that_is_put_off_reaches_who_goes_to_sleep_meanwhile() {
    loom::model(|| {
        let shared = Arc::new((
            AtomicU32::new(0),
            AtomicBool::new(false),
            Cell::new(0u32),
            TryLock::new(()),
        ));
        let other = shared.clone();
        let sleeper = loom::thread::spawn(move || {
            let (word, came, left, _) = &*other;
            let bell = Doorbell::new(word);
            let armed = bell.arm();
            if !came.load(Ordering::Acquire) {
                while !bell.rang(armed) {
                    futex::wait(word, armed.ticket(), None);
                }
            }
            // SAFETY: loom checks that nobody writes the cell meanwhile.
            assert_eq!(left.with(|left| unsafe { *left }), 1);
        });
        let (word, came, left, lock) = &*shared;
        let postponed = DeferredWakes::new();
        let guard = lock.try_lock().unwrap();
        // SAFETY: loom checks that nobody else accesses the cell meanwhile.
        left.with_mut(|left| unsafe { *left = 1 });
        came.store(true, Ordering::Release);
        Doorbell::new(word).ring_fenced();
        drop(guard);
        drop(postponed);
        sleeper.join().unwrap();
    });
}

/// Whoever sleeps when somebody who holds a lock brings about what it waits for finds the lock free
/// when it wakes, also where the holder calls what puts off wake-ups itself.
#[test]
fn whoever_is_woken_finds_that_the_waker_has_let_go() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), TryLock::new(0u32)));
        let other = shared.clone();
        let sleeper = loom::thread::spawn(move || {
            futex::wait(&other.0, 0, None);
            let mut guard = other.1.try_lock().expect("the waker holds the lock still");
            assert_eq!(guard.with(|value| *value), 1);
        });
        while futex::sleepers(&shared.0) == 0 {
            loom::thread::yield_now();
        }
        {
            // In this order: first it is free, then others wake.
            let _wakes = DeferredWakes::new();
            let mut guard = shared.1.try_lock().unwrap();
            write(&shared.0);
            drop(DeferredWakes::new());
            guard.with(|value| *value = 1);
        }
        sleeper.join().unwrap();
    });
}

/// Who put a call off and sleeps until the one called answers calls before it sleeps.
#[test]
fn who_sleeps_until_the_one_called_answers_has_called_it() {
    loom::model(|| {
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let other = words.clone();
        let thread = loom::thread::spawn(move || {
            let _wakes = DeferredWakes::new();
            sleep(&other[1]);
            write(&other[0]);
        });
        let wakes = DeferredWakes::new();
        write(&words[1]);
        flush();
        sleep(&words[0]);
        drop(wakes);
        thread.join().unwrap();
    });
}

/// Two wake-ups, of which only one can be deferred, both arrive.
#[test]
fn wake_ups_beyond_those_that_can_be_put_off_come_too() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words: Arc<[AtomicU32; 2]> = Arc::new(std::array::from_fn(|_| AtomicU32::new(0)));
        let sleepers = [0, 1].map(|me| {
            let words = words.clone();
            loom::thread::spawn(move || sleep(&words[me]))
        });
        let postponed = DeferredWakes::new();
        words.iter().for_each(write);
        drop(postponed);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}
