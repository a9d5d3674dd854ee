//! Reads and writes over a file system with faults: all bytes arrive, or the error says how many
//! did.

use garonne_files::simulated::{Faults, SimulatedFileSystem};
use garonne_files::{Cause, File, FileSystem, LockKind, OpenOptions};
use garonne_sync::user::Packed;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "/data";

fn open(system: &SimulatedFileSystem) -> Arc<dyn File> {
    let options = OpenOptions {
        write: true,
        create: true,
        ..OpenOptions::default()
    };
    system.open(Path::new(PATH), options).expect("opens")
}

/// Writes `content` at `offset` in pieces of these lengths, the rest in one.
fn write(
    file: &dyn File,
    offset: u64,
    content: &[u8],
    lengths: &[usize],
) -> Result<(), (u64, Cause)> {
    let mut rest = content;
    let mut buffers = Vec::new();
    for length in lengths {
        let (piece, behind) = rest.split_at((*length).min(rest.len()));
        buffers.push(Packed::of(piece));
        rest = behind;
    }
    buffers.push(Packed::of(rest));
    let written = file.write_vectored_at(offset, &buffers);
    written.map_err(|failed| (failed.done, failed.error.cause))
}

fn read(file: &dyn File, offset: u64, len: usize, split: usize) -> Result<Vec<u8>, (u64, Cause)> {
    let mut bytes = vec![0xee; len];
    let (a, b) = Packed::over(&mut bytes).split(split.min(len));
    let read = file.read_vectored_at(offset, &[a, Packed::of(&[]), b]);
    let read = read.map_err(|failed| (failed.done, failed.error.cause))?;
    assert!(bytes[read as usize..].iter().all(|byte| *byte == 0xee));
    bytes.truncate(read as usize);
    Ok(bytes)
}

fn bytes_of(len: usize, seed: u64) -> Vec<u8> {
    (0..len).map(|i| (i as u64 * 7 + seed) as u8 | 1).collect()
}

proptest! {
    #[test]
    fn short_and_interrupted_calls_lose_nothing(
        seed: u64,
        offset in 0u64..3000,
        len in 0usize..4000,
        lengths in prop::collection::vec(0usize..60, 0..300),
        short in 0u64..4,
        interrupted in 2u64..5,
    ) {
        let faults = Faults { short, interrupted, ..Faults::default() };
        let system = SimulatedFileSystem::new(seed, faults);
        let file = open(&system);
        let content = bytes_of(len, seed);
        write(&*file, offset, &content, &lengths).expect("written");
        let mut expected = vec![0; if len > 0 { offset as usize } else { 0 }];
        expected.extend(&content);
        prop_assert_eq!(system.content(Path::new(PATH)).expect("there"), expected);
        // Beyond the end: what there is.
        prop_assert_eq!(read(&*file, offset, len + 100, len / 3).expect("read"), content);
    }

    #[test]
    fn a_disk_that_gets_full_takes_a_prefix_and_its_length_is_told(
        seed: u64,
        offset in 0u64..100,
        len in 1usize..2000,
        capacity in 1u64..2000,
        short in 0u64..4,
    ) {
        let faults = Faults { short, capacity, interrupted: 4, ..Faults::default() };
        let system = SimulatedFileSystem::new(seed, faults);
        let file = open(&system);
        let content = bytes_of(len, seed);
        let result = write(&*file, offset, &content, &[len / 2]);
        if len as u64 <= capacity {
            prop_assert_eq!(result, Ok(()));
        } else {
            prop_assert_eq!(result, Err((capacity, Cause::NoSpace)));
            let there = system.content(Path::new(PATH)).expect("there");
            prop_assert_eq!(&there[offset as usize..], &content[..capacity as usize]);
        }
    }

    #[test]
    fn broken_blocks_end_transfers_at_their_first_byte(
        seed: u64,
        len in 1usize..500,
        broken in 0u64..600,
        short in 0u64..4,
    ) {
        let faults = Faults { short, broken: Some(broken..broken + 10), ..Faults::default() };
        let system = SimulatedFileSystem::new(seed, faults.clone());
        let file = open(&system);
        let expected = if broken < len as u64 { Err((broken, Cause::Io)) } else { Ok(()) };
        prop_assert_eq!(write(&*file, 0, &bytes_of(len, seed), &[3]), expected);
        system.put(Path::new(PATH), &bytes_of(len, seed));
        let expected = expected.map(|()| bytes_of(len, seed));
        prop_assert_eq!(read(&*file, 0, len, 5), expected);
    }

    #[test]
    fn stale_handles_end_transfers_with_the_count(seed: u64, after in 1u64..6) {
        let faults = Faults { short: 1, stale_after: after, ..Faults::default() };
        let system = SimulatedFileSystem::new(seed, faults);
        let file = open(&system);
        let content = bytes_of(1 << 14, seed);
        if let Err((done, cause)) = write(&*file, 0, &content, &[]) {
            prop_assert_eq!(cause, Cause::Stale);
            let there = system.content(Path::new(PATH)).expect("there");
            prop_assert_eq!(&there[..], &content[..done as usize]);
        }
    }

    #[test]
    fn allocation_by_writing_keeps_what_is_there(
        seed: u64,
        pieces in prop::collection::vec((0u64..400, 1usize..50), 0..5),
        size in 0u64..600,
        no_allocation: bool,
    ) {
        let faults = Faults { short: 2, interrupted: 3, no_allocation, ..Faults::default() };
        let system = SimulatedFileSystem::new(seed, faults);
        let file = open(&system);
        for (at, len) in &pieces {
            write(&*file, *at, &bytes_of(*len, *at), &[]).expect("written");
        }
        let mut expected = system.content(Path::new(PATH)).expect("there");
        file.preallocate(size).expect("allocated");
        expected.resize(expected.len().max(size as usize), 0);
        prop_assert_eq!(system.content(Path::new(PATH)).expect("there"), expected);
        // All of it has room now: a disk without any more takes the bytes.
        system.set_faults(Faults { capacity: 1, ..Faults::default() });
        if size > 0 {
            write(&*file, 0, &bytes_of(size as usize, 5), &[]).expect("there is room");
        }
    }
}

#[test]
fn offsets_beyond_what_files_can_have_are_refused() {
    let system = SimulatedFileSystem::new(1, Faults::default());
    let file = open(&system);
    for offset in [u64::MAX, i64::MAX as u64, i64::MAX as u64 - 2] {
        assert_eq!(
            write(&*file, offset, b"abc", &[1]),
            Err((0, Cause::TooLarge))
        );
        assert_eq!(read(&*file, offset, 3, 1), Err((0, Cause::TooLarge)));
    }
    assert_eq!(
        file.set_size(u64::MAX).expect_err("too large").cause,
        Cause::TooLarge
    );
    assert_eq!(
        file.preallocate(u64::MAX).expect_err("too large").cause,
        Cause::TooLarge
    );
}

#[test]
fn locks_exclude_other_open_files_and_end_with_theirs() {
    let system = SimulatedFileSystem::new(
        1,
        Faults {
            interrupted: 2,
            ..Faults::default()
        },
    );
    let (a, b) = (open(&system), open(&system));
    assert!(a.lock(10..20, LockKind::Shared, true).expect("locks"));
    assert!(b.lock(15..30, LockKind::Shared, false).expect("locks"));
    assert!(!b.lock(15..30, LockKind::Exclusive, false).expect("locks"));
    a.unlock(15..20).expect("unlocks");
    assert!(b.lock(15..30, LockKind::Exclusive, false).expect("locks"));
    assert!(!a.lock(0..100, LockKind::Shared, false).expect("locks"));
    drop(b);
    assert!(a.lock(0..100, LockKind::Exclusive, false).expect("locks"));
    system.set_faults(Faults {
        no_locks: true,
        ..Faults::default()
    });
    let refused = a.lock(0..1, LockKind::Shared, true).expect_err("no locks");
    assert_eq!(refused.cause, Cause::Unsupported);
}
