//! Process mapping: which rank runs on which slot of a hierarchical machine, so that ranks that
//! send each other much are near each other.
//!
//! The problem is that of TreeMatch (Jeannot and Mercier): a traffic matrix, a tree whose leaves
//! are slots, and a cost for each inner node, paid for traffic between slots below different
//! children of that node. In a tree the children's problems are independent of each other, since
//! all slots outside are equally far. So the tree is descended from its root: [`bisection`] cuts
//! the ranks among the children of a node with little traffic across, and [`mapping`] exchanges
//! single ranks afterwards. Any number of ranks and unequal trees are allowed.
//!
//! Everything is a pure function and deterministic: each process that computes a mapping from the
//! same input gets the same one.

#![forbid(unsafe_code)]

mod bisection;
pub mod mapping;
pub mod slot_tree;
pub mod traffic;

pub use mapping::{Mapping, cost, map};
pub use slot_tree::{SlotTree, TreeError};
pub use traffic::{Traffic, TrafficError};
