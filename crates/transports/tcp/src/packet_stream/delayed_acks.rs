//! Acknowledgements that are owed, and when they are due by themselves: a sender whose log is full
//! waits for them, whatever else it has to send.

use super::tests::brings;
use super::*;
use crate::frame::HEADER;
use garonne_transport::limits::{TCP_ACK_BYTES, TCP_PACKET_MAX};

/// Number of the longest packets that are acknowledged by themselves.
const DUE: u32 = TCP_ACK_BYTES.div_ceil(TCP_PACKET_MAX) as u32;

/// The frames of so many of the longest packets.
fn frames(count: u32) -> Vec<u8> {
    let frame = |number| {
        let head = FrameHeader {
            len: (HEADER + TCP_PACKET_MAX) as u32,
            kind: FrameKind::Packet,
            number,
            expected: 0,
        };
        let header = PacketHeader {
            kind: Packet::Eager as u8,
            len: TCP_PACKET_MAX as u32,
            ..PacketHeader::default()
        };
        let payload = vec![number as u8; TCP_PACKET_MAX];
        [&head.encode()[..], &header_bytes(&header), &payload].concat()
    };
    (0..count).flat_map(frame).collect()
}

/// Takes in what has come; how many packets of it are new.
fn take(link: &mut PacketStream, blocks: &mut LogBlocks) -> u32 {
    let mut packets = 0;
    loop {
        match link.next(blocks).unwrap() {
            StreamEvent::Packet(..) => packets += 1,
            _ if link.fill().is_ok() => {}
            _ => return packets,
        }
    }
}

#[test]
fn what_comes_again_is_acknowledged_as_soon_as_what_is_new() {
    let (mut link, mut blocks) = (PacketStream::default(), LogBlocks::default());
    let _first = brings(&mut link, &mut blocks, &frames(DUE));
    assert_eq!(take(&mut link, &mut blocks), DUE);
    assert!(link.is_due());
    // The other side was told for this connection what had come before them.
    let _second = brings(&mut link, &mut blocks, &frames(DUE));
    assert!(!link.is_due());
    assert_eq!(take(&mut link, &mut blocks), 0);
    assert!(link.is_due());
}

#[test]
fn what_became_due_behind_bytes_that_found_no_room_is_said_when_they_have_left() {
    let (mut link, mut blocks) = (PacketStream::default(), LogBlocks::default());
    let other = brings(&mut link, &mut blocks, &frames(DUE));
    let payload = Scratch::new(TCP_PACKET_MAX).unwrap();
    let header = PacketHeader {
        len: TCP_PACKET_MAX as u32,
        ..PacketHeader::default()
    };
    while link.flush() == SendResult::All {
        assert!(link.send_copy(&mut blocks, &header, (payload.mem(), TCP_PACKET_MAX)));
    }
    assert_eq!(take(&mut link, &mut blocks), DUE);
    // Nothing may stand before it.
    assert!(link.is_due() && link.acknowledge() == SendResult::All && link.is_due());
    let mut came = Vec::new();
    let mut drain = || {
        let mut bytes = vec![0; 2 * TCP_PACKET_MAX];
        while let IoResult::Moved(moved) = crate::connection::recv(&other, &mut bytes) {
            came.extend_from_slice(&bytes[..moved]);
        }
    };
    while link.log.has_unsent() {
        drain();
        assert_ne!(link.flush(), SendResult::Over);
    }
    drain();
    let head = came
        .last_chunk()
        .and_then(|head| FrameHeader::decode(head, StreamNumber::Small));
    assert_eq!(
        head.map(|head| (head.kind, head.expected)),
        Some((FrameKind::Acknowledge, DUE))
    );
    assert!(!link.owes());
}
