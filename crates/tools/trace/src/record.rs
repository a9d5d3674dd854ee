//! A record as it lies in a rank's trace ring (docs/reference/job.md, clause B10): seven words,
//! written by the rank, read by whoever traces it.

use garonne_sync::trace_ring::RecordWords;

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// A thread of the program entered an MPI call.
    Enter = 1,
    /// A thread of the program left the call.
    Leave = 2,
    /// An operation was started.
    Start = 3,
    /// The operation is complete; a receive knows its message now.
    Done = 4,
    /// Bytes of an operation were moved, until the record's time.
    Work = 5,
    /// The rank's progress thread was called and begins.
    TurnBegin = 6,
    /// The progress thread leaves the engine.
    TurnEnd = 7,
    /// A waiter goes to sleep.
    SleepBegin = 8,
    /// The waiter is awake again.
    SleepEnd = 9,
    /// The call is a collective: its context and tag.
    Collective = 10,
    /// A task was run, until the record's time.
    Run = 11,
    /// A part of a communicator's name ([`Record::named`]).
    Named = 12,
}

const KINDS: [RecordKind; 12] = [
    RecordKind::Enter,
    RecordKind::Leave,
    RecordKind::Start,
    RecordKind::Done,
    RecordKind::Work,
    RecordKind::TurnBegin,
    RecordKind::TurnEnd,
    RecordKind::SleepBegin,
    RecordKind::SleepEnd,
    RecordKind::Collective,
    RecordKind::Run,
    RecordKind::Named,
];

/// Kinds of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// A send.
    #[default]
    Send = 0,
    /// A receive.
    Receive = 1,
    /// A nonblocking collective.
    Collective = 2,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, CLOCK_MONOTONIC in nanoseconds.
    pub at_ns: u64,
    /// Kind of record.
    pub kind: RecordKind,
    /// Kind of operation.
    pub operation_kind: OperationKind,
    /// Number of the MPI function, 0 for none.
    pub call: u16,
    /// The thread, by its id in the system.
    pub thread: u32,
    /// Return address of the call; of [`RecordKind::Work`] and [`RecordKind::Run`] its duration in
    /// nanoseconds.
    pub site: u64,
    /// The other process; `u32::MAX` for any or none.
    pub peer: u32,
    /// Context of the message.
    pub context: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Number of the message in the stream of its context from its source.
    pub sequence: u32,
    /// Bytes, below 2^48; of [`RecordKind::Run`] 1 if the task is finished, 0 if it is to run
    /// again.
    pub len: u64,
    /// The core.
    pub cpu: u16,
    /// The rank's name for the operation.
    pub operation: u64,
}

const LEN_BITS: u32 = 48;

/// Bytes of a communicator's name that are recorded; as many as a rank's wait report has.
pub const COMM_NAME_BYTES: usize = 88;

/// Bytes of a name that one record holds.
pub const NAME_PART: usize = 16;

impl Record {
    /// A record of this kind about nothing.
    pub fn new(kind: RecordKind) -> Self {
        Self {
            at_ns: 0,
            kind,
            operation_kind: OperationKind::Send,
            call: 0,
            thread: 0,
            site: 0,
            peer: u32::MAX,
            context: 0,
            tag: 0,
            sequence: 0,
            len: 0,
            cpu: 0,
            operation: 0,
        }
    }

    /// Makes the records for a communicator's name, of which the first [`COMM_NAME_BYTES`] count.
    /// The communicator's number stands in place of the context, the name's length in place of the
    /// tag, and the part's number in place of the sequence.
    pub fn named(number: u32, name: &str) -> impl Iterator<Item = Self> {
        let mut end = name.len().min(COMM_NAME_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let bytes = &name.as_bytes()[..end];
        (0..bytes.len().div_ceil(NAME_PART).max(1)).map(move |part| {
            let word = |from: usize| {
                u64::from_le_bytes(std::array::from_fn(|i| {
                    bytes.get(from + i).copied().unwrap_or(0)
                }))
            };
            Self {
                context: number,
                tag: bytes.len() as i32,
                sequence: part as u32,
                site: word(part * NAME_PART),
                operation: word(part * NAME_PART + 8),
                ..Self::new(RecordKind::Named)
            }
        })
    }

    /// The bytes of a name that a part of it holds, behind those of the parts before it.
    pub fn name_part(&self) -> [u8; NAME_PART] {
        let mut part = [0; NAME_PART];
        part[..8].copy_from_slice(&self.site.to_le_bytes());
        part[8..].copy_from_slice(&self.operation.to_le_bytes());
        part
    }

    /// The words that lie in the trace ring.
    pub fn encode(&self) -> RecordWords {
        let head = u64::from(self.kind as u8)
            | u64::from(self.operation_kind as u8) << 8
            | u64::from(self.call) << 16
            | u64::from(self.thread) << 32;
        [
            self.at_ns,
            head,
            self.site,
            u64::from(self.peer) | u64::from(self.context) << 32,
            u64::from(self.tag as u32) | u64::from(self.sequence) << 32,
            self.len & ((1 << LEN_BITS) - 1) | u64::from(self.cpu) << LEN_BITS,
            self.operation,
        ]
    }

    /// Decodes the words of a record; `None` if they are no record.
    pub fn decode(words: &RecordWords) -> Option<Self> {
        let [at_ns, head, site, parties, envelope, size, operation] = *words;
        let kind = *KINDS.get(usize::from((head as u8).checked_sub(1)?))?;
        let side = match (head >> 8) as u8 {
            0 => OperationKind::Send,
            1 => OperationKind::Receive,
            2 => OperationKind::Collective,
            _ => return None,
        };
        Some(Self {
            at_ns,
            kind,
            operation_kind: side,
            call: (head >> 16) as u16,
            thread: (head >> 32) as u32,
            site,
            peer: parties as u32,
            context: (parties >> 32) as u32,
            tag: envelope as u32 as i32,
            sequence: (envelope >> 32) as u32,
            len: size & ((1 << LEN_BITS) - 1),
            cpu: (size >> LEN_BITS) as u16,
            operation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        for kind in KINDS {
            let record = Record {
                at_ns: u64::MAX,
                operation_kind: OperationKind::Collective,
                call: 700,
                thread: u32::MAX,
                site: 1 << 63,
                peer: 7,
                context: u32::MAX,
                tag: -5,
                sequence: 9,
                len: (1 << LEN_BITS) - 1,
                cpu: u16::MAX,
                operation: 3 << 40,
                ..Record::new(kind)
            };
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }

    proptest! {
        #[test]
        fn any_words_are_a_record_that_writes_them_again_or_none(words: [u64; 7]) {
            if let Some(record) = Record::decode(&words) {
                prop_assert_eq!(record.encode(), words);
            }
        }
    }
}
