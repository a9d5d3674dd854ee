use super::*;
use proptest::prelude::*;

fn shape() -> WorldShape {
    WorldShape {
        job: JobId(7 << 64 | 9),
        epoch: 1,
        size: 3,
        coll_bytes: 100,
        inbox_bytes: 5000,
        shards: 2,
        cpus_milli: 1500,
        bound: true,
        nodes: 1,
        node: 0,
        hosts_bytes: 300,
    }
}

#[test]
fn a_header_reads_back_as_written() {
    let board = Segment::anonymous(shape().total() as usize).unwrap();
    shape().publish(&board).unwrap();
    assert_eq!(
        WorldShape::read(&board, board.len() as u64).unwrap(),
        shape()
    );
}

#[test]
fn a_header_that_promises_more_than_the_file_holds_is_refused() {
    let board = Segment::anonymous(shape().total() as usize).unwrap();
    shape().publish(&board).unwrap();
    assert!(WorldShape::read(&board, board.len() as u64 - 1).is_err());
    board.atomic_u32(header::SIZE).store(u32::MAX, Relaxed);
    assert!(WorldShape::read(&board, u64::MAX).is_err());
    board.atomic_u64(header::MAGIC).store(0, Relaxed);
    assert!(WorldShape::read(&board, u64::MAX).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_header_is_refused_or_fits_the_file(fields in prop::collection::vec((0usize..32, any::<u32>()), 0..6), len: u64) {
        let board = Segment::anonymous(shape().total() as usize).unwrap();
        shape().publish(&board).unwrap();
        for (word, value) in fields {
            board.atomic_u32(4 * word).store(value, Relaxed);
        }
        if let Ok(shape) = WorldShape::read(&board, len) {
            prop_assert!(shape.total() <= len);
        }
    }
}

#[test]
fn parts_do_not_overlap() {
    let shape = shape();
    assert!(ShardBlock::offset(&shape, 1, 0) >= HEADER_BYTES as u64 + 3 * RANK_BLOCK_LEN as u64);
    assert!(
        last_calls::offset(&shape, 0, 0)
            >= ShardBlock::offset(&shape, 1, 2) + shard_block::SHARD_CARD_BYTES as u64
    );
    let last = last_calls::offset(&shape, last_calls::LAST_CALL_SLOTS - 1, 2);
    assert!(rank_endpoint::offset(&shape, 0) >= last + last_calls::PLACE_BYTES as u64);
    let last = rank_endpoint::offset(&shape, 2);
    assert!(shape.coll_offset() >= last + rank_endpoint::BYTES as u64);
    assert!(shape.inbox_offset(0) >= shape.coll_offset() + shape.coll_bytes);
    assert_eq!(shape.inbox_offset(1) - shape.inbox_offset(0), 8192);
    assert!(shape.shard_inbox_offset(1, 0) >= shape.inbox_offset(2) + shape.inbox_bytes);
    assert!(shape.trace_offset(0) >= shape.shard_inbox_offset(1, 2) + shape.inbox_bytes);
    assert!(shape.hosts_offset() >= shape.trace_offset(2) + TRACE_BYTES);
    assert!(shape.total() >= shape.hosts_offset() + shape.hosts_bytes);
}

#[test]
fn a_rank_is_found_on_its_host_and_ends_there() {
    let shape = WorldShape {
        nodes: limits::HOSTS_MAX as u32,
        node: 70_000,
        ..shape()
    };
    let board = Segment::anonymous(shape.total() as usize).unwrap();
    shape.publish(&board).unwrap();
    for (rank, node) in [(0, 70_000), (1, limits::HOSTS_MAX as u32 - 1), (2, 70_000)] {
        RankEndpoint::of(&board, &shape, rank).set(node, u16::MAX);
    }
    let far = RankEndpoint::of(&board, &shape, 1);
    assert!(!far.has_ended());
    far.set_ended();
    assert!(far.has_ended() && !RankEndpoint::of(&board, &shape, 2).has_ended());
    assert_eq!((far.node(), far.port()), (131_071, u16::MAX));
    let local: Vec<u32> = rank_endpoint::local_ranks(&board, &shape).collect();
    assert_eq!(local, [0, 2]);
}

/// Bounds of the format, and the first value beyond each.
#[test]
fn a_world_has_at_most_a_million_ranks_on_131072_hosts() {
    let board = Segment::anonymous(HEADER_BYTES).unwrap();
    let most = WorldShape {
        size: 1 << 20,
        nodes: 1 << 17,
        node: (1 << 17) - 1,
        shards: 1,
        inbox_bytes: garonne_shm::inbox_bytes(64) as u64,
        ..shape()
    };
    most.publish(&board).unwrap();
    assert_eq!(WorldShape::read(&board, most.total()).unwrap(), most);
    for beyond in [
        WorldShape {
            size: (1 << 20) + 1,
            ..most
        },
        WorldShape {
            nodes: (1 << 17) + 1,
            ..most
        },
    ] {
        let error = beyond.publish(&board).unwrap_err();
        assert_eq!(error.code(), codes::G0301);
    }
}

#[test]
fn a_published_wait_reads_back() {
    let board = Segment::anonymous(shape().total() as usize).unwrap();
    let card = RankBlock::of(&board, 2);
    assert_eq!(card.wait(), Some(WaitInfo::default()));
    let wait = WaitInfo {
        call: 3,
        peer: -1,
        tag: 5,
        comm: 2,
        bytes: 8,
        since_ns: 11,
        site: 99,
    };
    card.publish_wait(&wait);
    assert_eq!(RankBlock::of(&board, 2).wait(), Some(wait));
    assert_eq!(RankBlock::of(&board, 1).wait(), Some(WaitInfo::default()));
}

#[test]
fn what_a_rank_has_sent_is_counted_in_all_its_shards() {
    let shape = shape();
    let board = Segment::anonymous(shape.total() as usize).unwrap();
    shape.publish(&board).unwrap();
    let further = ShardBlock::of(&board, &shape, 1, 2).unwrap();
    for (tally, scale) in [
        (RankBlock::of(&board, 2).sent_totals(), 1),
        (further.sent_totals(), 10),
    ] {
        (0..3).for_each(|word| {
            tally
                .atomic_u64(8 * word as usize)
                .store(scale * (word + 1), Relaxed)
        });
    }
    further.doorbell().store(u32::MAX, Relaxed);
    let sum = SentTotals {
        messages: 11,
        bytes: 22,
        unexpected: 33,
    };
    assert_eq!(tally(&board, &shape, 2), sum);
    assert_eq!(tally(&board, &shape, 1), SentTotals::default());
    assert!(
        ShardBlock::of(&board, &shape, 2, 0).is_none()
            && ShardBlock::of(&board, &shape, 1, 3).is_none()
    );
}

#[test]
fn the_latest_calls_of_a_ranks_threads_are_told_once_each() {
    let shape = shape();
    let board = Segment::anonymous(shape.total() as usize).unwrap();
    let enter = |place, site, named| {
        let [at, call] = last_calls::call_slot(&board, &shape, place, 1);
        at.store(site, Relaxed);
        call.store(named, Relaxed);
    };
    assert!(last_calls::latest_call(&board, &shape, 1).is_empty());
    enter(0, 0x1000, last_calls::named_call(0x1000, 7));
    // It went the shortest way since it said its name, which is that of another call.
    enter(1, 0x2000, last_calls::named_call(0x1000, 7));
    enter(2, 0x1000, last_calls::named_call(0x1000, 7));
    enter(
        last_calls::LAST_CALL_SLOTS + 3,
        0x3000,
        last_calls::named_call(0x3000, 9),
    );
    let expected = [(0x1000, Some(7)), (0x2000, None), (0x3000, Some(9))];
    assert_eq!(last_calls::latest_call(&board, &shape, 1), expected);
    assert!(
        last_calls::latest_call(&board, &shape, 0).is_empty()
            && last_calls::latest_call(&board, &shape, 2).is_empty()
    );
    // Threads that come and go clear their places, and never that of the one that initialised MPI.
    (1..4 * last_calls::LAST_CALL_SLOTS).for_each(|thread| enter(thread, 0, 0));
    assert_eq!(
        last_calls::latest_call(&board, &shape, 1),
        [(0x1000, Some(7))]
    );
}

/// Processes of one job compute these each for itself: whoever changes one raises `FORMAT`, and
/// then the number here.
#[test]
fn a_format_stands_for_what_processes_compute_alike() {
    use garonne_engine::CreditQuotas;
    use garonne_shm::inbox_bytes;
    use garonne_sync::nbc_slots::{NbcLayout, NbcSlots, ROUNDS, WIDE_SETS};
    use garonne_sync::shm_barrier::CollSegment;
    use garonne_transport::limits;
    let grants = [2, 64, 1000].map(|ranks| {
        let CreditQuotas { envelopes, payload } = CreditQuotas::for_world(ranks);
        (envelopes, payload)
    });
    let lanes = (limits::LANES, limits::LANE_SLOTS);
    let mailbox = (limits::MAILBOX_SLOTS, limits::MAILBOX_UNITS);
    let shapes = [
        NbcLayout::common(1024),
        NbcLayout::own(2, 8),
        NbcLayout::own(4, 4000),
    ];
    let rounds = (
        ROUNDS,
        WIDE_SETS,
        shapes.map(|shape| NbcSlots::bytes(3, shape)),
    );
    let board = [0, 512].map(|lane| CollSegment::bytes(3, lane));
    assert_eq!(
        (
            FORMAT,
            lanes,
            mailbox,
            [2, 3, 64].map(inbox_bytes),
            grants,
            rounds,
            board
        ),
        (
            13,
            (4, 1024),
            (512, 4096),
            [8_953_856, 4_759_552, 2_666_496],
            [(4096, 2 << 20), (1024, 256 << 10), (1024, 16_777)],
            (16, 4, [43_520, 2_304, 69_632]),
            [13_824, 16_896]
        )
    );
}
