//! What moves large data on one of a pair's ways: a socket alone, an endpoint of libfabric beside
//! one, or the memory of one host.
//!
//! Owned by `paths`, which treat all alike; only what they offer differs.

use crate::bulk::{BulkConnection, BulkEvent, RequestedRange};
use crate::connection::{Connection, IoResult};
use crate::frame::ReadRequest;
use crate::memory_path::MemoryPath;
use crate::ofi_path::OfiPath;
use crate::packet_stream::SendResult;
use crate::replay_log::AckViolation;
use garonne_sync::user::Data;

/// Transport of one path for large data: a socket, libfabric, or shared memory.
#[derive(Debug)]
pub(crate) enum PathTransport {
    Socket(Box<BulkConnection>),
    Fabric(Box<OfiPath>),
    Memory(MemoryPath),
}

impl Default for PathTransport {
    fn default() -> Self {
        Self::Socket(Box::default())
    }
}

/// Asks whichever it is.
macro_rules! of {
    ($self:ident, $one:ident => $what:expr) => {
        match $self {
            PathTransport::Socket($one) => $what,
            PathTransport::Fabric($one) => $what,
            PathTransport::Memory($one) => $what,
        }
    };
}

/// Asks what has a connection; memory has `$none`.
macro_rules! linked {
    ($self:ident, $one:ident => $what:expr, $none:expr) => {
        match $self {
            PathTransport::Socket($one) => $what,
            PathTransport::Fabric($one) => $what,
            PathTransport::Memory(_) => $none,
        }
    };
}

impl PathTransport {
    pub(crate) fn fabric(&self) -> Option<&OfiPath> {
        match self {
            Self::Fabric(fabric) => Some(fabric),
            _ => None,
        }
    }

    pub(crate) fn fabric_mut(&mut self) -> Option<&mut OfiPath> {
        match self {
            Self::Fabric(fabric) => Some(fabric),
            _ => None,
        }
    }

    pub(crate) fn memory(&self) -> Option<&MemoryPath> {
        match self {
            Self::Memory(memory) => Some(memory),
            _ => None,
        }
    }

    pub(crate) fn memory_mut(&mut self) -> Option<&mut MemoryPath> {
        match self {
            Self::Memory(memory) => Some(memory),
            _ => None,
        }
    }

    pub(crate) fn channel(&self) -> Option<&Connection> {
        linked!(self, one => one.channel(), None)
    }

    /// Something that is asked for could come.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Socket(bulk) => bulk.channel().is_some(),
            Self::Fabric(fabric) => fabric.channel().is_some() && fabric.is_ready(),
            Self::Memory(_) => true,
        }
    }

    /// Forwards to [`BulkConnection::is_wanted`].
    pub(crate) fn is_wanted(&self) -> bool {
        of!(self, one => one.is_wanted())
    }

    /// Forwards to [`BulkConnection::asked`].
    pub(crate) fn asked(&self) -> usize {
        of!(self, one => one.asked())
    }

    /// Forwards to [`BulkConnection::backlog`].
    pub(crate) fn backlog(&self) -> u64 {
        of!(self, one => one.backlog())
    }

    /// Forwards to [`BulkConnection::moved`].
    pub(crate) fn moved(&self) -> u64 {
        of!(self, one => one.moved())
    }

    /// Changes whenever something comes by it.
    pub(crate) fn heard(&self) -> u64 {
        match self {
            Self::Socket(bulk) => bulk.heard(),
            other => other.moved(),
        }
    }

    /// Forwards to [`BulkConnection::is_serving`].
    pub(crate) fn is_serving(&self) -> bool {
        linked!(self, one => one.is_serving(), false)
    }

    /// Forwards to [`BulkConnection::has_to_send`].
    pub(crate) fn has_to_send(&self) -> bool {
        linked!(self, one => one.has_to_send(), false)
    }

    /// Forwards to [`BulkConnection::adopt`].
    pub(crate) fn adopt(&mut self, channel: Connection) -> Vec<RequestedRange> {
        linked!(self, one => one.adopt(channel), Vec::new())
    }

    /// Forwards to [`BulkConnection::cut`].
    pub(crate) fn cut(&mut self) -> Vec<RequestedRange> {
        linked!(self, one => one.cut(), Vec::new())
    }

    /// Gives back what has not come. What still comes goes nowhere; a device that would write it is
    /// closed.
    pub(crate) fn give_up(&mut self) -> Vec<RequestedRange> {
        match self {
            Self::Socket(bulk) => bulk.give_up(),
            Self::Fabric(fabric) => fabric.cut(),
            Self::Memory(memory) => memory.give_up(),
        }
    }

    /// Forwards to [`BulkConnection::read`].
    pub(crate) fn read(&mut self, piece: RequestedRange, ask: ReadRequest, local: (Data, u64)) {
        match self {
            Self::Socket(bulk) => bulk.read(piece, ask, local),
            Self::Fabric(fabric) => fabric.read(piece, ask, local),
            Self::Memory(memory) => memory.read(piece, local),
        }
    }

    /// Serves a request from `data`, of which the range is known to be part.
    pub(crate) fn serve(&mut self, number: u32, ask: &ReadRequest, data: &Data) {
        match self {
            Self::Socket(bulk) => bulk.serve(number, ask, data.clone()),
            Self::Fabric(fabric) => fabric.serve(number, ask, data),
            Self::Memory(_) => {}
        }
    }

    pub(crate) fn refuse(&mut self, number: u32) {
        linked!(self, one => one.refuse(number), ());
    }

    /// Memory of this region is not touched any more, but for what `Fabric::lends` tells of.
    /// `true`: the connection has to end.
    #[must_use]
    pub(crate) fn revoke(&mut self, cookie: u64) -> bool {
        linked!(self, one => one.revoke(cookie), false)
    }

    /// The socket, where nothing else is beside it.
    pub(crate) fn socket_mut(&mut self) -> Option<&mut BulkConnection> {
        match self {
            Self::Socket(bulk) => Some(bulk),
            _ => None,
        }
    }

    /// Forwards to [`BulkConnection::flush`].
    pub(crate) fn flush(&mut self, most: usize) -> SendResult {
        match self {
            Self::Socket(bulk) => bulk.flush(most),
            Self::Fabric(fabric) => fabric.flush(),
            Self::Memory(_) => SendResult::All,
        }
    }

    /// Forwards to [`BulkConnection::fill`].
    ///
    /// # Errors
    /// The peer broke the format.
    pub(crate) fn fill(
        &mut self,
        most: usize,
    ) -> Result<(IoResult, Option<BulkEvent>), AckViolation> {
        match self {
            Self::Socket(bulk) => bulk.fill(most),
            Self::Fabric(fabric) => fabric.fill(),
            Self::Memory(_) => Ok((IoResult::Later, None)),
        }
    }
}
