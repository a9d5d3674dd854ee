//! The simulation: processors that run threads in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use garonne_bubbles::{
    Access, Attributes, BubbleId, BubbleScheduler, Entity, Framework, FrameworkError, Machine,
    MemoryId, PlaceId, ProcessorId, ThreadId, TraceLine, TraceLines,
};

use crate::cache::SharedCache;
use crate::costs::Costs;
use crate::limits::HAPPENINGS_MAX;
use crate::workload::{BubblePlan, Part, Step, ThreadPlan, Workload};

/// Result of a simulation. Times are in nanoseconds of virtual time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When the last thread ended.
    pub time: u64,
    /// Computing of all threads, as if all memory were near and all caches warm.
    pub work: u64,
    /// Time that far memory added.
    pub far: u64,
    /// Time that loading caches took.
    pub cold: u64,
    /// Time that switches took.
    pub switching: u64,
    /// Threads that a processor began to run after another one.
    pub switches: u64,
    /// Threads that went on under another shared cache than before.
    pub cache_migrations: u64,
    /// Moves of the scheduler that were carried out.
    pub moves: u64,
    /// Moves that were refused.
    pub refused: u64,
    /// Threads that the framework started by itself.
    pub rescued: u64,
    /// Processors of the machine.
    pub processors: u64,
}

impl Outcome {
    /// Computing in percent of the time of all processors.
    pub fn efficiency_percent(&self) -> u64 {
        let all = self.time.saturating_mul(self.processors).max(1);
        self.work.saturating_mul(100) / all
    }
}

/// Reason why a simulation did not end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// All threads that are left wait for each other.
    #[error("{0} threads wait for each other at {1} ns")]
    Deadlock(usize, u64),
    /// Nothing comes to an end.
    #[error("no end after {HAPPENINGS_MAX} happenings, at {0} ns")]
    TooLong(u64),
    /// The workload names a barrier, channel, node or area of memory that it does not have.
    #[error("the workload has no {0} {1}")]
    Missing(&'static str, usize),
    /// The framework refused what the simulation does.
    #[error(transparent)]
    Framework(#[from] FrameworkError),
}

/// A thread with what it is to do.
#[derive(Clone, Debug)]
struct Actor {
    steps: Vec<Step>,
    at: usize,
    /// Computing that is left of the step that it is in.
    left: u64,
    traffic_percent: u64,
    last_cache: Option<PlaceId>,
    last: Option<ProcessorId>,
    /// The thread that made its bubble.
    maker: Option<ThreadId>,
    /// Threads in bubbles that it made and that have not ended.
    made: usize,
    joins: bool,
}

/// A stretch of time for which a processor computes for one thread.
#[derive(Clone, Copy, Debug)]
struct Slice {
    /// When the computing begins, after what must be loaded.
    begin: u64,
    /// Time for a hundred nanoseconds of computing.
    percent: u64,
    /// Computing that it is to do.
    work: u64,
    number: u64,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    room: usize,
    items: usize,
    senders: Vec<ThreadId>,
    receivers: Vec<ThreadId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The slice of this number ends.
    SliceEnd(ProcessorId, u64),
    Tick,
}

/// A workload on a machine under a scheduler.
pub struct Simulation {
    framework: Framework,
    costs: Costs,
    now: u64,
    slices: u64,
    coming: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    actors: Vec<Actor>,
    running: Vec<Option<Slice>>,
    /// The thread that each processor ran last, and what its next slice costs beforehand.
    before: Vec<(Option<ThreadId>, u64)>,
    caches: BTreeMap<PlaceId, SharedCache>,
    memories: Vec<MemoryId>,
    barriers: Vec<(usize, Vec<ThreadId>)>,
    channels: Vec<Channel>,
    outcome: Outcome,
    trace: Option<(TraceLines, Vec<TraceLine>)>,
}

/// Runs a workload on a machine under a scheduler.
///
/// # Errors
/// The workload is wrong, or does not end.
pub fn simulate(
    machine: Machine,
    workload: &Workload,
    scheduler: Box<dyn BubbleScheduler>,
    costs: Costs,
) -> Result<Outcome, SimulationError> {
    Simulation::new(machine, workload, scheduler, costs)?.run()
}

impl Simulation {
    /// A simulation at its beginning.
    ///
    /// # Errors
    /// The workload names what it does not have.
    pub fn new(
        machine: Machine,
        workload: &Workload,
        scheduler: Box<dyn BubbleScheduler>,
        costs: Costs,
    ) -> Result<Self, SimulationError> {
        let nodes = machine.nodes();
        let processors = machine.processors().count();
        let mut framework = Framework::new(machine, scheduler);
        let mut memories = Vec::new();
        for memory in &workload.memory {
            let at = memory.node.map(|at| nodes.get(at).copied().ok_or(at));
            let node = at.transpose();
            let node = node.map_err(|at| SimulationError::Missing("NUMA node", at))?;
            memories.push(framework.add_memory(memory.bytes, node)?);
        }
        let mut channels = Vec::new();
        for room in &workload.channels {
            channels.push(Channel {
                room: (*room).max(1),
                ..Channel::default()
            });
        }
        let threads = workload.barriers.iter();
        let mut made = Self {
            framework,
            costs,
            now: 0,
            slices: 0,
            coming: BinaryHeap::new(),
            actors: Vec::new(),
            running: vec![None; processors],
            before: vec![(None, 0); processors],
            caches: BTreeMap::new(),
            memories,
            barriers: threads.map(|threads| (*threads, Vec::new())).collect(),
            channels,
            outcome: Outcome {
                processors: processors as u64,
                ..Outcome::default()
            },
            trace: None,
        };
        // Recorded from the start, and taken only if somebody asks.
        made.framework.keep_records();
        made.check(&workload.root)?;
        let root = made.make(None, &workload.root, None)?;
        made.framework.submit(Entity::Bubble(root))?;
        Ok(made)
    }

    /// What the scheduler sees.
    pub fn framework(&self) -> &Framework {
        &self.framework
    }

    /// Keeps all that happens as lines of a trace.
    pub fn keep_trace(&mut self) {
        self.trace.get_or_insert_default();
    }

    /// Takes the lines of the trace.
    pub fn take_trace(&mut self) -> Vec<TraceLine> {
        self.drain();
        self.trace
            .as_mut()
            .map(|(_, lines)| std::mem::take(lines))
            .unwrap_or_default()
    }

    /// Runs until all threads have ended.
    ///
    /// # Errors
    /// They wait for each other, or do not end.
    pub fn run(&mut self) -> Result<Outcome, SimulationError> {
        self.fill()?;
        self.come(self.costs.tick, Happening::Tick);
        let mut happenings = 0;
        while self.left() > 0 {
            let Some(Reverse((at, _, what))) = self.coming.pop() else {
                break;
            };
            happenings += 1;
            if happenings > HAPPENINGS_MAX {
                return Err(SimulationError::TooLong(self.now));
            }
            self.now = at;
            self.framework.set_now(at);
            match what {
                Happening::SliceEnd(processor, number) => {
                    let slice = self.running[processor.0 as usize];
                    if slice.is_some_and(|slice| slice.number == number) {
                        self.end_slice(processor)?;
                    }
                }
                Happening::Tick => {
                    if self.running.iter().all(Option::is_none) {
                        return Err(SimulationError::Deadlock(self.left(), self.now));
                    }
                    self.framework.tick();
                    self.come(self.now + self.costs.tick, Happening::Tick);
                }
            }
            self.fill()?;
            self.drain();
        }
        let counts = self.framework.counts();
        self.outcome.time = self.now;
        self.outcome.moves = counts.moves;
        self.outcome.refused = counts.refused;
        self.outcome.rescued = counts.rescued;
        Ok(self.outcome.clone())
    }

    fn drain(&mut self) {
        let records = self.framework.take_records();
        if let Some((maker, lines)) = &mut self.trace {
            lines.extend(maker.of(records, self.framework.view()));
        }
    }

    /// Threads that have not ended.
    fn left(&self) -> usize {
        let done = |actor: &&Actor| actor.at < actor.steps.len();
        self.actors.iter().filter(done).count()
    }

    fn come(&mut self, at: u64, what: Happening) {
        self.slices += 1;
        self.coming.push(Reverse((at, self.slices, what)));
    }

    /// Checks that a plan names only barriers, channels and memory that there are.
    fn check(&self, plan: &BubblePlan) -> Result<(), SimulationError> {
        let memory = |used: &[(usize, Access)]| {
            let missing = used.iter().find(|(at, _)| *at >= self.memories.len());
            missing.map_or(Ok(()), |(at, _)| {
                Err(SimulationError::Missing("area of memory", *at))
            })
        };
        memory(&plan.memory)?;
        for part in &plan.parts {
            match part {
                Part::Bubble(bubble) => self.check(bubble)?,
                Part::Thread(thread) => {
                    memory(&thread.memory)?;
                    for step in &thread.steps {
                        self.check_step(step)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &Step) -> Result<(), SimulationError> {
        match step {
            Step::Barrier(at) if *at >= self.barriers.len() => {
                Err(SimulationError::Missing("barrier", *at))
            }
            Step::Send(at) | Step::Receive(at) if *at >= self.channels.len() => {
                Err(SimulationError::Missing("channel", *at))
            }
            Step::Spawn(plan) => self.check(plan),
            _ => Ok(()),
        }
    }

    /// Makes a bubble with all that is in it. What is in it is made before it is ready.
    fn make(
        &mut self,
        parent: Option<BubbleId>,
        plan: &BubblePlan,
        maker: Option<ThreadId>,
    ) -> Result<BubbleId, SimulationError> {
        let attributes = Attributes {
            name: plan.name.clone(),
            affinity: plan.affinity,
            memory: self.used(&plan.memory),
            ..Attributes::default()
        };
        let bubble = self.framework.add_bubble(parent, attributes)?;
        for part in &plan.parts {
            match part {
                Part::Bubble(inner) => {
                    self.make(Some(bubble), inner, maker)?;
                }
                Part::Thread(thread) => self.make_thread(bubble, thread, maker)?,
            }
        }
        Ok(bubble)
    }

    fn make_thread(
        &mut self,
        bubble: BubbleId,
        plan: &ThreadPlan,
        maker: Option<ThreadId>,
    ) -> Result<(), SimulationError> {
        let attributes = Attributes {
            name: plan.name.clone(),
            memory: self.used(&plan.memory),
            work_left: computing(&plan.steps),
            ..Attributes::default()
        };
        self.actors.push(Actor {
            steps: plan.steps.clone(),
            at: 0,
            left: 0,
            traffic_percent: plan.traffic_percent.min(100),
            last_cache: None,
            last: None,
            maker,
            made: 0,
            joins: false,
        });
        if let Some(maker) = maker {
            self.actors[maker.0 as usize].made += 1;
        }
        self.framework.add_thread(Some(bubble), attributes)?;
        Ok(())
    }

    fn used(&self, memory: &[(usize, Access)]) -> Vec<(MemoryId, Access)> {
        let used = memory.iter();
        used.map(|(at, access)| (self.memories[*at], *access))
            .collect()
    }

    /// Gives each free processor something to do.
    fn fill(&mut self) -> Result<(), SimulationError> {
        loop {
            let mut changed = false;
            for processor in self.framework.to_preempt() {
                self.preempt(processor)?;
                changed = true;
            }
            for at in 0..self.running.len() {
                let processor = ProcessorId(at as u32);
                // What ends at once or blocks makes room for the next.
                while self.running[at].is_none() {
                    let Some(thread) = self.framework.next(processor)? else {
                        break;
                    };
                    changed = true;
                    self.arrive(processor, thread)?;
                }
            }
            if !changed {
                return Ok(());
            }
        }
    }

    /// A processor begins to run a thread.
    fn arrive(&mut self, processor: ProcessorId, thread: ThreadId) -> Result<(), SimulationError> {
        let (last, debt) = &mut self.before[processor.0 as usize];
        if *last != Some(thread) {
            *last = Some(thread);
            *debt += self.costs.switch;
            self.outcome.switches += 1;
            self.outcome.switching += self.costs.switch;
        }
        let machine = self.framework.view().machine();
        let cache = machine.cache(machine.leaf(processor));
        let actor = &mut self.actors[thread.0 as usize];
        if actor.last.is_some_and(|last| last != processor) {
            *debt += self.costs.cold_core;
            self.outcome.cold += self.costs.cold_core;
        }
        if actor.last_cache.is_some_and(|last| last != cache) {
            self.outcome.cache_migrations += 1;
        }
        actor.last = Some(processor);
        actor.last_cache = Some(cache);
        self.go_on(processor, thread)
    }

    /// Goes through a thread's steps until it computes, blocks or ends.
    fn go_on(&mut self, processor: ProcessorId, thread: ThreadId) -> Result<(), SimulationError> {
        loop {
            let actor = &mut self.actors[thread.0 as usize];
            let Some(step) = actor.steps.get(actor.at).cloned() else {
                return self.end(processor, thread);
            };
            match step {
                Step::Compute(work) => {
                    if actor.left == 0 {
                        actor.left = work;
                    }
                    if actor.left > 0 {
                        return self.begin_slice(processor, thread);
                    }
                    actor.at += 1;
                }
                Step::Barrier(at) => {
                    actor.at += 1;
                    let (size, waiting) = &mut self.barriers[at];
                    if waiting.len() + 1 < *size {
                        waiting.push(thread);
                        return self.block(processor);
                    }
                    for other in std::mem::take(waiting) {
                        self.framework.wake(other)?;
                    }
                }
                Step::Send(at) => {
                    let channel = &mut self.channels[at];
                    if channel.items == channel.room {
                        channel.senders.push(thread);
                        return self.block(processor);
                    }
                    channel.items += 1;
                    actor.at += 1;
                    for other in std::mem::take(&mut channel.receivers) {
                        self.framework.wake(other)?;
                    }
                }
                Step::Receive(at) => {
                    let channel = &mut self.channels[at];
                    if channel.items == 0 {
                        channel.receivers.push(thread);
                        return self.block(processor);
                    }
                    channel.items -= 1;
                    actor.at += 1;
                    for other in std::mem::take(&mut channel.senders) {
                        self.framework.wake(other)?;
                    }
                }
                Step::Spawn(plan) => {
                    actor.at += 1;
                    let parent = self.framework.view().parent(Entity::Thread(thread));
                    let bubble = self.make(parent, &plan, Some(thread))?;
                    self.framework.submit(Entity::Bubble(bubble))?;
                }
                Step::Join => {
                    if actor.made > 0 {
                        actor.joins = true;
                        return self.block(processor);
                    }
                    actor.joins = false;
                    actor.at += 1;
                }
            }
        }
    }

    fn block(&mut self, processor: ProcessorId) -> Result<(), SimulationError> {
        self.framework.block(processor)?;
        Ok(())
    }

    fn end(&mut self, processor: ProcessorId, thread: ThreadId) -> Result<(), SimulationError> {
        self.framework.end(processor)?;
        if let Some(maker) = self.actors[thread.0 as usize].maker {
            let actor = &mut self.actors[maker.0 as usize];
            actor.made -= 1;
            if actor.made == 0 && actor.joins {
                self.framework.wake(maker)?;
            }
        }
        Ok(())
    }

    /// Begins to compute, after what must be loaded.
    fn begin_slice(
        &mut self,
        processor: ProcessorId,
        thread: ThreadId,
    ) -> Result<(), SimulationError> {
        let (load, percent) = self.memory_costs(processor, thread)?;
        let debt = std::mem::take(&mut self.before[processor.0 as usize].1);
        let begin = self.now + debt + load;
        self.outcome.cold += load;
        let left = self.actors[thread.0 as usize].left;
        let most = (self.costs.quantum * 100 / percent).max(1);
        let work = left.min(most);
        self.slices += 1;
        let slice = Slice {
            begin,
            percent,
            work,
            number: self.slices,
        };
        self.running[processor.0 as usize] = Some(slice);
        let end = begin + (work * percent).div_ceil(100);
        self.come(end, Happening::SliceEnd(processor, slice.number));
        Ok(())
    }

    /// Time to load what is not in the processor's shared cache, and how long a hundred nanoseconds
    /// of computing take.
    fn memory_costs(
        &mut self,
        processor: ProcessorId,
        thread: ThreadId,
    ) -> Result<(u64, u64), SimulationError> {
        let view = self.framework.view();
        let machine = view.machine();
        let leaf = machine.leaf(processor);
        let (cache, node) = (machine.cache(leaf), machine.node(leaf));
        let entity = Entity::Thread(thread);
        let around = view.around(entity).map(Entity::Bubble);
        let used: Vec<(MemoryId, Access)> = std::iter::once(entity)
            .chain(around)
            .flat_map(|entity| view.attributes(entity).memory.iter().copied())
            .collect();
        let (mut load, mut weighted, mut total) = (0, 0, 0);
        for (memory, access) in used {
            let Some(found) = self.framework.view().memory(memory).copied() else {
                continue;
            };
            if found.node.is_none() {
                self.framework.set_node(memory, node)?;
            }
            let percent = self.distance_percent(node, found.node.unwrap_or(node));
            let held = self.caches.entry(cache).or_default();
            let loaded = held.touch(memory, found.bytes, self.costs.cache_bytes);
            load += loaded.div_ceil(1024) * self.costs.load_kib * percent / 100;
            weighted += found.bytes * percent;
            total += found.bytes;
            if access.writes() {
                let others = self.caches.iter_mut().filter(|(other, _)| **other != cache);
                others.for_each(|(_, held)| {
                    held.drop(memory);
                });
            }
        }
        let average = weighted.checked_div(total).unwrap_or(100);
        let traffic = self.actors[thread.0 as usize].traffic_percent;
        Ok((load, 100 - traffic + traffic * average / 100))
    }

    fn distance_percent(&self, one: PlaceId, other: PlaceId) -> u64 {
        let machine = self.framework.view().machine();
        match one == other {
            true => 100,
            false if machine.same_package(one, other) => self.costs.far_percent,
            false => self.costs.farther_percent,
        }
    }

    /// Counts what a processor has computed of its slice until now; returns its thread.
    fn account(&mut self, processor: ProcessorId) -> Result<ThreadId, SimulationError> {
        let thread = self.framework.view().runs(processor);
        let thread = thread.ok_or(FrameworkError::RunsNothing(processor))?;
        let Some(slice) = self.running[processor.0 as usize].take() else {
            return Ok(thread);
        };
        let elapsed = self.now.saturating_sub(slice.begin);
        let work = (elapsed * 100 / slice.percent).min(slice.work);
        self.outcome.work += work;
        self.outcome.far += elapsed.saturating_sub(work);
        let actor = &mut self.actors[thread.0 as usize];
        actor.left -= work;
        if actor.left == 0 && work > 0 {
            actor.at += 1;
        }
        let left = actor.left + computing(&actor.steps[actor.at..])
            - match actor.steps.get(actor.at) {
                Some(Step::Compute(whole)) if actor.left > 0 => *whole,
                _ => 0,
            };
        self.framework
            .update(Entity::Thread(thread), |attributes| {
                attributes.work_left = left;
            })?;
        Ok(thread)
    }

    fn preempt(&mut self, processor: ProcessorId) -> Result<(), SimulationError> {
        if self.running[processor.0 as usize].is_some() {
            self.account(processor)?;
            self.framework.yield_now(processor)?;
        }
        Ok(())
    }

    fn end_slice(&mut self, processor: ProcessorId) -> Result<(), SimulationError> {
        let thread = self.account(processor)?;
        let computes = self.actors[thread.0 as usize].left > 0;
        if computes && self.framework.view().next_for(processor).is_some() {
            self.framework.yield_now(processor)?;
            return Ok(());
        }
        self.go_on(processor, thread)
    }
}

/// Computing in all of these steps.
fn computing(steps: &[Step]) -> u64 {
    let each = steps.iter().map(|step| match step {
        Step::Compute(work) => *work,
        _ => 0,
    });
    each.sum()
}
