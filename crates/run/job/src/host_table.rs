//! Where the hosts of a job are: one table in the memory that the ranks of a host share, of which
//! each reads what it needs when it needs it.
//!
//! The agent writes it once, before it hands the memory to anybody. A number for each node and one
//! more say where the node's entry begins, and where it ends: at the next. An entry is a message
//! (docs/reference/job.md, D4: 340). Whoever reads copies an entry out and trusts neither the
//! numbers nor the entry.

use garonne_sync::shm::Segment;

use crate::agent_messages::{HostEndpoint, decode_host_endpoint, encode_host_endpoint};
use crate::error::Result;
use crate::limits::PLACE_BYTES_MAX;
use crate::rank_messages::malformed;

/// Bytes of a number.
const NUMBER: usize = 4;

/// The table of these hosts.
pub fn encode(places: &[HostEndpoint]) -> Vec<u8> {
    let entries: Vec<_> = places.iter().map(encode_host_endpoint).collect();
    let mut at = (places.len() + 1) * NUMBER;
    let mut table = Vec::with_capacity(at + entries.iter().map(Vec::len).sum::<usize>());
    for entry in &entries {
        table.extend_from_slice(&(at as u32).to_le_bytes());
        at += entry.len();
    }
    table.extend_from_slice(&(at as u32).to_le_bytes());
    entries
        .iter()
        .for_each(|entry| table.extend_from_slice(entry));
    table
}

/// The entry of a node in a table of so many bytes, of which `read` copies some out.
fn find(read: impl Fn(usize, &mut [u8]), bytes: usize, node: u32) -> Result<HostEndpoint> {
    let index = (node as usize + 2).checked_mul(NUMBER);
    let index = index
        .filter(|end| *end <= bytes)
        .ok_or_else(|| malformed("there is no such host"))?;
    let number = |at: usize| {
        let mut word = [0; NUMBER];
        read(at, &mut word);
        u32::from_le_bytes(word) as usize
    };
    let (from, to) = (number(index - 2 * NUMBER), number(index - NUMBER));
    if from > to || to > bytes || to - from > PLACE_BYTES_MAX {
        return Err(malformed("a host's entry is not in its table"));
    }
    let mut entry = vec![0; to - from];
    read(from, &mut entry);
    decode_host_endpoint(&entry)
}

/// The table of hosts in the memory that the ranks of a host share. Entries are decoded when they
/// are read.
#[derive(Clone, Debug)]
pub struct HostTable {
    at: Segment,
    nodes: u32,
}

impl HostTable {
    /// The table of so many nodes that lies there.
    pub fn new(at: Segment, nodes: u32) -> Self {
        Self { at, nodes }
    }

    /// Returns how many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the addresses of a node.
    ///
    /// # Errors
    /// There is no such node, or its entry is damaged.
    pub fn endpoint(&self, node: u32) -> Result<HostEndpoint> {
        if node >= self.nodes {
            return Err(malformed("there is no such host"));
        }
        find(|at, to| self.at.read(at, to), self.at.len(), node)
    }
}

/// Reads any bytes as a table.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let read = |at: usize, to: &mut [u8]| to.copy_from_slice(&bytes[at..at + to.len()]);
    for node in [0, 1, u32::MAX] {
        let _ = find(read, bytes.len(), node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: u32) -> Vec<HostEndpoint> {
        let place = |node: u32| HostEndpoint {
            name: format!("h{node}"),
            network_id: u64::from(node),
            addresses: vec![
                std::net::IpAddr::from((0x0a00_0000 + node).to_be_bytes());
                1 + node as usize % 3
            ],
            joined: false,
            ethernet: (node % 2 == 1).then_some([2, 0, 0, 0, 0, node as u8]),
        };
        (0..count).map(place).collect()
    }

    #[test]
    fn each_host_is_found_and_no_other() {
        for count in [1, 2, 1000] {
            let (places, table) = (places(count), encode(&places(count)));
            let memory = Segment::anonymous(table.len()).unwrap();
            memory.write(0, &table);
            let host_table = HostTable::new(memory, count);
            for (node, place) in places.iter().enumerate() {
                assert_eq!(host_table.endpoint(node as u32).unwrap(), *place);
            }
            assert!(host_table.endpoint(count).is_err() && host_table.endpoint(u32::MAX).is_err());
        }
    }

    #[test]
    fn a_table_with_any_word_changed_gives_a_place_or_an_error() {
        let table = encode(&places(3));
        for at in 0..table.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut table = table.clone();
                table[at] = byte;
                read_anything(&table);
                read_anything(&table[..at]);
            }
        }
    }
}
