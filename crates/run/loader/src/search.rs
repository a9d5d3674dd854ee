//! Where the loader looks for a library, in its order: `DT_RPATH`, `LD_LIBRARY_PATH`, `DT_RUNPATH`,
//! the cache, the system's directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::object_cache::ObjectCache;
use crate::object_file::{Architecture, ObjectFile};

/// Directories that the loader searches before the system's.
pub const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Objects that the loader maps before all others.
pub const PRELOAD: &str = "LD_PRELOAD";

/// The rule by which the loader found an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The program itself.
    Program,
    /// `LD_PRELOAD`.
    Preload,
    /// The needed name has a slash: it is a path.
    Path,
    /// `DT_RPATH` of the object at this path. Wins over `LD_LIBRARY_PATH`.
    Rpath(PathBuf),
    /// `LD_LIBRARY_PATH`.
    LibraryPath,
    /// `DT_RUNPATH` of the object that needs the library.
    Runpath,
    /// The loader's cache.
    Cache,
    /// One of the system's directories.
    DefaultDirs,
}

impl std::fmt::Display for FoundBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Program => "the program itself",
            Self::Preload => "LD_PRELOAD",
            Self::Path => "its path, which the program names",
            Self::Rpath(whose) => {
                return write!(f, "DT_RPATH of {}, before LD_LIBRARY_PATH", whose.display());
            }
            Self::LibraryPath => "LD_LIBRARY_PATH",
            Self::Runpath => "DT_RUNPATH, after LD_LIBRARY_PATH",
            Self::Cache => "the loader's cache (/etc/ld.so.cache)",
            Self::DefaultDirs => "the system's directories",
        })
    }
}

/// Variables that name directories of R's packages.
const R_PACKAGES: [&str; 3] = ["R_LIBS", "R_LIBS_USER", "R_LIBS_SITE"];

/// What the loader is told from outside a program.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Directories of `LD_LIBRARY_PATH`, in order. An empty entry is the working directory.
    pub library_path: Vec<PathBuf>,
    /// Objects of `LD_PRELOAD`, in order.
    pub preload: Vec<String>,
    /// Directories of R's packages, in which modules of R that load MPI may be.
    pub r_libraries: Vec<PathBuf>,
    /// The loader's cache.
    pub cache: Cache,
}

impl Environment {
    /// Reads `LD_LIBRARY_PATH` and `LD_PRELOAD` as `value` returns them, and the system's cache.
    pub fn from_vars(value: impl Fn(&str) -> Option<std::ffi::OsString>) -> Self {
        let library_path = value(LIBRARY_PATH).unwrap_or_default();
        let preload = value(PRELOAD).unwrap_or_default();
        let preload = preload.to_string_lossy();
        let preload = preload.split([':', ' ']).filter(|name| !name.is_empty());
        let of_r = R_PACKAGES.into_iter().filter_map(&value);
        Self {
            library_path: split_dirs(&library_path, b":;"),
            r_libraries: of_r.flat_map(|list| split_dirs(&list, b":")).collect(),
            preload: preload.map(str::to_owned).collect(),
            cache: Cache::of_system(),
        }
    }
}

/// Splits a list of directories. An empty list has none, and an empty entry is the working
/// directory.
fn split_dirs(list: &OsStr, separators: &[u8]) -> Vec<PathBuf> {
    if list.is_empty() {
        return Vec::new();
    }
    let dirs = list.as_bytes().split(|byte| separators.contains(byte));
    let dir = |bytes: &[u8]| match bytes {
        [] => PathBuf::from("."),
        _ => PathBuf::from(OsStr::from_bytes(bytes)),
    };
    dirs.map(dir).collect()
}

/// Replaces `$ORIGIN`, `$LIB` and `$PLATFORM`, also in braces, in one directory of a search path.
pub fn expand(dir: &str, origin: &Path, architecture: Architecture) -> PathBuf {
    let lib = if architecture.is_64_bit {
        "lib64"
    } else {
        "lib"
    };
    // Debian's loader knows `$LIB` as the directory of its architecture.
    let lib = multiarch(architecture).map_or_else(|| lib.to_owned(), |name| format!("lib/{name}"));
    let platform = match architecture.machine {
        object::elf::EM_X86_64 => "x86_64",
        object::elf::EM_AARCH64 => "aarch64",
        _ => "",
    };
    let mut expanded = dir.to_owned();
    for (token, value) in [
        ("ORIGIN", origin.to_string_lossy().as_ref()),
        ("LIB", lib.as_str()),
        ("PLATFORM", platform),
    ] {
        expanded = expanded.replace(&format!("${{{token}}}"), value);
        expanded = replace_bare(&expanded, token, value);
    }
    PathBuf::from(expanded)
}

/// Replaces `$TOKEN` where no further letter follows.
fn replace_bare(text: &str, token: &str, value: &str) -> String {
    let pattern = format!("${token}");
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&pattern) {
        let after = &rest[at + pattern.len()..];
        let goes_on = after.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
        result.push_str(&rest[..at]);
        result.push_str(if goes_on { &pattern } else { value });
        rest = after;
    }
    result + rest
}

/// Returns the name of Debian's directory of an architecture, where the machine has one.
fn multiarch(architecture: Architecture) -> Option<&'static str> {
    let name = match architecture.machine {
        object::elf::EM_X86_64 => "x86_64-linux-gnu",
        object::elf::EM_AARCH64 => "aarch64-linux-gnu",
        object::elf::EM_386 => "i386-linux-gnu",
        _ => return None,
    };
    Path::new("/usr/lib").join(name).is_dir().then_some(name)
}

/// Returns the directories that the loader searches last.
pub fn default_dirs(architecture: Architecture) -> Vec<PathBuf> {
    let multiarch = multiarch(architecture).into_iter().flat_map(|name| {
        let of = |dir: &str| Path::new(dir).join(name);
        [of("/lib"), of("/usr/lib")]
    });
    let wide = ["/lib64", "/usr/lib64"].map(PathBuf::from);
    let wide = wide.into_iter().filter(|_| architecture.is_64_bit);
    let plain = ["/lib", "/usr/lib"].map(PathBuf::from);
    multiarch.chain(wide).chain(plain).collect()
}

/// An object that is loaded already, as a search starts from it.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// Path of its file.
    pub path: &'a Path,
    /// What the loader read of it.
    pub file: &'a ObjectFile,
    /// Whether this is the program: its `$ORIGIN` is where its file lies, whatever links lead
    /// there. A library's is the directory by which it was found.
    pub is_program: bool,
}

impl Requester<'_> {
    /// Returns the directories of one of its search paths.
    fn dirs(&self, list: &str) -> Vec<PathBuf> {
        let place = match self.is_program {
            true => self.path.canonicalize(),
            false => std::path::absolute(self.path),
        };
        let place = place.as_deref().unwrap_or(self.path);
        let origin = place.parent().unwrap_or(Path::new("/"));
        let dirs = split_dirs(OsStr::new(list), b":");
        let expand = |dir: PathBuf| expand(&dir.to_string_lossy(), origin, self.file.architecture);
        dirs.into_iter().map(expand).collect()
    }
}

/// Searches a library by its name.
///
/// `requesters` are the object that needs it, the object that needed that one, and so on up to the
/// program. A secure program (setuid, setgid or with file capabilities) ignores `LD_LIBRARY_PATH`.
/// Returns the path and the rule; `None` if the loader would find nothing.
pub fn find(
    name: &str,
    requesters: &[Requester<'_>],
    environment: &Environment,
    is_secure: bool,
    files: &ObjectCache,
) -> Option<(PathBuf, FoundBy)> {
    let requester = requesters.first()?;
    let architecture = requester.file.architecture;
    // The loader skips files of another architecture.
    let fits = |path: &Path| {
        let file = files.read(path);
        file.is_some_and(|file| file.architecture == architecture)
    };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return fits(&path).then_some((path, FoundBy::Path));
    }
    let among = |dirs: &[PathBuf]| {
        let paths = dirs.iter().map(|dir| dir.join(name));
        paths.into_iter().find(|path| fits(path))
    };
    // DT_RPATH counts unless the object that needs the library has a DT_RUNPATH, and each of those
    // above only where it has none itself.
    if requester.file.runpath.is_none() {
        for above in requesters
            .iter()
            .filter(|above| above.file.runpath.is_none())
        {
            let dirs = above.file.rpath.as_deref().map(|list| above.dirs(list));
            if let Some(path) = dirs.and_then(|dirs| among(&dirs)) {
                return Some((path, FoundBy::Rpath(above.path.to_owned())));
            }
        }
    }
    if !is_secure && let Some(path) = among(&environment.library_path) {
        return Some((path, FoundBy::LibraryPath));
    }
    let dirs = requester
        .file
        .runpath
        .as_deref()
        .map(|list| requester.dirs(list));
    if let Some(path) = dirs.and_then(|dirs| among(&dirs)) {
        return Some((path, FoundBy::Runpath));
    }
    if requester.file.no_default_dirs {
        return None;
    }
    let mut cached = environment.cache.paths(name);
    if let Some(path) = cached.find(|path| fits(path)) {
        return Some((path.to_owned(), FoundBy::Cache));
    }
    among(&default_dirs(architecture)).map(|path| (path, FoundBy::DefaultDirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: Architecture = Architecture {
        machine: object::elf::EM_X86_64,
        is_64_bit: true,
        is_little_endian: true,
    };

    #[test]
    fn tokens_of_search_paths_are_replaced() {
        let of = |dir| expand(dir, Path::new("/opt/a/bin"), X86);
        assert_eq!(of("$ORIGIN/../lib"), Path::new("/opt/a/bin/../lib"));
        assert_eq!(of("${ORIGIN}x"), Path::new("/opt/a/binx"));
        assert_eq!(of("$ORIGINx/$PLATFORM"), Path::new("$ORIGINx/x86_64"));
        assert_eq!(of("/a$"), Path::new("/a$"));
    }

    #[test]
    fn an_empty_entry_is_the_working_directory() {
        let dirs = |list: &str| split_dirs(OsStr::new(list), b":");
        assert_eq!(
            dirs("/a::/b"),
            [Path::new("/a"), Path::new("."), Path::new("/b")]
        );
        assert!(dirs("").is_empty());
    }
}
