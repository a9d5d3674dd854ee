//! Ownership of a rank's engine while no thread of the program is in the library, and the words by
//! which peers wake the progress thread.
//!
//! A [`ProgressOwner`] decides between the program's thread and the progress thread. The program's
//! thread promised to be the only one, and so takes locks without atomic operations. While the
//! program holds ownership the progress thread stays out. The program releases ownership before it
//! returns to compute, and reclaims it when it waits; locks may be switched in between. A progress
//! thread that is inside is not waited for. Until it has left, both use the engine with real locks.
//!
//! [`ProgressWakeup`] is a pair of words in shared memory by which peers wake the progress thread.
//! The pair is armed while an operation is open that needs the thread. Small messages need no such
//! help and never read it. Where no peer is to wake the thread at once, [`ReleaseCounter`] lets it
//! poll by itself now and then. Where cores are idle the thread may spin instead of sleeping
//! ([`ProgressSpin`]).

mod progress_spin;

pub use progress_spin::ProgressSpin;

use crate::doorbell::Doorbell;
use crate::facade::{AtomicBool, AtomicU32, Ordering, fence, total_order};

const HELD: u32 = 0;
/// Kept, and nobody is there to whom it could be lent.
const HELD_NO_THREAD: u32 = 1;
const RELEASED: u32 = 2;
const ENTERED: u32 = 3;
/// Lent, and nobody is there who could come in: nothing that was open is any more.
const RELEASED_NO_THREAD: u32 = 4;

/// The word that says who may use a rank's engine: the program's thread or the progress thread. The
/// locked engine owns it. The program calls `release` to release ownership and `reclaim` to reclaim
/// it; the progress thread calls [`ProgressOwner::enter`] for each turn.
#[derive(Debug)]
pub struct ProgressOwner {
    state: AtomicU32,
    is_recalled: AtomicBool,
}

/// The progress thread is inside; dropping it leaves.
#[derive(Debug)]
pub struct ProgressThreadGuard<'a>(&'a ProgressOwner);

impl ProgressOwner {
    /// Kept.
    #[allow(
        clippy::new_without_default,
        reason = "loom's atomics are made at run time"
    )]
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(HELD),
            is_recalled: AtomicBool::new(false),
        }
    }

    /// Lets the progress thread in from now on, and lets one stay that was asked to leave. For the
    /// one who keeps and lends. `false`: the progress thread has retired, nothing is lent.
    pub fn release(&self) -> bool {
        // Who lends is the one who recalls. A progress thread may look at both words all the time:
        // they are written only if they change.
        if self.is_recalled.load(Ordering::Relaxed) {
            self.is_recalled.store(false, Ordering::SeqCst);
        }
        // Release: the progress thread sees what the lender did, the change of its locks included.
        // SYNC(hands-gate). What was noted as open before, in this one order or under a lock, a
        // progress thread that goes sees, or it is seen here: SYNC(hands-abandoned).
        total_order();
        let lent = self
            .state
            .compare_exchange(HELD, RELEASED, Ordering::SeqCst, Ordering::SeqCst);
        !matches!(lent, Err(HELD_NO_THREAD | RELEASED_NO_THREAD))
    }

    /// The progress thread goes for good, if nothing is lent. `false`: it is needed.
    pub fn retire(&self) -> bool {
        self.state
            .compare_exchange(HELD, HELD_NO_THREAD, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns whether the last progress thread has retired.
    #[inline]
    pub fn is_deserted(&self) -> bool {
        matches!(
            self.state.load(Ordering::Relaxed),
            HELD_NO_THREAD | RELEASED_NO_THREAD
        )
    }

    /// There is a progress thread again.
    pub fn note_progress_thread(&self) {
        for (gone, there) in [(HELD_NO_THREAD, HELD), (RELEASED_NO_THREAD, RELEASED)] {
            let _ = self
                .state
                .compare_exchange(gone, there, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Returns whether it is kept. Exact for the one who lends and takes back.
    #[inline]
    pub fn is_held_by_program(&self) -> bool {
        self.state.load(Ordering::Relaxed) < RELEASED
    }

    /// Returns whether it is lent, and not asked back. Exact for the one who lends and takes back.
    pub fn is_released(&self) -> bool {
        !self.is_held_by_program() && !self.is_recalled.load(Ordering::Relaxed)
    }

    /// Returns whether the progress thread was inside a moment ago.
    pub fn is_entered_by_thread(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ENTERED
    }

    /// Takes it back unless the progress thread is inside. `true`: it is kept now.
    pub fn try_reclaim(&self) -> bool {
        // Acquire: what the progress thread did is seen. SYNC(hands-gate).
        let take = |lent, kept| {
            self.state
                .compare_exchange(lent, kept, Ordering::Acquire, Ordering::Relaxed)
        };
        match take(RELEASED, HELD) {
            // Should one be there again meanwhile, it is asked again.
            Err(RELEASED_NO_THREAD) => take(RELEASED_NO_THREAD, HELD_NO_THREAD).is_ok(),
            taken => matches!(taken, Ok(_) | Err(HELD | HELD_NO_THREAD)),
        }
    }

    /// Reclaims ownership, and asks a progress thread that is inside to leave soon. The thread may
    /// still be inside, even preempted by the kernel. A caller that gets `false` continues with
    /// real locks, and calls this again now and then.
    pub fn reclaim(&self) -> bool {
        if self.try_reclaim() {
            return true;
        }
        // Before the look: a progress thread that comes in later sees it. SYNC(hands-recall).
        self.is_recalled.store(true, Ordering::SeqCst);
        self.try_reclaim()
    }

    /// The progress thread comes in; `None`: it is kept.
    pub fn enter(&self) -> Option<ProgressThreadGuard<'_>> {
        // Acquire: SYNC(hands-gate).
        self.state
            .compare_exchange(RELEASED, ENTERED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| ProgressThreadGuard(self))
    }
}

impl ProgressThreadGuard<'_> {
    /// Somebody of the rank is at work itself: leave soon. SYNC(hands-recall).
    #[inline]
    pub fn is_recalled(&self) -> bool {
        self.0.is_recalled.load(Ordering::SeqCst)
    }

    /// The progress thread goes for good although ownership is released, since nothing is open,
    /// unless `needed` says that something is by now: who leaves something open and lends
    /// afterwards sees that nobody is there, or is seen by `needed`. `false`: it stays.
    pub fn abandon(self, needed: impl FnOnce() -> bool) -> bool {
        let owner = self.0;
        std::mem::forget(self);
        // Release: SYNC(hands-gate). Before the look: SYNC(hands-abandoned).
        owner.state.swap(RELEASED_NO_THREAD, Ordering::SeqCst);
        total_order();
        let stays = needed();
        if stays {
            // Whoever lent meanwhile may have said that already.
            owner.note_progress_thread();
        }
        !stays
    }
}

impl Drop for ProgressThreadGuard<'_> {
    fn drop(&mut self) {
        // Release: SYNC(hands-gate).
        self.0.state.store(RELEASED, Ordering::Release);
    }
}

/// Number of releases of ownership, for a progress thread that looks by itself: it acts on what
/// stays lent from one look to the next, and rests while nothing is.
#[derive(Debug)]
pub struct ReleaseCounter {
    times: AtomicU32,
    resting: AtomicBool,
}

impl ReleaseCounter {
    /// None so far, and the progress thread looks.
    #[allow(
        clippy::new_without_default,
        reason = "loom's atomics are made at run time"
    )]
    pub fn new() -> Self {
        Self {
            times: AtomicU32::new(0),
            resting: AtomicBool::new(false),
        }
    }

    /// Ownership is released. `true`: the progress thread rests, and the caller is the one who must
    /// wake it.
    #[inline]
    pub fn count(&self) -> bool {
        self.times.fetch_add(1, Ordering::Relaxed);
        // The count before the look: SYNC(hands-rest).
        fence(Ordering::SeqCst);
        self.is_resting() && self.resting.swap(false, Ordering::Relaxed)
    }

    /// Returns how often so far.
    pub fn times(&self) -> u32 {
        self.times.load(Ordering::Relaxed)
    }

    /// Returns whether the progress thread has to be woken.
    #[inline]
    pub fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// The progress thread looks again, for whatever reason.
    pub fn resume_polling(&self) {
        self.resting.store(false, Ordering::Relaxed);
    }

    /// The progress thread is about to rest. `false`: ownership was released since there were
    /// `seen` releases.
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

/// For what a progress thread is to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeupScope {
    /// For transfers that stand still without it.
    Transfers,
    /// For everything that came: steps of a collective wait for it.
    Everything,
}

/// The words by which peers call a rank's progress thread.
#[derive(Clone, Copy, Debug)]
pub struct ProgressWakeup<'a> {
    bell: Doorbell<'a>,
    word: &'a AtomicU32,
    /// Not zero: it wants to be called for everything.
    all: &'a AtomicU32,
}

impl<'a> ProgressWakeup<'a> {
    /// The words of a rank, wherever they lie.
    pub fn new(word: &'a AtomicU32, all: &'a AtomicU32) -> Self {
        Self {
            bell: Doorbell::new(word),
            word,
            all,
        }
    }

    /// The word that the progress thread sleeps on. It changes with each call, and when it is
    /// armed.
    pub fn word(self) -> &'a AtomicU32 {
        self.word
    }

    /// From now on peers call. Look once more for what came before, and, where others arm too,
    /// whether what is open is still what this armed for.
    pub fn arm(self, what: WakeupScope) {
        // A swap: who takes back what another armed for sees what that one had left open.
        // SYNC(hands-open).
        self.all
            .swap(u32::from(what == WakeupScope::Everything), Ordering::AcqRel);
        // Orders both words before the caller's look, against the fence in `claim`.
        // SYNC(hands-call).
        self.bell.arm();
    }

    /// Returns whether it is armed.
    #[inline]
    pub fn is_armed(self) -> bool {
        self.bell.is_armed()
    }

    /// From now on peers do not call.
    pub fn disarm(self) {
        // A call that comes first wakes the progress thread for nothing.
        self.bell.claim_ring();
        // Before a look at whether somebody armed it meanwhile for a reason that this caller had
        // not seen. SYNC(hands-recall).
        fence(Ordering::SeqCst);
    }

    /// After something was published for the rank: `true` if the caller is the one who must wake
    /// its progress thread. No system call.
    #[inline]
    pub fn claim(self, what: WakeupScope) -> bool {
        // The publication before the look: SYNC(hands-call).
        fence(Ordering::SeqCst);
        self.claim_fenced(what)
    }

    /// Claims the wake-up where a fence lies between the publication and this call.
    #[inline]
    fn claim_fenced(self, what: WakeupScope) -> bool {
        self.bell.is_armed()
            && (what == WakeupScope::Transfers || self.all.load(Ordering::Relaxed) != 0)
            && self.bell.claim_ring()
    }

    /// After something was published for the rank: wakes its progress thread if it wants to be
    /// called for that.
    #[inline]
    pub fn ring(self, what: WakeupScope) {
        if self.claim(what) {
            crate::deferred_wake::wake_all(self.word);
        }
    }

    /// After something was published for several ranks: calls the progress threads of those that
    /// want to be called for that, each by its words.
    pub fn wake_all<'b>(calls: impl Iterator<Item = ProgressWakeup<'b>>, what: WakeupScope) {
        // Before all looks: SYNC(hands-call).
        fence(Ordering::SeqCst);
        for call in calls.filter(|call| call.claim_fenced(what)) {
            crate::deferred_wake::wake_all(call.word);
        }
    }

    /// Wakes the progress thread whatever it waits for.
    pub fn wake_always(self) {
        // An even number: armed stays armed.
        self.word.fetch_add(2, Ordering::SeqCst);
        crate::futex::wake(self.word, u32::MAX);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_reclaimed_lets_nobody_in_and_one_whose_progress_thread_is_inside_is_not_taken()
     {
        let owner = ProgressOwner::new();
        assert!(owner.enter().is_none() && owner.is_held_by_program());
        owner.release();
        let inside = owner.enter().unwrap();
        assert!(!inside.is_recalled() && !owner.reclaim() && inside.is_recalled());
        drop(inside);
        assert!(owner.reclaim() && owner.is_held_by_program());
        owner.release();
        let inside = owner.enter().unwrap();
        assert!(!inside.is_recalled() && !owner.reclaim() && inside.is_recalled());
        owner.release();
        assert!(!inside.is_recalled() && owner.is_released(), "it may stay");
        assert!(!owner.reclaim() && !owner.is_released());
    }

    #[test]
    fn a_progress_thread_retires_only_while_the_engine_is_reclaimed_and_nothing_is_released_until_there_is_another()
     {
        let owner = ProgressOwner::new();
        assert!(owner.release() && !owner.retire());
        assert!(owner.reclaim() && owner.retire() && !owner.retire());
        assert!(owner.is_held_by_program() && owner.is_deserted() && owner.reclaim());
        assert!(!owner.release() && owner.is_held_by_program() && owner.enter().is_none());
        owner.note_progress_thread();
        assert!(owner.release() && owner.release() && owner.enter().is_some());
    }

    #[test]
    fn a_progress_thread_abandons_what_is_released_only_while_nothing_is_needed_and_there_can_be_another()
     {
        let owner = ProgressOwner::new();
        assert!(owner.release());
        assert!(!owner.enter().unwrap().abandon(|| true) && !owner.is_deserted());
        assert!(owner.enter().unwrap().abandon(|| false));
        assert!(
            owner.is_deserted()
                && !owner.is_held_by_program()
                && owner.enter().is_none()
                && !owner.release()
        );
        owner.note_progress_thread();
        assert!(owner.is_released() && owner.release() && owner.enter().unwrap().abandon(|| false));
        assert!(
            owner.reclaim()
                && owner.is_held_by_program()
                && owner.is_deserted()
                && !owner.release()
        );
        owner.note_progress_thread();
        assert!(owner.is_held_by_program() && !owner.is_deserted() && owner.release());
    }

    #[test]
    fn a_call_for_answers_is_not_bothered_with_other_events() {
        let words = (AtomicU32::new(0), AtomicU32::new(0));
        let call = ProgressWakeup::new(&words.0, &words.1);
        assert!(!call.claim(WakeupScope::Transfers));
        call.arm(WakeupScope::Transfers);
        assert!(
            !call.claim(WakeupScope::Everything)
                && call.claim(WakeupScope::Transfers)
                && !call.is_armed()
        );
        call.arm(WakeupScope::Everything);
        assert!(call.claim(WakeupScope::Everything));
        call.arm(WakeupScope::Everything);
        call.disarm();
        assert!(!call.claim(WakeupScope::Transfers));
    }
}
