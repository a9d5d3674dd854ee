//! `garonne net`: the topology of the network between hosts, found out, kept and shown.
//!
//! [`sources`] reads what others know of the network, [`measuring`] starts jobs whose ranks listen
//! or measure, [`kept_graph`] is where the graph lies, and [`frames`] draws it.

mod frames;
pub mod kept_graph;
mod measuring;
mod sources;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use garonne_network_graph::{NetworkGraph, changes, graph_file, tree};
use serde_json::json;

use super::{fail, map, trace};
use crate::overwrite_check;

/// Way in which each kept graph begins, by which an earlier one is known.
const GRAPH: &[u8] = b"{\n  \"format\":";

#[derive(Debug, clap::Subcommand)]
pub enum NetCommand {
    /// Find out which switches and links are between hosts, keep it, and say what has changed
    Discover(Box<DiscoverArgs>),
    /// The network that was found last
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub struct DiscoverArgs {
    /// Listen to what switches say of themselves (LLDP) on the interfaces of this host, or of those
    /// of --host; needs the right to open packet sockets
    #[arg(long)]
    lldp: bool,
    /// How long to listen: 60s, 500ms, or seconds; switches speak each 30 s
    #[arg(long = "for", value_name = "TIME", value_parser = trace::duration, default_value = "35s", requires = "lldp")]
    time: Duration,
    /// Read Slurm's topology.conf
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    slurm: Option<PathBuf>,
    /// Read what `ibnetdiscover` printed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ibnetdiscover: Option<PathBuf>,
    /// Read a graph that this command wrote with --save, on a switch or another host for instance;
    /// several may be given
    #[arg(long = "file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Measure latency and bandwidth between each two of the hosts of --host, one pair after the
    /// other, and group them
    #[arg(long, requires = "host", conflicts_with_all = ["lldp", "slurm", "ibnetdiscover", "files", "matrix"])]
    measure: bool,
    /// Group hosts by a matrix of measurements in JSON: hosts, latency_us, mb_per_s
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["lldp", "slurm", "ibnetdiscover", "files"])]
    matrix: Option<PathBuf>,
    /// Hosts that listen or measure
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// What starts an agent on another host, as for `garonne run`
    #[arg(long, requires = "host")]
    launcher: Option<String>,
    /// Name of this host in the graph (default: the system's)
    #[arg(long)]
    name: Option<String>,
    /// This machine is a switch, and no host
    #[arg(long, requires = "lldp")]
    switch: bool,
    /// Write the graph into this file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<PathBuf>,
    /// Compare and print, but keep nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Be one of the ranks that measure
    #[arg(long, hide = true)]
    measuring_rank: bool,
    /// Be one of the ranks that listen
    #[arg(long, hide = true)]
    listening_rank: bool,
}

#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw it into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    svg: Option<PathBuf>,
}

pub fn run(command: &NetCommand) -> i32 {
    let done = match command {
        NetCommand::Discover(args) if args.measuring_rank => measuring::as_rank(),
        NetCommand::Discover(args) if args.listening_rank => sources::as_rank(args.time),
        NetCommand::Discover(args) => discover(args),
        NetCommand::Show(args) => show(args),
    };
    done.unwrap_or_else(|text| fail(&text))
}

fn discover(args: &DiscoverArgs) -> Result<i32, String> {
    if let Some(path) = &args.save {
        overwrite_check::check(path, GRAPH)?;
    }
    let graph = sources::graph(args)?;
    let before = kept_graph::load()?;
    let told = before.map(|before| changes::between(&before, &graph));
    if let Some(path) = &args.save {
        overwrite_check::write(path, GRAPH, &graph_file::write(&graph))?;
    }
    let place = match args.dry_run {
        true => None,
        false => Some(kept_graph::keep(&graph)?),
    };
    if args.json {
        let lines = told.as_ref().map(|told| {
            let line = |change: &changes::Change| change.to_string();
            told.iter().map(line).collect::<Vec<_>>()
        });
        let value: serde_json::Value =
            serde_json::from_str(&graph_file::write(&graph)).map_err(|error| error.to_string())?;
        return Ok(super::print_json(
            &json!({ "graph": value, "changes": lines }),
        ));
    }
    out!("{}", tree::text(&graph));
    match &told {
        None => {}
        Some(told) if told.is_empty() => outln!("nothing has changed since the last time"),
        Some(told) => {
            outln!("since the last time:");
            for change in told {
                outln!("  {change}");
            }
        }
    }
    if let Some(place) = place {
        outln!("kept in {}", place.display());
    }
    Ok(0)
}

fn show(args: &ShowArgs) -> Result<i32, String> {
    let graph = kept_graph::load()?
        .ok_or("no network is known yet; `garonne net discover` finds out about it")?;
    if let Some(path) = &args.svg {
        return map::save_machine(path, &frames::drawn(&graph)?);
    }
    match args.json {
        true => out!("{}", graph_file::write(&graph)),
        false => out!("{}", tree::text(&graph)),
    }
    Ok(0)
}

/// Says which part of a graph is empty, for who asked for it.
fn non_empty(graph: NetworkGraph, why: &str) -> Result<NetworkGraph, String> {
    match graph.links().is_empty() {
        true => Err(why.to_owned()),
        false => Ok(graph),
    }
}
