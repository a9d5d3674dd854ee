//! `garonne agent`: what the launcher has started on another host.
//!
//! Reads its errand from standard input (never arguments or environment: others may read those),
//! calls the launcher's agent at all addresses at once and keeps the line that first proves the
//! job's secret, is told the job, and goes on as the launcher of this host's part. Until the line
//! stands, words go to standard error, which whoever started it passes on to the user. A host that
//! joins gets its errand on the line that it has made, and goes on in the same way ([`join`]).

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use garonne_rails::tcp::agent_channel::{self, AgentChannel, ChannelConnect, ConnectOutcome};
use garonne_rails::tcp::{HandshakeError, LocalIdentity};
use garonne_topology::CpuSet;
use rustix::event::{PollFd, PollFlags};

use crate::addresses;
use crate::agent::{AgentStart, RootConnection, rank_start};
use crate::cpu_claims;
use crate::launcher;
use crate::rank_slots;
use garonne_job::agent_messages::{AgentBootstrap, AgentCommand};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::{Job, PlacementOptions};
use garonne_job::layout::JobId;
use garonne_job::limits::{
    BUSY_WAIT, CALL_WAIT, CUT_PAUSE, CUT_PAUSE_MAX, CUT_WAIT, ERRAND_BYTES_MAX,
};

/// Does the errand on standard input. Returns the exit code of this process, which nobody but the
/// one who started it sees.
pub fn serve() -> i32 {
    match serve_bootstrap() {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    }
}

fn serve_bootstrap() -> Result<i32> {
    let errand = read_bootstrap(std::io::stdin().lock())?;
    let house = agent_channel::house(errand.secret.clone(), errand.job.to_ne_bytes(), errand.node);
    let until = Instant::now() + BUSY_WAIT;
    let input = std::io::stdin();
    let whom = ConnectTarget {
        node: errand.parent,
        name: &errand.parent_name,
        port: errand.port,
        busy_retry: BUSY_WAIT,
        starter: Some(input.as_fd()),
    };
    loop {
        let (mut line, reached) = connect_to(&house, &errand.addresses, &whom)?;
        match receive_job(&mut line)? {
            Some(job) => return run_as_agent(errand, job, line, (reached, AgentOrigin::Started)),
            // It was answered, but its proof came when its place was gone.
            None if Instant::now() < until => {}
            None => return Err(closed()),
        }
    }
}

fn closed() -> Error {
    Error::peer(codes::G0216, "the launcher has closed the connection")
}

/// How an agent came to be that of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentOrigin {
    /// The job has started it: its ranks run as on the job's own host, in the same directory and
    /// environment.
    Started,
    /// The host has joined: its ranks run as this process does.
    Joined,
}

/// Is told the job on the line that a host which joins has made, and runs its part of it. Returns
/// the code of this process.
pub(crate) fn join(errand: AgentBootstrap, mut line: AgentChannel, reached: IpAddr) -> Result<i32> {
    let job = receive_job(&mut line)?.ok_or_else(closed)?;
    run_as_agent(errand, job, line, (reached, AgentOrigin::Joined))
}

/// Runs this node's part of the job that the first agent has told on its line.
fn run_as_agent(
    errand: AgentBootstrap,
    mut job: Job,
    line: AgentChannel,
    (reached, manner): (IpAddr, AgentOrigin),
) -> Result<i32> {
    if manner == AgentOrigin::Joined {
        job.env = Some(rank_start::environment_of_guest(
            job.env.take().unwrap_or_default(),
        ));
    }
    if let Some(cpus) = CpuSet::parse(&job.cpus).filter(|cpus| !cpus.is_empty())
        && let Err(error) = cpu_claims::confine(&cpus)
    {
        let text = format!(
            "the job cannot be confined to CPUs {cpus} on host '{}'",
            errand.name
        );
        return Err(Error::system(codes::G0211, text, error));
    }
    let ranks = job.ranks_of(errand.node);
    let placed = match rank_slots::place(&job, &ranks) {
        Some(placed) => placed,
        None => Ok(cpu_claims::place_ranks(ranks.len() as u32, &job.policy)),
    };
    // The claim on the CPUs lasts as long as the job.
    if let Err(Error::Misuse { text, .. }) = &placed {
        job.fault = Some(format!("host '{}': {text}", errand.name));
    }
    if let Ok(placed) = &placed {
        job.shortfall = placed.shortfall(&job.policy).filter(|_| !ranks.is_empty());
        job.placement = spread(&placed.placement, &ranks, job.size());
    }
    let outer = RootConnection {
        job: JobId(errand.job),
        node: errand.node,
        secret: errand.secret,
        line,
        parent: errand.parent,
        reached,
        port: errand.port,
        guest: manner == AgentOrigin::Joined,
        porch: None,
    };
    launcher::launch_as(&job, AgentStart::Outer(Box::new(outer)), &mut drop)
}

/// The placement of some of a job's ranks as one of all, of which the others are not here.
pub fn spread(placed: &PlacementOptions, ranks: &[u32], size: u32) -> PlacementOptions {
    if placed.masks.is_empty() {
        return placed.clone();
    }
    let mut masks = vec![Vec::new(); size as usize];
    for (mask, rank) in placed.masks.iter().zip(ranks) {
        masks[*rank as usize].clone_from(mask);
    }
    let mut helpers = vec![String::new(); size as usize];
    for (cpus, rank) in placed.helpers.iter().zip(ranks) {
        helpers[*rank as usize].clone_from(cpus);
    }
    PlacementOptions {
        masks,
        helpers,
        ..placed.clone()
    }
}

fn read_bootstrap(mut from: impl Read) -> Result<AgentBootstrap> {
    let failed = |error| {
        let text = "no errand on standard input; `garonne agent` is started by `garonne run --host`, not by hand";
        Error::system(codes::G0216, text, error)
    };
    let mut len = [0; 4];
    from.read_exact(&mut len).map_err(failed)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > ERRAND_BYTES_MAX {
        let text = "what is on standard input is no errand; `garonne agent` is started by `garonne run --host`, not by hand";
        return Err(Error::misuse(codes::G0216, text));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes).map_err(failed)?;
    AgentBootstrap::decode(&bytes)
}

/// The agent to connect to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTarget<'a> {
    /// Node of the agent.
    pub node: u32,
    /// The name of its host.
    pub name: &'a str,
    /// Port of the listener.
    pub port: u16,
    /// How long it is called again where it cuts calls off.
    pub busy_retry: Duration,
    /// Descriptor whose other end the starter of this agent holds. The starter closes it when the
    /// agent is to give up.
    pub starter: Option<BorrowedFd<'a>>,
}

/// How long those are called again who do not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectDeadlines<'a> {
    /// How long connections that are reset are tried again.
    pub reset_retry: Duration,
    /// How long addresses where nobody is reached are tried again: a link may be down for a while.
    pub unreachable_retry: Duration,
    /// Addresses where nobody is reached are called again as long as another has not answered.
    pub beside: bool,
    /// See [`ConnectTarget::starter`].
    pub starter: Option<BorrowedFd<'a>>,
}

impl ConnectDeadlines<'_> {
    /// Returns the deadlines for a key that may be another job's, or an old one.
    pub fn with_key() -> Self {
        Self {
            reset_retry: CUT_WAIT,
            unreachable_retry: Duration::ZERO,
            beside: true,
            starter: None,
        }
    }

    /// Whether whoever sent this agent has let go of it.
    fn starter_is_gone(&self) -> bool {
        let Some(sender) = &self.starter else {
            return false;
        };
        let mut fds = [PollFd::from_borrowed_fd(*sender, PollFlags::empty())];
        let _ = rustix::event::poll(&mut fds, Some(&crate::sys::timespec(Duration::ZERO)));
        fds[0].revents().contains(PollFlags::HUP)
    }
}

/// Calls all addresses at once; the first that answers and proves the secret is kept.
pub(crate) fn connect_to(
    house: &LocalIdentity,
    addresses: &[IpAddr],
    whom: &ConnectTarget<'_>,
) -> Result<(AgentChannel, IpAddr)> {
    let ConnectTarget { node, port, .. } = *whom;
    let (named, called): (Vec<IpAddr>, Vec<IpAddr>) = addresses
        .iter()
        .partition(|one| addresses::is_link_local(one));
    let sockets: Vec<_> = called
        .iter()
        .map(|address| SocketAddr::new(*address, port))
        .collect();
    let patience = ConnectDeadlines {
        reset_retry: whom.busy_retry,
        // What a host has for itself alone is none of it from another one, however long that is
        // tried.
        beside: false,
        unreachable_retry: match called.iter().all(IpAddr::is_loopback) {
            true => Duration::ZERO,
            false => CALL_WAIT,
        },
        starter: whom.starter,
    };
    let reached = connect_any(house, &sockets, (node, patience)).map_err(|missed| {
        let whose = match node {
            0 => String::from("the launcher's host"),
            _ => format!("host '{}', whose agent this one reports to,", whom.name),
        };
        let tried = missed.tried.join("; ");
        let text = match called.iter().all(IpAddr::is_loopback) {
            true => format!(
                "{whose} has no address that other hosts can use: {}",
                only(&named, &tried)
            ),
            false => format!("{whose} is not reached at any of its addresses ({tried})"),
        };
        Error::peer(codes::G0216, text)
    });
    reached.map(|(line, address)| (line, address.ip()))
}

/// Returns the addresses of a host that nobody else can use: link-local addresses, and what was
/// tried of its own for itself, since it may have been this host.
fn only(link_local: &[IpAddr], tried: &str) -> String {
    let link_local: Vec<_> = link_local.iter().map(IpAddr::to_string).collect();
    let interfaces = match link_local.is_empty() {
        true => String::from("its interfaces have none"),
        false => format!(
            "its interfaces have only link-local ones ({})",
            link_local.join(", ")
        ),
    };
    match tried.is_empty() {
        true => interfaces,
        false => {
            format!("{interfaces}, and what it has for itself leads nowhere from here ({tried})")
        }
    }
}

/// Why nobody was reached.
#[derive(Debug, Default)]
pub(crate) struct ConnectError {
    /// By address.
    pub tried: Vec<String>,
    /// Refusal by a process that answered.
    pub refused: Option<(SocketAddr, HandshakeError)>,
    /// Address that reset connections to the end, as a process does that knows another secret.
    pub cut: Option<SocketAddr>,
}

/// A call that came to nothing, and is made again.
struct RetriedCall {
    address: SocketAddr,
    at: Instant,
    /// How long after the last time.
    pause: Duration,
    /// Why the last attempt failed.
    why: String,
    /// The last attempt was reset.
    cut: bool,
}

/// Connects to all addresses at once and keeps the connection that first proves the secret. The
/// error says for each address why it failed.
pub(crate) fn connect_any(
    house: &LocalIdentity,
    addresses: &[SocketAddr],
    (node, patience): (u32, ConnectDeadlines<'_>),
) -> std::result::Result<(AgentChannel, SocketAddr), Box<ConnectError>> {
    let begun = Instant::now();
    let (mut until, cut_until) = (begun + CALL_WAIT, begun + patience.reset_retry);
    let missed_until = begun + patience.unreachable_retry;
    let mut failures: Vec<String> = Vec::new();
    let (mut refused, mut cut) = (None, None);
    let mut calls = Vec::new();
    let mut again: Vec<RetriedCall> = Vec::new();
    let jitter = Duration::from_millis(u64::from(std::process::id() % 32));
    // At once, as if a call had failed before.
    let mut due: Vec<(SocketAddr, Duration)> =
        addresses.iter().map(|one| (*one, CUT_PAUSE)).collect();
    loop {
        for (address, pause) in due.drain(..) {
            match ChannelConnect::begin(house, address, node) {
                Ok(call) => calls.push((address, pause, call)),
                Err(why) => again.push(RetriedCall {
                    address,
                    at: Instant::now() + pause + jitter,
                    pause,
                    why,
                    cut: false,
                }),
            }
        }
        let over = |one: &mut RetriedCall| match one.cut {
            // That one was kept for long and then cut off says less than what comes of the next.
            true => one.at >= cut_until && one.pause > CUT_PAUSE,
            false => one.at >= missed_until && (!patience.beside || calls.is_empty()),
        };
        for one in again.extract_if(.., over) {
            cut = cut.or(one.cut.then_some(one.address));
            failures.push(format!("{}: {}", one.address, one.why));
        }
        let now = Instant::now();
        // One that has taken the call is busy, as one that cuts it off.
        if now >= until && now < cut_until && calls.iter().any(|(.., call)| call.has_called()) {
            until = cut_until;
        }
        if (calls.is_empty() && again.is_empty()) || now >= until || patience.starter_is_gone() {
            break;
        }
        let next = again.iter().map(|one| one.at).chain([until]).min();
        let limit = next.unwrap_or(until).saturating_duration_since(now);
        let ready = ready(&calls, limit);
        let mut waiting = Vec::new();
        for ((address, pause, mut call), ready) in calls.into_iter().zip(ready) {
            let fails = |why, cut| RetriedCall {
                address,
                at: Instant::now() + pause + jitter,
                pause,
                why,
                cut,
            };
            match if ready {
                call.look()
            } else {
                ConnectOutcome::Waits
            } {
                ConnectOutcome::Open(line) => return Ok((*line, address)),
                ConnectOutcome::Waits => waiting.push((address, pause, call)),
                ConnectOutcome::Cut(why) => {
                    again.push(fails(why, true));
                    until = until.max(cut_until);
                }
                ConnectOutcome::Refused(fault) => {
                    failures.push(format!("{address}: {fault}"));
                    // Who is no Garonne at all says less than another rank or agent.
                    refused = refused
                        .filter(|(_, fault)| !matches!(fault, HandshakeError::Garbage))
                        .or(Some((address, fault)));
                }
                ConnectOutcome::Failed(why) => again.push(fails(why, false)),
            }
        }
        calls = waiting;
        let now = Instant::now();
        let is_due = again.extract_if(.., |one| one.at <= now);
        due.extend(is_due.map(|one| (one.address, (2 * one.pause).min(CUT_PAUSE_MAX))));
    }
    failures.extend(
        calls
            .iter()
            .map(|(address, ..)| format!("{address}: no answer")),
    );
    failures.extend(
        again
            .iter()
            .map(|one| format!("{}: {}", one.address, one.why)),
    );
    let last_cut = again.iter().find(|one| one.cut).map(|one| one.address);
    Err(Box::new(ConnectError {
        tried: failures,
        refused,
        cut: cut.or(last_cut),
    }))
}

/// Waits until one of these connections can go on or time is over, and returns which can.
fn ready(calls: &[(SocketAddr, Duration, ChannelConnect)], limit: Duration) -> Vec<bool> {
    let mut fds = Vec::new();
    for (.., call) in calls {
        let room = match call.has_called() {
            true => PollFlags::empty(),
            false => PollFlags::OUT,
        };
        fds.extend(
            call.fd()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN | room)),
        );
    }
    let _ = rustix::event::poll(&mut fds, Some(&crate::sys::timespec(limit)));
    fds.iter().map(|fd| !fd.revents().is_empty()).collect()
}

/// The job that this node has a part in. `None`: the launcher has closed the connection before it
/// had said anything.
fn receive_job(line: &mut AgentChannel) -> Result<Option<Job>> {
    let until = Instant::now() + CALL_WAIT;
    loop {
        let Ok(received) = line.push().and_then(|()| line.receive()) else {
            return Ok(None);
        };
        if let Some(message) = received {
            return match AgentCommand::decode(&message)? {
                AgentCommand::Job(job) => Ok(Some(*job)),
                _ => Err(Error::peer(
                    codes::G0216,
                    "the launcher does not say what is to be run",
                )),
            };
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::peer(codes::G0216, "the launcher says nothing"));
        }
        let mut fds = [PollFd::from_borrowed_fd(line.fd(), PollFlags::IN)];
        let limit = crate::sys::timespec(left);
        let _ = rustix::event::poll(&mut fds, Some(&limit));
    }
}

#[cfg(test)]
mod tests;
