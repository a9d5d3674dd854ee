//! A framework of bubbles as the guest scheduler of a machine's workers.
//!
//! What wakes fibers only puts them into the inbox, so that no scheduler decides anything on the
//! small stack of a fiber, or under a lock of the library. A worker that asks for its next fiber
//! empties the inbox first. All else is behind one lock, taken once for each switch.

use crate::recording::Recording;
use crate::{BubbleError, ENV_BUBBLES, ENV_BUBBLES_TRACE};
use garonne_bubbles::{
    BubbleId, BubbleState, Entity, Framework, Machine, PlaceId, ProcessorId, ThreadId, ThreadState,
};
use garonne_fiber::{Completion, GuestHost, GuestScheduler, ReadyFiber};
use garonne_sync::mutex::lock;
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Name of the scheduler that a process has which names none.
const DEFAULT: &str = "spread";

/// What a scheduler did as yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Name of the scheduler in force.
    pub scheduler: String,
    /// Moves that were carried out.
    pub moves: u64,
    /// Moves that were refused.
    pub refused: u64,
    /// Threads that ran although the scheduler gave them to nobody, since nothing else could run.
    pub rescued: u64,
    /// The last failure of a scheduler, in words.
    pub fault: Option<String>,
}

/// Bubbles, the fibers in them that are ready, and what waits for bubbles.
pub(crate) struct State {
    pub(crate) framework: Framework,
    /// Fibers that are in the inbox or below, and whose bubbles were submitted.
    held: Arc<AtomicUsize>,
    /// Ready fibers, by the number of their thread.
    fibers: Vec<Option<ReadyFiber>>,
    /// The end of each bubble, by number, and whether somebody still has a handle.
    bubbles: Vec<Option<BubbleEnd>>,
    recording: Option<Recording>,
    /// The scheduler's failure was said.
    fault_is_told: bool,
}

#[derive(Debug)]
struct BubbleEnd {
    end: Arc<Completion>,
    has_handle: bool,
}

/// The guest; see the module's paragraph.
pub(crate) struct BubbleRuntime {
    host: GuestHost,
    processors: Box<[ProcessorId]>,
    held: Arc<AtomicUsize>,
    inbox: Mutex<Vec<ReadyFiber>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for BubbleRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BubbleRuntime").finish_non_exhaustive()
    }
}

/// The runtime of the machine on which the caller's fibers run.
pub(crate) fn runtime() -> Result<Arc<BubbleRuntime>, BubbleError> {
    let named = std::env::var(ENV_BUBBLES).unwrap_or_default();
    let name = if named.is_empty() { DEFAULT } else { &named };
    let mut failure = None;
    let guest = garonne_fiber::guest(|host| {
        let (runtime, error) = BubbleRuntime::new(host, name);
        failure = error;
        Arc::new(runtime)
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let guest: Arc<dyn Any + Send + Sync> = guest;
    Ok(guest
        .downcast::<BubbleRuntime>()
        .expect("this crate alone has a guest"))
}

impl BubbleRuntime {
    /// A runtime, also if the scheduler's name or the file is wrong: then the stock one serves.
    fn new(host: GuestHost, name: &str) -> (Self, Option<BubbleError>) {
        let machine = Machine::new(&host.machine());
        let cpus = host.worker_cpus();
        let processor = |cpu: u32| machine.processors().find(|it| machine.cpu(*it) == cpu);
        let processors = cpus
            .iter()
            .map(|cpu| processor(*cpu).unwrap_or(ProcessorId(0)))
            .collect();
        let (scheduler, mut failure) = match garonne_bubble_modules::by_name(name) {
            Ok(scheduler) => (scheduler, None),
            Err(error) => (stock(), Some(error.into())),
        };
        let mut framework = Framework::new(machine, scheduler);
        let path = std::env::var(ENV_BUBBLES_TRACE).unwrap_or_default();
        let mut recording = None;
        if !path.is_empty() {
            let title = format!("bubble scheduler {name}");
            match Recording::create(&path, framework.view().machine(), title) {
                Ok(file) => {
                    recording = Some(file);
                    framework.keep_records();
                }
                Err(error) => failure = Some(BubbleError::Trace(path, error)),
            }
        }
        let held = Arc::new(AtomicUsize::new(0));
        let state = State {
            framework,
            held: held.clone(),
            fibers: Vec::new(),
            bubbles: Vec::new(),
            recording,
            fault_is_told: false,
        };
        let runtime = Self {
            host,
            processors,
            held,
            inbox: Mutex::default(),
            state: Mutex::new(state),
        };
        (runtime, failure)
    }

    /// Changes bubbles, and wakes workers for what became ready. Runs on the worker's stack: what a
    /// scheduler needs of a stack is not a fiber's to know.
    pub(crate) fn change<R: Send>(&self, change: impl FnOnce(&mut State) -> R + Send) -> R {
        let result = garonne_fiber::on_worker_stack(|| {
            let mut state = lock(&self.state);
            state.framework.set_now(self.host.now());
            let result = change(&mut state);
            state.tell_fault();
            result
        });
        if self.has_ready() {
            self.host.wake(None);
        }
        result
    }

    /// Puts a new fiber into a bubble.
    pub(crate) fn add(
        &self,
        bubble: BubbleId,
        attributes: garonne_bubbles::Attributes,
        fiber: ReadyFiber,
    ) -> Result<(), BubbleError> {
        let refused = self.change(move |state| {
            let thread = state.framework.add_thread(Some(bubble), attributes);
            let thread = match thread {
                Ok(thread) => thread,
                Err(error) => return Some((error, fiber)),
            };
            fiber.set_number(u64::from(thread.0));
            let is_submitted = state.is_submitted(bubble);
            state
                .held
                .fetch_add(usize::from(is_submitted), Ordering::SeqCst);
            state.store(thread, fiber);
            None
        });
        match refused {
            Some((error, fiber)) => {
                fiber.discard();
                Err(error.into())
            }
            None => Ok(()),
        }
    }

    /// Takes in what was woken. Returns the places of what this worker cannot run.
    fn empty_inbox(&self, state: &mut State, leaf: PlaceId) -> Vec<usize> {
        let woken = std::mem::take(&mut *lock(&self.inbox));
        let mut elsewhere = Vec::new();
        for fiber in woken {
            let thread = ThreadId(fiber.number() as u32);
            state.store(thread, fiber);
            state.make_ready(thread);
            if !state.is_thread_submitted(thread) {
                // It is counted when the bubble is submitted.
                state.held.fetch_sub(1, Ordering::SeqCst);
            }
            let view = state.framework.view();
            let entity = Entity::Thread(thread);
            let queued = std::iter::once(entity)
                .chain(view.around(entity).map(Entity::Bubble))
                .find_map(|entity| view.queued_at(entity));
            if let Some(place) = queued.filter(|place| !view.machine().is_within(leaf, *place)) {
                elsewhere.push(place.0 as usize);
            }
        }
        elsewhere
    }
}

fn stock() -> Box<dyn garonne_bubbles::BubbleScheduler> {
    Box::new(garonne_bubbles::schedulers::SpreadScheduler)
}

impl State {
    fn store(&mut self, thread: ThreadId, fiber: ReadyFiber) {
        let at = thread.0 as usize;
        if self.fibers.len() <= at {
            self.fibers.resize_with(at + 1, || None);
        }
        self.fibers[at] = Some(fiber);
    }

    fn thread_state(&self, thread: ThreadId) -> Option<ThreadState> {
        self.framework.view().thread(thread).map(|it| it.state)
    }

    /// The fiber that a processor runs next. A thread whose fiber has not come yet waits for it.
    fn next_fiber(&mut self, processor: ProcessorId) -> Option<ReadyFiber> {
        loop {
            let thread = self.framework.next(processor).ok().flatten()?;
            let stored = self.fibers.get_mut(thread.0 as usize);
            if let Some(fiber) = stored.and_then(Option::take) {
                return Some(fiber);
            }
            let done = self.framework.block(processor);
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }

    /// How many ready fibers are in a bubble or thread.
    fn stored_in(&self, entity: Entity) -> usize {
        match entity {
            Entity::Thread(thread) => {
                let stored = self.fibers.get(thread.0 as usize);
                usize::from(stored.is_some_and(Option::is_some))
            }
            Entity::Bubble(bubble) => {
                let children = self.framework.view().children(bubble).iter();
                children.map(|child| self.stored_in(*child)).sum()
            }
        }
    }

    /// The thread let others run, or was woken.
    fn make_ready(&mut self, thread: ThreadId) {
        let done = match self.thread_state(thread) {
            Some(ThreadState::Running(processor)) => {
                self.framework.yield_now(processor).map(|_| ())
            }
            Some(ThreadState::Blocked) => self.framework.wake(thread),
            _ => Ok(()),
        };
        debug_assert!(done.is_ok(), "{done:?}");
    }

    /// The thread waits, if it ran.
    fn block(&mut self, thread: ThreadId) {
        if let Some(ThreadState::Running(processor)) = self.thread_state(thread) {
            let done = self.framework.block(processor);
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }

    /// The thread has ended. Returns who waits for bubbles that ended with it.
    pub(crate) fn end(&mut self, thread: ThreadId) -> Vec<Arc<Completion>> {
        let around: Vec<BubbleId> = {
            let view = self.framework.view();
            view.around(Entity::Thread(thread)).collect()
        };
        let done = match self.thread_state(thread) {
            Some(ThreadState::Running(processor)) => self.framework.end(processor).map(|_| ()),
            _ => self.framework.withdraw(thread),
        };
        debug_assert!(done.is_ok(), "{done:?}");
        self.release(Entity::Thread(thread));
        self.ended_of(&around)
    }

    /// Who waits for those of these bubbles that have ended.
    fn ended_of(&mut self, bubbles: &[BubbleId]) -> Vec<Arc<Completion>> {
        let mut ends = Vec::new();
        for bubble in bubbles {
            let has_ended = self
                .framework
                .view()
                .bubble(*bubble)
                .is_some_and(|bubble| bubble.state == BubbleState::Ended);
            let known = self.bubbles.get_mut(bubble.0 as usize);
            let Some(Some(known)) = known.filter(|_| has_ended) else {
                break;
            };
            ends.push(known.end.clone());
            if !known.has_handle {
                self.bubbles[bubble.0 as usize] = None;
                self.release(Entity::Bubble(*bubble));
            }
        }
        if ends.iter().any(|end| !end.is_set()) {
            self.write_records();
        }
        ends
    }

    /// Frees a number. While decisions are recorded each bubble and thread keeps its own.
    fn release(&mut self, entity: Entity) {
        if self.recording.is_none() {
            let done = self.framework.release(entity);
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }

    /// A new bubble has a handle, which keeps it open.
    pub(crate) fn begin(
        &mut self,
        parent: Option<BubbleId>,
        attributes: garonne_bubbles::Attributes,
    ) -> Result<(BubbleId, Arc<Completion>), BubbleError> {
        let bubble = self.framework.add_bubble(parent, attributes)?;
        self.framework.keep_open(bubble)?;
        let end = Arc::new(Completion::new());
        let at = bubble.0 as usize;
        if self.bubbles.len() <= at {
            self.bubbles.resize_with(at + 1, || None);
        }
        self.bubbles[at] = Some(BubbleEnd {
            end: end.clone(),
            has_handle: true,
        });
        Ok((bubble, end))
    }

    /// Submits a bubble if nobody has.
    pub(crate) fn submit(&mut self, bubble: BubbleId) -> Result<(), BubbleError> {
        let entity = Entity::Bubble(bubble);
        let is_new = |state: &Self| {
            let found = state.framework.view().bubble(bubble);
            found.is_some_and(|bubble| bubble.state == BubbleState::New)
        };
        let ready = match is_new(self) {
            true => self.stored_in(entity),
            false => 0,
        };
        let submitted = self.framework.submit(entity);
        if !is_new(self) {
            self.held.fetch_add(ready, Ordering::SeqCst);
        }
        match submitted {
            Ok(()) | Err(garonne_bubbles::FrameworkError::Submitted(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells whether a bubble was submitted, and all around it.
    fn is_submitted(&self, bubble: BubbleId) -> bool {
        let view = self.framework.view();
        std::iter::once(bubble)
            .chain(view.around(Entity::Bubble(bubble)))
            .filter_map(|bubble| view.bubble(bubble))
            .all(|bubble| bubble.state != BubbleState::New)
    }

    fn is_thread_submitted(&self, thread: ThreadId) -> bool {
        let around = self.framework.view().parent(Entity::Thread(thread));
        around.is_none_or(|bubble| self.is_submitted(bubble))
    }

    /// Nothing more is put into a bubble: it may end.
    pub(crate) fn close(&mut self, bubble: BubbleId) -> Vec<Arc<Completion>> {
        let around: Vec<BubbleId> = std::iter::once(bubble)
            .chain(self.framework.view().around(Entity::Bubble(bubble)))
            .collect();
        match self.framework.let_end(bubble) {
            Ok(()) => self.ended_of(&around),
            Err(_) => Vec::new(),
        }
    }

    /// The program has no handle of a bubble any more.
    pub(crate) fn forget(&mut self, bubble: BubbleId) {
        let has_ended = self.framework.view().has_ended(Entity::Bubble(bubble));
        let Some(Some(known)) = self.bubbles.get_mut(bubble.0 as usize) else {
            return;
        };
        known.has_handle = false;
        if has_ended {
            self.bubbles[bubble.0 as usize] = None;
            self.release(Entity::Bubble(bubble));
        }
    }

    fn write_records(&mut self) {
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.write(&mut self.framework)
        {
            eprintln!("garonne: the file of {ENV_BUBBLES_TRACE} ends here: {error}");
            self.recording = None;
        }
    }

    fn tell_fault(&mut self) {
        if !self.fault_is_told
            && let Some(fault) = self.framework.last_fault()
        {
            eprintln!("garonne: {fault}");
            self.fault_is_told = true;
        }
    }
}

impl GuestScheduler for BubbleRuntime {
    fn ready(&self, fiber: ReadyFiber) -> Option<usize> {
        // Counted first: whoever sees the count looks into the inbox.
        self.held.fetch_add(1, Ordering::SeqCst);
        lock(&self.inbox).push(fiber);
        None
    }

    fn next(&self, worker: usize) -> Option<ReadyFiber> {
        let processor = *self.processors.get(worker)?;
        let mut state = lock(&self.state);
        let state = &mut *state;
        state.framework.set_now(self.host.now());
        let leaf = state.framework.view().machine().leaf(processor);
        let elsewhere = self.empty_inbox(state, leaf);
        if state.framework.view().runs(processor).is_some() {
            // Its worker is stuck in the kernel, and this one replaces it.
            let _ = state.framework.block(processor);
        }
        let found = state.next_fiber(processor);
        // Fibers leave by themselves; nobody can be preempted.
        state.framework.to_preempt();
        state.tell_fault();
        if found.is_some() {
            self.held.fetch_sub(1, Ordering::SeqCst);
        }
        for place in elsewhere {
            self.host.wake(Some(place));
        }
        found
    }

    fn has_ready(&self) -> bool {
        self.held.load(Ordering::SeqCst) != 0
    }

    fn blocks(&self, number: u64) {
        let mut state = lock(&self.state);
        state.framework.set_now(self.host.now());
        state.block(ThreadId(number as u32));
    }

    fn ended(&self, number: u64) {
        let ends = {
            let mut state = lock(&self.state);
            state.framework.set_now(self.host.now());
            state.end(ThreadId(number as u32))
        };
        ends.iter().for_each(|end| end.set());
    }

    fn tick(&self) {
        let mut state = lock(&self.state);
        state.framework.set_now(self.host.now());
        state.framework.tick();
        state.tell_fault();
        state.write_records();
    }
}

/// Tells whether the environment says something of bubbles: their scheduler, or a file.
pub fn is_asked_for() -> bool {
    [ENV_BUBBLES, ENV_BUBBLES_TRACE]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Puts another scheduler in force: a stock one by name, or a module by its file.
///
/// # Errors
/// There is none; the old one stays.
pub fn set_scheduler(name: &str) -> Result<(), BubbleError> {
    let scheduler = garonne_bubble_modules::by_name(name)?;
    runtime()?.change(|state| {
        state.fault_is_told = false;
        // Its code may be a module's: it is dropped while that is loaded, which is for ever.
        drop(state.framework.swap(scheduler));
    });
    Ok(())
}

/// Name of the scheduler in force.
///
/// # Errors
/// The environment names none.
pub fn scheduler() -> Result<String, BubbleError> {
    Ok(activity()?.scheduler)
}

/// What the scheduler did as yet.
///
/// # Errors
/// The environment names none.
pub fn activity() -> Result<Activity, BubbleError> {
    Ok(runtime()?.change(|state| {
        let counts = state.framework.counts();
        Activity {
            scheduler: state.framework.scheduler().to_owned(),
            moves: counts.moves,
            refused: counts.refused,
            rescued: counts.rescued,
            fault: state.framework.last_fault().map(ToString::to_string),
        }
    }))
}

/// Says how much work the calling fiber has left, in ns, for schedulers that weigh it. `false`: it
/// is in no bubble.
pub fn set_work_left(work: u64) -> bool {
    let (Some(number), Ok(runtime)) = (garonne_fiber::guest_number(), runtime()) else {
        return false;
    };
    let entity = Entity::Thread(ThreadId(number as u32));
    runtime.change(|state| {
        let set = |attributes: &mut garonne_bubbles::Attributes| attributes.work_left = work;
        state.framework.update(entity, set).is_ok()
    })
}
