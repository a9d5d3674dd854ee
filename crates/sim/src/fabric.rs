//! A simulated fabric: packets between ranks under a virtual clock, with faults drawn from a seed, and the baton that lets exactly
//! one rank run at a time.
//!
//! Everything random comes from one generator, and only the rank that holds the baton draws from it, so a seed determines the
//! whole run. The baton moves when a rank sleeps or has polled in vain for a while; then the generator chooses among the
//! ranks that can run and the next event of the medium. When nothing can ever happen again, the run has failed.

use crate::random::Random;
use crate::regions::Regions;
use garonne_engine::api::Peer;
use garonne_engine::reliable::Frame;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What the medium does to frames, and until when.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Least and most time of a frame on its way, in nanoseconds; the spread reorders.
    pub delay_ns: (u64, u64),
    /// Frames lost, of a thousand.
    pub loss: u64,
    /// Frames delivered twice, of a thousand.
    pub repeat: u64,
    /// Losses and repeats end here.
    pub until_ns: u64,
    /// Ranks that die, and when.
    pub deaths: Vec<(Peer, u64)>,
}

impl Faults {
    /// A medium that only takes time.
    pub fn none() -> Self {
        Self {
            delay_ns: (1_000, 1_000),
            loss: 0,
            repeat: 0,
            until_ns: 0,
            deaths: Vec::new(),
        }
    }
}

/// What happens at a time.
#[derive(Debug)]
enum Event {
    /// A frame reaches its rank.
    Frame { from: Peer, to: Peer, frame: Frame },
    /// A rank wanted to be woken.
    Timer(Peer),
    /// A rank dies.
    Death(Peer),
    /// A rank hears of another's death.
    News { to: Peer, dead: Peer },
}

#[derive(Debug)]
struct Due(u64, u64, Event);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// How a rank stands towards the baton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Ready,
    Asleep,
    Ended,
    Dead,
}

/// What reached a rank and was not polled yet.
#[derive(Debug)]
pub(crate) enum Arrival {
    Frame(Peer, Frame),
    Gone(Peer),
}

#[derive(Debug)]
struct State {
    random: Random,
    now_ns: u64,
    events: BinaryHeap<Reverse<Due>>,
    next_event: u64,
    arrivals: Vec<VecDeque<Arrival>>,
    words: Vec<u32>,
    standing: Vec<Standing>,
    /// Programs that ended, their ranks still serving others.
    left: Vec<bool>,
    /// Ranks that can run, in no order that matters beyond the seed.
    ready: Vec<Peer>,
    /// Ranks that do something at all.
    present: Vec<Peer>,
    holder: Option<Peer>,
    failed: Option<String>,
    faults: Faults,
    hash: u64,
    regions: Regions,
}

/// What the ranks of one run share.
#[derive(Debug)]
pub struct SimFabric {
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

/// Thrown through a rank's program when the rank dies; not a failure.
#[derive(Debug)]
pub struct Killed;

impl SimFabric {
    /// A fabric for `world` ranks, of which those `present` do something; the same seed and faults give the same run.
    pub fn new(world: u32, present: &[Peer], seed: u64, faults: Faults) -> Self {
        let mut events = BinaryHeap::new();
        for (number, &(rank, at_ns)) in faults.deaths.iter().enumerate() {
            events.push(Reverse(Due(at_ns, number as u64, Event::Death(rank))));
        }
        let mut standing = vec![Standing::Ended; world as usize];
        for rank in present {
            standing[*rank as usize] = Standing::Ready;
        }
        let state = State {
            random: Random::new(seed),
            now_ns: 0,
            next_event: events.len() as u64,
            events,
            arrivals: (0..world).map(|_| VecDeque::new()).collect(),
            words: vec![0; world as usize],
            standing,
            left: vec![false; world as usize],
            ready: present.to_vec(),
            present: present.to_vec(),
            holder: None,
            failed: None,
            faults,
            hash: 0xcbf2_9ce4_8422_2325,
            regions: Regions::default(),
        };
        Self {
            state: Mutex::new(state),
            turns: (0..world).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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

    /// Lets others run for a moment, if chance has it.
    pub(crate) fn perhaps_pause(&self, me: Peer) {
        if self.draw(2) == 0 {
            self.pause(me);
        }
    }

    /// Puts a frame on the medium.
    pub(crate) fn transmit(&self, from: Peer, to: Peer, frame: Frame) {
        let mut state = self.lock();
        let copies = if state.now_ns < state.faults.until_ns {
            let fate = state.random.below(1000);
            let (loss, repeat) = (state.faults.loss, state.faults.repeat);
            if fate < loss {
                0
            } else if fate < loss + repeat {
                2
            } else {
                1
            }
        } else {
            1
        };
        for _ in 0..copies {
            let (least, most) = state.faults.delay_ns;
            let at_ns = state.now_ns + least + state.random.below(most - least + 1);
            state.schedule(
                at_ns,
                Event::Frame {
                    from,
                    to,
                    frame: frame.clone(),
                },
            );
        }
    }

    /// Asks to be woken at a time.
    pub(crate) fn wake_at(&self, me: Peer, at_ns: u64) {
        self.lock().schedule(at_ns, Event::Timer(me));
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

    /// Whether every rank's program ended or died.
    pub(crate) fn all_left(&self) -> bool {
        self.lock().all_left()
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
            state.stand(me, Standing::Asleep);
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
        if state.standing[me as usize] != Standing::Dead {
            state.stand(me, Standing::Ended);
        }
        state.left[me as usize] = true;
        state.farewell();
        if let Some(why) = failed {
            self.fail(&mut state, why);
        }
        self.pass(&mut state);
    }

    fn fail(&self, state: &mut State, why: String) {
        state.failed.get_or_insert(why);
        self.turns.iter().for_each(Condvar::notify_all);
    }

    fn await_turn(&self, mut state: MutexGuard<'_, State>, me: Peer) {
        loop {
            let dead = state.standing[me as usize] == Standing::Dead;
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
    fn pass(&self, state: &mut State) {
        state.holder = None;
        loop {
            let (ready, events) = (state.ready.len(), usize::from(!state.events.is_empty()));
            if ready + events == 0 {
                if state.standing.contains(&Standing::Asleep) {
                    self.fail(state, "nothing can happen any more, but ranks still wait".into());
                }
                return;
            }
            let choice = state.random.below((ready + events) as u64) as usize;
            if let Some(&rank) = state.ready.get(choice) {
                state.witness(u64::from(rank));
                state.holder = Some(rank);
                self.turns[rank as usize].notify_all();
                return;
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

impl State {
    fn witness(&mut self, what: u64) {
        self.hash = (self.hash ^ what)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(5);
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.events.push(Reverse(Due(at_ns, self.next_event, event)));
        self.next_event += 1;
    }

    fn rouse(&mut self, rank: Peer) {
        self.words[rank as usize] = self.words[rank as usize].wrapping_add(1);
        if self.standing[rank as usize] == Standing::Asleep {
            self.stand(rank, Standing::Ready);
        }
    }

    fn stand(&mut self, rank: Peer, standing: Standing) {
        let old = std::mem::replace(&mut self.standing[rank as usize], standing);
        if old == Standing::Ready && standing != Standing::Ready {
            self.ready.retain(|&other| other != rank);
        } else if old != Standing::Ready && standing == Standing::Ready {
            self.ready.push(rank);
        }
    }

    fn all_left(&self) -> bool {
        let over = |rank: usize| self.left[rank] || self.standing[rank] == Standing::Dead;
        self.present.iter().all(|rank| over(*rank as usize))
    }

    /// Wakes those who only serve others when there are no others left.
    fn farewell(&mut self) {
        if self.all_left() {
            (0..self.present.len()).for_each(|at| self.rouse(self.present[at]));
        }
    }

    /// The next event of the medium. A rank: it died and has to leave its program.
    fn happen(&mut self) -> Option<Peer> {
        let Reverse(Due(at_ns, number, event)) = self.events.pop()?;
        self.now_ns = self.now_ns.max(at_ns);
        self.witness(at_ns ^ number << 40);
        match event {
            Event::Frame { from, to, frame } => {
                if self.standing[to as usize] != Standing::Dead {
                    self.arrivals[to as usize].push_back(Arrival::Frame(from, frame));
                    self.rouse(to);
                }
            }
            Event::Timer(rank) => self.rouse(rank),
            Event::News { to, dead } => {
                self.arrivals[to as usize].push_back(Arrival::Gone(dead));
                self.rouse(to);
            }
            Event::Death(rank) => {
                let alive = matches!(self.standing[rank as usize], Standing::Ready | Standing::Asleep);
                self.stand(rank, Standing::Dead);
                self.regions.died(rank);
                self.farewell();
                for to in 0..self.standing.len() as Peer {
                    if to != rank {
                        let at_ns = self.now_ns + 1_000_000 + self.random.below(1_000_000);
                        self.schedule(at_ns, Event::News { to, dead: rank });
                    }
                }
                return alive.then_some(rank);
            }
        }
        None
    }
}
