//! Events of a rank that can be understood without the rank's memory: timelines and overlap are
//! made of them, live or from a file.

use crate::limits::SITES;
use crate::record::{COMM_NAME_BYTES, NAME_PART, OperationKind, Record, RecordKind};
use std::collections::HashMap;
use std::sync::Arc;

/// A name that many events share.
pub type SharedName = Arc<str>;

/// Contexts that each communicator has; the first is that of the program's own messages.
pub const CONTEXTS_PER_COMM: u32 = 8;

/// Bits of a context below those that name a rank's shard.
pub const CONTEXT_BITS: u32 = 28;

/// The number of the communicator that a context belongs to.
pub fn communicator_of(context: u32) -> u32 {
    (context & ((1 << CONTEXT_BITS) - 1)) / CONTEXTS_PER_COMM
}

/// Returns whether an operation's tag is the program's: what a collective sends bears a number of
/// its own.
pub fn has_tag(side: OperationKind, context: u32) -> bool {
    side != OperationKind::Collective && context.is_multiple_of(CONTEXTS_PER_COMM)
}

/// A message, equally named by both of its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    /// Context of its communicator.
    pub context: u32,
    /// Process that sent it.
    pub from: u32,
    /// Process that it is for.
    pub to: u32,
    /// Number of the message in its stream.
    pub sequence: u32,
}

/// Progress of a rank's communication while the rank computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressMode {
    /// The mode is not known.
    #[default]
    Unknown,
    /// By a progress thread, or it would if anything needed it.
    On,
    /// Asynchronous progress is not switched on.
    Off,
    /// The system gave no thread.
    Refused,
}

impl ProgressMode {
    /// Returns the mode's name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::On => "on",
            Self::Off => "off",
            Self::Refused => "refused",
        }
    }

    /// Returns the mode that a file names.
    pub fn from_name(name: &str) -> Self {
        [Self::On, Self::Off, Self::Refused]
            .into_iter()
            .find(|state| state.name() == name)
            .unwrap_or_default()
    }
}

/// Kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A thread entered an MPI call.
    Enter {
        /// Name of the call.
        call: SharedName,
        /// Place where it stands.
        site: SharedName,
    },
    /// The thread left the call.
    Leave {
        /// Name of the call.
        call: SharedName,
    },
    /// An operation was started.
    Start {
        /// The rank's name for it.
        operation: u64,
        /// Kind of operation.
        side: OperationKind,
        /// Name of the call that started the operation.
        call: SharedName,
        /// Where.
        site: SharedName,
        /// Context of its message or collective.
        context: u32,
        /// The tag, -1 for any. Whose it is tells [`has_tag`].
        tag: i32,
        /// The other process, `None` for any or several.
        peer: Option<u32>,
        /// Bytes of a send, room of a receive.
        bytes: u64,
    },
    /// The operation is complete.
    Done {
        /// The rank's name for it.
        operation: u64,
        /// Message of the operation, if it has another side.
        message: Option<MessageId>,
        /// Bytes of the message.
        bytes: u64,
    },
    /// Bytes were moved, until the event's time.
    Work {
        /// For this operation of the rank.
        operation: u64,
        /// The other process.
        peer: Option<u32>,
        /// When it began.
        since_ns: u64,
        /// How many.
        bytes: u64,
    },
    /// A task of the process was run, until the event's time.
    Run {
        /// When it began.
        since_ns: u64,
        /// The task is finished; otherwise it is to run again.
        finished: bool,
    },
    /// The rank's progress thread begins a turn.
    TurnBegin,
    /// The rank's progress thread ends its turn.
    TurnEnd,
    /// A waiter goes to sleep.
    SleepBegin,
    /// The waiter is awake.
    SleepEnd,
    /// The call that the thread is in is this collective.
    Collective {
        /// Kind and number of the collective, and its communicator.
        name: SharedName,
    },
    /// Mode in which the rank's communication advances while the rank computes.
    State(ProgressMode),
    /// Number of records that were overwritten before they were read.
    Lost(u64),
    /// Name that the rank gives to a communicator.
    Named {
        /// The communicator's number.
        number: u32,
        /// Name of the communicator.
        name: SharedName,
    },
    /// The rank's process has ended before MPI_Finalize.
    Died,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The rank.
    pub rank: u32,
    /// The thread.
    pub thread: u32,
    /// The core.
    pub cpu: u16,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Kind of event.
    pub kind: EventKind,
}

impl TraceEvent {
    /// Moves all ranks on by `base`: those of a later world of the same job.
    pub fn shift(&mut self, base: u32) {
        let on = |rank: &mut u32| *rank = rank.saturating_add(base);
        on(&mut self.rank);
        match &mut self.kind {
            EventKind::Start { peer, .. } | EventKind::Work { peer, .. } => {
                peer.iter_mut().for_each(on)
            }
            EventKind::Done { message, .. } => message.iter_mut().for_each(|message| {
                on(&mut message.from);
                on(&mut message.to);
            }),
            _ => {}
        }
    }
}

/// Gives names to numbers of calls and to places in programs.
pub trait NameSource {
    /// A function by its number.
    fn call(&mut self, number: u16) -> String;
    /// A return address of a rank's process.
    fn site(&mut self, rank: u32, address: u64) -> String;
    /// A collective by the tag of its messages, without its communicator.
    fn collective(&mut self, tag: i32) -> String;
}

/// Turns records into events, and asks its source for each name once. Owned by the reader of one
/// world; records of a rank must come in their order.
pub struct RecordDecoder<N> {
    names: N,
    calls: HashMap<u16, SharedName>,
    sites: HashMap<(u32, u64), SharedName>,
    /// Names of communicators by rank and number, as far as their parts have come.
    communicators: HashMap<(u32, u32), Vec<u8>>,
    unknown: SharedName,
}

impl<N: NameSource> RecordDecoder<N> {
    /// A decoder with these names.
    pub fn new(names: N) -> Self {
        Self {
            names,
            calls: HashMap::new(),
            sites: HashMap::new(),
            communicators: HashMap::new(),
            unknown: "an unknown place".into(),
        }
    }

    /// Returns the source of names.
    pub fn names(&mut self) -> &mut N {
        &mut self.names
    }

    fn call(&mut self, number: u16) -> SharedName {
        let names = &mut self.names;
        self.calls
            .entry(number)
            .or_insert_with(|| names.call(number).into())
            .clone()
    }

    fn site(&mut self, rank: u32, address: u64) -> SharedName {
        if let Some(known) = self.sites.get(&(rank, address)) {
            return known.clone();
        }
        if address == 0 || self.sites.len() >= SITES {
            return self.unknown.clone();
        }
        let name: SharedName = self.names.site(rank, address).into();
        self.sites.insert((rank, address), name.clone());
        name
    }

    /// Adds a part to a communicator's name; the name, if that is whole now.
    fn named(&mut self, rank: u32, record: &Record) -> Option<EventKind> {
        let key = (rank, record.context);
        let len = usize::try_from(record.tag).ok()?;
        let from = (record.sequence as usize).checked_mul(NAME_PART)?;
        let is_known = self.communicators.contains_key(&key);
        if len > COMM_NAME_BYTES || !is_known && self.communicators.len() >= SITES {
            return None;
        }
        let bytes = self.communicators.entry(key).or_default();
        // A part that was lost leaves the communicator without a name.
        bytes.truncate(from);
        if bytes.len() != from {
            bytes.clear();
            return None;
        }
        bytes.extend(record.name_part());
        bytes.truncate(len);
        let is_whole = bytes.len() == len;
        is_whole.then(|| EventKind::Named {
            number: record.context,
            name: printable(bytes).into(),
        })
    }

    /// Returns how people call the communicator of a context: its name on this rank, or its number.
    pub fn communicator(&mut self, rank: u32, context: u32) -> String {
        let number = communicator_of(context);
        match self.communicators.get(&(rank, number)) {
            Some(name) if !name.is_empty() => printable(name),
            _ => format!("comm #{number}"),
        }
    }

    /// The collective of these messages, with its communicator.
    pub fn collective(&mut self, rank: u32, context: u32, tag: i32) -> SharedName {
        let call = self.names.collective(tag);
        format!("{call} of {}", self.communicator(rank, context)).into()
    }

    /// A call that a thread of `rank` is in, by its number and return address.
    pub fn entered(&mut self, rank: u32, call: u16, site: u64) -> EventKind {
        EventKind::Enter {
            call: self.call(call),
            site: self.site(rank, site),
        }
    }

    /// Decodes a record of `rank`; `None`: the record completes no event yet.
    pub fn decode(&mut self, rank: u32, record: &Record) -> Option<TraceEvent> {
        let peer = (record.peer != u32::MAX).then_some(record.peer);
        let what = match record.kind {
            RecordKind::Enter => self.entered(rank, record.call, record.site),
            RecordKind::Leave => EventKind::Leave {
                call: self.call(record.call),
            },
            RecordKind::Start => EventKind::Start {
                operation: record.operation,
                side: record.operation_kind,
                call: self.call(record.call),
                site: self.site(rank, record.site),
                context: record.context,
                tag: record.tag,
                peer,
                bytes: record.len,
            },
            RecordKind::Done => EventKind::Done {
                operation: record.operation,
                message: message(rank, record),
                bytes: record.len,
            },
            RecordKind::Work => EventKind::Work {
                operation: record.operation,
                peer,
                since_ns: record.at_ns.saturating_sub(record.site),
                bytes: record.len,
            },
            RecordKind::Run => EventKind::Run {
                since_ns: record.at_ns.saturating_sub(record.site),
                finished: record.len != 0,
            },
            RecordKind::TurnBegin => EventKind::TurnBegin,
            RecordKind::TurnEnd => EventKind::TurnEnd,
            RecordKind::SleepBegin => EventKind::SleepBegin,
            RecordKind::SleepEnd => EventKind::SleepEnd,
            RecordKind::Collective => EventKind::Collective {
                name: self.collective(rank, record.context, record.tag),
            },
            RecordKind::Named => self.named(rank, record)?,
        };
        Some(TraceEvent {
            rank,
            thread: record.thread,
            cpu: record.cpu,
            at_ns: record.at_ns,
            kind: what,
        })
    }
}

/// A name that the program gave, of any bytes, as text for a terminal.
fn printable(bytes: &[u8]) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    String::from_utf8_lossy(bytes).chars().map(clean).collect()
}

/// The message of an operation that is over. A rank's messages to itself have no other side to wait
/// for.
fn message(rank: u32, record: &Record) -> Option<MessageId> {
    if record.peer == u32::MAX || record.peer == rank {
        return None;
    }
    let (from, to) = match record.operation_kind {
        OperationKind::Send => (rank, record.peer),
        OperationKind::Receive => (record.peer, rank),
        OperationKind::Collective => return None,
    };
    Some(MessageId {
        context: record.context,
        from,
        to,
        sequence: record.sequence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told(u32);

    impl NameSource for Told {
        fn call(&mut self, number: u16) -> String {
            format!("MPI_{number}")
        }

        fn site(&mut self, rank: u32, address: u64) -> String {
            self.0 += 1;
            format!("{rank}.c:{address}")
        }

        fn collective(&mut self, tag: i32) -> String {
            format!("MPI_Bcast #{tag}")
        }
    }

    #[test]
    fn both_sides_name_a_message_alike() {
        let mut decoder = RecordDecoder::new(Told(0));
        let done = |side, peer| Record {
            operation_kind: side,
            peer,
            context: 4,
            sequence: 9,
            ..Record::new(RecordKind::Done)
        };
        let of = |seen: TraceEvent| match seen.kind {
            EventKind::Done { message, .. } => message,
            other => panic!("{other:?}"),
        };
        let sent = of(decoder.decode(1, &done(OperationKind::Send, 2)).unwrap());
        let received = of(decoder.decode(2, &done(OperationKind::Receive, 1)).unwrap());
        assert!(sent.is_some());
        assert_eq!(sent, received);
        assert_eq!(
            of(decoder.decode(1, &done(OperationKind::Send, 1)).unwrap()),
            None
        );
    }

    #[test]
    fn only_messages_of_the_program_have_tags() {
        assert!(has_tag(OperationKind::Send, 0) && has_tag(OperationKind::Receive, 3 << 28 | 16));
        assert!(!has_tag(OperationKind::Send, 1) && !has_tag(OperationKind::Receive, 18));
        assert!(!has_tag(OperationKind::Collective, 8));
    }

    #[test]
    fn a_run_has_its_beginning_and_what_it_said() {
        let run = Record {
            at_ns: 900,
            site: 300,
            len: 1,
            cpu: 5,
            ..Record::new(RecordKind::Run)
        };
        let seen = RecordDecoder::new(Told(0)).decode(3, &run).unwrap();
        assert_eq!((seen.rank, seen.cpu, seen.at_ns), (3, 5, 900));
        assert_eq!(
            seen.kind,
            EventKind::Run {
                since_ns: 600,
                finished: true
            }
        );
    }

    #[test]
    fn a_place_is_asked_for_once_per_rank() {
        let mut decoder = RecordDecoder::new(Told(0));
        let record = Record {
            site: 58,
            call: 3,
            ..Record::new(RecordKind::Enter)
        };
        for rank in [0, 0, 1, 0, 1] {
            let EventKind::Enter { call, site } = decoder.decode(rank, &record).unwrap().kind
            else {
                panic!("an entry");
            };
            assert_eq!((&*call, &*site), ("MPI_3", format!("{rank}.c:58").as_str()));
        }
        assert_eq!(decoder.names.0, 2);
    }

    #[test]
    fn a_communicator_is_called_by_its_name_once_all_parts_of_that_have_come() {
        let mut decoder = RecordDecoder::new(Told(0));
        let collective = Record {
            context: 3 * CONTEXTS_PER_COMM + 1,
            tag: 5,
            ..Record::new(RecordKind::Collective)
        };
        let mut called = |records: Vec<Record>, rank| {
            for record in records {
                let _ = decoder.decode(0, &record);
            }
            match decoder.decode(rank, &collective).unwrap().kind {
                EventKind::Collective { name } => name.to_string(),
                other => panic!("{other:?}"),
            }
        };
        let long = "a name of more than one part\u{1b}";
        let parts: Vec<Record> = Record::named(3, long).collect();
        assert_eq!(parts.len(), 2);
        assert_eq!(
            called(vec![parts[1]], 0),
            "MPI_Bcast #5 of comm #3",
            "a lost part"
        );
        assert_eq!(
            called(parts, 0),
            "MPI_Bcast #5 of a name of more than one part "
        );
        assert_eq!(called(vec![], 1), "MPI_Bcast #5 of comm #3", "another rank");
        let cut = "ü".repeat(COMM_NAME_BYTES);
        assert_eq!(
            called(Record::named(3, &cut).collect(), 0),
            format!("MPI_Bcast #5 of {}", "ü".repeat(COMM_NAME_BYTES / 2))
        );
    }
}
