//! The interface of a rank's engine for the MPI layer: start, poll and wait for operations. Every
//! method may be called from any thread of the rank.
//!
//! It is a trait because real processes, threads as ranks and simulated ranks wait in different
//! ways. [`LockedEngine`](crate::locked_engine::LockedEngine) and
//! [`ShardedEngine`](crate::sharded::ShardedEngine) implement it. The path of small messages calls
//! the concrete types.

use crate::audit::MessageAudit;
use crate::environment::{CommunicatorInfo, PossibleSenders};
use garonne_engine::api::{
    CallOrigin, ContextId, Error, Message, Pattern, Peer, RecvArgs, Request, SendArgs,
    StartOutcome, Status, without_shard,
};
use garonne_engine::fast::recv::{FastRecv, PlainRecvStatus, ReceivedMessage};
use garonne_engine::fast::send::FastSend;
use garonne_engine::faults::ContextMembers;
use garonne_engine::limits::SHORT_GENERATION_BITS;
use garonne_engine::observe::completion_events;
use garonne_engine::observe::contexts_in_use::ContextsInUse;
use garonne_engine::observe::events::{ExternalWait, PendingOperation, SentMessage};
use garonne_engine::observe::tracer::OperationTracer;
use garonne_engine::one_sided::{AtomicArgs, RegionKey, RegionMemory, SwapArgs};
use garonne_engine::schedule::priority::Priority;
use garonne_engine::transport::{BulkToken, BulkTransfer, RegionDescriptor};
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;
use garonne_sync::waiter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A piece of work that advances by completions (a collective's schedule, a generalised request).
pub trait Stepper: std::marker::Send + Sync {
    /// Advances as far as it can without blocking. `true` when it is finished and may be forgotten.
    /// Called by whichever thread makes progress, never by two at once, never with the engine's
    /// lock held.
    fn step(&self, host: &dyn Messaging) -> bool;

    /// Returns whether a step may run the program's own code (a user-defined operator): such work
    /// is only advanced by user threads inside MPI calls, never by worker threads.
    fn runs_user_code(&self) -> bool {
        false
    }

    /// Returns whether it advances by memory that other processes write: it is stepped at every
    /// progress, whether or not anything happened here.
    fn polls_memory(&self) -> bool {
        false
    }

    /// Returns whether it may have messages of its own, in whatever shard; else it waits for memory
    /// alone. Always the same from when it is attached.
    fn has_messages(&self) -> bool {
        true
    }

    /// Returns whether it stands for what peers may ask of this rank at any time: the progress
    /// thread is let in whenever the program leaves the library, whatever that paid before. Always
    /// the same from when it is attached.
    fn serves_peers(&self) -> bool {
        false
    }

    /// Return address of the program's call that made it; 0: unknown.
    fn call_site(&self) -> u64 {
        0
    }

    /// Returns where a thread that waits for its end among others has said so. `None`: nobody does
    /// so.
    fn current_waiter(&self) -> Option<&AnyOfWaiter> {
        None
    }
}

/// The registration of the one thread that waits for an object among several others. The object
/// owns it, and whoever completes the object reads it.
#[derive(Debug)]
pub struct AnyOfWaiter(AtomicU32);

/// No thread has this number.
const NOBODY: u32 = u32::MAX;

impl Default for AnyOfWaiter {
    fn default() -> Self {
        Self(AtomicU32::new(NOBODY))
    }
}

impl AnyOfWaiter {
    /// The calling thread is about to wait for it, among others. Afterwards it is parked down, and
    /// then looks whether there was news: who tells counts those first, and then looks at the wait
    /// slots and here.
    /// SYNC(seats-news).
    pub fn register(&self) {
        self.0.store(current_waiter(), Ordering::SeqCst);
    }

    /// Returns whether it is this thread's.
    pub(crate) fn is_registered_by(&self, waiter: u32) -> bool {
        self.0.load(Ordering::SeqCst) == waiter
    }

    /// Returns whether a thread has noted itself since this was last asked.
    pub fn take_registration(&self) -> Option<Self> {
        let waiter = self.0.load(Ordering::SeqCst);
        if waiter == NOBODY {
            return None;
        }
        Some(Self(AtomicU32::new(self.0.swap(NOBODY, Ordering::SeqCst))))
    }
}

/// Returns a short number of the calling waiter, for those that it waits for among others. Numbers
/// come again after some two hundred million waiters, and then one may be woken in vain.
pub(crate) fn current_waiter() -> u32 {
    without_shard(waiter::current_id().number() as u32)
}

/// The event that a thread waits for, as far as the leader can tell without asking the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitTarget {
    /// Any event: the condition is to be checked after whatever happened.
    Anything,
    /// The end of this operation. Of the name's generation only the low bits need to be right.
    Operation(Request),
    /// The end of the receive, of this pattern, in which the thread's own call is blocked. That
    /// receive is concurrent with those of other threads.
    Receive(Request, Pattern),
    /// The end of one of those that were named to [`Waiting::register_any_of`], which gave this:
    /// all are seen to in one shard.
    AnyOf(u32),
    /// The end of one of several operations that may end in any shard.
    AnyAnywhere(u32),
    /// A message that this pattern accepts, or that there can be none.
    Message(Pattern),
    /// The end of a stepper that was attached, or is when it ends ([`WaitTarget::stepper_end`]).
    Stepper(usize),
    /// A call of [`Waiting::signal`] for the object at this address.
    Signal(usize),
    /// What a look at memory sees that it lent, by the name of the look.
    Memory(u32),
}

/// A wait target as the leader sees it, decoded from one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKey {
    Anything,
    /// The end of this operation; the generation has its low bits only.
    Operation(Request),
    AnyOf(u32),
    /// A pattern, by its word.
    Message(u64),
    Stepper(u64),
    Signal(u64),
    Memory(u32),
}

const OPERATION: u64 = 1 << 63;
const MEMORY: u64 = 1 << 62;
const MESSAGE: u64 = 1 << 61;
const ANY_OF: u64 = 1 << 60;
const STEPPER: u64 = 1 << 59;
const TOLD: u64 = 1 << 58;
const GENERATION: u32 = (1 << SHORT_GENERATION_BITS) - 1;
/// Bits of a word below those that say what it is.
const WORD_BITS: u32 = 56;

const REST: u64 = (1 << WORD_BITS) - 1;

const _: () = assert!(
    completion_events::PATTERN_HASH_BITS <= WORD_BITS
        && u32::BITS + SHORT_GENERATION_BITS <= WORD_BITS
);

impl WaitTarget {
    /// The end of this stepper, of which there is one at its address.
    pub fn stepper_end(stepper: &impl Stepper) -> Self {
        WaitTarget::Stepper(std::ptr::from_ref(stepper).addr())
    }

    /// The signal of the object at this place, which nobody in this engine causes.
    pub fn signal_of<T>(place: &T) -> Self {
        WaitTarget::Signal(std::ptr::from_ref(place).addr())
    }

    /// Encodes the target as the word that a wait slot holds.
    pub(crate) fn encode(self) -> u64 {
        match self {
            WaitTarget::Anything => 0,
            WaitTarget::Operation(Request { index, generation })
            | WaitTarget::Receive(Request { index, generation }, _) => {
                OPERATION | u64::from(generation & GENERATION) << 32 | u64::from(index)
            }
            WaitTarget::AnyOf(current_waiter) | WaitTarget::AnyAnywhere(current_waiter) => {
                ANY_OF | u64::from(current_waiter)
            }
            WaitTarget::Message(pattern) => MESSAGE | completion_events::pattern_hash(&pattern),
            WaitTarget::Stepper(address) => STEPPER | address as u64 & REST,
            WaitTarget::Signal(address) => TOLD | address as u64 & REST,
            WaitTarget::Memory(id) => MEMORY | u64::from(id),
        }
    }
}

impl WaitKey {
    /// The end of this stepper.
    pub(crate) fn stepper_end(stepper: &Arc<dyn Stepper>) -> Self {
        WaitKey::Stepper(Arc::as_ptr(stepper).addr() as u64 & REST)
    }

    /// Returns what a word says.
    #[inline]
    pub(crate) fn decode(word: u64) -> Self {
        let rest = word & REST;
        match word & !REST {
            OPERATION => WaitKey::Operation(Request {
                index: rest as u32,
                generation: (rest >> 32) as u32,
            }),
            ANY_OF => WaitKey::AnyOf(rest as u32),
            MESSAGE => WaitKey::Message(rest),
            STEPPER => WaitKey::Stepper(rest),
            TOLD => WaitKey::Signal(rest),
            MEMORY => WaitKey::Memory(rest as u32),
            _ => WaitKey::Anything,
        }
    }
}

/// Memory and words that processes of one node share for their collectives. An implementation that
/// offers nothing leaves all to messages.
pub trait NodeShared {
    /// Memory that `owner` offers to all processes of this node for what they do together beside
    /// messages (small collectives); zeroed when the job began. `None`: there is none between all
    /// of them.
    fn coll_heap(&self, owner: Peer) -> Option<Segment> {
        let _ = owner;
        None
    }

    /// Looks at a word of the commons that are worth making before `wait_until`; 0 when more ranks
    /// than cores are runnable.
    fn memory_spins(&self) -> u32 {
        0
    }

    /// The doorbell word that wakes `peer` from `wait_until`, for whoever changed the commons.
    /// `None`: it has none.
    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        let _ = peer;
        None
    }

    /// The words by which the progress thread of `peer` is called, for whoever changed what a
    /// stepper of its program looks at in the commons
    /// (`garonne_sync::progress_owner::ProgressWakeup`). `None`: there are none.
    fn progress_wakeup_words(&self, peer: Peer) -> Option<Segment> {
        let _ = peer;
        None
    }

    /// Returns whether this process can read what `peer` lends.
    fn can_read(&self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Lets the other processes of this node read `data`, which stays valid and unchanged, until
    /// `revoke`. `name` is the caller's, with its highest bit set, and no other lending of this
    /// process bears it. `None`: this cannot be lent.
    fn expose(&self, name: BulkToken, data: &Data) -> Option<RegionDescriptor> {
        let _ = (name, data);
        None
    }

    /// Ends a lending that nobody reads any more.
    fn revoke(&self, name: BulkToken) {
        let _ = name;
    }

    /// Reads from what a peer lends, now.
    ///
    /// # Errors
    /// `Peer` if it died or withdrew; what the system said.
    fn read_exposed(&self, bulk: BulkTransfer<'_>) -> Result<(), Error> {
        let peer = bulk.peer;
        Err(Error::Peer {
            peer,
            what: "its memory cannot be reached from here",
        })
    }

    /// The thread is about to `wait_until` something that the engine does not know is over (a
    /// meeting in the commons, a probe), or (`None`) it was: for those who watch from outside. It
    /// waits where messages of `context` complete; what is none of one communicator's messages is
    /// of context 0.
    fn note_external_wait(&self, _context: ContextId, _meeting: Option<ExternalWait>) {}
}

/// An access to a registered region of a peer.
#[derive(Clone, Debug)]
pub enum RegionCall {
    /// Fills data from the region.
    Get {
        /// Offset of the first byte.
        offset: u64,
        /// Memory that is filled.
        data: Data,
    },
    /// Writes data to the region.
    Put {
        /// Offset of the first byte.
        offset: u64,
        /// Bytes that are written.
        data: Data,
    },
    /// Updates elements.
    Atomic(AtomicArgs),
    /// Compares and swaps an element.
    Swap(SwapArgs),
}

/// Memory that processes register for each other, also between hosts
/// ([`garonne_engine::one_sided`]). A host without it refuses.
pub trait RegionMessaging {
    /// Opens memory to all peers until `deregister_region`.
    ///
    /// # Errors
    /// `Resource`; `Misuse` where this is not possible.
    fn register_region(&self, memory: RegionMemory) -> Result<RegionKey, Error> {
        let _ = memory;
        Err(NO_REGIONS)
    }

    /// Closes a region of this process. The memory may be freed when the operation is over.
    ///
    /// # Errors
    /// `Misuse` for a stale key.
    fn deregister_region(&self, key: &RegionKey) -> Result<StartOutcome, Error> {
        let _ = key;
        Err(NO_REGIONS)
    }

    /// Starts an access to a region of `peer`. It is over when it is done there.
    ///
    /// # Errors
    /// `Misuse` for an access that the key does not allow, `Peer`, `Resource`.
    fn access_region(
        &self,
        peer: Peer,
        key: &RegionKey,
        call: RegionCall,
    ) -> Result<StartOutcome, Error> {
        let _ = (peer, key, call);
        Err(NO_REGIONS)
    }
}

const NO_REGIONS: Error = Error::Misuse("this rank cannot register memory");

/// The shortest ways for small messages, and receives that need no object. A host without them
/// keeps the defaults.
pub trait FastMessaging {
    /// Sends a small contiguous message if the shortest way is free: nothing queued, the engine
    /// idle, room and credit. It is complete then; on `false` nothing happened and `send` is to be
    /// called.
    fn send_small(&self, _small: &FastSend) -> bool {
        false
    }

    /// Receives a small message that is there or comes while it is worth looking; `None`: nothing
    /// happened and `recv` is to be called.
    fn fast_recv(&self, _catch: &FastRecv) -> Option<ReceivedMessage> {
        None
    }

    /// Starts a receive of contiguous bytes the shortest way; `None`: nothing happened and `recv`
    /// is to be called. The name is asked after with `test_plain_recv`, or as any other.
    fn post_plain_recv(&self, _catch: &FastRecv) -> Option<Request> {
        None
    }

    /// Ends a receive that `post_plain_recv` started, if it is over; without making progress. Of
    /// the name's generation only the low bits need to be right.
    fn test_plain_recv(&self, _name: Request) -> PlainRecvStatus {
        PlainRecvStatus::Otherwise
    }

    /// The place of such a receive among this rank's completions; `None` while it goes on. A stale
    /// name counts as over.
    fn plain_recv_completed_at(&self, _name: Request) -> Option<u64> {
        Some(0)
    }

    /// The whole name and the context of a living operation of which the low bits of the generation
    /// are known.
    fn full_request(&self, _name: Request) -> Option<(Request, ContextId)> {
        None
    }

    /// The caller of a receive just started goes on without waiting for it: its memory may be
    /// offered to the sender of its message.
    fn offer_early_rtr(&self, _name: Request) {}
}

/// Progress, and how threads wait for what it brings about.
pub trait Waiting {
    /// The place of a complete operation among this rank's completions; `None` while it goes on.
    fn completed_at(&self, request: Request) -> Option<u64>;

    /// The number of completions so far where messages of this context complete.
    fn completions(&self, context: ContextId) -> u64;

    /// Polls the transports once, advances engine and steppers. `true` if anything moved.
    fn progress(&self) -> bool;

    /// A call that must not wait (`MPI_Test`, `MPI_Iprobe`) made progress once and found nothing.
    /// Programs call it again and again, so where a rank or thread that could answer may be waiting
    /// for this very core, the core is given away for a moment. `true`: it was, and another look is
    /// worth it.
    fn yield_core(&self, _context: ContextId) -> bool {
        false
    }

    /// The progress that such a call makes: once, and once more if it gave way after nothing moved.
    /// `true` if anything moved.
    fn progress_for_test(&self) -> bool {
        self.progress() || (self.yield_core(0) && self.progress())
    }

    /// Returns whether who looks for the one looks for the other as well.
    fn share_a_shard(&self, _one: WaitTarget, _other: WaitTarget) -> bool {
        true
    }

    /// Makes the progress that a test of `awaits` makes.
    fn progress_for(&self, awaits: WaitTarget) -> bool {
        let _ = awaits;
        self.progress_for_test()
    }

    /// Makes progress until `done` says so: spins by the measured budget, then sleeps. `done` is
    /// asked again after whatever could have changed it (a completion, a stepper's move, `wake`),
    /// and never again after it said yes: it may have taken what it found.
    ///
    /// What `done` looks at is changed by operations of the engine, by steppers, or by whoever
    /// calls `wake` afterwards; for memory that other processes write there is `wait_for_memory`.
    fn wait_until(&self, done: &mut dyn FnMut() -> bool);

    /// Waits as [`Waiting::wait_until`] does, for a thread that can name its target and need not
    /// be woken for anything else. `awaits` is called after each `false` of `done`.
    fn wait_for(&self, awaits: &dyn Fn() -> WaitTarget, done: &mut dyn FnMut() -> bool) {
        let _ = awaits;
        self.wait_until(done);
    }

    /// Returns what the calling thread waits for if it waits for any of these, and nobody else
    /// waits so for one of them before it has come: operations, of whose names' generations the low
    /// bits count, and what has noted the thread (`AnyOfWaiter::note`). Anything else among them:
    /// something else may end the wait. The engine is not in hand while they are asked for.
    ///
    /// To be asked after `done` said no. What is over already is to be found by the next `done`,
    /// before which there was news.
    fn register_any_of(&self, parts: &mut dyn Iterator<Item = WaitTarget>) -> WaitTarget {
        let _ = parts;
        WaitTarget::Anything
    }

    /// What `awaits` names has come, outside the engine and the steppers: wakes who waits for it,
    /// alone or as `waiter`.
    fn signal(&self, awaits: WaitTarget, waiter: &AnyOfWaiter) {
        let _ = (awaits, waiter);
        self.wake();
    }

    /// Waits for memory that other processes write, after which they ring this rank's doorbell if
    /// it is armed. Any thread of this rank may call `come`, which only reads memory, calls nothing
    /// of this engine and takes no lock.
    fn wait_for_memory(&self, come: &mut (dyn FnMut() -> bool + std::marker::Send)) {
        self.wait_until(&mut || come());
    }

    /// Returns whether a thread that waits asks `done` itself whenever it may have been rung for:
    /// no other thread of this rank polls for it. Otherwise what looks at memory that others write
    /// is to be a stepper while somebody waits for it.
    fn is_single_threaded(&self) -> bool {
        false
    }

    /// Wakes the threads in `wait_until` so that they ask `done` again (for completions made
    /// outside the engine).
    fn wake(&self);
}

/// Work that goes on after the call that began it.
pub trait BackgroundWork {
    /// Advances `stepper` on every later progress until it is finished; steps it once now.
    fn attach_stepper(&self, stepper: Arc<dyn Stepper>);

    /// Attaches a stepper for which the caller waits at once.
    fn attach_awaited_stepper(&self, stepper: Arc<dyn Stepper>) {
        self.attach_stepper(stepper);
    }

    /// The call that started this operation is about to return while it goes on, and it may need
    /// hands (a large message): from now on it advances also while no thread of the program is in
    /// the library, where the host can arrange that. Steppers need no such word.
    fn leave_pending(&self, _request: Request) {}
}

/// Calls by which a communicator tells the engines of its state.
pub trait CommunicatorSupport {
    /// There is a communicator of this number, name and members now, or (`None`) no more: for those
    /// who watch from outside.
    fn publish_communicator(&self, _number: u32, _known: &CommunicatorInfo<'_>) {}

    /// The communicator of these contexts is gone with all its operations, here and soon on all its
    /// members, and nobody uses a track of its again: what was kept for it is given back.
    fn forget_contexts(&self, _contexts: Range<ContextId>) {}

    /// From now on messages of these contexts have this priority.
    ///
    /// # Errors
    /// As for messages on them.
    fn prioritise(&self, _contexts: Range<ContextId>, _priority: Priority) -> Result<(), Error> {
        Ok(())
    }

    /// Names the members of a communicator and its contexts, where the job survives deaths: see
    /// [`garonne_engine::faults`].
    fn watch_context(&self, _contexts: Range<ContextId>, _members: Arc<dyn ContextMembers>) {}

    /// Ends all operations in these contexts, here and on all members, and refuses others.
    ///
    /// # Errors
    /// `Misuse` where that is not possible.
    fn revoke_contexts(
        &self,
        _contexts: Range<ContextId>,
        _members: &dyn ContextMembers,
    ) -> Result<(), Error> {
        Err(Error::Misuse("this rank cannot revoke communicators"))
    }

    /// Returns whether a communicator is revoked, by its first context.
    fn is_revoked(&self, _first: ContextId) -> bool {
        false
    }

    /// Returns the processes to which nothing passes any more.
    fn lost_peers(&self) -> Vec<Peer> {
        Vec::new()
    }

    /// All losses of the communicator's members that are known here are acknowledged: its receives
    /// from any source go on.
    fn acknowledge_losses(&self, _first: ContextId) {}

    /// The contexts in which operations are alive.
    fn contexts_in_use(&self) -> ContextsInUse {
        ContextsInUse::default()
    }
}

/// Facts about operations and peers, for traces and error texts.
pub trait Diagnosis {
    /// Returns what may be told of an operation that is not over; `None`: it is.
    fn pending(&self, _name: Request) -> Option<PendingOperation> {
        None
    }

    /// Returns who is told what happens, if anybody is: for a trace.
    fn tracer(&self) -> Option<Arc<dyn OperationTracer>> {
        None
    }

    /// The process of a peer, by its id as seen from here; `None`: it cannot be named from here.
    fn process_of(&self, _peer: Peer) -> Option<u32> {
        None
    }

    /// Returns who made a send, as far as that can be found out from here: for putting an error
    /// into words.
    fn possible_senders(&self, _sent: &SentMessage) -> Option<PossibleSenders> {
        None
    }
}

/// The communication of one rank, as the MPI layer sees it.
pub trait Messaging:
    FastMessaging
    + Waiting
    + BackgroundWork
    + CommunicatorSupport
    + Diagnosis
    + NodeShared
    + RegionMessaging
    + MessageAudit
    + std::marker::Send
    + Sync
{
    /// This process's index in the job's world.
    fn me(&self) -> Peer;
    /// Processes in the job's world.
    fn world_size(&self) -> u32;

    /// Shards in which contexts may be: communicators whose threads are not to meet those of
    /// others.
    fn shards(&self) -> usize {
        1
    }

    /// Starts a send.
    fn send(&self, send: SendArgs) -> Result<StartOutcome, Error>;
    /// Starts a receive.
    fn recv(&self, recv: RecvArgs) -> Result<StartOutcome, Error>;
    /// Looks for a message without receiving it. Makes progress once.
    fn probe(&self, pattern: Pattern) -> Result<Option<Status>, Error>;
    /// Takes a message out of matching. Makes progress once.
    fn mprobe(&self, pattern: Pattern) -> Result<Option<(Message, Status)>, Error>;
    /// Receives a message taken by `mprobe`.
    fn mrecv(
        &self,
        message: Message,
        data: Data,
        origin: CallOrigin,
    ) -> Result<StartOutcome, Error>;
    /// Asks to cancel a receive that has not matched; its completion tells whether that worked.
    fn cancel(&self, request: Request) -> Result<(), Error>;

    /// The status if complete, without making progress; the request stays.
    fn peek(&self, request: Request) -> Result<Option<Status>, Error>;
    /// The status if complete, without making progress; the name is gone then.
    fn take(&self, request: Request) -> Result<Option<Status>, Error>;
    /// Lets the operation finish on its own and forgets its name (`MPI_Request_free`).
    fn abandon(&self, request: Request) -> Result<(), Error>;

    /// Ends the job with this exit code; the agent prints `message`. Does not return.
    fn abort(&self, code: i32, message: &str) -> !;
    /// Seconds since an arbitrary fixed point, and the resolution (`MPI_Wtime`, `MPI_Wtick`).
    fn wtime(&self) -> f64;
}
