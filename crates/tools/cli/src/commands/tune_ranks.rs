//! The part of `garonne tune` that two ranks measure: large messages, by every way that there is.
//!
//! The command starts itself twice as a job. The ranks begin without a model. They send each other
//! messages of each length until the receiver has tried all ways. The measurement is what its
//! transport knows then, made with the code and under the conditions of real jobs. A message is
//! received only after it was announced, so nothing but the way of fetching differs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let mut job = Command::new(&program)
        .args(["run", "-n", "2", "--timeout", "60"])
        .arg(&program)
        .args(["tune", "--as-rank"])
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
            Some(what) => progress.step(what),
            None => said.extend([line.as_str(), "\n"]),
        }
    }
    let output = job
        .wait_with_output()
        .map_err(|error| format!("cannot wait for a job: {error}"))?;
    if !output.status.success() {
        return Err(format!("the job of two ranks failed: {}", said.trim_end()));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the ranks said something else: {error}"))
}

/// One of the two ranks.
pub fn as_rank() -> i32 {
    let measured = Rank::enter()
        .map_err(|error| error.to_string())
        .and_then(|rank| {
            let found = exchange(&rank.host)?;
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
