//! What every part of the agent may use: the job, the place of this agent in it, the epoll in which
//! it waits, its launcher, and its links to other agents.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use garonne_job::agent_messages::{
    AgentCommand, AgentReport, HostEndpoint, NodeEndpoints, ReverseConnectRequest,
};
use garonne_job::agent_socket_name::AgentSocketName;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::Job;
use garonne_job::layout::JobId;
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::agent_discovery;
use garonne_links::allowed_networks::AllowedNetworks;
use garonne_links::sys;
use garonne_tcp::Secret;
use rustix::event::epoll;
use rustix::net::SendFlags;

use super::epoll_token::EpollToken;
use super::hosts::{self, Hosts};
use super::parent_link::ParentNetworks;
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
    /// Socket that everybody on this host can reach, by which processes and tools find this agent.
    pub registration_socket: OwnedFd,
    /// Signals of this process.
    pub signals: &'a sys::SignalFd,
    /// The epoll in which the agent waits.
    pub epoll: OwnedFd,
    /// Another launcher started the ranks.
    pub is_adopted: bool,
    /// Not all agents are there yet: no rank has been started.
    pub waiting_for_agents: bool,
    /// The job ends: failures do not count any more, and nothing new begins.
    pub is_ending: bool,
    /// Secret of a job whose ranks or agents use TCP.
    pub secret: Option<Secret>,
    /// Hosts of the job, and the networks between them.
    pub hosts: Hosts,
    /// Links to the agents above and below this one.
    pub links: TreeLinks,
}

impl<'a> Context<'a> {
    /// Makes the surroundings of an agent of node 0 without links to others.
    pub fn new(
        job: &'a Job,
        id: JobId,
        launcher: i32,
        registration_socket: OwnedFd,
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
            registration_socket,
            signals,
            epoll,
            is_adopted: false,
            waiting_for_agents: false,
            is_ending: false,
            secret: None,
            hosts: Hosts::default(),
            links: TreeLinks::default(),
        })
    }

    /// Has the epoll tell when a descriptor can be read.
    pub fn listen(&self, fd: BorrowedFd<'_>, token: EpollToken) -> Result<()> {
        epoll::add(&self.epoll, fd, token.pack(), epoll::EventFlags::IN)
            .map_err(|error| Error::system(codes::G0209, "cannot watch a descriptor", error))
    }

    /// Returns the name by which processes of this host find this agent.
    pub fn socket_name(&self) -> Option<AgentSocketName> {
        agent_discovery::name_of(self.registration_socket.as_fd())
    }

    /// Returns whether this agent reports to another one.
    pub fn is_child(&self) -> bool {
        self.links.parent().is_some()
    }

    /// Returns whether a rank, which another process names, runs on this host.
    pub fn is_here(&self, rank: u32) -> bool {
        rank < self.job.size() && self.job.nodes.of(rank) == self.node
    }

    /// Returns the name of a host for messages. The user who started the job has named it; in jobs
    /// of other launchers each host says its own name, once all agents are connected.
    pub fn host_name(&self, node: u32) -> &str {
        let exchanged = self.hosts.exchanged_name(node);
        match exchanged.filter(|_| self.is_adopted) {
            Some(name) => name,
            None => self.job.nodes.name(node),
        }
    }

    /// Returns the names of the hosts, a line each; nothing where there is one, or where they are
    /// too many for a message.
    pub fn host_names(&self) -> String {
        match self.job.nodes.several() {
            true => self.hosts.names(),
            false => String::new(),
        }
    }

    /// Returns the addresses of a node, followed by those that it got since the job began.
    pub fn addresses_now(&self, node: u32) -> Vec<IpAddr> {
        self.hosts.addresses_now(node, self.node)
    }

    /// Returns the nodes of the rank that is to be called and of the one that is to call, which
    /// another agent names. `None`: there are no such ranks.
    pub fn nodes_of(&self, call: ReverseConnectRequest) -> Option<(u32, u32)> {
        let (size, nodes) = (self.job.size(), &self.job.nodes);
        (call.from < size && call.to < size).then(|| (nodes.of(call.from), nodes.of(call.to)))
    }

    /// Returns the networks that the ranks of this host may use, as far as the job knows.
    ///
    /// # Errors
    /// The setting names no networks of this host.
    pub fn allowed_networks(&self) -> Result<AllowedNetworks> {
        match self.is_adopted {
            true => Ok(AllowedNetworks::default()),
            false => hosts::allowed_networks(self.job, self.node),
        }
    }

    /// Checks that the ranks of this host have a way to each other host with ranks.
    ///
    /// # Errors
    /// The networks that they may use leave them no way; to which host.
    pub fn check_ways(&self, endpoints: &[HostEndpoint]) -> Result<()> {
        let networks = self.allowed_networks()?;
        hosts::check_ways(networks, (self.job, self.node), endpoints)
    }

    /// Networks by which the agent above can be called now.
    fn parent_networks(&self) -> ParentNetworks {
        let up = self.links.parent();
        ParentNetworks {
            addresses: up.map_or(Vec::new(), |up| self.addresses_now(up.node())),
            disabled: self.hosts.disabled().to_vec(),
        }
    }

    /// Calls the agent above again where that is due, and no longer where it is not.
    pub fn check_parent_connection(&mut self, now: Instant) {
        let networks = self.parent_networks();
        if let Some(up) = self.links.parent_mut() {
            up.check_connection(&self.epoll, &networks, now);
        }
    }

    /// Takes the link to the agent above off networks that are to be left alone from now on.
    pub fn move_parent_link(&mut self) {
        let networks = self.parent_networks();
        if let Some(up) = self.links.parent_mut() {
            up.change_networks(&self.epoll, &networks, Instant::now());
        }
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
