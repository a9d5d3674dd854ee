//! Send log: the last sends of a sequence that has a send channel, by their numbers.
//!
//! A small message on the fast path is noted here instead of among the events. Its envelope has a
//! number anyway, which says where; context and peer are the sequence's. So nothing is looked up
//! and nothing more is counted: one instruction finds the place, five fill it. A send on another
//! path has its event in the event log and its tag here, so that a send log has every number.
//!
//! Owned by a send channel, written by one thread at a time: its words need no order. All send logs
//! of a rank are linked, the newest first, for readers in other processes
//! ([`crate::observe::events::find_senders`]). These find an old or a new value in each word
//! whenever the owner writes or dies. A send log goes with its channel when its communicator is
//! freed. Bounded by [`SEND_LOG`] sends.

use crate::api::{CallOrigin, TypeDigest};
use crate::limits::{EARLY_LOG, SEND_LOG};
use crate::observe::events::{
    CALL_BITS, EventKind, SentMessage, call_and_kind, kind_of, peer_context,
};
use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU64, Ordering};

/// A send without its call site. One word, so that one scaled index finds sites and records.
#[derive(Debug)]
#[repr(C)]
struct SendRecord {
    tag: AtomicI32,
    /// Call and kind in the encoding of an event. Without a call the message took another path, and
    /// its event tells the rest.
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

/// The last sends of one sequence, by number.
///
/// Owned by a [`SendChannel`](crate::fast::send_channel::SendChannel), which notes each send. Other
/// processes read it through the list of all logs of a rank.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendLog {
    /// Peer and context, as events have them.
    parties: u64,
    /// Address of the send log made before this one; 0 for the first.
    older: AtomicU64,
    sites: [AtomicU64; SEND_LOG],
    records: [SendRecord; SEND_LOG],
}

const _: () = assert!(
    EARLY_LOG <= SEND_LOG as u64,
    "what an offer may count is there"
);

impl SendLog {
    /// An empty one.
    pub(crate) fn new(parties: u64, older: u64) -> Self {
        Self {
            parties,
            older: AtomicU64::new(older),
            sites: [const { AtomicU64::new(0) }; SEND_LOG],
            records: [const { SendRecord::empty() }; SEND_LOG],
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
        let at = number as usize % SEND_LOG;
        site(&self.sites[at]);
        let mark = &self.records[at];
        mark.tag.store(tag, Ordering::Relaxed);
        mark.act.store(
            call_and_kind(origin.call, EventKind::Send),
            Ordering::Relaxed,
        );
        mark.kind.store(origin.datatype, Ordering::Relaxed);
        mark.len.store(len, Ordering::Relaxed);
    }

    /// Notes the tag of a number, the next, that goes another way.
    pub(crate) fn note_other(&self, number: u64, tag: i32) {
        self.note(number, (tag, 0), CallOrigin::default(), |_| {});
    }

    /// The tag of a number: one of the last [`SEND_LOG`] that were noted; `None`: it was not.
    pub(crate) fn tag(&self, number: u64) -> Option<i32> {
        let mark = &self.records[number as usize % SEND_LOG];
        (mark.act.load(Ordering::Relaxed) != 0).then(|| mark.tag.load(Ordering::Relaxed))
    }

    /// Returns the callers that may have made a send of this tag and length, as far as the log
    /// reaches back.
    pub(crate) fn callers(&self, tag: i32, len: u64) -> impl Iterator<Item = CallOrigin> + '_ {
        self.records
            .iter()
            .zip(&self.sites)
            .filter_map(move |(mark, site)| {
                let act = mark.act.load(Ordering::Relaxed);
                let call = act & ((1 << CALL_BITS) - 1);
                let is_it = kind_of(act) == EventKind::Send
                    && mark.tag.load(Ordering::Relaxed) == tag
                    && u64::from(mark.len.load(Ordering::Relaxed)) == len;
                (is_it && call != 0).then(|| CallOrigin {
                    call,
                    datatype: mark.kind.load(Ordering::Relaxed),
                    digest: TypeDigest::NONE,
                    site: site.load(Ordering::Relaxed),
                })
            })
    }

    /// Another one is the one made before it: that is gone.
    pub(crate) fn relink(&self, older: u64) {
        self.older.store(older, Ordering::Relaxed);
    }

    /// Returns the address of the log in this process, for readers of its memory. The address is
    /// fixed as long as the send channel lives.
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

/// Bytes at the beginning of a send log that say whose it is.
pub(crate) const HEAD_BYTES: usize = offset_of!(SendLog, sites);
/// Bytes of a send log.
pub(crate) const SEND_LOG_BYTES: usize = size_of::<SendLog>();

const MARKS: usize = offset_of!(SendLog, records);
const MARK_BYTES: usize = size_of::<SendRecord>();

const _: () = assert!(
    HEAD_BYTES == 16
        && MARKS == HEAD_BYTES + 8 * SEND_LOG
        && MARK_BYTES == 8
        && SEND_LOG_BYTES == MARKS + 8 * SEND_LOG,
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

/// Decodes the beginning of a send log: whether the log belongs to the sequence of `sent`, and the
/// address of the log made before.
pub(crate) fn header(bytes: &[u8], sent: &SentMessage) -> Option<(bool, u64)> {
    let whose = peer_context(sent.to, sent.context);
    Some((word(bytes, 0)? == whose, word(bytes, 8)?))
}

/// Returns tag, bytes, call, datatype and call site of the send with this number, if it took the
/// fast path.
pub(crate) fn sent(bytes: &[u8], number: u64) -> Option<(i32, u8, u16, u8, u64)> {
    let at = number as usize % SEND_LOG;
    let site = word(bytes, HEAD_BYTES + 8 * at)?;
    let [t0, t1, t2, t3, a0, a1, kind, len] = word(bytes, MARKS + MARK_BYTES * at)?.to_ne_bytes();
    let act = u16::from_ne_bytes([a0, a1]);
    let call = act & ((1 << CALL_BITS) - 1);
    let is_send = kind_of(act) == EventKind::Send && call != 0;
    is_send.then_some((i32::from_ne_bytes([t0, t1, t2, t3]), len, call, kind, site))
}

/// Returns the callers that may have made the send `sent`, from the bytes of a send log, which may
/// be garbage.
pub(crate) fn callers<'a>(
    bytes: &'a [u8],
    sent: &'a SentMessage,
) -> impl Iterator<Item = CallOrigin> + 'a {
    (0..SEND_LOG).filter_map(move |at| {
        let site = word(bytes, HEAD_BYTES + 8 * at)?;
        let [t0, t1, t2, t3, a0, a1, kind, len] =
            word(bytes, MARKS + MARK_BYTES * at)?.to_ne_bytes();
        let (tag, act) = (
            i32::from_ne_bytes([t0, t1, t2, t3]),
            u16::from_ne_bytes([a0, a1]),
        );
        let call = act & ((1 << CALL_BITS) - 1);
        let fits = kind_of(act) == EventKind::Send
            && call != 0
            && (tag, u64::from(len)) == (sent.tag, sent.len);
        fits.then_some(CallOrigin {
            call,
            datatype: kind,
            digest: TypeDigest::NONE,
            site,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::events::{EventLog, find_senders};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const ORIGIN: CallOrigin = CallOrigin {
        call: 39,
        datatype: 9,
        digest: TypeDigest::NONE,
        site: 0x1234,
    };

    fn noted(send_log: &SendLog, number: u64, tag: i32) {
        send_log.note(number, (tag, 8), ORIGIN, |site| {
            site.store(ORIGIN.site, Ordering::Relaxed);
        });
    }

    /// Reads this process's memory the way another process reads it.
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
    fn a_sender_is_found_in_the_send_log_of_its_stream_alone() {
        let events = EventLog::new(None);
        let find =
            |sent: SentMessage| find_senders(events.address() as u64, &sent, own_memory).unwrap();
        assert_eq!(find(SENT), [], "there is no trail yet");
        let trails = [(5, 8), (6, 8), (5, 9)].map(|(peer, context)| {
            let send_log = Box::new(SendLog::new(
                peer_context(peer, context),
                events.newest_send_log(),
            ));
            events.link_send_log(send_log.address());
            send_log
        });
        noted(&trails[0], 0, 7);
        trails[0].note_other(1, 9);
        noted(&trails[0], SEND_LOG as u64 - 1, 7);
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
        assert_eq!(find_senders(0, &SENT, |_, _| None), None);
        assert_eq!(
            find_senders(1, &SENT, |_, len| Some(vec![1; len])),
            Some(vec![])
        );
        let only_ring = |at, len| (at == 1).then(|| vec![1; len]);
        assert_eq!(find_senders(1, &SENT, only_ring), Some(vec![]));
    }

    #[test]
    fn the_last_sends_are_known_by_number() {
        let send_log = Box::new(SendLog::new(peer_context(5, 8), 0));
        assert_eq!(send_log.tag(7), None, "never noted");
        let numbers = 3..SEND_LOG as u64 + 10;
        for number in numbers.clone() {
            match number % 3 {
                0 => send_log.note_other(number, -(number as i32)),
                _ => noted(&send_log, number, number as i32),
            }
        }
        for number in numbers.end - SEND_LOG as u64..numbers.end {
            let tag = if number % 3 == 0 {
                -(number as i32)
            } else {
                number as i32
            };
            assert_eq!(send_log.tag(number), Some(tag));
        }
    }
}
