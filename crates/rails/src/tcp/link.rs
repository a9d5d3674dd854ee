//! Stream 0 of a pair: packets in order, each once, over one connection after another.
//!
//! Owned by the rail, one per peer that was ever spoken to. Numbers live here, above the sockets: what was not acknowledged is kept in the
//! [`Log`] and sent again on the next connection, what comes twice is passed over. Bounded by the log and the receive buffer; a peer that does not
//! read makes the log full, which is the sender's back-pressure.

use crate::limits::{TCP_ACK_BYTES, TCP_ACK_FRAMES, TCP_RECEIVE, TCP_UNSENT_MAX};
use crate::sys;
use crate::tcp::channel::{Channel, Io, Then};
use crate::tcp::frame::{HEAD, HEADER, Head, Kind, Stream, header_bytes, header_from};
use crate::tcp::log::{BEFORE, Blocks, Log, Violation};
use garonne_engine::rail::{Class, Header};
use garonne_sync::user::{Scratch, UserMem};

/// What came from the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Came {
    /// A packet; its payload is valid until the next call.
    Packet(Header, UserMem, usize),
    /// A ring, for whoever sleeps; it has done its work by arriving.
    Ring,
    /// Nothing whole.
    Nothing,
}

/// How far sending got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing waits.
    All,
    /// The socket is full.
    Some,
    /// As much has left as may at a time.
    Enough,
    /// The connection has ended.
    Over,
}

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) log: Log,
    /// Next number to take.
    expected: u32,
    owed_bytes: usize,
    owed_frames: u32,
    /// Received bytes lie at `start..end`. Made with the first connection.
    buffer: Option<Scratch>,
    start: usize,
    end: usize,
    channel: Option<Channel>,
    /// The peer will send nothing more.
    pub(crate) heard_bye: bool,
}

impl Link {
    pub(crate) fn is_up(&self) -> bool {
        self.channel.is_some()
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.channel.as_ref()
    }

    /// Next number expected from the peer.
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Goes on over a new connection, whose other side expects number `theirs` next.
    pub(crate) fn adopt(
        &mut self,
        channel: Channel,
        theirs: u32,
        blocks: &mut Blocks,
    ) -> Result<(), Violation> {
        self.cut();
        self.log.resume(blocks, theirs)?;
        sys::bound_unsent(channel.fd(), TCP_UNSENT_MAX);
        self.channel = Some(channel);
        Ok(())
    }

    /// The connection has ended; what was received in part will come again.
    pub(crate) fn cut(&mut self) {
        self.channel = None;
        (self.start, self.end) = (0, 0);
        // Told with the next handshake.
        (self.owed_bytes, self.owed_frames) = (0, 0);
    }

    /// Adds a packet, copying its payload.
    pub(crate) fn send_copy(
        &mut self,
        blocks: &mut Blocks,
        header: &Header,
        payload: (UserMem, usize),
    ) -> bool {
        let words = header_bytes(header);
        let added = self
            .log
            .append(blocks, (Kind::Packet, self.expected), Some(&words), payload);
        self.owes_nothing_more(added);
        added
    }

    /// Adds a packet whose payload lies in a block of its own.
    pub(crate) fn send_block(&mut self, blocks: &mut Blocks, room: (Scratch, usize), header: &Header) {
        self.log.add(blocks, room, self.expected, &header_bytes(header));
        self.owes_nothing_more(true);
    }

    /// Adds a frame without body.
    pub(crate) fn send_word(&mut self, blocks: &mut Blocks, kind: Kind) {
        if self.log.has_room(0, Class::Control) {
            let added = self
                .log
                .append(blocks, (kind, self.expected), None, (UserMem::null(), 0));
            self.owes_nothing_more(added);
        }
    }

    fn owes_nothing_more(&mut self, said: bool) {
        if said {
            (self.owed_bytes, self.owed_frames) = (0, 0);
        }
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> Sent {
        let Some(channel) = &mut self.channel else {
            return Sent::All;
        };
        while let Some((mem, len)) = self.log.unsent() {
            match channel.send_from(mem, 0, len) {
                Io::Moved(moved) => self.log.left(moved),
                Io::Later => return Sent::Some,
                Io::Over => return Sent::Over,
            }
        }
        match channel.push() {
            Io::Over => Sent::Over,
            Io::Later => Sent::Some,
            Io::Moved(_) => Sent::All,
        }
    }

    /// Something was taken in and not yet acknowledged by a word.
    pub(crate) fn owes(&self) -> bool {
        self.owed_frames > 0
    }

    /// Acknowledges by a frame of its own, if nothing waits to leave that would do it or stand before it.
    pub(crate) fn acknowledge(&mut self) -> Sent {
        let Some(channel) = &mut self.channel else {
            return Sent::All;
        };
        if self.log.has_unsent() || channel.holds_back() {
            return Sent::All;
        }
        let head = Head {
            len: 0,
            kind: Kind::Acknowledge,
            number: 0,
            expected: self.expected,
        };
        match channel.send(&head.encode(), Then::Nothing) {
            Io::Moved(HEAD) => {
                self.owes_nothing_more(true);
                Sent::All
            }
            Io::Later => Sent::All,
            // A part of a frame cannot be taken back; sixteen bytes that do not fit say that the socket is stuffed, which is rare enough for this.
            Io::Moved(_) | Io::Over => Sent::Over,
        }
    }

    /// Whether an acknowledgement is due by itself.
    pub(crate) fn is_due(&self) -> bool {
        self.owed_bytes >= TCP_ACK_BYTES || self.owed_frames >= TCP_ACK_FRAMES
    }

    /// Receives what lies ready. `Moved(true)`: there may be more.
    pub(crate) fn fill(&mut self) -> Result<bool, Io> {
        let Some(channel) = &mut self.channel else {
            return Err(Io::Later);
        };
        if self.buffer.is_none() {
            self.buffer = Scratch::new(TCP_RECEIVE);
        }
        let Some(buffer) = &self.buffer else {
            // No memory: the peer waits until there is some.
            return Err(Io::Later);
        };
        let mem = buffer.mem();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if TCP_RECEIVE - self.end < TCP_RECEIVE / 2 && self.start > 0 {
            mem.copy_from(0, mem, self.start as isize, self.end - self.start);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = TCP_RECEIVE - self.end;
        match channel.recv_into(mem, self.end as isize, room) {
            Io::Moved(moved) => {
                self.end += moved;
                Ok(moved == room || channel.has_come())
            }
            other => Err(other),
        }
    }

    /// The next frame that is whole.
    pub(crate) fn next(&mut self, blocks: &mut Blocks) -> Result<Came, Violation> {
        loop {
            let Some(buffer) = &self.buffer else {
                return Ok(Came::Nothing);
            };
            let have = self.end - self.start;
            if have < HEAD {
                return Ok(Came::Nothing);
            }
            let mem = buffer.mem().offset(self.start as isize);
            let mut head = [0; HEAD];
            mem.read(0, &mut head);
            let head = Head::decode(&head, Stream::Small).ok_or(Violation)?;
            let whole = HEAD + head.len as usize;
            if have < whole {
                return Ok(Came::Nothing);
            }
            self.log.acknowledge(blocks, head.expected)?;
            self.start += whole;
            if head.kind == Kind::Acknowledge {
                continue;
            }
            let ahead = head.number.wrapping_sub(self.expected) as i32;
            if ahead > 0 {
                return Err(Violation);
            }
            if ahead < 0 {
                // A replay of what had arrived; its sender did not know.
                self.owed_frames += 1;
                continue;
            }
            self.expected = self.expected.wrapping_add(1);
            self.owed_bytes += whole;
            self.owed_frames += 1;
            match head.kind {
                Kind::Packet => {
                    let mut header = [0; HEADER];
                    mem.read(HEAD as isize, &mut header);
                    let (header, len) = (header_from(&header), whole - BEFORE);
                    if header.len as usize != len {
                        return Err(Violation);
                    }
                    return Ok(Came::Packet(header, mem.offset(BEFORE as isize), len));
                }
                Kind::Ring => return Ok(Came::Ring),
                _ => self.heard_bye = true,
            }
        }
    }
}
