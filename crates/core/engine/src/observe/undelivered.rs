//! Undelivered messages: what nobody received, and who sent it.
//!
//! Serves the check of a program's messages. Reads what the engine keeps for other purposes;
//! nothing here is on the path of a message.

use crate::api::{CallOrigin, Peer};
use crate::engine::Engine;
use crate::observe::events::{self, SentMessage, UnreceivedMessage};
use crate::observe::pending::as_kept;
use crate::peer::sequences::stream_key;
use crate::transport::Transport;

impl<R: Transport> Engine<R> {
    /// The messages that have come and that no receive has.
    pub fn unreceived(&self) -> impl Iterator<Item = UnreceivedMessage> + '_ {
        self.core.unexpected.unreceived().map(as_kept)
    }

    /// The peers that this one has spoken with so far, itself among them if it has.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.core
            .peers
            .states()
            .iter()
            .map(|peer_state| peer_state.peer)
    }

    /// Returns the callers in this process that may have made the send `sent`, each once, as far as
    /// remembered.
    pub fn callers(&self, sent: &SentMessage) -> Vec<CallOrigin> {
        let core = &self.core;
        let mut found = core.events.callers(sent);
        let stream = core.sequences.find(stream_key(sent.context, sent.to));
        let track = stream.and_then(|at| core.sequences.get(at).channel.as_ref());
        let on_track = track
            .into_iter()
            .flat_map(|track| track.callers(sent.tag, sent.len));
        on_track.for_each(|origin| events::add_origin(&mut found, origin));
        found
    }
}
