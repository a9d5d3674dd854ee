//! Links of an agent in the tree of agents: to the one above it, and to those below.
//!
//! What the first agent orders goes down, to all or to the one that it is for; what agents report
//! goes up. A link is lost in the middle of whatever was to be sent over it. So its loss is queued
//! here, and the agent deals with it after the event at hand ([`TreeLinks::take_lost`]).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use garonne_job::agent_messages::{AgentCommand, AgentReport, NodeEndpoints};
use garonne_job::error::Result;

use super::agent_link::{AgentLink, LinkLoss};
use super::child_agents::ChildAgents;
use super::parent_link::ParentLink;

/// A link that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostLink {
    /// The link to the agent above.
    Parent(LinkLoss),
    /// The link to the agent of a node that reported to this one and had not said that it was done.
    Child(u32, LinkLoss),
}

/// Links to the agents above and below.
///
/// Owned by the agent's [`Context`](super::context::Context). The first agent of a job has no
/// parent, and a leaf of the tree no children. [`set_parent`](Self::set_parent) and
/// [`set_children`](Self::set_children) come first, each at most once; messages may be sent and
/// received from then on, and [`take_lost`](Self::take_lost) after each event.
#[derive(Default)]
pub(super) struct TreeLinks {
    parent: Option<Box<ParentLink>>,
    children: Option<Box<ChildAgents>>,
    lost: VecDeque<LostLink>,
}

impl TreeLinks {
    /// Takes the link to the agent above.
    pub fn set_parent(&mut self, parent: ParentLink) {
        self.parent = Some(Box::new(parent));
    }

    /// Takes the port at which those call that report to this agent.
    pub fn set_children(&mut self, children: ChildAgents) {
        self.children = Some(Box::new(children));
    }

    /// Returns the side of this agent towards the one above; `None` at the first agent.
    pub fn parent(&self) -> Option<&ParentLink> {
        self.parent.as_deref()
    }

    /// Returns the side towards the agent above, to change it.
    pub fn parent_mut(&mut self) -> Option<&mut ParentLink> {
        self.parent.as_deref_mut()
    }

    /// Returns the agents that report to this one; `None` at a leaf.
    pub fn children(&self) -> Option<&ChildAgents> {
        self.children.as_deref()
    }

    /// Returns the agents that report to this one, to change them.
    pub fn children_mut(&mut self) -> Option<&mut ChildAgents> {
        self.children.as_deref_mut()
    }

    /// Takes the link that was lost first and has not been dealt with.
    pub fn take_lost(&mut self) -> Option<LostLink> {
        self.lost.pop_front()
    }

    /// Gives the link to the agent above up.
    pub fn lose_parent(&mut self, epoll: &OwnedFd) {
        let how = self
            .parent
            .as_mut()
            .map_or(LinkLoss::Ended, |up| up.close(epoll));
        self.lost.push_back(LostLink::Parent(how));
    }

    /// Gives the link to the agent of a node below up, which counts as done from now on.
    pub fn lose_child(&mut self, epoll: &OwnedFd, node: u32) {
        let below = self.children.as_mut();
        if let Some(how) = below.and_then(|below| below.close(epoll, node)) {
            self.lost.push_back(LostLink::Child(node, how));
        }
    }

    /// Returns the link to an agent above or below.
    pub fn link_to(&self, node: u32) -> Option<&AgentLink> {
        match self.parent.as_ref().filter(|up| up.node() == node) {
            Some(up) => up.link(),
            None => self.children.as_ref()?.link_to(node),
        }
    }

    /// Tells all agents with a link to this one that it ends.
    pub fn say_end(&self) {
        let up = self.parent.iter().filter_map(|up| up.link());
        let below = self.children.iter().flat_map(|below| below.links());
        up.chain(below).for_each(AgentLink::say_end);
    }

    /// Sends an encoded report to the agent above, if there is a link.
    pub fn report(&mut self, epoll: &OwnedFd, report: &[u8]) {
        if let Some(up) = &mut self.parent
            && up.send(epoll, report).is_err()
        {
            self.lose_parent(epoll);
        }
    }

    /// Has a message leave to all that report to this agent, and so to all below.
    pub fn send_to_children(&mut self, epoll: &OwnedFd, message: &[u8]) {
        let below = self.children.as_mut();
        let lost = below.map_or(Vec::new(), |below| below.send_to_all(epoll, message));
        lost.into_iter()
            .for_each(|node| self.lose_child(epoll, node));
    }

    /// Sends a message to an agent that reports to this one.
    pub fn send_to_child(&mut self, epoll: &OwnedFd, child: u32, message: &[u8]) {
        if let Some(below) = &mut self.children
            && below.send(epoll, child, message).is_err()
        {
            self.lose_child(epoll, child);
        }
    }

    /// Sends an order to all other agents, if this is the first or has lost the way to it.
    pub fn command_all(&mut self, epoll: &OwnedFd, order: &AgentCommand) {
        // Else it has come from above, and was passed on as it came.
        if self.parent.as_ref().is_none_or(|up| up.link().is_none())
            && let Some(below) = &mut self.children
        {
            if matches!(order, AgentCommand::End { .. } | AgentCommand::Finish) {
                below.note_end_ordered();
            }
            self.send_to_children(epoll, &order.encode());
        }
    }

    /// Bytes that wait to leave towards the agent above, or at the first agent towards a child.
    pub fn waiting_for(&self, child: Option<u32>) -> usize {
        let link = match (&self.parent, child) {
            (Some(up), _) => up.link(),
            (None, Some(child)) => self
                .children
                .as_ref()
                .and_then(|below| below.link_to(child)),
            (None, None) => None,
        };
        link.map_or(0, AgentLink::waiting)
    }

    /// Notes that the own node is ready.
    pub fn check_in_self(&mut self, epoll: &OwnedFd, node: u32, own: NodeEndpoints) {
        match &mut self.children {
            // Of one's own node, and once.
            Some(below) => drop(below.check_in(node, vec![own])),
            None => self.report(epoll, &AgentReport::Ready(vec![own]).encode()),
        }
        self.report_ready(epoll);
    }

    /// Notes that nodes at and below a child are ready.
    ///
    /// # Errors
    /// They are not that child's to report.
    pub fn check_in_child(
        &mut self,
        epoll: &OwnedFd,
        child: u32,
        hosts: Vec<NodeEndpoints>,
    ) -> Result<()> {
        if let Some(below) = &mut self.children {
            below.check_in(child, hosts)?;
        }
        self.report_ready(epoll);
        Ok(())
    }

    /// Says above that all at and below this node are ready, once they are.
    fn report_ready(&mut self, epoll: &OwnedFd) {
        if self.parent.is_some()
            && let Some(below) = &mut self.children
        {
            for hosts in below.unreported() {
                self.report(epoll, &AgentReport::Ready(hosts).encode());
            }
        }
    }

    /// Takes the next message of the agent above, and passes on what is for all.
    pub fn receive_command(&mut self, epoll: &OwnedFd) -> Option<AgentCommand> {
        let message = match self.parent.as_mut()?.receive(epoll) {
            Ok(message) => message?,
            Err(_) => {
                self.lose_parent(epoll);
                return None;
            }
        };
        match AgentCommand::decode(&message) {
            Ok(order) => {
                if order.is_for_all() {
                    self.send_to_children(epoll, &message);
                }
                Some(order)
            }
            Err(_) => {
                self.lose_parent(epoll);
                None
            }
        }
    }

    /// Returns whether all agents are there, or have said that they are.
    pub fn are_connected(&self) -> bool {
        match (&self.parent, &self.children) {
            (Some(up), _) => up.has_start_data(),
            // But itself, which is here.
            (None, Some(below)) => below.others_are_ready(),
            _ => true,
        }
    }

    /// Returns whether a node is known to have an agent that has found its parent.
    pub fn has_connected(&self, node: u32) -> bool {
        self.children
            .as_ref()
            .is_some_and(|below| below.knows(node))
    }

    /// Returns whether nothing runs below, as far as can be known.
    pub fn is_done_below(&self) -> bool {
        self.children.as_ref().is_none_or(|below| below.is_done())
    }

    /// Returns when something is to be done about a link without an event.
    pub fn due(&self) -> Option<Instant> {
        let below = self.children.as_ref().and_then(|below| below.due());
        let up = self.parent.as_ref().and_then(|up| up.due());
        below.into_iter().chain(up).min()
    }
}
