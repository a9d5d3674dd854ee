//! The committed `mpi.h` and `docs/user/conformance.md` equal what `garonne-abi-gen` generates.
//! `UPDATE=1` rewrites them.

use garonne_abi_gen::header;
use garonne_abi_gen::table::Function;
use std::fs;
use std::path::PathBuf;

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn functions() -> Vec<Function> {
    garonne_abi_gen::functions().expect("abi/functions.txt parses")
}

fn agrees(path: PathBuf, expected: &str) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, expected).expect("the generated file can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is out of date: UPDATE=1 cargo test -p garonne-abi-std --test generated",
        path.display()
    );
}

#[test]
fn the_header_is_what_the_tables_say() {
    let constants = garonne_abi_gen::constants().expect("abi/constants.txt parses");
    agrees(
        crate_dir().join("include/mpi.h"),
        &header::header(garonne_abi_gen::HEADER_TEMPLATE, &constants, &functions()),
    );
}

#[test]
fn the_conformance_page_is_what_the_table_says() {
    agrees(
        crate_dir().join("../../../docs/user/conformance.md"),
        &header::conformance(
            &functions(),
            &garonne_abi_gen::interfaces().expect("the tables parse"),
        ),
    );
}

/// Names of parameters in which libraries and older drafts differ from the standard, as its text
/// has them: Fortran programs name arguments by them.
const NAMED: [(&str, &str); 18] = [
    ("MPI_Add_error_string", "errorcode string"),
    (
        "MPI_Comm_create_from_group",
        "group stringtag info errhandler newcomm",
    ),
    ("MPI_Error_string", "errorcode string resultlen"),
    (
        "MPI_Graph_create",
        "comm_old nnodes index edges reorder comm_graph",
    ),
    ("MPI_Graph_get", "comm maxindex maxedges index edges"),
    ("MPI_Graph_map", "comm nnodes index edges newrank"),
    (
        "MPI_Intercomm_create_from_groups",
        "local_group local_leader remote_group remote_leader stringtag info errhandler newintercomm",
    ),
    (
        "MPI_Precv_init",
        "buf partitions count datatype source tag comm info request",
    ),
    (
        "MPI_Psend_init",
        "buf partitions count datatype dest tag comm info request",
    ),
    (
        "MPI_Request_get_status_any",
        "count array_of_requests index flag status",
    ),
    ("MPI_T_enum_get_item", "enumtype index value name name_len"),
    ("MPI_Testany", "count array_of_requests index flag status"),
    ("MPI_Waitany", "count array_of_requests index status"),
    ("MPI_Win_fence", "assert win"),
    ("MPI_Win_lock", "lock_type rank assert win"),
    ("MPI_Win_lock_all", "assert win"),
    ("MPI_Win_post", "group assert win"),
    ("MPI_Win_start", "group assert win"),
];

#[test]
fn parameters_are_named_as_in_the_standard() {
    let functions = functions();
    let names = |function: &Function| {
        let names: Vec<&str> = function
            .params
            .iter()
            .map(|param| param.name.as_str())
            .collect();
        names.join(" ")
    };
    let find = |name: &str| functions.iter().find(|function| function.name == name);
    for (function, expected) in NAMED {
        assert_eq!(
            names(find(function).expect(function)),
            expected,
            "{function}"
        );
    }
    // A function with large counts has the names of the one with small ones, and more where the
    // standard adds an argument.
    for large in functions
        .iter()
        .filter(|function| function.name.ends_with("_c"))
    {
        let Some(small) = find(&large.name[..large.name.len() - 2]) else {
            continue;
        };
        if small.params.len() == large.params.len() {
            assert_eq!(names(small), names(large), "{}", large.name);
        }
    }
}

#[test]
fn counts_of_partitions_are_large_in_the_large_forms_alone() {
    for function in functions() {
        let (large, part) = (
            function.name.ends_with("_c"),
            function.name.ends_with("_init"),
        );
        if function.name.starts_with("MPI_Psend_init")
            || function.name.starts_with("MPI_Precv_init")
        {
            assert_ne!(large, part);
            let kind = if large {
                "MPI_Count count"
            } else {
                "int count"
            };
            assert!(
                function
                    .prototype
                    .contains(&format!("int partitions, {kind}")),
                "{}",
                function.prototype
            );
        }
    }
}

#[test]
fn the_table_has_every_function_of_the_standard_once() {
    let mut functions = functions();
    functions.retain(|function| !function.is_beyond_the_standard());
    let names: std::collections::BTreeSet<&str> =
        functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names.len(), functions.len(), "no function twice");
    assert_eq!(names.len(), 664);
    let kind = |test: fn(&str) -> bool| names.iter().filter(|n| test(n)).count();
    assert_eq!(kind(|n| n.starts_with("MPI_T_")), 51);
    assert_eq!(kind(|n| n.ends_with("_c")), 161);
    assert_eq!(
        kind(|n| n.ends_with("_toint") || n.ends_with("_fromint")),
        22
    );
}
