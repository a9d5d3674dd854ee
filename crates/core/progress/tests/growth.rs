//! How the cost of tasks grows with the machine: 1 to 256 cores in up to 8 NUMA nodes, driven by
//! simulated workers.
//!
//! The queues, the tasks and who looks where are the real ones. Each simulated worker takes its
//! steps in a random order of its own seed: it looks at queues on its path and runs what it finds.
//! What a step costs is counted in cache lines that have to come from another core: a worker keeps
//! the version of each queue that it last saw, and every change of a queue makes a new version. So
//! the price of polling an empty machine, of the queue of a core, of a node and of the machine can
//! be compared at sizes that are not here. The words that say who watches a queue are not counted:
//! they change with the watcher only.

use garonne_progress::tasks::{
    Keypoint, Place, Poller, RunContext, RunOutcome, Task, TaskOptions, TaskSettings, TaskState,
    Tasks, WorkerClass,
};
use garonne_topology::{Kind, Tree};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Machine {
    tasks: &'static Tasks,
    /// All poll all the time, so that nobody is called and no timer runs.
    workers: Vec<Poller<'static>>,
    /// Number of times that each queue changed.
    versions: Vec<u64>,
    /// What each worker saw of each queue last: by core, then by place in its path.
    seen: Vec<Vec<u64>>,
    random: u64,
}

/// What a task cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Price {
    /// Lines that came to somebody, per task, all workers together: load on the machine.
    lines: f64,
    /// Looks at queues that cost nothing, since the line had not changed.
    cheap: f64,
    /// Lines that came to the worker that ran the task and to the submitter: what the submitter
    /// waits for.
    waited: f64,
    /// Share of the tasks that the busiest worker ran.
    busiest: f64,
}

impl Machine {
    fn new(tree: Tree) -> Self {
        let seen = (0..tree.cores())
            .map(|core| vec![0; tree.path(core).count()])
            .collect();
        let versions = vec![0; tree.areas().len()];
        let tasks = Tasks::new(TaskSettings {
            tree,
            homes: Vec::new(),
            class: WorkerClass::Ordinary,
            spins: 0,
        });
        // For the rest of the test: the pollers refer to it.
        let tasks: &'static Tasks = Box::leak(Box::new(tasks.unwrap()));
        let workers =
            (0..tasks.tree().cores()).filter_map(|core| tasks.poller_at(core, Keypoint::Idle));
        Self {
            tasks,
            workers: workers.collect(),
            versions,
            seen,
            random: 1,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }

    /// A worker's walk. Returns lines that came, looks that cost nothing, tasks that it ran.
    fn walk(&mut self, core: usize) -> (u64, u64, u64) {
        let path: Vec<usize> = self.tasks.tree().path(core).collect();
        let ran = u64::from(self.workers[core].turn().settled);
        let (mut lines, mut cheap) = (0, 0);
        let looked = self.workers[core].looked();
        for (level, area) in path.into_iter().enumerate() {
            if looked >> level & 1 == 0 {
                continue;
            }
            match self.seen[core][level] == self.versions[area] {
                true => cheap += 1,
                false => lines += 1,
            }
            self.seen[core][level] = self.versions[area];
        }
        (lines, cheap, ran)
    }

    /// All take this many turns.
    fn idle(&mut self, acquisitions: u32) -> u64 {
        let cores = self.workers.len();
        let cheap = (0..acquisitions)
            .flat_map(|_| 0..cores)
            .map(|core| self.walk(core).1);
        cheap.sum()
    }

    /// Submits tasks to the queue of one area, one after the other, while all workers poll.
    fn price(&mut self, place: Place, rounds: u32) -> Price {
        let cores = self.tasks.tree().cores();
        let manner = self
            .tasks
            .resolve_options(&TaskOptions::at(place.clone()))
            .unwrap();
        let area = match place {
            Place::Core(cpu) => self.tasks.tree().core_of(cpu).unwrap(),
            Place::Around(kind, cpu) => self.tasks.tree().around(cpu as usize, kind),
            _ => self.tasks.tree().root(),
        };
        // Until each queue has who watches it.
        self.idle(130);
        let runner = Arc::new(AtomicUsize::new(0));
        let (mut price, mut runs) = (Price::default(), vec![0u32; cores]);
        for _ in 0..rounds {
            let note = runner.clone();
            let task: Arc<Task<_>> =
                Arc::new(self.tasks.task_in(manner, move |at: &RunContext| {
                    note.store(at.core, Ordering::Relaxed);
                    RunOutcome::Done
                }));
            // By somebody who does not poll.
            std::thread::scope(|scope| {
                scope.spawn(|| self.tasks.submit_shared(&task).unwrap());
            });
            // The submitter's line, and the new version for all others.
            self.versions[area] += 1;
            let mut done = false;
            while !done {
                // In a round everybody looks once, in some order.
                let first = self.below(cores);
                for step in 0..cores {
                    let core = (first + step) % cores;
                    let (lines, cheap, ran) = self.walk(core);
                    price.lines += lines as f64;
                    price.cheap += cheap as f64;
                    if ran > 0 {
                        // Taking it changed the queue; the task's own line comes, and the submitter
                        // sees it settled.
                        self.versions[area] += 1;
                        let level = self.tasks.tree().path(core).position(|on| on == area);
                        self.seen[core][level.unwrap()] = self.versions[area];
                        price.waited += lines as f64 + 2.0;
                        runs[core] += 1;
                        done = true;
                    }
                }
            }
            assert!(runs[runner.load(Ordering::Relaxed)] > 0);
        }
        let rounds = f64::from(rounds);
        let busiest = f64::from(runs.into_iter().max().unwrap_or(0)) / rounds;
        Price {
            lines: price.lines / rounds,
            cheap: price.cheap / rounds,
            waited: price.waited / rounds,
            busiest,
        }
    }
}

/// 1 to 8 nodes of 1 to 4 caches of 1 to 8 cores.
fn machine(cores: u32) -> Tree {
    let nodes = (cores / 4).clamp(1, 8);
    let caches = (cores / nodes / 4).clamp(1, 4);
    Tree::regular(1, nodes, caches, cores / nodes / caches)
}

#[test]
fn what_a_submitter_waits_for_does_not_grow_with_the_machine_and_a_cores_queue_disturbs_nobody() {
    const ROUNDS: u32 = 200;
    println!(
        "cores | own core: lines, waited | node: lines, waited | machine: lines, waited, busiest worker's share"
    );
    for cores in [1u32, 2, 4, 8, 16, 32, 64, 128, 256] {
        let mut simulated = Machine::new(machine(cores));
        assert_eq!(simulated.tasks.tree().cores(), cores as usize);
        let own = simulated.price(Place::Core(0), ROUNDS);
        let node = simulated.price(Place::Around(Kind::Numa, 0), ROUNDS);
        let all = simulated.price(Place::Machine, ROUNDS);
        println!(
            "{cores:5} | {:6.1} {:5.1} | {:6.1} {:5.1} | {:6.1} {:5.1} {:5.2}",
            own.lines, own.waited, node.lines, node.waited, all.lines, all.waited, all.busiest
        );
        // One line each for the queue, the task, and seeing it done; the path's others only once at
        // the beginning.
        for price in [own, node, all] {
            assert!(price.waited <= 3.5, "{cores} cores: {price:?}");
        }
        // A task's queue is seen by who watches it, now and then by one more.
        assert!(own.lines <= 1.0, "{cores} cores: {own:?}");
        assert!(node.lines <= 1.5, "{cores} cores: {node:?}");
        assert!(all.lines <= 1.5, "{cores} cores: {all:?}");
    }
}

#[test]
fn a_watcher_that_takes_no_more_turns_holds_up_nothing_for_long() {
    for cores in [2usize, 16, 256] {
        let mut simulated = Machine::new(machine(cores as u32));
        simulated.idle(130);
        let manner = simulated
            .tasks
            .resolve_options(&TaskOptions::at(Place::Machine))
            .unwrap();
        // Whoever runs a task stops, until two are left.
        let mut left: Vec<usize> = (0..cores).collect();
        while left.len() > 1 {
            let task = Arc::new(
                simulated
                    .tasks
                    .task_in(manner, |_: &RunContext| RunOutcome::Done),
            );
            std::thread::scope(|scope| {
                scope.spawn(|| simulated.tasks.submit_shared(&task).unwrap());
            });
            let mut turns = 0;
            while task.life() == TaskState::Pending {
                turns += 1;
                let ran = left.iter().position(|core| simulated.walk(*core).2 > 0);
                if let Some(at) = ran {
                    left.remove(at);
                }
            }
            // Together they look about once in sixteen turns of those who poll, whether they still
            // take turns or not.
            let alone = 16 * cores + 16;
            assert!(turns <= alone, "{} of {cores} cores: {turns}", left.len());
        }
    }
}

#[test]
fn a_turn_on_an_idle_machine_costs_at_most_one_cached_line_per_level() {
    for cores in [2u32, 16, 256] {
        let mut simulated = Machine::new(machine(cores));
        (0..cores as usize).for_each(|core| {
            simulated.walk(core);
        });
        let levels = simulated.tasks.tree().path(0).count() as u64;
        assert!(levels <= 5, "{levels} levels");
        let (lines, cheap, ran) = simulated.walk(0);
        assert!(
            lines == 0 && ran == 0 && cheap <= levels,
            "{lines} {cheap} {ran}"
        );
        // Later, each queue is looked at by its watcher, and by all others together once in sixteen
        // turns.
        simulated.idle(130);
        let turns = 160;
        let looks = simulated.idle(turns) as f64 / f64::from(turns);
        let queues = simulated.tasks.tree().areas().len() as f64;
        assert!(
            (queues..queues * 1.1).contains(&looks),
            "{looks} looks at {queues} queues"
        );
    }
}
