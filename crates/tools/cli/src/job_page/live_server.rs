//! `garonne top --web`: the page of a running job, served on this host's loopback to who knows its
//! key.
//!
//! The key is a part of the address: other users of the machine reach the port as well. Requests
//! that name another host than loopback are refused, so no page of somebody else's can be led here.
//! The job is looked at only while somebody looks at the page.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use garonne_inspect::query_client::QueryClient;
use garonne_inspect::trace_reader::{ReadFrom, TraceReader};
use garonne_trace::traffic::TrafficMatrix;
use serde_json::{Value, json};

use super::http::{self, HttpRequest, HttpResponse};
use super::{add_machines, data, html};
use crate::commands::job_lookup;
use crate::commands::map;
use crate::commands::map::machine::MachineMap;
use crate::diagnosis::Diagnosis;
use crate::recording::remote_recording::RemoteRecordings;
use crate::recording::{Recording, RecordingOutputs};

/// Between two looks at the job.
const EVERY: Duration = Duration::from_secs(1);
/// For so long after the last request somebody is taken to look.
const LOOKED: Duration = Duration::from_secs(5);
/// Number of times that ranks are asked to go on recording.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Between two looks at the machines: all hosts are asked.
const MACHINES_EVERY: Duration = Duration::from_secs(5);
/// While nobody looks.
const IDLE: Duration = Duration::from_millis(100);

const KEY_BYTES: usize = 16;

/// Data that the server sends to clients.
struct ServedPage {
    /// The latest data of the page.
    data: Value,
    /// When somebody asked last.
    asked: Option<Instant>,
    /// Messages and bytes between ranks since `since`.
    traffic: TrafficMatrix,
    since: Option<Instant>,
}

type SharedPage = Arc<Mutex<ServedPage>>;

fn lock(shared: &SharedPage) -> std::sync::MutexGuard<'_, ServedPage> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_looked_at(shared: &SharedPage) -> bool {
    lock(shared)
        .asked
        .is_some_and(|asked| asked.elapsed() < LOOKED)
}

/// Serves the page until the job has ended. `port` 0: any that is free.
///
/// # Errors
/// The port cannot be had: a line for the user.
pub fn serve(client: &QueryClient, port: u16) -> Result<i32, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener =
        listener.map_err(|error| format!("cannot listen at port {port} of 127.0.0.1: {error}"))?;
    let port = listener.local_addr().map_or(port, |address| address.port());
    let key = key()?;
    outln!("http://127.0.0.1:{port}/{key}/");
    let shared: SharedPage = Arc::new(Mutex::new(ServedPage {
        data: json!({ "name": client.job_name }),
        asked: None,
        traffic: TrafficMatrix::default(),
        since: None,
    }));
    let (of_server, title) = (Arc::clone(&shared), format!("Job {}", client.job_name));
    std::thread::spawn(move || {
        http::serve(&listener, move |request| {
            answer(request, &key, &title, &of_server)
        });
    });
    let (of_recorder, launcher) = (Arc::clone(&shared), client.launcher);
    std::thread::spawn(move || {
        while record(launcher, &of_recorder).is_ok() {
            std::thread::sleep(IDLE);
        }
    });
    let mut machines: Option<(Instant, Vec<MachineMap>)> = None;
    while let Ok(client) = job_lookup::named(launcher) {
        if is_looked_at(&shared) {
            let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < MACHINES_EVERY;
            if !machines.as_ref().is_some_and(is_fresh) {
                let hosts = map::of_job(&client).unwrap_or_default();
                machines = Some((Instant::now(), hosts));
            }
            let found = Diagnosis::of(&client).with_places(&client);
            let (traffic, since) = {
                let shown = lock(&shared);
                (shown.traffic.clone(), shown.since)
            };
            let seconds = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
            let mut told = data(&client, &found, &traffic, seconds);
            if let Some((_, hosts)) = machines.as_ref().filter(|(_, hosts)| !hosts.is_empty()) {
                add_machines(&mut told, hosts, &traffic);
            }
            lock(&shared).data = told;
            std::thread::sleep(EVERY);
        } else {
            std::thread::sleep(IDLE);
        }
    }
    lock(&shared).data = json!({ "ended": true });
    // Who looks is told so.
    if is_looked_at(&shared) {
        std::thread::sleep(2 * EVERY);
    }
    Ok(0)
}

/// Counts the messages of a job while somebody looks.
fn record(launcher: u32, shared: &SharedPage) -> Result<(), String> {
    if !is_looked_at(shared) {
        return Ok(());
    }
    let client = job_lookup::named(launcher)?;
    // A job that has not begun may begin later.
    let Ok(recording) = begin(&client, None) else {
        return Ok(());
    };
    lock(shared).since = Some(Instant::now());
    let mut copied: Option<Instant> = None;
    count(recording, |traffic| {
        if copied.is_none_or(|copied| copied.elapsed() > ASK_EVERY) {
            copied = Some(Instant::now());
            lock(shared).traffic.clone_from(traffic);
        }
        is_looked_at(shared)
    });
    Ok(())
}

/// Counts messages as long as the ranks go on and `goes_on` holds, which is asked with what was
/// counted so far.
pub fn count(
    mut recording: Recording,
    mut goes_on: impl FnMut(&TrafficMatrix) -> bool,
) -> TrafficMatrix {
    let mut asked: Option<Instant> = None;
    let none = TrafficMatrix::default();
    while !recording.is_over() && goes_on(recording.traffic().unwrap_or(&none)) {
        let is_due = |asked: Instant| asked.elapsed() > ASK_EVERY;
        if asked.is_none_or(is_due) {
            recording.ask();
            asked = Some(Instant::now());
        }
        if !recording.look(false) {
            Recording::pause();
        }
    }
    recording.finish().traffic.unwrap_or_default()
}

/// Begins to count the messages of a job, for this long or until its end.
pub fn begin(client: &QueryClient, time: Option<Duration>) -> Result<Recording, String> {
    let distant = match client.hosts.len() {
        0 | 1 => None,
        _ => Some(RemoteRecordings::of(client, time)?),
    };
    let world = match client.file.as_ref().filter(|_| client.has_ranks_here()) {
        Some(file) => {
            Some(TraceReader::open(file, ReadFrom::Now).map_err(|error| error.to_string())?)
        }
        None if distant.is_some() => None,
        None => return Err(job_lookup::not_begun(client)),
    };
    let wants = RecordingOutputs {
        traffic: true,
        ..RecordingOutputs::default()
    };
    Recording::new((world, client.ranks), wants, distant)
}

/// A word that nobody guesses.
fn key() -> Result<String, String> {
    let mut bytes = [0; KEY_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns whether two words are the same, in a time that tells nothing of where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differ) == 0
}

fn answer(request: &HttpRequest, key: &str, title: &str, shared: &SharedPage) -> HttpResponse {
    if !http::is_loopback(&request.host) {
        return HttpResponse::refused(
            "421 Misdirected Request",
            "this page is served to 127.0.0.1 and localhost alone",
        );
    }
    let path = request
        .path
        .strip_prefix('/')
        .and_then(|path| path.split_once('/'));
    match path.filter(|(word, _)| is_same(word, key)) {
        Some((_, "")) => {
            HttpResponse::ok("text/html; charset=utf-8", html(title, &Value::Null, true))
        }
        Some((_, "data")) => {
            let mut shown = lock(shared);
            shown.asked = Some(Instant::now());
            HttpResponse::ok("application/json", shown.data.to_string())
        }
        _ => HttpResponse::refused(
            "404 Not Found",
            "there is no such page; its address, with its key, is what garonne top --web has printed",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_key_and_calls_loopback_is_answered() {
        let shared: SharedPage = Arc::new(Mutex::new(ServedPage {
            data: json!({ "secret": 7 }),
            asked: None,
            traffic: TrafficMatrix::default(),
            since: None,
        }));
        let key = key().unwrap();
        assert!(key.len() == 2 * KEY_BYTES && key != super::key().unwrap());
        let ask = |host: &str, path: &str| {
            let request = HttpRequest {
                path: path.to_owned(),
                host: host.to_owned(),
            };
            answer(&request, &key, "job", &shared)
        };
        for (host, path, status) in [
            ("127.0.0.1", format!("/{key}/data"), "200"),
            ("localhost", format!("/{key}/"), "200"),
            ("127.0.0.1", "/".to_owned(), "404"),
            ("127.0.0.1", "/data".to_owned(), "404"),
            ("127.0.0.1", format!("/{}/data", &key[1..]), "404"),
            ("127.0.0.1", format!("/{key}0/data"), "404"),
            ("127.0.0.1", format!("/{key}"), "404"),
            (
                "127.0.0.1",
                format!("/{}/data", "0".repeat(2 * KEY_BYTES)),
                "404",
            ),
            ("evil.example", format!("/{key}/data"), "421"),
            ("", format!("/{key}/data"), "421"),
        ] {
            let response = ask(host, &path);
            assert!(
                response.status.starts_with(status),
                "{host}{path}: {response:?}"
            );
            let tells = String::from_utf8_lossy(&response.body).contains("secret");
            assert_eq!(tells, status == "200" && path.ends_with("data"), "{path}");
        }
    }
}
