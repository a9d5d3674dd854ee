//! Waiters under every order of memory operations that loom can think of: no news and no role is
//! lost, and no role is two threads' at once.

use super::*;
use crate::facade::{AtomicBool, Notify};
use crate::waiter::WaiterState;
use loom::sync::Arc;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// Runs `model` for a waiter that sleeps at once and for one that spins first.
fn model_of_both(body: fn(looks: u32)) {
    model(move || body(0));
    model(move || body(1));
}

/// Waits for a flag that others raise. Returns whether it was the leader at the end.
fn await_flag(slots: &Waiters, who: usize, flag: &AtomicBool, looks: u32) -> bool {
    let who = WaiterId::new(who);
    let mut seat = slots.take_slot(who).unwrap();
    loop {
        let seen = slots.event_count();
        if flag.load(Ordering::Acquire) {
            return false;
        }
        if slots.try_lead(who) || seat.wait(7, seen, looks) == WakeReason::Lead {
            assert!(slots.is_led_by(who));
            while !flag.load(Ordering::Acquire) {
                loom::thread::yield_now();
            }
            return true;
        }
    }
}

#[test]
fn events_told_while_somebody_parks_reach_it() {
    model_of_both(|looks| {
        let shared = Arc::new((Waiters::modelled(), AtomicBool::new(false)));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let waiter = loom::thread::spawn(move || await_flag(&other.0, 3, &other.1, looks));
        shared.1.store(true, Ordering::Release);
        shared.0.notify(|awaited| awaited == 7);
        // The leader stays: only the news can end the wait.
        assert!(!waiter.join().unwrap());
    });
}

/// A waiter that is no thread: its executor, a thread of the model, polls it when it was unparked.
#[derive(Debug)]
struct Suspended {
    state: WaiterState,
    resumed: Resumed,
}

struct Resumed(Notify);

impl std::fmt::Debug for Resumed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resumed").finish_non_exhaustive()
    }
}

impl Waiter for Suspended {
    fn state(&self) -> &WaiterState {
        &self.state
    }

    fn park(&self, _: &AtomicU32, _: u32) {
        self.resumed.0.wait();
    }

    fn unpark(&self, _: &AtomicU32) {
        self.resumed.0.notify();
    }

    fn yield_now(&self) -> bool {
        false
    }
}

#[test]
fn a_waiter_that_is_no_thread_is_resumed_by_an_event_or_by_leadership() {
    model(|| {
        let shared = Arc::new((Waiters::modelled(), AtomicBool::new(false)));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let waiter = loom::thread::spawn(move || {
            let who = WaiterHandle::Logical(std::sync::Arc::new(Suspended {
                state: WaiterState::new(),
                resumed: Resumed(Notify::new()),
            }));
            let mut slot = other.0.take_slot(who.clone()).unwrap();
            loop {
                let seen = other.0.event_count();
                if other.1.load(Ordering::Acquire) {
                    return other.0.is_led_by(who.id());
                }
                if other.0.try_lead(who.id()) {
                    return true;
                }
                if slot.wait(7, seen, 1) == WakeReason::Lead {
                    assert!(other.0.is_led_by(who.id()));
                    return true;
                }
            }
        });
        shared.1.store(true, Ordering::Release);
        shared.0.notify(|awaited| awaited == 7);
        let passed = shared.0.pass_leadership();
        let led = waiter.join().unwrap();
        assert!(
            led || !passed,
            "leadership went to a waiter that did not get it"
        );
    });
}

/// Told under a lock, and so called later: at the latest when who told is parked down itself, to
/// wait for what those bring about whom it told.
#[test]
fn who_parks_has_called_whom_it_told() {
    model(|| {
        let shared = Arc::new((
            Waiters::modelled(),
            [AtomicBool::new(false), AtomicBool::new(false)],
        ));
        // Somebody polls, and stays.
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let bring = |shared: &(Waiters, [AtomicBool; 2]), what: usize| {
            shared.1[what].store(true, Ordering::Release);
            shared.0.notify(|awaited| awaited == what as u64);
        };
        let sit = |shared: &(Waiters, [AtomicBool; 2]), who: usize, what: usize| {
            let mut seat = shared.0.take_slot(WaiterId::new(who)).unwrap();
            loop {
                let seen = shared.0.event_count();
                if shared.1[what].load(Ordering::Acquire) {
                    break;
                }
                assert_eq!(seat.wait(what as u64, seen, 0), WakeReason::Recheck);
            }
        };
        let other = shared.clone();
        let waiter = loom::thread::spawn(move || {
            sit(&other, 3, 1);
            bring(&other, 0);
        });
        let wakes = crate::deferred_wake::DeferredWakes::new();
        bring(&shared, 1);
        sit(&shared, 4, 0);
        drop(wakes);
        waiter.join().unwrap();
    });
}

#[test]
fn a_role_given_back_while_somebody_parks_finds_somebody() {
    model_of_both(|looks| {
        let shared = Arc::new((Waiters::modelled(), AtomicBool::new(false)));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let waiter = loom::thread::spawn(move || {
            let (who, mut asked) = (WaiterId::new(3), 0);
            let mut seat = other.0.take_slot(who).unwrap();
            let seen = other.0.event_count();
            while !other.0.try_lead(who) && seat.wait(7, seen, looks) != WakeReason::Lead {
                asked += 1;
                assert!(
                    asked < 3,
                    "it is told to ask again and finds that somebody polls"
                );
            }
            assert!(other.0.is_led_by(who) && !other.0.pass_leadership());
        });
        shared.0.pass_leadership();
        waiter.join().unwrap();
        assert!(!shared.0.has_leader());
    });
}

#[test]
fn the_role_is_one_threads_at_a_time_and_comes_to_all_who_wait() {
    model(|| {
        let shared = Arc::new((Waiters::modelled(), AtomicU32::new(0)));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let waiters = [3, 4].map(|number| {
            let other = shared.clone();
            loom::thread::spawn(move || {
                let who = WaiterId::new(number);
                let mut seat = other.0.take_slot(who).unwrap();
                let seen = other.0.event_count();
                while !other.0.try_lead(who) && seat.wait(7, seen, 0) != WakeReason::Lead {}
                assert_eq!(
                    other.1.fetch_add(1, Ordering::SeqCst),
                    0,
                    "two poll at once"
                );
                other.1.fetch_sub(1, Ordering::SeqCst);
                other.0.pass_leadership();
            })
        });
        shared.0.pass_leadership();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(!shared.0.has_leader());
    });
}

/// Lies down, and gets up when the flag is there, the bell is rung or it is called. Has leadership
/// before; returns whether it has it still.
fn lie_until(slots: &Waiters, who: usize, flag: &AtomicBool) -> bool {
    let mut seat = slots.take_slot(WaiterId::new(who)).unwrap();
    let seen = slots.event_count();
    if !seat.park_on_bell(7, seen) {
        return true;
    }
    while !flag.load(Ordering::Acquire) && !seat.is_woken() {
        loom::thread::yield_now();
    }
    seat.unpark() == WakeReason::Lead
}

#[test]
fn a_role_on_the_doorbell_is_one_threads_at_a_time_and_never_lost() {
    model(|| {
        let shared = Arc::new((
            Waiters::modelled(),
            AtomicU32::new(0),
            AtomicBool::new(false),
        ));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let reliever = loom::thread::spawn(move || {
            let who = WaiterId::new(3);
            if other.0.relieve_parked_leader(who) {
                assert_eq!(
                    other.1.fetch_add(1, Ordering::SeqCst),
                    0,
                    "two poll at once"
                );
                other.2.store(true, Ordering::Release);
                other.1.fetch_sub(1, Ordering::SeqCst);
                if !other.0.leave_leadership_on_bell(who) {
                    assert!(other.0.is_led_by(who));
                    other.0.pass_leadership();
                }
            }
            other.2.store(true, Ordering::Release);
        });
        if lie_until(&shared.0, 2, &shared.2) {
            assert!(shared.0.is_led_by(WaiterId::new(2)));
            assert_eq!(
                shared.1.fetch_add(1, Ordering::SeqCst),
                0,
                "two poll at once"
            );
            shared.1.fetch_sub(1, Ordering::SeqCst);
            shared.0.pass_leadership();
        }
        reliever.join().unwrap();
        assert!(!shared.0.has_leader() && !shared.0.has_bell_sleeper());
    });
}

#[test]
fn a_role_comes_to_who_lies_beside_the_one_that_polls() {
    model(|| {
        let shared = Arc::new((Waiters::modelled(), AtomicU32::new(0)));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let lier = loom::thread::spawn(move || {
            let who = WaiterId::new(3);
            let mut seat = other.0.take_slot(who).unwrap();
            // At once where it lies down, or nobody polls any more.
            while !other.0.try_lead(who) {
                let called = match seat.park_on_bell_behind_leader(7, other.0.event_count()) {
                    Err(called) => called,
                    Ok(()) => {
                        while !seat.has_leadership() && !seat.is_woken() {
                            loom::thread::yield_now();
                        }
                        seat.unpark()
                    }
                };
                if called == WakeReason::Lead {
                    break;
                }
            }
            assert!(other.0.is_led_by(who));
            assert_eq!(
                other.1.fetch_add(1, Ordering::SeqCst),
                0,
                "two poll at once"
            );
            other.1.fetch_sub(1, Ordering::SeqCst);
            assert!(!other.0.pass_leadership());
        });
        if !shared.0.leave_leadership_on_bell(WaiterId::new(2)) {
            assert!(shared.0.is_led_by(WaiterId::new(2)));
            shared.0.pass_leadership();
        }
        lier.join().unwrap();
        assert!(!shared.0.has_leader() && !shared.0.has_bell_sleeper());
    });
}

#[test]
fn events_reach_who_lies_beside_the_one_that_polls() {
    model(|| {
        let shared = Arc::new((Waiters::modelled(), AtomicBool::new(false)));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let lier = loom::thread::spawn(move || {
            let mut seat = other.0.take_slot(WaiterId::new(3)).unwrap();
            let seen = other.0.event_count();
            if !other.1.load(Ordering::Acquire) && seat.park_on_bell_behind_leader(7, seen).is_ok()
            {
                while !seat.is_woken() {
                    loom::thread::yield_now();
                }
                assert_eq!(seat.unpark(), WakeReason::Recheck);
                assert!(other.1.load(Ordering::Acquire));
            }
        });
        shared.1.store(true, Ordering::Release);
        shared.0.notify(|awaited| awaited == 7);
        lier.join().unwrap();
        assert!(!shared.0.pass_leadership() && !shared.0.has_bell_sleeper());
    });
}

#[test]
fn events_reach_who_lies_on_the_doorbell() {
    model(|| {
        let shared = Arc::new((
            Waiters::modelled(),
            AtomicBool::new(false),
            AtomicBool::new(false),
        ));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let reliever = loom::thread::spawn(move || {
            // What it brings about comes before anybody lies down, while somebody does, or after.
            let relieved = other.0.relieve_parked_leader(WaiterId::new(3));
            other.1.store(true, Ordering::Release);
            other.0.notify(|awaited| awaited == 7);
            // WaiterId was told may be about to get up.
            let lay = relieved
                && other.0.has_bell_sleeper()
                && other.0.leave_leadership_on_bell(WaiterId::new(3));
            if relieved && !lay {
                let mut seat = other.0.take_slot(WaiterId::new(3)).unwrap();
                assert!(seat.park_on_bell(8, other.0.event_count()));
                if seat.unpark() == WakeReason::Lead {
                    other.0.pass_leadership();
                }
            }
        });
        let slots = &shared.0;
        let mut seat = slots.take_slot(WaiterId::new(2)).unwrap();
        let seen = slots.event_count();
        let mut role = true;
        if !shared.1.load(Ordering::Acquire) && seat.park_on_bell(7, seen) {
            while !seat.is_woken() {
                loom::thread::yield_now();
            }
            role = seat.unpark() == WakeReason::Lead;
            assert!(shared.1.load(Ordering::Acquire));
        }
        if role {
            slots.pass_leadership();
        }
        reliever.join().unwrap();
        assert!(!slots.has_leader());
    });
}

#[test]
fn news_and_a_role_that_come_together_both_count() {
    model(|| {
        let shared = Arc::new((Waiters::modelled(), AtomicBool::new(false)));
        assert!(shared.0.try_lead(WaiterId::new(2)));
        let other = shared.clone();
        let waiter = loom::thread::spawn(move || {
            if await_flag(&other.0, 3, &other.1, 1) {
                other.0.pass_leadership();
            }
        });
        let other = shared.clone();
        let teller = loom::thread::spawn(move || {
            other.1.store(true, Ordering::Release);
            other.0.notify(|_| true);
        });
        shared.0.pass_leadership();
        teller.join().unwrap();
        waiter.join().unwrap();
        assert!(!shared.0.has_leader(), "the role is lost with who left");
    });
}
