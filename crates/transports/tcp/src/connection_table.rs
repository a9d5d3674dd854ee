//! The connections of a rank in a table at a fixed place, for those who watch from outside.
//!
//! Owned by the transport, which writes it when a connection opens, breaks, or has moved much.
//! Readers are other processes, which copy it and believe nothing. Bounded by its rows: connections
//! beyond them are not shown.

use crate::frame::{FABRIC, StreamNumber};
use crate::ofi_path::hello::NotUsedReason;
use garonne_engine::api::Peer;
use garonne_transport::limits::TCP_SHOWN;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Words of a row: the peer plus one (0: none), the stream's code, whether it is open, how often it
/// was opened, both ports, both addresses, what it moves and has moved, of the one beside an
/// endpoint of libfabric the provider's name and why it is not used, here (low byte) and there (the
/// next), the round trip, what it began with, and the version of the format.
const ROW: usize = 23;
const STREAM: usize = 1;
const OPEN: usize = 2;
/// Beside that, in the same word.
const BRIEF: u32 = 2;
const OPENED: usize = 3;
const PORTS: usize = 4;
const OWN: usize = 5;
const OTHER: usize = 9;
const RATE: usize = 13;
const MOVED: usize = 14;
const PROVIDER: usize = 15;
const UNUSED: usize = 19;
const ROUND_TRIP: usize = 20;
const TUNED: usize = 21;
const VERSION: usize = 22;
/// Bytes of a provider's name that are shown.
const PROVIDER_BYTES: usize = 16;

/// Bytes of the table: its rows, a word that says why no connection uses libfabric, and one that is
/// not 0 if all are encrypted.
pub const SHOWN_BYTES: usize = (TCP_SHOWN * ROW + 2) * 4;

/// A connection in such a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEntry {
    /// To whom.
    pub peer: Peer,
    /// Purpose of the connection.
    pub stream: StreamNumber,
    /// True if the connection is open.
    pub open: bool,
    /// True if it has small segments, since longer ones were lost on the way.
    pub brief: bool,
    /// Number of times that it was opened.
    pub opened: u32,
    /// The own and the peer's end.
    pub ends: (SocketAddr, SocketAddr),
    /// Megabytes of large data that it was seen to bring in a second; 0: not measured, since there
    /// is no other to compare with.
    pub rate: u32,
    /// Megabytes of large data that it has brought.
    pub moved: u32,
    /// The provider of libfabric that moves its bytes; empty: none.
    pub provider: String,
    /// Why that is not used, on this side and on the other.
    pub unused: (Option<NotUsedReason>, Option<NotUsedReason>),
    /// Microseconds of a round trip as the kernel saw it when the connection was opened; 0: not
    /// known.
    pub round_trip_us: u32,
    /// Megabytes in a second that its network gave when it was measured before, with which it
    /// began; 0: with nothing.
    pub tuned: u32,
    /// The version of the format that both ends use, or used last; 0: it was not opened yet, or
    /// does not leave the process.
    pub version: u32,
}

/// Why no connection in such a table uses libfabric, if there is a reason that holds for all.
pub fn read_unused(table: &[u8]) -> Option<NotUsedReason> {
    let word = table.get(TCP_SHOWN * ROW * 4..)?.first_chunk()?;
    NotUsedReason::from_code(u8::try_from(u32::from_le_bytes(*word)).ok()?)
}

/// Returns whether the connections in such a table are encrypted.
pub fn read_sealed(table: &[u8]) -> bool {
    let word = table
        .get((TCP_SHOWN * ROW + 1) * 4..)
        .and_then(<[u8]>::first_chunk::<4>);
    word.is_some_and(|word| *word != [0; 4])
}

/// The connections in a table that was read from another process, which may be anything.
pub fn read_shown(table: &[u8]) -> Vec<ConnectionEntry> {
    let words: Vec<u32> = table
        .as_chunks()
        .0
        .iter()
        .take(TCP_SHOWN * ROW)
        .map(|bytes| u32::from_le_bytes(*bytes))
        .collect();
    let seen = |row: &[u32]| {
        let address = |at: usize| {
            let octets: Vec<u8> = row[at..at + 4]
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect();
            let octets: [u8; 16] = octets.try_into().unwrap_or_default();
            IpAddr::from(octets).to_canonical()
        };
        Some(ConnectionEntry {
            peer: row[0].checked_sub(1)?,
            stream: StreamNumber::from_code(u8::try_from(row[STREAM]).ok()?)?,
            open: row[OPEN] & 1 != 0,
            brief: row[OPEN] & BRIEF != 0,
            opened: row[OPENED],
            ends: (
                SocketAddr::new(address(OWN), (row[PORTS] >> 16) as u16),
                SocketAddr::new(address(OTHER), row[PORTS] as u16),
            ),
            rate: row[RATE],
            moved: row[MOVED],
            provider: row[PROVIDER..PROVIDER + PROVIDER_BYTES / 4]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .take_while(u8::is_ascii_graphic)
                .map(char::from)
                .collect(),
            unused: (
                NotUsedReason::from_code(row[UNUSED] as u8),
                NotUsedReason::from_code((row[UNUSED] >> 8) as u8),
            ),
            round_trip_us: row[ROUND_TRIP],
            tuned: row[TUNED],
            version: row[VERSION],
        })
    };
    words.chunks_exact(ROW).filter_map(seen).collect()
}

/// The table of a rank's connections that tools read. Relaxed: each word is right by itself, and a
/// reader may find a row half old.
#[derive(Debug)]
pub(crate) struct ConnectionTable(Box<[AtomicU32]>);

impl Default for ConnectionTable {
    fn default() -> Self {
        Self((0..SHOWN_BYTES / 4).map(|_| AtomicU32::new(0)).collect())
    }
}

impl ConnectionTable {
    /// The table's address, which stays as long as this lives.
    pub fn at(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Returns the bytes of the table.
    pub fn table(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .collect()
    }

    fn row(&self, peer: Peer, stream: StreamNumber) -> Option<&[AtomicU32]> {
        let code = u32::from(stream.code());
        let row = self.0[..TCP_SHOWN * ROW].chunks_exact(ROW).find(|row| {
            let owner = row[0].load(Relaxed);
            owner == 0 || owner == peer + 1 && row[STREAM].load(Relaxed) == code
        })?;
        row[STREAM].store(code, Relaxed);
        row[0].store(peer + 1, Relaxed);
        Some(row)
    }

    /// A stream of a peer was opened between these ends.
    pub fn opened(&self, peer: Peer, stream: StreamNumber, ends: Option<(SocketAddr, SocketAddr)>) {
        let Some(row) = self.row(peer, stream) else {
            return;
        };
        row[OPEN].store(1, Relaxed);
        row[OPENED].fetch_add(1, Relaxed);
        let Some((own, other)) = ends else { return };
        row[PORTS].store(
            u32::from(own.port()) << 16 | u32::from(other.port()),
            Relaxed,
        );
        for (at, end) in [(OWN, own), (OTHER, other)] {
            for (word, bytes) in row[at..at + 4].iter().zip(octets(end.ip()).as_chunks().0) {
                word.store(u32::from_be_bytes(*bytes), Relaxed);
            }
        }
    }

    /// The kernel's round trip to that peer, in microseconds.
    pub fn round_trip(&self, peer: Peer, stream: StreamNumber, us: Option<u32>) {
        if let (Some(row), Some(us)) = (self.row(peer, stream), us) {
            row[ROUND_TRIP].store(us, Relaxed);
        }
    }

    /// A way for large data begins with so many megabytes in a second.
    pub fn tuned(&self, peer: Peer, stream: StreamNumber, rate: u32) {
        if let Some(row) = self.row(peer, stream) {
            row[TUNED].store(rate.max(1), Relaxed);
        }
    }

    /// An open stream has small segments, since longer ones were lost on the way.
    pub fn brief(&self, peer: Peer, stream: StreamNumber, brief: bool) {
        if let Some(row) = self.row(peer, stream) {
            row[OPEN].store(if brief { 1 | BRIEF } else { 1 }, Relaxed);
        }
    }

    /// Both ends of a stream use this version of the format.
    pub fn version(&self, peer: Peer, stream: StreamNumber, version: u16) {
        if let Some(row) = self.row(peer, stream) {
            row[VERSION].store(version.into(), Relaxed);
        }
    }

    /// All connections are encrypted, or none.
    pub fn sealed(&self, sealed: bool) {
        self.0[TCP_SHOWN * ROW + 1].store(sealed.into(), Relaxed);
    }

    /// Shows as open, as [`ConnectionTable::opened`] does, what never breaks.
    pub fn opened_once(&self, peer: Peer, stream: StreamNumber) {
        if let Some(row) = self.row(peer, stream) {
            row[OPEN].store(1, Relaxed);
            row[OPENED].store(1, Relaxed);
        }
    }

    /// A stream of a peer has brought so many megabytes in all, at so many in a second.
    pub fn moved(&self, peer: Peer, stream: StreamNumber, (rate, moved): (u32, u32)) {
        if let Some(row) = self.row(peer, stream) {
            row[RATE].store(rate, Relaxed);
            row[MOVED].store(moved, Relaxed);
        }
    }

    /// No connection uses libfabric, and why.
    pub fn no_fabric(&self, why: Option<NotUsedReason>) {
        self.0[TCP_SHOWN * ROW].store(why.map_or(0, |why| why as u32), Relaxed);
    }

    /// Shows whose endpoint of libfabric moves large data of this peer, or why none does, here and
    /// there.
    pub fn fabric(
        &self,
        peer: Peer,
        provider: &str,
        (here, there): (Option<NotUsedReason>, Option<NotUsedReason>),
    ) {
        let Some(row) = self.row(peer, StreamNumber::Bulk(FABRIC)) else {
            return;
        };
        let code = |why: Option<NotUsedReason>| why.map_or(0, |why| why as u32);
        row[UNUSED].store(code(here) | code(there) << 8, Relaxed);
        let mut name = [0; PROVIDER_BYTES];
        for (out, byte) in name.iter_mut().zip(provider.bytes()) {
            *out = byte;
        }
        for (word, bytes) in row[PROVIDER..].iter().zip(name.as_chunks().0) {
            word.store(u32::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// A stream of a peer is not open any more.
    pub fn closed(&self, peer: Peer, stream: StreamNumber) {
        if let Some(row) = self.row(peer, stream) {
            row[OPEN].store(0, Relaxed);
        }
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
    .octets()
}

/// An address of IPv4 as such, also at a socket of IPv6.
pub(crate) fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shown: &ConnectionTable) -> Vec<ConnectionEntry> {
        let bytes = shown.table();
        assert_eq!(bytes.len(), SHOWN_BYTES);
        read_shown(&bytes)
    }

    #[test]
    fn what_is_shown_is_read() {
        let shown = ConnectionTable::default();
        assert_eq!(read(&shown), []);
        let four: (SocketAddr, SocketAddr) = (
            "10.0.0.1:4000".parse().unwrap(),
            "10.0.0.2:65535".parse().unwrap(),
        );
        let six: (SocketAddr, SocketAddr) = (
            "[fd00::1]:1".parse().unwrap(),
            "[fd00::2:3]:2".parse().unwrap(),
        );
        shown.opened(7, StreamNumber::Small, Some(four));
        shown.opened(0, StreamNumber::Small, Some(six));
        shown.opened(0, StreamNumber::Bulk(3), Some(six));
        shown.closed(0, StreamNumber::Small);
        shown.opened(0, StreamNumber::Small, None);
        shown.closed(7, StreamNumber::Small);
        shown.moved(0, StreamNumber::Bulk(3), (1200, 77));
        shown.round_trip(7, StreamNumber::Small, Some(90));
        shown.tuned(0, StreamNumber::Bulk(3), 900);
        shown.version(7, StreamNumber::Small, 6);
        shown.brief(0, StreamNumber::Bulk(3), true);
        assert!(!read_sealed(&shown.table()));
        shown.sealed(true);
        assert!(read_sealed(&shown.table()) && !read_sealed(&[]));
        let told = |peer, stream, (open, opened), ends, (rate, moved)| ConnectionEntry {
            peer,
            stream,
            open,
            brief: stream == StreamNumber::Bulk(3),
            opened,
            ends,
            rate,
            moved,
            provider: String::new(),
            unused: (None, None),
            round_trip_us: if peer == 7 { 90 } else { 0 },
            version: if peer == 7 { 6 } else { 0 },
            tuned: if stream == StreamNumber::Bulk(3) {
                900
            } else {
                0
            },
        };
        assert_eq!(
            read(&shown),
            [
                told(7, StreamNumber::Small, (false, 1), four, (0, 0)),
                told(0, StreamNumber::Small, (true, 2), six, (0, 0)),
                told(0, StreamNumber::Bulk(3), (true, 1), six, (1200, 77)),
            ]
        );
    }

    #[test]
    fn connections_beyond_the_table_are_not_shown_and_rubbish_is_read_without_harm() {
        let shown = ConnectionTable::default();
        for peer in 0..2 * TCP_SHOWN as u32 {
            shown.opened(peer, StreamNumber::Small, None);
        }
        assert_eq!(read(&shown).len(), TCP_SHOWN);
        for len in [0, 1, 59, 60, SHOWN_BYTES, SHOWN_BYTES + 77] {
            assert!(read_shown(&vec![0xff; len]).len() <= TCP_SHOWN);
            assert!(read_shown(&vec![1; len]).len() <= TCP_SHOWN);
        }
    }
}
