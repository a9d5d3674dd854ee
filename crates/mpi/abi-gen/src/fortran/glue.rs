//! Generator of the Rust code between Fortran and C: one function for each routine.
//!
//! A routine has two entry points, for `MPI_X` and `PMPI_X`. They pass the caller's return address
//! on, as the C library's do, so that errors name a line of the Fortran program. With buffers,
//! `mpi_f08` has forms of its own, which take descriptors of arrays.

use super::names::Names;
use super::routine::{Argument, ArgumentKind, Intent, Routine};
use super::{PREDEFINED_FUNCTIONS, REMOVED_ROUTINES};
use crate::table::{ConstantGroup, ConstantValue};
use std::fmt::Write;

/// Returns the code. `routines` are those of [`super::routines`], `groups` the constants of the
/// ABI. The including module has the conversions of `garonne-fortran` in scope, and the ABI as
/// `F`.
pub fn glue(routines: &[Routine], groups: &[ConstantGroup], names: Names) -> String {
    let routines = names.own(routines);
    let mut out = String::new();
    out.push_str("/// Rooms that C has for strings, with the final zero.\nmod lengths {\n");
    let constants = groups.iter().flat_map(|group| &group.entries);
    for (name, value) in constants {
        let is_room = |room: &ArgumentKind| *room == ArgumentKind::StringOut(name.clone());
        let mut arguments = routines.iter().flat_map(|routine| &routine.arguments);
        if let ConstantValue::Number(number) = value
            && arguments.any(|argument| is_room(&argument.kind))
        {
            writeln!(out, "    pub(super) const {name}: usize = {number};").unwrap();
        }
    }
    out.push_str("}\n\n");
    for (index, routine) in routines.iter().enumerate() {
        let name = &routine.function.name;
        if !routine.is_special {
            writeln!(out, "const INDEX_{name}: usize = {index};").unwrap();
        }
    }
    writeln!(
        out,
        "\n/// Names of the C functions, in the order of the glue's table."
    )
    .unwrap();
    writeln!(
        out,
        "pub(crate) static NAMES: [&CStr; {}] = [",
        routines.len()
    )
    .unwrap();
    for routine in &routines {
        writeln!(out, "    c\"{}\",", routine.function.name).unwrap();
    }
    writeln!(out, "];\n").unwrap();
    for routine in &routines {
        let forms = names.forms(routine);
        if !routine.is_special {
            for form in &forms {
                if names.has_shortcut(routine) {
                    // Inlined it would make its caller save registers.
                    out.push_str("#[cold]\n#[inline(never)]\n");
                }
                body(&mut out, routine, *form);
                if names.has_shortcut(routine) {
                    shortcut(&mut out, routine, *form);
                }
            }
        }
        for form in forms {
            entries(&mut out, routine, form, names);
        }
    }
    others(&mut out, names);
    out
}

/// Entry points of what Fortran alone has.
fn others(out: &mut String, names: Names) {
    let mut known = Vec::new();
    for name in PREDEFINED_FUNCTIONS {
        let old = ["MPI_DUP_FN"].contains(&name);
        let (what, function) = match name {
            _ if name.ends_with("NULL_COPY_FN") => ("NullCopy", "null_copy"),
            _ if name.ends_with("NULL_DELETE_FN") => ("NullDelete", "null_delete"),
            _ if name.contains("CONVERSION") => ("NullConversion", "null_conversion::<F>"),
            _ if old => ("Duplicate", "duplicate::<c_int>"),
            _ => ("Duplicate", "duplicate::<isize>"),
        };
        for symbol in names.manglings(&name.to_ascii_lowercase()) {
            entry(out, &symbol, &format!("predefined::{function}"));
            known.push((symbol, what));
        }
    }
    out.push_str("/// What the predefined function at an address does.\npub(crate) fn predefined_function(address: usize) -> Option<PredefinedFunction> {\n");
    writeln!(out, "    let known = [").unwrap();
    for (symbol, what) in known {
        writeln!(
            out,
            "        (address!({symbol}), PredefinedFunction::{what}),"
        )
        .unwrap();
    }
    out.push_str(
        "    ];\n    known.iter().find(|(at, _)| *at == address).map(|(_, what)| *what)\n}\n\n",
    );
    for name in REMOVED_ROUTINES {
        for (symbol, _) in names.symbols(name) {
            routine_entry(out, &symbol, &format!("removed::{name}::<F>"));
        }
    }
    for (name, function) in names.comparisons() {
        for symbol in names.manglings(&name) {
            entry(out, &symbol, &format!("modules::{function}"));
        }
    }
    let (own, buffers) = (
        names.symbols("mpi_f_sync_reg"),
        names.descriptor_symbols("mpi_f_sync_reg"),
    );
    for symbol in own.into_iter().map(|(symbol, _)| symbol).chain(buffers) {
        entry(out, &symbol, "predefined::sync_reg");
    }
    for (symbol, bytes) in names.sizes() {
        let function = format!("predefined::size_of_variable::<{bytes}>");
        entry(out, &symbol, &function);
    }
}

fn entry(out: &mut String, symbol: &str, function: &str) {
    writeln!(
        out,
        "#[unsafe(no_mangle)]\n#[unsafe(naked)]\npub unsafe extern \"C\" fn {symbol}() {{\n    entry_point!({function})\n}}"
    )
    .unwrap();
}

/// Entry point of a routine that may get addresses of common blocks.
fn routine_entry(out: &mut String, symbol: &str, function: &str) {
    writeln!(
        out,
        "#[unsafe(no_mangle)]\n#[unsafe(naked)]\npub unsafe extern \"C\" fn {symbol}() {{\n    bound_entry_point!(\"{symbol}\", {function}, SENTINELS)\n}}"
    )
    .unwrap();
}

/// Interfaces that share one function of the glue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `mpif.h` and `mpi`: `mpi_send_`. Also `mpi_f08` where nothing differs: `mpi_send_f08_`.
    Plain,
    /// `mpi_f08`, where pointers differ: `mpi_buffer_detach_f08_`.
    Pointers,
    /// `mpi_f08` with descriptors: `mpi_send_f08ts`.
    Descriptors,
}

impl Form {
    pub(super) fn of(routine: &Routine) -> Vec<Self> {
        let detaches = routine
            .arguments
            .iter()
            .any(|a| a.kind == ArgumentKind::Detached);
        let mut forms = Vec::new();
        if !routine.is_large || !routine.has_descriptors() && !detaches {
            forms.push(Self::Plain);
        }
        if routine.has_descriptors() {
            forms.push(Self::Descriptors);
        }
        if detaches {
            forms.push(Self::Pointers);
        }
        forms
    }

    fn function(self, routine: &Routine) -> String {
        let name = routine.lower_name();
        match self {
            Self::Plain => name,
            Self::Pointers => format!("{name}_f08"),
            Self::Descriptors => format!("{name}_f08ts"),
        }
    }

    /// Names of the exported symbols of the standard ABI, without the `p` of `pmpi`.
    pub(super) fn symbols(self, routine: &Routine) -> Vec<String> {
        let name = routine.lower_name();
        let is_alone = Self::of(routine) == [Self::Plain];
        let mut symbols = match self {
            Self::Plain if routine.is_large => vec![format!("{name}_f08_")],
            Self::Plain if is_alone => vec![format!("{name}_"), format!("{name}_f08_")],
            Self::Plain => vec![format!("{name}_")],
            Self::Pointers => vec![format!("{name}_f08_")],
            Self::Descriptors => vec![format!("{name}_f08ts")],
        };
        if self == Self::Plain && !routine.is_large && routine.has_c_pointer() {
            symbols.push(format!("{name}_cptr_"));
        }
        symbols
    }
}

fn entries(out: &mut String, routine: &Routine, form: Form, names: Names) {
    let function = match routine.is_special {
        true => format!("special::{}", form.function(routine)),
        false if names.has_shortcut(routine) => format!("shortcut_{}", form.function(routine)),
        false => format!("glue_{}", form.function(routine)),
    };
    for (symbol, tools) in names.symbols_of(routine, form) {
        let family = if routine.is_special { "F, " } else { "" };
        routine_entry(out, &symbol, &format!("{function}::<{family}{tools}>"));
    }
}

/// Lines of a body by their place.
#[derive(Default)]
struct Body {
    parameters: Vec<String>,
    lengths: Vec<String>,
    before: Vec<String>,
    passed: Vec<String>,
    types: Vec<String>,
    after: Vec<String>,
}

fn body(out: &mut String, routine: &Routine, form: Form) {
    let mut body = Body::default();
    let mut arguments = routine.arguments.iter();
    for param in &routine.function.params {
        let argument = arguments
            .as_slice()
            .first()
            .filter(|next| next.c.name == param.name);
        match argument {
            Some(argument) => {
                arguments.next();
                convert(&mut body, routine, argument, form);
            }
            // Not there in Fortran.
            None if param.depth == 0 => {
                body.passed.push("0".into());
                body.types.push("c_int".into());
            }
            None => {
                body.passed.push("null_mut()".into());
                body.types.push("*mut c_void".into());
            }
        }
    }
    let name = &routine.function.name;
    let result = match routine.function.result.as_str() {
        "double" => "f64",
        "MPI_Aint" => "isize",
        _ => "c_int",
    };
    body.types.push("Site".into());
    body.passed.push("site".into());
    let function = format!("glue_{}", form.function(routine));
    let mut parameters = body.parameters.clone();
    if !routine.is_function() {
        parameters.push("ierror: *mut c_int".into());
    }
    parameters.extend(body.lengths.clone());
    parameters.push("site: Site".into());
    let returned = if routine.is_function() {
        format!(" -> {result}")
    } else {
        String::new()
    };
    writeln!(
        out,
        "unsafe extern \"C\" fn {function}<const TOOLS: bool>({}){returned} {{\n    // SAFETY: the arguments of the routine.\n    unsafe {{",
        parameters.join(", ")
    )
    .unwrap();
    writeln!(
        out,
        "    let call: unsafe extern \"C\" fn({}) -> {result} = transmute(calls::function::<F, TOOLS>(INDEX_{name}));",
        body.types.join(", ")
    )
    .unwrap();
    for line in &body.before {
        writeln!(out, "    {line}").unwrap();
    }
    let call = format!("call({})", body.passed.join(", "));
    if routine.is_function() {
        writeln!(out, "    {call}\n    }}\n}}").unwrap();
        return;
    }
    writeln!(out, "    let code = {call};").unwrap();
    if routine.has_callback() {
        for (kind, name) in routine.made_handles() {
            writeln!(
                out,
                "    if code == 0 {{ F::takes_fortran_handles(HandleKind::{kind}, h_a_{name}); }}"
            )
            .unwrap();
        }
    }
    for line in &body.after {
        writeln!(out, "    {line}").unwrap();
    }
    writeln!(out, "    set_ierror(ierror, code)\n    }}\n}}").unwrap();
}

/// Generates what a routine calls first: a function that makes the call itself where buffers are
/// contiguous and no search for sentinels is due. It calls nothing else, so that it saves no
/// registers. Where it cannot, it jumps to the function of [`body`].
fn shortcut(out: &mut String, routine: &Routine, form: Form) {
    let mut body = Body::default();
    let (mut names, mut conditions) = (Vec::new(), Vec::new());
    for argument in &routine.arguments {
        convert(&mut body, routine, argument, Form::Plain);
        let name = format!("a_{}", argument.c.name);
        let is_ignorable = argument.intent == Intent::None;
        let known = match argument.kind {
            ArgumentKind::Choice if form == Form::Descriptors => Some("sections::plain"),
            ArgumentKind::Choice => Some("SENTINELS.known"),
            ArgumentKind::Status if is_ignorable => Some("SENTINELS.known"),
            _ => None,
        };
        if let Some(known) = known {
            conditions.push((format!("Some(p_{name})"), format!("{known}({name})")));
            *body.passed.last_mut().unwrap() = format!("p_{name}");
            if known == "sections::plain" {
                *body.parameters.last_mut().unwrap() = format!("{name}: *const Descriptor");
            }
        }
        names.push(name);
    }
    let (name, function) = (&routine.function.name, form.function(routine));
    names.extend(["ierror".into(), "site".into()]);
    let known: Vec<_> = conditions.iter().map(|(known, _)| known.as_str()).collect();
    let asked: Vec<_> = conditions.iter().map(|(_, asked)| asked.as_str()).collect();
    writeln!(
        out,
        "unsafe extern \"C\" fn shortcut_{function}<const TOOLS: bool>({}, ierror: *mut c_int, site: Site) {{\n    // SAFETY: the arguments of the routine.\n    unsafe {{",
        body.parameters.join(", ")
    )
    .unwrap();
    writeln!(
        out,
        "    let (Some(call), {}) = (calls::known::<F, TOOLS>(INDEX_{name}), {}) else {{\n        return glue_{function}::<TOOLS>({});\n    }};",
        known.join(", "),
        asked.join(", "),
        names.join(", ")
    )
    .unwrap();
    writeln!(
        out,
        "    let call: unsafe extern \"C\" fn({}, Site) -> c_int = transmute(call);",
        body.types.join(", ")
    )
    .unwrap();
    for line in &body.before {
        writeln!(out, "    {line}").unwrap();
    }
    writeln!(
        out,
        "    let code = call({}, site);",
        body.passed.join(", ")
    )
    .unwrap();
    for line in &body.after {
        writeln!(out, "    {line}").unwrap();
    }
    writeln!(out, "    set_ierror(ierror, code)\n    }}\n}}").unwrap();
}

/// Returns the kind of a handle's class: `HandleKind::Comm` for `MPI_Comm`.
fn kind(class: &str) -> String {
    format!(
        "HandleKind::{}",
        class.strip_prefix("MPI_").unwrap_or(class)
    )
}

/// Rust type of a number of C.
fn number_type(base: &str) -> &'static str {
    match base {
        "int" => "c_int",
        "MPI_Aint" => "isize",
        _ => "i64",
    }
}

fn convert(body: &mut Body, routine: &Routine, argument: &Argument, form: Form) {
    let name = format!("a_{}", argument.c.name);
    let number = number_type(&argument.c.base);
    let mut add = |parameter: String, passed: String, ctype: &str| {
        body.parameters.push(format!("{name}: {parameter}"));
        body.passed.push(passed);
        body.types.push(ctype.into());
    };
    let is_array = argument.is_array();
    // The count and the datatype of a section whose operation goes on are those of its layout.
    if form == Form::Descriptors && routine.is_nonblocking() {
        let typed = routine.typed_buffers();
        let of = |name: &String| {
            let mut all = typed.iter();
            all.find(|(_, count, datatype)| count == name || datatype == name)
        };
        match of(&argument.c.name) {
            Some((buffer, count, _)) if *count == argument.c.name => {
                let value = format!("s_a_{buffer}.count() as {number}");
                return add(format!("*const {number}"), value, number);
            }
            Some((buffer, ..)) => {
                return add(
                    "*const c_int".into(),
                    format!("s_a_{buffer}.datatype()"),
                    "usize",
                );
            }
            None => {}
        }
    }
    match &argument.kind {
        ArgumentKind::Number | ArgumentKind::Logical | ArgumentKind::BaseOne
            if argument.c.depth == 0 =>
        {
            let value = match argument.kind {
                ArgumentKind::Logical => format!("logical({name})"),
                _ => format!("*{name}"),
            };
            add(format!("*const {number}"), value, number);
        }
        ArgumentKind::Number | ArgumentKind::Logical => {
            add("*mut c_void".into(), name.clone(), "*mut c_void");
        }
        ArgumentKind::BaseOne => {
            add("*mut c_int".into(), name.clone(), "*mut c_int");
            let counts = routine
                .arguments
                .iter()
                .find(|other| other.c.name == "outcount");
            let line = match counts.filter(|_| is_array) {
                Some(_) => format!("count_from_one_some::<F>(code, a_outcount, {name});"),
                None => format!("count_from_one(code, {name});"),
            };
            body.after.push(line);
        }
        ArgumentKind::Handle(class) if argument.c.depth == 0 => {
            let value = format!("widen::<F>({}, {name})", kind(class));
            add("*const c_int".into(), value, "usize");
        }
        ArgumentKind::Handle(class) if is_array => {
            let kind = kind(class);
            let value = format!("h_{name}.as_mut_ptr()");
            add("*mut c_int".into(), value, "*mut usize");
            let count = handle_count(argument, form);
            body.before.push(format!(
                "let mut r_{name} = handles::room();\n    \
                 let mut h_{name} = Handles::read::<F>({kind}, {name}, {count}, &mut r_{name});"
            ));
            if !argument.c.constant {
                body.after
                    .push(format!("h_{name}.write::<F>({kind}, {name});"));
            }
        }
        ArgumentKind::Handle(class) => {
            let kind = kind(class);
            add(
                "*mut c_int".into(),
                format!("&raw mut h_{name}"),
                "*mut usize",
            );
            body.before
                .push(format!("let mut h_{name} = widen::<F>({kind}, {name});"));
            body.after
                .push(format!("narrow::<F>({kind}, {name}, h_{name});"));
        }
        ArgumentKind::Status => {
            let is_ignorable = argument.intent == Intent::None;
            let value = match is_ignorable {
                false => name.clone(),
                true => format!("F::c_address({name})"),
            };
            add("*mut c_void".into(), value, "*mut c_void");
        }
        ArgumentKind::Choice if form == Form::Descriptors => {
            add(
                "*const Descriptor".into(),
                format!("s_{name}.address()"),
                "*mut c_void",
            );
            let typed = routine.typed_buffers();
            let typed = typed.iter().find(|(buffer, ..)| *buffer == argument.c.name);
            let section = match (routine.is_nonblocking(), typed) {
                (false, _) => format!("Section::copied({name})"),
                (true, Some((_, count, datatype))) => {
                    format!(
                        "Lasting::typed({name}, *a_{count} as i64, widen::<F>(HandleKind::Datatype, a_{datatype}))"
                    )
                }
                (true, None) => format!("Lasting::contiguous({name})"),
            };
            match routine.is_nonblocking() {
                false => body.before.push(format!("let mut s_{name} = {section};")),
                true => body.before.push(format!(
                    "let s_{name} = match {section} {{ Ok(section) => section, Err(code) => \
                     return set_ierror(ierror, sections::refuse(INDEX_{}, code, site)) }};",
                    routine.function.name
                )),
            }
            if argument.intent != Intent::In && !routine.is_nonblocking() {
                body.after.push(format!("s_{name}.write_back();"));
            }
        }
        ArgumentKind::Choice => {
            add(
                "*mut c_void".into(),
                format!("F::c_address({name})"),
                "*mut c_void",
            );
        }
        ArgumentKind::CPointer => add("*mut c_void".into(), name.clone(), "*mut c_void"),
        ArgumentKind::Detached if form == Form::Pointers => {
            add("*mut c_void".into(), name.clone(), "*mut c_void");
        }
        ArgumentKind::Detached => {
            add(
                "*mut c_void".into(),
                "&raw mut detached".into(),
                "*mut *mut c_void",
            );
            body.before
                .push("let mut detached: *mut c_void = null_mut();".into());
            body.before.push(format!("let _ = {name};"));
        }
        ArgumentKind::Address if argument.intent == Intent::In => {
            let value = format!("attributes::stored(*{name})");
            add("*const isize".into(), value, "*mut c_void");
        }
        ArgumentKind::Address => {
            add("*mut isize".into(), name.clone(), "*mut isize");
            let keyval = keyval(routine);
            body.after.push(format!(
                "attributes::value::<F>(code, a_flag, {keyval}, {name});"
            ));
        }
        ArgumentKind::OldInteger if argument.intent == Intent::In => {
            let value = format!("attributes::stored(*{name} as isize)");
            add("*const c_int".into(), value, "*mut c_void");
        }
        ArgumentKind::OldInteger => {
            add(
                "*mut c_int".into(),
                "&raw mut old_value".into(),
                "*mut isize",
            );
            body.before.push("let mut old_value: isize = 0;".into());
            let keyval = keyval(routine);
            body.after.push(format!(
                "attributes::old_value::<F>(code, a_flag, {keyval}, old_value, {name});"
            ));
        }
        ArgumentKind::StringIn => {
            let trims = matches!(argument.c.name.as_str(), "key" | "value");
            add(
                "*const u8".into(),
                format!("t_{name}.as_ptr()"),
                "*const u8",
            );
            body.lengths.push(format!("l_{name}: usize"));
            body.before.push(format!(
                "let t_{name} = StringIn::read({name}, l_{name}, {trims});"
            ));
        }
        ArgumentKind::StringOut(room) => {
            let room = match room.starts_with("MPI_") {
                true => format!("lengths::{room}"),
                false => format!("*a_{room} as usize + 1"),
            };
            add(
                "*mut u8".into(),
                format!("t_{name}.as_mut_ptr()"),
                "*mut u8",
            );
            body.lengths.push(format!("l_{name}: usize"));
            body.before
                .push(format!("let mut t_{name} = StringOut::new({room});"));
            let is_set = is_set(routine);
            body.after.push(format!(
                "if code == 0{is_set} {{ t_{name}.write({name}, l_{name}) }}"
            ));
        }
        ArgumentKind::StringOutCounted(counted) => {
            add(
                "*mut u8".into(),
                format!("t_{name}.as_mut_ptr()"),
                "*mut u8",
            );
            body.lengths.push(format!("l_{name}: usize"));
            body.before.push(format!(
                "let mut t_{name} = StringOut::counted(a_{counted});"
            ));
            let is_set = is_set(routine);
            body.after.push(format!(
                "t_{name}.write_counted(code == 0{is_set}, a_{counted}, {name}, l_{name});"
            ));
        }
        ArgumentKind::Callback(_) => add("*mut c_void".into(), name.clone(), "*mut c_void"),
        ArgumentKind::ErrorCodes => {
            add(
                "*mut c_void".into(),
                format!("F::c_address({name})"),
                "*mut c_void",
            );
        }
        ArgumentKind::Weights => {
            add(
                "*mut c_void".into(),
                format!("F::c_address({name})"),
                "*mut c_void",
            );
        }
        ArgumentKind::Strings => unreachable!("{}: arrays of strings need special glue", name),
    }
}

/// Returns the condition beyond success under which a string is set: functions with a flag may set
/// none.
fn is_set(routine: &Routine) -> &'static str {
    match routine
        .arguments
        .iter()
        .any(|argument| argument.c.name == "flag")
    {
        true => " && *a_flag.cast::<c_int>() != 0",
        false => "",
    }
}

fn keyval(routine: &Routine) -> String {
    let mut names = routine.arguments.iter().map(|argument| &argument.c.name);
    let name = names.find(|name| name.ends_with("keyval"));
    format!("a_{}", name.map_or("keyval", String::as_str))
}

/// Returns the expression of an array's number of handles.
fn handle_count(argument: &Argument, form: Form) -> String {
    let dims = argument.dims.as_deref().unwrap_or("");
    let side = match dims {
        "peers" => "peers",
        "sources" => "sources",
        "destinations" => "destinations",
        count => return format!("*a_{count} as i64"),
    };
    // With MPI_IN_PLACE the types to send are not looked at.
    let in_place = match (argument.c.name == "sendtypes", form) {
        (false, _) => "false".into(),
        (true, Form::Descriptors) => String::from("s_a_sendbuf.is_in_place()"),
        (true, _) => String::from("is_in_place::<F>(a_sendbuf)"),
    };
    format!(
        "peers::count::<F>(peers::Side::{}, {in_place}, widen::<F>(HandleKind::Comm, a_comm))",
        capital(side)
    )
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
