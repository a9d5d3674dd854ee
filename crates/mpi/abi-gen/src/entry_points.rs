//! Generator of the exported symbols of the C library.
//!
//! Each function of the table gets two naked entry points, `MPI_X` and `PMPI_X`, which pass the
//! caller's return address on and jump to the function's wrapper.

use crate::table::Function;
use crate::wrappers::{Generic, generic_parameter};
use std::fmt::Write;

/// Returns what a function's wrapper takes as its type argument.
fn type_argument(f: &Function) -> &'static str {
    match generic_parameter(f) {
        Some(Generic::Status) => "::<MPI_Status>",
        Some(Generic::Callback) => "::<StandardAbi>",
        None => "",
    }
}

/// Returns the function `wrapper_of`, which finds a wrapper by the name of its function. Needs what
/// [`entry_points`] needs.
pub fn wrapper_lookup(functions: &[Function]) -> String {
    let mut out = String::from(
        "pub(crate) fn wrapper_of(name: &[u8]) -> Option<*const c_void> {\n    Some(match name {\n",
    );
    for f in functions {
        let arguments = type_argument(f);
        writeln!(
            out,
            "        b\"{0}\" => wrap_{0}{arguments} as *const c_void,",
            f.name
        )
        .unwrap();
    }
    out.push_str("        _ => return None,\n    })\n}\n");
    out
}

/// Returns the entry points of the standard ABI. The including module has the macro `entry_point`
/// and the wrappers `wrap_MPI_X` in scope, and `MPI_Status` and `StandardAbi` for those that are
/// generic.
pub fn entry_points(functions: &[Function]) -> String {
    let mut out = String::new();
    for f in functions {
        let arguments = type_argument(f);
        entry_point(&mut out, &f.name, arguments);
    }
    out
}

/// Returns the entry points of another ABI, whose wrappers are not generic. The including module
/// has the macro `entry_point` and the wrappers `wrap_MPI_X` in scope.
pub fn entry_points_of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for name in names {
        entry_point(&mut out, name, "");
    }
    out
}

fn entry_point(out: &mut String, name: &str, arguments: &str) {
    for prefix in ["", "P"] {
        writeln!(
            out,
            "#[unsafe(naked)]\n#[unsafe(no_mangle)]\nextern \"C-unwind\" fn {prefix}{name}() {{ entry_point!(wrap_{name}{arguments}) }}"
        )
        .unwrap();
    }
}
