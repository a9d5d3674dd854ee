//! Links of a simulated rank to its peers: a reliable link to each over all paths, and reads of
//! memory.
//!
//! Owned by the rank's transport, which tells the engine the results. Keeps the rank's timer for
//! retransmission, and the poll pace of a slow rank. Bounded by the peers spoken to.

use crate::fabric::{Arrival, FrameStream, SentFrame, SimFabric};
use crate::paths::Paths;
use crate::region_reads::{ReadMessage, ReadResult, RegionReads};
use crate::regions::RegionAccess;
use garonne_engine::api::Peer;
use garonne_engine::reliable::{Frame, Packet, ReliableLink};
use garonne_engine::transport::{BulkTransfer, PollSink};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The link to a peer.
#[derive(Debug)]
struct PeerLink {
    link: ReliableLink,
    ways: Paths,
}

/// Poll pace of a slow rank.
#[derive(Debug)]
struct PollPace {
    /// Time between two polls.
    pause_ns: u64,
    /// When the next may be.
    next_ns: u64,
    /// The rank's word at the last: another means that somebody woke it since.
    word: u32,
}

/// A decoded frame.
enum DecodedFrame {
    Frame(Frame),
    Word(ReadMessage),
}

/// Links of a rank to all its peers.
#[derive(Debug)]
pub(crate) struct PeerLinks {
    me: Peer,
    fabric: Arc<SimFabric>,
    /// To peers that were spoken to.
    lines: BTreeMap<Peer, PeerLink>,
    reads: RegionReads,
    /// Reads that are over and were not told.
    done: Vec<ReadResult>,
    gone: BTreeSet<Peer>,
    /// Peers whose links may have something due.
    active: BTreeSet<Peer>,
    /// Packets not delivered completely: sender, packet, and bytes delivered.
    pub came: VecDeque<(Peer, Packet, usize)>,
    /// When the fabric will wake this rank next, as far as asked.
    alarm_ns: Option<u64>,
    /// A slow rank's pace.
    slow: Option<PollPace>,
}

impl PeerLinks {
    pub(crate) fn new(fabric: Arc<SimFabric>, me: Peer) -> Self {
        let slow = fabric.slowness_ns(me).map(|pause_ns| PollPace {
            pause_ns,
            next_ns: 0,
            word: 0,
        });
        Self {
            me,
            fabric,
            lines: BTreeMap::new(),
            reads: RegionReads::default(),
            done: Vec::new(),
            gone: BTreeSet::new(),
            active: BTreeSet::new(),
            came: VecDeque::new(),
            alarm_ns: None,
            slow,
        }
    }

    /// Returns whether a peer can be reached.
    pub(crate) fn reaches(&self, peer: Peer) -> bool {
        peer < self.fabric.world() && !self.gone.contains(&peer)
    }

    /// Every packet sent was acknowledged or its peer is gone, and nothing came that may have to be
    /// answered.
    pub(crate) fn is_settled(&self) -> bool {
        let nothing_came = self.came.is_empty() && !self.fabric.has_arrivals(self.me);
        nothing_came && self.lines.values().all(|line| line.link.is_settled())
    }

    /// Takes what arrived, until a packet can be delivered or nothing is left. How much was told.
    pub(crate) fn look(&mut self, sink: &mut impl PollSink) -> Option<u32> {
        match self.fabric.arrival(self.me)? {
            Arrival::Gone(peer) => Some(self.lose(peer, sink)),
            Arrival::Frame(sent) => {
                self.take_in(sent);
                Some(0)
            }
        }
    }

    /// Numbers a packet and transmits it.
    pub(crate) fn send(&mut self, peer: Peer, packet: Packet) {
        let now_ns = self.fabric.now_ns();
        if let Some(link) = self.link(peer) {
            let frame = link.send(packet, now_ns);
            self.active.insert(peer);
            self.transmit_frame(peer, &frame);
        }
    }

    /// Starts a read of a peer's memory.
    pub(crate) fn read(&mut self, bulk: &BulkTransfer<'_>) {
        self.reads.begin(bulk);
        let now_ns = self.fabric.now_ns();
        // A peer that does not answer is lost in a poll.
        let _ = self.ask(now_ns);
        if let Some(at_ns) = self.reads.deadline_ns() {
            self.set_alarm(at_ns, now_ns);
        }
    }

    fn lose(&mut self, peer: Peer, sink: &mut impl PollSink) -> u32 {
        self.lines.remove(&peer);
        if !self.gone.insert(peer) {
            return 0;
        }
        self.fabric
            .regions(|regions| regions.peer_gone(self.me, peer));
        self.done.extend(self.reads.lose(peer));
        let told = self.tell(sink);
        sink.on_peer_gone(peer);
        told + 1
    }

    /// Loses a peer that did not answer.
    fn give_up(&mut self, peer: Peer, sink: &mut impl PollSink) -> u32 {
        let told = self.lose(peer, sink);
        if told > 0 {
            self.fabric.given_up(self.me, peer);
        }
        told
    }

    /// Tells of reads that are over.
    pub(crate) fn tell(&mut self, sink: &mut impl PollSink) -> u32 {
        let told = self.done.len() as u32;
        self.done
            .drain(..)
            .for_each(|(token, result)| sink.on_bulk_done(token, result));
        told
    }

    /// Returns the link to a peer that is not gone.
    fn line(&mut self, peer: Peer) -> Option<&mut PeerLink> {
        let there = peer < self.fabric.world() && !self.gone.contains(&peer);
        let ways = self.fabric.ways();
        there.then(|| {
            self.lines.entry(peer).or_insert_with(|| PeerLink {
                link: ReliableLink::default(),
                ways: Paths::new(ways),
            })
        })
    }

    /// The link to a peer that is not gone.
    pub(crate) fn link(&mut self, peer: Peer) -> Option<&mut ReliableLink> {
        self.line(peer).map(|line| &mut line.link)
    }

    /// Puts something on one of the ways to a peer, with a number if it goes again when nothing is
    /// heard of it.
    fn transmit(
        &mut self,
        peer: Peer,
        number: Option<u64>,
        (stream, bytes): (FrameStream, Vec<u8>),
    ) {
        let fabric = self.fabric.clone();
        let Some(line) = self.line(peer) else { return };
        let draw = |bound| fabric.draw(bound);
        let (way, elsewhere) = line.ways.choose(number, bytes.len() as u64, draw);
        fabric.count(|tally| tally.elsewhere += u64::from(elsewhere));
        let sent = SentFrame {
            from: self.me,
            way,
            stream,
            bytes,
        };
        fabric.transmit(peer, sent);
    }

    fn transmit_frame(&mut self, peer: Peer, frame: &Frame) {
        let number = frame.packet.as_ref().map(|(number, _)| *number);
        self.transmit(peer, number, (FrameStream::Packets, frame.encode()));
    }

    /// Takes in what came from a peer, if that is not gone and nothing changed it.
    fn take_in(&mut self, sent: SentFrame) {
        let (from, way) = (sent.from, sent.way);
        if self.gone.contains(&from) {
            return;
        }
        let read = match sent.stream {
            FrameStream::Packets => Frame::decode(&sent.bytes).map(DecodedFrame::Frame),
            FrameStream::Reads => ReadMessage::decode(&sent.bytes).map(DecodedFrame::Word),
        };
        let (Some(read), Some(line)) = (read, self.line(from)) else {
            return self.fabric.count(|tally| tally.refused += 1);
        };
        line.ways.heard(way);
        self.reads.heard(from);
        match read {
            DecodedFrame::Frame(frame) => self.take_frame(from, frame),
            DecodedFrame::Word(word) => self.take_word(from, word),
        }
    }

    fn take_frame(&mut self, from: Peer, frame: Frame) {
        let Some(line) = self.line(from) else { return };
        let mut packets = Vec::new();
        line.link.receive(frame, &mut packets);
        line.ways.forget_before(line.link.acknowledged());
        self.active.insert(from);
        self.came
            .extend(packets.into_iter().map(|packet| (from, packet, 0)));
    }

    fn take_word(&mut self, from: Peer, word: ReadMessage) {
        match word {
            ReadMessage::Ask {
                number,
                cookie,
                at,
                len,
            } => {
                let want = RegionAccess::Bytes(at, len);
                let me = self.me;
                let answer = self.fabric.regions(|regions| {
                    let permit = regions.lease(from, me, cookie, want).ok().flatten()?;
                    let mut bytes = vec![0; permit.len as usize];
                    permit.data.pack(permit.from, &mut bytes);
                    regions.give_back(cookie);
                    Some(bytes)
                });
                let answer = answer.map_or(ReadMessage::Refusal(number), |bytes| {
                    ReadMessage::Part(number, bytes)
                });
                self.transmit(from, None, (FrameStream::Reads, answer.encode()));
            }
            ReadMessage::Part(number, bytes) => match self.reads.take(from, number, &bytes) {
                None => self.fabric.count(|tally| tally.doubled += 1),
                Some(ended) => {
                    self.done.extend(ended);
                    self.fabric.count(|tally| tally.pieces += 1);
                    self.line(from).map(|line| line.ways.forget(number));
                }
            },
            ReadMessage::Refusal(number) => {
                self.done.extend(self.reads.refuse(from, number));
                self.line(from).map(|line| line.ways.forget(number));
            }
        }
    }

    /// Asks for what is wanted of peers' memory and not there in time.
    fn ask(&mut self, now_ns: u64) -> Result<(), Peer> {
        let fabric = self.fabric.clone();
        for (peer, number, word) in self.reads.due(now_ns, |bound| fabric.draw(bound))? {
            self.transmit(peer, Some(number), (FrameStream::Reads, word.encode()));
        }
        Ok(())
    }

    /// Returns whether a slow rank must not poll yet. The rank is woken when it may, if anything
    /// has arrived.
    pub(crate) fn dawdles(&mut self) -> bool {
        let Some(pace) = &mut self.slow else {
            return false;
        };
        let (now_ns, word) = (self.fabric.now_ns(), self.fabric.word(self.me));
        if now_ns >= pace.next_ns {
            (pace.next_ns, pace.word) = (now_ns + pace.pause_ns, word);
            return false;
        }
        let (next_ns, woken) = (pace.next_ns, pace.word != word);
        let waits = !self.active.is_empty() || self.reads.is_waiting();
        let has_more =
            !self.came.is_empty() || !self.done.is_empty() || self.fabric.has_arrivals(self.me);
        if (woken || waits || has_more) && self.alarm_ns != Some(next_ns) {
            self.fabric.wake_at(self.me, next_ns);
            self.alarm_ns = Some(next_ns);
        }
        true
    }

    /// Transmits acknowledgements and repeats that are due, and asks to be woken for the next.
    pub(crate) fn keep_time(&mut self, sink: &mut impl PollSink) -> u32 {
        let now_ns = self.fabric.now_ns();
        let mut told = 0;
        let mut frames: Vec<Frame> = Vec::new();
        while let Err(peer) = self.ask(now_ns) {
            told += self.give_up(peer, sink);
        }
        let mut deadline_ns = self.reads.deadline_ns();
        for peer in self.active.clone() {
            let Some(line) = self.lines.get_mut(&peer) else {
                self.active.remove(&peer);
                continue;
            };
            if line.link.due(now_ns, &mut frames).is_err() {
                // What was to go again went to nobody else.
                frames.clear();
                told += self.give_up(peer, sink);
                continue;
            }
            match line.link.deadline_ns() {
                None => drop(self.active.remove(&peer)),
                Some(at_ns) => {
                    deadline_ns = Some(deadline_ns.map_or(at_ns, |other| other.min(at_ns)))
                }
            }
            for frame in frames.drain(..) {
                self.transmit_frame(peer, &frame);
            }
        }
        if let Some(at_ns) = deadline_ns {
            self.set_alarm(at_ns, now_ns);
        }
        told
    }

    /// Asks to be woken, unless that will be sooner.
    fn set_alarm(&mut self, at_ns: u64, now_ns: u64) {
        if self
            .alarm_ns
            .is_none_or(|alarm_ns| alarm_ns <= now_ns || at_ns < alarm_ns)
        {
            self.fabric.wake_at(self.me, at_ns);
            self.alarm_ns = Some(at_ns);
        }
    }
}
