//! `garonne map`: the machine as hwloc sees it, and where the ranks of a running job are on it.
//!
//! The only user of hwloc, so that starting a job does not wait for it. `HWLOC_SYNTHETIC` and `HWLOC_XMLFILE` show other
//! machines.

use garonne_topology::machine;
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use serde_json::json;

use super::jobs::{self, Rank};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Process id of a job's launcher: shows its ranks on the machine
    job: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> i32 {
    let ranks = match args.job.map(|job| jobs::choose(Some(job))) {
        None => Vec::new(),
        Some(Ok(visit)) => jobs::ranks(&visit),
        Some(Err(text)) => {
            eprintln!("error: {text}");
            return 1;
        }
    };
    let topology = match Topology::new() {
        Ok(topology) => topology,
        Err(error) => {
            eprintln!("error: hwloc cannot tell the machine: {error}");
            return 1;
        }
    };
    // A described machine is not the one that this process may use.
    let allowed = if topology.is_this_system() {
        Some(machine::allowed())
    } else {
        None
    };
    let view = View { ranks, allowed };
    match args.json {
        true => super::print_json(&view.as_json(topology.root_object())),
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

impl View {
    fn ranks_on(&self, cpu: u32) -> Vec<u32> {
        self.ranks
            .iter()
            .filter(|rank| rank.cpu == Some(cpu))
            .map(|rank| rank.rank)
            .collect()
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
        println!("{line}");
        children(object).for_each(|child| self.print(child, depth + 1));
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

/// Memory first, then what computes, then devices.
fn children(object: &TopologyObject) -> impl Iterator<Item = &TopologyObject> {
    object
        .memory_children()
        .chain(object.normal_children())
        .chain(object.io_children())
}
