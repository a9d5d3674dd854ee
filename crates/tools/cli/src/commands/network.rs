//! `garonne network`: shows which networks a running job uses between hosts, and what moves on
//! each. Takes a network out of use while the job runs, or back into use, or into use for the first
//! time.

use clap::error::{ContextKind, ContextValue};
use clap_complete::engine::ArgValueCandidates;
use comfy_table::{Table, presets};
use garonne_inspect::query_client;
use garonne_job::disabled_networks;
use garonne_job::layout::{RankBlock, RankEndpoint, WorldShape, rank_endpoint};
use garonne_job::query::RemoteCommand;
use garonne_job::settings;
use garonne_links::addresses;
use garonne_links::process_memory::memory_of;
use garonne_sync::shm::Segment;
use garonne_tcp::connection_table::{self, ConnectionEntry};
use garonne_tcp::{MEMORY, StreamNumber};
use ipnet::IpNet;
use serde_json::json;
use std::ffi::OsString;

use super::{job_lookup, remote_command};

#[derive(Debug, clap::Args)]
pub struct NetworkArgs {
    #[command(subcommand)]
    what: Option<NetworkAction>,
    /// The job, by its name or its launcher's process id (garonne ps); not needed if one job runs
    #[arg(long, global = true, add = ArgValueCandidates::new(job_lookup::candidates))]
    job: Option<job_lookup::JobSelector>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum NetworkAction {
    /// Leave a network alone from now on, on all hosts of the job: what is under way there is
    /// finished, or sent again by another
    #[command(visible_alias = "remove")]
    Drain {
        /// 10.0.1.0/24, or the name of an interface of this host
        network: String,
    },
    /// Use a network again, or one that hosts of the job have got since it began: once each of them
    /// has its address there
    Add {
        /// 10.0.1.0/24, or the name of an interface of this host
        network: String,
    },
}

/// Returns the tip behind a command-line error of this command. Other commands name a job by a bare
/// number; here a bare number is no subcommand.
pub fn tip(words: &[OsString], error: &clap::Error) -> Option<String> {
    let name = words.get(1)?;
    if name != "network" && name != "rail" {
        return None;
    }
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) => {
            Some(format!("  tip: name a job by garonne network --job {word}"))
        }
        _ => None,
    }
}

pub fn run(args: &NetworkArgs) -> i32 {
    match go(args) {
        Ok(code) => code,
        Err(text) => super::fail(&text),
    }
}

fn go(args: &NetworkArgs) -> Result<i32, String> {
    let what = match &args.what {
        None => String::new(),
        Some(NetworkAction::Drain { network }) => format!(" drain {network}"),
        Some(NetworkAction::Add { network }) => format!(" add {network}"),
    };
    let job = job_lookup::choose(
        args.job.as_ref(),
        &format!("garonne network --job JOB{what}"),
    )?;
    let world = job.world.as_ref();
    let (shape, world_memory) = world.ok_or_else(|| job_lookup::not_begun(&job))?;
    if shape.nodes < 2
        && (0..shape.size).any(|rank| RankEndpoint::of(world_memory, shape, rank).port() != 0)
    {
        return match &args.what {
            None => Ok(show_within(shape, world_memory, args.json)),
            Some(_) => Err("the job runs on this host alone, and its ranks use TCP within it: there is no network to leave alone or to add".into()),
        };
    }
    if shape.nodes < 2 {
        return Err(
            "the job runs on this host alone: it uses shared memory, and no network (one rank: garonne why gate N)".into(),
        );
    }
    let (network, drained) = match &args.what {
        None if !job.has_ranks_here() => {
            return remote_command::show(&job, RemoteCommand::Network, args.json);
        }
        None => return Ok(show(shape, world_memory, args.json)),
        Some(NetworkAction::Drain { network }) => (find(network)?, true),
        Some(NetworkAction::Add { network }) => (find(network)?, false),
    };
    let failed = |error: garonne_job::Error| error.to_string();
    let nobody = format!("no host of the job has an address in {network}");
    if drained {
        let places = query_client::host_endpoints(&job).map_err(failed)?;
        if !query_client::is_on(&places, &network) {
            return Err(nobody);
        }
    }
    query_client::disable_network(&job.name, network, drained).map_err(failed)?;
    if !drained && !query_client::gets_network(&job, &network).map_err(failed)? {
        return Err(nobody);
    }
    outln!(
        "{network} is {} between the hosts of the job",
        if drained {
            "left alone from now on"
        } else {
            "used from now on"
        }
    );
    Ok(0)
}

/// The network that the user names.
fn find(word: &str) -> Result<IpNet, String> {
    let known = addresses::networks();
    match addresses::named(word, &known).as_slice() {
        [network] => Ok(*network),
        [] => {
            let names: Vec<_> = known
                .iter()
                .map(|(name, network)| format!("{network} ({name})"))
                .collect();
            Err(format!(
                "no network or interface {word}; this host has {}",
                names.join(", ")
            ))
        }
        _ => Err(format!(
            "{word} has several networks; write one, such as 10.0.1.0/24"
        )),
    }
}

/// A network and what the ranks of this host have on it.
struct NetworkRow {
    network: IpNet,
    interface: String,
    drained: bool,
    packets: usize,
    bulk: usize,
    moved: u64,
    rate: u64,
}

/// The connections of the ranks of this host.
fn links(shape: &WorldShape, world_memory: &Segment) -> Vec<ConnectionEntry> {
    let mut links: Vec<ConnectionEntry> = Vec::new();
    for rank in rank_endpoint::local_ranks(world_memory, shape) {
        let card = RankBlock::of(world_memory, rank);
        if card.pid() != 0 && card.remote_links() != 0 {
            let table = memory_of(
                card.pid(),
                card.remote_links(),
                connection_table::SHOWN_BYTES,
            );
            links.extend(connection_table::read_shown(&table.unwrap_or_default()));
        }
    }
    links
}

/// A job on one host whose ranks use TCP beside shared memory.
fn show_within(shape: &WorldShape, world_memory: &Segment, as_json: bool) -> i32 {
    let links = links(shape, world_memory);
    let here = || {
        links
            .iter()
            .filter(|seen| seen.open && seen.stream != StreamNumber::Bulk(MEMORY))
    };
    let moved: u64 = here().map(|seen| u64::from(seen.moved)).sum();
    if as_json {
        return super::print_json(&json!([{
            "network": null, "interface": "lo", "in_use": true, "connections": { "packets": 0, "bulk": here().count() }, "mb_brought": moved,
            "mb_per_s": here().map(|seen| u64::from(seen.rate)).sum::<u64>(),
        }]));
    }
    outln!(
        "the job runs on this host alone; large data between its ranks go by shared memory and, over {} within the host, by TCP ({}=shm,tcp), which has brought {moved} MB",
        match here().count() {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        },
        settings::ENV_RAILS
    );
    outln!("one rank: garonne why gate N");
    0
}

fn rows(shape: &WorldShape, world_memory: &Segment) -> Vec<NetworkRow> {
    let links = links(shape, world_memory);
    let out_of_use = disabled_networks::read(world_memory);
    let row = |(interface, network): (String, IpNet)| {
        let all = || {
            links
                .iter()
                .filter(|seen| !seen.stream.is_fabric() && network.contains(&seen.ends.0.ip()))
        };
        let here = || all().filter(|seen| seen.open);
        NetworkRow {
            network,
            interface,
            drained: disabled_networks::is_within(&out_of_use, &network),
            packets: here()
                .filter(|seen| seen.stream == StreamNumber::Small)
                .count(),
            bulk: here()
                .filter(|seen| seen.stream != StreamNumber::Small)
                .count(),
            // Also what connections have brought that were closed since.
            moved: all().map(|seen| u64::from(seen.moved)).sum(),
            rate: here().map(|seen| u64::from(seen.rate)).sum(),
        }
    };
    addresses::networks().into_iter().map(row).collect()
}

/// Shows what the ranks of this host have.
pub fn show(shape: &WorldShape, world_memory: &Segment, as_json: bool) -> i32 {
    let rows = rows(shape, world_memory);
    if as_json {
        let row = |row: &NetworkRow| {
            json!({
                "network": row.network.to_string(), "interface": row.interface, "in_use": !row.drained,
                "connections": { "packets": row.packets, "bulk": row.bulk }, "mb_brought": row.moved, "mb_per_s": row.rate,
            })
        };
        return super::print_json(&rows.iter().map(row).collect::<Vec<_>>());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "network",
        "interface",
        "",
        "connections",
        "large data brought",
    ]);
    for row in &rows {
        let state = match (row.drained, row.packets + row.bulk) {
            (true, _) => "left alone",
            (false, 0) => "not needed yet",
            (false, _) => "in use",
        };
        let brought = match (row.moved, row.rate) {
            (0, _) => String::new(),
            (moved, 0) => format!("{moved} MB"),
            (moved, rate) => format!("{moved} MB, at {rate} MB/s last"),
        };
        let connections = match (row.packets, row.bulk) {
            (0, 0) => String::new(),
            (packets, bulk) => format!("{packets} for packets, {bulk} for bulk data"),
        };
        table.add_row([
            row.network.to_string(),
            row.interface.clone(),
            state.to_owned(),
            connections,
            brought,
        ]);
    }
    outln!("{}", table.trim_fmt());
    outln!("what the ranks of this host have; one rank: garonne why gate N");
    0
}
