//! What came over a peer's connections: packets to the engine, bulk data to where they belong, requests for bulk data to whoever serves them.
//!
//! Part of [`TcpRail`]; called from its polls alone. Packets first, then a slice of bulk data, so that a small message stands behind one slice at most.

use crate::tcp::TcpRail;
use crate::tcp::bulk::Told;
use crate::tcp::channel::Io;
use crate::tcp::frame::{Ask, Stream};
use crate::tcp::link::{Came, Sent};
use crate::tcp::remote::Remote;
use garonne_engine::api::{Error, Peer};
use garonne_engine::rail::Sink;

/// Which streams of a peer to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    Both,
    /// Packets, and bulk data if this side asked for some.
    Wanted,
}

/// How much was taken from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Everything that was there.
    All,
    /// There may be more.
    Some,
    /// And it has ended.
    Over,
    /// The peer broke the format.
    Wrong,
}

impl TcpRail {
    /// Takes what came from a peer and delivers up to `budget` packets. What is left makes it ready again.
    pub(super) fn take_from(
        &mut self,
        (peer, streams): (Peer, Streams),
        budget: u32,
        sink: &mut impl Sink,
    ) -> u32 {
        let Some(mut remote) = self.remotes.get_mut(peer as usize).and_then(Option::take) else {
            return 0;
        };
        let mut told = 0;
        let small = self.take_packets(&mut remote, (peer, budget, &mut told), sink);
        let bulk = if streams == Streams::Both || remote.bulk.is_wanted() {
            let slice = self.brisk.slice();
            self.take_bulk(&mut remote, peer, slice)
        } else {
            Taken::All
        };
        if bulk == Taken::Some {
            self.brisk.moved();
        }
        let condemned = remote.condemned;
        self.remotes[peer as usize] = Some(remote);
        let mut more = false;
        for (stream, taken) in [(Stream::Small, small), (Stream::Bulk, bulk)] {
            match taken {
                Taken::Some => more = true,
                Taken::All => {}
                Taken::Over => self.broke(peer, stream),
                Taken::Wrong => self.lose(peer),
            }
        }
        if more {
            self.mark_ready(peer);
            self.must_look = true;
        } else if condemned {
            self.lose(peer);
        }
        if bulk == Taken::Some || self.serves(peer) {
            self.flush(peer, Stream::Bulk);
        }
        told
    }

    fn serves(&self, peer: Peer) -> bool {
        self.remotes[peer as usize]
            .as_ref()
            .is_some_and(|remote| remote.bulk.has_to_send() && !remote.call_of(Stream::Bulk).watches_room)
    }

    fn take_packets(
        &mut self,
        remote: &mut Remote,
        (peer, budget, told): (Peer, u32, &mut u32),
        sink: &mut impl Sink,
    ) -> Taken {
        if !remote.link.is_up() {
            return Taken::All;
        }
        let (mut last, mut result) = (false, Taken::Some);
        while *told < budget {
            match remote.link.next(&mut self.blocks) {
                Ok(Came::Packet(header, payload, len)) => {
                    *told += 1;
                    self.brisk.small(&header);
                    sink.packet(peer, header, payload, len);
                }
                Ok(Came::Ring) => *told += 1,
                Ok(Came::Nothing) if last => {
                    result = Taken::All;
                    break;
                }
                Ok(Came::Nothing) => match remote.link.fill() {
                    Ok(more) => last = !more,
                    Err(Io::Over) => {
                        result = Taken::Over;
                        break;
                    }
                    Err(_) => {
                        result = Taken::All;
                        break;
                    }
                },
                Err(_) => return Taken::Wrong,
            }
        }
        if remote.link.is_due() && remote.link.acknowledge() == Sent::Over {
            result = Taken::Over;
        }
        result
    }

    fn take_bulk(&mut self, remote: &mut Remote, peer: Peer, slice: usize) -> Taken {
        if remote.bulk.channel().is_none() {
            return Taken::All;
        }
        let mut left = slice;
        while left > 0 {
            let (got, told) = match remote.bulk.fill(left) {
                Ok(step) => step,
                Err(_) => return Taken::Wrong,
            };
            match told {
                None => {}
                Some(Told::Done(token)) => self.done.push((token, Ok(()))),
                Some(Told::Refused(token)) => {
                    let what = "it has withdrawn the memory that it had announced";
                    self.done.push((token, Err(Error::Peer { peer, what })));
                }
                Some(Told::Asks(number, ask)) => self.asked(remote, peer, (number, ask)),
            }
            match got {
                Io::Moved(moved) => left = left.saturating_sub(moved),
                Io::Later => return Taken::All,
                Io::Over => return Taken::Over,
            }
        }
        Taken::Some
    }

    fn asked(&self, remote: &mut Remote, peer: Peer, (number, ask): (u32, Ask)) {
        let region = self.regions.get(&ask.cookie).filter(|region| region.peer == peer);
        let within = |len: u64| ask.len > 0 && ask.offset.checked_add(ask.len).is_some_and(|end| end <= len);
        match region {
            Some(region) if within(region.data.len) => remote.bulk.serve(number, &ask, region.data.clone()),
            _ => remote.bulk.refuse(number),
        }
    }
}
