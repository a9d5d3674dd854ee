//! `GARONNE_CHECK=messages`: messages that nobody received end the job in `MPI_Finalize`, with the
//! lines that sent them.

mod support;

use std::process::{Command, Output};

use support::{Place, garonne, line};

/// Rank 0 sends messages that rank 1 does not receive: which, by the first argument.
const PROGRAM: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    #include <string.h>
    enum { LARGE = 100000 };
    static char data[LARGE], more[LARGE + MPI_BSEND_OVERHEAD];
    static MPI_Comm world;
    static int is(const char *word, const char *other) { return !strcmp(word, other); }

    static void freed(int count, int tag) {
        MPI_Request request;
        MPI_Isend(data, count, MPI_BYTE, 1, tag, world, &request); /* freed */
        MPI_Request_free(&request);
    }

    static void used(const char *which, int rank) {
        MPI_Comm dup, other;
        MPI_Message message;
        if (is(which, "eager") && rank == 0)
            MPI_Send(data, 4, MPI_BYTE, 1, 42, world); /* eager */
        if (is(which, "large") && rank == 0) freed(LARGE, 42);
        if (is(which, "buffered") && rank == 0) {
            MPI_Buffer_attach(more, sizeof more);
            MPI_Bsend(data, LARGE, MPI_BYTE, 1, 42, world); /* buffered */
        }
        if (is(which, "tag")) {
            if (rank == 0) {
                MPI_Send(data, 8, MPI_BYTE, 1, 42, world); /* tag */
                MPI_Send(data, 8, MPI_BYTE, 1, 43, world);
            } else
                MPI_Recv(data, 8, MPI_BYTE, 0, 43, world, MPI_STATUS_IGNORE);
        }
        if (is(which, "many") && rank == 0)
            for (int i = 0; i < 50; i++) {
                MPI_Send(data, 4, MPI_BYTE, 1, i % 25, world); /* many */
                MPI_Send(data, 4, MPI_BYTE, 1, 0, world); /* more */
            }
        if (is(which, "self")) freed(0, 1 + rank), MPI_Barrier(world);
        if (is(which, "freed")) {
            MPI_Comm_dup(world, &dup);
            MPI_Comm_set_name(dup, "halo");
            MPI_Comm_dup(world, &other);
            if (rank == 0) {
                MPI_Send(data, 3, MPI_BYTE, 1, 42, dup);
                MPI_Send(data, 3, MPI_BYTE, 1, 42, other);
            } else
                MPI_Recv(data, 3, MPI_BYTE, 0, 42, other, MPI_STATUS_IGNORE);
            MPI_Request request;
            if (rank == 0) {
                MPI_Isend(data, LARGE, MPI_BYTE, 1, 43, dup, &request); /* dup */
                MPI_Request_free(&request);
            }
            MPI_Comm_free(&dup);
            MPI_Comm_free(&other);
        }
        if (is(which, "probed")) {
            if (rank == 0)
                MPI_Send(data, 5, MPI_BYTE, 1, 42, world); /* probed */
            else
                MPI_Mprobe(0, 42, world, &message, MPI_STATUS_IGNORE);
        }
        if (is(which, "threads")) {
            for (int i = 0; i < 3; i++) {
                MPI_Comm_dup(world, &dup);
                if (rank == 0) MPI_Send(data, 6, MPI_BYTE, 1, 42, dup); /* threads */
            }
        }
        if (is(which, "clean")) {
            MPI_Request request;
            if (rank == 1) {
                MPI_Irecv(data, LARGE, MPI_BYTE, 0, 7, world, &request);
                MPI_Request_free(&request);
            }
            MPI_Barrier(world);
            if (rank == 0) freed(LARGE, 7);
            if (rank == 0) freed(1, 8);
            if (rank == 1) MPI_Recv(data, 1, MPI_BYTE, 0, 8, world, MPI_STATUS_IGNORE);
            MPI_Bcast(data, 100, MPI_BYTE, 0, world);
        }
    }

    int main(int argc, char **argv) {
        int rank, in_session = argc > 2 && is(argv[2], "session"), level = MPI_THREAD_SINGLE;
        MPI_Session session;
        if (in_session) {
            MPI_Group group;
            MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
            MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
            MPI_Comm_create_from_group(group, "test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &world);
            MPI_Group_free(&group);
        } else {
            if (is(argv[1], "threads")) level = MPI_THREAD_MULTIPLE;
            MPI_Init_thread(&argc, &argv, level, &level);
            world = MPI_COMM_WORLD;
            if (argc > 2) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
            if (argc > 2) MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        }
        MPI_Comm_rank(world, &rank);
        used(argv[1], rank);
        if (in_session) {
            MPI_Barrier(world);
            MPI_Comm_free(&world);
            MPI_Session_finalize(&session);
        } else
            MPI_Finalize();
        return 0;
    }
"#;

struct Programs(Place);

impl Programs {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        place.program_with("unreceived", PROGRAM, &["-g"]);
        Self(place)
    }

    fn run(&self, check: &str, words: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.arg("60").arg(garonne()).args(["run", "-n", "2"]);
        command.arg(self.0.path("unreceived")).args(words);
        command
            .env("GARONNE_CHECK", check)
            .output()
            .expect("timeout runs")
    }

    /// Returns the output of a job that ends with an error for messages that nobody received.
    fn told(&self, words: &[&str]) -> String {
        let output = self.run("messages", words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| !matches!(code, 0 | 124)),
            "{code:?}: {said}"
        );
        assert_eq!(said.matches("error[G0124]: ").count(), 1, "{said}");
        assert!(!said.contains("G0120"), "{said}");
        said
    }
}

fn at(mark: &str) -> String {
    format!("at unreceived.c:{}", line(PROGRAM, mark))
}

#[test]
fn messages_that_nobody_received_end_the_job_with_the_lines_that_sent_them() {
    let programs = Programs::new("unreceived");
    for (which, call, bytes, comm) in [
        ("eager", "MPI_Send", 4, "MPI_COMM_WORLD"),
        ("large", "MPI_Isend", 100_000, "MPI_COMM_WORLD"),
        ("buffered", "MPI_Bsend", 100_000, "MPI_COMM_WORLD"),
        ("tag", "MPI_Send", 8, "MPI_COMM_WORLD"),
        ("probed", "MPI_Send", 5, "MPI_COMM_WORLD"),
    ] {
        let said = programs.told(&[which]);
        let mark = if which == "large" { "freed" } else { which };
        let place = at(&format!("/* {mark} */"));
        let wanted =
            format!("  rank 0  {call}: {bytes} B to rank 1, tag 42, comm \"{comm}\"   {place}");
        assert!(said.lines().any(|line| line == wanted), "{wanted}:\n{said}");
        assert!(said.contains("a message was never received; all ranks have called MPI_Finalize"));
    }
}

#[test]
fn the_communicator_of_an_unreceived_message_is_named_also_where_it_was_freed() {
    let programs = Programs::new("unreceived_freed");
    let said = programs.told(&["freed"]);
    let small = " 3 B to rank 1, tag 42, comm \"halo\" (freed)";
    let large = format!(
        " 100000 B to rank 1, tag 43, comm \"halo\" (freed)   {}\n",
        at("/* dup */")
    );
    assert!(said.contains(small) && said.contains(&large), "{said}");
    assert_eq!(said.matches(" B to rank ").count(), 2, "{said}");
}

#[test]
fn equal_unreceived_messages_are_told_at_once_and_not_more_kinds_than_a_person_reads() {
    let programs = Programs::new("unreceived_many");
    let said = programs.told(&["many"]);
    assert!(said.contains("100 messages were never received"), "{said}");
    let first = format!(
        "  rank 0  MPI_Send: 52 times 4 B to rank 1, tag 0, comm \"MPI_COMM_WORLD\"   {}\n      or MPI_Send   {}\n",
        at("/* many */"),
        at("/* more */")
    );
    assert!(said.contains(&first), "{first}{said}");
    assert_eq!(said.matches(" B to rank ").count(), 16, "{said}");
    assert!(said.contains("  and 18 other messages\n"), "{said}");
}

#[test]
fn all_ranks_and_all_shards_are_looked_at() {
    let programs = Programs::new("unreceived_everywhere");
    let said = programs.told(&["self"]);
    for rank in 0..2 {
        let wanted = format!(
            "  rank {rank}  MPI_Isend: 0 B to rank 1, tag {}, ",
            rank + 1
        );
        assert!(said.contains(&wanted), "{said}");
    }
    assert_eq!(said.matches(&at("/* freed */")).count(), 2, "{said}");
    let said = programs.told(&["threads"]);
    assert_eq!(said.matches(&at("/* threads */")).count(), 3, "{said}");
}

#[test]
fn an_error_handler_does_not_pass_over_unreceived_messages() {
    Programs::new("unreceived_handler").told(&["eager", "returns"]);
}

#[test]
fn messages_of_a_session_are_told_at_its_end() {
    let programs = Programs::new("unreceived_session");
    let said = programs.told(&["eager", "session"]);
    assert!(said.contains("rank 1 has ended its last session"), "{said}");
    assert!(said.contains(" 4 B to rank 1, tag 42, comm #"), "{said}");
}

#[test]
fn nothing_is_said_where_all_is_received_or_nobody_asks() {
    let programs = Programs::new("all_received");
    let cases = [
        ("messages", &["clean"][..]),
        ("messages", &["clean", "returns"]),
        ("messages", &["clean", "session"]),
        ("", &["eager"]),
    ];
    for (check, words) in cases {
        let output = programs.run(check, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}
