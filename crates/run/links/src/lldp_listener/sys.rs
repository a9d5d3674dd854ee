//! A packet socket: what safe wrappers do not offer.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

use super::ReceivedFrame;

/// Bytes of a frame that are kept: more than an Ethernet frame of the protocol may have.
const FRAME_MAX: usize = 2048;

/// A socket that gets frames of one type from all interfaces.
pub fn open(ethertype: u16) -> io::Result<OwnedFd> {
    let kind = NonZeroU32::new(u32::from(ethertype.to_be())).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        flags,
        kind,
    )?)
}

/// The numbers of all interfaces of this network namespace.
pub fn interface_numbers() -> io::Result<Vec<i32>> {
    // SAFETY: the list ends with an entry of number 0, and is freed once.
    unsafe {
        let list = libc::if_nameindex();
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut numbers = Vec::new();
        let mut at = list;
        while (*at).if_index != 0 {
            numbers.push((*at).if_index as i32);
            at = at.add(1);
        }
        libc::if_freenameindex(list);
        Ok(numbers)
    }
}

/// Has an interface let through frames to a group.
pub fn join(socket: &OwnedFd, interface: i32, group: &[u8; 6]) -> io::Result<()> {
    let mut address = [0; 8];
    address[..group.len()].copy_from_slice(group);
    let wanted = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_MULTICAST as u16,
        mr_alen: group.len() as u16,
        mr_address: address,
    };
    // SAFETY: the option takes such a structure, which lives through the call, of the size given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const wanted).cast(),
            size_of::<libc::packet_mreq>() as u32,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The next frame that is for this host. `None`: there is none, or its interface has vanished.
pub fn receive(socket: &OwnedFd) -> io::Result<Option<ReceivedFrame>> {
    let mut bytes = vec![0; FRAME_MAX];
    // SAFETY: an address of only numbers, of which all bits may be zero.
    let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: buffer and address are valid for the lengths given, and live through the call.
    let got = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            0,
            (&raw mut from).cast(),
            &raw mut len,
        )
    };
    let Ok(got) = usize::try_from(got) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            // An interface went down: the socket goes on with the others.
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
            _ => Err(error),
        };
    };
    bytes.truncate(got);
    if from.sll_pkttype == libc::PACKET_OUTGOING {
        return Ok(None);
    }
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the function fills at most.
    let found = unsafe { libc::if_indextoname(from.sll_ifindex as u32, name.as_mut_ptr()) };
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: the function has written a name with its end into the buffer, which lives on.
    let interface = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok(Some(ReceivedFrame {
        interface: interface.to_string_lossy().into_owned(),
        bytes,
    }))
}
