//! The packet stream of a pair (stream 0): packets in order, each once, over one connection after
//! another.
//!
//! Owned by the transport, one per peer that was ever spoken to. Numbers live here, above the
//! sockets: what was not acknowledged is kept in the [`ReplayLog`] and sent again on the next
//! connection, what comes twice is passed over. Bounded by the log and the receive buffer; a peer
//! that does not read makes the log full, which is the sender's back-pressure.

mod fragments;

use crate::connection::{AfterRead, Connection, IoResult};
use crate::frame::{FrameHeader, FrameKind, HEAD, StreamNumber, header_bytes, header_from};
use crate::replay_log::{AckViolation, BEFORE, LogBlocks, ReplayLog, held_for};
use crate::sys;
use garonne_engine::transport::{Fragments, PacketClass, PacketHeader, PacketKind as Packet};
use garonne_sync::user::{Scratch, UserMem};
use garonne_transport::iovec::{CopyDirection, IoBlock};
use garonne_transport::limits::{
    TCP_ACK_BYTES, TCP_ACK_FRAMES, TCP_ACK_LATE, TCP_RECEIVE, TCP_SMALL_READ, TCP_UNSENT_MAX,
};

/// Something that came from the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamEvent {
    /// A packet; its payload is valid until the next call.
    Packet(PacketHeader, UserMem, usize),
    /// Offset and number of bytes of a fragmented message that are still in the socket: for
    /// [`PacketStream::fill_into`], or [`PacketStream::fill`].
    Rest(u64, usize),
    /// A ring, for whoever sleeps; it has done its work by arriving.
    Ring,
    /// Nothing whole.
    Nothing,
}

/// Result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// Nothing waits.
    All,
    /// The socket is full.
    Some,
    /// The most that may leave at a time has left.
    Enough,
    /// The connection has ended.
    Over,
}

/// A packet of a message that comes in pieces, which is taken in as it comes.
#[derive(Clone, Copy, Debug)]
struct PartialPacket {
    /// The first byte of the message that was not taken yet.
    offset: usize,
    /// Bytes of the packet that were taken.
    done: usize,
    /// And that were not.
    left: usize,
    /// True if this connection brings the rest of it next; else it comes again from its beginning.
    here: bool,
}

/// Packets of one peer over a connection: numbering, acknowledgement, replay. Owned by the peer's
/// record, and outlives connections.
#[derive(Debug, Default)]
pub(crate) struct PacketStream {
    pub(crate) log: ReplayLog,
    /// Next number to take.
    expected: u32,
    /// Bytes that the other side keeps, and the frames in which they came.
    owed_bytes: usize,
    owed_frames: u32,
    /// Received bytes lie at `start..end`. Made with the first connection.
    buffer: Option<Scratch>,
    start: usize,
    end: usize,
    part: Option<PartialPacket>,
    /// A message came in pieces since little came at once: of the next no more is taken in here
    /// than what tells where it goes.
    lean: bool,
    /// The last message came in pieces.
    long: bool,
    channel: Option<Connection>,
    /// The peer will send nothing more.
    pub(crate) heard_bye: bool,
}

impl PacketStream {
    pub(crate) fn is_up(&self) -> bool {
        self.channel.is_some()
    }

    pub(crate) fn channel(&self) -> Option<&Connection> {
        self.channel.as_ref()
    }

    /// Next number expected from the peer.
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Goes on over a new connection, whose other side expects number `theirs` next.
    pub(crate) fn adopt(
        &mut self,
        channel: Connection,
        theirs: u32,
        blocks: &mut LogBlocks,
    ) -> Result<(), AckViolation> {
        self.cut();
        self.log.resume(blocks, theirs)?;
        sys::bound_unsent(channel.fd(), Some(TCP_UNSENT_MAX));
        self.channel = Some(channel);
        Ok(())
    }

    /// The connection has ended; what was received in part will come again.
    pub(crate) fn cut(&mut self) {
        self.channel = None;
        (self.start, self.end) = (0, 0);
        if let Some(part) = &mut self.part {
            part.here = false;
        }
        // Told with the next handshake.
        (self.owed_bytes, self.owed_frames) = (0, 0);
    }

    /// Adds a packet, copying its payload.
    pub(crate) fn send_copy(
        &mut self,
        blocks: &mut LogBlocks,
        header: &PacketHeader,
        payload: (UserMem, usize),
    ) -> bool {
        let words = header_bytes(header);
        let added = self.log.append(
            blocks,
            (FrameKind::Packet, self.expected),
            Some(&words),
            payload,
        );
        self.owes_nothing_more(added);
        added
    }

    /// Adds a packet whose payload lies in a block of its own.
    pub(crate) fn send_block(
        &mut self,
        blocks: &mut LogBlocks,
        room: (Scratch, usize),
        header: &PacketHeader,
    ) {
        self.log
            .add(blocks, room, self.expected, &header_bytes(header));
        self.owes_nothing_more(true);
    }

    /// Adds a frame without body.
    pub(crate) fn send_word(&mut self, blocks: &mut LogBlocks, kind: FrameKind) {
        if self.log.has_room(0, PacketClass::Control) {
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
    pub(crate) fn flush(&mut self) -> SendResult {
        let Some(channel) = &mut self.channel else {
            return SendResult::All;
        };
        while let Some((mem, len)) = self.log.unsent() {
            match channel.send_from(mem, 0, len) {
                IoResult::Moved(moved) => self.log.left(moved),
                IoResult::Later => return SendResult::Some,
                IoResult::Over => return SendResult::Over,
            }
        }
        match channel.push() {
            IoResult::Over => SendResult::Over,
            IoResult::Later => SendResult::Some,
            // What became due while these bytes stood before it: no other look may come.
            IoResult::Moved(_) if self.is_due() => match self.acknowledge() {
                SendResult::All if self.is_due() => SendResult::Some,
                sent => sent,
            },
            IoResult::Moved(_) => SendResult::All,
        }
    }

    /// Something was taken in and not yet acknowledged by a word.
    pub(crate) fn owes(&self) -> bool {
        self.owed_frames > 0
    }

    /// Acknowledges by a frame of its own, if nothing waits to leave that would do it or stand
    /// before it.
    pub(crate) fn acknowledge(&mut self) -> SendResult {
        let Some(channel) = &mut self.channel else {
            return SendResult::All;
        };
        if self.log.has_unsent() || channel.holds_back() {
            return SendResult::All;
        }
        let head = FrameHeader {
            len: 0,
            kind: FrameKind::Acknowledge,
            number: 0,
            expected: self.expected,
        };
        match channel.send(&head.encode(), AfterRead::Nothing) {
            IoResult::Moved(HEAD) => {
                self.owes_nothing_more(true);
                SendResult::All
            }
            IoResult::Later => SendResult::All,
            // A part of a frame cannot be taken back; sixteen bytes that do not fit say that the
            // socket is stuffed, which is rare enough for this.
            IoResult::Moved(_) | IoResult::Over => SendResult::Over,
        }
    }

    /// The last message came in pieces.
    #[inline]
    pub(crate) fn brings_long(&self) -> bool {
        self.long
    }

    /// Something that was received has not been taken.
    pub(crate) fn has_come(&self) -> bool {
        self.start < self.end || self.channel.as_ref().is_some_and(Connection::has_come)
    }

    /// Returns whether an acknowledgement is due by itself.
    pub(crate) fn is_due(&self) -> bool {
        self.owed_bytes >= TCP_ACK_BYTES || self.owed_frames >= TCP_ACK_FRAMES
    }

    /// Returns whether an acknowledgement that is due cannot wait any more for something that
    /// leaves anyway.
    pub(crate) fn is_late(&self) -> bool {
        self.owed_bytes >= TCP_ACK_LATE || self.owed_frames >= 2 * TCP_ACK_FRAMES
    }

    /// Receives what lies ready. `Moved(true)`: there may be more.
    pub(crate) fn fill(&mut self) -> Result<bool, IoResult> {
        let Some(channel) = &mut self.channel else {
            return Err(IoResult::Later);
        };
        if self.buffer.is_none() {
            self.buffer = Scratch::new(TCP_RECEIVE);
        }
        let Some(buffer) = &self.buffer else {
            // No memory: the peer waits until there is some.
            return Err(IoResult::Later);
        };
        let mem = buffer.mem();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if TCP_RECEIVE - self.end < TCP_RECEIVE / 2 && self.start > 0 {
            mem.copy_from(0, mem, self.start as isize, self.end - self.start);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let mut room = TCP_RECEIVE - self.end;
        if self.lean && self.start == self.end {
            room = room.min(TCP_SMALL_READ);
        }
        match channel.recv_into(mem, self.end as isize, room) {
            IoResult::Moved(moved) => {
                self.end += moved;
                self.lean &= moved < room;
                Ok(moved == room || channel.has_come())
            }
            other => Err(other),
        }
    }

    /// Receives the rest of which [`StreamEvent::Rest`] told to where it goes, and a little of what
    /// is behind it. How many bytes of the rest came, and whether there may be more.
    pub(crate) fn fill_into(&mut self, to: UserMem, len: usize) -> Result<(usize, bool), IoResult> {
        let (Some(channel), Some(buffer)) = (&mut self.channel, &self.buffer) else {
            return Err(IoResult::Later);
        };
        (self.start, self.end) = (0, 0);
        let mut blocks = [
            IoBlock {
                addr: to.addr(0),
                len,
            },
            IoBlock {
                addr: buffer.mem().addr(0),
                len: TCP_SMALL_READ,
            },
        ];
        let (got, room) = match channel.move_blocks(CopyDirection::Read, &mut blocks) {
            Some(got) => (got, len + TCP_SMALL_READ),
            None => (channel.recv_into(to, 0, len), len),
        };
        let IoResult::Moved(moved) = got else {
            return Err(got);
        };
        let more = moved == room || channel.has_come();
        self.end = moved.saturating_sub(len);
        self.took_part(moved.min(len));
        Ok((moved.min(len), more))
    }

    /// Records that `bytes` more of the partial packet were taken.
    fn took_part(&mut self, bytes: usize) {
        let Some(part) = &mut self.part else { return };
        part.offset += bytes;
        part.done += bytes;
        part.left -= bytes;
        if part.left == 0 {
            let whole = BEFORE + part.done;
            self.part = None;
            self.took(whole);
        }
    }

    /// The next frame was taken.
    fn took(&mut self, whole: usize) {
        self.expected = self.expected.wrapping_add(1);
        self.owe(whole);
    }

    /// The other side keeps a frame until it is acknowledged, and may have room for no other.
    fn owe(&mut self, whole: usize) {
        self.owed_bytes += held_for(whole);
        self.owed_frames += 1;
    }

    /// Returns what lies here of the packet that is taken in as it comes, if this connection is in
    /// the midst of it.
    fn next_part(&mut self, mem: UserMem) -> Option<StreamEvent> {
        let part = self.part.filter(|part| part.here)?;
        let len = part.left.min(self.end - self.start);
        if len == 0 {
            return Some(StreamEvent::Rest(part.offset as u64, part.left));
        }
        let payload = mem.offset(self.start as isize);
        self.start += len;
        self.took_part(len);
        Some(StreamEvent::Packet(
            Fragments::tail(part.offset, len),
            payload,
            len,
        ))
    }

    /// Begins to take in a packet of a message in pieces before all of it is here, or goes on with
    /// one that comes again. Of `have` bytes `whole` are the frame's.
    fn begin_part(
        &mut self,
        kind: FrameKind,
        mem: UserMem,
        (have, whole): (usize, usize),
    ) -> Result<Option<StreamEvent>, AckViolation> {
        if let Some(part) = &mut self.part {
            if kind != FrameKind::Packet || BEFORE + part.done + part.left != whole {
                return Err(AckViolation);
            }
            part.here = have >= BEFORE + part.done;
            if part.here {
                self.start += BEFORE + part.done;
            }
            return Ok(None);
        }
        if kind != FrameKind::Packet || have <= BEFORE {
            return Ok(None);
        }
        let (header, here) = (header_from(&mem.read_array(HEAD as isize)), have - BEFORE);
        if header.len as usize != whole - BEFORE {
            return Err(AckViolation);
        }
        let (offset, begun) = match Packet::from_code(header.kind) {
            Some(Packet::FragFirst) => (
                0,
                PacketHeader {
                    len: here as u32,
                    ..header
                },
            ),
            Some(Packet::FragNext) => (
                header.sequence as usize,
                Fragments::tail(header.sequence as usize, here),
            ),
            _ => return Ok(None),
        };
        (self.lean, self.long) = (true, true);
        self.start += have;
        self.part = Some(PartialPacket {
            offset: offset + here,
            done: here,
            left: whole - have,
            here: true,
        });
        Ok(Some(StreamEvent::Packet(
            begun,
            mem.offset(BEFORE as isize),
            here,
        )))
    }

    /// The next frame that is whole, or what there is of one that may be taken in as it comes.
    pub(crate) fn next(&mut self, blocks: &mut LogBlocks) -> Result<StreamEvent, AckViolation> {
        loop {
            let Some(buffer) = &self.buffer else {
                return Ok(StreamEvent::Nothing);
            };
            let mem = buffer.mem();
            if let Some(came) = self.next_part(mem) {
                return Ok(came);
            }
            let have = self.end - self.start;
            if have < HEAD {
                return Ok(StreamEvent::Nothing);
            }
            let mem = mem.offset(self.start as isize);
            let head =
                FrameHeader::decode(&mem.read_array(0), StreamNumber::Small).ok_or(AckViolation)?;
            let whole = HEAD + head.len as usize;
            let is_next = head.number == self.expected && head.kind != FrameKind::Acknowledge;
            if is_next && (have < whole || self.part.is_some()) {
                self.log.acknowledge(blocks, head.expected)?;
                match self.begin_part(head.kind, mem, (have, whole))? {
                    Some(came) => return Ok(came),
                    None if self.part.is_some_and(|part| part.here) => continue,
                    None => {}
                }
            }
            if have < whole {
                return Ok(StreamEvent::Nothing);
            }
            self.log.acknowledge(blocks, head.expected)?;
            self.start += whole;
            if head.kind == FrameKind::Acknowledge {
                continue;
            }
            let ahead = head.number.wrapping_sub(self.expected) as i32;
            if ahead > 0 {
                return Err(AckViolation);
            }
            if ahead < 0 {
                // A replay of what had arrived; its sender did not know, and may have room for
                // nothing else until it does.
                self.owe(whole);
                continue;
            }
            self.took(whole);
            match head.kind {
                FrameKind::Packet => {
                    let (header, len) =
                        (header_from(&mem.read_array(HEAD as isize)), whole - BEFORE);
                    if header.len as usize != len {
                        return Err(AckViolation);
                    }
                    if header.is_envelope() {
                        self.long = header.kind == Packet::FragFirst as u8;
                    }
                    return Ok(StreamEvent::Packet(
                        header,
                        mem.offset(BEFORE as isize),
                        len,
                    ));
                }
                FrameKind::Ring => return Ok(StreamEvent::Ring),
                _ => self.heard_bye = true,
            }
        }
    }
}

#[cfg(test)]
mod delayed_acks;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HEADER;
    use crate::handshake::SessionTerms;
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    /// The frame of a head whose packet has `len` bytes of a message of 60,000.
    fn frame(number: u32, len: usize) -> Vec<u8> {
        let head = FrameHeader {
            len: (HEADER + len) as u32,
            kind: FrameKind::Packet,
            number,
            expected: 0,
        };
        let header = Fragments::head(&PacketHeader::default(), 60_000, len);
        let mut bytes = head.encode().to_vec();
        bytes.extend_from_slice(&header_bytes(&header));
        bytes.extend((0..len).map(|at| at as u8));
        bytes
    }

    /// A link to which a new connection brings these bytes; its other end, which stays open.
    pub(super) fn brings(link: &mut PacketStream, blocks: &mut LogBlocks, bytes: &[u8]) -> OwnedFd {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::NONBLOCK,
            None,
        );
        let (own, other) = pair.unwrap();
        let channel = Connection::new(own, SessionTerms::plain(), bytes.to_vec());
        link.adopt(channel, 0, blocks).unwrap();
        other
    }

    /// Returns what comes of it, as a transport without memory for it takes it in: first bytes and
    /// payloads.
    fn taken(
        link: &mut PacketStream,
        blocks: &mut LogBlocks,
    ) -> Result<Vec<(u32, Vec<u8>)>, AckViolation> {
        let mut packets = Vec::new();
        loop {
            match link.next(blocks)? {
                StreamEvent::Packet(header, mem, len) => {
                    assert_eq!(header.len as usize, len);
                    let mut bytes = vec![0; len];
                    mem.read(0, &mut bytes);
                    let is_tail = Packet::from_code(header.kind) == Some(Packet::FragNext);
                    packets.push((if is_tail { header.sequence } else { 0 }, bytes));
                }
                StreamEvent::Ring => {}
                StreamEvent::Nothing | StreamEvent::Rest(..) => {
                    if link.fill().is_err() {
                        return Ok(packets);
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_taken_of_a_packet_is_passed_over_when_it_comes_again() {
        let whole = frame(0, 9000);
        for first in [BEFORE + 1, BEFORE + 4000, whole.len() - 1] {
            let (mut link, mut blocks) = (PacketStream::default(), LogBlocks::default());
            let _other = brings(&mut link, &mut blocks, &whole[..first]);
            let mut all = taken(&mut link, &mut blocks).unwrap();
            assert!(!all.is_empty() && link.expected() == 0);
            // Nearly as far, and then further than the first time.
            let _other = brings(&mut link, &mut blocks, &whole[..first - 1]);
            assert_eq!(taken(&mut link, &mut blocks), Ok(Vec::new()));
            let _other = brings(&mut link, &mut blocks, &whole);
            all.extend(taken(&mut link, &mut blocks).unwrap());
            let mut got = Vec::new();
            for (at, bytes) in all {
                assert_eq!(at as usize, got.len());
                got.extend(bytes);
            }
            assert_eq!(got, whole[BEFORE..]);
            assert_eq!(link.expected(), 1);
        }
    }

    #[test]
    fn a_packet_that_comes_again_with_another_length_is_a_violation() {
        for other in [frame(0, 8999), frame(0, 9001), {
            let head = FrameHeader {
                len: 0,
                kind: FrameKind::Ring,
                number: 0,
                expected: 0,
            };
            head.encode().to_vec()
        }] {
            let (mut link, mut blocks) = (PacketStream::default(), LogBlocks::default());
            let _first = brings(&mut link, &mut blocks, &frame(0, 9000)[..5000]);
            taken(&mut link, &mut blocks).unwrap();
            let _second = brings(&mut link, &mut blocks, &other);
            assert_eq!(taken(&mut link, &mut blocks), Err(AckViolation));
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_or_refused(
            cut in 0usize..7000, garbage in prop::collection::vec(any::<u8>(), 0..200), again: bool,
        ) {
            let (mut link, mut blocks) = (PacketStream::default(), LogBlocks::default());
            let mut bytes = frame(0, 6000);
            bytes.truncate(cut);
            if !again {
                bytes.extend_from_slice(&garbage);
            }
            let _first = brings(&mut link, &mut blocks, &bytes);
            if taken(&mut link, &mut blocks).is_ok() && again {
                let _second = brings(&mut link, &mut blocks, &garbage);
                let _ = taken(&mut link, &mut blocks);
            }
        }
    }
}
