//! Hosts that join a job with a key: the key ([`garonne_job::join_key`]), the launcher's side
//! ([`join_listener`], and [`late_join`] once the job runs), the other hosts' ([`join_client`]),
//! and what both say to each other before the job is known to them (docs/reference/job.md, clauses
//! J1 to J6).
//!
//! A host that is to join needs nothing but an outbound connection to the first agent's host: it
//! calls, proves the key's secret, says what it offers, and waits. Once as many have come as were
//! asked for, each is handed the bootstrap message that an agent gets on its standard input
//! otherwise, on the line that it has made, which stays the line between the agents.

pub mod join_client;
pub mod join_listener;
pub(crate) mod late_join;

use garonne_tcp::agent_channel;
use garonne_tcp::{LocalIdentity, Secret};

/// The job that calls with a key name: which one it is the key's secret says.
const JOB: [u8; 16] = *b"garonne/join-key";

/// The node that a host which has none yet calls itself.
pub(crate) const NO_NODE: u32 = u32::MAX;

/// Returns the identity with which a node (0: the job's) authenticates connections by a key.
pub(crate) fn local_identity(secret: &Secret, node: u32) -> LocalIdentity {
    agent_channel::identity(secret.clone(), JOB, node)
}
