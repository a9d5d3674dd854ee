//! A transport made of locked queues between threads of one process: plain, bounded, correct. For
//! tests of what stands above.
//!
//! One [`Fabric`] per world, one [`LocalTransport`] per rank. Queue depth bounds data packets, so
//! back-pressure happens; control packets have room of their own. No bulk operations: large
//! messages travel as pieces. Registered memory is accessed directly in a mapped fabric. A shaken
//! fabric lets its threads give way at random, by a seed, where they touch it.

use crate::registered::{Access, RegisteredRegions};
use garonne_engine::api::{Error, Peer};
use garonne_engine::limits::CONTROL_PAYLOAD_MAX;
use garonne_engine::transport::{
    AccessRights, AsyncProgress, AtomicAccess, BulkStatus, BulkToken, BulkTransfer, ClaimError,
    ExposeResult, FastPath, FragmentedSends, NodeMemory, PacketBuffer, PacketClass, PacketHeader,
    PeerCapabilities, PollSink, RegionDescriptor, RegionMemory, RegisteredMemory, RemoteMemory,
    SharedCopy, Transport, TransportLimits, WakeReason, WakeSource,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::futex;
use garonne_sync::mutex::lock;
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Data packets that wait at one rank before senders are refused.
const DEPTH: usize = 64;
/// Largest payload of a packet.
const PACKET_MAX: usize = 8192;

#[derive(Debug)]
struct Packet {
    from: Peer,
    header: PacketHeader,
    payload: Option<Scratch>,
}

#[derive(Debug, Default)]
struct Mailbox {
    packets: VecDeque<Packet>,
    data: usize,
}

#[derive(Debug, Default)]
struct Mailslot {
    mail: Mutex<Mailbox>,
    /// Counts rings.
    bell: AtomicU32,
}

/// Queues that all ranks of a world share.
#[derive(Debug)]
pub struct Fabric {
    boxes: Vec<Arc<Mailslot>>,
    /// The words that call each rank's progress thread; `None`: there was no memory for them.
    progress_words: Option<Segment>,
    /// Not zero: threads give way at random.
    seed: u64,
    /// Nobody calls progress threads, which are to look after this time.
    looks: Option<Duration>,
    /// Regions that all threads access directly; `None`: their owners' engines do it.
    registered: Option<Mutex<RegisteredRegions>>,
    dead: Mutex<Vec<Peer>>,
    deaths: AtomicUsize,
}

/// A rank's end of the fabric.
#[derive(Debug)]
pub struct LocalTransport {
    me: Peer,
    fabric: Arc<Fabric>,
    claimed: HashMap<u64, Scratch>,
    next_token: u64,
    /// Deaths told to the engine.
    told: usize,
    /// Peers of which the engine was told that they are dead.
    gone: Vec<Peer>,
    dice: u64,
}

/// Bytes between the words of two ranks.
const PROGRESS_WORDS_BYTES: usize = 64;

impl Fabric {
    /// A fabric for `world` ranks.
    pub fn new(world: u32) -> Arc<Self> {
        Self::shaken(world, 0)
    }

    /// A fabric whose threads give way at random where they touch it, by `seed`; 0: they do not.
    pub fn shaken(world: u32, seed: u64) -> Arc<Self> {
        Self::of(world, seed, None)
    }

    /// A fabric in which nobody calls a rank's progress thread: it is to look after this time, each
    /// time that it is armed.
    pub fn muted(world: u32, looks: Duration) -> Arc<Self> {
        Self::of(world, 0, Some(looks))
    }

    /// A fabric whose ranks access each other's registered memory directly.
    pub fn mapped(world: u32) -> Arc<Self> {
        let fabric = Self::new(world);
        match Arc::try_unwrap(fabric) {
            Ok(fabric) => Arc::new(Self {
                registered: Some(Mutex::default()),
                ..fabric
            }),
            Err(fabric) => fabric,
        }
    }

    /// A fabric for another shard of the same ranks, which have one progress thread each for all.
    pub fn beside(&self, seed: u64) -> Arc<Self> {
        Self::with_progress_words(
            self.boxes.len() as u32,
            seed,
            None,
            self.progress_words.clone(),
        )
    }

    fn of(world: u32, seed: u64, looks: Option<Duration>) -> Arc<Self> {
        let progress_words = Segment::anonymous(world.max(1) as usize * PROGRESS_WORDS_BYTES).ok();
        Self::with_progress_words(world, seed, looks, progress_words)
    }

    fn with_progress_words(
        world: u32,
        seed: u64,
        looks: Option<Duration>,
        progress_words: Option<Segment>,
    ) -> Arc<Self> {
        Arc::new(Self {
            registered: None,
            looks,
            progress_words,
            seed,
            boxes: (0..world).map(|_| Arc::default()).collect(),
            dead: Mutex::default(),
            deaths: AtomicUsize::new(0),
        })
    }

    /// The transport of rank `me`.
    pub fn transport(self: &Arc<Self>, me: Peer) -> LocalTransport {
        LocalTransport {
            me,
            fabric: self.clone(),
            claimed: HashMap::new(),
            next_token: 0,
            told: 0,
            gone: Vec::new(),
            dice: self.seed.wrapping_mul(u64::from(me) + 1),
        }
    }

    /// Rank `me` is dead: the others hear of it once they have polled what it sent before.
    pub fn kill(&self, me: Peer) {
        lock(&self.dead).push(me);
        if let Some(registered) = &self.registered {
            lock(registered).died(me);
        }
        self.deaths.fetch_add(1, Ordering::Release);
        self.boxes.iter().for_each(|target| target.ring());
    }
}

impl Mailslot {
    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.bell, u32::MAX);
    }
}

impl WakeSource for Mailslot {
    fn sleep(&self, ticket: u32, limit: Option<Duration>) {
        futex::wait(&self.bell, ticket, limit);
    }

    fn bell(&self) -> Option<&AtomicU32> {
        Some(&self.bell)
    }

    fn sleep_among(&self, ticket: u32, limit: Option<Duration>, others: &[(&AtomicU32, u32)]) {
        let own = std::iter::once((&self.bell, ticket));
        let words: Vec<_> = own.chain(others.iter().copied()).collect();
        futex::wait_any(&words, limit);
    }

    fn wake(&self) {
        self.ring();
    }
}

impl LocalTransport {
    fn peer(&self, peer: Peer) -> Result<&Arc<Mailslot>, ClaimError> {
        let target = self.fabric.boxes.get(peer as usize);
        target
            .filter(|_| !self.gone.contains(&peer))
            .ok_or(ClaimError::Gone)
    }

    /// Gives way, or does not, or for a while.
    fn shake(&mut self) {
        if self.fabric.seed == 0 {
            return;
        }
        // xorshift64*, by Vigna.
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        match self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56 {
            0..=40 => std::thread::yield_now(),
            41 => std::thread::sleep(Duration::from_micros(50)),
            _ => {}
        }
    }

    fn words(&self, peer: Peer) -> Option<Segment> {
        let all = self.fabric.progress_words.as_ref()?;
        (self.peer(peer).is_ok()).then(|| all.part(peer as usize * PROGRESS_WORDS_BYTES, 8))
    }

    fn push(&self, peer: Peer, header: PacketHeader, payload: Option<Scratch>) {
        if let Ok(target) = self.peer(peer) {
            lock(&target.mail).packets.push_back(Packet {
                from: self.me,
                header,
                payload,
            });
            target.ring();
        }
    }
}

impl Transport for LocalTransport {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: 32,
            packet_max: PACKET_MAX,
            control_max: CONTROL_PAYLOAD_MAX,
            ordered: true,
        }
    }

    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        self.peer(peer).ok()?;
        Some(PeerCapabilities {
            eager_max: 4096,
            fragmented_max: 0,
            can_read: false,
            can_write: false,
            pipeline_chunk: PACKET_MAX,
            read_chunk: u64::MAX,
        })
    }

    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        let target = self.peer(peer)?;
        if class == PacketClass::Data {
            let mut mail = lock(&target.mail);
            if mail.data >= DEPTH {
                return Err(ClaimError::Full);
            }
            mail.data += 1;
        }
        let scratch = Scratch::new(len.max(1)).ok_or(ClaimError::Full)?;
        let token = self.next_token << 1 | u64::from(class == PacketClass::Data);
        self.next_token += 1;
        let room = PacketBuffer {
            mem: scratch.mem(),
            len,
            peer,
            token,
            stores: StoreKind::Cached,
        };
        self.claimed.insert(token, scratch);
        Ok(room)
    }

    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        self.shake();
        let payload = self.claimed.remove(&room.token);
        let mut header = *header;
        // The mark tells the receiving side whose budget to give back.
        header.shard = (room.token & 1) as u16;
        self.push(room.peer, header, payload);
        self.shake();
    }

    fn abandon(&mut self, room: PacketBuffer) {
        self.claimed.remove(&room.token);
        if room.token & 1 == 1
            && let Ok(target) = self.peer(room.peer)
        {
            lock(&target.mail).data -= 1;
        }
    }

    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        let len = header.len as usize;
        let room = self.claim(peer, len, PacketClass::Data)?;
        room.mem.copy_from(0, bytes, 0, len);
        self.commit(room, header);
        Ok(())
    }

    fn poll(&mut self, budget: u32, sink: &mut impl PollSink) -> u32 {
        self.shake();
        let own = self.fabric.boxes[self.me as usize].clone();
        let mut told = 0;
        while told < budget {
            let Some(mut packet) = ({
                let mut mail = lock(&own.mail);
                let packet = mail.packets.pop_front();
                mail.data -= usize::from(
                    packet
                        .as_ref()
                        .is_some_and(|packet| packet.header.shard == 1),
                );
                packet
            }) else {
                break;
            };
            packet.header.shard = 0;
            let mem = packet
                .payload
                .as_ref()
                .map_or(UserMem::null(), Scratch::mem);
            sink.on_packet(packet.from, packet.header, mem, packet.header.len as usize);
            told += 1;
        }
        if told == 0 && self.fabric.deaths.load(Ordering::Acquire) > self.told {
            let dead = lock(&self.fabric.dead)[self.told];
            self.told += 1;
            told += 1;
            if dead != self.me {
                self.gone.push(dead);
                sink.on_peer_gone(dead);
            }
        }
        told
    }

    fn arm(&mut self) -> u32 {
        self.fabric.boxes[self.me as usize]
            .bell
            .load(Ordering::SeqCst)
    }

    fn disarm(&mut self) {}

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.fabric.boxes[self.me as usize].clone()
    }

    fn wake_peer(&mut self, peer: Peer) {
        if let Ok(target) = self.peer(peer) {
            target.ring();
        }
    }
}

impl FastPath for LocalTransport {}

impl FragmentedSends for LocalTransport {}

impl RemoteMemory for LocalTransport {
    fn expose(&mut self, _token: BulkToken, _peer: Peer, _data: &Data) -> ExposeResult {
        ExposeResult::Unable
    }

    fn revoke(&mut self, _token: BulkToken) -> BulkStatus {
        BulkStatus::Done
    }

    fn read(&mut self, _bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse("queues between threads have no regions"))
    }

    fn write(&mut self, _bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse("queues between threads have no regions"))
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        match self.fabric.registered {
            Some(_) => Some(self),
            None => None,
        }
    }
}

impl LocalTransport {
    /// Uses the regions; none moves or ends meanwhile.
    fn registered<T>(&self, use_them: impl FnOnce(&mut RegisteredRegions) -> T) -> Option<T> {
        let regions = self.fabric.registered.as_ref()?;
        Some(use_them(&mut lock(regions)))
    }

    fn carry_out(&self, access: &Access) -> Result<BulkStatus, Error> {
        self.registered(|regions| regions.carry_out(access))
            .unwrap_or(Err(Error::Resource("nothing is mapped here")))
            .map(|()| BulkStatus::Done)
    }
}

impl RegisteredMemory for LocalTransport {
    fn register(&mut self, region: &RegionMemory) -> Option<RegionDescriptor> {
        self.registered(|regions| regions.register(self.me, region))?
    }

    fn deregister(&mut self, _token: BulkToken, descriptor: &RegionDescriptor) -> BulkStatus {
        self.registered(|regions| regions.deregister(self.me, descriptor));
        BulkStatus::Done
    }

    fn direct_rights(&mut self, _peer: Peer, _descriptor: &RegionDescriptor) -> AccessRights {
        AccessRights::ALL
    }

    fn get(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.carry_out(&Access::get(&transfer))
    }

    fn put(&mut self, transfer: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.carry_out(&Access::put(&transfer))
    }

    fn fetch_atomic(&mut self, access: AtomicAccess<'_>) -> Result<BulkStatus, Error> {
        self.carry_out(&Access::atomic(&access))
    }

    fn flush(&mut self, _token: BulkToken, _peer: Peer) -> Result<BulkStatus, Error> {
        Ok(BulkStatus::Done)
    }
}

impl SharedCopy for LocalTransport {}

impl AsyncProgress for LocalTransport {
    fn wake_progress(&mut self, peer: Peer, need: WakeReason) {
        if self.fabric.looks.is_none()
            && let Some(words) = self.words(peer)
        {
            ProgressWakeup::new(words.atomic_u32(0), words.atomic_u32(4)).ring(match need {
                WakeReason::Answer => WakeupScope::Transfers,
                WakeReason::Look => WakeupScope::Everything,
            });
        }
    }

    fn progress_words(&mut self, peer: Peer) -> Option<Segment> {
        self.words(peer)
    }

    fn arm_progress(&mut self) -> Option<Duration> {
        self.fabric.looks
    }
}

impl NodeMemory for LocalTransport {}
