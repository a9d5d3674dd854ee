//! Which seeds a test runs: the usual ones, one that failed before, or as many as a time allows.
//!
//! `GARONNE_SEED` names the one; `GARONNE_TEST_SIM_SECONDS` says the time, in which no two runs of
//! the program take the same seeds. A seed that fails is printed with the command that repeats it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime};

fn said(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs `test` with each seed, usually those that the test names, among them such as failed once.
/// `which` is what cargo calls the test: `-p PACKAGE --test FILE NAME`.
///
/// # Panics
/// As the test does.
pub fn run_seeds(which: &str, usual: impl IntoIterator<Item = u64>, test: impl Fn(u64)) {
    if let Some(seed) = said("GARONNE_SEED") {
        return one(which, seed, &test);
    }
    let Some(seconds) = said("GARONNE_TEST_SIM_SECONDS") else {
        return usual.into_iter().for_each(|seed| one(which, seed, &test));
    };
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let (began, first) = (Instant::now(), since_1970.as_secs() << 16);
    let mut seed = first;
    while began.elapsed() < Duration::from_secs(seconds) {
        one(which, seed, &test);
        seed += 1;
    }
    println!("\n{} seeds from {first}: {which}", seed - first);
}

fn one(which: &str, seed: u64, test: &impl Fn(u64)) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
        eprintln!("GARONNE_SEED={seed} does it again: GARONNE_SEED={seed} cargo test {which}");
        resume_unwind(panic);
    }
}
