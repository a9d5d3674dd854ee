//! What a host between two ranks reads of their calls, and what it says to those whose calls it
//! keeps or joins. Nothing of the proofs is its own: those are the two's.
//!
//! Used by `relay`, and by `line` on the side of who calls.

use crate::agent_channel::AGENTS;
use crate::frame::{
    ASKED, MessageBody, Opening, ParsedMessage, ProcessId, RejectReason, StreamNumber, VERSIONS,
};
use crate::handshake::{HandshakeError, LocalIdentity, Responder, ResponderStep, Secret};

/// A call between ranks, as a host between reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayHandshake {
    pub(crate) from: ProcessId,
    /// Rank and incarnation of the one called.
    pub(crate) to: (u32, u32),
    pub(crate) stream: StreamNumber,
    /// Bytes that the call took.
    pub(crate) consumed: usize,
}

/// Reads a call between ranks of this job, if its sender knows the secret. `None`: it is not whole.
/// It is not answered: that is for the one called.
///
/// # Errors
/// It is no such call.
pub(crate) fn read(
    secret: &Secret,
    job: [u8; 16],
    bytes: &[u8],
) -> Result<Option<RelayHandshake>, HandshakeError> {
    let (opening, consumed) = match Opening::decode(bytes, VERSIONS) {
        ParsedMessage::More => return Ok(None),
        ParsedMessage::Message(opening, consumed) => (opening, consumed),
        ParsedMessage::Wrong | ParsedMessage::Foreign(..) => return Err(HandshakeError::Garbage),
    };
    let MessageBody::Call {
        from,
        to,
        stream,
        sealed,
        ..
    } = opening.body
    else {
        return Err(HandshakeError::Garbage);
    };
    let me = ProcessId {
        job,
        world: from.world,
        rank: to.0,
        incarnation: to.1,
    };
    let as_if = LocalIdentity::new(secret.clone(), me, sealed);
    if from.job != job || matches!(from.world, AGENTS | ASKED) {
        return Err(HandshakeError::Garbage);
    }
    match Responder::hear(&as_if, bytes, |_, _| Ok(0))? {
        ResponderStep::More => Ok(None),
        ResponderStep::Refused(..) => Err(HandshakeError::Garbage),
        ResponderStep::Answered { .. } => Ok(Some(RelayHandshake {
            from,
            to,
            stream,
            consumed,
        })),
    }
}

/// Returns the word of a relay to those whose calls it keeps or joins.
pub(crate) fn word(reason: RejectReason) -> Vec<u8> {
    Opening::own(VERSIONS, MessageBody::Refusal(reason)).encode()
}

/// Reads a relay's word at the beginning of what came back to a caller, and the bytes that it took.
pub(crate) fn heard(bytes: &[u8]) -> Option<(RejectReason, usize)> {
    match Opening::decode(bytes, VERSIONS) {
        ParsedMessage::Message(opening, consumed) => match opening.body {
            MessageBody::Refusal(reason @ (RejectReason::Waits | RejectReason::Turn)) => {
                Some((reason, consumed))
            }
            _ => None,
        },
        _ => None,
    }
}
