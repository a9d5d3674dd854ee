//! The rail of a rank whose peers are partly on its node and partly elsewhere: shared memory to the ones, TCP to the others.
//!
//! Implements the engine's `Rail` by asking the rail of each peer; which one that is was said when it was made and does not change. A rank sleeps on its
//! doorbell, as with shared memory alone; a thread of its own, started at the first sleep, watches the sockets and rings that doorbell when one is ready, once for
//! each time the rank arms. While nothing comes by TCP its sockets, which cost a system call, are looked at ever more seldom between looks at shared memory.

use crate::limits::COMPOSED_TCP_EVERY_MAX;
use crate::shm::ShmRail;
use crate::sys;
use crate::tcp::{Sockets, TcpRail};
use garonne_engine::api::{Error, Peer};
use garonne_engine::lift::{Lift, Lifted};
use garonne_engine::rail::{
    Accept, Bulk, Class, Descriptor, Ending, Exposing, Fetch, Handover, Header, Limits, Need, Rail, Reach,
    Ready, Refusal, Room, Sink, Step, Token, WakeSource,
};
use garonne_sync::run::Run;
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, UserMem};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// See the module's paragraph.
pub struct ComposedRail {
    shm: ShmRail,
    tcp: TcpRail,
    /// By peer: it is on this node.
    near: Vec<bool>,
    watcher: Option<Watcher>,
    wake: Arc<ComposedWake>,
    /// Polls of shared memory between two of TCP, and how many are left.
    tcp_every: u32,
    tcp_in: u32,
}

impl std::fmt::Debug for ComposedRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComposedRail")
            .field("shm", &self.shm)
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}

/// The doorbell, with the time at which sockets need their rank.
struct ComposedWake {
    bell: Arc<dyn WakeSource>,
    sockets: Sockets,
}

impl WakeSource for ComposedWake {
    fn sleep(&self, ticket: u32, limit: Option<Duration>) {
        self.bell.sleep(ticket, self.sockets.limit(limit));
    }

    fn wake(&self) {
        self.bell.wake();
    }

    fn look_on(&self) {
        self.bell.look_on();
    }

    fn look_away(&self) {
        self.bell.look_away();
    }
}

/// The thread that rings the doorbell when a socket is ready.
#[derive(Debug)]
struct Watcher {
    /// Holds the epoll of the sockets, armed for one event at a time.
    epoll: Arc<OwnedFd>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

const SOCKETS: u64 = 0;
const STOP: u64 = 1;

impl Watcher {
    fn start(wake: &Arc<ComposedWake>) -> Result<Self, rustix::io::Errno> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&*epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let nothing = EventFlags::ONESHOT;
        epoll::add(
            &*epoll,
            wake.sockets.epoll(),
            EventData::new_u64(SOCKETS),
            nothing,
        )?;
        let (its_epoll, bell) = (epoll.clone(), wake.bell.clone());
        let thread = sys::without_signals(|| {
            std::thread::Builder::new()
                .name(String::from("garonne-sockets"))
                .stack_size(crate::limits::WATCHER_STACK)
                .spawn(move || watch(&its_epoll, &*bell))
        });
        let thread = thread.map_err(|_| rustix::io::Errno::AGAIN)?;
        Ok(Self {
            epoll,
            stop,
            thread: Some(thread),
        })
    }

    /// From now on the first socket that is ready, or is so already, rings the doorbell.
    fn arm(&self, sockets: &Sockets) -> bool {
        let once = EventFlags::IN | EventFlags::ONESHOT;
        epoll::modify(&*self.epoll, sockets.epoll(), EventData::new_u64(SOCKETS), once).is_ok()
    }
}

fn watch(epoll: &OwnedFd, bell: &dyn WakeSource) {
    loop {
        let mut events = Vec::with_capacity(2);
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        for event in events {
            if event.data.u64() == STOP {
                return;
            }
            bell.wake();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ComposedRail {
    /// The rail of a rank that reaches the peers that are `near` by shared memory and the others by TCP. Both rails name peers by their index in the job's world.
    pub fn new(shm: ShmRail, tcp: TcpRail, near: Vec<bool>) -> Self {
        let wake = Arc::new(ComposedWake {
            bell: shm.wake_source(),
            sockets: tcp.sockets(),
        });
        Self {
            shm,
            tcp,
            near,
            watcher: None,
            wake,
            tcp_every: 1,
            tcp_in: 0,
        }
    }

    /// The part for the node.
    pub fn shm(&mut self) -> &mut ShmRail {
        &mut self.shm
    }

    /// The part for other hosts.
    pub fn tcp(&mut self) -> &mut TcpRail {
        &mut self.tcp
    }

    #[inline(always)]
    fn is_near(&self, peer: Peer) -> bool {
        self.near.get(peer as usize).copied().unwrap_or(false)
    }

    /// Something goes or came by TCP: answers are looked for soon.
    #[inline]
    fn tcp_moves(&mut self) {
        (self.tcp_every, self.tcp_in) = (1, 0);
    }

    #[inline(never)]
    fn poll_tcp(&mut self, budget: u32, sink: &mut impl Sink) -> u32 {
        let told = self.tcp.poll(budget, sink);
        self.tcp_every = if told > 0 {
            1
        } else {
            (self.tcp_every * 2).min(COMPOSED_TCP_EVERY_MAX)
        };
        self.tcp_in = self.tcp_every;
        told
    }
}

/// Asks the rail of a peer.
macro_rules! of {
    ($self:ident, $peer:expr, $rail:ident => $what:expr) => {
        if $self.is_near($peer) {
            let $rail = &mut $self.shm;
            $what
        } else {
            $self.tcp_moves();
            let $rail = &mut $self.tcp;
            $what
        }
    };
}

impl Rail for ComposedRail {
    fn limits(&self) -> Limits {
        let (near, far) = (self.shm.limits(), self.tcp.limits());
        Limits {
            inline_max: near.inline_max.min(far.inline_max),
            packet_max: near.packet_max.min(far.packet_max),
            control_max: near.control_max.min(far.control_max),
            ordered: near.ordered && far.ordered,
        }
    }

    fn reach(&self, peer: Peer) -> Option<Reach> {
        if self.is_near(peer) {
            return self.shm.reach(peer);
        }
        let most = self.limits().packet_max;
        let reach = self.tcp.reach(peer)?;
        Some(Reach {
            eager_max: reach.eager_max.min(most),
            pipeline_chunk: reach.pipeline_chunk.min(most),
            ..reach
        })
    }

    fn flow(&mut self, peer: Peer, len: usize) -> Option<usize> {
        of!(self, peer, rail => rail.flow(peer, len))
    }

    #[inline]
    fn claim(&mut self, peer: Peer, len: usize, class: Class) -> Result<Room, Refusal> {
        of!(self, peer, rail => rail.claim(peer, len, class))
    }

    #[inline]
    fn commit(&mut self, room: Room, header: &Header) {
        of!(self, room.peer, rail => rail.commit(room, header));
    }

    fn abandon(&mut self, room: Room) {
        of!(self, room.peer, rail => rail.abandon(room));
    }

    fn send_inline(&mut self, peer: Peer, header: &Header, bytes: UserMem) -> Result<(), Refusal> {
        of!(self, peer, rail => rail.send_inline(peer, header, bytes))
    }

    fn run(&mut self, peer: Peer) -> Option<Arc<Run>> {
        if self.is_near(peer) {
            self.shm.run(peer)
        } else {
            None
        }
    }

    #[inline]
    fn open_run(&mut self, peer: Peer, records: u32) -> u32 {
        if self.is_near(peer) {
            self.shm.open_run(peer, records)
        } else {
            0
        }
    }

    #[inline(always)]
    fn send_at_once(&mut self, peer: Peer, header: Header, bytes: UserMem) -> bool {
        self.is_near(peer) && self.shm.send_at_once(peer, header, bytes)
    }

    #[inline]
    fn poll(&mut self, budget: u32, sink: &mut impl Sink) -> u32 {
        if self.tcp_in > 0 {
            self.tcp_in -= 1;
            return self.shm.poll(budget, sink);
        }
        // First, or much traffic of the node would leave it no budget; and not in every poll, or the other way round.
        let told = self.poll_tcp(budget, sink);
        told + self.shm.poll(budget.saturating_sub(told), sink)
    }

    #[inline(always)]
    fn take_ready<A: Accept>(&mut self, accept: A) -> Ready<A::Taken> {
        self.shm.take_ready(accept)
    }

    #[inline(always)]
    fn poll_one(&mut self, sink: &mut impl Sink) -> bool {
        self.shm.poll_one(sink)
    }

    fn expose(&mut self, token: Token, peer: Peer, data: &Data) -> Exposing {
        of!(self, peer, rail => rail.expose(token, peer, data))
    }

    fn revoke(&mut self, token: Token) -> Ending {
        // Tokens are unique among both, and a rail that does not know one has nothing to end.
        self.tcp.revoke(token);
        self.shm.revoke(token)
    }

    fn read(&mut self, bulk: Bulk<'_>) -> Result<Ending, Error> {
        of!(self, bulk.peer, rail => rail.read(bulk))
    }

    fn write(&mut self, bulk: Bulk<'_>) -> Result<Ending, Error> {
        of!(self, bulk.peer, rail => rail.write(bulk))
    }

    fn fetch(&mut self, token: Token, peer: Peer, len: u64) -> Fetch {
        of!(self, peer, rail => rail.fetch(token, peer, len))
    }

    fn fetched(&mut self, token: Token, worked: bool) {
        // Only shared memory learns from it.
        self.shm.fetched(token, worked);
    }

    fn share(&mut self, token: Token, peer: Peer, data: &Data, way: Fetch) -> Option<Descriptor> {
        of!(self, peer, rail => rail.share(token, peer, data, way))
    }

    fn take_part(&mut self, token: Token) -> Result<Option<(u64, u64)>, Error> {
        self.shm.take_part(token)
    }

    fn push_part(&mut self, bulk: Bulk<'_>) -> Result<Step, Error> {
        of!(self, bulk.peer, rail => rail.push_part(bulk))
    }

    fn withdraw(&mut self, token: Token) -> Handover {
        // Only data of the node's peers was offered.
        self.shm.withdraw(token)
    }

    fn write_ahead(&mut self, bulk: Bulk<'_>) -> Result<Option<Step>, Error> {
        of!(self, bulk.peer, rail => rail.write_ahead(bulk))
    }

    fn lift(&mut self, bulk: Bulk<'_>, what: Lift) -> Result<Lifted, Error> {
        of!(self, bulk.peer, rail => rail.lift(bulk, what))
    }

    fn looks(&self, peer: Peer) -> bool {
        !self.is_near(peer) || self.shm.looks(peer)
    }

    fn arm(&mut self) -> u32 {
        let ticket = self.shm.arm();
        self.tcp.arm();
        // The caller's last poll looks at the sockets, too; what becomes ready after it rings the bell that is armed already.
        self.tcp_moves();
        if self.watcher.is_none() {
            self.watcher = Watcher::start(&self.wake).ok();
        }
        let watched = self
            .watcher
            .as_ref()
            .is_some_and(|watcher| watcher.arm(&self.wake.sockets));
        self.wake.sockets.set_watched(watched);
        ticket
    }

    fn disarm(&mut self) {
        self.shm.disarm();
        self.tcp.disarm();
    }

    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.wake.clone()
    }

    fn ring(&mut self, peer: Peer) {
        of!(self, peer, rail => rail.ring(peer));
    }

    fn nudge(&mut self, peer: Peer, need: Need) {
        of!(self, peer, rail => rail.nudge(peer, need));
    }

    fn hands(&mut self) -> Option<Segment> {
        self.shm.hands()
    }

    fn commons(&mut self, owner: Peer) -> Option<Segment> {
        if self.is_near(owner) {
            self.shm.commons(owner)
        } else {
            None
        }
    }

    fn doorbell(&mut self, peer: Peer) -> Option<Segment> {
        if self.is_near(peer) {
            self.shm.doorbell(peer)
        } else {
            None
        }
    }
}
