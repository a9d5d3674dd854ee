//! Task queues: slots with bitmaps, which many threads fill and empty without a lock.
//!
//! A queue is a row of slots in blocks of 64, with two bitmaps per block. `taken` marks slots that
//! are in use; `ready` marks slots whose task waits to be run. The thread that clears a bit of
//! `ready` owns that task until the task is settled or the bit is set again. So a task that is run
//! repeatedly keeps its slot and never has two runners. To look at an empty queue is one load of a
//! line that stays in the caches of those who look (Algorithm 2 of the PIOMan paper, without its
//! lock). Nobody waits for a thread that was stopped halfway. A queue promises no order; each walk
//! runs every task once that waited at its beginning. Bounded: [`TASKS_MAX`] tasks per queue, and
//! one in its LIFO slot.
//!
//! # The LIFO slot
//!
//! The first block has a slot in one word, for tasks that come one at a time. The word says whether
//! the slot is in use, whether its task is ready, and which task that is. So one exchange puts a
//! task there and one takes it. A submission then writes the line of the bitmaps once; with two
//! writes, threads that look at the line would take it away in between. While the LIFO slot is in
//! use, further tasks take ordinary slots. A task that is to be run again leaves the LIFO slot if a
//! slot is free.

use crate::facade::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, prefetch_to_write, total_order,
};
use crate::task_node::{
    EnqueueError, Enqueued, RunVerdict, TaskHeader, cancel_claimed_task, move_claimed_task,
    run_claimed_task,
};
use std::ptr::NonNull;

/// Blocks of a queue at most.
const BLOCKS_MAX: usize = 8;

/// Slots of a block: the bits of a word.
const BLOCK: usize = 64;

/// Tasks that a queue holds at most, but for the one in its LIFO slot.
pub const TASKS_MAX: usize = BLOCKS_MAX * BLOCK;

/// Runs that are asked for during a run and follow it at once: more, and others get their turn
/// first.
const RERUNS: u32 = 4;

/// Slots that lie beside the bitmaps. The lowest free slot is taken first, so a queue with few
/// tasks moves one pair of cache lines from submitter to runner: bitmaps, post and task together.
const NEAR: usize = 12;

/// What stands for a slot in a slot that is the LIFO slot.
const LIFO_SLOT: usize = 0xffff;

/// Set in the address in a LIFO slot whose task does not wait: somebody has it. Tasks lie at even
/// addresses.
const CLAIMED: usize = 1;

/// 64 slots and their bitmaps.
#[repr(align(128))]
struct SlotBlock<C> {
    /// A task, with [`CLAIMED`] or without; null: free. Only the first block's is used.
    post: AtomicPtr<TaskHeader<C>>,
    /// Slots whose tasks wait to be run.
    ready: AtomicU64,
    /// Slots that are somebody's.
    taken: AtomicU64,
    /// Counts runs, roughly: two at once may count as one.
    runs: AtomicU32,
    near: [AtomicPtr<TaskHeader<C>>; NEAR],
    far: Box<[AtomicPtr<TaskHeader<C>>]>,
}

/// The task that waits in a LIFO slot.
fn waiting<C>(post: *mut TaskHeader<C>) -> Option<NonNull<TaskHeader<C>>> {
    NonNull::new(post).filter(|header| header.addr().get() & CLAIMED == 0)
}

impl<C> SlotBlock<C> {
    fn new() -> Self {
        let none = || AtomicPtr::new(std::ptr::null_mut());
        Self {
            post: none(),
            ready: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            runs: AtomicU32::new(0),
            near: std::array::from_fn(|_| none()),
            far: (NEAR..BLOCK).map(|_| none()).collect(),
        }
    }

    fn slot(&self, bit: usize) -> &AtomicPtr<TaskHeader<C>> {
        self.near.get(bit).unwrap_or_else(|| &self.far[bit - NEAR])
    }

    /// Takes the task of a slot out of the hands of other runners. `false`: one has it.
    fn claim(&self, bit: usize) -> bool {
        // Acquire: the task. SYNC(rack-ready).
        self.ready.fetch_and(!(1 << bit), Ordering::Acquire) >> bit & 1 == 1
    }

    /// Claims the task in the LIFO slot, if `header` is still ready there. A task that left and
    /// came back meanwhile is ready as well.
    fn claim_lifo_slot(&self, header: *mut TaskHeader<C>) -> Option<NonNull<TaskHeader<C>>> {
        let held = header.map_addr(|address| address | CLAIMED);
        // Acquire: the task. SYNC(rack-ready).
        let claimed =
            self.post
                .compare_exchange(header, held, Ordering::Acquire, Ordering::Relaxed);
        claimed.ok().and_then(NonNull::new)
    }

    fn any_ready(&self) -> bool {
        // SeqCst for those who are about to sleep: SYNC(rack-poller). Costs no more than Acquire on
        // x86-64.
        waiting(self.post.load(Ordering::SeqCst)).is_some()
            || self.ready.load(Ordering::SeqCst) != 0
    }

    fn count_run(&self) {
        let runs = self.runs.load(Ordering::Relaxed).wrapping_add(1);
        self.runs.store(runs, Ordering::Relaxed);
    }
}

#[repr(align(128))]
struct TaskQueue<C> {
    /// Blocks that were ever used: nobody looks at the others. Grows before the first task of a
    /// block is ready.
    used: AtomicUsize,
    blocks: Box<[SlotBlock<C>]>,
}

impl<C> TaskQueue<C> {
    fn used(&self) -> &[SlotBlock<C>] {
        // SeqCst as the look at `ready`: SYNC(rack-poller).
        &self.blocks[..self.used.load(Ordering::SeqCst)]
    }
}

/// A set of queues that belong together, told apart by numbers, with a bitmap of those that may
/// have something ready. Aligned so that the counts of an `Arc` around it, which change with every
/// task that is made, lie on another line than what every walk reads.
#[repr(align(128))]
pub struct TaskQueues<C> {
    queues: Box<[TaskQueue<C>]>,
    /// A queue's bit is set before or soon after its first task is ready, and only cleared by those
    /// who look for it. SYNC(rack-marked).
    nonempty_hints: Box<[AtomicU64]>,
}

/// Counts of a walk over queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTally {
    /// Tasks that were settled.
    pub settled: u32,
    /// Tasks that were run and want to be run again.
    pub rerun: u32,
    /// The least patience among the latter, in microseconds; 0: none of them says.
    pub patience_us: u32,
}

impl RunTally {
    /// Nothing was run.
    pub fn is_empty(&self) -> bool {
        self.settled == 0 && self.rerun == 0
    }

    /// Adds another walk's.
    pub fn add(&mut self, other: Self) {
        self.settled += other.settled;
        self.rerun += other.rerun;
        self.patience_us = match (self.patience_us, other.patience_us) {
            (0, us) | (us, 0) => us,
            (a, b) => a.min(b),
        };
    }
}

impl<C> std::fmt::Debug for TaskQueues<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskQueues")
            .field("racks", &self.queues.len())
            .finish_non_exhaustive()
    }
}

fn seat(rack: usize, slot: usize) -> u32 {
    (rack as u32) << 16 | slot as u32
}

/// Queues are numbered with 16 bits of a slot.
pub const QUEUES_MAX: usize = 1 << 16;

impl<C> TaskQueues<C> {
    /// Queues with room for this many tasks each, rounded up to 64. `None`: more than
    /// [`QUEUES_MAX`] queues, or a queue of none or of more than [`TASKS_MAX`].
    pub fn new(slots: &[usize]) -> Option<Self> {
        if slots.len() > QUEUES_MAX || slots.iter().any(|slots| !(1..=TASKS_MAX).contains(slots)) {
            return None;
        }
        let rack = |slots: &usize| TaskQueue {
            used: AtomicUsize::new(1),
            blocks: (0..slots.div_ceil(BLOCK))
                .map(|_| SlotBlock::new())
                .collect(),
        };
        Some(Self {
            queues: slots.iter().map(rack).collect(),
            nonempty_hints: (0..slots.len().div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        })
    }

    /// Number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns whether there is no queue.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The block of a slot, and the bit if it is not the LIFO slot.
    fn place(&self, seat: u32) -> (&SlotBlock<C>, usize) {
        let (rack, slot) = (&self.queues[Self::queue_of(seat)], seat as usize & 0xffff);
        match slot {
            LIFO_SLOT => (&rack.blocks[0], 0),
            _ => (&rack.blocks[slot / BLOCK], slot % BLOCK),
        }
    }

    /// Something is about to be put into a queue.
    #[inline]
    pub(crate) fn expect(&self, rack: usize) {
        if let Some(block) = self.first(rack) {
            prefetch_to_write(std::ptr::from_ref(block));
        }
    }

    fn first(&self, rack: usize) -> Option<&SlotBlock<C>> {
        self.queues.get(rack).and_then(|rack| rack.blocks.first())
    }

    /// A slot for a task that is about to be put: the LIFO slot if that is free, which is its own
    /// only after [`TaskQueues::post`], else a slot.
    pub(crate) fn find(
        &self,
        rack: usize,
        header: NonNull<TaskHeader<C>>,
    ) -> Result<u32, EnqueueError> {
        let first = self.first(rack).ok_or(EnqueueError::Nowhere)?;
        // So that there is a slot for it if somebody else is quicker at the LIFO slot.
        let room = first.taken.load(Ordering::Relaxed) != u64::MAX;
        match room && first.post.load(Ordering::Relaxed).is_null() {
            true => Ok(seat(rack, LIFO_SLOT)),
            false => self.reserve_slot(rack, header),
        }
    }

    /// Takes a free slot for a task.
    pub(crate) fn reserve_slot(
        &self,
        number: usize,
        header: NonNull<TaskHeader<C>>,
    ) -> Result<u32, EnqueueError> {
        let rack = self.queues.get(number).ok_or(EnqueueError::Nowhere)?;
        for (index, block) in rack.blocks.iter().enumerate() {
            let mut seen = block.taken.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = (!seen).trailing_zeros();
                // Acquire: the slot's last task is out of it. SYNC(rack-slot).
                seen = block.taken.fetch_or(1 << bit, Ordering::Acquire);
                if seen >> bit & 1 == 0 {
                    // The slot is ours; whoever reads it first clears the bit that `offer` sets
                    // afterwards.
                    block
                        .slot(bit as usize)
                        .store(header.as_ptr(), Ordering::Relaxed);
                    if rack.used.load(Ordering::Relaxed) <= index {
                        rack.used.fetch_max(index + 1, Ordering::SeqCst);
                    }
                    return Ok(seat(number, index * BLOCK + bit as usize));
                }
            }
        }
        Err(EnqueueError::Full)
    }

    /// The queue of a slot.
    pub(crate) fn queue_of(seat: u32) -> usize {
        seat as usize >> 16
    }

    /// Returns whether a slot is the LIFO slot.
    pub(crate) fn is_lifo_slot(seat: u32) -> bool {
        seat as usize & LIFO_SLOT == LIFO_SLOT
    }

    /// Puts a task that has the LIFO slot as its slot there and makes it ready to be run. `None`:
    /// another came first.
    pub(crate) fn post(&self, seat: u32, header: NonNull<TaskHeader<C>>) -> Option<Enqueued> {
        let post = &self.place(seat).0.post;
        // Acquire: the LIFO slot's last task is out of it. SYNC(rack-slot). The rest as in `offer`.
        let free = std::ptr::null_mut();
        let posted =
            post.compare_exchange(free, header.as_ptr(), Ordering::SeqCst, Ordering::Relaxed);
        posted.ok()?;
        total_order();
        self.mark(Self::queue_of(seat));
        // Those in slots are not counted: a runner has the line by now, and whoever comes while
        // this one waits counts them.
        Some(Enqueued { ready_before: 0 })
    }

    /// Makes the task of a slot, or of a LIFO slot that is its own, ready to be run.
    pub(crate) fn offer(&self, seat: u32, header: NonNull<TaskHeader<C>>) -> Enqueued {
        let (block, bit) = self.place(seat);
        // Release: the runner sees the task and what its last run did: SYNC(rack-ready). SeqCst:
        // who then looks for pollers, and a poller that leaves and then looks here, cannot miss
        // each other: SYNC(rack-poller).
        let before = if Self::is_lifo_slot(seat) {
            block.post.swap(header.as_ptr(), Ordering::SeqCst);
            0
        } else {
            block
                .ready
                .fetch_or(1 << bit, Ordering::SeqCst)
                .count_ones()
        };
        total_order();
        self.mark(Self::queue_of(seat));
        Enqueued {
            ready_before: before,
        }
    }

    fn mark(&self, rack: usize) {
        let bit = 1 << (rack % 64);
        let marked = &self.nonempty_hints[rack / 64];
        // SeqCst with `for_each_nonempty`: either it sees the task or we see the mark gone.
        // SYNC(rack-marked).
        if marked.load(Ordering::SeqCst) & bit == 0 {
            marked.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Takes the task of a slot, which lies at this address, out of the hands of runners, and
    /// returns it as it was put. `None`: one has it, or it is not there any longer.
    pub(crate) fn claim(
        &self,
        seat: u32,
        header: *const TaskHeader<C>,
    ) -> Option<NonNull<TaskHeader<C>>> {
        let (block, bit) = self.place(seat);
        match Self::is_lifo_slot(seat) {
            true => block.claim_lifo_slot(header.cast_mut()),
            false => block.claim(bit).then(|| self.header(seat)),
        }
    }

    /// Gives a slot back. Its task is settled and the caller the one to free it.
    pub(crate) fn free(&self, seat: u32) {
        let (block, bit) = self.place(seat);
        // Release: SYNC(rack-slot).
        if Self::is_lifo_slot(seat) {
            block.post.store(std::ptr::null_mut(), Ordering::Release);
            return;
        }
        block.taken.fetch_and(!(1 << bit), Ordering::Release);
    }

    /// The task of a slot that the caller has claimed.
    pub(crate) fn header(&self, seat: u32) -> NonNull<TaskHeader<C>> {
        let (block, bit) = self.place(seat);
        let header = block.slot(bit).load(Ordering::Relaxed);
        NonNull::new(header).expect("a slot that was ever offered has had a chore")
    }

    /// Returns whether a task waits in a queue. The price of an empty queue.
    #[inline]
    pub fn any_ready(&self, rack: usize) -> bool {
        let Some(rack) = self.queues.get(rack) else {
            return false;
        };
        rack.used().iter().any(SlotBlock::any_ready)
    }

    /// Runs every task that waits in a queue, once. `round` changes from walk to walk, so that none
    /// is always the first.
    #[inline]
    pub fn run(&self, rack: usize, round: u32, context: &C) -> RunTally {
        let mut tally = RunTally::default();
        let Some(row) = self.queues.get(rack) else {
            return tally;
        };
        for (index, block) in row.used().iter().enumerate() {
            let posted = waiting(block.post.load(Ordering::SeqCst));
            // Before the run: one that leaves the LIFO slot to be run again has had its turn.
            let ready = block.ready.load(Ordering::SeqCst);
            if let Some(header) = posted.and_then(|header| block.claim_lifo_slot(header.as_ptr())) {
                block.count_run();
                self.run_one(header, context, &mut tally);
            }
            if ready != 0 {
                tally.add(self.run_block(
                    block,
                    seat(rack, index * BLOCK),
                    (ready, round),
                    context,
                ));
            }
        }
        tally
    }

    fn run_block(
        &self,
        block: &SlotBlock<C>,
        base: u32,
        (ready, round): (u64, u32),
        context: &C,
    ) -> RunTally {
        let mut tally = RunTally::default();
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
            if block.claim(bit as usize) {
                block.count_run();
                self.run_one(self.header(base + bit), context, &mut tally);
            }
            if left != 0 {
                known = block.ready.load(Ordering::Relaxed);
            }
        }
        tally
    }

    /// A number that changes when tasks of a queue are run.
    pub fn runs(&self, rack: usize) -> u32 {
        let blocks = self.queues.get(rack).map_or(&[][..], TaskQueue::used);
        let runs = blocks
            .iter()
            .map(|block| block.runs.load(Ordering::Relaxed));
        runs.fold(0, u32::wrapping_add)
    }

    /// Runs a task that the caller has claimed.
    fn run_one(&self, header: NonNull<TaskHeader<C>>, context: &C, tally: &mut RunTally) {
        let mut reruns = 0;
        let over = loop {
            // SAFETY: claimed, and not touched after the call, unless it is to be run again.
            let ran = unsafe { run_claimed_task(header, context) };
            match ran.settled {
                RunVerdict::Rerun if reruns < RERUNS => reruns += 1,
                RunVerdict::Again | RunVerdict::Rerun => {
                    tally.add(RunTally {
                        settled: 0,
                        rerun: 1,
                        patience_us: ran.patience_us,
                    });
                    self.make_ready_again(ran.queue_slot, header);
                    return;
                }
                _ => break ran,
            }
        };
        if over.settled == RunVerdict::FreeSlot {
            self.free(over.queue_slot);
        }
        tally.settled += u32::from(over.settled != RunVerdict::Cancelled);
    }

    /// Makes a claimed task ready to be run again. One that is in the LIFO slot leaves it to those
    /// that are run once.
    fn make_ready_again(&self, seat: u32, header: NonNull<TaskHeader<C>>) {
        if Self::is_lifo_slot(seat)
            && let Ok(slot) = self.reserve_slot(Self::queue_of(seat), header)
        {
            // SAFETY: claimed by the caller.
            unsafe { move_claimed_task(header, slot) };
            self.free(seat);
            self.offer(slot, header);
            return;
        }
        self.offer(seat, header);
    }

    /// Calls `f` for every queue in which tasks wait.
    pub fn for_each_nonempty(&self, mut f: impl FnMut(usize)) {
        for (index, marked) in self.nonempty_hints.iter().enumerate() {
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

    /// Withdraws every task that waits; those being run are not waited for. For the end of all
    /// runners.
    pub fn clear(&self) {
        for (number, rack) in self.queues.iter().enumerate() {
            for (index, block) in rack.used().iter().enumerate() {
                let posted = waiting(block.post.load(Ordering::Acquire));
                if let Some(header) =
                    posted.and_then(|header| block.claim_lifo_slot(header.as_ptr()))
                {
                    self.withdraw(seat(number, LIFO_SLOT), header);
                }
                let mut left = block.ready.load(Ordering::Acquire);
                while left != 0 {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    if block.claim(bit as usize) {
                        let seat = seat(number, index * BLOCK) + bit;
                        self.withdraw(seat, self.header(seat));
                    }
                }
            }
        }
    }

    /// Withdraws a task that the caller has claimed.
    fn withdraw(&self, seat: u32, header: NonNull<TaskHeader<C>>) {
        // SAFETY: claimed, and not touched afterwards.
        if unsafe { cancel_claimed_task(header) } == RunVerdict::FreeSlot {
            self.free(seat);
        }
    }
}
