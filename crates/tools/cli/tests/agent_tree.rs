//! Jobs on many hosts, whose agents report to each other in levels. A command of the tests' own
//! starts the agents on this machine, few to a parent, so that few hosts make many levels.

mod support;

use std::process::{Command, Stdio};

use support::{MARK, children, command, finish, kill, marked, said, until};

/// `garonne run` on so many hosts besides the launcher's, of which each has at most `fan_out` below
/// it.
fn on_hosts(hosts: usize, fan_out: usize, words: &[&str]) -> Command {
    let names: Vec<String> = (1..=hosts).map(|number| format!("h{number}")).collect();
    let mut run = command("run");
    run.env("GARONNE_FAN_OUT", fan_out.to_string())
        .args([
            "--bind-to",
            "none",
            "--launcher",
            "sh -c 'shift; exec \"$@\"' sh",
        ])
        .args(["--host", &names.join(",")])
        .args(words);
    run
}

#[test]
fn ranks_of_all_levels_start_speak_and_end() {
    // Up to four levels below the first, the last of them not full.
    for (hosts, fan_out) in [(1, 2), (17, 2), (30, 3)] {
        let said = said(&mut on_hosts(
            hosts,
            fan_out,
            &["sh", "-c", "echo $PMI_RANK of $PMI_SIZE"],
        ));
        let mut wanted: Vec<String> = (0..hosts)
            .map(|rank| format!("{rank} of {hosts}"))
            .collect();
        wanted.sort();
        assert_eq!(
            (said.code, said.sorted()),
            (0, wanted.iter().map(String::as_str).collect()),
            "{said:?}"
        );
        assert_eq!(said.err, "");
    }
}

#[test]
fn more_hosts_than_report_to_one_begin_as_users_have_them() {
    let mut run = on_hosts(70, 2, &["echo", "here"]);
    let said = said(run.env_remove("GARONNE_FAN_OUT"));
    assert_eq!((said.code, said.out.lines().count()), (0, 70), "{said:?}");
}

#[test]
fn a_failure_far_below_ends_the_job_with_its_words_and_code() {
    let script = "if [ $PMI_RANK = 13 ]; then echo last words; exit 5; else exec sleep 100; fi";
    let said = said(&mut on_hosts(14, 2, &["-l", "sh", "-c", script]));
    assert_eq!(
        (said.code, said.out.as_str()),
        (5, "[13] last words\n"),
        "{said:?}"
    );
    assert!(said.err.contains("rank 13"), "{said:?}");
}

#[test]
fn input_and_much_output_pass_through_the_levels_whole() {
    let mut run = on_hosts(
        7,
        2,
        &["--stdin", "6", "sh", "-c", "cat | wc -c; seq 1 20000"],
    );
    let mut child = run.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer =
        std::thread::spawn(move || std::io::Write::write_all(&mut input, &vec![b'x'; 500_000]));
    let said = finish(child);
    writer.join().unwrap().unwrap();
    assert_eq!(said.code, 0, "{:?}", said.err);
    let count = |wanted: &str| said.out.lines().filter(|line| *line == wanted).count();
    assert_eq!((count("500000"), count("0"), count("20000")), (1, 6, 7));
    assert_eq!(said.out.lines().count(), 7 * 20_001);
}

#[test]
fn a_host_below_others_whose_agent_does_not_start_is_named_with_what_was_said() {
    let mut run = command("run");
    let starter =
        "sh -c 'case $1 in h5) echo no way to $1 >&2; exit 3;; esac; shift; exec \"$@\"' sh";
    run.env("GARONNE_FAN_OUT", "2").args([
        "--launcher",
        starter,
        "--host",
        "h1,h2,h3,h4,h5,h6",
        "true",
    ]);
    let said = said(&mut run);
    assert_eq!(said.code, 1, "{said:?}");
    for words in ["G0216", "'h5'", "exit status 3", "no way to h5"] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
}

#[test]
fn whoever_dies_in_the_middle_is_named_and_nothing_is_left_above_or_below() {
    // Of the first host below, which has others on two levels below it: its launcher, its guard,
    // its agent.
    for victim in 0..3 {
        let mark = format!("tree-{}-{victim}", std::process::id());
        let child = on_hosts(14, 2, &["sleep", "1000"])
            .env(MARK, &mark)
            .spawn()
            .unwrap();
        let launcher = child.id() as i32;
        let name =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let sleeps = || {
            marked(&mark)
                .iter()
                .filter(|pid| name(pid) == "sleep\n")
                .count()
        };
        until("all ranks run", || sleeps() == 14);
        let outer = children(support::agent_of(launcher).unwrap())[0];
        let guard = children(outer)[0];
        kill([outer, guard, children(guard)[0]][victim], libc::SIGKILL);
        let said = finish(child);
        assert_ne!(said.code, 0, "victim {victim}: {said:?}");
        if victim == 2 {
            for words in ["G0217", "'h1'", "rank 0", "6 hosts more report through it"] {
                assert!(said.err.contains(words), "{words}: {said:?}");
            }
        }
        until("nothing is left", || marked(&mark).is_empty());
    }
}

#[test]
fn a_fan_out_that_is_none_is_refused() {
    for fan_out in ["1", "0", "x", "1025"] {
        let mut run = on_hosts(2, 2, &["true"]);
        let said = said(run.env("GARONNE_FAN_OUT", fan_out));
        assert!(said.code == 2 && said.err.contains("G0225"), "{said:?}");
    }
}
