//! The hosts that a cluster has given to this command: from what its batch system left in the
//! environment. Pure.

use garonne_job::node_map::HostSpec;

use super::host_list;
use super::launch_request::SystemFacts;
use garonne_network_graph::slurm_hostlist::expanded;

/// Command that starts a process on a host of Slurm's: called with the host's name and the command
/// behind it.
const SRUN: [&str; 8] = [
    "srun",
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--mpi=none",
    "--cpu-bind=none",
    "--mem=0",
    "--nodelist",
];

/// Command that starts a process through PRRTE. PRRTE reaches hosts as it was built to: by ssh, or
/// by the batch system's own means (PBS, LSF).
const PRTERUN: [&str; 4] = ["prterun", "-n", "1", "--host"];

/// Hosts and cores that a batch system has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchAllocation {
    /// The hosts, with as many slots as it says.
    pub hosts: Vec<HostSpec>,
    /// Command that starts agents there; empty: ssh.
    pub starter: Vec<String>,
}

/// Returns the command that starts agents by Slurm.
pub fn by_slurm() -> Vec<String> {
    SRUN.map(str::to_owned).to_vec()
}

/// Returns whether this program has a batch system start agents, not this host.
pub fn is_a_batch_systems(program: &str) -> bool {
    [SRUN[0], PRTERUN[0]].contains(&program)
}

/// Returns the command that starts agents by PRRTE.
pub fn by_prrte() -> Vec<String> {
    PRTERUN.map(str::to_owned).to_vec()
}

/// The allocation that this command runs in. `None`: in none.
///
/// # Errors
/// What the batch system left cannot be understood; the text names the variable.
pub fn of(facts: &SystemFacts) -> Result<Option<BatchAllocation>, String> {
    let var = |name: &str| {
        let found = facts.env.iter().find(|(known, _)| known == name);
        found
            .and_then(|(_, value)| value.to_str())
            .map(str::to_owned)
    };
    if let Some(list) = var("SLURM_JOB_ID").and_then(|_| var("SLURM_JOB_NODELIST")) {
        // One of several tasks of a step: each would start all. A job that ranks start is started
        // once.
        let is_one_of_several = var("SLURM_STEP_NUM_TASKS").is_some_and(|tasks| tasks != "1");
        if is_one_of_several && var(garonne_job::settings::ENV_SPAWN).is_none() {
            return Ok(None);
        }
        let names = expanded(&list).ok_or_else(|| damaged("SLURM_JOB_NODELIST", &list))?;
        let tasks = var("SLURM_TASKS_PER_NODE").unwrap_or_else(|| format!("1(x{})", names.len()));
        let slots =
            repeated(&tasks, names.len()).ok_or_else(|| damaged("SLURM_TASKS_PER_NODE", &tasks))?;
        let own = var("SLURMD_NODENAME");
        let is_own = |name: &String| {
            Some(name) == own.as_ref()
                || facts
                    .host_names
                    .iter()
                    .any(|known| known.eq_ignore_ascii_case(name))
        };
        let hosts = names.into_iter().zip(slots).map(|(name, slots)| HostSpec {
            own: is_own(&name),
            name,
            slots,
        });
        return Ok(Some(BatchAllocation {
            hosts: hosts.collect(),
            starter: by_slurm(),
        }));
    }
    // PBS and its kin, LSF, and the operator of Kubernetes, which sets one for each MPI that it
    // knows: a file with a host for each slot, or with slots behind it.
    for name in [
        "PBS_NODEFILE",
        "LSB_DJOB_HOSTFILE",
        "HYDRA_HOST_FILE",
        "I_MPI_HYDRA_HOST_FILE",
        "OMPI_MCA_orte_default_hostfile",
    ] {
        if let Some(path) = var(name).filter(|path| !path.is_empty()) {
            let hosts = host_list::of_file(path.as_ref(), facts)
                .map_err(|error| format!("{name}: {error}"))?;
            let starter = Vec::new();
            return Ok(Some(BatchAllocation { hosts, starter }));
        }
    }
    Ok(None)
}

fn damaged(name: &str, value: &str) -> String {
    let shown: String = value.chars().take(80).collect();
    format!("{name} is '{shown}', which is no list of Slurm's; name hosts with --host")
}

/// Numbers as Slurm writes them, `2(x3),1`, of which there must be `count`.
fn repeated(text: &str, count: usize) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for word in text.split(',') {
        let (number, times) = match word.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (word, 1),
        };
        let times: usize = times;
        if times > count - numbers.len() {
            return None;
        }
        numbers.extend(std::iter::repeat_n(number.parse::<u32>().ok()?, times));
    }
    (numbers.len() == count).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(env: &[(&str, &str)]) -> SystemFacts {
        SystemFacts {
            cores: 4,
            host_names: vec!["here".into()],
            env: env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            read: |path| match path.to_str() {
                Some("/nodes") => Ok("a\na\nhere\n".into()),
                Some("/empty") => Ok("# nobody yet\n".into()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            },
            are_own: |names, _| vec![false; names.len()],
        }
    }

    #[test]
    fn numbers_of_slurm_are_repeated() {
        assert_eq!(repeated("2(x2),1", 3).unwrap(), [2, 2, 1]);
        for text in ["2(x2)", "2(x4)", "x", "2(x2", "2(x99999999999999999999),1"] {
            assert_eq!(repeated(text, 3), None, "{text}");
        }
    }

    #[test]
    fn an_allocation_of_slurm_gives_hosts_slots_and_srun() {
        let given = of(&facts(&[
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_TASKS_PER_NODE", "3,1"),
            ("SLURMD_NODENAME", "n1"),
        ]));
        let given = given.unwrap().unwrap();
        let shown: Vec<_> = given
            .hosts
            .iter()
            .map(|host| (host.name.as_str(), host.slots, host.own))
            .collect();
        assert_eq!(shown, [("n1", 3, true), ("n2", 1, false)]);
        assert_eq!(given.starter[0], "srun");
        let of_a_step = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "n1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
        ];
        assert_eq!(of(&facts(&of_a_step)).unwrap(), None);
        let of_a_rank = [&of_a_step[..], &[("GARONNE_SPAWN", "a port")]].concat();
        assert!(of(&facts(&of_a_rank)).unwrap().is_some());
        let damaged = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[")];
        assert!(
            of(&facts(&damaged))
                .unwrap_err()
                .contains("SLURM_JOB_NODELIST")
        );
    }

    #[test]
    fn files_of_other_batch_systems_are_read() {
        for name in [
            "PBS_NODEFILE",
            "LSB_DJOB_HOSTFILE",
            "HYDRA_HOST_FILE",
            "I_MPI_HYDRA_HOST_FILE",
            "OMPI_MCA_orte_default_hostfile",
        ] {
            let given = of(&facts(&[(name, "/nodes")])).unwrap().unwrap();
            assert_eq!(
                (given.hosts.len(), given.hosts[2].own, given.starter.len()),
                (3, true, 0),
                "{name}"
            );
        }
        assert_eq!(
            of(&facts(&[("OMPI_MCA_orte_default_hostfile", "")])).unwrap(),
            None
        );
        let error = of(&facts(&[("PBS_NODEFILE", "/nowhere")])).unwrap_err();
        assert!(
            error.contains("PBS_NODEFILE") && error.contains("/nowhere"),
            "{error}"
        );
        let error = of(&facts(&[("OMPI_MCA_orte_default_hostfile", "/empty")])).unwrap_err();
        assert!(
            error.contains("OMPI_MCA_orte_default_hostfile")
                && error.contains("'/empty' names no host"),
            "{error}"
        );
        assert_eq!(of(&facts(&[])).unwrap(), None);
    }

    proptest! {
        #[test]
        fn no_numbers_do_harm(list in "[0-9,()x]{0,24}", count in 0usize..5) {
            let _ = repeated(&list, count);
        }
    }
}
