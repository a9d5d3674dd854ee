//! A program of C that calls every function of `garonne_threads.h`.

#[path = "../../c_program.rs"]
mod c_program;

use c_program::Library;
use std::path::Path;

#[test]
fn a_program_of_c_calls_every_function() {
    let library = Library {
        package: "garonne-threads-c",
        source: Path::new(env!("CARGO_MANIFEST_DIR")),
        tmpdir: Path::new(env!("CARGO_TARGET_TMPDIR")),
        built: "libgaronne_threads.so",
        name: "garonne_threads",
        header: "include/garonne_threads.h",
        program: "tests/threads.c",
        flags: &[],
    };
    library.declares_what_is_called(40);
    let program = library.compiled();
    for _ in 0..10 {
        let ran = c_program::run(&program);
        let text = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success() && ran.stdout == b"all is well\n",
            "{}: {text}",
            ran.status
        );
    }
}
