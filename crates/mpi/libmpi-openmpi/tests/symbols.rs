//! Exported symbols of `libmpi.so.40`, and the sizes of objects that programs copy.

use garonne_abi_gen::abi_library::Library;
use garonne_abi_gen::openmpi;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Variables that the library defines beside the objects of handles, and their sizes.
const VARIABLES: [(&str, u64); 12] = [
    ("MPI_F_STATUS_IGNORE", 8),
    ("MPI_F_STATUSES_IGNORE", 8),
    ("MPI_F08_STATUS_IGNORE", 8),
    ("MPI_F08_STATUSES_IGNORE", 8),
    ("ompi_mpi_errors_throw_exceptions", 1024),
    ("ompi_errcodes_intern", 120),
    ("ompi_errcode_intern_lastused", 4),
    ("ompi_registered_datareps", 64),
    ("opal_class_init_epoch", 4),
    ("opal_list_item_t_class", 64),
    ("opal_uses_threads", 1),
    ("garonne_libmpi_openmpi", 4),
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
    profile_dir.join("libmpi_openmpi.so")
}

fn generated() -> Library {
    garonne_abi_gen::openmpi_library().expect("the library is generated")
}

fn output_of(tool: &str, arguments: &[&str], library: &Path) -> String {
    let mut command = Command::new(tool);
    let output = command.args(arguments).arg(library).output();
    let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
    String::from_utf8(output.stdout).expect("names are ASCII")
}

/// Names of what the library exports, with their sizes.
fn exported() -> BTreeMap<String, u64> {
    let text = output_of("nm", &["-D", "-S", "--defined-only"], &library());
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, size, _, name] = words[..] else {
            panic!("no size: {line}");
        };
        let size = u64::from_str_radix(size, 16).expect("a size");
        found.insert(name.to_owned(), size);
    }
    found
}

/// Objects of predefined handles, with their sizes.
fn objects() -> BTreeMap<String, u64> {
    let standard = garonne_abi_gen::constants().expect("the table parses");
    let groups = garonne_abi_gen::openmpi_groups().expect("the table parses");
    let objects = openmpi::objects(&standard, &groups).into_iter();
    objects
        .map(|(symbol, bytes, _)| (symbol, bytes as u64))
        .collect()
}

#[test]
fn the_library_exports_its_functions_its_objects_and_nothing_else() {
    let mut expected: BTreeSet<String> = VARIABLES.map(|(name, _)| name.into()).into();
    expected.extend(objects().into_keys());
    for entry in generated().entries {
        if entry.is_profiled {
            expected.insert(format!("P{}", entry.name));
        }
        expected.insert(entry.name);
    }
    let found: BTreeSet<String> = exported().into_keys().collect();
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
fn objects_have_the_sizes_that_programs_copy() {
    let (found, objects) = (exported(), objects());
    for (name, size) in &objects {
        assert_eq!(found.get(name), Some(size), "{name}");
    }
    for (name, size) in VARIABLES {
        assert_eq!(found.get(name), Some(&size), "{name}");
    }
    assert_eq!(objects.len(), 107, "104 of Open MPI 4.1 and 3 of 5.0");
}

#[test]
fn no_address_of_an_object_is_bound_in_the_library() {
    let text = output_of("readelf", &["-r", "-W"], &library());
    for name in objects().keys() {
        let bound = text
            .lines()
            .any(|line| line.contains("_64 ") && line.ends_with(&format!(" {name} + 0")));
        assert!(bound, "no relocation names {name}");
    }
}

#[test]
fn a_function_that_the_core_exports_is_never_found_there() {
    let found = exported();
    let functions = garonne_abi_gen::functions().expect("the table parses");
    let both = functions
        .iter()
        .flat_map(|f| [f.name.clone(), format!("P{}", f.name)]);
    let missing: Vec<String> = both.filter(|name| !found.contains_key(name)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn the_library_needs_the_core_one_directory_up_and_stays_loaded() {
    let text = output_of("readelf", &["-d", "-W"], &library());
    for part in [
        "Library soname: [libmpi.so.40]",
        "Shared library: [libmpi_abi.so.1]",
        "Library rpath: [$ORIGIN/..]",
        "NODELETE",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}
