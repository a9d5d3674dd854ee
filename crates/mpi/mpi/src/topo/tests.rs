//! Communicators with topologies, over jobs of several ranks.

use super::*;
use crate::testing::job;

#[test]
fn a_grid_takes_the_first_ranks_and_splits_into_rows_and_columns() {
    job(7, |world| {
        let Some(grid) = world
            .cart_create(&[2, 3], &[true, false], CallOrigin::default())
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
            grid.cart_create(&[7], &[false], CallOrigin::default())
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
            .graph_create(&[2, 3, 4, 6], &[1, 3, 0, 3, 0, 2], CallOrigin::default())
            .unwrap()
            .unwrap();
        assert_eq!(graph.graph().unwrap().neighbors(0).unwrap(), [1, 3]);
        assert_eq!(graph.graph().unwrap().neighbors(3).unwrap(), [0, 2]);
        assert_eq!(
            world
                .graph_create(&[1], &[5], CallOrigin::default())
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
            .dist_graph_create(mine, CallOrigin::default())
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
                .dist_graph_create(short, CallOrigin::default())
                .err()
                .unwrap()
                .class,
            Class::Arg
        );
    });
}
