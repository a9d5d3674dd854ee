//! Pending operations and unexpected messages of a rank, for other processes to see.
//!
//! Plain data, made by [`Engine::waiting`] before a thread sleeps for long, and never on the path
//! of a message. Bounded: [`PENDING_SHOWN`] operations and [`KEPT_SHOWN`] messages, found among at
//! most [`PENDING_SCAN_MAX`] of each.

use crate::api::{CallOrigin, ContextId, Pattern, Peer};
use crate::engine::Engine;
use crate::limits::PENDING_SCAN_MAX;
use crate::matching::unexpected::MessageInfo;
use crate::requests::{OpFlag, OpSide, OpState, Operation};
use crate::transport::Transport;

/// Whom a wait that the layer above tells of is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedRanks {
    /// The other members of the communicator, through shared memory.
    Members,
    /// The members that have not yet entered a collective well before this one.
    Laggards,
    /// A member whose data a collective brings through shared memory.
    Leader(Peer),
    /// The sender of the message that a probe asks for; `None`: any process.
    Sender(Option<Peer>),
}

/// A wait that the engine knows nothing of, told by the layer above: a meeting of ranks through
/// shared memory, named as its messages would be, or a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalWait {
    /// Whom it is for.
    pub awaited: AwaitedRanks,
    /// Context of the messages.
    pub context: ContextId,
    /// Their tag; negative for a probe that takes any.
    pub tag: i32,
    /// Call that started the operation.
    pub origin: CallOrigin,
}

/// Kind of a pending operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingAction {
    /// Receives a message.
    #[default]
    Receive,
    /// Sends a message.
    Send,
    /// Probes for a message.
    Probe,
    /// Takes part in a collective of which the engine has no message under way.
    Collective,
}

/// An operation that is not over, as others may see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingOperation {
    /// Kind of the operation.
    pub action: PendingAction,
    /// Context of its envelope.
    pub context: ContextId,
    /// The other process; `None`: any, or all members of a collective.
    pub peer: Option<Peer>,
    /// Tag; `None`: any.
    pub tag: Option<i32>,
    /// Bytes of a send, room of a receive.
    pub bytes: u64,
    /// Call that started the operation.
    pub origin: CallOrigin,
}

impl ExternalWait {
    /// Returns the wait as a pending operation.
    pub fn shown(&self) -> PendingOperation {
        let (action, peer) = match self.awaited {
            AwaitedRanks::Members | AwaitedRanks::Laggards => (PendingAction::Collective, None),
            AwaitedRanks::Leader(peer) => (PendingAction::Collective, Some(peer)),
            AwaitedRanks::Sender(peer) => (PendingAction::Probe, peer),
        };
        PendingOperation {
            action,
            context: self.context,
            peer,
            tag: Some(self.tag).filter(|tag| *tag >= 0),
            bytes: 0,
            origin: self.origin,
        }
    }
}

/// A message that came and that nobody has asked for yet, as others may see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreceivedMessage {
    /// Context of its envelope.
    pub context: ContextId,
    /// The process that sent it.
    pub peer: Peer,
    /// Tag of the message.
    pub tag: i32,
    /// Length of the message in bytes.
    pub bytes: u64,
}

/// Operations that [`PendingReport`] lists.
pub const PENDING_SHOWN: usize = 16;
/// Messages that [`PendingReport`] lists.
pub const KEPT_SHOWN: usize = 16;

/// Pending work of a rank as far as its engine knows: the oldest pending receive and send, and how
/// much is pending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingReport {
    /// Receives posted and not matched.
    pub posted: u32,
    /// The oldest of them: context, source process (`None`: any), tag (`None`: any), and who asked.
    pub oldest_receive: Option<(ContextId, Option<Peer>, Option<i32>, CallOrigin)>,
    /// Operations under way or held.
    pub pending: u32,
    /// Messages kept for later.
    pub unexpected: u32,
    /// A send that cannot go on: context, peer, tag, bytes, and who asked.
    pub blocked_send: Option<(ContextId, Peer, i32, u64, CallOrigin)>,
    /// Wait that the layer above reported.
    pub external_wait: Option<ExternalWait>,
    /// Operations that are not over, in no order: the first `shown` count.
    pub operations: [PendingOperation; PENDING_SHOWN],
    /// Number of entries used.
    pub shown: usize,
    /// There are more operations than those.
    pub more: bool,
    /// Messages kept for later: the first `kept_shown` count. Those that a posted receive nearly
    /// wanted come first.
    pub kept: [UnreceivedMessage; KEPT_SHOWN],
    /// Number of entries used.
    pub kept_shown: usize,
    /// Several threads of the process may be in MPI: others than the one that waits may act.
    pub threads: bool,
}

impl PendingReport {
    /// Lists one more operation, if there is room.
    pub fn add(&mut self, operation: PendingOperation) {
        match self.operations.get_mut(self.shown) {
            Some(place) => {
                *place = operation;
                self.shown += 1;
            }
            None => self.more = true,
        }
    }

    /// Lists one more message kept for later, if there is room.
    pub(crate) fn keep(&mut self, message: UnreceivedMessage) {
        if let Some(place) = self.kept.get_mut(self.kept_shown) {
            *place = message;
            self.kept_shown += 1;
        }
    }

    /// Adds the report of another thread of this process. Fields that hold one value keep this
    /// report's.
    pub fn join(&mut self, other: &PendingReport) {
        self.posted += other.posted;
        self.pending += other.pending;
        self.unexpected += other.unexpected;
        self.oldest_receive = self.oldest_receive.or(other.oldest_receive);
        self.blocked_send = self.blocked_send.or(other.blocked_send);
        self.external_wait = self.external_wait.or(other.external_wait);
        other
            .listed()
            .iter()
            .for_each(|operation| self.add(*operation));
        other.kept().iter().for_each(|message| self.keep(*message));
        self.more |= other.more;
        self.threads = true;
    }

    /// The operations listed.
    pub fn listed(&self) -> &[PendingOperation] {
        self.operations.get(..self.shown).unwrap_or_default()
    }

    /// The messages listed.
    pub fn kept(&self) -> &[UnreceivedMessage] {
        self.kept.get(..self.kept_shown).unwrap_or_default()
    }
}

impl<R: Transport> Engine<R> {
    /// Returns the pending operations and unexpected messages of this rank.
    pub fn waiting(&self) -> PendingReport {
        let core = &self.core;
        let (mut receive, mut send): (Option<u32>, Option<&Operation>) = (None, None);
        let mut list = PendingReport::default();
        for (slot, operation) in core.requests.iter().take(PENDING_SCAN_MAX) {
            if !matches!(operation.state, OpState::Free | OpState::Complete)
                && !operation.has(OpFlag::Abandoned)
                && operation.side != OpSide::Access
            {
                list.add(operation.describe());
            }
            match (operation.side, operation.state) {
                (OpSide::Recv, OpState::Posted)
                    if receive.is_none_or(|other| {
                        core.matcher.order(slot) < core.matcher.order(other)
                    }) =>
                {
                    receive = Some(slot);
                }
                (OpSide::Send, OpState::InWindow | OpState::Active) if send.is_none() => {
                    send = Some(operation)
                }
                _ => {}
            }
        }
        let receive = receive.map(|slot| core.requests.peek(slot));
        self.list_kept(&mut list, receive.map(|operation| &operation.pattern));
        PendingReport {
            posted: core.matcher.posted_len(),
            oldest_receive: receive.map(|operation| {
                let pattern = &operation.pattern;
                (
                    pattern.context,
                    pattern.source.map(|source| source.peer),
                    pattern.tag,
                    operation.origin,
                )
            }),
            pending: core.requests.alive() as u32,
            unexpected: core.unexpected.alive() as u32,
            blocked_send: send.map(|operation| {
                (
                    operation.context,
                    operation.peer,
                    operation.tag,
                    operation.data.len,
                    operation.origin,
                )
            }),
            more: list.more || core.requests.iter().nth(PENDING_SCAN_MAX).is_some(),
            ..list
        }
    }

    /// Lists messages that nobody has asked for; first those that differ from what `wanted` accepts
    /// in one thing alone.
    fn list_kept(&self, list: &mut PendingReport, wanted: Option<&Pattern>) {
        let kept = || self.core.unexpected.unmatched().take(PENDING_SCAN_MAX);
        let is_near = |meta: &MessageInfo| {
            wanted.is_some_and(|pattern| {
                let same_peer = pattern.source.is_none_or(|source| source.peer == meta.peer);
                let same_tag = pattern.tag.is_none_or(|tag| tag == meta.tag);
                let same = [pattern.context == meta.context, same_peer, same_tag];
                same.into_iter().filter(|same| *same).count() == 2
            })
        };
        let near = kept().filter(|meta| is_near(meta));
        for meta in near.chain(kept().filter(|meta| !is_near(meta))) {
            list.keep(as_kept(meta));
        }
    }
}

pub(crate) fn as_kept(meta: &MessageInfo) -> UnreceivedMessage {
    UnreceivedMessage {
        context: meta.context,
        peer: meta.peer,
        tag: meta.tag,
        bytes: meta.len,
    }
}
