//! Conditions for a hang report that nobody asked for: only a proven deadlock is reported.

use garonne_job::layout::RankState;

use super::rank_waits::RankView;

/// Time that a rank has waited for the same thing: 10 s, less what a look takes.
const WAITED_NS: u64 = 9_500_000_000;

/// Returns whether a rank has waited for long, and no other thread of its program can act.
pub fn waits_for_good(shown: &RankView) -> bool {
    let rank = &shown.snapshot.rank;
    let waits = !shown.silent
        && rank.wait.is_some()
        && shown.snapshot.waited_ns >= WAITED_NS
        && !shown.snapshot.moves;
    waits && (!shown.has_threads() || shown.host.is_none() && is_alone(rank.pid))
}

/// Returns whether a rank has finalized and its process is gone.
pub fn has_left(shown: &RankView) -> bool {
    let rank = &shown.snapshot.rank;
    !shown.silent
        && rank.state == RankState::Finalized
        && matches!(rank.process, None | Some('Z' | 'X'))
}

/// Returns whether a process has no threads but its first one and those of this library.
fn is_alone(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let is_known = |thread: std::io::Result<std::fs::DirEntry>| {
        let Ok(thread) = thread else { return false };
        let is_first = thread.file_name().to_str() == Some(&pid.to_string());
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        is_first || name.starts_with("garonne")
    };
    threads.into_iter().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alone_beside_threads_of_the_library_and_beside_no_others() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(is_alone(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alone(child.id()));
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::Builder::new().name("program".into());
        let other = other.spawn(move || wait.recv().is_err()).unwrap();
        assert!(!is_alone(std::process::id()));
        drop(done);
        other.join().unwrap();
    }
}
