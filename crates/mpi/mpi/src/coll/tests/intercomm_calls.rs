//! The calls on an intercommunicator of threads: even ranks face odd ranks.

use crate::coll::*;
use crate::comm::PeerLeader;
use crate::datatype::{Datatype, codes};
use crate::op::{Op, PredefinedOp};
use crate::process::{Process, ProcessConfig, ThreadLevel};
use crate::request;
use garonne_coll::testing::elements::{TestBuffer, TestElements, TestOp, contribution, model};

const COUNT: u64 = 50;

struct GroupBuffers {
    comm: Comm,
    /// 0 for even ranks of the world, 1 for odd ones.
    group: u32,
    word: Datatype,
    sum: Op,
    nonblocking: bool,
}

impl GroupBuffers {
    fn go(&self, call: &impl Collective) {
        if self.nonblocking {
            let request = self
                .comm
                .start_collective(call, CallOrigin::default())
                .unwrap();
            request::wait(&request).unwrap();
        } else {
            self.comm.collective(call, CallOrigin::default()).unwrap();
        }
    }

    /// World rank of a member of a group.
    fn member(group: u32, rank: u32) -> u32 {
        2 * rank + group
    }

    fn me(&self) -> u32 {
        Self::member(self.group, self.comm.rank())
    }

    fn other(&self, rank: u32) -> u32 {
        Self::member(1 - self.group, rank)
    }

    /// Elements of the words of a buffer: two in each of the tests' elements.
    fn elements(&self, buffer: &TestBuffer, count: u64) -> Elements<'_> {
        Elements {
            mem: buffer.mem(),
            count: 2 * count,
            datatype: &self.word,
        }
    }

    /// The root argument when the rank `root` of group `group` is the root.
    fn root(&self, group: u32, root: u32) -> i32 {
        match self.group == group {
            true if self.comm.rank() == root => crate::ROOT,
            true => crate::PROC_NULL,
            false => root as i32,
        }
    }

    /// The sum of the other group's contributions.
    fn their_sum(&self, count: u64) -> Vec<[u32; 2]> {
        let all = (0..self.comm.peers()).map(|rank| contribution(self.other(rank), count));
        let add = |l: Vec<[u32; 2]>, r: Vec<[u32; 2]>| -> Vec<[u32; 2]> {
            l.iter()
                .zip(&r)
                .map(|(&l, &r)| {
                    garonne_coll::testing::elements::combine(TestOp::Add(TestElements::Dense), l, r)
                })
                .collect()
        };
        all.reduce(add).unwrap()
    }
}

fn faces(n: u32, program: impl Fn(&GroupBuffers) + Send + Sync) {
    garonne_sim::threads(n, |host| {
        let process = Process::new(ProcessConfig::plain(host));
        process.init(ThreadLevel::Multiple).unwrap();
        let world = process.world().unwrap();
        let group = world.rank() % 2;
        let own = world
            .split(group as i32, 0, CallOrigin::default())
            .unwrap()
            .unwrap();
        let peer = PeerLeader {
            comm: &world,
            rank: 1 - group as i32,
        };
        let comm = own
            .intercomm_create(0, Some(peer), 3, CallOrigin::default())
            .unwrap();
        let word = Datatype::predefined(codes::UINT32_T).unwrap();
        let sum = Op::predefined(PredefinedOp::Sum as u16).unwrap();
        for nonblocking in [false, true] {
            let (comm, word, sum) = (comm.clone(), word.clone(), sum.clone());
            program(&GroupBuffers {
                comm,
                group,
                word,
                sum,
                nonblocking,
            });
        }
        drop((comm, own, world));
        process.finalize().unwrap();
    });
}

fn rooted(side: &GroupBuffers, group: u32, root: u32) {
    let root_arg = side.root(group, root);
    let at_root = root_arg == crate::ROOT;
    let taking = root_arg >= 0;
    let source = GroupBuffers::member(group, root);

    let buffer = if at_root {
        TestBuffer::of(TestElements::Dense, &contribution(source, COUNT))
    } else {
        TestBuffer::new(TestElements::Dense, COUNT)
    };
    side.go(&Bcast {
        buffer: side.elements(&buffer, COUNT),
        root: root_arg,
    });
    if taking {
        assert_eq!(buffer.elements(), contribution(source, COUNT));
    }

    let mine = TestBuffer::of(TestElements::Dense, &contribution(side.me(), COUNT));
    let peers = side.comm.peers();
    let all = TestBuffer::new(TestElements::Dense, COUNT * u64::from(peers));
    let (send, recv) = (side.elements(&mine, COUNT), side.elements(&all, COUNT));
    side.go(&Gather {
        send: taking.then_some(send),
        recv: at_root.then_some(recv),
        root: root_arg,
    });
    if at_root {
        let want: Vec<_> = (0..peers)
            .flat_map(|rank| contribution(side.other(rank), COUNT))
            .collect();
        assert_eq!(all.elements(), want);
    }
    let back = TestBuffer::new(TestElements::Dense, COUNT);
    side.go(&Scatter {
        send: at_root.then_some(recv),
        recv: taking.then(|| side.elements(&back, COUNT)),
        root: root_arg,
    });
    if taking {
        assert_eq!(back.elements(), contribution(side.me(), COUNT));
    }

    // On bystanders nothing but the root is significant, not even the datatype.
    let byte = Datatype::predefined(codes::BYTE).unwrap();
    let datatype = if at_root || taking { &side.word } else { &byte };
    let (op, count) = (&side.sum, 2 * COUNT);
    let result = TestBuffer::new(TestElements::Dense, COUNT);
    let (send, recv) = (taking.then(|| mine.mem()), at_root.then(|| result.mem()));
    side.go(&Reduce {
        send,
        recv,
        count,
        datatype,
        op,
        root: root_arg,
    });
    if at_root {
        assert_eq!(result.elements(), side.their_sum(COUNT));
    }
}

fn unrooted(side: &GroupBuffers) {
    side.go(&Barrier);
    let peers = side.comm.peers();
    let mine = TestBuffer::of(TestElements::Dense, &contribution(side.me(), COUNT));
    let all = TestBuffer::new(TestElements::Dense, COUNT * u64::from(peers));
    side.go(&Allgather {
        send: Some(side.elements(&mine, COUNT)),
        recv: side.elements(&all, COUNT),
    });
    let want: Vec<_> = (0..peers)
        .flat_map(|rank| contribution(side.other(rank), COUNT))
        .collect();
    assert_eq!(all.elements(), want);

    let block = |from: u32, to: u32| contribution(100 * from + to, 3);
    let outgoing: Vec<_> = (0..peers)
        .flat_map(|rank| block(side.me(), side.other(rank)))
        .collect();
    let incoming: Vec<_> = (0..peers)
        .flat_map(|rank| block(side.other(rank), side.me()))
        .collect();
    let (send, recv) = (
        TestBuffer::of(TestElements::Dense, &outgoing),
        TestBuffer::new(TestElements::Dense, 3 * u64::from(peers)),
    );
    side.go(&Alltoall {
        send: Some(side.elements(&send, 3)),
        recv: side.elements(&recv, 3),
    });
    assert_eq!(recv.elements(), incoming);

    let (datatype, op) = (&side.word, &side.sum);
    let result = TestBuffer::new(TestElements::Dense, COUNT);
    side.go(&Allreduce {
        send: Some(mine.mem()),
        recv: result.mem(),
        count: 2 * COUNT,
        datatype,
        op,
    });
    assert_eq!(result.elements(), side.their_sum(COUNT));

    // The total must divide by the sizes of both groups.
    let total = u64::from(peers) * u64::from(side.comm.size());
    let input = TestBuffer::of(TestElements::Dense, &contribution(side.me(), total));
    let slice = TestBuffer::new(TestElements::Dense, u64::from(peers));
    let count = 2 * u64::from(peers);
    side.go(&ReduceScatterBlock {
        send: Some(input.mem()),
        recv: slice.mem(),
        count,
        datatype,
        op,
    });
    let from = side.comm.rank() as usize * peers as usize;
    assert_eq!(
        slice.elements(),
        side.their_sum(total)[from..from + peers as usize]
    );
}

#[test]
fn collectives_of_an_intercommunicator_give_each_side_what_the_other_has() {
    for n in [2, 3, 5, 6] {
        faces(n, |side| {
            for (group, root) in [(0, 0), (1, 0), (0, (n - 1) / 2), (1, n / 2 - 1)] {
                rooted(side, group, root);
            }
            unrooted(side);
        });
    }
}

#[test]
fn an_intercommunicator_refuses_scans_and_in_place_calls() {
    faces(2, |side| {
        let buffer = TestBuffer::of(
            TestElements::Dense,
            &model(TestOp::Add(TestElements::Dense), 0..1, 1),
        );
        let (datatype, op) = (&side.word, &side.sum);
        let scan = Scan {
            send: Some(buffer.mem()),
            recv: buffer.mem(),
            count: 2,
            datatype,
            op,
        };
        assert_eq!(
            side.comm
                .collective(&scan, CallOrigin::default())
                .unwrap_err()
                .class,
            Class::Comm
        );
        let sum = Allreduce {
            send: None,
            recv: buffer.mem(),
            count: 2,
            datatype,
            op,
        };
        assert_eq!(
            side.comm
                .collective(&sum, CallOrigin::default())
                .unwrap_err()
                .class,
            Class::Buffer
        );
    });
}
