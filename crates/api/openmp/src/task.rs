//! Explicit tasks: who may run them, what they depend on, and who waits for them.
//!
//! A task that is ready stands in three lists: its team's, its parent's and its group's. Whoever
//! takes it out of one of them claims it; entries of claimed tasks are skipped.

use crate::icv::Icv;
use crate::parker::Parker;
use crate::team::Team;
use crate::thread::Code;
use garonne_sync::mutex::lock;
use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The thread that waits for something to become zero.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    is_set: AtomicBool,
    parker: Mutex<Option<Arc<Parker>>>,
}

impl Waiter {
    pub(crate) fn set(&self, parker: &Arc<Parker>) {
        *lock(&self.parker) = Some(parker.clone());
        self.is_set.store(true, Ordering::SeqCst);
    }

    pub(crate) fn clear(&self) {
        self.is_set.store(false, Ordering::SeqCst);
        *lock(&self.parker) = None;
    }

    pub(crate) fn notify(&self) {
        if self.is_set.load(Ordering::SeqCst)
            && let Some(parker) = &*lock(&self.parker)
        {
            parker.notify();
        }
    }
}

/// Tasks that are ready, of which some may have been claimed.
#[derive(Debug, Default)]
struct ReadyList(Mutex<VecDeque<Arc<Task>>>);

impl ReadyList {
    fn push(&self, task: &Arc<Task>) {
        let mut list = lock(&self.0);
        if list.len() == list.capacity() {
            list.retain(|task| !task.is_claimed());
        }
        list.push_back(task.clone());
    }

    /// Claims the youngest task of the highest priority.
    fn claim_youngest(&self) -> Option<Arc<Task>> {
        let mut list = lock(&self.0);
        if crate::icv::globals().max_priority > 0 {
            list.retain(|task| !task.is_claimed());
            let best = (0..list.len()).max_by_key(|at| list[*at].priority)?;
            return list.remove(best).filter(|task| task.claim());
        }
        while let Some(task) = list.pop_back() {
            if task.claim() {
                return Some(task);
            }
        }
        None
    }
}

/// Tasks of a group and of what they start.
#[derive(Debug)]
pub struct TaskGroup {
    pub(crate) previous: Option<Arc<TaskGroup>>,
    pub(crate) children: AtomicUsize,
    ready: ReadyList,
    pub(crate) waiter: Waiter,
    cancelled: AtomicBool,
    /// The group stands for a worksharing construct with task reductions.
    pub is_workshare: AtomicBool,
    /// Address of the registered reductions.
    pub reductions: AtomicUsize,
}

impl TaskGroup {
    /// A group inside of another one.
    pub fn new(previous: Option<Arc<TaskGroup>>) -> Arc<Self> {
        let reductions = previous
            .as_ref()
            .map(|p| p.reductions.load(Ordering::Acquire));
        Arc::new(Self {
            previous,
            children: AtomicUsize::new(0),
            ready: ReadyList::default(),
            waiter: Waiter::default(),
            cancelled: AtomicBool::new(false),
            is_workshare: AtomicBool::new(false),
            reductions: AtomicUsize::new(reductions.unwrap_or(0)),
        })
    }

    /// The group that `cancel` means: not that of a worksharing construct.
    fn meant(&self) -> &Self {
        match &self.previous {
            Some(previous) if self.is_workshare.load(Ordering::Acquire) => previous,
            _ => self,
        }
    }

    /// Tells whether the group was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) || self.meant().cancelled.load(Ordering::Acquire)
    }

    /// Cancels the group: its tasks that have not begun do not run.
    pub(crate) fn cancel(&self) {
        self.meant().cancelled.store(true, Ordering::Release);
    }
}

/// How a task depends on a storage location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependKind {
    /// Reads it.
    In,
    /// Writes it; `inout` and `mutexinoutset` too.
    Out,
}

/// A dependence of a task.
#[derive(Clone, Copy, Debug)]
pub struct Depend {
    /// Address of the storage location.
    pub address: usize,
    /// What the task does there.
    pub kind: DependKind,
}

/// What a program asks for that creates a task.
#[derive(Debug)]
pub struct TaskRequest {
    /// What runs.
    pub code: Code,
    /// Memory that the code needs, kept until it has run.
    pub keep: Option<Box<dyn Any + Send>>,
    /// The task and all that it starts run at once.
    pub is_final: bool,
    /// The task's arguments were constructed, so it runs even if it is cancelled.
    pub must_run: bool,
    /// How urgent it is.
    pub priority: i32,
    /// What it depends on.
    pub depends: Vec<Depend>,
    /// Number of the event that must be fulfilled before the task counts as done.
    pub event: Option<usize>,
}

/// Who reads and writes a storage location: the last tasks that said so.
#[derive(Debug, Default)]
struct Location {
    writer: Option<Arc<Task>>,
    readers: Vec<Arc<Task>>,
}

/// What a task keeps under its lock.
#[derive(Debug, Default)]
struct TaskState {
    is_done: bool,
    successors: Vec<Arc<Task>>,
    /// Storage locations that its children named.
    locations: HashMap<usize, Location>,
    parent: Option<Arc<Task>>,
    keep: Option<Keep>,
}

/// Memory of a task's arguments.
struct Keep(#[allow(dead_code, reason = "dropped with the task")] Box<dyn Any + Send>);

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keep")
    }
}

/// A task: implicit, or explicit.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) code: Option<Code>,
    pub(crate) group: Option<Arc<TaskGroup>>,
    pub(crate) icv: Icv,
    pub(crate) is_final: bool,
    pub(crate) must_run: bool,
    priority: i32,
    /// Tasks and registrations that must end before it is ready.
    pub(crate) missing: AtomicUsize,
    claimed: AtomicBool,
    pub(crate) children: AtomicUsize,
    ready_children: ReadyList,
    pub(crate) waiter: Waiter,
    event: Option<Arc<Event>>,
    state: Mutex<TaskState>,
}

impl Task {
    fn make(code: Option<Code>, group: Option<Arc<TaskGroup>>, icv: Icv) -> Self {
        Self {
            code,
            group,
            icv,
            is_final: false,
            must_run: false,
            priority: 0,
            missing: AtomicUsize::new(1),
            claimed: AtomicBool::new(false),
            children: AtomicUsize::new(0),
            ready_children: ReadyList::default(),
            waiter: Waiter::default(),
            event: None,
            state: Mutex::default(),
        }
    }

    /// The task that a thread of a team is.
    pub(crate) fn implicit(icv: Icv) -> Arc<Self> {
        Arc::new(Self::make(None, None, icv))
    }

    pub(crate) fn explicit(
        request: TaskRequest,
        parent: &Arc<Task>,
        group: Option<Arc<TaskGroup>>,
        icv: Icv,
    ) -> (Arc<Self>, Vec<Depend>) {
        let mut task = Self::make(Some(request.code), group, icv);
        task.is_final = request.is_final || parent.is_final;
        task.must_run = request.must_run;
        task.priority = request.priority.min(crate::icv::globals().max_priority);
        task.event = request.event.and_then(find_event);
        let state = task
            .state
            .get_mut()
            .unwrap_or_else(|error| error.into_inner());
        state.parent = Some(parent.clone());
        state.keep = request.keep.map(Keep);
        (Arc::new(task), request.depends)
    }

    fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    /// Claims a child that is ready.
    pub(crate) fn claim_child(&self) -> Option<Arc<Task>> {
        self.ready_children.claim_youngest()
    }

    /// Makes `task` wait for tasks that other children of this task made known. `joins`: later ones
    /// wait for it in turn.
    pub(crate) fn add_dependences(&self, task: &Arc<Task>, depends: &[Depend], joins: bool) {
        let mut own = lock(&self.state);
        let follow = |before: &Arc<Task>| {
            if Arc::ptr_eq(before, task) {
                return;
            }
            let mut state = lock(&before.state);
            if !state.is_done {
                task.missing.fetch_add(1, Ordering::AcqRel);
                state.successors.push(task.clone());
            }
        };
        for depend in depends {
            let location = own.locations.entry(depend.address).or_default();
            match depend.kind {
                DependKind::In => {
                    location.writer.iter().for_each(follow);
                    if joins {
                        if location.readers.len() == location.readers.capacity() {
                            location
                                .readers
                                .retain(|reader| !lock(&reader.state).is_done);
                        }
                        location.readers.push(task.clone());
                    }
                }
                DependKind::Out => {
                    // Readers since the last writer wait for it already.
                    location.writer.iter().for_each(follow);
                    location.readers.iter().for_each(follow);
                    if joins {
                        location.readers.clear();
                        location.writer = Some(task.clone());
                    }
                }
            }
        }
    }

    /// Frees what the task's code needed.
    pub(crate) fn drop_arguments(&self) {
        let keep = lock(&self.state).keep.take();
        drop(keep);
    }

    /// The code has run: the task ends, unless its event must come first.
    pub(crate) fn ended(self: &Arc<Self>, team: &Arc<Team>) {
        self.drop_arguments();
        if let Some(event) = &self.event
            && !event.body_ended(self, team)
        {
            return;
        }
        self.complete(team);
    }

    /// The task is done: tasks that depend on it are ready, and waits for it end.
    fn complete(self: &Arc<Self>, team: &Arc<Team>) {
        let (successors, locations, parent) = {
            let mut state = lock(&self.state);
            state.is_done = true;
            let successors = std::mem::take(&mut state.successors);
            let locations = std::mem::take(&mut state.locations);
            (successors, locations, state.parent.take())
        };
        drop(locations);
        for task in successors {
            task.one_less_missing(team);
        }
        if let Some(group) = &self.group
            && group.children.fetch_sub(1, Ordering::SeqCst) == 1
        {
            group.waiter.notify();
        }
        if let Some(parent) = parent
            && parent.children.fetch_sub(1, Ordering::SeqCst) == 1
        {
            parent.waiter.notify();
        }
        team.tasks.one_done(team);
    }

    /// Something that the task waited for has ended. The last such makes it ready.
    pub(crate) fn one_less_missing(self: &Arc<Self>, team: &Arc<Team>) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        if self.code.is_none() {
            // The mark of a thread that waits for dependences.
            self.waiter.notify();
            return;
        }
        team.tasks.push(self);
        let parent = lock(&self.state).parent.clone();
        if let Some(parent) = parent {
            parent.ready_children.push(self);
            parent.waiter.notify();
        }
        if let Some(group) = &self.group {
            group.ready.push(self);
            group.waiter.notify();
        }
        team.wake_idle();
    }
}

impl TaskGroup {
    pub(crate) fn claim(&self) -> Option<Arc<Task>> {
        self.ready.claim_youngest()
    }
}

/// Tasks of a team.
#[derive(Debug, Default)]
pub(crate) struct TaskPool {
    /// Tasks that are not done.
    pending: AtomicUsize,
    /// Tasks that are ready and not claimed, about.
    queued: AtomicUsize,
    ready: Mutex<VecDeque<Arc<Task>>>,
    urgent: Mutex<BTreeMap<Reverse<i32>, VecDeque<Arc<Task>>>>,
}

impl TaskPool {
    pub(crate) fn one_more(&self) {
        self.pending.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn are_done(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    fn one_done(&self, team: &Team) {
        // Before the count falls: the barrier in which all may wait cannot open until then.
        let generations = team.generations();
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
            team.tasks_are_done(generations);
        }
    }

    fn push(&self, task: &Arc<Task>) {
        self.queued.fetch_add(1, Ordering::SeqCst);
        if task.priority > 0 {
            let mut urgent = lock(&self.urgent);
            let level = urgent.entry(Reverse(task.priority)).or_default();
            level.push_back(task.clone());
        } else {
            let mut ready = lock(&self.ready);
            if ready.len() == ready.capacity() {
                ready.retain(|task| !task.is_claimed());
            }
            ready.push_back(task.clone());
        }
    }

    /// A task that was claimed through another list.
    pub(crate) fn note_claimed(&self) {
        self.queued.fetch_sub(1, Ordering::SeqCst);
    }

    /// Claims a task that is ready.
    pub(crate) fn claim(&self) -> Option<Arc<Task>> {
        if self.queued.load(Ordering::SeqCst) == 0 {
            return None;
        }
        if crate::icv::globals().max_priority > 0 {
            let mut urgent = lock(&self.urgent);
            for level in urgent.values_mut() {
                while let Some(task) = level.pop_front() {
                    if task.claim() {
                        return Some(task);
                    }
                }
            }
        }
        let mut ready = lock(&self.ready);
        while let Some(task) = ready.pop_front() {
            if task.claim() {
                return Some(task);
            }
        }
        None
    }
}

/// An event that a detached task waits for.
#[derive(Debug, Default)]
struct Event(Mutex<EventState>);

#[derive(Debug, Default)]
struct EventState {
    is_fulfilled: bool,
    /// A task whose code has run.
    ended: Option<(Arc<Task>, Arc<Team>)>,
    waiter: Option<Arc<Parker>>,
}

impl Event {
    /// The task's code has run. `true`: the event has come.
    fn body_ended(&self, task: &Arc<Task>, team: &Arc<Team>) -> bool {
        let mut state = lock(&self.0);
        if !state.is_fulfilled {
            state.ended = Some((task.clone(), team.clone()));
        }
        state.is_fulfilled
    }
}

/// Events that nobody has fulfilled, by the numbers that programs know.
static EVENTS: Mutex<BTreeMap<usize, Arc<Event>>> = Mutex::new(BTreeMap::new());

/// A new event.
pub fn new_event() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    let number = NEXT.fetch_add(16, Ordering::Relaxed);
    lock(&EVENTS).insert(number, Arc::default());
    number
}

fn find_event(number: usize) -> Option<Arc<Event>> {
    lock(&EVENTS).get(&number).cloned()
}

/// Fulfills an event. `false`: there is none, or it was fulfilled before.
pub fn fulfill_event(number: usize) -> bool {
    let Some(event) = lock(&EVENTS).remove(&number) else {
        return false;
    };
    let (ended, waiter) = {
        let mut state = lock(&event.0);
        state.is_fulfilled = true;
        (state.ended.take(), state.waiter.take())
    };
    if let Some(waiter) = waiter {
        waiter.notify();
    }
    if let Some((task, team)) = ended {
        task.complete(&team);
    }
    true
}

impl Task {
    /// Waits for the event of a task that runs at once.
    pub(crate) fn await_event(&self, parker: &Arc<Parker>, work: impl FnMut() -> bool) {
        if let Some(event) = &self.event {
            lock(&event.0).waiter = Some(parker.clone());
            crate::parker::wait_until(parker, || lock(&event.0).is_fulfilled, work);
        }
    }
}
