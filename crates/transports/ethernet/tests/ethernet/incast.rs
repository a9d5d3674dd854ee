//! Seven senders and one receiver behind a switch: its port passes a few frames in each step, and
//! its queue is shorter than what the senders may have under way.

use crate::wire::Wire;
use garonne_engine::transport::{BulkTransfer, ExposeResult, PacketClass, RemoteMemory, Transport};
use garonne_ethernet::EthernetTransport;
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::{RecordedEvents, send};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SENDERS: u32 = 7;
/// Frames that the port passes in a step of ten microseconds: 1.2 GB/s.
const FRAMES: u32 = 8;
const STEP_NS: u64 = 10_000;
/// Frames in the queue of the port.
const QUEUE: usize = 256;
/// Bytes of large data in a frame of 1500.
const CHUNK: usize = 1452;

struct Incast {
    wire: Arc<Wire>,
    senders: Vec<EthernetTransport>,
    receiver: EthernetTransport,
    told: RecordedEvents,
    steps: usize,
}

impl Incast {
    fn new() -> Self {
        let wire = Wire::new(SENDERS as usize + 1, [0; 4], 1);
        wire.queue.store(QUEUE, Ordering::Relaxed);
        Self {
            senders: (1..=SENDERS).map(|rank| wire.transport(rank, 7)).collect(),
            receiver: wire.transport(0, 7),
            wire,
            told: RecordedEvents::default(),
            steps: 0,
        }
    }

    fn step(&mut self) {
        self.wire.now.fetch_add(STEP_NS, Ordering::Relaxed);
        self.steps += 1;
        assert!(self.steps < 100_000, "{:?}", self.receiver);
        for sender in &mut self.senders {
            sender.poll(64, &mut RecordedEvents::default());
        }
        self.receiver.poll(FRAMES, &mut self.told);
    }

    /// Returns which part of what the port could have passed were `frames` that were useful.
    fn part(&self, frames: usize) -> f64 {
        frames as f64 / (self.steps * FRAMES as usize) as f64
    }
}

#[test]
fn large_data_of_seven_senders_keep_the_link_busy_and_lose_nothing() {
    const LEN: usize = 4 << 20;
    let mut incast = Incast::new();
    let (from, to) = (Scratch::new(LEN).unwrap(), Scratch::new(LEN).unwrap());
    from.mem().write(0, &vec![7; LEN]);
    let data = Data::contiguous(from.mem(), LEN as u64);
    let local = Data::contiguous(to.mem(), LEN as u64);
    for (peer, sender) in (1..).zip(&mut incast.senders) {
        let ExposeResult::Ready(descriptor) = sender.expose(1, 0, &data) else {
            panic!("nothing is exposed yet");
        };
        let bulk = BulkTransfer {
            token: u64::from(peer),
            peer,
            descriptor: &descriptor,
            offset: 0,
            local: &local,
            local_offset: 0,
            len: LEN as u64,
        };
        incast.receiver.read(bulk).unwrap();
    }
    while incast.told.done.len() < SENDERS as usize {
        incast.step();
    }
    let part = incast.part(SENDERS as usize * LEN.div_ceil(CHUNK));
    assert!(part >= 0.9, "{part} of the link in {} steps", incast.steps);
}

#[test]
fn packets_of_seven_senders_keep_the_link_busy_though_the_switch_drops_some() {
    const PACKETS: usize = 300;
    /// Six frames, the engine's header among their bytes.
    const LEN: usize = 6 * CHUNK - 24;
    let mut incast = Incast::new();
    let (mut sent, payload) = ([0; SENDERS as usize], vec![7; LEN]);
    while incast.told.packets.len() < PACKETS * SENDERS as usize {
        for (sent, sender) in sent.iter_mut().zip(&mut incast.senders) {
            while *sent < PACKETS && send(sender, 0, &payload, *sent, PacketClass::Data).is_ok() {
                *sent += 1;
            }
        }
        incast.step();
    }
    let dropped = incast.wire.dropped.load(Ordering::Relaxed);
    assert!(dropped > 0, "a queue as long as all windows is no test");
    let part = incast.part(PACKETS * SENDERS as usize * 6);
    assert!(part >= 0.9, "{part} of the link, {dropped} frames dropped");
}
