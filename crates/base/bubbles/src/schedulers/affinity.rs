//! `affinity`: a bubble stays under one cache.

use super::surplus::{bubble_elsewhere, bubble_on_path, least_loaded, thread_elsewhere};
use crate::bubble::{AffinityKind, BubbleId, Entity};
use crate::machine::{PlaceId, ProcessorId};
use crate::scheduler::{BubbleScheduler, Event, Move};
use crate::view::View;

/// A bubble whose threads share data, or that has no bubbles in it, is given whole to the least
/// loaded area of a shared cache, and its threads never leave that area. A bubble that only groups
/// others is burst, and its parts are given out one by one. An idle processor takes whole bubbles
/// that were not begun, and threads that share nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct AffinityScheduler;

impl BubbleScheduler for AffinityScheduler {
    fn name(&self) -> &str {
        "affinity"
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        match event {
            Event::BubbleReady(bubble) | Event::Regenerated(bubble) => {
                ready(view, bubble).into_iter().collect()
            }
            Event::Idle(processor) => idle(view, processor).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns whether the threads of a bubble stay together.
fn stays_together(view: &View, bubble: BubbleId) -> bool {
    let kind = view.attributes(Entity::Bubble(bubble)).affinity;
    kind != AffinityKind::Group || !view.is_nested(bubble)
}

fn ready(view: &View, bubble: BubbleId) -> Option<Move> {
    let entity = Entity::Bubble(bubble);
    let place = view.queued_at(entity)?;
    if !stays_together(view, bubble) {
        return Some(Move::Burst { bubble, place });
    }
    if is_under_cache(view, place) {
        // It was made by a thread that is here.
        return None;
    }
    let place = least_loaded(view, entity, view.machine().caches(), |_| 0)?;
    Some(Move::Queue { entity, place })
}

fn is_under_cache(view: &View, place: PlaceId) -> bool {
    let machine = view.machine();
    let caches = machine.caches();
    caches.iter().any(|cache| machine.is_within(place, *cache))
}

fn idle(view: &View, processor: ProcessorId) -> Option<Move> {
    let machine = view.machine();
    let leaf = machine.leaf(processor);
    let cache = machine.cache(leaf);
    let found = bubble_on_path(view, processor).or_else(|| bubble_elsewhere(view, processor));
    if let Some((bubble, _)) = found {
        // A bubble that was given to no cache, such as one for a core alone, opens where it is.
        let entity = Entity::Bubble(bubble);
        let place = match view.is_allowed(entity, cache) {
            true => cache,
            false => view.area(entity),
        };
        return Some(Move::Burst { bubble, place });
    }
    let shares_nothing = |thread, place| {
        let parent = view.parent(Entity::Thread(thread));
        let is_near = machine.is_within(place, cache);
        is_near || parent.is_none_or(|parent| !stays_together(view, parent))
    };
    let thread = thread_elsewhere(view, processor, shares_nothing)?;
    Some(Move::Queue {
        entity: Entity::Thread(thread),
        place: leaf,
    })
}
