//! Fast paths of `MPI_Send`, `MPI_Recv`, `MPI_Isend` and `MPI_Irecv`: from the call's arguments
//! directly to the engine.
//!
//! The wrappers of these functions try their fast path first. A table maps (communicator, rank) to
//! context, peer and send channel without touching the communicator or the channel's owner. A
//! missing entry, an unusual argument or an error makes the fast path return `None`; the wrapper
//! then calls the general body, which handles everything and fills the table.
//!
//! The table is filled only while one thread at a time is in MPI. Every fast path ends at the
//! engine's own checks, so entries need no invalidation when the engine's state changes. Only
//! freeing a communicator removes its entries, because a new object may get the handle. The table
//! has [`ENTRIES`] entries.

use crate::c_args::{Buf, Ptr};
use crate::call::{CallId, ErrorObject, return_code};
use crate::constants::{MPI_ANY_TAG, MPI_SUCCESS};
use crate::entry::CallSite;
use crate::gpu_buffers;
use crate::handle::*;
use crate::light_request;
use crate::optional_checks;
use crate::rank_context::RankContext;
use crate::status::{StatusLayout, write_message};
use crate::this_rank;
use garonne_engine::api::{CallOrigin, ContextId, Peer, Request, TypeDigest};
use garonne_engine::fast::recv::{ANY_TAG, FastRecv};
use garonne_engine::fast::send::FastSend;
use garonne_engine::fast::send_channel::SendChannel;
use garonne_mpi::datatype::{kind_of, run_bytes};
use garonne_progress::limits::ASYNC_RECV_MIN;
use garonne_progress::messaging::BackgroundWork;
use garonne_sync::mailbox::INLINE_MAX;
use garonne_sync::post_mortem::PostMortemArc;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// (Communicator, rank) pairs that are found at once: a halo exchange talks to some tens of
/// neighbours; 2 KB.
const ENTRIES: usize = 64;

/// An entry of the table. The key is a communicator's [`CommKey`] and a rank in it, or
/// `MPI_ANY_SOURCE`. The value is context, peer, and the send channel to that peer (null if there
/// is none).
#[repr(align(32))]
struct PeerEntry {
    comm: AtomicUsize,
    track: AtomicPtr<SendChannel>,
    rank: AtomicI32,
    context: AtomicU32,
    peer: AtomicU32,
    /// Number of messages sent to the peer while it had no send channel. Peers on other hosts never
    /// have one.
    sends_without_channel: AtomicU32,
}

const _: () = assert!(size_of::<PeerEntry>() == 32, "two in a line");

/// Names a communicator in the table: its handle in the standard ABI, or what [`int_key`] or
/// [`pointer_key`] makes of its handle in another ABI; 0 for no communicator.
pub type CommKey = usize;

/// Distance of keys of handles that are `int`: no such key is a handle of the standard ABI, all of
/// which are smaller, and both have slots of their own.
const INTS: usize = (1 << 31) - ENTRIES / 2;
/// Distance of keys of handles that are pointers. No address, and no address with the highest bit
/// set, becomes a key of another kind.
const POINTERS: usize = (1 << 62) + ENTRIES / 2;

/// Returns the key of a handle that is an `int`. Its lower 31 bits are the word of the standard ABI
/// unless the communicator is predefined.
#[inline(always)]
pub fn int_key(handle: u32) -> CommKey {
    handle as usize + INTS
}

/// Returns the key of a handle that is a pointer: the address of a predefined object, or the word
/// of the standard ABI with the highest bit set.
#[inline(always)]
pub fn pointer_key(handle: usize) -> CommKey {
    handle.wrapping_add(POINTERS)
}

/// Returns the handle in the standard ABI of the communicator that a key names, unless it is
/// predefined in another ABI.
fn handle_of(key: CommKey) -> usize {
    let word = |handle: usize| handle & (i32::MAX as usize);
    match (key.checked_sub(POINTERS), key.checked_sub(INTS)) {
        (Some(handle), _) if handle >> 63 == 0 => 0,
        (Some(handle), _) | (None, Some(handle)) => word(handle),
        (None, None) => key,
    }
}

/// Table of the pairs with which a rank communicates.
pub(crate) struct PeerTable([PeerEntry; ENTRIES]);

impl PeerTable {
    /// No pairs.
    pub const fn new() -> Self {
        Self(
            [const {
                PeerEntry {
                    comm: AtomicUsize::new(0),
                    track: AtomicPtr::new(null_mut()),
                    rank: AtomicI32::new(0),
                    context: AtomicU32::new(0),
                    peer: AtomicU32::new(0),
                    sends_without_channel: AtomicU32::new(0),
                }
            }; ENTRIES],
        )
    }

    #[inline(always)]
    fn slot_for(&self, comm: CommKey, rank: c_int) -> &PeerEntry {
        &self.0[(comm as u32).wrapping_add(rank as u32) as usize % ENTRIES]
    }

    /// The entry of a pair, if it was learned.
    #[inline(always)]
    fn lookup(&self, comm: CommKey, rank: c_int) -> Option<&PeerEntry> {
        let entry = self.slot_for(comm, rank);
        (entry.comm.load(Ordering::Relaxed) == comm && entry.rank.load(Ordering::Relaxed) == rank)
            .then_some(entry)
    }

    #[inline(always)]
    fn send_channel(&self, comm: CommKey, rank: c_int) -> Option<&SendChannel> {
        let track = self.lookup(comm, rank)?.track.load(Ordering::Relaxed);
        // SAFETY: null, or a track of the rank's engine, which lives as long as its communicator; a
        // handle that is freed took its entries with it before.
        unsafe { track.as_ref() }
    }
}

/// The table of the current rank.
#[inline(always)]
fn peers() -> &'static PeerTable {
    &RankContext::current().peers
}

/// Returns whether the table should learn this pair. False with several threads: one could read an
/// entry that another is writing.
#[inline(always)]
pub(crate) fn wants_entry(comm: MPI_Comm, rank: c_int) -> bool {
    peers().lookup(comm.0, rank).is_none() && is_single_threaded()
}

#[inline(always)]
fn is_single_threaded() -> bool {
    this_rank::engine().is_some_and(|host| host.is_alone())
}

/// Adds a pair to the table, with its send channel if there is one. Called only while the rank has
/// a single thread in MPI.
#[cold]
#[inline(never)]
pub(crate) fn learn(comm: MPI_Comm, rank: c_int, (context, peer): (ContextId, Peer)) {
    // The fast paths send no type digest.
    if optional_checks::types_enabled() {
        return;
    }
    let Some(host) = this_rank::engine() else {
        return;
    };
    let track = host.track(context, peer);
    let at = track
        .as_ref()
        .map_or(null_mut(), |track| PostMortemArc::as_ptr(track).cast_mut());
    let entry = peers().slot_for(comm.0, rank);
    if peers().lookup(comm.0, rank).is_none() {
        entry.sends_without_channel.store(0, Ordering::Relaxed);
    }
    entry.comm.store(comm.0, Ordering::Relaxed);
    entry.rank.store(rank, Ordering::Relaxed);
    entry.context.store(context, Ordering::Relaxed);
    entry.peer.store(peer, Ordering::Relaxed);
    entry.track.store(at, Ordering::Relaxed);
}

/// Adds the pair of a small message that was sent, unless its send channel is known. While there is
/// no channel, retries become ever rarer.
#[inline(always)]
pub(crate) fn learn_channel(comm: MPI_Comm, rank: c_int, small: &FastSend) {
    if small.len > INLINE_MAX || !is_single_threaded() {
        return;
    }
    let is_due = match peers().lookup(comm.0, rank) {
        None => true,
        Some(entry) if !entry.track.load(Ordering::Relaxed).is_null() => false,
        Some(entry) => {
            let times = entry
                .sends_without_channel
                .load(Ordering::Relaxed)
                .wrapping_add(1);
            entry.sends_without_channel.store(times, Ordering::Relaxed);
            times.is_power_of_two()
        }
    };
    if is_due {
        learn(comm, rank, (small.context, small.peer));
    }
}

/// Forgets a communicator whose handle is freed; `None`: all of them.
pub(crate) fn forget(comm: Option<MPI_Comm>) {
    for entry in &peers().0 {
        let key = entry.comm.load(Ordering::Relaxed);
        if comm.is_none_or(|comm| handle_of(key) == comm.0) {
            entry.comm.store(0, Ordering::Relaxed);
        }
    }
}

/// Copies the entry of a pair for calls of another ABI, which have the key `foreign`.
#[inline]
pub(crate) fn learn_foreign(comm: MPI_Comm, rank: c_int, foreign: CommKey) {
    let known = peers().lookup(comm.0, rank);
    if let Some(known) = known
        && is_single_threaded()
    {
        copy_entry(known, rank, foreign);
    }
}

fn copy_entry(known: &PeerEntry, rank: c_int, foreign: CommKey) {
    let copy = peers().slot_for(foreign, rank);
    copy.comm.store(foreign, Ordering::Relaxed);
    copy.rank.store(rank, Ordering::Relaxed);
    let (context, peer) = (&known.context, &known.peer);
    copy.context
        .store(context.load(Ordering::Relaxed), Ordering::Relaxed);
    copy.peer
        .store(peer.load(Ordering::Relaxed), Ordering::Relaxed);
    copy.track
        .store(known.track.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// A predefined type whose elements lie back to back, as the fast paths need it.
#[derive(Clone, Copy, Debug)]
pub struct PlainType {
    /// Bytes of an element; 0 for any other type.
    pub bytes: usize,
    /// Lower byte of the handle in the standard ABI.
    pub code: u8,
}

impl PlainType {
    /// Returns the type of a handle of the standard ABI.
    #[inline(always)]
    pub const fn of(datatype: usize) -> Self {
        Self {
            bytes: run_bytes(datatype),
            code: datatype as u8,
        }
    }
}

/// A count of elements, of which only small ones matter here.
pub trait ElementCount {
    /// The count; what is negative or too large for a few stays too large.
    fn elements(self) -> u64;
}

impl ElementCount for c_int {
    #[inline(always)]
    fn elements(self) -> u64 {
        u64::from(self as u32)
    }
}

impl ElementCount for MPI_Count {
    #[inline(always)]
    fn elements(self) -> u64 {
        (self as u64).min(u32::MAX.into())
    }
}

/// Returns the length in bytes of a buffer of a contiguous predefined type. `None` unless the
/// length is 1 to `most` and the address is an ordinary one.
#[inline(always)]
pub(crate) fn contiguous_bytes(
    buf: Buf,
    (count, datatype): (impl ElementCount, PlainType),
    most: u32,
) -> Option<u32> {
    // A type has 0 bytes if it is any other type; a count of 0 gives 0, too.
    let bytes = datatype.bytes as u64 * count.elements();
    // Signed: special addresses of other ABIs are negative.
    let is_ordinary = buf.addr().cast_signed() > gpu_buffers::checked_up_to().cast_signed();
    let fits = bytes.wrapping_sub(1) < u64::from(most) && is_ordinary;
    fits.then_some(bytes as u32)
}

#[inline(always)]
fn origin(call: CallId, site: CallSite, datatype: PlainType) -> CallOrigin {
    CallOrigin {
        call: call.0,
        datatype: datatype.code,
        digest: TypeDigest::NONE,
        site: site.address(),
    }
}

const _: () = {
    // The lower byte is the number under which the engine remembers a predefined type.
    let mut code = 0;
    while code < 0x1000 {
        assert!(run_bytes(code) == 0 || kind_of(code) == code as u8);
        code += 1;
    }
};

/// Fast path of `MPI_Send`. Returns the error code, or `None` without any effect if the general
/// path must run.
#[inline(always)]
pub(crate) fn send(
    call: CallId,
    site: CallSite,
    buf: Buf,
    count: impl ElementCount,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
) -> Option<c_int> {
    let datatype = PlainType::of(datatype.0);
    send_plain((call, site), buf, (count, datatype), (dest, tag), comm.0)
}

/// `MPI_Send` with the arguments of any ABI.
#[inline(always)]
pub(crate) fn send_plain(
    (call, site): (CallId, CallSite),
    buf: Buf,
    (count, datatype): (impl ElementCount, PlainType),
    (dest, tag): (c_int, c_int),
    comm: CommKey,
) -> Option<c_int> {
    let track = peers().send_channel(comm, dest)?;
    let len = contiguous_bytes(buf, (count, datatype), INLINE_MAX as u32)?;
    let origin = origin(call, site, datatype);
    let sent = tag >= 0 && track.send(tag, (buf.mem(), len), origin, |word| site.store(word));
    sent.then_some(MPI_SUCCESS)
}

/// `MPI_Isend`, as `send`.
#[inline(always)]
pub(crate) fn isend(
    call: CallId,
    site: CallSite,
    buf: Buf,
    count: impl ElementCount,
    datatype: MPI_Datatype,
    dest: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: Ptr<MPI_Request>,
) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    let sent = send(call, site, buf, count, datatype, dest, tag, comm)?;
    request.set_if(light_request::DONE);
    Some(sent)
}

/// Returns the engine's arguments for a receive, if the type is contiguous and the pair is in the
/// table.
#[inline(always)]
fn fast_recv_args(
    (call, site): (CallId, CallSite),
    buf: Buf,
    (count, datatype): (impl ElementCount, PlainType),
    (source, tag): (c_int, c_int),
    (peers, comm): (&PeerTable, CommKey),
) -> Option<FastRecv> {
    let entry = peers.lookup(comm, source)?;
    let room = contiguous_bytes(buf, (count, datatype), u32::MAX)?;
    Some(FastRecv {
        context: entry.context.load(Ordering::Relaxed),
        peer: entry.peer.load(Ordering::Relaxed),
        rank: source as u32,
        // No message has a tag that is wrong here.
        tag,
        mem: buf.mem(),
        room,
        origin: origin(call, site, datatype),
    })
}

const _: () = assert!(ANY_TAG == MPI_ANY_TAG, "tags are handed on as they are");

/// `MPI_Recv`, as `send`.
#[inline(always)]
pub(crate) fn recv<S: StatusLayout>(
    call: CallId,
    site: CallSite,
    buf: Buf,
    count: impl ElementCount,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    status: Ptr<S>,
) -> Option<c_int> {
    let data = (count, PlainType::of(datatype.0));
    recv_plain((call, site), buf, data, (source, tag), (comm.0, status))
}

/// `MPI_Recv` with the arguments of any ABI. The tag is the standard ABI's.
#[inline(always)]
pub(crate) fn recv_plain<S: StatusLayout>(
    (call, site): (CallId, CallSite),
    buf: Buf,
    data: (impl ElementCount, PlainType),
    envelope: (c_int, c_int),
    (comm, status): (CommKey, Ptr<S>),
) -> Option<c_int> {
    // Read once: the compiler reads the thread's word anew behind an atomic load.
    let rank = RankContext::current();
    let pair = (&rank.peers, comm);
    let fast_recv = fast_recv_args((call, site), buf, data, envelope, pair)?;
    let received = rank
        .engines
        .engine()?
        .take_now(&fast_recv, |word| site.store(word))?;
    write_message(status, &received.into());
    Some(MPI_SUCCESS)
}

/// `MPI_Irecv`, as `send`.
#[inline(always)]
pub(crate) fn irecv(
    call: CallId,
    site: CallSite,
    buf: Buf,
    count: impl ElementCount,
    datatype: MPI_Datatype,
    source: c_int,
    tag: c_int,
    comm: MPI_Comm,
    request: Ptr<MPI_Request>,
) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    let data = (count, PlainType::of(datatype.0));
    let posted = irecv_plain((call, site), buf, data, (source, tag), comm.0)?;
    match posted {
        Ok(handle) => request.set_if(handle),
        Err(name) => {
            site.note();
            let named = light_request::return_posted(comm, name, request);
            return Some(return_code(call, ErrorObject::Comm(comm), named));
        }
    }
    Some(MPI_SUCCESS)
}

/// `MPI_Irecv` with the arguments of any ABI. Returns the request, or the engine's name for it if
/// it needs an entry in the table of requests. The tag is the standard ABI's.
#[inline(always)]
pub(crate) fn irecv_plain(
    (call, site): (CallId, CallSite),
    buf: Buf,
    data: (impl ElementCount, PlainType),
    envelope: (c_int, c_int),
    comm: CommKey,
) -> Option<Result<MPI_Request, Request>> {
    let rank = RankContext::current();
    let pair = (&rank.peers, comm);
    let fast_recv = fast_recv_args((call, site), buf, data, envelope, pair)?;
    let host = rank.engines.engine()?;
    let name = host.post_now(&fast_recv, |word| site.store(word))?;
    if fast_recv.room > ASYNC_RECV_MIN {
        host.leave_pending(name);
    }
    // The table is used by one thread at a time, so the request is in the first shard.
    Some(light_request::handle(0, name).ok_or(name))
}
