//! Frames by a packet socket (AF_PACKET): received through a ring that the kernel fills
//! (TPACKET_V2), sent past the queueing discipline.
//!
//! A socket needs the right CAP_NET_RAW to be opened, and none to be used. So the agent opens one
//! for each rank with [`open`] and hands it over. A filter in the kernel lets through what is for
//! this rank of this job.

use crate::driver::{FrameDriver, SendResult};
use crate::frame::{ETHERNET, Mac};
use crate::limits::{FRAME_JUMBO, FRAME_MAX, FRAME_MIN, RING_BYTES};
use crate::sys::{self, Ring};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Opens a packet socket that receives frames of this ethertype for this rank of the job on the
/// interface, and returns it with the interface's address. Frames have at most `frame` bytes behind
/// their Ethernet header, if that is said.
///
/// # Errors
/// `PermissionDenied` without the right; no such interface, none with an Ethernet address, or one
/// that takes no such frames.
pub fn open(
    interface: &str,
    (ethertype, frame): (u16, Option<usize>),
    (job, rank): (u32, u32),
) -> io::Result<(OwnedFd, Mac)> {
    let socket = sys::packet_socket()?;
    let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
    takes(&socket, interface, frame.unwrap_or(FRAME_MIN))?;
    sys::attach_filter(&socket, job, rank)?;
    sys::bind(&socket, index, ethertype)?;
    let bound = sys::bound_to(&socket)?;
    Ok((socket, bound.mac))
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

/// A packet socket with its ring.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    interface: String,
    ring: Ring,
    mac: Mac,
    ethertype: u16,
    payload_max: usize,
    dropped: u64,
}

impl PacketSocket {
    /// Uses a socket that [`open`] made. Frames have at most `frame` bytes behind their Ethernet
    /// header; `None`: as many as the interface takes now, up to [`FRAME_MAX`].
    ///
    /// # Errors
    /// The system refuses the ring, or the interface takes no such frames.
    pub fn new(socket: OwnedFd, frame: Option<usize>) -> io::Result<Self> {
        let bound = sys::bound_to(&socket)?;
        let interface = rustix::net::netdevice::index_to_name(&socket, bound.index)?;
        let mtu = sys::mtu(&socket, &interface)?;
        let payload_max = frame.unwrap_or(mtu).clamp(FRAME_MIN, FRAME_MAX);
        takes(&socket, &interface, payload_max)?;
        let ring_bytes = RING_BYTES * payload_max.div_ceil(FRAME_JUMBO);
        let ring = Ring::new(&socket, ETHERNET + payload_max, ring_bytes)?;
        sys::bypass_queueing(&socket);
        Ok(Self {
            socket,
            interface,
            ring,
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
        self.ring.slots()
    }

    fn ethertype(&self) -> u16 {
        self.ethertype
    }

    fn send(&mut self, frame: &[u8]) -> SendResult {
        let result = sys::send(&self.socket, frame);
        if result == SendResult::TooLong {
            let now = sys::mtu(&self.socket, &self.interface).unwrap_or(0);
            // An interface that is being changed may refuse what it says to take.
            let refused = frame.len().saturating_sub(ETHERNET + 1);
            self.payload_max = self.payload_max.min(now).min(refused);
        }
        result
    }

    fn receive(&mut self, budget: u32, take: &mut dyn FnMut(&[u8])) -> u32 {
        self.ring.take(budget, take)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn dropped(&mut self) -> u64 {
        self.dropped += sys::dropped(&self.socket);
        self.dropped
    }
}
