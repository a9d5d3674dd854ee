//! Exported symbols of `libmpi_mpifh.so.40`, compared with those of the distribution's library
//! and with what the distribution's module libraries refer to.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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
    profile_dir.join("libmpi_mpifh.so")
}

fn output_of(tool: &str, arguments: &[&str], library: &Path) -> String {
    let mut command = Command::new(tool);
    let output = command.args(arguments).arg(library).output();
    let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
    String::from_utf8(output.stdout).expect("names are ASCII")
}

/// Names of what the library exports.
fn exported() -> BTreeSet<String> {
    let text = output_of("nm", &["-D", "--defined-only"], &library());
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    names.map(String::from).collect()
}

/// Names in a section of `debian.txt`.
fn listed(section: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    let mut current = "";
    for line in include_str!("debian.txt").lines() {
        match line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(name) => current = name,
            None if line.starts_with('#') => {}
            None if current == section => names.extend(line.split_whitespace()),
            None => {}
        }
    }
    names
}

#[test]
fn every_routine_has_the_names_that_compilers_make_of_it() {
    let found = exported();
    for (prefix, section) in [("mpi", "mpi"), ("mpix", "mpix")] {
        for name in listed(section) {
            for prefix in [prefix.to_string(), format!("p{prefix}")] {
                let plain = format!("{prefix}_{name}");
                let upper = plain.to_uppercase();
                for symbol in [plain.clone(), plain.clone() + "_", plain + "__", upper] {
                    assert!(found.contains(&symbol), "{symbol}");
                }
            }
            let inner = format!("o{prefix}_{name}_f");
            assert!(found.contains(&inner), "{inner}");
        }
    }
    assert_eq!((listed("mpi").len(), listed("mpix").len()), (369, 22));
}

#[test]
fn the_library_of_mpi_f08_finds_what_it_needs() {
    let found = exported();
    let own = listed("ompi").into_iter();
    let extended = listed("mpix").into_iter();
    let names = own
        .map(|name| format!("ompi_{name}_f"))
        .chain(extended.map(|name| format!("ompix_{name}_f")))
        .chain(listed("mpi_f08").into_iter().map(String::from));
    let mut count = 0;
    for name in names {
        assert!(found.contains(&name), "{name}");
        count += 1;
    }
    assert_eq!(count, 315 + 22 + 32);
}

#[test]
fn common_blocks_and_sizes_of_variables_are_there() {
    let found = exported();
    for block in [
        "bottom",
        "in_place",
        "argv_null",
        "argvs_null",
        "errcodes_ignore",
        "status_ignore",
        "statuses_ignore",
        "unweighted",
        "weights_empty",
    ] {
        assert!(found.contains(&format!("mpi_fortran_{block}_")), "{block}");
    }
    let sizes = found.iter().filter(|name| name.contains("mpi_sizeof_"));
    assert_eq!(sizes.count(), 384);
}

#[test]
fn the_library_needs_the_c_library_beside_it() {
    let text = output_of("readelf", &["-d", "-W"], &library());
    for part in [
        "Library soname: [libmpi_mpifh.so.40]",
        "Shared library: [libmpi.so.40]",
        "Library runpath: [$ORIGIN]",
        "NODELETE",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}
