//! A thread of OpenMP: where it is, and what the entry points ask of it.

use crate::binding::distribute;
use crate::icv::{Icv, ProcBind, globals};
use crate::limits::{NESTED_TASKS_MAX, TASKS_PER_THREAD, TEAM_MAX};
use crate::loops::{Cursor, LoopRequest, Share};
use crate::parker::{self, Parker};
use crate::pool::{self, Assignment, Dock};
use crate::task::{Depend, Task, TaskGroup, TaskRequest};
use crate::team::Team;
use crate::team_bubble;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Compiled code of the program: a function and its argument, by address.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// Calls the function with the argument.
    pub call: fn(usize, usize),
    /// Address of the function.
    pub function: usize,
    /// Address of its argument.
    pub argument: usize,
}

impl Code {
    /// Runs it.
    pub fn run(&self) {
        (self.call)(self.function, self.argument);
    }
}

/// The task that a thread is in.
#[derive(Clone, Debug)]
struct Current {
    task: Arc<Task>,
    group: Option<Arc<TaskGroup>>,
    icv: Icv,
}

/// A handle of a team that one thread has.
#[derive(Debug)]
struct TeamHandle(Arc<Team>);

impl std::ops::Deref for TeamHandle {
    type Target = Arc<Team>;

    fn deref(&self) -> &Arc<Team> {
        &self.0
    }
}

/// Where a thread is: its part in the innermost team.
#[derive(Debug)]
struct Context {
    /// A handle of the thread's own: clones of it touch no word that the team's threads share.
    team: Rc<TeamHandle>,
    number: usize,
    current: Current,
    share: Option<Arc<Share>>,
    cursor: Cursor,
    /// Worksharing constructs, and `single` constructs, that the thread has met in this region.
    shares: u64,
    singles: u64,
    place: Option<usize>,
    partition: (usize, usize),
    /// Threads 1 and on of the team that this thread started.
    docks: Vec<Arc<Dock>>,
}

impl Context {
    /// In a box, since contexts change places at each region's begin and end.
    fn new(team: Arc<Team>, number: usize, icv: Icv, group: Option<Arc<TaskGroup>>) -> Box<Self> {
        Box::new(Self {
            team: Rc::new(TeamHandle(team)),
            number,
            current: Current {
                task: Task::implicit(icv),
                group,
                icv,
            },
            share: None,
            cursor: Cursor::default(),
            shares: 0,
            singles: 0,
            place: None,
            partition: (0, globals().places.len()),
            docks: Vec::new(),
        })
    }
}

/// A parallel region that is about to begin.
#[derive(Debug)]
pub struct Region {
    /// What its threads run.
    pub code: Code,
    /// Threads asked for; 0: as the control variable says.
    pub threads: u32,
    /// Sections inside, which bound the threads where their number may vary; 0: unknown.
    pub sections: u32,
    /// Clause `proc_bind`, as the compiler numbers it; 0: none.
    pub bind: u32,
    /// The group of its implicit tasks, which has reductions.
    pub group: Option<Arc<TaskGroup>>,
    /// A loop that it begins with.
    pub first_loop: Option<LoopRequest>,
}

/// A thread that runs OpenMP code. Only the thread itself has it.
#[derive(Debug)]
pub struct Thread {
    parker: Arc<Parker>,
    context: RefCell<Box<Context>>,
    /// Contexts of the regions around the innermost one.
    #[allow(clippy::vec_box, reason = "they go in and out of `context`")]
    outer: RefCell<Vec<Box<Context>>>,
    /// Threads of its outermost teams, so that the same thread has the same number each time.
    pool: RefCell<Vec<Arc<Dock>>>,
    /// Number in the league, and the league's size less 1.
    league: Cell<(u32, u32)>,
    /// Tasks that run inside of each other, each from where it was created.
    nested_tasks: Cell<u32>,
    is_initial: bool,
    id: u32,
}

/// Gives a thread's pool back when the thread ends.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Ok(Some(thread)) = CURRENT.try_with(Cell::get) {
            pool::give_back(std::mem::take(&mut thread.pool.borrow_mut()));
        }
    }
}

thread_local! {
    static CURRENT: Cell<Option<&'static Thread>> = const { Cell::new(None) };
    static AT_EXIT: AtExit = const { AtExit };
}

/// The thread that calls this.
#[inline]
pub fn current() -> &'static Thread {
    match CURRENT.get() {
        Some(thread) => thread,
        None => make(Arc::default(), true),
    }
}

/// The calling fiber becomes a thread of teams.
pub(crate) fn adopt(parker: Arc<Parker>) -> &'static Thread {
    make(parker, false)
}

/// Numbers the threads of the process.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

#[cold]
fn make(parker: Arc<Parker>, is_initial: bool) -> &'static Thread {
    let team = Arc::new(Team::new(None, vec![parker.clone()]));
    let mut context = Context::new(team, 0, globals().initial, None);
    if is_initial && globals().initial.bind != ProcBind::False {
        context.place = Some(0);
    }
    // The compiled code may ask for its thread as long as there is one.
    let thread = &*Box::leak(Box::new(Thread {
        parker,
        context: RefCell::new(context),
        outer: RefCell::default(),
        pool: RefCell::default(),
        league: Cell::new((0, 0)),
        nested_tasks: Cell::new(0),
        is_initial,
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
    }));
    CURRENT.set(Some(thread));
    if is_initial {
        let _ = AT_EXIT.try_with(|_| ());
    }
    thread
}

impl Thread {
    /// The thread's number in its team.
    pub fn number(&self) -> usize {
        self.context.borrow().number
    }

    /// The thread's team.
    pub fn team(&self) -> Arc<Team> {
        Arc::clone(&self.context.borrow().team)
    }

    fn own_team(&self) -> Rc<TeamHandle> {
        self.context.borrow().team.clone()
    }

    /// Number of threads in the team.
    pub fn team_size(&self) -> usize {
        self.context.borrow().team.size
    }

    /// Control variables of the current task.
    pub fn icv(&self) -> Icv {
        self.context.borrow().current.icv
    }

    /// Changes control variables of the current task.
    pub fn set_icv(&self, change: impl FnOnce(&mut Icv)) {
        change(&mut self.context.borrow_mut().current.icv);
    }

    /// The thread's number in the league, and the league's size.
    pub fn league(&self) -> (u32, u32) {
        let (number, others) = self.league.get();
        (number, others + 1)
    }

    /// Sets the thread's number in a league of this size.
    pub fn set_league(&self, number: u32, size: u32) {
        self.league.set((number, size.saturating_sub(1)));
    }

    /// Tells whether the current task is final.
    pub fn in_final(&self) -> bool {
        self.context.borrow().current.task.is_final
    }

    /// A number of the current task, which no other task that is alive has.
    pub fn task_id(&self) -> usize {
        Arc::as_ptr(&self.context.borrow().current.task) as usize
    }

    /// A number of the thread, which no other thread has.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The thread's place.
    pub fn place(&self) -> Option<usize> {
        self.context.borrow().place
    }

    /// First place of the thread's partition, and its length.
    pub fn partition(&self) -> (usize, usize) {
        self.context.borrow().partition
    }

    /// Number and team size of the ancestor at a level; `None`: there is no such level.
    pub fn ancestor(&self, level: u32) -> Option<(usize, usize)> {
        let context = self.context.borrow();
        let (mut team, mut number) = (Arc::clone(&context.team), context.number);
        if level > team.level {
            return None;
        }
        while team.level > level {
            let (outer, at) = team.parent.clone()?;
            (team, number) = (outer, at);
        }
        Some((number, team.size))
    }

    /// Number of threads that a region has.
    fn resolve(&self, region: &Region) -> usize {
        let context = self.context.borrow();
        let (team, icv) = (&context.team, context.current.icv);
        if region.threads == 1 || team.active_level >= icv.max_active_levels || pool::is_forked() {
            return 1;
        }
        let mut threads = match region.threads {
            0 => icv.threads,
            threads => threads,
        };
        if icv.dynamic {
            threads = threads.min(globals().cpus.len().max(1) as u32);
            if region.sections != 0 {
                threads = threads.min(region.sections);
            }
        }
        if icv.thread_limit != u32::MAX {
            // What teams around this one have is taken.
            let (mut taken, mut outer) = (0, Some(Arc::clone(team)));
            while let Some(team) = outer {
                taken += team.size as u32 - 1;
                outer = team.parent.as_ref().map(|(team, _)| team.clone());
            }
            threads = threads.min(icv.thread_limit.saturating_sub(taken).max(1));
        }
        (threads.max(1) as usize).min(TEAM_MAX)
    }

    /// Number of threads that a region would have.
    pub fn threads_of(&self, region: &Region) -> usize {
        self.resolve(region)
    }

    /// Runs code as the initial thread of a device that this host is.
    pub fn run_as_initial(&self, code: Code, thread_limit: u32) {
        let team = Arc::new(Team::new(None, vec![self.parker.clone()]));
        let mut icv = globals().initial;
        if thread_limit != 0 {
            icv.thread_limit = thread_limit;
        }
        let context = Context::new(team, 0, icv, None);
        let before = std::mem::replace(&mut *self.context.borrow_mut(), context);
        self.outer.borrow_mut().push(before);
        let league = self.league.replace((0, 0));
        code.run();
        self.league.set(league);
        if let Some(before) = self.outer.borrow_mut().pop() {
            *self.context.borrow_mut() = before;
        }
    }

    /// Begins a parallel region: this thread is its thread 0.
    pub fn begin(&self, mut region: Region) -> usize {
        let mut size = self.resolve(&region);
        let (parent, number, icv, own_place, partition) = {
            let context = self.context.borrow();
            let icv = context.current.icv;
            (
                context.team.clone(),
                context.number,
                icv,
                context.place,
                context.partition,
            )
        };
        let mut docks = if parent.level == 0 && self.is_initial {
            std::mem::take(&mut *self.pool.borrow_mut())
        } else {
            Vec::new()
        };
        if size > 1 {
            pool::fill(&mut docks, size - 1);
            size = size.min(docks.len() + 1);
        }
        let mut members = Vec::with_capacity(size);
        members.push(self.parker.clone());
        members.extend(docks.iter().take(size - 1).map(|dock| dock.parker.clone()));
        let mut team = Team::new(Some((Arc::clone(&parent), number)), members);
        let mut inner = icv;
        let bind = icv.bind.with_clause(region.bind);
        // Regions inside follow the clause, too, where no list says otherwise.
        inner.bind = bind;
        let level = team.level as usize;
        if let Some(threads) = globals().threads_list.get(level) {
            inner.threads = *threads;
        }
        if let Some(bind) = globals().bind_list.get(level) {
            inner.bind = *bind;
        }
        if let Some(request) = region.first_loop.take() {
            team.share(0, || request, |_| ());
        }
        let places = self.bind(bind, &docks[..size - 1], &parent, own_place, partition);
        let (bubble, parts) = team_bubble::begin(&parent, size, &places).unzip();
        team.bubble = bubble;
        let (team, mut parts) = (Arc::new(team), parts.into_iter().flatten());
        parker::add_active(size as isize - 1);
        for (at, dock) in docks.iter().take(size - 1).enumerate() {
            let place = places.get(at + 1);
            dock.assign(Assignment {
                team: team.clone(),
                number: at + 1,
                icv: inner,
                code: region.code,
                group: region.group.clone(),
                league: self.league.get(),
                place: place.map(|(place, _)| *place),
                partition: place.map_or((0, 0), |(_, partition)| *partition),
                member: parts.next(),
            });
        }
        let mut context = Context::new(team, 0, inner, region.group.take());
        context.docks = docks;
        if let Some((place, partition)) = places.first() {
            (context.place, context.partition) = (Some(*place), *partition);
        }
        let before = std::mem::replace(&mut *self.context.borrow_mut(), context);
        self.outer.borrow_mut().push(before);
        size
    }

    /// Tells the threads of a new team where to run. Returns the places, if there are any.
    fn bind(
        &self,
        bind: ProcBind,
        docks: &[Arc<Dock>],
        parent: &Team,
        own_place: Option<usize>,
        partition: (usize, usize),
    ) -> Vec<(usize, (usize, usize))> {
        let globals = globals();
        if bind != ProcBind::False && !globals.places.is_empty() {
            let own = own_place.unwrap_or(0);
            let places = distribute(bind, own, partition, docks.len() + 1);
            for (dock, (place, _)) in docks.iter().zip(&places[1..]) {
                dock.set_cpus(Some(globals.places.cpus(*place)));
            }
            return places;
        }
        if docks.is_empty() {
            return Vec::new();
        }
        // Threads that fit the CPUs get one each, beside the one of this thread, which no worker
        // is: so none waits for another's CPU.
        let fits = parent.level == 0 && docks.len() < globals.cpus.len();
        let own = rustix::thread::sched_getcpu() as u32;
        let at = globals.cpus.iter().position(|cpu| *cpu == own).unwrap_or(0);
        for (number, dock) in docks.iter().enumerate() {
            let cpu = globals
                .cpus
                .get((at + 1 + number) % globals.cpus.len().max(1));
            match cpu.filter(|_| fits) {
                Some(cpu) => dock.set_cpus(Some(&[*cpu])),
                None => dock.set_cpus(None),
            }
        }
        Vec::new()
    }

    /// Ends the region that this thread began.
    pub fn end(&self) {
        let team = self.own_team();
        self.leave_share();
        team.wait_end(&self.parker, || self.run_one(&team));
        let before = self.outer.borrow_mut().pop();
        let Some(before) = before else { return };
        let inner = std::mem::replace(&mut *self.context.borrow_mut(), before);
        parker::add_active(1 - team.size as isize);
        if self.is_initial && self.outer.borrow().is_empty() {
            *self.pool.borrow_mut() = inner.docks;
        } else {
            pool::give_back(inner.docks);
        }
    }

    /// A part in a team of another thread.
    pub(crate) fn serve(&self, assignment: Assignment) {
        let Assignment {
            team,
            number,
            icv,
            code,
            group,
            league,
            place,
            partition,
            mut member,
        } = assignment;
        if let Some(member) = &mut member {
            member.enter();
        }
        let mut context = Context::new(team.clone(), number, icv, group);
        (context.place, context.partition) = (place, partition);
        self.league.set(league);
        let idle = std::mem::replace(&mut *self.context.borrow_mut(), context);
        code.run();
        self.leave_share();
        team.wait_end(&self.parker, || self.run_one(&team));
        *self.context.borrow_mut() = idle;
        // In the bubble to the region's end, also while it runs tasks of others.
        drop(member);
    }

    /// Waits for the team, and runs tasks meanwhile. `true`: the region was cancelled.
    pub fn barrier(&self, cancellable: bool) -> bool {
        let team = self.own_team();
        if team.is_initial {
            return false;
        }
        team.wait_barrier(cancellable, &self.parker, || self.run_one(&team))
    }

    // Worksharing.

    /// Enters the next worksharing construct. `true`: as the first thread.
    pub fn enter_share(
        &self,
        request: impl FnOnce() -> LoopRequest,
        init: impl FnOnce(&Share),
    ) -> (Arc<Share>, bool) {
        let (team, number) = {
            let mut context = self.context.borrow_mut();
            context.shares += 1;
            context.cursor = Cursor::default();
            (context.team.clone(), context.shares - 1)
        };
        let (share, is_first) = team.share(number, request, init);
        let before = self.context.borrow_mut().share.replace(share.clone());
        if let Some(before) = before {
            team.leave_share(&before);
        }
        (share, is_first)
    }

    /// The thread begins in a loop that its region was started with.
    fn first_loop(&self) {
        if self.context.borrow().share.is_none() && self.context.borrow().shares == 0 {
            self.enter_share(
                || LoopRequest {
                    space: crate::Space::signed(0, 0, 1),
                    schedule: globals().initial.schedule,
                    doacross: None,
                },
                |_| (),
            );
        }
    }

    /// The construct that the thread is in.
    pub fn share(&self) -> Option<Arc<Share>> {
        self.context.borrow().share.clone()
    }

    /// Takes the thread's next chunk: its first value, and the one behind its last.
    pub fn next_chunk(&self) -> Option<(u64, u64)> {
        self.first_loop();
        let mut context = self.context.borrow_mut();
        let context = &mut **context;
        let share = context.share.as_ref()?;
        share.next(context.number as u64, &mut context.cursor)
    }

    /// Takes the next chunk of a loop with `ordered` regions.
    pub fn next_ordered_chunk(&self) -> Option<(u64, u64)> {
        self.first_loop();
        let (share, cursor) = {
            let context = self.context.borrow();
            (context.share.clone()?, context.cursor.clone())
        };
        share.pass_turn(&cursor);
        self.next_chunk()
    }

    /// Waits for the turn of the thread's chunk.
    pub fn ordered(&self) {
        let (share, cursor) = {
            let context = self.context.borrow();
            (context.share.clone(), context.cursor.clone())
        };
        if let Some(share) = share {
            share.await_turn(&cursor);
        }
    }

    /// Leaves the worksharing construct.
    pub fn leave_share(&self) {
        let mut context = self.context.borrow_mut();
        if let Some(share) = context.share.take() {
            context.team.leave_share(&share);
        }
    }

    /// Meets a `single` construct. `true`: this thread is the one.
    pub fn single(&self) -> bool {
        let mut context = self.context.borrow_mut();
        let number = context.singles;
        context.singles += 1;
        let singles = &context.team.singles;
        singles
            .compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Keeps the address that a `copyprivate` clause passes on.
    pub fn set_copied(&self, address: usize) {
        self.own_team().copied.store(address, Ordering::Release);
    }

    /// The address that the other thread keeps.
    pub fn copied(&self) -> usize {
        self.own_team().copied.load(Ordering::Acquire)
    }

    // Cancellation.

    /// Cancels the region.
    pub fn cancel_region(&self) {
        self.own_team().cancel();
    }

    /// Cancels the loop or sections.
    pub fn cancel_share(&self) {
        self.own_team().cancel_share();
    }

    /// Cancels the task group.
    pub fn cancel_group(&self) {
        if let Some(group) = self.group() {
            group.cancel();
        }
    }

    // Tasks.

    /// The group of the current task.
    pub fn group(&self) -> Option<Arc<TaskGroup>> {
        self.context.borrow().current.group.clone()
    }

    /// Tells whether tasks that are created now do not run.
    pub fn is_cancelled(&self) -> bool {
        let context = self.context.borrow();
        let group = context.current.group.as_ref();
        context.team.is_cancelled() || group.is_some_and(|group| group.is_cancelled())
    }

    /// Begins a group.
    pub fn begin_group(&self) -> Arc<TaskGroup> {
        let mut context = self.context.borrow_mut();
        let group = TaskGroup::new(context.current.group.take());
        context.current.group = Some(group.clone());
        group
    }

    /// Waits for the group's tasks, and ends it.
    pub fn end_group(&self) {
        let Some(group) = self.group() else { return };
        let (team, task) = self.team_and_task();
        if group.children.load(Ordering::SeqCst) != 0 {
            group.waiter.set(&self.parker);
            let is_over = || group.children.load(Ordering::SeqCst) == 0;
            parker::wait_until(&self.parker, is_over, || {
                let next = group.claim().or_else(|| task.claim_child());
                self.run_claimed(&team, next)
            });
            group.waiter.clear();
        }
        self.context.borrow_mut().current.group = group.previous.clone();
    }

    fn team_and_task(&self) -> (Rc<TeamHandle>, Arc<Task>) {
        let context = self.context.borrow();
        (context.team.clone(), context.current.task.clone())
    }

    /// Tells whether a task that waits for nothing runs at once, since no other thread could run
    /// it: but not deep inside others of that kind, whose stacks it would add to.
    pub fn runs_plain_at_once(&self) -> bool {
        self.context.borrow().team.size == 1
            && self.nested_tasks.get() < NESTED_TASKS_MAX
            && globals().max_priority == 0
    }

    /// Tells whether a task runs at once, instead of waiting for a thread.
    pub fn runs_at_once(&self, more: usize) -> bool {
        let context = self.context.borrow();
        let limit = TASKS_PER_THREAD * context.team.size;
        context.team.is_initial
            || context.current.task.is_final
            || context.team.tasks.queued() + more > limit
    }

    /// Creates a task that some thread of the team runs later.
    pub fn defer(&self, request: TaskRequest) {
        let (team, parent) = self.team_and_task();
        let (group, icv) = (self.group(), self.icv());
        let (task, depends) = Task::explicit(request, &parent, group, icv);
        team.tasks.one_more();
        parent.children.fetch_add(1, Ordering::SeqCst);
        if let Some(group) = &task.group {
            group.children.fetch_add(1, Ordering::SeqCst);
        }
        if !depends.is_empty() {
            parent.add_dependences(&task, &depends, true);
        }
        task.one_less_missing(&team);
    }

    /// Runs a task at once.
    pub fn run_now(&self, request: TaskRequest) {
        self.await_dependences(&request.depends);
        let (team, parent) = self.team_and_task();
        let (group, icv) = (self.group(), self.icv());
        let (task, _) = Task::explicit(request, &parent, group, icv);
        let depth = self.nested_tasks.get();
        self.nested_tasks.set(depth + 1);
        self.run_as(&task);
        self.nested_tasks.set(depth);
        let work = || match task.claim_child() {
            Some(child) => self.run_claimed(&team, Some(child)),
            None => self.run_one(&team),
        };
        task.await_event(&self.parker, work);
        task.drop_arguments();
    }

    /// Waits for earlier tasks on which these dependences depend.
    pub fn await_dependences(&self, depends: &[Depend]) {
        if depends.is_empty() {
            return;
        }
        let (team, parent) = self.team_and_task();
        let mark = Task::implicit(self.icv());
        parent.add_dependences(&mark, depends, false);
        mark.waiter.set(&self.parker);
        parent.waiter.set(&self.parker);
        mark.one_less_missing(&team);
        let is_over = || mark.missing.load(Ordering::SeqCst) == 0;
        parker::wait_until(&self.parker, is_over, || {
            self.run_claimed(&team, parent.claim_child())
        });
        parent.waiter.clear();
    }

    /// Waits for the current task's children.
    pub fn taskwait(&self) {
        let (team, task) = self.team_and_task();
        let is_over = || task.children.load(Ordering::SeqCst) == 0;
        if is_over() {
            return;
        }
        task.waiter.set(&self.parker);
        parker::wait_until(&self.parker, is_over, || {
            self.run_claimed(&team, task.claim_child())
        });
        task.waiter.clear();
    }

    fn run_claimed(&self, team: &Arc<Team>, task: Option<Arc<Task>>) -> bool {
        let Some(task) = task else { return false };
        team.tasks.note_claimed();
        let is_cancelled = team.is_cancelled()
            || task
                .group
                .as_ref()
                .is_some_and(|group| group.is_cancelled());
        if !is_cancelled || task.must_run {
            self.run_as(&task);
        }
        task.ended(team);
        true
    }

    /// Runs a task's code, as that task.
    fn run_as(&self, task: &Arc<Task>) {
        let current = Current {
            task: task.clone(),
            group: task.group.clone(),
            icv: task.icv,
        };
        let before = std::mem::replace(&mut self.context.borrow_mut().current, current);
        if let Some(code) = &task.code {
            code.run();
        }
        self.context.borrow_mut().current = before;
    }

    /// Runs a task of the team that is ready. `false`: there is none.
    fn run_one(&self, team: &Arc<Team>) -> bool {
        self.run_claimed(team, team.tasks.claim())
    }

    /// Lets others run.
    pub fn yield_now(&self) {
        garonne_fiber::yield_now();
    }
}
