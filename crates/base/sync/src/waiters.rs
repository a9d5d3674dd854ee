//! Wait slots: where the threads of a rank park while one of them, the leader, polls for all.
//!
//! A waiting thread first checks its own condition. If there is no leader it becomes the leader
//! ([`Waiters::try_lead`]). Otherwise it takes a wait slot ([`Waiters::take_slot`]), stores there a
//! key for the event that it waits for, and parks ([`WaitSlot::wait`]). Whoever causes an event
//! calls [`Waiters::notify`], which wakes only the threads whose key matches. A leader whose own
//! event has come passes leadership to the thread that parked last ([`Waiters::pass_leadership`]):
//! to exactly one thread if any is parked.
//!
//! A waiter that is no thread ([`crate::waiter`]) is suspended instead: its slot keeps a handle, by
//! which it is resumed after the word was changed. An owner that saw the changed word by itself has
//! taken its handle back.
//!
//! No wake-up is lost. The notifier increments the event count before it reads the slots. The
//! waiter publishes its slot before it compares the event count with the value that it read before
//! its check. So one of the two sees the other: SYNC(seats-news). The same holds for a leadership
//! that becomes free while a thread parks: SYNC(seats-role). A waiter may spin on its word before
//! it sleeps; it is then woken without a system call.
//!
//! A leader may park on the bell. It then sleeps on its wait slot and on the rank's doorbell at
//! once, and leaves its leadership there for whichever thread waits next. That thread returns the
//! leadership when it leaves ([`Waiters::leave_leadership_on_bell`]), and neither of them is woken.
//! The bell sleeper withdraws before it looks for the leadership; the leaver looks afterwards
//! whether it still sleeps there: SYNC(seats-bell).
//!
//! `LockedEngine` owns the waiters of a rank. Bounded by `WAIT_SLOTS_MAX` slots, which are
//! allocated by rows when first needed. A thread that finds no free slot polls at intervals.

use crate::facade::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, total_order};
use crate::pad::CachePadded;
use crate::waiter::{ThreadWaiter, Waiter, WaiterHandle, WaiterId};
use std::sync::{Arc, OnceLock, PoisonError};

/// Slots of a row: what one word of a bitmap names.
#[cfg(not(loom))]
const ROW: usize = 64;
#[cfg(loom)]
const ROW: usize = 2;

/// Rows at most: more threads than that wait in no program that has room for their stacks.
#[cfg(not(loom))]
const ROWS: usize = 64;
#[cfg(loom)]
const ROWS: usize = 1;

/// Threads that can have a wait slot at once.
pub const WAIT_SLOTS_MAX: usize = ROW * ROWS;

/// A slot's word: its owner sleeps or is about to.
const PARKED: u32 = 0;
/// A slot's word: the event of its owner has come.
const NOTIFIED: u32 = 1;
/// A slot's word: its owner is the leader from now on.
const PROMOTED: u32 = 2;
/// A slot's word: nobody waits here.
const AWAKE: u32 = 3;
/// A slot's word: its owner is parked, but spins on the word and needs no system call to wake.
const SPINNING: u32 = 4;
/// A slot's word: its owner is suspended or about to be, and is resumed through its handle.
const SUSPENDED: u32 = 5;

/// Tells whether a waiter waits in a slot with this word.
#[inline]
fn waits(word: u32) -> bool {
    matches!(word, PARKED | SPINNING | SUSPENDED)
}

/// The leader's word: no thread leads.
const NOBODY: usize = 0;
/// The leader's word: leadership was passed to a thread that is waking up.
const IN_TRANSIT: usize = 1;
/// Bit of the leader's word: the leader is parked on the doorbell.
const LEADER_ON_BELL: usize = WaiterId::END;

/// The reason why a parked thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// An event came, or there is no leader: check the condition again.
    Recheck,
    /// The caller is the leader now. It passes leadership when it leaves.
    Lead,
}

/// Handles of a row's owners that are no threads, by slot.
type SuspendedOwners = [Mutex<Option<Arc<dyn Waiter>>>; ROW];

#[derive(Debug)]
struct SlotRow {
    /// Slots that threads have taken, as bits.
    taken: AtomicU64,
    /// Keys of the events that owners wait for. Valid where the word says that the owner waits.
    awaited_keys: [AtomicU64; ROW],
    /// Times at which owners parked, by a count.
    parked_at: [AtomicU32; ROW],
    /// Ids of the owners, for those that park on the doorbell.
    owners: [AtomicUsize; ROW],
    /// Made when the first waiter comes that is no thread.
    suspended_owners: OnceLock<Box<SuspendedOwners>>,
    words: [CachePadded<AtomicU32>; ROW],
}

impl SlotRow {
    fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            awaited_keys: std::array::from_fn(|_| AtomicU64::new(0)),
            parked_at: std::array::from_fn(|_| AtomicU32::new(0)),
            owners: std::array::from_fn(|_| AtomicUsize::new(NOBODY)),
            suspended_owners: OnceLock::new(),
            words: std::array::from_fn(|_| CachePadded(AtomicU32::new(AWAKE))),
        }
    }

    /// Returns the slots in which a thread waits.
    fn parked_slots(&self) -> impl Iterator<Item = usize> {
        let mut taken = self.taken.load(Ordering::SeqCst);
        std::iter::from_fn(move || {
            while taken != 0 {
                let index = taken.trailing_zeros() as usize;
                taken &= taken - 1;
                // SeqCst: what it waits for is seen.
                if waits(self.words[index].load(Ordering::SeqCst)) {
                    return Some(index);
                }
            }
            None
        })
    }

    /// Ends the wait in a slot; `false`: another thread did.
    fn wake_slot(&self, index: usize, why: u32) -> bool {
        let word = &self.words[index];
        let change = |from| {
            word.compare_exchange(from, why, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        // In this order: who looks may go to sleep meanwhile, and nobody who sleeps begins to look.
        if change(SPINNING) {
            return true;
        }
        if change(PARKED) {
            ThreadWaiter::unpark(word);
            return true;
        }
        self.suspended_owners.get().is_some() && change(SUSPENDED) && {
            self.resume(index);
            true
        }
    }

    /// Resumes the owner of a slot whose word was changed. An owner that has seen that and left is
    /// not missed, and whoever came in its place checks again.
    #[cold]
    fn resume(&self, index: usize) {
        let owner = self.suspended_owner(index, |owner| owner.clone());
        if let Some(owner) = owner.flatten() {
            owner.unpark(&self.words[index]);
        }
    }

    /// Calls `f` on the handle of a slot's owner, if the row has had owners that are no threads.
    fn suspended_owner<T>(
        &self,
        index: usize,
        f: impl FnOnce(&mut Option<Arc<dyn Waiter>>) -> T,
    ) -> Option<T> {
        let owners = self.suspended_owners.get()?;
        let mut owner = owners[index].lock().unwrap_or_else(PoisonError::into_inner);
        Some(f(&mut owner))
    }

    fn make_suspended_owners(&self) {
        self.suspended_owners
            .get_or_init(|| Box::new(std::array::from_fn(|_| Mutex::new(None))));
    }
}

/// The leadership, the event count and the wait slots of a rank's threads. The locked engine owns
/// them. A waiting thread calls [`Waiters::event_count`], checks its condition, then
/// [`Waiters::try_lead`]. If that fails it calls [`Waiters::take_slot`] and [`WaitSlot::wait`]. The
/// leader calls [`Waiters::pass_leadership`] when it leaves. Whoever causes an event calls
/// [`Waiters::notify`].
#[derive(Debug)]
pub struct Waiters {
    /// The leader: `NOBODY`, `IN_TRANSIT`, or a thread's id, with `LEADER_ON_BELL` if that thread
    /// is parked on the doorbell.
    leader: AtomicUsize,
    /// The thread that sleeps on the doorbell, whoever leads meanwhile, or `NOBODY`.
    bell_sleeper: AtomicUsize,
    /// Number of events so far.
    events: AtomicU64,
    /// Number of times that a thread parked (modulo 2^32).
    parked: AtomicU32,
    /// Number of threads notified of events (modulo 2^32).
    notified: AtomicU32,
    slot_rows: [OnceLock<Box<SlotRow>>; ROWS],
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            leader: AtomicUsize::new(NOBODY),
            bell_sleeper: AtomicUsize::new(NOBODY),
            events: AtomicU64::new(0),
            parked: AtomicU32::new(0),
            notified: AtomicU32::new(0),
            slot_rows: [const { OnceLock::new() }; ROWS],
        }
    }
}

impl Waiters {
    /// With the first row made already: loom does not know that a `OnceLock` orders anything.
    #[cfg(all(test, loom))]
    fn modelled() -> Self {
        let slots = Self::default();
        let row = SlotRow::new();
        row.make_suspended_owners();
        slots.slot_rows[0].set(Box::new(row)).unwrap();
        slots
    }

    fn slot_rows(&self) -> impl Iterator<Item = &SlotRow> {
        self.slot_rows
            .iter()
            .map_while(|row| row.get().map(|row| &**row))
    }

    /// Makes the caller the leader, unless there is one. The leader passes leadership when it
    /// leaves.
    #[inline]
    pub fn try_lead(&self, who: WaiterId) -> bool {
        self.leader
            .compare_exchange(NOBODY, who.number(), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Makes the caller the leader, if the present leader is parked on the doorbell. The caller
    /// returns leadership to the doorbell, or passes it, when it leaves.
    #[inline]
    pub fn relieve_parked_leader(&self, who: WaiterId) -> bool {
        let poller = self.leader.load(Ordering::Relaxed);
        poller & LEADER_ON_BELL != 0
            && self
                .leader
                .compare_exchange(poller, who.number(), Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }

    /// Tells whether the leader is parked on the doorbell. Called after `notify`, `true` means that
    /// the leader was notified in its slot.
    #[inline]
    pub fn is_leader_on_bell(&self) -> bool {
        self.leader.load(Ordering::SeqCst) & LEADER_ON_BELL != 0
    }

    /// Tells whether a thread sleeps on the doorbell, to which the leader can return leadership.
    #[inline]
    pub fn has_bell_sleeper(&self) -> bool {
        self.bell_sleeper.load(Ordering::SeqCst) != NOBODY
    }

    /// Leaves leadership to the thread that sleeps on the doorbell. `false`: there is none, and the
    /// caller still leads.
    pub fn leave_leadership_on_bell(&self, who: WaiterId) -> bool {
        let lies = self.bell_sleeper.load(Ordering::SeqCst);
        if lies == NOBODY {
            return false;
        }
        self.leader.store(lies | LEADER_ON_BELL, Ordering::SeqCst);
        // Before another look at who lies there: SYNC(seats-bell).
        total_order();
        // Who got up meanwhile and did not find leadership leaves it to the caller.
        self.bell_sleeper.load(Ordering::SeqCst) == lies
            || self
                .leader
                .compare_exchange(
                    lies | LEADER_ON_BELL,
                    who.number(),
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                )
                .is_err()
    }

    /// Tells whether a thread leads, or was told to.
    #[inline]
    pub fn has_leader(&self) -> bool {
        self.leader.load(Ordering::SeqCst) != NOBODY
    }

    /// Tells whether this thread leads.
    #[inline]
    pub fn is_led_by(&self, who: WaiterId) -> bool {
        self.leader.load(Ordering::Relaxed) == who.number()
    }

    /// Returns the number of events so far. To be read before the condition is checked.
    #[inline]
    pub fn event_count(&self) -> u64 {
        self.events.load(Ordering::SeqCst)
    }

    /// Returns how many threads were notified of events (modulo 2^32).
    #[inline]
    pub fn notified_count(&self) -> u32 {
        self.notified.load(Ordering::Relaxed)
    }

    /// Returns how often a thread parked (modulo 2^32).
    #[inline]
    pub fn parked_count(&self) -> u32 {
        self.parked.load(Ordering::Relaxed)
    }

    /// Counts an event that no parked thread waits for.
    #[inline]
    pub fn count_event(&self) {
        self.events.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an event and wakes each parked thread for whose key `is_due` returns true. Everything
    /// that `is_due` and the woken threads read was written before.
    #[inline]
    pub fn notify(&self, mut is_due: impl FnMut(u64) -> bool) {
        // Before the look at the wait slots: SYNC(seats-news).
        self.events.fetch_add(1, Ordering::SeqCst);
        total_order();
        for row in self.slot_rows() {
            for index in row.parked_slots() {
                if is_due(row.awaited_keys[index].load(Ordering::Relaxed))
                    && row.wake_slot(index, NOTIFIED)
                {
                    self.notified.fetch_add(1, Ordering::Relaxed);
                    self.forget_bell_sleeper(row.owners[index].load(Ordering::Relaxed));
                }
            }
        }
    }

    /// Withdraws a thread that may sleep on the doorbell, because it was woken: a leader that
    /// leaves does not return leadership to it.
    #[inline]
    fn forget_bell_sleeper(&self, owner: usize) {
        if self.bell_sleeper.load(Ordering::Relaxed) == owner {
            let _ = self.bell_sleeper.compare_exchange(
                owner,
                NOBODY,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
    }

    /// Passes leadership to the thread that parked last, whose turn is likely to come last; or to
    /// nobody, if nobody is parked. Returns whether a thread got it.
    pub fn pass_leadership(&self) -> bool {
        loop {
            // Before somebody is called, who says so in turn.
            self.leader.store(IN_TRANSIT, Ordering::SeqCst);
            while let Some((row, index)) = self.last_parked() {
                if row.wake_slot(index, PROMOTED) {
                    self.forget_bell_sleeper(row.owners[index].load(Ordering::Relaxed));
                    return true;
                }
            }
            // Before another look at the wait slots: SYNC(seats-role).
            self.leader.store(NOBODY, Ordering::SeqCst);
            total_order();
            let waits = self
                .slot_rows()
                .any(|row| row.parked_slots().next().is_some());
            let again = waits
                && self
                    .leader
                    .compare_exchange(NOBODY, IN_TRANSIT, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok();
            if !again {
                return waits;
            }
        }
    }

    fn last_parked(&self) -> Option<(&SlotRow, usize)> {
        let now = self.parked.load(Ordering::Relaxed);
        self.slot_rows()
            .flat_map(|row| row.parked_slots().map(move |index| (row, index)))
            .min_by_key(|(row, index)| {
                now.wrapping_sub(row.parked_at[*index].load(Ordering::Relaxed))
            })
    }

    /// Takes a free wait slot for the caller, until it is dropped. `None`: there are no more.
    pub fn take_slot(&self, who: impl Into<WaiterHandle>) -> Option<WaitSlot<'_>> {
        let owner = who.into();
        for row in &self.slot_rows {
            let row = row.get_or_init(|| Box::new(SlotRow::new()));
            loop {
                let index = (!row.taken.load(Ordering::Relaxed)).trailing_zeros() as usize;
                if index >= ROW {
                    break;
                }
                if row.taken.fetch_or(1 << index, Ordering::SeqCst) >> index & 1 == 0 {
                    if let WaiterHandle::Logical(waiter) = &owner {
                        row.make_suspended_owners();
                        row.suspended_owner(index, |known| *known = Some(waiter.clone()));
                    }
                    let slots = self;
                    return Some(WaitSlot {
                        slots,
                        row,
                        index,
                        owner,
                    });
                }
            }
        }
        None
    }
}

/// A waiter's wait slot, until it is dropped. Its owner parks in it, any number of times: by
/// [`WaitSlot::wait`], or by `begin_wait`, `is_woken` and `end_wait` where it is polled by an
/// executor.
#[derive(Debug)]
pub struct WaitSlot<'a> {
    slots: &'a Waiters,
    row: &'a SlotRow,
    index: usize,
    owner: WaiterHandle,
}

impl WaitSlot<'_> {
    /// Parks until the event of `key` comes, or leadership is passed to the caller: spins on
    /// the word for `looks` turns, then sleeps. Returns `Recheck` at once if an event came since
    /// `seen`, which was read before the condition was checked, or if there is no leader.
    pub fn wait(&mut self, key: u64, seen: u64, looks: u32) -> WakeReason {
        let asleep = self.asleep();
        let looks = if asleep == PARKED { looks } else { 0 };
        let word = self.enter(key, if looks > 0 { SPINNING } else { asleep });
        if self.stays_parked(seen) {
            if looks > 0 {
                crate::deferred_wake::flush();
                look(word, looks);
                let _ = word.compare_exchange(SPINNING, PARKED, Ordering::SeqCst, Ordering::SeqCst);
            }
            while word.load(Ordering::SeqCst) == asleep {
                crate::deferred_wake::flush();
                self.owner.park(word, asleep);
            }
        }
        self.end_wait()
    }

    /// Parks the owner as [`WaitSlot::wait`] does, but returns before it is woken. `false`: it does
    /// not stay parked. In either case `end_wait` follows, at the latest when the owner was
    /// unparked and [`WaitSlot::is_woken`].
    pub fn begin_wait(&mut self, key: u64, seen: u64) -> bool {
        self.enter(key, self.asleep());
        self.stays_parked(seen)
    }

    /// Ends a wait.
    #[inline]
    pub fn end_wait(&mut self) -> WakeReason {
        let word = &*self.row.words[self.index];
        if word.swap(AWAKE, Ordering::SeqCst) == PROMOTED {
            self.slots
                .leader
                .store(self.id().number(), Ordering::SeqCst);
            return WakeReason::Lead;
        }
        WakeReason::Recheck
    }

    /// Tells whether the owner, which has just parked, may sleep.
    #[inline]
    fn stays_parked(&self, seen: u64) -> bool {
        self.slots.event_count() == seen && self.slots.has_leader()
    }

    #[inline]
    fn id(&self) -> WaiterId {
        self.owner.id()
    }

    /// The word of a slot whose owner sleeps.
    #[inline]
    fn asleep(&self) -> u32 {
        if self.owner.is_logical() {
            SUSPENDED
        } else {
            PARKED
        }
    }

    fn enter(&self, key: u64, how: u32) -> &AtomicU32 {
        let word = &*self.row.words[self.index];
        let stamp = self
            .slots
            .parked
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        self.row.parked_at[self.index].store(stamp, Ordering::Relaxed);
        self.row.awaited_keys[self.index].store(key, Ordering::Relaxed);
        self.row.owners[self.index].store(self.id().number(), Ordering::Relaxed);
        word.store(how, Ordering::SeqCst);
        // Before the looks that follow: SYNC(seats-news), SYNC(seats-role).
        total_order();
        word
    }

    /// Parks the leader, a thread, on the doorbell, which it has armed. The caller then sleeps on
    /// [`WaitSlot::futex_word`] and on the doorbell, and calls `unpark` when it likes. `false`: an
    /// event came since `seen`, and the caller leads on.
    pub fn park_on_bell(&mut self, key: u64, seen: u64) -> bool {
        let word = self.enter(key, PARKED);
        if self.slots.event_count() != seen {
            word.store(AWAKE, Ordering::SeqCst);
            return false;
        }
        self.slots
            .bell_sleeper
            .store(self.id().number(), Ordering::SeqCst);
        self.slots
            .leader
            .store(self.id().number() | LEADER_ON_BELL, Ordering::SeqCst);
        true
    }

    /// Parks the caller, a thread, on the doorbell behind another leader, which leaves its
    /// leadership there when it goes. `Err`: the caller was woken at once, because an event came
    /// since `seen`, there is no leader, or another thread sleeps there.
    ///
    /// # Errors
    /// As said.
    pub fn park_on_bell_behind_leader(&mut self, key: u64, seen: u64) -> Result<(), WakeReason> {
        self.enter(key, PARKED);
        let slots = self.slots;
        let free = slots
            .bell_sleeper
            .compare_exchange(
                NOBODY,
                self.id().number(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok();
        if free && slots.event_count() == seen && slots.has_leader() {
            return Ok(());
        }
        Err(self.unpark())
    }

    /// The word to sleep on while parked on the doorbell, and its value as long as nothing has come
    /// for its owner.
    pub fn futex_word(&self) -> (&AtomicU32, u32) {
        (&self.row.words[self.index], PARKED)
    }

    /// Tells whether something has come for the waiter that is parked here.
    pub fn is_woken(&self) -> bool {
        !waits(self.row.words[self.index].load(Ordering::SeqCst))
    }

    /// Tells whether leadership was left on the doorbell for the owner of this slot.
    pub fn has_leadership(&self) -> bool {
        self.slots.leader.load(Ordering::SeqCst) == self.id().number() | LEADER_ON_BELL
    }

    /// Ends the park on the doorbell. The caller leads if leadership was left there or passed to
    /// it.
    pub fn unpark(&mut self) -> WakeReason {
        let handed = self.row.words[self.index].swap(AWAKE, Ordering::SeqCst) == PROMOTED;
        self.slots.forget_bell_sleeper(self.id().number());
        // Before a look at leadership: SYNC(seats-bell).
        total_order();
        let poller = &self.slots.leader;
        let laid = self.id().number() | LEADER_ON_BELL;
        let role = if handed {
            poller.store(self.id().number(), Ordering::SeqCst);
            true
        } else {
            poller
                .compare_exchange(laid, self.id().number(), Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        if role {
            WakeReason::Lead
        } else {
            WakeReason::Recheck
        }
    }
}

/// Spins on a slot's word, so many times at most.
fn look(word: &AtomicU32, looks: u32) {
    for _ in 0..looks {
        if word.load(Ordering::Acquire) != SPINNING {
            return;
        }
        crate::facade::relax();
    }
}

impl Drop for WaitSlot<'_> {
    fn drop(&mut self) {
        if self.owner.is_logical() {
            self.row.suspended_owner(self.index, |known| *known = None);
        }
        self.row
            .taken
            .fetch_and(!(1 << self.index), Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
#[path = "waiters_loom.rs"]
mod loom_tests;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    #[test]
    fn only_who_waits_for_an_event_is_called() {
        const WAITERS: usize = 100;
        let slots = Waiters::default();
        let (turn, over) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        assert!(slots.try_lead(WaiterId::new(2)));
        std::thread::scope(|scope| {
            for waiter in 0..WAITERS {
                let (slots, turn, over) = (&slots, &turn, &over);
                scope.spawn(move || {
                    let mut slot = slots.take_slot(WaiterId::new(waiter + 3)).unwrap();
                    loop {
                        let seen = slots.event_count();
                        if turn.load(Ordering::SeqCst) == waiter {
                            break;
                        }
                        assert_eq!(slot.wait(waiter as u64, seen, 0), WakeReason::Recheck);
                    }
                    over.fetch_add(1, Ordering::SeqCst);
                });
            }
            for waiter in (0..WAITERS).rev() {
                let before = over.load(Ordering::SeqCst);
                turn.store(waiter, Ordering::SeqCst);
                slots.notify(|awaited| awaited == waiter as u64);
                while over.load(Ordering::SeqCst) == before {
                    std::thread::yield_now();
                }
            }
        });
        assert!(
            slots.notified_count() as usize <= WAITERS,
            "somebody was called in vain"
        );
    }

    #[test]
    fn a_role_handed_over_goes_to_the_last_to_park() {
        let slots = Waiters::default();
        let (first_sits, over) = (AtomicBool::new(false), AtomicBool::new(false));
        assert!(slots.try_lead(WaiterId::new(2)));
        let sitting = || {
            slots
                .slot_rows()
                .map(|row| row.parked_slots().count())
                .sum::<usize>()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut slot = slots.take_slot(WaiterId::new(3)).unwrap();
                while !over.load(Ordering::SeqCst) {
                    assert_eq!(slot.wait(1, slots.event_count(), 0), WakeReason::Recheck);
                }
            });
            while sitting() < 1 {
                std::thread::yield_now();
            }
            first_sits.store(true, Ordering::SeqCst);
            let last = scope.spawn(|| {
                let mut slot = slots.take_slot(WaiterId::new(4)).unwrap();
                assert_eq!(slot.wait(2, slots.event_count(), 0), WakeReason::Lead);
                assert!(slots.is_led_by(WaiterId::new(4)));
            });
            while sitting() < 2 {
                std::thread::yield_now();
            }
            assert!(slots.pass_leadership());
            last.join().unwrap();
            over.store(true, Ordering::SeqCst);
            slots.notify(|_| true);
        });
    }

    #[test]
    fn a_role_on_the_doorbell_goes_to_who_comes_and_back() {
        let slots = Waiters::default();
        let (first, second) = (WaiterId::new(2), WaiterId::new(3));
        assert!(
            slots.try_lead(first)
                && !slots.relieve_parked_leader(second)
                && !slots.leave_leadership_on_bell(first)
        );
        let mut slot = slots.take_slot(first).unwrap();
        assert!(slot.park_on_bell(1, slots.event_count()) && slot.has_leadership());
        assert!(!slots.try_lead(second) && slots.has_leader());
        for _ in 0..2 {
            assert!(
                slots.relieve_parked_leader(second)
                    && slots.is_led_by(second)
                    && !slot.has_leadership()
            );
            assert!(
                slots.leave_leadership_on_bell(second) && slot.has_leadership() && !slot.is_woken()
            );
        }
        assert!(slots.relieve_parked_leader(second));
        slots.notify(|awaited| awaited == 1);
        assert!(slot.is_woken());
        assert_eq!(slot.unpark(), WakeReason::Recheck);
        assert!(!slots.leave_leadership_on_bell(second) && slots.is_led_by(second));
        assert!(!slots.pass_leadership() && !slots.has_leader());
    }

    #[test]
    fn who_lies_on_the_doorbell_is_handed_the_role_like_anybody_who_sits() {
        let slots = Waiters::default();
        assert!(slots.try_lead(WaiterId::new(2)));
        let mut slot = slots.take_slot(WaiterId::new(2)).unwrap();
        let before = slots.event_count();
        slots.count_event();
        assert!(!slot.park_on_bell(1, before) && slots.is_led_by(WaiterId::new(2)));
        assert!(slot.park_on_bell(1, slots.event_count()));
        assert!(slots.relieve_parked_leader(WaiterId::new(3)) && slots.pass_leadership());
        assert!(slot.is_woken());
        assert_eq!(slot.unpark(), WakeReason::Lead);
        assert!(slots.is_led_by(WaiterId::new(2)) && !slots.has_bell_sleeper());
    }

    #[test]
    fn nobody_parks_where_nobody_polls_or_something_happened_meanwhile() {
        let slots = Waiters::default();
        let mut slot = slots.take_slot(WaiterId::new(2)).unwrap();
        assert_eq!(slot.wait(1, slots.event_count(), 0), WakeReason::Recheck);
        assert!(slots.try_lead(WaiterId::new(3)));
        let seen = slots.event_count();
        slots.count_event();
        assert_eq!(slot.wait(1, seen, 0), WakeReason::Recheck);
    }

    #[test]
    fn there_are_slots_up_to_the_limit_and_again_when_they_are_left() {
        let slots = Waiters::default();
        let mut taken: Vec<_> = (0..WAIT_SLOTS_MAX)
            .map(|_| slots.take_slot(WaiterId::new(2)).unwrap())
            .collect();
        assert!(slots.take_slot(WaiterId::new(2)).is_none());
        taken.pop();
        assert!(slots.take_slot(WaiterId::new(2)).is_some());
    }
}
