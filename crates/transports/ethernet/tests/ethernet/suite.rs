//! What every transport must do, over a wire with and without faults.

use crate::wire::Wire;
use garonne_ethernet::EthernetTransport;
use garonne_transport::conformance::{World, check_all};
use std::sync::Arc;
use std::sync::atomic::Ordering;

struct Pair {
    ends: [EthernetTransport; 2],
    wire: Arc<Wire>,
}

impl Pair {
    fn new(faults: [u8; 4], seed: u64) -> Self {
        Self::over(Wire::new(2, faults, seed))
    }

    fn over(wire: Arc<Wire>) -> Self {
        let ends = [0, 1].map(|rank| wire.transport(rank, 7));
        Self { ends, wire }
    }
}

impl World for Pair {
    type Tested = EthernetTransport;

    fn transport(&mut self, peer: u32) -> &mut EthernetTransport {
        &mut self.ends[peer as usize]
    }

    fn settle(&mut self) {
        self.wire.now.fetch_add(300_000, Ordering::Relaxed);
        for end in &mut self.ends {
            end.nap();
        }
    }

    fn kill_second(&mut self) {
        self.wire.dead.lock().unwrap().push(1);
        self.wire.now.fetch_add(100_000_000, Ordering::Relaxed);
    }
}

#[test]
fn it_is_a_transport() {
    check_all(|| Pair::new([0; 4], 1));
}

#[test]
fn it_is_one_that_encrypts() {
    check_all(|| Pair::over(Wire::sealed(2, [20, 20, 20, 40], 1)));
}

#[test]
fn it_is_one_where_frames_are_lost_repeated_changed_and_overtaken() {
    for seed in 1..=2 {
        check_all(|| Pair::new([20, 20, 20, 40], seed));
    }
}
