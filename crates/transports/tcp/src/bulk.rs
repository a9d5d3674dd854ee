//! One connection for large data, asked for by its receiver and streamed from the sender's memory
//! straight into the receiver's.
//!
//! Owned by the pair's `paths`, which say what is asked for here. Nothing is logged: what is
//! missing when a connection breaks goes back to them. Bounded by what they ask for and by
//! [`TCP_BULK_REQUESTS_MAX`] on the serving side; requests take turns by frames, so none starves
//! another.

pub(crate) mod eager_prefix;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod receive_low_watermark;
mod send_queue_limit;

use crate::bulk::eager_prefix::{EagerPrefixes, ReceivedPrefix};
use crate::bulk::receive_low_watermark::ReceiveLowWatermark;
use crate::bulk::send_queue_limit::SendQueueLimit;
use crate::connection::{AfterRead, Connection, IoResult};
use crate::frame::{ASK, FrameHeader, FrameKind, HEAD, ReadRequest, StreamNumber, UNASKED};
use crate::ofi_path::hello::NotUsedReason;
use crate::packet_stream::SendResult;
use crate::replay_log::AckViolation;
use garonne_sync::user::Data;
use garonne_transport::iovec::{CopyDirection, IoBlock};
use garonne_transport::limits::{
    EAGER_PREFIX_POLLS, TCP_BLOCK_LEAST, TCP_BLOCKS, TCP_BOUNCE, TCP_BULK_FRAME,
    TCP_BULK_REQUESTS_MAX,
};
use std::collections::VecDeque;
use std::time::Instant;

/// A range of something that this side reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedRange {
    /// Region that the range is part of.
    pub(crate) whole: u64,
    /// Offset of the first byte in the region.
    pub(crate) at: u64,
    /// Number of bytes.
    pub(crate) len: u64,
}

/// Why something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataOrigin {
    /// This side asks for it; the request has left.
    Asked(bool),
    /// Nobody does; the other side has begun with it.
    Unasked(bool),
}

/// Place where it goes.
#[derive(Debug)]
enum SendState {
    /// There, from this byte on.
    To(Data, u64),
    /// Nobody reads it yet; so many looks have passed.
    Parked(u32),
    /// The data were sent unasked, and wait here.
    Kept(ReceivedPrefix),
    /// Nobody waits for it any more.
    Nowhere,
}

/// Something that comes.
#[derive(Debug)]
struct BulkRead {
    number: u32,
    piece: RequestedRange,
    ask: ReadRequest,
    goes: SendState,
    /// Bytes that came.
    done: u64,
    origin: DataOrigin,
}

impl BulkRead {
    /// Returns the part that has not come.
    fn rest(&self) -> RequestedRange {
        RequestedRange {
            whole: self.piece.whole,
            at: self.piece.at + self.done,
            len: self.piece.len - self.done,
        }
    }

    /// Somebody reads it.
    fn is_wanted(&self) -> bool {
        matches!(self.goes, SendState::To(..))
    }

    /// Somebody reads it, or did when it was asked for.
    fn counts(&self) -> bool {
        self.is_wanted() || matches!(self.origin, DataOrigin::Asked(_))
    }

    /// The other side may send of it.
    fn may_come(&self) -> bool {
        matches!(
            self.origin,
            DataOrigin::Asked(true) | DataOrigin::Unasked(true)
        )
    }
}

/// A request of the peer to this side.
#[derive(Debug)]
struct ServedRequest {
    number: u32,
    cookie: u64,
    data: Data,
    at: u64,
    left: u64,
}

/// A frame's body that is leaving.
#[derive(Debug)]
struct OutgoingData {
    serve: ServedRequest,
    /// Bytes of this frame that are left.
    left: u64,
    /// The region was revoked: zeros leave instead, and then a refusal.
    void: bool,
}

/// A body that is coming.
#[derive(Clone, Copy, Debug)]
struct IncomingData {
    number: u32,
    left: u64,
}

/// A head and, of a request, its body, in the making.
#[derive(Debug)]
struct RegionRequest([u8; HEAD + ASK]);

impl Default for RegionRequest {
    fn default() -> Self {
        Self([0; HEAD + ASK])
    }
}

/// Something that came, for the transport.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BulkEvent {
    /// The peer asks; the transport answers with [`BulkConnection::serve`] or
    /// [`BulkConnection::refuse`].
    Asks(u32, ReadRequest),
    /// A request of this side is served.
    Done(RequestedRange),
    /// Or refused.
    Refused(RequestedRange),
    /// Or cannot be served this way.
    Declined(RequestedRange),
    /// Data that were to come unasked do not.
    Unsent(Vec<RequestedRange>),
    /// Data that nobody reads yet and nobody asked for are there; the transport answers with
    /// [`BulkConnection::keep`].
    Unread(u32),
    /// Nothing can be.
    Unused(NotUsedReason),
}

/// One connection for large data: requests, and bodies that leave and come.
///
/// Owned by a peer's paths, and outlives sockets. [`BulkConnection::adopt`] gives it a socket and
/// [`BulkConnection::cut`] takes it away. Between them [`BulkConnection::read`] asks,
/// [`BulkConnection::serve`] answers, [`BulkConnection::flush`] sends what waits, and
/// [`BulkConnection::fill`] takes what came.
#[derive(Debug, Default)]
pub(crate) struct BulkConnection {
    channel: Option<Connection>,
    reads: Vec<BulkRead>,
    next_number: u32,
    advances: EagerPrefixes,
    /// The last region of which something came unasked by this connection; 0: none.
    latest: u64,
    serving: VecDeque<ServedRequest>,
    /// Bytes that leave now, of which `staged_at` have; its end is the head of `leaving`, if there
    /// is one.
    staged: Vec<u8>,
    staged_at: usize,
    /// Bytes that leave behind the body that is leaving.
    next: Vec<u8>,
    leaving: Option<OutgoingData>,
    came: RegionRequest,
    came_len: usize,
    coming: Option<IncomingData>,
    bounce: Vec<u8>,
    blocks: DataBlocks,
    low_water: ReceiveLowWatermark,
    unsent: SendQueueLimit,
    /// Bytes of bodies that came, ever.
    moved: u64,
    /// Requests that were refused, ever.
    refused: u64,
}

/// Place where a part of shaped data lies.
#[derive(Debug, Default)]
struct DataBlocks {
    offsets: Vec<(isize, usize)>,
    blocks: Vec<IoBlock>,
}

impl DataBlocks {
    /// The blocks of up to `len` bytes of the data's packed stream from `from` on, if they are long
    /// enough to be moved from where they lie.
    fn of(&mut self, data: &Data, from: u64, len: u64) -> Option<&mut [IoBlock]> {
        let layout = data.layout.as_ref()?;
        self.offsets.clear();
        let covered = layout.blocks(from, len, TCP_BLOCKS, &mut self.offsets);
        if covered < TCP_BLOCK_LEAST * self.offsets.len() as u64 || covered == 0 {
            return None;
        }
        let block = |&(offset, len): &(isize, usize)| IoBlock {
            addr: data.mem.addr(offset),
            len,
        };
        self.blocks.clear();
        self.blocks.extend(self.offsets.iter().map(block));
        Some(&mut self.blocks)
    }
}

impl BulkConnection {
    pub(crate) fn channel(&self) -> Option<&Connection> {
        self.channel.as_ref()
    }

    /// This side waits for something: it keeps the connection.
    pub(crate) fn is_wanted(&self) -> bool {
        self.reads.iter().any(BulkRead::is_wanted)
    }

    /// Requests of this side that are not served.
    pub(crate) fn asked(&self) -> usize {
        self.reads.iter().filter(|read| read.counts()).count()
    }

    /// Bytes that it still has to bring.
    pub(crate) fn backlog(&self) -> u64 {
        let counted = self.reads.iter().filter(|read| read.counts());
        counted.map(|read| read.rest().len).sum()
    }

    /// Bytes that it has brought.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// Changes whenever the other side answers.
    pub(crate) fn heard(&self) -> u64 {
        self.moved + self.refused
    }

    /// Bytes are to leave.
    pub(crate) fn is_serving(&self) -> bool {
        self.leaving.is_some() || !self.serving.is_empty()
    }

    /// Something could leave.
    pub(crate) fn has_to_send(&self) -> bool {
        self.is_serving() || !self.staged.is_empty() || !self.next.is_empty()
    }

    /// Goes on with a new connection. What the old one has not brought goes back.
    pub(crate) fn adopt(&mut self, channel: Connection) -> Vec<RequestedRange> {
        let rest = self.cut();
        self.channel = Some(channel);
        self.end_advance();
        rest
    }

    /// The connection has ended. What it has not brought goes back.
    pub(crate) fn cut(&mut self) -> Vec<RequestedRange> {
        self.channel = None;
        self.latest = 0;
        self.low_water = ReceiveLowWatermark::default();
        self.unsent = SendQueueLimit::default();
        self.serving.clear();
        self.staged.clear();
        self.next.clear();
        self.staged_at = 0;
        (self.leaving, self.coming, self.came_len) = (None, None, 0);
        let waited = self.reads.drain(..).filter(BulkRead::is_wanted);
        waited.map(|read| read.rest()).collect()
    }

    /// Gives back what the connection has not brought, without ending it: what still comes goes
    /// nowhere.
    pub(crate) fn give_up(&mut self) -> Vec<RequestedRange> {
        let mut rest = Vec::new();
        for read in self.reads.iter_mut().filter(|read| read.is_wanted()) {
            rest.push(read.rest());
            read.goes = SendState::Nowhere;
        }
        self.reads
            .retain(|read| read.origin != DataOrigin::Asked(false));
        rest
    }

    /// Starts a request. The local range is valid until it is told of or given back.
    pub(crate) fn read(&mut self, piece: RequestedRange, ask: ReadRequest, local: (Data, u64)) {
        self.reads.push(BulkRead {
            number: self.next_number,
            piece,
            ask,
            goes: SendState::To(local.0, local.1),
            done: 0,
            origin: DataOrigin::Asked(false),
        });
        self.next_number = self.next_number.wrapping_add(1) & !UNASKED;
    }

    /// Serves a request from `data`, of which the range is known to be part.
    pub(crate) fn serve(&mut self, number: u32, ask: &ReadRequest, data: Data) {
        self.serving.push_back(ServedRequest {
            number,
            cookie: ask.cookie,
            data,
            at: ask.offset,
            left: ask.len,
        });
    }

    pub(crate) fn refuse(&mut self, number: u32) {
        stage(&mut self.next, FrameKind::Refused, number, 0);
    }

    /// Memory of this region is not touched any more. `true`: the connection has to end, since the
    /// peer would take what leaves in its place for the last of what it asked for.
    #[must_use]
    pub(crate) fn revoke(&mut self, cookie: u64) -> bool {
        self.revoke_advance(cookie);
        let mut kept = VecDeque::with_capacity(self.serving.len());
        for serve in std::mem::take(&mut self.serving) {
            if serve.cookie != cookie {
                kept.push_back(serve);
            } else {
                self.refuse(serve.number);
            }
        }
        self.serving = kept;
        let Some(leaving) = self
            .leaving
            .as_mut()
            .filter(|now| now.serve.cookie == cookie)
        else {
            return false;
        };
        leaving.void = true;
        leaving.serve.data = Data::empty();
        leaving.serve.left == leaving.left
    }

    /// The socket tells when there is much of the body that is coming, and of no less. `false`: it
    /// tells of whatever there is.
    pub(crate) fn wait_for_much(&mut self) -> bool {
        match (&self.channel, self.coming) {
            (Some(channel), Some(coming)) => self.low_water.raise(channel, coming.left),
            _ => false,
        }
    }

    /// A body is coming.
    pub(crate) fn is_in_body(&self) -> bool {
        self.coming.is_some()
    }

    /// The socket tells of whatever there is.
    pub(crate) fn hurry(&mut self) {
        if let Some(channel) = &self.channel {
            self.low_water.lower(channel);
        }
    }

    /// Notes that the next sender may not come back soon.
    pub(crate) fn nobody_polls(&mut self) {
        self.unsent.nobody_polls();
    }

    /// Notes that the sender is about to poll no more. Returns whether its socket is to be filled,
    /// since it holds little for somebody who polls.
    pub(crate) fn is_left(&mut self) -> bool {
        self.nobody_polls();
        self.holds_little() && self.is_serving()
    }

    /// The socket takes less than it has room for.
    pub(crate) fn holds_little(&self) -> bool {
        self.unsent.is_bounded()
    }

    /// Sends what waits, as far as the socket takes it, and about `most` bytes.
    pub(crate) fn flush(&mut self, most: usize) -> SendResult {
        let Some(channel) = &self.channel else {
            return SendResult::All;
        };
        if !self.is_serving() {
            return self.send(most);
        }
        self.unsent.begin(channel, most, Instant::now());
        let sent = self.send(most);
        self.unsent.end(Instant::now());
        sent
    }

    /// Makes something to leave. `false`: there is nothing.
    fn load(&mut self) -> bool {
        std::mem::swap(&mut self.staged, &mut self.next);
        let fresh = |read: &&mut BulkRead| read.origin == DataOrigin::Asked(false);
        for read in self.reads.iter_mut().filter(fresh) {
            read.origin = DataOrigin::Asked(true);
            stage(&mut self.staged, FrameKind::Ask, read.number, ASK as u32);
            self.staged.extend_from_slice(&read.ask.encode());
        }
        if let Some(serve) = self.serving.pop_front() {
            let left = serve.left.min(TCP_BULK_FRAME);
            stage(&mut self.staged, FrameKind::Bulk, serve.number, left as u32);
            self.leaving = Some(OutgoingData {
                serve,
                left,
                void: false,
            });
        }
        !self.staged.is_empty()
    }

    /// Sends what waits, as far as the socket takes it, and about `most` bytes.
    fn send(&mut self, most: usize) -> SendResult {
        let mut left = most;
        loop {
            if left == 0 && self.has_to_send() {
                return SendResult::Enough;
            }
            let step = if !self.staged.is_empty() {
                // Heads are next to nothing; counted, they would leave as many bytes of a body
                // behind, which then leave alone.
                self.flush_staged()
            } else if self.leaving.is_some() {
                let body = self.flush_body(left);
                if let IoResult::Moved(moved) = body {
                    left = left.saturating_sub(moved);
                }
                body
            } else if self.load() {
                continue;
            } else {
                return match self.channel.as_mut().map(Connection::push) {
                    Some(IoResult::Over) => SendResult::Over,
                    Some(IoResult::Later) => SendResult::Some,
                    _ => SendResult::All,
                };
            };
            match step {
                IoResult::Moved(_) => {}
                IoResult::Later => return SendResult::Some,
                IoResult::Over => return SendResult::Over,
            }
        }
    }

    fn flush_staged(&mut self) -> IoResult {
        let Some(channel) = &mut self.channel else {
            return IoResult::Over;
        };
        let then = if self.leaving.is_some() {
            AfterRead::More
        } else {
            AfterRead::Nothing
        };
        let sent = channel.send(&self.staged[self.staged_at..], then);
        if let IoResult::Moved(moved) = sent {
            self.staged_at += moved;
            if self.staged_at == self.staged.len() {
                self.staged.clear();
                self.staged_at = 0;
            }
        }
        sent
    }

    fn flush_body(&mut self, most: usize) -> IoResult {
        let (Some(channel), Some(leaving)) = (&mut self.channel, &mut self.leaving) else {
            return IoResult::Over;
        };
        let serve = &mut leaving.serve;
        let most = leaving.left.min(most as u64);
        let bounced = most.min(TCP_BOUNCE as u64) as usize;
        let sent = if leaving.void {
            self.bounce.clear();
            self.bounce.resize(bounced, 0);
            channel.send(&self.bounce, AfterRead::Nothing)
        } else if serve.data.layout.is_none() {
            channel.send_from(serve.data.mem, serve.at as isize, most as usize)
        } else {
            let blocks = self.blocks.of(&serve.data, serve.at, most);
            let direct =
                blocks.and_then(|blocks| channel.move_blocks(CopyDirection::Write, blocks));
            direct.unwrap_or_else(|| {
                self.bounce.resize(bounced, 0);
                serve.data.pack(serve.at, &mut self.bounce);
                channel.send(&self.bounce, AfterRead::Nothing)
            })
        };
        let IoResult::Moved(moved) = sent else {
            return sent;
        };
        serve.at += moved as u64;
        serve.left -= moved as u64;
        leaving.left -= moved as u64;
        if leaving.left == 0
            && let Some(done) = self.leaving.take()
        {
            if done.void {
                self.refuse(done.serve.number);
            } else if done.serve.left > 0 {
                self.serving.push_back(done.serve);
            }
        }
        sent
    }

    /// Receives what lies ready, up to one thing to tell and `most` bytes.
    ///
    /// # Errors
    /// The peer broke the format.
    pub(crate) fn fill(
        &mut self,
        most: usize,
    ) -> Result<(IoResult, Option<BulkEvent>), AckViolation> {
        if self.channel.is_none() {
            return Ok((IoResult::Later, None));
        }
        if let Some(coming) = self.coming {
            return self.fill_body(coming, most);
        }
        let need = match self.head()? {
            Some(head) if matches!(head.kind, FrameKind::Ask | FrameKind::Advance) => HEAD + ASK,
            _ => HEAD,
        };
        let Some(channel) = &mut self.channel else {
            return Ok((IoResult::Later, None));
        };
        let got = channel.recv(&mut self.came.0[self.came_len..need]);
        let IoResult::Moved(moved) = got else {
            return Ok((got, None));
        };
        self.came_len += moved;
        let Some(head) = self.head()? else {
            return Ok((got, None));
        };
        match head.kind {
            FrameKind::Ask | FrameKind::Advance => {
                let Some(body) = self.came.0[..self.came_len]
                    .get(HEAD..)
                    .and_then(|body| body.first_chunk::<ASK>())
                else {
                    return Ok((got, None));
                };
                let ask = ReadRequest::decode(body);
                self.came_len = 0;
                if head.kind == FrameKind::Advance {
                    return Ok((got, self.advanced(head.number, ask)?));
                }
                // Of what waits here a refusal is next to nothing else.
                if self.asks_waiting() + self.next.len() / HEAD >= TCP_BULK_REQUESTS_MAX {
                    return Err(AckViolation);
                }
                Ok((got, Some(BulkEvent::Asks(head.number, ask))))
            }
            FrameKind::Bulk => {
                self.came_len = 0;
                let read = self.reads.iter().find(|read| read.number == head.number);
                let read = read.filter(|read| read.may_come()).ok_or(AckViolation)?;
                if u64::from(head.len) > read.ask.len - read.done {
                    return Err(AckViolation);
                }
                self.coming = Some(IncomingData {
                    number: head.number,
                    left: head.len.into(),
                });
                Ok((got, None))
            }
            FrameKind::Unkept => {
                self.came_len = 0;
                self.was_unkept();
                Ok((got, None))
            }
            _ => {
                self.came_len = 0;
                let is_it = |read: &BulkRead| read.number == head.number && read.may_come();
                let at = self.reads.iter().position(is_it);
                let read = self.reads.remove(at.ok_or(AckViolation)?);
                self.refused += 1;
                let told = read.is_wanted().then_some(BulkEvent::Refused(read.rest()));
                Ok((got, told))
            }
        }
    }

    fn head(&self) -> Result<Option<FrameHeader>, AckViolation> {
        match self.came.0[..self.came_len].first_chunk::<HEAD>() {
            None => Ok(None),
            Some(bytes) => FrameHeader::decode(bytes, StreamNumber::Bulk(0))
                .map(Some)
                .ok_or(AckViolation),
        }
    }

    fn fill_body(
        &mut self,
        coming: IncomingData,
        most: usize,
    ) -> Result<(IoResult, Option<BulkEvent>), AckViolation> {
        let at = self
            .reads
            .iter()
            .position(|read| read.number == coming.number);
        let (Some(channel), Some(at)) = (&mut self.channel, at) else {
            return Err(AckViolation);
        };
        let read = &mut self.reads[at];
        let most = coming.left.min(most as u64);
        let bounced = most.min(TCP_BOUNCE as u64) as usize;
        let got = match &mut read.goes {
            SendState::Parked(looks) => {
                *looks += 1;
                return Ok(match *looks > EAGER_PREFIX_POLLS {
                    true => (IoResult::Moved(0), Some(BulkEvent::Unread(read.number))),
                    false => (IoResult::Later, None),
                });
            }
            SendState::Nowhere => {
                self.bounce.resize(bounced, 0);
                channel.recv(&mut self.bounce)
            }
            SendState::Kept(kept) => {
                channel.recv_into(kept.mem(), read.done as isize, most as usize)
            }
            SendState::To(local, from) if local.layout.is_none() => {
                channel.recv_into(local.mem, (*from + read.done) as isize, most as usize)
            }
            SendState::To(local, from) => {
                let offset = *from + read.done;
                let blocks = self.blocks.of(local, offset, most);
                let direct =
                    blocks.and_then(|blocks| channel.move_blocks(CopyDirection::Read, blocks));
                direct.unwrap_or_else(|| {
                    self.bounce.resize(bounced, 0);
                    let got = channel.recv(&mut self.bounce);
                    if let IoResult::Moved(moved) = got {
                        local.unpack(offset, &self.bounce[..moved]);
                    }
                    got
                })
            }
        };
        let IoResult::Moved(moved) = got else {
            return Ok((got, None));
        };
        read.done += moved as u64;
        self.moved += moved as u64;
        let left = coming.left - moved as u64;
        if left == 0 {
            self.low_water.lower(channel);
        }
        self.coming = (left > 0).then_some(IncomingData { left, ..coming });
        if read.done < read.ask.len || left > 0 {
            return Ok((got, None));
        }
        if !read.counts() {
            // Its read may still begin.
            return Ok((got, None));
        }
        let read = self.reads.remove(at);
        let told = read.is_wanted().then_some(BulkEvent::Done(read.piece));
        Ok((got, told))
    }
}

/// Puts a head behind what is to leave.
pub(crate) fn stage(out: &mut Vec<u8>, kind: FrameKind, number: u32, len: u32) {
    let head = FrameHeader {
        len,
        kind,
        number,
        expected: 0,
    };
    out.extend_from_slice(&head.encode());
}
