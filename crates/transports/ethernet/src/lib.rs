//! The transport over plain Ethernet: packets and large data to ranks of other hosts, without
//! TCP/IP.
//!
//! An [`EthernetTransport`] is one rank's transport and belongs to its engine. Frames go through a
//! [`FrameDriver`], which may lose, repeat, change and reorder them. Packets travel as numbered
//! pieces over the engine's reliable links (`peer_link`). Large data are asked for by the receiver
//! in blocks (`block_reads`) and go from user memory to user memory. Every frame carries a tag
//! under a key that the job's secret, the world and both ends make; others are dropped and counted.
//!
//! Frames that the network does not pass, or that are too long for it, are given to whoever can
//! carry them by TCP ([`EthernetTransport::next_by_tcp`]); [`path`] decides that by probes.
//!
//! A silent peer is not lost: it may compute. Who has died or left, [`EthernetPeers`] says.
//! Bounded by the window of each peer spoken to, and [`limits`].

#![deny(unsafe_code)]

mod block_reads;
pub mod driver;
pub mod frame;
pub mod limits;
pub mod packet_socket;
mod path;
mod peer_link;
mod receive;
mod seal;
pub mod shown;
mod sys;
mod transport;
pub mod wake;
mod window;

use crate::block_reads::{BlockReads, BlockRequest};
use crate::driver::{FrameDriver, SendResult};
use crate::frame::{Ask, ETHERNET, Endpoint, FrameBody, FrameHead, FrameKey, HEAD, Mac};
use crate::limits::{BY_TCP_MAX, FRAME_BY_TCP, GOODBYES, LIVENESS_CHECK_NS, REGIONS_MAX};
pub use crate::path::Carrier;
use crate::path::{PROBE_MIN, Path, Probe};
use crate::peer_link::{PeerLink, Piece};
use crate::seal::{FrameSeal, SEAL};
use crate::shown::{PeerEntry, ShownPeers};
use crate::wake::EthernetWake;
use garonne_engine::api::{Error, Peer};
use garonne_engine::reliable::Frame;
use garonne_engine::transport::{BulkToken, PacketHeader, PollSink, WakeSource};
use garonne_sync::user::{Data, Packed, Scratch};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Reason given for a peer of which nothing else is known.
const LOST: &str = "it died or cut the connection";
/// Reason given for a peer whose pieces make no packets.
const MAD: &str = "it sent frames that make no packets";

/// Directory of the ranks that are reached by Ethernet. Peers are indices in the job's world.
pub trait EthernetPeers: Send + Sync {
    /// Returns the address of the peer's interface; `None`: this transport does not reach it.
    fn mac(&self, peer: Peer) -> Option<Mac>;
    /// Returns whether the peer is known to have ended without finishing properly.
    fn is_gone(&self, peer: Peer) -> bool;
    /// Returns whether the peer is known to have finished.
    fn has_left(&self, peer: Peer) -> bool;
}

/// Identity of a rank towards others.
pub struct EthernetIdentity {
    /// Secret of the job.
    pub secret: [u8; 32],
    /// Bytes that name job and world.
    pub world: Vec<u8>,
    /// Short name of the job, which filters know.
    pub job: u32,
    /// This rank.
    pub rank: Peer,
    /// Frames are encrypted, and others are not heard.
    pub sealed: bool,
}

/// Counts of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames sent.
    pub sent: u64,
    /// Frames that came and were right.
    pub received: u64,
    /// Frames that were no frames of this job's format, or for somebody else.
    pub malformed: u64,
    /// Frames without the right tag, or of nobody known.
    pub forged: u64,
    /// Pieces that had come before: sent again by their sender, or replayed by somebody.
    pub again: u64,
    /// Frames for which the driver had no room.
    pub no_room: u64,
    /// Frames that the system dropped for want of room.
    pub dropped: u64,
    /// Blocks asked for, repeats included.
    pub asks: u64,
    /// Blocks asked for again.
    pub asks_again: u64,
    /// Frames given to TCP.
    pub by_tcp: u64,
    /// Times that the owner went to sleep.
    pub sleeps: u64,
    /// Frames that would have woken it.
    pub waking: u64,
}

impl FrameCounts {
    /// Returns the counts in the order of their words.
    fn words(&self) -> [u64; 12] {
        [
            self.sent,
            self.received,
            self.malformed,
            self.forged,
            self.again,
            self.no_room,
            self.dropped,
            self.asks,
            self.asks_again,
            self.by_tcp,
            self.sleeps,
            self.waking,
        ]
    }

    /// Returns the counts of such words; those that are missing are 0.
    fn of_words(words: &[u64]) -> Self {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        Self {
            sent: word(0),
            received: word(1),
            malformed: word(2),
            forged: word(3),
            again: word(4),
            no_room: word(5),
            dropped: word(6),
            asks: word(7),
            asks_again: word(8),
            by_tcp: word(9),
            sleeps: word(10),
            waking: word(11),
        }
    }
}

/// Something that the engine is still to be told.
#[derive(Debug)]
enum Notice {
    Read(BulkToken, Result<(), Error>),
    Gone(Peer, &'static str),
    Left(Peer),
}

/// Memory that one peer may read.
#[derive(Debug)]
struct ExposedRegion {
    token: BulkToken,
    peer: Peer,
    data: Data,
}

/// What leaves by the driver, and who this rank is.
struct Wire {
    driver: Box<dyn FrameDriver>,
    identity: EthernetIdentity,
    mac: Mac,
    /// Memory for the frame that is being made.
    frame: Vec<u8>,
    /// The next frame need not wake its receiver.
    quiet: bool,
    /// Frames that TCP is to carry, with their receivers.
    by_tcp: VecDeque<(Peer, Vec<u8>)>,
    counts: FrameCounts,
    clock: Box<dyn Fn() -> u64 + Send>,
}

impl Wire {
    /// Bytes that encryption adds to a frame.
    fn seal(&self) -> usize {
        if self.identity.sealed { SEAL } else { 0 }
    }

    /// Sends a frame by what carries it to this peer. What has no room is as good as lost. `fill`
    /// writes its payload.
    fn transmit(
        &mut self,
        (peer, link): (Peer, &mut PeerLink),
        body: FrameBody,
        (len, fill): (usize, impl FnOnce(&mut [u8])),
    ) {
        let carrier = link.path.carries(HEAD + self.seal() + len);
        self.transmit_by(carrier, (peer, link), body, (len, fill));
    }

    fn transmit_by(
        &mut self,
        carrier: Carrier,
        (peer, link): (Peer, &mut PeerLink),
        body: FrameBody,
        (len, fill): (usize, impl FnOnce(&mut [u8])),
    ) {
        let head = FrameHead {
            to_mac: link.mac,
            from_mac: self.mac,
            ethertype: self.driver.ethertype(),
            job: self.identity.job,
            to: peer,
            from: self.identity.rank,
            quiet: std::mem::take(&mut self.quiet),
            body,
        };
        self.frame.resize(ETHERNET + HEAD + len, 0);
        fill(&mut self.frame[ETHERNET + HEAD..]);
        head.encode(&link.sends, &mut self.frame);
        if let Some((seals, _)) = &mut link.seals {
            seals.seal(&mut self.frame);
        }
        let sent = match carrier {
            Carrier::Frames => self.driver.send(&self.frame),
            Carrier::Tcp => SendResult::TooLong,
        };
        match sent {
            SendResult::Sent => self.counts.sent += 1,
            SendResult::Full => self.counts.no_room += 1,
            SendResult::TooLong => {
                if carrier == Carrier::Frames {
                    link.path.limit(self.driver.payload_max());
                }
                if self.by_tcp.len() < BY_TCP_MAX {
                    self.by_tcp.push_back((peer, self.frame.clone()));
                    self.counts.by_tcp += 1;
                }
            }
        }
    }

    fn transmit_probe(&mut self, (peer, link): (Peer, &mut PeerLink), probe: Probe) {
        let body = FrameBody::Probe {
            nonce: probe.nonce,
            sends: link.path.told() as u64,
        };
        let padding = probe.bytes.saturating_sub(PROBE_MIN + self.seal());
        let padding = (padding, |room: &mut [u8]| room.fill(0));
        let carrier = match probe.by_tcp {
            true => Carrier::Tcp,
            false => Carrier::Frames,
        };
        self.transmit_by(carrier, (peer, link), body, padding);
    }

    fn transmit_piece(
        &mut self,
        (peer, link): (Peer, &mut PeerLink),
        frame: &Frame<Piece>,
        quiet: bool,
    ) {
        let (acknowledged, selective) = (frame.acknowledged, frame.selective);
        let Some((number, piece)) = &frame.packet else {
            let body = FrameBody::Ack {
                acknowledged,
                selective,
            };
            return self.transmit((peer, link), body, (0, |_| {}));
        };
        let body = FrameBody::Piece {
            first: piece.first,
            number: *number,
            acknowledged,
            selective,
        };
        self.quiet = quiet;
        let fill = |room: &mut [u8]| room.copy_from_slice(&piece.bytes);
        self.transmit((peer, link), body, (piece.bytes.len(), fill));
    }
}

/// Returns how many bytes a frame brings that has `max` behind its Ethernet header; 0: one that TCP
/// carries. Encryption adds `seal`.
fn chunk_of(max: usize, seal: usize) -> usize {
    match max {
        0 => FRAME_BY_TCP - ETHERNET - HEAD - seal,
        max => max - HEAD - seal,
    }
}

/// One rank's Ethernet transport.
///
/// Owned by the rank's engine, or by the transport that joins several. Polls deliver what came;
/// [`EthernetTransport::nap`] keeps time for a rank that computes. Dropping it says goodbye.
pub struct EthernetTransport {
    wire: Wire,
    directory: Arc<dyn EthernetPeers>,
    links: HashMap<Peer, PeerLink>,
    /// Peers with something unacknowledged in either direction.
    active: BTreeSet<Peer>,
    /// Peers that are gone or have left.
    ended: BTreeSet<Peer>,
    rooms: Vec<Option<Scratch>>,
    regions: BTreeMap<u64, ExposedRegion>,
    next_cookie: u64,
    reads: BlockReads,
    notices: VecDeque<Notice>,
    /// Memory for a frame that is decrypted.
    opened: Vec<u8>,
    /// Packets that were taken in by a nap.
    taken: VecDeque<(Peer, PacketHeader, Vec<u8>)>,
    wake: Arc<EthernetWake>,
    shown: ShownPeers,
    checked_ns: u64,
    /// Time of the last look at frames.
    looked_ns: u64,
    /// Somebody has been asked for naps.
    nap_asked: bool,
}

impl std::fmt::Debug for EthernetTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EthernetTransport")
            .field("me", &self.wire.identity.rank)
            .field("counts", &self.wire.counts)
            .finish_non_exhaustive()
    }
}

impl EthernetTransport {
    /// A transport over a driver. `clock` gives nanoseconds.
    ///
    /// # Errors
    /// The system lacks what it needs.
    pub fn new(
        identity: EthernetIdentity,
        directory: Arc<dyn EthernetPeers>,
        driver: Box<dyn FrameDriver>,
        clock: Box<dyn Fn() -> u64 + Send>,
    ) -> Result<Self, Error> {
        let wake = Arc::new(EthernetWake::new(driver.fd())?);
        let wire = Wire {
            mac: driver.mac(),
            driver,
            identity,
            frame: Vec::new(),
            quiet: false,
            by_tcp: VecDeque::new(),
            counts: FrameCounts::default(),
            clock,
        };
        Ok(Self {
            reads: BlockReads::new(wire.driver.slots()),
            wire,
            directory,
            links: HashMap::new(),
            active: BTreeSet::new(),
            ended: BTreeSet::new(),
            rooms: Vec::new(),
            regions: BTreeMap::new(),
            next_cookie: 1,
            notices: VecDeque::new(),
            opened: Vec::new(),
            taken: VecDeque::new(),
            wake,
            shown: ShownPeers::new(),
            checked_ns: 0,
            looked_ns: 0,
            nap_asked: false,
        })
    }

    /// Returns whether this transport leads to a peer, which may have ended.
    pub fn reaches(&self, peer: Peer) -> bool {
        self.directory.mac(peer).is_some()
    }

    /// Returns where the transport's descriptors are watched.
    pub fn watched(&self) -> &Arc<EthernetWake> {
        &self.wake
    }

    /// Returns the counts of frames.
    pub fn counts(&mut self) -> FrameCounts {
        self.wire.counts.dropped = self.wire.driver.dropped();
        self.wire.counts
    }

    /// Returns the address of the table of peers ([`shown`]), which stays where it is.
    pub fn shown_at(&self) -> usize {
        self.shown.at()
    }

    /// Returns a frame that TCP is to carry, and to whom.
    pub fn by_tcp(&self) -> Option<(Peer, &[u8])> {
        let (peer, frame) = self.wire.by_tcp.front()?;
        Some((*peer, frame))
    }

    /// TCP took the frame that [`EthernetTransport::by_tcp`] returned, or never will.
    pub fn taken_by_tcp(&mut self) {
        self.wire.by_tcp.pop_front();
    }

    /// Returns whether TCP carries the frames of some peer now, so that looks at it are worth it.
    pub fn uses_tcp(&self) -> bool {
        let mut active = self.active.iter().filter_map(|peer| self.links.get(peer));
        active
            .any(|link| link.path.is_asking() || link.path.told() == 0 || link.path.peer_max() == 0)
    }

    /// Returns what carries the frames to a peer, and how many bytes they have behind their
    /// Ethernet header at most; `None`: nothing was sent there.
    pub fn path_to(&self, peer: Peer) -> Option<(Carrier, usize)> {
        let link = self.links.get(&peer)?;
        Some((link.path.carrier(), link.path.max()))
    }

    /// Pieces that were sent again.
    pub fn repeated(&self) -> u64 {
        self.links.values().map(|link| link.link.repeated()).sum()
    }

    /// The peers that something is still on its way to.
    pub fn owed(&self) -> Vec<Peer> {
        let links = self.links.iter();
        let owed = links.filter(|(_, link)| !link.is_settled());
        owed.map(|(peer, _)| *peer).collect()
    }

    /// Something lies here that came, of which no descriptor will tell.
    pub fn has_taken(&self) -> bool {
        !self.taken.is_empty() || !self.notices.is_empty()
    }

    /// Returns the link to a peer, which is made when it is first spoken to; `None`: it is not
    /// reached, or has ended.
    fn link(&mut self, peer: Peer) -> Option<&mut PeerLink> {
        if self.ended.contains(&peer) {
            return None;
        }
        if !self.links.contains_key(&peer) {
            let mac = self.directory.mac(peer)?;
            if self.directory.is_gone(peer) {
                return None;
            }
            let link = new_link(&self.wire, Endpoint { mac, rank: peer });
            self.links.insert(peer, link);
        }
        self.links.get_mut(&peer)
    }

    /// Cuts a packet into pieces and sends those for which the window has room.
    fn send_packet(&mut self, peer: Peer, header: &PacketHeader, payload: &[u8]) {
        let now_ns = (self.wire.clock)();
        let Some(link) = self.links.get_mut(&peer) else {
            return;
        };
        link.push(
            header,
            payload,
            chunk_of(link.path.told(), self.wire.seal()),
        );
        while let Some((frame, quiet)) = link.next_frame(now_ns) {
            self.wire.transmit_piece((peer, link), &frame, quiet);
        }
        self.active.insert(peer);
    }

    /// Sends requests for blocks.
    fn send_requests(&mut self, requests: Vec<BlockRequest>) {
        for request in requests {
            let Some(link) = self.links.get_mut(&request.peer) else {
                continue;
            };
            let body = FrameBody::Ask {
                request: request.request,
                cookie: request.cookie,
                offset: request.offset,
            };
            let mut bytes = [0; Ask::LEN_MAX];
            let len = request.ask.encode(&mut bytes);
            let fill = |room: &mut [u8]| room.copy_from_slice(&bytes[..len]);
            self.wire.counts.asks += 1;
            self.wire.counts.asks_again += u64::from(request.is_repeated);
            self.wire.transmit((request.peer, link), body, (len, fill));
        }
    }

    /// Sends what is due: requests, repeats, and acknowledgements if `acknowledges`.
    fn keep_time(&mut self, acknowledges: bool) {
        let now_ns = (self.wire.clock)();
        if !self.reads.is_empty() {
            let mut requests = Vec::new();
            let (links, seal) = (&self.links, self.wire.seal());
            let chunk_of_peer = |peer| {
                let max = links.get(&peer).map(|link| link.path.peer_max());
                chunk_of(max.unwrap_or(limits::FRAME_DEFAULT), seal) as u16
            };
            self.reads.due(now_ns, chunk_of_peer, &mut requests);
            self.send_requests(requests);
        }
        let (mut frames, mut probes) = (Vec::new(), Vec::new());
        for peer in self.active.clone() {
            let Some(link) = self.links.get_mut(&peer) else {
                self.active.remove(&peer);
                continue;
            };
            link.look();
            while let Some((frame, quiet)) = link.next_frame(now_ns) {
                self.wire.transmit_piece((peer, link), &frame, quiet);
            }
            let is_late = link.link.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns);
            let owes = link.link.owes_acknowledgement()
                && (acknowledges || link.unacknowledged >= limits::ACKNOWLEDGE_AFTER);
            if is_late || owes {
                link.due(now_ns, &mut frames);
                for frame in frames.drain(..) {
                    self.wire.transmit_piece((peer, link), &frame, false);
                }
            }
            let awaits = link.awaits() || self.reads.awaits(peer);
            link.path.step(now_ns, awaits, &mut probes);
            for probe in probes.drain(..) {
                self.wire.transmit_probe((peer, link), probe);
            }
            if !awaits && !link.path.is_asking() && !link.link.owes_acknowledgement() {
                self.active.remove(&peer);
                self.shown.show(&entry(peer, link));
            }
        }
        if now_ns.saturating_sub(self.checked_ns) >= LIVENESS_CHECK_NS {
            self.checked_ns = now_ns;
            self.check_lives();
            self.show();
        }
    }

    /// Writes down for those who watch from outside what is known.
    fn show(&mut self) {
        let counts = self.counts();
        self.shown.count(&counts);
        for peer in &self.active {
            if let Some(link) = self.links.get(peer) {
                self.shown.show(&entry(*peer, link));
            }
        }
    }

    /// Looks who has died or left, of the peers that were spoken to.
    fn check_lives(&mut self) {
        let met = self.links.keys().filter(|peer| !self.ended.contains(peer));
        for peer in met.copied().collect::<Vec<_>>() {
            if self.directory.is_gone(peer) {
                self.lose(peer, LOST);
            } else if self.directory.has_left(peer) {
                self.leave(peer);
            }
        }
    }

    /// Counts a peer as gone.
    fn lose(&mut self, peer: Peer, why: &'static str) {
        if !self.ended.insert(peer) {
            return;
        }
        self.forget(peer, why);
        self.notices.push_back(Notice::Gone(peer, why));
    }

    /// A peer has left in good order.
    fn leave(&mut self, peer: Peer) {
        if !self.ended.insert(peer) {
            return;
        }
        self.forget(peer, "it has left");
        self.notices.push_back(Notice::Left(peer));
    }

    fn forget(&mut self, peer: Peer, what: &'static str) {
        self.links.remove(&peer);
        self.active.remove(&peer);
        for token in self.reads.lose(peer) {
            let error = Error::Peer { peer, what };
            self.notices.push_back(Notice::Read(token, Err(error)));
        }
        self.regions.retain(|_, region| region.peer != peer);
    }

    /// Tells the engine what it is still to be told.
    fn tell(&mut self, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        // What a peer sent before its end is delivered before the end.
        while self.taken.is_empty()
            && let Some(notice) = self.notices.pop_front()
        {
            match notice {
                Notice::Read(token, result) => sink.on_bulk_done(token, result),
                Notice::Gone(peer, why) => sink.on_peer_lost(peer, why),
                Notice::Left(peer) => sink.on_peer_left(peer),
            }
            told += 1;
        }
        told
    }

    /// Gives packets that naps took in.
    fn give_taken(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        while told < budget {
            let Some((peer, header, payload)) = self.taken.pop_front() else {
                break;
            };
            sink.on_packet(peer, header, Packed::of(&payload).mem(), payload.len());
            told += 1;
        }
        told
    }

    /// Returns whether something is under way and nobody has been asked to look after it; asks
    /// once.
    #[inline]
    pub fn wants_naps(&mut self) -> bool {
        let wants = !self.nap_asked && !self.active.is_empty();
        self.nap_asked |= wants;
        wants
    }

    /// A nap is over: takes in what came, sends again what is due, acknowledges. How long the next
    /// nap is; `None`: nothing is under way.
    pub fn nap(&mut self) -> Option<Duration> {
        let (mut taken, mut came) = (std::mem::take(&mut self.taken), 0);
        // What nobody takes is left in the ring, which is bounded.
        if taken.len() < peer_link::HEADER {
            came = self.take_in(limits::FRAMES_PER_POLL, &mut |peer, header, bytes| {
                taken.push_back((peer, header, bytes.to_vec()));
            });
        }
        self.taken = taken;
        self.keep_time(true);
        if came > 0 || self.has_taken() {
            // Nothing lies in the ring any more that would wake whoever sleeps, for a message or
            // for room.
            self.wake.wake();
        }
        self.nap_asked = !self.active.is_empty();
        self.nap_asked
            .then_some(Duration::from_nanos(limits::RETRY_FIRST_NS))
    }

    /// Last words before the owner sleeps: acknowledgements that are owed, and the time to wake up.
    pub fn before_sleep(&mut self) {
        self.keep_time(true);
        self.wire.counts.sleeps += 1;
        let counts = self.counts();
        self.shown.count(&counts);
        let active = self.active.iter();
        let links = active.filter_map(|peer| {
            let link = self.links.get(peer)?;
            let awaits = link.awaits() || self.reads.awaits(*peer);
            let both = link.link.deadline_ns().into_iter();
            both.chain(link.path.deadline_ns(awaits)).min()
        });
        let until = links.chain(self.reads.deadline_ns()).min();
        let now_ns = (self.wire.clock)();
        // Whoever has died is found by a look from time to time.
        let look = (!self.links.is_empty()).then(|| Duration::from_nanos(10 * LIVENESS_CHECK_NS));
        let until = until.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns)));
        let until = until.into_iter().chain(look).min();
        self.wake.set_timer(until);
    }

    fn expose_region(&mut self, token: BulkToken, peer: Peer, data: &Data) -> Option<u64> {
        if self.regions.len() >= REGIONS_MAX {
            return None;
        }
        self.link(peer)?;
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let data = data.clone();
        self.regions
            .insert(cookie, ExposedRegion { token, peer, data });
        Some(cookie)
    }
}

/// Returns what is shown of a peer.
fn entry(peer: Peer, link: &PeerLink) -> PeerEntry {
    PeerEntry {
        peer,
        carrier: link.path.carrier(),
        sends: link.path.max() as u64,
        receives: link.path.peer_max() as u64,
        repeated: link.link.repeated(),
    }
}

/// Returns a link to a peer that nothing was sent to yet.
fn new_link(wire: &Wire, other: Endpoint) -> PeerLink {
    let path = Path::new(wire.driver.payload_max());
    let mut link = PeerLink::new(other.mac, keys(wire, other), path);
    link.seals = seals(wire, other);
    link
}

/// Returns what encrypts frames to a peer and from it, where the job asks for that.
fn seals(wire: &Wire, other: Endpoint) -> Option<(FrameSeal, FrameSeal)> {
    let identity = &wire.identity;
    let me = Endpoint {
        mac: wire.mac,
        rank: identity.rank,
    };
    let seal = |from, to| FrameSeal::derive(&identity.secret, &identity.world, from, to);
    identity.sealed.then(|| (seal(me, other), seal(other, me)))
}

/// Returns the keys of frames to and from a peer.
fn keys(wire: &Wire, other: Endpoint) -> (FrameKey, FrameKey) {
    let me = Endpoint {
        mac: wire.mac,
        rank: wire.identity.rank,
    };
    let identity = &wire.identity;
    let key = |from, to| FrameKey::derive(&identity.secret, &identity.world, from, to);
    (key(me, other), key(other, me))
}

impl Drop for EthernetTransport {
    fn drop(&mut self) {
        for _ in 0..GOODBYES {
            for (peer, link) in &mut self.links {
                self.wire
                    .transmit((*peer, link), FrameBody::Bye, (0, |_| {}));
            }
        }
    }
}
