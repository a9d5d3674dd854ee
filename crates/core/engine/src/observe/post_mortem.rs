//! A rank's last events as they are read after its death, from the area that they lie in
//! (docs/reference/job.md, B14).
//!
//! The events of the rank's first engine lie there, and the send logs of the first
//! [`SEND_CHANNELS_KEPT`] sequences of small messages that have a send channel. What is read comes
//! from another process, which may have died at any instruction: any bytes are read as something or
//! nothing.

use crate::api::{CallOrigin, ContextId, Peer, TypeDigest};
use crate::fast::send_channel::{NEXT_AT, SEND_CHANNEL_BYTES, SEND_LOG_AT};
use crate::fast::send_log;
use crate::limits::{EVENTS, SEND_CHANNELS_KEPT, SEND_LOG};
use crate::observe::events::{EVENT_BYTES, Event, EventKind, LOG_AT, LOG_BYTES};
use garonne_sync::post_mortem::{HEADER_BYTES, VALUE_AT, slot_bytes};

/// First eight bytes of an area.
const MAGIC: [u8; 8] = *b"GARONNEr";
/// Version of its layout.
pub const FORMAT: u32 = 1;

const LOG_SLOT: usize = slot_bytes(LOG_BYTES);
const SEND_CHANNEL_SLOT: usize = slot_bytes(SEND_CHANNEL_BYTES);

/// Bytes of an area.
pub const AREA_BYTES: usize = HEADER_BYTES + LOG_SLOT + SEND_CHANNELS_KEPT * SEND_CHANNEL_SLOT;

/// Returns the header of an area.
pub fn header() -> Vec<u8> {
    let words = [
        FORMAT,
        EVENTS as u32,
        SEND_LOG as u32,
        SEND_CHANNELS_KEPT as u32,
    ];
    let words = words.iter().flat_map(|word| word.to_ne_bytes());
    MAGIC.into_iter().chain(words).collect()
}

/// Bytes of an area's slots: the log's first, then those of send channels.
pub fn slots() -> Vec<usize> {
    std::iter::once(LOG_SLOT)
        .chain(std::iter::repeat_n(SEND_CHANNEL_SLOT, SEND_CHANNELS_KEPT))
        .collect()
}

/// A small send on its fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallSend {
    /// Number of the message in its sequence.
    pub number: u64,
    /// Tag of the message.
    pub tag: i32,
    /// Length of the message in bytes.
    pub len: u8,
    /// Caller.
    pub origin: CallOrigin,
}

/// The last small sends of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallSends {
    /// The other process.
    pub peer: Peer,
    /// Their context.
    pub context: ContextId,
    /// Sends of the sequence, whatever their way.
    pub sent: u64,
    /// Sends on the fast path, oldest first.
    pub list: Vec<SmallSend>,
}

/// Events and small sends that a dead rank left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedEvents {
    /// Last events with their numbers, oldest first.
    pub events: Vec<(u64, Event)>,
    /// Last small sends by sequence. Their order relative to the events is not recorded.
    pub small: Vec<SmallSends>,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The value in a slot, if it has an owner.
fn value(bytes: &[u8], slot: usize, len: usize) -> Option<&[u8]> {
    (word(bytes, slot)? != 0).then_some(())?;
    bytes.get(slot + VALUE_AT..)?.get(..len)
}

/// The last `most` events, and the last `most` small sends of each sequence, of the area with these
/// bytes; `None`: it is none of this format.
pub fn read(bytes: &[u8], most: usize) -> Option<RecordedEvents> {
    if !bytes.starts_with(&header()) {
        return None;
    }
    let log = value(bytes, HEADER_BYTES, LOG_BYTES);
    let tracks = (0..SEND_CHANNELS_KEPT).filter_map(|track| {
        let slot = HEADER_BYTES + LOG_SLOT + track * SEND_CHANNEL_SLOT;
        small_sends(value(bytes, slot, SEND_CHANNEL_BYTES)?, most)
    });
    Some(RecordedEvents {
        events: log.and_then(|log| events(log, most)).unwrap_or_default(),
        small: tracks.filter(|sends| !sends.list.is_empty()).collect(),
    })
}

fn events(log: &[u8], most: usize) -> Option<Vec<(u64, Event)>> {
    let next = word(log, LOG_AT)? / EVENT_BYTES as u64;
    let first = next.saturating_sub(most.min(EVENTS) as u64);
    let event = |number: u64| {
        let at = number as usize % EVENTS * EVENT_BYTES;
        let event = Event::decode(log.get(at..)?.first_chunk()?);
        (event.kind != EventKind::Nothing).then_some((number, event))
    };
    Some((first..next).filter_map(event).collect())
}

fn small_sends(track: &[u8], most: usize) -> Option<SmallSends> {
    let sent = word(track, NEXT_AT)?;
    let parties = word(track, SEND_LOG_AT)?;
    let trail = track.get(SEND_LOG_AT..)?;
    let first = sent.saturating_sub(most.min(SEND_LOG) as u64);
    let send = |number: u64| {
        let (tag, len, call, kind, site) = send_log::sent(trail, number)?;
        let origin = CallOrigin {
            call,
            datatype: kind,
            digest: TypeDigest::NONE,
            site,
        };
        Some(SmallSend {
            number,
            tag,
            len,
            origin,
        })
    };
    Some(SmallSends {
        peer: parties as u32,
        context: (parties >> 32) as u32,
        sent,
        list: (first..sent).filter_map(send).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::events::EventLog;
    use garonne_sync::post_mortem::PostMortemArea;
    use proptest::prelude::*;
    use std::fs::File;
    use std::io::Read;

    fn bytes(file: &std::os::fd::OwnedFd) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut file = File::open(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(file)
        ))
        .unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_last_events_are_read_with_their_numbers() {
        let (area, file) = PostMortemArea::new(&header(), &slots()).unwrap();
        assert_eq!(read(&bytes(&file), 9), Some(RecordedEvents::default()));
        let events = EventLog::new(Some(area.clone()));
        let event = |len| Event {
            len,
            site: 77,
            peer: 3,
            context: 8,
            tag: -1,
            call: 41,
            kind: EventKind::Recv,
            datatype: 9,
        };
        (0..EVENTS as u64 + 5).for_each(|len| events.push(event(len)));
        let recorded = read(&bytes(&file), 3).unwrap();
        let last = EVENTS as u64 + 5;
        let expected: Vec<_> = (last - 3..last)
            .map(|number| (number, event(number)))
            .collect();
        assert_eq!(recorded.events, expected);
        assert_eq!(bytes(&file).len(), AREA_BYTES);
        drop(events);
        assert_eq!(
            read(&bytes(&file), 9),
            Some(RecordedEvents::default()),
            "no owner"
        );
    }

    /// Layout of docs/reference/job.md, clause B14.
    #[test]
    fn the_layout_is_that_of_its_format() {
        assert_eq!(FORMAT, 1);
        assert_eq!(
            (AREA_BYTES, LOG_SLOT, SEND_CHANNEL_SLOT, VALUE_AT),
            (202_816, 65_600, 8_320, 32)
        );
        assert_eq!((LOG_AT, NEXT_AT, SEND_LOG_AT), (65_544, 16, 24));
    }

    #[test]
    fn another_format_is_not_read() {
        let mut other = header();
        other[8] += 1;
        assert_eq!(read(&other, 9), None);
        assert_eq!(read(b"", 9), None);
    }

    proptest! {
        #[test]
        fn any_bytes_behind_the_header_are_read_as_something(words in prop::collection::vec((0usize..AREA_BYTES / 8, any::<u64>()), 0..40)) {
            let mut bytes = header();
            bytes.resize(AREA_BYTES, 0);
            for (at, word) in words.into_iter().filter(|(at, _)| *at >= HEADER_BYTES / 8) {
                bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
            }
            for slot in [HEADER_BYTES, HEADER_BYTES + LOG_SLOT] {
                bytes[slot] = 1;
            }
            let recorded = read(&bytes, 100).unwrap();
            prop_assert!(recorded.events.len() <= 100 && recorded.small.iter().all(|sends| sends.list.len() <= 100));
        }
    }
}
