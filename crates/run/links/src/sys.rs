//! The system calls of this crate that safe wrappers do not offer: signals as descriptors,
//! descriptors by number, death by lifeline, memory that a fork wipes. Starting a rank has a file
//! of its own, beside the agent.
//!
//! Only this crate calls it. Every function is a thin layer whose contract is in its comment.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use garonne_job::limits::MESSAGE_BYTES_MAX;

/// A wait for so long, as the kernel wants it said.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// A message as received, with its descriptors.
#[derive(Debug, Default)]
pub struct ReceivedMessage {
    /// Bytes; empty at the end of the stream.
    pub bytes: Vec<u8>,
    /// Descriptors that came with it, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// Process and user of the sender as this process's namespaces name them (0: not visible), if
    /// asked for.
    pub sender: Option<(i32, u32)>,
}

/// Sends one message with descriptors. Never raises SIGPIPE.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one message. Descriptors for which there is no room in this process are dropped by the
/// kernel.
pub fn recv(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<ReceivedMessage> {
    // Room for what is there only: the longest message takes eight pages, which a rank that starts
    // would touch for a few bytes.
    let there = loop {
        let flags = flags | RecvFlags::PEEK | RecvFlags::TRUNC;
        match rustix::net::recv(socket, &mut [0u8; 0], flags) {
            Ok((_, there)) => break there,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => continue,
            Err(error) => return Err(error.into()),
        }
    };
    let mut bytes = vec![0; there.clamp(1, MESSAGE_BYTES_MAX)];
    let mut space =
        [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(
            socket,
            &mut [io::IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        ) {
            Ok(got) => break got,
            // Told once when the other side closed with messages of ours unread; what it sent
            // before is still to be had.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => continue,
            Err(error) => return Err(error.into()),
        }
    };
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "message longer than any of this protocol",
        ));
    }
    bytes.truncate(got.bytes);
    let mut received = ReceivedMessage {
        bytes,
        ..ReceivedMessage::default()
    };
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(fds) => received.fds.extend(fds),
            RecvAncillaryMessage::ScmCredentials(who) => {
                received.sender = Some((
                    rustix::process::Pid::as_raw(Some(who.pid)),
                    who.uid.as_raw(),
                ));
            }
            _ => {}
        }
    }
    Ok(received)
}

/// Takes over the descriptor `number` if it is open and refers to the socket with inode `inode`:
/// the test that tells the descriptor that our launcher left from another that a program opened
/// under the same number.
pub fn adopt_socket(number: RawFd, inode: u64) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a valid place to write to; a closed number yields an error.
    if unsafe { libc::fstat(number, &mut stat) } != 0
        || stat.st_mode & libc::S_IFMT != libc::S_IFSOCK
        || stat.st_ino != inode
    {
        return None;
    }
    // SAFETY: the number is open and, by its inode, ours; the caller takes it once.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(fd)
}

/// `fcntl` command that chooses the signal of asynchronous input; the same number on all
/// architectures of Linux.
const F_SETSIG: i32 = 10;

/// Has the kernel kill this process when the other end of `lifeline` closes, whatever the process
/// does then. `BrokenPipe` if it has closed already.
pub fn die_with(lifeline: BorrowedFd<'_>) -> io::Result<()> {
    let fd = lifeline.as_raw_fd();
    // SAFETY: fcntl on an open descriptor with integer arguments.
    let failed = unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGKILL) != 0
            || libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) != 0
            || libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    // A signal is sent for what happens from now on: an end before it is looked for.
    let mut ends = [PollFd::new(&lifeline, PollFlags::empty())];
    while let Err(error) = rustix::event::poll(&mut ends, Some(&timespec(Duration::ZERO))) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    match ends[0].revents().is_empty() {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// A word of memory that reads 1 in the process that made it and 0 in a child that it forks.
#[derive(Debug)]
pub struct ForkGuard {
    word: *mut u8,
}

// SAFETY: the page is only read after construction.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    const BYTES: usize = 4096;

    /// Sets one up.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a fresh private mapping; advice and store stay within it. With pages larger than
        // `BYTES` the kernel rounds all lengths up alike.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            );
            if page == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            if libc::madvise(page, Self::BYTES, libc::MADV_WIPEONFORK) != 0 {
                let error = io::Error::last_os_error();
                libc::munmap(page, Self::BYTES);
                return Err(error);
            }
            AtomicU32::from_ptr(page.cast()).store(1, Relaxed);
            Ok(Self { word: page.cast() })
        }
    }

    /// Returns whether this is the process that made the guard.
    pub fn is_owner(&self) -> bool {
        // SAFETY: the page stays mapped until the guard is dropped.
        unsafe { AtomicU32::from_ptr(self.word.cast()).load(Relaxed) == 1 }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new` and is not used after.
        unsafe { libc::munmap(self.word.cast(), Self::BYTES) };
    }
}

/// Signals that the launcher and the agent receive through a descriptor.
pub const WATCHED: [i32; 10] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGCHLD,
];

/// All of them, but for a SIGHUP that `nohup` has made ignored: the job goes on when its terminal
/// is closed.
fn watched_set() -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset before use, and `hangup` is filled in by the
    // kernel.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in WATCHED {
            libc::sigaddset(&mut set, signal);
        }
        let mut hangup: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut hangup);
        if asked == 0 && hangup.sa_sigaction == libc::SIG_IGN {
            libc::sigdelset(&mut set, libc::SIGHUP);
        }
        set
    }
}

/// A signal taken from the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// Number of the signal.
    pub number: i32,
    /// True if the kernel sent it (a key on the terminal: then the whole process group has it).
    pub from_kernel: bool,
}

/// The descriptor of the watched signals, and the signal mask as it was before.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
    /// The signal mask as it was before.
    pub before: libc::sigset_t,
}

impl std::os::fd::AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SignalFd {
    /// Makes the descriptor anew in a forked child: a descriptor of its own, and the mask that its
    /// parent started with.
    pub fn renew(self) -> io::Result<Self> {
        let fresh = Self::watch()?;
        Ok(Self {
            fd: fresh.fd,
            before: self.before,
        })
    }

    /// Blocks the watched signals in this thread and opens the descriptor. Blocks SIGXFSZ, too: a
    /// limit on the size of files is an error of the call that meets it. A SIGCHLD that the
    /// starting program had ignored is not, as otherwise nobody is told of ends.
    pub fn watch() -> io::Result<Self> {
        let set = watched_set();
        // SAFETY: all sets are valid; the descriptor is fresh; the default action of SIGCHLD runs
        // no code.
        unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut before = std::mem::zeroed();
            let mut blocked = set;
            libc::sigaddset(&mut blocked, libc::SIGXFSZ);
            if libc::sigprocmask(libc::SIG_BLOCK, &blocked, &mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self {
                fd: OwnedFd::from_raw_fd(fd),
                before,
            })
        }
    }

    /// Ends the watch: signals do again what they did before it.
    pub fn release(self) {
        // SAFETY: the set was filled in by the kernel.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }

    /// The next pending signal.
    pub fn next(&self) -> Option<ReceivedSignal> {
        // SAFETY: all zeroes is a valid value of this plain C structure, and the read is bounded by
        // its size.
        unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = std::mem::size_of_val(&info);
            let got = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size);
            let signal = ReceivedSignal {
                number: info.ssi_signo as i32,
                from_kernel: info.ssi_code == libc::SI_KERNEL,
            };
            (got == size as isize).then_some(signal)
        }
    }
}

/// Stops this process as its shell expects of a SIGTSTP (and not at all where nobody could continue
/// it, as the kernel decides for orphaned process groups); returns when it is continued. The signal
/// must be blocked.
pub fn stop_self() {
    // SAFETY: valid sets; the signal's default action stops the process and touches no memory.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTSTP);
        libc::raise(libc::SIGTSTP);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Sends a signal; errors (the process is gone) are of no interest to any caller.
pub fn kill(pid: i32, signal: i32) {
    if pid > 1 {
        // SAFETY: sending a signal has no memory effects here.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The kernel's `struct pidfd_info` in its first version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// The wait status of a process that is no child of this one, once it is reaped. `None`: it is not
/// reaped yet, or the kernel (before Linux 6.15) does not tell.
pub fn wait_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    const EXIT: u64 = 1 << 3;
    let get_info = rustix::ioctl::opcode::read_write::<PidfdInfo>(0xff, 11);
    let mut info = PidfdInfo {
        mask: EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the request carries the size of the struct, which is all that the kernel reads and
    // writes.
    let done = unsafe { libc::ioctl(pidfd.as_raw_fd(), get_info as _, &raw mut info) };
    (done == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// Side of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkSide {
    /// The new process.
    Child,
    /// The old process, with the child's id.
    Parent(i32),
}

/// Forks. The process must have one thread (the launcher has): then the child may go on as an
/// ordinary program.
pub fn fork() -> io::Result<ForkSide> {
    // SAFETY: with a single thread no lock is held by another, so the child is as good as the
    // parent.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        pid if pid > 0 => Ok(ForkSide::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the process at once, without running what the parent registered to run at exit.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Lets `pid` and its descendants read and write this process's memory where the Yama module would
/// allow that only to ancestors. Without the module the call fails, and nothing needs allowing.
pub fn allow_memory_access_below(pid: i32) {
    // SAFETY: a plain system call with integer arguments.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, pid as libc::c_ulong, 0, 0, 0) };
}

/// Copies the byte at `address` out of another process, to learn whether the system allows it.
pub fn read_byte_of(pid: i32, address: usize) -> io::Result<()> {
    let mut byte = 0u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(address),
        iov_len: 1,
    };
    // SAFETY: writes one byte into `byte`; the remote address is only interpreted by the kernel, in
    // the other process.
    match unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) } {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes standard input over under another number, puts nothing into its place and into that of
/// standard output, and closes all else but standard error: what a process that starts this one by
/// accident hands on would otherwise stay open as long as this one lives.
pub fn detach_input() -> io::Result<OwnedFd> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    // SAFETY: closes descriptors above the one just made; the caller has opened none, and this
    // process has one thread.
    unsafe { libc::syscall(libc::SYS_close_range, input.as_raw_fd() + 1, u32::MAX, 0) };
    for number in 3..input.as_raw_fd() {
        // SAFETY: likewise.
        unsafe { libc::close(number) };
    }
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, 0.into())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(input)
}

/// Nanoseconds of CLOCK_MONOTONIC. Through the C library, which finds its way when there is no vDSO
/// (under valgrind, whose clients rustix's own lookup brings down).
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure it is given; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_guard_knows_its_process() {
        let guard = ForkGuard::new().unwrap();
        assert!(guard.is_owner());
        // SAFETY: the child only reads memory and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            exit_now(guard.is_owner().into());
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(
            libc::WEXITSTATUS(status),
            0,
            "the child took itself for the owner"
        );
    }

    #[test]
    fn a_lifeline_that_has_ended_cannot_be_armed() {
        use std::os::fd::AsFd;
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(writer);
        let armed = die_with(reader.as_fd());
        assert_eq!(armed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn the_last_message_of_a_side_that_left_ours_unread_is_not_lost() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        use std::os::fd::AsFd;
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        send(ours.as_fd(), b"unread", &[], SendFlags::empty()).unwrap();
        send(theirs.as_fd(), b"last words", &[], SendFlags::empty()).unwrap();
        drop(theirs);
        assert_eq!(
            recv(ours.as_fd(), RecvFlags::empty()).unwrap().bytes,
            b"last words"
        );
        assert_eq!(recv(ours.as_fd(), RecvFlags::empty()).unwrap().bytes, b"");
    }

    #[test]
    fn a_descriptor_with_another_inode_is_not_adopted() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(adopt_socket(a.as_raw_fd(), 1).is_none());
        assert!(adopt_socket(-1, 1).is_none());
        assert!(adopt_socket(99_999, 1).is_none());
    }
}
