//! A program of C that calls every function of `garonne.h`, with both ends in one process.

#[path = "../../c_program.rs"]
mod c_program;

use c_program::Library;
use std::path::Path;

#[test]
fn a_program_of_c_calls_every_function() {
    let library = Library {
        package: "garonne-c",
        source: Path::new(env!("CARGO_MANIFEST_DIR")),
        tmpdir: Path::new(env!("CARGO_TARGET_TMPDIR")),
        built: "libgaronne_c.so",
        name: "garonne",
        header: "include/garonne.h",
        program: "tests/endpoints.c",
        flags: &["-lpthread"],
    };
    library.declares_what_is_called(12);
    let ran = c_program::run(&library.compiled());
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
