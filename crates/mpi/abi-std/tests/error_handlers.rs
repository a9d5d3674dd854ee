//! Tests on whose error handler a failure is raised, for every implemented function.
//!
//! A program calls each function of the table with at least one invalid argument. The objects it
//! passes have an error handler each, and the program prints which handler was called. Each
//! function is called twice: with a valid object, and with an invalid one, so that the failure
//! belongs to no object.

mod support;

use garonne_abi_gen::table::{Function, Param};
use std::collections::BTreeMap;
use std::fmt::Write;
use support::{Place, run};

/// Functions that raise nothing whatever they are given, or end the program.
const RAISE_NOTHING: [&str; 17] = [
    "MPI_Abort",
    "MPI_Aint_add",
    "MPI_Aint_diff",
    "MPI_Buffer_flush",
    "MPI_Finalize",
    // Any address may be one that was allocated.
    "MPI_Free_mem",
    "MPI_Init",
    "MPI_Init_thread",
    "MPI_Pcontrol",
    "MPI_Wtick",
    "MPI_Wtime",
    // Change a status, or do nothing without one.
    "MPI_Status_set_error",
    "MPI_Status_set_source",
    "MPI_Status_set_tag",
    "MPI_Status_set_cancelled",
    "MPI_Status_set_elements",
    "MPI_Status_set_elements_x",
];

/// Returns whether the result is an error code that is raised on error handlers.
fn raises(f: &Function) -> bool {
    let converts =
        f.name.ends_with("_toint") || f.name.ends_with("_fromint") || f.name.contains("_f2f08");
    let raises = f.result == "int" && !f.name.starts_with("MPI_T_") && !converts;
    raises && f.implemented && !RAISE_NOTHING.contains(&f.name.as_str())
}

/// The objects of a program that have error handlers of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Object {
    Comm,
    Session,
    File,
}

impl Object {
    const ALL: [Object; 3] = [Object::Comm, Object::Session, Object::File];

    /// The C type, the program's variable, its null handle, and the name under which it tells that
    /// its handler heard.
    fn words(self) -> [&'static str; 4] {
        match self {
            Object::Comm => ["MPI_Comm", "comm", "MPI_COMM_NULL", "comm"],
            Object::Session => ["MPI_Session", "session", "MPI_SESSION_NULL", "session"],
            // The null file stands for all: what is done with it fails.
            Object::File => ["MPI_File", "MPI_FILE_NULL", "(MPI_File)0x7000", "file"],
        }
    }

    fn of(p: &Param) -> Option<Self> {
        let all = Object::ALL.into_iter();
        all.filter(|_| p.depth == 0)
            .find(|object| object.words()[0] == p.base)
    }
}

/// The object of a call: the first that is passed.
fn object(f: &Function) -> Option<Object> {
    f.params.iter().find_map(Object::of)
}

/// Returns whether the call can fail although its object is valid.
fn can_fail(f: &Function) -> bool {
    f.params.len() > 1
}

/// Returns the object whose error handler the standard names: section 9.3, and 7.4.2 and 11.3 for
/// calls that take an error handler.
fn expected(f: &Function, is_good: bool) -> &'static str {
    match (f.name.as_str(), object(f)) {
        // The null file's handler hears of files that are none, of files that cannot be opened, and
        // of data representations.
        (_, Some(Object::File)) => "file",
        (
            "MPI_File_open" | "MPI_File_delete" | "MPI_Register_datarep" | "MPI_Register_datarep_c",
            _,
        ) => "file",
        (_, Some(_)) if is_good && !can_fail(f) => "no failure",
        (_, Some(object)) if is_good => object.words()[3],
        ("MPI_Comm_free" | "MPI_Comm_disconnect", None) if is_good => "world",
        ("MPI_Session_init", _) => "given session",
        ("MPI_Comm_create_from_group" | "MPI_Intercomm_create_from_groups", _) => "given comm",
        _ => "self",
    }
}

/// An argument that cannot be, or the object of the call.
fn argument(f: &Function, p: &Param, is_good: bool) -> String {
    if let Some(object) = Object::of(p) {
        let [_, good, bad, _] = object.words();
        let is_first = f
            .params
            .iter()
            .find(|p| Object::of(p).is_some())
            .map(|p| &p.name)
            == Some(&p.name);
        return if is_good && is_first { good } else { bad }.into();
    }
    let given = match f.name.as_str() {
        "MPI_Session_init" => "given_session",
        "MPI_Comm_create_from_group" | "MPI_Intercomm_create_from_groups" => "given_comm",
        _ => "(MPI_Errhandler)0x7777",
    };
    match (p.base.as_str(), p.depth) {
        ("MPI_Comm", 1) if is_good && reads(f) => "&(MPI_Comm){MPI_COMM_WORLD}".into(),
        ("MPI_Errhandler", 0) => given.into(),
        (base, 0) if base.starts_with("MPI_") && !base.ends_with("_function") => match base {
            "MPI_Aint" | "MPI_Count" | "MPI_Offset" => "-7".into(),
            _ if base.ends_with("_function_c") => "0".into(),
            _ => format!("({base})0x7777"),
        },
        (base, 0) if base.ends_with("_function") => "0".into(),
        ("int", 0) => "-7".into(),
        // What is read and changed: a handle that is none.
        (
            "MPI_Request" | "MPI_Message" | "MPI_Datatype" | "MPI_Op" | "MPI_Group" | "MPI_Info"
            | "MPI_Session",
            1,
        ) if !p.constant && !p.array && reads(f) => {
            format!("&({}){{({})0x7777}}", p.base, p.base)
        }
        _ => "NULL".into(),
    }
}

/// Returns whether a pointer of this function points to a handle that is an argument, too.
fn reads(f: &Function) -> bool {
    const THESE: [&str; 17] = [
        "MPI_Cancel",
        "MPI_Comm_disconnect",
        "MPI_Comm_free",
        "MPI_Group_free",
        "MPI_Imrecv",
        "MPI_Info_free",
        "MPI_Mrecv",
        "MPI_Op_free",
        "MPI_Request_free",
        "MPI_Session_finalize",
        "MPI_Start",
        "MPI_Test",
        "MPI_Type_commit",
        "MPI_Type_free",
        "MPI_Wait",
        "MPI_Imrecv_c",
        "MPI_Mrecv_c",
    ];
    THESE.contains(&f.name.as_str())
}

/// The program, and which line of what it prints is for which call.
fn program(functions: &[&Function]) -> String {
    let mut calls = String::new();
    for is_good in [true, false] {
        for f in functions {
            let arguments: Vec<_> = f.params.iter().map(|p| argument(f, p, is_good)).collect();
            writeln!(
                calls,
                "    SHOW(\"{} {is_good}\", {}({}));",
                f.name,
                f.name,
                arguments.join(", ")
            )
            .unwrap();
        }
    }
    format!(
        r#"
#define MPI_NO_DEPRECATED
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static const char *heard[8];
static int times;
static void hears(const char *who) {{ if (times < 8) heard[times] = who; times++; }}
static void on_comm(MPI_Comm *comm, int *code, ...) {{
    (void)code;
    hears(*comm == MPI_COMM_WORLD ? "world" : *comm == MPI_COMM_SELF ? "self" : "comm");
}}
static void given_on_comm(MPI_Comm *comm, int *code, ...) {{ (void)code; hears(*comm == MPI_COMM_NULL ? "given comm" : "given what?"); }}
static void on_session(MPI_Session *session, int *code, ...) {{ (void)code; hears(*session == MPI_SESSION_NULL ? "null session" : "session"); }}
static void given_on_session(MPI_Session *session, int *code, ...) {{ (void)code; hears(*session == MPI_SESSION_NULL ? "given session" : "given what?"); }}
static void on_file(MPI_File *file, int *code, ...) {{ (void)file; (void)code; hears("file"); }}
static void show(const char *what, int code) {{
    printf("%s %s:", what, code == MPI_SUCCESS ? "succeeds" : "fails");
    for (int i = 0; i < times; i++) printf(" %s", heard[i]);
    printf("\n");
    fflush(stdout);
}}
#define SHOW(what, call) do {{ times = 0; int code = (call); show(what, code); }} while (0)
int main(void) {{
    MPI_Errhandler comms, sessions, files, given_comm, given_session;
    MPI_Session session;
    MPI_Comm comm;
    MPI_Init(NULL, NULL);
    MPI_Comm_create_errhandler(on_comm, &comms);
    MPI_Comm_create_errhandler(given_on_comm, &given_comm);
    MPI_Session_create_errhandler(on_session, &sessions);
    MPI_Session_create_errhandler(given_on_session, &given_session);
    MPI_File_create_errhandler(on_file, &files);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, comms);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, comms);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, comms);
    MPI_File_set_errhandler(MPI_FILE_NULL, files);
    MPI_Session_init(MPI_INFO_NULL, sessions, &session);
{calls}
    MPI_Finalize();
    return 0;
}}"#
    )
}

#[test]
fn every_failure_is_raised_once_on_the_object_that_it_belongs_to() {
    let place = Place::new("handlers");
    let functions = garonne_abi_gen::functions().expect("the table parses");
    let functions: Vec<_> = functions.iter().filter(|f| raises(f)).collect();
    assert!(functions.len() > 300, "{}", functions.len());
    let source = program(&functions);
    let program = place.program("main", &source);
    let output = run(&program, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: BTreeMap<_, _> = said
        .lines()
        .filter_map(|line| line.split_once(": ").or(line.split_once(':')))
        .collect();
    let mut wrong = Vec::new();
    for f in &functions {
        for is_good in [true, false] {
            let key = format!("{} {is_good} fails", f.name);
            let heard = said.get(key.as_str()).copied().unwrap_or("no failure");
            let wanted = expected(f, is_good);
            if heard != wanted {
                wrong.push(format!(
                    "{} with a {} object: heard by {heard}, not {wanted}",
                    f.name,
                    if is_good { "good" } else { "bad" }
                ));
            }
        }
    }
    let all = wrong.join("\n");
    assert!(
        wrong.is_empty() && output.status.success(),
        "{all}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program that has `MPI_COMM_WORLD` alone return errors, and then frees what is predefined.
const WORLD_ALONE: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(void) {
    MPI_Datatype type = MPI_CXX_BOOL;
    int class;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Type_free(&type), &class);
    printf("%d", class == MPI_ERR_TYPE);
    MPI_Finalize();
    return 0;
}"#;

#[test]
fn errors_of_no_object_are_the_worlds_where_it_alone_has_a_handler_unless_they_are_checked() {
    let place = Place::new("world_alone");
    let program = place.program("main", WORLD_ALONE);
    let free = run(&program, &[]);
    assert!(free.status.success() && free.stdout == b"1");
    let checked = run(&program, &[("GARONNE_CHECK", "types,errors")]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(
        !checked.status.success() && said.contains("is predefined and cannot be freed"),
        "{said}"
    );
}

#[test]
fn constructors_of_a_program_without_a_world_tell_the_handler_that_they_are_given() {
    let place = Place::new("given_handlers");
    let program = place.program(
        "main",
        r#"
#include <mpi.h>
#include <stdio.h>
static void show(int code) { int class; MPI_Error_class(code, &class); printf("%d ", class); fflush(stdout); }
int main(void) {
    MPI_Session session, other;
    MPI_Group group;
    MPI_Comm comm;
    show(MPI_Session_init((MPI_Info)0x77777, MPI_ERRORS_RETURN, &other));
    show(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    show(MPI_Comm_create_from_group(MPI_GROUP_NULL, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    show(MPI_Intercomm_create_from_groups(group, 77, group, 0, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
    return 0;
}"#,
    );
    let output = run(&program, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    // MPI_ERR_INFO, MPI_SUCCESS, MPI_ERR_GROUP, MPI_ERR_RANK.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "34 0 9 6 ");
}

/// Program that prints the effect of each initial error handler. Raises an error on
/// `MPI_COMM_WORLD`, one on a duplicate of it, and one of no object before `MPI_Init`.
const INITIAL: &str = r#"
#include <mpi.h>
#include <stdio.h>
static void show(int code) { int class; MPI_Error_class(code, &class); printf("%d ", class); fflush(stdout); }
int main(int argc, char **argv) {
    MPI_Datatype type = MPI_INT;
    MPI_Comm comm;
    (void)argv;
    if (argc > 1)
        show(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_Init(NULL, NULL);
    show(MPI_Send(NULL, 0, MPI_INT, 77, 0, MPI_COMM_WORLD));
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    show(MPI_Send(NULL, 0, MPI_INT, 77, 0, comm));
    show(MPI_Type_free(&type));
    MPI_Finalize();
    return 0;
}"#;

#[test]
fn the_initial_error_handler_is_the_one_that_the_program_is_started_with() {
    let place = Place::new("initial_handler");
    let program = place.program("main", INITIAL);
    let returns = run(
        &program,
        &[("GARONNE_INITIAL_ERRHANDLER", "MPI_Errors_Return")],
    );
    let said = String::from_utf8_lossy(&returns.stderr).into_owned();
    assert!(
        returns.status.success() && returns.stdout == b"6 6 3 ",
        "{said}"
    );
    for name in ["", "mpi_errors_are_fatal", "mpi_errors_abort"] {
        let ends = run(&program, &[("GARONNE_INITIAL_ERRHANDLER", name)]);
        let said = String::from_utf8_lossy(&ends.stderr).into_owned();
        assert!(
            !ends.status.success() && said.contains("has no rank 77"),
            "{name}: {said}"
        );
    }
    let wrong = run(&program, &[("GARONNE_INITIAL_ERRHANDLER", "mpi_errors")]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && said.contains("mpi_errors_are_fatal, mpi_errors_abort"),
        "{said}"
    );
    let launched = std::process::Command::new(support::garonne())
        .args(["run", "-n", "1", "-initial-errhandler", "mpi_errors_return"])
        .arg(&program)
        .arg("before")
        .output()
        .expect("the launcher runs");
    let said = String::from_utf8_lossy(&launched.stderr).into_owned();
    assert_eq!(
        String::from_utf8_lossy(&launched.stdout),
        "5 6 6 3 ",
        "{said}"
    );
}

#[test]
fn a_program_with_sessions_alone_is_told_how_to_get_a_world() {
    let place = Place::new("no_world");
    let program = place.program(
        "main",
        r#"
#include <mpi.h>
int main(void) {
    MPI_Session session;
    int rank;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    return MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}"#,
    );
    let output = run(&program, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for part in [
        "error[G0108]: MPI_COMM_WORLD exists in the world model only: no MPI_Init was called, only MPI_Session_init",
        "help: call MPI_Init or MPI_Init_thread, or make a communicator by MPI_Comm_create_from_group",
        "\"mpi://WORLD\"",
    ] {
        assert!(said.contains(part), "{said}");
    }
}
