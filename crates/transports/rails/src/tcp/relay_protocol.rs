//! What a host between two ranks reads of their calls, and what it says to those whose calls it
//! keeps or joins. Nothing of the proofs is its own: those are the two's.
//!
//! Used by `relay`, and by `line` on the side of who calls.

use crate::tcp::agent_channel::AGENTS;
use crate::tcp::frame::{ASKED, Body, Found, Opening, Process, Reason, Stream, VERSIONS};
use crate::tcp::handshake::{Callee, Fault, Heard, House, Secret};

/// A call between ranks, as a host between reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passing {
    pub(crate) from: Process,
    /// Rank and incarnation of the one called.
    pub(crate) to: (u32, u32),
    pub(crate) stream: Stream,
    /// Bytes that the call took.
    pub(crate) consumed: usize,
}

/// Reads a call between ranks of this job, if its sender knows the secret. `None`: it is not whole.
/// It is not answered: that is for the one called.
///
/// # Errors
/// It is no such call.
pub(crate) fn read(secret: &Secret, job: [u8; 16], bytes: &[u8]) -> Result<Option<Passing>, Fault> {
    let (opening, consumed) = match Opening::decode(bytes, VERSIONS) {
        Found::More => return Ok(None),
        Found::Message(opening, consumed) => (opening, consumed),
        Found::Wrong | Found::Foreign(..) => return Err(Fault::Garbage),
    };
    let Body::Call {
        from,
        to,
        stream,
        sealed,
        ..
    } = opening.body
    else {
        return Err(Fault::Garbage);
    };
    let me = Process {
        job,
        world: from.world,
        rank: to.0,
        incarnation: to.1,
    };
    let as_if = House::new(secret.clone(), me, sealed);
    if from.job != job || matches!(from.world, AGENTS | ASKED) {
        return Err(Fault::Garbage);
    }
    match Callee::hear(&as_if, bytes, |_, _| Ok(0))? {
        Heard::More => Ok(None),
        Heard::Refused(..) => Err(Fault::Garbage),
        Heard::Answered { .. } => Ok(Some(Passing {
            from,
            to,
            stream,
            consumed,
        })),
    }
}

/// What a host between says to those whose calls it keeps or joins.
pub(crate) fn word(reason: Reason) -> Vec<u8> {
    Opening::own(VERSIONS, Body::Refusal(reason)).encode()
}

/// Such a word at the beginning of what came back to a caller, and the bytes that it took.
pub(crate) fn heard(bytes: &[u8]) -> Option<(Reason, usize)> {
    match Opening::decode(bytes, VERSIONS) {
        Found::Message(opening, consumed) => match opening.body {
            Body::Refusal(reason @ (Reason::Waits | Reason::Turn)) => Some((reason, consumed)),
            _ => None,
        },
        _ => None,
    }
}
