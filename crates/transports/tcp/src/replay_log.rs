//! What was sent to a peer and is not acknowledged: frames in the order of their numbers, kept for
//! replay. Sans-IO.
//!
//! Owned by a link. Frames lie back to back in blocks, ready to leave; a cursor says what the
//! present connection has taken. A large packet has a block of its own, in which its payload was
//! written by whoever sends it. Bounded by [`TCP_LOG_MAX`] and [`TCP_LOG_RESERVE`].

use crate::frame::{FrameHeader, FrameKind, HEAD, HEADER};
use garonne_engine::limits::COALESCE_BYTES;
use garonne_engine::transport::PacketClass;
use garonne_sync::user::{Scratch, UserMem};
use garonne_transport::limits::{
    TCP_BLOCK, TCP_LOG_MAX, TCP_LOG_RESERVE, TCP_PACKED_MAX, TCP_PACKET_MAX, TCP_SPARE_BLOCKS,
    TCP_UNSENT_MAX,
};
use std::collections::VecDeque;

/// Bytes before a packet's payload in its frame.
pub(crate) const BEFORE: usize = HEAD + HEADER;
/// Bytes of a block.
pub(crate) const BLOCK: usize = TCP_BLOCK + TCP_BLOCK / TCP_PACKED_MAX * BEFORE;

/// Blocks that nobody uses, for all peers of a transport.
#[derive(Debug, Default)]
pub(crate) struct LogBlocks(Vec<Scratch>);

impl LogBlocks {
    pub(crate) fn take(&mut self) -> Option<Scratch> {
        self.0.pop().or_else(|| Scratch::new(BLOCK))
    }

    /// Makes sure that so many are there to be taken.
    pub(crate) fn keep(&mut self, count: usize) -> bool {
        while self.0.len() < count {
            let Some(block) = Scratch::new(BLOCK) else {
                return false;
            };
            self.0.push(block);
        }
        true
    }

    pub(crate) fn give(&mut self, block: Scratch) {
        if self.0.len() < TCP_SPARE_BLOCKS {
            self.0.push(block);
        }
    }
}

#[derive(Debug)]
struct LogBlock {
    room: Scratch,
    /// First byte that is not acknowledged.
    start: usize,
    end: usize,
    /// More frames may be appended.
    open: bool,
}

/// Fault of an acknowledgement of what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckViolation;

/// Frames sent to a peer and not acknowledged, for replay over another connection. Owned by the
/// packet stream.
#[derive(Debug, Default)]
pub(crate) struct ReplayLog {
    blocks: VecDeque<LogBlock>,
    /// Number of the first frame kept.
    first: u32,
    /// Number of the next frame.
    next: u32,
    /// Bytes that count against the bounds.
    held: usize,
    /// Block and byte that leave next.
    cursor: (usize, usize),
    /// Bytes from there on.
    unsent: usize,
    /// Number of the first frame that has not left whole on an earlier connection.
    left_before: u32,
    /// Packets for which there is room, whatever waits, if they are the next to be added.
    promised: usize,
}

impl ReplayLog {
    /// Returns whether a frame with so many bytes behind its head may be added now.
    pub(crate) fn has_room(&self, len: usize, class: PacketClass) -> bool {
        let most = match class {
            PacketClass::Data => TCP_LOG_MAX,
            PacketClass::Control => TCP_LOG_MAX + TCP_LOG_RESERVE,
        };
        if class == PacketClass::Data && self.promised > 0 {
            return true;
        }
        // What waits here cannot be overtaken any more; in the engine's window it can.
        let backlog = class == PacketClass::Data && self.unsent_len() >= TCP_UNSENT_MAX;
        !backlog && self.held + HEAD + len <= most
    }

    /// Makes sure of room for a packet that is kept with others and for so many bytes more in long
    /// ones, if what waits to leave is as little as what messages leave to be sent together.
    pub(crate) fn promise(&mut self, first: usize, more: usize) -> bool {
        let long = more.div_ceil(TCP_PACKET_MAX);
        let free = self.unsent_len() <= COALESCE_BYTES
            && self.held + BEFORE + first + long * BLOCK <= TCP_LOG_MAX;
        self.promised = if free { 1 + long } else { 0 };
        free
    }

    /// Bytes that count against the bounds.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Number of the first frame that is not acknowledged.
    pub(crate) fn acknowledged(&self) -> u32 {
        self.first
    }

    /// Everything sent was acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        self.first == self.next
    }

    /// Something waits to leave.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Bytes that wait to leave.
    #[inline]
    pub(crate) fn unsent_len(&self) -> usize {
        self.unsent
    }

    fn head(&mut self, kind: FrameKind, len: usize, expected: u32) -> [u8; HEAD] {
        let head = FrameHeader {
            len: len as u32,
            kind,
            number: self.next,
            expected,
        };
        self.next = self.next.wrapping_add(1);
        head.encode()
    }

    /// Adds a frame, copying its payload; its whole must fit into a block. `false`: no memory, and
    /// nothing was added.
    pub(crate) fn append(
        &mut self,
        blocks: &mut LogBlocks,
        frame: (FrameKind, u32),
        header: Option<&[u8; HEADER]>,
        (payload, len): (UserMem, usize),
    ) -> bool {
        let Some(frame) = self.append_room(blocks, frame, header, len) else {
            return false;
        };
        let before = HEAD + header.map_or(0, |_| HEADER);
        frame.copy_from(before as isize, payload, 0, len);
        true
    }

    /// Adds a frame whose payload will be written before anything leaves from there: where the
    /// frame begins. `None`: no memory, and nothing was added.
    pub(crate) fn append_room(
        &mut self,
        blocks: &mut LogBlocks,
        (kind, expected): (FrameKind, u32),
        header: Option<&[u8; HEADER]>,
        len: usize,
    ) -> Option<UserMem> {
        let before = header.map_or(0, |_| HEADER);
        let whole = HEAD + before + len;
        let fits = |block: &LogBlock| block.open && block.end + whole <= BLOCK;
        if !self.blocks.back().is_some_and(fits) {
            let room = blocks.take()?;
            self.blocks.push_back(LogBlock {
                room,
                start: 0,
                end: 0,
                open: true,
            });
        }
        let head = self.head(kind, before + len, expected);
        let block = self.blocks.back_mut()?;
        let frame = block.room.mem().offset(block.end as isize);
        frame.write_array(0, head);
        if let Some(header) = header {
            frame.write_array(HEAD as isize, *header);
        }
        block.end += whole;
        self.held += whole;
        self.unsent += whole;
        self.promised = self.promised.saturating_sub(1);
        Some(frame)
    }

    /// Adds a packet whose payload lies in `room` behind [`BEFORE`] bytes, or will before anything
    /// leaves from there: where its frame begins.
    pub(crate) fn add(
        &mut self,
        blocks: &mut LogBlocks,
        (room, len): (Scratch, usize),
        expected: u32,
        header: &[u8; HEADER],
    ) -> UserMem {
        let head = self.head(FrameKind::Packet, HEADER + len, expected);
        let mem = room.mem();
        mem.write_array(0, head);
        mem.write_array(HEAD as isize, *header);
        // An empty block must not stand before it; the cursor, if it was there, is where the new
        // one begins.
        if self
            .blocks
            .back()
            .is_some_and(|block| block.start == block.end)
            && let Some(empty) = self.blocks.pop_back()
        {
            blocks.give(empty.room);
        }
        self.blocks.push_back(LogBlock {
            room,
            start: 0,
            end: BEFORE + len,
            open: false,
        });
        self.held += BLOCK;
        self.unsent += BEFORE + len;
        self.promised = self.promised.saturating_sub(1);
        mem
    }

    /// Returns what leaves next: memory and length.
    pub(crate) fn unsent(&mut self) -> Option<(UserMem, usize)> {
        loop {
            let (block, at) = self.cursor;
            let found = self.blocks.get(block)?;
            if at < found.end {
                return Some((found.room.mem().offset(at as isize), found.end - at));
            }
            if block + 1 >= self.blocks.len() {
                return None;
            }
            self.cursor = (block + 1, self.blocks[block + 1].start);
        }
    }

    /// Records that `bytes` of the unsent frame have left.
    pub(crate) fn left(&mut self, bytes: usize) {
        self.cursor.1 += bytes;
        self.unsent -= bytes;
    }

    /// Records that `bytes` of the unsent frame and of frames behind it have left.
    pub(crate) fn left_through(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some((_, len)) = self.unsent()
        {
            let here = len.min(bytes);
            self.left(here);
            bytes -= here;
        }
    }

    /// A new connection begins with the first frame that is kept.
    pub(crate) fn rewind(&mut self) {
        self.cursor = (0, self.blocks.front().map_or(0, |block| block.start));
        self.unsent = self
            .blocks
            .iter()
            .map(|block| block.end - block.start)
            .sum();
    }

    /// Every frame before `number` has arrived. What is to leave again and came by an earlier
    /// connection after all, since the other side said what it had, does not leave again.
    ///
    /// # Errors
    /// Some of them never left.
    pub(crate) fn acknowledge(
        &mut self,
        blocks: &mut LogBlocks,
        number: u32,
    ) -> Result<(), AckViolation> {
        let count = number.wrapping_sub(self.first) as i32;
        if count <= 0 {
            // Said before the last replay, or nothing new.
            return Ok(());
        }
        if count as u32 > self.next.wrapping_sub(self.first) {
            return Err(AckViolation);
        }
        for _ in 0..count {
            if !self.forget_first(blocks)? {
                break;
            }
        }
        Ok(())
    }

    /// The other side had everything before `number` when this connection was made, whatever has
    /// left on it.
    pub(crate) fn resume(
        &mut self,
        blocks: &mut LogBlocks,
        number: u32,
    ) -> Result<(), AckViolation> {
        let left = self.first.wrapping_add(self.left_whole());
        if left.wrapping_sub(self.left_before) as i32 > 0 {
            self.left_before = left;
        }
        (self.cursor, self.unsent) = ((self.blocks.len(), 0), 0);
        self.acknowledge(blocks, number)?;
        self.rewind();
        Ok(())
    }

    /// Frames that have left whole on this connection and are kept.
    fn left_whole(&self) -> u32 {
        let mut frames = 0;
        for (number, block) in self.blocks.iter().enumerate().take(self.cursor.0 + 1) {
            let left = if number < self.cursor.0 {
                block.end
            } else {
                self.cursor.1
            };
            let mut at = block.start;
            while at < block.end {
                at += whole(block, at);
                frames += u32::from(at <= left);
            }
        }
        frames
    }

    /// `false`: it has left in part on this connection, and has to leave whole first.
    fn forget_first(&mut self, blocks: &mut LogBlocks) -> Result<bool, AckViolation> {
        let only = self.blocks.len() == 1;
        let block = self.blocks.front_mut().ok_or(AckViolation)?;
        let whole = whole(block, block.start);
        if self.cursor.0 == 0 && block.start + whole > self.cursor.1 {
            if self.left_before.wrapping_sub(self.first) as i32 <= 0 {
                return Err(AckViolation);
            }
            if self.cursor.1 > block.start {
                return Ok(false);
            }
            self.cursor.1 = block.start + whole;
            self.unsent -= whole;
        }
        block.start += whole;
        self.held -= if block.open { whole } else { BLOCK };
        self.first = self.first.wrapping_add(1);
        if block.start < block.end {
            return Ok(true);
        }
        if block.open && only {
            (block.start, block.end) = (0, 0);
            if self.cursor.0 == 0 {
                self.cursor.1 = 0;
            }
        } else if let Some(block) = self.blocks.pop_front() {
            blocks.give(block.room);
            match self.cursor.0.checked_sub(1) {
                Some(at) => self.cursor.0 = at,
                None => self.rewind(),
            }
        }
        Ok(true)
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self, blocks: &mut LogBlocks) {
        for block in self.blocks.drain(..) {
            blocks.give(block.room);
        }
        self.first = self.next;
        (self.held, self.cursor, self.unsent, self.promised) = (0, (0, 0), 0, 0);
    }
}

/// Returns what a frame of so many bytes takes of the bound on its sender's side: a long packet has
/// a block of its own.
pub(crate) fn held_for(whole: usize) -> usize {
    if whole > BEFORE + TCP_PACKED_MAX {
        BLOCK
    } else {
        whole
    }
}

/// Bytes of the frame that begins there.
fn whole(block: &LogBlock, at: usize) -> usize {
    HEAD + u32::from_le_bytes(block.room.mem().read_array(at as isize)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::StreamNumber;
    use proptest::prelude::*;

    fn append(log: &mut ReplayLog, blocks: &mut LogBlocks, bytes: &[u8]) {
        let memory = Scratch::new(bytes.len().max(1)).unwrap();
        memory.mem().write(0, bytes);
        assert!(log.append(
            blocks,
            (FrameKind::Packet, 0),
            Some(&[0; HEADER]),
            (memory.mem(), bytes.len())
        ));
    }

    /// Takes up to `most` bytes out.
    fn leave(log: &mut ReplayLog, most: usize, wire: &mut Vec<u8>) {
        let Some((mem, len)) = log.unsent() else {
            return;
        };
        let take = len.min(most);
        mem.with(0, take, |bytes| wire.extend_from_slice(bytes));
        log.left(take);
    }

    /// Bytes from the cursor on.
    fn counted(log: &ReplayLog) -> usize {
        let (block, at) = log.cursor;
        let here = log.blocks.get(block).map_or(0, |block| block.end - at);
        let later = log.blocks.iter().skip(block + 1);
        here + later.map(|block| block.end - block.start).sum::<usize>()
    }

    /// Numbers and payloads of the whole frames on the wire.
    fn frames(wire: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let (mut at, mut out) = (0, Vec::new());
        while let Some(head) = wire.get(at..).and_then(|rest| rest.first_chunk::<HEAD>()) {
            let head = FrameHeader::decode(head, StreamNumber::Small).unwrap();
            let end = at + HEAD + head.len as usize;
            let Some(body) = wire.get(at + HEAD + HEADER..end) else {
                break;
            };
            out.push((head.number, body.to_vec()));
            at = end;
        }
        out
    }

    proptest! {
        #[test]
        fn every_frame_arrives_once_whatever_connections_break(
            steps in prop::collection::vec((0u8..8, any::<u16>()), 1..300), near_the_wrap: bool,
        ) {
            let (mut log, mut blocks) = (ReplayLog::default(), LogBlocks::default());
            if near_the_wrap {
                (log.first, log.next, log.left_before) = (u32::MAX - 5, u32::MAX - 5, u32::MAX - 5);
            }
            let begin = log.first;
            let (mut wire, mut sent, mut got) = (Vec::new(), Vec::new(), Vec::new());
            let mut expected = begin;
            let mut take = |wire: &[u8], expected: &mut u32| {
                for (number, body) in frames(wire) {
                    let ahead = number.wrapping_sub(*expected) as i32;
                    assert!(ahead <= 0, "a gap");
                    if ahead == 0 {
                        got.push(body);
                        *expected = expected.wrapping_add(1);
                    }
                }
            };
            for (step, amount) in steps {
                match step {
                    0..3 => {
                        let bytes = vec![sent.len() as u8; usize::from(amount) % 3000];
                        append(&mut log, &mut blocks, &bytes);
                        sent.push(bytes);
                    }
                    3 => {
                        let bytes = vec![sent.len() as u8; 30_000 + usize::from(amount) % 20_000];
                        let room = blocks.take().unwrap();
                        room.mem().write(BEFORE as isize, &bytes);
                        log.add(&mut blocks, (room, bytes.len()), 0, &[0; HEADER]);
                        sent.push(bytes);
                    }
                    4 | 5 => leave(&mut log, usize::from(amount), &mut wire),
                    6 => {
                        take(&wire, &mut expected);
                        prop_assert_eq!(log.acknowledge(&mut blocks, expected), Ok(()));
                    }
                    _ => {
                        // The connection breaks; what was on its way may have arrived or not.
                        if amount % 2 == 0 {
                            take(&wire, &mut expected);
                        }
                        prop_assert_eq!(log.resume(&mut blocks, expected), Ok(()));
                        // Or arrives only after the other side has said for the next connection
                        // what it had.
                        if amount % 3 == 0 {
                            take(&wire, &mut expected);
                        }
                        wire.clear();
                    }
                }
                prop_assert_eq!(log.unsent_len(), counted(&log));
            }
            take(&wire, &mut expected);
            wire.clear();
            prop_assert_eq!(log.resume(&mut blocks, expected), Ok(()));
            while log.unsent().is_some() {
                leave(&mut log, usize::MAX, &mut wire);
            }
            take(&wire, &mut expected);
            prop_assert_eq!(log.acknowledge(&mut blocks, expected), Ok(()));
            prop_assert!(log.is_settled() && !log.has_unsent());
            prop_assert_eq!(log.unsent_len(), 0);
            prop_assert_eq!(log.held, 0);
            prop_assert_eq!(&got, &sent);
        }
    }

    #[test]
    fn what_did_not_leave_cannot_be_acknowledged() {
        let (mut log, mut blocks) = (ReplayLog::default(), LogBlocks::default());
        append(&mut log, &mut blocks, b"one");
        append(&mut log, &mut blocks, b"two");
        assert_eq!(log.acknowledge(&mut blocks, 1), Err(AckViolation));
        leave(&mut log, BEFORE + 3, &mut Vec::new());
        assert_eq!(log.acknowledge(&mut blocks, 1), Ok(()));
        assert_eq!(
            log.acknowledge(&mut blocks, 0),
            Ok(()),
            "an old word changes nothing"
        );
        assert_eq!(log.acknowledge(&mut blocks, 2), Err(AckViolation));
        assert_eq!(log.acknowledge(&mut blocks, 3), Err(AckViolation));
        assert_eq!(log.resume(&mut blocks, 3), Err(AckViolation));
    }

    #[test]
    fn data_leaves_room_for_control() {
        let (mut log, mut blocks) = (ReplayLog::default(), LogBlocks::default());
        while log.has_room(HEADER + 500, PacketClass::Data) {
            append(&mut log, &mut blocks, &[7; 500]);
            leave(&mut log, usize::MAX, &mut Vec::new());
        }
        assert!(log.has_room(HEADER + 88, PacketClass::Control));
    }

    #[test]
    fn data_waits_elsewhere_while_much_is_unsent() {
        let (mut log, mut blocks) = (ReplayLog::default(), LogBlocks::default());
        while log.has_room(HEADER + 500, PacketClass::Data) {
            append(&mut log, &mut blocks, &[7; 500]);
        }
        assert!(
            log.unsent_len() < TCP_UNSENT_MAX + BEFORE + 500,
            "{}",
            log.unsent_len()
        );
        assert!(log.has_room(HEADER + 88, PacketClass::Control));
        while log.has_unsent() {
            leave(&mut log, usize::MAX, &mut Vec::new());
        }
        assert!(log.has_room(HEADER + 500, PacketClass::Data));
    }
}
