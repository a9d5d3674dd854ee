//! A communicator's segment of shared memory, for communicators whose processes share a node.
//!
//! A communicator owns a [`CommSegment`], which becomes an [`Attachment`] in the communicator's
//! first collective, whichever that is at each rank ([`super::segment_setup`]). Rank 0 allocates
//! the segment ([`garonne_coll::segment_allocator`]). Every blocking collective begins with a
//! barrier in the segment ([`super::shm_sync`]), also one whose data goes by messages. So ranks
//! that call different collectives are told of it, instead of waiting for each other. The heap
//! bounds the segments (`Messaging::coll_heap`): without room there, messages serve.

use super::execute::CollContext;
use super::segment_setup::SegmentSetup;
use super::shm_nonblocking::MemberSlots;
use crate::comm::Comm;
use crate::error::Result;
use crate::limits::coll as limit;
use garonne_coll::algo;
use garonne_coll::autotune::PathTuner;
use garonne_coll::call_tag::CallId;
use garonne_coll::segment_allocator::{self, AllocatedSegment, SegmentAllocator};
use garonne_engine::api::CallOrigin;
use garonne_engine::observe::events::AwaitedRanks;
use garonne_progress::messaging::WaitTarget;
use garonne_sync::copy::{self, Routine};
use garonne_sync::doorbell::Doorbell;
use garonne_sync::nbc_slots::NbcSlots;
use garonne_sync::progress_owner::{self, WakeupScope};
use garonne_sync::shm::Segment;
use garonne_sync::shm_barrier::{CELL_BYTES, CollSegment};
use garonne_sync::user::{Scratch, UserMem};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

#[cfg(test)]
impl CommSegment {
    /// Returns whether the setup is over.
    pub fn is_decided(&self) -> bool {
        self.attachment.get().is_some()
    }

    /// Returns whether the communicator has a segment.
    pub fn is_attached(&self) -> bool {
        matches!(self.attachment.get(), Some(Some(_)))
    }

    /// Returns whether all members can read each other's memory.
    pub fn reads_directly(&self) -> bool {
        let place = self.attachment.get().and_then(Option::as_ref);
        place.is_some_and(|place| place.reads_directly.get() == Some(&true))
    }

    /// Returns the state of the tuner as text.
    pub fn tuner_state(&self) -> String {
        let place = self.attachment.get().and_then(Option::as_ref);
        place.map_or(String::new(), |place| {
            format!("{:?}", place.tuner.lock().unwrap())
        })
    }

    /// Forgets what the tuner has learned.
    pub fn reset_tuner(&self) {
        if let Some(place) = self.attachment.get().and_then(Option::as_ref) {
            *place.tuner.lock().unwrap() = PathTuner::default();
        }
    }

    /// Bytes of a lane; 0: there are no lanes.
    pub fn lane_len(&self) -> usize {
        let place = self.attachment.get().and_then(Option::as_ref);
        place.map_or(0, |place| place.segment.lane_len())
    }
}

/// A communicator's segment, or what is known of it so far. The communicator owns it.
#[derive(Debug, Default)]
pub(crate) struct CommSegment {
    attachment: OnceLock<Option<Attachment>>,
    /// Setup of the segment, once it has begun.
    setup: OnceLock<Arc<SegmentSetup>>,
    /// This process's nonblocking collectives in the segment, also those from before the setup was
    /// over.
    pub(super) slots: MemberSlots,
}

/// This process's side of a communicator's segment. It is made when all members have attached, and
/// leaves the segment when it is dropped with its communicator.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(super) segment: Arc<CollSegment>,
    pub(super) me: u32,
    /// Number of the last epoch.
    pub(super) epoch: AtomicU32,
    /// The last epoch in which all members are known to have arrived.
    pub(super) complete_epoch: AtomicU32,
    /// The last epoch with a mismatch that this rank's program was told of.
    pub(super) reported_epoch: AtomicU32,
    /// Slots of nonblocking collectives.
    pub(super) slots: NbcSlots,
    /// Doorbells of the other members.
    pub(super) doorbells: Vec<Segment>,
    /// Words that wake the progress threads of the other members.
    progress_words: Vec<Option<Segment>>,
    pub(super) barrier: BarrierKind,
    /// Bytes that all move in a call from which on caches keep nothing; all members go by what the
    /// lender found, as for the next.
    pub(super) past_caches_from: u64,
    /// The C library copies in another way than all else.
    pub(super) has_library_copy: bool,
    /// Whether all members can read each other's memory, once they have agreed on it.
    pub(super) reads_directly: OnceLock<bool>,
    /// The system does not let all members read that any more, which all have learned in the same
    /// call.
    pub(super) reading_refused: AtomicBool,
    /// Chooses the paths of long collectives.
    pub(super) tuner: Mutex<PathTuner>,
    /// Looks before giving way to others.
    pub(super) spins: u32,
    /// For combining: shared memory is only copied.
    pub(super) combine_room: Scratch,
    /// For combining what is read from afar; made at first use.
    wide: OnceLock<Option<Scratch>>,
    /// The allocator of the segment, at rank 0.
    allocator: Option<Arc<SegmentAllocator>>,
}

/// The way in which members learn that all have arrived; rank 0 decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierKind {
    /// A counter: the last to arrive opens it for all. Waiters poll one word, and one member wakes
    /// sleepers.
    Counter,
    /// A flag per member: each member polls all flags. For few members with a core each.
    Flags,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.segment.leave(self.me);
        if let Some(lender) = &self.allocator {
            lender.release(&self.segment);
        }
    }
}

/// Returns this process's attachment to the segment of `comm`, once the setup is over.
pub(super) fn attachment(comm: &Comm) -> Option<&Attachment> {
    comm.0.segment.attachment.get().and_then(Option::as_ref)
}

impl Comm {
    /// Returns a word that the members share, 0 at first, for what the communicator was made for.
    /// `None`: the communicator has no segment, as all members know alike after a blocking
    /// collective.
    pub(crate) fn segment_word(&self) -> Option<&AtomicU64> {
        attachment(self).map(|place| place.segment.shared_word())
    }
}

/// The state of a communicator's segment, as far as this process knows.
#[derive(Clone, Copy)]
pub(super) enum Lookup<'a> {
    /// The segment is set up; this is the attachment of this process.
    Attached(&'a Attachment),
    /// There is no segment: messages serve.
    None,
    /// The setup is under way.
    Pending,
}

/// Returns what is known of the communicator's segment, without starting its setup.
pub(super) fn lookup(comm: &Comm) -> Lookup<'_> {
    match comm.0.segment.attachment.get() {
        Some(Some(place)) => Lookup::Attached(place),
        Some(None) => Lookup::None,
        None => Lookup::Pending,
    }
}

/// Returns what is known of the communicator's segment, and starts its setup at the first call. All
/// processes call this in their first collective.
#[inline]
pub(super) fn lookup_or_begin(comm: &Comm, origin: CallOrigin) -> Lookup<'_> {
    match lookup(comm) {
        Lookup::Pending => begin_setup(comm, origin, false),
        found => found,
    }
}

/// `waited_for`: the caller waits for that at once, so that nobody else is to advance it.
#[cold]
fn begin_setup(comm: &Comm, origin: CallOrigin, waited_for: bool) -> Lookup<'_> {
    let meeting = &comm.0.segment;
    // All of its processes know alike whether they share a node.
    // Nobody waits at a barrier for a member that has died.
    let survives = comm.process().survives();
    if comm.is_inter() || comm.size() < 2 || !comm.is_on_node() || survives {
        meeting.attachment.get_or_init(|| None);
    } else if meeting.setup.get().is_none() {
        let founding = SegmentSetup::begin(comm, origin);
        if meeting.setup.set(founding.clone()).is_ok() {
            let host = &comm.process().host;
            match waited_for {
                true => host.attach_awaited_stepper(founding),
                false => host.attach_stepper(founding),
            }
        }
    }
    lookup(comm)
}

/// Returns this process's attachment to the segment of `comm`. Waits for the setup: only for
/// blocking collectives.
///
/// # Errors
/// What kept the members from finding out, once.
pub(super) fn attach_for_blocking(
    comm: &Comm,
    call: CallId,
    origin: CallOrigin,
) -> Result<Option<&Attachment>> {
    let found = match lookup(comm) {
        Lookup::Pending => begin_setup(comm, origin, true),
        found => found,
    };
    match found {
        Lookup::Attached(place) => Ok(Some(place)),
        Lookup::None => Ok(None),
        Lookup::Pending => await_attachment(comm, call, origin),
    }
}

#[cold]
fn await_attachment(comm: &Comm, call: CallId, origin: CallOrigin) -> Result<Option<&Attachment>> {
    let Some(founding) = comm.0.segment.setup.get() else {
        return Ok(None);
    };
    let host = &comm.process().host;
    // To the program, and to those who watch, it is the call that waits.
    host.note_external_wait(
        0,
        Some(CollContext::borrowed(comm, call, origin).wait_description(AwaitedRanks::Members)),
    );
    host.wait_for(&|| WaitTarget::stepper_end(&**founding), &mut || {
        founding.is_over()
    });
    host.note_external_wait(0, None);
    founding
        .take_error()
        .map_or_else(|| Ok(attachment(comm)), Err)
}

/// Ends the setup: stores this process's attachment. Either all members have one or none has.
pub(super) fn finish_setup(comm: &Comm, place: Option<Attachment>) {
    comm.0.segment.attachment.get_or_init(|| place);
}

/// The address of a segment, as rank 0 broadcasts it: offset in rank 0's heap plus one (0: no
/// segment), lengths of lanes and wide cells, kind of barrier, and facts about copies (the length
/// from which caches keep nothing, and whether the C library has a copy routine of its own).
#[derive(Clone, Copy)]
pub(super) struct SegmentAddress {
    offset: u64,
    lane: u64,
    wide: u64,
    barrier: BarrierKind,
    past_caches_from: u64,
    has_library_copy: bool,
}

/// Bytes of an address in messages.
pub(super) const ADDRESS_BYTES: usize = 48;

impl SegmentAddress {
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let words = [
            self.offset,
            self.lane,
            u64::from(self.barrier == BarrierKind::Flags),
            self.past_caches_from,
            self.has_library_copy.into(),
            self.wide,
        ];
        let mut bytes = [0; ADDRESS_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Self {
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_ne_bytes(word)
        };
        Self {
            offset: word(0),
            lane: word(1),
            barrier: if word(2) == 0 {
                BarrierKind::Counter
            } else {
                BarrierKind::Flags
            },
            past_caches_from: word(3),
            has_library_copy: word(4) != 0,
            wide: word(5),
        }
    }
}

/// Returns the heap of rank 0, in which the segment of `comm` is allocated.
pub(super) fn coll_heap(comm: &Comm) -> Option<Segment> {
    let lender = comm.group().peer(0)?;
    comm.process().host.coll_heap(lender)
}

/// Allocates a segment for `comm` if the caller is rank 0 and there is room. Returns the segment
/// and its address.
pub(super) fn allocate(
    comm: &Comm,
    heap: Option<&Segment>,
) -> (Option<AllocatedSegment>, SegmentAddress) {
    let process = comm.process();
    let allocated = match (heap, comm.rank()) {
        (Some(heap), 0) => process.config.segments.allocate(heap, comm.size()),
        _ => None,
    };
    let flags = comm.size() <= limit::FLAG_BARRIER_RANKS && process.host.memory_spins() > 0;
    let name = SegmentAddress {
        offset: allocated
            .as_ref()
            .map_or(0, |allocated| allocated.offset as u64 + 1),
        lane: allocated
            .as_ref()
            .map_or(0, |allocated| allocated.segment.lane_len() as u64),
        wide: allocated
            .as_ref()
            .map_or(0, |allocated| allocated.slots.wide_len() as u64),
        barrier: if flags {
            BarrierKind::Flags
        } else {
            BarrierKind::Counter
        },
        past_caches_from: copy::past_caches_from(),
        has_library_copy: Routine::available().len() > 1,
    };
    (allocated, name)
}

/// Attaches the caller to the segment at an address. Returns `None` if the memory is not reachable.
pub(super) fn attach(
    comm: &Comm,
    heap: Option<Segment>,
    name: SegmentAddress,
    allocated: Option<AllocatedSegment>,
) -> Option<Attachment> {
    let (process, members, me) = (comm.process(), comm.size(), comm.rank());
    let is_lender = allocated.is_some();
    let (board, rounds) = match allocated {
        Some(allocated) => (allocated.segment, allocated.slots),
        None => {
            let word = |word: u64| usize::try_from(word).ok();
            let (lane, wide) = (word(name.lane)?, word(name.wide)?);
            if ![lane, wide]
                .iter()
                .all(|len| len.is_multiple_of(CELL_BYTES))
            {
                return None;
            }
            let len = segment_allocator::segment_bytes(members, lane, wide);
            let memory = segment_allocator::heap_part(&heap?, word(name.offset)?, len)?;
            segment_allocator::split_segment(&memory, members, (lane, wide))?
        }
    };
    let others = || (0..members).filter(|&rank| rank != me);
    let bells: Option<Vec<_>> = others()
        .map(|rank| process.host.doorbell(comm.group().peer(rank)?))
        .collect();
    let words = others().map(|rank| process.host.progress_wakeup_words(comm.group().peer(rank)?));
    let place = Attachment {
        segment: board,
        me,
        epoch: AtomicU32::new(0),
        complete_epoch: AtomicU32::new(0),
        reported_epoch: AtomicU32::new(0),
        slots: rounds,
        doorbells: bells?,
        progress_words: words.collect(),
        barrier: name.barrier,
        past_caches_from: name.past_caches_from,
        has_library_copy: name.has_library_copy,
        reads_directly: OnceLock::new(),
        reading_refused: AtomicBool::new(false),
        tuner: Mutex::default(),
        spins: process.host.memory_spins().min(limit::SHM_SPINS),
        combine_room: Scratch::new(2 * limit::COMBINE_BYTES)?,
        wide: OnceLock::new(),
        allocator: is_lender.then(|| process.config.segments.clone()),
    };
    Some(place)
}

impl Attachment {
    /// Wakes all others that sleep. The fence inside orders what was written before the look at the
    /// first bell; sleepers look once more after arming.
    pub(super) fn wake_all(&self) {
        for (index, bell) in self.doorbells.iter().enumerate() {
            let bell = Doorbell::new(bell.atomic_u32(0));
            if index == 0 {
                bell.ring_fenced()
            } else {
                bell.ring()
            }
        }
    }

    /// Does so for one other member.
    pub(super) fn wake_one(&self, member: u32) {
        if let Some(bell) = self.doorbells.get(self.index(member)) {
            Doorbell::new(bell.atomic_u32(0)).ring_fenced();
        }
    }

    /// Wakes the progress threads of all others that compute and asked to be woken for steps
    /// of collectives.
    pub(super) fn wake_progress_threads(&self) {
        Self::wake_progress(&self.progress_words);
    }

    /// Does so for one other member.
    pub(super) fn wake_progress_thread_of(&self, member: u32) {
        self.progress_words
            .get(self.index(member))
            .into_iter()
            .for_each(|one| Self::wake_progress(std::slice::from_ref(one)));
    }

    fn wake_progress(words: &[Option<Segment>]) {
        let words = words.iter().flatten();
        let calls = words.map(|words| {
            progress_owner::ProgressWakeup::new(words.atomic_u32(0), words.atomic_u32(4))
        });
        progress_owner::ProgressWakeup::wake_all(calls, WakeupScope::Everything);
    }

    /// Returns whether members have cores of their own, and not each a cache with others.
    pub(super) fn has_own_cores(&self) -> bool {
        self.spins > 0
    }

    /// Returns where another member is among [`Self::others`] in the order of ranks.
    fn index(&self, member: u32) -> usize {
        match member < self.me {
            true => member as usize,
            false => member.wrapping_sub(1) as usize,
        }
    }

    /// Returns the last epoch that this process arrived in.
    pub(super) fn last_epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Room for two long operands; `None`: there is no memory.
    pub(super) fn wide(&self) -> Option<UserMem> {
        let wide = self
            .wide
            .get_or_init(|| Scratch::new(2 * limit::DIRECT_COMBINE));
        wide.as_ref().map(Scratch::mem)
    }

    /// The other members, beginning after this one.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (me, n) = (self.me, self.segment.members());
        (1..n).map(move |distance| algo::plus(me, distance, n))
    }
}
