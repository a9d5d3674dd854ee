//! Other launchers than ours: what becomes of the ranks that they start.

mod support;

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
        words.contains("G0215") && words.contains("rank 1 of 4") && words.contains("srun --mpi=pmi2"),
        "{words}"
    );
    // The same within a job of ours is one of its ranks.
    let mut job = command("run -n 2 env SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4");
    let ended = said(job.args([&fake_rank(), "ring", "fence", "finalize"]));
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}
