//! Announced receives over the shared-memory transport, as threads and by the system calls that
//! processes use: what ends without whose hands.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
    Status,
};
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::FastRecv;
use garonne_engine::fast::send::FastSend;
use garonne_engine::transport::Transport;
use garonne_shm::{NodePeers, PeerProcess, ShmTransport, ThreadPeers};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use support::ReachedAs;

mod support;

const ROOM: usize = 3 << 20;
const TAG: i32 = 5;
/// More than any message here needs.
const LOOKS: usize = 100;

struct Pair {
    sender: Engine<ShmTransport>,
    receiver: Engine<ShmTransport>,
}

fn pattern() -> Pattern {
    Pattern {
        context: 2,
        source: Some(Source { rank: 0, peer: 0 }),
        tag: Some(TAG),
    }
}

fn filled(len: usize, byte: u8) -> Scratch {
    let memory = Scratch::new(len).unwrap();
    memory.mem().with_mut(0, len, |bytes| bytes.fill(byte));
    memory
}

fn all(memory: &Scratch, from: usize, to: usize, byte: u8) -> bool {
    memory.mem().with(from as isize, to - from, |bytes| {
        bytes.iter().all(|other| *other == byte)
    })
}

impl Pair {
    /// Every pair that can write to each other's memory.
    fn each() -> [Self; 2] {
        let processes = PeerProcess::Other {
            pid: std::process::id(),
            kept: true,
        };
        [None, Some(processes)].map(|reached| {
            let mut ranks = ThreadPeers::new(2).unwrap().into_iter().map(|rank| {
                let node_peers: Arc<dyn NodePeers> = match reached {
                    None => Arc::new(rank),
                    Some(process) => Arc::new(ReachedAs(rank, process)),
                };
                let me = node_peers.me();
                Engine::new(
                    ShmTransport::new(node_peers).unwrap(),
                    me,
                    2,
                    CreditQuotas::for_world(2),
                )
            });
            Self {
                sender: ranks.next().unwrap(),
                receiver: ranks.next().unwrap(),
            }
        })
    }

    fn send(&mut self, memory: &Scratch) -> Request {
        let started = self.sender.send(SendArgs {
            context: 2,
            peer: 1,
            source: 0,
            tag: TAG,
            data: Data::contiguous(memory.mem(), memory.len() as u64),
            mode: SendCompletion::Standard,
            origin: CallOrigin::default(),
        });
        match started.unwrap() {
            StartOutcome::Pending(request) => request,
            StartOutcome::Done(_) => panic!("a large message is not over at once"),
        }
    }

    fn post(&mut self, memory: &Scratch) -> Request {
        let place = (memory.mem(), memory.len() as u32);
        let catch = FastRecv::new(pattern(), place, CallOrigin::default());
        self.receiver.post_plain(&catch).unwrap()
    }

    fn post_small(&mut self, tag: i32) -> (Request, Scratch) {
        let room = filled(100, 1);
        let wanted = Pattern {
            tag: Some(tag),
            ..pattern()
        };
        let catch = FastRecv::new(wanted, (room.mem(), 100), CallOrigin::default());
        (self.receiver.post_plain(&catch).unwrap(), room)
    }

    /// Sends a message that is over at once, in a slot of its own if it may be.
    fn send_eager(&mut self, tag: i32, len: usize) {
        let memory = filled(len, 3);
        let small = FastSend {
            context: 2,
            peer: 1,
            source: 0,
            tag,
            mem: memory.mem(),
            len,
            origin: CallOrigin::default(),
        };
        if len > 32 || !self.sender.send_small(&small) {
            let sent = self.sender.send(SendArgs {
                context: 2,
                peer: 1,
                source: 0,
                tag,
                data: Data::contiguous(memory.mem(), len as u64),
                mode: SendCompletion::Standard,
                origin: CallOrigin::default(),
            });
            assert!(matches!(sent, Ok(StartOutcome::Done(_))));
        }
    }

    /// Returns whether the sender alone ends its send.
    fn sender_ends(&mut self, send: Request) -> bool {
        (0..LOOKS).any(|_| {
            self.sender.progress();
            self.sender.is_complete(send)
        })
    }

    fn receiver_ends(&mut self, receive: Request) -> Option<Status> {
        (0..LOOKS).find_map(|_| {
            self.receiver.progress();
            self.receiver.take(receive).unwrap()
        })
    }

    fn both_end(&mut self, send: Request, receive: Request) -> Status {
        let mut status = None;
        for _ in 0..LOOKS {
            self.sender.progress();
            self.receiver.progress();
            status = status.or_else(|| self.receiver.take(receive).unwrap());
            if status.is_some() && self.sender.is_complete(send) {
                break;
            }
        }
        assert!(self.sender.take(send).unwrap().is_some());
        status.unwrap()
    }
}

#[test]
fn a_sender_ends_alone_what_its_receiver_announced_before_or_while_it_was_sent() {
    for mut pair in Pair::each() {
        for (len, announced_first) in [
            (20_000, true),
            (96 << 10, false),
            (1 << 20, true),
            (ROOM, false),
        ] {
            let (message, room) = (filled(len, 7), filled(ROOM, 1));
            let (send, receive);
            if announced_first {
                receive = pair.post(&room);
                pair.sender.progress();
                send = pair.send(&message);
            } else {
                send = pair.send(&message);
                receive = pair.post(&room);
            }
            assert!(
                pair.sender_ends(send),
                "{len}: it needed the receiver's hands"
            );
            assert!(
                pair.sender
                    .take(send)
                    .unwrap()
                    .is_some_and(|status| status.error.is_none())
            );
            assert!(all(&room, 0, len, 7) && all(&room, len, ROOM, 1), "{len}");
            let status = pair.receiver_ends(receive).unwrap();
            assert_eq!(
                (status.source, status.tag, status.len, status.error),
                (0, TAG, len as u64, None)
            );
        }
        assert!(pair.sender.is_idle() && pair.receiver.is_idle());
    }
}

#[test]
fn a_sender_ends_alone_what_was_announced_before_its_receive_was_posted() {
    for mut pair in Pair::each() {
        for (len, sender_first) in [
            (70_000, true),
            (1 << 20, true),
            (ROOM, true),
            (70_000, false),
            (ROOM, false),
        ] {
            let (message, room) = (filled(len, 7), filled(ROOM, 1));
            let send = pair.send(&message);
            for _ in 0..LOOKS {
                pair.receiver.progress();
            }
            assert_eq!(pair.receiver.unexpected_count(), 1);
            let receive = pair.post(&room);
            if sender_first {
                pair.sender_ends(send);
                assert!(
                    all(&room, 0, len, 7),
                    "{len}: it needed the receiver's hands"
                );
            } else {
                for _ in 0..LOOKS {
                    pair.receiver.progress();
                }
                assert!(all(&room, 0, len, 7), "{len}: it needed the sender's hands");
            }
            let status = pair.both_end(send, receive);
            assert_eq!((status.len, status.error), (len as u64, None));
            assert!(all(&room, 0, len, 7) && all(&room, len, ROOM, 1));
        }
        assert!(pair.sender.is_idle() && pair.receiver.is_idle());
    }
}

#[test]
fn a_receiver_that_looks_for_messages_fetches_its_own() {
    for mut pair in Pair::each() {
        let source = pair.receiver.transport().wake_source();
        source.start_polling();
        let (message, room) = (filled(1 << 20, 7), filled(ROOM, 1));
        let receive = pair.post(&room);
        let send = pair.send(&message);
        assert!(!pair.sender_ends(send), "its receiver looks");
        assert!(all(&room, 0, ROOM, 1));
        let status = pair.both_end(send, receive);
        assert_eq!((status.len, status.error), (1 << 20, None));
        source.stop_polling();
    }
}

#[test]
fn a_receiver_that_comes_back_takes_what_its_sender_has_not_taken_yet() {
    for mut pair in Pair::each() {
        for landed_first in [true, false] {
            let (message, room) = (filled(1 << 20, 7), filled(ROOM, 1));
            let receive = pair.post(&room);
            pair.sender.progress();
            let send = pair.send(&message);
            pair.sender.progress_briefly();
            let mut flight = pair.sender.take_copy_job().expect("its receiver computes");
            if landed_first {
                flight.run();
            }
            for _ in 0..LOOKS {
                pair.receiver.progress();
            }
            assert!(all(&room, 0, 500_000, 7), "it waited for its sender");
            assert_eq!(
                all(&room, 1_000_000, 1 << 20, 7),
                landed_first,
                "a part has one copier"
            );
            assert!(
                !pair.receiver.is_complete(receive),
                "its sender said nothing yet"
            );
            if !landed_first {
                flight.run();
            }
            pair.sender.finish_copy_job(flight);
            assert!(
                !pair.sender.is_complete(send),
                "its memory may still be read"
            );
            let status = pair.both_end(send, receive);
            assert_eq!((status.len, status.error), (1 << 20, None));
            assert!(all(&room, 0, 1 << 20, 7) && all(&room, 1 << 20, ROOM, 1));
        }
        assert!(pair.sender.is_idle() && pair.receiver.is_idle());
    }
}

#[test]
fn a_sender_that_comes_back_takes_what_its_receiver_has_not_taken_yet() {
    for mut pair in Pair::each() {
        pair.receiver.transport().wake_source().start_polling();
        let (message, room) = (filled(ROOM, 7), filled(ROOM, 1));
        let receive = pair.post(&room);
        let send = pair.send(&message);
        pair.receiver.progress_briefly();
        let mut flight = pair.receiver.take_copy_job().expect("its sender computes");
        flight.run();
        assert!(all(&room, 0, 200_000, 7) && all(&room, 1 << 20, ROOM, 1));
        for _ in 0..LOOKS {
            pair.sender.progress();
        }
        assert!(all(&room, 1 << 20, ROOM, 7), "it waited for its receiver");
        pair.receiver.finish_copy_job(flight);
        let status = pair.both_end(send, receive);
        assert_eq!((status.len, status.error), (ROOM as u64, None));
        pair.receiver.transport().wake_source().stop_polling();
    }
}

#[test]
fn a_cancelled_receive_is_not_written_and_the_message_goes_to_the_next() {
    for mut pair in Pair::each() {
        let (message, first, second) = (filled(1 << 20, 7), filled(ROOM, 1), filled(ROOM, 2));
        let receives = [pair.post(&first), pair.post(&second)];
        pair.sender.progress();
        pair.receiver.cancel(receives[0]).unwrap();
        assert!(
            pair.receiver
                .take(receives[0])
                .unwrap()
                .is_some_and(|status| status.cancelled)
        );
        let send = pair.send(&message);
        let status = pair.both_end(send, receives[1]);
        assert_eq!((status.len, status.error), (1 << 20, None));
        assert!(all(&first, 0, ROOM, 1) && all(&second, 0, 1 << 20, 7));
    }
}

#[test]
fn a_receive_whose_message_was_written_can_not_be_cancelled_nor_can_one_before_it() {
    for mut pair in Pair::each() {
        let (small, message) = (filled(100, 3), filled(1 << 20, 7));
        let (first, second) = (filled(ROOM, 1), filled(ROOM, 2));
        let receives = [pair.post(&first), pair.post(&second)];
        let sent = pair.sender.send(SendArgs {
            context: 2,
            peer: 1,
            source: 0,
            tag: TAG,
            data: Data::contiguous(small.mem(), 100),
            mode: SendCompletion::Standard,
            origin: CallOrigin::default(),
        });
        assert!(matches!(sent, Ok(StartOutcome::Done(_))));
        let send = pair.send(&message);
        assert!(pair.sender_ends(send));
        pair.sender.take(send).unwrap();
        for receive in receives {
            pair.receiver.cancel(receive).unwrap();
        }
        let lens = receives.map(|receive| {
            pair.receiver_ends(receive)
                .map(|status| (status.len, status.cancelled))
        });
        assert_eq!(lens, [Some((100, false)), Some((1 << 20, false))]);
        assert!(all(&first, 100, ROOM, 1) && all(&second, 0, 1 << 20, 7));
    }
}

#[test]
fn a_message_that_does_not_fit_is_an_error_and_writes_nothing_behind_the_room() {
    for mut pair in Pair::each() {
        let (message, room) = (filled(1 << 20, 7), filled(ROOM, 1));
        let data = Data::contiguous(room.mem(), 100_000);
        let recv = RecvArgs {
            pattern: pattern(),
            data,
            origin: CallOrigin::default(),
        };
        let Ok(StartOutcome::Pending(receive)) = pair.receiver.recv(recv) else {
            panic!("nothing was sent")
        };
        pair.receiver.offer_early(receive);
        let send = pair.send(&message);
        assert!(!pair.sender_ends(send));
        let status = pair.both_end(send, receive);
        assert!(
            matches!(status.error, Some(Error::Truncated(_))),
            "{status:?}"
        );
        assert!(all(&room, 100_000, ROOM, 1));
    }
}

#[test]
fn a_receive_ends_with_an_error_when_its_sender_dies_and_its_memory_is_its_own_again() {
    for mut pair in Pair::each() {
        let room = filled(ROOM, 1);
        let receive = pair.post(&room);
        pair.sender.progress();
        pair.receiver.transport().peer_gone(0);
        let status = pair.receiver_ends(receive).unwrap();
        assert!(
            matches!(status.error, Some(Error::Peer { peer: 0, .. })),
            "{status:?}"
        );
        let message = filled(1 << 20, 7);
        let send = pair.send(&message);
        assert!(
            !pair.sender_ends(send) && all(&room, 0, ROOM, 1),
            "a dead rank's twin writes nothing"
        );
    }
}

#[test]
fn what_may_go_to_a_wildcard_posted_before_is_not_announced() {
    for mut pair in Pair::each() {
        let (message, any, room) = (filled(1 << 20, 7), filled(ROOM, 1), filled(ROOM, 2));
        let recv = RecvArgs {
            pattern: Pattern {
                source: None,
                ..pattern()
            },
            data: Data::contiguous(any.mem(), ROOM as u64),
            origin: CallOrigin::default(),
        };
        let Ok(StartOutcome::Pending(wildcard)) = pair.receiver.recv(recv) else {
            panic!("nothing was sent")
        };
        pair.receiver.offer_early(wildcard);
        let receive = pair.post(&room);
        let send = pair.send(&message);
        assert!(!pair.sender_ends(send));
        let status = pair.both_end(send, wildcard);
        assert_eq!((status.len, status.error), (1 << 20, None));
        assert!(all(&any, 0, 1 << 20, 7) && all(&room, 0, ROOM, 2));
        pair.receiver.cancel(receive).unwrap();
        assert!(
            pair.receiver
                .take(receive)
                .unwrap()
                .is_some_and(|status| status.cancelled)
        );
    }
}

#[test]
fn small_messages_taken_as_they_lie_ready_do_not_mislead_the_sender_of_the_next_large_one() {
    for mut pair in Pair::each() {
        let (small, large, room) = (filled(8, 3), filled(1 << 20, 7), filled(ROOM, 1));
        for round in 0..40 {
            for _ in 0..round % 4 {
                let sent = pair.sender.send(SendArgs {
                    context: 2,
                    peer: 1,
                    source: 0,
                    tag: TAG,
                    data: Data::contiguous(small.mem(), 8),
                    mode: SendCompletion::Standard,
                    origin: CallOrigin::default(),
                });
                assert!(matches!(sent, Ok(StartOutcome::Done(_))));
                let taken = filled(8, 1);
                let catch = FastRecv::new(pattern(), (taken.mem(), 8), CallOrigin::default());
                assert!(
                    pair.receiver.recv_blocking_fast(&catch, 0).is_some() && all(&taken, 0, 8, 3)
                );
            }
            room.mem().with_mut(0, ROOM, |bytes| bytes.fill(1));
            let receive = pair.post(&room);
            let send = pair.send(&large);
            assert!(
                pair.sender_ends(send),
                "round {round}: it needed the receiver's hands"
            );
            pair.sender.take(send).unwrap();
            assert!(all(&room, 0, 1 << 20, 7), "round {round}");
            let status = pair.receiver_ends(receive).unwrap();
            assert_eq!((status.len, status.error), (1 << 20, None));
        }
    }
}

#[test]
fn messages_of_any_way_and_tag_count_for_the_next_announced_one() {
    for mut pair in Pair::each() {
        pair.sender.allow_slot_batches(true);
        let (eager, large, room) = (filled(100, 3), filled(1 << 20, 7), filled(ROOM, 1));
        let mut on_track = 0;
        for round in 0..200usize {
            // The memory of the receive is offered while others are before it, with its tag and
            // another, which then come in three ways, two at a time.
            let count = round % 7;
            let sends = (0..count).map(|at| (TAG + (at + round) as i32 % 2, at / 2 + round / 7));
            let takes: Vec<_> = sends.clone().map(|(tag, _)| pair.post_small(tag)).collect();
            room.mem().with_mut(0, ROOM, |bytes| bytes.fill(1));
            let early = (round % 2 == 0).then(|| pair.post(&room));
            for (tag, way) in sends {
                let small = FastSend {
                    context: 2,
                    peer: 1,
                    source: 0,
                    tag,
                    mem: eager.mem(),
                    len: [8, 100, 100][way % 3],
                    origin: CallOrigin::default(),
                };
                let track = pair.sender.send_channel(2, 1).filter(|_| small.len == 8);
                let data = (small.mem, small.len as u32);
                if track.is_some_and(|track| track.send(tag, data, small.origin, |_| {})) {
                    on_track += 1;
                } else if way % 3 == 2 || !pair.sender.send_small(&small) {
                    let sent = pair.sender.send(SendArgs {
                        context: 2,
                        peer: 1,
                        source: 0,
                        tag,
                        data: Data::contiguous(small.mem, small.len as u64),
                        mode: SendCompletion::Standard,
                        origin: CallOrigin::default(),
                    });
                    assert!(matches!(sent, Ok(StartOutcome::Done(_))));
                }
            }
            // Offered late, it is for one behind what was sent.
            let receive = early.unwrap_or_else(|| pair.post(&room));
            let send = pair.send(&large);
            assert!(
                pair.sender_ends(send),
                "round {round}: it needed the receiver's hands"
            );
            pair.sender.take(send).unwrap();
            assert!(all(&room, 0, 1 << 20, 7), "round {round}");
            for (take, _room) in takes {
                assert!(pair.receiver_ends(take).is_some());
            }
            let status = pair.receiver_ends(receive).unwrap();
            assert_eq!((status.len, status.error), (1 << 20, None));
        }
        assert!(on_track > 50, "{on_track} messages went on the track");
    }
}

#[test]
fn an_offer_made_before_a_track_ended_is_for_no_other_message() {
    for early in [true, false] {
        for mut pair in Pair::each() {
            pair.sender.allow_slot_batches(true);
            let (large, larger) = (filled(1 << 20, 7), filled(2 << 20, 8));
            while pair.sender.send_channel(2, 1).is_none() {
                let (place, _room) = pair.post_small(TAG);
                pair.send_eager(TAG, 8);
                pair.receiver_ends(place).unwrap();
            }
            let places = [TAG + 1, TAG].map(|tag| pair.post_small(tag));
            let rooms = [filled(ROOM, 1), filled(ROOM, 1)];
            // An event, unlike the next.
            pair.send_eager(TAG + 1, 100);
            while pair.receiver.progress() {}
            let receives = [pair.post(&rooms[0]), pair.post(&rooms[1])];
            if early {
                pair.sender.progress();
            }
            // Before the announced ones comes one on the track, of which nothing is known when that
            // has ended.
            let recorded =
                |pair: &Pair| pair.sender.events().iter().last().map(|(number, _)| number);
            let before = recorded(&pair);
            pair.send_eager(TAG, 8);
            assert_eq!(recorded(&pair), before, "it is no event");
            pair.sender.end_send_channels(&(0..8));
            let sends = [pair.send(&large), pair.send(&larger)];
            for _ in 0..LOOKS {
                pair.sender.progress();
            }
            let lens = receives.map(|receive| {
                let looks = (0..LOOKS).find_map(|_| {
                    pair.sender.progress();
                    pair.receiver.progress();
                    pair.receiver.take(receive).unwrap()
                });
                let status = looks.unwrap();
                assert_eq!(status.error, None);
                status.len
            });
            assert_eq!(lens, [1 << 20, 2 << 20]);
            assert!(all(&rooms[0], 0, 1 << 20, 7) && all(&rooms[0], 1 << 20, ROOM, 1));
            assert!(all(&rooms[1], 0, 2 << 20, 8));
            for send in sends {
                assert!(pair.sender_ends(send));
            }
            for (place, _) in places {
                assert!(pair.receiver_ends(place).is_some());
            }
        }
    }
}
