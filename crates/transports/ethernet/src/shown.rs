//! What a rank knows of its Ethernet peers, in a table at a fixed place for those who watch from
//! outside.
//!
//! Owned by the transport, which writes it now and then. Readers are other processes, which copy it
//! and believe nothing. Bounded by its rows: peers beyond them are not shown.

use crate::FrameCounts;
use crate::limits::SHOWN_PEERS;
use crate::path::Carrier;
use garonne_engine::api::Peer;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words before the rows: the counts, in the order of [`FrameCounts::words`].
const COUNTS: usize = 12;
/// Words of a row: the peer plus one (0: none), what carries its frames, the longest frame sent
/// and received, and pieces sent again.
const ROW: usize = 5;
/// Bytes of the table.
pub const SHOWN_BYTES: usize = (COUNTS + SHOWN_PEERS * ROW) * 8;

/// A peer in such a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerEntry {
    /// To whom.
    pub peer: Peer,
    /// What carries frames to it.
    pub carrier: Carrier,
    /// Most bytes behind the Ethernet header of frames to it.
    pub sends: u64,
    /// Most bytes of frames from it, as it says; 0: it sends by TCP.
    pub receives: u64,
    /// Pieces of packets that were sent again.
    pub repeated: u64,
}

/// Reads a table that was copied from another process, which may be anything.
pub fn read_shown(table: &[u8]) -> (FrameCounts, Vec<PeerEntry>) {
    let words = table.as_chunks().0.iter();
    let words: Vec<u64> = words.map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let (counts, rows) = words.split_at(words.len().min(COUNTS));
    let entry = |row: &[u64]| {
        Some(PeerEntry {
            peer: u32::try_from(row[0].checked_sub(1)?).ok()?,
            carrier: match row[1] {
                0 => Carrier::Frames,
                _ => Carrier::Tcp,
            },
            sends: row[2],
            receives: row[3],
            repeated: row[4],
        })
    };
    let rows = rows.chunks_exact(ROW).take(SHOWN_PEERS);
    (
        FrameCounts::of_words(counts),
        rows.filter_map(entry).collect(),
    )
}

/// The table. Relaxed: each word is right by itself, and a reader may find a row half old.
#[derive(Debug)]
pub(crate) struct ShownPeers(Box<[AtomicU64]>);

impl ShownPeers {
    pub fn new() -> Self {
        Self((0..SHOWN_BYTES / 8).map(|_| AtomicU64::new(0)).collect())
    }

    /// The table's address, which stays as long as this lives.
    pub fn at(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Writes the counts.
    pub fn count(&self, counts: &FrameCounts) {
        for (to, word) in self.0.iter().zip(counts.words()) {
            to.store(word, Relaxed);
        }
    }

    /// Writes what is known of a peer.
    pub fn show(&self, entry: &PeerEntry) {
        let owner = u64::from(entry.peer) + 1;
        let mut rows = self.0[COUNTS..].chunks_exact(ROW);
        let row = rows.find(|row| {
            let taken = row[0].load(Relaxed);
            taken == 0 || taken == owner
        });
        let Some(row) = row else {
            return;
        };
        let carrier = u64::from(entry.carrier == Carrier::Tcp);
        let words = [entry.sends, entry.receives, entry.repeated];
        row[1].store(carrier, Relaxed);
        for (to, word) in row[2..].iter().zip(words) {
            to.store(word, Relaxed);
        }
        row[0].store(owner, Relaxed);
    }

    #[cfg(test)]
    fn bytes(&self) -> Vec<u8> {
        let words = self.0.iter();
        words
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written_and_any_bytes_are() {
        let table = ShownPeers::new();
        let counts = FrameCounts {
            sent: 5,
            forged: 3,
            by_tcp: 9,
            ..FrameCounts::default()
        };
        table.count(&counts);
        let entry = |peer, carrier| PeerEntry {
            peer,
            carrier,
            sends: 9000,
            receives: 1500,
            repeated: 7,
        };
        for known in [entry(3, Carrier::Frames), entry(0, Carrier::Tcp)] {
            table.show(&known);
            table.show(&known);
        }
        let expected = vec![entry(3, Carrier::Frames), entry(0, Carrier::Tcp)];
        assert_eq!(read_shown(&table.bytes()), (counts, expected));
        for len in [0, 7, 100, SHOWN_BYTES] {
            read_shown(&vec![0xff; len]);
        }
    }
}
