//! What a rank tells of a signal that will end it: which, where, and where its registers lie, so
//! that its agent has it examined from outside before it ends.
//!
//! The rank installs a handler in MPI_Init for signals that nobody handles (`crash/sys.rs`). The
//! thread that gets one sends a `CrashReport` to the agent, waits for at most
//! [`CRASH_WAIT`](garonne_job::limits::CRASH_WAIT), and lets the signal end the process as without
//! a handler. Nothing is installed in processes without an agent, nor where [`ENV_BACKTRACE`] is 0.

#[path = "crash/sys.rs"]
#[allow(unsafe_code)]
mod handler;

use garonne_job::settings::ENV_BACKTRACE;
use garonne_job::settings::backtrace::is_wanted;
use std::sync::Arc;

use crate::client::AgentClient;
use garonne_job::error::Result;

/// Has this process, a rank, tell its agent of signals that end it, unless the environment says not
/// to. Called once it has registered, by the thread that called MPI.
///
/// # Errors
/// The environment says neither yes nor no.
pub(crate) fn watch(client: &Arc<AgentClient>) -> Result<()> {
    if is_wanted(&std::env::var_os(ENV_BACKTRACE).unwrap_or_default())? {
        handler::install(client.clone());
    }
    Ok(())
}
