//! Hosts that have no network in common talk through a third one that reaches both.
//!
//! That two ranks do not reach each other shows when they ask for each other's calls again and again (`callback`). The first agent then has all other nodes try whether they reach
//! the one that is called; who does opens a port where it passes calls on ([`garonne_rails::tcp::relay`]), and the ranks of the caller's node learn of it (`ways`), and
//! call there. Nothing of what passes is read: the ranks prove themselves to each other. The passing on is done by a task of this process, which its sockets poke.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use garonne_progress::events::{Interest, Next, Watch};
use garonne_progress::tasks::{At, How, Place as Where, Tasks, Urgency, shared};
use garonne_rails::tcp::relay::{Probe, Relay};
use rustix::event::epoll;

use super::hosts::listen_at;
use super::{Agent, Token};
use crate::limits::{PROBE_LIMIT, PROBES_MAX, SOUGHT_MAX, WAY_AFTER, WAY_FORGETS};
use crate::orders::{Callback, Order, Report, Way};
use crate::ways;

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(super) struct Gateways {
    /// Of the first agent.
    search: Search,
    probes: Vec<Option<Probing>>,
    open: Option<Gateway>,
    /// Ways that the ranks of this node know.
    ways: Vec<Way>,
}

/// Pairs of nodes, from caller to called, that do not reach each other. Those of which nobody asks any more are forgotten.
#[derive(Debug, Default)]
struct Search {
    sought: HashMap<(u32, u32), Sought>,
    /// When it was last looked for such.
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Sought {
    /// When one first asked, and last.
    since: Instant,
    last: Instant,
    /// All other nodes have been asked.
    asked: Option<Instant>,
}

impl Search {
    /// A rank of the first node of a pair does not reach one of the second. Whether all other nodes are to be asked now.
    fn missed(&mut self, nodes: (u32, u32), now: Instant) -> bool {
        if self.swept.is_none_or(|swept| now > swept + WAY_FORGETS) {
            self.swept = Some(now);
            self.sought.retain(|_, known| now <= known.last + WAY_FORGETS);
        }
        if self.sought.len() >= SOUGHT_MAX && !self.sought.contains_key(&nodes) {
            return false;
        }
        let this = self.sought.entry(nodes).or_insert(Sought {
            since: now,
            last: now,
            asked: None,
        });
        if now > this.last + WAY_FORGETS {
            this.since = now;
        }
        this.last = now;
        let asked_lately = this.asked.is_some_and(|asked| now < asked + WAY_FORGETS);
        if now < this.since + WAY_AFTER || asked_lately {
            return false;
        }
        this.asked = Some(now);
        true
    }
}

#[derive(Debug)]
struct Probing {
    call: Callback,
    probe: Probe,
    until: Instant,
}

/// Where this node passes calls on.
#[derive(Debug)]
struct Gateway {
    port: u16,
    _watch: Watch,
    /// Whose thread the watch is.
    _tasks: Tasks,
}

impl Agent<'_> {
    /// A rank wants to be called by another, whom it does not reach: for the first agent, which has both led through a third host if that goes on.
    pub(super) fn seek_way(&mut self, call: Callback) {
        // Whoever asks for a call has failed to call itself.
        let nodes = (self.job.nodes.of(call.from), self.job.nodes.of(call.to));
        let count = self.job.nodes.names.len() as u32;
        if self.up.is_some() || nodes.0 == nodes.1 || count < 3 {
            return;
        }
        if !self.gateways.search.missed(nodes, Instant::now()) {
            return;
        }
        for node in (0..count).filter(|node| ![nodes.0, nodes.1].contains(node)) {
            match node == self.node {
                true => self.probe(call),
                false => self.order(node, &Order::Probe(call)),
            }
        }
    }

    /// Tries whether this node reaches a rank.
    pub(super) fn probe(&mut self, call: Callback) {
        let (Some(port), now) = (self.port_of(call.to), Instant::now()) else {
            return;
        };
        for slot in &mut self.gateways.probes {
            slot.take_if(|probing| now >= probing.until);
        }
        for address in self.addresses_of(self.job.nodes.of(call.to)).to_vec() {
            let probes = &mut self.gateways.probes;
            let place = probes.iter().position(Option::is_none).unwrap_or(probes.len());
            if place >= PROBES_MAX {
                return;
            }
            let Some(probe) = Probe::begin(SocketAddr::new(address, port)) else {
                continue;
            };
            let token = Token::Probe(place as u32).pack();
            if epoll::add(&self.epoll, probe.fd(), token, epoll::EventFlags::OUT).is_err() {
                return;
            }
            let until = now + PROBE_LIMIT;
            let probing = Some(Probing { call, probe, until });
            match probes.get_mut(place) {
                Some(slot) => *slot = probing,
                None => probes.push(probing),
            }
        }
    }

    /// A try is decided.
    pub(super) fn probe_ready(&mut self, place: u32) {
        let slot = self.gateways.probes.get_mut(place as usize);
        let Some(Probing { call, probe, .. }) = slot.and_then(Option::take) else {
            return;
        };
        if probe.is_taken()
            && let Some(port) = self.open_gateway()
        {
            match self.up.is_some() {
                true => self.report(&Report::Passes(call, port)),
                false => self.passes(call, (self.node, port)),
            }
        }
    }

    /// A node reaches the one that is called, and passes calls on: for the first agent, which tells the caller's node.
    pub(super) fn passes(&mut self, call: Callback, (via, port): (u32, u16)) {
        let size = self.job.size();
        if call.from >= size || call.to >= size {
            return;
        }
        let to = self.job.nodes.of(call.to);
        let way = Way { to, via, port };
        match self.job.nodes.of(call.from) {
            node if node == self.node => self.add_way(way),
            node => self.order(node, &Order::Way(way)),
        }
    }

    /// Ranks of this node may go another way.
    pub(super) fn add_way(&mut self, way: Way) {
        if !self.gateways.ways.contains(&way) {
            self.gateways.ways.push(way);
        }
        self.show_ways();
    }

    /// Shows ranks of this node the ways that there are.
    pub(super) fn show_ways(&self) {
        for world in &self.worlds {
            for way in &self.gateways.ways {
                ways::add(&world.board, *way);
            }
        }
    }

    /// The port where this node passes calls on. None: it cannot.
    fn open_gateway(&mut self) -> Option<u16> {
        if let Some(open) = &self.gateways.open {
            return Some(open.port);
        }
        let (listener, port) = listen_at(0).ok()?;
        let (_watch, _tasks) = self.relay_at(listener)?;
        self.gateways.open = Some(Gateway { port, _watch, _tasks });
        Some(port)
    }

    fn relay_at(&self, listener: TcpListener) -> Option<(Watch, Tasks)> {
        let relay = Relay::new(listener, self.secret()?.clone(), self.id.0.to_ne_bytes()).ok()?;
        let ready: OwnedFd = relay.fd().try_clone_to_owned().ok()?;
        let places: Vec<Vec<SocketAddr>> = (0..self.job.size())
            .map(|rank| {
                let port = self.port_of(rank).unwrap_or(0);
                let at = |address: &IpAddr| SocketAddr::new(*address, port);
                self.addresses_of(self.job.nodes.of(rank))
                    .iter()
                    .map(at)
                    .collect()
            })
            .collect();
        let relay = Arc::new(Mutex::new(relay));
        let turn = move |_: &At| {
            let addresses = |rank: u32| places.get(rank as usize).cloned().unwrap_or_default();
            relay
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .turn(&addresses);
            Next::Keep
        };
        // Ranks compute here as well, and whoever waits for what passes waits for this.
        let now = How {
            urgency: Urgency::Now,
            ..How::at(Where::Machine)
        };
        let tasks = shared().ok()?;
        let watch = tasks.on_descriptor((ready.as_fd(), Interest::Readable), &now, turn);
        Some((watch.ok()?, tasks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn others_are_asked_for_a_way_when_two_have_missed_each_other_for_a_while_and_then_not_for_another() {
        let (mut search, begun) = (Search::default(), Instant::now());
        let asked: Vec<u32> = (0..12)
            .filter(|second| search.missed((1, 2), begun + SECOND * *second))
            .collect();
        assert_eq!(asked, [2, 7]);
        // Long after, it is another case.
        let later = begun + WAY_FORGETS * 10;
        assert!(!search.missed((1, 2), later));
        assert!(search.missed((1, 2), later + WAY_AFTER));
    }

    #[test]
    fn pairs_of_which_nobody_asks_any_more_are_forgotten_and_there_are_never_too_many() {
        let (mut search, begun) = (Search::default(), Instant::now());
        for pair in 0..SOUGHT_MAX as u32 + 10 {
            search.missed((pair, 0), begun);
        }
        assert_eq!(search.sought.len(), SOUGHT_MAX);
        let later = begun + WAY_FORGETS + SECOND;
        search.missed((0, 1), later);
        assert_eq!(search.sought.len(), 1);
        assert!(search.missed((0, 1), later + WAY_AFTER));
    }
}
