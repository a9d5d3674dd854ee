//! Payloads of control packets and requests to send, version 1 of the format.
//!
//! The engine's core uses them on both sides. All numbers are little-endian. Decoding checks
//! lengths and never trusts a count.

use crate::limits::{CONTROL_PAYLOAD_MAX, DESCRIPTOR_BLOB_MAX};
use crate::transport::RegionDescriptor;
use garonne_sync::user::UserMem;

/// Set in the flags of a query: its tag is any tag.
pub(crate) const FLAG_ANY_TAG: u8 = 1;
/// Set in the flags of `ProbeMiss`: the query's epoch was stale.
pub(crate) const FLAG_STALE: u8 = 1;
/// Set in the flags of a request to send: a descriptor follows.
pub(crate) const FLAG_REGION: u8 = 1;
/// Set in the flags of an envelope that its receiver took out of sequence.
pub(crate) const FLAG_TAKEN: u8 = 2;

/// Set in the flags of `Rtr`: the receiver copies by itself as long as it is alone, so nobody is
/// called for it.
pub(crate) const FLAG_UNCALLED: u8 = 1;

/// Set in the flags of `EarlyFin`: its receiver took a part of the message, too, so its sender
/// waits for word.
pub(crate) const FLAG_PART: u8 = 2;

/// Set in the flags of `RtrFin` and `EarlyFin`: the receiver's memory could not be written.
pub(crate) const FLAG_FAILED: u8 = 1;

/// Bytes of a payload in the making or just copied out of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlPayload {
    pub len: usize,
    pub bytes: [u8; CONTROL_PAYLOAD_MAX],
}

impl ControlPayload {
    pub(crate) fn new() -> Self {
        Self {
            len: 0,
            bytes: [0; CONTROL_PAYLOAD_MAX],
        }
    }

    fn put(mut self, value: &[u8]) -> Self {
        self.bytes[self.len..self.len + value.len()].copy_from_slice(value);
        self.len += value.len();
        self
    }

    fn word(self, value: u64) -> Self {
        self.put(&value.to_le_bytes())
    }

    /// Copies a packet's payload out, before anything in it is looked at.
    pub(crate) fn copy(payload: UserMem, len: usize) -> Option<Self> {
        let mut bytes = Self::new();
        payload.read(0, bytes.bytes.get_mut(..len)?);
        bytes.len = len;
        Some(bytes)
    }

    fn read(&self, at: usize) -> Option<u64> {
        let end = at.checked_add(8)?;
        let bytes = self.bytes.get(at..end).filter(|_| end <= self.len)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rts {
    /// Length of the message.
    pub total: u64,
    /// The send's name.
    pub send: u64,
    /// The region to read it from.
    pub region: Option<RegionDescriptor>,
}

impl Rts {
    pub(crate) fn encode(&self) -> ControlPayload {
        let bytes = ControlPayload::new().word(self.total).word(self.send);
        match &self.region {
            None => bytes,
            Some(region) => bytes.word(region.cookie).put(region.blob()),
        }
    }

    pub(crate) fn decode(bytes: &ControlPayload, flags: u8) -> Option<Self> {
        let region = if flags & FLAG_REGION == 0 {
            None
        } else {
            let blob = bytes.bytes.get(24..bytes.len)?;
            if blob.len() > DESCRIPTOR_BLOB_MAX {
                return None;
            }
            Some(RegionDescriptor::new(bytes.read(16)?, blob)?)
        };
        Some(Self {
            total: bytes.read(0)?,
            send: bytes.read(8)?,
            region,
        })
    }
}

/// Clear to send by packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cts {
    pub send: u64,
    pub recv: u64,
}

impl Cts {
    pub(crate) fn encode(&self) -> ControlPayload {
        ControlPayload::new().word(self.send).word(self.recv)
    }

    pub(crate) fn decode(bytes: &ControlPayload) -> Option<Self> {
        Some(Self {
            send: bytes.read(0)?,
            recv: bytes.read(8)?,
        })
    }
}

/// The send may write to the region, part by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rtr {
    pub send: u64,
    pub recv: u64,
    /// Region of the receiver's data.
    pub region: RegionDescriptor,
}

impl Rtr {
    pub(crate) fn encode(&self) -> ControlPayload {
        ControlPayload::new()
            .word(self.send)
            .word(self.recv)
            .word(self.region.cookie)
            .put(self.region.blob())
    }

    pub(crate) fn decode(bytes: &ControlPayload) -> Option<Self> {
        let blob = bytes.bytes.get(24..bytes.len)?;
        Some(Self {
            send: bytes.read(0)?,
            recv: bytes.read(8)?,
            region: RegionDescriptor::new(bytes.read(16)?, blob)?,
        })
    }
}

/// The sender wrote this many bytes of the receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtrFin {
    pub recv: u64,
    pub bytes: u64,
}

impl RtrFin {
    pub(crate) fn encode(&self) -> ControlPayload {
        ControlPayload::new().word(self.recv).word(self.bytes)
    }

    pub(crate) fn decode(bytes: &ControlPayload) -> Option<Self> {
        Some(Self {
            recv: bytes.read(0)?,
            bytes: bytes.read(8)?,
        })
    }
}

/// A receive that may be written unasked by the sender of its message. Context, tag and sequence
/// are in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyRtr {
    /// The receive's name.
    pub recv: u64,
    /// Room of the receive; the message may be shorter.
    pub room: u64,
    /// Envelopes with its tag that go elsewhere before, counted from the header's sequence on.
    pub skip: u32,
    /// Region of the receive's data.
    pub region: RegionDescriptor,
}

impl EarlyRtr {
    pub(crate) fn encode(&self) -> ControlPayload {
        ControlPayload::new()
            .word(self.recv)
            .word(self.room)
            .word(u64::from(self.skip))
            .word(self.region.cookie)
            .put(self.region.blob())
    }

    pub(crate) fn decode(bytes: &ControlPayload) -> Option<Self> {
        let blob = bytes.bytes.get(32..bytes.len)?;
        Some(Self {
            recv: bytes.read(0)?,
            room: bytes.read(8)?,
            skip: u32::try_from(bytes.read(16)?).ok()?,
            region: RegionDescriptor::new(bytes.read(24)?, blob)?,
        })
    }
}

/// The sender wrote this many bytes of the message early, and takes no more parts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyFin {
    pub recv: u64,
    pub send: u64,
    pub bytes: u64,
}

impl EarlyFin {
    pub(crate) fn encode(&self) -> ControlPayload {
        ControlPayload::new()
            .word(self.recv)
            .word(self.send)
            .word(self.bytes)
    }

    pub(crate) fn decode(bytes: &ControlPayload) -> Option<Self> {
        Some(Self {
            recv: bytes.read(0)?,
            send: bytes.read(8)?,
            bytes: bytes.read(16)?,
        })
    }
}

/// The send of this name needs nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fin {
    pub send: u64,
}

impl Fin {
    pub(crate) fn encode(&self) -> ControlPayload {
        ControlPayload::new().word(self.send)
    }

    pub(crate) fn decode(bytes: &ControlPayload) -> Option<Self> {
        Some(Self {
            send: bytes.read(0)?,
        })
    }
}

/// A blocked envelope, offered to a query. Context, tag and sequence are in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeHit {
    /// Length of the message.
    pub len: u64,
    /// Sequence of the first envelope of this context that was not sent when the offer was made.
    pub sent_before: u32,
    /// Epoch of the window.
    pub epoch: u32,
}

impl ProbeHit {
    pub(crate) fn encode(&self) -> ControlPayload {
        ControlPayload::new()
            .word(self.len)
            .word(u64::from(self.sent_before) | u64::from(self.epoch) << 32)
    }

    pub(crate) fn decode(bytes: &ControlPayload) -> Option<Self> {
        let word = bytes.read(8)?;
        Some(Self {
            len: bytes.read(0)?,
            sent_before: word as u32,
            epoch: (word >> 32) as u32,
        })
    }
}

/// Decodes any bytes as each of the payloads: what a peer sends may be anything. What is understood
/// is written as it was read.
#[cfg(any(test, fuzzing))]
pub fn decode_anything(bytes: &[u8]) {
    let Some((&flags, rest)) = bytes.split_first() else {
        return;
    };
    let len = rest.len().min(CONTROL_PAYLOAD_MAX);
    let mut payload = ControlPayload::new().put(&rest[..len]);
    payload.len = len;
    let same = |again: ControlPayload| assert_eq!(again.bytes[..again.len], rest[..again.len]);
    if let Some(announce) = Rts::decode(&payload, flags) {
        same(announce.encode());
    }
    Cts::decode(&payload)
        .iter()
        .for_each(|clear| same(clear.encode()));
    Rtr::decode(&payload)
        .iter()
        .for_each(|push| same(push.encode()));
    RtrFin::decode(&payload)
        .iter()
        .for_each(|pushed| same(pushed.encode()));
    EarlyRtr::decode(&payload)
        .iter()
        .for_each(|expect| same(expect.encode()));
    EarlyFin::decode(&payload)
        .iter()
        .for_each(|written| same(written.encode()));
    Fin::decode(&payload)
        .iter()
        .for_each(|finish| same(finish.encode()));
    ProbeHit::decode(&payload)
        .iter()
        .for_each(|offer| same(offer.encode()));
    crate::protocol::one_sided::wire::decode_anything(rest);
    let sent = crate::observe::events::SentMessage {
        from: 0,
        to: 1,
        context: 2,
        tag: 3,
        len: 4,
    };
    // Whatever is asked for is read from there, however the addresses lie.
    let read = |at: u64, len: usize| {
        let from = usize::try_from(at).ok()? % (bytes.len() + 1);
        let end = bytes.len().min(from + len);
        let mut part = bytes[from..end].to_vec();
        part.resize(len, 0);
        Some(part)
    };
    crate::observe::events::find_senders(0, &sent, read);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            decode_anything(&bytes);
        }

        #[test]
        fn any_words_are_a_header_that_reads_back(words in any::<[u64; 3]>()) {
            let header = crate::transport::PacketHeader::from_words(words);
            prop_assert_eq!(crate::transport::PacketHeader::from_words(header.to_words()), header);
        }
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../fuzz/seeds/engine_payloads");
        let inputs = std::fs::read_dir(&dir).unwrap();
        let count = inputs
            .map(|input| decode_anything(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count > 0, "{}", dir.display());
    }

    #[test]
    fn announcements_survive_the_wire_with_and_without_a_region() {
        for blob in [0usize, 1, 8, DESCRIPTOR_BLOB_MAX] {
            let region = RegionDescriptor::new(77, &vec![9; blob]);
            let announce = Rts {
                total: 1 << 40,
                send: 3,
                region,
            };
            assert_eq!(Rts::decode(&announce.encode(), FLAG_REGION), Some(announce));
        }
        let bare = Rts {
            total: 5,
            send: 6,
            region: None,
        };
        assert_eq!(Rts::decode(&bare.encode(), 0), Some(bare));
    }

    #[test]
    fn words_about_pushing_survive_the_wire() {
        for blob in [0usize, 16, DESCRIPTOR_BLOB_MAX] {
            let Some(region) = RegionDescriptor::new(7 << 32 | 1, &vec![3; blob]) else {
                panic!("the blob is short enough")
            };
            let push = Rtr {
                send: 1 << 40,
                recv: 9,
                region,
            };
            assert_eq!(Rtr::decode(&push.encode()), Some(push));
        }
        let pushed = RtrFin {
            recv: 5,
            bytes: 1 << 33,
        };
        assert_eq!(RtrFin::decode(&pushed.encode()), Some(pushed));
    }

    #[test]
    fn words_about_announced_receives_survive_the_wire() {
        for blob in [0usize, 8, DESCRIPTOR_BLOB_MAX] {
            let Some(region) = RegionDescriptor::new(7 << 32 | 1, &vec![3; blob]) else {
                panic!("the blob is short enough")
            };
            let expect = EarlyRtr {
                recv: 1 << 40,
                room: 9,
                skip: 3,
                region,
            };
            assert_eq!(EarlyRtr::decode(&expect.encode()), Some(expect));
        }
        let written = EarlyFin {
            recv: 5,
            send: 1 << 33,
            bytes: 12,
        };
        assert_eq!(EarlyFin::decode(&written.encode()), Some(written));
    }

    #[test]
    fn truncated_payloads_are_refused() {
        let mut bytes = Cts { send: 1, recv: 2 }.encode();
        bytes.len = 15;
        assert_eq!(Cts::decode(&bytes), None);
        bytes.len = 20;
        assert_eq!(Rts::decode(&bytes, FLAG_REGION), None);
    }
}
