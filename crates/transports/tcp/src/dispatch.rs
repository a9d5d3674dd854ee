//! What came over a peer's connections: packets to the engine, bulk data to where they belong,
//! requests for bulk data to whoever serves them.
//!
//! Part of [`TcpTransport`]; called from its polls alone. Packets first, then a slice of bulk data,
//! so that a small message stands behind one slice at most.

use crate::TcpTransport;
use crate::bulk::BulkEvent;
use crate::connection::IoResult;
use crate::frame::{ReadRequest, StreamNumber};
use crate::multipath::Path;
use crate::ofi_path::OfiPath;
use crate::packet_stream::{SendResult, StreamEvent};
use crate::path_transport::PathTransport;
use crate::peer::TcpPeer;
use garonne_engine::api::Peer;
use garonne_engine::limits::STRIPE_PATHS;
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

/// Amount that was taken from a stream.
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
        let remote = self.ctx.peers.get(peer);
        remote.is_some_and(|remote| remote.link.brings_long())
    }

    /// Takes what came from those that are ready, all sockets having been looked at, and delivers
    /// up to `budget` packets.
    pub(super) fn take_from_ready(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let turn = self.ctx.ready.begin_turn();
        let (before, mut told) = (self.pacing.last_active(), 0);
        for &peer in &turn {
            let some = self.take_from((peer, StreamKind::Both), budget.saturating_sub(told), sink);
            if some > 0 {
                self.pacing.brought(peer, before);
            }
            told += some;
        }
        self.ctx.ready.end_turn(turn);
        self.pacing.looked();
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
        let Some(mut remote) = self.ctx.peers.take(peer) else {
            return 0;
        };
        let mut told = 0;
        let small = self.take_packets(&mut remote, (peer, budget, &mut told), sink);
        let idle = remote.paths.is_idle();
        let put_off = told > 0 && !idle && self.ctx.priority.goes_first(&mut remote.went_first);
        if put_off || streams == StreamKind::Wanted && idle && !self.ctx.regions.has_recalled() {
            let condemned = remote.condemned;
            self.ctx.peers.put_back(peer, remote);
            self.took(peer, StreamNumber::Small, small);
            self.go_on(peer, put_off || small == Intake::Some, condemned);
            self.pacing.put_bulk_off(put_off);
            return told;
        }
        remote.went_first = false;
        let mut bulk = [Intake::All; STRIPE_PATHS + 1];
        let paths = remote.paths.numbers();
        let reads_done = self.ctx.notices.reads();
        for path in paths.clone() {
            // Whoever is patient waits for its socket's word.
            let is_wanted = |path: &Path| path.bulk.is_wanted() && !self.pacing.is_in_background();
            if streams == StreamKind::Both || remote.paths.get(path).is_some_and(is_wanted) {
                bulk[usize::from(path)] = self.take_bulk(&mut remote, (peer, path));
            }
        }
        if self.ctx.notices.reads() > reads_done {
            for path in paths.clone() {
                let brought = remote.paths.brought(path);
                if brought != (0, 0) {
                    self.ctx
                        .table
                        .moved(peer, StreamNumber::Bulk(path), brought);
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
        self.ctx.peers.put_back(peer, remote);
        let mut more = false;
        for (stream, taken) in std::iter::once((StreamNumber::Small, small)).chain(taken()) {
            self.took(peer, stream, taken);
            more |= taken == Intake::Some;
        }
        if self.ctx.regions.has_recalled() {
            self.ctx.settle_recalls();
        }
        self.go_on(peer, more || reads_here && !condemned, condemned);
        for (stream, taken) in taken() {
            if taken == Intake::Some || self.serves(peer, stream) {
                self.ctx.flush(peer, stream);
            }
        }
        self.ctx.spread(peer);
        self.pacing.leave_bulk(bulk.contains(&Intake::Some));
        told
    }

    /// Handles what follows from how much was taken from a stream.
    #[inline]
    fn took(&mut self, peer: Peer, stream: StreamNumber, taken: Intake) {
        match taken {
            Intake::Some | Intake::All => {}
            Intake::Over => self.connections.broke(&mut self.ctx, peer, stream),
            Intake::Wrong => self.connections.lose(&mut self.ctx, peer),
        }
    }

    /// A peer from which there is more to take is ready again; of one that counts as gone all was
    /// taken else.
    #[inline]
    fn go_on(&mut self, peer: Peer, more: bool, condemned: bool) {
        if more {
            self.ctx.ready.mark(peer);
            self.ctx.sockets.look_again();
        } else if condemned {
            self.connections.lose(&mut self.ctx, peer);
        }
    }

    fn serves(&self, peer: Peer, stream: StreamNumber) -> bool {
        let Some(remote) = self.ctx.peers.get(peer) else {
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
            match remote.link.next(self.ctx.rooms.blocks()) {
                Ok(StreamEvent::Packet(header, payload, len)) => {
                    *told += 1;
                    self.ctx.priority.small(&header);
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
            self.ctx.ready.owe(peer);
        } else if remote.link.is_due() {
            self.ctx.timers.expect_confirmation();
            if remote.link.acknowledge() == SendResult::Over {
                result = Intake::Over;
            }
        }
        result
    }

    /// Acknowledges what was put off, unless something that was sent meanwhile has.
    #[cold]
    pub(super) fn acknowledge_late(&mut self) {
        while let Some(peer) = self.ctx.ready.next_owed() {
            let Some(remote) = self.ctx.peers.get_mut(peer) else {
                continue;
            };
            if remote.link.is_due() {
                self.ctx.timers.expect_confirmation();
                if remote.link.acknowledge() == SendResult::Over {
                    self.ctx.ready.mark(peer);
                }
            }
        }
    }

    fn take_bulk(&mut self, remote: &mut TcpPeer, (peer, path): (Peer, u8)) -> Intake {
        let mut left = self.ctx.priority.slice(Instant::now);
        while left > 0 {
            let in_body =
                |bulk: &mut PathTransport| bulk.socket_mut().is_some_and(|bulk| bulk.is_in_body());
            let stays = self.pacing.is_in_background() && in_body(&mut remote.paths.at(path).bulk);
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
                        bulk.keep(number, self.prefixes.take());
                    }
                    None
                }
                Some(BulkEvent::Asks(number, ask)) => {
                    self.asked(&mut remote.paths.at(path).bulk, peer, (number, ask));
                    None
                }
            };
            if let Some(ended) = ended {
                self.ctx.tell_of(peer, ended);
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

    fn asked(&self, bulk: &mut PathTransport, peer: Peer, (number, ask): (u32, ReadRequest)) {
        match self.ctx.regions.requested(peer, &ask) {
            Some(data) => bulk.serve(number, &ask, data),
            None => bulk.refuse(number),
        }
    }
}
