//! A peer that says anything at all must not bring the engine down, touch memory that is not its
//! message's, or make the engine keep more than its credits allow.

use garonne_engine::Quotas;
use garonne_engine::api::*;
use garonne_engine::engine::Shard;
use garonne_engine::fast::recv::Catch;
use garonne_engine::transport::{
    Bulk, Class, Descriptor, Ending, Exposing, Fetch, Flowing, Header, Kind, Limits, Rail, Reach,
    Refusal, Room, Sink, Step, Token, WakeSource,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::user::{Data, Scratch, UserMem};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Delivers what the test says came from peer 1, and swallows what is sent.
#[derive(Default)]
struct Mouth {
    packets: VecDeque<(Header, Vec<u8>)>,
    lent: Vec<Scratch>,
    /// The peer reads nothing: there is no room for what is said to it.
    stuffed: bool,
    /// Bytes of the last shared data that this side may still take.
    left: u64,
    /// Regions are read in the background.
    slow: bool,
    /// Reads that began so, and are told of when the peer is lost.
    reads: Vec<Token>,
    over: Vec<Token>,
}

struct Bed;

impl WakeSource for Bed {
    fn sleep(&self, _: u32, _: Option<Duration>) {}
    fn wake(&self) {}
}

impl Rail for Mouth {
    fn limits(&self) -> Limits {
        Limits {
            inline_max: 32,
            packet_max: 4096,
            control_max: 88,
            ordered: true,
        }
    }
    fn reach(&self, _: Peer) -> Option<Reach> {
        Some(Reach {
            eager_max: 1024,
            flow_max: 1024,
            can_read: true,
            can_write: false,
            pipeline_chunk: 1024,
            read_chunk: 1024,
        })
    }
    fn claim(&mut self, peer: Peer, len: usize, _: Class) -> Result<Room, Refusal> {
        if self.stuffed {
            return Err(Refusal::Full);
        }
        let scratch = Scratch::new(len).ok_or(Refusal::Full)?;
        let room = Room {
            mem: scratch.mem(),
            len,
            peer,
            token: 0,
            stores: StoreKind::Cached,
        };
        self.lent.push(scratch);
        Ok(room)
    }
    fn commit(&mut self, _: Room, _: &Header) {
        self.lent.pop();
    }
    fn abandon(&mut self, _: Room) {
        self.lent.pop();
    }
    fn send_inline(&mut self, _: Peer, _: &Header, _: UserMem) -> Result<(), Refusal> {
        Ok(())
    }
    fn lost(&mut self, peer: Peer) {
        assert_eq!(peer, 1);
        self.over.append(&mut self.reads);
    }
    fn poll(&mut self, _: u32, sink: &mut impl Sink) -> u32 {
        for token in std::mem::take(&mut self.over) {
            sink.bulk_done(token, Ok(()));
        }
        let Some((header, bytes)) = self.packets.pop_front() else {
            return 0;
        };
        let memory = Scratch::new(bytes.len()).expect("memory");
        memory.mem().write(0, &bytes);
        sink.packet(1, header, memory.mem(), bytes.len());
        1
    }
    fn flow(&mut self, _: Peer, len: usize) -> Flowing {
        match len {
            ..=100 => Flowing::No,
            _ => Flowing::Pieces(100, 100),
        }
    }
    fn fetch(&mut self, token: Token, _: Peer, len: u64) -> Fetch {
        if self.slow {
            return Fetch::Read;
        }
        [
            Fetch::Read,
            Fetch::Push,
            Fetch::Share,
            Fetch::Packets,
            Fetch::Late,
        ][(token ^ len) as usize % 5]
    }
    fn share(&mut self, _: Token, _: Peer, data: &Data, way: Fetch) -> Option<Descriptor> {
        self.left = data.len;
        (way != Fetch::Push || data.len.is_multiple_of(2))
            .then(|| Descriptor::new(8, &[1; 16]))
            .flatten()
    }
    fn take_part(&mut self, _: Token, _: u64) -> Result<Option<(u64, u64)>, Error> {
        let take = self.left.min(1000);
        self.left -= take;
        Ok((take > 0).then_some((self.left, take)))
    }
    fn push_part(&mut self, bulk: Bulk<'_>) -> Result<Step, Error> {
        match bulk.descriptor.cookie % 3 {
            0 => Ok(Step {
                bytes: bulk.len,
                last: true,
            }),
            1 => Ok(Step {
                bytes: 0,
                last: true,
            }),
            _ => Err(Error::Resource("it cannot be written")),
        }
    }
    fn expose(&mut self, _: Token, _: Peer, _: &Data) -> Exposing {
        Exposing::Unable
    }
    fn revoke(&mut self, _: Token) -> Ending {
        Ending::Now
    }
    fn read(&mut self, bulk: Bulk<'_>) -> Result<Ending, Error> {
        if self.slow {
            self.reads.push(bulk.token);
            Ok(Ending::Later)
        } else if bulk.descriptor.cookie.is_multiple_of(2) {
            Ok(Ending::Now)
        } else {
            Err(Error::Resource("the region is gone"))
        }
    }
    fn write(&mut self, _: Bulk<'_>) -> Result<Ending, Error> {
        Err(Error::Resource("nothing can be written here"))
    }
    fn arm(&mut self) -> u32 {
        0
    }
    fn disarm(&mut self) {}
    fn wake_source(&self) -> Arc<dyn WakeSource> {
        Arc::new(Bed)
    }
    fn ring(&mut self, _: Peer) {}
}

/// Small numbers, so that they often name something that exists.
fn small() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..4, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn packet() -> impl Strategy<Value = (Header, Vec<u8>)> {
    let header = (0u8..18, 0u8..4, small(), small(), small(), small());
    let words = proptest::collection::vec(
        prop_oneof![6 => 0u64..4, 2 => (0u64..4).prop_map(|n| n << 32), 1 => any::<u64>()],
        0..13,
    );
    (header, words, 0usize..8).prop_map(
        |((kind, flags, context, source, tag, sequence), words, cut)| {
            let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            bytes.truncate(bytes.len().saturating_sub(cut));
            let len = bytes.len() as u32;
            (
                Header {
                    kind,
                    flags,
                    shard: 0,
                    len,
                    context,
                    source,
                    tag: tag as i32,
                    sequence,
                },
                bytes,
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_mad_peer_gets_an_error_and_leaves_the_rest_sound(packets in proptest::collection::vec(packet(), 1..60)) {
        let quotas = Quotas { envelopes: 4, payload: 256 };
        let mut shard = Shard::new(Mouth::default(), 0, 3, quotas);
        // A guard around each buffer shows writes beyond it.
        let rooms: Vec<Scratch> = (0..6).map(|_| Scratch::new(64).expect("memory")).collect();
        rooms.iter().for_each(|room| room.mem().write(0, &[0xee; 64]));
        let payload = Scratch::new(5000).expect("memory");
        for (at, room) in rooms.iter().enumerate() {
            let pattern = Pattern {
                context: (at % 2) as u32,
                source: (at < 4).then_some(Source { rank: 1, peer: 1 }),
                tag: (at % 3 != 0).then_some(at as i32 % 3),
            };
            let data = Data::contiguous(room.mem().offset(16), 32);
            shard.recv(Recv { pattern, data, origin: Origin::default() }).expect("posted");
        }
        for len in [8u64, 5000, 8, 8, 8, 8, 5000] {
            let data = Data::contiguous(payload.mem(), len);
            let send = Send { context: 0, peer: 1, source: 0, tag: 1, data, mode: Mode::Synchronous, origin: Origin::default() };
            shard.send(send).expect("started");
        }
        for packet in packets {
            shard.rail().packets.push_back(packet);
            shard.progress();
            let _ = shard.probe(Pattern { context: 0, source: None, tag: None });
            prop_assert!(shard.unexpected() <= 4, "credits bound what is kept");
        }
        for room in &rooms {
            let intact = room.mem().with(0, 64, |bytes| bytes[..16].iter().chain(&bytes[48..]).all(|byte| *byte == 0xee));
            prop_assert!(intact, "a message wrote beyond its receive");
        }
        // Whatever happened, talk with oneself still works.
        let data = Data::contiguous(payload.mem(), 8);
        let send = Send { context: 9, peer: 0, source: 0, tag: 1, data, mode: Mode::Standard, origin: Origin::default() };
        prop_assert!(matches!(shard.send(send), Ok(Started::Done(_))));
        let data = Data::contiguous(rooms[0].mem(), 8);
        let pattern = Pattern { context: 9, source: Some(Source { rank: 0, peer: 0 }), tag: None };
        let received = shard.recv(Recv { pattern, data, origin: Origin::default() });
        let whole = matches!(received, Ok(Started::Done(Status { len: 8, error: None, .. })));
        prop_assert!(whole, "a message to oneself did not arrive");
    }
}

/// A packet of a message of 300 bytes in three pieces; byte `i` is `i` modulo 251.
fn piece(index: u32) -> (Header, Vec<u8>) {
    let bytes: Vec<u8> = (100 * index..100 * index + 100)
        .map(|i| (i % 251) as u8)
        .collect();
    let (kind, sequence) = match index {
        0 => (Kind::Head, 0),
        _ => (Kind::Tail, 100 * index),
    };
    let header = Header {
        kind: kind as u8,
        len: bytes.len() as u32,
        context: 0,
        source: 1,
        tag: 4,
        sequence,
        shard: if index == 0 { 300 } else { 0 },
        ..Header::default()
    };
    (header, bytes)
}

#[test]
fn a_message_in_pieces_that_a_quick_receive_gave_up_on_goes_to_the_general_one() {
    // The number of pieces that the quick receive sees.
    for seen in 0..3 {
        let quotas = Quotas {
            envelopes: 4,
            payload: 1024,
        };
        let mut shard = Shard::new(Mouth::default(), 0, 3, quotas);
        let room = Scratch::new(300).expect("memory");
        let pattern = Pattern {
            context: 0,
            source: Some(Source { rank: 1, peer: 1 }),
            tag: Some(4),
        };
        let catch = Catch::of(pattern, (room.mem(), 300), Origin::default());
        (0..seen).for_each(|index| shard.rail().packets.push_back(piece(index)));
        assert_eq!(shard.recv_quick(&catch, 3), None);
        assert_eq!(shard.unexpected(), 0, "half a message is none yet");
        room.mem().write(0, &[0; 300]);
        let data = Data::contiguous(room.mem(), 300);
        let origin = Origin::default();
        let Ok(Started::Pending(request)) = shard.recv(Recv {
            pattern,
            data,
            origin,
        }) else {
            panic!("it is not here yet")
        };
        for index in seen..3 {
            assert_eq!(shard.peek(request), Ok(None));
            shard.rail().packets.push_back(piece(index));
            shard.progress();
        }
        let status = shard.take(request);
        assert!(
            matches!(
                status,
                Ok(Some(Status {
                    len: 300,
                    error: None,
                    ..
                }))
            ),
            "{status:?}"
        );
        room.mem().with(0, 300, |bytes| {
            assert!(
                bytes
                    .iter()
                    .enumerate()
                    .all(|(i, byte)| *byte == (i % 251) as u8)
            )
        });
        // The next one is caught whole.
        for index in 0..3 {
            let (header, bytes) = piece(index);
            let sequence = if index == 0 { 1 } else { header.sequence };
            shard
                .rail()
                .packets
                .push_back((Header { sequence, ..header }, bytes));
        }
        assert_eq!(
            shard.recv_quick(&catch, 3).map(|caught| caught.len),
            Some(300)
        );
        assert!(shard.is_idle());
    }
}

/// An envelope of this kind that brings so many bytes of payload.
fn envelope(kind: Kind, sequence: u32, payload: u32) -> (Header, Vec<u8>) {
    let (before, total, here) = match kind {
        Kind::EagerSync => (8, 0, payload),
        // The rest would come in pieces.
        Kind::Head => (0, payload, payload.min(100)),
        _ => (0, 0, payload),
    };
    let bytes = vec![1; before + here as usize];
    let header = Header {
        kind: kind as u8,
        shard: total as u16,
        len: bytes.len() as u32,
        source: 1,
        tag: 4,
        sequence,
        ..Header::default()
    };
    (header, bytes)
}

fn control(kind: Kind, words: &[u64]) -> (Header, Vec<u8>) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = Header {
        kind: kind as u8,
        len: bytes.len() as u32,
        ..Header::default()
    };
    (header, bytes)
}

/// Whether peer 1 still counts as there.
fn lives(shard: &mut Shard<Mouth>) -> bool {
    let send = Send {
        context: 7,
        peer: 1,
        source: 0,
        tag: 1,
        data: Data::empty(),
        mode: Mode::Standard,
        origin: Origin::default(),
    };
    shard.send(send).is_ok()
}

const PAYLOAD: Quotas = Quotas {
    envelopes: 64,
    payload: 1000,
};

fn hears(shard: &mut Shard<Mouth>, packet: (Header, Vec<u8>)) -> bool {
    shard.rail().packets.push_back(packet);
    shard.progress();
    lives(shard)
}

#[test]
fn a_peer_that_asks_again_before_it_has_read_the_answer_counts_as_gone() {
    let mut shard = Shard::new(Mouth::default(), 0, 3, PAYLOAD);
    for _ in 0..100 {
        assert!(
            hears(&mut shard, control(Kind::Query, &[])),
            "the answer left at once"
        );
    }
    shard.rail().stuffed = true;
    assert!(hears(&mut shard, control(Kind::Query, &[])));
    assert!(!hears(&mut shard, control(Kind::Query, &[])));
}

#[test]
fn a_peer_that_reads_nothing_is_answered_no_more_often_than_it_has_credit() {
    let mut shard = Shard::new(Mouth::default(), 0, 3, PAYLOAD);
    let room = Scratch::new(8).expect("memory");
    shard.rail().stuffed = true;
    let mut heard = 0;
    // Each is received at once, and is to be answered.
    while heard <= PAYLOAD.envelopes {
        let recv = Recv {
            pattern: Pattern {
                context: 0,
                source: None,
                tag: None,
            },
            data: Data::contiguous(room.mem(), 8),
            origin: Origin::default(),
        };
        assert!(matches!(shard.recv(recv), Ok(Started::Pending(_))));
        shard
            .rail()
            .packets
            .push_back(envelope(Kind::EagerSync, heard, 1));
        shard.progress();
        if !lives(&mut shard) {
            break;
        }
        heard += 1;
    }
    assert_eq!(heard, PAYLOAD.envelopes);
}

#[test]
fn a_peer_that_lends_its_memory_twice_for_one_message_counts_as_gone() {
    let mut shard = Shard::new(Mouth::default(), 0, 3, PAYLOAD);
    let payload = Scratch::new(5000).expect("memory");
    let send = Send {
        context: 0,
        peer: 1,
        source: 0,
        tag: 1,
        data: Data::contiguous(payload.mem(), 5000),
        mode: Mode::Standard,
        origin: Origin::default(),
    };
    assert!(matches!(shard.send(send), Ok(Started::Pending(_))));
    // The first send's name, a name of the peer's, and memory that cannot be written.
    let push = || control(Kind::Push, &[0, 5, 2]);
    assert!(hears(&mut shard, push()));
    assert!(!hears(&mut shard, push()));
}

#[test]
fn a_peer_that_sends_more_payload_than_it_was_granted_counts_as_gone() {
    for kind in [Kind::Eager, Kind::EagerSync, Kind::Head] {
        for (first, second) in [(1000, 1), (0, 1001), (600, 600)] {
            let mut shard = Shard::new(Mouth::default(), 0, 3, PAYLOAD);
            assert!(hears(&mut shard, envelope(Kind::Eager, 0, first)));
            // What is too early for its stream is kept as well.
            assert!(
                !hears(&mut shard, envelope(kind, 3, second.max(2))),
                "{kind:?} {first}"
            );
            assert_eq!(shard.unexpected(), 1, "{kind:?}");
        }
    }
}

#[test]
fn payload_that_was_received_and_announcements_are_no_overdraft() {
    // Half of it is returned as soon as it is received.
    let quotas = Quotas {
        payload: 1200,
        ..PAYLOAD
    };
    let mut shard = Shard::new(Mouth::default(), 0, 3, quotas);
    let room = Scratch::new(600).expect("memory");
    for round in 0..20 {
        // All that there is, and an announcement beside.
        assert!(hears(&mut shard, envelope(Kind::Eager, 3 * round, 600)));
        let announced = [1u64 << 40, 7].map(u64::to_le_bytes).concat();
        let (header, _) = envelope(Kind::Announce, 3 * round + 1, 16);
        assert!(hears(&mut shard, (header, announced)));
        assert!(hears(&mut shard, envelope(Kind::Head, 3 * round + 2, 600)));
        for tail in 1..6 {
            let (mut header, bytes) = piece(tail);
            header.sequence = 100 * tail;
            assert!(hears(&mut shard, (header, bytes)));
        }
        for len in [600; 3] {
            let recv = Recv {
                pattern: Pattern {
                    context: 0,
                    source: None,
                    tag: None,
                },
                data: Data::contiguous(room.mem(), len),
                origin: Origin::default(),
            };
            if let Ok(Started::Pending(request)) = shard.recv(recv) {
                // The announcement, which is too long.
                shard.progress();
                let _ = shard.take(request);
            }
        }
        assert_eq!(shard.unexpected(), 0);
        // The credit leaves; before that the peer could not know.
        shard.progress();
    }
}

#[test]
fn pieces_out_of_order_or_without_a_beginning_break_the_format() {
    for wrong in [vec![1], vec![0, 2], vec![0, 0], vec![0, 1, 1]] {
        let quotas = Quotas {
            envelopes: 4,
            payload: 1024,
        };
        let mut shard = Shard::new(Mouth::default(), 0, 3, quotas);
        for index in wrong {
            shard.rail().packets.push_back(piece(index));
            shard.progress();
        }
        let data = Data::empty();
        let send = Send {
            context: 0,
            peer: 1,
            source: 0,
            tag: 1,
            data,
            mode: Mode::Standard,
            origin: Origin::default(),
        };
        assert!(matches!(shard.send(send), Err(Error::Peer { .. })));
        assert!(shard.is_idle());
    }
}

#[test]
fn a_receive_whose_memory_the_rail_still_writes_ends_after_that_even_if_its_peer_is_lost() {
    let quotas = Quotas {
        envelopes: 4,
        payload: 1024,
    };
    let mouth = Mouth {
        slow: true,
        ..Mouth::default()
    };
    let mut shard = Shard::new(mouth, 0, 3, quotas);
    let room = Scratch::new(1000).expect("memory");
    let recv = Recv {
        pattern: Pattern {
            context: 0,
            source: Some(Source { rank: 1, peer: 1 }),
            tag: Some(4),
        },
        data: Data::contiguous(room.mem(), 1000),
        origin: Origin::default(),
    };
    let Ok(Started::Pending(request)) = shard.recv(recv) else {
        panic!("it is not here yet")
    };
    // Its length, its name, the region.
    let bytes = [1000u64, 7, 2].map(u64::to_le_bytes).concat();
    let announce = Header {
        kind: Kind::Announce as u8,
        flags: 1,
        len: bytes.len() as u32,
        tag: 4,
        source: 1,
        ..Header::default()
    };
    shard.rail().packets.push_back((announce, bytes));
    shard.progress();
    assert_eq!(
        (shard.rail().reads.len(), shard.peek(request)),
        (1, Ok(None))
    );
    // A tail without a head.
    shard.rail().packets.push_back(piece(1));
    shard.look();
    assert_eq!(shard.peek(request), Ok(None), "the rail may write there");
    for _ in 0..2 {
        shard.progress();
    }
    let status = shard.take(request);
    let failed = matches!(
        status,
        Ok(Some(Status {
            error: Some(Error::Peer { peer: 1, .. }),
            ..
        }))
    );
    assert!(failed, "{status:?}");
    assert!(shard.is_idle());
}
