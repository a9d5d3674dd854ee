//! Who is on this node and where things lie: the [`NodePeers`] that the transport is told, and the
//! writing end to each peer.

use crate::layout::{self, InboxLayout, card};
use crate::local_ranks::LocalRanks;
use garonne_engine::api::{Error, Peer};
use garonne_sync::copy::StoreKind;
use garonne_sync::doorbell::Doorbell;
use garonne_sync::mailbox::Producer;
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_sync::shm::{Segment, SharedWord};
use garonne_sync::slot_batch::SlotBatch;
use garonne_sync::store_policy::{ReadCosts, StoreChooser};
use garonne_sync::user::UserMem;
use garonne_transport::limits::COLL_HEAP_BYTES;
use garonne_transport::limits::STORES_FROM;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Way in which a peer's memory can be reached from this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerProcess {
    /// A thread of this process: plain copies reach its memory.
    Same,
    /// Another process that this one can name.
    Other {
        /// Process id in this process's namespace.
        pid: u32,
        /// True if the id cannot be given to another process while the job runs (its dead body
        /// stays unreaped).
        kept: bool,
    },
    /// Unknown yet, or in another PID namespace: only packets reach it.
    Unreachable,
}

/// The ranks of a node as the transport needs to know them. Peers are indices in the job's world.
pub trait NodePeers: Send + Sync {
    /// This rank.
    fn me(&self) -> Peer;
    /// Ranks of the world.
    fn size(&self) -> u32;
    /// The ranks of this node, which write to each other's inboxes: all of the world, where there
    /// is one node.
    fn local_ranks(&self) -> LocalRanks {
        LocalRanks::all(self.size())
    }
    /// This rank's inbox, zeroed when the job began.
    fn own_inbox(&self) -> Segment;
    /// Maps a peer's inbox.
    ///
    /// # Errors
    /// `UnreachablePeers` where the system has no room for it.
    fn map_inbox(&self, peer: Peer) -> Result<Segment, Error>;
    /// Writes a word of a peer's inbox that could not be mapped. A peer that this does not reach
    /// waits for what does not come.
    fn write_unmapped(&self, _peer: Peer, _at: usize, _word: u32) {}
    /// The doorbell word of a rank: a segment of four bytes. `None`: no such rank.
    fn doorbell(&self, peer: Peer) -> Option<Segment>;
    /// The two words by which a rank's progress thread is called (`garonne_sync::progress_owner`):
    /// a segment of eight bytes. `None`: it never has one.
    fn progress_words(&self, _peer: Peer) -> Option<Segment> {
        None
    }
    /// Returns how a peer's memory can be reached.
    fn process(&self, peer: Peer) -> PeerProcess;
    /// Returns whether the peer's process has ended without finishing properly.
    fn is_gone(&self, peer: Peer) -> bool;
    /// The memory that all ranks of the node share for collectives, the same and zeroed for all;
    /// `None`: there is none.
    fn commons(&self) -> Option<Segment>;
}

/// Wakes whoever of a rank sleeps, after something that brings no packet: a thread of its program,
/// or its progress thread if that waits for such things.
#[cold]
pub(crate) fn wake(node_peers: &dyn NodePeers, peer: Peer, what: WakeupScope) {
    if let Some(bell) = node_peers.doorbell(peer) {
        Doorbell::new(bell.atomic_u32(0)).ring_fenced();
    }
    if let Some(progress_words) = node_peers.progress_words(peer) {
        ProgressWakeup::new(progress_words.atomic_u32(0), progress_words.atomic_u32(4)).ring(what);
    }
}

/// The writing end to one peer.
#[derive(Debug)]
pub(crate) struct Sender {
    mailbox: Producer,
    lane: Option<Producer>,
    /// Way in which payloads are written there.
    stores: StoreChooser,
    /// Value of the grant word that `lane` follows.
    held: u32,
    /// The bell of the peer.
    bell: SharedWord,
    /// The words that call the peer's progress thread.
    progress_words: Option<(SharedWord, SharedWord)>,
    /// The lane that the peer grants to this rank.
    grant: SharedWord,
    inbox: Segment,
    /// This rank's card in the peer's inbox.
    card: Segment,
    layout: InboxLayout,
    /// Local number of this rank.
    me: u16,
}

impl Sender {
    pub(crate) fn open(node_peers: &dyn NodePeers, me: u16, peer: Peer) -> Result<Self, Error> {
        let local = node_peers.local_ranks();
        if local.number(peer).is_none() {
            return Err(Error::Misuse("shared memory with a rank of another host"));
        }
        let inbox = if peer == node_peers.me() {
            node_peers.own_inbox()
        } else {
            node_peers.map_inbox(peer)?
        };
        let bell = node_peers
            .doorbell(peer)
            .ok_or(Error::Misuse("a peer without a doorbell"))?;
        let layout = InboxLayout::of(inbox.len(), local.count()).ok_or(Error::Peer {
            peer,
            what: "its inbox is smaller than this number of ranks needs",
        })?;
        let mailbox = Producer::mailbox(&inbox, layout.mailbox(), me).map_err(|_| Error::Peer {
            peer,
            what: "its inbox has another shape",
        })?;
        let own_card = inbox.part(layout::card_at(me), garonne_sync::mailbox::RANK_BLOCK_BYTES);
        Ok(Self {
            mailbox,
            lane: None,
            stores: StoreChooser::default(),
            held: 0,
            bell: bell.word(0),
            progress_words: node_peers
                .progress_words(peer)
                .map(|progress_words| (progress_words.word(0), progress_words.word(4))),
            grant: own_card.word(card::GRANT),
            inbox,
            card: own_card,
            layout,
            me,
        })
    }

    #[inline(always)]
    pub(crate) fn bell(&self) -> Doorbell<'_> {
        Doorbell::new(&self.bell)
    }

    /// Wakes the peer, as [`garonne_engine::transport::Transport`] says.
    #[inline]
    pub(crate) fn nudge(&self, what: WakeupScope) {
        if let Some((word, all)) = &self.progress_words {
            ProgressWakeup::new(word, all).ring(what);
        }
    }

    /// Returns whether the next record goes through a lane. Follows what the peer grants.
    #[inline(always)]
    pub(crate) fn uses_lane(&mut self) -> bool {
        // Acquire: the lane was drained before it was granted. SYNC(lane-grant).
        let grant = self.grant.load(Ordering::Acquire);
        if grant != self.held {
            self.follow(grant);
        }
        self.lane.is_some()
    }

    /// Sends a small record through the lane and wakes the peer, if there is one (a lane once
    /// granted stays) and it has room at first glance.
    #[inline(always)]
    pub(crate) fn send_inline(&mut self, header: [u64; 3], bytes: UserMem, len: usize) -> bool {
        let sent = self
            .lane
            .as_mut()
            .is_some_and(|lane| lane.send_inline(header, bytes, len));
        if sent {
            self.bell().ring();
        }
        sent
    }

    /// The run of the lane, if there is one.
    pub(crate) fn run(&mut self) -> Option<Arc<SlotBatch>> {
        self.lane.as_mut().map(|lane| lane.run(&self.bell))
    }

    /// Opens it for at most so many records: for how many.
    pub(crate) fn open_run(&mut self, records: u32) -> u32 {
        self.lane.as_mut().map_or(0, |lane| lane.open_run(records))
    }

    /// Sends a record whose bytes do not fit into its slot, as `send_inline` does for one whose
    /// bytes do.
    #[inline(never)]
    pub(crate) fn send_beside(&mut self, header: [u64; 3], bytes: UserMem, len: usize) -> bool {
        let (stores, began) = self.stores_for(true, len);
        let sent = self
            .lane
            .as_mut()
            .is_some_and(|lane| lane.send(header, bytes, len, stores).is_ok());
        if sent {
            self.bell().ring();
            if let Some(began) = began {
                self.took(stores, len, began);
            }
        }
        sent
    }

    /// Which stores write a payload of `len` bytes, and since when, if that is measured.
    #[inline(always)]
    pub(crate) fn stores_for(&mut self, lane: bool, len: usize) -> (StoreKind, Option<Instant>) {
        if !lane || len < STORES_FROM {
            return (StoreKind::Cached, None);
        }
        let (stores, timed) = self.stores.next(len);
        (stores, timed.then(Instant::now))
    }

    /// A payload of `len` bytes was written since then.
    #[inline(never)]
    pub(crate) fn took(&mut self, stores: StoreKind, len: usize, began: Instant) {
        let reads = self.card.atomic_u64(card::READS).load(Ordering::Relaxed);
        self.stores
            .took(stores, len, began.elapsed(), ReadCosts::from_word(reads));
    }

    /// The ring that the next record goes through.
    #[inline(always)]
    pub(crate) fn producer(&mut self) -> &mut Producer {
        let lane = self.uses_lane();
        self.producer_of(lane)
    }

    /// The ring that a claim was made in.
    #[inline(always)]
    pub(crate) fn producer_of(&mut self, lane: bool) -> &mut Producer {
        match &mut self.lane {
            Some(producer) if lane => producer,
            _ => &mut self.mailbox,
        }
    }

    #[cold]
    #[inline(never)]
    fn follow(&mut self, grant: u32) {
        self.held = grant;
        // A lane once granted stays (see `inbox`), and a mad peer's number names none.
        if self.lane.is_none() && (1..=garonne_transport::limits::LANES as u32).contains(&grant) {
            let place = self.layout.lane(grant as usize - 1);
            self.lane = Producer::lane(&self.inbox, place, self.me).ok();
            self.card
                .atomic_u32(card::SWITCH)
                .store(self.mailbox.position(), Ordering::Relaxed);
            // Ordered before the lane's first stamp, whose Release the reader acquires.
            // SYNC(ring-stamp).
            self.card
                .atomic_u32(card::HELD)
                .store(grant, Ordering::Relaxed);
        }
    }
}

/// Ranks that are threads of one process: inboxes and doorbells in plain memory.
#[derive(Clone, Debug)]
pub struct ThreadPeers {
    me: Peer,
    inboxes: Arc<[Segment]>,
    bells: Segment,
    commons: Segment,
}

/// Bytes between two doorbells of [`ThreadPeers`], so that no two share a cache line.
const BELL_BYTES: usize = 128;

/// Place where the words for a progress thread lie behind a doorbell.
const ASYNC_PROGRESS_AT: usize = 8;

impl ThreadPeers {
    /// `ranks` ranks that see each other.
    pub fn new(ranks: u32) -> Result<Vec<Self>, Error> {
        let memory = |len| {
            Segment::anonymous(len)
                .map_err(|_| Error::Resource("no memory for the inboxes of thread ranks"))
        };
        let inboxes = (0..ranks)
            .map(|_| memory(layout::inbox_bytes(ranks)))
            .collect::<Result<Arc<[_]>, _>>()?;
        let bells = memory((ranks.max(1) as usize) * BELL_BYTES)?;
        let commons = memory(ranks.max(1) as usize * COLL_HEAP_BYTES)?;
        Ok((0..ranks)
            .map(|me| Self {
                me,
                inboxes: inboxes.clone(),
                bells: bells.clone(),
                commons: commons.clone(),
            })
            .collect())
    }
}

impl NodePeers for ThreadPeers {
    fn me(&self) -> Peer {
        self.me
    }
    fn size(&self) -> u32 {
        self.inboxes.len() as u32
    }
    fn own_inbox(&self) -> Segment {
        self.inboxes[self.me as usize].clone()
    }
    fn map_inbox(&self, peer: Peer) -> Result<Segment, Error> {
        self.inboxes
            .get(peer as usize)
            .cloned()
            .ok_or(Error::Misuse("no such rank"))
    }
    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        (peer < self.size()).then(|| self.bells.part(peer as usize * BELL_BYTES, 4))
    }
    fn progress_words(&self, peer: Peer) -> Option<Segment> {
        (peer < self.size()).then(|| {
            self.bells
                .part(peer as usize * BELL_BYTES + ASYNC_PROGRESS_AT, 8)
        })
    }
    fn process(&self, _peer: Peer) -> PeerProcess {
        PeerProcess::Same
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
    fn commons(&self) -> Option<Segment> {
        Some(self.commons.clone())
    }
}
