//! Whether cores of this machine are idle while the job's ranks compute, so that progress threads
//! may stay awake on them.
//!
//! Whole cores count, not hardware threads: what runs on the second thread of a core slows down who
//! computes on the first. Decided once, by the progress thread when it first has something to do,
//! since reading what the machine is like takes a tenth of a millisecond for each CPU.

use garonne_job::limits;
use garonne_topology::CpuSet;
use garonne_topology::machine::Machine;
use std::path::Path;
use std::time::Duration;

/// Cores on which progress threads of a node's ranks may run, and how many whole cores each needs
/// to have one.
#[derive(Clone, Debug)]
pub(crate) struct IdleCores {
    cpus: CpuSet,
    wanted: u64,
}

impl IdleCores {
    /// Returns the cores of a node on which so many threads of so many ranks compute, with this
    /// much processor time. `helpers`: CPUs for the progress threads, if ranks are bound; else
    /// these run where the ranks do, on `allowed`. `None`: there are none whatever the machine is
    /// like.
    pub(crate) fn of(
        (ranks, threads): (u32, u32),
        cpus_milli: u32,
        helpers: Option<&CpuSet>,
        allowed: &CpuSet,
    ) -> Option<Self> {
        let computing = u64::from(ranks) * u64::from(threads);
        let all = computing + u64::from(ranks);
        let apart = helpers.is_some_and(|cpus| !cpus.meets(allowed));
        let wanted = if apart { u64::from(ranks) } else { all };
        (u64::from(cpus_milli) >= 1000 * all).then(|| Self {
            cpus: helpers.unwrap_or(allowed).clone(),
            wanted,
        })
    }

    /// See `Environment::vigil`.
    pub(crate) fn progress_spin(&self) -> Duration {
        self.vigil_on(&Machine::read(Path::new("/sys/devices/system"), &self.cpus))
    }

    fn vigil_on(&self, machine: &Machine) -> Duration {
        match machine.cores().len() as u64 >= self.wanted {
            true => limits::PROGRESS_SPIN_TIME,
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_topology::machine::Pu;

    /// Makes a machine with so many cores of two hardware threads each.
    fn machine(cores: u32) -> Machine {
        let pu = |cpu| Pu {
            cpu,
            core: cpu % cores,
            cache: 0,
            package: 0,
            numa: 0,
        };
        Machine {
            pus: (0..2 * cores).map(pu).collect(),
        }
    }

    fn set(cpus: std::ops::Range<u32>) -> CpuSet {
        cpus.collect()
    }

    #[test]
    fn helpers_stay_awake_only_where_each_has_a_whole_core_beside_those_that_compute() {
        let of =
            |ranks, threads| IdleCores::of((ranks, threads), 16_000, None, &set(0..16)).unwrap();
        assert_eq!(of(4, 1).vigil_on(&machine(8)), limits::PROGRESS_SPIN_TIME);
        assert_eq!(of(5, 1).vigil_on(&machine(8)), Duration::ZERO);
        assert_eq!(of(2, 3).vigil_on(&machine(8)), limits::PROGRESS_SPIN_TIME);
        assert_eq!(of(2, 4).vigil_on(&machine(8)), Duration::ZERO);
    }

    #[test]
    fn helpers_with_cores_of_their_own_need_one_each() {
        let idle = IdleCores::of((4, 1), 16_000, Some(&set(8..16)), &set(0..1)).unwrap();
        assert_eq!(idle.vigil_on(&machine(4)), limits::PROGRESS_SPIN_TIME);
        assert_eq!(idle.vigil_on(&machine(3)), Duration::ZERO);
    }

    #[test]
    fn a_quota_counts_as_cores_that_are_not_there() {
        assert!(IdleCores::of((2, 1), 3999, None, &set(0..16)).is_none());
        assert!(IdleCores::of((2, 1), 4000, None, &set(0..16)).is_some());
    }
}
