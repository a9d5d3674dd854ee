//! The interfaces of this host, as the kernel tells of them: what safe wrappers do not offer.

use rustix::net::{AddressFamily, SocketType, socket};
use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Mask of the address's network.
    pub mask: Option<IpAddr>,
    /// The address leads to this host only.
    pub loopback: bool,
    /// The interface had a link when it was read; the kernel says so up to a second later.
    pub running: bool,
}

impl Interface {
    /// Returns whether it has a link now, as far as its driver can say.
    pub fn is_linked(&self) -> bool {
        let asked = socket(AddressFamily::INET, SocketType::DGRAM, None).ok();
        let linked = asked.and_then(|socket| has_link(&socket, &self.name));
        linked.unwrap_or(self.running)
    }
}

/// The addresses of all interfaces that are up.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the list is written to a valid place, walked only if it was made, and freed once.
    unsafe {
        if libc::getifaddrs(&mut list) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut found = Vec::new();
        let mut at = list;
        while let Some(entry) = at.as_ref() {
            at = entry.ifa_next;
            if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
                continue;
            }
            let Some(address) = ip_of(entry.ifa_addr) else {
                continue;
            };
            let name = CStr::from_ptr(entry.ifa_name);
            found.push(Interface {
                name: name.to_string_lossy().into_owned(),
                address,
                mask: ip_of(entry.ifa_netmask),
                loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
                running: entry.ifa_flags & libc::IFF_RUNNING as u32 != 0,
            });
        }
        libc::freeifaddrs(list);
        Ok(found)
    }
}

/// Returns whether an interface has a link, if its driver can say.
fn has_link(socket: &OwnedFd, name: &str) -> Option<bool> {
    /// `SIOCETHTOOL` and `ETHTOOL_GLINK` of linux/sockios.h and linux/ethtool.h.
    const ETHTOOL: libc::c_ulong = 0x8946;
    const GET_LINK: u32 = 0xa;
    // `struct ethtool_value`: the question, and its answer.
    let mut link = [GET_LINK, 0u32];
    // SAFETY: a structure of plain numbers and pointers, of which zeros are one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes();
    if bytes.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = link.as_mut_ptr().cast();
    // SAFETY: the kernel reads the name, which ends, and writes both words behind the pointer,
    // which outlive the call.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL as _, &raw mut request) };
    (asked == 0).then_some(link[1] != 0)
}

/// The address that the kernel describes.
///
/// # Safety
/// `at` is null or points to a socket address whose family says how long it is.
unsafe fn ip_of(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the caller's word; the family is read before anything behind it.
    unsafe {
        match i32::from(at.as_ref()?.sa_family) {
            libc::AF_INET => {
                let four = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(four.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let six = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(six.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}
