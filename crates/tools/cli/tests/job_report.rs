//! `garonne run --json FILE`: how a job and each of its ranks ended.

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{Said, command, said};

fn run_in(dir: &Path, words: &[&str]) -> (Said, Value) {
    let said = said(
        command("run")
            .args(["--json", "end.json"])
            .args(words)
            .current_dir(dir),
    );
    let text = std::fs::read_to_string(dir.join("end.json")).unwrap_or_default();
    (said, serde_json::from_str(&text).unwrap_or_default())
}

#[test]
fn a_job_that_succeeds_is_told_with_all_ranks_and_nothing_on_its_output() {
    let place = tempfile::tempdir().unwrap();
    let (said, end) = run_in(place.path(), &["-n", "2", "sh", "-c", "echo out"]);
    assert_eq!(
        (said.code, said.out.as_str(), said.err.as_str()),
        (0, "out\nout\n", "")
    );
    assert_eq!(
        (&end["result"], &end["exit_code"]),
        (&json!("success"), &json!(0)),
        "{end}"
    );
    assert_eq!(end["error"], Value::Null);
    let ranks = end["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(
            (&rank["rank"], &rank["exit_code"]),
            (&json!(number), &json!(0)),
            "{rank}"
        );
        assert_eq!(
            (&rank["program"], &rank["signal"]),
            (&json!("sh"), &Value::Null)
        );
        assert!(rank["process"].as_i64() > Some(0) && rank["seconds"].as_f64() >= Some(0.0));
        assert!(rank["host"].as_str().is_some_and(|host| !host.is_empty()));
    }
    assert!(
        end["seconds"].as_f64() >= ranks[0]["seconds"].as_f64(),
        "{end}"
    );
}

#[test]
fn failures_signals_time_limits_and_programs_that_are_not_there_are_told_with_their_codes() {
    let place = tempfile::tempdir().unwrap();
    let one = |then: &str| format!("if [ $PMI_RANK = 1 ]; then {then}; fi; exec sleep 600");
    let (fails, dies) = (one("exit 7"), one("kill -SEGV $$"));
    for (words, code, error, rank_1) in [
        (
            &["-n", "2", "sh", "-c", &fails][..],
            7,
            "G0207",
            json!([7, null]),
        ),
        (
            &["-n", "2", "sh", "-c", &dies][..],
            139,
            "G0206",
            json!([null, "SIGSEGV"]),
        ),
        (
            &["-n", "2", "--timeout", "0.3", "sleep", "600"][..],
            124,
            "G0208",
            json!([null, "SIGTERM"]),
        ),
        (&["-n", "2", "./nothing"][..], 127, "G0210", Value::Null),
    ] {
        let (said, end) = run_in(place.path(), words);
        assert_eq!(
            (said.code, &end["exit_code"]),
            (code, &json!(code)),
            "{words:?}: {said:?} {end}"
        );
        assert_eq!(
            (&end["result"], &end["error"]["code"]),
            (&json!("failure"), &json!(error)),
            "{end}"
        );
        assert!(
            said.err.contains(end["error"]["text"].as_str().unwrap()),
            "{end}"
        );
        match rank_1 {
            Value::Null => assert_eq!(end["ranks"], json!([])),
            wanted => {
                let rank = &end["ranks"][1];
                assert_eq!(json!([rank["exit_code"], rank["signal"]]), wanted, "{end}");
                assert_eq!(end["ranks"][0]["signal"], "SIGTERM", "{end}");
            }
        }
    }
}

#[test]
fn ends_of_ranks_on_other_hosts_are_told_however_the_job_ends_and_through_hosts_between() {
    let place = tempfile::tempdir().unwrap();
    let starter = "sh -c 'shift; exec \"$@\"' sh";
    let hosts = ["--launcher", starter, "--host", "localhost,b,c,d"];
    let one = |then: &str| format!("if [ $PMI_RANK = 3 ]; then {then}; fi; exec sleep 600");
    for (then, code, rank_3) in [
        ("exit 7", 7, json!([7, null])),
        ("kill -SEGV $$", 139, json!([null, "SIGSEGV"])),
    ] {
        let said = said(
            command("run --json end.json")
                .env("GARONNE_FAN_OUT", "2")
                .args(hosts)
                .args(["sh", "-c", &one(then)])
                .current_dir(place.path()),
        );
        let text = std::fs::read_to_string(place.path().join("end.json")).unwrap();
        let end: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(said.code, code, "{said:?} {end}");
        let rank = &end["ranks"][3];
        assert_eq!(json!([rank["exit_code"], rank["signal"]]), rank_3, "{end}");
        for rank in end["ranks"].as_array().unwrap().iter().take(3) {
            assert_eq!(rank["signal"], "SIGTERM", "{end}");
            assert!(
                rank["process"].as_i64() > Some(0) && rank["seconds"].is_number(),
                "{end}"
            );
        }
    }
}

#[test]
fn ranks_of_other_hosts_are_told_and_what_is_no_document_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let starter = "sh -c 'shift; exec \"$@\"' sh";
    let hosts = ["--launcher", starter, "--host", "b:1,localhost:1"];
    let (said, end) = run_in(place.path(), &[&hosts[..], &["true"]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        (&end["ranks"][0]["host"], &end["ranks"][0]["exit_code"]),
        (&json!("b"), &json!(0)),
        "{end}"
    );
    let is_known =
        |rank: &Value| rank["process"].as_i64() > Some(0) && rank["seconds"].as_f64() >= Some(0.0);
    assert!(is_known(&end["ranks"][0]), "{end}");
    let (said, end) = run_in(
        place.path(),
        &[&hosts[..], &["sh", "-c", "exit $((PMI_RANK * 3))"]].concat(),
    );
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(end["ranks"][1]["exit_code"], 3, "{end}");
    std::fs::write(place.path().join("end.json"), "{\"mine\": 1}").unwrap();
    let (said, end) = run_in(place.path(), &["-n", "1", "echo", "begun"]);
    assert!(
        said.code == 2 && said.err.contains("G0211") && said.out.is_empty(),
        "{said:?}"
    );
    assert_eq!(end, json!({ "mine": 1 }));
}
