//! Exported symbols of `libmpi.so.12`, what it needs, and what happens with a core that does not
//! fit.

use garonne_abi_gen::abi_library;
use garonne_abi_gen::conversions::Library;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// Variables that the library defines.
const VARIABLES: [&str; 3] = [
    "MPI_UNWEIGHTED",
    "MPI_WEIGHTS_EMPTY",
    "garonne_libmpi_mpich",
];

/// The library, built in the profile of this test.
fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let profile_dir = test.ancestors().nth(2).expect("target/PROFILE/deps");
    let target_dir = profile_dir.parent().expect("target/PROFILE");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let package = env!("CARGO_PKG_NAME");
    let output = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", package, "--profile", profile])
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    profile_dir.join("libmpi_mpich.so")
}

fn generated() -> Library {
    garonne_abi_gen::mpich_library().expect("the library is generated")
}

fn output_of(tool: &str, arguments: &[&str], library: &Path) -> String {
    let mut command = Command::new(tool);
    let output = command.args(arguments).arg(library).output();
    let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
    String::from_utf8(output.stdout).expect("names are ASCII")
}

fn exported() -> BTreeSet<String> {
    let text = output_of("nm", &["-D", "--defined-only"], &library());
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    names.map(String::from).collect()
}

#[test]
fn the_library_exports_its_functions_under_both_names_its_variables_and_nothing_else() {
    let mut expected: BTreeSet<String> = VARIABLES.map(String::from).into();
    for entry in generated().entries {
        if entry.is_profiled {
            expected.insert(format!("P{}", entry.name));
        }
        expected.insert(entry.name);
    }
    let found = exported();
    let none = Vec::<&String>::new();
    assert_eq!(
        found.difference(&expected).collect::<Vec<_>>(),
        none,
        "too much"
    );
    assert_eq!(
        expected.difference(&found).collect::<Vec<_>>(),
        none,
        "missing"
    );
}

#[test]
fn the_library_needs_the_core_one_directory_up_and_stays_loaded() {
    let text = output_of("readelf", &["-d", "-W"], &library());
    for part in [
        "Library soname: [libmpi.so.12]",
        "Shared library: [libmpi_abi.so.1]",
        "Library runpath: [$ORIGIN/..]",
        "NODELETE",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn a_core_that_does_not_fit_is_refused_by_the_name_of_the_table() {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("other-core");
    fs::create_dir_all(&place).expect("a directory for the test");
    let core = place.join("libmpi_abi.so.1");
    let made = Command::new("cc")
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"])
        .arg(&core)
        .status();
    assert!(made.expect("cc runs").success());
    let output = Command::new("true")
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", &place)
        .output()
        .expect("a program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let table = abi_library::table_name("mpich", &generated().entries);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains(&format!("undefined symbol: {table}")),
        "{text}"
    );
}
