//! Generator of the exported symbols of the C library.
//!
//! Each function of the table gets two naked entry points, `MPI_X` and `PMPI_X`, which pass the
//! caller's return address on and jump to the function's wrapper.

use crate::table::Function;
use crate::wrappers::{Generic, generic_parameter};
use std::fmt::Write;

/// Returns the entry points of all functions. The including module has the macro `entry_point` and
/// the wrappers `wrap_MPI_X` in scope, and `MPI_Status` and `StandardAbi` for those that are
/// generic.
pub fn entry_points(functions: &[Function]) -> String {
    let mut out = String::new();
    for f in functions {
        let arguments = match generic_parameter(f) {
            Some(Generic::Status) => "::<MPI_Status>",
            Some(Generic::Callback) => "::<StandardAbi>",
            None => "",
        };
        for prefix in ["", "P"] {
            writeln!(
                out,
                "#[unsafe(naked)]\n#[unsafe(no_mangle)]\nextern \"C-unwind\" fn {prefix}{0}() {{ entry_point!(wrap_{0}{arguments}) }}",
                f.name
            )
            .unwrap();
        }
    }
    out
}
