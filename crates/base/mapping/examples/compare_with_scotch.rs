//! Costs of this crate's mappings beside Scotch's (`scotch_gmap`), for twenty graphs on each of
//! four machines: rings, grids, tori, stencils, random graphs, hidden communities, butterflies,
//! trees. Argument: a folder for files.
//!
//! Prints a line per graph, and ends with exit code 1 if the median ratio of costs is above 1.03.
//! Times are printed as information.

use garonne_mapping::{SlotTree, Traffic, cost, map};
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Xorshift: the same graphs on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(limit)) as u32
    }

    fn permutation(&mut self, len: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..len).collect();
        for at in (1..len).rev() {
            all.swap(at as usize, self.below(at + 1) as usize);
        }
        all
    }
}

type Edges = Vec<(u32, u32, u64)>;

/// Edges of a grid of two dimensions, closed to a torus or not.
fn grid(width: u32, height: u32, is_closed: bool) -> Edges {
    let mut edges = Edges::new();
    for y in 0..height {
        for x in 0..width {
            let here = y * width + x;
            if is_closed || x + 1 < width {
                edges.push((here, y * width + (x + 1) % width, 8));
            }
            if is_closed || y + 1 < height {
                edges.push((here, (y + 1) % height * width + x, 8));
            }
        }
    }
    edges
}

/// Edges of a stencil of three dimensions, with diagonals in planes or without.
fn stencil(side: u32, depth: u32, has_diagonals: bool) -> Edges {
    let at = |x: u32, y: u32, z: u32| (z * side + y) * side + x;
    let mut edges = Edges::new();
    for z in 0..depth {
        for y in 0..side {
            for x in 0..side {
                let mut tie = |condition: bool, other: u32, weight: u64| {
                    if condition {
                        edges.push((at(x, y, z), other, weight));
                    }
                };
                tie(x + 1 < side, at(x + 1, y, z), 64);
                tie(y + 1 < side, at(x, y + 1, z), 64);
                tie(z + 1 < depth, at(x, y, z + 1), 64);
                let is_inside = x + 1 < side && y + 1 < side;
                tie(has_diagonals && is_inside, at(x + 1, y + 1, z), 8);
            }
        }
    }
    edges
}

fn communities(ranks: u32, random: &mut Random) -> Edges {
    let mut edges = Edges::new();
    for rank in 0..ranks {
        for step in 1..6 {
            let other = rank / 16 * 16 + (rank + step) % 16;
            edges.push((rank, other.min(ranks - 1), 100));
        }
        edges.push((rank, random.below(ranks), 5));
    }
    edges
}

fn butterfly(ranks: u32) -> Edges {
    let distances = (0..ranks.ilog2()).map(|bit| 1 << bit);
    let of_distance = |distance: u32| {
        let pairs = (0..ranks).map(move |rank| (rank, rank ^ distance));
        pairs
            .filter(move |(_, other)| *other < ranks)
            .map(move |(rank, other)| (rank, other, u64::from(ranks / distance)))
    };
    distances.flat_map(of_distance).collect()
}

/// The `number`th of ten kinds of graphs.
fn graph(number: u32, ranks: u32) -> Edges {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (u64::from(number) << 32 | u64::from(ranks)));
    let side = |dimensions: f64| (f64::from(ranks).powf(1.0 / dimensions).round() as u32).max(1);
    let (flat, deep) = (side(2.0), side(3.0));
    let (height, depth) = (ranks / flat, ranks / (deep * deep));
    match number % 10 {
        0 => (0..ranks)
            .map(|rank| (rank, (rank + 1) % ranks, 8))
            .collect(),
        1 => grid(flat, height, false),
        2 => grid(flat, height, true),
        3 => stencil(deep, depth, false),
        4 => stencil(deep, depth, true),
        5 => (0..4 * ranks)
            .map(|edge| {
                (
                    edge / 4,
                    random.below(ranks),
                    1 + u64::from(random.below(100)),
                )
            })
            .collect(),
        6 => {
            let edges = communities(ranks, &mut random);
            renamed(edges, &random.permutation(ranks))
        }
        7 => butterfly(ranks),
        8 => (1..ranks).map(|rank| (rank, (rank - 1) / 2, 16)).collect(),
        _ => renamed(grid(flat, height, true), &random.permutation(ranks)),
    }
}

fn renamed(edges: Edges, names: &[u32]) -> Edges {
    let name = |rank: u32| names[rank as usize];
    let edges = edges.into_iter();
    edges
        .map(|(a, b, weight)| (name(a), name(b), weight))
        .collect()
}

/// Traffic in the format of Scotch's graphs.
fn scotch_graph(traffic: &Traffic) -> String {
    let rows = (0..traffic.ranks()).map(|rank| traffic.partners(rank));
    let arcs: usize = rows.clone().map(<[_]>::len).sum();
    let mut text = format!("0\n{} {arcs}\n0 010\n", traffic.ranks());
    for row in rows {
        let _ = write!(text, "{}", row.len());
        for (other, weight) in row {
            let _ = write!(text, " {weight} {other}");
        }
        text.push('\n');
    }
    text
}

/// Slots that Scotch gives the ranks.
fn scotch_mapping(
    traffic: &Traffic,
    machine: &str,
    folder: &Path,
) -> Result<Vec<u32>, Box<dyn Error>> {
    let [graph, target, mapping] = ["g.grf", "g.tgt", "g.map"].map(|name| folder.join(name));
    std::fs::write(&graph, scotch_graph(traffic))?;
    std::fs::write(&target, machine)?;
    let mut command = Command::new("scotch_gmap");
    let status = command
        .args([&graph, &target, &mapping])
        .arg("-b0")
        .status()?;
    if !status.success() {
        return Err(format!("scotch_gmap: {status}").into());
    }
    let text = std::fs::read_to_string(&mapping)?;
    let mut slots = vec![0; traffic.ranks() as usize];
    for line in text.lines().skip(1) {
        let (rank, slot) = line
            .trim()
            .split_once('\t')
            .ok_or("a line of Scotch's mapping")?;
        slots[rank.trim().parse::<usize>()?] = slot.trim().parse()?;
    }
    Ok(slots)
}

const MACHINES: [(&[u32], &[u64]); 4] = [
    (&[4, 2, 8], &[20, 5, 1]),
    (&[16, 2, 4, 2], &[40, 10, 4, 1]),
    (&[8, 8], &[10, 1]),
    (&[32, 4, 32], &[30, 8, 1]),
];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("usage: compare_with_scotch FOLDER")?;
    let mut ratios = Vec::new();
    for (arities, costs) in MACHINES {
        let tree = SlotTree::regular(arities, costs)?;
        let mut machine = format!("tleaf {}", arities.len());
        for (arity, cost) in arities.iter().zip(costs) {
            let _ = write!(machine, " {arity} {cost}");
        }
        for number in 0..20 {
            let ranks = tree.slots() as u32;
            let traffic = Traffic::new(ranks, graph(number, ranks))?;
            let begun = Instant::now();
            let own = map(&traffic, &tree).ok_or("fewer slots than ranks")?.cost;
            let own_s = begun.elapsed().as_secs_f64();
            let begun = Instant::now();
            let slots = scotch_mapping(&traffic, &machine, Path::new(&folder))?;
            let scotch_s = begun.elapsed().as_secs_f64();
            let scotch = cost(&traffic, &tree, &slots);
            let ratio = own as f64 / scotch as f64;
            println!(
                "{machine}, graph {number}: cost {own}, Scotch {scotch}, ratio {ratio:.3}; {own_s:.3} s, Scotch {scotch_s:.3} s"
            );
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let (median, worst) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    println!("median ratio {median:.3}, worst {worst:.3}");
    if median > 1.03 {
        std::process::exit(1);
    }
    Ok(())
}
