//! What an idle processor may take from elsewhere, the nearest first.

use crate::bubble::{BubbleId, Entity, ThreadId};
use crate::machine::{PlaceId, ProcessorId};
use crate::view::View;

/// The first closed bubble in the queues of a processor, from its core to the machine.
pub(super) fn bubble_on_path(view: &View, processor: ProcessorId) -> Option<(BubbleId, PlaceId)> {
    let machine = view.machine();
    let path = machine.path(machine.leaf(processor));
    path.filter_map(|place| first_bubble(view, place, |_| true).map(|bubble| (bubble, place)))
        .next()
}

/// The bubble of a place's queue that has ready threads and the highest priority, of those the
/// first.
pub(super) fn first_bubble(
    view: &View,
    place: PlaceId,
    is_wanted: impl Fn(BubbleId) -> bool,
) -> Option<BubbleId> {
    let queued = view.queue(place).iter().rev();
    let bubbles = queued.filter_map(|entity| match entity {
        Entity::Bubble(bubble) if view.ready(*entity) > 0 && is_wanted(*bubble) => Some(*bubble),
        _ => None,
    });
    bubbles.max_by_key(|bubble| view.priority(Entity::Bubble(*bubble)))
}

/// The heaviest closed bubble that is in no queue of the processor's, in the nearest area that has
/// one, with the smallest area around both.
pub(super) fn bubble_elsewhere(view: &View, processor: ProcessorId) -> Option<(BubbleId, PlaceId)> {
    let machine = view.machine();
    let leaf = machine.leaf(processor);
    machine.path(leaf).find_map(|area| {
        let queued = machine
            .within(area)
            .filter(|place| !machine.is_within(leaf, *place))
            .flat_map(|place| view.queue(place));
        let bubbles = queued.filter_map(|entity| match entity {
            Entity::Bubble(bubble) if view.ready(*entity) > 0 && view.is_allowed(*entity, leaf) => {
                Some(*bubble)
            }
            _ => None,
        });
        let heaviest = bubbles.max_by_key(|bubble| {
            let entity = Entity::Bubble(*bubble);
            (view.weight(entity), std::cmp::Reverse(*bubble))
        });
        heaviest.map(|bubble| (bubble, area))
    })
}

/// A thread in the nearest area whose queues have more threads than processors there are free for
/// them: of the queue with most of them, the last.
pub(super) fn thread_elsewhere(
    view: &View,
    processor: ProcessorId,
    may_take: impl Fn(ThreadId, PlaceId) -> bool,
) -> Option<ThreadId> {
    let machine = view.machine();
    let leaf = machine.leaf(processor);
    machine.path(leaf).find_map(|area| {
        let places = machine
            .within(area)
            .filter(|place| !machine.is_within(leaf, *place));
        let surplus = places.filter_map(|place| {
            let threads: Vec<ThreadId> = threads_in(view, place).collect();
            let left = threads.len().checked_sub(view.idle_in(place))?;
            let can = |thread: &&ThreadId| {
                view.is_allowed(Entity::Thread(**thread), leaf) && may_take(**thread, place)
            };
            let last = threads.iter().rev().find(can)?;
            (left > 0).then_some((left, std::cmp::Reverse(place), *last))
        });
        surplus.max().map(|(_, _, thread)| thread)
    })
}

/// Threads in the queue of a place.
pub(super) fn threads_in(view: &View, place: PlaceId) -> impl Iterator<Item = ThreadId> + '_ {
    view.queue(place).iter().filter_map(|entity| match entity {
        Entity::Thread(thread) => Some(*thread),
        Entity::Bubble(_) => None,
    })
}

/// The smallest area around a processor, within another one, that has a processor for each ready
/// thread of a bubble; the whole of the other one if there is none.
pub(super) fn fitting(
    view: &View,
    bubble: BubbleId,
    processor: ProcessorId,
    within: PlaceId,
) -> PlaceId {
    let machine = view.machine();
    let threads = view.ready(Entity::Bubble(bubble));
    let fits = |place: &PlaceId| machine.processors_of(*place).len() >= threads;
    let mut path = machine
        .path(machine.leaf(processor))
        .take_while(|place| machine.is_within(*place, within));
    path.find(fits).unwrap_or(within)
}

/// The part of a place that a bubble or thread may use: the place, or the smaller area that it must
/// not leave.
pub(super) fn allowed_part(view: &View, entity: Entity, place: PlaceId) -> PlaceId {
    let area = view.area(entity);
    match view.machine().is_within(place, area) {
        true => place,
        false => area,
    }
}

/// The least loaded of these places, by processor, that a bubble or thread may use.
pub(super) fn least_loaded(
    view: &View,
    entity: Entity,
    places: impl IntoIterator<Item = PlaceId>,
    beside: impl Fn(PlaceId) -> u64,
) -> Option<PlaceId> {
    let machine = view.machine();
    let allowed = places
        .into_iter()
        .filter(|place| view.is_allowed(entity, *place));
    allowed.min_by_key(|place| {
        let processors = machine.processors_of(*place).len().max(1) as u64;
        view.load(*place).saturating_add(beside(*place)) / processors
    })
}
