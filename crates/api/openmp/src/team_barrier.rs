//! A team's barrier: it opens when all have come and no task is left.
//!
//! Whoever comes last opens it, or whoever ends the last task. Each changes its count before it
//! looks at the other's, so one of the two opens it; if both see that it is due, the first does:
//! SYNC(team-barrier).

use crate::facade::{AtomicU64, AtomicUsize, Ordering, fence_of_model};

/// What a cache line has beside a count.
type RestOfLine = [u64; 7];

/// A count with no other data on its cache line: all threads of a team look at it while they wait.
/// By room and not by alignment, which makes allocations dear.
#[derive(Debug, Default)]
#[repr(C)]
struct Generation {
    _before: RestOfLine,
    count: AtomicU64,
    _behind: RestOfLine,
}

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(crate) struct TeamBarrier {
    come: AtomicUsize,
    /// Times that somebody has begun to open it.
    opened: AtomicU64,
    /// Times that it has opened.
    generation: Generation,
}

impl TeamBarrier {
    /// Times that it has opened.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.count.load(Ordering::Acquire)
    }

    /// One of so many threads has come. `true`: it is the last.
    pub(crate) fn come(&self, size: usize) -> bool {
        let is_last = self.come.fetch_add(1, Ordering::SeqCst) + 1 == size;
        fence_of_model();
        is_last
    }

    /// Opens it for so many threads if all have come and `are_tasks_done`. `generation` is that
    /// from before the caller came or ended a task. `prepare` runs before anybody goes on.
    /// `true`: the caller opened it, and notifies those that wait.
    pub(crate) fn open(
        &self,
        generation: u64,
        size: usize,
        are_tasks_done: impl FnOnce() -> bool,
        prepare: impl FnOnce(),
    ) -> bool {
        // Nothing changes that condition but the opening: a new task comes from a task, or from a
        // thread that has not come.
        fence_of_model();
        if self.come.load(Ordering::SeqCst) != size || !are_tasks_done() {
            return false;
        }
        let next = generation + 1;
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        let opens = self
            .opened
            .compare_exchange(generation, next, success, failure);
        if opens.is_err() {
            return false;
        }
        prepare();
        self.come.store(0, Ordering::Relaxed);
        // SYNC(team-barrier): pairs with `generation`.
        self.generation.count.store(next, Ordering::Release);
        true
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::park_word::tests::Sleeper;
    use loom::sync::Arc;

    struct ModelTeam {
        barrier: TeamBarrier,
        tasks: AtomicUsize,
        members: [Sleeper; 2],
        prepared: AtomicUsize,
        written: AtomicUsize,
    }

    impl ModelTeam {
        fn new(tasks: usize) -> Arc<Self> {
            Arc::new(Self {
                barrier: TeamBarrier::default(),
                tasks: AtomicUsize::new(tasks),
                members: [Sleeper::new(), Sleeper::new()],
                prepared: AtomicUsize::new(0),
                written: AtomicUsize::new(0),
            })
        }

        fn open(&self, generation: u64) {
            let are_done = || self.tasks.load(Ordering::SeqCst) == 0;
            let prepare = || {
                self.prepared.fetch_add(1, Ordering::Relaxed);
            };
            if self.barrier.open(generation, 2, are_done, prepare) {
                self.members.iter().for_each(Sleeper::notify);
            }
        }

        fn wait(&self, member: usize) {
            let generation = self.barrier.generation();
            self.written.fetch_add(1, Ordering::Relaxed);
            if self.barrier.come(2) {
                self.open(generation);
            }
            let is_open = || self.barrier.generation() != generation;
            self.members[member].wait_until(is_open);
        }

        fn end_task(&self) {
            let generation = self.barrier.generation();
            let is_last = self.tasks.fetch_sub(1, Ordering::SeqCst) == 1;
            fence_of_model();
            if is_last {
                self.open(generation);
            }
        }
    }

    fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(body);
    }

    /// Two threads meet twice. Each sees what the other wrote before.
    #[test]
    fn threads_meet_again_and_again() {
        model(2, || {
            let team = ModelTeam::new(0);
            let other = {
                let team = team.clone();
                loom::thread::spawn(move || (0..2).for_each(|_| team.wait(1)))
            };
            for round in 1..=2 {
                team.wait(0);
                assert!(team.written.load(Ordering::Relaxed) >= 2 * round);
            }
            other.join().unwrap();
            assert_eq!(team.prepared.load(Ordering::Relaxed), 2);
        });
    }

    /// A task ends on a third thread while two come: it opens the barrier, or the last to come
    /// does.
    #[test]
    fn the_last_task_or_the_last_thread_opens_it_once() {
        model(2, || {
            let team = ModelTeam::new(1);
            let threads = [0, 1].map(|member| {
                let team = team.clone();
                loom::thread::spawn(move || team.wait(member))
            });
            team.end_task();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            assert_eq!(team.prepared.load(Ordering::Relaxed), 1);
            assert_eq!(team.tasks.load(Ordering::Relaxed), 0);
        });
    }
}
