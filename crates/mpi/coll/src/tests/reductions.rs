//! Barrier, broadcasts and reductions.

use crate::algo::{Reduction, allreduce, barrier, bcast, part, reduce, reduce_scatter, scan};
use crate::plan::PlanRecorder;
use crate::temp_buffer::NoMemory;
use crate::testing::elements::*;
use garonne_sync::user::UserMem;

const SHAPES: [TestElements; 2] = [TestElements::Dense, TestElements::Gappy];
const COUNTS: [u64; 4] = [0, 1, 5, 23];
const RANKS: [u32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17];

fn ops(shape: TestElements) -> [TestOp; 2] {
    [TestOp::Add(shape), TestOp::Compose(shape)]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ReducePlace {
    Separate,
    InPlace,
}

const PLACES: [ReducePlace; 2] = [ReducePlace::Separate, ReducePlace::InPlace];

/// Buffers of all ranks for a reduction. In place, the output holds the contribution and is the
/// input.
struct ReduceCase {
    op: TestOp,
    count: u64,
    inputs: Vec<TestBuffer>,
    outputs: Vec<TestBuffer>,
    place: ReducePlace,
}

impl ReduceCase {
    fn new(n: u32, op: TestOp, shape: TestElements, count: u64, place: ReducePlace) -> Self {
        let inputs: Vec<_> = (0..n)
            .map(|rank| TestBuffer::of(shape, &contribution(rank, count)))
            .collect();
        let outputs = match place {
            ReducePlace::Separate => (0..n).map(|_| TestBuffer::new(shape, count)).collect(),
            ReducePlace::InPlace => (0..n)
                .map(|rank| TestBuffer::of(shape, &contribution(rank, count)))
                .collect(),
        };
        Self {
            op,
            count,
            inputs,
            outputs,
            place,
        }
    }

    fn output(&self, rank: u32) -> UserMem {
        self.outputs[rank as usize].mem()
    }

    fn reduction(&self, rank: u32) -> Reduction<'_> {
        let output = self.output(rank);
        let input = if self.place == ReducePlace::InPlace {
            output
        } else {
            self.inputs[rank as usize].mem()
        };
        Reduction {
            fold: &self.op,
            input,
            output,
            count: self.count,
        }
    }

    fn inputs_are_unchanged(&self) {
        for (rank, input) in self.inputs.iter().enumerate() {
            assert_eq!(input.elements(), contribution(rank as u32, self.count));
        }
    }
}

/// Calls `f` for every combination worth trying, with a seed.
fn cases(mut f: impl FnMut(u32, TestElements, TestOp, u64, ReducePlace, u64)) {
    let mut seed = 0;
    for n in RANKS {
        for shape in SHAPES {
            for op in ops(shape) {
                for count in COUNTS {
                    for place in PLACES {
                        seed += 1;
                        f(n, shape, op, count, place, seed);
                    }
                }
            }
        }
    }
}

#[test]
fn a_barrier_lets_nobody_leave_before_all_have_come() {
    for n in 2..=17 {
        for seed in 0..10 {
            run_barrier(n, 0, seed, barrier::dissemination);
        }
    }
}

#[test]
fn every_broadcast_gives_the_roots_bytes_to_all() {
    type Algorithm = fn(&mut PlanRecorder, u32, &garonne_sync::user::Data) -> Result<(), NoMemory>;
    let algorithms: [Algorithm; 4] = [
        |p, root, data| bcast::binomial(p, root, data),
        |p, root, data| bcast::flat(p, root, data),
        |p, root, data| bcast::scatter_allgather(p, root, data),
        |p, root, data| bcast::chain(p, root, data, 20),
    ];
    let mut seed = 0;
    for n in RANKS {
        for count in COUNTS {
            for root in [0, n / 2, n - 1] {
                for algorithm in algorithms {
                    seed += 1;
                    let want = contribution(root, count);
                    // The root and the others describe the data differently.
                    let buffers: Vec<_> = (0..n)
                        .map(|rank| {
                            let shape = SHAPES[(rank + n) as usize % 2];
                            if rank == root {
                                TestBuffer::of(shape, &want)
                            } else {
                                TestBuffer::new(shape, count)
                            }
                        })
                        .collect();
                    run(n, seed, |p, rank| {
                        algorithm(p, root, &buffers[rank as usize].typed().data(0, count))
                    });
                    buffers
                        .iter()
                        .for_each(|buffer| assert_eq!(buffer.elements(), want));
                }
            }
        }
    }
}

#[test]
fn every_reduce_gives_the_root_the_operands_in_rank_order() {
    type Algorithm = fn(&mut PlanRecorder, u32, &Reduction<'_>) -> Result<(), NoMemory>;
    let algorithms: [Algorithm; 2] = [
        |p, root, r| reduce::binomial(p, root, r),
        |p, root, r| reduce::sliced(p, root, r),
    ];
    cases(|n, shape, op, count, place, seed| {
        for root in [0, n / 3, n - 1] {
            for algorithm in algorithms {
                let case = ReduceCase::new(n, op, shape, count, place);
                run(n, seed, |p, rank| {
                    // Only the root may be in place; the others have no output.
                    let mut r = case.reduction(rank);
                    if rank != root {
                        r = Reduction {
                            input: case.inputs[rank as usize].mem(),
                            output: UserMem::null(),
                            ..r
                        };
                    }
                    algorithm(p, root, &r)
                });
                assert_eq!(
                    case.outputs[root as usize].elements(),
                    model(op, 0..n, count),
                    "{n} ranks, {op:?}, {place:?}"
                );
                case.inputs_are_unchanged();
            }
        }
    });
}

#[test]
fn every_allreduce_gives_all_the_operands_in_rank_order() {
    type Algorithm = fn(&mut PlanRecorder, &Reduction<'_>) -> Result<(), NoMemory>;
    let ordered: [Algorithm; 2] = [
        |p, r| allreduce::recursive_doubling(p, r),
        |p, r| allreduce::sliced(p, r),
    ];
    let commuting: [Algorithm; 4] = [
        ordered[0],
        ordered[1],
        |p, r| allreduce::halving_doubling(p, r),
        |p, r| allreduce::ring(p, r),
    ];
    cases(|n, shape, op, count, place, seed| {
        let algorithms: &[Algorithm] = if matches!(op, TestOp::Add(_)) {
            &commuting
        } else {
            &ordered
        };
        for (index, algorithm) in algorithms.iter().enumerate() {
            let case = ReduceCase::new(n, op, shape, count, place);
            run(n, seed, |p, rank| algorithm(p, &case.reduction(rank)));
            for output in &case.outputs {
                assert_eq!(
                    output.elements(),
                    model(op, 0..n, count),
                    "algorithm {index}, {n} ranks, {op:?}, {place:?}"
                );
            }
            case.inputs_are_unchanged();
        }
    });
}

#[test]
fn a_direct_reduce_scatter_leaves_every_rank_its_slice() {
    cases(|n, shape, op, count, place, seed| {
        let case = ReduceCase::new(n, op, shape, count, place);
        let slices: Vec<_> = (0..n)
            .map(|rank| TestBuffer::new(shape, part(count, n, rank).count() as u64))
            .collect();
        let slice = |rank: u32| part(count, n, rank);
        run(n, seed, |p, rank| {
            reduce_scatter::direct(
                p,
                &case.reduction(rank),
                &slice,
                slices[rank as usize].mem(),
            )
        });
        let want = model(op, 0..n, count);
        for rank in 0..n {
            let range = part(count, n, rank);
            let want = if count == 0 {
                &[][..]
            } else {
                &want[range.start as usize..range.end as usize]
            };
            assert_eq!(slices[rank as usize].elements(), want);
        }
        case.inputs_are_unchanged();
    });
}

#[test]
fn every_scan_combines_the_ranks_up_to_its_own() {
    type Algorithm = fn(&mut PlanRecorder, &Reduction<'_>, scan::ScanKind) -> Result<(), NoMemory>;
    let algorithms: [Algorithm; 2] = [
        |p, r, own| scan::recursive_doubling(p, r, own),
        |p, r, own| scan::chain(p, r, own, 3),
    ];
    cases(|n, shape, op, count, place, seed| {
        for own in [scan::ScanKind::Inclusive, scan::ScanKind::Exclusive] {
            for algorithm in algorithms {
                let case = ReduceCase::new(n, op, shape, count, place);
                let untouched = case.outputs[0].elements();
                run(n, seed, |p, rank| algorithm(p, &case.reduction(rank), own));
                for rank in 0..n {
                    let want = match own {
                        scan::ScanKind::Inclusive => model(op, 0..rank + 1, count),
                        scan::ScanKind::Exclusive if rank == 0 => untouched.clone(),
                        scan::ScanKind::Exclusive => model(op, 0..rank, count),
                    };
                    assert_eq!(
                        case.outputs[rank as usize].elements(),
                        want,
                        "rank {rank} of {n}, {op:?}, {place:?}, {own:?}"
                    );
                }
                case.inputs_are_unchanged();
            }
        }
    });
}
