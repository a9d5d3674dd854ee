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
    1 + text.lines().position(|line| line.contains(mark)).expect("the mark is there")
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
    let receive = lines.iter().find(|line| line.starts_with("rank 0  MPI_Irecv(")).unwrap_or_else(|| panic!("{said}"));
    assert!(receive.ends_with(&format!("at halo.c:{receives}")), "{said}");
    let send = lines.iter().find(|line| line.starts_with("rank 1  MPI_Isend(")).unwrap_or_else(|| panic!("{said}"));
    assert!(send.ends_with(&format!("at halo.c:{sends}")), "{said}");
    assert!(send.contains("96 B") && receive.contains("80 B") && receive.contains("\"halo_x\""), "{said}");
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
    command.arg("60").arg(garonne()).args(["run", "-n", "1"]).arg(&program).args(["a", ":", "-n", "2"]).arg(&program).arg("b");
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
    assert_eq!(alone.trim_end(), "rank 0: program -1, universe -1, maxprocs 1, argv -");
}
