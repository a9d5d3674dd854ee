//! Gathers, scatters and all-to-alls.

use crate::algo::{allgather, alltoall, gather};
use crate::blocks::{Blocks, CountArray};
use crate::plan::PlanRecorder;
use crate::temp_buffer::NoMemory;
use crate::testing::elements::*;
use garonne_sync::user::Data;

const COUNTS: [u64; 4] = [0, 1, 3, 8];
const SHAPES: [TestElements; 2] = [TestElements::Dense, TestElements::Gappy];

/// The shape that a rank uses, so that both sides of most messages differ.
fn shape_of(rank: u32) -> TestElements {
    SHAPES[(rank as usize / 2) % 2]
}

fn even<'a>(buffer: &'a TestBuffer, count: u64) -> Blocks<'a> {
    Blocks::Even {
        typed: buffer.typed(),
        count,
    }
}

fn all_contributions(n: u32, count: u64) -> Vec<[u32; 2]> {
    (0..n).flat_map(|rank| contribution(rank, count)).collect()
}

#[test]
fn every_gather_brings_the_blocks_to_the_root_in_rank_order() {
    type Algorithm =
        fn(&mut PlanRecorder, u32, u64, Option<&Data>, &Blocks<'_>) -> Result<(), NoMemory>;
    let algorithms: [Algorithm; 2] = [
        |p, root, _, mine, blocks| gather::linear_gather(p, root, mine, blocks),
        |p, root, block, mine, blocks| gather::binomial_gather(p, root, block, mine, blocks),
    ];
    for n in 1..=17u32 {
        for count in COUNTS {
            for root in [0, n / 2, n - 1] {
                for (seed, algorithm) in algorithms.into_iter().enumerate() {
                    for in_place in [false, true] {
                        let inputs: Vec<_> = (0..n)
                            .map(|rank| TestBuffer::of(shape_of(rank), &contribution(rank, count)))
                            .collect();
                        let output = TestBuffer::new(TestElements::Gappy, u64::from(n) * count);
                        if in_place {
                            let own = output.typed().data((u64::from(root) * count) as i64, count);
                            own.unpack(0, &bytes(&contribution(root, count)));
                        }
                        run(n, seed as u64, |p, rank| {
                            let mine = inputs[rank as usize].typed().data(0, count);
                            let mine = if in_place && rank == root {
                                None
                            } else {
                                Some(&mine)
                            };
                            let blocks = if rank == root {
                                even(&output, count)
                            } else {
                                Blocks::None
                            };
                            algorithm(p, root, 8 * count, mine, &blocks)
                        });
                        assert_eq!(output.elements(), all_contributions(n, count));
                    }
                }
            }
        }
    }
}

#[test]
fn every_scatter_gives_each_rank_its_block() {
    type Algorithm =
        fn(&mut PlanRecorder, u32, u64, Option<&Data>, &Blocks<'_>) -> Result<(), NoMemory>;
    let algorithms: [Algorithm; 2] = [
        |p, root, _, mine, blocks| gather::linear_scatter(p, root, mine, blocks),
        |p, root, block, mine, blocks| gather::binomial_scatter(p, root, block, mine, blocks),
    ];
    for n in 1..=17u32 {
        for count in COUNTS {
            for root in [0, n / 2, n - 1] {
                for (seed, algorithm) in algorithms.into_iter().enumerate() {
                    let input = TestBuffer::of(TestElements::Gappy, &all_contributions(n, count));
                    let outputs: Vec<_> = (0..n)
                        .map(|rank| TestBuffer::new(shape_of(rank), count))
                        .collect();
                    run(n, seed as u64, |p, rank| {
                        let mine = outputs[rank as usize].typed().data(0, count);
                        let blocks = if rank == root {
                            even(&input, count)
                        } else {
                            Blocks::None
                        };
                        algorithm(p, root, 8 * count, Some(&mine), &blocks)
                    });
                    for rank in 0..n {
                        assert_eq!(outputs[rank as usize].elements(), contribution(rank, count));
                    }
                }
            }
        }
    }
}

type Allgather = fn(&mut PlanRecorder, &Blocks<'_>) -> Result<(), NoMemory>;
/// For which numbers of ranks.
type Fits = fn(u32) -> bool;

#[test]
fn every_allgather_brings_all_blocks_to_all_ranks() {
    let algorithms: [(Allgather, Fits); 5] = [
        (|p, b| allgather::linear(p, b), |_| true),
        (|p, b| allgather::ring(p, &|rank| b.one(rank)), |_| true),
        (|p, b| allgather::bruck(p, b), |_| true),
        (
            |p, b| allgather::neighbour_exchange(p, b),
            |n| n.is_multiple_of(2),
        ),
        (
            |p, b| allgather::recursive_doubling(p, b),
            u32::is_power_of_two,
        ),
    ];
    for n in 1..=17u32 {
        for count in COUNTS {
            for (seed, (algorithm, _)) in algorithms
                .iter()
                .enumerate()
                .filter(|(_, (_, fits))| fits(n))
            {
                let inputs: Vec<_> = (0..n)
                    .map(|rank| TestBuffer::of(shape_of(rank), &contribution(rank, count)))
                    .collect();
                let outputs: Vec<_> = (0..n)
                    .map(|rank| TestBuffer::new(shape_of(rank + 1), u64::from(n) * count))
                    .collect();
                run(n, seed as u64, |p, rank| {
                    let blocks = even(&outputs[rank as usize], count);
                    allgather::own(
                        p,
                        Some(&inputs[rank as usize].typed().data(0, count)),
                        &blocks,
                    )?;
                    algorithm(p, &blocks)
                });
                for output in &outputs {
                    assert_eq!(
                        output.elements(),
                        all_contributions(n, count),
                        "{n} ranks, algorithm {seed}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_allgather_of_uneven_blocks_keeps_to_counts_and_displacements() {
    let algorithms: [Allgather; 4] = [
        |p, b| allgather::linear(p, b),
        |p, b| allgather::ring(p, &|rank| b.one(rank)),
        |p, b| allgather::bruck(p, b),
        |p, b| {
            if p.size_is_even() {
                allgather::neighbour_exchange(p, b)
            } else {
                allgather::ring(p, &|rank| b.one(rank))
            }
        },
    ];
    for n in 1..=13u32 {
        let counts: Vec<i32> = (0..n).map(|rank| ((rank * 5) % 4) as i32).collect();
        // Blocks lie in reverse order with a hole of one element after each.
        let mut displs = vec![0i64; n as usize];
        let mut next = 0;
        for rank in (0..n as usize).rev() {
            displs[rank] = next;
            next += i64::from(counts[rank]) + 1;
        }
        for (seed, algorithm) in algorithms.into_iter().enumerate() {
            let outputs: Vec<_> = (0..n)
                .map(|rank| TestBuffer::new(shape_of(rank), next as u64))
                .collect();
            let blocks = |rank: u32| Blocks::Uneven {
                typed: outputs[rank as usize].typed(),
                counts: CountArray::Int(&counts),
                displs: CountArray::Wide(&displs),
            };
            (0..n).for_each(|rank| {
                let own = contribution(rank, counts[rank as usize] as u64);
                blocks(rank).one(rank).unpack(0, &bytes(&own));
            });
            run(n, seed as u64, |p, rank| algorithm(p, &blocks(rank)));
            for receiver in 0..n {
                for rank in 0..n {
                    let got = words(&crate::testing::schedule_sim::packed(
                        &blocks(receiver).one(rank),
                    ));
                    assert_eq!(got, contribution(rank, counts[rank as usize] as u64));
                }
            }
        }
    }
}

/// Block that `from` sends to `to`.
fn exchanged(from: u32, to: u32, count: u64) -> Vec<[u32; 2]> {
    contribution(from * 100 + to, count)
}

#[test]
fn every_alltoall_transposes_the_blocks() {
    type Algorithm = fn(&mut PlanRecorder, &Blocks<'_>, &Blocks<'_>) -> Result<(), NoMemory>;
    let algorithms: [Algorithm; 4] = [
        |p, s, r| alltoall::linear(p, s, r, 64),
        |p, s, r| alltoall::linear(p, s, r, 3),
        |p, s, r| alltoall::linear(p, s, r, 1),
        |p, s, r| alltoall::bruck(p, s, r),
    ];
    for n in 1..=17u32 {
        for count in COUNTS {
            for (seed, algorithm) in algorithms.into_iter().enumerate() {
                let inputs: Vec<_> = (0..n)
                    .map(|me| {
                        TestBuffer::of(
                            shape_of(me),
                            &(0..n)
                                .flat_map(|to| exchanged(me, to, count))
                                .collect::<Vec<_>>(),
                        )
                    })
                    .collect();
                let outputs: Vec<_> = (0..n)
                    .map(|rank| TestBuffer::new(shape_of(rank + 1), u64::from(n) * count))
                    .collect();
                run(n, seed as u64, |p, me| {
                    algorithm(
                        p,
                        &even(&inputs[me as usize], count),
                        &even(&outputs[me as usize], count),
                    )
                });
                for me in 0..n {
                    let want: Vec<_> = (0..n).flat_map(|from| exchanged(from, me, count)).collect();
                    assert_eq!(outputs[me as usize].elements(), want);
                }
            }
        }
    }
}

#[test]
fn an_uneven_alltoall_may_be_in_place_or_not() {
    // What two ranks exchange has the same length both ways, as in-place calls require.
    let count = |a: u32, b: u32| i64::from((a + b) % 4);
    for n in 1..=17u32 {
        for in_place in [false, true] {
            let counts: Vec<Vec<i64>> = (0..n)
                .map(|me| (0..n).map(|other| count(me, other)).collect())
                .collect();
            let displs: Vec<i64> = (0..n).map(|rank| i64::from(rank) * 4).collect();
            let buffers = |shift: u32| -> Vec<_> {
                (0..n)
                    .map(|me| TestBuffer::new(shape_of(me + shift), u64::from(n) * 4))
                    .collect()
            };
            let (inputs, outputs) = (buffers(0), buffers(1));
            let blocks = |buffers: &'_ [TestBuffer], me: u32| -> Vec<Data> {
                let buffer = &buffers[me as usize];
                (0..n)
                    .map(|r| {
                        buffer
                            .typed()
                            .data(displs[r as usize], counts[me as usize][r as usize] as u64)
                    })
                    .collect()
            };
            for me in 0..n {
                let filled = if in_place {
                    blocks(&outputs, me)
                } else {
                    blocks(&inputs, me)
                };
                for (to, block) in filled.iter().enumerate() {
                    block.unpack(0, &bytes(&exchanged(me, to as u32, block.len / 8)));
                }
            }
            run(n, 5, |p, me| {
                let uneven = |buffer: &'_ TestBuffer| {
                    let typed = crate::typed_buffer::TypedBuffer::new(
                        buffer.mem(),
                        if buffer.shape == TestElements::Dense {
                            &TestElements::Dense
                        } else {
                            &TestElements::Gappy
                        },
                    );
                    (
                        typed,
                        CountArray::Wide(&counts[me as usize]),
                        CountArray::Wide(&displs),
                    )
                };
                let (typed, counts, displacements) = uneven(&outputs[me as usize]);
                let recv = Blocks::Uneven {
                    typed,
                    counts,
                    displs: displacements,
                };
                if in_place {
                    return alltoall::in_place(p, &recv);
                }
                let (typed, counts, displs) = uneven(&inputs[me as usize]);
                alltoall::linear(
                    p,
                    &Blocks::Uneven {
                        typed,
                        counts,
                        displs,
                    },
                    &recv,
                    4,
                )
            });
            for me in 0..n {
                for (from, block) in blocks(&outputs, me).iter().enumerate() {
                    assert_eq!(
                        words(&crate::testing::schedule_sim::packed(block)),
                        exchanged(from as u32, me, block.len / 8)
                    );
                }
            }
        }
    }
}

trait SizeIsEven {
    fn size_is_even(&self) -> bool;
}

impl SizeIsEven for PlanRecorder {
    fn size_is_even(&self) -> bool {
        crate::plan::Plan::size(self).is_multiple_of(2)
    }
}
