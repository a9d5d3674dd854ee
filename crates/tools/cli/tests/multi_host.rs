//! Jobs on several hosts, with agents that a command of the tests' own starts on this one. The
//! tests show what launcher and agents do, without a network of its own.

mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use garonne_job::limits::{LINE_DOWN_MAX, PING_EVERY};

use support::{MARK, children, command, finish, kill, marked, said, until};

/// `garonne run` with a launcher that forgets the host's name: all agents run here.
fn on_hosts(hosts: &str, words: &[&str]) -> Command {
    let mut run = command("run");
    run.args([
        "--launcher",
        "sh -c 'shift; exec \"$@\"' sh",
        "--host",
        hosts,
    ]);
    run.args(words);
    run
}

#[test]
fn ranks_of_all_hosts_speak_and_know_their_places() {
    let show = "echo $PMI_RANK of $PMI_SIZE, $MPI_LOCALRANKID of $MPI_LOCALNRANKS here";
    let said = said(&mut on_hosts("a:2,localhost:1", &["sh", "-c", show]));
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        said.sorted(),
        [
            "0 of 3, 0 of 2 here",
            "1 of 3, 1 of 2 here",
            "2 of 3, 0 of 1 here"
        ]
    );
}

#[test]
fn all_hosts_that_report_to_the_first_begin_at_once() {
    let hosts: Vec<String> = (1..=garonne_job::limits::FAN_OUT)
        .map(|number| format!("h{number}"))
        .collect();
    for _ in 0..3 {
        let said = said(&mut on_hosts(&hosts.join(","), &["echo", "here"]));
        assert_eq!(
            (said.code, said.out.lines().count()),
            (0, hosts.len()),
            "{said:?}"
        );
    }
}

#[test]
fn the_first_failure_on_any_host_ends_the_job_with_its_words_and_code() {
    let script = "if [ $PMI_RANK = 2 ]; then echo last words; exit 5; else exec sleep 100; fi";
    let said = said(&mut on_hosts("a:2,b:2", &["-l", "sh", "-c", script]));
    assert_eq!(
        (said.code, said.out.as_str()),
        (5, "[2] last words\n"),
        "{said:?}"
    );
    assert!(said.err.contains("rank 2"), "{said:?}");
}

#[test]
fn a_binding_that_other_hosts_cannot_give_is_told_once_for_all_of_them() {
    let bound = ["--cpu-set", "0", "--bind-to", "core", "true"];
    // Jobs of other tests may have the CPU at any time, which is told in other words. Where one of
    // them starts at the same moment, nothing is known of the CPU, and the job is started again.
    let moment = "not bound as asked for: other jobs start at the same moment\n";
    let said = std::iter::repeat_with(|| said(&mut on_hosts("a:2", &bound)))
        .take(20)
        .find(|said| !said.err.ends_with(moment))
        .expect("one of 20 jobs to start alone");
    assert_eq!((said.code, said.err.lines().count()), (0, 1), "{said:?}");
    let told = said
        .err
        .strip_prefix("garonne run: ranks 0-1 on host a ")
        .unwrap();
    let few = "share CPUs 0: there are too few for each to have its own\n";
    assert!(
        told == few || told.ends_with("0 not taken by other jobs\n"),
        "{said:?}"
    );
    // The launcher's own host has a rank that claims the only CPU, so the others have none left.
    let said = support::said(&mut on_hosts("localhost:1,a:1,b:1,c:1,d:1,e:1", &bound));
    let names = " on hosts a,b,c,d and 1 more are not bound as asked for: ";
    let told = said.err.lines().filter(|line| line.contains(names)).count();
    assert_eq!((said.code, told), (0, 1), "{said:?}");
    let said = support::said(&mut on_hosts("a:2", &["--cpu-set", "0", "true"]));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn input_reaches_a_rank_of_another_host_whole() {
    let mut run = on_hosts("a:1,b:1", &["sh", "-c", "wc -c"]);
    let mut child = run.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer =
        std::thread::spawn(move || std::io::Write::write_all(&mut input, &vec![b'x'; 1_000_000]));
    let said = finish(child);
    writer.join().unwrap().unwrap();
    assert_eq!(
        (said.code, said.sorted()),
        (0, vec!["0", "1000000"]),
        "{:?}",
        said.err
    );
}

#[test]
fn input_for_all_ranks_reaches_each_of_them_whole_also_where_one_reads_a_part() {
    let script = "if [ $PMI_RANK = 1 ]; then head -c 7 | wc -c; else wc -c; fi";
    for hosts in ["a:2,localhost:2,b:1", "localhost:3"] {
        let mut run = on_hosts(hosts, &["-l", "--stdin", "all", "sh", "-c", script]);
        let mut child = run.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            std::io::Write::write_all(&mut input, &vec![b'x'; 1_000_000])
        });
        let said = finish(child);
        writer.join().unwrap().unwrap();
        let got = |rank: usize| if rank == 1 { "7" } else { "1000000" };
        let wanted: Vec<String> = (0..said.out.lines().count())
            .map(|rank| format!("[{rank}] {}", got(rank)))
            .collect();
        assert!(said.code == 0 && wanted.len() >= 3, "{said:?}");
        assert_eq!(said.sorted(), wanted, "{hosts}: {}", said.err);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![b'x'; 300_000]).unwrap();
    let input = std::fs::File::open(file.path()).unwrap();
    let said = said(on_hosts("a:1,localhost:1", &["--stdin", "all", "wc", "-c"]).stdin(input));
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "300000\n300000\n"),
        "{said:?}"
    );
}

/// A rank that saves something for a second when it is asked to end, while another one fails.
#[test]
fn ranks_get_the_time_to_end_that_is_asked_for_on_all_hosts() {
    let script = "if [ $PMI_RANK = 1 ]; then sleep 0.5; exit 3; fi; \
                  trap 'sleep 1; echo saved $PMI_RANK; exit 0' TERM; while :; do sleep 0.05; done";
    for (words, out) in [
        (
            &["--kill-after", "25", "sh", "-c", script][..],
            vec!["saved 0", "saved 2"],
        ),
        (
            &["-x", "GARONNE_KILL_AFTER=0", "sh", "-c", script][..],
            vec![],
        ),
    ] {
        for hosts in ["localhost:2,a:1", "localhost:3"] {
            let said = said(&mut on_hosts(hosts, words));
            assert_eq!(
                (said.code, said.sorted()),
                (3, out.clone()),
                "{hosts}: {said:?}"
            );
        }
    }
}

#[test]
fn a_rank_file_says_where_each_rank_runs_and_what_it_is_bound_to() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("ranks");
    let name = file.to_str().unwrap();
    let show = "echo $PMI_RANK here $MPI_LOCALRANKID $GARONNE_SLOTS; grep Cpus_allowed_list /proc/self/status";
    let show = ["sh", "-c", show];
    std::fs::write(
        &file,
        "rank 0=b slot=0\nrank 1=localhost slot=0:0\nrank 2=b slot=0:*\n",
    )
    .unwrap();
    let starter = "sh -c 'shift; exec \"$@\"' sh";
    let told = said(
        command("run")
            .args(["-l", "--launcher", starter, "--rankfile", name])
            .args(show),
    );
    assert_eq!(told.code, 0, "{told:?}");
    let lines = told.sorted();
    assert_eq!(
        [lines[0], lines[2], lines[4]],
        ["[0] 0 here 0", "[1] 1 here 0", "[2] 2 here 1"],
        "{told:?}"
    );
    let cpus = |line: &str| line.rsplit('\t').next().unwrap_or_default().to_owned();
    assert_eq!(cpus(lines[1]), cpus(lines[3]), "core 0 of either: {told:?}");
    let bound = garonne_topology::Machine::discover().cores()[0].to_string();
    assert_eq!(cpus(lines[1]), bound, "{told:?}");
    for host in ["localhost", "b"] {
        std::fs::write(&file, format!("rank 0={host} slot=999\n")).unwrap();
        let told = said(
            command("run")
                .args(["--launcher", starter, "--rankfile", name])
                .args(show),
        );
        assert!(
            told.code != 0 && told.err.contains("slot=999: this host has"),
            "{host}: {told:?}"
        );
        assert!(told.out.is_empty(), "{told:?}");
        assert_eq!(told.err.matches("error[G0211]").count(), 1, "{told:?}");
    }
}

#[test]
fn input_that_is_there_before_the_ranks_reaches_them_too() {
    let path = std::env::temp_dir().join(format!("garonne-input-{}", std::process::id()));
    std::fs::write(&path, vec![b'x'; 200_000]).unwrap();
    for _ in 0..20 {
        let input = std::fs::File::open(&path).unwrap();
        let said = said(on_hosts("a:1", &["sh", "-c", "wc -c"]).stdin(input));
        assert_eq!((said.code, said.out.trim()), (0, "200000"), "{said:?}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn environment_and_directory_go_along() {
    let mut run = on_hosts(
        "a:1",
        &[
            "-x",
            "ONE=1",
            "--wdir",
            "/",
            "sh",
            "-c",
            "echo $ONE $TWO $PWD",
        ],
    );
    let said = said(run.env("TWO", "2"));
    assert_eq!(said.out, "1 2 /\n", "{said:?}");
}

#[test]
fn a_host_whose_agent_does_not_start_is_named_with_what_was_said() {
    let mut run = command("run");
    run.args([
        "--launcher",
        "sh -c 'echo no way to $1 >&2; exit 3' sh",
        "--host",
        "faraway",
        "true",
    ]);
    let said = said(&mut run);
    assert_eq!(said.code, 1, "{said:?}");
    for words in ["G0216", "'faraway'", "exit status 3", "no way to faraway"] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
}

#[test]
fn programs_that_are_missing_elsewhere_are_named_with_the_host() {
    let said = said(&mut on_hosts("a:1", &["no-such-program"]));
    assert_eq!(said.code, 127, "{said:?}");
    assert!(
        said.err.contains("'a'") && said.err.contains("no-such-program"),
        "{said:?}"
    );
}

#[test]
fn ranks_of_one_host_join_one_world_and_a_second_program_is_refused() {
    let fake = support::fake_rank();
    let said_once = said(&mut on_hosts("a:2", &[&fake, "hello", "finalize"]));
    assert_eq!(said_once.code, 0, "{said_once:?}");
    let twice = format!("{fake} finalize && {fake} finalize");
    let said_twice = said(&mut on_hosts("a:1", &["sh", "-c", &twice]));
    assert!(
        said_twice.code != 0 && said_twice.err.contains("G0218"),
        "{said_twice:?}"
    );
}

#[test]
fn whoever_dies_nothing_is_left_and_a_lost_agent_is_named_by_its_host() {
    // The launcher, its agent, and each of the three processes of another host.
    for victim in 0..5 {
        let mark = format!("hosts-{}-{victim}", std::process::id());
        let child = on_hosts("a:1,b:1", &["sleep", "1000"])
            .env(MARK, &mark)
            .spawn()
            .unwrap();
        let launcher = child.id() as i32;
        let sleeps = || {
            let name = |pid: &i32| {
                std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
            };
            marked(&mark)
                .iter()
                .filter(|pid| name(pid) == "sleep\n")
                .count()
        };
        until("all ranks run", || sleeps() == 2);
        let agent = support::agent_of(launcher).unwrap();
        let outer = children(agent)[0];
        let outer_guard = children(outer)[0];
        let target = [
            launcher,
            agent,
            outer,
            outer_guard,
            children(outer_guard)[0],
        ][victim];
        kill(target, libc::SIGKILL);
        let said = finish(child);
        assert_ne!(said.code, 0, "victim {victim}: {said:?}");
        if victim == 4 {
            assert!(
                said.err.contains("G0217") && said.err.contains("'a'"),
                "{said:?}"
            );
        }
        until("nothing is left", || marked(&mark).is_empty());
    }
}

#[test]
fn a_launcher_without_ranks_of_its_own_shows_and_manages_those_of_others() {
    let fake = support::fake_rank();
    let mark = format!("login-{}", std::process::id());
    let child = on_hosts("a:1,b:1", &[&fake, "forever"])
        .env(MARK, &mark)
        .spawn()
        .unwrap();
    let launcher = child.id().to_string();
    let garonne = |words: &str| said(&mut command(&words.replace("JOB", &launcher)));
    until("both ranks have come", || {
        let said = garonne("rail --job JOB");
        said.code == 0 && !said.out.contains("MPI_Init")
    });
    let both = garonne("rail --job JOB").out;
    assert!(
        both.contains("on host 'a':\n") && both.contains("on host 'b':\n"),
        "{both}"
    );
    let background = garonne("why background JOB").out;
    assert!(
        background.contains("on host 'a':\nrank 0: ")
            && background.contains("on host 'b':\nrank 1: "),
        "{background}"
    );
    let paces = garonne("why paces JOB");
    assert!(
        paces.code == 0 && paces.out.contains("on host 'a':\n"),
        "{paces:?}"
    );
    let gate = garonne("why gate 1 JOB");
    assert!(
        gate.out
            .starts_with("on host 'b':\nrank 1, on node 2 of 3\n"),
        "{gate:?}"
    );
    let json = garonne("why gate 1 JOB --json").out;
    assert!(
        json.contains("\"peer\": 0") && json.starts_with('['),
        "{json}"
    );
    let none = garonne("why gate 2 JOB");
    assert!(
        none.code == 1 && none.err.contains("no rank 2: the job has 2"),
        "{none:?}"
    );
    for what in ["add", "drain"] {
        let said = garonne(&format!("rail --job JOB {what} 198.51.100.0/24"));
        assert!(
            said.code == 1
                && said
                    .err
                    .contains("no host of the job has an address in 198.51.100.0/24"),
            "{said:?}"
        );
    }
    kill(child.id() as i32, libc::SIGTERM);
    finish(child);
    until("nothing is left", || marked(&mark).is_empty());
}

#[test]
fn a_host_that_lacks_descriptors_for_a_rank_is_named() {
    let lacking = format!("ulimit -n 4; exec {} finalize", support::fake_rank());
    let said = said(&mut on_hosts("a:1", &["sh", "-c", &lacking]));
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    assert!(
        said.code != 0 && said.err.contains(&format!("error[G0302]: host '{name}': ")),
        "{said:?}"
    );
}

#[test]
fn many_hosts_that_a_command_starts_one_by_one_are_said_to_be_many() {
    let hosts: Vec<String> = (0..=garonne_job::limits::STARTED_FLAT)
        .map(|number| format!("h{number}"))
        .collect();
    let mut run = command("run");
    run.args(["--launcher", "false", "--host", &hosts.join(","), "true"]);
    let said = said(&mut run);
    assert!(
        said.err.contains("65 hosts, each by a 'false' of its own"),
        "{said:?}"
    );
}

#[test]
fn no_other_host_is_blamed_for_a_launcher_that_has_lost_its_guard() {
    // The agent lives, and might see its lines end before it does.
    for _ in 0..8 {
        let mark = format!("guard-{}", std::process::id());
        let child = on_hosts("a:1,b:1", &["sleep", "1000"])
            .env(MARK, &mark)
            .spawn()
            .unwrap();
        let name =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        until("all ranks run", || {
            marked(&mark)
                .iter()
                .filter(|pid| name(pid) == "sleep\n")
                .count()
                == 2
        });
        kill(children(child.id() as i32)[0], libc::SIGKILL);
        let said = finish(child);
        assert!(said.code != 0 && said.err.contains("G0204"), "{said:?}");
        assert!(!said.err.contains("G0217"), "{said:?}");
        until("nothing is left", || marked(&mark).is_empty());
    }
}

#[test]
fn a_job_on_several_hosts_ends_with_its_last_rank() {
    let quickest = |script: &str| {
        let once = |_| {
            let begun = Instant::now();
            let said = said(&mut on_hosts("a:1,b:1", &["sh", "-c", script]));
            assert_eq!(said.code, 0, "{said:?}");
            begun.elapsed()
        };
        (0..5).map(once).min().unwrap()
    };
    // What a rank leaves behind is waited for, if not for long; where nothing is left there is
    // nothing to wait for.
    let (left, nothing) = (quickest("sleep 1000 &"), quickest("true"));
    assert!(
        nothing * 2 < left,
        "{nothing:?} with nothing left, {left:?} with something"
    );
}

/// Starts a job with a rank here and one on host 'a'. The processes of that host's agent (launcher,
/// guard, agent) are stopped until something lies unread on its line.
fn with_something_unread(starter: &str, here: &str) -> (Child, Vec<i32>) {
    let mark = format!(
        "unread-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let mut run = command("run");
    run.args([
        "--launcher",
        starter,
        "--host",
        "localhost,a",
        "sh",
        "-c",
        here,
    ]);
    let child = run.env(MARK, &mark).spawn().unwrap();
    let is = |pid: &i32, name: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.trim_end() == name)
    };
    until("both ranks run", || {
        marked(&mark).iter().filter(|pid| is(pid, "sleep")).count() == 2
    });
    let agent = support::agent_of(child.id() as i32).unwrap();
    let mut outer = vec![];
    let mut below = children(agent);
    while let Some(pid) = below
        .iter()
        .copied()
        .find(|pid| is(pid, "garonne") || is(pid, "sh"))
    {
        if is(&pid, "garonne") {
            outer.push(pid);
        }
        below = children(pid);
        if outer.len() == 3 {
            break;
        }
    }
    assert_eq!(outer.len(), 3, "launcher, guard, agent");
    kill(outer[2], libc::SIGSTOP);
    std::thread::sleep(PING_EVERY + Duration::from_millis(500));
    (child, outer)
}

#[test]
fn a_host_whose_agent_is_killed_is_named_at_once_also_where_it_had_something_unread() {
    // The agent alone, whose launcher ends its line; and all its processes, of which the command
    // tells that started them.
    for victims in [2..3, 0..3] {
        let swift = (0..3).any(|_| {
            let (child, outer) =
                with_something_unread("sh -c 'shift; exec \"$@\"' sh", "sleep 1000; true");
            let begun = Instant::now();
            outer[victims.clone()]
                .iter()
                .for_each(|pid| kill(*pid, libc::SIGKILL));
            let said = finish(child);
            assert!(
                said.err.contains("G0217") && said.err.contains("'a'"),
                "{said:?}"
            );
            // On a machine that stands still now and then it takes longer once, but not each time.
            begun.elapsed() < LINE_DOWN_MAX
        });
        assert!(swift, "{victims:?} took as long as a network that fails");
    }
}

#[test]
fn what_fails_because_a_host_is_gone_is_not_told_before_that_host() {
    let path = std::env::temp_dir().join(format!("garonne-gone-{}", std::process::id()));
    let here = format!(
        "while [ ! -e {} ]; do sleep 0.1; [ $PMI_RANK = 0 ] || exec sleep 1000; done; exit 5",
        path.display()
    );
    // What started it says nothing of how it ended.
    let (child, outer) = with_something_unread("sh -c 'shift; \"$@\"; exit 255' sh", &here);
    outer.iter().for_each(|pid| kill(*pid, libc::SIGKILL));
    std::thread::sleep(Duration::from_millis(200));
    std::fs::write(&path, "").unwrap();
    let said = finish(child);
    std::fs::remove_file(&path).unwrap();
    assert!(said.code == 1 && said.err.contains("G0217"), "{said:?}");
    assert!(!said.err.contains("exit status 5"), "{said:?}");
}
