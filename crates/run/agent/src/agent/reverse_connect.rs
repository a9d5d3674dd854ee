//! Ranks that do not reach each other in one direction: who wants to be called tells its agent, the
//! agents pass that on, and the agent of the other rank calls that rank at its own port, on behalf
//! of the first. So the rank is woken as by any call, and nothing but who has the job's secret can
//! make it call.
//!
//! Bounded by [`CALLBACKS_MAX`]; one call for each pair and stream at a time, which lasts as long
//! as the rank computes.

use std::net::{IpAddr, SocketAddr};

use garonne_tcp::LocalIdentity;
use garonne_tcp::agent_channel::{self, ChannelConnect, ConnectOutcome};
use rustix::event::epoll;

use super::{Agent, EpollToken};
use garonne_job::agent_messages::{AgentCommand, AgentReport, ReverseConnectRequest};
use garonne_job::codes;
use garonne_job::limits::CALLBACKS_MAX;
use garonne_job::node_map::listed;

/// Connections that this node's agent opens to its own ranks on behalf of ranks of other hosts.
#[derive(Debug, Default)]
pub(super) struct ReverseConnects {
    pending: Vec<Option<PendingRequest>>,
}

#[derive(Debug)]
struct PendingRequest {
    request: ReverseConnectRequest,
    call: ChannelConnect,
    /// Addresses of this host that were not tried yet; the next one is the last.
    remaining_addresses: Vec<IpAddr>,
}

impl Agent<'_> {
    /// Has `call.to` call `call.from`, wherever it is.
    pub(super) fn request_reverse_connect(&mut self, call: ReverseConnectRequest) {
        let Some((_, called)) = self.nodes_of(call).filter(|_| self.shutdown.is_none()) else {
            return;
        };
        self.search_relay(call);
        if self.is_here(call.to) {
            self.connect_to_rank(call);
        } else if self.ctx.is_child() {
            self.ctx.report(&AgentReport::ReverseConnect(call));
        } else {
            self.ctx
                .command(called, &AgentCommand::ReverseConnect(call));
        }
    }

    /// The nodes of the rank that is to be called and of the one that is to call, which another
    /// agent names. `None`: there are no such ranks.
    pub(super) fn nodes_of(&self, call: ReverseConnectRequest) -> Option<(u32, u32)> {
        let (size, nodes) = (self.ctx.job.size(), &self.ctx.job.nodes);
        (call.from < size && call.to < size).then(|| (nodes.of(call.from), nodes.of(call.to)))
    }

    fn connect_to_rank(&mut self, what: ReverseConnectRequest) {
        let under_way = self.reverse_connects.pending.iter().flatten();
        if under_way.clone().any(|asking| asking.request == what)
            || under_way.count() >= CALLBACKS_MAX
        {
            return;
        }
        let mut left = self.own_addresses();
        left.reverse();
        self.connect_at(what, left);
    }

    /// Calls the rank at the next address.
    fn connect_at(&mut self, what: ReverseConnectRequest, mut left: Vec<IpAddr>) {
        let (Some(secret), Some(port)) = (self.secret(), self.port_of(what.to)) else {
            return;
        };
        let house: LocalIdentity =
            agent_channel::house_of_asking(secret.clone(), self.ctx.id.0.to_ne_bytes(), what.from);
        while let Some(address) = left.pop() {
            let address = SocketAddr::new(address, port);
            let Ok(call) = ChannelConnect::ask(&house, (address, what.to), what.bulk) else {
                continue;
            };
            let free = self
                .reverse_connects
                .pending
                .iter()
                .position(Option::is_none);
            let place = free.unwrap_or(self.reverse_connects.pending.len());
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            let token = EpollToken::ReverseConnect(place as u32).pack();
            let watched = call
                .fd()
                .is_some_and(|fd| epoll::add(&self.ctx.epoll, fd, token, flags).is_ok());
            if !watched {
                continue;
            }
            let asking = Some(PendingRequest {
                request: what,
                call,
                remaining_addresses: left,
            });
            match free {
                Some(place) => self.reverse_connects.pending[place] = asking,
                None => self.reverse_connects.pending.push(asking),
            }
            return;
        }
    }

    /// A call to a rank of this node goes on.
    pub(super) fn reverse_connect_ready(&mut self, place: u32) {
        let Some(slot) = self.reverse_connects.pending.get_mut(place as usize) else {
            return;
        };
        let Some(asking) = slot else { return };
        let had_called = asking.call.has_called();
        match asking.call.look() {
            ConnectOutcome::Waits => {
                if !had_called
                    && asking.call.has_called()
                    && let Some(fd) = asking.call.fd()
                {
                    let token = EpollToken::ReverseConnect(place).pack();
                    let _ = epoll::modify(&self.ctx.epoll, fd, token, epoll::EventFlags::IN);
                }
            }
            // The rank knows: nothing more is to be said.
            ConnectOutcome::Open(_) => *slot = None,
            ConnectOutcome::Failed(_) | ConnectOutcome::Refused(_) | ConnectOutcome::Cut(_) => {
                if let Some(PendingRequest {
                    request: what,
                    remaining_addresses: left,
                    ..
                }) = slot.take()
                {
                    self.connect_at(what, left);
                }
            }
        }
    }

    /// A rank of this node says that it does not reach another, nor that one it.
    pub(super) fn ranks_unreachable(&mut self, rank: u32, peer: u32) {
        if peer >= self.ctx.job.size() || self.is_here(peer) {
            return;
        }
        let (here, there) = (self.ctx.node, self.ctx.job.nodes.of(peer));
        let side = |node: u32| {
            format!(
                "host '{}' (ranks {})",
                self.host_name(node),
                listed(&self.ctx.job.ranks_of(node))
            )
        };
        let at: Vec<String> = self
            .addresses_now(there)
            .iter()
            .map(IpAddr::to_string)
            .collect();
        let tried = match at.is_empty() {
            true => String::from("has no address to call"),
            false => format!("reaches nobody at {}", at.join(", ")),
        };
        let line = format!(
            "error[{}]: {} and {} cannot reach each other: '{}' {tried}, and no call comes from '{}'",
            codes::G0229,
            side(here),
            side(there),
            self.host_name(here),
            self.host_name(there),
        );
        self.rank_refused(rank, &line);
    }

    /// A rank of this node says why it cannot have a connection to another.
    pub(super) fn connection_refused(&mut self, (rank, peer): (u32, u32), code: &str, text: &str) {
        let Some(code) = codes::find(code).filter(|_| peer < self.ctx.job.size()) else {
            return;
        };
        let host = |rank| self.host_name(self.ctx.job.nodes.of(rank));
        let line = format!(
            "error[{}]: rank {rank} on host '{}' cannot have a connection to rank {peer} on host '{}': {text}",
            code.id,
            host(rank),
            host(peer)
        );
        self.rank_refused(rank, &line);
    }
}
