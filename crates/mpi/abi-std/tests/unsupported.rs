//! A function that is not there yet says so, by its name.

mod support;

use support::{Place, run};

#[test]
fn a_missing_function_ends_the_program_with_its_name() {
    let place = Place::new("unsupported");
    let functions = garonne_abi_gen::functions().expect("the table parses");
    let missing = functions
        .iter()
        .find(|f| !f.implemented && f.params.iter().all(|p| p.base == "MPI_Win"));
    let Some(missing) = missing else { return };
    let arguments = vec!["MPI_WIN_NULL"; missing.params.len()].join(", ");
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
        .filter(|f| !f.implemented && f.params.iter().all(|p| p.base == "MPI_Win"))
        .take(2)
        .collect();
    let calls: String = missing
        .iter()
        .map(|f| {
            let arguments = vec!["MPI_WIN_NULL"; f.params.len()].join(", ");
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
