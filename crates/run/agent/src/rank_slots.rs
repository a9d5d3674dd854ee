//! Places of ranks that a rank file names, as Open MPI writes them: `0`, `0-2,5` are cores of the
//! host, `1:0-2` cores 0 to 2 of its socket 1, `1:*` all of them.
//!
//! Cores and sockets are numbered through what the job may use of the host, in the order of their
//! first CPUs. The agent of each host finds the places of its ranks in a variable of the job's
//! programs, which ranks do not get.

use std::ffi::OsStr;

use garonne_topology::{CpuSet, Machine};

use crate::cpu_claims::{self, PlacementClaim};
use crate::needs;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::Job;

/// The places of all ranks, one after the other.
pub(crate) const ENV_SLOTS: &str = "GARONNE_SLOTS";

/// Between the places of two ranks.
const BETWEEN: char = ';';

/// Way in which the words of a need begin, which stand there instead of places.
const NEED: &str = "need ";

/// Puts the places of all ranks into a job.
pub fn give(job: &mut Job, places: &[String]) {
    give_text(job, &places.join(&BETWEEN.to_string()));
}

/// Puts the words of a need into a job.
pub(crate) fn give_need(job: &mut Job, text: &str) {
    give_text(job, &format!("{NEED}{text}"));
}

fn give_text(job: &mut Job, text: &str) {
    for program in &mut job.programs {
        program.env.push((ENV_SLOTS.into(), Some(text.into())));
    }
}

/// Binds the ranks of this host to the places that a rank file gave them, or to what they need;
/// `None` if there is neither.
///
/// # Errors
/// The host does not have such a place; which rank, and what there is.
pub fn place(job: &Job, here: &[u32]) -> Option<Result<PlacementClaim>> {
    let env = &job.programs.first()?.env;
    let (_, said) = env
        .iter()
        .rev()
        .find(|(name, _)| name == OsStr::new(ENV_SLOTS))?;
    let said = said.as_ref()?.to_string_lossy();
    if let Some(text) = said.strip_prefix(NEED) {
        return Some(needs::place(text, job, here));
    }
    let places: Vec<&str> = said.split(BETWEEN).collect();
    let machine = Machine::discover();
    let sets = here.iter().map(|rank| {
        let place = places.get(*rank as usize).copied().unwrap_or("");
        cpus(place, &machine).map_err(|why| {
            Error::misuse(codes::G0211, format!("rank {rank} of the rank file: {why}"))
        })
    });
    let placed = sets.collect::<Result<Vec<_>>>();
    Some(placed.map(|sets| cpu_claims::pin_ranks(sets, "the rank file says so")))
}

/// The CPUs of a place; all for an empty one.
///
/// # Errors
/// There is no such place; why.
fn cpus(place: &str, machine: &Machine) -> std::result::Result<CpuSet, String> {
    if place.is_empty() {
        return Ok(machine.cpus());
    }
    let mut all = CpuSet::new();
    let (socket, list) = match place.split_once(':') {
        Some((socket, list)) => (Some(socket), list),
        None => (None, place),
    };
    let cores = match socket {
        None => machine.cores(),
        Some(socket) => cores_of(socket, machine)?,
    };
    let wanted = match list {
        "*" => (0..cores.len() as u32).collect(),
        list => CpuSet::parse(list)
            .ok_or_else(|| format!("'{list}' is no list of cores such as 0-2,5"))?,
    };
    for number in wanted.iter() {
        let core = cores.get(number as usize).ok_or_else(|| {
            let place = socket.map_or("this host".into(), |socket| format!("socket {socket}"));
            format!(
                "slot={place_said}: {place} has {} cores that the job may use, numbered from 0",
                cores.len(),
                place_said = place_text(socket, list)
            )
        })?;
        all = all.union(core);
    }
    Ok(all)
}

fn place_text(socket: Option<&str>, list: &str) -> String {
    socket.map_or_else(|| list.to_owned(), |socket| format!("{socket}:{list}"))
}

fn cores_of(socket: &str, machine: &Machine) -> std::result::Result<Vec<CpuSet>, String> {
    let sockets = machine.grouped(|pu| pu.package);
    let number: Option<usize> = socket.parse().ok();
    let cpus = number
        .and_then(|number| sockets.get(number))
        .ok_or_else(|| {
            format!(
                "there is no socket {socket}: this host has {}, numbered from 0",
                sockets.len()
            )
        })?;
    Ok(machine
        .cores()
        .into_iter()
        .filter(|core| core.meets(cpus))
        .collect())
}

/// Whether a place is written as one.
pub fn is_place(place: &str) -> bool {
    let (socket, list) = place.split_once(':').unwrap_or(("0", place));
    socket.parse::<u32>().is_ok()
        && (list == "*" || CpuSet::parse(list).is_some_and(|list| !list.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_topology::machine::Pu;

    /// Two sockets of two cores with two threads each, numbered as most systems do.
    fn machine() -> Machine {
        let pu = |cpu: u32| Pu {
            cpu,
            core: cpu % 4,
            cache: cpu % 4 / 2,
            package: cpu % 4 / 2,
            numa: cpu % 4 / 2,
        };
        Machine {
            pus: (0..8).map(pu).collect(),
        }
    }

    #[test]
    fn places_are_cores_of_the_host_or_of_a_socket() {
        let cpus = |place: &str| cpus(place, &machine()).unwrap().to_string();
        assert_eq!(cpus("0"), "0,4");
        assert_eq!(cpus("1-2"), "1-2,5-6");
        assert_eq!(cpus("1:0"), "2,6");
        assert_eq!(cpus("1:*"), "2-3,6-7");
        assert_eq!(cpus("0:0,1"), "0-1,4-5");
        assert_eq!(cpus(""), "0-7");
    }

    #[test]
    fn places_that_are_not_there_are_told_with_what_there_is() {
        let fault = |place: &str| cpus(place, &machine()).unwrap_err();
        assert!(
            fault("4").contains("this host has 4 cores"),
            "{}",
            fault("4")
        );
        assert!(
            fault("1:2").contains("socket 1 has 2 cores"),
            "{}",
            fault("1:2")
        );
        assert!(
            fault("2:0").contains("no socket 2: this host has 2"),
            "{}",
            fault("2:0")
        );
        for place in ["0", "1:0-2", "0:*", "3,5-7"] {
            assert!(is_place(place), "{place}");
        }
        for place in ["", "x", "0:", "a:1", "0:1:2", "3-1"] {
            assert!(!is_place(place), "{place}");
        }
    }
}
