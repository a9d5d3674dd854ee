//! Symbols of `libgomp.so.1`, and programs of `gcc -fopenmp` with it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Where distributions have GCC's own library.
const SYSTEM: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/libgomp.so.1",
    "/usr/lib/aarch64-linux-gnu/libgomp.so.1",
    "/usr/lib64/libgomp.so.1",
];

fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// The folder of the library: cargo builds none for tests of a crate that is only that.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = place.parent().unwrap();
        let built = Command::new(env!("CARGO"))
            .args(["build", "-q", "-p", "garonne-libgomp", "--target-dir"])
            .arg(target)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{text}");
        let folder = place.join("libgomp");
        std::fs::create_dir_all(&folder).unwrap();
        let linked = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("link.sh"))
            .arg(target.join("debug/libgaronne_gomp.a"))
            .arg(folder.join("libgomp.so.1"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&linked.stderr);
        assert!(linked.status.success(), "{text}");
        folder
    })
}

/// Symbols that a library defines, with their versions.
fn symbols(library: &Path) -> BTreeSet<String> {
    let output = Command::new("readelf")
        .args(["-W", "--dyn-syms"])
        .arg(library)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| line.split_whitespace().collect());
    lines
        .filter(|words: &Vec<&str>| words.len() > 7 && words[6] != "UND" && words[7].contains('@'))
        .map(|words| words[7].to_owned())
        .collect()
}

/// Symbols that the linker's script names: by version, and those of two versions twice.
fn scripted() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut version = "";
    for line in include_str!("../libgomp.map").lines() {
        let line = line.trim();
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
        } else if let Some(symbol) = line.strip_suffix(';')
            && !line.starts_with(['}', 'l'])
        {
            let is_old = version == "OMP_1.0" && symbol.contains("lock");
            let mark = if is_old { "@" } else { "@@" };
            found.insert(format!("{symbol}{mark}{version}"));
        }
    }
    found
}

#[test]
fn the_library_has_the_symbols_and_versions_of_gcc_12() {
    let own = symbols(&folder().join("libgomp.so.1"));
    let scripted = scripted();
    assert!(own.len() > 400, "{} symbols", own.len());
    let different: Vec<_> = own.symmetric_difference(&scripted).collect();
    assert!(different.is_empty(), "{different:?}");
    let version = Command::new("gcc").arg("-dumpversion").output();
    let is_12 = version.is_ok_and(|version| version.stdout.starts_with(b"12"));
    let system = SYSTEM
        .iter()
        .map(Path::new)
        .find(|library| library.exists());
    if let Some(system) = system.filter(|_| is_12) {
        let theirs = symbols(system);
        let (extra, own): (BTreeSet<_>, BTreeSet<_>) = own
            .into_iter()
            .partition(|symbol| symbol.ends_with("@@GARONNE_1"));
        assert_eq!(extra.len(), 1, "{extra:?}");
        let different: Vec<_> = own.symmetric_difference(&theirs).collect();
        assert!(different.is_empty(), "{different:?}");
    }
}

/// A program of this folder, built with GCC.
fn program(name: &str) -> PathBuf {
    static BUILDS: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDS.lock();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new(compiler())
        .args(["-Wall", "-Werror", "-O2", "-fopenmp"])
        .arg(&source)
        .arg("-o")
        .arg(program.with_extension("new"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{text}");
    // Another test may run it just now.
    std::fs::rename(program.with_extension("new"), &program).unwrap();
    program
}

/// Runs a program with variables of the environment. Returns what it printed.
fn run(name: &str, variables: &[(&str, &str)]) -> (bool, String, String) {
    let ran = Command::new("timeout")
        .arg("200")
        .arg(program(name))
        .env("LD_LIBRARY_PATH", folder())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.success(), text(&ran.stdout), text(&ran.stderr))
}

#[test]
fn a_program_uses_every_construct() {
    for threads in ["1", "2", "5", "16"] {
        let variables = [("OMP_NUM_THREADS", threads), ("OMP_CANCELLATION", "true")];
        let (is_well, out, err) = run("constructs", &variables);
        assert!(
            is_well && out == "all is well\n",
            "{threads} threads: {out}{err}"
        );
    }
}

#[test]
fn the_environment_is_told() {
    let variables = [
        ("OMP_DISPLAY_ENV", "true"),
        ("OMP_NUM_THREADS", "3,2"),
        ("OMP_SCHEDULE", "guided,4"),
        ("OMP_CANCELLATION", "true"),
    ];
    let (is_well, _, err) = run("constructs", &variables);
    assert!(is_well, "{err}");
    for line in [
        "OMP_NUM_THREADS = '3,2'",
        "OMP_SCHEDULE = 'GUIDED,4'",
        "OMP_NESTED = 'TRUE'",
    ] {
        assert!(err.contains(line), "{line}: {err}");
    }
}

#[test]
fn inner_regions_start_no_threads_of_the_system() {
    let (is_well, out, err) = run("nested", &[("CHECK_THREADS", "1")]);
    assert!(is_well && out == "all is well\n", "{out}{err}");
}

/// Bubble schedulers that a process can have from its beginning.
const SCHEDULERS: [&str; 6] = ["spread", "steal", "gang", "affinity", "memory", "flat"];

#[test]
fn teams_are_bubbles_under_every_scheduler() {
    for scheduler in SCHEDULERS {
        for (name, variables) in [
            (
                "nested",
                [("OMP_NUM_THREADS", "4"), ("OMP_DYNAMIC", "false")],
            ),
            (
                "constructs",
                [("OMP_NUM_THREADS", "5"), ("OMP_DYNAMIC", "false")],
            ),
            (
                "constructs",
                [("OMP_NUM_THREADS", "3"), ("OMP_PROC_BIND", "spread,close")],
            ),
        ] {
            let [threads, other] = variables;
            let cancellation = ("OMP_CANCELLATION", "true");
            let variables = [threads, other, cancellation, ("GARONNE_BUBBLES", scheduler)];
            let (is_well, out, err) = run(name, &variables);
            let is_silent = out == "all is well\n" && err.is_empty();
            assert!(is_well && is_silent, "{scheduler}, {name}: {out}{err}");
        }
    }
}

/// A value at a path of a trace's line.
fn at<'a>(line: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(line, |value, name| &value[*name])
}

#[test]
fn the_bubble_of_an_inner_team_lies_in_that_of_the_team_around() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nested.jsonl");
    let variables = [
        ("GARONNE_BUBBLES", "spread"),
        ("GARONNE_BUBBLES_TRACE", file.to_str().unwrap()),
    ];
    let (is_well, out, err) = run("nested", &variables);
    assert!(is_well && out == "all is well\n", "{out}{err}");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let bubbles: BTreeMap<u64, (Option<u64>, &str)> = lines
        .iter()
        .filter_map(|line| {
            let number = at(line, &["new", "entity", "bubble"]).as_u64()?;
            let name = at(line, &["new", "name"]).as_str()?;
            Some((number, (at(line, &["new", "parent"]).as_u64(), name)))
        })
        .collect();
    let of_level = |level: &str| {
        let ending = format!("level {level}");
        bubbles.values().filter(move |it| it.1.ends_with(&ending))
    };
    assert!(of_level("1").all(|(parent, _)| parent.is_none()));
    // The program has twelve rounds; each of eight threads begins a team in each.
    assert_eq!(of_level("2").count(), 12 * 8);
    for (parent, name) in of_level("2") {
        let around = parent.and_then(|parent| bubbles.get(&parent));
        assert!(around.is_some_and(|it| it.1.ends_with("level 1")), "{name}");
    }
    // Threads of inner teams ran where a scheduler put them.
    let inner = |line: &&Value| {
        let parent = at(line, &["new", "parent"]).as_u64();
        let around = parent.and_then(|parent| bubbles.get(&parent));
        !at(line, &["new", "entity", "thread"]).is_null()
            && around.is_some_and(|it| it.1.ends_with("level 2"))
    };
    let threads: BTreeSet<u64> = lines
        .iter()
        .filter(inner)
        .filter_map(|line| at(line, &["new", "entity", "thread"]).as_u64())
        .collect();
    let ran: BTreeSet<u64> = lines
        .iter()
        .filter(|line| !at(line, &["move", "to", "run"]).is_null())
        .filter_map(|line| at(line, &["move", "entity", "thread"]).as_u64())
        .collect();
    assert_eq!(threads.len(), 12 * 8 * 7);
    assert!(threads.is_subset(&ran));
}
