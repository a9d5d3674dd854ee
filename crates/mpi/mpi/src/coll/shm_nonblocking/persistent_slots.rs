//! Persistent collectives in slots of their own: short ones, where all members share a node.
//!
//! [`super::super::persistent`] makes one [`PersistentSlots`] for each such collective. Processes
//! may start what they initialised in different orders, so the communicator's slots, which count
//! calls, do not serve. Each persistent collective has a few slots for itself ([`NbcLayout::own`]);
//! all members start it equally often.
//!
//! Rank 0 allocates the slots in its heap when it initialises the collective, or none, and tells
//! the others by one message each. Nobody waits for that message in a call: whoever starts before
//! it has come waits in the request. So all members take the same way in all starts, also after a
//! mismatch. Slots serve another collective when all members have let them go with their requests;
//! a request freed while it is active lives until it is over. Slots take at most
//! [`PERSISTENT_SLOTS_BYTES`](limit::PERSISTENT_SLOTS_BYTES) of rank 0's heap. Without room,
//! messages serve.

use super::pending::{PendingCollective, PendingState, SlotKind};
use super::shm_op::{Dependency, ShmOp};
use super::{MemberSlots, SlotUse, lock};
use crate::coll::Collective;
use crate::coll::call_signature::CallSignature;
use crate::coll::comm_segment::{self, Lookup};
use crate::coll::execute::{CollContext, InFlight, RunningSchedule};
use crate::comm::Comm;
use crate::error::Result;
use crate::limits::coll as limit;
use crate::request::{Completion, Outcome, Request, Status};
use garonne_coll::call_tag::{CallId, CallSeries, CollectiveKind};
use garonne_coll::plan::{Plan, PlanRecorder, Schedule};
use garonne_coll::segment_allocator::{self, SegmentAllocator};
use garonne_coll::temp_buffer::scratch;
use garonne_progress::messaging::{Messaging, Stepper};
use garonne_sync::nbc_slots::{NbcLayout, NbcSlots, SlotDemand};
use garonne_sync::user::{Data, Scratch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Slots of one persistent collective, as one of its members uses them. The request owns them; each
/// start calls `start` once.
pub(in crate::coll) struct PersistentSlots {
    member_slots: MemberSlots,
    op: ShmOp<'static>,
    signature: CallSignature,
    exchange: Mutex<Option<Arc<GrantExchange>>>,
    /// Known from then on; `None`: messages serve.
    granted: OnceLock<Option<GrantedSlots>>,
}

/// A member's side of slots that were granted to a persistent collective.
struct GrantedSlots {
    /// There until it is dropped.
    slots: Option<NbcSlots>,
    me: u32,
    /// True if this member's data is longer than the slots, which only a mistaken program causes.
    /// Such a member arrives only to show its call.
    is_misfit: bool,
    /// The allocator and the offset of the slots, at rank 0.
    allocator: Option<(Arc<SegmentAllocator>, usize)>,
}

impl Drop for GrantedSlots {
    fn drop(&mut self) {
        let Some(rounds) = self.slots.take() else {
            return;
        };
        rounds.desert(self.me);
        if let Some((allocator, offset)) = &self.allocator {
            allocator.release_slots(*offset, rounds);
        }
    }
}

/// Number of words of a grant: offset of the slots in rank 0's heap plus one (0: no slots), number
/// of slots, and the lengths of their cells.
const WORDS: usize = 4;

/// The message that says so, not sent or received yet: all that needs memory of it.
pub(in crate::coll) struct GrantMessage {
    schedule: Schedule,
    memory: Scratch,
}

impl GrantMessage {
    /// Prepares the message for a collective on `comm`. Returns `None` if its members cannot have
    /// slots, which all of them know alike.
    ///
    /// # Errors
    /// There is no memory.
    pub fn of(call: &impl Collective, comm: &Comm) -> Result<Option<Self>> {
        if !call.synchronizes_all() || comm.is_inter() || comm.size() < 2 || !comm.is_on_node() {
            return Ok(None);
        }
        let memory = scratch(8 * WORDS as u64)?;
        let data = Data::contiguous(memory.mem(), 8 * WORDS as u64);
        let mut steps = PlanRecorder::new(comm.rank(), comm.size(), 0);
        match comm.rank() {
            0 => (1..comm.size()).try_for_each(|rank| steps.send(rank, data.clone()).map(drop))?,
            _ => drop(steps.recv(0, data)?),
        }
        steps.fence()?;
        Ok(Some(Self {
            schedule: steps.finish(),
            memory,
        }))
    }

    fn write(&self, words: [u64; WORDS]) {
        for (at, word) in (0..).step_by(8).zip(words) {
            self.memory.mem().write(at, &word.to_ne_bytes());
        }
    }
}

/// The exchange of a grant: a member that waits for the message, or rank 0, whose messages have not
/// left. `MPI_Finalize` waits for it.
struct GrantExchange {
    ctx: CollContext<'static>,
    running: Arc<RunningSchedule>,
    /// There until it is dropped.
    words: Option<Scratch>,
    is_over: AtomicBool,
    /// The longest contribution that this member expects to put down; `None`: it expects to meet
    /// nobody there.
    len: Option<u64>,
}

impl GrantExchange {
    fn new(ctx: &CollContext<'static>, word: GrantMessage, len: Option<u64>) -> Self {
        let call = CallId::new(
            ctx.call().number,
            CallSeries::Persistent,
            CollectiveKind::Internal,
        );
        let ctx = CollContext::owned(ctx.comm(), call, ctx.origin());
        Self {
            running: RunningSchedule::new(ctx.clone(), word.schedule, InFlight::default()),
            ctx,
            words: Some(word.memory),
            is_over: AtomicBool::new(false),
            len,
        }
    }

    fn is_over(&self) -> bool {
        let over = self.running.advance();
        if over {
            self.is_over.store(true, Ordering::Relaxed);
        }
        over
    }

    /// Returns the slots of the grant that this member has received.
    fn granted(&self) -> Option<GrantedSlots> {
        if self.ctx.me() == 0 || self.running.error().is_some() {
            return None;
        }
        let words = self.words.as_ref()?;
        let word = |index: usize| {
            let mut word = [0; 8];
            words.mem().read(8 * index as isize, &mut word);
            usize::try_from(u64::from_ne_bytes(word)).ok()
        };
        let rounds = u32::try_from(word(1)?).ok()?;
        let shape = NbcLayout {
            rounds,
            sets: rounds,
            cell: word(2)?,
            wide: word(3)?,
        };
        let comm = self.ctx.comm();
        if !shape.is_sound() {
            return None;
        }
        let len = NbcSlots::bytes(comm.size(), shape);
        let memory = segment_allocator::heap_part(&comm_segment::coll_heap(comm)?, word(0)?, len)?;
        Some(GrantedSlots {
            slots: NbcSlots::new(memory, comm.size(), shape),
            me: comm.rank(),
            is_misfit: self.len.is_none_or(|len| len > shape.room() as u64),
            allocator: None,
        })
    }
}

impl Drop for GrantExchange {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Relaxed) {
            // The engine is being taken down, and may still write there: better lost than reused.
            std::mem::forget(self.words.take());
        }
    }
}

/// Receives the grant for a collective that is gone, so that its slots can be reused.
impl Stepper for GrantExchange {
    fn step(&self, _host: &dyn Messaging) -> bool {
        let over = self.is_over();
        if over {
            drop(self.granted());
        }
        over
    }
}

/// Messages that rank 0 still has to send, for
/// [`Process::retire`](crate::process::Process::retire). It keeps nothing alive: whoever waits for
/// the rounds does, or the stepper of what is gone.
struct UnsentGrant(Weak<GrantExchange>);

impl Completion for UnsentGrant {
    fn is_done(&self) -> bool {
        let signature = |hearing: Arc<GrantExchange>| hearing.is_over.load(Ordering::Relaxed);
        self.0.upgrade().is_none_or(signature)
    }

    fn advance(&self) {
        if let Some(hearing) = self.0.upgrade() {
            hearing.is_over();
        }
    }

    fn peek(&self) -> Outcome {
        Ok(Status::EMPTY)
    }

    fn must_finish(&self) -> bool {
        true
    }
}

impl PersistentSlots {
    /// Makes the slots of `call`: the owner announces them by `word`, the other members receive it.
    pub fn of(call: &impl Collective, ctx: &CollContext<'static>, word: GrantMessage) -> Arc<Self> {
        let comm = ctx.comm();
        let members = comm.size();
        // Begins to find out about a board, of which such rounds need the bells.
        let found = comm_segment::lookup_or_begin(comm, ctx.origin());
        let statement = call.signature(comm);
        let op = call.shm_op(comm).filter(|op| Self::suits(op, members));
        let len = op.as_ref().map(|op| op.cell_bytes(members));
        let granted = match (comm.rank(), &op, found) {
            (0, None, _) | (0, _, Lookup::None) => Some(None),
            (0, Some(op), _) => Some(Self::allocate(ctx, op)),
            _ => None,
        };
        if let Some(granted) = &granted {
            word.write(granted.as_ref().map_or([0; WORDS], |(_, words)| *words));
        }
        let hearing = Arc::new(GrantExchange::new(ctx, word, len));
        let owed = UnsentGrant(Arc::downgrade(&hearing));
        // Who expects to meet nobody there comes, if it has to, only to show what it is.
        let op = op.unwrap_or(ShmOp::Barrier);
        let slots = Self {
            member_slots: MemberSlots::default(),
            signature: op.signature(statement, comm.rank(), members),
            op: op.keep(),
            exchange: Mutex::new(Some(hearing)),
            granted: OnceLock::new(),
        };
        if let Some(granted) = granted {
            let _ = slots.granted.set(granted.map(|(granted, _)| granted));
        }
        slots.receive_grant();
        if comm.rank() == 0 {
            let process = comm.process();
            process.retire(Request::new(process, Arc::new(owed)));
        }
        Arc::new(slots)
    }

    /// Only what every member takes by itself, however much it computes: short, and of a length
    /// that all know.
    fn suits(op: &ShmOp<'_>, members: u32) -> bool {
        let is_known = !matches!(op, ShmOp::CompareOnly | ShmOp::Exchange(_));
        let is_short =
            op.cell_bytes(members) <= limit::SLOT_SHORT && !op.wants_async_progress(members);
        is_known && is_short && op.fits(members, segment_allocator::wide_cell_len(members))
    }

    /// Allocates slots in this process's heap. Returns them and the words of the grant.
    fn allocate(
        ctx: &CollContext<'static>,
        op: &ShmOp<'_>,
    ) -> Option<(GrantedSlots, [u64; WORDS])> {
        let comm = ctx.comm();
        let rounds = match op.dependency() {
            Dependency::AllOnAll => limit::PERSISTENT_SLOTS,
            _ => limit::PERSISTENT_SLOTS_AHEAD,
        };
        let len = usize::try_from(op.cell_bytes(comm.size())).ok()?;
        let shape = NbcLayout::own(rounds, len);
        let (heap, allocator) = (
            comm_segment::coll_heap(comm)?,
            comm.process().config.segments.clone(),
        );
        let (offset, rounds) = allocator.allocate_slots(&heap, comm.size(), shape)?;
        let words = [
            offset as u64 + 1,
            shape.rounds.into(),
            shape.cell as u64,
            shape.wide as u64,
        ];
        let granted = GrantedSlots {
            slots: Some(rounds),
            me: comm.rank(),
            is_misfit: false,
            allocator: Some((allocator, offset)),
        };
        Some((granted, words))
    }

    fn granted(&self) -> Option<&GrantedSlots> {
        self.granted.get().and_then(Option::as_ref)
    }

    /// Returns the slots, once it is known that there are any.
    pub fn slots(&self) -> Option<&NbcSlots> {
        self.granted().and_then(|granted| granted.slots.as_ref())
    }

    pub(super) fn member_slots(&self) -> &MemberSlots {
        &self.member_slots
    }

    pub(super) fn op(&self) -> &ShmOp<'static> {
        match self.granted() {
            // What differs is told to all who wait for all.
            Some(granted) if granted.is_misfit => &ShmOp::Barrier,
            _ => &self.op,
        }
    }

    pub(super) fn request(&self, how: SlotDemand) {
        if let Some(rounds) = self.slots() {
            self.member_slots.request(rounds, how);
        }
    }

    /// Returns what is known of the slots.
    pub(super) fn lookup<'a>(&self, ctx: &'a CollContext<'static>) -> Lookup<'a> {
        if self.granted.get().is_none() {
            self.receive_grant();
        }
        match self.granted.get() {
            None => Lookup::Pending,
            Some(None) => Lookup::None,
            Some(Some(_)) => comm_segment::lookup(ctx.comm()),
        }
    }

    #[cold]
    fn receive_grant(&self) {
        let mut hearing = lock(&self.exchange);
        if let Some(heard) = hearing.take_if(|hearing| hearing.is_over()) {
            let _ = self.granted.set(heard.granted());
        }
    }

    /// Starts the collective once more; what it would do by messages is `schedule`. `None`: that is
    /// to be done.
    pub fn start(
        self: &Arc<Self>,
        ctx: &CollContext<'static>,
        schedule: &Arc<Schedule>,
    ) -> Option<Request> {
        let (process, number) = (ctx.comm().process(), self.member_slots.next_number());
        let state = match self.lookup(ctx) {
            Lookup::None => return None,
            Lookup::Pending => {
                let running =
                    RunningSchedule::new(ctx.clone(), schedule.clone(), InFlight::default());
                PendingState::AwaitingSegment(Vec::new(), Some(running))
            }
            Lookup::Attached(attachment) => {
                let rounds = self.slots()?;
                let visit = SlotUse {
                    attachment,
                    slots: rounds,
                    member_slots: &self.member_slots,
                    op: self.op(),
                    number,
                    distance: rounds.after(false),
                    signature: self.signature,
                    ctx,
                    is_persistent: true,
                };
                match visit.is_free() {
                    false => {
                        // Before it is looked at again: who leaves from now on wakes this process
                        // if it sleeps.
                        self.request(SlotDemand::Computes);
                        PendingState::AwaitingSlot(Vec::new(), None)
                    }
                    true => {
                        let seen = visit.arrive_with_data();
                        match visit.end_if_complete(seen) {
                            None => PendingState::Arrived(seen),
                            Some(Ok(())) => return Some(Request::done(process, Status::EMPTY)),
                            // Told by the wait or test, so that others started in the same call are
                            // started.
                            Some(Err(error)) => PendingState::Over(Some(error)),
                        }
                    }
                }
            }
        };
        // What was not put down yet others wait for, also while this member computes.
        let helped = matches!(
            state,
            PendingState::AwaitingSegment(..) | PendingState::AwaitingSlot(..)
        );
        let open = PendingCollective::new(
            SlotKind::Persistent(self.clone()),
            (number, self.signature),
            state,
            ctx,
            helped,
        );
        if helped {
            open.is_stepper.store(true, Ordering::Relaxed);
            process.host.attach_stepper(open.clone());
        }
        Some(Request::new(process, open))
    }
}

impl Drop for PersistentSlots {
    fn drop(&mut self) {
        if let Some(hearing) = lock(&self.exchange).take() {
            let host = hearing.ctx.comm().process().host.clone();
            host.attach_awaited_stepper(hearing);
        }
    }
}
