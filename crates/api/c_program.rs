//! Tests of C libraries: a program of C that calls every function which a header declares, built
//! against the library and run from beside it.
//!
//! Used by path, as a module of the test of each library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A C library, its header and the program of its test.
pub struct Library<'a> {
    /// The package that builds the library.
    pub package: &'a str,
    /// Directory of that package.
    pub source: &'a Path,
    /// Cargo's directory for files of tests.
    pub tmpdir: &'a Path,
    /// File that cargo builds.
    pub built: &'a str,
    /// Name for the linker: `lib` comes before it, `.so` and `.so.1` behind it.
    pub name: &'a str,
    /// Header and program, within the package.
    pub header: &'a str,
    pub program: &'a str,
    /// More words for the compiler.
    pub flags: &'a [&'a str],
}

impl Library<'_> {
    /// Panics unless the program calls each function of the header, and there are over `least`.
    pub fn declares_what_is_called(&self, least: u32) {
        let read = |file| std::fs::read_to_string(self.source.join(file)).unwrap();
        let (declared, called) = (read(self.header), read(self.program));
        let words = declared.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(');
        let mut functions = 0;
        for word in words.filter(|word| word.starts_with("garonne_")) {
            let Some(end) = word.find('(') else { continue };
            functions += 1;
            assert!(called.contains(&word[..=end]), "{word} is not called");
        }
        assert!(functions > least, "{functions} functions are declared");
    }

    /// Builds library and program. Returns the program.
    pub fn compiled(&self) -> PathBuf {
        let place = self.tmpdir.join(self.name);
        std::fs::create_dir_all(&place).unwrap();
        let library = self.library();
        // The library's name for the linker, and its soname for the loader.
        for end in ["so", "so.1"] {
            let link = place.join(format!("lib{}.{end}", self.name));
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, link).unwrap();
        }
        let program = place.join("program");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let mut compile = Command::new(compiler);
        compile
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-I"])
            .arg(self.source.join("include"))
            .arg(self.source.join(self.program))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(&place)
            .arg(format!("-l{}", self.name))
            .args(self.flags)
            .arg("-Wl,-rpath,$ORIGIN");
        succeeds(&mut compile);
        program
    }

    /// Builds the library: cargo builds none for tests of a crate that is only that.
    fn library(&self) -> PathBuf {
        let target = self.tmpdir.parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "-q", "-p", self.package, "--target-dir"])
            .arg(target);
        succeeds(&mut build);
        target.join("debug").join(self.built)
    }
}

fn succeeds(command: &mut Command) {
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
}

/// Runs a program for at most 100 s.
pub fn run(program: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.arg("100").arg(program).output().unwrap()
}
