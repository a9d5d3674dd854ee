//! The framework: owns the view, asks the scheduler, checks moves and carries them out.

mod moves;
mod numbers;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bubble::{Access, Attributes, Bubble, BubbleId, Entity, Memory, MemoryId};
use crate::bubble::{Thread, ThreadId};
use crate::limits::{FOLLOWING_EVENTS, IDLE_ROUNDS};
use crate::machine::{Machine, PlaceId, ProcessorId};
use crate::record::{Position, Record};
use crate::scheduler::{BubbleScheduler, Event, Move, MoveError, panic_text};
use crate::schedulers::FlatScheduler;
use crate::view::{BubbleState, ThreadState, View};

/// Reason why a call of a framework's owner was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameworkError {
    /// There is no such bubble or thread.
    #[error("there is no {0:?}")]
    NoEntity(Entity),
    /// There is no such memory.
    #[error("there is no memory {}", .0.0)]
    NoMemory(MemoryId),
    /// There is no such place.
    #[error("the machine has no place {}", .0.0)]
    NoPlace(PlaceId),
    /// There is no such processor.
    #[error("the machine has no processor {}", .0.0)]
    NoProcessor(ProcessorId),
    /// The bubble or thread has ended.
    #[error("{0:?} has ended")]
    Ended(Entity),
    /// The bubble or thread was submitted before.
    #[error("{0:?} was submitted before")]
    Submitted(Entity),
    /// The processor runs nothing.
    #[error("processor {} runs nothing", .0.0)]
    RunsNothing(ProcessorId),
    /// The processor runs a thread already.
    #[error("processor {} runs a thread already", .0.0)]
    RunsAlready(ProcessorId),
    /// The thread runs.
    #[error("thread {} runs", .0.0)]
    Runs(ThreadId),
    /// The thread is not blocked.
    #[error("thread {} is not blocked", .0.0)]
    NotBlocked(ThreadId),
    /// The bubble or thread has not ended.
    #[error("{0:?} has not ended")]
    NotEnded(Entity),
    /// The area of a bubble or thread goes beyond that of the bubble around it.
    #[error("place {} is not within the area of the bubble around it", .0.0)]
    BeyondParent(PlaceId),
}

/// Counts of what a framework did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Moves that were carried out.
    pub moves: u64,
    /// Moves that were refused.
    pub refused: u64,
    /// Threads that the framework took by itself, since nothing ran and the scheduler did nothing.
    pub rescued: u64,
}

/// Bubbles, threads and run queues of a machine under one scheduler.
///
/// Owned by a thread runtime or a simulator. The owner makes bubbles and threads and submits them,
/// asks for each free processor what runs [`next`](Self::next), and says how each thread stops:
/// [`yield_now`](Self::yield_now), [`block`](Self::block) or [`end`](Self::end). Processors in
/// [`to_preempt`](Self::to_preempt) are to stop their threads soon.
pub struct Framework {
    view: View,
    scheduler: Box<dyn BubbleScheduler>,
    now: u64,
    records: Option<Vec<Record>>,
    /// Events that moves caused, not yet told.
    following: VecDeque<Event>,
    to_preempt: Vec<ProcessorId>,
    counts: Counts,
    last_refusal: Option<(Move, MoveError)>,
    last_fault: Option<SchedulerFault>,
    /// Numbers of bubbles and threads that were released.
    free_bubbles: Vec<BubbleId>,
    free_threads: Vec<ThreadId>,
}

/// A scheduler panicked, and `flat` took its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bubble scheduler {scheduler} failed, flat goes on: {what}")]
pub struct SchedulerFault {
    /// Name of the scheduler.
    pub scheduler: String,
    /// Text of the panic.
    pub what: String,
}

impl Framework {
    /// A framework without bubbles.
    pub fn new(machine: Machine, scheduler: Box<dyn BubbleScheduler>) -> Self {
        Self {
            view: View::new(machine),
            scheduler,
            now: 0,
            records: None,
            following: VecDeque::new(),
            to_preempt: Vec::new(),
            counts: Counts::default(),
            last_refusal: None,
            last_fault: None,
            free_bubbles: Vec::new(),
            free_threads: Vec::new(),
        }
    }

    /// What schedulers see.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Name of the scheduler in force.
    pub fn scheduler(&self) -> &str {
        self.scheduler.name()
    }

    /// Counts of what was done as yet.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The last move that was refused, and why.
    pub fn last_refusal(&self) -> Option<(Move, MoveError)> {
        self.last_refusal
    }

    /// The last failure of a scheduler.
    pub fn last_fault(&self) -> Option<&SchedulerFault> {
        self.last_fault.as_ref()
    }

    /// Sets the time that records have from now on.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Keeps records from now on.
    pub fn keep_records(&mut self) {
        self.records.get_or_insert_default();
    }

    /// Takes the records that were made since the last call.
    pub fn take_records(&mut self) -> Vec<Record> {
        self.records
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Puts another scheduler in force, which is told of all closed bubbles that are in queues.
    pub fn swap(&mut self, scheduler: Box<dyn BubbleScheduler>) -> Box<dyn BubbleScheduler> {
        let before = std::mem::replace(&mut self.scheduler, scheduler);
        self.queued_bubbles()
            .into_iter()
            .for_each(|event| self.tell(event));
        before
    }

    /// Makes an area of memory.
    ///
    /// # Errors
    /// There is no such place.
    pub fn add_memory(
        &mut self,
        bytes: u64,
        node: Option<PlaceId>,
    ) -> Result<MemoryId, FrameworkError> {
        self.check_place(node)?;
        self.view.memories.push(Memory { bytes, node });
        Ok(MemoryId(self.view.memories.len() as u32 - 1))
    }

    /// Says where the pages of an area of memory are.
    ///
    /// # Errors
    /// There is no such memory or no such place.
    pub fn set_node(&mut self, memory: MemoryId, node: PlaceId) -> Result<(), FrameworkError> {
        self.check_place(Some(node))?;
        let found = self.view.memories.get_mut(memory.0 as usize);
        found.ok_or(FrameworkError::NoMemory(memory))?.node = Some(node);
        Ok(())
    }

    /// Says that a bubble or thread uses an area of memory.
    ///
    /// # Errors
    /// There is no such bubble, thread or memory.
    pub fn attach(
        &mut self,
        entity: Entity,
        memory: MemoryId,
        access: Access,
    ) -> Result<(), FrameworkError> {
        if self.view.memory(memory).is_none() {
            return Err(FrameworkError::NoMemory(memory));
        }
        self.attributes(entity)?.memory.push((memory, access));
        Ok(())
    }

    /// Changes a bubble's or thread's attributes: priority, work left, measures. The area that it
    /// must not leave stays as it was.
    ///
    /// # Errors
    /// There is no such bubble or thread.
    pub fn update(
        &mut self,
        entity: Entity,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<(), FrameworkError> {
        let attributes = self.attributes(entity)?;
        let allowed = attributes.allowed;
        change(attributes);
        attributes.allowed = allowed;
        Ok(())
    }

    /// Makes a bubble, in another one or in none. It is ready once it was submitted.
    ///
    /// # Errors
    /// The bubble around it has ended or is none, or the area goes beyond that bubble's.
    pub fn add_bubble(
        &mut self,
        parent: Option<BubbleId>,
        attributes: Attributes,
    ) -> Result<BubbleId, FrameworkError> {
        self.check_new(parent, &attributes)?;
        let fresh = Bubble {
            parent,
            attributes,
            state: BubbleState::New,
            children: Vec::new(),
            live: 0,
            released: 0,
            forgotten: 0,
            is_released: false,
        };
        let bubble = match self.free_bubbles.pop() {
            Some(free) => {
                self.view.bubbles[free.0 as usize] = fresh;
                free
            }
            None => {
                self.view.bubbles.push(fresh);
                BubbleId(self.view.bubbles.len() as u32 - 1)
            }
        };
        self.enter(parent, Entity::Bubble(bubble));
        Ok(bubble)
    }

    /// Makes a thread in a bubble, or, without one, one that is to be submitted. In a burst bubble
    /// it is ready at once.
    ///
    /// # Errors
    /// The bubble around it has ended or is none, or the area goes beyond that bubble's.
    pub fn add_thread(
        &mut self,
        parent: Option<BubbleId>,
        attributes: Attributes,
    ) -> Result<ThreadId, FrameworkError> {
        self.check_new(parent, &attributes)?;
        let fresh = Thread {
            parent,
            attributes,
            state: ThreadState::Held,
            home: self.view.machine.root(),
            last: None,
            is_released: false,
        };
        let thread = match self.free_threads.pop() {
            Some(free) => {
                self.view.threads[free.0 as usize] = fresh;
                free
            }
            None => {
                self.view.threads.push(fresh);
                ThreadId(self.view.threads.len() as u32 - 1)
            }
        };
        self.enter(parent, Entity::Thread(thread));
        Ok(thread)
    }

    /// Makes a bubble ready with all that is in it, or a thread that is in no bubble. A bubble
    /// inside another one is submitted with that one, or, if that one was submitted before, by
    /// itself.
    ///
    /// # Errors
    /// There is none, or it was submitted before.
    pub fn submit(&mut self, entity: Entity) -> Result<(), FrameworkError> {
        self.attributes(entity)?;
        let parent = self.view.parent(entity);
        let is_new = match entity {
            Entity::Bubble(bubble) => self.state(bubble) == BubbleState::New,
            Entity::Thread(thread) => {
                let state = self.view.threads[thread.0 as usize].state;
                state == ThreadState::Held && parent.is_none()
            }
        };
        if !is_new {
            return Err(FrameworkError::Submitted(entity));
        }
        match parent.map(|parent| self.state(parent)) {
            // It is submitted with the bubble around it.
            Some(BubbleState::New) => return Ok(()),
            Some(BubbleState::Ended) => return Err(FrameworkError::Ended(entity)),
            _ => {}
        }
        self.hold(entity);
        match parent.map(|parent| self.state(parent)) {
            None => self.put(entity, self.view.area(entity)),
            Some(BubbleState::Burst(place)) => {
                self.put(entity, self.place_within(entity, place));
            }
            Some(_) => {}
        }
        self.tell_following();
        Ok(())
    }

    /// Chooses what a free processor runs. `None`: nothing; ask again after the next change.
    ///
    /// # Errors
    /// There is no such processor, or it runs something.
    pub fn next(&mut self, processor: ProcessorId) -> Result<Option<ThreadId>, FrameworkError> {
        let slot = self.view.running.get(processor.0 as usize);
        if slot
            .ok_or(FrameworkError::NoProcessor(processor))?
            .is_some()
        {
            return Err(FrameworkError::RunsAlready(processor));
        }
        for _ in 0..IDLE_ROUNDS {
            if let Some(thread) = self.view.next_for(processor) {
                self.start(thread, processor);
                return Ok(Some(thread));
            }
            let before = self.counts.moves;
            self.tell(Event::Idle(processor));
            if self.counts.moves == before {
                break;
            }
        }
        let found = self.view.next_for(processor).or_else(|| {
            self.stands_still()
                .then(|| self.rescue(processor))
                .flatten()
        });
        if let Some(thread) = found {
            self.start(thread, processor);
        }
        Ok(found)
    }

    /// The thread of a processor stops and stays ready.
    ///
    /// # Errors
    /// The processor runs nothing.
    pub fn yield_now(&mut self, processor: ProcessorId) -> Result<ThreadId, FrameworkError> {
        let thread = self.stop(processor)?;
        self.make_ready(thread);
        Ok(thread)
    }

    /// The thread of a processor waits for something from now on.
    ///
    /// # Errors
    /// The processor runs nothing.
    pub fn block(&mut self, processor: ProcessorId) -> Result<ThreadId, FrameworkError> {
        let thread = self.stop(processor)?;
        self.set_thread(thread, ThreadState::Blocked);
        Ok(thread)
    }

    /// A blocked thread is ready again.
    ///
    /// # Errors
    /// There is no such thread, or it is not blocked.
    pub fn wake(&mut self, thread: ThreadId) -> Result<(), FrameworkError> {
        let found = self.view.thread(thread);
        let found = found.ok_or(FrameworkError::NoEntity(Entity::Thread(thread)))?;
        if found.state != ThreadState::Blocked {
            return Err(FrameworkError::NotBlocked(thread));
        }
        self.make_ready(thread);
        self.tell(Event::ThreadReady(thread));
        Ok(())
    }

    /// The thread of a processor ends, and with it bubbles in which all has ended.
    ///
    /// # Errors
    /// The processor runs nothing.
    pub fn end(&mut self, processor: ProcessorId) -> Result<ThreadId, FrameworkError> {
        let thread = self.stop(processor)?;
        self.thread_ended(thread);
        Ok(thread)
    }

    /// A thread that does not run ends without having run again: a blocked or a ready one.
    ///
    /// # Errors
    /// There is no such thread, it runs, or it has ended.
    pub fn withdraw(&mut self, thread: ThreadId) -> Result<(), FrameworkError> {
        let entity = Entity::Thread(thread);
        let found = self.view.thread(thread);
        match found.ok_or(FrameworkError::NoEntity(entity))?.state {
            ThreadState::Ended => return Err(FrameworkError::Ended(entity)),
            ThreadState::Running(_) => return Err(FrameworkError::Runs(thread)),
            ThreadState::Held | ThreadState::Queued(_) | ThreadState::Blocked => {}
        }
        self.take_out(entity);
        self.thread_ended(thread);
        Ok(())
    }

    fn thread_ended(&mut self, thread: ThreadId) {
        self.set_thread(thread, ThreadState::Ended);
        self.view.threads[thread.0 as usize].attributes.work_left = 0;
        let around: Vec<BubbleId> = self.view.around(Entity::Thread(thread)).collect();
        self.less_in(&around);
        self.tell_following();
    }

    /// The first of these bubbles has one thing less in it, and so have those around a bubble that
    /// ends by that.
    fn less_in(&mut self, bubbles: &[BubbleId]) {
        for bubble in bubbles {
            let found = &mut self.view.bubbles[bubble.0 as usize];
            found.live -= 1;
            if found.live > 0 {
                break;
            }
            self.take_out(Entity::Bubble(*bubble));
            self.set_bubble(*bubble, BubbleState::Ended);
            self.following.push_back(Event::Ended(*bubble));
        }
    }

    /// Keeps a bubble from ending, as if a thread more were in it, until
    /// [`let_end`](Self::let_end).
    ///
    /// # Errors
    /// There is none, or it has ended.
    pub fn keep_open(&mut self, bubble: BubbleId) -> Result<(), FrameworkError> {
        let entity = Entity::Bubble(bubble);
        self.attributes(entity)?;
        if self.view.has_ended(entity) {
            return Err(FrameworkError::Ended(entity));
        }
        self.view.bubbles[bubble.0 as usize].live += 1;
        Ok(())
    }

    /// Takes one call of [`keep_open`](Self::keep_open) back. A bubble ends if nothing is in it.
    ///
    /// # Errors
    /// There is none, or it has ended.
    pub fn let_end(&mut self, bubble: BubbleId) -> Result<(), FrameworkError> {
        let entity = Entity::Bubble(bubble);
        self.attributes(entity)?;
        if self.view.has_ended(entity) {
            return Err(FrameworkError::Ended(entity));
        }
        let around: Vec<BubbleId> = std::iter::once(bubble)
            .chain(self.view.around(entity))
            .collect();
        self.less_in(&around);
        self.tell_following();
        Ok(())
    }

    /// Says that some time has passed.
    pub fn tick(&mut self) {
        self.tell(Event::Tick);
    }

    /// Takes the processors whose threads are to stop, since their bubbles were regenerated.
    pub fn to_preempt(&mut self) -> Vec<ProcessorId> {
        std::mem::take(&mut self.to_preempt)
    }

    fn attributes(&mut self, entity: Entity) -> Result<&mut Attributes, FrameworkError> {
        let found = match entity {
            Entity::Bubble(bubble) => {
                let bubble = self.view.bubbles.get_mut(bubble.0 as usize);
                bubble.map(|bubble| &mut bubble.attributes)
            }
            Entity::Thread(thread) => {
                let thread = self.view.threads.get_mut(thread.0 as usize);
                thread.map(|thread| &mut thread.attributes)
            }
        };
        found.ok_or(FrameworkError::NoEntity(entity))
    }

    fn check_place(&self, place: Option<PlaceId>) -> Result<(), FrameworkError> {
        match place {
            Some(place) if self.view.machine.place(place).is_none() => {
                Err(FrameworkError::NoPlace(place))
            }
            _ => Ok(()),
        }
    }

    fn check_new(
        &self,
        parent: Option<BubbleId>,
        attributes: &Attributes,
    ) -> Result<(), FrameworkError> {
        self.check_place(attributes.allowed)?;
        let unknown = |memory: &MemoryId| self.view.memory(*memory).is_none();
        let mut used = attributes.memory.iter().map(|(memory, _)| *memory);
        if let Some(memory) = used.find(unknown) {
            return Err(FrameworkError::NoMemory(memory));
        }
        let Some(parent) = parent else {
            return Ok(());
        };
        let entity = Entity::Bubble(parent);
        if self.view.bubble(parent).is_none() {
            return Err(FrameworkError::NoEntity(entity));
        }
        if self.view.has_ended(entity) {
            return Err(FrameworkError::Ended(entity));
        }
        let area = self.view.area(entity);
        match attributes.allowed {
            Some(allowed) if !self.view.machine.is_within(allowed, area) => {
                Err(FrameworkError::BeyondParent(allowed))
            }
            _ => Ok(()),
        }
    }

    /// Puts a new bubble or thread into the one around it.
    fn enter(&mut self, parent: Option<BubbleId>, entity: Entity) {
        self.note(entity, Position::Held);
        let Some(parent) = parent else {
            return;
        };
        let around = &mut self.view.bubbles[parent.0 as usize];
        around.children.push(entity);
        around.live += 1;
        if let (BubbleState::Burst(place), Entity::Thread(_)) = (self.state(parent), entity) {
            self.put(entity, self.place_within(entity, place));
            self.tell_following();
        }
    }

    fn state(&self, bubble: BubbleId) -> BubbleState {
        self.view.bubbles[bubble.0 as usize].state
    }

    /// A bubble that is submitted, with all in it, is no longer new.
    fn hold(&mut self, entity: Entity) {
        if let Entity::Bubble(bubble) = entity {
            self.view.bubbles[bubble.0 as usize].state = BubbleState::Held;
            for child in self.view.children(bubble).to_vec() {
                self.hold(child);
            }
        }
    }

    /// The place, or the area that a bubble or thread must not leave if it may not be there.
    fn place_within(&self, entity: Entity, place: PlaceId) -> PlaceId {
        match self.view.is_allowed(entity, place) {
            true => place,
            false => self.view.area(entity),
        }
    }

    fn note(&mut self, entity: Entity, to: Position) {
        if let Some(records) = &mut self.records {
            records.push(Record {
                at: self.now,
                entity,
                to,
            });
        }
    }

    fn set_thread(&mut self, thread: ThreadId, state: ThreadState) {
        self.view.threads[thread.0 as usize].state = state;
        let to = match state {
            ThreadState::Held => Position::Held,
            ThreadState::Queued(place) => Position::Queue(place),
            ThreadState::Running(processor) => Position::Run(processor),
            ThreadState::Blocked => Position::Blocked,
            ThreadState::Ended => Position::Ended,
        };
        self.note(Entity::Thread(thread), to);
    }

    fn set_bubble(&mut self, bubble: BubbleId, state: BubbleState) {
        self.view.bubbles[bubble.0 as usize].state = state;
        let to = match state {
            BubbleState::New | BubbleState::Held => Position::Held,
            BubbleState::Queued(place) => Position::Queue(place),
            BubbleState::Burst(place) => Position::Burst(place),
            BubbleState::Ended => Position::Ended,
        };
        self.note(Entity::Bubble(bubble), to);
    }

    /// Takes a bubble or thread out of the queue in which it is.
    fn take_out(&mut self, entity: Entity) {
        if let Some(place) = self.view.queued_at(entity) {
            self.view.queues[place.0 as usize].retain(|other| *other != entity);
        }
    }

    /// Puts a bubble or thread that is in no queue into that of a place.
    fn enqueue(&mut self, entity: Entity, place: PlaceId) {
        self.view.queues[place.0 as usize].push(entity);
        match entity {
            Entity::Bubble(bubble) => self.set_bubble(bubble, BubbleState::Queued(place)),
            Entity::Thread(thread) => {
                self.view.threads[thread.0 as usize].home = place;
                self.set_thread(thread, ThreadState::Queued(place));
            }
        }
    }

    /// Puts a new bubble or thread into a queue, which the scheduler is told afterwards.
    fn put(&mut self, entity: Entity, place: PlaceId) {
        self.enqueue(entity, place);
        self.following.push_back(match entity {
            Entity::Bubble(bubble) => Event::BubbleReady(bubble),
            Entity::Thread(thread) => Event::ThreadReady(thread),
        });
    }

    /// A thread that was running or blocked goes to where it came from, or into its closed bubble.
    fn make_ready(&mut self, thread: ThreadId) {
        let entity = Entity::Thread(thread);
        let is_open = |bubble: BubbleId| matches!(self.state(bubble), BubbleState::Burst(_));
        match self.view.parent(entity).is_none_or(is_open) {
            true => self.enqueue(entity, self.view.threads[thread.0 as usize].home),
            false => self.set_thread(thread, ThreadState::Held),
        }
    }

    fn start(&mut self, thread: ThreadId, processor: ProcessorId) {
        self.take_out(Entity::Thread(thread));
        self.view.running[processor.0 as usize] = Some(thread);
        self.view.threads[thread.0 as usize].last = Some(processor);
        self.set_thread(thread, ThreadState::Running(processor));
    }

    fn stop(&mut self, processor: ProcessorId) -> Result<ThreadId, FrameworkError> {
        let slot = self.view.running.get_mut(processor.0 as usize);
        let slot = slot.ok_or(FrameworkError::NoProcessor(processor))?;
        self.to_preempt.retain(|other| *other != processor);
        slot.take().ok_or(FrameworkError::RunsNothing(processor))
    }

    /// Returns whether nothing runs and no processor has a thread in its queues.
    fn stands_still(&self) -> bool {
        let mut processors = self.view.machine.processors();
        self.view.running.iter().all(Option::is_none)
            && processors.all(|processor| self.view.next_for(processor).is_none())
    }

    /// Finds a thread for a processor while nothing runs anywhere, whatever the scheduler wants.
    fn rescue(&mut self, processor: ProcessorId) -> Option<ThreadId> {
        let leaf = self.view.machine.leaf(processor);
        let can = |(thread, found): (ThreadId, &Thread)| {
            let entity = Entity::Thread(thread);
            let is_ready = match found.state {
                ThreadState::Queued(_) => true,
                ThreadState::Held => self.is_submitted(entity),
                _ => false,
            };
            (is_ready && self.view.is_allowed(entity, leaf)).then_some(thread)
        };
        let thread = self.view.threads().find_map(can)?;
        let around: Vec<BubbleId> = self.view.around(Entity::Thread(thread)).collect();
        for bubble in around.into_iter().rev() {
            if let BubbleState::Queued(place) = self.state(bubble) {
                self.burst(bubble, place);
            }
        }
        self.following.clear();
        self.take_out(Entity::Thread(thread));
        self.enqueue(Entity::Thread(thread), leaf);
        self.counts.rescued += 1;
        Some(thread)
    }

    /// Returns whether all bubbles around a thread were submitted, and there is one.
    fn is_submitted(&self, entity: Entity) -> bool {
        let mut around = self.view.around(entity);
        let is_inside = self.view.parent(entity).is_some();
        is_inside && around.all(|bubble| self.state(bubble) != BubbleState::New)
    }

    /// Tells the scheduler an event and those that follow from its moves.
    fn tell(&mut self, event: Event) {
        self.following.push_back(event);
        self.tell_following();
    }

    fn tell_following(&mut self) {
        // New bubbles are told, however many there are; what they cause is bounded.
        let mut left = FOLLOWING_EVENTS + self.following.len();
        while let Some(event) = self.following.pop_front() {
            if left == 0 {
                self.following.clear();
                return;
            }
            left -= 1;
            let moves = self.ask(event);
            self.carry_out(&moves);
        }
    }

    /// The scheduler's answer. One that panics is replaced by `flat`, which answers nothing yet.
    fn ask(&mut self, event: Event) -> Vec<Move> {
        let (scheduler, view) = (&mut self.scheduler, &self.view);
        let answer = catch_unwind(AssertUnwindSafe(|| scheduler.decide(event, view)));
        let what = match answer {
            Ok(moves) => match self.scheduler.fault() {
                None => return moves,
                Some(what) => what,
            },
            Err(panic) => panic_text(panic),
        };
        let broken = std::mem::replace(&mut self.scheduler, Box::new(FlatScheduler));
        self.last_fault = Some(SchedulerFault {
            scheduler: broken.name().to_owned(),
            what,
        });
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(broken))) {
            panic_text(panic);
        }
        let queued = self.queued_bubbles();
        self.following.extend(queued);
        Vec::new()
    }

    /// All closed bubbles in queues, as a new scheduler is told of them.
    fn queued_bubbles(&self) -> Vec<Event> {
        let bubbles = self.view.bubbles();
        bubbles
            .filter(|(_, bubble)| matches!(bubble.state, BubbleState::Queued(_)))
            .map(|(bubble, _)| Event::BubbleReady(bubble))
            .collect()
    }
}
