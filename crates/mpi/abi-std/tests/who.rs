//! Output of `garonne who` for real jobs that hang: a cycle, a missing rank, a rank that computes,
//! a mismatched call.

mod support;

use std::path::Path;

use support::{Job, Place, garonne, line};

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
        MPI_Comm both; /* on other communicators they are compared and get an error */
        MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 5, &both);
        if (rank == 0) MPI_Bcast(data, 4, MPI_CHAR, 0, both); /* broadcasts */
        else MPI_Barrier(both); /* meets */
        MPI_Finalize();
        return 0;
    }
"#;

impl Job {
    fn start(ranks: u32, program: &Path, argument: &str) -> Self {
        let mut command = std::process::Command::new(garonne());
        command
            .args(["run", "--timeout", "120", "-n", &ranks.to_string()])
            .arg(program)
            .arg(argument);
        Self(command.spawn().expect("the job starts"))
    }

    /// Runs `garonne who` until its output contains all of `parts`, and returns the output.
    fn until(&self, parts: &[&str]) -> String {
        let mut said = String::new();
        let found = (0..300).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            said = self.ask(&["who"]);
            parts.iter().all(|part| said.contains(part))
        });
        assert!(found, "{parts:?} in {said}");
        said
    }

    fn ask(&self, words: &[&str]) -> String {
        self.ask_with_code(words).1
    }

    /// Exit code and standard output.
    fn ask_with_code(&self, words: &[&str]) -> (Option<i32>, String) {
        let id = self.0.id().to_string();
        let output = std::process::Command::new(garonne())
            .args(words)
            .arg(id)
            .output();
        let output = output.expect("the command runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    /// The exit code of `who`, once it says all of `parts`.
    fn code_of(&self, parts: &[&str]) -> (Option<i32>, String) {
        self.until(parts);
        self.ask_with_code(&["who"])
    }
}

#[test]
fn who_names_the_ranks_that_called_different_collectives_and_top_what_was_sent() {
    let place = Place::new("different");
    let program = place.program_with("different", DIFFERENT, &["-g"]);
    let job = Job::start(2, &program, "");
    let said = job.until(&["mismatch"]);
    for part in [
        "rank 0 (1 of 2) is in MPI_Bcast #1",
        "rank 1 (1 of 2) is in MPI_Barrier #1",
    ] {
        assert!(said.contains(part), "{said}");
    }
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
        let numbers = numbers.map(|rest| {
            rest.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        });
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

/// Program with one way to hang per value of its first argument.
const HANGS: &str = r#"
    #include <mpi.h>
    #include <signal.h>
    #include <stdlib.h>
    int main(int argc, char **argv) {
        int rank, size, x = 0, y = 0, which = atoi(argv[1]);
        MPI_Comm halo, part;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        MPI_Comm_dup(MPI_COMM_WORLD, &halo);
        MPI_Comm_set_name(halo, "halo_x");
        MPI_Comm_split(MPI_COMM_WORLD, rank == 2, 0, &part);
        for (int i = 0; i < 3; i++) MPI_Barrier(MPI_COMM_WORLD);
        switch (which) {
        case 0: /* a ring */
            MPI_Recv(&x, 1, MPI_INT, (rank + 1) % size, 7, halo, MPI_STATUS_IGNORE); /* ring */
            break;
        case 1: /* one rank in a barrier less */
            if (rank == 2) MPI_Recv(&x, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* lacks */
            MPI_Barrier(MPI_COMM_WORLD);
            break;
        case 2: /* one computes */
            if (rank == 1) for (volatile long i = 0;; i++);
            MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            break;
        case 3: /* one is stopped */
            if (rank == 1) raise(SIGSTOP);
            MPI_Barrier(MPI_COMM_WORLD);
            break;
        case 4: /* one has finished */
            if (rank == 1) break;
            MPI_Recv(&x, 1, MPI_INT, 1, 3, halo, MPI_STATUS_IGNORE);
            break;
        case 5: /* sends head to head, and who waits for one of them */
            if (rank < 2) MPI_Ssend(&x, 1, MPI_INT, 1 - rank, 5, halo); /* head */
            else MPI_Probe(0, 5, halo, MPI_STATUS_IGNORE);
            break;
        case 6: { /* everybody waits for anybody */
            MPI_Request requests[2];
            if (rank == 0) MPI_Recv(&x, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, halo, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, halo, MPI_STATUS_IGNORE);
            MPI_Irecv(&x, 1, MPI_INT, 0, 1, halo, &requests[0]);
            MPI_Irecv(&y, 1, MPI_INT, 1, 1, halo, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            break;
        }
        case 7: /* a communicator of ranks 0, 1 and 3 */
            if (rank == 3) MPI_Recv(&x, 1, MPI_INT, 1, 2, part, MPI_STATUS_IGNORE);
            else if (rank != 2) for (int i = 0; i < 9; i++) MPI_Barrier(part);
            break;
        case 8: /* waits for requests, one of which the rank that computes could end */
            if (rank == 1) for (volatile long i = 0;; i++);
            else {
                MPI_Request requests[2];
                MPI_Irecv(&x, 1, MPI_INT, 1, 1, halo, &requests[0]);
                MPI_Irecv(&y, 1, MPI_INT, 2 - rank, 1, halo, &requests[1]);
                MPI_Waitany(2, requests, &x, MPI_STATUS_IGNORE);
            }
            break;
        case 9: /* a rank that makes no communicator, whose message has another tag */
            if (rank == 2) {
                MPI_Send(&x, 1, MPI_INT, 2, 41, MPI_COMM_WORLD); /* sent */
                MPI_Send(&x, 1, MPI_INT, 2, 42, halo);
                MPI_Recv(&x, 1, MPI_INT, 2, 42, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &part); /* makes */
        }
        MPI_Finalize();
        return 0;
    }
"#;

fn hangs(which: u32, ranks: u32, parts: &[&str]) -> String {
    let place = Place::new(&format!("hang{which}"));
    let program = place.program_with("hangs", HANGS, &["-g"]);
    Job::start(ranks, &program, &which.to_string()).until(parts)
}

#[test]
fn a_ring_of_receives_is_a_deadlock_with_its_ranks_calls_and_lines() {
    let said = hangs(0, 3, &["verdict: deadlock"]);
    let at = line(HANGS, "/* ring */");
    for rank in 0..3 {
        let next = (rank + 1) % 3;
        let call = format!(
            "\n  rank {rank}: MPI_Recv: rank {next}, tag 7, comm \"halo_x\"   at hangs.c:{at}, for "
        );
        assert!(said.contains(&call), "{call} in {said}");
    }
}

#[test]
fn a_rank_that_lacks_in_a_barrier_is_on_the_cycle_with_the_call_it_is_in() {
    let at = line(HANGS, "/* lacks */");
    let lacks = format!("  rank 2: MPI_Recv: rank 0, tag 9, MPI_COMM_WORLD   at hangs.c:{at}");
    let said = hangs(
        1,
        3,
        &[
            "verdict: deadlock",
            "rank 0: MPI_Barrier: collective ",
            &lacks,
        ],
    );
    assert!(
        said.contains("another rank can never go on either"),
        "{said}"
    );
}

#[test]
fn a_rank_that_computes_or_is_stopped_is_named_to_those_who_wait_for_it() {
    let said = hangs(
        2,
        3,
        &["verdict: 2 ranks wait for rank 1, which computes outside MPI"],
    );
    assert!(!said.contains("deadlock"), "{said}");
    hangs(
        3,
        3,
        &["verdict: 2 ranks wait for rank 1, which is stopped (kill -CONT "],
    );
    let said = hangs(8, 3, &["for rank 1, which computes outside MPI"]);
    assert!(!said.contains("deadlock"), "{said}");
}

#[test]
fn the_exit_code_says_what_was_found_and_the_last_line_names_its_story() {
    let place = Place::new("codes");
    let program = place.program_with("hangs", HANGS, &["-g"]);
    for (which, part, code, story) in [
        (0, "verdict: deadlock", 10, Some("G0307")),
        (2, "computes outside MPI", 0, None),
        (3, "is stopped", 13, Some("G0309")),
        (4, "can never go on", 12, Some("G0308")),
    ] {
        let (exit, said) = Job::start(3, &program, &which.to_string()).code_of(&[part]);
        assert_eq!(exit, Some(code), "{said}");
        let hint = story.map(|story| format!("see: garonne explain {story}"));
        let last = said.lines().last().unwrap_or_default();
        assert!(
            hint.as_deref().is_none_or(|hint| hint == last),
            "{hint:?} in {said}"
        );
        assert_eq!(said.contains("garonne explain"), story.is_some(), "{said}");
    }
    let different = place.program_with("different", DIFFERENT, &["-g"]);
    let (exit, said) = Job::start(2, &different, "").code_of(&["mismatch"]);
    assert!(
        exit == Some(11) && said.contains("garonne explain G0310"),
        "{exit:?}: {said}"
    );
}

#[test]
fn a_watch_ends_at_a_verdict_with_its_code() {
    let place = Place::new("watch");
    let program = place.program_with("hangs", HANGS, &["-g"]);
    let job = Job::start(3, &program, "0");
    // As soon as there is such a job.
    job.until(&["job "]);
    let (code, said) = job.ask_with_code(&["who", "--watch=0.1"]);
    assert_eq!(code, Some(10), "{said}");
    assert_eq!(said.matches("verdict: deadlock").count(), 1, "{said}");
    assert!(
        said.trim_end().ends_with("see: garonne explain G0307"),
        "{said}"
    );
}

#[test]
fn who_waits_for_a_rank_that_has_finished_is_told() {
    hangs(
        4,
        2,
        &[
            "verdict: rank 0 can never go on, since rank 1 has called MPI_Finalize",
            "comm \"halo_x\"",
        ],
    );
}

#[test]
fn deadlocks_of_sends_probes_wildcards_and_small_communicators_are_found() {
    let said = hangs(
        5,
        3,
        &[
            "verdict: deadlock",
            "rank 0: MPI_Ssend: rank 1, tag 5",
            "another rank can never",
        ],
    );
    assert!(
        said.contains("MPI_Probe: rank 0, tag 5, comm \"halo_x\""),
        "{said}"
    );
    hangs(
        6,
        3,
        &[
            "verdict: deadlock",
            "MPI_Recv: any rank, any tag",
            "MPI_Probe: any rank, any tag",
        ],
    );
    let said = hangs(
        7,
        4,
        &["verdict: deadlock", "of an unnamed communicator of 3 ranks"],
    );
    assert!(said.contains("rank 3: MPI_Recv: rank 1, tag 2"), "{said}");
}

#[test]
fn who_is_missing_in_a_constructor_and_what_lies_beside_a_receive_is_told() {
    let (made, sent) = (line(HANGS, "/* makes */"), line(HANGS, "/* sent */"));
    let said = hangs(9, 4, &["verdict: deadlock"]);
    for part in [
        "3 of 4 ranks have entered MPI_Comm_split #6 of MPI_COMM_WORLD; missing: rank 2".to_owned(),
        format!("MPI_Comm_split: collective 6 of MPI_COMM_WORLD   at hangs.c:{made}"),
        format!(
            "rank 2: a message of rank 2 with tag 41 (4 B, sent at hangs.c:{sent}) lies here; this receive wants tag 42"
        ),
        "rank 2: a message of rank 2 with tag 42 (4 B".to_owned(),
        "it is on comm \"halo_x\", this receive on MPI_COMM_WORLD".to_owned(),
    ] {
        assert!(said.contains(&part), "{part} in {said}");
    }
    let said = hangs(1, 3, &["missing: rank 2", "deadlock"]);
    assert!(
        said.contains(
            "2 of 3 ranks have entered MPI_Barrier #6 of MPI_COMM_WORLD; missing: rank 2"
        ),
        "{said}"
    );
}

/// Two threads of a rank that wait for different communicators, the second of them after the rank
/// has told that it waits.
const THREADS: &str = r#"
    #include <mpi.h>
    #include <pthread.h>
    #include <unistd.h>
    static MPI_Comm one, two;
    static int rank;
    static void *receives(void *p) {
        int x;
        MPI_Recv(&x, 1, MPI_INT, 1 - rank, 5, one, MPI_STATUS_IGNORE); /* one */
        return p;
    }
    static void *meets(void *p) {
        MPI_Barrier(two); /* two */
        return p;
    }
    int main(int argc, char **argv) {
        int provided;
        pthread_t threads[2];
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_dup(MPI_COMM_WORLD, &one);
        MPI_Comm_set_name(one, "one");
        MPI_Comm_dup(MPI_COMM_WORLD, &two);
        MPI_Comm_set_name(two, "two");
        pthread_create(&threads[0], NULL, receives, NULL);
        usleep(200000);
        if (rank == 0) pthread_create(&threads[1], NULL, meets, NULL);
        pthread_join(threads[0], NULL);
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn every_thread_of_a_rank_has_its_wait() {
    let place = Place::new("threads");
    let program = place.program_with("threads", THREADS, &["-g", "-pthread"]);
    let (one, two) = (line(THREADS, "/* one */"), line(THREADS, "/* two */"));
    Job::start(2, &program, "").until(&[
        &format!("MPI_Recv: rank 1, tag 5, comm \"one\"   at threads.c:{one}"),
        &format!("MPI_Barrier: collective 1 of comm \"two\"   at threads.c:{two}"),
        &format!("MPI_Recv: rank 0, tag 5, comm \"one\"   at threads.c:{one}, for "),
    ]);
}

/// Ranks that ask again and again, by the first argument.
const POLLS: &str = r#"
    #include <mpi.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int rank, x = 0, done = 0, which = atoi(argv[1]);
        MPI_Request requests[2];
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Barrier(MPI_COMM_WORLD);
        switch (which) {
        case 0: /* for one that computes, while another waits */
            if (rank == 0) while (!done) {
                MPI_Iprobe(1, 3, MPI_COMM_WORLD, &done, MPI_STATUS_IGNORE); /* probes */
                usleep(1000);
            }
            else if (rank == 1) for (volatile long i = 0;; i++);
            else MPI_Recv(&x, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        case 1: /* for a while, and then it computes */
            if (rank == 0) {
                MPI_Irecv(&x, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &requests[0]);
                while (!done) {
                    MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
                    usleep(1000);
                }
                for (volatile long i = 0;; i++);
            }
            if (rank == 1) {
                usleep(300000);
                MPI_Send(&x, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
            }
            MPI_Recv(&x, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        case 2: /* by several calls, for a collective that one rank does not enter */
            if (rank == 2) MPI_Recv(&x, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(&x, 1, MPI_INT, 2, 5, MPI_COMM_WORLD, &requests[1]);
            for (int both = 0; !both; usleep(1000)) {
                MPI_Test(&requests[1], &done, MPI_STATUS_IGNORE);
                MPI_Testall(2, requests, &both, MPI_STATUSES_IGNORE);
            }
            break;
        case 3: /* rarely */
            if (rank == 0) for (; !done; usleep(150000))
                MPI_Iprobe(1, 3, MPI_COMM_WORLD, &done, MPI_STATUS_IGNORE);
            MPI_Recv(&x, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Finalize();
        return 0;
    }
"#;

fn polls(which: u32, parts: &[&str]) -> (Option<i32>, String) {
    let place = Place::new(&format!("polls{which}"));
    let program = place.program_with("polls", POLLS, &["-g"]);
    Job::start(3, &program, &which.to_string()).code_of(parts)
}

#[test]
fn who_polls_for_a_rank_that_computes_is_shown_to_wait_and_not_to_hang() {
    let at = line(POLLS, "/* probes */");
    let asks = format!(
        "polls for a message of rank 1 with tag 3 in MPI_COMM_WORLD (MPI_Iprobe at polls.c:{at}, "
    );
    let (exit, said) = polls(
        0,
        &[&asks, "verdict: 1 rank waits for rank 0, which polls for"],
    );
    assert_eq!(exit, Some(0), "{said}");
    assert!(
        !said.contains("deadlock") && !said.contains("nothing but poll"),
        "{said}"
    );
}

#[test]
fn who_has_got_what_it_polled_for_is_not_shown_to_poll() {
    let (exit, said) = polls(
        1,
        &["verdict: 2 ranks wait for rank 0, which computes outside MPI"],
    );
    assert_eq!(exit, Some(0), "{said}");
    assert!(!said.contains("polls for"), "{said}");
}

#[test]
fn who_polls_for_a_rank_that_waits_is_said_to_hang_if_it_does_nothing_else() {
    let (exit, said) = polls(
        2,
        &[
            "2 of 3 ranks have entered nonblocking MPI_Barrier #1 of MPI_COMM_WORLD; missing: rank 2",
            "does nothing but poll, each of these ranks waits for the next",
            "MPI_Testall at polls.c",
        ],
    );
    assert!(
        exit == Some(0) && !said.contains("verdict: deadlock"),
        "{exit:?} {said}"
    );
    polls(
        3,
        &[
            "if rank 0 does nothing but poll, each of these",
            "MPI_Iprobe at polls.c",
        ],
    );
}
