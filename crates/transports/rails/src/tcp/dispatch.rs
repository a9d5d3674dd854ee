//! What came over a peer's connections: packets to the engine, bulk data to where they belong,
//! requests for bulk data to whoever serves them.
//!
//! Part of [`TcpRail`]; called from its polls alone. Packets first, then a slice of bulk data, so
//! that a small message stands behind one slice at most.

use crate::limits::TCP_FILLS_MAX;
use crate::tcp::TcpRail;
use crate::tcp::bulk::Told;
use crate::tcp::connection::Io;
use crate::tcp::frame::{Ask, Stream};
use crate::tcp::multipath::{Ended, Path};
use crate::tcp::ofi_path::Fabric;
use crate::tcp::packet_stream::{Came, Sent};
use crate::tcp::path_transport::Carrier;
use crate::tcp::peer::Remote;
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::STRIPE_RAILS;
use garonne_engine::transport::PollSink;
use std::time::Instant;

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
    /// What comes next from a peer may be long. To receive in vain from such a socket holds up the
    /// kernel, which is about to put something there; the epoll tells of it without.
    #[inline]
    pub(super) fn brings_long(&self, peer: Peer) -> bool {
        let remote = self.remotes[peer as usize].as_ref();
        remote.is_some_and(|remote| remote.link.brings_long())
    }

    /// Takes what came from those that are ready, all sockets having been looked at, and delivers
    /// up to `budget` packets.
    pub(super) fn take_from_ready(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut turn = std::mem::take(&mut self.turn);
        std::mem::swap(&mut turn, &mut self.ready);
        let (hot, mut told) = (self.hot, 0);
        for peer in turn.drain(..) {
            let some = self.take_from((peer, Streams::Both), budget.saturating_sub(told), sink);
            if some > 0 {
                self.hot = Some(peer);
                self.glance.saw_another(Some(peer) != hot);
            }
            told += some;
        }
        self.turn = turn;
        self.glance.ended();
        told
    }

    /// Takes what came from a peer and delivers up to `budget` packets. What is left makes it ready
    /// again.
    pub(super) fn take_from(
        &mut self,
        (peer, streams): (Peer, Streams),
        budget: u32,
        sink: &mut impl PollSink,
    ) -> u32 {
        let Some(mut remote) = self.remotes.get_mut(peer as usize).and_then(Option::take) else {
            return 0;
        };
        let mut told = 0;
        let small = self.take_packets(&mut remote, (peer, budget, &mut told), sink);
        let idle = remote.paths.is_idle();
        let put_off = told > 0 && !idle && self.brisk.goes_first(&mut remote.went_first);
        if put_off || streams == Streams::Wanted && idle && self.recalled.is_empty() {
            let condemned = remote.condemned;
            self.remotes[peer as usize] = Some(remote);
            self.took(peer, Stream::Small, small);
            self.go_on(peer, put_off || small == Taken::Some, condemned);
            self.put_off = put_off;
            return told;
        }
        remote.went_first = false;
        let mut bulk = [Taken::All; STRIPE_RAILS + 1];
        let paths = remote.paths.numbers();
        let reads_done = self.done.len();
        for path in paths.clone() {
            // Whoever is patient waits for its socket's word.
            let is_wanted = |path: &Path| path.bulk.is_wanted() && !self.patient;
            if streams == Streams::Both || remote.paths.get(path).is_some_and(is_wanted) {
                bulk[usize::from(path)] = self.take_bulk(&mut remote, (peer, path));
            }
        }
        if self.done.len() > reads_done {
            for path in paths.clone() {
                let brought = remote.paths.brought(path);
                if brought != (0, 0) {
                    self.shown.moved(peer, Stream::Bulk(path), brought);
                }
            }
        }
        let taken = || {
            paths
                .clone()
                .map(|path| (Stream::Bulk(path), bulk[usize::from(path)]))
        };
        let condemned = remote.condemned;
        let reads_here = remote.paths.fabric().is_some_and(Fabric::needs_polls);
        self.remotes[peer as usize] = Some(remote);
        let mut more = false;
        for (stream, taken) in std::iter::once((Stream::Small, small)).chain(taken()) {
            self.took(peer, stream, taken);
            more |= taken == Taken::Some;
        }
        if !self.recalled.is_empty() {
            self.settle_recalls();
        }
        self.go_on(peer, more || reads_here && !condemned, condemned);
        for (stream, taken) in taken() {
            if taken == Taken::Some || self.serves(peer, stream) {
                self.flush(peer, stream);
            }
        }
        self.spread(peer);
        self.sliced |= bulk.contains(&Taken::Some);
        told
    }

    /// What follows from how much was taken from a stream.
    #[inline]
    fn took(&mut self, peer: Peer, stream: Stream, taken: Taken) {
        match taken {
            Taken::Some | Taken::All => {}
            Taken::Over => self.broke(peer, stream),
            Taken::Wrong => self.lose(peer),
        }
    }

    /// A peer from which there is more to take is ready again; of one that counts as gone all was
    /// taken else.
    #[inline]
    fn go_on(&mut self, peer: Peer, more: bool, condemned: bool) {
        if more {
            self.mark_ready(peer);
            self.must_look = true;
        } else if condemned {
            self.lose(peer);
        }
    }

    fn serves(&self, peer: Peer, stream: Stream) -> bool {
        let Some(remote) = self.remotes[peer as usize].as_ref() else {
            return false;
        };
        let Stream::Bulk(path) = stream else {
            return false;
        };
        let path = remote.paths.get(path);
        path.is_some_and(|path| path.bulk.has_to_send() && !path.calls.watches_room)
    }

    fn take_packets(
        &mut self,
        remote: &mut Remote,
        (peer, budget, told): (Peer, u32, &mut u32),
        sink: &mut impl PollSink,
    ) -> Taken {
        if !remote.link.is_up() {
            return Taken::All;
        }
        let (mut last, mut result) = (false, Taken::Some);
        // Since the last packet.
        let mut fills = 0;
        while *told < budget {
            let before = *told;
            match remote.link.next(&mut self.blocks) {
                Ok(Came::Packet(header, payload, len)) => {
                    *told += 1;
                    self.brisk.small(&header);
                    sink.on_packet(peer, header, payload, len);
                }
                Ok(Came::Rest(offset, left))
                    if let Some(mem) = sink.fragment_target(peer, offset, left) =>
                {
                    match remote.link.fill_into(mem, left) {
                        Ok((got, more)) => {
                            *told += 1;
                            sink.fragment_written(peer, got);
                            // Of what came behind the rest, and of sealed bytes, the socket does
                            // not tell.
                            last = !more;
                            if last && !remote.link.has_come() {
                                result = Taken::All;
                                break;
                            }
                        }
                        Err(end) => {
                            result = if end == Io::Over {
                                Taken::Over
                            } else {
                                Taken::All
                            };
                            break;
                        }
                    }
                }
                Ok(Came::Ring) => *told += 1,
                Ok(Came::Nothing | Came::Rest(..)) if last => {
                    result = Taken::All;
                    break;
                }
                Ok(Came::Nothing | Came::Rest(..)) if fills == TCP_FILLS_MAX => break,
                Ok(Came::Nothing | Came::Rest(..)) => match remote.link.fill() {
                    Ok(more) => (last, fills) = (!more, fills + 1),
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
            if *told > before {
                fills = 0;
            }
        }
        // Nothing is left for the next time.
        if result == Taken::Some && last && !remote.link.has_come() {
            result = Taken::All;
        }
        // Who has just been given something may answer, and need not be kept from it.
        if remote.link.is_due() && *told > 0 && !remote.link.is_late() {
            if !self.owing.contains(&peer) {
                self.owing.push(peer);
            }
        } else if remote.link.is_due() {
            self.unconfirmed = true;
            if remote.link.acknowledge() == Sent::Over {
                result = Taken::Over;
            }
        }
        result
    }

    /// Acknowledges what was put off, unless something that was sent meanwhile has.
    #[cold]
    pub(super) fn acknowledge_late(&mut self) {
        while let Some(peer) = self.owing.pop() {
            let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
                continue;
            };
            if remote.link.is_due() {
                self.unconfirmed = true;
                if remote.link.acknowledge() == Sent::Over {
                    self.mark_ready(peer);
                }
            }
        }
    }

    fn take_bulk(&mut self, remote: &mut Remote, (peer, path): (Peer, u8)) -> Taken {
        let mut left = self.brisk.slice(Instant::now);
        while left > 0 {
            let in_body =
                |bulk: &mut Carrier| bulk.socket_mut().is_some_and(|bulk| bulk.is_in_body());
            let stays = self.patient && in_body(&mut remote.paths.at(path).bulk);
            let (got, told) = match remote.paths.at(path).bulk.fill(left) {
                Ok(step) => step,
                Err(_) => return Taken::Wrong,
            };
            let ended = match told {
                None => None,
                Some(Told::Done(piece)) => remote.paths.ended(path, piece, false),
                Some(Told::Refused(piece)) => remote.paths.ended(path, piece, true),
                Some(Told::Declined(piece)) => {
                    remote.paths.declined(piece);
                    None
                }
                Some(Told::Unsent(pieces)) => {
                    remote.paths.give_back(pieces);
                    None
                }
                Some(Told::Unused(_)) => return Taken::Over,
                Some(Told::Unread(number)) => {
                    if let Some(bulk) = remote.paths.at(path).bulk.socket_mut() {
                        bulk.keep(number, self.keep.take());
                    }
                    None
                }
                Some(Told::Asks(number, ask)) => {
                    self.asked(&mut remote.paths.at(path).bulk, peer, (number, ask));
                    None
                }
            };
            if let Some(ended) = ended {
                self.tell_of(peer, ended);
            }
            if stays
                && got != Io::Over
                && let Some(bulk) = remote.paths.at(path).bulk.socket_mut()
                && bulk.wait_for_much()
            {
                return Taken::All;
            }
            match got {
                Io::Moved(moved) => left = left.saturating_sub(moved),
                Io::Later => return Taken::All,
                Io::Over => return Taken::Over,
            }
        }
        Taken::Some
    }

    /// Whether large data are left in their sockets until there is much of them.
    pub(crate) fn be_patient(&mut self, patient: bool) {
        if std::mem::replace(&mut self.patient, patient) && !patient {
            for peer in &self.open {
                if let Some(remote) = &mut self.remotes[*peer as usize] {
                    remote.paths.hurry();
                }
            }
        }
    }

    /// A read is over.
    pub(super) fn tell_of(&mut self, peer: Peer, ended: Ended) {
        self.done.push(match ended {
            Ended::Done(token) => (token, Ok(())),
            Ended::Refused(token) => {
                let what = "it has withdrawn the memory that it had announced";
                (token, Err(Error::Peer { peer, what }))
            }
        });
    }

    fn asked(&self, bulk: &mut Carrier, peer: Peer, (number, ask): (u32, Ask)) {
        let region = self
            .regions
            .get(&ask.cookie)
            .filter(|region| region.peer == peer);
        let within = |len: u64| {
            ask.len > 0
                && ask
                    .offset
                    .checked_add(ask.len)
                    .is_some_and(|end| end <= len)
        };
        match region {
            Some(region) if within(region.data.len) => bulk.serve(number, &ask, &region.data),
            _ => bulk.refuse(number),
        }
    }
}
