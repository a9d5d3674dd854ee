//! Which MPI's binary interface a program was built for.

use std::path::Path;

use crate::closure::{Closure, LoadedObject};
use crate::object_file::{self, ObjectFile};

/// A binary interface of MPI: handles, constants and layouts that a program was compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MpiAbi {
    /// The standard's own, of MPI 5.0: `libmpi_abi.so.1`.
    Standard,
    /// MPICH's, which Intel MPI and MVAPICH share: `libmpi.so.12`, on Debian `libmpich.so.12`.
    Mpich,
    /// Open MPI's since version 4: `libmpi.so.40`.
    OpenMpi,
}

impl MpiAbi {
    /// Returns the interface of a C library by its name in a program; `None`: it is none of these.
    pub fn of_library(name: &str) -> Option<Self> {
        let name = name.rsplit('/').next().unwrap_or(name);
        let (stem, version) = name.split_once(".so.")?;
        let major = version.split('.').next()?;
        match (stem, major) {
            ("libmpi_abi", "1") => Some(Self::Standard),
            ("libmpi" | "libmpich", "12") => Some(Self::Mpich),
            ("libmpi", "40") => Some(Self::OpenMpi),
            _ => None,
        }
    }
}

impl std::fmt::Display for MpiAbi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Standard => "the MPI 5 standard ABI",
            Self::Mpich => "MPICH's ABI",
            Self::OpenMpi => "Open MPI's ABI",
        })
    }
}

/// Prefix of symbols that only libraries of Garonne define.
pub(crate) const OWN_SYMBOLS: &[u8] = b"garonne_";

/// Functions by one of which a program becomes one of MPI.
const BEGINNINGS: [&[u8]; 3] = [b"MPI_Init", b"MPI_Init_thread", b"MPI_Session_init"];

/// What the dynamic symbols of an ELF file say of MPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MpiSymbols {
    /// The file calls a function of another file that begins MPI.
    pub calls_mpi: bool,
    /// The file has such a function.
    pub provides_mpi: bool,
    /// The file is a library of Garonne, whatever its name.
    pub is_garonne: bool,
}

/// Reads the loader's part of a file, and what its symbols say of MPI. Read in parts, never as a
/// whole: libraries of other MPIs are tens of megabytes. `None`: the file is no ELF file, is
/// damaged, or cannot be read.
pub fn read(path: &Path) -> Option<(ObjectFile, MpiSymbols)> {
    let mut found = MpiSymbols::default();
    let file = object_file::read_with_symbols(path, |name, is_defined| {
        found.is_garonne |= is_defined && name.starts_with(OWN_SYMBOLS);
        if BEGINNINGS.contains(&name) {
            found.provides_mpi |= is_defined;
            found.calls_mpi |= !is_defined;
        }
    })?;
    Some((file, found))
}

/// Returns whether a library is Garonne's, whatever its name.
pub fn is_garonne(path: &Path) -> bool {
    read(path).is_some_and(|(_, symbols)| symbols.is_garonne)
}

/// Returns whether a library implements MPI, whatever its name: it defines the functions under the
/// names of the profiling interface, too, which what intercepts MPI leaves to others.
pub fn is_implementation(path: &Path) -> bool {
    object_file::defines(path, &[b"MPI_Init", b"PMPI_Init"])
}

/// Returns whether a library or program has the functions of an MPI in itself, also one whose
/// names were taken away by `strip`. Garonne's libraries do not count.
///
/// A library that intercepts MPI defines its functions under one of both prefixes only.
pub fn is_linked_in(path: &Path) -> bool {
    let (mut plain, mut profiling, mut is_garonne) = (false, false, false);
    object_file::read_all_symbols(path, |name, is_defined| {
        plain |= is_defined && name == b"MPI_Init";
        profiling |= is_defined && name == b"PMPI_Init";
        is_garonne |= is_defined && name.starts_with(OWN_SYMBOLS);
    });
    (plain && profiling && !is_garonne) || has_strings_of_mpi(path)
}

/// The name of a datatype, which `MPI_Type_get_name` returns: every implementation has it among
/// its constants.
const TYPE_NAME: &[u8] = b"MPI_DOUBLE_INT";

/// Variables by which launchers tell the ranks of MPICH and its relatives, and of Open MPI, who
/// they are. Their libraries ask for one of them.
const RANK_VARIABLES: [&[u8]; 4] = [b"PMI_RANK", b"PMI_FD", b"PMIX_RANK", b"OMPI_MCA_"];

/// Returns whether a file has strings as the implementation of another MPI has them, by which it
/// names its datatypes and finds its launcher.
fn has_strings_of_mpi(path: &Path) -> bool {
    let (mut names_types, mut asks_launcher, mut is_garonne) = (false, false, false);
    object_file::read_strings(path, |string| {
        names_types |= string.ends_with(TYPE_NAME);
        asks_launcher |= RANK_VARIABLES.contains(&string);
        is_garonne |= string.starts_with(b"GARONNE_");
    });
    names_types && asks_launcher && !is_garonne
}

/// A library of MPI that a program loads, or needs and would not find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiLibrary {
    /// The interface it has by its name.
    pub abi: MpiAbi,
    /// The needed name.
    pub name: String,
    /// Index in [`Closure::objects`] of the library; `None`: there is no such file.
    pub loaded: Option<usize>,
    /// Index of the object that needs it first.
    pub needed_by: Option<usize>,
}

/// Returns the C libraries of MPI in a program's closure, in the loader's order. More than one:
/// parts of the program were built for different interfaces.
pub fn used(closure: &Closure) -> Vec<MpiLibrary> {
    let name_of = |object: &LoadedObject| {
        let soname = object.file.soname.clone();
        soname.unwrap_or_else(|| object.name.clone())
    };
    let loaded = closure.objects.iter().enumerate().skip(1);
    let loaded = loaded.filter_map(|(at, object)| {
        let name = name_of(object);
        Some(MpiLibrary {
            abi: MpiAbi::of_library(&name)?,
            name,
            loaded: Some(at),
            needed_by: object.needed_by,
        })
    });
    let missing = closure.missing.iter().filter_map(|missing| {
        Some(MpiLibrary {
            abi: MpiAbi::of_library(&missing.name)?,
            name: missing.name.clone(),
            loaded: None,
            needed_by: Some(missing.needed_by),
        })
    });
    loaded.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_libraries_and_says_nothing_of_mpi() {
        let (own, symbols) = read(Path::new("/proc/self/exe")).unwrap();
        assert!(
            own.needed.iter().any(|name| name.starts_with("libc.so")),
            "{own:?}"
        );
        assert_eq!(symbols, MpiSymbols::default());
    }

    #[test]
    fn what_is_no_elf_file_says_nothing() {
        assert_eq!(read(Path::new("/etc/passwd")), None);
        assert_eq!(read(Path::new("/dev/null")), None);
        assert_eq!(read(Path::new("/nowhere")), None);
    }

    #[test]
    fn libraries_are_known_by_their_names() {
        for (name, abi) in [
            ("libmpi_abi.so.1", Some(MpiAbi::Standard)),
            ("libmpi.so.12", Some(MpiAbi::Mpich)),
            ("libmpi.so.12.2.2", Some(MpiAbi::Mpich)),
            ("/opt/x/libmpich.so.12", Some(MpiAbi::Mpich)),
            ("libmpi.so.40", Some(MpiAbi::OpenMpi)),
            ("libmpi.so.20", None),
            ("libmpi.so", None),
            ("libmpi_cxx.so.40", None),
            ("libmpifort_abi.so.1", None),
        ] {
            assert_eq!(MpiAbi::of_library(name), abi, "{name}");
        }
    }
}
