//! Where clients leave offers for a listening socket: a socket of the kernel with a name that says
//! user, address and port.
//!
//! A client connects to the mailbox before it connects to the listening socket, and leaves an offer
//! with the connection's memory and the server's socket. Whoever accepts the connection finds the
//! offer by both addresses. Processes that fork share a mailbox: one at a time looks through it,
//! and leaves the offers of connections that others accept.

use crate::addresses;
use crate::connection::Turn;
use crate::limits::{OFFER_MS, OFFERS, RESERVE};
use crate::own_files::{self, OwnFile};
use crate::{real, spare, table};
use garonne_socket_records::layout::STATE;
use garonne_socket_records::{ConnectionRecord, RECORD_BYTES};
use libc::{c_int, socklen_t};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
struct Mailbox {
    /// The listening socket of TCP.
    listener: c_int,
    socket: OwnFile,
    /// The user who opened it: the process may have become another one.
    user: u32,
    /// Descriptors that are given up while an offer is taken: where the program has used up its
    /// own, a client that made an offer must be answered all the same.
    reserve: Vec<OwnFile>,
    /// Address of a word that processes which fork share: whose turn it is. Its page stays, since
    /// copies of the descriptor use it.
    turn: usize,
}

static MAILBOXES: Mutex<Vec<Mailbox>> = Mutex::new(Vec::new());

fn boxes() -> std::sync::MutexGuard<'static, Vec<Mailbox>> {
    MAILBOXES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn user() -> u32 {
    // SAFETY: has no precondition.
    unsafe { libc::geteuid() }
}

fn address_of(name: &str) -> Option<(libc::sockaddr_un, socklen_t)> {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays 0: the name is in no file system.
    let place = address.sun_path.get_mut(1..=name.len())?;
    for (place, byte) in place.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Some((address, length as socklen_t))
}

fn name(user: u32, family: &str, ip: IpAddr, port: u16) -> String {
    format!("garonne-sockets/1/{user}/{family}/{ip}/{port}")
}

/// Name of a listening socket's mailbox.
fn name_of(user: u32, listener: c_int, address: SocketAddr) -> String {
    let ip = address.ip();
    let is_dual = ip.is_unspecified()
        && addresses::option(listener, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(0);
    let family = match ip {
        IpAddr::V4(_) => "4",
        IpAddr::V6(_) if is_dual => "46",
        IpAddr::V6(_) => "6",
    };
    name(user, family, ip, address.port())
}

/// Names of mailboxes that may belong to an address, the nearest first.
fn names_for(address: SocketAddr) -> [String; 3] {
    let any4 = IpAddr::from([0_u8; 4]);
    let any6 = IpAddr::from([0_u16; 8]);
    let port = address.port();
    let name = |family, ip| name(user(), family, ip, port);
    match address.ip() {
        ip @ IpAddr::V4(_) => [name("4", ip), name("4", any4), name("46", any6)],
        ip @ IpAddr::V6(_) => [name("6", ip), name("46", any6), name("6", any6)],
    }
}

fn new_socket() -> Option<OwnedFd> {
    // SAFETY: plain calls with integers; the descriptor belongs to nobody else.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = real::socket(libc::AF_UNIX, kind, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// Opens a mailbox for a listening socket, unless it has one.
pub(crate) fn open(listener: c_int, address: SocketAddr) -> bool {
    let mut boxes = boxes();
    if boxes.iter().any(|known| known.listener == listener) {
        return true;
    }
    let Some((place, length)) = address_of(&name_of(user(), listener, address)) else {
        return false;
    };
    let Some(socket) = new_socket().and_then(own_files::move_up) else {
        return false;
    };
    let fd = socket.as_raw_fd();
    // SAFETY: an address of this length.
    let is_open = unsafe {
        libc::bind(fd, (&raw const place).cast(), length) == 0 && real::listen(fd, OFFERS) == 0
    };
    if !is_open {
        return false;
    }
    // SAFETY: a new mapping touches no other one.
    let turn = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<AtomicU32>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if turn == libc::MAP_FAILED {
        return false;
    }
    let mut opened = Mailbox {
        listener,
        socket,
        user: user(),
        reserve: Vec::new(),
        turn: turn as usize,
    };
    opened.fill_reserve();
    if opened.reserve.len() < RESERVE || !spare::open() {
        return false;
    }
    boxes.push(opened);
    table::set_listening(listener);
    true
}

impl Mailbox {
    fn fill_reserve(&mut self) {
        while self.reserve.len() < RESERVE {
            let Some(file) = own_files::keep(&self.socket) else {
                return;
            };
            self.reserve.push(file);
        }
    }
}

/// A listening socket got another descriptor: accepting there finds the same offers.
pub(crate) fn copy(listener: c_int, copy: c_int) {
    let mut boxes = boxes();
    let Some(found) = boxes.iter().find(|known| known.listener == listener) else {
        return;
    };
    match own_files::keep(&found.socket) {
        Some(socket) => {
            let (turn, user) = (found.turn, found.user);
            boxes.push(Mailbox {
                listener: copy,
                socket,
                user,
                reserve: Vec::new(),
                turn,
            });
            table::set_listening(copy);
        }
        None => drop(boxes),
    }
}

/// The listening socket is closed in this process.
pub(crate) fn close(listener: c_int) {
    boxes().retain(|known| known.listener != listener);
}

/// The listening socket is somewhere else, too: new clients stay with TCP. Offers that are there
/// are still found.
pub(crate) fn retire(listener: c_int) {
    let boxes = boxes();
    if let Some(found) = boxes.iter().find(|known| known.listener == listener) {
        // SAFETY: a plain call on a descriptor of ours.
        unsafe { real::shutdown(found.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// Listening sockets that stay open in the next program of this process take no more offers.
pub(crate) fn retire_inherited() {
    // A child of vfork may find the list locked by a thread that does not run meanwhile.
    let Ok(boxes) = MAILBOXES.try_lock() else {
        return;
    };
    for known in boxes.iter() {
        // SAFETY: plain calls on descriptors.
        unsafe {
            let flags = real::fcntl(known.listener, libc::F_GETFD, 0);
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                real::shutdown(known.socket.as_raw_fd(), libc::SHUT_RDWR);
            }
        }
    }
}

/// Tells whether a descriptor is a listening socket with a mailbox.
pub(crate) fn is_listener(listener: c_int) -> bool {
    boxes().iter().any(|known| known.listener == listener)
}

fn peer_user(socket: c_int) -> Option<u32> {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut found: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::ucred>() as socklen_t;
    let place = (&raw mut found).cast();
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: places to write to.
    let outcome = unsafe { real::getsockopt(socket, level, option, place, &raw mut length) };
    (outcome == 0).then_some(found.uid)
}

fn connect_to(name: &str, user: u32) -> Option<OwnedFd> {
    let (place, length) = address_of(name)?;
    let socket = new_socket()?;
    let fd = socket.as_raw_fd();
    // SAFETY: an address of this length.
    let outcome = unsafe { real::connect(fd, (&raw const place).cast(), length) };
    (outcome == 0 && peer_user(fd) == Some(user)).then_some(socket)
}

/// A way to the mailbox of whoever listens at an address of this host.
pub(crate) fn find(address: SocketAddr) -> Option<OwnedFd> {
    names_for(address)
        .iter()
        .find_map(|name| connect_to(name, user()))
}

/// Room for control data with two descriptors.
#[repr(C, align(8))]
struct Control([u8; 64]);

fn with_message<R>(
    record: &mut [u8; RECORD_BYTES],
    control: &mut Control,
    action: impl FnOnce(&mut libc::msghdr) -> R,
) -> R {
    let mut part = libc::iovec {
        iov_base: record.as_mut_ptr().cast(),
        iov_len: RECORD_BYTES,
    };
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    action(&mut message)
}

/// Leaves an offer in a mailbox: the connection's memory and the server's socket go with it.
pub(crate) fn leave(
    mailbox: &OwnedFd,
    record: &ConnectionRecord,
    memory: &impl AsRawFd,
    socket: &impl AsRawFd,
) -> bool {
    let mut bytes = record.encode();
    let mut control = Control([0; 64]);
    let files = [memory.as_raw_fd(), socket.as_raw_fd()];
    with_message(&mut bytes, &mut control, |message| {
        let length = size_of_val(&files) as u32;
        // SAFETY: the control data has room for one header and two numbers, and is aligned.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(length) as _;
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(length) as _;
            std::ptr::copy_nonoverlapping(
                files.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                length as usize,
            );
            let sent = real::sendmsg(mailbox.as_raw_fd(), message, libc::MSG_NOSIGNAL);
            sent == RECORD_BYTES as isize
        }
    })
}

/// An offer, taken out of a mailbox.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) record: ConnectionRecord,
    pub(crate) memory: OwnedFd,
    pub(crate) socket: OwnedFd,
}

impl Offer {
    fn read(client: &OwnedFd) -> Option<Self> {
        let mut bytes = [0; RECORD_BYTES];
        let mut control = Control([0; 64]);
        let files = with_message(&mut bytes, &mut control, |message| {
            let fd = client.as_raw_fd();
            // SAFETY: the message has places to write to; its headers are walked as they came.
            unsafe {
                if real::recvmsg(fd, message, libc::MSG_CMSG_CLOEXEC) != RECORD_BYTES as isize {
                    return Vec::new();
                }
                let header = libc::CMSG_FIRSTHDR(message);
                if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
                    return Vec::new();
                }
                let length = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let numbers = libc::CMSG_DATA(header).cast::<c_int>();
                (0..length / size_of::<c_int>())
                    .map(|at| OwnedFd::from_raw_fd(numbers.add(at).read_unaligned()))
                    .collect()
            }
        });
        let [memory, socket] = <[OwnedFd; 2]>::try_from(files).ok()?;
        Some(Self {
            record: ConnectionRecord::decode(&bytes)?,
            memory,
            socket,
        })
    }

    fn is_for(&self, client: SocketAddr, server: SocketAddr) -> bool {
        let from = self.record.client;
        from.port() == client.port()
            && (from.ip().is_unspecified() || from.ip() == client.ip())
            && self.record.server == server
    }

    /// Tells whether the client may still want it.
    fn is_live(&self) -> bool {
        let mut state = [0_u8; 4];
        let fd = self.memory.as_raw_fd();
        let place = state.as_mut_ptr().cast();
        // SAFETY: a place to write to.
        let read = unsafe { real::pread(fd, place, state.len(), STATE as libc::off_t) };
        read == 4 && u32::from_ne_bytes(state) == 0
    }
}

/// Takes the next client's offer out of a mailbox. `Err`: there is no client.
fn next(mailbox: c_int, owner: u32) -> Result<Option<Offer>, ()> {
    // SAFETY: a plain call on a descriptor; the new one belongs to nobody else.
    let client = unsafe {
        let none = std::ptr::null_mut();
        let fd = real::accept4(mailbox, none, none.cast(), libc::SOCK_CLOEXEC);
        if fd < 0 {
            return Err(());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut wanted = libc::pollfd {
        fd: client.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one description.
    let is_there = unsafe { libc::poll(&raw mut wanted, 1, OFFER_MS) } == 1;
    // Who leaves another's offer again may be a process that has become another user.
    let is_ours = peer_user(client.as_raw_fd()).is_some_and(|peer| peer == owner || peer == user());
    Ok((is_there && is_ours)
        .then(|| Offer::read(&client))
        .flatten())
}

/// Takes the offer of a connection that was accepted. `None`: its client made none.
pub(crate) fn take(listener: c_int, client: SocketAddr, server: SocketAddr) -> Option<Offer> {
    let mut boxes = boxes();
    let mailbox = boxes.iter_mut().find(|known| known.listener == listener)?;
    let fd = mailbox.socket.as_raw_fd();
    mailbox.reserve.clear();
    // SAFETY: the page is mapped as long as the mailbox is in the list, which is locked.
    let _turn = Turn::take(unsafe { &*(mailbox.turn as *const AtomicU32) });
    let mut others = Vec::new();
    let mut found = None;
    while let Ok(offer) = next(fd, mailbox.user) {
        match offer {
            Some(offer) if offer.is_for(client, server) => {
                found = Some(offer);
                break;
            }
            Some(offer) if offer.is_live() => others.push(offer),
            _ => {}
        }
    }
    if !others.is_empty() {
        let name = name_of(mailbox.user, listener, addresses::own(listener)?);
        for offer in others {
            if let Some(way) = connect_to(&name, mailbox.user) {
                leave(&way, &offer.record, &offer.memory, &offer.socket);
            }
        }
    }
    found
}

/// An offer was dealt with: descriptors are laid aside for the next one.
pub(crate) fn settle(listener: c_int) {
    let mut boxes = boxes();
    if let Some(mailbox) = boxes.iter_mut().find(|known| known.listener == listener) {
        mailbox.fill_reserve();
    }
}
