//! What agents of several hosts say to each other (docs/reference/job.md, clauses D1 to D16): the
//! bootstrap message ([`AgentBootstrap`]) that an agent finds on its standard input, commands of
//! the first agent (the launcher's) to the others, and their reports.
//!
//! Owns the encoding, which is that of [`crate::rank_messages`]. Whoever sends these has proved the
//! job's secret, but nothing here trusts a length.

mod endpoints;
mod job;
mod rank_exit;
mod reachability;
mod relay_routes;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use garonne_tcp::{LIBRARY, SECRET_BYTES, Secret, VERSIONS, Versions};

pub use self::endpoints::{
    HostEndpoint, NodeEndpoints, decode_host_endpoint, encode_host_endpoint,
};
use self::endpoints::{put_node_endpoints, read_node_endpoints};
use self::job::{job, put_job};
pub use self::rank_exit::RankExit;
use self::rank_exit::{put_rank_exits, read_rank_exits};
pub use self::reachability::InterfaceAddress;
pub use self::relay_routes::{RelayRoute, RendezvousPoint, ReverseConnectRequest};
use self::relay_routes::{
    put_relay_route, put_rendezvous_point, put_reverse_connect, read_relay_route,
    read_rendezvous_point, read_reverse_connect,
};
use crate::agreement::{Contribution, Decision};
use crate::codes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::limits;
use crate::new_networks::NewAddress;
pub use crate::query::{Query, QueryId};
use crate::query::{put_query, put_query_id, read_query, read_query_id};
use crate::rank_messages::{MessageReader, MessageWriter, malformed, network, put_network};
use ipnet::IpNet;

/// The first message to an agent that is started on another host, on its standard input.
#[derive(Clone, Debug)]
pub struct AgentBootstrap {
    /// The job.
    pub job: u128,
    /// The secret that both ends of every connection of the job prove.
    pub secret: Secret,
    /// The agent's node.
    pub node: u32,
    /// The name of its host, as the user gave it.
    pub name: String,
    /// The node that it reports to.
    pub parent: u32,
    /// The name of that one's host.
    pub parent_name: String,
    /// Port at which the parent listens.
    pub port: u16,
    /// All addresses of the parent's host.
    pub addresses: Vec<IpAddr>,
}

/// An output stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// From the first agent to another, passed on by those between them.
#[derive(Clone, Debug)]
pub enum AgentCommand {
    /// The job that is to be run.
    Job(Box<Job>),
    /// Some of the hosts, in the order of nodes: all of them come before
    /// [`AgentCommand::StartRanks`].
    Hosts(Vec<NodeEndpoints>),
    /// All agents are there: start.
    StartRanks,
    /// An order for a node below, to be passed on.
    Forward(u32, Vec<u8>),
    /// A signal for the job.
    Signal(i32),
    /// The job has failed: ranks are to end.
    End {
        /// Ranks may end by themselves for a while first.
        patient: bool,
        /// The job's exit code.
        code: i32,
    },
    /// All ranks of all hosts have ended.
    Finish,
    /// Credit for so many more bytes of a stream.
    StreamCredit(u32, OutputStream, u32),
    /// Standard input for the rank that reads it; empty: its end.
    Input(Vec<u8>),
    /// Ranks of other nodes that have ended well.
    Ended(Vec<u32>),
    /// A rank of that node is to call another.
    ReverseConnect(ReverseConnectRequest),
    /// Ranks are not to use these networks, and may use all others.
    DisabledNetworks(Vec<IpNet>),
    /// Addresses that hosts have got since the job began: all, in the order in which they were
    /// found.
    NewAddresses(Vec<NewAddress>),
    /// Whether that node reaches the one that is called: `from` calls `to` in vain.
    ProbeRelay(ReverseConnectRequest),
    /// Ranks of that node reach those of `to` through `via`.
    AddRelayRoute(RelayRoute),
    /// Ranks of the two hosts may meet at that node, if these reach it.
    OpenRendezvous(ReverseConnectRequest),
    /// Whether that node reaches the one where two may meet.
    TryRendezvous(RendezvousPoint),
    /// All but that node are to say what their ranks show of this.
    Query(QueryId, Query),
    /// All agents are to report their addresses: a network is to be disabled.
    ReportAddresses(u32),
    /// Result of a drain request, for the tool that asked at that node; an empty text is success.
    DrainResult(u32, String),
    /// Answer of that node to a query, for the tool that asked at the receiver.
    QueryResult(u32, QueryId, Vec<u8>),
    /// Ranks that have died, while the job goes on.
    RanksDied(Vec<u32>),
    /// An agreement is decided.
    Decided(Decision),
    /// Nothing; the line is alive.
    Ping,
}

/// From another agent to the first, passed on by those between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentReport {
    /// Some of those at and below a node, all of which know the job and can start their ranks.
    Ready(Vec<NodeEndpoints>),
    /// Child agents can connect at this port of these addresses.
    Listening(u16, Vec<IpAddr>),
    /// A report of a node below.
    FromNode(u32, Vec<u8>),
    /// Output of a rank; empty: its end.
    Output(u32, OutputStream, Vec<u8>),
    /// Something failed that ends the job, with the rank's last words, if it was one.
    Failed {
        /// Rank that failed.
        rank: Option<u32>,
        /// Exit code of the job.
        code: i32,
        /// The rank had finalized MPI.
        finalized: bool,
        /// Last words of the rank.
        report: String,
        /// Line that says what happened.
        line: String,
    },
    /// Ranks that have ended, well or not.
    RanksEnded(Vec<u32>),
    /// Number of bytes of standard input that were passed on.
    StdinTaken(u32),
    /// A line for the user.
    Print(String),
    /// What the host's ranks lack of the requested binding, in words that follow their numbers.
    Unbound(String),
    /// How the ranks of the host have ended: the last but Done, and once.
    RankExits(Vec<RankExit>),
    /// Nothing runs at the node and below it any more; the last message.
    Done,
    /// A rank of another node is to call one of this.
    ReverseConnect(ReverseConnectRequest),
    /// Somebody, whom the number tells apart from others who ask there, wants a network out of use,
    /// or in use again.
    DisableNetwork(IpNet, bool, u32),
    /// Addresses of the host, as the root asked for.
    Addresses(u32, Vec<InterfaceAddress>),
    /// The host has got these addresses.
    NewAddresses(Vec<IpAddr>),
    /// The node reaches the rank that is called, and relays connections at this port.
    RelayOpened(ReverseConnectRequest, u16),
    /// Two may meet there, at this port.
    RendezvousOpened(ReverseConnectRequest, u16),
    /// The node reaches the rendezvous.
    RendezvousReached(RendezvousPoint),
    /// Somebody asks there what the ranks of all other hosts show of this; the number tells it
    /// apart from others who ask.
    Query(u32, Query),
    /// Answer of this host to a query.
    QueryResult(QueryId, Vec<u8>),
    /// A rank has died, with this exit code, and the job goes on; its last words, and the line that
    /// says what happened.
    RankDied(u32, i32, String, String),
    /// Contribution of this rank to an agreement.
    Agree(u32, Contribution),
    /// Nothing; the line is alive.
    Ping,
}

/// Appends addresses: their number, then each with its family.
pub fn put_addresses(writer: MessageWriter, addresses: &[IpAddr]) -> MessageWriter {
    let shown = &addresses[..addresses.len().min(limits::ADDRESSES_MAX)];
    let writer = writer.raw((shown.len() as u32).to_le_bytes());
    shown.iter().fold(writer, |writer, address| match address {
        IpAddr::V4(four) => writer.raw([4]).raw(four.octets()),
        IpAddr::V6(six) => writer.raw([6]).raw(six.octets()),
    })
}

/// Returns how many things follow, each of at least `least` bytes.
fn count(r: &mut MessageReader<'_>, least: usize, most: usize) -> Result<usize> {
    let count = r.u32()? as usize;
    if count > most || count > r.left() / least.max(1) {
        return Err(malformed("it announces more than it holds"));
    }
    Ok(count)
}

/// Reads addresses.
pub fn addresses(r: &mut MessageReader<'_>) -> Result<Vec<IpAddr>> {
    let count = count(r, 5, limits::ADDRESSES_MAX)?;
    let address = |r: &mut MessageReader<'_>| match r.raw::<1>()? {
        [4] => Ok(IpAddr::V4(Ipv4Addr::from(r.raw::<4>()?))),
        [6] => Ok(IpAddr::V6(Ipv6Addr::from(r.raw::<16>()?))),
        _ => Err(malformed("an address is of no known kind")),
    };
    (0..count).map(|_| address(r)).collect()
}

/// Appends numbers: how many there are, then each.
pub fn put_numbers<const N: usize>(
    writer: MessageWriter,
    numbers: impl ExactSizeIterator<Item = [u8; N]>,
) -> MessageWriter {
    let writer = writer.raw((numbers.len() as u32).to_le_bytes());
    numbers.fold(writer, MessageWriter::raw)
}

fn ports(r: &mut MessageReader<'_>) -> Result<Vec<u16>> {
    let count = count(r, 2, limits::RANKS_MAX as usize)?;
    (0..count).map(|_| r.u16()).collect()
}

/// Reads numbers of ranks.
pub fn ranks(r: &mut MessageReader<'_>) -> Result<Vec<u32>> {
    let count = count(r, 4, limits::RANKS_MAX as usize)?;
    (0..count).map(|_| r.u32()).collect()
}

fn output_stream(code: u32) -> Result<OutputStream> {
    match code {
        0 => Ok(OutputStream::Out),
        1 => Ok(OutputStream::Err),
        _ => Err(malformed("there is no such stream")),
    }
}

fn optional(rank: Option<u32>) -> [u8; 4] {
    rank.unwrap_or(u32::MAX).to_le_bytes()
}

impl AgentBootstrap {
    /// Bytes of the bootstrap message, its length before them.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSIONS, LIBRARY)
    }

    /// Encodes the message for a library of that name and these versions. Name and versions come
    /// first, at the same place in all formats, since nothing was agreed on yet.
    fn encode_as(&self, versions: Versions, library: &str) -> Vec<u8> {
        let writer = MessageWriter::new(341)
            .raw(versions.lowest.to_le_bytes())
            .raw(versions.highest.to_le_bytes())
            .bytes(library.as_bytes())
            .raw(self.job.to_le_bytes())
            .raw(*self.secret.bytes())
            .raw(self.node.to_le_bytes())
            .raw(self.port.to_le_bytes())
            .bytes(self.name.as_bytes())
            .raw(self.parent.to_le_bytes())
            .bytes(self.parent_name.as_bytes());
        let body = put_addresses(writer, &self.addresses).0;
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    /// Reads a bootstrap message, without its length.
    ///
    /// # Errors
    /// It is damaged, or that of another library.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        if kind != 341 {
            return Err(malformed("it is no bootstrap message"));
        }
        let (theirs, library) = (Versions::from((r.u16()?, r.u16()?)), r.text()?);
        if library != LIBRARY || VERSIONS.agree(theirs).is_err() {
            return Err(Error::peer(
                codes::G0203,
                format!(
                    "the host above runs {library} with formats {theirs}, this one {LIBRARY} with {VERSIONS}"
                ),
            ));
        }
        let bootstrap = Self {
            job: u128::from_le_bytes(r.raw()?),
            secret: Secret::from_bytes(&r.raw::<SECRET_BYTES>()?),
            node: r.u32()?,
            port: r.u16()?,
            name: r.text()?,
            parent: r.u32()?,
            parent_name: r.text()?,
            addresses: addresses(&mut r)?,
        };
        r.end(bootstrap)
    }
}

impl AgentCommand {
    /// Returns whether all agents are to obey it, and so those between pass it on.
    pub fn is_for_all(&self) -> bool {
        match self {
            AgentCommand::Hosts(_)
            | AgentCommand::StartRanks
            | AgentCommand::Signal(_)
            | AgentCommand::End { .. }
            | AgentCommand::Finish
            | AgentCommand::Ended(_)
            | AgentCommand::DisabledNetworks(_)
            | AgentCommand::NewAddresses(_)
            | AgentCommand::ReportAddresses(_)
            | AgentCommand::RanksDied(_)
            | AgentCommand::Decided(_)
            | AgentCommand::Query(..) => true,
            // A job is told to those who call; the others are one node's, or one line's.
            AgentCommand::Job(_)
            | AgentCommand::Forward(..)
            | AgentCommand::StreamCredit(..)
            | AgentCommand::Input(_)
            | AgentCommand::ReverseConnect(_)
            | AgentCommand::ProbeRelay(_)
            | AgentCommand::AddRelayRoute(_)
            | AgentCommand::OpenRendezvous(_)
            | AgentCommand::TryRendezvous(_)
            | AgentCommand::DrainResult(..)
            | AgentCommand::QueryResult(..)
            | AgentCommand::Ping => false,
        }
    }

    /// Bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            AgentCommand::Job(job) => put_job(MessageWriter::new(301), job),
            AgentCommand::StartRanks => MessageWriter::new(302),
            AgentCommand::Signal(signal) => MessageWriter::new(303).raw(signal.to_le_bytes()),
            AgentCommand::End { patient, code } => MessageWriter::new(304)
                .raw([u8::from(*patient)])
                .raw(code.to_le_bytes()),
            AgentCommand::Finish => MessageWriter::new(305),
            AgentCommand::StreamCredit(rank, side, bytes) => MessageWriter::new(306)
                .raw(rank.to_le_bytes())
                .raw((*side as u32).to_le_bytes())
                .raw(bytes.to_le_bytes()),
            AgentCommand::Input(bytes) => MessageWriter::new(307).bytes(bytes),
            AgentCommand::Ended(ranks) => put_numbers(
                MessageWriter::new(308),
                ranks.iter().map(|rank| rank.to_le_bytes()),
            ),
            AgentCommand::RanksDied(ranks) => put_numbers(
                MessageWriter::new(348),
                ranks.iter().map(|rank| rank.to_le_bytes()),
            ),
            AgentCommand::Decided(decision) => decision.put(MessageWriter::new(349)),
            AgentCommand::Ping => MessageWriter::new(309),
            AgentCommand::ReverseConnect(call) => {
                put_reverse_connect(MessageWriter::new(310), call)
            }
            AgentCommand::DisabledNetworks(networks) => {
                let writer = MessageWriter::new(311).raw((networks.len() as u32).to_le_bytes());
                networks.iter().fold(writer, put_network)
            }
            AgentCommand::NewAddresses(list) => {
                let writer = MessageWriter::new(316).raw((list.len() as u32).to_le_bytes());
                list.iter().fold(writer, |writer, (node, address)| {
                    put_addresses(writer.raw(node.to_le_bytes()), &[*address])
                })
            }
            AgentCommand::ReportAddresses(question) => {
                MessageWriter::new(343).raw(question.to_le_bytes())
            }
            AgentCommand::DrainResult(number, text) => MessageWriter::new(345)
                .raw(number.to_le_bytes())
                .bytes(text.as_bytes()),
            AgentCommand::ProbeRelay(call) => put_reverse_connect(MessageWriter::new(312), call),
            AgentCommand::AddRelayRoute(way) => put_relay_route(MessageWriter::new(313), way),
            AgentCommand::OpenRendezvous(call) => {
                put_reverse_connect(MessageWriter::new(319), call)
            }
            AgentCommand::TryRendezvous(venue) => {
                put_rendezvous_point(MessageWriter::new(320), venue)
            }
            AgentCommand::Hosts(hosts) => put_node_endpoints(MessageWriter::new(314), hosts),
            AgentCommand::Forward(node, order) => {
                MessageWriter::new(315).raw(node.to_le_bytes()).bytes(order)
            }
            AgentCommand::Query(asked, wish) => {
                put_query(put_query_id(MessageWriter::new(317), asked), *wish)
            }
            AgentCommand::QueryResult(node, asked, look) => {
                put_query_id(MessageWriter::new(318).raw(node.to_le_bytes()), asked).bytes(look)
            }
        }
        .0
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is damaged.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        let order = match kind {
            301 => AgentCommand::Job(Box::new(job(&mut r)?)),
            302 => AgentCommand::StartRanks,
            303 => AgentCommand::Signal(r.u32()? as i32),
            304 => AgentCommand::End {
                patient: r.raw()? != [0],
                code: r.u32()? as i32,
            },
            305 => AgentCommand::Finish,
            306 => AgentCommand::StreamCredit(r.u32()?, output_stream(r.u32()?)?, r.u32()?),
            307 => AgentCommand::Input(r.bytes()?.to_vec()),
            308 => AgentCommand::Ended(ranks(&mut r)?),
            309 => AgentCommand::Ping,
            348 => AgentCommand::RanksDied(ranks(&mut r)?),
            349 => AgentCommand::Decided(Decision::read(&mut r)?),
            310 => AgentCommand::ReverseConnect(read_reverse_connect(&mut r)?),
            311 => {
                let count = count(&mut r, 6, limits::DRAINED_MAX)?;
                AgentCommand::DisabledNetworks(
                    (0..count).map(|_| network(&mut r)).collect::<Result<_>>()?,
                )
            }
            312 => AgentCommand::ProbeRelay(read_reverse_connect(&mut r)?),
            313 => AgentCommand::AddRelayRoute(read_relay_route(&mut r)?),
            314 => AgentCommand::Hosts(read_node_endpoints(&mut r)?),
            315 => AgentCommand::Forward(r.u32()?, r.bytes()?.to_vec()),
            316 => {
                let count = count(&mut r, 13, limits::ADDED_MAX)?;
                let of_node = |r: &mut MessageReader<'_>| {
                    let (node, found) = (r.u32()?, addresses(r)?);
                    let [address] = found[..] else {
                        return Err(malformed("an entry has one address"));
                    };
                    Ok((node, address))
                };
                AgentCommand::NewAddresses(
                    (0..count).map(|_| of_node(&mut r)).collect::<Result<_>>()?,
                )
            }
            317 => AgentCommand::Query(read_query_id(&mut r)?, read_query(&mut r)?),
            318 => AgentCommand::QueryResult(r.u32()?, read_query_id(&mut r)?, r.bytes()?.to_vec()),
            319 => AgentCommand::OpenRendezvous(read_reverse_connect(&mut r)?),
            320 => AgentCommand::TryRendezvous(read_rendezvous_point(&mut r)?),
            343 => AgentCommand::ReportAddresses(r.u32()?),
            345 => AgentCommand::DrainResult(r.u32()?, r.text()?),
            _ => return Err(malformed(&format!("its kind {kind} is unknown"))),
        };
        r.end(order)
    }
}

impl AgentReport {
    /// Bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            AgentReport::Ready(hosts) => put_node_endpoints(MessageWriter::new(321), hosts),
            AgentReport::Output(rank, side, bytes) => MessageWriter::new(322)
                .raw(rank.to_le_bytes())
                .raw((*side as u32).to_le_bytes())
                .bytes(bytes),
            AgentReport::Failed {
                rank,
                code,
                finalized,
                report,
                line,
            } => MessageWriter::new(323)
                .raw(optional(*rank))
                .raw(code.to_le_bytes())
                .raw([u8::from(*finalized)])
                .bytes(report.as_bytes())
                .bytes(line.as_bytes()),
            AgentReport::RanksEnded(ranks) => put_numbers(
                MessageWriter::new(324),
                ranks.iter().map(|rank| rank.to_le_bytes()),
            ),
            AgentReport::StdinTaken(bytes) => MessageWriter::new(325).raw(bytes.to_le_bytes()),
            AgentReport::Print(line) => MessageWriter::new(326).bytes(line.as_bytes()),
            AgentReport::Unbound(what) => MessageWriter::new(346).bytes(what.as_bytes()),
            AgentReport::RankExits(all) => put_rank_exits(MessageWriter::new(347), all),
            AgentReport::RankDied(rank, code, report, line) => MessageWriter::new(350)
                .raw(rank.to_le_bytes())
                .raw(code.to_le_bytes())
                .bytes(report.as_bytes())
                .bytes(line.as_bytes()),
            AgentReport::Agree(rank, given) => {
                given.put(MessageWriter::new(351).raw(rank.to_le_bytes()))
            }
            AgentReport::Done => MessageWriter::new(327),
            AgentReport::Ping => MessageWriter::new(328),
            AgentReport::ReverseConnect(call) => put_reverse_connect(MessageWriter::new(329), call),
            AgentReport::DisableNetwork(network, drained, number) => {
                put_network(MessageWriter::new(330), network)
                    .raw([u8::from(*drained)])
                    .raw(number.to_le_bytes())
            }
            AgentReport::Addresses(question, all) => reachability::put_interface_addresses(
                MessageWriter::new(344).raw(question.to_le_bytes()),
                all,
            ),
            AgentReport::NewAddresses(found) => put_addresses(MessageWriter::new(334), found),
            AgentReport::RelayOpened(call, port) => {
                put_reverse_connect(MessageWriter::new(331), call).raw(port.to_le_bytes())
            }
            AgentReport::RendezvousOpened(call, port) => {
                put_reverse_connect(MessageWriter::new(337), call).raw(port.to_le_bytes())
            }
            AgentReport::RendezvousReached(venue) => {
                put_rendezvous_point(MessageWriter::new(338), venue)
            }
            AgentReport::Listening(port, addresses) => {
                put_addresses(MessageWriter::new(332).raw(port.to_le_bytes()), addresses)
            }
            AgentReport::Query(number, wish) => {
                put_query(MessageWriter::new(335).raw(number.to_le_bytes()), *wish)
            }
            AgentReport::QueryResult(asked, look) => {
                put_query_id(MessageWriter::new(336), asked).bytes(look)
            }
            AgentReport::FromNode(node, report) => MessageWriter::new(333)
                .raw(node.to_le_bytes())
                .bytes(report),
        }
        .0
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is damaged.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        let report = match kind {
            321 => AgentReport::Ready(read_node_endpoints(&mut r)?),
            322 => AgentReport::Output(r.u32()?, output_stream(r.u32()?)?, r.bytes()?.to_vec()),
            323 => AgentReport::Failed {
                rank: Some(r.u32()?).filter(|rank| *rank != u32::MAX),
                code: r.u32()? as i32,
                finalized: r.raw()? != [0],
                report: r.text()?,
                line: r.text()?,
            },
            324 => AgentReport::RanksEnded(ranks(&mut r)?),
            325 => AgentReport::StdinTaken(r.u32()?),
            326 => AgentReport::Print(r.text()?),
            346 => AgentReport::Unbound(r.text()?),
            347 => AgentReport::RankExits(read_rank_exits(&mut r)?),
            327 => AgentReport::Done,
            350 => AgentReport::RankDied(r.u32()?, r.u32()? as i32, r.text()?, r.text()?),
            351 => AgentReport::Agree(r.u32()?, Contribution::read(&mut r)?),
            328 => AgentReport::Ping,
            329 => AgentReport::ReverseConnect(read_reverse_connect(&mut r)?),
            330 => AgentReport::DisableNetwork(network(&mut r)?, r.raw()? != [0], r.u32()?),
            344 => {
                AgentReport::Addresses(r.u32()?, reachability::read_interface_addresses(&mut r)?)
            }
            331 => AgentReport::RelayOpened(read_reverse_connect(&mut r)?, r.u16()?),
            332 => AgentReport::Listening(r.u16()?, addresses(&mut r)?),
            333 => AgentReport::FromNode(r.u32()?, r.bytes()?.to_vec()),
            334 => AgentReport::NewAddresses(addresses(&mut r)?),
            335 => AgentReport::Query(r.u32()?, read_query(&mut r)?),
            336 => AgentReport::QueryResult(read_query_id(&mut r)?, r.bytes()?.to_vec()),
            337 => AgentReport::RendezvousOpened(read_reverse_connect(&mut r)?, r.u16()?),
            338 => AgentReport::RendezvousReached(read_rendezvous_point(&mut r)?),
            _ => return Err(malformed(&format!("its kind {kind} is unknown"))),
        };
        r.end(report)
    }
}

/// Returns whether a message, or the one in it that is for or of another node, shows a host's
/// ranks: what may be left out where a line is far behind.
pub fn shows_ranks(message: &[u8]) -> bool {
    let shows = |kind| matches!(kind, 318 | 336);
    MessageReader::new(message).is_ok_and(|(kind, mut r)| match kind {
        315 | 333 => {
            let inner = r.u32().and_then(|_| r.bytes()).and_then(MessageReader::new);
            inner.is_ok_and(|(kind, _)| shows(kind))
        }
        kind => shows(kind),
    })
}

/// Reads any bytes as each kind of message.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let _ = (
        AgentBootstrap::decode(bytes),
        decode_host_endpoint(bytes),
        AgentCommand::decode(bytes),
        AgentReport::decode(bytes),
    );
    let _ = crate::snapshot::decode(bytes);
    crate::host_table::read_anything(bytes);
    crate::adoption_messages::read_anything(bytes);
    crate::join_messages::read_anything(bytes);
}

#[cfg(test)]
mod format_checksums;
#[cfg(test)]
mod tests;
