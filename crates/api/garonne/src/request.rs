//! Operations that go on after the call that started them. Each owns its memory, so a request that
//! is forgotten loses memory and nothing else.

use crate::endpoint::{Endpoint, received_of};
use crate::peer::Received;
use crate::sys::OwnedOperation;
use garonne_job::error::Result;

/// A send that [`Endpoint::start_send`] started.
///
/// Dropped before it is over, it goes on by itself as long as its endpoint is there. Then nobody
/// learns whether the message arrived.
#[derive(Debug)]
#[must_use = "a send is over when `wait` says so"]
pub struct SendRequest<'a> {
    endpoint: &'a Endpoint,
    /// Taken by `wait` and `drop` alone.
    operation: Option<OwnedOperation>,
}

/// A receive that [`Endpoint::start_recv`] started.
///
/// Dropped before it is over, it is cancelled. A message that it had got already is lost.
#[derive(Debug)]
#[must_use = "a message is there when `wait` gives it"]
pub struct RecvRequest<'a> {
    endpoint: &'a Endpoint,
    /// Taken by `wait` and `drop` alone.
    operation: Option<OwnedOperation>,
}

impl<'a> SendRequest<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, operation: OwnedOperation) -> Self {
        Self {
            endpoint,
            operation: Some(operation),
        }
    }

    /// Returns whether the send is over, after some progress.
    pub fn is_done(&mut self) -> bool {
        let endpoint = self.endpoint;
        self.operation
            .as_mut()
            .is_none_or(|operation| endpoint.test(operation))
    }

    /// Waits until the send is over, and gives its bytes back.
    ///
    /// # Errors
    /// `Peer`: the peer has left or died.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        let Some(mut operation) = self.operation.take() else {
            return Ok(Vec::new());
        };
        self.endpoint.finish(&mut operation, "start_send")?;
        Ok(operation.into_bytes())
    }
}

impl<'a> RecvRequest<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, operation: OwnedOperation) -> Self {
        Self {
            endpoint,
            operation: Some(operation),
        }
    }

    /// Returns whether the receive is over, after some progress.
    pub fn is_done(&mut self) -> bool {
        let endpoint = self.endpoint;
        self.operation
            .as_mut()
            .is_none_or(|operation| endpoint.test(operation))
    }

    /// Waits for the message, and gives it with the buffer, cut to its length.
    ///
    /// # Errors
    /// `Misuse`: the message is longer than the buffer. `Peer`: as for [`Endpoint::recv`].
    pub fn wait(mut self) -> Result<(Received, Vec<u8>)> {
        let Some(mut operation) = self.operation.take() else {
            return Err(crate::error::misuse("a receive without an operation"));
        };
        let received = received_of(self.endpoint.finish(&mut operation, "start_recv")?);
        let mut bytes = operation.into_bytes();
        bytes.truncate(received.len);
        Ok((received, bytes))
    }
}

impl Drop for SendRequest<'_> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.endpoint.give_up(operation, false);
        }
    }
}

impl Drop for RecvRequest<'_> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.endpoint.give_up(operation, true);
        }
    }
}
