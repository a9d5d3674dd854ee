//! What schedulers see: the machine, its run queues, bubbles and threads, and what runs.

use crate::bubble::{Attributes, Bubble, BubbleId, Entity, Memory, MemoryId, Thread, ThreadId};
use crate::machine::{Machine, PlaceId, ProcessorId};
use crate::statistics::Statistics;

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// In the bubble around it, which is closed; or not submitted yet.
    Held,
    /// In the queue of a place.
    Queued(PlaceId),
    /// Runs.
    Running(ProcessorId),
    /// Waits for something.
    Blocked,
    /// Has ended.
    Ended,
}

/// Where a bubble is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BubbleState {
    /// Not submitted yet: its owner still puts threads into it.
    New,
    /// In the bubble around it, which is closed.
    Held,
    /// In the queue of a place, closed.
    Queued(PlaceId),
    /// Burst at a place: what was in it has places of its own.
    Burst(PlaceId),
    /// All in it has ended.
    Ended,
}

/// Machine, run queues, bubbles and threads at one moment.
///
/// Owned and changed by a [`Framework`](crate::Framework); schedulers only read it. Ended bubbles
/// and threads keep their numbers until they are released; then new ones get these.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) machine: Machine,
    pub(crate) bubbles: Vec<Bubble>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) memories: Vec<Memory>,
    /// Queue of each place.
    pub(crate) queues: Vec<Vec<Entity>>,
    /// Thread of each processor.
    pub(crate) running: Vec<Option<ThreadId>>,
}

impl View {
    pub(crate) fn new(machine: Machine) -> Self {
        Self {
            queues: vec![Vec::new(); machine.places().count()],
            running: vec![None; machine.processors().count()],
            machine,
            bubbles: Vec::new(),
            threads: Vec::new(),
            memories: Vec::new(),
        }
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A bubble; `None` if there is none of this number.
    pub fn bubble(&self, bubble: BubbleId) -> Option<&Bubble> {
        self.bubbles.get(bubble.0 as usize)
    }

    /// A thread; `None` if there is none of this number.
    pub fn thread(&self, thread: ThreadId) -> Option<&Thread> {
        self.threads.get(thread.0 as usize)
    }

    /// All bubbles, also ended ones.
    pub fn bubbles(&self) -> impl Iterator<Item = (BubbleId, &Bubble)> {
        let numbered = self.bubbles.iter().enumerate();
        numbered.map(|(at, bubble)| (BubbleId(at as u32), bubble))
    }

    /// All threads, also ended ones.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, &Thread)> {
        let numbered = self.threads.iter().enumerate();
        numbered.map(|(at, thread)| (ThreadId(at as u32), thread))
    }

    /// An area of memory; `None` if there is none of this number.
    pub fn memory(&self, memory: MemoryId) -> Option<&Memory> {
        self.memories.get(memory.0 as usize)
    }

    /// Bubbles and threads in the queue of a place, the first to be taken first.
    pub fn queue(&self, place: PlaceId) -> &[Entity] {
        self.queues.get(place.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The thread that a processor runs.
    pub fn runs(&self, processor: ProcessorId) -> Option<ThreadId> {
        self.running.get(processor.0 as usize).copied().flatten()
    }

    /// Processors in a place that run nothing.
    pub fn idle_in(&self, place: PlaceId) -> usize {
        let processors = self.machine.processors_of(place).iter();
        processors
            .filter(|processor| self.runs(**processor).is_none())
            .count()
    }

    /// Attributes of a bubble or thread.
    pub fn attributes(&self, entity: Entity) -> &Attributes {
        match entity {
            Entity::Bubble(bubble) => &self.bubbles[bubble.0 as usize].attributes,
            Entity::Thread(thread) => &self.threads[thread.0 as usize].attributes,
        }
    }

    /// The bubble around a bubble or thread.
    pub fn parent(&self, entity: Entity) -> Option<BubbleId> {
        match entity {
            Entity::Bubble(bubble) => self.bubble(bubble)?.parent,
            Entity::Thread(thread) => self.thread(thread)?.parent,
        }
    }

    /// Bubbles around a bubble or thread, from the inside out.
    pub fn around(&self, entity: Entity) -> impl Iterator<Item = BubbleId> + '_ {
        std::iter::successors(self.parent(entity), |bubble| {
            self.parent(Entity::Bubble(*bubble))
        })
    }

    /// Bubbles and threads directly in a bubble.
    pub fn children(&self, bubble: BubbleId) -> &[Entity] {
        self.bubble(bubble)
            .map_or(&[], |bubble| bubble.children.as_slice())
    }

    /// What is directly in a bubble; nothing if the bubble was not submitted.
    fn submitted_children(&self, bubble: BubbleId) -> &[Entity] {
        match self.bubble(bubble).map(|bubble| bubble.state) {
            Some(BubbleState::New) => &[],
            _ => self.children(bubble),
        }
    }

    /// Returns whether a bubble has bubbles in it that have not ended.
    pub fn is_nested(&self, bubble: BubbleId) -> bool {
        let children = self.children(bubble).iter();
        children
            .filter(|child| matches!(child, Entity::Bubble(_)))
            .any(|child| !self.has_ended(*child))
    }

    /// Returns whether a bubble or thread has ended.
    pub fn has_ended(&self, entity: Entity) -> bool {
        match entity {
            Entity::Bubble(bubble) => self.bubbles[bubble.0 as usize].state == BubbleState::Ended,
            Entity::Thread(thread) => self.threads[thread.0 as usize].state == ThreadState::Ended,
        }
    }

    /// Returns the place in whose queue a bubble or thread is; `None` if it is in none.
    pub fn queued_at(&self, entity: Entity) -> Option<PlaceId> {
        match entity {
            Entity::Bubble(bubble) => match self.bubble(bubble)?.state {
                BubbleState::Queued(place) => Some(place),
                _ => None,
            },
            Entity::Thread(thread) => match self.thread(thread)?.state {
                ThreadState::Queued(place) => Some(place),
                _ => None,
            },
        }
    }

    /// Priority with those of all bubbles around it.
    pub fn priority(&self, entity: Entity) -> i64 {
        let own = i64::from(self.attributes(entity).priority);
        let around = self.around(entity);
        own + around
            .map(|bubble| i64::from(self.attributes(Entity::Bubble(bubble)).priority))
            .sum::<i64>()
    }

    /// Returns whether it may be in the queue of a place: whether the area that it must not leave,
    /// and those of all bubbles around it, have that place.
    pub fn is_allowed(&self, entity: Entity, place: PlaceId) -> bool {
        let around = self.around(entity).map(Entity::Bubble);
        std::iter::once(entity)
            .chain(around)
            .filter_map(|entity| self.attributes(entity).allowed)
            .all(|area| self.machine.is_within(place, area))
    }

    /// The smallest area that it must not leave, of its own and those of bubbles around it.
    pub fn area(&self, entity: Entity) -> PlaceId {
        let around = self.around(entity).map(Entity::Bubble);
        std::iter::once(entity)
            .chain(around)
            .filter_map(|entity| self.attributes(entity).allowed)
            .next()
            .unwrap_or(self.machine.root())
    }

    /// Sums over a bubble or thread and all inside it. The memory of bubbles around it is not
    /// counted.
    pub fn statistics(&self, entity: Entity) -> Statistics {
        let mut sum = Statistics::default();
        if !self.has_ended(entity) {
            self.add_memory(&mut sum, entity);
        }
        let own = self.attributes(entity).measures.iter();
        sum.measures = own.map(|(name, value)| (name.clone(), *value)).collect();
        match entity {
            Entity::Bubble(bubble) => {
                sum.ended = self.bubbles[bubble.0 as usize].forgotten;
                for child in self.children(bubble) {
                    let is_bubble = matches!(child, Entity::Bubble(_)) && !self.has_ended(*child);
                    sum.bubbles += usize::from(is_bubble);
                    sum.add(&self.statistics(*child));
                }
            }
            Entity::Thread(thread) => {
                let thread = &self.threads[thread.0 as usize];
                match thread.state {
                    ThreadState::Held | ThreadState::Queued(_) => sum.ready = 1,
                    ThreadState::Running(_) => sum.running = 1,
                    ThreadState::Blocked => sum.blocked = 1,
                    ThreadState::Ended => sum.ended = 1,
                }
                if thread.state != ThreadState::Ended {
                    sum.threads = 1;
                    sum.work_left = thread.attributes.work_left;
                }
            }
        }
        sum
    }

    fn add_memory(&self, sum: &mut Statistics, entity: Entity) {
        for (memory, _) in &self.attributes(entity).memory {
            let Some(memory) = self.memory(*memory) else {
                continue;
            };
            match memory.node {
                Some(node) => *sum.bytes.entry(node).or_default() += memory.bytes,
                None => sum.untouched += memory.bytes,
            }
        }
    }

    /// Work that is left of what is ready, with at least 1 for each ready thread.
    pub fn weight(&self, entity: Entity) -> u64 {
        match entity {
            Entity::Thread(thread) => match self.threads[thread.0 as usize].state {
                ThreadState::Ended | ThreadState::Blocked => 0,
                _ => self.attributes(entity).work_left.max(1),
            },
            Entity::Bubble(bubble) => {
                let children = self.submitted_children(bubble).iter();
                children
                    .map(|child| self.weight(*child))
                    .fold(0, u64::saturating_add)
            }
        }
    }

    /// Threads in it that could run.
    pub fn ready(&self, entity: Entity) -> usize {
        match entity {
            Entity::Thread(thread) => usize::from(matches!(
                self.threads[thread.0 as usize].state,
                ThreadState::Held | ThreadState::Queued(_)
            )),
            Entity::Bubble(bubble) => {
                let children = self.submitted_children(bubble).iter();
                children.map(|child| self.ready(*child)).sum()
            }
        }
    }

    /// Work that is left of what is queued in a place or runs there.
    pub fn load(&self, place: PlaceId) -> u64 {
        let queued = self.machine.within(place).flat_map(|at| self.queue(at));
        let running = self.machine.processors_of(place).iter();
        let running = running.filter_map(|processor| self.runs(*processor));
        let weights = queued
            .map(|entity| self.weight(*entity))
            .chain(running.map(|thread| self.weight(Entity::Thread(thread))));
        weights.fold(0, u64::saturating_add)
    }

    /// The thread that a processor would run next, from the queues of its core and of all areas
    /// around it: of the highest priority, of those the nearest, of those the first.
    pub fn next_for(&self, processor: ProcessorId) -> Option<ThreadId> {
        let path = self.machine.path(self.machine.leaf(processor));
        let mut best: Option<(i64, ThreadId)> = None;
        for entity in path.flat_map(|place| self.queue(place)) {
            let Entity::Thread(thread) = entity else {
                continue;
            };
            let priority = self.priority(*entity);
            if best.is_none_or(|(highest, _)| priority > highest) {
                best = Some((priority, *thread));
            }
        }
        best.map(|(_, thread)| thread)
    }
}
