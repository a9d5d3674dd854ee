//! Tracebacks of failing jobs: equal ones once, what only follows in a line, the cause's last.

mod support;

use support::{Said, command, said};

/// Shells that all write to standard error what `words` (commands for a rank's number `$r`) say,
/// and then end as it says. They begin at one time, since little is held back for long, and none
/// ends before all have written.
fn tracebacks(ranks: u32, words: &str) -> Said {
    let met = tempfile::tempdir().unwrap();
    let script = format!(
        "r=$GARONNE_RANK
         here() {{ printf 'Traceback (most recent call last):\\n  File \"/tmp/x.py\", line %s, in f\\n' $1 >&2; }}
         meet() {{ : >$1.$r; n=0; while [ $n -lt {ranks} ]; do [ -e $1.$n ] && n=$((n + 1)); done; }}
         meet $1/first; {words}
         meet $1/second; eval $end"
    );
    let mut job = command(&format!("run -n {ranks} sh -c"));
    job.arg(script).arg("sh").arg(met.path());
    said(&mut job)
}

#[test]
fn equal_tracebacks_are_printed_once_and_the_cause_s_comes_last() {
    let words = "here 7; case $r in 1) echo ValueError: 1;; *) echo KeyError: 2;; esac >&2; end='sleep 5'; [ $r = 2 ] && end='exit 3'";
    let said = tracebacks(4, words);
    assert_eq!(said.code, 3);
    let lines: Vec<_> = said.err.lines().collect();
    let head = [
        "Traceback (most recent call last):",
        "  File \"/tmp/x.py\", line 7, in f",
    ];
    assert_eq!(
        lines[..3],
        [head[0], head[1], "ValueError: 1"],
        "{}",
        said.err
    );
    assert_eq!(
        lines[3..6],
        [head[0], head[1], "KeyError: 2"],
        "{}",
        said.err
    );
    assert_eq!(lines[6], "note[G0312]: ranks 0,3 wrote the same");
    assert!(
        lines[7].starts_with("error[G0207]: rank 2 "),
        "{}",
        said.err
    );
    assert_eq!(lines.len(), 8);
}

#[test]
fn tracebacks_that_follow_from_another_rank_s_end_are_a_line() {
    let words = "here $((1 + ($r == 1))); case $r in 1) echo KeyError: 2; end='exit 3';; *) printf 'mpi4py.MPI.Exception: MPI_ERR_PROC_ABORTED: it died\\n  rank %s MPI_Send\\n' $r; end='sleep 5';; esac >&2";
    let said = tracebacks(3, words);
    let lines: Vec<_> = said.err.lines().collect();
    let raised = "raised mpi4py.MPI.Exception: MPI_ERR_PROC_ABORTED: it died at x.py:1 in f";
    assert_eq!(
        lines[0],
        format!("note[G0312]: ranks 0,2 {raised}"),
        "{}",
        said.err
    );
    assert_eq!(lines[3], "KeyError: 2");
    assert!(
        lines[4].starts_with("error[G0207]: rank 1 "),
        "{}",
        said.err
    );
    assert_eq!(lines.len(), 5);
}

#[test]
fn tracebacks_of_a_job_that_ends_well_and_what_follows_them_stay_as_they_were_written() {
    let said = tracebacks(
        2,
        "echo before >&2; here 7; echo KeyError: 2 >&2; echo after >&2; end=true",
    );
    let one = "Traceback (most recent call last):\n  File \"/tmp/x.py\", line 7, in f\nKeyError: 2\nafter\n";
    assert_eq!(
        (said.code, said.err),
        (0, format!("before\nbefore\n{one}{one}"))
    );
}
