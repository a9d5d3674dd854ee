//! The bytes of the TCP transport: frames of connections that are open, and the messages that open
//! them. Sans-IO.
//!
//! Used by the other modules of this transport only. `docs/reference/tcp.md` says the same in
//! words, clauses T1 to T24. Nothing here trusts a length or a number; what is understood is
//! written as it was read. Bounded by [`OPENING_MAX`] and, for frames, by what the transport's
//! kinds allow.

use crate::ofi_path::hello::{HELLO_MAX, LENT};
use crate::versions::Versions;
use garonne_engine::limits::STRIPE_PATHS;
use garonne_engine::transport::PacketHeader;
use garonne_transport::limits::{TCP_BULK_FRAME, TCP_PACKET_MAX};

/// Format versions that this library speaks: of the transport, and of what agents say to each other
/// on its connections (`node` holds that to the number by a sum over its messages).
pub const VERSIONS: Versions = Versions {
    lowest: 15,
    highest: 15,
};

/// This library by name: engines of different ones do not understand each other's packets.
pub const LIBRARY: &str = concat!("garonne ", env!("CARGO_PKG_VERSION"));

/// Bytes of a frame's head.
pub const HEAD: usize = 16;
/// Bytes of the engine's header in a packet's frame.
pub const HEADER: usize = 24;
/// Bytes of a request for bulk data.
pub const ASK: usize = 24;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// One of the engine's packets; numbered.
    Packet = 1,
    /// Wakes the receiver; numbered.
    Ring = 2,
    /// Says how far the other direction has arrived; not numbered.
    Acknowledge = 3,
    /// The sender leaves in good order and sends nothing more; numbered.
    Bye = 4,
    /// Asks for part of a region.
    Ask = 16,
    /// Some of what was asked for.
    Bulk = 17,
    /// The data asked for are not there any more.
    Refused = 18,
    /// Address of the sender's endpoint of libfabric, or why there is none.
    Hello = 19,
    /// Where what was asked for may be read.
    Lent = 20,
    /// The data asked for cannot be read on this stream.
    Declined = 21,
    /// The data that were lent are not read any more.
    Taken = 22,
    /// The beginning of a region comes, which nobody has asked for; or, of no length, does not.
    Advance = 23,
    /// There was no place for it.
    Unkept = 24,
}

/// Numbers of what nobody asked for have this bit, and those of requests do not.
pub const UNASKED: u32 = 1 << 31;

/// The way that stands for a fast network, which libfabric reaches: its connection carries requests
/// and keys alone.
pub const FABRIC: u8 = STRIPE_PATHS as u8;

/// The way of two ranks of one host that is no connection: the receiver copies from the sender's
/// memory. Such a pair has no further network.
pub const MEMORY: u8 = 1;

/// Which of a pair's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamNumber {
    /// Packets.
    Small,
    /// Bulk data and requests for it: 0 the one that every pair has, the others one for each
    /// further network that both hosts are on, below [`STRIPE_PATHS`]; then [`FABRIC`].
    Bulk(u8),
}

impl StreamNumber {
    /// Returns whether the stream is by a further network: whether it is there decides about speed
    /// alone.
    pub fn is_further(self) -> bool {
        matches!(self, Self::Bulk(1..))
    }

    /// Returns whether the stream is the one beside an endpoint of libfabric.
    pub fn is_fabric(self) -> bool {
        self == Self::Bulk(FABRIC)
    }

    /// Returns the number as it travels.
    pub fn code(self) -> u8 {
        match self {
            Self::Small => 0,
            Self::Bulk(path) => 1 + path,
        }
    }

    /// The stream of that code.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Small),
            1.. if code <= FABRIC + 1 => Some(Self::Bulk(code - 1)),
            _ => None,
        }
    }
}

/// Header before a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of body.
    pub len: u32,
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Number of the frame among the numbered ones of its direction; of the request on the bulk
    /// stream.
    pub number: u32,
    /// Next number expected from the other side; 0 on the bulk stream.
    pub expected: u32,
}

impl FrameHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..].copy_from_slice(&self.expected.to_le_bytes());
        bytes
    }

    /// The head in these bytes, if a frame of that stream can have it.
    pub fn decode(bytes: &[u8; HEAD], stream: StreamNumber) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (len, kind) = (word(0), bytes[4]);
        if bytes[5..8] != [0; 3] {
            return None;
        }
        let (kind, right) = match (stream, kind) {
            (StreamNumber::Small, 1) => (
                FrameKind::Packet,
                (HEADER..=HEADER + TCP_PACKET_MAX).contains(&(len as usize)),
            ),
            (StreamNumber::Small, 2) => (FrameKind::Ring, len == 0),
            (StreamNumber::Small, 3) => (FrameKind::Acknowledge, len == 0 && word(8) == 0),
            (StreamNumber::Small, 4) => (FrameKind::Bye, len == 0),
            (StreamNumber::Bulk(_), 16) => {
                (FrameKind::Ask, len as usize == ASK && word(8) < UNASKED)
            }
            (StreamNumber::Bulk(_), 18) => (FrameKind::Refused, len == 0),
            (StreamNumber::Bulk(FABRIC), 19) => (
                FrameKind::Hello,
                (2..=HELLO_MAX).contains(&(len as usize)) && word(8) == 0,
            ),
            (StreamNumber::Bulk(FABRIC), 20) => (FrameKind::Lent, len as usize == LENT),
            (StreamNumber::Bulk(FABRIC), 21) => (FrameKind::Declined, len == 0),
            (StreamNumber::Bulk(FABRIC), 22) => (FrameKind::Taken, len == 0),
            (StreamNumber::Bulk(FABRIC), _) => return None,
            (StreamNumber::Bulk(_), 23) => (FrameKind::Advance, len as usize == ASK),
            (StreamNumber::Bulk(_), 24) => (FrameKind::Unkept, len == 0),
            (StreamNumber::Bulk(_), 17) => (
                FrameKind::Bulk,
                (1..=TCP_BULK_FRAME).contains(&u64::from(len)),
            ),
            _ => return None,
        };
        (right && (stream == StreamNumber::Small || word(12) == 0)).then_some(Self {
            len,
            kind,
            number: word(8),
            expected: word(12),
        })
    }
}

/// The engine's header as it travels.
pub fn header_bytes(header: &PacketHeader) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (out, word) in bytes.chunks_exact_mut(8).zip(header.to_words()) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The engine's header in these bytes: a claim of its sender.
pub fn header_from(bytes: &[u8; HEADER]) -> PacketHeader {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
    PacketHeader::from_words(words)
}

/// A request for bulk data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The region's cookie.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl ReadRequest {
    /// Encodes the request.
    pub fn encode(&self) -> [u8; ASK] {
        let mut bytes = [0; ASK];
        for (out, word) in bytes
            .chunks_exact_mut(8)
            .zip([self.cookie, self.offset, self.len])
        {
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The request in these bytes.
    pub fn decode(bytes: &[u8; ASK]) -> Self {
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        Self {
            cookie: word(0),
            offset: word(8),
            len: word(16),
        }
    }
}

/// Every opening message begins with these eight bytes.
pub const MAGIC: [u8; 8] = *b"garonneT";
/// Bytes that all versions agree about: magic, length, type, versions, library.
pub const PREFIX: usize = 40;
/// Bytes of a library's name on the wire, zeros behind it.
const LIBRARY_BYTES: usize = 24;
/// Longest opening message: what an unauthenticated caller may make this side keep.
pub const OPENING_MAX: usize = 512;
/// Clear bytes of a call, which both sides bind into their handshake.
pub const CALL: usize = PREFIX + 44;
/// Bytes of the handshake's messages: a key and a seal; the same and an inner message; that sealed.
pub const FIRST: usize = 32 + 16;
/// Bytes of the second message of a handshake; [`FIRST`] of the first.
pub const SECOND: usize = 32 + INNER + 16;
/// Bytes of the third message of a handshake; [`FIRST`] of the first.
pub const THIRD: usize = INNER + 16;
/// Bytes of what both sides tell each other under seal.
pub const INNER: usize = 8;

/// The number of a world in whose name an agent calls a rank of its node, on behalf of the rank
/// that it names: that one wants to be called, on the connection's stream. No world of ranks has
/// it.
pub const ASKED: u32 = u32::MAX - 1;

/// A process, as formats name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// The job.
    pub job: [u8; 16],
    /// World of that job.
    pub world: u32,
    /// Index in that world.
    pub rank: u32,
    /// How many processes had that index before.
    pub incarnation: u32,
}

/// Content of an opening message, before anything is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Versions its sender speaks.
    pub versions: Versions,
    /// Library of its sender.
    pub library: LibraryName,
    /// The rest.
    pub body: MessageBody,
}

/// A library's name as it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LibraryName([u8; LIBRARY_BYTES]);

impl LibraryName {
    /// Name and version of this library.
    pub fn own() -> Self {
        let mut bytes = [0; LIBRARY_BYTES];
        let len = LIBRARY.len().min(LIBRARY_BYTES);
        bytes[..len].copy_from_slice(&LIBRARY.as_bytes()[..len]);
        Self(bytes)
    }

    /// All its bytes, those that are no text as U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// For people; what is not printable is not shown.
    pub fn name(&self) -> String {
        let printable = |byte: &&u8| byte.is_ascii_graphic() || **byte == b' ';
        self.0
            .iter()
            .take_while(|byte| **byte != 0)
            .filter(printable)
            .map(|byte| char::from(*byte))
            .collect()
    }
}

impl std::fmt::Debug for LibraryName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// Why a call is refused. Not sealed: a hint, and no more trusted than its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    /// No format version in common.
    Versions = 1,
    /// Another library.
    Library = 2,
    /// Not the process that was called.
    Other = 3,
    /// The other side is calling, too, and its call is preferred.
    Busy = 4,
    /// One side wants its traffic sealed, the other does not.
    Sealing = 5,
    /// A host between keeps the call until the one called calls there, too. No end of the attempt.
    Waits = 6,
    /// A host between has both calls, and joins them: this side is the called one from now on. No
    /// end of the attempt either.
    Turn = 7,
}

impl RejectReason {
    const ALL: [Self; 7] = [
        Self::Versions,
        Self::Library,
        Self::Other,
        Self::Busy,
        Self::Sealing,
        Self::Waits,
        Self::Turn,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code)
    }
}

/// Content behind the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageBody {
    /// A process calls another.
    Call {
        /// The caller.
        from: ProcessId,
        /// Process that is called.
        to: (u32, u32),
        /// Purpose of the connection.
        stream: StreamNumber,
        /// True if its traffic is to be sealed.
        sealed: bool,
        /// The handshake's first message.
        first: [u8; FIRST],
    },
    /// The called one answers with the handshake's second message.
    Answer([u8; SECOND]),
    /// Or refuses.
    Refusal(RejectReason),
    /// The caller's proof, the handshake's third message.
    Proof([u8; THIRD]),
}

/// Result of a look at received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedMessage<T> {
    /// Not all is here.
    More,
    /// A message, and how many bytes it took.
    Message(T, usize),
    /// No message of this format.
    Wrong,
    /// A call in versions of the format that are not spoken here.
    Foreign(Versions, LibraryName),
}

impl Opening {
    /// A message of this library, which speaks these versions.
    pub fn own(versions: Versions, body: MessageBody) -> Self {
        Self {
            versions,
            library: LibraryName::own(),
            body,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[0, 0, 0, 0]);
        bytes.extend_from_slice(&self.versions.lowest.to_le_bytes());
        bytes.extend_from_slice(&self.versions.highest.to_le_bytes());
        bytes.extend_from_slice(&self.library.0);
        bytes[10] = match &self.body {
            MessageBody::Call {
                from,
                to,
                stream,
                sealed,
                first,
            } => {
                bytes.extend_from_slice(&from.job);
                for word in [from.world, from.rank, from.incarnation, to.0, to.1] {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
                bytes.extend_from_slice(&[stream.code(), u8::from(*sealed), 0, 0, 0, 0, 0, 0]);
                bytes.extend_from_slice(first);
                1
            }
            MessageBody::Answer(second) => {
                bytes.extend_from_slice(second);
                2
            }
            MessageBody::Refusal(reason) => {
                bytes.extend_from_slice(&[*reason as u8, 0, 0, 0]);
                3
            }
            MessageBody::Proof(third) => {
                bytes.extend_from_slice(third);
                4
            }
        };
        let len = (bytes.len() as u16).to_le_bytes();
        bytes[8..10].copy_from_slice(&len);
        bytes
    }

    /// The message at the beginning of these bytes, for a side that speaks `ours`.
    pub fn decode(bytes: &[u8], ours: Versions) -> ParsedMessage<Self> {
        // Wrong from the first byte on: an unauthenticated caller is not waited for.
        let seen = bytes.len().min(MAGIC.len());
        if bytes[..seen] != MAGIC[..seen] {
            return ParsedMessage::Wrong;
        }
        let Some(prefix) = bytes.get(..PREFIX) else {
            return ParsedMessage::More;
        };
        let half = |at: usize| u16::from_le_bytes([prefix[at], prefix[at + 1]]);
        let (len, versions) = (usize::from(half(8)), Versions::from((half(12), half(14))));
        if !(PREFIX..=OPENING_MAX).contains(&len)
            || versions.lowest > versions.highest
            || prefix[11] != 0
        {
            return ParsedMessage::Wrong;
        }
        let mut library = LibraryName([0; LIBRARY_BYTES]);
        library.0.copy_from_slice(&prefix[16..PREFIX]);
        if ours.agree(versions).is_err() {
            return ParsedMessage::Foreign(versions, library);
        }
        let Some(rest) = bytes.get(PREFIX..len) else {
            return ParsedMessage::More;
        };
        match MessageBody::decode(prefix[10], rest) {
            Some(body) => ParsedMessage::Message(
                Self {
                    versions,
                    library,
                    body,
                },
                len,
            ),
            None => ParsedMessage::Wrong,
        }
    }
}

impl MessageBody {
    fn decode(kind: u8, bytes: &[u8]) -> Option<Self> {
        match kind {
            1 => {
                let (clear, first) = bytes.split_at_checked(CALL - PREFIX)?;
                let word = |at: usize| {
                    u32::from_le_bytes([clear[at], clear[at + 1], clear[at + 2], clear[at + 3]])
                };
                let mut job = [0; 16];
                job.copy_from_slice(&clear[..16]);
                let sealed = match clear[37] {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                if clear[38..44] != [0; 6] {
                    return None;
                }
                Some(Self::Call {
                    from: ProcessId {
                        job,
                        world: word(16),
                        rank: word(20),
                        incarnation: word(24),
                    },
                    to: (word(28), word(32)),
                    stream: StreamNumber::from_code(clear[36])?,
                    sealed,
                    first: first.try_into().ok()?,
                })
            }
            2 => Some(Self::Answer(bytes.try_into().ok()?)),
            3 => match bytes {
                [code, 0, 0, 0] => RejectReason::from_code(*code).map(Self::Refusal),
                _ => None,
            },
            4 => Some(Self::Proof(bytes.try_into().ok()?)),
            _ => None,
        }
    }
}

/// Reads any bytes as each message and frame: what a peer sends may be anything. What is understood
/// is written as it was read.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    if let ParsedMessage::Message(opening, len) = Opening::decode(bytes, VERSIONS) {
        assert_eq!(opening.encode(), bytes[..len]);
        let _ = opening.library.name();
    }
    if let Some(head) = bytes.first_chunk::<HEAD>() {
        for stream in [
            StreamNumber::Small,
            StreamNumber::Bulk(0),
            StreamNumber::Bulk(FABRIC),
        ] {
            if let Some(known) = FrameHeader::decode(head, stream) {
                assert_eq!(&known.encode(), head);
            }
        }
    }
    if let Some(header) = bytes.first_chunk::<HEADER>() {
        assert_eq!(&header_bytes(&header_from(header)), header);
        assert_eq!(&ReadRequest::decode(header).encode(), header);
    }
}

#[cfg(test)]
mod tests;
