//! `garonne ps`, and jobs by their names.

mod support;

use serde_json::Value;
use support::{command, finish, kill, run, until};

fn json(line: &str) -> Value {
    serde_json::from_str(&run(line).out).unwrap_or_default()
}

/// The job of this name among those that are listed.
fn listed(name: &str) -> Option<Value> {
    let all = json("ps --json");
    let of_name = all.as_array()?.iter().find(|job| job["name"] == name);
    of_name.cloned()
}

#[test]
fn jobs_are_listed_with_the_names_that_they_were_given_or_got_of_their_programs() {
    let named = command("run -n 2 --name heat-1 RANK forever")
        .spawn()
        .unwrap();
    let other = command("run -n 3 sh -c :;sleep${IFS}100").spawn().unwrap();
    until("a job runs by the name that it was given", || {
        listed("heat-1").is_some_and(|job| job["state"] == "running")
    });
    let job = listed("heat-1").unwrap();
    assert_eq!(
        (&job["ranks"], &job["launcher"]),
        (&Value::from(2), &Value::from(named.id()))
    );
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert!(
        now.as_secs() - job["started_s"].as_u64().unwrap() < 100,
        "{job}"
    );
    assert_eq!(job["hosts"].as_array().unwrap().len(), 1);
    let mut derived = None;
    until("the other is listed", || {
        let all = json("ps --json");
        let is_other = |job: &&Value| job["launcher"] == other.id();
        derived = all
            .as_array()
            .and_then(|all| all.iter().find(is_other).cloned());
        derived.is_some()
    });
    let derived = derived.unwrap();
    assert!(
        derived["name"].as_str().unwrap().starts_with("sh-"),
        "{derived}"
    );
    assert_eq!(derived["state"], "not in MPI");
    let table = run("ps").out;
    assert!(
        table
            .lines()
            .any(|line| line.trim_start().starts_with("heat-1 ") && line.contains("running")),
        "{table}"
    );
    for line in [
        "ps heat-1 --json",
        "ps -n heat-1 --json",
        "ps --name heat- --json",
    ] {
        let ranks = json(line)["of_rank"].as_array().map(Vec::len);
        assert_eq!(ranks, Some(2), "{line}");
    }
    assert!(run("ps -n heat-1").out.contains("running"));
    // Who is asked for a job that is not there says which are.
    for line in [
        "who heat-7",
        "top --once heat-7",
        "map heat-7",
        "ps heat-7",
        "why paces heat-7",
        "trace heat-7",
        "overlap heat-7",
    ] {
        let said = run(line);
        let is_named = said.err.contains("is called 'heat-7'") && said.err.contains("  heat-1 ");
        assert!(said.code == 1 && is_named, "{line}: {said:?}");
    }
    // Without a name the machine is shown, and which jobs could be.
    let map = run("map");
    assert!(
        map.out.contains("Machine") && map.err.contains("  heat-1 "),
        "{map:?}"
    );
    for line in [
        "who heat-1",
        "top --once --every 0.05 heat-1",
        "map heat-1",
        "why background heat-1",
        "who heat",
    ] {
        assert!(run(line).err.is_empty(), "{line}");
    }
    let job = command("run -n 1 --name heat-1 RANK forever")
        .spawn()
        .unwrap();
    until("two jobs of one name are told apart", || {
        let said = run("who heat-1");
        said.code == 1
            && said.err.contains("several jobs are called 'heat-1'")
            && said.err.contains(&format!("  {}  ", job.id()))
    });
    for job in [named, other, job] {
        kill(job.id() as i32, libc::SIGTERM);
        finish(job);
    }
    assert_eq!(listed("heat-1"), None);
}

#[test]
fn a_name_that_would_be_taken_for_something_else_is_refused_before_anything_starts() {
    for (name, ranks) in [("12", "1"), ("-x", "1"), ("a/b", "1"), ("", "1")] {
        let mut job = command("run -n");
        let said = support::said(job.args([ranks, "--name", name, "true"]));
        assert!(
            said.code == 2 && said.err.contains("a name of up to 64"),
            "{name:?}: {said:?}"
        );
    }
}
