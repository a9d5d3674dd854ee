//! Frames on the wire: Ethernet header, head, tag, payload (docs/reference/ethernet.md).
//!
//! Values without owner. [`FrameHead::encode`] writes a head with its tag, [`FrameHead::decode`]
//! reads one of which nothing is believed before [`FrameKey::verifies`] says so.

use crate::limits::BLOCK_FRAMES_MAX;
use highway::{HighwayHash, HighwayHasher, Key};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Bytes of an Ethernet header without VLAN tags.
pub const ETHERNET: usize = 14;
/// Bytes of a frame's head, the tag included.
pub const HEAD: usize = 48;
/// Payloads from this length on have a tag by HighwayHash.
const LONG_FROM: usize = 128;
/// Where the tag stands in the head.
const TAG: usize = 40;
/// Version of the format.
pub const VERSION: u8 = 2;
/// Bytes from the beginning of a frame to its kind.
pub const KIND_AT: usize = ETHERNET + 1;
/// Bit of the kind: the frame is encrypted.
pub(crate) const SEALED: u8 = 0x40;
/// Bytes from the beginning of a frame to the number of bytes of its payload.
pub(crate) const LEN_AT: usize = ETHERNET + 2;
/// Bit of the kind: the frame need not wake a receiver that sleeps.
pub const QUIET: u8 = 0x80;
/// Bytes from the beginning of a frame to the word that names its job.
pub const JOB_AT: usize = ETHERNET + 4;
/// Bytes from the beginning of a frame to the word that names its receiver.
pub const TO_AT: usize = ETHERNET + 8;

/// Address of an interface.
pub type Mac = [u8; 6];

/// What a frame says, beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBody {
    /// A numbered piece of a packet.
    Piece {
        /// The packet's first piece, which begins with the engine's header.
        first: bool,
        /// Number of the piece.
        number: u64,
        /// All pieces with smaller numbers have arrived here.
        acknowledged: u64,
        /// Pieces that arrived early.
        selective: u64,
    },
    /// Only an acknowledgement.
    Ack {
        /// All pieces with smaller numbers have arrived here.
        acknowledged: u64,
        /// Pieces that arrived early.
        selective: u64,
    },
    /// A request for a block of a region; the payload is an [`Ask`].
    Ask {
        /// Number of the request.
        request: u64,
        /// Names the region.
        cookie: u64,
        /// First byte in the region.
        offset: u64,
    },
    /// Part of a block that was asked for.
    Block {
        /// Number of the request.
        request: u64,
        /// Index of the frame in the block.
        index: u64,
    },
    /// There is no such region.
    Refused {
        /// Number of the request.
        request: u64,
    },
    /// The sender leaves: all that came has been taken.
    Bye,
    /// A question whether a frame of this length arrives; the payload is padding.
    Probe {
        /// Number of the probe, larger than those of the sender before.
        nonce: u64,
        /// Most bytes behind the Ethernet header that the sender sends; 0: it sends by TCP.
        sends: u64,
    },
    /// The answer to a probe, on the way by which the probe came.
    ProbeAnswer {
        /// Number of the probe.
        nonce: u64,
    },
}

/// Frames of a block, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSet([u64; BLOCK_FRAMES_MAX / 64]);

impl FrameSet {
    /// The first `count` frames, at most [`BLOCK_FRAMES_MAX`].
    pub fn first(count: usize) -> Self {
        let mut words = [0; BLOCK_FRAMES_MAX / 64];
        for (at, word) in words.iter_mut().enumerate() {
            let bits = count.saturating_sub(64 * at).min(64) as u32;
            *word = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        }
        Self(words)
    }

    /// Takes a frame out. Returns whether it was in.
    pub fn remove(&mut self, index: u64) -> bool {
        let Some(word) = self.0.get_mut(index as usize / 64) else {
            return false;
        };
        let bit = 1 << (index % 64);
        let was_in = *word & bit != 0;
        *word &= !bit;
        was_in
    }

    /// Returns how many frames there are.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Returns the highest frame.
    pub fn last(&self) -> Option<u64> {
        let at = self.0.iter().rposition(|word| *word != 0)?;
        Some(64 * at as u64 + u64::from(self.0[at].ilog2()))
    }

    /// The frames in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let bits = (0..).zip(&self.0);
        bits.flat_map(|(at, word)| {
            let in_word = (0..64).filter(move |bit| word >> bit & 1 != 0);
            in_word.map(move |bit| 64 * at + bit)
        })
    }
}

/// Rest of a request for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Bytes of the block.
    pub len: u32,
    /// Bytes of one frame of it.
    pub chunk: u16,
    /// The last frame need not wake the receiver, since a later block's does.
    pub ends_quietly: bool,
    /// Frames that are missing.
    pub missing: FrameSet,
}

impl Ask {
    /// Bytes of the encoded form at most.
    pub const LEN_MAX: usize = 8 + BLOCK_FRAMES_MAX / 8;

    /// Returns the number of words of bits; `None`: there are no such blocks.
    fn words(len: u32, chunk: u16) -> Option<usize> {
        let chunk = u32::from(chunk);
        let frames = len.checked_add(chunk)?.checked_sub(1)?.checked_div(chunk)? as usize;
        (frames <= BLOCK_FRAMES_MAX).then(|| frames.div_ceil(64))
    }

    /// Writes the bytes, and returns how many.
    pub fn encode(&self, bytes: &mut [u8; Self::LEN_MAX]) -> usize {
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[6..8].copy_from_slice(&u16::from(self.ends_quietly).to_le_bytes());
        let words = Self::words(self.len, self.chunk).unwrap_or(0);
        let (_, rest) = bytes.split_at_mut(8);
        for (to, word) in rest.chunks_exact_mut(8).zip(&self.missing.0).take(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        8 + 8 * words
    }

    /// Reads it; `None`: it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(8)?;
        let (len, chunk) = (array(head, 0), array(head, 4));
        let (len, chunk) = (u32::from_le_bytes(len), u16::from_le_bytes(chunk));
        let ends_quietly = match u16::from_le_bytes(array(head, 6)) {
            0 => false,
            1 => true,
            _ => return None,
        };
        let words = Self::words(len, chunk)?;
        if rest.len() != 8 * words {
            return None;
        }
        let mut missing = FrameSet::first(0);
        for (to, word) in missing.0.iter_mut().zip(rest.as_chunks().0) {
            *to = u64::from_le_bytes(*word);
        }
        Some(Self {
            len,
            chunk,
            ends_quietly,
            missing,
        })
    }
}

/// Everything in a frame but its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Address of the receiver's interface.
    pub to_mac: Mac,
    /// Address of the sender's interface.
    pub from_mac: Mac,
    /// Ethertype.
    pub ethertype: u16,
    /// Short name of the job.
    pub job: u32,
    /// Rank of the receiver.
    pub to: u32,
    /// Rank of the sender.
    pub from: u32,
    /// The frame need not wake a receiver that sleeps: a later one does.
    pub quiet: bool,
    /// What the frame says.
    pub body: FrameBody,
}

impl FrameBody {
    fn code(&self) -> u8 {
        match self {
            FrameBody::Piece { first: true, .. } => 1,
            FrameBody::Piece { first: false, .. } => 2,
            FrameBody::Ack { .. } => 3,
            FrameBody::Ask { .. } => 4,
            FrameBody::Block { .. } => 5,
            FrameBody::Refused { .. } => 6,
            FrameBody::Bye => 7,
            FrameBody::Probe { .. } => 8,
            FrameBody::ProbeAnswer { .. } => 9,
        }
    }

    fn words(&self) -> [u64; 3] {
        match *self {
            FrameBody::Piece {
                number,
                acknowledged,
                selective,
                ..
            } => [number, acknowledged, selective],
            FrameBody::Ack {
                acknowledged,
                selective,
            } => [0, acknowledged, selective],
            FrameBody::Ask {
                request,
                cookie,
                offset,
            } => [request, cookie, offset],
            FrameBody::Block { request, index } => [request, index, 0],
            FrameBody::Refused { request } => [request, 0, 0],
            FrameBody::Bye => [0; 3],
            FrameBody::Probe { nonce, sends } => [nonce, sends, 0],
            FrameBody::ProbeAnswer { nonce } => [nonce, 0, 0],
        }
    }

    fn of(code: u8, words: [u64; 3]) -> Option<Self> {
        let body = match code {
            1 | 2 => FrameBody::Piece {
                first: code == 1,
                number: words[0],
                acknowledged: words[1],
                selective: words[2],
            },
            3 => FrameBody::Ack {
                acknowledged: words[1],
                selective: words[2],
            },
            4 => FrameBody::Ask {
                request: words[0],
                cookie: words[1],
                offset: words[2],
            },
            5 => FrameBody::Block {
                request: words[0],
                index: words[1],
            },
            6 => FrameBody::Refused { request: words[0] },
            7 => FrameBody::Bye,
            8 => FrameBody::Probe {
                nonce: words[0],
                sends: words[1],
            },
            9 => FrameBody::ProbeAnswer { nonce: words[0] },
            _ => return None,
        };
        (body.words() == words).then_some(body)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

impl FrameHead {
    /// Writes Ethernet header and head before the payload, which begins at `ETHERNET + HEAD` of
    /// `frame`, and the tag over all of it.
    pub fn encode(&self, key: &FrameKey, frame: &mut [u8]) {
        let len = (frame.len() - ETHERNET - HEAD) as u16;
        frame[..6].copy_from_slice(&self.to_mac);
        frame[6..12].copy_from_slice(&self.from_mac);
        frame[12..14].copy_from_slice(&self.ethertype.to_be_bytes());
        let (head, payload) = frame[ETHERNET..].split_at_mut(HEAD);
        head[0] = VERSION;
        head[1] = self.body.code() | if self.quiet { QUIET } else { 0 };
        head[2..4].copy_from_slice(&len.to_le_bytes());
        // In the order of the network, which socket filters read.
        head[4..8].copy_from_slice(&self.job.to_be_bytes());
        head[8..12].copy_from_slice(&self.to.to_be_bytes());
        head[12..16].copy_from_slice(&self.from.to_be_bytes());
        for (at, word) in self.body.words().iter().enumerate() {
            head[16 + 8 * at..24 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
        let tag = key.tag(&head[..TAG], payload);
        head[TAG..].copy_from_slice(&tag.to_le_bytes());
    }

    /// Reads a frame: its head and its payload, of which nothing is believed yet. Bytes behind the
    /// payload are padding of the network. `None`: no frame of this format.
    pub fn decode(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (ethernet, rest) = frame.split_at_checked(ETHERNET)?;
        let (head, rest) = rest.split_at_checked(HEAD)?;
        if head[0] != VERSION {
            return None;
        }
        let len = usize::from(u16::from_le_bytes(array(head, 2)));
        let payload = rest.get(..len)?;
        let word = |at| u64::from_le_bytes(array(head, at));
        let body = FrameBody::of(head[1] & !QUIET, [word(16), word(24), word(32)])?;
        let head = Self {
            to_mac: array(ethernet, 0),
            from_mac: array(ethernet, 6),
            ethertype: u16::from_be_bytes(array(ethernet, 12)),
            job: u32::from_be_bytes(array(head, 4)),
            to: u32::from_be_bytes(array(head, 8)),
            from: u32::from_be_bytes(array(head, 12)),
            quiet: head[1] & QUIET != 0,
            body,
        };
        Some((head, payload))
    }
}

/// Returns who says to have sent a frame: the interface's address, and the rank.
pub(crate) fn sender(frame: &[u8]) -> Option<Endpoint> {
    let from = frame.get(ETHERNET + 12..ETHERNET + 16)?;
    Some(Endpoint {
        mac: array(frame, 6),
        rank: u32::from_be_bytes(array(from, 0)),
    })
}

/// Identity of one end of a pair: the interface's address, and the rank behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address of the interface.
    pub mac: Mac,
    /// Rank in the world.
    pub rank: u32,
}

/// Key of the frames from one endpoint to another: of SipHash for short payloads, which it is
/// quicker for, and of HighwayHash for the others.
#[derive(Clone)]
pub struct FrameKey(SipHasher24, HighwayHasher);

impl std::fmt::Debug for FrameKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrameKey")
    }
}

impl FrameKey {
    /// Derives the key of one direction from the secret of the job. `world` names job and world.
    pub fn derive(secret: &[u8; 32], world: &[u8], from: Endpoint, to: Endpoint) -> Self {
        let (first, second) = secret.split_at(16);
        let mut words = [0; 6];
        for (word, number) in words.iter_mut().zip(0u8..) {
            let mut hasher = SipHasher24::new_with_key(&array(first, 0));
            hasher.write(b"garonne ethernet 2");
            hasher.write(&[number]);
            hasher.write(second);
            hasher.write(&(world.len() as u64).to_le_bytes());
            hasher.write(world);
            for end in [from, to] {
                hasher.write(&end.mac);
                hasher.write(&end.rank.to_le_bytes());
            }
            *word = hasher.finish();
        }
        let [first, second, rest @ ..] = words;
        let short = SipHasher24::new_with_keys(first, second);
        Self(short, HighwayHasher::new(Key(rest)))
    }

    fn tag(&self, head: &[u8], payload: &[u8]) -> u64 {
        if payload.len() < LONG_FROM {
            let mut hasher = self.0;
            hasher.write(head);
            hasher.write(payload);
            return hasher.finish();
        }
        let mut hasher = self.1.clone();
        hasher.append(head);
        hasher.append(payload);
        hasher.finalize64()
    }

    /// Returns whether the holder of this key made the frame, which [`FrameHead::decode`] has read.
    pub fn verifies(&self, frame: &[u8], payload: &[u8]) -> bool {
        let Some(head) = frame.get(ETHERNET..ETHERNET + HEAD) else {
            return false;
        };
        let own = self.tag(&head[..TAG], payload).to_le_bytes();
        // As long wherever they differ.
        let differs = own.iter().zip(&head[TAG..]);
        differs.fold(0, |all, (own, other)| all | (own ^ other)) == 0
    }
}

/// Reads any bytes as a frame. What is understood is written as it was read.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let end = |rank| Endpoint { mac: [2; 6], rank };
    let key = FrameKey::derive(&[7; 32], b"world", end(0), end(1));
    if let Some((head, payload)) = FrameHead::decode(bytes) {
        let mut again = vec![0; ETHERNET + HEAD + payload.len()];
        again[ETHERNET + HEAD..].copy_from_slice(payload);
        head.encode(&key, &mut again);
        let tag = ETHERNET + TAG..ETHERNET + HEAD;
        assert_eq!(again[..tag.start], bytes[..tag.start]);
        assert_eq!(again[tag.end..], bytes[tag.end..again.len()]);
        assert!(key.verifies(&again, payload));
        let right = again[tag.clone()] == bytes[tag];
        assert_eq!(key.verifies(bytes, payload), right);
        if let Some(ask) = Ask::decode(payload) {
            let mut bytes = [0; Ask::LEN_MAX];
            let len = ask.encode(&mut bytes);
            assert_eq!(&bytes[..len], payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_body() -> impl Strategy<Value = FrameBody> {
        (1u8..=9, any::<[u64; 3]>()).prop_map(|(code, words)| {
            let words = match code {
                1 | 2 | 4 => words,
                3 => [0, words[1], words[2]],
                5 | 8 => [words[0], words[1], 0],
                6 | 9 => [words[0], 0, 0],
                _ => [0; 3],
            };
            FrameBody::of(code, words).expect("words that the kind uses")
        })
    }

    fn ends() -> (Endpoint, Endpoint) {
        let near = Endpoint {
            mac: [2, 0, 0, 0, 0, 1],
            rank: 3,
        };
        let far = Endpoint {
            mac: [2, 0, 0, 0, 0, 2],
            rank: 4,
        };
        (near, far)
    }

    fn frame_of(body: FrameBody, payload: &[u8], key: &FrameKey) -> (FrameHead, Vec<u8>) {
        let (near, far) = ends();
        let head = FrameHead {
            to_mac: far.mac,
            from_mac: near.mac,
            ethertype: 0x88B5,
            job: 0x1234_5678,
            to: far.rank,
            from: near.rank,
            quiet: payload.len() % 2 == 1,
            body,
        };
        let mut frame = vec![0; ETHERNET + HEAD];
        frame.extend(payload);
        head.encode(key, &mut frame);
        (head, frame)
    }

    proptest! {
        #[test]
        fn a_frame_survives_its_bytes_and_padding(
            body in any_body(), payload in proptest::collection::vec(any::<u8>(), 0..400), padding in 0usize..50,
        ) {
            let (near, far) = ends();
            let key = FrameKey::derive(&[9; 32], b"world", near, far);
            let (head, mut frame) = frame_of(body, &payload, &key);
            frame.resize(frame.len() + padding, 0);
            let (read, bytes) = FrameHead::decode(&frame).expect("a frame");
            prop_assert_eq!((read, bytes), (head, &payload[..]));
            prop_assert!(key.verifies(&frame, bytes));
        }

        #[test]
        fn a_frame_of_which_a_bit_changed_is_refused(
            body in any_body(), payload in proptest::collection::vec(any::<u8>(), 0..400), bit: usize,
        ) {
            let (near, far) = ends();
            let key = FrameKey::derive(&[9; 32], b"world", near, far);
            let (_, mut frame) = frame_of(body, &payload, &key);
            let bit = ETHERNET * 8 + bit % ((frame.len() - ETHERNET) * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            let read = FrameHead::decode(&frame);
            prop_assert!(read.is_none_or(|(_, payload)| !key.verifies(&frame, payload)));
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..11) {
            read_anything(&bytes);
            let mut bytes = bytes;
            if let Some(head) = bytes.get_mut(ETHERNET..ETHERNET + 4) {
                head.copy_from_slice(&[VERSION, kind, 10, 0]);
            }
            read_anything(&bytes);
        }
    }

    #[test]
    fn keys_differ_by_secret_world_and_either_end() {
        for payload in [&b"bytes"[..], &[7; LONG_FROM]] {
            keys_differ(payload);
        }
    }

    fn keys_differ(payload: &[u8]) {
        let (near, far) = ends();
        let elsewhere = Endpoint {
            mac: [2, 0, 0, 0, 0, 9],
            ..near
        };
        let secret = [9; 32];
        let right = FrameKey::derive(&secret, b"world", near, far);
        let (_, frame) = frame_of(FrameBody::Bye, payload, &right);
        assert!(right.verifies(&frame, payload));
        for key in [
            FrameKey::derive(&[8; 32], b"world", near, far),
            FrameKey::derive(&secret, b"other", near, far),
            FrameKey::derive(&secret, b"world", far, near),
            FrameKey::derive(&secret, b"world", elsewhere, far),
        ] {
            assert!(!key.verifies(&frame, payload));
        }
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../fuzz/seeds/ethernet_frames");
        let inputs = std::fs::read_dir(&dir).unwrap();
        let count = inputs
            .map(|input| read_anything(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count > 0, "{}", dir.display());
    }
}
