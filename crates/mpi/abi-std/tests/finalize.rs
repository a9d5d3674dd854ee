//! Messages of a job whose `MPI_Finalize` waits for messages that nobody will receive. A job whose
//! messages are received late must print nothing.

mod support;

use support::{Job, Place, garonne, launch, line};

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Frees the requests of sends, or sends from a buffer: which, by the first argument.
const PROGRAM: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    #include <unistd.h>
    enum { LARGE = 100000 };
    static char data[LARGE], more[LARGE + MPI_BSEND_OVERHEAD];
    int main(int argc, char **argv) {
        int rank, late = argc == 1, which = late ? 0 : atoi(argv[1]);
        MPI_Request request;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Barrier(MPI_COMM_WORLD);
        if (which == 1 || (which == 0 && rank == 0)) {
            MPI_Isend(data, LARGE, MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD, &request); /* sent */
            MPI_Request_free(&request);
        }
        if (which == 2 && rank == 0) {
            MPI_Buffer_attach(more, sizeof more);
            MPI_Bsend(data, LARGE, MPI_BYTE, 1, 6, MPI_COMM_WORLD); /* buffered */
        }
        if (late && rank == 1) {
            sleep(5);
            MPI_Recv(data, LARGE, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Finalize();
        return 0;
    }
"#;

/// Returns the output of a hanging job up to its warning, the output of `garonne who` then, and the
/// number of warnings.
fn said(which: &str) -> (String, String, usize) {
    let place = Place::new(&format!("undelivered{which}"));
    let program = place.program_with("undelivered", PROGRAM, &["-g"]);
    let mut command = Command::new(garonne());
    command
        .args(["run", "--timeout", "60", "-n", "2"])
        .arg(&program)
        .arg(which);
    let mut job = Job(command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the job starts"));
    let mut lines = BufReader::new(job.0.stderr.take().expect("it is piped"));
    let mut text = String::new();
    while !text.contains("help: ") {
        assert_ne!(
            lines.read_line(&mut text).expect("it is text"),
            0,
            "the job ended:\n{text}"
        );
    }
    let who = Command::new(garonne())
        .arg("who")
        .arg(job.0.id().to_string())
        .output();
    let who = String::from_utf8_lossy(&who.expect("the command runs").stdout).into_owned();
    let _ = job.0.kill();
    let mut all = text.clone();
    let _ = lines.read_to_string(&mut all);
    (text, who, all.matches("G0120").count())
}

fn place(mark: &str) -> String {
    format!("at undelivered.c:{}", line(PROGRAM, mark))
}

#[test]
fn a_freed_send_that_nobody_receives_is_told_once_with_its_place() {
    let (text, who, times) = said("0");
    let what = format!(
        "MPI_Isend: 100000 B to rank 1, tag 5, comm \"MPI_COMM_WORLD\"   {}; rank 1 has called MPI_Finalize",
        place("/* sent */")
    );
    let head = "error[G0120]: rank 0 waits in MPI_Finalize for a message that nobody will receive";
    assert!(text.contains(head) && text.contains(&what), "{text}");
    assert!(
        who.contains("rank 0 can never go on, since rank 1 has called MPI_Finalize"),
        "{who}"
    );
    assert_eq!(times, 1, "{text}");
}

#[test]
fn ranks_that_wait_for_each_other_in_finalize_are_told() {
    let (text, _, _) = said("1");
    assert!(text.contains("waits in MPI_Finalize itself"), "{text}");
    assert!(text.contains(&place("/* sent */")), "{text}");
}

#[test]
fn a_buffered_send_that_nobody_receives_is_told() {
    let (text, _, _) = said("2");
    assert!(
        text.contains("MPI_Bsend: 100000 B to rank 1, tag 6"),
        "{text}"
    );
    assert!(text.contains(&place("/* buffered */")), "{text}");
}

#[test]
fn a_message_that_is_received_late_is_not_told_of() {
    let place = Place::new("undelivered_late");
    let output = launch(2, &place.program_with("undelivered", PROGRAM, &[]));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{text}");
}
