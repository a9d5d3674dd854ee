//! Hosts that have joined a job with a key, as its agents see them: the first hands each its
//! bootstrap message on the line that it has made, and tells latecomers so; the agent of such a
//! host says to whoever joined why it ends.

use garonne_job::join_messages::ToJoiner;
use std::ffi::OsString;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use garonne_tcp::Secret;
use garonne_tcp::agent_channel::AgentChannel;
use rustix::event::epoll;

use super::agent_link::{AgentLink, LinkLoss};
use super::output::{OutputSink, StreamKind};
use super::remote_start::bootstrap_for;
use super::{Agent, EpollToken, rank_start};
use crate::join::join_listener::JoinedHosts;
use crate::join::late_join::LateJoinListener;
use crate::remote_agent::AgentOrigin;
use garonne_job::agent_messages::AgentCommand;
use garonne_job::codes;
use garonne_job::error::Result;
use garonne_job::job::Job;
use garonne_job::layout::JobId;

/// Way in which an agent begins.
#[derive(Debug)]
pub(crate) enum AgentStart {
    /// Nothing: it is the first, or the only one.
    Plain,
    /// The agent is the root, and these hosts have joined.
    Joined(Box<JoinedHosts>),
    /// The agent is that of another host than the launcher's.
    Outer(Box<RootConnection>),
}

impl AgentStart {
    /// Returns the connection to the root, for the agent of another host.
    pub fn outer(&self) -> Option<&RootConnection> {
        match self {
            AgentStart::Outer(outer) => Some(outer),
            _ => None,
        }
    }
}

/// The line of an agent to the first one, and what it is there.
#[derive(Debug)]
pub(crate) struct RootConnection {
    /// The job, which all its agents and ranks name alike.
    pub job: JobId,
    /// Node of this agent.
    pub node: u32,
    /// The job's secret.
    pub secret: Secret,
    /// The line, to the agent above.
    pub line: AgentChannel,
    /// Node of the parent.
    pub parent: u32,
    /// The address at which it was made.
    pub reached: IpAddr,
    /// Port of the parent's listener.
    pub port: u16,
    /// The host has joined with a key.
    pub guest: bool,
    /// Listener for child agents, if they know its port already.
    pub child_listener: Option<TcpListener>,
}

impl Agent<'_> {
    /// Makes the hosts that have joined the last nodes of the job.
    pub(super) fn joined_host(&mut self, company: JoinedHosts) -> Result<()> {
        let port = self.root_role.as_ref().map(|far| far.port());
        let Some((port, secret)) = port.zip(self.ctx.secret.clone()) else {
            return Ok(());
        };
        let joined = company.guests.len();
        let first = self.ctx.job.nodes.names.len() - joined;
        let job = AgentCommand::Job(Box::new(job_for(self.ctx.job, AgentOrigin::Joined))).encode();
        let mut lost = Vec::new();
        for ((_, line), node) in company.guests.into_iter().zip(first as u32..) {
            let bootstrap = bootstrap_for(&self.ctx, node, secret.clone(), (port, Vec::new()));
            let mut trunk = AgentLink::new(line, EpollToken::AgentLink(node), &self.ctx.epoll);
            let bootstrap = ToJoiner::Bootstrap(Box::new(bootstrap)).encode();
            let sent = trunk.send(&self.ctx.epoll, &bootstrap);
            let sent = sent.and_then(|()| trunk.send(&self.ctx.epoll, &job));
            if let Some(below) = self.ctx.links.children_mut() {
                below.take_endpoints(node, trunk);
            }
            self.ctx.share_connection(node);
            if sent.is_err() {
                lost.push(node);
            }
        }
        // All are known before the job ends for one of them, so that the others are told.
        for node in lost {
            self.ctx.links.lose_child(&self.ctx.epoll, node);
        }
        let epoll = &self.ctx.epoll;
        let gate = LateJoinListener::new(
            (company.child_listener, company.told),
            joined,
            &mut |place, socket| watch_late(epoll, place, socket),
        );
        self.ctx.listen(gate.fd(), EpollToken::LateJoin)?;
        if let Some(far) = &mut self.root_role {
            far.late_join = Some(gate);
        }
        Ok(())
    }

    /// Somebody calls where hosts have joined.
    pub(super) fn accept_late_join(&mut self) {
        let epoll = &self.ctx.epoll;
        if let Some(gate) = self
            .root_role
            .as_mut()
            .and_then(|far| far.late_join.as_mut())
        {
            gate.open(&mut |place, socket| watch_late(epoll, place, socket));
        }
    }

    /// Sends those away who do not go.
    pub(super) fn check_late_join(&mut self, now: Instant) {
        if let Some(gate) = self
            .root_role
            .as_mut()
            .and_then(|far| far.late_join.as_mut())
        {
            gate.check_timeouts(now);
        }
    }

    /// Reads more from a host that came too late.
    pub(super) fn read_late_joiner(&mut self, place: u32) {
        let epoll = &self.ctx.epoll;
        if let Some(gate) = self
            .root_role
            .as_mut()
            .and_then(|far| far.late_join.as_mut())
        {
            gate.check_timeouts(Instant::now());
            gate.read(place as usize, &mut |socket| {
                let _ = epoll::delete(epoll, socket);
            });
        }
    }

    /// Returns whether this host has joined with a key.
    pub(super) fn has_joined(&self) -> bool {
        self.ctx.links.parent().is_some_and(|up| up.has_joined())
    }

    /// Reports the loss of the root on a host that has joined: nobody else would say why its part
    /// ends.
    pub(super) fn report_lost_root(&mut self, how: LinkLoss) {
        if !self.ctx.is_ending {
            self.report_to_joiner(&format!(
                "error[{}]: the connection to the host where the job was started broke: {how}",
                codes::G0217
            ));
        }
    }

    /// Reports on a host that has joined that the job failed. The cause is printed where the job
    /// was started.
    pub(super) fn report_end_to_joiner(&mut self) {
        let code = self.code();
        let up = self.ctx.links.parent();
        if code != 0 && up.is_some_and(|up| up.link().is_some()) {
            self.report_to_joiner(&format!(
                "garonne join: the job ended with exit code {code}; why is printed where it was started"
            ));
        }
    }

    /// Prints a line for the person who has joined, if this is such a host.
    pub(super) fn report_to_joiner(&self, line: &str) {
        if self.has_joined() {
            OutputSink::new(StreamKind::Err).write(format!("{line}\n").as_bytes());
        }
    }
}

/// Returns the job as agents elsewhere are told it: those that we start with our environment, and
/// directories that mean the same there; hosts that have joined have their own.
pub(super) fn job_for(job: &Job, manner: AgentOrigin) -> Job {
    let mut job = job.clone();
    if manner == AgentOrigin::Joined {
        job.env = Some(rank_start::environment_for_guests());
        return job;
    }
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    for program in &mut job.programs {
        program.dir = Some(match program.dir.take() {
            Some(dir) => here.join(dir),
            None => here.clone(),
        });
    }
    let of_this_host = |name: &OsString| {
        name.to_str()
            .is_some_and(|name| rank_start::OF_ONE_HOST.contains(&name))
    };
    job.env = Some(
        std::env::vars_os()
            .filter(|(name, _)| !of_this_host(name))
            .collect(),
    );
    job
}

/// Watches one who calls where hosts have joined.
fn watch_late(epoll: &OwnedFd, place: usize, socket: BorrowedFd<'_>) -> bool {
    let token = EpollToken::LateJoiner(place as u32).pack();
    epoll::add(epoll, socket, token, epoll::EventFlags::IN).is_ok()
}
