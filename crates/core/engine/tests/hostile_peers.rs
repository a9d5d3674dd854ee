//! A peer that says anything at all must not bring the engine down, touch memory that is not its
//! message's, or make the engine keep more than its credits allow.

use garonne_engine::CreditQuotas;
use garonne_engine::api::*;
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::FastRecv;
use garonne_engine::one_sided::{
    AccessRights, AtomicArgs, AtomicOp, AtomicType, RegionKey, RegionMemory,
};
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    Fragmentation, FragmentedSends, NodeMemory, PacketBuffer, PacketClass, PacketHeader,
    PacketKind, PartWritten, PeerCapabilities, PollSink, RegionDescriptor, RemoteMemory,
    RendezvousMode, SharedCopy, Transport, TransportLimits, WakeSource,
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
    packets: VecDeque<(PacketHeader, Vec<u8>)>,
    lent: Vec<Scratch>,
    /// The peer reads nothing: there is no room for what is said to it.
    stuffed: bool,
    /// Bytes of the last shared data that this side may still take.
    left: u64,
    /// Regions are read in the background.
    slow: bool,
    /// Reads that began so, and are told of when the peer is lost.
    reads: Vec<BulkToken>,
    over: Vec<BulkToken>,
    /// The next poll says that the peer has left.
    leaves: bool,
}

struct Bed;

impl WakeSource for Bed {
    fn sleep(&self, _: u32, _: Option<Duration>) {}
    fn wake(&self) {}
}

impl Transport for Mouth {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: 32,
            packet_max: 4096,
            control_max: 88,
            ordered: true,
        }
    }
    fn capabilities(&self, _: Peer) -> Option<PeerCapabilities> {
        Some(PeerCapabilities {
            eager_max: 1024,
            fragmented_max: 1024,
            can_read: true,
            can_write: false,
            pipeline_chunk: 1024,
            read_chunk: 1024,
        })
    }
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        _: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        if self.stuffed {
            return Err(ClaimError::Full);
        }
        let scratch = Scratch::new(len).ok_or(ClaimError::Full)?;
        let room = PacketBuffer {
            mem: scratch.mem(),
            len,
            peer,
            token: 0,
            stores: StoreKind::Cached,
        };
        self.lent.push(scratch);
        Ok(room)
    }
    fn commit(&mut self, _: PacketBuffer, _: &PacketHeader) {
        self.lent.pop();
    }
    fn abandon(&mut self, _: PacketBuffer) {
        self.lent.pop();
    }
    fn send_inline(&mut self, _: Peer, _: &PacketHeader, _: UserMem) -> Result<(), ClaimError> {
        Ok(())
    }
    fn peer_lost(&mut self, peer: Peer) {
        assert_eq!(peer, 1);
        self.over.append(&mut self.reads);
    }
    fn poll(&mut self, _: u32, sink: &mut impl PollSink) -> u32 {
        for token in std::mem::take(&mut self.over) {
            sink.on_bulk_done(token, Ok(()));
        }
        if std::mem::take(&mut self.leaves) {
            sink.on_peer_left(1);
            return 1;
        }
        let Some((header, bytes)) = self.packets.pop_front() else {
            return 0;
        };
        let memory = Scratch::new(bytes.len()).expect("memory");
        memory.mem().write(0, &bytes);
        sink.on_packet(1, header, memory.mem(), bytes.len());
        1
    }
    fn choose_rendezvous(&mut self, token: BulkToken, _: Peer, len: u64) -> RendezvousMode {
        if self.slow {
            return RendezvousMode::Read;
        }
        [
            RendezvousMode::Read,
            RendezvousMode::Write,
            RendezvousMode::Share,
            RendezvousMode::Data,
            RendezvousMode::ShareLater,
        ][(token ^ len) as usize % 5]
    }
    fn arm(&mut self) -> u32 {
        0
    }
    fn disarm(&mut self) {}
    fn wake_source(&self) -> Arc<dyn WakeSource> {
        Arc::new(Bed)
    }
    fn wake_peer(&mut self, _: Peer) {}
}

impl FastPath for Mouth {}

impl FragmentedSends for Mouth {
    fn fragmentation(&mut self, _: Peer, len: usize) -> Fragmentation {
        match len {
            ..=100 => Fragmentation::None,
            _ => Fragmentation::Fragments(100, 100),
        }
    }
}

impl RemoteMemory for Mouth {
    fn expose(&mut self, _: BulkToken, _: Peer, _: &Data) -> ExposeResult {
        ExposeResult::Unable
    }

    fn revoke(&mut self, _: BulkToken) -> BulkStatus {
        BulkStatus::Done
    }

    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        if self.slow {
            self.reads.push(bulk.token);
            Ok(BulkStatus::Pending)
        } else if bulk.descriptor.cookie.is_multiple_of(2) {
            Ok(BulkStatus::Done)
        } else {
            Err(Error::Resource("the region is gone"))
        }
    }

    fn write(&mut self, _: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Resource("nothing can be written here"))
    }
}

impl SharedCopy for Mouth {
    fn share_region(
        &mut self,
        _: BulkToken,
        _: Peer,
        data: &Data,
        way: RendezvousMode,
    ) -> Option<RegionDescriptor> {
        self.left = data.len;
        (way != RendezvousMode::Write || data.len.is_multiple_of(2))
            .then(|| RegionDescriptor::new(8, &[1; 16]))
            .flatten()
    }

    fn take_part(&mut self, _: BulkToken, _: u64) -> Result<Option<(u64, u64)>, Error> {
        let take = self.left.min(1000);
        self.left -= take;
        Ok((take > 0).then_some((self.left, take)))
    }

    fn write_part(&mut self, bulk: BulkTransfer<'_>) -> Result<PartWritten, Error> {
        match bulk.descriptor.cookie % 3 {
            0 => Ok(PartWritten {
                bytes: bulk.len,
                last: true,
            }),
            1 => Ok(PartWritten {
                bytes: 0,
                last: true,
            }),
            _ => Err(Error::Resource("it cannot be written")),
        }
    }
}

impl AsyncProgress for Mouth {}

impl NodeMemory for Mouth {}

/// Small numbers, so that they often name something that exists.
fn small() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..4, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn packet() -> impl Strategy<Value = (PacketHeader, Vec<u8>)> {
    let header = (0u8..25, 0u8..4, small(), small(), small(), small());
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
                PacketHeader {
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
        let quotas = CreditQuotas { envelopes: 4, payload: 256 };
        let mut shard = Engine::new(Mouth::default(), 0, 3, quotas);
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
            shard.recv(RecvArgs { pattern, data, origin: CallOrigin::default() }).expect("posted");
        }
        for len in [8u64, 5000, 8, 8, 8, 8, 5000] {
            let data = Data::contiguous(payload.mem(), len);
            let send = SendArgs { context: 0, peer: 1, source: 0, tag: 1, data, mode: SendCompletion::Synchronous, origin: CallOrigin::default() };
            shard.send(send).expect("started");
        }
        // Accesses to a region of the peer's, and a region that the peer may access.
        let region = Scratch::new(96).expect("memory");
        region.mem().write(0, &[0xee; 96]);
        let memory = RegionMemory { mem: region.mem().offset(16), len: 64, rights: AccessRights::ALL };
        shard.one_sided().register_region(memory).expect("registered");
        let result = Scratch::new(96).expect("memory");
        result.mem().write(0, &[0xee; 96]);
        let theirs = shard.one_sided().open_region(1, &key(3)).expect("opened");
        let mut accesses = Vec::new();
        for turn in 0..4u64 {
            let data = Data::contiguous(result.mem().offset(16), 64);
            let args = AtomicArgs {
                offset: 8 * turn,
                kind: AtomicType::U64,
                op: AtomicOp::Sum,
                operands: Data::contiguous(payload.mem(), 16),
                result: Some(result.mem().offset(16)),
            };
            let started = [
                shard.one_sided().get(&theirs, 0, data),
                shard.one_sided().put(&theirs, 0, Data::contiguous(payload.mem(), 5000)),
                shard.one_sided().atomic(&theirs, args),
                shard.one_sided().flush(1),
            ];
            accesses.extend(started.map(|started| started.expect("started")));
        }
        for packet in packets {
            shard.transport().packets.push_back(packet);
            shard.progress();
            let _ = shard.probe(Pattern { context: 0, source: None, tag: None });
            prop_assert!(shard.unexpected_count() <= 4, "credits bound what is kept");
        }
        for room in &rooms {
            let intact = room.mem().with(0, 64, |bytes| bytes[..16].iter().chain(&bytes[48..]).all(|byte| *byte == 0xee));
            prop_assert!(intact, "a message wrote beyond its receive");
        }
        for guarded in [&region, &result] {
            let intact = guarded.mem().with(0, 96, |bytes| bytes[..16].iter().chain(&bytes[80..]).all(|byte| *byte == 0xee));
            prop_assert!(intact, "an access wrote beyond its region or result");
        }
        // A packet of no kind makes the peer count as gone, which ends all accesses.
        shard.transport().packets.push_back((PacketHeader { kind: 99, ..PacketHeader::default() }, Vec::new()));
        shard.progress();
        for access in accesses {
            let StartOutcome::Pending(request) = access else { continue };
            prop_assert!(shard.is_complete(request), "an access outlived its peer");
        }
        // Whatever happened, talk with oneself still works.
        let data = Data::contiguous(payload.mem(), 8);
        let send = SendArgs { context: 9, peer: 0, source: 0, tag: 1, data, mode: SendCompletion::Standard, origin: CallOrigin::default() };
        prop_assert!(matches!(shard.send(send), Ok(StartOutcome::Done(_))));
        let data = Data::contiguous(rooms[0].mem(), 8);
        let pattern = Pattern { context: 9, source: Some(Source { rank: 0, peer: 0 }), tag: None };
        let received = shard.recv(RecvArgs { pattern, data, origin: CallOrigin::default() });
        let whole = matches!(received, Ok(StartOutcome::Done(Status { len: 8, error: None, .. })));
        prop_assert!(whole, "a message to oneself did not arrive");
    }
}

/// A key of a region of 8000 bytes with this cookie.
fn key(cookie: u64) -> RegionKey {
    let mut bytes = [cookie.to_le_bytes(), 8000u64.to_le_bytes()].concat();
    bytes.extend([AccessRights::ALL.bits(), 0]);
    RegionKey::decode(&bytes).expect("a key")
}

/// A packet of a message of 300 bytes in three pieces; byte `i` is `i` modulo 251.
fn piece(index: u32) -> (PacketHeader, Vec<u8>) {
    let bytes: Vec<u8> = (100 * index..100 * index + 100)
        .map(|i| (i % 251) as u8)
        .collect();
    let (kind, sequence) = match index {
        0 => (PacketKind::FragFirst, 0),
        _ => (PacketKind::FragNext, 100 * index),
    };
    let header = PacketHeader {
        kind: kind as u8,
        len: bytes.len() as u32,
        context: 0,
        source: 1,
        tag: 4,
        sequence,
        shard: if index == 0 { 300 } else { 0 },
        ..PacketHeader::default()
    };
    (header, bytes)
}

#[test]
fn a_message_in_pieces_that_a_quick_receive_gave_up_on_goes_to_the_general_one() {
    // The number of pieces that the quick receive sees.
    for seen in 0..3 {
        let quotas = CreditQuotas {
            envelopes: 4,
            payload: 1024,
        };
        let mut shard = Engine::new(Mouth::default(), 0, 3, quotas);
        let room = Scratch::new(300).expect("memory");
        let pattern = Pattern {
            context: 0,
            source: Some(Source { rank: 1, peer: 1 }),
            tag: Some(4),
        };
        let catch = FastRecv::new(pattern, (room.mem(), 300), CallOrigin::default());
        (0..seen).for_each(|index| shard.transport().packets.push_back(piece(index)));
        assert_eq!(shard.recv_blocking_fast(&catch, 3), None);
        assert_eq!(shard.unexpected_count(), 0, "half a message is none yet");
        room.mem().write(0, &[0; 300]);
        let data = Data::contiguous(room.mem(), 300);
        let origin = CallOrigin::default();
        let Ok(StartOutcome::Pending(request)) = shard.recv(RecvArgs {
            pattern,
            data,
            origin,
        }) else {
            panic!("it is not here yet")
        };
        for index in seen..3 {
            assert_eq!(shard.peek(request), Ok(None));
            shard.transport().packets.push_back(piece(index));
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
                .transport()
                .packets
                .push_back((PacketHeader { sequence, ..header }, bytes));
        }
        assert_eq!(
            shard.recv_blocking_fast(&catch, 3).map(|caught| caught.len),
            Some(300)
        );
        assert!(shard.is_idle());
    }
}

/// An envelope of this kind that brings so many bytes of payload.
fn envelope(kind: PacketKind, sequence: u32, payload: u32) -> (PacketHeader, Vec<u8>) {
    let (before, total, here) = match kind {
        PacketKind::EagerSync => (8, 0, payload),
        // The rest would come in pieces.
        PacketKind::FragFirst => (0, payload, payload.min(100)),
        _ => (0, 0, payload),
    };
    let bytes = vec![1; before + here as usize];
    let header = PacketHeader {
        kind: kind as u8,
        shard: total as u16,
        len: bytes.len() as u32,
        source: 1,
        tag: 4,
        sequence,
        ..PacketHeader::default()
    };
    (header, bytes)
}

fn control(kind: PacketKind, words: &[u64]) -> (PacketHeader, Vec<u8>) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = PacketHeader {
        kind: kind as u8,
        len: bytes.len() as u32,
        ..PacketHeader::default()
    };
    (header, bytes)
}

/// Returns whether peer 1 still counts as alive.
fn lives(shard: &mut Engine<Mouth>) -> bool {
    let send = SendArgs {
        context: 7,
        peer: 1,
        source: 0,
        tag: 1,
        data: Data::empty(),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    };
    shard.send(send).is_ok()
}

const PAYLOAD: CreditQuotas = CreditQuotas {
    envelopes: 64,
    payload: 1000,
};

fn hears(shard: &mut Engine<Mouth>, packet: (PacketHeader, Vec<u8>)) -> bool {
    shard.transport().packets.push_back(packet);
    shard.progress();
    lives(shard)
}

#[test]
fn a_peer_that_asks_again_before_it_has_read_the_answer_counts_as_gone() {
    let mut shard = Engine::new(Mouth::default(), 0, 3, PAYLOAD);
    for _ in 0..100 {
        assert!(
            hears(&mut shard, control(PacketKind::Probe, &[])),
            "the answer left at once"
        );
    }
    shard.transport().stuffed = true;
    assert!(hears(&mut shard, control(PacketKind::Probe, &[])));
    assert!(!hears(&mut shard, control(PacketKind::Probe, &[])));
}

#[test]
fn a_peer_that_reads_nothing_is_answered_no_more_often_than_it_has_credit() {
    let mut shard = Engine::new(Mouth::default(), 0, 3, PAYLOAD);
    let room = Scratch::new(8).expect("memory");
    shard.transport().stuffed = true;
    let mut heard = 0;
    // Each is received at once, and is to be answered.
    while heard <= PAYLOAD.envelopes {
        let recv = RecvArgs {
            pattern: Pattern {
                context: 0,
                source: None,
                tag: None,
            },
            data: Data::contiguous(room.mem(), 8),
            origin: CallOrigin::default(),
        };
        assert!(matches!(shard.recv(recv), Ok(StartOutcome::Pending(_))));
        shard
            .transport()
            .packets
            .push_back(envelope(PacketKind::EagerSync, heard, 1));
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
    let mut shard = Engine::new(Mouth::default(), 0, 3, PAYLOAD);
    let payload = Scratch::new(5000).expect("memory");
    let send = SendArgs {
        context: 0,
        peer: 1,
        source: 0,
        tag: 1,
        data: Data::contiguous(payload.mem(), 5000),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    };
    assert!(matches!(shard.send(send), Ok(StartOutcome::Pending(_))));
    // The first send's name, a name of the peer's, and memory that cannot be written.
    let push = || control(PacketKind::Rtr, &[0, 5, 2]);
    assert!(hears(&mut shard, push()));
    assert!(!hears(&mut shard, push()));
}

#[test]
fn a_peer_that_sends_more_payload_than_it_was_granted_counts_as_gone() {
    for kind in [
        PacketKind::Eager,
        PacketKind::EagerSync,
        PacketKind::FragFirst,
    ] {
        for (first, second) in [(1000, 1), (0, 1001), (600, 600)] {
            let mut shard = Engine::new(Mouth::default(), 0, 3, PAYLOAD);
            assert!(hears(&mut shard, envelope(PacketKind::Eager, 0, first)));
            // What is too early for its stream is kept as well.
            assert!(
                !hears(&mut shard, envelope(kind, 3, second.max(2))),
                "{kind:?} {first}"
            );
            assert_eq!(shard.unexpected_count(), 1, "{kind:?}");
        }
    }
}

#[test]
fn payload_that_was_received_and_announcements_are_no_overdraft() {
    // Half of it is returned as soon as it is received.
    let quotas = CreditQuotas {
        payload: 1200,
        ..PAYLOAD
    };
    let mut shard = Engine::new(Mouth::default(), 0, 3, quotas);
    let room = Scratch::new(600).expect("memory");
    for round in 0..20 {
        // All that there is, and an announcement beside.
        assert!(hears(
            &mut shard,
            envelope(PacketKind::Eager, 3 * round, 600)
        ));
        let announced = [1u64 << 40, 7].map(u64::to_le_bytes).concat();
        let (header, _) = envelope(PacketKind::Rts, 3 * round + 1, 16);
        assert!(hears(&mut shard, (header, announced)));
        assert!(hears(
            &mut shard,
            envelope(PacketKind::FragFirst, 3 * round + 2, 600)
        ));
        for tail in 1..6 {
            let (mut header, bytes) = piece(tail);
            header.sequence = 100 * tail;
            assert!(hears(&mut shard, (header, bytes)));
        }
        for len in [600; 3] {
            let recv = RecvArgs {
                pattern: Pattern {
                    context: 0,
                    source: None,
                    tag: None,
                },
                data: Data::contiguous(room.mem(), len),
                origin: CallOrigin::default(),
            };
            if let Ok(StartOutcome::Pending(request)) = shard.recv(recv) {
                // The announcement, which is too long.
                shard.progress();
                let _ = shard.take(request);
            }
        }
        assert_eq!(shard.unexpected_count(), 0);
        // The credit leaves; before that the peer could not know.
        shard.progress();
    }
}

#[test]
fn pieces_out_of_order_or_without_a_beginning_break_the_format() {
    for wrong in [vec![1], vec![0, 2], vec![0, 0], vec![0, 1, 1]] {
        let quotas = CreditQuotas {
            envelopes: 4,
            payload: 1024,
        };
        let mut shard = Engine::new(Mouth::default(), 0, 3, quotas);
        for index in wrong {
            shard.transport().packets.push_back(piece(index));
            shard.progress();
        }
        let data = Data::empty();
        let send = SendArgs {
            context: 0,
            peer: 1,
            source: 0,
            tag: 1,
            data,
            mode: SendCompletion::Standard,
            origin: CallOrigin::default(),
        };
        assert!(matches!(shard.send(send), Err(Error::Peer { .. })));
        assert!(shard.is_idle());
    }
}

#[test]
fn a_receive_whose_memory_the_transport_still_writes_ends_after_that_even_if_its_peer_is_lost() {
    let quotas = CreditQuotas {
        envelopes: 4,
        payload: 1024,
    };
    let mouth = Mouth {
        slow: true,
        ..Mouth::default()
    };
    let mut shard = Engine::new(mouth, 0, 3, quotas);
    let room = Scratch::new(1000).expect("memory");
    let recv = RecvArgs {
        pattern: Pattern {
            context: 0,
            source: Some(Source { rank: 1, peer: 1 }),
            tag: Some(4),
        },
        data: Data::contiguous(room.mem(), 1000),
        origin: CallOrigin::default(),
    };
    let Ok(StartOutcome::Pending(request)) = shard.recv(recv) else {
        panic!("it is not here yet")
    };
    // Its length, its name, the region.
    let bytes = [1000u64, 7, 2].map(u64::to_le_bytes).concat();
    let announce = PacketHeader {
        kind: PacketKind::Rts as u8,
        flags: 1,
        len: bytes.len() as u32,
        tag: 4,
        source: 1,
        ..PacketHeader::default()
    };
    shard.transport().packets.push_back((announce, bytes));
    shard.progress();
    assert_eq!(
        (shard.transport().reads.len(), shard.peek(request)),
        (1, Ok(None))
    );
    // A tail without a head.
    shard.transport().packets.push_back(piece(1));
    shard.poll_only();
    assert_eq!(
        shard.peek(request),
        Ok(None),
        "the transport may write there"
    );
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

#[test]
fn requests_of_a_peer_that_reads_no_answers_are_bounded() {
    let quotas = CreditQuotas {
        envelopes: 4,
        payload: 256,
    };
    let mut shard = Engine::new(Mouth::default(), 0, 3, quotas);
    let region = Scratch::new(64).expect("memory");
    let memory = RegionMemory {
        mem: region.mem(),
        len: 64,
        rights: AccessRights::READ,
    };
    shard.one_sided().register_region(memory).expect("ours");
    shard.transport().stuffed = true;
    let get = |turn: u32| {
        let bytes = [0u64, 0, 8].map(u64::to_le_bytes).concat();
        let header = PacketHeader {
            kind: PacketKind::Get as u8,
            len: bytes.len() as u32,
            context: turn,
            ..PacketHeader::default()
        };
        (header, bytes)
    };
    let alive = |shard: &mut Engine<Mouth>| shard.one_sided().open_region(1, &key(0)).is_ok();
    for turn in 0..garonne_engine::limits::ACCESSES_IN_FLIGHT {
        shard.transport().packets.push_back(get(turn));
        shard.progress();
        assert!(alive(&mut shard), "after {turn} requests");
    }
    shard.transport().packets.push_back(get(0));
    shard.progress();
    assert!(!alive(&mut shard), "one too many breaks the format");
    assert!(!shard.has_work(), "nothing is owed to a peer that is gone");
}

#[test]
fn accesses_and_flushes_end_when_their_target_leaves() {
    let quotas = CreditQuotas {
        envelopes: 4,
        payload: 256,
    };
    let mut shard = Engine::new(Mouth::default(), 0, 3, quotas);
    let room = Scratch::new(64).expect("memory");
    let theirs = shard.one_sided().open_region(1, &key(0)).expect("open");
    let data = || Data::contiguous(room.mem(), 8);
    let started = [
        shard.one_sided().put(&theirs, 0, data()),
        shard.one_sided().get(&theirs, 0, data()),
        shard.one_sided().flush(1),
    ];
    let pending = started.map(|started| match started {
        Ok(StartOutcome::Pending(request)) => request,
        other => panic!("{other:?}"),
    });
    shard.progress();
    assert!(pending.iter().all(|request| !shard.is_complete(*request)));
    shard.transport().leaves = true;
    shard.progress();
    for request in pending {
        let status = shard.take(request).expect("known").expect("over");
        assert!(
            matches!(status.error, Some(Error::Misuse(text)) if text.contains("ended MPI")),
            "{status:?}"
        );
    }
    let refused = shard.one_sided().put(&theirs, 0, data());
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
}
