//! Fair lock with readers in memory that several processes map: the lock of a window of one-sided
//! communication.
//!
//! One word says who holds the lock; a slot for each member says who waits, and since when. A free
//! lock is taken with one compare-and-swap. A member that waits draws a ticket. Whoever gives the
//! lock up while others wait hands it to the lowest ticket, or to all readers before the first
//! writer in the order of tickets. No member that comes later overtakes one that waits.
//!
//! # Order of calls
//!
//! [`WindowLock::try_acquire`]; if that fails [`WindowLock::enqueue`], then
//! [`WindowLock::poll`] until it returns `true`; at the end [`WindowLock::release`]. A member that
//! gives up waiting calls [`WindowLock::cancel`]. A member takes the lock at most once at a time.
//!
//! # Processes that die
//!
//! The lock of a dead holder is never given to others: [`WindowLock::holders`] names it, and the
//! caller reports it. A dead member that waits is handed the lock like any other, and is then its
//! dead holder. Contents are written by peers; no value of them leads to a panic.

use crate::facade::{AtomicU32, AtomicU64, Ordering};

/// Number of the member that holds the lock alone or is handing it over, plus one.
const HOLDER: u64 = 0xffff;
/// One reader in the count of readers.
const READER: u64 = 1 << 16;
/// Count of the members that hold the lock together.
const READERS: u64 = 0xffff << 16;
/// Somebody may wait.
const WAITERS: u64 = 1 << 32;

/// Largest number of members: their numbers and the count of readers have 16 bits.
pub const MEMBERS_MAX: usize = 0xffff;

/// States of a slot. `HELD`: the member has the lock, with others or alone.
const IDLE: u32 = 0;
const WANTS_SHARED: u32 = 1;
const WANTS_EXCLUSIVE: u32 = 2;
const HELD: u32 = 3;

/// Kind of access to what the lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Together with others of this mode.
    Shared,
    /// Alone.
    Exclusive,
}

impl LockMode {
    fn wanted(self) -> u32 {
        match self {
            Self::Shared => WANTS_SHARED,
            Self::Exclusive => WANTS_EXCLUSIVE,
        }
    }
}

/// Shared word and ticket counter of a lock. All zeros is a free lock.
#[derive(Debug, Default)]
#[repr(C)]
pub struct WindowLockState {
    word: AtomicU64,
    tickets: AtomicU32,
    reserved: AtomicU32,
}

/// Place of one member in the queue of a lock. All zeros is the slot of a member that neither waits
/// nor holds the lock. The member writes it; whoever hands the lock over changes its state.
#[derive(Debug, Default)]
#[repr(C)]
pub struct WindowLockSlot {
    state: AtomicU32,
    ticket: AtomicU32,
}

/// A lock in shared memory: its state and the slots of its members, by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct WindowLock<'a> {
    state: &'a WindowLockState,
    slots: &'a [WindowLockSlot],
}

impl<'a> WindowLock<'a> {
    /// Returns the lock in this memory. Only the first [`MEMBERS_MAX`] slots are members.
    pub fn new(state: &'a WindowLockState, slots: &'a [WindowLockSlot]) -> Self {
        let members = slots.len().min(MEMBERS_MAX);
        Self {
            state,
            slots: &slots[..members],
        }
    }

    /// Takes the lock for member `me` if it is free and nobody waits.
    #[inline]
    pub fn try_acquire(&self, me: u16, mode: LockMode) -> bool {
        match mode {
            LockMode::Exclusive => self.change(0, own(me)),
            LockMode::Shared => {
                // Before the count: a reader that dies in between can be found.
                self.note(me, HELD);
                let mut seen = self.state.word.load(Ordering::Relaxed);
                while has_room_for_reader(seen) {
                    // Acquire: what holders before wrote. SYNC(window-lock).
                    match self.state.word.compare_exchange_weak(
                        seen,
                        seen + READER,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => return true,
                        Err(now) => seen = now,
                    }
                }
                self.note(me, IDLE);
                false
            }
        }
    }

    /// Draws a ticket for member `me`, which then calls [`poll`](Self::poll) until it has the lock.
    pub fn enqueue(&self, me: u16, mode: LockMode) {
        let Some(slot) = self.slots.get(usize::from(me)) else {
            return;
        };
        let ticket = self.state.tickets.fetch_add(1, Ordering::Relaxed);
        slot.ticket.store(ticket, Ordering::Relaxed);
        // Release: the ticket, for whoever hands the lock over. SYNC(window-lock-slot).
        slot.state.store(mode.wanted(), Ordering::Release);
    }

    /// Returns whether member `me`, which has a ticket, has the lock now. Until then a member that
    /// releases the lock names `me` when it hands it over; polling again before is allowed.
    pub fn poll(&self, me: u16, mode: LockMode) -> bool {
        let Some(slot) = self.slots.get(usize::from(me)) else {
            return false;
        };
        loop {
            // Acquire: what the last holder wrote. SYNC(window-lock-slot).
            let granted = slot.state.load(Ordering::Acquire) == HELD;
            let seen = self.state.word.load(Ordering::Relaxed);
            if granted {
                return mode == LockMode::Shared || self.begin_exclusive(slot, me, seen);
            }
            let free = match mode {
                LockMode::Exclusive => seen == 0,
                LockMode::Shared => has_room_for_reader(seen),
            };
            if free {
                if !self.withdraw(slot, mode) {
                    continue;
                }
                if self.try_acquire(me, mode) {
                    return true;
                }
                // The old ticket: the member keeps its place. SYNC(window-lock-slot).
                slot.state.store(mode.wanted(), Ordering::Release);
            } else if self.change(seen, seen | WAITERS) {
                // Written also where the flag is set: whoever clears it later sees the slot.
                return false;
            }
        }
    }

    /// Takes member `me` out of the queue. `false`: the lock is being handed to it; it polls until
    /// it has the lock, and releases it.
    pub fn cancel(&self, me: u16, mode: LockMode) -> bool {
        let slot = self.slots.get(usize::from(me));
        slot.is_none_or(|slot| self.withdraw(slot, mode))
    }

    /// Gives the lock up, which member `me` holds in this mode. Calls `wake` with each member that
    /// has the lock now and may sleep.
    #[inline]
    pub fn release(&self, me: u16, mode: LockMode, wake: impl FnMut(u16)) {
        let must_hand_over = match mode {
            // Release: what this holder wrote. SYNC(window-lock).
            LockMode::Exclusive => !self.change(own(me), 0),
            LockMode::Shared => {
                let last = self.leave_readers(me);
                self.note(me, IDLE);
                last
            }
        };
        if must_hand_over {
            self.hand_over(me, wake);
        }
    }

    /// Returns the members that hold the lock, as far as the lock says: the one that holds it alone
    /// or hands it over, and readers. For reports and to find holders that died.
    pub fn holders(&self) -> impl Iterator<Item = u16> + 'a {
        let seen = self.state.word.load(Ordering::Relaxed);
        let alone = (seen & HOLDER).checked_sub(1).map(|holder| holder as u16);
        let slots = self.slots.iter().zip(0u16..);
        let held = slots
            .filter(|(slot, _)| slot.state.load(Ordering::Relaxed) == HELD)
            .map(|(_, member)| member);
        alone
            .into_iter()
            .chain(held.filter(move |member| Some(*member) != alone))
    }

    /// Counts one reader less. Returns `true` if member `me` must hand the lock over.
    fn leave_readers(&self, me: u16) -> bool {
        let mut seen = self.state.word.load(Ordering::Relaxed);
        loop {
            if seen & READERS == 0 {
                return false; // Somebody else damaged the word.
            }
            let last = seen & (READERS | HOLDER) == READER && seen & WAITERS != 0;
            let after = match last {
                true => own(me) | WAITERS,
                false => seen - READER,
            };
            // Release: this reader is done; Acquire: so are the others. SYNC(window-lock).
            match self.state.word.compare_exchange_weak(
                seen,
                after,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return last,
                Err(now) => seen = now,
            }
        }
    }

    /// Ends the wait of member `me`, whose slot was granted, once the word names it as the holder.
    fn begin_exclusive(&self, slot: &WindowLockSlot, me: u16, seen: u64) -> bool {
        let begun = seen & HOLDER == own(me);
        if begun {
            // The word says who holds the lock; the slot is free for the next wait.
            slot.state.store(IDLE, Ordering::Relaxed);
        }
        begun
    }

    /// Hands the lock over, or frees it. Member `me` alone has it, as the holder in the word.
    fn hand_over(&self, me: u16, mut wake: impl FnMut(u16)) {
        // Members that set the flag after this are found when the word is changed for the last
        // time. Acquire: slots of those that set it before. SYNC(window-lock-slot).
        while self.state.word.fetch_and(!WAITERS, Ordering::AcqRel) & HOLDER == own(me) {
            // Whoever was found and has withdrawn leaves others that may wait without the flag.
            let over = match self.first_waiting(None) {
                None => self.change(own(me), 0),
                Some((next, LockMode::Exclusive, ticket)) => {
                    let others = self.first_waiting(Some(ticket)).is_some();
                    let handed = self.hand_to_writer(me, next, others);
                    if handed {
                        wake(next);
                    }
                    handed
                }
                Some((_, LockMode::Shared, _)) => self.hand_to_readers(me, &mut wake),
            };
            if over {
                return;
            }
        }
    }

    /// Hands the lock of `me` to a member that wants it alone. `false`: that member has withdrawn.
    fn hand_to_writer(&self, me: u16, next: u16, others: bool) -> bool {
        let slot = self.slots.get(usize::from(next));
        if !slot.is_some_and(|slot| self.grant(slot, WANTS_EXCLUSIVE)) {
            return false;
        }
        // The next holder begins when the word names it. Should this member die before, the word
        // names a dead holder.
        let more = if others { WAITERS } else { 0 };
        self.replace_holder(me, |seen| seen & !HOLDER | own(next) | more);
        true
    }

    /// Hands the lock of `me` to all readers before the first writer. Returns whether `me` has not
    /// got it any more.
    fn hand_to_readers(&self, me: u16, wake: &mut impl FnMut(u16)) -> bool {
        while let Some((next, LockMode::Shared, _)) = self.first_waiting(None) {
            // The count first: a reader may leave as soon as it is granted.
            self.state.word.fetch_add(READER, Ordering::Relaxed);
            let slot = self.slots.get(usize::from(next));
            if slot.is_some_and(|slot| self.grant(slot, WANTS_SHARED)) {
                wake(next);
            } else {
                self.state.word.fetch_sub(READER, Ordering::Relaxed);
            }
        }
        let others = self.first_waiting(None).is_some();
        let more = if others { WAITERS } else { 0 };
        self.replace_holder(me, |seen| match seen & READERS {
            0 => seen | more,
            _ => seen & !HOLDER | more,
        }) & READERS
            != 0
    }

    /// Changes the word as long as it names `me` as the holder, and returns what it was.
    fn replace_holder(&self, me: u16, change: impl Fn(u64) -> u64) -> u64 {
        let mut seen = self.state.word.load(Ordering::Relaxed);
        while seen & HOLDER == own(me) && !self.change(seen, change(seen)) {
            seen = self.state.word.load(Ordering::Relaxed);
        }
        seen
    }

    /// Returns the member that waits with the lowest ticket after `after`, and what it wants.
    fn first_waiting(&self, after: Option<u32>) -> Option<(u16, LockMode, u32)> {
        let base = self.state.tickets.load(Ordering::Relaxed);
        let waiting = self.slots.iter().zip(0u16..).filter_map(|(slot, member)| {
            // Acquire: the ticket. SYNC(window-lock-slot).
            let mode = match slot.state.load(Ordering::Acquire) {
                WANTS_SHARED => LockMode::Shared,
                WANTS_EXCLUSIVE => LockMode::Exclusive,
                _ => return None,
            };
            let ticket = slot.ticket.load(Ordering::Relaxed);
            (Some(ticket) != after).then_some((member, mode, ticket))
        });
        // Tickets wrap; the oldest is farthest behind the next one.
        waiting.max_by_key(|(_, _, ticket)| base.wrapping_sub(*ticket))
    }

    /// Tells a member that wants the lock that it has it. `false`: it has withdrawn.
    fn grant(&self, slot: &WindowLockSlot, wanted: u32) -> bool {
        // Release: what all holders before wrote. SYNC(window-lock-slot).
        let granted =
            slot.state
                .compare_exchange(wanted, HELD, Ordering::AcqRel, Ordering::Relaxed);
        granted.is_ok()
    }

    /// Takes a request back. `false`: it was granted.
    fn withdraw(&self, slot: &WindowLockSlot, mode: LockMode) -> bool {
        // Acquire: see `poll`. SYNC(window-lock-slot).
        let withdrawn =
            slot.state
                .compare_exchange(mode.wanted(), IDLE, Ordering::AcqRel, Ordering::Acquire);
        withdrawn.is_ok()
    }

    /// Changes the word from what the caller saw.
    #[inline]
    fn change(&self, seen: u64, new: u64) -> bool {
        // Acquire and Release: what holders wrote. SYNC(window-lock).
        self.state
            .word
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn note(&self, me: u16, state: u32) {
        if let Some(slot) = self.slots.get(usize::from(me)) {
            slot.state.store(state, Ordering::Relaxed);
        }
    }
}

/// Returns whether another reader may take the lock at once.
#[inline]
fn has_room_for_reader(seen: u64) -> bool {
    seen & (HOLDER | WAITERS) == 0 && seen & READERS != READERS
}

/// Returns the word of a lock that member `me` holds alone.
#[inline]
fn own(me: u16) -> u64 {
    u64::from(me) + 1
}

#[cfg(all(test, loom))]
#[path = "window_lock_loom.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slots(members: usize) -> Vec<WindowLockSlot> {
        (0..members).map(|_| WindowLockSlot::default()).collect()
    }

    /// Releases, and returns who has the lock then.
    fn release(lock: &WindowLock<'_>, me: u16, mode: LockMode) -> Vec<u16> {
        let mut woken = Vec::new();
        lock.release(me, mode, |member| woken.push(member));
        woken
    }

    #[test]
    fn a_lock_is_handed_over_in_the_order_of_tickets() {
        use LockMode::{Exclusive, Shared};
        let (state, slots) = (WindowLockState::default(), slots(6));
        let lock = WindowLock::new(&state, &slots);
        assert!(lock.try_acquire(0, Exclusive));
        let wanted = [
            (4, Exclusive),
            (1, Shared),
            (3, Shared),
            (2, Exclusive),
            (5, Shared),
        ];
        for (member, mode) in wanted {
            assert!(!lock.try_acquire(member, mode));
            lock.enqueue(member, mode);
            assert!(!lock.poll(member, mode));
        }
        assert_eq!(release(&lock, 0, Exclusive), [4]);
        assert!(lock.poll(4, Exclusive) && !lock.poll(1, Shared));
        assert_eq!(lock.holders().collect::<Vec<_>>(), [4]);
        assert_eq!(release(&lock, 4, Exclusive), [1, 3]);
        assert!(lock.poll(1, Shared) && lock.poll(3, Shared));
        assert!(!lock.poll(5, Shared), "a reader overtook a writer");
        assert_eq!(lock.holders().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(release(&lock, 1, Shared), []);
        assert_eq!(release(&lock, 3, Shared), [2]);
        assert!(lock.poll(2, Exclusive));
        assert_eq!(release(&lock, 2, Exclusive), [5]);
        assert!(lock.poll(5, Shared));
        assert!(release(&lock, 5, Shared).is_empty() && lock.holders().next().is_none());
        assert!(lock.try_acquire(1, Exclusive), "it is free");
    }

    #[test]
    fn who_gives_up_waiting_is_passed_over() {
        use LockMode::{Exclusive, Shared};
        let (state, slots) = (WindowLockState::default(), slots(3));
        let lock = WindowLock::new(&state, &slots);
        assert!(lock.try_acquire(0, Shared));
        lock.enqueue(1, Exclusive);
        lock.enqueue(2, Exclusive);
        assert!(!lock.poll(1, Exclusive) && !lock.poll(2, Exclusive));
        assert!(lock.cancel(1, Exclusive));
        assert_eq!(release(&lock, 0, Shared), [2]);
        assert!(!lock.cancel(2, Exclusive), "the lock was handed to it");
        assert!(lock.poll(2, Exclusive));
        assert!(release(&lock, 2, Exclusive).is_empty());
        assert!(lock.try_acquire(1, Shared));
    }

    #[test]
    fn any_contents_end_every_call() {
        for word in [u64::MAX, 1 << 16, 1 << 32, 7, 7 | 1 << 32 | 3 << 16] {
            let (state, slots) = (WindowLockState::default(), slots(2));
            state.word.store(word, Ordering::Relaxed);
            slots[1].state.store(17, Ordering::Relaxed);
            let lock = WindowLock::new(&state, &slots);
            for mode in [LockMode::Shared, LockMode::Exclusive] {
                let _ = lock.try_acquire(0, mode);
                lock.enqueue(0, mode);
                let _ = lock.poll(0, mode);
                lock.release(0, mode, |_| {});
                let _ = (lock.cancel(0, mode), lock.holders().count());
            }
        }
    }

    #[test]
    fn threads_that_compete_lose_no_update() {
        let (state, slots) = (WindowLockState::default(), slots(4));
        let lock = WindowLock::new(&state, &slots);
        let (mut plain, turns) = (0u64, if cfg!(miri) { 10 } else { 2000 });
        let value = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for me in 0..4u16 {
                let value = &value;
                scope.spawn(move || {
                    for turn in 0..turns {
                        let mode = match (turn + u32::from(me)) % 3 {
                            0 => LockMode::Shared,
                            _ => LockMode::Exclusive,
                        };
                        if !lock.try_acquire(me, mode) {
                            lock.enqueue(me, mode);
                            while !lock.poll(me, mode) {
                                std::thread::yield_now();
                            }
                        }
                        let seen = value.load(Ordering::Relaxed);
                        if mode == LockMode::Exclusive {
                            value.store(seen + 1, Ordering::Relaxed);
                        } else {
                            std::thread::yield_now();
                            assert_eq!(value.load(Ordering::Relaxed), seen);
                        }
                        lock.release(me, mode, |_| {});
                    }
                });
            }
        });
        for me in 0..4 {
            plain += (0..turns).filter(|turn| (turn + me) % 3 != 0).count() as u64;
        }
        assert_eq!(value.load(Ordering::Relaxed), plain);
    }
}
