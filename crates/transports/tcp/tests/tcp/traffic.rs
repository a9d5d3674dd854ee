//! Traffic between all pairs of a few ranks that notices any byte lost, doubled, changed or out of
//! order.

use garonne_engine::api::Peer;
use garonne_engine::transport::{
    BulkStatus, BulkTransfer, ClaimError, ExposeResult, PacketClass, PacketHeader,
    RegionDescriptor, Transport,
};
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::RecordedEvents;
use garonne_transport::conformance::vector::vector_of;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// A packet that says where bulk data lies.
const HERE: u8 = 3;
/// A packet that says that they were read.
const READ: u8 = 6;
/// Any other packet.
const PLAIN: u8 = 1;

/// Messages that every rank sends to every other.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub packets: u32,
    pub packet_max: u32,
    pub bulks: u32,
    pub bulk_max: u64,
}

/// Any 64 bits from any 64 bits.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The byte streams of (from, to, number), which differ everywhere.
pub fn bytes(from: Peer, to: Peer, number: u32, len: usize) -> Vec<u8> {
    let seed = mix(u64::from(from) << 48 | u64::from(to) << 32 | u64::from(number));
    let mut out = Vec::with_capacity(len + 8);
    let mut at = seed;
    while out.len() < len {
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(seed | 1);
        out.extend_from_slice(&(at ^ at >> 29).to_le_bytes());
    }
    out.truncate(len);
    out
}

fn packet_len(plan: &Plan, from: Peer, to: Peer, number: u32) -> usize {
    let roll = mix(u64::from(from) << 40 | u64::from(to) << 32 | u64::from(number));
    // Most are small.
    let most = if roll.is_multiple_of(8) {
        plan.packet_max
    } else {
        200
    };
    (roll >> 8) as usize % (most as usize + 1)
}

fn bulk_len(plan: &Plan, from: Peer, to: Peer, number: u32) -> u64 {
    1 + mix(u64::from(from) << 40 | u64::from(to) << 33 | u64::from(number)) % plan.bulk_max
}

/// Memory for bulk data: whole, in long blocks, or in short ones.
fn shaped(number: u32, len: u64) -> (Scratch, Data) {
    match number % 3 {
        0 => {
            let memory = Scratch::new(len as usize).unwrap();
            let data = Data::contiguous(memory.mem(), len);
            (memory, data)
        }
        1 => vector_of(len, 5000, 5600),
        _ => vector_of(len, 90, 100),
    }
}

/// State of a rank's exchange with one peer.
#[derive(Default)]
struct With {
    sent: u32,
    got: u32,
    told: u32,
    given_back: u32,
    read: u32,
    /// Words of packets that found no room: kind, number, payload.
    words: Vec<(u8, u32, Vec<u8>)>,
}

struct Reading {
    peer: Peer,
    number: u32,
    memory: Scratch,
    data: Data,
}

fn send(
    transport: &mut impl Transport,
    peer: Peer,
    (kind, number): (u8, u32),
    bytes: &[u8],
) -> bool {
    let header = PacketHeader {
        kind,
        len: bytes.len() as u32,
        sequence: number,
        ..PacketHeader::default()
    };
    let class = if kind == PLAIN {
        PacketClass::Data
    } else {
        PacketClass::Control
    };
    let result = if kind == PLAIN && bytes.len() <= transport.limits().inline_max {
        let memory = Scratch::new(bytes.len().max(1)).unwrap();
        memory.mem().write(0, bytes);
        transport.send_inline(peer, &header, memory.mem())
    } else {
        transport.claim(peer, bytes.len(), class).map(|room| {
            room.mem.write(0, bytes);
            transport.commit(room, &header);
        })
    };
    match result {
        Ok(()) => true,
        Err(ClaimError::Full) => false,
        Err(ClaimError::Gone) => panic!("a peer that lives is gone"),
    }
}

/// Runs rank `me` of `ranks` until it has everything and, by `done`, all others have. `idle` is
/// called when nothing happened.
pub fn run(
    transport: &mut impl Transport,
    (me, ranks): (Peer, u32),
    plan: Plan,
    done: &AtomicU32,
    mut idle: impl FnMut(),
) {
    let mut with: HashMap<Peer, With> = (0..ranks)
        .filter(|peer| *peer != me)
        .map(|peer| (peer, With::default()))
        .collect();
    let mut exposed: HashMap<(Peer, u32), Scratch> = HashMap::new();
    let mut reading: HashMap<u64, Reading> = HashMap::new();
    // Regions that are still being withdrawn.
    let mut returning: HashMap<u64, (Peer, Scratch)> = HashMap::new();
    // Memory that came back is used for other things at once.
    let used = |memory: Scratch| {
        memory
            .mem()
            .with_mut(0, memory.len(), |bytes| bytes.fill(0xdd))
    };
    let (mut next_read, mut finished) = (1 << 32, false);
    while done.load(Ordering::Acquire) < ranks {
        let mut moved = false;
        for (&peer, state) in &mut with {
            while let Some((kind, number, payload)) = state.words.first() {
                if !send(transport, peer, (*kind, *number), payload) {
                    break;
                }
                state.words.remove(0);
                moved = true;
            }
            if state.sent < plan.packets {
                let number = state.sent;
                let payload = bytes(me, peer, number, packet_len(&plan, me, peer, number));
                if send(transport, peer, (PLAIN, number), &payload) {
                    state.sent += 1;
                    moved = true;
                }
            }
            // A few regions at a time.
            if state.told < plan.bulks
                && state.told - state.given_back < 3
                && state.words.is_empty()
            {
                let number = state.told;
                let len = bulk_len(&plan, me, peer, number);
                let token = u64::from(peer) << 32 | u64::from(number) | 1 << 62;
                let (mut memory, mut data) = shaped(number, len);
                let mut exposing = transport.expose(token, peer, &data);
                if exposing == ExposeResult::Unable {
                    // Not every transport has every shape read.
                    (memory, data) = shaped(0, len);
                    exposing = transport.expose(token, peer, &data);
                }
                let ExposeResult::Ready(descriptor) = exposing else {
                    panic!("there is room for three regions")
                };
                data.unpack(0, &bytes(me, peer, number | 1 << 31, len as usize));
                exposed.insert((peer, number), memory);
                state.words.push((
                    HERE,
                    number,
                    [&descriptor.cookie.to_le_bytes(), descriptor.blob()].concat(),
                ));
                state.told += 1;
            }
        }
        let mut told = RecordedEvents::default();
        moved |= transport.poll(32, &mut told) > 0;
        assert!(
            told.gone.is_empty(),
            "{:?} of rank {me} count as gone",
            told.gone
        );
        let mut ended = told.done;
        for (peer, header, payload) in told.packets {
            let state = with.get_mut(&peer).unwrap();
            match header.kind {
                PLAIN => {
                    assert_eq!(
                        header.sequence, state.got,
                        "a packet of {peer} to {me} is lost, doubled or out of order"
                    );
                    assert_eq!(
                        payload,
                        bytes(peer, me, state.got, packet_len(&plan, peer, me, state.got))
                    );
                    state.got += 1;
                }
                HERE => {
                    let len = bulk_len(&plan, peer, me, header.sequence);
                    let (cookie, blob) = payload.split_first_chunk().unwrap();
                    let descriptor =
                        RegionDescriptor::new(u64::from_le_bytes(*cookie), blob).unwrap();
                    let (memory, data) = shaped(header.sequence / 3, len);
                    next_read += 1;
                    let bulk = BulkTransfer {
                        token: next_read,
                        peer,
                        descriptor: &descriptor,
                        offset: 0,
                        local: &data,
                        local_offset: 0,
                        len,
                    };
                    if transport.read(bulk).unwrap() == BulkStatus::Done {
                        ended.push((next_read, Ok(())));
                    }
                    let number = header.sequence;
                    reading.insert(
                        next_read,
                        Reading {
                            peer,
                            number,
                            memory,
                            data,
                        },
                    );
                }
                READ => {
                    let token = u64::from(peer) << 32 | u64::from(header.sequence) | 1 << 62;
                    let memory = exposed.remove(&(peer, header.sequence)).unwrap();
                    if transport.revoke(token) == BulkStatus::Pending {
                        returning.insert(token, (peer, memory));
                    } else {
                        used(memory);
                        state.given_back += 1;
                    }
                }
                other => panic!("a packet of kind {other}"),
            }
        }
        for token in told.revoked {
            let (peer, memory) = returning.remove(&token).unwrap();
            used(memory);
            with.get_mut(&peer).unwrap().given_back += 1;
        }
        for (token, result) in ended {
            result.unwrap();
            let Reading {
                peer,
                number,
                memory: _memory,
                data,
            } = reading.remove(&token).unwrap();
            let mut got = vec![0; data.len as usize];
            data.pack(0, &mut got);
            let expected = bytes(peer, me, number | 1 << 31, got.len());
            let wrong = got
                .iter()
                .zip(&expected)
                .position(|(got, expected)| got != expected);
            assert_eq!(
                wrong,
                None,
                "bulk {number} of {peer} to {me}, {} bytes",
                got.len()
            );
            let state = with.get_mut(&peer).unwrap();
            state.words.push((READ, number, vec![0]));
            state.read += 1;
        }
        let whole = |state: &With| {
            state.got == plan.packets
                && state.sent == plan.packets
                && state.read == plan.bulks
                && state.given_back == plan.bulks
                && state.words.is_empty()
        };
        if !finished && with.values().all(whole) {
            finished = true;
            done.fetch_add(1, Ordering::AcqRel);
        }
        if !moved {
            idle();
        }
    }
    let mut told = RecordedEvents::default();
    for _ in 0..50 {
        transport.poll(32, &mut told);
    }
    assert!(
        told.packets.is_empty() && told.done.is_empty(),
        "nothing comes twice"
    );
}
