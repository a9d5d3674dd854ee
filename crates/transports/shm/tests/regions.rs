//! Regions of the shared-memory transport: data of any shape, leases and deaths, through the system
//! calls processes use.

use garonne_engine::api::Error;
use garonne_engine::protocol::offload::{OffloadKind, OffloadResult};
use garonne_engine::transport::{
    BulkStatus, BulkTransfer, ExposeResult, PartWritten, RegionDescriptor, RemoteMemory,
    RendezvousMode, SharedCopy, Transport, WithdrawResult,
};
use garonne_shm::{NodePeers, PeerProcess, ShmTransport, ThreadPeers};
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::RecordedEvents;
use garonne_transport::conformance::vector::vector_of;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use support::{ASKED, ReachedAs};

mod support;

/// Reader and owner; the reader is told that the owner is process `pid`. With them the owner's
/// inbox.
fn pair(pid: u32) -> (ShmTransport, ShmTransport, Segment) {
    pair_kept(pid, false)
}

/// Returns a pair; `kept`: the number stays that process's.
fn pair_kept(pid: u32, kept: bool) -> (ShmTransport, ShmTransport, Segment) {
    let mut threads = ThreadPeers::new(2).unwrap().into_iter();
    let (reader, owner) = (threads.next().unwrap(), threads.next().unwrap());
    let inbox = owner.own_inbox();
    let transport = |threads, pid| {
        let process = PeerProcess::Other { pid, kept };
        ShmTransport::new(Arc::new(ReachedAs(threads, process))).unwrap()
    };
    (
        transport(reader, pid),
        transport(owner, std::process::id()),
        inbox,
    )
}

/// Whole blocks.
fn vector(count: u64, block: u64, stride: u64) -> (Scratch, Data) {
    vector_of(count * block, block, stride)
}

fn ready(exposing: ExposeResult) -> RegionDescriptor {
    match exposing {
        ExposeResult::Ready(descriptor) => descriptor,
        other => panic!("{other:?}"),
    }
}

fn read(
    reader: &mut ShmTransport,
    descriptor: &RegionDescriptor,
    local: &Data,
    range: (u64, u64),
) -> Result<BulkStatus, Error> {
    let bulk = BulkTransfer {
        token: 9,
        peer: 1,
        descriptor,
        offset: range.0,
        local,
        local_offset: range.0,
        len: range.1,
    };
    reader.read(bulk)
}

#[test]
fn blocks_of_one_shape_are_read_into_blocks_of_another_in_any_pieces() {
    let (mut reader, mut owner, _) = pair(std::process::id());
    // More blocks than one system call takes.
    let (_remote_memory, remote) = vector(1500, 2048, 2500);
    let (_local_memory, local) = vector(3000, 1024, 1500);
    let bytes: Vec<u8> = (0..remote.len).map(|i| (i * 37 / 5) as u8).collect();
    remote.unpack(0, &bytes);
    let descriptor = ready(owner.expose(1, 0, &remote));
    let (mut at, mut step) = (0, 1);
    while at < remote.len {
        let len = step.min(remote.len - at);
        assert_eq!(
            read(&mut reader, &descriptor, &local, (at, len)),
            Ok(BulkStatus::Done)
        );
        at += len;
        step = step * 3 + 1001;
    }
    let mut got = vec![0; bytes.len()];
    local.pack(0, &mut got);
    assert!(got == bytes);
}

#[test]
fn many_tiny_blocks_are_left_to_packets() {
    let (_, mut owner, _) = pair(std::process::id());
    let (_memory, data) = vector(4000, 8, 16);
    assert_eq!(owner.expose(1, 0, &data), ExposeResult::Unable);
}

#[test]
fn a_revoked_region_is_given_back_when_the_last_lease_ends() {
    let (_, mut owner, inbox) = pair(std::process::id());
    let memory = Scratch::new(4096).unwrap();
    let descriptor = ready(owner.expose(7, 0, &Data::contiguous(memory.mem(), 4096)));
    let state = inbox.atomic_u64(2048 + (descriptor.cookie as u32) as usize * 64);
    state.fetch_add(1, Ordering::Relaxed);
    assert_eq!(owner.revoke(7), BulkStatus::Pending, "somebody reads it");
    let mut told = RecordedEvents::default();
    owner.poll(16, &mut told);
    assert!(told.revoked.is_empty());
    state.fetch_sub(1, Ordering::Relaxed);
    owner.poll(16, &mut told);
    owner.poll(16, &mut told);
    assert_eq!(told.revoked, [7]);
}

#[test]
fn a_part_of_a_region_that_its_owner_took_back_is_refused_without_waiting_for_a_death() {
    let (mut writer, mut owner, _) = pair_kept(std::process::id(), true);
    let memory = Scratch::new(1 << 20).unwrap();
    let data = Data::contiguous(memory.mem(), 1 << 20);
    let descriptor = ready(owner.expose(7, 0, &data));
    let bulk = BulkTransfer {
        token: 9,
        peer: 1,
        descriptor: &descriptor,
        offset: 0,
        local: &data,
        local_offset: 0,
        len: 1 << 20,
    };
    assert!(matches!(
        writer.offload(bulk, OffloadKind::Part),
        Ok(OffloadResult::Copy(..))
    ));
    assert_eq!(owner.revoke(7), BulkStatus::Done);
    ASKED.set(0);
    assert!(matches!(
        writer.offload(bulk, OffloadKind::Part),
        Err(Error::Peer { .. })
    ));
    assert!(
        ASKED.get() <= 1,
        "it waits for the death of a peer that lives"
    );
}

#[test]
fn a_lease_dies_with_its_holder() {
    let (_, mut owner, inbox) = pair(std::process::id());
    let memory = Scratch::new(4096).unwrap();
    let descriptor = ready(owner.expose(7, 0, &Data::contiguous(memory.mem(), 4096)));
    inbox
        .atomic_u64(2048 + (descriptor.cookie as u32) as usize * 64)
        .fetch_add(1, Ordering::Relaxed);
    assert_eq!(owner.revoke(7), BulkStatus::Pending);
    owner.peer_gone(0);
    let mut told = RecordedEvents::default();
    for _ in 0..3 {
        owner.poll(16, &mut told);
    }
    assert_eq!((told.gone, told.revoked), (vec![0], vec![7]));
}

#[test]
fn a_process_that_is_not_the_owner_is_never_read() {
    // Another process has the owner's number: it lacks the word that the owner's inbox names, or
    // cannot be read at all.
    let mut child = std::process::Command::new("sleep")
        .arg("30")
        .spawn()
        .unwrap();
    let (mut reader, mut owner, _) = pair(child.id());
    assert!(
        reader
            .capabilities(1)
            .is_some_and(|reach| !reach.can_read && !reach.can_write)
    );
    let memory = Scratch::new(4096).unwrap();
    let data = Data::contiguous(memory.mem(), 4096);
    let descriptor = ready(owner.expose(1, 0, &data));
    assert!(matches!(
        read(&mut reader, &descriptor, &data, (0, 4096)),
        Err(Error::Peer { .. })
    ));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn writing_is_not_offered_where_a_process_id_could_be_reused() {
    let (reader, _owner, _) = pair(std::process::id());
    let reach = reader.capabilities(1).unwrap();
    assert!(reach.can_read && !reach.can_write);
}

#[test]
fn a_descriptor_that_lies_about_its_blocks_is_refused() {
    let (mut reader, mut owner, _) = pair(std::process::id());
    let (_memory, data) = vector(4, 4096, 8192);
    let descriptor = ready(owner.expose(1, 0, &data));
    let local_memory = Scratch::new(1 << 20).unwrap();
    let local = Data::contiguous(local_memory.mem(), 1 << 20);
    assert!(
        read(&mut reader, &descriptor, &local, (0, 1 << 20)).is_err(),
        "longer than the region"
    );
    for (at, value) in [(8, 0xff), (15, 0xff), (0, 0xff)] {
        let mut wrong = descriptor;
        wrong.blob[at] = value;
        wrong.blob[at ^ 1] = value;
        let _ = read(&mut reader, &wrong, &local, (0, 16_384));
    }
    let unmapped = RegionDescriptor {
        blob: [0; 40],
        blob_len: 8,
        ..descriptor
    };
    assert!(matches!(
        read(&mut reader, &unmapped, &local, (0, 4096)),
        Err(Error::PeerMemory { peer: 1 })
    ));
}

/// Owner of shared data (rank 1) and writer (rank 0), threads of one process.
fn sharers() -> (ShmTransport, ShmTransport, Segment) {
    let mut threads = ThreadPeers::new(2).unwrap().into_iter();
    let (writer, owner) = (threads.next().unwrap(), threads.next().unwrap());
    let inbox = owner.own_inbox();
    let transport = |threads| ShmTransport::new(Arc::new(threads)).unwrap();
    (transport(writer), transport(owner), inbox)
}

fn push(
    writer: &mut ShmTransport,
    descriptor: &RegionDescriptor,
    local: &Data,
) -> Result<PartWritten, Error> {
    writer.write_part(BulkTransfer {
        token: 3,
        peer: 1,
        descriptor,
        offset: 0,
        local,
        local_offset: 0,
        len: local.len,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_byte_of_shared_data_is_filled_by_one_side(len in 1u64..700_000, order: u64, pushing: bool) {
        let (mut writer, mut owner, _) = sharers();
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 / 7) as u8 | 1).collect();
        let (source, target) = (Scratch::new(len as usize).unwrap(), Scratch::new(len as usize).unwrap());
        source.mem().write(0, &bytes);
        let (from, into) = (Data::contiguous(source.mem(), len), Data::contiguous(target.mem(), len));
        let way = if pushing { RendezvousMode::Write } else { RendezvousMode::Share };
        let descriptor = owner.share_region(5, 0, &into, way).unwrap();
        let (mut ours, mut theirs, mut turn) = (0, 0, 0);
        while ours + theirs < len {
            turn += 1;
            prop_assert!(turn < 1000, "parts end");
            if order >> (turn % 64) & 1 == 0 {
                let step = push(&mut writer, &descriptor, &from).unwrap();
                theirs += step.bytes;
                prop_assert_eq!(step.last, ours + theirs == len);
            } else if let Some((at, part)) = owner.take_part(5, len).unwrap() {
                let part_bytes = &bytes[at as usize..(at + part) as usize];
                target.mem().with_mut(at as isize, part as usize, |room| {
                    assert!(room.iter().all(|byte| *byte == 0), "nobody filled it before");
                    room.copy_from_slice(part_bytes);
                });
                ours += part;
            }
        }
        prop_assert_eq!(owner.take_part(5, len), Ok(None));
        prop_assert_eq!(push(&mut writer, &descriptor, &from), Ok(PartWritten { bytes: 0, last: true }));
        target.mem().with(0, len as usize, |got| assert!(got == bytes));
        prop_assert_eq!(owner.revoke(5), BulkStatus::Done);
        prop_assert!(push(&mut writer, &descriptor, &from).is_err(), "nothing is written after the end");
    }

    #[test]
    fn any_descriptor_is_refused_or_reads_into_the_room_only(
        (cookie, same_cookie) in any::<(u64, bool)>(), blob in prop::collection::vec(any::<u8>(), 0..41),
        (first, count) in any::<(u16, Option<u16>)>(), (offset, len) in any::<(u32, u16)>()
    ) {
        let (mut reader, mut owner, _) = pair(std::process::id());
        let (_memory, data) = vector(64, 1024, 1500);
        let honest = ready(owner.expose(1, 0, &data));
        let room = Scratch::new(3 << 16).unwrap();
        room.mem().with_mut(0, 3 << 16, |bytes| bytes.fill(0xee));
        let local = Data::contiguous(room.mem().offset(1 << 16), 1 << 16);
        // Wild bytes, and nearly honest ones: another address near by, another number of blocks.
        let mut near = honest;
        near.blob[0] ^= first as u8;
        near.blob[1] ^= (first >> 8) as u8;
        if let Some(count) = count {
            near.blob[8..10].copy_from_slice(&count.to_le_bytes());
        }
        let wild = RegionDescriptor::new(if same_cookie { honest.cookie } else { cookie }, &blob).unwrap();
        for descriptor in [near, wild] {
            let bulk = BulkTransfer {
                token: 9,
                peer: 1,
                descriptor: &descriptor,
                offset: u64::from(offset) % (1 << 17),
                local: &local,
                local_offset: 0,
                len: u64::from(len),
            };
            let _ = reader.read(bulk);
        }
        room.mem().with(0, 3 << 16, |bytes| {
            let beyond = bytes[..1 << 16].iter().chain(&bytes[(1 << 16) + usize::from(len)..]);
            assert!(beyond.copied().all(|byte| byte == 0xee), "it wrote beyond the room");
        });
        prop_assert_eq!(owner.revoke(1), BulkStatus::Done, "no lease was left behind");
    }
}

#[test]
fn a_division_that_cannot_be_true_is_the_peers_error_and_takes_nothing() {
    let (mut writer, mut owner, inbox) = sharers();
    let memory = Scratch::new(1 << 20).unwrap();
    let data = Data::contiguous(memory.mem(), 1 << 20);
    let descriptor = owner
        .share_region(5, 0, &data, RendezvousMode::Share)
        .unwrap();
    let word = inbox.atomic_u64(2048 + (descriptor.cookie as u32) as usize * 64 + 8);
    for wrong in [1, 1000 << 32, u64::MAX, 1 << 63] {
        word.store(wrong, Ordering::Relaxed);
        assert!(
            matches!(owner.take_part(5, 1 << 20), Err(Error::Peer { .. })),
            "{wrong:x}"
        );
        if let Ok(step) = push(&mut writer, &descriptor, &data) {
            assert!(step.bytes <= 1 << 20);
        }
    }
}

#[test]
fn a_writer_that_dies_gives_its_lease_back() {
    let (_, mut owner, inbox) = sharers();
    let memory = Scratch::new(1 << 20).unwrap();
    let data = Data::contiguous(memory.mem(), 1 << 20);
    let descriptor = owner
        .share_region(5, 0, &data, RendezvousMode::Write)
        .unwrap();
    inbox
        .atomic_u64(2048 + (descriptor.cookie as u32) as usize * 64)
        .fetch_add(1, Ordering::Relaxed);
    assert_eq!(owner.revoke(5), BulkStatus::Pending, "it is being written");
    assert_eq!(
        owner.revoke(5),
        BulkStatus::Pending,
        "asking twice changes nothing"
    );
    owner.peer_gone(0);
    let mut told = RecordedEvents::default();
    for _ in 0..3 {
        owner.poll(16, &mut told);
    }
    assert_eq!((told.gone, told.revoked), (vec![0], vec![5]));
}

#[test]
fn memory_is_written_only_where_a_process_id_cannot_be_reused() {
    let (mut writer, mut owner, _) = pair(std::process::id());
    let memory = Scratch::new(4096).unwrap();
    let data = Data::contiguous(memory.mem(), 4096);
    let descriptor = owner
        .share_region(5, 0, &data, RendezvousMode::Write)
        .unwrap();
    assert!(push(&mut writer, &descriptor, &data).is_err());
}

fn write_ahead(
    writer: &mut ShmTransport,
    descriptor: &RegionDescriptor,
    local: &Data,
) -> Result<Option<PartWritten>, Error> {
    writer.write_early(BulkTransfer {
        token: 3,
        peer: 1,
        descriptor,
        offset: 0,
        local,
        local_offset: 0,
        len: local.len,
    })
}

fn filled(len: usize, byte: u8) -> (Scratch, Data) {
    let memory = Scratch::new(len).unwrap();
    memory.mem().with_mut(0, len, |bytes| bytes.fill(byte));
    let data = Data::contiguous(memory.mem(), len as u64);
    (memory, data)
}

#[test]
fn data_offered_ahead_goes_to_the_writer_or_back_to_its_owner_and_never_to_both() {
    let (mut writer, mut owner, _) = sharers();
    let (_source, from) = filled(40_000, 7);
    let (room, into) = filled(100_000, 1);
    let written = |len: usize| {
        room.mem().with(0, 100_000, |bytes| {
            assert!(
                bytes[..len].iter().all(|byte| *byte == 7)
                    && bytes[len..].iter().all(|byte| *byte == 1)
            );
        });
    };
    let offer = owner
        .share_region(5, 0, &into, RendezvousMode::Write)
        .unwrap();
    assert_eq!(owner.withdraw_region(5), WithdrawResult::Withdrawn);
    assert_eq!(
        write_ahead(&mut writer, &offer, &from),
        Ok(None),
        "it was withdrawn"
    );
    assert_eq!(owner.revoke(5), BulkStatus::Done, "and needs no revoking");
    written(0);
    let again = owner
        .share_region(6, 0, &into, RendezvousMode::Write)
        .unwrap();
    assert_eq!(
        write_ahead(&mut writer, &offer, &from),
        Ok(None),
        "an old offer of the same place"
    );
    let step = PartWritten {
        bytes: 40_000,
        last: true,
    };
    assert_eq!(write_ahead(&mut writer, &again, &from), Ok(Some(step)));
    assert_eq!(owner.withdraw_region(6), WithdrawResult::InUse);
    written(40_000);
    assert_eq!(owner.revoke(6), BulkStatus::Done);
    assert_eq!(
        write_ahead(&mut writer, &again, &from),
        Ok(None),
        "it was revoked"
    );
}

#[test]
fn a_writer_that_looks_in_vain_keeps_no_owner_waiting() {
    let (mut writer, mut owner, inbox) = sharers();
    let (_source, from) = filled(40_000, 7);
    let (_room, into) = filled(40_000, 1);
    let offer = owner
        .share_region(5, 0, &into, RendezvousMode::Write)
        .unwrap();
    let state = inbox.atomic_u64(2048 + (offer.cookie as u32) as usize * 64);
    state.fetch_add(1, Ordering::Relaxed);
    assert_eq!(
        owner.withdraw_region(5),
        WithdrawResult::Withdrawn,
        "it has a lease, but took nothing"
    );
    let second = owner
        .share_region(5, 0, &into, RendezvousMode::Write)
        .unwrap();
    assert_ne!(offer.cookie, second.cookie, "the first is not free yet");
    state.fetch_sub(1, Ordering::Relaxed);
    let mut told = RecordedEvents::default();
    owner.poll(16, &mut told);
    assert_eq!(told.revoked, [u64::MAX], "told in nobody's name");
    assert!(matches!(
        write_ahead(&mut writer, &second, &from),
        Ok(Some(_))
    ));
}

#[test]
fn nothing_is_written_ahead_where_a_process_id_could_be_reused_or_by_a_descriptor_of_no_region() {
    let (_source, from) = filled(40_000, 7);
    let (mut writer, mut owner, _) = pair(std::process::id());
    let (_room, into) = filled(40_000, 1);
    let offer = owner
        .share_region(5, 0, &into, RendezvousMode::Write)
        .unwrap();
    assert_eq!(write_ahead(&mut writer, &offer, &from), Ok(None));
    assert_eq!(owner.withdraw_region(5), WithdrawResult::Withdrawn);
    let (mut writer, _owner, _) = sharers();
    for cookie in [0, 64, u64::MAX, 1 << 32] {
        let wild = RegionDescriptor { cookie, ..offer };
        assert_eq!(
            write_ahead(&mut writer, &wild, &from),
            Ok(None),
            "{cookie:x}"
        );
    }
}

#[test]
fn a_rank_says_whether_it_looks_for_messages() {
    let (writer, owner, _) = sharers();
    assert!(!writer.is_polling(1));
    owner.wake_source().start_polling();
    assert!(writer.is_polling(1) && !owner.is_polling(0));
    owner.wake_source().stop_polling();
    assert!(!writer.is_polling(1));
}
