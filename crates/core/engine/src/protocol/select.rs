//! The strategy: from a view of a gate's window to what is done with its next envelope.
//!
//! A pure function, called by the pump, which checks what it answers against credits and sizes: a
//! bad strategy can be slow, never wrong. What leaves in which write is decided in [`leave`], by
//! whoever owns the connection; in which order, in [`order`]; how large data are split, in
//! [`split`]; a strategy's name ([`built_in`]) chooses among what these can do. A strategy that
//! others wrote ([`loaded`]) is asked before these, where there is one.

/// What a strategy sees of a window's head.
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

/// What to do with the head of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// Send envelope and payload together.
    Eager,
    /// Send the envelope; the payload follows when the receiver wants it.
    Announce,
    /// Wait for credits.
    Hold,
}

/// The step for the head of a window.
pub fn next(view: &WindowHead) -> SendStep {
    if view.envelopes == 0 {
        SendStep::Hold
    } else if view.len <= view.eager_max && view.len <= view.payload {
        SendStep::Eager
    } else {
        SendStep::Announce
    }
}
