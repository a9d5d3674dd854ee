//! Large data by a fast network that libfabric reaches: one more way of a pair, beside those by
//! TCP.
//!
//! Owned by the pair's `paths`. It has a connection like the others, which proves both ends and
//! says whether the peer lives, since providers do not; over it the receiver asks for pieces, the
//! owner of the memory registers each and says where it lies, and the receiver reads it by the
//! pair's own endpoint. Nothing stays registered longer than its piece. Memory of either side is
//! given back when the piece has been read, or when the endpoint is closed, which ends what a
//! device still does: so the endpoint lives and dies with its connection, and whatever goes wrong
//! ends both; what is missing then comes by another way. Polled by whoever polls the transport, and
//! only while something is under way. Bounded by what the paths ask for, and by
//! [`TCP_BULK_REQUESTS_MAX`] on the lending side.

pub(crate) mod endpoint_opener;
pub(crate) mod hello;
#[cfg(test)]
mod tests;

use crate::bulk::{BulkEvent, RequestedRange, stage};
use crate::connection::{AfterRead, Connection, IoResult};
use crate::frame::{ASK, FABRIC, FrameHeader, FrameKind, HEAD, ReadRequest, StreamNumber};
use crate::ofi_path::hello::{HELLO_MAX, LENT, NotUsedReason, OfiHello};
use crate::packet_stream::SendResult;
use crate::replay_log::AckViolation;
use crate::sys;
use garonne_ofi::endpoint::{Endpoint, Event, Peer, Region};
use garonne_sync::user::{Data, UserMem};
use garonne_transport::limits::{
    OFI_CHECK_EVERY, OFI_FAILURES_MAX, OFI_POLL_EVERY, OFI_READ_MAX, OFI_READS_IN_FLIGHT,
    OFI_SILENT_CHECKS, TCP_BULK_REQUESTS_MAX,
};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Stream of the libfabric path.
pub(crate) const STREAM: StreamNumber = StreamNumber::Bulk(FABRIC);

/// Place where a piece lies in the peer's memory.
#[derive(Clone, Copy, Debug)]
struct RemoteEndpoint {
    key: u64,
    at: u64,
}

/// A request of this side.
#[derive(Debug)]
struct OfiRead {
    number: u32,
    piece: RequestedRange,
    mem: UserMem,
    offset: u64,
    /// Place where it is to be read; `None`: not known yet.
    remote: Option<RemoteEndpoint>,
    prepared: Option<Region>,
    /// Bytes whose read was begun, and bytes that came.
    begun: u64,
    done: u64,
    /// Reads under way.
    under_way: u32,
}

/// A piece of this side's memory that the peer may read.
#[derive(Debug)]
struct RegisteredPiece {
    number: u32,
    cookie: u64,
    region: Region,
    /// Number of looks since the owner wanted it back.
    recalled: Option<u32>,
}

/// Endpoint, and what it needs while there is one.
#[derive(Debug)]
struct OfiDevice {
    endpoint: Endpoint,
    /// True if its descriptor is among the transport's sockets.
    watched: bool,
}

/// The path of large data through libfabric, with the endpoint of this rank. Owned by the peer's
/// paths.
#[derive(Debug, Default)]
pub(crate) struct OfiPath {
    /// Before everything that it reads or lends: dropped first.
    device: Option<OfiDevice>,
    /// Hello of the peer's endpoint, which came before there was one here.
    greeting: Option<OfiHello>,
    /// The peer's endpoint, once both are there.
    peer: Option<Peer>,
    channel: Option<Connection>,
    reads: Vec<OfiRead>,
    next_number: u32,
    lent: Vec<RegisteredPiece>,
    staged: Vec<u8>,
    staged_at: usize,
    came: Vec<u8>,
    /// Bytes that came, ever; and what of them before this connection.
    moved: u64,
    moved_before: u64,
    /// Connections in a row that brought nothing and broke while something was to be read.
    fails: u32,
    /// An endpoint is being opened.
    pub(crate) opening: bool,
    unused: Option<NotUsedReason>,
    theirs: Option<NotUsedReason>,
}

impl OfiPath {
    pub(crate) fn channel(&self) -> Option<&Connection> {
        self.channel.as_ref()
    }

    /// Why it is not used: on this side, and on the other.
    pub(crate) fn unused(&self) -> (Option<NotUsedReason>, Option<NotUsedReason>) {
        (self.unused, self.theirs)
    }

    /// The provider, while there is an endpoint.
    pub(crate) fn provider(&self) -> Option<&str> {
        Some(&self.device.as_ref()?.endpoint.offer().provider)
    }

    /// Returns whether a connection is worth being opened.
    pub(crate) fn is_possible(&self) -> bool {
        self.unused.is_none() && self.theirs.is_none()
    }

    /// Both sides know each other's endpoints.
    pub(crate) fn is_ready(&self) -> bool {
        self.peer.is_some()
    }

    pub(crate) fn has_device(&self) -> bool {
        self.device.is_some()
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(crate) fn asked(&self) -> usize {
        self.reads.len()
    }

    pub(crate) fn backlog(&self) -> u64 {
        self.reads
            .iter()
            .map(|read| read.piece.len - read.done)
            .sum()
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    pub(crate) fn is_serving(&self) -> bool {
        !self.lent.is_empty()
    }

    pub(crate) fn has_to_send(&self) -> bool {
        self.staged_at < self.staged.len()
    }

    /// The endpoint is to be polled: it reads, or the peer reads here.
    pub(crate) fn needs_polls(&self) -> bool {
        self.device.is_some()
            && (!self.lent.is_empty() || self.reads.iter().any(|read| read.remote.is_some()))
    }

    /// Returns whether anything of this region is lent.
    pub(crate) fn lends(&self, cookie: u64) -> bool {
        self.lent.iter().any(|lent| lent.cookie == cookie)
    }

    /// An endpoint was opened, or could not be.
    pub(crate) fn equip(&mut self, opened: Result<Endpoint, NotUsedReason>) {
        self.opening = false;
        match opened {
            Ok(endpoint) => {
                self.device = Some(OfiDevice {
                    endpoint,
                    watched: false,
                });
            }
            Err(why) => self.unused = Some(why),
        }
        self.say_hello();
        if let Some(greeting) = self.greeting.take() {
            self.meet(&greeting);
        }
    }

    fn say_hello(&mut self) {
        if self.channel.is_none() {
            return;
        }
        let hello = match (&self.device, self.unused) {
            (_, Some(why)) => OfiHello::Nothing(why as u8),
            (Some(OfiDevice { endpoint, .. }), None) => OfiHello::Here(
                endpoint.offer().provider.clone(),
                endpoint.address().to_vec(),
            ),
            (None, None) => return,
        };
        let body = hello.encode();
        stage(&mut self.staged, FrameKind::Hello, 0, body.len() as u32);
        self.staged.extend_from_slice(&body);
    }

    /// Goes on with a new connection. What the old one has not brought goes back. An endpoint that
    /// no connection used yet is used by this one.
    pub(crate) fn adopt(&mut self, channel: Connection) -> Vec<RequestedRange> {
        let fresh = if self.channel.is_none() {
            self.device.take()
        } else {
            None
        };
        let rest = self.cut();
        self.device = fresh;
        self.channel = Some(channel);
        self.moved_before = self.moved;
        self.say_hello();
        rest
    }

    /// The connection has ended, and the endpoint with it. What it has not brought goes back.
    pub(crate) fn cut(&mut self) -> Vec<RequestedRange> {
        let reads_broke = self.reads.iter().any(|read| read.remote.is_some());
        if self.moved > self.moved_before {
            self.fails = 0;
        } else if reads_broke {
            self.fails += 1;
            if self.fails >= OFI_FAILURES_MAX {
                self.unused = Some(NotUsedReason::Failed);
            }
        }
        // From here on nobody reads here, and nothing is written.
        self.device = None;
        (self.channel, self.peer, self.greeting) = (None, None, None);
        self.lent.clear();
        self.staged.clear();
        self.staged_at = 0;
        self.came.clear();
        // What came of a piece may have gaps: it is read again as a whole.
        self.reads.drain(..).map(|read| read.piece).collect()
    }

    /// Starts a request. The local range is valid until it is told of or given back, and
    /// contiguous.
    pub(crate) fn read(&mut self, piece: RequestedRange, ask: ReadRequest, local: (Data, u64)) {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.reads.push(OfiRead {
            number,
            piece,
            mem: local.0.mem,
            offset: local.1,
            remote: None,
            prepared: None,
            begun: 0,
            done: 0,
            under_way: 0,
        });
        stage(&mut self.staged, FrameKind::Ask, number, ASK as u32);
        self.staged.extend_from_slice(&ask.encode());
    }

    /// Lends what is asked for, of which the range is known to be part of `data`.
    pub(crate) fn serve(&mut self, number: u32, ask: &ReadRequest, data: &Data) {
        let lent = match &mut self.device {
            Some(device) if data.layout.is_none() => sys::lend(
                &mut device.endpoint,
                data.mem,
                ask.offset as isize,
                ask.len as usize,
            )
            .ok(),
            _ => None,
        };
        let Some(region) = lent else {
            return stage(&mut self.staged, FrameKind::Declined, number, 0);
        };
        stage(&mut self.staged, FrameKind::Lent, number, LENT as u32);
        self.staged.extend_from_slice(&region.key.to_le_bytes());
        self.staged.extend_from_slice(&region.at.to_le_bytes());
        self.lent.push(RegisteredPiece {
            number,
            cookie: ask.cookie,
            region,
            recalled: None,
        });
    }

    pub(crate) fn refuse(&mut self, number: u32) {
        stage(&mut self.staged, FrameKind::Refused, number, 0);
    }

    /// The owner of this region wants it back: what of it is lent is, once the peer has read it.
    pub(crate) fn revoke(&mut self, cookie: u64) -> bool {
        for lent in self.lent.iter_mut().filter(|lent| lent.cookie == cookie) {
            lent.recalled.get_or_insert(0);
        }
        false
    }

    /// A look has passed. `true`: the peer keeps what was recalled several looks ago.
    pub(crate) fn is_kept_too_long(&mut self) -> bool {
        let mut kept = false;
        for looks in self
            .lent
            .iter_mut()
            .filter_map(|lent| lent.recalled.as_mut())
        {
            kept |= *looks >= OFI_SILENT_CHECKS;
            *looks += 1;
        }
        kept
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> SendResult {
        let Some(channel) = &mut self.channel else {
            return SendResult::All;
        };
        while self.staged_at < self.staged.len() {
            match channel.send(&self.staged[self.staged_at..], AfterRead::Nothing) {
                IoResult::Moved(moved) => self.staged_at += moved,
                IoResult::Later => return SendResult::Some,
                IoResult::Over => return SendResult::Over,
            }
        }
        self.staged.clear();
        self.staged_at = 0;
        match channel.push() {
            IoResult::Over => SendResult::Over,
            IoResult::Later => SendResult::Some,
            IoResult::Moved(_) => SendResult::All,
        }
    }

    /// Has the endpoint do what it has to, and takes what came on the connection, up to one thing
    /// to tell.
    ///
    /// # Errors
    /// The peer broke the format.
    pub(crate) fn fill(&mut self) -> Result<(IoResult, Option<BulkEvent>), AckViolation> {
        if self.channel.is_none() {
            return Ok((IoResult::Later, None));
        }
        let Ok(moved) = self.advance() else {
            return Ok((IoResult::Over, None));
        };
        if let Some(at) = self
            .reads
            .iter()
            .position(|read| read.done == read.piece.len)
        {
            let read = self.reads.remove(at);
            self.release(read.prepared);
            stage(&mut self.staged, FrameKind::Taken, read.number, 0);
            return Ok((
                IoResult::Moved(moved.max(1)),
                Some(BulkEvent::Done(read.piece)),
            ));
        }
        let (got, told) = self.take_frame()?;
        Ok((
            if moved > 0 && got == IoResult::Later {
                IoResult::Moved(moved)
            } else {
                got
            },
            told,
        ))
    }

    fn release(&mut self, prepared: Option<Region>) {
        if let (Some(region), Some(device)) = (prepared, &mut self.device) {
            device.endpoint.withdraw(region);
        }
    }

    /// Hears what has ended, and begins more. The bytes that came. `Err`: the endpoint, or a read,
    /// failed.
    fn advance(&mut self) -> Result<usize, ()> {
        let (Some(device), Some(peer)) = (&mut self.device, self.peer) else {
            return Ok(0);
        };
        let (reads, mut failed, mut moved) = (&mut self.reads, false, 0);
        let mut told = |event: Event<'_>| {
            let Event::Read(token, result) = event else {
                return;
            };
            let (number, len) = ((token >> 32) as u32, token & u64::from(u32::MAX));
            failed |= result.is_err();
            if let Some(read) = reads.iter_mut().find(|read| read.number == number) {
                read.under_way -= 1;
                read.done += len;
                moved += len;
            }
        };
        device.endpoint.poll(&mut told).map_err(drop)?;
        if failed {
            return Err(());
        }
        self.moved += moved;
        let mut under_way: u32 = self.reads.iter().map(|read| read.under_way).sum();
        let most = OFI_READ_MAX.min(device.endpoint.read_max() as u64).max(1);
        for read in &mut self.reads {
            let Some(remote) = read.remote else { continue };
            while read.begun < read.piece.len && under_way < OFI_READS_IN_FLIGHT {
                let len = most.min(read.piece.len - read.begun);
                let begun = sys::read_remote(
                    &mut device.endpoint,
                    u64::from(read.number) << 32 | len,
                    (peer, remote.at.wrapping_add(read.begun), remote.key),
                    (read.mem, (read.offset + read.begun) as isize, len as usize),
                    read.prepared,
                );
                if !begun.map_err(drop)? {
                    return Ok(moved as usize);
                }
                (read.begun, read.under_way, under_way) =
                    (read.begun + len, read.under_way + 1, under_way + 1);
            }
        }
        Ok(moved as usize)
    }

    fn take_frame(&mut self) -> Result<(IoResult, Option<BulkEvent>), AckViolation> {
        let had = self.came.len();
        let head = match self.came.first_chunk::<HEAD>() {
            None => None,
            Some(bytes) => {
                Some(FrameHeader::decode(bytes, StreamNumber::Bulk(FABRIC)).ok_or(AckViolation)?)
            }
        };
        let need = HEAD + head.map_or(0, |head| head.len as usize);
        debug_assert!(need <= HEAD + HELLO_MAX);
        let Some(channel) = &mut self.channel else {
            return Ok((IoResult::Later, None));
        };
        let mut got = IoResult::Moved(1);
        if had < need {
            self.came.resize(need, 0);
            got = channel.recv(&mut self.came[had..]);
            self.came.truncate(
                had + if let IoResult::Moved(moved) = got {
                    moved
                } else {
                    0
                },
            );
        }
        match head {
            Some(head) if self.came.len() == need => {
                let body = self.came.split_off(HEAD);
                self.came.clear();
                Ok((IoResult::Moved(1), self.heard(head, &body)?))
            }
            // A head without a body is looked at the next time.
            _ => Ok((got, None)),
        }
    }

    fn heard(&mut self, head: FrameHeader, body: &[u8]) -> Result<Option<BulkEvent>, AckViolation> {
        let asked = |reads: &[OfiRead]| {
            let of = |read: &OfiRead| read.number == head.number && read.remote.is_none();
            reads.iter().position(of).ok_or(AckViolation)
        };
        match head.kind {
            FrameKind::Hello => {
                if self.peer.is_some() || self.greeting.is_some() {
                    return Err(AckViolation);
                }
                let hello = OfiHello::decode(body).ok_or(AckViolation)?;
                Ok(self.meet(&hello).map(BulkEvent::Unused))
            }
            FrameKind::Ask => {
                let ask = ReadRequest::decode(body.first_chunk::<ASK>().ok_or(AckViolation)?);
                if self.lent.len() >= TCP_BULK_REQUESTS_MAX {
                    return Err(AckViolation);
                }
                Ok(Some(BulkEvent::Asks(head.number, ask)))
            }
            FrameKind::Lent => {
                let at = asked(&self.reads)?;
                let word = |at: usize| {
                    let mut eight = [0; 8];
                    eight.copy_from_slice(&body[at..at + 8]);
                    u64::from_le_bytes(eight)
                };
                let (read, device) = (
                    &mut self.reads[at],
                    self.device.as_mut().ok_or(AckViolation)?,
                );
                let range = (read.offset as isize, read.piece.len as usize);
                match sys::prepare(&mut device.endpoint, read.mem, range.0, range.1) {
                    Ok(prepared) => {
                        read.prepared = prepared;
                        read.remote = Some(RemoteEndpoint {
                            key: word(0),
                            at: word(8),
                        });
                        Ok(None)
                    }
                    Err(_) => {
                        let read = self.reads.remove(at);
                        stage(&mut self.staged, FrameKind::Taken, read.number, 0);
                        Ok(Some(BulkEvent::Declined(read.piece)))
                    }
                }
            }
            FrameKind::Declined => Ok(Some(BulkEvent::Declined(
                self.reads.remove(asked(&self.reads)?).piece,
            ))),
            FrameKind::Refused => Ok(Some(BulkEvent::Refused(
                self.reads.remove(asked(&self.reads)?).piece,
            ))),
            FrameKind::Taken => {
                let at = self.lent.iter().position(|lent| lent.number == head.number);
                let lent = self.lent.remove(at.ok_or(AckViolation)?);
                self.release(Some(lent.region));
                Ok(None)
            }
            _ => Err(AckViolation),
        }
    }

    /// The peer said who its endpoint is. Why that is of no use, if it is not.
    fn meet(&mut self, hello: &OfiHello) -> Option<NotUsedReason> {
        let (name, address) = match hello {
            OfiHello::Nothing(why) => {
                let why = NotUsedReason::from_code(*why).unwrap_or(NotUsedReason::NoProvider);
                self.theirs = Some(why);
                return Some(why);
            }
            OfiHello::Here(name, address) => (name, address),
        };
        let Some(device) = &mut self.device else {
            self.greeting = Some(hello.clone());
            return self.unused;
        };
        let why = if *name != device.endpoint.offer().provider {
            NotUsedReason::OtherProvider
        } else {
            match device.endpoint.insert(address) {
                Ok(peer) => {
                    self.peer = Some(peer);
                    return None;
                }
                Err(_) => NotUsedReason::OtherProvider,
            }
        };
        self.unused = Some(why);
        Some(why)
    }

    /// Prepares for the owner's sleep: the endpoint's descriptor is among those that end the sleep
    /// while there is something to hear from it. How long the sleep may last; `None`: there is
    /// nothing to hear.
    pub(crate) fn before_sleep(&mut self, epoll: &OwnedFd, data: EventData) -> Option<Duration> {
        let needed = self.needs_polls();
        let OfiDevice { endpoint, watched } = self.device.as_mut()?;
        if needed != *watched
            && let Some(fd) = endpoint.wait()
        {
            let changed = match needed {
                true => epoll::add(epoll, fd, data, EventFlags::IN),
                false => epoll::delete(epoll, fd),
            };
            *watched = needed && changed.is_ok();
        }
        needed.then(|| match (endpoint.wait().is_some(), endpoint.may_sleep()) {
            (true, false) => Duration::ZERO,
            (true, true) => OFI_CHECK_EVERY,
            (false, _) => OFI_POLL_EVERY,
        })
    }
}
