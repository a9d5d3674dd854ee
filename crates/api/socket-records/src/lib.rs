//! What virtual sockets write into shared memory about themselves: written by
//! `libgaronne_sockets.so.1`, read by `garonne sockets show`.
//!
//! A connection's memory file begins with a [`ConnectionRecord`]. A process that left connections
//! to TCP has a file of [`Note`]s, each with its [`Reason`]. Decoders take any bytes.

#![forbid(unsafe_code)]

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// Name of a connection's memory file, as `/proc` shows it.
pub const CONNECTION_FILE: &str = "garonne-socket";

/// Name of a file of notes.
pub const NOTES_FILE: &str = "garonne-socket-notes";

/// Notes that a file holds; a newer one replaces the oldest.
pub const NOTES: usize = 1024;

/// Bytes of a note.
pub const NOTE_BYTES: usize = 64;

/// Place of the number of notes that were written, a 32-bit word; notes begin at [`NOTE_BYTES`].
pub const NOTES_WRITTEN: usize = 0;

/// Bytes of a connection's record.
pub const RECORD_BYTES: usize = 80;

/// Places in a connection's memory file.
pub mod layout {
    /// A 32-bit word: whether the server has taken the offer.
    pub const STATE: usize = 128;
    /// The words of one direction and of the other, each on a page of its own.
    pub const WORDS: [usize; 2] = [4096, 8192];
    /// Locks and marks.
    pub const MARKS: usize = 12288;
    /// First byte of the first ring.
    pub const RINGS: usize = 16384;
    /// Bytes of a ring.
    pub const CAPACITY: usize = 256 << 10;
    /// Bytes of the file.
    pub const BYTES: usize = RINGS + 2 * CAPACITY;
    /// Place, among the words of a direction, of the bytes published.
    pub const TAIL: usize = 0;
}

const MAGIC: [u8; 8] = *b"GRNSOCK1";

/// What a connection's memory file says at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// Who connected; the address is unspecified where the system chose it.
    pub client: SocketAddr,
    /// Who listened.
    pub server: SocketAddr,
    /// Process that connected.
    pub client_process: u32,
    /// Process that accepted; 0: nobody yet.
    pub server_process: u32,
    /// Inodes of both sides' sockets, the client's first.
    pub inodes: [u64; 2],
}

/// Why a socket stays TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Nobody with the library listens at the address.
    NoLibraryListens = 1,
    /// The client that was accepted made no offer.
    NoOffer = 2,
    /// The address is not of this host.
    OtherHost = 3,
    /// Several listening sockets share the port.
    SharedPort = 5,
    /// The listening socket waits for data before it accepts.
    DeferredAccept = 6,
    /// Too few descriptors are left, or no memory.
    Scarce = 7,
    /// The socket was made elsewhere, copied, watched by epoll already, or has an option that only
    /// TCP carries out.
    NotFresh = 8,
    /// The connection was not made at once.
    Slow = 9,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::NoLibraryListens,
        Self::NoOffer,
        Self::OtherHost,
        Self::SharedPort,
        Self::DeferredAccept,
        Self::Scarce,
        Self::NotFresh,
        Self::Slow,
    ];

    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoLibraryListens => "the listening program runs without garonne sockets run",
            Self::NoOffer => "the connecting program runs without garonne sockets run",
            Self::OtherHost => "the other side is on another host",
            Self::SharedPort => "several listening sockets share the port (SO_REUSEPORT)",
            Self::DeferredAccept => "the listening socket waits for data (TCP_DEFER_ACCEPT)",
            Self::Scarce => "too few descriptors or too little memory is left",
            Self::NotFresh => {
                "the socket was inherited, copied, watched or given a special option before it connected"
            }
            Self::Slow => "the connection was not made at once",
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&reason| reason as u8 == number)
    }
}

/// A connection, or a listening socket, that stays TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Process that has the socket.
    pub process: u32,
    /// Number of the descriptor there.
    pub descriptor: u32,
    /// The socket's inode.
    pub inode: u64,
    /// The other side; of a listening socket its own address.
    pub peer: SocketAddr,
    /// Why it stays TCP.
    pub reason: Reason,
}

fn put_address(bytes: &mut [u8], address: SocketAddr) {
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..18].copy_from_slice(&address.port().to_le_bytes());
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn address(bytes: &[u8], at: usize) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(array::<16>(bytes, at)?);
    let port = u16::from_le_bytes(array(bytes, at + 16)?);
    Some(match ip.to_ipv4_mapped() {
        Some(ip) => SocketAddr::from((ip, port)),
        None => SocketAddrV6::new(ip, port, 0, 0).into(),
    })
}

impl ConnectionRecord {
    /// The record as it stands in the file.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        put_address(&mut bytes[8..], self.client);
        put_address(&mut bytes[32..], self.server);
        bytes[52..56].copy_from_slice(&self.client_process.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.server_process.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.inodes[0].to_le_bytes());
        bytes[72..80].copy_from_slice(&self.inodes[1].to_le_bytes());
        bytes
    }

    /// Reads a record. `None`: the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        Some(Self {
            client: address(bytes, 8)?,
            server: address(bytes, 32)?,
            client_process: word(bytes, 52)?,
            server_process: word(bytes, 56)?,
            inodes: [long(bytes, 64)?, long(bytes, 72)?],
        })
    }
}

/// Place of the accepting process in a record.
pub const SERVER_PROCESS: usize = 56;

impl Note {
    /// The note as it stands in the file.
    pub fn encode(&self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        bytes[0] = self.reason as u8;
        bytes[4..8].copy_from_slice(&self.process.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.descriptor.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.inode.to_le_bytes());
        put_address(&mut bytes[24..], self.peer);
        bytes
    }

    /// Reads a note. `None`: the place is empty, or holds something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            reason: Reason::from_number(*bytes.first()?)?,
            process: word(bytes, 4)?,
            descriptor: word(bytes, 8)?,
            inode: long(bytes, 16)?,
            peer: address(bytes, 24)?,
        })
    }
}

/// Reads any bytes as a record and as a note: what is decoded comes back when it is encoded.
pub fn read_anything(bytes: &[u8]) {
    if let Some(record) = ConnectionRecord::decode(bytes) {
        assert_eq!(ConnectionRecord::decode(&record.encode()), Some(record));
    }
    if let Some(note) = Note::decode(bytes) {
        assert_eq!(Note::decode(&note.encode()), Some(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_notes_come_back_as_they_were() {
        let record = ConnectionRecord {
            client: "127.0.0.1:40000".parse().unwrap(),
            server: "[::1]:6379".parse().unwrap(),
            client_process: 7,
            server_process: 8,
            inodes: [1 << 40, 3],
        };
        assert_eq!(ConnectionRecord::decode(&record.encode()), Some(record));
        for reason in Reason::ALL {
            let note = Note {
                process: 1,
                descriptor: 2,
                inode: 3,
                peer: "192.0.2.1:80".parse().unwrap(),
                reason,
            };
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
    }

    #[test]
    fn what_was_kept_is_read() {
        let kept = include_bytes!("../../../../fuzz/seeds/socket_records/connection");
        let record = ConnectionRecord::decode(kept).unwrap();
        assert_eq!(record.server, "127.0.0.1:6379".parse().unwrap());
        read_anything(kept);
        (0..kept.len()).for_each(|end| read_anything(&kept[..end]));
        (0..=255).for_each(|byte| read_anything(&[byte; RECORD_BYTES]));
    }

    #[test]
    fn other_bytes_are_no_records() {
        assert_eq!(ConnectionRecord::decode(&[0; RECORD_BYTES]), None);
        assert_eq!(ConnectionRecord::decode(b"GRNSOCK1"), None);
        assert_eq!(Note::decode(&[0; NOTE_BYTES]), None);
        assert_eq!(Note::decode(&[200; NOTE_BYTES]), None);
        assert_eq!(Note::decode(&[]), None);
    }
}
