//! Waiting for much of what comes, where every look takes its time from a program that computes.
//!
//! Owned by a bulk connection. The kernel tells of a socket only when so many bytes are there, and
//! gives them room; never of more than surely comes, so nothing is waited for in vain.

use crate::connection::Connection;
use crate::sys;
use garonne_transport::limits::TCP_LOW_WATER;

/// Bytes of which a socket tells at least.
///
/// Owned by a bulk connection, which makes a new one for each socket.
/// [`ReceiveLowWatermark::raise`] waits for much of a body; [`ReceiveLowWatermark::lower`] has the
/// socket tell of whatever there is again.
#[derive(Debug, Default)]
pub(super) struct ReceiveLowWatermark {
    /// 0: as a new socket, which tells of each byte.
    bytes: usize,
}

impl ReceiveLowWatermark {
    /// Has a socket tell when there is much of a body of which `left` bytes are coming, and of no
    /// less. `false`: it tells of whatever there is.
    pub(super) fn raise(&mut self, channel: &Connection, left: u64) -> bool {
        // Of what lies here already, or is sealed, it tells nothing.
        if channel.is_sealed() || channel.has_come() {
            return false;
        }
        // No more than surely comes.
        self.set(channel, left.min(TCP_LOW_WATER as u64) as usize);
        true
    }

    /// Has a socket tell of whatever there is.
    pub(super) fn lower(&mut self, channel: &Connection) {
        self.set(channel, 1);
    }

    fn set(&mut self, channel: &Connection, bytes: usize) {
        if bytes != self.bytes.max(1) {
            sys::set_low_water(channel.fd(), bytes);
            self.bytes = bytes;
        }
    }
}
