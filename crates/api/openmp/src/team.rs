//! Teams: the threads of a parallel region, what they wait for, and what they share.

use crate::loops::{LoopRequest, Share};
use crate::parker::{self, Parker};
use crate::task::TaskPool;
use crate::team_barrier::TeamBarrier;
use garonne_bubble_runtime::Bubble;
use garonne_sync::mutex::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Worksharing constructs that some thread is in, by their number.
#[derive(Debug, Default)]
struct Shares {
    first: u64,
    open: VecDeque<Option<Arc<Share>>>,
}

/// See the module's paragraph.
#[derive(Debug)]
pub struct Team {
    /// Number of threads.
    pub size: usize,
    /// Regions around its threads, this one included.
    pub level: u32,
    /// Active regions around its threads.
    pub active_level: u32,
    /// The team around it, and the number of its thread 0 there.
    pub parent: Option<(Arc<Team>, usize)>,
    pub(crate) is_initial: bool,
    /// The bubble of its threads, if teams are bubbles.
    pub(crate) bubble: Option<Bubble>,
    members: Box<[Arc<Parker>]>,
    barrier: TeamBarrier,
    end: TeamBarrier,
    pub(crate) tasks: TaskPool,
    cancelled: AtomicBool,
    share_cancelled: AtomicBool,
    shares: Mutex<Shares>,
    pub(crate) singles: AtomicU64,
    /// Address that `copyprivate` passes on.
    pub(crate) copied: AtomicUsize,
}

impl Team {
    pub(crate) fn new(parent: Option<(Arc<Team>, usize)>, members: Vec<Arc<Parker>>) -> Self {
        let size = members.len().max(1);
        let (level, active) = match &parent {
            Some((team, _)) => (team.level + 1, team.active_level + u32::from(size > 1)),
            None => (0, 0),
        };
        Self {
            size,
            level,
            active_level: active,
            is_initial: parent.is_none(),
            bubble: None,
            parent,
            members: members.into(),
            barrier: TeamBarrier::default(),
            end: TeamBarrier::default(),
            tasks: TaskPool::default(),
            cancelled: AtomicBool::new(false),
            share_cancelled: AtomicBool::new(false),
            shares: Mutex::default(),
            singles: AtomicU64::new(0),
            copied: AtomicUsize::new(0),
        }
    }

    /// Tells whether the region was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Tells whether the loop or the sections that the team is in were cancelled.
    pub fn is_share_cancelled(&self) -> bool {
        self.share_cancelled.load(Ordering::Acquire)
    }

    /// Cancels the region.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.notify_all();
    }

    /// Cancels the loop or sections.
    pub(crate) fn cancel_share(&self) {
        self.share_cancelled.store(true, Ordering::Release);
    }

    fn notify_all(&self) {
        self.members.iter().for_each(|member| member.notify());
    }

    /// Wakes a thread that waits, for a task that was queued.
    pub(crate) fn wake_idle(&self) {
        if let Some(idle) = self.members.iter().find(|member| member.is_idle()) {
            idle.notify();
        }
    }

    /// Generations of both barriers, before a task ends.
    pub(crate) fn generations(&self) -> [u64; 2] {
        [&self.barrier, &self.end].map(TeamBarrier::generation)
    }

    /// No task is left: opens the barrier in which all threads wait.
    pub(crate) fn tasks_are_done(&self, generations: [u64; 2]) {
        self.open(&self.barrier, generations[0]);
        self.open(&self.end, generations[1]);
    }

    fn open(&self, barrier: &TeamBarrier, generation: u64) {
        let are_tasks_done = || self.tasks.are_done();
        let prepare = || self.share_cancelled.store(false, Ordering::Relaxed);
        if barrier.open(generation, self.size, are_tasks_done, prepare) {
            self.notify_all();
        }
    }

    /// Waits in a barrier, and runs tasks meanwhile. `true`: the region was cancelled.
    fn wait(
        &self,
        barrier: &TeamBarrier,
        cancellable: bool,
        parker: &Parker,
        work: impl FnMut() -> bool,
    ) -> bool {
        let generation = barrier.generation();
        if cancellable && self.is_cancelled() {
            return true;
        }
        if self.size == 1 && self.tasks.are_done() {
            // Nobody is waited for.
            self.share_cancelled.store(false, Ordering::Relaxed);
            return false;
        }
        if barrier.come(self.size) {
            self.open(barrier, generation);
        }
        let is_open = || barrier.generation() != generation;
        let is_over = || is_open() || (cancellable && self.is_cancelled());
        let before = parker.set_takes_tasks(true);
        parker::wait_until(parker, is_over, work);
        parker.set_takes_tasks(before);
        cancellable && self.is_cancelled()
    }

    pub(crate) fn wait_barrier(
        &self,
        cancellable: bool,
        parker: &Parker,
        work: impl FnMut() -> bool,
    ) -> bool {
        self.wait(&self.barrier, cancellable, parker, work)
    }

    pub(crate) fn wait_end(&self, parker: &Parker, work: impl FnMut() -> bool) {
        self.wait(&self.end, false, parker, work);
    }

    /// The worksharing construct of this number. The first thread makes it; `init` runs before
    /// others see it.
    pub(crate) fn share(
        &self,
        number: u64,
        request: impl FnOnce() -> LoopRequest,
        init: impl FnOnce(&Share),
    ) -> (Arc<Share>, bool) {
        let mut shares = lock(&self.shares);
        let at = number.saturating_sub(shares.first) as usize;
        while shares.open.len() <= at {
            shares.open.push_back(None);
        }
        if let Some(share) = &shares.open[at] {
            return (share.clone(), false);
        }
        let share = Arc::new(Share::new(request(), self.size));
        init(&share);
        shares.open[at] = Some(share.clone());
        (share, true)
    }

    /// A thread leaves a worksharing construct.
    pub(crate) fn leave_share(&self, share: &Share) {
        if share.left.fetch_add(1, Ordering::AcqRel) + 1 < self.size {
            return;
        }
        let mut shares = lock(&self.shares);
        let is_over = |share: &Option<Arc<Share>>| {
            let left = share
                .as_ref()
                .map(|share| share.left.load(Ordering::Acquire));
            left.is_some_and(|left| left >= self.size)
        };
        while shares.open.front().is_some_and(is_over) {
            shares.open.pop_front();
            shares.first += 1;
        }
    }
}
