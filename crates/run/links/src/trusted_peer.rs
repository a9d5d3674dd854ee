//! Whose processes are believed that speak for a job: those of its user, and root's.
//!
//! Abstract socket names belong to nobody: any user of the machine can bind one that looks like an
//! agent's. The kernel says with each message who sent it.

use std::os::fd::OwnedFd;

use rustix::net::sockopt;

use crate::sys::ReceivedMessage;
use garonne_job::codes;
use garonne_job::error::{Error, Result};

/// The user id of who sent a message, if the kernel can name it here.
pub fn user_of(message: &ReceivedMessage) -> Option<u32> {
    message.sender.map(|(_, user)| user)
}

/// Has the kernel say with each message of a socket who sent it. To be called before anybody can
/// send.
pub fn ask_for_senders(socket: &OwnedFd) -> Result<()> {
    sockopt::set_socket_passcred(socket, true)
        .map_err(|error| Error::system(codes::G0209, "cannot ask who sends on a socket", error))
}

/// Returns whether a process of this user may ask or answer for a job of this process's user.
pub fn is_believed(user: Option<u32>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    user.is_some_and(|user| user == own || user == 0)
}

/// Returns whether what a process of this user says of a job is believed, whose launcher has this
/// process id. Root looks at the jobs of all users, if the launcher is a process of the user that
/// answers for the job.
pub fn is_believed_of(user: Option<u32>, launcher: Option<u32>) -> bool {
    is_believed(user)
        || rustix::process::geteuid().is_root()
            && user.is_some()
            && launcher.and_then(owner) == user
}

/// The user of a process, as long as there is one.
pub fn owner(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    // Of a process that forbids to be examined the directory is root's.
    std::fs::metadata(format!("/proc/{pid}"))
        .ok()
        .map(|about| about.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_processes_and_root_are_believed_and_nobody_else() {
        let own = rustix::process::geteuid().as_raw();
        assert!(is_believed(Some(own)) && is_believed(Some(0)));
        assert!(!is_believed(Some(own + 1)) && !is_believed(None));
    }

    #[test]
    fn root_believes_a_user_of_a_job_that_this_user_has_launched() {
        let own = rustix::process::geteuid().as_raw();
        let launcher = Some(std::process::id());
        assert!(is_believed_of(Some(own), launcher));
        assert!(!is_believed_of(Some(own + 1), launcher));
        assert!(!is_believed_of(None, Some(u32::MAX)));
    }
}
