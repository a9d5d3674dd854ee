//! Networks that the ranks of a job are not to use between hosts, as a table in the board of each
//! node.
//!
//! The node's agent writes it, ranks and tools read it at any time: a number that is odd while it
//! is written, and changes with it. Bounded by [`DRAINED_MAX`].
//!
//! No two hosts are to lose each other by it (`garonne_links::reachability`): their ranks would go
//! on using what they have in common, whatever they were told.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};

use garonne_sync::shm::Segment;
use ipnet::IpNet;

use crate::layout;
use crate::limits::{DISABLED_READS, DRAINED_MAX};

/// Bytes of an entry: an address of 16 bytes, IPv4 mapped into IPv6, and the bits of its network.
const ENTRY: usize = 20;
/// Bytes of the table: its number, its length, its entries.
pub const BYTES: usize = 8 + DRAINED_MAX * ENTRY;

/// The table's number, which changes with its content.
pub fn number(world_memory: &Segment) -> &AtomicU32 {
    world_memory.atomic_u32(layout::DRAINED)
}

/// Reads the table.
pub fn read(world_memory: &Segment) -> Vec<IpNet> {
    let mut bytes = [0; BYTES];
    for _ in 0..DISABLED_READS {
        // SYNC(drained): the same even number before and after, so the bytes between belong
        // together.
        let before = number(world_memory).load(Acquire);
        world_memory.read(layout::DRAINED, &mut bytes);
        fence(Acquire);
        if before.is_multiple_of(2) && number(world_memory).load(Relaxed) == before {
            break;
        }
        std::hint::spin_loop();
    }
    // Of an agent that died while it wrote half a table is read; the job ends with it.
    decode(&bytes)
}

/// Returns whether one of these networks is that one, or has it within.
pub fn is_within(networks: &[IpNet], network: &IpNet) -> bool {
    networks.iter().any(|out| out.contains(network))
}

/// Returns the network of the list that contains another and more: what is left alone as a whole is
/// not used in parts.
pub fn covering<'a>(networks: &'a [IpNet], network: &IpNet) -> Option<&'a IpNet> {
    networks
        .iter()
        .find(|out| *out != network && out.contains(network))
}

/// Replaces the table. Only the node's agent does.
pub fn write(world_memory: &Segment, networks: &[IpNet]) {
    let before = number(world_memory).load(Relaxed);
    number(world_memory).store(before.wrapping_add(1), Relaxed);
    fence(Release);
    let bytes = encode(networks);
    world_memory.write(layout::DRAINED + 4, &bytes[4..]);
    number(world_memory).store(before.wrapping_add(2), Release);
}

fn encode(networks: &[IpNet]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let shown = &networks[..networks.len().min(DRAINED_MAX)];
    bytes[4..8].copy_from_slice(&(shown.len() as u32).to_le_bytes());
    for (entry, network) in bytes[8..].chunks_exact_mut(ENTRY).zip(shown) {
        let (address, mapped) = match network.addr() {
            IpAddr::V4(four) => (four.to_ipv6_mapped(), 96),
            IpAddr::V6(six) => (six, 0),
        };
        entry[..16].copy_from_slice(&address.octets());
        entry[16..].copy_from_slice(&(mapped + u32::from(network.prefix_len())).to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8; BYTES]) -> Vec<IpNet> {
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let len = (word(&bytes[4..]) as usize).min(DRAINED_MAX);
    let network = |entry: &[u8]| {
        let octets: [u8; 16] = entry[..16].try_into().ok()?;
        let bits = u8::try_from(word(&entry[16..])).ok()?;
        let six = Ipv6Addr::from(octets);
        match six.to_ipv4_mapped() {
            Some(four) => IpNet::new(four.into(), bits.checked_sub(96)?).ok(),
            None => IpNet::new(six.into(), bits).ok(),
        }
    };
    bytes[8..]
        .chunks_exact(ENTRY)
        .take(len)
        .filter_map(network)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_table_reads_back_as_written() {
        let networks: Vec<IpNet> = ["10.77.1.0/24", "fd00:77::/64", "0.0.0.0/0"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        assert_eq!(decode(&encode(&networks)), networks);
        assert_eq!(decode(&encode(&[])), []);
        let many = vec![networks[0]; 2 * DRAINED_MAX];
        assert_eq!(decode(&encode(&many)).len(), DRAINED_MAX);
    }

    #[test]
    fn a_part_of_what_is_left_alone_is_left_alone_with_it() {
        let [all, part, other]: [IpNet; 3] =
            ["10.0.0.0/16", "10.0.1.0/24", "10.1.0.0/24"].map(|text| text.parse().unwrap());
        assert!(is_within(&[other, all], &part) && is_within(&[all], &all));
        assert!(!is_within(&[part, other], &all));
        assert_eq!(covering(&[part, all], &part), Some(&all));
        assert_eq!(
            [covering(&[all], &all), covering(&[part], &all)],
            [None, None]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table(bytes in prop::collection::vec(any::<u8>(), BYTES)) {
            assert!(decode(&bytes.try_into().unwrap()).len() <= DRAINED_MAX);
        }
    }
}
