//! Shares per call site, as a table for people and as JSON.

use comfy_table::{CellAlignment, Table as Drawn};
use garonne_trace::event::SharedName;
use garonne_trace::overlap::overlap_share::OverlapReason;
use garonne_trace::overlap::{CallSiteOverlap, OverlapAnalysis};
use serde_json::{Value, json};

/// Rows of the short table at a job's end.
pub const SHORT: usize = 12;

/// Overlap by call site, as a table for people and as JSON.
#[derive(Debug)]
pub struct OverlapTable {
    /// Place, function and what came together there; what was waited for longest first.
    rows: Vec<(SharedName, SharedName, CallSiteOverlap)>,
    lost: u64,
    crowded: bool,
}

impl OverlapTable {
    /// Returns the table of everything that was seen.
    pub fn new(analysis: OverlapAnalysis, crowded: bool) -> Self {
        let lost = analysis.lost;
        let rows = analysis.finish().into_iter();
        let mut rows: Vec<_> = rows.map(|((site, call), row)| (site, call, row)).collect();
        rows.sort_by_key(|(_, _, row)| std::cmp::Reverse(row.waited_ns));
        Self {
            rows,
            lost,
            crowded,
        }
    }

    /// Returns the table as text, at most `most` rows.
    pub fn text(&self, most: usize) -> String {
        if self.rows.is_empty() {
            return "no nonblocking operation was over while the ranks were traced\n".into();
        }
        let mut drawn = Drawn::new();
        drawn
            .load_preset(comfy_table::presets::NOTHING)
            .set_header([
                "call site",
                "call",
                "operations",
                "average",
                "moving ms",
                "hidden",
                "waited ms",
                "mostly because",
            ]);
        for (site, call, row) in self.rows.iter().take(most) {
            let reason = row.reason().map_or(String::new(), |reason| {
                format!("{} ({}x)", reason.text(), row.reasons[reason as usize])
            });
            drawn.add_row([
                site.to_string(),
                call.to_string(),
                row.operations.to_string(),
                bytes(row.bytes / row.operations.max(1)),
                ms(row.moving_ns),
                row.percent()
                    .map_or("-".into(), |percent| format!("{percent} %")),
                ms(row.waited_ns),
                reason,
            ]);
        }
        for column in 2..7 {
            if let Some(column) = drawn.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = format!("{}\n", drawn.trim_fmt());
        if self.rows.len() > most {
            text += &format!("and {} call sites more\n", self.rows.len() - most);
        }
        for reason in self.reasons() {
            text += &format!("{}: {}\n", reason.text(), reason.advice());
        }
        if self.lost > 0 {
            text += &format!(
                "{} events were lost; operations that they belong to are missing\n",
                self.lost
            );
        }
        text
    }

    /// The reasons given, but for what needs no advice.
    fn reasons(&self) -> Vec<OverlapReason> {
        let given: Vec<_> = self
            .rows
            .iter()
            .take(SHORT)
            .filter_map(|(_, _, row)| row.reason())
            .collect();
        let matters =
            |reason: &OverlapReason| *reason != OverlapReason::Small && given.contains(reason);
        OverlapReason::ALL.into_iter().filter(matters).collect()
    }

    /// All of it as JSON.
    pub fn json(&self) -> Value {
        let row = |(site, call, row): &(SharedName, SharedName, CallSiteOverlap)| {
            let reasons: serde_json::Map<_, _> = OverlapReason::ALL
                .into_iter()
                .filter(|reason| row.reasons[*reason as usize] > 0)
                .map(|reason| (reason.text().into(), json!(row.reasons[reason as usize])))
                .collect();
            json!({ "site": &**site, "call": &**call, "operations": row.operations, "small": row.small, "bytes": row.bytes,
                "moving_ns": row.moving_ns, "hidden_ns": row.hidden_ns, "hidden_percent": row.percent(), "waited_ns": row.waited_ns,
                "reason": row.reason().map(OverlapReason::text), "reasons": reasons })
        };
        json!({ "sites": self.rows.iter().map(row).collect::<Vec<_>>(), "lost": self.lost, "crowded": self.crowded })
    }
}

fn ms(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e6)
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KB", count / 1024),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}
