//! A Fortran routine: the C function behind it, and its arguments.

use crate::table::{Function, Param};
use std::collections::HashMap;

use crate::parameters::{self, HANDLES, Parameters};

/// Fortran's form of a C function.
#[derive(Debug, Clone)]
pub struct Routine {
    /// The C function.
    pub function: Function,
    /// In Fortran's order, without `ierror`.
    pub arguments: Vec<Argument>,
    /// True if the glue is written by hand.
    pub is_special: bool,
    /// True for the form with large counts, which only `mpi_f08` has.
    pub is_large: bool,
}

/// An argument of a [`Routine`].
#[derive(Debug, Clone)]
pub struct Argument {
    /// Name in Fortran.
    pub name: String,
    /// The C parameter.
    pub c: Param,
    /// How it is converted.
    pub kind: ArgumentKind,
    /// Intent in `mpi_f08`.
    pub intent: Intent,
    /// `ASYNCHRONOUS` in `mpi_f08`.
    pub is_asynchronous: bool,
    /// Dimensions of an array, as in `abi/fortran.txt`.
    pub dims: Option<String>,
}

/// Direction of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// `INTENT(IN)`.
    In,
    /// `INTENT(OUT)`.
    Out,
    /// `INTENT(INOUT)`.
    InOut,
    /// No intent, because a sentinel may be passed.
    None,
}

/// How the glue converts an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A number of the C type's width, or an array of them.
    Number,
    /// `LOGICAL`, an int in C.
    Logical,
    /// A number, or an array of them, that counts from 1.
    BaseOne,
    /// A handle, or an array of them, of this class.
    Handle(String),
    /// A status, or an array of them.
    Status,
    /// A buffer of any type.
    Choice,
    /// A pointer: `TYPE(C_PTR)` in `mpi_f08`, an integer of the width of addresses elsewhere.
    CPointer,
    /// A pointer in `mpi_f08`; a buffer that stays as it is elsewhere.
    Detached,
    /// An integer of the width of addresses, a `void *` in C.
    Address,
    /// An `INTEGER`, a `void *` in C.
    OldInteger,
    /// A string that is read.
    StringIn,
    /// A string that is written, with at most so many characters.
    StringOut(String),
    /// A string that is written; this argument says how many characters there are.
    StringOutCounted(String),
    /// An array of strings.
    Strings,
    /// A procedure of this C type.
    Callback(String),
    /// Error codes that may be ignored.
    ErrorCodes,
    /// Weights of a graph, which may be absent or empty.
    Weights,
}

impl Routine {
    /// Returns the name in lower case, without large counts' mark: `mpi_send`.
    pub fn lower_name(&self) -> String {
        self.function.name.to_ascii_lowercase()
    }

    /// Returns whether a buffer of any type is among the arguments.
    pub fn has_choice(&self) -> bool {
        self.arguments
            .iter()
            .any(|argument| argument.kind == ArgumentKind::Choice)
    }

    /// Returns whether a string is among the arguments.
    pub fn has_string(&self) -> bool {
        self.arguments.iter().any(Argument::is_string)
    }

    /// Returns whether buffers are passed by descriptor in `mpi_f08`. A string beside them would
    /// need a descriptor as well.
    pub fn has_descriptors(&self) -> bool {
        self.has_choice() && !self.has_string()
    }

    /// Returns whether a procedure is among the arguments.
    pub fn has_callback(&self) -> bool {
        let mut arguments = self.arguments.iter();
        arguments.any(|argument| matches!(argument.kind, ArgumentKind::Callback(_)))
    }

    /// Returns whether an address that the library returns is among the arguments.
    pub fn has_c_pointer(&self) -> bool {
        let mut arguments = self.arguments.iter();
        arguments.any(|argument| argument.kind == ArgumentKind::CPointer)
    }

    /// Returns whether the routine makes a persistent request of a collective operation.
    pub fn is_persistent_collective(&self) -> bool {
        let name = self.function.name.strip_suffix("_init");
        name.is_some_and(|name| !name.ends_with("send") && !name.ends_with("recv"))
            && !self.made_handles().is_empty()
            && self.made_handles()[0].0 == "Request"
    }

    /// Returns the handles that the routine makes: kinds and names in C.
    pub fn made_handles(&self) -> Vec<(&str, &str)> {
        let made = self.arguments.iter().filter_map(|argument| {
            let ArgumentKind::Handle(class) = &argument.kind else {
                return None;
            };
            let is_made = argument.intent == Intent::Out && argument.c.depth == 1;
            is_made.then_some((class.strip_prefix("MPI_")?, argument.c.name.as_str()))
        });
        made.collect()
    }

    /// Returns whether the operation goes on after the call.
    pub fn is_nonblocking(&self) -> bool {
        let starts =
            |argument: &Argument| argument.kind == ArgumentKind::Choice && argument.is_asynchronous;
        self.arguments.iter().any(starts)
    }

    /// Returns the buffers that are followed by one count and one datatype: the names of the three.
    /// None in reductions, whose operations take predefined datatypes; an accumulate of one-sided
    /// communication takes derived ones, too.
    pub fn typed_buffers(&self) -> Vec<(&str, &str, &str)> {
        let params = &self.function.params;
        let has = |base: &str| params.iter().any(|param| param.base == base);
        if has("MPI_Op") && !has("MPI_Win") {
            return Vec::new();
        }
        let is_buffer = |name: &str| {
            let mut arguments = self.arguments.iter();
            arguments.any(|a| a.c.name == name && a.kind == ArgumentKind::Choice)
        };
        let typed = |three: &'_ [Param]| {
            let [buffer, count, datatype] = three else {
                return false;
            };
            is_buffer(&buffer.name)
                && count.depth == 0
                && count.name.contains("count")
                && datatype.base == "MPI_Datatype"
                && datatype.depth == 0
        };
        let threes = params.windows(3).filter(|three| typed(three));
        let names = threes.map(|t| (t[0].name.as_str(), t[1].name.as_str(), t[2].name.as_str()));
        names.collect()
    }

    /// Returns whether the function returns a number in place of an error code.
    pub fn is_function(&self) -> bool {
        self.function.result != "int"
    }

    /// Returns whether `mpi_f08` has it. Deprecated attribute functions are not there.
    pub fn is_in_f08(&self) -> bool {
        let is_old = |argument: &Argument| argument.kind == ArgumentKind::OldInteger;
        let old = ["MPI_Attr_delete", "MPI_Keyval_free"];
        !self.arguments.iter().any(is_old) && !old.contains(&self.function.name.as_str())
    }
}

impl Argument {
    /// Returns whether the argument has a hidden length.
    pub fn is_string(&self) -> bool {
        matches!(
            self.kind,
            ArgumentKind::StringIn
                | ArgumentKind::StringOut(_)
                | ArgumentKind::StringOutCounted(_)
                | ArgumentKind::Strings
        )
    }

    /// Returns whether the argument is an array.
    pub fn is_array(&self) -> bool {
        self.dims.is_some() || self.c.array
    }
}

/// What a line of `abi/fortran.txt` says of one argument.
type Words = Vec<String>;

/// Returns the routines of Fortran in the order of the C functions, small forms and large ones.
///
/// # Errors
/// A line that does not parse, or that names a function or an argument that is not there.
pub fn routines(
    functions: &[Function],
    facts: &Parameters,
    text: &str,
) -> Result<Vec<Routine>, String> {
    let mut routines = Vec::new();
    let mut notes: HashMap<String, (bool, HashMap<String, Words>)> = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |what: &str| format!("abi/fortran.txt, line {}: {what}", number + 1);
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        if !functions.iter().any(|function| function.name == name) {
            return Err(at(&format!("no function {name}")));
        }
        let (mut is_special, mut arguments) = (false, HashMap::new());
        for word in words {
            match word.split_once('=') {
                Some((argument, said)) => {
                    let said = said.split(',').map(str::to_owned).collect();
                    arguments.insert(argument.to_owned(), joined_dims(said));
                }
                None if word == "special" => is_special = true,
                None => return Err(at(&format!("not understood: {word}"))),
            }
        }
        notes.insert(name, (is_special, arguments));
    }
    for function in functions {
        let small = function.name.strip_suffix("_c");
        let is_large = small.is_some_and(|name| notes.contains_key(name));
        let name = if is_large {
            small.unwrap_or_default()
        } else {
            &function.name
        };
        let Some((is_special, said)) = notes.get(name) else {
            continue;
        };
        let mut arguments = Vec::new();
        for param in &function.params {
            let words = said.get(&param.name).cloned().unwrap_or_default();
            if !words.iter().any(|word| word == "drop") {
                arguments.push(argument(function, param, facts, &words)?);
            }
        }
        routines.push(Routine {
            function: function.clone(),
            arguments,
            is_special: *is_special,
            is_large,
        });
    }
    Ok(routines)
}

/// Puts dimensions together again that have a comma of their own.
fn joined_dims(words: Words) -> Words {
    let mut joined: Words = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(last) if last.starts_with('[') && !last.ends_with(']') => {
                last.push(',');
                last.push_str(&word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

fn argument(
    function: &Function,
    param: &Param,
    facts: &Parameters,
    words: &[String],
) -> Result<Argument, String> {
    let mut argument = Argument {
        name: param.name.clone(),
        c: param.clone(),
        kind: kind_by_type(param),
        intent: Intent::In,
        is_asynchronous: false,
        dims: facts.length(function, param).map(str::to_owned),
    };
    if let Some(parameters::Kind::String(room)) = facts.kind(function, param)? {
        argument.kind = ArgumentKind::StringOut(room);
    }
    for word in words {
        let inner = |prefix: &str| {
            let rest = word.strip_prefix(prefix)?;
            rest.get(..rest.len().checked_sub(1)?)
        };
        match word.as_str() {
            "out" => argument.intent = Intent::Out,
            "inout" => argument.intent = Intent::InOut,
            "none" => argument.intent = Intent::None,
            "async" => argument.is_asynchronous = true,
            "logical" => argument.kind = ArgumentKind::Logical,
            "choice" => argument.kind = ArgumentKind::Choice,
            "cptr" => argument.kind = ArgumentKind::CPointer,
            "detached" => argument.kind = ArgumentKind::Detached,
            "address" => argument.kind = ArgumentKind::Address,
            "integer" => argument.kind = ArgumentKind::OldInteger,
            "base1" => argument.kind = ArgumentKind::BaseOne,
            _ => match (inner("["), inner("room(+"), inner("room("), inner("as(")) {
                (Some(dims), ..) => argument.dims = Some(dims.into()),
                (_, Some(count), ..) => {
                    argument.kind = ArgumentKind::StringOutCounted(count.into())
                }
                (_, _, Some(room), _) => argument.kind = ArgumentKind::StringOut(room.into()),
                (.., Some(name)) => argument.name = name.into(),
                _ => return Err(format!("abi/fortran.txt: {}: {word}", param.name)),
            },
        }
    }
    if argument.kind == ArgumentKind::StringOut(String::new()) {
        return Err(format!(
            "{}.{}: a string of no length",
            function.name, param.name
        ));
    }
    if argument.kind == ArgumentKind::Choice && param.base != "void" {
        return Err(format!("abi/fortran.txt: {} is no buffer", param.name));
    }
    Ok(argument)
}

fn kind_by_type(param: &Param) -> ArgumentKind {
    let base = param.base.as_str();
    match base {
        "char" if param.depth > 1 => ArgumentKind::Strings,
        "char" if param.constant => ArgumentKind::StringIn,
        // As long as `abi/parameters.txt` or `abi/fortran.txt` says.
        "char" => ArgumentKind::StringOut(String::new()),
        "MPI_Status" => ArgumentKind::Status,
        "int" if param.name == "array_of_errcodes" => ArgumentKind::ErrorCodes,
        "int" if param.depth > 0 && param.name.ends_with("weights") => ArgumentKind::Weights,
        _ if HANDLES.contains(&base) => ArgumentKind::Handle(base.into()),
        _ if base.contains("_function") => ArgumentKind::Callback(base.into()),
        _ => ArgumentKind::Number,
    }
}
