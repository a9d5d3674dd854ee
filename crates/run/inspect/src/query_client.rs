//! What tools ask the agent of a running job: a read-only look at it, what the ranks of its other
//! hosts show, and to leave a network alone.
//!
//! Called by the command. One message, one answer; whoever does not answer within
//! [`limits::QUERY_WAIT`] may have been stopped. Of other hosts each answers for itself, or has not
//! within [`limits::LOOK_WAIT`].

use garonne_job::agent_socket_name::AgentSocketName;
use garonne_links::socket_pair::private_pair;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use garonne_sync::shm::{MapAccess, Segment};
use ipnet::IpNet;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use garonne_job::agent_messages::HostEndpoint;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::layout::{self, WorldShape, rank_endpoint};
use garonne_job::limits;
use garonne_job::new_networks;
use garonne_job::printable;
use garonne_job::program_map;
use garonne_job::query::Query;
use garonne_job::rank_messages::{ToAgent, ToRank, malformed};
use garonne_job::snapshot::{self, DetailedSnapshot};
use garonne_links::agent_answer::{decode, refusal, unexpected};
use garonne_links::agent_discovery;
use garonne_links::memory_file;
use garonne_links::sys;
use garonne_links::sys::ReceivedMessage;
use garonne_links::trusted_peer;

/// A read-only look at a running job, for tools.
#[derive(Debug)]
pub struct QueryClient {
    /// Name.
    pub name: AgentSocketName,
    /// The user whose job it is.
    pub user: u32,
    /// The job's name for people, the same on all its hosts.
    pub job_name: String,
    /// When it was started, in seconds since 1970; 0: not known.
    pub started_s: u64,
    /// Command line of the job.
    pub command: String,
    /// Process id of its launcher.
    pub launcher: u32,
    /// Ranks started.
    pub ranks: u32,
    /// Names of the job's hosts, by node; none where there is one.
    pub hosts: Vec<String>,
    /// Shape and board of its newest world; `None` before any rank of this host called MPI_Init.
    pub world: Option<(WorldShape, Segment)>,
    /// The memory file of that world.
    pub file: Option<OwnedFd>,
}

impl QueryClient {
    /// Returns whether this rank of the job is one of this host, or of none: nobody else would know
    /// of it.
    pub fn runs_here(&self, rank: u32) -> bool {
        let Some((shape, world_memory)) = &self.world else {
            return true;
        };
        rank >= shape.size || rank_endpoint::is_local(world_memory, shape, rank)
    }

    /// Returns where the objects of a rank's process are or were mapped, as in a `maps` file; empty
    /// if it did not say.
    pub fn objects(&self, rank: u32) -> String {
        let (Some((shape, _)), Some(file)) = (&self.world, &self.file) else {
            return String::new();
        };
        let (at, len) = (shape.trace_offset(rank), layout::NOTES_BYTES as u64);
        let area = memory_file::map(file.as_fd(), at, len, MapAccess::Read);
        area.map_or_else(|_| String::new(), |area| program_map::read(&area).objects)
    }

    /// Returns whether ranks of the job run on this host, as far as a world tells.
    pub fn has_ranks_here(&self) -> bool {
        let Some((shape, world_memory)) = &self.world else {
            return false;
        };
        rank_endpoint::local_ranks(world_memory, shape)
            .next()
            .is_some()
    }
}

/// Asks the agent of the job named `name` to have a network left alone between hosts, on all of
/// them, or used again. When it returns this host has heard of it.
///
/// # Errors
/// It cannot be left alone: why, with the hosts. [`Error::Timeout`] where a host of the job does
/// not answer, and so nothing changes.
pub fn disable_network(name: &AgentSocketName, network: IpNet, drained: bool) -> Result<()> {
    let message = ToAgent::DisableNetwork { network, drained };
    let late = "a host of the job does not answer, so nothing has changed; somebody may have stopped it (garonne who)";
    match ask_on(
        name,
        &message,
        (limits::NETWORK_WAIT + limits::QUERY_WAIT, late),
    )?
    .message
    {
        ToRank::Acknowledged => Ok(()),
        ToRank::Refused { code, text } => Err(refusal(&code, text)),
        other => Err(unexpected(&other)),
    }
}

/// Returns the addresses of a job's hosts, by node, with those that they got since the job began.
///
/// # Errors
/// The job's table of hosts is damaged.
pub fn host_endpoints(visit: &QueryClient) -> Result<Vec<HostEndpoint>> {
    let (Some((shape, world_memory)), Some(file)) = (&visit.world, &visit.file) else {
        return Ok(Vec::new());
    };
    let host_table = memory_file::host_table(file.as_fd(), shape)?;
    let mut places = (0..host_table.nodes())
        .map(|node| host_table.endpoint(node))
        .collect::<Result<Vec<_>>>()?;
    new_networks::complete(&mut places, &new_networks::read(world_memory));
    Ok(places)
}

/// Returns whether one of these hosts has an address in that network.
pub fn is_on(places: &[HostEndpoint], network: &IpNet) -> bool {
    let mut addresses = places.iter().flat_map(|place| &place.addresses);
    addresses.any(|address| network.contains(address))
}

/// Returns whether what is asked for comes about while all hosts have the time to hear of a change.
fn in_time(mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    let until = Instant::now() + limits::NETWORK_WAIT;
    while !is_so()? {
        if Instant::now() > until {
            return Ok(false);
        }
        std::thread::sleep(limits::LEADER_LOOK);
    }
    Ok(true)
}

/// Returns whether a host of the job has an address in that network, once all hosts have had the
/// time to look again: `drain` has them do so.
///
/// # Errors
/// As `endpoints`.
pub fn gets_network(visit: &QueryClient, network: &IpNet) -> Result<bool> {
    in_time(|| Ok(is_on(&host_endpoints(visit)?, network)))
}

/// Refuses what a process has sent that does not speak for this job.
fn believe(name: &AgentSocketName, message: &ReceivedMessage) -> Result<()> {
    let user = trusted_peer::user_of(message);
    if trusted_peer::is_believed_of(user, name.launcher()) {
        return Ok(());
    }
    let who = user.map_or("an unknown user".to_owned(), |user| format!("user {user}"));
    let text = format!("what answers as the agent of that job is a process of {who}");
    Err(Error::peer(codes::G0209, text))
}

/// Answer of an agent.
struct AgentAnswer {
    message: ToRank,
    /// Descriptors that the message carries.
    fds: Vec<OwnedFd>,
    /// On which more may come.
    socket: OwnedFd,
    /// The user of the process that answers.
    user: Option<u32>,
}

/// Time that the agent of this host may take that asks nobody else, and what is to be said where it
/// takes longer.
const AGENT_ALONE: (Duration, &str) = (
    limits::QUERY_WAIT,
    "the agent of that job does not answer; somebody may have stopped it",
);

/// Sends one message to the agent of a job, and gives its answer. An error of [`Error::Timeout`]
/// says `late`.
fn ask_on(
    name: &AgentSocketName,
    message: &ToAgent,
    (patience, late): (Duration, &str),
) -> Result<AgentAnswer> {
    let hello = agent_discovery::connect(name)?;
    let (ours, theirs) = private_pair()?;
    trusted_peer::ask_for_senders(&ours)?;
    sys::send(
        hello.as_fd(),
        &message.encode(),
        &[theirs.as_fd()],
        SendFlags::DONTWAIT,
    )
    .map_err(|error| Error::system(codes::G0209, "cannot talk to the agent of that job", error))?;
    drop((hello, theirs));
    sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(patience)).map_err(
        |error| Error::system(codes::G0209, "cannot limit the wait for an agent", error),
    )?;
    let reply =
        sys::recv(ours.as_fd(), RecvFlags::empty()).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::Timeout {
                code: codes::G0209,
                text: late.into(),
            },
            _ => Error::system(codes::G0209, "cannot hear the agent of that job", error),
        })?;
    believe(name, &reply)?;
    let user = trusted_peer::user_of(&reply);
    Ok(AgentAnswer {
        message: decode(&reply)?,
        fds: reply.fds,
        socket: ours,
        user,
    })
}

/// Answers of a job's hosts to a query, as they arrive.
#[derive(Debug)]
pub struct JobAnswers {
    name: AgentSocketName,
    socket: OwnedFd,
    until: Instant,
    /// The node of this host.
    pub own: u32,
    /// The node of each rank of the job.
    pub of_rank: Vec<u32>,
}

/// Asks all hosts of a job but this one what their ranks show of this.
///
/// # Errors
/// [`Error::Timeout`] where the agent of this host does not answer; one of another version knows no
/// such question.
pub fn query_all_hosts(name: &AgentSocketName, wish: Query) -> Result<JobAnswers> {
    let until = Instant::now() + limits::LOOK_WAIT;
    let answer = ask_on(name, &ToAgent::Query(wish), AGENT_ALONE)?;
    match answer.message {
        ToRank::QueryStarted { node } => {
            let bytes = content(answer.fds, limits::RANKS_MAX as usize * 4)?;
            let (nodes, rest) = bytes.as_chunks();
            if !rest.is_empty() {
                return Err(malformed("it ends in the middle of a number"));
            }
            Ok(JobAnswers {
                name: name.clone(),
                socket: answer.socket,
                until,
                own: node,
                of_rank: nodes.iter().map(|node| u32::from_le_bytes(*node)).collect(),
            })
        }
        ToRank::Refused { code, text } => Err(refusal(&code, text)),
        other => Err(unexpected(&other)),
    }
}

/// Reads the file that a message carries.
fn content(fds: Vec<OwnedFd>, most: usize) -> Result<Vec<u8>> {
    let fd = fds
        .into_iter()
        .next()
        .ok_or_else(|| malformed("it lacks a file"))?;
    let size = rustix::fs::fstat(&fd).map_or(0, |about| about.st_size.max(0) as usize);
    let most = most.min(size);
    let mut bytes = vec![0; most];
    let mut len = 0;
    // It was written through the same description, which stands at its end.
    while len < most {
        match rustix::io::pread(&fd, &mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Error::system(
                    codes::G0209,
                    "cannot read what an agent handed over",
                    error,
                ));
            }
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

impl JobAnswers {
    /// Returns the snapshots of these nodes' ranks, once all have answered or the time is over. A
    /// node's answer is an error if it is damaged, or speaks for ranks of another host.
    pub fn answers(self, of: BTreeSet<u32>) -> BTreeMap<u32, Result<Vec<DetailedSnapshot>>> {
        let of_rank = self.of_rank.clone();
        self.all_answers(of, |node, bytes| seen_of(node, &of_rank, &bytes))
    }

    /// Returns the output of a command on each of these nodes, or why there is none. Waits as
    /// [`JobAnswers::answers`] does.
    pub fn pages(self, of: BTreeSet<u32>) -> BTreeMap<u32, std::result::Result<String, String>> {
        let pages = self.all_answers(of, |_, bytes| snapshot::page(&bytes));
        let flat = |(node, page): (u32, Result<_>)| {
            (node, page.unwrap_or_else(|error| Err(error.to_string())))
        };
        pages.into_iter().map(flat).collect()
    }

    fn all_answers<T>(
        self,
        mut of: BTreeSet<u32>,
        read: impl Fn(u32, Vec<u8>) -> Result<T>,
    ) -> BTreeMap<u32, Result<T>> {
        let mut answers = BTreeMap::new();
        while !of.is_empty()
            && let left = self.until.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(left)).is_ok()
        {
            match self.said() {
                Ok(Some((node, bytes))) if of.remove(&node) => {
                    answers.insert(node, bytes.and_then(|bytes| read(node, bytes)));
                }
                Ok(_) => {}
                // Its end: the agent has something else to do.
                Err(_) => break,
            }
        }
        answers
    }

    /// Returns the other nodes that have ranks.
    pub fn others(&self) -> BTreeSet<u32> {
        let others = self.of_rank.iter().copied();
        others.filter(|node| *node != self.own).collect()
    }

    /// The next that a host says; `None`: nothing has come within this time.
    ///
    /// # Errors
    /// No more comes, or what came is damaged.
    pub fn next(&self, within: Duration) -> Result<Option<(u32, Vec<u8>)>> {
        let within = Some(within.max(Duration::from_micros(1)));
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, within).map_err(
            |error| Error::system(codes::G0209, "cannot limit the wait for an agent", error),
        )?;
        match self.said()? {
            None => Ok(None),
            Some((node, bytes)) => Ok(Some((node, bytes?))),
        }
    }

    fn said(&self) -> Result<Option<(u32, Result<Vec<u8>>)>> {
        let reply = match sys::recv(self.socket.as_fd(), RecvFlags::empty()) {
            Ok(reply) => reply,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => {
                return Err(Error::system(
                    codes::G0209,
                    "cannot hear the agent of that job",
                    error,
                ));
            }
        };
        believe(&self.name, &reply)?;
        match decode(&reply)? {
            ToRank::QueryResult { node } => {
                Ok(Some((node, content(reply.fds, limits::LOOK_BYTES_MAX))))
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// Decodes the snapshots of a node's ranks, each of them once.
fn seen_of(node: u32, of_rank: &[u32], bytes: &[u8]) -> Result<Vec<DetailedSnapshot>> {
    let all = snapshot::decode(bytes)?;
    let mut ranks = BTreeSet::new();
    let is_own = |seen: &DetailedSnapshot| of_rank.get(seen.rank.rank as usize) == Some(&node);
    if !all
        .iter()
        .all(|seen| is_own(seen) && ranks.insert(seen.rank.rank))
    {
        return Err(malformed("it speaks for ranks that are not its own"));
    }
    Ok(all)
}

/// Asks the agent of the job named `name` (see [`agent_discovery::jobs`]) for a look.
///
/// # Errors
/// [`Error::Timeout`] where it does not answer: somebody may have stopped it.
pub fn attach(name: &AgentSocketName) -> Result<QueryClient> {
    let AgentAnswer {
        message, fds, user, ..
    } = ask_on(name, &ToAgent::Attach, AGENT_ALONE)?;
    match message {
        ToRank::Attached {
            command,
            launcher,
            ranks,
            hosts,
            name: job_name,
            started_s,
        } => {
            let file = fds.into_iter().next();
            let world = file
                .as_ref()
                .map(|file| memory_file::open(file.as_fd(), MapAccess::Read))
                .transpose()?;
            let mut hosts: Vec<String> = hosts.lines().map(printable::line).collect();
            if let (true, Some(file), Some((shape, _))) = (hosts.is_empty(), &file, &world)
                && shape.nodes > 1
            {
                let host_table = memory_file::host_table(file.as_fd(), shape)?;
                let name = |node| host_table.endpoint(node).map(|place| place.name);
                hosts = (0..host_table.nodes()).map(name).collect::<Result<_>>()?;
            }
            Ok(QueryClient {
                name: name.clone(),
                user: user.unwrap_or(u32::MAX),
                job_name: printable::line(&job_name),
                started_s,
                command: printable::line(&command),
                launcher,
                ranks,
                hosts,
                world,
                file,
            })
        }
        ToRank::Refused { code, text } => Err(refusal(&code, text)),
        other => Err(unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_of(ranks: &[u32]) -> Vec<u8> {
        let unseen = ranks
            .iter()
            .map(|rank| DetailedSnapshot::unavailable(*rank));
        snapshot::encode(&unseen.collect::<Vec<_>>())
    }

    #[test]
    fn a_host_speaks_for_its_own_ranks_and_for_each_once() {
        let of_rank = [0, 1, 1];
        assert_eq!(seen_of(1, &of_rank, &look_of(&[1, 2])).unwrap().len(), 2);
        for wrong in [&[0, 1][..], &[1, 1], &[3]] {
            assert!(seen_of(1, &of_rank, &look_of(wrong)).is_err(), "{wrong:?}");
        }
        assert!(seen_of(1, &of_rank, b"nonsense").is_err());
    }
}
