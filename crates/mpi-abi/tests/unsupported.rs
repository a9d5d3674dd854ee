//! A function that is not there yet says so, by its name.

mod support;
#[path = "../generator/table.rs"]
#[allow(dead_code, reason = "names and states are enough here")]
mod table;

use support::{Place, run};

#[test]
fn a_missing_function_ends_the_program_with_its_name() {
    let place = Place::new("unsupported");
    let functions = table::functions(include_str!("../abi/functions.txt")).expect("the table parses");
    let missing = functions
        .iter()
        .find(|f| !f.implemented && f.params.iter().all(|p| p.base == "MPI_Win"));
    let Some(missing) = missing else { return };
    let arguments = vec!["MPI_WIN_NULL"; missing.params.len()].join(", ");
    let program = place.program(
        "main",
        &format!("#include <mpi.h>\n#include <stdio.h>\nint main(void) {{ printf(\"before\"); {}({arguments}); return 0; }}", missing.name),
    );
    let output = run(&program, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        said.contains(&missing.name) && said.contains("not implemented"),
        "{said}"
    );
    assert_eq!(output.stdout, b"before", "what the program printed is not lost");
}
