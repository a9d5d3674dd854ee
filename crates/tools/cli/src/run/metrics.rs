//! `garonne run --metrics`: what a job does, for Prometheus, in its text format 0.0.4: served by
//! the launcher, of all hosts.
//!
//! The job is looked at when somebody asks, at most once in [`FRESH`], in a thread of the launcher;
//! ranks do nothing for it. Series are bounded: of each rank up to [`SERIES_MAX`] ranks, else of
//! each host, else of the whole job.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use garonne_inspect::query_client::QueryClient;
use garonne_job::call_names;
use garonne_job::codes;
use garonne_job::layout::RankState;

use crate::commands::job_lookup;
use crate::diagnosis::rank_waits::RankView;
use crate::diagnosis::{Diagnosis, DiagnosisKind};
use crate::job_page::http::{self, HttpRequest, HttpResponse};

/// Series of one metric.
const SERIES_MAX: usize = 128;
/// For so long a look serves all who ask.
const FRESH: Duration = Duration::from_secs(1);
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Parses the value of `--metrics`: a port of 127.0.0.1, or an address and a port.
pub fn address(text: &str) -> Option<SocketAddr> {
    match text.parse::<u16>() {
        Ok(port) => Some((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => text.strip_prefix("localhost:").map_or_else(
            || text.parse().ok(),
            |port| Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()),
        ),
    }
}

/// A port at which nobody is answered yet.
#[derive(Debug)]
pub struct MetricsListener(TcpListener);

impl MetricsListener {
    /// Takes the port, before the job begins; says which it is where any would do.
    ///
    /// # Errors
    /// It cannot be had: a line for the user.
    pub fn at(address: SocketAddr) -> Result<Self, String> {
        let listener = TcpListener::bind(address).map_err(|error| {
            format!(
                "error[{}]: metrics cannot be served at {address}: {error}",
                codes::G0320
            )
        })?;
        if let (0, Ok(address)) = (address.port(), listener.local_addr()) {
            errln!("garonne run: metrics at http://{address}/metrics");
        }
        Ok(Self(listener))
    }

    /// Answers from now on, in a thread of its own that ends with this process.
    pub fn begin(self) {
        let latest: Mutex<Option<(Instant, String)>> = Mutex::new(None);
        std::thread::spawn(move || http::serve(&self.0, move |request| answer(request, &latest)));
    }
}

fn answer(request: &HttpRequest, latest: &Mutex<Option<(Instant, String)>>) -> HttpResponse {
    match request.path.as_str() {
        "/metrics" => {
            let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = latest.take().filter(|(at, _)| at.elapsed() < FRESH);
            let seen = fresh.map_or_else(|| look().map(|text| (Instant::now(), text)), Ok);
            match seen {
                Ok(seen) => {
                    let response = HttpResponse::ok(CONTENT_TYPE, seen.1.clone());
                    *latest = Some(seen);
                    response
                }
                Err(why) => HttpResponse::refused("503 Service Unavailable", &why),
            }
        }
        "/" => HttpResponse::ok(
            "text/plain; charset=utf-8",
            "metrics of a job are at /metrics\n",
        ),
        _ => HttpResponse::refused("404 Not Found", "metrics are at /metrics"),
    }
}

fn look() -> Result<String, String> {
    let client = job_lookup::named(std::process::id())?;
    let found = Diagnosis::of(&client);
    let known = JobLabels {
        name: &client.job_name,
        program: &client.command,
        started_s: client.started_s,
        ranks: client.ranks,
        is_stuck: is_stuck(&found),
    };
    Ok(text(&known, &found.ranks, &hosts(&client)))
}

fn is_stuck(found: &Diagnosis) -> bool {
    matches!(
        found.kind(),
        DiagnosisKind::Deadlock
            | DiagnosisKind::Mismatch
            | DiagnosisKind::Missing
            | DiagnosisKind::Stopped
    )
}

/// The name of this host, for ranks of a job on one.
fn hosts(client: &QueryClient) -> String {
    let (node, names) = (
        client.world.as_ref().map_or(0, |(shape, _)| shape.node),
        &client.hosts,
    );
    names
        .get(node as usize)
        .cloned()
        .unwrap_or_else(job_lookup::own_host)
}

/// Labels of the job as a whole.
struct JobLabels<'a> {
    name: &'a str,
    program: &'a str,
    started_s: u64,
    ranks: u32,
    is_stuck: bool,
}

/// Sums over what a series stands for.
#[derive(Clone, Debug, Default, PartialEq)]
struct SeriesSums {
    messages: u64,
    bytes: u64,
    unexpected: u64,
    cpu_seconds: f64,
    /// The longest.
    wait_seconds: f64,
}

impl SeriesSums {
    fn add(&mut self, shown: &RankView) {
        let rank = &shown.snapshot.rank;
        self.messages += rank.sent_messages;
        self.bytes += rank.sent_bytes;
        self.unexpected += rank.unexpected;
        self.cpu_seconds += rank.cpu_seconds;
        if rank.wait.is_some() {
            self.wait_seconds = self.wait_seconds.max(shown.snapshot.waited_ns as f64 / 1e9);
        }
    }
}

/// A label's value as the format wants it.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Sums up what ranks show, by labels of series: of ranks, hosts or all together.
fn series(all: &[RankView], own: &str) -> BTreeMap<(u32, String), SeriesSums> {
    let host = |shown: &RankView| escaped(shown.host.as_deref().unwrap_or(own));
    let mut hosts: Vec<String> = all.iter().map(host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let labels = |shown: &RankView| match (all.len() <= SERIES_MAX, hosts.len() <= SERIES_MAX) {
        (true, _) => (
            shown.snapshot.rank.rank,
            format!(
                r#",rank="{}",host="{}""#,
                shown.snapshot.rank.rank,
                host(shown)
            ),
        ),
        (false, true) => (0, format!(r#",host="{}""#, host(shown))),
        (false, false) => (0, String::new()),
    };
    let mut series: BTreeMap<(u32, String), SeriesSums> = BTreeMap::new();
    for shown in all.iter().filter(|shown| !shown.silent) {
        series.entry(labels(shown)).or_default().add(shown);
    }
    series
}

/// The text of all metrics.
fn text(about: &JobLabels<'_>, all: &[RankView], own: &str) -> String {
    let mut text = String::new();
    let job = format!(r#"job_name="{}""#, escaped(about.name));
    let mut metric = |(name, kind, help): (&str, &str, &str), samples: Vec<(String, f64)>| {
        if samples.is_empty() {
            return;
        }
        let _ = write!(
            text,
            "# HELP garonne_{name} {help}\n# TYPE garonne_{name} {kind}\n"
        );
        for (labels, value) in samples {
            let _ = writeln!(text, "garonne_{name}{{{job}{labels}}} {value}");
        }
    };
    let whole = |value: f64| vec![(String::new(), value)];
    let program = format!(
        r#",program="{}",version="{}""#,
        escaped(about.program),
        env!("CARGO_PKG_VERSION")
    );
    metric(
        ("job_info", "gauge", "The job; always 1."),
        vec![(program, 1.0)],
    );
    metric(
        (
            "job_start_time_seconds",
            "gauge",
            "When the job was started, in seconds since 1970.",
        ),
        whole(about.started_s as f64),
    );
    metric(
        (
            "job_stuck",
            "gauge",
            "1 if ranks can never go on, as garonne who finds it.",
        ),
        whole(f64::from(u8::from(about.is_stuck))),
    );
    metric(
        ("ranks", "gauge", "Ranks by state."),
        states(about.ranks, all),
    );
    metric(
        (
            "ranks_waiting",
            "gauge",
            "Ranks that wait in an MPI call, by its name.",
        ),
        waiting(all),
    );
    let series = series(all, own);
    let each = |value: fn(&SeriesSums) -> f64| {
        series
            .iter()
            .map(|((_, labels), sums)| (labels.clone(), value(sums)))
            .collect()
    };
    metric(
        ("messages_sent_total", "counter", "Messages sent."),
        each(|sums| sums.messages as f64),
    );
    metric(
        ("sent_bytes_total", "counter", "Bytes of messages sent."),
        each(|sums| sums.bytes as f64),
    );
    metric(
        (
            "unexpected_messages",
            "gauge",
            "Messages that came before a receive asked for them.",
        ),
        each(|sums| sums.unexpected as f64),
    );
    metric(
        ("cpu_seconds_total", "counter", "Processor time used."),
        each(|sums| sums.cpu_seconds),
    );
    metric(
        (
            "wait_seconds",
            "gauge",
            "For how long a rank has waited in its present MPI call, the longest.",
        ),
        each(|sums| sums.wait_seconds),
    );
    text
}

fn states(ranks: u32, all: &[RankView]) -> Vec<(String, f64)> {
    let count = |state| {
        all.iter()
            .filter(|shown| !shown.silent && shown.snapshot.rank.state == state)
            .count()
    };
    let silent = all.iter().filter(|shown| shown.silent).count();
    let absent = count(RankState::Absent) + (ranks as usize).saturating_sub(all.len());
    [
        ("not_in_mpi", absent),
        ("running", count(RankState::Running)),
        ("finalized", count(RankState::Finalized)),
        ("gone", count(RankState::Gone)),
        ("not_seen", silent),
    ]
    .map(|(state, count)| (format!(r#",state="{state}""#), count as f64))
    .to_vec()
}

fn waiting(all: &[RankView]) -> Vec<(String, f64)> {
    let mut waiting: BTreeMap<&str, u32> = BTreeMap::new();
    for wait in all.iter().filter_map(|shown| shown.snapshot.rank.wait) {
        *waiting
            .entry(call_names::name(wait.call).unwrap_or("other"))
            .or_default() += 1;
    }
    let sample = |(call, count)| (format!(r#",call="{call}""#), f64::from(count));
    waiting.into_iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::snapshot::DetailedSnapshot;
    use std::rc::Rc;

    fn ranks(count: u32, hosts: u32) -> Vec<RankView> {
        let rank = |rank: u32| {
            let mut seen = DetailedSnapshot::unavailable(rank);
            seen.rank.state = RankState::Running;
            (seen.rank.sent_messages, seen.rank.sent_bytes) = (u64::from(rank), 10);
            RankView {
                snapshot: seen,
                host: Some(Rc::from(format!("n{}", rank % hosts))),
                silent: false,
            }
        };
        (0..count).map(rank).collect()
    }

    fn told(all: &[RankView]) -> String {
        let about = JobLabels {
            name: "heat",
            program: "./heat \"a\\b\"\nc",
            started_s: 7,
            ranks: all.len() as u32,
            is_stuck: false,
        };
        text(&about, all, "here")
    }

    fn samples(text: &str, name: &str) -> Vec<String> {
        let of_name = text
            .lines()
            .filter(|line| line.starts_with(&format!("garonne_{name}{{")));
        of_name.map(str::to_owned).collect()
    }

    #[test]
    fn few_ranks_have_series_of_their_own_and_many_those_of_their_hosts() {
        let few = samples(&told(&ranks(3, 2)), "messages_sent_total");
        assert_eq!(
            few,
            [
                r#"garonne_messages_sent_total{job_name="heat",rank="0",host="n0"} 0"#,
                r#"garonne_messages_sent_total{job_name="heat",rank="1",host="n1"} 1"#,
                r#"garonne_messages_sent_total{job_name="heat",rank="2",host="n0"} 2"#,
            ]
        );
        let many = samples(&told(&ranks(1000, 4)), "sent_bytes_total");
        assert_eq!(many.len(), 4);
        assert_eq!(
            many[0],
            r#"garonne_sent_bytes_total{job_name="heat",host="n0"} 2500"#
        );
        assert_eq!(
            samples(&told(&ranks(1000, 1000)), "sent_bytes_total"),
            [r#"garonne_sent_bytes_total{job_name="heat"} 10000"#]
        );
        assert!(told(&ranks(4096, 1000)).lines().count() < 100);
    }

    #[test]
    fn a_host_that_says_nothing_has_no_series_and_what_a_user_wrote_is_escaped() {
        let mut all = ranks(2, 2);
        all[1].silent = true;
        let text = told(&all);
        assert_eq!(samples(&text, "messages_sent_total").len(), 1);
        assert!(
            text.contains(r#"garonne_ranks{job_name="heat",state="not_seen"} 1"#),
            "{text}"
        );
        assert!(text.contains(r#"program="./heat \"a\\b\"\nc""#), "{text}");
    }

    #[test]
    fn an_address_is_a_port_of_loopback_or_named_as_a_whole() {
        let of = |text: &str| address(text).map(|address| address.to_string());
        assert_eq!(of("9100").as_deref(), Some("127.0.0.1:9100"));
        assert_eq!(of("0.0.0.0:9100").as_deref(), Some("0.0.0.0:9100"));
        assert_eq!(of("[::1]:0").as_deref(), Some("[::1]:0"));
        assert_eq!(of("localhost:80").as_deref(), Some("127.0.0.1:80"));
        for wrong in ["", "host", "70000", ":9100", "10.0.0.1", "localhost:"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
