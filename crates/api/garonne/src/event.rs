//! What an endpoint with an event queue tells its program.

use crate::attributes::Delivery;
use crate::remote_memory::RegionId;
use garonne_job::error::Error;
use std::ops::Deref;

/// Name of a connection of one endpoint. Names are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u64);

impl ConnectionId {
    /// The name as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The name of this number, which [`ConnectionId::number`] gave.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Memory of a received message, lent to the program for as long as it keeps this value.
#[derive(Debug, PartialEq, Eq)]
pub struct LentMessage(Vec<u8>);

impl LentMessage {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Keeps the memory for good.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for LentMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Way in which a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseCause {
    /// This side closed it, and all that it sent has arrived.
    Closed,
    /// The other side closed it. All that it sent before was delivered.
    PeerLeft,
    /// The other process died, cannot be reached any more, or broke the rules.
    PeerLost(Error),
}

/// Something that happened at an endpoint.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A process that knows the key asks for a connection. Answer with
    /// [`accept`](crate::EventEndpoint::accept) or [`reject`](crate::EventEndpoint::reject).
    ConnectRequest {
        /// Name of the connection, if it is accepted.
        connection: ConnectionId,
        /// Promise that the caller asks for.
        delivery: Delivery,
        /// Bytes that the caller sent along.
        data: Vec<u8>,
    },
    /// A connection stands: one that this side asked for, or that it accepted.
    Connected {
        /// Name of the connection.
        connection: ConnectionId,
        /// Bytes that the accepting side sent along.
        data: Vec<u8>,
    },
    /// A connection that this side asked for did not come to be.
    ConnectFailed {
        /// Name that it would have had.
        connection: ConnectionId,
        /// Reason.
        error: Error,
    },
    /// A message arrived.
    Message {
        /// Connection on which it came.
        connection: ConnectionId,
        /// Tag that its sender gave it.
        tag: u32,
        /// The bytes, in memory that the program keeps as long as it likes.
        message: LentMessage,
    },
    /// A send is over.
    Sent {
        /// Connection on which it went.
        connection: ConnectionId,
        /// Number that the program gave the send.
        context: u64,
        /// The bytes that were sent, given back.
        bytes: Vec<u8>,
        /// How it ended. A message that was sent well may still be on its way.
        result: Result<(), Error>,
    },
    /// An access to remote memory, or a fence, is over.
    AccessDone {
        /// Connection of the access.
        connection: ConnectionId,
        /// Number that the program gave the access.
        context: u64,
        /// What was read, the old value of an update, or the bytes that were written, given back.
        bytes: Vec<u8>,
        /// How it ended. An access that ended well is done at the peer.
        result: Result<(), Error>,
    },
    /// The peer has done an access to this side's memory, and wants it known.
    Notified {
        /// Connection of the access.
        connection: ConnectionId,
        /// Number that the peer gave.
        number: u64,
    },
    /// A region is closed to a peer: nothing of the peer's touches it any more.
    Withdrawn {
        /// Connection of the peer.
        connection: ConnectionId,
        /// Name of the region.
        region: RegionId,
    },
    /// A connection is over. Nothing of it follows.
    Closed {
        /// Name of the connection.
        connection: ConnectionId,
        /// Reason.
        cause: CloseCause,
    },
}

impl Event {
    /// Bytes that the event keeps.
    pub(crate) fn held(&self) -> usize {
        match self {
            Event::Message { message, .. } => message.len(),
            _ => 0,
        }
    }
}
