//! Generator of the modules' sources: `mpi_garonne_types`, which both interfaces share, `mpi` and
//! `mpi_f08`.
//!
//! Two words between `@` depend on the compiler, and are replaced when modules are built:
//! `@any NAME@` declares a buffer of any type, kind and rank, for the module `mpi` and for routines
//! that take strings beside a buffer.

use super::routine::{Argument, ArgumentKind, Intent, Routine};
use super::{PREDEFINED_FUNCTIONS, constants};
use crate::parameters::HANDLES;
use crate::table::ConstantGroup;
use std::fmt::Write;

/// Longest line. Fortran allows 132 columns.
const COLUMNS: usize = 100;

/// Returns the source of the module of kinds, types and constants that both interfaces share.
pub fn types(template: &str, groups: &[ConstantGroup]) -> String {
    let (mut numbers, mut handles, mut operators) = (String::new(), String::new(), String::new());
    for constant in constants(groups)
        .iter()
        .filter(|constant| constant.ctype == "int")
    {
        writeln!(
            numbers,
            "  integer, parameter :: {} = {}",
            constant.name, constant.value
        )
        .unwrap();
    }
    for handle in HANDLES {
        writeln!(
            handles,
            "  type, bind(C) :: {handle}\n    integer :: MPI_VAL\n  end type"
        )
        .unwrap();
    }
    for (operator, suffix) in [("==", "eq"), ("/=", "ne")] {
        writeln!(operators, "  interface operator({operator})").unwrap();
        for handle in HANDLES {
            let name = format!(
                "{}_{suffix}",
                handle.replace("MPI_", "garonne_").to_lowercase()
            );
            writeln!(
                operators,
                "    pure function {name}(lhs, rhs) result(res)\n      import :: {handle}\n      \
                 type({handle}), intent(in) :: lhs, rhs\n      logical :: res\n    end function"
            )
            .unwrap();
        }
        writeln!(operators, "  end interface").unwrap();
    }
    template
        .replace("@numbers@\n", &numbers)
        .replace("@handles@\n", &handles)
        .replace("@operators@\n", &operators)
}

/// Returns the source of the module `mpi`.
pub fn mpi(template: &str, groups: &[ConstantGroup], routines: &[Routine]) -> String {
    let mut handles = String::new();
    for constant in constants(groups)
        .iter()
        .filter(|constant| constant.ctype != "int")
    {
        writeln!(
            handles,
            "  integer, parameter :: {} = {}",
            constant.name,
            constant.expression()
        )
        .unwrap();
    }
    let mut interfaces = String::new();
    for routine in routines.iter().filter(|routine| !routine.is_large) {
        for prefix in ["", "P"] {
            let name = format!("{prefix}{}", routine.function.name);
            let pointers = [
                "MPI_Alloc_mem",
                "MPI_Win_allocate",
                "MPI_Win_allocate_shared",
                "MPI_Win_shared_query",
            ];
            let has_pointer = pointers.contains(&routine.function.name.as_str());
            let head = if has_pointer {
                format!("  interface {name}\n")
            } else {
                "  interface\n".into()
            };
            interfaces.push_str(&head);
            interfaces.push_str(&procedure(routine, &name, Interface::Mpi));
            if has_pointer {
                let name = format!("{name}_cptr");
                interfaces.push_str(&procedure(routine, &name, Interface::MpiPointer));
            }
            interfaces.push_str("  end interface\n");
        }
    }
    template
        .replace("@handles@\n", &handles)
        .replace("@functions@\n", &predefined_functions())
        .replace("@interfaces@\n", &interfaces)
}

/// Returns the source of the module `mpi_f08`.
pub fn mpi_f08(template: &str, groups: &[ConstantGroup], routines: &[Routine]) -> String {
    let mut handles = String::new();
    for constant in constants(groups)
        .iter()
        .filter(|constant| constant.ctype != "int")
    {
        writeln!(
            handles,
            "  type({0}), parameter :: {1} = {0}({2})",
            constant.ctype,
            constant.name,
            constant.expression()
        )
        .unwrap();
    }
    let mut interfaces = String::new();
    for routine in routines
        .iter()
        .filter(|routine| !routine.is_large && routine.is_in_f08())
    {
        let large = format!("{}_c", routine.function.name);
        let large = routines
            .iter()
            .find(|other| other.is_large && other.function.name == large)
            .filter(|large| differs(routine, large));
        // With procedures, kinds of arguments do not tell the two forms apart.
        let has_callback = routine
            .arguments
            .iter()
            .any(|a| matches!(a.kind, ArgumentKind::Callback(_)));
        for prefix in ["", "P"] {
            let name = format!("{prefix}{}", routine.function.name);
            writeln!(interfaces, "  interface {name}").unwrap();
            let suffix = if routine.has_descriptors() {
                "f08ts"
            } else {
                "f08"
            };
            interfaces.push_str(&procedure(
                routine,
                &format!("{name}_{suffix}"),
                Interface::F08,
            ));
            if let Some(large) = large {
                if has_callback {
                    writeln!(interfaces, "  end interface\n  interface {name}_c").unwrap();
                }
                let specific = format!("{name}_c_{suffix}");
                interfaces.push_str(&procedure(large, &specific, Interface::F08));
            }
            writeln!(interfaces, "  end interface").unwrap();
        }
    }
    template
        .replace("@handles@\n", &handles)
        .replace("@functions@\n", &predefined_functions())
        .replace("@interfaces@\n", &interfaces)
}

/// Returns whether Fortran can tell the forms with small and with large counts apart. Numbers of
/// the width of addresses have that of counts, too.
fn differs(small: &Routine, large: &Routine) -> bool {
    let is_narrow = |argument: &Argument| argument.c.base == "int";
    let pairs = small.arguments.iter().zip(&large.arguments);
    let has_callback = small
        .arguments
        .iter()
        .any(|a| matches!(a.kind, ArgumentKind::Callback(_)));
    small.arguments.len() != large.arguments.len()
        || has_callback
        || pairs
            .into_iter()
            .any(|(small, large)| is_narrow(small) != is_narrow(large))
}

fn predefined_functions() -> String {
    let mut text = String::new();
    for name in PREDEFINED_FUNCTIONS {
        writeln!(text, "  external :: {name}").unwrap();
    }
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interface {
    /// The module `mpi`.
    Mpi,
    /// The module `mpi` with `TYPE(C_PTR)` for a pointer.
    MpiPointer,
    /// The module `mpi_f08`.
    F08,
}

/// Returns the interface of one procedure.
fn procedure(routine: &Routine, name: &str, interface: Interface) -> String {
    let mut out = String::new();
    let is_f08 = interface == Interface::F08;
    let mut names: Vec<&str> = routine.arguments.iter().map(|a| a.name.as_str()).collect();
    if !routine.is_function() {
        names.push("ierror");
    }
    let word = if routine.is_function() {
        "function"
    } else {
        "subroutine"
    };
    let bound = match is_f08 && routine.has_descriptors() {
        true => format!(" bind(C, name=\"{}\")", name.to_lowercase()),
        false => String::new(),
    };
    let result = if routine.is_function() {
        " result(res)"
    } else {
        ""
    };
    let head = format!("{word} {name}({}){bound}{result}", names.join(", "));
    writeln!(out, "    {}", wrapped(&head)).unwrap();
    for line in imports(routine, interface) {
        writeln!(out, "      {line}").unwrap();
    }
    for argument in &routine.arguments {
        let line = declaration(argument, routine, interface);
        writeln!(out, "      {}", wrapped(&line)).unwrap();
    }
    match routine.function.result.as_str() {
        "double" => writeln!(out, "      real(8) :: res"),
        "MPI_Aint" => writeln!(out, "      integer(MPI_ADDRESS_KIND) :: res"),
        _ if is_f08 => writeln!(out, "      integer, optional, intent(out) :: ierror"),
        _ => writeln!(out, "      integer, intent(out) :: ierror"),
    }
    .unwrap();
    writeln!(out, "    end {word}").unwrap();
    out
}

/// Breaks a statement that is too long.
fn wrapped(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for part in text.split_inclusive(", ") {
        if column + part.len() > COLUMNS - 10 && column > 0 {
            out.push_str("&\n        ");
            column = 0;
        }
        out.push_str(part);
        column += part.len();
    }
    out
}

/// Returns the statements that bring names of the module into an interface.
fn imports(routine: &Routine, interface: Interface) -> Vec<String> {
    let is_f08 = interface == Interface::F08;
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.into());
        }
    };
    let mut needs_pointer = false;
    for argument in &routine.arguments {
        let as_pointer = interface != Interface::Mpi;
        match &argument.kind {
            ArgumentKind::Handle(class) if is_f08 => add(class),
            ArgumentKind::Status if is_f08 => add("MPI_Status"),
            ArgumentKind::Status => add("MPI_STATUS_SIZE"),
            ArgumentKind::Address => add("MPI_ADDRESS_KIND"),
            ArgumentKind::Callback(class) if is_f08 => add(class),
            ArgumentKind::CPointer if as_pointer => needs_pointer = true,
            ArgumentKind::CPointer => add("MPI_ADDRESS_KIND"),
            ArgumentKind::Detached if is_f08 => needs_pointer = true,
            ArgumentKind::Number => match argument.c.base.as_str() {
                "MPI_Aint" => add("MPI_ADDRESS_KIND"),
                "MPI_Count" => add("MPI_COUNT_KIND"),
                "MPI_Offset" => add("MPI_OFFSET_KIND"),
                _ => {}
            },
            _ => {}
        }
    }
    if routine.function.result == "MPI_Aint" {
        add("MPI_ADDRESS_KIND");
    }
    let mut lines = Vec::new();
    if needs_pointer {
        lines.push("use, intrinsic :: iso_c_binding, only : c_ptr".into());
    }
    if !names.is_empty() {
        lines.push(format!("import :: {}", names.join(", ")));
    }
    lines.push("implicit none".into());
    lines
}

fn declaration(argument: &Argument, routine: &Routine, interface: Interface) -> String {
    let is_f08 = interface == Interface::F08;
    let name = &argument.name;
    let intent = match (argument.intent, is_f08) {
        (Intent::In, _) => ", intent(in)",
        (Intent::Out, true) => ", intent(out)",
        (Intent::InOut, true) => ", intent(inout)",
        _ => "",
    };
    let asynchronous = if argument.is_asynchronous && is_f08 {
        ", asynchronous"
    } else {
        ""
    };
    let number = match argument.c.base.as_str() {
        "MPI_Aint" => "integer(MPI_ADDRESS_KIND)",
        "MPI_Count" => "integer(MPI_COUNT_KIND)",
        "MPI_Offset" => "integer(MPI_OFFSET_KIND)",
        _ => "integer",
    };
    let dims = match (argument.is_array(), argument.dims.as_deref()) {
        (true, Some(dims)) if dims.starts_with("3,") => "(3,*)",
        (true, _) => "(*)",
        (false, _) => "",
    };
    let declared = |ctype: &str| format!("{ctype}{intent}{asynchronous} :: {name}{dims}");
    match &argument.kind {
        ArgumentKind::Number | ArgumentKind::BaseOne | ArgumentKind::ErrorCodes => declared(number),
        ArgumentKind::Weights => format!("integer{intent} :: {name}(*)"),
        ArgumentKind::Logical => declared("logical"),
        ArgumentKind::Handle(class) if is_f08 => declared(&format!("type({class})")),
        ArgumentKind::Handle(_) => declared("integer"),
        ArgumentKind::Status => {
            let many = argument.is_array() || argument.c.name.starts_with("array_");
            match (is_f08, many) {
                (true, true) => format!("type(MPI_Status){intent} :: {name}(*)"),
                (true, false) => format!("type(MPI_Status){intent} :: {name}"),
                (false, true) => format!("integer :: {name}(MPI_STATUS_SIZE,*)"),
                (false, false) => format!("integer :: {name}(MPI_STATUS_SIZE)"),
            }
        }
        ArgumentKind::Choice if is_f08 && routine.has_descriptors() => {
            format!("type(*), dimension(..){intent}{asynchronous} :: {name}")
        }
        ArgumentKind::Choice => format!("@any {name}@"),
        ArgumentKind::Detached if !is_f08 => format!("@any {name}@"),
        ArgumentKind::CPointer | ArgumentKind::Detached => match interface {
            Interface::Mpi => format!("integer(MPI_ADDRESS_KIND) :: {name}"),
            _ => format!("type(c_ptr){intent} :: {name}"),
        },
        ArgumentKind::Address => declared("integer(MPI_ADDRESS_KIND)"),
        ArgumentKind::OldInteger => declared("integer"),
        ArgumentKind::StringIn | ArgumentKind::StringOut(_) | ArgumentKind::StringOutCounted(_) => {
            format!("character(len=*){intent} :: {name}")
        }
        ArgumentKind::Strings
            if argument
                .dims
                .as_deref()
                .is_some_and(|dims| dims.contains(',')) =>
        {
            format!("character(len=*){intent} :: {name}(count,*)")
        }
        ArgumentKind::Strings => format!("character(len=*){intent} :: {name}(*)"),
        ArgumentKind::Callback(class) if is_f08 => format!("procedure({class}) :: {name}"),
        ArgumentKind::Callback(_) => format!("external :: {name}"),
    }
}
