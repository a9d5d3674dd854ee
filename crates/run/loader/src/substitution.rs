//! How a program that was built for another MPI comes to load Garonne's library of that ABI.
//!
//! `LD_LIBRARY_PATH` suffices for most programs. `LD_PRELOAD` serves those whose `DT_RPATH`, or a
//! path in place of a name, leads to another file. Programs for which the loader heeds neither
//! have an [`Obstacle`].

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::closure::{Closure, LoadedObject};
use crate::interpreter;
use crate::mpi::{self, MpiAbi};
use crate::object_cache::ObjectCache;
use crate::object_file;
use crate::program::Program;
use crate::search::{self, Environment, FoundBy};

/// The variable by which mpi4py's wheel is told its library; else it looks beside the interpreter.
pub const ENV_MPI4PY: &str = "MPI4PY_LIBMPI";

/// Where libraries of the standard ABI and of others lie, below the installation's prefix.
const STANDARD: &str = "lib/libmpi_abi.so.1";
const FOREIGN: &str = "lib/foreign";
/// Empty libraries of names below an MPI's own, for programs that find no others: they must not
/// come before those that the parts of an installed Open MPI need.
const STAND_INS: &str = "lib/foreign/stand-ins";

/// The libraries of an installed Garonne.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The library of the standard ABI.
    standard: PathBuf,
    /// Directory of the libraries that have names of other MPIs'.
    foreign: PathBuf,
    /// Directory of libraries that are loaded where the loader finds none of their names.
    stand_ins: PathBuf,
    /// Names of the libraries there that replace parts of another MPI.
    names: Vec<String>,
}

impl Installation {
    /// Finds the libraries that belong to a command: `PREFIX/bin/garonne` has `PREFIX/lib`. `None`:
    /// the command is not installed.
    pub fn of_command(command: &Path) -> Option<Self> {
        let prefix = command.parent()?.parent()?;
        let foreign = prefix.join(FOREIGN);
        let entries = foreign.read_dir().ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.starts_with("libmpi")).collect();
        names.sort_unstable();
        Some(Self {
            standard: prefix.join(STANDARD),
            foreign,
            stand_ins: prefix.join(STAND_INS),
            names,
        })
    }

    /// Returns the directory that ranks find first.
    pub fn directory(&self) -> &Path {
        &self.foreign
    }

    /// Returns the C library of an ABI. `None`: this installation has none.
    pub fn library(&self, abi: MpiAbi) -> Option<PathBuf> {
        match abi {
            MpiAbi::Standard => Some(self.standard.clone()).filter(|path| path.exists()),
            MpiAbi::Mpich => self.file("libmpi.so.12"),
            MpiAbi::OpenMpi => self.file("libmpi.so.40"),
        }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        let is_here = self.names.iter().any(|known| known == name);
        is_here.then(|| self.foreign.join(name))
    }

    /// Returns the file that takes the place of one that is missing.
    fn stand_in(&self, name: &str) -> Option<PathBuf> {
        let name = name.rsplit('/').next().unwrap_or(name);
        let path = self.stand_ins.join(name);
        path.exists().then_some(path)
    }

    /// Returns the file that replaces another MPI's of this name.
    fn replacement(&self, name: &str) -> Option<PathBuf> {
        let name = name.rsplit('/').next().unwrap_or(name);
        match MpiAbi::of_library(name) {
            Some(MpiAbi::Standard) => self.library(MpiAbi::Standard),
            _ => self.file(name),
        }
    }

    fn has(&self, path: &Path) -> bool {
        path.parent() == Some(&self.foreign) || path == self.standard
    }

    /// Returns the variables of a rank that let it load these libraries, with their values.
    /// `value` returns what they say as yet. `forced`: the ABI that modules of Python are to take.
    pub fn variables(
        &self,
        value: impl Fn(&str) -> Option<OsString>,
        preload: &[PreloadedLibrary],
        forced: Option<MpiAbi>,
    ) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![(
            search::LIBRARY_PATH,
            first_of(&self.foreign, value(search::LIBRARY_PATH)),
        )];
        if !preload.is_empty() {
            // Libraries that the user preloads may intercept MPI: they come first.
            let user = value(search::PRELOAD).filter(|user| !user.is_empty());
            let ours = preload
                .iter()
                .map(|library| library.path.clone().into_os_string());
            let all: Vec<OsString> = user.into_iter().chain(ours).collect();
            variables.push((search::PRELOAD, all.join(OsStr::new(":"))));
        }
        let abis = [forced, Some(MpiAbi::Mpich), Some(MpiAbi::OpenMpi)];
        let for_python = abis.into_iter().flatten().find_map(|abi| self.library(abi));
        if let (None, Some(library)) = (value(ENV_MPI4PY), for_python) {
            variables.push((ENV_MPI4PY, library.into()));
        }
        variables
    }
}

/// Returns a search path that begins with a directory, and has it once.
fn first_of(dir: &Path, list: Option<OsString>) -> OsString {
    let list = list.unwrap_or_default();
    let mut all = dir.as_os_str().to_owned();
    if list.is_empty() {
        return all;
    }
    let dirs = list.as_bytes().split(|byte| b":;".contains(byte));
    for other in dirs.filter(|other| *other != dir.as_os_str().as_bytes()) {
        all.push(":");
        all.push(OsStr::from_bytes(other));
    }
    all
}

/// A library of Garonne that `LD_PRELOAD` is to name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreloadedLibrary {
    /// Path of the library.
    pub path: PathBuf,
    /// Why nothing less suffices.
    pub reason: PreloadReason,
}

/// Why a library is preloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreloadReason {
    /// The loader would take this file of another MPI, also with `LD_LIBRARY_PATH`.
    Wins(PathBuf, FoundBy),
    /// The loader would find no file of the name.
    NotFound,
    /// This file of another MPI lies beside an interpreter, whose modules would load it.
    BesideInterpreter(PathBuf),
    /// This module of R needs another MPI, which R's own search path would give it.
    ModuleOfR(PathBuf),
    /// The user has named the ABI.
    Forced,
}

impl fmt::Display for PreloadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wins(path, rule) => write!(f, "{} would be taken by {rule}", path.display()),
            Self::NotFound => f.write_str("the loader would find none"),
            Self::BesideInterpreter(path) => {
                write!(
                    f,
                    "modules of the interpreter would take {}",
                    path.display()
                )
            }
            Self::ModuleOfR(path) => write!(
                f,
                "{} would take an MPI of the system, where R searches first",
                path.display()
            ),
            Self::Forced => f.write_str("it was asked for"),
        }
    }
}

/// Why a program cannot load Garonne's library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Another MPI is a part of the program.
    #[error("another MPI is linked into it statically")]
    Static,
    /// The loader ignores the environment.
    #[error(
        "it is setuid, setgid or has capabilities, so the loader ignores LD_LIBRARY_PATH and LD_PRELOAD and takes {0}"
    )]
    Secure(PathBuf),
    /// The path of the installation cannot stand in a list of paths.
    #[error("LD_LIBRARY_PATH and LD_PRELOAD cannot name {0}, which contains a blank, ':' or ';'")]
    Path(PathBuf),
}

/// What a program loads where Garonne's libraries come first.
#[derive(Clone, Debug)]
pub struct Substitution {
    /// Libraries that `LD_PRELOAD` must name.
    pub preload: Vec<PreloadedLibrary>,
    /// All objects that the program loads then.
    pub closure: Closure,
    /// Why Garonne's libraries cannot be loaded.
    pub obstacle: Option<Obstacle>,
    /// True if the program needs C libraries of MPI, and all of them are Garonne's.
    pub is_complete: bool,
}

impl Substitution {
    /// Decides how a program comes to load an installation's libraries. `environment` is the
    /// user's, without them. `forced`: the ABI whose library is loaded in any case.
    pub fn of(
        program: &Program,
        environment: &Environment,
        installation: &Installation,
        forced: Option<MpiAbi>,
        files: &ObjectCache,
    ) -> Self {
        let mut environment = environment.clone();
        environment
            .library_path
            .insert(0, installation.foreign.clone());
        let closure = Closure::of(program, &environment, files);
        let mut substitution = Self {
            preload: Vec::new(),
            obstacle: obstacle(program, &closure, installation),
            is_complete: false,
            closure,
        };
        if substitution.obstacle.is_some() || program.is_static() || program.is_secure {
            substitution.is_complete = substitution.has_only_garonne(installation);
            return substitution;
        }
        substitution.add_preloads(program, (&environment, installation), forced);
        if !substitution.preload.is_empty() {
            if !can_be_listed(&installation.foreign) {
                substitution.obstacle = Some(Obstacle::Path(installation.foreign.clone()));
                return substitution;
            }
            let paths = substitution.preload.iter();
            let paths = paths.map(|library| library.path.to_string_lossy().into_owned());
            environment.preload.extend(paths);
            substitution.closure = Closure::of(program, &environment, files);
        }
        substitution.is_complete = substitution.has_only_garonne(installation);
        substitution
    }

    fn add_preloads(
        &mut self,
        program: &Program,
        (environment, installation): (&Environment, &Installation),
        forced: Option<MpiAbi>,
    ) {
        if let Some(path) = forced.and_then(|abi| installation.library(abi)) {
            self.add(path, PreloadReason::Forced);
        }
        let others: Vec<_> = self
            .closure
            .objects
            .iter()
            .skip(1)
            .filter(|object| object.found_by != FoundBy::Preload)
            .filter_map(|object| {
                let replacement = installation.replacement(name_of(object))?;
                let is_ours = installation.has(&object.path) || mpi::is_garonne(&object.path);
                let wins = PreloadReason::Wins(object.path.clone(), object.found_by.clone());
                (!is_ours).then_some((replacement, wins))
            })
            .collect();
        let uses_mpi = !mpi::used(&self.closure).is_empty();
        let missing = self.closure.missing.iter().filter(|_| uses_mpi);
        let missing: Vec<_> = missing
            .filter_map(|missing| {
                let name = &missing.name;
                let path = installation.replacement(name);
                path.or_else(|| installation.stand_in(name))
            })
            .collect();
        for (path, reason) in others {
            self.add_replacement(path, reason, installation);
        }
        for path in missing {
            self.add_replacement(path, PreloadReason::NotFound, installation);
        }
        for beside in interpreter::libraries_found_first(program, &installation.names) {
            let name = beside.file_name().and_then(OsStr::to_str);
            if let Some(path) = name.and_then(|name| installation.file(name)) {
                let reason = PreloadReason::BesideInterpreter(beside);
                self.add_replacement(path, reason, installation);
            }
        }
        for module in interpreter::modules_of_r(program, &environment.r_libraries) {
            let needed = object_file::read(&module).map(|file| file.needed);
            let paths = needed.into_iter().flatten();
            for path in paths.filter_map(|name| installation.replacement(&name)) {
                let reason = PreloadReason::ModuleOfR(module.clone());
                self.add_replacement(path, reason, installation);
            }
        }
    }

    /// Adds a library, and before it the one that has the functions, where it is but another name
    /// of that: what the program names by a path is loaded whatever is preloaded, and comes before
    /// what a preloaded library needs.
    fn add_replacement(
        &mut self,
        path: PathBuf,
        reason: PreloadReason,
        installation: &Installation,
    ) {
        let name = path.file_name().and_then(OsStr::to_str);
        let abi = name.and_then(MpiAbi::of_library);
        if let Some(whole) = abi.and_then(|abi| installation.library(abi)) {
            self.add(whole, reason.clone());
        }
        self.add(path, reason);
    }

    fn add(&mut self, path: PathBuf, reason: PreloadReason) {
        if !self.preload.iter().any(|library| library.path == path) {
            self.preload.push(PreloadedLibrary { path, reason });
        }
    }

    /// Returns whether the program needs MPI, and the first library of each ABI is Garonne's.
    fn has_only_garonne(&self, installation: &Installation) -> bool {
        let used = mpi::used(&self.closure);
        let is_ours = |abi| {
            let first = used.iter().find(|library| library.abi == abi);
            let path = first.and_then(|first| Some(&self.closure.objects[first.loaded?].path));
            path.is_some_and(|path| installation.has(path) || mpi::is_garonne(path))
        };
        !used.is_empty() && used.iter().all(|library| is_ours(library.abi))
    }
}

fn name_of(object: &LoadedObject) -> &str {
    object.file.soname.as_deref().unwrap_or(&object.name)
}

fn can_be_listed(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.iter().any(|byte| b":; \t\n".contains(byte))
}

fn obstacle(program: &Program, closure: &Closure, installation: &Installation) -> Option<Obstacle> {
    let used = mpi::used(closure);
    if used.is_empty() {
        return mpi::is_linked_in(&program.path).then_some(Obstacle::Static);
    }
    if program.is_secure {
        let loaded = used.iter().find_map(|library| {
            let path = library.loaded.map(|at| closure.objects[at].path.clone());
            let path = path.unwrap_or_else(|| PathBuf::from(&library.name));
            (!mpi::is_garonne(&path)).then_some(path)
        });
        return loaded.map(Obstacle::Secure);
    }
    let needs_another = used.iter().any(|library| library.abi != MpiAbi::Standard);
    (needs_another && !can_be_listed(&installation.foreign))
        .then(|| Obstacle::Path(installation.foreign.clone()))
}
