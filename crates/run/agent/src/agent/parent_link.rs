//! The side of an agent towards the one above it: their link, what the first agent tells before the
//! start, and the connections by which the link goes on.
//!
//! The link goes on by another connection, and by another network if there is one: where the
//! connection has failed, where nothing was heard for [`LINE_QUIET`], and where its network is to
//! be left alone (`garonne network drain`). All addresses are called at once, each round with a
//! higher turn; the first that proves itself is taken, the others are dropped before they have
//! proved anything. Networks that are to be left alone are called, too, after a round in vain: the
//! others may be gone, and word of what is in use again comes by this link alone. Meanwhile the
//! line before may come to life again, which ends the round. Only the agent below calls; the one
//! above waits (`child_agents`).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use garonne_job::agent_checkin::table;
use garonne_job::agent_messages::{AgentReport, HostEndpoint, NodeEndpoints};
use garonne_job::limits::{LINE_QUIET, MOVE_ROUNDS, RECONNECT_ROUND};
use garonne_job::node_map::NodeMap;
use garonne_links::addresses;
use garonne_tcp::LocalIdentity;
use garonne_tcp::agent_channel::{self, ChannelConnect, ChannelLoss, ConnectOutcome};
use ipnet::IpNet;
use rustix::event::epoll;

use super::agent_link::{AgentLink, LinkLoss};
use super::epoll_token::EpollToken;
use super::joined_hosts::RootConnection;

/// Networks as calls to the agent above use them.
pub(super) struct ParentNetworks {
    /// Addresses of its host that are known now, in the order in which to try them.
    pub addresses: Vec<IpAddr>,
    /// Networks that are to be left alone.
    pub disabled: Vec<IpNet>,
}

/// Way in which a call to the agent above has gone on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReconnectStep {
    /// The call waits, or has failed.
    Nothing,
    /// The link goes on by the new connection.
    Renewed,
    /// The agent above does not go on with this link.
    Lost,
}

/// Attempts to replace the connection to the parent, at all addresses at once.
#[derive(Debug, Default)]
struct Reconnect {
    turn: u32,
    calls: Vec<Option<ChannelConnect>>,
    /// When the last round began.
    begun: Option<Instant>,
    /// Rounds that are still to be tried for a network that is to be left alone.
    moves: u32,
    /// The last round is one of these.
    moving: bool,
    /// A round since the link was last heard has called only networks that are in use.
    tried_enabled: bool,
}

/// Side of an agent towards the one above it.
///
/// Owned by [`TreeLinks`](super::tree_links::TreeLinks), in every agent but the first. Hosts and
/// the order to start come first ([`add_hosts`](Self::add_hosts),
/// [`take_start`](Self::take_start)). [`check`](Self::check) and
/// [`check_connection`](Self::check_connection) are called when [`due`](Self::due) says so.
pub(super) struct ParentLink {
    link: Option<AgentLink>,
    /// Authenticates calls to the agent above.
    identity: LocalIdentity,
    /// The node above.
    node: u32,
    /// The address at which its agent was reached, and its port.
    address: IpAddr,
    port: u16,
    reconnect: Reconnect,
    /// Hosts as they are told of, until all are.
    reported: Vec<NodeEndpoints>,
    /// Addresses of all hosts and ports of all ranks, once the root has ordered the start.
    start_data: Option<(Vec<HostEndpoint>, Vec<u16>)>,
    /// This host has joined with a key.
    joined: bool,
}

impl ParentLink {
    /// Takes over the connection by which the agent of `node` has reached the one above it.
    pub fn new(outer: RootConnection, node: u32, epoll: &OwnedFd) -> Self {
        let identity = agent_channel::identity(outer.secret, outer.job.0.to_ne_bytes(), node);
        Self {
            link: Some(AgentLink::new(
                outer.line,
                EpollToken::AgentLink(node),
                epoll,
            )),
            identity,
            node: outer.parent,
            address: outer.reached,
            port: outer.port,
            reconnect: Reconnect::default(),
            reported: Vec::new(),
            start_data: None,
            joined: outer.guest,
        }
    }

    /// Returns the link; `None` once it is lost.
    pub fn link(&self) -> Option<&AgentLink> {
        self.link.as_ref()
    }

    /// Returns the node above.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Returns the address at which the agent above was reached.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns whether this host has joined with a key.
    pub fn has_joined(&self) -> bool {
        self.joined
    }

    /// Ends the link, and returns how it was lost.
    pub fn close(&mut self, epoll: &OwnedFd) -> LinkLoss {
        self.link.take().map_or(LinkLoss::Ended, |link| {
            let how = link.how_lost();
            link.end(epoll);
            how
        })
    }

    /// Sends an encoded report, unless it can be left out or there is no link.
    pub fn send(&mut self, epoll: &OwnedFd, report: &[u8]) -> Result<(), ChannelLoss> {
        match &mut self.link {
            Some(link) if !link.leaves_out(report) => link.send(epoll, report),
            _ => Ok(()),
        }
    }

    /// Returns the next message that is here.
    pub fn receive(&mut self, epoll: &OwnedFd) -> Result<Option<Vec<u8>>, ChannelLoss> {
        let Some(link) = &mut self.link else {
            return Ok(None);
        };
        let _ = link.push(epoll);
        link.receive(epoll)
    }

    /// Notes hosts that the first agent names before the start, of `count` at most.
    pub fn add_hosts(&mut self, hosts: Vec<NodeEndpoints>, count: usize) {
        if self.reported.len() + hosts.len() <= count {
            self.reported.extend(hosts);
        }
    }

    /// Notes that the first agent has ordered the start.
    ///
    /// # Errors
    /// The hosts that it has named are not those of the job.
    pub fn start(&mut self, nodes: &NodeMap) -> garonne_job::Result<()> {
        self.start_data = Some(table(std::mem::take(&mut self.reported), nodes)?);
        Ok(())
    }

    /// Returns whether the start is ordered, and what came with the order has not been taken.
    pub fn has_start_data(&self) -> bool {
        self.start_data.is_some()
    }

    /// Takes addresses of all hosts and ports of all ranks.
    pub fn take_start(&mut self) -> Option<(Vec<HostEndpoint>, Vec<u16>)> {
        self.start_data.take()
    }

    /// Returns when to look at the link or at its connection.
    pub fn due(&self) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let again = self.reconnect.begun.map(|begun| begun + RECONNECT_ROUND);
        let quiet = link.heard() + LINE_QUIET;
        let reconnect = match link.is_down() || self.reconnect.moves > 0 {
            true => again.unwrap_or(link.heard()),
            false => again.map_or(quiet, |again| again.max(quiet)),
        };
        Some(reconnect.min(link.due()))
    }

    /// Gives a sign of life if it is time.
    ///
    /// # Errors
    /// The agent above has been silent, or without a connection, for too long.
    pub fn check(&mut self, epoll: &OwnedFd, now: Instant) -> Result<(), ChannelLoss> {
        let ping = AgentReport::Ping.encode();
        let link = self.link.as_mut();
        link.map_or(Ok(()), |link| link.keep_alive(epoll, &ping, now))
    }

    /// Has what waits leave; returns whether all has.
    ///
    /// # Errors
    /// The connection is broken, or the link is over.
    pub fn push(&mut self, epoll: &OwnedFd) -> Result<bool, ChannelLoss> {
        self.link
            .as_mut()
            .map_or(Err(ChannelLoss::Over), |link| link.push(epoll))
    }

    /// Leaves networks alone that are to be left alone from now on.
    pub fn change_networks(&mut self, epoll: &OwnedFd, networks: &ParentNetworks, now: Instant) {
        let is_out = |address: SocketAddr| addresses::is_of(&networks.disabled, address.ip());
        let ends = self.link.as_ref().and_then(|link| link.ends());
        let is_there = ends.is_some_and(|(own, other)| is_out(own) || is_out(other));
        self.reconnect.moves = if is_there { MOVE_ROUNDS } else { 0 };
        self.reconnect.begun = None;
        self.check_connection(epoll, networks, now);
    }

    /// Calls the agent above again where that is due, and no longer where it is not.
    pub fn check_connection(&mut self, epoll: &OwnedFd, networks: &ParentNetworks, now: Instant) {
        let Some(link) = &self.link else { return };
        let is_silent = link.is_down() || now >= link.heard() + LINE_QUIET;
        let reconnect = &mut self.reconnect;
        let in_round = reconnect
            .begun
            .is_some_and(|begun| now < begun + RECONNECT_ROUND);
        if in_round && (is_silent || reconnect.moving) {
            return;
        }
        reconnect.tried_enabled &= is_silent;
        if !is_silent && reconnect.moves == 0 {
            reconnect.calls.clear();
            reconnect.begun = None;
            return;
        }
        reconnect.begun = Some(now);
        reconnect.turn += 1;
        reconnect.calls.clear();
        reconnect.moving = !is_silent;
        if !is_silent {
            reconnect.moves -= 1;
        }
        let identity = agent_channel::identity_again(self.identity.clone(), reconnect.turn);
        let mut addresses = networks.addresses.clone();
        if addresses.is_empty() {
            addresses.push(self.address);
        }
        // A network that is to be left alone is better than none, or than one that is gone.
        let is_out = |address: &IpAddr| addresses::is_of(&networks.disabled, *address);
        let may_use_disabled = reconnect.tried_enabled || addresses.iter().all(is_out);
        if !is_silent || !may_use_disabled {
            addresses.retain(|address| !is_out(address));
            reconnect.tried_enabled = is_silent;
        }
        let calls = addresses.into_iter().filter_map(|address| {
            let at = (SocketAddr::new(address, self.port), self.node);
            ChannelConnect::begin_again(&identity, at, link.received()).ok()
        });
        reconnect.calls = calls.map(Some).collect();
        for (call, place) in reconnect.calls.iter().flatten().zip(0..) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            if let Some(fd) = call.fd() {
                let _ = epoll::add(epoll, fd, EpollToken::Reconnect(place).pack(), flags);
            }
        }
    }

    /// Number of calls under way in this round.
    pub fn calls(&self) -> u32 {
        self.reconnect.calls.len() as u32
    }

    /// Goes on with a call whose socket is ready.
    pub fn connection_ready(&mut self, epoll: &OwnedFd, place: u32) -> ReconnectStep {
        let Some(slot) = self.reconnect.calls.get_mut(place as usize) else {
            return ReconnectStep::Nothing;
        };
        let Some(call) = slot else {
            return ReconnectStep::Nothing;
        };
        let had_called = call.has_called();
        match call.look() {
            ConnectOutcome::Waits => {
                if !had_called
                    && call.has_called()
                    && let Some(fd) = call.fd()
                {
                    let token = EpollToken::Reconnect(place).pack();
                    let _ = epoll::modify(epoll, fd, token, epoll::EventFlags::IN);
                }
                ReconnectStep::Nothing
            }
            ConnectOutcome::Failed(_) | ConnectOutcome::Refused(_) | ConnectOutcome::Cut(_) => {
                *slot = None;
                ReconnectStep::Nothing
            }
            ConnectOutcome::Open(line) => {
                let turn = self.reconnect.turn;
                self.reconnect.calls.clear();
                (self.reconnect.begun, self.reconnect.moves) = (None, 0);
                self.reconnect.tried_enabled = false;
                let link = self.link.as_mut();
                let renewed =
                    link.is_some_and(|link| link.replace_connection(epoll, (*line, turn)).is_ok());
                match renewed {
                    true => ReconnectStep::Renewed,
                    false => ReconnectStep::Lost,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::layout::JobId;
    use garonne_tcp::agent_channel::{AgentChannel, PendingChannels};
    use garonne_tcp::{Secret, listen};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    /// Where the agent above listens, and where nobody does any more.
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
    const GONE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    /// Longer than any delay of a machine with too much to do.
    const LOOKS: usize = 20_000;

    fn secret() -> Secret {
        Secret::from_bytes(&[3; 32])
    }

    fn identity(node: u32) -> LocalIdentity {
        agent_channel::identity(secret(), JobId(1).0.to_ne_bytes(), node)
    }

    /// Lets callers in; the connection of one that has proved who it is.
    fn accept(pending: &mut PendingChannels) -> Option<AgentChannel> {
        pending.open(&mut |_, _| true);
        let accepted = (0..4).find_map(|place| pending.look_again(place, |_, _| Some(0)));
        accepted.map(|(_, connection)| connection)
    }

    /// A link of node 1 to the agent of node 0, which takes calls.
    fn link(epoll: &OwnedFd) -> (ParentLink, PendingChannels, AgentChannel) {
        let listener = listen(SocketAddr::new(THERE, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut pending = PendingChannels::new(identity(0), listener);
        let mut call = ChannelConnect::begin(&identity(1), address, 0).unwrap();
        let (mut above, mut below) = (None, None);
        for _ in 0..LOOKS {
            above = above.or_else(|| accept(&mut pending));
            if below.is_none()
                && let ConnectOutcome::Open(line) = call.look()
            {
                below = Some(*line);
            }
            if above.is_some() && below.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let outer = RootConnection {
            job: JobId(1),
            node: 1,
            secret: secret(),
            line: below.expect("the call is answered"),
            parent: 0,
            reached: THERE,
            port: address.port(),
            guest: false,
            child_listener: None,
        };
        (ParentLink::new(outer, 1, epoll), pending, above.unwrap())
    }

    #[test]
    fn a_network_that_is_to_be_left_alone_is_called_when_those_in_use_lead_nowhere() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (mut parent, mut pending, _silent) = link(&epoll);
        let networks = ParentNetworks {
            addresses: vec![GONE, THERE],
            disabled: vec![IpNet::from(THERE)],
        };
        let mut now = parent.link().unwrap().heard() + LINE_QUIET;
        parent.check_connection(&epoll, &networks, now);
        assert_eq!(parent.calls(), 1, "networks in use come first");
        now += RECONNECT_ROUND;
        parent.check_connection(&epoll, &networks, now);
        assert_eq!(parent.calls(), 2, "these have led nowhere");
        let mut accepted = None;
        let renewed = (0..LOOKS).any(|_| {
            accepted = accepted.take().or_else(|| accept(&mut pending));
            std::thread::sleep(Duration::from_millis(1));
            let step = |place| parent.connection_ready(&epoll, place);
            (0..2).map(step).any(|step| step == ReconnectStep::Renewed)
        });
        assert!(renewed);
        let (_, other) = parent.link().unwrap().ends().unwrap();
        assert_eq!(other.ip(), THERE);
        // The next time, those in use have another round of their own.
        now = parent.link().unwrap().heard() + LINE_QUIET;
        parent.check_connection(&epoll, &networks, now);
        assert_eq!(parent.calls(), 1);
    }

    #[test]
    fn a_link_moves_to_no_network_that_is_to_be_left_alone() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (mut parent, _pending, _above) = link(&epoll);
        let networks = ParentNetworks {
            addresses: vec![GONE, THERE],
            disabled: vec![IpNet::from(THERE)],
        };
        let now = parent.link().unwrap().heard();
        parent.change_networks(&epoll, &networks, now);
        assert_eq!(parent.calls(), 1);
        parent.check_connection(&epoll, &networks, now + RECONNECT_ROUND);
        assert_eq!(parent.calls(), 1);
    }
}
