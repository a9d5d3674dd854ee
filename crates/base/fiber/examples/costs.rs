//! What operations of fibers cost: `cargo run --release -p garonne-fiber --example costs`.

use garonne_fiber::{SpawnError, measure};
use std::time::Duration;

/// Prints the median of some samples, in ns of the CPU for each of `count`.
fn show(
    name: &str,
    count: u32,
    sample: impl Fn() -> Result<Duration, SpawnError>,
) -> Result<(), SpawnError> {
    let samples: Result<Vec<_>, _> = (0..11).map(|_| sample()).collect();
    // Zero: the worker was replaced meanwhile.
    let mut samples: Vec<_> = samples?
        .into_iter()
        .filter(|time| !time.is_zero())
        .collect();
    samples.sort_unstable();
    if let Some(median) = samples.get(samples.len() / 2) {
        println!(
            "{name:36} {:8.1} ns",
            median.as_nanos() as f64 / f64::from(count)
        );
    }
    Ok(())
}

fn main() -> Result<(), SpawnError> {
    show("create and join", 10_000, || {
        measure::create_and_join(10_000)
    })?;
    show("bare switch", 1_000_000, || measure::bare(1_000_000))?;
    show("hand-over of a mutex", 100_000, || {
        measure::mutex_hand_overs(100_000)
    })?;
    for fibers in [2, 10, 1000, 10_000, 100_000] {
        let name = format!("switch among {fibers}");
        show(&name, 400_000, || {
            measure::switches(fibers, 400_000 / fibers)
        })?;
    }
    for fibers in [10, 1000, 10_000, 100_000] {
        let name = format!("create and join {fibers} at once");
        show(&name, fibers, || measure::create_many(fibers))?;
    }
    Ok(())
}
