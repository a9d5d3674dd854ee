//! Generator of `mpi.h` and of `docs/user/conformance.md`.

use crate::table::{ConstantGroup, ConstantValue, Function};
use std::collections::HashSet;
use std::fmt::Write;

/// Types of callbacks, which are the same text in every ABI's header.
const CALLBACKS: &str = include_str!("../abi/callbacks.h.in");

/// Returns the C header: `template` with its marked places filled in.
pub fn header(template: &str, groups: &[ConstantGroup], functions: &[Function]) -> String {
    template
        .replace("@callbacks@\n", &format!("{CALLBACKS}\n"))
        .replace("@constants@\n", &constants(groups))
        .replace("@objects@\n", &objects(groups))
        .replace("@prototypes@\n", &prototypes(functions))
}

fn constants(groups: &[ConstantGroup]) -> String {
    let mut out = String::new();
    for group in groups {
        let mut what = group.description.clone();
        what[..1].make_ascii_uppercase();
        writeln!(out, "/* {what} */").unwrap();
        for (name, value) in &group.entries {
            let text = match value {
                ConstantValue::Alias(other) => other.clone(),
                ConstantValue::Number(n) if group.ctype == "int" && n.starts_with('-') => {
                    format!("({n})")
                }
                ConstantValue::Number(n) if group.ctype == "int" => n.clone(),
                ConstantValue::Number(n) if is_symbol(n) => format!("(({})&{n})", group.ctype),
                ConstantValue::Number(n) => format!("(({}){n})", group.ctype),
            };
            writeln!(out, "#define {name:<34} {text}").unwrap();
        }
        out.push('\n');
    }
    out
}

/// Returns whether the value of a constant is the name of an object: the constant is its address.
fn is_symbol(value: &str) -> bool {
    value.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Returns the declarations of the objects whose addresses are constants. Their type is
/// incomplete, so a program knows only their addresses.
fn objects(groups: &[ConstantGroup]) -> String {
    let mut out = String::new();
    for group in groups {
        for (_, value) in &group.entries {
            if let ConstantValue::Number(symbol) = value
                && is_symbol(symbol)
            {
                writeln!(out, "extern struct garonne_openmpi_abi_object {symbol};").unwrap();
            }
        }
    }
    out
}

fn prototypes(functions: &[Function]) -> String {
    let mut out = String::new();
    let mut chapter = "";
    for f in functions {
        if f.chapter != chapter {
            chapter = &f.chapter;
            writeln!(out, "\n/* {chapter} */").unwrap();
        }
        writeln!(out, "{};", f.prototype).unwrap();
        let profiled = f
            .prototype
            .replacen(&format!("{}(", f.name), &format!("P{}(", f.name), 1);
        writeln!(out, "{profiled};").unwrap();
    }
    out
}

/// An interface by which programs reach MPI, for [`conformance`].
#[derive(Debug)]
pub struct Interface {
    /// Head of its column.
    pub name: &'static str,
    /// Names of the functions of the standard that it has, implemented or not.
    pub functions: HashSet<String>,
}

/// Returns the conformance page: numbers of functions per chapter and interface, and names of
/// missing ones. The first interface is the standard ABI.
pub fn conformance(functions: &[Function], interfaces: &[Interface]) -> String {
    let of_standard = functions.iter().filter(|f| !f.is_beyond_the_standard());
    let functions = &of_standard.cloned().collect::<Vec<_>>();
    let all = functions.len();
    let done = functions.iter().filter(|f| f.implemented).count();
    let mut chapters: Vec<&str> = Vec::new();
    for f in functions {
        if !chapters.contains(&f.chapter.as_str()) {
            chapters.push(&f.chapter);
        }
    }
    let mut out = String::from("# Conformance to MPI 5.0\n\n");
    writeln!(
        out,
        "Generated from `crates/mpi/abi-gen/abi`; do not edit. The standard has {all} functions in C: {}.\n\n\
         A number counts the functions of the standard that an interface has; `0 of 8`: implemented, of those. \
         Programs reach them by the standard ABI, by those of [MPICH and Open MPI](binaries.md), and from [Fortran](fortran.md). \
         Fortran has no tool interface, and large counts only in `mpi_f08`.\n",
        match done == all {
            true => "all are implemented".into(),
            false => format!(
                "{done} are implemented, which are all but those named below. One that is not yet there raises \
                 `MPI_ERR_UNSUPPORTED_OPERATION`, by name, on the error handler of the object it was called for. \
                 (`_c`): also the form with large counts"
            ),
        }
    )
    .unwrap();
    let heads: Vec<_> = interfaces.iter().map(|interface| interface.name).collect();
    writeln!(out, "| chapter | {} |", heads.join(" | ")).unwrap();
    writeln!(out, "|---|{}", "---|".repeat(heads.len())).unwrap();
    let row = |title: &str, is_in: &dyn Fn(&&Function) -> bool| {
        let cells = interfaces.iter().map(|interface| {
            let has = |f: &&Function| interface.functions.contains(&f.name);
            let of = || functions.iter().filter(is_in).filter(has);
            match (of().filter(|f| f.implemented).count(), of().count()) {
                (_, 0) => "–".into(),
                (done, all) if done == all => done.to_string(),
                (done, all) => format!("{done} of {all}"),
            }
        });
        format!("| {title} | {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    for chapter in &chapters {
        out.push_str(&row(chapter, &|f| f.chapter == *chapter));
    }
    out.push_str(&row("all", &|_| true));
    if done == all {
        return out;
    }
    out.push_str("\n## Not yet\n\n| chapter | functions |\n|---|---|\n");
    for chapter in &chapters {
        let names: Vec<&str> = functions
            .iter()
            .filter(|f| f.chapter == *chapter && !f.implemented)
            .map(|f| f.name.as_str())
            .collect();
        if names.is_empty() {
            continue;
        }
        let is_large = |name: &str| {
            let small = name.strip_suffix("_c");
            small.is_some_and(|small| names.contains(&small))
        };
        let has_large = |name: &str| names.iter().any(|other| *other == format!("{name}_c"));
        let small = names.iter().filter(|name| !is_large(name));
        let shown: Vec<String> = small
            .map(|name| format!("`{name}`{}", if has_large(name) { "(`_c`)" } else { "" }))
            .collect();
        writeln!(out, "| {chapter} | {} |", shown.join(", ")).unwrap();
    }
    out
}
