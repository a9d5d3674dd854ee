//! The way of large data between two ranks of one host by which the receiver copies from the
//! sender's memory: one more beside the connection that the two have.
//!
//! Owned by the pair's `paths`, which ask it for pieces as they ask connections; whoever has the
//! transport for shared memory copies them (`intra_node_paths`), in the order in which they were
//! asked for. It never breaks and never stands still: what a connection owes comes by it. Bounded
//! by what the paths ask for.

use crate::bulk::RequestedRange;
use garonne_sync::user::Data;
use std::collections::VecDeque;

/// A piece that is to be copied.
#[derive(Debug)]
struct CopyPart {
    piece: RequestedRange,
    local: Data,
    /// Offset of the first byte there.
    local_offset: u64,
    /// Bytes that were copied.
    done: u64,
}

impl CopyPart {
    fn rest(&self) -> RequestedRange {
        RequestedRange {
            whole: self.piece.whole,
            at: self.piece.at + self.done,
            len: self.piece.len - self.done,
        }
    }
}

/// Reads of a peer of this host that are copied through shared memory. Owned by the peer's paths.
#[derive(Debug, Default)]
pub(crate) struct MemoryPath {
    parts: VecDeque<CopyPart>,
    /// Bytes that were copied, ever.
    moved: u64,
}

impl MemoryPath {
    pub(crate) fn is_wanted(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Pieces that are not copied.
    pub(crate) fn asked(&self) -> usize {
        self.parts.len()
    }

    /// Returns the number of bytes that wait to be copied.
    pub(crate) fn backlog(&self) -> u64 {
        self.parts.iter().map(|part| part.rest().len).sum()
    }

    /// Bytes that were copied.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// Gives back what is not copied.
    pub(crate) fn give_up(&mut self) -> Vec<RequestedRange> {
        self.parts.drain(..).map(|part| part.rest()).collect()
    }

    /// Adds a piece. The local range is valid until it is copied or given back.
    pub(crate) fn read(&mut self, piece: RequestedRange, (local, local_offset): (Data, u64)) {
        self.parts.push_back(CopyPart {
            piece,
            local,
            local_offset,
            done: 0,
        });
    }

    /// Returns the next range to be copied, and where it goes.
    pub(crate) fn next(&self) -> Option<(RequestedRange, &Data, u64)> {
        let part = self.parts.front()?;
        Some((part.rest(), &part.local, part.local_offset + part.done))
    }

    /// Records that `len` bytes of the first part were copied. Returns the range if that was its
    /// end.
    pub(crate) fn copied(&mut self, len: u64) -> Option<RequestedRange> {
        let part = self.parts.front_mut()?;
        let len = len.min(part.piece.len - part.done);
        part.done += len;
        self.moved += len;
        let is_over = part.done == part.piece.len;
        is_over
            .then(|| self.parts.pop_front())
            .flatten()
            .map(|part| part.piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_copied_in_order_and_what_is_not_goes_back() {
        let mut memory = MemoryPath::default();
        let piece = |at, len| RequestedRange { whole: 3, at, len };
        for (at, len) in [(0, 100), (500, 50)] {
            memory.read(piece(at, len), (Data::empty(), 1000 + at));
        }
        assert_eq!((memory.asked(), memory.backlog()), (2, 150));
        assert_eq!(memory.copied(60), None);
        let (next, _, at) = memory.next().unwrap();
        assert_eq!((next, at), (piece(60, 40), 1060));
        // Nobody copies more than there is.
        assert_eq!(memory.copied(41), Some(piece(0, 100)));
        assert_eq!(memory.copied(10), None);
        assert_eq!(
            (memory.moved(), memory.give_up()),
            (110, vec![piece(510, 40)])
        );
        assert!(!memory.is_wanted() && memory.next().is_none() && memory.copied(1).is_none());
    }
}
