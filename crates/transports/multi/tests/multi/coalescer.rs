//! Messages that are kept for others, where TCP is one of two transports: sent in time, also if
//! the rank never polls.

use crate::both;
use crate::support::{GRACE, SURELY_LOST, connected, numbered, take};
use crate::traffic::{self, Plan};
use garonne_engine::schedule::coalesce::CoalescePolicy;
use garonne_engine::transport::PacketClass;
use garonne_transport::conformance::send;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

#[test]
fn a_rank_that_never_looks_again_keeps_nobody_waiting() {
    let (mut one, mut two) = connected(both::ranks(2, 1, CoalescePolicy::Hold));
    // More than once: the thread that sees to it sleeps between, or naps.
    for round in 0..3 {
        for (number, payload) in numbered(5).iter().enumerate() {
            send(&mut one, 1, payload, number, PacketClass::Data).unwrap();
        }
        assert_eq!(take(&mut two, 5, SURELY_LOST), numbered(5));
        std::thread::sleep(GRACE * round * 3);
    }
    assert!(one.tcp().unwrap().gathered().1 >= 3);
}

#[test]
fn what_a_socket_did_not_take_leaves_although_the_rank_never_looks_again() {
    for pause in [Duration::ZERO, GRACE * 4] {
        let (mut one, mut two) = connected(both::ranks(2, 1, CoalescePolicy::Immediate));
        let payload = vec![5; 30_000];
        let mut sent = 0;
        // Until there is no room: sockets are full then, and something lies here.
        while send(&mut one, 1, &payload, sent, PacketClass::Data).is_ok() {
            sent += 1;
        }
        assert!(sent > 1);
        std::thread::sleep(pause);
        assert_eq!(
            take(&mut two, sent, SURELY_LOST).len(),
            sent,
            "after {pause:?}"
        );
    }
}

#[test]
fn traffic_arrives_whole_by_every_strategy() {
    let plan = Plan {
        packets: 400,
        packet_max: 20_000,
        bulks: 4,
        bulk_max: 300_000,
    };
    for leaving in CoalescePolicy::ALL {
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for (me, mut transport) in (0..).zip(both::ranks(3, 1, leaving)) {
                let done = &done;
                scope.spawn(move || {
                    traffic::run(&mut transport, (me, 3), plan, done, std::thread::yield_now)
                });
            }
        });
    }
}
