//! The messages between a rank and its agent, and between launcher and agent
//! (docs/reference/job.md, clauses C1 to C10).
//!
//! Owns their encoding: a header of eight bytes (magic, protocol version, kind), then fields in
//! little-endian order, byte strings with a 32-bit length before them. One message is one datagram.
//! Decoding never trusts a length; a message that is too short, too long or of an unknown kind is
//! an error that names it.

use std::net::IpAddr;

use garonne_tcp::Versions;
use ipnet::IpNet;

use crate::agreement::{Contribution, Decision};
use crate::codes;
use crate::crash_report::{self, CrashReport};
use crate::error::{Error, Result};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::query::{self, Query, put_query};
use crate::registration_secret::RegistrationSecret;

/// Protocols that this side speaks.
pub const PROTOCOLS: Versions = Versions {
    lowest: 1,
    highest: 1,
};
/// Version of this library; all ranks of a world must have the same.
pub const LIBRARY_VERSION: &str = env!("CARGO_PKG_VERSION");

const MAGIC: [u8; 4] = *b"GARc";

/// Bytes before the fields of a message.
pub const HEADER_BYTES: usize = 8;

/// Returns the header of a message.
pub fn header(protocol: u16, kind: u16) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[PROTOCOL_AT].copy_from_slice(&protocol.to_le_bytes());
    header[6..].copy_from_slice(&kind.to_le_bytes());
    header
}

/// Kinds that are understood in every protocol, so that versions can be told apart by name:
/// registrations, and that one is answered by nothing more or refused.
const IN_ALL: [u16; 3] = [1, 102, 103];
/// Bytes of a message that hold its protocol version.
const PROTOCOL_AT: std::ops::Range<usize> = 4..6;

/// Returns the message with the protocol version that both sides have agreed on.
fn in_protocol(mut message: Vec<u8>, protocol: u16) -> Vec<u8> {
    if let Some(place) = message.get_mut(PROTOCOL_AT) {
        place.copy_from_slice(&protocol.to_le_bytes());
    }
    message
}

/// A network: what kind of address, the address, how many of its bits are the network's.
pub fn put_network(writer: MessageWriter, network: &IpNet) -> MessageWriter {
    let writer = match network.addr() {
        IpAddr::V4(four) => writer.raw([4]).raw(four.octets()),
        IpAddr::V6(six) => writer.raw([6]).raw(six.octets()),
    };
    writer.raw([network.prefix_len()])
}

/// Reads a network.
pub fn network(r: &mut MessageReader<'_>) -> Result<IpNet> {
    let address = match r.raw::<1>()? {
        [4] => IpAddr::from(r.raw::<4>()?),
        [6] => IpAddr::from(r.raw::<16>()?),
        _ => return Err(malformed("an address is of no known kind")),
    };
    let [bits] = r.raw()?;
    IpNet::new(address, bits).map_err(|_| malformed("a network has more bits than its address"))
}

/// From a rank (or a tool that asks about the job) to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToAgent {
    /// The calling process is the MPI process of `rank`. Carries the agent's end of a private
    /// socket.
    Register {
        /// Oldest and newest protocol that the library speaks.
        protocols: Versions,
        /// Secret that admits to the job, from the environment.
        admission: RegistrationSecret,
        /// The rank, from the environment.
        rank: u32,
        /// Process id as the process itself sees it.
        pid: u32,
        /// Version of the library.
        version: String,
    },
    /// A tool asks for a read-only look. Carries the agent's end of a private socket.
    Attach,
    /// MPI_Finalize, or the finalization of the last session, has completed.
    Finalized,
    /// The process uses MPI again, by a session, after it said `Finalized`.
    Resumed,
    /// End the job.
    Abort {
        /// Exit code that the program asked for.
        code: i32,
        /// Text to print; may be empty.
        text: String,
    },
    /// Error of a call, printed as the rank's last words should it end soon.
    Report {
        /// Text to print.
        text: String,
    },
    /// Stores a value under a key.
    Put {
        /// Name.
        key: String,
        /// Bytes.
        value: Vec<u8>,
    },
    /// Asks for the value of a key; answered when there is one.
    Get {
        /// Name.
        key: String,
    },
    /// Answered when all ranks of the world have sent it.
    Fence,
    /// A rank of another host is to call this one, which does not reach it.
    ReverseConnect {
        /// Peer of the connection.
        peer: u32,
        /// For bulk data, not for packets.
        bulk: bool,
    },
    /// A rank of another host does not reach this one, nor this one it.
    Unreachable {
        /// Peer of the connection.
        peer: u32,
    },
    /// A rank of another host, and why this one cannot have a connection to it, which ends the job.
    ConnectionRefused {
        /// Peer of the connection.
        peer: u32,
        /// Code for `garonne explain`.
        code: String,
        /// Why there can be no connection.
        text: String,
    },
    /// A signal ends this rank, which stands still until the agent says on its card that it may
    /// end.
    Crashed(CrashReport),
    /// A tool wants a network out of use between hosts, or in use again; answered with
    /// `Acknowledged`. Carries the agent's end of a private socket.
    DisableNetwork {
        /// The network.
        network: IpNet,
        /// Out of use.
        drained: bool,
    },
    /// Flight recorder of this rank. Carries the memory file.
    FlightRecorder,
    /// A tool asks what the ranks of all other hosts show; answered with `QueryStarted`, and then
    /// with `QueryResult` for each that answers. Carries the agent's end of a private socket.
    Query(Query),
    /// The rank's contribution to an agreement; answered with `Decided` when that is decided.
    Agree(Contribution),
}

/// From the agent to a rank or tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRank {
    /// Registered. Carries the world's memory file and the lifeline.
    Welcome {
        /// Protocol chosen.
        protocol: u16,
        /// Rank.
        rank: u32,
    },
    /// The process should be a world of one: it was started by a rank, and is not one itself.
    Singleton,
    /// Not registered.
    Refused {
        /// Code for `garonne explain`.
        code: String,
        /// Line for the user.
        text: String,
    },
    /// Answer to `Get`.
    Value {
        /// Bytes.
        value: Vec<u8>,
    },
    /// Answer to `Fence`.
    Fenced,
    /// Answer to `Abort` of a rank that another launcher started: what is to be said of it is said.
    Acknowledged,
    /// Answer to `Attach`. Carries the memory file of the newest world, if there is one.
    Attached {
        /// Command line of the job.
        command: String,
        /// Process id of the launcher.
        launcher: u32,
        /// Number of ranks started.
        ranks: u32,
        /// Names of the job's hosts, by node, a line each; empty where there is one.
        hosts: String,
        /// The job's name, the same on all its hosts.
        name: String,
        /// When the job was started, in seconds since 1970; 0: not known.
        started_s: u64,
    },
    /// Answer to `Query`: the other hosts are asked. Carries a file with the node of each rank, 32
    /// bits each.
    QueryStarted {
        /// The node of the agent that is asked.
        node: u32,
    },
    /// Snapshot of a host's ranks, in the file that this message carries.
    QueryResult {
        /// The host.
        node: u32,
    },
    /// Answer to `Agree`, which may come at any time.
    Decided(Decision),
}

/// Between launcher and agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LauncherMessage {
    /// The launcher received this signal; `broadcast` when the kernel sent it to the whole process
    /// group already.
    Signal {
        /// Signal number.
        signal: i32,
        /// True if ranks have it already.
        broadcast: bool,
    },
    /// A world of a traced job begins. Carries its memory file.
    NewWorld,
    /// The agent speaks with that of a node by this connection from now on. Carries its socket.
    AgentConnection {
        /// Node of the other agent.
        node: u32,
    },
    /// The job has ended badly. Carries the memory file of its newest world on this host.
    FlightRecording {
        /// The rank that is to blame, if one is.
        rank: Option<u32>,
    },
    /// Flight recorder of a rank. Carries the memory file.
    FlightRecorder {
        /// The rank.
        rank: u32,
        /// Process of the rank.
        process: u32,
    },
    /// The job is over with this exit code.
    Done {
        /// Exit code.
        code: i32,
    },
}

/// Texts longer than a message are cut at a character.
pub fn truncate(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES_MAX - 64);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Builds a message.
pub struct MessageWriter(pub Vec<u8>);

impl MessageWriter {
    /// Makes one.
    pub fn new(kind: u16) -> Self {
        let mut bytes = Vec::with_capacity(64);
        // What nothing was agreed about is said so that all understand it that can.
        bytes.extend(header(PROTOCOLS.lowest, kind));
        Self(bytes)
    }

    /// Appends or reads bytes of a fixed length.
    pub fn raw<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Appends or reads bytes behind their length.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend((bytes.len() as u32).to_le_bytes());
        self.0.extend(bytes);
        self
    }
}

/// Reads a message, and trusts nothing.
pub struct MessageReader<'a> {
    rest: &'a [u8],
}

impl<'a> MessageReader<'a> {
    /// Makes one.
    pub fn new(message: &'a [u8]) -> Result<(u16, Self)> {
        let mut reader = Self { rest: message };
        let magic = reader.raw()?;
        let protocol = u16::from_le_bytes(reader.raw()?);
        let kind = u16::from_le_bytes(reader.raw()?);
        if magic != MAGIC {
            return Err(malformed("it does not begin as one"));
        }
        let spoken = PROTOCOLS.agree((protocol, protocol).into()).is_ok();
        if !spoken && !IN_ALL.contains(&kind) {
            return Err(Error::peer(
                codes::G0203,
                format!("message of protocol {protocol}, this side speaks {PROTOCOLS}"),
            ));
        }
        Ok((kind, reader))
    }

    /// Appends or reads bytes of a fixed length.
    pub fn raw<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| malformed("it is too short"))?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads 16 bits.
    pub fn u16(&mut self) -> Result<u16> {
        self.raw().map(u16::from_le_bytes)
    }

    /// Reads 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        self.raw().map(u32::from_le_bytes)
    }

    /// Appends or reads bytes behind their length.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| malformed("a length reaches beyond its end"))?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads text behind its length.
    pub fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// Reads what a newer writer adds at the end; the default for an older one.
    fn rest<T: Default>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        match self.rest.is_empty() {
            true => Ok(T::default()),
            false => read(self),
        }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Checks that nothing is left, and returns the value.
    pub fn end<T>(self, value: T) -> Result<T> {
        match self.rest.is_empty() {
            true => Ok(value),
            false => Err(malformed("it is too long")),
        }
    }
}

/// Returns the error for a message that cannot be read.
pub fn malformed(why: &str) -> Error {
    Error::peer(codes::G0209, format!("a control message is damaged: {why}"))
}

impl ToAgent {
    /// Bytes of the message in the protocol that was agreed on.
    pub fn encode_in(&self, protocol: u16) -> Vec<u8> {
        in_protocol(self.encode(), protocol)
    }

    /// Bytes of the message where nothing is agreed on yet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToAgent::Register {
                protocols,
                admission,
                rank,
                pid,
                version,
            } => MessageWriter::new(1)
                .raw(protocols.lowest.to_le_bytes())
                .raw(protocols.highest.to_le_bytes())
                .raw(admission.bytes())
                .raw(rank.to_le_bytes())
                .raw(pid.to_le_bytes())
                .bytes(version.as_bytes()),
            ToAgent::Attach => MessageWriter::new(2),
            ToAgent::Finalized => MessageWriter::new(3),
            ToAgent::Abort { code, text } => MessageWriter::new(4)
                .raw(code.to_le_bytes())
                .bytes(text.as_bytes()),
            ToAgent::Report { text } => MessageWriter::new(5).bytes(text.as_bytes()),
            ToAgent::Put { key, value } => MessageWriter::new(6).bytes(key.as_bytes()).bytes(value),
            ToAgent::Get { key } => MessageWriter::new(7).bytes(key.as_bytes()),
            ToAgent::Fence => MessageWriter::new(8),
            ToAgent::Resumed => MessageWriter::new(9),
            ToAgent::ReverseConnect { peer, bulk } => MessageWriter::new(10)
                .raw(peer.to_le_bytes())
                .raw(u32::from(*bulk).to_le_bytes()),
            ToAgent::Unreachable { peer } => MessageWriter::new(11).raw(peer.to_le_bytes()),
            ToAgent::DisableNetwork { network, drained } => {
                put_network(MessageWriter::new(12), network).raw([u8::from(*drained)])
            }
            ToAgent::FlightRecorder => MessageWriter::new(16),
            ToAgent::Query(wish) => put_query(MessageWriter::new(13), *wish),
            ToAgent::Agree(given) => given.put(MessageWriter::new(17)),
            ToAgent::ConnectionRefused { peer, code, text } => MessageWriter::new(14)
                .raw(peer.to_le_bytes())
                .bytes(code.as_bytes())
                .bytes(text.as_bytes()),
            ToAgent::Crashed(crash) => MessageWriter::new(crash_report::KIND).raw(crash.fields()),
        }
        .0
    }

    /// Reads a message.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        let value = match kind {
            1 => ToAgent::Register {
                protocols: (r.u16()?, r.u16()?).into(),
                admission: RegistrationSecret::from_bytes(r.raw()?),
                rank: r.u32()?,
                pid: r.u32()?,
                version: r.text()?,
            },
            2 => ToAgent::Attach,
            3 => ToAgent::Finalized,
            4 => ToAgent::Abort {
                code: r.u32()? as i32,
                text: r.text()?,
            },
            5 => ToAgent::Report { text: r.text()? },
            6 => ToAgent::Put {
                key: r.text()?,
                value: r.bytes()?.to_vec(),
            },
            7 => ToAgent::Get { key: r.text()? },
            8 => ToAgent::Fence,
            9 => ToAgent::Resumed,
            10 => ToAgent::ReverseConnect {
                peer: r.u32()?,
                bulk: r.u32()? != 0,
            },
            11 => ToAgent::Unreachable { peer: r.u32()? },
            12 => ToAgent::DisableNetwork {
                network: network(&mut r)?,
                drained: r.raw()? != [0],
            },
            13 => ToAgent::Query(query::read_query(&mut r)?),
            16 => ToAgent::FlightRecorder,
            17 => ToAgent::Agree(Contribution::read(&mut r)?),
            14 => ToAgent::ConnectionRefused {
                peer: r.u32()?,
                code: r.text()?,
                text: r.text()?,
            },
            crash_report::KIND => ToAgent::Crashed(CrashReport::read(&mut r)?),
            _ => return Err(malformed(&format!("its kind {kind} is unknown"))),
        };
        r.end(value)
    }
}

impl ToRank {
    /// Bytes of the message in the protocol that was agreed on.
    pub fn encode_in(&self, protocol: u16) -> Vec<u8> {
        in_protocol(self.encode(), protocol)
    }

    /// Bytes of the message where nothing is agreed on yet, or of the one that tells what is.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToRank::Welcome { protocol, rank } => {
                MessageWriter(in_protocol(MessageWriter::new(101).0, *protocol))
                    .raw(protocol.to_le_bytes())
                    .raw(rank.to_le_bytes())
            }
            ToRank::Singleton => MessageWriter::new(102),
            ToRank::Refused { code, text } => MessageWriter::new(103)
                .bytes(code.as_bytes())
                .bytes(text.as_bytes()),
            ToRank::Value { value } => MessageWriter::new(104).bytes(value),
            ToRank::Fenced => MessageWriter::new(105),
            ToRank::Acknowledged => MessageWriter::new(107),
            ToRank::Attached {
                command,
                launcher,
                ranks,
                hosts,
                name,
                started_s,
            } => MessageWriter::new(106)
                .bytes(command.as_bytes())
                .raw(launcher.to_le_bytes())
                .raw(ranks.to_le_bytes())
                .bytes(hosts.as_bytes())
                .bytes(name.as_bytes())
                .raw(started_s.to_le_bytes()),
            ToRank::QueryStarted { node } => MessageWriter::new(108).raw(node.to_le_bytes()),
            ToRank::QueryResult { node } => MessageWriter::new(109).raw(node.to_le_bytes()),
            ToRank::Decided(decision) => decision.put(MessageWriter::new(110)),
        }
        .0
    }

    /// Reads a message.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        let value = match kind {
            101 => ToRank::Welcome {
                protocol: r.u16()?,
                rank: r.u32()?,
            },
            102 => ToRank::Singleton,
            103 => ToRank::Refused {
                code: r.text()?,
                text: r.text()?,
            },
            104 => ToRank::Value {
                value: r.bytes()?.to_vec(),
            },
            105 => ToRank::Fenced,
            107 => ToRank::Acknowledged,
            106 => ToRank::Attached {
                command: r.text()?,
                launcher: r.u32()?,
                ranks: r.u32()?,
                hosts: r.text()?,
                // An agent that was started before there were names says nothing more.
                name: r.rest(MessageReader::text)?,
                started_s: r.rest(|r| r.raw().map(u64::from_le_bytes))?,
            },
            108 => ToRank::QueryStarted { node: r.u32()? },
            109 => ToRank::QueryResult { node: r.u32()? },
            110 => ToRank::Decided(Decision::read(&mut r)?),
            _ => return Err(malformed(&format!("its kind {kind} is unknown"))),
        };
        r.end(value)
    }
}

impl LauncherMessage {
    /// Bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            LauncherMessage::Signal { signal, broadcast } => MessageWriter::new(201)
                .raw(signal.to_le_bytes())
                .raw(u32::from(*broadcast).to_le_bytes()),
            LauncherMessage::Done { code } => MessageWriter::new(202).raw(code.to_le_bytes()),
            LauncherMessage::NewWorld => MessageWriter::new(203),
            LauncherMessage::FlightRecording { rank } => {
                MessageWriter::new(205).raw(rank.unwrap_or(u32::MAX).to_le_bytes())
            }
            LauncherMessage::FlightRecorder { rank, process } => MessageWriter::new(206)
                .raw(rank.to_le_bytes())
                .raw(process.to_le_bytes()),
            LauncherMessage::AgentConnection { node } => {
                MessageWriter::new(204).raw(node.to_le_bytes())
            }
        }
        .0
    }

    /// Reads a message.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        let value = match kind {
            201 => LauncherMessage::Signal {
                signal: r.u32()? as i32,
                broadcast: r.u32()? != 0,
            },
            203 => LauncherMessage::NewWorld,
            205 => LauncherMessage::FlightRecording {
                rank: Some(r.u32()?).filter(|rank| *rank != u32::MAX),
            },
            206 => LauncherMessage::FlightRecorder {
                rank: r.u32()?,
                process: r.u32()?,
            },
            204 => LauncherMessage::AgentConnection { node: r.u32()? },
            202 => LauncherMessage::Done {
                code: r.u32()? as i32,
            },
            _ => return Err(malformed(&format!("its kind {kind} is unknown"))),
        };
        r.end(value)
    }
}

/// Reads any bytes as each kind of message: any process of the user may send them.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let _ = (
        ToAgent::decode(bytes),
        ToRank::decode(bytes),
        LauncherMessage::decode(bytes),
    );
    crate::agent_messages::read_anything(bytes);
}

#[cfg(test)]
mod tests;
