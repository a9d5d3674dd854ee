//! Records of decisions: where each bubble and thread is from some moment on.

use serde::{Deserialize, Serialize};

use crate::bubble::Entity;
use crate::machine::{PlaceId, ProcessorId};

/// Where a bubble or thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// In the bubble around it, which is closed.
    Held,
    /// In the queue of a place.
    Queue(PlaceId),
    /// A bubble that is burst at a place.
    Burst(PlaceId),
    /// A thread that runs on a processor.
    Run(ProcessorId),
    /// A thread that waits for something.
    Blocked,
    /// All has ended.
    Ended,
}

/// A bubble or thread has a new position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, in nanoseconds of whoever drives the framework.
    pub at: u64,
    /// The bubble or thread.
    pub entity: Entity,
    /// The new position.
    pub to: Position,
}
