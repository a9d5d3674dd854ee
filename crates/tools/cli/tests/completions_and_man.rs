//! Completions, manual pages, help for the width of a terminal, and colour.

mod support;

use std::path::Path;
use std::process::Command;

use support::{command, garonne, run, said};

/// Returns what bash offers for the last of these words, asked as a user's tab key does, with an
/// installation's completion.
fn offered(share: &Path, words: &[&str]) -> Vec<String> {
    let script = r#"
        completion=$1; shift
        source "$completion/${1##*/}"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        function="_clap_complete_${1##*/}"
        "$function" "$1" "${COMP_WORDS[COMP_CWORD]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = garonne().parent().unwrap().to_owned();
    let path =
        std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path))).unwrap();
    let asked = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .arg(share.join("bash-completion/completions"))
        .args(words)
        .env("PATH", path)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn generated() -> tempfile::TempDir {
    let share = tempfile::tempdir().unwrap();
    let said = said(command("generate").arg(share.path()));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    share
}

#[test]
fn bash_completes_options_values_and_programs_of_all_launchers() {
    let share = generated();
    let offered = |words: &[&str]| offered(share.path(), words);
    for launcher in [&["garonne", "run"][..], &["mpirun"], &["mpiexec"]] {
        let after = |words: &[&str]| offered(&[launcher, words].concat());
        assert_eq!(after(&["--bi"]), ["--bind-to"], "{launcher:?}");
        assert_eq!(
            after(&["-n", "4", "--bind-to", "n"]),
            ["numa", "none"],
            "{launcher:?}"
        );
        assert_eq!(after(&["-bind-to", "n"]), ["numa", "none"], "{launcher:?}");
        assert!(
            after(&["--map-by", ""]).contains(&"scatter".to_owned()),
            "{launcher:?}"
        );
        assert_eq!(after(&["./Car"]), ["./Cargo.toml"], "{launcher:?}");
        // Behind the program there are its arguments, which may be files.
        assert_eq!(after(&["./app", "Car"]), ["Cargo.toml"], "{launcher:?}");
        assert!(
            !after(&["./app", "--bi"]).contains(&"--bind-to".to_owned()),
            "{launcher:?}"
        );
        assert_eq!(
            after(&["./app", ":", "--bi"]),
            ["--bind-to"],
            "{launcher:?}"
        );
        // Known from other launchers.
        assert_eq!(after(&["--oversub"]), ["--oversubscribe"], "{launcher:?}");
    }
    assert_eq!(offered(&["garonne", "expl"]), ["explain"]);
    assert_eq!(offered(&["/opt/bin/mpiexec", "--bi"]), ["--bind-to"]);
}

#[test]
fn other_shells_learn_to_ask_for_all_commands() {
    let share = generated();
    for name in ["garonne", "mpirun", "mpiexec"] {
        let zsh = std::fs::read_to_string(share.path().join(format!("zsh/site-functions/_{name}")))
            .unwrap();
        assert!(
            zsh.starts_with(&format!("#compdef {name}\n"))
                && zsh.contains("garonne -- ")
                && zsh.contains(&format!("_{name} ]]")),
            "{zsh}"
        );
        let file = share
            .path()
            .join(format!("fish/vendor_completions.d/{name}.fish"));
        let fish = std::fs::read_to_string(file).unwrap();
        assert!(fish.contains(&format!("--command {name} ")), "{fish}");
        assert_eq!(run(&format!("completions fish {name}")).out, fish);
    }
    assert_eq!(run("completions bash nosuch").code, 2);
}

#[test]
fn every_subcommand_has_a_manual_page_with_its_options() {
    let share = generated();
    let pages = share.path().join("man/man1");
    let page = |name: &str| std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
    let plain = |name: &str| page(name).replace('\\', "");
    let help = run("--help").out;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 15, "{help}");
    for name in commands {
        assert!(plain(&format!("garonne-{name}")).contains("NAME"), "{name}");
    }
    let (page_of_run, help_of_run) = (plain("garonne-run"), run("run --help").out);
    for option in help_of_run
        .split([' ', ','])
        .filter(|word| word.starts_with("--") && word.len() > 2)
    {
        let option = option.split(['[', ']', '\n']).next().unwrap_or_default();
        assert!(
            page_of_run.contains(option),
            "{option} is in no manual page"
        );
    }
    assert!(
        page_of_run.contains("garonne run -n 1 ./server : -n 3 ./client"),
        "{page_of_run}"
    );
    assert!(plain("garonne-who").contains("--json"));
    for name in ["mpirun", "mpiexec"] {
        assert_eq!(page(name), ".so man1/garonne-run.1\n");
    }
}

#[test]
fn the_old_name_of_a_subcommand_works_and_is_not_listed() {
    let share = generated();
    assert_eq!(run("rail --help").out, run("network --help").out);
    assert!(run("network --help").out.contains("garonne network"));
    assert_eq!(offered(share.path(), &["garonne", "netw"]), ["network"]);
    assert!(!offered(share.path(), &["garonne", ""]).contains(&"rail".to_owned()));
    assert!(!run("--help").out.contains("rail"));
    let pages = share.path().join("man/man1");
    assert!(pages.join("garonne-network.1").exists() && !pages.join("garonne-rail.1").exists());
    assert!(
        !std::fs::read_to_string(pages.join("garonne.1"))
            .unwrap()
            .contains("rail")
    );
}

#[test]
fn help_is_wrapped_to_the_width_of_the_terminal() {
    for line in [
        "--help",
        "run --help",
        "run --help all",
        "help run",
        "map --help",
        "network --help",
    ] {
        for width in [60, 90] {
            let said = said(command(line).env("COLUMNS", width.to_string()));
            let is_usage = |line: &&str| {
                line.starts_with("Usage:")
                    || line.starts_with("  garonne run ")
                    || line.starts_with("The exit code")
            };
            let longest = said
                .out
                .lines()
                .filter(|line| !is_usage(line))
                .map(|line| line.chars().count())
                .max();
            assert!(
                longest.is_some_and(|longest| longest <= width),
                "{line} at {width}: {longest:?}\n{}",
                said.out
            );
        }
    }
}

#[test]
fn colour_is_for_terminals_unless_it_is_asked_for() {
    let coloured = |line: &str, variable: Option<(&str, &str)>| {
        let mut command = command(line);
        command.env_remove("NO_COLOR").envs(variable);
        let said = said(&mut command);
        assert!(!said.out.contains("\\u001b"), "{said:?}");
        said.out.contains('\x1b') || said.err.contains('\x1b')
    };
    for line in ["who nosuch", "run --help", "--help", "frobnicate"] {
        assert!(!coloured(line, None), "{line}");
    }
    for line in [
        "--color always who nosuch",
        "who nosuch --color=always",
        "frobnicate --color always",
        "--colour=always --help",
        "--color always run --help",
    ] {
        assert!(coloured(line, None), "{line}");
        assert!(
            coloured(line, Some(("NO_COLOR", "1"))),
            "{line}: who asks for it gets it"
        );
        assert!(
            !coloured(
                &line.replace("always", "never"),
                Some(("CLICOLOR_FORCE", "1"))
            ),
            "{line}"
        );
    }
    // What a program reads is never coloured.
    assert!(!coloured("explain G0107 --json --color always", None));
    assert!(!coloured("ps --json --color always", None));
}
