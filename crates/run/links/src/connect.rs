//! Connecting to an agent at all of its addresses at once: the connection that first proves the
//! job's secret is kept.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::{CALL_WAIT, CUT_PAUSE, CUT_PAUSE_MAX, CUT_WAIT};
use garonne_tcp::agent_channel::{AgentChannel, ChannelConnect, ConnectOutcome};
use garonne_tcp::{HandshakeError, LocalIdentity};
use rustix::event::{PollFd, PollFlags};

use crate::addresses;

/// The agent to connect to.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTarget<'a> {
    /// Node of the agent.
    pub node: u32,
    /// The name of its host.
    pub name: &'a str,
    /// Port of the listener.
    pub port: u16,
    /// Time that it is called again where it cuts calls off.
    pub busy_retry: Duration,
    /// Descriptor whose other end the starter of this agent holds. The starter closes it when the
    /// agent is to give up.
    pub starter: Option<BorrowedFd<'a>>,
}

/// Time that those are called again who do not answer.
#[derive(Clone, Copy, Debug)]
pub struct ConnectDeadlines<'a> {
    /// Time that connections that are reset are tried again.
    pub reset_retry: Duration,
    /// Time that addresses where nobody is reached are tried again: a link may be down for a while.
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

    /// Returns whether whoever sent this agent has let go of it.
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
pub fn connect_to(
    identity: &LocalIdentity,
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
    let reached = connect_any(identity, &sockets, (node, patience)).map_err(|missed| {
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
pub struct ConnectError {
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
pub fn connect_any(
    identity: &LocalIdentity,
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
            match ChannelConnect::begin(identity, address, node) {
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

#[cfg(test)]
mod tests;
