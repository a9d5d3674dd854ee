//! Compiles C programs against the header and the library of this build, and runs them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

/// A job that runs until this is dropped.
pub struct Job(pub Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of this test's own, removed at the end.
pub struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    /// A fresh directory with the library under its installed names.
    pub fn new(name: &str) -> Self {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory for the test");
        std::os::unix::fs::symlink(library(), dir.join("libmpi_abi.so.1"))
            .expect("the library's name");
        std::os::unix::fs::symlink("libmpi_abi.so.1", dir.join("libmpi_abi.so"))
            .expect("the library's link name");
        Self(dir)
    }

    /// The path of `name` in here.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a source file.
    pub fn source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("the source can be written");
        path
    }

    /// Runs a compiler with the header's directory and all warnings as errors; panics with what it
    /// said if it fails.
    pub fn compile(&self, compiler: &str, args: &[&str]) {
        let output = Command::new(compiler)
            .current_dir(&self.0)
            .args([
                "-Wall",
                "-Wextra",
                "-Werror",
                "-I",
                include().to_str().expect("a plain path"),
            ])
            .args(args)
            .output()
            .unwrap_or_else(|e| panic!("{compiler}: {e}"));
        assert!(
            output.status.success(),
            "{compiler} {args:?}:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Compiles a program and links it with the library.
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        self.program_with(name, text, &[])
    }

    /// Compiles a program with more arguments for the compiler.
    pub fn program_with(&self, name: &str, text: &str, more: &[&str]) -> PathBuf {
        let source = format!("{name}.c");
        self.source(&source, text);
        let mut args = vec![
            source.as_str(),
            "-o",
            name,
            "-L.",
            "-lmpi_abi",
            "-Wl,-rpath,$ORIGIN",
        ];
        args.extend(more);
        self.compile("cc", &args);
        self.path(name)
    }
}

/// Runs a program that must end by itself within a minute.
pub fn run(program: &Path, vars: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).envs(vars.iter().copied());
    command.output().expect("timeout runs")
}

/// Runs a program on `ranks` ranks; it must end within a minute.
pub fn launch(ranks: u32, program: &Path) -> Output {
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(garonne())
        .args(["run", "-n", &ranks.to_string()])
        .arg(program);
    command.output().expect("timeout runs")
}

/// Standard output of a run that succeeded.
pub fn stdout(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The library, built from the sources these tests belong to: cargo itself does not build a
/// `cdylib` for tests.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| built("garonne-abi-std").join("libmpi_abi.so"))
        .clone()
}

/// The command, built likewise.
pub fn garonne() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| built("garonne-cli").join("garonne"))
        .clone()
}

/// Builds a package of the workspace in the profile of this test; the directory of what was built.
fn built(package: &str) -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let profile_dir = test
        .parent()
        .and_then(Path::parent)
        .expect("tests lie in target/<profile>/deps");
    let target_dir = profile_dir
        .parent()
        .expect("the profile's directory lies in the target directory");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "-q",
            "-p",
            package,
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    profile_dir.to_path_buf()
}

/// The directory of `mpi.h`.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// The number of the line that contains `mark`.
pub fn line(text: &str, mark: &str) -> usize {
    1 + text
        .lines()
        .position(|line| line.contains(mark))
        .expect("the mark is there")
}
