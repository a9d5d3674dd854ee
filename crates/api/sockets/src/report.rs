//! Which sockets stay TCP and why: notes in a memory file that `garonne sockets show` reads.

use crate::{own_files, table};
use garonne_socket_records::{NOTE_BYTES, NOTES, NOTES_WRITTEN, Note, Reason};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const BYTES: usize = NOTE_BYTES * (NOTES + 1);

/// Address of the file's mapping; 0: there is none.
static FILE: OnceLock<usize> = OnceLock::new();

fn create() -> usize {
    // SAFETY: the name lives for ever; the descriptor belongs to nobody else; a new mapping
    // replaces nothing.
    unsafe {
        let fd = libc::memfd_create(c"garonne-socket-notes".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return 0;
        }
        let file = OwnedFd::from_raw_fd(fd);
        if libc::ftruncate(fd, BYTES as libc::off_t) != 0 {
            return 0;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(
            std::ptr::null_mut(),
            BYTES,
            protection,
            libc::MAP_SHARED,
            fd,
            0,
        );
        match own_files::move_up(file) {
            Some(own) if base != libc::MAP_FAILED => {
                own.into_number();
                base as usize
            }
            _ => 0,
        }
    }
}

pub(crate) fn inode(file: i32) -> u64 {
    // SAFETY: all zeroes is a valid value of this plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a place to write to.
    match unsafe { libc::fstat(file, &raw mut stat) } {
        0 => stat.st_ino,
        _ => 0,
    }
}

/// Notes that a socket stays TCP.
pub(crate) fn note(file: i32, peer: SocketAddr, reason: Reason) {
    let base = *FILE.get_or_init(create);
    if base == 0 {
        return;
    }
    let bytes = Note {
        process: table::process(),
        descriptor: u32::try_from(file).unwrap_or(0),
        inode: inode(file),
        peer,
        reason,
    }
    .encode();
    // SAFETY: the word lies within the mapping, which stays.
    let written = unsafe { &*((base + NOTES_WRITTEN) as *const AtomicU32) };
    let at = written.fetch_add(1, Ordering::Relaxed) as usize % NOTES;
    let place = (base + NOTE_BYTES * (1 + at)) as *mut u8;
    // SAFETY: the place lies within the mapping.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, NOTE_BYTES) };
}
