//! Waiting for much of what comes, where every look takes its time from a program that computes.
//!
//! Part of [`BulkConnection`]. The kernel tells of a socket only when so many bytes are there, and
//! gives them room; never of more than surely comes, so nothing is waited for in vain.

use super::BulkConnection;
use crate::connection::Connection;
use crate::sys;
use garonne_transport::limits::TCP_LOW_WATER;

impl BulkConnection {
    /// The socket tells when there is much of the body that is coming, and of no less. `false`: it
    /// tells of whatever there is.
    pub(crate) fn wait_for_much(&mut self) -> bool {
        let (Some(channel), Some(coming)) = (&self.channel, self.coming) else {
            return false;
        };
        // Of what lies here already, or is sealed, it tells nothing.
        if channel.is_sealed() || channel.has_come() {
            return false;
        }
        // No more than surely comes.
        let much = coming.left.min(TCP_LOW_WATER as u64) as usize;
        tell_from(channel, &mut self.low_water, much);
        true
    }

    /// A body is coming.
    pub(crate) fn is_in_body(&self) -> bool {
        self.coming.is_some()
    }

    /// The socket tells of whatever there is.
    pub(crate) fn hurry(&mut self) {
        if let Some(channel) = &self.channel {
            tell_from(channel, &mut self.low_water, 1);
        }
    }
}

/// A socket that tells when `low_water` bytes are there is to tell when `bytes` are.
pub(super) fn tell_from(channel: &Connection, low_water: &mut usize, bytes: usize) {
    if bytes != (*low_water).max(1) {
        sys::set_low_water(channel.fd(), bytes);
        *low_water = bytes;
    }
}
