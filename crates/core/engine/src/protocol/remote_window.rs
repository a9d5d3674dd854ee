//! The receiving side's view of a peer's window: probes asked, hits and misses.
//!
//! Owned by a [`PeerState`](crate::peer::state::PeerState), driven by
//! [`remote_probe`](crate::protocol::remote_probe). Bounded by the pending receives and probes.

use crate::api::ContextId;
use std::collections::VecDeque;

/// A receive or probe that asks the peer's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeAsker {
    /// The receive of this slot and generation.
    Receive(u32, u32),
    /// A probe.
    Probe,
    /// A receive or probe of a communicator that was freed before the answer came.
    Nobody,
}

/// A probe of a peer's window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteProbe {
    pub asker: ProbeAsker,
    pub context: ContextId,
    pub tag: Option<i32>,
}

/// A peer's answer that probes may use: this envelope is held there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedEnvelope {
    pub context: ContextId,
    pub source: u32,
    pub tag: i32,
    pub sequence: u64,
    pub len: u64,
}

/// The receiving side's view of a peer's window.
#[derive(Debug, Default)]
pub(crate) struct RemoteWindow {
    /// The peer holds envelopes back, as far as known.
    pub blocked: bool,
    /// Epoch of the peer's window, as far as known.
    pub epoch: u32,
    /// Questions of this pass, oldest posting first.
    pub probes: VecDeque<RemoteProbe>,
    /// The one that is on its way.
    pub in_flight: Option<RemoteProbe>,
    /// An offer that waits for envelopes sent before it.
    pub hit: Option<(BlockedEnvelope, u64)>,
    /// Probes answered in this epoch with "nothing".
    pub misses: Vec<(ContextId, Option<i32>)>,
    /// Envelopes that probes found and nobody took yet, with the tag they asked for.
    pub hits: Vec<(Option<i32>, BlockedEnvelope)>,
}
