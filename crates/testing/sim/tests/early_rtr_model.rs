//! Early RTR against a naive model of matching: random programs, schedules and faults, with
//! wildcards, cancels and probes.
//!
//! Every rank sends and receives. What it posted and what came of it is compared with what the
//! standard says of the order of messages, and every byte of every buffer with what it must be,
//! once when its receive ends and once more at the end of the run.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome, Status,
};
use garonne_engine::protocol::offload::CopyJob;
use garonne_progress::messaging::{FastMessaging, Messaging, Waiting};
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, check};
use garonne_sim::random::Random;
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;

const TAGS: u64 = 2;
const CONTEXTS: u64 = 2;
/// Room of every receive.
const ROOM: usize = 6000;
const UNTOUCHED: u8 = 0xee;

#[derive(Clone, Copy, Debug)]
struct Planned {
    from: u32,
    to: u32,
    context: u32,
    tag: i32,
    len: usize,
    number: usize,
    mode: SendCompletion,
}

/// The messages of a job, by sender in the order of their sends. Their lengths tell them apart.
fn plan(seed: u64, world: u32, count: usize) -> Vec<Planned> {
    let mut random = Random::new(seed ^ 0xa44);
    (0..count)
        .map(|number| {
            let from = random.below(u64::from(world)) as u32;
            Planned {
                from,
                to: (from + 1 + random.below(u64::from(world) - 1) as u32) % world,
                context: random.below(CONTEXTS) as u32 * 2,
                tag: random.below(TAGS) as i32,
                len: [10, 300, 1500, 4000][random.below(4) as usize] + number,
                number,
                mode: if random.one_in(6) {
                    SendCompletion::Synchronous
                } else {
                    SendCompletion::Standard
                },
            }
        })
        .collect()
}

fn byte(number: usize, at: usize) -> u8 {
    if at < 8 {
        (number as u64).to_le_bytes()[at]
    } else {
        (number as u8).wrapping_mul(41).wrapping_add(at as u8)
    }
}

/// Outcome of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending(Request),
    /// The message, and the step at which that was seen.
    Got(usize, u64),
    /// The step at which it was cancelled.
    Cancelled(u64),
}

/// A receive, or a matched probe that found something, in the order of posting.
struct Posted {
    pattern: Pattern,
    room: Scratch,
    fate: Fate,
}

struct Player<'a> {
    host: &'a SimHost,
    plan: &'a [Planned],
    random: Random,
    step: u64,
    posted: Vec<Posted>,
    sends: Vec<(Request, Scratch)>,
    /// Copies that were taken out of the engine, and whether they were carried out.
    flights: Vec<(CopyJob, bool)>,
}

fn accepts(pattern: &Pattern, message: &Planned) -> bool {
    pattern.context == message.context
        && pattern
            .source
            .is_none_or(|source| source.peer == message.from)
        && pattern.tag.is_none_or(|tag| tag == message.tag)
}

impl Player<'_> {
    fn room() -> Scratch {
        let room = Scratch::new(ROOM).expect("memory");
        room.mem().with_mut(0, ROOM, |bytes| bytes.fill(UNTOUCHED));
        room
    }

    fn any_pattern(&mut self) -> Pattern {
        let world = u64::from(self.host.world_size());
        let me = self.host.me();
        let peer = (me + 1 + self.random.below(world - 1) as u32) % world as u32;
        Pattern {
            context: self.random.below(CONTEXTS) as u32 * 2,
            source: (!self.random.one_in(6)).then_some(Source { rank: peer, peer }),
            tag: (!self.random.one_in(6)).then_some(self.random.below(TAGS) as i32),
        }
    }

    fn post(&mut self, pattern: Pattern) -> usize {
        let room = Self::room();
        let data = Data::contiguous(room.mem(), ROOM as u64);
        let recv = RecvArgs {
            pattern,
            data,
            origin: CallOrigin::default(),
        };
        let started = self.host.recv(recv).expect("posted");
        let (request, status) = match started {
            StartOutcome::Done(status) => (None, Some(status)),
            StartOutcome::Pending(request) => (Some(request), None),
        };
        if let Some(request) = request
            && !self.random.one_in(5)
        {
            self.host.offer_early_rtr(request);
        }
        let fate = request.map_or(Fate::Cancelled(0), Fate::Pending);
        self.posted.push(Posted {
            pattern,
            room,
            fate,
        });
        let at = self.posted.len() - 1;
        if let Some(status) = status {
            self.ended(at, &status);
        }
        at
    }

    /// Notes how a receive ended, after a look at all of its bytes.
    fn ended(&mut self, at: usize, status: &Status) {
        assert_eq!(status.error, None, "step {}", self.step);
        let posted = &mut self.posted[at];
        if status.cancelled {
            posted.fate = Fate::Cancelled(self.step);
        } else {
            let number = posted.room.mem().with(0, 8, |bytes| {
                u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
            });
            let message = self
                .plan
                .get(number as usize)
                .expect("a message of the plan");
            assert_eq!(
                (message.to, message.from, message.tag, message.len as u64),
                (self.host.me(), status.source, status.tag, status.len),
                "step {}: {message:?}",
                self.step
            );
            assert!(
                accepts(&posted.pattern, message),
                "{message:?} for {:?}",
                posted.pattern
            );
            posted.fate = Fate::Got(message.number, self.step);
        }
        self.look_at_bytes(at);
    }

    fn look_at_bytes(&self, at: usize) {
        let posted = &self.posted[at];
        let message = match posted.fate {
            Fate::Got(number, _) => Some(&self.plan[number]),
            _ => None,
        };
        posted.room.mem().with(0, ROOM, |bytes| {
            let len = message.map_or(0, |message| message.len);
            for (at, value) in bytes.iter().enumerate() {
                let right = match message {
                    Some(message) if at < len => byte(message.number, at),
                    _ => UNTOUCHED,
                };
                assert_eq!(*value, right, "byte {at} of {message:?}");
            }
        });
    }

    /// Takes what is complete of a receive.
    fn take(&mut self, at: usize) -> bool {
        let Fate::Pending(request) = self.posted[at].fate else {
            return true;
        };
        let status = self.host.take(request).expect("ours");
        if let Some(status) = &status {
            self.ended(at, status);
        }
        status.is_some()
    }

    fn take_all(&mut self) {
        for at in 0..self.posted.len() {
            self.take(at);
        }
    }

    fn pending(&mut self) -> Option<usize> {
        let pending: Vec<usize> = (0..self.posted.len())
            .filter(|at| matches!(self.posted[*at].fate, Fate::Pending(_)))
            .collect();
        let pick = self.random.below(pending.len().max(1) as u64) as usize;
        pending.get(pick).copied()
    }

    fn send(&mut self, message: &Planned) {
        let buffer = Scratch::new(message.len).expect("memory");
        let bytes: Vec<u8> = (0..message.len)
            .map(|at| byte(message.number, at))
            .collect();
        buffer.mem().write(0, &bytes);
        let send = SendArgs {
            context: message.context,
            peer: message.to,
            source: self.host.me(),
            tag: message.tag,
            data: Data::contiguous(buffer.mem(), message.len as u64),
            mode: message.mode,
            origin: CallOrigin::default(),
        };
        if let StartOutcome::Pending(request) = self.host.send(send).expect("started") {
            self.sends.push((request, buffer));
        }
    }

    fn cancel(&mut self, at: usize) {
        if let Fate::Pending(request) = self.posted[at].fate {
            self.host.cancel(request).expect("ours");
            // Whether that worked is decided now.
            self.take(at);
        }
    }

    /// A probe, and the receive that must get what it saw.
    fn probe(&mut self) {
        let pattern = self.any_pattern();
        let Some(seen) = self.host.probe(pattern).expect("alive") else {
            return;
        };
        let exact = Pattern {
            context: pattern.context,
            source: Some(Source {
                rank: seen.source,
                peer: seen.source,
            }),
            tag: Some(seen.tag),
        };
        let at = self.post(exact);
        self.wait(at);
        let Fate::Got(number, _) = self.posted[at].fate else {
            panic!("what was probed was not received");
        };
        assert_eq!(
            self.plan[number].len as u64, seen.len,
            "another message was probed"
        );
    }

    fn mprobe(&mut self) {
        let pattern = self.any_pattern();
        let Some((message, seen)) = self.host.mprobe(pattern).expect("alive") else {
            return;
        };
        let room = Self::room();
        let data = Data::contiguous(room.mem(), ROOM as u64);
        let started = self
            .host
            .mrecv(message, data, CallOrigin::default())
            .expect("ours");
        let at = self.posted.len();
        match started {
            StartOutcome::Done(status) => {
                let fate = Fate::Cancelled(0);
                self.posted.push(Posted {
                    pattern,
                    room,
                    fate,
                });
                self.ended(at, &status);
            }
            StartOutcome::Pending(request) => {
                let fate = Fate::Pending(request);
                self.posted.push(Posted {
                    pattern,
                    room,
                    fate,
                });
                // It has its message already.
                self.cancel(at);
                self.wait(at);
            }
        }
        let Fate::Got(number, _) = self.posted[at].fate else {
            panic!("what was probed was not received");
        };
        assert_eq!(
            self.plan[number].len as u64, seen.len,
            "another message was probed"
        );
    }

    /// Takes a copy out of the engine, or does the next thing to one that was: whatever else
    /// happens comes between.
    fn fly(&mut self) {
        if self.flights.is_empty() || self.random.one_in(3) {
            let flight = self.host.inspect(|shard| {
                shard.progress_briefly();
                shard.take_copy_job()
            });
            self.flights.extend(flight.map(|flight| (flight, false)));
            return;
        }
        let at = self.random.below(self.flights.len() as u64) as usize;
        if std::mem::replace(&mut self.flights[at].1, true) {
            let (flight, _) = self.flights.swap_remove(at);
            self.host.inspect(|shard| shard.finish_copy_job(flight));
        } else {
            self.flights[at].0.run();
        }
    }

    /// Nobody else carries what this rank took out, so it does before it waits.
    fn land_all(&mut self) {
        for (mut flight, carried) in std::mem::take(&mut self.flights) {
            if !carried {
                flight.run();
            }
            self.host.inspect(|shard| shard.finish_copy_job(flight));
        }
    }

    fn wait(&mut self, at: usize) {
        self.land_all();
        let host = self.host;
        let mut over = false;
        host.wait_until(&mut || {
            over = over || self.take(at);
            over
        });
    }

    /// Makes one random program step.
    fn act(&mut self) {
        self.step += 1;
        match self.random.below(24) {
            0..8 => {
                let pattern = self.any_pattern();
                self.post(pattern);
            }
            8 => self.probe(),
            9 => self.mprobe(),
            10 | 11 => {
                if let Some(at) = self.pending() {
                    self.cancel(at);
                }
            }
            12..15 => {
                self.host.progress();
            }
            15..18 => {
                for _ in 0..self.random.below(6) {
                    self.host.inspect(|shard| shard.transport().rest());
                }
            }
            18 | 19 => self.take_all(),
            _ => self.fly(),
        }
    }

    fn got(&self, context: u32) -> usize {
        let got = |posted: &&Posted| {
            posted.pattern.context == context && matches!(posted.fate, Fate::Got(..))
        };
        self.posted.iter().filter(got).count()
    }

    /// Receives what is left, and cancels the receives that then cannot get anything.
    fn drain(&mut self) {
        self.land_all();
        let me = self.host.me();
        for context in (0..CONTEXTS as u32).map(|context| context * 2) {
            let all = self
                .plan
                .iter()
                .filter(|message| (message.to, message.context) == (me, context))
                .count();
            loop {
                self.step += 1;
                self.take_all();
                let got = self.got(context);
                if got == all {
                    break;
                }
                let wildcard = Pattern {
                    context,
                    source: None,
                    tag: None,
                };
                self.post(wildcard);
                let host = self.host;
                host.wait_until(&mut || {
                    self.take_all();
                    self.got(context) > got
                });
            }
        }
        self.step += 1;
        for at in 0..self.posted.len() {
            if matches!(self.posted[at].fate, Fate::Pending(_)) {
                self.cancel(at);
                assert!(
                    self.take(at),
                    "nothing was left for it, but it could not be cancelled"
                );
                assert!(matches!(self.posted[at].fate, Fate::Cancelled(_)));
            }
        }
        for (request, _buffer) in std::mem::take(&mut self.sends) {
            let mut over = false;
            self.host.wait_until(&mut || {
                over = over || self.host.take(request).expect("ours").is_some();
                over
            });
        }
    }

    /// Compares what every receive got with what the standard says.
    fn judge(&self) {
        let me = self.host.me();
        (0..self.posted.len()).for_each(|at| self.look_at_bytes(at));
        let mut receiver = vec![None; self.plan.len()];
        for (at, posted) in self.posted.iter().enumerate() {
            if let Fate::Got(number, _) = posted.fate {
                let before = receiver[number].replace(at);
                assert_eq!(before, None, "message {number} was received twice");
            }
        }
        for message in self.plan.iter().filter(|message| message.to == me) {
            assert!(
                receiver[message.number].is_some(),
                "never received: {message:?}"
            );
        }
        for (older, p) in self.posted.iter().enumerate() {
            for q in &self.posted[older + 1..] {
                let Fate::Got(taken, seen) = q.fate else {
                    continue;
                };
                let message = &self.plan[taken];
                if !accepts(&p.pattern, message) {
                    continue;
                }
                match p.fate {
                    Fate::Got(other, _) if self.plan[other].from == message.from => assert!(
                        other < taken,
                        "message {taken} went past an older receive, which got {other}"
                    ),
                    Fate::Cancelled(when) => assert!(
                        seen >= when,
                        "message {taken} went past an older receive, which was cancelled later"
                    ),
                    _ => {}
                }
            }
        }
        if self.host.world_size() == 2 {
            self.judge_exactly();
        }
    }

    /// Between two ranks the order of sends and receives decides everything: each message goes to
    /// the oldest receive that accepts it.
    fn judge_exactly(&self) {
        let mut free: Vec<&Posted> = self
            .posted
            .iter()
            .filter(|posted| matches!(posted.fate, Fate::Got(..)))
            .collect();
        for message in self
            .plan
            .iter()
            .filter(|message| message.to == self.host.me())
        {
            let at = free
                .iter()
                .position(|posted| accepts(&posted.pattern, message));
            let Some(at) = at else {
                panic!("no receive for {message:?}");
            };
            let posted = free.remove(at);
            assert!(
                matches!(posted.fate, Fate::Got(number, _) if number == message.number),
                "{message:?} belongs to a receive that got {:?}",
                posted.fate
            );
        }
    }
}

fn play(host: &SimHost, plan: &[Planned], seed: u64) {
    let me = host.me();
    let mut player = Player {
        host,
        plan,
        random: Random::new(seed ^ u64::from(me) << 32),
        step: 0,
        posted: Vec::new(),
        sends: Vec::new(),
        flights: Vec::new(),
    };
    for message in plan.iter().filter(|message| message.from == me) {
        for _ in 0..player.random.below(6) {
            player.act();
        }
        player.send(message);
    }
    for _ in 0..player.random.below(30) {
        player.act();
    }
    player.drain();
    player.judge();
}

fn job(seed: u64, world: u32) -> SimJob {
    let mut random = Random::new(seed);
    let quota = [1, 3, 1024, 1024, 1024][random.below(5) as usize];
    let faults = Faults {
        delay_ns: (500, 1_000 + random.below(40_000)),
        loss: random.below(100),
        repeat: random.below(50),
        until_ns: 500_000,
        ..Faults::none()
    };
    SimJob {
        world,
        seed,
        faults,
        quotas: CreditQuotas {
            envelopes: quota,
            payload: [300, 1 << 16][random.below(2) as usize],
        },
        memory: MemoryAccess::Reached,
    }
}

#[test]
fn between_two_ranks_every_message_goes_where_the_naive_model_says() {
    let (mut written, mut joined) = (0, 0);
    for seed in 0..200 {
        let plan = plan(seed, 2, 30);
        let report = check(&job(seed, 2), |host: Arc<SimHost>| play(&host, &plan, seed));
        (written, joined) = (written + report.written, joined + report.joined);
    }
    assert!(
        written > 100 && joined > 10,
        "only {written} messages went the way that this is about, and {joined} receivers took a part"
    );
}

#[test]
fn among_several_ranks_no_message_goes_past_a_receive_that_it_belongs_to() {
    let (mut written, mut joined) = (0, 0);
    for seed in 5000..5160 {
        let world = 3 + (seed % 3) as u32;
        let plan = plan(seed, world, 40);
        let report = check(&job(seed, world), |host: Arc<SimHost>| {
            play(&host, &plan, seed)
        });
        (written, joined) = (written + report.written, joined + report.joined);
    }
    assert!(
        written > 50 && joined > 10,
        "only {written} messages went the way that this is about, and {joined} receivers took a part"
    );
}
