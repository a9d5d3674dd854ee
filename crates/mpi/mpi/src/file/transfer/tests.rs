//! Which bytes independent reads move, over a simulated file system.

use super::*;
use crate::datatype::Datatype;
use crate::file::datarep::Representation;
use crate::file::view::View;
use crate::testing::TestBytes;
use garonne_files::simulated::{Faults, SimulatedFileSystem};
use garonne_files::{FileSystem, OpenOptions};
use std::path::Path;

/// Reads `count` blocks of `block` bytes, one in each `stride`, from a file of its own.
fn read_blocks(count: u64, block: u64, stride: u64) -> SimulatedFileSystem {
    let system = SimulatedFileSystem::new(1, Faults::default());
    let content: Vec<u8> = (0..count * stride).map(|at| (at % 251) as u8).collect();
    system.put(Path::new("file"), &content);
    let disk = system
        .open(Path::new("file"), OpenOptions::default())
        .unwrap();
    let byte = Datatype::predefined(0x247).unwrap();
    let blocks = byte
        .vector(count as i64, block as i64, stride as i64)
        .unwrap();
    let view = View::new(0, (&byte, &blocks), Representation::Native, false).unwrap();
    let memory = TestBytes::new((count * block) as usize);
    let mut transfer = Transfer {
        disk,
        map: view.map().clone(),
        direction: Direction::Read,
        from: 0,
        data: Data::contiguous(memory.mem(), count * block),
        done: 0,
        atomic: false,
        sieving: Sieving {
            reads: true,
            read_bytes: 1 << 20,
            writes: false,
            write_bytes: 1 << 20,
        },
        gap_lock: GapLock::default(),
    };
    transfer.run().unwrap();
    assert_eq!(transfer.done, count * block);
    let wanted: Vec<u8> = content
        .chunks(stride as usize)
        .flat_map(|piece| &piece[..block as usize])
        .copied()
        .collect();
    assert_eq!(memory.get(), wanted);
    system
}

#[test]
fn small_runs_are_read_with_their_gaps() {
    let system = read_blocks(1000, 64, 256);
    assert_eq!(system.bytes_read(), 999 * 256 + 64);
    assert!(system.prefetched().is_empty());
}

#[test]
fn runs_of_pages_are_prefetched_with_their_gaps_and_read_alone() {
    let system = read_blocks(100, 4096, 4 * 4096);
    assert_eq!(system.bytes_read(), 100 * 4096);
    let prefetched = system.prefetched();
    assert_eq!(prefetched[0].start, 0);
    assert!(
        prefetched
            .iter()
            .all(|range| range.end - range.start <= 1 << 20)
    );
    assert_eq!(prefetched.last().unwrap().end, 99 * 4 * 4096 + 4096);
}

#[test]
fn runs_far_apart_are_read_one_by_one() {
    let system = read_blocks(20, 64, 64 << 10);
    assert_eq!(system.bytes_read(), 20 * 64);
    assert!(system.prefetched().is_empty());
}
