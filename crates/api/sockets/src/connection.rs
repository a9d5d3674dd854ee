//! A virtual socket's state in this process, and the connection's memory file.

use crate::{addresses, own_files, table};
use garonne_socket_records::layout::{BYTES, CAPACITY, MARKS, RINGS, STATE, WORDS};
use garonne_socket_records::{ConnectionRecord, RECORD_BYTES, SERVER_PROCESS};
use garonne_sync::stream_words::StreamWords;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The server has not looked yet.
const OFFERED: u32 = 0;
/// The server has its end.
const TAKEN: u32 = 1;
/// The client went back to TCP.
const WITHDRAWN: u32 = 2;

/// Seals of a connection's file: no mapping of it can fault.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Which buffers a program has set the lengths of: 1, those sent; 2, those received. Newer than
/// the C library's headers.
const SO_BUF_LOCK: libc::c_int = 72;

/// Locks and marks of one end, in shared memory, since processes that fork share an end.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct EndMarks {
    /// Thread that sends.
    pub(crate) sender: AtomicU32,
    /// Sending is over: `shutdown`.
    pub(crate) is_send_shut: AtomicU32,
    /// The other side is gone, and a write was lost by that.
    pub(crate) is_broken: AtomicU32,
    /// The end was closed so that the other side gets a reset.
    pub(crate) resets: AtomicU32,
    /// Thread that receives; on lines of its own.
    pub(crate) receiver: Padded,
    /// Receiving is over: `shutdown`.
    pub(crate) is_receive_shut: AtomicU32,
    /// Bytes that the program lets this end buffer, sent and received; 0: it said nothing.
    pub(crate) buffers: [AtomicU32; 2],
    /// The kernel told of a reset while something else was looked for.
    pub(crate) was_reset: AtomicU32,
}

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Padded(pub(crate) AtomicU32);

const _: () = assert!(MARKS + 2 * size_of::<EndMarks>() <= RINGS);
const _: () = assert!(size_of::<StreamWords>() <= WORDS[1] - WORDS[0]);

/// A connection's memory, mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory(usize);

impl Memory {
    /// Makes a file for a connection and maps it.
    pub(crate) fn create() -> Option<(OwnedFd, Self)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string that lives for ever; the call only makes a descriptor.
        let fd = unsafe { libc::memfd_create(c"garonne-socket".as_ptr(), flags) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain calls with integers on a descriptor of ours.
        let is_made = unsafe {
            libc::ftruncate(fd, BYTES as libc::off_t) == 0
                && libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) == 0
        };
        let memory = if is_made { Self::map(fd) } else { None };
        memory.map(|memory| (file, memory))
    }

    /// Maps a file that another process made. `None`: it is none, or there is no room.
    pub(crate) fn open(file: &impl AsRawFd) -> Option<Self> {
        let fd = file.as_raw_fd();
        // SAFETY: all zeroes is a valid value of this plain C structure.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: plain calls on a descriptor of ours; `stat` is a place to write to.
        let (seals, found) = unsafe {
            (
                libc::fcntl(fd, libc::F_GET_SEALS),
                libc::fstat(fd, &raw mut stat),
            )
        };
        if seals < 0 || seals & SEALS != SEALS || found != 0 || stat.st_size != BYTES as i64 {
            return None;
        }
        Self::map(fd)
    }

    fn map(fd: i32) -> Option<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd,
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Self(base as usize))
    }

    /// Unmaps the memory, which nobody uses any more.
    pub(crate) fn unmap(self) {
        // SAFETY: the range was mapped by `map`; the caller says that nobody uses it.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, BYTES) };
    }

    fn at<T>(&self, offset: usize) -> &'static T {
        // SAFETY: offsets are of the layout, within the mapping and aligned. The types are made of
        // atomics, which other writers may store to. Users hold the connection while they use it.
        unsafe { &*((self.0 + offset) as *const T) }
    }

    /// The words of the direction in which an end sends.
    pub(crate) fn words(&self, end: usize) -> &'static StreamWords {
        self.at(WORDS[end])
    }

    /// Locks and marks of an end.
    pub(crate) fn marks(&self, end: usize) -> &'static EndMarks {
        self.at(MARKS + end * size_of::<EndMarks>())
    }

    /// Address of the ring into which an end sends.
    pub(crate) fn ring(&self, end: usize) -> *mut u8 {
        (self.0 + RINGS + end * CAPACITY) as *mut u8
    }

    /// Writes what the file says of the connection.
    pub(crate) fn write_record(&self, record: &ConnectionRecord) {
        let bytes = record.encode();
        // SAFETY: the record lies at the beginning of the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0 as *mut u8, RECORD_BYTES) };
    }

    /// What the file says of the connection.
    pub(crate) fn record(&self) -> Option<ConnectionRecord> {
        let mut bytes = [0; RECORD_BYTES];
        let place = bytes.as_mut_ptr();
        // SAFETY: the record lies at the beginning of the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.0 as *const u8, place, RECORD_BYTES) };
        ConnectionRecord::decode(&bytes)
    }

    fn state(&self) -> &'static AtomicU32 {
        self.at(STATE)
    }

    /// The server takes its end. `false`: the client went back to TCP.
    pub(crate) fn take(&self) -> bool {
        let process: &AtomicU32 = self.at(SERVER_PROCESS);
        process.store(table::process(), Ordering::Relaxed);
        self.state()
            .compare_exchange(OFFERED, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// The client goes back to TCP. `false`: the server has taken its end.
    pub(crate) fn withdraw(&self) -> bool {
        self.state()
            .compare_exchange(OFFERED, WITHDRAWN, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// What a thread of this process remembers of spins at one side of a connection.
#[derive(Debug, Default)]
pub(crate) struct SpinHistory {
    /// Length of the next spin.
    pub(crate) nanoseconds: AtomicU32,
    /// Sleeps since the last spin.
    pub(crate) sleeps: AtomicU32,
}

/// A connection in this process. Never freed, but used again for others.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    memory: AtomicUsize,
    /// 0: the client's end; 1: the server's.
    end: AtomicUsize,
    tcp: AtomicI32,
    file: AtomicI32,
    /// Descriptors that stand for it.
    numbers: AtomicU32,
    /// Calls that use it.
    users: AtomicU32,
    is_live: AtomicBool,
    /// Closing it resets the connection: `SO_LINGER` with no time.
    pub(crate) resets: AtomicBool,
    /// Writes since the last look whether the other side lives.
    pub(crate) writes: AtomicU32,
    pub(crate) receive_spin: SpinHistory,
    pub(crate) send_spin: SpinHistory,
}

/// Connections that are over.
static UNUSED: Mutex<Vec<&'static Connection>> = Mutex::new(Vec::new());

impl Connection {
    /// A connection over this memory. The TCP socket and the memory's file are the library's own
    /// descriptors, which it closes at its end.
    pub(crate) fn new(memory: Memory, end: usize, tcp: i32, file: i32) -> &'static Self {
        let unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = unused.unwrap_or_else(|| Box::leak(Box::default()));
        connection.memory.store(memory.0, Ordering::Relaxed);
        connection.end.store(end, Ordering::Relaxed);
        connection.tcp.store(tcp, Ordering::Relaxed);
        connection.file.store(file, Ordering::Relaxed);
        connection.resets.store(false, Ordering::Relaxed);
        connection.writes.store(0, Ordering::Relaxed);
        for history in [&connection.receive_spin, &connection.send_spin] {
            let longest = crate::limits::SPIN.as_nanos() as u32;
            history.nanoseconds.store(longest, Ordering::Relaxed);
            history.sleeps.store(0, Ordering::Relaxed);
        }
        connection.is_live.store(true, Ordering::Release);
        connection
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory(self.memory.load(Ordering::Relaxed))
    }

    /// This side's end.
    pub(crate) fn end(&self) -> usize {
        self.end.load(Ordering::Relaxed)
    }

    /// The TCP socket beside.
    pub(crate) fn tcp(&self) -> i32 {
        self.tcp.load(Ordering::Relaxed)
    }

    /// Locks and marks of this end.
    pub(crate) fn marks(&self) -> &'static EndMarks {
        self.memory().marks(self.end())
    }

    /// Marks of the other end.
    pub(crate) fn peer_marks(&self) -> &'static EndMarks {
        self.memory().marks(1 - self.end())
    }

    /// Bytes that may wait on the way from an end to the other: what both programs let the kernel
    /// buffer (`SO_SNDBUF`, `SO_RCVBUF`), at most the ring.
    pub(crate) fn limit(&self, from: usize) -> usize {
        let [sent, received] = [(from, 0), (1 - from, 1)].map(|(end, side)| {
            let buffer = &self.memory().marks(end).buffers[side];
            match buffer.load(Ordering::Relaxed) as usize {
                0 => CAPACITY / 2,
                bytes => bytes.min(CAPACITY / 2),
            }
        });
        sent + received
    }

    /// Takes over the lengths of buffers that the program has set.
    pub(crate) fn adopt_buffers(&self, socket: i32) {
        let locked = addresses::option(socket, libc::SOL_SOCKET, SO_BUF_LOCK).unwrap_or(0);
        let marks = self.marks();
        for (side, name) in [libc::SO_SNDBUF, libc::SO_RCVBUF].into_iter().enumerate() {
            let bytes = match locked & 1 << side {
                0 => None,
                _ => addresses::option(socket, libc::SOL_SOCKET, name),
            };
            let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
            marks.buffers[side].store(bytes.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Tells whether no descriptor stands for it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.numbers.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn enter(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&'static self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_closed() {
            self.end_it();
        }
    }

    pub(crate) fn add_number(&self) {
        self.numbers.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn remove_number(&'static self) {
        if self.numbers.fetch_sub(1, Ordering::SeqCst) == 1
            && self.users.load(Ordering::SeqCst) == 0
        {
            self.end_it();
        }
    }

    fn end_it(&'static self) {
        if !self.is_live.swap(false, Ordering::AcqRel) {
            return;
        }
        self.memory().unmap();
        own_files::close(self.tcp());
        own_files::close(self.file.load(Ordering::Relaxed));
        let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
        unused.push(self);
    }
}

/// One thread of one process at a time at a side of an end.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a AtomicU32);

impl<'a> Turn<'a> {
    /// Waits for its turn. A holder that died is passed over.
    pub(crate) fn take(word: &'a AtomicU32) -> Self {
        let own = table::thread();
        let mut tries = 0_u32;
        loop {
            let holder = match word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Self(word),
                Err(holder) => holder,
            };
            tries += 1;
            if tries < 100 {
                std::hint::spin_loop();
                continue;
            }
            // SAFETY: plain calls; signal 0 only asks whether the thread is there.
            let is_dead = unsafe {
                libc::sched_yield();
                tries.is_multiple_of(64)
                    && libc::kill(holder as libc::pid_t, 0) != 0
                    && *libc::__errno_location() == libc::ESRCH
            };
            let passes = |from| {
                word.compare_exchange(from, own, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            };
            if is_dead && passes(holder) {
                return Self(word);
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
