//! Entry points that make sockets, connect them, and ask for names and options.

use crate::connection::{Connection, Memory};
use crate::mailbox::Offer;
use crate::transfer::{errno, fail};
use crate::{addresses, mailbox, own_files, real, report, spare, table};
use garonne_socket_records::{ConnectionRecord, Reason};
use libc::{c_int, c_void, sockaddr, socklen_t};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Options that only TCP carries out, by level: a socket that gets one stays TCP.
const ONLY_TCP: [(c_int, c_int); 5] = [
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::IPPROTO_TCP, libc::TCP_ULP),
    (libc::IPPROTO_TCP, libc::TCP_REPAIR),
];

/// Least buffer of a socket: six bell bytes fill it, and two make it unwritable.
const BUFFER: c_int = 1;

/// State of a connection that is made, as the kernel numbers them.
const ESTABLISHED: u8 = 1;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_socket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    let socket = unsafe { real::socket(domain, kind, protocol) };
    let kind = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    if socket >= 0
        && (domain == libc::AF_INET || domain == libc::AF_INET6)
        && kind == libc::SOCK_STREAM
        && (protocol == 0 || protocol == libc::IPPROTO_TCP)
    {
        table::set_fresh(socket);
    }
    socket
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_listen(socket: c_int, backlog: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let outcome = unsafe { real::listen(socket, backlog) };
    if outcome == 0 {
        let before = errno();
        open_mailbox(socket);
        fail(before);
    }
    outcome
}

fn open_mailbox(socket: c_int) {
    if !addresses::is_tcp(socket) {
        return;
    }
    let Some(address) = addresses::own(socket) else {
        return;
    };
    let has = |level, name| addresses::option(socket, level, name).unwrap_or(0) != 0;
    let reason = if has(libc::SOL_SOCKET, libc::SO_REUSEPORT) {
        Reason::SharedPort
    } else if has(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) {
        Reason::DeferredAccept
    } else if !table::is_fresh(socket) {
        Reason::NotFresh
    } else if !mailbox::open(socket, address) {
        Reason::Scarce
    } else {
        return;
    };
    report::note(socket, address, reason);
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_accept(
    socket: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own arguments.
    let accepted = unsafe { real::accept(socket, from, length) };
    after_accept(socket, accepted)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_accept4(
    socket: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    let accepted = unsafe { real::accept4(socket, from, length, flags) };
    after_accept(socket, accepted)
}

fn after_accept(listener: c_int, accepted: c_int) -> c_int {
    if accepted >= 0 && mailbox::is_listener(listener) {
        let before = errno();
        if let (Some(client), Some(server)) = (addresses::peer(accepted), addresses::own(accepted))
        {
            let outcome = match mailbox::take(listener, client, server) {
                Some(offer) => become_server(accepted, offer),
                None => Err(Reason::NoOffer),
            };
            mailbox::settle(listener);
            if let Err(reason) = outcome {
                report::note(accepted, client, reason);
            }
        }
        fail(before);
    }
    accepted
}

/// Puts the server's end in the place of the accepted socket.
fn become_server(accepted: c_int, offer: Offer) -> Result<(), Reason> {
    // A client that made an offer waits for nobody else: the descriptors that go with it are there
    // (the mailbox's reserve), and what needs more is done without.
    let Some(memory) = Memory::open(&offer.memory) else {
        // SAFETY: a plain call; both sides see the end of the connection.
        unsafe { real::shutdown(accepted, libc::SHUT_RDWR) };
        return Err(Reason::Scarce);
    };
    let file = own_files::move_up(offer.memory);
    let made = Replacement {
        memory,
        end: 1,
        tcp: own_files::keep(&Number(accepted)),
        file,
    };
    if !made.memory.take() {
        made.drop_memory();
        return Err(Reason::Slow);
    }
    match made.carry_out(accepted, &offer.socket) {
        true => Ok(()),
        false => Err(Reason::Scarce),
    }
}

/// What is needed to put an end in the place of a TCP socket.
struct Replacement {
    memory: Memory,
    end: usize,
    tcp: Option<own_files::OwnFile>,
    file: Option<own_files::OwnFile>,
}

/// A descriptor of the program's.
struct Number(c_int);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> c_int {
        self.0
    }
}

impl Replacement {
    /// What a client needs: with all descriptors, since it may as well stay with TCP.
    fn prepare(socket: c_int, memory: Memory, file: own_files::OwnFile) -> Option<Self> {
        if usize::try_from(socket).ok()? >= crate::limits::DESCRIPTORS {
            return None;
        }
        let tcp = own_files::keep(&Number(socket))?;
        Some(Self {
            memory,
            end: 0,
            tcp: Some(tcp),
            file: Some(file),
        })
    }

    fn drop_memory(self) {
        self.memory.unmap();
    }

    /// Puts one socket of the pair in the place of the TCP socket, with its flags and time limits.
    fn carry_out(self, socket: c_int, pair: &OwnedFd) -> bool {
        let fd = pair.as_raw_fd();
        // SAFETY: plain calls on descriptors; `value` is a place for an option.
        let is_done = unsafe {
            let flags = real::fcntl(socket, libc::F_GETFL, 0);
            if flags & libc::O_NONBLOCK != 0 {
                real::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK as libc::c_ulong);
            }
            for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
                let mut value = [0_i64; 2];
                let mut length = size_of_val(&value) as socklen_t;
                let place = value.as_mut_ptr().cast::<c_void>();
                let level = libc::SOL_SOCKET;
                if real::getsockopt(socket, level, option, place, &raw mut length) == 0
                    && value != [0; 2]
                {
                    real::setsockopt(fd, level, option, place, length);
                }
            }
            // The next program of this process has no library yet that knows the connection: it
            // sees a closed descriptor, never bell bytes.
            real::dup3(fd, socket, libc::O_CLOEXEC) >= 0
        };
        if !is_done {
            self.drop_memory();
            return false;
        }
        let number =
            |file: Option<own_files::OwnFile>| file.map_or(spare::NONE, |file| file.into_number());
        let linger = addresses::linger(spare::answers_for(
            self.tcp.as_ref().map_or(spare::NONE, AsRawFd::as_raw_fd),
        ));
        let (tcp, file) = (number(self.tcp), number(self.file));
        let connection = Connection::new(self.memory, self.end, tcp, file);
        connection
            .resets
            .store(linger == Some((1, 0)), Ordering::Relaxed);
        if tcp != spare::NONE {
            connection.adopt_buffers(tcp);
        }
        table::insert(socket, connection)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_connect(
    socket: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    if let Some(connection) = table::connection(socket) {
        // SAFETY: the program's own arguments.
        return unsafe { real::connect(connection.tcp(), to, length) };
    }
    // SAFETY: the program's own arguments.
    let connect = || unsafe { real::connect(socket, to, length) };
    // SAFETY: as above.
    let Some(address) = (unsafe { addresses::read(to, length) }) else {
        return connect();
    };
    if !table::is_fresh(socket) {
        let outcome = connect();
        let before = errno();
        if addresses::is_tcp(socket) {
            report::note(socket, address, Reason::NotFresh);
        }
        fail(before);
        return outcome;
    }
    match make_offer(socket, named(address)) {
        Err(reason) => {
            let outcome = connect();
            let before = errno();
            report::note(socket, address, reason);
            fail(before);
            outcome
        }
        Ok(offered) => {
            let outcome = connect();
            let before = errno();
            if let Err(reason) = finish(socket, outcome, before, offered) {
                report::note(socket, address, reason);
            }
            fail(before);
            outcome
        }
    }
}

/// Connecting to no address in particular means this host.
fn named(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (ip, address.port()).into()
}

/// An offer that waits in the server's mailbox.
struct Offered {
    made: Replacement,
    pair: OwnedFd,
}

fn make_offer(socket: c_int, server: SocketAddr) -> Result<Offered, Reason> {
    if !addresses::is_local(server.ip()) {
        return Err(Reason::OtherHost);
    }
    let mailbox = mailbox::find(server).ok_or(Reason::NoLibraryListens)?;
    // SAFETY: a plain call on a descriptor.
    if unsafe { real::fcntl(socket, libc::F_GETFL, 0) } & libc::O_ASYNC != 0 {
        return Err(Reason::NotFresh);
    }
    let mut client = addresses::own(socket).ok_or(Reason::Scarce)?;
    if client.port() == 0 {
        let family = addresses::option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN);
        if !addresses::bind_any(socket, family == Some(libc::AF_INET6)) {
            return Err(Reason::Scarce);
        }
        client = addresses::own(socket).ok_or(Reason::Scarce)?;
    }
    let (pair, other) = pair().ok_or(Reason::Scarce)?;
    let (file, memory) = Memory::create().ok_or(Reason::Scarce)?;
    let record = ConnectionRecord {
        client,
        server,
        client_process: table::process(),
        server_process: 0,
        inodes: [
            report::inode(pair.as_raw_fd()),
            report::inode(other.as_raw_fd()),
        ],
    };
    memory.write_record(&record);
    let made = own_files::keep(&file)
        .and_then(|kept| Replacement::prepare(socket, memory, kept))
        .ok_or_else(|| {
            memory.unmap();
            Reason::Scarce
        })?;
    if !mailbox::leave(&mailbox, &record, &file, &other) {
        made.drop_memory();
        return Err(Reason::Scarce);
    }
    Ok(Offered { made, pair })
}

fn pair() -> Option<(OwnedFd, OwnedFd)> {
    let mut numbers = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: room for two numbers; the descriptors belong to nobody else.
    let pair = unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, numbers.as_mut_ptr()) != 0 {
            return None;
        }
        (
            OwnedFd::from_raw_fd(numbers[0]),
            OwnedFd::from_raw_fd(numbers[1]),
        )
    };
    for fd in numbers {
        addresses::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER);
    }
    Some(pair)
}

fn is_established(socket: c_int) -> bool {
    let mut state = 0_u8;
    let mut length = 1;
    let place = (&raw mut state).cast();
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: a place of one byte: the first field is the state.
    let outcome = unsafe { real::getsockopt(socket, level, option, place, &raw mut length) };
    outcome == 0 && state == ESTABLISHED
}

/// Takes the client's end once the connection is made, else goes back to TCP.
fn finish(socket: c_int, outcome: c_int, error: c_int, offered: Offered) -> Result<(), Reason> {
    let is_made = outcome == 0
        || ((error == libc::EINPROGRESS || error == libc::EINTR) && is_established(socket));
    if !is_made && offered.made.memory.withdraw() {
        offered.made.drop_memory();
        return Err(Reason::Slow);
    }
    match offered.made.carry_out(socket, &offered.pair) {
        true => Ok(()),
        false => Err(Reason::Scarce),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_shutdown(socket: c_int, how: c_int) -> c_int {
    if let Some(connection) = table::connection(socket) {
        let marks = connection.marks();
        if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
            marks.is_receive_shut.store(1, Ordering::Relaxed);
        }
        if how == libc::SHUT_RD {
            // The kernel's call would end the other side's sending.
            return 0;
        }
        if how == libc::SHUT_WR || how == libc::SHUT_RDWR {
            marks.is_send_shut.store(1, Ordering::Relaxed);
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real::shutdown(socket, how) }
}

/// The descriptor that answers for names and options.
fn named_by(socket: c_int) -> (Option<table::InUse>, c_int) {
    match table::connection(socket) {
        Some(connection) => {
            let tcp = spare::answers_for(connection.tcp());
            (Some(connection), tcp)
        }
        None => (None, socket),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Own,
    Peer,
}

/// An address out of the record of a connection that has no TCP socket beside.
fn recorded(socket: c_int, side: Side) -> Option<SocketAddr> {
    let connection = table::connection(socket)?;
    if connection.tcp() != spare::NONE {
        return None;
    }
    let record = connection.memory().record()?;
    let is_client = (connection.end() == 0) == (side == Side::Own);
    Some(if is_client {
        record.client
    } else {
        record.server
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_getsockname(
    socket: c_int,
    name: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if let Some(address) = recorded(socket, Side::Own) {
        // SAFETY: the program's own places.
        unsafe { spare::write(address, name, length) };
        return 0;
    }
    let (_in_use, socket) = named_by(socket);
    // SAFETY: the program's own arguments.
    unsafe { real::getsockname(socket, name, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_getpeername(
    socket: c_int,
    name: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if let Some(address) = recorded(socket, Side::Peer) {
        // SAFETY: the program's own places.
        unsafe { spare::write(address, name, length) };
        return 0;
    }
    let (_in_use, socket) = named_by(socket);
    // SAFETY: the program's own arguments.
    unsafe { real::getpeername(socket, name, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_getsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let (_in_use, tcp) = named_by(socket);
    let is_of_descriptor = level == libc::SOL_SOCKET
        && [libc::SO_ERROR, libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].contains(&option);
    let asked = if is_of_descriptor { socket } else { tcp };
    // SAFETY: the program's own arguments.
    unsafe { real::getsockopt(asked, level, option, value, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_setsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let Some(connection) = table::connection(socket) else {
        if ONLY_TCP.contains(&(level, option)) {
            table::unset_fresh(socket);
        }
        let defers = (level, option) == (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
        let shares = (level, option) == (libc::SOL_SOCKET, libc::SO_REUSEPORT);
        if defers || shares {
            mailbox::retire(socket);
        }
        // SAFETY: the program's own arguments.
        return unsafe { real::setsockopt(socket, level, option, value, length) };
    };
    if ONLY_TCP.contains(&(level, option)) && option != libc::SO_RCVLOWAT {
        return fail(libc::EOPNOTSUPP) as c_int;
    }
    if level == libc::SOL_SOCKET && [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].contains(&option) {
        // SAFETY: the program's own arguments.
        return unsafe { real::setsockopt(socket, level, option, value, length) };
    }
    // SAFETY: the program's own arguments.
    let outcome = unsafe {
        real::setsockopt(
            spare::answers_for(connection.tcp()),
            level,
            option,
            value,
            length,
        )
    };
    if outcome == 0
        && level == libc::SOL_SOCKET
        && [libc::SO_SNDBUF, libc::SO_RCVBUF].contains(&option)
        && connection.tcp() != spare::NONE
    {
        connection.adopt_buffers(connection.tcp());
    }
    if outcome == 0 && (level, option) == (libc::SOL_SOCKET, libc::SO_LINGER) {
        let linger = addresses::linger(spare::answers_for(connection.tcp()));
        connection
            .resets
            .store(linger == Some((1, 0)), Ordering::Relaxed);
    }
    outcome
}

/// Runs when the library is loaded.
extern "C" fn on_load() {
    table::start();
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
