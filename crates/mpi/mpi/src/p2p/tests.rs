//! Sends, receives, probes, buffers and all forms of waiting, over jobs of several ranks.

use super::bsend_buffer::BsendMemory;
use super::*;
use crate::error::Class;
use crate::request::*;
use crate::testing::{TestBytes, engine_job, job};
use std::sync::{Arc, Mutex};

fn to(dest: i32, tag: i32, bytes: &TestBytes) -> SendArgs {
    SendArgs {
        data: bytes.data(),
        dest,
        tag,
        mode: SendMode::Standard,
        origin: CallOrigin::default(),
    }
}

fn from(source: i32, tag: i32, bytes: &TestBytes) -> RecvArgs {
    RecvArgs {
        data: bytes.data(),
        source,
        tag,
        origin: CallOrigin::default(),
    }
}

#[test]
fn messages_arrive_in_every_mode_with_their_envelope() {
    job(2, |world| {
        for mode in [SendMode::Standard, SendMode::Ready, SendMode::Synchronous] {
            if world.rank() == 0 {
                world
                    .send(SendArgs {
                        mode,
                        ..to(1, 7, &TestBytes::of(b"abc"))
                    })
                    .unwrap();
            } else {
                let into = TestBytes::new(5);
                let status = world
                    .recv(from(crate::ANY_SOURCE, crate::ANY_TAG, &into))
                    .unwrap();
                assert_eq!(
                    status,
                    Status {
                        source: 0,
                        tag: 7,
                        len: 3,
                        cancelled: false
                    }
                );
                assert_eq!(&into.get()[..3], b"abc");
            }
        }
    });
}

#[test]
fn bad_ranks_and_tags_are_refused_and_proc_null_is_nobody() {
    job(1, |world| {
        let bytes = TestBytes::new(1);
        assert_eq!(world.send(to(1, 0, &bytes)).unwrap_err().class, Class::Rank);
        assert_eq!(
            world
                .send(to(crate::ANY_SOURCE, 0, &bytes))
                .unwrap_err()
                .class,
            Class::Rank
        );
        assert_eq!(
            world.send(to(0, crate::ANY_TAG, &bytes)).unwrap_err().class,
            Class::Tag
        );
        assert_eq!(
            world.recv(from(0, -7, &bytes)).unwrap_err().class,
            Class::Tag
        );
        world.send(to(crate::PROC_NULL, 0, &bytes)).unwrap();
        assert_eq!(
            world.recv(from(crate::PROC_NULL, 0, &bytes)).unwrap(),
            Status::PROC_NULL
        );
        assert_eq!(
            world
                .probe(crate::PROC_NULL, 3, CallOrigin::default())
                .unwrap(),
            Status::PROC_NULL
        );
        let (message, status) = world
            .mprobe(crate::PROC_NULL, 3, CallOrigin::default())
            .unwrap();
        assert_eq!(status, Status::PROC_NULL);
        assert_eq!(
            message.recv(bytes.data(), CallOrigin::default()).unwrap(),
            Status::PROC_NULL
        );
    });
}

#[test]
fn a_truncated_message_tells_both_lengths_and_the_communicator() {
    job(2, |world| {
        if world.rank() == 0 {
            world.send(to(1, 0, &TestBytes::new(9))).unwrap();
        } else {
            world.set_name("halo_x");
            let error = world.recv(from(0, 0, &TestBytes::new(4))).unwrap_err();
            assert_eq!(error.class, Class::Truncate);
            for part in [
                "(4 B, source 0",
                "sent 9 B",
                "\"halo_x\"",
                "rank 1",
                "rank 0",
                "tag 0",
            ] {
                assert!(
                    error.detail.contains(part),
                    "{part} is missing in {}",
                    error.detail
                );
            }
        }
    });
}

#[test]
fn a_matched_probe_takes_the_message_from_everyone_else() {
    job(2, |world| {
        if world.rank() == 0 {
            world.send(to(1, 1, &TestBytes::of(b"first"))).unwrap();
            world.send(to(1, 1, &TestBytes::of(b"second"))).unwrap();
        } else {
            let (message, status) = world.mprobe(0, 1, CallOrigin::default()).unwrap();
            assert_eq!(status.len, 5);
            let (later, earlier) = (TestBytes::new(6), TestBytes::new(5));
            world.recv(from(0, 1, &later)).unwrap();
            wait(
                &message
                    .irecv(earlier.data(), CallOrigin::default(), world.process())
                    .unwrap(),
            )
            .unwrap();
            assert_eq!(
                (earlier.get(), later.get()),
                (b"first".to_vec(), b"second".to_vec())
            );
            assert!(world.iprobe(0, 1).unwrap().is_none());
        }
    });
}

#[test]
fn persistent_requests_start_again_and_again() {
    job(2, |world| {
        let bytes = TestBytes::new(1);
        let other = 1 - world.rank() as i32;
        let request = if world.rank() == 0 {
            world.send_init(to(other, 0, &bytes))
        } else {
            world.recv_init(from(other, 0, &bytes))
        };
        let request = request.unwrap();
        assert_eq!(wait(&request).unwrap(), Status::EMPTY);
        assert!(wait_any(&[Some(&request), None]).is_none());
        for round in 0..3 {
            if world.rank() == 0 {
                bytes.mem().write(0, &[round]);
            }
            request.start().unwrap();
            assert_eq!(request.start().unwrap_err().class, Class::Request);
            wait(&request).unwrap();
            assert!(!request.is_active() && request.is_persistent());
            assert_eq!(bytes.get(), [round]);
        }
        request.free().unwrap();
    });
}

#[test]
fn of_several_completed_receives_the_first_to_complete_is_given_first() {
    engine_job(2, |world| {
        if world.rank() == 0 {
            world.meet().unwrap();
            for tag in [2, 0, 1] {
                world
                    .send(to(1, tag, &TestBytes::of(&[tag as u8])))
                    .unwrap();
            }
            world.meet().unwrap();
            return;
        }
        let into: Vec<TestBytes> = (0..4).map(|_| TestBytes::new(1)).collect();
        let mut requests: Vec<Request> = (0..3)
            .map(|tag| world.irecv(from(0, tag as i32, &into[tag])).unwrap())
            .collect();
        world.meet().unwrap();
        world.meet().unwrap();
        let mut list: Vec<Option<Request>> = requests.drain(..).map(Some).collect();
        let mut seen = Vec::new();
        while let Some((index, _)) = wait_any(&list.iter().map(Option::as_ref).collect::<Vec<_>>())
        {
            list[index] = None;
            seen.push(index);
        }
        assert_eq!(seen, [2, 0, 1]);
    });
}

#[test]
fn every_wait_form_completes_a_mixture_and_skips_null_and_inactive_requests() {
    job(2, |world| {
        let other = 1 - world.rank() as i32;
        let into: Vec<TestBytes> = (0..4).map(|_| TestBytes::new(1)).collect();
        let recvs: Vec<Request> = (0..4)
            .map(|tag| world.irecv(from(other, tag as i32, &into[tag])).unwrap())
            .collect();
        let idle = world.recv_init(from(other, 9, &into[0])).unwrap();
        let mut list: Vec<Option<&Request>> = recvs.iter().map(Some).collect();
        list.extend([None, Some(&idle)]);
        assert!(matches!(test_any(&[None, Some(&idle)]), TestAny::Nothing));
        world.meet().unwrap();
        assert!(!test_all(&list, &mut |_, _| panic!("nothing was sent yet")));
        assert_eq!(
            test_some(&list, &mut |_, _| panic!("nothing was sent yet")),
            Some(0)
        );
        assert!(matches!(test_any(&list), TestAny::NotYet));
        assert!(get_status(&recvs[2]).is_none());
        world.meet().unwrap();
        world.send(to(other, 2, &TestBytes::of(&[22]))).unwrap();
        let (index, outcome) = wait_any(&list).unwrap();
        assert_eq!((index, outcome.unwrap().tag), (2, 2));
        list[2] = None;
        world.meet().unwrap();
        world.send(to(other, 0, &TestBytes::of(&[20]))).unwrap();
        let mut seen = Vec::new();
        assert_eq!(wait_some(&list, &mut |index, _| seen.push(index)), Some(1));
        assert_eq!(seen, [0]);
        list[0] = None;
        world.meet().unwrap();
        world.send(to(other, 1, &TestBytes::of(&[21]))).unwrap();
        world.send(to(other, 3, &TestBytes::of(&[23]))).unwrap();
        let mut seen = Vec::new();
        wait_all(&list, &mut |index, outcome| {
            seen.push((index, outcome.unwrap().tag))
        });
        let any = crate::ANY_TAG;
        assert_eq!(
            seen,
            [(0, any), (1, 1), (2, any), (3, 3), (4, any), (5, any)]
        );
        assert_eq!(
            into.iter().flat_map(TestBytes::get).collect::<Vec<_>>(),
            [20, 21, 22, 23]
        );
    });
}

#[test]
fn looking_at_a_request_leaves_it_and_cancelling_a_receive_completes_it() {
    job(1, |world| {
        let into = TestBytes::new(1);
        let recv = world.irecv(from(0, 0, &into)).unwrap();
        recv.cancel().unwrap();
        assert!(get_status(&recv).unwrap().unwrap().cancelled);
        assert!(wait(&recv).unwrap().cancelled);
        let sent = world
            .isend(SendArgs {
                mode: SendMode::Synchronous,
                ..to(0, 0, &into)
            })
            .unwrap();
        sent.cancel().unwrap();
        assert!(test(&sent).is_none());
        world.recv(from(0, 0, &into)).unwrap();
        assert!(!test(&sent).unwrap().unwrap().cancelled);
    });
}

#[test]
fn data_is_replaced_while_it_is_sent() {
    job(3, |world| {
        let rank = world.rank() as i32;
        let (next, previous) = ((rank + 1) % 3, (rank + 2) % 3);
        let bytes = TestBytes::of(&[rank as u8]);
        let args = ReplaceArgs {
            data: bytes.data(),
            to: (next, 4),
            from: (previous, 4),
            origin: CallOrigin::default(),
        };
        assert_eq!(
            world.sendrecv_replace(args.clone()).unwrap().source,
            previous
        );
        assert_eq!(bytes.get(), [previous as u8]);
        let request = world.isendrecv_replace(args).unwrap();
        assert_eq!(wait(&request).unwrap().source, previous);
        assert_eq!(bytes.get(), [next as u8]);
        assert_eq!(
            world
                .sendrecv(to(9, 0, &bytes), from(0, 0, &bytes))
                .unwrap_err()
                .class,
            Class::Rank
        );
    });
}

#[test]
fn buffered_sends_fill_their_buffer_and_detaching_waits_for_them() {
    job(2, |world| {
        let process = world.process();
        let into = TestBytes::new(8);
        if world.rank() == 1 {
            for _ in 0..3 {
                world.recv(from(0, 0, &into)).unwrap();
                assert_eq!(into.get(), b"buffered");
            }
            return;
        }
        let text = TestBytes::of(b"buffered");
        let buffered = || SendArgs {
            mode: SendMode::Buffered,
            ..to(1, 0, &text)
        };
        assert_eq!(world.send(buffered()).unwrap_err().class, Class::Buffer);
        let room = TestBytes::new(8);
        let buffer = BsendMemory::User {
            mem: room.mem(),
            len: 8,
        };
        process.buffers.attach(buffer).unwrap();
        assert_eq!(
            process.buffers.attach(buffer).unwrap_err().class,
            Class::Buffer
        );
        world.send(buffered()).unwrap();
        world.isend(buffered()).unwrap();
        let nine = TestBytes::new(9);
        let large = SendArgs {
            mode: SendMode::Buffered,
            ..to(1, 0, &nine)
        };
        assert_eq!(world.send(large).unwrap_err().class, Class::Buffer);
        wait(&process.buffers.iflush(process)).unwrap();
        assert_eq!(process.buffers.detach(process), Some(buffer));
        world.0.buffers.attach(BsendMemory::Automatic).unwrap();
        world.send(buffered()).unwrap();
        assert_eq!(
            world.0.buffers.detach(process),
            Some(BsendMemory::Automatic)
        );
        assert_eq!(process.buffers.detach(process), None);
    });
}

struct Log(Arc<Mutex<Vec<&'static str>>>);

impl generalized::GeneralizedFunctions for Log {
    fn query(&self) -> Result<Status, i32> {
        self.0.lock().unwrap().push("query");
        Ok(Status {
            source: 3,
            tag: 4,
            len: 5,
            cancelled: false,
        })
    }

    fn free(&self) -> Result<(), i32> {
        self.0.lock().unwrap().push("free");
        Ok(())
    }

    fn cancel(&self, complete: bool) -> Result<(), i32> {
        self.0
            .lock()
            .unwrap()
            .push(if complete { "cancel late" } else { "cancel" });
        Err(1234)
    }
}

#[test]
fn a_generalized_request_completes_from_another_thread_and_calls_back_in_order() {
    job(1, |world| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (general, request) = generalized::start(world.process(), Box::new(Log(log.clone())));
        assert!(test(&request).is_none());
        assert_eq!(request.cancel().unwrap_err().code, Some(1234));
        std::thread::scope(|scope| {
            scope.spawn(|| general.complete().unwrap());
            assert_eq!(wait(&request).unwrap().len, 5);
        });
        assert_eq!(*log.lock().unwrap(), ["cancel", "query", "free"]);
        log.lock().unwrap().clear();
        let (general, request) = generalized::start(world.process(), Box::new(Log(log.clone())));
        request.free().unwrap();
        assert!(log.lock().unwrap().is_empty());
        general.complete().unwrap();
        assert_eq!(*log.lock().unwrap(), ["free"]);
    });
}

#[test]
fn a_freed_send_still_arrives_and_finalize_waits_for_it() {
    job(2, |world| {
        let bytes = TestBytes::of(b"late");
        if world.rank() == 0 {
            let request = world
                .isend(SendArgs {
                    mode: SendMode::Synchronous,
                    ..to(1, 0, &bytes)
                })
                .unwrap();
            request.free().unwrap();
            // Kept until finalize, which the job harness calls after this function.
            std::mem::forget(bytes);
        } else {
            world.recv(from(0, 0, &bytes)).unwrap();
        }
    });
}

#[test]
fn the_life_cycle_refuses_a_second_round_and_tells_where_it_is() {
    use crate::process::{PredefinedKey, Process, ProcessConfig, ThreadLevel, WorldStage};
    let host = crate::testing::hosts(1).remove(0);
    let process = Process::new(ProcessConfig {
        appnum: Some(2),
        ..ProcessConfig::plain(host)
    });
    assert_eq!(process.stage(), WorldStage::Before);
    assert_eq!(process.finalize().unwrap_err().class, Class::Other);
    assert_eq!(
        process.init(ThreadLevel::Serialized).unwrap(),
        ThreadLevel::Serialized
    );
    assert!(process.init(ThreadLevel::Single).is_err());
    assert_eq!(process.predefined_attr(PredefinedKey::Appnum), Some(2));
    assert_eq!(process.predefined_attr(PredefinedKey::UniverseSize), None);
    process.finalize().unwrap();
    assert_eq!(process.stage(), WorldStage::Finalized);
    assert!(process.init(ThreadLevel::Single).is_err());
    assert!(process.finalize().is_err());
}

/// A small generator of pseudo-random numbers (xorshift), so that a seed names a run on every
/// machine.
struct TestRandom(u64);

impl TestRandom {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Returns what `from` sends to `to` in the run of `seed`: tag and length of each message, the same
/// for whoever asks.
fn traffic(seed: u64, from: u32, to: u32) -> Vec<(i32, usize)> {
    let mut random = TestRandom(
        (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(from * 31 + to + 1) << 17,
    );
    let lens = [0, 1, 8, 100, 5_000, 70_000, 120_000];
    (0..random.below(12))
        .map(|_| (random.below(3) as i32, lens[random.below(7) as usize]))
        .collect()
}

#[test]
fn random_traffic_arrives_exactly_once_and_in_order_whatever_the_patterns() {
    for seed in 0..12 {
        job(3, |world| {
            let me = world.rank();
            let mut random = TestRandom(seed * 7 + u64::from(me) + 99);
            let mut sends = Vec::new();
            for to in 0..3 {
                for (order, (tag, len)) in traffic(seed, me, to).into_iter().enumerate() {
                    let bytes = TestBytes::of(&vec![order as u8 + 1; len]);
                    let mode = if random.below(3) == 0 {
                        SendMode::Synchronous
                    } else {
                        SendMode::Standard
                    };
                    let request = world.isend(SendArgs {
                        data: bytes.data(),
                        dest: to as i32,
                        tag,
                        mode,
                        origin: CallOrigin::default(),
                    });
                    sends.push((request.unwrap(), bytes));
                }
            }
            // Either every receive takes anything, or each names its source, or each names both.
            let style = random.below(3);
            let mut recvs = Vec::new();
            for from in 0..3u32 {
                for (tag, _) in traffic(seed, from, me) {
                    let (source, tag) = match style {
                        0 => (crate::ANY_SOURCE, crate::ANY_TAG),
                        1 => (from as i32, crate::ANY_TAG),
                        _ => (from as i32, tag),
                    };
                    let into = TestBytes::new(120_000);
                    let args = RecvArgs {
                        data: into.data(),
                        source,
                        tag,
                        origin: CallOrigin::default(),
                    };
                    recvs.push((world.irecv(args).unwrap(), into));
                }
            }
            let list: Vec<_> = recvs.iter().map(|(request, _)| Some(request)).collect();
            let mut statuses = vec![Status::EMPTY; list.len()];
            wait_all(&list, &mut |index, outcome| {
                statuses[index] = outcome.unwrap()
            });
            for from in 0..3u32 {
                // In the order of the receives; per tag where receives name it, over all tags where
                // they do not.
                let mut expected = traffic(seed, from, me)
                    .into_iter()
                    .enumerate()
                    .collect::<Vec<_>>();
                let got = statuses
                    .iter()
                    .zip(&recvs)
                    .filter(|(status, _)| status.source == from as i32);
                for (status, (_, into)) in got {
                    let at = expected
                        .iter()
                        .position(|(_, (tag, _))| style != 2 || *tag == status.tag)
                        .unwrap();
                    let (order, (tag, len)) = expected.remove(at);
                    assert_eq!((status.tag, status.len), (tag, len as u64), "seed {seed}");
                    assert!(
                        into.get()[..len]
                            .iter()
                            .all(|byte| *byte == order as u8 + 1),
                        "seed {seed}"
                    );
                }
                assert!(
                    expected.is_empty(),
                    "seed {seed}: {expected:?} from {from} never came"
                );
            }
            let list: Vec<_> = sends.iter().map(|(request, _)| Some(request)).collect();
            wait_all(&list, &mut |_, outcome| {
                assert_eq!(outcome.unwrap(), Status::EMPTY)
            });
        });
    }
}

#[test]
fn threads_of_one_rank_send_receive_probe_and_wait_at_once() {
    job(2, |world| {
        let other = 1 - world.rank() as i32;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let world = &world;
                scope.spawn(move || {
                    for round in 0..30u8 {
                        let (out, into) =
                            (TestBytes::of(&[round, thread as u8]), TestBytes::new(2));
                        match (thread, world.rank()) {
                            (0, 0) => {
                                world.send(to(other, 0, &out)).unwrap();
                                world.recv(from(other, 0, &into)).unwrap();
                            }
                            (0, _) => {
                                let (message, _) = world
                                    .mprobe(crate::ANY_SOURCE, 0, CallOrigin::default())
                                    .unwrap();
                                message.recv(into.data(), CallOrigin::default()).unwrap();
                                world.send(to(other, 0, &out)).unwrap();
                            }
                            _ => {
                                let recv = world.irecv(from(other, thread, &into)).unwrap();
                                let mode = SendMode::Synchronous;
                                let send = world
                                    .isend(SendArgs {
                                        mode,
                                        ..to(other, thread, &out)
                                    })
                                    .unwrap();
                                wait_all(&[Some(&send), Some(&recv)], &mut |_, outcome| {
                                    assert!(outcome.is_ok())
                                });
                            }
                        }
                        assert_eq!(into.get(), [round, thread as u8]);
                    }
                });
            }
        });
    });
}

#[test]
fn a_sender_that_has_not_noted_its_message_yet_is_looked_for_again() {
    let nobody = PossibleSenders {
        process: 7,
        origins: Vec::new(),
    };
    let sender = PossibleSenders {
        process: 7,
        origins: vec![CallOrigin::default()],
    };
    let mut answers = vec![nobody.clone(), nobody.clone(), sender.clone(), nobody].into_iter();
    assert_eq!(look_again(|| answers.next()), Some(sender));
    // Memory that cannot be read is not looked at again.
    let mut looks = 0;
    let found = look_again(|| {
        looks += 1;
        None
    });
    assert_eq!((found, looks), (None, 1));
}
