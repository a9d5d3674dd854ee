//! What errors of whole jobs say: both sides of the contract, with calls and lines of the program.

mod support;

use support::{Place, garonne, launch, run, stdout};

const HALO: &str = r#"
    #include <mpi.h>
    int main(int argc, char **argv) {
        double data[64] = {0};
        int rank;
        MPI_Comm halo;
        MPI_Request request;
        MPI_Init(&argc, &argv);
        MPI_Comm_dup(MPI_COMM_WORLD, &halo);
        MPI_Comm_set_name(halo, "halo_x");
        MPI_Comm_rank(halo, &rank);
        if (rank == 0) {
            MPI_Irecv(data, 10, MPI_DOUBLE, 1, 7, halo, &request); /* receives */
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Isend(data, 12, MPI_DOUBLE, 0, 7, halo, &request); /* sends */
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Barrier(halo);
        }
        MPI_Finalize();
    }
"#;

/// The number of the line that contains `mark`.
fn line(text: &str, mark: &str) -> usize {
    1 + text
        .lines()
        .position(|line| line.contains(mark))
        .expect("the mark is there")
}

fn last_words(name: &str, text: &str, flags: &[&str]) -> String {
    let place = Place::new(name);
    let output = launch(2, &place.program_with("halo", text, flags));
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_truncation_names_calls_and_lines_of_both_sides() {
    let said = last_words("truncation", HALO, &["-g"]);
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    let (receives, sends) = (line(HALO, "/* receives */"), line(HALO, "/* sends */"));
    let receive = lines
        .iter()
        .find(|line| line.starts_with("rank 0  MPI_Irecv("))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(receive.ends_with(&format!("at halo.c:{receives}")), "{said}");
    let send = lines
        .iter()
        .find(|line| line.starts_with("rank 1  MPI_Isend("))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(send.ends_with(&format!("at halo.c:{sends}")), "{said}");
    assert!(
        send.contains("96 B") && receive.contains("80 B") && receive.contains("\"halo_x\""),
        "{said}"
    );
}

#[test]
fn without_debug_information_the_function_is_named() {
    let said = last_words("plain", HALO, &["-g0"]);
    assert!(said.contains("at halo: main"), "{said}");
    let said = last_words("stripped", HALO, &["-g0", "-s"]);
    assert!(said.contains("at halo+0x"), "{said}");
}

const PLACE: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <string.h>
    int main(int argc, char **argv) {
        int *value, has, rank, size, len = 64;
        char text[65] = "";
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &has);
        int appnum = has ? *value : -1;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &has);
        size = has ? *value : -1;
        MPI_Info_get_string(MPI_INFO_ENV, "maxprocs", &len, text, &has);
        printf("rank %d: program %d, universe %d, maxprocs %s, argv", rank, appnum, size, text);
        len = 64;
        MPI_Info_get_string(MPI_INFO_ENV, "argv", &len, text, &has);
        printf(" %s\n", has ? text : "-");
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn a_rank_knows_which_program_of_the_job_it_runs() {
    let place = Place::new("place");
    let program = place.program("place", PLACE);
    let mut command = std::process::Command::new("timeout");
    command
        .arg("60")
        .arg(garonne())
        .args(["run", "-n", "1"])
        .arg(&program)
        .args(["a", ":", "-n", "2"])
        .arg(&program)
        .arg("b");
    let said = stdout(&command.output().expect("timeout runs"));
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    let expected = [
        "rank 0: program 0, universe 3, maxprocs 1, argv a",
        "rank 1: program 1, universe 3, maxprocs 2, argv b",
        "rank 2: program 1, universe 3, maxprocs 2, argv b",
    ];
    assert_eq!(lines, expected);
    let alone = stdout(&run(&program, &[]));
    assert_eq!(
        alone.trim_end(),
        "rank 0: program -1, universe -1, maxprocs 1, argv -"
    );
}

/// Sends 300 small messages and a large one, then enters different collectives on both ranks.
const DIFFERENT: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    int main(int argc, char **argv) {
        int rank, large = 1 << 20;
        char *data = calloc(1, large);
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int i = 0; i < 300; i++) {
            if (rank == 0) MPI_Send(data, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            else MPI_Recv(data, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (rank == 0) MPI_Send(data, large, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        else MPI_Recv(data, large, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 0) MPI_Bcast(data, 4, MPI_CHAR, 1, MPI_COMM_WORLD); /* broadcasts */
        else MPI_Barrier(MPI_COMM_WORLD); /* meets */
        MPI_Finalize();
        return 0;
    }
"#;

/// A job that runs until this is dropped.
struct Job(std::process::Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Job {
    fn ask(&self, words: &[&str]) -> String {
        let id = self.0.id().to_string();
        let output = std::process::Command::new(garonne()).args(words).arg(id).output();
        String::from_utf8_lossy(&output.expect("the command runs").stdout).into_owned()
    }
}

#[test]
fn who_names_the_ranks_that_called_different_collectives_and_top_what_was_sent() {
    let place = Place::new("different");
    let program = place.program_with("different", DIFFERENT, &["-g"]);
    let job = std::process::Command::new(garonne())
        .args(["run", "-n", "2"])
        .arg(program)
        .spawn();
    let job = Job(job.expect("the job starts"));
    let mut said = String::new();
    let tries = (0..300).find(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        said = job.ask(&["who"]);
        said.contains("mismatch")
    });
    assert!(tries.is_some(), "{said}");
    let number = "rank 0 is in MPI_Bcast #0, rank 1 in MPI_Barrier #0";
    let other = "rank 1 is in MPI_Barrier #0, rank 0 in MPI_Bcast #0";
    assert!(said.contains(number) || said.contains(other), "{said}");
    for mark in ["/* broadcasts */", "/* meets */"] {
        assert!(
            said.contains(&format!("at different.c:{}", line(DIFFERENT, mark))),
            "{said}"
        );
    }
    let top = job.ask(&["top", "--once", "--every", "0.1", "--json"]);
    let sent = |what: &str| {
        let key = format!("\"{what}\":");
        let numbers = top.split(&key).skip(1);
        let numbers = numbers.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        numbers
            .map(|digits| digits.parse::<u64>().unwrap())
            .max()
            .unwrap()
    };
    assert!((301..320).contains(&sent("sent_messages")), "{top}");
    assert!(
        (300 * 8 + (1 << 20)..300 * 8 + (1 << 20) + 1000).contains(&sent("sent_bytes")),
        "{top}"
    );
}
