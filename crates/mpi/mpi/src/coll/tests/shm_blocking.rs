//! Blocking collectives in shared segments: ranks are threads over the shared-memory transport.

use super::thread_world::{STYLES, WordBuffer, ranks_of, word, world, world_of};
use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::error::Result;
use crate::op::{Op, PredefinedOp};
use crate::process::{Process, ProcessConfig, ThreadLevel};
use garonne_sync::shm_barrier::DEPTH;
use garonne_sync::user::Scratch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering as Memory};

/// Ranks that have left a board, finalized and begun again lend another board. They wait for each
/// other outside: the world of the next has the same contexts, which all must have forgotten.
#[test]
fn ranks_begin_again_at_another_board() {
    for spins in STYLES {
        let apart = std::sync::Barrier::new(3);
        ranks_of(3, (spins, false), &|host| {
            let boards = Arc::new(SegmentAllocator::default());
            for _ in 0..60 {
                let process = Process::new(ProcessConfig {
                    segments: boards.clone(),
                    ..ProcessConfig::plain(host.clone())
                });
                process.init(ThreadLevel::Multiple).unwrap();
                let world = process.world().unwrap();
                world.collective(&Barrier, CallOrigin::default()).unwrap();
                assert!(world.0.segment.is_attached());
                drop(world);
                process.finalize().unwrap();
                drop(process);
                apart.wait();
            }
        });
    }
}

/// The number of the test's round, as seen by a rank: the sum over ranks of `round * (rank + 1)`.
fn expected(n: u32, round: u32) -> u32 {
    round * n * (n + 1) / 2
}

fn rounds(comm: &Comm, count: u32) {
    let word = Datatype::predefined(codes::UINT32_T).unwrap();
    let sum = Op::predefined(PredefinedOp::Sum as u16).unwrap();
    let (me, n) = (comm.rank(), comm.size());
    let (input, output) = (Scratch::new(8).unwrap(), Scratch::new(8).unwrap());
    let read = |scratch: &Scratch| {
        let mut bytes = [0; 4];
        scratch.mem().read(0, &mut bytes);
        u32::from_ne_bytes(bytes)
    };
    for round in 1..=count {
        input.mem().write(0, &(round * (me + 1)).to_ne_bytes());
        let (send, recv, datatype, op) = (Some(input.mem()), output.mem(), &word, &sum);
        comm.collective(
            &Allreduce {
                send,
                recv,
                count: 1,
                datatype,
                op,
            },
            CallOrigin::default(),
        )
        .unwrap();
        assert_eq!(read(&output), expected(n, round));

        let root = (round % n) as i32;
        if me as i32 == root {
            output.mem().write(0, &(round * 77).to_ne_bytes());
        }
        let buffer = Elements {
            mem: output.mem(),
            count: 1,
            datatype,
        };
        comm.collective(&Bcast { buffer, root }, CallOrigin::default())
            .unwrap();
        assert_eq!(read(&output), round * 77);

        let recv = (me as i32 == root).then(|| output.mem());
        comm.collective(
            &Reduce {
                send,
                recv,
                count: 1,
                datatype,
                op,
                root,
            },
            CallOrigin::default(),
        )
        .unwrap();
        if me as i32 == root {
            assert_eq!(read(&output), expected(n, round));
        }
        comm.collective(&Barrier, CallOrigin::default()).unwrap();

        let all = Scratch::new(4 * n as usize).unwrap();
        let send = Elements {
            mem: input.mem(),
            count: 1,
            datatype,
        };
        let own = all.mem().offset(4 * me as isize);
        own.write(0, &(round * (me + 1)).to_ne_bytes());
        let send = (round % 2 == 0).then_some(send);
        let recv = Elements {
            mem: all.mem(),
            count: 1,
            datatype,
        };
        comm.collective(&Allgather { send, recv }, CallOrigin::default())
            .unwrap();
        for rank in 0..n {
            let mut bytes = [0; 4];
            all.mem().read(4 * rank as isize, &mut bytes);
            assert_eq!(u32::from_ne_bytes(bytes), round * (rank + 1));
        }
    }
}

/// Every collective that lanes serve, with blocks of `count` words.
fn large(comm: &Comm, count: u64, in_place: bool) {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let op = &Op::predefined(PredefinedOp::Sum as u16).unwrap();
    let (me, n) = (comm.rank(), comm.size());
    let elements = |words: &WordBuffer| Elements {
        mem: words.0.mem(),
        count,
        datatype,
    };
    let call = CallOrigin::default();
    let all = u64::from(n) * count;
    let block = |index: u64| ((index / count) as u32, index % count);
    let to_each = |index: u64| word(me, block(index).0, block(index).1);
    let from_each = |index: u64| word(block(index).0, me, block(index).1);
    let root = n - 1;

    let own = WordBuffer::new(count, |index| word(me, root, index));
    let out = WordBuffer::new(all, to_each);

    let into = WordBuffer::new(all, |index| if in_place { to_each(index) } else { 0 });
    let send = (!in_place).then(|| elements(&out));
    let recv = elements(&into);
    comm.collective(&Alltoall { send, recv }, call).unwrap();
    into.check(all, from_each);

    let buffer = elements(&own);
    comm.collective(&Bcast { buffer, root: 0 }, call).unwrap();
    own.check(count, |index| word(0, root, index));
    own.fill(count, |index| word(me, root, index));

    // In place, the own block is where it will be.
    let into = WordBuffer::new(all, |index| {
        word(block(index).0, root, block(index).1) * u32::from(block(index).0 == me)
    });
    let send = (!in_place).then(|| elements(&own));
    let recv = elements(&into);
    comm.collective(&Allgather { send, recv }, call).unwrap();
    into.check(all, |index| word(block(index).0, root, block(index).1));

    let at_root = me == root;
    let into = WordBuffer::new(all, |index| {
        word(block(index).0, root, block(index).1) * u32::from(block(index).0 == me)
    });
    let send = (!in_place || !at_root).then(|| elements(&own));
    let recv = at_root.then(|| elements(&into));
    let root = root as i32;
    comm.collective(&Gather { send, recv, root }, call).unwrap();
    if at_root {
        into.check(all, from_each);
    }

    let into = WordBuffer::new(count, |_| 0);
    let send = at_root.then(|| elements(&out));
    let recv = (!in_place || !at_root).then(|| elements(&into));
    comm.collective(&Scatter { send, recv, root }, call)
        .unwrap();
    if recv.is_some() {
        into.check(count, |index| word(root as u32, me, index));
    }

    let sum = |index| (0..n).fold(0u32, |sum, from| sum.wrapping_add(word(from, n - 1, index)));
    let into = WordBuffer::new(count, |index| word(me, n - 1, index));
    let send = (!in_place).then(|| own.0.mem());
    let recv = into.0.mem();
    comm.collective(
        &Allreduce {
            send,
            recv,
            count,
            datatype,
            op,
        },
        call,
    )
    .unwrap();
    into.check(count, sum);

    into.fill(count, |index| word(me, n - 1, index));
    let send = (!in_place || !at_root).then(|| own.0.mem());
    let recv = at_root.then(|| into.0.mem());
    comm.collective(
        &Reduce {
            send,
            recv,
            count,
            datatype,
            op,
            root,
        },
        call,
    )
    .unwrap();
    into.check(count, |index| {
        if at_root {
            sum(index)
        } else {
            word(me, n - 1, index)
        }
    });
}

#[test]
fn larger_collectives_through_lanes_give_what_messages_would() {
    // One piece and, for few ranks, several.
    for (n, counts) in [(2, [65, 70_001]), (3, [5001, 45_000]), (17, [65, 1025])] {
        world(n, |comm| {
            for count in counts {
                large(comm, count, false);
                large(comm, count, true);
            }
            assert!(comm.0.segment.lane_len() > 0);
        });
    }
}

#[test]
fn small_collectives_over_a_board_give_what_messages_would() {
    for n in [2, 3, 9, 17] {
        world(n, |comm| {
            rounds(comm, 30);
            assert!(comm.0.segment.is_attached());
        });
    }
}

#[test]
fn communicators_that_come_and_go_share_the_commons() {
    world(3, |comm| {
        for _ in 0..20 {
            let dup = comm.dup(None, CallOrigin::default()).unwrap();
            rounds(&dup, 3);
            assert!(dup.0.segment.is_attached());
            let half = comm
                .split((comm.rank() % 2) as i32, 0, CallOrigin::default())
                .unwrap()
                .unwrap();
            rounds(&half, 3);
        }
        let used = comm.process().config.segments.segments_made();
        // A lot is free again once the others have left it, which may be a little later.
        assert!(
            used <= 10,
            "{used} places in the commons for two communicators at a time"
        );
    });
}

#[test]
fn nobody_passes_a_barrier_on_a_board_before_all_have_come() {
    for spins in STYLES {
        let entered = AtomicU32::new(0);
        world_of(4, spins, &|comm: &Comm| {
            for round in 1..=50 {
                entered.fetch_add(1, Memory::SeqCst);
                comm.collective(&Barrier, CallOrigin::default()).unwrap();
                assert!(entered.load(Memory::SeqCst) >= 4 * round);
            }
            assert!(comm.0.segment.is_attached());
        });
    }
}

/// What a rank calls, and when it must be told that others called something else.
#[derive(Clone, Copy)]
enum Outcome<'a> {
    /// In the call.
    AtOnce(&'a (dyn Fn(&Comm) -> Result<()> + Sync)),
    /// In the call or in the next: a short broadcast does not wait for all.
    InTime(&'a (dyn Fn(&Comm) -> Result<()> + Sync)),
}

/// Returns whether what is told of a disagreement has a side with this rank, `rank 2  ...` or
/// `ranks 0,3-5  ...`.
fn is_told(text: &str, rank: u32) -> bool {
    let of_side = |line: &str| {
        let listed = line
            .trim_start()
            .strip_prefix("rank")?
            .trim_start_matches('s');
        let (ranks, _) = listed.trim_start().split_once("  ")?;
        Some(ranks.split(',').any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bound = |text: &str| text.parse::<u32>().ok();
            bound(first)
                .zip(bound(last))
                .is_some_and(|(first, last)| (first..=last).contains(&rank))
        }))
    };
    text.lines().skip(1).filter_map(of_side).any(|told| told)
}

/// Returns what each rank is told when one calls another thing than all others, from the first
/// collective of all on.
fn disagree(n: u32, theirs: Outcome<'_>, odd: Outcome<'_>) -> Vec<String> {
    let said = std::sync::Mutex::new(Vec::new());
    world(n, |comm| {
        for round in 0..2 {
            let stray = comm.rank() == round;
            let next = || comm.collective(&Barrier, CallOrigin::default());
            let outcome = match if stray { odd } else { theirs } {
                Outcome::AtOnce(call) => call(comm).inspect_err(|_| next().unwrap()),
                Outcome::InTime(call) => match call(comm) {
                    Ok(()) => next(),
                    told => told.inspect_err(|_| next().unwrap()),
                },
            };
            let error = outcome.unwrap_err();
            assert_eq!(error.class, Class::NotSame, "{error}");
            let (own, other) = (comm.rank(), if stray { (round + 1) % n } else { round });
            assert!(is_told(&error.detail, own), "{error}");
            assert!(stray || is_told(&error.detail, other), "{error}");
            // What the library exchanges to make the board does not count.
            let number = format!("about collective {} of", 2 * round + 1);
            assert!(error.detail.contains(&number), "{error}");
            said.lock().unwrap().push(error.detail);
        }
        // The communicator is as good as before.
        rounds(comm, 3);
    });
    said.into_inner().unwrap()
}

fn bcast(comm: &Comm, words: u64, root: i32) -> Result<()> {
    bcast_of(comm, &WordBuffer::new(words, |_| 7), words, root)
}

fn bcast_of(comm: &Comm, memory: &WordBuffer, words: u64, root: i32) -> Result<()> {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let buffer = Elements {
        mem: memory.0.mem(),
        count: words,
        datatype,
    };
    comm.collective(&Bcast { buffer, root }, CallOrigin::default())
}

fn allreduce(comm: &Comm, words: u64, op: PredefinedOp) -> Result<()> {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let (input, output) = (WordBuffer::new(words, |_| 7), WordBuffer::new(words, |_| 7));
    let call = Allreduce {
        send: Some(input.0.mem()),
        recv: output.0.mem(),
        count: words,
        datatype,
        op: &Op::predefined(op as u16).unwrap(),
    };
    comm.collective(&call, CallOrigin::default())
}

#[test]
fn ranks_that_disagree_about_a_collective_are_all_told_so_and_can_go_on() {
    use Outcome::{AtOnce, InTime};
    for n in [2, 3, 5] {
        let said = disagree(
            n,
            InTime(&|comm| bcast(comm, 2, 0)),
            AtOnce(&|comm| bcast(comm, 100_000, 0)),
        );
        for text in said {
            assert!(text.starts_with("error[G0112]: "), "{text}");
            assert!(text.contains("MPI_Bcast(8 B, root 0)"), "{text}");
            assert!(
                text.contains("MPI_Bcast(400000 B, root 0), 1 of "),
                "{text}"
            );
        }
        let barrier = |comm: &Comm| comm.collective(&Barrier, CallOrigin::default());
        for text in disagree(
            n,
            AtOnce(&barrier),
            AtOnce(&|comm| allreduce(comm, 5000, PredefinedOp::Max)),
        ) {
            assert!(text.contains("MPI_Barrier()"), "{text}");
            assert!(
                text.contains("MPI_Allreduce(20000 B, MPI_MAX on unsigned"),
                "{text}"
            );
        }
        for text in disagree(
            n,
            InTime(&|comm| bcast(comm, 2, 0)),
            InTime(&|comm| bcast(comm, 2, 1)),
        ) {
            assert!(text.contains("root 0") && text.contains("root 1"), "{text}");
        }
        let sum = |comm: &Comm| allreduce(comm, 1, PredefinedOp::Sum);
        for text in disagree(
            n,
            AtOnce(&sum),
            AtOnce(&|comm| allreduce(comm, 1, PredefinedOp::Max)),
        ) {
            assert!(
                text.contains("MPI_SUM") && text.contains("MPI_MAX"),
                "{text}"
            );
        }
        // One has nothing to move, and messages would not wait for anybody.
        for text in disagree(n, AtOnce(&sum), AtOnce(&|comm| bcast(comm, 0, 0))) {
            assert!(text.contains("MPI_Bcast(0 B, root 0)"), "{text}");
        }
    }
}

/// Broadcasts whose root is far ahead of its readers, mixed with everything else, in an order that
/// a seed decides.
#[test]
fn a_root_that_goes_ahead_of_its_readers_spoils_nothing() {
    for n in [2, 3, 5] {
        world(n, |comm| {
            let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
            let mut random = garonne_coll::testing::schedule_sim::SimRandom::new(u64::from(n));
            let memory = WordBuffer::new(64, |_| 0);
            for round in 0..30u32 {
                let (choice, root, count) = (
                    random.below(24),
                    random.below(n as usize),
                    1 + random.below(64),
                );
                let lagging = random.below(n as usize) as u32;
                match choice {
                    0 => large(comm, 65, false),
                    1 => rounds(comm, 1),
                    2 => comm.collective(&Barrier, CallOrigin::default()).unwrap(),
                    // Many in a row from one root, one of whose readers comes late.
                    _ => {
                        for again in 0..2 * DEPTH {
                            let value =
                                |index: u64| word(root as u32, round, index + u64::from(again));
                            let mine = comm.rank() == root as u32;
                            memory.fill(count as u64, |index| if mine { value(index) } else { 0 });
                            if comm.rank() == lagging && again % 5 == 0 {
                                std::thread::yield_now();
                            }
                            let buffer = Elements {
                                mem: memory.0.mem(),
                                count: count as u64,
                                datatype,
                            };
                            let root = root as i32;
                            comm.collective(&Bcast { buffer, root }, CallOrigin::default())
                                .unwrap();
                            memory.check(count as u64, value);
                        }
                    }
                }
            }
        });
    }
}

/// A root does not wait for readers that are not there yet; they find what it left, and it waits
/// before it runs over them.
#[test]
fn a_short_broadcast_does_not_wait_for_its_readers() {
    for spins in STYLES {
        let sent = AtomicU32::new(0);
        world_of(3, spins, &|comm: &Comm| {
            comm.collective(&Barrier, CallOrigin::default()).unwrap();
            for round in 0..3 * DEPTH {
                // The readers come only when the root has gone as far ahead as it may.
                while comm.rank() != 0 && sent.load(Memory::SeqCst) < DEPTH - 1 {
                    std::thread::yield_now();
                }
                let memory = WordBuffer::new(2, |index| {
                    if comm.rank() == 0 {
                        word(0, round, index)
                    } else {
                        0
                    }
                });
                bcast_of(comm, &memory, 2, 0).unwrap();
                memory.check(2, |index| word(0, round, index));
                if comm.rank() == 0 {
                    sent.fetch_add(1, Memory::SeqCst);
                }
            }
        });
    }
}
