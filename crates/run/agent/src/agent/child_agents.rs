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
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use garonne_job::agent_checkin::AgentCheckin;
use garonne_job::agent_messages::{AgentCommand, NodeEndpoints};
use garonne_job::error::Result;
use garonne_job::limits;
use garonne_tcp::Secret;
use garonne_tcp::agent_channel::{self, AgentChannel, ChannelLoss, PendingChannels};
use rustix::event::epoll;

use super::agent_link::{AgentLink, LinkLoss};
use super::context::Context;
use super::epoll_token::EpollToken;

/// Links to the child agents, and what passes over them.
///
/// Owned by [`TreeLinks`](super::tree_links::TreeLinks) in every agent that is no leaf of the tree.
/// [`listen`](Self::listen) makes it, before any child is told where to call. Calls are accepted
/// and read as the epoll tells, [`check`](Self::check) is called when [`due`](Self::due) says so.
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

/// Returns whether an agent that was heard then, and told to end then, is not waited for in a job
/// that has failed: it has had time to answer, and did not.
fn is_hopeless((heard, told): (Instant, Option<Instant>), now: Instant) -> bool {
    told.map_or(heard, |told| told.max(heard)) + limits::REMOTE_GRACE <= now
}

/// Result of a connection to the port of this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildCall {
    /// The caller has not proved who it is, or is nobody.
    Waits,
    /// A child has a connection, its first or a new one.
    Connected(u32),
    /// A child's new connection cannot be used.
    Failed(u32),
}

/// A message of a child, or why there is none.
#[derive(Debug)]
pub(super) enum ChildMessage {
    /// The message.
    Message(Vec<u8>),
    /// There is none at the moment.
    Nothing,
    /// The link has no connection at the moment.
    Broken,
}

/// Children that need something at a check.
#[derive(Debug, Default)]
pub(super) struct CheckedChildren {
    /// Children whose links are over.
    pub lost: Vec<u32>,
    /// Children that have not called in time.
    pub absent: Vec<u32>,
}

/// An agent that reports to this one.
struct ChildAgent {
    node: u32,
    link: Option<AgentLink>,
    /// The child has reported that nothing runs there any more, or its link is gone.
    done: bool,
}

impl ChildAgent {
    fn new(node: u32, link: Option<AgentLink>) -> Self {
        Self {
            node,
            link,
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

    /// Opens the port at which those call that report to `node`. They are waited for from now on.
    ///
    /// # Errors
    /// The listener cannot be watched.
    pub fn listen(ctx: &Context<'_>, secret: &Secret, listener: TcpListener) -> Result<Self> {
        let (tree, node) = (ctx.job.tree(), ctx.node);
        let identity = agent_channel::identity(secret.clone(), ctx.id.0.to_ne_bytes(), node);
        let listener = PendingChannels::new(identity, listener);
        ctx.listen(listener.fd(), EpollToken::AgentListener)?;
        let awaited = |node| ChildAgent::new(node, None);
        Ok(Self {
            listener,
            children: tree.children(node).map(awaited).collect(),
            checkin_deadline: Some(Instant::now() + limits::GATHER_WAIT),
            checkin: AgentCheckin::new(tree, node),
            job: Vec::new(),
            ended_ranks: Vec::new(),
            end_ordered_at: None,
        })
    }

    /// Waits from now on, since the others have been told where to call only now.
    pub fn restart_checkin(&mut self) {
        self.checkin_deadline = Some(Instant::now() + limits::GATHER_WAIT);
    }

    /// Notes that nodes at and below `from`, a child or the own node, are ready.
    ///
    /// # Errors
    /// They are not that one's to report.
    pub fn check_in(&mut self, from: u32, hosts: Vec<NodeEndpoints>) -> Result<()> {
        self.checkin.check_in(from, hosts)
    }

    /// Takes the nodes that are ready and have not been reported, once all at and below this one
    /// are.
    pub fn unreported(&mut self) -> Vec<Vec<NodeEndpoints>> {
        self.checkin.unreported()
    }

    /// Notes that nothing runs at and below a child any more, or that it is not waited for.
    pub fn set_done(&mut self, node: u32) {
        if let Some(branch) = self.child(node) {
            branch.done = true;
        }
    }

    /// Returns whether the link to a child has no connection at the moment.
    pub fn has_broken_link(&self) -> bool {
        self.links().any(AgentLink::is_down)
    }

    /// Notes that those below are told to end.
    pub fn note_end_ordered(&mut self) {
        self.end_ordered_at.get_or_insert_with(Instant::now);
    }

    /// Notes ranks below that have ended, to be told above.
    pub fn add_ended(&mut self, ranks: Vec<u32>) {
        self.ended_ranks.extend(ranks);
    }

    /// Accepts calls.
    pub fn accept(&mut self, epoll: &OwnedFd) {
        self.listener.open(&mut |place, socket| {
            epoll::add(
                epoll,
                socket,
                EpollToken::Unauthenticated(place as u32).pack(),
                epoll::EventFlags::IN,
            )
            .is_ok()
        });
    }

    /// Reads more of the handshake of a caller. Returns the child and the new connection, once it
    /// has proved that it is one.
    fn authenticate(&mut self, place: u32) -> Option<((u32, u32), AgentChannel)> {
        let branches = &self.children;
        let expected = |node: u32, turn: u32| {
            let branch = branches
                .iter()
                .find(|branch| branch.node == node && !branch.done)?;
            match &branch.link {
                None => (turn == 0).then_some(0),
                Some(link) => (turn > link.turn()).then(|| link.received()),
            }
        };
        self.listener.look_again(place as usize, expected)
    }

    /// Reads more of the handshake of an unauthenticated caller, and takes its connection once it
    /// has proved that it is a child. The child is told of the job first, as `job` encodes it.
    pub fn read_unauthenticated(
        &mut self,
        epoll: &OwnedFd,
        place: u32,
        job: impl FnOnce() -> Option<Vec<u8>>,
    ) -> ChildCall {
        let Some(((node, turn), line)) = self.authenticate(place) else {
            return ChildCall::Waits;
        };
        if let Some(link) = self.child(node).and_then(|branch| branch.link.as_mut()) {
            if turn <= link.turn() {
                return ChildCall::Waits;
            }
            return match link.replace_connection(epoll, (line, turn)) {
                Ok(()) => ChildCall::Connected(node),
                Err(_) => ChildCall::Failed(node),
            };
        }
        let mut link = AgentLink::new(line, EpollToken::AgentLink(node), epoll);
        if self.job.is_empty() {
            // Adopted ranks run already, and have told their agent of the job.
            self.job = job().unwrap_or_default();
        }
        let sent = match self.job.is_empty() {
            true => Ok(()),
            false => link.send(epoll, &self.job),
        };
        if let Some(branch) = self.child(node) {
            branch.link = Some(link);
        }
        match sent {
            Ok(()) => ChildCall::Connected(node),
            Err(_) => ChildCall::Failed(node),
        }
    }

    /// Returns the next message of a child.
    ///
    /// # Errors
    /// Its link is over.
    pub fn receive(
        &mut self,
        epoll: &OwnedFd,
        node: u32,
    ) -> std::result::Result<ChildMessage, ChannelLoss> {
        let Some(link) = self.child(node).and_then(|branch| branch.link.as_mut()) else {
            return Ok(ChildMessage::Nothing);
        };
        let _ = link.push(epoll);
        Ok(match link.receive(epoll)? {
            Some(message) => ChildMessage::Message(message),
            None if link.is_down() => ChildMessage::Broken,
            None => ChildMessage::Nothing,
        })
    }

    /// Ends the link to a child. Returns how it was lost, unless the child was done.
    pub fn close(&mut self, epoll: &OwnedFd, node: u32) -> Option<LinkLoss> {
        let branch = self.child(node)?;
        let how = branch.link.take().map_or(LinkLoss::Ended, |link| {
            let how = link.how_lost();
            link.end(epoll);
            how
        });
        (!std::mem::replace(&mut branch.done, true)).then_some(how)
    }

    /// Has a message leave to all children that are not done. Returns those whose link is lost.
    pub fn send_to_all(&mut self, epoll: &OwnedFd, message: &[u8]) -> Vec<u32> {
        let mut lost = Vec::new();
        for branch in self.children.iter_mut().filter(|branch| !branch.done) {
            if let Some(link) = &mut branch.link
                && link.send(epoll, message).is_err()
            {
                lost.push(branch.node);
            }
        }
        lost
    }

    /// Sends a message to a child, unless it can be left out or there is no link.
    ///
    /// # Errors
    /// The link is over.
    pub fn send(
        &mut self,
        epoll: &OwnedFd,
        node: u32,
        message: &[u8],
    ) -> std::result::Result<(), ChannelLoss> {
        let link = self.child(node).and_then(|branch| branch.link.as_mut());
        match link.filter(|link| !link.leaves_out(message)) {
            Some(link) => link.send(epoll, message),
            None => Ok(()),
        }
    }

    /// Gives signs of life, and finds the end of patience.
    pub fn check(&mut self, epoll: &OwnedFd, now: Instant) -> CheckedChildren {
        self.listener.keep_time();
        let is_over = |until: &mut Instant| *until <= now;
        let late = !self.is_ready() && self.checkin_deadline.take_if(is_over).is_some();
        let ping = AgentCommand::Ping.encode();
        let mut checked = CheckedChildren::default();
        for branch in self.children.iter_mut().filter(|branch| !branch.done) {
            let alive = branch
                .link
                .as_mut()
                .map(|link| link.keep_alive(epoll, &ping, now));
            match alive {
                Some(Err(_)) => checked.lost.push(branch.node),
                None if late => checked.absent.push(branch.node),
                _ => {}
            }
        }
        checked
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
        let mut lines = self.open_links().filter_map(|branch| branch.link.as_ref());
        lines.all(|link| is_hopeless((link.heard(), self.end_ordered_at), now))
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
            .filter(|branch| branch.link.is_none());
        absent.for_each(|branch| branch.done = true);
    }

    /// A host that has joined, with its line.
    pub fn take_endpoints(&mut self, node: u32, link: AgentLink) {
        self.children.push(ChildAgent::new(node, Some(link)));
    }

    /// Returns whether a node is known to have an agent that has found its parent.
    pub fn knows(&self, node: u32) -> bool {
        let child = self.children.iter().find(|branch| branch.node == node);
        child.map_or_else(
            || self.checkin.knows(node),
            |branch| branch.link.is_some() || branch.done,
        )
    }

    /// The line to one that reports here.
    pub fn link_to(&self, node: u32) -> Option<&AgentLink> {
        let at = self
            .children
            .binary_search_by_key(&node, |branch| branch.node);
        self.children.get(at.ok()?)?.link.as_ref()
    }

    /// All lines that there are.
    pub fn links(&self) -> impl Iterator<Item = &AgentLink> {
        self.children
            .iter()
            .filter_map(|branch| branch.link.as_ref())
    }

    /// Ranks below that have ended since this was last asked.
    pub fn take_ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended_ranks)
    }

    pub fn due(&self) -> Option<Instant> {
        let gather = self.checkin_deadline.filter(|_| !self.is_ready());
        let lines = self.open_links().filter_map(|branch| branch.link.as_ref());
        lines.map(AgentLink::due).chain(gather).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_to_end_has_time_to_answer_however_long_ago_it_was_heard() {
        let heard = Instant::now();
        let told = heard + limits::PING_EVERY;
        assert!(!is_hopeless(
            (heard, Some(told)),
            heard + limits::REMOTE_GRACE
        ));
        assert!(is_hopeless(
            (heard, Some(told)),
            told + limits::REMOTE_GRACE
        ));
        assert!(!is_hopeless(
            (told, Some(heard)),
            heard + limits::REMOTE_GRACE
        ));
        assert!(is_hopeless((heard, None), heard + limits::REMOTE_GRACE));
    }
}
