//! Jobs on machines that give little: few descriptors, no locked memory, a tiny /dev/shm, a user
//! namespace, separate PID namespaces.

mod support;

use std::process::Command;

use support::{Said, fake_rank, garonne, said};

/// Runs a shell script in which `$G` is `garonne` and `$R` the rank without MPI, inside `wrapper`.
fn script(wrapper: &[&str], script: &str) -> Said {
    let mut command = Command::new(wrapper.first().copied().unwrap_or("sh"));
    if !wrapper.is_empty() {
        command.args(&wrapper[1..]).arg("sh");
    }
    command
        .args(["-c", script])
        .env("G", garonne())
        .env("R", fake_rank());
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    said(&mut command)
}

/// Returns whether the system lets us do what a test needs; says so if not.
fn permitted(wrapper: &[&str], probe: &str) -> bool {
    let allowed = script(wrapper, probe).code == 0;
    if !allowed {
        eprintln!(
            "skipped: `{} {probe}` is not permitted here",
            wrapper.join(" ")
        );
    }
    allowed
}

const NEW_USER: [&str; 2] = ["unshare", "-Ur"];

#[test]
fn sixty_four_ranks_live_with_256_descriptors() {
    let said = script(
        &[],
        "ulimit -n 256 && $G run -n 64 $R ring fence finalize | wc -l",
    );
    assert_eq!(
        (said.code, said.out.trim(), said.err.as_str()),
        (0, "64", "")
    );
}

#[test]
fn sixty_four_ranks_behind_shells_live_with_256_descriptors() {
    let said = script(
        &[],
        "ulimit -n 256 && $G run -n 64 sh -c '$R ring fence finalize; true' | wc -l",
    );
    assert_eq!(
        (said.code, said.out.trim(), said.err.as_str()),
        (0, "64", "")
    );
}

#[test]
fn a_death_behind_a_wrapper_is_judged_by_its_word_where_no_descriptor_tells() {
    let said = script(
        &[],
        "ulimit -n 90 && $G run -n 16 sh -c '$R fence only 1 crash only 0 mourn 1 only 0 exit 58 forever; rc=$?; sleep 0.2; exit $rc'",
    );
    assert_eq!(said.code, 128 + libc::SIGABRT, "{said:?}");
    assert!(said.err.contains("error[G0206]: rank 1 "), "{}", said.err);
}

#[test]
fn too_few_descriptors_are_named() {
    let said = script(&[], "ulimit -n 20 && $G run -n 16 $R finalize");
    assert_ne!(said.code, 0);
    assert!(
        said.err.contains("error[G0302]") && said.err.contains("may have 20"),
        "{}",
        said.err
    );
}

#[test]
fn no_locked_memory_is_needed() {
    let said = script(&[], "ulimit -l 0 && $G run -n 4 $R ring finalize | wc -l");
    assert_eq!((said.code, said.out.trim()), (0, "4"));
}

#[test]
fn a_tiny_dev_shm_is_enough() {
    let wrapper = ["unshare", "-Urm"];
    let mount = "mount -t tmpfs -o size=4k tmpfs /dev/shm";
    if !permitted(&wrapper, mount) {
        return;
    }
    let said = script(
        &wrapper,
        &format!("{mount} && $G run -n 4 $R ring finalize | wc -l && ls /dev/shm | wc -l"),
    );
    assert_eq!((said.code, said.out.as_str()), (0, "4\n0\n"));
}

/// In a network namespace of its own no other job is seen.
#[test]
fn the_map_shows_the_only_job_without_being_told_which() {
    let wrapper = ["unshare", "-Urn"];
    if !permitted(&wrapper, "true") {
        return;
    }
    let said = script(
        &wrapper,
        "d=$(mktemp -d) && mkfifo $d/up || exit 9
         $G run -n 2 --timeout 20 --bind-to none $R fence only 0 say up forever 2>$d/up &
         read up <$d/up && $G map; s=$?; kill $!; wait; rm -r $d; exit $s",
    );
    assert!(
        said.code == 0 && said.out.contains("ranks 0-1: not bound"),
        "{said:?}"
    );
}

#[test]
fn an_ordinary_user_in_a_user_namespace_runs_jobs() {
    if !permitted(&NEW_USER, "true") {
        return;
    }
    let said = script(&NEW_USER, "$G run -n 4 $R ring finalize | wc -l");
    assert_eq!(
        (said.code, said.out.trim(), said.err.as_str()),
        (0, "4", "")
    );
}

#[test]
fn ranks_in_user_namespaces_of_their_own_join_the_job() {
    if !permitted(&NEW_USER, "true") {
        return;
    }
    let said = script(&[], "$G run -n 2 unshare -Ur $R ring finalize | wc -l");
    assert_eq!(
        (said.code, said.out.trim(), said.err.as_str()),
        (0, "2", "")
    );
}

#[test]
fn a_rank_of_another_user_is_told_why_it_cannot_join() {
    let other = "setpriv --reuid 65534 --clear-groups";
    // The rank lies where another user may not look; so that one gets a copy.
    let copy = "d=$(mktemp -d) && chmod 755 $d && cp $R $d/rank && ";
    if !permitted(
        &[],
        &format!("{copy} {other} $d/rank; s=$?; rm -r $d; exit $s"),
    ) {
        return;
    }
    let said = script(
        &[],
        &format!("{copy} $G run -n 1 {other} $d/rank hello; s=$?; rm -r $d; exit $s"),
    );
    assert_ne!(said.code, 0);
    assert!(
        said.err
            .contains("error[G0212]: rank 0 runs as user 65534, but the job is of user 0"),
        "{}",
        said.err
    );
}

#[test]
fn ranks_in_pid_namespaces_of_their_own_join_the_job_and_are_told_apart() {
    let wrapper = ["unshare", "-Ur"];
    if !permitted(&wrapper, "unshare -pf --kill-child true") {
        return;
    }
    let said = script(
        &wrapper,
        "$G run -n 2 unshare -pf --kill-child $R ring fence spaces finalize",
    );
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.contains("2 PID namespaces"), "{}", said.out);
}
