//! Frames of a lossy medium: an acknowledgement, perhaps a numbered packet, and a checksum.
//!
//! Values without owner. Four bytes of CRC-32 (the polynomial of Ethernet) come first and cover all
//! that follows, so that a damaged or truncated frame is detected: always if up to three bits
//! changed, else with probability 1 - 2^-32.

use crate::transport::PacketHeader;

/// Bytes of the checksum.
const SUM: usize = 4;
/// Bytes before a packet's payload: what frame it is, acknowledgement, early arrivals, number,
/// header.
const HEAD: usize = 1 + 8 + 8 + 8 + 24;
/// A frame that carries a packet.
const WITH_PACKET: u8 = 1;
/// A frame that only acknowledges.
const BARE: u8 = 0;

/// A packet as the engine's transport sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Header.
    pub header: PacketHeader,
    /// Payload of `header.len` bytes.
    pub payload: Vec<u8>,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<P = Packet> {
    /// Every packet with a smaller number has arrived.
    pub acknowledged: u64,
    /// Packets that arrived early: bit n stands for number `acknowledged + 1 + n`.
    pub selective: u64,
    /// A numbered packet; `None`: only an acknowledgement.
    pub packet: Option<(u64, P)>,
}

/// Puts a checksum before `bytes`.
pub fn seal(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(SUM + bytes.len());
    sealed.extend(crc32fast::hash(bytes).to_le_bytes());
    sealed.extend(bytes);
    sealed
}

/// Returns the sealed bytes; `None` if they were changed.
pub fn open(sealed: &[u8]) -> Option<&[u8]> {
    let (sum, bytes) = sealed.split_first_chunk::<SUM>()?;
    (crc32fast::hash(bytes) == u32::from_le_bytes(*sum)).then_some(bytes)
}

impl Frame {
    /// Encodes and seals the frame.
    pub fn encode(&self) -> Vec<u8> {
        let payload = self
            .packet
            .as_ref()
            .map_or(0, |(_, packet)| packet.payload.len());
        let mut bytes = Vec::with_capacity(HEAD + payload);
        bytes.push(if self.packet.is_some() {
            WITH_PACKET
        } else {
            BARE
        });
        bytes.extend(self.acknowledged.to_le_bytes());
        bytes.extend(self.selective.to_le_bytes());
        if let Some((number, packet)) = &self.packet {
            bytes.extend(number.to_le_bytes());
            bytes.extend(
                packet
                    .header
                    .to_words()
                    .iter()
                    .flat_map(|word| word.to_le_bytes()),
            );
            bytes.extend(&packet.payload);
        }
        seal(&bytes)
    }

    /// The frame in these bytes; `None`: they are not one, or not any more.
    pub fn decode(sealed: &[u8]) -> Option<Self> {
        let (kind, mut rest) = open(sealed)?.split_first()?;
        let (acknowledged, selective) = (word(&mut rest)?, word(&mut rest)?);
        let packet = match *kind {
            BARE => None,
            WITH_PACKET => {
                let number = word(&mut rest)?;
                let words = [word(&mut rest)?, word(&mut rest)?, word(&mut rest)?];
                let (header, payload) = (
                    PacketHeader::from_words(words),
                    std::mem::take(&mut rest).to_vec(),
                );
                if header.len as usize != payload.len() {
                    return None;
                }
                Some((number, Packet { header, payload }))
            }
            _ => return None,
        };
        rest.is_empty().then_some(Self {
            acknowledged,
            selective,
            packet,
        })
    }
}

/// The next word of eight bytes.
fn word(rest: &mut &[u8]) -> Option<u64> {
    let (word, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(
        (acknowledged, selective): (u64, u64),
        packet: Option<(u64, [u64; 3], Vec<u8>)>,
    ) -> Frame {
        let packet = packet.map(|(number, words, payload)| {
            let mut header = PacketHeader::from_words(words);
            header.len = payload.len() as u32;
            (number, Packet { header, payload })
        });
        Frame {
            acknowledged,
            selective,
            packet,
        }
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        let payload = proptest::collection::vec(any::<u8>(), 0..300);
        let packet = proptest::option::of((any::<u64>(), any::<[u64; 3]>(), payload));
        (any::<(u64, u64)>(), packet).prop_map(|(words, packet)| frame(words, packet))
    }

    proptest! {
        #[test]
        fn a_frame_survives_its_bytes(frame in any_frame()) {
            prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }

        #[test]
        fn a_frame_of_which_some_bits_changed_is_no_frame(
            frame in any_frame(), bits in proptest::collection::btree_set(any::<usize>(), 1..=3),
        ) {
            let good = frame.encode();
            let mut bytes = good.clone();
            for bit in bits {
                let at = bit % (bytes.len() * 8);
                bytes[at / 8] ^= 1 << (at % 8);
            }
            prop_assume!(bytes != good);
            prop_assert_eq!(Frame::decode(&bytes), None);
        }

        #[test]
        fn bytes_that_are_sealed_but_no_frame_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(frame) = Frame::decode(&seal(&bytes)) {
                prop_assert_eq!(frame.encode(), seal(&bytes));
            }
        }

        #[test]
        fn a_frame_cut_short_is_no_frame(frame in any_frame(), part in 0.0f64..1.0) {
            let bytes = frame.encode();
            prop_assert_eq!(Frame::decode(&bytes[..(bytes.len() as f64 * part) as usize]), None);
        }
    }
}
