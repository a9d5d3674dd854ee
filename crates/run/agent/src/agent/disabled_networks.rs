//! `garonne network`: networks are taken out of use, and into use again, on all hosts of a running
//! job.
//!
//! Whoever is asked passes the change to the first agent, which keeps the list, and tells all; each
//! agent writes it into its own board and rings its ranks. Before the first leaves a network alone
//! it asks all hosts what they have, and leaves be what would part two of them (`reach`); who has
//! asked is told. A host that does not answer keeps a network in use: who asks waits
//! [`NETWORK_WAIT`], and what is answered later changes nothing. Bounded by [`DRAINS_MAX`]
//! questions at a time, here and at the first.

use garonne_job::agent_messages::InterfaceAddress;
use garonne_job::settings::ENV_NETWORKS;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use garonne_sync::doorbell::Doorbell;
use ipnet::IpNet;

use super::Agent;
use super::requests::reply;
use garonne_job::agent_messages::{AgentCommand, AgentReport, QueryId};
use garonne_job::codes;
use garonne_job::disabled_networks;
use garonne_job::layout::{RankBlock, RankState};
use garonne_job::limits::{DRAINED_MAX, DRAINS_MAX, NETWORK_WAIT};
use garonne_job::rank_messages::ToRank;
use garonne_links::reachability::{self, DisableEffect, HostNetworks};

/// Requests of tools to take networks out of use or into use again, until they are answered.
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

impl Agent<'_> {
    /// Somebody on this host wants a network to be used or not.
    pub(super) fn request_drain(&mut self, socket: OwnedFd, network: IpNet, drained: bool) {
        self.drain_requests.number = self.drain_requests.number.wrapping_add(1);
        let number = self.drain_requests.number;
        self.drain_requests.clients.push_back((number, socket));
        if self.drain_requests.clients.len() > DRAINS_MAX {
            self.drain_requests.clients.pop_front();
        }
        match self.ctx.is_child() {
            true => self
                .ctx
                .report(&AgentReport::DisableNetwork(network, drained, number)),
            false => {
                let at = self.ctx.node;
                self.set_drained(network, drained, QueryId { node: at, number });
            }
        }
    }

    /// A network is to be used or not: for the first agent.
    pub(super) fn set_drained(&mut self, network: IpNet, drained: bool, by: QueryId) {
        match drained {
            true if self.disabled_networks.contains(&network) => {
                return self.finish_drain(by, String::new());
            }
            true if self.disabled_networks.len() >= DRAINED_MAX => {
                return self.finish_drain(by, too_many());
            }
            true => return self.ask_all_for_addresses(network, by),
            false => {}
        }
        let text = match disabled_networks::covering(&self.disabled_networks, &network) {
            Some(wider) => format!(
                "{network} is in {wider}, which is left alone; nothing has changed: garonne network add {wider} uses all of it"
            ),
            None => {
                self.disabled_networks.retain(|out| !network.contains(out));
                // Also where nothing changes but what hosts may have got since.
                self.send_disabled_networks();
                String::new()
            }
        };
        self.finish_drain(by, text);
    }

    /// Has all hosts say what they have.
    fn ask_all_for_addresses(&mut self, network: IpNet, by: QueryId) {
        self.drain_requests.next_question = self.drain_requests.next_question.wrapping_add(1);
        let number = self.drain_requests.next_question;
        // Who has asked so long ago waits no more.
        if self.drain_requests.questions.len() >= DRAINS_MAX {
            self.drain_requests.questions.pop_front();
        }
        self.drain_requests.questions.push_back(DrainQuestion {
            number,
            network,
            by,
            since: Instant::now(),
            answers: BTreeMap::new(),
        });
        self.ctx.command_all(&AgentCommand::ReportAddresses(number));
        self.report_own_addresses(number);
    }

    /// The first agent wants to know what this host has.
    pub(super) fn report_own_addresses(&mut self, question: u32) {
        let own = reachability::own(self.ranks_networks().as_deref());
        match self.ctx.is_child() {
            true => self.ctx.report(&AgentReport::Addresses(question, own)),
            false => self.take_addresses(self.ctx.node, question, own),
        }
    }

    /// Returns the value of `GARONNE_NETWORKS` for the ranks of this host, as far as the job knows
    /// it: those of another launcher's have it from where the agent has its own.
    pub(super) fn ranks_networks(&self) -> Option<String> {
        let first = self
            .ctx
            .job
            .ranks_of(self.ctx.node)
            .first()
            .copied()
            .unwrap_or(0);
        let program = self.ctx.job.program_of_rank().get(first as usize).copied();
        let program = program.and_then(|program| self.ctx.job.programs.get(program));
        let changed =
            program.and_then(|program| program.env.iter().rfind(|(name, _)| name == ENV_NETWORKS));
        let said = match (changed, &self.ctx.job.env) {
            (Some((_, said)), _) => said.clone(),
            (None, Some(all)) => all
                .iter()
                .rfind(|(name, _)| name == ENV_NETWORKS)
                .map(|(_, said)| said.clone()),
            (None, None) => std::env::var_os(ENV_NETWORKS),
        };
        said.map(|said| said.to_string_lossy().into_owned())
    }

    /// A host has answered: for the first agent, which decides when all have.
    pub(super) fn take_addresses(&mut self, node: u32, question: u32, own: Vec<InterfaceAddress>) {
        let count = self.ctx.job.nodes.names.len();
        let questions = &mut self.drain_requests.questions;
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
        if self.disabled_networks.len() >= DRAINED_MAX {
            return self.finish_drain(asked.by, too_many());
        }
        let (network, by) = (asked.network, asked.by);
        let hosts = self.hosts_of(asked.answers);
        let text =
            match reachability::loss(&hosts, &self.disabled_networks, &network, by.node as usize) {
                Some(loss) => self.drain_refusal(&network, loss, (&hosts, by.node)),
                None => {
                    if !self.disabled_networks.contains(&network) {
                        self.disabled_networks.push(network);
                    }
                    self.send_disabled_networks();
                    String::new()
                }
            };
        self.finish_drain(by, text);
    }

    /// Hosts with what they have, of their addresses those that the job knows: of such as they have
    /// got since each has told before it answered.
    fn hosts_of(&self, answers: BTreeMap<u32, Vec<InterfaceAddress>>) -> Vec<HostNetworks> {
        let (places, tree) = (self.endpoints_now(), self.ctx.job.tree());
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
        &self,
        network: &IpNet,
        loss: DisableEffect,
        (hosts, asker): (&[HostNetworks], u32),
    ) -> String {
        let named = |node: usize| format!("host '{}'", self.host_name(node as u32));
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

    /// Tells who has asked what became of it; without a word: what was asked for.
    fn finish_drain(&mut self, by: QueryId, text: String) {
        match by.node == self.ctx.node {
            true => self.send_drain_result(by.number, text),
            false => self
                .ctx
                .command(by.node, &AgentCommand::DrainResult(by.number, text)),
        }
    }

    /// Sends the result of a drain request to the tool that asked this agent.
    pub(super) fn send_drain_result(&mut self, number: u32, text: String) {
        let askers = &mut self.drain_requests.clients;
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

    fn send_disabled_networks(&mut self) {
        let order = AgentCommand::DisabledNetworks(self.disabled_networks.clone());
        self.ctx.command_all(&order);
        self.set_disabled_networks(self.disabled_networks.clone());
    }

    /// The first agent says which networks are not to be used.
    pub(super) fn set_disabled_networks(&mut self, networks: Vec<IpNet>) {
        self.disabled_networks = networks;
        self.publish_disabled_networks();
        self.find_new_addresses();
        self.move_link();
    }

    fn publish_disabled_networks(&self) {
        for world in &self.worlds {
            disabled_networks::write(&world.board, &self.disabled_networks);
        }
        self.update_host_endpoints();
        self.wake_ranks();
    }

    /// Has the ranks of this host look at what was changed on their boards.
    pub(super) fn wake_ranks(&self) {
        for world in &self.worlds {
            for rank in 0..world.shape.size {
                let card = RankBlock::of(&world.board, rank);
                if self.is_here(rank) && card.state() == RankState::Running {
                    Doorbell::new(card.doorbell()).ring_fenced();
                }
            }
        }
    }
}
