//! State per peer: credits, sequence numbers of envelopes, and where to find them.

pub(crate) mod credits;
pub(crate) mod reorder;
pub(crate) mod routes;
pub(crate) mod sequences;
pub(crate) mod state;
pub(crate) mod table;
