//! The part of `garonne tune` that measures networks: large data between two hosts, by each network
//! that both are on.
//!
//! The command starts itself as a job of two ranks, one on each host, as `garonne ping` does. Each
//! in turn fetches large messages from the other, over all networks at once, as ranks of any job
//! would. The measurement is what its transport knows of the networks then. Each rank keeps what it
//! found on its own host, which is where ranks look that begin there.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use garonne_engine::api::SendCompletion;
use garonne_progress::messaging::Messaging;
use garonne_rank::measured_networks::{MeasuredNetwork, MeasuredNetworks};
use garonne_rank::{Rank, RankHost};
use garonne_sync::user::{Data, Scratch};
use serde::{Deserialize, Serialize};

use super::rank_pair;
use crate::progress_bar::ProgressBar;

/// Large data, and what is said of them.
const BULK: i32 = 0;
const WORD: i32 = 1;
/// Bytes of a message: several pieces for each of the networks.
const LEN: u64 = 16 << 20;
/// Messages at least. The first opens the ways.
const MESSAGES: u32 = 4;
/// Longer than the first pieces of a network say too much of it, since it lets them through at
/// once.
const LEAST: Duration = Duration::from_millis(1500);
/// Bytes of what one rank tells the other in the end.
const REPORT_MAX: usize = 64 * 1024;

#[derive(Debug, Default, clap::Args)]
pub struct TuneNetworkArgs {
    /// Measure the networks between these hosts instead of this machine; one: between this host and
    /// that one
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// What starts an agent on another host, as for `garonne run`
    #[arg(long, requires = "host")]
    launcher: Option<String>,
    /// Be one of the two ranks that measure networks
    #[arg(long, hide = true)]
    pub network_rank: bool,
}

/// Findings of one host.
#[derive(Debug, Serialize, Deserialize)]
struct NetworkFindings {
    host: String,
    networks: Vec<MeasuredNetwork>,
    /// Place where that is kept, or why not; neither: it was not to be.
    kept: Option<String>,
    failed: Option<String>,
}

impl TuneNetworkArgs {
    /// Returns whether networks are to be measured.
    pub fn are_meant(&self) -> bool {
        !self.host.is_empty()
    }
}

/// Measures between each two of the hosts. `how`: whether to print JSON, and whether to keep
/// nothing.
pub fn run(args: &TuneNetworkArgs, how: (bool, bool)) -> i32 {
    let (as_json, dry_run) = how;
    let here = [String::from("localhost")];
    let hosts: Vec<&String> = match &args.host[..] {
        [other] => here.iter().chain([other]).collect(),
        all => all.iter().collect(),
    };
    let mut found = Vec::new();
    let mut progress = ProgressBar::new(hosts.len() * hosts.len().saturating_sub(1) / 2);
    for (at, one) in hosts.iter().enumerate() {
        for other in &hosts[at + 1..] {
            progress.step(&format!("{one} and {other}"));
            match measure(args, (one, other), dry_run) {
                Ok(both) => found.extend(both),
                Err(text) => {
                    drop(progress);
                    errln!("error: {one} and {other}: {text}");
                    return 1;
                }
            }
        }
    }
    drop(progress);
    let code = match as_json {
        true => super::print_json(&found),
        false => print(&found),
    };
    let failures = found
        .iter()
        .filter_map(|one| Some((&one.host, one.failed.as_ref()?)));
    for (host, why) in failures.clone() {
        errln!("error: cannot keep what {host} found: {why}");
    }
    if failures.count() > 0 { 1 } else { code }
}

/// Starts the job and reads what its ranks found. What went wrong there it says itself.
fn measure(
    args: &TuneNetworkArgs,
    (one, other): (&str, &str),
    dry_run: bool,
) -> Result<Vec<NetworkFindings>, String> {
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let mut command = Command::new(&program);
    command.args(["run", "-n", "2", "--map-by", "node", "--host"]);
    command.arg(format!("{one},{other}"));
    if let Some(launcher) = &args.launcher {
        command.args(["--launcher", launcher]);
    }
    command.arg(&program).args(["tune", "--network-rank"]);
    if dry_run {
        command.arg("--dry-run");
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start a job: {error}"))?;
    if !output.status.success() {
        return Err("the job of two ranks failed, as it says above".to_owned());
    }
    let found: Result<Vec<NetworkFindings>, _> = serde_json::from_slice(&output.stdout);
    let found = found.map_err(|error| format!("the ranks said something else: {error}"))?;
    Ok(named(found, [one, other]))
}

/// Renames hosts as the user calls them, in the order of ranks: several hosts may call themselves
/// alike.
fn named(mut found: Vec<NetworkFindings>, names: [&str; 2]) -> Vec<NetworkFindings> {
    for (found, name) in found.iter_mut().zip(names) {
        name.clone_into(&mut found.host);
    }
    found
}

fn print(found: &[NetworkFindings]) -> i32 {
    for one in found {
        outln!("{} gets", one.host);
        print_networks(&one.networks);
        if let Some(path) = &one.kept {
            outln!("kept there in {path}");
        }
    }
    outln!(
        "ranks split large data over several networks by these numbers until they have found their own; `garonne why gate N` shows both"
    );
    0
}

/// Prints as a table what networks give.
pub fn print_networks(networks: &[MeasuredNetwork]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["by network", "from", "MB/s", "round trip us"]);
    for one in networks {
        table.add_row([
            one.own.clone(),
            one.other.clone(),
            format!("{:.0}", one.mb_per_s),
            format!("{:.0}", one.round_trip_us),
        ]);
    }
    outln!("{}", table.trim_fmt());
}

/// One of the two ranks.
pub fn as_rank(dry_run: bool) -> i32 {
    match found(dry_run) {
        Ok(Some(both)) => super::print_json(&both),
        Ok(None) => 0,
        Err(text) => {
            errln!("error: {text}");
            1
        }
    }
}

/// Both ranks' findings, of rank 0.
fn found(dry_run: bool) -> Result<Option<[NetworkFindings; 2]>, String> {
    let rank = Rank::enter().map_err(|error| error.to_string())?;
    let host = &rank.host;
    if host.world_size() != 2 {
        return Err(format!("{} ranks; two are needed", host.world_size()));
    }
    let other_hosts = host.inspect(|shard| match shard.transport().tcp() {
        Some(mut tcp) => {
            tcp.measure_anew();
            true
        }
        None => false,
    });
    if !other_hosts {
        return Err("both ranks are on one host; there is no network between them".to_owned());
    }
    let mut own = Vec::new();
    for receiver in 0..2 {
        match host.me() == receiver {
            true => own = fetch(host)?,
            false => give(host)?,
        }
    }
    // One after the other: both may keep it in the same place.
    let result = match host.me() {
        0 => {
            let mine = kept(own, dry_run);
            Some([mine, hear(host)?])
        }
        _ => {
            rank_pair::receive(host, WORD, Data::empty())?;
            tell(host, &kept(own, dry_run))?;
            None
        }
    };
    rank.leave().map_err(|error| error.to_string())?;
    Ok(result)
}

/// Gets large messages until enough is known, and says after each whether there is to be another.
fn fetch(host: &RankHost) -> Result<Vec<MeasuredNetwork>, String> {
    let memory = Scratch::new(LEN as usize).ok_or("no memory")?;
    let word = Scratch::new(1).ok_or("no memory")?;
    let (mut begun, mut count) = (Instant::now(), 0);
    loop {
        rank_pair::receive_announced(host, BULK, Data::contiguous(memory.mem(), LEN))?;
        if count == 0 {
            begun = Instant::now();
        }
        count += 1;
        let enough = count >= MESSAGES && begun.elapsed() >= LEAST;
        word.mem().write(0, &[enough.into()]);
        rank_pair::send(
            host,
            WORD,
            Data::contiguous(word.mem(), 1),
            SendCompletion::Standard,
        )?;
        if enough {
            break;
        }
    }
    // All together, for where there is but one network, whose rate nobody measures: there is
    // nothing to compare it with.
    let together = (u64::from(count - 1) * LEN) as f64 / begun.elapsed().as_secs_f64() / 1e6;
    let ways = host.inspect(|shard| shard.transport().tcp().map(|tcp| tcp.gives(1 - host.me())));
    let mut ways = ways.unwrap_or_default();
    ways.retain(|way| way.brought > 0);
    let alone = ways.len() == 1;
    let known = ways.iter().filter_map(|way| {
        let rate = if alone { Some(together) } else { way.rate };
        let (own, other) = (way.ends.0.ip(), way.ends.1.ip());
        Some(MeasuredNetwork::between(own, other, (rate?, way.latency)))
    });
    // Two ways may lead by one network: the second connection of a pair that has but one is of no
    // use.
    let mut networks: Vec<MeasuredNetwork> = Vec::new();
    for network in known {
        let same =
            |known: &MeasuredNetwork| (&known.own, &known.other) == (&network.own, &network.other);
        match networks.iter_mut().find(|known| same(known)) {
            Some(known) if known.mb_per_s < network.mb_per_s => *known = network,
            Some(_) => {}
            None => networks.push(network),
        }
    }
    Ok(networks)
}

fn give(host: &RankHost) -> Result<(), String> {
    let memory = Scratch::new(LEN as usize).ok_or("no memory")?;
    let word = Scratch::new(1).ok_or("no memory")?;
    let mut enough = [0];
    while enough == [0] {
        rank_pair::send(
            host,
            BULK,
            Data::contiguous(memory.mem(), LEN),
            SendCompletion::Synchronous,
        )?;
        rank_pair::receive(host, WORD, Data::contiguous(word.mem(), 1))?;
        word.mem().read(0, &mut enough);
    }
    Ok(())
}

/// Keeps what this host found unless `dry_run`, and says where.
fn kept(networks: Vec<MeasuredNetwork>, dry_run: bool) -> NetworkFindings {
    let result = (!dry_run).then(|| MeasuredNetworks::keep(&networks));
    NetworkFindings {
        host: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        networks,
        kept: match &result {
            Some(Ok(path)) => Some(path.display().to_string()),
            _ => None,
        },
        failed: match result {
            Some(Err(error)) => Some(error.to_string()),
            _ => None,
        },
    }
}

fn tell(host: &RankHost, found: &NetworkFindings) -> Result<(), String> {
    let text = serde_json::to_vec(found).map_err(|error| error.to_string())?;
    let room = Scratch::new(REPORT_MAX).ok_or("no memory")?;
    // Blanks behind it are no part of it.
    let mut bytes = vec![b' '; REPORT_MAX];
    let place = bytes.get_mut(..text.len()).ok_or("too many networks")?;
    place.copy_from_slice(&text);
    room.mem().write(0, &bytes);
    let data = Data::contiguous(room.mem(), REPORT_MAX as u64);
    rank_pair::send(host, WORD, data, SendCompletion::Standard)
}

fn hear(host: &RankHost) -> Result<NetworkFindings, String> {
    rank_pair::send(host, WORD, Data::empty(), SendCompletion::Standard)?;
    let room = Scratch::new(REPORT_MAX).ok_or("no memory")?;
    rank_pair::receive(host, WORD, Data::contiguous(room.mem(), REPORT_MAX as u64))?;
    let mut bytes = vec![0; REPORT_MAX];
    room.mem().read(0, &mut bytes);
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("the other rank said something else: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_called_as_the_user_called_them_also_where_they_call_themselves_alike() {
        let found = || NetworkFindings {
            host: "vm".into(),
            networks: Vec::new(),
            kept: None,
            failed: None,
        };
        let both = named(vec![found(), found()], ["a", "b"]);
        assert_eq!([&both[0].host, &both[1].host], ["a", "b"]);
    }
}
