//! Command lines and settings that are wrong: each answer says what is wrong and what to write
//! instead, once.

mod support;

use support::{command, said};

/// Runs `garonne` with the words of `line`, of which `NAME=VALUE` at the beginning are variables.
fn run(line: &str) -> support::Said {
    let mut words = line.split(' ').peekable();
    let mut env = Vec::new();
    while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
        env.push((name.to_owned(), value.to_owned()));
        words.next();
    }
    said(command(&words.collect::<Vec<_>>().join(" ")).envs(env))
}

#[test]
fn wrong_usages_are_answered_with_what_to_write_instead() {
    for (line, code, words) in [
        ("rnu -n 2 RANK", 2, "did you mean garonne run?"),
        ("-n 2 RANK", 2, "garonne run -n 2 "),
        ("./app", 2, "garonne run ./app"),
        ("why foo", 2, "there are: binding"),
        (
            "strategy foo",
            1,
            "'foo' is no strategy and no file here; built in are: immediate",
        ),
        (
            "run -n 2 -x RANK",
            2,
            "was taken as the value of option '-x'",
        ),
        ("run -n 2 : RANK", 2, "no program before ':'"),
        (
            "run -n 2 -machinefile RANK",
            2,
            "is no file of hosts: it is not text",
        ),
        (
            "run -n 2 --hostfile /dev/zero RANK",
            2,
            "more than 67108864 bytes",
        ),
        (
            "run -n 2 -configfile /dev/zero",
            2,
            "more than 67108864 bytes",
        ),
        (
            "GARONNE_JOIN_KEY=/dev/zero join",
            2,
            "more than 65536 bytes",
        ),
        ("overlap /dev/zero", 1, "it is a device, not a file"),
        ("run -n 2 --cpu-set 900 RANK", 2, "this process may use "),
        ("run -n 2 --stdin foo RANK", 2, "'foo' is not a rank"),
        (
            "GARONNE_CHECK=typs run -n 2 RANK",
            2,
            "error[G0225]: GARONNE_CHECK=\"typs\"; there are: types",
        ),
        (
            "GARONNE_BACKGROUND=maybe run -n 2 RANK",
            2,
            "there are: 0, 1, always",
        ),
        ("GARONNE_SHARDS=x run -n 2 RANK", 2, "there are: 1 to 16"),
        ("GARONNE_FAN_OUT=x run -n 2 RANK", 2, "numbers from 2"),
        (
            "MPIEXEC_TIMEOUT=abc run -n 2 RANK",
            2,
            "MPIEXEC_TIMEOUT=\"abc\" is not a number of seconds",
        ),
    ] {
        let said = run(line);
        assert!(
            said.code == code && said.err.contains(words),
            "{line}: {said:?}"
        );
        assert_eq!(said.err.matches(words).count(), 1, "{line}: {said:?}");
        assert!(said.out.is_empty(), "{line}: {said:?}");
    }
    let strategy = run("strategy foo");
    assert!(!strategy.err.contains("GARONNE_STRATEGY"), "{strategy:?}");
}

#[test]
fn what_changes_nothing_is_said_once_and_the_job_runs() {
    for (line, words) in [
        (
            "GARONNE_CHEK=types run -n 2 RANK finalize",
            "GARONNE_CHEK is no setting and changes nothing; did you mean GARONNE_CHECK?",
        ),
        (
            "run -n 2 -x GARONNE_SHARD=1 RANK finalize",
            "GARONNE_SHARD is no setting and changes nothing; did you mean GARONNE_SHARDS?",
        ),
        (
            "run -n 2 --cpu-set 0 --bind-to core RANK finalize",
            "ranks 0-1 share CPUs 0: there are too few for each to have its own",
        ),
        (
            "run -n 2 --cpu-set 0 --cpus-per-rank 4 RANK finalize",
            "ranks 0-1 are not bound as asked for: ",
        ),
    ] {
        let said = run(line);
        assert!(said.code == 0, "{line}: {said:?}");
        assert_eq!(said.err.matches(words).count(), 1, "{line}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "{line}: {said:?}");
    }
    for line in [
        "run -n 2 RANK finalize",
        "run -n 2 --bind-to none RANK finalize",
    ] {
        let said = run(line);
        assert!(said.code == 0 && said.err.is_empty(), "{line}: {said:?}");
    }
}
