//! The MPI libraries that ranks load: Garonne's, also where a program was built for another MPI.
//!
//! Decided by the agent of each host, for the files of that host, before the first rank starts.
//! Children of ranks inherit what is set here.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::settings::abi::{self, AbiSetting, ENV_ABI};
use garonne_loader::mpi::MpiAbi;
use garonne_loader::object_cache::ObjectCache;
use garonne_loader::program::Program;
use garonne_loader::search::Environment;
use garonne_loader::substitution::{Installation, Obstacle, Substitution};

use super::executable;

/// Variables of a rank, with their values.
pub(super) type Variables = Vec<(OsString, OsString)>;

/// Whether ranks of a program load Garonne's MPI library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LibraryChoice {
    /// What the user has asked for.
    pub setting: AbiSetting,
    /// True if every C library of MPI that the program needs is Garonne's.
    pub is_garonne: bool,
    /// True if nobody can tell what the program loads: this user may execute it, not read it.
    pub is_unreadable: bool,
}

/// Decides which MPI library the ranks of each program load.
///
/// Owned by the starter of the ranks. [`choose`](Self::choose) is called once for each program.
#[derive(Debug)]
pub(super) struct RankLibraries {
    /// `None`: this command is not installed, so there is nothing to load.
    installation: Option<Installation>,
    files: ObjectCache,
}

/// A program as its ranks start.
pub(super) struct StartedProgram<'a> {
    /// The file, as this process finds it.
    pub file: &'a Path,
    /// The directory in which it starts; `None`: this process's.
    pub dir: Option<&'a Path>,
    /// True if worlds of one are no fault: one rank, or the user says so.
    pub may_be_alone: bool,
}

impl RankLibraries {
    /// Finds the libraries of this command's installation.
    pub fn of_this_command() -> Self {
        let command = std::env::current_exe().ok();
        Self {
            installation: command.and_then(|path| Installation::of_command(&path)),
            files: ObjectCache::default(),
        }
    }

    /// Decides for one program, and sets what its ranks need in their environment.
    ///
    /// # Errors
    /// The program is of another MPI, whose library nothing replaces.
    pub fn choose(
        &self,
        program: &StartedProgram<'_>,
        environment: &mut Variables,
    ) -> Result<LibraryChoice> {
        // The launcher has refused other words.
        let setting = value(environment, ENV_ABI).unwrap_or_default();
        let setting = abi::read(&setting).unwrap_or_default();
        let mut choice = LibraryChoice {
            setting,
            is_garonne: false,
            is_unreadable: cannot_be_read(program.file),
        };
        let Some(installation) = self.installation.as_ref() else {
            return Ok(choice);
        };
        let forced = match setting {
            AbiSetting::Off => return Ok(choice),
            AbiSetting::Auto => None,
            AbiSetting::Mpich => Some(MpiAbi::Mpich),
            AbiSetting::OpenMpi => Some(MpiAbi::OpenMpi),
        };
        let substitution = self.substitution(program, environment, installation, forced);
        let obstacle = substitution
            .as_ref()
            .and_then(|found| found.obstacle.as_ref());
        if let Some(obstacle) = obstacle.filter(|_| !program.may_be_alone) {
            return Err(refused(program.file, obstacle));
        }
        let preload = substitution
            .as_ref()
            .map_or(&[][..], |found| &found.preload);
        let variables = installation.variables(|name| value(environment, name), preload, forced);
        for (name, value) in variables {
            environment.retain(|(known, _)| known != name);
            environment.push((name.into(), value));
        }
        choice.is_garonne = substitution.is_some_and(|found| found.is_complete);
        Ok(choice)
    }

    /// Follows what a program loads. `None`: the file is none that the system executes.
    fn substitution(
        &self,
        program: &StartedProgram<'_>,
        environment: &Variables,
        installation: &Installation,
        forced: Option<MpiAbi>,
    ) -> Option<Substitution> {
        let search = value(environment, "PATH");
        let lookup = |name: &str| {
            let found = executable::find(OsStr::new(name), search.as_deref(), program.dir).ok()?;
            Some(in_dir(found, program.dir))
        };
        let file = Program::read(program.file, lookup).ok()?;
        let mut loader = Environment::from_vars(|name| value(environment, name));
        for dir in &mut loader.library_path {
            *dir = in_dir(std::mem::take(dir), program.dir);
        }
        Some(Substitution::of(
            &file,
            &loader,
            installation,
            forced,
            &self.files,
        ))
    }
}

fn cannot_be_read(file: &Path) -> bool {
    let opened = std::fs::File::open(file);
    opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Returns a path as this process sees it, if the rank starts in that directory.
fn in_dir(path: PathBuf, dir: Option<&Path>) -> PathBuf {
    dir.map_or(path.clone(), |dir| dir.join(path))
}

fn value(environment: &Variables, name: &str) -> Option<OsString> {
    let variable = environment.iter().find(|(known, _)| known == name);
    variable.map(|(_, value)| value.clone())
}

fn refused(file: &Path, obstacle: &Obstacle) -> Error {
    let help = match obstacle {
        Obstacle::Static => "link it dynamically, or build it with Garonne's mpicc",
        Obstacle::Secure(_) => "run a copy of it (`cp`), which has no rights of its own",
        Obstacle::Path(_) => "install Garonne at another path",
    };
    let text = format!(
        "'{}' cannot load Garonne's MPI library: {obstacle}; each rank would be a world of one\n  help: {help}",
        file.display()
    );
    Error::misuse(codes::G0241, text)
}
