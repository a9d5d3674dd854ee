//! Hosts as agents tell of them: where each is, and the ports of its ranks (docs/reference/job.md,
//! D4).

use std::net::IpAddr;

use super::{addresses, count, ports, put_addresses, put_numbers};
use crate::error::Result;
use crate::limits;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};

/// A host as others reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostEndpoint {
    /// Name that `MPI_Get_processor_name` gives on the host.
    pub name: String,
    /// Identity of its network: two nodes with the same share one, with all addresses.
    pub network_id: u64,
    /// Addresses of the host.
    pub addresses: Vec<IpAddr>,
    /// The host has joined with a key: it reaches the root's host, and perhaps nobody reaches it.
    pub joined: bool,
    /// Address of the interface by which its ranks take Ethernet frames, if they do.
    pub ethernet: Option<[u8; 6]>,
}

/// A node that is ready: where it is, and the ports of its ranks, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEndpoints {
    /// The node.
    pub node: u32,
    /// Addresses of the node's host.
    pub place: HostEndpoint,
    /// Ports of its ranks.
    pub ports: Vec<u16>,
}

fn put_host_endpoint(writer: MessageWriter, place: &HostEndpoint) -> MessageWriter {
    let writer = writer
        .bytes(place.name.as_bytes())
        .raw(place.network_id.to_le_bytes());
    let writer = writer.raw([u8::from(place.joined)]);
    // No interface has the address of zeros.
    let writer = writer.raw(place.ethernet.unwrap_or_default());
    put_addresses(writer, &place.addresses)
}

fn read_host_endpoint(r: &mut MessageReader<'_>) -> Result<HostEndpoint> {
    Ok(HostEndpoint {
        name: r.text()?,
        network_id: u64::from_le_bytes(r.raw()?),
        joined: r.raw()? != [0],
        ethernet: Some(r.raw()?).filter(|address| *address != [0; 6]),
        addresses: addresses(r)?,
    })
}

/// A place as it stands in the table that ranks read (`host_table`).
pub fn encode_host_endpoint(place: &HostEndpoint) -> Vec<u8> {
    put_host_endpoint(MessageWriter::new(340), place).0
}

/// Reads it.
///
/// # Errors
/// It is damaged.
pub fn decode_host_endpoint(message: &[u8]) -> Result<HostEndpoint> {
    let (kind, mut r) = MessageReader::new(message)?;
    if kind != 340 {
        return Err(malformed("it is no host"));
    }
    let place = read_host_endpoint(&mut r)?;
    r.end(place)
}

pub(super) fn put_node_endpoints(writer: MessageWriter, hosts: &[NodeEndpoints]) -> MessageWriter {
    let writer = writer.raw((hosts.len() as u32).to_le_bytes());
    hosts.iter().fold(writer, |writer, host| {
        let writer = put_host_endpoint(writer.raw(host.node.to_le_bytes()), &host.place);
        put_numbers(writer, host.ports.iter().map(|port| port.to_le_bytes()))
    })
}

pub(super) fn read_node_endpoints(r: &mut MessageReader<'_>) -> Result<Vec<NodeEndpoints>> {
    let count = count(r, 31, limits::HOSTS_PER_MESSAGE)?;
    let host = |r: &mut MessageReader<'_>| {
        Ok(NodeEndpoints {
            node: r.u32()?,
            place: read_host_endpoint(r)?,
            ports: ports(r)?,
        })
    };
    (0..count).map(|_| host(r)).collect()
}
