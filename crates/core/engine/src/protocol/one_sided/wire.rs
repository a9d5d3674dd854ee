//! Formats of one-sided packets, and the key that opens a region.
//!
//! All numbers are little-endian. Decoding checks lengths and codes, and trusts nothing.

use crate::limits::DESCRIPTOR_BLOB_MAX;
use crate::transport::{AccessRights, AtomicUpdate, PacketHeader, RegionDescriptor};
use garonne_sync::user::{AtomicOp, AtomicType, UserMem};

/// Set in the flags of a one-sided request: its end is to be told.
pub(crate) const FLAG_ANSWER: u8 = 1;
/// Set in the flags of an atomic request: the answer brings the elements' old values.
pub(crate) const FLAG_FETCH: u8 = 2;

/// Code in place of an [`AtomicOp`]: compare and swap.
const CODE_COMPARE: u8 = 0xff;

/// Beginning of the payload of every one-sided request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessPrefix {
    /// Cookie of the region at its owner.
    pub cookie: u64,
    /// First byte of the whole access in the region.
    pub start: u64,
    /// Bytes of the whole access.
    pub total: u64,
}

impl AccessPrefix {
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        words([self.cookie, self.start, self.total])
    }

    /// Reads the prefix of a payload of `len` bytes.
    pub(crate) fn decode(payload: UserMem, len: usize) -> Option<Self> {
        let bytes: [u8; Self::BYTES] = copied(payload, len)?;
        Some(Self {
            cookie: word(&bytes, 0),
            start: word(&bytes, 8),
            total: word(&bytes, 16),
        })
    }
}

/// Continuation of the prefix of an atomic request; the operands follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicPrefix {
    /// Type of the elements.
    pub kind: AtomicType,
    /// Combination of each element with its operand; `None`: compare and swap.
    pub op: Option<AtomicOp>,
    /// Value that a swap compares elements with.
    pub compare: u64,
}

impl AtomicPrefix {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let op = self.op.map_or(CODE_COMPARE, |op| op as u8);
        words([
            u64::from(op) | u64::from(self.kind as u8) << 8,
            self.compare,
        ])
    }

    /// Reads the prefix at the beginning of `len` bytes. Refuses operations that are not defined
    /// for the type.
    pub(crate) fn decode(payload: UserMem, len: usize) -> Option<Self> {
        let bytes: [u8; Self::BYTES] = copied(payload, len)?;
        if bytes[2..8].iter().any(|byte| *byte != 0) {
            return None;
        }
        let kind = AtomicType::from_code(bytes[1])?;
        let op = match bytes[0] {
            CODE_COMPARE => None,
            code => Some(AtomicOp::from_code(code).filter(|op| op.is_defined(kind))?),
        };
        Some(Self {
            kind,
            op,
            compare: word(&bytes, 8),
        })
    }

    /// Returns the update of one element by its operand.
    pub(crate) fn update(&self, operand: u64) -> AtomicUpdate {
        match self.op {
            Some(op) => AtomicUpdate::Combine { op, operand },
            None => AtomicUpdate::CompareAndSwap {
                compare: self.compare,
                value: operand,
            },
        }
    }
}

/// Why a target carried out no part of an access, as the flags of its answer say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AccessFailure {
    /// The region was deregistered.
    Stale = 1,
    /// The region gives no such right.
    Denied = 2,
    /// The access reaches beyond the region.
    Bounds = 3,
    /// The elements are not naturally aligned.
    Misaligned = 4,
}

impl AccessFailure {
    /// Returns what the flags of an answer say; `None`: they have no meaning.
    pub(crate) fn from_flags(flags: u8) -> Option<Result<(), Self>> {
        Some(match flags {
            0 => Ok(()),
            1 => Err(Self::Stale),
            2 => Err(Self::Denied),
            3 => Err(Self::Bounds),
            4 => Err(Self::Misaligned),
            _ => return None,
        })
    }
}

/// The name of an access, which its packets' headers carry in `context` and `source`.
pub(crate) fn name_of(header: &PacketHeader) -> u64 {
    u64::from(header.context) | u64::from(header.source) << 32
}

/// The position of a packet within its access, which its header carries in `tag` and `sequence`.
pub(crate) fn position_of(header: &PacketHeader) -> u64 {
    u64::from(header.tag as u32) | u64::from(header.sequence) << 32
}

/// The header of a one-sided packet with so many bytes of payload.
pub(crate) fn header(
    kind: crate::transport::PacketKind,
    flags: u8,
    name: u64,
    position: u64,
    len: usize,
) -> PacketHeader {
    PacketHeader {
        kind: kind as u8,
        flags,
        shard: 0,
        len: len as u32,
        context: name as u32,
        source: (name >> 32) as u32,
        tag: position as u32 as i32,
        sequence: (position >> 32) as u32,
    }
}

/// The key that opens a registered region to its peers. The owner sends it to them by any means, as
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKey {
    /// Names region and generation at the owner's engine.
    pub(crate) cookie: u64,
    /// Length of the region in bytes.
    pub(crate) len: u64,
    /// Rights that the owner gave.
    pub(crate) rights: AccessRights,
    /// The transport's right to the region, if it has any of its own.
    pub(crate) descriptor: Option<RegionDescriptor>,
}

impl RegionKey {
    /// Bytes of a key as it travels, at most.
    pub const BYTES_MAX: usize = 26 + DESCRIPTOR_BLOB_MAX;

    /// Returns the length of the region in bytes.
    pub fn region_len(&self) -> u64 {
        self.len
    }

    /// Returns the rights that the owner gave.
    pub fn rights(&self) -> AccessRights {
        self.rights
    }

    /// Returns the key as it travels.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES_MAX);
        bytes.extend(self.cookie.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        bytes.push(self.rights.bits());
        bytes.push(self.descriptor.is_some().into());
        if let Some(descriptor) = &self.descriptor {
            bytes.extend(descriptor.cookie.to_le_bytes());
            bytes.extend(descriptor.blob());
        }
        bytes
    }

    /// Reads a key that travelled; `None` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<18>()?;
        let descriptor = match (fixed[17], rest) {
            (0, []) => None,
            (1, rest) => {
                let (cookie, blob) = rest.split_first_chunk()?;
                Some(RegionDescriptor::new(u64::from_le_bytes(*cookie), blob)?)
            }
            _ => return None,
        };
        Some(Self {
            cookie: word(fixed, 0),
            len: word(fixed, 8),
            rights: AccessRights::from_bits(fixed[16])?,
            descriptor,
        })
    }
}

fn words<const WORDS: usize, const BYTES: usize>(values: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, value) in bytes.chunks_exact_mut(8).zip(values) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Reads the word at `at`, which lies within `bytes`.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

/// Copies the first bytes of a payload out, before anything in them is looked at.
fn copied<const BYTES: usize>(payload: UserMem, len: usize) -> Option<[u8; BYTES]> {
    (len >= BYTES).then(|| payload.read_array(0))
}

/// Decodes any bytes as each of the formats. What is understood is written as it was read.
#[cfg(any(test, fuzzing))]
pub(crate) fn decode_anything(bytes: &[u8]) {
    use garonne_sync::user::Packed;
    let payload = Packed::of(bytes).mem();
    if let Some(prefix) = AccessPrefix::decode(payload, bytes.len()) {
        assert_eq!(prefix.encode(), bytes[..AccessPrefix::BYTES]);
    }
    if let Some(prefix) = AtomicPrefix::decode(payload, bytes.len()) {
        assert_eq!(prefix.encode(), bytes[..AtomicPrefix::BYTES]);
    }
    if let Some(key) = RegionKey::decode(bytes) {
        assert_eq!(key.encode(), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_way_with_and_without_a_descriptor() {
        for blob in [None, Some(0), Some(7), Some(DESCRIPTOR_BLOB_MAX)] {
            let key = RegionKey {
                cookie: 5 << 32 | 1,
                len: 1 << 40,
                rights: AccessRights::READ.with(AccessRights::ATOMIC),
                descriptor: blob.and_then(|len| RegionDescriptor::new(9, &vec![3; len])),
            };
            let bytes = key.encode();
            assert!(bytes.len() <= RegionKey::BYTES_MAX);
            assert_eq!(RegionKey::decode(&bytes), Some(key));
            assert_eq!(RegionKey::decode(&bytes[..bytes.len().min(17)]), None);
        }
    }

    #[test]
    fn unknown_operations_and_rights_are_refused() {
        let refused = |op: u8, kind: u8| {
            let bytes = words::<2, 16>([u64::from(op) | u64::from(kind) << 8, 0]);
            let payload = garonne_sync::user::Packed::of(&bytes).mem();
            AtomicPrefix::decode(payload, 16).is_none()
        };
        assert!(!refused(AtomicOp::Sum as u8, AtomicType::F64 as u8));
        assert!(!refused(CODE_COMPARE, AtomicType::I8 as u8));
        assert!(refused(AtomicOp::Xor as u8, AtomicType::F64 as u8));
        assert!(refused(9, 0) && refused(0, 10));
        assert_eq!(AccessRights::from_bits(8), None);
    }
}
