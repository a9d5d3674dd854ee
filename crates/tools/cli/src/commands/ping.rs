//! `garonne ping`: how long messages take between two hosts, or on this one, and which way they go.
//!
//! The command starts itself as a job of two ranks, one on each host, as `garonne run` would. The
//! ranks exchange messages as ranks of any job do. An answer therefore shows that all works that a
//! job needs: the launcher, the agents, the addresses, the transport. Times are those of the
//! messages alone, without start-up.

use std::process::Command;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use garonne_engine::api::SendCompletion;
use garonne_progress::messaging::Messaging;
use garonne_rank::{Rank, RankHost};
use garonne_sync::user::{Data, Scratch};
use serde::{Deserialize, Serialize};

use super::rank_pair;

/// Tag of the message by which one rank says to the other what comes next.
const WORD: i32 = 0;
/// Messages of which one answers the other.
const PING: i32 = 1;
/// Messages in one direction.
const STREAM: i32 = 2;

/// The rank that counts.
const COUNTS: u32 = 0;

const LENGTHS: [u64; 4] = [8, 1 << 10, 64 << 10, 1 << 20];
/// Exchanges before any is counted: connections are made at the first, ways of large messages are
/// tried at the next.
const WARM: u64 = 20;
/// Exchanges between two looks at the time.
const TURN: u64 = 20;
/// Messages under way in a stream, and their length.
const WINDOW: usize = 8;
const STREAM_BYTES: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub struct PingArgs {
    /// Two hosts; one: this host and that one; none: two ranks of this host
    #[arg(num_args = 0..=2, value_name = "HOST")]
    hosts: Vec<String>,
    /// What starts an agent on another host, as for `garonne run`
    #[arg(long)]
    launcher: Option<String>,
    /// Milliseconds for each length of messages
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    ms: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Be one of the two ranks
    #[arg(long, hide = true)]
    as_rank: bool,
}

/// Results that the ranks measured.
#[derive(Debug, Serialize, Deserialize)]
struct PingResult {
    /// `shared memory`, or `TCP` and both ends of its connection.
    over: String,
    exchanges: Vec<LatencySummary>,
    /// Bytes per second of long messages, several under way.
    stream: f64,
}

/// Half round trips of one length, in nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
struct LatencySummary {
    bytes: u64,
    count: usize,
    median_ns: f64,
    p99_ns: f64,
}

pub fn run(args: &PingArgs) -> i32 {
    let done = match args.as_rank {
        true => as_rank(Duration::from_millis(args.ms)),
        false => measure(args).map(|found| match args.json {
            true => super::print_json(&found),
            false => print(args, &found),
        }),
    };
    done.unwrap_or_else(|text| {
        errln!("error: {text}");
        1
    })
}

/// Starts the job and reads what its ranks found. What went wrong there it says itself.
fn measure(args: &PingArgs) -> Result<PingResult, String> {
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let mut command = Command::new(&program);
    command.args(["run", "-n", "2"]);
    let hosts = match &args.hosts[..] {
        [] => None,
        [other] => Some(format!("localhost,{other}")),
        both => Some(both.join(",")),
    };
    if let Some(hosts) = hosts {
        command.args(["--map-by", "node", "--host", &hosts]);
    }
    if let Some(launcher) = &args.launcher {
        command.args(["--launcher", launcher]);
    }
    command
        .arg(&program)
        .args(["ping", "--as-rank", "--ms"])
        .arg(args.ms.to_string());
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start a job: {error}"))?;
    if !output.status.success() {
        return Err("the job of two ranks failed, as it says above".to_owned());
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the ranks said something else: {error}"))
}

fn print(args: &PingArgs, found: &PingResult) -> i32 {
    let between = match &args.hosts[..] {
        [] => "two ranks of this host".to_owned(),
        [other] => format!("this host and {other}"),
        [one, other, ..] => format!("{one} and {other}"),
    };
    outln!("between {between}, over {}", found.over);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["bytes", "half round trip", "99 of 100 below", "exchanges"]);
    for one in &found.exchanges {
        table.add_row([
            one.bytes.to_string(),
            time(one.median_ns),
            time(one.p99_ns),
            one.count.to_string(),
        ]);
    }
    outln!("{}", table.trim_fmt());
    outln!(
        "stream of 1 MB messages, {WINDOW} under way: {:.0} MB/s",
        found.stream / 1e6
    );
    0
}

fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        _ => format!("{:.2} ms", ns / 1e6),
    }
}

/// One of the two ranks.
fn as_rank(each: Duration) -> Result<i32, String> {
    let rank = Rank::enter().map_err(|error| error.to_string())?;
    if rank.host.world_size() != 2 {
        return Err(format!("{} ranks; two are needed", rank.host.world_size()));
    }
    let found = match rank.host.me() {
        COUNTS => Some(count(&rank.host, each)?),
        _ => {
            answer(&rank.host)?;
            None
        }
    };
    rank.leave().map_err(|error| error.to_string())?;
    Ok(found.map_or(0, |found| super::print_json(&found)))
}

fn room() -> Result<Scratch, String> {
    let most = LENGTHS.into_iter().max().unwrap_or(0).max(STREAM_BYTES);
    Scratch::new(most as usize).ok_or_else(|| "no memory".to_owned())
}

/// Request to the other rank: answer so many messages of a length, take a stream of so many, or
/// end.
#[derive(Clone, Copy)]
enum PingRequest {
    Answer { len: u64, times: u64 },
    Take(u64),
    End,
}

impl PingRequest {
    const BYTES: u64 = 24;

    fn tell(self, host: &RankHost) -> Result<(), String> {
        let words = match self {
            PingRequest::Answer { len, times } => [1, times, len],
            PingRequest::Take(messages) => [2, messages, 0],
            PingRequest::End => [0; 3],
        };
        let room = Scratch::new(Self::BYTES as usize).ok_or("no memory")?;
        room.mem()
            .write(0, words.map(u64::to_le_bytes).as_flattened());
        rank_pair::send(
            host,
            WORD,
            Data::contiguous(room.mem(), Self::BYTES),
            SendCompletion::Standard,
        )
    }

    fn hear(host: &RankHost) -> Result<Self, String> {
        let room = Scratch::new(Self::BYTES as usize).ok_or("no memory")?;
        rank_pair::receive(host, WORD, Data::contiguous(room.mem(), Self::BYTES))?;
        let mut words = [[0; 8]; 3];
        room.mem().read(0, words.as_flattened_mut());
        Ok(match words.map(u64::from_le_bytes) {
            [1, times, len] => PingRequest::Answer { len, times },
            [2, messages, _] => PingRequest::Take(messages),
            _ => PingRequest::End,
        })
    }
}

/// Sends, and counts how long answers take.
fn count(host: &RankHost, each: Duration) -> Result<PingResult, String> {
    let memory = room()?;
    let mut exchanges = Vec::new();
    for len in LENGTHS {
        let data = Data::contiguous(memory.mem(), len);
        exchange(host, &data, WARM)?;
        let (mut halves, until) = (Vec::new(), Instant::now() + each);
        while halves.is_empty() || Instant::now() < until {
            halves.extend(exchange(host, &data, TURN)?);
        }
        halves.sort_by(f64::total_cmp);
        exchanges.push(LatencySummary {
            bytes: len,
            count: halves.len(),
            median_ns: halves[halves.len() / 2],
            p99_ns: halves[(halves.len() * 99 / 100).min(halves.len() - 1)],
        });
    }
    let stream = stream(host, &memory, each)?;
    PingRequest::End.tell(host)?;
    Ok(PingResult {
        over: over(host),
        exchanges,
        stream,
    })
}

/// Half round trips, one after the other.
fn exchange(host: &RankHost, data: &Data, times: u64) -> Result<Vec<f64>, String> {
    PingRequest::Answer {
        len: data.len,
        times,
    }
    .tell(host)?;
    // The other has heard it and waits.
    rank_pair::receive(host, WORD, Data::empty())?;
    let mut halves = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        rank_pair::send(host, PING, data.clone(), SendCompletion::Standard)?;
        rank_pair::receive(host, PING, data.clone())?;
        halves.push(begin.elapsed().as_nanos() as f64 / 2.0);
    }
    Ok(halves)
}

/// Bytes per second of messages in one direction: as many as take about as long as is given.
fn stream(host: &RankHost, memory: &Scratch, each: Duration) -> Result<f64, String> {
    let mut messages = WINDOW as u64;
    loop {
        let begin = Instant::now();
        PingRequest::Take(messages).tell(host)?;
        window(
            messages,
            |_| {
                rank_pair::start_send(
                    host,
                    STREAM,
                    Data::contiguous(memory.mem(), STREAM_BYTES),
                    SendCompletion::Standard,
                )
            },
            host,
        )?;
        // The last has arrived.
        rank_pair::receive(host, PING, Data::empty())?;
        let took = begin.elapsed();
        if took >= each / 2 {
            return Ok((messages * STREAM_BYTES) as f64 / took.as_secs_f64());
        }
        messages *= 2;
    }
}

/// Starts so many messages, at most a window of them under way.
fn window(
    messages: u64,
    mut start: impl FnMut(u64) -> Result<garonne_engine::api::StartOutcome, garonne_engine::api::Error>,
    host: &RankHost,
) -> Result<(), String> {
    let mut under_way = std::collections::VecDeque::new();
    for number in 0..messages {
        if under_way.len() == WINDOW
            && let Some(oldest) = under_way.pop_front()
        {
            rank_pair::finish(host, oldest)?;
        }
        under_way.push_back(start(number));
    }
    under_way
        .into_iter()
        .try_for_each(|started| rank_pair::finish(host, started))
}

/// Does what it is asked for until there is nothing more.
fn answer(host: &RankHost) -> Result<(), String> {
    let memory = room()?;
    // Several messages arrive at once, each in a place of its own.
    let places: Vec<Scratch> = (0..WINDOW).map(|_| room()).collect::<Result<_, _>>()?;
    loop {
        match PingRequest::hear(host)? {
            PingRequest::Answer { len, times } => {
                let data = Data::contiguous(memory.mem(), len.min(memory.len() as u64));
                rank_pair::send(host, WORD, Data::empty(), SendCompletion::Standard)?;
                for _ in 0..times {
                    rank_pair::receive(host, PING, data.clone())?;
                    rank_pair::send(host, PING, data.clone(), SendCompletion::Standard)?;
                }
            }
            PingRequest::Take(messages) => {
                window(
                    messages,
                    |number| {
                        let place = &places[number as usize % WINDOW];
                        rank_pair::start_receive(
                            host,
                            STREAM,
                            Data::contiguous(place.mem(), STREAM_BYTES),
                        )
                    },
                    host,
                )?;
                rank_pair::send(host, PING, Data::empty(), SendCompletion::Standard)?;
            }
            PingRequest::End => return Ok(()),
        }
    }
}

/// Which way messages go.
fn over(host: &RankHost) -> String {
    let ends = host.inspect(|shard| shard.transport().tcp().map(|tcp| tcp.ends_of(1 - COUNTS)));
    match ends {
        None | Some(None) => "shared memory".to_owned(),
        Some(Some((own, other))) => format!("TCP from {own} to {other}"),
    }
}
