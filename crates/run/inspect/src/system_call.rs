//! The system call that a thread is in, with the file that the call is about.

use serde::Serialize;
use syscalls::Sysno;

use crate::process_memory::ProcessMemory;

/// A system call that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SystemCall {
    /// Name of the call, or its number where the name is not known.
    pub name: String,
    /// Arguments as the kernel shows them.
    #[serde(skip)]
    pub arguments: [u64; 6],
    /// The file, socket or path that it is about: a descriptor's with its number, as
    /// `3 </data/in>`.
    pub about: Option<String>,
}

/// State of a sleeping thread, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockedThread {
    /// Number and arguments of the system call; `None`: it sleeps for another reason, as a page
    /// that is read from disk.
    pub call: Option<(i64, [u64; 6])>,
    pub sp: u64,
    pub pc: u64,
}

impl BlockedThread {
    /// Reads the state of a thread; `None`: the thread runs, or the kernel does not say.
    pub fn of(pid: u32, tid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["-1", sp, pc] => Some(Self {
                call: None,
                sp: hex(sp)?,
                pc: hex(pc)?,
            }),
            [number, arguments @ .., sp, pc] if arguments.len() == 6 => {
                let mut values = [0; 6];
                for (value, word) in values.iter_mut().zip(arguments) {
                    *value = hex(word)?;
                }
                Some(Self {
                    call: Some((number.parse().ok()?, values)),
                    sp: hex(sp)?,
                    pc: hex(pc)?,
                })
            }
            _ => None,
        }
    }

    /// Returns whether the call may end with an error when its thread is stopped and goes on
    /// (signal(7)).
    pub fn minds_stops(&self) -> bool {
        self.call.is_some_and(|(number, _)| {
            let name = name_of(number);
            name.is_some_and(|name| INTERRUPTIBLE.contains(&name))
        })
    }
}

/// Calls that are not begun again after a stop.
const INTERRUPTIBLE: [&str; 10] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "semop",
    "semtimedop",
    "rt_sigtimedwait",
    "io_getevents",
    "io_pgetevents",
    "msgrcv",
    "msgsnd",
];

/// Calls whose first argument is a descriptor.
const OF_DESCRIPTORS: [&str; 43] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "recvmmsg",
    "sendmmsg",
    "accept",
    "accept4",
    "connect",
    "bind",
    "listen",
    "shutdown",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "syncfs",
    "ioctl",
    "flock",
    "fcntl",
    "ftruncate",
    "fallocate",
    "lseek",
    "fstat",
    "fstatfs",
    "getdents",
    "getdents64",
    "fchmod",
    "fchown",
    "close",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "fadvise64",
];

/// Calls whose first argument is a path.
const OF_PATHS: [&str; 15] = [
    "open", "stat", "lstat", "access", "unlink", "mkdir", "rmdir", "rename", "readlink",
    "truncate", "chdir", "execve", "statfs", "chmod", "creat",
];

/// Calls whose second argument is a path.
const OF_PATHS_IN: [&str; 11] = [
    "openat",
    "openat2",
    "newfstatat",
    "statx",
    "faccessat",
    "faccessat2",
    "unlinkat",
    "mkdirat",
    "renameat",
    "renameat2",
    "readlinkat",
];

fn name_of(number: i64) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    Some(Sysno::new(number)?.name())
}

impl SystemCall {
    pub(crate) fn of(pid: u32, number: i64, arguments: [u64; 6]) -> Self {
        let known = name_of(number);
        let about = known.and_then(|name| about(pid, name, arguments));
        Self {
            name: known.map_or_else(|| format!("system call {number}"), str::to_owned),
            arguments,
            about,
        }
    }
}

fn about(pid: u32, name: &str, arguments: [u64; 6]) -> Option<String> {
    let memory = ProcessMemory { pid };
    let path = |argument: u64| Some(format!("\"{}\"", printable(&memory.text(argument)?)));
    match name {
        _ if OF_DESCRIPTORS.contains(&name) => Some(descriptor(pid, arguments[0])),
        _ if OF_PATHS.contains(&name) => path(arguments[0]),
        _ if OF_PATHS_IN.contains(&name) => path(arguments[1]),
        _ => None,
    }
}

/// A descriptor with the file that it leads to.
fn descriptor(pid: u32, number: u64) -> String {
    let number = number as i32;
    match std::fs::read_link(format!("/proc/{pid}/fd/{number}")) {
        Ok(file) => format!("{number} <{}>", printable(&file.to_string_lossy())),
        Err(_) => number.to_string(),
    }
}

/// Names of files are printed on somebody's terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

impl std::fmt::Display for SystemCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}({})",
            self.name,
            self.about.as_deref().unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_thread_is_read() {
        let text = "0 0x3 0x7ffd 0x10 0x0 0x0 0x0 0x7ffc0 0x7f12\n";
        let blocked = BlockedThread::parse(text).unwrap();
        assert_eq!(blocked.call, Some((0, [3, 0x7ffd, 16, 0, 0, 0])));
        assert_eq!((blocked.sp, blocked.pc), (0x7ffc0, 0x7f12));
        let fault = BlockedThread::parse("-1 0x7ffc0 0x7f12\n").unwrap();
        assert_eq!(fault.call, None);
        for text in [
            "running\n",
            "",
            "0 0x3\n",
            "x 0x3 0x7ffd 0x10 0x0 0x0 0x0 0x7ffc0 0x7f12\n",
        ] {
            assert_eq!(BlockedThread::parse(text), None, "{text}");
        }
    }

    #[test]
    fn calls_that_a_stop_would_end_are_left_alone() {
        let in_call = |name: &str| BlockedThread {
            call: Some((name.parse::<Sysno>().unwrap().id().into(), [0; 6])),
            sp: 0,
            pc: 0,
        };
        assert!(in_call("epoll_pwait").minds_stops());
        assert!(!in_call("read").minds_stops());
        assert!(!in_call("futex").minds_stops());
    }

    #[test]
    fn a_call_names_its_file() {
        let (read, _write) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&read);
        let arguments = [number as u64, 0, 0, 0, 0, 0];
        let call = SystemCall::of(std::process::id(), Sysno::read.id().into(), arguments);
        let said = call.to_string();
        assert!(said.starts_with(&format!("read({number} <pipe:")), "{said}");
        let path = c"/nowhere/\n";
        let arguments = [0, path.as_ptr().addr() as u64, 0, 0, 0, 0];
        let call = SystemCall::of(std::process::id(), Sysno::openat.id().into(), arguments);
        assert_eq!(call.to_string(), "openat(\"/nowhere/?\")");
        let unknown = SystemCall::of(std::process::id(), 99_999, [0; 6]);
        assert_eq!(unknown.to_string(), "system call 99999()");
    }
}
