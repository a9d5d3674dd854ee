//! A helper process of the agent: the `garonne` program once more, for work that would block the
//! agent. It reads the job as a user's command would, and writes what it finds into a pipe.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;

use super::spawn;
use garonne_links::sys::SignalFd;

/// A program that runs, and the reading end of its standard output, which does not block.
pub(super) struct HelperProcess {
    pub pid: i32,
    pub pipe: OwnedFd,
}

/// Starts this program with these words. `None`: the system refuses to.
pub(super) fn start(words: &[&str], signals: &SignalFd) -> Option<HelperProcess> {
    let (pipe, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
    rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).ok()?;
    let nothing = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .ok()?;
    let words = ["garonne"].iter().chain(words);
    let argv: Result<Vec<_>, _> = words.map(|word| CString::new(*word)).collect();
    let envp = std::env::vars_os().filter_map(|(name, value)| {
        use std::os::unix::ffi::OsStringExt;
        CString::new([name.into_vec(), value.into_vec()].join(&b'=')).ok()
    });
    let pid = spawn::spawn(&spawn::ExecRequest {
        by_shell: false,
        // Also where it was replaced since.
        path: &c"/proc/self/exe".to_owned(),
        argv: &argv.ok()?,
        envp: &envp.collect::<Vec<_>>(),
        dir: None,
        stdin: Some(nothing.as_fd()),
        stdout: output.as_fd(),
        stderr: nothing.as_fd(),
        pass: None,
        own_group: true,
        cpus: &[],
        nofile: None,
        signals,
    });
    let pid = pid.ok()?;
    Some(HelperProcess { pid, pipe })
}
