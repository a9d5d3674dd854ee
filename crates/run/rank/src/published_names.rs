//! Names under which ports are published (`MPI_Publish_name`), for all processes of this user in
//! this network namespace, of whatever job.
//!
//! A published name is an abstract socket at which a thread of the publisher answers with the port.
//! Abstract sockets end with their process, so nothing is left over. Both sides refuse processes of
//! other users.

use garonne_links::trusted_peer;
use garonne_progress::world_connector::{ConnectError, ConnectFault, ConnectResult};
use garonne_sync::mutex::lock;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

/// Time that a publisher or a caller may take for its few bytes.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Longest port that an answer holds.
const ANSWER_MAX: u64 = 4096;

fn service(text: impl Into<String>) -> ConnectError {
    ConnectError::new(ConnectFault::Service, text)
}

/// Address of the socket of a name. The name may be longer than an address.
fn address(name: &str) -> ConnectResult<SocketAddr> {
    let user = rustix::process::geteuid().as_raw();
    // Two FNV-1a hashes: a collision would need to be looked for, and meets the same user only.
    let hash = |seed: u64| {
        name.bytes().fold(seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let (first, second) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    let text = format!("garonne-service-{user}-{first:016x}{second:016x}");
    SocketAddr::from_abstract_name(text)
        .map_err(|error| service(format!("no address for the service {name:?}: {error}")))
}

fn is_same_user(stream: &UnixStream) -> bool {
    let other = rustix::net::sockopt::socket_peercred(stream);
    other.is_ok_and(|other| trusted_peer::is_believed(Some(other.uid.as_raw())))
}

/// A name that this process has published.
struct PublishedName {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for PublishedName {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Names that a process has published.
///
/// Owned by the process's connections. Dropping it withdraws all.
#[derive(Default)]
pub(crate) struct PublishedNames(Mutex<HashMap<String, PublishedName>>);

/// Answers callers until `stopped` is readable: its other end was closed.
fn serve(listener: &UnixListener, stopped: &OwnedFd, port: &str) {
    use rustix::event::{PollFd, PollFlags};
    loop {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        let Ok((mut stream, _)) = listener.accept() else {
            continue;
        };
        if is_same_user(&stream) {
            let _ = stream.set_write_timeout(Some(ANSWER_LIMIT));
            let _ = stream.write_all(port.as_bytes());
        }
    }
}

impl PublishedNames {
    /// Publishes a port under a name.
    pub(crate) fn publish(&self, name: &str, port: &str) -> ConnectResult<()> {
        let listener = UnixListener::bind_addr(&address(name)?);
        let listener = listener.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                service(format!("the service {name:?} is published already"))
            }
            _ => service(format!("cannot publish the service {name:?}: {error}")),
        })?;
        let failed = |error: std::io::Error| service(format!("cannot publish {name:?}: {error}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (stopped, stop) =
            rustix::pipe::pipe_with(flags).map_err(|errno| failed(errno.into()))?;
        let port = port.to_owned();
        let thread = garonne_transport::sys::without_signals(|| {
            std::thread::Builder::new()
                .name(String::from("garonne-names"))
                .stack_size(garonne_transport::limits::WATCHER_STACK)
                .spawn(move || serve(&listener, &stopped, &port))
        });
        let published = PublishedName {
            stop: Some(stop),
            thread: Some(thread.map_err(failed)?),
        };
        lock(&self.0).insert(name.to_owned(), published);
        Ok(())
    }

    /// Withdraws a name.
    pub(crate) fn unpublish(&self, name: &str) -> ConnectResult<()> {
        let published = lock(&self.0).remove(name);
        published
            .map(drop)
            .ok_or_else(|| service(format!("this process has not published {name:?}")))
    }
}

/// Returns the port that is published under a name.
pub(crate) fn lookup(name: &str) -> ConnectResult<String> {
    let missing = |text: String| {
        let text = format!(
            "no process of this user on this host has published {name:?}{text}. Names of other \
             hosts are not found: give MPI_Comm_connect the port itself, which MPI_Open_port \
             returned there, for example through a file or an argument"
        );
        ConnectError::new(ConnectFault::Name, text)
    };
    let mut stream = UnixStream::connect_addr(&address(name)?)
        .map_err(|error| missing(format!(" ({error})")))?;
    if !is_same_user(&stream) {
        return Err(missing(String::from(" (another user has)")));
    }
    let _ = stream.set_read_timeout(Some(ANSWER_LIMIT));
    let mut port = String::new();
    let read = Read::by_ref(&mut stream)
        .take(ANSWER_MAX)
        .read_to_string(&mut port);
    read.map_err(|error| missing(format!(" ({error})")))?;
    match port.is_empty() {
        true => Err(missing(String::new())),
        false => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_until_it_is_withdrawn_and_published_once() {
        let name = format!("a service of process {}", std::process::id());
        let names = PublishedNames::default();
        assert!(lookup(&name).is_err());
        names.publish(&name, "the port").unwrap();
        assert_eq!(lookup(&name).unwrap(), "the port");
        let error = names.publish(&name, "another").unwrap_err();
        assert_eq!(error.fault, ConnectFault::Service);
        assert_eq!(lookup(&name).unwrap(), "the port");
        names.unpublish(&name).unwrap();
        assert_eq!(lookup(&name).unwrap_err().fault, ConnectFault::Name);
        assert!(names.unpublish(&name).is_err());
        names.publish(&name, "again").unwrap();
        drop(names);
        assert!(lookup(&name).is_err(), "it ends with its publisher");
    }
}
