//! Which core polls a queue that several cores share.
//!
//! If every poller looked at a shared queue all the time, each task would move its cache line to
//! all of them, and all would reach for the task. The cost would grow with the cores. So each
//! shared queue has one core that watches it. Its pollers look at every turn. All others see in a
//! word that changes only with the watcher that somebody watches, and look rarely: together about
//! once in [`RARE_TURNS`] turns.
//!
//! The watcher is a hint, on which only time depends. It may be preempted or busy at any
//! instruction. A poller that looks rarely and finds a task that nobody comes for takes it, and
//! becomes the watcher. A poller that leaves resigns, and looks at all its queues once more. One
//! that has just begun looks as well. So does one whose own thread has put a task into a shared
//! queue, because its lines are there. The core that runs most tasks of a queue becomes its
//! watcher. While there is none, all look.

use crate::facade::{AtomicU32, Ordering};
use crate::limits::{RARE_TURNS, RECHECK_TURNS, WATCHES_FROM};
use crate::tasks::RunContext;
use crate::tasks::scheduler::Scheduler;
use garonne_sync::pad::CachePadded;
use garonne_sync::task_slots::{RunTally, TaskQueues};
use std::cell::Cell;

/// Levels of a path for which a poller remembers something each: machines have four or five, and
/// what it remembers are hints.
const LEVELS: usize = 8;

const NOBODY: u32 = 0;

thread_local! {
    /// Tasks that this thread has put into shared queues.
    static PUTS: Cell<u32> = const { Cell::new(0) };
}

/// The watchers of a machine's queues, by area.
#[derive(Debug)]
pub(crate) struct QueueWatchers(Box<[CachePadded<AtomicU32>]>);

impl QueueWatchers {
    pub(crate) fn new(areas: usize) -> Self {
        Self(
            (0..areas)
                .map(|_| CachePadded(AtomicU32::new(NOBODY)))
                .collect(),
        )
    }

    /// The id of a core as a watcher.
    fn name(core: usize) -> u32 {
        core as u32 + 1
    }

    #[inline]
    fn watcher(&self, area: usize) -> u32 {
        self.0[area].load(Ordering::Relaxed)
    }

    /// From `ready_before` to `after`; if somebody was quicker, that is as good.
    fn replace(&self, area: usize, before: u32, after: u32) {
        let _ = self.0[area].compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A poller of a core leaves. Another of the same core finds the office free.
    pub(crate) fn resign(&self, path: &[u32], core: usize) {
        for area in path.iter().skip(1) {
            let area = *area as usize;
            if self.watcher(area) == Self::name(core) {
                self.replace(area, Self::name(core), NOBODY);
            }
        }
    }
}

/// Way in which a poller looks at one shared queue on its way.
#[derive(Clone, Copy, Debug)]
struct LevelPolling {
    /// The poller looks at this queue at the next turn.
    eager: bool,
    /// Turns until it looks.
    wait: u32,
    /// Turns between two looks.
    stride: u32,
    /// Something waited at the last look, when the queue had counted this many runs.
    doubt: Option<u32>,
    /// Tasks settled there since the last check.
    settled: u32,
}

/// Decision of a poller about a queue that it does not watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookDecision {
    Skip,
    Poll,
    /// Take over: the queue's watcher does not come.
    TakeOver,
}

impl LevelPolling {
    #[inline]
    fn look(
        &mut self,
        watcher: u32,
        has_put: bool,
        (racks, area): (&TaskQueues<RunContext>, usize),
    ) -> LookDecision {
        if watcher == NOBODY || has_put || self.eager {
            self.doubt = None;
            return LookDecision::Poll;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return LookDecision::Skip;
        }
        match self.missed(racks, area) {
            true => LookDecision::TakeOver,
            false => LookDecision::Skip,
        }
    }

    /// A rare look: whether something has waited for some turns and nobody has run anything
    /// meanwhile.
    #[cold]
    fn missed(&mut self, racks: &TaskQueues<RunContext>, area: usize) -> bool {
        let waits = racks.any_ready(area);
        match self.doubt.take() {
            None if waits => {
                self.doubt = Some(racks.runs(area));
                self.wait = RECHECK_TURNS;
            }
            Some(runs) if waits && runs == racks.runs(area) => return true,
            _ => self.wait = self.stride,
        }
        false
    }
}

/// State of a poller for the shared queues on its path.
#[derive(Clone, Debug)]
pub(crate) struct PathPolling {
    levels: [LevelPolling; LEVELS],
    /// The thread's puts at the last turn.
    puts: u32,
    /// Levels that it looked at in the last turn, as bits.
    pub(crate) last: u32,
}

impl PathPolling {
    /// The state of a poller that begins: it looks at everything.
    pub(crate) fn new() -> Self {
        let level = LevelPolling {
            eager: true,
            wait: 0,
            stride: RARE_TURNS,
            doubt: None,
            settled: 0,
        };
        Self {
            levels: [level; LEVELS],
            puts: PUTS.get(),
            last: 0,
        }
    }

    /// Returns whether this thread has put something into a shared queue since the last turn.
    #[inline]
    fn has_put(&mut self) -> bool {
        let puts = PUTS.get();
        std::mem::replace(&mut self.puts, puts) != puts
    }
}

impl Scheduler {
    /// This thread has put a task into a queue.
    #[inline]
    pub(super) fn note_put(&self, area: usize) {
        if area >= self.paths.len() {
            PUTS.set(PUTS.get().wrapping_add(1));
        }
    }

    /// A poller's walk: Algorithm 1, but for shared queues that others watch.
    #[inline]
    pub(super) fn poll(&self, at: &RunContext, round: u32, looks: &mut PathPolling) -> RunTally {
        let path = &self.paths[at.core];
        let (name, has_put) = (QueueWatchers::name(at.core), looks.has_put());
        let mut tally = self.walk_urgent(at, round);
        let mut looked = 0;
        for (index, area) in path.iter().enumerate() {
            let area = *area as usize;
            let level = &mut looks.levels[index % LEVELS];
            let watcher = if index == 0 {
                name
            } else {
                self.watchers.watcher(area)
            };
            if watcher != name {
                match level.look(watcher, has_put, (&self.queues, area)) {
                    LookDecision::Skip => continue,
                    LookDecision::Poll => level.wait = level.stride,
                    LookDecision::TakeOver => self.watchers.replace(area, watcher, name),
                }
            }
            let found = self.queues.run(area, round, at);
            looked |= 1 << (index % LEVELS);
            level.eager = found.settled > 0;
            level.settled += found.settled;
            tally.add(found);
        }
        looks.last = looked;
        tally
    }

    /// Now and then: takes the offices that are free, and those of queues of which this poller runs
    /// most.
    #[cold]
    pub(super) fn settle_in(&self, core: usize, looks: &mut PathPolling) {
        let path = self.paths[core].iter().map(|area| *area as usize);
        for (area, level) in path.zip(&mut looks.levels).skip(1) {
            let watcher = self.watchers.watcher(area);
            let most = level.settled >= WATCHES_FROM;
            if watcher == NOBODY || most && watcher != QueueWatchers::name(core) {
                self.watchers
                    .replace(area, watcher, QueueWatchers::name(core));
            }
            level.settled = 0;
            let pollers = self.pollers(area).max(1);
            let stride = RARE_TURNS.saturating_mul(pollers);
            if std::mem::replace(&mut level.stride, stride) != stride {
                // Each at another time.
                level.wait = RARE_TURNS * (core as u32 % pollers);
            }
        }
    }
}
