//! The committed `mpi.h` with Open MPI's ABI equals what `garonne-abi-gen` generates. The library
//! lacks no function of the core, and every predefined handle has one integer in Fortran.
//! `UPDATE=1` rewrites the header.

use garonne_abi_gen::abi_library::Library;
use garonne_abi_gen::header;
use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

fn library() -> Library {
    garonne_abi_gen::openmpi_library().expect("the library is generated")
}

#[test]
fn the_header_is_what_the_tables_say() {
    let constants = garonne_abi_gen::openmpi().expect("abi/openmpi.txt parses");
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
        "{} is out of date: UPDATE=1 cargo test -p garonne-abi-openmpi --test generated",
        path.display()
    );
}

#[test]
fn the_library_has_every_function_of_the_core() {
    assert_eq!(library().missing, Vec::new());
}

#[test]
fn integers_of_fortran_are_given_once() {
    let groups = garonne_abi_gen::openmpi_fortran().expect("abi/openmpi_fortran.txt parses");
    let mut count = 0;
    for group in groups {
        let values: HashSet<String> = group
            .entries
            .iter()
            .map(|(_, value)| format!("{value:?}"))
            .collect();
        assert_eq!(values.len(), group.entries.len(), "{}", group.ctype);
        count += values.len();
    }
    // As many as Open MPI 4 has, MPI_ERRORS_ABORT and MPI_SESSION_NULL.
    assert_eq!(count, 105);
}
