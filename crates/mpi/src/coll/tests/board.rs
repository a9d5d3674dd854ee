//! Small collectives over boards: ranks are threads over the shared-memory rail.

use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::op::{Op, Predefined};
use crate::process::{Config, Process, ThreadLevel};
use garonne_engine::Quotas;
use garonne_engine::shard::Shard;
use garonne_progress::engine_host::EngineHost;
use garonne_progress::host::Host;
use garonne_progress::surroundings::{Patience, Surroundings};
use garonne_rails::shm::{ShmRail, Threads};
use garonne_sync::user::Scratch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering as Memory};

/// Gives way a little, then sleeps: so that being woken by a doorbell is tried as well.
struct Impatient;

impl Surroundings for Impatient {
    fn patience(&self) -> Patience {
        Patience { spins: 0, yields: 2 }
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("the rank aborted the job with code {code}: {message}")
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

fn world(n: u32, program: impl Fn(&Comm) + Send + Sync) {
    let neighbours = Threads::new(n).unwrap();
    let leaving = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (me, neighbours) in (0..n).zip(neighbours) {
            let (program, leaving) = (&program, &leaving);
            scope.spawn(move || {
                let shard = Shard::new(
                    ShmRail::new(Arc::new(neighbours)).unwrap(),
                    me,
                    n,
                    Quotas::for_world(n),
                );
                let host = Arc::new(EngineHost::new(shard, me, n, Impatient));
                let process = Process::new(Config::plain(host.clone()));
                process.init(ThreadLevel::Multiple).unwrap();
                program(&process.world().unwrap());
                process.finalize().unwrap();
                leaving.fetch_add(1, Memory::SeqCst);
                while leaving.load(Memory::SeqCst) < n {
                    host.progress();
                    std::thread::yield_now();
                }
            });
        }
    });
}

/// The number of the test's round, as seen by a rank: the sum over ranks of `round * (rank + 1)`.
fn expected(n: u32, round: u32) -> u32 {
    round * n * (n + 1) / 2
}

fn rounds(comm: &Comm, count: u32) {
    let word = Datatype::predefined(codes::UINT32_T).unwrap();
    let sum = Op::predefined(Predefined::Sum as u16).unwrap();
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
            Origin::default(),
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
        comm.collective(&Bcast { buffer, root }, Origin::default())
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
            Origin::default(),
        )
        .unwrap();
        if me as i32 == root {
            assert_eq!(read(&output), expected(n, round));
        }
        comm.collective(&Barrier, Origin::default()).unwrap();

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
        comm.collective(&Allgather { send, recv }, Origin::default())
            .unwrap();
        for rank in 0..n {
            let mut bytes = [0; 4];
            all.mem().read(4 * rank as isize, &mut bytes);
            assert_eq!(u32::from_ne_bytes(bytes), round * (rank + 1));
        }
    }
}

#[test]
fn small_collectives_over_a_board_give_what_messages_would() {
    for n in [2, 3, 9, 17] {
        world(n, |comm| {
            rounds(comm, 30);
            assert!(comm.0.meeting.has_board());
        });
    }
}

#[test]
fn communicators_that_come_and_go_share_the_commons() {
    world(3, |comm| {
        for _ in 0..20 {
            let dup = comm.dup(None).unwrap();
            rounds(&dup, 3);
            assert!(dup.0.meeting.has_board());
            let half = comm.split((comm.rank() % 2) as i32, 0).unwrap().unwrap();
            rounds(&half, 3);
        }
        let used = comm.process().boards.places();
        // A lot is free again once the others have left it, which may be a little later.
        assert!(
            used <= 10,
            "{used} places in the commons for two communicators at a time"
        );
    });
}

#[test]
fn nobody_passes_a_barrier_on_a_board_before_all_have_come() {
    let entered = AtomicU32::new(0);
    world(4, |comm| {
        for round in 1..=50 {
            entered.fetch_add(1, Memory::SeqCst);
            comm.collective(&Barrier, Origin::default()).unwrap();
            assert!(entered.load(Memory::SeqCst) >= 4 * round);
        }
        assert!(comm.0.meeting.has_board());
    });
}
