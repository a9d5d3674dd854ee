//! An agent of ranks that another launcher started: it gives them their world, watches and ends
//! them as any agent does, but has neither started them nor reads their output.
//!
//! The agent of rank 0's node is the first (`root_role`); the others call the one above them
//! (`child_agents`) at the address that went through the launcher's exchange, and obey the first
//! (`tree_dispatch`). It lives as long as the processes that have registered; what ends the job
//! here the launcher sees by the ends of its ranks.

use garonne_job::adoption_messages::AdoptionRequest;
use garonne_job::adoption_messages::AgentLocation;
use garonne_job::adoption_messages::ChildListener;
use garonne_job::adoption_messages::RootAgent;
use garonne_job::agent_socket_name::AgentSocketName;
use garonne_job::process_exit::ProcessExit;
use garonne_job::settings::bulk_transports::BulkTransports;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use garonne_tcp::agent_channel;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags};

use super::agent_link::LinkLoss;
use super::output::{OutputSink, StreamKind};
use super::{Agent, AgentStart, EpollToken, RankSlot, RootConnection, listen_at, rank_start};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::Job;
use garonne_job::layout::JobId;
use garonne_job::limits::{
    ADOPTED_WAIT, BUSY_WAIT, FAILURE_CAUSE_WAIT, ORPHANS_WAIT, WRAPPER_WAIT,
};
use garonne_job::node_map::listed;
use garonne_job::rank_messages::LIBRARY_VERSION;
use garonne_job::registration_secret::draw_job_id;
use garonne_links::addresses;
use garonne_links::agent_discovery;
use garonne_links::output_pipe::wait_for_output;
use garonne_links::process_tree;
use garonne_links::sys;

/// State of an agent whose ranks another launcher started.
#[derive(Debug)]
pub(super) struct AdoptedRole {
    launcher: String,
    first_rank: u32,
    /// By then all ranks have registered.
    until: Option<Instant>,
    /// Process above the rank that started this agent: as a rule one of the launcher.
    launcher_process: Option<OwnedFd>,
    /// Since it is gone: the ranks may end by themselves until then.
    orphans_until: Option<Instant>,
}

/// Serves adopted ranks to their end. `line` leads to the rank that asked.
pub(crate) fn adopt(
    job: &Job,
    adoption: &AdoptionRequest,
    line: &OwnedFd,
    signals: &sys::SignalFd,
) -> i32 {
    adopt_ranks(job, adoption, line, signals).unwrap_or_else(|error| {
        OutputSink::new(StreamKind::Err).write(format!("{error}\n").as_bytes());
        1
    })
}

fn adopt_ranks(
    job: &Job,
    adoption: &AdoptionRequest,
    line: &OwnedFd,
    signals: &sys::SignalFd,
) -> Result<i32> {
    let name = AgentSocketName::new(adoption.parent, draw_job_id()?);
    let (hello, _) = agent_discovery::bind(&name)?;
    rank_start::raise_nofile();
    let node = adoption.of_rank[adoption.leader as usize];
    let parent = adoption.parent as i32;
    let mut agent = Agent::new(job, draw_job_id()?, parent, hello, (line, signals))?;
    agent.ctx.node = node;
    agent.ctx.is_adopted = true;
    agent.adopted_role = Some(AdoptedRole {
        launcher: adoption.launcher.clone(),
        first_rank: adoption.leader,
        until: None,
        launcher_process: Pid::from_raw(parent)
            .filter(|_| parent > 1)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()),
        orphans_until: None,
    });
    let done = agent.adopt_and_serve(name);
    match done {
        Err(error) if agent.ctx.is_child() => Ok(agent.failed_here(&error)),
        done => done,
    }
}

impl Agent<'_> {
    fn adopt_and_serve(&mut self, name: AgentSocketName) -> Result<i32> {
        let several = self.ctx.job.nodes.several();
        let mut child_listener = None;
        if self.ctx.node == 0 {
            let mut first = RootAgent {
                version: LIBRARY_VERSION.to_owned(),
                job: self.ctx.id.0,
                secret: None,
                fan_out: self.ctx.job.fan_out,
                port: 0,
                addresses: Vec::new(),
            };
            if several {
                let (port, secret) = self.open_root_role()?;
                (first.port, first.secret) = (port, Some(secret));
                first.addresses = addresses::to_call();
            }
            self.send_location(&first.encode())?;
        } else if self.ctx.job.tree().has_children(self.ctx.node) {
            let (listener, port) = listen_at(0)?;
            let addresses = addresses::to_call();
            self.send_location(&ChildListener { port, addresses }.encode())?;
            child_listener = Some(listener);
        }
        let home = addresses::home()?;
        let admission = self.admission.secret().clone();
        self.send_location(
            &AgentLocation {
                name,
                network_id: home,
                secret: admission,
            }
            .encode(),
        )?;
        let first = self.receive_root_agent()?;
        self.ctx.id = JobId(first.job);
        if let Some(below) = self.ctx.links.children_mut() {
            below.restart_checkin();
        }
        // Whose end is to be seen also while others are waited for.
        self.ctx
            .listen(self.ctx.launcher_socket.as_fd(), EpollToken::Launcher)?;
        if several {
            let beginning = match self.ctx.node {
                0 => AgentStart::Plain,
                _ => AgentStart::Outer(Box::new(self.connect_to_parent(first, child_listener)?)),
            };
            if let Some(code) = self.wait_for_agents(beginning)? {
                return Ok(code);
            }
        } else if BulkTransports::from_environment()
            .is_ok_and(|rails| rails == BulkTransports::Both)
        {
            self.exchange_on_one_host()?;
        }
        self.adopt_slots();
        if let Some(adopted) = &mut self.adopted_role {
            adopted.until = Some(Instant::now() + ADOPTED_WAIT);
        }
        // From now on: who came before has waited.
        self.ctx.listen(
            self.ctx.registration_socket.as_fd(),
            EpollToken::Registration,
        )?;
        if let Some(above) = self
            .adopted_role
            .as_ref()
            .and_then(|adopted| adopted.launcher_process.as_ref())
        {
            self.ctx
                .listen(above.as_fd(), EpollToken::LauncherProcess)?;
        }
        self.admission
            .limit_pidfds(self.ctx.job.ranks_of(self.ctx.node).len());
        Ok(self.serve_until(|_| false)?.unwrap_or(0))
    }

    fn send_location(&self, message: &[u8]) -> Result<()> {
        sys::send(
            self.ctx.launcher_socket.as_fd(),
            message,
            &[],
            SendFlags::empty(),
        )
        .map_err(|error| {
            Error::system(
                codes::G0220,
                "the rank that asked for an agent is gone",
                error,
            )
        })
    }

    /// Receives the address of the parent agent. That comes when all ranks of the job have called
    /// MPI_Init, which may take as long as they like.
    fn receive_root_agent(&self) -> Result<RootAgent> {
        loop {
            let mut fds = [
                PollFd::new(self.ctx.launcher_socket, PollFlags::IN),
                PollFd::new(self.ctx.signals, PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(Error::system(codes::G0220, "the agent cannot wait", error));
                }
            }
            if std::iter::from_fn(|| self.ctx.signals.next())
                .any(|signal| super::shutdown::ends_jobs(signal.number))
            {
                sys::exit_now(1);
            }
            match sys::recv(self.ctx.launcher_socket.as_fd(), RecvFlags::DONTWAIT) {
                Ok(message) if !message.bytes.is_empty() => {
                    return RootAgent::decode(&message.bytes);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // It has died, which its launcher has seen: there is nobody to serve.
                _ => sys::exit_now(1),
            }
        }
    }

    fn connect_to_parent(
        &self,
        first: RootAgent,
        child_listener: Option<TcpListener>,
    ) -> Result<RootConnection> {
        let Some(secret) = first.secret else {
            return Err(Error::peer(
                codes::G0219,
                "the job's first agent has no secret",
            ));
        };
        let identity =
            agent_channel::identity(secret.clone(), first.job.to_ne_bytes(), self.ctx.node);
        let parent = self.ctx.job.tree().parent(self.ctx.node).unwrap_or(0);
        let whom = garonne_links::connect::ConnectTarget {
            node: parent,
            name: self.ctx.job.nodes.name(parent),
            port: first.port,
            busy_retry: BUSY_WAIT,
            starter: None,
        };
        let (line, reached) =
            garonne_links::connect::connect_to(&identity, &first.addresses, &whom)?;
        Ok(RootConnection {
            job: JobId(first.job),
            node: self.ctx.node,
            secret,
            line,
            parent,
            reached,
            port: first.port,
            guest: false,
            child_listener,
        })
    }

    /// Places for all ranks of the job; those of this node will register.
    fn adopt_slots(&mut self) {
        let mut program_of = self.ctx.job.program_of_rank().into_iter();
        for rank in 0..self.ctx.job.size() {
            let node = self.ctx.job.nodes.of(rank);
            self.output.add_unread_rank();
            let listener = self.ctx.hosts.take_listener(rank);
            self.ranks.add(RankSlot {
                node,
                pid: 0,
                program: program_of.next().unwrap_or(0),
                ended: (node != self.ctx.node && self.root_role.is_none())
                    .then_some(ProcessExit::Exit(0)),
                member: None,
                wrapper_deadline: None,
                listener,
                end_reported: false,
            });
        }
    }

    /// The process of an adopted rank is gone, and with it the rank: nothing else of it is watched.
    /// How it ended is its launcher's business.
    pub(super) fn adopted_over(&mut self, rank: u32) {
        if self.ctx.is_adopted {
            self.ranks[rank].ended = Some(ProcessExit::Exit(0));
        }
    }

    /// An adopted process is gone that had not finalized: it is blamed when it is known how it
    /// ended.
    pub(super) fn suspect_adopted(&mut self, rank: u32, index: u32) {
        match self.adopted_end(rank) {
            Some(ended) => self.fail_adopted(rank, ended),
            None => {
                self.ranks[rank].wrapper_deadline = Some(Instant::now() + WRAPPER_WAIT);
                self.ranks.await_reaping(&self.ctx.epoll, index);
            }
        }
    }

    /// A launcher kills the other ranks as soon as one has failed, of which the agent may hear all
    /// at once: whoever was killed by a signal that launchers use is blamed only if nobody else is
    /// to blame.
    pub(super) fn fail_adopted(&mut self, rank: u32, ended: ProcessExit) {
        match ended {
            ProcessExit::Signal(libc::SIGKILL | libc::SIGTERM) if !self.faults.survives() => {
                self.ranks[rank].wrapper_deadline = Some(Instant::now() + FAILURE_CAUSE_WAIT);
            }
            _ => self.ended_without_finalize(rank, ended),
        }
    }

    /// Returns how an adopted rank ended, if that is known.
    pub(super) fn adopted_end(&self, rank: u32) -> Option<ProcessExit> {
        self.adopted_role.as_ref()?;
        let member = self.ranks[rank].member?;
        self.ranks
            .end_reported_by(member)
            .or_else(|| process_tree::end_unreaped(self.ranks.process(member).pid))
    }

    /// The rank that asked for this agent says nothing more: its end, before it has registered, is
    /// the end of all.
    pub(super) fn first_rank_disconnected(&mut self) {
        // Nobody has registered while the agents meet: there is nobody to serve, and the other
        // agents see this one's end.
        if self.ctx.waiting_for_agents {
            self.ctx.links.say_end();
            sys::exit_now(1);
        }
        let _ = epoll::delete(&self.ctx.epoll, self.ctx.launcher_socket);
        let leader = self
            .adopted_role
            .as_ref()
            .map_or(0, |adopted| adopted.first_rank);
        let came = self
            .ranks
            .get(leader)
            .is_some_and(|slot| slot.member.is_some());
        if !came {
            // It may have registered with its last breath.
            self.accept_registration();
        }
        let came = came
            || self
                .ranks
                .get(leader)
                .is_some_and(|slot| slot.member.is_some());
        if !came {
            self.rank_refused(
                leader,
                &format!("error[{}]: rank {leader} ended in MPI_Init", codes::G0222),
            );
        }
    }

    /// The launcher's process on this host is gone: most launchers are survived by the ranks of a
    /// host whose process of theirs was killed.
    pub(super) fn launcher_exited(&mut self) {
        if let Some(adopted) = &mut self.adopted_role
            && let Some(above) = adopted.launcher_process.take()
        {
            let _ = epoll::delete(&self.ctx.epoll, &above);
            adopted.orphans_until = Some(Instant::now() + ORPHANS_WAIT);
        }
    }

    fn check_orphans(&mut self, now: Instant) {
        let Some(adopted) = &mut self.adopted_role else {
            return;
        };
        if adopted.orphans_until.is_none_or(|until| until > now) {
            return;
        }
        adopted.orphans_until = None;
        let launcher = adopted.launcher.clone();
        // Who has finalized may do as it likes.
        let orphan = self.ranks.iter().position(|slot| {
            let member = slot.member.map(|index| self.ranks.process(index));
            member.is_some_and(|member| !member.gone && !member.finalized)
        });
        if let Some(rank) = orphan {
            let line = format!(
                "error[{}]: the process of {launcher} above the ranks of this host is gone",
                codes::G0223
            );
            self.rank_refused(rank as u32, &line);
        }
    }

    /// When something is to be done for adopted ranks.
    pub(super) fn adopted_due(&self) -> Option<Instant> {
        let adopted = self.adopted_role.as_ref().filter(|_| !self.ctx.is_ending)?;
        adopted.until.into_iter().chain(adopted.orphans_until).min()
    }

    /// Ends the job if ranks have not come in time, or have lost their launcher.
    pub(super) fn check_adopted(&mut self, now: Instant) {
        self.check_orphans(now);
        let Some(adopted) = &mut self.adopted_role else {
            return;
        };
        if adopted.until.is_none_or(|until| until > now) {
            return;
        }
        adopted.until = None;
        let launcher = adopted.launcher.clone();
        let absent = self.ranks.iter().zip(0..);
        let absent: Vec<u32> = absent
            .filter(|(slot, _)| slot.node == self.ctx.node && slot.member.is_none())
            .map(|(_, rank)| rank)
            .collect();
        if let Some(first) = absent.first() {
            let (ranks, after) = (listed(&absent), ADOPTED_WAIT.as_secs());
            let line = format!(
                "error[{}]: of the ranks that {launcher} has started here {ranks} did not come within {after} s",
                codes::G0222
            );
            self.rank_refused(*first, &line);
        }
    }

    /// The line to the agent above is gone, and with it whoever would say so: under another
    /// launcher, which kills the job for the ranks that it sees die, each agent has an error stream
    /// of its own. One of those that report to the lost one says it, and waits a moment for it to
    /// be read.
    pub(super) fn report_lost_parent(&self, how: LinkLoss) {
        let tree = self.ctx.job.tree();
        let Some(above) = tree.parent(self.ctx.node) else {
            return;
        };
        if self.ctx.is_ending || tree.children(above).next() != Some(self.ctx.node) {
            return;
        }
        let line = self.link_failure(above, "", how) + "\n";
        OutputSink::new(StreamKind::Err).write(line.as_bytes());
        wait_for_output(std::io::stderr().as_fd());
    }

    /// Returns how to say how a rank ended that only its launcher knows.
    pub(super) fn unreported_cause(&self) -> String {
        match &self.adopted_role {
            Some(adopted) => format!("{} knows how", adopted.launcher),
            None => String::from("its wrapper does not say how"),
        }
    }
}
