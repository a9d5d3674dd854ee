//! `garonne doctor PROGRAM`: which MPI a program was built for, which library the loader would take
//! for it, and why.

use std::path::{Path, PathBuf};

use garonne_loader::closure::Closure;
use garonne_loader::mpi::{self, MpiAbi, MpiLibrary};
use garonne_loader::program::Program;
use garonne_loader::search::{Environment, FoundBy};
use serde::Serialize;

use super::CheckStatus;
use super::multi_host::find_in_path;

/// Interpreters that load MPI while they run.
const INTERPRETERS: [&str; 5] = ["python", "julia", "R", "Rscript", "perl"];

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
}

/// Reports on one program. Returns the exit status: 1 if it cannot run under Garonne.
pub fn run(word: &Path, as_json: bool) -> i32 {
    let report = match examine(word) {
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

fn examine(word: &Path) -> Result<ProgramReport, String> {
    let path = match word.components().count() {
        1 if !word.exists() => {
            let name = word.to_string_lossy();
            find_in_path(&name).ok_or_else(|| format!("{name}: not found in PATH"))?
        }
        _ => word.to_owned(),
    };
    let program = Program::read(&path, find_in_path).map_err(|error| error.to_string())?;
    let environment = Environment::from_vars(|name| std::env::var_os(name));
    let closure = Closure::of(&program, &environment);
    let used = mpi::used(&closure);
    let libraries: Vec<_> = used.iter().map(|used| library(used, &closure)).collect();
    let (verdict, found, advice) = verdict(&program, &closure, &used, &libraries);
    Ok(ProgramReport {
        program: program.path,
        scripts: program.scripts,
        verdict,
        found,
        advice,
        libraries,
        missing: closure
            .missing
            .into_iter()
            .map(|missing| missing.name)
            .collect(),
    })
}

fn library(used: &MpiLibrary, closure: &Closure) -> LibraryReport {
    let needed_by = match used.needed_by {
        Some(0) => String::from("the program"),
        Some(at) => closure.objects[at].path.display().to_string(),
        None => String::from("LD_PRELOAD"),
    };
    let object = used.loaded.map(|at| &closure.objects[at]);
    LibraryReport {
        name: used.name.clone(),
        abi: used.abi.to_string(),
        needed_by,
        path: object.map(|object| object.path.clone()),
        rule: object.map_or_else(
            || String::from("not found"),
            |object| rule(&object.found_by),
        ),
        is_garonne: object.is_some_and(|object| mpi::is_garonne(&object.path)),
    }
}

fn rule(found_by: &FoundBy) -> String {
    match found_by {
        FoundBy::Program => String::from("the program itself"),
        FoundBy::Preload => String::from("LD_PRELOAD"),
        FoundBy::Path => String::from("its path is in the program"),
        FoundBy::Rpath(whose) => {
            format!("DT_RPATH of {}, before LD_LIBRARY_PATH", whose.display())
        }
        FoundBy::LibraryPath => String::from("LD_LIBRARY_PATH"),
        FoundBy::Runpath => String::from("DT_RUNPATH, after LD_LIBRARY_PATH"),
        FoundBy::Cache => String::from("the loader's cache (/etc/ld.so.cache)"),
        FoundBy::DefaultDirs => String::from("the system's directories"),
    }
}

/// Decides whether the program will run as ranks of a job.
fn verdict(
    program: &Program,
    closure: &Closure,
    used: &[MpiLibrary],
    libraries: &[LibraryReport],
) -> (CheckStatus, String, String) {
    let broken = |found: String, advice: &str| (CheckStatus::Broken, found, advice.to_owned());
    let degraded =
        |found: &str, advice: &str| (CheckStatus::Degraded, found.to_owned(), advice.to_owned());
    if program.is_static() {
        return degraded(
            "a static program: an MPI in it cannot be replaced",
            "Link it dynamically with `mpicc`.",
        );
    }
    let not_mpi = closure
        .missing
        .iter()
        .find(|missing| !used.iter().any(|library| library.name == missing.name));
    if let Some(missing) = not_mpi {
        let found = format!("the loader does not find {}", missing.name);
        return broken(
            found,
            "Install it, or name its directory in LD_LIBRARY_PATH.",
        );
    }
    let (Some(first), Some(library)) = (used.first(), libraries.first()) else {
        let name = program
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        if INTERPRETERS.iter().any(|known| name.starts_with(known)) {
            return degraded(
                "an interpreter: its modules load an MPI while it runs",
                "The library is found by LD_LIBRARY_PATH, or beside the module. `garonne run` \
                 ends the job with G0240 if it is another MPI's.",
            );
        }
        let found = match program.scripts.first() {
            Some(_) => format!("a script: programs that {name} starts for it are not examined"),
            None => String::from("needs no MPI library"),
        };
        return (CheckStatus::Good, found, String::new());
    };
    if let Some(other) = used.iter().find(|other| other.abi != first.abi) {
        let found = format!(
            "parts were built for different MPIs: {} needs {}, {} needs {}",
            library.needed_by,
            first.name,
            libraries
                .iter()
                .find(|library| library.name == other.name)
                .map_or("", |library| { library.needed_by.as_str() }),
            other.name
        );
        return broken(
            found,
            "Build all parts for the MPI 5 standard ABI with `mpicc`.",
        );
    }
    let secure = match program.is_secure {
        true => " The program is setuid or has capabilities, so LD_LIBRARY_PATH does not count.",
        false => "",
    };
    match (first.abi, &library.path, library.is_garonne) {
        (MpiAbi::Standard, Some(path), true) => (
            CheckStatus::Good,
            format!("uses {} through {}", first.abi, path.display()),
            String::new(),
        ),
        (MpiAbi::Standard, Some(path), false) => broken(
            format!("{} is another MPI's", path.display()),
            &format!("Name Garonne's lib directory first in LD_LIBRARY_PATH.{secure}"),
        ),
        (MpiAbi::Standard, None, _) => broken(
            format!("the loader does not find {}", first.name),
            &format!("Name Garonne's lib directory in LD_LIBRARY_PATH.{secure}"),
        ),
        (abi, _, _) => broken(
            format!("was built for {abi}, which this version does not serve"),
            "Build the program with Garonne's `mpicc`, which uses the MPI 5 standard ABI.",
        ),
    }
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
    }
    if !report.advice.is_empty() {
        outln!("\n{}", report.advice);
    }
}
