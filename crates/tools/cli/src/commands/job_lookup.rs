//! Finding running jobs and reading what their ranks show: shared by all commands that look at one.

use garonne_job::agent_socket_name::AgentSocketName;
use std::time::{Duration, Instant};

use clap_complete::engine::CompletionCandidate;
use comfy_table::{Table, presets};
use garonne_inspect::query_client::{self, QueryClient};
use garonne_inspect::sent_counters;
use garonne_job::Error;
use garonne_job::layout::{RankBlock, RankState, rank_endpoint};
pub use garonne_job::snapshot::RankSnapshot;
use garonne_links::agent_discovery;
use garonne_links::process_tree;
use garonne_links::trusted_peer;

/// A job as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSelector {
    /// By the process id of its launcher, on this host.
    Launcher(u32),
    /// By its name, or the beginning of that.
    Name(String),
}

impl std::str::FromStr for JobSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(pid) => Ok(JobSelector::Launcher(pid)),
            Err(_) if text.is_empty() => Err("a job is named as 'garonne ps' shows it".into()),
            Err(_) => Ok(JobSelector::Name(text.to_owned())),
        }
    }
}

impl std::fmt::Display for JobSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobSelector::Launcher(pid) => write!(f, "{pid}"),
            JobSelector::Name(name) => write!(f, "{name}"),
        }
    }
}

impl JobSelector {
    /// Returns whether a job of this name and launcher is meant, as it stands.
    fn is(&self, (name, launcher): (&str, u32)) -> bool {
        match self {
            JobSelector::Launcher(pid) => *pid == launcher,
            JobSelector::Name(wanted) => wanted == name,
        }
    }

    /// Selects the jobs that are meant: the one of this name or launcher, else those whose names
    /// begin so.
    fn among<T>(&self, jobs: Vec<T>, of: impl Fn(&T) -> (&str, u32)) -> Vec<T> {
        let begins = |(name, _): (&str, u32)| match self {
            JobSelector::Name(wanted) => name.starts_with(wanted.as_str()),
            JobSelector::Launcher(_) => false,
        };
        let exact = jobs.iter().any(|job| self.is(of(job)));
        let is_meant = |job: &T| {
            if exact {
                self.is(of(job))
            } else {
                begins(of(job))
            }
        };
        jobs.into_iter().filter(is_meant).collect()
    }
}

/// The jobs of this user that have an agent on this host.
#[derive(Debug, Default)]
pub struct RunningJobs {
    /// Jobs that answer, each once, oldest first.
    pub clients: Vec<QueryClient>,
    /// Launchers of those that do not.
    pub silent: Vec<u32>,
}

/// How many agents are asked side by side: each may take a second to find out that nobody answers.
const ASKED_AT_ONCE: usize = 64;
/// Time that agents are asked. Anybody on the machine can bind any number of names that look like
/// those of agents.
const ASKING: Duration = Duration::from_secs(4);

/// Asks all of them; those first whose launcher is a process of this user.
pub fn running() -> RunningJobs {
    let own = rustix::process::geteuid().as_raw();
    let mut jobs = agent_discovery::jobs();
    jobs.sort_by_key(|name| name.launcher().and_then(trusted_peer::owner) != Some(own));
    let until = Instant::now() + ASKING;
    let mut running = RunningJobs::default();
    for some in jobs.chunks(ASKED_AT_ONCE) {
        if Instant::now() > until {
            break;
        }
        for (name, answer) in some.iter().zip(clients(some)) {
            match answer {
                Some(Ok(client)) if client.user == own || client.user == 0 => {
                    running.clients.push(client)
                }
                Some(Err(Error::Timeout { .. })) => running.silent.extend(name.launcher()),
                _ => {}
            }
        }
    }
    once_each(&mut running.clients, |client| client.name.job());
    running
}

/// The answers of these agents, asked side by side; none where no thread could be had for it.
fn clients(names: &[AgentSocketName]) -> Vec<Option<garonne_job::error::Result<QueryClient>>> {
    std::thread::scope(|scope| {
        let ask = |name| {
            std::thread::Builder::new().spawn_scoped(scope, move || query_client::attach(name))
        };
        let asked: Vec<_> = names.iter().map(ask).collect();
        let answer = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| {
            thread.ok()?.join().ok()
        };
        asked.into_iter().map(answer).collect()
    })
}

/// Keeps one of each job's, the first: hosts that somebody has taken for several, as containers
/// with one network, have an agent of it each.
fn once_each<T>(all: &mut Vec<T>, job: impl Fn(&T) -> Option<&str>) {
    let mut known = std::collections::HashSet::new();
    all.retain(|one| job(one).is_none_or(|job| known.insert(job.to_owned())));
}

/// The job whose launcher has this process id. Errors are a line for the user.
pub fn named(pid: u32) -> Result<QueryClient, String> {
    choose(Some(&JobSelector::Launcher(pid)), "")
}

/// The job named on the command line, or the only one. `line`: how this command names one, with JOB
/// in its place. Errors are for the user, with the jobs there are.
pub fn choose(wanted: Option<&JobSelector>, line: &str) -> Result<QueryClient, String> {
    if let Some(JobSelector::Launcher(pid)) = wanted
        && let Some(client) = of_launcher(*pid)
    {
        return Ok(client);
    }
    let RunningJobs { clients, silent } = running();
    let list = listed(&clients);
    let meant = match wanted {
        None => clients,
        Some(wanted) => wanted.among(clients, |client| (&client.job_name, client.launcher)),
    };
    only_one(meant).map_err(|several| {
        let head = match (wanted, several) {
            (None, false) => "no job of yours runs on this machine".to_owned(),
            (None, true) => format!("several jobs run; name one: {line}"),
            (Some(wanted), false) => {
                format!("no job of yours on this machine is called '{wanted}'")
            }
            (Some(wanted), true) => {
                format!("several jobs are called '{wanted}'; name one by its launcher: {line}")
            }
        };
        let more = match silent.len() {
            0 => String::new(),
            count => {
                format!(" and answers; {count} more do not answer: somebody may have stopped them")
            }
        };
        let these = if several || list.is_empty() {
            ""
        } else {
            "; these run:"
        };
        let end = if list.is_empty() { "" } else { "\n" };
        format!("{head}{more}{these}{end}{list}")
    })
}

/// A job whose launcher has this process id, also by an agent that is not the first of its job
/// here.
fn of_launcher(pid: u32) -> Option<QueryClient> {
    let jobs = agent_discovery::jobs();
    let of = jobs.iter().filter(|name| name.launcher() == Some(pid));
    of.filter_map(|name| query_client::attach(name).ok()).next()
}

/// The one there is; else whether there are several.
fn only_one(mut clients: Vec<QueryClient>) -> Result<QueryClient, bool> {
    match clients.pop() {
        Some(client) if clients.is_empty() => Ok(client),
        last => Err(last.is_some()),
    }
}

/// The jobs there are, a line each.
pub fn listed(clients: &[QueryClient]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for client in clients {
        table.add_row([
            format!(" {}", client.job_name),
            client.launcher.to_string(),
            client.command.clone(),
        ]);
    }
    match clients.is_empty() {
        true => String::new(),
        false => table.trim_fmt(),
    }
}

/// Why nothing can be shown of a job's ranks here.
pub fn not_begun(client: &QueryClient) -> String {
    let here = if client.hosts.len() > 1 {
        " on this host"
    } else {
        ""
    };
    format!("no rank of the job{here} has called MPI_Init yet")
}

/// The running jobs by their names, with their command lines, for shells.
pub fn candidates() -> Vec<CompletionCandidate> {
    let clients = running().clients.into_iter();
    clients
        .map(|client| CompletionCandidate::new(client.job_name).help(Some(client.command.into())))
        .collect()
}

/// The ranks of the job's newest world that run on this host.
pub fn ranks(client: &QueryClient) -> Vec<RankSnapshot> {
    let Some((shape, world_memory)) = &client.world else {
        return Vec::new();
    };
    let rank = |rank| {
        let (card, sent) = (
            RankBlock::of(world_memory, rank),
            sent_counters::of(world_memory, shape, rank).tally,
        );
        let (process, cpu_seconds) = process(card.pid()).unzip();
        RankSnapshot {
            rank,
            pid: card.pid(),
            state: card.state(),
            cpu: card.cpu(),
            process,
            cpu_seconds: cpu_seconds.unwrap_or(0.0),
            wait: card.wait().filter(|wait| wait.since_ns != 0),
            book: card.wait_report(),
            sent_messages: sent.messages,
            sent_bytes: sent.bytes,
            unexpected: sent.unexpected,
        }
    };
    rank_endpoint::local_ranks(world_memory, shape)
        .map(rank)
        .collect()
}

/// State and processor time of a process.
fn process(pid: u32) -> Option<(char, f64)> {
    let (state, ticks) = process_tree::use_of(i32::try_from(pid).ok()?)?;
    Some((
        state,
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    ))
}

/// The name of this host.
pub fn own_host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The state in a word.
pub fn word(state: RankState) -> &'static str {
    match state {
        RankState::Absent => "not in MPI yet",
        RankState::Running => "running",
        RankState::Finalized => "finalized",
        RankState::Gone => "gone",
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

    fn meant(word: &str) -> Vec<u32> {
        let jobs = vec![
            ("heat-b", 1),
            ("heat", 2),
            ("wave-c", 3),
            ("heat-d", 4),
            ("heat-d", 5),
        ];
        let wanted: JobSelector = word.parse().unwrap();
        let meant = wanted.among(jobs, |(name, launcher)| (*name, *launcher));
        meant.into_iter().map(|(_, launcher)| launcher).collect()
    }

    #[test]
    fn a_job_is_named_by_its_launcher_by_its_name_or_by_how_that_begins() {
        assert_eq!(meant("3"), [3]);
        assert_eq!(meant("wave"), [3]);
        assert_eq!(meant("heat-b"), [1]);
        // A name that stands is no beginning of another.
        assert_eq!(meant("heat"), [2]);
        assert_eq!(meant("heat-"), [1, 4, 5]);
        assert_eq!(meant("heat-d"), [4, 5]);
        assert!(meant("solver").is_empty() && meant("7").is_empty());
        assert!("".parse::<JobSelector>().is_err());
    }
}
