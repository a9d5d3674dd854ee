//! The engine's shortest ways, over the transport that has them, against a model: whether a message
//! goes the quick or the general way on either side, it gets to the receive that the standard says.

use garonne_engine::api::{
    CallOrigin, ContextId, Error, Pattern, RecvArgs, SendArgs, SendCompletion, StartOutcome,
};
use garonne_engine::fast::recv::{FastRecv, PlainRecvStatus};
use garonne_engine::fast::send::FastSend;
use garonne_engine::limits::ENVELOPES_MAX;
use garonne_engine::observe::events::{self, Event, EventKind};
use garonne_sync::post_mortem::PostMortemArc;
use garonne_sync::user::{Data, Scratch};
use pair::*;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

mod pair;
#[path = "../support/mod.rs"]
mod support;

#[test]
fn quick_and_general_ways_mix_without_changing_who_gets_what() {
    let mut taken = [0; 4];
    for seed in 1..40u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let mut pair = Pair::new(if seed % 2 == 0 {
            Memory::Readable
        } else {
            Memory::Apart
        });
        for step in 0..400 {
            if step % 100 == 0 {
                pair.sender.allow_slot_batches(below(4) != 0);
            }
            if step % 70 == 0 {
                // As if its communicator were freed and another got its contexts.
                pair.sender.end_send_channels(&(0..8));
            }
            let tag = below(3) as i32;
            let wanted = (below(4) != 0).then_some(tag);
            match below(16) {
                0..7 => {
                    let longest = match step {
                        step if step % 50 == 0 => 11,
                        step if step % 5 == 0 => 9,
                        _ => 5,
                    };
                    let len = LENGTHS[below(longest) as usize];
                    pair.send(
                        Sent {
                            tag,
                            len,
                            fill: step as u8,
                        },
                        below(4) != 0,
                    );
                }
                7..14 => pair.receive(wanted, below(2) == 0),
                14 if pair.posted.len() < 4 => pair.post(wanted, below(2) == 0),
                _ => {
                    pair.receiver.progress();
                    pair.sender.progress();
                }
            }
        }
        let quick = pair.finish();
        taken = std::array::from_fn(|way| taken[way] + quick[way]);
    }
    assert!(
        taken[0] > 500 && taken[1] > 500 && taken[2] > 30 && taken[3] > 300,
        "the quick ways were hardly taken: {taken:?}"
    );
}

#[test]
fn series_of_posted_receives_get_the_messages_in_order_and_lengths_and_errors_are_those_of_the_general_way()
 {
    let mut pair = Pair::new(Memory::Readable);
    pair.sender.allow_slot_batches(true);
    for round in 0..20u8 {
        // Some are posted before, some after their messages; tags alternate, so that lists come and
        // go.
        for step in 0..32u8 {
            if round % 2 == 0 {
                pair.post(Some(i32::from(step % 3)), true);
            }
            let len = LENGTHS[usize::from(step) % 5];
            pair.send(
                Sent {
                    tag: i32::from(step % 3),
                    len,
                    fill: step ^ round,
                },
                true,
            );
            if round % 2 != 0 {
                pair.receiver.progress();
                pair.post(Some(i32::from(step % 3)), true);
            }
        }
        for posted in std::mem::take(&mut pair.posted) {
            let status = pair.wait_plainly(posted.request);
            check(&status, &posted.memory, posted.gets.unwrap());
        }
    }
    assert!(pair.quick[2] == 640 && pair.receiver.is_idle());
    let memory = Scratch::new(8).unwrap();
    let catch = FastRecv::new(pattern(Some(1), false), (memory.mem(), 8), ORIGIN);
    let name = pair.receiver.post_plain(&catch).unwrap();
    assert_eq!(pair.receiver.take_plain(name), PlainRecvStatus::NotYet);
    assert!(pair.receiver.contexts_in_use().contexts == HashSet::from([CONTEXT]));
    let sent = Sent {
        tag: 1,
        len: 32,
        fill: 9,
    };
    pair.send(sent, true);
    pair.queue.clear();
    assert!(matches!(pair.wait(name).error, Some(Error::Truncated(_))));
    assert!(pair.receiver.is_idle());
}

#[test]
fn a_message_longer_than_the_room_is_left_to_the_general_receive() {
    let mut pair = Pair::new(Memory::Readable);
    pair.send(
        Sent {
            tag: 1,
            len: 32,
            fill: 9,
        },
        false,
    );
    pair.send(
        Sent {
            tag: 1,
            len: 8,
            fill: 8,
        },
        true,
    );
    let memory = Scratch::new(32).unwrap();
    let catch = FastRecv::new(pattern(Some(1), false), (memory.mem(), 8), ORIGIN);
    assert_eq!(pair.receiver.recv_blocking_fast(&catch, 0), None);
    assert_eq!(pair.receiver.unexpected_count(), 1);
    assert_eq!(
        pair.receiver.recv_blocking_fast(&catch, 0),
        None,
        "the kept message is longer, too"
    );
    pair.receive(Some(1), false);
    pair.receive(Some(1), false);
}

/// A pair whose sender writes through a lane, which takes some messages first.
fn warm_pair() -> Pair {
    let mut pair = Pair::new(Memory::Apart);
    for _ in 0..40 {
        let sent = Sent {
            tag: 0,
            len: 8,
            fill: 1,
        };
        pair.send(sent, true);
        pair.receive(Some(0), false);
    }
    pair
}

#[test]
fn a_message_in_pieces_goes_to_a_receive_posted_while_it_comes() {
    let mut pair = warm_pair();
    let sent = Sent {
        tag: 1,
        len: 30_000,
        fill: 7,
    };
    pair.send(sent, false);
    let elsewhere = Scratch::new(1).unwrap();
    let catch = FastRecv::new(pattern(Some(3), false), (elsewhere.mem(), 1), ORIGIN);
    // It takes the beginning in, which is not for it.
    assert_eq!(pair.receiver.recv_blocking_fast(&catch, 0), None);
    assert_eq!(
        pair.receiver.unexpected_count(),
        0,
        "half a message is none yet"
    );
    assert!(
        pair.receiver
            .probe(pattern(Some(1), false))
            .unwrap()
            .is_none()
    );
    let _ = pair.next(None);
    for (tag, gets) in [(Some(2), None), (None, Some(sent))] {
        let memory = Scratch::new(ROOM as usize).unwrap();
        match pair.start(tag, &memory) {
            StartOutcome::Pending(request) => pair.posted.push(Posted {
                tag,
                request,
                memory,
                gets,
            }),
            StartOutcome::Done(_) => panic!("its rest did not come yet"),
        }
    }
    pair.finish();
}

#[test]
fn a_message_in_pieces_is_received_quickly() {
    let mut pair = warm_pair();
    let before = pair.quick[1];
    for len in [12_500, 20_001, 30_000, 60_000] {
        let sent = Sent {
            tag: 1,
            len,
            fill: len as u8,
        };
        pair.send(sent, false);
        pair.receive(Some(1), false);
    }
    assert_eq!(pair.quick[1] - before, 4);
    pair.finish();
}

#[test]
fn messages_longer_than_a_packet_are_announced_once_their_lane_is_full() {
    const MANY: u8 = 40;
    for quick in [false, true] {
        let mut pair = warm_pair();
        // More than a lane holds, and more than a receiver grants.
        for fill in 0..MANY {
            let sent = Sent {
                tag: 1,
                len: 60_000,
                fill,
            };
            pair.send(sent, quick);
        }
        let left = usize::from(MANY) - pair.sending.len();
        assert!((1..usize::from(MANY)).contains(&left), "{left} of them fit");
        (0..MANY).for_each(|_| pair.receive(Some(1), false));
        pair.finish();
    }
}

#[test]
fn a_message_in_pieces_that_is_too_long_is_an_error_and_keeps_within_its_room() {
    for posted in [false, true] {
        let mut pair = warm_pair();
        let memory = Scratch::new(20_000).unwrap();
        let data = Data::contiguous(memory.mem(), 10_000);
        let recv = RecvArgs {
            pattern: pattern(Some(1), false),
            data,
            origin: ORIGIN,
        };
        let sent = Sent {
            tag: 1,
            len: 20_000,
            fill: 3,
        };
        let started = if posted {
            let started = pair.receiver.recv(recv).unwrap();
            pair.send(sent, false);
            started
        } else {
            pair.send(sent, false);
            pair.receiver.progress();
            pair.receiver.recv(recv).unwrap()
        };
        let status = match started {
            StartOutcome::Done(status) => status,
            StartOutcome::Pending(request) => pair.wait(request),
        };
        assert!(status.error.is_some() && status.len == 20_000);
        memory.mem().with(0, 20_000, |bytes| {
            assert!((0..10_000).all(|at| bytes[at] == byte(3, at)));
            assert!(bytes[10_000..].iter().all(|byte| *byte == 0));
        });
        let _ = pair.next(None);
        pair.finish();
    }
}

#[test]
fn a_track_stops_where_credits_end_and_goes_on_when_they_come_back() {
    let mut pair = Pair::new(Memory::Readable);
    pair.sender.allow_slot_batches(true);
    let mut sent = 0u32;
    let mut send = |pair: &mut Pair| {
        let message = Sent {
            tag: 1,
            len: 8,
            fill: sent as u8,
        };
        sent += 1;
        pair.send(message, true);
    };
    // More than the quota, so that the last ones wait in the window, which no message of a track
    // may overtake.
    for _ in 0..3 {
        for _ in 0..3 * ENVELOPES_MAX / 2 {
            send(&mut pair);
            pair.receiver.progress();
            pair.sender.progress();
        }
        assert!(!pair.sending.is_empty(), "the quota was never used up");
        while !pair.queue.is_empty() {
            pair.receive(Some(1), false);
            pair.sender.progress();
        }
    }
    let [_, _, _, on_track] = pair.finish();
    assert!(on_track > 2000, "{on_track} messages went on the track");
}

/// Sends a small message the shortest way that there is, as the first of a stream as well.
fn send_somehow(pair: &mut Pair, small: &FastSend) {
    if pair.sender.send_small(small) {
        return;
    }
    let sent = pair.sender.send(SendArgs {
        context: small.context,
        peer: small.peer,
        source: small.source,
        tag: small.tag,
        data: Data::contiguous(small.mem, small.len as u64),
        mode: SendCompletion::Standard,
        origin: ORIGIN,
    });
    assert!(matches!(sent, Ok(StartOutcome::Done(_))));
}

/// Returns what the receiver recorded of messages that it took as they lay ready.
fn takes(pair: &Pair) -> Vec<Event> {
    let events = pair.receiver.events().iter().map(|(_, event)| event);
    events
        .filter(|event| event.kind == EventKind::ReadyRecv)
        .collect()
}

/// Sends a message that is too long for a slot, and receives it.
fn pass_a_longer_one(pair: &mut Pair) {
    let longer = Sent {
        tag: 0,
        len: 256,
        fill: 1,
    };
    pair.send(longer, true);
    pair.receive(Some(0), false);
}

/// A receive of eight bytes into this memory.
fn eight_bytes_from(context: ContextId, tag: i32, memory: &Scratch) -> FastRecv {
    let pattern = Pattern {
        context,
        ..pattern(Some(tag), false)
    };
    FastRecv::new(pattern, (memory.mem(), 8), ORIGIN)
}

/// Sends eight bytes in each of these contexts and takes them as they lie ready.
fn send_and_take(pair: &mut Pair, contexts: &[ContextId], tag: i32, place: u64) {
    let room = Scratch::new(8).unwrap();
    for &context in contexts {
        let small = FastSend {
            tag,
            ..eight_bytes(context, &room)
        };
        assert!(pair.sender.send_small(&small));
        let catch = eight_bytes_from(context, tag, &room);
        let site = |word: &AtomicU64| word.store(place, Ordering::Relaxed);
        assert!(pair.receiver.try_recv_now(&catch, site).is_some());
    }
}

#[test]
fn messages_taken_as_they_lie_ready_are_one_event_when_something_else_comes() {
    let mut pair = warm_pair();
    pass_a_longer_one(&mut pair);
    let (before, had) = (pair.receiver.events().next(), takes(&pair).len());
    for tag in 3..6 {
        send_and_take(&mut pair, &[CONTEXT], tag, 100 + tag as u64);
    }
    assert_eq!(
        pair.receiver.events().next(),
        before,
        "each is no event of its own"
    );
    pass_a_longer_one(&mut pair);
    let taken = Event {
        len: 3 * 8,
        site: 105,
        peer: 0,
        context: CONTEXT,
        tag: 5,
        call: ORIGIN.call,
        kind: EventKind::ReadyRecv,
        datatype: ORIGIN.datatype,
    };
    assert_eq!(takes(&pair)[had..], [taken]);
}

#[test]
fn of_messages_taken_as_they_lie_ready_none_is_left_out_of_the_events() {
    let mut pair = warm_pair();
    let other = 8 + CONTEXT;
    // The first of a stream is not taken so.
    let first = Scratch::new(8).unwrap();
    send_somehow(&mut pair, &eight_bytes(other, &first));
    while pair.receiver.progress() {}
    let kept = pair
        .receiver
        .recv_blocking_fast(&eight_bytes_from(other, 3, &first), 0);
    assert!(kept.is_some());
    let had = takes(&pair).len();
    // Streams of one peer have one place, and credits are returned several times.
    let mut count = 0;
    for round in 0..ENVELOPES_MAX {
        let contexts: &[ContextId] = if round % 100 == 0 {
            &[other, CONTEXT]
        } else {
            &[CONTEXT]
        };
        send_and_take(&mut pair, contexts, 3, 100);
        count += contexts.len() as u64;
        pair.sender.progress();
    }
    pass_a_longer_one(&mut pair);
    let taken = &takes(&pair)[had..];
    assert_eq!(taken.iter().map(|event| event.len).sum::<u64>(), count * 8);
    assert!(taken.iter().all(|event| event.len > 0));
    let of_other = taken.iter().filter(|event| event.context == other);
    assert_eq!(
        of_other.map(|event| event.len).sum::<u64>(),
        u64::from(ENVELOPES_MAX).div_ceil(100) * 8
    );
}

/// The first eight bytes of this memory, to the one peer.
fn eight_bytes(context: ContextId, memory: &Scratch) -> FastSend {
    FastSend {
        context,
        peer: 1,
        source: 0,
        tag: 3,
        mem: memory.mem(),
        len: 8,
        origin: ORIGIN,
    }
}

#[test]
fn a_track_sends_nothing_once_several_threads_may_call_or_the_peer_is_gone() {
    let mut pair = Pair::new(Memory::Readable);
    pair.sender.allow_slot_batches(true);
    let memory = Scratch::new(8).unwrap();
    let small = eight_bytes(CONTEXT, &memory);
    let send = |pair: &mut Pair| {
        let message = Sent {
            tag: 3,
            len: 8,
            fill: 1,
        };
        pair.send(message, true);
        pair.receive(Some(3), false);
    };
    while pair.sender.send_channel(CONTEXT, 1).is_none() {
        send(&mut pair);
    }
    send(&mut pair);
    pair.sender.allow_slot_batches(false);
    assert!(!pair.on_track(&small));
    send(&mut pair);
    pair.sender.allow_slot_batches(true);
    send(&mut pair);
    let before = pair.quick[3];
    send(&mut pair);
    assert_eq!(pair.quick[3], before + 1, "it is taken again");
    pair.sender.transport().peer_gone(1);
    pair.sender.progress();
    assert!(!pair.on_track(&small) && !pair.sender.send_small(&small));
}

#[test]
fn tracks_end_with_their_communicator_and_leave_those_of_others_where_readers_find_them() {
    let mut pair = Pair::new(Memory::Readable);
    pair.sender.allow_slot_batches(true);
    let memory = Scratch::new(8).unwrap();
    let small = |context| eight_bytes(context, &memory);
    const PLACE: u64 = 77;
    let others = [8, 16, 24, 32].map(|block| block + CONTEXT);
    for context in others {
        while pair.sender.send_channel(context, 1).is_none() {
            send_somehow(&mut pair, &small(context));
            while pair.receiver.progress() {}
        }
        // From another place, which no event has.
        let mut elsewhere = small(context);
        elsewhere.origin.site = PLACE;
        assert!(pair.on_track(&elsewhere));
    }
    let found = |pair: &Pair, context| {
        let sent = events::SentMessage {
            from: 0,
            to: 1,
            context,
            tag: 3,
            len: 8,
        };
        let ring = pair.sender.events().address() as u64;
        let origins = events::find_senders(ring, &sent, own_memory).unwrap();
        origins.iter().any(|origin| origin.site == PLACE)
    };
    // Owned by the engine and here.
    let tracks = others.map(|context| pair.sender.send_channel(context, 1).unwrap());
    let lives = |at: usize| PostMortemArc::owners(&tracks[at]) == 2;
    // One in the middle, the oldest, the newest, the last.
    for ended in [1, 0, 3, 2] {
        let block = others[ended] - CONTEXT;
        assert!(lives(ended));
        pair.sender.end_send_channels(&(block..block + 8));
        pair.sender.end_send_channels(&(block..block + 8));
        assert!(!lives(ended) && pair.sender.send_channel(others[ended], 1).is_none());
        for (at, context) in others.into_iter().enumerate() {
            assert_eq!(found(&pair, context), lives(at), "{at} after {ended}");
        }
    }
    // The numbers go on.
    assert!(pair.sender.send_small(&small(others[1])) && pair.on_track(&small(others[1])));
}

/// Returns where the receiver last got a message of this tag by a receive from any source.
fn taken_from_any(pair: &Pair, tag: i32) -> Option<u64> {
    let ring = pair.receiver.events().address() as u64;
    let (found, origin) = events::taken_from_any(ring, (0, CONTEXT, Some(tag)), own_memory)?;
    assert_eq!((found, origin.call), (tag, ORIGIN.call));
    Some(origin.site)
}

#[test]
fn a_receive_from_any_source_is_told_with_what_it_took() {
    for len in [4, 3500, 30_000, ROOM as usize] {
        let mut pair = Pair::new(Memory::Readable);
        // The message is the first of its peer, was kept, comes to a posted receive. One that lies
        // ready when its receive comes is not noted: nothing may be added to that way.
        for (tag, way) in (0..).zip(["first", "kept", "posted"]) {
            let named = |pair: &mut Pair| {
                let sent = Sent { tag, len, fill: 1 };
                pair.send(sent, true);
                if way == "kept" {
                    while pair.receiver.progress() {}
                }
                pair.receive(Some(tag), false);
            };
            if way != "first" {
                named(&mut pair);
                assert_eq!(taken_from_any(&pair, tag), None, "{len} B, {way}");
            }
            let memory = Scratch::new(ROOM as usize).unwrap();
            let origin = CallOrigin { site: 77, ..ORIGIN };
            let catch = FastRecv::new(pattern(Some(tag), true), (memory.mem(), ROOM), origin);
            let posted = (way == "posted").then(|| pair.receiver.post_plain(&catch).unwrap());
            pair.send(Sent { tag, len, fill: 2 }, true);
            if way == "kept" {
                while pair.receiver.progress() {}
            }
            if posted.is_some() || pair.receiver.recv_blocking_fast(&catch, 3).is_none() {
                let request = posted.unwrap_or_else(|| pair.receiver.post_plain(&catch).unwrap());
                assert_eq!(pair.wait(request).error, None);
            }
            pair.queue.clear();
            assert_eq!(taken_from_any(&pair, tag), Some(77), "{len} B, {way}");
            named(&mut pair);
            assert_eq!(taken_from_any(&pair, tag), Some(77), "{len} B, {way}");
        }
    }
}

/// Reads memory as one process reads another's.
fn own_memory(address: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut bytes, address)
        .ok()?;
    Some(bytes)
}
