//! Racks: queues of chores that many threads fill and empty without a lock.
//!
//! A rack is a row of slots and two bitmaps. `taken` says which slots are somebody's; `ready` says which hold a chore that waits to be run.
//! Who clears a bit of `ready` owns that chore until it is settled or its bit is set again, so a chore that is run again and again keeps its slot and never
//! has two runners. Looking at an empty rack is one load of a line that stays shared between all who look (Algorithm 2 of the PIOMan paper, without its
//! lock), and nobody ever waits for a thread that was stopped halfway. Among the chores of one rack no order is promised; each walk gives every chore
//! that waited at its beginning one turn. Bounded: at most [`SLOTS_MAX`] chores per rack.

use crate::chore::{Header, Put, Refused, Settled, run_claimed, withdraw_claimed};
use crate::facade::{AtomicPtr, AtomicU32, AtomicU64, Ordering, total_order};
use crate::pad::CachePadded;
use std::ptr::NonNull;

/// Words of a rack's bitmaps: as many as one cache line of 64 bytes holds, so that looking at all of them costs one line.
const WORDS_MAX: usize = 8;

/// Chores that a rack holds at most.
pub const SLOTS_MAX: usize = WORDS_MAX * 64;

/// Runs that are asked for during a run and follow it at once: more, and others get their turn first.
const RERUNS: u32 = 4;

struct Rack<C> {
    ready: CachePadded<[AtomicU64; WORDS_MAX]>,
    taken: CachePadded<[AtomicU64; WORDS_MAX]>,
    slots: Box<[AtomicPtr<Header<C>>]>,
    /// Counts runs, roughly: two at once may count as one. On a line of its own neither way: whoever runs has the slot's line anyway.
    runs: AtomicU32,
}

/// A set of racks that belong together, told apart by numbers, with a bitmap of those that may have something ready.
pub struct Racks<C> {
    racks: Box<[Rack<C>]>,
    /// A rack's bit is set before or soon after its first chore is ready, and only cleared by those who look for it. SYNC(rack-marked).
    marked: Box<[AtomicU64]>,
}

/// What a walk over racks did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Chores that were settled.
    pub settled: u32,
    /// Chores that were run and want to be run again.
    pub again: u32,
    /// The least patience among the latter, in microseconds; 0: none of them says.
    pub patience_us: u32,
}

impl Tally {
    /// Nothing was run.
    pub fn is_empty(&self) -> bool {
        self.settled == 0 && self.again == 0
    }

    /// Adds another walk's.
    pub fn add(&mut self, other: Self) {
        self.settled += other.settled;
        self.again += other.again;
        self.patience_us = match (self.patience_us, other.patience_us) {
            (0, us) | (us, 0) => us,
            (a, b) => a.min(b),
        };
    }
}

impl<C> std::fmt::Debug for Racks<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Racks")
            .field("racks", &self.racks.len())
            .finish_non_exhaustive()
    }
}

fn seat(rack: usize, slot: usize) -> u32 {
    (rack as u32) << 16 | slot as u32
}

/// Racks are numbered with 16 bits of a seat.
pub const RACKS_MAX: usize = 1 << 16;

impl<C> Racks<C> {
    /// Racks with room for this many chores each, rounded up to 64. `None`: more than [`RACKS_MAX`] racks, or a rack of none or of more than
    /// [`SLOTS_MAX`].
    pub fn new(slots: &[usize]) -> Option<Self> {
        if slots.len() > RACKS_MAX || slots.iter().any(|slots| !(1..=SLOTS_MAX).contains(slots)) {
            return None;
        }
        let bits = || CachePadded(std::array::from_fn(|_| AtomicU64::new(0)));
        let rack = |slots: &usize| Rack {
            ready: bits(),
            taken: bits(),
            slots: (0..slots.next_multiple_of(64))
                .map(|_| AtomicPtr::new(std::ptr::null_mut()))
                .collect(),
            runs: AtomicU32::new(0),
        };
        Some(Self {
            racks: slots.iter().map(rack).collect(),
            marked: (0..slots.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Number of racks.
    pub fn len(&self) -> usize {
        self.racks.len()
    }

    /// Whether there is no rack.
    pub fn is_empty(&self) -> bool {
        self.racks.is_empty()
    }

    fn place(&self, seat: u32) -> (&Rack<C>, usize, u64) {
        let (rack, slot) = (seat >> 16, seat as usize & 0xffff);
        (&self.racks[rack as usize], slot / 64, 1 << (slot % 64))
    }

    /// Takes a free slot for a chore.
    pub(crate) fn reserve(&self, rack: usize, header: NonNull<Header<C>>) -> Result<u32, Refused> {
        let number = rack;
        let rack = self.racks.get(rack).ok_or(Refused::Nowhere)?;
        for word in 0..rack.slots.len() / 64 {
            let taken = &rack.taken[word];
            let mut seen = taken.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = (!seen).trailing_zeros();
                // Acquire: the slot's last chore is out of it. SYNC(rack-slot).
                seen = taken.fetch_or(1 << bit, Ordering::Acquire);
                if seen >> bit & 1 == 0 {
                    let slot = word * 64 + bit as usize;
                    // The slot is ours; whoever reads it first clears the bit that `offer` sets afterwards.
                    rack.slots[slot].store(header.as_ptr(), Ordering::Relaxed);
                    return Ok(seat(number, slot));
                }
            }
        }
        Err(Refused::Full)
    }

    /// Makes the chore of a slot ready to be run.
    pub(crate) fn offer(&self, seat: u32) -> Put {
        let (rack, word, bit) = self.place(seat);
        // Release: the runner sees the chore and what its last run did: SYNC(rack-ready). SeqCst: who then looks for pollers, and a poller
        // that leaves and then looks here, cannot miss each other: SYNC(rack-poller).
        let before = rack.ready[word].fetch_or(bit, Ordering::SeqCst);
        total_order();
        self.mark(seat as usize >> 16);
        Put {
            before: before.count_ones(),
        }
    }

    fn mark(&self, rack: usize) {
        let bit = 1 << (rack % 64);
        let marked = &self.marked[rack / 64];
        // SeqCst with `marked_racks`: either it sees the chore or we see the mark gone. SYNC(rack-marked).
        if marked.load(Ordering::SeqCst) & bit == 0 {
            marked.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Takes the chore of a slot out of the hands of runners. `false`: one has it.
    pub(crate) fn claim(&self, seat: u32) -> bool {
        let (rack, word, bit) = self.place(seat);
        // Acquire: the chore. SYNC(rack-ready).
        rack.ready[word].fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Gives a slot back. Its chore is settled and the caller the one to free it.
    pub(crate) fn free(&self, seat: u32) {
        let (rack, word, bit) = self.place(seat);
        // Release: SYNC(rack-slot).
        rack.taken[word].fetch_and(!bit, Ordering::Release);
    }

    /// The chore of a slot that the caller has claimed.
    pub(crate) fn header(&self, seat: u32) -> NonNull<Header<C>> {
        let (rack, ..) = self.place(seat);
        let header = rack.slots[seat as usize & 0xffff].load(Ordering::Relaxed);
        NonNull::new(header).expect("a slot that was ever offered has had a chore")
    }

    /// Whether a chore waits in a rack. The price of an empty queue.
    #[inline]
    pub fn any_ready(&self, rack: usize) -> bool {
        let Some(rack) = self.racks.get(rack) else {
            return false;
        };
        let words = rack.slots.len() / 64;
        // SeqCst for those who are about to sleep: SYNC(rack-poller). Costs no more than Acquire on x86-64.
        rack.ready[..words]
            .iter()
            .any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Runs every chore that waits in a rack, once. `round` changes from walk to walk, so that none is always the first.
    #[inline]
    pub fn run(&self, rack: usize, round: u32, context: &C) -> Tally {
        let mut tally = Tally::default();
        let Some(row) = self.racks.get(rack) else {
            return tally;
        };
        for word in 0..row.slots.len() / 64 {
            let ready = row.ready[word].load(Ordering::Acquire);
            if ready != 0 {
                tally.add(self.run_word(rack, word, (ready, round % 64), context));
            }
        }
        tally
    }

    fn run_word(&self, rack: usize, word: usize, (ready, first): (u64, u32), context: &C) -> Tally {
        let mut tally = Tally::default();
        let mut left = ready.rotate_right(first);
        let mut known = ready;
        while left != 0 {
            let bit = (left.trailing_zeros() + first) % 64;
            left &= left - 1;
            // Somebody else may have been quicker: then the line is not asked for.
            if known >> bit & 1 == 0 {
                continue;
            }
            let seat = seat(rack, word * 64 + bit as usize);
            if self.claim(seat) {
                self.run_one(seat, context, &mut tally);
            }
            if left != 0 {
                known = self.racks[rack].ready[word].load(Ordering::Relaxed);
            }
        }
        tally
    }

    /// A number that changes when chores of a rack are run.
    pub fn runs(&self, rack: usize) -> u32 {
        self.racks
            .get(rack)
            .map_or(0, |rack| rack.runs.load(Ordering::Relaxed))
    }

    fn run_one(&self, seat: u32, context: &C, tally: &mut Tally) {
        let runs = &self.racks[seat as usize >> 16].runs;
        runs.store(runs.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let mut reruns = 0;
        let settled = loop {
            // SAFETY: claimed, here or by the caller, and not touched after the call but through the seat.
            let (settled, patience_us) = unsafe { run_claimed(self.header(seat), context) };
            match settled {
                Settled::Rerun if reruns < RERUNS => reruns += 1,
                Settled::Again | Settled::Rerun => {
                    tally.add(Tally {
                        settled: 0,
                        again: 1,
                        patience_us,
                    });
                    self.offer(seat);
                    return;
                }
                over => break over,
            }
        };
        if settled == Settled::FreeSlot {
            self.free(seat);
        }
        tally.settled += u32::from(settled != Settled::Recalled);
    }

    /// Calls `f` for every rack in which chores wait.
    pub fn each_waiting(&self, mut f: impl FnMut(usize)) {
        for (index, marked) in self.marked.iter().enumerate() {
            let mut left = marked.load(Ordering::SeqCst);
            while left != 0 {
                let rack = index * 64 + left.trailing_zeros() as usize;
                let bit = left & left.wrapping_neg();
                left &= left - 1;
                if self.any_ready(rack) {
                    f(rack);
                    continue;
                }
                // SYNC(rack-marked).
                marked.fetch_and(!bit, Ordering::SeqCst);
                total_order();
                if self.any_ready(rack) {
                    marked.fetch_or(bit, Ordering::SeqCst);
                    f(rack);
                }
            }
        }
    }

    /// Withdraws every chore that waits; those being run are not waited for. For the end of all runners.
    pub fn clear(&self) {
        for (number, rack) in self.racks.iter().enumerate() {
            for slot in 0..rack.slots.len() {
                let seat = seat(number, slot);
                if rack.ready[slot / 64].load(Ordering::Relaxed) >> (slot % 64) & 1 == 1 && self.claim(seat) {
                    // SAFETY: claimed just now.
                    let settled = unsafe { withdraw_claimed(self.header(seat)) };
                    if settled == Settled::FreeSlot {
                        self.free(seat);
                    }
                }
            }
        }
    }
}
