//! Communicators with topologies, over jobs of several ranks.

use super::*;
use crate::process::{HwInstance, HwResource};
use crate::testing::{job, set_resources};

#[test]
fn a_grid_takes_the_first_ranks_and_splits_into_rows_and_columns() {
    job(7, |world| {
        let Some(grid) = world
            .cart_create(&[2, 3], &[true, false], (false, CallOrigin::default()))
            .unwrap()
        else {
            assert_eq!(world.rank(), 6);
            return;
        };
        assert_eq!(grid.topology().unwrap().number(), 211);
        let coords = grid.cart().unwrap().coords(grid.rank() as i32).unwrap();
        let row = grid
            .cart_sub(&[false, true], CallOrigin::default())
            .unwrap();
        assert_eq!(row.size(), 3);
        assert_eq!(row.rank() as i32, coords[1]);
        assert_eq!(row.cart().unwrap().periods, [false]);
        let point = grid
            .cart_sub(&[false, false], CallOrigin::default())
            .unwrap();
        assert_eq!((point.size(), point.cart().unwrap().dims.len()), (1, 0));
        assert_eq!(
            grid.dup(None, CallOrigin::default())
                .unwrap()
                .cart()
                .unwrap()
                .dims,
            [2, 3]
        );
        assert_eq!(grid.graph().err().unwrap().class, Class::Topology);
        assert_eq!(
            grid.cart_create(&[7], &[false], (false, CallOrigin::default()))
                .err()
                .unwrap()
                .class,
            Class::Dims
        );
    });
}

#[test]
fn a_graph_tells_the_neighbours_of_every_node() {
    job(4, |world| {
        let graph = world
            .graph_create(
                &[2, 3, 4, 6],
                &[1, 3, 0, 3, 0, 2],
                (false, CallOrigin::default()),
            )
            .unwrap()
            .unwrap();
        assert_eq!(graph.graph().unwrap().neighbors(0).unwrap(), [1, 3]);
        assert_eq!(graph.graph().unwrap().neighbors(3).unwrap(), [0, 2]);
        assert_eq!(
            world
                .graph_create(&[1], &[5], (false, CallOrigin::default()))
                .err()
                .unwrap()
                .class,
            Class::Rank
        );
        assert_eq!(
            world.graph_map(&[0, 0], &[]).unwrap(),
            if world.rank() < 2 {
                world.rank() as i32
            } else {
                crate::UNDEFINED
            }
        );
    });
}

#[test]
fn edges_given_anywhere_reach_both_their_ends() {
    job(4, |world| {
        // Rank 1 gives a weighted ring, rank 3 one edge more, the others nothing.
        let ring = GraphEdges {
            sources: &[0, 1, 2, 3],
            degrees: &[1, 1, 1, 1],
            destinations: &[1, 2, 3, 0],
            weights: Some(&[10, 11, 12, 13]),
        };
        let more = GraphEdges {
            sources: &[0],
            degrees: &[1],
            destinations: &[2],
            weights: Some(&[7]),
        };
        let none = GraphEdges {
            sources: &[],
            degrees: &[],
            destinations: &[],
            weights: Some(&[]),
        };
        let mine = match world.rank() {
            1 => ring,
            3 => more,
            _ => none,
        };
        let comm = world
            .dist_graph_create(mine, (false, CallOrigin::default()))
            .unwrap();
        let graph = comm.dist_graph().unwrap();
        match comm.rank() {
            0 => assert_eq!(
                graph.destinations,
                AdjacentRanks {
                    ranks: vec![1, 2],
                    weights: vec![10, 7]
                }
            ),
            2 => assert_eq!(
                graph.sources,
                AdjacentRanks {
                    ranks: vec![1, 0],
                    weights: vec![11, 7]
                }
            ),
            _ => assert_eq!(
                (graph.sources.ranks.len(), graph.destinations.ranks.len()),
                (1, 1)
            ),
        }
        assert!(graph.weighted);
        let short = GraphEdges {
            degrees: &[2],
            ..more
        };
        assert_eq!(
            world
                .dist_graph_create(short, (false, CallOrigin::default()))
                .err()
                .unwrap()
                .class,
            Class::Arg
        );
    });
}

/// Binds the calling rank to one of two packages, ranks taking turns.
fn take_turns_of_packages(rank: u32) {
    set_resources(vec![HwResource {
        name: "hwloc://Package".into(),
        instance: Some(HwInstance {
            first: rank % 2 * 8,
            cpus: 8,
        }),
    }]);
}

fn reordered() -> (bool, CallOrigin) {
    (true, CallOrigin::default())
}

/// Old rank of each new rank.
fn old_ranks(comm: &Comm, world: &Comm) -> Vec<u32> {
    let members = comm.group().members();
    members
        .map(|peer| world.group().rank_of(peer).unwrap())
        .collect()
}

#[test]
fn a_row_of_a_grid_is_brought_into_one_package() {
    job(8, |world| {
        take_turns_of_packages(world.rank());
        let row = world
            .cart_create(&[8], &[false], reordered())
            .unwrap()
            .unwrap();
        let ranks = old_ranks(&row, &world);
        let package: Vec<u32> = ranks.iter().map(|rank| rank % 2).collect();
        let changes = package.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 1, "{ranks:?}");
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).collect::<Vec<_>>());
        assert_eq!(ranks[row.rank() as usize], world.rank());
        // Without the wish, or where one process does not have it, ranks stay.
        for reorder in [false, world.rank() != 3] {
            let wish = (reorder, CallOrigin::default());
            let same = world.cart_create(&[8], &[false], wish).unwrap().unwrap();
            assert_eq!(old_ranks(&same, &world), (0..8).collect::<Vec<_>>());
        }
    });
}

#[test]
fn ranks_that_are_left_over_by_a_reordered_graph_get_nothing() {
    job(6, |world| {
        take_turns_of_packages(world.rank());
        // A ring of three nodes fits into one package.
        let ring = world
            .graph_create(&[1, 2, 3], &[1, 2, 0], reordered())
            .unwrap();
        let members = world.rank() % 2;
        match ring {
            Some(ring) => assert!(
                old_ranks(&ring, &world)
                    .iter()
                    .all(|rank| rank % 2 == members)
            ),
            None => assert!(world.rank() < 6),
        }
    });
}

#[test]
fn whoever_gets_a_rank_of_a_distributed_graph_gets_its_neighbours() {
    job(8, |world| {
        take_turns_of_packages(world.rank());
        let me = world.rank() as i32;
        // Pairs (0, 1), (2, 3) … that lie in different packages, with the pair's number as weight,
        // and a light edge round the ring.
        let (pair, next, before) = (me ^ 1, (me + 1) % 8, (me + 7) % 8);
        let adjacent = |ring: i32| AdjacentRanks {
            ranks: vec![pair, ring],
            weights: vec![100 + me / 2, 1],
        };
        let graph = DistGraph {
            sources: adjacent(before),
            destinations: adjacent(next),
            weighted: true,
        };
        let check = |comm: &Comm| {
            let node = comm.rank() as i32;
            let graph = comm.dist_graph().unwrap();
            assert_eq!(graph.destinations.ranks, [node ^ 1, (node + 1) % 8]);
            assert_eq!(graph.destinations.weights, [100 + node / 2, 1]);
            let ranks = old_ranks(comm, &world);
            for pair in ranks.chunks(2) {
                assert_eq!(pair[0] % 2, pair[1] % 2, "{ranks:?}");
            }
        };
        check(&world.dist_graph_adjacent(graph, reordered()).unwrap());
        let edges = GraphEdges {
            sources: &[me],
            degrees: &[2],
            destinations: &[pair, next],
            weights: Some(&[100 + me / 2, 1]),
        };
        check(&world.dist_graph_create(edges, reordered()).unwrap());
    });
}
