//! Multilevel bisection of a weighted graph into parts of exact sizes.
//!
//! Heavy edges are contracted until few vertices are left; these are cut by growing a part from
//! several seeds; each level's cut is improved by the method of Fiduccia and Mattheyses on the way
//! back. On the finest level, where every vertex weighs one, the sizes are exact.

use std::collections::BinaryHeap;

/// Contraction ends at this many vertices.
const COARSE_VERTICES: usize = 48;
/// Seeds that a part is grown from, on the coarsest level.
const SEEDS: usize = 12;
/// Improvements in a row, at most; each is quick when little is left to gain.
const PASSES: usize = 8;
/// Moves without a gain after which a pass ends: one in so many vertices, and at least the second
/// number.
const STALE_SHARE: usize = 8;
const STALE_MOVES: usize = 96;

/// Graph with weights of edges and vertices, in compressed rows.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    first: Vec<usize>,
    edges: Vec<(u32, i64)>,
    weights: Vec<u32>,
}

impl Graph {
    /// A graph of `vertices` of weight one from the edges of each, which name both directions.
    pub fn new(rows: impl Iterator<Item = Vec<(u32, i64)>>) -> Self {
        let mut graph = Self {
            first: vec![0],
            edges: Vec::new(),
            weights: Vec::new(),
        };
        for row in rows {
            graph.push(&row, 1);
        }
        graph
    }

    fn push(&mut self, row: &[(u32, i64)], weight: u32) {
        self.edges.extend_from_slice(row);
        self.first.push(self.edges.len());
        self.weights.push(weight);
    }

    /// Number of vertices.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    fn row(&self, vertex: usize) -> &[(u32, i64)] {
        &self.edges[self.first[vertex]..self.first[vertex + 1]]
    }

    /// Weight of edges between the parts.
    fn cut(&self, is_left: &[bool]) -> i64 {
        let across = |vertex: usize| {
            let others = self.row(vertex).iter();
            let crossing = others.filter(|(other, _)| is_left[*other as usize] != is_left[vertex]);
            crossing.map(|(_, weight)| weight).sum::<i64>()
        };
        (0..self.len()).map(across).sum::<i64>() / 2
    }

    /// The graph with pairs of vertices contracted along heavy edges, and the vertex there that
    /// each of this graph's vertices became. Visiting begins at `start` and goes round.
    fn contracted(&self, start: usize) -> (Self, Vec<u32>) {
        const FREE: u32 = u32::MAX;
        let total: u32 = self.weights.iter().sum();
        let heaviest = (total / COARSE_VERTICES as u32 * 2).max(2);
        let mut partner = vec![FREE; self.len()];
        let mut lonely = None;
        for step in 0..self.len() {
            let vertex = (step + start) % self.len();
            if partner[vertex] != FREE {
                continue;
            }
            let row = self.row(vertex);
            let fits = |other: u32| {
                let weight = self.weights[vertex] + self.weights[other as usize];
                partner[other as usize] == FREE && other as usize != vertex && weight <= heaviest
            };
            let other = if row.is_empty() {
                // Vertices without edges are paired among each other.
                lonely.replace(vertex as u32).filter(|other| fits(*other))
            } else {
                let free = row.iter().filter(|(other, _)| fits(*other));
                let heavy = free.max_by_key(|(other, weight)| (*weight, std::cmp::Reverse(*other)));
                heavy.map(|(other, _)| *other)
            };
            if let Some(other) = other {
                partner[vertex] = other;
                partner[other as usize] = vertex as u32;
            }
        }
        self.merged(&partner)
    }

    fn merged(&self, partner: &[u32]) -> (Self, Vec<u32>) {
        const FREE: u32 = u32::MAX;
        let mut coarse_of = vec![FREE; self.len()];
        let mut members = Vec::new();
        for vertex in 0..self.len() {
            if coarse_of[vertex] != FREE {
                continue;
            }
            let other = match partner[vertex] {
                FREE => vertex,
                other => other as usize,
            };
            coarse_of[vertex] = members.len() as u32;
            coarse_of[other] = members.len() as u32;
            members.push((vertex, other));
        }
        let mut coarse = Self::new(std::iter::empty());
        let mut row = Vec::new();
        for (index, (vertex, other)) in members.iter().enumerate() {
            row.clear();
            let both = [*vertex, *other];
            let distinct = if vertex == other { &both[..1] } else { &both };
            for member in distinct {
                let far = self.row(*member).iter();
                let far = far.map(|(to, weight)| (coarse_of[*to as usize], *weight));
                row.extend(far.filter(|(to, _)| *to != index as u32));
            }
            row.sort_unstable();
            row.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                kept.1 += if same { next.1 } else { 0 };
                same
            });
            let weight = distinct.iter().map(|member| self.weights[*member]).sum();
            coarse.push(&row, weight);
        }
        (coarse, coarse_of)
    }
}

/// Cuts the graph, whose vertices weigh one each, so that `left` vertices are in the left part.
pub(crate) fn bisect(graph: &Graph, left: usize) -> Vec<bool> {
    debug_assert!(left <= graph.len());
    let starts = [0, graph.len() / 3, graph.len() * 2 / 3];
    let tries = if graph.len() > COARSE_VERTICES { 3 } else { 1 };
    let cuts = starts[..tries].iter().map(|start| {
        let is_left = multilevel(graph, left as i64, *start);
        (graph.cut(&is_left), is_left)
    });
    cuts.min_by_key(|(cut, _)| *cut)
        .map_or_else(Vec::new, |(_, is_left)| is_left)
}

/// Exchanges vertices between two parts as long as that lowers the weight across.
pub(crate) fn improve(graph: &Graph, is_left: &mut [bool]) {
    let left = is_left.iter().filter(|is_left| **is_left).count();
    Refinement::new(graph, left as i64, 0).run(is_left);
}

fn multilevel(graph: &Graph, left: i64, start: usize) -> Vec<bool> {
    let tolerance = |graph: &Graph| match graph.weights.iter().max() {
        Some(1) | None => 0,
        Some(heaviest) => i64::from(*heaviest),
    };
    if graph.len() > COARSE_VERTICES {
        let (coarse, coarse_of) = graph.contracted(start);
        if coarse.len() * 20 < graph.len() * 19 {
            let coarse_left = multilevel(&coarse, left, start / 2);
            let mut is_left: Vec<bool> = coarse_of
                .iter()
                .map(|vertex| coarse_left[*vertex as usize])
                .collect();
            Refinement::new(graph, left, tolerance(graph)).run(&mut is_left);
            return is_left;
        }
    }
    let seeds = SEEDS.min(graph.len());
    let grown = (0..seeds).map(|seed| {
        let mut is_left = grow(graph, left, seed * graph.len() / seeds);
        let off = Refinement::new(graph, left, tolerance(graph)).run(&mut is_left);
        (off, graph.cut(&is_left), is_left)
    });
    grown
        .min_by_key(|(off, cut, _)| (*off, *cut))
        .map_or_else(Vec::new, |(_, _, is_left)| is_left)
}

/// Grows the left part from a seed by the vertex that is tied to it most, up to its weight.
fn grow(graph: &Graph, left: i64, seed: usize) -> Vec<bool> {
    let mut is_left = vec![false; graph.len()];
    let mut weight = 0;
    let mut tie = vec![0_i64; graph.len()];
    let outside: Vec<i64> = (0..graph.len())
        .map(|vertex| graph.row(vertex).iter().map(|(_, weight)| weight).sum())
        .collect();
    let mut next = seed;
    while weight < left {
        is_left[next] = true;
        weight += i64::from(graph.weights[next]);
        for (other, edge) in graph.row(next) {
            tie[*other as usize] += edge;
        }
        let free = (0..graph.len()).filter(|vertex| !is_left[*vertex]);
        // A vertex that is not tied to the part at all is the last resort.
        let gain = |vertex: &usize| (tie[*vertex] > 0, 2 * tie[*vertex] - outside[*vertex]);
        match free.max_by_key(gain) {
            Some(best) => next = best,
            None => break,
        }
    }
    is_left
}

/// Improvement of a cut by moves of single vertices, with all moves that follow the best state
/// taken back.
struct Refinement<'a> {
    graph: &'a Graph,
    /// Weight that the left part has to have.
    left: i64,
    /// Weight that it may be off.
    tolerance: i64,
}

/// A vertex that may move, ordered by what its move gains; of equals the first.
type Candidate = (i64, std::cmp::Reverse<u32>);

impl<'a> Refinement<'a> {
    fn new(graph: &'a Graph, left: i64, tolerance: i64) -> Self {
        Self {
            graph,
            left,
            tolerance,
        }
    }

    /// Improves the cut; returns by how much the left part's weight is off beyond the tolerance.
    fn run(&self, is_left: &mut [bool]) -> i64 {
        let mut off = i64::MAX;
        for _ in 0..PASSES {
            let before = off;
            let gained;
            (off, gained) = self.pass(is_left);
            if gained == 0 && off >= before.min(off) && before != i64::MAX {
                break;
            }
        }
        off
    }

    fn off(&self, weight: i64) -> i64 {
        ((weight - self.left).abs() - self.tolerance).max(0)
    }

    /// One pass; returns how much the part is off, and what the cut gained.
    fn pass(&self, is_left: &mut [bool]) -> (i64, i64) {
        let graph = self.graph;
        let mut gains: Vec<i64> = (0..graph.len())
            .map(|vertex| {
                let row = graph.row(vertex).iter();
                row.map(|(other, weight)| {
                    if is_left[*other as usize] == is_left[vertex] {
                        -weight
                    } else {
                        *weight
                    }
                })
                .sum()
            })
            .collect();
        let mut heaps: [BinaryHeap<Candidate>; 2] = Default::default();
        for (vertex, gain) in gains.iter().enumerate() {
            heaps[usize::from(is_left[vertex])].push((*gain, std::cmp::Reverse(vertex as u32)));
        }
        let weights = graph.weights.iter().zip(is_left.iter());
        let mut weight: i64 = weights
            .filter(|(_, is_left)| **is_left)
            .map(|(weight, _)| i64::from(*weight))
            .sum();
        let mut is_locked = vec![false; graph.len()];
        let mut moves = Vec::new();
        let (mut total, mut best) = (0, (self.off(weight), 0, 0_usize));
        let stale = (graph.len() / STALE_SHARE).max(STALE_MOVES);
        while moves.len() < best.2 + stale {
            for (side, heap) in heaps.iter_mut().enumerate() {
                while heap.peek().is_some_and(|(gain, vertex)| {
                    let vertex = vertex.0 as usize;
                    is_locked[vertex]
                        || gains[vertex] != *gain
                        || usize::from(is_left[vertex]) != side
                }) {
                    heap.pop();
                }
            }
            let from_left = match (weight - self.left).signum() {
                1 => true,
                -1 => false,
                _ => heaps[1].peek() > heaps[0].peek(),
            };
            let Some((gain, vertex)) = heaps[usize::from(from_left)].pop() else {
                break;
            };
            let vertex = vertex.0 as usize;
            is_locked[vertex] = true;
            is_left[vertex] = !from_left;
            weight += i64::from(graph.weights[vertex]) * if from_left { -1 } else { 1 };
            total += gain;
            moves.push(vertex);
            for (other, edge) in graph.row(vertex) {
                let other = *other as usize;
                gains[other] += if is_left[other] == is_left[vertex] {
                    -2 * edge
                } else {
                    2 * edge
                };
                if !is_locked[other] {
                    let candidate = (gains[other], std::cmp::Reverse(other as u32));
                    heaps[usize::from(is_left[other])].push(candidate);
                }
            }
            let off = self.off(weight);
            if (off, -total) < (best.0, -best.1) {
                best = (off, total, moves.len());
            }
        }
        for vertex in moves.drain(best.2..) {
            is_left[vertex] = !is_left[vertex];
        }
        (best.0, best.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(width: u32, height: u32) -> Graph {
        Graph::new((0..width * height).map(|at| {
            let (x, y) = (at % width, at / width);
            let mut row = Vec::new();
            let mut tie = |condition: bool, other: u32| {
                if condition {
                    row.push((other, 1));
                }
            };
            tie(x > 0, at.wrapping_sub(1));
            tie(x + 1 < width, at + 1);
            tie(y > 0, at.wrapping_sub(width));
            tie(y + 1 < height, at + width);
            row
        }))
    }

    #[test]
    fn a_grid_is_cut_across_its_shorter_side() {
        for (width, height) in [(8, 4), (16, 16), (32, 8), (64, 64)] {
            let graph = grid(width, height);
            let is_left = bisect(&graph, graph.len() / 2);
            let cut = graph.cut(&is_left);
            assert!(
                cut <= i64::from(width.min(height)) + 1,
                "{width}x{height}: {cut}"
            );
        }
    }

    #[test]
    fn two_cliques_are_parted_at_their_one_edge() {
        let graph = Graph::new((0..20_u32).map(|vertex| {
            let base = vertex / 10 * 10;
            let mut row: Vec<(u32, i64)> = (base..base + 10)
                .filter(|other| *other != vertex)
                .map(|other| (other, 5))
                .collect();
            row.extend((vertex == 9).then_some((10, 1)));
            row.extend((vertex == 10).then_some((9, 1)));
            row
        }));
        assert_eq!(graph.cut(&bisect(&graph, 10)), 1);
    }

    proptest! {
        #[test]
        fn parts_have_exactly_their_sizes(
            vertices in 1_usize..200, share in 0.0_f64..=1.0,
            edges in proptest::collection::vec((0_u32..200, 0_u32..200, 1_i64..1000), 0..600),
        ) {
            let mut rows = vec![std::collections::BTreeMap::new(); vertices];
            for (a, b, weight) in edges {
                let (a, b) = (a as usize % vertices, b as usize % vertices);
                if a != b {
                    *rows[a].entry(b as u32).or_insert(0) += weight;
                    *rows[b].entry(a as u32).or_insert(0) += weight;
                }
            }
            let graph = Graph::new(rows.into_iter().map(|row| row.into_iter().collect()));
            let left = (vertices as f64 * share) as usize;
            let is_left = bisect(&graph, left);
            prop_assert_eq!(is_left.iter().filter(|is_left| **is_left).count(), left);
        }
    }
}
