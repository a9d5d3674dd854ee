//! Networks that pass no frames, or not the long ones, from the beginning or after a while.

use crate::wire::Wire;
use garonne_engine::transport::{BulkTransfer, ExposeResult, PacketClass, RemoteMemory, Transport};
use garonne_ethernet::{Carrier, EthernetTransport};
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::{RecordedEvents, send};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Two ranks, and a TCP connection between them that loses nothing.
struct Pair {
    wire: Arc<Wire>,
    ends: [EthernetTransport; 2],
    told: [RecordedEvents; 2],
    by_tcp: u64,
    sequence: usize,
}

impl Pair {
    fn new(wire: Arc<Wire>) -> Self {
        Self {
            ends: [0, 1].map(|rank| wire.transport(rank, 7)),
            wire,
            told: Default::default(),
            by_tcp: 0,
            sequence: 0,
        }
    }

    fn step(&mut self) {
        self.wire.now.fetch_add(100_000, Ordering::Relaxed);
        for (end, told) in self.ends.iter_mut().zip(&mut self.told) {
            end.poll(64, told);
        }
        for from in 0..2 {
            while let Some((to, frame)) = self.ends[from].by_tcp() {
                assert_ne!(to as usize, from);
                let frame = frame.to_vec();
                self.ends[from].taken_by_tcp();
                self.by_tcp += 1;
                let (told, peer) = (&mut self.told[to as usize], from as u32);
                self.ends[to as usize].take_by_tcp(peer, &frame, told);
            }
        }
    }

    /// Steps that take so long.
    fn pass(&mut self, ms: u64) {
        (0..10 * ms).for_each(|_| self.step());
    }

    /// One packet and a read of some length, from the first to the second. Returns how many
    /// milliseconds both took.
    fn exchange(&mut self, packet: usize, read: usize) -> u64 {
        let began = self.wire.now.load(Ordering::Relaxed);
        let bytes = vec![self.sequence as u8; packet];
        send(
            &mut self.ends[0],
            1,
            &bytes,
            self.sequence,
            PacketClass::Data,
        )
        .unwrap();
        self.sequence += 1;
        let (from, to) = (Scratch::new(read).unwrap(), Scratch::new(read).unwrap());
        let bytes: Vec<u8> = (0..read).map(|at| (at * 7 % 251) as u8).collect();
        from.mem().write(0, &bytes);
        let data = Data::contiguous(from.mem(), read as u64);
        let ExposeResult::Ready(descriptor) = self.ends[0].expose(1, 1, &data) else {
            panic!("nothing is exposed yet");
        };
        let local = Data::contiguous(to.mem(), read as u64);
        let bulk = BulkTransfer {
            token: 1,
            peer: 0,
            descriptor: &descriptor,
            offset: 0,
            local: &local,
            local_offset: 0,
            len: read as u64,
        };
        self.ends[1].read(bulk).unwrap();
        let has_all = |pair: &Self| {
            let got = &pair.told[1];
            got.packets.len() == pair.sequence && !got.done.is_empty()
        };
        while !has_all(self) {
            self.step();
            let took = self.wire.now.load(Ordering::Relaxed) - began;
            assert!(took < 20_000_000_000, "{:?}", self.told[1].packets.len());
        }
        self.told[1].done.clear();
        let mut got = vec![0; read];
        to.mem().read(0, &mut got);
        assert!(got == bytes);
        assert!(self.told.iter().all(|told| told.gone.is_empty()));
        self.ends[0].revoke(1);
        (self.wire.now.load(Ordering::Relaxed) - began) / 1_000_000
    }
}

#[test]
fn a_network_that_passes_no_frames_is_left_for_tcp_within_a_second() {
    let mut pair = Pair::new(Wire::new(2, [0; 4], 1));
    pair.wire.cut(true);
    let took = pair.exchange(3000, 300_000);
    assert!(took < 1000, "{took} ms");
    for (end, peer) in pair.ends.iter().zip([1, 0]) {
        assert_eq!(end.path_to(peer).unwrap().0, Carrier::Tcp);
    }
    // Then nothing waits for it any more.
    let took = pair.exchange(3000, 300_000);
    assert!(took < 20, "{took} ms");
}

#[test]
fn encrypted_frames_say_nothing_and_go_every_way() {
    let mut pair = Pair::new(Wire::sealed(2, [0; 4], 1));
    pair.exchange(3000, 300_000);
    assert_eq!(pair.by_tcp, 0);
    send(
        &mut pair.ends[0],
        1,
        &[0; 300],
        pair.sequence,
        PacketClass::Data,
    )
    .unwrap();
    pair.sequence += 1;
    let waiting = pair.wire.waiting(1);
    assert!(waiting.iter().any(|frame| frame.len() > 300));
    for frame in waiting {
        assert!(!frame[62..].windows(8).any(|bytes| bytes == [0; 8]));
    }
    pair.wire.cut(true);
    pair.exchange(3000, 300_000);
    assert_eq!(pair.ends[0].path_to(1).unwrap().0, Carrier::Tcp);
}

#[test]
fn a_network_that_passes_frames_again_is_taken_again() {
    let mut pair = Pair::new(Wire::new(2, [0; 4], 1));
    pair.exchange(3000, 300_000);
    assert_eq!(pair.by_tcp, 0);
    pair.wire.cut(true);
    pair.exchange(3000, 300_000);
    assert_eq!(pair.ends[0].path_to(1).unwrap().0, Carrier::Tcp);
    pair.wire.cut(false);
    for _ in 0..20 {
        pair.exchange(3000, 30_000);
        pair.pass(100);
    }
    for (end, peer) in pair.ends.iter().zip([1, 0]) {
        assert_eq!(end.path_to(peer), Some((Carrier::Frames, 1500)));
    }
    let before = pair.by_tcp;
    pair.exchange(3000, 300_000);
    assert_eq!(pair.by_tcp, before);
}

#[test]
fn jumbo_frames_are_found_where_they_arrive_and_left_where_they_no_longer_do() {
    let wire = Wire::new(2, [0; 4], 1);
    wire.takes.store(9000, Ordering::Relaxed);
    wire.carries.store(9000, Ordering::Relaxed);
    let mut pair = Pair::new(wire);
    let exchanges = |pair: &mut Pair, times| {
        for _ in 0..times {
            pair.exchange(30_000, 30_000);
            pair.pass(40);
        }
    };
    exchanges(&mut pair, 5);
    assert_eq!(pair.ends[0].path_to(1), Some((Carrier::Frames, 9000)));
    assert_eq!(pair.ends[1].path_to(0), Some((Carrier::Frames, 9000)));
    // Switches on the way carry less from now on, and nobody says so.
    pair.wire.carries.store(1500, Ordering::Relaxed);
    exchanges(&mut pair, 25);
    for (end, peer) in pair.ends.iter().zip([1, 0]) {
        let (carrier, max) = end.path_to(peer).unwrap();
        assert_eq!(carrier, Carrier::Frames);
        assert!((1400..=1500).contains(&max), "{max}");
    }
    // The interface itself carries less.
    pair.wire.takes.store(1000, Ordering::Relaxed);
    exchanges(&mut pair, 5);
    assert!(pair.ends[0].path_to(1).unwrap().1 <= 1000);
}

#[test]
fn an_interface_that_takes_long_frames_is_not_believed() {
    let wire = Wire::new(2, [0; 4], 1);
    wire.takes.store(9000, Ordering::Relaxed);
    let mut pair = Pair::new(wire);
    for _ in 0..25 {
        pair.exchange(30_000, 30_000);
        pair.pass(40);
    }
    for (end, peer) in pair.ends.iter().zip([1, 0]) {
        assert_eq!(end.path_to(peer), Some((Carrier::Frames, 1500)));
    }
    assert_eq!(pair.by_tcp, 0);
}

#[test]
fn a_peer_that_computes_for_long_gets_frames_as_before() {
    let mut pair = Pair::new(Wire::new(2, [0; 4], 1));
    pair.exchange(3000, 3000);
    send(&mut pair.ends[0], 1, b"late", 1, PacketClass::Data).unwrap();
    for _ in 0..100_000 {
        pair.wire.now.fetch_add(100_000, Ordering::Relaxed);
        pair.ends[0].poll(64, &mut pair.told[0]);
    }
    pair.pass(1000);
    assert_eq!(pair.told[1].packets.len(), 2);
    assert_eq!(pair.ends[0].path_to(1), Some((Carrier::Frames, 1500)));
}
