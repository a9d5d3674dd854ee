//! Parser of `abi/parameters.txt`: what parameters mean beyond their C types.

use crate::table::{Function, Param};
use std::collections::HashMap;

/// Meaning of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A number that is the same in every ABI.
    Number,
    /// A number of which some values are constants that differ between ABIs.
    Special(Special),
    /// Integers of which a datatype was made.
    TypeContents,
    /// A handle as a Fortran integer.
    IntegerOfHandle,
    /// An address of data, or one of the special addresses of buffers.
    Buffer,
    /// Weights, or one of the special addresses of weights.
    Weights,
    /// A place for the address of a buffer, which the call returns.
    ReturnedBuffer,
    /// An address that is the same in every ABI.
    Address,
    /// An address of a handle whose kind another argument says.
    ObjectOfVariable,
    /// A string as long as another argument says.
    BoundedString,
    /// A string as long as this constant says.
    String(String),
    /// A handle that the call reads and changes.
    ChangedHandle,
    /// A handle that the call returns.
    ReturnedHandle,
    /// Handles that the call reads.
    Handles,
    /// One handle for each process of the communicator, or of the remote group.
    HandlePerProcess,
    /// One handle for each neighbour.
    HandlePerNeighbour,
    /// Handles that the call reads and changes.
    ChangedHandles,
    /// Handles that the call returns.
    ReturnedHandles,
}

/// Sets of constants that differ between ABIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "named as in abi/parameters.txt, which describes them"
)]
pub enum Special {
    Rank,
    Tag,
    Error,
    Keyval,
    ThreadLevel,
    Comparison,
    Topology,
    SplitType,
    ArrayOrder,
    Distribution,
    DistributionArgument,
    Combiner,
    TypeClass,
    WindowLock,
    Assertion,
    FileMode,
    FilePosition,
    Verbosity,
    ObjectBinding,
    Scope,
    VariableClass,
}

const SPECIALS: [(&str, Special); 21] = [
    ("rank", Special::Rank),
    ("tag", Special::Tag),
    ("error", Special::Error),
    ("keyval", Special::Keyval),
    ("thread level", Special::ThreadLevel),
    ("comparison", Special::Comparison),
    ("topology", Special::Topology),
    ("split type", Special::SplitType),
    ("array order", Special::ArrayOrder),
    ("distribution", Special::Distribution),
    ("distribution argument", Special::DistributionArgument),
    ("combiner", Special::Combiner),
    ("type class", Special::TypeClass),
    ("window lock", Special::WindowLock),
    ("assertion", Special::Assertion),
    ("file mode", Special::FileMode),
    ("file position", Special::FilePosition),
    ("verbosity", Special::Verbosity),
    ("object binding", Special::ObjectBinding),
    ("scope", Special::Scope),
    ("variable class", Special::VariableClass),
];

/// Handle types of the table, without those of the tool interface.
pub const HANDLES: [&str; 11] = [
    "MPI_Comm",
    "MPI_Datatype",
    "MPI_Errhandler",
    "MPI_File",
    "MPI_Group",
    "MPI_Info",
    "MPI_Message",
    "MPI_Op",
    "MPI_Request",
    "MPI_Session",
    "MPI_Win",
];

/// The facts of `abi/parameters.txt`.
#[derive(Debug)]
pub struct Parameters {
    kinds: HashMap<String, Kind>,
    lengths: HashMap<String, String>,
}

impl Parameters {
    /// Parses the text of `abi/parameters.txt`.
    ///
    /// # Errors
    /// Number and text of the line that does not parse, or that gives a name a second kind.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parsed = Self {
            kinds: HashMap::new(),
            lengths: HashMap::new(),
        };
        let mut section = None;
        for (at, line) in text.lines().enumerate() {
            let (line, wrong) = (line.trim(), |why: &str| {
                format!("line {}: {why}: {line}", at + 1)
            });
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = Some(name);
                continue;
            }
            let mut words = line.split_whitespace();
            if section == Some("lengths") {
                let (Some(array), Some(length), None) = (words.next(), words.next(), words.next())
                else {
                    return Err(wrong("an array and its length"));
                };
                parsed.lengths.insert(array.into(), length.into());
                continue;
            }
            let kind = section
                .and_then(kind)
                .ok_or_else(|| wrong("no section or no such kind"))?;
            for word in words {
                if parsed.kinds.insert(word.into(), kind.clone()).is_some() {
                    return Err(wrong(&format!("{word} has a kind already")));
                }
            }
        }
        Ok(parsed)
    }

    /// Returns the meaning of a parameter. `None` for one that needs none, because its C type says
    /// all: a scalar handle, a status, a callback, a string or an array of large counts.
    ///
    /// # Errors
    /// The parameter, if it needs a kind and has none.
    pub fn kind(&self, f: &Function, p: &Param) -> Result<Option<Kind>, String> {
        if !needs_kind(p) {
            return Ok(None);
        }
        let own = format!("{}.{}", f.name, p.name);
        match self.kinds.get(&own).or_else(|| self.kinds.get(&p.name)) {
            Some(kind) => Ok(Some(kind.clone())),
            None => Err(format!("{own} has no kind in abi/parameters.txt")),
        }
    }

    /// Returns the name of the parameter that says how many elements an array has.
    pub fn length(&self, f: &Function, p: &Param) -> Option<&str> {
        let own = format!("{}.{}", f.name, p.name);
        let found = self.lengths.get(&own);
        found
            .or_else(|| self.lengths.get(&p.name))
            .map(String::as_str)
    }

    /// Returns every name with a kind or a length, for a test that each is used.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kinds
            .keys()
            .chain(self.lengths.keys())
            .map(String::as_str)
    }
}

fn kind(section: &str) -> Option<Kind> {
    if let Some(limit) = section.strip_prefix("string ") {
        return Some(Kind::String(limit.into()));
    }
    if let Some((_, special)) = SPECIALS.iter().find(|(name, _)| *name == section) {
        return Some(Kind::Special(*special));
    }
    Some(match section {
        "number" => Kind::Number,
        "type contents" => Kind::TypeContents,
        "integer of a handle" => Kind::IntegerOfHandle,
        "buffer" => Kind::Buffer,
        "weights" => Kind::Weights,
        "returned buffer" => Kind::ReturnedBuffer,
        "address" => Kind::Address,
        "object of a variable" => Kind::ObjectOfVariable,
        "bounded string" => Kind::BoundedString,
        "changed handle" => Kind::ChangedHandle,
        "returned handle" => Kind::ReturnedHandle,
        "handles" => Kind::Handles,
        "handle per process" => Kind::HandlePerProcess,
        "handle per neighbour" => Kind::HandlePerNeighbour,
        "changed handles" => Kind::ChangedHandles,
        "returned handles" => Kind::ReturnedHandles,
        _ => return None,
    })
}

fn needs_kind(p: &Param) -> bool {
    match p.base.as_str() {
        "int" => true,
        "void" => true,
        "char" => p.depth == 1 && !p.constant,
        base => p.depth > 0 && HANDLES.contains(&base),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_parameter_that_needs_a_kind_has_one_and_every_name_is_used() {
        let (functions, facts) = (crate::functions().unwrap(), crate::parameters().unwrap());
        let mut used = HashSet::new();
        let mut missing = Vec::new();
        for f in &functions {
            for p in &f.params {
                match facts.kind(f, p) {
                    Ok(_) => used.extend([p.name.clone(), format!("{}.{}", f.name, p.name)]),
                    Err(why) => missing.push(why),
                }
            }
        }
        assert_eq!(missing, Vec::<String>::new());
        let unused: Vec<&str> = facts.names().filter(|name| !used.contains(*name)).collect();
        assert_eq!(unused, Vec::<&str>::new());
    }

    #[test]
    fn kinds_fit_the_types_and_arrays_have_lengths() {
        let (functions, facts) = (crate::functions().unwrap(), crate::parameters().unwrap());
        let mut wrong = Vec::new();
        for f in &functions {
            for p in &f.params {
                let Some(kind) = facts.kind(f, p).unwrap() else {
                    continue;
                };
                let handle = HANDLES.contains(&p.base.as_str());
                let fits = match &kind {
                    Kind::Number | Kind::Special(_) | Kind::IntegerOfHandle => p.base == "int",
                    Kind::Weights | Kind::TypeContents => p.base == "int" && p.depth == 1,
                    Kind::Buffer
                    | Kind::ReturnedBuffer
                    | Kind::Address
                    | Kind::ObjectOfVariable => p.base == "void",
                    Kind::BoundedString | Kind::String(_) => p.base == "char",
                    Kind::ChangedHandle | Kind::ReturnedHandle => handle && !p.array && !p.constant,
                    Kind::Handles | Kind::HandlePerProcess | Kind::HandlePerNeighbour => {
                        handle && p.array && p.constant
                    }
                    Kind::ChangedHandles | Kind::ReturnedHandles => {
                        handle && p.array && !p.constant
                    }
                };
                let counted = match kind {
                    Kind::Handles | Kind::ChangedHandles | Kind::ReturnedHandles => true,
                    Kind::Special(_) => p.array,
                    _ => false,
                };
                let length = facts.length(f, p);
                let known = length.is_some_and(|name| f.params.iter().any(|p| p.name == name));
                if !fits || counted && !known {
                    wrong.push(format!("{}.{}: {kind:?} {length:?}", f.name, p.name));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn what_calls_change_is_as_the_standard_says() {
        let (functions, facts) = (crate::functions().unwrap(), crate::parameters().unwrap());
        let count = |wanted: Kind| {
            let params = functions
                .iter()
                .flat_map(|f| f.params.iter().map(move |p| (f, p)));
            let kinds = params.filter_map(|(f, p)| facts.kind(f, p).unwrap());
            kinds.filter(|kind| *kind == wanted).count()
        };
        assert_eq!(count(Kind::ChangedHandle), 20);
        assert_eq!(count(Kind::ChangedHandles), 7);
    }

    #[test]
    fn a_name_with_two_kinds_is_refused() {
        let error = Parameters::parse("[number]\ncount\n[rank]\ncount\n").unwrap_err();
        assert!(error.contains("line 4"), "{error}");
        assert!(Parameters::parse("[no such kind]\ncount\n").is_err());
    }
}
