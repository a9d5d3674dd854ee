//! What moves frames between this process and a network: the seam below the transport.
//!
//! [`PacketSocket`](crate::packet_socket::PacketSocket) is the one driver that there is; a driver
//! over AF_XDP would be another.

use crate::frame::Mac;
use std::os::fd::BorrowedFd;

/// What became of a frame that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// The frame is on its way, and may be lost there.
    Sent,
    /// There is no room now, and the frame is lost.
    Full,
    /// The interface takes no frames of this length now; [`FrameDriver::payload_max`] says which.
    TooLong,
}

/// Sends and receives whole frames. Owned by one transport, which calls it through `&mut`. Frames
/// may be lost, repeated, changed and reordered.
pub trait FrameDriver: Send {
    /// Returns the address of the interface.
    fn mac(&self) -> Mac;
    /// Returns how many bytes may follow the Ethernet header now. Frames that come are no longer
    /// than at the beginning.
    fn payload_max(&self) -> usize;
    /// Returns how many frames that came find room until they are taken.
    fn slots(&self) -> usize;
    /// Returns the ethertype of frames.
    fn ethertype(&self) -> u16;
    /// Sends a frame.
    fn send(&mut self, frame: &[u8]) -> SendResult;
    /// Gives up to `budget` frames that came. Returns how many.
    fn receive(&mut self, budget: u32, take: &mut dyn FnMut(&[u8])) -> u32;
    /// Returns what is readable when frames have come; `None`: nothing tells.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Returns how many frames the system has dropped for want of room.
    fn dropped(&mut self) -> u64 {
        0
    }
}
