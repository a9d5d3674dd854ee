//! Where the ranks of a job run, decided against the machine, its quotas and the other jobs on it.
//!
//! A job that binds its ranks claims their CPUs by binding an abstract socket whose name lists
//! them: no file, and gone with the launcher. Whoever finds its claim crossing another's, made at
//! the same moment, lets go and looks again; if that does not help, the ranks are not bound, which
//! is always correct.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use garonne_topology::binding::{BindTo, BindingInput, BindingPlan, Policy, plan};
use garonne_topology::{CpuSet, Machine, quota};

use garonne_job::job::PlacementOptions;
use garonne_links::agent_discovery::abstract_names;

const PREFIX: &str = "garonne/cpus/";
/// Number of times that a job looks again when another one claimed the same CPUs at the same
/// moment.
const ATTEMPTS: u32 = 3;

/// The decision, and the claim that others see while it is kept.
#[derive(Debug)]
pub struct PlacementClaim {
    /// Placement that the agent carries out.
    pub placement: PlacementOptions,
    /// Why, in a few words.
    pub reason: String,
    /// CPU sets per rank; empty if nobody is bound.
    pub sets: Vec<CpuSet>,
    _claim: Option<OwnedFd>,
}

impl PlacementClaim {
    /// Returns what ranks lack of the requested binding, in words that follow their numbers.
    pub fn shortfall(&self, policy: &Policy) -> Option<String> {
        if !policy.asks_for_binding() {
            return None;
        }
        if self.sets.is_empty() {
            return Some(format!("are not bound as asked for: {}", self.reason));
        }
        let all = self
            .sets
            .iter()
            .fold(CpuSet::new(), |sum, set| sum.union(set));
        let each: usize = self.sets.iter().map(CpuSet::len).sum();
        let is_of_own = matches!(policy.bind, BindTo::Auto | BindTo::Core | BindTo::Thread);
        (is_of_own && each > all.len())
            .then(|| format!("share CPUs {all}: there are too few for each to have its own"))
    }
}

/// Lets this process, and so the job, use these CPUs only.
pub fn confine(cpus: &CpuSet) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter()
        .filter(|cpu| (*cpu as usize) < rustix::thread::CpuSet::MAX_CPU)
        .for_each(|cpu| set.set(cpu as usize));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Lets this process use all CPUs that the system leaves it, whatever the one that started it was
/// bound to.
pub(crate) fn use_all_cpus() {
    let mut all = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // Those that are not there, or not for this control group, the kernel leaves out.
    let _ = rustix::thread::sched_setaffinity(None, &all);
}

/// Decides for a job of `ranks` ranks.
pub fn place_ranks(ranks: u32, policy: &Policy) -> PlacementClaim {
    let machine = Machine::discover();
    let threads = machine.pus.len() as u32 * 1000;
    let cpus_milli = quota::cpu_milli().map_or(threads, |quota| quota.min(threads));
    for _ in 0..ATTEMPTS {
        let taken = claimed(None);
        let BindingPlan {
            sets,
            spare,
            reason,
        } = plan(
            &BindingInput {
                machine: &machine,
                taken: &taken,
                cpus_milli,
            },
            ranks,
            policy,
        );
        let wanted = sets.iter().fold(CpuSet::new(), |sum, set| sum.union(set));
        if sets.is_empty() {
            return placement_claim(sets, cpus_milli, reason, None);
        }
        // A core to spare near it serves a rank that computes best; then an idle core of another
        // rank, or a spare one far away.
        let usable = machine.cpus();
        let free = usable.iter().filter(|cpu| !taken.contains(*cpu));
        let anywhere = free.collect::<CpuSet>().union(&wanted);
        let helpers = spare.iter().map(|near| match near.is_empty() {
            true => anywhere.to_string(),
            false => near.to_string(),
        });
        let helpers: Vec<String> = helpers.collect();
        let bound = |claim| {
            let mut placed = placement_claim(sets, cpus_milli, reason, claim);
            placed.placement.helpers = helpers;
            placed
        };
        match claim(&wanted) {
            // Without a claim others cannot see us, which costs speed, not correctness.
            None => return bound(None),
            Some((socket, name)) if !self::claimed(Some(&name)).meets(&wanted) => {
                return bound(Some(socket));
            }
            Some(_) => {}
        }
    }
    placement_claim(
        Vec::new(),
        cpus_milli,
        "other jobs start at the same moment".into(),
        None,
    )
}

/// Ranks that somebody has placed, each on these CPUs; their progress threads run where nobody was
/// placed, or anywhere.
pub(crate) fn pin_ranks(sets: Vec<CpuSet>, reason: &str) -> PlacementClaim {
    let machine = Machine::discover();
    let threads = machine.pus.len() as u32 * 1000;
    let cpus_milli = quota::cpu_milli().map_or(threads, |quota| quota.min(threads));
    let wanted = sets.iter().fold(CpuSet::new(), |sum, set| sum.union(set));
    let usable = machine.cpus();
    let free: CpuSet = usable.iter().filter(|cpu| !wanted.contains(*cpu)).collect();
    let helpers = if free.is_empty() { usable } else { free }.to_string();
    let claim = claim(&wanted).map(|(socket, _)| socket);
    let count = sets.len();
    let mut placed = placement_claim(sets, cpus_milli, reason.into(), claim);
    placed.placement.helpers = vec![helpers; count];
    placed
}

fn placement_claim(
    sets: Vec<CpuSet>,
    cpus_milli: u32,
    reason: String,
    claim: Option<OwnedFd>,
) -> PlacementClaim {
    let masks = sets.iter().map(|set| set.words().to_vec()).collect();
    PlacementClaim {
        placement: PlacementOptions {
            masks,
            cpus_milli,
            helpers: Vec::new(),
        },
        reason,
        sets,
        _claim: claim,
    }
}

/// CPUs that jobs on this machine (this network namespace) claim, but for the claim named.
pub fn claimed(but: Option<&str>) -> CpuSet {
    let names = abstract_names();
    let claims = names
        .iter()
        .filter(|name| Some(name.as_str()) != but)
        .filter_map(|name| name.strip_prefix(PREFIX));
    let sets = claims.filter_map(|claim| CpuSet::parse(claim.split_once('/')?.1));
    sets.fold(CpuSet::new(), |sum, set| sum.union(&set))
}

fn claim(cpus: &CpuSet) -> Option<(OwnedFd, String)> {
    let name = format!("{PREFIX}{}/{cpus}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).ok()?).ok()?;
    Some((socket.into(), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_seen_by_others_and_ends_with_its_owner() {
        let far: CpuSet = [7001, 7002].into_iter().collect();
        let (socket, name) = claim(&far).unwrap();
        assert!(claimed(None).meets(&far));
        assert!(!claimed(Some(&name)).meets(&far));
        drop(socket);
        assert!(!claimed(None).meets(&far));
    }
}
