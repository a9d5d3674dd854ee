//! Reads by libfabric's `tcp` provider between two transports of one thread: any range, whatever
//! breaks in the middle, and memory that is asked back while it is lent.

use crate::frame::FABRIC;
use crate::ofi_path::STREAM;
use crate::{LocalIdentity, OfiSetting, PeerDirectory, ProcessId, Secret, TcpTransport, listen};
use garonne_engine::api::Peer;
use garonne_engine::transport::{
    BulkStatus, BulkTransfer, ExposeResult, RegionDescriptor, RemoteMemory, Transport,
};
use garonne_ofi::library::Library;
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::RecordedEvents;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const LEN: usize = 3_000_001;

struct Two([SocketAddr; 2]);

impl PeerDirectory for Two {
    fn size(&self) -> u32 {
        2
    }
    fn incarnation(&self, _: Peer) -> u32 {
        0
    }
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        vec![self.0[peer as usize]]
    }
    fn is_gone(&self, _: Peer) -> bool {
        false
    }
    fn fabrics(&self) -> OfiSetting {
        OfiSetting::Of("tcp".into())
    }
}

/// Rank 1 exposes memory, and rank 0 reads it.
struct Pair {
    transports: [Option<TcpTransport>; 2],
    told: [RecordedEvents; 2],
    source: Scratch,
    local: Scratch,
    data: Data,
    descriptor: RegionDescriptor,
    next_token: u64,
}

impl Pair {
    /// `None`: there is no such provider here.
    fn new() -> Option<Self> {
        if let Err(error) =
            Library::load().and_then(|library| library.offers(Some("tcp"), Some("127.0.0.1")))
        {
            eprintln!("skipped: {error}");
            return None;
        }
        let secret = Secret::generate().unwrap();
        let listeners = [0; 2].map(|_| listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap());
        let addresses = [0, 1].map(|rank: usize| listeners[rank].local_addr().unwrap());
        let mut rank = 0;
        let mut transports = listeners.map(|listener| {
            let me = ProcessId {
                job: [7; 16],
                world: 0,
                rank,
                incarnation: 0,
            };
            rank += 1;
            let identity = LocalIdentity::new(secret.clone(), me, false);
            Some(TcpTransport::new(identity, Arc::new(Two(addresses)), listener).unwrap())
        });
        let (source, local) = (Scratch::new(LEN).unwrap(), Scratch::new(LEN).unwrap());
        source.mem().with_mut(0, LEN, |bytes| {
            bytes
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = byte_at(at));
        });
        let exposed = Data::contiguous(source.mem(), LEN as u64);
        let ExposeResult::Ready(descriptor) =
            transports[1].as_mut().unwrap().expose(77, 0, &exposed)
        else {
            panic!("it can be exposed")
        };
        Some(Self {
            transports,
            told: [RecordedEvents::default(), RecordedEvents::default()],
            data: Data::contiguous(local.mem(), LEN as u64),
            source,
            local,
            descriptor,
            next_token: 1,
        })
    }

    fn transport(&mut self, rank: usize) -> &mut TcpTransport {
        self.transports[rank].as_mut().unwrap()
    }

    fn poll(&mut self, rank: usize) {
        if let Some(transport) = &mut self.transports[rank] {
            transport.poll(16, &mut self.told[rank]);
        }
    }

    /// Polls both until it is so.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < LIMIT, "{what}");
            self.poll(0);
            self.poll(1);
            // What a rank does that waits.
            self.transports.iter_mut().flatten().for_each(|transport| {
                transport.arm();
            });
        }
    }

    /// Begins to read a range to its place at `to`.
    fn read(&mut self, (offset, len): (usize, usize), to: usize) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.local.mem().with_mut(0, LEN, |bytes| bytes.fill(0));
        let (descriptor, data) = (self.descriptor, self.data.clone());
        let bulk = BulkTransfer {
            token,
            peer: 1,
            descriptor: &descriptor,
            offset: offset as u64,
            local: &data,
            local_offset: to as u64,
            len: len as u64,
        };
        assert_eq!(self.transport(0).read(bulk).unwrap(), BulkStatus::Pending);
        token
    }

    fn ended(&mut self, token: u64) -> bool {
        let at = self.told[0]
            .done
            .iter()
            .position(|(done, _)| *done == token);
        at.is_some_and(|at| self.told[0].done.remove(at).1.is_ok())
    }

    /// Returns whether the range is there, and nothing else.
    fn check(&self, (offset, len): (usize, usize), to: usize) {
        self.local.mem().with(0, LEN, |bytes| {
            let wrong = (0..len).find(|at| bytes[to + at] != byte_at(offset + at));
            assert_eq!(wrong, None, "{len} bytes from {offset} to {to}");
            assert!(
                bytes[..to]
                    .iter()
                    .chain(&bytes[to + len..])
                    .all(|byte| *byte == 0)
            );
        });
    }

    fn brought(&mut self) -> u64 {
        self.transport(0)
            .brought_by(1)
            .get(usize::from(FABRIC))
            .copied()
            .unwrap_or(0)
    }

    /// Reads until the way has brought something.
    fn open(&mut self) {
        let begun = Instant::now();
        while self.brought() == 0 {
            assert!(begun.elapsed() < LIMIT, "the way never opened");
            let token = self.read((0, LEN), 0);
            self.until("a read", |pair| pair.ended(token));
            self.check((0, LEN), 0);
        }
    }

    fn lends(&mut self) -> bool {
        let fabric = self
            .transport(1)
            .ctx
            .peers
            .get(0)
            .and_then(|remote| remote.paths.fabric());
        fabric.is_some_and(super::OfiPath::is_serving)
    }

    /// Begins a read, of which the owner has lent something that the reader does not know of yet.
    /// No socket carries any of it before: which way is quicker is not the question.
    fn lend(&mut self) -> u64 {
        let paths = |pair: &mut Self, drained| {
            let remote = pair.transport(0).ctx.peers.get_mut(1).unwrap();
            remote.paths.set_drained(0, drained);
        };
        paths(self, true);
        let (token, begun) = (self.read((0, LEN), 0), Instant::now());
        while !self.lends() {
            assert!(begun.elapsed() < LIMIT, "nothing was lent");
            self.poll(0);
            for _ in 0..50 {
                self.poll(1);
            }
        }
        paths(self, false);
        token
    }
}

fn byte_at(at: usize) -> u8 {
    ((at * 7) ^ (at >> 9)) as u8 | 1
}

/// Any 64 bits after any others.
fn roll(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn any_range_arrives_whole_whichever_side_breaks_the_way_in_the_middle() {
    let Some(mut pair) = Pair::new() else { return };
    pair.open();
    let (mut dice, mut broke) = (3, 0);
    for round in 0..60 {
        let len = 1 + roll(&mut dice) % if round % 4 == 0 { 5000 } else { LEN - 1 };
        let (offset, to) = (
            roll(&mut dice) % (LEN - len + 1),
            roll(&mut dice) % (LEN - len + 1),
        );
        let token = pair.read((offset, len), to);
        if round % 3 == 0 {
            for _ in 0..roll(&mut dice) % 30 {
                pair.poll(0);
                pair.poll(1);
            }
            let side = round / 3 % 2;
            if pair
                .transport(side)
                .ctx
                .peers
                .get(1 - side as Peer)
                .unwrap()
                .fd(STREAM)
                .is_some()
            {
                let transport = pair.transport(side);
                transport
                    .connections
                    .broke(&mut transport.ctx, 1 - side as Peer, STREAM);
                broke += 1;
            }
        }
        pair.until("a read", |pair| pair.ended(token));
        pair.check((offset, len), to);
        assert!(pair.told.iter().all(|told| told.gone.is_empty()));
    }
    assert!(broke > 0);
}

#[test]
fn the_reads_of_a_peer_that_dies_in_the_middle_fail_and_their_memory_is_left_alone() {
    let Some(mut pair) = Pair::new() else { return };
    pair.open();
    let token = pair.lend();
    pair.transports[1].take().unwrap().sever();
    pair.source.mem().with_mut(0, LEN, |bytes| bytes.fill(0xdd));
    pair.until("the death", |pair| !pair.told[0].gone.is_empty());
    let ended = pair.told[0].done.iter().find(|(done, _)| *done == token);
    assert!(
        ended.is_some_and(|(_, result)| result.is_err()),
        "{ended:?}"
    );
    let left = pair.local.mem().with(0, LEN, <[u8]>::to_vec);
    for _ in 0..50 {
        pair.poll(0);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(pair.local.mem().with(0, LEN, |bytes| bytes == left));
}

#[test]
fn memory_that_is_asked_back_comes_back_when_its_reader_is_through() {
    let Some(mut pair) = Pair::new() else { return };
    pair.open();
    let token = pair.lend();
    assert_eq!(pair.transport(1).revoke(77), BulkStatus::Pending);
    assert!(pair.told[1].revoked.is_empty());
    pair.until("its end", |pair| pair.told[1].revoked == [77]);
    // What was lent was read; the rest of the read may have been refused.
    pair.until("the read's end", |pair| {
        pair.told[0].done.iter().any(|(done, _)| *done == token)
    });
    assert!(!pair.lends());
}

#[test]
fn memory_that_is_asked_back_comes_back_from_a_reader_that_does_not_look() {
    let Some(mut pair) = Pair::new() else { return };
    pair.open();
    let token = pair.lend();
    assert_eq!(pair.transport(1).revoke(77), BulkStatus::Pending);
    let begun = Instant::now();
    while pair.told[1].revoked.is_empty() {
        assert!(begun.elapsed() < LIMIT);
        pair.poll(1);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pair.told[1].revoked, [77]);
    // Its memory is used for something else, of which the reader gets nothing.
    pair.source.mem().with_mut(0, LEN, |bytes| bytes.fill(0xdd));
    pair.until("the read's end", |pair| {
        pair.told[0].done.iter().any(|(done, _)| *done == token)
    });
    assert!(!pair.ended(token));
}
