//! Advances engines and waits for them: an engine behind its lock, the submission ring, spin then sleep.

pub mod host;
