//! Which hosts that a user names are this one: by the addresses of its interfaces, and by what the
//! system says of names.
//!
//! Called by the command before a job starts. A name server may be slow, or not there at all: so
//! another process asks, and is not waited for longer than [`NAMES_WAIT`]. What is not known by
//! then counts as another host, which is right of all names but a few, and costs the others an
//! agent more.

use std::io::Read;
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};

use crate::addresses::{self, Interface};
use crate::sys::{self, ForkSide};
use garonne_job::limits::NAMES_WAIT;

/// Returns for each name whether it is this host's. `ask`: the system resolves names that are no
/// addresses, as a starter of processes on hosts would. The calling process has one thread.
pub fn which_are_local(names: &[&str], ask: bool) -> Vec<bool> {
    let interfaces = addresses::interfaces().unwrap_or_default();
    let by_address = |name: &&str| {
        name.parse()
            .ok()
            .map(|address| is_local_route(address, &interfaces))
    };
    let known: Vec<Option<bool>> = names.iter().map(by_address).collect();
    let open = names
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none());
    let open: Vec<&str> = open.map(|(name, _)| *name).collect();
    let asked = match ask && !open.is_empty() {
        true => answers(&open, &|name| is_local(name, &interfaces)),
        false => Vec::new(),
    };
    let mut asked = asked.into_iter();
    let known = known.into_iter();
    known
        .map(|known| known.unwrap_or_else(|| asked.next().unwrap_or(false)))
        .collect()
}

fn is_local_route(address: IpAddr, interfaces: &[Interface]) -> bool {
    address.is_loopback()
        || interfaces
            .iter()
            .any(|interface| interface.address == address)
}

/// Returns whether all that a name stands for leads here: of another host's the address of a bridge
/// may that every host has.
fn is_local(name: &str, interfaces: &[Interface]) -> bool {
    let Ok(found) = (name, 0).to_socket_addrs() else {
        return false;
    };
    let found: Vec<IpAddr> = found.map(|socket| socket.ip()).collect();
    !found.is_empty()
        && found
            .iter()
            .all(|address| is_local_route(*address, interfaces))
}

/// Has another process answer for these names in time, in their order. Names behind one that takes
/// too long are not answered.
fn answers(names: &[&str], find: &dyn Fn(&str) -> bool) -> Vec<bool> {
    let Ok((read, write)) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC) else {
        return Vec::new();
    };
    match sys::fork() {
        Ok(ForkSide::Child) => {
            for name in names {
                let answer = [u8::from(find(name))];
                if rustix::io::write(&write, &answer).is_err() {
                    break;
                }
            }
            sys::exit_now(0)
        }
        Ok(ForkSide::Parent(child)) => {
            drop(write);
            let heard = hear(read, names.len());
            sys::kill(child, libc::SIGKILL);
            while let Some(Err(rustix::io::Errno::INTR)) = Pid::from_raw(child)
                .map(|pid| rustix::process::waitpid(Some(pid), WaitOptions::empty()))
            {}
            heard
        }
        Err(_) => Vec::new(),
    }
}

fn hear(from: OwnedFd, many: usize) -> Vec<bool> {
    let until = Instant::now() + NAMES_WAIT;
    let mut from = std::fs::File::from(from);
    let mut heard = Vec::new();
    let mut bytes = [0; 1024];
    while heard.len() < many {
        let left = sys::timespec(until.saturating_duration_since(Instant::now()));
        let mut fds = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&left)) {
            Ok(1..) => {}
            Err(rustix::io::Errno::INTR) => continue,
            _ => break,
        }
        match from.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(got) => heard.extend(bytes[..got].iter().map(|byte| *byte != 0)),
        }
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_and_names_that_stand_for_them_are_its_own() {
        let interfaces = addresses::interfaces().unwrap();
        let own: Vec<String> = interfaces
            .iter()
            .map(|interface| interface.address.to_string())
            .collect();
        let mut names: Vec<&str> = own.iter().map(String::as_str).collect();
        names.extend(["127.0.0.9", "localhost", "203.0.113.7", "no-such.invalid"]);
        let mut wanted = vec![true; names.len()];
        wanted[names.len() - 2..].fill(false);
        assert_eq!(which_are_local(&names, true), wanted, "{names:?}");
        // To a command of the user's own a name may mean anything.
        assert_eq!(
            which_are_local(&["127.0.0.9", "localhost"], false),
            [true, false]
        );
    }

    #[test]
    fn a_name_of_which_the_system_says_nothing_keeps_nobody_waiting() {
        let find = |name: &str| {
            if name == "slow" {
                std::thread::sleep(std::time::Duration::from_secs(1000));
            }
            true
        };
        assert_eq!(answers(&["a", "b", "slow", "c"], &find), [true, true]);
    }
}
