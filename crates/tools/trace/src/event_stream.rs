//! Events of one host as bytes on their way to another (docs/reference/job.md, D14). Frames can be
//! read alone, but for names that earlier ones gave.
//!
//! [`EventWriter`] makes frames at the host; [`EventReader`] reads them where all hosts are put
//! together. A frame may be missing: the next says how many events came before it, and a name that
//! was lost with it is an unknown place. Frames come from other processes: any bytes are read as
//! something or refused. Bounded: a name has [`NAME_BYTES`], a host [`SITES`] of them, a frame
//! [`FRAME_BYTES`] and what one event takes.

use crate::event::{EventKind, MessageId, ProgressMode, SharedName, TraceEvent};
use crate::limits::{FRAME_BYTES, NAME_BYTES, SITES};
use crate::record::OperationKind;
use std::collections::HashMap;

/// No name, no other process.
const NONE: u32 = u32::MAX;

const NAME: u8 = 0;
const ENTER: u8 = 1;
const LEAVE: u8 = 2;
const START: u8 = 3;
const DONE: u8 = 4;
const WORK: u8 = 5;
const TURN_BEGIN: u8 = 6;
const TURN_END: u8 = 7;
const SLEEP_BEGIN: u8 = 8;
const SLEEP_END: u8 = 9;
const COLLECTIVE: u8 = 10;
const STATE: u8 = 11;
const LOST: u8 = 12;
const MESSAGE: u8 = 13;
const END: u8 = 14;
const RUN: u8 = 15;
const NAMED: u8 = 16;
const DIED: u8 = 17;

/// The states of [`EventKind::State`], by their codes.
const STATES: [ProgressMode; 4] = [
    ProgressMode::Unknown,
    ProgressMode::On,
    ProgressMode::Off,
    ProgressMode::Refused,
];
const SIDES: [OperationKind; 3] = [
    OperationKind::Send,
    OperationKind::Receive,
    OperationKind::Collective,
];

/// Writes events into frames. Give it events with `see`, take full frames with `take`, and call
/// `finish` for the last one.
#[derive(Debug, Default)]
pub struct EventWriter {
    names: HashMap<SharedName, u32>,
    /// Events in frames that were taken.
    before: u64,
    events: u64,
    body: Vec<u8>,
}

impl EventWriter {
    /// Adds an event.
    pub fn see(&mut self, seen: &TraceEvent) {
        let kind = match &seen.kind {
            EventKind::Enter { .. } => ENTER,
            EventKind::Leave { .. } => LEAVE,
            EventKind::Start { .. } => START,
            EventKind::Done { message: None, .. } => DONE,
            EventKind::Done {
                message: Some(_), ..
            } => MESSAGE,
            EventKind::Work { .. } => WORK,
            EventKind::Run { .. } => RUN,
            EventKind::TurnBegin => TURN_BEGIN,
            EventKind::TurnEnd => TURN_END,
            EventKind::SleepBegin => SLEEP_BEGIN,
            EventKind::SleepEnd => SLEEP_END,
            EventKind::Collective { .. } => COLLECTIVE,
            EventKind::State(_) => STATE,
            EventKind::Lost(_) => LOST,
            EventKind::Named { .. } => NAMED,
            EventKind::Died => DIED,
        };
        // Names go before the event that bears them.
        let (call, site) = match &seen.kind {
            EventKind::Enter { call, site } | EventKind::Start { call, site, .. } => {
                (self.name(call), self.name(site))
            }
            EventKind::Leave { call } => (self.name(call), NONE),
            _ => (NONE, NONE),
        };
        self.events += 1;
        self.body.push(kind);
        self.word(seen.rank);
        self.word(seen.thread);
        self.body.extend(seen.cpu.to_le_bytes());
        self.long(seen.at_ns);
        match &seen.kind {
            EventKind::Enter { .. } => [call, site].into_iter().for_each(|word| self.word(word)),
            EventKind::Leave { .. } => self.word(call),
            EventKind::Start {
                operation,
                side,
                context,
                tag,
                peer,
                bytes,
                ..
            } => {
                self.long(*operation);
                self.body.push(*side as u8);
                for word in [call, site, *context, *tag as u32, peer.unwrap_or(NONE)] {
                    self.word(word);
                }
                self.long(*bytes);
            }
            EventKind::Done {
                operation,
                message,
                bytes,
            } => {
                self.long(*operation);
                self.long(*bytes);
                if let Some(message) = message {
                    for word in [message.context, message.from, message.to, message.sequence] {
                        self.word(word);
                    }
                }
            }
            EventKind::Work {
                operation,
                peer,
                since_ns,
                bytes,
            } => {
                self.long(*operation);
                self.word(peer.unwrap_or(NONE));
                self.long(*since_ns);
                self.long(*bytes);
            }
            EventKind::Run { since_ns, finished } => {
                self.long(*since_ns);
                self.body.push(u8::from(*finished));
            }
            EventKind::Collective { name } => self.text(name),
            EventKind::State(state) => {
                let code = STATES.iter().position(|known| known == state).unwrap_or(0);
                self.body.push(code as u8);
            }
            EventKind::Lost(records) => self.long(*records),
            EventKind::Named { number, name } => {
                self.word(*number);
                self.text(name);
            }
            EventKind::TurnBegin
            | EventKind::TurnEnd
            | EventKind::SleepBegin
            | EventKind::SleepEnd
            | EventKind::Died => {}
        }
    }

    /// The frame of what was added, if it has this many bytes already.
    pub fn take(&mut self, least: usize) -> Option<Vec<u8>> {
        if self.body.len() < least.max(1) {
            return None;
        }
        Some(self.close())
    }

    /// Returns whether a frame is full.
    pub fn is_full(&self) -> bool {
        self.body.len() >= FRAME_BYTES
    }

    /// A frame in any case: of a host of which nothing was seen it says that.
    pub fn close(&mut self) -> Vec<u8> {
        let mut frame = self.before.to_le_bytes().to_vec();
        frame.append(&mut self.body);
        self.before += self.events;
        self.events = 0;
        frame
    }

    /// The last frame: it says that all was told.
    pub fn finish(mut self) -> Vec<u8> {
        self.body.push(END);
        self.close()
    }

    fn word(&mut self, word: u32) {
        self.body.extend(word.to_le_bytes());
    }

    fn long(&mut self, word: u64) {
        self.body.extend(word.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        let mut end = text.len().min(NAME_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.body.extend((end as u16).to_le_bytes());
        self.body.extend(&text.as_bytes()[..end]);
    }

    /// The number of a name, which is told when it is first borne.
    fn name(&mut self, name: &SharedName) -> u32 {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        let number = self.names.len() as u32;
        if number as usize >= SITES {
            return NONE;
        }
        self.names.insert(name.clone(), number);
        self.body.push(NAME);
        self.word(number);
        self.text(name);
        number
    }
}

/// A frame that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedFrame;

/// Reads the frames of one host in their order, and counts the events that were lost with missing
/// frames.
#[derive(Debug)]
pub struct EventReader {
    names: HashMap<u32, SharedName>,
    unknown: SharedName,
    events: u64,
    over: bool,
}

impl Default for EventReader {
    fn default() -> Self {
        Self {
            names: HashMap::new(),
            unknown: "an unknown place".into(),
            events: 0,
            over: false,
        }
    }
}

/// A reader's place in a frame.
struct FrameCursor<'a>(&'a [u8]);

impl<'a> FrameCursor<'a> {
    fn some(&mut self, len: usize) -> Result<&'a [u8], MalformedFrame> {
        let (some, rest) = self.0.split_at_checked(len).ok_or(MalformedFrame)?;
        self.0 = rest;
        Ok(some)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedFrame> {
        self.some(N)?.try_into().map_err(|_| MalformedFrame)
    }

    fn byte(&mut self) -> Result<u8, MalformedFrame> {
        self.array().map(|[byte]| byte)
    }

    fn word(&mut self) -> Result<u32, MalformedFrame> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, MalformedFrame> {
        self.array().map(u64::from_le_bytes)
    }

    fn process(&mut self) -> Result<Option<u32>, MalformedFrame> {
        self.word().map(|word| (word != NONE).then_some(word))
    }

    fn text(&mut self) -> Result<SharedName, MalformedFrame> {
        let len = usize::from(self.array().map(u16::from_le_bytes)?);
        if len > NAME_BYTES {
            return Err(MalformedFrame);
        }
        let text = str::from_utf8(self.some(len)?).map_err(|_| MalformedFrame)?;
        // It is printed on somebody's terminal.
        let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
        Ok(text.chars().map(clean).collect::<String>().into())
    }
}

impl EventReader {
    /// Reads a frame; gives how many events before it have not come.
    ///
    /// # Errors
    /// It is damaged: what was read of it before that counts.
    pub fn read(
        &mut self,
        frame: &[u8],
        each: &mut dyn FnMut(TraceEvent),
    ) -> Result<u64, MalformedFrame> {
        let mut bytes = FrameCursor(frame);
        let before = bytes.long()?;
        // None comes twice.
        let lost = before.checked_sub(self.events).ok_or(MalformedFrame)?;
        self.events = before;
        while !bytes.0.is_empty() {
            match bytes.byte()? {
                NAME => {
                    let (number, name) = (bytes.word()?, bytes.text()?);
                    if number as usize >= SITES {
                        return Err(MalformedFrame);
                    }
                    self.names.insert(number, name);
                }
                END => self.over = true,
                kind => {
                    each(self.event(kind, &mut bytes)?);
                    self.events = self.events.checked_add(1).ok_or(MalformedFrame)?;
                }
            }
        }
        Ok(lost)
    }

    /// Returns whether the host has said that it has told all.
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn name(&self, bytes: &mut FrameCursor<'_>) -> Result<SharedName, MalformedFrame> {
        let number = bytes.word()?;
        Ok(self.names.get(&number).unwrap_or(&self.unknown).clone())
    }

    fn event(&self, kind: u8, bytes: &mut FrameCursor<'_>) -> Result<TraceEvent, MalformedFrame> {
        let (rank, thread) = (bytes.word()?, bytes.word()?);
        let cpu = bytes.array().map(u16::from_le_bytes)?;
        let at_ns = bytes.long()?;
        let what = match kind {
            ENTER => EventKind::Enter {
                call: self.name(bytes)?,
                site: self.name(bytes)?,
            },
            LEAVE => EventKind::Leave {
                call: self.name(bytes)?,
            },
            START => EventKind::Start {
                operation: bytes.long()?,
                side: *SIDES
                    .get(usize::from(bytes.byte()?))
                    .ok_or(MalformedFrame)?,
                call: self.name(bytes)?,
                site: self.name(bytes)?,
                context: bytes.word()?,
                tag: bytes.word()? as i32,
                peer: bytes.process()?,
                bytes: bytes.long()?,
            },
            DONE | MESSAGE => {
                let (operation, len) = (bytes.long()?, bytes.long()?);
                let message = match kind {
                    DONE => None,
                    _ => Some(MessageId {
                        context: bytes.word()?,
                        from: bytes.word()?,
                        to: bytes.word()?,
                        sequence: bytes.word()?,
                    }),
                };
                EventKind::Done {
                    operation,
                    message,
                    bytes: len,
                }
            }
            WORK => EventKind::Work {
                operation: bytes.long()?,
                peer: bytes.process()?,
                since_ns: bytes.long()?,
                bytes: bytes.long()?,
            },
            RUN => EventKind::Run {
                since_ns: bytes.long()?,
                finished: match bytes.byte()? {
                    0 => false,
                    1 => true,
                    _ => return Err(MalformedFrame),
                },
            },
            TURN_BEGIN => EventKind::TurnBegin,
            TURN_END => EventKind::TurnEnd,
            SLEEP_BEGIN => EventKind::SleepBegin,
            SLEEP_END => EventKind::SleepEnd,
            COLLECTIVE => EventKind::Collective {
                name: bytes.text()?,
            },
            STATE => EventKind::State(
                *STATES
                    .get(usize::from(bytes.byte()?))
                    .ok_or(MalformedFrame)?,
            ),
            LOST => EventKind::Lost(bytes.long()?),
            NAMED => EventKind::Named {
                number: bytes.word()?,
                name: bytes.text()?,
            },
            DIED => EventKind::Died,
            _ => return Err(MalformedFrame),
        };
        Ok(TraceEvent {
            rank,
            thread,
            cpu,
            at_ns,
            kind: what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(rank: u32, what: EventKind) -> TraceEvent {
        TraceEvent {
            rank,
            thread: 7,
            cpu: 3,
            at_ns: 1000 + u64::from(rank),
            kind: what,
        }
    }

    fn one_of_each() -> Vec<TraceEvent> {
        let (call, site): (SharedName, SharedName) = ("MPI_Isend".into(), "halo.c:58".into());
        let message = Some(MessageId {
            context: 2,
            from: 0,
            to: 1,
            sequence: 5,
        });
        let whats = [
            EventKind::Enter {
                call: call.clone(),
                site: site.clone(),
            },
            EventKind::Start {
                operation: 1 << 63 | 9,
                side: OperationKind::Collective,
                call: call.clone(),
                site,
                context: 2,
                tag: -1,
                peer: None,
                bytes: 1 << 40,
            },
            EventKind::Leave { call },
            EventKind::Work {
                operation: 9,
                peer: Some(1),
                since_ns: 12,
                bytes: 4,
            },
            EventKind::Run {
                since_ns: 12,
                finished: true,
            },
            EventKind::Done {
                operation: 9,
                message,
                bytes: 4,
            },
            EventKind::Done {
                operation: 9,
                message: None,
                bytes: 0,
            },
            EventKind::TurnBegin,
            EventKind::TurnEnd,
            EventKind::SleepBegin,
            EventKind::SleepEnd,
            EventKind::Collective {
                name: "MPI_Ibcast #3".into(),
            },
            EventKind::State(ProgressMode::Refused),
            EventKind::Lost(77),
            EventKind::Named {
                number: 3,
                name: "halo".into(),
            },
            EventKind::Died,
        ];
        (0..)
            .zip(whats)
            .map(|(rank, what)| at(rank, what))
            .collect()
    }

    fn read(
        reader: &mut EventReader,
        frame: &[u8],
    ) -> (Result<u64, MalformedFrame>, Vec<TraceEvent>) {
        let mut seen = Vec::new();
        let read = reader.read(frame, &mut |event| seen.push(event));
        (read, seen)
    }

    #[test]
    fn what_was_seen_arrives_as_it_was() {
        let (mut writer, mut reader) = (EventWriter::default(), EventReader::default());
        for _ in 0..2 {
            one_of_each().iter().for_each(|seen| writer.see(seen));
            let frame = writer.take(1).unwrap();
            assert_eq!(read(&mut reader, &frame), (Ok(0), one_of_each()));
            assert_eq!(writer.take(1), None);
        }
        assert!(!reader.is_over());
        assert_eq!(read(&mut reader, &writer.finish()), (Ok(0), Vec::new()));
        assert!(reader.is_over());
    }

    #[test]
    fn of_a_frame_that_is_missing_it_is_known_how_much_it_told() {
        let (mut writer, mut reader) = (EventWriter::default(), EventReader::default());
        one_of_each().iter().for_each(|seen| writer.see(seen));
        let missing = writer.close();
        writer.see(&one_of_each()[0]);
        let (lost, seen) = read(&mut reader, &writer.close());
        assert_eq!(lost, Ok(one_of_each().len() as u64));
        let EventKind::Enter { call, .. } = &seen[0].kind else {
            panic!("{seen:?}");
        };
        assert_eq!(&**call, "an unknown place");
        // One that comes too late is told by nobody any more.
        assert_eq!(
            read(&mut reader, &missing),
            (Err(MalformedFrame), Vec::new())
        );
    }

    #[test]
    fn a_name_cannot_write_on_a_terminal() {
        let (mut writer, mut reader) = (EventWriter::default(), EventReader::default());
        let name = "a\x1b[2Jb".into();
        writer.see(&at(0, EventKind::Collective { name }));
        let (_, seen) = read(&mut reader, &writer.close());
        assert_eq!(
            seen[0].kind,
            EventKind::Collective {
                name: "a [2Jb".into()
            }
        );
    }

    #[test]
    fn the_frame_that_fuzzing_begins_with_is_one() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../fuzz/seeds/trace_records/frame"
        );
        let (read, seen) = read(&mut EventReader::default(), &std::fs::read(path).unwrap());
        assert_eq!((read, seen.len()), (Ok(0), 8));
        assert!(seen.iter().all(|seen| seen.rank == 1));
    }

    proptest! {
        #[test]
        fn frames_that_are_cut_or_changed_are_read_as_something_or_refused(cut in 0usize..600, place in 0usize..600, byte: u8, more: Vec<u8>) {
            let mut writer = EventWriter::default();
            one_of_each().iter().for_each(|seen| writer.see(seen));
            let mut frame = writer.close();
            let place = place % frame.len();
            frame[place] = byte;
            frame.truncate(cut);
            frame.extend(more);
            let mut reader = EventReader::default();
            let _ = read(&mut reader, &frame);
            let _ = read(&mut reader, &frame);
        }
    }
}
