//! Encryption of frames, where the job asks for it: ChaCha20-Poly1305 around frames that are made
//! already (docs/reference/ethernet.md, E13).
//!
//! A [`FrameSeal`] belongs to one direction between two endpoints. The end that sends numbers what
//! it seals, and no number is used twice. The head stays readable, since filters read it, and is
//! authenticated with the payload.

use crate::frame::{ETHERNET, Endpoint, HEAD, KIND_AT, LEN_AT, SEALED};
use blake2::{Blake2s256, Digest};
use chacha20poly1305::aead::{AeadInPlace, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};

/// Bytes of the tag behind the payload.
const TAG: usize = 16;
/// Bytes of the number behind the tag.
const NUMBER: usize = 8;
/// Bytes that sealing adds to a frame.
pub(crate) const SEAL: usize = TAG + NUMBER;

/// Seals the frames of one direction, or opens them.
pub(crate) struct FrameSeal {
    cipher: ChaCha20Poly1305,
    next: u64,
}

impl std::fmt::Debug for FrameSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrameSeal")
    }
}

fn nonce(number: [u8; NUMBER]) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[..NUMBER].copy_from_slice(&number);
    nonce
}

impl FrameSeal {
    /// Derives the key of one direction from the secret of the job. `world` names job and world.
    pub fn derive(secret: &[u8; 32], world: &[u8], from: Endpoint, to: Endpoint) -> Self {
        let mut hash = Blake2s256::new();
        hash.update(b"garonne ethernet seal 1");
        hash.update(secret);
        hash.update((world.len() as u64).to_le_bytes());
        hash.update(world);
        for end in [from, to] {
            hash.update(end.mac);
            hash.update(end.rank.to_le_bytes());
        }
        Self {
            cipher: ChaCha20Poly1305::new(&hash.finalize()),
            next: 0,
        }
    }

    /// Seals a frame as it was encoded.
    pub fn seal(&mut self, frame: &mut Vec<u8>) {
        let number = self.next.to_le_bytes();
        self.next += 1;
        let len = (frame.len() - ETHERNET - HEAD + SEAL) as u16;
        frame[KIND_AT] |= SEALED;
        frame[LEN_AT..LEN_AT + 2].copy_from_slice(&len.to_le_bytes());
        let (head, payload) = frame.split_at_mut(ETHERNET + HEAD);
        let head = &head[ETHERNET..];
        let sealed = self
            .cipher
            .encrypt_in_place_detached(&nonce(number), head, payload);
        // Refused only for payloads of many gigabytes.
        let tag = sealed.unwrap_or_default();
        frame.extend_from_slice(&tag);
        frame.extend_from_slice(&number);
    }

    /// Opens a frame into `opened`, as it was before it was sealed. `false`: the holder of this key
    /// did not make it.
    pub fn open(&self, frame: &[u8], opened: &mut Vec<u8>) -> bool {
        self.try_open(frame, opened).is_some()
    }

    fn try_open(&self, frame: &[u8], opened: &mut Vec<u8>) -> Option<()> {
        let (head, rest) = frame.split_at_checked(ETHERNET + HEAD)?;
        let len = u16::from_le_bytes(*head[LEN_AT..].first_chunk()?);
        // Bytes behind are padding of the network.
        let rest = rest.get(..usize::from(len))?;
        let (payload, seal) = rest.split_at_checked(rest.len().checked_sub(SEAL)?)?;
        let (tag, number) = seal.split_at(TAG);
        if head[KIND_AT] & SEALED == 0 {
            return None;
        }
        opened.clear();
        opened.extend_from_slice(head);
        opened.extend_from_slice(payload);
        let (_, buffer) = opened.split_at_mut(head.len());
        let nonce = nonce(*number.first_chunk()?);
        let tag = Tag::from_slice(tag);
        let cipher = &self.cipher;
        let right = cipher.decrypt_in_place_detached(&nonce, &head[ETHERNET..], buffer, tag);
        right.ok()?;
        opened[KIND_AT] &= !SEALED;
        let len = payload.len() as u16;
        opened[LEN_AT..LEN_AT + 2].copy_from_slice(&len.to_le_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal_of(secret: u8, from: u32, to: u32) -> FrameSeal {
        let end = |rank| Endpoint { mac: [2; 6], rank };
        FrameSeal::derive(&[secret; 32], b"world", end(from), end(to))
    }

    fn frame_of(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![1; ETHERNET + HEAD];
        let len = payload.len() as u16;
        frame[LEN_AT..LEN_AT + 2].copy_from_slice(&len.to_le_bytes());
        frame.extend(payload);
        frame
    }

    proptest! {
        #[test]
        fn a_frame_comes_out_as_it_went_in_and_nothing_else_does(
            payload in proptest::collection::vec(any::<u8>(), 0..300), padding in 0usize..50, bit: usize,
        ) {
            let (mut near, far) = (seal_of(1, 0, 1), seal_of(1, 0, 1));
            let (plain, mut opened) = (frame_of(&payload), Vec::new());
            let mut frame = plain.clone();
            near.seal(&mut frame);
            prop_assert_eq!(frame.len(), plain.len() + SEAL);
            let sealed = frame.clone();
            frame.resize(frame.len() + padding, 0);
            prop_assert!(far.open(&frame, &mut opened));
            prop_assert_eq!(&opened, &plain);
            prop_assert!(!far.open(&plain, &mut opened));
            let mut changed = sealed.clone();
            let bit = ETHERNET * 8 + bit % ((sealed.len() - ETHERNET) * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!far.open(&changed, &mut opened));
            for other in [seal_of(2, 0, 1), seal_of(1, 1, 0)] {
                prop_assert!(!other.open(&sealed, &mut opened));
            }
        }

        #[test]
        fn any_bytes_are_opened_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!seal_of(1, 0, 1).open(&bytes, &mut Vec::new()));
        }
    }

    #[test]
    fn equal_frames_look_different() {
        let mut seal = seal_of(1, 0, 1);
        let (mut first, mut second) = (frame_of(&[0; 64]), frame_of(&[0; 64]));
        seal.seal(&mut first);
        seal.seal(&mut second);
        assert_ne!(first[ETHERNET + HEAD..], second[ETHERNET + HEAD..]);
        let sealed = &first[ETHERNET + HEAD..first.len() - NUMBER];
        assert!(!sealed.windows(8).any(|bytes| bytes == [0; 8]));
    }
}
