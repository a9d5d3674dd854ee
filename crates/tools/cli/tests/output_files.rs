//! Files that take what ranks write, by both families' options.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::{Said, command, said};

fn run_in(dir: &Path, words: &[&str]) -> Said {
    said(command("run").args(words).current_dir(dir))
}

/// The files below a directory by their paths, with what is in them.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(place) = open.pop() {
        for entry in std::fs::read_dir(place).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, std::fs::read_to_string(path).unwrap());
                }
            }
        }
    }
    found
}

const SPEAK: &str = "printf 'out %s' $PMI_RANK; echo err $PMI_RANK >&2";

#[test]
fn each_rank_has_files_of_its_own_and_nothing_goes_to_the_terminal() {
    let cases: [(&[&str], [&str; 4]); 5] = [
        (
            &["--output-filename", "a"],
            ["a.0.err", "a.0.out", "a.1.err", "a.1.out"],
        ),
        (
            &["--output", "file=b:nocopy"],
            ["b.0.err", "b.0.out", "b.1.err", "b.1.out"],
        ),
        (
            &["--output-directory", "d/e"],
            [
                "d/e/rank.0/stderr",
                "d/e/rank.0/stdout",
                "d/e/rank.1/stderr",
                "d/e/rank.1/stdout",
            ],
        ),
        (
            &["-outfile-pattern", "o%%-%r", "-errfile-pattern", "e-%p-%r"],
            ["e-0-0", "o%-0", "e-0-1", "o%-1"],
        ),
        (
            &[
                "--launcher",
                "sh -c 'shift; exec \"$@\"' sh",
                "--host",
                "here,localhost",
                "--output-filename",
                "f",
            ],
            ["f.0.err", "f.0.out", "f.1.err", "f.1.out"],
        ),
    ];
    for (words, names) in cases {
        let place = tempfile::tempdir().unwrap();
        let said = run_in(
            place.path(),
            &[words, &["-n", "2", "sh", "-c", SPEAK]].concat(),
        );
        assert!(
            said.code == 0 && said.out.is_empty() && said.err.is_empty(),
            "{words:?}: {said:?}"
        );
        let texts = ["err 0\n", "out 0", "err 1\n", "out 1"].map(str::to_owned);
        let wanted: BTreeMap<String, String> =
            names.map(str::to_owned).into_iter().zip(texts).collect();
        assert_eq!(files(place.path()), wanted, "{words:?}");
    }
}

#[test]
fn ranks_share_a_file_by_lines_and_errors_stay_where_they_were() {
    let place = tempfile::tempdir().unwrap();
    let script = "for i in $(seq 500); do echo $PMI_RANK line $i; done; echo err >&2";
    let said = run_in(
        place.path(),
        &[
            "-n",
            "3",
            "-l",
            "-outfile-pattern",
            "all",
            "sh",
            "-c",
            script,
        ],
    );
    assert!(said.code == 0 && said.out.is_empty(), "{said:?}");
    assert_eq!(said.err.lines().count(), 3, "{said:?}");
    let text = std::fs::read_to_string(place.path().join("all")).unwrap();
    assert_eq!(text.lines().count(), 1500);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(
            (words.len(), words[0]),
            (4, &*format!("[{}]", words[1])),
            "{line}"
        );
    }
}

#[test]
fn what_cannot_be_written_is_told_before_any_rank_starts_and_no_program_is_overwritten() {
    let place = tempfile::tempdir().unwrap();
    std::fs::copy(support::fake_rank(), place.path().join("app")).unwrap();
    let program = std::fs::read(place.path().join("app")).unwrap();
    for (words, wanted) in [
        (["-outfile-pattern", "./app"], "a program is there"),
        (["-outfile-pattern", "o%x"], "'%x' stands for nothing"),
        (
            ["-outfile-pattern", "/proc/no/such"],
            "cannot write ranks' output to '/proc/no/such'",
        ),
        (["--output-filename", "-n"], "needs a file"),
    ] {
        let said = run_in(
            place.path(),
            &[&words[..], &["-n", "2", "sh", "-c", "echo begun >&2"]].concat(),
        );
        assert!(
            said.code == 2 && said.err.contains(wanted),
            "{words:?}: {said:?}"
        );
        assert!(
            said.err.contains("G0211") && !said.err.contains("begun"),
            "{said:?}"
        );
    }
    assert_eq!(std::fs::read(place.path().join("app")).unwrap(), program);
    // Not a plain file.
    let said = run_in(
        place.path(),
        &[
            "-n",
            "2",
            "-outfile-pattern",
            "/dev/full",
            "sh",
            "-c",
            "echo x",
        ],
    );
    assert!(said.code != 0 && said.err.contains("/dev/full"), "{said:?}");
}
