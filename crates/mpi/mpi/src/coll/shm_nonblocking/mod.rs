//! Nonblocking collectives that meet in shared memory: all but long ones, where all members share a
//! node and have a board.
//!
//! Used by [`Comm::start_collective`](crate::comm::Comm::start_collective). What a member brings it
//! puts down when it starts the call, unless the round is not free yet ([`garonne_sync::nbc_slots`]);
//! whoever comes last combines for all (where members are few and have a core each, every one for
//! itself), so who computes meanwhile is waited for by nobody. Then nothing is left to do but to
//! look, and to take: who waits or tests does so itself, and whoever brings about what others wait
//! for rings once for those who sleep. Only who came too early for its round is a stepper, from the
//! beginning, and so is who comes before it is known whether there are rounds
//! ([`super::segment_setup`]); and where several threads wait, one that polls looks for all, so there a
//! call becomes a stepper when it is first waited for.
//!
//! What is longer than [`SLOT_SHORT`](limit::SLOT_SHORT) is worth taking on behalf of a member
//! that computes: such a call is a stepper from the beginning, which the host lends hands for, and
//! whoever brings about what others wait for calls their helpers as well, once: at a gate the last
//! to come, with flags who sees that all have come.
//!
//! Which number meets in which round is a count of the communicator's nonblocking collectives,
//! which all members make in the same order, and whether the data of a call goes this way follows
//! from what must be the same on all ranks. Members that disagree find different words, as in
//! [`super::shm_sync`], and get G0112; calls whose data goes by messages come to a round only to show
//! what they are, so that of ranks of which only some meet somebody is told. Bounded by the rounds
//! of a board, and by one object for each call that is open.

mod bytes_moved;
mod pending;
#[cfg(test)]
mod pending_tests;
pub(super) mod persistent_slots;
pub(super) mod shm_op;
pub(super) mod shm_op_v;

use super::Collective;
use super::autotune::CopyKind;
use super::call_signature::{CallSignature, SIGNATURE_BYTES};
use super::call_tag::CallSeries;
use super::comm_segment::{self, Attachment, BarrierKind, Lookup};
use super::execute::{CollContext, InFlight, RunningSchedule};
use super::mismatch_report::{MemberCall, mismatch_error, note_site};
use super::nonblocking::plan_of;
use super::segment_allocator;
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::limits::coll as limit;
use crate::request::{Request, Status};
use bytes_moved::SlotPhase;
use garonne_sync::copy::StoreKind;
use garonne_sync::nbc_slots::{
    ExitWindow, NbcSlots, ROUNDS, SlotDemand, SlotRequests, is_free, is_whole,
};
use garonne_sync::shm_barrier::{Agreement, Arrival, NOTE_BYTES};
use garonne_sync::store_policy::{ReadCosts, ReadTimer, StoreChooser};
use pending::{PendingCollective, PendingState, SlotKind};
use shm_op::{CombineBuffer, Dependency, ShmOp, SlotView};
use shm_op_v::LengthMismatch;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// A member's use of its board's rounds.
#[derive(Default)]
pub(crate) struct MemberSlots {
    /// Number of the last call that met there.
    last: AtomicU32,
    /// All members are known to have left all calls up to this one.
    through: AtomicU32,
    /// What this member has left.
    left: Mutex<ExitWindow>,
    /// What this member asks for because it is not free.
    asks: Mutex<SlotRequests>,
    /// The calls that were not over when they returned, by round.
    open: Mutex<[Weak<PendingCollective>; ROUNDS as usize]>,
    /// For combining; made at first use.
    private: CombineBuffer,
    /// By which stores long contributions are put down.
    writes: Mutex<StoreChooser>,
    reads: Mutex<ReadTimer>,
}

impl std::fmt::Debug for MemberSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Visits({})", self.last.load(Ordering::Relaxed))
    }
}

impl MemberSlots {
    /// The number of the next call.
    fn next(&self) -> u32 {
        let number = self.last.load(Ordering::Relaxed).wrapping_add(1);
        self.last.store(number, Ordering::Relaxed);
        number
    }

    /// One more call of this member's asks for its round.
    fn ask(&self, rounds: &NbcSlots, how: SlotDemand) {
        lock(&self.asks).ask(rounds.askers(), how);
    }

    /// One that asked so has its round.
    fn ask_no_more(&self, rounds: &NbcSlots, how: SlotDemand) {
        lock(&self.asks).ask_no_more(rounds.askers(), how);
    }

    /// The calls that were not over when they returned and have to be left before this number,
    /// which comes `after` so many, may come.
    fn before(&self, number: u32, after: u32) -> Vec<Weak<PendingCollective>> {
        let is_before = |open: &&Weak<PendingCollective>| {
            let open = open.upgrade();
            open.is_some_and(|open| (after..=ROUNDS).contains(&number.wrapping_sub(open.number)))
        };
        lock(&self.open).iter().filter(is_before).cloned().collect()
    }

    /// After how many numbers this member may come to `number`. Others may need wide cells for it
    /// that come back sooner: they wait until all have left what was there, which a member that has
    /// nothing open from then does not hinder.
    fn after(&self, number: u32, errand: &ShmOp<'_>, members: u32) -> u32 {
        let after = errand.comes_after(members);
        let is_ahead =
            after < ROUNDS && errand.is_small(members) && self.before(number, after).is_empty();
        if is_ahead { ROUNDS } else { after }
    }

    /// Gives the call before it that has the same round, if it is still open.
    fn opened(&self, open: &Arc<PendingCollective>) -> Option<Arc<PendingCollective>> {
        let place = &mut lock(&self.open)[(open.number % ROUNDS) as usize];
        std::mem::replace(place, Arc::downgrade(open)).upgrade()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts `call` in a round; `None`: messages are to serve, and at most those who disagree will
/// hear of it.
pub(super) fn start(
    call: &impl Collective,
    wire: &CollContext<'static>,
) -> Option<Result<Request>> {
    let comm = wire.comm();
    let place = match comm_segment::look_for(comm, wire.origin()) {
        Lookup::Place(place) => place,
        Lookup::Nothing => return None,
        Lookup::NotYet => return start_early(call, wire),
    };
    let errand = call.errand(comm);
    let fits = errand.filter(|errand| errand.fits(comm.size(), place.rounds.wide_len()));
    let by_messages = fits.is_none();
    let started = start_at(
        place,
        fits.unwrap_or(ShmOp::Show),
        call.statement(comm),
        wire,
    );
    match started {
        Ok(_) if by_messages => None,
        started => Some(started),
    }
}

/// Starts `call` before it is known whether there are rounds: what may meet there waits for that in
/// its request, with what it would do by messages.
#[cold]
fn start_early(call: &impl Collective, wire: &CollContext<'static>) -> Option<Result<Request>> {
    let comm = wire.comm();
    let errand = call.errand(comm);
    let fits =
        errand.filter(|errand| errand.fits(comm.size(), segment_allocator::wide_len(comm.size())));
    let by_messages = fits.is_none();
    let otherwise = match by_messages {
        true => None,
        false => match plan_of(call, comm) {
            Ok(schedule) => Some(RunningSchedule::new(
                wire.clone(),
                schedule,
                InFlight::default(),
            )),
            Err(error) => return Some(Err(error)),
        },
    };
    let number = visits(comm).next();
    let errand = fits.unwrap_or(ShmOp::Show);
    let after = errand.comes_after(comm.size());
    let before = visits(comm).before(number, after);
    let said = errand.said(call.statement(comm), comm.rank(), comm.size());
    let helped = errand.needs_hands(comm.size());
    let open = PendingCollective::new(
        SlotKind::Shared(errand.keep(), after),
        (number, said),
        PendingState::AwaitingSegment(before, otherwise),
        wire,
        helped,
    );
    visits(comm).opened(&open);
    open.kept.store(true, Ordering::Relaxed);
    comm.process().host.attach_stepper(open.clone());
    (!by_messages).then(|| Ok(Request::new(comm, open)))
}

/// What of `shm_op` goes by messages, not begun yet.
fn also(
    errand: &ShmOp<'_>,
    place: &Attachment,
    wire: &CollContext<'static>,
) -> Result<Option<Arc<RunningSchedule>>> {
    let ShmOp::Parcels(parcels) = errand else {
        return Ok(None);
    };
    let rounds = &place.rounds;
    let schedule = parcels.messages(place.me, rounds.members(), rounds.wide_len())?;
    Ok(schedule.map(|schedule| RunningSchedule::new(wire.clone(), schedule, InFlight::default())))
}

fn visits(comm: &Comm) -> &MemberSlots {
    &comm.0.meeting.visits
}

fn start_at(
    place: &Attachment,
    errand: ShmOp<'_>,
    said: CallSignature,
    wire: &CollContext<'static>,
) -> Result<Request> {
    let comm = wire.comm();
    let visits = visits(comm);
    let number = visits.next();
    let said = errand.said(said, place.me, comm.size());
    let after = visits.after(number, &errand, comm.size());
    let visit = SlotUse {
        place,
        rounds: &place.rounds,
        visits,
        errand: &errand,
        number,
        after,
        said,
        wire,
        is_own: false,
    };
    let mut before = Vec::new();
    let mut free = visit.is_free();
    if !free {
        before = visits.before(number, after);
        pending::look_at(&before);
        free = visit.is_free();
    }
    // By messages, beside the round; begun at once. What was over at once with an error is kept
    // until that is told.
    let also =
        also(&errand, place, wire)?.filter(|running| !running.carry() || running.error().is_some());
    let state = match free {
        true => {
            let last = visit.come();
            if also.is_none()
                && let Some(outcome) = visit.ended(last)
            {
                return outcome.map(|()| Request::done(comm, Status::EMPTY));
            }
            PendingState::Arrived(last)
        }
        false => PendingState::AwaitingSlot(before, None),
    };
    let helped = errand.needs_hands(comm.size());
    let kept = !free || also.is_some() || helped;
    let berth = SlotKind::Shared(errand.keep(), after);
    let open = PendingCollective::new(berth, (number, said), state, wire, helped);
    if let Some(also) = also {
        let _ = open.also.set(also);
    }
    let before = visits.opened(&open);
    if !free {
        // Before it is looked at again: who leaves from now on wakes this process if it sleeps.
        visits.ask(&place.rounds, open.asks());
    }
    if !free && open.also.get().is_none() && before.is_some_and(|before| before.precedes(&open)) {
        // Now and then those before it get on, as others come: else a long row of starts would
        // leave all to the wait.
        if number.is_multiple_of(ROUNDS / 2) {
            comm.process().host.progress();
        }
        return Ok(Request::new(comm, open));
    }
    if kept {
        open.kept.store(true, Ordering::Relaxed);
        comm.process().host.attach_stepper(open.clone());
    }
    Ok(Request::new(comm, open))
}

/// One call in its round.
struct SlotUse<'a> {
    place: &'a Attachment,
    rounds: &'a NbcSlots,
    visits: &'a MemberSlots,
    errand: &'a ShmOp<'a>,
    number: u32,
    /// It may come when all have left the number so many before.
    after: u32,
    said: CallSignature,
    wire: &'a CollContext<'static>,
    /// The rounds are one collective's alone: who came to a number has left the one before.
    is_own: bool,
}

impl SlotUse<'_> {
    fn view<T>(&self, put: StoreKind, f: impl FnOnce(&SlotView<'_>) -> T) -> T {
        let (rounds, Attachment { me, .. }) = (self.rounds, self.place);
        let members = rounds.members();
        let len = self.errand.len(members) as usize;
        f(&SlotView {
            me: *me,
            members,
            room: (rounds.room() as u64).min(limit::SLOT_BYTES_MAX),
            cell: &|member| rounds.cell(member, self.number, len),
            cell_len: rounds.cell_len(len) as u64,
            wide: &|member| rounds.wide_cell(member, self.number),
            wide_len: rounds.wide_len(),
            result: (self.place.style == BarrierKind::Counter)
                .then(|| rounds.result(self.number, len)),
            private: &self.visits.private,
            stroke: match put {
                StoreKind::Cached => CopyKind::Cached,
                StoreKind::Streamed => CopyKind::Streamed,
            },
            stores: &|member| self.stores_of(member),
            timed: &|stores, len, copy| self.time(stores, len as usize, copy),
        })
    }

    /// Moves bytes of the call, for those who watch.
    fn moving<T>(&self, step: SlotPhase, act: impl FnOnce() -> T) -> T {
        let bytes = || {
            let (rounds, Attachment { me, style, .. }) = (self.rounds, self.place);
            let around = bytes_moved::SlotGeometry {
                me: *me,
                members: rounds.members(),
                wide_len: rounds.wide_len(),
                combined: *style == BarrierKind::Counter,
            };
            self.errand.moves(step, around)
        };
        self.wire.moving(bytes, act)
    }

    /// Whether all have left the call that was in this one's round before.
    fn is_free(&self) -> bool {
        if self.is_own && self.errand.course() == Dependency::AllOnAll {
            // All have come to the number before, and so have left the one before that.
            return true;
        }
        let (known, rounds, after) = (&self.visits.through, self.rounds, self.after);
        // Acquire: another thread's look at what all have left. SYNC(round-through).
        let before = known.load(Ordering::Acquire);
        if is_free(self.number, after, before) {
            return true;
        }
        let through = rounds.through();
        // Release: see above. SYNC(round-through).
        known.store(through, Ordering::Release);
        if through != before && self.asked_by_others() == SlotDemand::Computes {
            // Who left may not have seen who asks, and nobody gets further than that without a look
            // here.
            self.place.call_hands();
        }
        is_free(self.number, after, through)
    }

    /// Wakes those who asked for what has been left, and calls their helpers if they compute.
    #[cold]
    fn tell_left(&self) {
        let asked = self.asked_by_others();
        if asked != SlotDemand::No {
            self.place.ring();
        }
        if asked == SlotDemand::Computes {
            self.place.call_hands();
        }
    }

    #[cold]
    fn asked_by_others(&self) -> SlotDemand {
        lock(&self.visits.asks).of_others(self.rounds.askers())
    }

    /// The stores by which a member put down what is long, or (`None`) the last to come the result.
    fn stores_of(&self, member: Option<u32>) -> StoreKind {
        let rounds = self.rounds;
        let mut said = [0];
        match member {
            Some(member) => rounds
                .note(member, self.number)
                .read(SIGNATURE_BYTES as isize, &mut said),
            None => rounds.result(self.number, 0).read(0, &mut said),
        }
        match said {
            [0] => StoreKind::Cached,
            _ => StoreKind::Streamed,
        }
    }

    /// Does what reads `len` bytes that were put down so, and tells their writers how long it took.
    fn time(&self, stores: StoreKind, len: usize, copy: &mut dyn FnMut()) {
        if !lock(&self.visits.reads).wants(stores, len) {
            return copy();
        }
        let begun = Instant::now();
        copy();
        if let Some(word) = lock(&self.visits.reads).took(stores, len, begun.elapsed()) {
            self.rounds.tell_reads(self.place.me, word);
        }
    }

    /// Puts down what this member brings by the stores that are best for that, which it gives.
    fn put(&self, note: &mut [u8; NOTE_BYTES]) -> StoreKind {
        let (rounds, Attachment { me, .. }) = (self.rounds, self.place);
        let long = self
            .errand
            .puts(*me, rounds.members())
            .map(|len| len as usize);
        let next = |len| {
            let mut writes = lock(&self.visits.writes);
            writes.prefer_caches(if self.place.apart() {
                0
            } else {
                limit::SLOT_STREAM_MARGIN
            });
            writes.next(len)
        };
        let (stores, timed) = long.map_or((StoreKind::Cached, false), next);
        note[SIGNATURE_BYTES] = stores as u8;
        let begun = timed.then(Instant::now);
        self.moving(SlotPhase::Put, || {
            self.view(stores, |view| self.errand.put(view))
        });
        if let (Some(begun), Some(len)) = (begun, long) {
            let took = begun.elapsed();
            let told = self.place.others().map(|member| rounds.told_reads(member));
            lock(&self.visits.writes).took(stores, len, took, ReadCosts::mean(told));
        }
        stores
    }

    /// Puts down what this member brings, comes, and wakes those who waited for that. What the
    /// words of those are like whom it saw: at a gate the last to come sees all.
    fn come(&self) -> Option<Agreement> {
        let (rounds, Attachment { me, style, .. }) = (self.rounds, self.place);
        let word = self.said.word();
        let mut note = [0; NOTE_BYTES];
        note[..SIGNATURE_BYTES].copy_from_slice(&self.said.to_bytes());
        note_site(&mut note, self.wire.origin().site);
        let stores = self.put(&mut note);
        rounds.note(*me, self.number).write(0, &note);
        self.view(stores, |view| {
            rounds.flag(*me, self.number).raise(self.number, word);
            let seen = match style {
                BarrierKind::Counter => self.arrive(view, word),
                BarrierKind::Flags => self.show(),
            };
            self.errand.keep_own(view);
            seen
        })
    }

    fn arrive(&self, view: &SlotView<'_>, word: u32) -> Option<Agreement> {
        let (place, gate) = (self.place, self.rounds.gate(self.number));
        let last = match gate.arrive(word) {
            Arrival::Early => None,
            Arrival::Last(words) => {
                if words == Agreement::Same {
                    self.moving(SlotPhase::Combine, || self.errand.combine(view));
                    self.say_how(view);
                }
                gate.open(self.number, words);
                Some(words)
            }
        };
        match (self.errand.course(), last) {
            (_, Some(Agreement::Different)) | (Dependency::AllOnAll, Some(Agreement::Same)) => {
                self.tell(None, true)
            }
            (Dependency::AllOnOne(root), _) if root == place.me => self.tell(None, true),
            (Dependency::OneOnAll(root), Some(Agreement::Same)) if root != place.me => {
                self.tell(Some(root), true)
            }
            _ => {}
        }
        last
    }

    /// For whoever reads the result, where that is long.
    fn say_how(&self, view: &SlotView<'_>) {
        if view.result.is_some() && self.errand.len(view.members) >= limit::SLOT_STORES_FROM {
            let streamed = view.stroke == CopyKind::Streamed;
            self.rounds
                .result(self.number, 0)
                .write(0, &[streamed.into()]);
        }
    }

    /// Wakes those who wait for this member, or one of them. `brings`: what they wait for is there
    /// now, so that of those who compute the helpers are called, where the call needs hands.
    fn tell(&self, whom: Option<u32>, brings: bool) {
        let (place, calls) = (self.place, brings && self.calls_hands());
        match whom {
            None => place.ring(),
            Some(member) => place.ring_one(member),
        }
        match whom {
            _ if !calls => {}
            None => place.call_hands(),
            Some(member) => place.call_hands_of(member),
        }
    }

    /// With flags everybody looks at everybody's, so each may be the one that a sleeper waits for.
    fn show(&self) -> Option<Agreement> {
        let place = self.place;
        match self.errand.course() {
            // Others wait for all, or for this one.
            Dependency::AllOnAll | Dependency::None => self.tell(None, self.is_seen_whole()),
            Dependency::AllOnOne(root) if root == place.me => self.tell(None, true),
            Dependency::OneOnAll(root) if root != place.me => {
                self.tell(Some(root), self.is_seen_whole())
            }
            Dependency::AllOnOne(_) | Dependency::OneOnAll(_) => {}
        }
        let differs = |member| {
            self.word_of(member)
                .is_some_and(|word| word != self.said.word())
        };
        place.others().any(differs).then_some(Agreement::Different)
    }

    /// Whether all have come to a call that needs hands, for one who has: only who sees that calls
    /// anybody.
    fn is_seen_whole(&self) -> bool {
        self.needs_hands() && is_whole(self.place.others(), |member| self.word_of(member).is_some())
    }

    fn needs_hands(&self) -> bool {
        self.errand.needs_hands(self.rounds.members())
    }

    /// Whether others may need theirs: of uneven blocks the last to come to a gate does not know
    /// that.
    fn calls_hands(&self) -> bool {
        self.needs_hands()
            || self.place.style == BarrierKind::Counter && matches!(self.errand, ShmOp::Parcels(_))
    }

    /// What `member` came with, if it has.
    fn word_of(&self, member: u32) -> Option<u32> {
        self.rounds.flag(member, self.number).raised(self.number)
    }

    /// Whether what this member waits for has come, and what the words were like; `seen` is what
    /// [`Self::come`] said.
    fn has_come(&self, seen: Option<Agreement>) -> Option<Agreement> {
        let place = self.place;
        let own = self.said.word();
        let words = |same| {
            if same {
                Agreement::Same
            } else {
                Agreement::Different
            }
        };
        let alone = Some(seen.unwrap_or(Agreement::Same));
        if let ShmOp::Parcels(parcels) = self.errand
            && !parcels.takes_any(place.me, self.rounds.members(), self.rounds.wide_len())
        {
            return alone;
        }
        match (self.errand.course(), place.style) {
            (Dependency::AllOnOne(root), _) if root != place.me => {
                let theirs = self.word_of(root)?;
                Some(words(theirs == own && seen != Some(Agreement::Different)))
            }
            (Dependency::OneOnAll(root), _) if root != place.me => alone,
            (Dependency::AllOnOne(_) | Dependency::None, _) => alone,
            (Dependency::AllOnAll | Dependency::OneOnAll(_), BarrierKind::Counter) => {
                let gate = self.rounds.gate(self.number);
                gate.passed(self.number).then(|| gate.words(self.number))
            }
            (Dependency::AllOnAll | Dependency::OneOnAll(_), BarrierKind::Flags) => {
                let mut same = true;
                for member in place.others() {
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
    fn end(&self, words: Agreement) -> Result<()> {
        let outcome = match words {
            Agreement::Same => self
                .moving(SlotPhase::Take, || {
                    self.view(StoreKind::Cached, |view| self.errand.take(view))
                })
                .map_or(Ok(()), |misfit| Err(self.misfit(misfit))),
            Agreement::Different => Err(self.disagreement()),
        };
        let (rounds, Attachment { me, .. }) = (self.rounds, self.place);
        let mut left = lock(&self.visits.left);
        // Under the lock: what another thread leaves later is said later.
        let through = left.add(self.number);
        let asked = through.map_or(SlotDemand::No, |through| rounds.exit(*me).leave(through));
        drop(left);
        if asked != SlotDemand::No {
            self.tell_left();
        }
        outcome
    }

    /// The end of a call that is over with that, if what it waits for has come. `seen` as for
    /// [`Self::has_come`].
    fn ended(&self, seen: Option<Agreement>) -> Option<Result<()>> {
        let outcome = self.end(self.has_come(seen)?);
        self.tell_over();
        Some(outcome)
    }

    /// For those who watch: the call is over, unless its data went by messages.
    fn tell_over(&self) {
        if self.errand.course() != Dependency::None {
            self.wire.tell_over();
        }
    }

    #[cold]
    fn misfit(&self, LengthMismatch { from, sent, room }: LengthMismatch) -> Error {
        let (call, me) = (self.wire.call(), self.place.me);
        let text = format!(
            "error[G0107]: {call}: rank {from} sends {sent} B to rank {me}, which expects {room} B\n  \
             help: the counts and datatypes of all ranks must describe the same amount of data"
        );
        Error::new(Class::Truncate, text)
    }

    #[cold]
    fn disagreement(&self) -> Error {
        let (rounds, Attachment { me, .. }) = (self.rounds, self.place);
        let noted = |member| {
            let mut note = [0; NOTE_BYTES];
            rounds.note(member, self.number).read(0, &mut note);
            MemberCall::noted(member, &note)
        };
        let others = self.place.others();
        let others = others.filter(|member| self.word_of(*member).is_some());
        let all = std::iter::once(*me).chain(others).map(noted).collect();
        let call = self.wire.call();
        let what = match call.series {
            CallSeries::Persistent => "persistent collective",
            CallSeries::Blocking | CallSeries::Nonblocking => "nonblocking collective",
        };
        mismatch_error(self.wire.comm(), (what, call.number), all)
    }
}
