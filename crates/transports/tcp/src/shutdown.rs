//! How a transport leaves: what was sent reaches the other hosts before it goes, as far as it may
//! wait for that.
//!
//! Part of [`TcpTransport`]; bounded by [`TCP_LINGER`].

use crate::TcpTransport;
use crate::dispatch::StreamKind;
use crate::frame::{FrameKind, StreamNumber};
use crate::sys;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{BulkToken, PacketHeader, PollSink, RegionDescriptor};
use garonne_sync::user::UserMem;
use garonne_transport::limits::TCP_LINGER;
use std::time::Instant;

impl TcpTransport {
    /// Returns whether everything sent has reached the other hosts.
    pub fn has_left(&self) -> bool {
        !self.open.iter().any(|peer| self.holds_words(*peer))
    }

    /// The peers that something is still on its way to.
    pub fn owed(&self) -> Vec<Peer> {
        self.open
            .iter()
            .copied()
            .filter(|peer| self.holds_words(*peer))
            .collect()
    }

    /// Says goodbye: everything sent has reached the other hosts, or the time is over.
    pub(super) fn leave(&mut self) {
        let until = Instant::now() + TCP_LINGER;
        for at in 0..self.open.len() {
            let peer = self.open[at];
            if let Some(remote) = &mut self.remotes[peer as usize] {
                // What was never sent needs no goodbye.
                if remote.link.is_up() || !remote.link.log.is_settled() {
                    remote.link.send_word(&mut self.blocks, FrameKind::Bye);
                }
            }
            self.flush(peer, StreamNumber::Small);
        }
        while Instant::now() < until && !self.has_left() {
            self.look();
            for peer in std::mem::take(&mut self.ready) {
                self.take_from((peer, StreamKind::Both), u32::MAX, &mut UnreachedPeers);
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    fn holds_words(&self, peer: Peer) -> bool {
        let Some(remote) = &self.remotes[peer as usize] else {
            return false;
        };
        if remote.condemned || remote.link.heard_bye {
            return false;
        }
        match remote.fd(StreamNumber::Small) {
            // The kernel of the other host has it.
            Some(fd) => {
                remote.link.log.has_unsent() || sys::unacknowledged(fd).is_ok_and(|bytes| bytes > 0)
            }
            None => !remote.link.log.is_settled(),
        }
    }
}

/// Nobody listens any more.
struct UnreachedPeers;

impl PollSink for UnreachedPeers {
    fn on_packet(&mut self, _: Peer, _: PacketHeader, _: UserMem, _: usize) {}
    fn on_exposed(&mut self, _: BulkToken, _: Option<RegionDescriptor>) {}
    fn on_revoked(&mut self, _: BulkToken) {}
    fn on_bulk_done(&mut self, _: BulkToken, _: Result<(), Error>) {}
    fn on_peer_gone(&mut self, _: Peer) {}
}
