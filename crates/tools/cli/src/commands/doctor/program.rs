//! `garonne doctor PROGRAM`: which MPI a program was built for, which library the loader takes for
//! it under `garonne run`, and why; and what it would take without.

use std::path::{Path, PathBuf};

use garonne_job::settings::abi::AbiSetting;
use garonne_loader::closure::Closure;
use garonne_loader::interpreter::is_interpreter;
use garonne_loader::mpi::{self, MpiAbi, MpiLibrary};
use garonne_loader::object_cache::ObjectCache;
use garonne_loader::program::Program;
use garonne_loader::search::{self, Environment, FoundBy};
use garonne_loader::substitution::{
    ENV_MPI4PY, Installation, Obstacle, PreloadedLibrary, Substitution,
};
use serde::Serialize;

use super::CheckStatus;
use super::multi_host::find_in_path;

/// Facts about a program before it runs.
#[derive(Debug, Serialize)]
struct ProgramReport {
    /// The executable.
    program: PathBuf,
    /// Scripts that led to it.
    scripts: Vec<PathBuf>,
    verdict: CheckStatus,
    /// What was found, in a sentence.
    found: String,
    /// What to do; empty if nothing.
    advice: String,
    libraries: Vec<LibraryReport>,
    /// Objects that the loader would not find.
    missing: Vec<String>,
    /// Variables that `garonne run` sets for it, with their values.
    variables: Vec<(&'static str, String)>,
    /// Libraries that are preloaded, and why.
    preloaded: Vec<(PathBuf, String)>,
}

/// A library of MPI.
#[derive(Debug, Serialize)]
struct LibraryReport {
    name: String,
    abi: String,
    needed_by: String,
    /// Path of the file that the loader would take.
    path: Option<PathBuf>,
    /// The rule by which the loader would find it.
    rule: String,
    is_garonne: bool,
    /// What the loader would take without `garonne run`, and by which rule, if that is another.
    without: Option<(Option<PathBuf>, String)>,
}

/// Reports on one program. Returns the exit status: 1 if it cannot run under Garonne.
pub fn run(word: &Path, setting: AbiSetting, as_json: bool) -> i32 {
    let report = match examine(word, setting) {
        Ok(report) => report,
        Err(text) => {
            errln!("error: {text}");
            return 1;
        }
    };
    if as_json {
        crate::commands::print_json(&report);
    } else {
        print(&report);
    }
    (report.verdict == CheckStatus::Broken).into()
}

/// What a program loads, as `garonne run` starts it.
struct Loading {
    closure: Closure,
    preload: Vec<PreloadedLibrary>,
    obstacle: Option<Obstacle>,
    variables: Vec<(&'static str, String)>,
}

impl Loading {
    fn of(
        program: &Program,
        environment: &Environment,
        setting: AbiSetting,
        files: &ObjectCache,
    ) -> Self {
        let command = std::env::current_exe().ok();
        let installation = command.and_then(|path| Installation::of_command(&path));
        let forced = match setting {
            AbiSetting::Mpich => Some(MpiAbi::Mpich),
            AbiSetting::OpenMpi => Some(MpiAbi::OpenMpi),
            AbiSetting::Auto | AbiSetting::Off => None,
        };
        let installation = installation.filter(|_| setting != AbiSetting::Off);
        let Some(installation) = installation else {
            return Self {
                closure: Closure::of(program, environment, files),
                preload: Vec::new(),
                obstacle: None,
                variables: Vec::new(),
            };
        };
        let found = Substitution::of(program, environment, &installation, forced, files);
        let variables =
            installation.variables(|name| std::env::var_os(name), &found.preload, forced);
        let text =
            |(name, value): (_, std::ffi::OsString)| (name, value.to_string_lossy().into_owned());
        Self {
            closure: found.closure,
            preload: found.preload,
            obstacle: found.obstacle,
            variables: variables.into_iter().map(text).collect(),
        }
    }
}

fn examine(word: &Path, setting: AbiSetting) -> Result<ProgramReport, String> {
    let path = match word.components().count() {
        1 if !word.exists() => {
            let name = word.to_string_lossy();
            find_in_path(&name).ok_or_else(|| format!("{name}: not found in PATH"))?
        }
        _ => word.to_owned(),
    };
    let program = Program::read(&path, find_in_path).map_err(|error| error.to_string())?;
    let environment = Environment::from_vars(|name| std::env::var_os(name));
    let files = ObjectCache::default();
    let plain = Closure::of(&program, &environment, &files);
    let loading = Loading::of(&program, &environment, setting, &files);
    let used = mpi::used(&loading.closure);
    let libraries: Vec<_> = used
        .iter()
        .map(|used| library(used, &loading, &plain))
        .collect();
    let (verdict, found, advice) = verdict(&program, &loading, &used, &libraries);
    let missing = loading.closure.missing.into_iter();
    let preloaded = loading.preload.into_iter();
    Ok(ProgramReport {
        program: program.path,
        scripts: program.scripts,
        verdict,
        found,
        advice,
        libraries,
        missing: missing.map(|missing| missing.name).collect(),
        variables: loading.variables,
        preloaded: preloaded
            .map(|library| (library.path, library.reason.to_string()))
            .collect(),
    })
}

fn library(used: &MpiLibrary, loading: &Loading, plain: &Closure) -> LibraryReport {
    let closure = &loading.closure;
    let needed_by = match used.needed_by {
        Some(0) => String::from("the program"),
        Some(at) => closure.objects[at].path.display().to_string(),
        None => String::from("LD_PRELOAD"),
    };
    let object = used.loaded.map(|at| &closure.objects[at]);
    let is_set = |name| loading.variables.iter().any(|(known, _)| *known == name);
    let rule = |rule: &FoundBy| match rule {
        FoundBy::Preload if is_set(search::PRELOAD) => {
            String::from("LD_PRELOAD, which `garonne run` sets")
        }
        FoundBy::LibraryPath if is_set(search::LIBRARY_PATH) => {
            String::from("LD_LIBRARY_PATH, which `garonne run` sets")
        }
        rule => rule.to_string(),
    };
    let path = object.map(|object| object.path.clone());
    let without = plain.named(&used.name);
    let without = match without {
        Some(other) => (Some(other.path.clone()), other.found_by.to_string()),
        None => (None, String::from("not found")),
    };
    LibraryReport {
        name: used.name.clone(),
        abi: used.abi.to_string(),
        needed_by,
        rule: object.map_or_else(
            || String::from("not found"),
            |object| rule(&object.found_by),
        ),
        is_garonne: object.is_some_and(|object| mpi::is_garonne(&object.path)),
        without: (without.0 != path).then_some(without),
        path,
    }
}

/// Decides whether the program will run as ranks of a job.
fn verdict(
    program: &Program,
    loading: &Loading,
    used: &[MpiLibrary],
    libraries: &[LibraryReport],
) -> (CheckStatus, String, String) {
    let good = |found: String| (CheckStatus::Good, found, String::new());
    let broken = |found: String, advice: &str| (CheckStatus::Broken, found, advice.to_owned());
    if let Some(obstacle) = &loading.obstacle {
        let advice = "A job of several such ranks does not start (G0241).";
        return broken(obstacle.to_string(), advice);
    }
    if program.is_static() {
        return good(String::from("a static program, in which no MPI is found"));
    }
    let missing = &loading.closure.missing;
    let mut not_mpi = missing
        .iter()
        .filter(|missing| !used.iter().any(|library| library.name == missing.name));
    if let Some(missing) = not_mpi.next() {
        let found = format!("the loader does not find {}", missing.name);
        return broken(
            found,
            "Install it, or name its directory in LD_LIBRARY_PATH.",
        );
    }
    let first = used.first().zip(libraries.first());
    let Some((first, library)) = first else {
        return without_mpi(program);
    };
    let other = used.iter().zip(libraries);
    let mut other = other.filter(|(other, library)| other.abi != first.abi && !library.is_garonne);
    if let Some((other, its)) = other.next() {
        let found = format!(
            "parts were built for different MPIs: {} needs {}, {} needs {}",
            library.needed_by, first.name, its.needed_by, other.name
        );
        return broken(
            found,
            "Build all parts for the MPI 5 standard ABI with `mpicc`.",
        );
    }
    match (first.abi, &library.path, library.is_garonne) {
        (abi, Some(path), true) => good(format!("uses {abi} through {}", path.display())),
        (MpiAbi::Standard, Some(path), false) => broken(
            format!("{} is another MPI's", path.display()),
            "Name Garonne's lib directory first in LD_LIBRARY_PATH.",
        ),
        (MpiAbi::Standard, None, _) => broken(
            format!("the loader does not find {}", first.name),
            "Name Garonne's lib directory in LD_LIBRARY_PATH.",
        ),
        (abi, _, _) if loading.variables.is_empty() => broken(
            format!("was built for {abi}, and Garonne's library of that ABI is not used"),
            "An installed `garonne` without `--abi off` lets the program load it.",
        ),
        (abi, _, _) => broken(
            format!("was built for {abi}, which this installation does not serve"),
            "Build the program with Garonne's `mpicc`, which uses the MPI 5 standard ABI.",
        ),
    }
}

/// Judges a program that needs no MPI library when it starts.
fn without_mpi(program: &Program) -> (CheckStatus, String, String) {
    if is_interpreter(&program.path) {
        return (
            CheckStatus::Degraded,
            String::from("an interpreter: its modules load an MPI while it runs"),
            String::from(
                "Modules find Garonne's library by the variables above. `garonne run` ends the \
                 job with G0240 if they load another MPI by its path.",
            ),
        );
    }
    let name = program.path.file_name().unwrap_or_default();
    let found = match program.scripts.first() {
        Some(_) => format!(
            "a script: programs that {} starts for it are not examined",
            name.to_string_lossy()
        ),
        None => String::from("needs no MPI library"),
    };
    (CheckStatus::Good, found, String::new())
}

fn print(report: &ProgramReport) {
    let verdict = match report.verdict {
        CheckStatus::Good => "ok",
        CheckStatus::Degraded => "degraded",
        CheckStatus::Broken => "BROKEN",
    };
    outln!("{verdict}  {}: {}", report.program.display(), report.found);
    for script in &report.scripts {
        outln!("  script   {}", script.display());
    }
    for library in &report.libraries {
        outln!(
            "  needs    {} ({}), for {}",
            library.name,
            library.abi,
            library.needed_by
        );
        match &library.path {
            Some(path) => outln!("  loads    {}", path.display()),
            None => outln!("  loads    nothing"),
        }
        outln!("  by       {}", library.rule);
        if library.path.is_some() {
            outln!(
                "  which is {}",
                if library.is_garonne {
                    "Garonne's"
                } else {
                    "another MPI's"
                }
            );
        }
        match &library.without {
            Some((Some(path), rule)) => outln!("  without  {}, by {rule}", path.display()),
            Some((None, _)) => outln!("  without  nothing"),
            None => {}
        }
    }
    for (path, reason) in &report.preloaded {
        outln!("  preloads {}, because {reason}", path.display());
    }
    let shown = report.variables.iter().filter(|(name, _)| {
        let is_python = is_interpreter(&report.program) || !report.scripts.is_empty();
        *name != ENV_MPI4PY || is_python
    });
    for (name, value) in shown {
        outln!("  sets     {name}={value}");
    }
    if !report.advice.is_empty() {
        outln!("\n{}", report.advice);
    }
}
