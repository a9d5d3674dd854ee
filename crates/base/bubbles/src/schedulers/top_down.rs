//! `spread`: from the whole machine down, each area gets its share of the work.

use super::steal;
use crate::bubble::{BubbleId, Entity};
use crate::machine::PlaceId;
use crate::scheduler::{BubbleScheduler, Event, Move};
use crate::view::View;

/// Distributes each new bubble over the machine from the top. At each level whole bubbles are given
/// to the areas below, the heaviest first to the least loaded. A bubble is burst where it is more
/// than an area's share, or where an area would get nothing. A processor that becomes idle later
/// takes what is near.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpreadScheduler;

/// A bubble is burst if it is heavier than the largest share of an area by more than this part.
const TOLERANCE: u64 = 8;

impl BubbleScheduler for SpreadScheduler {
    fn name(&self) -> &str {
        "spread"
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        match event {
            // What is in a bubble is distributed with it, and told before that is done.
            Event::BubbleReady(bubble) | Event::Regenerated(bubble) => {
                match view.queued_at(Entity::Bubble(bubble)) {
                    Some(place) => spread(view, bubble, place),
                    None => Vec::new(),
                }
            }
            Event::Idle(processor) => steal::take(view, processor),
            _ => Vec::new(),
        }
    }
}

fn spread(view: &View, bubble: BubbleId, place: PlaceId) -> Vec<Move> {
    let entity = Entity::Bubble(bubble);
    // A bubble that was made inside a burst one may go beyond it if processors there are busy.
    let around = view.machine().path(place);
    let mut free = around
        .filter(|area| view.idle_in(*area) >= view.ready(entity) && view.is_allowed(entity, *area));
    let start = free.next().unwrap_or_else(|| view.area(entity));
    let mut moves = Vec::new();
    distribute(view, vec![entity], start, &mut moves);
    moves
}

/// Distributes bubbles and threads over the areas in a place.
fn distribute(view: &View, mut parts: Vec<Entity>, place: PlaceId, moves: &mut Vec<Move>) {
    let areas = view.machine().children(place);
    if areas.is_empty() {
        return parts
            .iter()
            .for_each(|part| settle(view, *part, place, moves));
    }
    if parts.is_empty() {
        return;
    }
    burst_where_needed(view, &mut parts, place, moves);
    parts.sort_by_key(|part| std::cmp::Reverse(view.weight(*part)));
    let mut shares: Vec<(u64, Vec<Entity>)> = areas
        .iter()
        .map(|area| (view.load(*area), Vec::new()))
        .collect();
    for part in parts {
        let part_area = view.area(part);
        let can = |area: &PlaceId| {
            let machine = view.machine();
            machine.is_within(*area, part_area) || machine.is_within(part_area, *area)
        };
        let least = (0..areas.len())
            .filter(|at| can(&areas[*at]))
            .min_by_key(|at| {
                let processors = view.machine().processors_of(areas[*at]).len().max(1) as u64;
                let load = shares[*at].0.saturating_add(view.weight(part));
                load.saturating_mul(1000) / processors
            });
        if let Some(at) = least {
            shares[at].0 = shares[at].0.saturating_add(view.weight(part));
            shares[at].1.push(part);
        }
    }
    for (area, (_, parts)) in areas.iter().zip(shares) {
        for part in &parts {
            // Only bubbles stop on their way, since what is in them is not yet in queues.
            if matches!(part, Entity::Bubble(_)) && view.is_allowed(*part, *area) {
                moves.push(Move::Queue {
                    entity: *part,
                    place: *area,
                });
            }
        }
        distribute(view, parts, *area, moves);
    }
}

/// Bursts bubbles until no part is more than an area's share, and each area gets one.
fn burst_where_needed(view: &View, parts: &mut Vec<Entity>, place: PlaceId, moves: &mut Vec<Move>) {
    let machine = view.machine();
    let areas = machine.children(place);
    let processors = machine.processors_of(place).len().max(1) as u64;
    let largest = areas.iter().map(|area| machine.processors_of(*area).len());
    let largest = largest.max().unwrap_or(1) as u64;
    loop {
        let total = parts.iter().map(|part| view.weight(*part));
        let total = total.fold(0, u64::saturating_add);
        let share = total / processors * largest;
        let bubbles = parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| match part {
                Entity::Bubble(bubble) => {
                    Some((view.weight(*part), std::cmp::Reverse(at), *bubble))
                }
                Entity::Thread(_) => None,
            });
        let Some((weight, std::cmp::Reverse(at), bubble)) = bubbles.max() else {
            return;
        };
        let is_needed = parts.len() < areas.len() || weight > share + share / TOLERANCE;
        if !is_needed || view.ready(Entity::Bubble(bubble)) < 2 {
            return;
        }
        parts.remove(at);
        let area = super::surplus::allowed_part(view, Entity::Bubble(bubble), place);
        moves.push(Move::Burst {
            bubble,
            place: area,
        });
        parts.extend(view.children(bubble).iter().filter(|child| {
            view.ready(**child) > 0
                || matches!(child, Entity::Bubble(_)) && !view.has_ended(**child)
        }));
    }
}

/// Puts a bubble with all that is in it, or a thread, into the queue of a core, or of the area that
/// it must not leave.
fn settle(view: &View, part: Entity, core: PlaceId, moves: &mut Vec<Move>) {
    let place = super::surplus::allowed_part(view, part, core);
    match part {
        Entity::Thread(_) => moves.push(Move::Queue {
            entity: part,
            place,
        }),
        Entity::Bubble(bubble) => {
            moves.push(Move::Burst { bubble, place });
            for child in view.children(bubble) {
                if matches!(child, Entity::Bubble(_)) && !view.has_ended(*child) {
                    settle(view, *child, core, moves);
                }
            }
        }
    }
}
