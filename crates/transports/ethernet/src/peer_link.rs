//! One peer: the reliable link to it, its keys, and the packet of which not all pieces have come.
//!
//! Owned by the transport. A packet is cut into numbered pieces; the first begins with the engine's
//! header, which says how long the packet is.

use crate::frame::{FrameKey, Mac};
use crate::limits::{BACKLOG, BACKLOG_CONTROL, RETRY_FIRST_NS, RETRY_MAX_NS};
use crate::path::Path;
use garonne_engine::reliable::{Frame, ReliableLink, RetryPolicy};
use garonne_engine::transport::{PacketClass, PacketHeader};
use garonne_transport::limits::TCP_PACKET_MAX;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of the engine's header.
pub(crate) const HEADER: usize = 24;

/// A piece of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub first: bool,
    pub bytes: Arc<[u8]>,
}

/// A peer's pieces do not make packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPiece;

/// A packet of which not all pieces have come.
#[derive(Debug)]
struct PartialPacket {
    header: PacketHeader,
    payload: Vec<u8>,
}

/// Everything between this rank and one peer.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub mac: Mac,
    pub sends: FrameKey,
    pub receives: FrameKey,
    pub link: ReliableLink<Piece>,
    /// What the network between carries.
    pub path: Path,
    /// Number of the peer's last request for a block, and whether it came again: then what was
    /// sent did not arrive.
    pub asked: (u64, bool),
    /// Pieces for which the link's window has no room yet.
    backlog: VecDeque<Piece>,
    /// Pieces that came since an acknowledgement left.
    pub unacknowledged: u32,
    partial: Option<PartialPacket>,
}

/// Cuts a packet into pieces of at most `chunk` bytes.
pub(crate) fn pieces(header: &PacketHeader, payload: &[u8], chunk: usize) -> Vec<Piece> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    let words = header.to_words();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(payload);
    let pieces = bytes.chunks(chunk).enumerate();
    pieces
        .map(|(at, bytes)| Piece {
            first: at == 0,
            bytes: bytes.into(),
        })
        .collect()
}

impl PeerLink {
    pub(crate) fn new(mac: Mac, (sends, receives): (FrameKey, FrameKey), path: Path) -> Self {
        let policy = RetryPolicy {
            first_ns: RETRY_FIRST_NS,
            max_ns: RETRY_MAX_NS,
            gives_up: false,
        };
        Self {
            mac,
            sends,
            receives,
            link: ReliableLink::new(policy),
            path,
            asked: (0, false),
            backlog: VecDeque::new(),
            unacknowledged: 0,
            partial: None,
        }
    }

    /// Returns whether a packet may be added now.
    pub(crate) fn has_room(&self, class: PacketClass) -> bool {
        let most = match class {
            PacketClass::Data => BACKLOG,
            PacketClass::Control => BACKLOG_CONTROL,
        };
        self.backlog.len() <= most
    }

    /// Adds a piece behind all others.
    pub(crate) fn push(&mut self, piece: Piece) {
        self.backlog.push_back(piece);
    }

    /// Returns the frame of the next piece for which the window has room.
    pub(crate) fn next_frame(&mut self, now_ns: u64) -> Option<Frame<Piece>> {
        if self.backlog.is_empty() || self.link.room(PacketClass::Control) == 0 {
            return None;
        }
        let piece = self.backlog.pop_front()?;
        self.unacknowledged = 0;
        Some(self.link.send(piece, now_ns))
    }

    /// Takes note of what the peer says to have. Returns whether that is something new.
    pub(crate) fn acknowledge(&mut self, acknowledged: u64, selective: u64) -> bool {
        let before = self.link.acknowledged();
        self.link.acknowledge(acknowledged, selective);
        self.link.acknowledged() != before
    }

    /// Takes note of a request for a block, by its number.
    pub(crate) fn note_request(&mut self, request: u64) {
        let came_before = request <= self.asked.0;
        self.asked = (self.asked.0.max(request), came_before);
    }

    /// Returns whether the peer is still to confirm something.
    pub(crate) fn awaits(&self) -> bool {
        !self.is_settled() || self.asked.1
    }

    /// Returns whether the peer has everything that was sent.
    pub(crate) fn is_settled(&self) -> bool {
        self.backlog.is_empty() && self.link.is_settled()
    }

    /// Takes in the next piece in order, and gives the packet that it completes.
    pub(crate) fn assemble(
        &mut self,
        (first, bytes): (bool, &[u8]),
        deliver: &mut dyn FnMut(PacketHeader, &[u8]),
    ) -> Result<(), BadPiece> {
        if first {
            if self.partial.is_some() {
                return Err(BadPiece);
            }
            let (words, payload) = bytes.split_at_checked(HEADER).ok_or(BadPiece)?;
            let mut header = [0; 3];
            for (word, bytes) in header.iter_mut().zip(words.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().map_err(|_| BadPiece)?);
            }
            let header = PacketHeader::from_words(header);
            let len = header.len as usize;
            if len > TCP_PACKET_MAX || payload.len() > len {
                return Err(BadPiece);
            }
            if payload.len() == len {
                deliver(header, payload);
                return Ok(());
            }
            let mut all = Vec::with_capacity(len);
            all.extend(payload);
            self.partial = Some(PartialPacket {
                header,
                payload: all,
            });
            return Ok(());
        }
        let partial = self.partial.as_mut().ok_or(BadPiece)?;
        let len = partial.header.len as usize;
        if bytes.is_empty() || partial.payload.len() + bytes.len() > len {
            return Err(BadPiece);
        }
        partial.payload.extend(bytes);
        if partial.payload.len() == len
            && let Some(whole) = self.partial.take()
        {
            deliver(whole.header, &whole.payload);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Endpoint;
    use proptest::prelude::*;

    fn link() -> PeerLink {
        let end = |rank| Endpoint { mac: [2; 6], rank };
        let key = FrameKey::derive(&[1; 32], b"", end(0), end(1));
        PeerLink::new([2; 6], (key.clone(), key), Path::new(1500))
    }

    proptest! {
        #[test]
        fn pieces_make_their_packet(payload in proptest::collection::vec(any::<u8>(), 0..5000), chunk in 60usize..2000) {
            let header = PacketHeader { kind: 1, len: payload.len() as u32, ..PacketHeader::default() };
            let pieces = pieces(&header, &payload, chunk);
            prop_assert_eq!(pieces.len(), (HEADER + payload.len()).div_ceil(chunk));
            let (mut link, mut got) = (link(), Vec::new());
            for piece in &pieces {
                link.assemble((piece.first, &piece.bytes), &mut |header, bytes| got.push((header, bytes.to_vec()))).unwrap();
            }
            prop_assert_eq!(got, [(header, payload)]);
        }
    }

    #[test]
    fn pieces_that_make_no_packet_are_refused() {
        let none = &mut |_: PacketHeader, _: &[u8]| panic!("no packet is complete");
        let header = PacketHeader {
            kind: 1,
            len: 100,
            ..PacketHeader::default()
        };
        let begin = |len: u32| {
            let header = PacketHeader { len, ..header };
            pieces(&header, &[0; 10], 1000).remove(0).bytes
        };
        assert_eq!(link().assemble((false, b"x"), none), Err(BadPiece));
        assert_eq!(link().assemble((true, b"short"), none), Err(BadPiece));
        assert_eq!(link().assemble((true, &begin(9)), none), Err(BadPiece));
        assert_eq!(
            link().assemble((true, &begin(u32::MAX)), none),
            Err(BadPiece)
        );
        let mut twice = link();
        assert_eq!(twice.assemble((true, &begin(100)), none), Ok(()));
        assert_eq!(twice.assemble((false, &[0; 91]), none), Err(BadPiece));
        assert_eq!(twice.assemble((false, &[]), none), Err(BadPiece));
        assert_eq!(twice.assemble((true, &begin(100)), none), Err(BadPiece));
    }
}
