//! `garonne fortran --check`: compiles the programs that test Fortran with some compiler, runs
//! them, and says which work.
//!
//! The programs are those of `tests/fortran`, which an installation has in
//! `share/garonne/fortran/check`. This is for compilers that the project's own tests cannot have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[derive(Debug, clap::Args)]
pub struct FortranArgs {
    /// Compile and run test programs in each of the three interfaces, and say which work
    #[arg(long, required = true)]
    check: bool,
    /// The compiler (default: the one that mpifort calls)
    #[arg(long, value_name = "NAME")]
    fc: Option<String>,
}

/// Module that test programs share, compiled first.
const SHARED: &str = "check";
/// Seconds that a program may run.
const LIMIT_S: &str = "120";
/// Exit code of a shell for a command that it does not find.
const NOT_FOUND: i32 = 127;
/// Lines shown of what a compiler or a program says that fails.
const LINES: usize = 8;
/// The interfaces, and the macros by which a source with all three is told which to take.
const INTERFACES: [(&str, &str); 3] = [
    ("mpif.h", "WITH_HEADER"),
    ("mpi", "WITH_MODULE"),
    ("mpi_f08", "WITH_MODULE_F08"),
];

/// One program to compile and run.
struct Program {
    name: String,
    source: PathBuf,
    /// Options beside those that all programs get.
    options: Vec<String>,
    ranks: String,
}

pub fn run(args: &FortranArgs) -> i32 {
    match check(args) {
        Ok(code) => code,
        Err(error) => super::fail(&error),
    }
}

fn check(args: &FortranArgs) -> Result<i32, String> {
    let garonne = std::env::current_exe()
        .and_then(|own| own.canonicalize())
        .map_err(|error| format!("cannot find the place of this command: {error}"))?;
    let prefix = garonne.parent().and_then(Path::parent);
    let prefix = prefix.ok_or("this command is not in a directory bin")?;
    let sources = prefix.join("share/garonne/fortran/check");
    let programs = programs(&sources)?;
    let compiler = args.fc.as_deref().map(absolute).transpose()?;
    let place = std::env::temp_dir().join(format!("garonne-fortran-{}", std::process::id()));
    fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let outcome = try_all(&garonne, compiler.as_deref(), &sources, &programs, &place);
    let _ = fs::remove_dir_all(&place);
    outcome
}

/// Returns a compiler's name so that it means the same in another directory.
fn absolute(name: &str) -> Result<String, String> {
    if !name.contains('/') {
        return Ok(name.into());
    }
    let path = std::path::absolute(name).map_err(|error| format!("{name}: {error}"))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Compiles and runs the programs in a directory of their own.
fn try_all(
    garonne: &Path,
    compiler: Option<&str>,
    sources: &Path,
    programs: &[Program],
    place: &Path,
) -> Result<i32, String> {
    let mpifort_path = garonne.with_file_name("mpifort");
    let mpifort = |words: &[&str]| {
        let mut command = Command::new(&mpifort_path);
        command.current_dir(place).stdin(Stdio::null());
        command.args(compiler.map(|name| format!("-fc={name}")));
        command.args(words);
        command
    };
    let compiler = finished(mpifort(&["-showme:command"]))?;
    let version = finished(mpifort(&["--version"]))?;
    let compiler = text_of(&compiler);
    if version.status.code() == Some(NOT_FOUND) {
        return Err(format!("there is no compiler {}", compiler.trim()));
    }
    let version = text_of(&version);
    let version = version.lines().find(|line| !line.trim().is_empty());
    outln!("{}: {}", compiler.trim(), version.unwrap_or("no version"));

    // Modules are built now, if the compiler is new.
    let shared = sources.join(format!("{SHARED}.f90"));
    let object = format!("{SHARED}.o");
    let mut compile = mpifort(&["-g", "-c", "-o", &object]);
    compile.arg(&shared);
    let compiled = finished(compile)?;
    if !compiled.status.success() {
        tell(&compiled);
        return Err("the modules mpi and mpi_f08 cannot be used with this compiler".into());
    }
    let mut failures = 0;
    for program in programs {
        let mut compile = mpifort(&["-g", "-o", "program"]);
        compile.args(&program.options).arg(&program.source);
        compile.arg(&object);
        let compiled = finished(compile)?;
        let (done, what) = if compiled.status.success() {
            let mut start = Command::new(garonne);
            start.args(["run", "-n", &program.ranks, "./program"]);
            start.current_dir(place).stdin(Stdio::null());
            start.env("MPIEXEC_TIMEOUT", LIMIT_S);
            (finished(start)?, "does not run")
        } else {
            (compiled, "does not compile")
        };
        if done.status.success() {
            outln!("ok      {}", program.name);
        } else {
            failures += 1;
            outln!("FAILED  {}: {what}", program.name);
            tell(&done);
        }
    }
    match failures {
        0 => outln!("all {} programs work", programs.len()),
        _ => outln!("{failures} of {} programs do not work", programs.len()),
    }
    Ok(i32::from(failures > 0))
}

/// Returns the programs of an installation, in the order of their names.
fn programs(sources: &Path) -> Result<Vec<Program>, String> {
    let missing = |error| {
        format!(
            "{}: {error}; `./x install` puts the test programs there",
            sources.display()
        )
    };
    let mut programs = Vec::new();
    for source in files(sources).map_err(missing)? {
        let text = fs::read_to_string(&source).map_err(missing)?;
        let ranks = text.lines().find_map(|line| line.split_once("ranks: "));
        let Some(ranks) = ranks.and_then(|(_, ranks)| ranks.split_whitespace().next()) else {
            continue;
        };
        programs.push(Program {
            name: stem(&source),
            ranks: ranks.into(),
            options: Vec::new(),
            source,
        });
    }
    for source in files(&sources.join("kernels")).map_err(missing)? {
        for (interface, macro_name) in INTERFACES {
            if source.extension().is_some_and(|ending| ending == "F90") {
                programs.push(Program {
                    name: format!("{} with {interface}", stem(&source)),
                    source: source.clone(),
                    options: vec!["-O2".into(), format!("-D{macro_name}")],
                    ranks: "4".into(),
                });
            }
        }
    }
    Ok(programs)
}

fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries: Result<Vec<_>, _> = fs::read_dir(directory)?.collect();
    let mut paths: Vec<_> = entries?.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn finished(mut command: Command) -> Result<Output, String> {
    let name = command.get_program().to_os_string();
    let output = command.output();
    output.map_err(|error| format!("{}: {error}", name.display()))
}

/// Returns what a command printed: first its errors.
fn text_of(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    format!("{errors}{printed}")
}

/// Shows the beginning of what a command printed.
fn tell(output: &Output) {
    let text = text_of(output);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    for line in lines.take(LINES) {
        outln!("        {line}");
    }
}
