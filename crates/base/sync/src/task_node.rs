//! A task node: a unit of work that lies in its owner's memory and is linked into task queues.
//!
//! Submitting a node allocates nothing, because a queue ([`crate::task_slots`]) keeps its address.
//! The address stays valid in one of two ways. A pinned node is cancelled by its drop, which waits
//! for a run that goes on. A node in an `Arc` is kept alive by a count that the queue holds. A node
//! is in one queue at a time and run by one thread at a time. Any thread may enqueue, cancel or
//! wait for it. The word `state` holds its state; the bits are defined below.

use crate::backoff::WaitBackoff;
use crate::facade::{AtomicU32, AtomicUsize, Ordering, me, prefetch_to_write, relax};
use crate::task_slots::TaskQueues;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;

/// Result of a run, as the work returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The work is done.
    Done,
    /// The task is to be run again and stays in its queue.
    Again,
}

/// The work of a task. `C` is what a run is told about where and when it happens.
pub trait TaskWork<C>: Send + Sync + 'static {
    /// Does a part of it. Must not block. A panic ends the task, not the thread.
    fn run(&self, context: &C) -> RunOutcome;
}

impl<C, F: Fn(&C) -> RunOutcome + Send + Sync + 'static> TaskWork<C> for F {
    fn run(&self, context: &C) -> RunOutcome {
        self(context)
    }
}

/// Place where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Never put, or refused.
    New,
    /// In a queue, or being run.
    Pending,
    /// The last run reported the end of the work.
    Done,
    /// Taken back.
    Cancelled,
    /// The last run panicked.
    Failed,
}

/// Why a task was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueError {
    /// The task is in a queue already, or another thread is cancelling it.
    Pending,
    /// The queue has no room.
    Full,
    /// There is no such queue.
    Nowhere,
}

/// The end of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// The task is in no queue and nobody runs it. The value is its final state.
    Settled(TaskState),
    /// Asked by its own run: it will not be run again after this run.
    AfterThisRun,
}

// Bits of `state`. KIND: the life. The others only mean something while it is pending, but RECALL,
// which lasts until the canceller has let go.
const STATE_MASK: u32 = 0b111;
const NEW: u32 = 0;
/// Being put: nobody else may change anything.
const ENQUEUEING: u32 = 1;
const PENDING: u32 = 2;
const DONE: u32 = 3;
const CANCELLED: u32 = 4;
const FAILED: u32 = 5;
/// Somebody sleeps on the word.
const HAS_WAITER: u32 = 1 << 3;
/// Somebody takes it back, and frees its slot.
const CANCELLING: u32 = 1 << 4;
/// The task is to be run once more even if its current run reports the end.
const RERUN: u32 = 1 << 5;
/// The task is not to be run again after the current run.
const CANCEL_AFTER_RUN: u32 = 1 << 6;
/// The queue holds a count of its `Arc`.
const SHARED: u32 = 1 << 7;
/// The rest counts how often it was put, so that a waiter is not misled by the next time.
const GENERATION: u32 = 1 << 8;
const GENERATION_MASK: u32 = !(GENERATION - 1);

type RunFn<C> = unsafe fn(NonNull<TaskHeader<C>>, &C) -> RunOutcome;

struct TaskVtable<C> {
    /// Calls the work. The header must be that of a live task of the table's type.
    run: RunFn<C>,
    /// Gives back the count that `enqueue_shared` took.
    release: unsafe fn(NonNull<TaskHeader<C>>),
}

/// Part of a task that queues know. First field of every task.
#[repr(C)]
pub(crate) struct TaskHeader<C> {
    // What a runner writes comes first, so that it lies on one line.
    state: AtomicU32,
    /// Rack and slot while pending, as `TaskQueues` packs them. Changes while it is pending only
    /// from the LIFO slot to a slot, before the task is offered there.
    queue_slot: AtomicU32,
    /// Who runs it, as `me()`; 0: nobody. Only compared with oneself.
    runner: AtomicUsize,
    table: TaskVtable<C>,
    /// See [`TaskNode::patience_us`].
    patience_us: u32,
}

/// A unit of work and its link into a task queue. The submitter owns it, pinned or in an `Arc`.
/// Order of calls: [`TaskNode::new`]; then `put` or `enqueue_shared`, as often as the last run has
/// ended; then [`TaskNode::wait`] or `withdraw`. Dropping the node cancels it.
#[repr(C)]
pub struct TaskNode<W: TaskWork<C>, C: 'static> {
    header: TaskHeader<C>,
    work: W,
    /// Keeps the queues alive for as long as they may be needed to take this back.
    racks: Arc<TaskQueues<C>>,
    _pinned: PhantomPinned,
}

// SAFETY: queues keep headers by address and hand them between threads; `state` and the queues'
// bits order all accesses (see `rack`), and the work itself is Send and Sync.
unsafe impl<W: TaskWork<C>, C: 'static> Send for TaskNode<W, C> {}
// SAFETY: as above; every method takes `&self` and goes through atomics.
unsafe impl<W: TaskWork<C>, C: 'static> Sync for TaskNode<W, C> {}

impl<W: TaskWork<C>, C: 'static> std::fmt::Debug for TaskNode<W, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskNode")
            .field("life", &self.life())
            .finish_non_exhaustive()
    }
}

/// Verdict on a task, before a run or from settling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunVerdict {
    /// Settled; the runner frees the slot.
    FreeSlot,
    /// Settled; a canceller frees the slot.
    KeepSlot,
    /// The task is to be run again: the runner makes its slot ready.
    Again,
    /// The run ended, but another thread wants one more run at once: the runner keeps the task.
    Rerun,
    /// Somebody takes it back: it was not run, and that one frees the slot.
    Cancelled,
}

/// Result of a run for its runner, when the task may be gone.
pub(crate) struct RunResult {
    pub(crate) settled: RunVerdict,
    pub(crate) queue_slot: u32,
    pub(crate) patience_us: u32,
}

impl<W: TaskWork<C>, C: 'static> TaskNode<W, C> {
    /// A task that will be put into one of `racks`. `patience_us`: how long it may wait between
    /// two runs when it is run again and again without success, in microseconds; 0: it does not
    /// say.
    pub fn new(racks: &Arc<TaskQueues<C>>, patience_us: u32, work: W) -> Self {
        Self {
            header: TaskHeader {
                table: TaskVtable {
                    run: run_erased::<W, C>,
                    release: release_erased::<W, C>,
                },
                state: AtomicU32::new(NEW),
                queue_slot: AtomicU32::new(0),
                runner: AtomicUsize::new(0),
                patience_us,
            },
            work,
            racks: racks.clone(),
            _pinned: PhantomPinned,
        }
    }

    /// The work, for whoever wants to look at its results.
    pub fn work(&self) -> &W {
        &self.work
    }

    /// The queues that it is made for.
    pub fn racks(&self) -> &Arc<TaskQueues<C>> {
        &self.racks
    }

    /// Returns how long it may wait between two fruitless runs, in microseconds; 0: it does not
    /// say.
    pub fn patience_us(&self) -> u32 {
        self.header.patience_us
    }

    /// Returns where it is in its life. Whoever sees it settled sees what its runs did.
    #[inline]
    pub fn life(&self) -> TaskState {
        // Acquire: what the runs wrote is seen. SYNC(chore-settled).
        life(self.header.state.load(Ordering::Acquire))
    }

    /// Puts it into queue `rack`. It stays where it is, and its drop takes it back.
    pub fn put(self: Pin<&Self>, rack: usize) -> Result<Enqueued, EnqueueError> {
        let whole: &Self = &self;
        whole.enqueue_as(rack, NonNull::from(whole).cast(), 0)
    }

    /// Puts it into queue `rack`, which holds a count of the `Arc` until it is settled.
    pub fn enqueue_shared(self: &Arc<Self>, rack: usize) -> Result<Enqueued, EnqueueError> {
        // The count is there before the queue can give it back.
        let held = Arc::into_raw(self.clone());
        // SAFETY: what `into_raw` returns is never null.
        let header = unsafe { NonNull::new_unchecked(held.cast_mut()) };
        self.enqueue_as(rack, header.cast(), SHARED)
            .inspect_err(|_| {
                // SAFETY: the count just taken, which nobody else knows of, since the task was
                // refused.
                drop(unsafe { Arc::from_raw(held) });
            })
    }

    /// Enqueues the task as `enqueue_shared` does. If it is pending already, makes sure that a
    /// whole run begins after this call, and returns `None`.
    pub fn poke(self: &Arc<Self>, rack: usize) -> Result<Option<Enqueued>, EnqueueError> {
        loop {
            match self.enqueue_shared(rack) {
                Err(EnqueueError::Pending) => {}
                other => return other.map(Some),
            }
            if self.header.flag(RERUN) {
                return Ok(None);
            }
            relax();
        }
    }

    /// `header` is this task's address, with the right to all of it and, if `shared` says so, to
    /// its `Arc`.
    fn enqueue_as(
        &self,
        rack: usize,
        header: NonNull<TaskHeader<C>>,
        shared: u32,
    ) -> Result<Enqueued, EnqueueError> {
        let state = &self.header.state;
        // The queue's line comes while the task's does.
        self.racks.expect(rack);
        let mut old = state.load(Ordering::Relaxed);
        loop {
            if matches!(old & STATE_MASK, PENDING | ENQUEUEING) || old & CANCELLING != 0 {
                return Err(EnqueueError::Pending);
            }
            // Acquire: the last run is over before the next begins. SYNC(chore-settled).
            match state.compare_exchange_weak(
                old,
                old & GENERATION_MASK | ENQUEUEING,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        let slot = match self.racks.find(rack, header) {
            Ok(slot) => slot,
            Err(refused) => {
                state.store(old & GENERATION_MASK | NEW, Ordering::Release);
                return Err(refused);
            }
        };
        self.header.queue_slot.store(slot, Ordering::Relaxed);
        // Release: cancellers that see it pending see its slot. SYNC(chore-seat).
        let turn = (old & GENERATION_MASK).wrapping_add(GENERATION);
        state.store(turn | PENDING | shared, Ordering::Release);
        if !TaskQueues::<C>::is_lifo_slot(slot) {
            return Ok(self.racks.offer(slot, header));
        }
        let posted = self.racks.post(slot, header);
        Ok(posted.unwrap_or_else(|| self.enqueue_beside_lifo(slot, header)))
    }

    /// Somebody else was quicker at the LIFO slot. There was a free slot just now; should all be
    /// taken meanwhile, whatever is settled first leaves room.
    #[cold]
    fn enqueue_beside_lifo(&self, post: u32, header: NonNull<TaskHeader<C>>) -> Enqueued {
        let rack = TaskQueues::<C>::queue_of(post);
        loop {
            if let Ok(slot) = self.racks.reserve_slot(rack, header) {
                // Withdrawers that see it pending ask again where it is until they have it.
                self.header.queue_slot.store(slot, Ordering::Relaxed);
                return self.racks.offer(slot, header);
            }
            if let Some(put) = self.racks.post(post, header) {
                return put;
            }
            relax();
        }
    }

    /// Returns whether the caller is within its run: then it cannot be waited for.
    pub fn runs_here(&self) -> bool {
        let me = me();
        me != 0 && self.header.runner.load(Ordering::Relaxed) == me
    }

    /// Takes it back: afterwards it is in no queue and nobody runs it. Waits for a run that goes
    /// on, but not for one that has not begun.
    pub fn withdraw(&self) -> Cancellation {
        let header = &self.header;
        if self.runs_here() {
            header.flag(CANCEL_AFTER_RUN);
            return Cancellation::AfterThisRun;
        }
        let mut patience = WaitBackoff::default();
        loop {
            let state = header.state.load(Ordering::Acquire);
            match state & STATE_MASK {
                // Somebody else puts it or takes it back at this moment.
                ENQUEUEING => patience.rest(&header.state, state),
                _ if state & CANCELLING != 0 => patience.rest(&header.state, state),
                PENDING => {
                    let recalled = header.state.compare_exchange(
                        state,
                        state | CANCELLING,
                        // Acquire: the slot. SYNC(chore-seat).
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if recalled.is_ok() {
                        return Cancellation::Settled(self.finish_cancel());
                    }
                }
                _ => return Cancellation::Settled(life(state)),
            }
        }
    }

    /// The only canceller: takes it out of its slot, or waits for whoever has taken it out. The
    /// slot is nobody else's meanwhile: a runner that settles it sees RECALL and leaves the slot.
    fn finish_cancel(&self) -> TaskState {
        let header = &self.header;
        let mut patience = WaitBackoff::default();
        loop {
            // It may be on its way from the LIFO slot to a slot.
            let slot = header.queue_slot.load(Ordering::Relaxed);
            if let Some(claimed) = self.racks.claim(slot, header) {
                // SAFETY: claimed, so nobody runs it; the task lives, `self` says so.
                unsafe { settle_claimed(claimed, CANCELLED) };
                break;
            }
            // Acquire: what the last run did. SYNC(chore-settled).
            let state = header.state.load(Ordering::Acquire);
            if state & STATE_MASK != PENDING {
                break;
            }
            patience.rest(&header.state, state);
        }
        // Nobody moves it any more.
        self.racks.free(header.queue_slot.load(Ordering::Relaxed));
        // Release: the slot is free before the next put or drop. Wakes nobody: waiters look for the
        // kind.
        life(header.state.fetch_and(!CANCELLING, Ordering::AcqRel))
    }

    /// Waits until it is settled, sleeping. `false`: the time was over.
    #[cfg(not(loom))]
    pub fn wait(&self, timeout: Option<std::time::Duration>) -> bool {
        use crate::futex;
        let state = &self.header.state;
        let begun = state.load(Ordering::Acquire);
        let deadline = timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
        let mut now = begun;
        while matches!(now & STATE_MASK, PENDING | ENQUEUEING)
            && now & GENERATION_MASK == begun & GENERATION_MASK
        {
            let left = deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if now & STATE_MASK == ENQUEUEING {
                relax();
            } else if self.header.flag(HAS_WAITER) {
                let waited = state.load(Ordering::Relaxed);
                if waited & STATE_MASK == PENDING && waited & HAS_WAITER != 0 {
                    futex::wait(state, waited, left);
                }
            }
            now = state.load(Ordering::Acquire);
        }
        true
    }
}

/// Result of `put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// How many tasks of the same 64 slots waited already for somebody to run them.
    pub ready_before: u32,
}

impl<W: TaskWork<C>, C: 'static> Drop for TaskNode<W, C> {
    fn drop(&mut self) {
        if self.withdraw() == Cancellation::AfterThisRun {
            // The memory that the run stands on goes away below it: there is no sound way on.
            dropped_by_its_own_run();
        }
    }
}

extern "C" fn dropped_by_its_own_run() -> ! {
    // Leaving a C function by a panic aborts, with the message.
    panic!("a task that is not in an Arc was dropped by its own run")
}

impl<C> TaskHeader<C> {
    /// Sets `flag` if it is pending.
    fn flag(&self, flag: u32) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & STATE_MASK == PENDING {
            match self.state.compare_exchange_weak(
                state,
                state | flag,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }
}

fn life(state: u32) -> TaskState {
    match state & STATE_MASK {
        PENDING | ENQUEUEING => TaskState::Pending,
        DONE => TaskState::Done,
        CANCELLED => TaskState::Cancelled,
        FAILED => TaskState::Failed,
        _ => TaskState::New,
    }
}

/// Gives a claimed task another slot.
///
/// # Safety
/// The caller claimed the task.
pub(crate) unsafe fn move_claimed_task<C>(header: NonNull<TaskHeader<C>>, slot: u32) {
    // SAFETY: as above.
    unsafe { header.as_ref() }
        .queue_slot
        .store(slot, Ordering::Relaxed);
}

/// Runs a claimed task and settles it, or says that its slot is to be made ready again.
///
/// # Safety
/// The caller claimed the task, and does not touch the header afterwards.
pub(crate) unsafe fn run_claimed_task<C>(header: NonNull<TaskHeader<C>>, context: &C) -> RunResult {
    // The line comes once and for writing, not first for reading.
    prefetch_to_write(header.as_ptr());
    // SAFETY: a claimed task is pending, and its owner keeps it alive until it is settled.
    let (state, queue_slot, patience_us, run) = unsafe {
        let header = header.as_ref();
        header.runner.store(me(), Ordering::Relaxed);
        (
            header.state.load(Ordering::Acquire),
            header.queue_slot.load(Ordering::Relaxed),
            header.patience_us,
            header.table.run,
        )
    };
    let ran = |settled| RunResult {
        settled,
        queue_slot,
        patience_us,
    };
    if state & CANCELLING != 0 {
        // SAFETY: as above; claimed, not running.
        unsafe {
            header.as_ref().runner.store(0, Ordering::Relaxed);
            settle_claimed(header, CANCELLED);
        }
        return ran(RunVerdict::Cancelled);
    }
    // SAFETY: the table's function fits its task, which lives.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe {
        run(header, context)
    }));
    // SAFETY: as above: still claimed by us.
    unsafe { header.as_ref() }
        .runner
        .store(0, Ordering::Relaxed);
    let kind = match result {
        Ok(RunOutcome::Done) => DONE,
        Ok(RunOutcome::Again) => PENDING,
        Err(payload) => {
            // Its drop might panic in turn.
            std::mem::forget(payload);
            FAILED
        }
    };
    // SAFETY: as above.
    ran(unsafe { settle_claimed(header, kind) })
}

/// Settles a claimed task as withdrawn.
///
/// # Safety
/// The caller claimed the task, and does not touch the header afterwards.
pub(crate) unsafe fn cancel_claimed_task<C>(header: NonNull<TaskHeader<C>>) -> RunVerdict {
    // SAFETY: the caller's promise.
    unsafe { settle_claimed(header, CANCELLED) }
}

/// Ends a claimed task's turn as `kind`; PENDING: it asks to be run again. After the answers other
/// than `Again` and `Rerun` the task may be gone.
///
/// # Safety
/// The caller claimed the task.
unsafe fn settle_claimed<C>(header: NonNull<TaskHeader<C>>, kind: u32) -> RunVerdict {
    // SAFETY: claimed: alive until the exchange below settles it.
    let (word, release) = unsafe {
        let header = header.as_ref();
        (&raw const header.state, header.table.release)
    };
    // SAFETY: as above.
    let mut old = unsafe { &*word }.load(Ordering::Relaxed);
    let (old, verdict) = loop {
        let retired = old & (CANCELLING | CANCEL_AFTER_RUN) != 0;
        let new = match kind {
            PENDING if retired => CANCELLED,
            PENDING => return RunVerdict::Again,
            DONE if old & RERUN != 0 && !retired => PENDING,
            other => other,
        };
        let next = match new {
            PENDING => old & !RERUN,
            verdict => old & (GENERATION_MASK | CANCELLING) | verdict,
        };
        // Release: what the run did is seen by whoever sees it settled. SYNC(chore-settled).
        // SAFETY: as above.
        match unsafe { &*word }.compare_exchange_weak(
            old,
            next,
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) => break (old, new),
            Err(now) => old = now,
        }
    };
    if verdict == PENDING {
        return RunVerdict::Rerun;
    }
    if old & HAS_WAITER != 0 {
        wake_all(word);
    }
    if old & SHARED != 0 {
        // SAFETY: the count that `enqueue_shared` took, once for each time it was put. It kept the
        // task alive until here.
        unsafe { release(header) };
    }
    if old & CANCELLING != 0 {
        RunVerdict::KeepSlot
    } else {
        RunVerdict::FreeSlot
    }
}

/// # Safety
/// `header` is the first field of a live `TaskNode<W, C>`.
unsafe fn run_erased<W: TaskWork<C>, C: 'static>(
    header: NonNull<TaskHeader<C>>,
    context: &C,
) -> RunOutcome {
    // SAFETY: `repr(C)` puts the header first, so the addresses are the same; the caller says that
    // it lives.
    let task = unsafe { header.cast::<TaskNode<W, C>>().as_ref() };
    task.work.run(context)
}

/// # Safety
/// `header` is the first field of a `TaskNode<W, C>` in an `Arc`, a count of which was given up
/// with `Arc::into_raw`.
unsafe fn release_erased<W: TaskWork<C>, C: 'static>(header: NonNull<TaskHeader<C>>) {
    // SAFETY: the caller's promise. The address of the header is that of the task.
    drop(unsafe { Arc::from_raw(header.cast::<TaskNode<W, C>>().as_ptr().cast_const()) });
}

#[cfg(not(loom))]
fn wake_all(word: *const AtomicU32) {
    crate::futex::wake_at(word.cast(), u32::MAX);
}

#[cfg(loom)]
fn wake_all(_: *const AtomicU32) {}
