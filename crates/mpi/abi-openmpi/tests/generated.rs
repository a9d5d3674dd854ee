//! The library lacks no function of the core, and every predefined handle has one integer in
//! Fortran.

use std::collections::HashSet;

#[test]
fn the_library_has_every_function_of_the_core() {
    let library = garonne_abi_gen::openmpi_library().expect("the library is generated");
    assert_eq!(library.missing, Vec::new());
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
    assert_eq!(count, 104, "as many as Open MPI has, and MPI_SESSION_NULL");
}
