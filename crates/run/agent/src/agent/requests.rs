//! What registered processes and tools ask of the agent, and its answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags};

use super::{Agent, EpollToken, RegisteredProcess, reverse_connect};
use garonne_job::agent_messages::ReverseConnectRequest;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::rank_messages::{LIBRARY_VERSION, PROTOCOLS, ToAgent, ToRank};
use garonne_links::agent_discovery::{ENV_AGENT, ENV_JOB};
use garonne_links::output_pipe::wait_for_output;
use garonne_links::process_tree;
use garonne_links::sys::{self, ReceivedMessage};
use garonne_links::trusted_peer;
use garonne_loader::mpi;
use garonne_tcp::Versions;

/// A registration as received.
struct Registration {
    protocols: Versions,
    rank: u32,
    /// Process id as the process sees it, and as the kernel says it to us (0: not visible from
    /// here).
    pid: (u32, i32),
    version: String,
}

/// Decision about a registration.
enum RegistrationResult {
    /// The process joins this world, with this version of the protocol.
    Join {
        epoch: u32,
        protocol: u16,
    },
    Alone,
}

/// The protocol to speak with a rank, by what both sides speak.
fn agree(ours: Versions, request: &Registration) -> Result<u16> {
    ours.agree(request.protocols).map_err(|_| {
        let text = format!(
            "rank {} loaded Garonne {} (protocols {}), but `garonne` is {LIBRARY_VERSION} (protocols {ours})",
            request.rank, request.version, request.protocols,
        );
        Error::peer(codes::G0203, text)
    })
}

pub(super) fn reply(socket: BorrowedFd<'_>, message: &ToRank, fds: &[BorrowedFd<'_>]) {
    // Who asked and went away needs no answer; and nobody may make the agent wait.
    let _ = sys::send(socket, &message.encode(), fds, SendFlags::DONTWAIT);
}

/// Refuses a process without the secret: a job's name is public, and knowing it makes no rank.
fn refuse_without_admission(socket: BorrowedFd<'_>) {
    let code = codes::G0244.to_owned();
    let text = format!("what {ENV_JOB} says does not admit to the job that {ENV_AGENT} names");
    reply(socket, &ToRank::Refused { code, text }, &[]);
}

impl Agent<'_> {
    /// Messages on the socket that everybody can reach.
    pub(super) fn accept_registration(&mut self) {
        while let Ok(received) =
            sys::recv(self.ctx.registration_socket.as_fd(), RecvFlags::DONTWAIT)
        {
            self.handle_registration_message(received);
        }
    }

    fn handle_registration_message(&mut self, received: ReceivedMessage) {
        let Some(socket) = received.fds.into_iter().next() else {
            return;
        };
        let (pid, uid) = received.sender.unwrap_or((0, u32::MAX));
        if !trusted_peer::is_believed(Some(uid)) {
            return self.refuse_other_user(&received.bytes, socket.as_fd(), uid);
        }
        match ToAgent::decode(&received.bytes) {
            Ok(ToAgent::Register {
                protocols,
                admission,
                rank,
                pid: own_pid,
                version,
            }) => {
                if admission != *self.admission.secret() {
                    return refuse_without_admission(socket.as_fd());
                }
                self.register(
                    Registration {
                        protocols,
                        rank,
                        pid: (own_pid, pid),
                        version,
                    },
                    socket,
                );
            }
            Ok(ToAgent::Attach) => self.attach(&socket),
            Ok(ToAgent::DisableNetwork { network, drained }) => self.networks.request_drain(
                &mut self.ctx,
                self.ranks.worlds(),
                socket,
                (network, drained),
            ),
            Ok(ToAgent::Query(query)) => {
                self.snapshots
                    .query_other_hosts(&mut self.ctx, socket, query)
            }
            // A tool of another version is told so.
            Err(Error::Peer { code, text }) if code == codes::G0203 => {
                let code = code.to_owned();
                reply(socket.as_fd(), &ToRank::Refused { code, text }, &[]);
            }
            _ => {}
        }
    }

    /// A process of another user is told why it cannot join, if it was invited.
    fn refuse_other_user(&self, bytes: &[u8], socket: BorrowedFd<'_>, uid: u32) {
        if let Ok(ToAgent::Register {
            admission, rank, ..
        }) = ToAgent::decode(bytes)
            && admission == *self.admission.secret()
        {
            let own = rustix::process::geteuid().as_raw();
            let text = format!(
                "rank {rank} runs as user {uid}, but the job is of user {own}: all must be one user's"
            );
            let code = codes::G0212.to_owned();
            reply(socket, &ToRank::Refused { code, text }, &[]);
        }
    }

    fn attach(&mut self, socket: &OwnedFd) {
        // Where no rank runs tools are the only ones to read a board. Without it they say less.
        if self.ranks.worlds().is_empty()
            && self.ctx.hosts.are_known()
            && self.ctx.job.ranks_of(self.ctx.node).is_empty()
        {
            let _ = self.new_world(0, LIBRARY_VERSION, 0);
        }
        if let Some(world) = self.ranks.worlds().newest() {
            world.reset_absence();
        }
        let message = ToRank::Attached {
            command: self.ctx.job.command.chars().take(4096).collect(),
            launcher: self.ctx.launcher as u32,
            ranks: self.ranks.count(),
            hosts: self.ctx.host_names(),
            name: self.job_name(),
            started_s: self.ctx.job.started_s,
        };
        let file: Vec<_> = self
            .ranks
            .worlds()
            .newest()
            .map(|world| world.file().as_fd())
            .into_iter()
            .collect();
        reply(socket.as_fd(), &message, &file);
    }

    /// Makes the world of this number, whose first rank loaded the library's `version`.
    fn new_world(&mut self, epoch: u32, version: &str, creator: u32) -> Result<()> {
        let world = self.ranks.worlds_mut().add(
            &self.ctx,
            (epoch, version, creator),
            self.faults.dead(),
        )?;
        self.networks.publish_routes(world.world_memory());
        Ok(())
    }

    /// The job's name; where nobody decided one, what all its agents derive alike.
    fn job_name(&self) -> String {
        match self.ctx.job.name.is_empty() {
            true => garonne_job::job_name::derived(&self.ctx.job.command, self.ctx.id.0 as u64),
            false => self.ctx.job.name.clone(),
        }
    }

    fn register(&mut self, request: Registration, socket: OwnedFd) {
        // Its predecessor in this place may have said MPI_Finalize on its own socket just before:
        // hear that first.
        if let Some(holder) = self.ranks.get(request.rank).and_then(|slot| slot.member) {
            self.read_process(holder);
        }
        let verdict = self
            .decide_registration(&request)
            .and_then(|verdict| match verdict {
                RegistrationResult::Alone => {
                    reply(socket.as_fd(), &ToRank::Singleton, &[]);
                    Ok(None)
                }
                RegistrationResult::Join { epoch, protocol } => self
                    .admission
                    .open_lifeline()
                    .map(|lifeline| Some((epoch, protocol, lifeline))),
            });
        match verdict {
            Ok(None) => {}
            Ok(Some((epoch, protocol, lifeline))) => {
                self.welcome((&request, protocol), epoch, socket, &lifeline);
            }
            Err(error) => {
                let (code, text) = (error.code().to_owned(), error.to_string());
                let text = text
                    .split_once("]: ")
                    .map_or(text.as_str(), |(_, text)| text)
                    .to_owned();
                // What the host lacks; other refusals are about the rank.
                let lacks = [codes::G0209, codes::G0301, codes::G0302].contains(&code.as_str());
                let text = match lacks && self.ctx.job.nodes.several() {
                    true => format!("host '{}': {text}", self.ctx.host_name(self.ctx.node)),
                    false => text,
                };
                reply(
                    socket.as_fd(),
                    &ToRank::Refused {
                        code: code.clone(),
                        text: text.clone(),
                    },
                    &[],
                );
                // A second process in one place harms nobody; but for a rank that cannot join, the
                // others wait for ever.
                if code != codes::G0205 && request.rank < self.ranks.count() {
                    self.rank_refused(request.rank, &format!("error[{code}]: {text}"));
                }
            }
        }
    }

    /// Returns whether a process is a child that a rank's program has started before its own
    /// `MPI_Init`: another program, below one that calls MPI itself. A wrapper does not, and what
    /// a program does in a fork of itself is its own.
    fn is_child_of_a_rank_to_be(&self, rank: u32, pid: i32) -> bool {
        let slot = &self.ranks[rank];
        if pid == slot.pid || slot.ended.is_some() || !process_tree::is_ancestor(slot.pid, pid) {
            return false;
        }
        let program = |pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let (Some(own), Some(other)) = (program(slot.pid), program(pid)) else {
            return false;
        };
        let calls_mpi = || mpi::read(&own).is_some_and(|(_, symbols)| symbols.calls_mpi);
        own != other && calls_mpi()
    }

    fn decide_registration(&mut self, request: &Registration) -> Result<RegistrationResult> {
        let Registration {
            rank, pid, version, ..
        } = request;
        if !self.ranks.is_of(*rank, self.ctx.node) {
            return Err(Error::misuse(
                codes::G0212,
                format!(
                    "this job has {} ranks and no rank {rank} here",
                    self.ranks.count()
                ),
            ));
        }
        let protocol = agree(PROTOCOLS, request)?;
        let mut epoch = 0;
        if let Some(holder) = self.ranks[*rank]
            .member
            .map(|index| self.ranks.process(index))
        {
            let alive = !holder.gone && (!holder.direct || self.ranks[*rank].ended.is_none());
            if alive && (pid.1 == holder.pid || process_tree::is_ancestor(holder.pid, pid.1)) {
                return Ok(RegistrationResult::Alone);
            }
            if !holder.finalized {
                let text = format!(
                    "process {} wants to be rank {rank}, which process {} is already",
                    pid.0, holder.pid
                );
                return Err(Error::misuse(codes::G0205, text));
            }
            epoch = holder.epoch + 1;
        } else if self.is_child_of_a_rank_to_be(*rank, pid.1) {
            return Ok(RegistrationResult::Alone);
        }
        if epoch > 0 && self.ctx.job.nodes.several() {
            let text = format!(
                "rank {rank} is a second MPI program in its place, which jobs on several hosts cannot have yet"
            );
            return Err(Error::misuse(codes::G0218, text));
        }
        if epoch as usize >= self.ranks.worlds().len() {
            self.new_world(epoch, version, *rank)?;
        }
        let world = &self.ranks.worlds()[epoch];
        let (other, creator) = world.version();
        if other != version {
            let text =
                format!("rank {rank} loaded Garonne {version}, rank {creator} loaded {other}");
            return Err(Error::peer(codes::G0203, text));
        }
        Ok(RegistrationResult::Join { epoch, protocol })
    }

    fn welcome(
        &mut self,
        (request, protocol): (&Registration, u16),
        epoch: u32,
        socket: OwnedFd,
        lifeline: &OwnedFd,
    ) {
        let slot = &self.ranks[request.rank];
        let direct = request.pid.1 == slot.pid;
        let pidfd = match direct {
            true => None,
            false => self.admission.open_pidfd(request.pid.1),
        };
        let world = &self.ranks.worlds()[epoch];
        let cpu = self
            .ctx
            .job
            .placement
            .masks
            .get(request.rank as usize)
            .and_then(|mask| first_cpu(mask));
        world.rank_block(request.rank).set_place(cpu, direct);
        let message = ToRank::Welcome {
            protocol,
            rank: request.rank,
        };
        let mut fds = vec![world.file().as_fd(), lifeline.as_fd()];
        // What it needs to speak to other hosts: the port that others know of it, and the secret.
        let secret = self
            .ctx
            .secret
            .as_ref()
            .and_then(|secret| secret.lay_down().ok());
        if let (Some(listener), Some(secret)) = (&self.ranks[request.rank].listener, &secret) {
            fds.extend([listener.as_fd(), secret.as_fd()]);
            if let Some(sockets) = self.ctx.hosts.packet_sockets(request.rank) {
                fds.extend([sockets.waking.as_fd(), sockets.quiet.as_fd()]);
            }
        }
        reply(socket.as_fd(), &message, &fds);
        let process = RegisteredProcess {
            epoch,
            protocol,
            pid: request.pid.1,
            socket: Some(socket),
            pidfd,
            direct,
            finalized: false,
            gone: false,
            leaves: false,
            report: String::new(),
        };
        let index = self.ranks.register(request.rank, process);
        let process = self.ranks.process(index);
        if let Some(socket) = &process.socket {
            let _ = self.ctx.listen(socket.as_fd(), EpollToken::Control(index));
        }
        if let Some(pidfd) = &process.pidfd {
            let _ = self.ctx.listen(pidfd.as_fd(), EpollToken::Process(index));
        }
    }

    /// Messages of one registered process.
    pub(super) fn read_process(&mut self, index: u32) {
        loop {
            let Some(socket) = &self.ranks.process(index).socket else {
                return;
            };
            let received = sys::recv(socket.as_fd(), RecvFlags::DONTWAIT);
            let received = match received {
                Ok(received) if !received.bytes.is_empty() => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                _ => {
                    let member = self.ranks.process_mut(index);
                    member.socket = None;
                    if !member.direct && member.pidfd.is_none() {
                        self.process_gone(index);
                    }
                    return;
                }
            };
            let Some(rank) = self.ranks.rank_of(index) else {
                return;
            };
            match ToAgent::decode(&received.bytes) {
                Ok(ToAgent::FlightRecorder) => self.flight_recorders.keep(
                    &self.ctx,
                    rank,
                    index,
                    received.fds.into_iter().next(),
                ),
                Ok(message) => self.handle_process_message(index, rank, message),
                // A rank that talks nonsense has overwritten itself; it will fail with its own
                // words.
                Err(_) => self.ranks.process_mut(index).socket = None,
            }
        }
    }

    fn handle_process_message(&mut self, index: u32, rank: u32, message: ToAgent) {
        let epoch = self.ranks.process(index).epoch;
        match message {
            ToAgent::Finalized => self.ranks.process_mut(index).finalized = true,
            ToAgent::Agree(given) => self.agree(index, rank, given),
            ToAgent::Resumed => self.ranks.process_mut(index).finalized = false,
            ToAgent::Abort { code, text } => {
                // Another launcher wants to see it end with that code, not by a signal of ours.
                self.ranks.process_mut(index).leaves = self.ctx.is_adopted;
                self.aborted(rank, code, &text);
                if self.ctx.is_adopted {
                    wait_for_output(std::io::stderr().as_fd());
                    self.ranks.answer(index, &ToRank::Acknowledged);
                }
            }
            ToAgent::Report { text } => self.ranks.process_mut(index).report = text,
            ToAgent::Put { key, value } => {
                let world = self.ranks.worlds_mut().get_mut(epoch);
                let waited = world.map_or(Vec::new(), |world| world.put(key, value.clone()));
                let message = ToRank::Value { value };
                waited
                    .into_iter()
                    .for_each(|member| self.ranks.answer(member, &message));
            }
            ToAgent::Get { key } => {
                let world = self.ranks.worlds_mut().get_mut(epoch);
                if let Some(value) = world.and_then(|world| world.get(index, key)) {
                    self.ranks.answer(index, &ToRank::Value { value });
                }
            }
            ToAgent::Fence => {
                let world = self.ranks.worlds_mut().get_mut(epoch);
                world
                    .map_or(Vec::new(), |world| world.fence(index))
                    .into_iter()
                    .for_each(|member| self.ranks.answer(member, &ToRank::Fenced));
            }
            ToAgent::ReverseConnect { peer, bulk } => {
                let call = ReverseConnectRequest {
                    from: rank,
                    to: peer,
                    bulk,
                };
                self.networks
                    .request_reverse_connect(&mut self.ctx, self.ranks.worlds(), call)
            }
            ToAgent::Unreachable { peer } => {
                if let Some(line) = reverse_connect::unreachable(&self.ctx, peer) {
                    self.rank_refused(rank, &line);
                }
            }
            ToAgent::ConnectionRefused { peer, code, text } => {
                let failure = reverse_connect::refused(&self.ctx, (rank, peer), &code, &text);
                if let Some(line) = failure {
                    self.rank_refused(rank, &line);
                }
            }
            ToAgent::Crashed(_) if self.has_cause() => {
                self.crash_examinations.let_end(&self.ranks, index)
            }
            // From now on that is the first failure, whoever fails meanwhile.
            ToAgent::Crashed(crash) => {
                if !self.crash_examinations.is_examining() && !self.faults.survives() {
                    self.end.suspect(rank);
                }
                self.crash_examinations
                    .examine(&self.ctx, &self.ranks, index, crash);
            }
            ToAgent::Register { .. }
            | ToAgent::Attach
            | ToAgent::DisableNetwork { .. }
            | ToAgent::Query(_)
            | ToAgent::FlightRecorder => {}
        }
    }

    /// A process that registered from behind a wrapper is gone.
    pub(super) fn process_gone(&mut self, index: u32) {
        let member = self.ranks.process_mut(index);
        if std::mem::replace(&mut member.gone, true) {
            // Its parent has reaped it: only this is still reported of its pidfd.
            return self.process_reaped(index);
        }
        // What it said before it died still counts (Finalized, Abort).
        self.read_process(index);
        self.ranks.process_finalized(index);
        let rank = self.ranks.rank_of(index);
        let member = self.ranks.process_mut(index);
        if member.finalized {
            member.pidfd = None;
            rank.into_iter().for_each(|rank| self.adopted_over(rank));
        } else if let Some(rank) = rank {
            self.unfinalized_member_gone(rank, index);
            self.adopted_over(rank);
        }
    }

    fn process_reaped(&mut self, index: u32) {
        let told = self.ranks.end_reported_by(index);
        if let Some(pidfd) = &self.ranks.process(index).pidfd {
            // It says no more, but can still be asked.
            let _ = epoll::delete(&self.ctx.epoll, pidfd);
        }
        if let (Some(ended), Some(rank)) = (told, self.ranks.rank_of(index)) {
            self.wrapped_rank_ended(rank, ended);
        }
    }
}

fn first_cpu(mask: &[u64]) -> Option<u32> {
    mask.iter()
        .enumerate()
        .find(|(_, word)| **word != 0)
        .map(|(i, word)| i as u32 * 64 + word.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(ours: (u16, u16), theirs: (u16, u16)) -> Result<u16> {
        let request = Registration {
            protocols: theirs.into(),
            rank: 3,
            pid: (0, 0),
            version: "9.9.9".into(),
        };
        agree(ours.into(), &request)
    }

    #[test]
    fn a_rank_is_spoken_to_in_the_highest_protocol_of_both() {
        for (ours, theirs, protocol) in [
            ((6, 6), (6, 7), 6),
            ((6, 7), (6, 6), 6),
            ((6, 7), (5, 6), 6),
            ((6, 7), (6, 8), 7),
        ] {
            assert_eq!(met(ours, theirs).unwrap(), protocol);
        }
    }

    #[test]
    fn a_rank_without_a_protocol_in_common_is_refused_with_both_versions() {
        for (ours, theirs) in [((4, 5), (6, 7)), ((6, 7), (4, 5)), ((1, 1), (1, 0))] {
            let error = met(ours, theirs).unwrap_err();
            assert_eq!(error.code(), codes::G0203);
            let (ours, theirs) = (Versions::from(ours), Versions::from(theirs));
            let said = format!(
                "rank 3 loaded Garonne 9.9.9 (protocols {theirs}), but `garonne` is {LIBRARY_VERSION} (protocols {ours})"
            );
            assert!(error.to_string().contains(&said), "{error}");
        }
    }
}
