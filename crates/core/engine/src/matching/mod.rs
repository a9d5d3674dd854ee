//! Matching of messages with receives, and messages that arrived before their receive.

pub(crate) mod concurrent_receives;
pub(crate) mod matcher;
pub(crate) mod unexpected;
