//! The committed `mpi.h` and `docs/conformance.md` are what the tables say. `UPDATE=1` rewrites them.

#[path = "../generator/header.rs"]
mod header;
#[allow(dead_code, reason = "the build script reads the rest")]
#[path = "../generator/table.rs"]
mod table;

use std::fs;
use std::path::{Path, PathBuf};

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

fn functions() -> Vec<table::Function> {
    table::functions(&read(crate_dir().join("abi/functions.txt"))).expect("abi/functions.txt parses")
}

fn agrees(path: PathBuf, expected: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, expected).expect("the generated file can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is out of date: UPDATE=1 cargo test -p garonne-mpi-abi --test generated",
        path.display()
    );
}

#[test]
fn the_header_is_what_the_tables_say() {
    let constants =
        table::constants(&read(crate_dir().join("abi/constants.txt"))).expect("abi/constants.txt parses");
    let template = read(crate_dir().join("abi/mpi.h.in"));
    agrees(
        crate_dir().join("include/mpi.h"),
        &header::header(&template, &constants, &functions()),
    );
}

#[test]
fn the_conformance_page_is_what_the_table_says() {
    agrees(
        crate_dir().join("../../docs/conformance.md"),
        &header::conformance(&functions()),
    );
}

#[test]
fn the_table_has_every_function_of_the_standard_once() {
    let functions = functions();
    let names: std::collections::BTreeSet<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names.len(), functions.len(), "no function twice");
    assert_eq!(names.len(), 664);
    let kind = |test: fn(&str) -> bool| names.iter().filter(|n| test(n)).count();
    assert_eq!(kind(|n| n.starts_with("MPI_T_")), 51);
    assert_eq!(kind(|n| n.ends_with("_c")), 161);
    assert_eq!(kind(|n| n.ends_with("_toint") || n.ends_with("_fromint")), 22);
}
