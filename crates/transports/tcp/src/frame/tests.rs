//! What is read of frames and messages is what was written, and nothing else.

use super::*;
use proptest::prelude::*;

fn call() -> Opening {
    Opening::own(
        VERSIONS,
        MessageBody::Call {
            from: ProcessId {
                job: [7; 16],
                world: 1,
                rank: 2,
                incarnation: 3,
            },
            to: (4, 5),
            stream: StreamNumber::Bulk(3),
            sealed: true,
            first: [9; FIRST],
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_a_frame_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_anything(&bytes);
    }

    #[test]
    fn a_message_with_one_wrong_byte_is_read_without_harm(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = call().encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        read_anything(&bytes);
        read_anything(&bytes[..cut.index(bytes.len())]);
    }
}

#[test]
fn every_message_survives_the_wire_and_waits_for_its_last_byte() {
    let bodies = [
        call().body,
        MessageBody::Answer([1; SECOND]),
        MessageBody::Refusal(RejectReason::Busy),
        MessageBody::Proof([2; THIRD]),
    ];
    for body in bodies {
        let opening = Opening::own(VERSIONS, body);
        let bytes = opening.encode();
        assert!(bytes.len() <= OPENING_MAX);
        for cut in 0..bytes.len() {
            assert_eq!(
                Opening::decode(&bytes[..cut], VERSIONS),
                ParsedMessage::More
            );
        }
        assert_eq!(
            Opening::decode(&bytes, VERSIONS),
            ParsedMessage::Message(opening, bytes.len())
        );
    }
}

#[test]
fn a_message_of_another_format_is_known_by_its_library() {
    let (mut opening, later) = (
        call(),
        Versions::from((VERSIONS.highest + 1, VERSIONS.highest + 2)),
    );
    opening.versions = later;
    let mut bytes = opening.encode();
    bytes[16..24].copy_from_slice(b"elsewise");
    match Opening::decode(&bytes, VERSIONS) {
        ParsedMessage::Foreign(versions, library) => {
            assert!(versions == later && library.name().starts_with("elsewise"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn lengths_beyond_their_bounds_are_refused() {
    let head = |kind, len| FrameHeader {
        len,
        kind,
        number: 0,
        expected: 0,
    };
    let small = TCP_PACKET_MAX as u32 + HEADER as u32;
    for (kind, stream, longest) in [
        (FrameKind::Packet, StreamNumber::Small, small),
        (
            FrameKind::Bulk,
            StreamNumber::Bulk(0),
            TCP_BULK_FRAME as u32,
        ),
    ] {
        assert!(FrameHeader::decode(&head(kind, longest).encode(), stream).is_some());
        for len in [longest + 1, u32::MAX, 0] {
            assert_eq!(FrameHeader::decode(&head(kind, len).encode(), stream), None);
        }
    }
    let mut bytes = call().encode();
    bytes[8..10].copy_from_slice(&(OPENING_MAX as u16 + 1).to_le_bytes());
    assert_eq!(Opening::decode(&bytes, VERSIONS), ParsedMessage::Wrong);
}

#[test]
fn a_frame_of_one_stream_is_none_of_the_other() {
    let ask = FrameHeader {
        len: ASK as u32,
        kind: FrameKind::Ask,
        number: 1,
        expected: 0,
    };
    assert_eq!(
        FrameHeader::decode(&ask.encode(), StreamNumber::Small),
        None
    );
    assert_eq!(
        FrameHeader::decode(&ask.encode(), StreamNumber::Bulk(1)),
        Some(ask)
    );
}
