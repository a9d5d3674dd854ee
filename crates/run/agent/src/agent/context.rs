//! What every part of the agent may use: the job, the place of this agent in it, the epoll in which
//! it waits, its launcher, and its links to other agents.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use garonne_job::agent_messages::{AgentCommand, AgentReport, NodeEndpoints};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::Job;
use garonne_job::layout::JobId;
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::sys;
use rustix::event::epoll;
use rustix::net::SendFlags;

use super::epoll_token::EpollToken;
use super::tree_links::TreeLinks;

/// Surroundings of the agent, handed to its parts as an argument.
///
/// Owned by [`Agent`](super::Agent), which makes it first and keeps it to the end. Parts read the
/// facts, register descriptors, and send reports and commands; a link that breaks meanwhile is
/// queued in `links`, and the agent takes it from there after each event.
pub(super) struct Context<'a> {
    /// The job that is run.
    pub job: &'a Job,
    /// Identity of the job, which all its agents and ranks name alike.
    pub id: JobId,
    /// Node of this agent; 0 is the launcher's.
    pub node: u32,
    /// Process that started this agent: the launcher, or a process of another launcher.
    pub launcher: i32,
    /// Socket to the launcher; for adopted ranks, to the rank that started this agent.
    pub launcher_socket: &'a OwnedFd,
    /// Signals of this process.
    pub signals: &'a sys::SignalFd,
    /// The epoll in which the agent waits.
    pub epoll: OwnedFd,
    /// Another launcher started the ranks.
    pub is_adopted: bool,
    /// Not all agents are there yet: no rank has been started.
    pub waiting_for_agents: bool,
    /// Links to the agents above and below this one.
    pub links: TreeLinks,
}

impl<'a> Context<'a> {
    /// Makes the surroundings of an agent of node 0 without links to others.
    pub fn new(
        job: &'a Job,
        id: JobId,
        launcher: i32,
        (launcher_socket, signals): (&'a OwnedFd, &'a sys::SignalFd),
    ) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| Error::system(codes::G0209, "cannot make an epoll", error))?;
        Ok(Self {
            job,
            id,
            node: 0,
            launcher,
            launcher_socket,
            signals,
            epoll,
            is_adopted: false,
            waiting_for_agents: false,
            links: TreeLinks::default(),
        })
    }

    /// Has the epoll tell when a descriptor can be read.
    pub fn listen(&self, fd: BorrowedFd<'_>, token: EpollToken) -> Result<()> {
        epoll::add(&self.epoll, fd, token.pack(), epoll::EventFlags::IN)
            .map_err(|error| Error::system(codes::G0209, "cannot watch a descriptor", error))
    }

    /// Whether this agent reports to another one.
    pub fn is_child(&self) -> bool {
        self.links.parent().is_some()
    }

    /// Reports to the first agent. Its end is seen where its orders are read.
    pub fn report(&mut self, report: &AgentReport) {
        self.links.report(&self.epoll, &report.encode());
    }

    /// Sends an order to all other agents: the first does, and one that has lost the way to it to
    /// those below.
    pub fn command_all(&mut self, order: &AgentCommand) {
        self.links.command_all(&self.epoll, order);
    }

    /// Sends an order to the agent of a node below.
    pub fn command(&mut self, node: u32, order: &AgentCommand) {
        self.forward_command(node, order.encode());
    }

    /// Sends an encoded command to a node, through the child that leads there.
    pub fn forward_command(&mut self, node: u32, order: Vec<u8>) {
        let Some(child) = self.job.tree().next_hop(self.node, node) else {
            return;
        };
        let message = match child == node {
            true => order,
            false => AgentCommand::Forward(node, order).encode(),
        };
        self.links.send_to_child(&self.epoll, child, &message);
    }

    /// Bytes that wait to leave towards a node.
    pub fn waiting_for(&self, node: u32) -> usize {
        self.links
            .waiting_for(self.job.tree().next_hop(self.node, node))
    }

    /// Notes that this node is ready, and tells the agent above once all below it are, too.
    pub fn check_in_self(&mut self, own: NodeEndpoints) {
        if let Some(what) = &self.job.shortfall {
            self.report(&AgentReport::Unbound(what.clone()));
        }
        self.links.check_in_self(&self.epoll, self.node, own);
    }

    /// Hands the launcher the connection that leads to the agent of a node from now on.
    pub fn share_connection(&self, node: u32) {
        // What started an agent of adopted ranks is a rank, which has nothing to do with it.
        if self.is_adopted {
            return;
        }
        if let Some(line) = self.links.link_to(node) {
            // One that is stopped, and so takes no more, is no loss: the line ends with this agent,
            // as it would anyway.
            let _ = sys::send(
                self.launcher_socket.as_fd(),
                &LauncherMessage::AgentConnection { node }.encode(),
                &[line.fd()],
                SendFlags::DONTWAIT,
            );
        }
    }
}
