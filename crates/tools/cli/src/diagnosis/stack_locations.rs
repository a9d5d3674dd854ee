//! Locates ranks of this host by their stacks, read from outside: ranks that are not in MPI, and
//! ranks of Python. Lines of Python say more than those of the module that calls MPI for them.

use garonne_inspect::query_client::QueryClient;
use garonne_inspect::{NativeFrame, ProcessSnapshot, PythonFrame, examine};
use garonne_job::call_names;
use garonne_job::layout::RankState;
use garonne_job::snapshot::PollingThread;

use super::rank_waits::RankView;
use crate::commands::job_lookup::RankSnapshot;

/// Ranks that are examined: each takes some milliseconds.
const EXAMINED_MAX: usize = 16;
/// Functions that are named of a rank, the innermost first.
const FUNCTIONS_NAMED: usize = 3;
/// Place where every program begins.
const START: &str = "_start";
/// The library whose functions are not the program's.
const RUNTIME: &str = "libmpi_abi";

/// A line for each rank of this host of which its stack says more than MPI does.
pub fn location_lines(client: &QueryClient, all: &[RankView]) -> Vec<String> {
    let worth = |rank: &&RankSnapshot| rank.wait.is_none() || is_python(rank.pid);
    let polls = |rank: &RankSnapshot| {
        all.get(rank.rank as usize)
            .map_or(&[][..], |shown| &shown.snapshot.polls)
    };
    here(client, all)
        .filter(worth)
        .take(EXAMINED_MAX)
        .filter_map(|rank| Some(format!("rank {}: {}", rank.rank, place(rank, polls(rank))?)))
        .collect()
}

/// All threads of all ranks of this host, whole.
pub fn stacks(client: &QueryClient, all: &[RankView]) -> Vec<String> {
    let whole = |rank: &RankSnapshot| match examine(rank.pid, true) {
        Ok(process) => format!("rank {}, process {}\n{process}", rank.rank, rank.pid),
        Err(error) => format!(
            "rank {}, process {}: cannot be examined: {error}",
            rank.rank, rank.pid
        ),
    };
    here(client, all).map(whole).collect()
}

/// The ranks of this host whose processes go on.
fn here<'a>(
    client: &'a QueryClient,
    all: &'a [RankView],
) -> impl Iterator<Item = &'a RankSnapshot> {
    let ranks = all
        .iter()
        .filter(|shown| !shown.silent)
        .map(|shown| &shown.snapshot.rank);
    ranks.filter(|rank| {
        let goes_on = !matches!(rank.process, None | Some('T' | 't' | 'Z' | 'X'));
        let in_mpi = rank.pid != 0 && rank.state == RankState::Running;
        goes_on && in_mpi && client.runs_here(rank.rank)
    })
}

fn is_python(pid: u32) -> bool {
    let is_named = |path: &str| {
        path.rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with("python"))
    };
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    is_named(&program.to_string_lossy())
        || std::fs::read_to_string(format!("/proc/{pid}/maps"))
            .is_ok_and(|maps| maps.contains("libpython"))
}

/// Returns where a rank's first thread is; `None` where nothing more is known than MPI says.
fn place(rank: &RankSnapshot, polls: &[PollingThread]) -> Option<String> {
    let process = examine(rank.pid, false).ok()?;
    match &rank.wait {
        Some(wait) => {
            let call = call_names::name(wait.call).unwrap_or("a call of MPI");
            let functions = python(&process)?;
            Some(format!("{call}, called by {functions}"))
        }
        None => {
            let asks = polls.iter().flat_map(|polled| &polled.asks);
            let calls: Vec<_> = asks.filter_map(|ask| call_names::name(ask.call)).collect();
            let does = match calls.is_empty() {
                true => "not in MPI".to_owned(),
                false => format!("polls with {}", calls.join(", ")),
            };
            Some(format!("{does}: {}", outside(&process)?))
        }
    }
}

fn outside(process: &ProcessSnapshot) -> Option<String> {
    let thread = process.threads.first()?;
    let call = thread.call.as_ref().map(|call| format!("in {call}"));
    let native = thread.frames.iter().filter(|frame| is_of_program(frame));
    let functions = python(process).or_else(|| listed(native));
    let unknown = process.refused.clone();
    let parts: Vec<_> = [call, functions.or(unknown)]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn is_of_program(frame: &NativeFrame) -> bool {
    let named = frame
        .function
        .as_deref()
        .is_some_and(|function| function != START);
    named && frame.is_of_program(|object| object.starts_with(RUNTIME))
}

/// The Python functions of the first thread.
fn python(process: &ProcessSnapshot) -> Option<String> {
    let frames: &[PythonFrame] = &process.threads.first()?.python;
    listed(frames)
}

fn listed(functions: impl IntoIterator<Item = impl std::fmt::Display>) -> Option<String> {
    let named = functions.into_iter().take(FUNCTIONS_NAMED);
    let named: Vec<_> = named.map(|function| function.to_string()).collect();
    (!named.is_empty()).then(|| named.join(", called by "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_program_are_named_and_not_those_of_the_system_or_of_the_library() {
        let frame = |function: &str, object: &str| NativeFrame {
            function: Some(function.into()),
            object: object.into(),
            ..NativeFrame::default()
        };
        let objects = [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/tmp/lib/libmpi_abi.so.1",
            "/tmp/app",
        ];
        let frames: Vec<_> = objects.iter().map(|object| frame("f", object)).collect();
        let own: Vec<_> = frames.iter().map(is_of_program).collect();
        assert_eq!(own, [false, false, true]);
        let python = |line| PythonFrame {
            function: "exchange".into(),
            file: "/tmp/solver.py".into(),
            line,
        };
        let thread = garonne_inspect::ThreadSnapshot {
            python: vec![python(42), python(7)],
            ..Default::default()
        };
        let process = ProcessSnapshot {
            threads: vec![thread],
            ..ProcessSnapshot::default()
        };
        let wanted = "exchange() at solver.py:42, called by exchange() at solver.py:7";
        assert_eq!(super::python(&process).as_deref(), Some(wanted));
    }
}
