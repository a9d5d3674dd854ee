//! A function that is not there yet says so, by its name.

mod support;

use garonne_abi_gen::table::Function;
use support::{Place, run};

/// Returns arguments for a call of a function that is not there; `None` for functions on files,
/// whose errors are returned by default.
fn arguments(function: &Function) -> Option<String> {
    let argument = |depth: usize, base: &str| match (depth, base) {
        (1.., _) => Some("NULL"),
        (0, "MPI_Comm") => Some("MPI_COMM_SELF"),
        (0, "MPI_Info") => Some("MPI_INFO_NULL"),
        (0, "int") => Some("0"),
        _ => None,
    };
    let each = function.params.iter().map(|p| argument(p.depth, &p.base));
    let all: Option<Vec<_>> = each.collect();
    let on_file = function.params.iter().any(|p| p.base == "MPI_File");
    all.filter(|_| !on_file && !function.implemented)
        .map(|all| all.join(", "))
}

#[test]
fn a_missing_function_ends_the_program_with_its_name() {
    let place = Place::new("unsupported");
    let functions = garonne_abi_gen::functions().expect("the table parses");
    // Errors of functions on files are returned by default, also without a file's handle.
    let ends = |f: &&Function| !f.name.starts_with("MPI_File_");
    let missing = functions
        .iter()
        .filter(ends)
        .find_map(|f| arguments(f).map(|arguments| (f, arguments)));
    let Some((missing, arguments)) = missing else {
        return;
    };
    let program = place.program(
        "main",
        &format!("#include <mpi.h>\n#include <stdio.h>\nint main(void) {{ printf(\"before\"); {}({arguments}); return 0; }}", missing.name),
    );
    let output = run(&program, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        said.contains(&missing.name) && said.contains("not implemented"),
        "{said}"
    );
    assert_eq!(
        output.stdout, b"before",
        "what the program printed is not lost"
    );
}

#[test]
fn the_code_of_a_missing_function_has_the_class_and_a_string_with_its_name() {
    let place = Place::new("unsupported_code");
    let functions = garonne_abi_gen::functions().expect("the table parses");
    let missing: Vec<_> = functions
        .iter()
        .filter(|f| arguments(f).is_some())
        .take(2)
        .collect();
    if missing.is_empty() {
        return;
    }
    let calls: String = missing
        .iter()
        .map(|f| {
            let arguments = arguments(f).unwrap_or_default();
            format!("show({}({arguments}));", f.name)
        })
        .collect();
    let program = place.program(
        "main",
        &format!(
            r#"
            #include <mpi.h>
            #include <stdio.h>
            static void show(int code) {{
                int class, len;
                char text[MPI_MAX_ERROR_STRING];
                MPI_Error_class(code, &class);
                MPI_Error_string(code, text, &len);
                printf("%d %d %s\n", class == MPI_ERR_UNSUPPORTED_OPERATION, code < MPI_ERR_LASTCODE, text);
            }}
            int main(void) {{
                MPI_Init(NULL, NULL);
                MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
                {calls}
                MPI_Finalize();
                return 0;
            }}"#
        ),
    );
    let output = run(&program, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for (line, f) in said.lines().zip(&missing) {
        let text = format!(
            "1 1 MPI_ERR_UNSUPPORTED_OPERATION: {} is not implemented",
            f.name
        );
        assert!(
            line.starts_with(&text) && line.contains("docs/user/conformance.md"),
            "{line}"
        );
    }
    assert_eq!(said.lines().count(), missing.len());
}
