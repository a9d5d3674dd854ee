//! What every transport must do, as checks that panic with the clause they found broken. For tests
//! of transports, here and elsewhere.
//!
//! A transport's tests give a [`World`]: two fresh transports that reach each other, stepped by one
//! thread. Every check begins with a new world. Bounded: each check ends after a fixed number of
//! polls.

pub mod modules;
pub mod one_sided;
pub mod vector;

use garonne_engine::api::{Error, Peer};
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, PacketClass, PacketHeader,
    PartWritten, PollSink, RegionDescriptor, RemoteMemory, RendezvousMode, SharedCopy, Transport,
    WithdrawResult,
};
use garonne_sync::user::{Data, Scratch, UserMem};

/// Two transports that reach each other: peer 0 and peer 1.
pub trait World {
    /// The kind of transport.
    type Tested: Transport;
    /// The transport of peer 0 or 1.
    fn transport(&mut self, peer: Peer) -> &mut Self::Tested;
    /// Lets time pass on transports whose packets need some.
    fn settle(&mut self) {}
    /// Peer 1 dies: its transport is not used any more, and whoever tells transports of deaths
    /// tells the transport of peer 0.
    fn kill_second(&mut self);
}

/// Everything a poll told.
#[derive(Debug, Default)]
pub struct RecordedEvents {
    /// Packets: sender, header, payload.
    pub packets: Vec<(Peer, PacketHeader, Vec<u8>)>,
    /// Peers reported gone.
    pub gone: Vec<Peer>,
    /// Why, of those where the transport said so.
    pub reasons: Vec<&'static str>,
    /// Regions whose revocation ended.
    pub revoked: Vec<BulkToken>,
    /// Exposures that ended.
    pub exposed: Vec<(BulkToken, Option<RegionDescriptor>)>,
    /// Bulk operations that ended.
    pub done: Vec<(BulkToken, Result<(), Error>)>,
}

impl PollSink for RecordedEvents {
    fn on_packet(&mut self, peer: Peer, header: PacketHeader, payload: UserMem, len: usize) {
        let mut bytes = vec![0; len];
        payload.read(0, &mut bytes);
        self.packets.push((peer, header, bytes));
    }
    fn on_exposed(&mut self, token: BulkToken, descriptor: Option<RegionDescriptor>) {
        self.exposed.push((token, descriptor));
    }
    fn on_revoked(&mut self, token: BulkToken) {
        self.revoked.push(token);
    }
    fn on_bulk_done(&mut self, token: BulkToken, result: Result<(), Error>) {
        self.done.push((token, result));
    }
    fn on_peer_gone(&mut self, peer: Peer) {
        self.gone.push(peer);
    }
    fn on_peer_lost(&mut self, peer: Peer, why: &'static str) {
        self.gone.push(peer);
        self.reasons.push(why);
    }
}

/// Polls of an idle transport after which a check gives up waiting.
const PATIENCE: usize = 10_000;

/// Runs every check, each on a world of its own.
pub fn check_all<W: World>(mut fresh: impl FnMut() -> W) {
    boundaries_hold(fresh());
    order_holds(fresh());
    back_pressure_loses_nothing(fresh());
    control_passes_full_data(fresh());
    claims_given_back_leave_no_trace(fresh());
    arming_misses_nothing(fresh());
    death_is_told_once_and_refuses(fresh());
    regions_are_read_and_written(fresh());
    revoked_descriptors_move_nothing(fresh());
    offers_are_written_or_withdrawn(fresh());
    a_lifted_copy_keeps_its_region(fresh());
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(131) ^ seed.wrapping_mul(29)) as u8)
        .collect()
}

fn header(len: usize, sequence: usize) -> PacketHeader {
    PacketHeader {
        kind: 1,
        len: len as u32,
        sequence: sequence as u32,
        tag: -7,
        context: 3,
        source: 9,
        ..PacketHeader::default()
    }
}

/// Memory with these bytes.
fn scratch(bytes: &[u8]) -> Scratch {
    let memory =
        Scratch::new(bytes.len().max(1)).unwrap_or_else(|| panic!("no memory for the check"));
    memory.mem().write(0, bytes);
    memory
}

/// Sends one packet the way its length and class suggest.
pub fn send(
    transport: &mut impl Transport,
    peer: Peer,
    bytes: &[u8],
    sequence: usize,
    class: PacketClass,
) -> Result<(), ClaimError> {
    let header = header(bytes.len(), sequence);
    if class == PacketClass::Data && bytes.len() <= transport.limits().inline_max {
        let memory = scratch(bytes);
        return transport.send_inline(peer, &header, memory.mem());
    }
    let room = transport.claim(peer, bytes.len(), class)?;
    assert!(room.len >= bytes.len(), "too little room");
    assert_eq!(room.peer, peer);
    room.mem.write(0, bytes);
    transport.commit(room, &header);
    Ok(())
}

/// Polls `peer`'s transport until it told `packets` packets.
fn receive<W: World>(world: &mut W, peer: Peer, packets: usize) -> RecordedEvents {
    let mut told = RecordedEvents::default();
    for _ in 0..PATIENCE {
        world.transport(peer).poll(16, &mut told);
        if told.packets.len() >= packets {
            return told;
        }
        world.settle();
    }
    panic!("{} of {packets} packets arrived", told.packets.len());
}

fn boundaries_hold<W: World>(mut world: W) {
    let limits = world.transport(0).limits();
    let around = |n: usize| [n.saturating_sub(1), n, n + 1];
    let mut lengths: Vec<_> = [0, 1, 31, 32, 33, 63, 64, 65, 128]
        .into_iter()
        .chain(around(limits.inline_max))
        .collect();
    lengths.extend([4095, 4096, limits.packet_max / 2 + 1, limits.packet_max]);
    for (n, len) in lengths
        .into_iter()
        .filter(|len| *len <= limits.packet_max)
        .enumerate()
    {
        let bytes = pattern(len, n);
        assert_eq!(
            send(world.transport(0), 1, &bytes, n, PacketClass::Data),
            Ok(()),
            "an empty transport has room"
        );
        let told = receive(&mut world, 1, 1);
        assert_eq!(
            told.packets,
            [(0, header(len, n), bytes)],
            "a packet arrives whole, alone and unchanged"
        );
    }
    let control = pattern(limits.control_max, 5);
    assert_eq!(
        send(world.transport(0), 1, &control, 1, PacketClass::Control),
        Ok(())
    );
    assert_eq!(receive(&mut world, 1, 1).packets[0].2, control);
}

fn order_holds<W: World>(mut world: W) {
    if !world.transport(0).limits().ordered {
        return;
    }
    let (mut sent, mut got) = (0, 0);
    while got < 3000 {
        for _ in 0..1 + sent % 7 {
            let len = [0, 8, 40, 700, 3000][sent % 5];
            let class = if sent % 11 == 3 {
                PacketClass::Control
            } else {
                PacketClass::Data
            };
            let len = if class == PacketClass::Control {
                len.min(world.transport(0).limits().control_max)
            } else {
                len
            };
            if send(world.transport(0), 1, &pattern(len, sent), sent, class).is_ok() {
                sent += 1;
            } else {
                // Room may return by a poll only.
                let mut told = RecordedEvents::default();
                world.settle();
                world.transport(0).poll(16, &mut told);
                assert!(told.packets.is_empty());
            }
        }
        let told = receive(&mut world, 1, usize::from(sent > got));
        for (_, header, bytes) in told.packets {
            assert_eq!(
                header.sequence as usize, got,
                "packets of one peer arrive in the order of their commits"
            );
            assert_eq!(bytes, pattern(bytes.len(), got));
            got += 1;
        }
    }
}

fn back_pressure_loses_nothing<W: World>(mut world: W) {
    for round in 0..3 {
        let mut sent = 0;
        while sent < 100_000 {
            match send(
                world.transport(0),
                1,
                &pattern(500, sent),
                sent,
                PacketClass::Data,
            ) {
                Ok(()) => sent += 1,
                Err(refusal) => {
                    assert_eq!(
                        refusal,
                        ClaimError::Full,
                        "a transport without room says so"
                    );
                    break;
                }
            }
        }
        assert!(sent < 100_000, "a transport is bounded (round {round})");
        let mut got: Vec<_> = receive(&mut world, 1, sent)
            .packets
            .iter()
            .map(|packet| packet.1.sequence as usize)
            .collect();
        got.sort_unstable();
        assert_eq!(
            got,
            (0..sent).collect::<Vec<_>>(),
            "what was accepted arrives, once"
        );
        let mut told = RecordedEvents::default();
        world.transport(1).poll(16, &mut told);
        world.settle();
        world.transport(0).poll(16, &mut told);
        assert!(told.packets.is_empty());
    }
}

fn control_passes_full_data<W: World>(mut world: W) {
    let mut sent = 0;
    while send(
        world.transport(0),
        1,
        &pattern(3000, sent),
        sent,
        PacketClass::Data,
    )
    .is_ok()
    {
        sent += 1;
    }
    while send(world.transport(0), 1, &[1], sent, PacketClass::Data).is_ok() {
        sent += 1;
    }
    let bytes = pattern(world.transport(0).limits().control_max, 1);
    assert_eq!(
        send(world.transport(0), 1, &bytes, sent, PacketClass::Control),
        Ok(()),
        "data cannot use up the room of control packets"
    );
    receive(&mut world, 1, sent + 1);
}

fn claims_given_back_leave_no_trace<W: World>(mut world: W) {
    for n in 0..500 {
        let len = [10, 100, 5000][n % 3];
        match world.transport(0).claim(1, len, PacketClass::Data) {
            Ok(room) => world.transport(0).abandon(room),
            Err(refusal) => panic!("{refusal:?} after {n} claims that were given back"),
        }
        send(world.transport(0), 1, &[n as u8], n, PacketClass::Data)
            .unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let told = receive(&mut world, 1, 1);
        assert_eq!(
            told.packets,
            [(0, header(1, n), vec![n as u8])],
            "a claim given back is never delivered"
        );
    }
}

fn arming_misses_nothing<W: World>(mut world: W) {
    let source = world.transport(1).wake_source();
    for n in 0..50 {
        // Sent before arming: the poll after arming finds it.
        send(world.transport(0), 1, &[1], n, PacketClass::Data)
            .unwrap_or_else(|refusal| panic!("{refusal:?}"));
        world.settle();
        world.transport(1).arm();
        receive(&mut world, 1, 1);
        world.transport(1).disarm();
        // Sent after arming: the word has changed, so this sleep ends without a time limit.
        let ticket = world.transport(1).arm();
        let mut told = RecordedEvents::default();
        world.transport(1).poll(16, &mut told);
        assert!(told.packets.is_empty());
        send(world.transport(0), 1, &[2], n, PacketClass::Data)
            .unwrap_or_else(|refusal| panic!("{refusal:?}"));
        world.settle();
        source.sleep(ticket, None);
        receive(&mut world, 1, 1);
        world.transport(1).disarm();
        let ticket = world.transport(1).arm();
        world.transport(0).wake_peer(1);
        source.sleep(ticket, None);
        world.transport(1).disarm();
        let ticket = world.transport(1).arm();
        source.wake();
        source.sleep(ticket, None);
        world.transport(1).disarm();
    }
}

fn death_is_told_once_and_refuses<W: World>(mut world: W) {
    send(world.transport(1), 0, &[5], 1, PacketClass::Data)
        .unwrap_or_else(|refusal| panic!("{refusal:?}"));
    // It dies between claim and commit.
    let claimed = world.transport(1).claim(0, 700, PacketClass::Data);
    assert!(claimed.is_ok());
    world.kill_second();
    let mut told = RecordedEvents::default();
    for _ in 0..PATIENCE {
        world.transport(0).poll(16, &mut told);
        if !told.gone.is_empty() {
            break;
        }
        world.settle();
    }
    for _ in 0..10 {
        world.transport(0).poll(16, &mut told);
    }
    assert_eq!(told.gone, [1], "a death is told, once");
    assert_eq!(
        told.packets.len(),
        1,
        "what a peer had sent before its death arrives, and nothing else"
    );
    assert_eq!(
        world.transport(0).claim(1, 8, PacketClass::Data).err(),
        Some(ClaimError::Gone)
    );
    assert_eq!(
        send(world.transport(0), 1, &[1], 1, PacketClass::Data),
        Err(ClaimError::Gone)
    );
}

fn expose<W: World>(
    world: &mut W,
    peer: Peer,
    token: BulkToken,
    data: &Data,
) -> Option<RegionDescriptor> {
    match world.transport(peer).expose(token, 1 - peer, data) {
        ExposeResult::Ready(descriptor) => Some(descriptor),
        ExposeResult::Unable => None,
        ExposeResult::Pending => {
            let mut told = RecordedEvents::default();
            while told.exposed.is_empty() {
                world.settle();
                world.transport(peer).poll(16, &mut told);
            }
            told.exposed[0].1
        }
    }
}

/// Which side a bulk operation fills.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BulkOperation {
    Read,
    Write,
}

fn bulk<W: World>(world: &mut W, way: BulkOperation, bulk: BulkTransfer<'_>) -> Result<(), Error> {
    let token = bulk.token;
    let transport = world.transport(0);
    let ending = if way == BulkOperation::Read {
        transport.read(bulk)?
    } else {
        transport.write(bulk)?
    };
    if ending == BulkStatus::Done {
        return Ok(());
    }
    let mut told = RecordedEvents::default();
    for _ in 0..PATIENCE {
        for peer in [1, 0] {
            world.transport(peer).poll(16, &mut told);
        }
        if let Some((_, result)) = told.done.iter().find(|(done, _)| *done == token) {
            return result.clone();
        }
        world.settle();
    }
    panic!("a bulk operation never ended");
}

fn regions_are_read_and_written<W: World>(mut world: W) {
    let Some(reach) = world.transport(0).capabilities(1) else {
        panic!("the two transports reach each other")
    };
    let bytes = pattern(100_000, 1);
    let (remote, local) = (scratch(&bytes), scratch(&vec![0; 100_000]));
    let exposed = Data::contiguous(remote.mem(), 100_000);
    let here = Data::contiguous(local.mem(), 100_000);
    let Some(descriptor) = expose(&mut world, 1, 7, &exposed) else {
        assert!(
            !reach.can_read && !reach.can_write,
            "a transport that claims to read exposes contiguous data"
        );
        return;
    };
    let part = |token| BulkTransfer {
        token,
        peer: 1,
        descriptor: &descriptor,
        offset: 1000,
        local: &here,
        local_offset: 50,
        len: 90_001,
    };
    if reach.can_read {
        bulk(&mut world, BulkOperation::Read, part(1)).unwrap_or_else(|error| panic!("{error:?}"));
        let mut got = vec![0; 100_000];
        local.mem().read(0, &mut got);
        assert_eq!(
            got[50..90_051],
            bytes[1000..91_001],
            "a read fetches what was asked for"
        );
        assert!(
            got[..50]
                .iter()
                .chain(&got[90_051..])
                .all(|byte| *byte == 0),
            "and touches nothing else"
        );
    }
    if reach.can_write {
        local.mem().write(50, &pattern(90_001, 2));
        bulk(&mut world, BulkOperation::Write, part(2)).unwrap_or_else(|error| panic!("{error:?}"));
        let mut got = vec![0; 100_000];
        remote.mem().read(0, &mut got);
        assert_eq!(
            got[1000..91_001],
            pattern(90_001, 2),
            "a write stores what was asked for"
        );
        assert_eq!(
            (&got[..1000], &got[91_001..]),
            (&bytes[..1000], &bytes[91_001..]),
            "and touches nothing else"
        );
    }
    assert_eq!(
        world.transport(1).revoke(7),
        BulkStatus::Done,
        "an unused region is withdrawn at once"
    );
}

fn offers_are_written_or_withdrawn<W: World>(mut world: W) {
    const LEN: usize = 5000;
    let can_write = world
        .transport(0)
        .capabilities(1)
        .is_some_and(|reach| reach.can_write);
    let (room, source) = (scratch(&[0; LEN]), scratch(&pattern(LEN, 3)));
    let (into, from) = (
        Data::contiguous(room.mem(), LEN as u64),
        Data::contiguous(source.mem(), LEN as u64 - 1000),
    );
    for withdrawn in [true, false] {
        // A transport may decline now and then.
        let mut tries = (0..PATIENCE).map(|_| {
            world
                .transport(1)
                .share_region(9, 0, &into, RendezvousMode::Write)
        });
        let Some(offer) = tries.find_map(|offer| offer) else {
            // One that never shares is not asked to write.
            return;
        };
        let part = |token| BulkTransfer {
            token,
            peer: 1,
            descriptor: &offer,
            offset: 0,
            local: &from,
            local_offset: 0,
            len: from.len,
        };
        if withdrawn {
            assert_eq!(
                world.transport(1).withdraw_region(9),
                WithdrawResult::Withdrawn
            );
        }
        let first = world
            .transport(0)
            .write_early(part(4))
            .unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(
            first.is_some(),
            can_write && !withdrawn,
            "an offer is written exactly if it was not withdrawn"
        );
        let mut step = first.unwrap_or(PartWritten {
            bytes: 0,
            last: true,
        });
        let mut bytes = step.bytes;
        if first.is_some() {
            assert_eq!(
                world.transport(1).withdraw_region(9),
                WithdrawResult::InUse,
                "what was taken is not given back"
            );
        }
        while !step.last {
            step = world
                .transport(0)
                .write_part(part(5))
                .unwrap_or_else(|error| panic!("{error:?}"));
            bytes += step.bytes;
        }
        let len = if first.is_some() { LEN - 1000 } else { 0 };
        assert_eq!(bytes, len as u64);
        let mut got = vec![0; LEN];
        room.mem().read(0, &mut got);
        assert_eq!(
            got[..len],
            pattern(LEN, 3)[..len],
            "the writer fills what it was offered"
        );
        assert!(
            got[len..].iter().all(|byte| *byte == 0),
            "and touches nothing else"
        );
        assert_eq!(world.transport(1).revoke(9), BulkStatus::Done);
        assert_eq!(
            world.transport(0).write_early(part(6)),
            Ok(None),
            "what was revoked is not written"
        );
    }
}

fn revoked_descriptors_move_nothing<W: World>(mut world: W) {
    let Some(reach) = world
        .transport(0)
        .capabilities(1)
        .filter(|reach| reach.can_read)
    else {
        return;
    };
    let (remote, local) = (scratch(&pattern(4096, 1)), scratch(&[0; 4096]));
    let here = Data::contiguous(local.mem(), 4096);
    let exposed = Data::contiguous(remote.mem(), 4096);
    let Some(stale) = expose(&mut world, 1, 1, &exposed) else {
        panic!("a transport that reads exposes contiguous data")
    };
    assert_eq!(world.transport(1).revoke(1), BulkStatus::Done);
    let Some(fresh) = expose(&mut world, 1, 2, &exposed) else {
        panic!("a table entry is used again")
    };
    let wrong = RegionDescriptor {
        cookie: fresh.cookie ^ 0xffff,
        ..fresh
    };
    for descriptor in [&stale, &wrong] {
        let part = |token| BulkTransfer {
            token,
            peer: 1,
            descriptor,
            offset: 0,
            local: &here,
            local_offset: 0,
            len: 4096,
        };
        assert!(
            matches!(
                bulk(&mut world, BulkOperation::Read, part(3)),
                Err(Error::Peer { .. })
            ),
            "a stale or wrong descriptor is refused"
        );
        if reach.can_write {
            assert!(matches!(
                bulk(&mut world, BulkOperation::Write, part(4)),
                Err(Error::Peer { .. })
            ));
        }
    }
    let mut got = vec![0; 4096];
    local.mem().read(0, &mut got);
    assert!(got.iter().all(|byte| *byte == 0), "and moves nothing");
    world.transport(1).revoke(2);
}

fn a_lifted_copy_keeps_its_region<W: World>(mut world: W) {
    let bytes = pattern(4096, 1);
    let (remote, local) = (scratch(&bytes), scratch(&[0; 4096]));
    let here = Data::contiguous(local.mem(), 4096);
    let Some(descriptor) = expose(&mut world, 1, 1, &Data::contiguous(remote.mem(), 4096)) else {
        return;
    };
    let part = BulkTransfer {
        token: 3,
        peer: 1,
        descriptor: &descriptor,
        offset: 96,
        local: &here,
        local_offset: 0,
        len: 4000,
    };
    let mut lift = || match world.transport(0).offload(part, OffloadKind::Read) {
        Ok(OffloadResult::Copy(step, load)) => Some((step.bytes, load)),
        _ => None,
    };
    let (Some((bytes_said, mut load)), other) = (lift(), lift()) else {
        return;
    };
    assert_eq!(bytes_said, 4000);
    drop(other);
    assert_eq!(
        world.transport(1).revoke(1),
        BulkStatus::Pending,
        "a copy is under way"
    );
    let carried = std::thread::scope(|scope| scope.spawn(|| load.run()).join());
    assert!(matches!(carried, Ok(Ok(()))), "any thread carries it");
    let mut got = vec![0; 4000];
    local.mem().read(0, &mut got);
    assert_eq!(got, bytes[96..]);
    let mut told = RecordedEvents::default();
    world.transport(1).poll(16, &mut told);
    assert!(told.revoked.is_empty(), "its region is still held");
    drop(load);
    world.transport(1).poll(16, &mut told);
    assert_eq!(told.revoked, [1], "now nobody uses it");
    assert!(
        world.transport(0).offload(part, OffloadKind::Read).is_err(),
        "nor can anybody"
    );
}
