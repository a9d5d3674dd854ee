//! Where the output of ranks goes and how its lines are marked: merged streams, times, one place
//! for both, files of programs.

mod support;

use std::process::Stdio;

use support::{command, finish, run};

#[test]
fn merged_streams_keep_the_order_in_which_a_rank_wrote_them() {
    let script = "for i in 1 2 3 4 5 6 7 8; do echo out $i; echo err $i >&2; done";
    let mut job = command("run -n 2 --merge-stderr-to-stdout -l sh -c");
    let said = finish(job.arg(script).spawn().unwrap());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    for rank in 0..2 {
        let mark = format!("[{rank}] ");
        let own: Vec<_> = said
            .out
            .lines()
            .filter_map(|line| line.strip_prefix(&mark))
            .collect();
        let expected: Vec<_> = (1..=8)
            .flat_map(|i| [format!("out {i}"), format!("err {i}")])
            .collect();
        assert_eq!(own, expected);
    }
}

#[test]
fn the_jobs_own_words_stay_on_standard_error_when_ranks_streams_are_merged() {
    let mut job = command("run -n 1 --output merge sh -c");
    let said = finish(job.arg("echo last words >&2; exit 3").spawn().unwrap());
    assert_eq!((said.code, said.out.as_str()), (3, "last words\n"));
    assert!(said.err.starts_with("error[G0207]"), "{}", said.err);
}

#[test]
fn both_streams_in_one_place_do_not_share_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = std::fs::File::create(&path).unwrap();
    // The prompt is shown after a while; only then the other stream speaks.
    let mut job = command("run -n 1 sh -c");
    job.arg("printf prompt; sleep 1; echo warning >&2; sleep 1; echo rest");
    let mut child = job
        .stdout(log.try_clone().unwrap())
        .stderr(Stdio::from(log))
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        "prompt\nwarning\nrest\n"
    );
}

#[test]
fn lines_are_stamped_with_the_time_on_request() {
    let said = run("run -n 1 --timestamp-output --tag-output echo hi");
    let (stamp, rest) = said.out.split_once(' ').unwrap();
    assert_eq!(rest, "[1,0]<stdout>: hi\n");
    let shape: String = stamp
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z");
}

#[test]
fn an_abort_is_no_success_whatever_its_code() {
    let said = run("run -n 2 RANK only 1 abort 0 x forever");
    assert_eq!(said.code, 1);
}

#[test]
fn programs_may_come_from_a_file_and_the_process_id_goes_where_it_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let (programs, pid) = (dir.path().join("programs"), dir.path().join("pid"));
    std::fs::write(
        &programs,
        "# a comment\n-n 1 echo 'one  word'\n-n 2 echo two\n",
    )
    .unwrap();
    let mut job = command("run --report-pid");
    job.arg(&pid).arg("--configfile").arg(&programs);
    let child = job.spawn().unwrap();
    let launcher = child.id();
    let said = finish(child);
    assert_eq!(said.sorted(), ["one  word", "two", "two"]);
    assert_eq!(
        std::fs::read_to_string(pid).unwrap(),
        format!("{launcher}\n")
    );
}

#[test]
fn a_job_is_confined_to_the_cpus_that_are_named() {
    let said = run("run -n 1 --bind-to none --cpu-set 0 sh -c nproc");
    assert_eq!((said.code, said.out.as_str()), (0, "1\n"), "{}", said.err);
    assert_eq!(run("run -n 1 --cpu-set 4095 true").code, 2);
}
