//! A wire in memory between ranks of a world, with faults by a seed.

use garonne_ethernet::driver::{FrameDriver, SendResult};
use garonne_ethernet::frame::Mac;
use garonne_ethernet::{EthernetIdentity, EthernetPeers, EthernetTransport};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Frames between all ranks, and what happens to them.
#[derive(Default)]
pub struct Wire {
    queues: Mutex<Vec<VecDeque<Vec<u8>>>>,
    /// Readable while a rank's queue may hold frames.
    bells: Vec<OwnedFd>,
    /// Chances in 256 that a frame is lost, repeated, changed, or overtaken.
    pub faults: [u8; 4],
    draws: AtomicU64,
    /// Nanoseconds.
    pub now: AtomicU64,
    /// Ranks that died.
    pub dead: Mutex<Vec<u32>>,
    cut: Mutex<bool>,
    /// Most bytes behind the Ethernet header that interfaces take, and that arrive; 0: 1500.
    pub takes: AtomicUsize,
    pub carries: AtomicUsize,
    /// Frames that wait for a rank at most, in the queue of a switch; 0: any number.
    pub queue: AtomicUsize,
    /// Ranks encrypt frames.
    pub sealed: AtomicBool,
    /// Frames that a switch dropped.
    pub dropped: AtomicUsize,
}

/// The number, or 1500 instead of 0.
fn or_default(number: &AtomicUsize) -> usize {
    match number.load(Ordering::Relaxed) {
        0 => 1500,
        number => number,
    }
}

pub fn mac(rank: u32) -> Mac {
    [2, 0, 0, 0, 0, rank as u8]
}

impl Wire {
    pub fn new(ranks: usize, faults: [u8; 4], seed: u64) -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::new(vec![VecDeque::new(); ranks]),
            bells: (0..ranks)
                .map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap())
                .collect(),
            faults,
            draws: AtomicU64::new(seed),
            ..Self::default()
        })
    }

    /// A wire between ranks that encrypt.
    pub fn sealed(ranks: usize, faults: [u8; 4], seed: u64) -> Arc<Self> {
        let wire = Self::new(ranks, faults, seed);
        wire.sealed.store(true, Ordering::Relaxed);
        wire
    }

    /// SplitMix64.
    pub fn draw(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut z = self
            .draws
            .fetch_add(step, Ordering::Relaxed)
            .wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&self, fault: usize) -> bool {
        self.draw() % 256 < u64::from(self.faults[fault])
    }

    pub fn cut(&self, cut: bool) {
        *self.cut.lock().unwrap() = cut;
    }

    /// Puts a frame on the wire to a rank, whoever made it.
    pub fn inject(&self, to: usize, frame: Vec<u8>) {
        self.queues.lock().unwrap()[to].push_back(frame);
    }

    /// Returns the frames that wait for a rank.
    pub fn waiting(&self, to: usize) -> Vec<Vec<u8>> {
        self.queues.lock().unwrap()[to].iter().cloned().collect()
    }

    fn send(&self, frame: &[u8]) {
        let to = usize::from(frame[5]);
        let carries = or_default(&self.carries);
        if *self.cut.lock().unwrap() || frame.len() - 14 > carries || self.happens(0) {
            return;
        }
        let mut frame = frame.to_vec();
        let copies = 1 + usize::from(self.happens(1));
        if self.happens(2) {
            let bit = self.draw() as usize % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        for _ in 0..copies {
            let overtakes = self.happens(3);
            let mut queues = self.queues.lock().unwrap();
            let queue = &mut queues[to];
            let longest = self.queue.load(Ordering::Relaxed);
            if longest > 0 && queue.len() >= longest {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            match overtakes && !queue.is_empty() {
                true => queue.insert(queue.len() - 1, frame.clone()),
                false => queue.push_back(frame.clone()),
            }
            rustix::io::write(&self.bells[to], &1u64.to_ne_bytes()).unwrap();
        }
    }

    pub fn transport(self: &Arc<Self>, rank: u32, secret: u8) -> EthernetTransport {
        let identity = EthernetIdentity {
            secret: [secret; 32],
            world: b"world".to_vec(),
            job: 77,
            rank,
            sealed: self.sealed.load(Ordering::Relaxed),
        };
        let wire = self.clone();
        let clock = Box::new(move || wire.now.load(Ordering::Relaxed));
        let driver = Box::new(WireEnd(self.clone(), rank));
        EthernetTransport::new(identity, Arc::new(Ranks(self.clone())), driver, clock).unwrap()
    }
}

struct Ranks(Arc<Wire>);

impl EthernetPeers for Ranks {
    fn mac(&self, peer: u32) -> Option<Mac> {
        ((peer as usize) < self.0.queues.lock().unwrap().len()).then(|| mac(peer))
    }
    fn is_gone(&self, peer: u32) -> bool {
        self.0.dead.lock().unwrap().contains(&peer)
    }
    fn has_left(&self, _: u32) -> bool {
        false
    }
}

struct WireEnd(Arc<Wire>, u32);

impl FrameDriver for WireEnd {
    fn mac(&self) -> Mac {
        mac(self.1)
    }
    fn payload_max(&self) -> usize {
        or_default(&self.0.takes)
    }
    fn slots(&self) -> usize {
        1024
    }
    fn ethertype(&self) -> u16 {
        0x88B5
    }
    fn send(&mut self, frame: &[u8]) -> SendResult {
        if frame.len() - 14 > self.payload_max() {
            return SendResult::TooLong;
        }
        self.0.send(frame);
        SendResult::Sent
    }
    fn receive(&mut self, budget: u32, take: &mut dyn FnMut(&[u8])) -> u32 {
        let mut taken = 0;
        while taken < budget {
            let Some(frame) = self.0.queues.lock().unwrap()[self.1 as usize].pop_front() else {
                let _ = rustix::io::read(&self.0.bells[self.1 as usize], &mut [0; 8]);
                break;
            };
            take(&frame);
            taken += 1;
        }
        taken
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.bells[self.1 as usize].as_fd())
    }
}
