//! Mailboxes and lanes in anonymous segments: order, room, death of writers, and peers that write
//! anything.

use super::*;

const GEOMETRY: RingGeometry = RingGeometry {
    slots: 8,
    units: 64,
    reserved_slots: 2,
    reserved_units: 8,
};
const PLACE: RingLayout = RingLayout {
    control: 0,
    slots: 384,
    area: 384 + 8 * 64,
    cards: 384 + 8 * 64 + 64 * 64,
    writers: 4,
    geometry: GEOMETRY,
};
const BYTES: usize = PLACE.cards + 4 * RANK_BLOCK_BYTES;

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

fn send(producer: &mut Producer, seed: u8, len: usize) -> std::result::Result<(), RingFull> {
    let mut data = bytes(len, seed);
    // SAFETY: the vector outlives the call.
    producer.send(
        [len as u64, u64::from(seed), 0],
        unsafe { UserMem::new(data.as_mut_ptr()) },
        len,
        if seed.is_multiple_of(2) {
            StoreKind::Cached
        } else {
            StoreKind::Streamed
        },
    )
}

fn receive(consumer: &mut Consumer) -> Option<(u16, u8, usize)> {
    let mut got = None;
    while got.is_none() {
        let taken = consumer.take(|record| {
            let (len, seed) = (record.header[0] as usize, record.header[1] as u8);
            assert!(len <= record.room);
            let mut data = vec![0; len];
            record.payload.read(0, &mut data);
            assert_eq!(data, bytes(len, seed));
            let streamed = len > INLINE_MAX && !seed.is_multiple_of(2);
            assert_eq!(record.stores == StoreKind::Streamed, streamed);
            got = Some((record.writer, seed, len));
        });
        if taken == Consumed::Empty {
            consumer.idle();
            return None;
        }
    }
    got
}

#[test]
fn records_of_every_length_arrive_in_order_and_whole() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let mut producer = Producer::mailbox(&shm, PLACE, 3).unwrap();
    let mut consumer = Consumer::new(&shm, PLACE).unwrap();
    for round in 0..2000usize {
        let len = round * 7 % (Producer::payload_max(&GEOMETRY) + 1);
        send(&mut producer, round as u8, len).unwrap();
        assert_eq!(receive(&mut consumer), Some((3, round as u8, len)));
        assert_eq!(
            (producer.position(), consumer.position()),
            (round as u32 + 1, round as u32 + 1)
        );
    }
    assert_eq!(receive(&mut consumer), None);
}

#[test]
fn data_cannot_take_the_room_reserved_for_control() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let mut producer = Producer::mailbox(&shm, PLACE, 0).unwrap();
    let mut sent = 0;
    while send(&mut producer, sent, 8).is_ok() {
        sent += 1;
    }
    assert_eq!(u32::from(sent), GEOMETRY.slots - GEOMETRY.reserved_slots);
    for _ in 0..GEOMETRY.reserved_slots {
        let claimed = producer.claim(88, RecordClass::Control).unwrap();
        producer.abandon(claimed);
    }
    assert!(producer.claim(0, RecordClass::Control).is_err());
    let mut consumer = Consumer::new(&shm, PLACE).unwrap();
    while receive(&mut consumer).is_some() {}
    assert!(
        consumer.take_starving(),
        "the writer that found it full is not forgotten"
    );
    send(&mut producer, 9, 8).unwrap();
}

#[test]
fn a_record_is_peeked_at_only_where_its_payload_shares_its_slot_and_stays_until_it_is_passed() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let mut producer = Producer::lane(&shm, PLACE, 2).unwrap();
    let mut consumer = Consumer::of_lane(&shm, PLACE, 2).unwrap();
    assert!(consumer.peek().is_none());
    for round in 0..100u8 {
        for len in [8, 200, 0, 32] {
            send(&mut producer, round, len).unwrap();
            if len > INLINE_MAX {
                assert!(consumer.peek().is_none());
                assert_eq!(receive(&mut consumer), Some((2, round, len)));
                continue;
            }
            for _ in 0..2 {
                let record = consumer.peek().unwrap();
                assert_eq!(
                    (record.writer, record.header),
                    (2, [len as u64, u64::from(round), 0])
                );
                let mut data = vec![0; len];
                record.payload.read(0, &mut data);
                assert_eq!(data, bytes(len, round));
            }
            consumer.pass();
            assert!(consumer.peek().is_none());
        }
    }
    assert_eq!((producer.position(), consumer.position()), (400, 400));
}

#[test]
fn a_run_and_the_rest_of_its_lane_keep_one_order_over_many_rounds() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let bell = shm::Segment::anonymous(4).unwrap().word(0);
    let mut producer = Producer::lane(&shm, PLACE, 3).unwrap();
    let mut consumer = Consumer::of_lane(&shm, PLACE, 3).unwrap();
    let run = producer.run(&bell);
    let (mut sent, mut taken, mut ran) = (0u8, 0u8, 0);
    for round in 0..500u32 {
        let opened = producer.open_run(1 + round % 7);
        assert!(opened <= 1 + round % 7);
        for n in 0..opened {
            if n == 5 {
                // What is left goes back to the lane.
                break;
            }
            let payload = bytes(8, sent);
            // SAFETY: the vector outlives the call.
            let mem = unsafe { UserMem::new(payload.as_ptr().cast_mut()) };
            let words = crate::slot_batch::HeaderWords {
                first: [8, 0],
                second: u64::from(sent),
                third: [0; 2],
            };
            run.put(run.next().unwrap().begin(words), mem, 8);
            assert_eq!(run.used(), (n + 1, u64::from(n + 1) * 8));
            (sent, ran) = (sent.wrapping_add(1), ran + 1);
        }
        if round % 3 == 0 && send(&mut producer, sent, 100).is_ok() {
            assert!(run.next().is_none(), "what comes behind a run closes it");
            sent = sent.wrapping_add(1);
        }
        while round % 5 != 4 && taken != sent {
            let (writer, value, _) = receive(&mut consumer).unwrap();
            assert_eq!((writer, value), (3, taken));
            taken = taken.wrapping_add(1);
        }
    }
    assert!(ran > 1000, "{ran} records went in runs");
    drop(producer);
    assert!(run.next().is_none(), "a run ends with its lane");
}

#[test]
fn a_claim_given_back_is_passed_over() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let mut producer = Producer::lane(&shm, PLACE, 0).unwrap();
    let mut consumer = Consumer::new(&shm, PLACE).unwrap();
    let claimed = producer.claim(500, RecordClass::Data).unwrap();
    producer.abandon(claimed);
    send(&mut producer, 5, 300).unwrap();
    assert_eq!(receive(&mut consumer), Some((0, 5, 300)));
}

#[test]
fn a_claim_of_a_dead_writer_is_skipped_with_its_payload() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let mut dead = Producer::mailbox(&shm, PLACE, 1).unwrap();
    let mut alive = Producer::mailbox(&shm, PLACE, 2).unwrap();
    let mut consumer = Consumer::new(&shm, PLACE).unwrap();
    let _ = dead.claim(700, RecordClass::Data).unwrap();
    send(&mut alive, 1, 700).unwrap();
    assert_eq!(receive(&mut consumer), None);
    assert!(!consumer.skip_gone(&mut |_| false), "nobody is gone yet");
    assert!(consumer.skip_gone(&mut |writer| writer == 1));
    assert_eq!(receive(&mut consumer), Some((2, 1, 700)));
}

#[test]
fn whatever_a_peer_writes_into_slots_the_reader_stays_inside() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let mut consumer = Consumer::new(&shm, PLACE).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut broken = 0;
    for round in 0..20_000u32 {
        for word in 0..8 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = if word == 0 {
                u64::from(round + 1) | random << 32
            } else {
                random.rotate_left(17)
                    & if round % 3 == 0 {
                        u64::MAX
                    } else {
                        0xff_0000_00ff
                    }
            };
            shm.atomic_u64(PLACE.slots + (round % 8) as usize * UNIT + word * 8)
                .store(value, Ordering::Relaxed);
        }
        let taken = consumer.take(|record| {
            let mut data = vec![0; record.room];
            record.payload.read(0, &mut data);
        });
        assert_ne!(taken, Consumed::Empty);
        broken += u32::from(matches!(taken, Consumed::Broken(_)));
    }
    assert!(broken > 1000);
}

#[test]
fn many_threads_lose_nothing_and_keep_their_order() {
    let shm = shm::Segment::anonymous(BYTES).unwrap();
    let mut consumer = Consumer::new(&shm, PLACE).unwrap();
    std::thread::scope(|scope| {
        for me in 0..4u16 {
            let shm = &shm;
            scope.spawn(move || {
                let mut producer = Producer::mailbox(shm, PLACE, me).unwrap();
                for n in 0..2000usize {
                    while send(&mut producer, n as u8, n % 200).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0usize; 4];
        while next.iter().sum::<usize>() < 8000 {
            match receive(&mut consumer) {
                Some((writer, seed, len)) => {
                    let n = &mut next[usize::from(writer)];
                    assert_eq!((seed, len), (*n as u8, *n % 200));
                    *n += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
}

/// A lane as two ranks of a host have it, and what becomes of it.
fn long_lane(most: u32) -> (Producer, Consumer) {
    const LONG: RingLayout = RingLayout {
        control: 0,
        slots: 4096,
        area: 4096 + 1024 * UNIT,
        cards: 4096 + (1024 + 32768) * UNIT,
        writers: 2,
        geometry: RingGeometry {
            slots: 1024,
            units: 32768,
            reserved_slots: 128,
            reserved_units: 384,
        },
    };
    let shm = shm::Segment::anonymous(LONG.cards + 2 * RANK_BLOCK_BYTES).unwrap();
    let mut producer = Producer::lane(&shm, LONG, 1).unwrap();
    producer.writer.fill_at_most(most);
    (producer, Consumer::of_lane(&shm, LONG, 1).unwrap())
}

#[test]
fn a_lane_touches_more_of_its_memory_only_as_more_goes_through_it() {
    for (most, touched) in [
        (32768, [256, 512, 1024, 2048]),
        (8192, [256, 512, 512, 512]),
    ] {
        let (mut producer, mut consumer) = long_lane(most);
        let first = producer
            .writer
            .memory
            .room(Claim {
                slot: 0,
                start: 0,
                units: 1,
            })
            .0
            .addr(0);
        let (mut sent, mut high) = (0, 0);
        // Kilobytes that went through it, and that it has touched then.
        for (through, touched) in [900, 2900, 6900, 40_000].into_iter().zip(touched) {
            while sent < through << 10 {
                let claimed = producer.claim(16 << 10, RecordClass::Data).unwrap();
                high = high.max(claimed.mem.addr(0) + claimed.len - first);
                producer.commit(claimed, [0; 3], StoreKind::Cached);
                assert!(receive(&mut consumer).is_some());
                sent += 16 << 10;
            }
            assert!(
                high <= touched << 10 && high > (touched - 40) << 10,
                "{most} {through}: {high}"
            );
        }
    }
}

#[test]
fn an_empty_lane_has_room_for_whatever_may_be_sent_however_far_it_is_filled_as_yet() {
    let (mut producer, mut consumer) = long_lane(32768);
    let longest = Producer::payload_max(&producer.writer.memory.geometry());
    for round in 0..4000usize {
        assert!(producer.has_room(4, 16 << 10), "{round}");
        let len = match round % 7 {
            0 => longest,
            1 => 33,
            step => 1 + (round * 7919 * step) % (96 << 10),
        };
        let claimed = producer.claim(len, RecordClass::Data).unwrap();
        assert_eq!(claimed.len.next_multiple_of(UNIT), claimed.len);
        producer.abandon(claimed);
        assert_eq!(receive(&mut consumer), None);
        // What is idle tells how far it is.
        assert_eq!(receive(&mut consumer), None);
    }
}

#[test]
fn all_that_was_promised_room_has_it_where_a_lane_begins_anew_early() {
    let (mut producer, mut consumer) = long_lane(32768);
    let mut under_way = 0usize;
    for round in 0..2500usize {
        let (records, len) = (1 + round % 4, 1 + (round * 7919) % (32 << 10));
        if producer.has_room(records, len) {
            (0..records).for_each(|_| send(&mut producer, round as u8, len).unwrap());
            under_way += records;
        }
        for _ in 0..(round * 31 % 6).min(under_way) {
            assert!(receive(&mut consumer).is_some());
            under_way -= 1;
        }
    }
    assert!(
        consumer.reader.next_unit() / 32768 > rounds_to(32768),
        "it was filled whole"
    );
}

#[test]
fn nothing_is_overwritten_that_a_slower_reader_has_not_taken_while_a_lane_is_filled_further_and_further()
 {
    const RECORDS: usize = 1500;
    let (mut producer, mut consumer) = long_lane(32768);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for record in 0..RECORDS {
                let len = 1 + (record * 7919) % (24 << 10);
                while send(&mut producer, record as u8, len).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        for record in 0..RECORDS {
            let got = loop {
                match receive(&mut consumer) {
                    Some(got) => break got,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(got, (1, record as u8, 1 + (record * 7919) % (24 << 10)));
        }
    });
}

#[test]
fn long_payloads_begin_in_the_middle_of_a_page_and_all_that_were_promised_room_have_it() {
    const LARGE: RingLayout = RingLayout {
        control: 0,
        slots: 4096,
        area: 3 * 4096,
        cards: 3 * 4096 + 2048 * UNIT,
        writers: 2,
        geometry: RingGeometry {
            slots: 128,
            units: 2048,
            reserved_slots: 8,
            reserved_units: 24,
        },
    };
    let shm = shm::Segment::anonymous(LARGE.cards + 2 * RANK_BLOCK_BYTES).unwrap();
    let mut producer = Producer::lane(&shm, LARGE, 1).unwrap();
    let mut consumer = Consumer::of_lane(&shm, LARGE, 1).unwrap();
    for round in 0..500usize {
        let (records, len) = (1 + round % 5, 8192 + 64 * (round * 37 % 200) + round % 64);
        send(&mut producer, 0, 40 + round % 3000).unwrap();
        receive(&mut consumer).unwrap();
        if producer.has_room(records, len) {
            for record in 0..records {
                let claimed = producer.claim(len, RecordClass::Data).unwrap();
                assert_eq!(claimed.mem.addr(0) % 4096, 2048);
                producer.abandon(claimed);
                assert_eq!(receive(&mut consumer), None, "{round} {record}");
            }
        }
    }
    assert!(producer.has_room(4, 8192), "an empty lane has room");
}

#[test]
fn the_longest_record_fits_an_empty_lane_wherever_it_is() {
    let (mut producer, mut consumer) = long_lane(32768);
    let longest = Producer::payload_max(&producer.writer.memory.geometry());
    let mut pass = |producer: &mut Producer, units: usize| {
        let claimed = producer.claim(units * UNIT, RecordClass::Data);
        let Ok(claimed) = claimed else { return false };
        producer.abandon(claimed);
        assert_eq!(receive(&mut consumer), None);
        assert_eq!(receive(&mut consumer), None);
        true
    };
    for _ in 0..40 {
        assert!(pass(&mut producer, 100));
    }
    assert!(pass(&mut producer, 60));
    assert!(pass(&mut producer, 4500));
    assert!(
        (0..10).any(|_| pass(&mut producer, longest / UNIT)),
        "an empty lane has no room for ever"
    );
}
