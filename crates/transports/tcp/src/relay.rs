//! Connections between ranks whose hosts have no network in common, passed on by a third host.
//!
//! Owned by an agent of that host. Whoever calls makes the same call as at the rank itself; it
//! shows the job's secret, so unauthenticated callers get no further, and names the rank. Where
//! this host reaches that one, all its addresses are called at once, and the first that takes it is
//! gone on with. Where it does not, the two are to meet here: the call is kept, its caller told so,
//! until the other calls its caller here, too, and the two are joined (`pending_pairs`). From then
//! on bytes are moved both ways as they come, a buffer at a time in each direction
//! (`relayed_connection`): the ranks prove themselves to each other, and replay what a broken
//! passage has lost, as on any connection. Never blocks; a [`Relay::turn`] moves a bounded number
//! of bytes.

mod pending_pairs;
mod relayed_connection;

use self::pending_pairs::{PairResult, PendingCall, PendingPairs};
use self::relayed_connection::{RelayedConnection, RelayedSide, UnreadCall};
use crate::blackhole_detector::ShortLivedConnections;
use crate::connector::{self, prepare};
use crate::handshake::Secret;
use crate::listener_gate::{ListenerGate, accept};
use garonne_transport::limits::{
    RELAY_UNIDENTIFIED_MAX, RELAYED_CONNECTIONS_MAX, TCP_ACCEPTS_PER_POLL,
    TCP_SHORT_PACKET_ADDRESSES, TCP_SILENCE_CHECK, TCP_SILENCE_MAX,
};
use garonne_transport::timer_fd::TimerFd;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::sockopt;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

const LISTENER: u64 = u64::MAX;
const CLOCK: u64 = u64::MAX - 1;
const EVENTS: usize = 32;

/// Addresses of a rank that is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledAddresses {
    /// Called at once: the first that takes the call has it.
    pub preferred: Vec<SocketAddr>,
    /// Called when all the others have failed.
    pub fallback: Vec<SocketAddr>,
}

impl From<Vec<SocketAddr>> for CalledAddresses {
    fn from(preferred: Vec<SocketAddr>) -> Self {
        Self {
            preferred,
            fallback: Vec::new(),
        }
    }
}

/// Place where a call from one rank to another goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayDirection {
    /// To the one called.
    To(CalledAddresses),
    /// Nowhere: the one called calls here as well.
    Meeting,
}

/// A try to reach an address, which says nothing there.
#[derive(Debug)]
pub struct ReachProbe {
    socket: OwnedFd,
}

impl ReachProbe {
    /// Begins; `None`: there is no way there.
    pub fn begin(address: SocketAddr) -> Option<Self> {
        let socket = connector::connect(&address).ok()?;
        Some(Self { socket })
    }

    /// Ready for writing when it is decided.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether somebody listens there; asked when it is decided.
    pub fn is_taken(&self) -> bool {
        matches!(sockopt::socket_error(&self.socket), Ok(Ok(())))
            && rustix::net::getpeername(&self.socket).is_ok()
    }
}

/// Joins connections of ranks that cannot reach each other, and moves bytes both ways. Run by a
/// thread of an agent.
#[derive(Debug)]
pub struct Relay {
    epoll: OwnedFd,
    listener: OwnedFd,
    latch: ListenerGate,
    clock: TimerFd,
    secret: Secret,
    job: [u8; 16],
    relayed_connections: Vec<Option<RelayedConnection>>,
    halves: PendingPairs,
    /// When it is next looked for those who say nothing, while there may be some.
    listens: Option<Instant>,
    /// For when the clock is set.
    rings: Option<Instant>,
    /// How many passages there have been.
    begun: u64,
    /// Addresses of the called that fell silent, and when they did last.
    silent: VecDeque<(IpAddr, Instant)>,
    brief: ShortLivedConnections,
}

impl Relay {
    /// Takes calls at `listener`, which does not block, from ranks of this job.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(listener: TcpListener, secret: Secret, job: [u8; 16]) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let listener = OwnedFd::from(listener);
        let latch = ListenerGate::new(&listener);
        epoll::add(
            &epoll,
            latch.fd(&listener),
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )?;
        let clock = TimerFd::new()?;
        epoll::add(
            &epoll,
            clock.fd(),
            EventData::new_u64(CLOCK),
            EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            listener,
            latch,
            clock,
            secret,
            job,
            relayed_connections: Vec::new(),
            halves: PendingPairs::default(),
            listens: None,
            rings: None,
            begun: 0,
            silent: VecDeque::new(),
            brief: ShortLivedConnections::default(),
        })
    }

    /// Readable when [`Relay::turn`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns whether [`Relay::fd`] is readable.
    #[cfg(any(test, fuzzing))]
    fn is_called(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Returns how many passages there are, and how many there have been.
    pub fn relayed_connections(&self) -> (usize, u64) {
        (
            self.relayed_connections.iter().flatten().count(),
            self.begun,
        )
    }

    /// Does what is to be done, as far as a turn goes; `lead` says where a call from one rank to
    /// another goes. What is left makes [`Relay::fd`] readable.
    pub fn turn(&mut self, now: Instant, lead: &dyn Fn(u32, u32) -> RelayDirection) {
        let mut events = Vec::with_capacity(EVENTS);
        let now_or_never = Timespec::default();
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, spare, Some(&now_or_never)).is_err() {
            return;
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.open(now, lead),
                // What it rings for is seen to below.
                CLOCK => {}
                place => self.look((place as usize, now), lead),
            }
        }
        self.keep_time(now);
    }

    /// Closes calls that were not met in time, and those that say nothing, and so do those who are
    /// joined with a host that is gone without a word.
    fn keep_time(&mut self, now: Instant) {
        for place in self.halves.overdue(now) {
            self.relayed_connections[place] = None;
        }
        if self.listens.is_some_and(|at| now >= at) {
            self.listens = None;
            for relayed in &mut self.relayed_connections {
                let (waits, over) = relayed
                    .as_mut()
                    .map_or((false, false), |relayed| relayed.listen(now));
                if over {
                    let called = relayed.take().and_then(|relayed| relayed.silent_called());
                    // By then the call had got there: what is lost may be longer packets.
                    if let Some(called) = called
                        && fell_again(&mut self.silent, called, now)
                    {
                        self.brief.add(called);
                    }
                } else if waits {
                    self.listens = Some(now + TCP_SILENCE_CHECK);
                }
            }
        }
        let due = self.halves.due().into_iter().chain(self.listens).min();
        if due != self.rings || due.is_some_and(|due| due <= now) {
            self.rings = due;
            self.clock
                .set(due.map(|due| due.saturating_duration_since(now)));
        }
    }

    fn open(&mut self, now: Instant, lead: &dyn Fn(u32, u32) -> RelayDirection) {
        for _ in 0..TCP_ACCEPTS_PER_POLL {
            let Some(caller) = accept(&self.listener, &mut self.latch) else {
                return;
            };
            if prepare(&caller).is_err() {
                continue;
            }
            let place = self.place(now, lead);
            let relayed = RelayedConnection::Hearing(UnreadCall::new(caller, now));
            self.begun += 1;
            self.listens.get_or_insert(now + TCP_SILENCE_CHECK);
            self.keep(place, false, relayed);
        }
    }

    /// A place for one who has not said yet whom it calls. If all of those are taken, one of them
    /// gives way, unless its call is here, and nobody has looked.
    fn place(&mut self, now: Instant, lead: &dyn Fn(u32, u32) -> RelayDirection) -> usize {
        if let Some(crowded) = self.crowded() {
            self.look((crowded, now), lead);
            self.relayed_connections[crowded].take_if(|relayed| relayed.unheard().is_some());
        }
        let free = self.relayed_connections.iter().position(Option::is_none);
        free.unwrap_or_else(|| {
            self.relayed_connections.push(None);
            self.relayed_connections.len() - 1
        })
    }

    /// Returns the call that gives way if there are too many who have not said whom they call: of
    /// the side from which most of them have called, who has been silent for the longest. A rank
    /// that computes may be silent for as long as unauthenticated callers are, but does not come in
    /// crowds.
    fn crowded(&self) -> Option<usize> {
        let places = self.relayed_connections.iter().enumerate();
        let unheard: Vec<(&UnreadCall, usize)> = places
            .filter_map(|(place, relayed)| Some((relayed.as_ref()?.unheard()?, place)))
            .collect();
        let mut counts = HashMap::new();
        for (unheard, _) in &unheard {
            *counts.entry(unheard.from).or_insert(0) += 1;
        }
        let first = unheard
            .iter()
            .min_by_key(|(unheard, _)| (Reverse(counts.get(&unheard.from)), unheard.since));
        let (_, place) = first.filter(|_| unheard.len() >= RELAY_UNIDENTIFIED_MAX)?;
        Some(*place)
    }

    /// Returns whether one more has room that has said whom it calls, beside those who have; if
    /// there is none, who has waited for the longest gives way, unless that is this one's own call.
    fn makes_room(&mut self, own: Option<&PendingCall>) -> bool {
        let heard = |relayed: &&RelayedConnection| relayed.unheard().is_none();
        if self
            .relayed_connections
            .iter()
            .flatten()
            .filter(heard)
            .count()
            < RELAYED_CONNECTIONS_MAX
        {
            return true;
        }
        let oldest = self.halves.give_way(own);
        if let Some(oldest) = oldest {
            self.relayed_connections[oldest] = None;
        }
        oldest.is_some()
    }

    fn look(&mut self, (place, now): (usize, Instant), lead: &dyn Fn(u32, u32) -> RelayDirection) {
        let Some(relayed) = self
            .relayed_connections
            .get_mut(place)
            .and_then(Option::take)
        else {
            return;
        };
        let waited = match &relayed {
            RelayedConnection::Waiting(half) => Some(half.pair),
            _ => None,
        };
        let was_unheard = relayed.unheard().is_some();
        let mut relayed = Some(relayed);
        // What a step has brought about the next one uses: a connection of the same host stands at
        // once.
        for _ in 0..3 {
            let Some(one) = relayed.take() else { break };
            let (next, more) = one.look((&self.secret, self.job, &self.brief), lead);
            relayed = next;
            if !more {
                break;
            }
        }
        match (relayed, waited) {
            (Some(RelayedConnection::Waiting(half)), None) => self.meet(place, half, now),
            (Some(relayed), _) => {
                let newly_heard = was_unheard && relayed.unheard().is_none();
                if newly_heard && !self.makes_room(None) {
                    return;
                }
                if relayed.flows() {
                    self.listens.get_or_insert(now + TCP_SILENCE_CHECK);
                }
                self.keep(place, true, relayed);
            }
            (None, Some(pair)) => self.halves.leave(&pair, place),
            (None, None) => {}
        }
    }

    /// A call that is to be met here is joined with the one that it waits for, if that is here, or
    /// kept.
    fn meet(&mut self, place: usize, half: RelayedSide, now: Instant) {
        let pair = half.pair;
        match self.halves.come(pair, place, now) {
            PairResult::With(other) => match self
                .relayed_connections
                .get_mut(other)
                .and_then(Option::take)
            {
                Some(RelayedConnection::Waiting(other)) if other.is_there() => {
                    self.listens.get_or_insert(now + TCP_SILENCE_CHECK);
                    if let Some(joined) = half.join(other) {
                        self.keep(place, true, joined);
                    }
                }
                // It has hung up, and nobody has looked at it since: as if it had never waited.
                _ => self.meet(place, half, now),
            },
            PairResult::Waits(before) => {
                if let Some(before) = before {
                    self.relayed_connections[before] = None;
                }
                if self.makes_room(Some(&pair)) && half.tell() {
                    self.keep(place, true, RelayedConnection::Waiting(half));
                }
                if self.relayed_connections[place].is_none() {
                    self.halves.leave(&pair, place);
                }
            }
        }
    }

    /// Watches a passage's sockets for what it waits for now. `known`: they may be watched already.
    fn keep(&mut self, place: usize, known: bool, relayed: RelayedConnection) {
        let data = EventData::new_u64(place as u64);
        for (socket, flags) in relayed.watched() {
            if flags.is_empty() {
                // The kernel tells of ends and failures of all that it knows, again and again.
                let _ = epoll::delete(&self.epoll, socket);
                continue;
            }
            let modified = known && epoll::modify(&self.epoll, socket, data, flags).is_ok();
            if !modified && epoll::add(&self.epoll, socket, data, flags).is_err() {
                return;
            }
        }
        self.relayed_connections[place] = Some(relayed);
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
/// An address has fallen silent. Whether it did before, so shortly that all that was made since has
/// as well, and so long ago that it was not the same time.
fn fell_again(silent: &mut VecDeque<(IpAddr, Instant)>, address: IpAddr, now: Instant) -> bool {
    let at = silent.iter().position(|(known, _)| *known == address);
    let before = at.and_then(|at| silent.remove(at));
    if silent.len() >= TCP_SHORT_PACKET_ADDRESSES {
        silent.pop_front();
    }
    silent.push_back((address, now));
    let since = before.map(|(_, before)| now.saturating_duration_since(before));
    since.is_some_and(|since| (TCP_SILENCE_MAX..TCP_SILENCE_MAX * 4).contains(&since))
}

#[cfg(test)]
mod tests;
