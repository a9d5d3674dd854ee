//! Jobs seen from outside: exit codes, output, signals, registration.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use support::{
    MARK, agent_of, children, command, fake_rank, finish, kill, marked, run, said, until,
};

#[test]
fn ranks_reach_each_other_through_their_inboxes() {
    let said = run("run -n 4 RANK ring fence finalize");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.sorted()[3], "rank 3 heard from rank 2");
}

#[test]
fn sixty_four_ranks_come_and_go() {
    let said = run("run -n 64 RANK ring fence finalize");
    assert_eq!(
        (said.code, said.err.as_str(), said.out.lines().count()),
        (0, "", 64)
    );
}

#[test]
fn a_process_alone_is_a_world_of_one() {
    let output = std::process::Command::new(fake_rank())
        .env_remove("GARONNE_AGENT")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a world of one\n");
}

#[test]
fn the_exit_code_is_that_of_the_first_rank_that_fails() {
    assert_eq!(run("run -n 3 true").code, 0);
    assert_eq!(run("run -n 3 RANK only 1 exit 7 forever").code, 7);
    assert_eq!(run("run -n 2 sh -c true : -n 1 false").code, 1);
}

#[test]
fn an_end_without_finalize_ends_the_job_with_the_ranks_words_first() {
    let said = run("run -n 3 RANK fence only 2 say why only 2 exit 0 forever");
    assert_eq!(said.code, 1);
    let lines: Vec<_> = said.err.lines().collect();
    assert_eq!(lines[0], "why");
    assert!(
        lines[1].starts_with("error[G0201]: rank 2 ")
            && lines[1].ends_with("status 0 before MPI_Finalize"),
        "{}",
        lines[1]
    );
    assert_eq!(lines.len(), 2);
}

/// A shell that is each rank: `$1` is the rank without MPI.
fn shells(ranks: u32, script: &str) -> std::process::Command {
    let mut job = command(&format!("run -n {ranks} sh -c"));
    job.arg(script).args(["sh", &fake_rank()]);
    job
}

#[test]
fn a_rank_that_never_comes_ends_the_job_when_all_others_wait() {
    let said = said(&mut shells(
        3,
        "test $GARONNE_RANK = 1 || exec $1 wait 1 forever",
    ));
    assert_eq!(said.code, 1);
    assert!(
        said.err.starts_with("error[G0214]: rank 1 (sh, process ")
            && said.err.ends_with("and so does another rank\n"),
        "{}",
        said.err
    );
}

#[test]
fn a_missing_rank_is_not_blamed_before_late_ranks_have_come() {
    let said = said(&mut shells(
        3,
        "case $GARONNE_RANK in 0) exec $1 wait -1 forever;; 2) sleep 0.7; exec $1 hello wait -1 forever;; esac",
    ));
    assert_eq!(
        (said.code, said.out.as_str()),
        (1, "rank 2 of 3 in world 0\n")
    );
    assert!(
        said.err.starts_with("error[G0214]: rank 1 "),
        "{}",
        said.err
    );
}

#[test]
fn a_missing_rank_is_not_blamed_while_another_computes_or_comes_from_the_background() {
    let computes = "test $GARONNE_RANK = 1 || exec $1 wait 1 sleep 700 wait 0 hello finalize";
    let said_first = said(&mut shells(2, computes));
    assert_eq!(said_first.code, 1, "{said_first:?}");
    let one_computes = "case $GARONNE_RANK in 0) exec $1 wait 1 sleep 700 awake finalize;; 1) exec $1 sleep 900 finalize;; esac";
    assert_eq!(said(&mut shells(3, one_computes)).code, 0);
    let background = "case $GARONNE_RANK in 0) exec $1 wait 1 fence awake hello finalize;; 1) { sleep 0.7; exec $1 fence finalize; } & esac";
    let said = said(&mut shells(2, background));
    assert_eq!(
        (said.code, said.out.as_str(), said.err.as_str()),
        (0, "rank 0 of 2 in world 0\n", "")
    );
}

#[test]
fn a_rank_that_came_back_after_its_last_session_owes_another_finalize() {
    let said = run("run -n 2 RANK fence finalize resume only 1 exit 0 forever");
    assert_eq!(said.code, 1);
    assert!(
        said.err.starts_with("error[G0201]: rank 1 "),
        "{}",
        said.err
    );
    assert_eq!(
        run("run -n 2 RANK fence finalize resume finalize exit 0").code,
        0
    );
}

#[test]
fn what_the_library_reported_is_said_when_its_rank_ends() {
    let said = run("run -n 2 RANK only 1 report it-was-me only 1 exit 3 forever");
    assert_eq!((said.code, said.err.lines().next()), (3, Some("it-was-me")));
}

#[test]
fn a_crash_is_named_by_its_signal() {
    let said = run("run -n 2 RANK only 0 crash forever");
    assert_eq!(said.code, 128 + libc::SIGABRT);
    assert!(
        said.err.contains("error[G0206]: rank 0") && said.err.contains("SIGABRT"),
        "{}",
        said.err
    );
}

#[test]
fn a_crash_behind_a_shell_is_named_too() {
    let script = format!("{} only 1 crash sleep 3000 finalize; exit $?", fake_rank());
    let said = said(command("run -n 2 sh -c").arg(script));
    assert_eq!(said.code, 128 + libc::SIGABRT);
    assert!(
        said.err.contains("error[G0206]: rank 1") && said.err.contains("SIGABRT"),
        "{}",
        said.err
    );
}

#[test]
fn a_wrapper_that_hides_its_childs_end_does_not_make_the_job_hang() {
    let script = format!("{} only 1 exit 5 forever; sleep 100", fake_rank());
    let said = said(command("run -n 2 sh -c").arg(script));
    // Newer kernels tell the status of processes that are not one's own.
    let told = (said.code, said.err.contains("error[G0201]: rank 1 ")) == (5, true);
    let in_the_dark = (said.code, said.err.contains("error[G0213]: rank 1 ")) == (1, true);
    assert!(told || in_the_dark, "{said:?}");
}

/// Rank 1 dies; rank 0 sees that on the board and fails of it, each behind a shell that reports
/// late.
const SLOW_WRAPPER: &str =
    "$R fence only 1 crash only 0 mourn 1 exit 58; rc=$?; sleep 0.3; exit $rc";

#[test]
fn a_death_behind_a_slow_wrapper_is_the_first_failure_not_what_its_peers_make_of_it() {
    for _ in 0..3 {
        let mut job = command("run -n 2 sh -c");
        let said = said(job.env("R", fake_rank()).arg(SLOW_WRAPPER));
        assert_eq!(said.code, 128 + libc::SIGABRT, "{said:?}");
        // The shells may have said something, too.
        let errors: Vec<_> = said
            .err
            .lines()
            .filter(|line| line.starts_with("error["))
            .collect();
        assert_eq!(errors.len(), 1, "{}", said.err);
        assert!(
            errors[0].starts_with("error[G0206]: rank 1 ") && errors[0].ends_with("SIGABRT"),
            "{}",
            said.err
        );
    }
}

#[test]
fn a_peer_that_aborts_for_a_death_behind_a_wrapper_is_not_blamed() {
    // Rank 0 learns of the death on its own, before the wrapper of rank 1 has said anything.
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join("dead");
    let script = "case $GARONNE_RANK in 0) while ! [ -e $DEAD ]; do sleep 0.01; done; exec $R abort 58 it-died;; \
                  1) $R hello crash 2>/dev/null; rc=$?; : >$DEAD; sleep 0.3; exit $rc;; esac";
    let mut job = command("run -n 2 sh -c");
    let said = said(job.env("R", fake_rank()).env("DEAD", &dead).arg(script));
    assert_eq!(said.code, 128 + libc::SIGABRT, "{said:?}");
    assert!(
        said.err.contains("error[G0206]: rank 1 ") && !said.err.contains("it-died"),
        "{}",
        said.err
    );
}

#[test]
fn abort_ends_the_job_with_its_code_and_text() {
    let said = run("run -n 3 RANK only 1 abort 42 so-it-is forever");
    assert_eq!((said.code, said.err.as_str()), (42, "so-it-is\n"));
    assert_eq!(run("run -n 2 RANK only 1 abort 256 x forever").code, 1);
}

#[test]
fn values_are_exchanged_whoever_asks_first() {
    let said = run("run -n 4 RANK only 3 sleep 30 only 3 put key value get key finalize");
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "value\nvalue\nvalue\nvalue\n")
    );
}

#[test]
fn mpi_programs_may_follow_each_other_in_a_script() {
    let script = format!(
        "{0} hello ring finalize && {0} hello ring finalize",
        fake_rank()
    );
    let said = said(command("run -n 2 sh -c").arg(script));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(
        said.out.contains("rank 1 of 2 in world 0") && said.out.contains("rank 1 of 2 in world 1"),
        "{}",
        said.out
    );
}

#[test]
fn a_program_that_a_rank_starts_is_a_world_of_one() {
    let said = run("run -n 2 RANK child finalize");
    assert_eq!(
        (said.code, said.err.as_str(), said.out.as_str()),
        (0, "", "a world of one\na world of one\n")
    );
}

#[test]
fn a_second_process_in_one_place_is_refused_by_name() {
    let script = format!(
        "{0} hello sleep 300 finalize & sleep 0.1; {0} hello; echo $?; wait",
        fake_rank()
    );
    let said = said(command("run -n 1 sh -c").arg(script));
    assert!(
        said.err.contains("error[G0205]") && said.out.contains("\n9\n"),
        "{said:?}"
    );
}

#[test]
fn ranks_that_lose_the_inherited_socket_find_the_agent_by_name() {
    let script = format!("unset GARONNE_FD; exec {} hello ring finalize", fake_rank());
    let said = said(command("run -n 2 sh -c").arg(script));
    assert_eq!(
        (said.code, said.err.as_str(), said.out.lines().count()),
        (0, "", 4)
    );
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let said = run("run -n 2 ./no-such-program");
    assert_eq!(said.code, 127);
    assert!(
        said.err.contains("error[G0210]") && said.err.contains("no-such-program"),
        "{}",
        said.err
    );
    assert_eq!(run("run -n 1 --wdir /nowhere true").code, 127);
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "echo $GARONNE_RANK $1").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let said = said(command("run -n 1").arg(script).arg("x"));
    assert_eq!((said.code, said.out.as_str()), (0, "0 x\n"));
}

#[test]
fn lines_of_ranks_are_never_mixed() {
    let script = "i=0; while [ $i -lt 200 ]; do printf %s $GARONNE_RANK; printf '%s\\n' $GARONNE_RANK$GARONNE_RANK; i=$((i+1)); done";
    let said = said(command("run -n 4 sh -c").arg(script));
    assert_eq!(said.out.lines().count(), 800);
    assert!(
        said.out
            .lines()
            .all(|line| ["000", "111", "222", "333"].contains(&line)),
        "{}",
        said.out
    );
}

/// Rank 0 begins a line, rank 1 writes one, rank 0 ends its own: each when told to.
const INTERRUPTED: &str = "wait_for() { while ! [ -e $1 ]; do sleep 0.01; done; }
    if [ $GARONNE_RANK = 0 ]; then printf part; wait_for $DIR/end; echo done; else wait_for $DIR/line; echo line; fi";

#[test]
fn an_unfinished_line_is_ended_before_another_rank_speaks() {
    for (options, parts) in [
        ("-l", ["[0] part", "\n[1] line\n", "[0] done\n"]),
        ("", ["part", "\nline\n", "done\n"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut job = command(&format!("run {options} -n 2 sh -c"));
        let mut child = job.env("DIR", dir.path()).arg(INTERRUPTED).spawn().unwrap();
        let out = child.stdout.as_mut().unwrap();
        for (part, next) in parts.into_iter().zip(["line", "end", "over"]) {
            let mut text = vec![0; part.len()];
            out.read_exact(&mut text).unwrap();
            assert_eq!(String::from_utf8_lossy(&text), part);
            std::fs::write(dir.path().join(next), "").unwrap();
        }
        let said = finish(child);
        assert_eq!((said.code, said.out.as_str()), (0, ""));
    }
    assert_eq!(
        run("run -n 3 printf x").out,
        "xxx",
        "without tags nothing is added"
    );
    assert_eq!(
        run("run -l -n 3 printf x").sorted(),
        ["[0] x", "[1] x", "[2] x"]
    );
}

#[test]
fn lines_of_millions_of_bytes_are_not_mixed_either() {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        std::fs::write(
            dir.path().join(rank.to_string()),
            format!("{}\n", rank.to_string().repeat(3_000_000)),
        )
        .unwrap();
    }
    let mut job = command("run -l -n 3 sh -c");
    let script = "for i in 1 2; do dd if=$DIR/$GARONNE_RANK bs=3000001 count=1 2>/dev/null; echo short; done";
    let said = said(job.env("DIR", dir.path()).arg(script));
    let lines = said.sorted();
    assert_eq!((said.code, lines.len()), (0, 12));
    for (index, line) in lines.into_iter().enumerate() {
        let (rank, short) = ((index / 4).to_string(), index % 4 >= 2);
        let text = line.strip_prefix(&format!("[{rank}] ")).unwrap_or_default();
        assert_eq!(
            text.len(),
            if short { 5 } else { 3_000_000 },
            "line {index}"
        );
        assert!(
            short || text.chars().all(|c| rank.starts_with(c)),
            "line {index}"
        );
    }
}

#[test]
fn lines_are_tagged_on_request() {
    assert_eq!(run("run -n 2 -l echo hi").sorted(), ["[0] hi", "[1] hi"]);
    assert_eq!(
        run("run -n 1 --tag-output echo hi").out,
        "[1,0]<stdout>: hi\n"
    );
    assert_eq!(
        run("run -n 1 -l --color always echo hi").out,
        "\x1b[36m[0]\x1b[0m hi\n"
    );
}

#[test]
fn a_prompt_without_newline_arrives() {
    let mut child = command("run -n 1 sh -c")
        .arg("printf 'name? '; read name; echo $name")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut prompt = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut prompt)
        .unwrap();
    assert_eq!(&prompt, b"name? ");
    child.stdin.take().unwrap().write_all(b"me\n").unwrap();
    assert_eq!(finish(child).out, "me\n");
}

#[test]
fn standard_input_goes_to_rank_zero_or_whom_one_names() {
    for (line, expected) in [
        ("run -n 2 -l cat", "[0] in\n"),
        ("run -n 2 -l --stdin 1 cat", "[1] in\n"),
        ("run -n 2 --stdin none cat", ""),
    ] {
        let mut child = command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"in\n").unwrap();
        assert_eq!(finish(child).out, expected, "{line}");
    }
}

#[test]
fn much_output_arrives_whole_also_with_a_slow_reader() {
    let mut child = command("run -n 4 sh -c").arg("seq 100000").spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // A newline more is right if a rank got no processor in the middle of a line for so long that
    // the part was shown.
    let digits = (first + &rest).bytes().filter(u8::is_ascii_digit).count();
    assert_eq!(digits, 4 * 488_895);
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    let mut child = command("run -n 2 yes").spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(finish(child).code, 128 + libc::SIGPIPE);
}

#[test]
fn output_that_cannot_be_written_is_a_failure_with_its_reason() {
    for program in ["echo hi", "yes"] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let said = said(command(&format!("run -n 2 {program}")).stdout(full));
        assert_eq!(said.code, 1, "{said:?}");
        let lines: Vec<_> = said
            .err
            .lines()
            .filter(|line| line.starts_with("error["))
            .collect();
        assert!(
            lines.len() == 1
                && lines[0].starts_with("error[G0305]: ")
                && lines[0].contains("No space left"),
            "{said:?}"
        );
    }
}

#[test]
fn the_environment_and_the_directory_are_the_ranks_too() {
    let mut job = command("run -x B=2 -n 1 --wdir / sh -c");
    let said = said(
        job.env("A", "1")
            .arg("echo $A$B $(pwd) $GARONNE_RANK/$GARONNE_SIZE $OMPI_COMM_WORLD_RANK"),
    );
    assert_eq!(said.out, "12 / 0/1 0\n");
}

#[test]
fn ranks_find_their_place_under_the_names_of_other_launchers() {
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
    let sizes = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
    let here = [
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_NODE_RANK",
        "MPI_LOCALRANKID",
        "MV2_COMM_WORLD_LOCAL_RANK",
    ];
    let all_here = [
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "MPI_LOCALNRANKS",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ];
    let names = [&ranks[..], &here, &sizes, &all_here].concat();
    let show = format!("echo ${}", names.join(" $"));
    let said = said(command("run -n 2 sh -c").arg(show));
    assert_eq!(said.code, 0, "{said:?}");
    let line = |rank: &str| {
        let of_rank = [rank].repeat(ranks.len() + here.len());
        [of_rank, ["2"].repeat(sizes.len() + all_here.len())]
            .concat()
            .join(" ")
    };
    assert_eq!(said.sorted(), [line("0"), line("1")], "{said:?}");
}

#[test]
fn time_runs_out_with_its_own_exit_code() {
    let said = run("run -n 2 --timeout 0.2 sleep 60");
    assert_eq!(said.code, 124);
    assert!(
        said.err.contains("error[G0208]") && said.err.contains("ranks 0, 1"),
        "{}",
        said.err
    );
}

#[test]
fn signals_are_passed_on() {
    let mut job = command("run -n 2 sh -c");
    let mut child = job
        .arg("trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.01; done")
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    (0..2).for_each(|_| drop(reader.read_line(&mut line)));
    assert_eq!(line, "ready\nready\n");
    kill(child.id() as i32, libc::SIGUSR1);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(
        (rest.as_str(), child.wait().unwrap().code()),
        ("got\ngot\n", Some(0))
    );
}

#[test]
fn an_interrupt_ends_everything_even_what_ignores_it() {
    let mark = format!("{}-interrupt", std::process::id());
    let mut job = command("run -n 2 sh -c");
    let mut child = job
        .env(MARK, &mark)
        .arg("trap '' INT TERM; echo ready; while :; do sleep 0.01; done")
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    (0..2).for_each(|_| drop(reader.read_line(&mut line)));
    kill(child.id() as i32, libc::SIGINT);
    assert_eq!(finish(child).code, 128 + libc::SIGINT);
    until("no process is left", || marked(&mark).is_empty());
}

#[test]
fn a_stop_stops_the_ranks_and_continuing_continues_them() {
    // Not a shell that starts commands: one that a stop reaches between vfork and exec waits
    // unstoppably for its child.
    let child = command("run -n 2 RANK forever")
        // A group of its own below this one: in an orphaned group, as under a CI runner, the kernel
        // drops SIGTSTP.
        .process_group(0)
        .spawn()
        .unwrap();
    let pid = child.id() as i32;
    let state = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .map(|(_, rest)| rest.starts_with('T'))
    };
    let mut ranks = Vec::new();
    until("the ranks run", || {
        ranks = agent_of(pid).map_or(Vec::new(), children);
        ranks.len() == 2
    });
    kill(pid, libc::SIGTSTP);
    until("all have stopped", || {
        ranks
            .iter()
            .chain([&pid])
            .all(|pid| state(*pid) == Some(true))
    });
    kill(pid, libc::SIGCONT);
    until("all go on", || {
        ranks
            .iter()
            .chain([&pid])
            .all(|pid| state(*pid) == Some(false))
    });
    kill(pid, libc::SIGTERM);
    assert_eq!(finish(child).code, 128 + libc::SIGTERM);
}

#[test]
fn what_a_rank_leaves_running_is_ended_with_the_job() {
    let mark = format!("{}-daemon", std::process::id());
    let mut job = command("run -n 1 sh -c");
    let said = said(job.env(MARK, &mark).arg("setsid sleep 100 & echo started"));
    assert_eq!((said.code, said.out.as_str()), (0, "started\n"));
    assert!(marked(&mark).is_empty());
}

#[test]
fn a_failure_after_finalize_lets_the_others_end_by_themselves() {
    let said = run("run -n 2 RANK fence finalize only 0 exit 4 sleep 50 hello");
    assert_eq!(
        (said.code, said.out.as_str()),
        (4, "rank 1 of 2 in world 0\n")
    );
    assert!(said.err.contains("after MPI_Finalize"), "{}", said.err);
}

#[test]
fn it_answers_to_the_names_of_other_launchers() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["mpirun", "mpiexec"] {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(support::garonne(), &link).unwrap();
        let mut ran = std::process::Command::new(&link);
        ran.args(["-np", "2", "echo", "hi"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        assert_eq!(said(&mut ran).out, "hi\nhi\n");
        let version = std::process::Command::new(&link)
            .arg("--version")
            .output()
            .unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        assert!(
            version.starts_with(&format!("{name} (Garonne) {}", env!("CARGO_PKG_VERSION"))),
            "{version}"
        );
    }
}

#[test]
fn two_jobs_are_not_bound_to_the_same_cores() {
    let cpus = |line: &str| {
        let mut child = command(line)
            .arg("grep Cpus_allowed_list /proc/self/status; sleep 0.5")
            .spawn()
            .unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        reader.read_line(&mut text).unwrap();
        (child, text)
    };
    let (first, bound) = cpus("run -n 1 --bind-to core sh -c");
    let (second, other) = cpus("run -n 1 --bind-to core sh -c");
    finish(first);
    finish(second);
    let all = garonne_topology::Machine::discover().cores().len();
    let set =
        |text: &str| garonne_topology::CpuSet::parse(text.split(':').nth(1).unwrap()).unwrap();
    // Unbound is the answer when no core is free, which other tests' jobs may cause at any time.
    let unbound = |text: &str| set(text) == garonne_topology::machine::allowed();
    assert!(
        unbound(&bound) || unbound(&other) || !set(&bound).meets(&set(&other)),
        "{bound} {other} ({all} cores)"
    );
}

#[test]
fn output_for_a_slow_reader_survives_signals_that_only_pass_through() {
    let mut child = command("run -n 1 sh -c").arg("seq 100000").spawn().unwrap();
    let launcher = child.id() as i32;
    until("the rank has written and gone", || {
        agent_of(launcher).is_some_and(|agent| children(agent).is_empty())
    });
    kill(launcher, libc::SIGWINCH);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let mut all = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut all)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), all.len()),
        (Some(0), 588_895)
    );
}
