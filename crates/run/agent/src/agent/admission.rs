//! What a process of this host needs to become a rank: the secret of the job, and a lifeline.

use std::os::fd::{AsRawFd, OwnedFd};

use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits;
use garonne_job::registration_secret::RegistrationSecret;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

use super::rank_start;

/// Secret, lifeline and room for the processes of a job that register.
///
/// Owned by the agent, from its beginning to its end: when the agent ends, the lifeline does, and
/// with it all ranks. [`limit_pidfds`](Self::limit_pidfds) comes before the first registration.
#[derive(Debug)]
pub(super) struct Admission {
    secret: RegistrationSecret,
    /// Both ends of a pipe into which nothing is written.
    lifeline: (OwnedFd, OwnedFd),
    /// True if there are descriptors enough for a pidfd per rank; else the end of its socket tells
    /// of a death.
    room_for_pidfds: bool,
}

impl Admission {
    /// Draws a secret and makes the lifeline.
    ///
    /// # Errors
    /// The system has no random numbers, or no descriptors.
    pub fn new() -> Result<Self> {
        let lifeline = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| Error::system(codes::G0209, "cannot make the lifeline", error))?;
        Ok(Self {
            secret: RegistrationSecret::draw()?,
            lifeline,
            room_for_pidfds: true,
        })
    }

    /// Goes without pidfds where `ranks` ranks would leave the agent no descriptors.
    pub fn limit_pidfds(&mut self, ranks: usize) {
        self.room_for_pidfds =
            rank_start::open_files_limit() >= limits::FDS_OF_AGENT + 4 * ranks as u64;
    }

    /// Returns the secret that admits a process to the job.
    pub fn secret(&self) -> &RegistrationSecret {
        &self.secret
    }

    /// Opens a reading end of the lifeline with a file description of its own: owner and signal are
    /// set per description.
    ///
    /// # Errors
    /// The system refuses to.
    pub fn open_lifeline(&self) -> Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.lifeline.0.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
            Error::system(
                codes::G0209,
                "cannot make a lifeline (is /proc mounted?)",
                error,
            )
        })
    }

    /// Opens a descriptor that tells of the end of a process. Without room for it, or from another
    /// PID namespace, there is none, and the end of its socket tells. So it does of a rank that
    /// shares its process with others, which may end before them.
    pub fn open_pidfd(&self, pid: i32) -> Option<OwnedFd> {
        let is_shared = || {
            let file = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            file.file_name()
                .is_some_and(|name| name == rank_start::RANK_THREADS)
        };
        let pid = Pid::from_raw(pid).filter(|_| self.room_for_pidfds && !is_shared())?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
    }
}
