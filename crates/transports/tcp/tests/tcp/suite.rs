//! The conformance suite over the TCP transport on loopback, and what only this transport promises.

use crate::support;
use crate::traffic;
use garonne_engine::api::Peer;
use garonne_engine::transport::{
    BulkStatus, BulkTransfer, ExposeResult, PacketClass, RemoteMemory, Transport,
};
use garonne_sync::user::{Data, Scratch};
use garonne_tcp::TcpTransport;
use garonne_transport::conformance::one_sided::check_one_sided;
use garonne_transport::conformance::{RecordedEvents, World, check_all, send};
use std::time::Duration;

struct Two(Vec<Option<TcpTransport>>);

/// Between two looks: the suite's patience is a number of looks, while a death is found out in half
/// a second, and the kernel of a busy machine may deliver late.
const PATIENTLY: Duration = Duration::from_micros(100);

impl Two {
    fn new(sealed: bool) -> Self {
        Self(support::ranks(2, sealed).into_iter().map(Some).collect())
    }
}

impl World for Two {
    type Tested = TcpTransport;
    fn transport(&mut self, peer: Peer) -> &mut TcpTransport {
        self.0[peer as usize].as_mut().unwrap()
    }
    fn settle(&mut self) {
        self.0.iter_mut().flatten().for_each(TcpTransport::drive);
        std::thread::sleep(PATIENTLY);
    }
    fn kill_second(&mut self) {
        // What it had sent has left.
        while !self.transport(1).has_left() {
            self.settle();
        }
        self.0[1].take().unwrap().sever();
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        self.0.drain(..).flatten().for_each(TcpTransport::sever);
    }
}

#[test]
fn the_suite_holds_on_loopback() {
    check_all(|| Two::new(false));
}

#[test]
fn the_suite_holds_where_traffic_is_sealed() {
    check_all(|| Two::new(true));
}

#[test]
fn one_sided_communication_holds_on_loopback() {
    for sealed in [false, true] {
        check_one_sided(
            || {
                let two = support::ranks(2, sealed);
                two.try_into().unwrap_or_else(|_| panic!("two ranks"))
            },
            |transport: &mut TcpTransport| {
                transport.drive();
                std::thread::yield_now();
            },
        );
    }
}

#[test]
fn a_death_that_the_host_tells_is_told_after_what_was_sent() {
    let mut world = Two::new(false);
    let mut told = RecordedEvents::default();
    for n in 0..2 {
        send(world.transport(1), 0, &[7], n, PacketClass::Data).unwrap();
        // The first one makes the connection; the second lies in the kernel when the word comes.
        while !world.transport(1).has_left() || told.packets.is_empty() {
            world.settle();
            if n == 0 {
                world.transport(0).poll(16, &mut told);
            }
        }
    }
    world.transport(0).peer_gone(1);
    for _ in 0..10 {
        world.transport(0).poll(16, &mut told);
    }
    assert_eq!((told.packets.len(), told.gone), (2, vec![1]));
}

/// Rank 0 reads a region of rank 1, which is revoked, and written over, when rank 1 has looked so
/// often without rank 0's taking anything. Whether it has all of it, as it was.
fn read_and_revoke(world: &mut Two, cookie: u64, (len, looks): (usize, Option<u32>)) -> bool {
    let (source, target) = (Scratch::new(len).unwrap(), Scratch::new(len).unwrap());
    let expected = traffic::bytes(1, 0, cookie as u32, len);
    source.mem().write(0, &expected);
    let [from, to] = [&source, &target].map(|one| Data::contiguous(one.mem(), len as u64));
    let ExposeResult::Ready(descriptor) = world.transport(1).expose(cookie, 0, &from) else {
        panic!("there is room for one region")
    };
    let bulk = BulkTransfer {
        token: 7,
        peer: 1,
        descriptor: &descriptor,
        offset: 0,
        local: &to,
        local_offset: 0,
        len: len as u64,
    };
    assert_eq!(world.transport(0).read(bulk), Ok(BulkStatus::Pending));
    let (mut told, mut other) = (RecordedEvents::default(), RecordedEvents::default());
    if let Some(looks) = looks {
        for _ in 0..looks {
            world.transport(1).poll(16, &mut other);
        }
        assert_eq!(world.transport(1).revoke(cookie), BulkStatus::Done);
        source.mem().write(0, &vec![0xEE; len]);
    }
    while told.done.is_empty() {
        world.transport(1).poll(16, &mut other);
        world.transport(0).poll(16, &mut told);
    }
    world.transport(1).revoke(cookie);
    assert!(
        told.gone.is_empty() && other.gone.is_empty(),
        "{told:?} {other:?}"
    );
    let worked = told.done == [(7, Ok(()))];
    if worked {
        let mut got = vec![0; len];
        target.mem().read(0, &mut got);
        assert!(
            got == expected,
            "{len} bytes, revoked after {looks:?} looks"
        );
    }
    worked
}

#[test]
fn a_region_that_is_revoked_while_it_is_read_fails_that_read_and_nothing_else() {
    let mut world = Two::new(false);
    assert!(read_and_revoke(&mut world, 1, (100, None)));
    let mut failed = 0;
    // Frames have a megabyte: in one case what sockets take at once ends within the last.
    let lengths = (1..=12).map(|n| n << 20);
    let cases = lengths.flat_map(|len| (0..20).step_by(3).map(move |looks| (len, looks)));
    for (cookie, (len, looks)) in (2..).zip(cases) {
        failed += u32::from(!read_and_revoke(&mut world, cookie, (len, Some(looks))));
    }
    assert!(failed > 0);
    assert!(read_and_revoke(&mut world, u64::MAX, (5_000_000, None)));
}
