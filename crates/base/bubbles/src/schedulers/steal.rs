//! `steal`: bubbles stay where they came until a processor has nothing to do.

use super::surplus::{bubble_elsewhere, bubble_on_path, fitting, thread_elsewhere};
use crate::bubble::Entity;
use crate::machine::ProcessorId;
use crate::scheduler::{BubbleScheduler, Event, Move};
use crate::view::View;

/// An idle processor takes the nearest closed bubble to the smallest area around itself that has a
/// processor for each of its threads, and bursts it there. Where there is no bubble, it takes a
/// thread from the nearest queue that has too many.
#[derive(Clone, Copy, Debug, Default)]
pub struct StealScheduler;

impl BubbleScheduler for StealScheduler {
    fn name(&self) -> &str {
        "steal"
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        match event {
            Event::Idle(processor) => take(view, processor),
            _ => Vec::new(),
        }
    }
}

/// The moves by which a processor gets something to do, if there is anything.
pub(super) fn take(view: &View, processor: ProcessorId) -> Vec<Move> {
    let found = bubble_on_path(view, processor).or_else(|| bubble_elsewhere(view, processor));
    if let Some((bubble, area)) = found {
        let area = view
            .machine()
            .common(area, view.area(Entity::Bubble(bubble)));
        let place = fitting(view, bubble, processor, area);
        let place = super::surplus::allowed_part(view, Entity::Bubble(bubble), place);
        return vec![Move::Burst { bubble, place }];
    }
    let leaf = view.machine().leaf(processor);
    let thread = thread_elsewhere(view, processor, |_, _| true);
    let queue = thread.map(|thread| Move::Queue {
        entity: Entity::Thread(thread),
        place: leaf,
    });
    queue.into_iter().collect()
}
