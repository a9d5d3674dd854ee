//! Messages that are kept until their rank looks: in order and each once, whatever connections
//! break; in time, also if the rank never looks.

use crate::composed;
use crate::cuts;
use crate::support;
use crate::traffic::{self, Plan};
use garonne_engine::limits::{COALESCE_BYTES, COALESCE_EACH_MAX};
use garonne_engine::schedule::coalesce::CoalescePolicy;
use garonne_engine::transport::{PacketClass, PacketHeader, PacketKind, Transport};
use garonne_rails::conformance::{RecordedEvents, send};
use garonne_rails::tcp::TcpTransport;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Longer than any delay of an overloaded machine: what has not come by then will not come.
const SURELY_LOST: Duration = Duration::from_secs(30);
/// What a kept message is given to arrive although it must not.
const GRACE: Duration = Duration::from_millis(20);

/// The two ranks, once they have a connection.
fn connected<R: Transport>(rails: Vec<R>) -> (R, R) {
    let mut rails = rails.into_iter();
    let (mut one, mut two) = (rails.next().unwrap(), rails.next().unwrap());
    send(&mut one, 1, b"hello", 0, PacketClass::Data).unwrap();
    let (mut told, begun) = (RecordedEvents::default(), Instant::now());
    while told.packets.is_empty() {
        one.poll(8, &mut RecordedEvents::default());
        two.poll(8, &mut told);
        assert!(begun.elapsed() < SURELY_LOST, "no connection");
    }
    (one, two)
}

/// Two ranks with a connection, of which the first keeps what it may.
fn pair(leaving: CoalescePolicy) -> (TcpTransport, TcpTransport) {
    let (mut one, two) = connected(support::ranks(2, false));
    one.gather(leaving);
    (one, two)
}

/// Everything that comes within `time`, or the first `count`.
fn take(rail: &mut impl Transport, count: usize, time: Duration) -> Vec<Vec<u8>> {
    let (mut told, begun) = (RecordedEvents::default(), Instant::now());
    while told.packets.len() < count && begun.elapsed() < time {
        rail.poll(64, &mut told);
    }
    told.packets
        .into_iter()
        .map(|(_, _, payload)| payload)
        .collect()
}

fn numbered(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number; 8]).collect()
}

#[test]
fn what_is_kept_leaves_in_order_at_the_next_look() {
    let (mut one, mut two) = pair(CoalescePolicy::Hold);
    for (number, payload) in numbered(20).iter().enumerate() {
        send(&mut one, 1, payload, number, PacketClass::Data).unwrap();
    }
    assert_eq!(one.gathered(), (20, 0));
    assert!(
        take(&mut two, 1, GRACE).is_empty(),
        "nothing leaves before the look"
    );
    one.poll(0, &mut RecordedEvents::default());
    assert_eq!(take(&mut two, 20, SURELY_LOST), numbered(20));
}

#[test]
fn who_goes_to_sleep_keeps_nothing() {
    let (mut one, mut two) = pair(CoalescePolicy::Hold);
    send(&mut one, 1, b"awaited", 0, PacketClass::Data).unwrap();
    one.arm();
    assert_eq!(take(&mut two, 1, SURELY_LOST), [b"awaited"]);
}

#[test]
fn what_is_long_or_urgent_takes_along_what_is_kept() {
    let (mut one, mut two) = pair(CoalescePolicy::Hold);
    send(&mut one, 1, b"kept", 0, PacketClass::Data).unwrap();
    send(
        &mut one,
        1,
        &[7; COALESCE_EACH_MAX + 1],
        1,
        PacketClass::Data,
    )
    .unwrap();
    assert_eq!(take(&mut two, 2, SURELY_LOST).len(), 2);
    for number in 0..COALESCE_BYTES / 1024 {
        send(&mut one, 1, &[8; 1024], number, PacketClass::Data).unwrap();
    }
    assert!(
        take(&mut two, 8, SURELY_LOST).len() >= 8,
        "too much to be kept"
    );
}

#[test]
fn what_the_engine_says_by_itself_begins_no_series() {
    let (mut one, mut two) = pair(CoalescePolicy::Adaptive);
    for round in 0..20 {
        let credit = PacketHeader {
            kind: PacketKind::Credit as u8,
            ..PacketHeader::default()
        };
        let room = one.claim(1, 0, PacketClass::Control).unwrap();
        one.commit(room, &credit);
        send(&mut one, 1, b"alone", round, PacketClass::Data).unwrap();
        assert_eq!(one.gathered(), (0, 0), "round {round}");
        assert_eq!(take(&mut two, 2, SURELY_LOST).len(), 2);
        one.poll(0, &mut RecordedEvents::default());
    }
}

#[test]
fn what_was_kept_for_a_whole_nap_leaves_without_a_look() {
    let (mut one, mut two) = pair(CoalescePolicy::Hold);
    send(&mut one, 1, b"overdue", 0, PacketClass::Data).unwrap();
    assert!(one.nap().is_some());
    assert_eq!(one.gathered(), (1, 0), "it was sent during this nap");
    assert!(one.nap().is_some());
    assert_eq!(one.gathered(), (1, 1));
    assert_eq!(take(&mut two, 1, SURELY_LOST), [b"overdue"]);
    assert!(
        (0..1000).any(|_| one.nap().is_none()),
        "where nothing is kept nobody needs to look for ever"
    );
}

#[test]
fn a_rank_that_never_looks_again_keeps_nobody_waiting() {
    let (mut one, mut two) = connected(composed::ranks(2, 1, CoalescePolicy::Hold));
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
        let (mut one, mut two) = connected(composed::ranks(2, 1, CoalescePolicy::Immediate));
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
            for (me, mut rail) in (0..).zip(composed::ranks(3, 1, leaving)) {
                let done = &done;
                scope.spawn(move || {
                    traffic::run(&mut rail, (me, 3), plan, done, std::thread::yield_now)
                });
            }
        });
    }
}

#[test]
fn traffic_over_connections_that_are_cut_arrives_whole_by_every_strategy() {
    let plan = Plan {
        packets: 600,
        packet_max: 8_000,
        bulks: 2,
        bulk_max: 100_000,
    };
    for leaving in CoalescePolicy::ALL {
        let cuts = cuts::through_cuts((2, false), plan, 100_000, leaving);
        assert!(cuts > 2, "only {cuts} connections were cut");
    }
}
