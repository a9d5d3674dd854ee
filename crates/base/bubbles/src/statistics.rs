//! Statistics of bubbles, gathered from their threads upwards.

use std::collections::BTreeMap;

use crate::machine::PlaceId;

/// Sums over a bubble or thread and all inside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Threads that have not ended.
    pub threads: usize,
    /// Threads that could run.
    pub ready: usize,
    /// Threads that run.
    pub running: usize,
    /// Threads that wait for something.
    pub blocked: usize,
    /// Threads that have ended.
    pub ended: usize,
    /// Bubbles inside it that have not ended.
    pub bubbles: usize,
    /// Work that is left, in nanoseconds.
    pub work_left: u64,
    /// Bytes of memory that it uses, by the NUMA node of their pages. Memory that several threads
    /// use counts for each.
    pub bytes: BTreeMap<PlaceId, u64>,
    /// Bytes of memory that nobody has touched yet.
    pub untouched: u64,
    /// The program's own measures, by name.
    pub measures: BTreeMap<String, f64>,
}

impl Statistics {
    /// Adds those of a part.
    pub fn add(&mut self, part: &Self) {
        self.threads += part.threads;
        self.ready += part.ready;
        self.running += part.running;
        self.blocked += part.blocked;
        self.ended += part.ended;
        self.bubbles += part.bubbles;
        self.work_left = self.work_left.saturating_add(part.work_left);
        self.untouched = self.untouched.saturating_add(part.untouched);
        for (node, bytes) in &part.bytes {
            let sum = self.bytes.entry(*node).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        for (name, value) in &part.measures {
            *self.measures.entry(name.clone()).or_default() += value;
        }
    }

    /// The node that has most of the memory, with its bytes.
    pub fn main_node(&self) -> Option<(PlaceId, u64)> {
        let most = self.bytes.iter().rev().max_by_key(|(_, bytes)| **bytes);
        most.map(|(node, bytes)| (*node, *bytes))
    }
}
