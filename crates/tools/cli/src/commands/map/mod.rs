//! `garonne map`: the machine as hwloc sees it, and where the ranks of a running job are on it.
//! Each host of a job on several shows its own machine.

mod discovery;
pub mod drawing;
pub mod machine;
mod rank_process;
mod svg_file;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueHint;
use clap_complete::engine::ArgValueCandidates;
use garonne_inspect::query_client::QueryClient;
use garonne_job::query::RemoteCommand;
use garonne_topology::machine as own_machine;
use serde_json::json;

use super::{fail, job_lookup, remote_command, trace};
use crate::job_page;
use crate::overwrite_check;
use discovery::Discovered;
use drawing::Drawing;
use machine::{MachineMap, MachineObject, PlacedRank};

/// Way in which each drawing begins, by which an earlier one is known.
const SVG: &[u8] = b"<svg";

#[derive(Debug, clap::Args)]
pub struct MapArgs {
    /// A job, by its name or its launcher's process id (garonne ps): shows its ranks; not needed if
    /// one job runs
    #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
    job: Option<job_lookup::JobSelector>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw it into this file, with what each rank has sent
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Write a page into this file that any browser shows: the machine, its distances, and of a job
    /// hosts, ranks, who sends to whom and who waits for whom
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["json", "svg"])]
    html: Option<PathBuf>,
    /// How long the messages are counted that the page shows: 5s, 500ms, or seconds
    #[arg(long = "for", value_name = "TIME", value_parser = trace::duration, default_value = "1s", requires = "html")]
    time: Duration,
    /// Serve the page of a job on this host's loopback, and follow the job until it ends
    #[arg(long, conflicts_with_all = ["json", "svg", "html"])]
    watch: bool,
    /// Port of the page (default: any that is free)
    #[arg(
        long,
        value_name = "PORT",
        default_value = "0",
        hide_default_value = true,
        requires = "watch"
    )]
    port: u16,
}

pub fn run(args: &MapArgs) -> i32 {
    go(args).unwrap_or_else(|text| fail(&text))
}

fn go(args: &MapArgs) -> Result<i32, String> {
    if args.watch {
        let client = job_lookup::choose(args.job.as_ref(), "garonne map --watch JOB")?;
        return job_page::live_server::serve(&client, args.port);
    }
    if let Some(path) = &args.html {
        overwrite_check::check(path, job_page::beginning())?;
    }
    let discovered = discovery::discover()?;
    let client = match &args.job {
        // Jobs run on this machine, not on a described one.
        None if !discovered.is_this_system => None,
        None => only(),
        Some(_) => Some(job_lookup::choose(args.job.as_ref(), "garonne map JOB")?),
    };
    if let Some(path) = &args.html {
        let page = match &client {
            Some(client) => job_page::of_now(client, args.time),
            None => job_page::of_machine(&of_host(None, discovered)),
        };
        overwrite_check::write(path, job_page::beginning(), &page)?;
        return Ok(0);
    }
    match &client {
        Some(client) if client.hosts.len() > 1 => show_all(args, discovered, client),
        _ => show_one(args, &of_host(client.as_ref(), discovered)),
    }
}

/// The job that runs, if there is exactly one; where there are several they are named, and the
/// machine is shown without.
fn only() -> Option<QueryClient> {
    let mut clients = job_lookup::running().clients;
    if clients.len() > 1 {
        errln!(
            "several jobs run; name one to see its ranks: garonne map JOB\n{}",
            job_lookup::listed(&clients)
        );
        return None;
    }
    clients.pop()
}

/// This machine, with ranks or without.
fn show_one(args: &MapArgs, map: &MachineMap) -> Result<i32, String> {
    match &args.svg {
        Some(path) => save(path, &drawing::of_machine(map)),
        None if args.json => Ok(super::print_json(&json!(map))),
        None => {
            out!("{}", text::text(map, 0));
            Ok(0)
        }
    }
}

/// The machines of all hosts that have ranks of the job, as each of them tells.
fn show_all(args: &MapArgs, own: Discovered, client: &QueryClient) -> Result<i32, String> {
    let as_json = args.json || args.svg.is_some();
    if as_json {
        let hosts = hosts(client, own)?;
        return match &args.svg {
            None => Ok(super::print_json(
                &json!({ "job": client.job_name, "hosts": hosts }),
            )),
            Some(path) => {
                let title = format!("job {}", client.job_name);
                save(path, &drawing::of_hosts(&title, &hosts))
            }
        };
    }
    let others = remote_command::ask(client, RemoteCommand::Map, false)?;
    if let Some(name) = own_name(client).filter(|_| client.has_ranks_here()) {
        let map = of_host(Some(client), own);
        out!("on host '{name}':\n{}", text::text(&map, 1));
    }
    for (host, page) in &others {
        match page {
            Ok(words) => out!("on host '{host}':\n{words}"),
            Err(why) => outln!("on host '{host}': {why}"),
        }
    }
    Ok(i32::from(others.iter().any(|(_, page)| page.is_err())))
}

/// The machines of all hosts that have ranks of the job; this one first.
fn hosts(client: &QueryClient, own: Discovered) -> Result<Vec<MachineMap>, String> {
    let others = remote_command::ask(client, RemoteCommand::Map, true)?;
    let far = others.into_iter().map(|(host, page)| {
        let told = page.and_then(|text| {
            serde_json::from_str::<MachineMap>(&text).map_err(|error| error.to_string())
        });
        let mut map = told.unwrap_or_else(|why| MachineMap {
            why: Some(why),
            ..MachineMap::default()
        });
        map.host = Some(host);
        map
    });
    let name = own_name(client).filter(|_| client.has_ranks_here());
    let near = name.map(|name| {
        let mut map = of_host(Some(client), own);
        map.host = Some(name.to_owned());
        map
    });
    Ok(near.into_iter().chain(far).collect())
}

/// Draws the machines of a job, for its page.
///
/// # Errors
/// A line for the user.
pub fn of_job(client: &QueryClient) -> Result<Vec<MachineMap>, String> {
    let own = discovery::discover()?;
    if client.hosts.len() > 1 {
        return hosts(client, own);
    }
    Ok(vec![of_host(Some(client), own)])
}

/// The name of this host in the job.
fn own_name(client: &QueryClient) -> Option<&str> {
    let (shape, _) = client.world.as_ref()?;
    client.hosts.get(shape.node as usize).map(String::as_str)
}

/// Prints the output of [`RemoteCommand::Map`], for the agent that runs this.
pub fn say_for_agent(client: &QueryClient, as_json: bool) -> i32 {
    let map = match discovery::discover() {
        Ok(found) => of_host(Some(client), found),
        Err(text) => return fail(&text),
    };
    match as_json {
        true => super::print_json(&json!(map)),
        false => {
            out!("{}", text::text(&map, 1));
            0
        }
    }
}

/// Draws a map without a job into a file, unless something else stands there.
///
/// # Errors
/// A line for the user.
pub fn save_machine(path: &Path, map: &MachineMap) -> Result<i32, String> {
    save(path, &drawing::of_machine(map))
}

fn save(path: &Path, drawing: &Drawing) -> Result<i32, String> {
    overwrite_check::check(path, SVG)?;
    svg::save(path, &svg_file::document(drawing))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(0)
}

/// The machine with the ranks of a job that are on this host.
fn of_host(client: Option<&QueryClient>, found: Discovered) -> MachineMap {
    let nodes = count_nodes(&found.root);
    let ranks: Vec<PlacedRank> = client
        .map_or(Vec::new(), job_lookup::ranks)
        .into_iter()
        .map(|rank| PlacedRank {
            rank: rank.rank,
            pid: rank.pid,
            cpu: rank.cpu,
            sent_messages: rank.sent_messages,
            sent_bytes: rank.sent_bytes,
            memory: rank_process::memory(rank.pid, nodes),
            threads: rank_process::threads(rank.pid),
        })
        .collect();
    let unbound = ranks.iter().filter(|rank| rank.cpu.is_none());
    let unbound_ranks = unbound.map(|rank| rank.rank).collect();
    let mut root = found.root;
    // A described machine is not the one that this process may use.
    let allowed = found.is_this_system.then(own_machine::allowed);
    mark(&mut root, &ranks, &|cpu| {
        allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu))
    });
    MachineMap {
        root,
        unbound_ranks,
        ranks_here: ranks,
        distances: found.distances,
        ..MachineMap::default()
    }
}

fn count_nodes(object: &MachineObject) -> usize {
    let inside: usize = object.children.iter().map(count_nodes).sum();
    inside + usize::from(object.class == machine::ObjectClass::Memory)
}

/// Notes at each CPU whether it may be used, and which ranks are bound to it.
fn mark(object: &mut MachineObject, ranks: &[PlacedRank], usable: &impl Fn(u32) -> bool) {
    if let Some(cpu) = object.cpu {
        object.usable = Some(usable(cpu));
        let here = ranks.iter().filter(|rank| rank.cpu == Some(cpu));
        object.ranks = Some(here.map(|rank| rank.rank).collect());
    }
    for child in &mut object.children {
        mark(child, ranks, usable);
    }
}
