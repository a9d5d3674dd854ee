//! A rank that has no room for a peer's inbox: both hear why, neither takes the other for dead, and
//! others are reached as before.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, LackingSide, Pattern, Peer, RecvArgs, Request, SendArgs, SendCompletion,
    Source, StartOutcome, UnreachableCause,
};
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_shm::{NodePeers, PeerProcess, ShmTransport, ThreadPeers};
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ENOMEM: i32 = 12;
const LIMIT: u64 = 4096;

/// Threads of which the first finds no room for the inbox of the second.
struct Narrow(ThreadPeers);

impl NodePeers for Narrow {
    fn me(&self) -> Peer {
        self.0.me()
    }
    fn size(&self) -> u32 {
        self.0.size()
    }
    fn own_inbox(&self) -> Segment {
        self.0.own_inbox()
    }
    fn map_inbox(&self, peer: Peer) -> Result<Segment, Error> {
        if (self.me(), peer) != (0, 1) {
            return self.0.map_inbox(peer);
        }
        Err(Error::Unreached(Box::new(UnreachableCause {
            peer,
            side: LackingSide::This,
            bytes: self.own_inbox().len() as u64,
            errno: ENOMEM,
            limit: Some(LIMIT),
        })))
    }
    fn write_unmapped(&self, peer: Peer, at: usize, word: u32) {
        let inbox = self.0.map_inbox(peer).unwrap();
        inbox.atomic_u32(at).store(word, Ordering::Relaxed);
    }
    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        self.0.doorbell(peer)
    }
    fn process(&self, _peer: Peer) -> PeerProcess {
        PeerProcess::Unreachable
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
    fn commons(&self) -> Option<Segment> {
        None
    }
}

fn ranks() -> Vec<Engine<ShmTransport>> {
    let ranks = ThreadPeers::new(3).unwrap().into_iter();
    ranks
        .map(|rank| {
            let me = rank.me();
            let transport = ShmTransport::new(Arc::new(Narrow(rank))).unwrap();
            Engine::new(transport, me, 3, CreditQuotas::for_world(3))
        })
        .collect()
}

fn send(
    shard: &mut Engine<ShmTransport>,
    peer: Peer,
    source: u32,
    memory: &Scratch,
) -> Result<StartOutcome, Error> {
    shard.send(SendArgs {
        context: 2,
        peer,
        source,
        tag: 0,
        data: Data::contiguous(memory.mem(), memory.len() as u64),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    })
}

fn recv(shard: &mut Engine<ShmTransport>, peer: Peer, memory: &Scratch) -> Result<Request, Error> {
    let source = Some(Source { rank: peer, peer });
    let started = shard.recv(RecvArgs {
        pattern: Pattern {
            context: 2,
            source,
            tag: Some(0),
        },
        data: Data::contiguous(memory.mem(), memory.len() as u64),
        origin: CallOrigin::default(),
    })?;
    match started {
        StartOutcome::Pending(request) => Ok(request),
        StartOutcome::Done(status) => panic!("{status:?}"),
    }
}

/// Looks once more, as one that is about to sleep.
fn settle(shard: &mut Engine<ShmTransport>) {
    shard.progress();
    shard.transport().arm();
    while shard.progress() {}
    shard.transport().disarm();
}

fn side_of(error: Option<Error>) -> LackingSide {
    match error {
        Some(Error::Unreached(shortage)) => {
            assert_eq!(shortage.errno, ENOMEM);
            shortage.side
        }
        other => panic!("not a shortage: {other:?}"),
    }
}

fn error_of(started: Result<StartOutcome, Error>) -> Option<Error> {
    match started {
        Err(error) => Some(error),
        Ok(StartOutcome::Done(status)) => status.error,
        Ok(StartOutcome::Pending(_)) => None,
    }
}

fn ended(shard: &mut Engine<ShmTransport>, request: Request) -> Option<Error> {
    shard.take(request).unwrap().expect("it goes on").error
}

#[test]
fn a_send_without_room_for_the_inbox_fails_and_the_receiver_hears_of_it() {
    let mut ranks = ranks();
    let (memory, room) = (Scratch::new(8).unwrap(), Scratch::new(8).unwrap());
    let waiting = recv(&mut ranks[1], 0, &room).unwrap();
    for _ in 0..2 {
        assert_eq!(
            side_of(error_of(send(&mut ranks[0], 1, 0, &memory))),
            LackingSide::This
        );
    }
    settle(&mut ranks[1]);
    assert_eq!(side_of(ended(&mut ranks[1], waiting)), LackingSide::Peer);
    // Whoever asks later is told as much.
    assert_eq!(
        side_of(recv(&mut ranks[1], 0, &room).err()),
        LackingSide::Peer
    );
    assert_eq!(
        side_of(error_of(send(&mut ranks[1], 0, 1, &memory))),
        LackingSide::Peer
    );
}

#[test]
fn a_receive_that_has_to_answer_fails_with_its_send() {
    let mut ranks = ranks();
    let (memory, room) = (
        Scratch::new(3 << 20).unwrap(),
        Scratch::new(3 << 20).unwrap(),
    );
    let receive = recv(&mut ranks[0], 1, &room).unwrap();
    let Ok(StartOutcome::Pending(send)) = send(&mut ranks[1], 0, 1, &memory) else {
        panic!("it cannot be over");
    };
    settle(&mut ranks[0]);
    assert_eq!(side_of(ended(&mut ranks[0], receive)), LackingSide::This);
    settle(&mut ranks[1]);
    assert_eq!(side_of(ended(&mut ranks[1], send)), LackingSide::Peer);
}

#[test]
fn others_are_reached_as_before() {
    let mut ranks = ranks();
    let (memory, room) = (Scratch::new(8).unwrap(), Scratch::new(8).unwrap());
    assert!(error_of(send(&mut ranks[0], 1, 0, &memory)).is_some());
    for (from, to) in [(0, 2), (2, 0), (1, 2), (2, 1)] {
        let receive = recv(&mut ranks[to], from as Peer, &room).unwrap();
        assert_eq!(
            error_of(send(&mut ranks[from], to as Peer, from as u32, &memory)),
            None
        );
        (0..3).for_each(|rank| settle(&mut ranks[rank]));
        assert_eq!(ended(&mut ranks[to], receive), None);
    }
}
