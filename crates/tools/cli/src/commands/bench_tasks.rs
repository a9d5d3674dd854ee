//! `garonne bench tasks`: what a task costs in each queue of this machine (Tables I and II of the
//! PIOMan paper, §V.A).
//!
//! One thread is pinned to every core, and all poll at once. The one on the first core creates an
//! empty task, submits it to a queue and polls until the task is done. The time from creating to
//! seeing is the price. Counts say which core ran the task. A sample is a short row of tasks.
//! Before and after it, the bare hand-off of a cache line is measured between the first core and
//! the farthest one of the queue. Medians of both are shown, so that a virtual machine whose cores
//! move is seen for what it is.

use clap::Parser;
use comfy_table::{Table, presets};
use garonne_progress::tasks::{
    Error, Keypoint, Place, RunContext, RunOutcome, TaskOptions, TaskSettings, TaskState, Tasks,
    WorkerClass,
};
use garonne_sync::pad::CachePadded;
use garonne_topology::{CpuSet, Tree};
use serde::Serialize;
use std::ffi::OsString;
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::progress_bar::ProgressBar;

/// Samples, and tasks in one: beyond what anybody waits for, and each sample is kept.
const COUNT_MAX: i64 = 1_000_000;

#[derive(Debug, Parser)]
#[command(
    name = "garonne bench tasks",
    about = "What a task costs in each queue of this machine"
)]
struct BenchTasksArgs {
    /// Print the data as JSON
    #[arg(long)]
    json: bool,
    /// Samples of each queue
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    samples: u32,
    /// Tasks in a sample
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    tasks: u32,
}

/// A queue's price.
#[derive(Debug, Serialize)]
struct QueueCost {
    queue: String,
    cpus: String,
    cores: usize,
    /// Create, submit, notice, while the submitter polls as everybody does: median and lower
    /// quartile.
    median_ns: f64,
    quartile_ns: f64,
    /// Price when the submitter only watches, so that the task is handed over to another core.
    handed_over_ns: Option<f64>,
    /// The bare hand-off to the farthest core of the queue.
    hand_off_ns: Option<f64>,
    /// Tasks of the samples run by each core while the submitter polled.
    ran: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct BenchReport {
    machine: String,
    rows: Vec<QueueCost>,
    /// The machine's queue with only so many cores polling.
    growth: Vec<PollerScaling>,
}

/// Median cost of the machine's queue with fewer cores polling, as in [`QueueCost`].
#[derive(Debug, Serialize)]
struct PollerScaling {
    cores: usize,
    median_ns: f64,
    handed_over_ns: Option<f64>,
}

pub fn run(words: Vec<OsString>) -> i32 {
    let args = match BenchTasksArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    match measure(&args) {
        Ok(report) if args.json => super::print_json(&report),
        Ok(report) => print(&report),
        Err(error) => {
            errln!("error: cannot measure tasks: {error}");
            1
        }
    }
}

fn measure(args: &BenchTasksArgs) -> Result<BenchReport, Error> {
    let tree = Tree::discover();
    let mut report = BenchReport {
        machine: describe(&tree),
        rows: Vec::new(),
        growth: Vec::new(),
    };
    let mut progress = ProgressBar::new(tree.areas().len() + cores_polling(tree.cores()).count());
    for area in 0..tree.areas().len() {
        progress.step("queues of the machine");
        report
            .rows
            .push(PollerBench::new(&tree, args, tree.cores())?.row(area)?);
    }
    for polling in cores_polling(tree.cores()) {
        progress.step("cores that poll");
        let row = PollerBench::new(&tree, args, polling)?.row(tree.root())?;
        report.growth.push(PollerScaling {
            cores: polling,
            median_ns: row.median_ns,
            handed_over_ns: row.handed_over_ns,
        });
    }
    Ok(report)
}

/// Returns how many cores poll in each measurement: ever twice as many, and all.
fn cores_polling(cores: usize) -> impl Iterator<Item = usize> {
    let more = move |polling: &usize| (*polling < cores).then(|| (polling * 2).min(cores));
    std::iter::successors((cores > 0).then_some(1), more)
}

fn describe(tree: &Tree) -> String {
    let kinds = tree.areas().iter().flat_map(|area| area.kinds.iter());
    let mut counts: Vec<(garonne_topology::Kind, usize)> = Vec::new();
    for kind in kinds {
        match counts.iter_mut().find(|(known, _)| known == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((*kind, 1)),
        }
    }
    let words: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    words.join(", ")
}

/// Measurement with pollers on the first cores of the machine, and the commands that they are
/// given.
struct PollerBench<'a> {
    tree: &'a Tree,
    args: &'a BenchTasksArgs,
    polling: usize,
    tasks: Tasks,
}

/// Behaviour of the submitter while it waits: it runs tasks itself, or only watches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SubmitterMode {
    Polls,
    Watches,
}

/// Rows of samples in one go: one to warm up, and those that are kept.
const ROWS: u32 = 2;

/// Samples measured with one queue.
#[derive(Debug, Default)]
struct QueueSamples {
    /// Nanoseconds per task of each sample.
    ns: Vec<f64>,
    /// Tasks of these samples run by each core.
    ran: Vec<u64>,
}

impl<'a> PollerBench<'a> {
    fn new(tree: &'a Tree, args: &'a BenchTasksArgs, polling: usize) -> Result<Self, Error> {
        let tasks = Tasks::new(TaskSettings {
            tree: tree.clone(),
            // The pollers are the only threads that run tasks.
            homes: Vec::new(),
            class: WorkerClass::Ordinary,
            spins: 0,
        })?;
        Ok(Self {
            tree,
            args,
            polling,
            tasks,
        })
    }

    fn row(&self, area: usize) -> Result<QueueCost, Error> {
        let cpus = &self.tree.areas()[area].cpus;
        let kinds: Vec<String> = self.tree.areas()[area]
            .kinds
            .iter()
            .map(|kind| kind.to_string())
            .collect();
        let cores: Vec<usize> = (0..self.tree.cores())
            .filter(|core| self.tree.path(*core).any(|on| on == area))
            .collect();
        let polled: Vec<usize> = cores
            .iter()
            .copied()
            .filter(|core| *core < self.polling)
            .collect();
        let elsewhere = polled.iter().copied().filter(|core| *core != 0).max();
        // A queue of the first core alone has nobody to hand over to, one that nobody else polls
        // cannot be watched.
        let mut own = if polled.is_empty() {
            QueueSamples::default()
        } else {
            self.samples(area, SubmitterMode::Polls)?
        };
        let mut handed = match elsewhere {
            Some(_) => self.samples(area, SubmitterMode::Watches)?,
            None => QueueSamples::default(),
        };
        Ok(QueueCost {
            queue: kinds.join("+"),
            cpus: cpus.to_string(),
            cores: cores.len(),
            median_ns: quantile(&mut own.ns, 2),
            quartile_ns: quantile(&mut own.ns, 4),
            handed_over_ns: elsewhere.map(|_| quantile(&mut handed.ns, 2)),
            hand_off_ns: elsewhere.map(|core| hand_off(self.tree, core)),
            ran: own.ran,
        })
    }

    /// Takes as many as wanted, after one to warm up, which is not among them.
    fn samples(&self, area: usize, submitter: SubmitterMode) -> Result<QueueSamples, Error> {
        let how = TaskOptions::at(Place::Cpus(self.tree.areas()[area].cpus.clone()));
        let manner = self.tasks.resolve_options(&how)?;
        // Rows that are over, and where all meet before and after each.
        let (over, meet) = (AtomicU32::new(0), Barrier::new(self.polling));
        std::thread::scope(|scope| {
            for core in 1..self.polling {
                let (over, meet) = (&over, &meet);
                scope.spawn(move || {
                    pin_to(&self.tree.areas()[core].cpus);
                    for row in 0..ROWS {
                        let mut poller = self.tasks.poller_at(core, Keypoint::Idle);
                        meet.wait();
                        while over.load(Ordering::Relaxed) <= row {
                            if let Some(poller) = &mut poller {
                                poller.turn();
                            }
                            std::hint::spin_loop();
                        }
                        // Only now is all counted that it ran.
                        drop(poller);
                        meet.wait();
                    }
                });
            }
            let submitting = scope.spawn(|| {
                pin_to(&self.tree.areas()[0].cpus);
                let row = |samples: u32| -> Result<Vec<f64>, Error> {
                    let mut poller = self.tasks.poller_at(0, Keypoint::Wait);
                    meet.wait();
                    let ns = poller.as_mut().map_or(Ok(Vec::new()), |poller| {
                        (0..samples)
                            .map(|_| self.sample(manner, submitter, poller))
                            .collect()
                    });
                    over.fetch_add(1, Ordering::Relaxed);
                    drop(poller);
                    meet.wait();
                    ns
                };
                let warm = row(1);
                let before = self.tasks.settled();
                let ns = row(self.args.samples);
                let after = self.tasks.settled();
                warm?;
                Ok(QueueSamples {
                    ns: ns?,
                    ran: after
                        .iter()
                        .zip(&before)
                        .map(|(now, then)| now - then)
                        .collect(),
                })
            });
            submitting
                .join()
                .unwrap_or(Err(Error::Misuse("the measuring thread panicked")))
        })
    }

    fn sample(
        &self,
        manner: garonne_progress::tasks::ResolvedOptions,
        submitter: SubmitterMode,
        poller: &mut garonne_progress::tasks::Poller<'_>,
    ) -> Result<f64, Error> {
        let begun = Instant::now();
        for _ in 0..self.args.tasks {
            let task = pin!(
                self.tasks
                    .task_in(manner, |_: &RunContext| RunOutcome::Done)
            );
            self.tasks.submit(task.as_ref())?;
            while task.life() == TaskState::Pending {
                if submitter == SubmitterMode::Polls {
                    poller.turn();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(self.args.tasks.max(1)))
    }
}

fn pin_to(cpus: &CpuSet) {
    let mut set = rustix::thread::CpuSet::new();
    // One thread of the core: with two the kernel might move it between them.
    if let Some(cpu) = cpus.first() {
        set.set(cpu as usize);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// One way of a cache line between the first core and another, in nanoseconds: the best of a few
/// rows.
fn hand_off(tree: &Tree, core: usize) -> f64 {
    const WAYS: u32 = 2000;
    let (word, ready) = (CachePadded(AtomicU32::new(0)), Barrier::new(2));
    let row = |mine: u32| {
        ready.wait();
        let begun = Instant::now();
        for turn in (mine..WAYS).step_by(2) {
            while word.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            word.store(turn + 1, Ordering::Release);
        }
        begun.elapsed().as_nanos() as f64 / f64::from(WAYS)
    };
    let rows = (0..5).map(|_| {
        word.store(0, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(&tree.areas()[core].cpus);
                row(1)
            });
            let here = scope.spawn(|| {
                pin_to(&tree.areas()[0].cpus);
                row(0)
            });
            here.join().unwrap_or(f64::NAN)
        })
    });
    rows.fold(f64::INFINITY, f64::min)
}

/// The least value that a half, a quarter … of all do not exceed; 0 for none.
fn quantile(values: &mut [f64], parts: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / parts).copied().unwrap_or(0.0)
}

fn print(report: &BenchReport) -> i32 {
    let ns = |value: f64| format!("{value:.0}");
    let maybe = |value: Option<f64>| value.map_or(String::from("-"), ns);
    outln!(
        "{}; one thread polls on every core; nanoseconds per task\n",
        report.machine
    );
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "queue",
        "CPUs",
        "median",
        "quartile",
        "handed over",
        "hand-off",
        "run by core",
    ]);
    for row in &report.rows {
        let ran: Vec<String> = row.ran.iter().map(u64::to_string).collect();
        table.add_row([
            row.queue.clone(),
            row.cpus.clone(),
            ns(row.median_ns),
            ns(row.quartile_ns),
            maybe(row.handed_over_ns),
            maybe(row.hand_off_ns),
            ran.join(" "),
        ]);
    }
    outln!("{table}\n");
    let mut growth = Table::new();
    growth.load_preset(presets::NOTHING);
    growth.set_header([
        "the machine's queue, cores that poll",
        "median",
        "handed over",
    ]);
    for row in &report.growth {
        growth.add_row([
            row.cores.to_string(),
            ns(row.median_ns),
            maybe(row.handed_over_ns),
        ]);
    }
    outln!("{growth}\n");
    if let (Some(local), Some(machine)) = (report.rows.first(), report.rows.last()) {
        out!(
            "local {:.0} ns; machine-wide {:.1} times that",
            local.median_ns,
            machine.median_ns / local.median_ns
        );
        match machine.hand_off_ns {
            Some(hand_off) => outln!(", {:.1} hand-offs", machine.median_ns / hand_off),
            None => outln!(),
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_of_this_machine_is_measured_and_every_task_is_counted() {
        let args = BenchTasksArgs {
            json: false,
            samples: 2,
            tasks: 5,
        };
        let report = measure(&args).expect("tasks run here");
        assert_eq!(report.rows.len(), Tree::discover().areas().len());
        for row in &report.rows {
            assert!(
                row.median_ns > 0.0 && row.quartile_ns <= row.median_ns,
                "{row:?}"
            );
            // As many as were asked for: the sample that warms up is nobody's.
            assert_eq!(row.ran.iter().sum::<u64>(), 10, "{row:?}");
        }
    }

    #[test]
    fn no_samples_or_no_tasks_are_refused_and_not_measured() {
        for option in ["--samples", "--tasks"] {
            for wrong in ["0", "-1", "1000001", "some"] {
                let error = BenchTasksArgs::try_parse_from([
                    "garonne bench tasks",
                    &format!("{option}={wrong}"),
                ])
                .expect_err(wrong);
                assert_eq!(error.exit_code(), 2);
                assert!(error.to_string().contains(option), "{error}");
            }
            assert!(BenchTasksArgs::try_parse_from(["garonne bench tasks", option, "1"]).is_ok());
        }
    }

    #[test]
    fn quantiles_are_taken_from_sorted_values() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 2), 2.0);
        assert_eq!(quantile(&mut [4.0, 3.0, 2.0, 1.0], 4), 2.0);
        assert_eq!(quantile(&mut [], 2), 0.0);
    }
}
