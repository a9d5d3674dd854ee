//! Addresses that hosts of a job have got since it began, as a table in the board of each node.
//!
//! The node's agent adds to it, ranks read it at any time: the number of entries is stored behind
//! them, and what is in is never changed. All nodes have the same entries in the same order.
//! Bounded by [`ADDED_MAX`].

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use garonne_sync::shm::Segment;

use crate::agent_messages::HostEndpoint;
use crate::layout;
use crate::limits::ADDED_MAX;

/// Bytes of an entry: its node, and an address of 16 bytes, IPv4 mapped into IPv6.
const ENTRY: usize = 20;

// The table, its length and its entries, stands at the header's end.
const _: () = assert!(layout::ADDED + 4 + ADDED_MAX * ENTRY <= layout::HEADER_BYTES);

/// A host, by its node, and an address that it has got.
pub type NewAddress = (u32, IpAddr);

/// Returns how many entries there are.
pub fn len(world_memory: &Segment) -> usize {
    // SYNC(added): the entries before the number were stored before it.
    (number(world_memory).load(Acquire) as usize).min(ADDED_MAX)
}

fn number(world_memory: &Segment) -> &AtomicU32 {
    world_memory.atomic_u32(layout::ADDED)
}

fn place(at: usize) -> usize {
    layout::ADDED + 4 + at * ENTRY
}

/// Reads the table.
pub fn read(world_memory: &Segment) -> Vec<NewAddress> {
    let entry = |at: usize| {
        let (mut node, mut octets) = ([0; 4], [0; 16]);
        world_memory.read(place(at), &mut node);
        world_memory.read(place(at) + 4, &mut octets);
        (
            u32::from_ne_bytes(node),
            Ipv6Addr::from(octets).to_canonical(),
        )
    };
    (0..len(world_memory)).map(entry).collect()
}

/// Gives hosts the addresses that they have got.
pub fn complete(places: &mut [HostEndpoint], list: &[NewAddress]) {
    for (node, address) in list {
        if let Some(place) = places.get_mut(*node as usize)
            && !place.addresses.contains(address)
        {
            place.addresses.push(*address);
        }
    }
}

/// Adds what a list has beyond the table. Only the node's agent does; it has always the same list,
/// which only grows.
pub fn show(world_memory: &Segment, list: &[NewAddress]) {
    let shown = number(world_memory).load(Relaxed) as usize;
    for (at, (node, address)) in list.iter().enumerate().take(ADDED_MAX).skip(shown) {
        let octets = match address {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => *six,
        }
        .octets();
        world_memory.write(place(at), &node.to_ne_bytes());
        world_memory.write(place(at) + 4, &octets);
        number(world_memory).store(at as u32 + 1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_read_and_what_is_too_much_is_left_out() {
        let world_memory = Segment::anonymous(layout::HEADER_BYTES).unwrap();
        let address = |node: u32| match node % 2 {
            0 => IpAddr::from((0x0a00_0000 + node).to_be_bytes()),
            _ => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, node as u16]),
        };
        let list: Vec<NewAddress> = (0..2 * ADDED_MAX as u32)
            .map(|node| (node, address(node)))
            .collect();
        for shown in [0, 1, 3, 3, ADDED_MAX, 2 * ADDED_MAX] {
            show(&world_memory, &list[..shown]);
            assert_eq!(read(&world_memory), list[..shown.min(ADDED_MAX)]);
        }
        world_memory
            .atomic_u32(layout::ADDED)
            .store(u32::MAX, Relaxed);
        assert_eq!(read(&world_memory).len(), ADDED_MAX);
    }
}
