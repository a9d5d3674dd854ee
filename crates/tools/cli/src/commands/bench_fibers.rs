//! `garonne bench threads --runtime`: what fibers cost, beside threads of the system and beside a
//! bare switch between two stacks.
//!
//! All fibers that are measured run on one core. Each figure is the median of some samples; samples
//! of what is compared take turns, so that a change of the machine's pace meets both.

use clap::Parser;
use comfy_table::{Table, presets};
use garonne_fiber::{
    Builder, JoinHandle, Place, RawMutex, Semaphore, SpawnError, bare_switches, yield_now,
};
use serde::Serialize;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Switches, hand-overs or creations of a sample.
const STEPS: u32 = 20_000;
/// Threads of the system of a sample, which cost a thousand times as much.
const THREADS: u32 = 200;

#[derive(Debug, Parser)]
#[command(
    name = "garonne bench threads",
    about = "What fibers cost, beside threads of the system"
)]
struct BenchFibersArgs {
    /// The thread runtime, and not threads in MPI
    #[arg(long)]
    runtime: bool,
    /// Print the data as JSON
    #[arg(long)]
    json: bool,
    /// Samples of each figure
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
    /// Fibers alive in the last row
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    fibers: u32,
}

/// Medians, in ns.
#[derive(Debug, Serialize)]
struct FiberCosts {
    thread_create_join: f64,
    fiber_create_join: f64,
    bare_switch: f64,
    fiber_switch: f64,
    mutex_hand_over: f64,
    /// A switch with so many fibers alive, all of them in turn.
    switch_among: Vec<(u32, f64)>,
    /// Creating and joining one with so many others alive, which wait.
    create_join_among: Vec<(u32, f64)>,
}

pub fn run(words: Vec<OsString>) -> i32 {
    let args = match BenchFibersArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    match measure(&args) {
        Ok(costs) if args.json => super::print_json(&costs),
        Ok(costs) => print(&costs),
        Err(error) => {
            errln!("error: cannot measure fibers: {error}");
            1
        }
    }
}

/// Starts a fiber on the core on which all are.
fn start<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SpawnError> {
    let place = garonne_fiber::machine()
        .areas()
        .first()
        .map(|area| area.cpus.clone());
    let place = place.map_or(Place::Machine, Place::Cpus);
    Builder::new().stack_size(16 << 10).place(place).spawn(body)
}

/// Runs `body` in a fiber; a panic there is one here.
fn in_fiber<T: Send + 'static>(
    body: impl FnOnce() -> Result<T, SpawnError> + Send + 'static,
) -> Result<T, SpawnError> {
    start(body)?
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn each(time: Duration, count: u32) -> f64 {
    time.as_nanos() as f64 / f64::from(count.max(1))
}

fn create_join() -> Result<f64, SpawnError> {
    in_fiber(|| {
        let begin = Instant::now();
        for _ in 0..STEPS {
            drop(start(|| ())?.join());
        }
        Ok(each(begin.elapsed(), STEPS))
    })
}

fn threads() -> f64 {
    let begin = Instant::now();
    for _ in 0..THREADS {
        drop(std::thread::spawn(|| ()).join());
    }
    each(begin.elapsed(), THREADS)
}

/// So many fibers yield in turn.
fn switches(fibers: u32) -> Result<f64, SpawnError> {
    in_fiber(move || {
        let rounds = (STEPS / fibers).max(2);
        let all = (0..fibers).map(|_| start(move || (0..rounds).for_each(|_| yield_now())));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        // Their first turns touch their stacks.
        yield_now();
        let begin = Instant::now();
        (1..rounds).for_each(|_| yield_now());
        let time = begin.elapsed();
        all.into_iter().for_each(|fiber| drop(fiber.join()));
        Ok(each(time, (rounds - 1) * (fibers + 1)))
    })
}

/// Two fibers pass a mutex on: whoever unlocks it waits for it at once.
fn hand_overs() -> Result<f64, SpawnError> {
    in_fiber(|| {
        let mutex = Arc::new(RawMutex::new());
        let pass = |mutex: Arc<RawMutex>| {
            move || {
                mutex.lock();
                yield_now();
                for _ in 0..STEPS {
                    mutex.unlock();
                    mutex.lock();
                }
                mutex.unlock();
            }
        };
        let begin = Instant::now();
        let both = [start(pass(mutex.clone()))?, start(pass(mutex))?];
        both.into_iter().for_each(|fiber| drop(fiber.join()));
        Ok(each(begin.elapsed(), 2 * STEPS))
    })
}

/// Creates and joins while others wait.
fn create_join_among(fibers: u32) -> Result<f64, SpawnError> {
    let gate = Arc::new(Semaphore::new(0));
    let waiting = (0..fibers).map(|_| {
        let gate = gate.clone();
        start(move || gate.wait())
    });
    let waiting = waiting.collect::<Result<Vec<_>, _>>()?;
    let cost = create_join();
    waiting.iter().for_each(|_| drop(gate.post()));
    waiting.into_iter().for_each(|fiber| drop(fiber.join()));
    cost
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

fn measure(args: &BenchFibersArgs) -> Result<FiberCosts, SpawnError> {
    debug_assert!(args.runtime, "asked for by this option");
    let mut samples: [Vec<f64>; 5] = Default::default();
    for _ in 0..args.samples {
        let bare = bare_switches(STEPS).map_or(0.0, |time| each(time, STEPS));
        let sample = [threads(), create_join()?, bare, switches(2)?, hand_overs()?];
        samples
            .iter_mut()
            .zip(sample)
            .for_each(|(all, one)| all.push(one));
    }
    let [threads, fibers, bare, switch, hand_over] = samples.map(median);
    let counts: Vec<u32> = [10, 1000, args.fibers].into();
    let among = |cost: fn(u32) -> Result<f64, SpawnError>| {
        let row = |fibers: &u32| {
            let samples = (0..3)
                .map(|_| cost(*fibers))
                .collect::<Result<Vec<_>, _>>()?;
            Ok((*fibers, median(samples)))
        };
        counts
            .iter()
            .map(row)
            .collect::<Result<Vec<_>, SpawnError>>()
    };
    Ok(FiberCosts {
        thread_create_join: threads,
        fiber_create_join: fibers,
        bare_switch: bare,
        fiber_switch: switch,
        mutex_hand_over: hand_over,
        switch_among: among(switches)?,
        create_join_among: among(create_join_among)?,
    })
}

fn print(costs: &FiberCosts) -> i32 {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["", "ns", "beside"]);
    let mut row = |what: String, cost: f64, beside: String| {
        table.add_row([what, format!("{cost:.0}"), beside]);
    };
    let part = costs.thread_create_join / costs.fiber_create_join.max(1.0);
    let times = costs.fiber_switch / costs.bare_switch.max(0.1);
    row(
        "create and join, thread of the system".into(),
        costs.thread_create_join,
        String::new(),
    );
    row(
        "create and join, fiber".into(),
        costs.fiber_create_join,
        format!("1/{part:.0} of a thread's"),
    );
    row(
        "bare switch to a stack and back".into(),
        costs.bare_switch,
        String::new(),
    );
    row(
        "switch between two fibers".into(),
        costs.fiber_switch,
        format!("{times:.1} times the bare one"),
    );
    row(
        "hand-over of a mutex".into(),
        costs.mutex_hand_over,
        String::new(),
    );
    for (fibers, cost) in &costs.switch_among {
        row(
            format!("switch among {fibers} fibers"),
            *cost,
            String::new(),
        );
    }
    for (fibers, cost) in &costs.create_join_among {
        row(
            format!("create and join beside {fibers} fibers"),
            *cost,
            String::new(),
        );
    }
    outln!("{table}");
    0
}
