//! The closure of programs against the answer of glibc's own loader, which tells it in place of
//! starting a program whose environment has `LD_TRACE_LOADED_OBJECTS`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use garonne_loader::closure::Closure;
use garonne_loader::mpi::{self, MpiAbi};
use garonne_loader::object_cache::ObjectCache;
use garonne_loader::program::Program;
use garonne_loader::search::{Environment, FoundBy};

/// A folder of a test, deleted when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("garonne-closure-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Builds a library whose file and soname are given, from what these arguments say.
    fn library(&self, path: &str, soname: &str, symbol: &str, more: &[&str]) {
        let source = self.at("source.c");
        fs::write(&source, format!("int {symbol}(void) {{ return 1; }}\n")).unwrap();
        let output = self.at(path);
        let soname = format!("-Wl,-soname,{soname}");
        let mut all = vec!["-shared", "-fPIC", soname.as_str()];
        all.extend(more);
        self.compile(&source, &output, &all);
    }

    /// Builds a program.
    fn program(&self, path: &str, more: &[&str]) -> PathBuf {
        let source = self.at("program.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let output = self.at(path);
        self.compile(&source, &output, more);
        output
    }

    fn compile(&self, source: &Path, output: &Path, more: &[&str]) {
        let mut command = Command::new("cc");
        command
            .current_dir(&self.0)
            .arg(source)
            .arg("-o")
            .arg(output);
        let done = command
            .arg("-Wl,--no-as-needed")
            .args(more)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names and paths that the loader tells for a program. A path of none: not found.
fn traced(program: &Path, library_path: Option<&Path>) -> Vec<(String, Option<PathBuf>)> {
    let mut command = Command::new(program);
    command.env_clear().env("LD_TRACE_LOADED_OBJECTS", "1");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (name, found) = line.trim().split_once(" => ")?;
        let path = found.split(" (0x").next()?;
        let path = (path != "not found").then(|| PathBuf::from(path));
        Some((name.to_owned(), path))
    };
    let mut lines: Vec<_> = text.lines().filter_map(line).collect();
    lines.sort();
    lines
}

fn closure(program: &Path, library_path: Option<&Path>) -> Closure {
    let program = Program::read(program, |_| None).unwrap();
    let value = |name: &str| match name {
        "LD_LIBRARY_PATH" => library_path.map(OsString::from),
        _ => None,
    };
    Closure::of(
        &program,
        &Environment::from_vars(value),
        &ObjectCache::default(),
    )
}

/// What a closure says, in the form of [`traced`]. The loader tells of itself by its path alone.
fn told(closure: &Closure) -> Vec<(String, Option<PathBuf>)> {
    let found = closure
        .objects
        .iter()
        .skip(1)
        .filter(|object| !object.name.contains("ld-linux"));
    let found = found.map(|object| (object.name.clone(), Some(object.path.clone())));
    let missing = closure
        .missing
        .iter()
        .map(|missing| (missing.name.clone(), None));
    let mut told: Vec<_> = found.chain(missing).collect();
    told.sort();
    told
}

fn is_same(program: &Path, library_path: Option<&Path>) -> Closure {
    let closure = closure(program, library_path);
    assert_eq!(
        told(&closure),
        traced(program, library_path),
        "{}",
        program.display()
    );
    closure
}

#[test]
fn programs_of_the_system_load_what_the_loader_says() {
    let mut count = 0;
    for entry in fs::read_dir("/usr/bin").unwrap() {
        let path = entry.unwrap().path();
        let Ok(program) = Program::read(&path, |_| None) else {
            continue;
        };
        // A program that the loader refuses to trace has rights of its own.
        if program.is_static() || program.is_secure || !program.scripts.is_empty() {
            continue;
        }
        is_same(&path, None);
        count += 1;
        if count == 150 {
            break;
        }
    }
    assert!(count > 20, "only {count} programs");
}

#[test]
fn an_rpath_wins_over_the_library_path_and_a_runpath_does_not() {
    let folder = Folder::new("paths");
    folder.library("own/libmpi.so.12", "libmpi.so.12", "f", &[]);
    folder.library("env/libmpi.so.12", "libmpi.so.12", "f", &[]);
    let env = folder.at("env/x").parent().unwrap().to_owned();
    let tags = |tag| ["own/libmpi.so.12", "-Wl,-rpath,$ORIGIN/own", tag];
    let rpath = folder.program("with_rpath", &tags("-Wl,--disable-new-dtags"));
    let runpath = folder.program("with_runpath", &tags("-Wl,--enable-new-dtags"));

    let with_rpath = is_same(&rpath, Some(&env));
    let library = with_rpath.named("libmpi.so.12").unwrap();
    assert_eq!(library.found_by, FoundBy::Rpath(rpath.clone()));
    let used = mpi::used(&with_rpath);
    assert_eq!(used.len(), 1);
    assert_eq!((used[0].abi, used[0].needed_by), (MpiAbi::Mpich, Some(0)));

    let with_runpath = is_same(&runpath, Some(&env));
    let library = with_runpath.named("libmpi.so.12").unwrap();
    assert_eq!(library.found_by, FoundBy::LibraryPath);
    let alone = is_same(&runpath, None);
    assert_eq!(
        alone.named("libmpi.so.12").unwrap().found_by,
        FoundBy::Runpath
    );
}

#[test]
fn an_rpath_counts_for_what_its_libraries_need_and_a_runpath_does_not() {
    let folder = Folder::new("inherited");
    folder.library("lib/libmpi.so.40", "libmpi.so.40", "f", &[]);
    folder.library("lib/libuser.so", "libuser.so", "g", &["lib/libmpi.so.40"]);
    let tags = |tag| {
        [
            "lib/libuser.so",
            "-Wl,-rpath,$ORIGIN/lib",
            "-Wl,--allow-shlib-undefined",
            tag,
        ]
    };
    let rpath = folder.program("with_rpath", &tags("-Wl,--disable-new-dtags"));
    let runpath = folder.program("with_runpath", &tags("-Wl,--enable-new-dtags"));
    let found = is_same(&rpath, None);
    let used = mpi::used(&found);
    assert_eq!(used[0].abi, MpiAbi::OpenMpi);
    assert_eq!(found.objects[used[0].needed_by.unwrap()].name, "libuser.so");
    // The loader finds none for libuser.so, or the system's where an Open MPI is installed.
    let lost = is_same(&runpath, None);
    let used = &mpi::used(&lost)[0];
    assert_eq!(used.name, "libmpi.so.40");
    if let Some(system) = used.loaded {
        let found_by = &lost.objects[system].found_by;
        assert!(
            matches!(found_by, FoundBy::Cache | FoundBy::DefaultDirs),
            "{found_by}"
        );
    } else {
        assert_eq!(lost.missing[0].name, "libmpi.so.40");
    }
}

#[test]
fn the_origin_of_a_library_is_where_it_was_found_and_that_of_a_program_where_it_lies() {
    let folder = Folder::new("origin");
    folder.library("real/liblow.so", "liblow.so", "f", &[]);
    folder.library("seen/liblow.so", "liblow.so", "f", &[]);
    let low = ["real/liblow.so", "-Wl,-rpath,$ORIGIN"];
    folder.library("real/libhigh.so", "libhigh.so", "g", &low);
    symlink("../real/libhigh.so", folder.at("seen/libhigh.so")).unwrap();
    let high = [
        "seen/libhigh.so",
        "-Wl,-rpath,$ORIGIN/../seen",
        "-Wl,--allow-shlib-undefined",
    ];
    let program = folder.program("bin/program", &high);
    symlink(&program, folder.at("elsewhere/program")).unwrap();
    for path in [program, folder.at("elsewhere/program")] {
        let found = is_same(&path, None);
        let low = &found.named("liblow.so").unwrap().path;
        assert!(low.ends_with("seen/liblow.so"), "{}", low.display());
    }
}

#[test]
fn a_file_of_another_architecture_is_passed_over() {
    let folder = Folder::new("other");
    folder.library("right/libx.so.1", "libx.so.1", "f", &[]);
    let program = folder.program("program", &["right/libx.so.1"]);
    let mut bytes = fs::read(folder.at("right/libx.so.1")).unwrap();
    // The machine, 18 bytes from the beginning: PowerPC.
    bytes[18..20].copy_from_slice(&[21, 0]);
    fs::write(folder.at("wrong/libx.so.1"), bytes).unwrap();
    let both = format!(
        "{}:{}",
        folder.0.join("wrong").display(),
        folder.0.join("right").display()
    );
    let found = is_same(&program, Some(Path::new(&both)));
    assert_eq!(
        found.named("libx.so.1").unwrap().path,
        folder.0.join("right/libx.so.1")
    );
}
