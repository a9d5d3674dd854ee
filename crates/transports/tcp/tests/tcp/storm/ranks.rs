//! Ranks that exchange messages of all sizes and notice every byte that is lost, doubled, changed,
//! out of order, or written or read when its memory is somebody else's again.
//!
//! What is sent is a pure function of (from, to, number); when ranks post, look, sleep and compute
//! is drawn from the seed, too.

use crate::storm::lines::Sky;
use crate::traffic::mix;
use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, Peer, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
    Status,
};
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_sim::random::Random;
use garonne_sync::user::{Data, Scratch};
use garonne_tcp::TcpTransport;
use garonne_tcp::connection_table;
use garonne_transport::conformance::vector::vector_of;
use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything that goes wrong lasts: whoever sleeps that long was not woken.
const SURELY_LOST: Duration = Duration::from_secs(20);
/// And whoever gets not a byte for so long hangs, as does a world that has not ended after so many
/// times that.
const SURELY_HANGS: Duration = Duration::from_secs(30);
const TIMES_THAT: u32 = 8;
const CONTEXT: u32 = 2;
const TAGS: u64 = 3;
const LEN_MAX: usize = 6 << 20;
/// Buffers that came back are watched as long as no more than so many bytes do.
const WATCHED: usize = 24 << 20;
/// Byte written into memory that came back.
const USED: u8 = 0xdd;

/// Bytes that repeat nowhere; each message is a stretch of them.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..(2 * LEN_MAX / 8) as u64)
        .flat_map(|at| mix(at + 1).to_le_bytes())
        .collect()
});

/// Messages that every rank sends to every other.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub ranks: u32,
    pub messages: u32,
    /// Sends and receives that are open at a time, of each peer.
    pub window: usize,
    /// No message is longer.
    pub longest: u64,
}

impl Plan {
    fn roll(&self, from: Peer, to: Peer, number: u32) -> Random {
        Random::new(mix(self.seed
            ^ mix(u64::from(from) << 48
                | u64::from(to) << 40
                | u64::from(number))))
    }

    /// Tag and length.
    fn message(&self, from: Peer, to: Peer, number: u32) -> (i32, usize) {
        let mut roll = self.roll(from, to, number);
        let most = match roll.below(100) {
            0..45 => 4096,
            45..65 => 32_768,
            65..85 => 262_144,
            85..97 => 2 << 20,
            _ => LEN_MAX as u64,
        };
        let tag = roll.below(TAGS) as i32;
        (tag, roll.below(most.min(self.longest) + 1) as usize)
    }

    fn bytes(&self, from: Peer, to: Peer, number: u32) -> &'static [u8] {
        let (_, len) = self.message(from, to, number);
        let at = self
            .roll(from, to, number ^ 1 << 31)
            .below((BYTES.len() - len) as u64) as usize;
        &BYTES[at..at + len]
    }
}

/// Memory for so many bytes, some of it in blocks.
fn memory_for(len: usize, dice: &mut Random) -> (Scratch, Data) {
    match dice.below(8) {
        // Tests that are not optimised pack these byte by byte.
        0 if len < 400_000 => vector_of(len as u64, 5000, 5600),
        1 if len < 40_000 => vector_of(len as u64, 90, 100),
        _ => {
            let memory = Scratch::new(len.max(1)).unwrap();
            let data = Data::contiguous(memory.mem(), len as u64);
            (memory, data)
        }
    }
}

fn is_contiguous(data: &Data) -> bool {
    data.layout.is_none()
}

fn write(data: &Data, bytes: &[u8]) {
    match is_contiguous(data) {
        true => data.mem.write(0, bytes),
        false => data.unpack(0, bytes),
    }
}

fn holds(data: &Data, expected: &[u8]) -> bool {
    let mut got = vec![0; expected.len()];
    match is_contiguous(data) {
        true => data.mem.read(0, &mut got),
        false => data.pack(0, &mut got),
    }
    got == expected
}

/// An operation that is open.
struct Open {
    peer: Peer,
    number: u32,
    request: Request,
    memory: Scratch,
    data: Data,
    receives: bool,
}

/// State of a rank's exchange with one peer.
#[derive(Clone, Copy, Debug, Default)]
struct With {
    sent: u32,
    posted: u32,
    open_sends: usize,
    open_receives: usize,
    done: u32,
}

pub struct Rank<'a> {
    shard: Engine<TcpTransport>,
    me: Peer,
    plan: Plan,
    sky: &'a Sky,
    dice: Random,
    with: Vec<With>,
    open: Vec<Open>,
    /// Memory that came back, and is to stay as it is.
    used: VecDeque<Scratch>,
    used_bytes: usize,
    /// Nothing new is started until then.
    pauses: Option<Instant>,
    begun: Instant,
    /// When something came or ended.
    last: Instant,
    /// Bytes of large data that came until then.
    brought: u64,
}

impl<'a> Rank<'a> {
    pub fn new(transport: TcpTransport, me: Peer, plan: Plan, sky: &'a Sky) -> Self {
        Self {
            shard: Engine::new(
                transport,
                me,
                plan.ranks,
                CreditQuotas::for_world(plan.ranks),
            ),
            me,
            plan,
            sky,
            dice: Random::new(mix(plan.seed ^ mix(u64::from(me) + 77))),
            with: vec![With::default(); plan.ranks as usize],
            open: Vec::new(),
            used: VecDeque::new(),
            used_bytes: 0,
            pauses: None,
            begun: Instant::now(),
            last: Instant::now(),
            brought: 0,
        }
    }

    fn peers(&self) -> impl Iterator<Item = Peer> + use<> {
        let me = self.me;
        (0..self.plan.ranks).filter(move |peer| *peer != me)
    }

    /// Starts what the window has room for. Whether anything was.
    fn start(&mut self) -> bool {
        if self.pauses.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        self.pauses = None;
        let mut some = false;
        for peer in self.peers() {
            let with = self.with[peer as usize];
            if with.sent < self.plan.messages && with.open_sends < self.plan.window {
                self.send(peer, with.sent);
                some = true;
            }
            if with.posted < self.plan.messages && with.open_receives < self.plan.window {
                self.receive(peer, with.posted);
                some = true;
            }
        }
        // Now and then much comes before anybody wants it.
        if some && self.dice.one_in(30) {
            self.pauses = Some(Instant::now() + Duration::from_micros(self.dice.below(30_000)));
        }
        some
    }

    fn send(&mut self, peer: Peer, number: u32) {
        let (tag, len) = self.plan.message(self.me, peer, number);
        let (memory, data) = memory_for(len, &mut self.dice);
        write(&data, self.plan.bytes(self.me, peer, number));
        let mode = if self.dice.one_in(8) {
            SendCompletion::Synchronous
        } else {
            SendCompletion::Standard
        };
        let started = self.shard.send(SendArgs {
            context: CONTEXT,
            peer,
            source: self.me,
            tag,
            data: data.clone(),
            mode,
            origin: CallOrigin::default(),
        });
        self.with[peer as usize].sent += 1;
        self.with[peer as usize].open_sends += 1;
        self.started(started.unwrap(), (peer, number, false), (memory, data));
    }

    fn receive(&mut self, peer: Peer, number: u32) {
        let (tag, len) = self.plan.message(peer, self.me, number);
        let room = len + if self.dice.one_in(4) { 64 } else { 0 };
        let (memory, data) = memory_for(room, &mut self.dice);
        memory
            .mem()
            .with_mut(0, memory.len(), |bytes| bytes.fill(USED));
        let started = self.shard.recv(RecvArgs {
            pattern: Pattern {
                context: CONTEXT,
                source: Some(Source { rank: peer, peer }),
                tag: Some(tag),
            },
            data: data.clone(),
            origin: CallOrigin::default(),
        });
        self.with[peer as usize].posted += 1;
        self.with[peer as usize].open_receives += 1;
        self.started(started.unwrap(), (peer, number, true), (memory, data));
    }

    fn started(
        &mut self,
        started: StartOutcome,
        (peer, number, receives): (Peer, u32, bool),
        (memory, data): (Scratch, Data),
    ) {
        let index = u32::MAX;
        let (request, ended) = match started {
            StartOutcome::Pending(request) => (request, None),
            StartOutcome::Done(status) => (
                Request {
                    index,
                    generation: 0,
                },
                Some(status),
            ),
        };
        let open = Open {
            peer,
            number,
            request,
            memory,
            data,
            receives,
        };
        match ended {
            Some(status) => self.ended(open, &status),
            None => self.open.push(open),
        }
    }

    /// An operation is over: what came is right, and its memory is used for something else.
    fn ended(&mut self, open: Open, status: &Status) {
        let (peer, number, me) = (open.peer, open.number, self.me);
        assert_eq!(
            status.error, None,
            "message {number} of {peer} and {me}, received: {}",
            open.receives
        );
        let with = &mut self.with[peer as usize];
        with.done += 1;
        if open.receives {
            with.open_receives -= 1;
            let expected = self.plan.bytes(peer, me, number);
            assert_eq!(
                status.len,
                expected.len() as u64,
                "message {number} of {peer} to {me}"
            );
            assert!(
                holds(&open.data, expected),
                "message {number} of {peer} to {me}, {} bytes, has others",
                expected.len()
            );
            let beyond = (open.data.len as usize - expected.len()).min(64);
            if is_contiguous(&open.data) && beyond > 0 {
                let mut rest = vec![0; beyond];
                open.data.mem.read(expected.len() as isize, &mut rest);
                assert!(
                    rest.iter().all(|byte| *byte == USED),
                    "written beyond message {number}"
                );
            }
        } else {
            with.open_sends -= 1;
        }
        open.memory
            .mem()
            .with_mut(0, open.memory.len(), |bytes| bytes.fill(USED));
        self.used_bytes += open.memory.len();
        self.used.push_back(open.memory);
        while self.used_bytes > WATCHED {
            self.check_oldest();
        }
        self.last = Instant::now();
    }

    /// Memory that came back is still as it was left.
    fn check_oldest(&mut self) {
        if let Some(memory) = self.used.pop_front() {
            self.used_bytes -= memory.len();
            let expected = vec![USED; memory.len()];
            memory.mem().with(0, memory.len(), |bytes| {
                assert!(
                    bytes == expected,
                    "memory was written after its message had ended"
                );
            });
        }
    }

    /// Takes what has ended. Whether anything had.
    fn take(&mut self) -> bool {
        let mut some = false;
        for at in (0..self.open.len()).rev() {
            if let Some(status) = self.shard.take(self.open[at].request).unwrap() {
                let open = self.open.swap_remove(at);
                self.ended(open, &status);
                some = true;
            }
        }
        some
    }

    fn is_through(&self) -> bool {
        let all = 2 * self.plan.messages;
        self.peers()
            .all(|peer| self.with[peer as usize].done == all)
    }

    /// Sleeps until somebody wakes it, as a rank that waits does.
    fn sleep(&mut self) {
        if self.shard.progress() {
            return;
        }
        let source = self.shard.transport().wake_source();
        let ticket = self.shard.transport().arm();
        if !self.shard.progress() {
            let begun = Instant::now();
            let pause = self
                .pauses
                .map(|until| until.saturating_duration_since(Instant::now()));
            source.sleep(ticket, Some(pause.unwrap_or(SURELY_LOST)));
            let is_lost = pause.is_none() && begun.elapsed() >= SURELY_LOST;
            if is_lost {
                let state = self.state();
                panic!("nobody woke rank {}: {state}", self.me);
            }
        }
        self.shard.transport().disarm();
    }

    /// Computes for some milliseconds, with or without somebody who looks after its sockets
    /// meanwhile.
    fn compute(&mut self) {
        let helped = self.dice.one_in(2);
        for _ in 0..1 + self.dice.below(8) {
            std::thread::sleep(Duration::from_micros(self.dice.below(2000)));
            if helped {
                self.shard.transport().drive();
            }
        }
    }

    fn state(&mut self) -> String {
        let open: Vec<_> = self
            .open
            .iter()
            .map(|open| {
                let (from, to) = if open.receives {
                    (open.peer, self.me)
                } else {
                    (self.me, open.peer)
                };
                (
                    from,
                    to,
                    open.number,
                    self.plan.message(from, to, open.number).1,
                )
            })
            .collect();
        let seen = connection_table::read_shown(&self.shard.transport().shown_table());
        format!(
            "{:?}, open (from, to, number, bytes): {open:?}, connections: {seen:?}, {:?}",
            self.with,
            self.shard.waiting()
        )
    }

    /// Nothing has come for so long that nothing will.
    fn hangs(&mut self) -> bool {
        if self.last.elapsed() > SURELY_HANGS {
            let peers = self.peers();
            let transport = self.shard.transport();
            let brought = peers.flat_map(|peer| transport.brought_by(peer)).sum();
            if std::mem::replace(&mut self.brought, brought) != brought {
                self.last = Instant::now();
            }
        }
        self.last.elapsed() > SURELY_HANGS || self.begun.elapsed() > SURELY_HANGS * TIMES_THAT
    }

    /// Exchanges everything; `through` counts the ranks that have.
    pub fn run(mut self, through: &AtomicU32) {
        let mut is_through = false;
        while through.load(Ordering::Acquire) < self.plan.ranks
            && !self.sky.stop.load(Ordering::Acquire)
        {
            let mut moved = self.start();
            moved |= self.shard.progress();
            moved |= self.take();
            if !is_through && self.is_through() {
                is_through = true;
                through.fetch_add(1, Ordering::AcqRel);
            }
            if is_through {
                // What has left it may be lost as long as connections break, and nobody else has
                // it.
                self.last = Instant::now();
            }
            if self.hangs() {
                let state = self.state();
                panic!("rank {} hangs: {state}", self.me);
            }
            match self.dice.below(200) {
                0 => self.compute(),
                1..60 if !moved && !is_through => self.sleep(),
                _ if !moved => std::thread::sleep(Duration::from_micros(50)),
                _ => {}
            }
        }
        self.sky.calm.store(true, Ordering::Release);
        for _ in 0..50 {
            self.shard.progress();
        }
        assert!(self.open.is_empty() || self.sky.stop.load(Ordering::Acquire));
        assert_eq!(self.shard.unexpected_count(), 0, "a message came twice");
        while !self.used.is_empty() {
            self.check_oldest();
        }
    }
}
