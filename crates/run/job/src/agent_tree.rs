//! Which agent reports to which: a tree over the nodes of a job, a pure function of their number.
//!
//! Node 0, the launcher's, is the root. Nodes are numbered level by level, so that parent, children
//! and the way to any node follow from numbers alone, and nobody has to be told them. Hosts that
//! have joined with a key are the last nodes, and all report to the root: nobody knows whom else
//! they reach.

use crate::codes;
use crate::error::{Error, Result};
use crate::limits::{FAN_OUT, FAN_OUT_MAX};

/// How many agents report to one, where it is not to be [`FAN_OUT`].
pub const ENV_FAN_OUT: &str = "GARONNE_FAN_OUT";

/// Value of `ENV_DEADLOCK`.
///
/// # Errors
/// It is no such number.
pub fn fan_out_from_environment() -> Result<u32> {
    match std::env::var(ENV_FAN_OUT).as_deref().map(str::trim) {
        Err(_) | Ok("") => Ok(FAN_OUT),
        Ok(said) => said
            .parse()
            .ok()
            .filter(|fan_out| (2..=FAN_OUT_MAX).contains(fan_out))
            .ok_or_else(|| {
                let text =
                    format!("{ENV_FAN_OUT}={said:?}; there are: numbers from 2 to {FAN_OUT_MAX}");
                Error::misuse(codes::G0225, text)
            }),
    }
}

/// The tree of agents over the nodes of a job. Node 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentTree {
    nodes: u32,
    guests: u32,
    fan_out: u32,
}

impl AgentTree {
    /// Over so many nodes, of which the last `guests` have joined.
    pub fn new(nodes: u32, guests: u32, fan_out: u32) -> Self {
        let nodes = nodes.max(1);
        Self {
            nodes,
            guests: guests.min(nodes - 1),
            fan_out: fan_out.max(1),
        }
    }

    /// Returns how many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns how many may report to one.
    pub fn fan_out(&self) -> u32 {
        self.fan_out
    }

    /// The first node that has joined.
    fn first_joined(&self) -> u32 {
        self.nodes - self.guests
    }

    /// Returns the parent of a node. The root has none.
    pub fn parent(&self, node: u32) -> Option<u32> {
        match node {
            0 => None,
            node if node >= self.first_joined() => Some(0),
            node => Some((node - 1) / self.fan_out),
        }
    }

    /// Returns the children of a node, in order; only nodes that are started.
    pub fn children(&self, node: u32) -> std::ops::Range<u32> {
        let end = self.first_joined();
        if node >= end {
            return 0..0;
        }
        let first = u64::from(node) * u64::from(self.fan_out) + 1;
        let behind = (first + u64::from(self.fan_out)).min(end.into());
        let first = first.min(behind);
        first as u32..behind as u32
    }

    /// Returns whether somebody reports to a node.
    pub fn has_children(&self, node: u32) -> bool {
        !self.children(node).is_empty() || (node == 0 && self.guests > 0)
    }

    /// Returns the child of `node` that leads to `to`, if any does.
    pub fn next_hop(&self, node: u32, to: u32) -> Option<u32> {
        let mut at = to;
        if to >= self.nodes {
            return None;
        }
        loop {
            match self.parent(at)? {
                parent if parent == node => return Some(at),
                parent => at = parent,
            }
        }
    }

    /// Returns whether `other` is `node` itself or reports to it, if through others.
    pub fn is_below(&self, node: u32, other: u32) -> bool {
        node == other || self.next_hop(node, other).is_some()
    }

    /// Returns how many nodes there are at and below a node.
    pub fn count(&self, node: u32) -> u32 {
        if node == 0 {
            return self.nodes;
        }
        let (mut first, mut last, mut count) = (u64::from(node), u64::from(node), 0);
        let (fan_out, end) = (u64::from(self.fan_out), u64::from(self.first_joined()));
        if first >= end {
            return 1;
        }
        while first < end {
            count += last.min(end - 1) - first + 1;
            (first, last) = (first * fan_out + 1, last * fan_out + fan_out);
        }
        count as u32
    }

    /// Returns how many steps a node is from the root.
    pub fn depth(&self, node: u32) -> u32 {
        std::iter::successors(self.parent(node), |above| self.parent(*above)).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_few_hosts_all_report_to_the_first_and_many_in_levels() {
        let few = AgentTree::new(33, 0, FAN_OUT);
        assert_eq!((few.children(0), few.has_children(1)), (1..33, false));
        let more = AgentTree::new(34, 0, FAN_OUT);
        assert_eq!(
            (more.parent(33), more.children(1), more.count(1)),
            (Some(1), 33..34, 2)
        );
        let many = AgentTree::new(16_384, 0, FAN_OUT);
        assert_eq!((many.depth(16_383), many.children(0)), (3, 1..33));
    }

    #[test]
    fn hosts_that_have_joined_report_to_the_first() {
        let tree = AgentTree::new(10, 4, 2);
        assert_eq!(tree.children(0), 1..3);
        assert_eq!(tree.children(2), 5..6);
        for guest in 6..10 {
            assert_eq!(
                (
                    tree.parent(guest),
                    tree.has_children(guest),
                    tree.count(guest)
                ),
                (Some(0), false, 1)
            );
            assert_eq!(tree.next_hop(0, guest), Some(guest));
        }
        assert_eq!(tree.next_hop(0, 10), None);
    }

    proptest! {
        #[test]
        fn parents_and_children_agree_and_every_way_leads_there(nodes in 1u32..400, guests in 0u32..20, fan_out in 2u32..9) {
            let tree = AgentTree::new(nodes, guests, fan_out);
            let mut reports = 0;
            for node in 0..nodes {
                for child in tree.children(node) {
                    prop_assert_eq!(tree.parent(child), Some(node));
                    reports += 1;
                }
                let below = (0..nodes).filter(|other| tree.is_below(node, *other)).count();
                prop_assert_eq!(tree.count(node) as usize, below);
                let (mut at, mut steps) = (0, 0);
                while at != node {
                    at = tree.next_hop(at, node).expect("a way");
                    steps += 1;
                }
                prop_assert_eq!(steps, tree.depth(node));
            }
            prop_assert_eq!(reports + guests.min(nodes - 1), nodes - 1);
        }
    }
}
