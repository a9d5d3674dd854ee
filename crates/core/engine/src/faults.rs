//! Contexts that are broken: revoked ones, and those of collectives whose group has lost a member.
//!
//! Where the job survives deaths, the host names the members of each communicator
//! ([`Engine::watch_context`]). When a member is lost, operations in the communicator's collective
//! contexts end, since its other members may have left the collective. Receives from any source
//! stay open, and say so until the loss is acknowledged. A revoked communicator loses all its
//! contexts. Who hears of that for the first time passes it on, so all living members hear it.
//!
//! A broken context has no route in the cache, so the fast paths do not see it. Owned by the core.
//! Bounded by the communicators.

use crate::api::{ContextId, Error, Pattern, Peer, Request, TypeDigest};
use crate::core::Core;
use crate::engine::Engine;
use crate::limits::{LAST_POLLS, POLL_BUDGET, REVOKED_CONTEXTS_MAX};
use crate::matching::unexpected::{MessageInfo, UnexpectedBody};
use crate::peer::reorder::ReservedFor;
use crate::peer::sequences::stream_key;
use crate::protocol::dispatch::UNKNOWN;
use crate::protocol::wire::ControlPayload;
use crate::requests::{OpFlag, OpSide, OpState, Operation};
use crate::transport::{PacketHeader, PacketKind, Transport};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The processes of a communicator, of both its groups.
pub trait ContextMembers: std::fmt::Debug + Send + Sync {
    /// Returns whether a process is one of them.
    fn contains(&self, peer: Peer) -> bool;
    /// Returns all of them.
    fn peers(&self) -> Vec<Peer>;
}

/// A communicator whose members are watched.
#[derive(Debug)]
struct WatchedContext {
    /// The communicator's contexts, the first of which has point-to-point messages.
    contexts: Range<ContextId>,
    members: Arc<dyn ContextMembers>,
    /// A lost member that was not acknowledged.
    unacknowledged: Option<Peer>,
}

/// Broken contexts of one engine, and the communicators that may break.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    watched: HashMap<ContextId, WatchedContext>,
    /// First contexts that are revoked, of communicators that need not be known here yet.
    revoked: HashSet<ContextId>,
    /// Errors of operations in broken contexts.
    broken: HashMap<ContextId, Error>,
}

impl Faults {
    /// Returns whether operations in a context are refused.
    pub(crate) fn is_broken(&self, context: ContextId) -> bool {
        !self.broken.is_empty() && self.broken.contains_key(&context)
    }
}

/// Returns whether an operation ended by an error before its peer could know.
pub(crate) fn ended_early(operation: &Operation) -> bool {
    operation.state == OpState::Complete && operation.error.is_some()
}

impl Core {
    /// Refuses an operation in a broken context.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_context(&self, context: ContextId) -> Result<(), Error> {
        match self.peers.faults.broken.get(&context) {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Returns the lost member because of which receives from any source pend.
    #[cold]
    fn unacknowledged(&self, context: ContextId) -> Option<Peer> {
        self.peers.faults.watched.get(&context)?.unacknowledged
    }

    /// Returns the error of a probe of any source in this context.
    pub(crate) fn check_any_source(&self, context: ContextId) -> Result<(), Error> {
        match self.unacknowledged(context) {
            None => Ok(()),
            Some(peer) => Err(Error::Pending { peer }),
        }
    }

    /// A peer is lost: ends what depends on all members of a communicator of its.
    pub(crate) fn break_collectives_of(&mut self, peer: Peer, why: &Error) {
        let of_peer = |one: &&mut WatchedContext| one.members.contains(peer);
        let mut hit = Vec::new();
        for one in self.peers.faults.watched.values_mut().filter(of_peer) {
            one.unacknowledged = Some(peer);
            hit.push(one.contexts.clone());
        }
        for contexts in hit {
            self.suspend_any_source(contexts.start, peer);
            for context in contexts.start + 1..contexts.end {
                self.break_context(context, why.clone());
            }
        }
    }

    /// Ends all operations in a context, and refuses others from now on.
    fn break_context(&mut self, context: ContextId, error: Error) {
        let revoked = matches!(error, Error::Revoked);
        if self.peers.faults.broken.contains_key(&context) && !revoked {
            return;
        }
        self.peers.faults.broken.insert(context, error.clone());
        let only = context..context + 1;
        self.settle_recv_channels();
        self.routes.forget(&only);
        self.early_rtr.forget_contexts(&only);
        // The fast paths ask which peers are lost, and find the context.
        self.peers.set_any_lost();
        if revoked {
            self.forbid_send_channels();
        }
        let hit = self.requests.select(|operation| {
            operation.context == context
                && operation.side != OpSide::Access
                && operation.state != OpState::Complete
        });
        for index in hit {
            self.end_broken(index, error.clone());
        }
        self.discard_messages(context);
        self.completion_events.any_message_kept();
        self.completion_events.count_one();
    }

    /// Nobody will receive the messages that were kept in a broken context: gives their credits
    /// back, and lets their senders go on.
    fn discard_messages(&mut self, context: ContextId) {
        let any = Pattern {
            context,
            source: None,
            tag: None,
        };
        while let Some(item) = self.matcher.find(&any) {
            self.matcher.drop_kept(item);
            let (meta, body) = self.unexpected.remove(item);
            self.release_unexpected(&meta, &body);
            if let UnexpectedBody::Rts(announce) = &body {
                self.send_fin(meta.peer, announce.send);
            }
            if let Some(send) = meta.waiting {
                self.send_fin(meta.peer, send);
            }
            self.unexpected.recycle(body);
        }
    }

    fn end_broken(&mut self, index: u32, error: Error) {
        let operation = self.requests.peek(index);
        let (context, peer) = (operation.context, operation.peer);
        match operation.state {
            OpState::Free | OpState::Complete => return,
            OpState::Posted => {
                let pattern = operation.pattern;
                self.matcher.withdraw(&pattern, index);
                self.requests.at(index).total = 0;
            }
            OpState::Pulling => self.keep_pulled(context, peer, index),
            OpState::InWindow => self.leave_unsent(index),
            OpState::Active => {}
        }
        self.offer_withdrawn(index);
        self.transfers.writes.remove(index);
        self.transfers.packets.forget(index);
        self.end_operation(index, Some(error));
    }

    /// Receives from any source are not matched until the loss of a member is acknowledged.
    fn suspend_any_source(&mut self, context: ContextId, peer: Peer) {
        let hit = self.requests.select(|operation| {
            operation.context == context
                && operation.state == OpState::Posted
                && operation.pattern.source.is_none()
        });
        for index in hit {
            let pattern = self.requests.peek(index).pattern;
            self.matcher.withdraw(&pattern, index);
            self.suspend(index, peer);
        }
    }

    fn suspend(&mut self, index: u32, peer: Peer) {
        let number = self.completion_events.count_one();
        let operation = self.requests.at(index);
        operation.state = OpState::Complete;
        operation.error = Some(Error::Pending { peer });
        operation.finished = number;
        operation.total = 0;
        let is_abandoned = operation.has(OpFlag::Abandoned);
        if operation.flags != 0 {
            self.marked_over(index);
        }
        if is_abandoned {
            self.requests.close(index);
        }
    }
}

impl<R: Transport> Engine<R> {
    /// Names the members of a communicator, and its contexts: of its point-to-point messages, and
    /// of those that all members take part in.
    pub fn watch_context(&mut self, contexts: Range<ContextId>, members: Arc<dyn ContextMembers>) {
        let core = &mut self.core;
        let mut far = members.peers();
        far.retain(|peer| core.peers.is_of_other_world(*peer));
        let lost = core.peers.states().iter().find(|state| {
            // Living ones are the rule.
            state.was_lost() && members.contains(state.peer)
        });
        let lost = lost.map(|state| (state.peer, state.failure()));
        let first = contexts.start;
        let watched = WatchedContext {
            contexts: contexts.clone(),
            members,
            unacknowledged: lost.as_ref().map(|(peer, _)| *peer),
        };
        core.peers.faults.watched.insert(first, watched);
        if let Some((_, why)) = lost {
            for context in first + 1..contexts.end {
                core.break_context(context, why.clone());
            }
        }
        if core.peers.faults.revoked.contains(&first) {
            core.revoke_known(contexts);
        }
        // The deaths of members of other worlds become known by their connections alone.
        for peer in far {
            core.reach_other_world(peer);
        }
        self.progress_queued();
    }

    /// A communicator is freed: nobody uses its contexts again.
    pub fn forget_faults(&mut self, contexts: &Range<ContextId>) {
        let core = &mut self.core;
        for context in contexts.clone() {
            if core.peers.faults.is_broken(context) {
                core.discard_messages(context);
            }
        }
        let faults = &mut core.peers.faults;
        faults.watched.remove(&contexts.start);
        faults
            .broken
            .retain(|context, _| !contexts.contains(context));
    }

    /// Ends all operations in these contexts, here and on all members, and refuses others.
    pub fn revoke_contexts(
        &mut self,
        contexts: Range<ContextId>,
        members: &dyn ContextMembers,
    ) -> bool {
        let core = &mut self.core;
        if !core.peers.faults.revoked.insert(contexts.start) {
            return false;
        }
        // Peers hear of it before what their pending messages get for an answer.
        core.tell_revoked(&contexts, &members.peers());
        core.revoke_known(contexts);
        self.progress_queued();
        true
    }

    /// Returns whether a communicator is revoked, by its first context.
    pub fn is_revoked(&self, first: ContextId) -> bool {
        self.core.peers.faults.revoked.contains(&first)
    }

    /// Returns the processes to which nothing passes any more, but for those that left in good
    /// order.
    pub fn lost_peers(&self) -> Vec<Peer> {
        let states = self.core.peers.states().iter();
        let lost = states.filter(|state| state.was_lost());
        lost.map(|state| state.peer).collect()
    }

    /// All losses so far of a communicator's members are acknowledged: its receives from any source
    /// go on.
    pub fn acknowledge_losses(&mut self, first: ContextId) {
        let core = &mut self.core;
        let Some(watched) = core.peers.faults.watched.get_mut(&first) else {
            return;
        };
        watched.unacknowledged = None;
        let suspended = core.requests.select(|operation| {
            operation.context == first && matches!(operation.error, Some(Error::Pending { .. }))
        });
        suspended.into_iter().for_each(|index| self.resume(index));
        self.flush_answers();
    }

    /// A receive from any source goes on.
    fn resume(&mut self, index: u32) {
        let core = &mut self.core;
        let operation = core.requests.at(index);
        operation.error = None;
        operation.state = OpState::Active;
        let pattern = operation.pattern;
        operation.total = operation.data.len;
        if let Some(item) = core.matcher.find(&pattern) {
            core.matcher.drop_kept(item);
            core.deliver_unexpected(index, item);
        } else {
            core.requests.at(index).state = OpState::Posted;
            core.matcher.post(&pattern, index);
            core.probe_windows_for(index);
        }
    }

    /// Has a receive from any source wait for an acknowledgement, if a member is lost. The receive
    /// was just posted.
    pub(crate) fn suspend_if_lost(&mut self, index: u32) -> bool {
        let pattern = self.core.requests.peek(index).pattern;
        if pattern.source.is_some() {
            return false;
        }
        let Some(peer) = self.core.unacknowledged(pattern.context) else {
            return false;
        };
        self.core.suspend(index, peer);
        true
    }

    /// Returns whether a complete receive only waits for an acknowledgement.
    pub fn is_suspended(&self, request: Request) -> bool {
        self.core.requests.find(request).is_some_and(|index| {
            let operation = self.core.requests.peek(index);
            matches!(operation.error, Some(Error::Pending { .. }))
        })
    }

    /// Ends accesses whose targets have left in good order, and answer no more. Takes what they
    /// sent before. Returns whether there were any.
    pub fn end_unanswered(&mut self, has_left: impl Fn(Peer) -> bool) -> bool {
        let left: Vec<Peer> = self
            .core
            .one_sided
            .origin
            .awaited_peers()
            .filter(|peer| has_left(*peer))
            .collect();
        if left.is_empty() {
            return false;
        }
        for _ in 0..LAST_POLLS {
            if self.transport.poll(POLL_BUDGET, &mut self.core) == 0 {
                break;
            }
        }
        for peer in left {
            crate::transport::PollSink::on_peer_left(&mut self.core, peer);
        }
        true
    }

    /// A process of the job has died: takes what it sent before, and ends what needs it.
    pub fn peer_died(&mut self, peer: Peer) {
        for _ in 0..LAST_POLLS {
            if self.transport.poll(POLL_BUDGET, &mut self.core) == 0 {
                break;
            }
        }
        if self.core.peers.has(peer) && peer != self.core.me {
            crate::transport::PollSink::on_peer_gone(&mut self.core, peer);
        }
        self.progress_queued();
    }
}

impl Core {
    /// Connects to a process of another world that something is awaited from: nobody but its
    /// connection tells of its death. A packet that returns no credit does it.
    #[cold]
    pub(crate) fn reach_other_world(&mut self, peer: Peer) {
        if !self.peers.is_of_other_world(peer) || self.peer_index(peer).is_some() {
            return;
        }
        self.peers.mark_stale();
        self.open_peer(peer, UNKNOWN);
        let header = PacketHeader {
            kind: PacketKind::Credit as u8,
            ..PacketHeader::default()
        };
        self.queue_control(peer, header, ControlPayload::new());
    }

    fn revoke_known(&mut self, contexts: Range<ContextId>) {
        for context in contexts {
            self.break_context(context, Error::Revoked);
        }
    }

    fn tell_revoked(&mut self, contexts: &Range<ContextId>, members: &[Peer]) {
        for &peer in members {
            if peer == self.me || !self.peers.has(peer) {
                continue;
            }
            match self.peer_index(peer) {
                Some(index) if self.peers[index as usize].gone => continue,
                Some(_) => {}
                None => {
                    self.peers.mark_stale();
                    self.open_peer(peer, UNKNOWN);
                }
            }
            let header = PacketHeader {
                kind: PacketKind::Revoked as u8,
                context: contexts.start,
                source: contexts.end - contexts.start,
                ..PacketHeader::default()
            };
            self.queue_control(peer, header, ControlPayload::new());
        }
    }

    /// A peer says that a communicator is revoked. `None`: it broke the format.
    pub(crate) fn on_revoked_context(&mut self, first: ContextId, count: u32) -> Option<()> {
        if !(1..=REVOKED_CONTEXTS_MAX).contains(&count) {
            return None;
        }
        let contexts = first..first.checked_add(count)?;
        if self.peers.faults.revoked.insert(first) {
            let watched = self.peers.faults.watched.get(&first);
            let members = watched.map_or_else(Vec::new, |one| one.members.peers());
            self.tell_revoked(&contexts, &members);
            self.revoke_known(contexts);
        }
        Some(())
    }

    /// The envelope that a receive took out of its sender's window is kept for nobody.
    fn keep_pulled(&mut self, context: ContextId, peer: Peer, index: u32) {
        let Some(at) = self.sequences.find(stream_key(context, peer)) else {
            return;
        };
        let Some(reorder) = self.sequences.get_mut(at).reorder.as_mut() else {
            return;
        };
        let places = reorder.reserved.values_mut();
        for place in places.filter(|place| **place == ReservedFor::Receive(index)) {
            let meta = MessageInfo {
                context,
                peer,
                source: 0,
                tag: 0,
                sequence: 0,
                len: 0,
                waiting: None,
                credited: false,
                digest: TypeDigest::NONE,
            };
            let item = self.unexpected.insert(meta, UnexpectedBody::InFlight);
            self.unexpected.take(item);
            *place = ReservedFor::Message(item);
        }
    }
}
