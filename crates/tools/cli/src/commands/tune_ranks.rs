//! The part of `garonne tune` that two ranks measure: large messages, by every way that there is.
//!
//! The command starts itself twice as a job. The ranks begin without a model. They send each other
//! messages of each length until the receiver has tried all ways. The measurement is what its
//! transport knows then, made with the code and under the conditions of real jobs. A message is
//! received only after it was announced, so nothing but the way of fetching differs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use garonne_engine::api::SendCompletion;
use garonne_progress::messaging::Messaging;
use garonne_rank::{Rank, RankHost};
use garonne_shm::cost_model::ProtocolCosts;
use garonne_shm::protocol_tuner::WAYS;
use garonne_sync::user::{Data, Scratch};

use super::rank_pair;
use crate::progress_bar::ProgressBar;

/// Lengths that are measured: from the shortest that are fetched to where nothing changes any more.
const LENGTHS: [u64; 8] = [
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
];
/// Messages of each length, per way: all ways are tried first, each some times, and the best and
/// others again now and then.
const ROUNDS: usize = 12;
/// The rank that receives; the other sends.
const RECEIVER: u32 = 0;

/// Steps of the measurement: the lengths.
pub const STEPS: usize = LENGTHS.len();
/// Way in which the receiver begins a line on standard error that says which length comes next.
const STEP: &str = "step: ";

/// Starts the job of two ranks and reads what they found. The error is a line for the user.
pub fn measure(progress: &mut ProgressBar) -> Result<Vec<ProtocolCosts>, String> {
    let said = pair(&[], |what| progress.step(what))?;
    serde_json::from_slice(&said).map_err(|error| format!("the ranks said something else: {error}"))
}

/// Measures short messages: bytes, and nanoseconds from one rank to the other.
///
/// # Errors
/// A line for the user.
pub fn measure_eager() -> Result<Vec<(u64, f64)>, String> {
    let said = pair(&["--eager"], |_| ())?;
    serde_json::from_slice(&said).map_err(|error| format!("the ranks said something else: {error}"))
}

/// Starts a job of two ranks and returns what it says. `step` is told what the ranks are at.
fn pair(words: &[&str], mut step: impl FnMut(&str)) -> Result<Vec<u8>, String> {
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let mut job = Command::new(&program)
        .args(["run", "-n", "2", "--timeout", "60"])
        .arg(&program)
        .args(["tune", "--as-rank"])
        .args(words)
        // The ranks find no model there: a known rate would not be measured again.
        .env("XDG_CACHE_HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start a job: {error}"))?;
    // What it finds is less than a pipe holds: it is read at the end.
    let mut said = String::new();
    for line in job
        .stderr
        .take()
        .into_iter()
        .flat_map(|err| BufReader::new(err).lines())
    {
        let line = line.unwrap_or_default();
        match line.strip_prefix(STEP) {
            Some(what) => step(what),
            None => said.extend([line.as_str(), "\n"]),
        }
    }
    let output = job
        .wait_with_output()
        .map_err(|error| format!("cannot wait for a job: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("the job of two ranks failed: {}", said.trim_end())),
    }
}

/// One of the two ranks.
pub fn as_rank(eager: bool) -> i32 {
    let measured = Rank::enter()
        .map_err(|error| error.to_string())
        .and_then(|rank| {
            let found = match eager {
                true => serde_json::json!(ping_pong(&rank.host)?),
                false => serde_json::json!(exchange(&rank.host)?),
            };
            rank.leave().map_err(|error| error.to_string())?;
            Ok((rank.host.me(), found))
        });
    match measured {
        Ok((RECEIVER, found)) => super::print_json(&found),
        Ok(_) => 0,
        Err(text) => {
            errln!("error: {text}");
            1
        }
    }
}

/// Lengths of short messages. An empty one takes what the library itself does.
const EAGER_LENGTHS: [u64; 9] = [
    0,
    1 << 10,
    2 << 10,
    4 << 10,
    6 << 10,
    12 << 10,
    16 << 10,
    32 << 10,
    48 << 10,
];
/// Rounds of all lengths, at most and at least, and the time after which none is begun. A low
/// sample counts, since other programs only ever add.
const EAGER_ROUNDS: (usize, usize) = (60, 3);
const EAGER_TIME: Duration = Duration::from_secs(5);
/// Messages of a length in a round, each way.
const EAGER_EACH: u32 = 20;

/// Sends messages to and fro. Returns bytes and nanoseconds one way, by length.
fn ping_pong(host: &RankHost) -> Result<Vec<(u64, f64)>, String> {
    let most = EAGER_LENGTHS[EAGER_LENGTHS.len() - 1];
    let memory = Scratch::new(most as usize).ok_or("no memory")?;
    let word = Scratch::new(1).ok_or("no memory")?;
    let mut samples = vec![Vec::new(); EAGER_LENGTHS.len()];
    let (begun, mut rounds, mut ended) = (Instant::now(), 0, [0]);
    while ended == [0] {
        rounds += 1;
        for (len, samples) in EAGER_LENGTHS.into_iter().zip(&mut samples) {
            let data = Data::contiguous(memory.mem(), len);
            let start = Instant::now();
            for _ in 0..EAGER_EACH {
                if host.me() == RECEIVER {
                    rank_pair::send(host, 0, data.clone(), SendCompletion::Standard)?;
                    rank_pair::receive(host, 0, data.clone())?;
                } else {
                    rank_pair::receive(host, 0, data.clone())?;
                    rank_pair::send(host, 0, data.clone(), SendCompletion::Standard)?;
                }
            }
            samples.push(start.elapsed().as_nanos() as f64 / f64::from(2 * EAGER_EACH));
        }
        // The receiver alone looks at its clock.
        let data = Data::contiguous(word.mem(), 1);
        if host.me() == RECEIVER {
            let is_over = rounds >= EAGER_ROUNDS.1 && begun.elapsed() > EAGER_TIME;
            ended = [u8::from(is_over || rounds >= EAGER_ROUNDS.0)];
            word.mem().write(0, &ended);
            rank_pair::send(host, 0, data, SendCompletion::Standard)?;
        } else {
            rank_pair::receive(host, 0, data)?;
            word.mem().read(0, &mut ended);
        }
    }
    let low = samples.into_iter().map(|mut samples| {
        samples.sort_unstable_by(f64::total_cmp);
        samples[samples.len() / 5]
    });
    Ok(EAGER_LENGTHS.into_iter().zip(low).collect())
}

fn exchange(host: &RankHost) -> Result<Vec<ProtocolCosts>, String> {
    let most = LENGTHS[LENGTHS.len() - 1];
    let memory = Scratch::new(most as usize).ok_or("no memory")?;
    let mut found = Vec::new();
    for (tag, len) in LENGTHS.into_iter().enumerate() {
        if host.me() == RECEIVER {
            errln!("{STEP}messages of {} KB", len / 1024);
        }
        let data = Data::contiguous(memory.mem(), len);
        for _ in 0..ROUNDS * WAYS.len() {
            if host.me() == RECEIVER {
                rank_pair::receive_announced(host, tag as i32, data.clone())?;
            } else {
                rank_pair::send(host, tag as i32, data.clone(), SendCompletion::Synchronous)?;
            }
        }
        found.extend(host.inspect(|shard| known(shard.transport().shm(), len)));
    }
    Ok(found)
}

fn known(transport: &mut garonne_shm::ShmTransport, len: u64) -> Option<ProtocolCosts> {
    let known = transport.known_costs(1 - RECEIVER, len)?;
    let ns = known
        .costs
        .map(|pace| pace.map(|pace| pace * len as f64 / 1024.0));
    ns.iter().any(Option::is_some).then_some(ProtocolCosts {
        bytes: len as usize,
        ns,
    })
}
