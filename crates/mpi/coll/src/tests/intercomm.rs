//! Intercommunicators: two groups of any sizes.

use crate::algo::intercomm::{self, RootRole};
use crate::algo::{Reduction, part};
use crate::blocks::Blocks;
use crate::testing::elements::*;
use garonne_sync::user::UserMem;

fn groups(mut f: impl FnMut(u32, u32, u64)) {
    for a in 1..=6 {
        for b in 1..=6 {
            for seed in 0..3 {
                f(a, b, seed);
            }
        }
    }
}

/// The role of a process when `root` of the first group is the root.
fn role(group: usize, rank: u32, root: u32) -> RootRole {
    match group {
        0 if rank == root => RootRole::Root,
        0 => RootRole::Bystander,
        _ => RootRole::Peer(root),
    }
}

#[test]
fn a_barrier_lets_nobody_of_either_group_leave_early() {
    groups(|a, b, seed| run_barrier(a, b, seed, intercomm::barrier));
}

#[test]
fn a_broadcast_reaches_the_other_group_only() {
    groups(|a, b, seed| {
        let root = a - 1;
        let source = TestBuffer::of(TestElements::Gappy, &contribution(7, 9));
        let targets: Vec<_> = (0..b)
            .map(|_| TestBuffer::new(TestElements::Dense, 9))
            .collect();
        run_groups(a, b, seed, |p, group, rank| {
            let data = if group == 0 {
                source.typed()
            } else {
                targets[rank as usize].typed()
            }
            .data(0, 9);
            intercomm::bcast(p, role(group, rank, root), &data)
        });
        targets
            .iter()
            .for_each(|target| assert_eq!(target.elements(), contribution(7, 9)));
    });
}

#[test]
fn gather_and_scatter_move_blocks_between_the_root_and_the_other_group() {
    groups(|a, b, seed| {
        let root = a / 2;
        let all: Vec<_> = (0..b).flat_map(|rank| contribution(rank, 3)).collect();
        let gathered = TestBuffer::new(TestElements::Gappy, 3 * u64::from(b));
        let sources: Vec<_> = (0..b)
            .map(|rank| TestBuffer::of(TestElements::Dense, &contribution(rank, 3)))
            .collect();
        run_groups(a, b, seed, |p, group, rank| {
            let mine = sources[rank as usize % b as usize].typed().data(0, 3);
            let blocks = Blocks::Even {
                typed: gathered.typed(),
                count: 3,
            };
            intercomm::gather(p, role(group, rank, root), &mine, &blocks)
        });
        assert_eq!(gathered.elements(), all);
        let targets: Vec<_> = (0..b)
            .map(|_| TestBuffer::new(TestElements::Dense, 3))
            .collect();
        run_groups(a, b, seed, |p, group, rank| {
            let mine = targets[rank as usize % b as usize].typed().data(0, 3);
            let blocks = Blocks::Even {
                typed: gathered.typed(),
                count: 3,
            };
            intercomm::scatter(p, role(group, rank, root), &mine, &blocks)
        });
        (0..b)
            .for_each(|rank| assert_eq!(targets[rank as usize].elements(), contribution(rank, 3)));
    });
}

#[test]
fn reductions_give_each_group_the_sum_of_the_other() {
    for count in [0u64, 1, 10] {
        for op in [
            TestOp::Add(TestElements::Gappy),
            TestOp::Compose(TestElements::Gappy),
        ] {
            groups(|a, b, seed| {
                let sizes = [a, b];
                let member = |group: usize, rank: u32| rank + 50 * group as u32;
                let buffers = |count: u64| -> Vec<Vec<TestBuffer>> {
                    sizes
                        .iter()
                        .map(|&size| {
                            (0..size)
                                .map(|_| TestBuffer::new(TestElements::Gappy, count))
                                .collect()
                        })
                        .collect()
                };
                let inputs: Vec<Vec<TestBuffer>> = (0..2)
                    .map(|group| {
                        (0..sizes[group])
                            .map(|r| {
                                TestBuffer::of(
                                    TestElements::Gappy,
                                    &contribution(member(group, r), count),
                                )
                            })
                            .collect()
                    })
                    .collect();
                let sum =
                    |group: usize| model(op, member(group, 0)..member(group, sizes[group]), count);
                let reduction = |group: usize, rank: u32, output: UserMem| Reduction {
                    fold: &op,
                    input: inputs[group][rank as usize].mem(),
                    output,
                    count,
                };

                let result = TestBuffer::new(TestElements::Gappy, count);
                run_groups(a, b, seed, |p, group, rank| {
                    let role = role(group, rank, a - 1);
                    let output = if role == RootRole::Root {
                        result.mem()
                    } else {
                        UserMem::null()
                    };
                    intercomm::reduce(p, role, &reduction(group, rank, output))
                });
                assert_eq!(result.elements(), sum(1));

                let results = buffers(count);
                run_groups(a, b, seed, |p, group, rank| {
                    intercomm::allreduce(
                        p,
                        &reduction(group, rank, results[group][rank as usize].mem()),
                    )
                });
                let slices = buffers(count);
                let slice = |group: usize, rank: u32| part(count, sizes[group], rank);
                run_groups(a, b, seed, |p, group, rank| {
                    let r = reduction(group, rank, slices[group][rank as usize].mem());
                    intercomm::reduce_scatter(p, &r, &|rank| slice(group, rank).count() as u64)
                });
                for group in 0..2 {
                    for rank in 0..sizes[group] {
                        assert_eq!(results[group][rank as usize].elements(), sum(1 - group));
                        let range = slice(group, rank);
                        let got = slices[group][rank as usize].elements();
                        if count > 0 {
                            let want = &sum(1 - group)[range.start as usize..range.end as usize];
                            assert_eq!(&got[..want.len()], want);
                        }
                    }
                }
            });
        }
    }
}
