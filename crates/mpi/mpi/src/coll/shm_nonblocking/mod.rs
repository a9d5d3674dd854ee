//! Nonblocking collectives in slots of a communicator's segment: all but long ones, where all
//! members share a node.
//!
//! [`Comm::start_collective`](crate::comm::Comm::start_collective) calls [`start`]. The n-th
//! nonblocking collective of a communicator uses slot n modulo [`ROUNDS`]; all members count alike.
//! A call goes through three phases:
//! 1. The member writes what it brings into the slot when it starts the call, unless the slot is
//!    still in use ([`garonne_sync::nbc_slots`]).
//! 2. Whoever arrives last combines for all. Where members are few and have a core each, every
//!    member combines for itself. So nobody waits for a member that computes.
//! 3. A wait or test checks whether all have arrived, and takes the result. Whoever completes what
//!    others wait for wakes those who sleep, once.
//!
//! A call is a stepper of the engine only where it must advance without a wait: it came too early
//! for its slot, or before the segment was set up ([`super::segment_setup`]), or several threads
//! wait and one of them polls for all.
//!
//! Calls longer than [`SLOT_SHORT`](limit::SLOT_SHORT) are worth advancing while their rank
//! computes. Such a call is a stepper from the beginning, which a progress thread may advance.
//! Whoever completes what others wait for wakes their progress threads as well, once: at a counter
//! barrier the last to arrive, with flags whoever sees that all have arrived.
//!
//! Whether the data of a call goes through a slot follows from what must be equal on all ranks.
//! Members that called different things find different words, as in [`super::shm_sync`], and get
//! G0112. Calls whose data goes by messages use a slot only to show what they are. The slots of the
//! segment bound the memory, and one object for each pending call.

mod bytes_moved;
mod pending;
#[cfg(test)]
mod pending_tests;
pub(super) mod persistent_slots;
pub(super) mod shm_op;
pub(super) mod shm_op_v;

use super::Collective;
use super::call_signature::{CallSignature, SIGNATURE_BYTES};
use super::comm_segment::{self, Attachment, BarrierKind, Lookup};
use super::execute::{CollContext, InFlight, RunningSchedule};
use super::mismatch_report::{MemberCall, mismatch_error, note_site};
use super::nonblocking::plan_of;
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::limits::coll as limit;
use crate::request::{Request, Status};
use bytes_moved::SlotPhase;
use garonne_coll::autotune::CopyKind;
use garonne_coll::call_tag::CallSeries;
use garonne_coll::segment_allocator;
use garonne_sync::copy::StoreKind;
use garonne_sync::mutex::lock;
use garonne_sync::nbc_slots::{
    ExitWindow, NbcSlots, ROUNDS, SlotDemand, SlotRequests, is_free, is_whole,
};
use garonne_sync::shm_barrier::{Agreement, Arrival, NOTE_BYTES};
use garonne_sync::store_policy::{ReadCosts, ReadTimer, StoreChooser};
use pending::{PendingCollective, PendingState, SlotKind};
use shm_op::{CombineBuffer, Dependency, ShmOp, SlotView};
use shm_op_v::LengthMismatch;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

/// A member's use of a row of slots: those of its communicator, or of one persistent collective.
#[derive(Default)]
pub(crate) struct MemberSlots {
    /// Number of the last call that met there.
    last: AtomicU32,
    /// All members are known to have left all calls up to this one.
    all_left_until: AtomicU32,
    /// The slots that this member has left.
    exits: Mutex<ExitWindow>,
    /// The slots in use that this member has requested.
    requests: Mutex<SlotRequests>,
    /// The pending calls, by slot.
    pending: Mutex<[Weak<PendingCollective>; ROUNDS as usize]>,
    /// Room for combining; made at first use.
    combine_buffer: CombineBuffer,
    /// By which stores long contributions are put down.
    store_chooser: Mutex<StoreChooser>,
    read_timer: Mutex<ReadTimer>,
}

impl std::fmt::Debug for MemberSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Visits({})", self.last.load(Ordering::Relaxed))
    }
}

impl MemberSlots {
    /// The number of the next call.
    fn next_number(&self) -> u32 {
        let number = self.last.load(Ordering::Relaxed).wrapping_add(1);
        self.last.store(number, Ordering::Relaxed);
        number
    }

    /// Requests a slot for one more call of this member.
    fn request(&self, rounds: &NbcSlots, how: SlotDemand) {
        lock(&self.requests).ask(rounds.askers(), how);
    }

    /// Withdraws the request of a call that has its slot.
    fn withdraw_request(&self, rounds: &NbcSlots, how: SlotDemand) {
        lock(&self.requests).ask_no_more(rounds.askers(), how);
    }

    /// The calls that were not over when they returned and have to be left before this number,
    /// which comes `after` so many, may come.
    fn predecessors(&self, number: u32, after: u32) -> Vec<Weak<PendingCollective>> {
        let is_before = |open: &&Weak<PendingCollective>| {
            let open = open.upgrade();
            open.is_some_and(|open| (after..=ROUNDS).contains(&number.wrapping_sub(open.number)))
        };
        lock(&self.pending)
            .iter()
            .filter(is_before)
            .cloned()
            .collect()
    }

    /// Returns the distance to the call that all must have left before this member uses slot
    /// `number`. Other members may need wide cells, which are reused sooner, and wait longer. A
    /// member without pending calls from then does not delay them.
    fn distance(&self, number: u32, op: &ShmOp<'_>, members: u32) -> u32 {
        let after = op.slot_distance(members);
        let is_ahead = after < ROUNDS
            && op.uses_small_cells(members)
            && self.predecessors(number, after).is_empty();
        if is_ahead { ROUNDS } else { after }
    }

    /// Adds a pending call. Returns the call before it in the same slot, if that is still pending.
    fn add_pending(&self, open: &Arc<PendingCollective>) -> Option<Arc<PendingCollective>> {
        let entry = &mut lock(&self.pending)[(open.number % ROUNDS) as usize];
        std::mem::replace(entry, Arc::downgrade(open)).upgrade()
    }
}

/// Starts `call` in a slot. Returns `None` if messages must serve.
pub(super) fn start(call: &impl Collective, ctx: &CollContext<'static>) -> Option<Result<Request>> {
    let comm = ctx.comm();
    let attachment = match comm_segment::lookup_or_begin(comm, ctx.origin()) {
        Lookup::Attached(attachment) => attachment,
        Lookup::None => return None,
        Lookup::Pending => return start_before_setup(call, ctx),
    };
    let op = call.shm_op(comm);
    let fits = op.filter(|op| op.fits(comm.size(), attachment.slots.wide_len()));
    let by_messages = fits.is_none();
    let started = start_in_slot(
        attachment,
        fits.unwrap_or(ShmOp::CompareOnly),
        call.signature(comm),
        ctx,
    );
    match started {
        Ok(_) if by_messages => None,
        started => Some(started),
    }
}

/// Starts `call` before the segment is set up. A call that may use a slot waits for the setup in
/// its request, which also holds its schedule of messages.
#[cold]
fn start_before_setup(
    call: &impl Collective,
    ctx: &CollContext<'static>,
) -> Option<Result<Request>> {
    let comm = ctx.comm();
    let op = call.shm_op(comm);
    let fits = op.filter(|op| op.fits(comm.size(), segment_allocator::wide_cell_len(comm.size())));
    let by_messages = fits.is_none();
    let otherwise = match by_messages {
        true => None,
        false => match plan_of(call, comm) {
            Ok(schedule) => Some(RunningSchedule::new(
                ctx.clone(),
                schedule,
                InFlight::default(),
            )),
            Err(error) => return Some(Err(error)),
        },
    };
    let number = member_slots(comm).next_number();
    let op = fits.unwrap_or(ShmOp::CompareOnly);
    let after = op.slot_distance(comm.size());
    let before = member_slots(comm).predecessors(number, after);
    let signature = op.signature(call.signature(comm), comm.rank(), comm.size());
    let helped = op.wants_async_progress(comm.size());
    let open = PendingCollective::new(
        SlotKind::Shared(op.keep(), after),
        (number, signature),
        PendingState::AwaitingSegment(before, otherwise),
        ctx,
        helped,
    );
    member_slots(comm).add_pending(&open);
    open.is_stepper.store(true, Ordering::Relaxed);
    comm.process().host.attach_stepper(open.clone());
    (!by_messages).then(|| Ok(Request::new(comm, open)))
}

/// Makes the schedule for the part of the operation that goes by messages, not begun yet.
fn message_part(
    op: &ShmOp<'_>,
    attachment: &Attachment,
    ctx: &CollContext<'static>,
) -> Result<Option<Arc<RunningSchedule>>> {
    let ShmOp::Exchange(exchange) = op else {
        return Ok(None);
    };
    let rounds = &attachment.slots;
    let schedule = exchange.message_schedule(attachment.me, rounds.members(), rounds.wide_len())?;
    Ok(schedule.map(|schedule| RunningSchedule::new(ctx.clone(), schedule, InFlight::default())))
}

fn member_slots(comm: &Comm) -> &MemberSlots {
    &comm.0.segment.slots
}

fn start_in_slot(
    attachment: &Attachment,
    op: ShmOp<'_>,
    signature: CallSignature,
    ctx: &CollContext<'static>,
) -> Result<Request> {
    let comm = ctx.comm();
    let visits = member_slots(comm);
    let number = visits.next_number();
    let signature = op.signature(signature, attachment.me, comm.size());
    let after = visits.distance(number, &op, comm.size());
    let visit = SlotUse {
        attachment,
        slots: &attachment.slots,
        member_slots: visits,
        op: &op,
        number,
        distance: after,
        signature,
        ctx,
        is_persistent: false,
    };
    let mut before = Vec::new();
    let mut free = visit.is_free();
    if !free {
        before = visits.predecessors(number, after);
        pending::advance_all(&before);
        free = visit.is_free();
    }
    // By messages, beside the round; begun at once. What was over at once with an error is kept
    // until that is told.
    let also = message_part(&op, attachment, ctx)?
        .filter(|running| !running.advance() || running.error().is_some());
    let state = match free {
        true => {
            let last = visit.arrive_with_data();
            if also.is_none()
                && let Some(outcome) = visit.end_if_complete(last)
            {
                return outcome.map(|()| Request::done(comm, Status::EMPTY));
            }
            PendingState::Arrived(last)
        }
        false => PendingState::AwaitingSlot(before, None),
    };
    let helped = op.wants_async_progress(comm.size());
    let kept = !free || also.is_some() || helped;
    let slot_kind = SlotKind::Shared(op.keep(), after);
    let open = PendingCollective::new(slot_kind, (number, signature), state, ctx, helped);
    if let Some(also) = also {
        let _ = open.message_part.set(also);
    }
    let before = visits.add_pending(&open);
    if !free {
        // Before it is looked at again: who leaves from now on wakes this process if it sleeps.
        visits.request(&attachment.slots, open.demand());
    }
    if !free
        && open.message_part.get().is_none()
        && before.is_some_and(|before| before.precedes(&open))
    {
        // Now and then those before it get on, as others come: else a long row of starts would
        // leave all to the wait.
        if number.is_multiple_of(ROUNDS / 2) {
            comm.process().host.progress();
        }
        return Ok(Request::new(comm, open));
    }
    if kept {
        open.is_stepper.store(true, Ordering::Relaxed);
        comm.process().host.attach_stepper(open.clone());
    }
    Ok(Request::new(comm, open))
}

/// One call in its slot: all that a step of the call needs. Made for each step, owns nothing.
struct SlotUse<'a> {
    attachment: &'a Attachment,
    slots: &'a NbcSlots,
    member_slots: &'a MemberSlots,
    op: &'a ShmOp<'a>,
    number: u32,
    /// The call may use its slot when all members have left call `number - distance`.
    distance: u32,
    signature: CallSignature,
    ctx: &'a CollContext<'static>,
    /// The rounds are one collective's alone: who came to a number has left the one before.
    is_persistent: bool,
}

impl SlotUse<'_> {
    fn view<T>(&self, put: StoreKind, f: impl FnOnce(&SlotView<'_>) -> T) -> T {
        let (rounds, Attachment { me, .. }) = (self.slots, self.attachment);
        let members = rounds.members();
        let len = self.op.cell_bytes(members) as usize;
        f(&SlotView {
            me: *me,
            members,
            room: (rounds.room() as u64).min(limit::SLOT_BYTES_MAX),
            cell: &|member| rounds.cell(member, self.number, len),
            cell_len: rounds.cell_len(len) as u64,
            wide: &|member| rounds.wide_cell(member, self.number),
            wide_len: rounds.wide_len(),
            result: (self.attachment.barrier == BarrierKind::Counter)
                .then(|| rounds.result(self.number, len)),
            combine_buffer: &self.member_slots.combine_buffer,
            copy: match put {
                StoreKind::Cached => CopyKind::Cached,
                StoreKind::Streamed => CopyKind::Streamed,
            },
            stores: &|member| self.stores_of(member),
            timed: &|stores, len, copy| self.time(stores, len as usize, copy),
        })
    }

    /// Moves bytes of the call, for those who watch.
    fn trace_move<T>(&self, step: SlotPhase, act: impl FnOnce() -> T) -> T {
        let bytes = || {
            let (
                rounds,
                Attachment {
                    me, barrier: style, ..
                },
            ) = (self.slots, self.attachment);
            let around = bytes_moved::SlotGeometry {
                me: *me,
                members: rounds.members(),
                wide_len: rounds.wide_len(),
                combined: *style == BarrierKind::Counter,
            };
            self.op.moves(step, around)
        };
        self.ctx.trace_move(bytes, act)
    }

    /// Returns whether all members have left the call that used the slot before.
    fn is_free(&self) -> bool {
        if self.is_persistent && self.op.dependency() == Dependency::AllOnAll {
            // All have come to the number before, and so have left the one before that.
            return true;
        }
        let (known, rounds, after) = (&self.member_slots.all_left_until, self.slots, self.distance);
        // Acquire: another thread's look at what all have left. SYNC(round-through).
        let before = known.load(Ordering::Acquire);
        if is_free(self.number, after, before) {
            return true;
        }
        let through = rounds.through();
        // Release: see above. SYNC(round-through).
        known.store(through, Ordering::Release);
        if through != before && self.demand_of_others() == SlotDemand::Computes {
            // Who left may not have seen who asks, and nobody gets further than that without a look
            // here.
            self.attachment.wake_progress_threads();
        }
        is_free(self.number, after, through)
    }

    /// Wakes the members that requested a slot which is free now, and their progress threads if
    /// they compute.
    #[cold]
    fn wake_requesters(&self) {
        let asked = self.demand_of_others();
        if asked != SlotDemand::No {
            self.attachment.wake_all();
        }
        if asked == SlotDemand::Computes {
            self.attachment.wake_progress_threads();
        }
    }

    #[cold]
    fn demand_of_others(&self) -> SlotDemand {
        lock(&self.member_slots.requests).of_others(self.slots.askers())
    }

    /// The stores by which a member put down what is long, or (`None`) the last to come the result.
    fn stores_of(&self, member: Option<u32>) -> StoreKind {
        let rounds = self.slots;
        let mut signature = [0];
        match member {
            Some(member) => rounds
                .note(member, self.number)
                .read(SIGNATURE_BYTES as isize, &mut signature),
            None => rounds.result(self.number, 0).read(0, &mut signature),
        }
        match signature {
            [0] => StoreKind::Cached,
            _ => StoreKind::Streamed,
        }
    }

    /// Does what reads `len` bytes that were put down so, and tells their writers how long it took.
    fn time(&self, stores: StoreKind, len: usize, copy: &mut dyn FnMut()) {
        if !lock(&self.member_slots.read_timer).wants(stores, len) {
            return copy();
        }
        let begun = Instant::now();
        copy();
        if let Some(word) = lock(&self.member_slots.read_timer).took(stores, len, begun.elapsed()) {
            self.slots.tell_reads(self.attachment.me, word);
        }
    }

    /// Puts down what this member brings by the stores that are best for that, which it gives.
    fn put(&self, note: &mut [u8; NOTE_BYTES]) -> StoreKind {
        let (rounds, Attachment { me, .. }) = (self.slots, self.attachment);
        let long = self
            .op
            .bytes_put(*me, rounds.members())
            .map(|len| len as usize);
        let next = |len| {
            let mut writes = lock(&self.member_slots.store_chooser);
            writes.prefer_caches(if self.attachment.has_own_cores() {
                0
            } else {
                limit::SLOT_STREAM_MARGIN
            });
            writes.next(len)
        };
        let (stores, timed) = long.map_or((StoreKind::Cached, false), next);
        note[SIGNATURE_BYTES] = stores as u8;
        let begun = timed.then(Instant::now);
        self.trace_move(SlotPhase::Put, || {
            self.view(stores, |view| self.op.put(view))
        });
        if let (Some(begun), Some(len)) = (begun, long) {
            let took = begun.elapsed();
            let told = self
                .attachment
                .others()
                .map(|member| rounds.told_reads(member));
            lock(&self.member_slots.store_chooser).took(stores, len, took, ReadCosts::mean(told));
        }
        stores
    }

    /// Writes this member's data, arrives, and wakes those who waited for that. Returns the
    /// agreement among the words that it saw: at a counter barrier the last to arrive sees all.
    fn arrive_with_data(&self) -> Option<Agreement> {
        let (
            rounds,
            Attachment {
                me, barrier: style, ..
            },
        ) = (self.slots, self.attachment);
        let word = self.signature.word();
        let mut note = [0; NOTE_BYTES];
        note[..SIGNATURE_BYTES].copy_from_slice(&self.signature.to_bytes());
        note_site(&mut note, self.ctx.origin().site);
        let stores = self.put(&mut note);
        rounds.note(*me, self.number).write(0, &note);
        self.view(stores, |view| {
            rounds.flag(*me, self.number).raise(self.number, word);
            let seen = match style {
                BarrierKind::Counter => self.arrive(view, word),
                BarrierKind::Flags => self.arrive_without_data(),
            };
            self.op.keep_own(view);
            seen
        })
    }

    fn arrive(&self, view: &SlotView<'_>, word: u32) -> Option<Agreement> {
        let (attachment, barrier) = (self.attachment, self.slots.barrier(self.number));
        let last = match barrier.arrive(word) {
            Arrival::Early => None,
            Arrival::Last(words) => {
                if words == Agreement::Same {
                    self.trace_move(SlotPhase::Combine, || self.op.combine(view));
                    self.note_stores(view);
                }
                barrier.open(self.number, words);
                Some(words)
            }
        };
        match (self.op.dependency(), last) {
            (_, Some(Agreement::Different)) | (Dependency::AllOnAll, Some(Agreement::Same)) => {
                self.wake_members(None, true)
            }
            (Dependency::AllOnOne(root), _) if root == attachment.me => {
                self.wake_members(None, true)
            }
            (Dependency::OneOnAll(root), Some(Agreement::Same)) if root != attachment.me => {
                self.wake_members(Some(root), true)
            }
            _ => {}
        }
        last
    }

    /// For whoever reads the result, where that is long.
    fn note_stores(&self, view: &SlotView<'_>) {
        if view.result.is_some() && self.op.cell_bytes(view.members) >= limit::SLOT_STORES_FROM {
            let streamed = view.copy == CopyKind::Streamed;
            self.slots
                .result(self.number, 0)
                .write(0, &[streamed.into()]);
        }
    }

    /// Wakes those who wait for this member, or one of them. With `brings` their data is complete:
    /// then their progress threads are woken as well, where the call is worth it.
    fn wake_members(&self, whom: Option<u32>, brings: bool) {
        let (attachment, calls) = (self.attachment, brings && self.wakes_progress_threads());
        match whom {
            None => attachment.wake_all(),
            Some(member) => attachment.wake_one(member),
        }
        match whom {
            _ if !calls => {}
            None => attachment.wake_progress_threads(),
            Some(member) => attachment.wake_progress_thread_of(member),
        }
    }

    /// With flags everybody looks at everybody's, so each may be the one that a sleeper waits for.
    fn arrive_without_data(&self) -> Option<Agreement> {
        let attachment = self.attachment;
        match self.op.dependency() {
            // Others wait for all, or for this one.
            Dependency::AllOnAll | Dependency::None => {
                self.wake_members(None, self.is_seen_whole())
            }
            Dependency::AllOnOne(root) if root == attachment.me => self.wake_members(None, true),
            Dependency::OneOnAll(root) if root != attachment.me => {
                self.wake_members(Some(root), self.is_seen_whole())
            }
            Dependency::AllOnOne(_) | Dependency::OneOnAll(_) => {}
        }
        let differs = |member| {
            self.word_of(member)
                .is_some_and(|word| word != self.signature.word())
        };
        attachment
            .others()
            .any(differs)
            .then_some(Agreement::Different)
    }

    /// Returns whether all have arrived in a call that is worth async progress. Only the member
    /// that sees this wakes progress threads.
    fn is_seen_whole(&self) -> bool {
        self.wants_async_progress()
            && is_whole(self.attachment.others(), |member| {
                self.word_of(member).is_some()
            })
    }

    fn wants_async_progress(&self) -> bool {
        self.op.wants_async_progress(self.slots.members())
    }

    /// Returns whether other members may need their progress threads. For uneven blocks the last to
    /// arrive at a counter does not know.
    fn wakes_progress_threads(&self) -> bool {
        self.wants_async_progress()
            || self.attachment.barrier == BarrierKind::Counter
                && matches!(self.op, ShmOp::Exchange(_))
    }

    /// Returns the word of `member`, if it has arrived.
    fn word_of(&self, member: u32) -> Option<u32> {
        self.slots.flag(member, self.number).raised(self.number)
    }

    /// Returns whether what this member waits for has come, and what the words were like; `seen` is
    /// what [`Self::arrive_with_data`] said.
    fn check_complete(&self, seen: Option<Agreement>) -> Option<Agreement> {
        let attachment = self.attachment;
        let own = self.signature.word();
        let words = |same| {
            if same {
                Agreement::Same
            } else {
                Agreement::Different
            }
        };
        let alone = Some(seen.unwrap_or(Agreement::Same));
        if let ShmOp::Exchange(exchange) = self.op
            && !exchange.takes_any(attachment.me, self.slots.members(), self.slots.wide_len())
        {
            return alone;
        }
        match (self.op.dependency(), attachment.barrier) {
            (Dependency::AllOnOne(root), _) if root != attachment.me => {
                let theirs = self.word_of(root)?;
                Some(words(theirs == own && seen != Some(Agreement::Different)))
            }
            (Dependency::OneOnAll(root), _) if root != attachment.me => alone,
            (Dependency::AllOnOne(_) | Dependency::None, _) => alone,
            (Dependency::AllOnAll | Dependency::OneOnAll(_), BarrierKind::Counter) => {
                let barrier = self.slots.barrier(self.number);
                barrier
                    .passed(self.number)
                    .then(|| barrier.words(self.number))
            }
            (Dependency::AllOnAll | Dependency::OneOnAll(_), BarrierKind::Flags) => {
                let mut same = true;
                for member in attachment.others() {
                    same &= self.word_of(member)? == own;
                }
                Some(words(same))
            }
        }
    }

    /// Takes what this member came for, and leaves.
    ///
    /// # Errors
    /// `NotSame` if words differed.
    fn take_result(&self, words: Agreement) -> Result<()> {
        let outcome = match words {
            Agreement::Same => self
                .trace_move(SlotPhase::Take, || {
                    self.view(StoreKind::Cached, |view| self.op.take(view))
                })
                .map_or(Ok(()), |misfit| Err(self.length_error(misfit))),
            Agreement::Different => Err(self.mismatch()),
        };
        let (rounds, Attachment { me, .. }) = (self.slots, self.attachment);
        let mut left = lock(&self.member_slots.exits);
        // Under the lock: what another thread leaves later is said later.
        let through = left.add(self.number);
        let asked = through.map_or(SlotDemand::No, |through| rounds.exit(*me).leave(through));
        drop(left);
        if asked != SlotDemand::No {
            self.wake_requesters();
        }
        outcome
    }

    /// The end of a call that is over with that, if what it waits for has come. `seen` as for
    /// [`Self::check_complete`].
    fn end_if_complete(&self, seen: Option<Agreement>) -> Option<Result<()>> {
        let outcome = self.take_result(self.check_complete(seen)?);
        self.trace_end();
        Some(outcome)
    }

    /// For those who watch: the call is over, unless its data went by messages.
    fn trace_end(&self) {
        if self.op.dependency() != Dependency::None {
            self.ctx.trace_end();
        }
    }

    #[cold]
    fn length_error(&self, LengthMismatch { from, sent, room }: LengthMismatch) -> Error {
        let (call, me) = (self.ctx.call(), self.attachment.me);
        let text = format!(
            "error[G0107]: {call}: rank {from} sends {sent} B to rank {me}, which expects {room} B\n  \
             help: the counts and datatypes of all ranks must describe the same amount of data"
        );
        Error::new(Class::Truncate, text)
    }

    #[cold]
    fn mismatch(&self) -> Error {
        let (rounds, Attachment { me, .. }) = (self.slots, self.attachment);
        let noted = |member| {
            let mut note = [0; NOTE_BYTES];
            rounds.note(member, self.number).read(0, &mut note);
            MemberCall::noted(member, &note)
        };
        let others = self.attachment.others();
        let others = others.filter(|member| self.word_of(*member).is_some());
        let all = std::iter::once(*me).chain(others).map(noted).collect();
        let call = self.ctx.call();
        let what = match call.series {
            CallSeries::Persistent => "persistent collective",
            CallSeries::Blocking | CallSeries::Nonblocking => "nonblocking collective",
        };
        mismatch_error(self.ctx.comm(), (what, call.number), all)
    }
}
