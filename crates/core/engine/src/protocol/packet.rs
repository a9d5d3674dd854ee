//! Packets: kind, header, and how a message becomes several packets.
//!
//! Values without owner; made by the engine, carried by transports, and trusted by nobody: whatever
//! a peer sent is a claim.

use crate::api::Peer;

/// Kinds of packets, version 1 of the format (`docs/` numbers the clauses). Unknown kinds are a
/// peer's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
    /// Envelope with its whole payload.
    Eager = 1,
    /// Envelope of a synchronous send with its whole payload, preceded by the send's name (8
    /// bytes).
    EagerSync = 2,
    /// Envelope without payload: a request to send. Payload: `wire::Rts`.
    Rts = 3,
    /// Clear to send by packets. Payload: `wire::Cts`.
    Cts = 4,
    /// A piece of a message after `Cts`. `context`/`source`: the receive's name;
    /// `tag`/`sequence`: low and high half of the offset.
    Data = 5,
    /// The named send is received (or was matched, for a synchronous one). Payload: `wire::Fin`.
    Fin = 6,
    /// Credits return: `context` envelopes, `source` payload bytes.
    Credit = 7,
    /// The sender holds envelopes back, or has new ones: its window's epoch in `sequence`.
    Blocked = 8,
    /// Looks into the peer's window: context, tag, epoch in `sequence`; `flags`: any tag; `source`:
    /// echoed.
    Probe = 9,
    /// Answer: the first blocked envelope that matches. Payload: `wire::ProbeHit`.
    ProbeHit = 10,
    /// Answer: nothing held matches (epoch in `sequence`), or the query's epoch is stale (`flags`).
    ProbeMiss = 11,
    /// The receiver takes the blocked envelope `sequence` of `context`, out of sequence.
    Pull = 12,
    /// The sender may write to the receiver's memory. Payload: `wire::Rtr`.
    Rtr = 13,
    /// The sender wrote its parts of the region; `flags`: it could not. Payload: `wire::RtrFin`.
    RtrFin = 14,
    /// Envelope with the beginning of its payload, whose rest follows at once. The last eight
    /// bytes: length of the message.
    FragFirst = 15,
    /// The next piece of the message that the last `FragFirst` of this peer began. `sequence`: its
    /// offset.
    FragNext = 16,
    /// A receive is offered early: the sender of its message may write it unasked. `sequence`:
    /// the first envelope that the receiver has not seen. Payload: `wire::EarlyRtr`.
    EarlyRtr = 17,
    /// The sender wrote the whole message to a receive that was offered early; `flags`: it began
    /// and failed. Payload: `wire::EarlyFin`.
    EarlyFin = 18,
    /// Writes to a registered region. Payload: `one_sided::wire::AccessPrefix`, data.
    Put = 19,
    /// Reads a registered region; answered by `GetData`. Payload: `AccessPrefix`.
    Get = 20,
    /// Updates elements of a registered region. Payload: `AccessPrefix`, `AtomicPrefix`, operands.
    Atomic = 21,
    /// A piece of what a `Get` asked for. `context`/`source`: the access's name;
    /// `tag`/`sequence`: low and high half of the offset.
    GetData = 22,
    /// A part of the named access is over. `flags`: how; payload: old values of elements.
    AccessDone = 23,
    /// A communicator is revoked: `context`, its first context.
    Revoked = 24,
}

impl PacketKind {
    /// The kind with this code.
    #[inline]
    pub fn from_code(code: u8) -> Option<Self> {
        use PacketKind::*;
        Some(match code {
            1 => Eager,
            2 => EagerSync,
            3 => Rts,
            4 => Cts,
            5 => Data,
            6 => Fin,
            7 => Credit,
            8 => Blocked,
            9 => Probe,
            10 => ProbeHit,
            11 => ProbeMiss,
            12 => Pull,
            13 => Rtr,
            14 => RtrFin,
            15 => FragFirst,
            16 => FragNext,
            17 => EarlyRtr,
            18 => EarlyFin,
            19 => Put,
            20 => Get,
            21 => Atomic,
            22 => GetData,
            23 => AccessDone,
            24 => Revoked,
            _ => return None,
        })
    }
}

/// The header of every packet: 24 bytes, three little-endian words, so that header, sender, slot
/// sequence and 32 bytes of payload share one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketHeader {
    /// A [`PacketKind`] as it arrived; the engine validates it.
    pub kind: u8,
    /// Bits whose meaning depends on the kind.
    pub flags: u8,
    /// In an envelope: the sender's type digest ([`crate::api::TypeDigest`]), 0 while types are not
    /// checked. Otherwise as the kind says.
    pub shard: u16,
    /// Bytes of payload in the packet. A transport delivers what it carried and checks this against
    /// it.
    pub len: u32,
    /// Context of the envelope, or as the kind says.
    pub context: u32,
    /// Sender's rank in the communicator, or as the kind says.
    pub source: u32,
    /// Tag, or as the kind says.
    pub tag: i32,
    /// Sequence of the envelope among those of (context, sender), or as the kind says.
    pub sequence: u32,
}

impl PacketHeader {
    /// Returns whether the packet is the first of a message, not a control packet.
    #[inline]
    pub fn is_envelope(&self) -> bool {
        const ENVELOPES: [PacketKind; 4] = [
            PacketKind::Eager,
            PacketKind::EagerSync,
            PacketKind::Rts,
            PacketKind::FragFirst,
        ];
        ENVELOPES.iter().any(|kind| self.kind == *kind as u8)
    }

    /// The three words on the wire.
    #[inline]
    pub fn to_words(&self) -> [u64; 3] {
        [
            u64::from(self.kind)
                | u64::from(self.flags) << 8
                | u64::from(self.shard) << 16
                | u64::from(self.len) << 32,
            u64::from(self.context) | u64::from(self.source) << 32,
            u64::from(self.tag as u32) | u64::from(self.sequence) << 32,
        ]
    }

    /// Bytes of payload that the header in these words tells.
    #[inline(always)]
    pub fn len_in(words: &[u64; 3]) -> u32 {
        (words[0] >> 32) as u32
    }

    /// The header in these words.
    #[inline]
    pub fn from_words(words: [u64; 3]) -> Self {
        Self {
            kind: words[0] as u8,
            flags: (words[0] >> 8) as u8,
            shard: (words[0] >> 16) as u16,
            len: (words[0] >> 32) as u32,
            context: words[1] as u32,
            source: (words[1] >> 32) as u32,
            tag: words[2] as u32 as i32,
            sequence: (words[2] >> 32) as u32,
        }
    }
}

/// The length of the message, which a head's header carries where others have flags and shard: one
/// look at it tells the receiver where the bytes go, without another line of the payload.
#[inline]
pub(crate) fn total(header: &PacketHeader) -> u64 {
    u64::from(header.shard) | u64::from(header.flags) << 16
}

/// A message that leaves in packets that follow each other: a head with its envelope, and tails; or
/// its envelope alone, if that holds it.
#[derive(Clone, Copy, Debug)]
pub struct Fragments {
    /// Receiver.
    pub peer: Peer,
    /// Envelope, as if the message left in one packet.
    pub envelope: PacketHeader,
    /// Length of the message, at least 1 and below 2^24.
    pub total: usize,
    /// Bytes of the first packet and of each other but the last, at least one each.
    pub first: usize,
    /// See there.
    pub piece: usize,
}

impl Fragments {
    /// Returns the number of packets.
    pub fn count(&self) -> usize {
        1 + self
            .total
            .saturating_sub(self.first)
            .div_ceil(self.piece.max(1))
    }

    /// The packets in their order: header, first byte, bytes.
    pub fn packets(&self) -> impl Iterator<Item = (PacketHeader, usize, usize)> + use<> {
        let pieces = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            let Self {
                envelope,
                total,
                first,
                piece,
                ..
            } = pieces;
            let from = at;
            let len = if from == 0 { first } else { piece };
            let len = len.max(1).min(total - from);
            at += len;
            let header = match from {
                0 if len == total => envelope,
                0 => Self::head(&envelope, total, len),
                _ => Self::tail(from, len),
            };
            (len > 0).then_some((header, from, len))
        })
    }

    /// The header of the first `len` of `total` bytes.
    pub fn head(envelope: &PacketHeader, total: usize, len: usize) -> PacketHeader {
        PacketHeader {
            kind: PacketKind::FragFirst as u8,
            flags: (total >> 16) as u8,
            shard: total as u16,
            len: len as u32,
            ..*envelope
        }
    }

    /// The header of `len` bytes from `at` on behind a head.
    pub fn tail(at: usize, len: usize) -> PacketHeader {
        PacketHeader {
            kind: PacketKind::FragNext as u8,
            sequence: at as u32,
            len: len as u32,
            ..PacketHeader::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_words() {
        let header = PacketHeader {
            kind: 3,
            flags: 0x81,
            shard: 7,
            len: u32::MAX,
            context: 5,
            source: 6,
            tag: -2,
            sequence: 0x8000_0001,
        };
        assert_eq!(PacketHeader::from_words(header.to_words()), header);
    }

    #[test]
    fn pieces_cover_a_message_and_the_first_tells_its_length() {
        for (total, first, piece) in [
            (2, 1, 1),
            (70_000, 32_768, 32_768),
            (65_536, 32_768, 32_768),
            (131_072, 4096, 50_000),
            (500, 500, 500),
            (500, 4096, 65_536),
        ] {
            let envelope = PacketHeader {
                kind: PacketKind::Eager as u8,
                len: total as u32,
                context: 3,
                tag: 4,
                sequence: 5,
                ..PacketHeader::default()
            };
            let pieces = Fragments {
                peer: 1,
                envelope,
                total,
                first,
                piece,
            };
            assert_eq!(pieces.packets().count(), pieces.count());
            let mut next = 0;
            for (header, at, len) in pieces.packets() {
                assert_eq!((at, header.len as usize), (next, len));
                if len == total {
                    assert_eq!(header, envelope);
                } else if at == 0 {
                    assert_eq!(super::total(&header), total as u64);
                    assert_eq!(
                        (header.kind, header.tag, header.sequence),
                        (PacketKind::FragFirst as u8, 4, 5)
                    );
                } else {
                    assert_eq!(
                        (header.kind, header.sequence as usize),
                        (PacketKind::FragNext as u8, at)
                    );
                }
                next += len;
            }
            assert_eq!(next, total);
        }
    }
}
