//! Calls that the two of a pair ask each other for, by another way than this transport's: whoever
//! does not get through asks, and the one asked calls.
//!
//! Part of [`TcpTransport`]; called from its looks. Who asks has proved that it knows the secret,
//! so this side acts on it, also where it seems to itself to have called, or to be connected.

use crate::TcpTransport;
use crate::frame::StreamNumber;
use garonne_engine::api::Peer;
use std::time::Instant;

impl TcpTransport {
    /// Asks a peer for its call, since ours does not get through, unless it was asked just now.
    pub(super) fn ask(&mut self, peer: Peer, stream: StreamNumber, now: Instant) {
        let beside = self.is_beside(peer);
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        // Of a further network nobody asks, nor does that wait for an answer.
        let due = remote.calls(stream).asks(now);
        if due && !stream.is_further() && !beside {
            self.hosts.ask(peer, stream != StreamNumber::Small);
            if remote
                .calls(stream)
                .is_led_elsewhere(&self.hosts.addresses(peer), now)
            {
                return self.call(peer, stream, now);
            }
        }
        if let Some(due) = remote.due(stream) {
            self.remind(due);
        }
    }

    /// A peer that does not reach this side wants its call.
    pub(super) fn wanted_there(&mut self, peer: Peer, stream: StreamNumber) {
        let now = Instant::now();
        let remote = self.remotes.get(peer as usize).and_then(Option::as_ref);
        let calls = remote.and_then(|remote| remote.call_of(stream));
        if calls.is_some_and(|calls| calls.is_unanswered(now)) {
            // The answer may be here, and nobody has looked.
            self.step(peer, stream, now);
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if remote.fd(stream).is_some() {
            if !remote.calls(stream).wanted_though_open(now) {
                return;
            }
            // Nothing is lost with it, and a host between is to let go of it at once.
            self.cut_short(peer, stream);
            self.broke(peer, stream);
        }
        if let Some(Some(remote)) = self.remotes.get_mut(peer as usize)
            && remote.fd(stream).is_none()
        {
            remote.calls(stream).wanted_there(now);
            self.call(peer, stream, now);
        }
    }
}

#[cfg(test)]
mod tests;
