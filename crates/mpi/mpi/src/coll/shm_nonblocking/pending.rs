//! A nonblocking collective in a slot that was not over when its call returned.
//!
//! A [`PendingCollective`] is the request of the call, and where needed a stepper of the engine;
//! see [`super`].

use super::persistent_slots::PersistentSlots;
use super::shm_op::{Dependency, ShmOp};
use super::{SlotUse, member_slots, message_part};
use crate::coll::call_signature::CallSignature;
use crate::coll::comm_segment::{self, Attachment, Lookup};
use crate::coll::execute::{CollContext, RunningSchedule};
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::limits::coll as limit;
use crate::request::{Completion, Outcome, Status};
use garonne_engine::observe::events::{AwaitedRanks, ExternalWait};
use garonne_progress::messaging::{AnyOfWaiter, Messaging, Stepper, WaitTarget};
use garonne_sync::nbc_slots::{ROUNDS, SlotDemand};
use garonne_sync::shm_barrier::Agreement;
use garonne_sync::single_flight::SingleFlight;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The state of a call that was not over when it returned.
pub(super) enum PendingState {
    /// Waits for the setup of the segment. Holds the calls that have to leave the slot first, and
    /// the schedule that serves if there is no segment.
    AwaitingSegment(Vec<Weak<PendingCollective>>, Option<Arc<RunningSchedule>>),
    /// Goes by messages.
    ByMessages(Arc<RunningSchedule>),
    /// Waits until its slot is free. Holds the calls that may still have to leave the slot first,
    /// and the call that uses the slot next, if this one is to start it.
    AwaitingSlot(Vec<Weak<PendingCollective>>, Option<Arc<PendingCollective>>),
    /// Arrived in its slot. Holds the agreement if this member came last.
    Arrived(Option<Agreement>),
    /// Has left its slot.
    Over(Option<Error>),
}

impl PendingState {
    fn instead(running: Option<Arc<RunningSchedule>>) -> Self {
        running.map_or(PendingState::Over(None), PendingState::ByMessages)
    }
}

/// The slots that a call uses, and its operation there.
pub(super) enum SlotKind {
    /// Slots of the communicator, in which calls follow each other. Holds the distance to the call
    /// that all must have left.
    Shared(ShmOp<'static>, u32),
    /// Slots of a persistent collective.
    Persistent(Arc<PersistentSlots>),
}

/// A call in a slot that was not over when it returned. Its request owns it; where it must advance
/// without a wait, the engine's stepper list does, too.
pub(super) struct PendingCollective {
    ctx: CollContext<'static>,
    slot: SlotKind,
    pub number: u32,
    signature: CallSignature,
    pub state: SingleFlight<PendingState>,
    /// The part of the call that goes by messages, which is a stepper, too.
    pub message_part: OnceLock<Arc<RunningSchedule>>,
    over: AtomicBool,
    waiter: AnyOfWaiter,
    /// True if the call is in the engine's list of steppers.
    pub is_stepper: AtomicBool,
    runs_user_code: bool,
    /// True if the call began before the communicator's segment was set up.
    began_before_setup: bool,
    /// True if a progress thread may advance the call. Then only the engine steps it, and a thread
    /// that waits takes progress back.
    may_be_helped: bool,
    own: Weak<PendingCollective>,
}

impl SlotKind {
    fn op(&self) -> &ShmOp<'static> {
        match self {
            SlotKind::Shared(op, _) => op,
            SlotKind::Persistent(slots) => slots.op(),
        }
    }
}

impl PendingCollective {
    pub fn new(
        slot_kind: SlotKind,
        (number, signature): (u32, CallSignature),
        state: PendingState,
        ctx: &CollContext<'static>,
        helped: bool,
    ) -> Arc<Self> {
        // Those before are looked at, too.
        let before = match &state {
            PendingState::AwaitingSlot(before, _) | PendingState::AwaitingSegment(before, _) => {
                &**before
            }
            _ => &[],
        };
        let mut before = before.iter().filter_map(Weak::upgrade);
        let runs_user_code = slot_kind.op().runs_user_code()
            || before.any(|before| before.runs_user_code)
            || matches!(&state, PendingState::AwaitingSegment(_, Some(running)) if running.runs_user_code());
        let unplaced = matches!(&state, PendingState::AwaitingSegment(..));
        Arc::new_cyclic(|own| Self {
            ctx: ctx.clone(),
            slot: slot_kind,
            number,
            signature,
            state: SingleFlight::new(state),
            message_part: OnceLock::new(),
            over: AtomicBool::new(false),
            waiter: AnyOfWaiter::default(),
            is_stepper: AtomicBool::new(false),
            runs_user_code,
            began_before_setup: unplaced,
            may_be_helped: helped,
            own: own.clone(),
        })
    }

    fn is_over(&self) -> bool {
        // SYNC(collective): Acquire the result and the program's buffers.
        self.over.load(Ordering::Acquire)
    }

    /// Goes as far as it can. A thread that finds another at it leaves it to that one, which then
    /// looks once more: what this one was called for may be what that one has passed.
    pub fn advance_state(&self) {
        self.state.attend(|state| self.step_state(state));
    }

    /// Advances the call outside the engine's stepper list, and wakes whoever waits for its end.
    fn advance_and_notify(&self) {
        self.advance_state();
        if self.is_over() && self.is_stepper.load(Ordering::Relaxed) {
            let host = &self.ctx.comm().process().host;
            if !host.is_single_threaded() {
                host.signal(WaitTarget::stepper_end(self), &self.waiter);
            }
        }
    }

    fn step_state(&self, state: &mut PendingState) {
        if let PendingState::AwaitingSegment(before, otherwise) = state {
            *state = match self.lookup() {
                Lookup::Pending => return,
                Lookup::Attached(attachment) => {
                    self.request_slot(attachment, std::mem::take(before), otherwise.take())
                }
                Lookup::None => PendingState::instead(otherwise.take()),
            };
        }
        if let (Some(also), PendingState::AwaitingSlot(..) | PendingState::Arrived(_)) =
            (self.message_part.get(), &*state)
        {
            also.advance();
        }
        if let PendingState::ByMessages(running) = state
            && running.advance()
        {
            *state = PendingState::Over(running.error());
            self.ctx.trace_end();
        }
        if let PendingState::Over(_) = *state {
            // SYNC(collective): Release the result and the program's buffers.
            self.over.store(true, Ordering::Release);
        }
        // Who has come to a round, or is to come to one, has its place.
        let Some(visit) = comm_segment::attachment(self.ctx.comm())
            .and_then(|attachment| self.slot_use(attachment))
        else {
            return;
        };
        if let PendingState::AwaitingSlot(before, next) = state {
            advance_all(before);
            if !visit.is_free() {
                return;
            }
            let next = next.take();
            visit
                .member_slots
                .withdraw_request(visit.slots, self.demand());
            *state = PendingState::Arrived(visit.arrive_with_data());
            if let Some(next) = next {
                next.become_stepper();
            }
        }
        let PendingState::Arrived(last) = *state else {
            return;
        };
        if let Some(words) = visit.check_complete(last) {
            *state = match (visit.take_result(words), self.message_part.get()) {
                (Ok(()), Some(also)) if !also.advance() => PendingState::ByMessages(also.clone()),
                (Ok(()), Some(also)) => PendingState::Over(also.error()),
                (outcome, _) => PendingState::Over(outcome.err()),
            };
            if let PendingState::ByMessages(_) = *state {
                return;
            }
            visit.trace_end();
            // SYNC(collective): Release the result and the program's buffers.
            self.over.store(true, Ordering::Release);
        }
    }

    /// Returns what is known of the call's slots.
    fn lookup(&self) -> Lookup<'_> {
        match &self.slot {
            SlotKind::Shared(..) => comm_segment::lookup(self.ctx.comm()),
            SlotKind::Persistent(slots) => slots.lookup(&self.ctx),
        }
    }

    /// Returns the call's use of its slot; `None` if the call goes by messages.
    fn slot_use<'a>(&'a self, attachment: &'a Attachment) -> Option<SlotUse<'a>> {
        let (rounds, visits, after) = match &self.slot {
            SlotKind::Shared(_, after) => {
                (&attachment.slots, member_slots(self.ctx.comm()), *after)
            }
            SlotKind::Persistent(slots) => (
                slots.slots()?,
                slots.member_slots(),
                slots.slots()?.after(false),
            ),
        };
        Some(SlotUse {
            attachment,
            slots: rounds,
            member_slots: visits,
            op: self.slot.op(),
            number: self.number,
            distance: after,
            signature: self.signature,
            ctx: &self.ctx,
            is_persistent: matches!(self.slot, SlotKind::Persistent(_)),
        })
    }

    /// Requests a slot after the setup, if the operation fits it. Otherwise the call only shows its
    /// signature in the slot.
    fn request_slot(
        &self,
        attachment: &Attachment,
        before: Vec<Weak<PendingCollective>>,
        otherwise: Option<Arc<RunningSchedule>>,
    ) -> PendingState {
        let comm = self.ctx.comm();
        let (op, after) = match &self.slot {
            SlotKind::Shared(op, after) => (op, *after),
            SlotKind::Persistent(slots) => {
                slots.request(self.demand());
                return PendingState::AwaitingSlot(Vec::new(), None);
            }
        };
        if op.fits(comm.size(), attachment.slots.wide_len()) {
            return match message_part(op, attachment, &self.ctx) {
                Ok(also) => {
                    also.map(|also| self.message_part.set(also));
                    member_slots(comm).request(&attachment.slots, self.demand());
                    PendingState::AwaitingSlot(before, None)
                }
                Err(error) => PendingState::Over(Some(error)),
            };
        }
        let shown = PendingCollective::new(
            SlotKind::Shared(ShmOp::CompareOnly, after),
            (self.number, self.signature),
            PendingState::AwaitingSlot(before, None),
            &self.ctx,
            false,
        );
        member_slots(comm).request(&attachment.slots, shown.demand());
        member_slots(comm).add_pending(&shown);
        shown.is_stepper.store(true, Ordering::Relaxed);
        comm.process().host.attach_stepper(shown);
        PendingState::instead(otherwise)
    }

    /// Lets this call start `next` if it still waits for the slot before. So of many early calls
    /// only those whose slot may be free are steppers.
    pub fn precedes(&self, next: &Arc<PendingCollective>) -> bool {
        // What another thread looks at just now may come at any moment.
        if next.number != self.number.wrapping_add(ROUNDS) {
            return false;
        }
        let Some(mut state) = self.state.begin() else {
            return false;
        };
        let precedes = match state.value() {
            PendingState::AwaitingSlot(_, after @ None) => {
                *after = Some(next.clone());
                true
            }
            _ => false,
        };
        if state.end() {
            self.advance_and_notify();
        }
        precedes
    }

    /// Returns how the call requests its slot, where the slot is in use.
    pub fn demand(&self) -> SlotDemand {
        match self.may_be_helped {
            true => SlotDemand::Computes,
            false => SlotDemand::Waits,
        }
    }

    fn become_stepper(&self) {
        if !self.is_stepper.swap(true, Ordering::Relaxed)
            && let Some(own) = self.own.upgrade()
        {
            self.ctx.comm().process().host.attach_awaited_stepper(own);
        }
    }
}

/// Has those of these calls go as far as they can that have come. The others are steppers, and look
/// at those before them.
pub(super) fn advance_all(open: &[Weak<PendingCollective>]) {
    for open in open.iter().filter_map(Weak::upgrade) {
        let Some(mut state) = open.state.begin() else {
            continue;
        };
        let has_come = matches!(
            state.value(),
            PendingState::Arrived(_) | PendingState::ByMessages(_)
        );
        if state.end() || has_come {
            open.advance_and_notify();
        }
    }
}

impl Stepper for PendingCollective {
    fn step(&self, _host: &dyn Messaging) -> bool {
        if !self.is_over() {
            self.advance_state();
        }
        self.is_over()
    }

    fn runs_user_code(&self) -> bool {
        self.runs_user_code
    }

    fn polls_memory(&self) -> bool {
        true
    }

    fn has_messages(&self) -> bool {
        self.began_before_setup || self.message_part.get().is_some()
    }

    fn call_site(&self) -> u64 {
        self.ctx.site()
    }

    fn current_waiter(&self) -> Option<&AnyOfWaiter> {
        Some(&self.waiter)
    }
}

impl Completion for PendingCollective {
    fn is_done(&self) -> bool {
        self.is_over()
    }

    fn advance(&self) {
        if self.may_be_helped || self.is_over() {
            return;
        }
        self.advance_and_notify();
        // Where another thread may be the one that polls, it has to look at this as well.
        if !self.is_over() && !self.ctx.comm().process().host.is_single_threaded() {
            self.become_stepper();
        }
    }

    fn must_finish(&self) -> bool {
        true
    }

    fn linger(&self) {
        let Some(attachment) = comm_segment::attachment(self.ctx.comm()) else {
            return;
        };
        if self.may_be_helped
            || attachment.spins == 0
            || !self.ctx.comm().process().host.is_single_threaded()
        {
            return;
        }
        for _ in 0..limit::SLOT_SPINS {
            self.advance_state();
            if self.is_over() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn awaits(&self) -> WaitTarget {
        WaitTarget::stepper_end(self)
    }

    fn awaits_among(&self) -> WaitTarget {
        self.waiter.register();
        self.awaits()
    }

    fn peek(&self) -> Outcome {
        self.state.with_locked(|state| match state {
            PendingState::Over(Some(error)) => Err(error.clone()),
            _ => Ok(Status::EMPTY),
        })
    }

    fn free(&self) -> Result<()> {
        // Nobody waits for it any more, and its buffers are still to be filled.
        self.become_stepper();
        Ok(())
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.ctx.comm().clone())
    }

    fn meeting(&self) -> Option<ExternalWait> {
        let comm = self.ctx.comm();
        let awaited = match self.slot.op().dependency() {
            Dependency::AllOnOne(root) => comm
                .group()
                .peer(root)
                .map_or(AwaitedRanks::Members, AwaitedRanks::Leader),
            _ => AwaitedRanks::Members,
        };
        (!self.is_over()).then(|| self.ctx.wait_description(awaited))
    }
}
