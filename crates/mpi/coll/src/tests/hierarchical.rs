//! Collectives of ranks on several nodes: right for every placement, and with as little between
//! nodes as they promise.

use crate::algo::{Reduction, part};
use crate::blocks::{Blocks, CountArray};
use crate::hierarchical;
use crate::in_group::{allreduce_in_group, bcast_in_group};
use crate::node_map::NodeMap;
use crate::plan::{GroupSide, Plan, PlanRecorder, ScheduleStep};
use crate::switch_tree::SwitchTree;
use crate::temp_buffer::NoMemory;
use crate::testing::elements::*;
use crate::typed_buffer::{ElementLayout, TypedBuffer};
use garonne_sync::user::UserMem;
use std::collections::HashMap;
use std::sync::Arc;

/// The node of each rank.
const PLACEMENTS: [&[u32]; 9] = [
    &[0, 0, 1, 1],
    &[0, 0, 0, 1],
    &[0, 1, 1, 1, 1],
    &[0, 1, 0, 1],
    &[2, 0, 1, 1, 0, 2, 2],
    &[0, 0, 0, 1, 1, 1, 2, 2, 2],
    &[0, 0, 1, 2, 2, 2, 2, 3],
    &[3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0],
    &[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0],
];

const SHAPES: [TestElements; 2] = [TestElements::Dense, TestElements::Gappy];
const SHAPE_OF: [&dyn ElementLayout; 2] = [&TestElements::Dense, &TestElements::Gappy];
const COUNTS: [u64; 3] = [1, 5, 40];

fn runs(nodes: &[u32]) -> bool {
    (1..nodes.len()).all(|at| nodes[at] == nodes[at - 1] || !nodes[..at].contains(&nodes[at]))
}

/// Returns what a rank of this placement plans with.
fn placed(p: &mut PlanRecorder, nodes: &[u32], rank: u32) -> Arc<NodeMap> {
    let spread = || NodeMap::of(nodes.len() as u32, |rank| nodes[rank as usize], rank);
    p.spread_over(spread().map(Arc::new));
    Arc::new(spread().unwrap())
}

/// Every rank plans and carries it out, under some orders of events; with even seeds pairs of nodes
/// share switches.
fn everywhere(
    nodes: &[u32],
    seed: u64,
    plan: impl Fn(&mut PlanRecorder, &NodeMap, u32) -> Result<(), NoMemory>,
) {
    let switches = seed
        .is_multiple_of(2)
        .then(|| pairs(seed.is_multiple_of(3)));
    run(nodes.len() as u32, seed, |p, rank| {
        let spread = match &switches {
            None => placed(p, nodes, rank),
            Some(switches) => switched(p, nodes, rank, switches),
        };
        plan(p, &spread, rank)
    });
}

/// Twelve nodes, two to a switch: a star around the first switch, or a chain.
fn pairs(star: bool) -> SwitchTree {
    let above = |group: u32| group.checked_sub(1).map(|last| if star { 0 } else { last });
    SwitchTree::new(
        (0..12).map(|node| node / 2).collect(),
        (0..6).map(above).collect(),
    )
    .unwrap()
}

fn switched(p: &mut PlanRecorder, nodes: &[u32], rank: u32, switches: &SwitchTree) -> Arc<NodeMap> {
    let node_of = |rank: u32| nodes[rank as usize];
    let map = NodeMap::with_switches(nodes.len() as u32, node_of, rank, Some(switches));
    let map = Arc::new(map.unwrap());
    p.spread_over(Some(map.clone()));
    map
}

#[test]
fn links_between_switches_carry_data_once_in_each_direction() {
    const NODES: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    for (star, root) in [(true, 0), (true, 5), (false, 0), (false, 3), (true, 7)] {
        let switches = pairs(star);
        let want = contribution(root, 8192);
        let data: Vec<_> = NODES
            .map(|rank| match rank == root {
                true => TestBuffer::of(TestElements::Dense, &want),
                false => TestBuffer::new(TestElements::Dense, 8192),
            })
            .into();
        let op = TestOp::Add(TestElements::Dense);
        let of = |rank| TestBuffer::of(TestElements::Dense, &contribution(rank, 8192));
        let sums: Vec<_> = NODES.map(of).into();
        let bcast = |p: &mut PlanRecorder, rank: u32| {
            switched(p, &NODES, rank, &switches);
            bcast_in_group(p, root, &data[rank as usize].typed().data(0, 8192))
        };
        let allreduce = |p: &mut PlanRecorder, rank: u32| {
            switched(p, &NODES, rank, &switches);
            let mem = sums[rank as usize].mem();
            let r = Reduction {
                fold: &op,
                input: mem,
                output: mem,
                count: 8192,
            };
            allreduce_in_group(p, &r)
        };
        for (most, plan) in [
            (
                1,
                &bcast as &dyn Fn(&mut PlanRecorder, u32) -> Result<(), NoMemory>,
            ),
            (2, &allreduce),
        ] {
            let mut links: HashMap<(u32, u32), u64> = HashMap::new();
            for rank in NODES {
                let mut recorder = PlanRecorder::new(rank, 8, 0);
                plan(&mut recorder, rank).unwrap();
                for step in recorder.finish().steps {
                    if let ScheduleStep::Send(to, data) = step
                        && rank / 2 != to.rank / 2
                    {
                        *links.entry((rank / 2, to.rank / 2)).or_default() += data.len;
                    }
                }
            }
            // Each way between two neighbouring switches once: as many ways as a tree has links.
            assert_eq!(links.len(), 3 * most, "{links:?}");
            assert!(links.values().all(|bytes| *bytes == 8192 * 8), "{links:?}");
            run(8, u64::from(root), |p, rank| plan(p, rank));
        }
        for (buffer, sum) in data.iter().zip(&sums) {
            assert_eq!(buffer.elements(), want);
            assert_eq!(sum.elements(), model(op, 0..8, 8192));
        }
    }
}

#[test]
fn a_barrier_of_nodes_lets_nobody_leave_before_all_have_come() {
    for nodes in PLACEMENTS {
        for seed in 0..10 {
            run_barrier(nodes.len() as u32, 0, seed, |p| {
                let spread = placed(p, nodes, p.me());
                hierarchical::barrier(p, &spread)
            });
        }
    }
}

#[test]
fn a_broadcast_reaches_all_ranks_of_all_nodes() {
    for nodes in PLACEMENTS {
        let n = nodes.len() as u32;
        for (seed, (root, count)) in (0..n)
            .flat_map(|root| COUNTS.map(|count| (root, count)))
            .enumerate()
        {
            for chained in [false, true] {
                let want = contribution(root, count);
                let buffers: Vec<_> = (0..n)
                    .map(|rank| match SHAPES[(rank + n) as usize % 2] {
                        shape if rank == root => TestBuffer::of(shape, &want),
                        shape => TestBuffer::new(shape, count),
                    })
                    .collect();
                everywhere(nodes, seed as u64, |p, spread, rank| {
                    let data = buffers[rank as usize].typed().data(0, count);
                    match chained {
                        true => hierarchical::chain(p, spread, root, &data, 24),
                        false => hierarchical::bcast(p, spread, root, &data),
                    }
                });
                for buffer in &buffers {
                    assert_eq!(buffer.elements(), want, "{nodes:?} {root}");
                }
            }
        }
    }
}

/// Every placement with every operation that it allows.
fn reductions(mut f: impl FnMut(&[u32], TestOp, TestElements, u64, bool, u64)) {
    let mut seed = 0;
    for nodes in PLACEMENTS {
        for shape in SHAPES {
            for op in [TestOp::Add(shape), TestOp::Compose(shape)] {
                if matches!(op, TestOp::Compose(_)) && !runs(nodes) {
                    continue;
                }
                for count in COUNTS {
                    for in_place in [false, true] {
                        seed += 1;
                        f(nodes, op, shape, count, in_place, seed);
                    }
                }
            }
        }
    }
}

#[test]
fn a_reduction_of_nodes_combines_the_operands_in_rank_order() {
    reductions(|nodes, op, shape, count, in_place, seed| {
        let n = nodes.len() as u32;
        for root in [0, n / 2, n - 1] {
            let inputs: Vec<_> = (0..n)
                .map(|rank| TestBuffer::of(shape, &contribution(rank, count)))
                .collect();
            let result = match in_place {
                true => TestBuffer::of(shape, &contribution(root, count)),
                false => TestBuffer::new(shape, count),
            };
            everywhere(nodes, seed, |p, spread, rank| {
                let own = inputs[rank as usize].mem();
                let (input, output) = match (rank == root, in_place) {
                    (true, true) => (result.mem(), result.mem()),
                    (true, false) => (own, result.mem()),
                    (false, _) => (own, UserMem::null()),
                };
                let r = Reduction {
                    fold: &op,
                    input,
                    output,
                    count,
                };
                hierarchical::reduce(p, spread, root, &r)
            });
            assert_eq!(
                result.elements(),
                model(op, 0..n, count),
                "{nodes:?} {root} {op:?}"
            );
            for (rank, input) in (0..).zip(&inputs) {
                assert_eq!(input.elements(), contribution(rank, count));
            }
        }
    });
}

#[test]
fn an_allreduce_of_nodes_gives_all_the_operands_in_rank_order() {
    reductions(|nodes, op, shape, count, in_place, seed| {
        let n = nodes.len() as u32;
        let even = NodeMap::of(n, |rank| nodes[rank as usize], 0)
            .unwrap()
            .grouping()
            .each
            > 0;
        for in_slices in [false, true] {
            if in_slices && !even {
                continue;
            }
            let of = |rank| TestBuffer::of(shape, &contribution(rank, count));
            let inputs: Vec<_> = (0..n).map(of).collect();
            let results: Vec<_> = (0..n)
                .map(|rank| {
                    if in_place {
                        of(rank)
                    } else {
                        TestBuffer::new(shape, count)
                    }
                })
                .collect();
            everywhere(nodes, seed, |p, spread, rank| {
                let output = results[rank as usize].mem();
                let r = Reduction {
                    fold: &op,
                    input: if in_place {
                        output
                    } else {
                        inputs[rank as usize].mem()
                    },
                    output,
                    count,
                };
                match in_slices {
                    true => hierarchical::allreduce_in_slices(p, spread, &r),
                    false => hierarchical::allreduce(p, spread, &r),
                }
            });
            for result in &results {
                assert_eq!(
                    result.elements(),
                    model(op, 0..n, count),
                    "{nodes:?} {op:?} {in_slices}"
                );
            }
        }
    });
}

#[test]
fn an_allgather_of_nodes_gives_all_the_blocks_of_all() {
    for nodes in PLACEMENTS {
        let n = nodes.len() as u32;
        for count in [0, 1, 3] {
            // Rank r gives count + r % 3 elements, or count if all give alike.
            for even in [true, false] {
                let len = |rank: u32| count + if even { 0 } else { u64::from(rank % 3) };
                let counts: Vec<i64> = (0..n).map(|rank| len(rank) as i64).collect();
                let displs: Vec<i64> = (0..n)
                    .map(|rank| (0..rank).map(len).sum::<u64>() as i64)
                    .collect();
                let total = (0..n).map(len).sum();
                for round in [false, true] {
                    let results: Vec<_> = (0..n)
                        .map(|rank| {
                            let result = TestBuffer::new(SHAPES[rank as usize % 2], total);
                            let own = result.typed().data(displs[rank as usize], len(rank));
                            own.unpack(0, &bytes(&contribution(rank, len(rank))));
                            result
                        })
                        .collect();
                    everywhere(nodes, total, |p, spread, rank| {
                        let typed = results[rank as usize].typed();
                        let blocks = match even {
                            true => Blocks::Even { typed, count },
                            false => Blocks::Uneven {
                                typed,
                                counts: CountArray::Wide(&counts),
                                displs: CountArray::Wide(&displs),
                            },
                        };
                        match round {
                            true => hierarchical::ring(p, spread, &blocks),
                            false => hierarchical::allgather(p, spread, &blocks),
                        }
                    });
                    let want: Vec<_> = (0..n)
                        .flat_map(|rank| contribution(rank, len(rank)))
                        .collect();
                    for result in &results {
                        assert_eq!(result.elements(), want, "{nodes:?} {count} {even}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_alltoall_of_nodes_transposes_the_blocks_also_in_place() {
    let block = |from: u32, to: u32, count: u64| contribution(100 * from + to, count);
    for nodes in PLACEMENTS {
        let n = nodes.len() as u32;
        for (count, in_place) in [(1, false), (1, true), (3, false), (3, true)] {
            let blocks_of = |me: u32| {
                (0..n)
                    .flat_map(|to| block(me, to, count))
                    .collect::<Vec<_>>()
            };
            let inputs: Vec<_> = (0..n)
                .map(|me| TestBuffer::of(SHAPES[me as usize % 2], &blocks_of(me)))
                .collect();
            let outputs: Vec<_> = (0..n)
                .map(|me| match in_place {
                    true => TestBuffer::of(TestElements::Gappy, &blocks_of(me)),
                    false => TestBuffer::new(TestElements::Gappy, u64::from(n) * count),
                })
                .collect();
            everywhere(nodes, u64::from(n) + count, |p, spread, me| {
                let even = |buffer: &TestBuffer| Blocks::Even {
                    typed: TypedBuffer::new(
                        buffer.mem(),
                        SHAPE_OF[(buffer.shape == TestElements::Gappy) as usize],
                    ),
                    count,
                };
                let recv = even(&outputs[me as usize]);
                let send = if in_place {
                    recv
                } else {
                    even(&inputs[me as usize])
                };
                hierarchical::alltoall(p, spread, &send, &recv)
            });
            for (me, output) in (0..).zip(&outputs) {
                let want: Vec<_> = (0..n).flat_map(|from| block(from, me, count)).collect();
                assert_eq!(output.elements(), want, "{nodes:?} {me} {in_place}");
            }
        }
    }
}

/// Messages and bytes that leave a node.
fn crossing(
    nodes: &[u32],
    plan: impl Fn(&mut PlanRecorder, &NodeMap) -> Result<(), NoMemory>,
) -> (usize, u64) {
    let mut crossed = (0, 0);
    for (rank, node) in (0..).zip(nodes) {
        let mut recorder = PlanRecorder::new(rank, nodes.len() as u32, 0);
        let spread = placed(&mut recorder, nodes, rank);
        plan(&mut recorder, &spread).unwrap();
        for step in recorder.finish().steps {
            if let ScheduleStep::Send(site, data) = step
                && site.side == GroupSide::Local
                && nodes[site.rank as usize] != *node
            {
                crossed = (crossed.0 + 1, crossed.1 + data.len);
            }
        }
    }
    crossed
}

#[test]
fn what_crosses_the_network_grows_with_nodes_and_not_with_their_ranks() {
    for each in [2u32, 4, 16] {
        let nodes: Vec<u32> = (0..8 * each).map(|rank| rank / each).collect();
        let buffer = TestBuffer::new(TestElements::Dense, 4096);
        let r = Reduction {
            fold: &TestOp::Add(TestElements::Dense),
            input: buffer.mem(),
            output: buffer.mem(),
            count: 1,
        };
        let data = buffer.typed().data(0, 4096);
        // Eight nodes: three rounds of eight, or one message into each of seven.
        assert_eq!(
            crossing(&nodes, |p, spread| hierarchical::barrier(p, spread)),
            (24, 0)
        );
        assert_eq!(
            crossing(&nodes, |p, spread| hierarchical::allreduce(p, spread, &r)),
            (24, 24 * 8)
        );
        let short = buffer.typed().data(0, 16);
        assert_eq!(
            crossing(&nodes, |p, spread| hierarchical::bcast(
                p,
                spread,
                each + 1,
                &short
            )),
            (7, 7 * short.len)
        );
        assert_eq!(
            crossing(&nodes, |p, spread| hierarchical::chain(
                p,
                spread,
                each + 1,
                &data,
                1 << 20
            )),
            (7, 7 * data.len)
        );
        // One message from each node to each other.
        let blocks = Blocks::Even {
            typed: buffer.typed(),
            count: 1,
        };
        let (messages, sent) = crossing(&nodes, |p, spread| {
            hierarchical::alltoall(p, spread, &blocks, &blocks)
        });
        assert_eq!(
            (messages, sent),
            (8 * 7, 8 * 7 * u64::from(each * each) * 8)
        );
        // Each rank's slice goes as the algorithm for eight has it: twice seven eighths of it out
        // of each node.
        let long = Reduction { count: 4096, ..r };
        let (_, sent) = crossing(&nodes, |p, spread| {
            hierarchical::allreduce_in_slices(p, spread, &long)
        });
        let whole = part(4096, 1, 0).count() as u64 * 8;
        assert!(sent <= 8 * 3 * whole, "{each} {sent}");
    }
}
