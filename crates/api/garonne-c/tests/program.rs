//! A program of C that calls every function of `garonne.h`, with both ends in one process.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library: cargo builds none for tests of a crate that is only that.
fn library() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "garonne-c", "--target-dir"])
        .arg(target)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{text}");
    target.join("debug/libgaronne_c.so")
}

#[test]
fn a_program_of_c_calls_every_function() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = source.join("include/garonne.h");
    let program = source.join("tests/endpoints.c");
    let [declared, called] = [&header, &program].map(|file| std::fs::read_to_string(file).unwrap());
    let words = declared.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(');
    let mut functions = 0;
    for word in words.filter(|word| word.starts_with("garonne_")) {
        let Some(end) = word.find('(') else { continue };
        functions += 1;
        assert!(called.contains(&word[..=end]), "{word} is not called");
    }
    assert!(functions > 12, "{functions} functions are declared");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endpoints");
    std::fs::create_dir_all(&place).unwrap();
    let library = library();
    for name in ["libgaronne.so", "libgaronne.so.1"] {
        let _ = std::fs::remove_file(place.join(name));
        std::os::unix::fs::symlink(&library, place.join(name)).unwrap();
    }
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(source.join("include"))
        .arg(&program)
        .arg("-o")
        .arg(place.join("program"))
        .arg("-L")
        .arg(&place)
        .args(["-lgaronne", "-lpthread", "-Wl,-rpath,$ORIGIN"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{text}");
    let ran = Command::new("timeout")
        .arg("100")
        .arg(place.join("program"))
        .output()
        .unwrap();
    let (said, told) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(
        ran.status.success() && said.contains("all is well"),
        "{}\n{said}\n{told}",
        ran.status
    );
}
