//! Frames of the Link Layer Discovery Protocol as the interfaces of this host get them.
//!
//! [`sys`] has the packet socket; what a frame says is decoded elsewhere.

#[allow(unsafe_code)]
pub mod sys;

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::sys::timespec;

/// A frame, and where it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Name of the interface.
    pub interface: String,
    /// The whole frame, with its Ethernet header.
    pub bytes: Vec<u8>,
}

/// Listens on all interfaces of this host for some time, or until `enough` says so of a frame.
///
/// # Errors
/// What the system says; most often that the process may not open packet sockets.
pub fn listen(
    groups: &[[u8; 6]],
    ethertype: u16,
    time: Duration,
    mut enough: impl FnMut(ReceivedFrame) -> bool,
) -> io::Result<()> {
    let socket = sys::open(ethertype)?;
    for index in sys::interface_numbers()? {
        for group in groups {
            // An interface that knows no groups hears all or nothing.
            let _ = sys::join(&socket, index, group);
        }
    }
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let mut ready = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match poll(&mut ready, Some(&timespec(left))) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(frame) = sys::receive(&socket)?
            && enough(frame)
        {
            return Ok(());
        }
    }
}

/// Megabytes in a second of an interface, as its driver says.
pub fn interface_rate(interface: &str) -> Option<f64> {
    let safe = !interface.contains('/') && interface != "..";
    let path = format!("/sys/class/net/{interface}/speed");
    let text = safe.then(|| std::fs::read_to_string(path).ok()).flatten()?;
    let mbit: f64 = text.trim().parse().ok()?;
    // -1 and 4294967295 mean: not known.
    (mbit > 0.0 && mbit < 4e9).then_some(mbit / 8.0)
}
