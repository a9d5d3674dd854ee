//! A socket of TCP that stands in where the program has no descriptor left for the one beside a
//! virtual socket: options are set there and asked there. Names come from the connection's record.

use crate::own_files;
use crate::real;
use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// In the place of a connection's TCP socket: it has none.
pub(crate) const NONE: c_int = -1;

/// The stand-in's descriptor.
static STAND_IN: OnceLock<Option<c_int>> = OnceLock::new();

fn create() -> Option<c_int> {
    // SAFETY: a plain call with integers; the descriptor belongs to nobody else.
    let socket = unsafe {
        let fd = real::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))?
    };
    Some(own_files::move_up(socket)?.into_number())
}

/// Sees to it that there is a stand-in. `false`: there is none.
pub(crate) fn open() -> bool {
    STAND_IN.get_or_init(create).is_some()
}

/// The descriptor that answers for a connection's options.
pub(crate) fn answers_for(tcp: c_int) -> c_int {
    match tcp {
        NONE => STAND_IN.get().copied().flatten().unwrap_or(NONE),
        tcp => tcp,
    }
}

/// Writes an address as `getsockname` does.
pub(crate) unsafe fn write(address: SocketAddr, name: *mut sockaddr, length: *mut socklen_t) {
    // SAFETY: all zeroes is a valid value of these plain C structures.
    let (mut v4, mut v6): (sockaddr_in, sockaddr_in6) = unsafe { std::mem::zeroed() };
    let (bytes, count) = match address {
        SocketAddr::V4(address) => {
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = address.port().to_be();
            v4.sin_addr.s_addr = u32::from(*address.ip()).to_be();
            ((&raw const v4).cast::<u8>(), size_of_val(&v4))
        }
        SocketAddr::V6(address) => {
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = address.port().to_be();
            v6.sin6_addr.s6_addr = address.ip().octets();
            ((&raw const v6).cast::<u8>(), size_of_val(&v6))
        }
    };
    // SAFETY: the program's places, with room for what it says.
    unsafe {
        let room = (*length as usize).min(count);
        std::ptr::copy_nonoverlapping(bytes, name.cast::<u8>(), room);
        *length = count as socklen_t;
    }
}
