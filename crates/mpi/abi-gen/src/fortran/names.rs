//! Names of the symbols that Fortran programs refer to, by the MPI library they were built for.

use super::glue::Form;
use super::routine::{Argument, ArgumentKind, Intent, Routine};
use crate::parameters::HANDLES;

/// The names that a library of Fortran routines exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// `libmpifort_abi.so.1`: four manglings, and the specific names of `mpi_f08`.
    Standard,
    /// `libmpi_mpifh.so.40` of Open MPI: four manglings, and names for the modules' libraries.
    OpenMpi,
}

/// Variables whose size `MPI_Sizeof` of Open MPI tells: a type, and its bytes.
const SIZED_TYPES: [(&str, u32); 12] = [
    ("character", 1),
    ("complex32", 8),
    ("complex64", 16),
    ("complex128", 32),
    ("int8", 1),
    ("int16", 2),
    ("int32", 4),
    ("int64", 8),
    ("logical", 4),
    ("real32", 4),
    ("real64", 8),
    ("real128", 16),
];
/// Dimensions of an array of Fortran.
const RANK_MAX: usize = 15;

impl Names {
    /// Returns the routines that the library has.
    pub(super) fn own(self, routines: &[Routine]) -> Vec<&Routine> {
        let is_own = |routine: &&Routine| self == Self::Standard || !routine.is_large;
        routines.iter().filter(is_own).collect()
    }

    /// Returns the forms of a routine that have names of their own.
    pub(super) fn forms(self, routine: &Routine) -> Vec<Form> {
        match self {
            Self::Standard => Form::of(routine),
            Self::OpenMpi => vec![Form::Plain],
        }
    }

    /// Returns the symbols of a procedure, as compilers make them from its name: by default, and
    /// with the options `-fno-underscoring`, `-fsecond-underscore` and for upper case.
    pub(super) fn manglings(self, name: &str) -> Vec<String> {
        vec![
            name.into(),
            format!("{name}_"),
            format!("{name}__"),
            name.to_ascii_uppercase(),
        ]
    }

    /// Returns the symbols of a routine by its name in lower case, and whether tools see the calls.
    pub(super) fn symbols(self, name: &str) -> Vec<(String, bool)> {
        let visible = self
            .manglings(name)
            .into_iter()
            .map(|symbol| (symbol, true));
        let hidden = self.manglings(&format!("p{name}"));
        let hidden = hidden.into_iter().map(|symbol| (symbol, false));
        let mut symbols: Vec<_> = visible.chain(hidden).collect();
        if self == Self::OpenMpi {
            // The library of `mpi_f08` calls these.
            let inner = name.strip_prefix("mpi").unwrap_or(name);
            symbols.push((format!("ompi{inner}_f"), true));
        }
        symbols
    }

    /// Returns the symbols of a routine whose buffers are descriptors.
    pub(super) fn descriptor_symbols(self, name: &str) -> Vec<String> {
        match self {
            Self::Standard => vec![format!("{name}_f08ts"), format!("p{name}_f08ts")],
            Self::OpenMpi => Vec::new(),
        }
    }

    /// Returns the symbols of a form of a routine, and whether tools see the calls.
    pub(super) fn symbols_of(self, routine: &Routine, form: Form) -> Vec<(String, bool)> {
        if self == Self::Standard {
            let both = |symbol: String| [(format!("p{symbol}"), false), (symbol, true)];
            let symbols = form.symbols(routine).into_iter().flat_map(both);
            let mangled = symbols.flat_map(|(symbol, tools)| {
                // Names of `BIND(C)` do not depend on the compiler.
                let names = match symbol.strip_suffix('_') {
                    Some(name) => self.manglings(name),
                    None => vec![symbol],
                };
                names.into_iter().map(move |name| (name, tools))
            });
            return mangled.collect();
        }
        let name = routine.lower_name();
        let mut names = vec![name.clone()];
        if routine.has_c_pointer() {
            names.push(format!("{name}_cptr"));
        }
        if routine.is_persistent_collective() {
            names.push(name.replacen("mpi_", "mpix_", 1));
        }
        names.iter().flat_map(|name| self.symbols(name)).collect()
    }

    /// Returns whether a routine has a shortcut: it has a buffer or a status, all other arguments
    /// are single handles and numbers, and Fortran has all arguments of C.
    pub(super) fn has_shortcut(self, routine: &Routine) -> bool {
        let is_simple = |argument: &Argument| match argument.kind {
            ArgumentKind::Handle(_) => !argument.is_array(),
            ArgumentKind::Number => argument.c.depth == 0,
            ArgumentKind::Choice | ArgumentKind::Status => true,
            _ => false,
        };
        let may_be_sentinel = |argument: &Argument| {
            argument.kind == ArgumentKind::Choice
                || argument.kind == ArgumentKind::Status && argument.intent == Intent::None
        };
        self == Self::Standard
            && !routine.is_special
            && !routine.is_function()
            && routine.arguments.len() == routine.function.params.len()
            && routine.arguments.iter().all(is_simple)
            && routine.arguments.iter().any(may_be_sentinel)
    }

    /// Returns the procedures behind the operators of `mpi_f08` for handles, and what they do.
    pub(super) fn comparisons(self) -> Vec<(String, &'static str)> {
        if self != Self::Standard {
            return Vec::new();
        }
        let of = |handle: &&str| {
            let class = handle.replace("MPI_", "garonne_").to_ascii_lowercase();
            [
                (format!("{class}_eq"), "are_equal"),
                (format!("{class}_ne"), "are_different"),
            ]
        };
        HANDLES.iter().flat_map(of).collect()
    }

    /// Returns the symbols that tell the size of a variable, and the sizes.
    pub(super) fn sizes(self) -> Vec<(String, u32)> {
        if self == Self::Standard {
            return Vec::new();
        }
        let mut symbols = Vec::new();
        for (name, bytes) in SIZED_TYPES {
            let arrays = (1..=RANK_MAX).map(|rank| format!("r{rank}"));
            for shape in arrays.chain(["scalar".into()]) {
                symbols.push((format!("mpi_sizeof_{name}_{shape}_"), bytes));
                symbols.push((format!("pmpi_sizeof_{name}_{shape}_"), bytes));
            }
        }
        symbols
    }
}
