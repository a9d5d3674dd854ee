//! Generator of the exported symbols of the C library.
//!
//! Each function of the table gets two naked entry points, `MPI_X` and `PMPI_X`, which pass the
//! caller's return address on and jump to the function's wrapper.

use crate::table::Function;
use std::fmt::Write;

/// Returns the entry points of all functions. The including module has the macro `entry_point` and
/// the wrappers `wrap_MPI_X` in scope.
pub fn entry_points(functions: &[Function]) -> String {
    let mut out = String::new();
    for f in functions {
        for prefix in ["", "P"] {
            writeln!(
                out,
                "#[unsafe(naked)]\n#[unsafe(no_mangle)]\nextern \"C-unwind\" fn {prefix}{0}() {{ entry_point!(wrap_{0}) }}",
                f.name
            )
            .unwrap();
        }
    }
    out
}
