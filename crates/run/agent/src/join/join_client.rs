//! The side of a host that joins: calls where the key says, offers its slots, waits until all are
//! there, and is then the agent of its node.
//!
//! Runs in `garonne join`, which is to this host's ranks what `garonne run` is to those of the
//! first: their launcher, whose end is theirs.

use garonne_job::join_key::JoinKey;
use garonne_job::join_key::KeyAddresses;
use garonne_job::join_messages::HostOffer;
use garonne_job::join_messages::ToJoiner;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Instant;

use garonne_tcp::LocalIdentity;
use garonne_tcp::agent_channel::AgentChannel;
use rustix::event::{PollFd, PollFlags};

use super::{NO_NODE, local_identity};
use crate::remote_agent;
use garonne_job::agent_messages::AgentBootstrap;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::{CALL_WAIT, CUT_PAUSE, JOIN_CHECK};

/// Progress of a host that joins, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinEvent {
    /// The host has a place; so many of so many hosts are here.
    Waits(u32, u32),
    /// All are here.
    Begins,
}

/// Takes part in the job that the key leads to. Returns the job's exit code.
///
/// # Errors
/// There is no such job any more, it has no place, or this host's part could not be started.
pub fn join(key: &JoinKey, offer: &HostOffer, tell: &mut dyn FnMut(JoinEvent)) -> Result<i32> {
    if HostOffer::decode(&offer.encode()).is_err() {
        let text = format!(
            "'{}' cannot be the name of a host, or {} its slots",
            offer.name, offer.slots
        );
        return Err(Error::misuse(codes::G0211, text));
    }
    let identity = local_identity(key.secret(), NO_NODE);
    let until = Instant::now() + CALL_WAIT;
    loop {
        let (mut line, reached) = call(key, &identity)?;
        line.send(&offer.encode()).map_err(|_| lost())?;
        match wait(&mut line, Instant::now() + CALL_WAIT, tell)? {
            Some(bootstrap) => {
                tell(JoinEvent::Begins);
                return remote_agent::join(bootstrap, line, reached.ip());
            }
            // All had come while it was let in, and nobody had heard of it: whoever answers next
            // says so.
            None if Instant::now() < until => std::thread::sleep(CUT_PAUSE),
            None => return Err(lost()),
        }
    }
}

fn call(key: &JoinKey, identity: &LocalIdentity) -> Result<(AgentChannel, SocketAddr)> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut failures = Vec::new();
    for place in &key.places {
        match place {
            KeyAddresses::Address(address) => addresses.push(SocketAddr::new(*address, key.port)),
            KeyAddresses::Name(name) => match (name.as_str(), key.port).to_socket_addrs() {
                Ok(found) => addresses.extend(found),
                Err(error) => failures.push(format!("{name}: {error}")),
            },
        }
    }
    addresses.dedup();
    garonne_links::connect::connect_any(
        identity,
        &addresses,
        (0, garonne_links::connect::ConnectDeadlines::with_key()),
    )
    .map_err(|missed| {
        failures.extend(missed.tried);
        let text = format!(
            "no job takes this key where it leads ({})",
            failures.join("; ")
        );
        Error::peer(codes::G0227, text)
    })
}

fn lost() -> Error {
    let text = "the connection to the job broke while this host waited for others: whoever started the job has ended it, or the network failed";
    Error::peer(codes::G0227, text)
}

fn unheard() -> Error {
    let text = format!(
        "the job has taken this host's call and said nothing for {} s: it is stopped, or cut off",
        CALL_WAIT.as_secs()
    );
    Error::peer(codes::G0227, text)
}

/// Waits as long as the job does, if that has said anything by `until`. `None`: the line has ended
/// before.
fn wait(
    line: &mut AgentChannel,
    until: Instant,
    tell: &mut dyn FnMut(JoinEvent),
) -> Result<Option<AgentBootstrap>> {
    loop {
        let received = line.push().and_then(|()| line.receive());
        match received.as_ref().map(|message| message.as_deref()) {
            Err(_) if line.received() == 0 => return Ok(None),
            Err(_) => return Err(lost()),
            Ok(None) => {}
            Ok(Some(message)) => match ToJoiner::decode(message)? {
                ToJoiner::Wait { came, wanted } => tell(JoinEvent::Waits(came, wanted)),
                ToJoiner::Bootstrap(bootstrap) => return Ok(Some(*bootstrap)),
                ToJoiner::Refused { code, text } => {
                    let code = codes::find(&code).map_or(codes::G0227, |code| code.id);
                    return Err(Error::peer(code, text));
                }
            },
        }
        if matches!(received, Ok(Some(_))) {
            continue;
        }
        let left = until.saturating_duration_since(Instant::now());
        let limit = match line.received() {
            0 if left.is_zero() => return Err(unheard()),
            0 => left,
            // That the other host is gone the kernel finds out by its probes; a look now and then
            // costs nothing.
            _ => JOIN_CHECK,
        };
        let limit = garonne_links::sys::timespec(limit);
        let _ = rustix::event::poll(
            &mut [PollFd::from_borrowed_fd(line.fd(), PollFlags::IN)],
            Some(&limit),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use garonne_tcp::agent_channel::PendingChannels;
    use garonne_tcp::listen;

    use super::*;

    /// Lets one with the key in.
    fn next(child_listener: &mut PendingChannels) -> AgentChannel {
        loop {
            child_listener.open(&mut |_, _| true);
            let came = (0..4).find_map(|place| child_listener.look(place, |node| node == NO_NODE));
            if let Some((_, line)) = came {
                return line;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn refused(line: &mut AgentChannel, text: &str) {
        let refusal = ToJoiner::Refused {
            code: codes::G0227.to_owned(),
            text: text.to_owned(),
        };
        line.send(&refusal.encode()).unwrap();
        // Its offer does not lie unread, and it has hung up.
        while line.receive().is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn port() -> (JoinKey, PendingChannels) {
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let listener: TcpListener = listen((local, 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let key = JoinKey::new(vec![KeyAddresses::Address(local)], port).unwrap();
        let child_listener = PendingChannels::new(local_identity(key.secret(), 0), listener);
        (key, child_listener)
    }

    #[test]
    fn who_is_let_in_and_hears_nothing_does_not_wait_for_ever() {
        let (key, mut child_listener) = port();
        let job = std::thread::spawn(move || next(&mut child_listener));
        let (mut line, _) = call(&key, &local_identity(key.secret(), NO_NODE)).unwrap();
        let silent = job.join().unwrap();
        let error = wait(&mut line, Instant::now(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("said nothing"), "{error}");
        drop(silent);
        let until = Instant::now() + CALL_WAIT;
        assert!(wait(&mut line, until, &mut |_| {}).unwrap().is_none());
    }

    #[test]
    fn who_was_let_in_when_all_had_come_is_told_so_and_not_that_the_job_is_gone() {
        let (key, mut child_listener) = port();
        let job = std::thread::spawn(move || {
            // Nobody has heard what it offers when the job begins.
            drop(next(&mut child_listener));
            refused(&mut next(&mut child_listener), "all have come");
        });
        let offer = HostOffer {
            name: "late".into(),
            slots: 1,
        };
        let error = join(&key, &offer, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("all have come"), "{error}");
        job.join().unwrap();
    }
}
