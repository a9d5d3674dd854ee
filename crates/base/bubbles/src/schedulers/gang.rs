//! `gang`: bubbles take turns on an area, each with all of its threads.

use std::collections::VecDeque;

use crate::bubble::{AffinityKind, BubbleId, Entity};
use crate::machine::{PlaceId, ProcessorId};
use crate::scheduler::{BubbleScheduler, Event, Move};
use crate::view::{BubbleState, ThreadState, View};

/// Each bubble that has threads directly in it, or says that it is a gang, gets an area with a
/// processor for each thread, and runs there alone. At each tick the bubbles in whose areas others
/// wait are regenerated, and the next ones are burst. A bubble that can run nothing gives its turn
/// away at once.
#[derive(Clone, Debug, Default)]
pub struct GangScheduler {
    /// Bubbles that wait for their turn, with their areas.
    waiting: VecDeque<(BubbleId, PlaceId)>,
    /// Bubbles that have their turn.
    open: Vec<(BubbleId, PlaceId)>,
}

impl BubbleScheduler for GangScheduler {
    fn name(&self) -> &str {
        "gang"
    }

    fn decide(&mut self, event: Event, view: &View) -> Vec<Move> {
        match event {
            Event::BubbleReady(bubble) => self.ready(view, bubble),
            Event::Tick => self.turn(view, |_, _| true),
            Event::Idle(processor) => self.idle(view, processor),
            Event::Ended(bubble) => {
                let others = |(other, _): &(BubbleId, PlaceId)| *other != bubble;
                self.open.retain(others);
                self.waiting.retain(others);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

impl GangScheduler {
    fn ready(&mut self, view: &View, bubble: BubbleId) -> Vec<Move> {
        let entity = Entity::Bubble(bubble);
        let Some(place) = view.queued_at(entity) else {
            return Vec::new();
        };
        // A bubble inside a gang that is open is a part of that gang.
        let is_inside = view.around(entity).any(|around| {
            let mut gangs = self.open.iter().chain(&self.waiting);
            gangs.any(|(gang, _)| *gang == around)
        });
        let threads = view.children(bubble).iter();
        let has_threads = threads
            .filter(|child| matches!(child, Entity::Thread(_)))
            .any(|child| !view.has_ended(*child));
        let is_gang = view.attributes(entity).affinity == AffinityKind::Gang;
        if is_inside || !is_gang && !has_threads && view.is_nested(bubble) {
            return vec![Move::Burst { bubble, place }];
        }
        if !self.waiting.iter().any(|(gang, _)| *gang == bubble) {
            let area = self.area(view, bubble);
            self.waiting.push_back((bubble, area));
        }
        self.open_next(view, &[], |_| true)
    }

    /// The area that fits a bubble and has the fewest others: one with a processor for each of its
    /// threads, the smallest such.
    fn area(&self, view: &View, bubble: BubbleId) -> PlaceId {
        let machine = view.machine();
        let entity = Entity::Bubble(bubble);
        let threads = view.statistics(entity).threads;
        let allowed = |place: &PlaceId| view.is_allowed(entity, *place);
        let fitting = machine
            .places()
            .filter(|place| allowed(place) && machine.processors_of(*place).len() >= threads);
        let others = |place: PlaceId| {
            let gangs = self.open.iter().chain(&self.waiting);
            gangs
                .filter(|(_, area)| overlap(view, *area, place))
                .count()
        };
        let smallest = fitting
            .min_by_key(|place| (machine.processors_of(*place).len(), others(*place), place.0));
        smallest.unwrap_or_else(|| view.area(entity))
    }

    /// Ends the turns of the open bubbles for which `is_over`, if others wait for their areas.
    fn turn(&mut self, view: &View, is_over: impl Fn(BubbleId, PlaceId) -> bool) -> Vec<Move> {
        self.forget_changed(view);
        let waits = |area: PlaceId, view: &View| {
            let mut waiting = self.waiting.iter();
            waiting.any(|(gang, other)| overlap(view, *other, area) && can_run(view, *gang))
        };
        let (over, open): (Vec<_>, Vec<_>) = self
            .open
            .iter()
            .copied()
            .partition(|(gang, area)| is_over(*gang, *area) && waits(*area, view));
        if over.is_empty() {
            return self.open_next(view, &[], |_| true);
        }
        self.open = open;
        let mut moves: Vec<Move> = over
            .iter()
            .map(|(bubble, place)| Move::Regenerate {
                bubble: *bubble,
                place: *place,
            })
            .collect();
        let next = self.open_next(view, &over, |gang| can_run(view, gang));
        moves.extend(next);
        self.waiting.extend(over);
        // Areas that nobody took are for those that had them.
        moves.extend(self.open_next(view, &[], |_| true));
        moves
    }

    fn idle(&mut self, view: &View, processor: ProcessorId) -> Vec<Move> {
        let leaf = view.machine().leaf(processor);
        let machine = view.machine();
        self.turn(view, |gang, area| {
            machine.is_within(leaf, area) && !can_run(view, gang)
        })
    }

    /// Bursts bubbles that wait, in their order, in areas that are free.
    fn open_next(
        &mut self,
        view: &View,
        closing: &[(BubbleId, PlaceId)],
        may_open: impl Fn(BubbleId) -> bool,
    ) -> Vec<Move> {
        let mut moves = Vec::new();
        let mut still = VecDeque::new();
        while let Some((bubble, place)) = self.waiting.pop_front() {
            let is_free = !self
                .open
                .iter()
                .any(|(_, area)| overlap(view, *area, place));
            let is_closing = closing.iter().any(|(gang, _)| *gang == bubble);
            if !is_free || is_closing || !may_open(bubble) {
                still.push_back((bubble, place));
                continue;
            }
            moves.push(Move::Burst { bubble, place });
            self.open.push((bubble, place));
        }
        self.waiting = still;
        moves
    }

    /// Forgets bubbles that something else has burst or closed: the framework, or an earlier
    /// scheduler.
    fn forget_changed(&mut self, view: &View) {
        let state = |bubble: BubbleId| view.bubble(bubble).map(|bubble| bubble.state);
        let burst = |bubble| matches!(state(bubble), Some(BubbleState::Burst(_)));
        let (open, rest): (Vec<_>, Vec<_>) = self
            .open
            .iter()
            .copied()
            .partition(|(gang, _)| burst(*gang));
        self.open = open;
        for (gang, area) in rest {
            if matches!(state(gang), Some(BubbleState::Queued(_))) {
                self.waiting.push_back((gang, area));
            }
        }
        let (taken, waiting): (VecDeque<_>, VecDeque<_>) = self
            .waiting
            .iter()
            .copied()
            .partition(|(gang, _)| burst(*gang));
        self.open.extend(taken);
        self.waiting = waiting;
    }
}

fn overlap(view: &View, one: PlaceId, other: PlaceId) -> bool {
    view.machine().is_within(one, other) || view.machine().is_within(other, one)
}

/// Returns whether a bubble has a thread that runs or could.
fn can_run(view: &View, bubble: BubbleId) -> bool {
    view.children(bubble).iter().any(|child| match child {
        Entity::Bubble(inner) => can_run(view, *inner),
        Entity::Thread(thread) => view.thread(*thread).is_some_and(|thread| {
            !matches!(thread.state, ThreadState::Blocked | ThreadState::Ended)
        }),
    })
}
