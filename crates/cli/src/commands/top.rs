//! `garonne top`: a live table of a running job.

use std::io::IsTerminal;
use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use comfy_table::Table;
use garonne_node::visit::Visit;
use serde_json::json;

use super::jobs::{self, Rank};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process id of the job's launcher; not needed if one job runs
    #[arg(value_parser = jobs::number, add = ArgValueCandidates::new(jobs::candidates))]
    job: Option<u32>,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    every: f64,
    /// Look once and stop
    #[arg(long)]
    once: bool,
    /// Print JSON, one object per look
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=3600.0).contains(seconds))
        .ok_or_else(|| "from 0.01 to 3600 seconds".into())
}

pub fn run(args: &Args) -> i32 {
    let mut visit = match jobs::choose(args.job) {
        Ok(visit) => visit,
        Err(text) => {
            errln!("error: {text}");
            return 1;
        }
    };
    let mut before = jobs::ranks(&visit);
    loop {
        std::thread::sleep(Duration::from_secs_f64(args.every));
        // The job may have begun another world meanwhile, or ended.
        visit = match jobs::choose(Some(visit.launcher)) {
            Ok(visit) => visit,
            Err(_) => return 0,
        };
        let now = jobs::ranks(&visit);
        let rows = rows(&before, &now, args.every);
        match args.json {
            true => outln!(
                "{}",
                json!({ "launcher": visit.launcher, "ranks": rows.iter().map(as_json).collect::<Vec<_>>() })
            ),
            false => print(&visit, &rows),
        }
        if args.once {
            return 0;
        }
        before = now;
    }
}

/// Rates of one rank since the last look.
struct Row<'a> {
    rank: &'a Rank,
    cpu_percent: f64,
    messages_per_s: f64,
    bytes_per_s: f64,
}

fn rows<'a>(before: &[Rank], now: &'a [Rank], seconds: f64) -> Vec<Row<'a>> {
    let row = |rank: &'a Rank| {
        let old = before
            .iter()
            .find(|old| old.rank == rank.rank && old.pid == rank.pid);
        let since =
            |value: fn(&Rank) -> f64| old.map_or(0.0, |old| (value(rank) - value(old)).max(0.0)) / seconds;
        Row {
            rank,
            cpu_percent: since(|rank| rank.cpu_seconds) * 100.0,
            messages_per_s: since(|rank| rank.sent_messages as f64),
            bytes_per_s: since(|rank| rank.sent_bytes as f64),
        }
    };
    now.iter().map(row).collect()
}

fn print(visit: &Visit, rows: &[Row<'_>]) {
    if std::io::stdout().is_terminal() {
        out!("\x1b[2J\x1b[H");
    }
    outln!("{}", visit.command);
    // Ranks that count no messages show none: a column of zeros would say something else.
    let counted = rows.iter().any(|row| row.rank.sent_messages > 0);
    let mut table = Table::new();
    let mut header = vec!["rank", "process", "state", "cpu %"];
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
        let rank = row.rank;
        let mut cells = vec![
            rank.rank.to_string(),
            rank.pid.to_string(),
            jobs::word(rank.state).into(),
            format!("{:.0}", row.cpu_percent),
        ];
        if counted {
            cells.extend([
                format!("{:.0}", row.messages_per_s),
                format!("{:.1}", row.bytes_per_s / 1e6),
                rank.unexpected.to_string(),
            ]);
        }
        table.add_row(cells);
    }
    outln!("{}", table.trim_fmt());
    if let Some(far) = jobs::tell_elsewhere(&jobs::elsewhere(visit)) {
        outln!("\n{far}");
    }
}

fn as_json(row: &Row<'_>) -> serde_json::Value {
    json!({ "rank": row.rank.rank, "pid": row.rank.pid, "state": jobs::word(row.rank.state), "cpu_percent": row.cpu_percent,
        "messages_per_s": row.messages_per_s, "bytes_per_s": row.bytes_per_s, "unexpected": row.rank.unexpected,
        "sent_messages": row.rank.sent_messages, "sent_bytes": row.rank.sent_bytes })
}
