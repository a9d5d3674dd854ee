//! Ranks of launchers that this library does not speak to: they are refused, instead of becoming N worlds of one.
//!
//! A pure function of the environment, asked when it names no job of ours.

use crate::codes;
use crate::error::{Error, Result};

/// What another launcher says of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    launcher: &'static str,
    rank: u32,
    size: u32,
    /// The variable without which the process is not taken for a rank.
    key: &'static str,
}

/// An error if another launcher started this process as one of several ranks.
pub(crate) fn refuse_rank() -> Result<()> {
    let is_socket = |number: &str| {
        number.parse::<u32>().is_ok()
            && std::fs::read_link(format!("/proc/self/fd/{number}"))
                .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    };
    match told(|name| std::env::var(name).ok(), is_socket) {
        None => Ok(()),
        Some(Told {
            launcher,
            rank,
            size,
            key,
        }) => Err(Error::misuse(
            codes::G0215,
            format!(
                "{launcher} started this process as rank {rank} of {size}, which this version of Garonne cannot join: each would be rank 0 of 1\n  \
                 help: start the program with `garonne run -n {size}`; to run {size} separate worlds of one, unset {key} first"
            ),
        )),
    }
}

/// What the environment says. `is_socket`: whether a descriptor, by its number, is one.
fn told(var: impl Fn(&str) -> Option<String>, is_socket: impl Fn(&str) -> bool) -> Option<Told> {
    let number = |name: &str| var(name)?.trim().parse::<u32>().ok();
    let of = |launcher, key, rank: &str, size: &str| {
        let told = Told {
            launcher,
            rank: number(rank)?,
            size: number(size)?,
            key,
        };
        (told.size > 1).then_some(told)
    };
    // The wire of PMI is a socket that ranks inherit: what a rank starts in turn, which most often does not, is no rank.
    let wired = var("PMI_FD").is_some_and(|number| is_socket(&number));
    let slurm = || {
        var("SLURM_STEP_ID")?;
        of("Slurm", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    };
    let hydra = || {
        wired.then(|| {
            of(
                "a launcher that speaks PMI (MPICH's or Intel's mpiexec, Flux)",
                "PMI_FD",
                "PMI_RANK",
                "PMI_SIZE",
            )
        })?
    };
    let open_mpi = || {
        var("PMIX_NAMESPACE")?;
        of(
            "Open MPI's mpirun",
            "PMIX_NAMESPACE",
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
        )
    };
    slurm().or_else(hydra).or_else(open_mpi)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)], sockets: &[&str]) -> Option<(&'static str, u32, u32)> {
        let var = |name: &str| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_string())
        };
        told(var, |number| sockets.contains(&number)).map(|told| (told.key, told.rank, told.size))
    }

    #[test]
    fn ranks_of_other_launchers_are_known_by_what_they_set() {
        let hydra = [("PMI_FD", "11"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
        assert_eq!(of(&hydra, &["11"]), Some(("PMI_FD", 1, 4)));
        let slurm = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_NTASKS", "8"),
        ];
        assert_eq!(of(&slurm, &[]), Some(("SLURM_STEP_ID", 3, 8)));
        let open_mpi = [
            ("PMIX_NAMESPACE", "prterun-vm-1@1"),
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
        ];
        assert_eq!(of(&open_mpi, &[]), Some(("PMIX_NAMESPACE", 0, 2)));
    }

    #[test]
    fn what_only_looks_like_a_rank_is_a_world_of_one() {
        assert_eq!(of(&[], &[]), None);
        // A job's script before any step of it, and a step of one task.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")], &[]), None);
        assert_eq!(
            of(
                &[
                    ("SLURM_STEP_ID", "0"),
                    ("SLURM_PROCID", "0"),
                    ("SLURM_STEP_NUM_TASKS", "1")
                ],
                &[]
            ),
            None
        );
        // What a rank started without its sockets.
        assert_eq!(
            of(&[("PMI_FD", "11"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")], &[]),
            None
        );
        // Numbers that other tools set, too, and nonsense.
        assert_eq!(
            of(
                &[
                    ("RANK", "1"),
                    ("WORLD_SIZE", "4"),
                    ("PMI_RANK", "1"),
                    ("PMI_SIZE", "4")
                ],
                &[]
            ),
            None
        );
        assert_eq!(
            of(
                &[("PMI_FD", "11"), ("PMI_RANK", "x"), ("PMI_SIZE", "-4")],
                &["11"]
            ),
            None
        );
    }
}
