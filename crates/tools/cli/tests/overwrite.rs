//! Files that `garonne` is to write: what another program made is not overwritten.

mod support;

use std::path::Path;

use support::{Said, command, said};

/// Runs the words of `line` in a directory.
fn run_in(dir: &Path, line: &str) -> Said {
    said(command(line).current_dir(dir))
}

#[test]
fn intels_option_for_tracing_leaves_the_program_behind_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    std::fs::copy(support::fake_rank(), &victim).unwrap();
    let before = std::fs::read(&victim).unwrap();
    for line in [
        "run -trace ./victim -n 2 RANK",
        "run --trace ./victim -n 2 RANK",
        "run --report-pid ./victim -n 2 RANK",
        "trace -o ./victim",
    ] {
        let said = run_in(dir.path(), line);
        assert_ne!(said.code, 0, "{line}: {said:?}");
        assert_eq!(std::fs::read(&victim).unwrap(), before, "{line}");
    }
    let said = run_in(dir.path(), "run --trace victim -n 2 RANK");
    assert!(
        said.code == 2 && said.err.contains("G0211") && said.err.contains("name another file"),
        "{said:?}"
    );
}

#[test]
fn a_timeline_and_a_process_id_of_an_earlier_job_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("line");
    std::fs::write(
        &path,
        r#"{"displayTimeUnit":"ns","otherData":{},"traceEvents":[]}"#,
    )
    .unwrap();
    let said = run_in(
        dir.path(),
        "run --trace line --report-pid pid -n 2 RANK hello finalize",
    );
    assert_eq!(said.code, 0, "{said:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(r#""made_by":"garonne""#), "{text}");
    assert_eq!(
        run_in(dir.path(), "run --report-pid pid -n 1 RANK finalize").code,
        0
    );
}
