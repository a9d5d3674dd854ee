//! The transport: how the engine reaches peers.
//!
//! Owns the trait, the types that cross it, and the packet header. Implemented by the crates in
//! `crates/transports` and `sim`; called only by the engine that owns the transport, always through
//! `&mut`, so an implementation needs no lock of its own towards its user. A transport never blocks
//! and never aborts the process. It calls up only through the [`PollSink`] of the poll that is
//! running. [`ClaimError::Full`] is back-pressure, not an error: the engine keeps what did not fit
//! and tries again.
//!
//! Packets between two engines arrive in the order they were committed on transports that say so
//! ([`TransportLimits::ordered`]); on others they may overtake. Every packet arrives once, or its
//! peer is reported gone (lossy media need a reliability layer).

mod registered_memory;

use crate::api::{Error, Peer, UnreachableCause};
use crate::limits::{DESCRIPTOR_BLOB_MAX, SHORT_SLEEP};
use crate::protocol::offload::{OffloadKind, OffloadResult};
pub use crate::protocol::packet::{Fragments, PacketHeader, PacketKind};
use crate::protocol::wire::{FLAG_FAILED, FLAG_PART, FLAG_UNCALLED};
use garonne_sync::copy::StoreKind;
use garonne_sync::shm::Segment;
use garonne_sync::slot_batch::SlotBatch;
use garonne_sync::user::{Data, UserMem};
pub use registered_memory::{
    AccessRights, AtomicAccess, AtomicUpdate, RegionMemory, RegisteredMemory,
};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Class of a packet. Data packets can never use up the room that control packets need to make data
/// flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketClass {
    /// Envelopes and payload.
    Data,
    /// Credits, clear-to-send, finish, revoke, queries: served from reserved room.
    Control,
}

/// Why a transport gave no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// No room at the moment; ask again after a poll.
    Full,
    /// The peer is dead, or cannot be reached by this transport at all;
    /// [`Transport::unreachable_cause`] tells which. It stays so.
    Gone,
}

/// Room for one packet's payload, lent by a transport until `commit` or `abandon`.
///
/// `mem` may lie in memory that a peer maps: it is written through `UserMem` only, never seen as a
/// reference.
#[derive(Debug)]
#[must_use = "room is given back by commit or abandon"]
pub struct PacketBuffer {
    /// Memory for the payload.
    pub mem: UserMem,
    /// Bytes of room; at least what was asked for.
    pub len: usize,
    /// The peer it was claimed for.
    pub peer: Peer,
    /// The transport's own mark.
    pub token: u64,
    /// Which stores bring the payload to the peer soonest. Others do, too.
    pub stores: StoreKind,
}

/// A small packet that lies ready.
#[derive(Clone, Copy, Debug)]
pub struct PeekedPacket {
    /// Sender.
    pub peer: Peer,
    /// The words of its header; a claim of its sender but for the length, which the payload has.
    pub words: [u64; 3],
    /// Payload of the length in the header. The sender may change it meanwhile.
    pub payload: UserMem,
}

/// Decides whether to take a packet that lies ready. A trait instead of a closure, so that it can
/// be inlined by attribute.
pub trait PacketAcceptor {
    /// Result of a taken packet.
    type Taken;

    /// Takes what the packet carries, or leaves it.
    fn accept(self, peeked: &PeekedPacket) -> Option<Self::Taken>;
}

/// Outcome of a look for a packet that lies ready.
#[derive(Clone, Copy, Debug)]
pub enum PeekResult<T> {
    /// Only a poll knows what there is.
    Unknown,
    /// A packet was shown and refused; it is still there.
    Refused,
    /// A packet was taken, with this result.
    Taken(T),
}

/// Size limits of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportLimits {
    /// Largest payload of `send_inline`: what shares the first cache line or two with the header.
    pub inline_max: usize,
    /// Largest payload of a `PacketClass::Data` packet.
    pub packet_max: usize,
    /// Largest payload of a `PacketClass::ControlPacket` packet; at least
    /// [`crate::limits::CONTROL_PAYLOAD_MAX`].
    pub control_max: usize,
    /// True if packets from one peer arrive in the order of their commits (both classes together).
    pub ordered: bool,
}

/// Capabilities of a transport towards one peer, and their costs. The engine asks at the first
/// contact and again for each large message, so that a transport can correct itself while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCapabilities {
    /// Payloads up to this length travel with their envelope.
    pub eager_max: usize,
    /// Payloads up to this length follow their envelope in fragments, if
    /// [`FragmentedSends::fragmentation`] says in which; 0: none.
    pub fragmented_max: usize,
    /// This side may read regions that the peer exposed.
    pub can_read: bool,
    /// This side may write regions that the peer exposed.
    pub can_write: bool,
    /// Payload of one packet of a pipelined copy that serves best.
    pub pipeline_chunk: usize,
    /// Bytes of one bulk read that the engine should ask for at a time, so that others get their
    /// turn between.
    pub read_chunk: u64,
}

/// Fragmentation of a message behind its envelope ([`FragmentedSends::fragmentation`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// No fragments: one packet, if the message fits, or a rendezvous serves better.
    None,
    /// In pieces, so that both sides copy at the same time: bytes of the first, which may be all of
    /// it, and of the others. Claims of class Data for all pieces will not be answered `Full`.
    Fragments(usize, usize),
    /// Fragments will be possible when earlier packets have left. Waiting takes less time than a
    /// rendezvous.
    Later,
}

/// The right to read or write an exposed region, as it travels to the peer: our cookie and the
/// transport's own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionDescriptor {
    /// Names region and generation at its owner.
    pub cookie: u64,
    /// Bytes used in `blob`.
    pub blob_len: u8,
    /// Opaque to the engine.
    pub blob: [u8; DESCRIPTOR_BLOB_MAX],
}

impl RegionDescriptor {
    /// A descriptor with this cookie and blob; `None` if the blob is too long.
    pub fn new(cookie: u64, blob: &[u8]) -> Option<Self> {
        let mut bytes = [0; DESCRIPTOR_BLOB_MAX];
        bytes.get_mut(..blob.len())?.copy_from_slice(blob);
        Some(Self {
            cookie,
            blob_len: blob.len() as u8,
            blob: bytes,
        })
    }

    /// The transport's bytes.
    pub fn blob(&self) -> &[u8] {
        &self.blob[..usize::from(self.blob_len).min(DESCRIPTOR_BLOB_MAX)]
    }
}

/// Names an exposed region or a bulk operation; chosen by the engine, unique among those alive.
pub type BulkToken = u64;

/// Outcome of exposing a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposeResult {
    /// Ready to be announced.
    Ready(RegionDescriptor),
    /// [`PollSink::on_exposed`] will tell.
    Pending,
    /// This transport cannot expose such data to that peer; packets must do.
    Unable,
}

/// State of a bulk operation when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkStatus {
    /// Finished now.
    Done,
    /// The sink will tell.
    Pending,
}

/// A bulk read or write between a peer's region and local data.
#[derive(Clone, Copy, Debug)]
pub struct BulkTransfer<'a> {
    /// Name of the operation for [`PollSink::on_bulk_done`].
    pub token: BulkToken,
    /// Owner of the region.
    pub peer: Peer,
    /// The right to it.
    pub descriptor: &'a RegionDescriptor,
    /// First byte in the region's packed stream.
    pub offset: u64,
    /// The local side. Valid until the operation's end was told.
    pub local: &'a Data,
    /// First byte in the local packed stream.
    pub local_offset: u64,
    /// Bytes to move.
    pub len: u64,
}

/// A way to fetch a message that its sender exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RendezvousMode {
    /// The receiver reads the sender's memory.
    Read,
    /// The sender writes the receiver's memory.
    Write,
    /// Both at once, each what the other has not taken yet.
    Share,
    /// Both at once like `Share`, but one side comes later: the other goes on alone until then.
    ShareLater,
    /// The sender sends packets, which the receiver takes at the same time.
    Data,
}

/// Result of writing one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartWritten {
    /// Bytes written.
    pub bytes: u64,
    /// Nothing is left that nobody took.
    pub last: bool,
}

/// Outcome of withdrawing a region that was offered to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawResult {
    /// The owner: the peer wrote nothing there and never will.
    Withdrawn,
    /// The peer, which has begun to write; the data stays exposed.
    InUse,
}

/// Reason to wake a peer of which no thread is in the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// An answer, or polls that move bytes: without them this transfer stands still.
    Answer,
    /// A look, which matters only if something there waits for it, as a step of a collective does.
    Look,
}

/// Returns the reason to wake the receiver of a packet; `None`: none.
pub(crate) fn need_of(header: &PacketHeader) -> Option<WakeReason> {
    use PacketKind::*;
    match PacketKind::from_code(header.kind)? {
        // Its receiver is there, and goes on alone.
        Rtr if header.flags & FLAG_UNCALLED != 0 => Some(WakeReason::Look),
        Rts | EagerSync | Cts | Data | Credit | Blocked | Probe | ProbeHit | ProbeMiss | Pull
        | Rtr | RtrFin | Revoked => Some(WakeReason::Answer),
        // Packets are to be asked for, or the sender is to be told that all is there.
        EarlyFin if header.flags & (FLAG_FAILED | FLAG_PART) != 0 => Some(WakeReason::Answer),
        Eager | Fin | EarlyFin => Some(WakeReason::Look),
        // The pieces of a medium message: who sends them says when all have left. A receive
        // offered early waits for a send. Those who send one-sided packets wake for them.
        FragFirst | FragNext | EarlyRtr | Put | Get | Atomic | GetData | AccessDone => None,
    }
}

/// Receiver of everything that a poll finds: the engine.
pub trait PollSink {
    /// A packet arrived; of kinds [`PacketKind::FragFirst`] and [`PacketKind::FragNext`] perhaps a
    /// part of one, with a header that says so. `payload` is valid during the call only, lies in
    /// memory that the peer may still write, and is `len` bytes long; the header is a copy and as
    /// untrusted as its sender.
    fn on_packet(&mut self, peer: Peer, header: PacketHeader, payload: UserMem, len: usize);
    /// Returns where to write `len` bytes from `offset` on of the message that `peer` sends in
    /// fragments. The transport may write there during its poll, and reports the bytes with
    /// [`PollSink::fragment_written`]. `None`: deliver them as a packet.
    fn fragment_target(&mut self, peer: Peer, offset: u64, len: usize) -> Option<UserMem> {
        let _ = (peer, offset, len);
        None
    }
    /// Reports bytes written where [`PollSink::fragment_target`] said last.
    fn fragment_written(&mut self, peer: Peer, len: usize) {
        let _ = (peer, len);
    }
    /// An `expose` that answered `Pending` ended; `None`: this transport cannot expose the data
    /// after all.
    fn on_exposed(&mut self, token: BulkToken, descriptor: Option<RegionDescriptor>);
    /// A `revoke` that answered `Pending` ended: nobody will touch the memory any more.
    fn on_revoked(&mut self, token: BulkToken);
    /// A bulk operation that answered `Pending` ended.
    fn on_bulk_done(&mut self, token: BulkToken, result: Result<(), Error>);
    /// The peer died or cut the connection; nothing more will arrive from it, and claims towards it
    /// answer `Gone`.
    fn on_peer_gone(&mut self, peer: Peer);
    /// The peer died or cut the connection, for a reason that the transport knows.
    fn on_peer_lost(&mut self, peer: Peer, why: &'static str) {
        let _ = why;
        self.on_peer_gone(peer);
    }
    /// The peer has ended its communication in good order: it answers no request any more, and
    /// claims towards it answer `Gone`.
    fn on_peer_left(&mut self, peer: Peer) {
        let _ = peer;
    }
    /// A peer that lives has no way to here, nor this process to it: nothing more will arrive from
    /// it.
    fn on_peer_unreachable(&mut self, shortage: UnreachableCause) {
        self.on_peer_gone(shortage.peer);
    }
}

/// Sleeping until a transport (or another thread of this process) has something to look at. Shared
/// by all threads of a rank and used without the engine's lock.
pub trait WakeSource: Send + Sync {
    /// Sleeps until the word differs from `ticket`, or the time is over. May return early.
    fn sleep(&self, ticket: u32, limit: Option<Duration>);
    /// Changes the word and wakes whoever sleeps.
    fn wake(&self);
    /// The word, where others may sleep on it together with words of their own.
    fn bell(&self) -> Option<&AtomicU32> {
        None
    }
    /// Sleeps also until one of these words differs from its ticket: those of other sources of the
    /// same kind. One without words sleeps for a moment only.
    fn sleep_among(&self, ticket: u32, limit: Option<Duration>, others: &[(&AtomicU32, u32)]) {
        let _ = others;
        self.sleep(
            ticket,
            Some(limit.map_or(SHORT_SLEEP, |limit| limit.min(SHORT_SLEEP))),
        );
    }
    /// Tells peers that the owner looks for messages all the time from now on, so that what needs
    /// its hands will not wait.
    fn start_polling(&self) {}
    /// Tells peers that it does not any more.
    fn stop_polling(&self) {}
}

/// The shortest ways for small packets. A transport without them keeps the defaults.
pub trait FastPath {
    /// Returns the slot batch for small plain packets to `peer`, which then go without a call of
    /// the transport. [`FastPath::open_slot_batch`] opens it; any other packet to the peer closes
    /// it. `None`: not supported towards the peer, or not yet.
    fn slot_batch(&mut self, peer: Peer) -> Option<Arc<SlotBatch>> {
        let _ = peer;
        None
    }

    /// Opens the slot batch towards `peer` for at most `records` packets: for how many there is
    /// room.
    fn open_slot_batch(&mut self, peer: Peer, records: u32) -> u32 {
        let _ = (peer, records);
        0
    }

    /// Sends inline like `send_inline`, if the shortest path is free. `false`: nothing happened,
    /// and `send_inline` may know another path.
    fn try_send_inline(&mut self, peer: Peer, header: PacketHeader, bytes: UserMem) -> bool {
        let _ = (peer, header, bytes);
        false
    }

    /// Shows the next packet, if it lies where a look costs next to nothing, and takes it out
    /// instead of delivering it if it is accepted.
    fn try_take_ready<A: PacketAcceptor>(&mut self, accept: A) -> PeekResult<A::Taken> {
        let _ = accept;
        PeekResult::Unknown
    }

    /// Delivers one packet if that takes no more than a look at where the next one should lie;
    /// `false`: it delivered none, and only a poll knows why.
    fn poll_one(&mut self, sink: &mut impl PollSink) -> bool {
        let _ = sink;
        false
    }

    /// Returns whether a poll would find nothing: a few loads, for spinning. `false` if that is not
    /// known so cheaply.
    fn is_idle(&self) -> bool {
        false
    }
}

/// Messages of medium length that follow their envelope in fragments.
pub trait FragmentedSends {
    /// Returns how `len` bytes should follow their envelope.
    fn fragmentation(&mut self, peer: Peer, len: usize) -> Fragmentation {
        let _ = (peer, len);
        Fragmentation::None
    }

    /// Sends a whole message of contiguous bytes in the pieces that `fragmentation` said, where the
    /// transport has a shorter way than a claim for each. `Ok(false)`: it has none now, and nothing
    /// happened.
    fn send_fragments(&mut self, pieces: &Fragments, mem: UserMem) -> Result<bool, ClaimError> {
        let _ = (pieces, mem);
        Ok(false)
    }
}

/// Regions of memory that peers read and write by descriptor.
pub trait RemoteMemory {
    /// Lets `peer` read and write `data` by descriptor until revoked.
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult;

    /// Withdraws a region. Ended means that nobody touches or will touch the memory.
    fn revoke(&mut self, token: BulkToken) -> BulkStatus;

    /// Starts to copy from a peer's region to local data.
    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error>;

    /// Starts to copy from local data to a peer's region.
    fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error>;

    /// Returns the power to access regions that are open to many peers. `None`: this transport has
    /// none, and the targets' engines carry out such accesses.
    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        None
    }
}

/// Copies that both sides of a message share, and copies that need no lock of the engine.
pub trait SharedCopy {
    /// Lets `peer` write to `data` until revoked, part by part with [`SharedCopy::write_part`];
    /// this side takes parts with [`SharedCopy::take_part`], and none is given twice. `None`: not
    /// this data, or never. A transport that shares ends its reads at once.
    fn share_region(
        &mut self,
        token: BulkToken,
        peer: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        let _ = (token, peer, data, way);
        None
    }

    /// Takes the next part of shared data, of which `len` bytes are to be filled, for this side:
    /// offset and length. `None`: nothing is left.
    fn take_part(&mut self, token: BulkToken, len: u64) -> Result<Option<(u64, u64)>, Error> {
        let _ = (token, len);
        Ok(None)
    }

    /// Takes the next part of data that a peer shares, and writes it from `bulk.local`, which holds
    /// all of it; offsets are 0 and `len` is that of the whole.
    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        let _ = bulk;
        Err(Error::Misuse("this transport writes no regions"))
    }

    /// Takes back shared data that its peer may write with [`SharedCopy::write_early`] unasked.
    /// `Withdrawn` revokes it, too; `InUse`: its peer took a part already.
    fn withdraw_region(&mut self, token: BulkToken) -> WithdrawResult {
        let _ = token;
        WithdrawResult::Withdrawn
    }

    /// Writes the first part of data that its owner offered early. `None`: the offer was withdrawn
    /// or revoked, or cannot be written from here.
    fn write_early(&mut self, bulk: BulkTransfer<'_>) -> Result<Option<PartWritten>, Error> {
        let _ = bulk;
        Ok(None)
    }

    /// Begins a bulk operation whose copying needs neither the transport nor its owner's lock. The
    /// local side stays valid until the load is dropped.
    fn offload(
        &mut self,
        bulk: BulkTransfer<'_>,
        what: OffloadKind,
    ) -> Result<OffloadResult, Error> {
        let _ = (bulk, what);
        Ok(OffloadResult::Unable)
    }

    /// Returns whether `peer` polls just now ([`WakeSource::start_polling`]). A hint.
    fn is_polling(&self, peer: Peer) -> bool {
        let _ = peer;
        true
    }
}

/// Waking the progress threads of peers that compute, and leaving the own program its time.
pub trait AsyncProgress {
    /// Wakes the progress thread of `peer` for a packet just sent, if `peer` has registered one for
    /// this reason. Never called for small messages on the fast path.
    fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        let _ = (peer, need);
    }

    /// The two words by which `peer`, or this rank itself, says for what it wants to be nudged, for
    /// `garonne_sync::progress_owner`. `None`: nobody nudges it from here.
    fn progress_words(&mut self, _peer: Peer) -> Option<Segment> {
        None
    }

    /// Returns whether a message of this length with `peer` needs this rank to poll because the
    /// peer cannot wake it. Without a peer: whether that may be so with any.
    fn needs_polling(&self, _peer: Option<Peer>, _len: u64) -> bool {
        false
    }

    /// Says whether polls take time from a computing program from now on. Then the transport may
    /// leave arrived data where it is until there is much of it.
    fn poll_in_background(&mut self, patient: bool) {
        let _ = patient;
    }

    /// Some of what goes by this transport is to stand in nobody's way, or nothing any more: then
    /// large data leave small messages their turn more often, though both together take longer.
    fn yield_to_small(&mut self, yields: bool) {
        let _ = yields;
    }

    /// The words of this rank's own [`progress_words`](Self::progress_words) are armed: from now on
    /// whatever comes, or has room again, where no peer can ring them rings them, once. What was
    /// there before counts. After the time that is returned the transport is to be looked at even
    /// if nothing rings.
    fn arm_progress(&mut self) -> Option<Duration> {
        None
    }
}

/// Memory of the ranks of one node, beside messages.
pub trait NodeMemory {
    /// Memory that `owner` offers to all processes this transport reaches, for what they do
    /// together beside messages; zeroed when the job began. `None`: this transport has none.
    fn coll_heap(&mut self, owner: Peer) -> Option<Segment> {
        let _ = owner;
        None
    }

    /// The doorbell word of `peer`, to be rung without the transport. `None`: it has none.
    fn doorbell(&mut self, peer: Peer) -> Option<Segment> {
        let _ = peer;
        None
    }
}

/// A transport: reaches peers with packets and bulk reads and writes.
///
/// Owned by one [`crate::engine::Engine`], which calls it through `&mut`. A send is `claim` then
/// `commit` (or `send_inline`). A large transfer is `expose` at the owner, `read` or `write` at the
/// peer, then `revoke`. `poll` delivers whatever arrived. A host that sleeps calls `arm`, polls
/// once more, sleeps on `wake_source`, and calls `disarm`.
pub trait Transport:
    FastPath + FragmentedSends + RemoteMemory + SharedCopy + AsyncProgress + NodeMemory
{
    /// Returns the size limits.
    fn limits(&self) -> TransportLimits;

    /// Returns the capabilities towards `peer`; `None` if the transport does not reach it.
    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities>;

    /// Why claims towards a peer that lives answer `Gone`. `None`: it is dead, or no transport
    /// leads to it.
    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        let _ = peer;
        None
    }

    /// Lends room for a packet with `len` bytes of payload.
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError>;

    /// Sends a packet: the header and the first `header.len` bytes of the room. Wakes the peer if
    /// it is armed.
    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader);

    /// Gives room back unused.
    fn abandon(&mut self, room: PacketBuffer);

    /// Claim, copy and commit in one for payloads of at most `limits().inline_max` bytes
    /// (`header.len`), class Data.
    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError>;

    /// Delivers up to `budget` packets and whatever else ended. Returns how many things it told the
    /// sink.
    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32;

    /// Chooses how to transfer `len` bytes that `peer` exposed, for the receive `token`.
    /// [`Transport::rendezvous_done`] reports the outcome, so that a transport may learn.
    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        let _ = (token, len);
        match self.capabilities(peer) {
            Some(reach) if reach.can_read => RendezvousMode::Read,
            _ => RendezvousMode::Data,
        }
    }

    /// The fetch of the receive `token` is over. `false`: the way that was answered could not be
    /// gone.
    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        let _ = (token, worked);
    }

    /// The engine counts this peer as gone, for what came from it or for want of memory for that:
    /// as if it had died. Bulk operations with it are to end and to be told of soon, since those
    /// that they are for end after them.
    fn peer_lost(&mut self, peer: Peer) {
        let _ = peer;
    }

    /// Declares that the owner is about to sleep: from now on arrivals change the wake source's
    /// word. Returns the word's value to sleep on. The caller polls once more before it sleeps.
    fn arm(&mut self) -> u32;

    /// The owner is awake again.
    fn disarm(&mut self);

    /// Returns the object on which the owner sleeps.
    fn wake_source(&self) -> Arc<dyn WakeSource>;

    /// Wakes `peer` if it sleeps, for things that need its hands without a packet.
    fn wake_peer(&mut self, peer: Peer);
}
