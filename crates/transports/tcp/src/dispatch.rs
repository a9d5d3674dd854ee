//! What came over a peer's connections: packets to the engine, bulk data to where they belong,
//! requests for bulk data to whoever serves them.
//!
//! Part of [`TcpTransport`]; called from its polls alone. Packets first, then a slice of bulk data,
//! so that a small message stands behind one slice at most.

use crate::TcpTransport;
use crate::bulk::BulkEvent;
use crate::connection::IoResult;
use crate::frame::{ReadRequest, StreamNumber};
use crate::multipath::{Path, ReadResult};
use crate::ofi_path::OfiPath;
use crate::packet_stream::{SendResult, StreamEvent};
use crate::path_transport::PathTransport;
use crate::peer::TcpPeer;
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::STRIPE_RAILS;
use garonne_engine::transport::PollSink;
use garonne_transport::limits::TCP_FILLS_MAX;
use std::time::Instant;

/// Which streams of a peer to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    Both,
    /// Packets, and bulk data if this side asked for some.
    Wanted,
}

/// How much was taken from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intake {
    /// Everything that was there.
    All,
    /// There may be more.
    Some,
    /// And it has ended.
    Over,
    /// The peer broke the format.
    Wrong,
}

impl TcpTransport {
    /// Returns whether what comes next from a peer may be long. To receive in vain from such a
    /// socket holds up the kernel, which is about to put something there; the epoll tells of it
    /// without.
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
            let some = self.take_from((peer, StreamKind::Both), budget.saturating_sub(told), sink);
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
        (peer, streams): (Peer, StreamKind),
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
        if put_off || streams == StreamKind::Wanted && idle && self.recalled.is_empty() {
            let condemned = remote.condemned;
            self.remotes[peer as usize] = Some(remote);
            self.took(peer, StreamNumber::Small, small);
            self.go_on(peer, put_off || small == Intake::Some, condemned);
            self.put_off = put_off;
            return told;
        }
        remote.went_first = false;
        let mut bulk = [Intake::All; STRIPE_RAILS + 1];
        let paths = remote.paths.numbers();
        let reads_done = self.done.len();
        for path in paths.clone() {
            // Whoever is patient waits for its socket's word.
            let is_wanted = |path: &Path| path.bulk.is_wanted() && !self.patient;
            if streams == StreamKind::Both || remote.paths.get(path).is_some_and(is_wanted) {
                bulk[usize::from(path)] = self.take_bulk(&mut remote, (peer, path));
            }
        }
        if self.done.len() > reads_done {
            for path in paths.clone() {
                let brought = remote.paths.brought(path);
                if brought != (0, 0) {
                    self.shown.moved(peer, StreamNumber::Bulk(path), brought);
                }
            }
        }
        let taken = || {
            paths
                .clone()
                .map(|path| (StreamNumber::Bulk(path), bulk[usize::from(path)]))
        };
        let condemned = remote.condemned;
        let reads_here = remote.paths.fabric().is_some_and(OfiPath::needs_polls);
        self.remotes[peer as usize] = Some(remote);
        let mut more = false;
        for (stream, taken) in std::iter::once((StreamNumber::Small, small)).chain(taken()) {
            self.took(peer, stream, taken);
            more |= taken == Intake::Some;
        }
        if !self.recalled.is_empty() {
            self.settle_recalls();
        }
        self.go_on(peer, more || reads_here && !condemned, condemned);
        for (stream, taken) in taken() {
            if taken == Intake::Some || self.serves(peer, stream) {
                self.flush(peer, stream);
            }
        }
        self.spread(peer);
        self.sliced |= bulk.contains(&Intake::Some);
        told
    }

    /// Handles what follows from how much was taken from a stream.
    #[inline]
    fn took(&mut self, peer: Peer, stream: StreamNumber, taken: Intake) {
        match taken {
            Intake::Some | Intake::All => {}
            Intake::Over => self.broke(peer, stream),
            Intake::Wrong => self.lose(peer),
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

    fn serves(&self, peer: Peer, stream: StreamNumber) -> bool {
        let Some(remote) = self.remotes[peer as usize].as_ref() else {
            return false;
        };
        let StreamNumber::Bulk(path) = stream else {
            return false;
        };
        let path = remote.paths.get(path);
        path.is_some_and(|path| path.bulk.has_to_send() && !path.calls.watches_room)
    }

    fn take_packets(
        &mut self,
        remote: &mut TcpPeer,
        (peer, budget, told): (Peer, u32, &mut u32),
        sink: &mut impl PollSink,
    ) -> Intake {
        if !remote.link.is_up() {
            return Intake::All;
        }
        let (mut last, mut result) = (false, Intake::Some);
        // Since the last packet.
        let mut fills = 0;
        while *told < budget {
            let before = *told;
            match remote.link.next(&mut self.blocks) {
                Ok(StreamEvent::Packet(header, payload, len)) => {
                    *told += 1;
                    self.brisk.small(&header);
                    sink.on_packet(peer, header, payload, len);
                }
                Ok(StreamEvent::Rest(offset, left))
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
                                result = Intake::All;
                                break;
                            }
                        }
                        Err(end) => {
                            result = if end == IoResult::Over {
                                Intake::Over
                            } else {
                                Intake::All
                            };
                            break;
                        }
                    }
                }
                Ok(StreamEvent::Ring) => *told += 1,
                Ok(StreamEvent::Nothing | StreamEvent::Rest(..)) if last => {
                    result = Intake::All;
                    break;
                }
                Ok(StreamEvent::Nothing | StreamEvent::Rest(..)) if fills == TCP_FILLS_MAX => break,
                Ok(StreamEvent::Nothing | StreamEvent::Rest(..)) => match remote.link.fill() {
                    Ok(more) => (last, fills) = (!more, fills + 1),
                    Err(IoResult::Over) => {
                        result = Intake::Over;
                        break;
                    }
                    Err(_) => {
                        result = Intake::All;
                        break;
                    }
                },
                Err(_) => return Intake::Wrong,
            }
            if *told > before {
                fills = 0;
            }
        }
        // Nothing is left for the next time.
        if result == Intake::Some && last && !remote.link.has_come() {
            result = Intake::All;
        }
        // Who has just been given something may answer, and need not be kept from it.
        if remote.link.is_due() && *told > 0 && !remote.link.is_late() {
            if !self.owing.contains(&peer) {
                self.owing.push(peer);
            }
        } else if remote.link.is_due() {
            self.unconfirmed = true;
            if remote.link.acknowledge() == SendResult::Over {
                result = Intake::Over;
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
                if remote.link.acknowledge() == SendResult::Over {
                    self.mark_ready(peer);
                }
            }
        }
    }

    fn take_bulk(&mut self, remote: &mut TcpPeer, (peer, path): (Peer, u8)) -> Intake {
        let mut left = self.brisk.slice(Instant::now);
        while left > 0 {
            let in_body =
                |bulk: &mut PathTransport| bulk.socket_mut().is_some_and(|bulk| bulk.is_in_body());
            let stays = self.patient && in_body(&mut remote.paths.at(path).bulk);
            let (got, told) = match remote.paths.at(path).bulk.fill(left) {
                Ok(step) => step,
                Err(_) => return Intake::Wrong,
            };
            let ended = match told {
                None => None,
                Some(BulkEvent::Done(piece)) => remote.paths.ended(path, piece, false),
                Some(BulkEvent::Refused(piece)) => remote.paths.ended(path, piece, true),
                Some(BulkEvent::Declined(piece)) => {
                    remote.paths.declined(piece);
                    None
                }
                Some(BulkEvent::Unsent(pieces)) => {
                    remote.paths.give_back(pieces);
                    None
                }
                Some(BulkEvent::Unused(_)) => return Intake::Over,
                Some(BulkEvent::Unread(number)) => {
                    if let Some(bulk) = remote.paths.at(path).bulk.socket_mut() {
                        bulk.keep(number, self.keep.take());
                    }
                    None
                }
                Some(BulkEvent::Asks(number, ask)) => {
                    self.asked(&mut remote.paths.at(path).bulk, peer, (number, ask));
                    None
                }
            };
            if let Some(ended) = ended {
                self.tell_of(peer, ended);
            }
            if stays
                && got != IoResult::Over
                && let Some(bulk) = remote.paths.at(path).bulk.socket_mut()
                && bulk.wait_for_much()
            {
                return Intake::All;
            }
            match got {
                IoResult::Moved(moved) => left = left.saturating_sub(moved),
                IoResult::Later => return Intake::All,
                IoResult::Over => return Intake::Over,
            }
        }
        Intake::Some
    }

    /// Sets whether large data are left in their sockets until there is much of them.
    pub fn be_patient(&mut self, patient: bool) {
        if std::mem::replace(&mut self.patient, patient) && !patient {
            for peer in &self.open {
                if let Some(remote) = &mut self.remotes[*peer as usize] {
                    remote.paths.hurry();
                }
            }
        }
    }

    /// A read is over.
    pub(super) fn tell_of(&mut self, peer: Peer, ended: ReadResult) {
        self.done.push(match ended {
            ReadResult::Done(token) => (token, Ok(())),
            ReadResult::Refused(token) => {
                let what = "it has withdrawn the memory that it had announced";
                (token, Err(Error::Peer { peer, what }))
            }
        });
    }

    fn asked(&self, bulk: &mut PathTransport, peer: Peer, (number, ask): (u32, ReadRequest)) {
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
