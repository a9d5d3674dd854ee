//! Frames of strangers, replays, wrong keys, garbage, and a wire that is cut for a while.

use crate::wire::{Wire, mac};
use garonne_engine::transport::{
    BulkStatus, BulkTransfer, ExposeResult, PacketClass, RemoteMemory, Transport,
};
use garonne_ethernet::EthernetTransport;
use garonne_ethernet::frame::{Endpoint, FrameBody, FrameHead, FrameKey};
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::{RecordedEvents, send};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROUNDS: usize = 20_000;

fn step(wire: &Wire, ends: &mut [EthernetTransport], told: &mut [RecordedEvents]) {
    wire.now.fetch_add(100_000, Ordering::Relaxed);
    for (end, told) in ends.iter_mut().zip(told) {
        end.poll(64, told);
    }
}

fn pair(wire: &Arc<Wire>, secrets: [u8; 2]) -> [EthernetTransport; 2] {
    [0, 1].map(|rank| wire.transport(rank, secrets[rank as usize]))
}

#[test]
fn another_key_is_never_heard_and_counted() {
    let wire = Wire::new(2, [0; 4], 1);
    let mut ends = pair(&wire, [7, 8]);
    let mut told = [RecordedEvents::default(), RecordedEvents::default()];
    send(&mut ends[0], 1, b"secret", 0, PacketClass::Data).unwrap();
    for _ in 0..100 {
        step(&wire, &mut ends, &mut told);
    }
    assert!(told[1].packets.is_empty());
    assert!(ends[1].counts().forged > 0 && ends[1].counts().received == 0);
    assert_eq!(ends[0].owed(), [1]);
}

#[test]
fn a_flood_of_garbage_and_replays_changes_nothing() {
    let wire = Wire::new(2, [0; 4], 3);
    let mut ends = pair(&wire, [7, 7]);
    let mut told = [RecordedEvents::default(), RecordedEvents::default()];
    let (mut sent, mut kept) = (0, Vec::new());
    for _ in 0..ROUNDS {
        if sent < 200
            && send(
                &mut ends[0],
                1,
                &[sent as u8; 3000],
                sent,
                PacketClass::Data,
            )
            .is_ok()
        {
            sent += 1;
        }
        let waiting = wire.waiting(1);
        kept.extend(waiting.into_iter().take(2));
        kept.truncate(400);
        for _ in 0..4 {
            let draw = wire.draw() as usize;
            let frame = match (draw % 3, kept.get(draw % kept.len().max(1))) {
                (0, Some(replay)) => replay.clone(),
                (1, Some(changed)) => {
                    let mut changed = changed.clone();
                    let at = draw / 8 % changed.len();
                    changed[at] ^= 1 << (draw % 8);
                    changed.truncate(changed.len() - draw % 7);
                    changed
                }
                _ => (0..draw % 200).map(|_| wire.draw() as u8).collect(),
            };
            wire.inject(1, frame);
        }
        step(&wire, &mut ends, &mut told);
        if told[1].packets.len() == 200 && ends[0].owed().is_empty() {
            break;
        }
    }
    let came: Vec<_> = told[1]
        .packets
        .iter()
        .map(|packet| packet.1.sequence)
        .collect();
    assert_eq!(came, (0..200).collect::<Vec<_>>());
    assert!(told.iter().all(|told| told.gone.is_empty()), "{told:?}");
    let counts = ends[1].counts();
    assert!(counts.forged > 0 && counts.malformed > 0, "{counts:?}");
}

#[test]
fn large_data_are_pulled_through_faults() {
    let wire = Wire::new(2, [30, 30, 30, 60], 5);
    let mut ends = pair(&wire, [7, 7]);
    let mut told = [RecordedEvents::default(), RecordedEvents::default()];
    for (token, len) in [(1, 1), (2, 1452), (3, 46_465), (4, 300_001)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
        let (from, to) = (Scratch::new(len).unwrap(), Scratch::new(len).unwrap());
        from.mem().write(0, &bytes);
        let data = Data::contiguous(from.mem(), len as u64);
        let ExposeResult::Ready(descriptor) = ends[0].expose(token, 1, &data) else {
            panic!("nothing is exposed yet");
        };
        let local = Data::contiguous(to.mem(), len as u64);
        let bulk = BulkTransfer {
            token,
            peer: 0,
            descriptor: &descriptor,
            offset: 0,
            local: &local,
            local_offset: 0,
            len: len as u64,
        };
        assert_eq!(ends[1].read(bulk), Ok(BulkStatus::Pending));
        for _ in 0..ROUNDS {
            step(&wire, &mut ends, &mut told);
            if !told[1].done.is_empty() {
                break;
            }
        }
        assert_eq!(std::mem::take(&mut told[1].done), [(token, Ok(()))]);
        let mut got = vec![0; len];
        to.mem().read(0, &mut got);
        assert!(got == bytes, "{len} bytes");
        assert_eq!(ends[0].revoke(token), BulkStatus::Done);
    }
}

#[test]
fn a_wire_that_is_cut_for_a_while_loses_nothing() {
    let wire = Wire::new(2, [0; 4], 1);
    let mut ends = pair(&wire, [7, 7]);
    let mut told = [RecordedEvents::default(), RecordedEvents::default()];
    wire.cut(true);
    let mut sent = 0;
    for _ in 0..ROUNDS {
        if sent < 40 && send(&mut ends[0], 1, &[1; 100], sent, PacketClass::Data).is_ok() {
            sent += 1;
        }
        step(&wire, &mut ends, &mut told);
    }
    assert!(told[1].packets.is_empty() && told[0].gone.is_empty());
    // One frame at a time asks whether somebody is there.
    assert!(ends[0].repeated() < 100, "{}", ends[0].repeated());
    wire.cut(false);
    for _ in 0..ROUNDS {
        step(&wire, &mut ends, &mut told);
        if ends[0].owed().is_empty() {
            break;
        }
    }
    assert_eq!(told[1].packets.len(), 40);
}

#[test]
fn a_peer_whose_right_frames_make_no_packets_is_lost_and_told_once() {
    let wire = Wire::new(2, [0; 4], 1);
    let mut end = wire.transport(0, 7);
    let other = |rank| Endpoint {
        mac: mac(rank),
        rank,
    };
    let key = FrameKey::derive(&[7; 32], b"world", other(1), other(0));
    let head = FrameHead {
        to_mac: mac(0),
        from_mac: mac(1),
        ethertype: 0x88B5,
        job: 77,
        to: 0,
        from: 1,
        quiet: false,
        body: FrameBody::Piece {
            first: false,
            number: 0,
            acknowledged: 0,
            selective: 0,
        },
    };
    let mut frame = vec![0; 100];
    head.encode(&key, &mut frame);
    wire.inject(0, frame.clone());
    wire.inject(0, frame);
    let mut told = RecordedEvents::default();
    for _ in 0..5 {
        end.poll(64, &mut told);
    }
    assert_eq!(told.gone, [1]);
    assert!(end.capabilities(1).is_none());
}
