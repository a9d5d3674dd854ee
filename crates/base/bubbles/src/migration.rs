//! Whether a thread goes to its memory, or pages to their thread: what costs least.
//!
//! A thread goes through areas of memory some number of times. Each pass costs more from far. Pages
//! that move cost once, so many passes pay for them and few do not. The costs are measured, so the
//! decision is a pure function of them.

/// What memory costs on a machine. Nodes are numbered from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryCosts {
    /// Time in ns to go through a KiB, by the node of the thread and the node of the memory.
    pub access: Vec<Vec<f64>>,
    /// Time in ns to move a KiB of pages to another node.
    pub move_kib: f64,
    /// Time in ns of a call that moves pages, however few.
    pub move_call: f64,
    /// Time in ns that a thread loses when it goes on at another node.
    pub thread_move: f64,
}

impl MemoryCosts {
    /// Costs of a machine whose nodes all have one distance from each other.
    pub fn regular(nodes: usize, near: f64, far: f64) -> Self {
        let of = |own: usize, other: usize| if own == other { near } else { far };
        let row = |own| (0..nodes).map(|other| of(own, other)).collect();
        Self {
            access: (0..nodes).map(row).collect(),
            move_kib: 0.0,
            move_call: 0.0,
            thread_move: 0.0,
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.access.len()
    }
}

/// What may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MayMove {
    /// The thread goes to its memory, which stays.
    Thread,
    /// Pages go to the thread, which stays.
    Pages,
    /// Either, or both.
    #[default]
    Both,
}

/// An area of memory that a thread uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryUse {
    /// Length of the area.
    pub bytes: u64,
    /// Node of its pages; `None`: nobody touched them, so they will be where the thread is.
    pub node: Option<usize>,
    /// How many times the thread goes through it.
    pub passes: u64,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationPlan {
    /// Node on which the thread goes on.
    pub node: usize,
    /// Areas whose pages go there, by their position.
    pub moved: Vec<usize>,
    /// Time in ns that moves and passes take by the costs.
    pub cost: f64,
}

/// What costs least for a thread that is on node `from` and uses these areas. Where two cost the
/// same, the thread stays, and pages do. A node that the costs do not have counts as 0.
pub fn plan(
    costs: &MemoryCosts,
    from: usize,
    uses: &[MemoryUse],
    may_move: MayMove,
) -> MigrationPlan {
    let from = if from < costs.nodes() { from } else { 0 };
    let others = (0..costs.nodes()).filter(|node| *node != from && may_move != MayMove::Pages);
    let here = plan_at(costs, from, from, uses, may_move);
    others.fold(here, |best, node| {
        let other = plan_at(costs, from, node, uses, may_move);
        if other.cost < best.cost { other } else { best }
    })
}

/// What costs least with the thread on `node`.
fn plan_at(
    costs: &MemoryCosts,
    from: usize,
    node: usize,
    uses: &[MemoryUse],
    may_move: MayMove,
) -> MigrationPlan {
    let mut plan = MigrationPlan {
        node,
        moved: Vec::new(),
        cost: if node == from { 0.0 } else { costs.thread_move },
    };
    let pass = |to: usize| {
        let row = costs.access.get(node);
        row.and_then(|row| row.get(to)).copied().unwrap_or(0.0)
    };
    for (at, used) in uses.iter().enumerate() {
        let (kib, passes) = (used.bytes as f64 / 1024.0, used.passes as f64);
        let near = kib * passes * pass(node);
        let Some(of_pages) = used.node.filter(|of_pages| *of_pages != node) else {
            plan.cost += near;
            continue;
        };
        let far = kib * passes * pass(of_pages);
        let moved = costs.move_call + kib * costs.move_kib + near;
        if may_move != MayMove::Thread && moved < far {
            plan.moved.push(at);
            plan.cost += moved;
        } else {
            plan.cost += far;
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Four nodes as on the machine of the paper's figure: far passes cost a third more, and moving
    /// a page costs as much as some ten passes gain.
    fn four_nodes() -> MemoryCosts {
        MemoryCosts {
            move_kib: 300.0,
            move_call: 5_000.0,
            thread_move: 30_000.0,
            ..MemoryCosts::regular(4, 90.0, 120.0)
        }
    }

    const MIB: u64 = 1 << 20;

    fn on(node: usize, bytes: u64, passes: u64) -> MemoryUse {
        MemoryUse {
            bytes,
            node: Some(node),
            passes,
        }
    }

    /// A thread with one near and two far areas, as in the figure.
    #[test]
    fn few_passes_leave_all_where_it_is_and_many_move_it() {
        let costs = four_nodes();
        let uses = |passes| [on(0, MIB, passes), on(1, MIB, passes), on(2, MIB, passes)];
        let at = |passes| plan(&costs, 0, &uses(passes), MayMove::Pages);
        assert_eq!(at(1).moved, []);
        assert_eq!(at(10).moved, [], "ten passes gain what the move costs");
        assert_eq!((at(11).node, at(11).moved), (0, vec![1, 2]));
        // Two far areas on one node: the thread goes there, which costs less than pages.
        let uses = [on(0, MIB, 5), on(1, MIB, 5), on(1, MIB, 5)];
        let found = plan(&costs, 0, &uses, MayMove::Both);
        assert_eq!((found.node, found.moved), (1, vec![]));
        // Much later all is worth moving.
        let uses = [on(0, MIB, 50), on(1, MIB, 50), on(1, MIB, 50)];
        let found = plan(&costs, 0, &uses, MayMove::Both);
        assert_eq!((found.node, found.moved), (1, vec![0]));
    }

    #[test]
    fn what_may_not_move_stays_and_one_node_has_nothing_to_decide() {
        let uses = [on(3, 64 * MIB, 100), on(0, MIB, 1)];
        let thread = plan(&four_nodes(), 0, &uses, MayMove::Thread);
        assert_eq!((thread.node, thread.moved.len()), (3, 0));
        let pages = plan(&four_nodes(), 0, &uses, MayMove::Pages);
        assert_eq!((pages.node, pages.moved), (0, vec![0]));
        let alone = MemoryCosts::regular(1, 90.0, 90.0);
        let found = plan(&alone, 5, &[on(0, MIB, 100)], MayMove::Both);
        assert_eq!((found.node, found.moved), (0, vec![]));
        let untouched = MemoryUse {
            node: None,
            ..on(0, MIB, 100)
        };
        assert_eq!(plan(&four_nodes(), 2, &[untouched], MayMove::Both).node, 2);
    }

    fn uses() -> impl Strategy<Value = Vec<MemoryUse>> {
        let used = (0..64 * MIB, proptest::option::of(0..4usize), 0..200u64);
        let used = used.prop_map(|(bytes, node, passes)| MemoryUse {
            bytes,
            node,
            passes,
        });
        proptest::collection::vec(used, 0..6)
    }

    proptest! {
        /// No other choice of a node and of areas costs less.
        #[test]
        fn nothing_else_costs_less(uses in uses(), from in 0..4usize) {
            let costs = four_nodes();
            let best = plan(&costs, from, &uses, MayMove::Both);
            for node in 0..4 {
                for chosen in 0..1usize << uses.len() {
                    let mut cost = if node == from { 0.0 } else { costs.thread_move };
                    for (at, used) in uses.iter().enumerate() {
                        let kib = used.bytes as f64 / 1024.0;
                        let moves = chosen >> at & 1 == 1 && used.node.is_some_and(|of| of != node);
                        let to = if moves { node } else { used.node.unwrap_or(node) };
                        cost += kib * used.passes as f64 * costs.access[node][to];
                        cost += if moves { costs.move_call + kib * costs.move_kib } else { 0.0 };
                    }
                    prop_assert!(best.cost <= cost * (1.0 + 1e-9) + 1e-6);
                }
            }
        }

        /// More passes never move fewer pages to a thread that stays.
        #[test]
        fn more_passes_never_move_less(bytes in 1..64 * MIB, passes in 0..200u64) {
            let moved = |passes| plan(&four_nodes(), 0, &[on(1, bytes, passes)], MayMove::Pages).moved;
            prop_assert!(moved(passes).len() <= moved(passes + 1).len());
        }
    }
}
