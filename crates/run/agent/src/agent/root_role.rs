//! The first agent's side of a job on several hosts: has the agents of the others started, hears
//! what they report, and decides.
//!
//! The first agent is the launcher's; it decides alone how the job ends, so that one failure is the
//! first everywhere. It knows the ranks of other hosts by their slots, whose output comes in
//! messages (`output_source`) within a window, and whose end is reported. The lines by which that
//! comes are `child_agents`; the commands that start agents are `remote_start`.

use garonne_job::process_exit::ProcessExit;
use std::collections::BTreeMap;
use std::net::IpAddr;

use garonne_tcp::Secret;

use super::output::StreamKind;
use super::remote_start::RemoteStarts;
use super::{Agent, listen_at};
use crate::join::join_listener::JoinedHosts;
use crate::join::late_join::LateJoinListener;
use garonne_job::agent_checkin::{in_parts, name_apart, table};
use garonne_job::agent_messages::{AgentCommand, HostEndpoint, NodeEndpoints, OutputStream};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::node_map::listed;
use garonne_links::addresses;

/// State of the root agent: the launcher's own, which decides how the job ends.
pub(super) struct RootRole {
    /// The port at which those call that report to this agent.
    port: u16,
    /// The commands that start agents.
    pub(super) remote_starts: RemoteStarts,
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
    /// Notes what the ranks of a node lack of the binding that was asked for.
    pub fn note_unbound(&mut self, what: String, node: u32) {
        self.unbound.entry(what).or_default().push(node);
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
        self.ctx.secret = Some(secret.clone());
        self.root_role = Some(Box::new(RootRole {
            port,
            remote_starts: RemoteStarts::default(),
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

    /// Has the agents started of those that report to a node, which takes calls there.
    pub(super) fn start_child_agents(&mut self, node: u32, at: (u16, Vec<IpAddr>)) -> Result<()> {
        match &mut self.root_role {
            Some(root) => root.remote_starts.start_children(&self.ctx, node, at),
            None => Ok(()),
        }
    }

    /// Keeps what the command that starts an agent writes, for the case that it fails.
    pub(super) fn read_starter_output(&mut self, node: u32) {
        if let Some(root) = &mut self.root_role {
            root.remote_starts.read_output(&self.ctx.epoll, node);
        }
    }

    /// Looks whether commands that start agents have ended: before all agents are ready, that is a
    /// failure.
    pub(super) fn check_starters(&mut self) {
        let Some(root) = &mut self.root_role else {
            return;
        };
        for (node, how) in root.remote_starts.take_ended() {
            self.suspect_link(node);
            if !self.ctx.waiting_for_agents || self.ctx.links.has_connected(node) {
                continue;
            }
            let how = match how {
                ProcessExit::Exit(status) => format!("ended with exit status {status}"),
                ProcessExit::Signal(signal) => format!("was killed by signal {signal}"),
            };
            self.not_started(node, &format!("the command that starts its agent {how}"));
        }
    }

    /// The agent of a node below is not there.
    pub(super) fn not_started(&mut self, node: u32, why: &str) {
        if let Some(below) = self.ctx.links.children_mut() {
            below.set_done(node);
        }
        let root = self.root_role.as_mut();
        let said = root.map_or_else(String::new, |root| {
            root.remote_starts.words_of(&self.ctx.epoll, node)
        });
        let said = match said.is_empty() {
            true => said,
            false => format!("; it said:\n  {}", said.replace('\n', "\n  ")),
        };
        let name = self.ctx.host_name(node);
        let line = format!(
            "error[{}]: no agent on host '{name}': {why}{said}",
            codes::G0216
        );
        self.fail_as_agent(&line);
    }

    /// Stops the commands whose agents have not connected; these would find nobody.
    pub(super) fn stop_unused_starters(&mut self) {
        if let Some(root) = &self.root_role
            && self.ctx.waiting_for_agents
        {
            root.remote_starts
                .stop(|node| !self.ctx.links.has_connected(node));
        }
        if let Some(below) = self.ctx.links.children_mut() {
            below.forget_absent();
        }
    }

    /// Ranks of other hosts have ended.
    pub(super) fn ended_elsewhere(&mut self, ranks: Vec<u32>) {
        let worlds = self.ranks.worlds_mut();
        worlds.mark_ended_elsewhere(&self.ctx, &ranks);
        for rank in &ranks {
            if let Some(slot) = self.ranks.get_mut(*rank) {
                slot.ended.get_or_insert(ProcessExit::Exit(0));
            }
            self.ended_well(*rank);
        }
        if let Some(far) = &mut self.root_role {
            far.ended_ranks.extend(ranks);
        }
    }

    /// Nothing more comes from the ranks of a node and of those below it.
    pub(super) fn output_ended_of(&mut self, node: u32) {
        if self.ctx.is_child() {
            return;
        }
        let tree = self.ctx.job.tree();
        for rank in 0..self.ranks.count() {
            if !tree.is_below(node, self.ranks[rank].node) {
                continue;
            }
            self.ranks[rank]
                .ended
                .get_or_insert(ProcessExit::Signal(libc::SIGKILL));
            for kind in [StreamKind::Out, StreamKind::Err] {
                self.output.feed(&mut self.ctx, kind, rank, &[]);
            }
        }
    }

    /// All agents are there: tells them where everybody is, and to start. Called once.
    pub(super) fn send_start(
        &mut self,
        own: NodeEndpoints,
    ) -> Result<(Vec<HostEndpoint>, Vec<u16>)> {
        self.ctx.check_in_self(own);
        let below = self.ctx.links.children_mut();
        let mut seats = below.map_or(Vec::new(), |below| below.unreported().concat());
        name_apart(&mut seats, &self.ctx.job.nodes);
        let told = table(seats.clone(), &self.ctx.job.nodes)?;
        self.ctx.check_ways(&told.0)?;
        for part in in_parts(seats) {
            self.ctx.command_all(&AgentCommand::Hosts(part));
        }
        self.ctx.command_all(&AgentCommand::StartRanks);
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
            let of_nodes = |rank: &u32| nodes.binary_search(&self.ctx.job.nodes.of(*rank)).is_ok();
            let ranks: Vec<u32> = (0..self.ctx.job.size()).filter(of_nodes).collect();
            let named = nodes
                .iter()
                .take(HOSTS_NAMED)
                .map(|node| self.ctx.host_name(*node));
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
            self.ctx.command_all(&AgentCommand::Ended(ended));
        }
    }
}

pub(super) fn no_secret(error: garonne_engine::api::Error) -> Error {
    Error::resource(
        codes::G0304,
        format!("cannot handle the job's secret: {error:?}"),
    )
}
