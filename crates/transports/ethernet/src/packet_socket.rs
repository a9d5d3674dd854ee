//! Frames by a packet socket (AF_PACKET): received through a ring that the kernel fills
//! (TPACKET_V2), sent past the queueing discipline.
//!
//! A socket needs the right CAP_NET_RAW to be opened, and none to be used. So the agent opens two
//! for each rank with [`open`] and hands them over. Filters in the kernel let through what is for
//! this rank of this job: frames that end a message, or are one, by the socket that wakes a rank;
//! those before them by the other, which nobody watches.

use crate::driver::{FrameDriver, SendResult};
use crate::frame::{ETHERNET, Mac};
use crate::limits::{FRAME_JUMBO, FRAME_MAX, FRAME_MIN, RING_BYTES};
use crate::sys::{self, Ring};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The packet sockets of a rank.
#[derive(Debug)]
pub struct Sockets {
    /// Receives frames that wake a rank that sleeps, and sends.
    pub waking: OwnedFd,
    /// Receives the others.
    pub quiet: OwnedFd,
}

/// Opens packet sockets that receive frames of this ethertype for this rank of the job on the
/// interface, and returns them with the interface's address. Frames have at most `frame` bytes
/// behind their Ethernet header, if that is said.
///
/// # Errors
/// `PermissionDenied` without the right; no such interface, none with an Ethernet address, or one
/// that takes no such frames.
pub fn open(
    interface: &str,
    (ethertype, frame): (u16, Option<usize>),
    (job, rank): (u32, u32),
) -> io::Result<(Sockets, Mac)> {
    let open = |quiet| {
        let socket = sys::packet_socket()?;
        let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
        takes(&socket, interface, frame.unwrap_or(FRAME_MIN))?;
        sys::attach_filter(&socket, (job, rank), quiet)?;
        sys::bind(&socket, index, ethertype)?;
        Ok::<_, io::Error>(socket)
    };
    let (waking, quiet) = (open(false)?, open(true)?);
    let bound = sys::bound_to(&waking)?;
    Ok((Sockets { waking, quiet }, bound.mac))
}

/// Returns why packet sockets cannot be opened here.
///
/// # Errors
/// The system's reason.
pub fn probe() -> io::Result<()> {
    sys::packet_socket().map(drop)
}

/// Checks that an interface takes frames of this length.
fn takes(socket: &OwnedFd, interface: &str, frame: usize) -> io::Result<()> {
    let mtu = sys::mtu(socket, interface)?;
    match mtu < frame {
        true => Err(io::Error::other(format!(
            "{interface} takes frames of {mtu} bytes, not of {frame}"
        ))),
        false => Ok(()),
    }
}

/// The packet sockets of a rank with their rings.
#[derive(Debug)]
pub struct PacketSocket {
    sockets: Sockets,
    interface: String,
    waking: Ring,
    quiet: Ring,
    mac: Mac,
    ethertype: u16,
    payload_max: usize,
    dropped: u64,
}

impl PacketSocket {
    /// Uses sockets that [`open`] made. Frames have at most `frame` bytes behind their Ethernet
    /// header; `None`: as many as the interface takes now, up to [`FRAME_MAX`].
    ///
    /// # Errors
    /// The system refuses the rings, or the interface takes no such frames.
    pub fn new(sockets: Sockets, frame: Option<usize>) -> io::Result<Self> {
        let socket = &sockets.waking;
        let bound = sys::bound_to(socket)?;
        let interface = rustix::net::netdevice::index_to_name(socket, bound.index)?;
        let mtu = sys::mtu(socket, &interface)?;
        let payload_max = frame.unwrap_or(mtu).clamp(FRAME_MIN, FRAME_MAX);
        takes(socket, &interface, payload_max)?;
        let bytes = RING_BYTES * payload_max.div_ceil(FRAME_JUMBO);
        let waking = Ring::new(socket, ETHERNET + payload_max, bytes)?;
        let quiet = Ring::new(&sockets.quiet, ETHERNET + payload_max, bytes)?;
        sys::bypass_queueing(socket);
        Ok(Self {
            sockets,
            interface,
            waking,
            quiet,
            mac: bound.mac,
            ethertype: bound.ethertype,
            payload_max,
            dropped: 0,
        })
    }
}

impl FrameDriver for PacketSocket {
    fn mac(&self) -> Mac {
        self.mac
    }

    fn payload_max(&self) -> usize {
        self.payload_max
    }

    fn slots(&self) -> usize {
        self.quiet.slots()
    }

    fn ethertype(&self) -> u16 {
        self.ethertype
    }

    fn send(&mut self, frame: &[u8]) -> SendResult {
        let result = sys::send(&self.sockets.waking, frame);
        if result == SendResult::TooLong {
            let now = sys::mtu(&self.sockets.waking, &self.interface).unwrap_or(0);
            // An interface that is being changed may refuse what it says to take.
            let refused = frame.len().saturating_sub(ETHERNET + 1);
            self.payload_max = self.payload_max.min(now).min(refused);
        }
        result
    }

    fn receive(&mut self, budget: u32, take: &mut dyn FnMut(&[u8])) -> u32 {
        // In the order in which they were sent: what wakes comes last.
        let before = self.quiet.take(budget, take);
        before + self.waking.take(budget - before, take)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sockets.waking.as_fd())
    }

    fn dropped(&mut self) -> u64 {
        self.dropped += sys::dropped(&self.sockets.waking) + sys::dropped(&self.sockets.quiet);
        self.dropped
    }
}
