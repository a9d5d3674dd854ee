//! Engines over TCP transports: whole messages of all sizes, with sleep between them, and a death
//! in the middle.

use crate::proxy::{self, Ends, Weather};
use crate::support;
use crate::traffic;
use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, Peer, RecvArgs, Request, SendArgs, SendCompletion, Source,
    StartOutcome, Status,
};
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_sync::user::{Data, Scratch};
use garonne_tcp::TcpTransport;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than any delay of an overloaded machine: whoever sleeps that long was not woken.
const SURELY_LOST: Duration = Duration::from_secs(30);

struct Rank(Engine<TcpTransport>);

impl Rank {
    fn new(transport: TcpTransport, me: Peer) -> Self {
        Self(Engine::new(transport, me, 2, CreditQuotas::for_world(2)))
    }

    /// Sleeps whenever nothing happens, as a host does without any patience.
    fn wait(&mut self, request: Request) -> Status {
        loop {
            if let Some(status) = self.0.take(request).unwrap() {
                return status;
            }
            if self.0.progress() {
                continue;
            }
            let source = self.0.transport().wake_source();
            let ticket = self.0.transport().arm();
            if !self.0.progress() {
                let begun = Instant::now();
                source.sleep(ticket, Some(SURELY_LOST));
                assert!(begun.elapsed() < SURELY_LOST, "nobody woke it");
            }
            self.0.transport().disarm();
        }
    }

    fn send(&mut self, peer: Peer, tag: i32, data: Data) -> StartOutcome {
        let send = SendArgs {
            context: 2,
            peer,
            source: 1 - peer,
            tag,
            data,
            mode: SendCompletion::Standard,
            origin: CallOrigin::default(),
        };
        self.0.send(send).unwrap()
    }

    fn recv(&mut self, peer: Peer, tag: i32, data: Data) -> StartOutcome {
        let pattern = Pattern {
            context: 2,
            source: Some(Source { rank: peer, peer }),
            tag: Some(tag),
        };
        let recv = RecvArgs {
            pattern,
            data,
            origin: CallOrigin::default(),
        };
        self.0.recv(recv).unwrap()
    }

    fn end(&mut self, started: StartOutcome) -> Status {
        match started {
            StartOutcome::Done(status) => status,
            StartOutcome::Pending(request) => self.wait(request),
        }
    }

    /// A message of so many bytes came.
    fn end_whole(&mut self, got: StartOutcome, len: usize) {
        let status = self.end(got);
        assert_eq!((status.error, status.len), (None, len as u64));
    }

    /// Stays until as many ranks as that are through. What has left it may be lost between it and
    /// its peer as long as connections break, and nobody else has it.
    fn stay(&mut self, ranks: usize, through: &AtomicUsize) {
        through.fetch_add(1, Ordering::AcqRel);
        let begun = Instant::now();
        while through.load(Ordering::Acquire) < ranks && begun.elapsed() < SURELY_LOST {
            self.0.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ seed as u8)
        .collect()
}

fn filled(seed: usize, len: usize) -> (Scratch, Data) {
    let memory = Scratch::new(len.max(1)).unwrap();
    memory.mem().write(0, &bytes(seed, len));
    let data = Data::contiguous(memory.mem(), len as u64);
    (memory, data)
}

/// Both ranks send each other messages of all these sizes, in two orders of sending and receiving,
/// sleeping in between.
fn exchange(transports: Vec<TcpTransport>, sizes: &[usize], rounds: usize) {
    let through = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (me, transport) in (0..).zip(transports) {
            scope.spawn(move || {
                let (mut rank, peer) = (Rank::new(transport, me), 1 - me);
                for (n, &len) in (0..rounds).flat_map(|_| sizes).enumerate() {
                    let (_out, data) = filled(n + me as usize, len);
                    let (room, into) = filled(0, len);
                    if (n + me as usize).is_multiple_of(3) {
                        let sent = rank.send(peer, n as i32, data);
                        let got = rank.recv(peer, n as i32, into);
                        assert_eq!(rank.end(sent).error, None);
                        rank.end_whole(got, len);
                    } else {
                        let got = rank.recv(peer, n as i32, into);
                        let sent = rank.send(peer, n as i32, data);
                        rank.end_whole(got, len);
                        assert_eq!(rank.end(sent).error, None);
                    }
                    let expected = bytes(n + peer as usize, len);
                    room.mem().with(0, len, |got| {
                        assert!(got == expected, "message {n} of {len} bytes")
                    });
                }
                rank.stay(2, through);
            });
        }
    });
}

#[test]
fn messages_of_all_sizes_arrive_between_ranks_that_sleep() {
    let sizes = [
        0, 1, 8, 100, 4096, 4097, 20_000, 32_768, 32_769, 65_536, 200_000, 1_500_000, 8,
    ];
    exchange(support::ranks(2, false), &sizes, 3);
}

#[test]
fn sealed_messages_of_all_sizes_arrive_between_ranks_that_sleep() {
    exchange(support::ranks(2, true), &[0, 8, 5000, 33_000, 150_000], 2);
}

#[test]
fn many_small_messages_wake_a_sleeper_each_time() {
    exchange(support::ranks(2, false), &[8], 3000);
}

/// Messages that follow their envelope in packets which are taken in as they come, over connections
/// that break anywhere in them.
fn pieces_through_cuts(sealed: bool, rounds: usize) -> u32 {
    let weather = Arc::new(Weather::default());
    std::thread::scope(|scope| {
        let _ends = Ends(weather.clone());
        let transports = support::ranks_with(2, sealed, |from, to, address| {
            if from == to {
                return address;
            }
            let seed = traffic::mix(u64::from(from) << 32 | u64::from(to) | 5 << 50);
            proxy::start(scope, address, weather.clone(), (seed, 500_000))
        });
        exchange(transports, &[262_144, 17_000, 65_536, 100, 131_000], rounds);
        weather.calm.store(true, Ordering::Release);
    });
    weather.cuts.load(Ordering::Acquire)
}

#[test]
fn messages_in_pieces_survive_connections_that_break_anywhere() {
    let cuts = pieces_through_cuts(false, 10);
    assert!(cuts > 5, "only {cuts} connections were cut");
}

#[test]
fn sealed_messages_in_pieces_survive_connections_that_break_anywhere() {
    let cuts = pieces_through_cuts(true, 4);
    assert!(cuts > 2, "only {cuts} connections were cut");
}

#[test]
fn a_rank_that_waits_for_one_that_dies_is_told() {
    let mut transports = support::ranks(2, false).into_iter();
    let (mut waiting, dying) = (
        Rank::new(transports.next().unwrap(), 0),
        transports.next().unwrap(),
    );
    std::thread::scope(|scope| {
        let (said, heard) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let mut dying = Rank::new(dying, 1);
            let (_memory, data) = filled(1, 8);
            let sent = dying.send(0, 1, data);
            assert_eq!(dying.end(sent).error, None);
            // It lives until its word was heard.
            while heard.try_recv().is_err() {
                dying.0.progress();
                std::thread::sleep(Duration::from_millis(1));
            }
            let transport =
                std::mem::replace(dying.0.transport(), support::ranks(2, false).remove(1));
            transport.sever();
        });
        let (_room, into) = filled(0, 8);
        let got = waiting.recv(1, 1, into);
        assert_eq!(waiting.end(got).error, None);
        said.send(()).unwrap();
        let (_room, into) = filled(0, 1 << 20);
        let never = waiting.recv(1, 2, into);
        assert!(matches!(
            waiting.end(never).error,
            Some(Error::Peer { peer: 1, .. })
        ));
    });
}
