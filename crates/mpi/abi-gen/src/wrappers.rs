//! Generator of the Rust code that the C library includes: constants, names of the functions, and
//! wrappers.
//!
//! The wrapper of a function has the C prototype: argument words in, error code out. It calls the
//! body `crate::<module>::<name>`, which returns a `Result`.
//!
//! A function and its `_c` or `_x` form call one body when they differ only in the width of counts.
//! Scalars become `MPI_Count`, arrays become `CountsIn`, results become `CountOut`. The wrapper
//! refuses a null pointer for a result.

use crate::table::{ConstantGroup, ConstantValue, Function, Param};
use std::collections::HashMap;
use std::fmt::Write;

/// Returns a `pub const` item for every constant.
pub fn constants(groups: &[ConstantGroup]) -> String {
    let mut out = String::new();
    for group in groups {
        writeln!(out, "\n// {}.", group.description).unwrap();
        for (name, value) in &group.entries {
            let address = group.ctype.ends_with('*');
            let ty = match group.ctype.as_str() {
                "int" => "c_int",
                _ if address => "usize",
                handle => handle,
            };
            let text = match value {
                ConstantValue::Alias(other) => other.clone(),
                ConstantValue::Number(number) if group.ctype == "int" || address => number.clone(),
                ConstantValue::Number(number) => format!("{ty}({number})"),
            };
            writeln!(out, "pub const {name}: {ty} = {text};").unwrap();
        }
    }
    out
}

/// Returns the names of the functions by call number, and the wrapper of each function.
pub fn functions(functions: &[Function]) -> String {
    let by_name: HashMap<&str, &Function> =
        functions.iter().map(|f| (f.name.as_str(), f)).collect();
    let mut out = String::new();
    writeln!(
        out,
        "/// Names of the functions, by call number.\npub const NAMES: [&str; {}] = [",
        functions.len() + 1
    )
    .unwrap();
    writeln!(out, "    \"?\",").unwrap();
    for f in functions {
        writeln!(out, "    \"{}\",", f.name).unwrap();
    }
    writeln!(out, "];").unwrap();
    let missing: Vec<String> = (1..)
        .zip(functions)
        .filter(|(_, f)| !f.implemented)
        .map(|(number, _): (u16, _)| number.to_string())
        .collect();
    writeln!(
        out,
        "/// Call numbers of the functions that are not there yet, in ascending order.\npub const UNIMPLEMENTED: [u16; {}] = [{}];",
        missing.len(),
        missing.join(", ")
    )
    .unwrap();
    for (at, f) in functions.iter().enumerate() {
        wrapper(&mut out, at + 1, f, &by_name);
    }
    out
}

fn wrapper(out: &mut String, number: usize, f: &Function, by_name: &HashMap<&str, &Function>) {
    let twin = other_width(f, by_name);
    let mut params: Vec<String> = f
        .params
        .iter()
        .map(|p| format!("{}: {}", rust_name(&p.name), rust_type(p)))
        .collect();
    params.push("site: CallSite".into());
    let params = params.join(", ");
    let result = if f.result == "void" {
        String::new()
    } else {
        format!(" -> {}", scalar(&f.result))
    };
    let names = || {
        f.params
            .iter()
            .map(|p| rust_name(&p.name))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (mut name, mut attribute) = (format!("wrap_{}", f.name), "");
    let generics = generic_parameter(f).map_or("", Generic::declared);
    if has_fast_path(f) {
        let (quick, arguments) = (body_name(f, twin.is_some()), names());
        let general = format!("other_{}", f.name);
        writeln!(
            out,
            "\npub extern \"C-unwind\" fn {name}{generics}({params}){result} {{\n    last_call::record_site(site);\n    \
             match crate::fast_path::{quick}(CallId({number}), site, {arguments}) {{ Some(code) => code, None => {general}({arguments}, site) }}\n}}"
        )
        .unwrap();
        (name, attribute) = (general, "#[inline(never)]\n");
    }
    writeln!(
        out,
        "\n{attribute}pub extern \"C-unwind\" fn {name}{generics}({params}){result} {{"
    )
    .unwrap();
    statements(out, (number, f), twin, &name, false);
    if returns_error_code(f) && f.params.iter().any(is_place) {
        then_wrapper(out, (number, f), twin, &params);
    }
}

/// Returns whether a call may write through the parameter.
fn is_place(p: &Param) -> bool {
    let ty = rust_type(p);
    ty.starts_with("Ptr<") || ty == "StrOut" || p.name == "buffer_addr"
}

/// Adds the function for wrappers of other ABIs, `then_MPI_X`: the wrapper with one more argument,
/// which is called when the body is over and before its error is raised.
fn then_wrapper(
    out: &mut String,
    (number, f): (usize, &Function),
    twin: Option<&Function>,
    params: &str,
) {
    let name = format!("then_{}", f.name);
    let generics = match generic_parameter(f) {
        Some(Generic::Status) => "<S: StatusLayout, F: FnOnce()>",
        Some(Generic::Callback) => "<A: Abi, F: FnOnce()>",
        None => "<F: FnOnce()>",
    };
    writeln!(
        out,
        "\npub fn {name}{generics}({params}, after: F) -> c_int {{"
    )
    .unwrap();
    if has_fast_path(f) {
        let names: Vec<String> = f.params.iter().map(|p| rust_name(&p.name)).collect();
        writeln!(
            out,
            "    last_call::record_site(site);\n    \
             if let Some(code) = crate::fast_path::{}(CallId({number}), site, {}) {{ after(); return code; }}",
            body_name(f, twin.is_some()),
            names.join(", ")
        )
        .unwrap();
    }
    statements(out, (number, f), twin, &name, true);
}

/// Adds the statements of the wrapper `name`. `then`: it has the argument `after`.
fn statements(
    out: &mut String,
    (number, f): (usize, &Function),
    twin: Option<&Function>,
    name: &str,
    then: bool,
) {
    let names: Vec<String> = f.params.iter().map(|p| rust_name(&p.name)).collect();
    writeln!(out, "    site.note();").unwrap();
    writeln!(out, "    last_call::record(CallId({number}), site);").unwrap();
    if !f.implemented {
        let unused = names.iter().map(String::as_str);
        let unused = unused.chain(then.then_some("after"));
        writeln!(
            out,
            "    let _ = ({});",
            unused.map(|name| format!("{name},")).collect::<String>()
        )
        .unwrap();
        writeln!(
            out,
            "    raise_unimplemented(CallId({number}), {})\n}}",
            error_object(f)
        )
        .unwrap();
        return;
    }
    let body = body_name(f, twin.is_some());
    let mut arguments = vec![format!("CallId({number})")];
    for (at, p) in f.params.iter().enumerate() {
        let differs = twin.is_some_and(|t| !same_type(p, &t.params[at]));
        arguments.push(if differs {
            widened(p)
        } else {
            rust_name(&p.name)
        });
    }
    let call = format!("crate::{}::{body}({})", f.module, arguments.join(", "));
    if !returns_error_code(f) {
        writeln!(out, "    {call}\n}}").unwrap();
        return;
    }
    if let Some(child) = forked_action(f, number) {
        let after = if then { ", after" } else { "" };
        writeln!(
            out,
            "    if needs_check() {{ match wrapper_action(CallId({number})) {{ WrapperAction::Proceed => {{}}\n        WrapperAction::RefuseForked => {child}\n        \
             WrapperAction::Trace => {{ let code = {name}({}{after}); record_exit(CallId({number})); return code; }} }} }}",
            own_arguments(f)
        )
        .unwrap();
    }
    for place in f.params.iter().filter(|p| is_required_output(p)) {
        writeln!(
            out,
            "    if {}.is_null() {{ return raise_null_output(CallId({number}), {}, \"{}\"); }}",
            rust_name(&place.name),
            error_object(f),
            place.name
        )
        .unwrap();
    }
    let object = error_object(f);
    match then {
        false => writeln!(
            out,
            "    return_code(CallId({number}), {object}, {call})\n}}"
        ),
        true => writeln!(
            out,
            "    let (object, outcome) = ({object}, {call});\n    after();\n    \
             return_code(CallId({number}), object, outcome)\n}}"
        ),
    }
    .unwrap();
}

/// Functions whose wrapper first tries the function of the same name in `crate::fast_path`.
const FAST_PATH: [&str; 4] = ["MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv"];

pub(crate) fn has_fast_path(f: &Function) -> bool {
    FAST_PATH.contains(&f.name.strip_suffix("_c").unwrap_or(&f.name))
}

/// Functions that a forked child may call: they read no state of the parent, or check for a forked
/// child themselves.
const ALLOWED_IN_CHILDREN: [&str; 9] = [
    "MPI_Abort",
    "MPI_Error_class",
    "MPI_Error_string",
    "MPI_Finalize",
    "MPI_Finalized",
    "MPI_Get_library_version",
    "MPI_Get_version",
    "MPI_Initialized",
    "MPI_Pcontrol",
];

/// Returns the match arm of the wrapper for a forked child. `None` means that the wrapper makes no
/// check at all, and that a trace does not show the call. The fast paths need no such check: their
/// test of the buffer's address refuses a child (see `gpu_buffers`), and a traced engine lets no
/// message through them.
fn forked_action(f: &Function, number: usize) -> Option<String> {
    let name = f.name.strip_suffix("_c").unwrap_or(&f.name);
    match ALLOWED_IN_CHILDREN.contains(&name) {
        false => Some(format!(
            "return raise_in_forked(CallId({number}), {}),",
            error_object(f)
        )),
        true if name == "MPI_Finalize" => Some("{}".into()),
        true => None,
    }
}

/// The wrapper's own arguments, to call itself.
fn own_arguments(f: &Function) -> String {
    let names = f.params.iter().map(|p| rust_name(&p.name));
    names.chain(["site".into()]).collect::<Vec<_>>().join(", ")
}

/// Returns whether the result is an error code that is raised on error handlers. Functions of the
/// tool interface return their codes and call no handler.
pub(crate) fn returns_error_code(f: &Function) -> bool {
    f.result == "int" && !f.name.ends_with("_toint") && !f.name.starts_with("MPI_T_")
}

/// Returns whether the parameter points to a single result, or to a variable that the call changes.
/// The wrapper refuses null for such a parameter before the body runs. Exceptions: a status may be
/// ignored, an array may be empty, a null `argc` is allowed, and the body checks a `void *`.
fn is_required_output(p: &Param) -> bool {
    let one = p.depth == 1 && !p.array && !p.constant && rust_type(p).starts_with("Ptr<");
    one && p.base != "MPI_Status" && p.name != "argc" && !p.name.ends_with("weights")
}

/// The other width of the same function, if one body can serve both.
fn other_width<'a>(f: &Function, by_name: &HashMap<&str, &'a Function>) -> Option<&'a Function> {
    let base = f
        .name
        .strip_suffix("_c")
        .or(f.name.strip_suffix("_x"))
        .unwrap_or(&f.name);
    let other = if base == f.name {
        by_name
            .get(format!("{base}_c").as_str())
            .or_else(|| by_name.get(format!("{base}_x").as_str()))
    } else {
        by_name.get(base)
    }?;
    let compatible = f.module == other.module
        && f.params.len() == other.params.len()
        && f.params
            .iter()
            .zip(&other.params)
            .all(|(a, b)| same_type(a, b) || differ_in_width(a, b));
    compatible.then_some(other)
}

fn same_type(a: &Param, b: &Param) -> bool {
    a.base == b.base && a.depth == b.depth && a.constant == b.constant
}

fn differ_in_width(a: &Param, b: &Param) -> bool {
    let count = |p: &Param| matches!(p.base.as_str(), "int" | "MPI_Count" | "MPI_Aint");
    count(a) && count(b) && a.depth == b.depth && a.constant == b.constant && a.depth <= 1
}

fn widened(p: &Param) -> String {
    let name = rust_name(&p.name);
    match (p.depth, p.constant) {
        (0, _) => format!("{name} as MPI_Count"),
        (_, true) => format!("CountsIn::from({name})"),
        (_, false) => format!("CountOut::from({name})"),
    }
}

fn body_name(f: &Function, shared: bool) -> String {
    let name = f
        .name
        .trim_start_matches("MPIX_")
        .trim_start_matches("MPI_");
    let name = if shared {
        name.strip_suffix("_c")
            .or(name.strip_suffix("_x"))
            .unwrap_or(name)
    } else {
        name
    };
    name.to_lowercase()
}

/// Returns the expression for the object on which a failure is raised: the first communicator,
/// window, file or session among the arguments. A call that creates such an object with a given
/// error handler raises its failure on that handler.
fn error_object(f: &Function) -> String {
    // Failures of calls on files that have no handle of one are raised on `MPI_FILE_NULL`.
    let of_no_file = ["MPI_File_open", "MPI_File_delete", "MPI_Register_datarep"];
    let name = f.name.strip_suffix("_c").unwrap_or(&f.name);
    if of_no_file.contains(&name) {
        return "ErrorObject::File(crate::constants::MPI_FILE_NULL)".into();
    }
    let found = f.params.iter().find(|p| {
        p.depth == 0
            && matches!(
                p.base.as_str(),
                "MPI_Comm" | "MPI_Win" | "MPI_File" | "MPI_Session"
            )
    });
    if let Some(p) = found {
        return format!(
            "ErrorObject::{}({})",
            &p.base["MPI_".len()..],
            rust_name(&p.name)
        );
    }
    let given = f
        .params
        .iter()
        .find(|p| p.depth == 0 && p.base == "MPI_Errhandler");
    match (f.name.as_str(), given) {
        ("MPI_Comm_free" | "MPI_Comm_disconnect", _) => "ErrorObject::comm_at(comm)".into(),
        ("MPI_Win_free", _) => "ErrorObject::win_at(win)".into(),
        ("MPI_File_close", _) => "ErrorObject::file_at(fh)".into(),
        ("MPI_Session_finalize", _) => "ErrorObject::session_at(session)".into(),
        ("MPI_Session_init", Some(p)) => {
            format!(
                "ErrorObject::New({}, ErrhandlerKind::Session)",
                rust_name(&p.name)
            )
        }
        (_, Some(p)) => format!(
            "ErrorObject::New({}, ErrhandlerKind::Comm)",
            rust_name(&p.name)
        ),
        (_, None) => "ErrorObject::None".into(),
    }
}

pub(crate) fn rust_name(name: &str) -> String {
    if matches!(name, "type" | "ref" | "in" | "fn" | "mod" | "use") {
        format!("{name}_")
    } else {
        name.to_lowercase()
    }
}

fn scalar(base: &str) -> String {
    match base {
        "int" | "MPI_T_cb_safety" | "MPI_T_source_order" => "c_int".into(),
        "double" => "f64".into(),
        other => other.into(),
    }
}

/// The type parameter of a wrapper that is generic over an ABI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Generic {
    /// The layout of a status, `S`.
    Status,
    /// The ABI of a callback, `A`.
    Callback,
}

impl Generic {
    fn declared(self) -> &'static str {
        match self {
            Generic::Status => "<S: StatusLayout>",
            Generic::Callback => "<A: Abi>",
        }
    }
}

/// Returns the type parameter of the function's wrapper, if it has one.
pub fn generic_parameter(f: &Function) -> Option<Generic> {
    let has = |test: fn(&Param) -> bool| f.params.iter().any(test);
    if has(|p| p.base == "MPI_Status") {
        return Some(Generic::Status);
    }
    has(|p| is_callback(p) && !is_tool_callback(p)).then_some(Generic::Callback)
}

pub(crate) fn is_callback(p: &Param) -> bool {
    p.base.ends_with("_function") || p.base.ends_with("_function_c")
}

/// Callbacks of the tool interface have the types of the standard ABI in every ABI.
pub(crate) fn is_tool_callback(p: &Param) -> bool {
    is_callback(p) && p.base.starts_with("MPI_T_")
}

pub(crate) fn rust_type(p: &Param) -> String {
    if is_callback(p) {
        return if is_tool_callback(p) {
            "Callback"
        } else {
            "Callback<A>"
        }
        .into();
    }
    match (p.base.as_str(), p.depth) {
        ("MPI_Status", 1) if p.constant => "ConstPtr<S>".into(),
        ("MPI_Status", 1) => "Ptr<S>".into(),
        (_, 0) => scalar(&p.base),
        ("void", 1) => "Buf".into(),
        ("char", 1) if p.constant => "StrIn".into(),
        ("char", 1) => "StrOut".into(),
        ("char", 2) => "Ptr<StrIn>".into(),
        ("char", _) => "Ptr<Ptr<StrIn>>".into(),
        _ => {
            let item = match p.inner {
                Some(n) => format!("[{}; {n}]", scalar(&p.base)),
                None => scalar(&p.base),
            };
            if p.constant {
                format!("ConstPtr<{item}>")
            } else {
                format!("Ptr<{item}>")
            }
        }
    }
}
