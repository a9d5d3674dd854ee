//! A rank's waits in words: which call, for whom, on which communicator.

use garonne_engine::observe::events::{PendingAction, PendingOperation};
use garonne_job::call_names;
use garonne_job::layout::WaitInfo;
use garonne_mpi::coll::call_tag::CollectiveKind;

use super::call_kinds::{is_blocking, is_probe, names_its_partner};
use super::collectives::{ActiveCollective, CollectiveId, collective};
use super::rank_waits::{CONTEXTS, RankView, number_of};

impl RankView {
    /// The name of what a rank that waits has called.
    pub fn called(&self, wait: &WaitInfo) -> &'static str {
        let kind = collective(wait).and_then(|meeting| meeting.kind());
        match kind {
            Some(kind) if kind != CollectiveKind::Internal => kind.name(),
            _ => call_names::name(wait.call).unwrap_or("a call of MPI"),
        }
    }

    /// A collective in words, such as `MPI_Barrier #17 of MPI_COMM_WORLD`.
    pub fn collective_words(&self, called: &str, meeting: &ActiveCollective) -> String {
        let comm = self.comm_name(meeting.comm);
        match meeting.what {
            CollectiveId::Call(call) => format!(
                "{}{called} #{} of {comm}",
                super::collectives::series_text(&call),
                call.number
            ),
            CollectiveId::Construction(_) => format!("{called} of {comm}"),
        }
    }
}

/// Describes what the call of a rank waits for.
pub fn in_words(shown: &RankView, wait: &WaitInfo) -> String {
    let call = call_names::name(wait.call);
    if let Some(meeting) = collective(wait) {
        let call = call.unwrap_or(shown.called(wait));
        return of_collective(shown, call, &meeting);
    }
    let Some(call) = call else {
        return "a call of MPI".to_owned();
    };
    let envelope = PendingOperation {
        context: wait.comm as u32,
        peer: u32::try_from(wait.peer).ok(),
        tag: Some(wait.tag).filter(|tag| *tag >= 0),
        bytes: wait.bytes,
        ..PendingOperation::default()
    };
    of_message(shown, call, &envelope)
}

fn of_collective(shown: &RankView, call: &str, meeting: &ActiveCollective) -> String {
    let comm = shown.comm_name(meeting.comm);
    match meeting.what {
        CollectiveId::Call(called) if called.kind != CollectiveKind::Internal => {
            format!("{call}: collective {} of {comm}", called.number)
        }
        _ => format!("{call}: {comm}"),
    }
}

fn of_message(shown: &RankView, call: &str, envelope: &PendingOperation) -> String {
    let peer = envelope
        .peer
        .map_or("any rank".to_owned(), |peer| format!("rank {peer}"));
    let comm = shown.comm_name(number_of(envelope.context.into()));
    // The other contexts are the library's own: its tags say nothing to the program.
    if u64::from(envelope.context) % CONTEXTS != 0 {
        return format!("{call}: {peer}, {comm}");
    }
    let tag = envelope
        .tag
        .map_or("any tag".to_owned(), |tag| format!("tag {tag}"));
    let bytes = match envelope.bytes {
        0 => String::new(),
        bytes => format!(", {bytes} B"),
    };
    format!("{call}: {peer}, {tag}{bytes}, {comm}")
}

/// Describes what each thread of a rank waits for, as far as its calls are blocking. Empty for a
/// rank with one thread.
pub fn thread_lines(shown: &RankView) -> Vec<String> {
    let Some(operations) = shown.snapshot.operations.as_ref().filter(|it| it.threads) else {
        return Vec::new();
    };
    let mut told: Vec<(WaitingCall, String, usize)> = Vec::new();
    let meetings =
        |operation: &&(usize, &PendingOperation)| operation.1.action == PendingAction::Collective;
    let all: Vec<_> = operations.list.iter().enumerate().collect();
    // What the library sends for a collective is not told beside it.
    let in_order = all
        .iter()
        .filter(meetings)
        .chain(all.iter().filter(|it| !meetings(it)));
    for (index, operation) in in_order {
        let (Some(name), true) = (
            call_names::name(operation.origin.call.into()),
            is_blocking(operation),
        ) else {
            continue;
        };
        let call = WaitingCall::of(operation, name);
        if let Some((.., threads)) = told.iter_mut().find(|(known, ..)| *known == call) {
            *threads += usize::from(call.message.is_some());
            continue;
        }
        let tag = operation.tag.unwrap_or(-1);
        let what = match ActiveCollective::of(operation.context.into(), tag) {
            Some(meeting) => of_collective(shown, name, &meeting),
            None => {
                let bytes = if operation.action == PendingAction::Send {
                    operation.bytes
                } else {
                    0
                };
                of_message(
                    shown,
                    name,
                    &PendingOperation {
                        bytes,
                        ..**operation
                    },
                )
            }
        };
        let place = shown.snapshot.operation_places.get(*index);
        let place = place.filter(|place| !place.is_empty());
        let place = place.map_or(String::new(), |place| format!("   at {place}"));
        told.push((call, format!("{what}{place}"), 1));
    }
    let line = |(_, text, threads)| match threads {
        1 => text,
        _ => format!("{text} ({threads} threads)"),
    };
    told.into_iter().map(line).collect()
}

/// A call in which a thread waits, as far as its operations tell it from those of other threads at
/// the same place.
#[derive(PartialEq)]
struct WaitingCall {
    number: u16,
    site: u64,
    communicator: u64,
    /// Peer and tag, for a call with one operation.
    message: Option<(Option<u32>, Option<i32>)>,
}

impl WaitingCall {
    fn of(operation: &PendingOperation, name: &str) -> Self {
        let one = names_its_partner(name) || is_probe(name) || name.starts_with("MPI_Mrecv");
        Self {
            number: operation.origin.call,
            site: operation.origin.site,
            communicator: number_of(operation.context.into()),
            message: one.then_some((operation.peer, operation.tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_engine::api::CallOrigin;
    use garonne_job::snapshot::DetailedSnapshot;
    use garonne_job::wait_report::PendingOperations;

    #[test]
    fn threads_that_wait_at_one_place_are_told_apart_and_operations_of_one_call_are_not() {
        let number = |wanted| {
            let mut all = 1u16..1000;
            all.find(|number| call_names::name((*number).into()) == Some(wanted))
                .unwrap()
        };
        let operation = |name, communicator: u64, tag| PendingOperation {
            context: (communicator * CONTEXTS) as u32,
            peer: Some(1),
            tag: Some(tag),
            origin: CallOrigin {
                call: number(name),
                site: 7,
                ..CallOrigin::default()
            },
            ..PendingOperation::default()
        };
        let list = vec![
            operation("MPI_Recv", 1, 3),
            operation("MPI_Recv", 2, 3),
            operation("MPI_Recv", 2, 3),
            operation("MPI_Recv", 2, 4),
            operation("MPI_Sendrecv", 1, 5),
            operation("MPI_Sendrecv", 1, 6),
            operation("MPI_Irecv", 1, 7),
        ];
        let mut seen = DetailedSnapshot::unavailable(0);
        seen.operations = Some(PendingOperations {
            list,
            threads: true,
            ..PendingOperations::default()
        });
        let shown = RankView {
            snapshot: seen,
            host: None,
            silent: false,
        };
        let wanted = [
            "MPI_Recv: rank 1, tag 3, comm #1",
            "MPI_Recv: rank 1, tag 3, comm #2 (2 threads)",
            "MPI_Recv: rank 1, tag 4, comm #2",
            "MPI_Sendrecv: rank 1, tag 5, comm #1",
        ];
        assert_eq!(thread_lines(&shown), wanted);
    }
}
