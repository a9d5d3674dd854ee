//! Connections whose network is disabled while they are made or in use.

use super::*;
use crate::test_support::TestDirectory;
use crate::{ProcessId, Secret, TcpTransport, listen};
use garonne_engine::transport::{PacketClass, Transport};
use garonne_transport::conformance::{RecordedEvents, send};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NETWORKS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)),
];

/// Longer than any delay of a machine with too much to do.
const LOOKS: usize = 50_000;

/// Two transports, each with what it knows of networks.
fn pair() -> [(TcpTransport, Arc<TestDirectory>); 2] {
    let secret = Secret::generate().unwrap();
    let listeners = [0, 1].map(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap());
    let ports = [0, 1].map(|rank: usize| listeners[rank].local_addr().unwrap().port());
    let mut transports = (0..).zip(listeners).map(|(rank, listener)| {
        let addresses = ports.map(|port| NETWORKS.map(|network| (network, port).into()).to_vec());
        let directory = Arc::new(TestDirectory {
            incarnation: |peer| peer,
            networks: AtomicUsize::new(NETWORKS.len()),
            ..TestDirectory::at_some(addresses.to_vec())
        });
        let me = ProcessId {
            job: [1; 16],
            world: 0,
            rank,
            incarnation: rank,
        };
        let identity = LocalIdentity::new(secret.clone(), me, false);
        (
            TcpTransport::new(identity, directory.clone(), listener).unwrap(),
            directory,
        )
    });
    [(); 2].map(|()| transports.next().unwrap())
}

fn step(transport: &mut TcpTransport, told: &mut RecordedEvents) {
    transport.poll(16, told);
    std::thread::sleep(Duration::from_micros(100));
}

#[test]
fn a_call_that_was_under_way_when_its_network_was_drained_ends_on_another() {
    let [(mut caller, known), (mut called, known_there)] = pair();
    let (mut told, mut heard) = (RecordedEvents::default(), RecordedEvents::default());
    send(&mut caller, 1, b"word", 0, PacketClass::Data).unwrap();
    // It is taken by the other's system, and the other does not look.
    let is_taken = |transport: &TcpTransport| {
        let calls = transport
            .ctx
            .peers
            .get(1)
            .and_then(|remote| remote.call_of(StreamNumber::Small));
        calls.is_some_and(|calls| calls.stands(Instant::now()))
    };
    for _ in 0..LOOKS {
        if is_taken(&caller) {
            break;
        }
        step(&mut caller, &mut told);
    }
    assert!(is_taken(&caller));
    known.drained.store(1, Ordering::Relaxed);
    known_there.drained.store(1, Ordering::Relaxed);
    let has_left = |transport: &TcpTransport| {
        transport
            .ctx
            .ends(1, StreamNumber::Small)
            .is_some_and(|ends| !transport.connections.is_drained(ends))
    };
    for _ in 0..LOOKS {
        step(&mut caller, &mut told);
        step(&mut called, &mut heard);
        if has_left(&caller) && !heard.packets.is_empty() {
            break;
        }
    }
    assert!(
        has_left(&caller),
        "{:?}",
        caller.ctx.ends(1, StreamNumber::Small)
    );
    assert_eq!(heard.packets.len(), 1);
}

#[test]
fn who_sees_a_connection_end_before_it_hears_that_its_network_is_drained_makes_it_anew_on_another()
{
    let [(mut late, hears), (mut early, knows)] = pair();
    let (mut told, mut heard) = (RecordedEvents::default(), RecordedEvents::default());
    send(&mut late, 1, b"word", 0, PacketClass::Data).unwrap();
    while heard.packets.is_empty() {
        step(&mut late, &mut told);
        step(&mut early, &mut heard);
    }
    let ends = |transport: &TcpTransport, peer| transport.ctx.ends(peer, StreamNumber::Small);
    assert!(ends(&late, 1).is_some_and(|(_, other)| other.ip() == NETWORKS[0]));
    knows.drained.store(1, Ordering::Relaxed);
    while ends(&early, 0).is_some() {
        step(&mut early, &mut heard);
    }
    while ends(&late, 1).is_some() {
        step(&mut late, &mut told);
    }
    hears.drained.store(1, Ordering::Relaxed);
    while ends(&late, 1).is_none() || ends(&early, 0).is_none() {
        step(&mut late, &mut told);
        step(&mut early, &mut heard);
    }
    let (_, other) = ends(&late, 1).unwrap();
    assert_eq!(other.ip(), NETWORKS[1]);
}
