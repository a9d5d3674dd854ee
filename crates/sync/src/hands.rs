//! Lending a rank's hands: who may touch its engine while no thread of the program is in the library, and how its peers call for that.
//!
//! The [`Gate`] lies between the program's thread, which promised to be the only one and so takes locks without atomic operations, and a helper of the
//! library. While the gate is kept the helper stays outside; the program's thread lends before it goes away and takes back when it waits, so locks
//! may change their ways in between. A helper that is inside is not waited for: until it has left, both are at the engine, with real locks. The [`Call`] is two words in shared memory by which peers wake the helper. It is armed while something is open that
//! needs hands; only what needs hands looks at it, so a small message never does. Where nobody is to call at once, [`Lendings`] lets the helper look by itself now and then,
//! and rest while nothing is lent. Where cores are idle it may stay awake for a while instead of sleeping ([`Vigil`]): then nobody has to call it.

mod vigil;

pub use vigil::Vigil;

use crate::doorbell::Doorbell;
use crate::facade::{AtomicBool, AtomicU32, Ordering, fence};

const KEPT: u32 = 0;
/// Kept, and nobody is there to whom it could be lent.
const DESERTED: u32 = 1;
const LENT: u32 = 2;
const INSIDE: u32 = 3;

/// See the module's paragraph.
#[derive(Debug)]
pub struct Gate {
    state: AtomicU32,
    recalled: AtomicBool,
}

/// The helper is inside; dropping it leaves.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Gate {
    /// Kept.
    #[allow(clippy::new_without_default, reason = "loom's atomics are made at run time")]
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(KEPT),
            recalled: AtomicBool::new(false),
        }
    }

    /// Lets the helper in from now on, and lets one stay that was asked to leave. For the one who keeps and lends. `false`: the helper has retired, nothing is lent.
    pub fn lend(&self) -> bool {
        // Who lends is the one who recalls. A helper may look at both words all the time: they are written only if they change.
        if self.recalled.load(Ordering::Relaxed) {
            self.recalled.store(false, Ordering::SeqCst);
        }
        // Release: the helper sees what the lender did, the change of its locks included. SYNC(hands-gate).
        let lent = self
            .state
            .compare_exchange(KEPT, LENT, Ordering::Release, Ordering::Relaxed);
        lent != Err(DESERTED)
    }

    /// The helper goes for good, if nothing is lent. `false`: it is needed.
    pub fn retire(&self) -> bool {
        self.state
            .compare_exchange(KEPT, DESERTED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the last helper has retired.
    #[inline]
    pub fn is_deserted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DESERTED
    }

    /// There is a helper again.
    pub fn attend(&self) {
        let _ = self
            .state
            .compare_exchange(DESERTED, KEPT, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it is kept. Exact for the one who lends and takes back.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.state.load(Ordering::Relaxed) < LENT
    }

    /// Whether it is lent, and not asked back. Exact for the one who lends and takes back.
    pub fn is_lent(&self) -> bool {
        !self.is_kept() && !self.recalled.load(Ordering::Relaxed)
    }

    /// Whether the helper was inside a moment ago.
    pub fn is_entered(&self) -> bool {
        self.state.load(Ordering::Relaxed) == INSIDE
    }

    /// Takes it back unless the helper is inside. `true`: it is kept now.
    pub fn try_keep(&self) -> bool {
        // Acquire: what the helper did is seen. SYNC(hands-gate).
        let taken = self
            .state
            .compare_exchange(LENT, KEPT, Ordering::Acquire, Ordering::Relaxed);
        matches!(taken, Ok(_) | Err(KEPT | DESERTED))
    }

    /// As `try_keep`, but a helper that is inside is asked to leave soon. It may still be inside, even put aside by the kernel: who gets `false` goes on with
    /// locks that are real ones, and calls this again now and then.
    pub fn take_back(&self) -> bool {
        if self.try_keep() {
            return true;
        }
        // Before the look: a helper that comes in later sees it. SYNC(hands-recall).
        self.recalled.store(true, Ordering::SeqCst);
        self.try_keep()
    }

    /// The helper comes in; `None`: it is kept.
    pub fn enter(&self) -> Option<Inside<'_>> {
        // Acquire: SYNC(hands-gate).
        self.state
            .compare_exchange(LENT, INSIDE, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Inside(self))
    }
}

impl Inside<'_> {
    /// Somebody of the rank is at work itself: leave soon. SYNC(hands-recall).
    #[inline]
    pub fn recalled(&self) -> bool {
        self.0.recalled.load(Ordering::SeqCst)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Release: SYNC(hands-gate).
        self.0.state.store(LENT, Ordering::Release);
    }
}

/// How often hands were lent, for a helper that looks by itself: it acts on what stays lent from one look to the next, and rests while nothing is.
#[derive(Debug)]
pub struct Lendings {
    times: AtomicU32,
    resting: AtomicBool,
}

impl Lendings {
    /// None so far, and the helper looks.
    #[allow(clippy::new_without_default, reason = "loom's atomics are made at run time")]
    pub fn new() -> Self {
        Self {
            times: AtomicU32::new(0),
            resting: AtomicBool::new(false),
        }
    }

    /// Hands are lent. `true`: the helper rests, and the caller is the one who must wake it.
    #[inline]
    pub fn count(&self) -> bool {
        self.times.fetch_add(1, Ordering::Relaxed);
        // The count before the look: SYNC(hands-rest).
        fence(Ordering::SeqCst);
        self.is_resting() && self.resting.swap(false, Ordering::Relaxed)
    }

    /// How often so far.
    pub fn times(&self) -> u32 {
        self.times.load(Ordering::Relaxed)
    }

    /// Whether the helper has to be woken.
    #[inline]
    pub fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// The helper looks again, for whatever reason.
    pub fn rise(&self) {
        self.resting.store(false, Ordering::Relaxed);
    }

    /// The helper is about to rest. `false`: hands were lent since there were `seen` lendings.
    pub fn rest(&self, seen: u32) -> bool {
        self.resting.store(true, Ordering::Relaxed);
        // SYNC(hands-rest).
        fence(Ordering::SeqCst);
        let rests = self.times() == seen;
        if !rests {
            self.resting.store(false, Ordering::Relaxed);
        }
        rests
    }
}

/// For what a helper is to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// For transfers that stand still without it.
    Answers,
    /// For everything that came: steps of a collective wait for it.
    Everything,
}

/// The words by which peers call a rank's helper.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    bell: Doorbell<'a>,
    word: &'a AtomicU32,
    /// Not zero: it wants to be called for everything.
    all: &'a AtomicU32,
}

impl<'a> Call<'a> {
    /// The words of a rank, wherever they lie.
    pub fn new(word: &'a AtomicU32, all: &'a AtomicU32) -> Self {
        Self {
            bell: Doorbell::new(word),
            word,
            all,
        }
    }

    /// The word that the helper sleeps on. It changes with each call, and when it is armed.
    pub fn word(self) -> &'a AtomicU32 {
        self.word
    }

    /// From now on peers call. Look once more for what came before, and, where others arm too, whether what is open is still what this armed for.
    pub fn arm(self, what: For) {
        // A swap: who takes back what another armed for sees what that one had left open. SYNC(hands-open).
        self.all
            .swap(u32::from(what == For::Everything), Ordering::AcqRel);
        // Orders both words before the caller's look, against the fence in `claim`. SYNC(hands-call).
        self.bell.arm();
    }

    /// Whether it is armed.
    #[inline]
    pub fn is_armed(self) -> bool {
        self.bell.is_armed()
    }

    /// From now on peers do not call.
    pub fn disarm(self) {
        // A call that comes first wakes the helper for nothing.
        self.bell.claim_ring();
        // Before a look at whether somebody armed it meanwhile for a reason that this caller had not seen. SYNC(hands-recall).
        fence(Ordering::SeqCst);
    }

    /// After something was published for the rank: `true` if the caller is the one who must wake its helper. No system call.
    #[inline]
    pub fn claim(self, what: For) -> bool {
        // The publication before the look: SYNC(hands-call).
        fence(Ordering::SeqCst);
        self.claim_fenced(what)
    }

    /// The same where a fence lies between the publication and this.
    #[inline]
    fn claim_fenced(self, what: For) -> bool {
        self.bell.is_armed()
            && (what == For::Answers || self.all.load(Ordering::Relaxed) != 0)
            && self.bell.claim_ring()
    }

    /// After something was published for the rank: wakes its helper if it wants to be called for that.
    #[inline]
    pub fn ring(self, what: For) {
        if self.claim(what) {
            crate::postponed::wake_all(self.word);
        }
    }

    /// After something was published for several ranks: calls the helpers of those that want to be called for that, each by its words.
    pub fn ring_all<'b>(calls: impl Iterator<Item = Call<'b>>, what: For) {
        // Before all looks: SYNC(hands-call).
        fence(Ordering::SeqCst);
        for call in calls.filter(|call| call.claim_fenced(what)) {
            crate::postponed::wake_all(call.word);
        }
    }

    /// Wakes the helper whatever it waits for.
    pub fn rouse(self) {
        // An even number: armed stays armed.
        self.word.fetch_add(2, Ordering::SeqCst);
        crate::futex::wake(self.word, u32::MAX);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::trylock::{OneThread, TryLock};
    use loom::sync::Arc;

    /// The program's thread uses its lock without atomic operations while the gate is kept; the helper comes at any time.
    #[test]
    fn a_helper_is_never_at_the_engine_together_with_a_thread_that_promised_to_be_alone() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), TryLock::new(0u32)));
            // SAFETY: the gate keeps the helper away while the lock is elided; loom would see it if it did not.
            let promise = unsafe { OneThread::promise() };
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
            shared.0.lend();
            mine += u32::from(add());
            while !shared.0.take_back() {
                loom::thread::yield_now();
            }
            shared.1.elide(promise);
            mine += u32::from(add());
            let theirs = u32::from(thread.join().unwrap());
            assert_eq!(shared.1.try_lock().unwrap().with(|n| *n), mine + theirs);
        });
    }

    /// A helper that nobody needed for a while goes at the moment at which hands are lent.
    #[test]
    fn what_is_lent_has_a_helper_or_the_lender_knows_that_it_has_gone() {
        loom::model(|| {
            let gate = Arc::new(Gate::new());
            let helper = gate.clone();
            let thread = loom::thread::spawn(move || helper.retire() || helper.enter().is_some());
            let lent = gate.lend();
            thread.join().unwrap();
            assert_eq!(lent, !gate.is_deserted() && !gate.is_kept());
            if !lent {
                gate.attend();
                assert!(gate.lend() && gate.enter().is_some());
            }
        });
    }

    /// The program's thread does not wait for a helper that is inside: its lock is elided only if the gate is kept.
    #[test]
    fn a_thread_that_comes_back_works_beside_a_helper_that_has_not_left() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), TryLock::new(0u32)));
            // SAFETY: the gate keeps the helper away while the lock is elided; loom would see it if it did not.
            let promise = unsafe { OneThread::promise() };
            shared.0.lend();
            let helper = shared.clone();
            let thread = loom::thread::spawn(move || {
                let inside = helper.0.enter();
                let guard = inside.as_ref().and_then(|_| helper.1.try_lock());
                guard.map(|mut guard| guard.with(|n| *n += 1)).is_some()
            });
            let mut mine = 0;
            for _ in 0..2 {
                if shared.0.take_back() {
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

    /// A helper that ends its turn while the program's thread comes and goes leaves the call as the thread wants it.
    #[test]
    fn a_helper_that_was_asked_to_leave_never_disarms_what_is_armed_after_that() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), AtomicU32::new(0), AtomicU32::new(0)));
            shared.0.lend();
            let helper = shared.clone();
            let thread = loom::thread::spawn(move || {
                let call = Call::new(&helper.1, &helper.2);
                let Some(inside) = helper.0.enter() else { return };
                while !inside.recalled() {
                    call.arm(For::Answers);
                    if !inside.recalled() {
                        break;
                    }
                    call.disarm();
                }
            });
            let call = Call::new(&shared.1, &shared.2);
            shared.0.take_back();
            call.disarm();
            shared.0.lend();
            call.arm(For::Answers);
            thread.join().unwrap();
            assert!(call.is_armed(), "nobody could call the helper any more");
        });
    }

    /// A helper that saw little open arms while the program's thread leaves more open and arms for that.
    #[test]
    fn a_helper_that_looks_again_at_what_is_open_leaves_the_call_armed_for_it() {
        loom::model(|| {
            let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false)));
            let helper = shared.clone();
            let thread = loom::thread::spawn(move || {
                let open = || match helper.2.load(Ordering::Relaxed) {
                    true => For::Everything,
                    false => For::Answers,
                };
                loop {
                    let what = open();
                    Call::new(&helper.0, &helper.1).arm(what);
                    if what == open() {
                        break;
                    }
                }
            });
            shared.2.store(true, Ordering::Relaxed);
            let call = Call::new(&shared.0, &shared.1);
            call.arm(For::Everything);
            thread.join().unwrap();
            assert!(call.claim(For::Everything), "steps would wait for ever");
        });
    }

    #[test]
    fn a_helper_that_goes_to_rest_sees_a_lending_or_is_woken_for_it() {
        loom::model(|| {
            let lendings = Arc::new(Lendings::new());
            let helper = lendings.clone();
            let thread = loom::thread::spawn(move || helper.rest(0));
            let woken = lendings.count();
            let rests = thread.join().unwrap();
            assert!(!rests || woken, "the helper would rest on");
            assert!(!lendings.count(), "who was woken does not rest");
        });
    }

    #[test]
    fn a_helper_that_rises_and_rests_again_knows_of_a_lending_or_is_woken_for_it() {
        loom::model(|| {
            let lendings = Arc::new(Lendings::new());
            assert!(lendings.rest(0));
            let helper = lendings.clone();
            let thread = loom::thread::spawn(move || {
                helper.rise();
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
        for what in [For::Answers, For::Everything] {
            loom::model(move || {
                let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false)));
                let peer = shared.clone();
                let thread = loom::thread::spawn(move || {
                    peer.2.store(true, Ordering::Release);
                    Call::new(&peer.0, &peer.1).claim(what)
                });
                Call::new(&shared.0, &shared.1).arm(what);
                let seen = shared.2.load(Ordering::Acquire);
                let called = thread.join().unwrap();
                assert!(seen || called, "the helper would sleep on");
            });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_is_kept_lets_nobody_in_and_one_whose_helper_is_inside_is_not_taken() {
        let gate = Gate::new();
        assert!(gate.enter().is_none() && gate.is_kept());
        gate.lend();
        let inside = gate.enter().unwrap();
        assert!(!inside.recalled() && !gate.take_back() && inside.recalled());
        drop(inside);
        assert!(gate.take_back() && gate.is_kept());
        gate.lend();
        let inside = gate.enter().unwrap();
        assert!(!inside.recalled() && !gate.take_back() && inside.recalled());
        gate.lend();
        assert!(!inside.recalled() && gate.is_lent(), "it may stay");
        assert!(!gate.take_back() && !gate.is_lent());
    }

    #[test]
    fn a_helper_retires_only_while_the_gate_is_kept_and_nothing_is_lent_until_there_is_another() {
        let gate = Gate::new();
        assert!(gate.lend() && !gate.retire());
        assert!(gate.take_back() && gate.retire() && !gate.retire());
        assert!(gate.is_kept() && gate.is_deserted() && gate.take_back());
        assert!(!gate.lend() && gate.is_kept() && gate.enter().is_none());
        gate.attend();
        assert!(gate.lend() && gate.lend() && gate.enter().is_some());
    }

    #[test]
    fn a_call_for_answers_is_not_bothered_with_other_news() {
        let words = (AtomicU32::new(0), AtomicU32::new(0));
        let call = Call::new(&words.0, &words.1);
        assert!(!call.claim(For::Answers));
        call.arm(For::Answers);
        assert!(!call.claim(For::Everything) && call.claim(For::Answers) && !call.is_armed());
        call.arm(For::Everything);
        assert!(call.claim(For::Everything));
        call.arm(For::Everything);
        call.disarm();
        assert!(!call.claim(For::Answers));
    }
}
