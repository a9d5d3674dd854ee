//! Bubbles and threads with their attributes, and the memory that they use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::{PlaceId, ProcessorId};
use crate::view::{BubbleState, ThreadState};

/// Number of a bubble within its framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BubbleId(pub u32);

/// Number of a thread within its framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadId(pub u32);

/// Number of an area of memory within its framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryId(pub u32);

/// A bubble or a thread: what a run queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entity {
    /// A bubble.
    Bubble(BubbleId),
    /// A thread.
    Thread(ThreadId),
}

/// Relation between the threads of a bubble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AffinityKind {
    /// Threads that belong to one part of the program, and need not be close.
    #[default]
    Group,
    /// Threads that work on the same data, and gain from a common cache.
    Share,
    /// Threads that wait for each other often, and should run at the same time.
    Gang,
}

/// What a bubble or a thread does with an area of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Reads and writes.
    ReadWrite,
}

impl Access {
    /// Returns whether the memory changes.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// An area of memory, with the place of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Length of the area.
    pub bytes: u64,
    /// NUMA node of its pages; `None` until it is first touched.
    pub node: Option<PlaceId>,
}

/// Attributes of a bubble or of a thread, as the program gave them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    /// Name for people.
    pub name: String,
    /// Relation between the threads of a bubble. Means nothing for a thread.
    pub affinity: AffinityKind,
    /// Threads of higher priority run first. A bubble's is added to that of all inside it.
    pub priority: i32,
    /// Work that is left for a thread, in nanoseconds of a processor that nothing holds up. A
    /// bubble's is the sum of what its threads have.
    pub work_left: u64,
    /// Area of the machine that it must not leave.
    pub allowed: Option<PlaceId>,
    /// Memory that it uses.
    pub memory: Vec<(MemoryId, Access)>,
    /// Values that the program measures by itself; statistics add them up by name.
    pub measures: BTreeMap<String, f64>,
}

/// A nested set of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Bubble {
    /// The bubble around it.
    pub parent: Option<BubbleId>,
    /// What the program says of it.
    pub attributes: Attributes,
    /// Where it is.
    pub state: BubbleState,
    /// Bubbles and threads directly in it.
    pub children: Vec<Entity>,
    /// How many of the children have not ended.
    pub(crate) live: usize,
    /// How many of the children were released.
    pub(crate) released: usize,
    /// Ended threads in it whose numbers others have now.
    pub(crate) forgotten: usize,
    /// Whether its number goes to another one when it leaves the bubble around it.
    pub(crate) is_released: bool,
}

/// A thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// The bubble around it.
    pub parent: Option<BubbleId>,
    /// What the program says of it.
    pub attributes: Attributes,
    /// Where it is.
    pub state: ThreadState,
    /// The place to whose queue it returns when it stops running.
    pub home: PlaceId,
    /// The processor that ran it last.
    pub last: Option<ProcessorId>,
    /// Whether its number goes to another one when it leaves the bubble around it.
    pub(crate) is_released: bool,
}
