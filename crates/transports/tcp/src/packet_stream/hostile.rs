//! Anything that a peer may send to a [`PacketStream`], in any parts and over one connection after
//! another, while this side sends, too.

use super::*;
use crate::frame::HEADER;
use crate::hostile::{FuzzScript, HostilePeer};
use garonne_transport::limits::{TCP_LOG_MAX, TCP_LOG_RESERVE, TCP_PACKET_MAX};

/// Kinds of packets; two are of messages in pieces.
const PACKETS: [u8; 4] = [1, Packet::FragFirst as u8, Packet::FragNext as u8, 200];

struct StreamFuzz {
    link: PacketStream,
    blocks: LogBlocks,
    other: HostilePeer,
    place: Scratch,
    /// Bytes of packets that were taken.
    taken: u64,
}

impl StreamFuzz {
    fn adopt(&mut self, theirs: u32) -> Result<(), AckViolation> {
        let (channel, other) = HostilePeer::new();
        self.other = other;
        self.link.adopt(channel, theirs, &mut self.blocks)
    }

    /// The peer sends a frame that is nearly right.
    fn frame(&mut self, story: &mut FuzzScript) -> Option<()> {
        let [kind, number, expected] = *story.bytes(3).first_chunk()?;
        let kind = [
            FrameKind::Packet,
            FrameKind::Packet,
            FrameKind::Packet,
            FrameKind::Ring,
            FrameKind::Acknowledge,
            FrameKind::Bye,
        ][usize::from(kind % 6)];
        // Most are the next one.
        let off = if number < 0xc0 {
            0
        } else {
            i32::from(number as i8)
        };
        let mut head = FrameHeader {
            len: 0,
            kind,
            number: self.link.expected.wrapping_add_signed(off),
            expected: u32::from(expected),
        };
        let mut body = Vec::new();
        if kind == FrameKind::Packet {
            let [packet, high, low, cut] = *story.bytes(4).first_chunk()?;
            let payload = usize::from(u16::from_le_bytes([low, high]));
            let header = PacketHeader {
                kind: PACKETS[usize::from(packet) % PACKETS.len()],
                len: payload as u32 - u32::from(cut == 7 && payload > 0),
                sequence: u32::from(packet),
                ..PacketHeader::default()
            };
            head.len = (HEADER + payload) as u32;
            body.extend_from_slice(&header_bytes(&header));
            body.resize(HEADER + payload, packet);
            if cut > 0x80 {
                body.truncate(body.len() / usize::from(cut - 0x7f));
            }
        }
        self.other.says(&[&head.encode()[..], &body].concat());
        Some(())
    }

    fn send(&mut self, len: usize) {
        if self.link.log.has_room(HEADER + len, PacketClass::Data) {
            let payload = (self.place.mem(), len);
            let header = PacketHeader {
                len: len as u32,
                ..PacketHeader::default()
            };
            self.link.send_copy(&mut self.blocks, &header, payload);
        } else {
            self.link.send_word(&mut self.blocks, FrameKind::Ring);
        }
    }

    /// Takes what has come, as a transport does that has a place for messages in pieces, or has
    /// none.
    fn take(&mut self, has_place: bool) -> Result<(), AckViolation> {
        for _ in 0..1 << 16 {
            match self.link.next(&mut self.blocks)? {
                StreamEvent::Packet(header, mem, len) => {
                    assert!(header.len as usize == len && len <= TCP_PACKET_MAX);
                    mem.with(0, len, |bytes| self.taken += bytes.len() as u64);
                }
                StreamEvent::Ring => {}
                StreamEvent::Rest(_, left) if has_place => {
                    assert!(left > 0 && left <= TCP_PACKET_MAX);
                    if self.link.fill_into(self.place.mem(), left).is_err() {
                        return Ok(());
                    }
                }
                StreamEvent::Nothing | StreamEvent::Rest(..) => {
                    if self.link.fill().is_err() {
                        return Ok(());
                    }
                }
            }
        }
        panic!("a look that does not end");
    }

    fn check(&self) {
        assert!(self.link.log.held() <= TCP_LOG_MAX + TCP_LOG_RESERVE);
        assert!(self.link.start <= self.link.end && self.link.end <= TCP_RECEIVE);
    }
}

/// Has a peer do what these bytes say, and this side, too.
pub fn receive_anything(bytes: &[u8]) {
    let (channel, other) = HostilePeer::new();
    let mut stage = StreamFuzz {
        link: PacketStream::default(),
        blocks: LogBlocks::default(),
        other,
        place: Scratch::new(TCP_PACKET_MAX).expect("memory"),
        taken: 0,
    };
    stage
        .link
        .adopt(channel, 0, &mut stage.blocks)
        .expect("nothing was sent");
    let mut story = FuzzScript(bytes);
    while let Some(what) = story.byte() {
        let more = match what % 8 {
            0 => {
                let len = usize::from(what / 8) + 1;
                stage.other.says(story.bytes(len));
                Some(())
            }
            1..=3 => stage.frame(&mut story),
            4 => story.byte().map(|len| stage.send(usize::from(len) * 16)),
            5 => {
                stage.link.flush();
                let _ = stage.other.hears();
                Some(())
            }
            6 => {
                stage.link.flush();
                stage.link.acknowledge();
                Some(())
            }
            _ => {
                let Some(theirs) = story.byte() else { break };
                if stage.adopt(u32::from(theirs)).is_err() {
                    return;
                }
                Some(())
            }
        };
        stage.check();
        if what & 0x40 == 0 && stage.take(what & 0x80 > 0).is_err() {
            return;
        }
        stage.check();
        if more.is_none() {
            return;
        }
    }
}
