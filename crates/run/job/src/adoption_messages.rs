//! Messages between a rank that another launcher started and the agent that it starts
//! (docs/reference/job.md, clauses E1 to E5).

use std::net::IpAddr;

use garonne_tcp::{SECRET_BYTES, Secret};

use crate::agent_messages::{addresses, put_addresses, put_numbers, ranks};
use crate::agent_socket_name::AgentSocketName;
use crate::error::Result;
use crate::job::{Job, Program, StdinReaders};
use crate::job_name;
use crate::limits::{FAN_OUT_MAX, HOSTS_MAX, MESSAGE_BYTES_MAX, RANKS_MAX};
use crate::node_map::NodeMap;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};
use crate::registration_secret::RegistrationSecret;

/// The request of a rank to an agent that it has started: which ranks to adopt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionRequest {
    /// Name of their launcher.
    pub launcher: String,
    /// Program that the ranks run, for tools.
    pub program: String,
    /// A process above them.
    pub parent: u32,
    /// The rank that asks.
    pub leader: u32,
    /// How many agents report to one.
    pub fan_out: u32,
    /// Nodes of all ranks of the job, by rank; node 0 is that of rank 0.
    pub of_rank: Vec<u32>,
}

/// The address of a host's agent, as its ranks use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLocation {
    /// By what name its ranks find it.
    pub name: AgentSocketName,
    /// Identity of its network, which its ranks must share.
    pub network_id: u64,
    /// Secret that admits to the agent.
    pub secret: RegistrationSecret,
}

/// The address at which an agent accepts its child agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildListener {
    /// Port of the listener.
    pub port: u16,
    /// Addresses of the host.
    pub addresses: Vec<IpAddr>,
}

/// Identity of the job and address of its root agent. An agent is told it with the address of its
/// parent instead.
#[derive(Clone, Debug)]
pub struct RootAgent {
    /// Version of its library.
    pub version: String,
    /// The job.
    pub job: u128,
    /// The secret of a job on several hosts.
    pub secret: Option<Secret>,
    /// How many agents report to one.
    pub fan_out: u32,
    /// Port of the listener.
    pub port: u16,
    /// Addresses of the host.
    pub addresses: Vec<IpAddr>,
}

/// Ranks whose nodes go in one message: it is half as long as the longest.
const RANKS_PER_MESSAGE: usize = MESSAGE_BYTES_MAX / 8;

impl AdoptionRequest {
    /// The messages that say it: what all ranks have in common, then their nodes.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let head = MessageWriter::new(361)
            .bytes(self.launcher.as_bytes())
            .bytes(self.program.as_bytes())
            .raw(self.parent.to_le_bytes())
            .raw(self.leader.to_le_bytes())
            .raw(self.fan_out.to_le_bytes())
            .raw((self.of_rank.len() as u32).to_le_bytes());
        let part = |nodes: &[u32]| {
            let nodes = nodes.iter().map(|node| node.to_le_bytes());
            put_numbers(MessageWriter::new(364), nodes).0
        };
        let parts = self.of_rank.chunks(RANKS_PER_MESSAGE).map(part);
        std::iter::once(head.0).chain(parts).collect()
    }

    /// Reads them as they come.
    ///
    /// # Errors
    /// One is damaged, or does not come.
    pub fn decode(mut next: impl FnMut() -> Result<Vec<u8>>) -> Result<Self> {
        let head = next()?;
        let (kind, mut r) = MessageReader::new(&head)?;
        if kind != 361 {
            return Err(malformed("it asks for no adoption"));
        }
        let mut adoption = Self {
            launcher: r.text()?,
            program: r.text()?,
            parent: r.u32()?,
            leader: r.u32()?,
            fan_out: r.u32()?,
            of_rank: Vec::new(),
        };
        let ranks = r.u32()?;
        r.end(())?;
        if adoption.leader >= ranks
            || ranks > RANKS_MAX
            || !(2..=FAN_OUT_MAX).contains(&adoption.fan_out)
        {
            return Err(malformed("it adopts a rank that is not there"));
        }
        while adoption.of_rank.len() < ranks as usize {
            let nodes = Self::nodes(&next()?)?;
            if nodes.is_empty() || nodes.len() > ranks as usize - adoption.of_rank.len() {
                return Err(malformed("it says nothing of some ranks, or too much"));
            }
            adoption.of_rank.extend(nodes);
        }
        Ok(adoption)
    }

    /// The nodes of some ranks.
    fn nodes(message: &[u8]) -> Result<Vec<u32>> {
        let (kind, mut r) = MessageReader::new(message)?;
        if kind != 364 {
            return Err(malformed("it does not say where ranks are"));
        }
        let nodes = ranks(&mut r)?;
        if nodes.iter().any(|node| *node as usize >= HOSTS_MAX) {
            return Err(malformed("it puts a rank on a node that no job has"));
        }
        r.end(nodes)
    }

    /// The job of which these are ranks.
    pub fn job(&self) -> Job {
        let ranks = self.of_rank.len() as u32;
        let mut job = Job::new(vec![Program {
            argv: vec![self.program.clone().into()],
            ranks,
            ..Program::default()
        }]);
        job.command = format!("{} ({ranks} ranks of {})", self.program, self.launcher);
        job.started_s = job_name::now_s();
        job.stdin = StdinReaders::Nobody;
        job.fan_out = self.fan_out;
        let nodes = self.of_rank.iter().max().map_or(1, |last| last + 1);
        if nodes > 1 {
            job.nodes = NodeMap {
                names: (0..nodes)
                    .map(|node| format!("node {node} of the job"))
                    .collect(),
                of_rank: self.of_rank.clone(),
            };
        }
        job
    }
}

impl AgentLocation {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        MessageWriter::new(362)
            .bytes(self.name.0.as_bytes())
            .raw(self.network_id.to_le_bytes())
            .raw(self.secret.bytes())
            .0
    }

    /// Decodes the message. Anything else is an error.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        if kind != 362 {
            return Err(malformed("it does not say where an agent is"));
        }
        let settled = Self {
            name: AgentSocketName(r.text()?),
            network_id: u64::from_le_bytes(r.raw()?),
            secret: RegistrationSecret::from_bytes(r.raw()?),
        };
        r.end(settled)
    }
}

impl ChildListener {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        put_addresses(
            MessageWriter::new(365).raw(self.port.to_le_bytes()),
            &self.addresses,
        )
        .0
    }

    /// Decodes the message. Anything else is an error.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        if kind != 365 {
            return Err(malformed("it does not say where an agent takes calls"));
        }
        let listener = Self {
            port: r.u16()?,
            addresses: addresses(&mut r)?,
        };
        r.end(listener)
    }
}

impl RootAgent {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let secret = self
            .secret
            .as_ref()
            .map_or([0; SECRET_BYTES], |secret| *secret.bytes());
        let writer = MessageWriter::new(363)
            .bytes(self.version.as_bytes())
            .raw(self.job.to_le_bytes())
            .raw([u8::from(self.secret.is_some())])
            .raw(secret)
            .raw(self.fan_out.to_le_bytes())
            .raw(self.port.to_le_bytes());
        put_addresses(writer, &self.addresses).0
    }

    /// Decodes the message. Anything else is an error.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        if kind != 363 {
            return Err(malformed("it does not say where the first agent is"));
        }
        let (version, job) = (r.text()?, u128::from_le_bytes(r.raw()?));
        let there = r.raw()? != [0];
        let secret = Secret::from_bytes(&r.raw::<SECRET_BYTES>()?);
        let first = Self {
            version,
            job,
            secret: there.then_some(secret),
            fan_out: r.u32()?,
            port: r.u16()?,
            addresses: addresses(&mut r)?,
        };
        r.end(first)
    }
}

/// Reads any bytes as each kind of message.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let mut parts = bytes.chunks(bytes.len() / 2 + 1).map(<[u8]>::to_vec);
    let next = || parts.next().ok_or_else(|| malformed("it ends"));
    let _ = (
        AdoptionRequest::decode(next),
        AdoptionRequest::nodes(bytes),
        ChildListener::decode(bytes),
        AgentLocation::decode(bytes),
        RootAgent::decode(bytes),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_messages::LIBRARY_VERSION;

    fn read(messages: &[Vec<u8>]) -> Result<AdoptionRequest> {
        let mut messages = messages.iter().cloned();
        AdoptionRequest::decode(|| messages.next().ok_or_else(|| malformed("it ends")))
    }

    #[test]
    fn messages_read_back_and_no_prefix_of_one_is_accepted() {
        let adoption = AdoptionRequest {
            launcher: "a launcher".into(),
            program: "prog".into(),
            parent: 17,
            leader: 2,
            fan_out: 8,
            of_rank: (0..RANKS_MAX).map(|rank| rank % HOSTS_MAX as u32).collect(),
        };
        let messages = adoption.encode();
        assert!(
            messages.len() > 2
                && messages
                    .iter()
                    .all(|message| message.len() < MESSAGE_BYTES_MAX)
        );
        assert_eq!(read(&messages).unwrap(), adoption);
        assert!(read(&messages[..2]).is_err());
        let listener = ChildListener {
            port: 4001,
            addresses: vec!["10.0.0.2".parse().unwrap()],
        };
        assert_eq!(ChildListener::decode(&listener.encode()).unwrap(), listener);
        let settled = AgentLocation {
            name: AgentSocketName("garonne/job/1/2".into()),
            network_id: 99,
            secret: RegistrationSecret::from_bytes([4; 16]),
        };
        assert_eq!(AgentLocation::decode(&settled.encode()).unwrap(), settled);
        let first = RootAgent {
            version: LIBRARY_VERSION.into(),
            job: 5,
            secret: Some(Secret::from_bytes(&[3; SECRET_BYTES])),
            fan_out: 32,
            port: 4000,
            addresses: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        };
        let again = RootAgent::decode(&first.encode()).unwrap();
        assert_eq!((again.job, again.port, again.addresses.len()), (5, 4000, 2));
        assert_eq!(again.secret.unwrap().bytes(), &[3; SECRET_BYTES]);
        for bytes in [
            messages[0].clone(),
            listener.encode(),
            settled.encode(),
            first.encode(),
        ] {
            for cut in 0..bytes.len() {
                assert!(read(&[bytes[..cut].to_vec()]).is_err());
                assert!(ChildListener::decode(&bytes[..cut]).is_err());
                assert!(AgentLocation::decode(&bytes[..cut]).is_err());
                assert!(RootAgent::decode(&bytes[..cut]).is_err());
            }
        }
    }

    #[test]
    fn a_leader_that_is_no_rank_is_refused() {
        let adoption = AdoptionRequest {
            launcher: String::new(),
            program: String::new(),
            parent: 1,
            leader: 2,
            fan_out: 8,
            of_rank: vec![0, 0],
        };
        assert!(read(&adoption.encode()).is_err());
    }
}
