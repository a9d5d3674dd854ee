//! Exported symbols of `libmpi.so.12`, what it needs, and what happens with a core that does not
//! fit.

use garonne_abi_gen::abi_library::{self, Library};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// Variables that the library defines, and their sizes: those in MPICH's library, but for its texts
/// on itself, which differ from build to build.
const VARIABLES: [(&str, u64); 24] = [
    ("MPI_UNWEIGHTED", 8),
    ("MPI_WEIGHTS_EMPTY", 8),
    ("MPIR_C_MPI_UNWEIGHTED", 8),
    ("MPIR_C_MPI_WEIGHTS_EMPTY", 8),
    ("MPI_T_PVAR_ALL_HANDLES", 8),
    ("MPI_F_STATUS_IGNORE", 8),
    ("MPI_F_STATUSES_IGNORE", 8),
    ("MPI_F08_STATUS_IGNORE", 8),
    ("MPI_F08_STATUSES_IGNORE", 8),
    ("MPIR_F08_MPI_STATUS_IGNORE_OBJ", 20),
    ("MPIR_F08_MPI_STATUSES_IGNORE_OBJ", 20),
    ("MPIR_F08_MPI_BOTTOM", 4),
    ("MPIR_F08_MPI_IN_PLACE", 4),
    ("MPII_Version_ABI", 7),
    ("MPII_Version_CC", 1),
    ("MPII_Version_CXX", 1),
    ("MPII_Version_F77", 1),
    ("MPII_Version_FC", 1),
    ("MPII_Version_configure", 1),
    ("MPII_Version_custom", 1),
    ("MPII_Version_date", 1),
    ("MPII_Version_device", 8),
    ("MPII_Version_string", 6),
    ("garonne_libmpi_mpich", 4),
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

#[test]
fn the_library_exports_its_functions_under_both_names_its_variables_and_nothing_else() {
    let mut expected: BTreeSet<String> = VARIABLES.map(|(name, _)| name.into()).into();
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
fn variables_have_the_sizes_that_programs_copy() {
    let found = exported();
    for (name, size) in VARIABLES {
        assert_eq!(found.get(name), Some(&size), "{name}");
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
        "Library soname: [libmpi.so.12]",
        "Shared library: [libmpi_abi.so.1]",
        "Library rpath: [$ORIGIN/..]",
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

#[test]
fn the_fortran_and_cxx_libraries_of_the_distribution_find_what_they_need() {
    let found = exported();
    let (mut prefix, mut count) = ("", 0);
    for line in include_str!("debian.txt").lines() {
        match line {
            "[fortran profiled]" => prefix = "P",
            _ if line.starts_with('[') => prefix = "",
            _ if line.starts_with('#') => {}
            _ => {
                for name in line.split_whitespace() {
                    let name = format!("{prefix}{name}");
                    assert!(found.contains_key(&name), "{name}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 1000, "{count} names");
}
