//! Registered memory: the optional power of a transport to access regions that are open to many
//! peers, without the target's engine.
//!
//! A transport has the power where hardware or mapped memory carries out reads, writes and atomics
//! at the target. [`crate::one_sided`] uses it where there is, and packets to the target's engine
//! elsewhere. Operations may overtake each other, except atomic ones of one origin at one region,
//! and except where [`RegisteredMemory::flush`] stands between them.

use crate::api::{Error, Peer};
use crate::transport::{BulkStatus, BulkToken, BulkTransfer, RegionDescriptor};
use garonne_sync::user::{AtomicOp, AtomicType, UserMem};

/// Rights of peers to a registered region: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessRights(u8);

impl AccessRights {
    /// No right at all.
    pub const NONE: Self = Self(0);
    /// Peers may read.
    pub const READ: Self = Self(1);
    /// Peers may write.
    pub const WRITE: Self = Self(2);
    /// Peers may update elements atomically and fetch their old values.
    pub const ATOMIC: Self = Self(4);
    /// Every right.
    pub const ALL: Self = Self(7);

    /// Returns the set with these bits; `None` if one has no meaning.
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }

    /// Returns the bits of the set.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether all of `rights` are in this set.
    pub fn contains(self, rights: Self) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// Returns the rights that are in both sets.
    pub fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the rights that are in either set.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Memory of this process that is to be registered.
#[derive(Clone, Copy, Debug)]
pub struct RegionMemory {
    /// First byte. The memory stays valid until it is deregistered.
    pub mem: UserMem,
    /// Length in bytes.
    pub len: u64,
    /// Rights of peers.
    pub rights: AccessRights,
}

impl RegionMemory {
    /// Returns whether `len` bytes at `offset` lie within the region.
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

/// An atomic operation on one element of a peer's region.
#[derive(Clone, Copy, Debug)]
pub struct AtomicAccess<'a> {
    /// Name of the operation for [`crate::transport::PollSink::on_bulk_done`]. Operations on
    /// several elements may share one: then the end of each is told.
    pub token: BulkToken,
    /// Owner of the region.
    pub peer: Peer,
    /// The right to it.
    pub descriptor: &'a RegionDescriptor,
    /// Offset of the element in the region.
    pub offset: u64,
    /// Type of the element.
    pub kind: AtomicType,
    /// Way in which element and operand are combined.
    pub update: AtomicUpdate,
    /// Memory for the element's old value, valid until the operation's end was told; `None`: the
    /// old value is not wanted.
    pub result: Option<UserMem>,
}

/// Effect of an atomic operation on an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicUpdate {
    /// Combines it with an operand.
    Combine {
        /// The operation.
        op: AtomicOp,
        /// Low bytes: the operand.
        operand: u64,
    },
    /// Replaces it if it equals a value.
    CompareAndSwap {
        /// Low bytes: the value.
        compare: u64,
        /// Low bytes: the new value.
        value: u64,
    },
}

impl AtomicUpdate {
    /// Updates the element at `offset` of memory of this process, or memory that it maps. Returns
    /// the old value; `None`, and nothing happened, if the element is misaligned or the operation
    /// is not defined for its type.
    pub fn apply(self, mem: UserMem, offset: isize, kind: AtomicType) -> Option<u64> {
        match self {
            Self::Combine { op, operand } => mem.fetch_atomic(offset, kind, op, operand),
            Self::CompareAndSwap { compare, value } => {
                mem.compare_and_swap(offset, kind, compare, value)
            }
        }
    }
}

/// Regions open to many peers, accessed without the target's engine.
///
/// The target calls [`register`](Self::register) and sends the descriptor by any means. An origin
/// asks with [`direct_rights`](Self::direct_rights) what it can do itself, accesses the region, and
/// calls [`flush`](Self::flush). The target calls [`deregister`](Self::deregister) at last.
///
/// The transport checks bounds, rights and whether the descriptor is stale where the target's
/// memory is touched: an access that fails a check moves nothing and ends with an error. Atomic
/// operations are atomic towards atomic instructions of the target's processors, and those of one
/// origin at one region are carried out in the order of their calls.
pub trait RegisteredMemory {
    /// Opens memory to all peers. `None`: this transport cannot access such memory, now or ever.
    fn register(&mut self, region: &RegionMemory) -> Option<RegionDescriptor>;

    /// Closes a region to later accesses. `Pending`: accesses are under way, and
    /// [`crate::transport::PollSink::on_revoked`] tells `token` when none is left.
    fn deregister(&mut self, token: BulkToken, descriptor: &RegionDescriptor) -> BulkStatus;

    /// Returns the rights that this side can use towards the region by itself.
    fn direct_rights(&mut self, peer: Peer, descriptor: &RegionDescriptor) -> AccessRights;

    /// Returns whether a request to the target's engine serves a read or write of `len` bytes
    /// better just now, though there is a right.
    fn prefers_request(&mut self, peer: Peer, descriptor: &RegionDescriptor, len: u64) -> bool {
        let _ = (peer, descriptor, len);
        false
    }

    /// Starts to read from a region to local data. [`Error::Resource`] says that this transport
    /// cannot carry it out any more, and that a request is to.
    fn get(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error>;

    /// Starts to write local data to a region. Its end says that the local data may be reused.
    /// [`Error::Resource`] means what it means for a read.
    fn put(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error>;

    /// Starts an atomic operation.
    fn fetch_atomic(&mut self, access: AtomicAccess<'_>) -> Result<BulkStatus, Error>;

    /// Ends when all writes and atomic operations that this side started at `peer` before are done
    /// and visible there.
    fn flush(&mut self, token: BulkToken, peer: Peer) -> Result<BulkStatus, Error>;
}
