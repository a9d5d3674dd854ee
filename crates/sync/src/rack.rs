//! Racks: queues of chores that many threads fill and empty without a lock.
//!
//! A rack is a row of slots with two bitmaps, in blocks of 64. `taken` says which slots are somebody's; `ready` says which hold a chore that waits to be run.
//! Who clears a bit of `ready` owns that chore until it is settled or its bit is set again, so a chore that is run again and again keeps its slot and never
//! has two runners. Looking at an empty rack is one load of a line that stays shared between all who look (Algorithm 2 of the PIOMan paper, without its
//! lock), and nobody ever waits for a thread that was stopped halfway. Among the chores of one rack no order is promised; each walk gives every chore
//! that waited at its beginning one turn. Bounded: at most [`SLOTS_MAX`] chores per rack.

use crate::chore::{Header, Put, Refused, Settled, run_claimed, withdraw_claimed};
use crate::facade::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, prefetch_to_write, total_order};
use std::ptr::NonNull;

/// Blocks of a rack at most.
const BLOCKS_MAX: usize = 8;

/// Slots of a block: the bits of a word.
const BLOCK: usize = 64;

/// Chores that a rack holds at most.
pub const SLOTS_MAX: usize = BLOCKS_MAX * BLOCK;

/// Runs that are asked for during a run and follow it at once: more, and others get their turn first.
const RERUNS: u32 = 4;

/// Slots that lie beside the bitmaps. The lowest free slot is taken first, so a rack with few chores moves one pair of cache lines from submitter to
/// runner: bitmaps and chore together.
const NEAR: usize = 13;

/// 64 slots and their bitmaps.
#[repr(align(128))]
struct Block<C> {
    /// Slots whose chores wait to be run.
    ready: AtomicU64,
    /// Slots that are somebody's.
    taken: AtomicU64,
    /// Counts runs, roughly: two at once may count as one.
    runs: AtomicU32,
    near: [AtomicPtr<Header<C>>; NEAR],
    far: Box<[AtomicPtr<Header<C>>]>,
}

impl<C> Block<C> {
    fn new() -> Self {
        let none = || AtomicPtr::new(std::ptr::null_mut());
        Self {
            ready: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            runs: AtomicU32::new(0),
            near: std::array::from_fn(|_| none()),
            far: (NEAR..BLOCK).map(|_| none()).collect(),
        }
    }

    fn slot(&self, bit: usize) -> &AtomicPtr<Header<C>> {
        self.near.get(bit).unwrap_or_else(|| &self.far[bit - NEAR])
    }
}

#[repr(align(128))]
struct Rack<C> {
    /// Blocks that were ever used: nobody looks at the others. Grows before the first chore of a block is ready.
    used: AtomicUsize,
    blocks: Box<[Block<C>]>,
}

impl<C> Rack<C> {
    fn used(&self) -> &[Block<C>] {
        // SeqCst as the look at `ready`: SYNC(rack-poller).
        &self.blocks[..self.used.load(Ordering::SeqCst)]
    }
}

/// A set of racks that belong together, told apart by numbers, with a bitmap of those that may have something ready. Aligned so that the counts of an `Arc` around it, which change with
/// every chore that is made, lie on another line than what every walk reads.
#[repr(align(128))]
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
        let rack = |slots: &usize| Rack {
            used: AtomicUsize::new(1),
            blocks: (0..slots.div_ceil(BLOCK)).map(|_| Block::new()).collect(),
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

    fn place(&self, seat: u32) -> (&Block<C>, usize) {
        let (rack, slot) = (seat >> 16, seat as usize & 0xffff);
        (&self.racks[rack as usize].blocks[slot / BLOCK], slot % BLOCK)
    }

    /// Something is about to be put into a rack.
    #[inline]
    pub(crate) fn expect(&self, rack: usize) {
        if let Some(block) = self.racks.get(rack).and_then(|rack| rack.blocks.first()) {
            prefetch_to_write(std::ptr::from_ref(block));
        }
    }

    /// Takes a free slot for a chore.
    pub(crate) fn reserve(&self, number: usize, header: NonNull<Header<C>>) -> Result<u32, Refused> {
        let rack = self.racks.get(number).ok_or(Refused::Nowhere)?;
        for (index, block) in rack.blocks.iter().enumerate() {
            let mut seen = block.taken.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = (!seen).trailing_zeros();
                // Acquire: the slot's last chore is out of it. SYNC(rack-slot).
                seen = block.taken.fetch_or(1 << bit, Ordering::Acquire);
                if seen >> bit & 1 == 0 {
                    // The slot is ours; whoever reads it first clears the bit that `offer` sets afterwards.
                    block.slot(bit as usize).store(header.as_ptr(), Ordering::Relaxed);
                    if rack.used.load(Ordering::Relaxed) <= index {
                        rack.used.fetch_max(index + 1, Ordering::SeqCst);
                    }
                    return Ok(seat(number, index * BLOCK + bit as usize));
                }
            }
        }
        Err(Refused::Full)
    }

    /// Makes the chore of a slot ready to be run.
    pub(crate) fn offer(&self, seat: u32) -> Put {
        let (block, bit) = self.place(seat);
        // Release: the runner sees the chore and what its last run did: SYNC(rack-ready). SeqCst: who then looks for pollers, and a poller
        // that leaves and then looks here, cannot miss each other: SYNC(rack-poller).
        let before = block.ready.fetch_or(1 << bit, Ordering::SeqCst);
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
        let (block, bit) = self.place(seat);
        // Acquire: the chore. SYNC(rack-ready).
        block.ready.fetch_and(!(1 << bit), Ordering::Acquire) >> bit & 1 == 1
    }

    /// Gives a slot back. Its chore is settled and the caller the one to free it.
    pub(crate) fn free(&self, seat: u32) {
        let (block, bit) = self.place(seat);
        // Release: SYNC(rack-slot).
        block.taken.fetch_and(!(1 << bit), Ordering::Release);
    }

    /// The chore of a slot that the caller has claimed.
    pub(crate) fn header(&self, seat: u32) -> NonNull<Header<C>> {
        let (block, bit) = self.place(seat);
        let header = block.slot(bit).load(Ordering::Relaxed);
        NonNull::new(header).expect("a slot that was ever offered has had a chore")
    }

    /// Whether a chore waits in a rack. The price of an empty queue.
    #[inline]
    pub fn any_ready(&self, rack: usize) -> bool {
        let Some(rack) = self.racks.get(rack) else {
            return false;
        };
        // SeqCst for those who are about to sleep: SYNC(rack-poller). Costs no more than Acquire on x86-64.
        rack.used()
            .iter()
            .any(|block| block.ready.load(Ordering::SeqCst) != 0)
    }

    /// Runs every chore that waits in a rack, once. `round` changes from walk to walk, so that none is always the first.
    #[inline]
    pub fn run(&self, rack: usize, round: u32, context: &C) -> Tally {
        let mut tally = Tally::default();
        let Some(row) = self.racks.get(rack) else {
            return tally;
        };
        for (index, block) in row.used().iter().enumerate() {
            let ready = block.ready.load(Ordering::SeqCst);
            if ready != 0 {
                tally.add(self.run_block(block, seat(rack, index * BLOCK), (ready, round), context));
            }
        }
        tally
    }

    fn run_block(&self, block: &Block<C>, base: u32, (ready, round): (u64, u32), context: &C) -> Tally {
        let mut tally = Tally::default();
        let first = round % BLOCK as u32;
        let mut left = ready.rotate_right(first);
        let mut known = ready;
        while left != 0 {
            let bit = (left.trailing_zeros() + first) % BLOCK as u32;
            left &= left - 1;
            // Somebody else may have been quicker: then the line is not asked for.
            if known >> bit & 1 == 0 {
                continue;
            }
            let seat = base + bit;
            if self.claim(seat) {
                self.run_one(seat, context, &mut tally);
                let runs = block.runs.load(Ordering::Relaxed).wrapping_add(1);
                block.runs.store(runs, Ordering::Relaxed);
            }
            if left != 0 {
                known = block.ready.load(Ordering::Relaxed);
            }
        }
        tally
    }

    /// A number that changes when chores of a rack are run.
    pub fn runs(&self, rack: usize) -> u32 {
        let blocks = self.racks.get(rack).map_or(&[][..], Rack::used);
        let runs = blocks.iter().map(|block| block.runs.load(Ordering::Relaxed));
        runs.fold(0, u32::wrapping_add)
    }

    fn run_one(&self, seat: u32, context: &C, tally: &mut Tally) {
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
            for (index, block) in rack.used().iter().enumerate() {
                let mut left = block.ready.load(Ordering::Acquire);
                while left != 0 {
                    let seat = seat(number, index * BLOCK) + left.trailing_zeros();
                    left &= left - 1;
                    if self.claim(seat) {
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
}
