//! `garonne who --watch`: the job is looked at again and again, until ranks can never go on or the
//! job has ended.
//!
//! A terminal shows the latest look in the place of the one before. Elsewhere, as in a log, only
//! changes are printed, with the seconds since the first look. Times are left out there, since they
//! change always.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, stdout};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use garonne_inspect::query_client::QueryClient;
use garonne_job::node_map::listed;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::pipe;

use super::{WhoArgs, print};
use crate::commands::{self, job_lookup};
use crate::diagnosis::{Diagnosis, DiagnosisKind, report_text};
use crate::output;

/// The exit code before anything was seen: as of a program that the key has ended.
const NOTHING_SEEN: i32 = 128 + SIGINT;

/// The seconds that `--watch` names.
pub fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=3600.0).contains(seconds))
        .ok_or_else(|| "from 0.1 to 3600 seconds".into())
}

/// Looks until there is a verdict, which gives the exit code, or the job has ended: 0.
pub fn watch(mut client: QueryClient, every: Duration, args: &WhoArgs) -> i32 {
    let latest = Arc::new(AtomicI32::new(NOTHING_SEEN));
    if let Err(error) = end_at_key(Arc::clone(&latest)) {
        return commands::fail(&format!("cannot wait for the key that ends this: {error}"));
    }
    let launcher = client.launcher;
    let mut changes = RankChanges::default();
    loop {
        let found = Diagnosis::of(&client);
        let code = found.kind().exit_code();
        latest.store(code, Ordering::Relaxed);
        let is_over = is_final(found.kind());
        match (args.json, stdout().is_terminal()) {
            (true, _) => {
                if is_over || !changes.of(&found).is_empty() {
                    outln!("{}", found.with_places(&client).json(&client));
                }
            }
            (false, true) => {
                let found = found.with_places(&client);
                output::clear();
                print(&client, &found, args.stacks);
            }
            (false, false) => {
                let changed = changes.of(&found);
                if !changed.is_empty() {
                    outln!("{}", changed.join("\n"));
                }
                if is_over {
                    outln!("\n{}", found.with_places(&client).text());
                }
            }
        }
        if is_over {
            return code;
        }
        std::thread::sleep(every);
        client = match job_lookup::named(launcher) {
            Ok(client) => client,
            Err(_) => {
                if !args.json {
                    outln!("the job has ended");
                }
                return 0;
            }
        };
    }
}

/// Returns whether a finding ends the watch: hosts that were not seen may be seen next time.
fn is_final(finding: DiagnosisKind) -> bool {
    match finding {
        DiagnosisKind::Moving | DiagnosisKind::Awaited | DiagnosisKind::Unseen => false,
        DiagnosisKind::Stopped
        | DiagnosisKind::Missing
        | DiagnosisKind::Deadlock
        | DiagnosisKind::Mismatch => true,
    }
}

/// Has the interrupt key end this process with the exit code of the latest look.
fn end_at_key(latest: Arc<AtomicI32>) -> std::io::Result<()> {
    let (mut pressed, presses) = UnixStream::pair()?;
    pipe::register(SIGINT, presses)?;
    std::thread::spawn(move || {
        // Also where it cannot be read any more: nothing else would end the watch then.
        let _ = pressed.read(&mut [0]);
        std::process::exit(latest.load(Ordering::Relaxed));
    });
    Ok(())
}

/// Lines printed of the ranks so far, so that the next look prints only what differs.
#[derive(Debug)]
struct RankChanges {
    begun: Instant,
    ranks: Vec<String>,
    more: Vec<String>,
}

impl Default for RankChanges {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            ranks: Vec::new(),
            more: Vec::new(),
        }
    }
}

impl RankChanges {
    /// The lines that differ from those of the look before.
    fn of(&mut self, found: &Diagnosis) -> Vec<String> {
        let ranks = found.ranks.iter().map(report_text::stable_line).collect();
        let mut lines = self.of_ranks(ranks);
        let more = found.missing_lines();
        lines.extend(
            more.iter()
                .filter(|line| !self.more.contains(line))
                .cloned(),
        );
        self.more = more;
        let at = format!("{:6.1} s  ", self.begun.elapsed().as_secs_f64());
        lines.iter().map(|line| format!("{at}{line}")).collect()
    }

    /// A line for all ranks that have come to the same.
    fn of_ranks(&mut self, ranks: Vec<String>) -> Vec<String> {
        let mut changed: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (rank, doing) in (0..).zip(&ranks) {
            if self.ranks.get(rank as usize) != Some(doing) {
                changed.entry(doing).or_default().push(rank);
            }
        }
        let mut changed: Vec<_> = changed
            .into_iter()
            .map(|(doing, ranks)| (ranks, doing))
            .collect();
        changed.sort_unstable();
        let line = |(ranks, doing): &(Vec<u32>, &str)| {
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("{noun} {}: {doing}", listed(ranks))
        };
        let lines = changed.iter().map(line).collect();
        self.ranks = ranks;
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_told_with_all_ranks_of_which_it_is_true() {
        let mut changes = RankChanges::default();
        let mut of = |all: [&str; 4]| changes.of_ranks(all.map(str::to_owned).into());
        let begun = of(["running", "running", "MPI_Recv", "running"]);
        assert_eq!(begun, ["ranks 0-1,3: running", "rank 2: MPI_Recv"]);
        assert!(of(["running", "running", "MPI_Recv", "running"]).is_empty());
        let next = of(["MPI_Recv", "running", "MPI_Recv", "gone"]);
        assert_eq!(next, ["rank 0: MPI_Recv", "rank 3: gone"]);
    }

    #[test]
    fn seconds_are_a_number_that_can_be_waited() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["0", "heat", "nan", "1e9", "-1", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
