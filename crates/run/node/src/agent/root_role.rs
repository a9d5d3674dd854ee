//! The first agent's side of a job on several hosts: has the agents of the others started, hears
//! what they report, and decides.
//!
//! The first agent is the launcher's; it decides alone how the job ends, so that one failure is the
//! first everywhere. It knows the ranks of other hosts by their slots, whose output comes in
//! messages (`output_source`) within a window, and whose end is reported. The lines by which that
//! comes are `below`; the commands that start agents are `remote_start`.

use std::collections::BTreeMap;

use garonne_rails::tcp::Secret;

use super::output::StreamKind;
use super::remote_start::RemoteStart;
use super::{Agent, listen_at};
use crate::addresses;
use crate::agent_checkin::{in_parts, name_apart, table};
use crate::agent_messages::{
    AgentCommand, AgentReport, HostEndpoint, NodeEndpoints, OutputStream, QueryId, RankExit,
};
use crate::codes;
use crate::error::{Error, Result};
use crate::join::join_listener::JoinedHosts;
use crate::join::late_join::LateJoinListener;
use crate::node_map::listed;
use crate::process_tree::ProcessExit;

/// What the first agent has beyond others.
pub(super) struct RootRole {
    secret: Secret,
    /// The port at which those call that report to this agent.
    port: u16,
    /// The commands that start agents.
    pub(super) hired: Vec<RemoteStart>,
    /// Where hosts have joined, if any have.
    pub(super) gate: Option<LateJoinListener>,
    /// Ranks that have ended well, to be told.
    pub(super) ended: Vec<u32>,
    /// Nodes whose ranks are not bound as was asked for, by what is said of it.
    unbound: BTreeMap<String, Vec<u32>>,
}

/// Hosts that one line names.
const HOSTS_NAMED: usize = 4;

pub(super) fn side(kind: StreamKind) -> OutputStream {
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
    pub(super) fn open_far(&mut self) -> Result<(u16, Secret)> {
        let secret = Secret::generate().map_err(no_secret)?;
        let (listener, port) = listen_at(0)?;
        self.open_below(&secret, listener)?;
        self.far = Some(Box::new(RootRole {
            secret: secret.clone(),
            port,
            hired: Vec::new(),
            gate: None,
            ended: Vec::new(),
            unbound: BTreeMap::new(),
        }));
        Ok((port, secret))
    }

    /// Has the agents started that report to this one. Those of hosts that have joined run already.
    pub(super) fn start_branches(&mut self, company: Option<JoinedHosts>) -> Result<()> {
        let (port, _) = self.open_far()?;
        self.start_below(0, (port, addresses::to_call()))?;
        company.map_or(Ok(()), |company| self.seat(company))
    }

    /// What an agent reports, itself or through others.
    pub(super) fn serve_report(&mut self, node: u32, report: AgentReport) {
        match report {
            AgentReport::Output(rank, side, bytes) => {
                if self.is_of(rank, node) {
                    let kind = kind(side);
                    let stream = self.slots[rank as usize].stream_mut(kind);
                    if let Some(source) = &mut stream.source {
                        source.feed(&bytes);
                    }
                    if stream.reading {
                        self.pump(kind, rank);
                    }
                }
            }
            AgentReport::Failed {
                rank,
                code,
                finalized,
                report,
                line,
            } => self.failed_elsewhere(rank, (code, finalized), &report, &line),
            AgentReport::Taken(bytes) => self.input_taken(node, bytes),
            AgentReport::Say(line) => self.say(&line),
            AgentReport::Unbound(what) => {
                if let Some(far) = &mut self.far {
                    far.unbound.entry(what).or_default().push(node);
                }
            }
            AgentReport::Ends(ends) => {
                let is_there = |end: &RankExit| self.is_of(end.rank, node);
                let ends: Vec<_> = ends.into_iter().filter(is_there).collect();
                self.tally.note_elsewhere(ends);
            }
            AgentReport::Call(call) => self.have_called(call),
            AgentReport::Drain(network, drained, number) => {
                self.set_drained(network, drained, QueryId { at: node, number })
            }
            AgentReport::Reach(question, own) => self.hosts_have(node, question, own),
            AgentReport::Added(found) => self.have_addresses(node, &found),
            AgentReport::Look(number, wish) => {
                self.have_all_look(QueryId { at: node, number }, wish)
            }
            AgentReport::Seen(asked, look) => self.pass_look(node, asked, look),
            AgentReport::Passes(call, port) => self.passes(call, (node, port)),
            AgentReport::Meets(call, port) => self.meets(call, (node, port)),
            AgentReport::Reaches(venue) => self.reaches(venue, node),
            AgentReport::Opened(port, addresses) => {
                if let Err(error) = self.start_below(node, (port, addresses)) {
                    self.fail_without_rank(
                        super::exit_log::start_error_code(&error),
                        &error.to_string(),
                    );
                }
            }
            // Between each two only.
            AgentReport::Ready(_)
            | AgentReport::Over(_)
            | AgentReport::Done
            | AgentReport::Of(..)
            | AgentReport::Ping => {}
        }
    }

    /// Ranks of other hosts have ended.
    pub(super) fn over_elsewhere(&mut self, ranks: Vec<u32>) {
        for rank in &ranks {
            if let Some(slot) = self.slots.get_mut(*rank as usize) {
                slot.ended.get_or_insert(ProcessExit::Exit(0));
            }
            self.mark_ended_elsewhere(*rank);
        }
        if let Some(far) = &mut self.far {
            far.ended.extend(ranks);
        }
    }

    /// Whether a started rank is on that node.
    fn is_of(&self, rank: u32, node: u32) -> bool {
        self.slots
            .get(rank as usize)
            .is_some_and(|slot| slot.node == node)
    }

    /// Nothing more comes from the ranks of a node and of those below it.
    pub(super) fn no_more_of(&mut self, node: u32) {
        if self.up.is_some() {
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
                    self.pump(kind, rank);
                }
            }
        }
    }

    /// All agents are there: tells them where everybody is, and to start. Called once.
    pub(super) fn go(&mut self, own: NodeEndpoints) -> Result<(Vec<HostEndpoint>, Vec<u16>)> {
        self.take_own_seat(own);
        let mut seats = self.take_seats().concat();
        name_apart(&mut seats, &self.job.nodes);
        let told = table(seats.clone(), &self.job.nodes)?;
        self.check_ways(&told.0)?;
        for part in in_parts(seats) {
            self.order_all(&AgentCommand::Hosts(part));
        }
        self.order_all(&AgentCommand::Go);
        self.say_unbound();
        Ok(told)
    }

    /// Says on which hosts ranks are not bound as was asked for, once for all of which the same is
    /// true.
    fn say_unbound(&mut self) {
        let unbound = self
            .far
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
            self.say(&format!(
                "garonne run: ranks {} {on} {hosts} {what}",
                listed(&ranks)
            ));
        }
    }

    /// Tells the other agents which ranks have ended.
    pub(super) fn order_ended(&mut self) {
        let ended = self
            .far
            .as_mut()
            .map(|far| std::mem::take(&mut far.ended))
            .unwrap_or_default();
        if !ended.is_empty() {
            self.order_all(&AgentCommand::Ended(ended));
        }
    }
}

pub(super) fn no_secret(error: garonne_engine::api::Error) -> Error {
    Error::resource(
        codes::G0304,
        format!("cannot handle the job's secret: {error:?}"),
    )
}
