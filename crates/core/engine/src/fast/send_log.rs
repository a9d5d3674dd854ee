//! A trail: the last sends of a stream that has a track, by their numbers.
//!
//! A small message on its shortest way is noted here instead of among the events. Its envelope has
//! a number anyway, which says where; context and peer are the stream's. So nothing is looked up
//! and nothing more is counted: one instruction finds the place, five fill it. What the stream
//! sends in other ways has its event there and its tag here, so that a trail has every number.
//!
//! Owned by a track, written by one thread at a time: its words need no order. All trails of a rank
//! are linked, the newest first, for readers of other processes
//! ([`crate::observe::events::senders`]), who find in each word an old or a new one whenever the
//! owner writes or dies. A trail goes with its track when its communicator is freed. Bounded by
//! [`TRAIL`] sends.

use crate::api::{CallOrigin, TypeDigest};
use crate::limits::{AHEAD_LOG, TRAIL};
use crate::observe::events::{CALL_BITS, EventKind, SentMessage, act, parties, what_of};
use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU64, Ordering};

/// What a send was, beside its site. One word, so that sites and marks are found by one scaled
/// index.
#[derive(Debug)]
#[repr(C)]
struct SendRecord {
    tag: AtomicI32,
    /// As in an event; no call: it went another way, and its event tells the rest.
    act: AtomicU16,
    kind: AtomicU8,
    len: AtomicU8,
}

impl SendRecord {
    const fn empty() -> Self {
        Self {
            tag: AtomicI32::new(0),
            act: AtomicU16::new(0),
            kind: AtomicU8::new(0),
            len: AtomicU8::new(0),
        }
    }
}

/// See the module's paragraph.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendLog {
    /// Peer and context, as events have them.
    parties: u64,
    /// Where the trail lies that was made before it, 0: it is the first.
    older: AtomicU64,
    sites: [AtomicU64; TRAIL],
    marks: [SendRecord; TRAIL],
}

const _: () = assert!(
    AHEAD_LOG <= TRAIL as u64,
    "what an offer may count is there"
);

impl SendLog {
    /// An empty one.
    pub(crate) fn new(parties: u64, older: u64) -> Self {
        Self {
            parties,
            older: AtomicU64::new(older),
            sites: [const { AtomicU64::new(0) }; TRAIL],
            marks: [const { SendRecord::empty() }; TRAIL],
        }
    }

    /// Notes the send of a number, the next. `site` stores its site.
    #[inline(always)]
    pub(crate) fn note(
        &self,
        number: u64,
        (tag, len): (i32, u8),
        origin: CallOrigin,
        site: impl FnOnce(&AtomicU64),
    ) {
        let at = number as usize % TRAIL;
        site(&self.sites[at]);
        let mark = &self.marks[at];
        mark.tag.store(tag, Ordering::Relaxed);
        mark.act
            .store(act(origin.call, EventKind::Send), Ordering::Relaxed);
        mark.kind.store(origin.kind, Ordering::Relaxed);
        mark.len.store(len, Ordering::Relaxed);
    }

    /// Notes the tag of a number, the next, that goes another way.
    pub(crate) fn note_other(&self, number: u64, tag: i32) {
        self.note(number, (tag, 0), CallOrigin::default(), |_| {});
    }

    /// The tag of a number: one of the last [`TRAIL`] that were noted; `None`: it was not.
    pub(crate) fn tag(&self, number: u64) -> Option<i32> {
        let mark = &self.marks[number as usize % TRAIL];
        (mark.act.load(Ordering::Relaxed) != 0).then(|| mark.tag.load(Ordering::Relaxed))
    }

    /// Who may have made a send of this tag and length, as far as the trail reaches back.
    pub(crate) fn callers(&self, tag: i32, len: u64) -> impl Iterator<Item = CallOrigin> + '_ {
        self.marks
            .iter()
            .zip(&self.sites)
            .filter_map(move |(mark, site)| {
                let act = mark.act.load(Ordering::Relaxed);
                let call = act & ((1 << CALL_BITS) - 1);
                let is_it = what_of(act) == EventKind::Send
                    && mark.tag.load(Ordering::Relaxed) == tag
                    && u64::from(mark.len.load(Ordering::Relaxed)) == len;
                (is_it && call != 0).then(|| CallOrigin {
                    call,
                    kind: mark.kind.load(Ordering::Relaxed),
                    mark: TypeDigest::NONE,
                    site: site.load(Ordering::Relaxed),
                })
            })
    }

    /// Another one is the one made before it: that is gone.
    pub(crate) fn follow(&self, older: u64) {
        self.older.store(older, Ordering::Relaxed);
    }

    /// Where it lies in this process, for others that may read its memory; it stays there as long
    /// as its track.
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

/// Bytes at the beginning of a trail that say whose it is.
pub(crate) const HEAD_BYTES: usize = offset_of!(SendLog, sites);
/// Bytes of a trail.
pub(crate) const TRAIL_BYTES: usize = size_of::<SendLog>();

const MARKS: usize = offset_of!(SendLog, marks);
const MARK_BYTES: usize = size_of::<SendRecord>();

const _: () = assert!(
    HEAD_BYTES == 16
        && MARKS == HEAD_BYTES + 8 * TRAIL
        && MARK_BYTES == 8
        && TRAIL_BYTES == MARKS + 8 * TRAIL,
    "as it is read from other processes"
);
const _: () = assert!(
    offset_of!(SendRecord, act) == 4
        && offset_of!(SendRecord, kind) == 6
        && offset_of!(SendRecord, len) == 7,
    "as it is read from other processes"
);

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

/// Whether the trail that begins with these bytes is that of a send, and the address of the one
/// made before.
pub(crate) fn head(bytes: &[u8], sent: &SentMessage) -> Option<(bool, u64)> {
    let whose = parties(sent.to, sent.context);
    Some((word(bytes, 0)? == whose, word(bytes, 8)?))
}

/// What the send of a number was, if it went the shortest way: tag, bytes, call, type and site.
pub(crate) fn sent(bytes: &[u8], number: u64) -> Option<(i32, u8, u16, u8, u64)> {
    let at = number as usize % TRAIL;
    let site = word(bytes, HEAD_BYTES + 8 * at)?;
    let [t0, t1, t2, t3, a0, a1, kind, len] = word(bytes, MARKS + MARK_BYTES * at)?.to_ne_bytes();
    let act = u16::from_ne_bytes([a0, a1]);
    let call = act & ((1 << CALL_BITS) - 1);
    let is_send = what_of(act) == EventKind::Send && call != 0;
    is_send.then_some((i32::from_ne_bytes([t0, t1, t2, t3]), len, call, kind, site))
}

/// Who may have made the send `sent`, from the memory of its stream's trail, whose bytes may be
/// any.
pub(crate) fn callers<'a>(
    bytes: &'a [u8],
    sent: &'a SentMessage,
) -> impl Iterator<Item = CallOrigin> + 'a {
    (0..TRAIL).filter_map(move |at| {
        let site = word(bytes, HEAD_BYTES + 8 * at)?;
        let [t0, t1, t2, t3, a0, a1, kind, len] =
            word(bytes, MARKS + MARK_BYTES * at)?.to_ne_bytes();
        let (tag, act) = (
            i32::from_ne_bytes([t0, t1, t2, t3]),
            u16::from_ne_bytes([a0, a1]),
        );
        let call = act & ((1 << CALL_BITS) - 1);
        let fits = what_of(act) == EventKind::Send
            && call != 0
            && (tag, u64::from(len)) == (sent.tag, sent.len);
        fits.then_some(CallOrigin {
            call,
            kind,
            mark: TypeDigest::NONE,
            site,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::events::{EventLog, senders};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const ORIGIN: CallOrigin = CallOrigin {
        call: 39,
        kind: 9,
        mark: TypeDigest::NONE,
        site: 0x1234,
    };

    fn noted(trail: &SendLog, number: u64, tag: i32) {
        trail.note(number, (tag, 8), ORIGIN, |site| {
            site.store(ORIGIN.site, Ordering::Relaxed);
        });
    }

    /// As one process reads another's.
    fn own_memory(address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let memory = File::open("/proc/self/mem").ok()?;
        memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    const SENT: SentMessage = SentMessage {
        from: 3,
        to: 5,
        context: 8,
        tag: 7,
        len: 8,
    };

    #[test]
    fn a_sender_is_found_in_the_trail_of_its_stream_alone() {
        let events = EventLog::new(None);
        let find = |sent: SentMessage| senders(events.address() as u64, &sent, own_memory).unwrap();
        assert_eq!(find(SENT), [], "there is no trail yet");
        let trails = [(5, 8), (6, 8), (5, 9)].map(|(peer, context)| {
            let trail = Box::new(SendLog::new(parties(peer, context), events.newest_trail()));
            events.link_trail(trail.address());
            trail
        });
        noted(&trails[0], 0, 7);
        trails[0].note_other(1, 9);
        noted(&trails[0], TRAIL as u64 - 1, 7);
        assert_eq!(find(SENT), [ORIGIN], "each caller once");
        let others = [
            SentMessage { to: 6, ..SENT },
            SentMessage { to: 7, ..SENT },
            SentMessage { context: 9, ..SENT },
            SentMessage { tag: 8, ..SENT },
            SentMessage { len: 264, ..SENT },
            SentMessage {
                tag: 9,
                len: 0,
                ..SENT
            },
        ];
        others
            .iter()
            .for_each(|sent| assert_eq!(find(*sent), [], "{sent:?}"));
    }

    #[test]
    fn trails_that_lie_elsewhere_by_now_or_lead_in_a_circle_end_the_search() {
        assert_eq!(senders(0, &SENT, |_, _| None), None);
        assert_eq!(senders(1, &SENT, |_, len| Some(vec![1; len])), Some(vec![]));
        let only_ring = |at, len| (at == 1).then(|| vec![1; len]);
        assert_eq!(senders(1, &SENT, only_ring), Some(vec![]));
    }

    #[test]
    fn the_last_sends_are_known_by_number() {
        let trail = Box::new(SendLog::new(parties(5, 8), 0));
        assert_eq!(trail.tag(7), None, "never noted");
        let numbers = 3..TRAIL as u64 + 10;
        for number in numbers.clone() {
            match number % 3 {
                0 => trail.note_other(number, -(number as i32)),
                _ => noted(&trail, number, number as i32),
            }
        }
        for number in numbers.end - TRAIL as u64..numbers.end {
            let tag = if number % 3 == 0 {
                -(number as i32)
            } else {
                number as i32
            };
            assert_eq!(trail.tag(number), Some(tag));
        }
    }
}
