//! The table of schedulers against each other, as Markdown.

use std::fmt::Write as _;

use garonne_bubbles::Machine;

use crate::costs::Costs;
use crate::simulation::Outcome;

/// Says on which machine and by which costs something was simulated, in two lines.
pub fn conditions(machine: &Machine, costs: &Costs, seed: u64) -> String {
    format!(
        "{} processors, {} NUMA nodes, {} shared caches; seed {seed}; virtual time.\n\
         Costs: switch {} ns, other core {} ns, load {} ns/KiB, cache {} MiB, memory of another node \
         {} %, of another package {} %, quantum {} µs, tick {} µs.\n",
        machine.processors().count(),
        machine.nodes().len(),
        machine.caches().len(),
        costs.switch,
        costs.cold_core,
        costs.load_kib,
        costs.cache_bytes >> 20,
        costs.far_percent,
        costs.farther_percent,
        costs.quantum / 1000,
        costs.tick / 1000,
    )
}

/// The table of a workload: a row for each scheduler.
pub fn table(workload: &str, outcomes: &[(String, Outcome)]) -> String {
    let best = outcomes.iter().map(|(_, outcome)| outcome.time).min();
    let best = best.unwrap_or(1).max(1);
    let mut text = format!(
        "## {workload}\n\n\
         | scheduler | time, ms | to the best | computing, % | far memory, % | cold caches, % | \
         cache migrations | switches | moves |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for (scheduler, outcome) in outcomes {
        let all = outcome.time.saturating_mul(outcome.processors).max(1);
        let percent = |part: u64| part.saturating_mul(100) / all;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {scheduler} | {}.{:02} | {}.{:02} | {} | {} | {} | {} | {} | {} |",
            outcome.time / 1_000_000,
            outcome.time / 10_000 % 100,
            outcome.time / best,
            outcome.time % best * 100 / best,
            outcome.efficiency_percent(),
            percent(outcome.far),
            percent(outcome.cold),
            outcome.cache_migrations,
            outcome.switches,
            outcome.moves,
        );
    }
    text
}
