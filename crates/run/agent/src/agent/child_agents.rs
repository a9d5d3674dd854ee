//! The agents that report to this one: their lines, what passes over them in both directions, and
//! their ends.
//!
//! All agents of a job form a tree ([`garonne_job::agent_tree`]); every one but the leaves has
//! this. Children call; nobody calls a child. What the first agent orders goes down, to all or to
//! the one that it is for; what agents report goes up, each step naming the child that it came
//! from, so that nobody speaks for a host that is not below it. An agent obeys as well as passes
//! on, and says that it is done when all below it are. Where a line is lost, the side above reports
//! that to the first agent, and the side below ends what runs there.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use garonne_tcp::Secret;
use garonne_tcp::agent_channel::{self, ChannelLoss, PendingChannels};
use rustix::event::epoll;

use super::agent_link::{AgentLink, LinkLoss};
use super::{Agent, EpollToken};
use crate::remote_agent::AgentOrigin;
use garonne_job::agent_checkin::AgentCheckin;
use garonne_job::agent_messages::{AgentCommand, AgentReport, NodeEndpoints};
use garonne_job::codes;
use garonne_job::error::Result;
use garonne_job::limits;
use garonne_job::node_map::listed;

/// Links to the child agents, and what passes over them. Owned by every agent that is no leaf of
/// the tree.
pub(super) struct ChildAgents {
    listener: PendingChannels,
    /// In the order of nodes.
    children: Vec<ChildAgent>,
    /// Until then those that are to report here may take to call; none: that time is over.
    checkin_deadline: Option<Instant>,
    checkin: AgentCheckin,
    /// The job, encoded as child agents receive it.
    job: Vec<u8>,
    /// Ranks below that have ended, to be told above.
    ended_ranks: Vec<u32>,
    /// When those below were told to end, later by the time for which this agent stood still since.
    end_ordered_at: Option<Instant>,
}

/// Whether an agent that was heard then, and told to end then, is not waited for in a job that has
/// failed: it has had time to answer, and did not.
fn is_hopeless((heard, told): (Instant, Option<Instant>), now: Instant) -> bool {
    told.map_or(heard, |told| told.max(heard)) + limits::FAR_GRACE <= now
}

/// An agent that reports to this one.
struct ChildAgent {
    node: u32,
    trunk: Option<AgentLink>,
    /// The child has reported that nothing runs there any more, or its link is gone.
    done: bool,
}

impl ChildAgent {
    fn new(node: u32, trunk: Option<AgentLink>) -> Self {
        Self {
            node,
            trunk,
            done: false,
        }
    }
}

impl ChildAgents {
    fn child(&mut self, node: u32) -> Option<&mut ChildAgent> {
        let at = self
            .children
            .binary_search_by_key(&node, |branch| branch.node)
            .ok()?;
        self.children.get_mut(at)
    }

    fn open_links(&self) -> impl Iterator<Item = &ChildAgent> {
        self.children.iter().filter(|branch| !branch.done)
    }

    /// All at and below this node are ready.
    pub fn is_ready(&self) -> bool {
        self.checkin.is_complete()
    }

    /// All below this node are ready, and perhaps it itself.
    pub fn others_are_ready(&self) -> bool {
        self.checkin.waits_for_none_but_own()
    }

    /// Nothing runs below, as far as can be known.
    pub fn is_done(&self) -> bool {
        self.open_links().next().is_none()
    }

    /// Nothing more is to be expected of those where something may still run.
    pub fn is_hopeless(&self, now: Instant) -> bool {
        let mut lines = self.open_links().filter_map(|branch| branch.trunk.as_ref());
        lines.all(|trunk| is_hopeless((trunk.heard(), self.end_ordered_at), now))
    }

    /// This agent stood still for so long, in which it could hear nobody.
    pub fn extend_deadlines(&mut self, stood: Duration) {
        self.end_ordered_at = self.end_ordered_at.map(|told| told + stood);
    }

    /// Returns the nodes of child agents that have connected and have not reported their end.
    pub fn nodes(&self) -> Vec<u32> {
        self.open_links().map(|branch| branch.node).collect()
    }

    /// Stops waiting for child agents that have not connected: they will find nobody.
    pub fn forget_absent(&mut self) {
        let absent = self
            .children
            .iter_mut()
            .filter(|branch| branch.trunk.is_none());
        absent.for_each(|branch| branch.done = true);
    }

    /// A host that has joined, with its line.
    pub fn take_endpoints(&mut self, node: u32, trunk: AgentLink) {
        self.children.push(ChildAgent::new(node, Some(trunk)));
    }

    /// Whether a node is known to have an agent that has found its parent.
    pub fn knows(&self, node: u32) -> bool {
        let child = self.children.iter().find(|branch| branch.node == node);
        child.map_or_else(
            || self.checkin.knows(node),
            |branch| branch.trunk.is_some() || branch.done,
        )
    }

    /// The line to one that reports here.
    pub fn link_to(&self, node: u32) -> Option<&AgentLink> {
        let at = self
            .children
            .binary_search_by_key(&node, |branch| branch.node);
        self.children.get(at.ok()?)?.trunk.as_ref()
    }

    /// All lines that there are.
    pub fn links(&self) -> impl Iterator<Item = &AgentLink> {
        self.children
            .iter()
            .filter_map(|branch| branch.trunk.as_ref())
    }

    /// Ranks below that have ended since this was last asked.
    pub fn replace_link(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended_ranks)
    }

    pub fn due(&self) -> Option<Instant> {
        let gather = self.checkin_deadline.filter(|_| !self.is_ready());
        let lines = self.open_links().filter_map(|branch| branch.trunk.as_ref());
        lines.map(AgentLink::due).chain(gather).min()
    }
}

impl Agent<'_> {
    /// Opens the port at which those call that report to this node. They are waited for from now
    /// on.
    pub(super) fn listen_for_children(
        &mut self,
        secret: &Secret,
        listener: TcpListener,
    ) -> Result<()> {
        let tree = self.job.tree();
        let house = agent_channel::house(secret.clone(), self.id.0.to_ne_bytes(), self.node);
        let porch = PendingChannels::new(house, listener);
        self.listen(porch.fd(), EpollToken::AgentListener)?;
        let awaited = |node| ChildAgent::new(node, None);
        self.child_agents = Some(Box::new(ChildAgents {
            listener: porch,
            children: tree.children(self.node).map(awaited).collect(),
            checkin_deadline: Some(Instant::now() + limits::GATHER_WAIT),
            checkin: AgentCheckin::new(tree, self.node),
            job: Vec::new(),
            ended_ranks: Vec::new(),
            end_ordered_at: None,
        }));
        Ok(())
    }

    /// The others have been told where to call: from now on they are waited for.
    pub(super) fn restart_checkin(&mut self) {
        if let Some(below) = &mut self.child_agents {
            below.checkin_deadline = Some(Instant::now() + limits::GATHER_WAIT);
        }
    }

    /// This node is ready.
    pub(super) fn check_in_self(&mut self, own: NodeEndpoints) {
        if let Some(what) = &self.job.shortfall {
            self.report(&AgentReport::Unbound(what.clone()));
        }
        match &mut self.child_agents {
            // Of one's own node, and once.
            Some(below) => drop(below.checkin.check_in(self.node, vec![own])),
            None => self.report(&AgentReport::Ready(vec![own])),
        }
        self.report_ready();
    }

    /// Says above that all at and below this node are ready, once they are.
    fn report_ready(&mut self) {
        if self.child_role.is_some()
            && let Some(below) = &mut self.child_agents
        {
            for seats in below.checkin.unreported() {
                self.report(&AgentReport::Ready(seats));
            }
        }
    }

    /// All hosts of the job, at the first agent, when all are ready.
    pub(super) fn check_in_nodes(&mut self) -> Vec<Vec<NodeEndpoints>> {
        let below = self.child_agents.as_mut();
        below.map_or(Vec::new(), |below| below.checkin.unreported())
    }

    /// Whether a node is known to have an agent that has found its parent.
    pub(super) fn has_connected(&self, node: u32) -> bool {
        self.child_agents
            .as_ref()
            .is_some_and(|below| below.knows(node))
    }

    /// A node that reports to this one is not waited for any more.
    pub(super) fn checkin_failed(&mut self, node: u32) {
        if let Some(branch) = self
            .child_agents
            .as_mut()
            .and_then(|below| below.child(node))
        {
            branch.done = true;
        }
    }

    /// Somebody calls.
    pub(super) fn accept_child(&mut self) {
        let Some(below) = &mut self.child_agents else {
            return;
        };
        let epoll = &self.epoll;
        below.listener.open(&mut |place, socket| {
            epoll::add(
                epoll,
                socket,
                EpollToken::Unauthenticated(place as u32).pack(),
                epoll::EventFlags::IN,
            )
            .is_ok()
        });
    }

    /// Reads more of the handshake of an unauthenticated caller.
    pub(super) fn read_unauthenticated(&mut self, place: u32) {
        let Some(below) = &mut self.child_agents else {
            return;
        };
        let branches = &below.children;
        let expected = |node: u32, turn: u32| {
            let branch = branches
                .iter()
                .find(|branch| branch.node == node && !branch.done)?;
            match &branch.trunk {
                None => (turn == 0).then_some(0),
                Some(trunk) => (turn > trunk.turn()).then(|| trunk.received()),
            }
        };
        let Some(((node, turn), line)) = below.listener.look_again(place as usize, expected) else {
            return;
        };
        if let Some(trunk) = below.child(node).and_then(|branch| branch.trunk.as_mut()) {
            return match turn > trunk.turn() {
                true if trunk.replace_connection(&self.epoll, (line, turn)).is_err() => {
                    self.child_lost(node)
                }
                true => {
                    self.share_connection(node);
                    self.read_child(node);
                }
                false => {}
            };
        }
        let mut trunk = AgentLink::new(line, EpollToken::AgentLink(node), &self.epoll);
        let sent = match self.adopted_role {
            // Its ranks run already, and have told it of the job.
            Some(_) => Ok(()),
            None => self.send_job(&mut trunk),
        };
        let Some(branch) = self
            .child_agents
            .as_mut()
            .and_then(|below| below.child(node))
        else {
            return;
        };
        branch.trunk = Some(trunk);
        self.share_connection(node);
        match sent {
            Ok(()) => self.read_child(node),
            Err(_) => self.child_lost(node),
        }
    }

    /// Tells one who has called what is to be run.
    fn send_job(&mut self, trunk: &mut AgentLink) -> std::result::Result<(), ChannelLoss> {
        if self
            .child_agents
            .as_ref()
            .is_some_and(|below| below.job.is_empty())
        {
            let job = match &self.child_role {
                // As it was told here.
                Some(_) => self.job.clone(),
                None => self.job_for(AgentOrigin::Started),
            };
            let job = AgentCommand::Job(Box::new(job)).encode();
            self.child_agents
                .iter_mut()
                .for_each(|below| below.job.clone_from(&job));
        }
        let job = self
            .child_agents
            .as_ref()
            .map_or(&[][..], |below| &below.job);
        trunk.send(&self.epoll, job)
    }

    /// Messages of one that reports to this agent.
    pub(super) fn read_child(&mut self, node: u32) {
        loop {
            let Some(branch) = self
                .child_agents
                .as_mut()
                .and_then(|below| below.child(node))
            else {
                return;
            };
            let Some(trunk) = branch.trunk.as_mut() else {
                return;
            };
            let _ = trunk.push(&self.epoll);
            let message = match trunk.receive(&self.epoll) {
                Ok(Some(message)) => message,
                Ok(None) if trunk.is_down() => return self.suspect_link(node),
                Ok(None) => return,
                Err(_) => return self.child_lost(node),
            };
            let heard = AgentReport::decode(&message)
                .and_then(|report| self.handle_report(node, report, &message));
            if heard.is_err() {
                return self.child_lost(node);
            }
        }
    }

    /// A report has come from a child: obeyed here if this is the first agent, else passed on, but
    /// for what is between these two.
    fn handle_report(&mut self, child: u32, report: AgentReport, message: &[u8]) -> Result<()> {
        let is_first = self.child_role.is_none();
        match report {
            AgentReport::Ping => {}
            AgentReport::Ready(seats) => {
                if let Some(below) = &mut self.child_agents {
                    below.checkin.check_in(child, seats)?;
                }
                self.report_ready();
            }
            AgentReport::Done => {
                if let Some(branch) = self
                    .child_agents
                    .as_mut()
                    .and_then(|below| below.child(child))
                {
                    branch.done = true;
                }
                self.output_ended_of(child);
            }
            AgentReport::RanksEnded(mut ranks) => {
                let tree = self.job.tree();
                ranks.retain(|rank| tree.is_below(child, self.job.nodes.of(*rank)));
                match (is_first, &mut self.child_agents) {
                    (false, Some(below)) => below.ended_ranks.extend(ranks),
                    _ => self.ended_elsewhere(ranks),
                }
            }
            AgentReport::FromNode(node, inner) => {
                if node == child || !self.job.tree().is_below(child, node) {
                    return Err(garonne_job::rank_messages::malformed(
                        "it speaks for a host that is not its own",
                    ));
                }
                match is_first {
                    true => self.handle_root_report(node, AgentReport::decode(&inner)?),
                    false => self.report_on(message),
                }
            }
            report if is_first => self.handle_root_report(child, report),
            _ => self.report(&AgentReport::FromNode(child, message.to_vec())),
        }
        Ok(())
    }

    /// The line to one that reports to this agent is gone.
    pub(super) fn child_lost(&mut self, node: u32) {
        let Some(branch) = self
            .child_agents
            .as_mut()
            .and_then(|below| below.child(node))
        else {
            return;
        };
        let mut how = LinkLoss::Ended;
        if let Some(trunk) = branch.trunk.take() {
            how = trunk.how_lost();
            trunk.end(&self.epoll);
        }
        if std::mem::replace(&mut branch.done, true) {
            return;
        }
        let was_ready = !self.waiting_for_agents;
        self.output_ended_of(node);
        if !was_ready {
            return self.not_started(node, "the connection to its agent broke at once");
        }
        let more = match self.job.tree().count(node) {
            1 => String::new(),
            2 => String::from("; one host more reports through it"),
            count => format!("; {} hosts more report through it", count - 1),
        };
        let line = self.link_failure(node, &more, how);
        self.fail_as_agent(&line);
    }

    /// Returns the message about an agent whose link was lost; `more` is about the agents below it.
    pub(super) fn link_failure(&self, node: u32, more: &str, how: LinkLoss) -> String {
        let ranks = self.job.ranks_of(node);
        let here = match ranks.len() {
            0 => String::from("no ranks"),
            1 => format!("rank {}", ranks[0]),
            _ => format!("ranks {}", listed(&ranks)),
        };
        let name = self.host_name(node);
        if let (LinkLoss::Ended, Some(stood)) = (how, self.suspension.explains(Instant::now())) {
            return format!(
                "error[{}]: host '{}' stood still for {} s, or its agent was stopped; the agent of host '{name}' ({here}{more}), which waits {} s, has ended what ran there",
                codes::G0245,
                self.host_name(self.node),
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
        match self.child_role.is_some() {
            true if self.shutdown.is_none() => self.report(&AgentReport::Failed {
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

    /// Has a message leave to all that report to this agent, and so to all below.
    pub(super) fn send_to_child(&mut self, message: &[u8]) {
        let Some(below) = &mut self.child_agents else {
            return;
        };
        let mut lost = Vec::new();
        for branch in below.children.iter_mut().filter(|branch| !branch.done) {
            if let Some(trunk) = &mut branch.trunk
                && trunk.send(&self.epoll, message).is_err()
            {
                lost.push(branch.node);
            }
        }
        lost.into_iter().for_each(|node| self.child_lost(node));
    }

    /// Sends an order to all other agents: the first does, and one that has lost the way to it to
    /// those below.
    pub(super) fn command_all(&mut self, order: &AgentCommand) {
        // Else it has come from above, and was passed on as it came.
        if self.child_role.as_ref().is_none_or(|up| up.link.is_none())
            && let Some(below) = &mut self.child_agents
        {
            if matches!(order, AgentCommand::End { .. } | AgentCommand::Finish) {
                below.end_ordered_at.get_or_insert_with(Instant::now);
            }
            self.send_to_child(&order.encode());
        }
    }

    /// Sends an order to the agent of a node below.
    pub(super) fn command(&mut self, node: u32, order: &AgentCommand) {
        self.forward_command(node, order.encode());
    }

    /// Sends an encoded command to a node, through the child that leads there.
    pub(super) fn forward_command(&mut self, node: u32, order: Vec<u8>) {
        let Some(child) = self.job.tree().next_hop(self.node, node) else {
            return;
        };
        let message = match child == node {
            true => order,
            false => AgentCommand::Forward(node, order).encode(),
        };
        let Some(branch) = self
            .child_agents
            .as_mut()
            .and_then(|below| below.child(child))
        else {
            return;
        };
        let trunk = branch.trunk.as_mut();
        let trunk = trunk.filter(|trunk| !trunk.leaves_out(&message));
        let sent = trunk.map(|trunk| trunk.send(&self.epoll, &message));
        if sent.is_some_and(|sent| sent.is_err()) {
            self.child_lost(child);
        }
    }

    /// Bytes that wait to leave towards a node.
    pub(super) fn waiting_for(&mut self, node: u32) -> usize {
        if let Some(up) = &self.child_role {
            return up.link.as_ref().map_or(0, AgentLink::waiting);
        }
        let child = self.job.tree().next_hop(self.node, node);
        let branch = child.and_then(|child| self.child_agents.as_mut()?.child(child));
        branch
            .and_then(|branch| branch.trunk.as_ref())
            .map_or(0, AgentLink::waiting)
    }

    /// Signs of life, and the end of patience.
    pub(super) fn check_children(&mut self, now: Instant) {
        let Some(below) = &mut self.child_agents else {
            return;
        };
        below.listener.keep_time();
        let is_over = |until: &mut Instant| *until <= now;
        let late = !below.is_ready() && below.checkin_deadline.take_if(is_over).is_some();
        let ping = AgentCommand::Ping.encode();
        let mut lost = Vec::new();
        let mut absent = Vec::new();
        for branch in below.children.iter_mut().filter(|branch| !branch.done) {
            let alive = branch
                .trunk
                .as_mut()
                .map(|trunk| trunk.keep_alive(&self.epoll, &ping, now));
            match alive {
                Some(Err(_)) => lost.push(branch.node),
                None if late => absent.push(branch.node),
                _ => {}
            }
        }
        lost.into_iter().for_each(|node| self.child_lost(node));
        for node in absent {
            let after = limits::GATHER_WAIT.as_secs();
            self.not_started(node, &format!("it has not called back within {after} s"));
        }
    }

    /// Names the hosts of which nobody knows whether something still runs there.
    pub(super) fn name_missing_hosts(&mut self) {
        let silent = self
            .child_agents
            .iter()
            .flat_map(|below| below.open_links());
        let silent: Vec<u32> = silent.map(|branch| branch.node).collect();
        for node in silent {
            let name = self.host_name(node).to_owned();
            self.print_line(&format!(
                "error[{}]: host '{name}' does not answer; its agent ends what runs there when it finds itself cut off ({} s at most)",
                codes::G0217,
                limits::AGENT_SILENCE_MAX.as_secs()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_to_end_has_time_to_answer_however_long_ago_it_was_heard() {
        let heard = Instant::now();
        let told = heard + limits::PING_EVERY;
        assert!(!is_hopeless((heard, Some(told)), heard + limits::FAR_GRACE));
        assert!(is_hopeless((heard, Some(told)), told + limits::FAR_GRACE));
        assert!(!is_hopeless((told, Some(heard)), heard + limits::FAR_GRACE));
        assert!(is_hopeless((heard, None), heard + limits::FAR_GRACE));
    }
}
