//! The conformance suite over the TCP rail on loopback, and what only this rail promises.

use crate::support;
use garonne_engine::api::Peer;
use garonne_engine::rail::{Class, Rail};
use garonne_rails::conformance::{Told, World, check_all, send};
use garonne_rails::tcp::TcpRail;
use std::time::Duration;

struct Two(Vec<Option<TcpRail>>);

/// Between two looks: the suite's patience is a number of looks, while a death is found out in half a second, and the kernel of a busy machine may
/// deliver late.
const PATIENTLY: Duration = Duration::from_micros(100);

impl Two {
    fn new(sealed: bool) -> Self {
        Self(support::ranks(2, sealed).into_iter().map(Some).collect())
    }
}

impl World for Two {
    type Rail = TcpRail;
    fn rail(&mut self, peer: Peer) -> &mut TcpRail {
        self.0[peer as usize].as_mut().unwrap()
    }
    fn settle(&mut self) {
        self.0.iter_mut().flatten().for_each(TcpRail::drive);
        std::thread::sleep(PATIENTLY);
    }
    fn kill_second(&mut self) {
        // What it had sent has left.
        while !self.rail(1).has_left() {
            self.settle();
        }
        self.0[1].take().unwrap().sever();
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        self.0.drain(..).flatten().for_each(TcpRail::sever);
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
fn a_death_that_the_host_tells_is_told_after_what_was_sent() {
    let mut world = Two::new(false);
    let mut told = Told::default();
    for n in 0..2 {
        send(world.rail(1), 0, &[7], n, Class::Data).unwrap();
        // The first one makes the connection; the second lies in the kernel when the word comes.
        while !world.rail(1).has_left() || told.packets.is_empty() {
            world.settle();
            if n == 0 {
                world.rail(0).poll(16, &mut told);
            }
        }
    }
    world.rail(0).peer_gone(1);
    for _ in 0..10 {
        world.rail(0).poll(16, &mut told);
    }
    assert_eq!((told.packets.len(), told.gone), (2, vec![1]));
}
