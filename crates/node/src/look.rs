//! What the ranks of one host show of themselves, and its bytes on the way to who asks about a job on several hosts (docs/formats-job.md, D13).
//!
//! Made by a look at the host itself (`garonne who`), which reads cards, books and the system's words about processes; whoever merges the looks of several hosts needs nothing of those hosts
//! any more. Bounded: [`LOOK_RANKS_DETAILED_BYTES`] of details, beyond which ranks are told without what they wait for in detail; a rank of a few hundred bytes each.

use std::collections::HashMap;
use std::sync::Arc;

use garonne_engine::event::PENDING_SHOWN;

use crate::book::{OPERATION_WORDS, Operations, operation, operation_words};
use crate::error::Result;
use crate::layout::{State, Wait};
use crate::limits::{LOOK_BYTES_MAX, LOOK_RANKS_DETAILED_BYTES, LOOK_TEXT_MAX, RANKS_MAX};
use crate::printable;
use crate::wire::{Reader, Writer, damaged};

const KIND: u16 = 342;
const MORE: u32 = 1 << 30;
const THREADS: u32 = 1 << 31;
/// Communicators of one rank that are told: those of its operations and of its wait.
const COMMS_MAX: usize = PENDING_SHOWN + 1;

/// What a rank shows of itself, and what the system says about its process.
#[derive(Clone, Debug, PartialEq)]
pub struct Rank {
    /// Which.
    pub rank: u32,
    /// Its process, 0 before it registered.
    pub pid: u32,
    /// What it does.
    pub state: State,
    /// Which CPU it is bound to.
    pub cpu: Option<u32>,
    /// Letter of the process state as in `ps`.
    pub process: Option<char>,
    /// Processor time so far, in seconds.
    pub cpu_seconds: f64,
    /// What it waits for; times are of its host's clock.
    pub wait: Option<Wait>,
    /// Where its book lies in its memory; 0: not told, and never told to another host.
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
pub enum Members {
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
pub struct Comm {
    /// Its number.
    pub number: u32,
    /// Its name; empty if it has none.
    pub name: String,
    /// How many members it has; `None`: an intercommunicator.
    pub size: Option<u32>,
    /// Its members.
    pub members: Members,
}

/// A rank, and what it waits for in detail.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The rank.
    pub rank: Rank,
    /// For how long it has waited.
    pub waited_ns: u64,
    /// Bytes of it are on their way between hosts.
    pub moves: bool,
    /// Where in its program it waits.
    pub place: Option<String>,
    /// Its operations; `None`: they could not be read.
    pub operations: Option<Operations>,
    /// The communicators of its wait and its operations, as far as they could be read.
    pub comms: Vec<Comm>,
}

impl Seen {
    /// A rank of which nothing is known.
    pub fn unseen(rank: u32) -> Self {
        let rank = Rank {
            rank,
            pid: 0,
            state: State::Absent,
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
            comms: Vec::new(),
        }
    }
}

impl Members {
    /// All of them, where they are told.
    pub fn list(&self) -> Option<Vec<u32>> {
        match self {
            Members::Untold => None,
            Members::Strided { first, stride, size } => Some(
                (0..*size)
                    .map(|index| first.wrapping_add(index.wrapping_mul(*stride)))
                    .collect(),
            ),
            Members::List(list) => Some(list.to_vec()),
        }
    }
}

/// A number that may be missing, as one more.
fn optional(number: Option<u32>) -> [u8; 4] {
    number.map_or(0, |number| number.wrapping_add(1)).to_le_bytes()
}

fn put_text(writer: Writer, text: &str) -> Writer {
    let mut end = text.len().min(LOOK_TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    writer.bytes(&text.as_bytes()[..end])
}

fn put_rank(writer: Writer, seen: &Seen) -> Writer {
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

fn put_details(writer: Writer, seen: &Seen, lists: &HashMap<Arc<[u32]>, u32>) -> Writer {
    let writer = put_text(writer, seen.place.as_deref().unwrap_or_default());
    let writer = match &seen.operations {
        None => writer.raw(u32::MAX.to_le_bytes()),
        Some(operations) => {
            let shown = &operations.list[..operations.list.len().min(PENDING_SHOWN)];
            let flags = if operations.more { MORE } else { 0 } | if operations.threads { THREADS } else { 0 };
            let writer = writer.raw((shown.len() as u32 | flags).to_le_bytes());
            let words = shown.iter().flat_map(operation_words);
            words.fold(writer, |writer, word| writer.raw(word.to_le_bytes()))
        }
    };
    let comms = &seen.comms[..seen.comms.len().min(COMMS_MAX)];
    let writer = writer.raw((comms.len() as u32).to_le_bytes());
    comms.iter().fold(writer, |writer, comm| {
        let writer = put_text(writer.raw(comm.number.to_le_bytes()), &comm.name).raw(optional(comm.size));
        match &comm.members {
            Members::Strided { first, stride, size } => [1, *first, *stride, *size]
                .into_iter()
                .fold(writer, |writer, word| writer.raw(word.to_le_bytes())),
            Members::List(list) => match lists.get(list) {
                Some(index) => writer.raw(2u32.to_le_bytes()).raw(index.to_le_bytes()),
                None => writer.raw(0u32.to_le_bytes()),
            },
            Members::Untold => writer.raw(0u32.to_le_bytes()),
        }
    })
}

/// Bytes of a look. Lists of members that several ranks show are written once.
pub fn encode(all: &[Seen]) -> Vec<u8> {
    let mut room = LOOK_RANKS_DETAILED_BYTES;
    let mut lists: HashMap<Arc<[u32]>, u32> = HashMap::new();
    let mut in_order = Vec::new();
    for comm in all.iter().flat_map(|seen| &seen.comms) {
        if let Members::List(list) = &comm.members
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
    let writer = Writer::new(KIND).raw((in_order.len() as u32).to_le_bytes());
    let writer = in_order.iter().fold(writer, |writer, list| {
        let writer = writer.raw((list.len() as u32).to_le_bytes());
        list.iter()
            .fold(writer, |writer, rank| writer.raw(rank.to_le_bytes()))
    });
    let writer = writer.raw((all.len() as u32).to_le_bytes());
    let writer = all.iter().fold(writer, |writer, seen| {
        let writer = put_rank(writer, seen);
        let details = put_details(Writer(Vec::new()), seen, &lists).0;
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

/// What a command has said for another host: its words, or why there are none.
///
/// # Errors
/// It is neither.
pub fn page(bytes: &[u8]) -> Result<std::result::Result<String, String>> {
    let (mark, words) = bytes.split_first().ok_or_else(|| damaged("it is empty"))?;
    let words = printable::lines(&String::from_utf8_lossy(words));
    match PAGE_MARKS.iter().position(|known| known == mark) {
        Some(0) => Ok(Ok(words)),
        Some(_) => Ok(Err(words)),
        None => Err(damaged("it is no command's")),
    }
}

fn text(r: &mut Reader<'_>) -> Result<String> {
    let text = r.text()?;
    Ok(printable::line(&text).chars().take(LOOK_TEXT_MAX).collect())
}

/// How many things follow, each of at least `least` bytes.
fn count(r: &mut Reader<'_>, least: usize, most: usize) -> Result<usize> {
    let count = r.u32()? as usize;
    if count > most || count > r.left() / least {
        return Err(damaged("it announces more than it holds"));
    }
    Ok(count)
}

fn u64_of(r: &mut Reader<'_>) -> Result<u64> {
    r.raw().map(u64::from_le_bytes)
}

fn flag(r: &mut Reader<'_>) -> Result<bool> {
    r.raw().map(|byte| byte != [0])
}

fn read_wait(r: &mut Reader<'_>) -> Result<(Option<Wait>, u64)> {
    if !flag(r)? {
        return Ok((None, 0));
    }
    let wait = Wait {
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
fn read_rank(r: &mut Reader<'_>) -> Result<Seen> {
    let (rank, pid) = (r.u32()?, r.u32()?);
    let [state] = r.raw()?;
    let cpu = r.u32()?.checked_sub(1);
    let [letter] = r.raw()?;
    let cpu_seconds = f64::from_le_bytes(r.raw()?);
    if rank >= RANKS_MAX || !(cpu_seconds.is_finite() && cpu_seconds >= 0.0) {
        return Err(damaged("there is no such rank"));
    }
    let [sent_messages, sent_bytes, unexpected] = [u64_of(r)?, u64_of(r)?, u64_of(r)?];
    let moves = flag(r)?;
    let (wait, waited_ns) = read_wait(r)?;
    let rank = Rank {
        rank,
        pid,
        state: State::from_code(state.into()),
        cpu,
        process: Some(char::from(letter)).filter(char::is_ascii_alphabetic),
        cpu_seconds,
        wait,
        book: 0,
        sent_messages,
        sent_bytes,
        unexpected,
    };
    Ok(Seen {
        rank,
        waited_ns,
        moves,
        place: None,
        operations: None,
        comms: Vec::new(),
    })
}

fn read_operations(r: &mut Reader<'_>) -> Result<Option<Operations>> {
    let head = r.u32()?;
    if head == u32::MAX {
        return Ok(None);
    }
    let count = (head & !(MORE | THREADS)) as usize;
    if count > PENDING_SHOWN {
        return Err(damaged("it announces more than it holds"));
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        let mut words = [0; OPERATION_WORDS];
        for word in &mut words {
            *word = u64_of(r)?;
        }
        list.push(operation(&words));
    }
    Ok(Some(Operations {
        list,
        more: head & MORE != 0,
        threads: head & THREADS != 0,
    }))
}

fn read_comm(r: &mut Reader<'_>, lists: &[Arc<[u32]>]) -> Result<Comm> {
    let (number, name, size) = (r.u32()?, text(r)?, r.u32()?.checked_sub(1));
    let members = match r.u32()? {
        0 => Members::Untold,
        1 => Members::Strided {
            first: r.u32()?,
            stride: r.u32()?,
            size: Some(r.u32()?)
                .filter(|size| *size <= RANKS_MAX)
                .ok_or_else(|| damaged("a communicator has more members than there are ranks"))?,
        },
        2 => lists
            .get(r.u32()? as usize)
            .cloned()
            .map(Members::List)
            .ok_or_else(|| damaged("there is no such list of members"))?,
        _ => return Err(damaged("members are of no known kind")),
    };
    Ok(Comm {
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
pub fn decode(message: &[u8]) -> Result<Vec<Seen>> {
    if message.len() > LOOK_BYTES_MAX {
        return Err(damaged("it is too long"));
    }
    let (kind, mut r) = Reader::new(message)?;
    if kind != KIND {
        return Err(damaged("it is no look"));
    }
    let mut lists: Vec<Arc<[u32]>> = Vec::new();
    for _ in 0..count(&mut r, 4, RANKS_MAX as usize)? {
        let members = count(&mut r, 4, RANKS_MAX as usize)?;
        lists.push((0..members).map(|_| r.u32()).collect::<Result<Vec<_>>>()?.into());
    }
    let mut all = Vec::new();
    for _ in 0..count(&mut r, 49, RANKS_MAX as usize)? {
        let mut seen = read_rank(&mut r)?;
        if flag(&mut r)? {
            seen.place = Some(text(&mut r)?).filter(|place| !place.is_empty());
            seen.operations = read_operations(&mut r)?;
            for _ in 0..count(&mut r, 16, COMMS_MAX)? {
                seen.comms.push(read_comm(&mut r, &lists)?);
            }
        }
        all.push(seen);
    }
    r.end(all)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use garonne_engine::api::{Origin, TypeMark};
    use garonne_engine::event::Pending;

    fn seen(rank: u32) -> Seen {
        let wait = Wait {
            call: 3,
            peer: -1,
            tag: -2,
            comm: 1 << 40,
            bytes: 5,
            since_ns: 77,
            site: 99,
        };
        let list: Arc<[u32]> = vec![4, 2, 9].into();
        Seen {
            rank: Rank {
                rank,
                pid: 5,
                state: State::Running,
                cpu: Some(0),
                process: Some('S'),
                cpu_seconds: 1.5,
                wait: Some(wait),
                book: 0,
                sent_messages: 1,
                sent_bytes: 2,
                unexpected: 3,
            },
            waited_ns: 12,
            moves: true,
            place: Some("a.c:3".into()),
            operations: Some(Operations {
                list: vec![Pending {
                    sends: true,
                    context: 8,
                    peer: Some(3),
                    tag: None,
                    bytes: 9,
                    origin: Origin {
                        call: 1,
                        kind: 2,
                        mark: TypeMark::NONE,
                        site: 3,
                    },
                }],
                more: true,
                threads: false,
            }),
            comms: vec![
                Comm {
                    number: 1,
                    name: "halo".into(),
                    size: Some(3),
                    members: Members::List(list),
                },
                Comm {
                    number: 0,
                    name: String::new(),
                    size: None,
                    members: Members::Untold,
                },
            ],
        }
    }

    /// What two ranks show, one of them with all that there may be.
    pub fn some() -> Vec<Seen> {
        vec![seen(0), Seen::unseen(7)]
    }

    #[test]
    fn a_look_reads_back_as_written_and_writes_members_once() {
        let all = [seen(0), seen(7)];
        let bytes = encode(&all);
        assert_eq!(decode(&bytes).unwrap(), all);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
        let one = encode(&all[..1]).len();
        // The head, the number of ranks, and the list of three with its length and the number of lists.
        assert_eq!(bytes.len(), 2 * one - 8 - 4 - 4 - 4 - 3 * 4);
    }

    #[test]
    fn a_look_cut_or_changed_anywhere_is_an_error_or_another_look() {
        let bytes = encode(&[seen(0), seen(7)]);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "cut to {cut}");
            for wrong in [0, 0xff, bytes[cut] ^ 0x80] {
                let mut changed = bytes.clone();
                changed[cut] = wrong;
                let _ = decode(&changed);
            }
        }
        assert!(decode(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn a_page_is_words_or_why_there_are_none() {
        assert_eq!(page(b"+a\nb\x1b[2J").unwrap(), Ok("a\nb [2J".to_owned()));
        assert_eq!(page(b"-why").unwrap(), Err("why".to_owned()));
        assert!(page(b"").is_err() && page(b"a").is_err());
    }

    #[test]
    fn what_a_terminal_would_obey_does_not_come_through() {
        let mut rank = seen(0);
        rank.place = Some("a\x1b[2Jb".into());
        assert_eq!(
            decode(&encode(&[rank])).unwrap()[0].place.as_deref(),
            Some("a [2Jb")
        );
    }

    #[test]
    fn a_host_full_of_ranks_fits_though_the_last_are_told_without_details() {
        let mut one = seen(0);
        one.place = Some("x".repeat(LOOK_TEXT_MAX));
        one.operations = Some(Operations {
            list: vec![Pending::default(); PENDING_SHOWN],
            ..Operations::default()
        });
        let of_rank = |rank| {
            let mut seen = one.clone();
            seen.rank.rank = rank;
            seen.comms[0].members = Members::List(vec![rank; 1000].into());
            seen
        };
        let all: Vec<_> = (0..RANKS_MAX).map(of_rank).collect();
        let bytes = encode(&all);
        assert!(bytes.len() <= LOOK_BYTES_MAX, "{}", bytes.len());
        let again = decode(&bytes).unwrap();
        assert_eq!(again.len(), all.len());
        assert_eq!(again[0], all[0]);
        assert_eq!(again.last().unwrap().operations, None);
        assert_eq!(again.last().unwrap().rank, all.last().unwrap().rank);
    }
}
