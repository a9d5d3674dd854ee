//! What tests of several modules surround a rail with.

use crate::tcp::line;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// A port where calls come to nothing, and nobody says so: its queue is full, and the kernel drops whatever comes.
pub(crate) struct Hole {
    pub(crate) at: SocketAddr,
    _listener: OwnedFd,
    _fill: Vec<OwnedFd>,
}

impl Hole {
    pub(crate) fn new() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let flags = SocketFlags::CLOEXEC;
        let listener =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&listener, &any).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let at = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
        let fill = (0..4).map(|_| line::connect(&at).unwrap()).collect();
        Self {
            at,
            _listener: listener,
            _fill: fill,
        }
    }
}
