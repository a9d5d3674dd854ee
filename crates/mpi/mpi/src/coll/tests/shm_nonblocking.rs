//! Nonblocking collectives in shared slots: ranks are threads over the shared-memory transport,
//! each with many open at once, waited for in an order of its own, between blocking collectives and
//! messages.

use super::nonblocking_acts::{StartedCall, TestCall, elements, start};
use super::thread_world::{WordBuffer, word, world, world_of, world_that_lends};
use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::op::{Op, PredefinedOp};
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::request::{self, Outcome};
use garonne_coll::testing::schedule_sim::SimRandom;
use garonne_sync::nbc_slots::ROUNDS;
use garonne_sync::user::Data;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn end(started: StartedCall, outcome: Outcome) {
    outcome.unwrap();
    (started.check)();
}

/// Ends one of those that are open, or some, in one of the ways that there are.
fn end_some(open: &mut Vec<StartedCall>, random: &mut SimRandom) {
    if open.is_empty() {
        return;
    }
    let at = random.below(open.len());
    match random.below(5) {
        0 => {
            let started = open.swap_remove(at);
            let outcome = request::wait(&started.request);
            end(started, outcome);
        }
        1 => {
            let list: Vec<_> = open.iter().map(|started| Some(&started.request)).collect();
            if let Some((at, outcome)) = request::wait_any(&list) {
                end(open.swap_remove(at), outcome);
            }
        }
        2 => {
            let list: Vec<_> = open.iter().map(|started| Some(&started.request)).collect();
            request::wait_all(&list, &mut |_, outcome| assert!(outcome.is_ok()));
            open.drain(..).for_each(|started| (started.check)());
        }
        3 => {
            let started = open.swap_remove(at);
            let outcome = loop {
                if let Some(outcome) = request::test(&started.request) {
                    break outcome;
                }
                std::thread::yield_now();
            };
            end(started, outcome);
        }
        _ => {
            if let Some(outcome) = request::test(&open[at].request) {
                end(open.swap_remove(at), outcome);
            }
        }
    }
}

/// What all ranks do, by a seed: they start the same in one order, and wait each in an order of its
/// own.
fn play(comm: &Comm, seed: u64, acts: u32, most_open: usize) {
    let mut common = SimRandom::new(seed);
    let mut random = SimRandom::new(seed * 1000 + u64::from(comm.rank()));
    let mut open = Vec::new();
    for salt in 0..acts {
        let act = TestCall::random(&mut common, comm.size(), salt);
        open.extend(start(comm, act));
        match random.below(8) {
            0 => std::thread::yield_now(),
            1 => std::thread::sleep(std::time::Duration::from_micros(random.below(300) as u64)),
            _ => {}
        }
        while open.len() > most_open || random.below(4) == 0 {
            end_some(&mut open, &mut random);
        }
    }
    while !open.is_empty() {
        end_some(&mut open, &mut random);
    }
}

/// Seeds of one kind of world: `usual` many, or as many as the variable GARONNE_SEEDS says.
pub(super) fn seeds(usual: u64) -> std::ops::RangeInclusive<u64> {
    let many = std::env::var("GARONNE_SEEDS").ok();
    1..=many.and_then(|many| many.parse().ok()).unwrap_or(usual)
}

/// Has `n` ranks run `program`; a world in which nothing goes on any more is a failure of the test
/// that names it.
fn world_in_time(what: &str, n: u32, program: impl Fn(&Comm) + Send + Sync + 'static) {
    const LIMIT: Duration = Duration::from_secs(100);
    let (over, ended) = mpsc::channel();
    let ranks = std::thread::spawn(move || {
        world(n, program);
        // Nobody listens any more after the limit.
        let _ = over.send(());
    });
    match ended.recv_timeout(LIMIT) {
        Ok(()) => {}
        // Its threads stay where they are; they hold nothing that another test needs.
        Err(mpsc::RecvTimeoutError::Timeout) => {
            panic!("{what}: not over after {} s", LIMIT.as_secs())
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{what}: a rank panicked"),
    }
    ranks.join().unwrap();
}

#[test]
fn calls_that_are_open_at_once_and_waited_for_in_any_order_give_what_messages_would() {
    for (n, usual, most_open) in [(2, 2, 20), (3, 2, 3), (5, 1, 20), (9, 0, 12), (16, 0, 20)] {
        for seed in seeds(usual) {
            world_in_time(&format!("{n} ranks, seed {seed}"), n, move |comm| {
                comm.collective(&Barrier, CallOrigin::default()).unwrap();
                assert!(comm.0.segment.is_attached());
                play(comm, seed * 31 + u64::from(n), 60, most_open);
            });
        }
    }
}

/// Calls begin with a communicator's first collective, while its segment is still being set up: a
/// large one, a small one, or none.
#[test]
fn calls_that_come_before_the_board_give_what_messages_would() {
    let (all, small) = (usize::MAX, 48 << 10);
    for (n, usual, most_open, room) in [
        (2, 3, 20, all),
        (2, 1, 20, 0),
        (2, 1, 20, small),
        (3, 2, 3, all),
        (5, 1, 20, all),
        (5, 1, 20, 0),
        (9, 0, 12, all),
    ] {
        for seed in seeds(usual) {
            world_in_time(
                &format!("{n} ranks, {room} B, seed {seed}"),
                n,
                move |comm| {
                    if room != all {
                        let commons = comm_segment::coll_heap(comm).unwrap().len();
                        comm.process().config.segments.leave_room(room, commons);
                    }
                    play(comm, seed * 37 + u64::from(n), 30, most_open);
                    assert!(comm.0.segment.is_decided());
                    assert_eq!(comm.0.segment.is_attached(), room > 0);
                    play(comm, seed * 41 + u64::from(n), 20, most_open);
                },
            );
        }
    }
}

/// Nobody waits for the others in a call that must not, also where it is the first: rank 0 starts
/// one before the others begin.
#[test]
fn a_first_call_that_does_not_wait_waits_for_nobody() {
    let begun = AtomicU32::new(0);
    world_of(3, 0, &|comm: &Comm| {
        if comm.rank() != 0 {
            while begun.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        }
        let requests: Vec<_> = (0..2 * ROUNDS)
            .map(|_| {
                comm.start_collective(&Barrier, CallOrigin::default())
                    .unwrap()
            })
            .collect();
        begun.store(1, Ordering::SeqCst);
        for request in requests.iter().rev() {
            request::wait(request).unwrap();
        }
        assert!(comm.0.segment.is_attached());
    });
}

/// Ranks of which some would meet and others send messages: somebody is told.
#[test]
fn ranks_that_would_go_different_ways_are_not_left_to_wait_for_each_other_untold() {
    world(3, |comm| {
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        let word = &Datatype::predefined(codes::UINT32_T).unwrap();
        let buffer = WordBuffer::new(1 << 16, |_| 0);
        // The odd one comes by messages, which wait for nobody as long as it is the root.
        let long = comm.rank() == 1;
        let bcast = Bcast {
            buffer: elements(&buffer, if long { 12_000 } else { 1 }, word),
            root: 1,
        };
        let outcome = match comm.start_collective(&bcast, CallOrigin::default()) {
            Ok(request) if !long => request::wait(&request).map(drop),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if !long {
            let error = outcome.unwrap_err();
            assert_eq!(error.class, Class::NotSame, "{error}");
            assert!(
                error.detail.contains("MPI_Bcast(48000 B, root 1)"),
                "{error}"
            );
        }
    });
}

/// A block that is longer than its taker expects, short or long: that one is told, and takes no
/// more than it has room for.
#[test]
fn a_block_that_is_longer_than_expected_is_an_error_at_its_taker() {
    const PLACE: u64 = 12_000;
    for sent in [9, PLACE as i32] {
        world(3, |comm| {
            comm.collective(&Barrier, CallOrigin::default()).unwrap();
            let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
            let (me, places) = (comm.rank(), [0, PLACE as i32, 2 * PLACE as i32]);
            let out = if me == 1 { [3, 3, sent] } else { [3; 3] };
            let (words, taken) = (
                WordBuffer::new(3 * PLACE, |index| word(me, 0, index)),
                WordBuffer::new(3 * PLACE, |_| 5),
            );
            let describe = |words: &WordBuffer, counts| ElementsV {
                mem: words.0.mem(),
                counts,
                displs: CountArray::Int(&places),
                datatype,
            };
            let call = Alltoallv {
                send: Some(describe(&words, CountArray::Int(&out))),
                recv: describe(&taken, CountArray::All(3)),
            };
            let outcome = match comm.start_collective(&call, CallOrigin::default()) {
                Ok(request) if me == 2 || sent == 9 => request::wait(&request).map(drop),
                // Nobody takes what it sends.
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if me == 2 {
                let error = outcome.unwrap_err();
                assert_eq!(error.class, Class::Truncate, "{error}");
                assert!(error.detail.contains("error[G0107]"), "{error}");
                let said = format!("rank 1 sends {} B to rank 2, which expects 12 B", 4 * sent);
                assert!(error.detail.contains(&said), "{error}");
                let from = |index: u64| [Some(0), None, Some(2)][(index / PLACE) as usize];
                taken.check(3 * PLACE, |index| match from(index) {
                    Some(from) if index % PLACE < 3 => word(from, 0, 2 * PLACE + index % PLACE),
                    None if sent == 9 && index % PLACE < 3 => word(1, 0, 2 * PLACE + index % PLACE),
                    _ => 5,
                });
            } else {
                outcome.unwrap();
            }
        });
    }
}

/// A member that gives little to a gather of uneven blocks may be as far ahead of its root as in
/// one of even blocks.
#[test]
fn who_gives_little_goes_ahead_by_all_rounds() {
    const AHEAD: u32 = 16;
    let ahead = Arc::new(AtomicU32::new(0));
    world_in_time("gathers of uneven blocks", 2, move |comm| {
        ahead.store(0, Ordering::SeqCst);
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let me = comm.rank();
        let given: Vec<_> = (0..AHEAD)
            .map(|call| WordBuffer::new(2, move |index| word(me, call, index)))
            .collect();
        let taken: Vec<_> = (0..AHEAD).map(|_| WordBuffer::new(4, |_| 5)).collect();
        let call = |given: &WordBuffer, taken: &WordBuffer| {
            let call = Gatherv {
                send: Some(Elements {
                    mem: given.0.mem(),
                    count: 2,
                    datatype,
                }),
                recv: (me == 0).then(|| ElementsV {
                    mem: taken.0.mem(),
                    counts: CountArray::Int(&[2, 2]),
                    displs: CountArray::Int(&[0, 2]),
                    datatype,
                }),
                root: 0,
            };
            comm.start_collective(&call, CallOrigin::default()).unwrap()
        };
        while me == 0 && ahead.load(Ordering::SeqCst) < AHEAD {
            std::thread::yield_now();
        }
        for (given, taken) in given.iter().zip(&taken) {
            request::wait(&call(given, taken)).unwrap();
            ahead.fetch_add(me, Ordering::SeqCst);
        }
        let word_of = |call: u32| move |index: u64| word((index / 2) as u32, call, index % 2);
        for (call, taken) in (0..).zip(&taken).filter(|_| me == 0) {
            taken.check(4, word_of(call));
        }
    });
}

/// Who gives little may come sooner than who gives much and needs cells that come back later; not
/// before it has left what that one waits for.
#[test]
fn who_gives_little_does_not_wait_for_who_gives_much_in_a_circle() {
    const CALLS: usize = 7;
    // A block of the first goes into its small cell, one of the second into a wide one.
    let counts = [[0, 2], [200, 0]];
    world_in_time("blocks of both lengths", 2, move |comm| {
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let (me, other) = (comm.rank(), 1 - comm.rank());
        let (out, into) = (counts[me as usize], counts.map(|of| of[me as usize]));
        let given: Vec<_> = (0..CALLS as u32)
            .map(|call| WordBuffer::new(200, move |index| word(me, call, index)))
            .collect();
        let taken: Vec<_> = (0..CALLS).map(|_| WordBuffer::new(200, |_| 5)).collect();
        let start = |(given, taken): (&WordBuffer, &WordBuffer)| {
            let describe = |words: &WordBuffer, counts| ElementsV {
                mem: words.0.mem(),
                counts,
                displs: CountArray::Int(&[0, 0]),
                datatype,
            };
            let call = Alltoallv {
                send: Some(describe(given, CountArray::Int(&out))),
                recv: describe(taken, CountArray::Int(&into)),
            };
            comm.start_collective(&call, CallOrigin::default()).unwrap()
        };
        let requests: Vec<_> = given.iter().zip(&taken).map(start).collect();
        // The last first: those before are left meanwhile, though nobody asks for them.
        for request in requests.iter().rev() {
            request::wait(request).unwrap();
        }
        for (call, taken) in (0..).zip(&taken) {
            taken.check(into[other as usize] as u64, |index| {
                word(other, call, index)
            });
        }
    });
}

/// The message has come before its receiver calls: an error that was there before the request is
/// told as well.
#[test]
fn an_error_that_a_call_meets_at_once_in_its_messages_is_told() {
    const SENT: i32 = 12_000;
    let told = Mutex::new(None);
    world_of(2, 0, &|comm: &Comm| {
        let call = CallOrigin::default();
        comm.collective(&Barrier, call).unwrap();
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let (words, after) = (
            WordBuffer::new(SENT as u64, |_| 3),
            WordBuffer::new(1, |_| 0),
        );
        let describe = |counts| ElementsV {
            mem: words.0.mem(),
            counts,
            displs: CountArray::All(0),
            datatype,
        };
        let data = Data::contiguous(after.0.mem(), 4);
        if comm.rank() == 0 {
            let alltoallv = Alltoallv {
                send: Some(describe(CountArray::Int(&[0, SENT]))),
                recv: describe(CountArray::All(0)),
            };
            let request = comm.start_collective(&alltoallv, call).unwrap();
            let (dest, tag, mode, origin) = (1, 0, SendMode::Standard, call);
            comm.send(SendArgs {
                data,
                dest,
                tag,
                mode,
                origin,
            })
            .unwrap();
            request::wait(&request).unwrap();
        } else {
            // Comes after what the other call brings.
            let (source, tag, origin) = (0, 0, call);
            comm.recv(RecvArgs {
                data,
                source,
                tag,
                origin,
            })
            .unwrap();
            let alltoallv = Alltoallv {
                send: Some(describe(CountArray::All(0))),
                recv: describe(CountArray::Int(&[SENT - 1, 0])),
            };
            let started = comm.start_collective(&alltoallv, call);
            let outcome = started.and_then(|request| request::wait(&request));
            *told.lock().unwrap() = Some(outcome.map(drop));
        }
    });
    let told = told.into_inner().unwrap().unwrap();
    assert_eq!(told.unwrap_err().class, Class::Truncate);
}

/// A rank that is as far ahead as the rounds let it be, and further: those that come later find
/// what it put down, and it goes on when they do.
#[test]
fn a_rank_that_starts_more_than_there_are_rounds_is_caught_up_with() {
    let behind = AtomicU32::new(0);
    world_of(3, 0, &|comm: &Comm| {
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        let act = |what, salt| TestCall {
            what,
            count: 5,
            root: 0,
            in_place: false,
            salt,
        };
        if comm.rank() != 0 {
            while behind.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        }
        let started = (0..3 * ROUNDS).filter_map(|salt| start(comm, act(1 + salt % 2, salt)));
        let mut started: Vec<_> = started.collect();
        behind.store(1, Ordering::SeqCst);
        // The last first: what is before it goes on in that wait.
        while let Some(last) = started.pop() {
            let outcome = request::wait(&last.request);
            end(last, outcome);
        }
    });
}

/// One thread waits for a message and polls for both; what the other waits for comes first, in
/// memory.
#[test]
fn a_thread_that_waits_for_a_call_is_woken_while_another_polls() {
    world(3, |comm| {
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        let (me, n, call) = (comm.rank(), comm.size(), CallOrigin::default());
        for tag in 0..60 {
            let (there, here) = (WordBuffer::new(1, |_| me), WordBuffer::new(1, |_| n));
            let receive = || {
                let data = Data::contiguous(here.0.mem(), 4);
                let source = ((me + 1) % n) as i32;
                comm.recv(RecvArgs {
                    data,
                    source,
                    tag,
                    origin: call,
                })
                .unwrap();
                here.check(1, |_| (me + 1) % n);
            };
            std::thread::scope(|scope| {
                scope.spawn(receive);
                if tag % 2 == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                let request = comm.start_collective(&Barrier, call).unwrap();
                request::wait(&request).unwrap();
                // Nobody's message comes before all have been woken.
                comm.collective(&Barrier, call).unwrap();
                let data = Data::contiguous(there.0.mem(), 4);
                let (dest, mode) = (((me + n - 1) % n) as i32, SendMode::Standard);
                comm.send(SendArgs {
                    data,
                    dest,
                    tag,
                    mode,
                    origin: call,
                })
                .unwrap();
            });
        }
    });
}

/// Ranks that start long calls, more than there are rounds, and look no further: what each needs of
/// the others and has to do itself is done meanwhile.
#[test]
fn long_calls_end_while_all_their_ranks_compute() {
    // Broadcast, allreduce, allgathers, alltoall, gather, scatter, and both reductions of which
    // each gets a slice.
    const LONG: [u32; 9] = [1, 2, 7, 8, 9, 10, 11, 12, 19];
    for n in [2, 3, 5] {
        world_that_lends(n, |comm| {
            comm.collective(&Barrier, CallOrigin::default()).unwrap();
            let mut common = SimRandom::new(u64::from(n));
            let mut random = SimRandom::new(7 + u64::from(comm.rank()));
            let acts = (0..3 * ROUNDS).map(|salt| TestCall {
                what: LONG[common.below(LONG.len())],
                count: [1100, 1500][common.below(2)],
                root: common.below(n as usize) as u32,
                in_place: common.below(2) == 0,
                salt,
            });
            let started: Vec<_> = acts
                .filter_map(|act| {
                    if random.below(5) == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(
                            random.below(500) as u64
                        ));
                    }
                    start(comm, act)
                })
                .collect();
            for (number, started) in started.iter().enumerate() {
                let begun = std::time::Instant::now();
                while !started.request.over() {
                    // A program in which nothing goes on any more.
                    assert!(
                        begun.elapsed().as_secs() < 120,
                        "call {number} does not end"
                    );
                    std::thread::yield_now();
                }
            }
            for started in started {
                let outcome = request::wait(&started.request);
                end(started, outcome);
            }
        });
    }
}

/// A request that is freed goes on, and its round is free again afterwards.
#[test]
fn a_request_that_is_freed_leaves_its_round() {
    world(2, |comm| {
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        for _ in 0..3 * ROUNDS {
            let request = comm
                .start_collective(&Barrier, CallOrigin::default())
                .unwrap();
            request.free().unwrap();
        }
        let request = comm
            .start_collective(&Barrier, CallOrigin::default())
            .unwrap();
        request::wait(&request).unwrap();
    });
}

#[test]
fn ranks_that_disagree_about_a_call_that_does_not_wait_are_told_in_its_request() {
    for with_board in [true, false] {
        world(3, |comm| disagree(comm, with_board));
    }
}

fn disagree(comm: &Comm, with_board: bool) {
    if with_board {
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
    }
    let word = &Datatype::predefined(codes::UINT32_T).unwrap();
    let (sum, max) = (PredefinedOp::Sum as u16, PredefinedOp::Max as u16);
    let buffer = WordBuffer::new(4, |_| 0);
    for round in 0..2 * ROUNDS {
        let odd = comm.rank() == round % 3;
        let op = &Op::predefined(if odd { max } else { sum }).unwrap();
        let allreduce = Allreduce {
            send: None,
            recv: buffer.0.mem(),
            count: 1,
            datatype: word,
            op,
        };
        let outcome = match comm.start_collective(&allreduce, CallOrigin::default()) {
            Ok(request) => request::wait(&request).map(drop),
            Err(error) => Err(error),
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.class, Class::NotSame, "{error}");
        let about = format!(
            "error[G0112]: ranks disagree about nonblocking collective {}",
            round + 1
        );
        assert!(error.detail.contains(&about), "{error}");
        assert!(
            error.detail.contains("MPI_MAX") && error.detail.contains("MPI_SUM"),
            "{error}"
        );
    }
    play(comm, 7, 20, 10);
}

/// Threads of every rank, each with a communicator of its own, in blocking and nonblocking calls at
/// once: none waits for another's.
#[test]
fn threads_with_communicators_of_their_own_do_not_get_into_each_others_way() {
    const THREADS: u32 = 6;
    world(3, |comm| {
        let own: Vec<_> = (0..THREADS)
            .map(|_| comm.dup(None, CallOrigin::default()).unwrap())
            .collect();
        std::thread::scope(|scope| {
            for (thread, comm) in (0..).zip(&own) {
                scope.spawn(move || {
                    for salt in 0..40 {
                        comm.collective(&Barrier, CallOrigin::default()).unwrap();
                        play(comm, 100 * thread + salt, 3, 2);
                    }
                });
            }
        });
    });
}
