//! One-sided communication by packets: requests that the target's engine carries out, and its
//! answers.
//!
//! Two parts with private state: the origin's accesses and the target's regions. A target carries
//! requests out as they arrive, under its lock, with atomic instructions of its processor. So all
//! updates of an element are atomic towards each other: by packets, by mapped memory, by its owner.

pub(crate) mod origin;
pub(crate) mod target;
pub(crate) mod wire;

use crate::api::{Error, Peer};
use crate::core::Core;
use crate::protocol::one_sided::origin::{AccessOrigin, Ended};
use crate::protocol::one_sided::target::AccessTarget;
use crate::protocol::one_sided::wire::name_of;
use crate::requests::{OpSide, OpState, from_wire};
use crate::transport::{PacketHeader, PacketKind};
use garonne_sync::user::UserMem;

/// State of one-sided communication of one engine.
#[derive(Debug, Default)]
pub(crate) struct OneSidedState {
    pub origin: AccessOrigin,
    pub target: AccessTarget,
}

impl OneSidedState {
    /// Returns whether no access is open and no answer is owed.
    pub(crate) fn is_idle(&self) -> bool {
        self.origin.is_idle() && self.target.is_idle()
    }
}

impl Core {
    /// A one-sided packet. `None`: the peer broke the format.
    pub(crate) fn on_one_sided(
        &mut self,
        peer: Peer,
        kind: PacketKind,
        header: &PacketHeader,
        payload: UserMem,
        len: usize,
    ) -> Option<()> {
        self.has_work = true;
        if matches!(kind, PacketKind::Put | PacketKind::Get | PacketKind::Atomic) {
            let target = &mut self.one_sided.target;
            return target.on_request(peer, kind, header, payload, len);
        }
        // An access that an error ended meanwhile is no fault of the peer's.
        let Some(index) = self.requests.find(from_wire(name_of(header))) else {
            return Some(());
        };
        let operation = self.requests.at(index);
        let goes_on = operation.side == OpSide::Access
            && operation.peer == peer
            && operation.state == OpState::Active;
        if !goes_on {
            return None;
        }
        let origin = &mut self.one_sided.origin;
        let ended = match kind {
            PacketKind::GetData => {
                let payload = (payload, len);
                origin.on_data(index, operation, header, payload, &mut self.bounce)?
            }
            _ => origin.on_done(index, peer, header, (payload, len))?,
        };
        self.end_accesses(ended);
        Some(())
    }

    /// Ends accesses and flushes.
    pub(crate) fn end_accesses(&mut self, ended: Ended) {
        for (index, error) in ended {
            self.end_operation(index, error);
        }
    }

    /// The transport tells the end of an access or flush of its own.
    pub(crate) fn direct_access_done(&mut self, index: u32, result: Result<(), Error>) {
        let peer = self.requests.peek(index).peer;
        let Some(mut ended) = self.one_sided.origin.direct_done(index, peer, result) else {
            return;
        };
        if !self.copy_is_over(index) {
            // It ended with its peer.
            ended.retain(|(other, _)| *other != index);
        }
        self.end_accesses(ended);
    }
}
