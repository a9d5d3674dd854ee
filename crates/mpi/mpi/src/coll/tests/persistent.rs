//! Persistent collectives: what their numbers promise, and that each rank may start what it has in
//! an order of its own, many times, in rounds or by messages. Ranks are threads over the
//! shared-memory transport; tests/c/persistent.c has more of it, from C.

use super::shm_nonblocking::seeds;
use super::thread_world::{WordBuffer, word, world, world_that_ends};
use super::user_operations::{compose, op};
use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::error::Class;
use crate::op::{Op, PredefinedOp};
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::request;
use garonne_coll::call_tag::NUMBERS;
use garonne_coll::testing::schedule_sim::SimRandom;
use garonne_progress::environment::CollectiveCounter;
use garonne_sync::user::Data;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

static CALLS: AtomicU32 = AtomicU32::new(0);

/// One of them, with its buffers and how often it was started and was over.
struct PersistentRun {
    kind: usize,
    /// Words of a block.
    count: u64,
    root: u32,
    /// What tells its data from those of others.
    salt: u32,
    input: WordBuffer,
    output: WordBuffer,
    request: Option<Request>,
    started: u32,
    over: u32,
}

const PLANS: usize = 10;

impl PersistentRun {
    fn random(random: &mut SimRandom, comm: &Comm, salt: u32) -> Self {
        // Small cells, wide ones, and what goes by messages.
        let counts = [1, 3, 22, 23, 64, 65, 150, 400, 2000];
        let (count, n) = (counts[random.below(counts.len())], u64::from(comm.size()));
        let mut plan = Self {
            kind: random.below(PLANS),
            count,
            root: random.below(n as usize) as u32,
            salt,
            input: WordBuffer::new(n * count, |_| 0),
            output: WordBuffer::new(n * count, |_| 0),
            request: None,
            started: 0,
            over: 0,
        };
        plan.request = Some(plan.init(comm));
        plan
    }

    fn init(&self, comm: &Comm) -> Request {
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let sum = &Op::predefined(PredefinedOp::Sum as u16).unwrap();
        let own_op = &op(&CALLS);
        let (count, root, call) = (self.count, self.root as i32, CallOrigin::default());
        let elements = |words: &WordBuffer| Elements {
            mem: words.0.mem(),
            count,
            datatype,
        };
        let (input, output) = (self.input.0.mem(), self.output.0.mem());
        let (send, recv) = (elements(&self.input), elements(&self.output));
        let is_root = comm.rank() == self.root;
        let started = match self.kind {
            0 => comm.init_collective(&Barrier, call),
            1 => comm.init_collective(&Bcast { buffer: recv, root }, call),
            2 | 3 => comm.init_collective(
                &Allreduce {
                    send: Some(input),
                    recv: output,
                    count,
                    datatype,
                    op: if self.kind == 2 { sum } else { own_op },
                },
                call,
            ),
            4 => comm.init_collective(
                &Reduce {
                    send: Some(input),
                    recv: is_root.then_some(output),
                    count,
                    datatype,
                    op: sum,
                    root,
                },
                call,
            ),
            5 => comm.init_collective(
                &Scan {
                    send: Some(input),
                    recv: output,
                    count,
                    datatype,
                    op: own_op,
                },
                call,
            ),
            6 => comm.init_collective(
                &Allgather {
                    send: Some(send),
                    recv,
                },
                call,
            ),
            7 => comm.init_collective(
                &Alltoall {
                    send: Some(send),
                    recv,
                },
                call,
            ),
            8 => comm.init_collective(
                &Gather {
                    send: Some(send),
                    recv: is_root.then_some(recv),
                    root,
                },
                call,
            ),
            _ => comm.init_collective(
                &Scatter {
                    send: is_root.then_some(send),
                    recv: Some(recv),
                    root,
                },
                call,
            ),
        };
        started.unwrap()
    }

    /// Returns what `from` gives `to` in the start of this number.
    fn word(&self, number: u32, from: u32, to: u32, index: u64) -> u32 {
        word(from, to, index).wrapping_add((self.salt * 1000 + number).wrapping_mul(0x9e37_79b9))
    }

    fn start(&mut self, comm: &Comm) {
        self.started += 1;
        let (me, count, number) = (comm.rank(), self.count, self.started);
        let all = u64::from(comm.size()) * count;
        let block = |index: u64| ((index / count) as u32, index % count);
        self.input.fill(all, |index| {
            self.word(number, me, block(index).0, block(index).1)
        });
        let is_giver = self.kind == 1 && me == self.root;
        let before = |index| {
            if is_giver {
                self.word(number, me, 0, index)
            } else {
                7
            }
        };
        self.output.fill(all, before);
        self.request.as_ref().unwrap().start().unwrap();
    }

    /// Checks the result of a run that is over on this rank.
    fn check(&mut self, comm: &Comm) {
        self.over += 1;
        let (me, n, count, number) = (comm.rank(), comm.size(), self.count, self.over);
        let block = |index: u64| ((index / count) as u32, index % count);
        let all = u64::from(n) * count;
        let total = |index| {
            (0..n).fold(0u32, |sum, from| {
                sum.wrapping_add(self.word(number, from, 0, index))
            })
        };
        let whole = |last: u32, index| {
            (0..last)
                .map(|from| self.word(number, from, 0, index))
                .reduce(compose)
                .unwrap()
        };
        let is_root = me == self.root;
        match self.kind {
            0 => self.output.check(all, |_| 7),
            1 => self
                .output
                .check(count, |index| self.word(number, self.root, 0, index)),
            2 => self.output.check(count, total),
            3 => self.output.check(count, |index| whole(n, index)),
            4 => self
                .output
                .check(count, |index| if is_root { total(index) } else { 7 }),
            5 => self.output.check(count, |index| whole(me + 1, index)),
            6 => self.output.check(all, |index| {
                self.word(number, block(index).0, 0, block(index).1)
            }),
            7 => self.output.check(all, |index| {
                self.word(number, block(index).0, me, block(index).1)
            }),
            8 => self.output.check(all, |index| match is_root {
                true => self.word(number, block(index).0, 0, block(index).1),
                false => 7,
            }),
            _ => self
                .output
                .check(count, |index| self.word(number, self.root, me, index)),
        }
    }

    fn is_active(&self) -> bool {
        self.started > self.over
    }
}

/// All ranks initialise the same in one order, and start each so often, in an order of their own.
fn play(comm: &Comm, seed: u64, plans: u32, times: u32) {
    let mut common = SimRandom::new(seed);
    let mut random = SimRandom::new(seed * 1000 + u64::from(comm.rank()));
    let mut plans: Vec<_> = (0..plans)
        .map(|salt| PersistentRun::random(&mut common, comm, salt))
        .collect();
    while plans.iter().any(|plan| plan.over < times) {
        let at = random.below(plans.len());
        let plan = &mut plans[at];
        if !plan.is_active() && plan.started < times {
            plan.start(comm);
        } else if plan.is_active() {
            let outcome = request::test(plan.request.as_ref().unwrap());
            if let Some(outcome) = outcome {
                outcome.unwrap();
                plan.check(comm);
            }
        }
        let waits = plans
            .iter()
            .all(|plan| plan.is_active() || plan.over == times);
        if waits && random.below(3) == 0 {
            // With nothing left to start, whatever is waited for comes.
            let list: Vec<_> = plans.iter().map(|plan| plan.request.as_ref()).collect();
            if let Some((at, outcome)) = request::wait_any(&list) {
                outcome.unwrap();
                plans[at].check(comm);
            }
        }
        match random.below(40) {
            0 => std::thread::yield_now(),
            1 => std::thread::sleep(std::time::Duration::from_micros(random.below(200) as u64)),
            _ => {}
        }
    }
    while !plans.is_empty() {
        let mut plan = plans.swap_remove(random.below(plans.len()));
        if plan.kind == 0 {
            // Freed under way, carried on until it is over.
            plan.start(comm);
        }
        plan.request.take().unwrap().free().unwrap();
        // Its buffers are the collective's until then.
        std::mem::forget(plan);
    }
}

#[test]
fn each_rank_starts_what_it_has_in_an_order_of_its_own() {
    for (n, plans, times) in [(2, 12, 9), (3, 7, 9), (5, 6, 5), (9, 3, 3)] {
        for seed in seeds(3) {
            world(n, |comm| play(comm, seed * 31 + u64::from(n), plans, times));
        }
    }
}

/// Where what a process lends is lent already, messages serve, to all ranks alike.
#[test]
fn what_finds_no_room_goes_by_messages() {
    for room in [0, 64 << 10, 200 << 10] {
        world(3, |comm| {
            let commons = comm_segment::coll_heap(comm).unwrap().len();
            comm.process().config.segments.leave_room(room, commons);
            play(comm, room as u64 + 5, 24, 4);
        });
    }
}

/// Places come back when all ranks have freed what had them.
#[test]
fn ones_that_come_and_go_share_the_room() {
    world(2, |comm| {
        let barrier = |at: u64| {
            let request = comm
                .init_collective(&Barrier, CallOrigin::default())
                .unwrap();
            for _ in 0..2 {
                request.start().unwrap();
                request::wait(&request).unwrap();
            }
            if at % 3 == u64::from(comm.rank()) {
                std::thread::yield_now();
            }
        };
        (0..500).for_each(barrier);
        let lent = comm.process().config.segments.slot_bytes();
        assert!(
            (1..=16 << 10).contains(&lent) || comm.rank() > 0,
            "{lent} B for one at a time"
        );
    });
}

/// What the others are to hear of a place waits behind what they have not received; who lends it
/// ends MPI only when it has left.
#[test]
fn what_the_others_wait_to_hear_is_owed_by_finalize() {
    const ENVELOPES: u32 = 4;
    // Credits come back by twos: once the last of the messages takes the last of them.
    for messages in [ENVELOPES + 2, ENVELOPES + 3] {
        let sent = AtomicBool::new(false);
        world_that_ends(2, ENVELOPES, |comm| leave_after(comm, messages, &sent));
    }
}

/// The root sends what is not received yet, does its part of a broadcast, and ends.
fn leave_after(comm: &Comm, messages: u32, sent: &AtomicBool) {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    // Kept: the root's messages may still be under way when it returns.
    let words = std::mem::ManuallyDrop::new(WordBuffer::new(1, |_| comm.rank()));
    let origin = CallOrigin::default();
    let data = || Data::contiguous(words.0.mem(), 4);
    let buffer = Elements {
        mem: words.0.mem(),
        count: 1,
        datatype,
    };
    // From then on nothing but the place is to be heard of.
    comm.collective(&Barrier, origin).unwrap();
    for _ in 0..messages * u32::from(comm.rank() == 0) {
        let (dest, tag, mode) = (1, 0, SendMode::Standard);
        let args = SendArgs {
            data: data(),
            dest,
            tag,
            mode,
            origin,
        };
        comm.isend(args).unwrap().free().unwrap();
    }
    while comm.rank() == 1 && !sent.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let request = comm.init_collective(&Bcast { buffer, root: 0 }, origin);
    let request = request.unwrap();
    request.start().unwrap();
    if comm.rank() == 0 {
        request::wait(&request).unwrap();
        sent.store(true, Ordering::Release);
        return;
    }
    for _ in 0..messages {
        let (source, tag) = (0, 0);
        let args = RecvArgs {
            data: data(),
            source,
            tag,
            origin,
        };
        comm.recv(args).unwrap();
    }
    let limit = Instant::now() + Duration::from_secs(60);
    while request::test(&request).is_none() {
        assert!(Instant::now() < limit, "nothing is heard of the broadcast");
    }
    words.check(1, |_| 0);
}

/// A member that takes for long what its leader takes for short is told, and so are the others.
#[test]
fn ranks_that_disagree_about_what_is_short_are_told() {
    let long = crate::limits::coll::SLOT_SHORT + 4;
    for counts in [[1, 1, long], [1, long, 2 * long]] {
        world(3, |comm| {
            let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
            let count = counts[comm.rank() as usize];
            let (input, output) = (WordBuffer::new(count, |_| 1), WordBuffer::new(count, |_| 1));
            let allreduce = Allreduce {
                send: Some(input.0.mem()),
                recv: output.0.mem(),
                count,
                datatype,
                op: &Op::predefined(PredefinedOp::Sum as u16).unwrap(),
            };
            let request = comm
                .init_collective(&allreduce, CallOrigin::default())
                .unwrap();
            request.start().unwrap();
            let error = request::wait(&request).unwrap_err();
            assert_eq!(error.class, Class::NotSame, "{error}");
        });
    }
}

/// Ranks that disagree hear of it in their wait.
#[test]
fn ranks_that_start_different_ones_are_told() {
    world(3, |comm| {
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let sum = &Op::predefined(PredefinedOp::Sum as u16).unwrap();
        let (input, output) = (WordBuffer::new(100, |_| 1), WordBuffer::new(100, |_| 1));
        let allreduce = Allreduce {
            send: Some(input.0.mem()),
            recv: output.0.mem(),
            count: [1, 2, 100][comm.rank() as usize],
            datatype,
            op: sum,
        };
        let request = comm
            .init_collective(&allreduce, CallOrigin::default())
            .unwrap();
        request.start().unwrap();
        let error = request::wait(&request).unwrap_err();
        assert_eq!(error.class, Class::NotSame, "{error}");
        assert!(
            error
                .detail
                .contains("disagree about persistent collective 1"),
            "{error}"
        );
    });
}

/// Whoever brings more than there is room for puts nothing down: what lies behind may be another
/// collective's.
#[test]
fn what_is_longer_than_its_place_is_not_put_down_over_others() {
    world(3, |comm| {
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let sum = &Op::predefined(PredefinedOp::Sum as u16).unwrap();
        let most = crate::limits::coll::SLOT_SHORT / 4;
        let init = |count: u64| {
            let (input, output) = (WordBuffer::new(count, |_| 7), WordBuffer::new(count, |_| 0));
            let allreduce = Allreduce {
                send: Some(input.0.mem()),
                recv: output.0.mem(),
                count,
                datatype,
                op: sum,
            };
            let request = comm
                .init_collective(&allreduce, CallOrigin::default())
                .unwrap();
            (request, input, output)
        };
        // In use once, so that all have heard where they are.
        let beside = [init(1), init(1)];
        let counts = [1, 1, most];
        let long = init(counts[comm.rank() as usize]);
        let after = [init(1), init(1)];
        let all = || beside.iter().chain(&after);
        for (request, ..) in all() {
            request.start().unwrap();
            request::wait(request).unwrap();
        }
        // Two have come to those that lie around it.
        let early = comm.rank() < 2;
        let start = || all().for_each(|(request, ..)| request.start().unwrap());
        if early {
            start();
        }
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        long.0.start().unwrap();
        assert_eq!(request::wait(&long.0).unwrap_err().class, Class::NotSame);
        if !early {
            start();
        }
        for (request, _, output) in all() {
            request::wait(request).unwrap();
            output.check(1, |_| 21);
        }
    });
}

#[test]
fn where_counting_has_come_round_to_one_that_lives_the_new_one_is_refused() {
    world(2, |comm| {
        let init = || comm.init_collective(&Barrier, CallOrigin::default());
        let first = init().unwrap();
        comm.0.collective_counts[CollectiveCounter::Persistent as usize]
            .fetch_add(NUMBERS - 1, Ordering::Relaxed);
        let error = init().err().expect("two would have one tag");
        assert_eq!(error.class, Class::Other);
        assert!(
            error.detail.contains("MPI_Barrier persistent #1"),
            "{}",
            error.detail
        );
        // All others are as good as ever, and so is that number once it is free.
        let second = init().unwrap();
        for request in [&first, &second] {
            request.start().unwrap();
            request::wait(request).unwrap();
        }
        drop((first, second));
        comm.0.collective_counts[CollectiveCounter::Persistent as usize]
            .fetch_add(NUMBERS - 2, Ordering::Relaxed);
        assert!(init().is_ok());
    });
}

/// Communicators that come and go give back what rank 0 lent, also where what a member hears of its
/// collective comes after the call.
#[test]
fn what_is_heard_late_does_not_keep_its_communicator() {
    let begun = AtomicU32::new(0);
    world(2, |comm| {
        begun.store(0, Ordering::Relaxed);
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        let mut wide = None;
        for at in 1..=30 {
            let dup = comm.dup(None, CallOrigin::default()).unwrap();
            dup.collective(&Barrier, CallOrigin::default()).unwrap();
            let len = comm_segment::attachment(&dup).map(|place| place.slots.wide_len());
            assert_eq!(*wide.get_or_insert(len), len, "communicator {at}");
            while comm.rank() == 0 && begun.load(Ordering::Acquire) < at {
                std::thread::yield_now();
            }
            let request = dup
                .init_collective(&Barrier, CallOrigin::default())
                .unwrap();
            if comm.rank() == 1 {
                begun.store(at, Ordering::Release);
            }
            request.start().unwrap();
            request::wait(&request).unwrap();
            request.free().unwrap();
            dup.collective(&Barrier, CallOrigin::default()).unwrap();
            dup.free().unwrap();
            drop(dup);
            comm.collective(&Barrier, CallOrigin::default()).unwrap();
        }
    });
}

/// Who was refused says nothing of a place; nobody waits for that in finalize.
#[test]
fn finalize_waits_for_nobody_who_was_refused() {
    world(2, |comm| {
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        if comm.rank() == 1 {
            comm.init_collective(&Barrier, CallOrigin::default())
                .unwrap()
                .free()
                .unwrap();
        }
    });
}
