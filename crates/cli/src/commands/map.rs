//! `garonne map`: the machine as hwloc sees it, and where the ranks of a running job are on it.
//!
//! The only user of hwloc, so that starting a job does not wait for it. `HWLOC_SYNTHETIC` and `HWLOC_XMLFILE` show other
//! machines.

use std::path::PathBuf;

use clap::ValueHint;
use clap_complete::engine::ArgValueCandidates;
use garonne_topology::machine;
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use serde_json::json;

use super::jobs::{self, Rank};
use super::picture::{Area, Look, bytes, picture};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process id of a job's launcher: shows its ranks on the machine; not needed if one job runs
    #[arg(value_parser = jobs::number, add = ArgValueCandidates::new(jobs::candidates))]
    job: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw it into this file, with what each rank has sent
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    svg: Option<PathBuf>,
}

pub fn run(args: &Args) -> i32 {
    let topology = match Topology::new() {
        Ok(topology) => topology,
        Err(error) => {
            errln!("error: hwloc cannot tell the machine: {error}");
            return 1;
        }
    };
    let ranks = match args.job {
        // Jobs run on this machine, not on a described one.
        None if !topology.is_this_system() => Vec::new(),
        None => jobs::only().map_or(Vec::new(), |visit| jobs::ranks(&visit)),
        Some(job) => match jobs::named(job) {
            Ok(visit) => jobs::ranks(&visit),
            Err(text) => {
                errln!("error: {text}");
                return 1;
            }
        },
    };
    // A described machine is not the one that this process may use.
    let allowed = if topology.is_this_system() {
        Some(machine::allowed())
    } else {
        None
    };
    let view = View { ranks, allowed };
    if let Some(path) = &args.svg {
        return match svg::save(path, &picture(&view.drawn(topology.root_object()))) {
            Ok(()) => 0,
            Err(error) => {
                errln!("error: cannot write {}: {error}", path.display());
                1
            }
        };
    }
    match args.json {
        true => {
            let mut json = view.as_json(topology.root_object());
            json["unbound_ranks"] = json!(view.unbound());
            super::print_json(&json)
        }
        false => {
            view.print(topology.root_object(), 0);
            0
        }
    }
}

struct View {
    ranks: Vec<Rank>,
    allowed: Option<garonne_topology::CpuSet>,
}

fn cpu_of(object: &TopologyObject) -> Option<u32> {
    let is_pu = object.object_type() == hwlocality::object::types::ObjectType::PU;
    is_pu
        .then(|| object.os_index())
        .flatten()
        .and_then(|index| u32::try_from(index).ok())
}

/// What an object is, without the list of its processors, which the drawing shows.
fn label(object: &TopologyObject) -> String {
    let text = object.to_string();
    match text.split_once(" with CpuSet(") {
        Some((kind, rest)) => format!("{kind}{}", rest.split_once(')').map_or("", |(_, rest)| rest)),
        None => text,
    }
}

impl View {
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
        if depth == 0 && !self.unbound().is_empty() {
            outln!("  {}: not bound", ranges(&self.unbound()));
        }
        children(object).for_each(|child| self.print(child, depth + 1));
    }

    /// The machine for a drawing; ranks that are bound nowhere stand with the machine itself.
    fn drawn(&self, root: &TopologyObject) -> Area {
        let mut machine = self.area(root);
        machine.lines.extend(self.lines(|rank| rank.cpu.is_none()));
        machine
    }

    fn area(&self, object: &TopologyObject) -> Area {
        if let Some(cpu) = cpu_of(object) {
            let lines = self.lines(|rank| rank.cpu == Some(cpu));
            let look = match (self.forbidden(cpu), lines.is_empty()) {
                (true, _) => Look::Forbidden,
                (false, true) => Look::Free,
                (false, false) => Look::Busy,
            };
            return Area {
                label: format!("CPU {cpu}"),
                lines,
                look,
                parts: Vec::new(),
            };
        }
        // What has nothing in it (memory, a device) is a line, not a box.
        let (boxes, lines): (Vec<_>, Vec<_>) = children(object)
            .map(|child| self.area(child))
            .partition(|part| part.look != Look::Group || !part.parts.is_empty());
        Area {
            label: label(object),
            lines: lines.into_iter().map(|part| part.label).collect(),
            look: Look::Group,
            parts: boxes,
        }
    }

    fn lines(&self, here: impl Fn(&Rank) -> bool) -> Vec<String> {
        let ranks = self.ranks.iter().filter(|rank| here(rank));
        ranks
            .map(|rank| match rank.sent_messages {
                0 => format!("rank {}", rank.rank),
                count => format!(
                    "rank {}: sent {count} messages, {}",
                    rank.rank,
                    bytes(rank.sent_bytes)
                ),
            })
            .collect()
    }

    fn as_json(&self, object: &TopologyObject) -> serde_json::Value {
        let cpu = cpu_of(object);
        let children: Vec<_> = children(object).map(|child| self.as_json(child)).collect();
        json!({
            "type": object.object_type().to_string(), "cpu": cpu, "usable": cpu.map(|cpu| !self.forbidden(cpu)),
            "ranks": cpu.map(|cpu| self.ranks_on(cpu)), "children": children,
        })
    }
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
