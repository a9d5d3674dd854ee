//! One who calls, until it has proved who it is: whoever came in by the listener, or whom a host
//! between has led to this side's own call.
//!
//! Owned by the door, or by the line. It keeps at most two openings of what came; how long it may
//! take is its owner's to say.

use crate::connection::{self, AfterRead, Connection, IoResult};
use crate::frame::{OPENING_MAX, ProcessId, RejectReason, StreamNumber};
use crate::handshake::{HandshakeError, LocalIdentity, Responder, ResponderStep};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// An accepted connection whose peer has not proved itself yet. Owned by the listener.
#[derive(Debug)]
pub(crate) struct Unauthenticated {
    socket: OwnedFd,
    came: Vec<u8>,
    /// Handshake of a peer that has shown the secret and was answered.
    callee: Option<Box<Responder>>,
    since: Instant,
}

/// An accepted connection whose peer has proved itself.
#[derive(Debug)]
pub(crate) struct Authenticated {
    pub(crate) from: ProcessId,
    pub(crate) stream: StreamNumber,
    pub(crate) channel: Connection,
    /// The number it expects next.
    pub(crate) expected: u32,
}

/// Values that the peer said under seal: the number it expects next, and how many bytes of what
/// came say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandshakeProof {
    expected: u32,
    consumed: usize,
}

/// Result of a look at an unauthenticated connection.
#[derive(Debug)]
pub(crate) enum HandshakeProgress {
    Stays,
    /// For what is wrong with it, if it said enough.
    Leaves(Option<HandshakeError>),
    Proved(HandshakeProof),
}

impl Unauthenticated {
    /// `ahead` is what has come by this socket.
    pub(crate) fn new(socket: OwnedFd, ahead: Vec<u8>, now: Instant) -> Self {
        Self {
            socket,
            came: ahead,
            callee: None,
            since: now,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Returns whether the peer has shown the secret.
    pub(crate) fn has_shown(&self) -> bool {
        self.callee.is_some()
    }

    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Takes what came. `admit` is asked about one that has shown the secret, and says which number
    /// of its is expected next.
    pub(crate) fn look(
        &mut self,
        identity: &LocalIdentity,
        admit: impl FnOnce(&ProcessId, StreamNumber) -> Result<u32, RejectReason>,
    ) -> HandshakeProgress {
        if self.came.len() < 2 * OPENING_MAX {
            match connection::recv_onto(&self.socket, &mut self.came, 2 * OPENING_MAX) {
                IoResult::Moved(_) => {}
                IoResult::Later => return HandshakeProgress::Stays,
                IoResult::Over => return HandshakeProgress::Leaves(None),
            }
        }
        self.hear(identity, admit)
    }

    /// Handles what is here already.
    pub(crate) fn hear(
        &mut self,
        identity: &LocalIdentity,
        admit: impl FnOnce(&ProcessId, StreamNumber) -> Result<u32, RejectReason>,
    ) -> HandshakeProgress {
        if self.callee.is_none() {
            match Responder::hear(identity, &self.came, admit) {
                Ok(ResponderStep::More) => return HandshakeProgress::Stays,
                Ok(ResponderStep::Refused(fault, bytes)) => {
                    connection::send(&self.socket, &bytes, AfterRead::Nothing);
                    return HandshakeProgress::Leaves(Some(fault));
                }
                Ok(ResponderStep::Answered {
                    callee,
                    answer,
                    consumed,
                }) => {
                    if connection::send(&self.socket, &answer, AfterRead::Nothing)
                        != IoResult::Moved(answer.len())
                    {
                        return HandshakeProgress::Leaves(None);
                    }
                    self.came.drain(..consumed);
                    self.callee = Some(callee);
                }
                Err(fault) => return HandshakeProgress::Leaves(Some(fault)),
            }
        }
        match self.callee.as_mut().map(|callee| callee.proved(&self.came)) {
            Some(Ok(None)) => HandshakeProgress::Stays,
            Some(Ok(Some((expected, consumed)))) => {
                HandshakeProgress::Proved(HandshakeProof { expected, consumed })
            }
            _ => HandshakeProgress::Leaves(None),
        }
    }

    /// Lets it in, once it has proved itself.
    pub(crate) fn admitted(mut self, proof: HandshakeProof) -> Option<Authenticated> {
        let callee = *self.callee.take()?;
        let (from, stream) = (callee.from, callee.stream);
        let ahead = self.came.split_off(proof.consumed.min(self.came.len()));
        Some(Authenticated {
            from,
            stream,
            channel: Connection::new(self.socket, callee.terms(), ahead),
            expected: proof.expected,
        })
    }
}
