//! The first agent's side of a job on several hosts: has the agents of the others started, hears
//! what they report, and decides.
//!
//! The first agent is the launcher's; it decides alone how the job ends, so that one failure is the
//! first everywhere. It knows the ranks of other hosts by their slots, whose output comes in
//! messages (`output_source`) within a window, and whose end is reported. The lines by which that
//! comes are `below`; the commands that start agents are `remote_start`.

use garonne_job::process_exit::ProcessExit;
use std::collections::BTreeMap;

use garonne_tcp::Secret;

use super::output::StreamKind;
use super::remote_start::RemoteStart;
use super::{Agent, listen_at};
use crate::join::join_listener::JoinedHosts;
use crate::join::late_join::LateJoinListener;
use garonne_job::agent_checkin::{in_parts, name_apart, table};
use garonne_job::agent_messages::{
    AgentCommand, AgentReport, HostEndpoint, NodeEndpoints, OutputStream, QueryId, RankExit,
};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::node_map::listed;
use garonne_links::addresses;

/// State of the root agent: the launcher's own, which decides how the job ends.
pub(super) struct RootRole {
    secret: Secret,
    /// The port at which those call that report to this agent.
    port: u16,
    /// The commands that start agents.
    pub(super) remote_starts: Vec<RemoteStart>,
    /// Listener at which hosts have joined, if any have.
    pub(super) late_join: Option<LateJoinListener>,
    /// Ranks that have ended well, to be told.
    pub(super) ended_ranks: Vec<u32>,
    /// Nodes whose ranks are not bound as was asked for, by what is said of it.
    unbound: BTreeMap<String, Vec<u32>>,
}

/// Hosts that one line names.
const HOSTS_NAMED: usize = 4;

pub(super) fn output_stream(kind: StreamKind) -> OutputStream {
    match kind {
        StreamKind::Out => OutputStream::Out,
        StreamKind::Err => OutputStream::Err,
    }
}

pub(super) fn kind(side: OutputStream) -> StreamKind {
    match side {
        OutputStream::Out => StreamKind::Out,
        OutputStream::Err => StreamKind::Err,
    }
}

impl RootRole {
    /// The secret that ranks of several hosts prove to each other.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The port at which those call that report to the first agent.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Agent<'_> {
    /// Opens the port at which agents of other hosts call. Returns it, and the secret that they are
    /// to prove.
    pub(super) fn open_root_role(&mut self) -> Result<(u16, Secret)> {
        let secret = Secret::generate().map_err(no_secret)?;
        let (listener, port) = listen_at(0)?;
        self.listen_for_children(&secret, listener)?;
        self.root_role = Some(Box::new(RootRole {
            secret: secret.clone(),
            port,
            remote_starts: Vec::new(),
            late_join: None,
            ended_ranks: Vec::new(),
            unbound: BTreeMap::new(),
        }));
        Ok((port, secret))
    }

    /// Has the agents started that report to this one. Those of hosts that have joined run already.
    pub(super) fn start_agents(&mut self, company: Option<JoinedHosts>) -> Result<()> {
        let (port, _) = self.open_root_role()?;
        self.start_child_agents(0, (port, addresses::to_call()))?;
        company.map_or(Ok(()), |company| self.joined_host(company))
    }

    /// Handles the report of a node's agent, which may have come through other agents.
    pub(super) fn handle_root_report(&mut self, node: u32, report: AgentReport) {
        match report {
            AgentReport::Output(rank, side, bytes) => {
                if self.is_of(rank, node) {
                    let kind = kind(side);
                    let stream = self.slots[rank as usize].stream_mut(kind);
                    if let Some(source) = &mut stream.source {
                        source.feed(&bytes);
                    }
                    if stream.reading {
                        self.read_output(kind, rank);
                    }
                }
            }
            AgentReport::Failed {
                rank,
                code,
                finalized,
                report,
                line,
            } => self.failed_on_other_host(rank, (code, finalized), &report, &line),
            AgentReport::StdinTaken(bytes) => self.stdin_taken(node, bytes),
            AgentReport::Print(line) => self.print_line(&line),
            AgentReport::Unbound(what) => {
                if let Some(far) = &mut self.root_role {
                    far.unbound.entry(what).or_default().push(node);
                }
            }
            AgentReport::RankExits(ends) => {
                let is_there = |end: &RankExit| self.is_of(end.rank, node);
                let ends: Vec<_> = ends.into_iter().filter(is_there).collect();
                self.exit_log.note_elsewhere(ends);
            }
            AgentReport::ReverseConnect(call) => self.request_reverse_connect(call),
            AgentReport::DisableNetwork(network, drained, number) => {
                self.set_drained(network, drained, QueryId { node, number })
            }
            AgentReport::Addresses(question, own) => self.take_addresses(node, question, own),
            AgentReport::NewAddresses(found) => self.report_new_addresses(node, &found),
            AgentReport::Query(number, wish) => self.query_all(QueryId { node, number }, wish),
            AgentReport::QueryResult(asked, look) => self.forward_snapshot(node, asked, look),
            AgentReport::RelayOpened(call, port) => self.relay_opened(call, (node, port)),
            AgentReport::RendezvousOpened(call, port) => self.rendezvous_opened(call, (node, port)),
            AgentReport::RendezvousReached(venue) => self.rendezvous_reached(venue, node),
            AgentReport::Listening(port, addresses) => {
                if let Err(error) = self.start_child_agents(node, (port, addresses)) {
                    self.fail_without_rank(
                        super::exit_log::start_error_code(&error),
                        &error.to_string(),
                    );
                }
            }
            // Between each two only.
            AgentReport::Ready(_)
            | AgentReport::RanksEnded(_)
            | AgentReport::Done
            | AgentReport::FromNode(..)
            | AgentReport::Ping => {}
        }
    }

    /// Ranks of other hosts have ended.
    pub(super) fn ended_elsewhere(&mut self, ranks: Vec<u32>) {
        for rank in &ranks {
            if let Some(slot) = self.slots.get_mut(*rank as usize) {
                slot.ended.get_or_insert(ProcessExit::Exit(0));
            }
            self.mark_ended_elsewhere(*rank);
        }
        if let Some(far) = &mut self.root_role {
            far.ended_ranks.extend(ranks);
        }
    }

    /// Whether a started rank is on that node.
    fn is_of(&self, rank: u32, node: u32) -> bool {
        self.slots
            .get(rank as usize)
            .is_some_and(|slot| slot.node == node)
    }

    /// Nothing more comes from the ranks of a node and of those below it.
    pub(super) fn output_ended_of(&mut self, node: u32) {
        if self.child_role.is_some() {
            return;
        }
        let tree = self.job.tree();
        for rank in 0..self.slots.len() as u32 {
            if !tree.is_below(node, self.slots[rank as usize].node) {
                continue;
            }
            self.slots[rank as usize]
                .ended
                .get_or_insert(ProcessExit::Signal(libc::SIGKILL));
            for kind in [StreamKind::Out, StreamKind::Err] {
                let stream = self.slots[rank as usize].stream_mut(kind);
                if let Some(source) = &mut stream.source {
                    source.feed(&[]);
                }
                if stream.reading {
                    self.read_output(kind, rank);
                }
            }
        }
    }

    /// All agents are there: tells them where everybody is, and to start. Called once.
    pub(super) fn send_start(
        &mut self,
        own: NodeEndpoints,
    ) -> Result<(Vec<HostEndpoint>, Vec<u16>)> {
        self.check_in_self(own);
        let mut seats = self.check_in_nodes().concat();
        name_apart(&mut seats, &self.job.nodes);
        let told = table(seats.clone(), &self.job.nodes)?;
        self.check_ways(&told.0)?;
        for part in in_parts(seats) {
            self.command_all(&AgentCommand::Hosts(part));
        }
        self.command_all(&AgentCommand::StartRanks);
        self.report_unbound();
        Ok(told)
    }

    /// Says on which hosts ranks are not bound as was asked for, once for all of which the same is
    /// true.
    fn report_unbound(&mut self) {
        let unbound = self
            .root_role
            .as_mut()
            .map(|far| std::mem::take(&mut far.unbound));
        for (what, mut nodes) in unbound.unwrap_or_default() {
            nodes.sort_unstable();
            let of_nodes = |rank: &u32| nodes.binary_search(&self.job.nodes.of(*rank)).is_ok();
            let ranks: Vec<u32> = (0..self.job.size()).filter(of_nodes).collect();
            let named = nodes
                .iter()
                .take(HOSTS_NAMED)
                .map(|node| self.host_name(*node));
            let mut hosts = named.collect::<Vec<_>>().join(",");
            if let more @ 1.. = nodes.len().saturating_sub(HOSTS_NAMED) {
                hosts += &format!(" and {more} more");
            }
            let on = if nodes.len() == 1 {
                "on host"
            } else {
                "on hosts"
            };
            self.print_line(&format!(
                "garonne run: ranks {} {on} {hosts} {what}",
                listed(&ranks)
            ));
        }
    }

    /// Tells the other agents which ranks have ended.
    pub(super) fn announce_ended(&mut self) {
        let ended = self
            .root_role
            .as_mut()
            .map(|far| std::mem::take(&mut far.ended_ranks))
            .unwrap_or_default();
        if !ended.is_empty() {
            self.command_all(&AgentCommand::Ended(ended));
        }
    }
}

pub(super) fn no_secret(error: garonne_engine::api::Error) -> Error {
    Error::resource(
        codes::G0304,
        format!("cannot handle the job's secret: {error:?}"),
    )
}
