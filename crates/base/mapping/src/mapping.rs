//! Mapping of ranks to slots: the tree is descended, and each place's ranks are cut among its
//! children.

use crate::bisection::{self, Graph};
use crate::slot_tree::{ROOT, SlotTree};
use crate::traffic::Traffic;

/// Children of a place up to which all pairs of them exchange ranks after the cut.
const PAIRED_CHILDREN: usize = 32;
/// Times that all pairs do so, at most.
const ROUNDS: usize = 3;

/// Slot of each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// For each rank the index of its slot in the list that the tree was made from. No slot occurs
    /// twice.
    pub slots: Vec<u32>,
    /// Cost of the mapping.
    pub cost: u128,
    /// Cost of the mapping in which rank `r` has the `r`th slot.
    pub identity_cost: u128,
}

/// Cost of a mapping: traffic of each pair of ranks times the distance of their slots, each pair
/// counted once. `slots` are indices in the list that the tree was made from.
pub fn cost(traffic: &Traffic, tree: &SlotTree, slots: &[u32]) -> u128 {
    let positions = tree.positions();
    let position = |rank: u32| positions[slots[rank as usize] as usize];
    let of_rank = |rank: u32| {
        let partners = traffic.partners(rank).iter();
        let later = partners.filter(|(other, _)| *other > rank);
        later
            .map(|(other, weight)| {
                u128::from(weight.unsigned_abs())
                    * u128::from(tree.distance(position(rank), position(*other)))
            })
            .sum::<u128>()
    };
    (0..traffic.ranks()).map(of_rank).sum()
}

/// Maps ranks to slots. Costs at most what the identity costs. `None` if there are fewer slots than
/// ranks.
pub fn map(traffic: &Traffic, tree: &SlotTree) -> Option<Mapping> {
    let ranks = traffic.ranks() as usize;
    if ranks > tree.slots() {
        return None;
    }
    let identity: Vec<u32> = (0..traffic.ranks()).collect();
    let identity_cost = cost(traffic, tree, &identity);
    // Slots that stay empty are held by vertices without traffic.
    let everyone: Vec<u32> = (0..tree.slots() as u32).collect();
    let mut slots = vec![0; tree.slots()];
    Descent { traffic, tree }.assign(ROOT, &everyone, &mut slots);
    slots.truncate(ranks);
    let found = cost(traffic, tree, &slots);
    Some(if found < identity_cost {
        Mapping {
            slots,
            cost: found,
            identity_cost,
        }
    } else {
        Mapping {
            slots: identity,
            cost: identity_cost,
            identity_cost,
        }
    })
}

struct Descent<'a> {
    traffic: &'a Traffic,
    tree: &'a SlotTree,
}

impl Descent<'_> {
    /// Gives each of `ranks` (sorted, as many as the place has slots) a slot below the place.
    fn assign(&self, place: usize, ranks: &[u32], slots: &mut [u32]) {
        let place = self.tree.place(place);
        if place.children.is_empty() {
            for (rank, position) in ranks.iter().zip(place.first..) {
                slots[*rank as usize] = self.tree.listed(position);
            }
            return;
        }
        let sizes: Vec<usize> = place
            .children
            .iter()
            .map(|child| self.tree.place(*child).slots as usize)
            .collect();
        let mut parts = Vec::with_capacity(sizes.len());
        self.cut(ranks.to_vec(), &sizes, &mut parts);
        if (3..=PAIRED_CHILDREN).contains(&parts.len()) {
            self.exchange(&mut parts);
        }
        for (child, part) in place.children.iter().zip(&parts) {
            self.assign(*child, part, slots);
        }
    }

    /// Cuts ranks into parts of these sizes, by halving the list of parts.
    fn cut(&self, ranks: Vec<u32>, sizes: &[usize], parts: &mut Vec<Vec<u32>>) {
        if sizes.len() == 1 {
            parts.push(ranks);
            return;
        }
        let (first, second) = sizes.split_at(sizes.len() / 2);
        let is_left = bisection::bisect(&self.graph(&ranks), first.iter().sum());
        let (left, right) = part_by(&ranks, &is_left);
        self.cut(left, first, parts);
        self.cut(right, second, parts);
    }

    /// Lets pairs of parts exchange ranks, since halving sees two sides at a time only.
    fn exchange(&self, parts: &mut [Vec<u32>]) {
        for _ in 0..ROUNDS {
            let mut changed = false;
            for a in 0..parts.len() {
                for b in a + 1..parts.len() {
                    let mut both = [parts[a].as_slice(), parts[b].as_slice()].concat();
                    both.sort_unstable();
                    let mut is_left: Vec<bool> = both
                        .iter()
                        .map(|rank| parts[a].binary_search(rank).is_ok())
                        .collect();
                    let before = is_left.clone();
                    bisection::improve(&self.graph(&both), &mut is_left);
                    if is_left != before {
                        (parts[a], parts[b]) = part_by(&both, &is_left);
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// The traffic among these ranks (sorted) as a graph of their indices.
    fn graph(&self, ranks: &[u32]) -> Graph {
        Graph::new(ranks.iter().map(|rank| {
            if *rank >= self.traffic.ranks() {
                return Vec::new();
            }
            let partners = self.traffic.partners(*rank).iter();
            let inside = partners.filter_map(|(other, weight)| {
                let index = ranks.binary_search(other).ok()?;
                Some((index as u32, *weight))
            });
            inside.collect()
        }))
    }
}

fn part_by(ranks: &[u32], is_left: &[bool]) -> (Vec<u32>, Vec<u32>) {
    let pairs = ranks.iter().zip(is_left);
    let (left, right): (Vec<_>, Vec<_>) = pairs.partition(|(_, is_left)| **is_left);
    let ranks = |pairs: Vec<(&u32, &bool)>| pairs.into_iter().map(|(rank, _)| *rank).collect();
    (ranks(left), ranks(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Five-point stencil on a torus, each with its right and lower neighbour.
    fn torus(width: u32, height: u32) -> Traffic {
        let entries = (0..width * height).flat_map(|at| {
            let (x, y) = (at % width, at / width);
            let right = y * width + (x + 1) % width;
            let below = (y + 1) % height * width + x;
            [(at, right, 8), (at, below, 8)]
        });
        Traffic::new(width * height, entries).unwrap()
    }

    #[test]
    fn a_ring_that_was_dealt_out_over_hosts_is_brought_together() {
        // Rank r lives on host r mod 4, as with `--map-by node`.
        let hosts: Vec<[u32; 1]> = (0..32).map(|rank| [rank % 4]).collect();
        let tree = SlotTree::from_paths(&hosts, &[10, 1]).unwrap();
        let ring = Traffic::new(32, (0..32).map(|rank| (rank, (rank + 1) % 32, 1))).unwrap();
        let mapping = map(&ring, &tree).unwrap();
        assert_eq!(mapping.identity_cost, 320);
        assert_eq!(mapping.cost, 4 * 10 + 28);
    }

    #[test]
    fn a_torus_is_cut_into_squares() {
        let tree = SlotTree::regular(&[4, 16], &[100, 1]).unwrap();
        let mapping = map(&torus(8, 8), &tree).unwrap();
        // Four squares of 4 x 4: 32 of the 128 edges leave their square.
        assert_eq!(mapping.cost, 8 * (32 * 100 + 96));
    }

    #[test]
    fn unequal_hosts_are_filled_exactly() {
        // A chain of 24 ranks that were dealt out over hosts with 10, 4 and 10 slots: two cuts.
        let hosts: Vec<[u32; 1]> = (0..24)
            .map(|slot| [[0, 2, 1, 0, 2, 0, 2, 1, 0, 2, 0, 2][slot % 12]])
            .collect();
        let slots_of = |host| hosts.iter().filter(|path| path[0] == host).count();
        assert_eq!([0, 1, 2].map(slots_of), [10, 4, 10]);
        let tree = SlotTree::from_paths(&hosts, &[10, 1]).unwrap();
        let chain = Traffic::new(24, (1..24).map(|rank| (rank - 1, rank, 3))).unwrap();
        assert_eq!(map(&chain, &tree).unwrap().cost, 3 * (2 * 10 + 21));
    }

    #[test]
    fn fewer_slots_than_ranks_have_no_mapping() {
        let tree = SlotTree::regular(&[2, 2], &[2, 1]).unwrap();
        assert_eq!(map(&torus(5, 1), &tree), None);
    }

    #[test]
    fn no_ranks_and_no_traffic_are_mapped_as_they_are() {
        let tree = SlotTree::regular(&[2, 2], &[2, 1]).unwrap();
        let nobody = Traffic::new(0, []).unwrap();
        assert_eq!(map(&nobody, &tree).unwrap().slots, Vec::<u32>::new());
        let silent = Traffic::new(3, []).unwrap();
        assert_eq!(map(&silent, &tree).unwrap().slots, [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_mapping_is_a_permutation_and_never_dearer_than_the_identity(
            hosts in proptest::collection::vec(1_usize..9, 1..6),
            spare in 0_u32..5,
            entries in proptest::collection::vec((0_u32..60, 0_u32..60, 0_u64..1 << 50), 0..200),
            seed in any::<u64>(),
        ) {
            let mut paths: Vec<[u32; 2]> = (0..).zip(&hosts)
                .flat_map(|(host, slots)| (0..*slots as u32).map(move |slot| [host, slot / 3]))
                .collect();
            // Slots come in any order.
            let turn = seed as usize % paths.len();
            paths.rotate_left(turn);
            let tree = SlotTree::from_paths(&paths, &[50, 7, 1]).unwrap();
            let ranks = (paths.len() as u32).saturating_sub(spare);
            let entries = entries.into_iter().filter(|(a, b, _)| a.max(b) < &ranks);
            let traffic = Traffic::new(ranks, entries).unwrap();
            let mapping = map(&traffic, &tree).unwrap();
            let mut seen = vec![false; paths.len()];
            for slot in &mapping.slots {
                prop_assert!(!std::mem::replace(&mut seen[*slot as usize], true));
            }
            prop_assert_eq!(mapping.slots.len(), ranks as usize);
            prop_assert!(mapping.cost <= mapping.identity_cost);
            prop_assert_eq!(mapping.cost, cost(&traffic, &tree, &mapping.slots));
        }
    }
}
