//! The side of a host that joins: calls where the key says, offers its slots, waits until all are there, and is then the agent of its node.
//!
//! Runs in `garonne join`, which is to this host's ranks what `garonne run` is to those of the first: their launcher, whose end is theirs.

use std::net::{SocketAddr, ToSocketAddrs};

use garonne_rails::tcp::House;
use garonne_rails::tcp::trusted::Trusted;
use rustix::event::{PollFd, PollFlags};

use super::key::{JoinKey, Whereabouts};
use super::{NO_NODE, Offer, ToGuest, house};
use crate::codes;
use crate::error::{Error, Result};
use crate::leaf;
use crate::limits::GUEST_LOOK;
use crate::orders::Errand;

/// What happens while a host joins, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It has a place; so many of so many hosts are here.
    Waits(u32, u32),
    /// All are here.
    Begins,
}

/// Takes part in the job that the key leads to. Returns the job's exit code.
///
/// # Errors
/// There is no such job any more, it has no place, or this host's part could not be started.
pub fn join(key: &JoinKey, offer: &Offer, tell: &mut dyn FnMut(News)) -> Result<i32> {
    if Offer::decode(&offer.encode()).is_err() {
        let text = format!(
            "'{}' cannot be the name of a host, or {} its slots",
            offer.name, offer.slots
        );
        return Err(Error::misuse(codes::G0211, text));
    }
    let house = house(key.secret(), NO_NODE);
    let (mut line, reached) = call(key, &house)?;
    line.send(&offer.encode()).map_err(|_| lost())?;
    let errand = wait(&mut line, tell)?;
    tell(News::Begins);
    leaf::join(errand, line, reached.ip())
}

fn call(key: &JoinKey, house: &House) -> Result<(Trusted, SocketAddr)> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut failures = Vec::new();
    for place in &key.places {
        match place {
            Whereabouts::Address(address) => addresses.push(SocketAddr::new(*address, key.port)),
            Whereabouts::Name(name) => match (name.as_str(), key.port).to_socket_addrs() {
                Ok(found) => addresses.extend(found),
                Err(error) => failures.push(format!("{name}: {error}")),
            },
        }
    }
    addresses.dedup();
    leaf::reach(house, &addresses, (0, leaf::Patience::with_key())).map_err(|missed| {
        failures.extend(missed.tried);
        let text = format!("no job takes this key where it leads ({})", failures.join("; "));
        Error::peer(codes::G0227, text)
    })
}

fn lost() -> Error {
    let text = "the connection to the job broke while this host waited for others: whoever started the job has ended it, or the network failed";
    Error::peer(codes::G0227, text)
}

/// Waits as long as the job does.
fn wait(line: &mut Trusted, tell: &mut dyn FnMut(News)) -> Result<Errand> {
    loop {
        line.push().map_err(|_| lost())?;
        while let Some(message) = line.receive().map_err(|_| lost())? {
            match ToGuest::decode(&message)? {
                ToGuest::Wait { came, wanted } => tell(News::Waits(came, wanted)),
                ToGuest::Errand(errand) => return Ok(*errand),
                ToGuest::Refused { code, text } => {
                    let code = codes::find(&code).map_or(codes::G0227, |code| code.id);
                    return Err(Error::peer(code, text));
                }
            }
        }
        // That the other host is gone the kernel finds out by its probes; a look now and then costs nothing.
        let limit = crate::sys::timespec(GUEST_LOOK);
        let _ = rustix::event::poll(
            &mut [PollFd::from_borrowed_fd(line.fd(), PollFlags::IN)],
            Some(&limit),
        );
    }
}
