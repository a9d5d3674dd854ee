//! Taking the engine's lock and giving it back.
//!
//! Part of `locked_engine`. Where one thread promised to be alone, this costs a load and a store.
//! Where several threads share the engine, a holder does little before it unlocks. It wakes nobody
//! while it holds the lock, because a woken thread may get the waker's core. Threads take turns of
//! several operations, because moving the engine's cache lines to another core costs more than an
//! operation. So a thread that finds the lock taken stays away for longer than that, and lets its
//! holder go on.

use crate::limits::{DOUBLINGS_BEFORE_TURN, TURN, TURNS_MAX, YIELD_LOCK_SPINS};
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_sync::deferred_wake::DeferredWakes;
use garonne_sync::try_lock::{LockHold, SingleThreaded, TryLock, TryLockGuard};
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// The engine in a thread's hands.
pub(super) struct EngineGuard<'a, R> {
    // In this order: first it is free, then others wake.
    shard: TryLockGuard<'a, Engine<R>>,
    wakes: Option<DeferredWakes>,
    /// No other thread can want it.
    alone: bool,
}

impl<R> EngineGuard<'_, R> {
    /// Tells whether no other thread can want the engine.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Defers wake-ups of this thread until the engine is free again.
    pub(super) fn defer_wakes(&mut self) {
        self.wakes.get_or_insert_with(DeferredWakes::new);
    }
}

impl<R> Deref for EngineGuard<'_, R> {
    type Target = Engine<R>;
    #[inline]
    fn deref(&self) -> &Engine<R> {
        &self.shard
    }
}

impl<R> DerefMut for EngineGuard<'_, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine<R> {
        &mut self.shard
    }
}

/// Way in which somebody waits for an engine that others have.
#[derive(Debug, Default)]
pub(super) struct LockBackoff {
    tries: u32,
    acquisitions: u32,
    /// Somebody had it who wanted something done.
    contended: bool,
}

impl LockBackoff {
    /// Before the next try. At first twice as long each time; for a turn, and then for several,
    /// where others do one thing after the other with it. Then a core is given away each time,
    /// since the holder may be on this very one.
    pub(super) fn pass<T>(&mut self, lock: &TryLock<T>) {
        let hold = lock.hold();
        self.contended |= hold == LockHold::Work;
        let at_once = hold == LockHold::Work && lock.is_contended();
        let spins = if self.tries < DOUBLINGS_BEFORE_TURN && !at_once {
            self.tries += 1;
            1 << (self.tries - 1)
        } else {
            let turns = self.acquisitions;
            self.acquisitions = turns.saturating_add(1);
            if turns > 0 {
                std::thread::yield_now();
            }
            spins_of_turn() << turns.min(TURNS_MAX)
        };
        (0..spins).for_each(|_| std::hint::spin_loop());
    }

    /// Returns whether to say that it is contended: it was waited for.
    fn is_contended(&self) -> bool {
        self.contended
    }
}

/// Returns how often to spin in a [`TURN`]: an idle spin takes some ten nanoseconds on some
/// processors and fifty on others.
fn spins_of_turn() -> u32 {
    const SPINS: u32 = 64;
    static MEASURED: OnceLock<u32> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let measure = |_| {
            let begun = Instant::now();
            (0..SPINS).for_each(|_| std::hint::spin_loop());
            begun.elapsed()
        };
        // The least: whatever interrupts makes it longer.
        let least = (0..4)
            .map(measure)
            .min()
            .unwrap_or_default()
            .as_nanos()
            .max(1);
        let spins = u128::from(SPINS) * TURN.as_nanos() / least;
        u32::try_from(spins)
            .unwrap_or(SPINS)
            .clamp(SPINS / 4, SPINS * 64)
    })
}

/// An engine behind its lock. The locked engine owns it. Methods that may fail to take the lock at
/// once get `may_lose_core`, which tells whether a thread that is woken may get the core of the one
/// that wakes it; wake-ups are deferred then while the lock is held.
pub(super) struct EngineLock<R> {
    engine: TryLock<Engine<R>>,
    /// Threads that found the lock taken and need it.
    waiting: AtomicU32,
    /// More than one thread may be in MPI at once.
    shared: AtomicBool,
}

impl<R: Transport> EngineLock<R> {
    /// Several threads may use `engine`, through a real lock.
    pub(super) fn new(engine: Engine<R>) -> Self {
        Self {
            engine: TryLock::new(engine),
            waiting: AtomicU32::new(0),
            shared: AtomicBool::new(true),
        }
    }

    /// Makes the lock cost nothing: one thread at a time takes it.
    pub(super) fn elide(&self, promise: SingleThreaded) {
        self.engine.elide(promise);
    }

    /// Makes the lock a real one, for a progress thread or for several threads.
    pub(super) fn share(&self) {
        self.engine.share();
    }

    /// Several threads may be in MPI from now on; or (`false`) one at a time.
    pub(super) fn set_shared(&self, shared: bool) {
        self.shared.store(shared, Ordering::SeqCst);
    }

    /// Tells whether more than one thread may be in MPI at once.
    #[inline(always)]
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Takes the engine if it is free and the lock is elided.
    #[inline(always)]
    pub(super) fn try_lock_unshared(&self) -> Option<TryLockGuard<'_, Engine<R>>> {
        self.engine.try_lock_unshared()
    }

    /// Returns how often several threads took the engine (modulo 2^32). For hints only.
    #[inline]
    pub(super) fn acquisitions(&self) -> u32 {
        self.engine.acquisitions()
    }

    /// Takes the engine if it is free.
    #[inline]
    pub(super) fn try_lock(
        &self,
        may_lose_core: impl FnOnce() -> bool,
    ) -> Option<EngineGuard<'_, R>> {
        self.try_lock_for(LockHold::Work, may_lose_core)
    }

    /// Takes the engine if it is free, for a thread that polls again and again. It reads the lock
    /// first, since a try takes the lock's line from its holder.
    #[inline]
    pub(super) fn try_lock_to_poll(
        &self,
        may_lose_core: impl FnOnce() -> bool,
    ) -> Option<EngineGuard<'_, R>> {
        if self.engine.is_held() {
            return None;
        }
        self.try_lock_for(LockHold::Poll, may_lose_core)
    }

    #[inline]
    fn try_lock_for(
        &self,
        hold: LockHold,
        may_lose_core: impl FnOnce() -> bool,
    ) -> Option<EngineGuard<'_, R>> {
        match self.engine.try_lock_unshared() {
            Some(shard) => Some(EngineGuard {
                shard,
                wakes: None,
                alone: true,
            }),
            None => {
                let wakes = may_lose_core().then(DeferredWakes::new);
                let shard = self.engine.try_lock_for(hold)?;
                Some(EngineGuard {
                    shard,
                    wakes,
                    alone: false,
                })
            }
        }
    }

    /// Takes the engine. Waits for a holder, which never blocks.
    #[inline]
    pub(super) fn lock(&self, may_lose_core: impl Fn() -> bool) -> EngineGuard<'_, R> {
        // Before a try, which takes the lock's line from its holder.
        let free = if self.engine.is_held() {
            None
        } else {
            self.try_lock(&may_lose_core)
        };
        free.unwrap_or_else(|| self.lock_busy(may_lose_core))
    }

    #[cold]
    #[inline(never)]
    fn lock_busy(&self, may_lose_core: impl Fn() -> bool) -> EngineGuard<'_, R> {
        let mut waiting = LockBackoff::default();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let shard = loop {
            waiting.pass(&self.engine);
            if !self.engine.is_held()
                && let Some(shard) = self.try_lock(&may_lose_core)
            {
                break shard;
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if waiting.is_contended() {
            shard.shard.note_contended();
        }
        shard
    }

    /// Leaves the engine for a moment to those who need it: for who only looks for news. A hint,
    /// and bounded: they may not be running.
    pub(super) fn yield_to_waiting(&self) {
        for _ in 0..YIELD_LOCK_SPINS {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_it_contended_leaves_its_holder_a_turn_and_others_come_back_soon() {
        let lock = TryLock::new(());
        let turns_in = |passes: u32| {
            let mut waiting = LockBackoff::default();
            (0..passes).for_each(|_| waiting.pass(&lock));
            (waiting.acquisitions, waiting.is_contended())
        };
        let held = lock.try_lock();
        assert_eq!(turns_in(DOUBLINGS_BEFORE_TURN), (0, true));
        assert_eq!(turns_in(DOUBLINGS_BEFORE_TURN + 2), (2, true));
        held.inspect(TryLockGuard::note_contended);
        let held = lock.try_lock();
        assert_eq!(turns_in(1), (1, true), "a turn at once");
        drop(held);
        let looks = lock.try_lock_for(LockHold::Poll);
        assert_eq!(
            turns_in(DOUBLINGS_BEFORE_TURN),
            (0, false),
            "who looks has done soon"
        );
        drop(looks);
    }

    #[test]
    fn a_turn_is_as_long_on_every_processor() {
        let begun = Instant::now();
        (0..spins_of_turn()).for_each(|_| std::hint::spin_loop());
        assert!(
            begun.elapsed() > TURN / 8,
            "the clock may be coarse, and the machine busy while it is measured"
        );
    }
}
