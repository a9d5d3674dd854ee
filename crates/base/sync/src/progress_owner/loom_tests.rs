//! Release, claim and reclaim of a progress owner, in every order of their steps.

use super::*;
use crate::try_lock::{SingleThreaded, TryLock};
use loom::sync::Arc;

/// The program's thread uses its lock without atomic operations while the gate is kept; the
/// progress thread comes at any time.
#[test]
fn a_progress_thread_is_never_at_the_engine_together_with_a_thread_that_promised_to_be_alone() {
    loom::model(|| {
        let shared = Arc::new((ProgressOwner::new(), TryLock::new(0u32)));
        // SAFETY: the gate keeps the progress thread away while the lock is elided; loom would see
        // it if it did not.
        let promise = unsafe { SingleThreaded::promise() };
        shared.1.elide(promise);
        let helper = shared.clone();
        let thread = loom::thread::spawn(move || {
            let inside = helper.0.enter();
            let guard = inside.as_ref().and_then(|_| helper.1.try_lock());
            guard.map(|mut guard| guard.with(|n| *n += 1)).is_some()
        });
        let add = || {
            shared
                .1
                .try_lock()
                .map(|mut guard| guard.with(|n| *n += 1))
                .is_some()
        };
        let mut mine = u32::from(add());
        shared.1.share();
        shared.0.release();
        mine += u32::from(add());
        while !shared.0.reclaim() {
            loom::thread::yield_now();
        }
        shared.1.elide(promise);
        mine += u32::from(add());
        let theirs = u32::from(thread.join().unwrap());
        assert_eq!(shared.1.try_lock().unwrap().with(|n| *n), mine + theirs);
    });
}

/// A progress thread that nobody needed for a while goes at the moment at which ownership is
/// released.
#[test]
fn what_is_released_has_a_progress_thread_or_the_releasing_thread_knows_that_it_has_gone() {
    loom::model(|| {
        let owner = Arc::new(ProgressOwner::new());
        let helper = owner.clone();
        let thread = loom::thread::spawn(move || helper.retire() || helper.enter().is_some());
        let lent = owner.release();
        thread.join().unwrap();
        assert_eq!(lent, !owner.is_deserted() && !owner.is_held_by_program());
        if !lent {
            owner.note_progress_thread();
            assert!(owner.release() && owner.enter().is_some());
        }
    });
}

/// A progress thread that finds nothing open goes at the moment at which something is left open,
/// with hands lent all the time.
#[test]
fn what_is_left_open_has_a_progress_thread_or_the_releasing_thread_knows_that_it_has_gone() {
    loom::model(|| {
        let shared = Arc::new((ProgressOwner::new(), AtomicU32::new(0)));
        assert!(shared.0.release());
        let helper = shared.clone();
        let thread = loom::thread::spawn(move || {
            let open = || helper.1.load(Ordering::SeqCst) != 0;
            let inside = helper.0.enter().unwrap();
            !open() && inside.abandon(open)
        });
        shared.1.swap(1, Ordering::SeqCst);
        let lent = shared.0.release();
        let gone = thread.join().unwrap();
        assert!(!lent || !gone, "nobody is there for what is lent");
        // Another may have been hired beside one that stays.
        shared.0.note_progress_thread();
        assert!(shared.0.release() && shared.0.enter().is_some());
    });
}

/// The program's thread reclaims ownership: its lock is elided only if nobody is inside.
#[test]
fn a_progress_thread_that_goes_is_never_at_the_engine_together_with_a_thread_that_took_it_back() {
    loom::model(|| {
        let shared = Arc::new((ProgressOwner::new(), TryLock::new(0u32)));
        // SAFETY: the gate keeps the progress thread away while the lock is elided; loom would see
        // it if it did not.
        let promise = unsafe { SingleThreaded::promise() };
        shared.0.release();
        let helper = shared.clone();
        let thread = loom::thread::spawn(move || {
            let Some(inside) = helper.0.enter() else {
                return;
            };
            if let Some(mut guard) = helper.1.try_lock() {
                guard.with(|n| *n += 1);
            }
            if !inside.abandon(|| true) {
                let inside = helper.0.enter();
                let guard = inside.as_ref().and_then(|_| helper.1.try_lock());
                guard.map(|mut guard| guard.with(|n| *n += 1));
            }
        });
        if shared.0.reclaim() {
            shared.1.elide(promise);
        }
        if let Some(mut guard) = shared.1.try_lock() {
            guard.with(|n| *n += 1);
        }
        thread.join().unwrap();
    });
}

/// The program's thread does not wait for a progress thread that is inside: its lock is elided only
/// if the gate is kept.
#[test]
fn a_thread_that_comes_back_works_beside_a_progress_thread_that_has_not_left() {
    loom::model(|| {
        let shared = Arc::new((ProgressOwner::new(), TryLock::new(0u32)));
        // SAFETY: the gate keeps the progress thread away while the lock is elided; loom would see
        // it if it did not.
        let promise = unsafe { SingleThreaded::promise() };
        shared.0.release();
        let helper = shared.clone();
        let thread = loom::thread::spawn(move || {
            let inside = helper.0.enter();
            let guard = inside.as_ref().and_then(|_| helper.1.try_lock());
            guard.map(|mut guard| guard.with(|n| *n += 1)).is_some()
        });
        let mut mine = 0;
        for _ in 0..2 {
            if shared.0.reclaim() {
                shared.1.elide(promise);
            }
            mine += u32::from(
                shared
                    .1
                    .try_lock()
                    .map(|mut guard| guard.with(|n| *n += 1))
                    .is_some(),
            );
        }
        let theirs = u32::from(thread.join().unwrap());
        shared.1.share();
        assert_eq!(shared.1.try_lock().unwrap().with(|n| *n), mine + theirs);
    });
}

/// A progress thread that ends its turn while the program's thread comes and goes leaves the call
/// as the thread wants it.
#[test]
fn a_progress_thread_that_was_asked_to_leave_never_disarms_what_is_armed_after_that() {
    loom::model(|| {
        let shared = Arc::new((ProgressOwner::new(), AtomicU32::new(0), AtomicU32::new(0)));
        shared.0.release();
        let helper = shared.clone();
        let thread = loom::thread::spawn(move || {
            let call = ProgressWakeup::new(&helper.1, &helper.2);
            let Some(inside) = helper.0.enter() else {
                return;
            };
            while !inside.is_recalled() {
                call.arm(WakeupScope::Transfers);
                if !inside.is_recalled() {
                    break;
                }
                call.disarm();
            }
        });
        let call = ProgressWakeup::new(&shared.1, &shared.2);
        shared.0.reclaim();
        call.disarm();
        shared.0.release();
        call.arm(WakeupScope::Transfers);
        thread.join().unwrap();
        assert!(call.is_armed(), "nobody could call the helper any more");
    });
}

/// A progress thread that saw little open arms while the program's thread leaves more open and arms
/// for that.
#[test]
fn a_progress_thread_that_looks_again_at_what_is_open_leaves_the_call_armed_for_it() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false)));
        let helper = shared.clone();
        let thread = loom::thread::spawn(move || {
            let open = || match helper.2.load(Ordering::Relaxed) {
                true => WakeupScope::Everything,
                false => WakeupScope::Transfers,
            };
            loop {
                let what = open();
                ProgressWakeup::new(&helper.0, &helper.1).arm(what);
                if what == open() {
                    break;
                }
            }
        });
        shared.2.store(true, Ordering::Relaxed);
        let call = ProgressWakeup::new(&shared.0, &shared.1);
        call.arm(WakeupScope::Everything);
        thread.join().unwrap();
        assert!(
            call.claim(WakeupScope::Everything),
            "steps would wait for ever"
        );
    });
}

#[test]
fn a_progress_thread_that_goes_to_sleep_sees_a_release_or_is_woken_for_it() {
    loom::model(|| {
        let lendings = Arc::new(ReleaseCounter::new());
        let helper = lendings.clone();
        let thread = loom::thread::spawn(move || helper.rest(0));
        let woken = lendings.count();
        let rests = thread.join().unwrap();
        assert!(!rests || woken, "the helper would rest on");
        assert!(!lendings.count(), "who was woken does not rest");
    });
}

#[test]
fn a_progress_thread_that_wakes_and_sleeps_again_knows_of_a_release_or_is_woken_for_it() {
    loom::model(|| {
        let lendings = Arc::new(ReleaseCounter::new());
        assert!(lendings.rest(0));
        let helper = lendings.clone();
        let thread = loom::thread::spawn(move || {
            helper.resume_polling();
            let seen = helper.times();
            helper.rest(seen).then_some(seen)
        });
        let woken = lendings.count();
        let rests = thread.join().unwrap();
        assert!(
            rests.is_none_or(|seen| seen == 1) || woken,
            "the helper would rest on"
        );
    });
}

#[test]
fn what_came_before_the_call_was_armed_is_seen_and_what_came_later_calls() {
    for what in [WakeupScope::Transfers, WakeupScope::Everything] {
        loom::model(move || {
            let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false)));
            let peer = shared.clone();
            let thread = loom::thread::spawn(move || {
                peer.2.store(true, Ordering::Release);
                ProgressWakeup::new(&peer.0, &peer.1).claim(what)
            });
            ProgressWakeup::new(&shared.0, &shared.1).arm(what);
            let seen = shared.2.load(Ordering::Acquire);
            let called = thread.join().unwrap();
            assert!(seen || called, "the helper would sleep on");
        });
    }
}
