//! The committed `mpif.h` equals what `garonne-abi-gen` generates. `UPDATE=1` rewrites it.

use garonne_abi_gen::fortran::{Routine, mpif_h};
use garonne_abi_gen::table::ConstantGroup;
use std::fs;
use std::path::PathBuf;

fn agrees(file: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, expected).expect("the generated file can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is out of date: UPDATE=1 cargo test -p garonne-abi-fortran --test generated",
        path.display()
    );
}

fn tables() -> (Vec<ConstantGroup>, Vec<Routine>) {
    (
        garonne_abi_gen::constants().expect("abi/constants.txt parses"),
        garonne_abi_gen::fortran_routines().expect("abi/fortran.txt parses"),
    )
}

#[test]
fn the_include_file_is_what_the_tables_say() {
    agrees("include/mpif.h", &mpif_h::mpif_h(&tables().0));
}

#[test]
fn every_function_that_fortran_has_is_there() {
    let (_, routines) = tables();
    let mut functions = garonne_abi_gen::functions().expect("abi/functions.txt parses");
    functions.retain(|function| !function.is_beyond_the_standard());
    // The tool interface and the conversions of handles are for C alone.
    let is_for_c = |name: &str| {
        name.starts_with("MPI_T_") || name.ends_with("_toint") || name.ends_with("_fromint")
    };
    for function in &functions {
        let is_there = routines
            .iter()
            .any(|routine| routine.function.name == function.name);
        assert_eq!(is_there, !is_for_c(&function.name), "{}", function.name);
    }
    assert_eq!(
        routines.iter().filter(|routine| !routine.is_large).count(),
        430
    );
    assert_eq!(
        routines.iter().filter(|routine| routine.is_large).count(),
        161
    );
}
