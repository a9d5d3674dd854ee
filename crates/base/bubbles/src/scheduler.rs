//! The trait of bubble schedulers: events in, moves out.

use crate::bubble::{BubbleId, Entity, ThreadId};
use crate::machine::{PlaceId, ProcessorId};
use crate::view::View;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A bubble came to a queue: it is new, or the bubble around it was burst.
    BubbleReady(BubbleId),
    /// A thread came to a queue or back into its bubble: it is new, or no longer blocked.
    ThreadReady(ThreadId),
    /// A processor found no thread in its queues: those of its core and of all areas around it.
    Idle(ProcessorId),
    /// A bubble was burst: what was in it is in queues.
    Burst(BubbleId),
    /// A bubble was regenerated: what it had in queues is in it again.
    Regenerated(BubbleId),
    /// All in a bubble has ended.
    Ended(BubbleId),
    /// Some time has passed.
    Tick,
}

/// A change that a scheduler asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A bubble or thread that is in a queue goes to the end of a place's queue.
    Queue {
        /// The bubble or thread.
        entity: Entity,
        /// The place.
        place: PlaceId,
    },
    /// A bubble that is in a queue opens: all in it that is ready goes to a place's queue. What may
    /// not be there goes to the queue of the area that it must not leave.
    Burst {
        /// The bubble.
        bubble: BubbleId,
        /// The place.
        place: PlaceId,
    },
    /// A burst bubble closes and goes to a place's queue. What it has in queues returns into it,
    /// and what runs is preempted and follows.
    Regenerate {
        /// The bubble.
        bubble: BubbleId,
        /// The place.
        place: PlaceId,
    },
}

/// Reason why a move was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// There is no such thread.
    #[error("there is no thread {}", .0.0)]
    NoThread(ThreadId),
    /// There is no such bubble.
    #[error("there is no bubble {}", .0.0)]
    NoBubble(BubbleId),
    /// There is no such place.
    #[error("the machine has no place {}", .0.0)]
    NoPlace(PlaceId),
    /// The thread runs.
    #[error("thread {} runs", .0.0)]
    Runs(ThreadId),
    /// The bubble or thread is in no queue: it is in a closed bubble, blocked, burst or over.
    #[error("{0:?} is in no queue")]
    NotQueued(Entity),
    /// The bubble is not burst.
    #[error("bubble {} is not burst", .0.0)]
    NotBurst(BubbleId),
    /// The bubble or thread may not leave its area.
    #[error("{0:?} may not go to {1:?}")]
    NotAllowed(Entity, PlaceId),
    /// The answer has more moves than any answer needs.
    #[error("more than {0} moves in one answer")]
    TooMany(usize),
}

/// Decides where bubbles and threads are.
///
/// Owned by a [`Framework`](crate::Framework), which calls it for each event and checks each move.
/// Moves of an answer are carried out one after the other, so later ones may name what earlier ones
/// brought to queues.
pub trait BubbleScheduler: Send {
    /// Returns the name by which it is shown.
    fn name(&self) -> &str;

    /// Answers an event.
    fn decide(&mut self, event: Event, view: &View) -> Vec<Move>;

    /// Returns what went wrong in it, after which it decides nothing any more. A module's panics
    /// are caught in the module, and come out here.
    fn fault(&self) -> Option<String> {
        None
    }
}

/// The text of a panic. What it carried is not dropped: that might panic again.
pub fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".to_owned(),
    };
    std::mem::forget(panic);
    text
}
