//! The subcommands other than `run`.

mod support;

use std::process::Stdio;

use support::{agent_of, command, finish, kill, run, said, until};

fn json(line: &str) -> serde_json::Value {
    let said = run(line);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{line}: {error}: {said:?}"))
}

#[test]
fn a_code_is_explained_in_words_and_in_json() {
    let said = run("explain g0107");
    assert!(
        said.code == 0 && said.out.starts_with("G0107: message truncated"),
        "{said:?}"
    );
    assert_eq!(json("explain G0201 --json")["id"], "G0201");
    assert_eq!(json("explain g107 --json")["id"], "G0107");
    assert_eq!(run("explain G9999").code, 1);
    assert!(run("explain").out.lines().count() > 20);
}

#[test]
fn the_doctor_finds_what_jobs_need() {
    let findings = json("doctor --json");
    let verdict = |what: &str| {
        findings
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["what"] == what)
            .unwrap()["verdict"]
            .clone()
    };
    assert_eq!(verdict("shared memory"), "good");
    assert_eq!(verdict("/proc"), "good");
    for what in [
        "other hosts",
        "IPv6",
        "ssh",
        "PMIx",
        "locked memory",
        "hosts made here",
    ] {
        assert!(verdict(what).is_string(), "{what}");
    }
    for finding in findings.as_array().unwrap() {
        let advice = finding["advice"].as_str().unwrap();
        assert_eq!(advice.is_empty(), finding["verdict"] == "good", "{finding}");
    }
}

#[test]
fn the_map_shows_described_machines_too() {
    let mut map = command("map --json");
    let said = said(map.env("HWLOC_SYNTHETIC", "pack:2 core:3 pu:2"));
    let root: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    fn cpus(object: &serde_json::Value) -> usize {
        usize::from(!object["cpu"].is_null())
            + object["children"]
                .as_array()
                .unwrap()
                .iter()
                .map(cpus)
                .sum::<usize>()
    }
    assert_eq!(cpus(&root), 12);
}

#[test]
fn a_running_job_is_seen_with_what_its_ranks_do() {
    let job = command("run -n 3 RANK only 1 sleep 1 hello forever")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = job.id();
    let look = || {
        let said = run(&format!("who {pid} --json"));
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap_or_default()
    };
    until("all ranks run", || {
        look()["ranks"].as_array().is_some_and(|ranks| {
            ranks.len() == 3 && ranks.iter().all(|rank| rank["state"] == "running")
        })
    });
    let top = json(&format!("top {pid} --once --every 0.05 --json"));
    assert_eq!(top["ranks"].as_array().unwrap().len(), 3);
    assert!(run(&format!("map {pid}")).code == 0);
    kill(pid as i32, libc::SIGTERM);
    finish(job);
    let said = run(&format!("who {pid}"));
    assert!(
        said.code == 1 && said.err.contains("no job of yours"),
        "{said:?}"
    );
}

#[test]
fn the_map_lists_ranks_that_are_bound_nowhere() {
    let job = command("run -n 4 --bind-to none RANK forever")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = job.id();
    until("all ranks are listed below the machine", || {
        let said = run(&format!("map {pid}"));
        said.out.lines().nth(1) == Some("  ranks 0-3: not bound")
    });
    assert_eq!(
        json(&format!("map {pid} --json"))["unbound_ranks"],
        serde_json::json!([0, 1, 2, 3])
    );
    kill(pid as i32, libc::SIGTERM);
    finish(job);
}

#[test]
fn the_map_is_drawn_with_the_ranks_of_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("map.svg");
    let job = command("run -n 2 --bind-to none RANK hello forever")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = job.id();
    let mut drawn = String::new();
    until("both ranks are drawn", || {
        let said = said(command(&format!("map {pid} --svg")).arg(&file));
        drawn = std::fs::read_to_string(&file).unwrap_or_default();
        said.code == 0 && drawn.contains("rank 1")
    });
    kill(pid as i32, libc::SIGTERM);
    finish(job);
    assert!(
        drawn.starts_with("<svg") && drawn.contains("CPU ") && drawn.contains("rank 0"),
        "{drawn}"
    );
    let nowhere = run("map --svg /nowhere/map.svg");
    assert!(
        nowhere.code == 1 && nowhere.err.contains("cannot write /nowhere/map.svg"),
        "{nowhere:?}"
    );
}

#[test]
fn shells_complete_subcommands_jobs_and_codes() {
    assert!(run("completions bash").out.contains("GARONNE_COMPLETE"));
    let complete = |words: &str| {
        let mut asked = command("--");
        let words: Vec<_> = words.split(' ').collect();
        asked.args(&words).env("GARONNE_COMPLETE", "bash");
        asked.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        asked
            .env("_CLAP_IFS", "\n")
            .env("_CLAP_COMPLETE_COMP_TYPE", "9");
        said(&mut asked).out
    };
    assert!(complete("garonne do").contains("doctor"));
    assert!(
        complete("garonne explain G010")
            .lines()
            .any(|word| word.starts_with("G0107"))
    );
    let job = command("run -n 1 sleep 100").spawn().unwrap();
    until("the job is offered", || {
        complete("garonne who ").contains("sleep-")
    });
    kill(job.id() as i32, libc::SIGTERM);
    finish(job);
}

#[test]
fn the_binding_of_a_job_is_explained() {
    let why = json("why binding -n 100000 --json");
    assert_eq!(why["bound_to"].as_array().unwrap().len(), 0);
    assert!(
        why["reason"]
            .as_str()
            .unwrap()
            .contains("100000 cores wanted")
    );
    let one = run("why binding -n 1").out;
    assert!(one.lines().any(|line| line.starts_with("1 rank ")), "{one}");
    let nothing = tempfile::tempdir().unwrap();
    let costs = said(
        command("why costs --json")
            .env("HOME", nothing.path())
            .env("XDG_CACHE_HOME", nothing.path()),
    );
    assert_eq!((costs.code, costs.out.trim()), (0, "null"));
    assert!(run("why settings").out.contains("MPIEXEC_TIMEOUT"));
}

#[test]
fn what_is_not_a_subcommand_is_refused() {
    assert_eq!(run("frobnicate").code, 2);
    assert!(run("--version").out.starts_with("garonne "));
    assert!(run("run --help").out.contains("--bind-to"));
}

#[test]
fn a_stopped_agent_keeps_nobody_from_looking_at_other_jobs() {
    let stopped = command("run -n 1 RANK forever").spawn().unwrap();
    let runs = command("run -n 1 RANK forever").spawn().unwrap();
    let (silent, launcher) = (stopped.id() as i32, runs.id() as i32);
    until("both jobs can be seen", || {
        [silent, launcher]
            .iter()
            .all(|pid| said(&mut command(&format!("who {pid}"))).code == 0)
    });
    let agent = agent_of(silent).unwrap();
    kill(agent, libc::SIGSTOP);
    let seen = said(&mut command(&format!("who {launcher}")));
    let unseen = said(&mut command(&format!("who {silent}")));
    kill(agent, libc::SIGCONT);
    kill(launcher, libc::SIGTERM);
    kill(silent, libc::SIGTERM);
    finish(runs);
    finish(stopped);
    assert_eq!(seen.code, 0, "{}", seen.err);
    assert!(
        unseen.code != 0 && unseen.err.contains("do not answer"),
        "{}",
        unseen.err
    );
}

#[test]
fn where_several_jobs_run_each_command_says_how_it_names_one() {
    let jobs = [(); 2].map(|()| command("run -n 1 RANK forever").spawn().unwrap());
    let pids = jobs.each_ref().map(|job| job.id());
    until("both jobs can be seen", || {
        pids.iter()
            .all(|pid| said(&mut command(&format!("who {pid}"))).code == 0)
    });
    let lines = [
        ("who", "garonne who JOB"),
        ("top --once", "garonne top JOB"),
        ("overlap", "garonne overlap JOB"),
        ("trace", "garonne trace JOB"),
        ("why paces", "garonne why paces JOB"),
        ("why gate 3", "garonne why gate 3 JOB"),
        ("why background", "garonne why background JOB"),
        ("network", "garonne network --job JOB"),
        ("network drain lo", "garonne network --job JOB drain lo"),
        (
            "network add 10.0.0.0/8",
            "garonne network --job JOB add 10.0.0.0/8",
        ),
    ];
    let all = lines.map(|(line, names)| (line, names, run(line)));
    for name in ["network", "rail"] {
        let bare = run(&format!("{name} 4711"));
        let tip = "tip: name a job by garonne network --job 4711";
        assert!(bare.code == 2 && bare.err.contains(tip), "{bare:?}");
    }
    // What is said is understood as well.
    let [first, _] = pids;
    let named = [
        format!("who {first}"),
        format!("network --job {first} drain lo"),
        format!("why gate 0 {first}"),
    ];
    let named = named.map(|line| run(&line));
    for (job, pid) in jobs.into_iter().zip(pids) {
        kill(pid as i32, libc::SIGTERM);
        finish(job);
    }
    for (line, names, said) in all {
        let listed = pids
            .iter()
            .all(|pid| said.err.contains(&format!("  {pid}  ")));
        let names = format!("name one: {names}\n");
        assert!(
            said.code == 1 && said.err.contains(&names) && listed,
            "{line}: {said:?}"
        );
    }
    for said in named {
        assert!(
            said.code != 2 && !said.err.contains("several jobs"),
            "{said:?}"
        );
    }
}

/// Returns what `ping --json` prints: the path, and lengths with their times.
fn pinged(line: &str) -> (String, Vec<(u64, f64, f64)>) {
    let told = json(line);
    let exchanges = told["exchanges"].as_array().unwrap().iter();
    let exchanges = exchanges.map(|one| {
        let number = |what: &str| one[what].as_f64().unwrap();
        (
            number("bytes") as u64,
            number("median_ns"),
            number("p99_ns"),
        )
    });
    assert!(told["stream"].as_f64().unwrap() > 0.0, "{told}");
    (
        told["over"].as_str().unwrap().to_owned(),
        exchanges.collect(),
    )
}

#[test]
fn a_ping_says_which_way_messages_go_and_how_long_they_take() {
    let directory = tempfile::tempdir().unwrap();
    // Another host that is this one.
    let launcher = directory.path().join("launcher");
    std::fs::write(&launcher, "#!/bin/sh\nshift\nexec \"$@\"\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    let far = format!(
        "ping elsewhere --ms 5 --json --launcher {}",
        launcher.display()
    );
    for (line, way) in [
        ("ping --ms 5 --json", "shared memory"),
        (far.as_str(), "TCP from "),
    ] {
        let (over, exchanges) = pinged(line);
        assert!(over.starts_with(way), "{line}: {over}");
        let lengths: Vec<u64> = exchanges.iter().map(|one| one.0).collect();
        assert_eq!(lengths, [8, 1 << 10, 64 << 10, 1 << 20], "{line}");
        for (bytes, median, p99) in exchanges {
            assert!(
                median > 0.0 && p99 >= median,
                "{line}: {bytes} {median} {p99}"
            );
        }
    }
    let nobody = run("ping nobody.invalid --ms 5 --launcher /bin/false");
    assert!(
        nobody.code == 1 && nobody.err.contains("G0216"),
        "{nobody:?}"
    );
}

#[test]
fn why_peer_tells_which_way_messages_of_a_rank_go() {
    let elsewhere = "sh -c 'shift; exec \"$@\"' sh";
    for (hosts, over) in [
        (
            &["--launcher", elsewhere, "--host", "localhost,elsewhere"][..],
            "TCP",
        ),
        (&[], "shared memory"),
    ] {
        let mut job = command("run");
        job.args(["-n", "2", "--map-by", "node"]).args(hosts);
        job.arg(support::garonne())
            .args(["ping", "--as-rank", "--ms", "20000"]);
        let child = job
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let mut told = serde_json::Value::Null;
        until("the ranks have spoken", || {
            let said = run(&format!("why gate 0 {pid} --json"));
            told = serde_json::from_str(&said.out).unwrap_or_default();
            // Large messages come last, so nothing has been measured of those yet.
            told[0]["over"] == over && (over != "TCP" || told[0]["connections"][0]["open"] == true)
        });
        assert_eq!(told.as_array().map(Vec::len), Some(1), "{told}");
        if over == "TCP" {
            let end = |which: &str| {
                told[0]["connections"][0][which]
                    .as_str()
                    .unwrap()
                    .parse::<std::net::SocketAddr>()
            };
            assert!(end("from").is_ok() && end("to").is_ok(), "{told}");
            let first = &told[0]["connections"][0];
            assert!(first["for"] == "packets" && first["opened"] == 1, "{told}");
            let of_another_host = run(&format!("why gate 1 {pid}"));
            assert!(
                of_another_host.code == 0
                    && of_another_host
                        .out
                        .starts_with("on host 'elsewhere':\nrank 1, "),
                "{of_another_host:?}"
            );
        }
        let shown = run(&format!("why gate 0 {pid}"));
        assert!(shown.code == 0 && shown.out.contains(over), "{shown:?}");
        let nobody = run(&format!("why gate 9 {pid}"));
        assert!(
            nobody.code == 1 && nobody.err.contains("no rank 9"),
            "{nobody:?}"
        );
        kill(pid as i32, libc::SIGINT);
        finish(child);
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error_before_the_job_starts_or_at_its_end() {
    let early = run("run --trace /nonexistent/trace.json -n 1 echo ran");
    assert_eq!((early.code, early.out.as_str()), (2, ""), "{early:?}");
    assert!(early.err.contains("/nonexistent/trace.json"), "{early:?}");
    // A full disk is seen when there is something to write. The program's own failure counts for
    // more.
    let late = run("run --trace /dev/full -n 1 RANK fence finalize");
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.contains("/dev/full"), "{late:?}");
    // Where nobody traces nothing is left.
    let path = std::env::temp_dir().join(format!("garonne-untraced-{}", std::process::id()));
    let none = run(&format!("run --trace {} -n 1 true", path.display()));
    assert_eq!(none.code, 0, "{none:?}");
    assert!(!path.exists());
}
