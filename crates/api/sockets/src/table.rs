//! Which descriptors are virtual sockets, which the library keeps for itself, and which sockets may
//! become virtual ones.

use crate::connection::Connection;
use crate::limits::DESCRIPTORS;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What a descriptor of the library's own points to.
const OWN: *mut Connection = std::ptr::dangling_mut();

/// Connections by descriptor.
static CONNECTIONS: [AtomicPtr<Connection>; DESCRIPTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS];

/// Sockets of TCP that nobody but this process knows and that are not connected: the number of
/// forks when they were made, plus one.
static FRESH: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];

/// In [`FRESH`]: the socket listens.
const LISTENS: u32 = u32::MAX;

/// Forks of this process, and those that it came out of.
static FORKS: AtomicU32 = AtomicU32::new(1);

/// The process whose table this is. A child of vfork has the memory, but not the descriptors.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static THREAD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

fn index(file: i32) -> Option<usize> {
    usize::try_from(file).ok().filter(|&at| at < DESCRIPTORS)
}

/// A connection in use: its memory stays while the value lives.
#[derive(Debug)]
pub(crate) struct InUse(&'static Connection);

impl InUse {
    /// Makes another descriptor stand for the connection.
    pub(crate) fn insert_as(&self, file: i32) -> bool {
        insert(file, self.0)
    }
}

impl std::ops::Deref for InUse {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The connection of a descriptor, if it is a virtual socket.
#[inline]
pub(crate) fn connection(file: i32) -> Option<InUse> {
    let place = &CONNECTIONS[index(file)?];
    let found = place.load(Ordering::Acquire);
    if found.is_null() || found == OWN {
        return None;
    }
    // SAFETY: connections are never freed, only used again for others.
    let found_ref = unsafe { &*found };
    found_ref.enter();
    let in_use = InUse(found_ref);
    // SeqCst with `remove`: either the removal sees this use, or this sees the removal.
    (place.load(Ordering::SeqCst) == found).then_some(in_use)
}

/// Tells whether a descriptor is a virtual socket, without using it.
pub(crate) fn is_virtual(file: i32) -> bool {
    index(file).is_some_and(|at| {
        let found = CONNECTIONS[at].load(Ordering::Acquire);
        !found.is_null() && found != OWN
    })
}

/// Makes a descriptor stand for a connection. `false`: the number is too large.
pub(crate) fn insert(file: i32, connection: &'static Connection) -> bool {
    let Some(at) = index(file) else {
        return false;
    };
    connection.add_number();
    let connection = std::ptr::from_ref(connection).cast_mut();
    let before = CONNECTIONS[at].swap(connection, Ordering::SeqCst);
    FRESH[at].store(0, Ordering::Relaxed);
    drop_number(before);
    true
}

fn drop_number(found: *mut Connection) {
    if !found.is_null() && found != OWN {
        // SAFETY: connections are never freed.
        unsafe { (*found).remove_number() };
    }
}

/// Forgets what a descriptor was: it is closed or replaced.
pub(crate) fn remove(file: i32) {
    if let Some(at) = index(file) {
        FRESH[at].store(0, Ordering::Relaxed);
        if !CONNECTIONS[at].load(Ordering::Relaxed).is_null() {
            drop_number(CONNECTIONS[at].swap(std::ptr::null_mut(), Ordering::SeqCst));
        }
    }
}

/// Notes a descriptor of the library's own. `false`: the number is too large.
pub(crate) fn insert_own(file: i32) -> bool {
    index(file).is_some_and(|at| {
        CONNECTIONS[at].store(OWN, Ordering::Release);
        true
    })
}

/// Tells whether the program must leave a descriptor alone.
pub(crate) fn is_own(file: i32) -> bool {
    index(file).is_some_and(|at| CONNECTIONS[at].load(Ordering::Acquire) == OWN)
}

/// Tells whether the library knows something of a descriptor that is no virtual socket.
pub(crate) fn is_noted(file: i32) -> bool {
    index(file).is_some_and(|at| FRESH[at].load(Ordering::Relaxed) != 0)
}

/// Notes that a descriptor listens, so that closing it is noticed.
pub(crate) fn set_listening(file: i32) {
    if let Some(at) = index(file) {
        FRESH[at].store(LISTENS, Ordering::Relaxed);
    }
}

/// Notes a new socket of TCP.
pub(crate) fn set_fresh(file: i32) {
    if let Some(at) = index(file) {
        FRESH[at].store(FORKS.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A socket is known elsewhere now, or watched: it stays what it is.
pub(crate) fn unset_fresh(file: i32) {
    if let Some(at) = index(file) {
        let is_listening = FRESH[at].load(Ordering::Relaxed) == LISTENS;
        if !is_listening {
            FRESH[at].store(0, Ordering::Relaxed);
        }
    }
}

/// Tells whether a socket may become virtual.
pub(crate) fn is_fresh(file: i32) -> bool {
    index(file).is_some_and(|at| FRESH[at].load(Ordering::Relaxed) == FORKS.load(Ordering::Relaxed))
}

/// Tells whether the table is another process's, whose memory a child of vfork uses.
pub(crate) fn is_borrowed() -> bool {
    // SAFETY: has no precondition.
    PROCESS.load(Ordering::Relaxed) != unsafe { libc::getpid() } as u32
}

/// This process, as the table knows it.
pub(crate) fn process() -> u32 {
    PROCESS.load(Ordering::Relaxed)
}

/// The calling thread's number, which locks in shared memory hold.
pub(crate) fn thread() -> u32 {
    let process = process();
    let (of, thread) = THREAD.get();
    if of == process && thread != 0 {
        return thread;
    }
    // SAFETY: has no precondition.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    THREAD.set((process, thread));
    thread
}

extern "C" fn before_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn in_child() {
    // SAFETY: has no precondition.
    PROCESS.store(unsafe { libc::getpid() } as u32, Ordering::Relaxed);
}

/// To be called when the library is loaded.
pub(crate) fn start() {
    in_child();
    // SAFETY: the functions live as long as the process.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
}
