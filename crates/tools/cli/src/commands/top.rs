//! `garonne top`: a live table of a running job, of all hosts that answer.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap_complete::engine::ArgValueCandidates;
use comfy_table::Table;
use garonne_inspect::query_client::QueryClient;
use serde_json::json;

use super::job_lookup::{self, RankSnapshot};
use crate::diagnosis::job_snapshot::{self, SilentHost};
use crate::diagnosis::rank_waits::RankView;
use crate::diagnosis::short_status;
use crate::{job_page, output};

#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// The job, by its name or its launcher's process id (garonne ps); not needed if one job runs
    #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
    job: Option<job_lookup::JobSelector>,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    every: f64,
    /// Look once and stop
    #[arg(long)]
    once: bool,
    /// Print JSON, one object per look
    #[arg(long)]
    json: bool,
    /// Serve a page with the job's hosts, ranks, messages and waits to browsers on this machine,
    /// and print its address
    #[arg(long, conflicts_with_all = ["json", "once", "every"])]
    web: bool,
    /// The port of that page (default: any that is free)
    #[arg(long, requires = "web", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=3600.0).contains(seconds))
        .ok_or_else(|| "from 0.01 to 3600 seconds".into())
}

pub fn run(args: &TopArgs) -> i32 {
    let mut client = match job_lookup::choose(args.job.as_ref(), "garonne top JOB") {
        Ok(client) => client,
        Err(text) => {
            errln!("error: {text}");
            return 1;
        }
    };
    if args.web {
        return job_page::live_server::serve(&client, args.port)
            .unwrap_or_else(|text| super::fail(&text));
    }
    let (mut before, mut at) = (job_snapshot::usage_with_waits(&client), Instant::now());
    loop {
        std::thread::sleep(Duration::from_secs_f64(args.every));
        // The job may have begun another world meanwhile, or ended.
        client = match job_lookup::named(client.launcher) {
            Ok(client) => client,
            Err(_) => return 0,
        };
        // Hosts that do not answer are waited for.
        let (now, then) = (job_snapshot::usage_with_waits(&client), at);
        at = Instant::now();
        let rows = rows(
            &before.ranks,
            &now.ranks,
            at.duration_since(then).as_secs_f64(),
        );
        match args.json {
            true => {
                let far = now.silent_hosts.iter().map(job_snapshot::silent_as_json);
                outln!(
                    "{}",
                    json!({ "name": client.job_name, "launcher": client.launcher, "ranks": rows.iter().map(as_json).collect::<Vec<_>>(), "elsewhere": far.collect::<Vec<_>>() })
                );
            }
            false => print(&client, &rows, &now.silent_hosts),
        }
        if args.once {
            return 0;
        }
        before = now;
    }
}

/// Rates of one rank since the last look.
struct RankRates<'a> {
    shown: &'a RankView,
    cpu_percent: f64,
    messages_per_s: f64,
    bytes_per_s: f64,
}

fn rows<'a>(before: &[RankView], now: &'a [RankView], seconds: f64) -> Vec<RankRates<'a>> {
    let row = |shown: &'a RankView| {
        let rank = &shown.snapshot.rank;
        // Both are in the order of ranks.
        let old = before
            .get(rank.rank as usize)
            .filter(|old| old.snapshot.rank.rank == rank.rank)
            .map(|old| &old.snapshot.rank)
            .filter(|old| old.pid == rank.pid);
        let since = |value: fn(&RankSnapshot) -> f64| {
            old.map_or(0.0, |old| (value(rank) - value(old)).max(0.0)) / seconds
        };
        RankRates {
            shown,
            cpu_percent: since(|rank| rank.cpu_seconds) * 100.0,
            messages_per_s: since(|rank| rank.sent_messages as f64),
            bytes_per_s: since(|rank| rank.sent_bytes as f64),
        }
    };
    now.iter().filter(|shown| !shown.silent).map(row).collect()
}

fn print(client: &QueryClient, rows: &[RankRates<'_>], silent: &[SilentHost]) {
    if std::io::stdout().is_terminal() {
        output::clear();
    }
    outln!("{}", client.command);
    // Ranks that count no messages show none: a column of zeros would say something else.
    let counted = rows
        .iter()
        .any(|row| row.shown.snapshot.rank.sent_messages > 0);
    let on_hosts = rows.iter().any(|row| row.shown.host.is_some());
    let mut table = Table::new();
    let mut header = vec!["rank"];
    header.extend(on_hosts.then_some("host"));
    header.extend(["process", "state", "cpu %"]);
    header.push("waits for");
    header.extend(
        counted
            .then_some(["messages/s", "MB/s", "unexpected"])
            .into_iter()
            .flatten(),
    );
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_header(header);
    for row in rows {
        let rank = &row.shown.snapshot.rank;
        let host = row.shown.host.as_deref().unwrap_or_default();
        let mut cells = vec![rank.rank.to_string()];
        cells.extend(on_hosts.then(|| host.to_owned()));
        cells.extend([
            rank.pid.to_string(),
            job_lookup::word(rank.state).into(),
            format!("{:.0}", row.cpu_percent),
            short_status::short_status(row.shown),
        ]);
        if counted {
            cells.extend([
                format!("{:.0}", row.messages_per_s),
                format!("{:.1}", row.bytes_per_s / 1e6),
                rank.unexpected.to_string(),
            ]);
        }
        table.add_row(cells);
    }
    output::out_table(&table);
    if let Some(far) = job_snapshot::silent_hosts_text(silent) {
        outln!("\n{far}");
    }
}

fn as_json(row: &RankRates<'_>) -> serde_json::Value {
    let rank = &row.shown.snapshot.rank;
    json!({ "rank": rank.rank, "host": row.shown.host.as_deref(), "pid": rank.pid, "state": job_lookup::word(rank.state), "cpu_percent": row.cpu_percent, "waits_for": short_status::short_status(row.shown),
        "messages_per_s": row.messages_per_s, "bytes_per_s": row.bytes_per_s, "unexpected": rank.unexpected,
        "sent_messages": rank.sent_messages, "sent_bytes": rank.sent_bytes })
}
