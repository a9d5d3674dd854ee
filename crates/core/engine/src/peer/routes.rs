//! Routes: where the peer state and the numbering of envelopes of a (context, peer) lie, for those
//! used lately.
//!
//! Owned by the core, asked on the way of every message. Bounded by [`ROUTES`].

use crate::api::{ContextId, Peer};
use crate::core::Core;
use crate::key_map::NONE;
use crate::limits::ROUTES;
use crate::peer::sequences::{stream_key, stream_keys};
use std::ops::Range;

/// Indices of the peer state and the sequence of a (context, peer). The peer state lives as long as
/// the engine, the sequence until its context is forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRoute {
    key: u64,
    pub peer_index: u32,
    pub stream: u32,
}

impl PeerRoute {
    /// No peer is `u32::MAX`, so no sequence has this key.
    const NOWHERE: Self = Self {
        key: u64::MAX,
        peer_index: NONE,
        stream: NONE,
    };
}

/// Routes used lately, each in the one place that its key names.
#[derive(Debug)]
pub(crate) struct RouteCache([PeerRoute; ROUTES]);

impl RouteCache {
    pub(crate) fn new() -> Self {
        Self([PeerRoute::NOWHERE; ROUTES])
    }

    /// Forgets those of these contexts, whose sequences are forgotten.
    pub(crate) fn forget(&mut self, contexts: &Range<ContextId>) {
        let within = stream_keys(contexts);
        for route in &mut self.0 {
            if within.contains(&route.key) {
                *route = PeerRoute::NOWHERE;
            }
        }
    }
}

impl Core {
    /// The route of (context, peer) if it was used lately.
    #[inline(always)]
    pub(crate) fn known_route(&self, context: ContextId, peer: Peer) -> Option<PeerRoute> {
        let route = self.routes.0[(context ^ peer) as usize % ROUTES];
        (route.key == stream_key(context, peer).0).then_some(route)
    }

    /// Remembers the route of (context, peer), whose peer state is open.
    #[cold]
    #[inline(never)]
    pub(crate) fn learn_route(&mut self, context: ContextId, peer: Peer) -> Option<PeerRoute> {
        if self.peers.faults.is_broken(context) {
            return None;
        }
        let peer_index = self.peer_index(peer)?;
        let key = stream_key(context, peer);
        let route = PeerRoute {
            key: key.0,
            peer_index,
            stream: self.sequences.find_or_insert(key),
        };
        self.routes.0[(context ^ peer) as usize % ROUTES] = route;
        Some(route)
    }
}
