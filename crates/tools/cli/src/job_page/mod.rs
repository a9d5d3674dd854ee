//! A page that shows a job: its hosts, ranks by what they do, who sends to whom, and who waits for
//! whom.
//!
//! One HTML file that loads nothing (`page.html`, whose script draws what stands in it as JSON).
//! `garonne map --html` writes it, and `garonne top --web` serves it with fresh data
//! ([`live_server`]). What comes from programs reaches the page as JSON and its text as text, never
//! as markup.

pub mod http;
pub mod live_server;

use std::time::{Duration, Instant};

use garonne_inspect::query_client::QueryClient;
use garonne_job::job_name::now_s;
use garonne_job::layout::RankState;
use garonne_trace::traffic::TrafficMatrix;
use serde_json::{Value, json};

use crate::commands::job_lookup::{own_host, word};
use crate::commands::map;
use crate::commands::map::drawing::{self, Drawing, TrafficLink};
use crate::commands::map::machine::MachineMap;
use crate::diagnosis::deadlock::WaitState;
use crate::diagnosis::rank_waits::{RankView, wait_states_if_polls_block};
use crate::diagnosis::{Diagnosis, report_text};
use garonne_job::call_names;

const TEMPLATE: &str = include_str!("page.html");

/// Pairs of ranks whose messages are drawn: more would be one blot.
const PAIRS_DRAWN: usize = 200;
/// Lines from a rank to those that it waits for.
const AWAITED_DRAWN: usize = 3;
/// Characters that a rank's box has room for.
const BRIEF_MAX: usize = 13;

/// Returns how each page begins, by which an earlier one is known.
pub fn beginning() -> &'static [u8] {
    TEMPLATE
        .split("@TITLE@")
        .next()
        .unwrap_or_default()
        .as_bytes()
}

/// The page as a file: with these data, or, where it is served, with those that it asks for.
pub fn html(title: &str, data: &Value, live: bool) -> String {
    // What stands in an element of script must not end it.
    let data = data.to_string().replace('<', "\\u003c");
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;");
    let parts = TEMPLATE.split_once("@TITLE@").and_then(|(head, rest)| {
        let (middle, rest) = rest.split_once("@DATA@")?;
        let (end, rest) = rest.split_once("@LIVE@")?;
        Some(
            [
                head,
                &escaped,
                middle,
                &data,
                end,
                if live { "true" } else { "false" },
                rest,
            ]
            .concat(),
        )
    });
    parts.unwrap_or_default()
}

/// The page of a job as it is now, with the messages of some time from now on.
pub fn of_now(client: &QueryClient, time: Duration) -> String {
    let begun = Instant::now();
    let traffic = match live_server::begin(client, Some(time)) {
        Ok(recording) => live_server::count(recording, |_| begun.elapsed() < time),
        // There is nothing to count yet.
        Err(_) => TrafficMatrix::default(),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let mut data = data(
        client,
        &Diagnosis::of(client).with_places(client),
        &traffic,
        seconds,
    );
    match map::of_job(client) {
        Ok(hosts) => add_machines(&mut data, &hosts, &traffic),
        Err(why) => data["map_missing"] = json!(why),
    }
    html(&format!("Job {}", client.job_name), &data, false)
}

/// The page of a machine without a job.
pub fn of_machine(map: &MachineMap) -> String {
    let mut data = json!({ "at_s": now_s() });
    add_machines(
        &mut data,
        std::slice::from_ref(map),
        &TrafficMatrix::default(),
    );
    html("Machine", &data, false)
}

/// Adds the machines of the hosts to the data of a page, with the ranks and messages on them.
pub fn add_machines(data: &mut Value, hosts: &[MachineMap], traffic: &TrafficMatrix) {
    let drawing = drawn(data["name"].as_str(), hosts, traffic);
    let distances = hosts.iter().flat_map(|host| {
        let name = host.host.as_deref();
        let told = host.distances.iter();
        told.map(move |matrix| json!({ "host": name, "matrix": matrix }))
    });
    data["distances"] = distances.collect();
    data["map"] = json!(drawing);
}

fn drawn(job: Option<&str>, hosts: &[MachineMap], traffic: &TrafficMatrix) -> Drawing {
    let mut drawing = match hosts {
        [host] => drawing::of_machine(host),
        _ => drawing::of_hosts(&format!("job {}", job.unwrap_or_default()), hosts),
    };
    let busiest = traffic.busiest();
    let links = busiest.iter().map(|((from, to), sum)| TrafficLink {
        from: *from,
        to: *to,
        messages: sum.messages,
        bytes: sum.bytes,
    });
    drawing.connect(&links.collect::<Vec<_>>());
    drawing
}

/// Returns the data that the page shows of a job.
pub fn data(
    client: &QueryClient,
    found: &Diagnosis,
    traffic: &TrafficMatrix,
    seconds: f64,
) -> Value {
    let awaited = awaited(&found.ranks);
    let own = own_host();
    let mut hosts: Vec<(String, Vec<u32>)> = Vec::new();
    let mut ranks = Vec::new();
    for (shown, awaited) in found.ranks.iter().zip(&awaited) {
        let host = shown.host.as_deref().unwrap_or(&own);
        let rank = shown.snapshot.rank.rank;
        match hosts.iter_mut().find(|(name, _)| name == host) {
            Some((_, ranks)) => ranks.push(rank),
            None => hosts.push((host.to_owned(), vec![rank])),
        }
        let (state, brief) = activity(shown);
        ranks.push(
            json!({ "rank": rank, "host": host, "pid": shown.snapshot.rank.pid, "state": state, "brief": brief,
            "waits": report_text::waits_and_polls(shown), "for": awaited }),
        );
    }
    let busiest = traffic.busiest();
    let pairs = busiest.iter().take(PAIRS_DRAWN).map(|((from, to), load)| {
        json!({ "from": from, "to": to, "messages": load.messages, "bytes": load.bytes })
    });
    json!({
        "name": client.job_name, "command": client.command, "at_s": now_s(), "verdict": found.text(),
        "hosts": hosts.iter().map(|(name, ranks)| json!({ "name": name, "ranks": ranks })).collect::<Vec<_>>(),
        "ranks": ranks, "traffic": pairs.collect::<Vec<_>>(), "pairs": busiest.len(), "seconds": seconds,
    })
}

/// For each rank some of those that it waits for.
fn awaited(all: &[RankView]) -> Vec<Vec<u32>> {
    let of = |(own, standing): (usize, WaitState)| {
        let (WaitState::WaitsForAll(needs) | WaitState::WaitsForAny(needs)) = standing else {
            return Vec::new();
        };
        let mut named: Vec<u32> = Vec::new();
        for rank in needs.iter().flat_map(|need| need.from.iter().copied()) {
            if named.len() < AWAITED_DRAWN && rank as usize != own && !named.contains(&rank) {
                named.push(rank);
            }
        }
        named
    };
    wait_states_if_polls_block(all)
        .into_iter()
        .enumerate()
        .map(of)
        .collect()
}

/// Returns what a rank does, as the page's script knows it, and in a word or two.
fn activity(shown: &RankView) -> (&'static str, String) {
    let rank = &shown.snapshot.rank;
    let known = |state| (state, word(rank.state).to_owned());
    match (rank.state, rank.process) {
        _ if shown.silent => ("unseen", "not seen".into()),
        (RankState::Absent, _) => ("absent", "not in MPI".into()),
        (RankState::Finalized, _) => known("over"),
        (RankState::Gone, _) | (_, None | Some('Z' | 'X')) => ("gone", "gone".into()),
        (_, Some('T' | 't')) => ("stopped", "stopped".into()),
        _ if let Some(wait) = rank.wait => {
            let name = call_names::name(wait.call).unwrap_or("waits");
            ("waits", brief(name.strip_prefix("MPI_").unwrap_or(name)))
        }
        _ if !shown.snapshot.polls.is_empty() => ("waits", "polls".into()),
        (_, Some('R')) => ("computes", "runs".into()),
        _ => ("sleeps", "sleeps".into()),
    }
}

fn brief(name: &str) -> String {
    match name.chars().count() > BRIEF_MAX {
        true => name
            .chars()
            .take(BRIEF_MAX - 1)
            .chain(['\u{2026}'])
            .collect(),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_is_called_cannot_become_markup() {
        let evil = "</script><script>alert(1)</script> @LIVE@ @DATA@ &";
        let page = html(evil, &json!({ "command": evil }), false);
        assert!(!page.contains("</script><script>alert"), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("const LIVE = false;") && page.contains("&lt;/script>"));
        let at = page.find(r#"application/json">"#).unwrap() + 18;
        let end = page[at..].find("</script>").unwrap();
        let data: Value = serde_json::from_str(&page[at..at + end]).unwrap();
        assert_eq!(data["command"], evil);
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = html("job", &Value::Null, true);
        for word in [
            "http:",
            "https:",
            "src=",
            "@import",
            "url(http",
            "innerHTML",
        ] {
            let found = page.matches(word).count();
            // The name of SVG is no address that is loaded.
            assert_eq!(found, usize::from(word == "http:"), "{word}");
        }
    }

    #[test]
    fn long_names_of_calls_are_cut_where_a_box_ends() {
        assert_eq!(brief("Recv"), "Recv");
        assert_eq!(brief("Neighbor_alltoallw"), "Neighbor_all\u{2026}");
    }
}
