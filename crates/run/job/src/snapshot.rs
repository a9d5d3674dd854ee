//! What the ranks of one host show of themselves, and its bytes on the way to who asks about a job
//! on several hosts (docs/reference/job.md, D13).
//!
//! Made by a look at the host itself (`garonne who`), which reads cards, books and the system's
//! words about processes; whoever merges the looks of several hosts needs nothing of those hosts
//! any more. Bounded: [`LOOK_RANKS_DETAILED_BYTES`] of details, beyond which ranks are told without
//! what they wait for in detail; a rank of a few hundred bytes each.

use std::collections::HashMap;
use std::sync::Arc;

use garonne_engine::observe::events::{KEPT_SHOWN, PENDING_SHOWN};

use crate::error::Result;
use crate::layout::{RankState, WaitInfo};
use crate::limits::{
    COMMS_SHOWN, LOOK_BYTES_MAX, LOOK_RANKS_DETAILED_BYTES, LOOK_TEXT_MAX, RANKS_MAX,
};
use crate::printable;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};
use crate::wait_report::{
    KEPT_WORDS, OPERATION_WORDS, PendingOperations, kept, kept_words, operation, operation_words,
};

mod polling;
pub use polling::{PolledOperation, PollingThread};

const KIND: u16 = 342;
const MORE: u32 = 1 << 30;
const THREADS: u32 = 1 << 31;
/// Communicators of one rank that are told: those of its operations, of messages that nobody has
/// asked for, of its wait and of what it polls for.
const COMMS_MAX: usize = 2 * PENDING_SHOWN + KEPT_SHOWN + 1;

/// State that a rank shows of itself, and that the system shows of its process. Made by a look at
/// the rank's own host.
#[derive(Clone, Debug, PartialEq)]
pub struct RankSnapshot {
    /// Number of the rank.
    pub rank: u32,
    /// Process of the rank, 0 before it registered.
    pub pid: u32,
    /// State of the rank.
    pub state: RankState,
    /// CPU that the rank is bound to.
    pub cpu: Option<u32>,
    /// Letter of the process state as in `ps`.
    pub process: Option<char>,
    /// Processor time so far, in seconds.
    pub cpu_seconds: f64,
    /// Call in which the rank waits; times are of its host's clock.
    pub wait: Option<WaitInfo>,
    /// Address of the rank's wait report in its memory; 0: not told, and never told to another
    /// host.
    pub book: u64,
    /// Messages that it has sent.
    pub sent_messages: u64,
    /// Bytes that it has sent.
    pub sent_bytes: u64,
    /// Messages kept for later.
    pub unexpected: u64,
}

/// The members of a communicator, as ranks of the job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CommMembers {
    /// Not told.
    Untold,
    /// Each so far from the one before.
    Strided {
        /// The first.
        first: u32,
        /// Distance between successive ones.
        stride: u32,
        /// How many.
        size: u32,
    },
    /// In order; ranks of a host that show the same share it.
    List(Arc<[u32]>),
}

/// A communicator as its member shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommSnapshot {
    /// Context number.
    pub number: u32,
    /// Name; empty if it has none.
    pub name: String,
    /// How many members it has; `None`: an intercommunicator.
    pub size: Option<u32>,
    /// Members.
    pub members: CommMembers,
}

/// A rank, and what it waits for in detail.
#[derive(Clone, Debug, PartialEq)]
pub struct DetailedSnapshot {
    /// The rank.
    pub rank: RankSnapshot,
    /// For how long it has waited.
    pub waited_ns: u64,
    /// Bytes of it are on their way between hosts.
    pub moves: bool,
    /// Place in the program where the rank waits.
    pub place: Option<String>,
    /// Operations that the rank waits for; `None`: they could not be read.
    pub operations: Option<PendingOperations>,
    /// Place in the program where each operation was started, where several threads wait; else
    /// empty.
    pub operation_places: Vec<String>,
    /// Place in the sender's program of each unexpected message; empty where that is not known.
    pub senders: Vec<String>,
    /// Place in the program where a receive from any source took the message of an operation, by
    /// operation; empty where none did.
    pub takers: Vec<String>,
    /// Threads that poll without waiting.
    pub polls: Vec<PollingThread>,
    /// The communicators of its wait, its operations and its polls, as far as they could be read.
    pub comms: Vec<CommSnapshot>,
    /// How many collectives it has entered, by communicator.
    pub entered: Vec<CollectivesEntered>,
}

/// Number of collectives that a rank has entered on a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectivesEntered {
    /// The communicator's number.
    pub number: u32,
    /// By what they are (`CollectiveCounts`).
    pub counts: [u32; 4],
}

impl DetailedSnapshot {
    /// A rank of which nothing is known.
    pub fn unavailable(rank: u32) -> Self {
        let rank = RankSnapshot {
            rank,
            pid: 0,
            state: RankState::Absent,
            cpu: None,
            process: None,
            cpu_seconds: 0.0,
            wait: None,
            book: 0,
            sent_messages: 0,
            sent_bytes: 0,
            unexpected: 0,
        };
        Self {
            rank,
            waited_ns: 0,
            moves: false,
            place: None,
            operations: None,
            operation_places: Vec::new(),
            senders: Vec::new(),
            takers: Vec::new(),
            polls: Vec::new(),
            comms: Vec::new(),
            entered: Vec::new(),
        }
    }
}

impl CommMembers {
    /// All of them, where they are told.
    pub fn list(&self) -> Option<Vec<u32>> {
        match self {
            CommMembers::Untold => None,
            CommMembers::Strided {
                first,
                stride,
                size,
            } => Some(
                (0..*size)
                    .map(|index| first.wrapping_add(index.wrapping_mul(*stride)))
                    .collect(),
            ),
            CommMembers::List(list) => Some(list.to_vec()),
        }
    }
}

/// A number that may be missing, as one more.
fn optional(number: Option<u32>) -> [u8; 4] {
    number
        .map_or(0, |number| number.wrapping_add(1))
        .to_le_bytes()
}

fn put_text(writer: MessageWriter, text: &str) -> MessageWriter {
    let mut end = text.len().min(LOOK_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    writer.bytes(&text.as_bytes()[..end])
}

fn put_texts(writer: MessageWriter, texts: &[String], most: usize) -> MessageWriter {
    let texts = &texts[..texts.len().min(most)];
    let writer = writer.raw((texts.len() as u32).to_le_bytes());
    texts
        .iter()
        .fold(writer, |writer, text| put_text(writer, text))
}

fn put_rank(writer: MessageWriter, seen: &DetailedSnapshot) -> MessageWriter {
    let rank = &seen.rank;
    let writer = writer
        .raw(rank.rank.to_le_bytes())
        .raw(rank.pid.to_le_bytes())
        .raw([rank.state.code() as u8])
        .raw(optional(rank.cpu))
        .raw([rank
            .process
            .and_then(|letter| u8::try_from(letter).ok())
            .unwrap_or(0)])
        .raw(rank.cpu_seconds.to_le_bytes())
        .raw(rank.sent_messages.to_le_bytes())
        .raw(rank.sent_bytes.to_le_bytes())
        .raw(rank.unexpected.to_le_bytes())
        .raw([u8::from(seen.moves)]);
    let Some(wait) = &rank.wait else {
        return writer.raw([0]);
    };
    writer
        .raw([1])
        .raw(wait.call.to_le_bytes())
        .raw(wait.peer.to_le_bytes())
        .raw(wait.tag.to_le_bytes())
        .raw(wait.comm.to_le_bytes())
        .raw(wait.bytes.to_le_bytes())
        .raw(wait.since_ns.to_le_bytes())
        .raw(wait.site.to_le_bytes())
        .raw(seen.waited_ns.to_le_bytes())
}

fn put_details(
    writer: MessageWriter,
    seen: &DetailedSnapshot,
    lists: &HashMap<Arc<[u32]>, u32>,
) -> MessageWriter {
    let writer = put_text(writer, seen.place.as_deref().unwrap_or_default());
    let writer = match &seen.operations {
        None => writer.raw(u32::MAX.to_le_bytes()),
        Some(operations) => {
            let shown = &operations.list[..operations.list.len().min(PENDING_SHOWN)];
            let flags = if operations.more { MORE } else { 0 }
                | if operations.threads { THREADS } else { 0 };
            let writer = writer.raw((shown.len() as u32 | flags).to_le_bytes());
            let words = shown.iter().flat_map(operation_words);
            let writer = words.fold(writer, |writer, word| writer.raw(word.to_le_bytes()));
            let messages = &operations.kept[..operations.kept.len().min(KEPT_SHOWN)];
            let writer = writer.raw((messages.len() as u32).to_le_bytes());
            let words = messages.iter().flat_map(kept_words);
            words.fold(writer, |writer, word| writer.raw(word.to_le_bytes()))
        }
    };
    let writer = put_texts(writer, &seen.operation_places, PENDING_SHOWN);
    let writer = put_texts(writer, &seen.senders, KEPT_SHOWN);
    let writer = put_texts(writer, &seen.takers, PENDING_SHOWN);
    let writer = polling::put(writer, &seen.polls);
    let entered = &seen.entered[..seen.entered.len().min(COMMS_SHOWN)];
    let writer = writer.raw((entered.len() as u32).to_le_bytes());
    let words = entered
        .iter()
        .flat_map(|one| [one.number].into_iter().chain(one.counts));
    let writer = words.fold(writer, |writer, word| writer.raw(word.to_le_bytes()));
    let comms = &seen.comms[..seen.comms.len().min(COMMS_MAX)];
    let writer = writer.raw((comms.len() as u32).to_le_bytes());
    comms.iter().fold(writer, |writer, comm| {
        let writer =
            put_text(writer.raw(comm.number.to_le_bytes()), &comm.name).raw(optional(comm.size));
        match &comm.members {
            CommMembers::Strided {
                first,
                stride,
                size,
            } => [1, *first, *stride, *size]
                .into_iter()
                .fold(writer, |writer, word| writer.raw(word.to_le_bytes())),
            CommMembers::List(list) => match lists.get(list) {
                Some(index) => writer.raw(2u32.to_le_bytes()).raw(index.to_le_bytes()),
                None => writer.raw(0u32.to_le_bytes()),
            },
            CommMembers::Untold => writer.raw(0u32.to_le_bytes()),
        }
    })
}

/// Bytes of a look. Lists of members that several ranks show are written once.
pub fn encode(all: &[DetailedSnapshot]) -> Vec<u8> {
    let mut room = LOOK_RANKS_DETAILED_BYTES;
    let mut lists: HashMap<Arc<[u32]>, u32> = HashMap::new();
    let mut in_order = Vec::new();
    for comm in all.iter().flat_map(|seen| &seen.comms) {
        if let CommMembers::List(list) = &comm.members
            && !lists.contains_key(list)
            // Half of the room at most, so that no rank loses its operations to them.
            && let Some(left) = room.checked_sub(list.len() * 4 + 4)
            && left >= LOOK_RANKS_DETAILED_BYTES / 2
        {
            room = left;
            lists.insert(Arc::clone(list), in_order.len() as u32);
            in_order.push(Arc::clone(list));
        }
    }
    let writer = MessageWriter::new(KIND).raw((in_order.len() as u32).to_le_bytes());
    let writer = in_order.iter().fold(writer, |writer, list| {
        let writer = writer.raw((list.len() as u32).to_le_bytes());
        list.iter()
            .fold(writer, |writer, rank| writer.raw(rank.to_le_bytes()))
    });
    let writer = writer.raw((all.len() as u32).to_le_bytes());
    let writer = all.iter().fold(writer, |writer, seen| {
        let writer = put_rank(writer, seen);
        let details = put_details(MessageWriter(Vec::new()), seen, &lists).0;
        match room.checked_sub(details.len()) {
            Some(left) => {
                room = left;
                let mut writer = writer.raw([1]);
                writer.0.extend(details);
                writer
            }
            None => writer.raw([0]),
        }
    });
    writer.0
}

/// The byte before what a command says, and the one before why it says nothing.
pub const PAGE_MARKS: [u8; 2] = *b"+-";

/// Decodes the output of a command for another host: its text, or why there is none.
///
/// # Errors
/// It is neither.
pub fn page(bytes: &[u8]) -> Result<std::result::Result<String, String>> {
    let (mark, words) = bytes
        .split_first()
        .ok_or_else(|| malformed("it is empty"))?;
    let words = printable::lines(&String::from_utf8_lossy(words));
    match PAGE_MARKS.iter().position(|known| known == mark) {
        Some(0) => Ok(Ok(words)),
        Some(_) => Ok(Err(words)),
        None => Err(malformed("it is no command's")),
    }
}

fn text(r: &mut MessageReader<'_>) -> Result<String> {
    let text = r.text()?;
    Ok(printable::line(&text).chars().take(LOOK_TEXT_MAX).collect())
}

/// Returns how many things follow, each of at least `least` bytes.
fn count(r: &mut MessageReader<'_>, least: usize, most: usize) -> Result<usize> {
    let count = r.u32()? as usize;
    if count > most || count > r.left() / least {
        return Err(malformed("it announces more than it holds"));
    }
    Ok(count)
}

fn read_texts(r: &mut MessageReader<'_>, most: usize) -> Result<Vec<String>> {
    let count = count(r, 1, most)?;
    (0..count).map(|_| text(r)).collect()
}

fn u64_of(r: &mut MessageReader<'_>) -> Result<u64> {
    r.raw().map(u64::from_le_bytes)
}

fn flag(r: &mut MessageReader<'_>) -> Result<bool> {
    r.raw().map(|byte| byte != [0])
}

fn read_wait(r: &mut MessageReader<'_>) -> Result<(Option<WaitInfo>, u64)> {
    if !flag(r)? {
        return Ok((None, 0));
    }
    let wait = WaitInfo {
        call: r.u32()?,
        peer: r.u32()? as i32,
        tag: r.u32()? as i32,
        comm: u64_of(r)?,
        bytes: u64_of(r)?,
        since_ns: u64_of(r)?,
        site: u64_of(r)?,
    };
    Ok((Some(wait), u64_of(r)?))
}

/// A rank without details.
fn read_rank(r: &mut MessageReader<'_>) -> Result<DetailedSnapshot> {
    let (rank, pid) = (r.u32()?, r.u32()?);
    let [state] = r.raw()?;
    let cpu = r.u32()?.checked_sub(1);
    let [letter] = r.raw()?;
    let cpu_seconds = f64::from_le_bytes(r.raw()?);
    if rank >= RANKS_MAX || !(cpu_seconds.is_finite() && cpu_seconds >= 0.0) {
        return Err(malformed("there is no such rank"));
    }
    let [sent_messages, sent_bytes, unexpected] = [u64_of(r)?, u64_of(r)?, u64_of(r)?];
    let moves = flag(r)?;
    let (wait, waited_ns) = read_wait(r)?;
    let rank = RankSnapshot {
        rank,
        pid,
        state: RankState::from_code(state.into()),
        cpu,
        process: Some(char::from(letter)).filter(char::is_ascii_alphabetic),
        cpu_seconds,
        wait,
        book: 0,
        sent_messages,
        sent_bytes,
        unexpected,
    };
    Ok(DetailedSnapshot {
        rank,
        waited_ns,
        moves,
        ..DetailedSnapshot::unavailable(0)
    })
}

fn read_operations(r: &mut MessageReader<'_>) -> Result<Option<PendingOperations>> {
    let head = r.u32()?;
    if head == u32::MAX {
        return Ok(None);
    }
    let shown = (head & !(MORE | THREADS)) as usize;
    if shown > PENDING_SHOWN {
        return Err(malformed("it announces more than it holds"));
    }
    let mut list = Vec::with_capacity(shown);
    for _ in 0..shown {
        let mut words = [0; OPERATION_WORDS];
        for word in &mut words {
            *word = u64_of(r)?;
        }
        list.push(operation(&words));
    }
    let mut messages = Vec::new();
    for _ in 0..count(r, KEPT_WORDS * 8, KEPT_SHOWN)? {
        let mut words = [0; KEPT_WORDS];
        for word in &mut words {
            *word = u64_of(r)?;
        }
        messages.push(kept(&words));
    }
    Ok(Some(PendingOperations {
        list,
        kept: messages,
        more: head & MORE != 0,
        threads: head & THREADS != 0,
    }))
}

fn read_comm(r: &mut MessageReader<'_>, lists: &[Arc<[u32]>]) -> Result<CommSnapshot> {
    let (number, name, size) = (r.u32()?, text(r)?, r.u32()?.checked_sub(1));
    let members = match r.u32()? {
        0 => CommMembers::Untold,
        1 => CommMembers::Strided {
            first: r.u32()?,
            stride: r.u32()?,
            size: Some(r.u32()?)
                .filter(|size| *size <= RANKS_MAX)
                .ok_or_else(|| malformed("a communicator has more members than there are ranks"))?,
        },
        2 => lists
            .get(r.u32()? as usize)
            .cloned()
            .map(CommMembers::List)
            .ok_or_else(|| malformed("there is no such list of members"))?,
        _ => return Err(malformed("members are of no known kind")),
    };
    Ok(CommSnapshot {
        number,
        name,
        size,
        members,
    })
}

/// Reads a look.
///
/// # Errors
/// It is damaged.
pub fn decode(message: &[u8]) -> Result<Vec<DetailedSnapshot>> {
    if message.len() > LOOK_BYTES_MAX {
        return Err(malformed("it is too long"));
    }
    let (kind, mut r) = MessageReader::new(message)?;
    if kind != KIND {
        return Err(malformed("it is no look"));
    }
    let mut lists: Vec<Arc<[u32]>> = Vec::new();
    for _ in 0..count(&mut r, 4, RANKS_MAX as usize)? {
        let members = count(&mut r, 4, RANKS_MAX as usize)?;
        lists.push(
            (0..members)
                .map(|_| r.u32())
                .collect::<Result<Vec<_>>>()?
                .into(),
        );
    }
    let mut all = Vec::new();
    for _ in 0..count(&mut r, 49, RANKS_MAX as usize)? {
        let mut seen = read_rank(&mut r)?;
        if flag(&mut r)? {
            seen.place = Some(text(&mut r)?).filter(|place| !place.is_empty());
            seen.operations = read_operations(&mut r)?;
            seen.operation_places = read_texts(&mut r, PENDING_SHOWN)?;
            seen.senders = read_texts(&mut r, KEPT_SHOWN)?;
            seen.takers = read_texts(&mut r, PENDING_SHOWN)?;
            seen.polls = polling::read(&mut r)?;
            for _ in 0..count(&mut r, 20, COMMS_SHOWN)? {
                let number = r.u32()?;
                let counts = [r.u32()?, r.u32()?, r.u32()?, r.u32()?];
                seen.entered.push(CollectivesEntered { number, counts });
            }
            for _ in 0..count(&mut r, 16, COMMS_MAX)? {
                seen.comms.push(read_comm(&mut r, &lists)?);
            }
        }
        all.push(seen);
    }
    r.end(all)
}

#[cfg(test)]
pub mod tests;
