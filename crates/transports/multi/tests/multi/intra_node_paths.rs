//! Large data between two ranks of one host by shared memory and TCP at once: both bring some, and
//! nothing is lost or comes twice whatever becomes of the connections.

use crate::proxy::{self, Ends, Weather};
use crate::support::{self, Book, identity, port};
use crate::traffic::{self, Plan};
use garonne_engine::api::Peer;
use garonne_engine::transport::{BulkStatus, BulkTransfer, ExposeResult, RemoteMemory, Transport};
use garonne_multi::MultiTransport;
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_sync::user::{Data, Scratch};
use garonne_tcp::{MEMORY, PeerDirectory, Secret, TcpTransport};
use garonne_transport::conformance::{RecordedEvents, World, check_all};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Two ranks of one host of which each has a transport by TCP.
fn joined(tcp: impl IntoIterator<Item = TcpTransport>) -> Vec<MultiTransport> {
    let threads = ThreadPeers::new(2).unwrap().into_iter().zip(tcp);
    threads
        .zip([vec![false, true], vec![true, false]])
        .map(|((threads, tcp), beside)| {
            let shm = ShmTransport::new(Arc::new(threads)).unwrap();
            let mut transport = MultiTransport::new(shm, tcp, vec![true; 2]);
            transport.join(beside);
            transport
        })
        .collect()
}

struct Pair(Vec<Option<MultiTransport>>);

impl World for Pair {
    type Tested = MultiTransport;
    fn transport(&mut self, peer: Peer) -> &mut MultiTransport {
        self.0[peer as usize].as_mut().unwrap()
    }
    fn settle(&mut self) {
        for transport in self.0.iter_mut().flatten() {
            transport.tcp().unwrap().drive();
        }
    }
    fn kill_second(&mut self) {
        self.transport(0).shm().peer_gone(1);
    }
}

#[test]
fn the_suite_holds_where_large_data_go_by_both() {
    check_all(|| {
        Pair(
            joined(support::ranks(2, false))
                .into_iter()
                .map(Some)
                .collect(),
        )
    });
}

const PLAN: Plan = Plan {
    packets: 300,
    packet_max: 30_000,
    bulks: 24,
    bulk_max: 8_000_000,
};

/// Runs the plan between two such ranks, which call each other where `calls_at` says, and returns
/// what each way brought to rank 0.
fn run(
    mut calls_at: impl FnMut(Peer, SocketAddr) -> SocketAddr,
    at_the_end: impl Fn() + Sync,
) -> Vec<u64> {
    let tcp = support::ranks_with(2, false, |from, to, address| match from == to {
        true => address,
        false => calls_at(from, address),
    });
    let (done, brought) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for (me, mut transport) in (0..).zip(joined(tcp)) {
            let (done, brought, at_the_end) = (&done, &brought, &at_the_end);
            scope.spawn(move || {
                traffic::run(&mut transport, (me, 2), PLAN, done, std::thread::yield_now);
                if me == 0 {
                    *brought.lock().unwrap() = transport.tcp().unwrap().brought_by(1);
                }
                at_the_end();
            });
        }
    });
    brought.into_inner().unwrap()
}

fn by_memory(brought: &[u64]) -> u64 {
    brought.get(usize::from(MEMORY)).copied().unwrap_or(0)
}

#[test]
fn both_bring_some_and_all_of_it_is_right() {
    let brought = run(|_, address| address, || ());
    assert!(brought[0] > 0 && by_memory(&brought) > 0, "{brought:?}");
}

#[test]
fn connections_that_are_cut_or_held_anywhere_cost_nothing_but_time() {
    let weather = Arc::new(Weather::default());
    std::thread::scope(|scope| {
        let _ends = Ends(weather.clone());
        let brought = run(
            |me, address| {
                let seed = traffic::mix(u64::from(me) << 32 | 11 << 50);
                let how = (seed, 200_000, Duration::from_millis(700));
                proxy::start_on(scope, (Ipv4Addr::LOCALHOST, address), weather.clone(), how)
            },
            || weather.calm.store(true, Ordering::Release),
        );
        assert!(brought[0] > 0 && by_memory(&brought) > 0, "{brought:?}");
    });
    let hurt = weather.cuts.load(Ordering::Acquire) + weather.holds.load(Ordering::Acquire);
    assert!(hurt > 2, "only {hurt} connections were cut or held");
}

/// Two ranks that call each other at an address that changes.
struct Moving(Book, Mutex<SocketAddr>);

impl PeerDirectory for Moving {
    fn size(&self) -> u32 {
        self.0.size()
    }
    fn incarnation(&self, peer: Peer) -> u32 {
        self.0.incarnation(peer)
    }
    fn addresses(&self, _peer: Peer) -> Vec<SocketAddr> {
        vec![*self.1.lock().unwrap()]
    }
    fn is_gone(&self, peer: Peer) -> bool {
        self.0.is_gone(peer)
    }
}

/// Rank 0 reads `len` bytes of rank 1, and both are stepped until it has them.
fn fetch(pair: &mut [MultiTransport], number: u32, len: usize) {
    let (source, target) = (Scratch::new(len).unwrap(), Scratch::new(len).unwrap());
    let expected = traffic::bytes(1, 0, number, len);
    source.mem().write(0, &expected);
    let [from, to] = [&source, &target].map(|one| Data::contiguous(one.mem(), len as u64));
    let ExposeResult::Ready(descriptor) = pair[1].expose(u64::from(number), 0, &from) else {
        panic!("there is room for one region")
    };
    let read = pair[0].read(BulkTransfer {
        token: 7,
        peer: 1,
        descriptor: &descriptor,
        offset: 0,
        local: &to,
        local_offset: 0,
        len: len as u64,
    });
    assert_eq!(read, Ok(BulkStatus::Pending));
    let mut told = RecordedEvents::default();
    while told.done.is_empty() {
        pair[0].poll(16, &mut told);
        pair[1].poll(16, &mut RecordedEvents::default());
    }
    assert_eq!(
        (&told.done[..], &told.gone[..]),
        (&[(7, Ok(()))][..], &[][..])
    );
    assert_eq!(pair[1].revoke(u64::from(number)), BulkStatus::Done);
    let mut got = vec![0; len];
    target.mem().read(0, &mut got);
    assert!(got == expected, "message {number}");
}

/// Longer than the time until a call that failed is tried again, on any machine.
const MESSAGES: u32 = 30_000;

#[test]
fn a_connection_that_fails_is_used_again_when_it_works_again() {
    let secret = Secret::generate().unwrap();
    let (listeners, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| port()).unzip();
    // Nobody takes calls there.
    let nowhere = port().1;
    let books: Vec<_> = (0..2)
        .map(|_| {
            Arc::new(Moving(
                Book(vec![Vec::new(); 2], Vec::new()),
                Mutex::new(nowhere),
            ))
        })
        .collect();
    let transports = (0..2u32).zip(listeners).zip(&books);
    let transports = transports.map(|((me, listener), directory)| {
        TcpTransport::new(identity(&secret, me, false), directory.clone(), listener).unwrap()
    });
    let mut pair = joined(transports.collect::<Vec<_>>());
    let by_tcp = |pair: &mut [MultiTransport]| pair[0].tcp().unwrap().brought_by(1)[0];
    let mut number = 0;
    let mut until = |pair: &mut [MultiTransport], met: &dyn Fn(&mut [MultiTransport]) -> bool| {
        for _ in 0..MESSAGES {
            number += 1;
            fetch(pair, number, 1_000_000);
            if met(pair) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!(
            "not after {number} messages: {:?}",
            pair[0].tcp().unwrap().brought_by(1)
        );
    };
    fetch(&mut pair, 1 << 20, 4_000_000);
    assert_eq!(by_tcp(&mut pair), 0);
    for _ in 0..2 {
        let weather = Arc::new(Weather::default());
        std::thread::scope(|scope| {
            let _ends = Ends(weather.clone());
            for (me, directory) in books.iter().enumerate() {
                let to = (Ipv4Addr::LOCALHOST, addresses[1 - me]);
                let calm = (1, u64::MAX, Duration::ZERO);
                *directory.1.lock().unwrap() = proxy::start_on(scope, to, weather.clone(), calm);
            }
            let before = by_tcp(&mut pair);
            until(&mut pair, &|pair| by_tcp(pair) > before);
        });
        // The proxies have ended, and with them the connections and who took calls.
        let before = by_tcp(&mut pair);
        for _ in 0..20 {
            until(&mut pair, &|_| true);
        }
        assert_eq!(by_tcp(&mut pair), before);
    }
}
