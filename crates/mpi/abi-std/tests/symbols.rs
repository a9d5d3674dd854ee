//! Exported symbols of the library, ways to load it, and precedence of names that are defined
//! twice.

mod support;

use garonne_abi_gen::abi_library;
use std::collections::BTreeSet;
use std::process::Command;
use support::{Place, run, stdout};

fn expected() -> BTreeSet<String> {
    let table = garonne_abi_gen::functions().expect("the table parses");
    table
        .iter()
        .flat_map(|f| [f.name.clone(), format!("P{}", f.name)])
        .chain(declared(include_str!("../include/garonne_tasks.h")))
        // Finds wrappers for libraries of other languages above this one.
        .chain([String::from("garonne_wrapper")])
        .chain(tables_of_other_abis())
        // By these `libmpi.so.40` says where its predefined objects lie.
        .chain(["garonne_openmpi_objects", "garonne_openmpi_exceptions"].map(String::from))
        .collect()
}

/// Returns the tables through which `libmpi.so.12` and `libmpi.so.40` jump.
fn tables_of_other_abis() -> [String; 2] {
    let mpich = garonne_abi_gen::mpich_library().expect("the library is generated");
    let openmpi = garonne_abi_gen::openmpi_library().expect("the library is generated");
    [
        abi_library::table_name("mpich", &mpich.entries),
        abi_library::table_name("openmpi", &openmpi.entries),
    ]
}

/// Functions that a header of our own declares: words that begin with our name, before a
/// parenthesis that is not a pointer's.
fn declared(header: &str) -> Vec<String> {
    let words = header.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '('));
    let named = words.filter_map(|word| word.split_once('('));
    named
        .filter(|(name, _)| name.starts_with("garonne_"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn the_library_exports_every_function_under_both_names_and_its_tasks_and_nothing_else() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(support::library())
        .output()
        .expect("nm runs");
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    let found: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(String::from)
        .collect();
    let expected = expected();
    assert_eq!(
        found.difference(&expected).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "exported beyond the standard"
    );
    assert_eq!(
        expected.difference(&found).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "missing"
    );
}

#[test]
fn the_library_bears_the_standard_name_and_stays_loaded() {
    let output = Command::new("readelf")
        .args(["-d", "-W"])
        .arg(support::library())
        .output()
        .expect("readelf runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Library soname: [libmpi_abi.so.1]"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");
}

#[test]
fn the_library_can_be_loaded_privately_at_run_time() {
    let place = Place::new("dlopen");
    place.source(
        "main.c",
        r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            void *lib = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
            int (*version)(int *, int *), major = 0, minor = 0;
            if (!lib) { fprintf(stderr, "%s\n", dlerror()); return 1; }
            *(void **)&version = dlsym(lib, "MPI_Get_version");
            if (!version || version(&major, &minor)) return 2;
            printf("%d.%d", major, minor);
            return dlclose(lib);
        }"#,
    );
    place.compile("cc", &["main.c", "-o", "main", "-ldl"]);
    let output = Command::new(place.path("main"))
        .arg(support::library())
        .output()
        .expect("the program runs");
    assert_eq!(stdout(&output), "5.0");
}

const COUNTING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    int MPI_Get_version(int *major, int *minor) {
        int error = PMPI_Get_version(major, minor);
        *minor += 40;
        return error;
    }
"#;

const PRINTING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    int main(void) {
        int major, minor;
        MPI_Get_version(&major, &minor);
        printf("%d.%d", major, minor);
        return 0;
    }
"#;

#[test]
fn a_program_may_replace_a_function_and_reach_ours_by_its_profiling_name() {
    let place = Place::new("override-program");
    let program = place.program("main", &format!("{COUNTING}{PRINTING}"));
    assert_eq!(stdout(&run(&program, &[])), "5.40");
}

#[test]
fn a_preloaded_tool_may_replace_a_function() {
    let place = Place::new("override-preload");
    let program = place.program("main", PRINTING);
    assert_eq!(stdout(&run(&program, &[])), "5.0");
    place.source("tool.c", COUNTING);
    place.compile("cc", &["-shared", "-fPIC", "tool.c", "-o", "libtool.so"]);
    let tool = place.path("libtool.so");
    assert_eq!(
        stdout(&run(
            &program,
            &[("LD_PRELOAD", tool.to_str().expect("a plain path"))]
        )),
        "5.40"
    );
}

#[test]
fn a_tool_linked_before_the_library_may_replace_a_function() {
    let place = Place::new("override-linked");
    place.source("tool.c", COUNTING);
    place.source("main.c", PRINTING);
    place.compile("cc", &["-shared", "-fPIC", "tool.c", "-o", "libtool.so"]);
    place.compile(
        "cc",
        &[
            "main.c",
            "-o",
            "main",
            "-L.",
            "-ltool",
            "-lmpi_abi",
            "-Wl,-rpath,$ORIGIN",
        ],
    );
    assert_eq!(stdout(&run(&place.path("main"), &[])), "5.40");
}
