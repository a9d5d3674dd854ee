//! Collectives, communicators and point-to-point of whole simulated jobs under delay, reordering, loss and repeats; each seed runs
//! twice and must take the same course.

use garonne_engine::Quotas;
use garonne_engine::api::Origin;
use garonne_mpi::coll::{Allgather, Allreduce, Alltoall, Barrier, Bcast, Elements};
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::{Datatype, codes};
use garonne_mpi::op::{Op, Predefined};
use garonne_mpi::p2p::{RecvArgs, SendArgs, SendMode};
use garonne_mpi::process::{Config, Process, ThreadLevel};
use garonne_mpi::request;
use garonne_progress::host::Host;
use garonne_sim::faults::Faults;
use garonne_sim::job::{Job, SimHost, check};
use garonne_sim::random::Random;
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;

fn job(seed: u64, world: u32) -> Job {
    let mut random = Random::new(seed);
    let faults = Faults {
        delay_ns: (500, 2_000 + random.below(60_000)),
        loss: random.below(100),
        repeat: random.below(50),
        until_ns: 1_000_000,
        ..Faults::none()
    };
    let envelopes = [1, 2, 16, 1024][random.below(4) as usize];
    Job {
        world,
        seed,
        faults,
        memory: garonne_sim::Memory::Apart,
        quotas: Quotas {
            envelopes,
            payload: 1024,
        },
    }
}

fn mpi(job: &Job, program: impl Fn(&Comm) + Send + Sync) {
    check(job, |host: Arc<SimHost>| {
        let host: Arc<dyn Host> = host;
        let process = Process::new(Config::plain(host));
        process.init(ThreadLevel::Multiple).expect("init");
        let world = process.world().expect("the world");
        program(&world);
        drop(world);
        process.finalize().expect("finalize");
    });
}

struct Words {
    memory: Scratch,
    datatype: Datatype,
    count: u64,
}

impl Words {
    fn new(count: u64, value: impl Fn(u64) -> u32) -> Self {
        let memory = Scratch::new(count as usize * 4).expect("memory");
        (0..count).for_each(|at| memory.mem().write(at as isize * 4, &value(at).to_le_bytes()));
        Self {
            memory,
            datatype: Datatype::predefined(codes::UINT32_T).expect("a predefined type"),
            count,
        }
    }

    fn of(&self, count: u64) -> Elements<'_> {
        Elements {
            mem: self.memory.mem(),
            count,
            datatype: &self.datatype,
        }
    }

    fn all(&self) -> Elements<'_> {
        self.of(self.count)
    }

    fn at(&self, index: u64) -> u32 {
        let mut bytes = [0; 4];
        self.memory.mem().read(index as isize * 4, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}

fn collectives(comm: &Comm, seed: u64) {
    let (me, n) = (comm.rank(), comm.size());
    let mut random = Random::new(seed);
    let sum = Op::predefined(Predefined::Sum as u16).expect("a predefined operation");
    for _ in 0..3 {
        let count = [1, 7, 300][random.below(3) as usize];
        match random.below(5) {
            0 => comm.collective(&Barrier, Origin::default()).expect("barrier"),
            1 => {
                let root = random.below(u64::from(n)) as u32;
                let words = Words::new(count, |at| if me == root { at as u32 * 3 + root } else { 0 });
                comm.collective(
                    &Bcast {
                        buffer: words.all(),
                        root: root as i32,
                    },
                    Origin::default(),
                )
                .expect("bcast");
                assert!((0..count).all(|at| words.at(at) == at as u32 * 3 + root));
            }
            2 => {
                let (mine, result) = (Words::new(count, |at| me + at as u32), Words::new(count, |_| 0));
                let call = Allreduce {
                    send: Some(mine.memory.mem()),
                    recv: result.memory.mem(),
                    count,
                    datatype: &mine.datatype,
                    op: &sum,
                };
                let started = comm
                    .start_collective(&call, Origin::default())
                    .expect("iallreduce");
                request::wait(&started).expect("wait");
                assert!((0..count).all(|at| result.at(at) == n * (n - 1) / 2 + n * at as u32));
            }
            3 => {
                let (mine, all) = (
                    Words::new(2, |at| me * 2 + at as u32),
                    Words::new(2 * u64::from(n), |_| u32::MAX),
                );
                let call = Allgather {
                    send: Some(mine.all()),
                    recv: all.of(2),
                };
                comm.collective(&call, Origin::default()).expect("allgather");
                assert!((0..2 * u64::from(n)).all(|at| all.at(at) == at as u32));
            }
            _ => {
                let (mine, all) = (
                    Words::new(u64::from(n), |at| me << 16 | at as u32),
                    Words::new(u64::from(n), |_| u32::MAX),
                );
                let call = Alltoall {
                    send: Some(mine.of(1)),
                    recv: all.of(1),
                };
                comm.collective(&call, Origin::default()).expect("alltoall");
                assert!((0..u64::from(n)).all(|from| all.at(from) == (from as u32) << 16 | me));
            }
        }
    }
}

/// Everybody sends to everybody at a distance, in any order, and receives from anybody.
fn gossip(comm: &Comm, rounds: u32) {
    let (me, n) = (comm.rank(), comm.size());
    let mut sends = Vec::new();
    let out: Vec<Scratch> = (1..=rounds).map(|_| Scratch::new(700).expect("memory")).collect();
    for (distance, buffer) in (1..=rounds).zip(&out) {
        buffer.mem().write(0, &me.to_le_bytes());
        let data = Data::contiguous(buffer.mem(), 700);
        let dest = ((me + distance) % n) as i32;
        let args = SendArgs {
            data,
            dest,
            tag: 5,
            mode: SendMode::Standard,
            origin: Origin::default(),
        };
        sends.push(comm.isend(args).expect("isend"));
    }
    let room = Scratch::new(700).expect("memory");
    let mut heard = Vec::new();
    for _ in 0..rounds {
        let data = Data::contiguous(room.mem(), 700);
        let args = RecvArgs {
            data,
            source: garonne_mpi::ANY_SOURCE,
            tag: garonne_mpi::ANY_TAG,
            origin: Origin::default(),
        };
        comm.recv(args).expect("recv");
        let mut bytes = [0; 4];
        room.mem().read(0, &mut bytes);
        heard.push(u32::from_le_bytes(bytes));
    }
    for send in &sends {
        request::wait(send).expect("wait");
    }
    heard.sort_unstable();
    let mut want: Vec<u32> = (1..=rounds).map(|distance| (me + n - distance) % n).collect();
    want.sort_unstable();
    assert_eq!(heard, want);
}

#[test]
fn collectives_of_small_jobs_come_out_right_from_every_seed() {
    for seed in 0..100 {
        mpi(&job(seed, 1 + (seed % 9) as u32), |world| {
            collectives(world, seed)
        });
    }
}

#[test]
fn jobs_of_hundreds_of_ranks_split_reduce_and_gossip() {
    for (seed, world) in [(1000, 128), (1001, 200), (1002, 256)] {
        mpi(&job(seed, world), |world| {
            let half = world
                .split((world.rank() % 2) as i32, 0)
                .expect("split")
                .expect("everybody has a colour");
            collectives(&half, seed);
            gossip(world, 3);
        });
    }
}
