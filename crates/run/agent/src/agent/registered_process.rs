//! A process that has registered as a rank, from then on.

use std::os::fd::OwnedFd;

/// A registered process of a rank.
#[derive(Debug)]
pub(super) struct RegisteredProcess {
    pub(super) epoch: u32,
    /// Version of the protocol between the process and the agent.
    pub(super) protocol: u16,
    pub(super) pid: i32,
    pub(super) socket: Option<OwnedFd>,
    /// `None` if the process is the rank's direct child, or not visible from here.
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) direct: bool,
    pub(super) finalized: bool,
    pub(super) gone: bool,
    /// The process ends by itself.
    pub(super) leaves: bool,
    pub(super) report: String,
}
