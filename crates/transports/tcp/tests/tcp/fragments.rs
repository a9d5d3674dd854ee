//! Messages in pieces whose bytes are put where they belong, and what comes beside them.

use crate::support;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{
    BulkToken, Fragmentation, FragmentedSends, Fragments, PacketClass, PacketHeader, PacketKind,
    PollSink, RegionDescriptor, Transport,
};
use garonne_sync::user::{Scratch, UserMem};
use garonne_tcp::TcpTransport;
use garonne_transport::conformance::{RecordedEvents, send};
use std::time::{Duration, Instant};

/// Longer than anything here takes, on a machine that does much else.
const SURELY_LOST: Duration = Duration::from_secs(20);

/// Sink that says where a long message goes, and counts the others.
struct Placing {
    memory: Scratch,
    got: usize,
    small: usize,
}

impl Placing {
    fn new(room: usize) -> Self {
        let memory = Scratch::new(room).unwrap();
        Self {
            memory,
            got: 0,
            small: 0,
        }
    }
}

impl PollSink for Placing {
    fn on_packet(&mut self, _: Peer, header: PacketHeader, payload: UserMem, len: usize) {
        let at = match PacketKind::from_code(header.kind) {
            Some(PacketKind::FragFirst) => 0,
            Some(PacketKind::FragNext) => header.sequence as isize,
            _ => return self.small += 1,
        };
        self.memory.mem().copy_from(at, payload, 0, len);
        self.got += len;
    }

    fn fragment_target(&mut self, _: Peer, offset: u64, _: usize) -> Option<UserMem> {
        Some(self.memory.mem().offset(offset as isize))
    }

    fn fragment_written(&mut self, _: Peer, len: usize) {
        self.got += len;
    }

    fn on_exposed(&mut self, _: BulkToken, _: Option<RegionDescriptor>) {}
    fn on_revoked(&mut self, _: BulkToken) {}
    fn on_bulk_done(&mut self, _: BulkToken, _: Result<(), Error>) {}
    fn on_peer_gone(&mut self, _: Peer) {}
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < SURELY_LOST, "{what}");
    }
}

/// Sends so many bytes in pieces to rank 1, if there is room.
fn try_flow(transport: &mut TcpTransport, total: usize, mem: &Scratch) -> bool {
    let Fragmentation::Fragments(first, piece) = transport.fragmentation(1, total) else {
        return false;
    };
    let envelope = PacketHeader {
        kind: PacketKind::Eager as u8,
        len: total as u32,
        ..PacketHeader::default()
    };
    let pieces = Fragments {
        peer: 1,
        envelope,
        total,
        first,
        piece,
    };
    transport.send_fragments(&pieces, mem.mem()).unwrap()
}

/// Sends when there is room.
fn flow(transport: &mut TcpTransport, total: usize, mem: &Scratch) {
    until("there is no room for a message in pieces", || {
        transport.poll(8, &mut RecordedEvents::default());
        try_flow(transport, total, mem)
    });
}

/// Two ranks with a connection, whose second takes in what comes to `sink`.
fn connected(sink: &mut Placing) -> (TcpTransport, TcpTransport) {
    let mut transports = support::ranks(2, false).into_iter();
    let (mut one, mut two) = (transports.next().unwrap(), transports.next().unwrap());
    send(&mut one, 1, b"hello", 0, PacketClass::Data).unwrap();
    until("the first message", || {
        one.poll(8, &mut RecordedEvents::default());
        two.poll(8, sink);
        sink.small == 1
    });
    (one, two)
}

#[test]
fn a_small_message_behind_a_long_one_is_told_of() {
    const LONG: usize = 250_000;
    let (mut sink, from) = (Placing::new(LONG), Scratch::new(LONG).unwrap());
    let (mut one, mut two) = connected(&mut sink);
    let mut both =
        |one: &mut TcpTransport, what: &str, sink: &mut Placing, done: fn(&Placing) -> bool| {
            until(what, || {
                one.poll(8, &mut RecordedEvents::default());
                two.poll(8, sink);
                done(sink)
            });
        };
    // From now on it takes in no more at once than tells where a message goes.
    flow(&mut one, LONG, &from);
    both(&mut one, "the long message", &mut sink, |sink| {
        sink.got == LONG
    });
    for len in [40_000, 60_000, 100_000, LONG] {
        (sink.got, sink.small) = (0, 0);
        flow(&mut one, len, &from);
        send(&mut one, 1, b"behind", 0, PacketClass::Data).unwrap();
        one.poll(8, &mut RecordedEvents::default());
        // All of it lies in the socket.
        std::thread::sleep(Duration::from_millis(20));
        both(&mut one, "the small message behind it", &mut sink, |sink| {
            sink.small == 1
        });
        assert_eq!(sink.got, len);
    }
}

#[test]
fn a_peer_that_brings_something_in_every_poll_keeps_no_other_waiting() {
    for budget in [1, 4, 32] {
        let mut transports = support::ranks(4, false);
        for peer in [1, 3, 1] {
            send(&mut transports[peer], 0, b"hello", 0, PacketClass::Data).unwrap();
            let mut told = RecordedEvents::default();
            until("a peer's first message", || {
                transports[peer].poll(8, &mut RecordedEvents::default());
                transports[0].poll(8, &mut told);
                !told.packets.is_empty()
            });
        }
        // To one that was not spoken to yet, and from one that was.
        send(&mut transports[0], 2, b"first word", 0, PacketClass::Data).unwrap();
        send(&mut transports[3], 0, b"other", 0, PacketClass::Data).unwrap();
        transports[3].poll(8, &mut RecordedEvents::default());
        let (mut told, mut there) = (RecordedEvents::default(), RecordedEvents::default());
        for _ in 0..500 {
            send(&mut transports[1], 0, b"hot", 0, PacketClass::Data).unwrap();
            transports[1].poll(8, &mut RecordedEvents::default());
            // It lies there at the next poll.
            std::thread::sleep(Duration::from_micros(100));
            transports[0].poll(budget, &mut told);
            transports[2].poll(8, &mut there);
        }
        assert!(
            !there.packets.is_empty(),
            "budget {budget}: nothing reaches another"
        );
        let other = told.packets.iter().any(|(peer, ..)| *peer == 3);
        assert!(other, "budget {budget}: nothing of another is taken");
    }
}

#[test]
fn who_only_polls_acknowledges_what_fills_the_senders_log() {
    // Behind its first packet a little more than half of a long packet's block, of which each takes
    // a whole one of the log.
    const LEN: usize = 38_000;
    let (mut sink, from) = (Placing::new(LEN), Scratch::new(LEN).unwrap());
    let (mut one, mut two) = connected(&mut sink);
    for number in 1..=100 {
        sink.got = 0;
        // Room comes back by a word of a rank that says nothing else, and never sleeps.
        until("there is no room any more", || {
            one.poll(8, &mut RecordedEvents::default());
            two.poll(8, &mut sink);
            try_flow(&mut one, LEN, &from)
        });
        until(&format!("message {number}"), || {
            two.poll(8, &mut sink);
            sink.got == LEN
        });
    }
}
