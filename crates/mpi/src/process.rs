//! One rank as a value: its engine's host and the tables of objects that belong to it.

use garonne_progress::host::Host;
use std::sync::Arc;

/// One MPI process. Everything a communicator needs from its rank is reached through here.
pub struct Process {
    /// The engine of this rank.
    pub host: Arc<dyn Host>,
}
