//! The calls themselves on ranks that are threads, over real engines, datatypes and operations:
//! seeds choose the calls, their types, counts, roots and forms; a naive model says what must come
//! out.

use crate::coll::*;
use crate::datatype::{Constructor, ContentsForm, Datatype, codes};
use crate::group::Group;
use crate::op::{Commutativity, Op, PredefinedOp, UserOp};
use crate::process::{Process, ProcessConfig, ThreadLevel};
use crate::request;
use garonne_coll::testing::elements::{
    TestBuffer, TestElements, TestOp, bytes, combine, contribution, element, model, words,
};
use garonne_coll::testing::schedule_sim::{SimRandom, packed};
use garonne_coll::typed_buffer::{ElementLayout, TypedBuffer};
use garonne_sync::user::UserMem;
use std::sync::Arc;

/// The test's datatypes as real ones: what [`TestElements`] describes.
fn datatype(shape: TestElements) -> Datatype {
    let word = Datatype::predefined(codes::UINT32_T).unwrap();
    let make = |constructor| Datatype::construct(constructor, ContentsForm::Int).unwrap();
    match shape {
        TestElements::Dense => make(Constructor::Contiguous {
            count: 2,
            old: word,
        }),
        TestElements::Gappy => {
            let old = make(Constructor::Hindexed {
                blocklengths: vec![1, 1],
                displacements: vec![4, 16],
                old: word,
            });
            make(Constructor::Resized {
                lb: -4,
                extent: 24,
                old,
            })
        }
    }
}

/// Composes maps, as [`TestOp::ComposeAny`] does, on elements of whatever datatype the call brings.
struct ComposeAny;

impl UserOp for ComposeAny {
    fn call(&self, invec: UserMem, inoutvec: UserMem, count: u64, datatype: &Datatype) {
        for index in 0..count as i64 {
            let (left, right) = (
                TypedBuffer::new(invec, datatype).data(index, 1),
                TypedBuffer::new(inoutvec, datatype).data(index, 1),
            );
            let result = combine(
                TestOp::Compose(TestElements::Dense),
                words(&packed(&left))[0],
                words(&packed(&right))[0],
            );
            right.unpack(0, &bytes(&[result]));
        }
    }
}

pub(super) struct RandomRank {
    pub(super) comm: Comm,
    random: SimRandom,
    types: [Datatype; 2],
    compose: Op,
}

const SHAPES: [TestElements; 2] = [TestElements::Dense, TestElements::Gappy];

impl RandomRank {
    pub(super) fn me(&self) -> u32 {
        self.comm.rank()
    }

    fn n(&self) -> u32 {
        self.comm.size()
    }

    /// Blocking or nonblocking, equally on all ranks.
    fn go(&mut self, call: &impl Collective) {
        if self.random.below(2) == 0 {
            return self.comm.collective(call, CallOrigin::default()).unwrap();
        }
        let request = self
            .comm
            .start_collective(call, CallOrigin::default())
            .unwrap();
        request::wait(&request).unwrap();
    }

    fn count(&mut self) -> u64 {
        [0, 1, 3, 100, 700, 5000][self.random.below(6)]
    }

    fn root(&mut self) -> u32 {
        self.random.below(self.n() as usize) as u32
    }

    /// A shape that may differ between ranks, chosen without using the common sequence.
    fn own_shape(&self, salt: u32) -> TestElements {
        SHAPES[((self.me() * 7 + salt) / 3 % 2) as usize]
    }

    pub(super) fn datatype(&self, shape: TestElements) -> Datatype {
        self.types[(shape == TestElements::Gappy) as usize].clone()
    }

    fn flip(&mut self) -> bool {
        self.random.below(2) == 0
    }
}

macro_rules! elements {
    ($buffer:expr, $count:expr, $datatype:expr) => {
        Elements {
            mem: $buffer.mem(),
            count: $count,
            datatype: $datatype,
        }
    };
}

fn broadcast(rank: &mut RandomRank) {
    let (count, root) = (rank.count(), rank.root());
    let shape = rank.own_shape(root);
    let want = contribution(root, count);
    let buffer = if rank.me() == root {
        TestBuffer::of(shape, &want)
    } else {
        TestBuffer::new(shape, count)
    };
    let datatype = rank.datatype(shape);
    rank.go(&Bcast {
        buffer: elements!(buffer, count, &datatype),
        root: root as i32,
    });
    assert_eq!(buffer.elements(), want);
}

fn gather_and_scatter(rank: &mut RandomRank) {
    let (count, root, n) = (rank.count(), rank.root(), rank.n());
    let (mine, all) = (rank.own_shape(1), rank.own_shape(2));
    let in_place = rank.flip() && rank.me() == root;
    let mine_type = rank.datatype(mine);
    let all_type = rank.datatype(all);
    let input = TestBuffer::of(mine, &contribution(rank.me(), count));
    let output = TestBuffer::new(all, count * u64::from(n));
    if in_place {
        output
            .typed()
            .data((u64::from(root) * count) as i64, count)
            .unpack(0, &bytes(&contribution(root, count)));
    }
    let at_root = rank.me() == root;
    rank.go(&Gather {
        send: (!in_place).then(|| elements!(input, count, &mine_type)),
        recv: at_root.then(|| elements!(output, count, &all_type)),
        root: root as i32,
    });
    if at_root {
        let want: Vec<_> = (0..n).flat_map(|rank| contribution(rank, count)).collect();
        assert_eq!(output.elements(), want);
    }
    let back = TestBuffer::new(mine, count);
    rank.go(&Scatter {
        send: at_root.then(|| elements!(output, count, &all_type)),
        recv: (!in_place).then(|| elements!(back, count, &mine_type)),
        root: root as i32,
    });
    if !in_place {
        assert_eq!(back.elements(), contribution(rank.me(), count));
    }
}

/// Counts that differ between ranks, and displacements with a hole after each block, blocks in
/// reverse order.
fn uneven(n: u32, salt: u32, unit: i32) -> (Vec<i32>, Vec<i64>, u64) {
    let counts: Vec<i32> = (0..n)
        .map(|rank| ((rank + salt) % 4) as i32 * unit)
        .collect();
    let mut displs = vec![0; n as usize];
    let mut next = 0;
    for rank in (0..n as usize).rev() {
        displs[rank] = next;
        next += i64::from(counts[rank]) + 1;
    }
    (counts, displs, next as u64)
}

fn uneven_gathers(rank: &mut RandomRank) {
    let (root, n, me) = (rank.root(), rank.n(), rank.me());
    let unit = [1, 50, 900][rank.random.below(3)];
    let (counts, displs, room) = uneven(n, root, unit);
    let mine = rank.own_shape(1);
    let (mine_type, all_type) = (rank.datatype(mine), rank.datatype(TestElements::Gappy));
    let count = counts[me as usize] as u64;
    let input = TestBuffer::of(mine, &contribution(me, count));
    let output = TestBuffer::new(TestElements::Gappy, room);
    let varied = ElementsV {
        mem: output.mem(),
        counts: CountArray::Int(&counts),
        displs: CountArray::Wide(&displs),
        datatype: &all_type,
    };
    let check = |what: &str| {
        for from in 0..n {
            let count = counts[from as usize] as u64;
            let block = output.typed().data(displs[from as usize], count);
            assert_eq!(
                words(&packed(&block)),
                contribution(from, count),
                "{what}: block of {from}"
            );
        }
    };
    let at_root = me == root;
    let send = elements!(input, count, &mine_type);
    rank.go(&Gatherv {
        send: Some(send),
        recv: at_root.then_some(varied),
        root: root as i32,
    });
    if at_root {
        check("gatherv");
    }
    rank.go(&Allgatherv {
        send: Some(send),
        recv: varied,
    });
    check("allgatherv");
    rank.go(&Allgatherv {
        send: None,
        recv: varied,
    });
    check("allgatherv in place");
    let back = TestBuffer::new(mine, count);
    let recv = elements!(back, count, &mine_type);
    rank.go(&Scatterv {
        send: at_root.then_some(varied),
        recv: Some(recv),
        root: root as i32,
    });
    assert_eq!(back.elements(), contribution(me, count));
}

fn all_gather(rank: &mut RandomRank) {
    let (count, n) = (rank.count(), rank.n());
    let (mine, all) = (rank.own_shape(3), rank.own_shape(4));
    let (mine_type, all_type) = (rank.datatype(mine), rank.datatype(all));
    let input = TestBuffer::of(mine, &contribution(rank.me(), count));
    let output = TestBuffer::new(all, count * u64::from(n));
    let in_place = rank.flip();
    if in_place {
        let own = output
            .typed()
            .data((u64::from(rank.me()) * count) as i64, count);
        own.unpack(0, &bytes(&contribution(rank.me(), count)));
    }
    let send = (!in_place).then(|| elements!(input, count, &mine_type));
    rank.go(&Allgather {
        send,
        recv: elements!(output, count, &all_type),
    });
    let want: Vec<_> = (0..n).flat_map(|rank| contribution(rank, count)).collect();
    assert_eq!(output.elements(), want);
}

fn all_to_all(rank: &mut RandomRank) {
    let (count, n, me) = (rank.count().min(700), rank.n(), rank.me());
    let (mine, all) = (rank.own_shape(5), rank.own_shape(6));
    let (mine_type, all_type) = (rank.datatype(mine), rank.datatype(all));
    let block = |from: u32, to: u32| contribution(from * 64 + to, count);
    let outgoing: Vec<_> = (0..n).flat_map(|to| block(me, to)).collect();
    let incoming: Vec<_> = (0..n).flat_map(|from| block(from, me)).collect();
    let in_place = rank.flip();
    let input = TestBuffer::of(mine, &outgoing);
    let output = if in_place {
        TestBuffer::of(all, &outgoing)
    } else {
        TestBuffer::new(all, count * u64::from(n))
    };
    let send = (!in_place).then(|| elements!(input, count, &mine_type));
    rank.go(&Alltoall {
        send,
        recv: elements!(output, count, &all_type),
    });
    assert_eq!(output.elements(), incoming);

    let displs: Vec<i64> = (0..n).map(|rank| i64::from(rank) * count as i64).collect();
    let counts = CountArray::All(count as i64);
    let output = if in_place {
        TestBuffer::of(all, &outgoing)
    } else {
        TestBuffer::new(all, count * u64::from(n))
    };
    let send = ElementsV {
        mem: input.mem(),
        counts,
        displs: CountArray::Wide(&displs),
        datatype: &mine_type,
    };
    let recv = ElementsV {
        mem: output.mem(),
        counts,
        displs: CountArray::Wide(&displs),
        datatype: &all_type,
    };
    rank.go(&Alltoallv {
        send: (!in_place).then_some(send),
        recv,
    });
    assert_eq!(output.elements(), incoming);

    let bytes_of = |shape: TestElements| -> Vec<i64> {
        displs.iter().map(|displ| displ * shape.extent()).collect()
    };
    let (mine_displs, all_displs) = (bytes_of(mine), bytes_of(all));
    let (mine_types, all_types) = (vec![mine_type; n as usize], vec![all_type; n as usize]);
    let output = if in_place {
        TestBuffer::of(all, &outgoing)
    } else {
        TestBuffer::new(all, count * u64::from(n))
    };
    let send = ElementsW {
        mem: input.mem(),
        counts,
        displs: CountArray::Wide(&mine_displs),
        datatypes: &mine_types,
    };
    let recv = ElementsW {
        mem: output.mem(),
        counts,
        displs: CountArray::Wide(&all_displs),
        datatypes: &all_types,
    };
    rank.go(&Alltoallw {
        send: (!in_place).then_some(send),
        recv,
    });
    assert_eq!(output.elements(), incoming);
}

/// What one reduction works with, equal on all ranks.
struct ReductionCase {
    shape: TestElements,
    datatype: Datatype,
    op: Op,
    model: TestOp,
    /// Elements of the datatype in one of the model's.
    per: u64,
}

fn sum(rank: &mut RandomRank) -> ReductionCase {
    match rank.random.below(3) {
        0 => {
            let datatype = Datatype::predefined(codes::UINT32_T).unwrap();
            let op = Op::predefined(PredefinedOp::Sum as u16).unwrap();
            ReductionCase {
                shape: TestElements::Dense,
                datatype,
                op,
                model: TestOp::Add(TestElements::Dense),
                per: 2,
            }
        }
        index => {
            let shape = SHAPES[index - 1];
            ReductionCase {
                shape,
                datatype: rank.datatype(shape),
                op: rank.compose.clone(),
                model: TestOp::Compose(shape),
                per: 1,
            }
        }
    }
}

fn reductions(rank: &mut RandomRank) {
    let ReductionCase {
        shape,
        datatype,
        op,
        model: how,
        per,
    } = sum(rank);
    let (count, root, n, me) = (rank.count(), rank.root(), rank.n(), rank.me());
    let (datatype, op) = (&datatype, &op);
    let in_place = rank.flip();
    let input = TestBuffer::of(shape, &contribution(me, count));
    let output = || {
        if in_place {
            TestBuffer::of(shape, &contribution(me, count))
        } else {
            TestBuffer::new(shape, count)
        }
    };
    let send = (!in_place).then(|| input.mem());
    let elements = count * per;

    let result = output();
    rank.go(&Allreduce {
        send,
        recv: result.mem(),
        count: elements,
        datatype,
        op,
    });
    assert_eq!(result.elements(), model(how, 0..n, count));

    let (result, at_root) = (output(), me == root);
    let own = if in_place && at_root {
        None
    } else {
        Some(input.mem())
    };
    rank.go(&Reduce {
        send: own,
        recv: at_root.then(|| result.mem()),
        count: elements,
        datatype,
        op,
        root: root as i32,
    });
    if at_root {
        assert_eq!(result.elements(), model(how, 0..n, count));
    }

    let result = output();
    rank.go(&Scan {
        send,
        recv: result.mem(),
        count: elements,
        datatype,
        op,
    });
    assert_eq!(result.elements(), model(how, 0..me + 1, count));

    let result = output();
    rank.go(&Exscan {
        send,
        recv: result.mem(),
        count: elements,
        datatype,
        op,
    });
    if me > 0 {
        assert_eq!(result.elements(), model(how, 0..me, count));
    }
}

fn reduce_scatters(rank: &mut RandomRank) {
    let ReductionCase {
        shape,
        datatype,
        op,
        model: how,
        per,
    } = sum(rank);
    let (n, me, salt) = (rank.n(), rank.me(), rank.root());
    let (datatype, op) = (&datatype, &op);
    let unit = [1, 40, 2000][rank.random.below(3)];
    let (counts, _, _) = uneven(n, salt, unit);
    let total: i32 = counts.iter().sum();
    let model_all = model(how, 0..n, total as u64);
    let before: i32 = counts[..me as usize].iter().sum();
    let mine = counts[me as usize] as u64;
    let want = |from: u64, count: u64| {
        if count == 0 {
            vec![]
        } else {
            model_all[from as usize..(from + count) as usize].to_vec()
        }
    };
    let in_place = rank.flip();
    let input = TestBuffer::of(shape, &contribution(me, total as u64));
    let scaled: Vec<i64> = counts
        .iter()
        .map(|&count| i64::from(count) * per as i64)
        .collect();
    let result = if in_place {
        TestBuffer::of(shape, &contribution(me, total as u64))
    } else {
        TestBuffer::new(shape, mine)
    };
    let send = (!in_place).then(|| input.mem());
    rank.go(&ReduceScatter {
        send,
        recv: result.mem(),
        counts: CountArray::Wide(&scaled),
        datatype,
        op,
    });
    assert_eq!(
        result.elements()[..mine as usize],
        want(before as u64, mine)
    );

    let each = rank.count();
    let input = TestBuffer::of(shape, &contribution(me, each * u64::from(n)));
    let result = TestBuffer::new(shape, each);
    rank.go(&ReduceScatterBlock {
        send: Some(input.mem()),
        recv: result.mem(),
        count: each * per,
        datatype,
        op,
    });
    let all = model(how, 0..n, each * u64::from(n));
    assert_eq!(
        result.elements(),
        all[(u64::from(me) * each) as usize..][..each as usize]
    );
}

pub(super) fn with_world(n: u32, seed: u64, program: impl Fn(&mut RandomRank) + Send + Sync) {
    on_nodes(n, |_| 0, seed, program);
}

/// Runs the calls on ranks that believe to be on several nodes.
fn on_nodes(
    n: u32,
    node_of: impl Fn(u32) -> u32 + Copy + Send + Sync + 'static,
    seed: u64,
    program: impl Fn(&mut RandomRank) + Send + Sync,
) {
    garonne_sim::threads(n, |host| {
        let own = node_of(host.me());
        let near = (0..n).filter(|rank| node_of(*rank) == own).collect();
        let process = Process::new(ProcessConfig {
            node: Group::compact(near),
            node_of: Arc::new(node_of),
            ..ProcessConfig::plain(host)
        });
        process.init(ThreadLevel::Multiple).unwrap();
        let comm = process.world().unwrap();
        let types = SHAPES.map(datatype);
        let compose = Op::user(Arc::new(ComposeAny), Commutativity::No);
        program(&mut RandomRank {
            comm,
            random: SimRandom::new(seed),
            types,
            compose,
        });
        process.finalize().unwrap();
    });
}

const CALLS: [fn(&mut RandomRank); 8] = [
    |rank| rank.go(&Barrier),
    broadcast,
    gather_and_scatter,
    uneven_gathers,
    all_gather,
    all_to_all,
    reductions,
    reduce_scatters,
];

fn call_at_random(rank: &mut RandomRank) {
    for _ in 0..16 {
        let call = CALLS[rank.random.below(CALLS.len())];
        call(rank);
    }
}

#[test]
fn random_sequences_of_collectives_give_what_the_model_says() {
    for (seed, n) in [1, 2, 3, 4, 5, 8, 9].into_iter().enumerate() {
        with_world(n, seed as u64, call_at_random);
    }
}

#[test]
fn random_sequences_of_collectives_between_nodes_give_what_the_model_says() {
    for (seed, n) in [3, 4, 6, 9].into_iter().enumerate() {
        on_nodes(n, |rank| rank / 2, seed as u64, call_at_random);
        on_nodes(n, |rank| rank % 3, seed as u64 + 10, call_at_random);
        on_nodes(
            n,
            |rank| u32::from(rank > 1),
            seed as u64 + 20,
            call_at_random,
        );
    }
}

#[test]
fn many_nonblocking_collectives_are_under_way_at_once() {
    with_world(5, 3, |rank| {
        let datatype = rank.datatype(TestElements::Dense);
        let buffers: Vec<_> = (0..40u32)
            .map(|index| {
                let root = index % rank.n();
                if rank.me() == root {
                    TestBuffer::of(TestElements::Dense, &[element(root, index.into())])
                } else {
                    TestBuffer::new(TestElements::Dense, 1)
                }
            })
            .collect();
        let started = buffers.iter().zip(0..).map(|(buffer, index): (_, i32)| {
            let call = Bcast {
                buffer: elements!(buffer, 1, &datatype),
                root: index % rank.n() as i32,
            };
            rank.comm
                .start_collective(&call, CallOrigin::default())
                .unwrap()
        });
        let requests: Vec<_> = started.collect();
        let list: Vec<_> = requests.iter().rev().map(Some).collect();
        request::wait_all(&list, &mut |_, outcome| assert!(outcome.is_ok()));
        for (buffer, index) in buffers.iter().zip(0..) {
            assert_eq!(buffer.elements(), [element(index % rank.n(), index.into())]);
        }
    });
}
