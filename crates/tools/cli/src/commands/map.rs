//! `garonne map`: the machine as hwloc sees it, and where the ranks of a running job are on it.
//! Each host of a job on several shows its own machine.
//!
//! The only user of hwloc, so that starting a job does not wait for it. `HWLOC_SYNTHETIC` and
//! `HWLOC_XMLFILE` show other machines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueHint;
use clap_complete::engine::ArgValueCandidates;
use garonne_inspect::query_client::QueryClient;
use garonne_job::query::RemoteCommand;
use garonne_topology::machine;
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use serde_json::{Value, json};

use super::job_lookup::{self, RankSnapshot};
use super::topology_svg::{BoxFill, TopologyBox, bytes, picture};
use super::{fail, remote_command, trace};
use crate::job_page;
use crate::overwrite_check;

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
    /// Write a page into this file that any browser shows: hosts, ranks, who sends to whom and who
    /// waits for whom
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["json", "svg"])]
    html: Option<PathBuf>,
    /// How long the messages are counted that the page shows: 5s, 500ms, or seconds
    #[arg(long = "for", value_name = "TIME", value_parser = trace::duration, default_value = "1s", requires = "html")]
    time: Duration,
}

pub fn run(args: &MapArgs) -> i32 {
    go(args).unwrap_or_else(|text| fail(&text))
}

fn go(args: &MapArgs) -> Result<i32, String> {
    if let Some(path) = &args.html {
        overwrite_check::check(path, job_page::beginning())?;
        let client = job_lookup::choose(args.job.as_ref(), "garonne map --html FILE JOB")?;
        let page = job_page::of_now(&client, args.time);
        overwrite_check::write(path, job_page::beginning(), &page)?;
        return Ok(0);
    }
    let topology = machine_of_this_host()?;
    let client = match &args.job {
        // Jobs run on this machine, not on a described one.
        None if !topology.is_this_system() => None,
        None => only(),
        Some(_) => Some(job_lookup::choose(args.job.as_ref(), "garonne map JOB")?),
    };
    let view = MapView::new(client.as_ref(), &topology);
    match client.filter(|client| client.hosts.len() > 1) {
        None => show_one(args, &view, &topology),
        Some(client) => show_all(args, &view, &topology, &client),
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

fn machine_of_this_host() -> Result<Topology, String> {
    Topology::new().map_err(|error| format!("hwloc cannot tell the machine: {error}"))
}

/// This machine, with ranks or without.
fn show_one(args: &MapArgs, view: &MapView, topology: &Topology) -> Result<i32, String> {
    let root = topology.root_object();
    match &args.svg {
        Some(path) => save(path, &drawn(&view.whole(root))),
        None if args.json => Ok(super::print_json(&view.whole(root))),
        None => {
            view.print(root, 0);
            Ok(0)
        }
    }
}

/// The machines of all hosts that have ranks of the job, as each of them tells.
fn show_all(
    args: &MapArgs,
    view: &MapView,
    topology: &Topology,
    client: &QueryClient,
) -> Result<i32, String> {
    let as_json = args.json || args.svg.is_some();
    let others = remote_command::ask(client, RemoteCommand::Map, as_json)?;
    let root = topology.root_object();
    let own = own_name(client).filter(|_| client.has_ranks_here());
    if !as_json {
        if let Some(own) = own {
            outln!("on host '{own}':");
            view.print(root, 1);
        }
        for (host, page) in &others {
            match page {
                Ok(words) => out!("on host '{host}':\n{words}"),
                Err(why) => outln!("on host '{host}': {why}"),
            }
        }
        return Ok(i32::from(others.iter().any(|(_, page)| page.is_err())));
    }
    let far = others.into_iter().map(|(host, page)| {
        let told =
            page.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        let mut told = told.unwrap_or_else(|why| json!({ "why": why, "children": [] }));
        told["host"] = json!(host);
        told
    });
    let near = own.map(|own| {
        let mut told = view.whole(root);
        told["host"] = json!(own);
        told
    });
    let hosts: Vec<Value> = near.into_iter().chain(far).collect();
    match &args.svg {
        None => Ok(super::print_json(
            &json!({ "job": client.job_name, "hosts": hosts }),
        )),
        Some(path) => {
            let title = |host: &Value| match host["why"].as_str() {
                Some(why) => format!("host {}: {why}", host["host"].as_str().unwrap_or_default()),
                None => format!("host {}", host["host"].as_str().unwrap_or_default()),
            };
            let parts = hosts.iter().map(|host| TopologyBox {
                label: title(host),
                parts: match host["why"].is_null() {
                    true => vec![drawn(host)],
                    false => Vec::new(),
                },
                ..TopologyBox::default()
            });
            let all = TopologyBox {
                label: format!("job {}", client.job_name),
                parts: parts.collect(),
                ..TopologyBox::default()
            };
            save(path, &all)
        }
    }
}

/// The name of this host in the job.
fn own_name(client: &QueryClient) -> Option<&str> {
    let (shape, _) = client.world.as_ref()?;
    client.hosts.get(shape.node as usize).map(String::as_str)
}

/// Prints the output of [`RemoteCommand::Map`], for the agent that runs this.
pub fn say_for_agent(client: &QueryClient, as_json: bool) -> i32 {
    let topology = match machine_of_this_host() {
        Ok(topology) => topology,
        Err(text) => return fail(&text),
    };
    let view = MapView::new(Some(client), &topology);
    match as_json {
        true => super::print_json(&view.whole(topology.root_object())),
        false => {
            view.print(topology.root_object(), 1);
            0
        }
    }
}

fn save(path: &Path, area: &TopologyBox) -> Result<i32, String> {
    overwrite_check::check(path, b"<svg")?;
    svg::save(path, &picture(area))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(0)
}

struct MapView {
    ranks: Vec<RankSnapshot>,
    allowed: Option<garonne_topology::CpuSet>,
}

fn cpu_of(object: &TopologyObject) -> Option<u32> {
    let is_pu = object.object_type() == hwlocality::object::types::ObjectType::PU;
    is_pu
        .then(|| object.os_index())
        .flatten()
        .and_then(|index| u32::try_from(index).ok())
}

/// Describes an object without the list of its processors, which the drawing shows.
fn label(object: &TopologyObject) -> String {
    let text = object.to_string();
    match text.split_once(" with CpuSet(") {
        Some((kind, rest)) => format!(
            "{kind}{}",
            rest.split_once(')').map_or("", |(_, rest)| rest)
        ),
        None => text,
    }
}

impl MapView {
    fn new(client: Option<&QueryClient>, topology: &Topology) -> Self {
        Self {
            ranks: client.map_or(Vec::new(), job_lookup::ranks),
            // A described machine is not the one that this process may use.
            allowed: topology.is_this_system().then(machine::allowed),
        }
    }

    fn ranks_on(&self, cpu: u32) -> Vec<u32> {
        self.ranks
            .iter()
            .filter(|rank| rank.cpu == Some(cpu))
            .map(|rank| rank.rank)
            .collect()
    }

    /// The ranks that may run anywhere, in order.
    fn unbound(&self) -> Vec<u32> {
        let ranks = self.ranks.iter().filter(|rank| rank.cpu.is_none());
        ranks.map(|rank| rank.rank).collect()
    }

    fn forbidden(&self, cpu: u32) -> bool {
        self.allowed
            .as_ref()
            .is_some_and(|allowed| !allowed.contains(cpu))
    }

    fn print(&self, object: &TopologyObject, depth: usize) {
        let mut line = format!("{}{object}", "  ".repeat(depth));
        if let Some(cpu) = cpu_of(object) {
            line += &format!(" (CPU {cpu})");
            if self.forbidden(cpu) {
                line += " not usable";
            }
            let ranks: Vec<_> = self.ranks_on(cpu).iter().map(ToString::to_string).collect();
            if !ranks.is_empty() {
                line += &format!(" <- rank {}", ranks.join(", "));
            }
        }
        outln!("{line}");
        let is_root = object.parent().is_none();
        if is_root && !self.unbound().is_empty() {
            outln!(
                "{}{}: not bound",
                "  ".repeat(depth + 1),
                ranges(&self.unbound())
            );
        }
        children(object).for_each(|child| self.print(child, depth + 1));
    }

    /// The machine and the ranks on it.
    fn whole(&self, root: &TopologyObject) -> Value {
        let mut json = self.as_json(root);
        json["unbound_ranks"] = json!(self.unbound());
        let ranks = self.ranks.iter().map(|rank| {
            json!({ "rank": rank.rank, "pid": rank.pid, "cpu": rank.cpu, "sent_messages": rank.sent_messages, "sent_bytes": rank.sent_bytes })
        });
        json["ranks_here"] = ranks.collect();
        json
    }

    fn as_json(&self, object: &TopologyObject) -> serde_json::Value {
        let cpu = cpu_of(object);
        let children: Vec<_> = children(object).map(|child| self.as_json(child)).collect();
        json!({
            "type": object.object_type().to_string(), "label": label(object), "cpu": cpu, "usable": cpu.map(|cpu| !self.forbidden(cpu)),
            "ranks": cpu.map(|cpu| self.ranks_on(cpu)), "children": children,
        })
    }
}

/// A machine, as [`MapView::whole`] tells it, for a drawing; ranks that are bound nowhere stand
/// with the machine itself.
fn drawn(machine: &Value) -> TopologyBox {
    let ranks = machine["ranks_here"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut area = area(machine, ranks);
    area.lines.extend(lines(ranks, &Value::Null));
    area
}

fn area(object: &Value, ranks: &[Value]) -> TopologyBox {
    let cpu = &object["cpu"];
    if !cpu.is_null() {
        let lines = lines(ranks, cpu);
        let look = match (object["usable"] == json!(false), lines.is_empty()) {
            (true, _) => BoxFill::Forbidden,
            (false, true) => BoxFill::Free,
            (false, false) => BoxFill::Busy,
        };
        return TopologyBox {
            label: format!("CPU {cpu}"),
            lines,
            fill: look,
            parts: Vec::new(),
        };
    }
    // What has nothing in it (memory, a device) is a line, not a box.
    let children = object["children"].as_array().map_or(&[][..], Vec::as_slice);
    let (boxes, lines): (Vec<_>, Vec<_>) = children
        .iter()
        .map(|child| area(child, ranks))
        .partition(|part| part.fill != BoxFill::Group || !part.parts.is_empty());
    TopologyBox {
        label: object["label"].as_str().unwrap_or_default().to_owned(),
        lines: lines.into_iter().map(|part| part.label).collect(),
        fill: BoxFill::Group,
        parts: boxes,
    }
}

/// The ranks that are bound to a CPU, or nowhere.
fn lines(ranks: &[Value], cpu: &Value) -> Vec<String> {
    let here = ranks.iter().filter(|rank| rank["cpu"] == *cpu);
    here.map(|rank| match rank["sent_messages"].as_u64().unwrap_or(0) {
        0 => format!("rank {}", rank["rank"]),
        count => {
            let sent = bytes(rank["sent_bytes"].as_u64().unwrap_or(0));
            format!("rank {}: sent {count} messages, {sent}", rank["rank"])
        }
    })
    .collect()
}

/// "rank 3", "ranks 0-2, 5": of ascending numbers.
fn ranges(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let shown = parts.iter().map(|&(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", shown.collect::<Vec<_>>().join(", "))
}

/// Memory first, then what computes, then devices.
fn children(object: &TopologyObject) -> impl Iterator<Item = &TopologyObject> {
    object
        .memory_children()
        .chain(object.normal_children())
        .chain(object.io_children())
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn neighbouring_ranks_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3]), "ranks 0-3");
        assert_eq!(ranges(&[2]), "rank 2");
        assert_eq!(ranges(&[0, 2, 3, 7]), "ranks 0, 2-3, 7");
    }
}
