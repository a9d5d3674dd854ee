//! A bubble scheduler for Garonne as a module.
//!
//! ```text
//! cargo build -p round-robin
//! garonne bubbles simulate --scheduler ./target/debug/libround_robin.so,steal
//! ```
//!
//! Bubbles that have bubbles in them are burst where they are. All others are burst at a NUMA node
//! each, the nodes in turn. Nothing is stolen: a thread stays on the node of its bubble.

use garonne_bubble_modules::bubble_scheduler_module;
use garonne_bubbles::{BubbleId, BubbleScheduler, Entity, Event, Move, View};

/// Gives bubbles to nodes in turn.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    turn: usize,
}

impl RoundRobin {
    /// The move of a bubble that came to a queue.
    fn open(&mut self, view: &View, bubble: BubbleId) -> Option<Move> {
        let entity = Entity::Bubble(bubble);
        let here = view.queued_at(entity)?;
        if view.is_nested(bubble) {
            return Some(Move::Burst {
                bubble,
                place: here,
            });
        }
        let nodes = view.machine().nodes();
        let place = (0..nodes.len())
            .map(|at| nodes[(self.turn + at) % nodes.len()])
            .find(|node| view.is_allowed(entity, *node));
        self.turn += 1;
        // A bubble that may use no whole node opens where it is.
        Some(Move::Burst {
            bubble,
            place: place.unwrap_or(here),
        })
    }
}

impl BubbleScheduler for RoundRobin {
    fn name(&self) -> &str {
        "round robin"
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        match event {
            Event::BubbleReady(bubble) | Event::Regenerated(bubble) => {
                self.open(view, bubble).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

fn create() -> Box<dyn BubbleScheduler> {
    Box::new(RoundRobin::default())
}

bubble_scheduler_module!(create);

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_bubble_sim::{Costs, WORKLOADS, Workload, simulate};
    use garonne_bubbles::{Attributes, BubbleState, Framework, Machine};
    use garonne_topology::Tree;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
        #[test]
        fn every_workload_ends_and_no_move_is_refused(
            seed in any::<u64>(), packages in 1u32..4, nodes in 1u32..3, cores in 1u32..4,
        ) {
            let machine = Machine::new(&Tree::regular(packages, nodes, 1, cores));
            for name in WORKLOADS {
                let workload = Workload::by_name(name, &machine, seed).unwrap();
                let done = simulate(machine.clone(), &workload, create(), Costs::default()).unwrap();
                prop_assert_eq!((done.refused, done.rescued), (0, 0));
            }
        }

        #[test]
        fn bubbles_are_on_nodes_in_equal_numbers(bubbles in 1usize..20, nodes in 1u32..5) {
            let machine = Machine::new(&Tree::regular(nodes, 1, 1, 2));
            let mut framework = Framework::new(machine, create());
            let root = framework.add_bubble(None, Attributes::default()).unwrap();
            for _ in 0..bubbles {
                let bubble = framework.add_bubble(Some(root), Attributes::default()).unwrap();
                framework.add_thread(Some(bubble), Attributes::default()).unwrap();
            }
            framework.submit(Entity::Bubble(root)).unwrap();
            let view = framework.view();
            let counts = view.machine().nodes().into_iter().map(|node| {
                let here = |state| state == BubbleState::Burst(node);
                let all = view.bubbles().filter(|(bubble, _)| *bubble != root);
                all.filter(|(_, bubble)| here(bubble.state)).count()
            });
            let counts: Vec<usize> = counts.collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), bubbles);
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        }
    }
}
