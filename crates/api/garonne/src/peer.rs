//! Other processes, as an endpoint names them.

/// Another process. Belongs to the endpoint that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    rank: u32,
}

impl Peer {
    pub(crate) fn new(rank: u32) -> Self {
        Self { rank }
    }

    /// The rank of the process: its number among those of the endpoint, from 0.
    pub fn rank(self) -> u32 {
        self.rank
    }
}

/// Whose message a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Any peer's.
    Any,
    /// This peer's.
    Peer(Peer),
}

impl From<Peer> for Source {
    fn from(peer: Peer) -> Self {
        Source::Peer(peer)
    }
}

/// A message that a receive got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Sender of the message.
    pub peer: Peer,
    /// Tag of the message.
    pub tag: u32,
    /// Length of the message in bytes. The rest of the buffer is as it was.
    pub len: usize,
}
