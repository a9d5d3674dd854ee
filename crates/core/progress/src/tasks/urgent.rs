//! The queues of urgent tasks. They are separate because an idle-class worker must not even take
//! such a task: preempted by the kernel, it would keep the task for as long as others want the
//! cores.
//!
//! There is one queue per area, made with the first urgent task. The event thread is woken for each
//! submission, and any ordinary thread that passes a keypoint may be quicker. The event thread also
//! serves tasks that ask to be run again, and naps in between; whoever else has run such a task and
//! leaves hands it over. Where the system refuses the event thread, workers take urgent tasks: late
//! is better than never.

use crate::events::reactor::Reactor;
use crate::facade::{AtomicBool, Ordering};
use crate::limits::WORKER_SLEEP_MAX;
use crate::sys;
use crate::tasks::RunContext;
use crate::tasks::scheduler::Scheduler;
use garonne_sync::task_slots::{RunTally, TaskQueues};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The queues of urgent tasks, one per area. The scheduler owns them.
#[derive(Debug)]
pub(crate) struct UrgentQueues {
    queues: OnceLock<Arc<TaskQueues<RunContext>>>,
    /// By area.
    room: Box<[usize]>,
    /// The system gave no event thread when it was last asked.
    refused: AtomicBool,
}

impl UrgentQueues {
    /// With room for so many tasks in each queue.
    pub(super) fn new(room: &[usize]) -> Self {
        Self {
            queues: OnceLock::new(),
            room: room.into(),
            refused: AtomicBool::new(false),
        }
    }

    /// The queues, which are there afterwards.
    pub(super) fn racks(&self) -> &Arc<TaskQueues<RunContext>> {
        self.queues.get_or_init(|| {
            Arc::new(TaskQueues::new(&self.room).expect("the others have that room, too"))
        })
    }

    /// The queues if there was ever such a task.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<TaskQueues<RunContext>>> {
        self.queues.get()
    }

    pub(super) fn note_refusal(&self, refused: bool) {
        self.refused.store(refused, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        if let Some(racks) = self.get() {
            racks.clear();
        }
    }
}

impl Scheduler {
    /// Returns whether tasks of these queues are its own.
    pub(super) fn owns(&self, racks: &Arc<TaskQueues<RunContext>>) -> bool {
        let its = |own: &Arc<TaskQueues<RunContext>>| Arc::ptr_eq(own, racks);
        its(&self.queues) || self.urgent.get().is_some_and(its)
    }

    /// Runs what is urgent on the way from a core to the machine, if this thread may.
    #[inline]
    pub(super) fn walk_urgent(&self, at: &RunContext, round: u32) -> RunTally {
        match self.urgent.get() {
            Some(racks) => self.walk_among(racks, at, round),
            None => RunTally::default(),
        }
    }

    #[inline(never)]
    fn walk_among(&self, racks: &TaskQueues<RunContext>, at: &RunContext, round: u32) -> RunTally {
        let mut tally = RunTally::default();
        let path = &self.paths[at.core];
        let waits = path.iter().any(|area| racks.any_ready(*area as usize));
        if !waits || sys::is_of_idle_class() && !self.urgent.refused.load(Ordering::Relaxed) {
            return tally;
        }
        for area in path {
            tally.add(racks.run(*area as usize, round, at));
        }
        tally
    }

    /// Runs what is urgent in one queue. What asks to be run again is the caller's to look
    /// after.
    pub(crate) fn serve_urgent(
        &self,
        racks: &TaskQueues<RunContext>,
        area: usize,
        at: &RunContext,
    ) -> RunTally {
        let tally = racks.run(area, self.next_round(), at);
        self.count(at.core, tally.settled);
        tally
    }

    /// What waits in these queues to be run again is the event thread' from now on, unless
    /// that comes to such tasks soon enough for this patience, in microseconds (0: none of them
    /// says): SYNC(urgent-again).
    pub(crate) fn hand_over_urgent(self: &Arc<Self>, areas: &[u32], patience_us: u32) {
        let Some(racks) = self.urgent.get() else {
            return;
        };
        let mut left = areas
            .iter()
            .filter(|area| racks.any_ready(**area as usize))
            .peekable();
        let patience = match patience_us {
            0 => WORKER_SLEEP_MAX,
            us => Duration::from_micros(us.into()),
        };
        let comes =
            |reactor: &Arc<Reactor>| reactor.next_rerun().is_some_and(|nap| nap <= patience);
        if left.peek().is_none() || self.running_reactor().is_some_and(comes) {
            return;
        }
        left.for_each(|area| self.event_requests.run(*area as usize));
        self.serve_requests();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::facade::lock;
    use crate::limits::CPU_CHECK_TURNS;
    use crate::tasks::{Keypoint, Place, RunOutcome, TaskOptions, TaskSettings, Tasks, Urgency};

    #[test]
    fn a_thread_of_the_idle_class_takes_nothing_that_is_wanted_now_at_whatever_keypoint() {
        let tasks = Tasks::new(TaskSettings::here()).unwrap();
        let how = TaskOptions {
            urgency: Urgency::Now,
            ..TaskOptions::at(Place::Machine)
        };
        let task = Arc::new(tasks.task(&how, |_: &RunContext| RunOutcome::Done).unwrap());
        let scheduler = tasks.scheduler();
        // The event thread does not start meanwhile.
        let starting = lock(&scheduler.starting);
        tasks.submit_shared(&task).unwrap();
        std::thread::scope(|scope| {
            let idler = scope.spawn(|| {
                sys::enter_idle_class();
                let mut poller = tasks.poller(Keypoint::Wait);
                let polled = (0..3 * CPU_CHECK_TURNS)
                    .map(|_| poller.turn().settled)
                    .sum::<u32>();
                drop(poller);
                let passed = tasks.schedule(Keypoint::Forced).settled + tasks.at_switch().settled;
                (polled, passed, task.wait(Some(Duration::ZERO)))
            });
            assert_eq!(idler.join().unwrap(), (0, 0, false));
        });
        assert_eq!(tasks.schedule(Keypoint::Forced).settled, 1);
        drop(starting);
    }
}
