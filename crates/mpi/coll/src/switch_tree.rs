//! Which nodes share a switch, and how data go from switch to switch: known alike on all ranks.
//!
//! Groups of nodes form a tree. Data that are handed on along it cross each link between switches
//! once in each direction. The launcher makes it from the graph of the network.

/// Groups of nodes, as a tree. It takes one number for each node and each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchTree {
    group_of: Vec<u32>,
    above: Vec<Option<u32>>,
}

impl SwitchTree {
    /// A tree from the group of each node and the group above each group. `None`: it is no tree, or
    /// has but one group.
    pub fn new(group_of: Vec<u32>, above: Vec<Option<u32>>) -> Option<Self> {
        let groups = above.len() as u32;
        let mut used = vec![false; above.len()];
        for group in &group_of {
            *used.get_mut(*group as usize)? = true;
        }
        let roots = above.iter().filter(|above| above.is_none()).count();
        let within = above.iter().flatten().all(|above| *above < groups);
        if groups < 2 || roots != 1 || !within || used.contains(&false) {
            return None;
        }
        let tree = Self { group_of, above };
        // With one root and no ring, every way up ends there.
        let ends =
            |group: u32| tree.upwards(group).take(above_max(groups)).count() <= groups as usize;
        (0..groups).all(ends).then_some(tree)
    }

    /// The tree among some nodes, in their order: nodes of another communicator. `None`: they make
    /// no difference, since they share a group or none of them does.
    pub fn restricted(&self, nodes: &[u32]) -> Option<Self> {
        let mut number = vec![None; self.above.len()];
        let mut groups: Vec<u32> = Vec::new();
        let mut group_of = Vec::with_capacity(nodes.len());
        for node in nodes {
            let group = *self.group_of.get(*node as usize)?;
            let place = number[group as usize].get_or_insert_with(|| {
                groups.push(group);
                groups.len() as u32 - 1
            });
            group_of.push(*place);
        }
        if groups.len() == nodes.len() {
            return None;
        }
        // The nearest group above that is there. Groups whose way up leads past all of them become
        // a chain below the first such group.
        let mut last = None;
        let mut above = Vec::with_capacity(groups.len());
        for (place, group) in groups.iter().enumerate() {
            let mut ways = self.upwards(*group).skip(1);
            let near = ways.find_map(|upper| number[upper as usize]);
            above.push(near.or(last));
            if near.is_none() {
                last = Some(place as u32);
            }
        }
        Self::new(group_of, above)
    }

    /// Number of groups.
    pub fn groups(&self) -> u32 {
        self.above.len() as u32
    }

    /// The group of a node; of one that is not known the first.
    pub fn group(&self, node: u32) -> u32 {
        self.group_of.get(node as usize).copied().unwrap_or(0)
    }

    /// The nodes of a group, in order.
    pub fn nodes(&self, group: u32) -> Vec<u32> {
        let all = (0..).zip(&self.group_of);
        all.filter(|(_, of)| **of == group)
            .map(|(node, _)| node)
            .collect()
    }

    /// The group at the root of the tree.
    pub fn root(&self) -> u32 {
        let root = self.above.iter().position(Option::is_none);
        root.unwrap_or(0) as u32
    }

    /// The groups beside a group in the tree when `root` is its root: the one towards the root, and
    /// the others.
    pub fn beside(&self, group: u32, root: u32) -> (Option<u32>, Vec<u32>) {
        // The way from the old root to the new one is turned round.
        let mut turned = None;
        let mut below = None;
        for upper in self.upwards(root) {
            if upper == group {
                turned = Some(below);
                break;
            }
            below = Some(upper);
        }
        let children =
            (0..self.groups()).filter(|other| self.above[*other as usize] == Some(group));
        let mut others: Vec<u32> = children.chain(self.above[group as usize]).collect();
        let towards = match turned {
            Some(below) => below,
            None => self.above[group as usize],
        };
        others.retain(|other| Some(*other) != towards);
        (towards, others)
    }

    /// A group and those above it.
    fn upwards(&self, group: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(group), |group| self.above[*group as usize])
    }
}

/// More steps than any way up can have.
fn above_max(groups: u32) -> usize {
    groups as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn star() -> SwitchTree {
        let above = vec![None, Some(0), Some(0), Some(0)];
        SwitchTree::new(vec![0, 0, 1, 1, 2, 2, 3, 3], above).unwrap()
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        assert_eq!(SwitchTree::new(vec![0, 0], vec![None]), None);
        assert_eq!(SwitchTree::new(vec![0, 1], vec![None, None]), None);
        assert_eq!(SwitchTree::new(vec![0, 2], vec![None, Some(0)]), None);
        assert_eq!(SwitchTree::new(vec![0, 0], vec![None, Some(0)]), None);
        assert_eq!(SwitchTree::new(vec![0, 1], vec![None, Some(9)]), None);
        let ring = vec![None, Some(2), Some(1)];
        assert_eq!(SwitchTree::new(vec![0, 1, 2], ring), None);
    }

    #[test]
    fn neighbours_depend_on_where_the_root_is() {
        let star = star();
        assert_eq!(star.beside(0, 0), (None, vec![1, 2, 3]));
        assert_eq!(star.beside(0, 2), (Some(2), vec![1, 3]));
        assert_eq!(star.beside(2, 2), (None, vec![0]));
        assert_eq!(star.beside(1, 2), (Some(0), vec![]));
        let chain = SwitchTree::new(vec![0, 1, 2], vec![None, Some(0), Some(1)]).unwrap();
        assert_eq!(chain.beside(1, 2), (Some(2), vec![0]));
        assert_eq!(chain.beside(0, 2), (Some(1), vec![]));
    }

    #[test]
    fn fewer_nodes_have_the_same_tree_without_the_others() {
        let star = star();
        let same = star.restricted(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(same, Some(star.clone()));
        // Without the group in the middle the others are a chain.
        let leaves = star.restricted(&[2, 3, 4, 5, 6]).unwrap();
        assert_eq!(leaves.above, [None, Some(0), Some(1)]);
        assert_eq!(star.restricted(&[2, 3]), None);
        assert_eq!(star.restricted(&[0, 2, 4, 6]), None);
        assert_eq!(star.restricted(&[0, 99]), None);
    }
}
