//! What the agent does with messages of other agents, and with the ends of its links to them.
//!
//! An agent obeys the orders of the first one and passes on what is for others. Reports of those
//! below it go up, each step naming the child that it came from, so that nobody speaks for a host
//! that is not below it. The first agent decides on them. Where a link is lost, the side above
//! reports that to the first agent, and the side below ends what runs there.

use std::time::Instant;

use garonne_job::agent_messages::{AgentCommand, AgentReport, QueryId, RankExit};
use garonne_job::codes;
use garonne_job::error::Result;
use garonne_job::limits::{self, AGENT_SILENCE_MAX, FINALIZED_GRACE};
use garonne_job::node_map::listed;
use garonne_links::process_tree;
use garonne_tcp::agent_channel::ChannelLoss;

use super::Agent;
use super::agent_link::LinkLoss;
use super::child_agents::{ChildCall, ChildMessage};
use super::joined_hosts::job_for;
use super::parent_link::ReconnectStep;
use super::root_role::kind;
use super::tree_links::LostLink;
use crate::remote_agent::AgentOrigin;

impl Agent<'_> {
    /// Reads orders that have come. Those after the one to start are for ranks that have been
    /// started.
    pub(super) fn read_parent(&mut self) {
        loop {
            let up = self.ctx.links.parent();
            let starts = up.is_some_and(|up| up.has_start_data());
            if starts && self.ctx.waiting_for_agents {
                return;
            }
            match self.ctx.links.receive_command(&self.ctx.epoll) {
                Some(order) => self.handle_command(order),
                None => return,
            }
        }
    }

    fn handle_command(&mut self, order: AgentCommand) {
        let now = Instant::now();
        match order {
            AgentCommand::Hosts(hosts) => {
                if let Some(up) = self.ctx.links.parent_mut() {
                    up.add_hosts(hosts, self.ctx.job.nodes.names.len());
                }
            }
            AgentCommand::StartRanks => {
                let up = self.ctx.links.parent_mut();
                if up.is_some_and(|up| up.start(&self.ctx.job.nodes).is_err()) {
                    self.ctx.links.lose_parent(&self.ctx.epoll);
                }
            }
            AgentCommand::Forward(node, order) => self.ctx.forward_command(node, order),
            AgentCommand::Signal(signal) => self.signalled(signal, false),
            AgentCommand::End {
                patient: true,
                code,
            } => self.end_with_grace(code, now + FINALIZED_GRACE),
            AgentCommand::End {
                patient: false,
                code,
            } if self.is_killing() => self.set_code(code),
            AgentCommand::End {
                patient: false,
                code,
            } => self.terminate(code),
            AgentCommand::Finish => self.end.order_finish(),
            AgentCommand::StreamCredit(rank, side, bytes) => {
                if self.ranks.is_of(rank, self.ctx.node) {
                    let stream = (kind(side), rank);
                    self.output
                        .add_credit(&mut self.ctx, stream, bytes as usize);
                }
            }
            AgentCommand::Input(bytes) => self.stdin.write_stdin(&mut self.ctx, &bytes),
            AgentCommand::Ended(ranks) => self
                .ranks
                .worlds_mut()
                .mark_ended_elsewhere(&self.ctx, &ranks),
            order @ (AgentCommand::ReverseConnect(_)
            | AgentCommand::DisabledNetworks(_)
            | AgentCommand::ReportAddresses(_)
            | AgentCommand::DrainResult(..)
            | AgentCommand::NewAddresses(_)
            | AgentCommand::ProbeRelay(_)
            | AgentCommand::AddRelayRoute(_)
            | AgentCommand::OpenRendezvous(_)
            | AgentCommand::TryRendezvous(_)) => {
                self.networks
                    .take_command(&mut self.ctx, self.ranks.worlds(), order)
            }
            AgentCommand::Query(asked, query) => {
                self.snapshots.take_query(&mut self.ctx, asked, query)
            }
            AgentCommand::QueryResult(node, asked, look) => {
                self.snapshots
                    .forward_snapshot(&mut self.ctx, node, asked, look)
            }
            AgentCommand::RanksDied(ranks) => self.heard_of_deaths(ranks),
            AgentCommand::Decided(decision) => self.tell_decision(decision),
            AgentCommand::Job(_) | AgentCommand::Ping => {}
        }
    }

    /// Deals with links and output that were lost since the last event.
    pub(super) fn handle_losses(&mut self) {
        self.handle_lost_links();
        self.handle_output_loss();
    }

    fn handle_lost_links(&mut self) {
        while let Some(lost) = self.ctx.links.take_lost() {
            match lost {
                LostLink::Parent(how) => self.parent_lost(how),
                LostLink::Child(node, how) => self.child_lost(node, how),
            }
        }
    }

    /// Prints a line of the agent itself.
    pub(super) fn print_line(&mut self, line: &str) {
        self.output.print_line(&mut self.ctx, line);
    }

    /// The line to the first agent is gone: nothing may be left here.
    fn parent_lost(&mut self, how: LinkLoss) {
        match self.ctx.is_adopted {
            true => self.report_lost_parent(how),
            false => self.report_lost_root(how),
        }
        self.end_at_once();
    }

    /// Reads more of the handshake of a caller, which may be a child.
    pub(super) fn read_unauthenticated(&mut self, place: u32) {
        let (job, is_child, is_adopted) = (self.ctx.job, self.ctx.is_child(), self.ctx.is_adopted);
        let encoded = || {
            let told = match is_child {
                // As it was told here.
                true => job.clone(),
                false => job_for(job, AgentOrigin::Started),
            };
            (!is_adopted).then(|| AgentCommand::Job(Box::new(told)).encode())
        };
        let Some(below) = self.ctx.links.children_mut() else {
            return;
        };
        match below.read_unauthenticated(&self.ctx.epoll, place, encoded) {
            ChildCall::Waits => {}
            ChildCall::Connected(node) => {
                self.ctx.share_connection(node);
                self.read_child(node);
            }
            ChildCall::Failed(node) => self.ctx.links.lose_child(&self.ctx.epoll, node),
        }
    }

    /// Accepts calls of those that report to this agent.
    pub(super) fn accept_child(&mut self) {
        if let Some(below) = self.ctx.links.children_mut() {
            below.accept(&self.ctx.epoll);
        }
    }

    /// Reads messages of one that reports to this agent.
    pub(super) fn read_child(&mut self, node: u32) {
        loop {
            let Some(below) = self.ctx.links.children_mut() else {
                return;
            };
            let message = match below.receive(&self.ctx.epoll, node) {
                Ok(ChildMessage::Message(message)) => message,
                Ok(ChildMessage::Nothing) => return,
                Ok(ChildMessage::Broken) => return self.suspect_link(node),
                Err(_) => return self.ctx.links.lose_child(&self.ctx.epoll, node),
            };
            let heard = AgentReport::decode(&message)
                .and_then(|report| self.handle_report(node, report, &message));
            if heard.is_err() {
                return self.ctx.links.lose_child(&self.ctx.epoll, node);
            }
        }
    }

    /// A report has come from a child: obeyed here if this is the first agent, else passed on, but
    /// for what is between these two.
    fn handle_report(&mut self, child: u32, report: AgentReport, message: &[u8]) -> Result<()> {
        let is_first = !self.ctx.is_child();
        match report {
            AgentReport::Ping => {}
            AgentReport::Ready(hosts) => {
                self.ctx
                    .links
                    .check_in_child(&self.ctx.epoll, child, hosts)?;
            }
            AgentReport::Done => {
                if let Some(below) = self.ctx.links.children_mut() {
                    below.set_done(child);
                }
                self.output_ended_of(child);
            }
            AgentReport::RanksEnded(mut ranks) => {
                let tree = self.ctx.job.tree();
                ranks.retain(|rank| tree.is_below(child, self.ctx.job.nodes.of(*rank)));
                match (is_first, self.ctx.links.children_mut()) {
                    (false, Some(below)) => below.add_ended(ranks),
                    _ => self.ended_elsewhere(ranks),
                }
            }
            AgentReport::FromNode(node, inner) => {
                if node == child || !self.ctx.job.tree().is_below(child, node) {
                    return Err(garonne_job::rank_messages::malformed(
                        "it speaks for a host that is not its own",
                    ));
                }
                match is_first {
                    true => self.handle_root_report(node, AgentReport::decode(&inner)?),
                    false => self.ctx.links.report(&self.ctx.epoll, message),
                }
            }
            report if is_first => self.handle_root_report(child, report),
            _ => self
                .ctx
                .report(&AgentReport::FromNode(child, message.to_vec())),
        }
        Ok(())
    }

    /// Handles the report of a node's agent, which may have come through other agents.
    pub(super) fn handle_root_report(&mut self, node: u32, report: AgentReport) {
        match report {
            AgentReport::Output(rank, side, bytes) => {
                if self.ranks.is_of(rank, node) {
                    self.output.feed(&mut self.ctx, kind(side), rank, &bytes);
                }
            }
            AgentReport::Failed {
                rank,
                code,
                finalized,
                report,
                line,
            } => self.failed_on_other_host(rank, (code, finalized), &report, &line),
            AgentReport::StdinTaken(bytes) => self.stdin.stdin_taken(&mut self.ctx, node, bytes),
            AgentReport::RankDied(rank, code, report, line) => {
                if self.ranks.is_of(rank, node) {
                    self.output.drain(&mut self.ctx, rank);
                    self.rank_died(rank, code, &report, &line);
                }
            }
            AgentReport::Agree(rank, given) => {
                if self.ranks.is_of(rank, node) {
                    self.contribution(rank, given);
                }
            }
            AgentReport::Print(line) => self.print_line(&line),
            AgentReport::Unbound(what) => {
                if let Some(far) = &mut self.root_role {
                    far.note_unbound(what, node);
                }
            }
            AgentReport::RankExits(ends) => {
                let is_there = |end: &RankExit| self.ranks.is_of(end.rank, node);
                let ends: Vec<_> = ends.into_iter().filter(is_there).collect();
                self.exit_log.note_elsewhere(ends);
            }
            report @ (AgentReport::ReverseConnect(_)
            | AgentReport::DisableNetwork(..)
            | AgentReport::Addresses(..)
            | AgentReport::NewAddresses(_)
            | AgentReport::RelayOpened(..)
            | AgentReport::RendezvousOpened(..)
            | AgentReport::RendezvousReached(_)) => {
                self.networks
                    .take_report(&mut self.ctx, self.ranks.worlds(), node, report)
            }
            AgentReport::Query(number, query) => {
                self.snapshots
                    .query_all(&mut self.ctx, QueryId { node, number }, query)
            }
            AgentReport::QueryResult(asked, look) => {
                self.snapshots
                    .forward_snapshot(&mut self.ctx, node, asked, look)
            }
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

    /// The link to one that reported to this agent, and was not done, is gone.
    fn child_lost(&mut self, node: u32, how: LinkLoss) {
        let was_ready = !self.ctx.waiting_for_agents;
        self.output_ended_of(node);
        if !was_ready {
            return self.not_started(node, "the connection to its agent broke at once");
        }
        let more = match self.ctx.job.tree().count(node) {
            1 => String::new(),
            2 => String::from("; one host more reports through it"),
            count => format!("; {} hosts more report through it", count - 1),
        };
        let line = self.link_failure(node, &more, how);
        self.fail_as_agent(&line);
    }

    /// Returns the message about an agent whose link was lost; `more` is about the agents below it.
    pub(super) fn link_failure(&self, node: u32, more: &str, how: LinkLoss) -> String {
        let ranks = self.ctx.job.ranks_of(node);
        let here = match ranks.len() {
            0 => String::from("no ranks"),
            1 => format!("rank {}", ranks[0]),
            _ => format!("ranks {}", listed(&ranks)),
        };
        let name = self.ctx.host_name(node);
        if let (LinkLoss::Ended, Some(stood)) = (how, self.suspension.explains(Instant::now())) {
            return format!(
                "error[{}]: host '{}' stood still for {} s, or its agent was stopped; the agent of host '{name}' ({here}{more}), which waits {} s, has ended what ran there",
                codes::G0245,
                self.ctx.host_name(self.ctx.node),
                stood.as_secs(),
                limits::AGENT_SILENCE_MAX.as_secs(),
            );
        }
        format!(
            "error[{}]: the connection to host '{name}' ({here}{more}) broke: {how}",
            codes::G0217
        )
    }

    /// Something fails that is no rank's: ends the job, if this is the first agent, or has it end
    /// the job.
    pub(super) fn fail_as_agent(&mut self, line: &str) {
        match self.ctx.is_child() {
            true if !self.ctx.is_ending => self.ctx.report(&AgentReport::Failed {
                rank: None,
                code: 1,
                finalized: false,
                report: String::new(),
                line: line.to_owned(),
            }),
            true => {}
            false => self.fail_without_rank(1, line),
        }
    }

    /// Gives signs of life to the agents below, and finds the end of patience.
    pub(super) fn check_children(&mut self, now: Instant) {
        let Some(below) = self.ctx.links.children_mut() else {
            return;
        };
        let checked = below.check(&self.ctx.epoll, now);
        for node in checked.lost {
            self.ctx.links.lose_child(&self.ctx.epoll, node);
        }
        self.handle_lost_links();
        for node in checked.absent {
            let after = limits::GATHER_WAIT.as_secs();
            self.not_started(node, &format!("it has not called back within {after} s"));
        }
    }

    /// Names the hosts of which nobody knows whether something still runs there.
    pub(super) fn name_missing_hosts(&mut self) {
        let below = self.ctx.links.children();
        for node in below.map_or(Vec::new(), |below| below.nodes()) {
            let name = self.ctx.host_name(node).to_owned();
            self.print_line(&format!(
                "error[{}]: host '{name}' does not answer; its agent ends what runs there when it finds itself cut off ({} s at most)",
                codes::G0217,
                limits::AGENT_SILENCE_MAX.as_secs()
            ));
        }
    }

    /// Tells the other agents of ranks that have ended here since this was last done.
    pub(super) fn report_ends(&mut self) {
        if !self.ctx.job.nodes.several() {
            return;
        }
        let mut over = self.ranks.all_ended_here(&self.ctx);
        over.iter()
            .for_each(|rank| self.ranks[*rank].end_reported = true);
        match &mut self.root_role {
            Some(far) => far.ended_ranks.extend(over),
            None => {
                if let Some(below) = self.ctx.links.children_mut() {
                    over.extend(below.take_ended());
                }
                if !over.is_empty() {
                    self.ctx.report(&AgentReport::RanksEnded(over));
                }
            }
        }
        self.announce_ended();
    }

    /// The last message: nothing runs here any more. Waits until it has left, or the first agent is
    /// gone.
    pub(super) fn report_done(&mut self) {
        process_tree::kill_all();
        self.report_ends();
        // An adopted job has no launcher to which it would be told.
        if !self.ctx.is_adopted {
            let ends = self.exit_log.ends_here(&self.ctx, &self.ranks);
            self.ctx.report(&AgentReport::RankExits(ends));
        }
        self.ctx.report(&AgentReport::Done);
        let until = Instant::now() + AGENT_SILENCE_MAX;
        while Instant::now() < until
            && let Some(up) = self.ctx.links.parent_mut()
        {
            match up.push(&self.ctx.epoll) {
                Ok(true) | Err(ChannelLoss::Over) => return,
                Ok(false) => {}
                // Nobody waits for the epoll any more.
                Err(ChannelLoss::Broke) if up.receive(&self.ctx.epoll).is_ok() => {
                    self.reconnect_now()
                }
                Err(ChannelLoss::Broke) => return,
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Passes on unfinished lines, gives a sign of life to the agent above, and finds the end of
    /// patience.
    pub(super) fn check_parent(&mut self, now: Instant) {
        if !self.ctx.is_child() {
            return;
        }
        self.output.check_unfinished(&mut self.ctx, now);
        let up = self.ctx.links.parent_mut();
        if up.is_some_and(|up| up.check(&self.ctx.epoll, now).is_err()) {
            return self.ctx.links.lose_parent(&self.ctx.epoll);
        }
        self.ctx.check_parent_connection(now);
    }

    /// Connects to the parent again where no epoll tells when a socket is ready.
    fn reconnect_now(&mut self) {
        self.ctx.check_parent_connection(Instant::now());
        let calls = self.ctx.links.parent().map_or(0, |up| up.calls());
        (0..calls).for_each(|place| self.reconnect_ready(place));
    }

    /// Goes on with a call to the agent above.
    pub(super) fn reconnect_ready(&mut self, place: u32) {
        let Some(up) = self.ctx.links.parent_mut() else {
            return;
        };
        match up.connection_ready(&self.ctx.epoll, place) {
            ReconnectStep::Nothing => {}
            ReconnectStep::Renewed => {
                let parent = up.node();
                self.ctx.share_connection(parent);
                self.read_parent();
            }
            ReconnectStep::Lost => self.ctx.links.lose_parent(&self.ctx.epoll),
        }
    }
}
