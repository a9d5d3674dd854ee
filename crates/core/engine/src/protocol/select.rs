//! Protocol selection: from the head of a peer's window to what is done with its next envelope.
//!
//! A pure function, called by progress, which checks the answer against credits and sizes: a bad
//! choice can be slow, never wrong. [`crate::schedule`] decides order, coalescing and striping.

/// The head of a window, and the credits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowHead {
    /// Envelopes that the peer still accepts.
    pub envelopes: u32,
    /// Payload bytes that the peer still accepts unasked.
    pub payload: u64,
    /// Largest payload that may travel with its envelope.
    pub eager_max: u64,
    /// Length of the message.
    pub len: u64,
}

/// Next step for the head of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// Send envelope and payload together.
    Eager,
    /// Send the envelope; the payload follows when the receiver wants it.
    Rts,
    /// Wait for credits.
    Wait,
}

/// The step for the head of a window.
pub fn next(view: &WindowHead) -> SendStep {
    if view.envelopes == 0 {
        SendStep::Wait
    } else if view.len <= view.eager_max && view.len <= view.payload {
        SendStep::Eager
    } else {
        SendStep::Rts
    }
}
