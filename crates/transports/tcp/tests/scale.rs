//! A rank's tables of a million others, none of whom it has spoken with, cost next to no memory.
//! One test, so that nobody else allocates meanwhile.

use garonne_engine::api::Peer;
use garonne_tcp::{LocalIdentity, PeerDirectory, ProcessId, Secret, TcpTransport, listen};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

const RANKS: u32 = 1_000_000;

/// Bytes that a transport may write when it is made: its own buffers. A byte for each rank were
/// 1,000,000, a pointer 8,000,000.
const WRITTEN_MAX: u64 = 256 << 10;

struct Many;

impl PeerDirectory for Many {
    fn size(&self) -> u32 {
        RANKS
    }
    fn incarnation(&self, _peer: Peer) -> u32 {
        0
    }
    fn addresses(&self, _peer: Peer) -> Vec<SocketAddr> {
        Vec::new()
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
}

/// Bytes that this process has written and holds. Those of its own file do not count: what the
/// linker has just put there is dirty, too.
fn written() -> u64 {
    let text =
        std::fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel's account of memory");
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let kilobytes = line
        .and_then(|line| line.split_whitespace().nth(1))
        .expect("a line for what was written");
    kilobytes.parse::<u64>().expect("a number") << 10
}

#[test]
fn a_million_ranks_that_are_never_spoken_with_cost_nothing() {
    let me = ProcessId {
        job: [7; 16],
        world: 0,
        rank: 3,
        incarnation: 0,
    };
    let identity = LocalIdentity::new(Secret::generate().expect("randomness"), me, false);
    let port = listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).expect("a port");
    let before = written();
    let mut transport = TcpTransport::new(identity, Arc::new(Many), port).expect("a transport");
    transport.drive();
    let after = written();
    println!("{} bytes", after - before);
    assert!(after - before < WRITTEN_MAX, "{} bytes", after - before);
    assert!(transport.brought_by(RANKS - 1).is_empty());
}
