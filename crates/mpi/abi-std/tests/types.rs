//! `GARONNE_CHECK=types`: messages that are received as another type than they were sent as.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use support::{Place, garonne, stdout};

fn checked(program: &Path, check: &str, words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command
        .arg("60")
        .arg(garonne())
        .args(["run", "-n", "2"])
        .arg(program);
    command
        .args(words)
        .env("GARONNE_CHECK", check)
        .output()
        .expect("timeout runs")
}

/// Rank 0 sends doubles, rank 1 receives integers: the arguments are how, and how many.
const MISTAKEN: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    static double data[1 << 18];
    int main(int argc, char **argv) {
        int rank, how = atoi(argv[argc - 2]), count = atoi(argv[argc - 1]);
        MPI_Request request;
        MPI_Message message;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int i = 0; i < 10; i++) {
            if (rank == 0) MPI_Send(data, count, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD);
            else MPI_Recv(data, count, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (rank == 0) {
            if (how == 2) MPI_Barrier(MPI_COMM_WORLD);
            if (how == 4) MPI_Ssend(data, count, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD); /* sends */
            else MPI_Send(data, count, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD); /* sends */
            if (how == 1) MPI_Barrier(MPI_COMM_WORLD);
        } else if (how == 2) {
            MPI_Irecv(data, count, MPI_INT64_T, 0, 7, MPI_COMM_WORLD, &request); /* receives */
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (how == 3) {
            MPI_Mprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            MPI_Mrecv(data, count, MPI_INT64_T, &message, MPI_STATUS_IGNORE); /* receives */
        } else {
            if (how == 1 && count < 1000) MPI_Barrier(MPI_COMM_WORLD);
            MPI_Recv(data, count, MPI_INT64_T, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receives */
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn a_receive_of_other_elements_than_were_sent_names_both_sides() {
    let place = Place::new("mistaken");
    let program = place.program_with("mistaken", MISTAKEN, &["-g"]);
    let places = |what: &str| -> Vec<String> {
        let lines = MISTAKEN
            .lines()
            .zip(1..)
            .filter(|(text, _)| text.contains(what));
        lines
            .map(|(_, number)| format!("at mistaken.c:{number}"))
            .collect()
    };
    for how in ["0", "1", "2", "3", "4"] {
        for count in ["1", "100", "4000", "100000"] {
            let output = checked(&program, "types", &[how, count]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{how} {count}: {said}");
            let told = |rank: &str, what: &str, marker: &str| {
                said.lines().any(|line| {
                    line.trim().starts_with(rank)
                        && line.contains(what)
                        && places(marker)
                            .iter()
                            .any(|place| line.trim().ends_with(place))
                })
            };
            let class = if how == "3" { "MPI_Mrecv" } else { "" };
            assert!(
                said.contains("error[G0115]") && said.contains(class),
                "{how} {count}: {said}"
            );
            assert!(
                told("rank 1", "MPI_INT64_T", "/* receives */"),
                "{how} {count}: {said}"
            );
            assert!(
                told("rank 0", "MPI_DOUBLE", "/* sends */"),
                "{how} {count}: {said}"
            );
        }
    }
    // Nobody asked: the bytes move.
    assert!(checked(&program, "", &["0", "100"]).status.success());
}

/// Program: matching types that the standard allows, and mismatches that are the same to C.
const RIGHT: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stddef.h>
    struct item { int id; double value; };
    static struct item items[64];
    static double data[128];
    static void pass(int rank, int n, MPI_Datatype sent, int room, MPI_Datatype wanted) {
        if (rank == 0) MPI_Send(items, n, sent, 1, 3, MPI_COMM_WORLD);
        else MPI_Recv(data, room, wanted, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    int main(int argc, char **argv) {
        int rank, lengths[2] = {1, 1};
        MPI_Aint at[2] = {offsetof(struct item, id), offsetof(struct item, value)};
        MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE}, bare, item, pair, vector;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Type_create_struct(2, lengths, at, parts, &bare);
        MPI_Type_create_resized(bare, 0, sizeof(struct item), &item);
        MPI_Type_contiguous(2, item, &pair);
        MPI_Type_vector(4, 2, 5, MPI_DOUBLE, &vector);
        MPI_Type_commit(&item);
        MPI_Type_commit(&pair);
        MPI_Type_commit(&vector);
        pass(rank, 10, item, 5, pair);
        pass(rank, 3, item, 20, item);
        pass(rank, 1, vector, 8, MPI_DOUBLE);
        pass(rank, 8, MPI_DOUBLE, 1, vector);
        pass(rank, 4, MPI_LONG, 4, MPI_INT64_T);
        pass(rank, 4, MPI_DOUBLE, 32, MPI_BYTE);
        pass(rank, 2, MPI_2INT, 4, MPI_INT);
        pass(rank, 0, MPI_INT, 4, MPI_DOUBLE);
        MPI_Sendrecv(items, 1, item, rank, 0, data, 1, item, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, data, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) puts("right");
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn equal_sequences_agree_however_their_types_were_made() {
    let place = Place::new("right");
    let program = place.program("right", RIGHT);
    assert_eq!(stdout(&checked(&program, "types", &[])), "right\n");
}

#[test]
fn a_check_that_does_not_exist_is_named() {
    let place = Place::new("typo");
    let program = place.program("typo", RIGHT);
    let output = checked(&program, "type", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("GARONNE_CHECK=\"type\"; there are: types"),
        "{said}"
    );
}
