//! Generators of what Open MPI's ABI alone has: objects of predefined handles, and their
//! integers in Fortran.

use crate::parameters::HANDLES;
use crate::table::{ConstantGroup, ConstantValue};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Datatypes that the standard does not have, each with its object.
const MORE_DATATYPES: [(&str, &str); 5] = [
    ("MPI_LB", "ompi_mpi_lb"),
    ("MPI_UB", "ompi_mpi_ub"),
    ("MPI_2COMPLEX", "ompi_mpi_2cplex"),
    ("MPI_2DOUBLE_COMPLEX", "ompi_mpi_2dblcplex"),
    ("MPI_LONG_DOUBLE_COMPLEX", "ompi_mpi_ldblcplex"),
];

/// First word of an object that stands for nothing in the standard ABI. Addresses are smaller, so
/// no handle that names nothing has such a word.
const NOTHING: usize = 1 << 62 | 1 << 61;

/// Bytes of the object of a handle.
fn bytes(ctype: &str) -> usize {
    match ctype {
        "MPI_Op" => 2048,
        "MPI_Errhandler" => 1024,
        "MPI_File" => 1536,
        // Sessions: since 5.0. Earlier programs have no such object.
        "MPI_Comm" | "MPI_Datatype" | "MPI_Win" | "MPI_Session" => 512,
        _ => 256,
    }
}

fn number(value: &ConstantValue) -> Option<usize> {
    let ConstantValue::Number(text) = value else {
        return None;
    };
    match text.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the words of the standard ABI by the names of predefined handles.
fn words(standard: &[ConstantGroup]) -> BTreeMap<&str, usize> {
    let handles = standard
        .iter()
        .filter(|group| HANDLES.contains(&group.ctype.as_str()));
    let entries = handles.flat_map(|group| &group.entries);
    let words = entries.filter_map(|(name, value)| Some((name.as_str(), number(value)?)));
    words.collect()
}

/// Returns the objects of the library, each with its symbol, the bytes that programs copy, and its
/// first word.
pub fn objects(
    standard: &[ConstantGroup],
    openmpi: &[ConstantGroup],
) -> Vec<(String, usize, usize)> {
    let words = words(standard);
    let mut objects = Vec::new();
    for group in openmpi {
        if !HANDLES.contains(&group.ctype.as_str()) {
            continue;
        }
        for (name, value) in &group.entries {
            match (value, words.get(name.as_str())) {
                (ConstantValue::Number(symbol), Some(word)) if symbol != "-" => {
                    objects.push((symbol.clone(), bytes(&group.ctype), *word));
                }
                _ => {}
            }
        }
    }
    for (at, (_, symbol)) in MORE_DATATYPES.into_iter().enumerate() {
        objects.push((symbol.into(), bytes("MPI_Datatype"), NOTHING + at));
    }
    objects
}

/// Returns the Rust code of the objects and of the list of their addresses. The including
/// module has the type `Address`, and `object`, which makes an object of its first word.
pub fn objects_code(objects: &[(String, usize, usize)]) -> String {
    let mut out = String::new();
    for (symbol, bytes, word) in objects {
        writeln!(
            out,
            "/// `{symbol}`.\n#[unsafe(no_mangle)]\npub static {symbol}: [usize; {}] = object({word:#x});",
            bytes / size_of::<usize>()
        )
        .unwrap();
    }
    writeln!(out, "static ADDRESSES: [Address; {}] = [", objects.len()).unwrap();
    for (symbol, ..) in objects {
        writeln!(out, "    Address((&raw const {symbol}).cast()),").unwrap();
    }
    out.push_str("];\n");
    out
}

/// Returns the Rust code of a function that gives the predefined handles of a kind: each with its
/// word in the standard ABI and its integer in Fortran.
pub fn fortran_integers(standard: &[ConstantGroup], integers: &[ConstantGroup]) -> String {
    let mut words = words(standard);
    let more = MORE_DATATYPES.iter().enumerate();
    words.extend(more.map(|(at, (name, _))| (*name, NOTHING + at)));
    let mut out = String::from(
        "/// Words of the standard ABI and integers of Fortran of predefined handles.\npub fn fortran_integers(kind: HandleKind) -> &'static [(usize, c_int)] {\n    match kind {\n",
    );
    for group in integers {
        let kind = group.ctype.strip_prefix("MPI_").unwrap_or(&group.ctype);
        writeln!(out, "        HandleKind::{kind} => &[").unwrap();
        for (name, value) in &group.entries {
            if let (Some(word), Some(integer)) = (words.get(name.as_str()), number(value)) {
                writeln!(out, "            ({word:#x}, {integer}),").unwrap();
            }
        }
        out.push_str("        ],\n");
    }
    out.push_str("    }\n}\n");
    out
}
