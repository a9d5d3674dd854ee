//! A rank's waits in words: which call, for whom, on which communicator.

use garonne_engine::event::{Action, Pending};
use garonne_mpi::coll::tag::Kind;
use garonne_node::calls;
use garonne_node::layout::Wait;

use super::collectives::{InCollective, What, collective};
use super::standing::{CONTEXTS, Shown, is_blocking, number_of};

impl Shown {
    /// The name of what a rank that waits has called.
    pub fn called(&self, wait: &Wait) -> &'static str {
        let kind = collective(wait).and_then(|meeting| meeting.kind());
        match kind {
            Some(kind) if kind != Kind::Internal => kind.name(),
            _ => calls::name(wait.call).unwrap_or("a call of MPI"),
        }
    }

    /// A collective in words, such as `MPI_Barrier #17 of MPI_COMM_WORLD`.
    pub fn collective_words(&self, called: &str, meeting: &InCollective) -> String {
        let comm = self.comm_name(meeting.comm);
        match meeting.what {
            What::Call(call) => format!(
                "{}{called} #{} of {comm}",
                super::collectives::series(&call),
                call.number
            ),
            What::Construction(_) => format!("{called} of {comm}"),
        }
    }
}

/// What the call of a rank waits for.
pub fn in_words(shown: &Shown, wait: &Wait) -> String {
    let call = calls::name(wait.call);
    if let Some(meeting) = collective(wait) {
        let call = call.unwrap_or(shown.called(wait));
        return of_collective(shown, call, &meeting);
    }
    let Some(call) = call else {
        return "a call of MPI".to_owned();
    };
    let envelope = Pending {
        context: wait.comm as u32,
        peer: u32::try_from(wait.peer).ok(),
        tag: Some(wait.tag).filter(|tag| *tag >= 0),
        bytes: wait.bytes,
        ..Pending::default()
    };
    of_message(shown, call, &envelope)
}

fn of_collective(shown: &Shown, call: &str, meeting: &InCollective) -> String {
    let comm = shown.comm_name(meeting.comm);
    match meeting.what {
        What::Call(called) if called.kind != Kind::Internal => {
            format!("{call}: collective {} of {comm}", called.number)
        }
        _ => format!("{call}: {comm}"),
    }
}

fn of_message(shown: &Shown, call: &str, envelope: &Pending) -> String {
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

/// What each thread of a rank waits for, as far as its calls return only when they are over; of a rank with one thread nothing.
pub fn of_threads(shown: &Shown) -> Vec<String> {
    let Some(operations) = shown.seen.operations.as_ref().filter(|it| it.threads) else {
        return Vec::new();
    };
    let mut told: Vec<(u16, u64, String)> = Vec::new();
    let meetings = |operation: &&(usize, &Pending)| operation.1.action == Action::Collective;
    let all: Vec<_> = operations.list.iter().enumerate().collect();
    // What the library sends for a collective is not told beside it.
    let in_order = all
        .iter()
        .filter(meetings)
        .chain(all.iter().filter(|it| !meetings(it)));
    for (index, operation) in in_order {
        let origin = operation.origin;
        let (Some(call), true) = (calls::name(origin.call.into()), is_blocking(operation)) else {
            continue;
        };
        if told
            .iter()
            .any(|(known, site, _)| (*known, *site) == (origin.call, origin.site))
        {
            continue;
        }
        let tag = operation.tag.unwrap_or(-1);
        let what = match InCollective::of(operation.context.into(), tag) {
            Some(meeting) => of_collective(shown, call, &meeting),
            None => {
                let bytes = if operation.action == Action::Send {
                    operation.bytes
                } else {
                    0
                };
                of_message(shown, call, &Pending { bytes, ..**operation })
            }
        };
        let place = shown.seen.operation_places.get(*index);
        let place = place.filter(|place| !place.is_empty());
        let place = place.map_or(String::new(), |place| format!("   at {place}"));
        told.push((origin.call, origin.site, format!("{what}{place}")));
    }
    told.into_iter().map(|(.., text)| text).collect()
}
