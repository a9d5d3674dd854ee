//! A simulated fabric: packets between ranks under a virtual clock, with faults drawn from a seed,
//! and the baton that lets exactly one rank run at a time.
//!
//! Everything random comes from one generator, and only the rank that holds the baton draws from
//! it, so a seed determines the whole run. The baton moves when a rank sleeps or has polled in vain
//! for a while; then the generator chooses among the ranks that can run and the next event of the
//! medium. When nothing can ever happen again, the run has failed.

use crate::faults::{self, FOR_EVER, FaultCounts, Faults, FrameFate, SILENCE_NS};
use crate::random::Random;
use crate::regions::Regions;
use crate::registered::RegisteredRegions;
use garonne_engine::api::Peer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Limit on how far virtual time advances while ranks can run, so that no awake rank seems to stand
/// still for long. The limit does not hold when ranks only spin, each for so many turns.
const LATENCY_PRIORITY_NS: u64 = 200_000;
const TURNS_IN_VAIN: usize = 16;
/// A run that lasts longer goes round in circles.
const HOUR_NS: u64 = 3_600_000_000_000;

/// A timed event.
#[derive(Debug)]
enum FabricEvent {
    /// A frame reaches its rank.
    Frame(Peer, SentFrame),
    /// A rank wanted to be woken.
    Timer(Peer),
    /// A rank dies.
    Death(Peer),
    /// A rank hears of another's death.
    News { to: Peer, dead: Peer },
    /// A partition has lasted too long.
    Silence(usize),
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub(crate) struct SentFrame {
    pub from: Peer,
    /// The number of the way that it goes.
    pub way: u8,
    pub stream: FrameStream,
    /// Sealed bytes of the frame.
    pub bytes: Vec<u8>,
}

/// Stream that a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameStream {
    /// Packets of the engine and their acknowledgements.
    Packets,
    /// Reads of memory.
    Reads,
}

#[derive(Debug)]
struct TimedEvent(u64, u64, FabricEvent);

impl PartialEq for TimedEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for TimedEvent {}
impl PartialOrd for TimedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for TimedEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// State of a rank's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankState {
    Ready,
    Asleep,
    Ended,
    Dead,
}

/// An arrival at a rank that was not polled yet.
#[derive(Debug)]
pub(crate) enum Arrival {
    Frame(SentFrame),
    Gone(Peer),
}

#[derive(Debug)]
struct FabricState {
    random: Random,
    now_ns: u64,
    events: BinaryHeap<Reverse<TimedEvent>>,
    next_event: u64,
    arrivals: Vec<VecDeque<Arrival>>,
    words: Vec<u32>,
    standing: Vec<RankState>,
    /// Programs that ended, their ranks still serving others.
    left: Vec<bool>,
    /// Ranks all of whose packets have been acknowledged.
    settled: Vec<bool>,
    /// Turns since something happened on the medium.
    turns: usize,
    /// Ranks that can run, in no order that matters beyond the seed.
    ready: Vec<Peer>,
    /// Ranks that do something at all.
    present: Vec<Peer>,
    holder: Option<Peer>,
    failed: Option<String>,
    faults: Faults,
    hash: u64,
    regions: Regions,
    registered: RegisteredRegions,
    tally: FaultCounts,
}

/// Simulated fabric: the state that the ranks of one run share.
#[derive(Debug)]
pub struct SimFabric {
    state: Mutex<FabricState>,
    turns: Vec<Condvar>,
}

/// Thrown through a rank's program when the rank dies; not a failure.
#[derive(Debug)]
pub struct Killed;

impl SimFabric {
    /// A fabric for `world` ranks, of which those `present` do something; the same seed and faults
    /// give the same run.
    pub fn new(world: u32, present: &[Peer], seed: u64, faults: Faults) -> Self {
        let mut events = BinaryHeap::new();
        for (number, &(rank, at_ns)) in faults.deaths.iter().enumerate() {
            events.push(Reverse(TimedEvent(
                at_ns,
                number as u64,
                FabricEvent::Death(rank),
            )));
        }
        for (at, partition) in faults.partitions.iter().enumerate() {
            let at_ns = partition.span_ns.start + SILENCE_NS;
            if at_ns < partition.span_ns.end {
                let number = events.len() as u64;
                events.push(Reverse(TimedEvent(at_ns, number, FabricEvent::Silence(at))));
            }
        }
        let mut standing = vec![RankState::Ended; world as usize];
        for rank in present {
            standing[*rank as usize] = RankState::Ready;
        }
        let state = FabricState {
            random: Random::new(seed),
            now_ns: 0,
            next_event: events.len() as u64,
            events,
            arrivals: (0..world).map(|_| VecDeque::new()).collect(),
            words: vec![0; world as usize],
            standing,
            left: vec![false; world as usize],
            settled: vec![false; world as usize],
            turns: 0,
            ready: present.to_vec(),
            present: present.to_vec(),
            holder: None,
            failed: None,
            faults,
            hash: 0xcbf2_9ce4_8422_2325,
            regions: Regions::default(),
            registered: RegisteredRegions::default(),
            tally: FaultCounts::default(),
        };
        Self {
            state: Mutex::new(state),
            turns: (0..world).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FabricState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.turns.len() as u32
    }

    /// Virtual time.
    pub fn now_ns(&self) -> u64 {
        self.lock().now_ns
    }

    /// Hash of everything that happened so far.
    pub fn hash(&self) -> u64 {
        self.lock().hash
    }

    /// Adds to the run's hash.
    pub fn witness(&self, what: u64) {
        self.lock().witness(what);
    }

    /// Why the run failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// A number below `bound` from the run's generator.
    pub(crate) fn draw(&self, bound: u64) -> u64 {
        self.lock().random.below(bound)
    }

    /// Uses what ranks expose to each other.
    pub(crate) fn regions<T>(&self, use_them: impl FnOnce(&mut Regions) -> T) -> T {
        use_them(&mut self.lock().regions)
    }

    /// Uses the regions that ranks registered.
    pub(crate) fn registered<T>(&self, use_them: impl FnOnce(&mut RegisteredRegions) -> T) -> T {
        use_them(&mut self.lock().registered)
    }

    /// Lets others run for a moment, if chance has it.
    pub(crate) fn perhaps_pause(&self, me: Peer) {
        if self.draw(2) == 0 {
            self.pause(me);
        }
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> FaultCounts {
        self.lock().tally
    }

    /// Counts what a rank saw.
    pub(crate) fn count(&self, note: impl FnOnce(&mut FaultCounts)) {
        note(&mut self.lock().tally);
    }

    /// Ways between any two ranks.
    pub(crate) fn ways(&self) -> u8 {
        self.lock().faults.ways
    }

    /// Returns the time that a slow rank lets pass between two polls.
    pub(crate) fn slowness_ns(&self, rank: Peer) -> Option<u64> {
        self.lock().faults.slowness_ns(rank)
    }

    /// Puts a frame on the medium.
    pub(crate) fn transmit(&self, to: Peer, sent: SentFrame) {
        self.lock().transmit(to, sent);
    }

    /// A rank gave a peer up that did not answer, which is told, if anything can be.
    pub(crate) fn given_up(&self, me: Peer, peer: Peer) {
        let mut state = self.lock();
        state.tally.given_up += 1;
        state.tell_death(peer, me);
    }

    /// Asks to be woken at a time.
    pub(crate) fn wake_at(&self, me: Peer, at_ns: u64) {
        self.lock().schedule(at_ns, FabricEvent::Timer(me));
    }

    /// Returns whether something arrived at a rank that it has not taken.
    pub(crate) fn has_arrivals(&self, me: Peer) -> bool {
        !self.lock().arrivals[me as usize].is_empty()
    }

    /// Takes what arrived at a rank.
    pub(crate) fn arrival(&self, me: Peer) -> Option<Arrival> {
        self.lock().arrivals[me as usize].pop_front()
    }

    /// A rank's program ended; its host serves others until all have.
    pub(crate) fn leave(&self, me: Peer) {
        let mut state = self.lock();
        state.left[me as usize] = true;
        state.farewell();
    }

    /// A rank whose program ended has all its packets acknowledged, or not. Whether all programs
    /// have ended and nobody waits for an acknowledgement: who goes before looks to others as if it
    /// had died.
    pub(crate) fn settles(&self, me: Peer, settled: bool) -> bool {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.settled[me as usize], settled);
        if settled && !before {
            state.farewell();
        }
        state.all_settled()
    }

    /// The word that changes when something arrives.
    pub(crate) fn word(&self, me: Peer) -> u32 {
        self.lock().words[me as usize]
    }

    /// Wakes a rank without a reason of the medium.
    pub(crate) fn wake(&self, rank: Peer) {
        self.lock().rouse(rank);
    }

    /// Waits for the baton for the first time.
    pub(crate) fn begin(&self, me: Peer) {
        let state = self.lock();
        self.await_turn(state, me);
    }

    /// Lets the first rank go; called once all have begun or will.
    pub(crate) fn start(&self) {
        let mut state = self.lock();
        self.pass(&mut state);
    }

    /// Gives the baton away and waits until it comes back and the word is not `ticket`.
    pub(crate) fn sleep(&self, me: Peer, ticket: u32) {
        let mut state = self.lock();
        if state.words[me as usize] == ticket {
            state.stand(me, RankState::Asleep);
        }
        self.pass(&mut state);
        self.await_turn(state, me);
    }

    /// Gives the baton away and waits until it comes back.
    pub(crate) fn pause(&self, me: Peer) {
        let mut state = self.lock();
        self.pass(&mut state);
        self.await_turn(state, me);
    }

    /// A rank's program ended; `failed` says why if it was not meant to.
    pub(crate) fn end(&self, me: Peer, failed: Option<String>) {
        let mut state = self.lock();
        if state.standing[me as usize] != RankState::Dead {
            state.stand(me, RankState::Ended);
        }
        state.left[me as usize] = true;
        state.farewell();
        if let Some(why) = failed {
            self.fail(&mut state, why);
        }
        self.pass(&mut state);
    }

    fn fail(&self, state: &mut FabricState, why: String) {
        state.failed.get_or_insert(why);
        self.turns.iter().for_each(Condvar::notify_all);
    }

    fn await_turn(&self, mut state: MutexGuard<'_, FabricState>, me: Peer) {
        loop {
            let dead = state.standing[me as usize] == RankState::Dead;
            if state.failed.is_some() || (dead && state.holder == Some(me)) {
                drop(state);
                std::panic::resume_unwind(Box::new(Killed));
            }
            if state.holder == Some(me) {
                return;
            }
            state = self.turns[me as usize]
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Chooses what happens next and gives the baton to a rank.
    fn pass(&self, state: &mut FabricState) {
        state.holder = None;
        loop {
            let ready = state.ready.len();
            let events = usize::from(state.something_is_near());
            if ready + events == 0 {
                if state.standing.contains(&RankState::Asleep) {
                    self.fail(
                        state,
                        "nothing can happen any more, but ranks still wait".into(),
                    );
                }
                return;
            }
            let choice = state.random.below((ready + events) as u64) as usize;
            if let Some(&rank) = state.ready.get(choice) {
                state.witness(u64::from(rank));
                state.turns += 1;
                state.holder = Some(rank);
                self.turns[rank as usize].notify_all();
                return;
            }
            if state.now_ns > HOUR_NS {
                return self.fail(
                    state,
                    "an hour of virtual time has passed, and ranks still wait".into(),
                );
            }
            if let Some(rank) = state.happen() {
                // A rank that died gets the baton once more, to leave its program.
                state.holder = Some(rank);
                self.turns[rank as usize].notify_all();
                return;
            }
        }
    }
}

impl FabricState {
    /// Returns whether the next event may happen now.
    fn something_is_near(&self) -> bool {
        let Some(Reverse(TimedEvent(at_ns, ..))) = self.events.peek() else {
            return false;
        };
        let in_vain = self.turns >= TURNS_IN_VAIN * self.ready.len();
        in_vain || *at_ns <= self.now_ns.saturating_add(LATENCY_PRIORITY_NS)
    }

    fn witness(&mut self, what: u64) {
        self.hash = (self.hash ^ what)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(5);
    }

    fn schedule(&mut self, at_ns: u64, event: FabricEvent) {
        self.events
            .push(Reverse(TimedEvent(at_ns, self.next_event, event)));
        self.next_event += 1;
    }

    fn rouse(&mut self, rank: Peer) {
        self.words[rank as usize] = self.words[rank as usize].wrapping_add(1);
        if self.standing[rank as usize] == RankState::Asleep {
            self.stand(rank, RankState::Ready);
        }
    }

    fn stand(&mut self, rank: Peer, standing: RankState) {
        let old = std::mem::replace(&mut self.standing[rank as usize], standing);
        if old == RankState::Ready && standing != RankState::Ready {
            self.ready.retain(|&other| other != rank);
        } else if old != RankState::Ready && standing == RankState::Ready {
            self.ready.push(rank);
        }
    }

    fn all_settled(&self) -> bool {
        let gone = |rank: usize| matches!(self.standing[rank], RankState::Dead | RankState::Ended);
        let over = |rank: usize| self.left[rank] && self.settled[rank];
        let mut present = self.present.iter().map(|rank| *rank as usize);
        present.all(|rank| gone(rank) || over(rank))
    }

    /// Wakes those who only serve others when there are no others left.
    fn farewell(&mut self) {
        if self.all_settled() {
            (0..self.present.len()).for_each(|at| self.rouse(self.present[at]));
        }
    }

    /// Puts a frame on the medium, or two, or none.
    fn transmit(&mut self, to: Peer, mut sent: SentFrame) {
        let mut copies = 1;
        if self.now_ns < self.faults.until_ns {
            let fate = self.random.below(1000);
            let (loss, repeat, damage) = (self.faults.loss, self.faults.repeat, self.faults.damage);
            if fate < loss {
                self.tally.lost += 1;
                copies = 0;
            } else if fate < loss + repeat {
                self.tally.repeated += 1;
                copies = 2;
            } else if fate < loss + repeat + damage {
                self.tally.damaged += 1;
                faults::damage(&mut sent.bytes, &mut self.random);
            }
        }
        if self.faults.passage(sent.from, to, sent.way, self.now_ns) == FrameFate::Lost {
            self.tally.blocked += copies;
            copies = 0;
        }
        for _ in 0..copies {
            let (least, most) = self.faults.delay_ns;
            let at_ns = self.now_ns + least + self.random.below(most - least + 1);
            self.schedule(at_ns, FabricEvent::Frame(to, sent.clone()));
        }
    }

    /// A frame is where it was sent, if nothing is in its way.
    fn arrive(&mut self, to: Peer, sent: SentFrame) {
        match self.faults.passage(sent.from, to, sent.way, self.now_ns) {
            FrameFate::Lost => self.tally.blocked += 1,
            FrameFate::Until(at_ns) => {
                self.tally.held += 1;
                self.schedule(at_ns, FabricEvent::Frame(to, sent));
            }
            FrameFate::Free if self.standing[to as usize] == RankState::Dead => {}
            FrameFate::Free if self.arrivals[to as usize].len() >= self.faults.inbox_max => {
                self.tally.overrun += 1;
            }
            FrameFate::Free => {
                self.arrivals[to as usize].push_back(Arrival::Frame(sent));
                self.rouse(to);
            }
        }
    }

    /// A rank will hear that another is gone.
    fn tell_death(&mut self, to: Peer, dead: Peer) {
        let at_ns = self.now_ns + 1_000_000 + self.random.below(1_000_000);
        self.schedule(at_ns, FabricEvent::News { to, dead });
    }

    /// A rank hears that another is gone, unless a partition keeps even that from it: what ends
    /// after a time is waited for, and what does not is told to both sides.
    fn hear_death(&mut self, to: Peer, dead: Peer) {
        match self.faults.parted_until(to, dead, self.now_ns) {
            Some(FOR_EVER) => {}
            Some(at_ns) => self.schedule(at_ns, FabricEvent::News { to, dead }),
            None => {
                self.arrivals[to as usize].push_back(Arrival::Gone(dead));
                self.rouse(to);
            }
        }
    }

    /// Each side of a partition hears that the other is gone.
    fn silence(&mut self, partition: usize) {
        for at in 0..self.present.len() {
            let to = self.present[at];
            let parts = |other: &Peer| self.faults.partitions[partition].parts(to, *other);
            let others: Vec<Peer> = (0..self.standing.len() as Peer).filter(parts).collect();
            self.arrivals[to as usize].extend(others.into_iter().map(Arrival::Gone));
            self.rouse(to);
        }
    }

    /// The next event of the medium. A rank: it died and has to leave its program.
    fn happen(&mut self) -> Option<Peer> {
        let Reverse(TimedEvent(at_ns, number, event)) = self.events.pop()?;
        self.now_ns = self.now_ns.max(at_ns);
        self.turns = 0;
        self.witness(at_ns ^ number << 40);
        match event {
            FabricEvent::Frame(to, sent) => self.arrive(to, sent),
            FabricEvent::Timer(rank) => self.rouse(rank),
            FabricEvent::News { to, dead } => self.hear_death(to, dead),
            FabricEvent::Silence(partition) => self.silence(partition),
            FabricEvent::Death(rank) => {
                let alive = matches!(
                    self.standing[rank as usize],
                    RankState::Ready | RankState::Asleep
                );
                self.stand(rank, RankState::Dead);
                self.regions.died(rank);
                self.registered.died(rank);
                self.farewell();
                for to in 0..self.standing.len() as Peer {
                    if to != rank {
                        self.tell_death(to, rank);
                    }
                }
                return alive.then_some(rank);
            }
        }
        None
    }
}
