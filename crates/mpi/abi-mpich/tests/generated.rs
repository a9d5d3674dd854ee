//! The committed `mpi.h` with the MPICH family's ABI equals what `garonne-abi-gen` generates, and
//! the library lacks no function. `UPDATE=1` rewrites the header.

use garonne_abi_gen::abi_library::Library;
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
fn the_library_has_every_function_of_the_core() {
    assert_eq!(library().missing, Vec::new());
}
