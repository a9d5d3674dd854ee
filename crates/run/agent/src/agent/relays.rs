//! Hosts that have no network in common talk through a third one that reaches both.
//!
//! That two ranks do not reach each other shows when they ask for each other's calls again and
//! again (`reverse_connect`). The first agent then has all other nodes try whether they reach the
//! one that is called; who does opens a port where it passes calls on
//! ([`garonne_tcp::relay`]), and the ranks of the caller's node learn of it
//! (`relay_routes`), and call there. Where nobody does, the two may meet at a host that both can
//! call (`relay_rendezvous`). When to do what is a `relay_search`'s to say. Networks that are to be
//! left alone are tried where the others have led nowhere: those may be gone. Nothing of what
//! passes is read: the ranks prove themselves to each other. The passing on is done by a task of
//! this process, which its sockets poke.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use garonne_progress::events::{EventWatch, Interest, WatchAction};
use garonne_progress::tasks::{Place as Where, RunContext, TaskOptions, Tasks, Urgency, shared};
use garonne_sync::shm::Segment;
use garonne_tcp::relay::{CalledAddresses, ReachProbe, Relay, RelayDirection};
use ipnet::IpNet;
use rustix::event::epoll;

use super::EpollToken;
use super::context::Context;
use super::host_exchange::listen_at;
use super::relay_search::{RelaySearch, SearchStep};
use super::worlds::Worlds;
use garonne_job::agent_messages::{
    AgentCommand, AgentReport, RelayRoute, RendezvousPoint, ReverseConnectRequest,
};
use garonne_job::limits::{PROBE_LIMIT, PROBES_MAX, RENDEZVOUS_FORGETS, SOUGHT_MAX};
use garonne_job::relay_routes::RelayRoutes;
use garonne_links::addresses;

/// Relays between hosts without a common network: the search for them, and the one of this node.
///
/// Owned by the agent. [`search_relay`](Self::search_relay) begins a search at the first agent,
/// when a rank asks for a call. Probes of this node are decided as the epoll tells
/// ([`probe_ready`](Self::probe_ready)), and the route that is found is shown to the ranks
/// ([`add_route`](Self::add_route)). `relay_rendezvous` has the steps of a rendezvous.
#[derive(Debug, Default)]
pub(super) struct Relays {
    /// Pairs of nodes that do not reach each other; used at the root.
    search: RelaySearch,
    probes: Vec<Option<RelayProbe>>,
    /// Nodes that probes were sent to, and since when none has been taken there.
    unreached: HashMap<u32, Instant>,
    own_relay: Option<OwnRelay>,
    /// Addresses of all hosts, shared with the task that relays connections.
    host_endpoints: Arc<Mutex<HostEndpoints>>,
    /// Ways that the ranks of this node know.
    routes: RelayRoutes,
}

#[derive(Debug)]
struct RelayProbe {
    tried: ProbeTarget,
    probe: ReachProbe,
    until: Instant,
}

/// Addresses of all hosts as they are now.
#[derive(Debug, Default)]
struct HostEndpoints {
    /// Addresses of each, in the order in which to try them from here.
    addresses: Vec<Vec<IpAddr>>,
    /// Networks to be left alone.
    alone: Vec<IpNet>,
}

impl HostEndpoints {
    /// Returns where a rank of a node is called that listens at this port.
    fn of(&self, node: u32, port: u16) -> CalledAddresses {
        let all = self.addresses.get(node as usize).map_or(&[][..], |all| all);
        let at = |address: &IpAddr| SocketAddr::new(*address, port);
        let preferred = left_of(all, &self.alone);
        let rest = all.iter().filter(|address| !preferred.contains(address));
        CalledAddresses {
            fallback: rest.map(at).collect(),
            preferred: preferred.iter().map(at).collect(),
        }
    }
}

/// Target of a probe: a rank, or the port of a rendezvous.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProbeTarget {
    /// The rank that is called.
    Rank(ReverseConnectRequest),
    /// The node where two may meet.
    Venue(RendezvousPoint),
}

/// Nodes whose calls are kept here, from caller to called, until those of the called come, and when
/// one was last expected or came; the task that passes calls on asks. Bounded by [`SOUGHT_MAX`]; if
/// there are as many, those go that have not called for [`RENDEZVOUS_FORGETS`].
#[derive(Debug, Default)]
struct PendingPairs(HashMap<(u32, u32), Instant>);

impl PendingPairs {
    /// Two are to meet here. Whether they are expected from now on.
    fn expect(&mut self, (one, other): (u32, u32), now: Instant) -> bool {
        let calls = [(one, other), (other, one)];
        if self.0.len() >= 2 * SOUGHT_MAX {
            self.forget(now);
        }
        let has_room = self.0.len() < 2 * SOUGHT_MAX;
        for call in calls {
            if has_room || self.0.contains_key(&call) {
                self.0.insert(call, now);
            }
        }
        calls.iter().all(|call| self.0.contains_key(call))
    }

    /// Forgets those of which neither has called the other for a while.
    fn forget(&mut self, now: Instant) {
        let lately = |call| {
            self.0
                .get(&call)
                .is_some_and(|came| now < *came + RENDEZVOUS_FORGETS)
        };
        let calls = self.0.keys().copied();
        let quiet: Vec<(u32, u32)> = calls
            .filter(|(from, to)| !lately((*from, *to)) && !lately((*to, *from)))
            .collect();
        for call in quiet {
            self.0.remove(&call);
        }
    }

    /// Calls of the first for the second are passed on. Those of the second, whom that does not
    /// help, still wait here: the first may be called so as well.
    fn pass(&mut self, nodes: (u32, u32)) {
        self.0.remove(&nodes);
    }

    /// Returns whether a call that comes is kept here.
    fn keeps(&mut self, nodes: (u32, u32), now: Instant) -> bool {
        self.0.get_mut(&nodes).map(|came| *came = now).is_some()
    }
}

/// The relay of this node: its port, and the task that passes connections on.
#[derive(Debug)]
struct OwnRelay {
    port: u16,
    meeting: Arc<Mutex<PendingPairs>>,
    _watch: EventWatch,
    /// Tasks whose thread watches the relayed connections.
    _tasks: Tasks,
}

/// Returns the slot for a new probe. A probe of a place to meet, of which there are few, and which
/// may be the last that is left to two ranks, takes that of the oldest try of a rank if all are
/// taken: of those every pair brings as many as there are other hosts.
fn place_for(tried: &ProbeTarget, probes: &[Option<RelayProbe>]) -> Option<usize> {
    let free = probes.iter().position(Option::is_none);
    if let Some(place) = free.or((probes.len() < PROBES_MAX).then_some(probes.len())) {
        return Some(place);
    }
    let is_of_rank = |probing: &RelayProbe| matches!(probing.tried, ProbeTarget::Rank(_));
    let of_ranks = probes.iter().enumerate().filter_map(|(place, slot)| {
        let probing = slot.as_ref().filter(|probing| is_of_rank(probing))?;
        Some((probing.until, place))
    });
    match tried {
        ProbeTarget::Venue(_) => of_ranks.min().map(|(_, place)| place),
        ProbeTarget::Rank(_) => None,
    }
}

/// Returns a host's addresses that are on no disabled network; all, if there are no others.
fn left_of(all: &[IpAddr], alone: &[IpNet]) -> Vec<IpAddr> {
    let is_left = |address: &&IpAddr| !addresses::is_of(alone, **address);
    let left: Vec<IpAddr> = all.iter().filter(is_left).copied().collect();
    match left.is_empty() {
        true => all.to_vec(),
        false => left,
    }
}

impl Relays {
    /// A rank wants to be called by another, whom it does not reach: for the first agent, which has
    /// both led through a third host if that goes on.
    pub fn search_relay(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        call: ReverseConnectRequest,
    ) {
        // Whoever asks for a call has failed to call itself.
        let Some(nodes) = ctx.nodes_of(call) else {
            return;
        };
        let count = ctx.job.nodes.names.len() as u32;
        if ctx.is_child() || nodes.0 == nodes.1 || count < 3 {
            return;
        }
        match self.search.record_unreachable(nodes, Instant::now()) {
            SearchStep::Nothing => {}
            SearchStep::Caller => {
                for node in (0..count).filter(|node| ![nodes.0, nodes.1].contains(node)) {
                    match node == ctx.node {
                        true => self.probe_relay(ctx, call),
                        false => ctx.command(node, &AgentCommand::ProbeRelay(call)),
                    }
                }
            }
            SearchStep::VenueHere(failed) => {
                self.search_rendezvous_at_root(ctx, worlds, call, failed)
            }
            SearchStep::VenueElsewhere(failed) => {
                self.search_rendezvous_elsewhere(ctx, call, failed)
            }
        }
    }

    /// Tries whether this node reaches a rank.
    pub fn probe_relay(&mut self, ctx: &mut Context<'_>, call: ReverseConnectRequest) {
        let Some(port) = ctx.hosts.port_of(call.to) else {
            return;
        };
        self.start_probe(
            ctx,
            ProbeTarget::Rank(call),
            (ctx.job.nodes.of(call.to), port),
        );
    }

    /// Tries all addresses of a node at once, at this port.
    pub fn start_probe(
        &mut self,
        ctx: &mut Context<'_>,
        tried: ProbeTarget,
        (node, port): (u32, u16),
    ) {
        let now = Instant::now();
        for slot in &mut self.probes {
            slot.take_if(|probing| now >= probing.until);
        }
        let addresses = self.probed(node, ctx.addresses_now(node), ctx.hosts.disabled(), now);
        for address in addresses {
            let Some(place) = place_for(&tried, &self.probes) else {
                return;
            };
            let Some(probe) = ReachProbe::begin(SocketAddr::new(address, port)) else {
                continue;
            };
            let token = EpollToken::Probe(place as u32).pack();
            if epoll::add(&ctx.epoll, probe.fd(), token, epoll::EventFlags::OUT).is_err() {
                return;
            }
            let until = now + PROBE_LIMIT;
            let probing = Some(RelayProbe {
                tried,
                probe,
                until,
            });
            match self.probes.get_mut(place) {
                Some(slot) => *slot = probing,
                None => self.probes.push(probing),
            }
        }
    }

    /// Returns which of a node's addresses are tried: those on networks to be left alone only where
    /// others were tried before, long enough ago, and none was taken.
    fn probed(
        &mut self,
        node: u32,
        all: Vec<IpAddr>,
        disabled: &[IpNet],
        now: Instant,
    ) -> Vec<IpAddr> {
        let since = *self.unreached.entry(node).or_insert(now);
        match now.saturating_duration_since(since) >= PROBE_LIMIT {
            true => all,
            false => left_of(&all, disabled),
        }
    }

    /// A try is decided.
    pub fn probe_ready(&mut self, ctx: &mut Context<'_>, worlds: &Worlds, place: u32) {
        let slot = self.probes.get_mut(place as usize);
        let Some(RelayProbe { tried, probe, .. }) = slot.and_then(Option::take) else {
            return;
        };
        if !probe.is_taken() {
            return;
        }
        let node = match tried {
            ProbeTarget::Venue(venue) => venue.via,
            ProbeTarget::Rank(call) => ctx.job.nodes.of(call.to),
        };
        self.unreached.remove(&node);
        match tried {
            ProbeTarget::Venue(venue) => self.rendezvous_probe_reached(ctx, worlds, venue),
            ProbeTarget::Rank(call) => {
                if let Some(port) = self.relay_port(ctx) {
                    self.expect_relay_here(ctx, call);
                    match ctx.is_child() {
                        true => ctx.report(&AgentReport::RelayOpened(call, port)),
                        false => self.relay_opened(ctx, worlds, call, (ctx.node, port)),
                    }
                }
            }
        }
    }

    /// A node reaches the one that is called, and passes calls on: for the first agent, which tells
    /// the caller's node.
    pub fn relay_opened(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        call: ReverseConnectRequest,
        (via, port): (u32, u16),
    ) {
        let Some((from, to)) = ctx.nodes_of(call) else {
            return;
        };
        self.search.record_found((from, to));
        self.announce_route(ctx, worlds, from, RelayRoute { to, via, port });
    }

    /// Ranks of a node may go this way.
    pub fn announce_route(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        node: u32,
        way: RelayRoute,
    ) {
        match node == ctx.node {
            true => self.add_route(worlds, way),
            false => ctx.command(node, &AgentCommand::AddRelayRoute(way)),
        }
    }

    /// For which a way is looked for, at the first agent.
    pub fn advance_relay_search(&mut self) -> &mut RelaySearch {
        &mut self.search
    }

    /// Ranks of this node may go another way, which is tried before all others.
    pub fn add_route(&mut self, worlds: &Worlds, way: RelayRoute) {
        if self.routes.tell(way) {
            for world_memory in worlds.world_memories() {
                self.routes.show(world_memory);
            }
        }
    }

    /// Shows ranks of a world that begins the ways that there are.
    pub fn publish_routes(&self, world_memory: &Segment) {
        self.routes.show(world_memory);
    }

    /// The port where this node passes calls on. None: it cannot.
    pub fn relay_port(&mut self, ctx: &mut Context<'_>) -> Option<u16> {
        self.open_relay(ctx).map(|open| open.port)
    }

    /// Ranks of two nodes meet at this one: their calls are kept until both are there. Whether they
    /// are expected from now on.
    pub fn expect_rendezvous_here(&mut self, ctx: &mut Context<'_>, two: (u32, u32)) -> bool {
        let Some(open) = self.open_relay(ctx) else {
            return false;
        };
        let mut meeting = open.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        meeting.expect(two, Instant::now())
    }

    /// This node reaches the one that is called, and passes such calls on from now on where it had
    /// them wait.
    fn expect_relay_here(&mut self, ctx: &Context<'_>, call: ReverseConnectRequest) {
        if let (Some(nodes), Some(open)) = (ctx.nodes_of(call), &self.own_relay) {
            let mut meeting = open.meeting.lock().unwrap_or_else(PoisonError::into_inner);
            meeting.pass(nodes);
        }
    }

    /// Hosts have other addresses now, or networks are to be left alone: calls are passed on by
    /// what there is.
    pub fn update_host_endpoints(&self, ctx: &Context<'_>) {
        if self.own_relay.is_some() {
            self.set_host_endpoints(ctx);
        }
    }

    fn set_host_endpoints(&self, ctx: &Context<'_>) {
        let nodes = 0..ctx.job.nodes.names.len() as u32;
        let around = &self.host_endpoints;
        *around.lock().unwrap_or_else(PoisonError::into_inner) = HostEndpoints {
            addresses: nodes.map(|node| ctx.addresses_now(node)).collect(),
            alone: ctx.hosts.disabled().to_vec(),
        };
    }

    /// Returns the relay of this node, opened if it was not. `None`: the node cannot relay.
    fn open_relay(&mut self, ctx: &mut Context<'_>) -> Option<&OwnRelay> {
        if self.own_relay.is_none() {
            let (listener, port) = listen_at(0).ok()?;
            self.own_relay = Some(self.relay_at(ctx, listener, port)?);
        }
        self.own_relay.as_ref()
    }

    fn relay_at(&self, ctx: &Context<'_>, listener: TcpListener, port: u16) -> Option<OwnRelay> {
        let relay = Relay::new(listener, ctx.secret.clone()?, ctx.id.0.to_ne_bytes()).ok()?;
        let ready: OwnedFd = relay.fd().try_clone_to_owned().ok()?;
        let ranks: Vec<(u32, u16)> = (0..ctx.job.size())
            .map(|rank| (ctx.job.nodes.of(rank), ctx.hosts.port_of(rank).unwrap_or(0)))
            .collect();
        self.set_host_endpoints(ctx);
        let meeting = Arc::<Mutex<PendingPairs>>::default();
        let meets = Arc::clone(&meeting);
        let around = Arc::clone(&self.host_endpoints);
        let lead = move |from: u32, to: u32| {
            let of = |rank: u32| ranks.get(rank as usize).copied();
            let (Some((from, _)), Some((to, port))) = (of(from), of(to)) else {
                return RelayDirection::To(CalledAddresses::default());
            };
            let mut meets = meets.lock().unwrap_or_else(PoisonError::into_inner);
            if meets.keeps((from, to), Instant::now()) {
                return RelayDirection::Meeting;
            }
            let around = around.lock().unwrap_or_else(PoisonError::into_inner);
            RelayDirection::To(around.of(to, port))
        };
        let relay = Arc::new(Mutex::new(relay));
        let turn = move |_: &RunContext| {
            relay
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .turn(Instant::now(), &lead);
            WatchAction::Keep
        };
        // Ranks compute here as well, and whoever waits for what passes waits for this.
        let now = TaskOptions {
            urgency: Urgency::Now,
            ..TaskOptions::at(Where::Machine)
        };
        let tasks = shared().ok()?;
        let watch = tasks.on_descriptor((ready.as_fd(), Interest::Readable), &now, turn);
        Some(OwnRelay {
            port,
            meeting,
            _watch: watch.ok()?,
            _tasks: tasks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_host_that_reaches_one_of_two_has_the_other_s_calls_wait_no_more() {
        let (mut meeting, now) = (PendingPairs::default(), Instant::now());
        assert!(!meeting.keeps((1, 2), now));
        assert!(meeting.expect((2, 1), now));
        assert!(meeting.keeps((1, 2), now) && meeting.keeps((2, 1), now));
        meeting.pass((1, 2));
        assert!(!meeting.keeps((1, 2), now) && meeting.keeps((2, 1), now));
        assert!(meeting.expect((1, 2), now) && meeting.keeps((1, 2), now));
    }

    #[test]
    fn a_host_where_as_many_meet_as_may_forgets_those_that_call_no_more() {
        let (mut meeting, now) = (PendingPairs::default(), Instant::now());
        let most = SOUGHT_MAX as u32;
        for node in 0..most {
            assert!(meeting.expect((node, node + 1), now));
        }
        assert!(!meeting.expect((7, 9), now) && meeting.expect((1, 2), now));
        // One of each of these two calls on.
        let later = now + RENDEZVOUS_FORGETS;
        let calls = [(4, 5), (9, 8)];
        assert!(calls.iter().all(|call| meeting.keeps(*call, later)));
        assert!(meeting.expect((7, 9), later));
        assert_eq!(meeting.0.len(), 6);
        let kept = [(4, 5), (5, 4), (8, 9), (9, 8), (7, 9), (9, 7)];
        assert!(kept.iter().all(|call| meeting.keeps(*call, later)));
    }

    #[test]
    fn who_passes_on_takes_no_network_that_is_left_alone_unless_there_is_no_other() {
        let addresses: Vec<IpAddr> = ["10.0.0.1", "10.0.1.1"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let alone: Vec<IpNet> = vec!["10.0.0.0/24".parse().unwrap()];
        assert_eq!(left_of(&addresses, &alone), addresses[1..]);
        assert_eq!(left_of(&addresses[..1], &alone), addresses[..1]);
        assert_eq!(left_of(&addresses, &[]), addresses);
    }

    #[test]
    fn networks_that_are_left_alone_are_tried_where_the_others_have_led_nowhere() {
        let addresses: Vec<IpAddr> = ["10.0.0.1", "10.0.1.1"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let alone: Vec<IpNet> = vec!["10.0.0.0/24".parse().unwrap()];
        let at = |index: usize| vec![SocketAddr::new(addresses[index], 7)];
        let around = HostEndpoints {
            addresses: vec![addresses.clone()],
            alone: alone.clone(),
        };
        let CalledAddresses {
            preferred,
            fallback,
        } = around.of(0, 7);
        assert_eq!((preferred, fallback), (at(1), at(0)));
        assert_eq!(around.of(1, 7), CalledAddresses::default());
        let (mut relays, now) = (Relays::default(), Instant::now());
        let mut probed = |node, now| relays.probed(node, addresses.clone(), &alone, now);
        assert_eq!(probed(3, now), addresses[1..]);
        // The first try may still be taken.
        assert_eq!(probed(3, now + PROBE_LIMIT / 2), addresses[1..]);
        assert_eq!(probed(3, now + PROBE_LIMIT), addresses);
        assert_eq!(probed(4, now + PROBE_LIMIT), addresses[1..]);
        relays.unreached.remove(&3);
        let again = relays.probed(3, addresses.clone(), &alone, now + PROBE_LIMIT);
        assert_eq!(again, addresses[1..], "it was reached");
    }

    #[test]
    fn a_place_to_meet_is_tried_however_many_ranks_are() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let now = Instant::now();
        let call = ReverseConnectRequest {
            from: 0,
            to: 1,
            bulk: false,
        };
        let venue = ProbeTarget::Venue(RendezvousPoint {
            call,
            via: 2,
            port: 1,
        });
        let mut probes = Vec::new();
        for age in 0..PROBES_MAX as u64 {
            let place = place_for(&ProbeTarget::Rank(call), &probes);
            assert_eq!(place, Some(age as usize));
            probes.push(Some(RelayProbe {
                tried: ProbeTarget::Rank(call),
                probe: ReachProbe::begin(address).unwrap(),
                until: now + std::time::Duration::from_secs((age + 3) % PROBES_MAX as u64),
            }));
        }
        assert_eq!(place_for(&ProbeTarget::Rank(call), &probes), None);
        let oldest = PROBES_MAX - 3;
        assert_eq!(place_for(&venue, &probes), Some(oldest));
        probes[oldest].as_mut().unwrap().tried = venue;
        assert_eq!(
            place_for(&venue, &probes),
            Some(oldest + 1),
            "not that of another place"
        );
        probes[7] = None;
        assert_eq!(place_for(&ProbeTarget::Rank(call), &probes), Some(7));
    }
}
