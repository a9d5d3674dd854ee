//! `garonne network`: networks are taken out of use, and into use again, on all hosts of a running
//! job.
//!
//! An agent that is asked passes the change to the first agent, which keeps the list and sends it
//! to all agents. Each agent writes the list into its host's memory and wakes its ranks. Before the
//! first agent disables a network, it asks all hosts for their networks. A network without which
//! two hosts could not reach each other stays in use (`reach`), and the request is refused. A host
//! that does not answer within [`NETWORK_WAIT`] keeps a network in use; later answers change
//! nothing. Bounded by [`DRAINS_MAX`] questions at a time, here and at the first agent.

use garonne_job::agent_messages::InterfaceAddress;
use garonne_job::settings::ENV_NETWORKS;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ipnet::IpNet;

use super::context::Context;
use super::hosts::ranks_networks;
use super::new_networks::{self, NetworkUsers};
use super::requests::reply;
use garonne_job::agent_messages::{AgentCommand, AgentReport, QueryId};
use garonne_job::codes;
use garonne_job::disabled_networks;
use garonne_job::limits::{DRAINED_MAX, DRAINS_MAX, NETWORK_WAIT};
use garonne_job::rank_messages::ToRank;
use garonne_links::reachability::{self, DisableEffect, HostNetworks};

/// Requests of tools to take networks out of use or into use again, until they are answered.
///
/// Owned by the agent. A tool's request ([`request`](Self::request)) reaches
/// [`set_drained`](Self::set_drained) at the first agent, which asks all hosts for their addresses
/// and decides when the last has answered ([`take_addresses`](Self::take_addresses)). The result
/// goes back to the tool ([`send_result`](Self::send_result)).
#[derive(Debug, Default)]
pub(super) struct DrainRequests {
    /// Tools that have asked this agent, by their numbers.
    clients: VecDeque<(u32, OwnedFd)>,
    /// The number of the last one.
    number: u32,
    /// At the root: requests for which all hosts were asked for their addresses.
    questions: VecDeque<DrainQuestion>,
    /// The number of the last one.
    next_question: u32,
}

#[derive(Debug)]
struct DrainQuestion {
    number: u32,
    network: IpNet,
    by: QueryId,
    since: Instant,
    /// By node.
    answers: BTreeMap<u32, Vec<InterfaceAddress>>,
}

fn too_many() -> String {
    format!("nothing has changed: {DRAINED_MAX} networks are left alone already (garonne network)")
}

impl DrainRequests {
    /// Somebody on this host wants a network to be used or not.
    pub fn request(
        &mut self,
        ctx: &mut Context<'_>,
        users: NetworkUsers<'_>,
        socket: OwnedFd,
        (network, drained): (IpNet, bool),
    ) {
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        self.clients.push_back((number, socket));
        if self.clients.len() > DRAINS_MAX {
            self.clients.pop_front();
        }
        match ctx.is_child() {
            true => ctx.report(&AgentReport::DisableNetwork(network, drained, number)),
            false => {
                let at = ctx.node;
                self.set_drained(ctx, users, (network, drained), QueryId { node: at, number });
            }
        }
    }

    /// A network is to be used or not: for the first agent.
    pub fn set_drained(
        &mut self,
        ctx: &mut Context<'_>,
        users: NetworkUsers<'_>,
        (network, drained): (IpNet, bool),
        by: QueryId,
    ) {
        match drained {
            true if ctx.hosts.disabled().contains(&network) => {
                return self.finish(ctx, by, String::new());
            }
            true if ctx.hosts.disabled().len() >= DRAINED_MAX => {
                return self.finish(ctx, by, too_many());
            }
            true => return self.ask_all_for_addresses(ctx, users, network, by),
            false => {}
        }
        let text = match disabled_networks::covering(ctx.hosts.disabled(), &network) {
            Some(wider) => format!(
                "{network} is in {wider}, which is left alone; nothing has changed: garonne network add {wider} uses all of it"
            ),
            None => {
                let mut left = ctx.hosts.disabled().to_vec();
                left.retain(|out| !network.contains(out));
                // Also where nothing changes but what hosts may have got since.
                send_networks(ctx, users, left);
                String::new()
            }
        };
        self.finish(ctx, by, text);
    }

    /// Has all hosts say what they have.
    fn ask_all_for_addresses(
        &mut self,
        ctx: &mut Context<'_>,
        users: NetworkUsers<'_>,
        network: IpNet,
        by: QueryId,
    ) {
        self.next_question = self.next_question.wrapping_add(1);
        let number = self.next_question;
        // Who has asked so long ago waits no more.
        if self.questions.len() >= DRAINS_MAX {
            self.questions.pop_front();
        }
        self.questions.push_back(DrainQuestion {
            number,
            network,
            by,
            since: Instant::now(),
            answers: BTreeMap::new(),
        });
        ctx.command_all(&AgentCommand::ReportAddresses(number));
        self.report_own_addresses(ctx, users, number);
    }

    /// The first agent wants to know what this host has.
    pub fn report_own_addresses(
        &mut self,
        ctx: &mut Context<'_>,
        users: NetworkUsers<'_>,
        question: u32,
    ) {
        let own = reachability::own(ranks_networks(ctx.job, ctx.node).as_deref());
        match ctx.is_child() {
            true => ctx.report(&AgentReport::Addresses(question, own)),
            false => self.take_addresses(ctx, users, ctx.node, (question, own)),
        }
    }

    /// A host has answered: for the first agent, which decides when all have.
    pub fn take_addresses(
        &mut self,
        ctx: &mut Context<'_>,
        users: NetworkUsers<'_>,
        node: u32,
        (question, own): (u32, Vec<InterfaceAddress>),
    ) {
        let count = ctx.job.nodes.names.len();
        let questions = &mut self.questions;
        let Some(at) = questions.iter().position(|asked| asked.number == question) else {
            return;
        };
        questions[at].answers.insert(node, own);
        if questions[at].answers.len() < count {
            return;
        }
        let Some(asked) = questions.remove(at) else {
            return;
        };
        if Instant::now() > asked.since + NETWORK_WAIT {
            return;
        }
        if ctx.hosts.disabled().len() >= DRAINED_MAX {
            return self.finish(ctx, asked.by, too_many());
        }
        let (network, by) = (asked.network, asked.by);
        let hosts = hosts_of(ctx, asked.answers);
        let text =
            match reachability::loss(&hosts, ctx.hosts.disabled(), &network, by.node as usize) {
                Some(loss) => drain_refusal(ctx, &network, loss, (&hosts, by.node)),
                None => {
                    let mut networks = ctx.hosts.disabled().to_vec();
                    if !networks.contains(&network) {
                        networks.push(network);
                    }
                    send_networks(ctx, users, networks);
                    String::new()
                }
            };
        self.finish(ctx, by, text);
    }

    /// Tells who has asked what became of it; without a word: what was asked for.
    fn finish(&mut self, ctx: &mut Context<'_>, by: QueryId, text: String) {
        match by.node == ctx.node {
            true => self.send_result(by.number, text),
            false => ctx.command(by.node, &AgentCommand::DrainResult(by.number, text)),
        }
    }

    /// Sends the result of a drain request to the tool that asked this agent.
    pub fn send_result(&mut self, number: u32, text: String) {
        let askers = &mut self.clients;
        let at = askers.iter().position(|(known, _)| *known == number);
        let Some((_, socket)) = at.and_then(|at| askers.remove(at)) else {
            return;
        };
        let code = codes::G0232.to_owned();
        let message = match text.is_empty() {
            true => ToRank::Acknowledged,
            false => ToRank::Refused { code, text },
        };
        reply(socket.as_fd(), &message, &[]);
    }
}

/// Tells all agents which networks are not to be used: at the first.
fn send_networks(ctx: &mut Context<'_>, users: NetworkUsers<'_>, networks: Vec<IpNet>) {
    ctx.command_all(&AgentCommand::DisabledNetworks(networks.clone()));
    set_networks(ctx, users, networks);
}

/// Leaves networks alone from now on, as the first agent says.
pub(super) fn set_networks(ctx: &mut Context<'_>, users: NetworkUsers<'_>, networks: Vec<IpNet>) {
    ctx.hosts.set_disabled(networks);
    for world_memory in users.worlds.world_memories() {
        disabled_networks::write(world_memory, ctx.hosts.disabled());
    }
    users.notify(ctx);
    new_networks::find(ctx, users);
    ctx.move_parent_link();
}

/// Hosts with what they have, of their addresses those that the job knows: of such as they have
/// got since each has told before it answered.
fn hosts_of(ctx: &Context<'_>, answers: BTreeMap<u32, Vec<InterfaceAddress>>) -> Vec<HostNetworks> {
    let (places, tree) = (ctx.hosts.endpoints_now(), ctx.job.tree());
    let host = |(node, mut own): (u32, Vec<InterfaceAddress>)| {
        let place = places.get(node as usize);
        own.retain(|own| place.is_some_and(|place| place.addresses.contains(&own.at.addr())));
        HostNetworks {
            home: place.map_or(u64::from(node), |place| place.network_id),
            own,
            above: tree.parent(node).map(|above| above as usize),
        }
    };
    answers.into_iter().map(host).collect()
}

/// Why a network is not left alone.
fn drain_refusal(
    ctx: &Context<'_>,
    network: &IpNet,
    loss: DisableEffect,
    (hosts, asker): (&[HostNetworks], u32),
) -> String {
    let named = |node: usize| format!("host '{}'", ctx.host_name(node as u32));
    let limited = |node: usize| {
        hosts
            .get(node)
            .is_some_and(|host| host.own.iter().any(|own| !own.usable))
    };
    let (what, concerned) = match loss {
        DisableEffect::Last(node) => {
            let whose = match node == asker as usize {
                true => String::from("this host"),
                false => named(node),
            };
            (format!("the last network of {whose} in use"), vec![node])
        }
        DisableEffect::Parted(one, other) => {
            let two = format!(
                "all that {} and {} have in common, and no third host leads between them",
                named(one),
                named(other)
            );
            (two, vec![one, other])
        }
        DisableEffect::Agents(one, other) => {
            let two = format!(
                "all that {} and {} have in common, and the second's agent reports to the first's, which no third host passes on",
                named(one),
                named(other)
            );
            (two, Vec::new())
        }
    };
    let allowed = match concerned.into_iter().any(limited) {
        true => format!(" ({ENV_NETWORKS} forbids others)"),
        false => String::new(),
    };
    format!(
        "{network} is {what}{allowed}; nothing has changed: garonne network add another first, also one that hosts have got since"
    )
}
