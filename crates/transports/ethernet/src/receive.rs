//! What happens with a frame that came: part of the [`EthernetTransport`].
//!
//! Nothing of a frame counts before its tag is right. Then pieces go to their link, requests for
//! blocks are answered, and blocks are written where they belong.

use crate::chunk_of;
use crate::driver::SendResult;
use crate::frame::{Ask, Endpoint, FrameBody, FrameHead};
use crate::limits::{FRAME_LEAST, FRAME_MAX};
use crate::peer_link::{BadPiece, PeerLink, Piece};
use crate::{Carrier, EthernetTransport, LOST, MAD, Notice, frame, new_link, seals};
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{PacketHeader, PollSink};
use garonne_sync::user::Packed;

/// Receiver of packets that are complete.
type Deliver<'a> = &'a mut dyn FnMut(Peer, PacketHeader, &[u8]);

/// A request for a block that came.
struct CameAsk {
    peer: Peer,
    request: u64,
    cookie: u64,
    offset: u64,
    ask: Ask,
}

/// Work that a frame leaves for after the ring was looked at.
#[derive(Default)]
struct Leftover {
    /// Probes to answer, on the way by which they came.
    probes: Vec<(Peer, u64, Carrier)>,
    asks: Vec<CameAsk>,
    mad: Vec<Peer>,
    left: Vec<Peer>,
}

impl EthernetTransport {
    /// Takes in up to `budget` frames, and gives the packets that they complete. Returns how many
    /// frames came.
    pub(crate) fn take_in(&mut self, budget: u32, deliver: Deliver<'_>) -> u32 {
        let mut leftover = Leftover::default();
        self.looked_ns = (self.wire.clock)();
        // The driver lends its frames while it is borrowed.
        let mut driver = std::mem::replace(&mut self.wire.driver, Box::new(NoDriver));
        let came = driver.receive(budget, &mut |frame| {
            self.frame((frame, Carrier::Frames), &mut leftover, deliver)
        });
        self.wire.driver = driver;
        self.finish(leftover);
        came
    }

    /// Takes in a frame of a peer that TCP carried, and gives the packets that it completes.
    pub fn take_by_tcp(&mut self, peer: Peer, frame: &[u8], sink: &mut impl PollSink) {
        let mut leftover = Leftover::default();
        self.looked_ns = (self.wire.clock)();
        let mut deliver = |from, header, bytes: &[u8]| {
            // Who may send by a connection sends for itself alone.
            if from == peer {
                sink.on_packet(from, header, Packed::of(bytes).mem(), bytes.len());
            }
        };
        self.frame((frame, Carrier::Tcp), &mut leftover, &mut deliver);
        self.finish(leftover);
    }

    fn finish(&mut self, leftover: Leftover) {
        for (peer, nonce, carrier) in leftover.probes {
            if let Some(link) = self.links.get_mut(&peer) {
                let body = FrameBody::ProbeAnswer { nonce };
                self.wire
                    .transmit_by(carrier, (peer, link), body, (0, |_| {}));
            }
        }
        for ask in leftover.asks {
            self.answer(&ask);
        }
        for peer in leftover.mad {
            self.lose(peer, MAD);
        }
        for peer in leftover.left {
            self.leave(peer);
        }
    }

    fn frame(
        &mut self,
        (frame, carrier): (&[u8], Carrier),
        leftover: &mut Leftover,
        deliver: Deliver<'_>,
    ) {
        if !self.wire.identity.sealed {
            return self.plain_frame((frame, carrier), leftover, deliver);
        }
        let mut opened = std::mem::take(&mut self.opened);
        match self.open(frame, &mut opened) {
            true => self.plain_frame((&opened, carrier), leftover, deliver),
            false => self.wire.counts.forged += 1,
        }
        self.opened = opened;
    }

    /// Decrypts a frame. `false`: its sender did not make it.
    fn open(&self, frame: &[u8], opened: &mut Vec<u8>) -> bool {
        let Some(sender) = frame::sender(frame) else {
            return false;
        };
        if let Some(link) = self.links.get(&sender.rank) {
            let opens = link.seals.as_ref();
            return opens.is_some_and(|(_, opens)| opens.open(frame, opened));
        }
        let is_known = self.directory.mac(sender.rank) == Some(sender.mac);
        let opens = seals(&self.wire, sender).filter(|_| is_known);
        opens.is_some_and(|(_, opens)| opens.open(frame, opened))
    }

    fn plain_frame(
        &mut self,
        (frame, carrier): (&[u8], Carrier),
        leftover: &mut Leftover,
        deliver: Deliver<'_>,
    ) {
        let identity = &self.wire.identity;
        let Some((head, payload)) = FrameHead::decode(frame) else {
            self.wire.counts.malformed += 1;
            return;
        };
        if head.job != identity.job || head.to != identity.rank || head.from == identity.rank {
            self.wire.counts.malformed += 1;
            return;
        }
        let peer = head.from;
        // Who has ended may still be heard.
        if self.ended.contains(&peer) {
            return;
        }
        if !self.links.contains_key(&peer) && !self.meet(&head, frame, payload) {
            self.wire.counts.forged += 1;
            return;
        }
        let Some(link) = self.links.get_mut(&peer) else {
            return;
        };
        if head.from_mac != link.mac || !link.receives.verifies(frame, payload) {
            self.wire.counts.forged += 1;
            return;
        }
        self.wire.counts.received += 1;
        self.wire.counts.waking += u64::from(!head.quiet);
        let now_ns = self.looked_ns;
        if carrier == Carrier::Tcp {
            link.path.came_by_tcp();
            self.active.insert(peer);
        }
        match head.body {
            FrameBody::Piece {
                first,
                number,
                acknowledged,
                selective,
            } => {
                if link.acknowledge(acknowledged, selective) {
                    link.path.progress(now_ns);
                }
                self.wire.counts.again += u64::from(number < link.taken);
                link.unacknowledged += 1;
                self.active.insert(peer);
                let mut deliver = |header, bytes: &[u8]| deliver(peer, header, bytes);
                if piece(link, number, (first, payload), &mut deliver).is_err() {
                    leftover.mad.push(peer);
                }
            }
            FrameBody::Ack {
                acknowledged,
                selective,
            } => {
                if link.acknowledge(acknowledged, selective) {
                    link.path.progress(now_ns);
                }
            }
            FrameBody::Ask {
                request,
                cookie,
                offset,
            } => match Ask::decode(payload) {
                Some(ask) => leftover.asks.push(CameAsk {
                    peer,
                    request,
                    cookie,
                    offset,
                    ask,
                }),
                None => leftover.mad.push(peer),
            },
            FrameBody::Block { request, index } => {
                link.path.progress(now_ns);
                match self.reads.take((peer, request, index), payload, now_ns) {
                    Ok(Some(token)) => self.notices.push_back(Notice::Read(token, Ok(()))),
                    Ok(None) => {}
                    Err(()) => leftover.mad.push(peer),
                }
            }
            FrameBody::Refused { request } => {
                if let Some(token) = self.reads.refuse(peer, request) {
                    let error = Error::Peer { peer, what: LOST };
                    self.notices.push_back(Notice::Read(token, Err(error)));
                }
            }
            FrameBody::Bye => leftover.left.push(peer),
            FrameBody::Probe { nonce, sends } => {
                let sends = usize::try_from(sends).unwrap_or(usize::MAX);
                if sends != 0 && !(FRAME_LEAST..=FRAME_MAX).contains(&sends) {
                    return leftover.mad.push(peer);
                }
                link.path.hear(nonce, sends);
                leftover.probes.push((peer, nonce, carrier));
            }
            FrameBody::ProbeAnswer { nonce } => link.path.answered(nonce, now_ns),
        }
    }

    /// Makes the link to a peer that speaks first, if its first frame has the right tag.
    fn meet(&mut self, head: &FrameHead, frame: &[u8], payload: &[u8]) -> bool {
        let peer = head.from;
        let Some(mac) = self.directory.mac(peer).filter(|mac| *mac == head.from_mac) else {
            return false;
        };
        let link = new_link(&self.wire, Endpoint { mac, rank: peer });
        if !link.receives.verifies(frame, payload) {
            return false;
        }
        self.links.insert(peer, link);
        true
    }

    /// Sends the frames of a block that a peer asks for.
    fn answer(&mut self, came: &CameAsk) {
        let Some(link) = self.links.get_mut(&came.peer) else {
            return;
        };
        link.note_request(came.request);
        if link.asked.1 {
            self.active.insert(came.peer);
        }
        let (chunk, len) = (u64::from(came.ask.chunk), u64::from(came.ask.len));
        let region = self.regions.get(&came.cookie);
        let region = region.filter(|region| {
            let end = came.offset.checked_add(len);
            let fits = chunk > 0 && chunk <= chunk_of(0, 0) as u64;
            region.peer == came.peer && fits && end.is_some_and(|end| end <= region.data.len)
        });
        let Some(region) = region else {
            let body = FrameBody::Refused {
                request: came.request,
            };
            return self.wire.transmit((came.peer, link), body, (0, |_| {}));
        };
        let last = came.ask.missing.last();
        for index in came.ask.missing.iter() {
            let first = index * chunk;
            if first >= len {
                return;
            }
            let body = FrameBody::Block {
                request: came.request,
                index,
            };
            let fill = |room: &mut [u8]| region.data.pack(came.offset + first, room);
            let bytes = (len - first).min(chunk) as usize;
            self.wire.quiet = came.ask.ends_quietly || Some(index) != last;
            self.wire
                .transmit((came.peer, &mut *link), body, (bytes, fill));
        }
    }
}

/// Takes a piece in: delivers it, and what came early behind it, or keeps it until its turn.
fn piece(
    link: &mut PeerLink,
    number: u64,
    (first, bytes): (bool, &[u8]),
    deliver: &mut dyn FnMut(PacketHeader, &[u8]),
) -> Result<(), BadPiece> {
    if !link.link.accept_next(number) {
        let piece = Piece {
            first,
            ends: true,
            bytes: bytes.into(),
        };
        link.link.keep_early(number, piece);
        return Ok(());
    }
    link.taken += 1;
    link.assemble((first, bytes), deliver)?;
    let mut early = Vec::new();
    link.link.deliver_early(&mut early);
    link.taken += early.len() as u64;
    for piece in early {
        link.assemble((piece.first, &piece.bytes), deliver)?;
    }
    Ok(())
}

/// Stands for the driver while it lends frames: nothing is sent or received meanwhile.
struct NoDriver;

impl crate::driver::FrameDriver for NoDriver {
    fn mac(&self) -> crate::frame::Mac {
        [0; 6]
    }
    fn payload_max(&self) -> usize {
        crate::limits::FRAME_MIN
    }
    fn slots(&self) -> usize {
        0
    }
    fn ethertype(&self) -> u16 {
        0
    }
    fn send(&mut self, _: &[u8]) -> SendResult {
        SendResult::Full
    }
    fn receive(&mut self, _: u32, _: &mut dyn FnMut(&[u8])) -> u32 {
        0
    }
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}
