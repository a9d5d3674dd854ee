//! Registered regions over shared memory: which accesses need no engine, where the region lies in
//! memory of all ranks, and what a death or a late access means for their end.

use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{
    AccessRights, AtomicAccess, AtomicUpdate, BulkStatus, BulkTransfer, NodeMemory,
    RegionDescriptor, RegionMemory, RegisteredMemory, RemoteMemory, Transport,
};
use garonne_shm::{NodePeers, PeerProcess, ShmTransport, ThreadPeers};
use garonne_sync::user::{AtomicOp, AtomicType, Data, Scratch, UserMem};
use garonne_transport::conformance::RecordedEvents;
use std::sync::Arc;
use support::ReachedAs;

mod support;

const LEN: usize = 50_000;

fn ranks<N: NodePeers + 'static>(count: u32, wrap: impl Fn(ThreadPeers) -> N) -> Vec<ShmTransport> {
    let threads = ThreadPeers::new(count).unwrap();
    threads
        .into_iter()
        .map(|threads| ShmTransport::new(Arc::new(wrap(threads))).unwrap())
        .collect()
}

fn other() -> PeerProcess {
    PeerProcess::Other {
        pid: std::process::id(),
        kept: true,
    }
}

fn register(transport: &mut ShmTransport, mem: UserMem, rights: AccessRights) -> RegionDescriptor {
    let region = RegionMemory {
        mem,
        len: LEN as u64,
        rights,
    };
    transport.register(&region).expect("there is room")
}

fn part<'a>(
    descriptor: &'a RegionDescriptor,
    local: &'a Data,
    offset: u64,
    owner: Peer,
) -> BulkTransfer<'a> {
    BulkTransfer {
        token: 1,
        peer: owner,
        descriptor,
        offset,
        local,
        local_offset: 0,
        len: local.len,
    }
}

fn add(descriptor: &RegionDescriptor, offset: u64, result: UserMem) -> AtomicAccess<'_> {
    AtomicAccess {
        token: 2,
        peer: 1,
        descriptor,
        offset,
        kind: AtomicType::U64,
        update: AtomicUpdate::Combine {
            op: AtomicOp::Sum,
            operand: 5,
        },
        result: Some(result),
    }
}

#[test]
fn what_needs_no_engine_depends_on_how_memory_is_reached() {
    let read_write = AccessRights::READ.with(AccessRights::WRITE);
    for (process, rights) in [
        (PeerProcess::Same, AccessRights::ALL),
        (other(), read_write),
        (PeerProcess::Unreachable, AccessRights::NONE),
    ] {
        let mut transports = ranks(2, |threads| ReachedAs(threads, process));
        let (memory, local) = (Scratch::new(LEN).unwrap(), Scratch::new(LEN).unwrap());
        let descriptor = register(&mut transports[1], memory.mem(), AccessRights::ALL);
        assert_eq!(transports[0].direct_rights(1, &descriptor), rights);
        if rights == AccessRights::NONE {
            continue;
        }
        local.mem().write(0, &[7; LEN]);
        let data = Data::contiguous(local.mem(), LEN as u64 - 100);
        let put = transports[0].put(part(&descriptor, &data, 100, 1));
        assert_eq!(put, Ok(BulkStatus::Done));
        assert_eq!(memory.mem().read_array(98), [0, 0, 7, 7]);
        local.mem().write(0, &[0; LEN]);
        let get = transports[0].get(part(&descriptor, &data, 100, 1));
        assert_eq!(get, Ok(BulkStatus::Done));
        assert_eq!(local.mem().read_array(LEN as isize - 102), [7, 7, 0, 0]);
        let atomic = transports[0].fetch_atomic(add(&descriptor, 0, local.mem()));
        match process {
            PeerProcess::Same => assert_eq!(atomic, Ok(BulkStatus::Done)),
            // The owner's engine does it.
            _ => assert!(matches!(atomic, Err(Error::Resource(_)))),
        }
    }
}

#[test]
fn a_region_in_memory_of_all_ranks_is_updated_in_place() {
    let mut transports = ranks(2, |threads| threads);
    let heap = transports[1].coll_heap(1).expect("threads have one");
    let descriptor = register(&mut transports[1], heap.mem(4096, LEN), AccessRights::ALL);
    assert_eq!(
        transports[0].direct_rights(1, &descriptor),
        AccessRights::ALL
    );
    assert!(!transports[0].prefers_request(1, &descriptor, 8));
    let result = Scratch::new(8).unwrap();
    for turn in 0..3u64 {
        let done = transports[0].fetch_atomic(add(&descriptor, 16, result.mem()));
        assert_eq!(done, Ok(BulkStatus::Done));
        assert_eq!(result.mem().read_array(0), (5 * turn).to_le_bytes());
    }
    assert_eq!(heap.mem(4096, LEN).read_array(16), 15u64.to_le_bytes());
    // A descriptor that leads beyond that memory is refused, whoever made it.
    let mut blob = descriptor.blob().to_vec();
    blob[..8].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
    let beyond = RegionDescriptor::new(descriptor.cookie, &blob).unwrap();
    assert_eq!(transports[0].direct_rights(1, &beyond), AccessRights::NONE);
    assert!(
        transports[0]
            .fetch_atomic(add(&beyond, 16, result.mem()))
            .is_err()
    );
}

#[test]
fn rights_bounds_and_generations_are_checked_by_every_access() {
    for process in [PeerProcess::Same, other()] {
        let mut transports = ranks(2, |threads| ReachedAs(threads, process));
        let (memory, local) = (Scratch::new(LEN).unwrap(), Scratch::new(64).unwrap());
        local.mem().write(0, &[9; 64]);
        let data = Data::contiguous(local.mem(), 64);
        let descriptor = register(&mut transports[1], memory.mem(), AccessRights::READ);
        assert!(transports[0].put(part(&descriptor, &data, 0, 1)).is_err());
        let result = transports[0].fetch_atomic(add(&descriptor, 0, local.mem()));
        assert!(result.is_err());
        for offset in [LEN as u64 - 63, u64::MAX - 1] {
            assert!(
                transports[0]
                    .get(part(&descriptor, &data, offset, 1))
                    .is_err()
            );
        }
        assert_eq!(transports[1].deregister(5, &descriptor), BulkStatus::Done);
        let fresh = register(&mut transports[1], memory.mem(), AccessRights::ALL);
        assert_ne!(fresh.cookie, descriptor.cookie);
        for offset in [0, 8] {
            assert!(
                transports[0]
                    .get(part(&descriptor, &data, offset, 1))
                    .is_err()
            );
        }
        // The descriptor of a stale region closes nothing.
        assert_eq!(transports[1].deregister(6, &descriptor), BulkStatus::Done);
        assert!(transports[0].put(part(&fresh, &data, 0, 1)).is_ok());
        assert_eq!(memory.mem().read_array(62), [9, 9, 0, 0]);
    }
}

#[test]
fn messages_keep_their_half_of_the_table() {
    let mut transports = ranks(2, |threads| threads);
    let memory = Scratch::new(LEN).unwrap();
    let region = RegionMemory {
        mem: memory.mem(),
        len: LEN as u64,
        rights: AccessRights::ALL,
    };
    let open: Vec<_> = std::iter::from_fn(|| transports[1].register(&region)).collect();
    assert_eq!(open.len(), garonne_transport::limits::REGIONS / 2);
    let data = Data::contiguous(memory.mem(), LEN as u64);
    let exposed = transports[1].expose(3, 0, &data);
    assert!(
        matches!(exposed, garonne_engine::transport::ExposeResult::Ready(_)),
        "a message finds room"
    );
    for descriptor in open {
        assert_eq!(transports[1].deregister(4, &descriptor), BulkStatus::Done);
    }
    assert!(transports[1].register(&region).is_some());
}

#[test]
fn many_threads_update_one_region_exactly() {
    const ROUNDS: u64 = 3000;
    let mut transports = ranks(4, |threads| threads);
    let memory = Scratch::new(LEN).unwrap();
    let descriptor = register(&mut transports[1], memory.mem(), AccessRights::ALL);
    let mut owner = transports.remove(1);
    std::thread::scope(|scope| {
        for mut transport in transports {
            let descriptor = &descriptor;
            scope.spawn(move || {
                let result = Scratch::new(8).unwrap();
                for _ in 0..ROUNDS {
                    let done = transport.fetch_atomic(add(descriptor, 8, result.mem()));
                    assert_eq!(done, Ok(BulkStatus::Done));
                }
                let told = transport.poll(1, &mut RecordedEvents::default());
                assert_eq!(told, 0);
            });
        }
    });
    let sum = 3 * ROUNDS * 5;
    assert_eq!(memory.mem().read_array(8), sum.to_le_bytes());
    assert_eq!(owner.deregister(1, &descriptor), BulkStatus::Done);
}
