//! The reading side of an inbox: the mailbox and the lanes, merged so that each peer's records keep
//! their order.
//!
//! A writer that sends much is granted a lane while one is free; it keeps the lane as long as it
//! lives. Before its first record there it notes the mailbox position behind its last record in the
//! mailbox, and the lane is read only once the mailbox has been read that far. So no record
//! overtakes another, without a handshake. A dead writer's lane is drained and then granted to the
//! next.

use crate::layout::{self, InboxLayout, card};
use crate::local_ranks::LocalRanks;
use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{PacketAcceptor, PacketHeader, PeekResult, PeekedPacket, PollSink};
use garonne_sync::mailbox::{Consumed, Consumer, Record};
use garonne_sync::shm::Segment;
use garonne_sync::store_policy::ReadTimer;
use garonne_transport::limits::{FETCH_AHEAD, LANE_GRANT_AFTER, LANES, STORES_FROM};
use std::sync::atomic::Ordering;
use std::time::Instant;

#[derive(Debug)]
struct IncomingRing {
    writer: u16,
    /// The rank that the writer's number stands for.
    peer: Peer,
    consumer: Consumer,
    /// The mailbox has been read as far as the writer's switch asks.
    open: bool,
    /// Times of copies out of the ring.
    reads: ReadTimer,
}

impl IncomingRing {
    /// Delivers the next record.
    #[inline(always)]
    fn take(
        &mut self,
        own: &Segment,
        broken: &mut Vec<Peer>,
        sink: &mut impl PollSink,
    ) -> Consumed {
        let (writer, peer, reads) = (self.writer, self.peer, &mut self.reads);
        self.consumer.take(|record| {
            if record.room < STORES_FROM {
                deliver(peer, record, sink, broken);
            } else {
                let record = Record { writer, ..record };
                deliver_long(peer, record, sink, broken, (own, reads));
            }
        })
    }
}

/// A rank's own inbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    own: Segment,
    /// The ranks of this host, which are the writers.
    local: LocalRanks,
    layout: InboxLayout,
    mailbox: Consumer,
    lanes: Vec<IncomingRing>,
    /// Records of each writer in the mailbox.
    counts: Vec<u32>,
    starving: bool,
    broken: Vec<Peer>,
}

impl Inbox {
    pub(crate) fn new(own: &Segment, local: LocalRanks) -> Result<Self, Error> {
        let other = || Error::Resource("the inbox has another shape");
        let layout = InboxLayout::of(own.len(), local.count()).ok_or_else(other)?;
        let mailbox = Consumer::new(own, layout.mailbox()).map_err(|_| other())?;
        Ok(Self {
            own: own.clone(),
            layout,
            mailbox,
            lanes: Vec::with_capacity(LANES),
            counts: vec![0; local.count() as usize],
            local,
            starving: false,
            broken: Vec::new(),
        })
    }

    /// Returns whether nothing was published a moment ago.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.mailbox.is_empty() && self.lanes.iter().all(|lane| lane.consumer.is_empty())
    }

    /// Returns whether packets from this peer take the time that they will always take: its lane
    /// has been filled once, or it will get none.
    pub(crate) fn is_worn_in(&self, peer: Peer) -> bool {
        let mut lanes = self.lanes.iter();
        let lane = lanes.find(|lane| lane.peer == peer);
        lane.map_or(self.lanes.len() >= LANES, |lane| {
            lane.consumer.has_been_round()
        })
    }

    /// Shows the next record of a lane, if one lies there whose payload shares its slot, nothing in
    /// the mailbox can be older, and its header can be true; and takes it if it is accepted.
    #[inline(always)]
    pub(crate) fn take_ready<A: PacketAcceptor>(&mut self, accept: A) -> PeekResult<A::Taken> {
        for lane in &mut self.lanes {
            if !lane.open {
                continue;
            }
            let Some(record) = lane.consumer.peek() else {
                continue;
            };
            let peeked = PeekedPacket {
                peer: lane.peer,
                words: record.header,
                payload: record.payload,
            };
            if PacketHeader::len_in(&record.header) as usize > record.room {
                return PeekResult::Unknown;
            }
            let Some(taken) = accept.accept(&peeked) else {
                return PeekResult::Refused;
            };
            if lane.consumer.pass() {
                self.starving = true;
            }
            return PeekResult::Taken(taken);
        }
        PeekResult::Unknown
    }

    /// Delivers one record of a lane, if one lies there and nothing in the mailbox can be older.
    #[inline(always)]
    pub(crate) fn take_one(&mut self, sink: &mut impl PollSink) -> bool {
        for lane in &mut self.lanes {
            if !lane.open {
                continue;
            }
            let taken = lane.take(&self.own, &mut self.broken, sink);
            match taken {
                Consumed::Empty => continue,
                Consumed::Broken(_) => self.broken.push(lane.peer),
                Consumed::Record | Consumed::Void => {}
            }
            self.starving |= lane.consumer.take_starving();
            return true;
        }
        false
    }

    /// Delivers up to `budget` records.
    #[inline]
    pub(crate) fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].consumer.is_empty() {
                told += self.poll_lane(lane, budget - told, sink);
            }
        }
        if !self.mailbox.is_empty() {
            told += self.poll_mailbox(budget - told, sink);
        }
        if told == 0 {
            self.mailbox.idle();
            self.starving |= self.mailbox.take_starving();
            for lane in &mut self.lanes {
                lane.consumer.idle();
                self.starving |= lane.consumer.take_starving();
            }
        }
        if !self.broken.is_empty() {
            told += self.tell_broken(sink);
        }
        told
    }

    fn poll_lane(&mut self, index: usize, budget: u32, sink: &mut impl PollSink) -> u32 {
        let lane = &mut self.lanes[index];
        if !lane.open {
            let switch = self
                .own
                .atomic_u32(layout::card_at(lane.writer) + card::SWITCH)
                .load(Ordering::Relaxed);
            if (self.mailbox.position().wrapping_sub(switch) as i32) < 0 {
                return 0;
            }
            lane.open = true;
        }
        let mut told = 0;
        while told < budget {
            if told > 0 {
                // The writer is ahead: what it left lies in its cache, and each line takes as long
                // to come as several take to handle. Not at first, which would take the line away
                // that it is just writing.
                lane.consumer.fetch_ahead(FETCH_AHEAD);
            }
            match lane.take(&self.own, &mut self.broken, sink) {
                Consumed::Record => told += 1,
                Consumed::Void => {}
                Consumed::Broken(_) => self.broken.push(lane.peer),
                Consumed::Empty => break,
            }
        }
        self.starving |= lane.consumer.take_starving();
        told
    }

    fn poll_mailbox(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        let mut told = 0;
        while told < budget {
            let mut from = 0;
            let (local, broken) = (&self.local, &mut self.broken);
            let taken = self.mailbox.take(|record| {
                from = record.writer;
                if let Some(peer) = local.peer(from) {
                    deliver(peer, record, sink, broken);
                }
            });
            match taken {
                Consumed::Record => {
                    told += 1;
                    self.count(from);
                }
                Consumed::Void => {}
                Consumed::Broken(writer) => self.broken.extend(self.local.peer(writer)),
                Consumed::Empty => break,
            }
        }
        self.starving |= self.mailbox.take_starving();
        told
    }

    #[inline(always)]
    fn count(&mut self, writer: u16) {
        if let Some(count) = self.counts.get_mut(usize::from(writer)) {
            *count = count.wrapping_add(1);
            if *count == LANE_GRANT_AFTER {
                self.grant(writer);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn grant(&mut self, writer: u16) {
        if self.lanes.len() >= LANES || self.lanes.iter().any(|lane| lane.writer == writer) {
            return;
        }
        let index = self.lanes.len();
        let Some(peer) = self.local.peer(writer) else {
            return;
        };
        let Ok(consumer) = Consumer::of_lane(&self.own, self.layout.lane(index), writer) else {
            return;
        };
        self.lanes.push(IncomingRing {
            writer,
            peer,
            consumer,
            open: false,
            reads: ReadTimer::default(),
        });
        // Release: the writer that sees the grant sees the lane's head. SYNC(lane-grant).
        self.own
            .atomic_u32(layout::card_at(writer) + card::GRANT)
            .store(index as u32 + 1, Ordering::Release);
    }

    /// Returns whether writers wait for room that is there now.
    #[inline(always)]
    pub(crate) fn is_starving(&self) -> bool {
        self.starving
    }

    /// Returns whether writers wait for room, and takes note that they are taken care of.
    #[inline(always)]
    pub(crate) fn take_starving(&mut self) -> bool {
        std::mem::take(&mut self.starving)
    }

    /// Passes over a slot that a dead writer claimed and never published. `true` if there was one.
    #[cold]
    pub(crate) fn skip_gone(&mut self, gone: &[bool]) -> bool {
        let local = &self.local;
        self.mailbox.skip_gone(&mut |writer| {
            let known = local.peer(writer).and_then(|peer| gone.get(peer as usize));
            known.copied().unwrap_or(true)
        })
    }

    /// A peer that writes what no honest one does is as good as dead.
    #[cold]
    #[inline(never)]
    fn tell_broken(&mut self, sink: &mut impl PollSink) -> u32 {
        let broken = std::mem::take(&mut self.broken);
        let told = broken.len() as u32;
        for peer in broken {
            sink.on_peer_gone(peer);
        }
        told
    }
}

/// Delivers, as [`deliver`] does, a record whose writer chooses by which stores it writes: sees
/// what reading it takes.
#[inline(never)]
fn deliver_long(
    peer: Peer,
    record: Record,
    sink: &mut impl PollSink,
    broken: &mut Vec<Peer>,
    (own, reads): (&Segment, &mut ReadTimer),
) {
    let (writer, stores) = (record.writer, record.stores);
    let len = (PacketHeader::len_in(&record.header) as usize).min(record.room);
    if !reads.wants(stores, len) {
        return deliver(peer, record, sink, broken);
    }
    let began = Instant::now();
    deliver(peer, record, sink, broken);
    if let Some(word) = reads.took(stores, len, began.elapsed()) {
        own.atomic_u64(layout::card_at(writer) + card::READS)
            .store(word, Ordering::Relaxed);
    }
}

/// Shows one record to the engine, if its header can be true.
#[inline(always)]
fn deliver(peer: Peer, record: Record, sink: &mut impl PollSink, broken: &mut Vec<Peer>) {
    let header = PacketHeader::from_words(record.header);
    if header.len as usize > record.room {
        broken.push(peer);
        return;
    }
    sink.on_packet(peer, header, record.payload, header.len as usize);
}
