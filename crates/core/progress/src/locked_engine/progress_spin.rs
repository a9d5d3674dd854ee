//! A progress thread that stays awake for a while: after it has worked, and while its rank releases
//! ownership again and again, it spins on the ownership word instead of sleeping.
//!
//! Part of `locked_engine`. A wake-up takes longer than most messages do (5 to 50 µs in a virtual
//! machine). So where whole cores are idle ([`Environment::progress_spin_time`]) a recently needed
//! progress thread spins. Whoever releases ownership sees that ([`ProgressSpin`]), and neither
//! wakes it nor has peers wake it. The thread finds what came by itself. While the program holds
//! ownership, the thread reads only words that the program writes when it releases, and nothing of
//! the engine.
//!
//! The thread sleeps when nothing was released and nothing moved for the spin time. It sleeps at
//! once, for longer each time, when others wanted its core, for nobody knows all threads of the
//! program. The program wakes a sleeping progress thread only when it has released several times in
//! a row, each soon after the one before. It does so ever more rarely where that does not pay.

use super::progress::LockPolicy;
use super::progress_wakeup::WakeupWords;
use super::{LockedEngine, ProgressCaller};
use crate::environment::Environment;
use crate::limits::{
    PROGRESS_SPIN_GUESS, PROGRESS_SPIN_PAUSE, PROGRESS_SPIN_PAUSE_MAX, PROGRESS_SPIN_POLLS,
    PROGRESS_WAKE_AFTER, PROGRESS_WAKE_AFTER_MAX,
};
use crate::sys;
use garonne_engine::transport::Transport;
use garonne_sync::pad::CachePadded;
use garonne_sync::progress_owner::{ProgressSpin, ProgressThreadGuard, ProgressWakeup};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Nobody has asked yet.
const UNKNOWN: u64 = u64::MAX;

/// State of spins that the progress thread and the releasing thread share. Times are in nanoseconds
/// since the host was made. All but the [`ProgressSpin`] itself are hints: a stale one costs a
/// needless or missed call. What the one writes often has lines of its own, since the other looks
/// at it all the time.
#[derive(Debug)]
pub(super) struct SpinControl {
    pub(super) flag: ProgressSpin,
    /// Time that one lasts; 0: there are none here.
    length: AtomicU64,
    /// None before this, since others wanted the progress thread's core.
    not_before: AtomicU64,
    /// When ownership was last released.
    released_at: CachePadded<AtomicU64>,
    worker: CachePadded<WorkerSide>,
    program: CachePadded<ProgramSide>,
}

/// State that only the progress thread touches.
#[derive(Debug, Default)]
struct WorkerSide {
    /// Until when it looks on, as far as it knows.
    until: AtomicU64,
    /// What its word was at the end of the last one, as if armed: unchanged, nobody has called it
    /// since.
    word_then: AtomicU32,
    /// Time that it did without the last time that others wanted its core.
    pause: AtomicU64,
    /// Number of times that it had been put aside when that was last asked.
    put_aside: AtomicI64,
}

impl WorkerSide {
    /// A few looks took long: whether others got the core since this was last asked. What the
    /// kernel itself does there, or the machine below, is nobody who wants it.
    fn was_put_aside(&self) -> bool {
        let times = sys::times_put_aside();
        self.put_aside.swap(times, Ordering::Relaxed) != times
    }
}

/// State that only the program's thread touches.
#[derive(Debug)]
struct ProgramSide {
    /// When it last left something open, lent for or not.
    left_at: AtomicU64,
    /// The last two such moments were less than a spin time apart.
    often: AtomicBool,
    /// Releases in a row that found the progress thread asleep, each soon after the one before, and
    /// how many there are to be before it is called.
    asleep: AtomicU32,
    calls_after: AtomicU32,
    /// Releases since it was called that found it awake.
    served: AtomicU32,
}

impl SpinControl {
    pub(super) fn new() -> Self {
        Self {
            flag: ProgressSpin::new(),
            length: AtomicU64::new(UNKNOWN),
            not_before: AtomicU64::new(0),
            released_at: CachePadded::default(),
            worker: CachePadded::default(),
            program: CachePadded(ProgramSide {
                left_at: AtomicU64::new(0),
                often: AtomicBool::new(false),
                asleep: AtomicU32::new(0),
                calls_after: AtomicU32::new(PROGRESS_WAKE_AFTER),
                served: AtomicU32::new(0),
            }),
        }
    }

    fn length(&self) -> Option<u64> {
        let length = self.length.load(Ordering::Relaxed);
        (length != UNKNOWN && length != 0).then_some(length)
    }

    /// Something is left open now. For the program's thread. That alone keeps no progress thread
    /// awake: the program may wait at once.
    pub(super) fn note_open(&self, now: Duration) {
        let now = now.as_nanos() as u64;
        let ProgramSide { left_at, often, .. } = &*self.program;
        let gap = now.saturating_sub(left_at.load(Ordering::Relaxed));
        let length = match self.length.load(Ordering::Relaxed) {
            UNKNOWN => PROGRESS_SPIN_GUESS.as_nanos() as u64,
            length => length,
        };
        left_at.store(now, Ordering::Relaxed);
        often.store(gap < length, Ordering::Relaxed);
    }

    /// Ownership is about to be released.
    pub(super) fn note_release(&self, now: Duration) {
        self.released_at
            .store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    fn released_at(&self) -> u64 {
        self.released_at.load(Ordering::Relaxed)
    }

    /// Returns whether a progress thread is awake, or would be if it were lent to.
    #[inline]
    pub(super) fn is_worker_near(&self) -> bool {
        self.flag.is_spinning() || self.program.often.load(Ordering::Relaxed)
    }

    /// Ownership is released. Whether the progress thread sees that itself.
    pub(super) fn see(&self) -> bool {
        let sees = self.flag.will_see_release();
        if sees {
            let ProgramSide { asleep, served, .. } = &*self.program;
            asleep.store(0, Ordering::Relaxed);
            served.store(
                served.load(Ordering::Relaxed).wrapping_add(1),
                Ordering::Relaxed,
            );
        }
        sees
    }

    /// Ownership was released that the progress thread does not see: whether it is to be called, so
    /// that it is awake the next times.
    pub(super) fn should_wake_worker(&self) -> bool {
        let ProgramSide { asleep, often, .. } = &*self.program;
        if !often.load(Ordering::Relaxed) {
            asleep.store(0, Ordering::Relaxed);
            return false;
        }
        let after = self.program.calls_after.load(Ordering::Relaxed);
        let times = asleep.load(Ordering::Relaxed) + 1;
        asleep.store(times, Ordering::Relaxed);
        times >= after && self.may_wake_worker()
    }

    /// The progress thread is to be called, unless others wanted its core lately. What a call costs
    /// is to be little beside what comes of it: it is left out for longer each time that too little
    /// did.
    fn may_wake_worker(&self) -> bool {
        if self.released_at() < self.not_before.load(Ordering::Relaxed) {
            return false;
        }
        let ProgramSide {
            asleep,
            calls_after,
            served,
            ..
        } = &*self.program;
        asleep.store(0, Ordering::Relaxed);
        let after = calls_after.load(Ordering::Relaxed);
        let paid = served.swap(0, Ordering::Relaxed) >= after;
        let after = if paid {
            PROGRESS_WAKE_AFTER
        } else {
            (2 * after).min(PROGRESS_WAKE_AFTER_MAX)
        };
        calls_after.store(after, Ordering::Relaxed);
        true
    }

    /// The time of the progress thread, whose word this is, is up.
    fn end(&self, word: Option<&AtomicU32>) {
        if let Some(word) = word {
            self.worker
                .word_then
                .store(as_armed(word), Ordering::Relaxed);
        }
        self.flag.end();
    }

    /// Others wanted the progress thread's core.
    fn note_preemption(&self, now: u64) {
        let least = PROGRESS_SPIN_PAUSE.as_nanos() as u64;
        let pause = (2 * self.worker.pause.load(Ordering::Relaxed))
            .clamp(least, PROGRESS_SPIN_PAUSE_MAX.as_nanos() as u64);
        self.worker.pause.store(pause, Ordering::Relaxed);
        self.not_before.store(now + pause, Ordering::Relaxed);
    }
}

/// The word, whether it is armed or not: that is the progress thread's own doing.
fn as_armed(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed) | 1
}

/// Looks in a row that bring nothing, of which some ask for the time.
struct IdlePolls {
    idle: u32,
    last: u64,
}

/// Verdict on the time of a spin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpinTime {
    GoesOn,
    IsUp,
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    fn spin_clock(&self) -> u64 {
        self.async_progress.now().as_nanos() as u64
    }

    /// A turn of the progress thread begins: it stays awake from now on, if it was called, or hands
    /// were lent lately.
    pub(super) fn begin_spin(&self, words: Option<&WakeupWords>) {
        let vigils = &self.async_progress.spin;
        if vigils.length.load(Ordering::Relaxed) == UNKNOWN {
            let length = self.surroundings.progress_spin_time().as_nanos() as u64;
            vigils.length.store(length, Ordering::Relaxed);
        }
        let Some(length) = vigils.length() else {
            return;
        };
        let now = self.spin_clock();
        // Else it only looks once more before it sleeps.
        let called = words.is_some_and(|words| {
            as_armed(words.call().word()) != vigils.worker.word_then.load(Ordering::Relaxed)
        });
        let lent = vigils.released_at() + length;
        let until = if called { now + length } else { lent };
        let free = now >= vigils.not_before.load(Ordering::Relaxed);
        if now < until
            && free
            && sys::cpu() != self.async_progress.program_cpu.load(Ordering::Relaxed)
        {
            vigils.worker.until.store(until, Ordering::Relaxed);
            vigils.flag.begin();
        } else {
            vigils.flag.end();
        }
    }

    fn looks(&self) -> IdlePolls {
        IdlePolls {
            idle: 0,
            last: self.spin_clock(),
        }
    }

    /// A look brought nothing.
    fn looked(&self, looks: &mut IdlePolls) -> SpinTime {
        looks.idle = looks.idle.wrapping_add(1);
        std::hint::spin_loop();
        if !looks.idle.is_multiple_of(PROGRESS_SPIN_POLLS) {
            return SpinTime::GoesOn;
        }
        let vigils = &self.async_progress.spin;
        let (now, length) = (self.spin_clock(), vigils.length().unwrap_or(0));
        let gap = now.saturating_sub(std::mem::replace(&mut looks.last, now));
        if gap > self.surroundings.preemption_threshold().as_nanos() as u64
            && vigils.worker.was_put_aside()
        {
            vigils.note_preemption(now);
            return SpinTime::IsUp;
        }
        let lent = vigils.released_at() + length;
        if now < vigils.worker.until.load(Ordering::Relaxed).max(lent) {
            return SpinTime::GoesOn;
        }
        vigils.worker.pause.store(0, Ordering::Relaxed);
        SpinTime::IsUp
    }

    /// The progress thread, which has seen its word as `seen` before its turn, is about to sleep.
    /// `true`: there is another turn to take.
    pub(super) fn spin_before_sleep(&self, call: ProgressWakeup<'_>, seen: u32) -> bool {
        let lending = &self.async_progress;
        if !lending.spin.flag.is_spinning() {
            return false;
        }
        let mut looks = self.looks();
        loop {
            if call.word().load(Ordering::Relaxed) != seen || self.has_turn_to_take() {
                return true;
            }
            if self.looked(&mut looks) == SpinTime::IsUp {
                break;
            }
        }
        lending.spin.end(Some(call.word()));
        // Also what was over when somebody last looked: one turn too many.
        lending.ownership.owner.is_released()
    }

    /// Returns whether a turn has something to do. While another thread of the rank polls, the gate
    /// stays lent, but the work is that one's: it lends again when it leaves.
    fn has_turn_to_take(&self) -> bool {
        self.async_progress.ownership.owner.is_released()
            && !self.async_progress.is_nothing_left()
            && !self.waiters.has_leader()
    }

    /// Works as `progress_until_idle` does, for a progress thread that spins: until a thread of the
    /// program is there, nothing is open, or the spin time is up. A fork of the program ends the
    /// spin, too, since it waits for the end of the turn.
    pub(super) fn progress_spinning(&self, inside: &ProgressThreadGuard<'_>) -> u32 {
        let vigils = &self.async_progress.spin;
        let (mut moved, mut looks) = (0u32, self.looks());
        while !self.is_program_present(inside) {
            if sys::is_fork_held_up() {
                self.end_spin();
                break;
            }
            if self.advance(ProgressCaller::Helper, LockPolicy::Wait)
                || self.poll_other_shards(ProgressCaller::Helper)
            {
                moved = moved.saturating_add(1);
                looks = self.looks();
                let until = looks.last + vigils.length().unwrap_or(0);
                vigils.worker.until.store(until, Ordering::Relaxed);
                continue;
            }
            if looks.idle == 0 && self.open_scope().is_none() {
                break;
            }
            if self.looked(&mut looks) == SpinTime::IsUp {
                self.end_spin();
                break;
            }
        }
        moved
    }

    fn end_spin(&self) {
        let words = self.async_progress.wakeup_words.get();
        self.async_progress
            .spin
            .end(words.map(|words| words.call().word()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something is left open at this microsecond, and ownership is released for it: whether a
    /// progress thread that sleeps is called.
    fn calls(vigils: &SpinControl, micros: u64) -> bool {
        let now = Duration::from_micros(micros);
        vigils.note_open(now);
        vigils.note_release(now);
        !vigils.see() && vigils.should_wake_worker()
    }

    #[test]
    fn a_progress_thread_that_sleeps_is_called_when_the_engine_was_released_soon_after_each_other_only()
     {
        let vigils = SpinControl::new();
        let apart = PROGRESS_SPIN_GUESS.as_micros() as u64;
        assert!((1..100).all(|turn| !calls(&vigils, turn * apart)));
        let called = (1..).find(|turn| calls(&vigils, 100 * apart + turn));
        // The first of them is long after the one before.
        assert_eq!(called, Some(u64::from(PROGRESS_WAKE_AFTER) + 1));
    }

    #[test]
    fn it_is_called_ever_more_rarely_where_it_sleeps_again_at_once_and_as_before_where_that_paid() {
        let vigils = SpinControl::new();
        let mut now = 0;
        let mut next = || {
            let from = now;
            loop {
                now += 1;
                if calls(&vigils, now) {
                    return now - from;
                }
            }
        };
        next();
        let gaps: Vec<_> = (0..5).map(|_| next()).collect();
        assert!(gaps.is_sorted() && gaps[1] > u64::from(PROGRESS_WAKE_AFTER));
        assert_eq!(gaps[4], u64::from(PROGRESS_WAKE_AFTER_MAX));
        vigils.flag.begin();
        assert!((0..PROGRESS_WAKE_AFTER_MAX).all(|_| vigils.see()));
        vigils.flag.end();
        next();
        assert_eq!(next(), u64::from(PROGRESS_WAKE_AFTER));
    }

    #[test]
    fn a_progress_thread_whose_core_others_wanted_is_left_alone_for_longer_each_time() {
        let vigils = SpinControl::new();
        let mut now = 1_000;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            vigils.note_preemption(1_000 * now);
            let from = now;
            while !calls(&vigils, now) {
                now += 10;
            }
            pauses.push(now - from);
        }
        assert!(pauses.is_sorted());
        assert!(pauses[0] >= PROGRESS_SPIN_PAUSE.as_micros() as u64);
        assert!(pauses[11] >= PROGRESS_SPIN_PAUSE_MAX.as_micros() as u64);
    }
}
