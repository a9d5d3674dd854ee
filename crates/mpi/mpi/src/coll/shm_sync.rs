//! Synchronisation of a blocking collective in its segment: barriers, and the comparison of what
//! the ranks called.
//!
//! [`Comm::collective`](crate::comm::Comm::collective) makes one [`ShmSync`] for each call;
//! [`super::shm_small`] and [`super::shm_large`] use it. Every call passes at least one barrier, an
//! epoch, with a word mixed from its [`CallSignature`]. In all calls but one every member waits in
//! the first epoch for all others, so all ranks of a mismatch are told in that epoch.
//!
//! The exception is a short broadcast. Its root goes on at once, and its readers wait for the root
//! alone. A reader detects a mismatch with its root. Two roots detect each other: the second finds
//! the first, and at a counter barrier the last to arrive finds everything. Whoever detects a
//! mismatch leaves the epoch's number in the segment, where the others find it at their next
//! collective.
//!
//! A call of several epochs begins with a barrier of all, so after a mismatch every member has
//! passed as many epochs. A member is ahead of the slowest by less than [`DEPTH`] epochs.

use super::call_signature::{CallSignature, SIGNATURE_BYTES};
use super::comm_segment::{Attachment, BarrierKind};
use super::execute::COLLECTIVE;
use super::mismatch_report::{MemberCall, mismatch_error, note_site};
use super::tuned_call::TunedCall;
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::limits::coll as limit;
use garonne_coll::call_tag::{CallId, TagScope};
use garonne_engine::api::CallOrigin;
use garonne_engine::observe::events::{AwaitedRanks, ExternalWait};
use garonne_sync::doorbell::Doorbell;
use garonne_sync::shm_barrier::{Agreement, Arrival, DEPTH, NOTE_BYTES};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// When a member began and when it was done, in nanoseconds of the clock that all processes of a
/// node share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeSpan {
    pub begin: u64,
    pub end: u64,
}

impl TimeSpan {
    /// Reads the clock that all processes of a node share. The system may set it: then one
    /// measurement is wrong, or left out.
    pub fn now() -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    /// From when the first of two began to when the last was done.
    fn with(self, other: Self) -> Self {
        Self {
            begin: self.begin.min(other.begin),
            end: self.end.max(other.end),
        }
    }

    /// `None`: the clock was set in between.
    fn len(self) -> Option<Duration> {
        let len = self.end.checked_sub(self.begin)?;
        Some(Duration::from_nanos(len.max(1)))
    }
}

/// One blocking collective in a segment, as one of its members takes part.
///
/// The call owns it on its stack. For each epoch: [`ShmSync::next_epoch`], write to the own cell or
/// lane, [`ShmSync::barrier`] (or [`ShmSync::signal`] at a root and [`ShmSync::wait_for`] at its
/// readers), read what others wrote.
pub struct ShmSync<'a> {
    pub(super) comm: &'a Comm,
    pub(super) attachment: &'a Attachment,
    pub(super) call: CallId,
    pub(super) origin: CallOrigin,
    signature: CallSignature,
    word: Cell<u32>,
    /// Set while a tuned call goes by messages.
    tuned: Cell<Option<TunedCall>>,
}

impl<'a> ShmSync<'a> {
    pub(super) fn new(
        comm: &'a Comm,
        place: &'a Attachment,
        call: CallId,
        origin: CallOrigin,
        signature: CallSignature,
    ) -> Self {
        Self {
            comm,
            attachment: place,
            call,
            origin,
            signature,
            word: Cell::new(signature.word()),
            tuned: Cell::new(None),
        }
    }

    /// Mixes a decision of this member into the word that the members compare.
    pub(super) fn mix_into_word(&self, decided: u32) {
        self.word.set(
            self.word
                .get()
                .wrapping_add(decided.wrapping_mul(0x9E37_79B9)),
        );
    }

    /// Leaves a tuned call to messages.
    pub(super) fn use_messages(&self, course: TunedCall) {
        self.tuned.set(Some(course));
    }

    pub(super) fn take_tuned(&self) -> Option<TunedCall> {
        self.tuned.take()
    }

    /// Starts the next epoch and returns its number; this process must take part in it. The own
    /// cell of the epoch may be written from now on, its lane not.
    #[inline]
    pub(super) fn next_epoch(&self) -> u32 {
        let epoch = self.attachment.last_epoch().wrapping_add(1);
        self.attachment.epoch.store(epoch, Ordering::Relaxed);
        // Its slot was that of a meeting which all have left when all have come to the one after.
        if epoch.wrapping_sub(self.attachment.complete_epoch.load(Ordering::Relaxed)) >= DEPTH {
            self.await_epoch(epoch.wrapping_sub(DEPTH / 2));
        }
        epoch
    }

    /// Starts the next epoch of a call that writes lanes: waits until all others have left the
    /// epoch before the last.
    #[inline]
    pub(super) fn next_epoch_with_lanes(&self) -> u32 {
        let last = self.attachment.last_epoch();
        if last != self.attachment.complete_epoch.load(Ordering::Relaxed) {
            self.await_epoch(last);
        }
        self.next_epoch()
    }

    /// Waits until all have arrived in this epoch.
    #[cold]
    fn await_epoch(&self, epoch: u32) {
        let Attachment {
            segment: board,
            barrier: style,
            ..
        } = self.attachment;
        let mut awaited = self.attachment.others().peekable();
        self.wait(AwaitedRanks::Laggards, &mut || match style {
            BarrierKind::Counter => board.gate(epoch).passed(epoch),
            BarrierKind::Flags => {
                while awaited
                    .next_if(|&member| board.flag(member, epoch).reached(epoch))
                    .is_some()
                {}
                awaited.peek().is_none()
            }
        });
        self.attachment
            .complete_epoch
            .store(epoch, Ordering::Relaxed);
    }

    /// Returns whether all members can read each other's memory. They agree on it when the first of
    /// their collectives asks, all in the same one: before the first meeting a peer may not have
    /// started, and could not be read from yet.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub(super) fn reads_directly(&self) -> Result<bool> {
        let Attachment {
            segment: board,
            me,
            reads_directly: reads,
            ..
        } = self.attachment;
        if let Some(&reads) = reads.get() {
            return Ok(reads && !self.attachment.reading_refused.load(Ordering::Relaxed));
        }
        let process = self.comm.process();
        let readable = |rank| match self.comm.group().peer(rank) {
            Some(peer) => peer == process.host.me() || process.host.can_read(peer),
            None => false,
        };
        // Words are compared before: only those who mean the same come to the second meeting.
        self.compare_signatures()?;
        let epoch = self.next_epoch();
        let all = (0..board.members()).all(readable);
        board.cell(*me, epoch).write(0, &[u8::from(all)]);
        self.barrier(epoch, || {})?;
        let says = |member| {
            let mut answer = [0];
            board.cell(member, epoch).read(0, &mut answer);
            answer == [1]
        };
        let all = (0..board.members()).all(says);
        Ok(*reads.get_or_init(|| all))
    }

    /// Meets the others, and learns how long it was from when the first began to when the last was
    /// done; `None`: somebody cannot say.
    ///
    /// Members that share a core begin and end one after the other: each one's own time would leave
    /// out what the others do before and after.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub(super) fn measure_span(&self, own: Option<TimeSpan>) -> Result<Option<Duration>> {
        let (board, epoch) = (&self.attachment.segment, self.next_epoch());
        let own = own.unwrap_or(TimeSpan { begin: 0, end: 0 });
        let cell = board.cell(self.attachment.me, epoch);
        cell.write(0, &own.begin.to_ne_bytes());
        cell.write(8, &own.end.to_ne_bytes());
        self.barrier(epoch, || {})?;
        let told = (0..board.members()).map(|member| {
            let word = |at| {
                let mut bytes = [0; 8];
                board.cell(member, epoch).read(at, &mut bytes);
                u64::from_ne_bytes(bytes)
            };
            let span = TimeSpan {
                begin: word(0),
                end: word(8),
            };
            (span.begin > 0).then_some(span)
        });
        let whole = told
            .reduce(|whole, span| Some(whole?.with(span?)))
            .flatten();
        Ok(whole.and_then(TimeSpan::len))
    }

    /// Passes a barrier only to compare signatures.
    pub(super) fn compare_signatures(&self) -> Result<()> {
        self.barrier(self.next_epoch(), || {})
    }

    /// Passes a barrier of all members. At a counter barrier the last to arrive calls `last` first.
    ///
    /// # Errors
    /// `NotSame` if ranks called different things; all who wait for all get it, in the same
    /// meeting.
    #[inline]
    pub(super) fn barrier(&self, epoch: u32, last: impl FnOnce()) -> Result<()> {
        self.barrier_with(epoch, last, || {})
    }

    /// Passes a barrier, and calls `meanwhile` between arriving and waiting.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    #[inline]
    pub(super) fn barrier_with(
        &self,
        epoch: u32,
        last: impl FnOnce(),
        meanwhile: impl FnOnce(),
    ) -> Result<()> {
        self.publish(epoch);
        let words = match self.attachment.barrier {
            BarrierKind::Counter => self.counter_barrier(epoch, (last, meanwhile)),
            BarrierKind::Flags => self.flag_barrier(epoch, meanwhile),
        };
        self.attachment
            .complete_epoch
            .store(epoch, Ordering::Relaxed);
        self.check(epoch, words)
    }

    /// Arrives in an epoch without waiting: those who wait for this member read what it wrote.
    ///
    /// # Errors
    /// `NotSame` if one who came before called something else. Those who come later will find out
    /// themselves.
    pub(super) fn signal(&self, epoch: u32) -> Result<()> {
        self.publish(epoch);
        let words = match self.attachment.barrier {
            BarrierKind::Counter => {
                let words = self.arrive(epoch, || {}).unwrap_or(Agreement::Same);
                self.attachment.wake_all();
                words
            }
            BarrierKind::Flags => {
                // The fence inside orders the own flag before the looks at the others': of two who
                // both lead, one sees the other.
                self.attachment.wake_all();
                let differs = |member| {
                    let theirs = self.attachment.segment.flag(member, epoch).raised(epoch);
                    theirs.is_some_and(|word| word != self.word.get())
                };
                match self.attachment.others().any(differs) {
                    true => Agreement::Different,
                    false => Agreement::Same,
                }
            }
        };
        self.check(epoch, words)
    }

    /// Arrives in an epoch and waits only for `leader`.
    ///
    /// # Errors
    /// `NotSame` if that one called something else, or if the caller came last and any of them did.
    pub(super) fn wait_for(&self, epoch: u32, leader: u32) -> Result<()> {
        self.publish(epoch);
        let came_last = match self.attachment.barrier {
            BarrierKind::Counter => self.arrive(epoch, || {}),
            BarrierKind::Flags => None,
        };
        if came_last.is_some() || self.attachment.barrier == BarrierKind::Flags {
            // Somebody may wait for all to have come.
            self.attachment.wake_all();
        }
        let (mut theirs, board) = (None, &self.attachment.segment);
        let peer = self.comm.group().peer(leader);
        self.wait(
            peer.map_or(AwaitedRanks::Members, AwaitedRanks::Leader),
            &mut || {
                theirs = board.flag(leader, epoch).raised(epoch);
                theirs.is_some()
            },
        );
        let words = match came_last {
            Some(Agreement::Different) => Agreement::Different,
            _ if theirs != Some(self.word.get()) => Agreement::Different,
            _ => Agreement::Same,
        };
        self.check(epoch, words)
    }

    /// Notes this member's call in the segment, and raises its flag.
    #[inline]
    fn publish(&self, epoch: u32) {
        let Attachment {
            segment: board, me, ..
        } = self.attachment;
        let mut note = [0; NOTE_BYTES];
        note[..SIGNATURE_BYTES].copy_from_slice(&self.signature.to_bytes());
        note[SIGNATURE_BYTES..SIGNATURE_BYTES + 4].copy_from_slice(&self.call.number.to_ne_bytes());
        note_site(&mut note, self.origin.site);
        board.note(*me, epoch).write(0, &note);
        board.flag(*me, epoch).raise(epoch, self.word.get());
    }

    /// Arrives at the counter, and opens it if all others have arrived. Returns the agreement if
    /// this member came last.
    #[inline]
    fn arrive(&self, epoch: u32, last: impl FnOnce()) -> Option<Agreement> {
        let gate = self.attachment.segment.gate(epoch);
        let Arrival::Last(words) = gate.arrive(self.word.get()) else {
            return None;
        };
        if words == Agreement::Same {
            last();
        }
        gate.open(epoch, words);
        Some(words)
    }

    fn counter_barrier(
        &self,
        epoch: u32,
        (last, meanwhile): (impl FnOnce(), impl FnOnce()),
    ) -> Agreement {
        if let Some(words) = self.arrive(epoch, last) {
            self.attachment.wake_all();
            meanwhile();
            return words;
        }
        meanwhile();
        let gate = self.attachment.segment.gate(epoch);
        self.wait(AwaitedRanks::Members, &mut || gate.passed(epoch));
        gate.words(epoch)
    }

    fn flag_barrier(&self, epoch: u32, meanwhile: impl FnOnce()) -> Agreement {
        let Attachment {
            segment: board,
            doorbells: bells,
            ..
        } = self.attachment;
        // As after a message: a waiter that missed this looks again before it sleeps for long.
        bells
            .iter()
            .for_each(|bell| Doorbell::new(bell.atomic_u32(0)).ring());
        meanwhile();
        let (mut words, own) = (Agreement::Same, self.word.get());
        let mut others = self.attachment.others();
        let mut awaited = others.next();
        self.wait(AwaitedRanks::Members, &mut || {
            while let Some(member) = awaited {
                match board.flag(member, epoch).raised(epoch) {
                    None => return false,
                    Some(theirs) if theirs != own => words = Agreement::Different,
                    Some(_) => {}
                }
                awaited = others.next();
            }
            true
        });
        words
    }

    #[inline]
    fn wait(&self, awaited: AwaitedRanks, come: &mut (dyn FnMut() -> bool + Send)) {
        let host = &self.comm.process().host;
        let come_alone = match host.is_single_threaded() {
            true => spin(self.attachment.spins, come),
            false => self.spin_and_yield(come),
        };
        if come_alone {
            return;
        }
        let meeting = ExternalWait {
            awaited,
            context: self.comm.context() + COLLECTIVE,
            tag: self.call.tag(TagScope::Whole),
            origin: self.origin,
        };
        host.note_external_wait(0, Some(meeting));
        host.wait_for_memory(come);
        host.note_external_wait(0, None);
    }

    /// The looks of one of several threads: others of its rank may want this core, among them the
    /// partners of those that run elsewhere now. So it looks for a moment, and then in turns with
    /// them, while there are any.
    #[inline(never)]
    fn spin_and_yield(&self, come: &mut (dyn FnMut() -> bool + Send)) -> bool {
        let (mut left, mut taken) = (self.attachment.spins, 0);
        while left > 0 && taken < limit::TURNS {
            if spin(left.min(limit::TURN_SPINS), come) {
                return true;
            }
            left = left.saturating_sub(limit::TURN_SPINS);
            let begun = Instant::now();
            std::thread::yield_now();
            if begun.elapsed() >= limit::TURN_TAKEN_FROM {
                (left, taken) = (self.attachment.spins, taken + 1);
            }
        }
        come()
    }

    #[inline]
    fn check(&self, epoch: u32, words: Agreement) -> Result<()> {
        match words {
            Agreement::Same => Ok(()),
            Agreement::Different => Err(self.mismatch(epoch)),
        }
    }

    /// Words differed in this meeting, to which the caller just came.
    #[cold]
    fn mismatch(&self, epoch: u32) -> Error {
        self.attachment
            .reported_epoch
            .store(epoch, Ordering::Relaxed);
        self.attachment.segment.tell_odd(epoch);
        self.describe(epoch, self.signature, self.call.number)
    }

    /// Returns the mismatch of an earlier call in which this member did not wait for all.
    ///
    /// # Errors
    /// `NotSame`, once for each such meeting that others have left word of.
    #[inline]
    pub(super) fn check_earlier(&self) -> Result<()> {
        let odd = self.attachment.segment.odd();
        if odd == 0 || odd == self.attachment.reported_epoch.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check_epoch(odd)
    }

    #[cold]
    fn check_epoch(&self, odd: u32) -> Result<()> {
        let Attachment {
            me,
            reported_epoch: told,
            ..
        } = self.attachment;
        if self.attachment.last_epoch().wrapping_sub(odd) as i32 <= -1 {
            // The caller is still to come there.
            return Ok(());
        }
        told.store(odd, Ordering::Relaxed);
        if let (true, Some((signature, number))) =
            (self.has_note(*me, odd), self.read_note(*me, odd))
        {
            return Err(self.describe(odd, signature, number));
        }
        let text = format!(
            "error[G0112]: ranks disagreed about a collective of {} before number {}\n  rank {me}  had gone on without waiting for the others\n  \
             help: all ranks of a communicator call the same collectives in the same order, with the same root and matching sizes",
            self.comm.label(),
            self.call.number,
        );
        Err(Error::new(Class::NotSame, text))
    }

    /// Returns whether what `member` noted of a meeting is still there.
    fn has_note(&self, member: u32, epoch: u32) -> bool {
        self.attachment
            .segment
            .flag(member, epoch)
            .raised(epoch)
            .is_some()
    }

    /// Reads the signature and number that `member` noted.
    fn read_note(&self, member: u32, epoch: u32) -> Option<(CallSignature, u32)> {
        let mut note = [0; NOTE_BYTES];
        self.attachment
            .segment
            .note(member, epoch)
            .read(0, &mut note);
        let (signature, rest) = note.split_first_chunk::<SIGNATURE_BYTES>()?;
        let number = u32::from_ne_bytes(*rest.first_chunk()?);
        Some((CallSignature::from_bytes(signature)?, number))
    }

    /// Returns the error for a mismatch: the calls of all who have arrived.
    fn describe(&self, epoch: u32, signature: CallSignature, number: u32) -> Error {
        let own = MemberCall {
            member: self.attachment.me,
            statement: Some(signature),
            site: self.member_call(self.attachment.me, epoch).site,
        };
        let others = self.attachment.others();
        let others = others.filter(|member| self.has_note(*member, epoch));
        let others = others.map(|member| self.member_call(member, epoch));
        let all = std::iter::once(own).chain(others).collect();
        mismatch_error(self.comm, ("collective", number), all)
    }

    fn member_call(&self, member: u32, epoch: u32) -> MemberCall {
        let mut note = [0; NOTE_BYTES];
        self.attachment
            .segment
            .note(member, epoch)
            .read(0, &mut note);
        MemberCall::noted(member, &note)
    }
}

/// Looks so often, and once more.
#[inline]
fn spin(spins: u32, come: &mut (dyn FnMut() -> bool + Send)) -> bool {
    for _ in 0..=spins {
        if come() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_take_turns_at_a_core_took_as_long_as_both_together() {
        let (first, second) = (
            TimeSpan {
                begin: 1000,
                end: 1300,
            },
            TimeSpan {
                begin: 1290,
                end: 1600,
            },
        );
        for whole in [first.with(second), second.with(first)] {
            assert_eq!(whole.len(), Some(Duration::from_nanos(600)));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_measured_nothing() {
        assert_eq!(
            TimeSpan {
                begin: 1000,
                end: 900
            }
            .len(),
            None
        );
    }
}
