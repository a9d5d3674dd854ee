//! The committed `mpi.h` with the MPICH family's ABI equals what `garonne-abi-gen` generates, and
//! the library lacks exactly the functions that are listed here. `UPDATE=1` rewrites the header.

use garonne_abi_gen::conversions::Library;
use garonne_abi_gen::header;
use std::fs;
use std::path::PathBuf;

fn library() -> Library {
    garonne_abi_gen::mpich_library().expect("the library is generated")
}

#[test]
fn the_header_is_what_the_tables_say() {
    let constants = garonne_abi_gen::mpich().expect("abi/mpich.txt parses");
    let expected = header::header(
        include_str!("../mpi.h.in"),
        &constants.header_groups(),
        &library().functions,
    );
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("include/mpi.h");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &expected).expect("the generated file can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is out of date: UPDATE=1 cargo test -p garonne-abi-mpich --test generated",
        path.display()
    );
}

#[test]
fn the_library_lacks_what_no_rule_converts_and_nothing_else() {
    let missing = library().missing;
    let others: Vec<String> = missing
        .iter()
        .filter(|(name, _)| !name.starts_with("MPI_T_") && !name.starts_with("MPI_Abi_"))
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    assert_eq!(
        others,
        ["MPI_Comm_spawn_multiple: array_of_errcodes: no rule knows its length, array_of_maxprocs",]
    );
}
