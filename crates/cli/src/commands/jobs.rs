//! Finding running jobs and reading what their ranks show: shared by `who` and `top`.

use clap_complete::engine::CompletionCandidate;
use garonne_node::Error;
use garonne_node::layout::{Card, State, tally};
pub use garonne_node::look::Rank;
use garonne_node::rendezvous;
use garonne_node::visit::{self, Visit};

/// The running jobs of this user whose agents answer.
fn visits() -> Vec<Visit> {
    let (mut visits, _) = answers();
    once_each(&mut visits, |visit| visit.name.job());
    visits
}

/// Keeps one of each job's, the first: hosts that somebody has taken for several, as containers with one network, have an agent of it each.
fn once_each<T>(all: &mut Vec<T>, job: impl Fn(&T) -> Option<&str>) {
    let mut known = std::collections::HashSet::new();
    all.retain(|one| job(one).is_none_or(|job| known.insert(job.to_owned())));
}

/// The running jobs of this user, and how many more there are whose agents do not answer.
fn answers() -> (Vec<Visit>, usize) {
    let jobs = rendezvous::jobs();
    // Side by side, since each may take a second to find out.
    let all: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = jobs
            .iter()
            .map(|name| scope.spawn(|| visit::visit(name)))
            .collect();
        asked.into_iter().filter_map(|visit| visit.join().ok()).collect()
    });
    let is_silent = |visit: &&Result<Visit, Error>| matches!(visit, Err(Error::Timeout { .. }));
    let silent = all.iter().filter(is_silent).count();
    (all.into_iter().flatten().collect(), silent)
}

/// The job that runs, if there is exactly one.
pub fn only() -> Option<Visit> {
    let mut visits = visits();
    (visits.len() == 1).then(|| visits.remove(0))
}

/// A job as it is named on the command line.
///
/// # Errors
/// A line that says what jobs are named by.
pub fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "a job is named by the process id of its launcher, which 'garonne top' shows".into())
}

/// The job whose launcher has this process id. Errors are a line for the user.
pub fn named(pid: u32) -> Result<Visit, String> {
    let (visits, silent) = answers();
    let named = visits.into_iter().find(|visit| visit.launcher == pid);
    named.ok_or_else(|| none(&format!("no job of yours has the launcher {pid}"), silent))
}

/// Nothing was found, and so many jobs do not answer.
fn none(text: &str, silent: usize) -> String {
    match silent {
        0 => text.to_owned(),
        _ => format!("{text} and answers; {silent} more do not answer: somebody may have stopped them"),
    }
}

/// The job named on the command line, or the only one. `line`: how this command names one, with PID in its place. Errors are a line for the user.
pub fn choose(wanted: Option<u32>, line: &str) -> Result<Visit, String> {
    if let Some(pid) = wanted {
        return named(pid);
    }
    let (mut visits, silent) = answers();
    once_each(&mut visits, |visit| visit.name.job());
    match visits.len() {
        0 => Err(none("no job of yours runs on this machine", silent)),
        1 => Ok(visits.remove(0)),
        _ => {
            let list: Vec<_> = visits
                .iter()
                .map(|visit| format!("  {}  {}", visit.launcher, visit.command))
                .collect();
            Err(format!(
                "several jobs run; name one by the process id of its launcher: {line}\n{}",
                list.join("\n")
            ))
        }
    }
}

/// Why nothing can be shown of a job's ranks here.
pub fn not_begun(visit: &Visit) -> String {
    let here = if visit.hosts.len() > 1 {
        " on this host"
    } else {
        ""
    };
    format!("no rank of the job{here} has called MPI_Init yet")
}

/// The running jobs by their launchers, with their command lines, for shells.
pub fn candidates() -> Vec<CompletionCandidate> {
    visits()
        .into_iter()
        .map(|visit| CompletionCandidate::new(visit.launcher.to_string()).help(Some(visit.command.into())))
        .collect()
}

/// The ranks of the job's newest world that run on this host.
pub fn ranks(visit: &Visit) -> Vec<Rank> {
    let Some((shape, board)) = &visit.world else {
        return Vec::new();
    };
    let rank = |rank| {
        let (card, sent) = (Card::of(board, rank), tally(board, shape, rank));
        let (process, cpu_seconds) = process(card.pid()).unzip();
        Rank {
            rank,
            pid: card.pid(),
            state: card.state(),
            cpu: card.cpu(),
            process,
            cpu_seconds: cpu_seconds.unwrap_or(0.0),
            wait: card.wait().filter(|wait| wait.since_ns != 0),
            book: card.book(),
            sent_messages: sent.messages,
            sent_bytes: sent.bytes,
            unexpected: sent.unexpected,
        }
    };
    let near = |rank: &u32| shape.nodes == 1 || Card::of(board, *rank).host().0 == shape.node;
    (0..shape.size).filter(near).map(rank).collect()
}

/// State and processor time of a process.
fn process(pid: u32) -> Option<(char, f64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let (user, system): (u64, u64) = (fields.nth(10)?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((
        state,
        (user + system) as f64 / rustix::param::clock_ticks_per_second() as f64,
    ))
}

/// The state in a word.
pub fn word(state: State) -> &'static str {
    match state {
        State::Absent => "not in MPI yet",
        State::Running => "running",
        State::Finalized => "finalized",
        State::Gone => "gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_two_agents_here_is_one() {
        let mut all = vec!["1/a", "2/b", "3/a", "4/b", "nameless"];
        once_each(&mut all, |name| name.split('/').nth(1));
        assert_eq!(all, ["1/a", "2/b", "nameless"]);
    }

    #[test]
    fn a_word_that_names_no_job_is_answered_with_what_does() {
        assert_eq!(number("12"), Ok(12));
        for word in ["nosuch", "-1", "", "99999999999"] {
            assert!(number(word).unwrap_err().contains("launcher"), "{word}");
        }
    }
}
