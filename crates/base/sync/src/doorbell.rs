//! The doorbell: one word through which a sleeping rank is woken by whoever left it work.
//!
//! The sleeper arms the bell, polls once more, then sleeps. A writer publishes its work, then
//! checks whether the bell is armed. That check is a plain load of a line that stays in the
//! writer's cache while nobody sleeps. There is no fence, so the load may run ahead of the
//! publishing store, and a wake-up can be missed when both race. The sleeper pays for that instead:
//! its first nap is short, and before a long sleep it runs a memory barrier on all processes and
//! polls again (see [`Doorbell::sleep`]). `FORMAT` of the word: bit 0 armed, the rest counts rings.

use crate::facade::{AtomicU32, Ordering, fence};

/// Bit of the word that says that somebody sleeps or is about to.
const ARMED: u32 = 1;

/// The operations on a doorbell's word, wherever it lives.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell<'a>(&'a AtomicU32);

/// Value of the word when the sleeper armed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmTicket(u32);

impl ArmTicket {
    /// The word's value, to hand across an interface that speaks of plain words.
    pub fn ticket(self) -> u32 {
        self.0
    }

    /// The other way round.
    pub fn from_ticket(ticket: u32) -> Self {
        Self(ticket)
    }
}

impl<'a> Doorbell<'a> {
    /// The doorbell at `word`.
    #[inline(always)]
    pub fn new(word: &'a AtomicU32) -> Self {
        Self(word)
    }

    /// Announces that the caller is about to sleep. Poll once more afterwards, then `sleep` or
    /// `disarm`.
    pub fn arm(self) -> ArmTicket {
        let word = self.0.fetch_or(ARMED, Ordering::SeqCst) | ARMED;
        // Orders the arming before the last poll. Pairs with `fence` in `ring_fenced`, and for
        // writers without a fence with the barrier in `sleep`: SYNC(doorbell).
        fence(Ordering::SeqCst);
        ArmTicket(word)
    }

    /// Takes the announcement back.
    pub fn disarm(self, armed: ArmTicket) {
        // A failure means that somebody rang: the word has moved on and is no longer armed.
        let _ = self.0.compare_exchange(
            armed.0,
            armed.0.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Returns whether somebody rang since `arm`.
    #[inline]
    pub fn rang(self, armed: ArmTicket) -> bool {
        self.0.load(Ordering::Acquire) != armed.0
    }

    /// Returns whether the bell is armed now. The whole price of a message to a rank that is awake.
    #[inline(always)]
    pub fn is_armed(self) -> bool {
        self.0.load(Ordering::Relaxed) & ARMED != 0
    }

    /// Disarms an armed bell; `true` if the caller is the one who must wake the sleeper. No system
    /// call.
    #[inline]
    pub fn claim_ring(self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        // Release: what the ringer published is seen by the sleeper, which reads the word with
        // Acquire: SYNC(doorbell).
        word & ARMED != 0
            && self
                .0
                .compare_exchange(
                    word,
                    word.wrapping_add(1),
                    Ordering::Release,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Wakes the sleeper if there is one. Call after publishing. See the module's head for why no
    /// fence is needed.
    #[inline(always)]
    pub fn ring(self) {
        if self.is_armed() {
            self.ring_cold();
        }
    }

    /// Rings after a fence: for rare events (the death of a peer, the end of a wait for room) whose
    /// publisher may never come back, and for kernels without the barrier.
    pub fn ring_fenced(self) {
        fence(Ordering::SeqCst);
        self.ring();
    }

    #[cold]
    #[inline(never)]
    fn ring_cold(self) {
        if self.claim_ring() {
            crate::deferred_wake::wake_all(self.0);
        }
    }
}

#[cfg(not(loom))]
mod sleeping {
    use super::{ArmTicket, Doorbell};
    use crate::futex;
    use std::time::Duration;

    /// The first nap of a sleeper: longer than any store waits in a core's buffer, and short enough
    /// that a wake-up missed in that window costs little beside the sleep that was coming anyway.
    const FIRST_NAP: Duration = Duration::from_micros(500);

    /// Stage of a sleep; one value per sleep, made anew after each [`Doorbell::arm`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SleepStage {
        /// Just armed.
        #[default]
        Nap,
        /// Napped; a barrier has run everywhere; the caller polled again.
        Deep,
        /// There is no such barrier here.
        Shallow,
    }

    impl Doorbell<'_> {
        /// Sleeps until rung or until `timeout`. Returns the next stage: the caller polls again
        /// before it sleeps on with that stage, because of the race described at the module's head.
        pub fn sleep(
            self,
            armed: ArmTicket,
            stage: SleepStage,
            timeout: Option<Duration>,
        ) -> SleepStage {
            self.sleep_among(armed, stage, timeout, &[])
        }

        /// Sleeps as [`Doorbell::sleep`] does, on further words too. Each word comes with the value
        /// at which it lets sleep.
        pub fn sleep_among(
            self,
            armed: ArmTicket,
            stage: SleepStage,
            timeout: Option<Duration>,
            others: &[(&std::sync::atomic::AtomicU32, u32)],
        ) -> SleepStage {
            let nap = match stage {
                SleepStage::Nap => Some(FIRST_NAP),
                SleepStage::Shallow => Some(futex::FALLBACK_NAP),
                SleepStage::Deep => None,
            };
            let limit = match (nap, timeout) {
                (Some(nap), Some(timeout)) => Some(nap.min(timeout)),
                (nap, timeout) => nap.or(timeout),
            };
            if others.is_empty() {
                futex::wait(self.0, armed.0, limit);
            } else {
                let own = std::iter::once((self.0, armed.0));
                let words: Vec<_> = own.chain(others.iter().copied()).collect();
                futex::wait_any(&words, limit);
            }
            if self.rang(armed) || stage != SleepStage::Nap {
                return stage;
            }
            if futex::barrier_everywhere() {
                SleepStage::Deep
            } else {
                SleepStage::Shallow
            }
        }
    }
}

#[cfg(not(loom))]
pub use sleeping::SleepStage;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::Cell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    /// A sleeper that found nothing after arming is always seen by a fenced ringer.
    #[test]
    fn work_published_before_a_fenced_ring_is_polled_or_rung() {
        loom::model(|| {
            let shared = Arc::new((AtomicU32::new(0), AtomicBool::new(false)));
            let writer = shared.clone();
            let thread = loom::thread::spawn(move || {
                writer.1.store(true, Ordering::Release);
                fence(Ordering::SeqCst);
                Doorbell::new(&writer.0).is_armed() && Doorbell::new(&writer.0).claim_ring()
            });
            let bell = Doorbell::new(&shared.0);
            let armed = bell.arm();
            let polled = shared.1.load(Ordering::Acquire);
            let rung = thread.join().unwrap();
            assert!(polled || rung, "the sleeper would sleep for ever");
            assert_eq!(bell.rang(armed), rung);
        });
    }

    #[test]
    fn of_two_ringers_one_wakes() {
        loom::model(|| {
            let word = Arc::new(AtomicU32::new(0));
            let armed = Doorbell::new(&word).arm();
            let other = word.clone();
            let thread = loom::thread::spawn(move || Doorbell::new(&other).claim_ring());
            let mine = Doorbell::new(&word).claim_ring();
            assert!(mine != thread.join().unwrap());
            assert!(Doorbell::new(&word).rang(armed));
        });
    }

    /// A ringer that sees the bell armed needs no fence: the sleeper wakes, and sees what was
    /// published.
    #[test]
    fn a_sleeper_that_is_rung_sees_what_was_published() {
        loom::model(|| {
            let shared = Arc::new((AtomicU32::new(0), Cell::new(0u32)));
            let armed = Doorbell::new(&shared.0).arm();
            let other = shared.clone();
            let sleeper = loom::thread::spawn(move || {
                while !Doorbell::new(&other.0).rang(armed) {
                    crate::futex::wait(&other.0, armed.ticket(), None);
                }
                // SAFETY: loom checks that nobody writes the cell meanwhile.
                assert_eq!(other.1.with(|published| unsafe { *published }), 1);
            });
            // SAFETY: loom checks that nobody else accesses the cell meanwhile.
            shared.1.with_mut(|published| unsafe { *published = 1 });
            Doorbell::new(&shared.0).ring();
            sleeper.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ring_between_arming_and_sleeping_does_not_sleep() {
        let word = AtomicU32::new(0);
        let bell = Doorbell::new(&word);
        let armed = bell.arm();
        bell.ring();
        bell.sleep(armed, SleepStage::Deep, None);
        assert!(bell.rang(armed) && !bell.is_armed());
    }

    #[test]
    fn a_disarmed_doorbell_is_not_rung() {
        let word = AtomicU32::new(0);
        let bell = Doorbell::new(&word);
        let armed = bell.arm();
        bell.disarm(armed);
        assert!(!bell.is_armed() && !bell.claim_ring());
    }

    #[test]
    fn a_sleeper_is_woken_by_a_ring() {
        let word = AtomicU32::new(0);
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let bell = Doorbell::new(&word);
                while done.load(Ordering::Acquire) == 0 {
                    let armed = bell.arm();
                    let mut stage = SleepStage::default();
                    while done.load(Ordering::Acquire) == 0 && !bell.rang(armed) {
                        stage = bell.sleep(armed, stage, None);
                    }
                    bell.disarm(armed);
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(2));
            done.store(1, Ordering::Release);
            Doorbell::new(&word).ring_fenced();
        });
    }
}
