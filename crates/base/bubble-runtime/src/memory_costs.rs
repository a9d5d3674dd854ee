//! Measuring what memory of each node costs threads of each node, and what moving pages costs.

use crate::limits::{COST_PASSES, COST_PROBE_BYTES, PAGE};
use crate::sys;
use garonne_bubbles::MemoryCosts;
use garonne_topology::CpuSet;
use std::time::Instant;

/// Time in ns that stands for what cannot be measured, such as a node without memory: nobody goes
/// there.
const NEVER: f64 = 1e12;

/// Measures a machine of so many nodes, some milliseconds for each pair.
pub(crate) fn measure(nodes: usize, cpus_of: impl Fn(usize) -> Option<CpuSet>) -> MemoryCosts {
    let mut costs = MemoryCosts::regular(nodes, NEVER, NEVER);
    costs.move_kib = NEVER;
    for node in 0..nodes {
        let Some(cpus) = cpus_of(node) else {
            continue;
        };
        let row = &mut costs.access[node];
        let move_kib = std::thread::scope(|scope| {
            let probe = scope.spawn(|| {
                // The thread ends with the probe, and with it what it is bound to.
                let is_there = sys::bind_caller(&cpus).is_ok();
                is_there.then(|| probe(row))
            });
            probe.join().ok().flatten()
        });
        costs.move_kib = move_kib.unwrap_or(NEVER).min(costs.move_kib);
    }
    let near = (0..nodes).map(|node| costs.access[node][node]);
    let near = near.fold(NEVER, f64::min);
    // What a thread leaves in the caches of its old node.
    costs.thread_move = near * 1024.0;
    costs.move_call = costs.move_kib * PAGE as f64 / 1024.0;
    costs
}

/// Fills in what memory of each node costs the caller. Returns what moving a KiB costs.
fn probe(row: &mut [f64]) -> f64 {
    let words: Vec<u64> = (0..COST_PROBE_BYTES as u64 / 8).collect();
    let first = (words.as_ptr() as usize).next_multiple_of(PAGE);
    let end = (words.as_ptr() as usize + COST_PROBE_BYTES) & !(PAGE - 1);
    let pages: Vec<usize> = (first..end).step_by(PAGE).collect();
    let kib = COST_PROBE_BYTES as f64 / 1024.0;
    let mut moved = NEVER;
    for (node, cost) in row.iter_mut().enumerate() {
        let begin = Instant::now();
        if sys::move_pages(&pages, node).is_ok() {
            let time = begin.elapsed().as_nanos() as f64 / kib;
            // Pages that were there did not move.
            moved = if node == 0 { moved } else { moved.min(time) };
            *cost = (0..COST_PASSES)
                .map(|_| pass(&words) / kib)
                .fold(NEVER, f64::min);
        }
    }
    moved
}

/// Time in ns of one pass.
fn pass(words: &[u64]) -> f64 {
    let begin = Instant::now();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    std::hint::black_box(sum);
    begin.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_memory_has_a_cost_and_absent_nodes_are_never_gone_to() {
        let costs = measure(2, |node| (node == 0).then(garonne_topology::allowed));
        let near = costs.access[0][0];
        assert!(near > 0.0 && near < NEVER, "{near}");
        assert_eq!(costs.access[1], [NEVER, NEVER]);
        assert!(costs.thread_move > 0.0 && costs.move_kib > 0.0);
    }
}
