//! Error messages of whole jobs: both sides of the contract, with calls and lines of the program.

mod support;

use support::{Place, garonne, launch, line, run, stdout};

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
    assert!(
        receive.ends_with(&format!("at halo.c:{receives}")),
        "{said}"
    );
    let send = lines
        .iter()
        .find(|line| line.starts_with("rank 1  MPI_Isend("))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(send.ends_with(&format!("at halo.c:{sends}")), "{said}");
    assert!(
        send.contains("(12 MPI_DOUBLE = 96 B,")
            && receive.contains("(10 MPI_DOUBLE = 80 B,")
            && receive.contains("\"halo_x\""),
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

/// Rank 1 sends many messages that go the shortest way, of which one is too long and one sent in
/// another place.
const SERIES: &str = r#"
    #include <mpi.h>
    int main(int argc, char **argv) {
        double data = 1;
        int rank;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int i = 0; i < 700; i++) {
            if (rank == 1) MPI_Send(&data, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD);
            else MPI_Recv(&data, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (rank == 1) {
            MPI_Request request;
            MPI_Isend(&data, 1, MPI_DOUBLE, 0, 8, MPI_COMM_WORLD, &request); /* sends */
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int i = 0; i < 300; i++) MPI_Send(&data, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(&data, 1, MPI_FLOAT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD); /* a sender that has ended tells nothing */
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn one_of_many_small_messages_is_told_with_its_call_and_line() {
    let said = last_words("series", SERIES, &["-g"]);
    let sends = line(SERIES, "/* sends */");
    let sender = format!("rank 1  MPI_Isend(1 MPI_DOUBLE = 8 B, tag 8)   at halo.c:{sends}\n");
    assert!(said.contains(&sender), "{said}");
    assert_eq!(said.matches("rank 1").count(), 1, "{said}");
}

/// After the message that is too long come thousands of communicators that are freed again.
const FREED: &str = r#"
    #include <mpi.h>
    int main(int argc, char **argv) {
        double data = 1;
        int rank;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int i = 0; i < 3000; i++) {
            if (rank == 1) MPI_Send(&data, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD);
            else MPI_Recv(&data, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (rank == 1) MPI_Send(&data, 1, MPI_DOUBLE, 0, 8, MPI_COMM_WORLD); /* sends */
        for (int i = 0; i < 5000; i++) {
            MPI_Comm one;
            MPI_Comm_dup(MPI_COMM_WORLD, &one);
            if (rank == 1) MPI_Send(&data, 1, MPI_DOUBLE, 0, 7, one);
            else MPI_Recv(&data, 1, MPI_DOUBLE, 1, 7, one, MPI_STATUS_IGNORE);
            MPI_Comm_free(&one);
        }
        if (rank == 0) MPI_Recv(&data, 1, MPI_FLOAT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn communicators_that_are_freed_are_not_in_the_way_of_a_line_of_another() {
    let said = last_words("freed", FREED, &["-g"]);
    let sends = line(FREED, "/* sends */");
    let sender = format!("rank 1  MPI_Send(1 MPI_DOUBLE = 8 B, tag 8)   at halo.c:{sends}\n");
    assert!(said.contains(&sender), "{said}");
}

/// Rank 1 sends a struct where rank 0 expects a few integers.
const STRUCT: &str = r#"
    #include <mpi.h>
    int main(int argc, char **argv) {
        int data[16] = {0}, rank;
        MPI_Datatype pair;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Type_contiguous(2, MPI_INT, &pair);
        MPI_Type_commit(&pair);
        if (rank == 0) MPI_Recv(data, 3, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Ssend(data, 2, pair, 0, 7, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD); /* a sender that has ended tells nothing */
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn datatypes_and_counts_of_both_sides_are_named() {
    let said = last_words("types", STRUCT, &["-g"]);
    for part in [
        "error[G0107]: message truncated\n",
        "rank 0  MPI_Recv(3 MPI_INT = 12 B, source 1, tag 7, comm \"MPI_COMM_WORLD\")",
        "rank 1  MPI_Ssend(16 B of a derived datatype, tag 7)",
        "help: the receive is smaller than the message",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    assert_eq!(said.matches("MPI_Recv").count(), 1, "{said}");
}

/// Rank 1 unmaps what it sends.
const UNMAPPED: &str = r#"
    #define _GNU_SOURCE
    #include <mpi.h>
    #include <sys/mman.h>
    int main(int argc, char **argv) {
        int rank, size = 8 << 20;
        MPI_Request request;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        char *data = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (rank == 1) {
            MPI_Isend(data, size / 4, MPI_INT, 0, 7, MPI_COMM_WORLD, &request); /* sends */
            munmap(data, size);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(data, size / 4, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* receives */
        else MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn a_send_buffer_that_was_unmapped_is_blamed_on_its_sender() {
    let said = last_words("unmapped", UNMAPPED, &["-g"]);
    // By packets it is the sender itself that touches the memory, and its end by SIGSEGV that is
    // told.
    if !said.contains("error[G0206]") {
        let (sends, receives) = (
            line(UNMAPPED, "/* sends */"),
            line(UNMAPPED, "/* receives */"),
        );
        for part in [
            "error[G0113]: the sender's buffer is not there any more\n",
            &format!("rank 1  MPI_Isend(2097152 MPI_INT = 8388608 B, tag 7)   at halo.c:{sends}\n"),
            &format!("rank 0  MPI_Recv   at halo.c:{receives}"),
        ] {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
    }
}

/// Rank 1 receives into memory that is not there, by a first call or by one of which all is known,
/// small or large.
const NOWHERE: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    static char here[1 << 16];
    int main(int argc, char **argv) {
        int rank, warm = atoi(argv[argc - 2]), size = atoi(argv[argc - 1]);
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        char *gone = mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < warm; i++) {
            if (rank == 0) MPI_Send(here, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            else MPI_Recv(here, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) MPI_Send(here, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        else MPI_Recv(gone, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* nowhere */
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn a_rank_that_receives_into_memory_that_is_not_there_is_told_of_with_its_call() {
    let place = Place::new("nowhere");
    let program = place.program_with("nowhere", NOWHERE, &["-g"]);
    let at = format!("at nowhere.c:{}", line(NOWHERE, "/* nowhere */"));
    // On its shortest way a call does not say its name.
    let calls = ["MPI_Recv", "the send or receive"].map(|call| format!("in or after {call} {at}"));
    for (warm, size) in [(0, 8), (60, 8), (60, 3000), (0, 20000)] {
        let script = format!("{} {warm} {size}; exit $?", program.display());
        let mut command = std::process::Command::new("timeout");
        command
            .arg("60")
            .arg(garonne())
            .args(["run", "-n", "2", "sh", "-c", &script]);
        let output = command.output().expect("timeout runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().find(|line| line.starts_with("error[G0206]"));
        let error = error.unwrap_or_else(|| panic!("{said}"));
        assert!(
            error.contains("was killed by SIGSEGV")
                && calls.iter().any(|call| error.ends_with(call))
                && (warm > 0 || error.contains("MPI_Recv")),
            "{said}"
        );
        // The shell that it was started by is not what failed.
        let named = format!("rank 1 ({}, process", program.display());
        assert!(error.contains(&named), "{said}");
    }
}

/// A thread of rank 1 receives into memory that is not there, while the main thread's latest call
/// is another.
const NOWHERE_IN_A_THREAD: &str = r#"
    #include <mpi.h>
    #include <pthread.h>
    #include <sys/mman.h>
    static void *receives(void *gone) {
        MPI_Recv(gone, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* nowhere */
        return 0;
    }
    static void *comes_and_goes(void *nothing) {
        int flag;
        MPI_Iprobe(0, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE); /* gone */
        return nothing;
    }
    int main(int argc, char **argv) {
        int rank, provided;
        char here[8] = {0};
        pthread_t thread;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        pthread_create(&thread, 0, comes_and_goes, 0);
        pthread_join(thread, 0);
        MPI_Barrier(MPI_COMM_WORLD); /* meets */
        if (rank == 0) MPI_Send(here, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        else {
            pthread_create(&thread, 0, receives, mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            pthread_join(thread, 0);
        }
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn of_a_rank_of_several_threads_the_latest_call_of_each_is_told() {
    let said = last_words("threads", NOWHERE_IN_A_THREAD, &["-g", "-pthread"]);
    let error = said.lines().find(|line| line.starts_with("error[G0206]"));
    let error = error.unwrap_or_else(|| panic!("{said}"));
    let at = |mark| format!("at halo.c:{}", line(NOWHERE_IN_A_THREAD, mark));
    let (meets, receives) = (at("/* meets */"), at("/* nowhere */"));
    let calls = format!(
        "in or after one of its threads' latest calls: MPI_Barrier {meets}, or MPI_Recv {receives}"
    );
    assert!(
        error.ends_with(&calls) && !error.contains(&at("/* gone */")),
        "{said}"
    );
}

/// Program with one mistake per value of its first argument.
const MISTAKES: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    int main(int argc, char **argv) {
        int x = 0, which = atoi(argv[argc - 1]);
        MPI_Comm halo;
        MPI_Datatype raw;
        MPI_Init(&argc, &argv);
        MPI_Comm_dup(MPI_COMM_WORLD, &halo);
        MPI_Comm_set_name(halo, "halo_x");
        MPI_Type_contiguous(2, MPI_INT, &raw);
        if (which == 0) MPI_Send(&x, 1, MPI_INT, 9, 0, halo); /* mistake 0 */
        if (which == 1) MPI_Recv(&x, 1, raw, 0, 0, halo, MPI_STATUS_IGNORE); /* mistake 1 */
        if (which == 2) MPI_Bcast(&x, 1, MPI_INT, 5, halo); /* mistake 2 */
        if (which == 3) MPI_Send(&x, 1, MPI_INT, 0, -4, halo); /* mistake 3 */
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn rank_type_root_and_tag_errors_name_call_communicator_and_line() {
    let place = Place::new("mistakes");
    let program = place.program_with("mistakes", MISTAKES, &["-g"]);
    let expected = [
        ("G0102", "MPI_Send", "has no rank 9: it has 1 processes"),
        ("G0105", "MPI_Recv", "not committed"),
        ("G0102", "MPI_Bcast", "5"),
        ("G0103", "MPI_Send", "cannot carry tag -4"),
    ];
    for (which, (code, call, words)) in expected.into_iter().enumerate() {
        let mut command = std::process::Command::new("timeout");
        let output = command
            .arg("60")
            .arg(&program)
            .arg(which.to_string())
            .output();
        let said = String::from_utf8_lossy(&output.expect("timeout runs").stderr).into_owned();
        let at = format!(
            "mistakes.c:{}",
            line(MISTAKES, &format!("/* mistake {which} */"))
        );
        for part in [&format!("error[{code}]"), call, words, &at] {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
        assert!(which == 1 || said.contains("\"halo_x\""), "{said}");
    }
}

/// A daemon's habit: all descriptors but the first three are closed, among them the way to the
/// agent.
const CLOSES: &str = r#"
    #include <mpi.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int x = 0;
        MPI_Init(&argc, &argv);
        for (int descriptor = 3; descriptor < 1000; descriptor++) close(descriptor);
        MPI_Send(&x, 1, MPI_INT, 7, 0, MPI_COMM_WORLD);
        return 0;
    }
"#;

#[test]
fn a_rank_that_closed_the_way_to_its_agent_still_says_its_last_words() {
    let said = last_words("closes", CLOSES, &[]);
    assert!(
        said.contains("error[G0102]") && said.contains("has no rank 7"),
        "{said}"
    );
}

const EARLY: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    #include <string.h>
    int main(int argc, char **argv) {
        int x = 0;
        const char *rank = getenv("GARONNE_RANK");
        if (rank && !strcmp(rank, "1")) return 0;
        MPI_Init(&argc, &argv);
        MPI_Recv(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn a_rank_that_ends_before_init_is_named_to_those_who_wait_for_it() {
    let said = last_words("early", EARLY, &[]);
    assert!(
        said.starts_with("error[G0214]: rank 1 (") && said.contains("rank 0 waits for ever"),
        "{said}"
    );
    let barrier = EARLY.replace(
        "MPI_Recv(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)",
        "(void)x; MPI_Barrier(MPI_COMM_WORLD)",
    );
    let said = last_words("early-barrier", &barrier, &[]);
    assert!(said.starts_with("error[G0214]: rank 1 ("), "{said}");
}

const SESSIONS: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    static MPI_Session session;
    static void begin(void) { MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session); }
    int main(int argc, char **argv) {
        (void)argc;
        begin();
        MPI_Session_finalize(&session);
        if (atoi(argv[1])) begin();
        return 0;
    }
"#;

#[test]
fn an_exit_after_the_last_session_is_fine_and_one_within_a_later_session_is_not() {
    let place = Place::new("sessions");
    let program = place.program("sessions", SESSIONS);
    let run = |again: &str| {
        let mut command = std::process::Command::new("timeout");
        command
            .arg("60")
            .arg(garonne())
            .args(["run", "-n", "2"])
            .arg(&program)
            .arg(again);
        command.output().expect("timeout runs")
    };
    stdout(&run("0"));
    let output = run("1");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("error[G0201]"),
        "{said}"
    );
}

/// A driver that knows the pages given to it: the first is the device's own, the second managed.
const DRIVER: &str = r#"
    static unsigned long known;
    void pages(unsigned long first) { known = first; }
    int cuPointerGetAttribute(void *value, int attribute, unsigned long pointer) {
        unsigned long page = (pointer - known) / 4096;
        if (pointer < known || page > 1 || (attribute == 4 && page == 0)) return 1;
        *(unsigned long *)value = pointer;
        return 0;
    }
"#;

const DEVICE: &str = r#"
    #define _DEFAULT_SOURCE
    #include <dlfcn.h>
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #define CHECK(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
    static int class_of(int code) { int class = -1; MPI_Error_class(code, &class); return class; }
    int main(int argc, char **argv) {
        int x = 1, y = 0, rank;
        MPI_Request request;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        void *driver = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(driver);
        /* A touch of the first page ends the program, as a touch of device memory would. */
        char *memory = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(memory, 4096, PROT_NONE);
        ((void (*)(unsigned long))dlsym(driver, "pages"))((unsigned long)memory);
        if (argc > 2) MPI_Send(memory, 5, MPI_INT, 0, 0, MPI_COMM_WORLD);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        CHECK(class_of(MPI_Send(memory, 1, MPI_INT, rank, 0, MPI_COMM_WORLD)) == MPI_ERR_BUFFER);
        CHECK(class_of(MPI_Irecv(memory + 8, 1000, MPI_INT, rank, 0, MPI_COMM_WORLD, &request)) == MPI_ERR_BUFFER);
        CHECK(class_of(MPI_Allreduce(&x, memory, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD)) == MPI_ERR_BUFFER);
        CHECK(class_of(MPI_Bcast(memory, 1 << 20, MPI_BYTE, 0, MPI_COMM_WORLD)) == MPI_ERR_BUFFER);
        CHECK(class_of(MPI_Reduce_local(&x, memory, 1, MPI_INT, MPI_SUM)) == MPI_ERR_BUFFER);
        CHECK(MPI_Send(memory, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD) == 0);
        CHECK(MPI_Irecv(memory + 4096, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, &request) == 0);
        CHECK(MPI_Send(&x, 1, MPI_INT, rank, 0, MPI_COMM_WORLD) == 0);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && *(int *)(memory + 4096) == 1);
        CHECK(MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == 0 && y > 0);
        MPI_Finalize();
        printf("ok\n");
        return 0;
    }
"#;

#[test]
fn a_device_pointer_gives_an_error_and_no_crash() {
    let place = Place::new("device");
    place.source("driver.c", DRIVER);
    place.compile(
        "cc",
        &[
            "-shared",
            "-fPIC",
            "driver.c",
            "-o",
            "libcuda.so.1",
            "-Wl,-soname,libcuda.so.1",
        ],
    );
    let program = place.program_with("device", DEVICE, &["-g", "-ldl"]);
    let run = |more: &[&str]| {
        let mut command = std::process::Command::new("timeout");
        command.arg("60").arg(garonne()).args(["run", "-n", "2"]);
        command
            .arg(&program)
            .arg(place.path("libcuda.so.1"))
            .args(more);
        command.output().expect("timeout runs")
    };
    assert_eq!(stdout(&run(&[])), "ok\nok\n");
    let output = run(&["fatal"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let at = format!("device.c:{}", line(DEVICE, "argc > 2"));
    for part in [
        "error[G0110]: the buffer at 0x",
        "(count 5)",
        "libcuda.so.1",
        "MPI_Send",
        &at,
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
}
