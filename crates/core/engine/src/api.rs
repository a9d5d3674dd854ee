//! The words that an engine and its users share: what is sent and received, how it ends, and who is
//! at fault.
//!
//! Owned by `engine`; used by `progress` (which puts an engine behind its lock and knows how to
//! wait) and by `mpi`.

use garonne_sync::user::Data;

/// A communication context: messages of different contexts never match. A communicator owns an even
/// one for point-to-point and the odd one after it for collectives.
///
/// Its highest bits name the shard in which it is, on all its processes ([`shard_of`]).
pub type ContextId = u32;

/// Bits of a context below those that name its shard.
pub const SHARD_SHIFT: u32 = 28;

/// Shards that contexts can name.
pub const SHARDS_MAX: usize = 1 << (u32::BITS - SHARD_SHIFT);

/// The shard in which the messages of a context are: an engine of its own, with its own matching,
/// window, inbox and bell, on each process. All of them order and match for themselves.
#[inline(always)]
pub fn shard_of(context: ContextId) -> usize {
    (context >> SHARD_SHIFT) as usize
}

/// Moves a context identifier or the index of a name from the first shard to shard `shard`.
#[inline(always)]
pub fn in_shard(shard: usize, word: u32) -> u32 {
    (shard as u32) << SHARD_SHIFT | word
}

/// Clears the shard number of a context identifier or of the index of a name.
#[inline(always)]
pub fn without_shard(word: u32) -> u32 {
    word & ((1 << SHARD_SHIFT) - 1)
}

/// A process of the job by its index in the job's world (the address of a peer), not a rank of a
/// communicator.
pub type Peer = u32;

/// The origin of a call: an index into the caller's table of function names, and a return address.
/// Every request and event keeps one for `who`, `why` and error messages. All zeros when unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOrigin {
    /// Index of the function in the table of the layer above.
    pub call: u16,
    /// Which type the data is of, in the numbers of the layer above.
    pub datatype: u8,
    /// Digest of the type signature, compared by both sides of a message where types are checked.
    pub digest: TypeDigest,
    /// Return address of the call in the user's program.
    pub site: u64,
}

/// A digest of a type signature, made by the layer above and compared where a message meets its
/// receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeDigest(pub u16);

impl TypeDigest {
    /// Nothing is said of the type, which then agrees with all.
    pub const NONE: Self = Self(0);
    /// This bit: the digest is of a whole sequence of different elements. Without it all elements
    /// are of the one kind that it tells.
    pub const SEQUENCE: u16 = 0x8000;

    /// Returns whether the two signatures cannot match. `whole`: the message is as long as its
    /// receive, so that both digests describe the same sequence.
    #[inline]
    pub fn contradicts(self, other: Self, whole: bool) -> bool {
        let comparable = whole || (self.0 | other.0) & Self::SEQUENCE == 0;
        self != Self::NONE && other != Self::NONE && self != other && comparable
    }
}

/// When a send counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendCompletion {
    /// When the buffer may be reused (standard, ready and buffered sends).
    Standard,
    /// When in addition the receiver has matched it (`MPI_Ssend`).
    Synchronous,
}

/// Arguments of a send.
#[derive(Clone, Debug)]
pub struct SendArgs {
    /// Context of the envelope.
    pub context: ContextId,
    /// The process it goes to.
    pub peer: Peer,
    /// The sender's rank in the communicator, which the receiver matches and reports as source.
    pub source: u32,
    /// Tag, at least 0.
    pub tag: i32,
    /// The bytes. The memory stays valid and unchanged until completion.
    pub data: Data,
    /// Completion rule.
    pub mode: SendCompletion,
    /// Call that started the operation.
    pub origin: CallOrigin,
}

/// Which messages a receive or probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Context of the envelope.
    pub context: ContextId,
    /// The rank and process of the one accepted sender; `None` accepts any (`MPI_ANY_SOURCE`).
    pub source: Option<Source>,
    /// The one accepted tag; `None` accepts any (`MPI_ANY_TAG`).
    pub tag: Option<i32>,
}

/// A sender: its rank in the communicator and the process that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Rank in the communicator (the remote group's for an intercommunicator).
    pub rank: u32,
    /// The process.
    pub peer: Peer,
}

/// Arguments of a receive.
#[derive(Clone, Debug)]
pub struct RecvArgs {
    /// Messages that the receive accepts.
    pub pattern: Pattern,
    /// Receive buffer. The memory stays valid and untouched until completion.
    pub data: Data,
    /// Call that started the operation.
    pub origin: CallOrigin,
}

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Rank of the sender in the communicator (receives and probes).
    pub source: u32,
    /// Tag of the message (receives and probes).
    pub tag: i32,
    /// Bytes received, or length of the message probed.
    pub len: u64,
    /// The receive was cancelled before it matched.
    pub cancelled: bool,
    /// The operation completed with an error (truncation, dead peer); `source`, `tag` and `len` are
    /// still those of the message.
    pub error: Option<Error>,
}

/// Names one pending operation. Stale names (already taken) are detected by their generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Slot.
    pub index: u32,
    /// Generation of the slot.
    pub generation: u32,
}

/// Names a message taken out of matching by a matched probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Slot.
    pub index: u32,
    /// Generation of the slot.
    pub generation: u32,
}

/// Outcome of starting an operation.
#[derive(Clone, Debug)]
pub enum StartOutcome {
    /// The operation is complete: there is nothing to wait for and nothing to release.
    Done(Status),
    /// The operation is pending under this name.
    Pending(Request),
}

/// An error value: who is at fault, and what both sides said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The receive was smaller than the message.
    Truncated(Box<MessageMismatch>),
    /// The types of message and receive differ (only where [`CallOrigin::digest`] tells them).
    Mistyped(Box<MessageMismatch>),
    /// The caller broke the contract (stale request, tag out of range …).
    Misuse(&'static str),
    /// The peer closed, died or misbehaved.
    Peer {
        /// Which process.
        peer: Peer,
        /// Cause in words.
        what: &'static str,
    },
    /// The communicator was revoked by a member.
    Revoked,
    /// A possible sender of a receive from any source is lost, and nobody has acknowledged that.
    Pending {
        /// Which process.
        peer: Peer,
    },
    /// The memory that a peer named for a message cannot be used: it was freed, or is a device's.
    PeerMemory {
        /// Owner of the memory.
        peer: Peer,
    },
    /// No way leads from one process to the other for want of something that the system gives.
    /// Neither is dead.
    Unreached(Box<UnreachableCause>),
    /// Memory, slots or another bounded thing ran out.
    Resource(&'static str),
    /// The operating system refused: operation and errno.
    System {
        /// The operation that failed.
        what: &'static str,
        /// errno.
        errno: i32,
    },
}

/// The reason why two living processes cannot reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableCause {
    /// The other process.
    pub peer: Peer,
    /// Which of them lacks it.
    pub side: LackingSide,
    /// Size of the peer's inbox, which could not be mapped.
    pub bytes: u64,
    /// errno of the failed mapping.
    pub errno: i32,
    /// Limit on the process's address space, where there is one and it is known.
    pub limit: Option<u64>,
}

/// See [`UnreachableCause::side`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LackingSide {
    /// This process, which can send the peer nothing.
    This,
    /// The peer, from which nothing can come.
    Peer,
}

/// Both sides of a message that its receive should not have got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageMismatch {
    /// Length of the message in bytes.
    pub sent: u64,
    /// Room in the receive, in bytes.
    pub room: u64,
    /// The sending process.
    pub peer: Peer,
    /// Envelope sequence (names the sender's event).
    pub sequence: u32,
    /// The receive's origin.
    pub origin: CallOrigin,
}
