//! Interpreters, whose modules load MPI while they run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::mpi;
use crate::object_file;
use crate::program::Program;

/// Programs that load MPI as a module while they run, by the beginnings of their names.
const INTERPRETERS: [&str; 5] = ["python", "julia", "R", "Rscript", "perl"];

/// Directories of R's packages, below the prefix of R and below its home.
const R_LIBRARIES: [&str; 6] = [
    "local/lib/R/site-library",
    "lib/R/site-library",
    "lib/R/library",
    "lib64/R/library",
    "site-library",
    "library",
];
/// The package of R that calls MPI, below one of these directories.
const RMPI: &str = "Rmpi/libs/Rmpi.so";

/// Returns whether programs of this file name load MPI while they run, if at all.
pub fn is_interpreter(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    INTERPRETERS.iter().any(|known| match known.len() {
        1 => name == *known,
        _ => name.starts_with(known),
    })
}

/// Returns the directory of libraries that belongs to an interpreter: `P/lib` of `P/bin/python3`.
fn libraries_beside(program: &Program) -> Option<PathBuf> {
    let path = std::path::absolute(&program.path).ok()?;
    Some(path.parent()?.parent()?.join("lib"))
}

/// Returns libraries of these names that modules of an interpreter would find beside it before any
/// in `LD_LIBRARY_PATH`. An interpreter with a `DT_RPATH`, as conda's have it, passes it on to its
/// modules.
pub(crate) fn libraries_found_first(program: &Program, names: &[String]) -> Vec<PathBuf> {
    if !is_interpreter(&program.path) {
        return Vec::new();
    }
    let Some(dir) = libraries_beside(program) else {
        return Vec::new();
    };
    let has_rpath = |file: &object_file::ObjectFile| file.rpath.is_some() && file.runpath.is_none();
    let modules = || mpi4py_modules(&dir);
    let is_searched_first =
        || modules().any(|path| object_file::read(&path).is_some_and(|file| has_rpath(&file)));
    if !has_rpath(&program.file) && !is_searched_first() {
        return Vec::new();
    }
    let paths = names.iter().map(|name| dir.join(name));
    paths
        .filter(|path| path.exists() && !mpi::is_garonne(path))
        .collect()
}

/// Returns the modules of mpi4py of an interpreter whose libraries are in this directory.
fn mpi4py_modules(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = |dir: &Path| {
        let entries = dir.read_dir().into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    };
    let starts = |path: &Path, start: &str| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.starts_with(start.as_bytes())
    };
    let versions = entries(dir).filter(move |path| starts(path, "python3"));
    let packages = versions.map(|path| path.join("site-packages/mpi4py"));
    let files = packages.flat_map(move |path| entries(&path));
    files.filter(move |path| starts(path, "MPI.") && path.extension() == Some(OsStr::new("so")))
}

/// Returns the modules of R that call MPI, if the program is R. Its start script puts the system's
/// directories before all others in `LD_LIBRARY_PATH`. `r_libraries`: directories of packages that
/// the user names.
pub(crate) fn modules_of_r(program: &Program, r_libraries: &[PathBuf]) -> Vec<PathBuf> {
    let is_r = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name == "R" || name == "Rscript"
    };
    let mut files = program.scripts.iter().chain([&program.path]);
    let Some(file) = files.find(is_r) else {
        return Vec::new();
    };
    let file = std::path::absolute(file).unwrap_or_default();
    let prefix = file.ancestors().nth(2).map(Path::to_owned);
    let own = prefix
        .into_iter()
        .flat_map(|prefix| R_LIBRARIES.map(|dir| prefix.join(dir)));
    let all = r_libraries.iter().cloned().chain(own);
    all.map(|dir| dir.join(RMPI))
        .filter(|module| module.exists())
        .collect()
}
