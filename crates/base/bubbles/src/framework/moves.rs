//! Moves that a scheduler asks for: checked, then carried out.

use super::Framework;
use crate::bubble::{BubbleId, Entity};
use crate::limits::{MOVES_LEAST, MOVES_PER_ENTITY};
use crate::machine::PlaceId;
use crate::scheduler::{Event, Move, MoveError};
use crate::view::{BubbleState, ThreadState};

impl Framework {
    pub(super) fn carry_out(&mut self, moves: &[Move]) {
        let most =
            MOVES_LEAST + MOVES_PER_ENTITY * (self.view.bubbles.len() + self.view.threads.len());
        for (index, wanted) in moves.iter().enumerate() {
            let done = match index < most {
                true => self.check(*wanted).map(|()| self.apply(*wanted)),
                false => Err(MoveError::TooMany(most)),
            };
            match done {
                Ok(()) => self.counts.moves += 1,
                Err(why) => {
                    self.counts.refused += 1;
                    self.last_refusal = Some((*wanted, why));
                }
            }
        }
    }

    /// Returns why a move cannot be carried out.
    fn check(&self, wanted: Move) -> Result<(), MoveError> {
        let (entity, place) = match wanted {
            Move::Queue { entity, place } => (entity, place),
            Move::Burst { bubble, place } | Move::Regenerate { bubble, place } => {
                (Entity::Bubble(bubble), place)
            }
        };
        if self.view.machine.place(place).is_none() {
            return Err(MoveError::NoPlace(place));
        }
        match entity {
            Entity::Bubble(bubble) => {
                let found = self.view.bubble(bubble);
                let state = found.ok_or(MoveError::NoBubble(bubble))?.state;
                let is_regeneration = matches!(wanted, Move::Regenerate { .. });
                match state {
                    BubbleState::Burst(_) if is_regeneration => {}
                    _ if is_regeneration => return Err(MoveError::NotBurst(bubble)),
                    BubbleState::Queued(_) => {}
                    _ => return Err(MoveError::NotQueued(entity)),
                }
            }
            Entity::Thread(thread) => {
                let found = self.view.thread(thread);
                match found.ok_or(MoveError::NoThread(thread))?.state {
                    ThreadState::Queued(_) => {}
                    ThreadState::Running(_) => return Err(MoveError::Runs(thread)),
                    _ => return Err(MoveError::NotQueued(entity)),
                }
            }
        }
        match self.view.is_allowed(entity, place) {
            true => Ok(()),
            false => Err(MoveError::NotAllowed(entity, place)),
        }
    }

    fn apply(&mut self, wanted: Move) {
        match wanted {
            Move::Queue { entity, place } => {
                self.take_out(entity);
                self.enqueue(entity, place);
            }
            Move::Burst { bubble, place } => self.burst(bubble, place),
            Move::Regenerate { bubble, place } => {
                self.close(bubble);
                self.enqueue(Entity::Bubble(bubble), place);
                self.following.push_back(Event::Regenerated(bubble));
            }
        }
    }

    pub(super) fn burst(&mut self, bubble: BubbleId, place: PlaceId) {
        self.take_out(Entity::Bubble(bubble));
        self.set_bubble(bubble, BubbleState::Burst(place));
        for child in self.view.children(bubble).to_vec() {
            let to = self.place_within(child, place);
            match child {
                Entity::Bubble(inner) => {
                    if self.view.bubbles[inner.0 as usize].state == BubbleState::Held {
                        self.enqueue(child, to);
                        self.following.push_back(Event::BubbleReady(inner));
                    }
                }
                Entity::Thread(thread) => {
                    self.view.threads[thread.0 as usize].home = to;
                    if self.view.threads[thread.0 as usize].state == ThreadState::Held {
                        self.enqueue(child, to);
                    }
                }
            }
        }
        self.following.push_back(Event::Burst(bubble));
    }

    /// Takes all that is in queues back into a bubble, and marks what runs.
    fn close(&mut self, bubble: BubbleId) {
        for child in self.view.children(bubble).to_vec() {
            match child {
                Entity::Bubble(inner) => match self.state(inner) {
                    BubbleState::Queued(_) => {
                        self.take_out(child);
                        self.set_bubble(inner, BubbleState::Held);
                    }
                    BubbleState::Burst(_) => {
                        self.close(inner);
                        self.set_bubble(inner, BubbleState::Held);
                    }
                    BubbleState::New | BubbleState::Held | BubbleState::Ended => {}
                },
                Entity::Thread(thread) => match self.view.threads[thread.0 as usize].state {
                    ThreadState::Queued(_) => {
                        self.take_out(child);
                        self.set_thread(thread, ThreadState::Held);
                    }
                    ThreadState::Running(processor) => {
                        if !self.to_preempt.contains(&processor) {
                            self.to_preempt.push(processor);
                        }
                    }
                    ThreadState::Held | ThreadState::Blocked | ThreadState::Ended => {}
                },
            }
        }
    }
}
