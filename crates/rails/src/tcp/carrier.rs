//! What moves large data on one of a pair's ways: a socket alone, or an endpoint of libfabric beside one.
//!
//! Owned by `paths`, which treat both alike; only what they offer differs.

use crate::tcp::bulk::{Bulk, Piece, Told};
use crate::tcp::channel::{Channel, Io};
use crate::tcp::fabric::Fabric;
use crate::tcp::frame::Ask;
use crate::tcp::link::Sent;
use crate::tcp::log::Violation;
use garonne_sync::user::Data;

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) enum Carrier {
    Socket(Box<Bulk>),
    Fabric(Box<Fabric>),
}

impl Default for Carrier {
    fn default() -> Self {
        Self::Socket(Box::default())
    }
}

/// Asks whichever it is.
macro_rules! of {
    ($self:ident, $one:ident => $what:expr) => {
        match $self {
            Carrier::Socket($one) => $what,
            Carrier::Fabric($one) => $what,
        }
    };
}

impl Carrier {
    pub(crate) fn fabric(&self) -> Option<&Fabric> {
        match self {
            Self::Socket(_) => None,
            Self::Fabric(fabric) => Some(fabric),
        }
    }

    pub(crate) fn fabric_mut(&mut self) -> Option<&mut Fabric> {
        match self {
            Self::Socket(_) => None,
            Self::Fabric(fabric) => Some(fabric),
        }
    }

    pub(crate) fn channel(&self) -> Option<&Channel> {
        of!(self, one => one.channel())
    }

    /// Something that is asked for could come.
    pub(crate) fn is_ready(&self) -> bool {
        self.channel().is_some() && self.fabric().is_none_or(Fabric::is_ready)
    }

    /// See [`Bulk::is_wanted`].
    pub(crate) fn is_wanted(&self) -> bool {
        of!(self, one => one.is_wanted())
    }

    /// See [`Bulk::asked`].
    pub(crate) fn asked(&self) -> usize {
        of!(self, one => one.asked())
    }

    /// See [`Bulk::backlog`].
    pub(crate) fn backlog(&self) -> u64 {
        of!(self, one => one.backlog())
    }

    /// See [`Bulk::moved`].
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

    /// See [`Bulk::is_serving`].
    pub(crate) fn is_serving(&self) -> bool {
        of!(self, one => one.is_serving())
    }

    /// See [`Bulk::has_to_send`].
    pub(crate) fn has_to_send(&self) -> bool {
        of!(self, one => one.has_to_send())
    }

    /// See [`Bulk::adopt`].
    pub(crate) fn adopt(&mut self, channel: Channel) -> Vec<Piece> {
        of!(self, one => one.adopt(channel))
    }

    /// See [`Bulk::cut`].
    pub(crate) fn cut(&mut self) -> Vec<Piece> {
        of!(self, one => one.cut())
    }

    /// Gives back what has not come. What still comes goes nowhere; a device that would write it is closed.
    pub(crate) fn give_up(&mut self) -> Vec<Piece> {
        match self {
            Self::Socket(bulk) => bulk.give_up(),
            Self::Fabric(fabric) => fabric.cut(),
        }
    }

    /// See [`Bulk::read`].
    pub(crate) fn read(&mut self, piece: Piece, ask: Ask, local: (Data, u64)) {
        of!(self, one => one.read(piece, ask, local));
    }

    /// Serves a request from `data`, of which the range is known to be part.
    pub(crate) fn serve(&mut self, number: u32, ask: &Ask, data: &Data) {
        match self {
            Self::Socket(bulk) => bulk.serve(number, ask, data.clone()),
            Self::Fabric(fabric) => fabric.serve(number, ask, data),
        }
    }

    pub(crate) fn refuse(&mut self, number: u32) {
        of!(self, one => one.refuse(number));
    }

    /// Memory of this region is not touched any more, but for what [`Fabric::lends`] tells of.
    pub(crate) fn revoke(&mut self, cookie: u64) {
        of!(self, one => one.revoke(cookie));
    }

    /// See [`Bulk::flush`].
    pub(crate) fn flush(&mut self, most: usize) -> Sent {
        match self {
            Self::Socket(bulk) => bulk.flush(most),
            Self::Fabric(fabric) => fabric.flush(),
        }
    }

    /// See [`Bulk::fill`].
    ///
    /// # Errors
    /// The peer broke the format.
    pub(crate) fn fill(&mut self, most: usize) -> Result<(Io, Option<Told>), Violation> {
        match self {
            Self::Socket(bulk) => bulk.fill(most),
            Self::Fabric(fabric) => fabric.fill(),
        }
    }
}
