//! The committed `docs/user/errors.md` is what the table of error codes says. `UPDATE=1` rewrites
//! it.

use garonne_job::codes::CODES;
use std::fmt::Write as _;
use std::path::Path;

/// Headings of the page, each with the first two digits of its codes.
const SECTIONS: [(&str, &str); 4] = [
    ("G01", "MPI calls"),
    ("G02", "Jobs and agents"),
    ("G03", "Resources of the machine, and findings"),
    ("G04", "The Rust interface"),
];

/// Returns the page: a heading per code, with what to do.
fn page() -> String {
    let mut text = String::from(
        "# Errors\n\nGenerated from `crates/run/job/src/codes.rs`; do not edit. Each code, and what to do. \
         `garonne explain CODE` tells what happened and where to look.\n",
    );
    for (prefix, heading) in SECTIONS {
        let _ = write!(text, "\n## {heading}\n");
        for code in CODES.iter().filter(|code| code.id.starts_with(prefix)) {
            let _ = write!(text, "\n### {}: {}\n\n{}\n", code.id, code.title, code.todo);
        }
    }
    text
}

#[test]
fn the_page_of_errors_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/user/errors.md");
    let expected = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &expected).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is out of date: UPDATE=1 cargo test -p garonne-job --test errors_page",
        path.display()
    );
    assert!(
        CODES.iter().all(|code| SECTIONS
            .iter()
            .any(|(prefix, _)| code.id.starts_with(prefix))),
        "each code has its section"
    );
}
