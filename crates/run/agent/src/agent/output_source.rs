//! Where the output of a rank comes from: a pipe, or the agent of another host.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// Source of a rank's output: a pipe, or the agent of another host.
#[derive(Debug)]
pub(super) enum OutputSource {
    /// The agent's end of the rank's pipe.
    Pipe(OwnedFd),
    /// Bytes that another agent has sent. Bounded by the credit that it has.
    Far {
        /// Not yet read.
        bytes: VecDeque<u8>,
        /// Nothing follows.
        ended: bool,
    },
}

impl OutputSource {
    /// Makes a source that another agent fills.
    pub fn far() -> Self {
        Self::Far {
            bytes: VecDeque::new(),
            ended: false,
        }
    }

    /// The descriptor to watch, if there is one.
    pub fn pipe(&self) -> Option<&OwnedFd> {
        match self {
            Self::Pipe(fd) => Some(fd),
            Self::Far { .. } => None,
        }
    }

    /// Reads as a pipe that does not block is read: 0 is the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Pipe(fd) => rustix::io::read(fd, buffer),
            Self::Far { bytes, ended } => {
                let take = bytes.len().min(buffer.len());
                if take == 0 && !*ended {
                    return Err(Errno::AGAIN);
                }
                for (place, byte) in buffer.iter_mut().zip(bytes.drain(..take)) {
                    *place = byte;
                }
                Ok(take)
            }
        }
    }

    /// Adds what another agent sent; nothing is its end.
    pub fn feed(&mut self, more: &[u8]) {
        if let Self::Far { bytes, ended } = self {
            bytes.extend(more);
            *ended |= more.is_empty();
        }
    }

    /// Bytes that lie here, of which no descriptor tells.
    pub fn lying(&self) -> usize {
        match self {
            Self::Pipe(_) => 0,
            Self::Far { bytes, ended } => bytes.len() + usize::from(*ended),
        }
    }
}
