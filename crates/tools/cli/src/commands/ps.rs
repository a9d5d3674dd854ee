//! `garonne ps`: the jobs of this user that have anything to do with this host, with all their
//! hosts; or the ranks of one.

use clap_complete::engine::ArgValueCandidates;
use comfy_table::{Table, presets};
use garonne_inspect::query_client::QueryClient;
use garonne_job::job_name::now_s;
use garonne_job::layout::RankState;
use serde_json::{Value, json};

use super::job_lookup;
use crate::diagnosis::job_snapshot::{self, JobSnapshot};
use crate::diagnosis::rank_waits::RankView;
use crate::output;

#[derive(Debug, clap::Args)]
pub struct PsArgs {
    /// A job, by its name or its launcher's process id: shows its ranks
    #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
    job: Option<job_lookup::JobSelector>,
    /// Job whose ranks are shown, as with JOB
    #[arg(short = 'n', long = "name", value_name = "NAME", conflicts_with = "job", add = ArgValueCandidates::new(job_lookup::candidates))]
    name: Option<job_lookup::JobSelector>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &PsArgs) -> i32 {
    let wanted = args.job.as_ref().or(args.name.as_ref());
    match wanted {
        None => all(args.json),
        Some(_) => match job_lookup::choose(wanted, "garonne ps JOB") {
            Ok(client) => one(&client, args.json),
            Err(text) => super::fail(&text),
        },
    }
}

/// One job, as the list shows it.
struct JobRow {
    name: String,
    program: String,
    ranks: u32,
    hosts: Vec<String>,
    started_s: u64,
    launcher: u32,
    state: String,
}

impl JobRow {
    fn of(client: &QueryClient) -> Self {
        let gathered = job_snapshot::usage(client);
        let hosts = hosts_of(client, &gathered);
        Self {
            name: client.job_name.clone(),
            program: client.command.clone(),
            ranks: client.ranks,
            state: state(&gathered, client.ranks),
            hosts,
            started_s: client.started_s,
            launcher: client.launcher,
        }
    }

    fn as_json(&self) -> Value {
        json!({ "name": self.name, "program": self.program, "ranks": self.ranks, "hosts": self.hosts,
            "started_s": (self.started_s > 0).then_some(self.started_s), "launcher": self.launcher, "state": self.state })
    }
}

/// Hosts with ranks, in the order of these; of a job on one host this one.
fn hosts_of(client: &QueryClient, gathered: &JobSnapshot) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for host in gathered
        .ranks
        .iter()
        .filter_map(|shown| shown.host.as_deref())
    {
        if !names.iter().any(|known| known == host) {
            names.push(host.to_owned());
        }
    }
    if names.is_empty() && client.hosts.len() > 1 {
        names.clone_from(&client.hosts);
    }
    if names.is_empty() {
        names.push(job_lookup::own_host());
    }
    names
}

/// Describes in a few words what the ranks of a job do. Ranks that have not come to MPI may be of a
/// program that never will.
fn state(gathered: &JobSnapshot, ranks: u32) -> String {
    let seen = || gathered.ranks.iter().filter(|shown| !shown.silent);
    let count = |is: fn(&RankView) -> bool| seen().filter(|shown| is(shown)).count();
    let running = count(|shown| shown.snapshot.rank.state == RankState::Running);
    let stopped = count(|shown| matches!(shown.snapshot.rank.process, Some('T' | 't')));
    let over = count(|shown| {
        matches!(
            shown.snapshot.rank.state,
            RankState::Finalized | RankState::Gone
        )
    });
    let state = match () {
        () if stopped > 0 => format!("{stopped} of {ranks} stopped"),
        () if running == ranks as usize => "running".to_owned(),
        () if running > 0 => format!("{running} of {ranks} in MPI"),
        () if over > 0 => "ending".to_owned(),
        () => "not in MPI".to_owned(),
    };
    match gathered.silent_hosts.len() {
        0 => state,
        1 => format!("{state}, 1 host does not answer"),
        hosts => format!("{state}, {hosts} hosts do not answer"),
    }
}

/// All jobs.
fn all(as_json: bool) -> i32 {
    let job_lookup::RunningJobs { clients, silent } = job_lookup::running();
    // Side by side, since a host that does not answer is waited for.
    let rows: Vec<JobRow> = std::thread::scope(|scope| {
        let asked: Vec<_> = clients
            .iter()
            .map(|client| scope.spawn(|| JobRow::of(client)))
            .collect();
        asked
            .into_iter()
            .filter_map(|row| row.join().ok())
            .collect()
    });
    if as_json {
        let silent = silent
            .iter()
            .map(|launcher| json!({ "launcher": launcher, "state": SILENT }));
        let rows: Vec<Value> = rows.iter().map(JobRow::as_json).chain(silent).collect();
        return super::print_json(&rows);
    }
    if rows.is_empty() && silent.is_empty() {
        errln!("no job of yours runs on this machine");
        return 0;
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "name", "ranks", "hosts", "since", "launcher", "state", "program",
    ]);
    for row in &rows {
        table.add_row([
            row.name.clone(),
            row.ranks.to_string(),
            few(&row.hosts),
            since(row.started_s, now_s()),
            row.launcher.to_string(),
            row.state.clone(),
            row.program.clone(),
        ]);
    }
    for launcher in silent {
        table.add_row(["?", "", "", "", &launcher.to_string(), SILENT, ""]);
    }
    output::out_table(&table);
    0
}

/// State of a job whose agent is stopped.
const SILENT: &str = "does not answer: somebody may have stopped it";

/// Hosts that a line names; of more their number is said.
const HOSTS_NAMED: usize = 3;

fn few(hosts: &[String]) -> String {
    match hosts.len() {
        ..=HOSTS_NAMED => hosts.join(","),
        count => format!(
            "{}, ... ({count})",
            hosts.first().map_or("", String::as_str)
        ),
    }
}

/// For how long something has run, as people say it.
fn since(started_s: u64, now_s: u64) -> String {
    let for_s = now_s.saturating_sub(started_s);
    match (started_s, for_s) {
        (0, _) => String::new(),
        (_, ..60) => format!("{for_s} s"),
        (_, ..3600) => format!("{} min {:02} s", for_s / 60, for_s % 60),
        (_, ..86_400) => format!("{} h {:02} min", for_s / 3600, for_s / 60 % 60),
        _ => format!("{} d {:02} h", for_s / 86_400, for_s / 3600 % 24),
    }
}

/// The ranks of one job.
fn one(client: &QueryClient, as_json: bool) -> i32 {
    let gathered = job_snapshot::usage(client);
    let own = hosts_of(client, &gathered)
        .into_iter()
        .next()
        .unwrap_or_default();
    let host = |shown: &RankView| shown.host.as_deref().unwrap_or(&own).to_owned();
    let seen: Vec<&RankView> = gathered
        .ranks
        .iter()
        .filter(|shown| !shown.silent)
        .collect();
    if as_json {
        let ranks = seen.iter().map(|shown| {
            let rank = &shown.snapshot.rank;
            json!({ "rank": rank.rank, "host": host(shown), "pid": (rank.pid > 0).then_some(rank.pid), "state": job_lookup::word(rank.state), "cpu": rank.cpu,
                "cpu_seconds": rank.cpu_seconds, "sent_messages": rank.sent_messages, "sent_bytes": rank.sent_bytes })
        });
        let ranks: Vec<Value> = ranks.collect();
        let far: Vec<Value> = gathered
            .silent_hosts
            .iter()
            .map(job_snapshot::silent_as_json)
            .collect();
        let mut row = JobRow::of(client).as_json();
        row["of_rank"] = json!(ranks);
        row["elsewhere"] = json!(far);
        return super::print_json(&row);
    }
    outln!(
        "{}: {} ({} ranks)",
        client.job_name,
        client.command,
        client.ranks
    );
    if gathered.ranks.is_empty() {
        outln!("no rank has called MPI_Init yet");
        return 0;
    }
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["rank", "host", "process", "state", "cpu", "cpu time"]);
    for shown in seen {
        let rank = &shown.snapshot.rank;
        table.add_row([
            rank.rank.to_string(),
            host(shown),
            if rank.pid > 0 {
                rank.pid.to_string()
            } else {
                String::new()
            },
            job_lookup::word(rank.state).to_owned(),
            rank.cpu.map_or("any".to_owned(), |cpu| cpu.to_string()),
            format!("{:.1} s", rank.cpu_seconds),
        ]);
    }
    output::out_table(&table);
    if let Some(far) = job_snapshot::silent_hosts_text(&gathered.silent_hosts) {
        outln!("\n{far}");
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::snapshot::DetailedSnapshot;

    #[test]
    fn times_are_said_in_two_units() {
        let cases = [
            (5, "5 s"),
            (61, "1 min 01 s"),
            (3 * 3600 + 59, "3 h 00 min"),
            (90_000, "1 d 01 h"),
        ];
        for (seconds, said) in cases {
            assert_eq!(since(1000, 1000 + seconds), said);
        }
        // A clock that was set back, and an agent that says nothing.
        assert_eq!(
            (since(1000, 10), since(0, 10)),
            ("0 s".into(), String::new())
        );
    }

    #[test]
    fn many_hosts_are_counted_and_few_are_named() {
        let names = |count: u32| (0..count).map(|at| format!("n{at}")).collect::<Vec<_>>();
        assert_eq!(few(&names(3)), "n0,n1,n2");
        assert_eq!(few(&names(17)), "n0, ... (17)");
    }

    #[test]
    fn the_state_of_a_job_is_that_of_its_ranks() {
        let of = |states: &[RankState]| {
            let rank = |(rank, state): (u32, &RankState)| {
                let mut seen = DetailedSnapshot::unavailable(rank);
                seen.rank.state = *state;
                RankView {
                    snapshot: seen,
                    host: None,
                    silent: false,
                }
            };
            let all = (0..).zip(states).map(rank).collect();
            state(
                &JobSnapshot {
                    ranks: all,
                    silent_hosts: Vec::new(),
                },
                states.len() as u32,
            )
        };
        assert_eq!(of(&[RankState::Running, RankState::Running]), "running");
        assert_eq!(
            of(&[RankState::Running, RankState::Absent]),
            "1 of 2 in MPI"
        );
        assert_eq!(of(&[RankState::Absent, RankState::Absent]), "not in MPI");
        assert_eq!(of(&[RankState::Finalized, RankState::Gone]), "ending");
    }
}
