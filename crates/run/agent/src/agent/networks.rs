//! Networks between the hosts of a running job: connections that ranks ask for, ways through a
//! third host, networks that are taken out of use, and networks that hosts get.

use std::os::fd::OwnedFd;

use garonne_job::agent_messages::{AgentCommand, AgentReport, QueryId, ReverseConnectRequest};
use garonne_sync::shm::Segment;
use ipnet::IpNet;

use super::context::Context;
use super::disabled_networks::{self, DrainRequests};
use super::new_networks::{self, NetworkUsers};
use super::relays::Relays;
use super::reverse_connect::ReverseConnects;
use super::worlds::Worlds;

/// Parts of an agent that deal with the networks between hosts.
///
/// Owned by the agent. Requests come from ranks ([`request_reverse_connect`]), from tools
/// ([`request_drain`]), and from other agents ([`take_command`], and at the first agent
/// [`take_report`]). Sockets go on as the epoll tells.
///
/// [`request_reverse_connect`]: Self::request_reverse_connect
/// [`request_drain`]: Self::request_drain
/// [`take_command`]: Self::take_command
/// [`take_report`]: Self::take_report
#[derive(Debug, Default)]
pub(super) struct Networks {
    /// Calls to ranks of this node on behalf of those that wait for theirs.
    reverse_connects: ReverseConnects,
    relays: Relays,
    drains: DrainRequests,
}

impl Networks {
    /// Shows ranks of a world that begins the ways that there are.
    pub fn publish_routes(&self, world_memory: &Segment) {
        self.relays.publish_routes(world_memory);
    }

    /// Has `call.to` call `call.from`, wherever it is.
    pub fn request_reverse_connect(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        call: ReverseConnectRequest,
    ) {
        let Some((_, called)) = ctx.nodes_of(call).filter(|_| !ctx.is_ending) else {
            return;
        };
        self.relays.search_relay(ctx, worlds, call);
        if called == ctx.node {
            self.reverse_connects.connect_to_rank(ctx, call);
        } else if ctx.is_child() {
            ctx.report(&AgentReport::ReverseConnect(call));
        } else {
            ctx.command(called, &AgentCommand::ReverseConnect(call));
        }
    }

    /// Goes on with a call to a rank of this node.
    pub fn reverse_connect_ready(&mut self, ctx: &Context<'_>, place: u32) {
        self.reverse_connects.ready(ctx, place);
    }

    /// Goes on with a probe whose socket is ready.
    pub fn probe_ready(&mut self, ctx: &mut Context<'_>, worlds: &Worlds, place: u32) {
        self.relays.probe_ready(ctx, worlds, place);
    }

    /// Takes the request of a tool on this host, which waits at `socket`, to take a network out of
    /// use or into use again.
    pub fn request_drain(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        socket: OwnedFd,
        change: (IpNet, bool),
    ) {
        let relays = &self.relays;
        self.drains
            .request(ctx, NetworkUsers { worlds, relays }, socket, change);
    }

    /// Obeys an order of the first agent that is about networks; others are ignored.
    pub fn take_command(&mut self, ctx: &mut Context<'_>, worlds: &Worlds, order: AgentCommand) {
        let relays = &self.relays;
        let users = NetworkUsers { worlds, relays };
        match order {
            AgentCommand::ReverseConnect(call) => self.request_reverse_connect(ctx, worlds, call),
            AgentCommand::DisabledNetworks(networks) => {
                disabled_networks::set_networks(ctx, users, networks)
            }
            AgentCommand::ReportAddresses(question) => {
                self.drains.report_own_addresses(ctx, users, question)
            }
            AgentCommand::DrainResult(number, text) => self.drains.send_result(number, text),
            AgentCommand::NewAddresses(list) => new_networks::set(ctx, users, list),
            AgentCommand::ProbeRelay(call) if call.from.max(call.to) < ctx.job.size() => {
                self.relays.probe_relay(ctx, call)
            }
            AgentCommand::AddRelayRoute(way) => self.relays.add_route(worlds, way),
            AgentCommand::OpenRendezvous(call) => self.relays.offer_rendezvous(ctx, worlds, call),
            AgentCommand::TryRendezvous(venue) => self.relays.try_rendezvous(ctx, worlds, venue),
            _ => {}
        }
    }

    /// Takes the report of a node's agent that is about networks, at the first agent; others are
    /// ignored.
    pub fn take_report(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        node: u32,
        report: AgentReport,
    ) {
        let relays = &self.relays;
        let users = NetworkUsers { worlds, relays };
        match report {
            AgentReport::ReverseConnect(call) => self.request_reverse_connect(ctx, worlds, call),
            AgentReport::DisableNetwork(network, drained, number) => {
                let by = QueryId { node, number };
                self.drains.set_drained(ctx, users, (network, drained), by)
            }
            AgentReport::Addresses(question, own) => {
                self.drains
                    .take_addresses(ctx, users, node, (question, own))
            }
            AgentReport::NewAddresses(found) => new_networks::add(ctx, users, node, &found),
            AgentReport::RelayOpened(call, port) => {
                self.relays.relay_opened(ctx, worlds, call, (node, port))
            }
            AgentReport::RendezvousOpened(call, port) => {
                self.relays
                    .rendezvous_opened(ctx, worlds, call, (node, port))
            }
            AgentReport::RendezvousReached(venue) => {
                self.relays.rendezvous_reached(ctx, worlds, venue, node)
            }
            _ => {}
        }
    }
}
