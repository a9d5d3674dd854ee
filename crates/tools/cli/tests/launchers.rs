//! Other launchers than ours: what becomes of the ranks that they start.

mod support;

use std::process::{Command, Output};

use support::{command, fake_rank, said};

#[test]
fn a_rank_of_a_launcher_that_is_not_understood_is_refused_and_told_why() {
    let output = std::process::Command::new(fake_rank())
        .env_remove("GARONNE_AGENT")
        .envs([
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
        ])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("G0215")
            && words.contains("rank 1 of 4")
            && words.contains("srun --mpi=pmi2"),
        "{words}"
    );
    // The same within a job of ours is one of its ranks.
    let mut job = command("run -n 2 env SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4");
    let ended = said(job.args([&fake_rank(), "ring", "fence", "finalize"]));
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}

/// A process with these variables and none of a job's.
fn with(vars: &[(&str, &str)]) -> Output {
    let mut command = Command::new(fake_rank());
    for name in ["GARONNE_AGENT", "GARONNE_SIZE"] {
        command.env_remove(name);
    }
    command.envs(vars.iter().copied()).output().unwrap()
}

#[test]
fn ranks_whose_way_to_the_launcher_was_closed_are_refused_instead_of_being_worlds_of_one() {
    // As left behind by a wrapper that closes descriptors.
    let closed = with(&[("PMI_FD", "999"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")]);
    let words = String::from_utf8_lossy(&closed.stderr);
    assert!(!closed.status.success());
    assert!(
        words.contains("G0215")
            && words.contains("rank 2 of 4")
            && words.contains("descriptor 999"),
        "{words}"
    );
    let bare = with(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")]);
    assert!(String::from_utf8_lossy(&bare.stderr).contains("OMPI_COMM_WORLD_SIZE is 4"));
    assert!(!bare.status.success());
}

#[test]
fn a_rank_of_ours_that_is_to_know_nothing_of_its_agent_is_a_world_of_one() {
    let mut job = command("run -n 2 env -u GARONNE_FD -u GARONNE_AGENT -u GARONNE_RANK");
    let ended = said(job.args([&fake_rank(), "finalize"]));
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert_eq!(ended.out, "a world of one\n".repeat(2));
}
