//! Programs of ranks of simulated MPI jobs, and their expected results.

#![allow(dead_code, reason = "each test program uses a part")]

use garonne_engine::api::CallOrigin;
use garonne_mpi::coll::{Allgather, Allreduce, Alltoall, Barrier, Bcast, Elements};
use garonne_mpi::comm::Comm;
use garonne_mpi::datatype::{Datatype, codes};
use garonne_mpi::op::{Op, PredefinedOp};
use garonne_mpi::p2p::{RecvArgs, SendArgs, SendMode};
use garonne_mpi::process::{Process, ProcessConfig, ThreadLevel};
use garonne_mpi::request;
use garonne_progress::messaging::Messaging;
use garonne_sim::job::{JobOutcome, SimHost, SimJob, check};
use garonne_sim::random::Random;
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;

/// Runs `program` as every rank of an MPI job, twice.
pub fn mpi(job: &SimJob, program: impl Fn(&Comm) + Send + Sync) -> JobOutcome {
    check(job, |host: Arc<SimHost>| {
        let host: Arc<dyn Messaging> = host;
        let process = Process::new(ProcessConfig::plain(host));
        process.init(ThreadLevel::Multiple).expect("init");
        let world = process.world().expect("the world");
        program(&world);
        drop(world);
        process.finalize().expect("finalize");
    })
}

/// A buffer of 32-bit numbers.
pub struct Words {
    memory: Scratch,
    datatype: Datatype,
    count: u64,
}

impl Words {
    pub fn new(count: u64, value: impl Fn(u64) -> u32) -> Self {
        let memory = Scratch::new(count as usize * 4).expect("memory");
        (0..count).for_each(|at| {
            memory
                .mem()
                .write(at as isize * 4, &value(at).to_le_bytes())
        });
        Self {
            memory,
            datatype: Datatype::predefined(codes::UINT32_T).expect("a predefined type"),
            count,
        }
    }

    pub fn of(&self, count: u64) -> Elements<'_> {
        Elements {
            mem: self.memory.mem(),
            count,
            datatype: &self.datatype,
        }
    }

    pub fn all(&self) -> Elements<'_> {
        self.of(self.count)
    }

    pub fn at(&self, index: u64) -> u32 {
        let mut bytes = [0; 4];
        self.memory.mem().read(index as isize * 4, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}

/// Runs `count` collectives and checks their results.
pub fn collectives(comm: &Comm, seed: u64, count: u32) {
    let (me, n) = (comm.rank(), comm.size());
    let mut random = Random::new(seed);
    let sum = Op::predefined(PredefinedOp::Sum as u16).expect("a predefined operation");
    for _ in 0..count {
        let count = [1, 7, 300][random.below(3) as usize];
        match random.below(5) {
            0 => comm
                .collective(&Barrier, CallOrigin::default())
                .expect("barrier"),
            1 => {
                let root = random.below(u64::from(n)) as u32;
                let words = Words::new(
                    count,
                    |at| if me == root { at as u32 * 3 + root } else { 0 },
                );
                comm.collective(
                    &Bcast {
                        buffer: words.all(),
                        root: root as i32,
                    },
                    CallOrigin::default(),
                )
                .expect("bcast");
                assert!((0..count).all(|at| words.at(at) == at as u32 * 3 + root));
            }
            2 => {
                let (mine, result) = (
                    Words::new(count, |at| me + at as u32),
                    Words::new(count, |_| 0),
                );
                let call = Allreduce {
                    send: Some(mine.memory.mem()),
                    recv: result.memory.mem(),
                    count,
                    datatype: &mine.datatype,
                    op: &sum,
                };
                let started = comm
                    .start_collective(&call, CallOrigin::default())
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
                comm.collective(&call, CallOrigin::default())
                    .expect("allgather");
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
                comm.collective(&call, CallOrigin::default())
                    .expect("alltoall");
                assert!((0..u64::from(n)).all(|from| all.at(from) == (from as u32) << 16 | me));
            }
        }
    }
}

/// Everybody sends to everybody at a distance, in any order, and receives from anybody.
pub fn gossip(comm: &Comm, rounds: u32) {
    let (me, n) = (comm.rank(), comm.size());
    let mut sends = Vec::new();
    let out: Vec<Scratch> = (1..=rounds)
        .map(|_| Scratch::new(700).expect("memory"))
        .collect();
    for (distance, buffer) in (1..=rounds).zip(&out) {
        buffer.mem().write(0, &me.to_le_bytes());
        let data = Data::contiguous(buffer.mem(), 700);
        let dest = ((me + distance) % n) as i32;
        let args = SendArgs {
            data,
            dest,
            tag: 5,
            mode: SendMode::Standard,
            origin: CallOrigin::default(),
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
            origin: CallOrigin::default(),
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
    let mut want: Vec<u32> = (1..=rounds)
        .map(|distance| (me + n - distance) % n)
        .collect();
    want.sort_unstable();
    assert_eq!(heard, want);
}

fn byte(from: u32, number: u32, at: usize) -> u8 {
    (from.wrapping_mul(31) ^ number.wrapping_mul(37)).wrapping_add(at as u32) as u8
}

/// Everybody sends messages of these lengths to the rank `distance` further, while it receives
/// those of the rank so much before it. Every byte is checked.
pub fn shift(comm: &Comm, distance: u32, lens: &[usize]) {
    let (me, n) = (comm.rank(), comm.size());
    let (to, from) = ((me + distance) % n, (me + n - distance % n) % n);
    let pairs = lens.iter().enumerate().map(|(number, &len)| {
        let (out, room) = (
            Scratch::new(len).expect("memory"),
            Scratch::new(len).expect("memory"),
        );
        let bytes: Vec<u8> = (0..len).map(|at| byte(me, number as u32, at)).collect();
        out.mem().write(0, &bytes);
        let recv = RecvArgs {
            data: Data::contiguous(room.mem(), len as u64),
            source: from as i32,
            tag: number as i32,
            origin: CallOrigin::default(),
        };
        let send = SendArgs {
            data: Data::contiguous(out.mem(), len as u64),
            dest: to as i32,
            tag: number as i32,
            mode: SendMode::Standard,
            origin: CallOrigin::default(),
        };
        let requests = [
            comm.irecv(recv).expect("irecv"),
            comm.isend(send).expect("isend"),
        ];
        (requests, out, room)
    });
    let pairs: Vec<_> = pairs.collect();
    for (number, (requests, _, room)) in pairs.iter().enumerate() {
        for request in requests {
            request::wait(request).expect("wait");
        }
        let mut bytes = vec![0; lens[number]];
        room.mem().read(0, &mut bytes);
        let whole = bytes
            .iter()
            .enumerate()
            .all(|(at, value)| *value == byte(from, number as u32, at));
        assert!(whole, "message {number} of {from} to {me} was damaged");
    }
}

/// Waits for a message from a rank that cannot send one. The class of the error.
pub fn hopeless(comm: &Comm, source: u32) -> garonne_mpi::error::Class {
    let room = Scratch::new(8).expect("memory");
    let args = RecvArgs {
        data: Data::contiguous(room.mem(), 8),
        source: source as i32,
        tag: 77,
        origin: CallOrigin::default(),
    };
    comm.recv(args).expect_err("nobody sends this").class
}
