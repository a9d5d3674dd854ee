//! `garonne bench threads --runtime`: what fibers cost beside threads of the system.
//!
//! All is measured on one worker, in time of the CPU: other programs do not count. Samples of all
//! rows are taken in turn, so that a machine that changes changes them alike; medians and lower
//! quartiles are shown, and ratios of medians.

use clap::Parser;
use comfy_table::{Table, presets};
use garonne_fiber::{SpawnError, measure};
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;

use crate::progress_bar::ProgressBar;

/// Samples of a row: each is kept.
const COUNT_MAX: i64 = 10_000;

#[derive(Debug, Parser)]
#[command(
    name = "garonne bench threads --runtime",
    about = "What fibers cost beside threads of the system"
)]
struct BenchFibersArgs {
    /// Print the data as JSON
    #[arg(long)]
    json: bool,
    /// Samples of each row
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    samples: u32,
}

/// A row: one operation with so many repetitions in a sample.
struct Operation {
    name: &'static str,
    count: u32,
    sample: fn(u32) -> Result<Duration, SpawnError>,
    /// The row with which it is compared, and the ratio that is aimed at.
    beside: Option<(&'static str, f64)>,
}

const PTHREAD: &str = "create and join a thread of the system";
const BARE: &str = "bare switch of stacks";
const TEN: &str = "10 fibers: create and join all";
const RING: &str = "10 fibers: switch";

const OPERATIONS: [Operation; 13] = [
    row(PTHREAD, 50, threads, None),
    row(
        "create and join a fiber",
        1000,
        measure::create_and_join,
        Some((PTHREAD, 0.05)),
    ),
    row(BARE, 20_000, measure::bare, None),
    row("switch between two fibers", 20_000, two, Some((BARE, 3.0))),
    row(
        "hand-over of a mutex between two fibers",
        10_000,
        measure::mutex_hand_overs,
        None,
    ),
    row(TEN, 10, measure::create_many, None),
    row(
        "1,000 fibers: create and join all",
        1000,
        measure::create_many,
        Some((TEN, 1.0)),
    ),
    row(
        "10,000 fibers: create and join all",
        10_000,
        measure::create_many,
        Some((TEN, 1.0)),
    ),
    row(
        "100,000 fibers: create and join all",
        100_000,
        measure::create_many,
        Some((TEN, 1.0)),
    ),
    row(RING, 20_000, ring::<10>, None),
    row(
        "1,000 fibers: switch",
        20_000,
        ring::<1000>,
        Some((RING, 1.0)),
    ),
    row(
        "10,000 fibers: switch",
        40_000,
        ring::<10_000>,
        Some((RING, 1.0)),
    ),
    row(
        "100,000 fibers: switch",
        200_000,
        ring::<100_000>,
        Some((RING, 1.0)),
    ),
];

const fn row(
    name: &'static str,
    count: u32,
    sample: fn(u32) -> Result<Duration, SpawnError>,
    beside: Option<(&'static str, f64)>,
) -> Operation {
    Operation {
        name,
        count,
        sample,
        beside,
    }
}

fn two(count: u32) -> Result<Duration, SpawnError> {
    measure::switches(2, count / 2)
}

fn ring<const FIBERS: u32>(count: u32) -> Result<Duration, SpawnError> {
    measure::switches(FIBERS, count / FIBERS)
}

/// Time that threads of this process have had a CPU.
fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn threads(count: u32) -> Result<Duration, SpawnError> {
    let begin = process_time();
    for _ in 0..count {
        let thread = std::thread::Builder::new().spawn(|| ());
        let _ = thread.map_err(SpawnError::Stack)?.join();
    }
    Ok(process_time().saturating_sub(begin))
}

#[derive(Debug, Serialize)]
struct Row {
    operation: &'static str,
    median_ns: f64,
    quartile_ns: f64,
    /// Ratio to the median of another row, and what it should be at most.
    beside: Option<&'static str>,
    ratio: Option<f64>,
    aim: Option<f64>,
}

pub fn run(words: Vec<OsString>) -> i32 {
    let args = match BenchFibersArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    match measure_all(args.samples) {
        Ok(rows) if args.json => super::print_json(&rows),
        Ok(rows) => print(&rows),
        Err(error) => {
            errln!("error: cannot measure fibers: {error}");
            1
        }
    }
}

fn measure_all(samples: u32) -> Result<Vec<Row>, SpawnError> {
    let mut progress = ProgressBar::new(samples as usize);
    let mut times: Vec<Vec<f64>> = OPERATIONS.iter().map(|_| Vec::new()).collect();
    // The first one warms up.
    for sample in 0..=samples {
        for (operation, times) in OPERATIONS.iter().zip(&mut times) {
            let time = (operation.sample)(operation.count)?;
            // Zero is no sample: the worker was replaced meanwhile.
            if sample > 0 && !time.is_zero() {
                times.push(time.as_nanos() as f64 / f64::from(operation.count));
            }
        }
        progress.step("fibers and threads");
    }
    times
        .iter_mut()
        .for_each(|times| times.sort_by(f64::total_cmp));
    let at_part = |at: usize, part: usize| {
        let found = times[at].get(times[at].len() / part);
        found.copied().unwrap_or(f64::NAN)
    };
    let median = |at: usize| at_part(at, 2);
    let rows = OPERATIONS.iter().enumerate().map(|(at, operation)| {
        let other = operation
            .beside
            .and_then(|(name, _)| OPERATIONS.iter().position(|other| other.name == name));
        Row {
            operation: operation.name,
            median_ns: median(at),
            quartile_ns: at_part(at, 4),
            beside: operation.beside.map(|(name, _)| name),
            ratio: other.map(|other| median(at) / median(other)),
            aim: operation.beside.map(|(_, aim)| aim),
        }
    });
    Ok(rows.collect())
}

fn print(rows: &[Row]) -> i32 {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "operation",
        "median, ns",
        "lower quartile, ns",
        "ratio",
        "to",
        "aim",
    ]);
    for row in rows {
        table.add_row([
            row.operation.to_owned(),
            format!("{:.1}", row.median_ns),
            format!("{:.1}", row.quartile_ns),
            row.ratio
                .map_or_else(String::new, |ratio| format!("{ratio:.3}")),
            row.beside.unwrap_or_default().to_owned(),
            row.aim.map_or_else(String::new, |aim| aim.to_string()),
        ]);
    }
    outln!("{table}");
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_measured_and_compared_with_one_that_is_there() {
        // Tens of thousands of fibers are for who measures.
        let few = |operation: &&Operation| !operation.name.contains("0,000");
        for operation in OPERATIONS.iter().filter(few) {
            let time = (operation.sample)(operation.count.min(10)).unwrap();
            assert!(
                time > Duration::ZERO || operation.count > 10,
                "{}",
                operation.name
            );
            if let Some((name, _)) = operation.beside {
                assert!(OPERATIONS.iter().any(|other| other.name == name), "{name}");
            }
        }
    }
}
