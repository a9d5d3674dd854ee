//! `flat`: one queue for the whole machine, as if there were no bubbles.

use crate::scheduler::{BubbleScheduler, Event, Move};
use crate::view::View;

/// Bursts each bubble where it is, so that any processor takes any thread. What other schedulers
/// are compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlatScheduler;

impl BubbleScheduler for FlatScheduler {
    fn name(&self) -> &str {
        "flat"
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        match event {
            Event::BubbleReady(bubble) | Event::Regenerated(bubble) => {
                let place = view.area(crate::Entity::Bubble(bubble));
                vec![Move::Burst { bubble, place }]
            }
            _ => Vec::new(),
        }
    }
}
