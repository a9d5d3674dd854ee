//! Generator of the library of another ABI: tables of constants, and wrappers that convert.
//!
//! A wrapper converts its arguments, calls the wrapper of the standard ABI directly, and converts
//! results and the error code. Statuses and callbacks need no conversion: the standard wrapper is
//! generic over their ABI.
//!
//! The including module imports `garonne_bodies::abi::convert` and has these items: the type `Abi`
//! of the ABI, its `Status`, its `ERROR_NUMBERS`, and the module `native` with the wrappers of the
//! standard ABI. Where handles are pointers, it also has what [`HandleForm::Pointer`] says.

use crate::parameters::{HANDLES, Kind, Parameters, Special};
use crate::table::{ConstantGroup, ConstantValue, Function, Param};
use crate::wrappers::{
    Generic, generic_parameter, has_fast_path, is_callback, is_tool_callback, returns_error_code,
    rust_name,
};
use std::collections::HashMap;
use std::fmt::Write;

/// What handles are in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleForm {
    /// An `int`; that of `MPI_File` is a pointer. Predefined handles are numbers.
    Int,
    /// A pointer. Predefined handles are addresses of objects: their values in the ABI's file are
    /// names of symbols, for which no tables are generated.
    Pointer,
}

impl HandleForm {
    /// Rust type of a handle as C passes it.
    fn rust_type(self, base: &str) -> &'static str {
        match self {
            HandleForm::Int if base != "MPI_File" => "c_int",
            _ => "usize",
        }
    }
}

/// Constants of another ABI beside those of the standard one.
#[derive(Debug)]
pub struct AbiConstants {
    handles: HandleForm,
    standard: Vec<ConstantGroup>,
    other: HashMap<String, i64>,
    groups: Vec<ConstantGroup>,
}

impl AbiConstants {
    /// Joins the constants of the standard ABI with those of another one.
    ///
    /// # Errors
    /// A constant that only one of the two has, a value that is no number, and what no generated
    /// code could convert: `MPI_UNDEFINED` and `MPI_SUCCESS` must be the same numbers.
    pub fn new(
        standard: Vec<ConstantGroup>,
        groups: Vec<ConstantGroup>,
        handles: HandleForm,
    ) -> Result<Self, String> {
        let mut other = HashMap::new();
        for group in &groups {
            if handles == HandleForm::Pointer && HANDLES.contains(&group.ctype.as_str()) {
                continue;
            }
            for (name, value) in &group.entries {
                match value {
                    ConstantValue::Number(text) if text != "-" => {
                        other.insert(name.clone(), number(text)?);
                    }
                    _ => {}
                }
            }
        }
        let names = |groups: &[ConstantGroup]| -> Vec<String> {
            let entries = groups.iter().flat_map(|group| group.entries.clone());
            entries.map(|(name, _)| name).collect()
        };
        if names(&standard) != names(&groups) {
            return Err("the two ABIs must list the same constants in the same order".into());
        }
        let all = Self {
            handles,
            standard,
            other,
            groups,
        };
        for name in ["MPI_UNDEFINED", "MPI_SUCCESS"] {
            match all.pair(name)? {
                Some((standard, other)) if standard == other => {}
                _ => return Err(format!("{name} must be the same number in both ABIs")),
            }
        }
        Ok(all)
    }

    /// Constants of the other ABI for its header, without those that it lacks. Where handles are
    /// `int`, special weights are variables and left out, too.
    pub fn header_groups(&self) -> Vec<ConstantGroup> {
        let mut groups = self.groups.clone();
        groups.retain(|group| self.handles == HandleForm::Pointer || group.ctype != "int *");
        for group in &mut groups {
            let absent =
                |value: &ConstantValue| matches!(value, ConstantValue::Number(n) if n == "-");
            group.entries.retain(|(_, value)| !absent(value));
        }
        groups
    }

    /// Handle types of which tables are generated.
    fn handle_tables(&self) -> &'static [&'static str] {
        match self.handles {
            HandleForm::Int => &HANDLES,
            HandleForm::Pointer => &[],
        }
    }

    /// Returns the value of a constant in the other ABI.
    pub fn other(&self, name: &str) -> Option<i64> {
        self.other.get(name).copied()
    }

    fn pair(&self, name: &str) -> Result<Option<(i64, i64)>, String> {
        Ok(self.standard_value(name)?.zip(self.other(name)))
    }

    fn standard_value(&self, name: &str) -> Result<Option<i64>, String> {
        let entries = self.standard.iter().flat_map(|group| &group.entries);
        match entries.into_iter().find(|(other, _)| other == name) {
            Some((_, ConstantValue::Number(text))) => number(text).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns value in the standard and in the other ABI of each constant that `test` accepts.
    fn pairs(
        &self,
        test: impl Fn(&ConstantGroup, &str) -> bool,
    ) -> Result<Vec<(i64, i64)>, String> {
        let mut pairs = Vec::new();
        for group in &self.standard {
            for (name, _) in group.entries.iter().filter(|(name, _)| test(group, name)) {
                pairs.extend(self.pair(name)?);
            }
        }
        Ok(pairs)
    }
}

fn number(text: &str) -> Result<i64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text} is no number"))
}

/// Assertions of calls on windows.
const ASSERTIONS: [&str; 5] = [
    "MPI_MODE_NOCHECK",
    "MPI_MODE_NOPRECEDE",
    "MPI_MODE_NOPUT",
    "MPI_MODE_NOSTORE",
    "MPI_MODE_NOSUCCEED",
];

/// Returns whether a constant belongs to a set.
fn belongs(special: Special, group: &ConstantGroup, name: &str) -> bool {
    let prefix = |prefix: &str| name.starts_with(prefix);
    match special {
        Special::Rank => ["MPI_ANY_SOURCE", "MPI_PROC_NULL", "MPI_ROOT"].contains(&name),
        Special::Tag => name == "MPI_ANY_TAG",
        Special::Error => {
            // Codes of the tool interface are classes in some ABIs.
            let errors = [
                "success and error classes",
                "error codes of the tool interface",
            ];
            errors.contains(&group.description.as_str()) && name != "MPI_ERR_LASTCODE"
        }
        Special::Keyval => group.description == "attribute keys",
        Special::ThreadLevel => prefix("MPI_THREAD_"),
        Special::Comparison => group.description == "results of comparisons",
        Special::Topology => group.description == "kinds of topology",
        Special::SplitType => prefix("MPI_COMM_TYPE_"),
        Special::ArrayOrder => prefix("MPI_ORDER_"),
        Special::Distribution => prefix("MPI_DISTRIBUTE_") && name != "MPI_DISTRIBUTE_DFLT_DARG",
        Special::DistributionArgument => name == "MPI_DISTRIBUTE_DFLT_DARG",
        Special::Combiner => prefix("MPI_COMBINER_"),
        Special::TypeClass => prefix("MPI_TYPECLASS_"),
        Special::WindowLock => prefix("MPI_LOCK_"),
        // In some ABIs these have bits that modes of files have, too.
        Special::Assertion => ASSERTIONS.contains(&name),
        Special::FileMode => prefix("MPI_MODE_") && !ASSERTIONS.contains(&name),
        Special::FilePosition => prefix("MPI_SEEK_"),
        Special::Verbosity => prefix("MPI_T_VERBOSITY_"),
        Special::ObjectBinding => prefix("MPI_T_BIND_"),
        Special::Scope => prefix("MPI_T_SCOPE_"),
        Special::VariableClass => prefix("MPI_T_PVAR_CLASS_"),
    }
}

const SPECIALS: [Special; 21] = [
    Special::Rank,
    Special::Tag,
    Special::Error,
    Special::Keyval,
    Special::ThreadLevel,
    Special::Comparison,
    Special::Topology,
    Special::SplitType,
    Special::ArrayOrder,
    Special::Distribution,
    Special::DistributionArgument,
    Special::Combiner,
    Special::TypeClass,
    Special::WindowLock,
    Special::Assertion,
    Special::FileMode,
    Special::FilePosition,
    Special::Verbosity,
    Special::ObjectBinding,
    Special::Scope,
    Special::VariableClass,
];

/// Returns the Rust code of the tables: pairs of the value in the standard ABI and in the other
/// one, by kind of handle, set of constants and kind of address; and the functions that convert.
pub fn tables(constants: &AbiConstants) -> Result<String, String> {
    let mut out = String::new();
    for handle in constants.handle_tables() {
        let pairs = constants.pairs(|group, _| group.ctype == *handle)?;
        writeln!(out, "/// Predefined handles of type `{handle}`.").unwrap();
        writeln!(
            out,
            "pub const {}: [(usize, u32); {}] = [",
            table_of_handle(handle),
            pairs.len()
        )
        .unwrap();
        for (standard, other) in pairs {
            writeln!(out, "    ({standard:#x}, {:#010x}),", other as u32).unwrap();
        }
        writeln!(out, "];").unwrap();
    }
    for special in SPECIALS {
        let pairs = constants.pairs(|group, name| belongs(special, group, name))?;
        writeln!(out, "/// Constants of the set {special:?}.").unwrap();
        writeln!(
            out,
            "pub static {}: [(c_int, c_int); {}] = {pairs:?};",
            table_of_special(special),
            pairs.len()
        )
        .unwrap();
    }
    for (ctype, name) in [
        ("void *", "BUFFERS"),
        ("int *", "WEIGHTS"),
        ("MPI_Status *", "STATUSES"),
    ] {
        let pairs = constants.pairs(|group, _| group.ctype == ctype)?;
        writeln!(out, "/// Special addresses of type `{ctype}`.").unwrap();
        writeln!(
            out,
            "pub const {name}: [(usize, usize); {}] = [",
            pairs.len()
        )
        .unwrap();
        for (standard, other) in pairs {
            writeln!(
                out,
                "    ({standard}_isize as usize, {other}_isize as usize),"
            )
            .unwrap();
        }
        writeln!(out, "];").unwrap();
    }
    lookups(&mut out, constants)?;
    let last = constants.pair("MPI_ERR_LASTCODE")?;
    let last = last.ok_or("MPI_ERR_LASTCODE must be a number in both ABIs")?;
    writeln!(
        out,
        "/// `MPI_ERR_LASTCODE` in the standard ABI and in this one.\npub const LAST_ERROR_CODES: (c_int, c_int) = {last:?};"
    )
    .unwrap();
    Ok(out)
}

/// Functions that look predefined handles up.
fn handle_lookups(out: &mut String, constants: &AbiConstants) -> Result<(), String> {
    for (name, from, to, doc) in [
        (
            "predefined_to_native",
            "u32",
            "usize",
            "Word of the standard ABI",
        ),
        (
            "predefined_from_native",
            "usize",
            "u32",
            "Handle of this ABI",
        ),
    ] {
        writeln!(
            out,
            "/// {doc} for a predefined handle.\n#[inline(always)]\npub fn {name}(kind: HandleKind, handle: {from}) -> Option<{to}> {{\n    Some(match kind {{"
        )
        .unwrap();
        for handle in constants.handle_tables() {
            writeln!(
                out,
                "        HandleKind::{} => match handle {{",
                &handle["MPI_".len()..]
            )
            .unwrap();
            for (native, other) in constants.pairs(|group, _| group.ctype == *handle)? {
                let (native, other) = (native as usize, other as u32);
                match from {
                    "u32" => writeln!(out, "            {other:#x} => {native:#x},"),
                    _ => writeln!(out, "            {native:#x} => {other:#x},"),
                }
                .unwrap();
            }
            writeln!(out, "            _ => return None,\n        }},").unwrap();
        }
        writeln!(out, "    }})\n}}").unwrap();
    }
    Ok(())
}

/// Functions that convert each kind of handle and number.
fn lookups(out: &mut String, constants: &AbiConstants) -> Result<(), String> {
    if constants.handles == HandleForm::Int {
        handle_lookups(out, constants)?;
    }
    for handle in HANDLES {
        let (kind, ty) = (&handle["MPI_".len()..], constants.handles.rust_type(handle));
        writeln!(
            out,
            "/// Word of the standard ABI for a handle of type `{handle}`.\n#[inline(always)]\npub fn native_{}(handle: {ty}) -> {handle} {{ {handle}(<Abi as HandleConversion<{ty}>>::to_native(HandleKind::{kind}, handle)) }}",
            kind.to_lowercase()
        )
        .unwrap();
    }
    for special in SPECIALS {
        let table = table_of_special(special);
        let (to, from) = match special {
            Special::Error => (
                "ERROR_NUMBERS.to_native(".into(),
                "ERROR_NUMBERS.from_native(".into(),
            ),
            Special::Assertion | Special::FileMode => (
                format!("bits_to_native(&{table}, "),
                format!("bits_from_native(&{table}, "),
            ),
            _ => (
                format!("int_to_native(&{table}, "),
                format!("int_from_native(&{table}, "),
            ),
        };
        let name = table.to_lowercase();
        // Numbers that are not negative mean themselves, if all constants are negative.
        let pairs = constants.pairs(|group, name| belongs(special, group, name))?;
        let quick = match pairs
            .iter()
            .all(|(native, other)| *native < 0 && *other < 0)
        {
            true => "if value >= 0 { return value; } ",
            false => "",
        };
        for (function, call, doc) in [
            ("native", to, "Number of the standard ABI"),
            ("own", from, "Number of this ABI"),
        ] {
            writeln!(
                out,
                "/// {doc} for one of the set {special:?}.\n#[inline]\npub fn {function}_{name}(value: c_int) -> c_int {{ {quick}{call}value) }}"
            )
            .unwrap();
        }
    }
    Ok(())
}

fn table_of_handle(handle: &str) -> String {
    format!("{}_HANDLES", handle["MPI_".len()..].to_uppercase())
}

fn table_of_special(special: Special) -> String {
    let mut name = String::new();
    for (at, letter) in format!("{special:?}").char_indices() {
        if letter.is_uppercase() && at > 0 {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Returns a function's wrapper for the other ABI. `number` is the function's call number.
///
/// # Errors
/// The reason why the function cannot be generated: a parameter that no rule converts. Such a
/// function must be written by hand, or the library does not have it.
pub fn wrapper(
    (number, f): (usize, &Function),
    facts: &Parameters,
    constants: &AbiConstants,
) -> Result<String, String> {
    if f.module == "handle_ints" {
        return match constants.handles {
            HandleForm::Int => Ok(handle_integer(f)),
            HandleForm::Pointer => Err("no rule converts handles that are pointers".into()),
        };
    }
    let mut code = Wrapper::default();
    for p in &f.params {
        code.parameter(f, p, facts, constants)
            .map_err(|why| format!("{}: {why}", p.name))?;
    }
    let result = match f.result.as_str() {
        "int" => " -> c_int".to_string(),
        "double" => " -> f64".to_string(),
        "MPI_Aint" => " -> MPI_Aint".to_string(),
        "void" => String::new(),
        other => return Err(format!("a result of type {other}")),
    };
    let generic = match generic_parameter(f) {
        Some(Generic::Status) => "::<Status>",
        Some(Generic::Callback) => "::<Abi>",
        None => "",
    };
    let Wrapper {
        parameters,
        before,
        arguments,
        after,
    } = code;
    let name = &f.name;
    let mut out = String::new();
    let (mut wrapper, mut learn) = (format!("wrap_{name}"), String::new());
    if has_fast_path(f) {
        wrapper = format!("other_{name}");
        learn = fast_wrapper(&mut out, f, number, &parameters);
    } else if name == "MPI_Waitall" {
        wrapper = format!("other_{name}");
        writeln!(out, "\n/// `{name}`.\npub extern \"C-unwind\" fn wrap_{name}({parameters}site: CallSite) -> c_int {{\n    fast::waitall::<Abi>(({number}, site), count, array_of_requests, array_of_statuses, {wrapper})\n}}").unwrap();
    }
    writeln!(
        out,
        "\n/// `{name}`.\n{}pub extern \"C-unwind\" fn {wrapper}({parameters}site: CallSite){result} {{\n{before}",
        if wrapper.starts_with("other_") { "#[inline(never)]\n" } else { "" }
    )
    .unwrap();
    if f.name.starts_with("MPI_T_") {
        // No error handler is called, so there is no time between the body and the return.
        writeln!(
            out,
            "    let code = native::wrap_{name}{generic}({arguments}site);\n{after}    own_error(code)\n}}"
        )
        .unwrap();
    } else if !returns_error_code(f) {
        writeln!(out, "    native::wrap_{name}{generic}({arguments}site)\n}}").unwrap();
    } else if after.is_empty() {
        writeln!(
            out,
            "    let code = native::wrap_{name}{generic}({arguments}site);\n{learn}    own_error(code)\n}}"
        )
        .unwrap();
    } else {
        writeln!(
            out,
            "    own_error(native::then_{name}({arguments}site, || {{\n{after}{learn}    }}))\n}}"
        )
        .unwrap();
    }
    Ok(out)
}

/// Adds the wrapper of a function that has a fast path. Returns the statement by which the general
/// path lets the fast path find the communicator and the rank.
fn fast_wrapper(out: &mut String, f: &Function, number: usize, parameters: &str) -> String {
    let name = &f.name;
    let small = name.strip_suffix("_c").unwrap_or(name);
    let quick = small["MPI_".len()..].to_lowercase();
    let names: Vec<String> = f.params.iter().map(|p| rust_name(&p.name)).collect();
    // Buffer, count, datatype, rank, tag, communicator, and a status or a request.
    let [buf, count, datatype, rank, tag, comm, more @ ..] = &names[..] else {
        unreachable!("functions with fast paths have six arguments or more");
    };
    let last = match more {
        [] => comm.clone(),
        more => format!("({comm}, {})", more.join(", ")),
    };
    writeln!(
        out,
        "\n/// `{name}`.\npub extern \"C-unwind\" fn wrap_{name}({parameters}site: CallSite) -> c_int {{\n    \
         match fast::{quick}::<Abi>(({number}, site), {buf}, ({count}, {datatype}), ({rank}, {tag}), {last}) {{\n        \
         Some(code) => code,\n        None => other_{name}({}, site),\n    }}\n}}",
        names.join(", ")
    )
    .unwrap();
    format!("    fast::learn::<Abi>({comm}, native_comm({comm}), {rank});\n")
}

/// Returns the wrapper of `MPI_X_toint` or `MPI_X_fromint`. A handle that is an `int` is its own
/// Fortran integer.
fn handle_integer(f: &Function) -> String {
    let (name, to_int) = (&f.name, f.name.ends_with("_toint"));
    let head = |from: &str, to: &str| {
        format!(
            "\n/// `{name}`.\npub extern \"C-unwind\" fn wrap_{name}(handle: {from}, site: CallSite) -> {to} {{\n"
        )
    };
    match (name.starts_with("MPI_File_"), to_int) {
        (false, _) => head("c_int", "c_int") + "    let _ = site;\n    handle\n}\n",
        // The null handle is another number in each ABI.
        (true, true) => {
            head("usize", "c_int")
                + "    let integer = native::wrap_MPI_File_toint(native_file(handle), site);\n    \
                   <Abi as HandleConversion<usize>>::from_native(HandleKind::File, integer as usize) as c_int\n}\n"
        }
        (true, false) => {
            head("c_int", "usize")
                + "    let integer = native_file(handle as u32 as usize).word() as c_int;\n    \
                   let file = native::wrap_MPI_File_fromint(integer, site);\n    \
                   <Abi as HandleConversion<usize>>::from_native(HandleKind::File, file.word())\n}\n"
        }
    }
}

/// The parts of a wrapper's code.
#[derive(Default)]
struct Wrapper {
    parameters: String,
    before: String,
    arguments: String,
    after: String,
}

impl Wrapper {
    fn parameter(
        &mut self,
        f: &Function,
        p: &Param,
        facts: &Parameters,
        constants: &AbiConstants,
    ) -> Result<(), String> {
        let name = rust_name(&p.name);
        if p.base == "MPI_Status" {
            let ty = if p.constant { "ConstPtr" } else { "Ptr" };
            self.declare(&name, &format!("{ty}<Status>"));
            return self.argument(match p.constant {
                true => name,
                false => format!("{name}.replaced(&STATUSES)"),
            });
        }
        if is_callback(p) {
            let ty = match is_tool_callback(p) {
                true => "Callback",
                false => "Callback<Abi>",
            };
            self.declare(&name, ty);
            return self.argument(name);
        }
        let Some(kind) = facts.kind(f, p)? else {
            return self.without_kind(p, &name, constants.handles);
        };
        match kind {
            Kind::Number => self.unchanged(p, &name),
            Kind::Special(special) => self.special(f, p, special, facts),
            Kind::Buffer => {
                self.declare(&name, "Buf");
                self.argument(format!("{name}.replaced(&BUFFERS)"))
            }
            Kind::Weights => {
                let ty = if p.constant { "ConstPtr" } else { "Ptr" };
                self.declare(&name, &format!("{ty}<c_int>"));
                self.argument(format!("{name}.replaced(&WEIGHTS)"))
            }
            // No variable of the core belongs to an object, so that address is never read.
            Kind::Address | Kind::ObjectOfVariable => {
                self.declare(&name, "Buf");
                self.argument(name)
            }
            Kind::ReturnedBuffer => {
                self.declare(&name, "Buf");
                self.place(&name, "BufferPlace", &format!("new({name}, &BUFFERS)"))
            }
            Kind::BoundedString => {
                self.declare(&name, "StrOut");
                self.argument(name)
            }
            Kind::String(limit) => self.string(f, &name, &limit, constants),
            Kind::ChangedHandle | Kind::ReturnedHandle => {
                let (ty, native) = (constants.handles.rust_type(&p.base), handle_name(p));
                self.declare(&name, &format!("Ptr<{ty}>"));
                let new = match kind {
                    Kind::ChangedHandle => "changed",
                    _ => "returned",
                };
                let place = format!("HandlePlace::<Abi, {}, {ty}>", p.base);
                self.place(
                    &name,
                    &place,
                    &format!("{new}(HandleKind::{native}, {name})"),
                )
            }
            Kind::Handles | Kind::ChangedHandles | Kind::ReturnedHandles => {
                let length = length(f, p, facts)?;
                self.handles(p, &kind, &length, constants.handles)
            }
            Kind::HandlePerProcess | Kind::HandlePerNeighbour => {
                let of = match (&kind, p.name.as_str()) {
                    (Kind::HandlePerProcess, _) => "processes",
                    (_, "sendtypes") => "destinations",
                    _ => "sources",
                };
                let length = match p.name.as_str() {
                    "sendtypes" => format!(
                        "unless_in_place(sendbuf.replaced(&BUFFERS), {of}(native_comm(comm)))"
                    ),
                    _ => format!("{of}(native_comm(comm))"),
                };
                self.handles(p, &Kind::Handles, &length, constants.handles)
            }
            Kind::TypeContents => {
                self.declare(&name, "Ptr<c_int>");
                let new = format!(
                    "new(native_datatype(datatype), {name}, \
                     [own_array_order, own_distribution, own_distribution_argument])"
                );
                self.place(&name, "TypeIntegers", &new)
            }
            Kind::IntegerOfHandle => Err("no rule converts it".into()),
        }
    }

    fn declare(&mut self, name: &str, ty: &str) {
        write!(self.parameters, "{name}: {ty}, ").unwrap();
    }

    fn argument(&mut self, text: String) -> Result<(), String> {
        write!(self.arguments, "{text}, ").unwrap();
        Ok(())
    }

    /// Adds a local place for a result that is converted after the call.
    fn place(&mut self, name: &str, ty: &str, new: &str) -> Result<(), String> {
        writeln!(self.before, "    let {name} = {ty}::{new};").unwrap();
        writeln!(self.after, "    {name}.finish();").unwrap();
        self.argument(format!("{name}.native()"))
    }

    /// A parameter whose C type says all.
    fn without_kind(&mut self, p: &Param, name: &str, handles: HandleForm) -> Result<(), String> {
        if p.depth > 0 || !HANDLES.contains(&p.base.as_str()) {
            return self.unchanged(p, name);
        }
        self.declare(name, handles.rust_type(&p.base));
        self.argument(format!("native_{}({name})", handle_name(p).to_lowercase()))
    }

    fn unchanged(&mut self, p: &Param, name: &str) -> Result<(), String> {
        self.declare(name, &crate::wrappers::rust_type(p));
        self.argument(name.into())
    }

    fn special(
        &mut self,
        f: &Function,
        p: &Param,
        special: Special,
        facts: &Parameters,
    ) -> Result<(), String> {
        let (name, set) = (rust_name(&p.name), table_of_special(special));
        let function = set.to_lowercase();
        if p.depth == 0 {
            self.declare(&name, "c_int");
            return self.argument(format!("native_{function}({name})"));
        }
        let functions = format!("native_{function}, own_{function}");
        if p.array {
            let length = length(f, p, facts)?;
            let ty = if p.constant { "ConstPtr" } else { "Ptr" };
            self.declare(&name, &format!("{ty}<c_int>"));
            if p.constant {
                writeln!(
                    self.before,
                    "    let {name} = IntsIn::new({name}, {length}, native_{function});"
                )
                .unwrap();
                return self.argument(format!("{name}.native()"));
            }
            return self.place(
                &name,
                "IntsOut",
                &format!("new({name}, {length}, {functions})"),
            );
        }
        self.declare(&name, "Ptr<c_int>");
        let new = match special == Special::Keyval && f.name.contains("_free") {
            true => "changed",
            false => "returned",
        };
        self.place(&name, "IntPlace", &format!("{new}({name}, {functions})"))
    }

    fn string(
        &mut self,
        f: &Function,
        name: &str,
        limit: &str,
        constants: &AbiConstants,
    ) -> Result<(), String> {
        self.declare(name, "StrOut");
        let pair = constants.pair(limit)?;
        let (standard, other) = pair.ok_or_else(|| format!("{limit} has no value"))?;
        if other >= standard {
            return self.argument(name.into());
        }
        let length = f.params.iter().find(|p| p.name == "resultlen");
        let length = match length {
            Some(p) => format!("Some({})", rust_name(&p.name)),
            None => "None".into(),
        };
        let new = format!("new({name}, {other})");
        writeln!(
            self.before,
            "    let {name} = ShorterString::<{standard}>::{new};"
        )
        .unwrap();
        writeln!(self.after, "    {name}.finish({length});").unwrap();
        self.argument(format!("{name}.native()"))
    }

    fn handles(
        &mut self,
        p: &Param,
        kind: &Kind,
        length: &str,
        form: HandleForm,
    ) -> Result<(), String> {
        let (name, native) = (rust_name(&p.name), handle_name(p));
        let ty = form.rust_type(&p.base);
        let new = match kind {
            Kind::Handles => {
                self.declare(&name, &format!("ConstPtr<{ty}>"));
                writeln!(
                    self.before,
                    "    let {name} = HandlesIn::<{}>::new::<Abi, {ty}>(HandleKind::{native}, {name}, {length});",
                    p.base
                )
                .unwrap();
                return self.argument(format!("{name}.native()"));
            }
            Kind::ChangedHandles => "changed",
            _ => "returned",
        };
        self.declare(&name, &format!("Ptr<{ty}>"));
        let place = format!("HandlesPlace::<Abi, {}, {ty}>", p.base);
        self.place(
            &name,
            &place,
            &format!("{new}(HandleKind::{native}, {name}, {length})"),
        )
    }
}

/// Returns the expression for the number of elements of an array.
fn length(f: &Function, p: &Param, facts: &Parameters) -> Result<String, String> {
    let name = facts.length(f, p).ok_or("an array without a length")?;
    let counted = f.params.iter().find(|p| p.name == name);
    let counted = counted.ok_or_else(|| format!("no parameter is named {name}"))?;
    let count = match (counted.depth, counted.array) {
        (0, _) => format!("length({} as i64)", rust_name(name)),
        // The number of elements comes in and goes out at an address.
        (1, false) => format!("length_at({})", rust_name(name)),
        // As many elements as the numbers of another array add up to.
        _ => format!("sum({}, {})", rust_name(name), count_of(f, counted, facts)?),
    };
    // Only the root's arguments count.
    Ok(match f.name.starts_with("MPI_Comm_spawn") {
        true => format!("at_root(native_comm(comm), native_rank(root), || {count})"),
        false => count,
    })
}

fn count_of(f: &Function, p: &Param, facts: &Parameters) -> Result<String, String> {
    let name = facts.length(f, p);
    name.map(|name| format!("length({} as i64)", rust_name(name)))
        .ok_or_else(|| format!("{} has no length", p.name))
}

/// Name of a handle's type without `MPI_`, as `HandleKind` has it.
fn handle_name(p: &Param) -> &str {
    &p.base["MPI_".len()..]
}
