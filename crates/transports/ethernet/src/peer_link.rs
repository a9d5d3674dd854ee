//! One peer: the reliable link to it, its keys, and the packet of which not all pieces have come.
//!
//! Owned by the transport. A packet is cut into numbered pieces; the first begins with the engine's
//! header, which says how long the packet is.

use crate::frame::{FrameKey, Mac};
use crate::limits::{BACKLOG, BACKLOG_CONTROL, RETRY_FIRST_NS, RETRY_MAX_NS};
use crate::path::Path;
use crate::seal::FrameSeal;
use crate::window::Window;
use garonne_engine::reliable::{Frame, ReliableLink, RetryPolicy, WINDOW};
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
    /// A packet is complete with it.
    pub ends: bool,
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
    /// What encrypts frames to the peer, and from it; `None`: they are not encrypted.
    pub seals: Option<(FrameSeal, FrameSeal)>,
    pub link: ReliableLink<Piece>,
    /// What the network between carries.
    pub path: Path,
    /// Number of the peer's last request for a block, and whether it came again: then what was
    /// sent did not arrive.
    pub asked: (u64, bool),
    /// Pieces for which the link's window has no room yet.
    backlog: VecDeque<Piece>,
    /// Small packets that leave together at the next look.
    open: Vec<u8>,
    /// A small packet left since the last look, and others wait for that.
    is_ahead: bool,
    window: Window,
    /// Pieces that came since an acknowledgement left.
    pub unacknowledged: u32,
    partial: Option<PartialPacket>,
    /// Pieces taken in, in order: all with smaller numbers.
    pub taken: u64,
}

/// Returns the bytes of an engine's header.
fn header_bytes(header: &PacketHeader) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let words = header.to_words();
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Cuts a packet into pieces of at most `chunk` bytes, more than a header has.
pub(crate) fn pieces<'a>(
    header: &PacketHeader,
    payload: &'a [u8],
    chunk: usize,
) -> impl Iterator<Item = Piece> + use<'a> {
    let header = header_bytes(header);
    let (begin, rest) = payload.split_at(payload.len().min(chunk - HEADER));
    let last = rest.len().div_ceil(chunk).checked_sub(1);
    let first = Piece {
        first: true,
        ends: last.is_none(),
        bytes: header.iter().chain(begin).copied().collect(),
    };
    let others = rest.chunks(chunk).enumerate();
    let others = others.map(move |(at, bytes)| Piece {
        first: false,
        ends: Some(at) == last,
        bytes: bytes.into(),
    });
    std::iter::once(first).chain(others)
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
            seals: None,
            link: ReliableLink::new(policy),
            path,
            asked: (0, false),
            backlog: VecDeque::new(),
            open: Vec::new(),
            is_ahead: false,
            window: Window::new(),
            unacknowledged: 0,
            partial: None,
            taken: 0,
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

    /// Adds a packet behind all others, in pieces of at most `chunk` bytes. The first small one
    /// since the last look leaves at once. Those after it wait for each other.
    pub(crate) fn push(&mut self, header: &PacketHeader, payload: &[u8], chunk: usize) {
        let len = HEADER + payload.len();
        if len > chunk {
            self.close();
            return self.backlog.extend(pieces(header, payload, chunk));
        }
        if self.open.len() + len > chunk {
            self.close();
        }
        self.open.extend(header_bytes(header));
        self.open.extend(payload);
        if !std::mem::replace(&mut self.is_ahead, true) {
            self.close();
        }
    }

    /// Makes a piece of the small packets that wait.
    fn close(&mut self) {
        if !self.open.is_empty() {
            let bytes = self.open.as_slice().into();
            self.open.clear();
            let (first, ends) = (true, true);
            self.backlog.push_back(Piece { first, ends, bytes });
        }
    }

    /// The rank looks: small packets wait no longer.
    pub(crate) fn look(&mut self) {
        self.close();
        self.is_ahead = false;
    }

    /// Sends again what is due; what was lost narrows the window.
    pub(crate) fn due(&mut self, now_ns: u64, frames: &mut Vec<Frame<Piece>>) {
        let before = self.link.repeated();
        // A link that never gives up is never lost.
        let _ = self.link.due(now_ns, frames);
        if self.link.repeated() != before {
            let next = self.link.acknowledged() + self.in_flight() as u64;
            self.window.lost(self.link.acknowledged(), next);
        }
        self.unacknowledged = 0;
    }

    fn in_flight(&self) -> usize {
        WINDOW - self.link.room(PacketClass::Control)
    }

    /// Returns the frame of the next piece for which the window has room, and whether it need not
    /// wake its receiver: it ends no packet, and others follow at once.
    pub(crate) fn next_frame(&mut self, now_ns: u64) -> Option<(Frame<Piece>, bool)> {
        if self.backlog.is_empty() || self.in_flight() >= self.window.pieces() {
            return None;
        }
        let piece = self.backlog.pop_front()?;
        self.unacknowledged = 0;
        let ends = piece.ends;
        let frame = self.link.send(piece, now_ns);
        let others_follow = !self.backlog.is_empty() && self.in_flight() < self.window.pieces();
        Some((frame, !ends && others_follow))
    }

    /// Takes note of what the peer says to have. Returns whether that is something new.
    pub(crate) fn acknowledge(&mut self, acknowledged: u64, selective: u64) -> bool {
        let before = self.link.acknowledged();
        self.link.acknowledge(acknowledged, selective);
        let arrived = self.link.acknowledged() - before;
        self.window.arrived(arrived as usize);
        arrived > 0
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
        self.backlog.is_empty() && self.open.is_empty() && self.link.is_settled()
    }

    /// Takes in a piece that begins with a packet: gives those that it holds as a whole, and keeps
    /// the beginning of the last.
    fn begin(
        &mut self,
        mut bytes: &[u8],
        deliver: &mut dyn FnMut(PacketHeader, &[u8]),
    ) -> Result<(), BadPiece> {
        loop {
            let (words, rest) = bytes.split_at_checked(HEADER).ok_or(BadPiece)?;
            let mut header = [0; 3];
            for (word, bytes) in header.iter_mut().zip(words.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            let header = PacketHeader::from_words(header);
            let len = header.len as usize;
            if len > TCP_PACKET_MAX {
                return Err(BadPiece);
            }
            let Some((payload, after)) = rest.split_at_checked(len) else {
                let mut payload = Vec::with_capacity(len);
                payload.extend(rest);
                self.partial = Some(PartialPacket { header, payload });
                return Ok(());
            };
            deliver(header, payload);
            if after.is_empty() {
                return Ok(());
            }
            bytes = after;
        }
    }

    /// Takes in the next piece in order, and gives the packets that it completes.
    pub(crate) fn assemble(
        &mut self,
        (first, bytes): (bool, &[u8]),
        deliver: &mut dyn FnMut(PacketHeader, &[u8]),
    ) -> Result<(), BadPiece> {
        if first {
            if self.partial.is_some() {
                return Err(BadPiece);
            }
            return self.begin(bytes, deliver);
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
            let pieces: Vec<Piece> = pieces(&header, &payload, chunk).collect();
            prop_assert_eq!(pieces.len(), (HEADER + payload.len()).div_ceil(chunk));
            let (mut link, mut got) = (link(), Vec::new());
            for piece in &pieces {
                link.assemble((piece.first, &piece.bytes), &mut |header, bytes| got.push((header, bytes.to_vec()))).unwrap();
            }
            prop_assert_eq!(got, [(header, payload)]);
        }
    }

    #[test]
    fn small_packets_leave_together_behind_the_first() {
        let (mut near, mut far) = (link(), link());
        let header = PacketHeader {
            kind: 1,
            len: 8,
            ..PacketHeader::default()
        };
        for number in 0..100 {
            near.push(&header, &[number; 8], 1452);
        }
        let mut frames: Vec<_> = std::iter::from_fn(|| near.next_frame(0)).collect();
        assert_eq!(frames.len(), 3, "the first, and two that are full");
        assert!(!near.is_settled());
        near.look();
        frames.extend(near.next_frame(0));
        assert_eq!(frames.len(), 4);
        let mut got = Vec::new();
        for frame in frames {
            let piece = frame.0.packet.unwrap().1;
            let take = &mut |header: PacketHeader, bytes: &[u8]| got.push((header, bytes.to_vec()));
            far.assemble((piece.first, &piece.bytes), take).unwrap();
        }
        let sent: Vec<_> = (0..100).map(|number| (header, vec![number; 8])).collect();
        assert_eq!(got, sent);
        // A long one waits for nothing, and overtakes nothing.
        near.push(&header, &[1; 8], 1452);
        near.push(&header, &[2; 8], 1452);
        let long = PacketHeader {
            len: 3000,
            ..header
        };
        near.push(&long, &[3; 3000], 1452);
        let frames = std::iter::from_fn(|| near.next_frame(0));
        let frames: Vec<_> = frames.collect();
        let firsts = frames
            .iter()
            .map(|(frame, _)| frame.packet.as_ref().unwrap().1.first);
        assert_eq!(firsts.collect::<Vec<_>>(), [true, true, true, false, false]);
        // Only what ends a packet wakes.
        let quiet: Vec<_> = frames.iter().map(|(_, quiet)| *quiet).collect();
        assert_eq!(quiet, [false, false, true, true, false]);
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
            pieces(&header, &[0; 10], 1000).next().unwrap().bytes
        };
        assert_eq!(link().assemble((false, b"x"), none), Err(BadPiece));
        assert_eq!(link().assemble((true, b"short"), none), Err(BadPiece));
        // Behind a packet that is complete another begins, or nothing.
        let mut whole = 0;
        let after = link().assemble((true, &begin(9)), &mut |_, _| whole += 1);
        assert_eq!((after, whole), (Err(BadPiece), 1));
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
