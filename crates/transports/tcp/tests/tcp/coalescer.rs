//! Messages that are kept until their rank looks: in order and each once, whatever connections
//! break; in time, also if the rank never looks.

use crate::cuts;
use crate::support::{self, GRACE, SURELY_LOST, connected, numbered, take};
use crate::traffic::Plan;
use garonne_engine::limits::{COALESCE_BYTES, COALESCE_EACH_MAX};
use garonne_engine::schedule::coalesce::CoalescePolicy;
use garonne_engine::transport::{PacketClass, PacketHeader, PacketKind, Transport};
use garonne_tcp::TcpTransport;
use garonne_transport::conformance::{RecordedEvents, send};

/// Two ranks with a connection, of which the first keeps what it may.
fn pair(leaving: CoalescePolicy) -> (TcpTransport, TcpTransport) {
    let (mut one, two) = connected(support::ranks(2, false));
    one.gather(leaving);
    (one, two)
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
