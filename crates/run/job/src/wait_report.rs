//! What a rank waits for in detail, and the communicators it has: words in its own memory for those
//! who watch from outside.
//!
//! Owned by the rank, which writes with plain stores; read by `garonne who` of the same version
//! through `/proc/PID/mem`, at the address that the rank's card gives. What a reader finds is a
//! hint for people, never a ground for decisions: a part that changes while it is read is left out.
//! Bounded: [`PENDING_SHOWN`] operations, [`COMMS_SHOWN`] communicators (of two that fall on one
//! place the newer is shown) with [`NAME_BYTES`] of their names.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use garonne_engine::api::{CallOrigin, TypeDigest};
use garonne_engine::observe::events::{
    KEPT_SHOWN, PENDING_SHOWN, PendingAction, PendingOperation, PendingReport, UnreceivedMessage,
};
use garonne_progress::environment::{CommunicatorInfo, GroupMembers};

use crate::limits::COMMS_SHOWN;
use crate::printable;

mod poll_report;
pub use poll_report::{ASKS_SHOWN, POLL_PLACES, PollReport, PollSlot, PolledCall};

/// Words of an operation.
pub const OPERATION_WORDS: usize = 4;
/// Words of a message that nobody has asked for.
pub const KEPT_WORDS: usize = 3;
const OPERATIONS_WORDS: usize = PENDING_SHOWN * OPERATION_WORDS;
const WAIT_WORDS: usize = 3 + OPERATIONS_WORDS + KEPT_SHOWN * KEPT_WORDS;
const NAME_WORDS: usize = 11;
/// Bytes of a name that are shown.
pub const NAME_BYTES: usize = NAME_WORDS * 8;
const COMM_WORDS: usize = 6 + NAME_WORDS;
/// Offset of the poll slots: at a whole pair of cache lines, seen from the book's beginning.
const POLLS_FROM: usize = (WAIT_WORDS + COMMS_SHOWN * COMM_WORDS).next_multiple_of(16);
const WORDS: usize = POLLS_FROM + poll_report::WORDS;
/// Bytes of a book.
pub const BOOK_BYTES: usize = WORDS * 8;

/// In the lowest bits of an operation's first word.
const ACTIONS: [PendingAction; 4] = [
    PendingAction::Receive,
    PendingAction::Send,
    PendingAction::Probe,
    PendingAction::Collective,
];
const ANY_PEER: u64 = 4;
const ANY_TAG: u64 = 8;
/// The kind of a communicator that is no more.
const GONE: u64 = 3;
const MORE: u64 = 1 << 32;
const THREADS: u64 = 1 << 33;

/// The writer's side.
#[derive(Debug)]
pub struct WaitReport(Box<[AtomicU64]>);

/// The operations of a rank that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingOperations {
    /// Operations that are listed.
    pub list: Vec<PendingOperation>,
    /// There are more.
    pub more: bool,
    /// Several threads may be in MPI.
    pub threads: bool,
    /// Messages that nobody has asked for, as far as they are listed.
    pub kept: Vec<UnreceivedMessage>,
}

/// A communicator as its member shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommReport {
    /// Name, perhaps cut; empty if it has none.
    pub name: String,
    /// Members.
    pub group: CommGroup,
    /// Counters.
    pub counts: CollectiveCounters,
}

/// Numbers of collectives that a member of a communicator has entered there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveCounters {
    /// The counters lie at this address of the rank's memory, 32 bits each.
    At(u64),
    /// Last values, before the communicator ended.
    Last([u32; 4]),
}

/// The members of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommGroup {
    /// Not told.
    Untold,
    /// Members at equal distances, as in `CommMembers::Strided`.
    Strided {
        /// Process of rank 0.
        first: u32,
        /// Distance between successive ones.
        stride: u32,
        /// How many.
        size: u32,
    },
    /// `size` words of 32 bits at this address of the rank's memory.
    At {
        /// Address in the rank's memory.
        address: u64,
        /// How many.
        size: u32,
    },
}

/// Words that change together: the first is odd while they do.
struct SeqlockWords<'a>(&'a [AtomicU64]);

impl SeqlockWords<'_> {
    fn write(&self, words: impl IntoIterator<Item = u64>) {
        let Some((seq, fields)) = self.0.split_first() else {
            return;
        };
        let next = seq.load(Relaxed).wrapping_add(1) | 1;
        seq.store(next, Relaxed);
        // SYNC(book): a reader copies the part twice, by system calls, and takes it if both copies
        // are the same and not odd.
        fence(Release);
        for (field, word) in fields.iter().zip(words) {
            field.store(word, Relaxed);
        }
        seq.store(next.wrapping_add(1), Release);
    }
}

impl Default for WaitReport {
    fn default() -> Self {
        Self(
            std::iter::repeat_with(AtomicU64::default)
                .take(WORDS)
                .collect(),
        )
    }
}

impl WaitReport {
    /// Returns the address of the report in this process; it stays there.
    pub fn address(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// The communicators shown that have a name, with their numbers.
    pub fn names(&self) -> Vec<(u32, String)> {
        let bytes: Vec<u8> = self
            .0
            .iter()
            .flat_map(|word| word.load(Relaxed).to_ne_bytes())
            .collect();
        let copied = WaitReportCopy::new(&bytes, &bytes);
        let named = |number| {
            let known = copied.communicator(number)?;
            let is_named =
                matches!(known.counts, CollectiveCounters::At(_)) && !known.name.is_empty();
            is_named.then_some((number, known.name))
        };
        copied.numbers().into_iter().filter_map(named).collect()
    }

    /// Shows what the rank waits for. By one thread at a time.
    pub fn show_waiting(&self, waiting: &PendingReport) {
        let flags = if waiting.more { MORE } else { 0 } | if waiting.threads { THREADS } else { 0 };
        let counts = [
            waiting.listed().len() as u64 | flags,
            waiting.kept().len() as u64,
        ];
        let operations = waiting.listed().iter().flat_map(operation_words);
        let unused = std::iter::repeat_n(
            0,
            OPERATIONS_WORDS - waiting.listed().len() * OPERATION_WORDS,
        );
        let kept = waiting.kept().iter().flat_map(kept_words);
        let words = counts
            .into_iter()
            .chain(operations)
            .chain(unused)
            .chain(kept);
        SeqlockWords(&self.0[..WAIT_WORDS]).write(words);
    }

    /// Shows a communicator, or how far it had come when it ended. By one thread at a time for each
    /// number; two that write one place at once may spoil it.
    pub fn show_communicator(&self, number: u32, known: &CommunicatorInfo<'_>) {
        let from = comm_place(number);
        let place = &self.0[from..from + COMM_WORDS];
        if matches!(known.members, GroupMembers::Gone) {
            if place[1].load(Acquire) == u64::from(number) + 1 {
                let counts = known.counts.iter().map(|count| count.load(Relaxed).into());
                let head = [u64::from(number) + 1, GONE, 0, 0, 0];
                SeqlockWords(place).write(head.into_iter().chain(counts));
            }
            return;
        }
        let (kind, size, where_) = match known.members {
            GroupMembers::Untold | GroupMembers::Gone => (0, 0, 0),
            GroupMembers::Strided {
                first,
                stride,
                size,
            } => (1, size, u64::from(first) | u64::from(stride) << 32),
            GroupMembers::List(list) => (2, list.len() as u32, list.as_ptr().addr() as u64),
        };
        let mut end = known.name.len().min(NAME_BYTES);
        while !known.name.is_char_boundary(end) {
            end -= 1;
        }
        let bytes = known.name.as_bytes();
        let name = (0..NAME_WORDS).map(|word| {
            let byte = |i: usize| bytes[..end].get(word * 8 + i).copied().unwrap_or(0);
            u64::from_ne_bytes(std::array::from_fn(byte))
        });
        let head = [
            u64::from(number) + 1,
            kind | u64::from(size) << 32,
            where_,
            known.counts.as_ptr().addr() as u64,
            end as u64,
        ];
        SeqlockWords(place).write(head.into_iter().chain(name));
    }
}

fn comm_place(number: u32) -> usize {
    WAIT_WORDS + number as usize % COMMS_SHOWN * COMM_WORDS
}

/// An operation in words; what carries it to other hosts writes it so, too.
pub(crate) fn operation_words(pending: &PendingOperation) -> [u64; OPERATION_WORDS] {
    let flag = |set: bool, bit| if set { bit } else { 0 };
    let flags = pending.action as u64
        | flag(pending.peer.is_none(), ANY_PEER)
        | flag(pending.tag.is_none(), ANY_TAG);
    let (peer, tag) = (pending.peer.unwrap_or(0), pending.tag.unwrap_or(0) as u32);
    [
        flags
            | u64::from(pending.origin.call) << 8
            | u64::from(pending.origin.datatype) << 24
            | u64::from(pending.context) << 32,
        u64::from(peer) | u64::from(tag) << 32,
        pending.bytes,
        pending.origin.site,
    ]
}

/// Reads it.
pub(crate) fn operation(words: &[u64; OPERATION_WORDS]) -> PendingOperation {
    let [head, ends, bytes, site] = *words;
    PendingOperation {
        action: ACTIONS[(head % ACTIONS.len() as u64) as usize],
        context: (head >> 32) as u32,
        peer: (head & ANY_PEER == 0).then_some(ends as u32),
        tag: (head & ANY_TAG == 0).then_some((ends >> 32) as i32),
        bytes,
        origin: CallOrigin {
            call: (head >> 8) as u16,
            datatype: (head >> 24) as u8,
            digest: TypeDigest::NONE,
            site,
        },
    }
}

/// A message that nobody has asked for, in words.
pub(crate) fn kept_words(kept: &UnreceivedMessage) -> [u64; KEPT_WORDS] {
    [
        kept.context.into(),
        u64::from(kept.peer) | u64::from(kept.tag as u32) << 32,
        kept.bytes,
    ]
}

/// Reads it.
pub(crate) fn kept(words: &[u64; KEPT_WORDS]) -> UnreceivedMessage {
    let [context, ends, bytes] = *words;
    UnreceivedMessage {
        context: context as u32,
        peer: ends as u32,
        tag: (ends >> 32) as i32,
        bytes,
    }
}

/// A copy of another process's book.
#[derive(Clone, Debug)]
pub struct WaitReportCopy {
    first: Vec<u64>,
    again: Vec<u64>,
}

impl WaitReportCopy {
    /// Makes a consistent copy from two copies of the bytes, the second taken after the first.
    pub fn new(first: &[u8], again: &[u8]) -> Self {
        let words = |bytes: &[u8]| {
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|word| u64::from_ne_bytes(*word))
                .collect()
        };
        Self {
            first: words(first),
            again: words(again),
        }
    }

    /// The fields of a part that did not change.
    fn part(&self, from: usize, len: usize) -> Option<&[u64]> {
        let (first, again) = (
            self.first.get(from..from + len)?,
            self.again.get(from..from + len)?,
        );
        let (seq, fields) = first.split_first()?;
        (seq & 1 == 0 && first == again).then_some(fields)
    }

    /// Returns the operations that the rank waits for, or last waited for.
    pub fn operations(&self) -> Option<PendingOperations> {
        let ([head, count], lists) = self.part(0, WAIT_WORDS)?.split_first_chunk()?;
        let (list, messages) = lists.split_at_checked(OPERATIONS_WORDS)?;
        let shown = (*head as u32 as usize).min(PENDING_SHOWN);
        let count = (*count as usize).min(KEPT_SHOWN);
        Some(PendingOperations {
            list: list
                .as_chunks()
                .0
                .iter()
                .take(shown)
                .map(operation)
                .collect(),
            kept: messages
                .as_chunks()
                .0
                .iter()
                .take(count)
                .map(kept)
                .collect(),
            more: head & MORE != 0,
            threads: head & THREADS != 0,
        })
    }

    /// The numbers of all communicators shown.
    pub fn numbers(&self) -> Vec<u32> {
        let places = (0..COMMS_SHOWN as u32).map(comm_place);
        let known = |from| self.part(from, COMM_WORDS)?.first()?.checked_sub(1);
        places
            .filter_map(known)
            .map(|number| number as u32)
            .collect()
    }

    /// The communicator of this number.
    pub fn communicator(&self, number: u32) -> Option<CommReport> {
        let [known, shape, members, counts, len, name @ ..] =
            self.part(comm_place(number), COMM_WORDS)?
        else {
            return None;
        };
        if *known != u64::from(number) + 1 {
            return None;
        }
        let bytes: Vec<u8> = name
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .take(*len as usize)
            .collect();
        let size = (shape >> 32) as u32;
        let group = match *shape as u32 {
            1 => CommGroup::Strided {
                first: *members as u32,
                stride: (members >> 32) as u32,
                size,
            },
            2 => CommGroup::At {
                address: *members,
                size,
            },
            _ => CommGroup::Untold,
        };
        Some(CommReport {
            name: printable::line(&String::from_utf8_lossy(&bytes)),
            group,
            counts: match *shape {
                GONE => CollectiveCounters::Last(std::array::from_fn(|index| {
                    name.get(index).map_or(0, |word| *word as u32)
                })),
                _ => CollectiveCounters::At(*counts),
            },
        })
    }
}

/// Reads any bytes as a book: it comes from another process's memory.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let (half, _) = bytes.split_at(bytes.len() / 2);
    for again in [bytes, half] {
        let copied = WaitReportCopy::new(bytes, again);
        let shown = copied
            .operations()
            .map_or(0, |operations| operations.list.len());
        assert!(shown <= PENDING_SHOWN);
        let polls = copied.polls().into_iter().flatten();
        assert!(polls.flat_map(|polls| polls.asks).count() <= POLL_PLACES * ASKS_SHOWN);
        for number in 0..=COMMS_SHOWN as u32 {
            let name = copied
                .communicator(number)
                .map_or(0, |comm| comm.name.len());
            assert!(name <= 3 * NAME_BYTES, "each wrong byte becomes three");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_progress::environment::CollectiveCounts;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    fn bytes(wait_report: &WaitReport) -> Vec<u8> {
        wait_report
            .0
            .iter()
            .flat_map(|word| word.load(SeqCst).to_ne_bytes())
            .collect()
    }

    fn copied(wait_report: &WaitReport) -> WaitReportCopy {
        WaitReportCopy::new(&bytes(wait_report), &bytes(wait_report))
    }

    static COUNTS: CollectiveCounts = [const { AtomicU32::new(7) }; 4];

    fn known(name: &str) -> CommunicatorInfo<'_> {
        CommunicatorInfo {
            name,
            counts: &COUNTS,
            members: GroupMembers::Strided {
                first: 3,
                stride: 2,
                size: 4,
            },
        }
    }

    #[test]
    fn operations_read_back_as_they_were_shown() {
        let wait_report = WaitReport::default();
        let receive = PendingOperation {
            context: 8,
            tag: Some(-7),
            bytes: 1 << 40,
            origin: CallOrigin {
                call: 500,
                datatype: 200,
                digest: TypeDigest::NONE,
                site: u64::MAX,
            },
            ..PendingOperation::default()
        };
        let send = PendingOperation {
            action: PendingAction::Send,
            peer: Some(u32::MAX),
            tag: None,
            ..receive
        };
        let message = UnreceivedMessage {
            context: 9,
            peer: 2,
            tag: -3,
            bytes: 4,
        };
        let mut waiting = PendingReport {
            shown: 2,
            more: true,
            kept_shown: 1,
            ..PendingReport::default()
        };
        waiting.kept[0] = message;
        waiting.operations[..2].copy_from_slice(&[receive, send]);
        wait_report.show_waiting(&waiting);
        let expected = PendingOperations {
            list: vec![receive, send],
            more: true,
            threads: false,
            kept: vec![message],
        };
        assert_eq!(copied(&wait_report).operations(), Some(expected));
    }

    #[test]
    fn a_communicator_is_shown_until_it_is_no_more_or_another_takes_its_place() {
        let wait_report = WaitReport::default();
        wait_report.show_communicator(5, &known("halo_x"));
        let shown = copied(&wait_report).communicator(5).unwrap();
        assert_eq!(
            (shown.name.as_str(), shown.group),
            (
                "halo_x",
                CommGroup::Strided {
                    first: 3,
                    stride: 2,
                    size: 4
                }
            )
        );
        assert_eq!(
            shown.counts,
            CollectiveCounters::At(COUNTS.as_ptr().addr() as u64)
        );
        let gone = CommunicatorInfo {
            members: GroupMembers::Gone,
            ..known("")
        };
        assert_eq!(copied(&wait_report).numbers(), [5]);
        let other = 5 + COMMS_SHOWN as u32;
        assert_eq!(wait_report.names(), [(5, "halo_x".to_owned())]);
        assert_eq!(copied(&wait_report).communicator(other), None);
        wait_report.show_communicator(other, &known(&"ü".repeat(60)));
        assert_eq!(copied(&wait_report).communicator(5), None);
        wait_report.show_communicator(5, &gone);
        assert_eq!(
            copied(&wait_report).communicator(other).unwrap().name,
            "ü".repeat(NAME_BYTES / 2)
        );
        wait_report.show_communicator(other, &gone);
        assert_eq!(wait_report.names(), [], "one that is no more has no name");
        let ended = copied(&wait_report).communicator(other).unwrap();
        assert_eq!(
            (ended.name.as_str(), ended.counts),
            ("", CollectiveCounters::Last([7; 4]))
        );
    }

    #[test]
    fn what_changes_while_it_is_read_is_left_out() {
        let wait_report = WaitReport::default();
        wait_report.show_communicator(1, &known("a"));
        let before = bytes(&wait_report);
        wait_report.show_communicator(1, &known("b"));
        assert_eq!(
            WaitReportCopy::new(&before, &bytes(&wait_report)).communicator(1),
            None
        );
        wait_report.0[comm_place(1)].fetch_add(1, SeqCst);
        assert_eq!(copied(&wait_report).communicator(1), None);
        assert_eq!(WaitReportCopy::new(&[], &[1; 9]).operations(), None);
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        for (target, read) in [
            ("rank_books", read_anything as fn(&[u8])),
            ("agent_messages", crate::rank_messages::read_anything),
        ] {
            let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../../fuzz/seeds")
                .join(target);
            let inputs = std::fs::read_dir(&dir).unwrap();
            let count = inputs
                .map(|input| read(&std::fs::read(input.unwrap().path()).unwrap()))
                .count();
            assert!(count > 0, "{}", dir.display());
        }
    }
}
