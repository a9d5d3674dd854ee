//! `memory`: a bubble goes where its pages are.

use super::surplus::{bubble_elsewhere, bubble_on_path, least_loaded, thread_elsewhere};
use crate::bubble::{BubbleId, Entity};
use crate::machine::{PlaceId, ProcessorId};
use crate::scheduler::{BubbleScheduler, Event, Move};
use crate::view::View;

/// A bubble of whose memory one NUMA node has most is given whole to that node. One whose memory is
/// on several nodes is burst, and its parts are given out alike. What has touched no memory yet
/// goes to the least loaded node. An idle processor takes work from another node only if that node
/// has more than one thread waiting for each of its processors.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryScheduler;

impl BubbleScheduler for MemoryScheduler {
    fn name(&self) -> &str {
        "memory"
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        match event {
            Event::BubbleReady(bubble) | Event::Regenerated(bubble) => {
                let entity = Entity::Bubble(bubble);
                let mut moves = Vec::new();
                if view.queued_at(entity).is_some() {
                    give(view, entity, &mut Vec::new(), &mut moves);
                }
                moves
            }
            Event::Idle(processor) => idle(view, processor).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// The node that has two thirds of the memory of a bubble or thread.
fn main_node(view: &View, entity: Entity) -> Option<PlaceId> {
    let found = view.statistics(entity);
    let (node, bytes) = found.main_node()?;
    let total = found
        .bytes
        .values()
        .fold(0u64, |sum, more| sum.saturating_add(*more));
    (bytes >= total / 3 * 2).then_some(node)
}

/// Gives a bubble or thread to a node, or bursts the bubble and gives out what is in it.
fn give(view: &View, entity: Entity, given: &mut Vec<(PlaceId, u64)>, moves: &mut Vec<Move>) {
    let machine = view.machine();
    let memory = view.statistics(entity);
    let main = main_node(view, entity).filter(|node| view.is_allowed(entity, *node));
    let is_divided = main.is_none() && memory.bytes.len() > 1;
    let must_open = match entity {
        Entity::Bubble(bubble) => {
            let fits = machine
                .nodes()
                .iter()
                .any(|node| machine.processors_of(*node).len() >= view.ready(entity));
            is_divided || !fits && main.is_none() && view.is_nested(bubble)
        }
        Entity::Thread(_) => false,
    };
    if let (true, Entity::Bubble(bubble)) = (must_open, entity) {
        moves.push(Move::Burst {
            bubble,
            place: view.area(entity),
        });
        for child in view.children(bubble) {
            if view.ready(*child) > 0 {
                give(view, *child, given, moves);
            }
        }
        return;
    }
    let beside = |place: PlaceId| {
        let here = given.iter().filter(|(node, _)| *node == place);
        here.map(|(_, weight)| *weight).fold(0, u64::saturating_add)
    };
    let node = main.or_else(|| least_loaded(view, entity, machine.nodes(), beside));
    if let Some(place) = node {
        given.push((place, view.weight(entity)));
        moves.push(Move::Queue { entity, place });
    }
}

fn idle(view: &View, processor: ProcessorId) -> Option<Move> {
    let machine = view.machine();
    let leaf = machine.leaf(processor);
    let node = machine.node(leaf);
    let is_crowded = |place: PlaceId| {
        let there = machine.node(place);
        let waiting = machine.within(there).flat_map(|place| view.queue(place));
        let waiting: usize = waiting.map(|entity| view.ready(*entity)).sum();
        waiting > machine.processors_of(there).len()
    };
    let elsewhere = || {
        let found = bubble_elsewhere(view, processor)?;
        let place = view.queued_at(Entity::Bubble(found.0))?;
        (machine.is_within(place, node) || is_crowded(place)).then_some(found)
    };
    if let Some((bubble, _)) = bubble_on_path(view, processor).or_else(elsewhere) {
        return Some(open(view, bubble, node));
    }
    let may_take = |_, place| machine.is_within(place, node) || is_crowded(place);
    let thread = thread_elsewhere(view, processor, may_take)?;
    Some(Move::Queue {
        entity: Entity::Thread(thread),
        place: leaf,
    })
}

/// Bursts a bubble at a node, or in the smaller area that it must not leave.
fn open(view: &View, bubble: BubbleId, node: PlaceId) -> Move {
    let entity = Entity::Bubble(bubble);
    let place = match view.is_allowed(entity, node) {
        true => node,
        false => view.area(entity),
    };
    Move::Burst { bubble, place }
}
