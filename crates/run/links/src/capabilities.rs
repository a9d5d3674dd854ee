//! What this machine permits, tried rather than guessed: the checks behind `garonne doctor`.

use std::io;

use garonne_job::error::Result;
use garonne_job::layout::{JobId, WorldShape};
use garonne_sync::shm::MapAccess;

use crate::memory_file;
use crate::process_tree;
use crate::sys;

/// Makes, seals, verifies and maps shared memory as a job does.
pub fn shared_memory() -> Result<()> {
    use std::os::fd::AsFd;
    let shape = WorldShape {
        job: JobId(0),
        epoch: 0,
        size: 1,
        coll_bytes: 4096,
        inbox_bytes: 4096,
        shards: 1,
        cpus_milli: 1000,
        bound: false,
        nodes: 1,
        node: 0,
        hosts_bytes: 0,
    };
    let (file, _board) = memory_file::create(&shape)?;
    memory_file::open(file.as_fd(), MapAccess::ReadWrite).map(drop)
}

/// Opens a descriptor of a process, as the agent does for ranks behind wrappers.
pub fn pidfd() -> io::Result<()> {
    let me = rustix::process::getpid();
    Ok(rustix::process::pidfd_open(me, rustix::process::PidfdFlags::empty()).map(drop)?)
}

/// Does what a rank does so that its siblings may read its memory: where Yama restricts that to
/// ancestors, names an ancestor of all of them.
pub fn allow_siblings_below(ancestor: i32) {
    let restricted = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .is_ok_and(|scope| scope.trim() == "1");
    // The number means the same process here only if it is an ancestor here.
    if restricted && process_tree::is_ancestor(ancestor, rustix::process::getpid().as_raw_pid()) {
        sys::allow_memory_access_below(ancestor);
    }
}

/// Reads one byte of another process's memory, as a rank does to receive a large message with one
/// copy.
pub fn single_copy_from(pid: i32) -> io::Result<()> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let start = maps.lines().find(|line| {
        line.split_whitespace()
            .nth(1)
            .is_some_and(|mode| mode.starts_with("rw"))
    });
    let start = start.and_then(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    sys::read_byte_of(pid, start.ok_or(io::ErrorKind::NotFound)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_shared_memory_and_process_descriptors() {
        shared_memory().unwrap();
        pidfd().unwrap();
    }

    #[test]
    fn a_child_can_be_read_and_a_process_that_is_not_there_cannot() {
        let mut child = std::process::Command::new("sleep")
            .arg("5")
            .spawn()
            .unwrap();
        let read = single_copy_from(child.id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        // Some containers forbid it altogether, which is what the probe is for.
        assert!(read.is_ok() || read.unwrap_err().raw_os_error() == Some(libc::EPERM));
        assert!(single_copy_from(0).is_err());
    }
}
