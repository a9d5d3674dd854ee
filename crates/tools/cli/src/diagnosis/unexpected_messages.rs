//! Messages that lie at a rank and that nobody has asked for, beside what the rank waits for.
//!
//! A receive that waits for ever often has its message before it, with another tag or on another
//! communicator than it asks for. The rank's wait report lists what lies there. Where it was sent
//! is read from the memory of its sender, if that is on this host. Or a receive from any source
//! took the message before: the rank's last events tell that.

use garonne_links::process_memory::memory_of;
use std::cell::OnceCell;

use garonne_engine::observe::events::{self, PendingOperation, SentMessage, UnreceivedMessage};
use garonne_inspect::query_client::QueryClient;
use garonne_job::layout::{RankBlock, rank_endpoint};

use super::rank_waits::{CONTEXTS, RankView, number_of};

/// Messages of one rank that are told.
const TOLD: usize = 4;

/// The process that sent a message to `to`, and where its program called, as far as the sender
/// remembers.
pub fn sender(client: &QueryClient, to: u32, message: &UnreceivedMessage) -> Option<(u32, u64)> {
    let (shape, world_memory) = client.world.as_ref()?;
    let is_here =
        message.peer < shape.size && rank_endpoint::is_local(world_memory, shape, message.peer);
    let card = is_here.then(|| RankBlock::of(world_memory, message.peer))?;
    if card.pid() == 0 || card.event_ring() == 0 {
        return None;
    }
    let sent = SentMessage {
        from: message.peer,
        to,
        context: message.context,
        tag: message.tag,
        len: message.bytes,
    };
    let read = |address, len| memory_of(card.pid(), address, len);
    let origins = events::find_senders(card.event_ring(), &sent, read)?;
    // Of several callers it may be any.
    match origins.as_slice() {
        [origin] => Some((card.pid(), origin.site)),
        _ => None,
    }
}

/// Returns for each operation the call site in the program of `rank` where a receive from any
/// source took its message; 0 where none did. Returns nothing where no operation has such a call
/// site.
pub fn sites_that_took(
    client: &QueryClient,
    rank: u32,
    operations: &[PendingOperation],
) -> Vec<u64> {
    let Some((shape, world_memory)) = client.world.as_ref() else {
        return Vec::new();
    };
    let card = (rank < shape.size).then(|| RankBlock::of(world_memory, rank));
    let Some(card) = card.filter(|card| card.pid() != 0 && card.event_ring() != 0) else {
        return Vec::new();
    };
    let memory = OnceCell::new();
    let read = |address, len| {
        memory
            .get_or_init(|| memory_of(card.pid(), address, len))
            .clone()
    };
    let taker = |wanted: &PendingOperation| {
        let peer = wanted.peer.filter(|_| asks(wanted))?;
        let (_, origin) =
            events::taken_from_any(card.event_ring(), (peer, wanted.context, wanted.tag), read)?;
        Some(origin.site)
    };
    let sites: Vec<u64> = operations.iter().map(|it| taker(it).unwrap_or(0)).collect();
    match sites.iter().all(|site| *site == 0) {
        true => Vec::new(),
        false => sites,
    }
}

/// Returns whether an operation of the program waits for a message.
fn asks(operation: &PendingOperation) -> bool {
    matches!(
        operation.action,
        events::PendingAction::Receive | events::PendingAction::Probe
    ) && is_programs(operation.context)
}

/// Returns whether the program sent it, and not the library.
fn is_programs(context: u32) -> bool {
    u64::from(context) % CONTEXTS == 0
}

/// In what a message differs from what a receive or probe asks for.
fn difference(
    shown: &RankView,
    wanted: &PendingOperation,
    message: &UnreceivedMessage,
) -> Option<String> {
    let comm = |context: u32| shown.comm_name(number_of(context.into()));
    let what = match wanted.action {
        events::PendingAction::Probe => "this probe",
        _ => "this receive",
    };
    let same_comm = number_of(wanted.context.into()) == number_of(message.context.into());
    let same_peer = wanted.peer.is_none_or(|peer| peer == message.peer);
    let same_tag = wanted.tag.is_none_or(|tag| tag == message.tag);
    let (peer, tag) = (
        wanted.peer.unwrap_or_default(),
        wanted.tag.unwrap_or_default(),
    );
    match (same_comm, same_peer, same_tag) {
        (true, true, false) => Some(format!("{what} wants tag {tag}")),
        (true, false, true) => Some(format!("{what} wants one of rank {peer}")),
        (false, true, true) => Some(format!(
            "it is on {}, {what} on {}",
            comm(message.context),
            comm(wanted.context)
        )),
        (true, false, false) => Some(format!("{what} wants tag {tag} of rank {peer}")),
        _ => None,
    }
}

/// A message in words; several that are alike at once.
fn message_text(message: &UnreceivedMessage, sender: Option<&String>, count: usize) -> String {
    let sent = sender.filter(|place| !place.is_empty());
    let sent = sent.map_or(String::new(), |place| format!(", sent at {place}"));
    let (messages, lie) = match count {
        1 => ("a message".to_owned(), "lies"),
        _ => (format!("{count} messages"), "lie"),
    };
    let UnreceivedMessage {
        peer, tag, bytes, ..
    } = message;
    format!("{messages} of rank {peer} with tag {tag} ({bytes} B{sent}) {lie} here")
}

/// Describes the messages that lie at a waiting rank, and what was taken before, a line each.
pub fn message_lines(shown: &RankView) -> Vec<String> {
    let (Some(operations), Some(_)) = (&shown.snapshot.operations, &shown.snapshot.rank.wait)
    else {
        return Vec::new();
    };
    let wanted: Vec<&PendingOperation> = operations.list.iter().filter(|it| asks(it)).collect();
    let mut told: Vec<(&UnreceivedMessage, Option<&String>, String, usize)> = Vec::new();
    for (index, message) in operations.kept.iter().enumerate() {
        let differs = |operation: &&PendingOperation| difference(shown, operation, message);
        let Some(differs) = wanted
            .iter()
            .find_map(differs)
            .filter(|_| is_programs(message.context))
        else {
            continue;
        };
        let sender = shown.snapshot.senders.get(index);
        match told
            .iter_mut()
            .find(|(known, place, ..)| (*known, *place) == (message, sender))
        {
            Some((.., count)) => *count += 1,
            None => told.push((message, sender, differs, 1)),
        }
    }
    let line = |(message, sender, differs, count): (
        &UnreceivedMessage,
        Option<&String>,
        String,
        usize,
    )| { format!("{}; {differs}", message_text(message, sender, count)) };
    let lying = told.into_iter().take(TOLD).map(line);
    let takers = operations.list.iter().zip(&shown.snapshot.takers);
    let taken = takers.filter(|(_, place)| !place.is_empty());
    let taken = taken.map(|(wanted, place)| taken_text(wanted, place));
    lying.chain(taken.take(TOLD)).collect()
}

/// Says that a receive from any source took the message that an operation waits for.
fn taken_text(wanted: &PendingOperation, place: &str) -> String {
    let tag = wanted
        .tag
        .map_or(String::new(), |tag| format!(" with tag {tag}"));
    let peer = wanted.peer.unwrap_or_default();
    format!("a message of rank {peer}{tag} was taken by the receive from MPI_ANY_SOURCE at {place}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::layout::WaitInfo;
    use garonne_job::snapshot::DetailedSnapshot;
    use garonne_job::wait_report::PendingOperations;

    #[test]
    fn what_nearly_is_what_a_receive_wants_is_told_with_the_difference() {
        let context = CONTEXTS as u32;
        let receive = PendingOperation {
            context,
            peer: Some(0),
            tag: Some(41),
            ..PendingOperation::default()
        };
        let message = |context, peer, tag| UnreceivedMessage {
            context,
            peer,
            tag,
            bytes: 4,
        };
        let mut seen = DetailedSnapshot::unavailable(1);
        seen.rank.wait = Some(WaitInfo::default());
        seen.operations = Some(PendingOperations {
            list: vec![receive],
            kept: vec![
                message(context, 0, 42),
                message(context, 3, 41),
                message(2 * context, 0, 41),
                message(context, 0, 42),
                // Nothing in common, and the library's own.
                message(2 * context, 3, 7),
                message(context + 1, 0, 41),
            ],
            ..PendingOperations::default()
        });
        seen.senders = vec!["a.c:3".into(), String::new(), String::new(), "a.c:3".into()];
        let shown = RankView {
            snapshot: seen,
            host: None,
            silent: false,
        };
        assert_eq!(
            message_lines(&shown),
            [
                "2 messages of rank 0 with tag 42 (4 B, sent at a.c:3) lie here; this receive wants tag 41",
                "a message of rank 3 with tag 41 (4 B) lies here; this receive wants one of rank 0",
                "a message of rank 0 with tag 41 (4 B) lies here; it is on comm #2, this receive on comm #1",
            ]
        );
    }
}
