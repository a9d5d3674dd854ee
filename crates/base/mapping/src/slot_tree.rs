//! The machine as process mapping sees it: a tree whose leaves are slots for one rank each.

use thiserror::Error;

/// Reason why a tree is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TreeError {
    /// No slot at all.
    #[error("a machine without slots has no room for ranks")]
    Empty,
    /// Paths of slots have different lengths, or not as many parts as there are costs.
    #[error("slot {slot} has a place of {parts} parts where the tree has {levels} levels")]
    Uneven {
        /// Number of the slot.
        slot: usize,
        /// Parts of its path.
        parts: usize,
        /// Levels of the tree.
        levels: usize,
    },
    /// Costs fall towards the root.
    #[error("level {level} costs {cost}, less than {below} of the level below it")]
    Costs {
        /// Level, counted from the root.
        level: usize,
        /// Cost of that level.
        cost: u64,
        /// Cost of the level below.
        below: u64,
    },
    /// More slots than ranks can be counted.
    #[error("{0} slots are more than this mapping can hold (4,294,967,295)")]
    TooMany(usize),
}

/// A place of the machine with the slots below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Places directly below, in the order of their slots; empty: the slots are directly below.
    pub children: Vec<usize>,
    /// First of the slots below.
    pub first: u32,
    /// Number of slots below.
    pub slots: u32,
}

/// Slots of a machine, and what traffic between two of them costs.
///
/// Made once from the paths of all slots and read only afterwards. Costs belong to levels: level 0
/// is the root, and traffic between two slots costs what the deepest level of a place costs that
/// has both below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotTree {
    places: Vec<Place>,
    /// Cost of each level, from the root on.
    costs: Vec<u64>,
    /// Path of each slot: the number of its place on each level, `costs.len() - 1` a slot.
    paths: Vec<u32>,
    /// Slot of the tree's order -> index in the caller's list.
    order: Vec<u32>,
}

impl SlotTree {
    /// A tree from the path of each slot, root first: for instance (host, package, core), where
    /// numbers are compared among those of the same parent only. `costs` has one entry more than a
    /// path: of the root, then of the places that each part of a path names. Slots with the same
    /// whole path share the last place, at its cost.
    pub fn from_paths<P: AsRef<[u32]>>(paths: &[P], costs: &[u64]) -> Result<Self, TreeError> {
        let levels = costs.len().saturating_sub(1);
        if paths.is_empty() || costs.is_empty() {
            return Err(TreeError::Empty);
        }
        u32::try_from(paths.len()).map_err(|_| TreeError::TooMany(paths.len()))?;
        if let Some(level) = (0..levels).find(|level| costs[*level] < costs[level + 1]) {
            return Err(TreeError::Costs {
                level,
                cost: costs[level],
                below: costs[level + 1],
            });
        }
        let uneven = |(_, path): &(usize, &P)| path.as_ref().len() != levels;
        if let Some((slot, path)) = paths.iter().enumerate().find(uneven) {
            let parts = path.as_ref().len();
            return Err(TreeError::Uneven {
                slot,
                parts,
                levels,
            });
        }
        let mut order: Vec<u32> = (0..paths.len() as u32).collect();
        order.sort_by(|a, b| {
            let path = |slot: &u32| paths[*slot as usize].as_ref();
            path(a).cmp(path(b)).then(a.cmp(b))
        });
        let mut tree = Self {
            places: Vec::new(),
            costs: costs.to_vec(),
            paths: vec![0; paths.len() * levels],
            order,
        };
        let sorted: Vec<&[u32]> = tree
            .order
            .iter()
            .map(|slot| paths[*slot as usize].as_ref())
            .collect();
        let mut places = Vec::new();
        build(&sorted, 0, 0, levels, &mut places, &mut tree.paths);
        tree.places = places;
        Ok(tree)
    }

    /// A regular machine: `arities` children per place, from the root down; the last level has the
    /// slots. One cost per arity.
    pub fn regular(arities: &[u32], costs: &[u64]) -> Result<Self, TreeError> {
        let slots = arities.iter().map(|arity| *arity as usize).product();
        let mut paths = vec![Vec::with_capacity(arities.len()); slots];
        for (slot, path) in paths.iter_mut().enumerate() {
            let mut below = slots;
            let mut rest = slot;
            for arity in &arities[..arities.len().saturating_sub(1)] {
                below /= *arity as usize;
                path.push((rest / below) as u32);
                rest %= below;
            }
        }
        Self::from_paths(&paths, costs)
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.order.len()
    }

    /// Index, in the list that the tree was made from, of the `position`th slot in tree order.
    pub fn listed(&self, position: u32) -> u32 {
        self.order[position as usize]
    }

    /// Positions in tree order of the slots in the order of the list.
    pub fn positions(&self) -> Vec<u32> {
        let mut positions = vec![0; self.order.len()];
        for (position, listed) in self.order.iter().enumerate() {
            positions[*listed as usize] = position as u32;
        }
        positions
    }

    /// Cost of a unit of traffic between two slots, by their positions.
    pub fn distance(&self, a: u32, b: u32) -> u64 {
        if a == b {
            return 0;
        }
        let levels = self.costs.len() - 1;
        let path = |slot: u32| &self.paths[slot as usize * levels..][..levels];
        let same = path(a).iter().zip(path(b)).take_while(|(a, b)| a == b);
        self.costs[same.count()]
    }

    pub(crate) fn place(&self, index: usize) -> &Place {
        &self.places[index]
    }
}

/// Index of the root among the places.
pub(crate) const ROOT: usize = 0;

/// Adds the place that has these slots below it, and all places below; returns its index.
fn build(
    slots: &[&[u32]],
    first: u32,
    level: usize,
    levels: usize,
    places: &mut Vec<Place>,
    paths: &mut [u32],
) -> usize {
    let index = places.len();
    places.push(Place {
        children: Vec::new(),
        first,
        slots: slots.len() as u32,
    });
    if level == levels {
        return index;
    }
    let mut at = 0;
    while at < slots.len() {
        let part = slots[at][level];
        let many = slots[at..]
            .iter()
            .take_while(|path| path[level] == part)
            .count();
        let start = first + at as u32;
        let child = build(
            &slots[at..at + many],
            start,
            level + 1,
            levels,
            places,
            paths,
        );
        for slot in start as usize..start as usize + many {
            paths[slot * levels + level] = child as u32;
        }
        places[index].children.push(child);
        at += many;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_the_cost_of_the_deepest_place_that_has_both() {
        let tree = SlotTree::regular(&[2, 2, 2], &[100, 10, 1]).unwrap();
        assert_eq!(tree.slots(), 8);
        let row: Vec<u64> = (0..8).map(|slot| tree.distance(0, slot)).collect();
        assert_eq!(row, [0, 1, 10, 10, 100, 100, 100, 100]);
        assert_eq!(tree.distance(5, 4), 1);
    }

    #[test]
    fn slots_of_any_order_and_unequal_hosts_are_one_tree() {
        let hosts = [[7], [3], [7], [7], [3]];
        let tree = SlotTree::from_paths(&hosts, &[5, 1]).unwrap();
        let listed: Vec<u32> = (0..5).map(|position| tree.listed(position)).collect();
        assert_eq!(listed, [1, 4, 0, 2, 3]);
        assert_eq!(tree.positions(), [2, 0, 3, 4, 1]);
        assert_eq!(tree.distance(0, 1), 1);
        assert_eq!(tree.distance(1, 2), 5);
        assert_eq!(tree.place(ROOT).children.len(), 2);
    }

    #[test]
    fn bad_trees_are_refused_with_the_reason() {
        let none: [[u32; 1]; 0] = [];
        assert_eq!(SlotTree::from_paths(&none, &[1, 1]), Err(TreeError::Empty));
        let falling = SlotTree::from_paths(&[[0], [1]], &[1, 2]);
        assert!(matches!(falling, Err(TreeError::Costs { level: 0, .. })));
        let uneven = SlotTree::from_paths(&[vec![0, 1], vec![1]], &[3, 2, 1]);
        assert!(matches!(uneven, Err(TreeError::Uneven { slot: 1, .. })));
    }
}
