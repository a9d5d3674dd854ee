//! Addresses of sockets, as the C library writes them and as Rust has them.

use crate::real;
use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads an address of IP; one of version 4 in the form of version 6 becomes one of version 4.
/// `None`: another family, or too short.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller says that so many bytes are there.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET if length as usize >= size_of::<sockaddr_in>() => {
            // SAFETY: as above; the address may lie anywhere.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some((ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 if length as usize >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
            Some((ip, u16::from_be(address.sin6_port)).into())
        }
        _ => None,
    }
}

type Getter = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

fn ask(socket: c_int, getter: Getter) -> Option<SocketAddr> {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    let place = (&raw mut storage).cast::<sockaddr>();
    // SAFETY: places to write to.
    if unsafe { getter(socket, place, &raw mut length) } != 0 {
        return None;
    }
    // SAFETY: the kernel wrote the address.
    unsafe { read(place, length) }
}

/// A socket's own address.
pub(crate) fn own(socket: c_int) -> Option<SocketAddr> {
    ask(socket, real::getsockname)
}

/// Address of a socket's other side.
pub(crate) fn peer(socket: c_int) -> Option<SocketAddr> {
    ask(socket, real::getpeername)
}

/// Binds a socket to a port of the system's choice.
pub(crate) fn bind_any(socket: c_int, is_v6: bool) -> bool {
    // SAFETY: all zeroes is a valid value, and the address of any interface and port.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let (family, length) = match is_v6 {
        true => (libc::AF_INET6, size_of::<sockaddr_in6>()),
        false => (libc::AF_INET, size_of::<sockaddr_in>()),
    };
    storage.ss_family = family as libc::sa_family_t;
    let address = (&raw const storage).cast::<sockaddr>();
    // SAFETY: an address of this length.
    unsafe { libc::bind(socket, address, length as socklen_t) == 0 }
}

/// Tells whether an address is of this host.
pub(crate) fn is_local(ip: IpAddr) -> bool {
    if ip.is_loopback() {
        return true;
    }
    if let IpAddr::V6(ip) = ip
        && ip.is_unicast_link_local()
    {
        return false;
    }
    // The kernel chooses the address itself as the source of a way to one of its own.
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    std::net::UdpSocket::bind((any, 0))
        .and_then(|socket| socket.connect((ip, 9)).and_then(|()| socket.local_addr()))
        .is_ok_and(|own| own.ip() == ip)
}

/// An option that is a number.
pub(crate) fn option(socket: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: places to write to.
    let outcome = unsafe { real::getsockopt(socket, level, name, place, &raw mut length) };
    (outcome == 0).then_some(value)
}

/// Tells whether a descriptor is a socket of TCP.
pub(crate) fn is_tcp(socket: c_int) -> bool {
    option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// Sets an option that is a number.
pub(crate) fn set_option(socket: c_int, level: c_int, name: c_int, value: c_int) {
    let length = size_of::<c_int>() as socklen_t;
    // SAFETY: a number that lives.
    unsafe { real::setsockopt(socket, level, name, (&raw const value).cast(), length) };
}

/// What a close waits for: whether it does, and seconds.
pub(crate) fn linger(socket: c_int) -> Option<(c_int, c_int)> {
    let mut value = [0 as c_int; 2];
    let mut length = size_of_val(&value) as socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
    let place = value.as_mut_ptr().cast();
    // SAFETY: places to write to.
    let outcome = unsafe { real::getsockopt(socket, level, name, place, &raw mut length) };
    (outcome == 0).then_some((value[0], value[1]))
}
