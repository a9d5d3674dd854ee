//! Output of `garonne top` for ranks that never sleep in MPI: messages sent, exactly, and the
//! operation that each rank waits for.

mod support;

use std::process::Command;

use support::{Job, Place, garonne};

/// Program. Rank 0 has sent and sleeps outside MPI. Rank 1 waits for it, rank 2 polls, and rank 3
/// is alone in a barrier. Rank 4 sends to rank 5 now and then, and neither sleeps in MPI.
const TRICKLE: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int rank, done = 0;
        char *data = calloc(1, 1 << 20);
        MPI_Request request;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 0) {
            for (int i = 0; i < 5; i++) MPI_Send(data, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Send(data, 10000, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Send(data, 16, MPI_CHAR, 2, 0, MPI_COMM_WORLD);
            for (;;) pause();
        }
        if (rank == 1) for (;;) MPI_Recv(data, 1 << 20, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 2) {
            MPI_Irecv(data, 8, MPI_CHAR, 0, 9, MPI_COMM_WORLD, &request);
            for (;; usleep(1000)) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
        if (rank == 3) MPI_Barrier(MPI_COMM_WORLD);
        for (;; usleep(5000)) {
            int flag = 0;
            if (rank == 4) MPI_Send(data, 8, MPI_CHAR, 5, 0, MPI_COMM_WORLD);
            else while (!flag) MPI_Iprobe(4, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            if (rank == 5) MPI_Recv(data, 8, MPI_CHAR, 4, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
"#;

/// A rank as `top` shows it.
#[derive(Clone, Debug, Default)]
struct Row {
    messages: u64,
    bytes: u64,
    waits_for: String,
}

fn word<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    let rest = object.split_once(&format!("\"{key}\":"))?.1;
    rest.split([',', '}'])
        .next()
        .map(|word| word.trim_matches('"'))
}

fn rows(job: &Job) -> Vec<Row> {
    let id = job.0.id().to_string();
    let output = Command::new(garonne())
        .args(["top", "--once", "--every", "0.05", "--json", &id])
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |object: &str| {
        let number = |key| word(object, key).and_then(|word| word.parse().ok());
        Some(Row {
            messages: number("sent_messages")?,
            bytes: number("sent_bytes")?,
            waits_for: word(object, "waits_for")?.to_owned(),
        })
    };
    said.split("{\"bytes_per_s\"")
        .skip(1)
        .filter_map(row)
        .collect()
}

#[test]
fn counters_are_those_of_the_moment_and_waits_are_named_also_where_ranks_never_sleep_in_mpi() {
    let place = Place::new("trickle");
    let program = place.program_with("trickle", TRICKLE, &["-g"]);
    let mut command = Command::new(garonne());
    command
        .args(["run", "--timeout", "120", "-n", "6"])
        .arg(&program);
    let job = Job(command.spawn().expect("the job starts"));
    let mut latest = Vec::new();
    let waits = ["outside MPI", "recv ← 0", "polls", "barrier 1"];
    let settled = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        latest = rows(&job);
        let named = latest.iter().map(|row| row.waits_for.as_str());
        named.take(waits.len()).eq(waits) && latest.len() == 6
    });
    assert!(settled, "{latest:?}");
    assert_eq!(
        (latest[0].messages, latest[0].bytes),
        (7, 5 * 8 + 10_000 + 16)
    );
    assert_eq!(latest[1].messages, 0, "{latest:?}");
    // Far fewer messages than after which a rank publishes what it has sent.
    let mut before = latest[4].messages;
    for _ in 0..3 {
        let now = rows(&job)[4].clone();
        assert!(now.messages > before, "{before}: {now:?}");
        assert_eq!(now.bytes, 8 * now.messages);
        before = now.messages;
    }
}
