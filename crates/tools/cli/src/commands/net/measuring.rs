//! Latency and bandwidth between each two hosts.
//!
//! The command starts itself as a job with a rank on each host. Rank 0 says which pair measures
//! next: one pair after the other, since pairs that share a link would disturb each other. So the
//! time grows with the square of the hosts.

use std::time::{Duration, Instant};

use garonne_network_graph::limits::MEASURED_MAX;
use garonne_network_graph::measured::MeasuredMatrix;
use garonne_progress::messaging::Messaging;
use garonne_rank::{Rank, RankHost};
use garonne_sync::user::{Data, Scratch};

use super::sources;
use crate::commands::rank_pair::{receive_from, send_to};

/// Which pair measures next, from rank 0.
const NEXT: i32 = 0;
/// What a pair found, to rank 0.
const FOUND: i32 = 1;
/// Messages that are measured.
const MEASURED: i32 = 2;
/// Rank in the place of a pair's after the last.
const END: u32 = u32::MAX;
/// Exchanges of each length before any counts: connections are made at the first.
const WARM: u32 = 1;
/// Exchanges of which the quickest counts: others only make it slower.
const SMALL_EXCHANGES: u32 = 30;
const LARGE_EXCHANGES: u32 = 4;
/// Time after which a slow pair measures no further message of one length.
const ENOUGH: Duration = Duration::from_millis(200);
/// Bytes of a large message: many times what a switch keeps for a port.
const LARGE: u64 = 512 << 10;

/// Measures between each two of these hosts.
///
/// # Errors
/// A line for the user.
pub fn measure(hosts: &[String], launcher: Option<&str>) -> Result<MeasuredMatrix, String> {
    if !(2..=MEASURED_MAX).contains(&hosts.len()) {
        return Err(format!(
            "{} hosts: name between 2 and {MEASURED_MAX} with --host",
            hosts.len()
        ));
    }
    let words = ["--measure", "--measuring-rank", "--host", "all"];
    let output = sources::on_each_host(hosts, launcher, &words)?;
    let mut matrix = MeasuredMatrix::read(output.as_bytes())
        .map_err(|error| format!("the ranks said something else: {error}"))?;
    // Hosts may call themselves alike.
    matrix.hosts = hosts.to_vec();
    Ok(matrix)
}

/// One of the ranks.
///
/// # Errors
/// A line for the user.
pub fn as_rank() -> Result<i32, String> {
    let rank = Rank::enter().map_err(|error| error.to_string())?;
    let host = &rank.host;
    let code = match host.me() {
        0 => super::super::print_json(&lead(host)?),
        _ => follow(host)?,
    };
    rank.leave().map_err(|error| error.to_string())?;
    Ok(code)
}

/// Rank 0: has each pair measure.
fn lead(host: &RankHost) -> Result<MeasuredMatrix, String> {
    let size = host.world_size() as usize;
    let mut matrix = MeasuredMatrix {
        hosts: (0..size).map(|rank| rank.to_string()).collect(),
        latency_us: vec![vec![0.0; size]; size],
        mb_per_s: vec![vec![0.0; size]; size],
    };
    for one in 0..size as u32 {
        for other in one + 1..size as u32 {
            send_words(host, other, NEXT, [one, 1])?;
            let [latency_us, mb_per_s] = if one == 0 {
                ask(host, other)?
            } else {
                send_words(host, one, NEXT, [other, 0])?;
                receive_words(host, one, FOUND)?.map(|word| f64::from(f32::from_bits(word)))
            };
            for (from, to) in [(one, other), (other, one)] {
                matrix.latency_us[from as usize][to as usize] = latency_us;
                matrix.mb_per_s[from as usize][to as usize] = mb_per_s;
            }
        }
    }
    for rank in 1..size as u32 {
        send_words(host, rank, NEXT, [END, 0])?;
    }
    Ok(matrix)
}

/// The other ranks: measure when told so.
fn follow(host: &RankHost) -> Result<i32, String> {
    loop {
        match receive_words(host, 0, NEXT)? {
            [END, _] => return Ok(0),
            [peer, 0] => {
                let found = ask(host, peer)?;
                send_words(host, 0, FOUND, found.map(|value| (value as f32).to_bits()))?;
            }
            [peer, _] => answer(host, peer)?,
        }
    }
}

/// Measures with a peer that answers: microseconds one way, and megabytes in a second.
fn ask(host: &RankHost, peer: u32) -> Result<[f64; 2], String> {
    let small = exchange(host, peer, 8, SMALL_EXCHANGES)?;
    let large = exchange(host, peer, LARGE, LARGE_EXCHANGES)?;
    send_words(host, peer, MEASURED, [0, 0])?;
    let one_way = small.as_secs_f64() / 2.0;
    let carried = (large.as_secs_f64() / 2.0 - one_way).max(1e-9);
    Ok([(one_way * 1e6).max(1e-3), LARGE as f64 / carried / 1e6])
}

/// The quickest of some exchanges.
fn exchange(host: &RankHost, peer: u32, bytes: u64, count: u32) -> Result<Duration, String> {
    let memory = Scratch::new(bytes as usize).ok_or("no memory")?;
    let mut best = Duration::MAX;
    let begun = Instant::now();
    for round in 0..WARM + count {
        let at = Instant::now();
        send_words(host, peer, MEASURED, [bytes as u32, 1])?;
        send_to(host, peer, MEASURED, Data::contiguous(memory.mem(), bytes))?;
        receive_from(host, peer, MEASURED, Data::contiguous(memory.mem(), bytes))?;
        if round >= WARM {
            best = best.min(at.elapsed());
            if begun.elapsed() > ENOUGH {
                break;
            }
        }
    }
    Ok(best)
}

/// Answers each message of a peer until it says that it has enough.
fn answer(host: &RankHost, peer: u32) -> Result<(), String> {
    let memory = Scratch::new(LARGE as usize).ok_or("no memory")?;
    loop {
        let [bytes, goes_on] = receive_words(host, peer, MEASURED)?;
        if goes_on == 0 {
            return Ok(());
        }
        let data = || Data::contiguous(memory.mem(), u64::from(bytes).min(LARGE));
        receive_from(host, peer, MEASURED, data())?;
        send_to(host, peer, MEASURED, data())?;
    }
}

fn send_words(host: &RankHost, peer: u32, tag: i32, words: [u32; 2]) -> Result<(), String> {
    let room = Scratch::new(8).ok_or("no memory")?;
    room.mem().write(0, &words.map(u32::to_le_bytes).concat());
    send_to(host, peer, tag, Data::contiguous(room.mem(), 8))
}

fn receive_words(host: &RankHost, peer: u32, tag: i32) -> Result<[u32; 2], String> {
    let room = Scratch::new(8).ok_or("no memory")?;
    receive_from(host, peer, tag, Data::contiguous(room.mem(), 8))?;
    let mut bytes = [0; 8];
    room.mem().read(0, &mut bytes);
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok([word(0), word(4)])
}
