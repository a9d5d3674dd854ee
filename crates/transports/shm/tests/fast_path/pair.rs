//! Two ranks that send and receive by either way, beside a model of what each message goes to.

use crate::support::ReachedAs;
use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome, Status,
    TypeDigest,
};
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::{FastRecv, PlainRecvStatus, ReceivedMessage};
use garonne_engine::fast::send::FastSend;
use garonne_shm::{NodePeers, PeerProcess, ShmTransport, ThreadPeers};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const CONTEXT: u32 = 6;
pub(crate) const ORIGIN: CallOrigin = CallOrigin {
    call: 1,
    datatype: 0,
    digest: TypeDigest::NONE,
    site: 2,
};
/// Bytes of room of every receive.
pub(crate) const ROOM: u32 = 140_000;
/// Larger than a slot, than a quick send, than a message of one piece, and than an eager message
/// may be.
pub(crate) const LENGTHS: [usize; 11] = [
    0,
    1,
    8,
    32,
    33,
    256,
    3500,
    9001,
    30_000,
    50_000,
    ROOM as usize,
];

/// Byte `at` of a message: another one in each piece.
pub(crate) fn byte(fill: u8, at: usize) -> u8 {
    fill.wrapping_add((at / 7 + at / 4096 * 3) as u8)
}

/// A message as the model knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) tag: i32,
    pub(crate) len: usize,
    pub(crate) fill: u8,
}

pub(crate) struct Posted {
    pub(crate) tag: Option<i32>,
    pub(crate) request: Request,
    pub(crate) memory: Scratch,
    pub(crate) gets: Option<Sent>,
}

pub(crate) struct Pair {
    pub(crate) sender: Engine<ShmTransport>,
    pub(crate) receiver: Engine<ShmTransport>,
    /// Sends under way, with the memory that they read.
    pub(crate) sending: Vec<(Request, Scratch)>,
    /// Sent and received by nobody.
    pub(crate) queue: Vec<Sent>,
    pub(crate) posted: Vec<Posted>,
    /// Sends, receives and posted receives that went the shortest way, and sends that went on a
    /// track.
    pub(crate) quick: [u32; 4],
}

pub(crate) fn pattern(tag: Option<i32>, any_source: bool) -> Pattern {
    Pattern {
        context: CONTEXT,
        source: (!any_source).then_some(Source { rank: 0, peer: 0 }),
        tag,
    }
}

/// Setting whether ranks read each other's memory.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Memory {
    Readable,
    Apart,
}

impl Pair {
    pub(crate) fn new(memory: Memory) -> Self {
        let mut ranks = ThreadPeers::new(2).unwrap().into_iter().map(|rank| {
            let node_peers: Arc<dyn NodePeers> = match memory {
                Memory::Readable => Arc::new(rank),
                Memory::Apart => Arc::new(ReachedAs(rank, PeerProcess::Unreachable)),
            };
            ShmTransport::new(node_peers).unwrap()
        });
        let mut shard = |me| Engine::new(ranks.next().unwrap(), me, 2, CreditQuotas::for_world(2));
        let (sender, receiver) = (shard(0), shard(1));
        Self {
            sender,
            receiver,
            sending: Vec::new(),
            queue: Vec::new(),
            posted: Vec::new(),
            quick: [0; 4],
        }
    }

    /// A track takes it without the engine.
    pub(crate) fn on_track(&self, small: &FastSend) -> bool {
        let track = self.sender.send_channel(small.context, small.peer);
        small.len <= LENGTHS[3]
            && track.is_some_and(|track| {
                let site = |word: &AtomicU64| word.store(small.origin.site, Ordering::Relaxed);
                track.send(small.tag, (small.mem, small.len as u32), small.origin, site)
            })
    }

    pub(crate) fn send(&mut self, sent: Sent, quick: bool) {
        let memory = Scratch::new(sent.len.max(1)).unwrap();
        memory.mem().with_mut(0, sent.len, |bytes| {
            let bytes = bytes.iter_mut().enumerate();
            bytes.for_each(|(at, value)| *value = byte(sent.fill, at));
        });
        let small = FastSend {
            context: CONTEXT,
            peer: 1,
            source: 0,
            tag: sent.tag,
            mem: memory.mem(),
            len: sent.len,
            origin: ORIGIN,
        };
        if quick && self.on_track(&small) {
            self.quick[3] += 1;
        } else if quick && self.sender.send_small(&small) {
            self.quick[0] += 1;
        } else {
            let data = Data::contiguous(memory.mem(), sent.len as u64);
            let send = SendArgs {
                context: CONTEXT,
                peer: 1,
                source: 0,
                tag: sent.tag,
                data,
                mode: SendCompletion::Standard,
                origin: ORIGIN,
            };
            if let StartOutcome::Pending(request) = self.sender.send(send).unwrap() {
                self.sending.push((request, memory));
            }
        }
        let mut open = self
            .posted
            .iter_mut()
            .filter(|posted| posted.gets.is_none());
        match open.find(|posted| posted.tag.is_none_or(|tag| tag == sent.tag)) {
            Some(posted) => posted.gets = Some(sent),
            None => self.queue.push(sent),
        }
    }

    /// The message that a receive of now gets, taken out of the queue.
    pub(crate) fn next(&mut self, tag: Option<i32>) -> Option<Sent> {
        let fits = |sent: &Sent| tag.is_none_or(|tag| tag == sent.tag);
        let at = self.queue.iter().position(fits)?;
        Some(self.queue.remove(at))
    }

    pub(crate) fn start(&mut self, tag: Option<i32>, memory: &Scratch) -> StartOutcome {
        let data = Data::contiguous(memory.mem(), memory.len() as u64);
        self.receiver
            .recv(RecvArgs {
                pattern: pattern(tag, false),
                data,
                origin: ORIGIN,
            })
            .unwrap()
    }

    pub(crate) fn post(&mut self, tag: Option<i32>, plainly: bool) {
        let gets = self.next(tag);
        let memory = Scratch::new(ROOM as usize).unwrap();
        let catch = FastRecv::new(pattern(tag, false), (memory.mem(), ROOM), ORIGIN);
        if plainly && let Some(request) = self.receiver.post_plain(&catch) {
            return self.posted.push(Posted {
                tag,
                request,
                memory,
                gets,
            });
        }
        match self.start(tag, &memory) {
            StartOutcome::Pending(request) => self.posted.push(Posted {
                tag,
                request,
                memory,
                gets,
            }),
            StartOutcome::Done(status) => check(
                &status,
                &memory,
                gets.expect("something came that nobody sent"),
            ),
        }
    }

    pub(crate) fn receive(&mut self, tag: Option<i32>, any_source: bool) {
        let expected = self.next(tag);
        let memory = Scratch::new(ROOM as usize).unwrap();
        let catch = FastRecv::new(pattern(tag, any_source), (memory.mem(), ROOM), ORIGIN);
        if let Some(caught) = self.receiver.recv_blocking_fast(&catch, 3) {
            self.quick[1] += 1;
            return check(
                &status_of(caught),
                &memory,
                expected.expect("something was caught that nobody sent"),
            );
        }
        let Some(expected) = expected else { return };
        let status = match self.start(tag, &memory) {
            StartOutcome::Done(status) => status,
            StartOutcome::Pending(request) => self.wait(request),
        };
        check(&status, &memory, expected);
    }

    pub(crate) fn wait(&mut self, request: Request) -> Status {
        for _ in 0..100_000 {
            if let Some(status) = self.receiver.take(request).unwrap() {
                return status;
            }
            self.receiver.progress();
            self.sender.progress();
        }
        panic!("a message did not come")
    }

    /// Waits for a receive by asking for a plain end, as a caller does that knows only the low bits
    /// of the generation.
    pub(crate) fn wait_plainly(&mut self, request: Request) -> Status {
        let short = Request {
            generation: request.generation % 64,
            ..request
        };
        assert_eq!(self.receiver.full_name(short), Some((request, CONTEXT)));
        for _ in 0..100_000 {
            match self.receiver.take_plain(short) {
                PlainRecvStatus::Plainly(caught) => {
                    self.quick[2] += 1;
                    assert_eq!(
                        self.receiver.take_plain(short),
                        PlainRecvStatus::Otherwise,
                        "the name is stale"
                    );
                    return status_of(caught);
                }
                PlainRecvStatus::Otherwise => return self.wait(request),
                PlainRecvStatus::NotYet => {}
            }
            self.receiver.progress();
            self.sender.progress();
        }
        panic!("a message did not come")
    }

    /// Everything that has a message is complete; the rest is withdrawn.
    pub(crate) fn finish(mut self) -> [u32; 4] {
        for posted in std::mem::take(&mut self.posted) {
            match posted.gets {
                Some(sent) => check(&self.wait_plainly(posted.request), &posted.memory, sent),
                None => {
                    self.receiver.cancel(posted.request).unwrap();
                    assert!(self.wait(posted.request).cancelled);
                }
            }
        }
        while !self.queue.is_empty() {
            self.receive(None, true);
        }
        for (request, _) in std::mem::take(&mut self.sending) {
            for _ in 0..1000 {
                self.receiver.progress();
                self.sender.progress();
            }
            assert!(
                self.sender.take(request).unwrap().is_some(),
                "a send did not end"
            );
        }
        assert!(self.receiver.is_idle() && self.sender.is_idle());
        self.quick
    }
}

pub(crate) fn status_of(caught: ReceivedMessage) -> Status {
    Status {
        source: caught.source,
        tag: caught.tag,
        len: caught.len.into(),
        cancelled: false,
        error: None,
    }
}

pub(crate) fn check(status: &Status, memory: &Scratch, sent: Sent) {
    assert_eq!(status.error, None);
    assert_eq!(
        (status.source, status.tag, status.len),
        (0, sent.tag, sent.len as u64)
    );
    memory.mem().with(0, sent.len, |bytes| {
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(at, value)| *value == byte(sent.fill, at)),
            "other bytes than were sent"
        )
    });
}
